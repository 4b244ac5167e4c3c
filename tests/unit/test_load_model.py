"""The load model against simulations of the same load, past their first waves, and its own laws."""

import random
from dataclasses import replace
from itertools import pairwise
from math import exp, factorial

import pytest

import kvroom
from kvroom.latency.clock import PS_PER_S, ExpertReads, Reach, StepClock
from kvroom.latency.load import SPREAD, Length, Load, LoadModel, as_kept, lengths_of
from kvroom.scenario.scenario import Scenario
from kvroom.workloads.synthetic import of_workload, parse
from support import asked

VARIED = {
    "input": "lognormal:mean=1000:sigma=0.7:min=16:max=6000",
    "output": "lognormal:mean=200:sigma=0.6:min=4:max=1000",
}


def both(workload, gpu="H100-SXM", model="llama-3-8b", **keys):
    """The serving times of a plan and the figures of a simulation of the same question."""
    keys = {"context_tokens": 8192, **keys}
    made = kvroom.plan(model, gpu, workload=workload, **keys).serving
    requests = {"requests": max(300, 25 * workload.get("concurrency", 12))}
    seen = kvroom.simulate(model, gpu, workload=workload | requests, seed=3, **keys).figures
    return made, seen


def agree(made, seen, tpot, ttft):
    assert made.tpot_s == pytest.approx(seen["tpot_s"]["mean"], rel=tpot)
    assert made.ttft_engine_s == pytest.approx(seen["ttft_engine_s"]["mean"], rel=ttft)
    assert made.tpot_low_s <= seen["tpot_s"]["mean"] <= made.tpot_high_s
    assert made.ttft_low_s <= seen["ttft_s"]["mean"] <= made.ttft_high_s


@pytest.mark.parametrize("gpu", ["H100-SXM", "A100-SXM-80"])
@pytest.mark.parametrize("tokens", [500, 1500, 6000])
@pytest.mark.parametrize("users", [1, 8, 24])
def test_a_closed_loop(gpu, tokens, users):
    workload = {"input_tokens": tokens, "output_tokens": 200, "concurrency": users}
    agree(*both(workload, gpu), 0.05, 0.15)


def test_replicas_share_their_users():
    workload = {"input_tokens": 1000, "output_tokens": 200, "concurrency": 48}
    agree(*both(workload, replicas=3), 0.05, 0.15)


@pytest.mark.parametrize(
    "load",
    [{"concurrency": 8}, {"concurrency": 32}, {"requests_per_s": 2.0}, {"requests_per_s": 6.0}],
    ids=str,
)
def test_requests_of_many_lengths(load):
    agree(*both({**VARIED, **load}), 0.1, 0.3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "gpu", "keys"),
    [
        ("qwen3-30b-a3b", "H100-SXM", {}),
        ("gemma-3-27b", "H100-SXM", {"gpu_count": 2, "tp": 2}),
        ("llama-3-8b", "L4", {}),
        ("llama-3-8b", "A100-SXM-80", {"gpu_count": 2, "pp": 2, "tp": 1}),
    ],
    ids=["experts", "windows", "full", "stages"],
)
def test_other_models_and_layouts(model, gpu, keys):
    workload = {"input_tokens": 1000, "output_tokens": 200, "concurrency": 48}
    agree(*both(workload, gpu, model, **keys), 0.06, 0.25)


def test_turns_find_what_was_said_cached_and_wait_for_their_user():
    # Users who all think equally long would keep step with one another.
    talk = {"input": "uniform:400-600", "output": "uniform:80-120", "turns": 4}
    chat = {**talk, "think": "uniform:2s-18s", "arrivals": "closed:40"}
    made, seen = both({**chat, "concurrency": 40}, model="llama-3.1-8b", context_tokens=16384)
    agree(made, seen, 0.05, 0.15)
    alone = kvroom.plan(
        "llama-3-8b", "H100-SXM", workload={"input": 500, "output": 100, "arrivals": "closed:40"}
    )
    assert made.tpot_s < alone.serving.tpot_s  # who thinks does not decode


CHAT = {"input": "uniform:500-2000", "output": 200, "turns": 4, "think": "uniform:2s-20s"}


