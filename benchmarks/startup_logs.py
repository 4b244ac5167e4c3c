"""How near kvroom comes to what engines print at their start, engine by engine.

    python benchmarks/startup_logs.py LOGS.jsonl [--configs FOLDER] [--all]

LOGS.jsonl holds one log a line: engine, engine_version, model, config, gpu, gpu_count, tp, pp, dp, ep,
kv_dtype, weight_dtype, quantization, max_model_len, gpu_memory_utilization, other_flags and what was
printed: kv_tokens, num_blocks, block_size, max_concurrency, kv_available_gib … (any may be null).
FOLDER holds the models' config.json files as NAME.json, NAME being ``config``; without it the
catalogue is asked. A log counts where its model, card, layout and size in tokens are known; the
others are counted with what they lack (``--all`` lists them).
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvroom.errors import KvroomError
from kvroom.machines import catalogue as cards
from kvroom.models.load import load
from kvroom.planning import work
from kvroom.scenario import Scenario

GIB = 2**30
ENGINES = ("vllm", "sglang", "tensorrt-llm")
"""Those that size their cache by what memory is left; llama.cpp's follows from the context alone."""
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
    "tensorrt-llm": ("free_gpu_memory_fraction", "max_batch_size"),
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


class Lacks(Exception):
    """What a log does not say."""


@dataclass(frozen=True)
class Case:
    """One log that can be predicted."""

    name: str
    engine: str
    printed_tokens: int
    predicted_tokens: int
    from_bytes: int | None

    @property
    def off(self) -> float:
        """The prediction from the flags alone over what was printed, less 1."""
        return self.predicted_tokens / self.printed_tokens - 1

    @property
    def off_given(self) -> float | None:
        """The same given the printed cache bytes."""
        return None if self.from_bytes is None else self.from_bytes / self.printed_tokens - 1


def model_of(row: dict[str, Any], configs: Path | None) -> str:
    """A path or a name that kvroom reads."""
    if row.get("config") and configs and (configs / f"{row['config']}.json").is_file():
        return str(configs / f"{row['config']}.json")
    if not row.get("model"):
        raise Lacks("model")
    name = MODEL_TAILS.sub("", str(row["model"]))
    for word in (row["model"], name, name.rpartition("/")[2]):
        try:
            load(word, paths=False)
        except KvroomError:
            continue
        return str(word)
    raise Lacks("model's config")


def card_of(row: dict[str, Any]) -> str:
    """The card's catalogue name."""
    said = str(row.get("gpu") or "")
    if not said:
        raise Lacks("card")
    for pattern, name in CARDS:
        if re.search(pattern, said):
            return name
    try:
        return cards.find(said.partition("(")[0].strip()).name
    except KvroomError:
        raise Lacks("card by name") from None


def tokens_of(row: dict[str, Any]) -> int:
    """The printed size in tokens."""
    if row.get("kv_tokens"):
        return int(row["kv_tokens"])
    if row.get("num_blocks"):
        return int(row["num_blocks"]) * int(row.get("block_size") or 16)
    raise Lacks("tokens")


def version_of(row: dict[str, Any]) -> str | None:
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


