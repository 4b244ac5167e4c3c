"""A real vLLM's counters are the simulator's, and its stream is what the client reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import models, server
from engine.test_cpu import FEATURES, flags
from kvroom.observe.prove.session import measured, proof_of
from kvroom.scenario.scenario import Scenario
from kvroom.ui.terminal import prove as text
from kvroom.units import GIB

pytestmark = pytest.mark.engine

ARGS = {
    "max_model_len": 1024,
    "block_size": 32,
    "kv_cache_memory_bytes": 2**26,
    "num_gpu_blocks_override": 64,
}


def test_hits_and_preemptions_are_the_simulators(tmp_path: Path) -> None:
    sets = sorted(set(FEATURES) & set(Path("/proc/cpuinfo").read_text().split()))
    cpu = {
        "name": "CPU",
        "vendor": "cpu",
        "memory_bytes": 24 * GIB,
        "memory_bytes_per_s": 1e10,
        "flops_per_s": {"bf16": 2e11},
        "compute_capability": " ".join(sets) or "none",
    }
    scenario = Scenario.from_dict(
        {
            "model": {"config": models.LLAMA},
            "gpu": cpu,
            "engine": "vllm",
            "engine_version": server.RELEASE,
            "engine_args": ARGS,
        }
    )
    with server.running(tmp_path, models.LLAMA, *flags(ARGS)) as run:
        assert run.address, run.log[-4000:]
        parts = ("conversations", "pressure")
        proof = proof_of(measured(run.address, scenario, parts, seed=1, pid=run.pid))
    assert proof.exact, text.show([proof], {})
    talk = {r.counter: r.measured for r in proof.counts if r.workload == "conversations"}
    assert 0 < talk["hits"] < talk["queries"]
    crowd = {r.counter: r.measured for r in proof.counts if r.workload == "all at once"}
    assert crowd["preemptions"] > 0
