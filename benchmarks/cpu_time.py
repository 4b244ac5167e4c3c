"""CPU time of kvroom, user and system together, each the median of five processes.

    python benchmarks/cpu_time.py [--json]

Run it with the Python that kvroom is installed in. Wall time depends on what else the machine does; CPU
time does not, much.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import cycle, islice, product
from pathlib import Path

from kvroom.models import catalogue

RUNS = 5
SCENARIOS = 1000
KVROOM = (sys.executable, "-m", "kvroom.ui.cli.main")
PLAN = (*KVROOM, "plan", "llama-3.1-70b", "--gpu", "80GB:4", "--context", "32K")


def cpu_s(command: tuple[str, ...]) -> float:
    """CPU seconds of one process."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return used.ru_utime + used.ru_stime


def scenarios() -> Iterator[dict[str, object]]:
    """Every model of the catalogue at several lengths, cache widths and layouts, over and over."""
    lengths, widths, stages = (8192, 32_768, 131_072), ("auto", "fp8"), (1, 2)
    questions = product(lengths, widths, stages, catalogue.names())
    for length, width, pp, name in cycle(questions):
        yield {
            "model": name,
            "gpu": "H200-SXM",
            "pp": pp,
            "kv_dtype": width,
            "context_tokens": length,
            "engine": "arithmetic",
        }


def measured() -> list[tuple[str, list[float]]]:
    """What is run, with the CPU seconds of each of its runs."""
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(folder) / "scenarios.jsonl"
        lines.write_text("\n".join(map(json.dumps, islice(scenarios(), SCENARIOS))))
        commands = [
            ("python itself", (sys.executable, "-c", "pass")),
            ("import kvroom", (sys.executable, "-c", "import kvroom")),
            ("one plan, cold", PLAN),
            ("one plan, cold, --json", (*PLAN, "--json")),
            (f"{SCENARIOS:,} scenarios, --jsonl", (*KVROOM, "plan", "--jsonl", str(lines))),
        ]
        cpu_s(PLAN)  # compiles what was never imported
        return [(name, [cpu_s(command) for _ in range(RUNS)]) for name, command in commands]


def main() -> None:
    found = measured()
    if "--json" in sys.argv[1:]:
        print(json.dumps({name: statistics.median(runs) for name, runs in found}, indent=2))
        return
    print(f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} CPUs")
    print(f"{'CPU seconds, median of ' + str(RUNS):32}{'median':>9}{'least':>9}{'most':>9}")
    for name, runs in found:
        print(f"{name:32}{statistics.median(runs):9.3f}{min(runs):9.3f}{max(runs):9.3f}")


if __name__ == "__main__":
    main()
