"""How far a day by the hour is from the whole simulation of the same day.

    python benchmarks/day.py [--requests 1e7] [--processes 2] [--case NAME …] [--write]

Each case plays every request of a day on a fixed number of replicas, each replica exactly, and answers the
same day from samples and a fluid limit (``simulate --day``). What is compared is what the engine takes: mean
and percentiles of TTFT and TPOT over the day, the 95th percentiles hour by hour, whether objectives hold.
``--write`` puts the largest error of each figure over all cases into ``optimize/day/errors.json``, where the
answer's bands take it from. ``--requests`` scales every case's day; with 1e7 the whole takes some ten minutes
of CPU and under 1 GiB a process.
"""

from __future__ import annotations

import argparse
import json
from array import array
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from time import process_time
from typing import Any

from kvroom.optimize.day import levels
from kvroom.optimize.day.day import day
from kvroom.optimize.day.hours import SHOWN
from kvroom.planner.plan import work
from kvroom.planner.simulate import parse_slo, stage
from kvroom.scenario.scenario import Scenario
from kvroom.simulator.part import Part
from kvroom.workloads.statistics import nearest_rank
from kvroom.workloads.synthetic import of_workload

HOUR_PS = 3600 * 10**12
SHORT = {"input": "lognormal:mean=120:sigma=0.8", "output": "exponential:mean=20"}
CASES: dict[str, dict[str, Any]] = {
    # nine replicas of 10^7 requests a day: 86 % busy at the peak
    "busy": {"share": 1.0, "replicas": 9, "day": "peak=1.6:at=15", **SHORT},
    # one replica: arrivals as uneven as they come
    "alone": {"share": 0.1, "replicas": 1, "day": "peak=1.6:at=15", **SHORT},
    # more than they can do from noon to six: requests pile up and drain
    "overrun": {"share": 0.1, "replicas": 1, "day": "peak=2:at=15", **SHORT},
    # chats that share a system prompt, in two regions
    "chats": {
        "share": 0.1,
        "replicas": 2,
        "day": "peak=1.8:at=14:regions=0.6@0+0.4@-7",
        "input": "lognormal:mean=100:sigma=0.6",
        "output": "exponential:mean=20",
        "turns": 2,
        "think": "10s",
        "prefix": "shared:20x256",
    },
}
METRICS = ("ttft", "tpot")


def question(name: str, requests: float) -> Scenario:
    case = dict(CASES[name])
    many = requests * case.pop("share") / case.get("turns", 1)
    arrivals = f"day:{many:.0f}/day:{case.pop('day')}"
    keys = {"model": "llama-3-8b", "gpu": "L4", "replicas": case.pop("replicas")}
    return Scenario.from_dict({**keys, "workload": {"arrivals": arrivals, **case}})


