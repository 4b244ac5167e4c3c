"""How many requests of a workload are held at once: a quick estimate in closed form.

A request that decodes stays one step a token, its blocks growing from its prompt's to its last
token's. So what one running request holds on average is its mean over its steps, and of many kinds each
counts as long as it stays. Requests that share a prefix hold it once. Blocks that are free and too few for
the prompt that waits count for nothing; neither do those of a request that is done until the engine
takes them back. Where prompts take more tokens than a step computes, tokens bind and not blocks: a request
costs its prompt and its answer in tokens and stays a step a token of the answer.

Simulations of mixed lengths run within a sixth of it, most within a twentieth; requests all of one length
keep company, and short answers to long prompts then run up to a third fewer at once
(``tests/unit/test_occupancy.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from math import inf

from kvroom.errors import KvroomError
from kvroom.memory.deployment import Deployment, EngineAnswer
from kvroom.scenario import Workload
from kvroom.simulation.engines import played
from kvroom.simulation.script import Engine, Group
from kvroom.workloads.distributions import Fixed
from kvroom.workloads.synthetic import Synthetic, of_workload

DRAWS = 256
"""Requests that stand for a workload whose lengths differ."""
PARTS = 4
"""Stretches of a decode at whose middles blocks that do not simply grow are counted."""


def expected_room(
    d: Deployment, answer: EngineAnswer, workload: Workload | None
) -> tuple[float | None, float | None]:
    """Requests of ``workload`` at once on all data-parallel replicas: each for itself, and with the prefix
    that they share held once. (None, None) where no lengths are asked or the engine would not start."""
    if workload is None or not (answer.starts or answer.cache_given):
        return None, None
    if workload.input_tokens is None and workload.input is None:
        return None, None
    try:
        rules = played(d, answer)
        # When they come does not matter here.
        made = of_workload(
            replace(workload, arrivals=workload.arrivals or "once", requests_per_s=None)
        )
    except KvroomError:
        return None, None
    engine = rules.engine
    limit = engine.settings.max_model_len
    lengths = [
        (min(i, limit - 1), max(1, min(o, limit - i))) for i, o in _lengths(made) if i < limit
    ]
    if not lengths:
        return None, None
    capacity = answer.capacity
    limited = capacity is not None and capacity.max_running_requests is not None
    most = engine.settings.max_num_seqs if limited else inf
    usable = engine.num_gpu_blocks - 1
    ahead = rules.passes_in_flight - 1
    held = mean_blocks(engine, lengths, ahead)
    head = waiting_blocks(engine, lengths)
    tokens = engine.settings.max_num_batched_tokens if limited else inf
    alone = min(most, max(0.0, usable - head) / held, _in_step(lengths, tokens))
    shared = alone
    prefix = made.prefix
    if prefix.tokens and engine.enable_prefix_caching:
        once = sum(prefix.tokens // g.block_size for g in engine.groups if g.type == "full")
        kept = prefix.tokens // engine.groups[0].block_size * engine.groups[0].block_size
        rest, left = held - once, usable - prefix.groups * once
        own = [(max(1, p - kept), o) for p, o in lengths]
        if rest > 0 and left > 0:
            room = max(0.0, left - waiting_blocks(engine, own)) / rest
            shared = max(alone, min(most, room, _in_step(own, tokens)))
    return alone * d.layout.dp, shared * d.layout.dp


def _lengths(made: Synthetic) -> Iterable[tuple[int, int]]:
    varied = [made.input, made.output, made.turns, made.agent]
    if all(isinstance(each, Fixed) for each in varied) and made.turns.mean == made.agent.mean == 1:
        return [(made.prefix.tokens + round(made.input.mean), round(made.output.mean))]
    return ((r.input_tokens, r.output_tokens) for r in islice(made, DRAWS))


def mean_blocks(engine: Engine, lengths: Sequence[tuple[int, int]], ahead: int) -> float:
    """Blocks that a running request holds on average, requests of these lengths coming one as often as
    the other; each keeps its blocks ``ahead`` steps longer than it runs."""
    weight = total = 0.0
    for prompt, answer in lengths:
        # Its own passes (a prompt begins anywhere in a step's tokens), then a step a token after the first.
        passes = 1 + prompt / engine.settings.max_num_batched_tokens
        steps = answer - 1
        total += passes * _blocks(engine.groups, prompt)
        total += sum(_grown(g, prompt, steps) for g in engine.groups)
        total += ahead * _blocks(engine.groups, prompt + steps)
        weight += passes + steps
    return total / weight


def waiting_blocks(engine: Engine, lengths: Sequence[tuple[int, int]]) -> float:
    """Blocks that are free on average because the prompt that waits needs more: half of it."""
    needs = [_blocks(engine.groups, prompt) for prompt, _ in lengths]
    total = sum(needs)
    return sum(n * n for n in needs) / total / 2 if total else 0.0


def _in_step(lengths: Sequence[tuple[int, int]], tokens: float) -> float:
    """Requests at once where every step computes ``tokens``: by Little's law, those begun a step times the
    steps that each stays."""
    stays = sum(1 + p / tokens + o - 1 for p, o in lengths)
    return tokens * stays / sum(p + o - 1 for p, o in lengths)


def _blocks(groups: Iterable[Group], tokens: int) -> float:
    return sum(_group_blocks(g, tokens) for g in groups)


def _grown(g: Group, prompt: int, steps: int) -> float:
    """Blocks times steps of a decode of ``steps`` from ``prompt`` tokens on."""
    if g.type == "full":
        return _upto(prompt + steps, g.block_size) - _upto(prompt, g.block_size)
    middles = (prompt + steps * (2 * part + 1) // (2 * PARTS) for part in range(PARTS))
    return steps * sum(_group_blocks(g, tokens) for tokens in middles) / PARTS


def _upto(tokens: int, size: int) -> int:
    """The sum of ceil(n / size) over n = 1 … tokens."""
    whole, rest = divmod(tokens, size)
    return size * whole * (whole + 1) // 2 + rest * (whole + 1)


def _group_blocks(g: Group, tokens: int) -> float:
    size = g.block_size
    match g.type:
        case "full":
            return -(-tokens // size)
        case "sliding_window":
            # A window may begin anywhere in a block, so it touches a part of one more.
            return min(-(-tokens // size), (g.reach - 1) / size + 1)
        case "chunked_local":
            return -(-((tokens - 1) % g.reach + 1) // size)
    return 1
