"""TPOT and TTFT under load: the engine's scheduler on the step time, in closed form.

``simulate`` plays the scheduler; here is the steady state that it settles to, on the same ``StepClock``.
While a request decodes, prompts of others are computed in its steps, so TPOT is the mean step over how
many of them come. Whoever comes waits for the step under way (with asynchronous scheduling for the one
scheduled behind it), then for the steps that compute its prompt, which it may share with the prompts of
others. Answers end at a step's end, so the prompts of a closed loop that begin in one step are about
Poisson with the mean number that end in one. More requests than the cache or the engine hold wait.

A client sees more than the engine's part (``ttft_engine_s``): the front end (HTTP, tokenising, the way
to the scheduler), and in benchmarks the start. They let all users begin at once and average over some
ten requests a user, so their mean holds a share of the queue of the first ones (``start_s``; none where
users come spread, nor of open arrivals). Where tokens are drafted a step gains each request several.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache, partial
from itertools import pairwise
from math import ceil, erf, exp, inf, pi, sqrt
from operator import mul
from pathlib import Path

from kvroom.latency.clock import PS_PER_S, StepClock, step_clock
from kvroom.latency.ranks import OpenSteps, most_of, shares, steady
from kvroom.latency.step_time import Clock
from kvroom.records import dataclass

ROUNDS = 80
"""Rounds of a fixed point; it settles within a few."""
CLOSE = 1e-5
MANY_USERS = 400
"""Users who think beyond whom chance evens out."""
HUGE = 1e200
KEPT_ROUNDS = 10
"""Halvings of the time for which conversations stay cached."""
SCHEDULES = 4
"""How often drafting is fitted to how many decode: at a threshold of the schedule it may go to and fro."""
SPREAD = (0.84, 0.92, 1.0, 1.08, 1.16)
"""Lengths in a closed loop, over their mean: 0.8 to 1.2 evenly, as benchmarks draw them. Lengths that are
all the same would keep all users in step."""
CHUNK_TOKENS = 8192
"""Prompt tokens that an engine computes in one step, unless it is told otherwise."""
STEEP = 0.95
"""How steep a line through two points of a search is taken at most."""
PROMPT_PARTS = 8
"""Parts of prompts by length, each taken at its mean."""
MANY = 64
"""Prompts a step from which on every step is taken as the mean one."""
NEARLY = 0.999
AT_MOST = 0.01
"""How closely the most requests a second are told."""


def error_ratio(metric: str) -> float:
    """How far a simulation of the same load lies off this closed form, one standard deviation, as a factor;
    measured by ``benchmarks/agree.py``. ``metric`` is tpot or ttft."""
    return float(exp(_errors()[metric]))


@lru_cache(maxsize=1)
def _errors() -> dict[str, float]:
    kept = Path(__file__).with_name("load_errors.json").read_text("utf-8")
    return {metric: float(value) for metric, value in json.loads(kept)["errors"].items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Length:
    """One request: prompt tokens found cached and computed, and tokens of the answer.

    Of those cached its own conversation left ``own``, ``away_s`` before it came; where a tier below the cache
    has them they are there after ``fetch_s``. It holds ``blocks`` once it is done, and the next turn comes
    for them after ``gone_s``.
    """

    cached: int = 0
    computed: int
    output: int
    own: int = 0
    away_s: float = 0.0
    blocks: float = 0.0
    gone_s: float = inf
    fetch_s: float = 0.0

    @property
    def context_tokens(self) -> float:
        """Tokens that its decode steps look back on, on average."""
        return self.cached + self.computed + self.output / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Below:
    """A tier below the cache: it keeps the last ``blocks`` that were used, the cache's own among them, and
    brings tokens in ``latency_s`` and ``token_s`` for each."""

    blocks: float
    latency_s: float
    token_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Who comes, and what the engine makes of them.

    ``lengths`` are requests that stand for all. ``users`` are at once in a closed loop, ``think_s`` between
    an answer and their next prompt on average, of which ``thinking_ratio`` are above zero; else
    ``requests_per_s`` come. ``slots`` requests have room at once, give or take ``slots_deviation``; of
    ``cache_blocks`` one that runs holds ``running_blocks``, and the rest is what ended requests left, which
    the tiers ``below`` keep for longer, the nearest first. All these are of all ``replicas`` of the
    deployment, which share them evenly.
    ``chunk_tokens`` are computed in one step at most, prompts in steps of their own where ``apart`` (SGLang);
    ``steps_ahead`` steps are scheduled before the one that runs is over (1 with asynchronous scheduling).
    ``depth`` steps are in the stages of a pipeline at once, each with other requests (0: it steps as one).
    ``spread``: the users do not all begin at once. ``in_step``: all answers and pauses are of one length, so
    users who once met stay together.
    """

    lengths: tuple[Length, ...]
    users: float = 1
    think_s: float = 0.0
    thinking_ratio: float = 0.0
    requests_per_s: float | None = None
    replicas: int = 1
    static: bool = False
    spread: bool = False
    slots: float = inf
    slots_deviation: float = 0.0
    cache_blocks: float = inf
    running_blocks: float = 0.0
    below: tuple[Below, ...] = ()
    chunk_tokens: int = CHUNK_TOKENS
    steps_ahead: int = 0
    depth: int = 0
    apart: bool = False
    in_step: bool = False

    @property
    def input_tokens(self) -> int:
        """Tokens of a prompt, on average."""
        return round(
            sum(length.cached + length.computed for length in self.lengths) / len(self.lengths)
        )

    @property
    def longest_tokens(self) -> int:
        """Tokens of the longest request."""
        return max(x.cached + x.computed + x.output for x in self.lengths)

    @property
    def output_tokens(self) -> int:
        """Tokens of an answer, on average."""
        return max(1, round(sum(length.output for length in self.lengths) / len(self.lengths)))


