"""The proof as one HTML page: plots of measured points on predicted lines, tables of every figure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kvroom import __version__
from kvroom.answer import html
from kvroom.answer.plot import STYLE, Series, plot
from kvroom.observe.prove.proof import Proof, StepRow, errors
from kvroom.ui.terminal.prove import (
    cache_rows,
    count_rows,
    first_rows,
    headline,
    step_rows,
    time_rows,
)

_STYLE = """
:root { --paper: #fbfaf7; --ink: #1d1f22; --soft: #5b6168; --line: #dcd9d2; --good: #2e7d4f;
--bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --paper: #16181b; --ink: #e9e7e2; --soft: #a4a9b0;
--line: #34383d; --good: #6fcb97; --bad: #ff8a80; } }
body { margin: 0 auto; max-width: 900px; padding: 28px 20px 60px; background: var(--paper);
color: var(--ink); font: 16px/1.55 Georgia, serif; }
h1 { font-size: 34px; line-height: 1.15; margin: 0 0 8px; } h2 { margin: 46px 0 6px; }
h3 { margin: 30px 0 2px; font: 600 16px system-ui, sans-serif; } p { margin: 0 0 10px; }
.lede { font-size: 20px; color: var(--soft); } figure { margin: 12px 0 26px; }
figcaption { color: var(--soft); font-size: 15px; }
.wide { overflow-x: auto; } table { border-collapse: collapse; margin: 8px 0 18px;
font: 14px/1.4 system-ui, sans-serif; font-variant-numeric: tabular-nums; }
th, td { padding: 4px 12px 4px 0; text-align: right; white-space: nowrap;
border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 600; } th:first-child, td:first-child { text-align: left; }
.yes { color: var(--good); } .no { color: var(--bad); } dt { font-weight: 600; }
dl { font: 14px/1.5 system-ui, sans-serif; } dd { margin: 0 0 6px; color: var(--soft); }
"""


def render(proofs: Sequence[Proof], about: dict[str, Any]) -> str:
    """The page; ``about`` says what was measured on: name → figure, shown as they are."""
    facts = {**about, "kvroom": __version__}
    return html.document(
        "Predicted and measured",
        html.heading("Predicted and measured", 1),
        html.paragraph(headline(proofs), cls="lede"),
        *(_engine(proof) for proof in proofs),
        html.heading("What it was measured on"),
        html.element(
            "dl",
            *(
                html.element("dt", html.text(name)) + html.element("dd", html.text(value))
                for name, value in facts.items()
            ),
        ),
        style=_STYLE + STYLE,
    )


def _engine(proof: Proof) -> str:
    parts = [html.heading(proof.title)]
    if proof.cache:
        parts += [html.heading("The cache", 3), _table(*cache_rows(proof))]
    if proof.steps:
        parts += [_figures(proof), html.heading("Every step", 3), _table(*step_rows(proof))]
    if proof.firsts:
        parts += [
            html.heading("The first token, and what a known prompt saves", 3),
            _table(*first_rows(proof)),
        ]
    if proof.counts:
        parts += [
            html.heading("Cache hits and preemptions", 3),
            html.paragraph(
                "The simulator was given the same requests. One request at a time its counters must "
                "equal the engine's; of requests at once they may differ by what stands last."
            ),
            _table(*count_rows(proof)),
        ]
    if proof.times:
        parts += [html.heading("What that costs", 3), _table(*time_rows(proof))]
    return "\n".join(parts)


def _figures(proof: Proof) -> str:
    rows = proof.steps
    contexts = sorted(proof.lines)
    by_context = [(context, [row for row in rows if _near(row.measured.context_tokens, contexts) == context])
                  for context in contexts]  # fmt: skip
    step = [
        Series(
            f"{c:,} tokens",
            [(b, s * 1e3) for b, s in proof.lines[c]],
            [(r.measured.concurrency, r.measured.step_s * 1e3) for r in own],
            # One band is enough to say how wide they are.
            [(r.measured.concurrency, r.low_s * 1e3, r.high_s * 1e3) for r in own]
            if c == contexts[0]
            else (),
        )
        for c, own in by_context
    ]
    token = [
        Series(
            f"{c:,} tokens",
            [(b, s * 1e3 / b) for b, s in proof.lines[c]],
            [
                (r.measured.concurrency, r.measured.step_s * 1e3 / r.measured.concurrency)
                for r in own
            ],
        )
        for c, own in by_context
    ]
    grown = []
    for batch in sorted({row.measured.concurrency for row in rows}):
        own = sorted(
            (row for row in rows if row.measured.concurrency == batch),
            key=lambda r: r.measured.context_tokens,
        )
        if len(own) > 1:
            grown.append(
                Series(
                    f"batch {batch}",
                    [(r.measured.context_tokens, r.predicted_s * 1e3) for r in own],
                    [(r.measured.context_tokens, r.measured.step_s * 1e3) for r in own],
                )
            )
    wanted = "".join(_error(name, value) for name, value in errors(rows).items())
    return "\n".join(
        (
            html.heading("A step, by how many decode at once", 3),
            _figure(step, "requests at once", "ms a step",
                    "Lines are predicted from the machine's own rates alone, dots measured; "
                    f"shaded is the 80 % band of {contexts[0]:,} tokens."),
            html.heading("What batching saves", 3),
            _figure(token, "requests at once", "ms a token",
                    f"The weights are read once a step, however many requests share it: {_saved(rows)}."),
            html.heading("What the cache costs as it grows", 3),
            _figure(grown, "tokens of context", "ms a step",
                    "Each request's cache is read in every step of its answer."),
            html.paragraph(wanted),
        )
    )  # fmt: skip


def _saved(rows: Sequence[StepRow]) -> str:
    """What a token took alone and in the largest batch, at the shortest context."""
    short = min(row.measured.context_tokens for row in rows)
    own = [row.measured for row in rows if row.measured.context_tokens == short]
    alone, most = (f(own, key=lambda m: m.concurrency) for f in (min, max))
    each = most.step_s / most.concurrency
    return (
        f"measured {alone.step_s * 1e3:,.1f} ms a token by {alone.concurrency}, "
        f"{each * 1e3:,.1f} ms by {most.concurrency}"
    )


def _error(name: str, e: dict[str, Any]) -> str:
    how = "As predicted" if name == "predicted" else "Calibrated by the other half of the points"
    return (
        f"{how}: off by {e['median']:.0%} in the median, {e['largest']:.0%} at most; "
        f"{e['near']} of {e['points']} within the {e['wanted']:.0%} aimed at. "
    )


def _near(tokens: int, contexts: Sequence[int]) -> int:
    return min(contexts, key=lambda c: abs(c - tokens))


def _figure(series: Sequence[Series], x: str, y: str, says: str) -> str:
    label = f"{y} over {x}: " + "; ".join(
        f"{sery.name} {', '.join(f'{b:.3g} at {a:g}' for a, b in sery.dots)}" for sery in series
    )
    picture = plot(label, x, y, series)
    if not picture:
        return ""
    caption = html.element("figcaption", html.text(says))
    return html.element("figure", html.element("div", picture, cls="wide"), caption)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    def cell(words: str) -> str:
        kind = {"exact": "yes", "within": "yes", "OFF": "no"}.get(words, "")
        return html.element("td", html.text(words), cls=kind)

    return html.cells(
        (html.element("th", html.text(h)) for h in head), (map(cell, row) for row in rows)
    )
