"""Fit vLLM's overheads (activations, runtime, CUDA graphs) to start-up logs.

    python benchmarks/fit_overheads.py LOGS.jsonl [--write]

LOGS.jsonl holds one log a line: engine, engine_version, tp, pp, total_gpu_gib, gpu_memory_utilization,
weights_gib, kv_available_gib, activation_peak_gib, non_torch_gib, cuda_graph_gib, other_flags, notes
(any may be null). Each account is the exponential of a straight line in the logarithms of batch
tokens, weight bytes, ranks and captured sizes, by least squares drawn towards the slopes that the
physics suggests (few logs print everything). Bands are those that would have held 80 % of the logs,
each predicted from the others. ``--write`` keeps the result beside the engine that reads it.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
from collections.abc import Callable, Sequence
from math import exp, log
from pathlib import Path
from typing import Any

from kvroom.engines.vllm.graphs import capture_sizes, largest_capture
from kvroom.engines.vllm.memory import USUAL_SHAPES

GIB = 2**30
OUT = Path(__file__).parents[1] / "src/kvroom/engines/vllm/overheads.json"
PRIORS: dict[str, dict[str, float]] = {
    # a batch's activations grow with its tokens, and with the width of the model; experts' kernels
    # gather and scatter the whole batch in workspaces of their own (DeepSeek-R1: 6.4 GiB)
    "activations": {"batch": 0.4, "weights": 0.25, "moe": 0.8},
    # NCCL's buffers grow with the ranks
    "runtime": {"ranks": 0.8},
    # each captured size is a graph of its own, but all share the working memory of the largest
    "graphs": {"weights": 0.25, "shapes": 0.25},
}
STRENGTH = 4.0
"""How many logs a prior slope counts for."""
COVER = 0.8


def batch_tokens(row: dict[str, Any]) -> float:
    """The batch budget: as the flags say, else the default for a card of that size."""
    flags = row.get("other_flags") or ""
    for pattern in (r"max-num-batched-tokens\s+(\d+)", r"chunk (\d+)"):
        if found := re.search(pattern, flags):
            return float(found[1])
    return 8192.0 if (row.get("total_gpu_gib") or 0) >= 70 else 2048.0


def shapes(row: dict[str, Any]) -> int:
    """CUDA graphs captured: as the log counts them, else vLLM's sizes for so many requests at once."""
    flags, notes = row.get("other_flags") or "", row.get("notes") or ""
    if found := re.search(r"(\d+) capture shapes", notes):
        return int(found[1])
    if found := re.search(r"cudagraph sizes to (\d+)", flags):
        return len(capture_sizes(int(found[1])))
    seqs = re.search(r"max[-_ ](?:num[-_ ])?seqs[ =](\d+)", flags)
    drafted = re.search(r"(?:MTP|EAGLE\w*) (\d+) tokens", flags)
    most = int(seqs[1]) if seqs else 256
    return len(capture_sizes(largest_capture(most, int(drafted[1]) if drafted else 0)))


def ranks(row: dict[str, Any]) -> int:
    """GPUs of the deployment; 0 where the log leaves them open."""
    cut = (row.get("tp") or 0) * (row.get("pp") or 1)
    return int(max(cut, row.get("gpu_count") or 0))


def features(row: dict[str, Any]) -> dict[str, float]:
    """Logarithms that the accounts are lines in; the engine computes the same ones."""
    return {
        "batch": log(batch_tokens(row) / 2048),
        "weights": log((row.get("weights_gib") or 8.0) / 8),
        "ranks": log(ranks(row) or 1),
        "shapes": log(shapes(row) / USUAL_SHAPES),
        "moe": float("moe" in (row.get("arch") or "").lower()),
    }


def graph_estimate(row: dict[str, Any]) -> float | None:
    """The estimate that 0.20 and later take off, where a note quotes it beside the real size."""
    found = re.search(r"([\d.]+)\s+(?:includes\s+)?graph estimate", row.get("notes") or "", re.I)
    return float(found[1]) if found else None


Row = tuple[dict[str, float], float]


def solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Gaussian elimination with pivoting."""
    n = len(right)
    rows = [[*m, r] for m, r in zip(matrix, right, strict=True)]
    for i in range(n):
        pivot = max(range(i, n), key=lambda k: abs(rows[k][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for k in range(n):
            if k != i:
                factor = rows[k][i] / rows[i][i]
                rows[k] = [a - factor * b for a, b in zip(rows[k], rows[i], strict=True)]
    return [rows[i][n] / rows[i][i] for i in range(n)]


def line(rows: Sequence[Row], prior: dict[str, float]) -> dict[str, float]:
    """Intercept ("") and slopes of log bytes, drawn towards ``prior``."""
    names = ["", *prior]
    x = [[1.0, *(f[k] for k in prior)] for f, _ in rows]
    y = [v for _, v in rows]
    size = len(names)
    matrix = [[sum(a[i] * a[j] for a in x) for j in range(size)] for i in range(size)]
    right = [sum(a[i] * b for a, b in zip(x, y, strict=True)) for i in range(size)]
    for i, name in enumerate(names):
        if name:
            matrix[i][i] += STRENGTH
            right[i] += STRENGTH * prior[name]
    return dict(zip(names, solve(matrix, right), strict=True))


def at(fit: dict[str, float], f: dict[str, float]) -> float:
    """The line at one log's features."""
    return fit[""] + sum(slope * f[name] for name, slope in fit.items() if name)


def left_out(rows: Sequence[Row], prior: dict[str, float]) -> list[float]:
    """Each log's residual when the line is fitted to the others."""
    return [y - at(line([*rows[:i], *rows[i + 1 :]], prior), f) for i, (f, y) in enumerate(rows)]


