"""vLLM's scheduler, one pass at a time: the readable form of its rules (0.33, V1 engine).

There are no phases: a request computes tokens until it has caught up with those it knows, and then
one token a pass. Running requests come first, in the order of their admission; then waiting ones,
unless a running one had to be preempted. A request that gets no block preempts the last admitted one
(by priority: the least important), which starts again from its cached blocks, its output kept.
With ``Drafts`` a decoding request also computes its drafted tokens; those refused count as not computed,
their blocks stay its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Protocol

from kvroom.engines.draft_tokens import Drafts
from kvroom.engines.scheduler import Admitted, Pass, Work
from kvroom.kvcache.connector import Brought
from kvroom.kvcache.prefix_cache import PrefixCache
from kvroom.kvcache.request import Sequence, State

ALONE_AT_MOST = 2
"""A request that preempts itself more often, with the pool to itself and no token gained, never fits."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """vLLM's own settings, under its names."""

    max_num_batched_tokens: int
    max_num_seqs: int
    max_model_len: int
    enable_chunked_prefill: bool = True
    long_prefill_token_threshold: int = 0
    watermark: float = 0.0
    scheduler_reserve_full_isl: bool = True
    async_scheduling: bool = False
    policy: str = "fcfs"


class Seam(Protocol):
    """How a ``bring.Bringer`` and ``bring.Notices`` reach these rules, which know no time but ``now``."""

    now: int

    def offer(self, sequence: Sequence, found: int, limit: int) -> Brought | None:
        """What can be brought to it, as ``Bringer.offer``."""
        ...

    def admitted(self, sequence: Sequence, found: int, brought: Brought | None) -> None:
        """It has its place, as ``Bringer.admitted``."""
        ...

    def stored(self, sequence: Sequence, blocks: int, *, left: bool = False) -> None:
        """Its first ``blocks`` blocks are in the cache; ``left``: it is done."""
        ...


class Waiting:
    """The queue of waiting requests: first come first served, or by priority."""

    def __init__(self, by_priority: bool) -> None:
        self.by_priority = by_priority
        self._queue: deque[Sequence] = deque()
        self._heap: list[Sequence] = []

    def __len__(self) -> int:
        return len(self._heap) if self.by_priority else len(self._queue)

    def head(self) -> Sequence:
        """Who is next."""
        return self._heap[0] if self.by_priority else self._queue[0]

    def pop(self) -> Sequence:
        """Take the next one out."""
        return heappop(self._heap) if self.by_priority else self._queue.popleft()

    def add(self, sequence: Sequence) -> None:
        """Queue a newcomer."""
        if self.by_priority:
            heappush(self._heap, sequence)
        else:
            self._queue.append(sequence)

    def put_back(self, sequences: Iterable[Sequence]) -> None:
        """Queue preempted or skipped ones: before all others, the first given first of all."""
        if self.by_priority:
            for sequence in sequences:
                heappush(self._heap, sequence)
        else:
            self._queue.extendleft(reversed(list(sequences)))

    def remove(self, sequence: Sequence) -> None:
        """Take one out wherever it stands."""
        if self.by_priority:
            self._heap.remove(sequence)
            heapify(self._heap)
        else:
            self._queue.remove(sequence)


