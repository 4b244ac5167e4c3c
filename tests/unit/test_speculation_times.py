"""Speculation and context ranks in time: what a step verifies, what drafting takes, when it pays."""

from __future__ import annotations

from typing import Any

import pytest

from kvroom.errors import KvroomError
from kvroom.latency.drafting import expected_tokens
from kvroom.latency.step_time import Terms
from kvroom.planner.explain import explain
from kvroom.planner.plan import Workings
from support import ask, asked, evaluated

EAGLE = {"method": "eagle3", "num_speculative_tokens": 3, "acceptance_rate": 0.75}
NGRAM = {"method": "ngram", "num_speculative_tokens": 3, "acceptance_rate": 0.4}
DRAFT = {"method": "draft", "model": "llama-3-8b", "num_speculative_tokens": 4}


def dense(batch: int = 8, **keys: Any) -> Workings:
    return asked("llama-3-70b", "H100-SXM", tp=4, concurrency=batch, context_tokens=2000, **keys)


def terms(w: Workings) -> Terms:
    assert w.timing is not None
    return w.timing.step(w.plan.step.batch, w.deployment.context_tokens)[0]


@pytest.mark.parametrize(("drafted", "rate"), [(1, 0.85), (3, 0.75), (7, 0.4), (2, 0.0)])
def test_expected_tokens_are_the_geometric_sum(drafted, rate):
    assert expected_tokens(drafted, rate) == pytest.approx((1 - rate ** (drafted + 1)) / (1 - rate))


def test_all_drafts_kept_are_all_tokens():
    assert expected_tokens(5, 1.0) == 6


def test_a_step_verifies_all_drafts_on_one_reading():
    """Four tokens a request: four times the arithmetic, which hides behind weights and cache read once."""
    plain, wide = terms(dense()), terms(dense(speculation=NGRAM))
    assert wide.weights_s == plain.weights_s
    assert wide.cache_s == plain.cache_s
    assert 4 * plain.compute_s < wide.compute_s < 16 * plain.compute_s
    assert wide.draft_s == 0


def test_a_draft_runs_once_a_token():
    two, four = (
        terms(dense(speculation={**DRAFT, "num_speculative_tokens": n})).draft_s for n in (2, 4)
    )
    assert four == pytest.approx(2 * two)
    # Each pass reads a model of eight thousand million parameters beside seventy.
    plain = terms(dense())
    assert 4 * 8 / 70 * plain.weights_s < four < plain.seconds


def test_a_draft_of_a_few_layers_costs_little():
    eagle, draft = terms(dense(speculation=EAGLE)), terms(dense(speculation=DRAFT))
    assert 0 < eagle.draft_s < 0.2 * draft.draft_s


def test_more_tokens_touch_more_experts():
    keys = {"tp": 8, "gpu": "H200-SXM", "concurrency": 4, "context_tokens": 2000}
    plain = terms(asked("deepseek-v3", **keys))
    mtp = terms(asked("deepseek-v3", **keys, speculation={"method": "mtp"}))
    assert mtp.weights_s > 1.3 * plain.weights_s


def gain(batch: int, speculation: dict[str, Any]) -> float:
    with_it = dense(batch, speculation=speculation).plan.step.tokens_per_s
    without = dense(batch).plan.step.tokens_per_s
    assert with_it is not None and without is not None
    return with_it / without


@pytest.mark.parametrize("speculation", [EAGLE, NGRAM, DRAFT])
def test_speculation_pays_for_few_and_less_for_many(speculation):
    gains = [gain(batch, speculation) for batch in (1, 16, 64, 256)]
    assert gains[0] > 1.2
    assert gains == sorted(gains, reverse=True)


def test_speculation_loses_where_steps_wait_for_arithmetic():
    """Four tokens are computed to keep 1.6 of them."""
    assert gain(256, NGRAM) < 1 < gain(16, NGRAM)


def test_nothing_kept_is_never_quicker():
    none = {**EAGLE, "acceptance_rate": 0}
    assert all(gain(batch, none) < 1 for batch in (1, 64))


def test_times_without_speculation_are_the_plain_clocks():
    w, plain = dense(speculation=EAGLE), dense()
    assert w.timing is not None
    assert w.timing.clock.plain.decode_s(8, 2000) == plain.plan.step.seconds


