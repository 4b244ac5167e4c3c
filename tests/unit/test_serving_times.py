"""TPOT and TTFT under load: their parts add up, and limits are those of queues."""

from dataclasses import replace

import pytest

from kvroom.engines.registry import engine_of
from kvroom.errors import KvroomError
from kvroom.latency.load import held_per_s
from kvroom.planner.plan import work
from kvroom.planner.simulate import serve
from kvroom.scenario.scenario import Scenario
from kvroom.workloads.synthetic import of_workload
from support import asked


def load(**keys):
    return {"input_tokens": 1024, "output_tokens": 512, "concurrency": 16, **keys}


def times(model="llama-3-70b", gpu="H100-SXM", **keys):
    workload = keys.pop("workload", load())
    return asked(model, gpu, engine="vllm", **{"tp": 8, **keys}, workload=workload)


def test_parts_add_up():
    t = times().times
    assert t.tpot_s == pytest.approx(t.step_s + t.prompts_a_step * t.prompt_s)
    assert t.ttft_engine_s == pytest.approx(t.own_s + t.queued_s + t.no_room_s)
    assert t.ttft_s == pytest.approx(t.ttft_engine_s + t.front_end_s + t.start_s)
    assert t.no_room_s == 0
    assert 0 < t.decoding < 16


def test_littles_law_of_a_closed_loop():
    t = times().times
    assert t.requests_per_s * (t.ttft_engine_s + 511 * t.tpot_s) == pytest.approx(16, rel=1e-3)


def test_one_user_meets_nobody():
    t = times(workload=load(concurrency=1)).times
    assert t.prompts_a_step == 0
    assert t.tpot_s == t.step_s


def test_users_without_room_wait_whole_answers():
    waiting = load(concurrency=4000, input_tokens=8192)
    w = times(workload=waiting, tp=4, allow_overcommit=True)
    assert w.load.slots == w.plan.capacity.shared.requests < 4000
    assert w.times.no_room_s > 10 * w.times.own_s
    stay = w.times.ttft_engine_s + 511 * w.times.tpot_s
    assert w.times.requests_per_s * stay == pytest.approx(4000, rel=0.01)


def test_a_static_batch_is_prefilled_first():
    alone = times(workload=load(concurrency=1, static=True)).times
    batch = times(workload=load(concurrency=16, static=True)).times
    assert batch.prompts_a_step == 0
    assert alone.ttft_s < batch.ttft_s < 16 * alone.ttft_s
    assert alone.tpot_s < batch.tpot_s


def test_open_arrivals_hold_what_comes():
    w = times(workload=load(concurrency=None, requests_per_s=2.0))
    t = w.times
    assert t.requests_per_s == 2.0
    assert t.decoding == pytest.approx(2.0 * 511 * t.tpot_s, rel=1e-3)
    assert w.plan.serving.output_tokens_per_s == pytest.approx(2.0 * 512)


def test_more_arrivals_wait_longer():
    slow, fast = (times(workload=load(concurrency=None, requests_per_s=r)) for r in (0.5, 2.0))
    assert slow.times.ttft_s < fast.times.ttft_s
    assert slow.times.tpot_s < fast.times.tpot_s


def test_past_saturation_there_is_no_first_token():
    w = times(workload=load(concurrency=None, requests_per_s=10_000.0))
    assert w.times.saturated
    assert w.plan.serving.ttft_s is None
    assert w.times.requests_per_s < 10_000
    assert any("queue without end" in x for x in w.plan.warnings)
    assert w.times.start_s == 0  # nobody starts at once with others


def test_what_queues_without_end_is_told_with_the_rate_that_does_not():
    w = times(workload=load(concurrency=None, requests_per_s=10_000.0))
    (told,) = (x for x in w.plan.warnings if "queue without end" in x)
    most = held_per_s(w.timing.clock, w.load)
    assert f"up to {most:.3g} requests a second do not" in told
    for share, saturated in ((0.98, False), (1.03, True)):
        at = times(workload=load(concurrency=None, requests_per_s=share * most))
        assert at.times.saturated is saturated
    made = serve(w, of_workload(replace(w.plan.scenario.workload, requests=50)))
    assert told in made.warnings


def test_a_prompt_computed_in_more_chunks_takes_longer():
    whole, cut = (
        times(engine_args={"max_num_batched_tokens": n}, workload=load(input_tokens=8192)).times
        for n in (8192, 512)
    )
    assert whole.own_s < cut.own_s


def test_sglang_waits_as_long_as_its_flag_says():
    """It takes in requests every so many steps, and a prompt waits for the others of them."""

    def waited(**args):
        w = asked(
            "llama-3-70b", "H100-SXM", engine="sglang", tp=8, engine_args=args, workload=load()
        )
        return w.times.front_end_s, w.times.tpot_s, w.plan.warnings

    plain, step, told = waited(scheduler_recv_interval=1)
    slow, _, _ = waited(scheduler_recv_interval=30)
    published, _, warned = waited()
    # From the middle of the others, to nearly all of them for those who come as a step ends.
    assert 0.5 * 29 * step < slow - plain < 29 * step
    assert plain < published / 3
    assert any("scheduler_recv_interval" in w for w in warned)
    assert not any("scheduler_recv_interval" in w for w in told)


