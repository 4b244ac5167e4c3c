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

The band is one of 80 %, of two parts that know nothing of each other. Requests hold more or less as their
lengths are drawn and as far as they have come: of n that fill the cache their sum varies by √n times what
one does (central limit), so n varies by √n times what one holds varies relative to its mean. And the closed
form itself is off by ``OFF``. The engine's own limit (``max_num_seqs``) cuts the band off. It is a band of
what runs on average while others wait: the longer it runs, the fewer means lie outside. At one moment more
do, where requests that began together stay in step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from math import inf, sqrt

from kvroom.answer.plan import Room
from kvroom.engines import served_by
from kvroom.engines.base import EngineAnswer
from kvroom.engines.paged.scheduler_setup import GroupSpec, SchedulerSetup
from kvroom.errors import KvroomError
from kvroom.scenario.workload import Workload
from kvroom.sharding.deployment import Deployment
from kvroom.workloads.synthetic import of_workload

PARTS = 4
"""Stretches of a decode at whose middles blocks that do not simply grow are counted."""
OFF = 0.05
"""How far the mean of a simulation lies from the closed form, relative: root mean square over the loads and
seeds of ``test_simulations_lie_within_the_band`` in ``tests/unit/test_occupancy.py``."""
WIDE = 1.2816
"""Standard deviations that four of five of a normal distribution lie within."""


def expected_room(
    deployment: Deployment, answer: EngineAnswer, workload: Workload | None
) -> tuple[Room, Room]:
    """Requests of ``workload`` at once on all data-parallel replicas: each for itself, and with the prefix
    that they share held once. Nothing is known where no lengths are asked or the engine would not start."""
    if workload is None or not (answer.starts or answer.cache_given):
        return Room(), Room()
    if workload.input_tokens is None and workload.input is None:
        return Room(), Room()
    try:
        rules = served_by(deployment, answer)
        # When they come does not matter here.
        synthetic = of_workload(
            replace(workload, arrivals=workload.arrivals or "once", requests_per_s=None)
        )
    except KvroomError:
        return Room(), Room()
    setup = rules.setup
    limit = setup.config.max_model_len
    lengths = [
        (min(i, limit - 1), max(1, min(o, limit - i))) for i, o in synthetic.lengths() if i < limit
    ]
    if not lengths:
        return Room(), Room()
    capacity = answer.capacity
    limited = capacity is not None and capacity.max_running_requests is not None
    most = setup.config.max_num_seqs if limited else inf
    usable = setup.num_gpu_blocks - 1
    ahead, every = rules.steps_in_flight - 1, max(1, rules.depth)
    blocks, varies = held_blocks(setup, lengths, ahead, every)
    head = waiting_blocks(setup, lengths)
    tokens = setup.config.max_num_batched_tokens if limited else inf
    alone = min(max(0.0, usable - head) / blocks, _in_step(lengths, tokens, every))
    shared, own_held = alone, blocks
    prefix = synthetic.prefix
    if prefix.tokens and setup.enable_prefix_caching:
        once = sum(
            prefix.tokens // group.block_size for group in setup.groups if group.type == "full"
        )
        kept = prefix.tokens // setup.groups[0].block_size * setup.groups[0].block_size
        rest, left = blocks - once, usable - prefix.groups * once
        own = [(max(1, p - kept), o) for p, o in lengths]
        if rest > 0 and left > 0:
            room = max(0.0, left - waiting_blocks(setup, own)) / rest
            room = min(room, _in_step(own, tokens, every))
            if room > alone:
                shared, own_held = room, rest
    dp = deployment.layout.dp
    return (
        _banded(alone * dp, varies / blocks, most * dp),
        _banded(shared * dp, varies / own_held, most * dp),
    )


