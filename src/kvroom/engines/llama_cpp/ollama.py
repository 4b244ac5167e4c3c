"""Ollama's rules: what it makes of its options before llama.cpp (or its own engine) takes them.

Options are those of a Modelfile (``num_ctx``, ``num_gpu`` …) and of the server's environment
(``OLLAMA_NUM_PARALLEL`` as ``num_parallel``, with or without its prefix). Sources: the releases'
``server/sched.go``, ``llm/server.go`` and ``llm/llama_server.go``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from kvroom.engines import flags as read
from kvroom.engines.flag_names import flag_names
from kvroom.engines.llama_cpp.flags import ALL, LlamaCppFlags, cache_type
from kvroom.engines.llama_cpp.versions import NEWEST as BUILD
from kvroom.engines.llama_cpp.versions import BuildRules, rules_of
from kvroom.engines.releases import Release, nearest_release, rules_at
from kvroom.models.spec import ModelSpec
from kvroom.records import dataclass
from kvroom.units import GIB, MIB

OLDEST: Release = (0, 6, 0)
NEWEST: Release = (0, 30, 0)
RESERVE_BYTES = 457 * MIB
"""What Ollama's own engine leaves of each GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OllamaRules:
    """What one release does. The defaults are those of the oldest modelled."""

    context: int = 2048
    """The default context of one slot."""
    context_by_memory: bool = False
    """The default context follows the GPUs' memory instead."""
    slots: int = 4
    """Slots that nobody asked for, where all of the model then lies on GPUs; else one."""
    flash: tuple[str, ...] = ()
    """Beginnings of the model types with flash attention by default; "" is every one."""
    flash_with_towers: bool = False
    """Models with an image encoder have it too."""
    server: bool = False
    """Models run in llama-server; before, in Ollama's own engine."""


CHANGES: tuple[tuple[Release, dict[str, Any]], ...] = (
    ((0, 6, 7), {"context": 4096, "slots": 2}),  # #10452, #10468
    ((0, 10, 0), {"slots": 1}),  # #11330
    ((0, 11, 8), {"flash": ("gpt_oss",)}),  # its release notes
    ((0, 12, 4), {"flash": ("gpt_oss", "qwen3")}),  # its release notes
    ((0, 12, 6), {"flash": ("gpt_oss", "qwen3", "gemma3")}),  # #12639
    ((0, 13, 2), {"flash_with_towers": True}),  # its release notes
    ((0, 13, 4), {"flash": ("",)}),  # its release notes
    ((0, 15, 5), {"context_by_memory": True}),  # #14116
    ((0, 30, 0), {"server": True}),
)
OWN_ENGINE = BuildRules(
    windows=True,
    window_adds="ubatch",
    flash=True,
    all_layers=True,
    fit=True,
    latent="latent",
)
"""Ollama's own engine in llama.cpp's terms: one row of cells for all slots. Flash attention is the
release's (``OllamaRules``)."""

ONE_SLOT = (
    "mllama",
    "qwen3_vl",
    "qwen3_vl_moe",
    "qwen3_5",
    "qwen3_5_moe",
    "qwen3_next",
    "lfm2",
    "nemotron_h",
)
"""Models that it serves one request at a time, by the beginning of their type."""

OTHERS = flag_names(__package__, "ollama.ini").others
"""Options that are passed over."""
KNOWN = (
    "num_ctx",
    "context_length",
    "num_parallel",
    "num_batch",
    "num_gpu",
    "kv_cache_type",
    "flash_attention",
    "gpu_overhead",
    "sched_spread",
)
_VARIABLES = """
    context_length num_parallel kv_cache_type flash_attention gpu_overhead sched_spread keep_alive
    max_loaded_models max_queue load_timeout host models debug origins noprune nohistory tmpdir
    new_engine multiuser_cache llm_library intel_gpu
"""
ENVIRONMENT = frozenset(_VARIABLES.split())
"""Settings of the server's environment, without OLLAMA_; every other is a Modelfile's parameter."""


@dataclass(frozen=True, slots=True)
class Options:
    """Ollama's options in llama.cpp's flags, and what llama.cpp has no flag for."""

    flags: LlamaCppFlags
    batch_asked: bool
    overhead_bytes: int
    spread: bool
    auto_slots: int = 1
    """Slots where none are asked for and all of the model lies on GPUs."""
    warnings: tuple[str, ...] = ()


@lru_cache(maxsize=64)
def ollama_rules(release: Release) -> OllamaRules:
    """The rules that hold in ``release``."""
    return rules_at(OllamaRules(), CHANGES, release)


def release_of(version: str | None) -> tuple[OllamaRules, BuildRules, str]:
    """Ollama's rules, those of the engine under it, and a warning ("" where none is due)."""
    release, note = nearest_release("Ollama", version, OLDEST, NEWEST)
    rules = ollama_rules(release)
    return rules, rules_of(BUILD) if rules.server else OWN_ENGINE, note


