"""This machine as a machine file: its GPUs, its memory, caches and disk, measured where they can be.

A GPU that the catalogue knows keeps the data sheet's peaks as its own, since the times' efficiencies
are fitted to those; what was measured stands in the tiers and links. One that it does not know, and a
CPU, have nothing but what was measured. What could not be measured is told, never guessed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, field
from pathlib import Path
from typing import Any

from kvroom.answer.shown import Shown
from kvroom.errors import KvroomError
from kvroom.hardware import catalogue
from kvroom.hardware.device import Device
from kvroom.hardware.node import NVME
from kvroom.hardware.reader import load_machine
from kvroom.observe.probe import bandwidth, disk, nvml
from kvroom.observe.probe.cpu import CpuCache, caches, cpu_name
from kvroom.observe.probe.limits import Limits, read_limits
from kvroom.records import dataclass
from kvroom.units import show_gb, show_gib, show_rate

SHARE = 0.1
"""Of the memory that is free at most so much is used, of the host's and of each GPU's."""
GPU_PROBE_S = 40
_GPU_SCRIPT = Path(__file__).with_name("gpu.py")
_CACHE_ROUNDS, _CACHE_S = 2, 0.15


@dataclass(frozen=True, slots=True)
class Row:
    """One figure: measured, beside what the catalogue or the defaults say; ``unit`` is its kind
    (``bytes``, ``bytes_per_s``, ``flops_per_s``, ``s`` or ``count``); ``how`` it was measured."""

    name: str
    measured: float | None
    expected: float | None
    unit: str
    how: str


@dataclass(repr=False)
class Probe(Shown):
    """What was found: the machine file's content, the figures with their ways, what is missing."""

    TITLE = "This machine, measured"

    machine: dict[str, Any] = field(default_factory=dict)
    figures: list[Row] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def summary(self) -> str:
        """What it is, and how many figures were measured."""
        measured = sum(row.measured is not None for row in self.figures)
        return f"{self.machine.get('name', 'this machine')}: {measured} figures measured"

    def rows(self) -> list[dict[str, Any]]:
        """A flat row a figure: measured, expected, its unit, how."""
        return [asdict(row) for row in self.figures]


@dataclass(frozen=True, slots=True)
class Wishes:
    """How to probe: the share of memory, where to read a file (None: no disk), which Python has torch
    or CuPy (None: no GPU is measured beyond what its driver says)."""

    share: float = SHARE
    disk: Path | None = Path()
    gpu_python: str | None = sys.executable


def probe(
    wishes: Wishes = Wishes(),  # noqa: B008 (it is frozen)
    tell: Callable[[str], None] = lambda _: None,
) -> Probe:
    """Measure this machine; ``tell`` hears what is being measured."""
    result = Probe()
    limits = read_limits()
    tell("memory and caches")
    memory, sram, tiers = _memory(limits, wishes.share, result)
    if wishes.disk is not None:
        tell("the disk")
        _disk(wishes.disk, tiers, result)
    tell("GPUs")
    driver, measured = nvml.read(), _gpu_probe(wishes, limits, result)
    gpus = measured.get("devices", [])
    if driver.cards or gpus:
        result.machine = _gpu_machine(driver, gpus, tiers, result)
    else:
        result.missing.append(f"GPUs: {driver.why}; torch and CuPy see none either")
        result.machine = _cpu_machine(
            limits=limits, rate=memory, sram=sram, tiers=tiers, measured=measured, probe=result
        )
    if "memory_bytes_per_s" in result.machine:
        remarks = "; ".join((*result.remarks, *(f"not measured: {m}" for m in result.missing)))
        result.machine["notes"] = remarks[:3900]
    return result


def write(machine: dict[str, Any], path: str) -> None:
    """Write the machine file, all or nothing; KvroomError (field ``--out``) where it cannot be."""
    target = checked_path(path)
    try:
        handle, name = tempfile.mkstemp(
            prefix=f".{target.stem}-", suffix=".json", dir=target.parent
        )
    except OSError as error:
        raise _unwritable(path, error) from None
    made = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(json.dumps(machine, indent=2) + "\n")
            file.flush()
            os.fsync(file.fileno())
        load_machine(made)
        made.chmod(0o644)
        made.replace(target)
    except OSError as error:
        raise _unwritable(path, error) from None
    finally:
        made.unlink(missing_ok=True)


def checked_path(path: str) -> Path:
    """The path of a machine file to be; KvroomError where none can lie there."""
    target = Path(path)
    if target.suffix.lower() != ".json":
        raise KvroomError("--out", path, "is no .json file", "Write a name such as machine.json.")
    if not target.parent.is_dir() or target.is_dir():
        fix = "Give a file in a folder that is there."
        raise KvroomError("--out", path, "cannot be written there", fix)
    return target


