"""Room for a workload: the closed form against the simulation of it."""

import itertools
from dataclasses import replace
from math import sqrt
from types import SimpleNamespace

import pytest

from kvroom.planner.simulate import serve
from kvroom.simulator.metrics import Outcome
from kvroom.simulator.occupancy import OFF, WIDE, _upto
from kvroom.simulator.timeline import Timeline
from kvroom.workloads.synthetic import of_workload
from support import ask, asked

DEPLOYMENT = {
    "model": "llama-3-8b",
    "gpu": "RTX-4090",
    "engine": "vllm",
    "engine_version": "0.33.0",
    "engine_args": {"num_gpu_blocks_override": 1501},
    "context_tokens": 8192,
}


def running(workload, **keys):
    """(expected, shared, requests that run on average in the middle of a simulation)."""
    w = asked(**{**DEPLOYMENT, **keys}, workload=workload)
    made = serve(w, of_workload(w.plan.scenario.workload))
    line = made.line
    middle = line[len(line) // 4 : 3 * len(line) // 4]
    pairs = list(itertools.pairwise(middle))
    held = sum((b.time_ps - a.time_ps) * a.running for a, b in pairs)
    room = w.plan.capacity
    spent = middle[-1].time_ps - middle[0].time_ps
    return room.expected.requests, room.shared.requests, held / spent


def mixed(prompt, answer):
    """Lengths that vary by six tenths around these."""
    return {
        "input": f"lognormal:mean={prompt}:sigma=0.6:min=4:max=6000",
        "output": f"lognormal:mean={answer}:sigma=0.6:min=4:max=1500",
    }


@pytest.mark.slow
@pytest.mark.parametrize("tokens", [2048, 8192])
@pytest.mark.parametrize(
    ("prompt", "answer", "blocks"),
    [(1000, 20, 1501), (1000, 20, 6001), (3000, 60, 1501), (1000, 100, 1501), (2000, 200, 1501)],
)
def test_prompts_take_room_and_steps(prompt, answer, blocks, tokens):
    """Prompts longer than answers: blocks too few for the next prompt, or tokens too few for all."""
    args = {"num_gpu_blocks_override": blocks, "max_num_batched_tokens": tokens}
    load = mixed(prompt, answer) | {"arrivals": "closed:400", "requests": 8000}
    expected, _, found = running(load, engine_args=args)
    assert found == pytest.approx(expected, rel=0.17)


@pytest.mark.slow
@pytest.mark.parametrize(
    "workload",
    [
        {"input": 200, "output": 400},
        {"input": "lognormal:mean=300:sigma=0.6", "output": "lognormal:mean=300:sigma=0.6"},
        {"input": 64, "output": 600},
    ],
    ids=["fixed", "lognormal", "long answers"],
)
def test_expected_is_what_a_full_cache_runs(workload):
    expected, shared, found = running(workload | {"arrivals": "closed:300", "requests": 1500})
    assert shared == expected
    assert found == pytest.approx(expected, rel=0.08)


PREFIX = {"prefix": "shared:2x320"}
BANDED = [
    (mixed(300, 300), 1501),
    (mixed(1000, 200), 1501),
    (mixed(1000, 200), 6001),
    (mixed(1000, 20), 1501),
    (mixed(2000, 200), 3001),
    (mixed(200, 300) | PREFIX, 1501),
    ({"input": "sharegpt", "output": "sharegpt"}, 3001),
    ({"input": "uniform:100-1500", "output": "uniform:50-400"}, 2001),
]
SEEDS = 10


@pytest.mark.slow
def test_simulations_lie_within_the_band():
    """Of every load's seeds at least 7 in 10; and the closed form is off by as much as it says."""
    squares = []
    for lengths, blocks in BANDED:
        keys = DEPLOYMENT | {"engine_args": {"num_gpu_blocks_override": blocks}}
        load = lengths | {"arrivals": "closed:300", "requests": 1500}
        w = asked(**keys, workload=load)
        room, source = w.plan.capacity.shared, of_workload(w.plan.scenario.workload)
        drawn = [replace(source, seed=seed) for seed in range(SEEDS)]
        found = [serve(w, s).fleet.timeline.at_once["while_waiting"] for s in drawn]
        within = sum(room.low <= each <= room.high for each in found)
        assert within >= 0.7 * SEEDS, (load, room, found)
        squares += [(each / room.requests - 1) ** 2 for each in found]
    assert sqrt(sum(squares) / len(squares)) == pytest.approx(OFF, rel=0.3)


def relative(workload, blocks=1501):
    """Half the width of the band, relative."""
    keys = DEPLOYMENT | {"engine_args": {"num_gpu_blocks_override": blocks}}
    room = ask(**keys, workload=workload).capacity.expected
    assert room.high - room.requests == pytest.approx(room.requests - room.low)
    return (room.high - room.requests) / room.requests


def test_lengths_that_differ_widen_the_band():
    alike, some = {"input": 300, "output": 300}, mixed(300, 300)
    assert WIDE * OFF < relative(alike) < relative(some)
    assert WIDE * OFF < relative(some, 6001) < relative(some)


def test_requests_that_hold_the_same_vary_by_the_closed_form_alone():
    assert relative({"input": 300, "output": 1}) == pytest.approx(WIDE * OFF)


def test_a_request_that_grows_varies_as_what_is_spread_evenly():
    """From 100 to 500 tokens in blocks of 16: a standard deviation of 400 / √12 tokens around 300."""
    n = ask(**DEPLOYMENT, workload={"input": 100, "output": 401}).capacity.expected.requests
    varies = 400 / sqrt(12) / 300
    wanted = WIDE * sqrt(varies**2 / n + OFF**2)
    assert relative({"input": 100, "output": 401}) == pytest.approx(wanted, rel=0.02)


def counted(*looks):
    """What a line tells of one engine that it found so: (time, running, waiting)."""
    line = Timeline(Outcome(), None)
    for time_ps, running, waiting in looks:
        found = SimpleNamespace(decide=time_ps, running_count=running, waiting_count=waiting)
        line.glance([found])
    return line.at_once


def test_requests_at_once_are_weighted_by_time():
    looks = [(0, 0, 5), (10, 8, 5), (40, 8, 5), (50, 6, 0), (60, 4, 0), (70, 2, 0), (80, 0, 0)]
    assert counted(*looks) == {"mean": None, "while_waiting": None}  # too few
    found = counted(*looks, (100, 0, 0))
    assert found["mean"] == pytest.approx((10 * 4 + 30 * 8 + 10 * (7 + 5 + 3 + 1)) / 100)
    assert found["while_waiting"] == pytest.approx((10 * 4 + 30 * 8) / 40)
    steady = [(t, 3, 0) for t in range(8)]
    assert counted(*steady) == {"mean": 3.0, "while_waiting": None}


def test_a_shared_prefix_is_held_once():
    workload = {"input": 100, "output": 400, "prefix": "shared:2x320", "arrivals": "closed:300"}
    expected, shared, found = running(workload | {"requests": 1500})
    assert shared > 1.5 * expected
    assert found == pytest.approx(shared, rel=0.08)


def test_when_they_come_does_not_matter():
    lengths = {"input": 100, "output": 400}
    loads = ({}, {"requests_per_s": 2.0}, {"concurrency": 8}, {"arrivals": "poisson:2/s"})
    rooms = {ask(**DEPLOYMENT, workload=lengths | w).capacity.expected.requests for w in loads}
    assert len(rooms) == 1
    assert None not in rooms


def test_nothing_is_expected_where_nothing_is_asked():
    nothing = ask(**DEPLOYMENT).capacity.expected
    assert nothing.requests is nothing.low is nothing.high is None
    too_long = ask(**DEPLOYMENT, workload={"input_tokens": 9000, "output_tokens": 1})
    assert too_long.capacity.expected.requests is None


def test_sequences_bind_where_blocks_do_not():
    args = {**DEPLOYMENT["engine_args"], "max_num_seqs": 8}
    keys = DEPLOYMENT | {"engine_args": args}
    room = ask(**keys, workload={"input_tokens": 100, "output_tokens": 100}).capacity
    assert room.expected.requests == room.shared.requests == 8
    assert room.expected.low == room.expected.high == 8


def test_every_engine_has_an_expectation():
    for engine in ("vllm", "sglang", "tensorrt-llm"):
        room = ask(
            "llama-3-8b",
            "H100-SXM",
            engine=engine,
            context_tokens=8192,
            workload={"input_tokens": 1000, "output_tokens": 200},
        ).capacity
        assert room.expected.requests > 100


def test_the_ceiling_knows_no_limit_of_an_engine():
    lengths = {"input_tokens": 1000, "output_tokens": 200}
    room = ask(
        "llama-3-8b", "H100-SXM", engine="arithmetic", context_tokens=8192, workload=lengths
    ).capacity
    assert room.expected.requests > 256


def test_the_sum_of_blocks_is_exact():
    for size in (1, 3, 16):
        for tokens in (0, 1, size, size + 1, 100):
            assert _upto(tokens, size) == sum(-(-n // size) for n in range(1, tokens + 1))
