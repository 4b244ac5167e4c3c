"""The decoding requests of an engine, kept as sums: how long a run of their steps takes and how many
blocks it needs.

All of them do the same thing in each step. So the length of a step, the blocks that it needs and the
number of such steps follow without looking at any single request.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from math import sqrt

from kvroom.kvcache.request import ServedRequest
from kvroom.latency.clock import Reach
from kvroom.simulator.stream import FOREVER


class DecodeBatch:
    """Those that decode, over blocks of ``block_tokens`` and attention of ``reaches``.

    Before each step a request has computed ``step − base_step`` tokens. ``size`` is how many decode,
    ``last_admission`` the latest admitted that ever did. ``finishing`` is a heap of (step of the last token,
    admission, request); entries of those that have another ``last_step`` since are void.
    ``new_blocks`` is how many need a block in a step, by step modulo the size of a block, twice over.
    """

    __slots__ = (
        "_bases",
        "_context_ps",
        "_windows",
        "block_tokens",
        "finishing",
        "last_admission",
        "new_blocks",
        "size",
    )

    def __init__(self, reaches: Sequence[Reach], block_tokens: int) -> None:
        self.block_tokens = block_tokens
        self.size = 0
        self.last_admission = -1
        self._bases = 0
        self.new_blocks = [0] * 2 * block_tokens
        self.finishing: list[tuple[int, int, ServedRequest]] = []
        self._context_ps = sum(reach.context_ps for reach in reaches if reach.tokens is None)
        self._windows = [
            WindowedAttention(reach.tokens, reach.context_ps)
            for reach in reaches
            if reach.tokens is not None
        ]

    def enter(self, request: ServedRequest, step: int) -> bool:
        """``request``, whose known tokens are computed but the last, decodes from ``step`` on; False where
        that was its last."""
        request.base_step = base = step - request.num_tokens
        request.last_step = last = base + request.final_tokens - 2
        heappush(self.finishing, (last, request.admission, request))
        if last < step:
            return False
        request.decoding = True
        self.size += 1
        self._bases += base
        counts, place = self.new_blocks, base % self.block_tokens
        counts[place] = counts[place + self.block_tokens] = counts[place] + 1
        for window in self._windows:
            window.enter(request, step)
        if request.admission > self.last_admission:  # noqa: PLR1730 (a call costs more)
            self.last_admission = request.admission
        return True

    def leave(self, request: ServedRequest, step: int) -> None:
        """``request`` no longer decodes from ``step`` on."""
        for window in self._windows:
            window.leave(request, step)
        request.decoding = False
        self.size -= 1
        self._bases -= request.base_step
        counts, place = self.new_blocks, request.base_step % self.block_tokens
        counts[place] = counts[place + self.block_tokens] = counts[place] - 1

    # Steps

    def attention_ps(self, step: int) -> int:
        """What attention adds to ``step``."""
        size = self.size
        spent = self._context_ps * (size * (step + 1) - self._bases)
        for window in self._windows:
            window.cross(step)
            spent += window.attention_ps(step, size)
        return spent

    def run_from(self, step: int) -> tuple[int, int, int, int]:
        """(the step of the next last token, steps in which nothing but contexts changes, attention of the
        first, what each further one adds)."""
        last, admission, request = self.finishing[0]
        if request.last_step != last or request.admission != admission:
            last = self._next_finish()
        steps, size = last - step + 1, self.size
        first = self._context_ps * (size * (step + 1) - self._bases)
        slope = self._context_ps * size
        for window in self._windows:
            steps = min(steps, window.cross(step) - step)
            slope += window.context_ps * window.growing
            first += window.attention_ps(step, size)
        return last, steps, first, slope

    def _next_finish(self) -> int:
        finishing = self.finishing
        last, admission, request = finishing[0]
        while request.last_step != last or request.admission != admission:
            heappop(finishing)
            last, admission, request = finishing[0]
        return last

    # Blocks

    def run_until_full(self, step: int, free_blocks: int) -> tuple[int, int]:
        """(steps, blocks) until the next step would need more blocks than are free."""
        periods, left = divmod(free_blocks, self.size)
        steps = periods * self.block_tokens
        taken = periods * self.size
        while (need := self.new_blocks[(step + steps) % self.block_tokens]) <= left:
            left -= need
            taken += need
            steps += 1
        return steps, taken


class WindowedAttention:
    """Attention of ``tokens`` back over the requests that decode: of those whose context is still
    shorter, how many (``growing``) and the sum of their bases; and when each outgrows it."""

    __slots__ = ("_bases", "_crossings", "context_ps", "growing", "tokens")

    def __init__(self, tokens: int, context_ps: int) -> None:
        self.tokens = tokens
        self.context_ps = context_ps
        self.growing = 0
        self._bases = 0
        self._crossings: list[tuple[int, int, ServedRequest]] = []

    def enter(self, request: ServedRequest, step: int) -> None:
        """``request`` decodes from ``step`` on."""
        base = request.base_step
        if step - base < self.tokens:
            self.growing += 1
            self._bases += base
            heappush(self._crossings, (base + self.tokens, request.admission, request))

    def leave(self, request: ServedRequest, step: int) -> None:
        """``request``, decoding before ``step``, no longer does."""
        self.cross(step)
        if step - request.base_step < self.tokens:
            self.growing -= 1
            self._bases -= request.base_step

    def cross(self, step: int) -> int:
        """Those who have outgrown it at ``step``; gives the next step at which somebody does."""
        while self._crossings:
            at, admission, request = self._crossings[0]
            current = request.decoding and request.admission == admission
            current = current and request.base_step + self.tokens == at
            if current and at > step:
                return at
            heappop(self._crossings)
            if current:
                self.growing -= 1
                self._bases -= request.base_step
        return FOREVER

    def attention_ps(self, step: int, requests: int) -> int:
        """Picoseconds of ``step`` for ``requests``."""
        read = self.growing * (step + 1) - self._bases + (requests - self.growing) * self.tokens
        return self.context_ps * read


def steps_until(wait: int, first: int, slope: int) -> int:
    """The fewest steps that last ``wait`` together, where the first takes ``first`` and each one
    ``slope`` longer than the last."""
    if wait <= 0:
        return 0
    if not slope:
        return -(-wait // first)
    # The root of the sum as a number with rounding errors, then to the exact step.
    linear = first - slope / 2
    steps = int(2 * wait / (linear + sqrt(linear * linear + 2.0 * slope * wait)))
    left = wait - steps * first - slope * (steps * (steps - 1) // 2)
    while left > 0:
        left -= first + slope * steps
        steps += 1
    while steps and left + first + slope * (steps - 1) <= 0:
        steps -= 1
        left += first + slope * steps
    return steps
