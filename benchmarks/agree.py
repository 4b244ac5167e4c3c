"""How far the closed form of a load lies off simulations of the same load.

    python benchmarks/agree.py [--questions N] [--seed S] [--show N] [--write]

Questions are drawn over models, cards, layouts, engines, lengths, users and rates: closed loops and open
arrivals, lengths alike and varied, chats with think time, caches with too little room, data-parallel ranks,
stages, replicas. Each is planned and simulated past its first requests; the errors of TPOT and TTFT are shown
by kind of question and worst first. ``--write`` keeps the error that two of three questions do not exceed
in ``latency/load_errors.json``, which plan's bands and search's bounds count in.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from math import log
from pathlib import Path
from typing import Any

from kvroom.errors import KvroomError
from kvroom.planner.plan import work
from kvroom.planner.simulate import serve
from kvroom.scenario.scenario import Scenario
from kvroom.workloads.statistics import nearest_rank
from kvroom.workloads.synthetic import of_workload

MODELS: tuple[tuple[str, str, dict[str, int]], ...] = (
    ("llama-3.1-8b", "H100-SXM", {}),
    ("llama-3.1-8b", "A100-SXM-80", {}),
    ("llama-3.1-8b", "L40S", {}),
    ("llama-3.1-8b", "L4", {}),
    ("llama-3.1-8b", "RTX-4090", {}),
    ("llama-3.1-70b", "H100-SXM", {"tp": 4}),
    ("llama-3.1-70b", "H200-SXM", {"tp": 2}),
    ("llama-3.1-70b", "A100-SXM-80", {"tp": 2, "pp": 2}),
    ("qwen3-32b", "H100-SXM", {"tp": 2}),
    ("qwen3-30b-a3b", "H100-SXM", {}),
    ("qwen3-30b-a3b", "H100-SXM", {"dp": 2, "tp": 1, "ep": 2}),
    ("gpt-oss-120b", "H100-SXM", {"tp": 2}),
    ("gemma-3-27b", "H100-SXM", {"tp": 2}),
    ("deepseek-v3", "H200-SXM", {"tp": 8}),
)
ENGINES = ("vllm", "vllm", "vllm", "sglang", "tensorrt-llm", "llama.cpp")
USERS = (1, 4, 8, 16, 32, 64, 128)
INPUTS, OUTPUTS = (128, 500, 1000, 2000, 4000), (64, 128, 200, 400)
BUSY = (0.2, 0.5, 0.7, 0.85)
"""Shares of the rate that a closed loop of many users reaches."""
KINDS = ("closed", "closed", "varied", "open", "open varied", "full", "replicas", "chat")
METRICS = ("tpot", "ttft")
USUAL = 67
"""The percentage of questions whose errors lie within the one that is kept: two of three, as one standard
deviation would hold of normal ones."""


@dataclass(frozen=True)
class Compared:
    """One question, and the logarithms of what was planned over what was simulated."""

    name: str
    kind: str
    errors: Mapping[str, float]
    inside: Mapping[str, bool]


def question(draw: random.Random) -> tuple[str, str, Scenario] | None:
    """A question with its name and kind; None where its deployment cannot be asked."""
    model, gpu, layout = draw.choice(MODELS)
    engine, kind = draw.choice(ENGINES), draw.choice(KINDS)
    users = draw.choice(USERS)
    entering, leaving = draw.choice(INPUTS), draw.choice(OUTPUTS)
    load: dict[str, Any] = {"input_tokens": entering, "output_tokens": leaving}
    keys: dict[str, Any] = {
        "model": model,
        "gpu": gpu,
        "engine": engine,
        "context_tokens": 16384,
        **layout,
    }
    if "varied" in kind:
        load = {
            "input": f"lognormal:mean={entering}:sigma=0.7:max=8000",
            "output": f"lognormal:mean={leaving}:sigma=0.6:max=4000",
        }
    if kind == "chat":
        load = {"input": f"uniform:{entering // 4}-{entering}", "output": leaving, "turns": 4}
        load |= {"think": "uniform:2s-20s", "arrivals": f"closed:{users}"}
    elif kind == "replicas":
        keys["replicas"] = draw.choice((2, 3))
        load["concurrency"] = users * keys["replicas"]
    elif kind == "full":
        load["concurrency"] = 64
    else:
        load["concurrency"] = users
    seed = draw.randrange(1000)
    try:
        made = work(Scenario.from_dict({**keys, "workload": load}))
        if kind == "full" and made.plan.capacity.shared.requests:
            room = int(made.plan.capacity.shared.requests)
            if room > 400:
                return None
            load["concurrency"] = max(2, round(room * draw.choice((0.9, 1.0, 1.2, 2.0))))
        if kind.startswith("open"):
            if made.times is None:
                return None
            del load["concurrency"]
            load["requests_per_s"] = made.times.requests_per_s * draw.choice(BUSY)
        at_once = load.get("concurrency", users)
        load |= {"requests": max(400, 14 * at_once), "seed": seed}
        scenario = Scenario.from_dict({**keys, "workload": load})
    except KvroomError:
        return None
    who = f"{load['requests_per_s']:.3g}/s" if "requests_per_s" in load else f"{at_once} users"
    shape = "".join(f" {k}{n}" for k, n in layout.items())
    return (
        f"{model} {gpu}{shape} {engine}: {who}, {entering} in, {leaving} out, {kind}",
        kind,
        scenario,
    )


def compared(name: str, kind: str, scenario: Scenario) -> Compared | None:
    """Plan and simulation of a question; None where either has no times."""
    try:
        made = work(scenario)
        assert scenario.workload is not None
        told = serve(made, of_workload(scenario.workload)).to_dict()
    except KvroomError:
        return None
    serving, errors, inside = made.plan.serving, {}, {}
    for metric in METRICS:
        planned, seen = getattr(serving, f"{metric}_s"), told[f"{metric}_s"]["mean"]
        if not planned or not seen:
            return None
        errors[metric] = log(planned / seen)
        low, high = (getattr(serving, f"{metric}_{end}_s") for end in ("low", "high"))
        inside[metric] = low <= seen <= high
    return Compared(name=name, kind=kind, errors=errors, inside=inside)


def rank(values: list[float], percent: int) -> float:
    """A nearest rank of absolute values."""
    return nearest_rank(sorted(map(abs, values)), percent)


def line(name: str, rows: list[Compared]) -> str:
    """Median and 90th percentile of both errors, and how many lie within the bands."""
    parts = []
    for metric in METRICS:
        found = [row.errors[metric] for row in rows]
        held = sum(row.inside[metric] for row in rows) / len(rows)
        parts.append(
            f"{metric.upper()} {100 * rank(found, 50):5.1f} % median {100 * rank(found, 90):5.1f} % p90"
            f" {100 * held:4.0f} % in band"
        )
    return f"{name:12} {len(rows):4}  " + "   ".join(parts)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--questions", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=10)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    draw = random.Random(asked.seed)
    rows: list[Compared] = []
    while len(rows) < asked.questions:
        one = question(draw)
        found = one and compared(*one)
        if found:
            rows.append(found)
    kinds: dict[str, list[Compared]] = defaultdict(list)
    for row in rows:
        kinds[row.kind].append(row)
    for kind, some in sorted(kinds.items()):
        print(line(kind, some))
    print(line("all", rows))
    for metric in METRICS:
        print(f"\n{metric.upper()}, worst first")
        for row in sorted(rows, key=lambda row: -abs(row.errors[metric]))[: asked.show]:
            print(f"  {100 * row.errors[metric]:+6.1f} %  {row.name}")
    if asked.write:
        errors = {m: round(rank([row.errors[m] for row in rows], USUAL), 4) for m in METRICS}
        command = f"benchmarks/agree.py --questions {asked.questions} --seed {asked.seed}"
        kept = {"source": f"{command}: what two of three questions do not exceed", "errors": errors}
        place = Path(str(files("kvroom.latency"))) / "load_errors.json"
        place.write_text(json.dumps(kept, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
