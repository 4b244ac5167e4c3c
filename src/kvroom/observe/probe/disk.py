"""How fast files are read here: a file of random bytes, read past the system's cache.

Where the file system takes ``O_DIRECT`` the system's cache is not in the way; else the file is dropped
from it first, as far as the system does that. A drive's own cache, and a host's below a virtual
machine, cannot be kept out.
"""

from __future__ import annotations

import errno
import mmap
import os
import random
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from kvroom.records import dataclass

FILE_BYTES = 256 * 2**20
CHUNK = 2**20
BLOCK = 4096
READERS = 4
PASS_S, WRITE_S = 4.0, 6.0
"""At most so long for one pass over the file, and for writing it."""
LOOKUPS = 200
NETWORKED = ("nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "fuse", "ceph", "lustre", "gcsfuse")
IN_MEMORY = ("tmpfs", "ramfs", "ramdisk")


@dataclass(frozen=True, slots=True)
class DiskRate:
    """Sequential reads (bytes per second, one reader and several) and one random block's latency."""

    one_bytes_per_s: float
    many_bytes_per_s: float
    latency_s: float
    how: str
    """How the system's cache was kept out: ``O_DIRECT``, ``dropped cache`` or ``not kept out``."""
    kind: str
    """``nvme`` where the kernel says so, else ``disk``."""
    free_bytes: int
    file_bytes: int


def measure(place: Path, file_bytes: int = FILE_BYTES) -> DiskRate:
    """Read a file at ``place``: itself where it is a file, else one written there and removed again.

    Raises OSError where nothing can be written or read, or where the folder lies in memory.
    """
    kind = _file_system(place)
    if kind in IN_MEMORY:
        raise OSError(errno.ENODEV, f"{place} lies in memory ({kind}), not on a disk")
    if place.is_file():
        size = min(place.stat().st_size, 4 * file_bytes)
        return _read(place, size, kind)
    free = _free(place)
    size = min(file_bytes, free // 10) // CHUNK * CHUNK
    if size < 8 * CHUNK:
        raise OSError(errno.ENOSPC, f"{place} has no room for a test file")
    handle, name = tempfile.mkstemp(prefix=".kvroom-probe-", dir=place)
    path = Path(name)
    try:
        with os.fdopen(handle, "wb", buffering=0) as file:
            written, last = 0, time.perf_counter() + WRITE_S
            while written < size and (written < 8 * CHUNK or time.perf_counter() < last):
                written += file.write(
                    os.urandom(CHUNK)
                )  # random: drives compress, files are sparse
                if written % (16 * CHUNK) == 0:
                    os.fsync(file.fileno())
            os.fsync(file.fileno())
        return _read(path, written, kind)
    finally:
        path.unlink(missing_ok=True)


def _read(path: Path, size: int, file_system: str) -> DiskRate:
    if size < BLOCK:
        raise OSError(errno.EINVAL, f"{path} is too small to time")
    fd, how = _opened(path)
    try:
        _drop(fd)
        one = _sequential(fd, size, 1)
        _drop(fd)
        many = _sequential(fd, size, READERS)
        _drop(fd)
        latency = _latency(fd, size)
    finally:
        os.close(fd)
    kind = "network" if file_system.startswith(NETWORKED) else _drive(path)
    return DiskRate(one, max(one, many), latency, how, kind, _free(path.parent), size)


def _opened(path: Path) -> tuple[int, str]:
    """A descriptor that reads past the system's cache where it can, and in which way."""
    if hasattr(os, "O_DIRECT"):
        with suppress(OSError):
            fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
            with mmap.mmap(-1, BLOCK) as page:
                try:
                    os.preadv(fd, [page], 0)
                except OSError:
                    os.close(fd)
                else:
                    return fd, "O_DIRECT"
    fd = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    return fd, "dropped cache" if hasattr(os, "posix_fadvise") else "not kept out"


def _drop(fd: int) -> None:
    if hasattr(os, "posix_fadvise"):
        with suppress(OSError):
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def _pread(fd: int) -> Callable[[mmap.mmap, int], int]:
    """Read into a page-aligned buffer from an offset; bytes read."""
    if hasattr(os, "preadv"):
        return lambda buffer, offset: os.preadv(fd, [buffer], offset)

    def seek_and_read(buffer: mmap.mmap, offset: int) -> int:
        os.lseek(fd, offset, os.SEEK_SET)
        return len(os.read(fd, len(buffer)))

    return seek_and_read


def _sequential(fd: int, size: int, readers: int) -> float:
    """Bytes per second of ``readers`` threads, each with its own part of the file."""
    read = _pread(fd)
    if not hasattr(os, "preadv"):
        readers = 1
    part = max(CHUNK, size // readers // CHUNK * CHUNK)
    start = time.perf_counter()

    def work(first: int) -> int:
        done = 0
        with mmap.mmap(-1, CHUNK) as buffer:
            for offset in range(first, min(first + part, size), CHUNK):
                got = read(buffer, offset)
                done += got
                if not got or time.perf_counter() - start > PASS_S:
                    break
        return done

    with ThreadPoolExecutor(readers) as pool:
        total = sum(pool.map(work, range(0, size, part)))
    return total / max(1e-9, time.perf_counter() - start)


def _latency(fd: int, size: int) -> float:
    """The median time of one block read at a random place."""
    read = _pread(fd)
    places = random.Random(1)
    taken: list[float] = []
    last = time.perf_counter() + PASS_S
    with mmap.mmap(-1, BLOCK) as buffer:
        for _ in range(LOOKUPS):
            offset = places.randrange(size // BLOCK) * BLOCK
            start = time.perf_counter()
            read(buffer, offset)
            taken.append(time.perf_counter() - start)
            if taken[-1] + start > last:
                break
    return sorted(taken)[len(taken) // 2]


def _free(place: Path) -> int:
    if hasattr(os, "statvfs"):
        stat = os.statvfs(place)
        return stat.f_bavail * stat.f_frsize
    import shutil

    return shutil.disk_usage(place).free


def _file_system(place: Path) -> str:
    """The kind of file system that ``place`` lies on ("" where the kernel does not say)."""
    try:
        mounts = Path("/proc/self/mounts").read_text("utf-8", "replace").splitlines()
        full = str(place.resolve())
    except OSError:
        return ""
    best, kind = "", ""
    for line in mounts:
        words = line.split()
        if len(words) < 3:
            continue
        point = words[1].replace("\\040", " ")
        inside = full == point or full.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, words[2]
    return kind


def _drive(path: Path) -> str:
    try:
        device = path.stat().st_dev
        link = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve()
    except (OSError, AttributeError):
        return "disk"
    return "nvme" if "/nvme" in str(link) else "disk"
