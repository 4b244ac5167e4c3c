"""What a machine is found to have: limits, caches, GPUs, disk; and the file made of it."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from kvroom.errors import KvroomError
from kvroom.hardware import catalogue
from kvroom.hardware.node import Machine
from kvroom.hardware.reader import load_machine, resolve
from kvroom.observe.probe import bandwidth, disk, nvml
from kvroom.observe.probe import gpu as gpu_probe
from kvroom.observe.probe import machine as probe
from kvroom.observe.probe.cpu import CpuCache, caches, cpu_name
from kvroom.observe.probe.limits import read_limits
from support import asked

pytestmark = pytest.mark.slow

GIB = 2**30


MEMINFO = "MemTotal:       16777216 kB\nMemFree: 1 kB\nMemAvailable:    8388608 kB\n"


def put(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_no_control_groups(tmp_path):
    limits = read_limits(put(tmp_path, {"proc/meminfo": MEMINFO}))
    assert limits.total_bytes == 16 * GIB
    assert limits.available_bytes == 8 * GIB
    assert limits.limited_by is None
    assert limits.cores >= 1


def test_control_groups_version_2(tmp_path):
    group = "sys/fs/cgroup/a/b"
    limits = read_limits(put(tmp_path, {
        "proc/meminfo": MEMINFO,
        "proc/self/cgroup": "0::/a/b\n",
        f"{group}/memory.max": "max\n",
        "sys/fs/cgroup/a/memory.max": str(2 * GIB),
        "sys/fs/cgroup/a/memory.current": str(GIB + 2**20),
        "sys/fs/cgroup/a/memory.stat": f"anon 5\ninactive_file {2**20}\n",
        f"{group}/cpu.max": "150000 100000\n",
    }))  # fmt: skip
    assert limits.total_bytes == 2 * GIB
    assert limits.available_bytes == GIB
    assert limits.limited_by.endswith("/a/memory.max")
    assert limits.cores == 1


def test_control_groups_version_1(tmp_path):
    limits = read_limits(put(tmp_path, {
        "proc/meminfo": MEMINFO,
        "proc/self/cgroup": "4:memory:/job\n3:cpu,cpuacct:/job\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": str(2**63 - 4096),
        "sys/fs/cgroup/memory/job/memory.limit_in_bytes": str(3 * GIB),
        "sys/fs/cgroup/memory/job/memory.usage_in_bytes": str(GIB),
        "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": "50000",
        "sys/fs/cgroup/cpu/job/cpu.cfs_period_us": "100000",
    }))  # fmt: skip
    assert limits.total_bytes == 3 * GIB
    assert limits.available_bytes == 2 * GIB
    assert limits.cores == 1


def test_a_path_of_the_hosts_that_is_not_in_the_container(tmp_path):
    limits = read_limits(put(tmp_path, {
        "proc/meminfo": MEMINFO,
        "proc/self/cgroup": "0::/kubepods/pod1/../x\n",
        "sys/fs/cgroup/memory.max": str(GIB),
    }))  # fmt: skip
    assert limits.total_bytes == GIB


def test_garbled_files_are_no_limits(tmp_path):
    limits = read_limits(put(tmp_path, {
        "proc/meminfo": MEMINFO,
        "proc/self/cgroup": "\x00\nx\n0::/\n",
        "sys/fs/cgroup/memory.max": "many",
        "sys/fs/cgroup/cpu.max": "1",
    }))  # fmt: skip
    assert limits.total_bytes == 16 * GIB


def test_caches_that_cores_share_count_once(tmp_path):
    for cpu in range(4):
        top = f"sys/devices/system/cpu/cpu{cpu}/cache"
        for index, (kind, level, size, shared) in enumerate((
            ("Data", "1", "32K", f"{cpu}"),
            ("Instruction", "1", "64K", f"{cpu}"),
            ("Unified", "2", "1024K", f"{cpu // 2 * 2}-{cpu // 2 * 2 + 1}"),
            ("Unified", "3", "32M", "0-3"),
        )):  # fmt: skip
            told = {"type": kind, "level": level, "size": size, "shared_cpu_list": shared}
            put(tmp_path, {f"{top}/index{index}/{k}": v + "\n" for k, v in told.items()})
    assert caches(tmp_path) == (
        CpuCache(1, 32 * 2**10, 4),
        CpuCache(2, 2**20, 2),
        CpuCache(3, 32 * 2**20, 1),
    )
    assert caches(tmp_path / "none") == ()


def test_the_processors_name(tmp_path):
    assert (
        cpu_name(put(tmp_path, {"proc/cpuinfo": "model name\t: A   CPU @ 3 GHz\n"}))
        == "A CPU @ 3 GHz"
    )
    assert cpu_name(tmp_path / "none")


def test_scanning_counts_all_bytes():
    with bandwidth.scanners(2) as scanners:
        scanners.hold(2**20)
        rates = scanners.rates(0.01, 1)
    assert 1e7 < rates.read_bytes_per_s < 1e13
    assert 1e7 < rates.copy_bytes_per_s < 1e13
    assert rates.read_at_most_bytes_per_s >= rates.read_bytes_per_s


def test_a_scanner_that_ends_is_told():
    with bandwidth.scanners(1) as scanners, pytest.raises(OSError):
        scanners.hold(-(10**30))


@pytest.mark.parametrize(
    ("cache", "allowed", "total"),
    [
        (32 * 2**20, 10 * GIB, 2 * 64 * 2**20),
        (512 * 2**20, 10 * GIB, 2 * GIB),
        (32 * 2**20, 80 * 2**20, 80 * 2**20),
    ],
)
def test_buffers_are_larger_than_caches_and_within_the_share(cache, allowed, total):
    assert bandwidth.dram_buffer_bytes(cache, 2, allowed) == total // 2


def test_no_room_beyond_the_caches():
    assert bandwidth.dram_buffer_bytes(32 * 2**20, 2, 60 * 2**20) is None


def test_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "IN_MEMORY", ())
    rate = disk.measure(tmp_path, 16 * 2**20)
    assert rate.file_bytes == 16 * 2**20
    assert rate.one_bytes_per_s > 0
    assert rate.many_bytes_per_s >= rate.one_bytes_per_s
    assert rate.latency_s > 0
    assert list(tmp_path.iterdir()) == []


def test_a_file_given_is_read_and_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "IN_MEMORY", ())
    path = tmp_path / "weights"
    path.write_bytes(bytes(9 * 2**20 + 5))
    assert disk.measure(path).file_bytes == 9 * 2**20 + 5
    assert path.stat().st_size == 9 * 2**20 + 5


def test_a_folder_in_memory_is_no_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "_file_system", lambda _: "tmpfs")
    with pytest.raises(OSError, match="in memory"):
        disk.measure(tmp_path)


class FakeNvml:
    """The driver's library with one kind of card; what it lacks raises its error."""

    NVMLError = type("NVMLError", (Exception,), {})
    nvmlMemory_v2 = 2
    NVML_NVLINK_MAX_LINKS = 18

    def __init__(self, cards=1, name=b"NVIDIA H100 80GB HBM3", fails=()):
        self.cards, self.name, self.fails = cards, name, fails
        self.open = 0

    def nvmlInit(self):
        if "nvmlInit" in self.fails:
            raise self.NVMLError("Driver Not Loaded")
        self.open += 1

    def nvmlShutdown(self):
        self.open -= 1

    def nvmlDeviceGetCount(self):
        return self.cards

    def nvmlDeviceGetHandleByIndex(self, i):
        return i

    def nvmlSystemGetDriverVersion(self):
        return b"580.1"

    def __getattr__(self, name):
        answers = {
            "nvmlDeviceGetName": self.name,
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(
                total=81_559 * 2**20, reserved=300 * 2**20, free=80_000 * 2**20
            ),
            "nvmlDeviceGetCudaComputeCapability": (9, 0),
            "nvmlDeviceGetMaxPcieLinkGeneration": 5,
            "nvmlDeviceGetMaxPcieLinkWidth": 16,
            "nvmlDeviceGetMigMode": (0, 0),
        }
        if not name.startswith("nvml"):
            raise AttributeError(name)

        def answer(handle, *args):
            if name == "nvmlDeviceGetNvLinkState" and name not in self.fails:
                return int(args[0] < 4)
            if name in self.fails or name not in answers:
                raise self.NVMLError("Not Supported")
            return answers[name]

        return answer


