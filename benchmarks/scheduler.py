"""Requests per CPU second of kvroom's plain, step-by-step scheduler, with and without prefix caching, and
beside it those of the installed engine's own scheduler (vLLM) where a Python that has one is given.

The load: requests with one of 50 shared prefixes of 200 to 2,000 tokens, 20 to 800 tokens of their own
and 20 to 300 tokens of output, 40,000 blocks of 16, 8,192 tokens and 256 requests a step. The engine's
CPU time is that of its process from the first request on; its start is told apart.

    python benchmarks/scheduler.py [REQUESTS] [--engine-python PATH]
"""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path
from typing import Any

from kvroom.observe.installed.engine import installed
from kvroom.observe.installed.serving import script_scheduler
from kvroom.planner.plan import work
from kvroom.scenario.scenario import Scenario
from kvroom.simulator.replay import play
from kvroom.simulator.script import Script


def question(requests: int, *, caching: bool) -> dict[str, Any]:
    dice = random.Random(42)
    prefixes = [(number * 10_000, dice.randint(200, 2_000)) for number in range(50)]
    fresh = 1_000_000
    rows = []
    for number in range(requests):
        first, shared = dice.choice(prefixes)
        own, output = dice.randint(20, 800), dice.randint(20, 300)
        rows.append(
            {
                "arrival_step": number,
                "prompt": [[first, shared], [fresh, own]],
                "output": [[fresh + own, output]],
            }
        )
        fresh += own + output
    engine = {
        "num_gpu_blocks": 40_000,
        "groups": [{"type": "full", "block_size": 16}],
        "max_num_batched_tokens": 8192,
        "max_num_seqs": 256,
        "max_model_len": 32_768,
        "enable_prefix_caching": caching,
    }
    return {"engine": engine, "requests": rows}


def cpu_s(pid: int) -> float:
    """CPU seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def told(who: str, requests: int, spent: float, steps: int, hits: int) -> None:
    print(
        f"{who}: {requests / spent:,.0f} requests per CPU second, {spent / steps * 1e6:,.0f} µs a step "
        f"({steps:,} steps, {hits:,} tokens hit)"
    )


def main(requests: int, python: str | None) -> None:
    plan = work(Scenario.from_dict({"model": "llama-3-8b", "gpu": "H100-SXM"}))
    for caching in (True, False):
        asked = question(requests, caching=caching)
        words = f"prefix caching {'on' if caching else 'off'}"
        script = Script.from_dict(asked)
        started = time.process_time()
        played = script.play()
        spent = time.process_time() - started
        hits = played.totals.cached_tokens_first
        told(f"{words}, kvroom", requests, spent, played.total_steps, hits)
        if python is None:
            continue
        with installed(python, plan) as engine:
            pid = engine.process.pid
            scheduler = script_scheduler(engine, asked["engine"], script)
            begun, started = cpu_s(pid), time.process_time()
            by_engine = play(scheduler, script.served())
            own = time.process_time() - started
            spent = cpu_s(pid) - begun
            hits = by_engine.totals.cached_tokens_first
            told(f"{words}, {engine.name}", requests, spent + own, by_engine.total_steps, hits)
            same = by_engine.to_dict() == played.to_dict()
            print(
                f"  {begun:.1f} CPU seconds to start, {own:.1f} of kvroom's own in the run; "
                f"{'the same to the last step' if same else 'NOT the same'}"
            )


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("requests", type=int, nargs="?", default=5_000)
    words.add_argument("--engine-python")
    read = words.parse_args()
    main(read.requests, read.engine_python)
