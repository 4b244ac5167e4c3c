"""Laws of time: more to do never takes less, more bandwidth never gives less, bands hold their figure."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvroom.models import catalogue
from support import ask as ask_of
from support import asked as asked_of

MODELS = (
    "llama-3-70b",
    "llama-3-8b",
    "gemma-3-27b",
    "deepseek-v3",
    "gpt-oss-120b",
    "qwen3-next-80b",
)
NAMES = st.sampled_from([n for n in MODELS if n in catalogue.names()])
CARDS = st.sampled_from(["H100-SXM", "B200-SXM", "RTX-4090", "MI300X", "Apple-M4-Max", "L40S"])


def asked(*args, **keys):
    """Times are asked of, whether or not memory says no."""
    return asked_of(*args, **{"allow_overcommit": True, **keys})


def ask(*args, **keys):
    return ask_of(*args, **{"allow_overcommit": True, **keys})


ENGINES = st.sampled_from(["vllm", "sglang", "tensorrt-llm", "llama.cpp"])
USERS = st.integers(1, 600)
LENGTHS = st.integers(1, 60_000)
WIDTHS = st.sampled_from(["bf16", "fp8"])


def seconds(name, card, engine, batch, tokens, **keys):
    """A step's, whether the deployment fits or not."""
    keys = {"concurrency": batch, "context_tokens": tokens, "allow_overcommit": True, **keys}
    return asked(name, card, engine=engine, **keys).plan.step.seconds


@given(NAMES, CARDS, ENGINES, USERS, USERS, LENGTHS, WIDTHS)
def test_a_larger_batch_never_takes_less(name, card, engine, one, other, tokens, width):
    few, many = sorted((one, other))
    asked_so = {"weight_dtype": width, "tp": 8}
    assert seconds(name, card, engine, few, tokens, **asked_so) <= seconds(
        name, card, engine, many, tokens, **asked_so
    ) * (1 + 1e-12)


@given(NAMES, CARDS, ENGINES, USERS, LENGTHS, LENGTHS)
def test_a_longer_context_never_takes_less(name, card, engine, batch, one, other):
    short, long = sorted((one, other))
    assert seconds(name, card, engine, batch, short) <= seconds(name, card, engine, batch, long) * (
        1 + 1e-12
    )


@given(NAMES, st.floats(1e11, 1e13), st.floats(1.0, 10.0), USERS, LENGTHS)
def test_more_bandwidth_never_gives_less(name, rate, times, batch, tokens):
    def tokens_per_s(bytes_per_s):
        card = {
            "name": "card",
            "memory_bytes": 80_000_000_000,
            "memory_bytes_per_s": bytes_per_s,
            "flops_per_s": {"bf16": 1e15},
        }
        keys = {"concurrency": batch, "context_tokens": tokens, "allow_overcommit": True}
        return ask(name, card, **keys).step.tokens_per_s

    assert tokens_per_s(rate) <= tokens_per_s(rate * times) * (1 + 1e-12)


@given(NAMES, st.floats(3e10, 1e13), ENGINES, USERS, LENGTHS, WIDTHS)
def test_no_step_outruns_its_memory(name, rate, engine, batch, tokens, width):
    """Dense weights and a cache of a stated width are read at the memory's peak rate at best."""
    card = {
        "name": "card",
        "memory_bytes": 80_000_000_000,
        "memory_bytes_per_s": rate,
        "flops_per_s": {"bf16": 1e15},
    }
    asked_so = {"kv_dtype": "bf16", "weight_dtype": width, "allow_overcommit": True}
    w = asked(name, card, engine=engine, concurrency=batch, context_tokens=tokens, **asked_so)
    if any(s.experts for s in w.timing.clock.work.stages):
        return
    s = w.plan.step
    assert s.seconds >= (s.bytes.weights + s.bytes.kv) / rate * (1 - 1e-6)


@given(NAMES, CARDS, ENGINES, USERS, st.integers(1, 9000), st.integers(1, 3000), st.booleans())
def test_bands_hold_their_figure(name, card, engine, users, entering, leaving, static):
    plan = ask(
        name,
        card,
        engine=engine,
        allow_overcommit=True,
        workload={
            "input_tokens": entering,
            "output_tokens": leaving,
            "concurrency": users,
            "static": static,
        },
    )
    s, t = plan.step, plan.serving
    for low, value, high in (
        (s.seconds_low, s.seconds, s.seconds_high),
        (t.tpot_low_s, t.tpot_s, t.tpot_high_s),
        (t.ttft_low_s, t.ttft_s, t.ttft_high_s),
    ):
        assert 0 < low <= value <= high


@given(NAMES, CARDS, st.integers(1, 400), st.integers(1, 400), st.integers(16, 5000))
def test_more_users_never_get_less_together(name, card, one, other, tokens):
    few, many = sorted((one, other))

    def output(users):
        load = {"input_tokens": tokens, "output_tokens": 256, "concurrency": users}
        return ask(name, card, workload=load, allow_overcommit=True).serving

    a, b = output(few), output(many)
    assert a.tpot_s <= b.tpot_s * 1.001
    assert a.output_tokens_per_s <= b.output_tokens_per_s * 1.02


@given(NAMES, st.integers(1, 64), st.integers(1, 20_000), st.integers(2, 400))
def test_a_run_of_steps_is_affine_between_windows(name, batch, start, steps):
    """Between a window's edges each further token adds the same time: what the simulator sums by."""
    clock = asked(name, "H100-SXM", engine="vllm", context_tokens=start).timing.clock
    work = clock.work
    if any(
        k.kind in ("window", "chunked", "compressed", "indexer")
        for s in work.stages
        for k, _ in s.rank.stores
    ):
        return
    a, b, c = (clock.decode_s(batch, start + i) for i in (0, steps, 2 * steps))
    assert b - a == pytest.approx(c - b, rel=1e-6, abs=1e-12)


DRAFTED = st.integers(1, 8)
KEPT = st.floats(0.0, 1.0)


@given(NAMES, CARDS, USERS, LENGTHS, DRAFTED, KEPT, KEPT)
def test_more_drafts_kept_never_give_fewer_tokens(name, card, batch, tokens, drafted, one, other):
    def tokens_per_s(rate):
        asked_so = {"method": "ngram", "num_speculative_tokens": drafted, "acceptance_rate": rate}
        keys = {"concurrency": batch, "context_tokens": tokens, "allow_overcommit": True}
        return ask(name, card, speculation=asked_so, **keys).step.tokens_per_s

    few, many = sorted((one, other))
    assert tokens_per_s(few) <= tokens_per_s(many) * (1 + 1e-12)


@given(NAMES, USERS, USERS, LENGTHS, DRAFTED)
def test_a_larger_batch_that_speculates_never_takes_less(name, one, other, tokens, drafted):
    few, many = sorted((one, other))
    draft = {"method": "draft", "model": "llama-3-8b", "num_speculative_tokens": drafted}
    keys = {"tp": 8, "speculation": draft}
    times = [seconds(name, "H100-SXM", "vllm", n, tokens, **keys) for n in (few, many)]
    assert times[0] <= times[1] * (1 + 1e-12)
