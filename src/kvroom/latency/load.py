"""TPOT and TTFT under load, in closed form.

A closed loop: each of ``users`` sends a prompt, reads its answer, sends the next. While one request
decodes, others' prompts are computed in between, so TPOT is a decode step plus its share of their
prefill; TTFT is a request's own prefill plus what it waits behind others. When more users come than the
cache holds, those without room wait a whole answer of somebody else's. Open arrivals below saturation
hold as many requests at once as come while one is served (Little's law). Where tokens are drafted, a step
gains each request several (``Clock.tokens_a_step``), so an answer takes so many fewer steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

from kvroom.latency.step_time import Clock
from kvroom.latency.work import Attention

ROUNDS = 60
"""Steps of the fixed point between TPOT and how many decode at once; it settles within a few."""
CLOSE = 1e-4
SCHEDULES = 4
"""How often drafting is fitted to how many decode: at a threshold of the schedule it may go to and fro."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What comes: lengths in tokens, users at once (whole deployment) or arrivals a second; how many
    such requests the cache is reckoned to hold and how many the engine runs at most (whole deployment);
    how many prompt tokens it computes in one step."""

    input_tokens: int
    output_tokens: int
    users: int
    cache_slots: float
    most: float
    chunk_tokens: int
    requests_per_s: float | None = None
    static: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Seconds a token after the first (``tpot_s``) and to the first (``ttft_s``), with their parts.

    ``tpot_s`` = (``step_s`` + ``prompts_a_step`` × ``prompt_s``) / ``tokens_a_step``; ``ttft_s`` =
    ``own_s`` + ``queued_s`` + ``no_room_s``. ``decoding`` requests decode at once; ``requests_per_s`` are
    finished by the whole deployment; ``saturated`` where more come than it can serve, so that ``ttft_s``
    has no end.
    """

    tpot_s: float
    ttft_s: float | None
    step_s: float
    prompts_a_step: float
    prompt_s: float
    own_s: float
    queued_s: float
    no_room_s: float
    decoding: float
    requests_per_s: float
    tokens_a_step: float
    saturated: bool = False


def served(clock: Clock, load: Load) -> Times:
    """The times of ``load``, static, open or closed.

    Where fewer tokens are drafted in larger steps, as many as in steps of those who then decode.
    """
    dp = clock.work.layout.dp
    times = _served(clock, load)
    for _ in range(SCHEDULES if clock.drafting and clock.drafting.schedule else 0):
        here = clock.at(times.decoding / dp)
        if here.tokens_a_step == times.tokens_a_step:
            break
        times = _served(here, load)
    return times


def _served(clock: Clock, load: Load) -> Times:
    if load.static:
        return static_batch(clock, load)
    if load.requests_per_s is not None:
        return open_arrivals(clock, load, load.requests_per_s)
    return closed_loop(clock, load)


