"""Drafted tokens while requests are served: how many are kept, what steps last, whose rules, with whom."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from kvroom.engines.draft_tokens import Drafts, drawn, stream
from kvroom.engines.paged.scheduler import Scheduler, SchedulerConfig
from kvroom.kvcache.groups import FullAttentionGroup
from kvroom.kvcache.prefix_cache import PrefixCache
from kvroom.kvcache.request import ServedRequest
from kvroom.kvcache.tokens import BlockHashes
from kvroom.latency.drafting import expected_tokens
from kvroom.planner.simulate import Simulated, simulate
from kvroom.scenario.scenario import Scenario
from kvroom.workloads.synthetic import parse
from support import ask

pytestmark = pytest.mark.slow

LOAD = "arrivals=poisson:4/s,input=fixed:500,output=fixed:200,requests=60"
MTP = {"method": "mtp", "num_speculative_tokens": 1, "acceptance_rate": 0.8}


def eagle(rate: Any, tokens: int = 3, **more: Any) -> dict[str, Any]:
    said = {"method": "eagle3", "num_speculative_tokens": tokens, "acceptance_rate": rate}
    return said | more


def served(speculation: Any, load: str = LOAD, on_over: Any = None, **keys: Any) -> Simulated:
    asked = {"model": "llama-3-70b", "gpu": "H100-SXM", "tp": 4, "context_tokens": 4000}
    asked |= {"engine": "vllm", "engine_version": "0.33.0", "speculation": speculation}
    return simulate(Scenario.from_dict(asked | keys), parse(load), on_over=on_over)


def told(*args: Any, **keys: Any) -> dict[str, Any]:
    return served(*args, **keys).to_dict()


def order(speculation: Any, load: str = LOAD, **keys: Any) -> list[int]:
    done: list[int] = []
    served(speculation, load, on_over=lambda live, _: done.append(live.index), **keys)
    return done


@pytest.mark.parametrize(("tokens", "rate"), [(1, 0.85), (3, 0.75), (5, 0.4)])
def test_a_step_gains_what_is_expected(tokens, rate):
    """(1 − a^(k+1)) / (1 − a), over twelve thousand tokens less than a step from an answer's end."""
    long = "arrivals=poisson:9/s,input=fixed:100,output=fixed:3000,requests=8"
    s = told(eagle(rate, tokens), long)["speculation"]
    want = (1 - rate ** (tokens + 1)) / (1 - rate)
    assert s["tokens_per_step"] == pytest.approx(want, rel=0.02)
    assert s["drafted_tokens"] == pytest.approx(tokens * s["steps"], rel=0.002)
    assert s["accepted_tokens"] + s["wasted_tokens"] == s["drafted_tokens"]


def test_shares_by_position_are_those_that_are_kept():
    shares = [0.8, 0.5, 0.1]
    drafts = Drafts.of(asked(eagle(shares)))
    kept = Counter(drafts.kept(7, place, 3) for place in range(40_000))
    for n, share in enumerate(shares):
        reached = sum(count for tokens, count in kept.items() if tokens > n)
        assert reached / 40_000 == pytest.approx(share, abs=0.01)


def asked(speculation: dict[str, Any]) -> Any:
    from support import asked as workings

    return workings("llama-3-70b", "H100-SXM", tp=4, speculation=speculation).deployment.speculation


def test_draws_are_even_and_owe_nothing_to_each_other():
    many = [drawn(stream(1, index), place) for index in range(100) for place in range(100)]
    tenths = Counter(int(10 * x) for x in many)
    assert min(tenths.values()) > 900 and max(tenths.values()) < 1100
    mean = sum(many) / len(many)
    along = sum((a - mean) * (b - mean) for a, b in pairwise(many))
    assert abs(along / sum((x - mean) ** 2 for x in many)) < 0.03


def test_where_all_are_kept_each_step_gives_all():
    s = told(eagle(1.0))["speculation"]
    assert s["wasted_tokens"] == 60  # 199 tokens after the first: 49 steps of 4, and one of 3
    assert s["steps"] == 60 * 50


def test_where_none_is_kept_requests_end_in_the_same_order_and_later():
    plain, none = told(None), told(eagle(0.0))
    assert none["speculation"]["tokens_per_step"] == 1
    assert none["tpot_s"]["mean"] > 1.1 * plain["tpot_s"]["mean"]
    spread = "arrivals=poisson:4/s,input=fixed:500,output=uniform:20-400,requests=60"
    apart = spread.replace("poisson:4/s", "poisson:0.01/s")
    assert order(eagle(0.0), apart) == order(None, apart) == list(range(60))
    at_once = spread.replace("poisson:4/s", "once")
    assert order(eagle(0.0), at_once) == order(None, at_once) != list(range(60))


