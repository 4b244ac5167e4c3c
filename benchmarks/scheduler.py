"""Requests per CPU second of kvroom's plain, step-by-step scheduler, with and without prefix caching, and
beside it those of the installed engine's own scheduler (vLLM, SGLang) where a Python that has one is given.

The load: requests with one of 50 shared prefixes of 200 to 2,000 tokens, 20 to 800 tokens of their own
and 20 to 300 tokens of output, 40,000 blocks of 16, 8,192 tokens and 256 requests a step. The engine's
CPU time is that of its process from the first request on; its start is told apart. SGLang, which has no
blocks, has as many tokens, and is held against kvroom's scheduler for SGLang.

    python benchmarks/scheduler.py [REQUESTS] [--engine-python PATH] [--sglang-python PATH]
"""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path
from typing import Any

from kvroom.engines import served_by
from kvroom.kvcache.request import ServedRequest
from kvroom.kvcache.tokens import BlockHashes, length
from kvroom.observe.installed.engine import InstalledEngine, installed
from kvroom.observe.installed.scheduler import InstalledScheduler
from kvroom.observe.installed.serving import facts_of, script_scheduler
from kvroom.planner.plan import work
from kvroom.scenario.scenario import Scenario
from kvroom.simulator.replay import play
from kvroom.simulator.script import Script
from kvroom.simulator.script_results import ScriptResult


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


def compare(
    engine: InstalledEngine,
    words: str,
    scheduler: InstalledScheduler,
    script: Script,
    own: ScriptResult,
) -> None:
    """Play a script by the engine's scheduler too; print what it cost and whether it did the same."""
    pid = engine.process.pid
    served = script.served() if engine.engine.name == "vllm" else by_token(script)
    begun, started = cpu_s(pid), time.process_time()
    by_engine = play(scheduler, served)
    ours = time.process_time() - started
    spent = cpu_s(pid) - begun + ours
    hits = by_engine.totals.cached_tokens_first
    told(f"{words}, {engine.name}", len(served), spent, by_engine.total_steps, hits)
    same = by_engine.to_dict() == own.to_dict()
    print(
        f"  {begun:.1f} CPU seconds to start, {ours:.1f} of kvroom's own in the run; "
        f"{'the same to the last step' if same else 'NOT the same'}"
    )


def by_token(script: Script) -> list[ServedRequest]:
    """The requests of a script with a name for every token, as SGLang's cache tells them apart."""
    return [
        ServedRequest(
            place,
            each.arrival_step,
            length(each.prompt),
            length(each.output),
            hashes=BlockHashes((*each.prompt, *each.output), 1),
        )
        for place, each in enumerate(script.requests)
    ]


def paged(requests: int, words: str, asked: dict[str, Any], python: str | None) -> None:
    """vLLM's rules, and vLLM where a Python has it."""
    script = Script.from_dict(asked)
    started = time.process_time()
    played = script.play()
    spent = time.process_time() - started
    hits = played.totals.cached_tokens_first
    told(f"{words}, kvroom", requests, spent, played.total_steps, hits)
    if python is None:
        return
    plan = work(Scenario.from_dict({"model": "llama-3-8b", "gpu": "H100-SXM"}))
    with installed(python, plan) as engine:
        scheduler = script_scheduler(engine, asked["engine"], script)
        compare(engine, words, scheduler, script, played)


def by_tokens(requests: int, words: str, asked: dict[str, Any], python: str) -> None:
    """SGLang's rules, and SGLang."""
    script, engine_args = Script.from_dict(asked), asked["engine"]
    args = {
        "max_total_tokens": engine_args["num_gpu_blocks"] * 16,
        "chunked_prefill_size": engine_args["max_num_batched_tokens"],
        "max_running_requests": engine_args["max_num_seqs"],
        "context_length": engine_args["max_model_len"],
        "disable_radix_cache": not engine_args["enable_prefix_caching"],
    }
    question = {"model": "llama-3.1-8b", "gpu": "H200-SXM", "engine": "sglang"}
    plan = work(Scenario.from_dict({**question, "engine_args": args}))
    rules = served_by(plan.deployment, plan.answer)
    started = time.process_time()
    played = play(rules.scheduler(), by_token(script))
    spent = time.process_time() - started
    hits = played.totals.cached_tokens_first
    told(f"{words}, kvroom for SGLang", requests, spent, played.total_steps, hits)
    texts = {place: (each.prompt, each.output) for place, each in enumerate(script.requests)}
    with installed(python, plan) as engine:
        capacity = engine.plan(plan)
        facts = facts_of(engine.ask("begin"), capacity.told)
        compare(engine, words, InstalledScheduler(engine, facts, texts=texts), script, played)


def main(requests: int, vllm: str | None, sglang: str | None) -> None:
    for caching in (True, False):
        asked = question(requests, caching=caching)
        words = f"prefix caching {'on' if caching else 'off'}"
        paged(requests, words, asked, vllm)
        if sglang is not None:
            by_tokens(requests, words, asked, sglang)


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("requests", type=int, nargs="?", default=5_000)
    words.add_argument("--engine-python", help="a Python that has vLLM")
    words.add_argument("--sglang-python", help="a Python that has SGLang")
    read = words.parse_args()
    main(read.requests, read.engine_python, read.sglang_python)
