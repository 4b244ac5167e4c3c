"""Waits, bands, tiers, hand-overs and money, against the closed forms that they are said to follow."""

from dataclasses import replace
from math import exp, hypot, log, sqrt

import pytest

from kvroom.engines.tensorrt_llm.answer import RankMemory
from kvroom.engines.vllm.memory import Budget
from kvroom.hardware import find
from kvroom.hardware.node import Machine
from kvroom.latency.clock import PAIRS, PS_PER_S, ExpertReads, Reach, StepClock, step_clock
from kvroom.latency.disaggregation import adapters_bytes_per_s, occupied_s
from kvroom.latency.estimate import Timing
from kvroom.latency.load import Load, LoadModel, error_ratio, lengths_of, served
from kvroom.latency.own_points import drawn_to
from kvroom.latency.power import draw
from kvroom.latency.transfer import cache_bytes, transfer_s
from support import ask, asked

LOAD = Load(lengths=lengths_of(1000, 100), users=16)


def clock(**keys):
    made = asked("llama-3-8b", "H100-SXM", engine="vllm", **keys).timing.clock
    return replace(made, k=replace(made.k, wait=0.0, burst=0.0))


def at_half_load(times_at):
    """The times at the rate at which prompts take half of the steps' time."""
    low, high = 0.0, 1000.0
    for _ in range(60):
        rate = (low + high) / 2
        t = times_at(rate)
        busy = 1.0 if t is None or t.ttft_s is None else rate * t.prompt_s
        low, high = (rate, high) if busy < 0.5 else (low, rate)
    return t


def test_open_arrivals_wait_as_for_one_server_of_equal_services():
    """M/D/1: ρ / (2·(1 − ρ)) services, half of one at half load (M/M/1 would be a whole one), the rest of
    the service under way in it."""
    t = at_half_load(MODEL.open_arrivals)
    assert t.queued_s == pytest.approx(0.5 * t.prompt_s, rel=0.02)
    assert t.decoding == pytest.approx(t.requests_per_s * 9 * t.tpot_s, rel=1e-3)  # Little


def test_a_loops_user_meets_the_prompts_of_all_others_but_not_its_own():
    """The arrival theorem: the load of the loop without it. A request decodes in a step for each token but
    the first, so by Little's law as many prompts begin in one."""
    t = served(clock(), LOAD)
    assert t.prompts_a_step == pytest.approx(15 / 16 * t.decoding / 99, rel=1e-3)


def test_a_static_batch_decodes_with_half_of_its_answers_written():
    c = clock()
    t = served(c, replace(LOAD, static=True))
    assert t.step_s == c.decode_s(16, 1050)
    prompts = [a.times(16) for a in c.prefilling(1000)]
    own = c.prefill(16_000, prompts, chunks=2, prompts=16).seconds
    assert t.ttft_s == pytest.approx(c.k.first_s + own)


MODEL = LoadModel(
    clock=StepClock(step_ps=10**6, request_ps=0, token_ps=10**6, prompt_ps=0, reaches=()),
    load=Load(lengths=lengths_of(1000, 10), chunk_tokens=1000),
)
"""A prompt takes a millisecond, a step next to nothing beside it."""


def test_who_decodes_looks_back_on_half_of_its_answer():
    reach = Reach(context_ps=1000, pairs_ps=0)
    load = replace(MODEL.load, lengths=lengths_of(1000, 100))
    model = replace(MODEL, clock=replace(MODEL.clock, reaches=(reach,)), load=load)
    assert model.step_s(3) * PS_PER_S == pytest.approx(10**6 + 3 * 1000 * 1050)


def test_drafts_end_answers_in_fewer_steps():
    load = replace(MODEL.load, lengths=lengths_of(100, 100))
    plain, drafted = (
        replace(MODEL, clock=replace(MODEL.clock, tokens_a_step=n), load=load) for n in (1.0, 2.5)
    )
    a, b = plain.closed_loop(8), drafted.closed_loop(8)
    # The fixed point settles to one in 10,000 of the users.
    assert a.prompts_a_step == pytest.approx(7 / 8 * a.decoding / 99, rel=1e-4)
    assert b.prompts_a_step == pytest.approx(7 / 8 * b.decoding * 2.5 / 99, rel=1e-4)


def test_reach_counts_every_pair():
    for limit in (None, 7):
        reach = Reach(context_ps=1, pairs_ps=PAIRS, tokens=limit)
        for start, tokens in ((0, 5), (3, 10), (20, 4)):
            back = (start + i + 1 for i in range(tokens))
            assert reach.pairs(start, tokens) == sum(
                n if limit is None else min(n, 7) for n in back
            )


