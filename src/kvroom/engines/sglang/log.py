"""What SGLang prints at its start: figures, settings, refusals. Its ``GB`` is GiB."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kvroom.engines.adapters import FLAGS as ADAPTER_FLAGS
from kvroom.engines.log_reader import LogReader
from kvroom.engines.log_reprs import read_keywords
from kvroom.engines.log_shapes import Figures, Record, Shape, shape, size, whole
from kvroom.engines.sglang.flags import MEMORY_FLAGS

ENGINE = "sglang"


def _arguments(record: Record, found: re.Match[str]) -> None:
    record.settings.update({k: v for k, v in read_keywords(found["rest"]).items() if v is not None})


def _pool(record: Record, found: re.Match[str]) -> None:
    """One pool's bytes; a model with windows has two, told apart by their tokens."""
    tokens = found["tokens"]
    kept = sum(size(s) or 0 for s in re.findall(r"size: (-?[\d.,]+ ?[KMGT]i?B)", found["rest"]))
    record.part("kv", f"pool of {tokens or 'all'}", kept)
    dtype = re.search(r"dtype: torch\.(\w+)", found[0])
    if dtype:
        record.settings["stored"] = dtype[1]
    if tokens:
        record.add("pool_tokens", whole(tokens))


def _state(record: Record, found: re.Match[str]) -> None:
    record.add("state_slots", whole(found["slots"]))
    kept = re.findall(r"size: (-?[\d.,]+ ?[KMGT]i?B)", found["rest"])
    record.add("state_bytes", sum(size(s) or 0 for s in kept))


def _refusal(record: Record, found: re.Match[str]) -> None:
    record.refuse(found[0])


SHAPES: tuple[Shape, ...] = (
    shape("ServerArgs(", r"(?:server_args=)?ServerArgs\((?P<rest>.*)", opens=True, read=_arguments),
    shape("sglang_version", r"sglang_version[=:\"' ]+{engine_version}[\"',\s]"),
    shape("Load weight begin", r"avail mem={free_before_load_bytes}"),
    shape("Load weight end", r"avail mem={free_after_load_bytes}"),
    shape("Load weight end", r"mem usage={weights_bytes}"),
    shape(
        "KV Cache is allocated",
        r"KV Cache is allocated\.(?:.*?#tokens: (?P<tokens>[\d,]+))?(?P<rest>.*)",
        read=_pool,
    ),
    shape(
        "Cache is allocated",
        r"Mamba Cache is allocated\..*?max_mamba_cache_size: (?P<slots>[\d,]+)(?P<rest>.*)",
        read=_state,
    ),
    shape("Memory pool end", r"avail mem={free_after_pool_bytes}"),
    shape("graph end", r"Capture .*graph end.*mem usage={cuda_graph_bytes}"),
    shape("max_total_num_tokens=", r"max_total_num_tokens={kv_tokens},"),
    shape("max_total_num_tokens=", r"chunked_prefill_size={chunked_prefill_size},"),
    shape("max_total_num_tokens=", r"max_running_requests={max_running_requests},"),
    shape("max_total_num_tokens=", r"context_len={max_model_len}(?:,|\s|$)"),
    shape("max_total_num_tokens=", r"available_gpu_mem={free_at_end_bytes}"),
    shape("max_total_num_tokens{", r"sglang:max_total_num_tokens\{[^}]*\} {kv_tokens}(?:\.0)?\b"),
    shape("full_layer_tokens", r"full_layer_tokens={full_tokens}(?:,|\s|$)"),
    shape("swa_layer_tokens", r"swa_layer_tokens={window_tokens}(?:,|\s|$)"),
    shape("Not enough memory", r"Not enough memory.*", read=_refusal),
    shape("leave no GPU memory", r"Loaded weights leave no GPU memory.*", read=_refusal),
)


def figures(r: Record) -> Figures:
    """The figures under their common names; of several ranks the one with least free memory."""
    found: Figures = {
        "weights_bytes": r.high("weights_bytes"),
        "free_before_load_bytes": r.low("free_before_load_bytes"),
        "free_after_load_bytes": r.low("free_after_load_bytes"),
        "cuda_graph_bytes": r.high("cuda_graph_bytes"),
        "kv_tokens": r.low("kv_tokens"),
        "window_tokens": r.low("window_tokens"),
        "state_slots": r.low("state_slots"),
        "state_bytes": r.high("state_bytes"),
        "max_model_len": r.last("max_model_len"),
        "max_running_requests": r.low("max_running_requests"),
        "free_at_end_bytes": r.low("free_at_end_bytes"),
    }
    if found["kv_tokens"] is None:
        found["kv_tokens"] = r.low("full_tokens") if "full_tokens" in r.figures else None
    if found["kv_tokens"] is None:
        found["kv_tokens"] = r.high("pool_tokens")
    pools = r.parts.get("kv")
    if pools:
        # State has a pool of its own, which is room for cache too.
        found["kv_available_bytes"] = sum(pools.values()) + (found["state_bytes"] or 0)
    return {n: v for n, v in found.items() if v is not None}


def question(r: Record) -> dict[str, Any]:
    """The Scenario's keys as far as the log states them."""
    given = r.settings
    asked: dict[str, Any] = {"engine": ENGINE}
    model = given.get("model_path")
    if isinstance(model, str):
        asked["model"] = model
    within = given.get("enable_dp_attention") is True
    for names, key in ((("tp_size",), "tp"), (("pp_size",), "pp"), (("dp_size",), "dp")):
        degree = next((given[n] for n in names if isinstance(given.get(n), int)), 1)
        if degree > 1 and not (key == "dp" and within):
            asked[key] = degree
    ep = given.get("ep_size")
    if isinstance(ep, int) and ep > 1:
        asked["ep"] = ep
    length = r.last("max_model_len") or given.get("context_length")
    if isinstance(length, int) and length > 0:
        asked["context_tokens"] = length
    dtype = given.get("kv_cache_dtype")
    if isinstance(dtype, str) and dtype != "auto":
        asked["kv_dtype"] = dtype
    elif str(given.get("stored", "")).startswith("float8"):
        asked["kv_dtype"] = "fp8"
    version = r.last("engine_version")
    if version:
        asked["engine_version"] = version
    asked["engine_args"] = {
        k: v
        for k, v in given.items()
        if k in (*MEMORY_FLAGS, *ADAPTER_FLAGS) and v is not None and v is not False and v != "auto"
    }
    if within and isinstance(given.get("dp_size"), int):
        asked["engine_args"]["dp_size"] = given["dp_size"]
    return asked


def quantization(r: Record) -> str | None:
    """How the log says that the weights are stored, in the engine's word."""
    word = r.settings.get("quantization")
    return word if isinstance(word, str) else None


class SglangLog(LogReader):
    """SGLang's log."""

    def figures(self, record: Record) -> Figures:
        """Of several ranks the one with least free memory."""
        return figures(record)

    def question(self, record: Record) -> dict[str, Any]:
        """The Scenario's keys as far as the log states them."""
        return question(record)

    def quantization(self, record: Record) -> str | None:
        """As ``ServerArgs`` says."""
        return quantization(record)

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


LOG = SglangLog(engine=ENGINE, shapes=SHAPES, scales=True)
