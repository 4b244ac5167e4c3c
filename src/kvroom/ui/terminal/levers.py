"""Levers in words and bars, as wide as the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click

from kvroom.answer.html import number
from kvroom.hardware.mixed import so_many
from kvroom.optimize.cost import ORDERS, Figures
from kvroom.optimize.levers.rank import Levers, Pulled
from kvroom.optimize.levers.served import ServedFigures
from kvroom.ui.terminal.plain import ascii_only, spelled, text_width
from kvroom.ui.terminal.plan import warnings
from kvroom.ui.terminal.text import paragraph
from kvroom.units import say_tokens

MOST = 16
"""Levers shown unless all are asked for."""
ID = 30
SERVED_ID = 23
BY = {
    "requests": "requests at once",
    "step": "the time of a step",
    "ttft": "TTFT",
    "cost": "dollars for a million output tokens",
}


def show(levers: Levers, *, everything: bool = False) -> str:
    """The whole answer."""
    blocks = [
        _head(levers),
        paragraph(levers.sentence),
        _table(levers, everything),
        _together(levers),
        _served(levers),
        _details(levers),
        _left_out(levers),
        warnings(levers.warnings) if levers.warnings else "",
    ]
    text = "\n\n".join(block for block in blocks if block)
    return spelled(text) if ascii_only() else text


def _head(levers: Levers) -> str:
    scenario = levers.scenario
    model = scenario.model if isinstance(scenario.model, str) else "a model by value"
    gpu = (
        scenario.gpu
        if isinstance(scenario.gpu, str)
        else str(scenario.gpu.get("name", "a card by value"))
    )
    cards = so_many(scenario.gpu_count, gpu)
    limit = f" of {say_tokens(scenario.context_tokens)}" if scenario.context_tokens else ""
    has = "–" if levers.before.requests is None else f"{levers.before.requests:,.4g}"
    line = f"{model} on {cards}, {scenario.engine}: {has} requests at once{limit}"
    return click.style(paragraph(line, ""), bold=True)


def _table(levers: Levers, everything: bool) -> str:
    better = ORDERS[levers.ranked_by]
    rows = [
        lever
        for lever in levers.levers
        if everything or better(lever.after) > better(levers.before)
    ]
    shown = rows if everything else rows[:MOST]
    far = max((p.after.requests or 0 for p in shown), default=0) or 1
    columns = _columns([levers.before, *(p.after for p in shown)])
    lines = [f"Each alone, ranked by {BY[levers.ranked_by]}"]
    lines.append(
        f"  {'':{ID}}{'requests':>9}  " + "".join(f"{column[0]:>10}" for column in columns)
    )
    lines.append(_row("as it is", levers.before, columns, far, " "))
    lines += [_row(p.lever.id, p.after, columns, far, "*" if p.easy else " ") for p in shown]
    lines.append(
        paragraph(
            "* one flag away; model, cards and limit stay; its cost in quality is published and small."
        )
    )
    rest = len(levers.levers) - len(shown)
    if rest:
        lines.append(paragraph(f"{rest} more help less, nothing or the other way (--all)."))
    return "\n".join(lines)


Column = tuple[str, str, float, int]


def _columns(figures: Iterable[Figures]) -> list[Column]:
    """Heading, field, scale and decimals of the columns that hold anything."""
    names = list(figures)
    columns: tuple[Column, ...] = (
        ("ms/token", "token_s", 1e3, 1),
        ("TTFT ms", "ttft_s", 1e3, 0),
        ("$/M", "usd_per_million_output_tokens", 1.0, 2),
    )
    return [column for column in columns if any(getattr(f, column[1]) is not None for f in names)]


def _row(name: str, figures: Figures, columns: Sequence[Column], far: float, mark: str) -> str:
    said = name if len(name) <= ID - 2 else name[: ID - 3] + "…"
    cells = ""
    for _, key, scale, decimals in columns:
        value = getattr(figures, key)
        cells += f"{_cell(value, scale, decimals):>10}"
    room = text_width() - 6 - ID - 9 - 10 * len(columns)
    count = "–" if figures.requests is None else f"{figures.requests:,.5g}"
    bar = "█" * round((figures.requests or 0) / far * room)
    return f"{mark} {said:{ID}}{count:>9}  {cells}  {bar}".rstrip()


def _together(levers: Levers) -> str:
    if not levers.together:
        return ""
    best = levers.together[0]
    lines = [f"Together: {number(levers.before.requests)} → {number(best.after.requests)} requests"]
    gain = (best.after.requests or 0) - (levers.before.requests or 0)
    for name, share in levers.waterfall:
        said = name if len(name) <= ID else name[: ID - 1] + "…"
        bar = "█" * (max(0, round(share / gain * 30)) if gain else 0)
        lines.append(f"  {said:{ID}}{share:>+9.1f}  {bar}".rstrip())
    lines.append(
        paragraph("Each lever's share of the gain, whatever the order they are pulled in.")
    )
    others = [t for t in levers.together[1:] if t.ids != best.ids][:3]
    for other in others:
        lines.append(paragraph(f"{number(other.after.requests)}: {' + '.join(other.ids)}"))
    return "\n".join(lines)


def _served(levers: Levers) -> str:
    """The workload served with each lever that only serving shows."""
    if levers.served_before is None:
        return ""
    rows: list[tuple[str, ServedFigures]] = [("as it is", levers.served_before)]
    rows += [(x.lever.id, x.after) for x in levers.served]
    heads = ("TTFT ms", "p95", "ms/token", "tokens/s", "hits", "$/M")
    lines = ["The workload's requests, served with each alone"]
    lines.append(f"  {'':{SERVED_ID}}" + "".join(f"{head:>9}" for head in heads))
    for name, f in rows:
        said = name if len(name) <= SERVED_ID - 1 else name[: SERVED_ID - 2] + "…"
        cells = (
            _cell(f.ttft_s, 1e3, 0),
            _cell(f.ttft_p95_s, 1e3, 0),
            _cell(f.tpot_s, 1e3, 1),
            _cell(f.output_tokens_per_s, 1, 0),
            f"{f.prefix_hit_ratio:.1%}",
            _cell(f.usd_per_million_output_tokens, 1, 2),
        )
        lines.append(f"  {said:{SERVED_ID}}" + "".join(f"{cell:>9}" for cell in cells))
    return "\n".join(lines)


def _cell(value: float | None, scale: float, decimals: int) -> str:
    return "–" if value is None else format(value * scale, f",.{decimals}f")


def _details(levers: Levers) -> str:
    better = ORDERS[levers.ranked_by]
    told: dict[str, list[str]] = {}
    for p in [lever for lever in levers.levers if better(lever.after) > better(levers.before)][
        :MOST
    ]:
        if text := _detail(p):
            told.setdefault(text, []).append(p.lever.id)
    lines = [paragraph(f"{', '.join(ids)}: {text}") for text, ids in told.items()]
    return "\n".join(["What they need and cost", *lines]) if lines else ""


def _detail(pulled: Pulled) -> str:
    """What a lever needs and costs, a sentence each."""
    lever = pulled.lever
    lines = []
    if lever.needs:
        lines.append(f"Needs {'; '.join(lever.needs)}")
    if lever.quality is None:
        lines.append("Nobody published what it costs in quality")
    elif lever.quality.loss_ratio:
        lines.append(f"{lever.quality.effect} [{lever.quality.source}]")
    if lever.latency:
        lines.append(f"{lever.latency.effect} [{lever.latency.source}]")
    return ". ".join(lines) + "." if lines else ""


def _left_out(levers: Levers) -> str:
    if not levers.left_out:
        return ""
    reasons: dict[str, list[str]] = {}
    for x in levers.left_out:
        reasons.setdefault(x.why, []).append(x.id)
    lines = [
        paragraph(f"{', '.join(ids)}: {why}".rstrip(".") + ".") for why, ids in reasons.items()
    ]
    return "\n".join(["Left out", *lines])