def test_experts_are_met_by_chance():
    e = ExpertReads(all_ps=1e6, decay=0.01, each=3)
    assert e.ps(10, 20) == pytest.approx(1e6 * (1 - exp(-0.01 * 50)))


def test_further_stages_take_a_prompt_on():
    reach = Reach(context_ps=0, pairs_ps=2 * PAIRS)
    two = replace(MODEL.clock, stages=3, reaches=(reach,))
    assert two.passage_ps(10) == 2 * (10 * 10**6 + 2 * 55)


def timing(widths, levels):
    made = asked("llama-3-8b", "H100-SXM", engine="vllm").timing
    bands = {f"{metric} dense": widths for metric in ("step", "tpot", "ttft", "whole")}
    table = {"measured": {}, "bands": bands, "own_bands": {}}
    return replace(made, levels=levels, table=table)


def test_bands_of_what_is_not_known_add_up_as_squares():
    made = timing({"known": 0.3, "gpu": 0.4, "model": 1.2}, ("gpu=x", "model=y"))
    span = made.span("step", 2.0)
    wide = hypot(0.3, 0.4, 1.2)
    assert wide == pytest.approx(1.3)
    assert (span.low, span.high) == pytest.approx((2 * exp(-wide), 2 * exp(wide)))


def test_an_assumed_acceptance_widens_tokens_by_squares_too():
    keys = {"speculation": {"method": "ngram", "num_speculative_tokens": 3}}
    made = asked("llama-3-8b", "H100-SXM", engine="vllm", **keys).timing
    made = replace(made, own_bands={"tpot": 0.3, "step": 0.3})
    spread = made.clock.drafting.spread
    own = log(error_ratio("tpot"))  # of the closed form, in any time under load
    assert made.span("tpot", 1.0).high == pytest.approx(exp(hypot(0.3, own, spread)))
    assert made.span("step", 1.0).high == pytest.approx(exp(0.3))


def points(*logs):
    """Measurements of one load, each so far (logarithm) from what ``timing`` says of it."""
    said = timing({"known": 0.3}, ()).clock.decode_s(1, 1000)
    return [{"step_s": said * exp(off), "context_tokens": 1000, "concurrency": 1} for off in logs]


def test_own_points_narrow_the_band_and_scatter_widens_it():
    made = timing({"known": 0.3}, ())
    # A machine lies 0.5 from the calibration at any load and 0.4 more at this one, a point 0.1 from both.
    drawn: Timing = drawn_to(made, points(0.4))
    assert drawn.clock.k.scale / made.clock.k.scale == pytest.approx(
        exp(0.4 * 0.41 / 0.42), rel=0.01
    )
    alike = drawn_to(made, points(*[0.4] * 9)).own_bands["step"]
    apart = drawn_to(made, points(*[0.3, 0.4, 0.5] * 3)).own_bands["step"]
    assert alike < apart < 0.3


def test_own_points_that_tell_nothing_of_one_another_move_nothing():
    made = timing({"known": 0.3}, ())
    drawn = drawn_to(made, points(0.4, -0.4))
    assert drawn.clock.k.scale == made.clock.k.scale
    assert drawn.own_bands["step"] == pytest.approx(hypot(0.3 / sqrt(3), 0.4))


def test_one_point_far_from_the_others_hardly_moves_what_they_say():
    made = timing({"known": 0.3}, ())
    drawn = drawn_to(made, points(*[0.2] * 9, 2.0))
    assert log(drawn.clock.k.scale / made.clock.k.scale) == pytest.approx(0.2, abs=0.03)


BANDS = {"activations": (1000, 700, 1300), "runtime": (500, 100, 900)}


def test_overheads_of_a_vllm_are_off_independently():
    budget = Budget(10_000, 9_000, (3_000,) * 3, (), {**BANDS, "graphs": (9, 9, 9)}, False, 0)
    assert budget.cache_bytes() == 9_000 - 3_000 - 1_500
    assert budget.cache_bytes(-1) == 4_500 - 500  # √(300² + 400²)
    assert budget.cache_bytes(1) == 4_500 + 500


def test_overheads_of_a_tensorrt_llm_are_off_independently():
    budget = RankMemory(10_000, 0, 3_000, (), BANDS, 1.0)
    assert budget.free() == 5_500
    assert budget.free(1) == 5_500 + 500
    assert budget.free(-1) == 5_500 - 500


