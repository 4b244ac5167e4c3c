"""Rows of vLLM and SGLang logs: their Scenario from the flags alone, and the tokens that follow.

A row is used where its model, card and layout are in it; a release before vLLM 0.8 is none of those
that are modelled. Sizes in tokens follow from the flags, or from the cache bytes that were printed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from trials import MODELS, NotRecordedError, Row, Trial

from kvroom.errors import KvroomError
from kvroom.hardware import catalogue as cards
from kvroom.models.load import load
from kvroom.planner.plan import work
from kvroom.scenario.scenario import Scenario

GIB = 2**30
FLAGS = {
    "vllm": ("max_num_seqs", "max_num_batched_tokens", "block_size"),
    "sglang": (
        "mem_fraction_static",
        "max_running_requests",
        "max_mamba_cache_size",
        "chunked_prefill_size",
        "page_size",
        "max_total_tokens",
    ),
}
STORED = (
    (r"bnb|bitsandbytes|4-bit|int4|w4a16", "int4"),
    (r"gptq", "gptq_int4_g128"),
    (r"nvfp4", "nvfp4"),
    (r"mxfp4", "mxfp4"),
    (r"fp8", "fp8"),
)
CARDS = (
    (r"H100", "H100-SXM"),
    (r"A100 80GB", "A100-SXM-80"),
    (r"A10 24GB", "A10"),
    (r"RTX 4090", "RTX-4090"),
    (r"RTX 5090(?! Laptop)", "RTX-5090"),
    (r"B300", "B300-SXM"),
)
"""Bare and wordy names → the card that is meant."""
OLD = re.compile(r"^202[34]|^0\.[0-7]\.")
"""vLLM's releases before 0.8 are not modelled."""
DATES = {
    "sglang": (("2025-09", "0.4.10"), ("2026-05", "0.5.9")),
    "vllm": (
        ("2025-05", "0.8.5"),
        ("2025-07", "0.9.1"),
        ("2025-09", "0.10.0"),
        ("2025-12", "0.11.0"),
    ),
}
"""Where a log gives a date only: the modelled release of the time before each."""
MODEL_TAILS = re.compile(
    r"(?i)(-unsloth)?-bnb-4bit$|-fp8(-block)?$|-gptq-int4$|-awq(-w4a16)?$|-w4a16$|-nvfp4$| \(.*|\s+nvfp4.*"
)


def model_of(row: Row, configs: Path | None) -> Any:
    """A path, a name or a config that kvroom reads."""
    said = str(row.get("model") or "")
    name = MODEL_TAILS.sub("", said)
    bare = name.rpartition("/")[2].lower()
    known = row.get("config") or next((m for k, m in MODELS if bare == k.lower()), None)
    if isinstance(known, dict):
        return {"config": known}
    if known and configs and (configs / f"{known}.json").is_file():
        return str(configs / f"{known}.json")
    if not said:
        raise NotRecordedError("the model is not named")
    for word in (said, name, name.rpartition("/")[2]):
        try:
            load(word, paths=False)
        except KvroomError:
            continue
        return word
    raise NotRecordedError(f"no config of {said[:40]}")


def card_of(row: Row) -> str:
    """The card's catalogue name."""
    said = str(row.get("gpu") or "")
    if not said:
        raise NotRecordedError("the card is not named")
    for pattern, name in CARDS:
        if re.search(pattern, said):
            return name
    try:
        return cards.find(said.partition("(")[0].strip()).name
    except KvroomError:
        raise NotRecordedError("the card is named in words only") from None


def tokens_of(row: Row) -> int:
    """The printed size in tokens."""
    if row.get("kv_tokens"):
        return int(row["kv_tokens"])
    if row.get("num_blocks"):
        return int(row["num_blocks"]) * int(row.get("block_size") or 16)
    raise NotRecordedError("no size in tokens was printed")


def version_of(row: Row) -> str | None:
    """The release, where one is named or its date is."""
    said = str(row.get("engine_version") or "")
    found = re.search(r"(?<![\d.-])(\d+\.\d+(?:\.\d+)?)(?![\d-])", said)
    if found:
        return found[1]
    if date := re.search(r"20\d\d-\d\d", said):
        for before, release in DATES.get(row["engine"], ()):
            if date[0] < before:
                return release
    return None


