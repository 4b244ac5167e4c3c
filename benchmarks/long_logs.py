"""``kvroom reconcile`` on long logs: CPU time and peak memory of one process each.

    python benchmarks/long_logs.py [MB]

Logs of MB megabytes (200 unless said): a start and then a week of requests, starts over and over, one
endless line, JSON lines, bytes that are no text, and a start that was cut short before all of that.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from random import Random

START = (Path(__file__).parents[1] / "docs/examples/vllm.log").read_bytes()
SERVED = b"".join(
    b'INFO:     10.0.0.%d:5%04d - "POST /v1/completions HTTP/1.1" 200 OK\n'
    b"INFO 08-13 11:%02d:00 [loggers.py:248] Engine 000: Avg prompt throughput: %d.2 tokens/s, "
    b"Running: %d reqs, Waiting: 0 reqs, GPU KV cache usage: %d.1%%, Prefix cache hit rate: 2.0%%\n"
    % (n % 250, n, n % 60, n * 7 % 9000, n % 200, n % 100)
    for n in range(2000)
)
KVROOM = (sys.executable, "-m", "kvroom.ui.cli.main", "reconcile")


def logs() -> dict[str, Iterator[bytes]]:
    """The kinds of log, each as pieces that go on for ever."""
    lines = "".join(
        json.dumps({"level": "info", "msg": line}) + "\n" for line in START.decode().splitlines()
    )
    noise = Random(0).randbytes(1 << 20)
    return {
        "a start, then requests": iter_of(START, SERVED),
        "starts over and over": iter_of(b"", START * 50),
        "one endless line": iter_of(START, b"Available KV cache memory " * 40_000),
        "JSON lines": iter_of(b"", lines.encode() * 50),
        "no text": iter_of(START, noise),
        "a start cut short": iter_of(START[: len(START) // 2] + b"\n", SERVED),
    }


def iter_of(first: bytes, rest: bytes) -> Iterator[bytes]:
    yield first
    yield from cycle([rest])


def write(path: Path, pieces: Iterator[bytes], size: int) -> None:
    left = size
    with path.open("wb") as file:
        while left > 0:
            left -= file.write(next(pieces)[:left] or b"\n")


def measured(path: Path) -> tuple[float, int, int]:
    """(CPU seconds, peak bytes, exit status) of one ``kvroom reconcile``."""
    command = (*KVROOM, str(path), "--gpu", "H100-SXM", "--json")
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if b"Traceback" in said:
        raise SystemExit(said.decode(errors="replace"))
    return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, process.returncode


def main() -> None:
    size = int(sys.argv[1] if len(sys.argv) > 1 else 200) * 10**6
    print(
        f"{'log of ' + format(size // 10**6, ',') + ' MB':26}{'CPU s':>8}{'peak MB':>9}{'status':>8}"
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "engine.log"
        for name, pieces in logs().items():
            write(path, pieces, size)
            cpu, peak, status = measured(path)
            print(f"{name:26}{cpu:8.2f}{peak / 10**6:9.0f}{status:8}")


if __name__ == "__main__":
    main()