def test_what_the_driver_says():
    fake = FakeNvml(2)
    driver = nvml.read(fake)
    assert driver.version == "580.1"
    assert driver.why is None
    card = driver.cards[0]
    assert len(driver.cards) == 2
    assert card.name == "NVIDIA H100 80GB HBM3"
    assert card.total_bytes == 81_559 * 2**20
    assert card.pcie_bytes_per_s == pytest.approx(63e9, rel=0.01)
    assert card.nvlinks == 4
    assert card.compute_capability == "9.0"
    assert fake.open == 0


@pytest.mark.parametrize(
    "call", ["nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMaxPcieLinkWidth", "nvmlDeviceGetNvLinkState",
             "nvmlDeviceGetName", "nvmlDeviceGetCudaComputeCapability", "nvmlDeviceGetMigMode"],
)  # fmt: skip
def test_a_call_that_a_card_does_not_support(call):
    (card,) = nvml.read(FakeNvml(fails=(call,))).cards
    assert card.name
    assert (card.total_bytes is None) == (call == "nvmlDeviceGetMemoryInfo")


def test_no_driver_and_no_card():
    assert "no NVIDIA driver answers" in nvml.read(FakeNvml(fails=("nvmlInit",))).why
    assert nvml.read(FakeNvml(0)).why == "the NVIDIA driver has no GPU"


