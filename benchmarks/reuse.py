"""How fast workloads are made, traces read and caches played: a line each, per second of CPU time.

    python benchmarks/reuse.py [TRACE]

Without TRACE a made-up one is written to a temporary folder: chats and agents whose prompts grow.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

from kvroom.simulator.references import References
from kvroom.simulator.reuse import POLICIES, player
from kvroom.workloads.synthetic import parse
from kvroom.workloads.traces.reader import Trace
from kvroom.workloads.traces.writer import write

CHATS = (
    "arrivals=gamma:3/s:cv=2,input=lognormal:mean=1500:sigma=1,output=lognormal:mean=300:sigma=0.7,"
    "prefix=shared:8x1024,turns=uniform:1-6,think=lognormal:mean=30s:sigma=1,requests=4000"
)
SINGLE = "arrivals=poisson:20/s,input=sharegpt,output=sharegpt,requests=100000"
SIZES = (0.01, 0.1, 0.5)
"""Caches played, as shares of the distinct blocks."""


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    start = process_time()
    made = work()
    return made, process_time() - start


def line(what: str, count: int, seconds: float, unit: str) -> None:
    print(f"{what:28}{count:>12,} {unit:11}{seconds:8.2f} s{count / max(seconds, 1e-9):>14,.0f} /s")


def main(path: Path) -> None:
    for name, spec in (("made up, single turns", SINGLE), ("made up, chats", CHATS)):
        count, seconds = timed(lambda spec=spec: sum(1 for _ in parse(spec)))
        line(name, count, seconds, "requests")
    if not path.exists():
        write(path, parse(CHATS))
    trace = Trace(path)
    count, seconds = timed(lambda: sum(1 for _ in trace))
    line(f"read, {trace.format.name}", count, seconds, "requests")
    refs, seconds = timed(lambda: References.of(trace, trace.hash_tokens or 16))
    total = len(refs.blocks)
    line("read into references", total, seconds, "references")
    sizes = [max(1, round(refs.unique_blocks * share)) for share in SIZES]
    for policy in POLICIES:
        hits, seconds = timed(lambda policy=policy: player(policy, refs))
        if policy.startswith("lru"):
            line(f"{policy}, every size", total, seconds, "references")
            continue
        _, more = timed(lambda hits=hits: [hits(size) for size in sizes])
        line(f"{policy}, one size", total, (seconds + more) / len(sizes), "references")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(folder) / "trace.jsonl")
