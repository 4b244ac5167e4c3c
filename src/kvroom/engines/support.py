"""What runs on an engine: widths of cache and weights, ways of drafting, cards; since when, on which chips.

A ``Requirement`` says what one of them needs; ``None`` is a figure nobody states. Compute capability is
CUDA's: 8.0 Ampere, 8.9 Ada, 9.0 Hopper, 10.0 Blackwell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field

from kvroom.engines.releases import Release, nearest_release, shown
from kvroom.hardware.device import Device
from kvroom.models.weight_dtypes import EXL2, MLX, WEIGHT_DTYPES
from kvroom.records import dataclass

FAR: Release = (9999, 9999, 9999)
HEAD = "an EAGLE-3 head trained for this model"
W8 = "a checkpoint in INT8 (W8A8)"
W4 = "a checkpoint in 4 bits (AWQ or GPTQ)"
W4F = "a checkpoint in NVFP4"
OFFLINE_SCALES = "scales made offline (Model Optimizer)"
"""What a checkpoint has to be, where no flag makes it."""
CDNA = ("cdna3", "cdna4")
"""AMD's chips that compute in FP8."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """What an engine needs for one dtype or way of serving.

    ``capability`` is the least CUDA compute capability and ``chips`` its name; ``amd``: the generations
    of AMD chips that do as well. ``flag``: one flag of the engine turns it on; otherwise ``checkpoint``
    says what has to be made first. ``refuses``: the engine does not start without it; else it is slower, or
    nobody says.
    """

    source: str
    since: Release | None = None
    capability: float | None = None
    chips: str = ""
    amd: tuple[str, ...] = ()
    flag: bool = True
    checkpoint: str = ""
    refuses: bool = False

    def listed(self, label: str) -> Iterator[str]:
        """In words, an item each, of an engine called ``label``."""
        if self.since is not None:
            yield f"{label} {shown(self.since)} or later"
        if self.chips:
            yield f"{self.chips} (CUDA compute capability {self.capability:g})"
        if self.checkpoint:
            yield self.checkpoint

    def too_old(self, label: str, version: str | None) -> str | None:
        """Why ``version`` rules it out; None where nothing known does."""
        if self.since is not None and version:
            release, warning = nearest_release(label, version, (0, 0, 0), FAR)
            if not warning and release < self.since:
                return f"{label} {version} is older than {shown(self.since)}"
        return None

    def refusal(self, label: str, version: str | None, device: Device) -> str | None:
        """Why ``device`` or ``version`` rules it out; None where nothing known does."""
        if older := self.too_old(label, version):
            return older
        if self.capability is None or device.vendor == "none":
            return None
        if device.vendor == "nvidia" and device.compute_capability is not None:
            if float(device.compute_capability) < self.capability:
                return f"{device.name} is not {self.chips}"
            return None
        if device.vendor == "amd":
            return None if device.generation in self.amd else f"not known to run on {device.name}"
        return None


Requirements = Mapping[str, Requirement]
TENSORS: tuple[str, ...] = tuple(name for name in WEIGHT_DTYPES if name not in (*EXL2, *MLX))
"""Weights that engines read which take safetensors and GGUF files alike: all but ExLlamaV2's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Support:
    """What runs on an engine, by kvroom's names of dtypes and ways of drafting.

    ``cache``, ``weights``, ``drafting``: what may be chosen, with its Requirement; ``offload`` (cached
    prefixes in host memory) and ``split`` (prompts and answers in separate pools): None where not known.
    ``storage_below_host``: other tiers are read through host memory only.
    ``context_ranks``: decode-context ranks are reckoned with. ``cache_types``: all that keys and values may
    be stored in, ``weight_types`` all checkpoints that it loads (None: not known; the model's own width
    is always one). ``capability`` is the least compute capability it is built for, ``vendors`` the only
    makers it runs on.
    """

    cache: Requirements = field(default_factory=dict)
    weights: Requirements = field(default_factory=dict)
    drafting: Requirements = field(default_factory=dict)
    offload: Requirement | None = None
    storage_below_host: bool = False
    split: Requirement | None = None
    context_ranks: bool = False
    cache_types: tuple[str, ...] | None = None
    weight_types: tuple[str, ...] | None = None
    capability: float | None = None
    vendors: tuple[str, ...] = ()


def weights_need(table: Requirements, dtype: str) -> Requirement | None:
    """What weights in ``dtype`` need: their own row, else that of their family (``fp8_block``: ``fp8``)."""
    return table.get(dtype) or table.get(dtype.partition("_")[0])


def drafting(source: str, *methods: str) -> Requirements:
    """Ways of drafting: a head must be trained, the rest is a flag."""
    head = Requirement(source=source, flag=False, checkpoint=HEAD)
    return {
        method: head if method == "eagle3" else Requirement(source=source) for method in methods
    }


def split(source: str, library: str) -> Requirement:
    """What it needs to compute prompts in one pool and answers in another."""
    return Requirement(
        source=source, flag=False, checkpoint=f"{library}, and a router before the pools"
    )