@pytest.mark.parametrize("load", [{"concurrency": 16}, {"requests_per_s": 1}, {"static": True}])
def test_a_token_under_load_takes_its_share_of_a_step(load):
    lengths = {"input_tokens": 1000, "output_tokens": 200}
    t = dense(speculation=EAGLE, workload=lengths | load).times
    assert t is not None and t.tokens_a_step == expected_tokens(3, 0.75)
    whole = t.step_s + t.prompts_a_step * t.prompt_s
    assert t.tpot_s == pytest.approx(whole / t.tokens_a_step, rel=1e-3)


def test_an_assumed_rate_is_told_and_widens_the_band():
    load = {"input_tokens": 1000, "output_tokens": 200, "concurrency": 16}
    told = dense(speculation=EAGLE, workload=load).plan
    untold = dense(speculation={**EAGLE, "acceptance_rate": None}, workload=load).plan
    assert told.serving.tpot_s == untold.serving.tpot_s  # the usual rate is the one that was said
    assert told.serving.tpot_high_s < untold.serving.tpot_high_s
    assert any("acceptance_rate" in w for w in untold.warnings)
    assert not any("acceptance_rate" in w for w in told.warnings)


def test_a_flag_says_how_many_and_the_scenario_how_many_are_kept():
    flags = {"speculative_config": {"method": "ngram", "num_speculative_tokens": 5}}
    w = dense(
        engine="vllm", engine_args=flags, speculation={"method": "eagle3", "acceptance_rate": 0.5}
    )
    assert w.plan.step.tokens_per_request == expected_tokens(5, 0.5)


@pytest.mark.parametrize("rate", [-0.1, 1.5, "often"])
def test_a_rate_that_is_no_chance_is_refused(rate):
    with pytest.raises(KvroomError) as e:
        dense(speculation={**NGRAM, "acceptance_rate": rate})
    assert e.value.field == "speculation.acceptance_rate"


def test_bytes_and_flops_of_a_step_that_speculates():
    plain, ngram = dense().plan.step, dense(speculation=NGRAM).plan.step
    assert ngram.flops == 4 * plain.flops
    assert (ngram.bytes.weights, ngram.bytes.kv) == (plain.bytes.weights, plain.bytes.kv)
    draft = dense(speculation=DRAFT).plan.step
    own = ask("llama-3-8b", "H100-SXM", tp=4, concurrency=8, context_tokens=2000).step
    assert draft.bytes.kv == plain.bytes.kv + 4 * own.bytes.kv
    assert draft.bytes.weights == plain.bytes.weights + 4 * own.bytes.weights


def test_shares_by_position_are_summed():
    shares = [0.8, 0.6, 0.1]
    told = dense(speculation={**EAGLE, "acceptance_rate": shares})
    assert told.plan.step.tokens_per_request == pytest.approx(1 + sum(shares))
    assert told.plan.step.seconds == dense(speculation=EAGLE).plan.step.seconds
    # Where nobody says how many are drafted there are as many as shares.
    few = dense(speculation={"method": "eagle3", "acceptance_rate": [0.8, 0.6]})
    assert few.plan.step.tokens_per_request == pytest.approx(2.4)


@pytest.mark.parametrize(
    ("said", "value"),
    [([0.5, 0.6, 0.1], 0.5), ([0.5, 0.4], [0.5, 0.4]), ([], []), ([0.5, 1.2, 0.1], 1.2)],
)
def test_shares_that_cannot_be_are_refused(said, value):
    with pytest.raises(KvroomError) as e:
        dense(speculation={**EAGLE, "acceptance_rate": said})
    assert (e.value.field, e.value.value) == ("speculation.acceptance_rate", value)


def test_beyond_its_most_requests_a_step_drafts_nothing():
    limited = {**EAGLE, "max_concurrency": 16}
    for batch, like in ((16, EAGLE), (17, None)):
        with_it, without = dense(batch, speculation=limited), dense(batch, speculation=like)
        assert with_it.plan.step.seconds == without.plan.step.seconds
        assert with_it.plan.step.flops == without.plan.step.flops
        assert with_it.plan.step.tokens_per_request == without.plan.step.tokens_per_request
    for users, like in ((4, EAGLE), (64, None)):
        load = {"input_tokens": 1000, "output_tokens": 200, "concurrency": users}
        plans = [dense(workload=load, speculation=s).plan for s in (limited, like)]
        assert plans[0].serving.tpot_s == pytest.approx(plans[1].serving.tpot_s, rel=1e-4)


