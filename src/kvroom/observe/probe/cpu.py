"""The CPU: its name and its caches, as the kernel lists them."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator
from pathlib import Path

from kvroom.records import dataclass

_SIZE = re.compile(r"(\d+)([KMG]?)")
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
_CPU = re.compile(r"cpu\d+")


@dataclass(frozen=True, slots=True)
class CpuCache:
    """One level of data cache: bytes of one of them, and how many the machine has."""

    level: int
    each_bytes: int
    count: int

    @property
    def bytes(self) -> int:
        """All of them together."""
        return self.each_bytes * self.count


def cpu_name(root: Path = Path("/")) -> str:
    """The processor's name, or its architecture where the kernel gives none."""
    try:
        text = (root / "proc/cpuinfo").read_text("utf-8", "replace")
    except OSError:
        text = ""
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Hardware", "cpu model") and value.strip():
            return " ".join(value.split())
    return platform.processor() or platform.machine() or "CPU"


def caches(root: Path = Path("/")) -> tuple[CpuCache, ...]:
    """Data and unified caches by level; empty where the kernel lists none.

    Cores that share a cache name the same cores in ``shared_cpu_list``: it counts once.
    """
    seen: dict[int, dict[str, int]] = {}
    for level, size, shared in _listed(root):
        seen.setdefault(level, {})[shared] = size
    return tuple(
        CpuCache(level, max(sizes.values()), len(sizes)) for level, sizes in sorted(seen.items())
    )


def _listed(root: Path) -> Iterator[tuple[int, int, str]]:
    top = root / "sys/devices/system/cpu"
    try:
        cpus = [p for p in top.iterdir() if _CPU.fullmatch(p.name)]
    except OSError:
        return
    for cpu in cpus:
        for index in (cpu / "cache").glob("index*"):
            entries = {n: _word(index / n) for n in ("type", "level", "size", "shared_cpu_list")}
            size = _SIZE.fullmatch(entries["size"])
            if entries["type"] in ("Data", "Unified") and entries["level"].isdecimal() and size:
                shared = entries["shared_cpu_list"] or cpu.name
                yield int(entries["level"]), int(size[1]) * _UNITS[size[2]], shared


def _word(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace").strip()
    except OSError:
        return ""
