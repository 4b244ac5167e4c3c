"""SGLang's scheduler, one batch at a time (0.5): prompts before decodes, a radix cache, retraction.

A batch is either prompts or decodes. Prompts are taken as long as what they and the running requests are
thought to need still fits; how much of their longest answers that is (the new-token ratio) falls while
all goes well and is set anew when requests have to be retracted. Not modelled: the overlap of one
batch's scheduling with the one before it. Room of refused drafts stays with the request.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from kvroom.engines.draft_tokens import Drafts
from kvroom.engines.scheduler import Admitted, Pass, Work
from kvroom.kvcache.radix import Node, RadixCache
from kvroom.kvcache.request import Sequence, State

CLIP_TOKENS = 4096
"""No answer is expected to become longer when room is reserved for it."""
FIRST_RATIO, LEAST_SHARE, DECAY_STEPS = 0.7, 0.14, 600
RETRACTED_TOKENS = 20
"""Tokens that each running request is granted when the ratio is set after a retraction."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SglangSettings:
    """``tokens`` of cache in pages of ``page``; prompts are cached in stretches of ``stretch`` tokens."""

    tokens: int
    page: int
    stretch: int
    max_running_requests: int
    context_tokens: int
    chunked_prefill_size: int
    max_prefill_tokens: int = 16384
    caching: bool = True