@pytest.mark.parametrize("given", [0, -1, "often", 1.5])
def test_an_intake_that_is_no_number_of_steps_is_refused(given):
    with pytest.raises(KvroomError) as e:
        asked(
            "llama-3-8b",
            "H100-SXM",
            engine="sglang",
            engine_args={engine_of("sglang").intake_flag: given},
        )
    assert e.value.field == "engine_args.scheduler_recv_interval"


def test_requests_longer_than_any_may_be_are_told():
    def told(tokens):
        warnings = times(workload=load(), context_tokens=tokens).plan.warnings
        return any("a request of the workload comes to" in w for w in warnings)

    # Lengths told by their mean, 1,536 together, are spread to 1.2 of it, or less where that is too long.
    assert told(1535)
    assert not told(1700)
    assert not told(1844)


def test_without_arithmetic_there_are_no_times():
    plan = asked("llama-3-8b", "80GB", context_tokens=4096, workload=load()).plan
    assert any("flops_per_s" in w for w in plan.warnings)
    assert plan.step.seconds is None
    assert plan.serving.tpot_s is None


def test_price_of_a_token_follows_from_the_rate():
    plan = times().plan
    rate = plan.serving.output_tokens_per_s
    assert plan.cost.usd_per_million_output_tokens == pytest.approx(
        plan.cost.usd_per_hour / 3600 / rate * 1e6
    )
    assert plan.cost.usd_per_million_input_tokens == pytest.approx(
        plan.cost.usd_per_million_output_tokens / 2
    )
    assert plan.cost.usd_per_user_hour == pytest.approx(plan.cost.usd_per_hour / 16)
    low, usual, high = (
        plan.cost.joules_per_output_token_low,
        plan.cost.joules_per_output_token,
        plan.cost.joules_per_output_token_high,
    )
    assert low < usual < high
    assert usual < 8 * 700 / rate  # no card draws more than its limit


@pytest.mark.parametrize(
    "load_of",
    [
        lambda n: load(concurrency=16 * n),
        lambda n: load(concurrency=16 * n, static=True),
        lambda n: load(concurrency=None, requests_per_s=2.0 * n),
        lambda n: load(concurrency=500 * n, input_tokens=8192),  # more than have room
    ],
    ids=["loop", "batch", "arrivals", "full"],
)
def test_replicas_share_the_load(load_of):
    one, three = (times(tp=4, replicas=n, workload=load_of(n)) for n in (1, 3))
    a, b = one.plan.serving, three.plan.serving
    assert b.tpot_s == pytest.approx(a.tpot_s, rel=1e-4)
    assert b.ttft_s == pytest.approx(a.ttft_s, rel=1e-3)
    assert b.output_tokens_per_s == pytest.approx(3 * a.output_tokens_per_s, rel=1e-3)
    assert three.times.decoding == pytest.approx(3 * one.times.decoding, rel=1e-3)
    assert three.plan.step.batch == one.plan.step.batch
    assert three.plan.verdict.fits == one.plan.verdict.fits
    dear, dearer = one.plan.cost, three.plan.cost
    assert dearer.usd_per_hour == 3 * dear.usd_per_hour
    for name in ("usd_per_million_output_tokens", "usd_per_user_hour", "joules_per_output_token"):
        assert getattr(dearer, name) == pytest.approx(getattr(dear, name), rel=1e-3)


def test_users_who_do_not_begin_at_once_meet_no_queue():
    together, spread = (times(workload=load(start=s)).plan.serving for s in (None, "spread"))
    assert together.ttft_start_s > 0
    assert spread.ttft_start_s == 0
    assert spread.ttft_engine_s == together.ttft_engine_s
    with pytest.raises(KvroomError) as e:
        times(workload=load(start="slowly"))
    assert e.value.field == "workload.start"


def test_bytes_a_token_fall_about_fiftyfold_from_one_to_64():
    """A batch shares the weights: at 2K the 70B's bytes a token fall by about fifty."""
    one, many = (
        asked("llama-3-70b", "80GB", gpu_count=4, concurrency=n, context_tokens=2048).plan.step
        for n in (1, 64)
    )
    each = [(s.bytes.weights + s.bytes.kv) / s.batch for s in (one, many)]
    assert 45 < each[0] / each[1] < 55


def test_who_waits_for_a_slot_is_met_by_nobody():
    keys = {"weight_dtype": "q4_k_m", "engine": "llama.cpp", "context_tokens": 16384}
    w = work(
        Scenario.from_dict(
            {
                "model": "llama-3.1-8b",
                "gpu": "RTX-4090",
                **keys,
                "engine_args": {"parallel": 1},
                "workload": load(concurrency=4, output_tokens=64, requests=40),
            }
        )
    )
    t = w.times
    assert t.prompts_a_step == 0
    assert t.tpot_s == t.step_s
    played = serve(w, of_workload(w.plan.scenario.workload)).to_dict()
    assert t.tpot_s == pytest.approx(played["tpot_s"]["mean"], rel=0.02)
    assert t.ttft_s == pytest.approx(played["ttft_s"]["mean"], rel=0.05)
