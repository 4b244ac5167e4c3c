"""What a simulation counts and what closed forms of its room say, against counts by hand."""

import json
from itertools import pairwise
from math import ceil, exp, sqrt

import pytest

from kvroom.engines.llama_cpp.scheduler import SlotScheduler, SlotSettings
from kvroom.engines.paged.scheduler_setup import GroupSpec
from kvroom.kvcache.request import ServedRequest
from kvroom.kvcache.tokens import BlockHashes
from kvroom.latency.clock import PS_PER_S, step_clock
from kvroom.planner.plan import work
from kvroom.planner.simulate import simulate
from kvroom.scenario.scenario import Scenario
from kvroom.simulator.occupancy import (
    OFF,
    WIDE,
    _banded,
    _group_blocks,
    _in_step,
    held_blocks,
    waiting_blocks,
)
from kvroom.simulator.script import Script
from kvroom.simulator.transfer_queue import READ, WRITE, TransferQueue
from kvroom.workloads.distributions import Lognormal
from kvroom.workloads.draws import Draws
from kvroom.workloads.statistics import nearest_rank
from kvroom.workloads.traces.reader import Trace


def engine(blocks=10_000, tokens=8192, groups=({"type": "full", "block_size": 16},)):
    settings = {"max_num_batched_tokens": tokens, "max_num_seqs": 256, "max_model_len": 2**20}
    script = {
        "engine": {
            "num_gpu_blocks": blocks,
            "groups": list(groups),
            "enable_prefix_caching": True,
            **settings,
        },
        "requests": [{"arrival_step": 0, "prompt": [[0, 4]], "output": [[9, 1]]}],
    }
    return Script.from_dict(script).engine


@pytest.mark.parametrize(
    ("name", "block_tokens"), [("vllm", 16), ("sglang", 1), ("tensorrt-llm", 32)]
)
def test_a_hit_never_covers_the_last_token(name, block_tokens, tmp_path):
    """A prompt of whole blocks, asked again: its last token is computed, so its last block (SGLang's has one
    token) is."""
    row = {"input_length": 64, "output_length": 4, "hash_ids": [1, 2, 3, 4]}
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps({"timestamp": t, **row}) + "\n" for t in (0, 60_000)))
    scenario = Scenario.from_dict(
        {"model": "llama-3-8b", "gpu": "H100-SXM", "engine": name, "context_tokens": 8192}
    )
    answer = simulate(scenario, Trace(path, hash_tokens=16)).to_dict()
    assert answer["requests"]["completed"] == 2
    assert answer["prefix_hit_ratio"] == (64 - block_tokens) / 128


@pytest.mark.parametrize(
    ("prompt", "budget"), [(100, 8192), (5000, 2048)], ids=["one step", "chunks"]
)
def test_one_request_takes_the_sum_of_its_steps(prompt, budget, tmp_path):
    """As the clock times them one by one, however many the simulation takes together."""
    path = tmp_path / "trace.jsonl"
    path.write_text(json.dumps({"timestamp": 0, "input_length": prompt, "output_length": 300}))
    args = {"max_num_batched_tokens": budget, "async_scheduling": False}
    keys = {"engine": "vllm", "context_tokens": 8192, "engine_args": args}
    scenario = Scenario.from_dict({"model": "llama-3-8b", "gpu": "H100-SXM", **keys})
    answer = simulate(scenario, Trace(path)).to_dict()
    clock = step_clock(work(scenario).timing.clock)
    starts = range(0, prompt, budget)
    first = sum(clock.ps([(at, min(budget, prompt - at))]) for at in starts)
    rest = sum(clock.ps([(prompt + i, 1)]) for i in range(299))
    client = answer["ttft_front_end_s"] + (first + rest) / PS_PER_S
    assert answer["ttft_engine_s"]["max"] == pytest.approx(first / PS_PER_S, rel=1e-9)
    assert answer["e2e_s"]["max"] == pytest.approx(client, rel=1e-9)
    assert answer["tpot_s"]["max"] == pytest.approx(rest / 299 / PS_PER_S, rel=1e-9)