class FakeBackend:
    """A GPU whose operations take no time."""

    name, version = "fake", "1"

    def __init__(self, cards=2, free=8 * GIB):
        self.cards, self.free, self.held = cards, free, 0

    def count(self):
        return self.cards

    def about(self, i):
        return {"name": "NVIDIA H100 80GB HBM3", "visible_bytes": 85_000_000_000, "free_bytes": self.free,
                "compute_capability": "9.0", "l2_bytes": 50 * 2**20}  # fmt: skip

    def buffer(self, i, size):
        self.held = max(self.held, size)
        return size

    def copy(self, target, source):
        pass

    def read(self, buffer):
        pass

    def host(self, size):
        raise MemoryError("cannot pin")

    def multiply(self, i, size, dtype):
        return lambda: None

    def multiply_on_cpu(self, size, dtype):
        raise NotImplementedError("no CPU here")

    def wait(self, i):
        pass

    def forget(self):
        pass


def test_the_gpu_script(monkeypatch):
    monkeypatch.setattr(gpu_probe, "SECONDS", 0.0001)
    made = FakeBackend()
    answer = gpu_probe.probe((lambda: made,), share=0.1)
    assert answer["backend"] == "fake"
    assert len(answer["devices"]) == 2
    device, alike = answer["devices"]
    assert "read_bytes_per_s" not in alike
    assert made.held <= 0.1 * 8 * GIB / 2
    assert device["read_bytes_per_s"] > 0
    assert device["to_peer_bytes_per_s"] > 0
    assert device["to_device_bytes_per_s"] is None
    assert set(device["flops_per_s"]) == {"bf16", "fp32"}
    assert any("cannot pin" in m for m in answer["missing"])
    json.dumps(answer, allow_nan=False)


class FakeCpu(FakeBackend):
    """A library that multiplies on the CPU, as far as memory was given."""

    def __init__(self):
        super().__init__(0)
        self.matrices = 0

    def apply_on_cpu(self, size, count):
        self.matrices = 2 * size**2 * count
        return lambda: sum(range(1000))

    def multiply_on_cpu(self, size, dtype):
        return lambda: sum(range(1000))

    def threads(self):
        return 1


@pytest.mark.parametrize(("room", "used"), [(2**27, 2**27), (2**40, gpu_probe.MATVEC_BYTES)])
def test_a_cpus_products_stay_inside_the_memory_given(monkeypatch, room, used):
    monkeypatch.setattr(gpu_probe, "SECONDS", 0.0001)
    made = FakeCpu()
    answer = gpu_probe.probe((lambda: made,), host_bytes=room)
    assert made.matrices == used
    assert answer["cpu_read_bytes_per_s"] > 0
    assert answer["cpu_flops_per_s"]["bf16"] > 0


