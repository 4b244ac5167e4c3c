"""From the tiers that are asked for to what one engine meets: room in pages, links, latency, warnings.

Bytes: a page takes its blocks once in a tier, whatever the layout; a GPU's own link carries what that GPU
stores, host memory and drives carry what all of them do. What is read from below goes through all that
lies above it, as in ``latency.transfer``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from fractions import Fraction
from math import ceil

from kvroom.engines.serving_rules import FetchRules
from kvroom.errors import KvroomError
from kvroom.hardware.device import Tier
from kvroom.hardware.node import Machine
from kvroom.latency.clock import PS_PER_S, StepClock
from kvroom.models.dtypes import Dtype, cache_dtype
from kvroom.records import dataclass
from kvroom.scenario.offload import OffloadTier
from kvroom.sharding.deployment import Deployment
from kvroom.simulator.offload import OffloadConnector
from kvroom.simulator.offload_groups import GroupOffload
from kvroom.simulator.offload_level import OffloadLevel
from kvroom.simulator.prefetch import StoragePrefetch
from kvroom.simulator.tier_store import Store
from kvroom.simulator.transfer_queue import SAME, WRITE, TransferQueue, Width
from kvroom.units import show_gib, show_rate, show_seconds, smallest


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockBytes:
    """One block of cache: ``once`` in a tier, ``gpu`` on the GPU that stores most of it, ``all`` together."""

    once: int
    gpu: int
    all: int

    @classmethod
    def of(
        cls, deployment: Deployment, block_tokens: int, tier: OffloadTier | None = None
    ) -> BlockBytes:
        """Those of a deployment's growing layers, in the width of ``tier`` where it has one of its own."""
        kv = deployment.kv if tier is None else width_of(tier, deployment)
        once = sum(
            (kind.growth(kv) * count for kind, count in deployment.model.stores),
            Fraction(0),
        )
        ranks = [ceil(rank.token_bytes(kv) * block_tokens) for rank in deployment.own_ranks]
        if tier is not None and tier.per_rank:
            once = Fraction(sum(ranks) * deployment.layout.tp, block_tokens)
        return cls(
            once=ceil(once * block_tokens), gpu=max(ranks), all=sum(ranks) * deployment.layout.tp
        )


def width_of(tier: OffloadTier, deployment: Deployment) -> Dtype:
    """The width in which ``tier`` keeps cache."""
    if tier.kv_dtype is None:
        return deployment.kv
    return cache_dtype(tier.kv_dtype, "tiers.kv_dtype")


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedTier:
    """A tier that is asked for, with the machine's figures where nothing else is said.

    ``bytes`` are those of one copy of the deployment that can be used (None: no limit).
    """

    asked: OffloadTier
    tier: Tier
    bytes: int | None
    warnings: tuple[str, ...] = ()

    @property
    def latency_s(self) -> float:
        """Seconds until a transfer's first byte."""
        own = self.asked.latency_s
        usual = self.tier.latency_s or 0.0
        return (usual if own is None else own) + self.asked.lookup_s


def sized(tiers: Iterable[OffloadTier], machine: Machine) -> tuple[SizedTier, ...]:
    """The tiers on ``machine``; those of no bytes are left out. KvroomError where a figure is missing."""
    tiers_sized = [_sized(each, machine) for each in tiers]
    return tuple(each for each in tiers_sized if each.bytes != 0)


def _sized(wanted: OffloadTier, machine: Machine) -> SizedTier:
    tier = machine.tier(wanted.kind) or Tier(name=wanted.kind)
    if (tier.bytes_per_s if wanted.bytes_per_s is None else wanted.bytes_per_s) is None:
        why = f"{machine.device.name} has none apart from the GPU's own memory, or no known rate"
        fix = "Leave it out, or give bytes_per_s (and bytes)."
        raise KvroomError("tiers", wanted.kind, why, fix)
    size = tier.bytes if wanted.bytes is None else wanted.bytes
    if wanted.times_gpu is not None and wanted.bytes is None:
        size = None
    elif size is None and wanted.kind != "network":
        fix = f"Write {wanted.kind}:512GiB."
        raise KvroomError("tiers", wanted.kind, "has no known size on this machine", fix)
    keys: list[str] = []
    if size is not None and tier.bytes is not None and size > tier.bytes:
        keys.append(
            f"{wanted.kind}: {show_gib(size)} asked for, the machine has {show_gib(tier.bytes)}"
            f" ({tier.source.kind})"
        )
    pinned = wanted.pinned_bytes
    if pinned is not None and size is not None and pinned < size:
        keys.append(
            f"host: only {show_gib(pinned)} of {show_gib(size)} can be pinned: the rest keeps nothing"
        )
        size = pinned
    return SizedTier(asked=wanted, tier=tier, bytes=size, warnings=tuple(keys))


