"""How fast a search is, how often simulations bear its closed form out, and which layout it would choose.

    python benchmarks/search.py
    python benchmarks/search.py --measured FILE.jsonl.gz [MODEL GPU]

With FILE, published measurements of one model on one card (TTFT and TPOT by tensor ranks and concurrency)
are held against the layouts that kvroom would choose: in each group of rows, which number of tensor ranks
makes most output tokens a second and GPU within TTFT 1 s and TPOT 30 ms.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from kvroom.errors import KvroomError
from kvroom.optimize.search.search import search
from kvroom.optimize.search.space import Space
from kvroom.planner.plan import plan
from kvroom.scenario.scenario import Scenario

TTFT_S, TPOT_S = 1.0, 0.030
VARIED = {
    "input": "lognormal:mean=1500:sigma=0.8:min=16:max=8000",
    "output": "lognormal:mean=400:sigma=0.7:min=4:max=2000",
}
LOADS = (
    ("llama-3.1-70b", 4000, 1000, {"concurrency": 32}, ("H100-SXM", "H200-SXM"), (2, 4)),
    ("llama-3-8b", 2000, 500, {"concurrency": 32}, ("A100-SXM-80", "H100-SXM"), (1,)),
    ("qwen3-32b", 8000, 500, {"concurrency": 16}, ("H200-SXM",), (1, 2)),
    ("deepseek-v3", 4000, 1000, {"concurrency": 64}, ("H200-SXM",), (8,)),
    ("gpt-oss-120b", 1000, 1000, {"concurrency": 64}, ("H100-SXM",), (1, 2)),
    ("llama-3.1-70b", 1000, 300, {"requests_per_s": 2.0}, ("H100-SXM",), (2, 4)),
    ("llama-3.1-70b", 1500, 400, {"concurrency": 48, **VARIED}, ("H100-SXM",), (2, 4)),
    ("llama-3-8b", 1500, 400, {"requests_per_s": 6.0, **VARIED}, ("H100-SXM", "L40S"), (1, 2)),
)


def asked(model: str, tokens_in: int, tokens_out: int, **load: Any) -> Scenario:
    workload = dict(load)
    if "input" not in load:
        workload |= {"input_tokens": tokens_in, "output_tokens": tokens_out}
    return Scenario.from_dict({"model": model, "gpu": "H100-SXM", "workload": workload})


def speed() -> None:
    question = asked("llama-3.1-70b", 4000, 1000, concurrency=64)
    for round_ in ("first", "again"):
        start = time.process_time()
        found = search(question, "ttft_p95=4s,tpot_p95=50ms", simulate=0).searched
        spent = time.process_time() - start
        print(
            f"closed form, {round_}: {found['deployments']} deployments, {found['candidates']} "
            f"candidates in {spent:.2f} CPU s: {found['deployments'] / spent:,.0f} deployments and "
            f"{found['candidates'] / spent:,.0f} candidates a second"
        )


def borne_out() -> None:
    print("\nsimulated means within the closed form's 80 % bands")
    inside = {"ttft": 0, "tpot": 0}
    total = 0
    for model, tokens_in, tokens_out, load, gpus, counts in LOADS:
        space = Space(gpus=gpus, counts=counts)
        found = search(asked(model, tokens_in, tokens_out, **load), space=space, simulate=4)
        for a in found.answers:
            assert a.trial is not None
            total += 1
            told = []
            for m in inside:
                low, high = (a.row[f"{m}_{end}_s"] for end in ("low", "high"))
                inside[m] += low <= a.trial[f"{m}_s"] <= high
                told.append(f"{m} {a.trial[f'{m}_s']:.3f} s in {low:.3f} … {high:.3f}")
            print(f"  {a.name}, {tokens_in:,} in, {tokens_out:,} out, {load}: {', '.join(told)}")
    for m, n in inside.items():
        print(f"{m}: {n} of {total}")


def recommended(model: str = "llama-3.1-70b", gpu: str = "H200-SXM") -> None:
    """Aggregated layouts of 8 cards for 4,000 tokens in and 1,000 out."""
    print(f"\n{model} on 8 × {gpu}, 4,000 in, 1,000 out, TTFT 1 s, TPOT 30 ms, closed form")
    slo = f"ttft_mean={TTFT_S}s,tpot_mean={TPOT_S}s"
    for count in (1, 2, 4, 8):
        space = Space(
            gpus=(gpu,), counts=(count,), weight_dtypes=("fp8",), kv_dtypes=("auto", "fp8")
        )
        found = search(asked(model, 4000, 1000), slo, space=space, simulate=0)
        for a in found.answers[:2]:
            row = a.row
            print(
                f"  {8 // count} × {a.name}: {row['output_tokens_per_s'] / count:,.0f} tokens/s a GPU, "
                f"{row['users']:.0f} users each, TTFT {row['ttft_s']:.2f} s, "
                f"TPOT {row['tpot_s'] * 1e3:.1f} ms"
            )
        if not found.answers:
            print(f"  {8 // count} × {gpu}:{count}: {found.sentence}")


Rows = dict[int, dict[int, tuple[float, float]]]


def per_gpu(times: Rows, tokens_out: int) -> dict[int, float]:
    """Tensor ranks → the most output tokens a second and GPU that keep to both limits."""
    best: dict[int, float] = {}
    for tp, by_users in times.items():
        for users, (ttft, tpot) in by_users.items():
            if ttft <= TTFT_S and tpot <= TPOT_S:
                rate = users * tokens_out / (ttft + tpot * (tokens_out - 1)) / tp
                best[tp] = max(best.get(tp, 0.0), rate)
    return best


def against(path: Path, config: str, gpu: str) -> None:
    groups: dict[tuple[Any, ...], Rows] = defaultdict(lambda: defaultdict(dict))
    with gzip.open(path, "rt") as file:
        for line in file:
            r = json.loads(line)
            m = r["measured"]
            if (r["config"], r["gpu"], r["tier"]) == (config, gpu, "serving") and len(m) > 1:
                key = (r["engine"], r["weight_dtype"], r["isl"], r["osl"])
                times = (m["ttft_ms"] / 1e3, m["tpot_ms"] / 1e3)
                groups[key][r["tp"]][r["concurrency_or_batch"]] = times
    print(f"\n{config} on {gpu}: best tensor ranks within {TTFT_S:g} s and {TPOT_S * 1e3:g} ms")
    same = near = total = 0
    for key, measured in sorted(groups.items()):
        engine, dtype, tokens_in, tokens_out = key
        made: Rows = defaultdict(dict)
        for tp, by_users in measured.items():
            for users in by_users:
                times = told(config, gpu, tp, key, users)
                if times:
                    made[tp][users] = times
        real, ours = per_gpu(measured, tokens_out), per_gpu(made, tokens_out)
        if not real or not ours:
            continue
        best, chosen = max(real, key=real.__getitem__), max(ours, key=ours.__getitem__)
        kept = real.get(chosen, 0.0) / real[best]
        total, same, near = total + 1, same + (best == chosen), near + (kept >= 0.9)
        print(
            f"  {engine} {dtype} {tokens_in}/{tokens_out}: measured tp {best} ({real[best]:,.0f} tokens/s "
            f"a GPU), chosen tp {chosen}, which measures {kept:.0%} of that"
        )
    print(f"the same choice in {same} of {total} groups, within 10 % of the best in {near}")


def told(
    config: str, gpu: str, tp: int, key: tuple[Any, ...], users: int
) -> tuple[float, float] | None:
    """TTFT and TPOT of a row's question, by kvroom."""
    engine, dtype, tokens_in, tokens_out = key
    workload = {"input_tokens": tokens_in, "output_tokens": tokens_out, "concurrency": users}
    try:
        serving = plan(
            Scenario.from_dict(
                {
                    "model": config.replace("__", "/"),
                    "gpu": gpu,
                    "tp": tp,
                    "engine": engine,
                    "weight_dtype": dtype,
                    "context_tokens": tokens_in + tokens_out + 1,
                    "workload": workload,
                }
            )
        ).serving
    except KvroomError as e:
        print(f"  left out: {e}")
        return None
    if serving.ttft_s is None or serving.tpot_s is None:
        return None
    return serving.ttft_s, serving.tpot_s


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--measured", type=Path)
    parser.add_argument("config", nargs="?", default="meta-llama__Meta-Llama-3.1-70B")
    parser.add_argument("gpu", nargs="?", default="H100-SXM")
    given = parser.parse_args()
    if given.measured:
        against(given.measured, given.config, given.gpu)
    else:
        speed()
        recommended()
        borne_out()