def quantile(values: Sequence[float], q: float) -> float:
    """The q-quantile, widened as so few values ask for (its rank is of n + 1)."""
    ranked = sorted(values)
    place = q * (len(ranked) + 1) - 1
    low = min(max(int(place // 1), 0), len(ranked) - 1)
    high = min(low + 1, len(ranked) - 1)
    share = min(max(place - low, 0.0), 1.0)
    return ranked[low] * (1 - share) + ranked[high] * share


def fit_account(rows: Sequence[Row], prior: dict[str, float]) -> dict[str, Any]:
    """One account's line, its 80 % band and how well that held."""
    fit, off = line(rows, prior), left_out(rows, prior)
    low, high = quantile(off, (1 - COVER) / 2), quantile(off, (1 + COVER) / 2)
    held = sum(low <= o <= high for o in off)
    return {
        "log_bytes": round(fit.pop(""), 4),
        "slopes": {k: round(v, 4) for k, v in fit.items()},
        "low": round(low, 4),
        "high": round(high, 4),
        "logs": len(rows),
        "held": held,
        "median_error": round(statistics.median(abs(exp(o) - 1) for o in off), 3),
    }


def usable(row: dict[str, Any]) -> bool:
    """Discrete cards only: with unified memory the system's own use is in every figure."""
    return str(row["engine"]) == "vllm" and "GB10" not in str(row.get("gpu"))


def main() -> None:
    """Fit, print the table, and keep the result if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("logs", type=Path)
    parser.add_argument("--write", action="store_true", help=f"keep the result in {OUT.name}")
    args = parser.parse_args()
    rows = [json.loads(text) for text in args.logs.read_text("utf-8").splitlines() if text.strip()]
    every, rows = rows, [r for r in rows if usable(r)]
    read: dict[str, Callable[[dict[str, Any]], float | None]] = {
        "activations": lambda r: r.get("activation_peak_gib"),
        "runtime": lambda r: r.get("non_torch_gib") if ranks(r) else None,
        "graphs": lambda r: r.get("cuda_graph_gib"),
    }
    accounts = {}
    for name, prior in PRIORS.items():
        found = [(features(r), log(v * GIB)) for r in rows if (v := read[name](r))]
        accounts[name] = fit_account(found, prior)
        print(name, accounts[name])
    estimate = fit_estimate(every)
    print("graph estimate over real", estimate)
    report(rows, accounts)
    report_left_out(rows, read)
    if args.write:
        kept = {
            "provenance": "start-up logs that people published, by benchmarks/fit_overheads.py",
            "accounts": accounts,
            "graph_estimate": estimate,
        }
        OUT.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")


def fit_estimate(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """How much larger the estimate is than the graphs turn out, drawn towards their real size."""
    ratios = [
        log(e / r["cuda_graph_gib"])
        for r in rows
        if (e := graph_estimate(r)) and r.get("cuda_graph_gib")
    ]
    middle = sum(ratios) / (len(ratios) + STRENGTH / 2)
    return {
        "log_ratio": round(middle, 4),
        "low": round(-middle, 4),
        "high": round(max(ratios, default=0.0) - middle, 4),
        "logs": len(ratios),
    }


def room(row: dict[str, Any]) -> float | None:
    """GiB that the share leaves beside weights; None where the log does not print what that takes."""
    share = row.get("gpu_memory_utilization")
    total, weights, cache = (
        row.get(k) for k in ("total_gpu_gib", "weights_gib", "kv_available_gib")
    )
    known = total and weights and cache and isinstance(share, int | float)
    return total * share - weights if known else None


def spent(row: dict[str, Any], accounts: dict[str, Any]) -> list[float]:
    """GiB of activations and runtime: as fitted, and at the ends of the bands."""
    f, made = features(row), [0.0, 0.0, 0.0]
    for name in ("activations", "runtime"):
        fit = accounts[name]
        middle = fit["log_bytes"] + sum(s * f[k] for k, s in fit["slopes"].items())
        for i, off in enumerate((0.0, fit["low"], fit["high"])):
            made[i] += exp(middle + off) / GIB
    return made


def report(rows: Sequence[dict[str, Any]], accounts: dict[str, Any]) -> None:
    """Cache bytes from total, share and weights, against those printed."""
    errors, held = [], 0
    for r in rows:
        left = room(r)
        if left is None:
            continue
        middle, low, high = spent(r, accounts)
        errors.append((left - middle) / r["kv_available_gib"] - 1)
        held += left - high <= r["kv_available_gib"] <= left - low
    print(
        f"cache bytes, graphs left out: {len(errors)} logs, "
        f"median error {statistics.median(map(abs, errors)):.1%}, {held} inside the band"
    )


def report_left_out(
    rows: Sequence[dict[str, Any]], read: dict[str, Callable[[dict[str, Any]], float | None]]
) -> None:
    """The same for the logs that are in the fit, each by a fit to the others."""
    before, after = [], []
    for r in rows:
        left = room(r)
        names = [n for n in ("activations", "runtime") if read[n](r)]
        if left is None or not names:
            continue
        for keep, errors in ((rows, before), ([x for x in rows if x is not r], after)):
            accounts = {
                n: fit_account(
                    [(features(x), log(v * GIB)) for x in keep if (v := read[n](x))], PRIORS[n]
                )
                for n in ("activations", "runtime")
            }
            errors.append(abs((left - spent(r, accounts)[0]) / r["kv_available_gib"] - 1))
    print(
        f"of the {len(after)} that are in the fit: median error {statistics.median(before):.1%}, worst "
        f"{max(before):.1%}; each by a fit to the others {statistics.median(after):.1%}, "
        f"{max(after):.1%}"
    )


if __name__ == "__main__":
    main()