def test_a_slot_that_held_the_same_prompt_computes_its_last_stretch_anew():
    settings = SlotSettings(
        slots=1, tokens=4096, context_tokens=4096, batch_tokens=2048, stretch=16
    )
    twice = [
        ServedRequest(i, 100 * i, 64, 4, hashes=BlockHashes([(0, 64), (100, 4)], 16))
        for i in range(2)
    ]
    scheduler = SlotScheduler(settings)
    cached = []
    for request in twice:
        scheduler.add_request(request)
        made = scheduler.schedule()
        cached += [tokens for _, tokens, _ in made.admitted]
        for _ in range(4):
            scheduler.update_from_output(made)
            made = scheduler.schedule()
        assert not scheduler.running_count
    assert cached == [0, 48]


def test_a_waiting_prompt_leaves_half_of_its_blocks_free():
    assert waiting_blocks(engine(), [(160, 5)]) == 5.0
    # A large one waits the more often: the mean is weighed by size, (10² + 40²) / (10 + 40) / 2.
    assert waiting_blocks(engine(), [(160, 5), (640, 5)]) == 17.0


def test_a_request_holds_its_mean_over_its_steps():
    mean, varies = held_blocks(engine(tokens=2**30), [(1, 16_001)], 0)
    assert mean == pytest.approx(500.5, rel=1e-3)
    assert varies == pytest.approx(1000 / sqrt(12), rel=1e-3)  # even between 1 and 1001


def test_what_holds_its_blocks_longer_holds_more():
    base, _ = held_blocks(engine(), [(160, 101)], 0)
    longer, _ = held_blocks(engine(), [(160, 101)], 1)
    assert longer - base == pytest.approx(ceil(260 / 16) / (1 + 160 / 8192 + 100))


def test_full_steps_hold_what_begins_times_how_long_it_stays():
    # Little's law: tokens / (prompt + answer − 1) begin a step and stay 1 + prompt / tokens + answer − 1.
    assert _in_step([(1000, 50)], 2048, 1) == pytest.approx(2048 / 1049 * (50 + 1000 / 2048))
    # On four stages each of its tokens takes as many steps.
    assert _in_step([(1000, 50)], 2048, 4) == pytest.approx(2048 / 1049 * (200 + 1000 / 2048))


def test_a_window_begins_anywhere_in_a_block():
    for reach in (16, 17, 100):
        group = GroupSpec(type="sliding_window", block_size=16, reach=reach)
        touched = [(start + reach - 1) // 16 + 1 for start in range(16)]
        assert _group_blocks(group, 10_000) == pytest.approx(sum(touched) / 16)


def test_a_band_of_requests_adds_up_as_squares():
    band = _banded(100.0, 0.3, 1000.0)
    away = WIDE * sqrt((0.3 * sqrt(100)) ** 2 + (100 * OFF) ** 2)
    assert (band.low, band.high) == pytest.approx((100 - away, 100 + away))
    assert _banded(100.0, 0.3, 101.0).high == 101.0


def test_a_link_carries_whole_picoseconds_one_after_the_other():
    link = TransferQueue(3, 1, duplex=True)
    assert link.takes_ps(1) == 333_333_333_334
    assert link.carry(READ, 0, 3) == 10**12
    assert link.carry(READ, 0, 3) == 2 * 10**12
    assert link.carry(WRITE, 0, 3) == 10**12
    shared = TransferQueue(3, 1, duplex=False)
    assert [shared.carry(way, 0, 3) for way in (READ, WRITE)] == [10**12, 2 * 10**12]
    assert link.busy_ps == 3 * 10**12


def test_a_lognormals_mean_is_its_own():
    made = Lognormal(mean=1000, sigma=0.8, low=0, high=1e9)
    assert exp(made.middle + 0.8**2 / 2) == pytest.approx(1000)
    draws = Draws(7, "lengths")
    assert sum(made.draw(draws) for _ in range(40_000)) / 40_000 == pytest.approx(1000, rel=0.02)


def test_percentiles_are_nearest_ranks():
    values = list(range(1, 11))
    assert [nearest_rank(values, p) for p in (1, 10, 50, 90, 91, 99)] == [1, 1, 5, 9, 10, 10]
    assert all(a <= b for a, b in pairwise(nearest_rank(values, p) for p in range(1, 100)))
