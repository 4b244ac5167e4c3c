"""What it costs to cut a fleet behind one router into cells with a router each.

    python benchmarks/cells.py

Sixteen replicas of Llama 3 8B on an L4; chats of three turns that begin with one of fifty system prompts, at
three rates. A cell's router sees its own replicas only, and chats are split between cells in turn: what that
does to waits and cache hits is the error of taking cells for the whole. Each figure is a mean of three seeds.
"""

from __future__ import annotations

from kvroom.planner.plan import work
from kvroom.planner.simulate import serve
from kvroom.scenario.scenario import Scenario
from kvroom.workloads.synthetic import parse

REPLICAS = 16
SPEC = (
    "arrivals=poisson:{rate}/s,input=lognormal:mean=400:sigma=0.9,output=exponential:mean=120,"
    "prefix=shared:50x1K,turns=3,think=5s,requests=6000,seed={seed}"
)
FIGURES = ("TTFT p50", "TTFT p99", "TPOT p95", "hits")


def figures(routing: str, rate: float) -> list[float]:
    asked = {"model": "llama-3-8b", "gpu": "L4", "replicas": REPLICAS, "context_tokens": 8192}
    made = work(Scenario.from_dict({**asked, "routing": routing}))
    found = []
    for seed in range(3):
        told = serve(made, parse(SPEC.format(rate=rate, seed=seed))).to_dict()
        times = (told["ttft_s"]["p50"], told["ttft_s"]["p99"], told["tpot_s"]["p95"])
        found.append((*times, told["prefix_hit_ratio"]))
    return [sum(column) / len(column) for column in zip(*found, strict=True)]


def main() -> None:
    print(f"{'policy':>14} {'chats/s':>8} {'cells':>6} " + " ".join(f"{x:>10}" for x in FIGURES))
    for policy in ("least-loaded", "prefix"):
        for rate in (3.0, 5.0, 6.0):
            whole = figures(policy, rate)
            told = [f"{value:10.4g}" for value in whole]
            print(f"{policy:>14} {rate:>8g} {1:>6} " + " ".join(told), flush=True)
            for cells in (2, 4, 8):
                cut = figures(f"{policy}:cells={cells}", rate)
                off = [f"{b / a - 1:>+10.1%}" for a, b in zip(whole, cut, strict=True)]
                print(f"{policy:>14} {rate:>8g} {cells:>6} " + " ".join(off), flush=True)


if __name__ == "__main__":
    main()