def question_of(row: dict[str, Any], configs: Path | None) -> dict[str, Any]:
    """The Scenario from the flags alone; Lacks names what is not said."""
    asked: dict[str, Any] = {"model": model_of(row, configs), "gpu": card_of(row)}
    if row.get("tp") is None or row["tp"] * (row.get("pp") or 1) < (row.get("gpu_count") or 1):
        raise Lacks("layout")
    drafts = re.search(r"MTP|DSpark|EAGLE", str(row.get("other_flags") or ""))
    if drafts and row["engine"] != "sglang":
        raise Lacks("draft model's size")
    if row["engine"] == "vllm" and OLD.search(str(row.get("engine_version") or "")):
        raise Lacks("release among those modelled")
    asked["engine"] = row["engine"]
    for key in ("tp", "pp", "dp", "ep"):
        if row.get(key):
            asked[key] = int(row[key])
    if version := version_of(row):
        asked["engine_version"] = version
    if row.get("kv_dtype"):
        asked["kv_dtype"] = row["kv_dtype"]
    if row.get("max_model_len"):
        asked["context_tokens"] = int(row["max_model_len"])
    stored = f"{row.get('weight_dtype') or ''} {row.get('quantization') or ''}".lower()
    own = load(asked["model"]).quantisation is not None
    if row.get("weight_dtype") == "bf16" and not row.get("quantization"):
        asked["weight_dtype"] = "bf16"
    for pattern, name in STORED:
        if re.search(pattern, stored) and not own:
            asked["weight_dtype"] = name
            break
    args: dict[str, Any] = {}
    if isinstance(row.get("gpu_memory_utilization"), int | float):
        args["gpu_memory_utilization"] = row["gpu_memory_utilization"]
    text = str(row.get("other_flags") or "").replace("-", "_").replace("max seqs", "max_num_seqs")
    for name in FLAGS[row["engine"]]:
        if found := re.search(rf"{name}[ =:]+([\d.]+)", text):
            args[name] = json.loads(found[1].rstrip("."))
    if row["engine"] == "vllm" and (found := re.search(r"\bchunk (\d+)", text)):
        args["max_num_batched_tokens"] = int(found[1])
    asked["engine_args"] = args
    return asked


def case_of(row: dict[str, Any], configs: Path | None) -> Case:
    """One log against its prediction; Lacks names what cannot be known."""
    printed = tokens_of(row)
    asked = question_of(row, configs)
    plan = work(Scenario.from_dict(asked)).plan
    capacity = plan.capacity.engine
    if capacity is None or capacity.kv_tokens is None:
        raise Lacks("a size that kvroom predicts")
    given = None
    if row.get("kv_available_gib"):
        given = from_bytes(asked, round(row["kv_available_gib"] * GIB), row["engine"])
        if given and not row.get("kv_dtype") and abs(2 * given / printed - 1) < 0.01:
            raise Lacks("cache dtype")  # half the bytes a token of a 16-bit cache
    return Case(row["id"], row["engine"], printed, capacity.kv_tokens, given)


def from_bytes(asked: dict[str, Any], size: int, engine: str) -> int | None:
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
    return round(capacity.kv_tokens * size / plan.memory.kv_bytes) if plan.memory.kv_bytes else None


def main() -> None:
    """Print the table, engine by engine."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("logs", type=Path)
    parser.add_argument("--configs", type=Path)
    parser.add_argument("--all", action="store_true", help="list every log, also those left out")
    args = parser.parse_args()
    rows = [json.loads(text) for text in args.logs.read_text("utf-8").splitlines() if text.strip()]
    for engine in ENGINES:
        cases, lacking, listed = [], Counter[str](), []
        for row in rows:
            if row["engine"] != engine:
                continue
            try:
                cases.append(case_of(row, args.configs))
            except Lacks as why:
                lacking[str(why)] += 1
                listed.append(f"    {row['id']}: lacks its {why}")
            except KvroomError as e:
                lacking["a question that kvroom takes"] += 1
                listed.append(f"    {row['id']}: {e}")
        report(engine, cases, lacking)
        if args.all:
            print("\n".join(listed))


def report(engine: str, cases: list[Case], lacking: Counter[str]) -> None:
    """One engine's rows and errors."""
    left = ", ".join(f"{n} lack their {what}" for what, n in lacking.most_common())
    print(f"{engine}: {len(cases)} logs" + (f" ({left})" if left else ""))
    for c in sorted(cases, key=lambda c: abs(c.off)):
        given = "" if c.off_given is None else f"{c.off_given:+9.2%} given the bytes"
        print(
            f"    {c.name:28}{c.printed_tokens:>12,} printed{c.predicted_tokens:>12,} from flags"
            f"{c.off:+9.1%}{given}"
        )
    if cases:
        offs = sorted((abs(c.off) for c in cases), reverse=True)
        print(
            f"  from the flags alone: median {statistics.median(offs):.1%}, worst {offs[0]:.1%}, "
            f"worst but one {offs[min(1, len(offs) - 1)]:.1%}"
        )
    given = [abs(c.off_given) for c in cases if c.off_given is not None]
    if given:
        print(f"  given the cache bytes: n {len(given)}, worst {max(given):.2%}")


if __name__ == "__main__":
    main()