def _unwritable(path: str, error: OSError) -> KvroomError:
    why = f"cannot be written: {error.strerror or 'the system refuses it'}"
    return KvroomError("--out", path, why, "Give a file in a folder that may be written.")


def _rounded(value: float) -> float:
    """Four figures: more are noise."""
    return float(f"{value:.4g}")


def _memory(
    limits: Limits, share: float, probe: Probe
) -> tuple[float | None, tuple[int, float | None] | None, list[dict[str, Any]]]:
    """(bytes per second read from memory, (bytes, rate) of the last cache, tiers)."""
    processes = min(limits.cores, bandwidth.MOST_PROCESSES)
    if processes < limits.cores:
        probe.remarks.append(f"{processes} of {limits.cores} cores scanned memory")
    levels = caches()
    if not levels:
        probe.missing.append("CPU caches: the kernel lists none")
    if limits.available_bytes is None:
        probe.missing.append("memory: its size cannot be read (pip install kvroom[probe])")
    allowed = int((limits.available_bytes or 0) * share)
    tiers: list[dict[str, Any]] = []
    sram: tuple[int, float | None] | None = None
    rate: float | None = None
    try:
        with bandwidth.scanners(processes) as scanners:
            for cache in levels:
                measured = _cache(cache, processes, allowed, scanners, probe)
                sram = (cache.bytes, measured)
                tiers.append(_tier(f"l{cache.level}", cache.bytes, measured, "kvroom probe"))
            rate = _dram(levels, processes, allowed, scanners, probe)
    except OSError as error:
        probe.missing.append(f"memory bandwidth: {error}")
    if limits.total_bytes is not None:
        by = f"limited by {limits.limited_by}" if limits.limited_by else "the system's total"
        probe.figures.append(Row("memory", limits.total_bytes, None, "bytes", by))
        tiers.append(_tier("dram", limits.total_bytes, rate, f"{processes} processes reading"))
    return rate, sram, tiers


def _tier(name: str, size: int | None, rate: float | None, how: str, **more: Any) -> dict[str, Any]:
    row = {"name": name, "bytes": size, "bytes_per_s": rate and _rounded(rate), **more}
    tier = {key: value for key, value in row.items() if value is not None}
    return {**tier, "source": f"measured: {how}" if rate else "driver: the size only; rate unknown"}