def named(args: Mapping[str, Any]) -> dict[str, Any]:
    """``args`` by their plain names, without the environment's prefix."""
    return {
        read.plain_name(key).lower().removeprefix("ollama_"): value for key, value in args.items()
    }


def read_options(args: Mapping[str, Any], model: ModelSpec, rules: OllamaRules) -> Options:
    """The options of ``args``; KvroomError names one that is unknown or has a value that cannot be."""
    options = named(args)
    read.check_known("Ollama", options, (*KNOWN, *OTHERS))
    stated = {key: value for key, value in options.items() if value is not None}

    def number(name: str, low: int, high: int = 10**9) -> int:
        return read.number(f"engine_args.{name}", stated[name], low, high)

    fields: dict[str, Any] = {}
    slots = number("num_parallel", 1, 100_000) if "num_parallel" in stated else None
    warnings: tuple[str, ...] = ()
    if model.model_type.startswith(ONE_SLOT):
        if slots not in (None, 1):
            warnings = (
                f"num_parallel {slots} is not used: Ollama serves {model.model_type} models one "
                "request at a time",
            )
        slots = 1
    auto_slots = 1 if slots else rules.slots
    length = next((number(n, 1) for n in ("num_ctx", "context_length") if n in stated), None)
    if length is not None:
        length, shortened = trained(length, model)
        warnings += shortened
        slots = slots or 1
        fields["total"] = length * slots
    if "num_gpu" in stated:
        layers = number("num_gpu", -1)
        fields["gpu_layers"] = None if layers < 0 else min(layers, ALL)
    if "num_batch" in stated:
        fields["batch"] = fields["ubatch"] = number("num_batch", 1)
    flash = fields["flash"] = (
        read.switch("engine_args.flash_attention", stated["flash_attention"])
        if "flash_attention" in stated
        else has_flash(rules, model)
    )
    if "kv_cache_type" in stated:
        kind = cache_type("engine_args.kv_cache_type", stated["kv_cache_type"])
        if flash or kind in ("fp16", "bf16", "fp32"):
            fields["key"] = fields["value"] = kind
        else:
            warnings += (
                f"kv_cache_type {stated['kv_cache_type']} is not used: the cache stays fp16 without "
                "flash attention (OLLAMA_FLASH_ATTENTION=1)",
            )
    return Options(
        flags=LlamaCppFlags(slots=slots, unified=False, **fields),
        batch_asked="num_batch" in stated,
        overhead_bytes=number("gpu_overhead", 0, 10**15) if "gpu_overhead" in stated else 0,
        spread=read.switch("engine_args.sched_spread", stated.get("sched_spread", False)),
        auto_slots=auto_slots,
        warnings=warnings,
    )


def trained(tokens: int, model: ModelSpec) -> tuple[int, tuple[str, ...]]:
    """(num_ctx as it is served, what to say of it): no more than the model was trained to (Ollama,
    llm/server.go: "requested context size too large for model")."""
    limit = model.max_context_tokens
    if limit is None or tokens <= limit:
        return tokens, ()
    return limit, (f"num_ctx {tokens:,} is shortened by Ollama to the model's own {limit:,}",)


def has_flash(rules: OllamaRules, model: ModelSpec) -> bool:
    """Whether a model has flash attention that nobody asked for."""
    towers = rules.flash_with_towers and bool(model.beside)
    return towers or model.model_type.startswith(rules.flash or ("-",))


def default_context(
    rules: OllamaRules, model: ModelSpec, gpu_bytes: Sequence[int], overhead_bytes: int = 0
) -> int:
    """The context (num_ctx) of a model that none is asked for: by the memory of all GPUs, less what
    OLLAMA_GPU_OVERHEAD keeps free of each."""
    length = rules.context
    if rules.context_by_memory:
        total = sum(gpu_bytes) - overhead_bytes * len(gpu_bytes)
        length = 262_144 if total >= 47 * GIB else 32_768 if total >= 23 * GIB else 4096
    return min(length, model.max_context_tokens or length)


def predicted_bytes(model: ModelSpec, weight_bytes: int, tokens: int) -> int:
    """Ollama's own guess of what a model takes: its file, and 16-bit cache at every layer."""
    heads = model.kv_heads or 1
    width = model.hidden_size // (model.q_heads or 1)
    return weight_bytes + 2 * model.num_layers * heads * width * tokens * 2


def auto_batch(predicted: int, tokens: int, available: int, flash: bool) -> int:
    """The batch that Ollama gives llama-server: larger for long contexts where memory is at hand."""
    if not flash:
        return 256 if tokens > 4096 and available <= 8 * GIB else 512
    for batch, above, share, more in ((2048, 32_768, 0.6, 2 * GIB), (1024, 4096, 0.75, 768 * MIB)):
        fits = predicted <= share * available and predicted + more <= 0.8 * available
        if tokens > above and fits:
            return batch
    return 512
