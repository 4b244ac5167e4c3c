"""What SGLang prints at its start: figures, settings, refusals. Its ``GB`` is GiB."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kvroom.engines.adapters import FLAGS as ADAPTER_FLAGS
from kvroom.engines.log_memory import at_stage, memory_shapes
from kvroom.engines.log_reader import LogReader, Remedy
from kvroom.engines.log_reprs import read_dict, read_keywords
from kvroom.engines.log_shapes import Figures, Record, Shape, refusal, size, whole
from kvroom.engines.sglang.flags import MEMORY_FLAGS

ENGINE = "sglang"
JSON_WORDS: dict[str, Any] = {"true": True, "false": False}


def _arguments(record: Record, match: re.Match[str]) -> None:
    record.settings.update(
        {key: value for key, value in read_keywords(match["rest"]).items() if value is not None}
    )


def _settings(record: Record, match: re.Match[str]) -> None:
    """The same as a dictionary, Python's or JSON's."""
    given = read_dict(match["rest"])
    record.settings.update(
        {key: JSON_WORDS.get(value, value) if isinstance(value, str) else value
         for key, value in given.items() if value not in (None, "null")}
    )  # fmt: skip


def _pool(record: Record, match: re.Match[str]) -> None:
    """One pool's bytes; a model with windows has two, told apart by their tokens."""
    tokens = match["tokens"]
    size_bytes = sum(
        size(s) or 0 for s in re.findall(r"size: (-?[\d.,]+ ?[KMGT]i?B)", match["rest"])
    )
    record.part("kv", f"pool of {tokens or 'all'}", size_bytes)
    dtype = re.search(r"dtype: torch\.(\w+)", match[0])
    if dtype:
        record.settings["stored"] = dtype[1]
    if tokens:
        record.add("pool_tokens", whole(tokens))


def _state(record: Record, match: re.Match[str]) -> None:
    record.add("state_slots", whole(match["slots"]))
    sizes = re.findall(r"size: (-?[\d.,]+ ?[KMGT]i?B)", match["rest"])
    record.add("state_bytes", sum(size(one_size) or 0 for one_size in sizes))


FRAMES = {
    "load_model": "load",
    "init_memory_pool": "cache",
    "alloc_memory_pool": "cache",
    "init_cuda_graphs": "graphs",
    "init_device_graphs": "graphs",
    "kernel_warmup": "graphs",
    "forward_batch_generation": "serve",
}
"""Functions of its workers that a traceback names, and the stage of a start they are."""
PRINTED = (("weights_bytes", "load"), ("free_after_pool_bytes", "cache"), ("kv_tokens", "graphs"))


def _captured(record: Record, match: re.Match[str]) -> None:
    at_stage(record, "graphs", match[0])


SHAPES: tuple[Shape, ...] = (
    Shape("ServerArgs(", r"(?:server_args=)?ServerArgs\((?P<rest>.*)", opens=True, read=_arguments),
    Shape("server_args={", r"server_args=(?P<rest>\{.*)", opens=True, read=_settings),
    Shape("sglang_version", r"sglang_version[=:\"' ]+{engine_version}[\"',\s]"),
    Shape("Load weight begin", r"avail mem={free_before_load_bytes}"),
    Shape("Load weight end", r"avail mem={free_after_load_bytes}"),
    Shape("Load weight end", r"mem usage={weights_bytes}"),
    Shape(
        "KV Cache is allocated",
        r"KV Cache is allocated\.(?:.*?#tokens: (?P<tokens>[\d,]+))?(?P<rest>.*)",
        read=_pool,
    ),
    Shape(
        "Cache is allocated",
        r"Mamba Cache is allocated\..*?max_mamba_cache_size: (?P<slots>[\d,]+)(?P<rest>.*)",
        read=_state,
    ),
    Shape("Memory pool end", r"avail mem={free_after_pool_bytes}"),
    Shape("graph end", r"Capture .*graph end.*mem usage={cuda_graph_bytes}"),
    Shape("max_total_num_tokens=", r"max_total_num_tokens={kv_tokens},"),
    Shape("max_total_num_tokens=", r"chunked_prefill_size={chunked_prefill_size},"),
    Shape("max_total_num_tokens=", r"max_running_requests={max_running_requests},"),
    Shape("max_total_num_tokens=", r"context_len={max_model_len}(?:,|\s|$)"),
    Shape("max_total_num_tokens=", r"available_gpu_mem={free_at_end_bytes}"),
    Shape("max_total_num_tokens{", r"sglang:max_total_num_tokens\{[^}]*\} {kv_tokens}(?:\.0)?\b"),
    Shape("full_layer_tokens", r"full_layer_tokens={full_tokens}(?:,|\s|$)"),
    Shape("swa_layer_tokens", r"swa_layer_tokens={window_tokens}(?:,|\s|$)"),
    Shape("Not enough memory", r"Not enough memory.*", read=refusal),
    Shape("leave no GPU memory", r"Loaded weights leave no GPU memory.*", read=refusal),
    Shape("fill out of memory. Try", r"Prefill out of memory\. Try.*", read=refusal),
    Shape("code out of memory. Try", r"Decode out of memory\. Try.*", read=refusal),
    *memory_shapes("sglang", FRAMES, PRINTED),
    Shape("raph failed: ", r"Capture .*graph failed: .*out of memory.*", read=_captured),
)