def _cache(
    cache: CpuCache, processes: int, allowed: int, scanners: bandwidth.Scanners, probe: Probe
) -> float | None:
    """Bytes per second that all cores read out of one level, each with half of its part."""
    name = f"L{cache.level} cache"
    each = min(cache.each_bytes, cache.bytes // processes) // 2
    how = f"{processes} × {show_gib(each)} read"
    rate = None
    if each * processes > allowed:
        probe.missing.append(f"{name}: the share of memory is smaller than it")
        how = "size only"
    else:
        scanners.hold(each)
        rate = scanners.rates(_CACHE_S, _CACHE_ROUNDS).read_bytes_per_s
        if cache.level == 1:
            how += ", at least (short passes)"
    probe.figures.append(Row(f"{name}, size", cache.bytes, None, "bytes", "the kernel's list"))
    probe.figures.append(Row(name, rate, None, "bytes_per_s", how))
    return rate


def _dram(
    levels: tuple[CpuCache, ...],
    processes: int,
    allowed: int,
    scanners: bandwidth.Scanners,
    probe: Probe,
) -> float | None:
    last = levels[-1].bytes if levels else 2**25
    each = bandwidth.dram_buffer_bytes(last, processes, allowed)
    if each is None:
        probe.missing.append(
            f"memory bandwidth: {show_gib(allowed)} may be used, and caches of {show_gib(last)} would "
            "hold most of it (a larger --memory-share measures it)"
        )
        return None
    scanners.hold(each)
    rates = scanners.rates()
    how = f"{processes} × {show_gib(each)}, best of {bandwidth.ROUNDS}"
    copying = "bytes read and written both count"
    probe.figures += [
        Row("memory, reading", rates.read_bytes_per_s, None, "bytes_per_s", how),
        Row("memory, copying", rates.copy_bytes_per_s, None, "bytes_per_s", copying),
    ]
    if rates.disturbed:
        probe.remarks.append(
            "others had the cores for a part of the time: the rates are what they left (memory gives up "
            f"to {show_rate(rates.read_at_most_bytes_per_s)} by CPU time); probe again on a quiet machine"
        )
    return rates.read_bytes_per_s


def _disk(place: Path, tiers: list[dict[str, Any]], probe: Probe) -> None:
    try:
        rate = disk.measure(place)
    except OSError as error:
        probe.missing.append(f"the disk: {error.strerror or error}")
        return
    how = f"{show_gb(rate.file_bytes)}, {rate.how}"
    if rate.how != "O_DIRECT":
        probe.remarks.append(f"the disk's file may have come from the system's cache ({rate.how})")
    rows = (
        ("disk, one reader", rate.one_bytes_per_s, "bytes_per_s", None),
        (f"disk, {disk.READERS} readers", rate.many_bytes_per_s, "bytes_per_s", NVME.bytes_per_s),
        ("disk, one block", rate.latency_s, "s", NVME.latency_s),
    )
    probe.figures += [Row(name, value, known, unit, how) for name, value, unit, known in rows]
    latency = _rounded(rate.latency_s)
    tiers.append(
        _tier(rate.kind, rate.free_bytes, rate.many_bytes_per_s, f"files read, {rate.how}; bytes free",
              latency_s=latency)
    )  # fmt: skip


def _gpu_probe(wishes: Wishes, limits: Limits, probe: Probe) -> dict[str, Any]:
    """What the GPU script says, in a process of its own so that its memory and libraries go again."""
    if wishes.gpu_python is None:
        return {}
    room = str(int((limits.available_bytes or 0) * wishes.share))
    command = [wishes.gpu_python, str(_GPU_SCRIPT), f"{wishes.share:.3f}", room]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=GPU_PROBE_S, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        answer = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        probe.missing.append(f"GPU bandwidth: the script did not end within {GPU_PROBE_S} s")
        return {}
    except (OSError, ValueError):
        probe.missing.append(f"GPU bandwidth: {wishes.gpu_python} does not run the GPU script")
        return {}
    if answer["backend"] is None:
        probe.missing.append(
            "GPU bandwidth, and FLOP/s: neither torch nor CuPy is installed beside kvroom "
            "(--gpu-python names a Python that has one)"
        )
    else:
        probe.missing += [m for m in answer["missing"] if "ModuleNotFoundError" not in m]
    return dict(answer)


def _cpu_machine(
    *,
    limits: Limits,
    rate: float | None,
    sram: tuple[int, float | None] | None,
    tiers: list[dict[str, Any]],
    measured: dict[str, Any],
    probe: Probe,
) -> dict[str, Any]:
    """The machine file of a machine without GPUs, whose memory is the CPU's."""
    flops = {key: _rounded(value) for key, value in measured.get("cpu_flops_per_s", {}).items()}
    for dtype, value in flops.items():
        how = f"matrix products, {measured['backend']} {measured['version']}"
        probe.figures.append(Row(f"CPU, {dtype}", value, None, "flops_per_s", how))
    products = measured.get("cpu_read_bytes_per_s")
    told = "processes reading memory"
    if products:
        # What a step of decoding does is what counts, not how fast a plain loop reads.
        told = f"matrix-vector products, {measured['backend']} {measured['version']}"
        probe.figures.append(Row("memory, by products", products, None, "bytes_per_s", told))
        rate = products
    spec = {
        "name": f"{cpu_name()} ({limits.cores} cores)",
        "vendor": "cpu",
        "memory_bytes": limits.total_bytes,
        "memory_bytes_per_s": rate and _rounded(rate),
        "sram_bytes": sram[0] if sram else None,
        "sram_bytes_per_s": sram[1] and _rounded(sram[1]) if sram else None,
        "flops_per_s": flops or None,
        "unified_memory": True,
        "sources": {
            "*": "measured: kvroom probe",
            "memory_bytes_per_s": f"measured: {told}",
            **({"visible_bytes": f"driver: {limits.limited_by}"} if limits.limited_by else {}),
        },
        "tiers": tiers,
    }
    return {key: value for key, value in spec.items() if value is not None}


def _gpu_machine(
    driver: nvml.Driver, gpus: list[dict[str, Any]], tiers: list[dict[str, Any]], probe: Probe
) -> dict[str, Any]:
    """The machine file of the first kind of GPU, the host's tiers below it."""
    names = [card.name for card in driver.cards] or [g["name"] for g in gpus]
    name = names[0]
    if len(set(names)) > 1:
        kinds = ", ".join(sorted(set(names)))
        probe.remarks.append(
            f"this machine has different GPUs ({kinds}); the file is the first one's"
        )
    card = driver.cards[0] if driver.cards else None
    gpu = next((g for g in gpus if g["name"] == name), gpus[0] if gpus else {})
    if not driver.cards:
        probe.missing.append(f"the driver's own figures: {driver.why}")
    device = _known(name)
    if device is None:
        probe.remarks.append(
            f"the catalogue does not know '{name[:80]}': the file holds what was measured"
        )
    _gpu_rows(card, gpu, device, probe)
    return _gpu_file(name, names.count(name), card=card, gpu=gpu, known=device, tiers=tiers)


def _known(name: str) -> Device | None:
    with suppress(KvroomError):
        return catalogue.find(name)
    return None


def _gpu_rows(
    card: nvml.Card | None, gpu: dict[str, Any], device: Device | None, probe: Probe
) -> None:
    """The GPU's figures, measured beside the catalogue's."""

    def row(name: str, value: float | None, expected: float | None, unit: str, how: str) -> None:
        if value is not None:
            probe.figures.append(Row(name, value, expected, unit, how))

    def listed(key: str) -> float | None:
        return getattr(device, key, None)

    host, peer = (getattr(listed(k), "bytes_per_s", None) for k in ("host_link", "peer_link"))
    if card is not None:
        row("GPU memory, driver", card.total_bytes, listed("driver_bytes"), "bytes", "NVML")
        row("GPU memory, free now", card.free_bytes, None, "bytes", "NVML")
        pcie = f"NVML: generation {card.pcie_generation} × {card.pcie_lanes}"
        row("host link, by its lanes", card.pcie_bytes_per_s, host, "bytes_per_s", pcie)
        row("NVLink connections", card.nvlinks, None, "count", "NVML")
        if card.mig:
            probe.remarks.append(
                "the GPU is split by MIG: figures are those of what this process gets"
            )
    peak, runs = listed("memory_bytes_per_s"), "best of several runs"
    row(
        "GPU memory, an engine's",
        gpu.get("visible_bytes"),
        listed("visible_bytes"),
        "bytes",
        "runtime",
    )
    row("GPU L2, size", gpu.get("l2_bytes"), listed("sram_bytes"), "bytes", "runtime")
    for name, key, expected in (
        ("GPU memory, reading", "read_bytes_per_s", peak),
        ("GPU memory, copying", "copy_bytes_per_s", peak),
        ("GPU L2, at least", "l2_bytes_per_s", listed("sram_bytes_per_s")),
        ("to the GPU", "to_device_bytes_per_s", host),
        ("from the GPU", "from_device_bytes_per_s", host),
        ("GPU to GPU", "to_peer_bytes_per_s", peer),
    ):
        row(name, gpu.get(key), expected, "bytes_per_s", runs)
    for dtype, value in gpu.get("flops_per_s", {}).items():
        expected = device.flops(dtype) if device else None
        row(f"GPU, {dtype}", value, expected, "flops_per_s", "matrix products")


def _gpu_file(
    name: str,
    count: int,
    *,
    card: nvml.Card | None,
    gpu: dict[str, Any],
    known: Device | None,
    tiers: list[dict[str, Any]],
) -> dict[str, Any]:
    measured = max((gpu.get(k) or 0 for k in ("read_bytes_per_s", "copy_bytes_per_s")), default=0)
    driver_bytes = card.total_bytes if card else None
    visible = gpu.get("visible_bytes")
    base: dict[str, Any] = known.to_dict() if known else {
        "name": name,
        "vendor": "nvidia" if card else "unknown",
        "memory_bytes_per_s": measured and _rounded(measured),
        "flops_per_s": {key: _rounded(value) for key, value in gpu.get("flops_per_s", {}).items()},
        "sources": {"*": "measured: kvroom probe"},
    }  # fmt: skip
    sources = dict(base.get("sources", {}))
    for key, value, source in (
        ("driver_bytes", driver_bytes, "driver: NVML"),
        ("visible_bytes", visible, "measured: what the runtime gives an engine"),
        ("sram_bytes", gpu.get("l2_bytes"), "driver: the GPU's L2"),
        (
            "compute_capability",
            (card and card.compute_capability) or gpu.get("compute_capability"),
            "",
        ),
    ):
        if value is not None:
            base[key] = value
            if source:
                sources[key] = source
    base |= {"count": count, "sources": sources}
    base["memory_bytes"] = (
        visible or driver_bytes or base.get("visible_bytes") or base.get("sold_bytes")
    )
    how = "kvroom probe"
    own = [_tier("hbm", base["memory_bytes"], measured or None, how)]
    if gpu.get("l2_bytes"):
        own.insert(0, _tier("sram", gpu["l2_bytes"], gpu.get("l2_bytes_per_s"), how))
    host = [
        {**tier, "name": "host"} if tier["name"] == "dram" else tier
        for tier in tiers
        if tier["name"][0] != "l"
    ]
    base["tiers"] = own + host
    links = (("host link", "to_device_bytes_per_s"), ("peer link", "to_peer_bytes_per_s"))
    base["links"] = [
        {"name": n, "bytes_per_s": _rounded(gpu[k]), "source": "measured: kvroom probe"}
        for n, k in links
        if gpu.get(k)
    ]
    return {key: value for key, value in base.items() if value not in (None, {}, [], 0)}


__all__ = ["Probe", "Row", "Wishes", "checked_path", "probe", "write"]