class Scheduler:
    """vLLM's rules over a ``PrefixCache``."""

    def __init__(
        self, settings: Settings, cache: PrefixCache, drafts: Drafts | None = None
    ) -> None:
        self.settings = settings
        self.cache = cache
        self.drafts = drafts
        self._drafted = 0  # tokens that a request may have drafted in this pass
        self._ahead_tokens = drafts.ahead_tokens if drafts else 0
        cache.rereads = drafts is not None and drafts.rereads
        self.passes_in_flight = 2 if settings.async_scheduling else 1
        self.waiting = Waiting(settings.policy == "priority")
        self.running: list[Sequence] = []
        self.watermark_blocks = int(settings.watermark * cache.pool.total)
        self.seam: Seam | None = None
        self.loading: list[tuple[int, int, Sequence]] = []  # a heap: when its cache is there, order
        self._loads = 0

    @property
    def running_count(self) -> int:
        """Requests that hold blocks."""
        return len(self.running) + len(self.loading)

    @property
    def waiting_count(self) -> int:
        """Requests in the queue, preempted ones among them."""
        return len(self.waiting)

    @property
    def blocks_in_use(self) -> int:
        """Blocks held by requests, without the null block."""
        return self.cache.pool.in_use

    @property
    def cached_keys(self) -> int:
        """Distinct cached prefixes."""
        return self.cache.pool.cached

    def add(self, sequence: Sequence) -> bool:
        """Queue a request; False where its prompt is too long for the engine or for an empty pool.

        Its output ends at ``max_model_len``.
        """
        room = self.settings.max_model_len - sequence.prompt_tokens
        if room <= 0 or not self.cache.fits_ever(sequence):
            sequence.state = State.DROPPED
            return False
        sequence.output_tokens = min(sequence.output_tokens, room)
        self.cache.enter(sequence)
        self.waiting.add(sequence)
        return True

    def schedule(self) -> Pass:
        """The next pass: blocks are given out and tokens counted as computed."""
        made = Pass()
        if self.drafts is not None:
            made.drafted = self._drafted = self.drafts.at(self.running_count)
        self.cache.begin_pass()
        if self.loading and self.seam is not None:
            self._arrived(self.seam.now)
        # A long prompt is held back only where somebody else could be served.
        several = self.running_count + len(self.waiting) > 1
        longest = self.settings.long_prefill_token_threshold if several else 0
        budget = self.settings.max_num_batched_tokens
        given = self._schedule_running(made, budget, longest)
        budget -= sum(given.values())
        if not made.preempted:
            self._schedule_waiting(made, given, budget, longest)
        self.cache.end_pass()
        for sequence, tokens in given.items():
            made.work.append(self._advanced(sequence, tokens))
        return made

    def _schedule_running(self, made: Pass, budget: int, longest: int) -> dict[Sequence, int]:
        given: dict[Sequence, int] = {}
        place = 0
        while place < len(self.running) and budget > 0:
            sequence = self.running[place]
            tokens = self._tokens_to_compute(sequence, budget, longest)
            if tokens == 0:
                place += 1
                continue
            fits = sequence.computed + tokens + self._ahead_tokens <= sequence.quiet_tokens
            while not fits and not (
                fits := self.cache.allocate(sequence, tokens, ahead=self._ahead_tokens)
            ):
                victim = self._victim()
                where = self.running.index(victim)
                del self.running[where]
                if where < place:
                    place -= 1
                budget += given.pop(victim, 0)
                self._preempt(victim, made)
                if victim is sequence:
                    break
            if fits:
                self._note(sequence)
                given[sequence] = tokens
                budget -= tokens
                place += 1
            elif self.settings.policy != "priority":
                break  # by priority those behind it matter more: they are tried with what it gave up
        return given

    def _tokens_to_compute(self, sequence: Sequence, budget: int, longest: int) -> int:
        if (
            sequence.placeholders > 0
            and sequence.computed + 2 - sequence.placeholders
            >= sequence.prompt_tokens + sequence.output_tokens
        ):
            return 0  # its last token is on its way
        tokens = sequence.known + sequence.placeholders - sequence.computed
        if sequence.drafts:
            tokens += min(sequence.drafts, self._drafted)
        if 0 < longest < tokens:
            tokens = longest
        tokens = min(tokens, budget, self.settings.max_model_len - sequence.computed - 1)
        return self._aligned(sequence, sequence.computed, tokens) if self.cache.aligned else tokens

    def _victim(self) -> Sequence:
        if self.settings.policy == "priority":
            return max(self.running)
        return self.running[-1]

    def _preempt(self, sequence: Sequence, made: Pass) -> None:
        if self.seam is not None:
            self.seam.stored(sequence, sequence.registered[0])
        self.cache.free(sequence)
        sequence.computed = 0
        sequence.stale = sequence.in_flight
        sequence.placeholders = sequence.drafts = 0
        sequence.alone_preempted += 0 if self.running_count else 1
        if sequence.alone_preempted > ALONE_AT_MOST:
            sequence.state = State.DROPPED
            made.dropped.append(sequence)
            return
        sequence.state = State.PREEMPTED
        made.preempted.append(sequence)
        self.waiting.put_back([sequence])

    def _schedule_waiting(
        self, made: Pass, given: dict[Sequence, int], budget: int, longest: int
    ) -> None:
        settings, cache = self.settings, self.cache
        skipped: list[Sequence] = []
        while budget > 0 and self.waiting and self.running_count < settings.max_num_seqs:
            sequence = self.waiting.head()
            if sequence.stale:
                skipped.append(self.waiting.pop())  # output of before its preemption is on its way
                continue
            hit = cache.lookup(sequence)
            sequence.junction = hit.junction
            start, late, brought = hit.tokens, False, None
            if self.seam is not None:
                limit = (sequence.known - 1) // cache.block_tokens * cache.block_tokens
                brought = self.seam.offer(sequence, start, limit)
                if brought is not None:
                    start, late = brought.tokens, brought.ready_ps > self.seam.now
            tokens = 0 if late else sequence.known - start
            if 0 < longest < tokens:
                tokens = longest
            if tokens > budget and not settings.enable_chunked_prefill:
                break
            tokens = min(tokens, budget)
            if cache.aligned:
                tokens = self._aligned(sequence, start, tokens)
            if (tokens == 0 and not late) or not cache.allocate(
                sequence,
                start - hit.tokens + tokens,
                hit,
                whole=settings.scheduler_reserve_full_isl,
                headroom=self.watermark_blocks if self.running else 0,
                stored=not late,
                fits=partial(self.seam.admitted, sequence, hit.tokens, brought)
                if self.seam
                else None,
            ):
                break  # nobody overtakes the head of the queue
            self.waiting.pop()
            made.admitted.append(Admitted(sequence, start, sequence.state is State.PREEMPTED))
            sequence.state = State.RUNNING
            sequence.computed = start
            if late and brought is not None:
                heappush(self.loading, (brought.ready_ps, self._loads, sequence))
                self._loads += 1
                continue
            self._note(sequence)
            self.running.append(sequence)
            given[sequence] = tokens
            budget -= tokens
        self.waiting.put_back(skipped)

    def _arrived(self, now: int) -> None:
        """Those whose cache is there by ``now`` run from now on."""
        while self.loading and self.loading[0][0] <= now:
            sequence = heappop(self.loading)[2]
            self.cache.register(sequence, sequence.computed)
            self.running.append(sequence)

    def _note(self, sequence: Sequence) -> None:
        """Tell of the blocks of its prompt that are cached by now."""
        if self.seam is not None:
            whole = sequence.prompt_tokens // self.cache.block_tokens
            self.seam.stored(sequence, min(sequence.registered[0], whole))

    def _aligned(self, sequence: Sequence, start: int, tokens: int) -> int:
        """``tokens`` from ``start`` on, cut where a recurrent state must be written to be reused."""
        cache = self.cache
        prefill_end = max(sequence.prompt_tokens, sequence.known - 1)
        if start >= prefill_end:
            return tokens
        size = min(group.block_tokens for group in cache.groups)
        end = start + tokens
        if end < prefill_end:
            largest = self.settings.max_num_batched_tokens
            threshold = self.settings.long_prefill_token_threshold
            if threshold > 0:
                largest = min(largest, threshold)
            whole = end // size * size
            if whole > start or size <= largest:
                end = whole
        last = (sequence.known - 1) // size * size
        stops = [last]
        if start % size:
            stops.append((start // size + 1) * size)
        if cache.inside_blocks:
            tail = (sequence.prompt_tokens - 1) // cache.hash_tokens * cache.hash_tokens
            if last < tail < sequence.prompt_tokens:
                stops.append(tail)
        if start < sequence.junction < end:
            stops.append(start + (sequence.junction - start) // size * size)
        end = min((stop for stop in stops if start < stop < end), default=end)
        return max(end - start, 0)

    def _advanced(self, sequence: Sequence, tokens: int) -> Work:
        sequence.computed += tokens
        sequence.in_flight += tokens
        beyond = sequence.computed - sequence.known - sequence.placeholders
        drafts = beyond if sequence.drafts and beyond > 0 else 0
        sequence.drafts = 0
        if beyond >= 0 and self.settings.async_scheduling:
            sequence.placeholders += 1 + drafts
            self._draft(sequence)
        return Work(sequence, tokens, beyond >= 0, drafts)

    def _draft(self, sequence: Sequence) -> None:
        if self.drafts is not None:
            sequence.drafts = len(self.drafts.chances)

    def deliver(self, done: Pass) -> list[Sequence]:
        """Take the output of a pass; finished requests give their blocks back."""
        finished: list[Sequence] = []
        for sequence, tokens, samples, drafts in done.work:
            sequence.in_flight -= tokens
            stale = sequence.stale > 0
            if stale:
                sequence.stale -= tokens
            if not samples or sequence.state in (State.FINISHED, State.DROPPED):
                continue
            gained = 1
            if self.drafts is not None:
                kept = self.drafts.kept(sequence.index, sequence.known, drafts)
                if not stale:
                    sequence.computed -= drafts - kept
                gained = min(1 + kept, sequence.left)
                if not self.settings.async_scheduling:
                    self._draft(sequence)
            sequence.gained = gained
            sequence.known += gained
            sequence.alone_preempted = 0
            if not stale and sequence.placeholders:
                sequence.placeholders -= 1 + drafts
                if sequence.state is State.RUNNING:
                    self.cache.register(sequence, sequence.computed - sequence.in_flight)
            if sequence.finished:
                finished.append(sequence)
        for sequence in finished:
            self._finish(sequence)
        return finished

    def _finish(self, sequence: Sequence) -> None:
        if sequence.state is State.RUNNING:
            self.running.remove(sequence)
            if self.seam is not None:
                self.seam.stored(sequence, sequence.registered[0], left=True)
            self.cache.free(sequence)
        else:
            self.waiting.remove(sequence)
        sequence.state = State.FINISHED

    def drop_stuck(self) -> Sequence | None:
        """Drop the head of the queue, which does not fit even into an empty pool."""
        if self.waiting:
            sequence = self.waiting.pop()
        elif self.running:
            sequence = self.running.pop(0)
            self.cache.free(sequence)
        else:
            return None
        sequence.state = State.DROPPED
        return sequence
