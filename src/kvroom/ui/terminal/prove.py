"""``kvroom prove`` for a terminal: what was predicted beside what was measured, and how far it was off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from kvroom.observe.prove.proof import Proof, errors
from kvroom.ui.terminal.plain import ascii_only, spelled
from kvroom.ui.terminal.table import aligned
from kvroom.ui.terminal.text import paragraph
from kvroom.ui.words import seconds

Table = tuple[tuple[str, ...], list[list[str]]]


def headline(proofs: Sequence[Proof]) -> str:
    """What came out, in a sentence or three."""
    blocks = [r for proof in proofs for r in proof.cache if r.name == "num_blocks"]
    alone = [count for proof in proofs for count in proof.counts if count.one_by_one]
    steps = errors([step for proof in proofs for step in proof.steps])
    parts = []
    if blocks:
        right = sum(block.predicted == block.measured for block in blocks)
        parts.append(f"Cache blocks exact on {right} of {len(blocks)} engines.")
    if alone:
        right = sum(r.holds for r in alone)
        parts.append(f"{right} of {len(alone)} counters of requests one by one equal.")
    for name, told in (("predicted", "as predicted"), ("calibrated", "once calibrated")):
        if name in steps:
            parts.append(f"Steps off by {steps[name]['median']:.0%} in the median {told}.")
    return " ".join(parts) or "Nothing was measured."


def cache_rows(proof: Proof) -> Table:
    """The cache's figures."""
    rows = [
        [
            r.name.replace("_", " "),
            "-" if r.predicted is None else f"{r.predicted:,}",
            f"{r.measured:,}",
            "exact" if r.predicted == r.measured else "OFF",
        ]
        for r in proof.cache
    ]
    return ("cache", "predicted", "measured", ""), rows


def step_rows(proof: Proof) -> Table:
    """Steps, their errors and how disturbed they were."""
    rows = []
    for step in proof.steps:
        measured = step.measured
        rows.append(
            [
                f"{measured.concurrency}",
                f"{measured.context_tokens:,}",
                seconds(measured.step_s),
                seconds(step.predicted_s),
                f"{step.predicted_s / measured.step_s - 1:+.0%}",
                "-"
                if step.calibrated_s is None
                else f"{step.calibrated_s / measured.step_s - 1:+.0%}",
                "-" if measured.disturbed is None else f"{measured.disturbed:.0%}",
            ]
        )
    head = ("at once", "context", "step", "predicted", "error", "calibrated", "others had")
    return head, rows


def first_rows(proof: Proof) -> Table:
    """First tokens, of prompts unknown and known."""
    rows = [
        [
            f"{first.measured.input_tokens:,}",
            f"{first.measured.cached_tokens:,}",
            f"{first.cached_tokens:,}",
            seconds(first.measured.ttft_s),
            seconds(first.predicted_s),
            f"{first.predicted_s / first.measured.ttft_s - 1:+.0%}",
        ]
        for first in proof.firsts
    ]
    return ("prompt", "cached", "predicted", "TTFT", "predicted", "error"), rows


def count_rows(proof: Proof) -> Table:
    """Counters of the engine and the simulator."""
    rows = []
    for count in proof.counts:
        verdict = "OFF"
        if count.holds:
            verdict = "exact" if count.measured == count.predicted else "within"
        allowed = "0" if not count.within else f"±{count.within:,}"
        rows.append(
            [
                f"{count.workload}, {count.counter}",
                f"{count.predicted:,}",
                f"{count.measured:,}",
                verdict,
                allowed,
            ]
        )
    return ("counter", "simulated", "measured", "", "may differ by"), rows


def time_rows(proof: Proof) -> Table:
    """What whole workloads took."""
    rows = [
        [
            time.workload,
            seconds(time.measured_s),
            seconds(time.predicted_s),
            f"{time.predicted_s / time.measured_s - 1:+.0%}",
            seconds(time.roomy_s),
        ]
        for time in proof.times
    ]
    return ("all of it", "measured", "simulated", "error", "with a larger cache"), rows


def show(proofs: Sequence[Proof], told: dict[str, Any]) -> str:
    """The whole answer as text."""
    blocks = [paragraph(headline(proofs), "")]
    for proof in proofs:
        blocks.append(click.style(proof.title, bold=True))
        for table in (
            cache_rows(proof),
            step_rows(proof),
            first_rows(proof),
            count_rows(proof),
            time_rows(proof),
        ):
            if table[1]:
                blocks.append(aligned([table[0], *table[1]], left=1))
        for name, value in errors(proof.steps).items():
            blocks.append(
                f"  {name}: off by {value['median']:.1%} in the median, {value['largest']:.1%} at most; "
                f"{value['near']} of {value['points']} within {value['wanted']:.0%}"
            )
    blocks.append(
        "\n".join(
            f"  {key:26}{paragraph(str(value), ' ' * 28)[28:]}" for key, value in told.items()
        )
    )
    text = "\n\n".join(blocks)
    return spelled(text) if ascii_only() else text
