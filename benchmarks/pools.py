"""Disaggregated pools, measured: ``python benchmarks/pools.py DATA``.

DATA is a folder of measurements (``measured.py``), of which this takes the rows of tier ``disagg`` without
drafts. Printed by card and engine: by what factor the first token is off in the median, its bias, and the
same of the tokens after it; published first tokens are means where the source has them, else medians.
``--fit`` prints the constant that fits the first tokens best (``pools`` of the package's table).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from math import exp, log
from pathlib import Path
from statistics import median
from typing import Any

from measured import DISAGGREGATED, rows

from kvroom.errors import KvroomError
from kvroom.planner.plan import Workings, work
from kvroom.scenario.scenario import Scenario

BURSTS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3)


def pool_of(row: dict[str, Any], side: str) -> dict[str, Any]:
    """A pool's layout, from the workers as their source counts them."""
    raw = row["layout_raw"]
    if f"{side}_tp" not in raw:
        return {"gpu_count": 1, "tp": 1, "count": int(raw[side])}
    workers = raw[f"{side}_num_workers"] or 1
    gpus = raw[f"num_{side}_gpu"] // workers
    tp, ep = raw[f"{side}_tp"], raw[f"{side}_ep"]
    if raw[f"{side}_dp_attention"]:
        return {"gpu_count": gpus, "tp": 1, "dp": gpus, "ep": gpus, "count": workers}
    return {"gpu_count": gpus, "tp": tp, "dp": gpus // tp, "ep": min(ep, gpus), "count": workers}


FRAMES = "ai-dynamo/"
"""Images whose tag is Dynamo's release, not that of the engine inside."""


def scenario_of(row: dict[str, Any], configs: Path) -> Scenario:
    """The question that a disaggregated row answers; InferenceX's scripts are tuned."""
    version = None if FRAMES in row.get("notes", "") else row["engine_version"]
    return Scenario.from_dict(
        {
            "model": str(configs / f"{row['config']}.json"),
            **{key: row[key] for key in ("gpu", "weight_dtype", "engine")},
            "engine_version": version,
            "kv_dtype": row.get("kv_flag") or row["kv_dtype"] or "auto",
            "recipe": "tuned" if row["family"] == "inferencex" else "default",
            "allow_overcommit": True,
            "workload": {
                "input_tokens": row.get("isl_mean") or row["isl"],
                "output_tokens": row.get("osl_mean") or row["osl"],
                "concurrency": row["concurrency_or_batch"],
            },
            "disaggregation": {side: pool_of(row, side) for side in ("prefill", "decode")},
        }
    )


def read(folder: Path, configs: Path) -> Iterator[tuple[dict[str, Any], Workings]]:
    """Every plain disaggregated row with its plan; those whose layout cannot be asked are left out."""
    for row in rows(folder):
        if row["tier"] != DISAGGREGATED or row.get("spec") != "none" or row.get("suspect"):
            continue
        try:
            found = work(scenario_of(row, configs))
        except KvroomError as e:
            print(f"  {row['id']}: {e.field} {e.value!r} {e.message}")
            continue
        if found.plan.serving.ttft_s is not None:
            yield row, found


def first_ms(row: dict[str, Any]) -> float:
    """The first token as published."""
    return float(row["measured"].get("ttft_ms") or row["measured"]["ttft_median_ms"])


def main() -> None:
    parse = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parse.add_argument("data", type=Path)
    parse.add_argument("--configs", type=Path)
    parse.add_argument("--fit", action="store_true")
    args = parse.parse_args()
    found = list(read(args.data, args.configs or args.data / "model-configs"))
    groups: dict[str, list[tuple[float, float]]] = {}
    for row, w in found:
        s = w.plan.serving
        assert s.ttft_s is not None and s.tpot_s is not None
        off = (
            log(s.ttft_s * 1e3 / first_ms(row)),
            log(s.tpot_s * 1e3 / row["measured"]["tpot_ms"]),
        )
        for group in ("all", f"{row['family']} {row['gpu']} {row['engine']}"):
            groups.setdefault(group, []).append(off)
    for group, each in sorted(groups.items()):
        first, then = zip(*each, strict=True)
        print(
            f"  {group:34s} n {len(each):4d}"
            f"  first token: factor {exp(median(map(abs, first))):.2f}, bias {exp(median(first)):.2f}"
            f"  then each: factor {exp(median(map(abs, then))):.2f}, bias {exp(median(then)):.2f}"
        )
    if args.fit:
        tried = []
        for burst in BURSTS:
            logs = []
            for row, w in found:
                assert w.split is not None and w.split.pools is not None
                assert w.split.times is not None and w.split.times.ttft_s is not None
                pools = w.split.pools
                seen = pools.burst_s(row["concurrency_or_batch"])
                share = burst / pools.burst if pools.burst else 0.0
                ttft = w.split.times.ttft_s - seen + share * seen
                logs.append(abs(log(ttft * 1e3 / first_ms(row))))
            tried.append((sum(min(x, 2.0) for x in logs) / len(logs), burst))
        off_by, burst = min(tried)
        print(f'  "pools": {{"burst": {burst}}}  mean logarithm {off_by:.3f}')


if __name__ == "__main__":
    main()