Common = dict[str, tuple[Store, TransferQueue]]
"""By kind of tier: what all replicas share."""


@dataclass(kw_only=True)
class Plant:
    """What equal engines have in common to make their ``OffloadConnector``: sizes, rates, shared stores.

    ``engines`` is how many engines there are at most, of all plants that have ``common`` in common.
    """

    tiers: tuple[SizedTier, ...]
    machine: Machine
    d: Deployment
    clock: StepClock
    block_tokens: int
    unit: int
    batch_tokens: int
    engines: int = 1
    count_from: int = 0
    """The request from which on hits are counted."""
    least_tokens: int | None = None
    """What lies below is read where it is so much, without weighing it (None: as far as that pays)."""
    fetch: FetchRules | None = None
    """How what lies below host memory comes into it (None: it is read as host memory is)."""
    write: str = "through"
    """How tiers are written where nothing else is said."""
    groups: int = 1
    """Layer groups, of whose blocks each takes ``pool_block``."""
    pool_block: BlockBytes | None = None
    gpu_blocks: int = 0
    """Usable ones of a GPU's own pool."""
    common: Common = field(default_factory=dict)
    made: list[OffloadConnector] = field(default_factory=list)

    @property
    def block(self) -> BlockBytes:
        """Bytes of a block."""
        return self.pool_block or BlockBytes.of(self.d, self.block_tokens)

    @property
    def state_blocks(self) -> int:
        """Blocks as large as the state of a fixed size that a prefix comes with: recurrent layers', and what
        windows hold."""
        kv, far = self.d.kv, self.d.context_tokens
        fixed = sum(
            kind.stored_bytes(far, kv) * count
            for kind, count in self.d.model.stores
            if not kind.growth(kv)
        )
        return ceil(fixed / self.block.once)

    @property
    def shared(self) -> bool:
        """Whether what one engine does matters to others."""
        return any(tier.asked.shared for tier in self.tiers)

    def make(self, engine: int) -> OffloadConnector:
        """Empty tiers of one more engine, its number among all."""
        levels = self._levels()
        kind = OffloadConnector if self.pool_block is None else GroupOffload
        tiers = kind(
            levels,
            self.clock,
            block_tokens=self.block_tokens,
            unit=self.unit,
            batch_tokens=self.batch_tokens,
            layers=sum(count for _, count in self.d.model.stores),
            engine=engine,
            engines=self.engines,
            least_tokens=self.least_tokens,
            state_blocks=self.state_blocks,
            prefetch=self._prefetch(levels),
        )
        tiers.count_from = self.count_from
        self.made.append(tiers)
        return tiers

    def _prefetch(self, levels: list[OffloadLevel]) -> StoragePrefetch | None:
        if self.fetch is None:
            return None
        host, storage = levels
        return StoragePrefetch(
            self.fetch,
            host,
            storage,
            page_tokens=self.unit * self.block_tokens,
            unit=self.unit,
            gpu_pages=self.gpu_blocks // self.unit,
        )

    def fetching_s(self) -> list[tuple[float, float]]:
        """By tier, seconds until a read's first byte and for each token, with nothing else on its links."""
        units = 2**20 * self.block_tokens  # many: a token's time is less than a clock's tick
        return [
            (
                level.latency_ps / PS_PER_S,
                max(link.takes_ps(2**20, level.width) for link in level.links) / units / PS_PER_S,
            )
            for level in self._levels()
        ]

    def _levels(self) -> list[OffloadLevel]:
        dp = self.d.layout.dp
        above = self._above()
        levels: list[OffloadLevel] = []
        for tier in self.tiers:
            kind = tier.asked.kind
            if tier.asked.shared:
                if kind not in self.common:
                    self.common[kind] = self._store(tier, 1), self._own(tier, 1)
                store, link = self.common[kind]
            else:
                store, link = self._store(tier, dp), self._own(tier, dp)
            if kind == "network":
                link = self._own(tier, 1)  # each engine has its own adapters
            if kind == "host":
                above = [link] if tier.asked.bytes_per_s is not None else [*above, link]
            levels.append(
                OffloadLevel(
                    name=kind,
                    store=store,
                    links=tuple(above if kind == "host" else [*above, link]),
                    latency_ps=round(tier.latency_s * PS_PER_S),
                    back=(write := tier.asked.write or self.write) == "back",
                    inclusive=tier.asked.inclusive,
                    layerwise=tier.asked.layerwise,
                    shared=tier.asked.shared,
                    chunk=self.chunk_of(tier),
                    selective=write == "selective",
                    follows=self.fetch is not None and kind != "host",
                    width=self._width(tier),
                    block_bytes=self.bytes_of(tier).once,
                )
            )
        return levels

    def bytes_of(self, tier: SizedTier) -> BlockBytes:
        """Bytes of a block in ``tier``."""
        return self.pool_block or BlockBytes.of(self.d, self.block_tokens, tier.asked)

    def _width(self, tier: SizedTier) -> Width:
        """What the tier moves over what the GPUs keep."""
        return (self.bytes_of(tier).all, self.block.all) if tier.asked.kv_dtype else SAME

    def chunk_of(self, tier: SizedTier) -> int:
        """Pages that the tier keeps as one; KvroomError where they do not fill its chunks."""
        tokens, page = tier.asked.chunk_tokens, self.unit * self.block_tokens
        if tokens is None or tokens <= page:
            return 1
        if tokens % page:
            fix = f"Give a multiple of {page:,} tokens."
            raise KvroomError("tiers.chunk_tokens", tokens, "is no number of whole pages", fix)
        return tokens // page

    def _above(self) -> list[TransferQueue]:
        """What lies between the GPUs and the tiers: the link of each GPU to the host, host memory."""
        device, block = self.machine.device, self.block
        if device.unified_memory:
            return []
        links: list[TransferQueue] = []
        if device.host_link is not None:
            links.append(TransferQueue(int(device.host_link.bytes_per_s), block.gpu, duplex=True))
        host = self.machine.tier("host")
        if (
            host is not None
            and host.bytes_per_s
            and not any(tier.asked.kind == "host" for tier in self.tiers)
        ):
            links.append(
                TransferQueue(_share(host.bytes_per_s, self.d.layout.dp), block.all, duplex=False)
            )
        return links

    def _own(self, sized_tier: SizedTier, dp: int) -> TransferQueue:
        """The tier's own link. An adapter carries what its GPU stores; a rate that is given is that of
        one copy of the deployment, all GPUs together."""
        kind, given, block = sized_tier.asked.kind, sized_tier.asked.bytes_per_s, self.block
        rate = given if given is not None else sized_tier.tier.bytes_per_s
        assert rate is not None
        adapters = kind == "network" and given is None
        size = block.gpu if adapters else block.all
        duplex = kind == "network" or (kind == "host" and given is not None)
        return TransferQueue(_share(rate, 1 if kind == "network" else dp), size, duplex=duplex)

    def _store(self, sized_tier: SizedTier, dp: int) -> Store:
        unit = self.unit * self.chunk_of(sized_tier)
        times, room = sized_tier.asked.times_gpu, None
        if sized_tier.bytes is not None:
            room = sized_tier.bytes // dp // (self.bytes_of(sized_tier).once * unit)
        elif times is not None:
            copies = 1 if sized_tier.asked.shared else dp
            room = int(times * self.gpu_blocks * (dp // copies)) // unit
        return Store(room, sized_tier.asked.policy)

    def warnings(self) -> Iterable[str]:
        """What speaks against a tier, with its numbers."""
        for tier in self.tiers:
            yield from tier.warnings
        if not self.made:
            return
        size = show_gib(self.block.once * self.unit)
        for level in self.made[0].levels:
            if level.store.room == 0:
                tokens = self.unit * self.block_tokens
                yield f"{level.name}: not one page of {tokens:,} tokens ({size}) fits: it keeps nothing"
            yield from self._too_slow(self.made[0], level)
        yield from self._late()

    def _late(self) -> Iterable[str]:
        """Writes that a link was far behind with when the last request was let in."""
        for place, level in enumerate(self.made[0].levels):
            late = [
                max(link.free_ps(WRITE) for link in tiers.levels[place].links) - tiers.last_ps
                for tiers in self.made
            ]
            if max(late) > PS_PER_S:
                yield (
                    f"{level.name}: its writes end up to {show_seconds(max(late) / PS_PER_S)} late:"
                    " more is written than its link carries, and a real engine would write less or wait"
                )

    def _too_slow(self, tiers: OffloadConnector, level: OffloadLevel) -> Iterable[str]:
        page = self.unit * self.block_tokens
        pages = self.d.context_tokens // page

        def pays(count: int) -> bool:
            return tiers.alone_ps(level, count * page) <= tiers.computing_ps(0, count * page)

        if not pages or smallest(pays, pages):
            return
        tokens = pages * page
        rate = level.links[-1].bytes_per_s or 0
        read = "nothing is read from it" if self.least_tokens is None else "it is read all the same"
        fetch, anew = tiers.alone_ps(level, tokens), tiers.computing_ps(0, tokens)
        yield (
            f"{level.name}: at {show_rate(rate)} it is slower than computing anew at any length"
            f" ({tokens:,} tokens: {show_seconds(fetch / PS_PER_S)} to fetch,"
            f" {show_seconds(anew / PS_PER_S)} to compute): {read}"
        )


def _share(rate: float, dp: int) -> int:
    return max(1, int(rate) // dp)
