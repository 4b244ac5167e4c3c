"""Steps in which all running requests decode, at the cost of what happens to their blocks.

From one block's end to the next a request that decodes changes nothing: it is looked at again when its
blocks do, at the steps that ``PrefixCache.allocate`` says. What each step leaves behind is what
``Scheduler`` would; the tests hold one against the other.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

from kvroom.engines.paged.scheduler import Scheduler
from kvroom.engines.scheduler import ScheduledTokens, SchedulerOutput
from kvroom.kvcache.request import ServedRequest
from kvroom.latency.clock import StepClock

LEAST_STEPS = 3
"""Steps below which plain ones are as quick."""


class DecodeRun:
    """Up to ``most`` decode steps of all that run under ``scheduler``; made by ``start``.

    Between steps the requests' own counts stand still: ``settle`` brings them up to date.
    """

    def __init__(self, scheduler: Scheduler, most: int, clock: StepClock) -> None:
        self.most = most
        self.done = 0
        self._cache = scheduler.cache
        self._async = scheduler.config.async_scheduling
        self._all = scheduler.running
        self._start_counts = [(r.num_computed_tokens, r.num_tokens) for r in self._all]
        self._due: dict[int, list[int]] = {}
        for place, request in enumerate(self._all):
            self._wait(place, request)
        self._times = DecodeTimes(clock, [computed for computed, _ in self._start_counts])

    @classmethod
    def start(
        cls, scheduler: Scheduler, in_flight: SchedulerOutput | None, clock: StepClock
    ) -> DecodeRun | None:
        """A DecodeRun from here on; None where somebody else could come in, or somebody does not decode."""
        running, config = scheduler.running, scheduler.config
        if not running or len(running) > config.max_num_batched_tokens:
            return None
        if len(scheduler.waiting) and len(running) < config.max_num_seqs:
            return None
        if in_flight is not None and len(in_flight.scheduled) != len(running):
            return None
        ahead = 0 if in_flight is None else 1
        most = 1 << 60
        for request in running:
            decodes = (
                request.num_tokens + request.num_output_placeholders - request.num_computed_tokens
                == 1
            )
            if (
                not decodes
                or request.num_output_placeholders != ahead
                or request.in_flight_tokens != ahead
            ):
                return None
            if request.stale_tokens or request.num_tokens <= request.num_prompt_tokens:
                return None
            most = min(most, request.tokens_left - 2)
        return cls(scheduler, most, clock) if most >= LEAST_STEPS else None

    def _wait(self, place: int, request: ServedRequest) -> None:
        """Look at the request again when its blocks change."""
        at = max(self.done, request.quiet_tokens - self._start_counts[place][0])
        self._due.setdefault(at, []).append(place)

    @property
    def requests(self) -> list[ServedRequest]:
        """Those that run."""
        return self._all

    def spent_ps(self) -> int:
        """How long the next step takes, without the experts that ranks share."""
        return self._times.at(self.done)

    def step(self) -> bool:
        """One more step; False where blocks give out, and it has to be taken plainly."""
        due = self._due.get(self.done)
        if due is not None:
            due.sort()  # who was admitted first is served first
            cache = self._cache
            cache.begin_step()
            for place in due:
                request = self._all[place]
                self._set_counts(place, self.done)
                if not cache.allocate(request, 1):
                    return False
            cache.end_step()
            if self._async:
                # The output of the step before comes in: it may fill a block.
                for place in due:
                    cache.register(self._all[place], self._start_counts[place][0] + self.done)
            del self._due[self.done]
            self.done += 1
            for place in due:
                self._wait(place, self._all[place])
        else:
            self.done += 1
        return True

    def _set_counts(self, place: int, steps: int) -> None:
        request = self._all[place]
        computed, known = self._start_counts[place]
        request.num_computed_tokens, request.num_tokens = computed + steps, known + steps

    def settle(self, steps: int) -> None:
        """Let the requests know what the first so many steps did. (Beside others that found no block the last
        may not count: it is taken once more, plainly, and finds its blocks there.)"""
        self.done = steps
        for place, request in enumerate(self._all):
            self._set_counts(place, self.done)
            if self.done:
                request.alone_preempted = 0

    def last(self) -> SchedulerOutput:
        """The last step, as it is while its output is on its way."""
        return SchedulerOutput(
            scheduled=[ScheduledTokens(request, 1, True) for request in self._all]
        )


class DecodeTimes:
    """How long each decode step takes for requests that had ``computed`` so many tokens before the
    first step; the experts that ranks share are not included."""

    def __init__(self, clock: StepClock, computed: list[int]) -> None:
        many = len(computed)
        self._fixed = clock.decode_ps(many) - clock.meeting_ps(many, 0)
        self._reads = [
            _AttentionRead(reach.context_ps, reach.tokens, computed) for reach in clock.reaches
        ]

    def at(self, steps: int) -> int:
        """Picoseconds of the step after so many."""
        return self._fixed + sum(read.at(steps) for read in self._reads)


class _AttentionRead:
    """What attention of one reach costs in each step: all tokens so far, or the last ``tokens``."""

    def __init__(self, context_ps: int, tokens: int | None, computed: list[int]) -> None:
        self.context_ps = context_ps
        self.tokens = tokens or 0
        self.count = len(computed)
        lengths = sorted((each + 1 for each in computed), reverse=True)
        self._total = sum(lengths)
        self._lengths = lengths if tokens is not None else None
        self._sums = list(accumulate(lengths, initial=0))
        # In how many steps each has as many as it looks back on, the longest first.
        self._full = [self.tokens - length for length in lengths]

    def at(self, steps: int) -> int:
        """Picoseconds after so many steps."""
        if self._lengths is None:
            return self.context_ps * (self._total + self.count * steps)
        full = bisect_right(self._full, steps)
        growing = self._total - self._sums[full] + (self.count - full) * steps
        return self.context_ps * (growing + full * self.tokens)