def _banded(requests: float, varies: float, most: float) -> Room:
    """``requests``, each of which holds its mean give or take ``varies`` of it, where ``most`` may run."""
    away = WIDE * sqrt(requests * varies**2 + (requests * OFF) ** 2)
    low, high = max(0.0, requests - away), requests + away
    return Room(requests=min(most, requests), low=min(most, low), high=min(most, high))


def held_blocks(
    setup: SchedulerSetup, lengths: Sequence[tuple[int, int]], ahead: int, every: int = 1
) -> tuple[float, float]:
    """Blocks that a running request holds on average and their standard deviation, requests of these
    lengths coming one as often as the other; each decodes in one of ``every`` steps and keeps its blocks
    ``ahead`` steps longer than it runs."""
    budget = setup.config.max_num_batched_tokens
    return _held(tuple(setup.groups), budget, tuple(lengths), ahead, every)


@lru_cache(maxsize=64)  # many questions have one workload
def _held(
    groups: tuple[GroupSpec, ...],
    budget: int,
    lengths: tuple[tuple[int, int], ...],
    ahead: int,
    every: int,
) -> tuple[float, float]:
    weight = total = even = squares = 0.0
    for prompt, answer in lengths:
        # Its own steps (a prompt begins anywhere in a step's tokens), then a step a token after the first.
        steps_of_prompt = every + prompt / budget
        tokens = answer - 1
        steps = every * tokens
        first, last = blocks_of(groups, prompt), blocks_of(groups, prompt + tokens)
        grown = sum(_grown(group, prompt, tokens) for group in groups)
        total += steps_of_prompt * first + every * grown
        total += ahead * last
        # The deviation is that of what grows evenly from first to last.
        even += steps_of_prompt * first + steps * (first + last) / 2
        squares += steps_of_prompt * first**2 + steps * (first**2 + first * last + last**2) / 3
        weight += steps_of_prompt + steps
    return total / weight, sqrt(max(0.0, squares / weight - (even / weight) ** 2))


def waiting_blocks(setup: SchedulerSetup, lengths: Sequence[tuple[int, int]]) -> float:
    """Blocks that are free on average because the prompt that waits needs more: half of it."""
    needs = [blocks_of(setup.groups, prompt) for prompt, _ in lengths]
    total = sum(needs)
    return sum(need * need for need in needs) / total / 2 if total else 0.0


def _in_step(lengths: Sequence[tuple[int, int]], tokens: float, every: int) -> float:
    """Requests at once where every step computes ``tokens``: by Little's law, those begun a step times the
    steps that each stays, decoding in one of ``every``."""
    stays = sum(every + p / tokens + every * (o - 1) for p, o in lengths)
    return tokens * stays / sum(p + o - 1 for p, o in lengths)


def blocks_of(groups: Iterable[GroupSpec], tokens: int) -> float:
    """Blocks that a request of so many tokens holds."""
    return sum(_group_blocks(group, tokens) for group in groups)


def _grown(group: GroupSpec, prompt: int, steps: int) -> float:
    """Blocks times steps of a decode of ``steps`` from ``prompt`` tokens on."""
    if group.type == "full":
        return _upto(prompt + steps, group.block_size) - _upto(prompt, group.block_size)
    middles = (prompt + steps * (2 * part + 1) // (2 * PARTS) for part in range(PARTS))
    return steps * sum(_group_blocks(group, tokens) for tokens in middles) / PARTS


def _upto(tokens: int, size: int) -> int:
    """The sum of ceil(n / size) over n = 1 … tokens."""
    whole, rest = divmod(tokens, size)
    return size * whole * (whole + 1) // 2 + rest * (whole + 1)


def _group_blocks(group: GroupSpec, tokens: int) -> float:
    size = group.block_size
    match group.type:
        case "full":
            return -(-tokens // size)
        case "sliding_window":
            # A window may begin anywhere in a block, so it touches a part of one more.
            return min(-(-tokens // size), (group.reach - 1) / size + 1)
        case "chunked_local":
            return -(-((tokens - 1) % group.reach + 1) // size)
    return 1