def static_batch(clock: Clock, load: Load) -> Times:
    """One batch, no arrivals: TTFT is when the last prompt of the batch is computed.

    Requests that have no room wait for those before them, so a larger batch runs as several one after
    another, as full as the cache allows.
    """
    k, layout = clock.k, clock.work.layout
    together = min(float(load.users), slots_of(clock, load))
    waves = load.users / together
    each = together / layout.dp
    step = clock.decode_s(together, load.input_tokens + load.output_tokens // 2)
    tpot = step / clock.tokens_a_step
    tokens = each * load.input_tokens
    prompt = [a.times(each) for a in clock.prefilling(load.input_tokens)]
    chunks = ceil(tokens / load.chunk_tokens)
    own = clock.prefill(tokens, prompt, chunks=chunks, prompts=each).seconds
    steps = max(1, load.output_tokens - 1)
    no_room = (waves - 1) * (own * k.first_scale + steps * tpot)
    ttft = k.first_scale * own + k.first_s
    return Times(
        tpot_s=tpot,
        ttft_s=ttft + no_room,
        step_s=step,
        prompts_a_step=0.0,
        prompt_s=0.0,
        own_s=ttft,
        queued_s=0.0,
        no_room_s=no_room,
        decoding=together,
        requests_per_s=load.users / (ttft + no_room + tpot * steps),
        tokens_a_step=clock.tokens_a_step,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Replica:
    """One data-parallel replica's steps under a load: what each costs at a number of requests."""

    clock: Clock
    load: Load
    each: Sequence[Attention]
    prompt: Sequence[Attention]
    own_s: float
    alone_s: float

    @classmethod
    def of(cls, clock: Clock, load: Load) -> _Replica:
        k = clock.k
        prompt = clock.prefilling(load.input_tokens)
        chunks = ceil(load.input_tokens / load.chunk_tokens)
        own = clock.prefill(load.input_tokens, prompt, chunks=chunks).seconds
        empty = clock.prefill(0.0, [a.times(0) for a in prompt], chunks=chunks).seconds
        return cls(
            clock=clock,
            load=load,
            each=clock.decoding(load.input_tokens + load.output_tokens // 2),
            prompt=prompt,
            own_s=k.first_s + k.first_scale * own,
            alone_s=k.alone * empty,
        )

    def step_s(self, requests: float) -> float:
        """A decode step of ``requests`` of this replica."""
        return self.clock.decode(requests * self.clock.work.layout.dp, self.each).seconds

    def prompt_s(self, requests: float, step: float) -> float:
        """What computing one prompt adds to the steps of ``requests`` that decode meanwhile."""
        here = requests / self.clock.work.layout.pp
        mixed = self.clock.mixed(here, self.each, self.load.input_tokens, self.prompt).seconds
        return max(0.0, mixed - step) + self.alone_s


def slots_of(clock: Clock, load: Load) -> float:
    """Requests that run at once when enough come (whole deployment), one a replica at least.

    ``room`` of the coefficients is how many times what is reckoned a cache turned out to hold.
    """
    return max(clock.work.layout.dp, min(load.cache_slots * clock.k.room, load.most))


def closed_loop(clock: Clock, load: Load, near: float | None = None) -> Times:
    """A steady loop of ``load.users``, of whom ``load.slots`` have room at once.

    ``near``: about how many decode at once, where a like question has told (it shortens the search).
    """
    k, dp = clock.k, clock.work.layout.dp
    users, slots = load.users / dp, slots_of(clock, load) / dp
    room = min(users, slots)
    steps = max(1, load.output_tokens - 1)
    r, gained = _Replica.of(clock, load), clock.tokens_a_step
    decoding = min(room, near / dp) if near else room
    for _ in range(ROUNDS):
        step = r.step_s(decoding)
        prompt = r.prompt_s(decoding, step)
        # Others' prompts: a loop of one user never meets one.
        prompts = max(0.0, users - 1) / users * decoding * gained / load.output_tokens
        tpot = (step + prompts * prompt) / gained
        queued = k.wait * step + k.burst * max(0.0, room - 1) / 2 * prompt
        service = steps * tpot
        settled = max(min(1.0, room), room * service / (service + r.own_s + queued))
        if abs(settled - decoding) <= CLOSE * room:
            break
        decoding = settled
    cycle = service + r.own_s + queued
    no_room = max(0.0, users / slots - 1) * cycle
    return Times(
        tpot_s=tpot,
        ttft_s=r.own_s + queued + no_room,
        step_s=step,
        prompts_a_step=prompts,
        prompt_s=prompt,
        own_s=r.own_s,
        queued_s=queued,
        no_room_s=no_room,
        decoding=decoding * dp,
        requests_per_s=room * dp / cycle,
        tokens_a_step=gained,
    )


def open_arrivals(clock: Clock, load: Load, requests_per_s: float) -> Times:
    """Arrivals at ``requests_per_s`` (whole deployment), independent of one another.

    Each takes ``prompt_s`` of the steps' time, so ρ = rate × ``prompt_s`` of it goes to prompts, TPOT is
    a step over 1 − ρ (and over the tokens that it gains), and a prompt waits ρ / (2·(1 − ρ)) of another
    (M/D/1). Where that has no steady state, or not enough room, the deployment is saturated: it runs as a
    loop that fills it.
    """
    k, dp = clock.k, clock.work.layout.dp
    rate, slots = requests_per_s / dp, slots_of(clock, load) / dp
    steps = max(1, load.output_tokens - 1)
    r, gained = _Replica.of(clock, load), clock.tokens_a_step
    decoding = 1.0
    for _ in range(ROUNDS):
        step = r.step_s(decoding)
        prompt = r.prompt_s(decoding, step)
        busy = rate * prompt
        if busy >= 1:
            return _full(clock, load)
        tpot = step / (1 - busy) / gained
        settled = max(1.0, rate * steps * tpot)
        if settled > slots:
            return _full(clock, load)
        if abs(settled - decoding) <= CLOSE * decoding:
            break
        decoding = settled
    queued = k.wait * step + busy / (2 * (1 - busy)) * prompt
    return Times(
        tpot_s=tpot,
        ttft_s=r.own_s + queued,
        step_s=step,
        prompts_a_step=rate * tpot * gained,
        prompt_s=prompt,
        own_s=r.own_s,
        queued_s=queued,
        no_room_s=0.0,
        decoding=decoding * dp,
        requests_per_s=requests_per_s,
        tokens_a_step=gained,
    )


def _full(clock: Clock, load: Load) -> Times:
    """As many requests at once as have room, and more waiting for ever."""
    users = max(1, int(slots_of(clock, load)))
    t = closed_loop(clock, replace(load, users=users, requests_per_s=None))
    return replace(t, ttft_s=None, saturated=True)
