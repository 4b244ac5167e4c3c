"""Layer groups of recurrent layers (Mamba and its kin): one state a request, not one a token.

Without prefix caching a request holds the one state. With it ("align") states of earlier positions
stay as cached blocks: a step that ends in a new block writes its state there and the older one is
given back, cached if it lies where later requests may resume. Rules of vLLM 0.33.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvroom.kvcache.groups import KVCacheGroup, reachable
from kvroom.kvcache.request import MambaState, PrefillCheckpoint, ServedRequest


class MambaGroup(KVCacheGroup):
    """A recurrent group without prefix caching: blocks as wide as the longest request."""

    def skipped_tokens(self, computed: int) -> int:
        return computed - 1

    def skips_until(self, computed: int) -> int:
        size = self.block_tokens
        return (self.skipped_tokens(computed) // size + 1) * size


class AlignedMambaGroup(MambaGroup):
    """A recurrent group with prefix caching: a table position a block of tokens, most of them null.

    Where its kernels can (``checkpoint_tokens`` is what a checkpoint is a multiple of, from where the step
    starts; 0: they cannot), the step that ends a prompt saves the state at the prompt's last hit boundary in
    a block of its own, and need not end there first. ``rewritten``: a cached state that its request names
    again counts as written in that step (vLLM before 0.33).
    """

    def __init__(
        self, index: int, block_tokens: int, checkpoint_tokens: int = 0, *, rewritten: bool = False
    ) -> None:
        super().__init__(index, block_tokens)
        self.checkpoint_tokens = checkpoint_tokens
        self.rewritten = rewritten
        self.step_keys: set[int] = set()
        self.waits = True
        """Nobody starts from a state in the step that writes it (vLLM from 0.17)."""

    def begin_step(self) -> None:
        """A new step: states written in the last one may be hit from now on."""
        self.step_keys.clear()

    def need(
        self,
        request: ServedRequest,
        tokens: int,
        hits: Sequence[int],
        computed: int,
        *,
        capped: bool,
        brought: int = 0,
    ) -> int:
        pool = self.pool
        if self.waits and hits and pool.keys[hits[-1]] in self.step_keys:
            return pool.total + 1  # that state is written in this very step: wait for the next
        table = request.block_tables[self.index]
        checkpoint = self._checkpoint(request, computed, tokens)
        if not capped:
            state = request.mamba_states.setdefault(self.index, MambaState())
            state.checkpoint = checkpoint
        new = max(0, -(-tokens // self.block_tokens) - len(hits) - len(table))
        part = bool(hits) and (computed - brought) % self.block_tokens != 0
        part = part or self.index in request.partial_hits
        if part:
            new = max(new, 0) + 1
        most = 1 + part + (checkpoint is not None)
        return min(new, most) + sum(1 for hit in hits if hit and not pool.references[hit])

    def _checkpoint(self, request: ServedRequest, start: int, end: int) -> PrefillCheckpoint | None:
        """What a step from ``start`` to ``end`` computed tokens saves on its way, in a block of its own."""
        # Where only a prompt's end is worth keeping no other step saves any.
        if self.interval == 0 and end < request.prefill_end:
            return None
        tokens = max(0, end - 1) // self.hit_tokens * self.hit_tokens
        place = -(-end // self.block_tokens) - 2
        table = request.block_tables[self.index]
        if place < 0 or (place < len(table) and table[place]):
            return None
        return PrefillCheckpoint(tokens, place) if self.saves(start, tokens, end) else None

    def saves(self, start: int, tokens: int, end: int) -> bool:
        """Whether a step from ``start`` to ``end`` can save the state after ``tokens`` on its way."""
        unit, size = self.checkpoint_tokens, self.block_tokens
        return (
            unit > 0
            and start % self.hash_tokens == 0
            and -(-end // size) - 2 > (start - 1) // size
            and start + self.hash_tokens <= tokens < end
            and (tokens - start) % unit == 0
        )

    def grow(self, request: ServedRequest, tokens: int, copies: list[int]) -> None:
        pool, table = self.pool, request.block_tables[self.index]
        state = request.mamba_states.setdefault(self.index, MambaState())
        blocks = -(-tokens // self.block_tokens)
        saves = state.checkpoint is not None
        if blocks <= len(table) and self.index not in request.partial_hits and not saves:
            state.allocated = True
            return
        if table:
            state.last_block = len(table) - 1
        table.extend([0] * (blocks - 1 - saves - len(table)))
        if self.index in request.partial_hits:
            place, source = request.partial_hits.pop(self.index)
            copy = self.private_copy(source, copies)
            if state.allocated:
                # It goes on writing to the block it has: the copy takes over what is cached.
                pool.touch(source)
                pool.free_blocks([copy])
                pool.move_keys(source, copy)
                key = pool.keys[copy]
                if key is not None:
                    self.step_keys.add(key)
            else:
                table[place] = copy
        table.extend(pool.get_new_blocks(blocks - len(table)))
        state.allocated = True

    def trim(self, request: ServedRequest, processed: int) -> None:
        table = request.block_tables[self.index]
        state = request.mamba_states.get(self.index)
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
        self.pool.free_blocks([table[place] for place in places])
        for place in places:
            table[place] = 0

    def register(self, request: ServedRequest, tokens: int) -> None:
        start = request.cached_blocks[self.index]
        super().register(request, tokens)
        end = request.cached_blocks[self.index]
        self._register_tail(request, tokens)
        table, keys = request.block_tables[self.index], self.pool.keys
        for place in range(start, end):
            key = keys[table[place]]
            if key is not None:
                self.step_keys.add(key)

    def _register_checkpoint(self, request: ServedRequest, saved: PrefillCheckpoint) -> None:
        """Let the state that this step saves be found, if anybody may ask for it."""
        block = request.block_tables[self.index][saved.place]
        last = (request.num_prompt_tokens - 1) // self.hit_tokens * self.hit_tokens
        if saved.tokens not in (last, request.junction) and not self._periodic(saved.tokens):
            self.pool.uncache(block)
        elif self.pool.keys[block] is None or self.pool.key_tokens[block] != saved.tokens:
            self.pool.uncache(block)
            key = self.register_part(request, block, saved.tokens)
            if key is not None:
                self.step_keys.add(key)

    def _periodic(self, tokens: int) -> bool:
        """Whether a state after ``tokens`` is kept wherever it lies."""
        if tokens % self.block_tokens:
            return False
        if self.interval is None:
            return True
        segment = self.interval // self.block_tokens
        return bool(self.interval) and (segment <= 1 or tokens // self.block_tokens % segment == 0)

    def _register_tail(self, request: ServedRequest, tokens: int) -> None:
        state = request.mamba_states.get(self.index)
        if state is not None and state.checkpoint is not None:
            self._register_checkpoint(request, state.checkpoint)
            return
        boundary = (request.num_prompt_tokens - 1) // self.hash_tokens * self.hash_tokens
        if tokens != boundary or not boundary:
            return
        if boundary % self.block_tokens and not self.finds_inside_blocks:
            return
        table = request.block_tables[self.index]
        place = -(-boundary // self.block_tokens) - 1
        if place >= len(table) or not table[place]:
            return
        block = table[place]
        named = self.pool.keys[block]
        if self.pool.key_tokens[block] == boundary and named is not None:
            if self.rewritten:
                self.step_keys.add(named)
            return
        key = self.register_part(request, block, boundary)
        if key is not None:
            self.step_keys.add(key)
            if boundary % self.block_tokens:
                request.partial_hits[self.index] = (place, block)
                request.cached_blocks[self.index] = place

    def cacheable(self, request: ServedRequest, start: int, end: int) -> Sequence[int] | None:
        if self.interval is None:
            return None
        places = set[int]()
        if self.interval:
            segment = self.interval // self.block_tokens
            if segment <= 1:
                return None
            places.update(index for index in range(start, end) if (index + 1) % segment == 0)
        for boundary in reachable(request):
            place = boundary // self.hit_tokens * self.hit_tokens // self.block_tokens - 1
            if start <= place < end:
                places.add(place)
        return sorted(places)

    def longest_hit(
        self, hashes: list[int], limit: int, members: Sequence[int]
    ) -> tuple[list[list[int]], int]:
        # The last cached state: one is enough.
        size = self.block_tokens
        inside = self.hit_tokens < size and size % self.hit_tokens == 0
        step = self.hit_tokens if inside else size
        for tokens in range(limit // step * step, 0, -step):
            cached_blocks = self.cached(hashes[tokens // self.hash_tokens - 1], members)
            if cached_blocks is not None and (inside or tokens % self.hit_tokens == 0):
                place = -(-tokens // size) - 1
                return [[0] * place + [block] for block in cached_blocks], tokens
        return [[] for _ in members], 0
