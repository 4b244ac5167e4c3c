"""Simulated requests per CPU second, and how the cost grows with requests, tokens and concurrency.

    python benchmarks/simulation.py [--kinds] [--memory] [--trace FILE] [--plot FILE.svg] [--compiled PYTHON]
        [--peers FOLDER]

Llama 3 70B on four H100, vLLM's rules with prefix caching on; made-up prompts of 950 and answers of 190
tokens on average (lognormal), Poisson arrivals. Each figure is the best of three runs of one process:
CPU time, without start-up and without drawing the requests. Then models whose layers keep windows, chunks or
state (``--kinds``: only these): the same load, with nothing shared, and with one of fifty beginnings shared
(drawing included). ``turns`` is the time a request in turns of an empty loop, timed beside it, so that a
machine's load cancels. ``--memory`` plays up to ten million requests and tells the most memory held.
``fleet`` rows are eight replicas behind a router that looks for prefixes (drawing included). ``--trace`` adds
a trace on eight replicas (reading it included), by router and in two pools. ``--plot`` draws the scaling.
``--compiled`` names a Python that has the compiled wheel (``make wheel-compiled``): one replica, models with
windows or state at twenty requests a second and the eight replicas, both builds side by side.
``--peers`` names a folder with an environment a tool (``python -m venv FOLDER/aisimulate``, then pip
installs aisimulate in it, and so on for ``dynamo``, ai-dynamo with an aisimulate that it can read, and
``vllm``): kvroom's command and theirs play the same requests from a trace file, and the last column is how
many times kvroom's CPU time theirs is; what is missing is left out and said so. CPU seconds are those of the
whole process and of what it starts, less those of the same command on the first of the requests.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from itertools import pairwise
from math import log10
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from time import process_time
from typing import Any

import kvroom
from kvroom.planner.plan import Workings, work
from kvroom.planner.simulate import Simulated, serve
from kvroom.scenario.routing import ROUTING_POLICIES
from kvroom.scenario.scenario import Scenario
from kvroom.workloads.requests import Request
from kvroom.workloads.synthetic import parse
from kvroom.workloads.traces.reader import Trace

RUNS = 3
INPUT = "lognormal:mean=950:sigma=0.85:min=16:max=8000"
OUTPUT = "lognormal:mean={}:sigma=0.8:min=4"
Row = tuple[str, float, float, float]
"""(what is varied, its value, requests that run on average, CPU microseconds a request)"""


def workings(replicas: int = 1, model: str = "llama-3.1-70b", **more: Any) -> Workings:
    return work(
        Scenario.from_dict(
            {
                "model": model,
                "gpu": "H100-SXM",
                "gpu_count": 4,
                "tp": 4,
                "engine": "vllm",
                "engine_version": "0.33.0",
                "context_tokens": 131072,
                "replicas": replicas,
                **more,
            }
        )
    )


def requests(count: int, rate: float, output: float) -> list[Request]:
    spec = f"arrivals=poisson:{rate}/s,input={INPUT},output={OUTPUT.format(output)}"
    made = parse(f"{spec},requests={count},seed=42")
    return [request._replace(prefix=None) for request in made]  # nothing is shared


def timed(w: Workings, source: Callable[[], Iterable[Request]]) -> tuple[float, Simulated]:
    """The least CPU seconds of RUNS runs, and the last of them."""
    best = float("inf")
    for _ in range(RUNS):
        given = source()
        started = process_time()
        made = serve(w, given)
        made.to_dict()
        best = min(best, process_time() - started)
    return best, made


def running(made: Simulated) -> float:
    """Requests that run, on average over time."""
    line = made.line
    held = sum((b.time_ps - a.time_ps) * a.running for a, b in pairwise(line))
    return held / max(1, line[-1].time_ps - line[0].time_ps)


def scaling(w: Workings) -> list[Row]:
    cases = [
        ("requests", n, (n, 2.0, 190.0)) for n in (2_500, 5_000, 10_000, 20_000, 40_000, 80_000)
    ]
    # Longer answers come more seldom, so that as many run at once.
    cases += [("answer tokens", t, (10_000, 2.0 * 190 / t, t)) for t in (50, 200, 800, 3200)]
    # More a second run together, until the cache is full and the others wait.
    cases += [("rate", r, (10_000, r, 190.0)) for r in (0.5, 1, 2, 4, 8, 16)]
    rows: list[Row] = []
    for name, value, (count, rate, output) in cases:
        made_up = requests(count, rate, output)
        seconds, made = timed(w, lambda made_up=made_up: made_up)
        rows.append((name, value, running(made), seconds / count * 1e6))
        told = f"{name:>14} {value:>9,g} {running(made):>9.1f} {rows[-1][3]:>9.1f} {count / seconds:>12,.0f}"
        print(told, flush=True)
    return rows


MIXED = {
    "llama-3.1-70b": 4,
    "mistral-7b-v0.1": 1,
    "gpt-oss-120b": 4,
    "gemma-3-27b": 4,
    "gemma-4-26b-a4b": 4,
    "llama-4-scout": 8,
    "qwen3-next-80b-a3b": 4,
    "falcon-h1-34b": 4,
    "jamba-1.5-mini": 4,
    "nemotron-nano-9b-v2": 1,
}
"""Models by how many H200 serve them: full attention, windows, chunks, state."""


def of_kind(model: str) -> Workings:
    """A model of ``MIXED`` on its cards."""
    gpus = MIXED[model]
    return workings(model=model, gpu="H200-SXM", gpu_count=gpus, tp=gpus, context_tokens=8192)


def mixed(model: str, count: int = 4000) -> None:
    """Requests per CPU second of a model with layer groups, two a second."""
    turn = speed_of_python() / 1e3
    w = of_kind(model)
    alone = requests(count, 2.0, 190.0)
    seconds, made = timed(w, lambda: alone)
    spec = f"arrivals=poisson:2/s,input={INPUT},output={OUTPUT.format(190)},prefix=shared:50x512"
    shared, _ = timed(w, lambda: parse(f"{spec},requests={count // 4},seed=42"))
    each = seconds / count * 1e6
    print(
        f"{model:>24} {running(made):>9.1f} {each:>9.1f} {each / turn:>9,.0f} {count / seconds:>12,.0f}"
        f" {count // 4 / shared:>12,.0f}",
        flush=True,
    )


def kinds() -> None:
    """A row a model of ``MIXED``."""
    print(
        f"{'model':>24} {'running':>9} {'us/req':>9} {'turns':>9} {'req/CPU s':>12} {'shared':>12}"
    )
    for model in MIXED:
        mixed(model)


def memory() -> None:
    """Up to ten million requests, drawn as they come: CPU time and the most memory that was held."""
    for model in ("llama-3.1-70b", "gemma-3-27b"):
        w = workings(model=model, context_tokens=8192)
        for count in (10**5, 10**6, 10**7):
            spec = f"arrivals=poisson:2/s,input={INPUT},output={OUTPUT.format(190)}"
            started = process_time()
            serve(w, parse(f"{spec},requests={count},seed=42")).to_dict()
            seconds, held = process_time() - started, getrusage(RUSAGE_SELF).ru_maxrss / 1024
            print(
                f"{model:>24} {count:>12,} requests {count / seconds:>12,.0f} req/CPU s {held:>9,.0f} MiB",
                flush=True,
            )


FLEET = 8
ROUTINGS = (*ROUTING_POLICIES, "prefix:stale=50ms", "dynamo:prefill_load_scale=3")


def fleets() -> None:
    """The same on eight replicas behind a router that looks for prefixes: linear in requests?"""
    spec = f"arrivals=poisson:16/s,input={INPUT},output={OUTPUT.format(190)},prefix=shared:50x512"
    w = workings(FLEET, routing="prefix")
    for count in (2_500, 5_000, 10_000, 20_000, 40_000):
        seconds, made = timed(w, lambda count=count: parse(f"{spec},requests={count},seed=42"))
        cost = seconds / count * 1e6
        print(
            f"{'fleet requests':>14} {count:>9,g} {running(made):>9.1f} {cost:>9.1f}"
            f" {count / seconds:>12,.0f}",
            flush=True,
        )


LOADED = ("gemma-4-26b-a4b", "gpt-oss-120b", "qwen3-next-80b-a3b", "falcon-h1-34b")
BUILDS = ("llama-3.1-70b", *LOADED, "fleet")


def case(name: str) -> tuple[float, float]:
    """One of ``BUILDS`` in this Python: requests per CPU second, turns of an empty loop a request."""
    turn = speed_of_python()
    if name == "fleet":
        spec = (
            f"arrivals=poisson:16/s,input={INPUT},output={OUTPUT.format(190)},prefix=shared:50x512"
        )
        w, count = workings(FLEET, routing="prefix"), 10_000
        seconds, _ = timed(w, lambda: parse(f"{spec},requests={count},seed=42"))
    else:
        w, rate, count = (
            (of_kind(name), 20.0, 8_000) if name in LOADED else (workings(), 2.0, 20_000)
        )
        made_up = requests(count, rate, 190.0)
        seconds, _ = timed(w, lambda: made_up)
    return count / seconds, seconds / count * 1e9 / turn


def builds(python: str) -> None:
    """``BUILDS`` here and in another Python, one after the other, each with its own empty loop."""
    print(f"{'':>24} {'req/CPU s':>12} {'compiled':>12} {'turns':>9} {'compiled':>9} {'ratio':>6}")
    for name in BUILDS:
        told = []
        for which in (sys.executable, python):
            done = subprocess.run(
                [which, __file__, "--case", name], capture_output=True, text=True, check=True
            )
            told.append([float(value) for value in done.stdout.split()])
        (pure, turns), (compiled, fewer) = told
        print(
            f"{name:>24} {pure:>12,.0f} {compiled:>12,.0f} {turns:>9,.0f} {fewer:>9,.0f}"
            f" {turns / fewer:>6.2f}",
            flush=True,
        )


PEERS = {"dynamo": 20_000, "aisimulate": 20_000, "vllm": 1_000}
"""Other simulators by the requests that they are given: vLLM's scheduler decides each step by itself."""
PEER_RATES = 2.0, 6.0
FIRST = 20
"""Requests of the run that stands for the start."""
TRACE_BLOCK = 512
METERED = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)
"""
"""A process of its own between, as a child's most memory begins with what its parent held."""
VERSION = """
import sys
from importlib.metadata import packages_distributions, version
print(version(packages_distributions()[sys.argv[1]][0]))
"""


