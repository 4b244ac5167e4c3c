"""Measures the GPUs of a machine with torch or CuPy, whichever is installed; prints JSON.

Standard library and one of the two only, so that any Python that has one can run it by its path:
``python gpu.py [SHARE [BYTES]]`` takes at most SHARE (0.1) of a GPU's free memory and BYTES (else
the same share) of the host's, and some seconds a kind of GPU, of which the first is measured. Each figure
is the best of several timed runs.

``{"backend", "version", "devices": [{"name", "visible_bytes", "free_bytes", "compute_capability",
"l2_bytes", "read_bytes_per_s", "copy_bytes_per_s", "l2_bytes_per_s", "to_device_bytes_per_s",
"from_device_bytes_per_s", "to_peer_bytes_per_s", "flops_per_s": {"bf16", "fp32"}}], "missing": […],
"cpu_flops_per_s": {…}, "cpu_read_bytes_per_s"}``; a figure that could not be had is null, and
``missing`` says why.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

ROUNDS, SECONDS = 5, 0.15
MOST_BYTES = 2**31
LEAST_BYTES = 2**26
MATRIX = 8192
SMALL_MATRIX = 1024
MATVEC, MATVEC_BYTES = 2048, 2**28
"""The side of matrices that a vector is multiplied with, and how much memory they take at most."""


class Torch:
    """The operations in torch; bytes are counted by the caller."""

    name = "torch"

    def __init__(self) -> None:
        import torch

        self.torch = torch
        self.version = str(torch.__version__)

    def count(self) -> int:
        """How many GPUs it sees."""
        return int(self.torch.cuda.device_count())

    def about(self, i: int) -> dict[str, Any]:
        """Name, sizes and generation of GPU ``i``."""
        p = self.torch.cuda.get_device_properties(i)
        free, total = self.torch.cuda.mem_get_info(i)
        amd = getattr(self.torch.version, "hip", None)
        return {
            "name": p.name,
            "visible_bytes": int(total),
            "free_bytes": int(free),
            "compute_capability": None if amd else f"{p.major}.{p.minor}",
            "l2_bytes": int(getattr(p, "L2_cache_size", 0)) or None,
        }

    def buffer(self, i: int, size: int) -> Any:
        """``size`` bytes on GPU ``i``, written once."""
        return self.torch.ones(size // 4, dtype=self.torch.float32, device=f"cuda:{i}")

    def host(self, size: int) -> Any:
        """``size`` bytes of pinned host memory."""
        return self.torch.ones(size // 4, dtype=self.torch.float32).pin_memory()

    def copy(self, target: Any, source: Any) -> None:
        """Start copying ``source`` to ``target``."""
        target.copy_(source, non_blocking=True)

    def read(self, buffer: Any) -> None:
        """Start reading all of ``buffer``: its sum."""
        buffer.sum()

    def multiply(self, i: int, size: int, dtype: str) -> Callable[[], Any]:
        """A function that starts one square multiplication on GPU ``i``."""
        kind = {"bf16": self.torch.bfloat16, "fp32": self.torch.float32}[dtype]
        return self._product(f"cuda:{i}", size, kind)

    def multiply_on_cpu(self, size: int, dtype: str) -> Callable[[], Any]:
        """A function that does one square multiplication on the CPU."""
        kind = {"bf16": self.torch.bfloat16, "fp32": self.torch.float32}[dtype]
        return self._product("cpu", size, kind)

    def apply_on_cpu(self, size: int, count: int) -> Callable[[], Any]:
        """A function that multiplies ``count`` square 16-bit matrices with a vector on the CPU."""
        torch = self.torch
        matrices = [torch.ones(size, size, dtype=torch.bfloat16) for _ in range(count)]
        vector = torch.ones(1, size, dtype=torch.bfloat16)
        return lambda: [torch.nn.functional.linear(vector, matrice) for matrice in matrices]

    def threads(self) -> int:
        """How many threads work on one product on the CPU."""
        return int(self.torch.get_num_threads())

    def _product(self, device: str, size: int, kind: Any) -> Callable[[], Any]:
        a, b = (self.torch.randn(size, size, device=device).to(kind) for _ in range(2))
        return lambda: self.torch.mm(a, b)

    def wait(self, i: int) -> None:
        """Wait until GPU ``i`` has done what was started."""
        self.torch.cuda.synchronize(i)

    def forget(self) -> None:
        """Give cached memory back."""
        self.torch.cuda.empty_cache()


class CuPy:
    """The same operations in CuPy; it multiplies no bf16 and nothing on the CPU."""

    name = "cupy"

    def __init__(self) -> None:
        import cupy

        self.cupy = cupy
        self.version = str(cupy.__version__)

    def count(self) -> int:
        """How many GPUs it sees."""
        return int(self.cupy.cuda.runtime.getDeviceCount())

    def about(self, i: int) -> dict[str, Any]:
        """Name, sizes and generation of GPU ``i``."""
        p = self.cupy.cuda.runtime.getDeviceProperties(i)
        with self.cupy.cuda.Device(i):
            free, total = self.cupy.cuda.runtime.memGetInfo()
        return {
            "name": p["name"].decode("utf-8", "replace"),
            "visible_bytes": int(total),
            "free_bytes": int(free),
            "compute_capability": f"{p['major']}.{p['minor']}",
            "l2_bytes": int(p.get("l2CacheSize", 0)) or None,
        }

    def buffer(self, i: int, size: int) -> Any:
        """``size`` bytes on GPU ``i``, written once."""
        with self.cupy.cuda.Device(i):
            return self.cupy.ones(size // 4, dtype=self.cupy.float32)

    def host(self, size: int) -> Any:
        """``size`` bytes of pinned host memory."""
        import numpy

        memory = self.cupy.cuda.alloc_pinned_memory(size)
        return numpy.frombuffer(memory, numpy.float32, size // 4)

    def copy(self, target: Any, source: Any) -> None:
        """Start copying ``source`` to ``target``."""
        if not isinstance(target, self.cupy.ndarray):
            source.get(out=target, blocking=False)
        elif isinstance(source, self.cupy.ndarray):
            target[...] = source
        else:
            target.set(source)

    def read(self, buffer: Any) -> None:
        """Start reading all of ``buffer``: its sum."""
        with buffer.device:
            buffer.sum()

    def multiply(self, i: int, size: int, dtype: str) -> Callable[[], Any]:
        """A function that starts one square multiplication on GPU ``i``."""
        if dtype != "fp32":
            raise NotImplementedError("CuPy multiplies no bf16")
        with self.cupy.cuda.Device(i):
            a, b = (self.cupy.ones((size, size), dtype=self.cupy.float32) for _ in range(2))
        return lambda: a @ b

    def multiply_on_cpu(self, size: int, dtype: str) -> Callable[[], Any]:
        """Not offered."""
        raise NotImplementedError("CuPy computes on GPUs only")

    def wait(self, i: int) -> None:
        """Wait until GPU ``i`` has done what was started."""
        with self.cupy.cuda.Device(i):
            self.cupy.cuda.runtime.deviceSynchronize()

    def forget(self) -> None:
        """Give cached memory back."""
        self.cupy.get_default_memory_pool().free_all_blocks()


def timed(start: Callable[[], Any], wait: Callable[[], Any], threads: int = 0) -> float:
    """Seconds that one ``start`` takes: many are started, then waited for; the best round counts.

    ``threads``: of work on the CPU, how many share it. Its seconds are then CPU time a thread where that
    is less than what passed: the rest others had.
    """
    start()
    wait()
    begun = time.perf_counter()
    start()
    wait()
    once = max(1e-7, time.perf_counter() - begun)
    times = max(1, min(2000, int(SECONDS / once)))
    best = float("inf")
    spent = 0.0
    for _ in range(ROUNDS):
        begun, busy = time.perf_counter(), time.process_time()
        for _ in range(times):
            start()
        wait()
        took = time.perf_counter() - begun
        if threads:
            took = min(took, (time.process_time() - busy) / threads)
        best = min(best, took / times)
        spent += took
        if spent > 2 * ROUNDS * SECONDS:  # a slow device needs no more rounds
            break
    return best


def measure(backend: Any, i: int, share: float, missing: list[str]) -> dict[str, Any]:
    """All figures of GPU ``i``; what fails is null and told in ``missing``."""
    found: dict[str, Any] = backend.about(i)
    size = int(min(MOST_BYTES, found["free_bytes"] * share / 2)) // 4 * 4

    def rate(name: str, moved: int, make: Callable[[], Callable[[], Any]]) -> None:
        found[name] = None
        try:
            found[name] = moved / timed(make(), lambda: backend.wait(i))
        except Exception as error:  # a library's own error types; told, not hidden
            missing.append(f"{found['name']}: {name}: {short(error)}")
        finally:
            backend.forget()

    def copying(target: Callable[[], Any], source: Callable[[], Any]) -> Callable[[], Any]:
        to, of = target(), source()
        return lambda: backend.copy(to, of)

    def reading(size: int) -> Callable[[], Any]:
        buffer = backend.buffer(i, size)
        return lambda: backend.read(buffer)

    def here(size: int) -> Callable[[], Any]:
        return lambda: backend.buffer(i, size)

    if size < LEAST_BYTES:
        missing.append(f"{found['name']}: the share of its free memory is too small to measure")
        return found
    rate("read_bytes_per_s", size, lambda: reading(size))
    rate("copy_bytes_per_s", 2 * size, lambda: copying(here(size), here(size)))
    if found["l2_bytes"]:
        small = found["l2_bytes"] // 4 // 4 * 4
        rate("l2_bytes_per_s", 2 * small, lambda: copying(here(small), here(small)))
    link = min(size, 2**28)
    rate("to_device_bytes_per_s", link, lambda: copying(here(link), lambda: backend.host(link)))
    rate("from_device_bytes_per_s", link, lambda: copying(lambda: backend.host(link), here(link)))
    if backend.count() > 1:
        other = 1 if i == 0 else 0
        rate(
            "to_peer_bytes_per_s",
            link,
            lambda: copying(lambda: backend.buffer(other, link), here(link)),
        )
    found["flops_per_s"] = {}
    for dtype in ("bf16", "fp32"):
        n = MATRIX if size >= 2 * MATRIX**2 * 4 else 2048
        rate(dtype, 2 * n**3, lambda n=n, dtype=dtype: backend.multiply(i, n, dtype))  # type: ignore[misc]
        flops = found.pop(dtype)
        if flops:
            found["flops_per_s"][dtype] = flops
    return found


def devices(backend: Any, count: int, share: float, missing: list[str]) -> list[dict[str, Any]]:
    """Every GPU; the first of each name is measured, of its like only what they say of themselves."""
    found: list[dict[str, Any]] = []
    for index in range(count):
        about = backend.about(index)
        alike = any(d["name"] == about["name"] for d in found)
        found.append(about if alike else measure(backend, index, share, missing))
    return found


def cpu_flops(backend: Any, missing: list[str]) -> dict[str, float]:
    """FLOP/s of the CPU's matrix products."""
    found: dict[str, float] = {}
    for dtype in ("bf16", "fp32"):
        try:
            work = backend.multiply_on_cpu(SMALL_MATRIX, dtype)
            seconds = timed(work, lambda: None, threads_of(backend))
        except Exception as error:
            missing.append(f"CPU: {dtype}: {short(error)}")
        else:
            found[dtype] = 2 * SMALL_MATRIX**3 / seconds
    return found


