"""Reads and copies memory for a while and says how much: one process of ``bandwidth``.

It imports nothing but the standard library and runs by its path, so that many start quickly. Commands
come a line each on standard input: ``hold BYTES`` fills a buffer of that size, ``read S`` looks for a
byte that the buffer does not hold (the C library's ``memchr``: every byte is read, none written) for
``S`` seconds, ``copy S`` copies one half onto the other. The answer is a line: bytes held, or bytes
moved (a copy's count twice: read and written), nanoseconds taken and nanoseconds of CPU time in them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

FILLER, ABSENT = b"\x01", 0


def main() -> None:
    """Answer commands until standard input ends."""
    buffer = bytearray()
    for line in sys.stdin:
        name, _, value = line.strip().partition(" ")
        if name == "hold":
            buffer = bytearray()  # lets go of the one before, so that two never stand side by side
            buffer = bytearray(FILLER) * int(value)
            print(len(buffer), flush=True)
        elif name == "read":
            print(*_repeated(reader(buffer), float(value)), flush=True)
        elif name == "copy":
            print(*_repeated(copier(buffer), float(value)), flush=True)


def reader(buffer: bytearray) -> Callable[[], int]:
    """A function that reads all of ``buffer`` once and gives the bytes read."""

    def read() -> int:
        buffer.find(ABSENT)
        return len(buffer)

    return read


def copier(buffer: bytearray) -> Callable[[], int]:
    """A function that copies one half of ``buffer`` onto the other; bytes read and written."""
    half = len(buffer) // 2
    whole = memoryview(buffer)
    source, target = whole[:half], whole[half : 2 * half]

    def copy() -> int:
        target[:] = source
        return 2 * half

    return copy


def _repeated(once: Callable[[], int], seconds: float) -> tuple[int, int, int]:
    """(bytes, ns, ns of CPU) of ``once`` done again and again for ``seconds``, after one to warm up."""
    once()
    busy = time.process_time_ns()
    start = now = time.perf_counter_ns()
    moved = 0
    while now - start < seconds * 1e9 or not moved:
        moved += once()
        now = time.perf_counter_ns()
    return moved, max(1, now - start), max(1, time.process_time_ns() - busy)


if __name__ == "__main__":
    main()
