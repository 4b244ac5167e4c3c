"""What the NVIDIA driver says of its GPUs, through NVML (nvidia-ml-py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvroom.records import dataclass

PCIE_BYTES_PER_S = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
"""One lane in one direction, by generation, after its line code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One GPU as its driver sees it; None is what the driver does not tell."""

    name: str
    total_bytes: int | None
    free_bytes: int | None
    compute_capability: str | None
    pcie_generation: int | None
    pcie_lanes: int | None
    nvlinks: int
    """Active NVLink connections."""
    mig: bool

    @property
    def pcie_bytes_per_s(self) -> float | None:
        """The host link's rate in one direction, by its generation and lanes."""
        lane = PCIE_BYTES_PER_S.get(self.pcie_generation or 0)
        return lane * self.pcie_lanes if lane and self.pcie_lanes else None


@dataclass(frozen=True, slots=True)
class Driver:
    """The driver's version and its GPUs; with none, ``why`` says so in a sentence."""

    version: str | None
    cards: tuple[Card, ...]
    why: str | None = None


def read(nvml: Any = None) -> Driver:
    """Ask the driver. Without the library, a driver or a GPU the answer is empty and says why."""
    if nvml is None:
        try:
            import pynvml
        except ModuleNotFoundError:
            return Driver(None, (), "nvidia-ml-py is not installed (pip install kvroom[probe])")
        nvml = pynvml
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return Driver(None, (), f"no NVIDIA driver answers ({error})")
    try:
        count = nvml.nvmlDeviceGetCount()
        cards = tuple(_card(nvml, nvml.nvmlDeviceGetHandleByIndex(index)) for index in range(count))
        version = _or_none(nvml, nvml.nvmlSystemGetDriverVersion)
    except nvml.NVMLError as error:
        return Driver(None, (), f"the NVIDIA driver does not tell its GPUs ({error})")
    finally:
        nvml.nvmlShutdown()
    why = None if cards else "the NVIDIA driver has no GPU"
    return Driver(_text(version), cards, why)


def _card(nvml: Any, handle: Any) -> Card:
    def ask(call: str, *args: Any) -> Any:
        function: Callable[..., Any] | None = getattr(nvml, call, None)
        return None if function is None else _or_none(nvml, function, handle, *args)

    memory = ask("nvmlDeviceGetMemoryInfo", getattr(nvml, "nvmlMemory_v2", None))
    if memory is None:  # an old driver knows the first version only
        memory = ask("nvmlDeviceGetMemoryInfo")
    capability = ask("nvmlDeviceGetCudaComputeCapability")
    mode = ask("nvmlDeviceGetMigMode")
    links = 0
    for link in range(getattr(nvml, "NVML_NVLINK_MAX_LINKS", 18)):
        links += bool(ask("nvmlDeviceGetNvLinkState", link))
    return Card(
        name=_text(ask("nvmlDeviceGetName")) or "NVIDIA GPU",
        total_bytes=_count(memory, "total"),
        free_bytes=_count(memory, "free"),
        compute_capability=".".join(map(str, capability)) if capability else None,
        pcie_generation=ask("nvmlDeviceGetMaxPcieLinkGeneration"),
        pcie_lanes=ask("nvmlDeviceGetMaxPcieLinkWidth"),
        nvlinks=links,
        mig=bool(mode and mode[0]),
    )


def _or_none(nvml: Any, function: Callable[..., Any], *args: Any) -> Any:
    """The answer, None where this card or driver has none."""
    try:
        return function(*args)
    except nvml.NVMLError:
        return None


def _count(memory: Any, name: str) -> int | None:
    value = getattr(memory, name, None)
    return None if value is None else int(value)


def _text(value: Any) -> str | None:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
