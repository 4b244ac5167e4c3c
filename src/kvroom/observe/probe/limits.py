"""What this process may use: cores and memory, the control groups' limits read by hand.

A container sees the whole machine in ``/proc/meminfo``; its limits stand in the control group's own
files (version 2 and version 1 have other names), and every group above may limit it further.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from kvroom.records import dataclass

_NO_LIMIT = 2**60
"""Version 1 writes a number near 2^63 where there is none."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Cores and bytes. ``total_bytes`` is what may be used at most, ``available_bytes`` now.
    None is what could not be read."""

    cores: int
    total_bytes: int | None
    available_bytes: int | None
    limited_by: str | None
    """The control group's file whose limit is below the machine's memory, or None."""


def read_limits(root: Path = Path("/")) -> Limits:
    """The limits of this process; ``root`` stands for ``/``."""
    machine, free = _memory(root)
    total, available, by = machine, free, None
    for limit, used, path in _memory_groups(root):
        if total is None or limit < total:
            total, by = limit, str(path)
        left = max(0, limit - used)
        available = left if available is None else min(available, left)
    cores = _affinity()
    for quota in _core_quotas(root):
        cores = min(cores, max(1, int(quota)))
    return Limits(cores, total, available, by)


def _affinity() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory(root: Path) -> tuple[int | None, int | None]:
    """(bytes of the machine, bytes free or reclaimable)."""
    text = _read(root / "proc/meminfo")
    fields: dict[str, int] = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdecimal():
            fields[name] = int(words[0]) * 1024
    if "MemTotal" in fields:
        return fields["MemTotal"], fields.get("MemAvailable", fields.get("MemFree"))
    try:
        import psutil
    except ModuleNotFoundError:
        return None, None
    memory = psutil.virtual_memory()
    return memory.total, memory.available


def _groups(root: Path) -> dict[str, str]:
    """Controller → path of this process's group; version 2 has the key ``""``."""
    groups: dict[str, str] = {}
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for name in controllers.split(","):
            groups[name] = path.strip()
    return groups


def _folders(top: Path, path: str) -> Iterator[Path]:
    """The group's folder and those above it, up to ``top``.

    Inside a container the path may be the host's, which is not there; the top is then the group.
    """
    parts = [part for part in path.split("/") if part and part != ".."]
    for number in range(len(parts), -1, -1):
        folder = top.joinpath(*parts[:number])
        if folder.is_dir():
            yield folder


def _memory_groups(root: Path) -> Iterator[tuple[int, int, Path]]:
    """(limit, bytes in use that cannot be reclaimed, the limit's file) of every group that has one."""
    groups = _groups(root)
    base = root / "sys/fs/cgroup"
    kinds = (
        (base, groups.get(""), "memory.max", "memory.current", "inactive_file"),
        (base / "unified", groups.get(""), "memory.max", "memory.current", "inactive_file"),
        (base / "memory", groups.get("memory"), "memory.limit_in_bytes", "memory.usage_in_bytes",
         "total_inactive_file"),
    )  # fmt: skip
    for top, path, limit_name, used_name, reclaimable in kinds:
        if path is None:
            continue
        for folder in _folders(top, path):
            limit = _number(folder / limit_name)
            if limit is not None and limit < _NO_LIMIT:
                used = _number(folder / used_name) or 0
                cached = _field(folder / "memory.stat", reclaimable)
                yield limit, max(0, used - cached), folder / limit_name


def _core_quotas(root: Path) -> Iterator[float]:
    groups = _groups(root)
    base = root / "sys/fs/cgroup"
    if (path := groups.get("")) is not None:
        for folder in (*_folders(base, path), *_folders(base / "unified", path)):
            quota, _, period = _read(folder / "cpu.max").strip().partition(" ")
            if quota.isdecimal() and period.isdecimal() and int(period):
                yield int(quota) / int(period)
    if (path := groups.get("cpu")) is not None:
        for folder in _folders(base / "cpu", path):
            quota_us = _number(folder / "cpu.cfs_quota_us")
            period_us = _number(folder / "cpu.cfs_period_us")
            if quota_us and period_us:
                yield quota_us / period_us


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    text = _read(path).strip()
    return int(text) if text.isdecimal() else None


def _field(path: Path, name: str) -> int:
    for line in _read(path).splitlines():
        key, _, value = line.partition(" ")
        if key == name and value.strip().isdecimal():
            return int(value)
    return 0
