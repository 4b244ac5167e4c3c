"""Replicas that come and go: what each did, when more of them start, when one dies.

A replica that starts first loads its weights (``cold_ps``), with an empty cache. One that drains takes no
more requests and goes when it is through with its own. One that dies loses its cache; the step that it
was in still counts, and whoever it served goes elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from enum import Enum
from random import Random

from kvroom.kvcache.request import ServedRequest
from kvroom.latency.clock import PS_PER_S
from kvroom.records import dataclass
from kvroom.simulator.metrics import Outcome, RequestLimits
from kvroom.simulator.router import Router
from kvroom.simulator.timeline import ServingEngine


class ReplicaState(Enum):
    """How a replica stands."""

    OFF = "off"
    STARTING = "starting"
    UP = "up"
    DRAINING = "draining"
    DOWN = "down"


@dataclass(kw_only=True)
class Replica:
    """One replica, by its ``place`` among all: how to make its engine (``make``, told the place), how
    long it takes to start, how many blocks it has, and what became of it."""

    place: int
    make: Callable[[int], ServingEngine]
    blocks: int
    cold_ps: int = 0
    kind: str = ""
    gpus: int = 1
    role: str = ""
    state: ReplicaState = ReplicaState.OFF
    engine: ServingEngine | None = None
    requests: int = 0
    completed: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    cold_starts: int = 0
    failures: int = 0
    peak_blocks: int = 0
    on_ps: int = 0
    """How long it was there, up or starting, until it last went."""
    dies_ps: int = -1
    """When it dies by chance."""
    since_ps: int = -1
    """Since when it has been there; −1 where it is not."""
    up_ps: int = 0
    """When it serves, or last began to."""
    ends_ps: int = -1
    """When it is ended if it still drains then."""

    @property
    def serves(self) -> bool:
        """Whether it works on requests."""
        return self.state in (ReplicaState.UP, ReplicaState.DRAINING)

    def up(self) -> None:
        """It takes requests from now on, with an empty cache."""
        self.state = ReplicaState.UP
        self.engine = self.make(self.place)
        self.engine.strict = True

    def off(self, now: int, state: ReplicaState = ReplicaState.OFF) -> None:
        """It is gone: its engine and its cache are no more."""
        self.note()
        self.state = state
        self.engine = None
        if self.since_ps >= 0:
            self.on_ps += max(0, now - self.since_ps)
        self.since_ps = -1

    def note(self) -> None:
        """Remember how full its engine was at most."""
        if self.engine is not None:
            self.peak_blocks = max(self.peak_blocks, self.engine.peak_blocks)

    def there_ps(self, end: int) -> int:
        """How long it was there up to ``end``."""
        return self.on_ps + (max(0, end - self.since_ps) if self.since_ps >= 0 else 0)


class ClusterOutcome(Outcome):
    """An Outcome that also keeps what each replica did, and tells whom it concerns."""

    def __init__(
        self,
        replicas: Sequence[Replica],
        *,
        limits: RequestLimits | None = None,
        on_over: Callable[[ServedRequest, int | None], None] | None = None,
        passage_ps: Callable[[ServedRequest], int] | None = None,
    ) -> None:
        super().__init__(limits=limits, on_over=on_over, passage_ps=passage_ps)
        self.replicas = replicas
        self.routers: dict[int, Router] = {}
        """By place: the router that wants to know what goes on there."""
        self.on_prefilled: Callable[[ServedRequest, int], None] | None = None
        """Told of each request whose prompt is computed and which goes on elsewhere."""
        self.on_drop: Callable[[ServedRequest, int], None] | None = None
        """Told of each request that can never be served."""

    def admitted(self, request: ServedRequest, cached_tokens: int) -> None:
        """A request's first tokens are scheduled."""
        if not request.seen:
            replica = self.replicas[request.replica]
            replica.prompt_tokens += request.num_prompt_tokens
            replica.cached_tokens += cached_tokens
        if request.decode_final_tokens:
            engine = self.replicas[request.replica].engine
            if engine is not None:
                request.prefill_start_ps = max(engine.decide, engine.end)
        super().admitted(request, cached_tokens)

    def first(self, request: ServedRequest) -> None:
        """A request got its first token."""
        super().first(request)
        router = self.routers.get(request.replica)
        if router is not None:
            router.loads.heard(request.first_token_ps, request, over=False)

    def done(self, request: ServedRequest, end: int) -> int | None:
        """A request got its last token, here at least."""
        whole = None
        if request.decode_final_tokens and self.on_prefilled is not None:
            self.on_prefilled(request, end)
        else:
            whole = super().done(request, end)
        self.replicas[request.replica].completed += 1
        self._over(request, end)
        return whole

    def drop(self, request: ServedRequest, now: int) -> None:
        """A request can never be served."""
        super().drop(request, now)
        if self.on_drop is not None:
            self.on_drop(request, now)
        self._over(request, now)

    def _over(self, request: ServedRequest, end: int) -> None:
        router = self.routers.get(request.replica)
        if router is not None:
            router.loads.heard(end, request, over=True)


@dataclass(kw_only=True)
class Failures:
    """When replicas die: at given times ``at`` (ps, place), or on average every ``mtbf_ps`` of each one's
    time (exponential, drawn by ``seed``); each is down for ``repair_ps`` and then starts anew."""

    at: Sequence[tuple[int, int]] = ()
    mtbf_ps: int | None = None
    repair_ps: int = 0
    seed: int = 0
    _draws: dict[int, Random] = field(default_factory=dict, init=False)

    def next_ps(self, place: int, now: int) -> int | None:
        """When the replica at ``place``, up since ``now``, dies by chance; None: never."""
        if self.mtbf_ps is None:
            return None
        draws = self._draws.setdefault(place, Random(f"{self.seed}/{place}"))
        return now + max(1, round(draws.expovariate(1.0) * self.mtbf_ps))


def seconds_ps(seconds: float) -> int:
    """``seconds`` in whole picoseconds."""
    return round(seconds * PS_PER_S)
