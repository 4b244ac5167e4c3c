"""A machine: several devices, the links between them, and the memory tiers from fast to far.

Tiers run from the chip's own SRAM down to the network. What the device tells (SRAM, its memory) is
taken from it; host memory, NVMe and network are defaults marked ``assumed``, each with its reason,
until a machine file or ``kvroom probe`` says better. Bytes are those of the whole machine for
shared tiers, of one device for ``sram``, ``l2`` and ``hbm``. Out of range raises KvroomError.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kvroom.errors import KvroomError
from kvroom.hardware.checks import check_text, checked, plain
from kvroom.hardware.device import Device, Link, Source, Tier
from kvroom.records import dataclass
from kvroom.units import check_int

MAX_DEVICES = 1_000_000
CARDS_A_MACHINE = 8
"""Of one server, as HGX and OAM boards carry them."""

HOST_MEMORY = {
    "server": Tier(
        name="host",
        bytes=2 * 2**40,
        bytes_per_s=300e9,
        latency_s=1e-6,
        source=Source(
            "assumed", "a two-socket server with 2 TiB; half of 16 channels of DDR5-4800"
        ),
    ),
    "workstation": Tier(
        name="host",
        bytes=256 * 2**30,
        bytes_per_s=160e9,
        latency_s=1e-6,
        source=Source("assumed", "a workstation with 256 GiB; four channels of DDR5-5600"),
    ),
    "desktop": Tier(
        name="host",
        bytes=64 * 2**30,
        bytes_per_s=80e9,
        latency_s=1e-6,
        source=Source("assumed", "a desktop with 64 GiB; two channels of DDR5-5600"),
    ),
}
"""Host memory by the kind of machine that a card is sold for."""
NVME = Tier(
    name="nvme",
    bytes=30 * 10**12,
    bytes_per_s=7e9,
    latency_s=100e-6,
    source=Source("assumed", "one PCIe 4.0 x4 drive's sequential read, of eight 3.84 TB drives"),
)
NETWORK = Tier(
    name="network",
    bytes=None,
    bytes_per_s=50e9,
    latency_s=5e-6,
    source=Source("assumed", "one 400 Gb/s adapter a GPU, as in an 8-GPU HGX server"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """``count`` equal devices with their tiers (fast to far) and named links."""

    name: str
    device: Device
    count: int = 1
    tiers: tuple[Tier, ...] = ()
    links: tuple[Link, ...] = ()

    def __post_init__(self) -> None:
        check_text("machine.name", self.name)
        count = check_int("machine.count", self.count, low=1, high=MAX_DEVICES, unit="devices")
        object.__setattr__(self, "count", count)
        for kind, items in (("tier", self.tiers), ("link", self.links)):
            names = [item.name for item in items]
            twice = next((name for name in names if names.count(name) > 1), None)
            if twice is not None:
                raise KvroomError(
                    f"machine.{kind}s", twice, "is named twice", f"Give each {kind} its own name."
                )

    @classmethod
    def standard(cls, device: Device, count: int = 1) -> Machine:
        """``count`` of ``device`` with the default host, NVMe and network tiers below them."""
        host = () if device.unified_memory else (HOST_MEMORY[device.host],)
        below = (*host, NVME, NETWORK)
        links = tuple(link for link in (device.scale_up, device.host_link) if link is not None)
        return cls(
            name=device.name if count == 1 else f"{count} x {device.name}",
            device=device,
            count=count,
            tiers=(*device_tiers(device), *below),
            links=links,
        )

    def with_host_memory(self, size: int | None) -> Machine:
        """The machine with so many bytes of host memory; as it is where None is said or memory is one."""
        if size is None or self.device.unified_memory:
            return self
        own = self.tier("host") or HOST_MEMORY[self.device.host]
        host = replace(own, bytes=size, source=Source("measured", "--host-memory"))
        others = tuple(tier for tier in self.tiers if tier.name != "host")
        at = sum(other.name in ("sram", "l2", "hbm", "dram", "vram") for other in others)
        return replace(self, tiers=(*others[:at], host, *others[at:]))

    def tier(self, name: str) -> Tier | None:
        """The tier of that name, or None."""
        return next((tier for tier in self.tiers if tier.name == name), None)

    def link(self, name: str) -> Link | None:
        """The link of that name, or None."""
        return next((link for link in self.links if link.name == name), None)

    def to_dict(self) -> dict[str, Any]:
        """The machine as plain JSON values; ``from_dict`` takes it back unchanged."""
        return plain(self)

    @classmethod
    def from_dict(cls, value: Any, name: str = "machine") -> Machine:
        """A Machine from its plain form; KvroomError (``name`` is the field told) if it is none."""
        keys = checked(cls, value, name, ("name", "device"))
        keys["device"] = Device.from_dict(keys["device"], f"{name}.device")
        keys["tiers"] = parse_items(Tier, keys.get("tiers"), f"{name}.tiers")
        keys["links"] = parse_items(Link, keys.get("links"), f"{name}.links")
        return cls(**keys)


def parse_items(kind: type[Tier] | type[Link], value: Any, name: str) -> tuple[Any, ...]:
    """A list of tiers or links from its plain form; None is an empty one."""
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise KvroomError(name, value, "is not a list", "Write a list of tables.")
    return tuple(kind.from_dict(v, f"{name}[{index}]") for index, v in enumerate(value))


def device_tiers(device: Device) -> tuple[Tier, ...]:
    """What the device itself holds: its SRAM (the shared memory of all multiprocessors) and L2 cache where
    known, and its memory as an engine sees it."""
    tiers = [
        Tier(
            name="dram" if device.unified_memory else "hbm",
            bytes=device.engine_bytes,
            bytes_per_s=device.memory_bytes_per_s,
            source=device.source("memory_bytes_per_s"),
        )
    ]
    for name in ("l2", "sram"):
        size = getattr(device, f"{name}_bytes")
        if size is not None:
            rate, source = getattr(device, f"{name}_bytes_per_s"), device.source(f"{name}_bytes")
            tiers.insert(0, Tier(name=name, bytes=size, bytes_per_s=rate, source=source))
    return tuple(tiers)
