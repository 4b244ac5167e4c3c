"""AIConfigurator's answers to rows of the board: ``PYTHON aiconfigurator_rows.py DATA OUT [ROWS]``.

PYTHON is an interpreter with ``pip install aiconfigurator==0.12.0``; kvroom need not be there. DATA is the
folder that ``board.py`` reads. Each aggregated row of a loop of users on a card, engine and model that it
knows is asked with the row's own layout, widths, lengths and users. OUT becomes JSON of ``{row id:
{"tpot_ms", "ttft_ms"}}`` of ROWS rows drawn at random (default 400; each takes seconds), the release, and why
it did not answer others.
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


def rows(data: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for name in ("measured.jsonl.gz", "served.jsonl.gz"):
        if (data / name).exists():
            with gzip.open(data / name, "rt", encoding="utf-8") as file:
                found += map(json.loads, file)
    return found


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
        "isl": int(row["isl"]),
        "osl": int(row["osl"]),
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


def main(data: str, out: str, most: str = "400") -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    from aiconfigurator.cli.api import cli_estimate

    answers: dict[str, dict[str, float]] = {}
    refused: Counter[str] = Counter()
    asked = rows(Path(data))
    random.Random(0).shuffle(asked)
    for number, row in enumerate(asked, 1):
        keys = question(row)
        if isinstance(keys, str):
            refused[keys] += 1
            continue
        if len(answers) >= int(most):
            break
        for attempt in (keys, {k: v for k, v in keys.items() if not k.startswith("moe_")}):
            try:
                made = cli_estimate(**attempt)
            except Exception as error:  # another project's errors, of whatever type
                why = str(error).splitlines()[0][:90] if str(error) else type(error).__name__
                continue
            answers[row["id"]] = {"tpot_ms": float(made.tpot), "ttft_ms": float(made.ttft)}
            break
        else:
            refused[why] += 1
        if number % 50 == 0:
            print(f"{number} of {len(asked)} rows, {len(answers)} answered", file=sys.stderr)
    found = {
        "tool": "aiconfigurator",
        "version": version("aiconfigurator"),
        "answers": answers,
        "not_asked": dict(refused.most_common(40)),
    }
    Path(out).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