class Sglang:
    """SGLang's rules: a ``RuleSet``."""

    passes_in_flight = 1

    def __init__(self, settings: SglangSettings, drafts: Drafts | None = None) -> None:
        self.settings = settings
        self.drafts = drafts
        self.cache = RadixCache()
        self.free = settings.tokens  # neither held by a request nor in the tree
        self.ratio = FIRST_RATIO
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self._paths: dict[Sequence, list[Node]] = {}  # what of the tree it holds
        self._own: dict[Sequence, int] = {}  # tokens beyond that
        self._chunked: Sequence | None = None

    @property
    def running_count(self) -> int:
        """Requests that hold tokens."""
        return len(self.running)

    @property
    def waiting_count(self) -> int:
        """Requests in the queue."""
        return len(self.waiting)

    @property
    def blocks_in_use(self) -> int:
        """Stretches held by requests, those of the tree that are locked among them."""
        idle = self.free + self.cache.evictable * self.settings.stretch
        return -(-(self.settings.tokens - idle) // self.settings.stretch)

    @property
    def cached_keys(self) -> int:
        """Stretches in the tree."""
        return self.cache.size

    def add(self, sequence: Sequence) -> bool:
        """Queue a request; False where its prompt is too long for the engine or an empty cache."""
        room = self.settings.context_tokens - sequence.prompt_tokens
        need = self._paged(sequence.prompt_tokens + 1) + self.settings.page
        if room <= 0 or need > self.settings.tokens:
            sequence.state = State.DROPPED
            return False
        sequence.output_tokens = min(sequence.output_tokens, room)
        self.waiting.append(sequence)
        return True

    def schedule(self) -> Pass:
        """The next batch: prompts where any may start or go on, else a decode of all that run."""
        made = Pass()
        self._prefill(made)
        if not made.work and self.running:
            self._decode(made)
        return made

    # Prompts

    def _prefill(self, made: Pass) -> None:
        s = self.settings
        budget = min(s.chunked_prefill_size, s.max_prefill_tokens)
        if self._chunked is not None:
            budget -= self._take(self._chunked, budget, made)
        while self.waiting and budget > 0 and self._chunked is None:
            sequence = self.waiting[0]
            if len(self.running) >= s.max_running_requests:
                break
            path = self._match(sequence)
            self.cache.lock(path)
            start = len(path) * s.stretch
            more = self._paged(sequence.known) - start
            left = sequence.prompt_tokens + sequence.output_tokens - sequence.known
            need = more + min(left, CLIP_TOKENS) + s.page
            room = self.free + self.cache.evictable * s.stretch - self._reserved()
            if need >= room and self.running:
                self.cache.unlock(path)
                break
            if more >= self.free + self.cache.evictable * s.stretch:
                self.cache.unlock(path)
                break
            if sequence.known - start > budget and budget < s.page:
                self.cache.unlock(path)
                break
            self.waiting.popleft()
            self._paths[sequence], self._own[sequence] = path, 0
            sequence.computed = start
            made.admitted.append(Admitted(sequence, start, sequence.state is State.PREEMPTED))
            sequence.state = State.RUNNING
            self.running.append(sequence)
            budget -= self._take(sequence, budget, made)

    def _take(self, sequence: Sequence, budget: int, made: Pass) -> int:
        """Compute as much of its prompt as ``budget`` allows; gives how much."""
        left = sequence.known - sequence.computed
        tokens = min(left, budget)
        if tokens < left:
            tokens = tokens // self.settings.page * self.settings.page
        if not tokens or not self._allocate(sequence, sequence.computed + tokens):
            return 0
        sequence.computed += tokens
        done = tokens == left
        self._chunked = None if done else sequence
        made.work.append(Work(sequence, tokens, done))
        return tokens

    def _match(self, sequence: Sequence) -> list[Node]:
        if not self.settings.caching:
            return []
        count = (sequence.known - 1) // self.settings.stretch
        return self.cache.match(sequence.hashes.first(count)[:count])

    def _reserved(self) -> float:
        """Tokens that running requests are thought to need yet."""
        return self.ratio * sum(
            min(q.prompt_tokens + q.output_tokens - q.known, CLIP_TOKENS) for q in self.running
        )

    # Decodes

    def _decode(self, made: Pass) -> None:
        self.ratio = max(
            FIRST_RATIO * LEAST_SHARE, self.ratio - FIRST_RATIO * (1 - LEAST_SHARE) / DECAY_STEPS
        )
        drafted = 0
        if self.drafts is not None:
            drafted = made.drafted = self.drafts.at(len(self.running))
        retracted = False
        while not self._room_for_all(1 + drafted):
            victim = min(
                self.running, key=lambda q: (q.known - q.prompt_tokens, -q.prompt_tokens, -q.index)
            )
            self._release(victim)
            self.running.remove(victim)
            if not self.running:
                victim.state = State.DROPPED
                made.dropped.append(victim)
                return
            retracted = True
            victim.state = State.PREEMPTED
            made.preempted.append(victim)
            self.waiting.appendleft(victim)
        if retracted:
            decoded = sum(q.known - q.prompt_tokens for q in self.running)
            longest = sum(q.output_tokens for q in self.running)
            self.ratio = min(1.0, (decoded + RETRACTED_TOKENS * len(self.running)) / (longest + 1))
        for sequence in self.running:
            self._allocate(sequence, sequence.computed + 1 + drafted)
            sequence.computed += 1 + drafted
            made.work.append(Work(sequence, 1 + drafted, True, drafted))

    def _room_for_all(self, tokens: int) -> bool:
        need = sum(max(0, self._more(q, q.computed + tokens)) for q in self.running)
        return need <= self.free + self.cache.evictable * self.settings.stretch

    # Tokens

    def _paged(self, tokens: int) -> int:
        return -(-tokens // self.settings.page) * self.settings.page

    def _more(self, sequence: Sequence, tokens: int) -> int:
        """What ``sequence`` lacks to hold ``tokens``."""
        held = len(self._paths[sequence]) * self.settings.stretch + self._own[sequence]
        return self._paged(tokens) - held

    def _allocate(self, sequence: Sequence, tokens: int) -> bool:
        """Have ``sequence`` hold ``tokens``, leaves evicted as need be; False where there is no room."""
        stretch = self.settings.stretch
        more = self._more(sequence, tokens)
        if more <= 0:
            return True
        if more > self.free:
            self.free += stretch * self.cache.evict(-(-(more - self.free) // stretch))
        if more > self.free:
            return False
        self.free -= more
        self._own[sequence] += more
        return True

    def _share(self, sequence: Sequence) -> None:
        """Put what it has computed into the tree and hold it there."""
        if not self.settings.caching:
            return
        stretch = self.settings.stretch
        count = sequence.computed // stretch
        old = self._paths[sequence]
        if count <= len(old):
            return
        nodes, new = self.cache.insert(sequence.hashes.first(count)[:count])
        self.cache.lock(nodes)
        self.cache.unlock(old)
        moved = (count - len(old)) * stretch
        self._own[sequence] -= moved
        # What another had put there already is held twice no longer.
        self.free += moved - new * stretch
        self._paths[sequence] = nodes

    def _release(self, sequence: Sequence) -> None:
        self.free += self._own.pop(sequence)
        self.cache.unlock(self._paths.pop(sequence))
        sequence.computed = 0
        if self._chunked is sequence:
            self._chunked = None

    def deliver(self, done: Pass) -> list[Sequence]:
        """Take the output of a batch; finished requests leave their tokens to the tree."""
        finished: list[Sequence] = []
        for sequence, tokens, samples, drafts in done.work:
            if tokens - drafts > 1 or not samples:
                self._share(sequence)
            if not samples:
                continue
            kept = self.drafts.kept(sequence.index, sequence.known, drafts) if self.drafts else 0
            sequence.gained = min(1 + kept, sequence.left)
            sequence.known += sequence.gained
            sequence.computed = sequence.known - 1
            if sequence.finished:
                finished.append(sequence)
        for sequence in finished:
            self._share(sequence)
            self._release(sequence)
            self.running.remove(sequence)
            sequence.state = State.FINISHED
        return finished

    def drop_stuck(self) -> Sequence | None:
        """Give up what blocks the others though nothing runs."""
        if self.running:
            sequence = self.running.pop(0)
            self._release(sequence)
        elif self.waiting:
            sequence = self.waiting.popleft()
        else:
            return None
        sequence.state = State.DROPPED
        return sequence
