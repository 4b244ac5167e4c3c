"""What a machine is: devices with memory, the links between them, the tiers below them.

Bytes are ``int``; rates are ``float`` per second, a link's in one direction. A device has three
sizes: ``sold_bytes`` (the label: decimal GB), ``driver_bytes`` (what ``nvidia-smi`` or ``rocm-smi``
lists) and ``visible_bytes`` (the total that the runtime gives an engine, a little less). A field
nobody has published is ``None``, never a guess. Every figure's source is in ``Device.sources``;
the catalogue's own come from vendors' data sheets and printed logs. Anything out of range raises
KvroomError.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from typing import Any

from kvroom.errors import KvroomError
from kvroom.hardware.checks import (
    assign,
    check_mapping,
    check_rate,
    check_size,
    check_text,
    checked,
    plain,
)
from kvroom.records import dataclass
from kvroom.units import check_float, show_gb, show_rate

SOURCE_KINDS = ("measured", "driver", "datasheet", "assumed")
DTYPES = ("bf16", "fp16", "fp8", "fp4", "int8", "int4", "fp6", "tf32", "fp32")
"""Arithmetic widths a peak may be given for; the catalogue uses the first five."""
HOSTS = ("server", "workstation", "desktop")
"""The kinds of machine that a card is sold for: what host memory it is taken to have (``node.HOSTS``)."""
UNSEEN_BYTES = 470 * 2**20
"""How much less than the driver's total CUDA gives a program (median of the catalogue's cards that state
both: 265 to 520 MiB)."""
REST = "*"
"""The key of ``Device.sources`` that speaks for every field without a key of its own."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a figure comes from: its ``kind`` (one of SOURCE_KINDS) and where to look it up."""

    kind: str
    text: str

    def __post_init__(self) -> None:
        if self.kind not in SOURCE_KINDS:
            fix = f"Write one of {', '.join(SOURCE_KINDS)}, a colon, and where it is found."
            raise KvroomError("source", self.kind, "is no kind of source", fix)
        check_text("source", self.text)

    @classmethod
    def parse(cls, value: Any, default_kind: str = "assumed") -> Source:
        """``"datasheet: NVIDIA H100"`` as a Source; one of no known kind gets ``default_kind``."""
        if isinstance(value, Source):
            return value
        if value is None:
            return cls(default_kind, "not stated")
        text = check_text("source", value)
        kind, colon, rest = text.partition(":")
        if colon and kind.strip() in SOURCE_KINDS:
            return cls(kind.strip(), rest.strip() or "not stated")
        if text.strip() in SOURCE_KINDS:
            return cls(text.strip(), "not stated")
        return cls(default_kind, text)

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


