"""Passes in which all running requests decode, at the cost of what happens to their blocks.

From one block's end to the next a request that decodes changes nothing: it is looked at again when its
blocks do, at the passes that ``PrefixCache.allocate`` says. What each pass leaves behind is what
``Scheduler`` would; the tests hold one against the other.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

from kvroom.engines.scheduler import Pass, Work
from kvroom.engines.vllm.scheduler import Scheduler
from kvroom.kvcache.request import Sequence
from kvroom.latency.clock import StepClock

LEAST = 3
"""Passes below which plain ones are as quick."""


class Glide:
    """Up to ``most`` decode passes of all that run under ``scheduler``; made by ``start``.

    Between passes the requests' own counts stand still: ``settle`` brings them up to date.
    """

    def __init__(self, scheduler: Scheduler, most: int, clock: StepClock) -> None:
        self.most = most
        self.done = 0
        self._cache = scheduler.cache
        self._async = scheduler.settings.async_scheduling
        self._all = scheduler.running
        self._begun = [(s.computed, s.known) for s in self._all]
        self._due: dict[int, list[int]] = {}
        for place, sequence in enumerate(self._all):
            self._wait(place, sequence)
        self._fixed = clock.decode_ps(len(self._all))
        self._reads = [_Read(r.context_ps, r.tokens, self._begun) for r in clock.reaches]

    @classmethod
    def start(cls, scheduler: Scheduler, flying: Pass | None, clock: StepClock) -> Glide | None:
        """A Glide from here on; None where somebody else could come in, or somebody does not decode."""
        running, settings = scheduler.running, scheduler.settings
        if not running or len(running) > settings.max_num_batched_tokens:
            return None
        if len(scheduler.waiting) and len(running) < settings.max_num_seqs:
            return None
        if flying is not None and len(flying.work) != len(running):
            return None
        ahead = 0 if flying is None else 1
        most = 1 << 60
        for sequence in running:
            decodes = sequence.known + sequence.placeholders - sequence.computed == 1
            if not decodes or sequence.placeholders != ahead or sequence.in_flight != ahead:
                return None
            if sequence.stale or sequence.known <= sequence.prompt_tokens:
                return None
            left = sequence.prompt_tokens + sequence.output_tokens - sequence.known - 2
            most = min(most, left)
        return cls(scheduler, most, clock) if most >= LEAST else None

    def _wait(self, place: int, sequence: Sequence) -> None:
        """Look at the request again when its blocks change."""
        at = max(self.done, sequence.quiet_tokens - self._begun[place][0])
        self._due.setdefault(at, []).append(place)

    def spent_ps(self) -> int:
        """How long the next pass takes."""
        return self._fixed + sum(read.at(self.done) for read in self._reads)

    def step(self) -> bool:
        """One more pass; False where blocks give out, and it has to be taken plainly."""
        due = self._due.get(self.done)
        if due is not None:
            due.sort()  # who was admitted first is served first
            cache = self._cache
            cache.begin_pass()
            for place in due:
                sequence = self._all[place]
                self._bring(place, self.done)
                if not cache.allocate(sequence, 1):
                    return False
            cache.end_pass()
            if self._async:
                # The output of the pass before comes in: it may fill a block.
                for place in due:
                    cache.register(self._all[place], self._begun[place][0] + self.done)
            del self._due[self.done]
            self.done += 1
            for place in due:
                self._wait(place, self._all[place])
        else:
            self.done += 1
        return True

    def _bring(self, place: int, passes: int) -> None:
        sequence = self._all[place]
        computed, known = self._begun[place]
        sequence.computed, sequence.known = computed + passes, known + passes

    def settle(self) -> None:
        """Let the requests know what the passes did."""
        for place, sequence in enumerate(self._all):
            self._bring(place, self.done)
            if self.done:
                sequence.alone_preempted = 0

    def last(self) -> Pass:
        """The last pass, as it is while its output is on its way."""
        return Pass(work=[Work(sequence, 1, True) for sequence in self._all])


class _Read:
    """What attention of one reach costs in each pass: all tokens so far, or the last ``tokens``."""

    def __init__(self, context_ps: int, tokens: int | None, begun: list[tuple[int, int]]) -> None:
        self.context_ps = context_ps
        self.tokens = tokens or 0
        self.count = len(begun)
        lengths = sorted((computed + 1 for computed, _ in begun), reverse=True)
        self._total = sum(lengths)
        self._lengths = lengths if tokens is not None else None
        self._sums = list(accumulate(lengths, initial=0))
        # In how many passes each has as many as it looks back on, the longest first.
        self._full = [self.tokens - length for length in lengths]

    def at(self, passes: int) -> int:
        """Picoseconds after so many passes."""
        if self._lengths is None:
            return self.context_ps * (self._total + self.count * passes)
        full = bisect_right(self._full, passes)
        growing = self._total - self._sums[full] + (self.count - full) * passes
        return self.context_ps * (growing + full * self.tokens)
