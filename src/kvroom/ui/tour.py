"""``make run``: the reference case, and the figures that follow from it."""

from __future__ import annotations

from collections.abc import Callable

import click

from kvroom import api
from kvroom.answer.plan import Plan
from kvroom.scenario.engine_names import CEILING_ENGINE
from kvroom.scenario.scenario import Scenario
from kvroom.ui.terminal import plan as text
from kvroom.ui.terminal.plain import colour, spell_out
from kvroom.units import KIB, show_gb, show_gib

REFERENCE = {
    "model": "llama-3-70b",
    "gpu": "80GB",
    "gpu_count": 4,
    "engine": CEILING_ENGINE,
    "weight_dtype": "bf16",
    "context_tokens": 32 * KIB,
}
COMMAND = "kvroom plan llama-3-70b --gpu 80GB:4 --context 32K --engine arithmetic"


def ask(**changes: object) -> Plan:
    """The Plan of the reference case with ``changes``."""
    return api.plan(Scenario.from_dict(REFERENCE | changes))


def room(plan: Plan) -> int:
    """Requests of the ceiling."""
    return plan.capacity.ceiling.requests if plan.capacity.ceiling else 0


def step_bytes_a_token(plan: Plan) -> float:
    """Weight and cache bytes that a decode step moves for each token it makes."""
    return (plan.step.bytes.weights + plan.step.bytes.kv) / plan.step.batch


def figures() -> list[tuple[str, str]]:
    """The explainer's figures, each computed here and now."""
    base = ask()
    long, short = ask(context_tokens=128 * KIB), ask(context_tokens=8 * KIB)
    alone, many = (ask(context_tokens=2 * KIB, concurrency=n) for n in (1, 64))
    left = 4 * (base.memory.gpu_bytes - base.memory.accounts[0].bytes)
    one = ask(gpu_count=1)
    return [
        ("weights", show_gb(base.weights.bytes)),
        ("left on four cards", show_gb(left)),
        ("a token", show_gib(base.kv.bytes_per_token)),
        ("a request of 32K", show_gb(base.kv.bytes_per_request)),
        ("room at 32K", f"{room(base)} requests"),
        ("with an FP8 cache", f"{room(ask(kv_dtype='fp8'))} requests"),
        ("room at 8K", f"{room(short)} requests"),
        ("room at 128K", f"{room(long)} requests"),
        ("a user at 128K", show_gib(long.kv.bytes_per_request)),
        (
            "128K against 8K",
            f"{long.kv.bytes_per_request / short.kv.bytes_per_request:.0f} times the cache",
        ),
        ("on one card", "fits" if one.verdict.fits else "does not fit, not even the weights"),
        (
            "batch 64 against 1, at 2K",
            f"{step_bytes_a_token(alone) / step_bytes_a_token(many):.1f} times fewer bytes a token",
        ),
        ("cache outweighs weights", f"from batch {base.step.crossover_batch} at 32K"),
    ]


def echo(line: str) -> None:
    """Print a line, in colour where that is wanted."""
    click.echo(line, color=colour())


def tour(say: Callable[[str], None] = echo) -> None:
    """Print the reference case as ``kvroom plan`` does, then the figures around it."""
    say(click.style(f"$ {COMMAND}\n", bold=True))
    say(text.show(api.workings(Scenario.from_dict(REFERENCE))))
    say("\n" + click.style("What follows from it", bold=True))
    for name, figure in figures():
        say(f"  {name:27}{figure}")
    say("\nAsk your own: .venv/bin/kvroom plan --help")


if __name__ == "__main__":
    spell_out()
    tour()