@pytest.mark.parametrize(
    ("users", "keys"),
    [
        (96, {"model": "qwen3-30b-a3b", "context_tokens": 16384}),
        (12, {"gpu": "L4", "engine": "llama.cpp", "context_tokens": 16384}),
        (96, {"model": "llama-3.1-8b", "engine": "sglang", "gpu": "L40S", "context_tokens": 16384}),
    ],
)
def test_turns_whose_cache_went_to_others_are_computed_anew(users, keys):
    workload = {**CHAT, "arrivals": f"closed:{users}", "requests": 14 * users}
    keys = {"model": "llama-3-8b", "gpu": "H100-SXM", **keys}
    made = kvroom.plan(**keys, workload=workload)
    seen = kvroom.simulate(**keys, workload=workload).figures
    assert seen["prefix_hit_ratio"] < 0.3
    assert made.serving.tpot_s == pytest.approx(seen["tpot_s"]["mean"], rel=0.2)
    assert made.serving.ttft_s == pytest.approx(seen["ttft_s"]["mean"], rel=0.25)


def test_a_conversation_is_found_as_long_as_it_stays():
    lengths = tuple(
        Length(cached=1000, computed=100, output=50, own=1000, away_s=away, blocks=70, gone_s=away)
        for away in (1.0, 5.0, 25.0)
    )
    load = Load(lengths=lengths, users=64, think_s=10, running_blocks=70)

    def times_of(found, near):
        return replace(MODEL, load=replace(load, lengths=found)).closed_loop(64)

    def ttft_s(blocks):
        kept = replace(load, cache_blocks=blocks)
        return as_kept(kept, times_of(lengths, None), times_of).ttft_engine_s

    ttft = [ttft_s(blocks) for blocks in (1e9, 3000, 1500, 70)]
    assert ttft == sorted(ttft)
    assert ttft[0] < ttft[1] < ttft[-1]
    lost = tuple(replace(x, cached=0, computed=1100, own=0) for x in lengths)
    assert ttft[-1] == pytest.approx(times_of(lost, None).ttft_engine_s)


def test_one_step_at_a_time_waits_less():
    workload = {"input_tokens": 1000, "output_tokens": 200, "concurrency": 24}
    ahead, _ = both(workload)
    made, seen = both(workload, engine_args={"async_scheduling": False})
    assert made.ttft_engine_s < ahead.ttft_engine_s
    assert made.ttft_engine_s == pytest.approx(seen["ttft_engine_s"]["mean"], rel=0.15)


CLOCK = StepClock(step_ps=10**9, request_ps=10**7, token_ps=10**6, prompt_ps=10**8, reaches=())
"""A step takes a millisecond, a thousand prompt tokens as much again."""
MODEL = LoadModel(clock=CLOCK, load=Load(lengths=lengths_of(1000, 100, SPREAD)))


def test_one_user_meets_nobody():
    t = MODEL.closed_loop(1)
    assert t.tpot_s == pytest.approx(MODEL.step_s(1))
    assert t.ttft_engine_s == pytest.approx(MODEL.step_s(1, 1))


def test_littles_law():
    for users in (1, 7, 60, 500):
        t = MODEL.closed_loop(users)
        assert users == pytest.approx(
            t.requests_per_s * (t.ttft_engine_s + 99 * t.tpot_s), rel=1e-3
        )


def test_more_users_never_wait_less():
    times = [MODEL.closed_loop(users) for users in (1, 2, 5, 12, 40, 150, 700)]
    for a, b in pairwise(times):
        assert b.tpot_s >= a.tpot_s
        assert b.ttft_engine_s >= a.ttft_engine_s * (1 - 1e-6)
        assert b.requests_per_s >= a.requests_per_s * (1 - 1e-6)


def test_users_without_room_wait_whole_rounds():
    full = replace(MODEL, load=replace(MODEL.load, slots=16))
    t = full.closed_loop(40)
    stay = t.own_s + t.queued_s + 99 * t.tpot_s
    assert t.no_room_s == pytest.approx((40 / 16 - 1) * stay, rel=1e-3)
    assert t.requests_per_s == pytest.approx(16 / stay, rel=1e-3)


def test_room_that_varies_keeps_somebody_waiting_before_it_is_full():
    edge = replace(MODEL, load=replace(MODEL.load, slots=40, slots_deviation=3.0))
    assert edge.closed_loop(40).no_room_s > 0
    assert edge.closed_loop(10).no_room_s == pytest.approx(0, abs=1e-6)


