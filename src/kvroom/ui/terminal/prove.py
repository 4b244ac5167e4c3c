"""``kvroom prove`` for a terminal: what was predicted beside what was measured, and how far it was off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from kvroom.observe.prove.proof import Proof, errors
from kvroom.ui.terminal.plain import ascii_only, spelled
from kvroom.ui.terminal.plan import paragraph
from kvroom.ui.terminal.table import aligned
from kvroom.ui.words import seconds

Table = tuple[tuple[str, ...], list[list[str]]]


def headline(proofs: Sequence[Proof]) -> str:
    """What came out, in a sentence or three."""
    blocks = [r for p in proofs for r in p.cache if r.name == "num_blocks"]
    alone = [r for p in proofs for r in p.counts if r.one_by_one]
    steps = errors([r for p in proofs for r in p.steps])
    said = []
    if blocks:
        right = sum(r.predicted == r.measured for r in blocks)
        said.append(f"Cache blocks exact on {right} of {len(blocks)} engines.")
    if alone:
        right = sum(r.holds for r in alone)
        said.append(f"{right} of {len(alone)} counters of requests one by one equal.")
    for name, told in (("predicted", "as predicted"), ("calibrated", "once calibrated")):
        if name in steps:
            said.append(f"Steps off by {steps[name]['median']:.0%} in the median {told}.")
    return " ".join(said) or "Nothing was measured."


def cache_rows(p: Proof) -> Table:
    """The cache's figures."""
    rows = [
        [
            r.name.replace("_", " "),
            "-" if r.predicted is None else f"{r.predicted:,}",
            f"{r.measured:,}",
            "exact" if r.predicted == r.measured else "OFF",
        ]
        for r in p.cache
    ]
    return ("cache", "predicted", "measured", ""), rows


def step_rows(p: Proof) -> Table:
    """Steps, their errors and how disturbed they were."""
    rows = []
    for r in p.steps:
        m = r.measured
        rows.append(
            [
                f"{m.concurrency}",
                f"{m.context_tokens:,}",
                seconds(m.step_s),
                seconds(r.predicted_s),
                f"{r.predicted_s / m.step_s - 1:+.0%}",
                "-" if r.calibrated_s is None else f"{r.calibrated_s / m.step_s - 1:+.0%}",
                "-" if m.disturbed is None else f"{m.disturbed:.0%}",
            ]
        )
    head = ("at once", "context", "step", "predicted", "error", "calibrated", "others had")
    return head, rows


def first_rows(p: Proof) -> Table:
    """First tokens, of prompts unknown and known."""
    rows = [
        [
            f"{r.measured.input_tokens:,}",
            f"{r.measured.cached_tokens:,}",
            f"{r.cached_tokens:,}",
            seconds(r.measured.ttft_s),
            seconds(r.predicted_s),
            f"{r.predicted_s / r.measured.ttft_s - 1:+.0%}",
        ]
        for r in p.firsts
    ]
    return ("prompt", "cached", "predicted", "TTFT", "predicted", "error"), rows


def count_rows(p: Proof) -> Table:
    """Counters of the engine and the simulator."""
    rows = []
    for r in p.counts:
        verdict = "OFF"
        if r.holds:
            verdict = "exact" if r.measured == r.predicted else "within"
        allowed = "0" if not r.within else f"±{r.within:,}"
        rows.append(
            [
                f"{r.workload}, {r.counter}",
                f"{r.predicted:,}",
                f"{r.measured:,}",
                verdict,
                allowed,
            ]
        )
    return ("counter", "simulated", "measured", "", "may differ by"), rows


def time_rows(p: Proof) -> Table:
    """What whole workloads took."""
    rows = [
        [
            r.workload,
            seconds(r.measured_s),
            seconds(r.predicted_s),
            f"{r.predicted_s / r.measured_s - 1:+.0%}",
            seconds(r.roomy_s),
        ]
        for r in p.times
    ]
    return ("all of it", "measured", "simulated", "error", "with a larger cache"), rows


def show(proofs: Sequence[Proof], told: dict[str, Any]) -> str:
    """The whole answer as text."""
    blocks = [paragraph(headline(proofs), "")]
    for p in proofs:
        blocks.append(click.style(p.title, bold=True))
        for table in (cache_rows(p), step_rows(p), first_rows(p), count_rows(p), time_rows(p)):
            if table[1]:
                blocks.append(aligned([table[0], *table[1]], left=1))
        for name, e in errors(p.steps).items():
            blocks.append(
                f"  {name}: off by {e['median']:.1%} in the median, {e['largest']:.1%} at most; "
                f"{e['near']} of {e['points']} within {e['wanted']:.0%}"
            )
    blocks.append("\n".join(f"  {k:26}{paragraph(str(v), ' ' * 28)[28:]}" for k, v in told.items()))
    text = "\n\n".join(blocks)
    return spelled(text) if ascii_only() else text
