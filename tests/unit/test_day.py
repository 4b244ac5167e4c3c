"""A day by the hour: curves, the fluid between them, the answer, and the whole simulation beside it."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from kvroom import api
from kvroom.optimize.day import sampler
from kvroom.optimize.day.day import errors
from kvroom.optimize.day.fluid import STEP_S, Flow, FlowStep, mean, percentile, steps_of
from kvroom.optimize.day.hours import AN_HOUR, FleetCurves, needed, played
from kvroom.optimize.day.levels import RANKS, Level, LevelCurve, curve_of
from kvroom.optimize.day.question import FleetDay
from kvroom.planner.simulate import parse_slo
from kvroom.ui.cli.main import main
from kvroom.workloads.daily import PARTS
from support import from_file

FEW = {"max_num_seqs": 16}
ASKED = ("simulate", "llama-3-8b", "--gpu", "L4", "--engine-arg", "max_num_seqs=16", "--day")
WORKLOAD = "arrivals=day:4e5/day:peak=1.6:at=15,input=120,output=exponential:mean=20"


def run(*words):
    return CliRunner().invoke(main, list(words))


def level(rate: float, here: float, ttft: float = 0.1, tpot: float = 0.01) -> Level:
    return Level(
        rate_per_s=rate,
        ttft_s=tuple(ttft * (1 + rank / RANKS) for rank in range(RANKS)),
        tpot_s=tuple(tpot * (1 + rank / RANKS) for rank in range(RANKS)),
        ttft_mean_s=1.5 * ttft,
        tpot_mean_s=1.5 * tpot,
        here=here,
    )


def queue_curve(most: float = 10.0) -> LevelCurve:
    """Numbers there as of one server's queue: rate / (most − rate)."""
    rates = [most * share for share in (0.1, 0.3, 0.5, 0.7, 0.9)]
    return LevelCurve(
        tuple(level(rate, rate / (most - rate), ttft=1 / (most - rate)) for rate in rates)
        + (level(most, 20.0, ttft=1.0),)
    )


@given(st.lists(st.floats(0.0, 25.0), min_size=1, max_size=40), st.floats(1.0, 2000.0))
def test_what_comes_leaves_or_is_there(rates, seconds):
    """Requests are conserved, whatever the rates and however long a step is."""
    curve, flow = queue_curve(), Flow()
    for rate in rates:
        before = flow.here
        step = flow.step(rate, curve, seconds)
        left = before + rate * seconds - flow.here
        assert flow.here >= -1e-9
        assert -1e-6 <= left <= curve.most_per_s * seconds * (1 + 1e-9)
        assert left == pytest.approx(seconds * curve.leaving_per_s(flow.here), abs=1e-6)
        assert step.wait_s >= 0.0


def test_a_steady_rate_leads_to_its_steady_state():
    curve, flow = queue_curve(), Flow()
    for _ in range(50):
        step = flow.step(7.0, curve)
    assert flow.here == pytest.approx(7 / 3)
    assert step.level.rate_per_s == pytest.approx(7.0)
    assert step.wait_s == 0.0


def test_more_than_a_replica_can_do_piles_up_and_drains():
    curve, flow = queue_curve(), Flow()
    for _ in range(20):
        step = flow.step(12.0, curve)
    assert step.waiting == pytest.approx(20 * 2 * STEP_S, rel=0.1)
    assert step.wait_s == pytest.approx(step.waiting / 10)
    waits = [flow.step(5.0, curve).wait_s for _ in range(12)]
    assert waits == sorted(waits, reverse=True)
    assert waits[-1] == 0.0


@given(st.lists(st.tuples(st.floats(0.1, 9.9), st.floats(0.0, 5.0)), min_size=1, max_size=12))
def test_percentiles_lie_in_order_and_within(parts):
    curve = queue_curve()
    steps = [FlowStep(10.0 * rate, curve.at(rate), 0.0, wait) for rate, wait in parts]
    found = [percentile(steps, "ttft", at) for at in (1, 50, 90, 99, 100)]
    assert found == sorted(found)
    lows = [step.level.ttft_s[0] + step.wait_s for step in steps]
    highs = [step.level.ttft_s[-1] + step.wait_s for step in steps]
    assert min(lows) - 1e-9 <= found[0] and found[-1] <= max(highs) + 1e-9
    assert min(lows) <= mean(steps, "ttft") <= max(highs) + 1e-9


