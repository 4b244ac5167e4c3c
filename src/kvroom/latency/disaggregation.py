"""Prompts computed in one pool and answers generated in another, in closed form.

Each engine of the first pool computes prompts one after the other, the busier it is in the fuller steps.
Of n engines each gets every nth arrival, so its queue is E_n/D/1, and its wait that of M/D/1 over n (Kingman,
1961; routers by load do about as well, sessions at random worse). A prompt's cache crosses the links
of both its ends, each a queue. Engines of the second pool do nothing but decode, as many requests at once
as keep up (Little's law). What the slowest of the three keeps up with is what the pools serve.

Simulations of open arrivals lie within 6 % in tokens after the first, and in first tokens within 15 % up to
0.8 of what the pools serve and 25 % up to 0.9 (``tests/unit/test_plan_pools.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from math import ceil, inf

from kvroom.hardware.node import NETWORK
from kvroom.latency.load import Load
from kvroom.latency.step_time import Clock
from kvroom.records import dataclass
from kvroom.sharding.deployment import Deployment

HALVINGS = 60
"""Of an interval in which a rate or a number of requests is looked for."""
NEARLY = 1 - 1e-9


def fetched_bytes(deployment: Deployment, tokens: int) -> int:
    """What all ranks of one engine fetch for the cache of a request of ``tokens``: each its own share,
    heads that several ranks keep once for each."""
    return deployment.layout.tp * sum(
        rank.request_bytes(tokens, deployment.kv, deployment.encoder_tokens)
        for rank in deployment.ranks
    )


def adapters_bytes_per_s(*deployments: Deployment) -> float:
    """One network adapter a GPU, of an engine of that deployment which has fewer GPUs."""
    assert NETWORK.bytes_per_s is not None
    return NETWORK.bytes_per_s * min(
        deployment.layout.tp * deployment.layout.pp for deployment in deployments
    )


def crossing_layers(deployment: Deployment) -> int:
    """Layers that cross one by one: those whose cache grows."""
    return max(
        1, sum(count for kind, count in deployment.model.stores if kind.growth(deployment.kv))
    )


def occupied_s(whole_s: float, computing_s: float, layers: int) -> float:
    """How long a cache that takes ``whole_s`` holds a link up after its prompt was computed in
    ``computing_s``, where each of ``layers`` crosses as soon as it is there."""
    return max(whole_s / layers, whole_s - computing_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Handed:
    """Seconds and rates of a load on two pools.

    ``ttft_engine_s`` = ``own_s`` + ``queued_s`` + ``no_room_s`` (None: no end), and ``ttft_s`` that, the
    front end's part and the start's; ``tpot_s`` = ``token_s`` + ``handover_s`` / (output tokens - 1), where
    those who wait for a link or for room in the second pool count as handed over. ``decoding`` requests
    decode at once, all engines; ``requests_per_s`` are finished. ``saturated``: more come than that, and
    no time has queues in it.
    """

    tpot_s: float
    own_s: float
    queued_s: float
    no_room_s: float
    front_end_s: float
    handover_s: float
    token_s: float
    decoding: float
    requests_per_s: float
    saturated: bool = False
    start_s: float = 0.0

    @property
    def ttft_engine_s(self) -> float | None:
        """From a request's arrival at the first pool to its first token; None where it has no end."""
        return None if self.saturated else self.own_s + self.queued_s + self.no_room_s

    @property
    def ttft_s(self) -> float | None:
        """What a client sees."""
        engine = self.ttft_engine_s
        return None if engine is None else engine + self.front_end_s + self.start_s


