"""What TensorRT-LLM prints at its start, engines of old and the PyTorch backend."""

from __future__ import annotations

import re
from typing import Any

from kvroom.engines.log_memory import at_stage, memory_shapes
from kvroom.engines.log_reader import LogReader
from kvroom.engines.log_reprs import read_dict
from kvroom.engines.log_shapes import Figures, Record, Shape, whole
from kvroom.units import MIB

ENGINE = "tensorrt-llm"


def _arguments(record: Record, match: re.Match[str]) -> None:
    record.settings.update(read_dict(match["rest"]))


def _loaded(record: Record, match: re.Match[str]) -> None:
    value = whole(match["mib"])
    record.add("weights_bytes", None if value is None else value * MIB)


def _pool(record: Record, match: re.Match[str]) -> None:
    """A window's pool; the estimation run's own is printed first, so the latest holds."""
    window = match["window"] or "all"
    record.part("blocks", window, whole(match["primary"]))
    record.add("tokens_per_block", whole(match["per"]))


FRAMES = {
    "load_weights": "load",
    "_load_model": "load",
    "configure_kv_cache_capacity": "profile",
    "estimate_max_tokens": "profile",
    "build_managers": "cache",
    "warmup": "graphs",
    "_forward_step": "serve",
}
"""Functions that a traceback names, and the stage of a start they are."""
PRINTED = (("weights_bytes", "load"), ("kv_available_bytes", "cache"))
COMPONENTS = (("model engine", "load"), ("kv cache", "cache"), ("warm", "graphs"))


def _component(record: Record, match: re.Match[str]) -> None:
    """What could not be created, in its own words."""
    words = match["what"].lower()
    stage = next((stage for word, stage in COMPONENTS if word in words), "")
    at_stage(record, stage, match[0])


SHAPES: tuple[Shape, ...] = (
    Shape(
        "trtllm engine with args",
        r"engine with args:?\s*(?P<rest>\{.*)",
        opens=True,
        read=_arguments,
    ),
    Shape("TensorRT-LLM version", r"TensorRT-LLM version: v?{engine_version}(?:\s|$)"),
    Shape("TensorRT LLM version", r"TensorRT LLM version: v?{engine_version}(?:\s|$)"),
    Shape("Loaded engine size", r"Loaded engine size: (?P<mib>[\d,]+) MiB", read=_loaded),
    Shape(
        "after loading model weights",
        r"after loading model weights \(inside torch\)[^:]*: {weights_bytes}",
    ),
    Shape(
        "max tokens in paged kv cache",
        r"total: {total_gpu_bytes}, available: {free_after_load_bytes}",
    ),
    Shape("Peak memory during", r"\(torch \+ non-torch\): {peak_bytes}"),
    Shape("when calculating max tokens:", r"calculating max tokens: {free_after_load_bytes}"),
    Shape("fraction is set", r"fraction is set(?: to)? {free_gpu_memory_fraction}"),
    Shape("max memory in KV cache", r"max memory in KV cache ?: {kv_available_bytes}"),
    Shape("KV cache primary pool", r"blocks in KV cache primary pool: {num_blocks}"),
    Shape(
        "Max KV cache blocks",
        r"\[window size=(?P<window>\d+)\], tokens per block=(?P<per>\d+), primary blocks=(?P<primary>\d+)",
        read=_pool,
    ),
    Shape(
        "Max KV cache blocks", r"primary blocks=\d+.*max sequence length={max_model_len}(?:\D|$)"
    ),
    Shape("Number of tokens per block", r"tokens per block: {tokens_per_block}"),
    Shape(
        "tokens in paged KV cache",
        r"Allocated {kv_available_bytes} for max tokens in paged KV cache \({kv_tokens}\)",
    ),
    Shape("tokens in paged KV cache", r"Using {kv_tokens} tokens in paged KV cache"),
    Shape("for k/v cache", r"Allocate {kv_available_bytes} for k/v cache"),
    Shape("maxNumSequences", r"maxNumSequences: {max_running_requests}"),
    *memory_shapes("tensorrt_llm", FRAMES, PRINTED),
    Shape(
        "component could not be created",
        r"following component could not be created: (?P<what>.*)",
        read=_component,
    ),
)


class TensorrtLlmLog(LogReader):
    """TensorRT-LLM's log, which does not say how weights are stored."""

    def figures(self, record: Record) -> Figures:
        """The figures under their common names; of the two caches that are made the second."""
        latest = (
            "kv_available_bytes", "kv_tokens", "num_blocks", "max_model_len", "max_running_requests",
            "free_gpu_memory_fraction", "tokens_per_block",
        )  # fmt: skip
        printed: Figures = {n: record.last(n) for n in latest}
        printed["block_size"] = printed.pop("tokens_per_block")
        printed["weights_bytes"] = record.high("weights_bytes")
        printed["total_gpu_bytes"] = record.low("total_gpu_bytes")
        printed["free_after_load_bytes"] = record.low("free_after_load_bytes")
        pools = record.parts.get("blocks")
        if pools and printed["num_blocks"] is None:
            printed["num_blocks"] = list(pools.values())[-1]
        if printed["kv_tokens"] is None and printed["num_blocks"] and printed["block_size"]:
            printed["kv_tokens"] = printed["num_blocks"] * printed["block_size"]
        return {key: value for key, value in printed.items() if value is not None}

    def question(self, record: Record) -> dict[str, Any]:
        """The Scenario's keys as far as the log states them."""
        settings = record.settings
        keys: dict[str, Any] = {"engine": ENGINE}
        if isinstance(settings.get("model"), str):
            keys["model"] = settings["model"]
        for name, key in (
            ("tensor_parallel_size", "tp"),
            ("pipeline_parallel_size", "pp"),
            ("moe_expert_parallel_size", "ep"),
        ):
            if isinstance(settings.get(name), int) and settings[name] > 1:
                keys[key] = settings[name]
        length = settings.get("max_seq_len") or record.last("max_model_len")
        if isinstance(length, int) and length > 0:
            keys["context_tokens"] = length
        version = record.last("engine_version")
        if version:
            keys["engine_version"] = version
        args: dict[str, Any] = {}
        for name in ("max_batch_size", "max_num_tokens"):
            if isinstance(settings.get(name), int):
                args[name] = settings[name]
        share = record.last("free_gpu_memory_fraction")
        if share is not None and 0 < share <= 1:
            args["free_gpu_memory_fraction"] = share
        keys["engine_args"] = args
        return keys


LOG = TensorrtLlmLog(engine=ENGINE, shapes=SHAPES, scales=True)
