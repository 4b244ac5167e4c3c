"""Speed-ups by drafting, measured: ``python benchmarks/drafts.py DATA``.

DATA is a folder with ``speculation.jsonl.gz``: a measurement a line (model, card, engine, batch, steps, the
accepted length, the speed-up). Each is asked with the accepted length that it had, and the layouts that
such models are served in, for the source names none. Printed by model: the median error and the bias.
"""

from __future__ import annotations

import argparse
import gzip
import json
from functools import lru_cache
from math import exp, log
from pathlib import Path
from statistics import median
from typing import Any

from kvroom.planner.plan import plan
from kvroom.scenario.scenario import Scenario

MODELS = {
    "Llama-3.1-8B-Instruct": ("meta-llama__Meta-Llama-3.1-8B", "bf16", 1),
    "Llama-3.3-70B-Instruct": ("meta-llama__Llama-3.3-70B-Instruct", "bf16", 4),
    "Llama-4-Scout-17B-16E-Instruct": ("meta-llama__Llama-4-Scout-17B-16E-Instruct", "bf16", 4),
    "Qwen3-30B-A3B-Instruct-2507": ("Qwen__Qwen3-30B-A3B", "bf16", 1),
    "Qwen3-Coder-30B-A3B-Instruct": ("Qwen__Qwen3-30B-A3B", "bf16", 1),
    "Qwen3-235B-A22B-Instruct-2507": ("Qwen__Qwen3-235B-A22B", "bf16", 4),
    "Qwen3-Coder-480B-A35B-Instruct": ("Qwen__Qwen3-Coder-480B-A35B-Instruct", "fp8", 8),
    "Qwen3-Next-80B-A3B-Instruct-FP8": ("Qwen__Qwen3-Next-80B-A3B-Instruct", "fp8", 4),
    "Kimi-K2-Instruct": ("moonshotai__Kimi-K2-Instruct", None, 8),
}
"""The config, weight width and tensor ranks of each; models whose config is not at hand are left out."""


def chance(drafted: int, accepted: float) -> float:
    """The chance that a draft is kept by which ``accepted`` tokens come of a step."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        gained = sum(middle**i for i in range(drafted + 1))
        low, high = (middle, high) if gained < accepted else (low, middle)
    return low


@lru_cache(maxsize=1024)
def token_s(config: str, row: str, spec: str) -> float:
    """Seconds a token, with or without drafts."""
    r = json.loads(row)
    _, dtype, tp = MODELS[r["model"]]
    question: dict[str, Any] = {
        "model": config,
        "weight_dtype": dtype,
        "gpu": r["gpu"],
        "gpu_count": tp,
        "tp": tp,
        "engine": r["engine"],
        "recipe": "default",
        "allow_overcommit": True,
        "workload": {"input_tokens": 400, "output_tokens": 600, "concurrency": r["batch"]},
        "speculation": json.loads(spec),
    }
    found = plan(Scenario.from_dict(question)).serving.tpot_s
    assert found is not None
    return found


def main() -> None:
    parse = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parse.add_argument("data", type=Path)
    parse.add_argument("--configs", type=Path)
    args = parse.parse_args()
    configs = args.configs or args.data / "model-configs"
    groups: dict[str, list[float]] = {}
    with gzip.open(args.data / "speculation.jsonl.gz", "rt") as lines:
        rows = [json.loads(line) for line in lines if line.strip()]
    for r in rows:
        if r["model"] not in MODELS:
            continue
        config = str(configs / f"{MODELS[r['model']][0]}.json")
        key = json.dumps({k: r[k] for k in ("model", "gpu", "engine", "batch")})
        spec = {
            "method": r["method"],
            "num_speculative_tokens": r["steps"],
            "acceptance_rate": round(chance(r["steps"], r["accept_length"]), 6),
        }
        gain = token_s(config, key, "null") / token_s(config, key, json.dumps(spec))
        off = log(gain / r["measured"]["speedup"])
        shape = "chains" if r["topk"] == 1 else "trees"
        for group in ("all", shape, f"{r['model']}, batch {r['batch']}"):
            groups.setdefault(group, []).append(off)
    for group, each in sorted(groups.items()):
        errors = [abs(exp(x) - 1) for x in each]
        print(
            f"  {group:44s} n {len(each):4d}  median {100 * median(errors):5.1f} %"
            f"  bias {exp(median(each)):.2f}"
        )


if __name__ == "__main__":
    main()