def written(made_up: list[Request], path: Path) -> Path:
    """The requests as a trace of Mooncake's format, nothing shared."""
    lines, named = [], 0
    for request in made_up:
        blocks = -(-request.input_tokens // TRACE_BLOCK)
        line = {
            "timestamp": request.arrival_ps // 10**9,
            "input_length": request.input_tokens,
            "output_length": request.output_tokens,
            "hash_ids": list(range(named, named + blocks)),
        }
        lines.append(json.dumps(line))
        named += blocks
    path.write_text("\n".join(lines) + "\n")
    return path


def command(tool: str, python: Path, trace: Path) -> list[str]:
    """A tool's command for a trace: the 70B on four H100, vLLM's rules, prefix caching on."""
    if tool in ("kvroom", "vllm"):
        words = "simulate llama-3.1-70b --gpu H100-SXM:4 --tp 4 --engine vllm --json --trace"
        theirs = ["--scheduler", "engine", "--engine-python", str(python)] if tool == "vllm" else []
        return [sys.executable, "-m", "kvroom", *words.split(), str(trace), *theirs]
    config = trace.with_suffix(".yaml")  # JSON is YAML too
    source = {"type": "trace", "paths": [str(trace)], "block_size": TRACE_BLOCK}
    engine = {
        "model": "meta-llama/Meta-Llama-3.1-70B",
        "hardware": "h100_sxm",
        "backend": "vllm",
        "workers": {"aggregated": {"parallelism": {"tensor": 4}}},
    }
    traffic = {"source": source, "load": {"type": "trace_timestamps"}}
    config.write_text(json.dumps({"traffic": traffic, "engine": engine}))
    stack = "dynamo" if tool == "dynamo" else "engine"
    words = f"predict --config {config} --stack {stack} --format json --overwrite --output-dir"
    return [str(python.with_name("aisimulate")), *words.split(), str(trace.with_suffix(f".{tool}"))]


def metered(words: list[str]) -> tuple[float, float]:
    """The least CPU seconds of RUNS runs of a command, and the most MiB that it held."""
    runs = []
    for _ in range(RUNS):
        whole = [sys.executable, "-S", "-c", METERED, *words]
        seconds, held = subprocess.check_output(whole, text=True).split()
        runs.append((float(seconds), float(held)))
    return min(seconds for seconds, _ in runs), max(held for _, held in runs)


def peers(tools: Path) -> None:
    """A row a tool and rate: kvroom and what else is installed, on the same requests."""
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, best of {RUNS} runs\n")
    print(
        "| tool | version | a second | requests | start | net CPU s | a CPU s | MiB | times kvroom's |"
    )
    print("| --- " * 9 + "|")
    for rate in PEER_RATES:
        made_up = requests(max(PEERS.values()), rate, 190.0)
        quickest = 0.0
        for tool, count in {"kvroom": len(made_up), **PEERS}.items():
            python = tools / tool / "bin/python"
            if tool == "kvroom":
                version = kvroom.__version__
            elif python.exists():
                asked = [str(python), "-c", VERSION, tool]
                version = subprocess.check_output(asked, text=True).strip()
            else:
                print(f"| {tool} | not installed in {tools} |", flush=True)
                continue
            with tempfile.TemporaryDirectory() as folder:
                few = written(made_up[:FIRST], Path(folder, "few.jsonl"))
                start, _ = metered(command(tool, python, few))
                whole = written(made_up[:count], Path(folder, "whole.jsonl"))
                seconds, held = metered(command(tool, python, whole))
            net = seconds - start
            each = (count - FIRST) / net
            quickest = quickest or each
            figures = f"{rate:g} | {count:,} | {start:.1f} | {net:.2f} | {each:,.0f} | {held:,.0f}"
            print(f"| {tool} | {version} | {figures} | {quickest / each:.1f} |", flush=True)


def traced(path: str) -> None:
    """A trace on eight replicas, by router, and in two pools."""
    splits = {"prefill": {"count": 5}, "decode": {"count": 3}}
    cases = [(name, workings(FLEET, "llama-3.1-70b", routing=name)) for name in ROUTINGS]
    two = workings(1, "llama-3.1-70b", routing="prefix", disaggregation=splits)
    for name, w in (*cases, ("prefill 5, decode 3", two)):
        seconds, made = timed(w, lambda: Trace(path))
        told = made.to_dict()
        print(
            f"{name:>27}: {made.counts['arrived'] / seconds:>8,.0f} requests per CPU second,"
            f" {told['prefix_hit_ratio']:.1%} found cached, TTFT {told['ttft_s']['mean']:.2f} s,"
            f" p95 {told['ttft_s']['p95']:.2f} s"
        )


def speed_of_python() -> float:
    """Nanoseconds of an empty loop's turn: how fast this machine is just now."""
    best = float("inf")
    for _ in range(10):
        started = process_time()
        for _ in range(10**6):
            pass
        best = min(best, process_time() - started)
    return best * 1e3


def plot(rows: list[Row], path: str) -> None:
    """CPU time a request over what is varied, both axes logarithmic."""
    width, height, margin = 300, 220, 40
    parts = []
    for place, name in enumerate(dict.fromkeys(row[0] for row in rows)):
        points = [(log10(value), log10(cost)) for what, value, _, cost in rows if what == name]
        low, high = points[0][0], points[-1][0]

        def at(x: float, y: float, low: float = low, high: float = high, place: int = place) -> str:
            across = margin + place * width + (x - low) / (high - low) * (width - 2 * margin)
            return f"{across:.1f},{height - margin - (y / 3) * (height - 2 * margin):.1f}"

        drawn = " ".join(at(*point) for point in points)
        parts.append(f'<polyline fill="none" stroke="#2563eb" stroke-width="2" points="{drawn}"/>')
        for x, y in points:
            across, up = at(x, y).split(",")
            parts.append(f'<circle cx="{across}" cy="{up}" r="3" fill="#2563eb"/>')
            label = f'<text x="{across}" y="{height - margin + 14}" text-anchor="middle">'
            parts.append(f"{label}{round(10**x, 1):,g}</text>")
        for cost in (1, 10, 100, 1000):
            across, up = at(low, log10(cost)).split(",")
            parts.append(f'<text x="{float(across) - 8}" y="{up}" text-anchor="end">{cost}</text>')
        middle = margin + place * width + (width - 2 * margin) / 2
        title = f"µs of CPU a request, by {name}"
        parts.append(f'<text x="{middle}" y="16" text-anchor="middle">{title}</text>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{3 * width}" height="{height}"'
    body = "\n".join(parts)
    Path(path).write_text(
        f'{head} font-family="sans-serif" font-size="10" fill="#808080">\n{body}\n</svg>\n'
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", action="store_true", help="only the models by kind of layer")
    parser.add_argument("--memory", action="store_true", help="only up to ten million requests")
    parser.add_argument("--trace", help="a trace file, served on eight replicas")
    parser.add_argument("--plot", help="an SVG file for the scaling")
    parser.add_argument("--compiled", help="only both builds: a Python that has the compiled wheel")
    parser.add_argument("--peers", type=Path, help="only beside others: a folder of environments")
    parser.add_argument("--case", choices=BUILDS, help="only one of the builds' cases, here")
    asked = parser.parse_args()
    if asked.case:
        print(*case(asked.case))
        return
    if asked.compiled:
        builds(asked.compiled)
        return
    if asked.peers:
        peers(asked.peers)
        return
    if asked.kinds or asked.memory:
        if asked.kinds:
            kinds()
        if asked.memory:
            memory()
        return
    w = workings()
    print(f"{'varied':>14} {'value':>9} {'running':>9} {'us/req':>9} {'req/CPU s':>12}")
    rows = scaling(w)
    if asked.plot:
        plot(rows, asked.plot)
    kinds()
    fleets()
    if asked.trace:
        print(
            f"{Path(asked.trace).name}, {FLEET} replicas (an empty loop: {speed_of_python():.1f} ns)"
        )
        traced(asked.trace)


if __name__ == "__main__":
    main()