def test_a_table_of_vllm_says_how_many_are_drafted_at_which_batch():
    """Its documentation: [first batch, last batch, tokens] (Dynamic Speculative Decoding)."""
    table = [[1, 8, 3], [9, 32, 1], [33, 512, 0]]
    config = {"method": "ngram", "num_speculative_tokens": 3}
    flags = {"speculative_config": config | {"num_speculative_tokens_per_batch_size": table}}
    for batch, drafted in ((8, 3), (9, 1), (32, 1), (33, 0)):
        step = dense(batch, engine="vllm", engine_args=flags).plan.step
        assert step.tokens_per_request == pytest.approx(expected_tokens(drafted, 0.4))
    two = {"gpu_count": 8, "dp": 2, "engine": "vllm", "engine_args": flags}
    assert dense(66, **two).plan.step.tokens_per_request == pytest.approx(expected_tokens(3, 0.4))
    bad = {"speculative_config": config | {"num_speculative_tokens_per_batch_size": [[1, 8]]}}
    with pytest.raises(KvroomError) as e:
        dense(engine="vllm", engine_args=bad)
    assert e.value.value == [1, 8]


def test_the_short_form_says_the_same():
    from kvroom.scenario.speculation import SpeculativeDecoding, line

    parse = SpeculativeDecoding.parse

    for short, long in (
        ("mtp", {"method": "mtp"}),
        ("nextn:1:acceptance=0.8", {"method": "mtp", "num_speculative_tokens": 1, "acceptance_rate": 0.8}),
        ("eagle3:acceptance=0.8/0.5", {"method": "eagle3", "acceptance_rate": [0.8, 0.5]}),
        ("draft:4:model=llama-3-8b:max-concurrency=32", {**DRAFT, "max_concurrency": 32}),
    ):  # fmt: skip
        assert parse("speculation", line(short)) == parse("speculation", short)
        assert parse("speculation", short).to_dict() == long
    for wrong in ("mtp:1:2", "mtp:1:acceptance", "mtp:x", "mtp:1:acceptance=a/b", "mtp:1:color=2",
                  "clairvoyance"):  # fmt: skip
        with pytest.raises(KvroomError):
            parse("speculation", wrong)


def latent(dcp: int) -> Workings:
    keys = {"tp": 8, "dcp": dcp, "concurrency": 64, "context_tokens": 30_000}
    return asked("deepseek-v3", "H200-SXM", **keys, allow_overcommit=True)


def test_context_ranks_share_what_is_read_of_the_cache():
    one, eight = terms(latent(1)), terms(latent(8))
    assert eight.cache_s == pytest.approx(one.cache_s / 8)
    assert eight.compute_s == one.compute_s
    assert eight.weights_s == one.weights_s


def test_context_ranks_exchange_queries_and_outputs():
    """61 layers, 16 heads a rank: queries of 512 + 64, outputs of 512, a 32-bit normaliser, to seven."""
    one, eight = latent(1), latent(8)
    clock = eight.timing.clock
    numbers = 61 * 16 * (512 + 64 + 512 + 2)
    rate = clock.k.link_eta * clock.rates.link_bytes_per_s
    more = 7 * numbers * 2 * 64 / rate + 3 * 61 * clock.k.reduce_s
    assert terms(eight).links_s - terms(one).links_s == pytest.approx(clock.k.scale * more)
    assert eight.plan.step.bytes.links - one.plan.step.bytes.links == 64 * 8 * 7 * numbers * 2


def test_context_ranks_pay_for_long_contexts_only():
    def seconds(dcp: int, tokens: int) -> float:
        return latent(dcp).timing.clock.decode_s(64, tokens)

    assert seconds(8, 500) > seconds(1, 500)
    assert seconds(8, 100_000) < seconds(1, 100_000)


def test_context_ranks_without_copies_exchange_nothing():
    """Eight KV heads on eight ranks: no rank holds another's share."""
    one, eight = (terms(asked("llama-3-70b", "H100-SXM", tp=8, dcp=n)) for n in (1, 8))
    assert eight.links_s == one.links_s


def test_what_is_explained_comes_to_the_figures():
    load = {"input_tokens": 1000, "output_tokens": 200, "concurrency": 16}
    w = dense(speculation=EAGLE, workload=load)
    found = {e.figure: e for e in explain(w)}
    for figure in ("tokens_per_request", "tokens_per_s", "seconds"):
        e = found[f"step.{figure}"]
        assert float(evaluated(e.numbers)) == pytest.approx(e.value, rel=1e-9)
        assert e.value == getattr(w.plan.step, figure)
    assert float(evaluated(found["serving.tpot_s"].numbers)) == pytest.approx(
        w.plan.serving.tpot_s, rel=1e-3
    )
