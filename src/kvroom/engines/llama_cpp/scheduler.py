"""llama.cpp's server: so many slots, each with the tokens of its last request, and one batch a pass.

A request takes a free slot: the one whose tokens begin most like its prompt, else the one idle for
longest. What the slot and the prompt have in common is not computed again. Each pass computes a token of
every slot that generates, and prompts in the order of slots as far as the batch goes. Nobody is
preempted. Where all slots share one cache, idle ones lose theirs to those that grow, and a request that
still finds no cell fails.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from kvroom.engines.draft_tokens import Drafts
from kvroom.engines.scheduler import Admitted, Pass, Work
from kvroom.kvcache.request import Sequence, State

SIMILARITY = 0.1
"""A slot is chosen for its tokens only where so much of the prompt is there (--slot-prompt-similarity)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotSettings:
    """``slots`` that share ``tokens`` cells, ``context_tokens`` at most in one; ``stretch`` tokens a name."""

    slots: int
    tokens: int
    context_tokens: int
    batch_tokens: int
    stretch: int
    caching: bool = True


class Slot:
    """One slot: who is in it, and the names and tokens that it holds."""

    __slots__ = ("held", "names", "sequence", "used")

    def __init__(self) -> None:
        self.sequence: Sequence | None = None
        self.names: list[int] = []
        self.held = 0
        self.used = 0


class Slots:
    """llama.cpp's rules: a ``RuleSet``."""

    passes_in_flight = 1

    def __init__(self, settings: SlotSettings, drafts: Drafts | None = None) -> None:
        self.settings = settings
        self.drafts = drafts
        self.slots = [Slot() for _ in range(settings.slots)]
        self.waiting: deque[Sequence] = deque()
        self._of: dict[Sequence, Slot] = {}
        self._now = 0

    @property
    def running_count(self) -> int:
        """Slots in use."""
        return len(self._of)

    @property
    def waiting_count(self) -> int:
        """Requests in the queue."""
        return len(self.waiting)

    @property
    def blocks_in_use(self) -> int:
        """Stretches in cells of slots in use."""
        return -(-sum(slot.held for slot in self._of.values()) // self.settings.stretch)

    @property
    def cached_keys(self) -> int:
        """Stretches that slots hold."""
        return sum(len(slot.names) for slot in self.slots)

    def add(self, sequence: Sequence) -> bool:
        """Queue a request; False where its prompt is longer than a slot."""
        s = self.settings
        room = min(s.context_tokens, s.tokens) - sequence.prompt_tokens
        if room <= 0:
            sequence.state = State.DROPPED
            return False
        sequence.output_tokens = min(sequence.output_tokens, room)
        self.waiting.append(sequence)
        return True

    def schedule(self) -> Pass:
        """The next batch."""
        made = Pass()
        while self.waiting and len(self._of) < self.settings.slots:
            self._seat(self.waiting.popleft(), made)
        budget = self.settings.batch_tokens
        drafted = 0
        if self.drafts is not None:
            drafted = made.drafted = self.drafts.at(len(self._of))
        busy = [slot for slot in self.slots if slot.sequence is not None]
        # Those who generate first, then prompts.
        for prompts in (False, True):
            for slot in busy:
                sequence = slot.sequence
                if sequence is None or (sequence.known - sequence.computed > 1) is not prompts:
                    continue
                tokens = min(sequence.known - sequence.computed, budget)
                if not tokens:
                    continue
                drafts = 0
                if drafted and not prompts and sequence.known > sequence.prompt_tokens:
                    drafts = min(drafted, budget - tokens, sequence.left - 1)
                    tokens += drafts
                if not self._grow(slot, sequence.computed + tokens):
                    self._fail(sequence, made)
                    continue
                budget -= tokens
                sequence.computed += tokens
                samples = sequence.computed == sequence.known + drafts
                made.work.append(Work(sequence, tokens, samples, drafts))
        return made

    def _seat(self, sequence: Sequence, made: Pass) -> None:
        s = self.settings
        limit = (sequence.known - 1) // s.stretch
        names = sequence.hashes.first(limit)[:limit] if s.caching else []
        self._now += 1
        free = [slot for slot in self.slots if slot.sequence is None]
        common = {id(slot): _common(slot.names, names) for slot in free}
        best = max(free, key=lambda slot: (common[id(slot)], -slot.used))
        found = common[id(best)] * s.stretch
        if found < SIMILARITY * sequence.known:
            best = min(free, key=lambda slot: slot.used)
            found = common[id(best)] * s.stretch
        best.sequence, best.used = sequence, self._now
        best.names = best.names[: found // s.stretch]
        best.held = found
        self._of[sequence] = best
        sequence.computed = found
        sequence.state = State.RUNNING
        made.admitted.append(Admitted(sequence, found, False))

    def _grow(self, slot: Slot, tokens: int) -> bool:
        """Let ``slot`` hold ``tokens``; idle slots give their cells up, the one idle for longest first."""
        more = tokens - slot.held
        idle = sorted((x for x in self.slots if x.sequence is None), key=lambda x: x.used)
        left = self.settings.tokens - sum(x.held for x in self.slots)
        for other in idle:
            if more <= left:
                break
            left += other.held
            other.held, other.names = 0, []
        if more > left:
            return False
        slot.held = max(slot.held, tokens)
        return True

    def _fail(self, sequence: Sequence, made: Pass) -> None:
        sequence.state = State.DROPPED
        self._leave(sequence, 0)
        made.dropped.append(sequence)

    def _leave(self, sequence: Sequence, kept: int) -> None:
        slot = self._of.pop(sequence)
        self._now += 1
        slot.sequence, slot.used = None, self._now
        count = kept // self.settings.stretch
        slot.names = sequence.hashes.first(count)[:count] if self.settings.caching else []
        slot.held = kept

    def deliver(self, done: Pass) -> list[Sequence]:
        """Take the output of a batch; a slot keeps what its request computed."""
        finished: list[Sequence] = []
        for sequence, _, samples, drafts in done.work:
            if not samples or sequence.state is not State.RUNNING:
                continue
            kept = self.drafts.kept(sequence.index, sequence.known, drafts) if self.drafts else 0
            sequence.gained = 1 + kept
            sequence.known += sequence.gained
            sequence.computed = sequence.known - 1
            if sequence.finished:
                finished.append(sequence)
        for sequence in finished:
            self._leave(sequence, sequence.computed if self.settings.caching else 0)
            sequence.state = State.FINISHED
        return finished

    def drop_stuck(self) -> Sequence | None:
        """Give up what blocks the others though nothing runs."""
        if not self.waiting:
            return None
        sequence = self.waiting.popleft()
        sequence.state = State.DROPPED
        return sequence


def _common(held: list[int], wanted: list[int]) -> int:
    """How many names both begin with: a name stands for all before it."""
    low, high = 0, min(len(held), len(wanted))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if held[middle - 1] == wanted[middle - 1] else (low, middle - 1)
    return low