def test_a_start_at_once_adds_its_share_of_the_queue():
    together = replace(MODEL, start=0.1)
    t = together.closed_loop(21)
    assert t.start_s == pytest.approx(0.1 * 20 / 2 * t.prompt_s, rel=0.05)
    spread = replace(together, load=replace(MODEL.load, spread=True))
    assert spread.closed_loop(21).start_s == 0
    assert together.open_arrivals(5.0).start_s == 0


def test_the_front_end_is_told_apart():
    t = replace(MODEL, first_s=0.02, intake_steps=2.0).closed_loop(8)
    assert t.front_end_s == pytest.approx(0.02 + 2 * t.tpot_s)
    assert t.ttft_s == pytest.approx(t.ttft_engine_s + t.front_end_s)


def test_cached_tokens_are_read_and_not_computed():
    load = Load(lengths=(Length(cached=900, computed=100, output=100),))
    cached = replace(MODEL, load=load).closed_loop(8)
    assert cached.ttft_engine_s < MODEL.closed_loop(8).ttft_engine_s
    reach = Reach(context_ps=1000, pairs_ps=0)
    looks = replace(MODEL, clock=replace(CLOCK, reaches=(reach,)), load=load)
    assert looks.step_s(3) * PS_PER_S == pytest.approx(10**9 + 3 * (10**7 + 1000 * 1050))


def test_experts_that_few_steps_touch_are_no_average():
    """A step with a prompt reads all experts: the mean step is no step with a part of a prompt."""
    experts = (ExpertReads(all_ps=1e9, decay=0.01),)
    few = replace(MODEL, clock=replace(CLOCK, experts=experts))
    assert few.mean_step_s(2, 0.05) < few.step_s(2, 0.05)


def test_more_arrivals_than_it_serves_have_no_steady_state():
    t = MODEL.open_arrivals(1000.0)
    assert t.saturated
    assert t.ttft_s is None
    assert t.requests_per_s < 1000


def test_prompts_of_sglang_are_computed_in_steps_of_their_own():
    workload = {"input_tokens": 1000, "output_tokens": 100, "concurrency": 48}
    made, seen = both(workload, engine="sglang", engine_args={"scheduler_recv_interval": 1})
    agree(made, seen, 0.05, 0.05)
    apart = replace(MODEL, load=replace(MODEL.load, apart=True))
    # A step of its own costs what any step does, however few prompts are in it.
    assert apart.closed_loop(8).tpot_s > MODEL.closed_loop(8).tpot_s
    assert apart.mean_step_s(8, 1e-9) == pytest.approx(MODEL.step_s(8))


@pytest.mark.parametrize("rate", [0.5, 2.0])
@pytest.mark.parametrize("model", ["qwen3-30b-a3b", "llama-3-8b"])
def test_who_decodes_sees_itself(model, rate):
    """Where few decode at once a step with one of them is no average one."""
    workload = {"input_tokens": 1000, "output_tokens": 100, "requests_per_s": rate, "requests": 600}
    agree(*both(workload, model=model), 0.07, 0.1)


def test_few_places_are_waited_for():
    """One place, served in equal times: M/D/1 again, ρ / (2·(1 − ρ)) services."""
    alike = replace(MODEL, load=Load(lengths=lengths_of(1, 400), slots=1))
    service = 400 * alike.step_s(1)
    t = alike.open_arrivals(0.5 / service)
    assert t.no_room_s == pytest.approx(0.5 * service, rel=0.02)
    wide = replace(alike, load=replace(alike.load, slots=400))
    assert wide.open_arrivals(0.5 / service).no_room_s == 0


@pytest.mark.parametrize(
    "tokens_in, tokens_out, users", [(1000, 200, 4), (1000, 200, 32), (4000, 100, 16)]
)
def test_answers_of_one_length_keep_users_in_step(tokens_in, tokens_out, users):
    """Their prompts come together: the plan says so and has the wait; its bands hold users who are spread."""
    workload = {"input": tokens_in, "output": tokens_out, "arrivals": f"closed:{users}"}
    keys = {"model": "llama-3-8b", "gpu": "H100-SXM", "context_tokens": 8192}
    told = kvroom.plan(**keys, workload=workload)
    seen = kvroom.simulate(**keys, workload=workload).figures
    assert any("keep the users in step" in w for w in told.warnings)
    assert told.serving.ttft_s == pytest.approx(seen["ttft_s"]["mean"], rel=0.05)
    assert told.serving.tpot_s == pytest.approx(seen["tpot_s"]["mean"], rel=0.03)
    low, high = (round(factor * tokens_out) for factor in (0.8, 1.2))
    spread = kvroom.plan(**keys, workload={**workload, "output": f"uniform:{low}-{high}"})
    assert not any("keep the users in step" in w for w in spread.warnings)
    assert told.serving.ttft_low_s <= spread.serving.ttft_low_s < told.serving.ttft_s
    assert spread.serving.tpot_high_s <= told.serving.tpot_high_s * 1.01


