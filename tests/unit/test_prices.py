"""Prices that the question states, in place of the catalogue's."""

import json

import pytest
from click.testing import CliRunner

import kvroom
from kvroom.errors import KvroomError
from kvroom.ui.cli.main import main


def test_a_told_price_is_a_cards_own_by_any_of_its_names():
    for name in ("MI300X", "mi300x-192gb"):
        plan = kvroom.plan("llama-3-8b", "MI300X", gpu_count=2, prices={name: 2.10})
        assert plan.cost.usd_per_hour == pytest.approx(4.20)


def test_another_cards_price_is_said_to_be_unused():
    plan = kvroom.plan("llama-3-8b", "H100-SXM", prices={"L4": 0.5})
    assert plan.cost.usd_per_hour == kvroom.plan("llama-3-8b", "H100-SXM").cost.usd_per_hour
    assert any("price of L4" in w and "not used" in w for w in plan.warnings)


def test_the_flag():
    told = CliRunner().invoke(
        main, ["plan", "llama-3-8b", "--gpu", "MI300X:2", "--price", "MI300X=2.10", "--json"]
    )
    assert json.loads(told.stdout)["cost"]["usd_per_hour"] == pytest.approx(4.20)
    for wrong in ("MI300X", "MI300X=cheap", "=2"):
        told = CliRunner().invoke(main, ["plan", "llama-3-8b", "--gpu", "MI300X", "--price", wrong])
        assert told.exit_code == 2
        assert "--price" in told.stderr


def test_a_price_below_nothing_is_refused():
    with pytest.raises(KvroomError, match="prices"):
        kvroom.plan("llama-3-8b", "H100-SXM", prices={"H100-SXM": -1})
