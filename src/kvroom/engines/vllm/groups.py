"""Groups: which layers share one table of blocks, and so what one block of the pool takes.

All groups draw block ids from one pool, so a block is as large as the largest group's pages together.
Source: ``get_kv_cache_groups`` and ``unify_kv_cache_spec_page_size`` of the releases.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property

from kvroom.engines.vllm.specs import FULL, LayerSpec, Spec
from kvroom.engines.vllm.versions import VllmRules
from kvroom.records import dataclass
from kvroom.sharding.deployment import Deployment
from kvroom.sharding.layout import context_ranks
from kvroom.units import ceil_div


class CannotStart(Exception):
    """The engine itself refuses this model at start-up; the text says why."""


@dataclass(frozen=True)
class Group:
    """Caches that share one table of blocks: one Spec for each, with its layer's index.

    ``members`` may be empty on a pipeline stage that holds none of a group's layers; ``spec`` stands
    for the group there. ``weighed``: what a request takes of the pool is counted by the group's own
    pages, and not by blocks.
    """

    spec: Spec
    members: tuple[LayerSpec, ...]
    padding_bytes: int = 0
    weighed: bool = False

    @cached_property
    def page_bytes(self) -> int:
        """Bytes of one block of every member together."""
        return self.own_bytes + self.padding_bytes

    @cached_property
    def own_bytes(self) -> int:
        """The same without what fills the block up."""
        return sum(spec.page_bytes for _, spec in self.members)

    @cached_property
    def kinds(self) -> tuple[Spec, ...]:
        """The members' specs, each once."""
        known = {id(spec): spec for _, spec in self.members}  # layers alike share theirs
        return tuple(set(known.values()) or {self.spec})

    @property
    def block_tokens(self) -> int:
        """Tokens of one block."""
        return self.spec.block_tokens

    def on(self, layers: range) -> Group:
        """What of the group lies on the stage that holds ``layers``."""
        held = tuple(member for member in self.members if member[0] in layers)
        return self if len(held) == len(self.members) else replace(self, members=held)


def check_context_ranks(deployment: Deployment, specs: Sequence[LayerSpec]) -> None:
    """Refuse decode-context ranks that the engine has no way to share a request's tokens among.

    They are the tensor ranks that would hold copies of the same heads, and take no windows.
    """
    ranks, tp = deployment.layout.dcp, deployment.layout.tp
    if ranks == 1 or not specs:
        return
    if any(spec.type == "window" for _, spec in specs):
        raise CannotStart("decode context parallelism does not share windows out")
    if context_ranks(deployment.model, deployment.layout) < ranks:
        heads = deployment.model.kv_heads
        raise CannotStart(
            f"dcp {ranks} needs {ranks} copies of each of {heads} KV heads, and tp {tp} makes "
            f"{tp // heads if tp > heads else 'none'}"
        )


def bytes_per_block(groups: Iterable[Group]) -> int:
    """What one block of the pool takes on a stage that holds ``groups``."""
    return max((group.page_bytes for group in groups), default=0)


def groups_of(specs: Sequence[LayerSpec], rules: VllmRules, *, hybrid: bool) -> list[Group]:
    """The groups of ``specs``; ``hybrid`` off promotes windows and chunks to full attention.

    Raises CannotStart where this release knows no way to page such a mixture.
    """
    if not specs:
        return []
    if not hybrid:
        specs = _promoted(specs)
    if _mergeable(specs):
        return [Group(specs[0][1], tuple(specs))]
    if rules.unequal_pages and _one_type(specs):
        return [Group(specs[0][1], tuple(specs))]
    return _equal_pages(_unified(specs, rules), rules)


def family(spec: Spec) -> tuple[object, ...]:
    """What layers of one group agree in, besides the size of their pages."""
    family = "full" if spec.type in FULL else spec.type
    state = (spec.page_bytes, spec.blocks) if spec.type == "state" else ()
    return (family, spec.window, spec.block_tokens, *state)


def _one_type(specs: Sequence[LayerSpec]) -> bool:
    return len({family(spec) for _, spec in specs}) == 1


def _mergeable(specs: Sequence[LayerSpec]) -> bool:
    first = specs[0][1]
    return all(spec is first or spec == first for _, spec in specs)


def _promoted(specs: Sequence[LayerSpec]) -> list[LayerSpec]:
    """Windows and chunks as full attention, where some layer is full attention already."""
    if _mergeable(specs) or _one_type(specs):
        return list(specs)
    types = {spec.type for _, spec in specs}
    if types & set(FULL) and types & {"window", "chunked"}:
        specs = [
            (
                index,
                replace(spec, type="full", window=0)
                if spec.type in ("window", "chunked")
                else spec,
            )
            for index, spec in specs
        ]
    if not (_mergeable(specs) or _one_type(specs)):
        raise CannotStart("without the hybrid cache manager its layers cannot be made one type")
    return list(specs)


def _unified(specs: Sequence[LayerSpec], rules: VllmRules) -> list[LayerSpec]:
    """Pages brought to the largest: more tokens a block where that divides, else padding."""
    largest = max(spec.page_bytes for _, spec in specs)

    def grown(spec: Spec) -> Spec:
        if spec.page_bytes == largest:
            return spec
        if not rules.scaled_pages:
            raise CannotStart("this release cannot page layers of unequal size")
        if spec.type == "state":
            if not rules.padded_state:
                raise CannotStart("this release cannot pad a smaller state to the largest page")
            return replace(spec, page_bytes=largest)
        if largest % spec.page_bytes == 0:
            ratio = largest // spec.page_bytes
            return replace(spec, page_bytes=largest, block_tokens=spec.block_tokens * ratio)
        if rules.padded_pages and spec.type != "latent":
            return replace(spec, page_bytes=largest)
        raise CannotStart("its layers' pages cannot be brought to one size")

    known: dict[Spec, Spec] = {spec: grown(spec) for spec in {spec for _, spec in specs}}
    return [(index, known[spec]) for index, spec in specs]


def _equal_pages(specs: Sequence[LayerSpec], rules: VllmRules) -> list[Group]:
    """Groups of as many layers each: as many as the rarest kind of layer has, or nearly so."""
    buckets: dict[Spec, list[LayerSpec]] = {}
    for member in specs:
        buckets.setdefault(member[1], []).append(member)
    lengths = [len(bucket) for bucket in buckets.values()]
    size = min(lengths)
    if max(lengths) < size * rules.wide_group_ratio:
        size = max(lengths)
    made: list[Group] = []
    for spec, members in buckets.items():
        count = ceil_div(len(members), size)
        if rules.whole_model_groups:
            parts = [members[index::count] for index in range(count)]
        else:
            parts = [members[index * size : (index + 1) * size] for index in range(count)]
        made += [Group(spec, tuple(part)) for part in parts]
    return made
