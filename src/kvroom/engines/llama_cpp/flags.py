"""llama-server's flags as a Scenario gives them: checked, and those that bear on memory under one roof.

Names are the long ones with underscores; the short ones (``c``, ``np``, ``ngl`` …) mean the same.
LlamaCppFlags without bearing on memory are passed over; an unknown one is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvroom.engines import flags as read
from kvroom.engines.flag_names import flag_names
from kvroom.errors import KvroomError
from kvroom.models.dtypes import CACHE_ALIASES
from kvroom.records import dataclass
from kvroom.units import MIB

NAMES = flag_names(__package__)
TYPES = ("fp32", "fp16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")
"""What llama.cpp stores keys and values in, by kvroom's names."""
CACHE_WORDS = {"fp16": "f16", "fp32": "f32"}
"""Its words for them, and Ollama's, where they are others."""
ALL = 10**6
"""More layers than any model has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaCppFlags:
    """The flags that bear on memory; None where llama.cpp decides. ``auto_slots``: its own default
    number of slots is asked for."""

    total: int | None = None
    slots: int | None = None
    auto_slots: bool = False
    unified: bool | None = None
    slot_tokens: int | None = None
    batch: int = 2048
    ubatch: int = 512
    flash: bool | None = None
    key: str | None = None
    value: str | None = None
    swa_full: bool = False
    gpu_layers: int | None = None
    split_mode: str = "layer"
    tensor_split: tuple[float, ...] = ()
    main_gpu: int = 0
    kv_on_gpu: bool = True
    host_experts: int = 0
    overridden: bool = False
    fit: bool | None = None
    fit_margin: tuple[int, ...] = ()
    fit_context: int = 4096
    towers: bool = False
    drafted: int = 0
    mla: int | None = None


def read_flags(args: Mapping[str, Any], engine: str = "llama.cpp") -> LlamaCppFlags:
    """The flags of ``args``; KvroomError names one that is unknown or has a value that cannot be."""
    stated = named(args)
    read.check_known(engine, stated, KNOWN_FLAGS)
    fields = read.fields_of(READERS, stated)
    for name, field in _NEGATIVES.items():
        if stated.get(name) is not None:
            fields[field] = not read.switch(f"engine_args.{name}", stated[name])
    if "parallel" in stated:
        slots = read.number("engine_args.parallel", stated["parallel"], -1, 100_000)
        fields["slots"], fields["auto_slots"] = (slots, False) if slots > 0 else (None, True)
    if read.switch("engine_args.cpu_moe", stated.get("cpu_moe", False)):
        fields["host_experts"] = ALL
    fields["overridden"] = bool(stated.get("override_tensor"))
    if stated.get("mmproj"):
        fields["towers"] = fields.get("towers", True)
    else:
        fields["towers"] = False
    if "spec_type" in stated and _rolls_back(stated["spec_type"]):
        drafted = stated.get("spec_draft_n_max", stated.get("draft_max", 0))
        fields["drafted"] = read.number("engine_args.spec_draft_n_max", drafted, 0, 1000)
    return LlamaCppFlags(**fields)


def named(args: Mapping[str, Any]) -> dict[str, Any]:
    """``args`` by their long names."""
    long_names: dict[str, Any] = {}
    for key, value in args.items():
        name = read.plain_name(key)
        long_names[NAMES.aliases.get(name, name)] = value
    return long_names


def cache_type(field: str, value: Any) -> str:
    """A cache type by kvroom's name; KvroomError where llama.cpp has no such."""
    word = read.text(field, value)
    name = CACHE_ALIASES.get(word, word)
    if name not in TYPES:
        fix = "Use q8_0 for one byte a number, or q4_0; f16 is the default."
        raise KvroomError(field, value, "is no cache type of llama.cpp", fix)
    return name


def _rolls_back(value: Any) -> bool:
    """Whether this way of speculating keeps older recurrent states, to go back to."""
    word = str(value).lower().replace("_", "-")
    return any(w in word for w in ("mtp", "eagle3", "dflash"))


def _layers(field: str, value: Any) -> int | None:
    word = value.strip().lower() if isinstance(value, str) else value
    if word in ("auto", -1, "-1"):
        return None
    return ALL if word in ("all", -2, "-2") else read.number(field, value, 0, ALL)


def _tri(field: str, value: Any) -> bool | None:
    """on, off or auto."""
    word = value.strip().lower() if isinstance(value, str) else value
    return None if word in ("auto", -1, "-1") else read.switch(field, value)


def _context(field: str, value: Any) -> int:
    return read.number(field, value, 0, 10**9)


def _small(field: str, value: Any) -> int:
    return read.number(field, value, 0, 100_000)


def _margins(field: str, value: Any) -> tuple[int, ...]:
    """MiB to leave free, for all devices or one each."""
    listed = value.replace(",", " ").split() if isinstance(value, str) else value
    if not isinstance(listed, list | tuple):
        listed = [listed]
    return tuple(read.number(field, v, 0, 10**8) * MIB for v in listed)


def split_shares(field: str, value: Any) -> tuple[float, ...]:
    """The cards' shares of ``tensor_split``: proportions between commas or slashes. KvroomError where they
    are none."""
    listed = value.replace("/", ",").split(",") if isinstance(value, str) else value
    if not isinstance(listed, list | tuple):
        listed = [listed]
    shares = tuple(read.fraction(field, v, 1e9) for v in listed)
    if not any(shares):
        raise KvroomError(field, value, "gives no GPU a share", "Write proportions, such as 3,1.")
    return shares


READERS: dict[str, tuple[str, read.Reader]] = {
    "ctx_size": ("total", _context),
    "kv_unified": ("unified", read.switch),
    "kv_unified_per_slot": ("slot_tokens", read.count),
    "batch_size": ("batch", read.count),
    "ubatch_size": ("ubatch", read.count),
    "flash_attn": ("flash", _tri),
    "cache_type_k": ("key", cache_type),
    "cache_type_v": ("value", cache_type),
    "swa_full": ("swa_full", read.switch),
    "n_gpu_layers": ("gpu_layers", _layers),
    "split_mode": ("split_mode", read.one_of("none", "layer", "row", "tensor")),
    "tensor_split": ("tensor_split", split_shares),
    "main_gpu": ("main_gpu", _small),
    "kv_offload": ("kv_on_gpu", read.switch),
    "n_cpu_moe": ("host_experts", _small),
    "fit": ("fit", read.switch),
    "fit_target": ("fit_margin", _margins),
    "fit_ctx": ("fit_context", read.count),
    "mmproj_offload": ("towers", read.switch),
    "mla_use": ("mla", _small),
}
_NEGATIVES = {
    "no_kv_unified": "unified",
    "no_kv_offload": "kv_on_gpu",
    "no_mmproj_offload": "towers",
}
_SPECIAL = (
    "parallel",
    "cpu_moe",
    "override_tensor",
    "mmproj",
    "spec_type",
    "spec_draft_n_max",
    "draft_max",
)
KNOWN_FLAGS = frozenset((*READERS, *_NEGATIVES, *_SPECIAL, *NAMES.aliases, *NAMES.others))
"""Every flag that a Scenario may carry."""
