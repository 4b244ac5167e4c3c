"""TPOT and TTFT under load, in closed form.

A closed loop: each of ``users`` sends a prompt, reads its answer, sends the next. While one request
decodes, others' prompts are computed in between, so TPOT is a decode step plus its share of their
prefill; TTFT is a request's own prefill plus what it waits behind others. When more users come than the
cache holds, those without room wait a whole answer of somebody else's.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from kvroom.timing.steps import Clock

ROUNDS = 30
"""Steps of the fixed point between TPOT and how many decode at once; it settles within a few."""
CLOSE = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What comes: lengths in tokens, users at once (whole deployment), how many have room at once,
    and how many prompt tokens an engine computes in one step."""

    input_tokens: int
    output_tokens: int
    users: int
    slots: float
    chunk_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Seconds a token after the first, to the first token, and requests that decode at once."""

    tpot_s: float
    ttft_s: float
    decoding: float
    requests_per_s: float


def static_batch(clock: Clock, load: Load) -> Times:
    """One batch, no arrivals: TTFT is when the batch's prefill is done."""
    k, layout = clock.k, clock.work.layout
    each = load.users / layout.dp
    middle = load.input_tokens + load.output_tokens // 2
    tpot = clock.decode_s(load.users, middle)
    tokens = each * load.input_tokens
    prompt = [a.times(each) for a in clock.work.prefilling(load.input_tokens)]
    chunks = ceil(tokens / load.chunk_tokens)
    ttft = clock.prefill(tokens, prompt, chunks=chunks, prompts=each).seconds
    ttft = k.first_scale * ttft + k.first_s
    return Times(
        tpot_s=tpot,
        ttft_s=ttft,
        decoding=load.users,
        requests_per_s=load.users / (ttft + tpot * max(1, load.output_tokens - 1)),
    )


def closed_loop(clock: Clock, load: Load) -> Times:
    """A steady loop of ``load.users``, of whom ``load.slots`` have room at once."""
    k, work = clock.k, clock.work
    layout = work.layout
    users, slots = load.users / layout.dp, max(1.0, load.slots / layout.dp)
    room = min(users, slots)
    steps = max(1, load.output_tokens - 1)
    each = work.decoding(load.input_tokens + load.output_tokens // 2)
    prompt = work.prefilling(load.input_tokens)
    chunks = ceil(load.input_tokens / load.chunk_tokens)
    own = clock.prefill(load.input_tokens, prompt, chunks=chunks).seconds
    fixed = clock.prefill(0.0, [a.times(0) for a in prompt], chunks=chunks).seconds
    decoding = room
    tpot = ttft = 0.0
    for _ in range(ROUNDS):
        step = clock.decode(decoding * layout.dp, each).seconds
        mixed = clock.mixed(decoding / layout.pp, each, load.input_tokens, prompt).seconds
        extra = max(0.0, mixed - step) + k.alone * fixed
        others = max(0.0, users - 1) / users * decoding / load.output_tokens
        tpot = step + others * extra
        service = steps * tpot
        queued = k.burst * (room - 1) / 2 * extra
        ttft = k.first_s + k.first_scale * own + k.wait * step + queued
        settled = max(min(1.0, room), room * service / (service + ttft))
        if abs(settled - decoding) <= CLOSE * room:
            break
        decoding = settled
    cycle = service + ttft
    if users > slots:
        ttft += (users / slots - 1) * cycle
    return Times(
        tpot_s=tpot,
        ttft_s=ttft,
        decoding=decoding * layout.dp,
        requests_per_s=room * layout.dp / cycle,
    )
