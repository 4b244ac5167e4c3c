"""The pool of ``block_pool`` for engines that jump: only blocks that are looked up by number have one.

Blocks whose contents nobody can ask for are counted, and so are those that a request holds while it only
decodes. The order in which free blocks are used again is that of ``BlockPool``: first those without a key,
then cached ones in the order in which they were freed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from kvroom.kvcache.block_pool import BlockPool
from kvroom.kvcache.request import ServedRequest


class FreeRun:
    """Cached blocks that were freed together, by number (``blocks``, the next to be used last), or those at
    ``where`` of ``owner`` in ``groups`` groups from ``first`` on, of which ``left`` are there: group after
    group. ``serial`` tells numbered runs apart."""

    __slots__ = ("blocks", "first", "groups", "left", "owner", "serial", "where")

    def __init__(
        self, owner: ServedRequest | None, first: int, groups: int, where: Sequence[int]
    ) -> None:
        self.owner = owner
        self.first = first
        self.groups = groups
        self.where = where
        self.left = groups * len(where)
        self.blocks: list[int] = []
        self.serial = 0

    def places(self) -> list[tuple[int, int]]:
        """(group, place) of those that are there, the next to be used first."""
        span = len(self.where)
        gone = self.groups * span - self.left
        return [
            (self.first + index // span, self.where[index % span])
            for index in range(gone, self.groups * span)
        ]


class CountedPool(BlockPool):
    """``total`` blocks, the null block among them. ``free`` can be handed out, of which ``front`` go before
    any that is cached and may be asked for."""

    __slots__ = ("_queue", "_serial", "_serials", "free", "front", "usable")

    free: int

    def __init__(self, total: int) -> None:
        super().__init__(total)
        self.usable = total - 1
        self.free = total - 1
        self.front = total - 1
        self._queue: deque[FreeRun | int] = deque()  # a number: so many that nobody asks for
        self._serial = 0
        self._serials = [0]  # by block: the run of the queue that it is in

    @property
    def in_use(self) -> int:
        """Blocks held by requests."""
        return self.total - 1 - self.free

    # By count

    def take(self, count: int) -> None:
        """Hand ``count`` free blocks out; the caller sees to it that so many are free."""
        self.free -= count
        self.front -= count
        if self.front < 0:
            count, self.front = -self.front, 0
            self._evict(count)

    def release(self, plain: int, dead: int) -> None:
        """Take back ``plain`` blocks without a key, and ``dead`` cached ones that nobody asks for."""
        self.free += plain + dead
        if self.in_turn:
            plain, dead = 0, plain + dead
        self.front += plain
        if dead:
            queue = self._queue
            if not queue:
                self.front += dead
            elif isinstance(last := queue[-1], int):
                queue[-1] = last + dead
            else:
                queue.append(dead)

    def leave(self, run: FreeRun) -> None:
        """Take back cached blocks that their owner may ask for when it has to start again."""
        self.free += run.left
        self._queue.append(run)

    def named(self, owner: ServedRequest) -> list[FreeRun]:
        """The runs of ``owner`` that have no numbers yet."""
        return [run for run in self._queue if isinstance(run, FreeRun) and run.owner is owner]

    def number(self, run: FreeRun, blocks: list[int]) -> None:
        """Give the blocks of ``run`` numbers, those of ``run.places()``."""
        run.owner = None
        for block in blocks:
            self.references[block] = 0
        self._enter(run, blocks)

    def _enter(self, run: FreeRun, blocks: list[int]) -> None:
        self._serial = run.serial = serial = self._serial + 1
        serials = self._serials
        for block in blocks:
            serials[block] = serial
        blocks.reverse()
        run.blocks = blocks

    def _evict(self, count: int) -> None:
        """Use the first ``count`` blocks of the queue."""
        queue, serials = self._queue, self._serials
        while count:
            run = queue[0]
            if isinstance(run, int):
                queue.popleft()
                if run > count:
                    self.front = run - count
                    return
                count -= run
            elif run.owner is not None:
                if run.left > count:
                    run.left -= count
                    return
                count -= run.left
                queue.popleft()
            else:
                blocks, serial = run.blocks, run.serial
                while count and blocks:
                    block = blocks.pop()
                    if serials[block] == serial:
                        serials[block] = 0
                        self.uncache(block)
                        self._plain.append(block)
                        count -= 1
                if not blocks:
                    queue.popleft()
        while queue and isinstance(run := queue[0], int):
            self.front += run
            queue.popleft()

    # By number

    def numbers(self, count: int) -> list[int]:
        """Numbers for ``count`` blocks that are handed out already."""
        spare = self._plain
        taken = spare[: -count - 1 : -1] if count else []
        del spare[len(spare) - len(taken) :]
        missing = count - len(taken)
        if missing:
            taken.extend(range(self._fresh, self._fresh + missing))
            self._fresh += missing
            for column in (self.references, self.key_tokens, self._serials):
                column.extend([0] * missing)
            self.keys.extend([None] * missing)
        references = self.references
        for block in taken:
            references[block] = 1
        return taken

    def forget(self, blocks: Iterable[int]) -> None:
        """Only count these blocks without a key from now on."""
        self._plain.extend(blocks)

    def get_new_blocks(self, count: int) -> list[int]:
        """As ``BlockPool.get_new_blocks``."""
        if count <= 0:
            return []
        self.take(count)
        return self.numbers(count)

    def touch(self, block: int) -> None:
        """As ``BlockPool.touch``."""
        if block:
            if not self.references[block]:
                self._serials[block] = 0
                self.free -= 1
            self.references[block] += 1

    def free_blocks(self, blocks: Iterable[int]) -> None:
        """As ``BlockPool.free_blocks``."""
        references, keys = self.references, self.keys
        plain: list[int] = []
        cached: list[int] = []
        for block in blocks:
            if block:
                left = references[block] - 1
                references[block] = left
                if not left:
                    first = keys[block] is None and not self.in_turn
                    (plain if first else cached).append(block)
        self.free += len(plain) + len(cached)
        self.front += len(plain)
        self._plain += plain
        if cached:
            run = FreeRun(None, 0, 0, ())
            self._enter(run, cached)
            self._queue.append(run)
