"""AIConfigurator's answers to rows of the board: ``PYTHON aiconfigurator_rows.py DATA OUT [ROWS]``.

PYTHON is an interpreter with ``pip install aiconfigurator==0.12.0``; kvroom need not be there. DATA is the
folder that ``board.py`` reads. Each aggregated row of a loop of users on a card, engine and model that it
knows, and that nothing speaks against, is asked with the row's own layout, widths, lengths and users, in an
order drawn by chance (seed 0), until ROWS have been asked (all of them unless said; each takes
seconds). OUT becomes JSON: the release, by row id ``[TPOT, TTFT]`` in milliseconds, and by row id why it gave
none; it is written as the rows are asked, so what is there when it is stopped is a sample.
``board.py --beside OUT`` prints them.
"""

from __future__ import annotations

import gzip
import json
import logging
import random
import sys
import warnings
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

SYSTEMS = {
    "H100-SXM": "h100_sxm",
    "H200-SXM": "h200_sxm",
    "B200-SXM": "b200_sxm",
    "GB200": "gb200",
    "B300-SXM": "b300_sxm",
    "GB300": "gb300",
    "A100-SXM-80": "a100_sxm",
    "A100-SXM": "a100_sxm",
    "L40S": "l40s",
    "RTX-PRO-6000": "rtx_pro_6000",
}
ENGINES = {"vllm": "vllm", "sglang": "sglang", "trtllm": "trtllm", "tensorrt-llm": "trtllm"}
WIDTHS = {
    "bf16": ("bfloat16", "bfloat16"),
    "fp16": ("bfloat16", "bfloat16"),
    "fp8": ("fp8", "fp8"),
    "fp8_block": ("fp8_block", "fp8_block"),
    "nvfp4": ("nvfp4", "nvfp4"),
    "fp4": ("nvfp4", "nvfp4"),
}
"""Its names of how matrices and experts are computed; what else it derives from the model stays open."""
CACHES = {"bf16": "bfloat16", "fp16": "bfloat16", "fp8": "fp8", "auto": "bfloat16", None: None}


EVERY = 20
"""Rows after which what was answered is written."""


def lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def rows(data: Path) -> list[dict[str, Any]]:
    """Every row that nothing speaks against, with what its label adds (as ``measured.py`` has them)."""
    labels = {x["id"]: x for x in lines(data / "measured_labels.jsonl.gz")}
    found = lines(data / "measured.jsonl.gz")
    for row in found:
        label = labels.get(row["id"], {})
        row.update({k: label[k] for k in ("kv_dtype", "spec", "suspect") if label.get(k)})
        row.update({k: round(label[f"{k}_mean"]) for k in ("isl", "osl") if label.get(f"{k}_mean")})
    found += lines(data / "served.jsonl.gz")
    return [row for row in found if not row.get("suspect")]


def question(row: dict[str, Any]) -> dict[str, Any] | str:
    """The keywords that ask it for ``row``, or why it is not asked."""
    if row["tier"] == "static" or not row.get("osl") or not row.get("concurrency_or_batch"):
        return "no loop of users"
    if row.get("disagg") or "disagg" in str(row.get("notes", "")):
        return "split pools"
    if row.get("spec") not in (None, "none"):
        return "drafts"
    if row["gpu"] not in SYSTEMS:
        return f"card {row['gpu']}"
    if row["engine"] not in ENGINES:
        return f"engine {row['engine']}"
    tp, pp = row.get("tp") or 1, row.get("pp") or 1
    ep, dp = row.get("ep") or 1, row.get("dp") or 1
    wide, experts = WIDTHS.get(row.get("weight_dtype"), (None, None))
    attention = dp if row.get("dp_attention") or dp > 1 else 1
    users = row["concurrency_or_batch"]
    return {
        "model_path": row["config"].replace("__", "/"),
        "system_name": SYSTEMS[row["gpu"]],
        "backend_name": ENGINES[row["engine"]],
        "database_mode": "HYBRID",
        "isl": round(row.get("isl_mean") or row["isl"]),
        "osl": round(row.get("osl_mean") or row["osl"]),
        "batch_size": max(1, round(users / attention)),
        "tp_size": tp if attention == 1 else max(1, tp // attention),
        "pp_size": pp,
        "attention_dp_size": attention,
        "moe_ep_size": ep,
        "moe_tp_size": max(1, tp * (dp if not row.get("dp_attention") else 1) // ep),
        "gemm_quant_mode": wide,
        "moe_quant_mode": experts,
        "kvcache_quant_mode": CACHES.get(row.get("kv_flag") or row.get("kv_dtype")),
    }


def main(data: str, out: str, most: str = "1000000") -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    from aiconfigurator.cli.api import cli_estimate

    answers: dict[str, list[float]] = {}
    silent: dict[str, str] = {}
    apart: Counter[str] = Counter()

    def write() -> None:
        found = {
            "tool": "AIConfigurator",
            "version": version("aiconfigurator"),
            "source": "benchmarks/aiconfigurator_rows.py, pip install aiconfigurator, database mode HYBRID",
            "not_asked": dict(sorted(apart.items())),
            "none": dict(sorted(silent.items())),
            "answers": dict(sorted(answers.items())),
        }
        Path(out).write_text(json.dumps(found, indent=0) + "\n", encoding="utf-8")

    asked = []
    for row in rows(Path(data)):
        keys = question(row)
        if isinstance(keys, str):
            apart[keys] += 1
        else:
            asked.append((row["id"], keys))
    random.Random(0).shuffle(asked)
    for number, (name, keys) in enumerate(asked[: int(most)], 1):
        for attempt in (keys, {k: v for k, v in keys.items() if not k.startswith("moe_")}):
            try:
                made = cli_estimate(**attempt)
            except Exception as error:  # another project's errors, of whatever type
                why = str(error).splitlines()[0][:90] if str(error) else type(error).__name__
                continue
            answers[name] = [float(f"{made.tpot:.5g}"), float(f"{made.ttft:.5g}")]
            break
        else:
            silent[name] = why
        if number % EVERY == 0:
            write()
            print(f"{number} of {len(asked)} rows, {len(answers)} answered", file=sys.stderr)
    write()


if __name__ == "__main__":
    main(*sys.argv[1:])
