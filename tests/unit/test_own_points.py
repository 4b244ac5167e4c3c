"""Measurements of one's own draw a plan's times to them, and narrow its bands."""

import pytest

import kvroom
from kvroom.errors import KvroomError
from support import ask, check_told

LOAD = {"input_tokens": 1024, "output_tokens": 512, "concurrency": 16}


def plan(calibration=None, **keys):
    return ask(
        "llama-3-70b",
        "H100-SXM",
        engine="vllm",
        tp=8,
        context_tokens=4096,
        workload=LOAD,
        calibration=calibration,
        **keys,
    )


def file(*points):
    return {"kvroom_calibration": 1, "times": {"points": list(points)}}


def test_the_step_is_drawn_to_the_measured_one():
    before = plan()
    measured = 1.5 * before.step.seconds
    tokens = before.step.request_tokens
    point = {"step_s": measured, "concurrency": 16, "context_tokens": tokens}
    once, often = plan(file(point)), plan(file(*[point] * 20))
    assert before.step.seconds < once.step.seconds < often.step.seconds < measured
    assert often.step.seconds == pytest.approx(measured, rel=0.01)
    agreed = plan(file(*[point | {"step_s": before.step.seconds}] * 3))
    width = [p.step.seconds_high / p.step.seconds for p in (once, often, before, agreed)]
    assert width[0] > width[1]
    assert width[2] > width[3]


@pytest.mark.parametrize("factor", [0.2, 0.7, 2.0, 8.0])
def test_first_tokens_are_drawn_by_themselves(factor):
    before = plan().serving
    point = LOAD | {"ttft_s": factor * before.ttft_s, "tpot_s": before.tpot_s}
    after = plan(file(*[point] * 40)).serving
    assert after.tpot_s == pytest.approx(before.tpot_s, rel=0.01)
    assert after.ttft_s == pytest.approx(factor * before.ttft_s, rel=0.15)
    assert after.ttft_front_end_s >= 0
    # What the front end may have taken is not looked for in the engine.
    if factor > 1:
        assert after.ttft_engine_s == pytest.approx(before.ttft_engine_s, rel=0.01)


def test_points_of_other_hardware_are_left_alone():
    point = {"step_s": 1.0, "concurrency": 16, "context_tokens": 4096, "gpu": "B200-SXM"}
    assert plan(file(point)).step == plan().step


@pytest.mark.parametrize(
    "times",
    [
        {"points": 3},
        {"points": [{"step_s": "fast", "context_tokens": 4096}]},
        {"points": [{"step_s": -1, "context_tokens": 4096}]},
        {"points": [{"step_s": 0.1}]},
        {"points": [{"stepp_s": 0.1, "context_tokens": 4096}]},
        {"points": [{"tpot_s": 0.1, "input_tokens": 10}]},
        [],
    ],
)
def test_a_wrong_file_is_told(times):
    with pytest.raises(KvroomError) as e:
        plan({"kvroom_calibration": 1, "times": times})
    assert e.value.field.startswith("calibration")
    check_told(e.value)


def test_a_point_holds_by_any_name_of_its_model_and_card():
    point = {"model": "meta-llama/Llama-3.1-8B-Instruct", "gpu": "h100", "concurrency": 8}
    point |= {"input_tokens": 1000, "output_tokens": 200, "tpot_s": 0.02}
    times = {"kvroom_calibration": 1, "times": {"points": [point]}}
    asked = {"gpu": "H100-SXM", "context_tokens": 8192, "concurrency": 8, "calibration": times}
    drawn = kvroom.plan(model="llama-3.1-8b", **asked)
    assert not any("calibration" in warning for warning in drawn.warnings)
    other = kvroom.plan(model="qwen3-8b", **asked)
    inline = times | {"times": {"points": [point | {"model": {"hidden_size": 8}}]}}
    kvroom.plan(model="llama-3.1-8b", **asked | {"calibration": inline})
    told = [warning for warning in other.warnings if "none of the calibration's times" in warning]
    assert told and "Llama-3.1-8B-Instruct h100" in told[0]


def test_no_measurement_makes_a_step_quicker_than_the_card_reads():
    point = {"concurrency": 1, "context_tokens": 100, "step_s": 1e-7}
    times = {"kvroom_calibration": 1, "times": {"points": [point]}}
    asked = {"model": "llama-3.1-8b", "gpu": "H100-SXM", "context_tokens": 8192, "concurrency": 1}
    step = kvroom.plan(**asked, calibration=times).step
    assert step.seconds >= 16e9 / 3.36e12


@pytest.mark.parametrize(
    ("point", "value"),
    [
        ({"tpot_s": -0.1, "input_tokens": 10, "output_tokens": 5, "gpu": "B200-SXM"}, -0.1),
        ({"tpot_s": 0.1, "inptu_tokens": 10, "gpu": "B200-SXM"}, "inptu_tokens"),
        ({"step_s": 0.1, "tpots_s": 0.1, "context_tokens": 4096}, "tpots_s"),
    ],
)
def test_a_point_that_is_of_other_hardware_is_read_all_the_same(point, value):
    with pytest.raises(KvroomError) as told:
        plan(file(point))
    assert told.value.value == value


def test_what_another_tool_adds_to_a_point_is_left_alone():
    point = {"step_s": 0.1, "concurrency": 16, "context_tokens": 4096, "run_by": "us"}
    assert plan(file(point)).step != plan().step
