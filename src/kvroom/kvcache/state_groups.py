"""Layer groups of recurrent layers (Mamba and its kin): one state a request, not one a token.

Without prefix caching a request holds the one state. With it ("align") states of earlier positions
stay as cached blocks: a pass that ends in a new block writes its state there and the older one is
given back, cached if it lies where later requests may resume. Rules of vLLM 0.33.
"""

from __future__ import annotations

from collections.abc import Sequence as Row

from kvroom.kvcache.groups import LayerGroup, reachable
from kvroom.kvcache.request import Sequence, StateTable


class StateGroup(LayerGroup):
    """A recurrent group without prefix caching: blocks as wide as the longest request."""

    def skipped_tokens(self, computed: int) -> int:
        return computed - 1

    def skips_until(self, computed: int) -> int:
        size = self.block_tokens
        return (self.skipped_tokens(computed) // size + 1) * size


class AlignedStateGroup(StateGroup):
    """A recurrent group with prefix caching: a table position a block of tokens, most of them null."""

    def __init__(self, index: int, block_tokens: int) -> None:
        super().__init__(index, block_tokens)
        self.keys_of_pass: set[int] = set()

    def begin_pass(self) -> None:
        """A new pass: states written in the last one may be hit from now on."""
        self.keys_of_pass.clear()

    def need(
        self, sequence: Sequence, tokens: int, hits: Row[int], computed: int, capped: bool
    ) -> int:
        pool = self.pool
        if hits and pool.keys[hits[-1]] in self.keys_of_pass:
            return pool.total + 1  # that state is written in this very pass: wait for the next
        table = sequence.tables[self.index]
        new = max(0, -(-tokens // self.block_tokens) - len(hits) - len(table))
        part = bool(hits) and computed % self.block_tokens != 0
        part = part or self.index in sequence.partial
        if part:
            new = max(new, 0) + 1
        return min(new, 1 + part) + sum(1 for b in hits if b and not pool.references[b])

    def grow(self, sequence: Sequence, tokens: int, copies: list[int]) -> None:
        pool, table = self.pool, sequence.tables[self.index]
        state = sequence.state_tables.setdefault(self.index, StateTable())
        blocks = -(-tokens // self.block_tokens)
        if blocks <= len(table) and self.index not in sequence.partial:
            state.allocated = True
            return
        if table:
            state.last_block = len(table) - 1
        table.extend([0] * (blocks - 1 - len(table)))
        if self.index in sequence.partial:
            place, source = sequence.partial.pop(self.index)
            copy = self.private_copy(source, copies)
            if state.allocated:
                # It goes on writing to the block it has: the copy takes over what is cached.
                pool.share(source)
                pool.release([copy])
                pool.move_keys(source, copy)
                key = pool.keys[copy]
                if key is not None:
                    self.keys_of_pass.add(key)
            else:
                table[place] = copy
        table.extend(pool.take(blocks - len(table)))
        state.allocated = True

    def trim(self, sequence: Sequence, processed: int) -> None:
        table = sequence.tables[self.index]
        state = sequence.state_tables.get(self.index)
        if state is None:
            return
        last = min(self.skipped_tokens(processed) // self.block_tokens, len(table))
        dropped = [place for place in range(last - 1, state.retired - 1, -1) if table[place]]
        state.retired = max(state.retired, last)
        self._give_back(table, dropped)
        before = state.last_block
        if before is not None and before < -(-processed // self.block_tokens) - 1 and table[before]:
            self._give_back(table, [before])

    def _give_back(self, table: list[int], places: list[int]) -> None:
        self.pool.release([table[place] for place in places])
        for place in places:
            table[place] = 0

    def register(self, sequence: Sequence, tokens: int) -> None:
        start = sequence.registered[self.index]
        super().register(sequence, tokens)
        end = sequence.registered[self.index]
        self._register_tail(sequence, tokens)
        table, keys = sequence.tables[self.index], self.pool.keys
        for place in range(start, end):
            key = keys[table[place]]
            if key is not None:
                self.keys_of_pass.add(key)

    def _register_tail(self, sequence: Sequence, tokens: int) -> None:
        boundary = (sequence.prompt_tokens - 1) // self.hash_tokens * self.hash_tokens
        if tokens != boundary or not boundary:
            return
        table = sequence.tables[self.index]
        place = -(-boundary // self.block_tokens) - 1
        if place >= len(table) or not table[place]:
            return
        block = table[place]
        if self.pool.key_tokens[block] == boundary and self.pool.keys[block] is not None:
            return
        key = self.register_part(sequence, block, boundary)
        if key is not None:
            self.keys_of_pass.add(key)
            if boundary % self.block_tokens:
                sequence.partial[self.index] = (place, block)
                sequence.registered[self.index] = place

    def kept(self, sequence: Sequence, start: int, end: int) -> Row[int] | None:
        if self.interval is None:
            return None
        kept = set[int]()
        if self.interval:
            segment = self.interval // self.block_tokens
            if segment <= 1:
                return None
            kept.update(i for i in range(start, end) if (i + 1) % segment == 0)
        for boundary in reachable(sequence):
            place = boundary // self.hit_tokens * self.hit_tokens // self.block_tokens - 1
            if start <= place < end:
                kept.add(place)
        return sorted(kept)

    def longest_hit(
        self, hashes: list[int], limit: int, members: Row[int]
    ) -> tuple[list[list[int]], int]:
        # The last cached state: one is enough.
        size = self.block_tokens
        inside = self.hit_tokens < size and size % self.hit_tokens == 0
        step = self.hit_tokens if inside else size
        for tokens in range(limit // step * step, 0, -step):
            found = self.cached(hashes[tokens // self.hash_tokens - 1], members)
            if found is not None and (inside or tokens % self.hit_tokens == 0):
                place = -(-tokens // size) - 1
                return [[0] * place + [block] for block in found], tokens
        return [[] for _ in members], 0