def lengths_of(
    input_tokens: float, output_tokens: float, factors: Sequence[float] = (1.0,)
) -> tuple[Length, ...]:
    """Requests of ``input_tokens`` and ``output_tokens`` times each of ``factors``, each drawn for itself:
    long prompts are as often answered shortly as at length."""
    return tuple(
        Length(
            computed=max(1, round(factor * input_tokens)),
            output=max(1, round(factors[(2 * index + 1) % len(factors)] * output_tokens)),
        )
        for index, factor in enumerate(factors)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Seconds a token after the first (``tpot_s``) and to the first (``ttft_s``), with their parts.

    ``tpot_s`` = (``step_s`` + ``prompts_a_step`` × ``prompt_s``) / ``tokens_a_step``; ``ttft_engine_s`` =
    ``own_s`` + ``queued_s`` + ``no_room_s``, and ``ttft_s`` = ``ttft_engine_s`` + ``front_end_s`` +
    ``start_s``. ``decoding`` requests decode at once and ``requests_per_s`` are finished, in all replicas;
    ``saturated`` where more come than these can serve, so that ``ttft_s`` has no end. ``together_s`` is what
    a first token waits for longer because all who are served stay in step.
    """

    tpot_s: float
    step_s: float
    prompts_a_step: float
    prompt_s: float
    own_s: float
    queued_s: float
    no_room_s: float
    front_end_s: float
    start_s: float
    decoding: float
    requests_per_s: float
    tokens_a_step: float
    saturated: bool = False
    together_s: float = 0.0

    @property
    def ttft_engine_s(self) -> float | None:
        """From a request's arrival at the engine to its first token; None where it has no end."""
        return None if self.saturated else self.own_s + self.queued_s + self.no_room_s

    @property
    def outside_s(self) -> float:
        """What a client sees of a first token beside the engine's part."""
        return self.front_end_s + self.start_s

    def first_in(self, ratio: float) -> Times:
        """The same with first tokens in ``ratio`` of the time: what is outside the engine is so much longer
        or shorter, and the engine's own parts are where that does not do."""
        if ratio == 1.0:
            return self
        engine = self.own_s + self.queued_s + self.no_room_s
        whole = ratio * (engine + self.outside_s)
        share = min(1.0, whole / engine)
        left = whole - share * engine
        start = left * self.start_s / self.outside_s if self.outside_s else 0.0
        parts = ("own_s", "queued_s", "no_room_s", "together_s")
        kept = {part: share * getattr(self, part) for part in parts}
        return replace(self, **kept, front_end_s=left - start, start_s=start)

    @property
    def ttft_s(self) -> float | None:
        """What a client sees; None where it has no end."""
        engine = self.ttft_engine_s
        return None if engine is None else engine + self.outside_s


def served(clock: Clock, load: Load, near: float | None = None) -> Times:
    """The times of ``load``, static, open or closed.

    Where fewer tokens are drafted in larger steps, as many as in steps of those who then decode.
    ``near``: about how many decode at once, where a like question has told (it shortens the search).
    """
    dp = clock.work.layout.dp * load.replicas

    def times_of(lengths: tuple[Length, ...], near: float | None) -> Times:
        asked = load if lengths is load.lengths else replace(load, lengths=lengths)
        times = _served(clock, asked, near)
        for _ in range(SCHEDULES if clock.drafting and clock.drafting.schedule else 0):
            here = clock.at(times.decoding / dp)
            if here.tokens_a_step == times.tokens_a_step:
                break
            times = _served(here, asked, times.decoding)
        return times

    times = times_of(load.lengths, near)
    if load.cache_blocks == inf or not any(length.own for length in load.lengths):
        return times.first_in(clock.first_ratio)
    steps = step_clock(clock)

    def computing_s(length: Length) -> float:
        own = length.own
        spent = steps.mixed_ps(0, own, 1) - steps.mixed_ps(0, 0, 0)
        return (spent + steps.chunk_ps(length.cached - own, own)) / PS_PER_S

    return as_kept(load, times, times_of, computing_s).first_in(clock.first_ratio)


def held_per_s(clock: Clock, load: Load) -> float:
    """The most requests a second of those that ``load`` says which queue with an end; ``load`` has more."""
    low, high = 0.0, load.requests_per_s or 0.0
    full = served(clock, load).requests_per_s  # about as many
    tries = [share * full for share in (1 - AT_MOST, 1 + AT_MOST) if share * full < high]
    while high - low > AT_MOST * high:
        rate = tries.pop(0) if tries else (low + high) / 2
        if served(clock, replace(load, requests_per_s=rate)).saturated:
            high = min(high, rate)
        else:
            low = max(low, rate)
    return low


def as_kept(
    load: Load,
    times: Times,
    times_of: Callable[[tuple[Length, ...], float | None], Times],
    computing_s: Callable[[Length], float] = lambda length: inf,
) -> Times:
    """The times of conversations whose tokens stay cached only as long as there is room for them.

    What ended requests leave goes when room is wanted, the oldest first, so what was left less than a time T
    ago is found. T is such that running requests and what was left in T fill the cache (the characteristic
    time of an LRU cache: Che, Tung, Wang 2002, IEEE J. Sel. Areas Commun. 20(7)). ``times`` are those where
    all is found. Of tiers below the cache each has such a time of its own; what only they have is fetched,
    where that is quicker than ``computing_s`` what the conversation left.
    """
    rooms = (load.cache_blocks, *(tier.blocks for tier in load.below))

    def stays(kept_s: float, at: Times, room: float = rooms[-1]) -> bool:
        left = sum(length.blocks * min(length.gone_s, kept_s) for length in load.lengths)
        run_s = at.own_s + at.queued_s + at.tpot_s * (load.output_tokens - 1)
        running = min(load.slots, at.requests_per_s * run_s)
        held = running * load.running_blocks + at.requests_per_s * left / len(load.lengths)
        return held <= room

    def fetched(length: Length) -> Length:
        if not length.own or length.away_s < ages[0] - times.no_room_s:
            return length
        below = zip(load.below, (*ages[1:], inf), strict=True)
        tier = next(t for t, age in below if length.away_s < age - times.no_room_s)
        wait = tier.latency_s + length.own * tier.token_s
        return replace(length, fetch_s=wait) if wait <= computing_s(length) else _found(length, 0)

    longest = max(length.away_s for length in load.lengths)
    top = high = longest + times.no_room_s + times.tpot_s
    kept = load.lengths
    if not stays(high, times):
        low, kept = 0.0, ()
        for _ in range(KEPT_ROUNDS):
            kept_s = (low + high) / 2
            found = tuple(_found(length, kept_s - times.no_room_s) for length in load.lengths)
            times = times_of(found, times.decoding)
            if stays(kept_s, times):
                low, kept = kept_s, found
            else:
                high = kept_s
        if not kept:
            return times
        times = times_of(kept, times.decoding)
    if not load.below:
        return times
    ages = [_oldest(partial(stays, at=times, room=room), top) for room in rooms[:-1]]
    return times_of(tuple(fetched(length) for length in kept), times.decoding)


def _oldest(stays: Callable[[float], bool], high: float) -> float:
    """The greatest age up to ``high`` that ``stays``."""
    if stays(high):
        return inf
    low = 0.0
    for _ in range(2 * KEPT_ROUNDS):
        middle = (low + high) / 2
        low, high = (middle, high) if stays(middle) else (low, middle)
    return low


def _found(length: Length, kept_s: float) -> Length:
    """A request as it is computed where only what was left in the last ``kept_s`` is found."""
    if not length.own or length.away_s < kept_s:
        return length
    cached, computed = length.cached - length.own, length.computed + length.own
    return replace(length, cached=cached, computed=computed, own=0)


def _served(clock: Clock, load: Load, near: float | None) -> Times:
    if load.static:
        return static_batch(clock, load)
    steps = step_clock(clock)
    kind = PipelineModel if load.depth and steps.parts else LoadModel
    model = kind(clock=steps, load=load, dp=clock.work.layout.dp * load.replicas)
    model = replace(model, first_s=clock.k.first_s, intake_steps=clock.k.wait, start=clock.k.burst)
    if load.requests_per_s is None:
        return model.closed_loop(load.users, near)
    return model.open_arrivals(load.requests_per_s)


def static_batch(clock: Clock, load: Load) -> Times:
    """One batch, no arrivals: TTFT is when the last prompt of the batch is computed.

    Requests that have no room wait for those before them, so a larger batch runs as several one after
    another, as full as the cache allows.
    """
    users = load.users / load.replicas
    together = min(users, max(clock.work.layout.dp, load.slots))
    waves = users / together
    each = together / clock.work.layout.dp
    input_tokens, steps = load.input_tokens, max(1, load.output_tokens - 1)
    step = clock.decode_s(together, input_tokens + load.output_tokens // 2)
    tpot = step / clock.tokens_a_step
    prompt = [a.times(each) for a in clock.prefilling(input_tokens)]
    chunks = ceil(each * input_tokens / load.chunk_tokens)
    own = clock.prefill(each * input_tokens, prompt, chunks=chunks, prompts=each).seconds
    no_room = (waves - 1) * (own + steps * tpot)
    return Times(
        tpot_s=tpot,
        step_s=step,
        prompts_a_step=0.0,
        prompt_s=0.0,
        own_s=own,
        queued_s=0.0,
        no_room_s=no_room,
        front_end_s=clock.k.first_s,
        start_s=0.0,
        decoding=together * load.replicas,
        requests_per_s=load.users / (own + no_room + clock.k.first_s + tpot * steps),
        tokens_a_step=clock.tokens_a_step,
    )


@dataclass(frozen=True, kw_only=True)
class LoadModel:
    """One of ``dp`` ranks (of all replicas) that share a load, on the simulator's clock.

    ``first_s`` passes in the front end of each request, and ``intake_steps`` steps before the scheduler
    hears of it; of the queue of a start at once the share ``start`` is seen in a mean.
    """

    clock: StepClock
    load: Load
    dp: int = 1
    first_s: float = 0.0
    intake_steps: float = 0.0
    start: float = 0.0

    batches = 1
    """Steps in which those who decode take part in turn."""

    @property
    def _dealt(self) -> bool:
        """Whether ranks that step together are dealt open arrivals in turn; later turns come to the rank of
        those before them."""
        return self.clock.ranks > 1 and not self.load.thinking_ratio

    @cached_property
    def computed_tokens(self) -> float:
        """Prompt tokens that are computed of a request, on average."""
        return sum(length.computed for length in self.load.lengths) / len(self.load.lengths)

    @cached_property
    def output_tokens(self) -> float:
        """Tokens of an answer, on average."""
        return sum(length.output for length in self.load.lengths) / len(self.load.lengths)

    @cached_property
    def decode_steps(self) -> float:
        """Steps in which a request decodes; where drafts are accepted, one gains several tokens."""
        return max(1.0, (self.output_tokens - 1) / self.clock.tokens_a_step)

    @cached_property
    def _request_ps(self) -> float:
        """What a request adds to a step in which it decodes: those of long answers are met more often."""
        weight = sum(length.output for length in self.load.lengths)
        looks = sum(
            length.output * self.clock.context_ps(ceil(length.context_tokens))
            for length in self.load.lengths
        )
        return self.clock.request_ps + looks / weight

    @cached_property
    def _prompt_ps(self) -> float:
        """What a whole prompt adds evenly in one step."""
        clock = self.clock
        pairs = sum(clock.chunk_ps(length.cached, length.computed) for length in self.load.lengths)
        return (
            clock.token_ps * self.computed_tokens + clock.prompt_ps + pairs / len(self.load.lengths)
        )

    def step_s(self, decoding: float, prompts: float = 0.0) -> float:
        """A step in which so many requests decode and ``prompts`` whole prompts are computed."""
        spent: float = self.clock.fixed_ps(decoding, prompts * self.computed_tokens)
        spent += decoding * self._request_ps + prompts * self._prompt_ps
        spent += self.clock.bent_ps(decoding, prompts * self.computed_tokens, prompts)
        return spent / PS_PER_S

    def prompts_at_most(self, decoding: float) -> float:
        """Prompts that the token budget of a step computes beside so many that decode."""
        left = self.load.chunk_tokens - self._beside(decoding) * self.clock.verified
        return max(1.0, left) / self.computed_tokens

    def _beside(self, decoding: float) -> float:
        """Of so many that decode those that do so in steps that compute prompts."""
        return 0.0 if self.load.apart else decoding

    def mean_step_s(
        self, decoding: float, prompts: float, own: float = 0.0, elsewhere: float | None = None
    ) -> float:
        """The mean of steps in each of which ``prompts`` begin on average (Poisson) in one rank, beside
        ``own``, and in each other ``elsewhere`` (None: as many); where these are computed apart, of such a
        step and the one before it that computes them, of the latter alone where it computes ``own``.

        Ranks that share experts step together: a step is as long as that of the rank with most prompts, but
        at the experts, where the tokens of all ranks meet. Ranks without prompts decode meanwhile.
        """
        apart, ranks = self.load.apart, self.clock.ranks
        alone = self.step_s(decoding) if apart and not own else 0.0
        decoding = self._beside(decoding)
        if ranks == 1 and (not (self.clock.experts or self.clock.products) or prompts < 1e-9):
            most = self.prompts_at_most(decoding)
            if not alone:
                return self.step_s(decoding, own + prompts)
            begun = max(1 - exp(-prompts), prompts / most) * self.step_s(0.0)
            return alone + begun + prompts * self._prompt_ps / PS_PER_S
        # A prompt of several chunks is met in as many steps, a part of it in each.
        parts = max(1.0, 1 / self.prompts_at_most(decoding))
        mean = prompts * parts
        if mean > MANY:  # their number hardly varies
            return alone + self.step_s(decoding, own + prompts)
        there = mean if elsewhere is None else elsewhere * parts
        chances = most_of(mean, ranks, round(own * parts), there)
        most = own + sum(many * sum(chance) for many, chance in enumerate(chances)) / parts
        met = own + prompts + (ranks - 1) * there / parts
        met = met / ranks / most if most else 0.0
        total = 0.0
        for many, (chance, others) in enumerate(chances):
            if not many and alone:
                total += chance * alone
                continue
            step = self._together_s(decoding, own + many / parts, met)
            total += chance * (alone + step)
            if others:
                total += others * (max(alone, step) if alone else step)
        return total

    def _together_s(self, decoding: float, prompts: float, met: float) -> float:
        """A step of the rank with most ``prompts``, of which all bring the share ``met`` on average."""
        step = self.step_s(decoding, prompts)
        if self.clock.ranks == 1:
            return step
        tokens = prompts * self.computed_tokens
        more = self.clock.meeting_ps(decoding, tokens) - self.clock.meeting_ps(
            decoding, met * tokens
        )
        return step - more / PS_PER_S

    def closed_loop(self, users: float, near: float | None = None) -> Times:
        """``users`` (of all ranks) who send a prompt, read the answer, think, and send the next.

        Who is served sees itself and, of the ``others`` who share the rank, those who are served just then
        (the arrival theorem): all of them where nobody thinks.
        """
        load = self.load
        here, slots = users / self.dp, max(1.0, load.slots / self.dp)
        deviation = load.slots_deviation / sqrt(self.dp)
        running = min(here, slots)
        decoding = min(running, near / self.dp) if near else running
        for _ in range(ROUNDS):
            others = max(0.0, here - 1) / max(here, 1.0)
            others = min(others, (slots - 1) / running)  # who waits is met by nobody
            beside = min(max(1.0, slots), 1 + others * decoding)
            most = self.prompts_at_most(beside)
            elsewhere = min(decoding / self.decode_steps, most * self.batches)
            prompts = others * elsewhere
            whole = self.mean_step_s(beside, prompts, elsewhere=elsewhere)
            own, queued = self._first_s(beside, prompts, most, others * running, elsewhere)
            if load.thinking_ratio:
                queued += self._rest_s(decoding, prompts, most, others * running)
            queued += self._fetching_s(whole, others * running)
            stay = own + queued + self.decode_steps * whole
            at_once = here * stay / (stay + load.think_s)
            waiting = _beyond(at_once, slots, deviation)
            if load.think_s and slots < here:
                more = self._in_line(here, slots, stay)
                waiting = max(waiting, at_once - here * stay / (stay + load.think_s + more))
            now = at_once - waiting
            settled = now * self.decode_steps * whole / stay
            done = abs(settled - decoding) + abs(now - running) <= CLOSE * here
            decoding, running = (decoding + 2 * settled) / 3, (running + 2 * now) / 3
            if done:
                break
        rate = running / stay
        no_room = max(0.0, here / rate - stay - load.think_s) if waiting else 0.0
        queue = max(0.0, running - 1) / 2 * self._prompt_s(beside, max(1.0, most))
        times = self._times(
            decoding,
            prompts,
            own,
            queued,
            no_room_s=no_room,
            start_s=0.0 if load.spread else self.start * queue,
            requests_per_s=rate * self.dp,
            beside=beside,
            elsewhere=elsewhere,
        )
        if not load.in_step or self.clock.tokens_a_step > 1:
            return times
        return self._together(max(1.0, min(here, slots)), times)

    def _together(self, users: float, spread: Times) -> Times:
        """``users`` of a rank whose answers end together, ``spread`` if they did not.

        Their prompts come as one and fill steps one after another, so that who begins in one step ends in
        one: groups, each as large as a step's tokens, which stay. A group waits for the step ahead, which
        computes the prompts of the group before it, and meets those of the others while it decodes.
        """
        most = self.prompts_at_most(users)
        group = min(users, max(1.0, most))
        groups, chunks = users / group, ceil(1 / most)
        beside = self._beside(users - group)
        full = self.step_s(beside, group) + (chunks - 1) * self._again_s
        full += (chunks - 1) * self.step_s(beside)
        ahead = self.load.steps_ahead * full * (1 - 1 / groups) + self._fetching_s(full, groups - 1)
        decode, prompt = self.step_s(users), self._prompt_s(users - group, group)
        met = (users - group) * max(0.0, 1 - self.load.steps_ahead / groups) / self.decode_steps
        own = full + self._late_s
        return self._in_groups(spread, decode, (met, prompt), own, ahead)

    def _in_groups(
        self, spread: Times, decode: float, prompts: tuple[float, float], own: float, ahead: float
    ) -> Times:
        """``spread`` with steps of ``decode`` seconds that meet so many ``prompts``, of so long each; a first
        step of ``own`` seconds waits for those ``ahead``."""
        met, prompt = prompts
        tpot = decode + met * prompt
        loop = own + ahead + self.decode_steps * tpot + self.load.think_s + spread.no_room_s
        return replace(
            spread,
            tpot_s=tpot,
            step_s=decode,
            prompts_a_step=met,
            prompt_s=prompt,
            own_s=own,
            queued_s=ahead,
            requests_per_s=self.load.users / loop,
            together_s=max(0.0, own + ahead - spread.own_s - spread.queued_s),
        )

    def _in_line(self, users: float, slots: float, stay: float) -> float:
        """Seconds for which ``users`` who think wait for one of ``slots`` (Engset's model with a queue, as
        M/G/c); above ``MANY_USERS`` they come so evenly that only what room varies by counts."""
        if users > MANY_USERS:
            return 0.0
        busy, line = _of_few(round(users), max(1, int(slots)), stay / self.load.think_s)
        rest = max(0.0, users * stay / slots - stay - self.load.think_s)
        return max(rest, line / busy * stay * (1 + self._variation) / 2)

    def _rest_s(self, decoding: float, prompts: float, most: float, busy: float) -> float:
        """What is left of the step under way for who comes at any time of it, after thinking; ``busy``
        others are served."""
        step, running = self.step_s(decoding), 1 - exp(-busy)
        long = self.step_s(self._beside(decoding), min(1.0, most))
        within = min(running, prompts)
        return self.load.thinking_ratio * (within * long + (running - within) * step) / 2

    def _fetching_s(self, step: float, busy: float) -> float:
        """Until what a request finds in a tier is there, and then the rest of the step of the ``busy`` others
        under way, on average over all requests."""
        waits = [length.fetch_s for length in self.load.lengths if length.fetch_s]
        rest = len(waits) * min(1.0, busy) * step / 2
        return (sum(waits) + rest) / len(self.load.lengths)

    def open_arrivals(self, requests_per_s: float) -> Times:
        """Arrivals at ``requests_per_s`` (of all ranks), independent of one another.

        As many prompts begin in a step as come in one (``_open_steps``). Who decodes sees itself beside as
        many others as decode on average, and after its own prompt, a long step, the prompts that came
        meanwhile. Who comes waits for the rest of the step under way, longer where steps with prompts follow
        one another; where prompts fill steps they queue as M/D/1, and for few places as M/G/c. Where that has
        no steady state, or not enough room, the deployment is saturated: it runs as a loop that fills it.
        """
        rate, slots = requests_per_s / self.dp, max(1.0, self.load.slots / self.dp)
        decoding, before = min(1.0, slots), None
        for _ in range(ROUNDS):
            seen = min(decoding + 1, slots)
            steps = self._open_steps(seen, rate)
            if steps is None:
                return self._full()
            step, whole = self.step_s(seen), steps.mean_s / steps.decodes
            prompt = (whole - step) / (rate * whole)
            chunks = ceil(1 / self.prompts_at_most(seen))
            mine = chunks * self.step_s(self._beside(decoding))
            mine += self._alone_s(decoding, chunks) if self._dealt else prompt
            after = max(0.0, mine - whole) / (1 - rate * prompt) / self.decode_steps
            prompts = rate * (whole + after)
            settled = rate * self.decode_steps * (step + prompts * prompt)
            if settled > 2 * slots:
                return self._full()
            if abs(settled - decoding) <= CLOSE * max(decoding, 1.0):
                break
            # The point that stays, on a line through this one and the one before.
            slope = (settled - before[1]) / (decoding - before[0]) if before else 0.0
            slope = min(max(slope, 0.0), STEEP)
            before = decoding, settled
            decoding = max(0.0, settled + (settled - decoding) * slope / (1 - slope))
        assert steps is not None  # of the last round
        own, queued = self._arrived(decoding, rate, prompt, steps)
        waiting = _beyond(decoding, slots, self.load.slots_deviation / sqrt(self.dp))
        held = decoding + rate * own
        if held >= slots or waiting > decoding / 2:
            return self._full()
        waiting = max(waiting, _in_line(held, slots) * (1 + self._variation) / 2)
        return self._times(
            decoding,
            prompts,
            own,
            queued,
            no_room_s=waiting / rate,
            start_s=0.0,
            requests_per_s=requests_per_s,
            seen=seen,
            prompt_s=prompt,
        )

    def _arrived(
        self, decoding: float, rate: float, prompt: float, steps: OpenSteps
    ) -> tuple[float, float]:
        """The seconds of the steps that compute a prompt, and those for which it waits before; ``rate`` come
        to a rank, each of which adds ``prompt`` seconds."""
        most, beside = self.prompts_at_most(decoding), self.step_s(self._beside(decoding))
        chunks = ceil(1 / most)
        if self._dealt:
            busy = min(1.0, decoding * self.clock.ranks)
            rest, ahead = busy * steps.rest_s, busy * steps.mean_s
        else:
            step, long = self.step_s(decoding), self.step_s(self._beside(decoding), min(1.0, most))
            within = min(1.0, rate * (chunks * beside + prompt))  # of the time, steps with prompts
            rest = (within * long + (1 - within) * min(1.0, decoding) * step) / 2
            ahead = min(1.0, decoding) * (step + min(1.0, rate * steps.mean_s) * (long - step))
        ahead *= self.load.steps_ahead
        full = self._full_step_s(decoding)
        queued = rest + ahead + _backlog(min(NEARLY, rate * full / most), most) * full
        queued += self._fetching_s(self.step_s(decoding), decoding)
        company = min(max(0.0, most - 1), rate * (rest + ahead))
        own = chunks * beside + (1 + company) * self._alone_s(decoding, chunks)
        if self._dealt:
            own = self._joined_s(decoding, company) + (chunks - 1) * beside
            own += self._alone_s(decoding, chunks) * max(0.0, 1 - most)
        return own + self._late_s, queued

    def _open_steps(self, decoding: float, rate: float) -> OpenSteps | None:
        """Steps beside ``decoding`` where ``rate`` prompts come to each rank; None where steps that compute
        the most are too long for that."""
        most = self.prompts_at_most(decoding)
        return (
            self._dealt_steps(decoding, rate, most)
            if self._dealt
            else self._own_steps(decoding, rate, most * self.batches)
        )

    def _own_steps(self, decoding: float, rate: float, most: float) -> OpenSteps | None:
        """Those of a rank by itself: as many prompts begin in one as come in one that computes so many (its
        time over their number falls with that, so there is one answer)."""
        base = self.step_s(decoding)

        def mean_s(prompts: float) -> float:
            return base + prompts * self._prompt_s(decoding, prompts)

        low, high = 0.0, most
        below, above = -rate * base, high - rate * mean_s(high)
        if above <= 0:
            return None
        last, prompts = 0.0, high
        for _ in range(ROUNDS):  # regula falsi: the end that stays counts half (Illinois)
            prompts = high - above * (high - low) / (above - below)
            off = prompts - rate * mean_s(prompts)
            if abs(off) <= CLOSE / 10 * prompts:
                break
            if off > 0:
                high, above = prompts, off
                below /= 2 if last > 0 else 1
            else:
                low, below = prompts, off
                above /= 2 if last < 0 else 1
            last = off
        return OpenSteps(mean_s=prompts / rate)

    def _dealt_steps(self, decoding: float, rate: float, most: float) -> OpenSteps | None:
        """Those of ranks that step together and are dealt what comes in turn: in the next step begins what
        came in this one, so that steps follow one another as a Markov chain, here in its steady state.

        Its states are numbers of prompts (parts of those that fill steps), which a step computes in so many
        rounds; where prompts are computed apart a rank decodes in steps in which it computes none.
        """
        ranks, apart = self.clock.ranks, self.load.apart
        parts = max(1.0, 1 / most)
        beside, alone = self._beside(decoding), self.step_s(decoding)
        states: list[tuple[int, float, float]] = [(0, 1.0, alone)]
        top, rounds = ceil(most * parts * ranks), 1
        ends = [n for n in (1, 2, 4, 8, 16, 32, 64, 128, 256) if n < ranks] + [ranks]
        while ends[-1] < top:
            rounds = max(rounds + 1, rounds * 5 // 4)
            ends.append(min(top, rounds * ranks))
        for before, end in zip([0, *ends], ends, strict=False):
            many = (before + 1 + end) / 2
            fullest = max(1.0, ceil(before + 1) / ranks, many / ranks + 0.5 - 0.5 / ranks)
            fullest += sqrt(fullest) * self._longest(min(ranks, ceil(many)))
            fullest = min(most, fullest / parts)
            step = self._together_s(beside, fullest, many / parts / ranks / fullest)
            idle = max(0.0, 1 - many / ranks) if apart else 1.0
            states.append((end, idle, max(alone, step) if apart else step))
        coming = rate * ranks * parts
        if coming * states[-1][2] >= top:
            return None
        chances = steady([coming * step for _, _, step in states], [end for end, _, _ in states])
        each = [
            (chance, idle, step) for chance, (_, idle, step) in zip(chances, states, strict=True)
        ]
        mean = sum(chance * step for chance, _, step in each)
        mean += rate * mean * (ceil(parts) - 1) * self._again_s
        return OpenSteps(
            mean_s=mean,
            rest_s=sum(chance * step * step for chance, _, step in each) / mean / 2,
            decodes=max(1 - NEARLY, sum(chance * idle for chance, idle, _ in each)),
        )

    def _longest(self, prompts: int) -> float:
        """By how much of the mean prompt the longest of so many is longer, on average."""
        found = self._longer.get(prompts)
        if found is None:
            each = sorted(length.computed for length in self.load.lengths)
            below = [(place / len(each)) ** prompts for place in range(len(each) + 1)]
            chances = (high - low for low, high in pairwise(below))
            longest = sum(map(mul, chances, each))
            found = self._longer[prompts] = longest / self.computed_tokens - 1
        return found

    @cached_property
    def _longer(self) -> dict[int, float]:
        return {1: 0.0}

    def _joined_s(self, decoding: float, company: float) -> float:
        """The step that computes a prompt beside ``company`` others a rank on average (Poisson), dealt in
        turn to ranks that step together."""
        ranks, beside, own = (
            self.clock.ranks,
            self._beside(decoding),
            min(1.0, self.prompts_at_most(decoding)),
        )
        mean = company * ranks
        ends = [(many + 1) * ranks - 1 for many in range(ceil((mean + 6 * sqrt(mean)) / ranks) + 1)]
        total = 0.0
        for many, share in enumerate(shares(mean, ends)):
            others = max(0.0, min(mean, ends[many]) if not many else ends[many] - ranks / 2)
            met = min(1.0, (own + others) / ranks / (own + many))
            total += share * self._together_s(beside, own + many, met)
        return total

    @cached_property
    def _variation(self) -> float:
        """The squared coefficient of variation of how long answers take."""
        outputs = [length.output for length in self.load.lengths]
        mean = sum(outputs) / len(outputs)
        return sum((output - mean) ** 2 for output in outputs) / len(outputs) / mean**2

    def _first_s(
        self, decoding: float, others: float, most: float, running: float, elsewhere: float
    ) -> tuple[float, float]:
        """Seconds of the steps that compute a prompt, and of those that it waits for; ``running`` others
        are served."""
        chunks = ceil(1 / most)
        company = min(others, max(0.0, most - 1))
        own = self.mean_step_s(decoding, company, 1.0, elsewhere) + (chunks - 1) * (
            self.step_s(self._beside(decoding)) + self._again_s
        )
        meets = min(1.0, running)
        ahead = self.mean_step_s(decoding, others, elsewhere=elsewhere)
        if self.load.apart:  # the batch ahead is of prompts, where some came, or of decodes
            ahead -= (1 - exp(-others)) * self.step_s(decoding)
        queued = self.load.steps_ahead * meets * ahead
        # Prompts that find steps full wait their turn, behind all others at most; of those that begin in
        # one step half go first.
        full = min(NEARLY, others / most)
        before = _backlog(full, most) + (full / 2 if most < 1 else 0.0)
        before = min(before, running / 2 / most)
        return own + self._late_s, queued + before * self._full_step_s(decoding)

    def _alone_s(self, decoding: float, chunks: int) -> float:
        """What one prompt adds to the steps that compute it."""
        beside = self._beside(decoding)
        if self._dealt:
            added = self._together_s(beside, 1.0, 1 / self.clock.ranks)
        else:
            added = self.step_s(beside, 1.0)
        return added - self.step_s(beside) + (chunks - 1) * self._again_s

    def _full_step_s(self, decoding: float) -> float:
        """A step whose token budget is used up."""
        most = self.prompts_at_most(decoding)
        again = max(0.0, 1 - most) * self._again_s
        return self.step_s(self._beside(decoding), most) + again

    def _prompt_s(self, decoding: float, prompts: float) -> float:
        """What one of ``prompts`` a step adds to the steps of so many that decode meanwhile."""
        chunks = ceil(1 / self.prompts_at_most(decoding))
        mean = max(prompts, 1e-6)
        added = self.mean_step_s(decoding, mean) - self.step_s(decoding)
        return max(0.0, added) / mean + (chunks - 1) * self._again_s

    @cached_property
    def _again_s(self) -> float:
        """What a further chunk of a prompt costs beside its tokens."""
        return self.clock.prompt_ps / PS_PER_S

    @cached_property
    def _late_s(self) -> float:
        """The way of a prompt through further stages of a pipeline."""
        return self.clock.passage_ps(ceil(self.computed_tokens)) / PS_PER_S

    def _times(
        self,
        decoding: float,
        prompts: float,
        own: float,
        queued: float,
        *,
        no_room_s: float,
        start_s: float,
        requests_per_s: float,
        seen: float | None = None,
        prompt_s: float = 0.0,
        beside: float = 0.0,
        elsewhere: float = 0.0,
    ) -> Times:
        step, gained = self.step_s(seen or beside), self.clock.tokens_a_step
        if seen is None:
            whole = self.mean_step_s(beside, prompts, elsewhere=elsewhere)
            if self.clock.ranks > 1:  # those of other ranks are met as well
                prompts = elsewhere
            prompt_s = (whole - step) / prompts if prompts else self._prompt_s(beside, 0.0)
        else:
            whole = step + prompts * prompt_s
        return Times(
            tpot_s=whole / gained,
            step_s=step,
            prompts_a_step=prompts,
            prompt_s=prompt_s,
            own_s=own,
            queued_s=queued,
            no_room_s=no_room_s,
            front_end_s=self.first_s + self.intake_steps * whole,
            start_s=start_s,
            decoding=decoding * self.dp,
            requests_per_s=requests_per_s,
            tokens_a_step=gained,
        )

    def _full(self) -> Times:
        """As many requests at once as have room, and more waiting for ever; nobody started at once."""
        return replace(self.closed_loop(self._most()), saturated=True, start_s=0.0)

    def _most(self) -> int:
        """Requests that can be served at once: each decodes a token of a step's budget at least."""
        budget = self.load.chunk_tokens // self.clock.verified * self.batches * self.dp
        return max(1, int(min(self.load.slots, budget)))


@dataclass(frozen=True, kw_only=True)
class PipelineModel(LoadModel):
    """A rank whose requests take turns in the steps of a pipeline: here a step is a round of ``batches``, in
    which each decodes once.

    Every step takes as long in one stage as in the next, nearly, and none overtakes. So one with a prompt
    holds up a round as long as it is on its way through all stages, and others with prompts that are in them
    with it only as long as in one (the last passage of a grid whose rows are steps and whose columns are
    stages).
    """

    @property
    def batches(self) -> int:  # type: ignore[override]
        """Steps that are in the pipeline at once."""
        return self.load.depth

    @cached_property
    def _parts(self) -> tuple[LoadModel, ...]:
        return tuple(
            LoadModel(clock=clock, load=self.load, dp=self.dp) for clock in self.clock.parts
        )

    def _each(self, decoding: float) -> float:
        """Requests that decode in one step of so many."""
        return decoding / min(max(1.0, decoding), self.batches)

    def step_s(self, decoding: float, prompts: float = 0.0) -> float:
        """A round in which so many decode, whose every step computes ``prompts`` whole prompts."""
        return self._round_s(self._each(decoding), prompts, decoding >= self.batches)

    def _round_s(self, each: float, prompts: float, full: bool) -> float:
        """A round of steps in each of which so many decode; ``full``: there is one for every stage."""
        clock = self.clock
        stages = [part.step_s(each, prompts) for part in self._parts]
        tokens = clock.verified * each + prompts * self.computed_tokens
        handed = clock.handover_ps + clock.handover_token_ps * tokens
        way = sum(stages) + (len(stages) - 1) * handed / PS_PER_S
        return max(way, self.batches * max(stages)) if full else way

    def prompts_at_most(self, decoding: float) -> float:
        """Prompts that the token budget of a step computes beside its share of so many that decode."""
        return super().prompts_at_most(self._each(decoding))

    def mean_step_s(
        self, decoding: float, prompts: float, own: float = 0.0, elsewhere: float | None = None
    ) -> float:
        """The mean round in which ``prompts`` begin (Poisson in each step); with ``own`` the way of the step
        that computes them."""
        if own:
            return self.step_s(decoding, own + prompts / self.batches)
        return self.batches * self._gap_s(decoding, prompts)[0]

    def _gap_s(self, decoding: float, prompts: float) -> tuple[float, float]:
        """The mean time between the ends of two steps, and what is left of one at any time.

        The longest way through the grid goes from step to step in one stage, stays in all of them with a step
        that is longer than the mean, and passes over as many of those behind it.
        """
        slots, plain = self.batches, self.step_s(decoding) / self.batches
        if prompts < 1e-9:
            return plain, plain / 2
        most = self.prompts_at_most(decoding)
        begun = prompts / slots
        if begun >= NEARLY * most:
            full = self._full_step_s(decoding)
            return full, full / 2
        met = self._met(begun)
        while (
            begun > most / 4
        ):  # prompts that fill several steps leave fewer for others to begin in
            before, begun = (
                begun,
                prompts
                / slots
                * (1 + sum(share * max(0.0, size / most - 1) for share, size in met)),
            )
            met = self._met(begun)
            if begun - before <= AT_MOST * begun:
                break
        ref = min(most, sum(share * size for share, size in met) / sum(share for share, _ in met))
        slope = (self.step_s(decoding, ref) / slots - plain) / ref
        steps = [(1 - sum(share for share, _ in met), 1.0, plain)]
        steps += [(x, max(1.0, size / most), plain + slope * min(size, most)) for x, size in met]
        mean = 0.0
        for _ in range(KEPT_ROUNDS):
            weights = [x * (max(slots, n) if long > mean else n) for x, n, long in steps]
            spent: float = sum(map(mul, weights, (long for _, _, long in steps)))
            before, mean = mean, spent / sum(weights)
            if mean - before <= CLOSE * mean:
                break
        squares = 0.0
        for share, n, long in steps:
            gap = max(long, slots * long - (slots - 1) * plain) if long > mean else long
            squares += share * (gap**2 + (n - 1) * long**2)
        return mean, squares / mean / 2 / sum(share * n for share, n, _ in steps)

    def _met(self, prompts: float) -> list[tuple[float, float]]:
        """Chances of what begins in a step where ``prompts`` do on average, in prompts of mean length."""
        spread = self._prompt_variation
        if prompts > MANY:
            return [(1.0, prompts)]
        chance = exp(-prompts)
        found: list[tuple[float, float]] = []
        for many in range(1, ceil(prompts + 6 * sqrt(prompts)) + 2):
            chance *= prompts / many
            if many == 1:
                found += [(chance * share, size) for share, size in self._prompt_parts]
                continue
            away = sqrt(3 * many * spread)
            if 0 < away < many:
                found += [(chance / 6, many - away), (chance / 6, many + away)]
                chance_of_mean = chance * 2 / 3
            else:
                chance_of_mean = chance
            found.append((chance_of_mean, float(many)))
        return found

    @cached_property
    def _prompt_parts(self) -> list[tuple[float, float]]:
        """Shares of prompts by length, with the mean of each over that of all."""
        each = sorted(length.computed / self.computed_tokens for length in self.load.lengths)
        parts = min(len(each), PROMPT_PARTS) if self._prompt_variation else 1
        cuts = [len(each) * part // parts for part in range(parts + 1)]
        return [
            ((high - low) / len(each), sum(each[low:high]) / (high - low))
            for low, high in pairwise(cuts)
        ]

    @cached_property
    def _prompt_variation(self) -> float:
        """The squared coefficient of variation of a prompt's tokens."""
        mean = self.computed_tokens
        return sum((x.computed / mean - 1) ** 2 for x in self.load.lengths) / len(self.load.lengths)

    def _first_s(
        self, decoding: float, others: float, most: float, running: float, elsewhere: float
    ) -> tuple[float, float]:
        """As of a rank without stages; what is ahead is a step and not a round."""
        gap, _ = self._gap_s(decoding, others)
        share = others / self.batches
        own = self._way_s(decoding, min(share, max(0.0, most - 1)))
        queued = (self.load.steps_ahead - self.batches + 1) * min(1.0, running) * gap
        full = min(NEARLY, share / most)
        before = _backlog(full, most) + (full / 2 if most < 1 else 0.0)
        return own, queued + min(before, running / 2 / most) * self._full_step_s(decoding)

    def _way_s(self, decoding: float, company: float) -> float:
        """From the start of the step that computes a prompt to the end of its last one."""
        most = self.prompts_at_most(decoding)
        chunks = ceil(1 / most)
        way = self.step_s(decoding, min(most, 1 + company))
        return way + (chunks - 1) * self._full_step_s(decoding)

    def _full_step_s(self, decoding: float) -> float:
        """A step whose token budget is used up, in one stage."""
        return self.step_s(decoding, self.prompts_at_most(decoding)) / self.batches

    def _rest_s(self, decoding: float, prompts: float, most: float, busy: float) -> float:
        running = 1 - exp(-busy)
        return self.load.thinking_ratio * running * self._gap_s(decoding, prompts)[1]

    def _arrived(
        self, decoding: float, rate: float, prompt: float, steps: OpenSteps
    ) -> tuple[float, float]:
        prompts = rate * steps.mean_s
        most = self.prompts_at_most(decoding)
        gap, rest = self._gap_s(max(1.0, decoding), prompts)
        busy = min(1.0, decoding)
        ahead = busy * (self.load.steps_ahead - self.batches + 1) * gap
        full = self._full_step_s(decoding)
        queued = busy * rest + ahead + _backlog(min(NEARLY, rate * full / most), most) * full
        queued += self._fetching_s(gap, decoding)
        company = min(max(0.0, most - 1), rate * (busy * rest + ahead))
        return self._way_s(decoding, company), queued

    def _together(self, users: float, spread: Times) -> Times:
        """As of a rank without stages; a group's prompts follow those of the one before in the stages."""
        slots = self.batches
        most = self.prompts_at_most(users)
        group = min(users, max(1.0, most))
        groups = users / group
        steps = min(groups, float(slots))
        each, filled = users / steps, groups >= slots
        full = self._round_s(max(0.0, each - group), group, filled)
        decode = self._round_s(each, 0.0, filled)
        more = max(0.0, full - decode) / slots
        chunks = ceil(1 / most)
        own = full + (chunks - 1) * self._full_step_s(users)
        ahead = (1 - 1 / groups) * (self.load.steps_ahead - slots + 1) * full / slots
        ahead += self._fetching_s(full, groups - 1)
        met = (groups - 1) / self.decode_steps
        return self._in_groups(spread, decode, (met, more), own, ahead)


def _backlog(full: float, most: float) -> float:
    """Steps that who comes in a step finds taken by earlier prompts, where a step computes ``most`` and the
    share ``full`` of that is used: what M/D/1, ρ / (2·(1 − ρ)) services, has beyond the step under way."""
    service = 1 / most
    return full / (2 * (1 - full)) * (max(0.0, service - 1) + min(1.0, service) * full)


def _of_few(users: int, slots: int, load: float) -> tuple[float, float]:
    """(how many are served, how many wait) of ``users`` who ask again a mean time after they were served,
    ``load`` times as long as which being served takes."""
    chance, total, busy, line = 1.0, 1.0, 0.0, 0.0
    for many in range(1, users + 1):
        chance *= (users - many + 1) * load / min(many, slots)
        if chance > HUGE:
            chance, total, busy, line = (x / HUGE for x in (chance, total, busy, line))
        total += chance
        busy += chance * min(many, slots)
        line += chance * max(0, many - slots)
    return busy / total, line / total


def _in_line(busy: float, slots: float) -> float:
    """Requests that wait, on average, for one of ``slots`` of which ``busy`` are held (Erlang's C)."""
    if slots == inf or busy < slots / 4:
        return 0.0
    places, lost = max(1, int(slots)), 1.0
    share = min(NEARLY, busy / places)
    for number in range(1, places + 1):
        lost = busy * lost / (number + busy * lost)
    return lost / (1 - share * (1 - lost)) * share / (1 - share)


def _beyond(requests: float, slots: float, deviation: float) -> float:
    """Requests that find no room, on average, where room for ``slots`` varies by ``deviation`` (normal)."""
    if slots == inf:
        return 0.0
    over = requests - slots
    if deviation <= 0:
        return max(0.0, over)
    z = over / deviation
    density = exp(-z * z / 2) / sqrt(2 * pi)
    return max(0.0, over * (1 + erf(z / sqrt(2))) / 2 + deviation * density)
