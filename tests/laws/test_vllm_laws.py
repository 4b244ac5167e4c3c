"""Laws that hold for vLLM in every release, whatever the model."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kvroom.answer.plan import Plan
from kvroom.planner.plan import plan
from kvroom.scenario.scenario import Scenario
from kvroom.units import GIB

RELEASES = ("0.8.5", "0.10.2", "0.12.0", "0.14.0", "0.19.1", "0.25.1", "0.29.0", "0.33.0")
MODELS: dict[str, dict[str, Any]] = {
    "dense": {
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
    },
    "windows": {
        "model_type": "gemma3_text",
        "hidden_size": 5376,
        "intermediate_size": 21504,
        "num_hidden_layers": 62,
        "num_attention_heads": 32,
        "num_key_value_heads": 16,
        "head_dim": 128,
        "sliding_window": 1024,
        "vocab_size": 262208,
    },
    "latent": {
        "model_type": "deepseek_v3",
        "hidden_size": 7168,
        "num_attention_heads": 128,
        "num_hidden_layers": 61,
        "vocab_size": 129280,
    },
    "state": {
        "model_type": "qwen3_next",
        "hidden_size": 2048,
        "num_hidden_layers": 48,
        "num_attention_heads": 16,
        "vocab_size": 151936,
    },
}
releases, models = st.sampled_from(RELEASES), st.sampled_from(sorted(MODELS))
lengths = st.integers(1, 200_000)
caches = st.integers(0, 70 * GIB)


def planned(model: str, release: str, tokens: int, **more: Any) -> Plan:
    return plan(
        Scenario.from_dict(
            {
                "model": {"config": MODELS[model]},
                "gpu": more.pop("gpu", "H200"),
                "engine_version": release,
                "context_tokens": tokens,
                "engine_args": more.pop("args", {}),
                **more,
            }
        )
    )


def held(model: str, release: str, tokens: int, cache: int, **more: Any) -> Plan:
    return planned(model, release, tokens, args={"kv_cache_memory_bytes": cache}, **more)


@settings(deadline=None, max_examples=60)
@given(models, releases, lengths, caches, caches)
def test_more_bytes_never_hold_less(model: str, release: str, tokens: int, a: int, b: int) -> None:
    less, more = (held(model, release, tokens, size) for size in sorted((a, b)))
    if less.capacity.engine is None or more.capacity.engine is None:
        assert less.capacity.engine is more.capacity.engine
        return
    for name in ("num_blocks", "kv_tokens", "max_concurrency"):
        assert getattr(less.capacity.engine, name) <= getattr(more.capacity.engine, name)
    assert less.verdict.fits <= more.verdict.fits


@settings(deadline=None, max_examples=60)
@given(models.filter(lambda m: m != "state"), releases, lengths, lengths)
def test_longer_requests_are_never_more(model: str, release: str, a: int, b: int) -> None:
    short, long = sorted((a, b))
    x, y = (held(model, release, n, 40 * GIB).capacity.engine for n in (short, long))
    assert x is not None
    assert y is not None
    assert (x.max_concurrency or 0) >= (y.max_concurrency or 0)
    assert x.num_blocks == y.num_blocks


@settings(deadline=None, max_examples=60)
@given(models, releases, st.integers(1, 50_000), st.integers(2**28, 40 * GIB))
def test_the_longest_context_is_the_longest(
    model: str, release: str, tokens: int, cache: int
) -> None:
    # The batch budget is held, as the engine does while it searches.
    args = {"kv_cache_memory_bytes": cache, "max_num_batched_tokens": 8192}
    engine = planned(model, release, tokens, args=args).capacity.engine
    if engine is None or not engine.max_context_tokens or model == "state":
        return
    longest = engine.max_context_tokens
    args["VLLM_ALLOW_LONG_MAX_MODEL_LEN"] = 1  # the model's own limit is another law
    assert planned(model, release, longest, args=args).verdict.fits
    assert not planned(model, release, longest + 1, args=args).verdict.fits


@settings(deadline=None, max_examples=60)
@given(
    models,
    releases,
    st.sampled_from(("H200", "L4", "B200", "A100-SXM-40")),
    st.floats(0.1, 1.0),
    st.sampled_from((1, 2, 4)),
)
def test_accounts_add_up_and_bands_hold_the_middle(
    model: str, release: str, gpu: str, share: float, tp: int
) -> None:
    made = planned(model, release, 8192, gpu=gpu, tp=tp, args={"gpu_memory_utilization": share})
    assert sum(a.bytes for a in made.memory.accounts) == made.memory.gpu_bytes
    for a in made.memory.accounts:
        assert a.low_bytes <= a.bytes <= a.high_bytes, a
    engine = made.capacity.engine
    if engine is not None and engine.max_concurrency is not None:
        assert engine.low is not None
        assert engine.high is not None
        assert engine.low <= engine.max_concurrency <= engine.high


@settings(deadline=None, max_examples=30)
@given(models, releases, st.integers(1, 131072), st.sampled_from((1, 2, 3, 4)))
def test_stages_bind_by_the_least(model: str, release: str, tokens: int, pp: int) -> None:
    """No stage holds more layers of a group than the whole model, so stages never hold less."""
    one = held(model, release, tokens, 20 * GIB).capacity.engine
    many = held(model, release, tokens, 20 * GIB, pp=pp).capacity.engine
    if one is None or many is None:
        assert one is many
        return
    assert (many.num_blocks or 0) >= (one.num_blocks or 0)
