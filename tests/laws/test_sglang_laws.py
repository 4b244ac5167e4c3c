"""Laws that hold for SGLang in every release, whatever the model."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kvroom.answer.plan import Plan
from kvroom.planner.plan import plan
from kvroom.scenario.scenario import Scenario
from kvroom.units import GIB

RELEASES = ("0.4.10", "0.5.3", "0.5.7", "0.5.9", "0.5.11", "0.5.14", "0.5.18", "0.5.23")
MODELS = (
    "qwen3-8b",
    "deepseek-v3",
    "deepseek-v3.2",
    "gpt-oss-120b",
    "gemma-3-27b",
    "qwen3-next-80b-a3b",
    "nemotron-nano-9b-v2",
    "llama-3.2-90b-vision",
)
releases, models = st.sampled_from(RELEASES), st.sampled_from(MODELS)
frees = st.integers(40, 78)
pages = st.sampled_from((1, 16, 64))


def planned(model: str, release: str, free: int, **more: Any) -> Plan:
    known = {"visible": 80 * GIB, "free_before_load": free * GIB, "weights": 20 * GIB}
    given = {
        "model": model,
        "gpu": "H100-SXM",
        "tp": 8,
        "engine": "sglang",
        "engine_version": release,
        "known_bytes": known,
        **more,
    }
    return plan(Scenario.from_dict(given), paths=False)


@settings(deadline=None, max_examples=60)
@given(models, releases, frees, pages)
def test_accounts_add_up_and_lie_in_their_bands(
    model: str, release: str, free: int, page: int
) -> None:
    memory = planned(model, release, free, engine_args={"page_size": page}).memory
    assert sum(a.bytes for a in memory.accounts) == memory.gpu_bytes
    assert all(a.low_bytes <= a.bytes <= a.high_bytes for a in memory.accounts)


@settings(deadline=None, max_examples=60)
@given(models, releases, frees)
def test_more_memory_never_holds_less(model: str, release: str, free: int) -> None:
    less = planned(model, release, free).capacity.engine
    more = planned(model, release, free + 1).capacity.engine
    if less is None:
        return
    assert more is not None
    for name in ("kv_tokens", "window_tokens", "state_slots", "max_concurrency"):
        assert (getattr(more, name) or 0) >= (getattr(less, name) or 0)


@settings(deadline=None, max_examples=60)
@given(models, releases, st.integers(1, 100_000))
def test_longer_requests_are_never_more(model: str, release: str, tokens: int) -> None:
    short = planned(model, release, 78, context_tokens=tokens).capacity.engine
    long = planned(model, release, 78, context_tokens=2 * tokens).capacity.engine
    assert short is not None and long is not None
    assert (short.max_concurrency or 0) >= (long.max_concurrency or 0)


@settings(deadline=None, max_examples=60)
@given(models, releases, frees, pages)
def test_pools_are_whole_pages(model: str, release: str, free: int, page: int) -> None:
    engine = planned(model, release, free, engine_args={"page_size": page}).capacity.engine
    if engine is None:
        return
    assert engine.block_tokens is not None and engine.kv_tokens is not None
    assert engine.block_tokens % page == 0 or engine.block_tokens == 64
    assert engine.kv_tokens == (engine.num_blocks or 0) * engine.block_tokens
    assert (engine.window_tokens or 0) % engine.block_tokens == 0


@settings(deadline=None, max_examples=60)
@given(models, releases, frees, st.integers(1, 10**7))
def test_a_limit_on_tokens_is_kept(model: str, release: str, free: int, most: int) -> None:
    engine = planned(model, release, free, engine_args={"max_total_tokens": most}).capacity.engine
    plain = planned(model, release, free).capacity.engine
    if engine is None or plain is None or engine.window_tokens is not None:
        return
    assert (engine.kv_tokens or 0) <= min(most, plain.kv_tokens or 0)