def test_groups_in_step_wait_for_the_group_before_and_meet_the_others():
    """Of four groups that fill a step each, scheduled one step ahead, the first meets three others and each
    of the rest two: the group that it waits behind is computed while it waits, not while it decodes."""
    lengths = lengths_of(1000, 400)
    load = replace(MODEL.load, lengths=lengths, chunk_tokens=1004, steps_ahead=1, in_step=True)
    model = replace(MODEL, load=replace(load, users=4))
    t = model.closed_loop(4)
    full = model.step_s(3, 1)
    assert t.own_s == pytest.approx(full)
    assert t.queued_s == pytest.approx(3 / 4 * full, rel=1e-3)
    assert t.prompts_a_step == pytest.approx((3 + 2 + 2 + 2) / 4 / 399, rel=1e-3)
    alone = replace(model, load=replace(model.load, chunk_tokens=8192)).closed_loop(4)
    assert (alone.queued_s, alone.prompts_a_step) == (0.0, 0.0)  # all four are one group
    few = replace(model, dp=16).closed_loop(4)
    assert few.own_s == pytest.approx(model.step_s(0, 1))  # however many replicas: a whole prompt


def workload_of(keys):
    return Scenario.from_dict({"model": "llama-3-8b", "gpu": "H100-SXM", "workload": keys}).workload


def test_lengths_of_which_only_the_mean_is_told_stay_within_the_longest():
    workload = {"input_tokens": 7000, "output_tokens": 1100, "concurrency": 4}
    keys = {"model": "llama-3-8b", "gpu": "H100-SXM", "context_tokens": 8192}
    seen = kvroom.simulate(**keys, workload=workload).figures
    assert seen["requests"]["dropped"] == 0
    told = kvroom.plan(**keys, workload=workload)
    assert told.serving.ttft_s == pytest.approx(seen["ttft_s"]["mean"], rel=0.05)
    assert any("drawn from 0.99 to 1.01" in w for w in seen["warnings"])
    source = of_workload(workload_of(workload))
    for limit in range(8100, 10000, 300):
        drawn = source.within(limit)
        assert drawn.input.mean + drawn.output.mean == 8100
        assert max(r.input_tokens + r.output_tokens for r in drawn) <= limit
    assert source.within(9720) == source
    told_one = of_workload(workload_of({**workload, "input": "uniform:5600-8400"}))
    assert told_one.within(8192).input == told_one.input  # what is asked is not changed


def test_a_closed_loop_runs_several_sessions_of_each_user():
    lengths = {"input": 500, "output": 100}
    few, many = (parse({**lengths, "arrivals": f"closed:{users}"}).requests for users in (8, 500))
    assert (few, many) == (1000, 3000)
    assert parse({**lengths, "arrivals": "closed:500", "requests": 40}).requests == 40
    assert parse({**lengths, "arrivals": "poisson:500/s"}).requests == 1000


def test_host_memory_keeps_conversations_too():
    workload = {**CHAT, "turns": 6, "think": "uniform:10s-60s", "arrivals": "closed:200"}
    keys = {"model": "llama-3.1-8b", "gpu": "H100-SXM", "context_tokens": 16384}
    bare = kvroom.plan(**keys, workload=workload).serving
    tiers = [{"kind": "host", "bytes": "256GiB"}]
    below = kvroom.plan(**keys, workload=workload, tiers=tiers).serving
    little = kvroom.plan(**keys, workload=workload, tiers=[{"kind": "host", "bytes": "1GiB"}])
    seen = kvroom.simulate(**keys, workload=workload, tiers=tiers).figures
    assert below.tpot_s < little.serving.tpot_s <= bare.tpot_s * 1.001
    assert below.tpot_low_s <= seen["tpot_s"]["mean"] <= below.tpot_high_s
    assert below.ttft_low_s <= seen["ttft_s"]["mean"] <= below.ttft_high_s
    assert below.ttft_s == pytest.approx(seen["ttft_s"]["mean"], rel=0.1)
    assert below.ttft_s < bare.ttft_s