@dataclass(frozen=True, kw_only=True)
class PoolsUnderLoad:
    """So many engines of each pool (data-parallel ranks counted) under a load, of which ``prefill`` and
    ``decode`` say what each deployment makes; one request's ``handed_bytes`` over links of
    ``link_bytes_per_s`` an engine, layer by layer where ``layers`` are more than one."""

    first: Clock
    second: Clock
    prefill: Load
    decode: Load
    first_engines: int
    second_engines: int
    handed_bytes: int
    link_bytes_per_s: float
    latency_s: float
    layers: int = 1
    burst: float = 0.0
    """How much of the queue of a simultaneous start is seen in the mean."""

    @property
    def steps(self) -> int:
        """Tokens after the first."""
        return self.decode.output_tokens - 1

    @cached_property
    def alone_s(self) -> float:
        """A prompt computed by itself, while no other rank has any."""
        return self._prompt_s(self.first.lone)

    @cached_property
    def beside_s(self) -> float:
        """A prompt computed by itself while each rank that shares its experts computes one."""
        return self._prompt_s(self.first)

    def _prompt_s(self, clock: Clock) -> float:
        input_tokens, chunk = self.prefill.input_tokens, self.prefill.chunk_tokens
        return clock.prefill(
            input_tokens, clock.prefilling(input_tokens), chunks=ceil(input_tokens / chunk)
        ).seconds

    @cached_property
    def fit(self) -> float:
        """Prompts that one step holds at most."""
        return max(1.0, self.prefill.chunk_tokens / self.prefill.input_tokens)

    @cached_property
    def full_s(self) -> float:
        """A prompt's part of steps that are full of prompts."""
        input_tokens, chunk, many = self.prefill.input_tokens, self.prefill.chunk_tokens, self.fit
        prompts = [a.times(many) for a in self.first.prefilling(input_tokens)]
        steps = self.first.prefill(
            input_tokens * many, prompts, chunks=input_tokens * many / chunk, prompts=many
        )
        return min(self.beside_s, steps.seconds / many)

    def together(self, rate: float) -> float:
        """Prompts of one step where ``rate`` a second come to an engine: those that come while another
        step is computed, which is as much longer as it holds more of them."""
        if self.fit == 1.0 or rate * self.full_s >= 1:
            return self.fit
        more = (self.fit * self.full_s - self.beside_s) / (self.fit - 1)
        if rate * more >= 1:
            return self.fit
        return min(self.fit, max(1.0, rate * (self.beside_s - more) / (1 - rate * more)))

    @cached_property
    def occupied_s(self) -> float:
        """How long a hand-over holds up the links of both its ends."""
        whole = self.handed_bytes / self.link_bytes_per_s if self.steps else 0.0
        return occupied_s(whole, self.alone_s, self.layers) if self.layers > 1 else whole

    @cached_property
    def slots(self) -> float:
        """Requests that one engine of the second pool decodes at once."""
        return max(1.0, self.decode.slots / self.second.work.layout.dp)

    def token_s(self, requests: float) -> float:
        """Seconds a token where an engine decodes so many."""
        clock = self.second.at(requests)
        tokens = self.decode.input_tokens + self.decode.output_tokens // 2
        step = clock.decode_s(max(1.0, requests) * clock.work.layout.dp, tokens)
        return step / clock.tokens_a_step

    @cached_property
    def prefill_rate(self) -> float:
        """Prompts a second that the first pool computes at most; stages of a pipeline work on several."""
        return self.first_engines * self.first.work.layout.pp / self.full_s

    @cached_property
    def link_rate(self) -> float:
        """Hand-overs a second that the links of the pool with fewer engines carry at most."""
        engines = min(self.first_engines, self.second_engines)
        return engines / self.occupied_s if self.occupied_s else inf

    @cached_property
    def decode_rate(self) -> float:
        """Answers a second that the second pool generates at most."""
        if not self.steps:
            return inf
        return self.second_engines * self.slots / (self.steps * self.token_s(self.slots))

    @property
    def most(self) -> float:
        """Requests a second that the pools serve at most."""
        return min(self.prefill_rate, self.link_rate, self.decode_rate)

    @property
    def binding(self) -> str:
        """What keeps up with the fewest requests."""
        rates = {"prefill": self.prefill_rate, "link": self.link_rate, "decode": self.decode_rate}
        return min(rates, key=lambda name: rates[name])

    @property
    def needed_bytes_per_s(self) -> float:
        """The slowest link of an engine that holds up neither pool, whatever is hidden behind computing."""
        engines = min(self.first_engines, self.second_engines)
        return self.handed_bytes * min(self.prefill_rate, self.decode_rate) / engines

    def served(self) -> Handed:
        """The load's times: open arrivals, or a loop of users."""
        rate = self.prefill.requests_per_s
        if rate is not None:
            if rate < self.most:
                return self._at(rate)
            return replace(self._at(self.most, 0.0), saturated=True)
        return self._loop(self.prefill.users)

    def _loop(self, users: float) -> Handed:
        """``users``, each of whom meets all others: the rate at which as many are under way."""
        others = (users - 1) / users

        def under_way(rate: float) -> float:
            t = self._at(rate, others)
            stay = (t.ttft_engine_s or 0.0) + t.tpot_s * max(1, self.steps)
            return rate * (stay + self.prefill.think_s)

        most = self.most * NEARLY
        rate = _largest(lambda r: under_way(r) <= users, most)
        waiting = max(0.0, users - under_way(rate))
        if rate < most:
            waiting = 0.0
        if self.binding == "prefill":  # the pools after it are free: all wait for their prompts
            times = self._at(rate, others)
            times = replace(times, queued_s=times.queued_s + waiting / rate)
        else:
            # Who finds no room waits with a prompt that is computed, as far as the first pool holds those.
            held = min(waiting, self.prefill.slots * self.first_engines)
            times = self._at(rate, others, held / rate, (waiting - held) / rate)
        if self.prefill.spread:
            return times
        return replace(times, start_s=self.burst_s(users))

    def burst_s(self, users: float) -> float:
        """What is seen of the queue of ``users`` who begin at once: half of them lie before the mean one."""
        each = max(0.0, users / self.first_engines - 1) / 2
        return self.burst * each * self.full_s

    def _at(
        self, rate: float, others: float = 1.0, held_s: float = 0.0, no_room_s: float = 0.0
    ) -> Handed:
        """The times at ``rate`` requests a second, queues as long as ``others`` make them."""
        k, stages = self.first.k, self.first.work.layout.pp
        each = others * rate / self.first_engines
        alone, full = self.beside_s / stages, self.full_s / stages
        busy = min(NEARLY, each * alone / (1 + each * (alone - full)))
        own = self.alone_s + busy * (self.beside_s - self.alone_s)
        queued = _queued(busy, busy / each if each else 0.0) / self.first_engines
        # A rank that is free waits for the step that others, who share its experts, are in.
        ranks = self.first.work.layout.expert_replicas
        queued += (1 - busy) * (1 - (1 - busy) ** (ranks - 1)) * own / 2
        answer = rate / self.second_engines * max(1, self.steps)
        decoding = _largest(lambda b: b <= answer * self.token_s(b), self.slots)
        token = self.token_s(decoding)
        handover = 0.0
        if self.steps:
            # Prompts of one step end together, and their caches cross one after the other.
            ahead = (self.together(rate / self.first_engines / stages) - 1) / 2
            handover = (1 + ahead) * self.occupied_s + self.latency_s + held_s
            # Who waited at the busier end finds the other free: each transfer takes as long as the last.
            busy = min(NEARLY, others * rate / self.link_rate)
            fewer = min(self.first_engines, self.second_engines)
            handover += _queued(busy, self.occupied_s) / fewer
        return Handed(
            tpot_s=token + handover / max(1, self.steps),
            own_s=own,
            queued_s=queued,
            no_room_s=no_room_s,
            front_end_s=k.first_s,
            handover_s=handover,
            token_s=token,
            decoding=decoding * self.second_engines,
            requests_per_s=rate,
        )


def _queued(busy: float, service_s: float) -> float:
    """The wait of an M/D/1 queue."""
    return busy / (2 * (1 - busy)) * service_s


def _largest(holds: Callable[[float], bool], limit: float) -> float:
    """The largest number up to ``limit`` for which ``holds`` is true, as it is up to there."""
    if holds(limit):
        return limit
    low, high = 0.0, limit
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
