"""Unlike cards that serve one model together."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvroom import plan
from kvroom.errors import KvroomError
from kvroom.hardware import catalogue
from kvroom.hardware.mixed import cards_in_turn, names_in
from kvroom.scenario.scenario import Scenario

CARDS = ("RTX-4090", "RTX-3090", "RTX-3060", "A100-80GB", "A100-40GB")


def asked(gpu: str, **keys: Any) -> Any:
    return plan("llama-3-8b", gpu, context_tokens=8192, **keys)


@given(st.lists(st.sampled_from(CARDS), min_size=2, max_size=5))
def test_ranks_that_wait_for_one_another_are_each_the_least(names: list[str]) -> None:
    mixed = catalogue.find(" + ".join(names))
    cards = [catalogue.find(name) for name in names]
    assert mixed.engine_bytes == min(card.engine_bytes for card in cards)
    assert mixed.memory_bytes_per_s == min(card.memory_bytes_per_s for card in cards)
    assert catalogue.find(mixed.name) == mixed
    row = cards_in_turn(mixed, cards).memory_bytes_per_s
    rates = [card.memory_bytes_per_s for card in cards]
    assert min(rates) * (1 - 1e-9) <= row <= max(rates) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("text", "card", "count"),
    [("RTX4090", "RTX-4090", 1), ("rtx4090x2", "RTX-4090", 2), ("H100x8", "H100", 8)],
)
def test_the_x_of_rtx_is_no_sign_of_times(text: str, card: str, count: int) -> None:
    found = asked(text).scenario
    assert (catalogue.find(found.gpu), found.gpu_count) == (catalogue.find(card), count)


def test_the_same_card_twice_is_two_of_it() -> None:
    one = Scenario.from_dict({"model": "llama-3-8b", "gpu": "H100 + H100"})
    assert one.gpu_count == 2
    assert (
        asked("H100 + H100").to_dict()["memory"] == asked("H100", gpu_count=2).to_dict()["memory"]
    )


def test_a_count_that_the_names_contradict_is_refused() -> None:
    with pytest.raises(KvroomError, match="gpu_count 4 disagree"):
        asked("RTX-4090:2 + RTX-3090", gpu_count=4)
    with pytest.raises(KvroomError, match="list of cards"):
        names_in("RTX-4090 + ")


def test_tensor_ranks_have_the_memory_of_the_smallest() -> None:
    mixed, small = asked("A100-80GB + A100-40GB"), asked("A100-40GB", gpu_count=2)
    assert mixed.capacity.engine.kv_tokens == small.capacity.engine.kv_tokens
    assert any("counts as the least" in warning for warning in mixed.warnings)


def test_layers_are_shared_out_by_memory() -> None:
    """llama.cpp splits layers in proportion to free memory: what a 32 and a 12 GB card hold together is more
    than twice what the smaller holds."""
    keys: dict[str, Any] = {"engine": "llama.cpp", "weight_dtype": "q4_k_m"}
    model = "llama-3-70b"
    assert not plan(model, "RTX-3060", gpu_count=2, engine_args={"fit": "off"}, **keys).verdict.fits
    made = plan(model, "RTX-5090 + RTX-4070-Ti-Super", engine_args={"fit": "off"}, **keys)
    assert made.verdict.fits
    assert made.capacity.ceiling.requests >= 2
    assert plan(model, "RTX-3060 + RTX-5090", **keys).step is not None


def test_ollama_fills_the_largest_card_first() -> None:
    made = plan("llama-3.1-8b", "RTX-3060 + RTX-4090", engine="ollama", weight_dtype="q4_k_m",
                engine_version="0.20.0", engine_args={"num_ctx": 8192})  # fmt: skip
    alone = plan("llama-3.1-8b", "RTX-4090", engine="ollama", weight_dtype="q4_k_m",
                 engine_version="0.20.0", engine_args={"num_ctx": 8192})  # fmt: skip
    assert made.memory.kv_bytes == alone.memory.kv_bytes


def test_prices_of_the_parts_add_up() -> None:
    prices = {"RTX-4090": 0.5, "RTX-3090": 0.3}
    made = asked("RTX-4090 + RTX-3090", prices=prices)
    assert made.cost.usd_per_hour == pytest.approx(0.8)
    assert not any("is not used" in warning for warning in made.warnings)