def test_a_percentile_is_that_of_all_requests_together():
    one = FlowStep(300.0, level(1.0, 1.0, ttft=1.0), 0.0, 0.0)
    other = FlowStep(100.0, level(1.0, 1.0, ttft=10.0), 0.0, 0.0)
    values = sorted([*one.level.ttft_s * 3, *other.level.ttft_s])
    for percent in (10, 50, 74, 76, 95):
        exact = values[round(percent / 100 * len(values)) - 1]
        assert percentile([one, other], "ttft", percent) == pytest.approx(exact, rel=1e-6)


def test_a_sample_that_falls_back_is_raised():
    curve = curve_of([level(1, 1.0), level(2, 0.9), level(3, 4.0), level(9, 3.0), level(5, 20.0)])
    assert curve.rates == [1, 2, 3, 5]  # a rate beyond the most is none
    assert curve.counts == sorted(curve.counts)
    assert curve.levels[-1].ttft_s == level(3, 1.0).ttft_s


def flat(rate: float) -> FleetDay:
    return FleetDay(name="all", share=1.0, rates=(rate,) * (PARTS + 1))


def test_as_few_replicas_as_hold():
    curves = FleetCurves({8: queue_curve()})
    slo = parse_slo("ttft_p95=500ms")
    count = needed(flat(100.0), 0, curves, slo)
    assert count is not None
    hours = played(flat(100.0), [count] * 24, curves)
    assert percentile(hours[5].steps, "ttft", 95) <= 0.5
    fewer = played(flat(100.0), [count - 1] * 24, curves)
    assert percentile(fewer[5].steps, "ttft", 95) > 0.5
    assert needed(flat(100.0), 0, curves, parse_slo("ttft_p95=1ms")) is None
    assert sum(hour.requests for hour in hours) == pytest.approx(100.0 * 86_400)
    assert len(steps_of(flat(1.0).rates)) == 24 * AN_HOUR


def test_between_two_numbers_of_replicas():
    few, many = queue_curve(10.0), queue_curve(12.0)
    curves = FleetCurves({4: few, 16: many})
    assert curves.of(2).most_per_s == 10.0
    assert curves.of(100).most_per_s == 12.0
    assert curves.of(8).most_per_s == pytest.approx(10 + 2 * (1 / 4 - 1 / 8) / (1 / 4 - 1 / 16))


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(sampler, "SAMPLE_REQUESTS", 200)
    monkeypatch.setattr(sampler, "SHARES", (0.2, 0.6, 0.9))


def test_the_answer_of_a_day(small):
    result = run(*ASKED, "--workload", WORKLOAD, "--slo", "ttft_p95=1s,tpot_p95=200ms", "--json")
    told = json.loads(result.stdout)
    assert told["holds"]
    assert told["requests"] == 400_000
    assert len(told["hours"]) == 24
    assert sum(hour["requests"] for hour in told["hours"]) == pytest.approx(4e5, rel=0.001)
    assert told["replicas"]["by_hour"] == [hour["replicas"] for hour in told["hours"]]
    assert told["cost"]["usd"] == pytest.approx(sum(hour["usd"] for hour in told["hours"]))
    for metric in ("ttft_s", "tpot_s"):
        for at, value in told[metric].items():
            assert told["bands"][metric][at]["low"] <= value <= told["bands"][metric][at]["high"]
    text = run(*ASKED, "--workload", WORKLOAD, "--slo", "ttft_p95=1s,tpot_p95=200ms").stdout
    assert max(map(len, text.splitlines())) <= 80