def test_a_seed_says_what_is_kept():
    first, again = told(eagle(0.6)), told(eagle(0.6))
    assert first == again
    fixed = LOAD.replace("poisson:4/s", "once")  # nothing else is drawn
    one, other = (told(eagle(0.6), f"{fixed},seed={n}")["speculation"] for n in (1, 2))
    assert one != other
    assert one["tokens_per_step"] == pytest.approx(other["tokens_per_step"], rel=0.03)


def test_likelier_drafts_never_take_more_steps():
    steps = [told(eagle(a / 10))["speculation"]["steps"] for a in range(0, 11, 2)]
    assert steps == sorted(steps, reverse=True)


STEPS = {
    "plain": {},
    "speculation": {"speculation": eagle(1.0)},
    "prediction layers": {"speculation": MTP, "model": "deepseek-v3", "gpu": "B200", "tp": 8},
    "context ranks": {"dcp": 8, "model": "deepseek-v3", "gpu": "B200", "tp": 8},
    "both": {"dcp": 8, "speculation": MTP, "model": "deepseek-v3", "gpu": "B200", "tp": 8},
}


@pytest.mark.parametrize("keys", STEPS.values(), ids=STEPS)
def test_a_plans_step_is_the_simulators(keys):
    """Sixteen requests that decode together from 500 to 900 tokens: the middle step is that of 700."""
    once = "arrivals=once,input=fixed:500,output=fixed:401,requests=16"
    rest = {key: value for key, value in keys.items() if key != "speculation"}
    itl = told(keys.get("speculation"), once, **rest)["itl_s"]
    model = {"model": "llama-3-70b", "gpu": "H100-SXM", "tp": 4, "engine": "vllm"} | keys
    step = ask(**model, concurrency=16, context_tokens=700).step
    assert itl["p50"] == pytest.approx(step.seconds, rel=2e-3)


def test_fewer_drafts_in_larger_steps():
    """Sixteen at once draft nothing where at most eight may; the last ones do when they are few."""
    once = "arrivals=once,input=fixed:500,output=uniform:20-400,requests=16"
    limited = told(eagle(0.7, max_concurrency=8), once)
    free = told(eagle(0.7), once)
    assert 0 < limited["speculation"]["steps"] < 0.6 * free["speculation"]["steps"]
    even = once.replace("uniform:20-400", "fixed:400")
    never = told(eagle(0.7, max_concurrency=8), even)
    assert "speculation" not in never
    plain = told(None, even)
    for key in ("ttft_s", "tpot_s", "itl_s", "e2e_s"):
        # Its prompts pass through the draft, and vLLM keeps slots ahead for it: no more than that.
        assert never[key]["mean"] == pytest.approx(plain[key]["mean"], rel=0.05)
    assert never["itl_s"]["p50"] == plain["itl_s"]["p50"]


# vLLM's rules, pass by pass.

PLAIN = SchedulerConfig(max_num_batched_tokens=64, max_num_seqs=8, max_model_len=100)


def rules(
    settings: SchedulerConfig = PLAIN, blocks: int = 50, caching: bool = False, **drafts: Any
) -> Scheduler:
    cache = PrefixCache(
        [FullAttentionGroup(0, 4)], blocks, caching=caching, context_tokens=settings.max_model_len,
        in_flight_tokens=2 * settings.max_num_batched_tokens,
    )  # fmt: skip
    return Scheduler(settings, cache, Drafts(**drafts) if drafts else None)


def sequence(prompt: int = 8, output: int = 20) -> ServedRequest:
    return ServedRequest(0, 0, prompt, output, hashes=BlockHashes(((0, prompt + output),), 4))


def test_a_pass_computes_a_token_and_its_drafts():
    made = rules(chances=(1.0, 1.0), ahead_tokens=2)
    one = sequence()
    made.add_request(one)
    first = made.schedule()
    assert [(w.tokens, w.drafts, w.samples) for w in first.scheduled] == [(8, 0, True)]
    assert len(one.block_tables[0]) == 2  # nothing is kept ahead for a prompt that has just come
    made.update_from_output(first)
    second = made.schedule()
    assert [(w.tokens, w.drafts) for w in second.scheduled] == [(3, 2)]
    assert len(one.block_tables[0]) == 4  # 8 + 3 tokens, and 2 slots ahead
    made.update_from_output(second)
    assert (one.num_tokens, one.num_computed_tokens) == (12, 11)


def test_refused_drafts_are_computed_anew_in_blocks_that_stay():
    made = rules(chances=(0.0, 0.0))
    one = sequence()
    made.add_request(one)
    made.update_from_output(made.schedule())
    for step in range(5):
        held = len(one.block_tables[0])
        made.update_from_output(made.schedule())
        assert (one.num_tokens, one.num_computed_tokens) == (10 + step, 9 + step)
        assert len(one.block_tables[0]) >= held