def part_of(asked: tuple[Scenario, Part]) -> tuple[list[dict[str, array[float]]], float, float]:
    """TTFT and TPOT of what one part serves, by the hour of arrival; its CPU seconds and MiB."""
    scenario, part = asked
    hours = [{metric: array("d") for metric in METRICS} for _ in range(24)]

    def over(request: Any, end: int | None) -> None:
        if end is None or request.arrival >= 24 * HOUR_PS:
            return
        hour = hours[request.arrival // HOUR_PS]
        first = request.first_token_ps
        hour["ttft"].append((first - request.arrival) / 1e12)
        tokens = request.final_tokens - request.num_prompt_tokens
        if tokens > 1:
            hour["tpot"].append((end - first) / (tokens - 1) / 1e12)

    started = process_time()
    assert scenario.workload is not None
    staged = stage(work(scenario), of_workload(scenario.workload), on_over=over, part=part)
    staged.fleet.serve(staged.feed)
    return hours, process_time() - started, getrusage(RUSAGE_SELF).ru_maxrss / 1024


def figures(values: array[float]) -> dict[str, float]:
    ordered = sorted(values)
    ranks = {at: nearest_rank(ordered, int(at[1:])) for at in SHOWN if at != "mean"}
    return {"mean": sum(ordered) / len(ordered), **ranks}


def whole(scenario: Scenario, processes: int) -> dict[str, Any]:
    """Every request of the day, each replica in a process of its own."""
    parts = [Part(k, scenario.replicas, scenario.replicas) for k in range(scenario.replicas)]
    asked = [(scenario, part) for part in parts]
    if processes == 1:
        told = [part_of(one) for one in asked]
    else:
        with ProcessPoolExecutor(processes, max_tasks_per_child=1) as pool:
            told = list(pool.map(part_of, asked))
    hours = [
        {metric: sum((one[0][hour][metric] for one in told), array("d")) for metric in METRICS}
        for hour in range(24)
    ]
    return {
        "hours": [{metric: figures(hour[metric]) for metric in METRICS} for hour in hours],
        "day": {
            metric: figures(sum((hour[metric] for hour in hours), array("d"))) for metric in METRICS
        },
        "requests": sum(len(hour["ttft"]) for hour in hours),
        "cpu_s": sum(one[1] for one in told),
        "mib": max(one[2] for one in told),
    }


def sampled(scenario: Scenario) -> tuple[dict[str, Any], float]:
    started = process_time()
    levels.outside_of_sample = lambda run: 0.0  # what is simulated is the engine's part
    slo = parse_slo("ttft_p95=1s,tpot_p95=200ms")
    fixed = day(scenario, slo=slo, all_day=True)
    return fixed.to_dict(), process_time() - started


def compared(name: str, requests: float, processes: int, folder: Path) -> dict[str, Any]:
    scenario = question(name, requests)
    kept = folder / f"{name}-{requests:.0f}.json"
    if kept.exists():
        exact = json.loads(kept.read_text(encoding="utf-8"))
    else:
        exact = whole(scenario, processes)
        kept.write_text(json.dumps(exact), encoding="utf-8")
    told, spent = sampled(scenario)
    print(
        f"\n{name}: {exact['requests']:,} requests on {scenario.replicas} replicas; "
        f"whole {exact['cpu_s']:,.0f} CPU s and {exact['mib']:,.0f} MiB a process, sampled {spent:,.1f} CPU s"
    )
    errors: dict[str, Any] = {}
    for metric in METRICS:
        errors[metric] = {}
        for at in SHOWN:
            a, b = exact["day"][metric][at], told[f"{metric}_s"][at]
            errors[metric][at] = b / a - 1
            print(f"  {metric} {at:>4}  whole {a:10.5f}  by the hour {b:10.5f}  {b / a - 1:+7.2%}")
        off = sorted(
            abs(row[f"{metric}_s"]["p95"] / hour[metric]["p95"] - 1)
            for row, hour in zip(told["hours"], exact["hours"], strict=True)
        )
        print(
            f"  {metric} p95 of an hour: off by {off[12]:.1%} in the middle, {off[-1]:.1%} at most"
        )
    holds = [hour["ttft"]["p95"] <= 1.0 and hour["tpot"]["p95"] <= 0.2 for hour in exact["hours"]]
    said = [row["needed"] <= row["replicas"] for row in told["hours"]]
    same = sum(a == b for a, b in zip(holds, said, strict=True))
    print(f"  whether the objectives hold is told right of {same} of 24 hours")
    return errors


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=float, default=1e7)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--case", nargs="*", default=list(CASES))
    parser.add_argument("--folder", type=Path, default=Path("build/day"))
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    errors = [compared(n, asked.requests, asked.processes, asked.folder) for n in asked.case]
    if asked.write:
        worst = {
            metric: {at: round(max(abs(e[metric][at]) for e in errors), 4) for at in SHOWN}
            for metric in METRICS
        }
        path = Path(levels.__file__).with_name("errors.json")
        told = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(json.dumps(told | {"errors": worst}, indent=2) + "\n", encoding="utf-8")
        print(f"wrote {path}: say in it what was measured")


if __name__ == "__main__":
    main()
