"""Offload tiers on a real trace: a global cache against local ones, and what the network must give.

    python benchmarks/tiers.py TRACE

TRACE is the Mooncake conversation trace (FAST'25 release): 12,031 requests, ids of 512 tokens. Ten nodes of
eight H100 serve Llama 3 70B (327,680 bytes of cache a token), with host memory for 3 million tokens each
(983 GB), as in the paper's figure 10. It prints

1. hit ratios of one LRU cache of 3 and of 30 million tokens, from one pass of reuse distances;
2. the same of ten nodes: each with its own memory, requests in turn or to where their prefix is, and with
   all ten memories as one store that every node reads over the network;
3. times to the first token for networks from 10 to 800 Gb/s a node;
4. requests per CPU second with and without tiers.
"""

from __future__ import annotations

import sys
from time import process_time
from typing import Any

from kvroom.latency.clock import PS_PER_S
from kvroom.planner.plan import work
from kvroom.planner.simulate import serve
from kvroom.scenario.scenario import Scenario
from kvroom.simulator.reuse import reuse
from kvroom.workloads.traces.reader import Trace

NODES = 10
TOKENS = 3_000_000
TOKEN_BYTES = 327_680
PREFIX = 8192
HALF_BLOCK = 0.03
"""What the paper's own curve lies above one of 512-token ids at every size (its figure 9): it counts
finer than the ids of its trace."""


def run(trace: str, tiers: list[dict[str, Any]], routing: str = "round-robin") -> dict[str, Any]:
    """The answer of ten nodes, with the CPU seconds that it took; the GPUs' own cache holds one longest
    request, so that what is found is found in the tiers."""
    scenario = Scenario.from_dict(
        {
            "model": "llama-3.1-70b",
            "gpu": "H100-SXM",
            "gpu_count": 8,
            "tp": 8,
            "engine": "vllm",
            "engine_version": "0.33.0",
            "context_tokens": 131_072,
            "engine_args": {"num_gpu_blocks_override": 20_000},
            "replicas": NODES,
            "routing": routing,
            "tiers": tiers,
        }
    )
    workings = work(scenario)
    started = process_time()
    made = serve(workings, Trace(trace))
    answer = made.to_dict() | {"cpu_s": process_time() - started}
    for plant in made.plants:
        one = plant.made[0]
        answer["fetch_s"] = one.alone_ps(one.levels[-1], PREFIX) / PS_PER_S
        answer["compute_s"] = one.computing_ps(0, PREFIX) / PS_PER_S
    return answer


def host(**keys: Any) -> dict[str, Any]:
    return {"kind": "host", "bytes": TOKENS * TOKEN_BYTES, **keys}


def network(**keys: Any) -> dict[str, Any]:
    return {"kind": "network", "bytes": NODES * TOKENS * TOKEN_BYTES, **keys}


def main() -> None:
    trace = sys.argv[1]
    alone = reuse(Trace(trace), 512).lru
    local, whole = (alone.ratio(n * TOKENS // 512) for n in (1, NODES))
    print("One LRU cache, block-weighted")
    print(
        f"  3M tokens {local:.1%}, 30M tokens {whole:.1%}: {whole / local:.2f} times as many hits"
    )
    nearer = (whole + HALF_BLOCK) / (local + HALF_BLOCK)
    print(f"  with the half block that 512-token ids lose: {nearer:.2f} times (the paper: 2.22)")

    print(
        f"{NODES} nodes, hits over prompt tokens{'':12}{'hits':>7}{'TTFT mean':>12}{'req/CPU s':>11}"
    )
    cases = {
        "no tier, in turn": ([], "round-robin"),
        "own memory, in turn": ([host()], "round-robin"),
        "own memory, to where the prefix is": ([host()], "prefix"),
        "one store, in turn": ([network()], "round-robin"),
        "one store, to where the prefix is": ([network()], "prefix"),
    }
    for name, (tiers, routing) in cases.items():
        told(name, run(trace, tiers, routing))

    print(
        f"One store over a network of so many Gb/s a node; the last column: {PREFIX:,} tokens anew"
    )
    print(
        f"  {'Gb/s':>6}{'hits':>8}{'TTFT mean':>11}{'p90':>9}{'reads':>8}{'mean read':>11}{'p99':>9}"
        f"{'8K read':>9}{'anew':>9}"
    )
    for gbits in (10, 25, 50, 100, 200, 400, 800):
        answer = run(trace, [network(bytes_per_s=gbits * 125_000_000)])
        ttft, tier = answer["ttft_s"], answer["tiers"][1]
        read = tier["read_s"]
        print(
            f"  {gbits:>6}{answer['prefix_hit_ratio']:>8.1%}{ttft['mean']:>9.2f} s{ttft['p90']:>7.2f} s"
            f"{tier['reads']:>8,}{read['mean'] or 0:>9.2f} s{read['p99'] or 0:>7.2f} s"
            f"{answer['fetch_s']:>7.2f} s{answer['compute_s']:>7.2f} s",
            flush=True,
        )


def told(name: str, answer: dict[str, Any]) -> None:
    rate = answer["requests"]["arrived"] / answer["cpu_s"]
    mean = answer["ttft_s"]["mean"]
    print(f"  {name:42}{answer['prefix_hit_ratio']:>7.1%}{mean:>10.2f} s{rate:>11,.0f}", flush=True)


if __name__ == "__main__":
    main()
