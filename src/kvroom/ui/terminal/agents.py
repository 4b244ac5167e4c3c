"""How many sessions hold, as text: the verdict, a table of what each change is worth, one plot."""

from __future__ import annotations

from math import log10

from kvroom.optimize.agents.answer import AgentsAnswer, VariantHeld
from kvroom.ui.terminal.plain import ascii_only, spelled
from kvroom.ui.terminal.plan import head
from kvroom.ui.terminal.table import aligned
from kvroom.ui.terminal.text import paragraph
from kvroom.ui.words import span

BAR = 30
"""Signs of the plot's longest bar."""
TIERS = (("gpu", "GPU"), ("host", "host"), ("nvme", "NVMe"), ("network", "store"))


def show(answer: AgentsAnswer) -> str:
    """The whole answer."""
    blocks = [head(answer.base.workings) if answer.base.workings else ""]
    blocks += [paragraph(answer.sentence), table(answer), tiers(answer), plot(answer)]
    blocks += [paragraph(f"{row.variant.label}: {row.why}.") for row in answer.found if row.why]
    blocks += [paragraph(f"Note: {warning}.") for warning in answer.warnings]
    text = "\n\n".join(block for block in blocks if block)
    return spelled(text) if ascii_only() else text


def table(answer: AgentsAnswer) -> str:
    """A line a deployment."""
    rows = [["", "GPUs", "sessions", "80 %", "req/h", "TTFT p95", "TPOT p95", "hits", "$/s·h"]]
    for each in answer.found:
        best = each.best
        if best is None:
            continue
        band = each.band
        price = each.usd_per_session_hour
        rows.append(
            [
                each.variant.label,
                f"{each.gpus:,}",
                f"{each.sessions:,}",
                "" if band is None else f"{band[0]:,}–{band[1]:,}",
                f"{best.requests_per_s * 3600:,.0f}",
                "–" if best.ttft_p95_s is None else span(best.ttft_p95_s),
                "–" if best.tpot_p95_s is None else span(best.tpot_p95_s),
                f"{best.hit_ratio:.1%}",
                "–" if price is None else f"{price:,.2f}",
            ]
        )
    return "How many sessions hold ($/s·h: dollars a session and hour)\n" + aligned(
        rows, left=1, trimmed=True
    )


def tiers(answer: AgentsAnswer) -> str:
    """Where prompts are found, of deployments that have more than the GPUs' cache."""
    tiered = [each for each in answer.found if each.best and len(each.best.tiers) > 1]
    if not tiered:
        return ""
    names = {name for each in tiered if each.best for name, _ in each.best.tiers}
    columns = [(key, name) for key, name in TIERS if key in names]
    rows = [["", *(name for _, name in columns)]]
    for each in tiered:
        hits = dict(each.best.tiers) if each.best else {}
        cells = (f"{hits[key]:.1%}" if key in hits else "" for key, _ in columns)
        rows.append([each.variant.label, *cells])
    return "Hits by tier, of prompt tokens\n" + aligned(rows, left=1, trimmed=True)


def plot(answer: AgentsAnswer) -> str:
    """The deployment as asked over sessions: first tokens (a bar, on a logarithmic scale, to its limit ┊),
    tokens after them, hits."""
    base: VariantHeld = answer.base
    trials = [t for t in (base.held[0].trials if base.held else ()) if t.ttft_p95_s]
    if len(trials) < 2:
        return ""
    limit = next((o.limit_s for o in answer.slo if o.metric == "ttft"), None)
    values = [t.ttft_p95_s or 0.0 for t in trials] + ([limit] if limit else [])
    low, high = log10(min(values)), log10(max(values))
    wide = (high - low) or 1.0

    def place(value: float) -> int:
        return 1 + round((log10(value) - low) / wide * (BAR - 1))

    lines = [f"  sessions  {'TTFT p95':{BAR}}            TPOT p95   hits"]
    for trial in trials:
        assert trial.ttft_p95_s is not None
        signs = list("█" * place(trial.ttft_p95_s) + " " * BAR)[:BAR]
        if limit:
            mark = place(limit) - 1
            signs[mark] = "┊" if signs[mark] == " " else "▓"
        tpot = "–" if trial.tpot_p95_s is None else span(trial.tpot_p95_s)
        mark_of = "" if trial.met else "  missed"
        lines.append(
            f"  {trial.users:>8,}  {''.join(signs)}{span(trial.ttft_p95_s):>9}  {tpot:>9}  "
            f"{trial.hit_ratio:>6.1%}{mark_of}"
        )
    return "\n".join(lines)