def test_what_only_a_tier_has_is_fetched_where_that_is_quicker():
    """One conversation: its first token waits for the bytes of what it left over the link's rate."""
    workload = {"input": 4000, "output": 100, "turns": 4, "think": "60s", "arrivals": "closed:60"}
    keys = {
        "model": "llama-3.1-70b",
        "gpu": "H100-SXM",
        "tp": 4,
        "engine": "vllm",
        "workload": workload,
    }

    def with_tier(rate):
        tier = {"kind": "host", "bytes": "4TiB", **({"bytes_per_s": rate} if rate else {})}
        return asked(**keys, tiers=[tier])

    fast, slow, never = with_tier(10**12), with_tier(10**11), with_tier(10**9)
    at = [w.load.below[0].token_s for w in (fast, slow, never)]
    assert at[1] == pytest.approx(10 * at[0], rel=1e-3)
    assert at[0] * 10**12 == pytest.approx(
        327_680, rel=0.01
    )  # 80 layers, 8 heads of 128, 2 of 2 bytes
    ttft = [w.times.ttft_engine_s for w in (fast, slow, never)]
    bare = asked(**keys).times.ttft_engine_s
    assert ttft[0] < ttft[1] < ttft[2]
    assert ttft[2] == pytest.approx(bare, rel=0.02)  # nobody fetches what is computed sooner


def _ranks(count, **more):
    """A model of ``count`` ranks that share experts: a token costs 3 of its own and 1 at those."""
    experts = (ExpertReads(all_ps=4_000, decay=0.05),)
    clock = StepClock(
        step_ps=2_000, request_ps=50, token_ps=4, prompt_ps=10, ranks=count, experts=experts,
        shared_ps=1 if count > 1 else 0, reaches=(Reach(context_ps=0, pairs_ps=0),),
    )  # fmt: skip
    load = Load(lengths=(Length(computed=500, output=200),), users=8 * count, **more)
    return LoadModel(clock=clock, load=load, dp=count)


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("own", [0, 1])
@pytest.mark.parametrize(("prompts", "elsewhere"), [(0.1, 0.1), (0.0, 0.2), (1.5, 2.0)])
def test_the_mean_step_of_ranks_is_that_of_drawn_prompts(prompts, elsewhere, own, apart):
    model, draws, many = _ranks(4, apart=apart), random.Random(1), 4000
    clock = model.clock

    def work(prompts):
        decoding = [] if apart and prompts else [(100, 1)] * 6
        return clock, [*decoding, *[(0, 500)] * prompts]

    def poisson(mean):
        chance, count = draws.random(), 0
        while (chance := chance - exp(-mean) * mean**count / factorial(count)) > 0:
            count += 1
        return count

    spent = 0
    for _ in range(many):
        begun = [own + poisson(prompts), *[poisson(elsewhere) for _ in range(3)]]
        spent += clock.joint_ps([work(n) for n in begun])
        if apart and begun[0] and not own:  # its decode step comes before
            spent += clock.ps(work(0)[1])
    told = model.mean_step_s(6, prompts, float(own), elsewhere) * PS_PER_S
    assert told == pytest.approx(spent / many, rel=0.06)


def test_the_more_ranks_the_longer_they_wait_for_one_another():
    steps = [_ranks(count).mean_step_s(6, 0.2) for count in (1, 2, 4, 8)]
    assert steps[1] < steps[2] < steps[3]
    alone = _ranks(8).mean_step_s(6, 0.0, 1.0, 0.0)
    assert alone < _ranks(8).mean_step_s(6, 0.0, 1.0, 1.0)


def test_arrivals_whose_prompts_share_experts_are_served():
    """One prompt alone reads the experts of all ranks: few at once cannot keep up, as many as come can."""
    keys = {"dp": 8, "ep": 8, "tp": 1, "context_tokens": 8192}
    load = {"input_tokens": 2000, "output_tokens": 200}
    four = kvroom.plan("deepseek-v3", "H200:8", workload={**load, "requests_per_s": 4.0}, **keys)
    assert four.serving.ttft_s is not None
    assert four.serving.output_tokens_per_s == pytest.approx(800)
    many = kvroom.plan("deepseek-v3", "H200:8", workload={**load, "requests_per_s": 9.0}, **keys)
    assert many.serving.ttft_s is None
