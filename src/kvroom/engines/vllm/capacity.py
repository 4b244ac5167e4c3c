"""Capacity: blocks a request takes, blocks there are, what is printed, and what is refused.

Sources: ``max_memory_usage_bytes`` of the cache specs, ``get_max_concurrency_for_kv_cache_config``,
``_report_kv_cache_config`` and ``check_enough_kv_cache_memory`` of the releases.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from kvroom.engines.vllm.groups import Group, bytes_per_block
from kvroom.engines.vllm.specs import LayerSpec, Spec
from kvroom.engines.vllm.versions import VllmRules
from kvroom.records import dataclass
from kvroom.sharding.ledger import LONGEST
from kvroom.units import ceil_div, longest_fit


@dataclass(frozen=True)
class Stage:
    """One pipeline stage: its groups, its layers' specs before any unifying, its cache bytes."""

    groups: tuple[Group, ...]
    specs: tuple[LayerSpec, ...]
    cache_bytes: int

    @cached_property
    def block_bytes(self) -> int:
        """What one block of the pool takes here."""
        return bytes_per_block(self.groups)

    @property
    def blocks(self) -> int:
        """Whole blocks in the stage's cache bytes."""
        return max(0, self.cache_bytes) // self.block_bytes if self.block_bytes else 0


@dataclass(frozen=True)
class VllmPool:
    """The blocks of a deployment under one release's rules.

    ``in_flight`` are the tokens that may be scheduled and not yet settled, ``dcp`` the decode-context
    ranks, ``override`` the number of blocks that the user sets.
    """

    stages: Sequence[Stage]
    rules: VllmRules
    in_flight: int
    dcp: int = 1
    encoder_tokens: int = 0
    override: int | None = None

    def blocks_needed(self, spec: Spec, tokens: int) -> int:
        """Blocks of a group of ``spec`` that a request of ``tokens`` tokens holds at most."""
        match spec.type:
            case "window":
                held = min(spec.window - 1 + self.in_flight, tokens)
                return ceil_div(held, spec.block_tokens) + 1  # it may begin inside a block
            case "chunked":
                return ceil_div(min(spec.window + self.in_flight, tokens), spec.block_tokens)
            case "state":
                grown = ceil_div(tokens, spec.block_tokens) if spec.grows else 0
                return spec.blocks + grown
            case "cross":
                return ceil_div(self.encoder_tokens, spec.block_tokens)
        return ceil_div(ceil_div(tokens, self.dcp), spec.block_tokens)

    def group_blocks(self, group: Group, tokens: int) -> int:
        """The same for a group, whose members may differ."""
        return max(self.blocks_needed(kind, tokens) for kind in group.kinds)

    @property
    def caching(self) -> list[Stage]:
        """The stages whose layers keep blocks (one of state alone kept none in older versions)."""
        return [stage for stage in self.stages if stage.groups]

    def request_blocks(self, tokens: int) -> int:
        """Blocks of all groups that one request of ``tokens`` holds at most.

        Groups that are weighed count by the bytes of their own pages, in blocks of the first group's.
        """
        groups = self.caching[0].groups
        if not groups[0].weighed:
            return sum(self.group_blocks(group, tokens) for group in groups)
        held = sum(self.group_blocks(group, tokens) * group.own_bytes for group in groups)
        return ceil_div(held, groups[0].own_bytes)

    @property
    def num_blocks(self) -> int:
        """Blocks of the pool, the unusable null block included: the least of the stages."""
        if self.override is not None:
            return self.override
        return min((stage.blocks for stage in self.stages if stage.block_bytes), default=0)

    @property
    def block_tokens(self) -> int:
        """Tokens of the smallest group's block."""
        return min(group.block_tokens for group in self.caching[0].groups)

    def concurrency(self, tokens: int) -> float:
        """Requests of ``tokens`` that the engine says it holds at once."""
        if self.rules.request_blocks:
            return self.num_blocks / self.request_blocks(tokens)
        return self.num_blocks * self.block_tokens / tokens

    def printed_tokens(self, tokens: int) -> int:
        """The size that the engine prints, in tokens."""
        if self.rules.tokens_from_concurrency:
            return int(self.concurrency(tokens) * tokens)
        ranks = self.dcp if self.rules.dcp_tokens else 1
        return self.num_blocks // len(self.caching[0].groups) * self.block_tokens * ranks

    # The start-up check

    def fits(self, tokens: int) -> bool:
        """Whether the engine starts with requests of up to ``tokens``."""
        return all(have > 0 and need <= have for need, have in self.needs(tokens))

    def needs(self, tokens: int) -> list[tuple[int, int]]:
        """(bytes that one request needs, bytes there are for it), stage by stage, as it counts."""
        made = [self._need(s, tokens) for s in self.caching]
        if self.rules.fit_by_stage or len(made) < 2:
            return made
        # Before stages were checked apart: the whole model against the stage with least.
        whole = Stage(
            groups=tuple(
                Group(
                    group.spec,
                    tuple(member for s in self.caching for member in s.groups[index].members),
                )
                for index, group in enumerate(self.caching[0].groups)
            ),
            specs=tuple(spec for s in self.caching for spec in s.specs),
            cache_bytes=min(s.cache_bytes for s in self.caching),
        )
        return [self._need(whole, tokens)]

    def _need(self, stage: Stage, tokens: int) -> tuple[int, int]:
        block = stage.block_bytes
        have = stage.cache_bytes
        if self.override is not None and self.rules.override_checked:
            have = self.override * block
        match self.rules.fit:
            case "layers":
                need = sum(self.blocks_needed(s, tokens) * s.page_bytes for _, s in stage.specs)
                return need, have
            case "first group":
                return block * self.group_blocks(stage.groups[0], tokens), have
            case "usable blocks":
                have -= block  # one block is the null block
        return block * sum(self.group_blocks(group, tokens) for group in stage.groups), have

    def longest(self, limit: int = LONGEST) -> int | None:
        """The longest request that the engine would start with; None where length costs nothing."""
        if limit >= LONGEST and self.fits(LONGEST):
            return None
        near = self.num_blocks // len(self.caching[0].groups) * self.block_tokens * self.dcp
        return longest_fit(self.fits, limit, near)
