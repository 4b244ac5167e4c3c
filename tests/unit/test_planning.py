"""Scenario to Plan: what is taken where nothing is asked, what is warned of, what a verdict says."""

import pytest

from kvroom.errors import KvroomError
from support import ask, asked, check_told

SMALL = {"name": "small", "memory_bytes": 17 * 10**9, "memory_bytes_per_s": 1e12}


def test_the_models_own_limit_is_the_context():
    plan = ask("llama-3.1-8b", "H200")
    assert plan.scenario.context_tokens == 131_072
    assert plan.warnings == ()


def test_a_length_beyond_it_is_a_warning():
    plan = ask("llama-3-8b", "H200", context_tokens="32K")
    assert plan.scenario.context_tokens == 32_768
    assert any("beyond the model's own limit of 8,192" in w for w in plan.warnings)


@pytest.mark.parametrize(("flag", "tokens"), [(4096, 4096), ("4k", 4096), (None, 1024), (-1, 1024)])
def test_the_engines_own_flag_wins(flag, tokens):
    plan = ask("llama-3-8b", "H200", context_tokens=1024, engine_args={"max_model_len": flag})
    assert plan.scenario.context_tokens == tokens


@pytest.mark.parametrize(
    ("model", "weights", "cache"),
    [
        ("llama-3-8b", "bf16", 1.0),
        ("qwen3-32b-fp8", "fp8", 1.0),
        ("gpt2", "bf16", 1.0),  # 32 bits in the file, 16 in any engine
    ],
)
def test_weights_are_taken_as_the_checkpoint_has_them(model, weights, cache):
    w = asked(model, "H200")
    assert w.deployment.weights.quantisation.name.startswith(weights)
    assert w.deployment.kv.bits == 16 * cache


@pytest.mark.parametrize(
    ("dtype", "ratio"), [("fp8", 0.5), ("bf16", 1), ("q8_0", 34 / 64), ("q4_0", 18 / 64)]
)
def test_cache_widths(dtype, ratio):
    whole, narrow = (ask("llama-3-8b", kv_dtype=d).kv.bytes_per_token for d in ("bf16", dtype))
    assert narrow == whole * ratio


def test_narrower_weights_weigh_less():
    sizes = [
        ask("llama-3-8b", weight_dtype=d).weights.bytes
        for d in ("fp32", "bf16", "fp8", "q6_k", "q4_k_m")
    ]
    assert sizes == sorted(sizes, reverse=True)


def test_the_answer_does_not_change_the_question():
    plan = ask("llama-3-70b", "80GB", gpu_count=4, context_tokens="32K")
    assert ask(**{k: v for k, v in plan.scenario.to_dict().items() if v is not None}) == plan


def test_hardware_costs_what_it_costs():
    assert ask("llama-3-8b", "80GB").cost.usd_per_hour is None


def test_figures_that_no_machine_holds_are_refused():
    config = {
        "model_type": "llama",
        "num_hidden_layers": 9999,
        "hidden_size": 9_999_360,
        "num_attention_heads": 64,
        "intermediate_size": 9_999_999,
        "vocab_size": 9_999_999,
    }
    with pytest.raises(KvroomError) as e:
        ask({"config": config})
    assert e.value.field == "model"
    assert "10" in e.value.fix or "config" in e.value.fix


@pytest.mark.parametrize(
    ("keys", "fits", "binding", "words"),
    [
        ({"context_tokens": 4096}, True, "kv_memory", "Room for 1 request of 4K tokens"),
        ({"context_tokens": 2048, "concurrency": 3}, True, "kv_memory", "The 4th would wait"),
        (
            {"context_tokens": 2048, "concurrency": 2},
            True,
            "kv_memory",
            "1 more than the 2 asked for",
        ),
        (
            {"context_tokens": 4096, "concurrency": 9},
            False,
            "kv_memory",
            "Room for 1 of 9 requests",
        ),
        ({"context_tokens": 32768}, False, "kv_memory", "The longest request that fits is"),
        ({"gpu": "T4"}, False, "weights", "too little"),
        ({"model": "mamba-codestral-7b"}, True, "state", "Room for"),
    ],
)
def test_verdicts(keys, fits, binding, words):
    verdict = ask(**{"model": "llama-3-8b", "gpu": SMALL, **keys}).verdict
    assert (verdict.fits, verdict.binding) == (fits, binding)
    assert words in verdict.sentence


