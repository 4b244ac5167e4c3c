"""What SGLang sees of the device: its CUDA generation and its memory in MiB."""

from __future__ import annotations

from kvroom.hardware.device import Device
from kvroom.records import dataclass
from kvroom.units import MIB


@dataclass(frozen=True, slots=True)
class SglangPlatform:
    """``sm`` is the compute capability as one number (90); 0 for a device without CUDA.

    ``memory_mib`` is what the driver lists, by which defaults are chosen. A card that does not state its
    generation counts as Hopper, whose rules are the best checked.
    """

    sm: int
    memory_mib: float

    @property
    def hopper(self) -> bool:
        """H100, H200, H20."""
        return self.sm // 10 == 9

    @property
    def sm100(self) -> bool:
        """Data-centre Blackwell (B200, B300, GB200)."""
        return self.sm // 10 == 10

    @property
    def blackwell(self) -> bool:
        """Any Blackwell, GeForce and GB10 too."""
        return self.sm // 10 in (10, 12)


def platform_of(device: Device) -> SglangPlatform:
    """The platform that SGLang finds on ``device``."""
    stated = device.compute_capability or "9.0"
    major, _, minor = stated.partition(".")
    cuda = device.vendor.lower() in ("nvidia", "unknown", "")
    sm = int(major) * 10 + int(minor[:1] or 0) if major.isdecimal() and minor.isdecimal() else 90
    return SglangPlatform(
        sm=sm if cuda else 0,
        memory_mib=(device.driver_bytes or device.engine_bytes) / MIB,
    )
