"""A Plan on one screen: the verdict, what it is of, the figures that decide, what to know."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

import click

from kvroom.answer.plan import Plan
from kvroom.planner.plan import Workings
from kvroom.scenario.engine_names import CEILING_ENGINE
from kvroom.ui.terminal.plain import plain_text
from kvroom.ui.terminal.plan import bar, head, key, warnings
from kvroom.ui.terminal.text import paragraph, wrapped
from kvroom.ui.terminal.times import interval, load_in_words, money
from kvroom.units import say_tokens, show_gb, show_gib, show_seconds

NAME = 16
MOST_WARNINGS = 4
"""Warnings on the first screen; how many more there are is said."""


def brief(workings: Workings) -> str:
    """The answer for one screen; ``plan.show`` has all of it."""
    plan = workings.plan
    left = len(plan.warnings) - MOST_WARNINGS
    shown = plan.warnings[:MOST_WARNINGS]
    more = f"{left} more warning{'s' if left != 1 else ''} and every" if left > 0 else "Every"
    blocks = [
        click.style(paragraph(plan.verdict.sentence, ""), bold=True),
        head(workings, bold=False) + "\n" + _memory(workings),
        "\n".join(_row(*row) for row in _figures(workings)),
        *([warnings(shown)] if shown else []),
        paragraph(f"{more} account, tier and step: --all. Formulas: --explain.", ""),
    ]
    return "\n\n".join(block for block in blocks if block)


def _row(name: str, value: str, note: str) -> str:
    """A figure on a line; its note goes on below itself where it is long."""
    figures = f"  {name:{NAME}}{value:>12}  "
    return wrapped(figures, note)


def _memory(workings: Workings) -> str:
    """One GPU as a bar with its legend."""
    gpu = workings.plan.memory.gpu_bytes
    which = "One GPU" if workings.deployment.layout.gpus > 1 else "The GPU"
    title = plain_text(f"{which}: {show_gib(gpu)} ({show_gb(gpu)})")
    return "\n".join((title, "  " + bar(workings), *key(workings)))


def _figures(workings: Workings) -> Iterator[tuple[str, str, str]]:
    """Name, value and note of each figure that decides."""
    plan, deployment = workings.plan, workings.deployment
    yield from _room(plan)
    if plan.kv.bytes_per_request:
        each = f"of {say_tokens(deployment.context_tokens)}"
        if plan.kv.bytes_per_token:
            each += f", {show_gib(plan.kv.bytes_per_token)} a token"
        yield "a request", show_gib(plan.kv.bytes_per_request), each
    serving, step = plan.serving, plan.step
    if serving.tpot_s is not None:
        first = "no end" if serving.ttft_s is None else show_seconds(serving.ttft_s)
        yield "TTFT", first, interval(serving.ttft_low_s, serving.ttft_high_s)
        tpot = show_seconds(serving.tpot_s)
        yield "TPOT", tpot, interval(serving.tpot_low_s, serving.tpot_high_s)
        rate = f"{serving.output_tokens_per_s or 0:,.0f}"
        yield "tokens a second", rate, load_in_words(workings)
    elif step.seconds is not None:
        of = f"of {step.batch:,} request{'s' if step.batch != 1 else ''}"
        band = interval(step.seconds_low, step.seconds_high)
        yield "a step", show_seconds(step.seconds), f"{of}, {band}" if band else of
        if step.tokens_per_s is not None:
            yield "tokens a second", f"{step.tokens_per_s:,.0f}", "of all of them"
    elif deployment.model.generates:
        of = f"{step.batch:,} request{'s' if step.batch != 1 else ''}"
        moved = sum(asdict(step.bytes).values())
        yield "a step", show_gb(moved), f"moved for a token of {of}, all GPUs"
    yield from money(plan.cost)


def _room(plan: Plan) -> Iterator[tuple[str, str, str]]:
    """Requests at once: at the workload's lengths, as the engine counts, the ceiling."""
    capacity = plan.capacity
    lengths, engine, ceiling = capacity.of_lengths, capacity.engine, capacity.ceiling
    counted = plan.scenario.engine != CEILING_ENGINE and engine is not None
    if lengths.requests is not None:
        band = ""
        if lengths.low is not None and lengths.high is not None and lengths.low < lengths.high:
            band = f", {lengths.low:,.0f} to {lengths.high:,.0f}"
        yield "requests", f"{lengths.requests:,.1f}", f"at once of these lengths{band}"
    if counted and engine is not None and engine.max_concurrency is not None:
        tokens = "" if engine.kv_tokens is None else f", {engine.kv_tokens:,} cache tokens"
        replica = " a replica" if plan.scenario.dp > 1 else ""
        name = plan.scenario.engine
        note = f"at once of full length{replica}{tokens}"
        yield name, f"{engine.max_concurrency:,.2f}", note
    if ceiling is not None:
        yield "ceiling", f"{ceiling.requests:,}", "at once of full length, without overhead"
