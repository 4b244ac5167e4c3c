"""Engines that are scheduled step by step on a clock of picoseconds: the plain loop.

It serves any ``EngineScheduler``, at the cost of a step a step; ``event_engine.EventEngine`` jumps from event
to event and gives the same, block for block and picosecond for picosecond.

Data-parallel ranks around shared experts step together: every layer of experts takes tokens of all ranks, so
no rank is ahead of another, a step lasts as long as its slowest rank takes, and a rank with nothing to do
runs along. Each rank has requests, blocks and a cache of its own (vLLM and SGLang: data-parallel attention).
An engine alone is a loop of one rank.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping

from kvroom.engines.paged.scheduler import Scheduler
from kvroom.engines.scheduler import (
    DecodingScheduler,
    EngineScheduler,
    SchedulerOutput,
    TieredScheduler,
)
from kvroom.kvcache.connector import KVConnector
from kvroom.kvcache.events import KVEvents
from kvroom.kvcache.request import RequestHashes, ServedRequest
from kvroom.latency.clock import StepClock
from kvroom.simulator.decode_run import LEAST_STEPS, DecodeRun, DecodeTimes
from kvroom.simulator.metrics import Outcome
from kvroom.simulator.offload_groups import GroupOffload
from kvroom.simulator.pipeline import StagePipeline
from kvroom.simulator.stream import FOREVER, Follow, RequestStream


class StepEngine(RequestStream):
    """One engine or rank, used like ``EventEngine``.

    What has come by the time of a scheduling step is queued before it. Where two steps may be in
    flight the next is scheduled when the one before starts. ``connector`` and ``events`` (of a
    ``TieredScheduler``) as in ``EventEngine``; ``unit`` is how many blocks one name stands for. ``clock`` is
    that of steps with all their drafts, ``clocks`` those with fewer, by how many. ``loop``: that of the ranks
    which it steps together with. ``depth``: of the steps in flight so many are in the stages of its pipeline,
    each with other requests (0: it has none, or steps as one).
    """

    def __init__(
        self,
        scheduler: EngineScheduler,
        clock: StepClock,
        outcome: Outcome,
        *,
        follow: Follow | None = None,
        clocks: Mapping[int, StepClock] | None = None,
        unit: int = 1,
        connector: KVConnector | None = None,
        events: KVEvents | None = None,
        loop: StepLoop | None = None,
        depth: int = 0,
    ) -> None:
        super().__init__(follow)
        self.scheduler = scheduler
        self.clock = clock
        self.clocks = clocks or {}
        self.outcome = outcome
        self.unit = unit
        self.strict = True
        self.has_prefills = False
        self.end = 0
        self.peak_blocks = 0
        self.requests: dict[int, ServedRequest] = {}  # by index: those that the scheduler knows
        self.loading: list[tuple[int, int, ServedRequest]] = []
        self.loop = loop or StepLoop()
        self.loop.ranks.append(self)
        if depth and self.loop.pipeline is None:
            self.loop.pipeline = StagePipeline(depth)
        self.decode_runs = False
        """Whether steps in which all decode are taken as runs."""
        if isinstance(scheduler, Scheduler):
            # Where drafts are kept or not, no two steps are alike; what is brought goes step by step.
            self.decode_runs = scheduler.drafts is None and connector is None and events is None
        self.ahead = scheduler if isinstance(scheduler, DecodingScheduler) else None
        self.decode_runs |= self.ahead is not None
        self.decode_runs &= not depth  # a step has only some of those that decode
        if isinstance(connector, GroupOffload):
            assert isinstance(scheduler, Scheduler)
            connector.join(scheduler.cache)
            events = None  # it is told by the blocks
        if isinstance(scheduler, TieredScheduler):
            self.loading = scheduler.loading
            scheduler.connector, scheduler.events = connector, events
            scheduler.blocks_per_name = unit
            if events is not None and events.wants_removed:
                scheduler.tell_evicted()

    @property
    def wakes_ps(self) -> int:
        """When it next decides anything; FOREVER where it has nothing to do."""
        return self.loop.wakes_ps

    @property
    def running_count(self) -> int:
        """Requests that hold blocks."""
        return len(self.requests) - self.scheduler.waiting_count

    @property
    def waiting_count(self) -> int:
        """Requests in the queue."""
        return self.scheduler.waiting_count

    @property
    def blocks_in_use(self) -> int:
        """Blocks held by requests."""
        return self.scheduler.blocks_in_use

    def advance(self, until: int = FOREVER, events: int = FOREVER) -> bool:
        """Take all scheduling decisions that fall before ``until``, by when later requests may come.

        False where ``events`` steps were not enough.
        """
        return self.loop.advance(until, events)

    def enqueue(self, request: ServedRequest) -> None:
        """Queue ``request``, or drop it."""
        self.requests[request.index] = request
        request.hashes = RequestHashes(request, self.unit)
        if not self.scheduler.add_request(request):
            self.drop(request)

    def drop(self, request: ServedRequest) -> None:
        """``request`` can never be served."""
        del self.requests[request.index]
        self.outcome.drop(request, self.decide)
        if self.follow:
            self.over(request, self.decide)

    def drop_stuck(self) -> None:
        """Drop whoever keeps the rest waiting though nothing runs."""
        stuck = self.scheduler.drop_stuck()
        if stuck is not None:
            self.drop(stuck)

    # What the loop does with each rank

    def schedule(self) -> SchedulerOutput:
        """The next step: who is admitted, preempted and dropped in it is reported."""
        output = self.scheduler.schedule(self.decide)
        for request, cached, _ in output.admitted:
            self.outcome.admitted(request, cached)
        for request in output.preempted:
            request.num_preemptions += 1
        self.outcome.preempted += len(output.preempted)
        for request in output.dropped:
            self.drop(request)
        if output.scheduled:
            self.peak_blocks = max(self.peak_blocks, self.scheduler.blocks_in_use)
        return output

    def work_of(self, output: SchedulerOutput) -> tuple[StepClock, list[tuple[int, int]]]:
        """The clock of a step, and what each of its requests computes. Whoever decodes costs as much as all
        that are drafted in it."""
        drafted = output.drafted
        clock = self.clock if drafted is None else self.clocks.get(drafted, self.clock)
        return clock, [
            (s.request.num_computed_tokens - s.tokens, s.tokens - s.drafts)
            for s in output.scheduled
        ]

    def begin(self, output: SchedulerOutput, start: int, end: int) -> None:
        """The step runs from ``start`` to ``end``."""
        self.end = end

    def finish(self, output: SchedulerOutput, end: int) -> None:
        """Take the output of a step that ended at ``end``."""
        self.report(output, self.scheduler.update_from_output(output), end)

    def report(self, output: SchedulerOutput, finished: list[ServedRequest], end: int) -> None:
        """Tell of the tokens of a step, and of the requests that it finished."""
        gaps: Counter[int] = Counter()
        for request, _, samples, drafts in output.scheduled:
            if not samples or request.index not in self.requests:
                continue
            if request.first_token_ps < 0:
                request.first_token_ps = end
                self.outcome.first(request)
            else:
                gaps[end - request.last_token_ps] += 1
            request.last_token_ps = end
            if drafts:
                self.outcome.verified(drafts, request.new_tokens)
        for gap, count in gaps.items():
            self.outcome.gaps.add((gap, 0, 1, count, gap))
        for request in finished:
            del self.requests[request.index]
            self.outcome.over(request, self.outcome.done(request, end))
            if self.follow:
                self.over(request, end)

    def evacuate(self) -> list[ServedRequest]:
        """As ``EventEngine.evacuate``."""
        self.loop.land()
        requests = [*self.requests.values(), *self.take_coming()]
        for request in requests:
            request.restart()
        return requests


class StepLoop:
    """Ranks whose steps begin and end together."""

    def __init__(self) -> None:
        self.ranks: list[StepEngine] = []
        self.pipeline: StagePipeline | None = None
        self._in_flight: deque[tuple[list[SchedulerOutput], int]] = deque()
        self._idle = 0  # steps one after another in which nothing was computed

    @property
    def wakes_ps(self) -> int:
        """When they next decide anything; FOREVER where none has anything to do."""
        decide = self.ranks[0].decide
        if self._in_flight or any(rank.requests for rank in self.ranks):
            return decide
        return max(decide, min(rank.next_ps for rank in self.ranks))

    def advance(self, until: int, events: int) -> bool:
        """Take all scheduling decisions that fall before ``until``; False where ``events`` steps were
        not enough."""
        ranks, in_flight = self.ranks, self._in_flight
        first = ranks[0]
        most = first.scheduler.steps_in_flight
        while (now := first.decide) < until:
            if not events:
                return False
            events -= 1
            for rank in ranks:
                rank.gather(now)
            if not in_flight and not any(rank.requests for rank in ranks):
                coming = min(rank.next_ps for rank in ranks)
                if coming == FOREVER:
                    return True
                self._decide(max(first.end, coming))
                continue
            if first.decode_runs and len(in_flight) == most - 1:
                events -= self._decode_run(until, events)
                if (now := first.decide) >= until or min(rank.next_ps for rank in ranks) <= now:
                    continue
            outputs = [rank.schedule() for rank in ranks]
            working = any(output.scheduled for output in outputs)
            if working:
                self._idle = 0
                wait = max(output.wait_ps for output in outputs)
                works = [rank.work_of(output) for rank, output in zip(ranks, outputs, strict=True)]
                if self.pipeline is not None:
                    start, end = self.pipeline.run(now, works, wait)
                else:
                    start = max(now, first.end)
                    end = start + wait + first.clock.joint_ps(works)
                in_flight.append((outputs, end))
                for rank, output in zip(ranks, outputs, strict=True):
                    rank.begin(output, start, end)
            elif self._passes_idle(outputs, now) and len(in_flight) < most:
                continue
            if len(in_flight) == most or (in_flight and not working):
                self._finish(*in_flight.popleft())
            elif not working and not any(output.preempted or output.dropped for output in outputs):
                self._wait_or_drop()
        return True

    def _passes_idle(self, outputs: list[SchedulerOutput], now: int) -> bool:
        """Whether a step in which nothing is computed takes its place among those in flight: not where only
        such are there, and nobody's turn to decode is to come."""
        self._idle += 1
        scheduler, pipeline = self.ranks[0].scheduler, self.pipeline
        if pipeline is None or not scheduler.queues_idle or self._idle > scheduler.steps_in_flight:
            return False
        pipeline.idle()
        self._in_flight.append((outputs, max(now, pipeline.end)))
        return True

    def _finish(self, outputs: list[SchedulerOutput], end: int) -> None:
        self._decide(max(self.ranks[0].decide, end))
        for rank, output in zip(self.ranks, outputs, strict=True):
            rank.finish(output, end)

    def _wait_or_drop(self) -> None:
        """Nothing runs: what loads is waited for, else whoever keeps the rest waiting is dropped."""
        ready = [rank.loading[0][0] for rank in self.ranks if rank.loading]
        if ready:
            coming = min(rank.next_ps for rank in self.ranks)
            self._decide(max(self.ranks[0].decide, min(*ready, coming)))
            return
        for rank in self.ranks:
            rank.drop_stuck()

    def _decide(self, time_ps: int) -> None:
        for rank in self.ranks:
            rank.decide = time_ps

    def _decode_run(self, until: int, events: int) -> int:
        """Steps in which all running requests decode, up to the next event; gives how many."""
        if self.ranks[0].ahead is not None:
            return self._decode_ahead(self.ranks[0].ahead, until, events)
        in_flight, busy = self._in_flight, [rank for rank in self.ranks if rank.requests]
        outputs = in_flight[0][0] if in_flight else [None] * len(self.ranks)
        runs: list[DecodeRun] = []
        for rank, output in zip(self.ranks, outputs, strict=True):
            scheduler = rank.scheduler
            assert isinstance(scheduler, Scheduler)
            if not rank.requests:
                if output is not None and output.scheduled:
                    return 0
                continue
            run = DecodeRun.start(scheduler, output, rank.clock)
            if run is None:
                return 0
            runs.append(run)
        requests = [request for run in runs for request in run.requests]
        first, coming = busy[0], min(rank.next_ps for rank in self.ranks)
        over = first.end if in_flight else 0
        before = requests[0].last_token_ps
        if any(request.last_token_ps != before for request in requests):
            return 0
        many = len(self.ranks)
        met = first.clock.meeting_ps((len(requests) + many - len(runs)) / many, 0)
        most, done = min(events, *(run.most for run in runs)), 0
        decide, end = first.decide, first.end
        while done < most and decide < until and coming > decide:
            spent = max(run.spent_ps() for run in runs) + met
            if not all(run.step() for run in runs):
                break
            done += 1
            end = max(decide, end) + spent
            if not in_flight:
                over = end
            decide = max(decide, over)
            for rank, run in zip(busy, runs, strict=True):
                rank.outcome.gaps.add((over - before, 0, 1, len(run.requests), over - before))
                rank.peak_blocks = max(rank.peak_blocks, rank.scheduler.blocks_in_use)
            before, over = over, end
        for run in runs:
            run.settle(done)
        if done:
            self._decide(decide)
            for rank in self.ranks:
                rank.end = end
            for request in requests:
                request.last_token_ps = before
            if in_flight:
                made = iter(runs)
                last = [
                    next(made).last() if rank.requests else SchedulerOutput() for rank in self.ranks
                ]
                in_flight[0] = (last, end)
        return done

    def _decode_ahead(self, scheduler: DecodingScheduler, until: int, events: int) -> int:
        """The same of a scheduler that takes such steps by itself: it is told how many come before anybody
        does."""
        in_flight, rank = self._in_flight, self.ranks[0]
        requests = scheduler.decoding() if len(self.ranks) == 1 and len(in_flight) <= 1 else []
        before = requests[0].last_token_ps if requests else 0
        if not requests or any(request.last_token_ps != before for request in requests):
            return 0
        most = min(events - 1, min(request.tokens_left for request in requests) - 2)
        times = DecodeTimes(rank.clock, [request.num_computed_tokens for request in requests])
        met = rank.clock.meeting_ps(len(requests), 0)
        decide = rank.decide
        ends: list[int] = []
        landed = [rank.end]  # the output of the last is on its way
        while len(ends) < most and decide < until and rank.next_ps > decide:
            ends.append(max(decide, landed[-1]) + times.at(len(ends)) + met)
            landed.append(ends[-1])
            decide = max(decide, landed[-2] if in_flight else ends[-1])
        done = scheduler.decode(len(ends)) if len(ends) >= LEAST_STEPS else 0
        if not done:
            return 0
        for over in landed[:done] if in_flight else ends[:done]:
            rank.outcome.gaps.add((over - before, 0, 1, len(requests), over - before))
            before = over
        for request in requests:
            request.last_token_ps = before
        self._decide(max(rank.decide, before))
        rank.end = ends[done - 1]
        rank.peak_blocks = max(rank.peak_blocks, scheduler.blocks_in_use)
        if in_flight:
            in_flight[0] = (in_flight[0][0], rank.end)
        return done

    def land(self) -> None:
        """Let the steps in flight of one that is alone come to their end."""
        if len(self.ranks) == 1:
            while self._in_flight:
                outputs, end = self._in_flight.popleft()
                self.ranks[0].finish(outputs[0], end)
