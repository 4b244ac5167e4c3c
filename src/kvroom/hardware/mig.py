"""Slices of a card: NVIDIA's Multi-Instance GPU, ``H100-SXM:mig=3g.40gb``.

A slice has a part of the multiprocessors and a part of the memory with its own controllers and L2 cache, so
the same part of the bandwidth; no other slice slows it. Parts are those of NVIDIA's MIG User Guide
(Supported MIG Profiles). What the guide gives by the card's label is taken of the card's own bytes, so a
slice's are assumed: the driver keeps some for itself. Slices are not linked to one another.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from kvroom.errors import KvroomError, did_you_mean
from kvroom.hardware.device import REST, Device, Source
from kvroom.records import dataclass

MARK = ":mig="
GUIDE = "NVIDIA MIG User Guide, Supported MIG Profiles"


@dataclass(frozen=True, slots=True)
class MigProfile:
    """One size of slice: its name, the parts of memory (and bandwidth) and of multiprocessors, and how many
    a card has room for."""

    name: str
    memory: Fraction
    compute: Fraction
    most: int


_SEVENTHS = ((1, 1, 7), (1, 2, 4), (2, 2, 3), (3, 4, 2), (4, 4, 1), (7, 8, 1))
"""Multiprocessors in sevenths, memory in eighths, and how many: A100, H100, H200, B200 and their kin."""
_FOURTHS = ((1, 1, 4), (2, 2, 2), (4, 4, 1))
"""The same in fourths of both: A30, RTX PRO 6000 Blackwell."""
_SIZES = {
    "A100-SXM-40": (5, 10, 10, 20, 20, 40),
    "A100-PCIE-40": (5, 10, 10, 20, 20, 40),
    "A100-SXM-80": (10, 20, 20, 40, 40, 80),
    "A100-PCIE-80": (10, 20, 20, 40, 40, 80),
    "A30": (6, 12, 24),
    "H100-SXM": (10, 20, 20, 40, 40, 80),
    "H100-PCIE": (10, 20, 20, 40, 40, 80),
    "H100-NVL": (12, 24, 24, 47, 47, 94),
    "H200-SXM": (18, 35, 35, 71, 71, 141),
    "H200-NVL": (18, 35, 35, 71, 71, 141),
    "GH200-96": (12, 24, 24, 48, 48, 96),
    "B200-SXM": (23, 45, 45, 90, 90, 180),
    "RTX-PRO-6000": (24, 48, 96),
    "RTX-PRO-6000-BSE": (24, 48, 96),
    "RTX-PRO-6000-MaxQ": (24, 48, 96),
}
"""GB in the names of each card's profiles, in the order of its parts."""


def profiles(device: Device) -> tuple[MigProfile, ...]:
    """The slices that ``device`` may be cut into, the smallest first; none where it has no MIG."""
    key = device.name.lower()
    sizes = next((sizes for card, sizes in _SIZES.items() if card.lower() == key), ())
    parts, of_compute, of_memory = (
        (_FOURTHS, 4, 4) if len(sizes) == len(_FOURTHS) else (_SEVENTHS, 7, 8)
    )
    return tuple(
        MigProfile(
            f"{cores}g.{size}gb", Fraction(memory, of_memory), Fraction(cores, of_compute), most
        )
        for size, (cores, memory, most) in zip(sizes, parts, strict=False)
    )


def profile_of(device: Device, name: str) -> MigProfile:
    """The profile of that name; KvroomError (field ``gpu``) where ``device`` has none such."""
    by_name = {profile.name: profile for profile in profiles(device)}
    if name.strip().lower() in by_name:
        return by_name[name.strip().lower()]
    if not by_name:
        fix = f"Cards with it: {', '.join(_SIZES)}."
        raise KvroomError("gpu", device.name, "is cut into no MIG slices that are known", fix)
    fix = did_you_mean(name, by_name, f"It has {', '.join(by_name)}.")
    raise KvroomError("gpu", name, f"is no MIG profile of {device.name}", fix)


def slice_of(device: Device, name: str) -> Device:
    """``device``'s slice of the profile ``name``, as a card of its own, without a price or links."""
    profile = profile_of(device, name)

    def part(size: int | None) -> int | None:
        return None if size is None else max(1, int(size * profile.memory))

    source = Source("assumed", f"{device.name}'s times the profile's part ({GUIDE})")
    return replace(
        device,
        name=f"{device.name}{MARK}{profile.name}",
        aliases=(),
        sold_bytes=max(1, int(device.sold_bytes * profile.memory)),
        driver_bytes=part(device.driver_bytes),
        visible_bytes=part(device.visible_bytes),
        memory_bytes_per_s=device.memory_bytes_per_s * float(profile.memory),
        l2_bytes=part(device.l2_bytes),
        l2_bytes_per_s=device.l2_bytes_per_s and device.l2_bytes_per_s * float(profile.memory),
        sram_bytes=device.sram_bytes and max(1, int(device.sram_bytes * profile.compute)),
        sram_bytes_per_s=device.sram_bytes_per_s
        and device.sram_bytes_per_s * float(profile.compute),
        flops_per_s={
            dtype: peak * float(profile.compute) for dtype, peak in device.flops_per_s.items()
        },
        scale_up=None,
        tdp_w=None,
        usd_per_hour=None,
        sources={REST: source},
    )


def check_together(device: Device, names: tuple[str, ...]) -> None:
    """Refuse slices that one card has no room for."""
    slices = [profile_of(device, name) for name in names]
    memory = sum((profile.memory for profile in slices), Fraction())
    compute = sum((profile.compute for profile in slices), Fraction())
    if memory > 1 or compute > 1:
        over = "memory" if memory > 1 else "multiprocessors"
        fix = "Take fewer or smaller slices (nvidia-smi mig -lgipp lists placements)."
        raise KvroomError("gpu", "+".join(names), f"are more than the card's {over}", fix)
