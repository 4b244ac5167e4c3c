"""Memory bandwidth and cache bandwidth, by processes that read and copy for a while (``scan``).

What comes out is what plain C library loops reach from as many processes as the machine gives us
cores: a little below what a tuned kernel reaches, and shared with whatever else runs.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Timer

from kvroom.records import dataclass

SECONDS, ROUNDS = 0.3, 3
"""How long one measurement runs, and how many are made; the best counts, others being disturbed."""
BEYOND_CACHE = 4
"""Buffers together are this many times the last cache, so that it holds little of them."""
MOST_PROCESSES = 64
_SCRIPT = Path(__file__).with_name("scan.py")
_ANSWER_S = 30


MOST_ROUNDS = 8
"""Rounds made while others keep taking the cores."""
DISTURBED = 0.9
"""Below this share of the CPU time asked for, others had the cores."""


@dataclass(frozen=True, slots=True)
class MemoryRates:
    """Bytes per second of all processes together, the best round's.

    A copy's bytes count twice, read and written. ``read_at_most_bytes_per_s`` is by the CPU time that
    the processes got: above the clock's figure where others had the cores, and then too high, since
    processes that do not run at once do not share the memory either.
    """

    read_bytes_per_s: float
    copy_bytes_per_s: float
    read_at_most_bytes_per_s: float

    @property
    def disturbed(self) -> bool:
        """Whether others had the cores for a good part of every round."""
        return self.read_bytes_per_s < DISTURBED * self.read_at_most_bytes_per_s


class Scanners:
    """Processes that hold a buffer each and scan it when told, all at once."""

    def __init__(self, processes: Sequence[subprocess.Popen[str]]) -> None:
        self._processes = processes

    def hold(self, each_bytes: int) -> None:
        """Fill a buffer of ``each_bytes`` in every process."""
        self._ask(f"hold {each_bytes}")

    def rates(self, seconds: float = SECONDS, rounds: int = ROUNDS) -> MemoryRates:
        """What all of them read and copy together: the best of ``rounds``, and of more if disturbed."""
        reads = [self._rate(f"read {seconds}") for _ in range(rounds)]
        while len(reads) < MOST_ROUNDS and all(clock < DISTURBED * cpu for clock, cpu in reads):
            reads.append(self._rate(f"read {seconds}"))
        copies = [self._rate(f"copy {seconds}") for _ in range(rounds)]
        best, by_cpu = max(reads)
        return MemoryRates(best, max(copies)[0], max(best, by_cpu))

    def _rate(self, command: str) -> tuple[float, float]:
        """Bytes per second by the clock and by CPU time."""
        answers = [[int(word) for word in line.split()] for line in self._ask(command)]
        clock = sum(moved / took for moved, took, _ in answers)
        return clock * 1e9, sum(moved / busy for moved, _, busy in answers) * 1e9

    def _ask(self, command: str) -> list[str]:
        for processe in self._processes:
            assert processe.stdin is not None
            processe.stdin.write(command + "\n")
            processe.stdin.flush()
        return [self._line(processe) for processe in self._processes]

    def _line(self, process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        late = Timer(_ANSWER_S, process.kill)
        late.start()
        try:
            line = process.stdout.readline()
        finally:
            late.cancel()
        if not line:
            raise OSError("a scanning process ended before it answered")
        return line


@contextmanager
def scanners(count: int) -> Iterator[Scanners]:
    """``count`` scanning processes, ended when the block ends. Raises OSError where none start."""
    started: list[subprocess.Popen[str]] = []
    try:
        for _ in range(count):
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_SCRIPT)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            started.append(process)
        yield Scanners(started)
    finally:
        for process in started:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()
            process.terminate()
        for process in started:
            process.wait()


def dram_buffer_bytes(last_cache_bytes: int, processes: int, allowed_bytes: int) -> int | None:
    """Bytes each process holds to measure memory; None where ``allowed_bytes`` would fit the caches."""
    wanted = max(BEYOND_CACHE * last_cache_bytes, processes * 64 * 2**20)
    total = min(wanted, allowed_bytes)
    if total < 2 * last_cache_bytes or total < 2**25:
        return None
    return total // processes