UNSTATED = Source("assumed", "not stated")


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A wire: ``bytes_per_s`` in one direction, ``latency_s`` of a small transfer where known."""

    name: str
    bytes_per_s: float
    latency_s: float | None = None
    source: Source = UNSTATED

    def __post_init__(self) -> None:
        check_text("link.name", self.name)
        assign(
            self,
            bytes_per_s=check_rate("link.bytes_per_s", self.bytes_per_s),
            latency_s=_latency("link.latency_s", self.latency_s),
            source=Source.parse(self.source),
        )

    def to_dict(self) -> dict[str, Any]:
        """The link as plain JSON values."""
        return plain(self)

    @classmethod
    def from_dict(cls, value: Any, name: str = "link") -> Link:
        """A Link from its plain form; KvroomError (``name`` is the field told) if it is none."""
        return cls(**checked(cls, value, name, ("name", "bytes_per_s")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """One level of memory: ``sram``, ``l2``, ``hbm``, ``dram``, ``host``, ``nvme``, ``network`` …

    ``bytes`` and ``bytes_per_s`` (reading, one direction) are None where unbounded or unknown.
    """

    name: str
    bytes: int | None = None
    bytes_per_s: float | None = None
    latency_s: float | None = None
    source: Source = UNSTATED

    def __post_init__(self) -> None:
        check_text("tier.name", self.name)
        rate = self.bytes_per_s
        assign(
            self,
            bytes=None if self.bytes is None else check_size("tier.bytes", self.bytes),
            bytes_per_s=None if rate is None else check_rate("tier.bytes_per_s", rate),
            latency_s=_latency("tier.latency_s", self.latency_s),
            source=Source.parse(self.source),
        )

    def to_dict(self) -> dict[str, Any]:
        """The tier as plain JSON values."""
        return plain(self)

    @classmethod
    def from_dict(cls, value: Any, name: str = "tier") -> Tier:
        """A Tier from its plain form; KvroomError (``name`` is the field told) if it is none."""
        return cls(**checked(cls, value, name, ("name",)))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Device:
    """One accelerator (or CPU) as an engine meets it.

    ``flops_per_s`` are dense peaks by dtype (no sparsity, fp32 accumulation where the vendor tells
    them apart); a dtype the chip lacks has no key. ``generation`` groups chips that may share a
    calibration. ``scale_up`` joins devices of one machine and is None where only the host's bus
    does; ``host_link`` is None where memory is unified or the figure is not published.
    """

    name: str
    sold_bytes: int
    memory_bytes_per_s: float
    vendor: str = "unknown"
    generation: str = "unknown"
    driver_bytes: int | None = None
    visible_bytes: int | None = None
    sram_bytes: int | None = None
    sram_bytes_per_s: float | None = None
    l2_bytes: int | None = None
    l2_bytes_per_s: float | None = None
    flops_per_s: Mapping[str, float] = field(default_factory=dict, hash=False)
    scale_up: Link | None = None
    host_link: Link | None = None
    unified_memory: bool = False
    host: str = "server"
    tdp_w: float | None = None
    usd_per_hour: float | None = None
    compute_capability: str | None = None
    aliases: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    """Of unlike cards together (``hardware.mixed``) the name of each."""
    sources: Mapping[str, Source] = field(default_factory=dict, hash=False)
    notes: str = ""

    def __post_init__(self) -> None:
        for name in ("name", "vendor", "generation", "notes"):
            check_text(f"gpu.{name}", getattr(self, name))
        if not self.name.strip():
            raise KvroomError("gpu.name", self.name, "is empty", "Give the device a name.")
        for name in ("sold_bytes", "driver_bytes", "visible_bytes", "sram_bytes", "l2_bytes"):
            value = getattr(self, name)
            if value is not None or name == "sold_bytes":
                assign(self, **{name: check_size(f"gpu.{name}", value)})
        for name in ("memory_bytes_per_s", "sram_bytes_per_s", "l2_bytes_per_s"):
            value = getattr(self, name)
            if value is not None or name == "memory_bytes_per_s":
                assign(self, **{name: check_rate(f"gpu.{name}", value)})
        for name, high in (("tdp_w", 1e6), ("usd_per_hour", 1e6)):
            value = getattr(self, name)
            if value is not None:
                assign(self, **{name: check_float(f"gpu.{name}", value, low=0.0, high=high)})
        if self.compute_capability is not None:
            check_text("gpu.compute_capability", self.compute_capability)
        if self.host not in HOSTS:
            fix = f"Write one of {', '.join(HOSTS)}."
            raise KvroomError("gpu.host", self.host, "is no kind of machine", fix)
        if not isinstance(self.unified_memory, bool):
            fix = "Write true or false."
            raise KvroomError("gpu.unified_memory", self.unified_memory, "is not a yes or no", fix)
        peaks = check_mapping("gpu.flops_per_s", self.flops_per_s, DTYPES)
        names = (*(one_field.name for one_field in fields(self)), REST)
        sources = check_mapping("gpu.sources", self.sources, names)
        if not isinstance(self.aliases, list | tuple):
            raise KvroomError(
                "gpu.aliases", self.aliases, "is not a list", "Write a list of names."
            )
        assign(
            self,
            flops_per_s={
                key: check_rate(f"gpu.flops_per_s.{key}", value, "FLOP per second")
                for key, value in peaks.items()
                if value is not None
            },
            scale_up=_link("gpu.scale_up", self.scale_up),
            host_link=_link("gpu.host_link", self.host_link),
            aliases=tuple(check_text("gpu.aliases", alias) for alias in self.aliases),
            sources={key: Source.parse(value) for key, value in sources.items()},
        )

    @property
    def engine_bytes(self) -> int:
        """What an engine can see: visible bytes if known, else the driver's less what CUDA keeps back,
        else the label's."""
        if self.visible_bytes is None and self.driver_bytes is not None and self.vendor == "nvidia":
            return max(1, self.driver_bytes - UNSEEN_BYTES)
        return self.visible_bytes or self.driver_bytes or self.sold_bytes

    @property
    def engine_bytes_source(self) -> Source:
        """Where ``engine_bytes`` comes from, saying so where it falls back on another size."""
        for name, fallback in (
            ("visible_bytes", ""),
            ("driver_bytes", "the driver's total, less what CUDA keeps back"),
            ("sold_bytes", "the size it is sold by; neither driver nor engine total is known"),
        ):
            if getattr(self, name) is not None:
                source = self.source(name)
                return Source(source.kind, f"{source.text} ({fallback})") if fallback else source
        raise AssertionError("sold_bytes is always given")

    @property
    def catalogue_bytes(self) -> int:
        """The card's own size for plain arithmetic: the decimal bytes that it is sold by."""
        return self.sold_bytes

    @property
    def peer_link(self) -> Link | None:
        """What joins two of these in one machine: ``scale_up``, else the host's bus."""
        return self.scale_up or self.host_link

    def __repr__(self) -> str:
        size, rate = show_gb(self.sold_bytes), show_rate(self.memory_bytes_per_s)
        return f"<Device {self.name}: {size} at {rate}>"

    def source(self, name: str) -> Source:
        """The source of one field (the card's general one where the field has none of its own)."""
        return self.sources.get(name) or self.sources.get(REST) or UNSTATED

    def flops(self, dtype: str) -> float | None:
        """Dense FLOP/s at ``dtype``, None if unknown.

        bf16 and fp16 stand in for each other, and fp32 for both where a chip is given no 16-bit
        rate (engines then compute in fp32).
        """
        halves = ("bf16", "fp16", "fp32") if dtype == "bf16" else ("fp16", "bf16", "fp32")
        for name in halves if dtype in halves[:2] else (dtype,):
            if name in self.flops_per_s:
                return self.flops_per_s[name]
        return None

    def to_dict(self) -> dict[str, Any]:
        """The device as plain JSON values; ``from_dict`` takes it back unchanged."""
        return plain(self)

    @classmethod
    def from_dict(cls, value: Any, name: str = "gpu") -> Device:
        """A Device from its plain form; KvroomError (``name`` is the field told) if it is none."""
        required = ("name", "sold_bytes", "memory_bytes_per_s")
        return cls(**checked(cls, value, name, required))


def _latency(name: str, value: Any) -> float | None:
    return None if value is None else check_float(name, value, low=0.0, high=1e4, unit="seconds")


def _link(name: str, value: Any) -> Link | None:
    return value if value is None or isinstance(value, Link) else Link.from_dict(value, name)