def test_too_little_memory_for_a_cpus_products():
    answer = gpu_probe.probe((FakeCpu,), host_bytes=2**25)
    assert answer["cpu_read_bytes_per_s"] is None
    assert any("share of memory is too small" in m for m in answer["missing"])


def test_work_that_waits_is_timed_by_the_cpu():
    from time import sleep

    quick = gpu_probe.timed(lambda: sleep(0.02), lambda: None, threads=1)
    assert quick < 0.01 < gpu_probe.timed(lambda: sleep(0.02), lambda: None)


def test_the_gpu_script_with_a_full_gpu():
    answer = gpu_probe.probe((lambda: FakeBackend(1, 2**26),), share=0.1)
    assert "read_bytes_per_s" not in answer["devices"][0]
    assert "too small" in answer["missing"][0]


def test_the_gpu_script_without_a_library():
    def none():
        raise ModuleNotFoundError("No module named 'torch'")

    answer = gpu_probe.probe((none,))
    assert answer["backend"] is None
    assert answer["devices"] == []


def test_the_gpu_script_runs_by_its_path_alone(tmp_path):
    script = Path(gpu_probe.__file__)
    done = subprocess.run(
        [sys.executable, "-I", str(script)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    assert set(json.loads(done.stdout)) >= {"backend", "devices", "missing"}


@pytest.fixture
def quick(monkeypatch):
    """A probe that scans for no time and sees no GPU unless told."""
    monkeypatch.setattr(bandwidth, "SECONDS", 0.001)
    monkeypatch.setattr(bandwidth, "ROUNDS", 1)
    monkeypatch.setattr(probe, "_CACHE_S", 0.001)
    monkeypatch.setattr(
        probe.nvml, "read", lambda: nvml.Driver(None, (), "no NVIDIA driver answers")
    )
    return monkeypatch


NO_GPU = probe.Wishes(0.1, None, None)


def test_a_machine_without_gpus(quick, tmp_path):
    found = probe.probe(NO_GPU)
    path = tmp_path / "machine.json"
    probe.write(found.machine, str(path))
    device = resolve(str(path))
    assert device.vendor == "cpu"
    assert device.unified_memory
    assert device.engine_bytes == read_limits().total_bytes
    assert device.memory_bytes_per_s > 1e8
    assert any(m.startswith("GPUs: no NVIDIA driver") for m in found.missing)
    machine = load_machine(path)
    assert isinstance(machine, Machine)
    assert machine.tier("dram").bytes == device.engine_bytes
    assert (
        asked("llama-3-8b", str(path), engine="vllm", context_tokens=4096).plan.memory.gpu_bytes > 0
    )


def test_inside_a_memory_limit(quick, tmp_path):
    limits = read_limits()
    few = replace(
        limits,
        total_bytes=256 * 2**20,
        available_bytes=64 * 2**20,
        limited_by="memory.max",
        cores=1,
    )
    quick.setattr(probe, "read_limits", lambda: few)
    quick.setattr(probe, "caches", lambda: (CpuCache(1, 2**15, 1), CpuCache(2, 32 * 2**20, 1)))
    held = []
    hold = bandwidth.Scanners.hold
    quick.setattr(bandwidth.Scanners, "hold", lambda self, n: held.append(n) or hold(self, n))
    found = probe.probe(NO_GPU)
    assert sum(held) <= 0.1 * 64 * 2**20
    assert any("larger --memory-share" in m for m in found.missing)
    assert found.machine["memory_bytes"] == 256 * 2**20
    assert "memory_bytes_per_s" not in found.machine


H100 = nvml.read(FakeNvml(2)).cards


def gpu_answer(**more):
    return {
        "backend": "torch", "version": "2", "missing": [], "devices": [{
            "name": "NVIDIA H100 80GB HBM3", "visible_bytes": 85_000_000_000, "l2_bytes": 50 * 2**20,
            "read_bytes_per_s": 3.0e12, "copy_bytes_per_s": 2.9e12, "l2_bytes_per_s": 5e12,
            "to_device_bytes_per_s": 5.5e10, "to_peer_bytes_per_s": 3.9e11,
            "compute_capability": "9.0", "flops_per_s": {"bf16": 7e14}, **more,
        }],
    }  # fmt: skip


def test_known_gpus(quick, tmp_path):
    quick.setattr(probe.nvml, "read", lambda: nvml.Driver("580", H100))
    quick.setattr(probe, "_gpu_probe", lambda *_: gpu_answer())
    found = probe.probe(NO_GPU)
    path = tmp_path / "machine.json"
    probe.write(found.machine, str(path))
    machine = load_machine(path)
    card = catalogue.find("H100-SXM")
    assert machine.count == 2
    assert machine.device.name == card.name
    assert machine.device.memory_bytes_per_s == card.memory_bytes_per_s
    assert machine.device.flops("bf16") == card.flops("bf16")
    assert machine.device.visible_bytes == 85_000_000_000
    assert machine.device.driver_bytes == 81_559 * 2**20
    assert machine.tier("hbm").bytes_per_s == 3.0e12
    assert machine.tier("hbm").source.kind == "measured"
    assert machine.tier("host").bytes == read_limits().total_bytes
    assert machine.link("host link").bytes_per_s == 5.5e10
    rows = {r.name: r for r in found.figures}
    assert rows["GPU memory, reading"].expected == card.memory_bytes_per_s
    assert rows["GPU memory, an engine's"].expected == card.visible_bytes


def test_an_unknown_gpu_has_what_was_measured(quick, tmp_path):
    quick.setattr(probe, "_gpu_probe", lambda *_: gpu_answer(name="Zebra 9000"))
    found = probe.probe(NO_GPU)
    path = tmp_path / "machine.json"
    probe.write(found.machine, str(path))
    device = resolve(str(path))
    assert device.name == "Zebra 9000"
    assert device.memory_bytes_per_s == 3.0e12
    assert device.flops("bf16") == 7e14
    assert any("does not know" in r for r in found.remarks)


def test_a_cpu_has_the_rates_of_its_own_products(quick, tmp_path):
    said = {"backend": "torch", "version": "2", "missing": [], "devices": [],
            "cpu_flops_per_s": {"bf16": 2e11}, "cpu_read_bytes_per_s": 1.1e10}  # fmt: skip
    quick.setattr(probe, "_gpu_probe", lambda *_: said)
    path = tmp_path / "machine.json"
    probe.write(probe.probe(NO_GPU).machine, str(path))
    device = resolve(str(path))
    assert device.memory_bytes_per_s == 1.1e10
    assert device.flops("bf16") == 2e11
    tokens = {"context_tokens": 2048, "concurrency": 1}
    step = asked("qwen3-0.6b", str(path), engine="vllm", **tokens).plan.step
    # Nothing is taken off a rate that was reached: what is read is the floor, and most of it.
    assert 1.0 < step.seconds / ((step.bytes.weights + step.bytes.kv) / 1.1e10) < 1.25


def test_a_driver_alone(quick, tmp_path):
    quick.setattr(probe.nvml, "read", lambda: nvml.Driver("580", H100[:1]))
    found = probe.probe(NO_GPU)
    path = tmp_path / "machine.json"
    probe.write(found.machine, str(path))
    device = resolve(str(path))
    assert device.driver_bytes == 81_559 * 2**20
    assert device.memory_bytes_per_s == catalogue.find("H100-SXM").memory_bytes_per_s


@pytest.mark.parametrize("name", ["machine", "machine.toml", "none/machine.json"])
def test_no_place_for_a_machine_file(tmp_path, name):
    with pytest.raises(KvroomError, match="--out"):
        probe.checked_path(str(tmp_path / name))


def test_a_file_that_would_not_be_read_is_not_written(tmp_path):
    path = tmp_path / "m.json"
    path.write_text("old")
    with pytest.raises(KvroomError):
        probe.write({"name": "x"}, str(path))
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["m.json"]
