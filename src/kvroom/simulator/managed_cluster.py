"""Replicas behind routers, in the order of events: what a router sees, replicas that come and go.

Where prompts are computed in one pool and answers generated in another (``links``), requests come to the
first and go on to the second (``transfer``).

Replicas that share nothing go on by themselves, each up to the time at which somebody looks at it. Where
requests may come because others are answered (``linked``), decisions of all replicas are taken in the
order of their times: none is taken before all that could have led to a request before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from kvroom.kvcache.request import ServedRequest
from kvroom.simulator.cluster import TOGETHER, Cluster
from kvroom.simulator.event_engine import EventEngine
from kvroom.simulator.replicas import ClusterOutcome, Failures, Replica, ReplicaState
from kvroom.simulator.routed_pool import RoutedPool
from kvroom.simulator.stream import FOREVER, Follow
from kvroom.simulator.timeline import EVENTS, GLANCE, ServingEngine, Watch
from kvroom.simulator.transfer import PrefilledCache, TransferLinks, continued


class PlannedEvent(NamedTuple):
    """What happens to a replica (fail, dies, start, up, end) or to a pool (scale), and when."""

    time_ps: int
    order: int
    what: str
    place: int


class ClusterEvent(NamedTuple):
    """A line of what happened to the replicas."""

    time_ps: int
    what: str
    place: int


class ManagedCluster(Cluster):
    """Pools of replicas that report to one ``outcome``; requests come to the first of them.

    ``linked``: requests may come because others are answered; ``follow`` makes them. ``shares``: replicas
    read from a store what others have computed.
    """

    def __init__(
        self,
        pools: Sequence[RoutedPool],
        outcome: ClusterOutcome,
        *,
        failures: Failures | None = None,
        linked: bool = False,
        shares: bool = False,
        links: TransferLinks | None = None,
        watch: Watch | None = None,
    ) -> None:
        super().__init__((), outcome, watch=watch)
        self.pools = pools
        self.replicas = outcome.replicas
        self.failures = failures or Failures()
        self.follows = linked
        self.shares = shares
        self.linked = linked or shares or links is not None
        self.links = links
        self._releases: list[tuple[int, int, PrefilledCache]] = []
        if links is not None:
            outcome.on_prefilled = self._hand_over
            outcome.on_drop = self._abandon
        self.follow: Follow | None = None
        self.history: list[ClusterEvent] = []
        self.retries = 0
        self._agenda: list[PlannedEvent] = []
        self._orders = 0
        self._fed = False
        self._coming: list[tuple[int, int, int, ServedRequest]] = []  # time, index, pool, request
        self._home = {
            replica.place: index for index, pool in enumerate(pools) for replica in pool.replicas
        }
        for pool in pools:
            if pool.router.looks or pool.scale is not None:
                for replica in pool.replicas:
                    outcome.routers[replica.place] = pool.router

    # What comes

    def after(self, request: ServedRequest, now: int) -> None:
        """An engine is through with ``request``: whoever waited for that comes, by way of the router."""
        if request.decode_final_tokens:
            return
        for follower in self.follow(request, now) if self.follow else ():
            self.come(follower, follower.arrival, 0)

    def come(self, request: ServedRequest, time_ps: int, pool: int) -> None:
        """``request`` comes to a pool at ``time_ps``."""
        heappush(self._coming, (time_ps, request.index, pool, request))

    def _hand_over(self, request: ServedRequest, end: int) -> None:
        """The prompt of ``request`` is computed: it goes on in the second pool."""
        replica = self.replicas[request.replica]
        assert isinstance(replica.engine, EventEngine)
        source = PrefilledCache(replica, replica.engine, request, request.prefill_start_ps, end)
        assert self.links is not None
        self.links.prefilled[request.index] = source
        self.come(continued(request, source), end, 1)

    def _abandon(self, request: ServedRequest, now: int) -> None:
        """Nobody will fetch the prompt of ``request``."""
        source = self.links.prefilled.pop(request.index, None) if self.links else None
        if source is not None:
            self.release(source, now)

    def release(self, source: PrefilledCache, time_ps: int) -> None:
        """A transfer is over at ``time_ps``: its sender may give up the blocks."""
        self._orders += 1
        heappush(self._releases, (time_ps, self._orders, source))

    def _release(self, until: int) -> None:
        while self._releases and self._releases[0][0] <= until:
            time_ps, _, source = heappop(self._releases)
            if source.there:
                source.engine.release(source.sent, time_ps)

    def _plan(self, time_ps: int, what: str, place: int) -> None:
        self._orders += 1
        heappush(self._agenda, PlannedEvent(time_ps, self._orders, what, place))

    def serve(self, feed: Iterable[ServedRequest]) -> None:
        """All requests of ``feed``, to the end or until ``watch`` stops it (``stopped``)."""
        self._begin()
        source = iter(feed)
        request = next(source, None)
        ahead = 0
        while True:
            self._fed = request is None
            at = self._next_ps(request)
            if not self._reach(at, look=at < FOREVER):
                return
            if self._next_ps(request) < at:
                continue  # somebody comes sooner because of what was done
            if at == FOREVER:
                break
            if self._agenda and self._agenda[0].time_ps == at:
                event = heappop(self._agenda)
                if request is None and self._quiet():
                    self._agenda.clear()  # nobody is left to notice
                elif self._go(at):
                    self._happens(event)
                else:
                    return
            elif self._coming and self._coming[0][0] == at:
                _, _, pool, late = heappop(self._coming)
                self._send(late, at, pool)
            else:
                while request is not None and request.arrival == at:
                    self._send(request, at, 0)
                    request = next(source, None)
                    ahead += 1
                if ahead >= TOGETHER:
                    ahead = 0
                    if not self._go(at):
                        return
        for group in self.pools:  # no replica will ever be up for them
            for late in group.waiting:
                self.outcome.drop(late, self.last_ps)
            group.waiting.clear()

    def _begin(self) -> None:
        for number, pool in enumerate(self.pools):
            for replica in pool.replicas[: pool.begin]:
                replica.since_ps = 0
                self._up(replica, 0)
            pool.note_up()
            if pool.scale is not None:
                self._plan(pool.scale.every_ps, "scale", number)
        for time_ps, place in self.failures.at:
            self._plan(time_ps, "fail", place)

    def _next_ps(self, request: ServedRequest | None) -> int:
        at = FOREVER if request is None else request.arrival
        if self._coming:
            at = min(at, self._coming[0][0])
        return min(at, self._agenda[0].time_ps) if self._agenda else at

    def _quiet(self) -> bool:
        """Whether nobody is being served or waits."""
        idle = all(engine.wakes_ps == FOREVER for engine in self.engines) and not self._releases
        return idle and not self._coming and not any(pool.waiting for pool in self.pools)

    def _send(self, request: ServedRequest, now: int, pool: int) -> None:
        """Hand ``request`` to a replica of a pool."""
        group = self.pools[pool]
        if now == request.arrival and not request.retries:
            group.came += 1
            group.came_tokens += request.num_prompt_tokens
        if not group.up:
            group.waiting.append(request)
            return
        if self.links is not None and pool == 0:
            request.final_tokens = min(
                request.decode_final_tokens or request.final_tokens, self.links.longest_tokens
            )
            request.keeps_blocks = request.final_tokens > request.num_tokens + 1
            request.decode_final_tokens = request.final_tokens if request.keeps_blocks else 0
            request.final_tokens = request.num_tokens + 1
        place = group.router.route(request, group.up, now)
        replica = self.replicas[place]
        request.replica = place
        replica.requests += 1
        assert replica.engine is not None
        if now == request.arrival:
            replica.engine.push(request)
        else:
            replica.engine.come(request, now)

    # How replicas go on

    def _reach(self, at: int, *, look: bool) -> bool:
        """Let all go on to ``at`` as far as that matters, and routers look; False where it was stopped."""
        if look:
            for pool in self.pools:
                router = pool.router
                if router.looks and (due := router.due(at)) > router.seen_ps:
                    if not self._go(due):
                        return False
                    if self._coming and self._coming[0][0] < due:
                        return True
                    router.look(due)
        return self._go(at) if self.linked or not look else True

    def _go(self, until: int) -> bool:
        """Take all decisions before ``until``, or, where they are linked, before somebody comes sooner;
        False where it was stopped."""
        if self.linked:
            return self._in_order(until)
        if not self.timeline.go(self.engines, until):
            self.stopped = True
        return not self.stopped

    def _in_order(self, until: int) -> bool:
        """Decisions in the order of their times. An engine that nobody can notice for a while (it only
        generates answers that nothing follows on) goes on by itself until others may do something."""
        first_pool = len(self.pools[0].replicas)
        there = [replica for replica in self.replicas if replica.engine is not None]
        engines = self.engines
        hands_over = self.links is not None
        always = [self.follows or (hands_over and r.place < first_pool) for r in there]
        wakes, noticed = self._all_ahead(engines, always)
        taken = 0
        while engines:
            bound = min(until, self._coming[0][0]) if self._coming else until
            freed = self._releases[0][0] if self._releases else FOREVER
            first = min(wakes)
            if min(first, freed) >= bound:
                break
            if freed <= first:
                self._release(freed)
                wakes, noticed = self._all_ahead(engines, always)
                continue
            place = wakes.index(first)
            chosen = engines[place]
            quiet = not always[place] and not self._busy(chosen)
            noticed[place] = FOREVER
            limit = max(min(bound, freed, *noticed), first + 1)
            if quiet:
                chosen.advance(min(limit, max(chosen.next_ps, first + 1)), EVENTS)
            else:
                chosen.advance(limit, 1)
            wakes[place], noticed[place] = self._ahead(chosen, always[place])
            taken += 1
            if taken % GLANCE == 0:
                self.timeline.glance(engines)
            if taken % EVENTS == 0 and self.timeline.stops(engines):
                self.stopped = True
                return False
        return True

    def _busy(self, engine: ServingEngine) -> bool:
        """Whether others may notice what it does next: let in who waits, or compute a prompt."""
        return engine.waiting_count > 0 or (self.shares and engine.has_prefills)

    def _ahead(self, engine: ServingEngine, always: bool) -> tuple[int, int]:
        """When ``engine`` decides next, and when it next decides what others could notice."""
        wakes = engine.wakes_ps
        return wakes, wakes if always or self._busy(engine) else max(wakes, engine.next_ps)

    def _all_ahead(
        self, engines: Sequence[ServingEngine], always: Sequence[bool]
    ) -> tuple[list[int], list[int]]:
        """``_ahead`` of each."""
        each = [self._ahead(*one) for one in zip(engines, always, strict=True)]
        return [wakes for wakes, _ in each], [noticed for _, noticed in each]

    # What happens to replicas

    def _happens(self, event: PlannedEvent) -> None:
        now = event.time_ps
        for engine in self.engines:
            engine.gather(now)
        if event.what == "scale":
            self._scale(self.pools[event.place], now)
            self._plan(now + self._every(event.place), "scale", event.place)
            return
        replica = self.replicas[event.place]
        chance = event.what == "dies" and event.time_ps == replica.dies_ps
        if (event.what == "fail" or chance) and replica.serves:
            self._fail(replica, now)
        elif event.what == "start" and replica.state is ReplicaState.DOWN:
            self._start(replica, now)
        elif event.what == "up" and replica.state is ReplicaState.STARTING and now == replica.up_ps:
            self._up(replica, now)  # not an earlier start that was called off
        elif (
            event.what == "end"
            and replica.state is ReplicaState.DRAINING
            and now == replica.ends_ps
        ):
            self._end(replica, now, "ended")
        pool = self.pools[self._home[event.place]]
        pool.note_up()
        if pool.up:
            late, pool.waiting = pool.waiting, []
            for request in late:
                self._send(request, now, self._home[event.place])

    def _every(self, pool: int) -> int:
        scale = self.pools[pool].scale
        assert scale is not None
        return scale.every_ps

    def _start(self, replica: Replica, now: int) -> None:
        replica.state = ReplicaState.STARTING
        replica.since_ps = now
        replica.cold_starts += 1
        replica.up_ps = now + replica.cold_ps
        self.history.append(ClusterEvent(now, "starts", replica.place))
        self._plan(replica.up_ps, "up", replica.place)

    def _up(self, replica: Replica, now: int) -> None:
        replica.up()
        if now:
            self.history.append(ClusterEvent(now, "up", replica.place))
        dies = self.failures.next_ps(replica.place, now)
        if dies is not None:
            replica.dies_ps = dies
            self._plan(dies, "dies", replica.place)

    def _fail(self, replica: Replica, now: int) -> None:
        """``replica`` dies with its cache."""
        replica.failures += 1
        drained = replica.state is ReplicaState.DRAINING
        self._end(replica, now, "fails")
        if not drained:
            self._plan(now + self.failures.repair_ps, "start", replica.place)

    def _end(self, replica: Replica, now: int, what: str) -> None:
        """``replica`` is no more; those it served come again, as soon as its last step has ended."""
        engine = replica.engine
        assert engine is not None
        self.history.append(ClusterEvent(now, what, replica.place))
        taken = engine.evacuate()
        again = max(now, engine.end)
        drained = replica.state is ReplicaState.DRAINING
        replica.off(now, ReplicaState.OFF if drained else ReplicaState.DOWN)
        home = self._home[replica.place]
        self.pools[home].router.lost(replica.place)
        for request in taken:
            request.retries += 1
            request.replica = -1
            self.retries += 1
            # What is computed elsewhere still is; the rest begins anew.
            handed = self.links is not None and request.index in self.links.prefilled
            self.come(request, max(again, request.arrival), home if handed else 0)

    # More and fewer of them

    def _scale(self, pool: RoutedPool, now: int) -> None:
        rule = pool.scale
        assert rule is not None
        for replica in pool.drained():
            assert replica.engine is not None
            self.history.append(ClusterEvent(now, "gone", replica.place))
            replica.off(max(replica.engine.end, replica.since_ps))
            pool.router.lost(replica.place)
        gauges = pool.gauges(now)
        wanted = min(max(rule.target(gauges), pool.least), pool.most or len(pool.replicas))
        changed = self._more(pool, wanted - gauges.there, now)
        changed |= self._fewer(pool, gauges.there - wanted, now, newest=rule.newest_first)
        if changed:
            rule.changed(now)
        pool.note_up()
        self._give_up(pool, now)

    def _more(self, pool: RoutedPool, count: int, now: int) -> bool:
        """Start so many that are off; whether any was."""
        off = [replica for replica in pool.replicas if replica.state is ReplicaState.OFF]
        for replica in off[: max(0, count)]:
            self._start(replica, now)
        return count > 0 and bool(off)

    def _fewer(self, pool: RoutedPool, count: int, now: int, *, newest: bool) -> bool:
        """Let so many go; whether any was. Those that are only starting are called off first."""
        if count <= 0:
            return False
        starting, serving = pool.going(count, newest=newest)
        for replica in starting:
            self.history.append(ClusterEvent(now, "gone", replica.place))
            replica.off(now)
        for replica in serving:
            replica.state = ReplicaState.DRAINING
            self.history.append(ClusterEvent(now, "drains", replica.place))
            if pool.grace_ps is not None:
                replica.ends_ps = now + pool.grace_ps
                self._plan(replica.ends_ps, "end", replica.place)
        return True

    def _give_up(self, pool: RoutedPool, now: int) -> None:
        """Where requests wait for long though no replica is there or comes, no rule will start one."""
        idle = all(replica.state is ReplicaState.OFF for replica in pool.replicas)
        if not (idle and pool.waiting and self._fed):
            pool.idle_ps = -1
        elif pool.idle_ps < 0:
            pool.idle_ps = now
        elif pool.scale and now > pool.idle_ps + pool.scale.patience_ps:
            self._agenda.clear()
            for late in pool.waiting:
                self.outcome.drop(late, now)
            pool.waiting.clear()

    # How things stand

    @property
    def engines(self) -> list[ServingEngine]:
        """Those that are there."""
        return [replica.engine for replica in self.replicas if replica.engine is not None]

    @property
    def waiting_count(self) -> int:
        """Requests that have come and hold none, those between two replicas among them."""
        between = sum(
            request.first_token_ps >= 0 or request.retries > 0 for *_, request in self._coming
        )
        stranded = sum(len(pool.waiting) for pool in self.pools)
        return sum(engine.waiting_count for engine in self.engines) + between + stranded

    @property
    def peak_blocks(self) -> int:
        """The most blocks held at once, each replica's own most together."""
        for replica in self.replicas:
            replica.note()
        return sum(replica.peak_blocks for replica in self.replicas)
