"""Pictures of a simulation: put together they are the pool, and they change nothing."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from kvroom.errors import KvroomError
from kvroom.planner.plan import work
from kvroom.planner.simulate import serve
from kvroom.scenario.scenario import Scenario
from kvroom.simulator.frames import FREE, KEPT, SHARED, Frame
from kvroom.workloads.synthetic import of_workload

WORKLOAD = {
    "arrivals": "poisson:8/s",
    "prefix": "shared:2x256",
    "input": "lognormal:mean=200:sigma=0.6",
    "output": 60,
    "turns": 2,
    "think": "1s",
    "requests": 60,
}


def pictured(model: str, blocks: int, **more: Any) -> tuple[list[Frame], Any, Any]:
    asked = {"model": model, "gpu": "H200-SXM", "gpu_count": 2, "context_tokens": 2048,
             "engine_args": {"num_gpu_blocks_override": blocks, "max_num_seqs": 30, **more},
             "workload": WORKLOAD}  # fmt: skip
    w = work(Scenario.from_dict(asked))
    assert w.plan.scenario.workload is not None
    frames: list[Frame] = []
    source = of_workload(w.plan.scenario.workload)
    made = serve(w, source, tell=frames.append)
    return frames, made, serve(w, source)


@pytest.mark.parametrize(
    ("model", "blocks"),
    [("llama-3-8b", 240), ("gemma-3-27b", 1200), ("qwen3-next-80b-a3b", 30)],
)
def test_frames_add_up_to_the_pool(model: str, blocks: int) -> None:
    frames, made, plain = pictured(model, blocks)
    assert made.to_dict() == plain.to_dict()
    owners = [FREE] * blocks
    queue: set[int] = set()
    running: set[int] = set()
    again: set[int] = set()
    counted: Counter[str] = Counter()
    late = 0
    for f in frames:
        for first, count, owner in zip(f.blocks[::3], f.blocks[1::3], f.blocks[2::3], strict=True):
            assert all(owners[b] != owner for b in range(first, first + count))
            owners[first : first + count] = [owner] * count
        queue |= set(f.came)
        for gone in (f.done, f.dropped):
            for held in (queue, running, again):
                held -= set(gone)
        # Preempted and let in again by the same pass cannot be: who is preempted waits.
        running = (running | set(f.admitted)) - set(f.preempted)
        queue -= set(f.admitted)
        again = (again - set(f.admitted)) | set(f.preempted)
        assert owners[0] == FREE
        assert owners.count(SHARED) == f.shared and owners.count(KEPT) == f.kept
        named = {o for o in owners if o > 0}
        assert named <= running
        assert len(running) == f.running
        assert len(queue | again) == f.waiting and len(again) == f.preempted_waiting
        assert blocks - owners.count(FREE) - owners.count(KEPT) == f.held
        assert owners.count(FREE) - 1 == f.free
        assert late <= f.start_ps <= f.end_ps
        late = f.start_ps
        counted["preempted"] += len(f.preempted)
        counted["done"] += len(f.done)
        counted["first"] += len(f.first)
        counted["gaps"] += sum(n for _, n in f.gaps)
    answer = made.to_dict()
    assert counted["preempted"] == answer["preemptions"]
    assert counted["done"] == counted["first"] == answer["requests"]["completed"] == 60
    assert counted["gaps"] == 60 * 59
    assert max(f.held for f in frames) == answer["kv_blocks"]["peak"]
    last = frames[-1]
    assert last.held == last.running == last.waiting == 0
    firsts = sorted(ps for f in frames for _, ps in f.first)
    assert firsts[-1] / 1e12 == answer["ttft_s"]["max"]


@pytest.mark.slow
def test_shared_and_kept_blocks_are_told() -> None:
    frames, made, _ = pictured("llama-3-8b", 600)
    assert max(f.shared for f in frames) >= 16  # 256 tokens in common
    assert frames[-1].kept > 0
    assert made.to_dict()["prefix_hit_ratio"] > 0.5
    frames, _, _ = pictured("llama-3-8b", 600, enable_prefix_caching=False)
    assert max(f.shared for f in frames) == frames[-1].kept == 0


def test_plain_values() -> None:
    frame = Frame(start_ps=10**12, end_ps=2 * 10**12, came=[1], first=[(1, 5 * 10**11)])
    told = frame.to_dict()
    assert told["start_s"] == 1
    assert told["came"] == [1] and told["first"] == [(1, 0.5)]
    assert "blocks" not in told and "gaps" not in told


def test_an_engine_without_numbered_blocks_is_refused() -> None:
    asked = {"model": "llama-3-8b", "gpu": "H100-SXM", "engine": "sglang", "context_tokens": 2048,
             "workload": WORKLOAD}  # fmt: skip
    w = work(Scenario.from_dict(asked))
    assert w.plan.scenario.workload is not None
    with pytest.raises(KvroomError, match="rules of its own"):
        serve(w, of_workload(w.plan.scenario.workload), tell=lambda frame: None)