def test_replicas_that_stay_all_day(small):
    found = api.day(
        "llama-3-8b",
        "L4",
        replicas=2,
        engine_args=FEW,
        slo="ttft_p95=1s,tpot_p95=200ms",
        workload={"arrivals": "day:1.6e6/day:peak=1.9", "input": 120, "output": 20},
    )
    assert not found.holds
    assert "2 replicas (1 x L4 each) do not hold" in found.summary()
    late = [row for row in found.rows() if row["needed"] > row["replicas"]]
    assert late
    assert max(row["waiting"] for row in late) > 100
    assert "o'clock" in found.summary()
    assert "<svg" in found.to_html()


def test_regions_have_fleets_of_their_own(small):
    found = api.day(
        "llama-3-8b",
        "L4",
        slo="tpot_p95=200ms",
        engine_args=FEW,
        workload={
            "arrivals": "day:8e6/day:peak=1.9:regions=0.5@0+0.5@12",
            "input": 120,
            "output": 20,
        },
    )
    told = found.to_dict()
    assert [region["region"] for region in told["regions"]] == ["UTC+0", "UTC+12"]
    assert told["one_fleet"]["busiest"] < sum(region["busiest"] for region in told["regions"])
    assert "One fleet for all regions" in found.summary()


def test_what_no_number_of_replicas_holds(small):
    found = api.day(
        "llama-3-8b",
        "L4",
        slo="tpot_p95=5ms",
        engine_args=FEW,
        workload={"arrivals": "day:1e6/day", "input": 120, "output": 20},
    )
    assert not found.holds
    assert found.summary().startswith(
        "No number of replicas up to 10,000 (1 x L4 each) holds tpot_p95=5 ms"
    )
    assert found.figures["hours"] == []


def test_samples_on_processes_are_the_same(small, tmp_path):
    keys = {
        "slo": "ttft_p95=1s",
        "engine_args": FEW,
        "workload": {"arrivals": "day:1e6/day", "input": 120, "output": 20},
    }
    home = api.day("llama-3-8b", "L4", journal=str(tmp_path / "j"), **keys)
    again = api.day("llama-3-8b", "L4", journal=str(tmp_path / "j"), **keys)
    assert again.to_dict() == home.to_dict()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--workload", "arrivals=poisson:2/s,input=10,output=2", "--slo", "ttft_p95=1s"],
            "no day's",
        ),
        (["--workload", WORKLOAD], "--slo: is missing"),
        (["--workload", WORKLOAD, "--slo", "e2e_p95=1s"], "not answered by the hour"),
        (["--workload", f"{WORKLOAD},requests=9", "--slo", "ttft_p95=1s"], "are two"),
        (
            ["--workload", WORKLOAD, "--slo", "ttft_p95=1s", "--seeds", "3"],
            "does not go with --day",
        ),
        (["--workload", WORKLOAD, "--slo", "ttft_p95=1s", "--cliff", "rate=1..2"], "--cliff"),
        (["--workload", WORKLOAD, "--slo", "ttft_max=1s"], "not answered by the hour"),
    ],
)
def test_what_is_no_question_of_a_day(words, message):
    result = run(*ASKED, *words)
    assert result.exit_code == 2
    assert message in result.stderr


def test_replicas_that_stay_serve_all_regions(small):
    found = api.day(
        "llama-3-8b",
        "L4",
        replicas=4,
        engine_args=FEW,
        slo="ttft_p95=1s",
        workload={"arrivals": "day:1e6/day:regions=0.5@0+0.5@12", "input": 10, "output": 20},
    )
    assert found.figures["regions"] == []
    assert {row["replicas"] for row in found.rows()} == {4}


@pytest.mark.slow
@pytest.mark.parametrize("case", ["alone", "overrun"])
def test_a_day_is_near_the_whole_simulation(case, tmp_path, monkeypatch):
    """A million requests, each played, beside the day by the hour: no further off than is stated, and half as
    much again for chance."""
    benchmark = from_file("benchmarks/day.py")
    monkeypatch.setattr(benchmark.levels, "outside_of_sample", lambda run: 0.0)
    off = benchmark.compared(case, 1e7, 1, tmp_path)
    stated = errors()["errors"]
    for metric, each in off.items():
        for at, error in each.items():
            assert abs(error) <= 1.5 * stated[metric][at] + 0.01, (metric, at)