def cpu_read(backend: Any, share_bytes: int, missing: list[str]) -> float | None:
    """Bytes a second at which the CPU multiplies 16-bit matrices with a vector, as decoding does: of
    matrices far beyond its caches, ``share_bytes`` of them at most."""
    each = 2 * MATVEC**2
    count = min(MATVEC_BYTES, share_bytes) // each
    if count < LEAST_BYTES // each or not hasattr(backend, "apply_on_cpu"):
        missing.append("CPU: matrix-vector products: the share of memory is too small, or no torch")
        return None
    try:
        seconds = timed(backend.apply_on_cpu(MATVEC, count), lambda: None, threads_of(backend))
    except Exception as error:
        missing.append(f"CPU: matrix-vector products: {short(error)}")
        return None
    return count * each / seconds


def threads_of(backend: Any) -> int:
    """Threads of a product on the CPU (0: not told, the clock counts)."""
    return int(backend.threads()) if hasattr(backend, "threads") else 0


def free_bytes() -> int:
    """Memory of this machine that is free, 0 where the system does not tell."""
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return 0


def short(error: BaseException) -> str:
    """An error in one line."""
    return " ".join(f"{type(error).__name__} {error}".split())[:200]


def probe(
    backends: tuple[Callable[[], Any], ...] = (Torch, CuPy),
    share: float = 0.1,
    host_bytes: int | None = None,
) -> dict[str, Any]:
    """The answer of the first of ``backends`` that can be imported and sees a GPU, or of the first."""
    missing: list[str] = []
    answer: dict[str, Any] = {"backend": None, "version": None, "devices": []}
    for make in backends:
        try:
            backend = make()
            count = backend.count()
        except Exception as error:
            missing.append(short(error))
            continue
        if answer["backend"] is None or count:
            answer |= {"backend": backend.name, "version": backend.version}
            answer["devices"] = devices(backend, count, share, missing)
            if "cpu_flops_per_s" not in answer:
                answer["cpu_flops_per_s"] = cpu_flops(backend, missing)
                room = int(free_bytes() * share) if host_bytes is None else host_bytes
                answer["cpu_read_bytes_per_s"] = cpu_read(backend, room, missing)
        if count:
            break
    return {**answer, "missing": missing}


if __name__ == "__main__":
    given = dict(zip(("share", "host_bytes"), sys.argv[1:], strict=False))
    print(
        json.dumps(
            probe(
                share=float(given.get("share", 0.1)),
                host_bytes=int(given["host_bytes"]) if "host_bytes" in given else None,
            )
        )
    )