class SglangLog(LogReader):
    """SGLang's log."""

    def figures(self, record: Record) -> Figures:
        """The figures under their common names; of several ranks the one with least free memory."""
        printed: Figures = {
            "weights_bytes": record.high("weights_bytes"),
            "free_before_load_bytes": record.low("free_before_load_bytes"),
            "free_after_load_bytes": record.low("free_after_load_bytes"),
            "cuda_graph_bytes": record.high("cuda_graph_bytes"),
            "kv_tokens": record.low("kv_tokens"),
            "window_tokens": record.low("window_tokens"),
            "state_slots": record.low("state_slots"),
            "state_bytes": record.high("state_bytes"),
            "max_model_len": record.last("max_model_len"),
            "max_running_requests": record.low("max_running_requests"),
            "free_at_end_bytes": record.low("free_at_end_bytes"),
            "total_gpu_bytes": record.low("total_gpu_bytes"),
        }
        if printed["kv_tokens"] is None:
            printed["kv_tokens"] = (
                record.low("full_tokens") if "full_tokens" in record.figures else None
            )
        if printed["kv_tokens"] is None:
            printed["kv_tokens"] = record.high("pool_tokens")
        pools = record.parts.get("kv")
        if pools:
            # State has a pool of its own, which is room for cache too.
            printed["kv_available_bytes"] = sum(pools.values()) + (printed["state_bytes"] or 0)
        return {key: value for key, value in printed.items() if value is not None}

    def question(self, record: Record) -> dict[str, Any]:
        """The Scenario's keys as far as the log states them."""
        settings = record.settings
        keys: dict[str, Any] = {"engine": ENGINE}
        model = settings.get("model_path")
        if isinstance(model, str):
            keys["model"] = model
        within = settings.get("enable_dp_attention") is True
        for names, key in ((("tp_size",), "tp"), (("pp_size",), "pp"), (("dp_size",), "dp")):
            degree = next(
                (settings[name] for name in names if isinstance(settings.get(name), int)), 1
            )
            if degree > 1 and not (key == "dp" and within):
                keys[key] = degree
        ep = settings.get("ep_size")
        if isinstance(ep, int) and ep > 1:
            keys["ep"] = ep
        length = record.last("max_model_len") or settings.get("context_length")
        if isinstance(length, int) and length > 0:
            keys["context_tokens"] = length
        dtype = settings.get("kv_cache_dtype")
        if isinstance(dtype, str) and dtype != "auto":
            keys["kv_dtype"] = dtype
        elif str(settings.get("stored", "")).startswith("float8"):
            keys["kv_dtype"] = "fp8"
        version = record.last("engine_version")
        if version:
            keys["engine_version"] = version
        keys["engine_args"] = {
            key: value
            for key, value in settings.items()
            if key in (*MEMORY_FLAGS, *ADAPTER_FLAGS)
            and value is not None
            and value is not False
            and value != "auto"
        }
        if within and isinstance(settings.get("dp_size"), int):
            keys["engine_args"]["dp_size"] = settings["dp_size"]
        return keys

    def quantization(self, record: Record) -> str | None:
        """How the log says that the weights are stored, in the engine's word."""
        word = record.settings.get("quantization")
        return word if isinstance(word, str) else None

    def remedy(self, refusal: str, printed: Mapping[str, Any]) -> Remedy | None:
        """What its own messages ask for."""
        if " out of memory. Try" in refusal:
            text = "the pool is full: a smaller --max-running-requests, or a larger --mem-fraction-static"
            return Remedy(refusal=refusal, text=text)
        text = "a larger --mem-fraction-static, narrower weights, or more tensor ranks"
        return Remedy(refusal=refusal, text=f"the pools have no room beside the weights: {text}")

    def known_bytes(self, printed: Mapping[str, Any]) -> dict[str, int]:
        """Weights are what is free before loading less what is free after it."""
        after, before = (printed.get(f"free_{when}_load_bytes") for when in ("after", "before"))
        if after is None or before is None or before <= after:
            return {}
        return {"weights": before - after}

    def cache_bytes(self, printed: Mapping[str, Any]) -> int | None:
        """Recurrent state has a pool of its own."""
        size = super().cache_bytes(printed)
        return None if size is None else size - printed.get("state_bytes", 0)


LOG = SglangLog(
    engine=ENGINE,
    shapes=SHAPES,
    scales=True,
    ways_out={
        "graphs": (("cuda_graph_max_bs", (128, 64, 32, 16, 8)), ("disable_cuda_graph", (True,))),
        "serve": (("chunked_prefill_size", (4096, 2048, 1024)),),
    },
)
