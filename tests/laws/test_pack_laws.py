"""What is true of every pack of models."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvroom

MODELS = ("llama-3.1-8b", "qwen3-4b", "qwen3-0.6b", "qwen3-8b")
ENGINES = ("vllm", "vllm", "sglang")


def rows_of(picks):
    return [
        {
            "model": model,
            "name": f"{place}",
            "engine": engine,
            "users": users,
            "context": "4K",
            "version": "0.33.0" if engine == "vllm" else "0.5.9",
        }
        for place, (model, engine, users) in enumerate(picks)
    ]


PICKS = st.lists(
    st.tuples(st.sampled_from(MODELS), st.sampled_from(ENGINES), st.integers(1, 24)),
    min_size=1,
    max_size=3,
)


def packed(rows, gpu="H100-SXM"):
    return kvroom.pack(rows, gpu, simulate=False)


@settings(max_examples=8, deadline=None)
@given(PICKS)
def test_what_all_take_is_no_more_than_the_card_and_each_holds_its_users(picks):
    found = packed(rows_of(picks))
    if not found.fits:
        return
    taken = sum(one.seat.trial.held_bytes for one in found.rows_of)
    assert taken == found.taken_bytes[0] <= found.card_bytes[0]
    for one in found.rows_of:
        assert one.seat.trial.verdict.starts
        assert one.seat.trial.requests >= one.seat.entry.keys["concurrency"]


@settings(max_examples=6, deadline=None)
@given(PICKS.filter(lambda picks: len(picks) > 1))
def test_one_more_model_gives_no_other_more_room(picks):
    rows = rows_of(picks)
    few, all_of_them = packed(rows[:-1]), packed(rows)
    if not (few.fits and all_of_them.fits):
        return
    for one, two in zip(few.rows_of, all_of_them.rows_of, strict=False):
        assert two.seat.trial.answer.kv_bytes <= one.seat.trial.answer.kv_bytes


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
def test_a_model_alone_is_its_plan(engine):
    row = {"model": "qwen3-8b", "engine": engine, "users": 4, "context": "8K"}
    found = packed([row]).rows_of[0].seat.trial
    plan = kvroom.plan("qwen3-8b", "H100-SXM", engine=engine, concurrency=4, context_tokens="8K")
    assert found.answer.accounts == plan.memory.accounts
    assert found.verdict.fits == plan.verdict.fits


def test_order_matters_where_a_share_counts_what_others_hold():
    """Before 0.9.1 a share was of all that is taken: the larger has to come last."""
    rows = [
        {"model": "qwen3-4b", "name": "a", "version": "0.8.5", "context": "4K", "share": 0.4},
        {"model": "qwen3-4b", "name": "b", "version": "0.8.5", "context": "4K", "share": 0.8},
    ]
    assert packed(rows).fits
    assert not packed([rows[0] | {"starts": 2}, rows[1] | {"starts": 1}]).fits