def test_the_slowest_part_sets_a_transfers_time():
    card = find("H100-SXM")
    machine = Machine.standard(card, 8)
    host, nvme, network = (machine.tier(n) for n in ("host", "nvme", "network"))
    link = card.host_link.bytes_per_s
    each = 10**10
    assert transfer_s(machine, "host", each) == pytest.approx(
        (host.latency_s or 0) + max(8 * each / host.bytes_per_s, each / link)
    )
    assert transfer_s(machine, "nvme", each) == pytest.approx(
        (nvme.latency_s or 0) + 8 * each / nvme.bytes_per_s
    )
    slowest = max(each / network.bytes_per_s, 8 * each / host.bytes_per_s, each / link)
    assert transfer_s(machine, "network", each) == pytest.approx((network.latency_s or 0) + slowest)


def test_a_request_is_fetched_to_the_card_that_stores_most_of_it():
    d = asked("llama-3-8b", "H100-SXM", pp=2, context_tokens=8192).deployment
    whole = asked("llama-3-8b", "H100-SXM").deployment
    assert 2 * cache_bytes(d, 1000) == cache_bytes(whole, 1000) == 131_072 * 1000


def test_layers_cross_while_the_next_are_computed():
    assert occupied_s(8.0, 5.0, 4) == 3.0  # what computing did not hide
    assert occupied_s(8.0, 100.0, 4) == 2.0  # the last layer crosses when it is there
    assert occupied_s(8.0, 0.0, 1) == 8.0


def test_the_pool_with_fewer_cards_has_fewer_adapters():
    one, four = (asked("llama-3-8b", "H100-SXM", tp=n).deployment for n in (1, 4))
    alone = adapters_bytes_per_s(one)
    assert adapters_bytes_per_s(four) == 4 * alone
    assert adapters_bytes_per_s(one, four) == alone


def test_money_and_energy_of_a_step():
    card = find("H100-SXM")
    plan = ask("llama-3-8b", "H100-SXM", engine="vllm", tp=2, concurrency=16, context_tokens=4096)
    rate = 16 / plan.step.seconds
    assert plan.step.tokens_per_s == pytest.approx(rate)
    assert plan.cost.usd_per_hour == pytest.approx(2 * card.usd_per_hour)
    assert plan.cost.usd_per_million_output_tokens == pytest.approx(
        2 * card.usd_per_hour / 3600 * 1e6 / rate
    )
    joules = plan.cost
    assert 0.2 < joules.joules_per_output_token / (2 * card.tdp_w / rate) <= 1
    assert joules.joules_per_output_token_low < joules.joules_per_output_token
    assert joules.joules_per_output_token < joules.joules_per_output_token_high


def test_a_draw_is_the_sum_of_what_a_step_spends_its_time_on():
    table = {"power": {"idle": 0.2, "memory": 0.5, "compute": 1.0, "links": 0.4, "band": 0.3}}
    drawn = draw((0.4, 0.2, 0.1), table)
    assert drawn.share == pytest.approx(0.2 + 0.5 * 0.4 + 0.2 + 0.4 * 0.1)
    assert drawn.low == pytest.approx(drawn.share * exp(-0.3))
    assert draw((0.1, 0.9, 0.0), table).share == 1.0
    low, _, high = drawn.widened(1.0, exp(0.4), exp(0.8))
    assert low == pytest.approx(drawn.share * exp(-0.5))
    assert high == pytest.approx(drawn.share * exp(hypot(log(drawn.high / drawn.share), 0.4)))


def test_as_many_run_at_once_as_the_engine_is_expected_to_hold():
    load = {"input_tokens": 1000, "output_tokens": 400, "concurrency": 4}
    w = asked("llama-3-8b", "H100-SXM", engine="vllm", workload=load)
    assert w.load.slots == w.plan.capacity.shared.requests


def test_a_batch_without_room_runs_as_several():
    load = replace(LOAD, users=64, static=True, slots=16)
    whole, part = served(clock(), load), served(clock(), replace(load, users=16))
    assert whole.tpot_s == part.tpot_s
    one_s = part.own_s + 99 * part.tpot_s
    assert whole.ttft_s == pytest.approx(part.ttft_s + 3 * one_s)
    assert whole.requests_per_s == pytest.approx(part.requests_per_s, rel=0.02)


def test_chunks_are_read_half_full_on_average():
    # Llama 4 Scout's config.json: chunks of 8,192 tokens beside full layers.
    clock = step_clock(asked("llama-4-scout", "H100-SXM", tp=8, engine="vllm").timing.clock)
    assert [r.tokens for r in clock.reaches] == [None, 4096]