@pytest.mark.parametrize(
    ("engine", "flag"), [("vllm", "max_num_seqs"), ("sglang", "max_running_requests")]
)
def test_a_scheduler_that_takes_less_than_the_cache_holds(engine, flag):
    asks = {"engine": engine, "context_tokens": 1024, "engine_args": {flag: 8}}
    plan = ask("qwen2.5-0.5b", "H200", **asks)
    held = int(plan.capacity.engine.max_concurrency)
    assert held > 1000
    assert plan.step.batch == 8
    assert (plan.verdict.fits, plan.verdict.binding) == (True, "max_num_seqs")
    assert f"runs no more at once ({flag}), though its cache would hold {held:,}" in (
        plan.verdict.sentence
    )
    more = ask("qwen2.5-0.5b", "H200", concurrency=9, **asks).verdict
    assert not more.fits
    assert "Room for 8 of 9 requests" in more.sentence
    both = ask("qwen2.5-0.5b", "H200", concurrency=16, tp=1, dp=2, **asks).verdict
    assert both.fits


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize(
    ("tp", "starts"), [(1, True), (2, True), (4, False), (5, True), (8, False), (10, True)]
)
def test_engines_refuse_heads_that_neither_divide_nor_repeat_evenly(engine, tp, starts):
    verdict = ask("phi-4", "H100-SXM", tp=tp, engine=engine).verdict  # 40 heads, 10 of the cache
    assert verdict.fits == starts
    if not starts:
        assert f"10 KV heads can be neither shared out nor copied evenly over tp {tp}" in (
            verdict.sentence
        )


def test_an_estimate_takes_the_stage_with_least_room_and_whole_blocks():
    card = {"name": "x", "memory_bytes": "23.5GiB", "memory_bytes_per_s": 1e12}
    keys = {"engine": "mlc", "tp": 1, "pp": 7}
    plan = ask("llama-3.3-70b", card, context_tokens=4096, **keys)
    engine = plan.capacity.engine
    assert plan.verdict.fits == (engine.max_concurrency >= 1)
    assert (engine.max_context_tokens >= 4096) == (engine.max_concurrency >= 1)
    assert engine.max_context_tokens % 16 == 0
    kv = next(a for a in plan.memory.accounts if a.name == "kv")
    assert kv.low_bytes <= kv.bytes <= kv.high_bytes


def test_a_remedy_holds():
    sentence = ask("llama-3-70b", "80GB").verdict.sentence
    assert "2 of them (tp 2)" in sentence
    assert ask("llama-3-70b", "80GB", tp=2).verdict.binding != "weights"
    assert "fp8 weights" in sentence
    assert ask("llama-3-70b", "80GB", weight_dtype="fp8").verdict.binding != "weights"


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm", "llama.cpp", "mlc"])
def test_every_engine_answers_below_the_ceiling(engine):
    plan = ask("llama-3-8b", "H100", engine=engine, context_tokens=8192)
    assert 0 < plan.capacity.engine.max_concurrency < plan.capacity.ceiling.exact


@pytest.mark.parametrize(
    "asks", [{"kv_dtype": "nvfp4_ds_mla"}, {"engine_args": {"kv_cache_dtype": "nvfp4_ds_mla"}}]
)
def test_a_layout_of_latents_without_known_bytes_is_refused(asks):
    with pytest.raises(KvroomError, match="no bytes for") as e:
        ask("deepseek-v3", "B200", engine="vllm", tp=8, **asks)
    check_told(e.value)
    assert "fp8_ds_mla" in e.value.fix


def test_one_token_is_no_plural():
    made = ask("llama-3-8b", context_tokens=1)
    assert "requests of 1 token on" in made.verdict.sentence


@pytest.mark.parametrize(
    ("model", "keys", "says", "binding"),
    [
        ("qwen3-next-80b-a3b", {"engine": "sglang", "tp": 4, "context_tokens": 2048},
         "its 700 slots of state, 5 a request, run out first (mamba_full_memory_ratio)", "state"),
        ("qwen3-next-80b-a3b", {"engine": "sglang", "tp": 4, "context_tokens": 32768},
         "tokens for full attention is full first (mamba_full_memory_ratio)", "kv_memory"),
        ("gpt-oss-20b", {"engine": "sglang", "context_tokens": 32768},
         "tokens for full attention is full first (swa_full_tokens_ratio)", "kv_memory"),
        ("gemma-3-27b", {"engine": "vllm", "engine_version": "0.33.0"},
         "vllm counts 10.48 GiB for it: a window keeps the 16,384 tokens of a batch in flight too",
         "kv_memory"),
        ("gemma-3-27b", {"engine": "vllm", "engine_version": "0.9.0", "context_tokens": 16384},
         "a window is kept at full length", "kv_memory"),
        ("qwen3-next-80b-a3b",
         {"engine": "vllm", "engine_version": "0.33.0", "tp": 4, "engine_args": {"max_num_seqs": 128}},
         "state and attention take pages of one size", "kv_memory"),
    ],
)  # fmt: skip
def test_a_verdict_says_which_pool_is_full_first(model, keys, says, binding):
    version = {"engine_version": "0.5.23"} if keys["engine"] == "sglang" else {}
    made = ask(model, "H100-SXM", **{"context_tokens": 32768, **version, **keys})
    assert says in made.verdict.sentence
    assert made.verdict.binding == binding
    plain = ask("llama-3-8b", "H100-SXM", engine=keys["engine"], context_tokens=8192, **version)
    assert "counts" not in plain.verdict.sentence
    assert "full first" not in plain.verdict.sentence
