"""The LoRA adapters that vLLM's flags make room for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvroom.engines import flags as read
from kvroom.engines.adapters import Adapters, enabled, number, targets_of
from kvroom.engines.vllm.versions import parse_release, rules_of
from kvroom.errors import KvroomError
from kvroom.models.spec import ModelSpec

SLOTS, RANK = 1, 16
RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The ranks that ``max_lora_rank`` takes."""
ELEMENT_BYTES = {"auto": 2, "bfloat16": 2, "float16": 2, "float32": 4}
WITH_EMBEDDING = frozenset(
    {
        "apertus",
        "exaone",
        "exaone4",
        "exaone_moe",
        "falcon_h1",
        "granite",
        "granitemoe",
        "granitemoehybrid",
        "granitemoeshared",
        "jamba",
        "lfm2",
        "lfm2_moe",
        "llama",
        "minicpm",
        "mixtral",
        "nemotron",
        "nemotron-nas",
        "nemotron_h",
        "phimoe",
        "qwen3",
        "qwen3_5",
        "qwen3_5_moe",
        "qwen3_moe",
        "solar",
    }
)
"""Models whose token table and head it adapts too (their class's ``embedding_modules``)."""


def adapters_of(version: str | None, args: Mapping[str, Any], model: ModelSpec) -> Adapters | None:
    """The adapters; None without them. KvroomError where vLLM has no such rank, adapters or not."""
    flags = read.plain_args(args)
    if "max_lora_rank" in flags:
        _rank(flags["max_lora_rank"])
    if not enabled(flags):
        return None
    return Adapters(
        slots=number(flags, "max_loras", SLOTS),
        rank=_rank(flags.get("max_lora_rank", RANK)),
        element_bytes=ELEMENT_BYTES.get(str(flags.get("lora_dtype", "auto")), 2),
        targets=targets_of(flags),
        sharded=read.switch("engine_args.fully_sharded_loras", flags.get("fully_sharded_loras", 0)),
        embedding=model.model_type in WITH_EMBEDDING,
        experts=rules_of(parse_release(version)[0]).expert_adapters,
    )


def _rank(value: Any) -> int:
    field = "engine_args.max_lora_rank"
    rank = read.number(field, value, 1, 100_000)
    if rank not in RANKS:
        fix = f"Use one of {', '.join(map(str, RANKS))}: the first that holds your adapters."
        raise KvroomError(field, value, "is no rank that vLLM makes buffers of", fix)
    return rank