def test_asynchronous_passes_count_on_all_drafts_until_they_know():
    made = rules(replace(PLAIN, async_scheduling=True), chances=(0.0, 0.0))
    one = sequence()
    made.add_request(one)
    first, second = made.schedule(), made.schedule()
    assert [(w.tokens, w.drafts) for w in second.scheduled] == [(3, 2)]
    made.update_from_output(first)
    third = made.schedule()
    assert [(w.tokens, w.drafts) for w in third.scheduled] == [(3, 2)]
    assert one.num_computed_tokens == 14
    made.update_from_output(second)
    assert (one.num_tokens, one.num_computed_tokens, one.num_output_placeholders) == (10, 12, 3)
    made.update_from_output(third)
    assert (one.num_tokens, one.num_computed_tokens, one.num_output_placeholders) == (11, 10, 0)


def test_no_draft_reaches_beyond_the_longest_request():
    made = rules(replace(PLAIN, max_model_len=12), chances=(1.0,) * 8)
    one = sequence(8, 20)
    made.add_request(one)
    made.update_from_output(made.schedule())
    last = made.schedule()
    assert [(w.tokens, w.drafts) for w in last.scheduled] == [(3, 2)]  # at most 11 are computed
    assert made.update_from_output(last) == [one]
    assert one.num_tokens == 12


def test_heads_compute_the_last_cached_block_anew():
    """They need the model's states of it (vLLM's EAGLE and MTP)."""
    for rereads, found in ((False, 16), (True, 12)):
        made = rules(caching=True, chances=(1.0,), rereads=rereads)
        for index in range(2):
            made.add_request(one := sequence(17, 1))
            one.index = index
            done = made.schedule()
            assert done.admitted[0].cached_tokens == (found if index else 0)
            assert made.update_from_output(done) == [one]


@pytest.mark.parametrize("engine", ["sglang", "llama.cpp", "tensorrt-llm"])
def test_other_engines_draft_too(engine):
    keys = {"engine": engine, "engine_version": None}
    kept, plain, none = (told(s, **keys) for s in (eagle(1.0), None, eagle(0.0)))
    assert kept["requests"]["completed"] == plain["requests"]["completed"] == 60
    assert kept["speculation"]["steps"] == 60 * 50
    assert kept["tpot_s"]["mean"] < 0.5 * plain["tpot_s"]["mean"]
    assert none["tpot_s"]["mean"] > plain["tpot_s"]["mean"]


# With tiers, pools, ranks that step together.


def test_tiers_and_drafts():
    chats = "arrivals=poisson:2/s,input=fixed:900,output=60,turns=4,think=5s,requests=80"
    small = {"engine_args": {"num_gpu_blocks_override": 400}}
    alone = told(eagle(0.75), chats, **small)
    tiers = told(eagle(0.75), chats, **small, tiers=[{"kind": "host"}])
    host = tiers["tiers"][1]
    assert host["hit_tokens"] > 0
    assert tiers["prefix_hit_ratio"] > alone["prefix_hit_ratio"]
    assert sum(t["hit_ratio"] for t in tiers["tiers"]) == pytest.approx(tiers["prefix_hit_ratio"])


def test_answers_of_a_pool_of_their_own_are_drafted():
    pools = {"prefill": {"count": 1}, "decode": {"count": 1}}
    plain, drafted = (told(s, disaggregation=pools) for s in (None, eagle(0.75)))
    assert drafted["requests"] == plain["requests"]
    assert drafted["fleet"]["transfers"]["count"] == 60
    assert drafted["speculation"]["tokens_per_step"] == pytest.approx(
        expected_tokens(3, 0.75), rel=0.02
    )
    assert drafted["tpot_s"]["mean"] < plain["tpot_s"]["mean"]


def test_replicas_that_die_lose_no_drafted_answer():
    failing = {
        "replicas": 2,
        "fleet": {"failures": {"at": [{"replica": 0, "s": 5}], "repair_s": 5}},
    }
    made = told(eagle(0.75), **failing)
    assert made["requests"]["completed"] == 60
    assert made["fleet"]["retries"] > 0


@pytest.mark.parametrize("model", ["qwen3-next-80b-a3b", "gemma-3-27b"])
def test_states_and_windows(model):
    made = told({"method": "ngram", "acceptance_rate": 0.5}, model=model, gpu="H200-SXM")
    assert made["requests"]["completed"] == 60
    want = expected_tokens(3, 0.5)
    assert made["speculation"]["tokens_per_step"] == pytest.approx(want, rel=0.03)
    assert any("spare states" in w for w in made["warnings"]) is (model == "qwen3-next-80b-a3b")