def question_of(row: Row, configs: Path | None) -> Row:
    """The Scenario from the flags alone; Lacks names what is not said."""
    asked: Row = {"model": model_of(row, configs), "gpu": card_of(row)}
    if row.get("tp") is None or row["tp"] * (row.get("pp") or 1) < (row.get("gpu_count") or 1):
        raise NotRecordedError("the layout is not recorded")
    said = f"{row.get('other_flags') or ''} {row.get('source') or ''}"
    drafts = re.search(r"MTP|DSpark|EAGLE|/mtp\.yml", said)
    if drafts and row["engine"] != "sglang":
        raise NotRecordedError("its draft model is not recorded")
    if row["engine"] == "vllm" and OLD.search(str(row.get("engine_version") or "")):
        raise NotRecordedError("its release is older than those modelled")
    version = version_of(row)
    if version is None and row["engine"] == "vllm" and re.search(r"\bV0\b", row.get("notes") or ""):
        raise NotRecordedError("of V0, which was the default before 0.8, and no release is named")
    narrow = re.search(r"\(([^)]*bit[^)]*)\)", str(row.get("model") or ""))
    if narrow and not (row.get("quantization") or row.get("weight_dtype") or row.get("kv_dtype")):
        raise NotRecordedError(f"its checkpoint is named by its bits only ({narrow[1]})")
    asked["engine"] = row["engine"]
    for key in ("tp", "pp", "dp", "ep"):
        if row.get(key):
            asked[key] = int(row[key])
    if version:
        asked["engine_version"] = version
    if row.get("kv_dtype"):
        asked["kv_dtype"] = row["kv_dtype"]
    if row.get("max_model_len"):
        asked["context_tokens"] = int(row["max_model_len"])
    stored = " ".join(
        str(row.get(k) or "") for k in ("weight_dtype", "quantization", "model")
    ).lower()
    own = load(asked["model"]).quantisation is not None
    if row.get("weight_dtype") == "bf16" and not row.get("quantization"):
        asked["weight_dtype"] = "bf16"
    for pattern, name in STORED:
        if re.search(pattern, stored) and not own:
            asked["weight_dtype"] = name
            break
    args: Row = {}
    if isinstance(row.get("gpu_memory_utilization"), int | float):
        args["gpu_memory_utilization"] = row["gpu_memory_utilization"]
    text = str(row.get("other_flags") or "").replace("-", "_").replace("max seqs", "max_num_seqs")
    for name in FLAGS[row["engine"]]:
        if found := re.search(rf"{name}[ =:]+([\d.]+)", text):
            args[name] = json.loads(found[1].rstrip("."))
    if row["engine"] == "vllm" and re.search(r"(?<!no )\bprefix caching\b", text):
        args["enable_prefix_caching"] = True
    if row["engine"] == "vllm" and (found := re.search(r"\bchunk (\d+)", text)):
        args["max_num_batched_tokens"] = int(found[1])
    asked["engine_args"] = args
    return asked


def served_trials(row: Row, configs: Path | None) -> Iterable[Trial]:
    """Tokens from the flags alone, and in the printed cache bytes."""
    printed = tokens_of(row)
    asked = question_of(row, configs)
    capacity = work(Scenario.from_dict(asked)).plan.capacity.engine
    if capacity is None or capacity.kv_tokens is None:
        raise NotRecordedError("no size that kvroom predicts")
    size = row.get("kv_available_gib")
    given = from_bytes(asked, round(size * GIB), row["engine"]) if size else None
    yield Trial("tokens from the flags alone", capacity.kv_tokens, printed)
    if given:
        block = capacity.block_tokens or 0
        yield Trial("tokens in the printed bytes", given, printed, 0.005 / size * printed + block)


def from_bytes(asked: Row, size: int, engine: str) -> int | None:
    """Tokens given the cache's bytes."""
    question = dict(asked)
    if engine == "vllm":
        question["engine_args"] = {**asked["engine_args"], "kv_cache_memory_bytes": size}
    plan = work(Scenario.from_dict(question)).plan
    capacity = plan.capacity.engine
    if capacity is None or not capacity.kv_tokens:
        return None
    if engine == "vllm":
        return capacity.kv_tokens
    if capacity.window_tokens is None:
        return size // plan.kv.bytes_per_token_per_gpu
    return round(capacity.kv_tokens * size / plan.memory.kv_bytes)
