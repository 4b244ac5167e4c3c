"""What vLLM sees of the device: a CUDA generation, a CPU, or another, and how large it is."""

from __future__ import annotations

from kvroom.hardware.device import Device
from kvroom.records import dataclass

HOPPER = 9
OTHERS = ("amd", "intel", "google", "apple", "huawei", "aws", "cerebras", "groq")
"""Vendors of devices that are no CUDA ones."""
BLACKWELL = 10
"""Major compute capabilities; consumer Blackwell is 12."""


MULTIPROCESSORS = {
    "7.0": 80, "7.5": 40, "8.0": 108, "8.6": 82, "8.9": 128, "9.0": 132, "10.0": 148, "10.3": 152,
    "12.0": 170, "12.1": 48,
}  # fmt: skip
"""Of the usual card of a compute capability (vendors' data sheets)."""


@dataclass(frozen=True, slots=True)
class VllmPlatform:
    """``cuda`` is the major compute capability (0: no CUDA device); ``memory_bytes`` the whole card's.

    A card that does not state its generation counts as Hopper, whose rules are the best checked.
    """

    cuda: int
    cpu: bool
    memory_bytes: int
    name: str
    small: bool = False
    """A device with the memory of a large card but not its compute (GB10)."""
    minor: int = 0
    """The minor compute capability."""
    multiprocessors: int = 132
    """Streaming multiprocessors of the card."""
    unified: bool = False
    """Memory that the host uses too."""
    hip: bool = False
    """An AMD GPU."""
    tpu: bool = False
    """A TPU, whose compiled programs hold what a GPU keeps beside them."""
    latent_tiles: bool = False
    """A CPU whose matrix tiles (AMX) have a kernel for latent attention."""
    state_fp32: bool = False
    """A CPU whose recurrent kernels (AVX-512 with BF16) keep state in FP32."""

    @property
    def graphs(self) -> bool:
        """Whether there are graphs to capture (CUDA's, or HIP's)."""
        return self.cuda > 0 or self.hip


def platform_of(device: Device) -> VllmPlatform:
    """The platform that vLLM finds on ``device``.

    A CPU's ``compute_capability`` are its instruction sets as Linux names them (``amx_tile avx512_bf16``);
    one that states none counts as having ``avx512_bf16``.
    """
    vendor = device.vendor.lower()
    cpu = vendor == "cpu" or "cpu" in device.name.lower()
    other = cpu or vendor in OTHERS
    stated = device.compute_capability or ""
    major, _, minor = stated.partition(".")
    cuda = 0 if other else int(major) if major.isdecimal() else HOPPER
    return VllmPlatform(
        cuda=cuda,
        cpu=cpu,
        memory_bytes=device.engine_bytes,
        name=device.name.lower(),
        small=(major, minor) == ("12", "1"),
        minor=int(minor) if not other and minor.isdecimal() else 0,
        multiprocessors=MULTIPROCESSORS.get(stated, 132),
        unified=device.unified_memory,
        hip=vendor == "amd" and not cpu,
        tpu=vendor == "google",
        latent_tiles=cpu and "amx" in stated.lower(),
        state_fp32=cpu and (not stated or "avx512_bf16" in stated.lower()),
    )
