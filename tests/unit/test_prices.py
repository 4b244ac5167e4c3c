"""Prices that the question states, in place of the catalogue's."""

import json

import pytest
from click.testing import CliRunner

import kvroom
from kvroom.errors import KvroomError
from kvroom.hardware.prices import kinds, lists
from kvroom.ui.cli.main import main
from support import check_told


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


@pytest.mark.parametrize("kind", kinds())
def test_a_list_prices_its_cards_and_no_others(kind):
    sheet = lists()["kinds"][kind]
    assert sheet["currency"] == "USD"
    assert sheet["date"] >= "2026"
    for card, usd in sheet["usd_per_hour"].items():
        cost = kvroom.plan("qwen3-0.6b", card, context_tokens="1K", prices={"*": kind}).cost
        assert cost.usd_per_hour == usd
        assert sheet["terms"] in cost.price_source
        assert sheet["date"] in cost.price_source
    cost = kvroom.plan("qwen3-0.6b", "MI300X", context_tokens="1K", prices={"*": kind}).cost
    assert cost.usd_per_hour is None
    assert f"no {kind} price of MI300X is known" in cost.price_source


def test_reserved_costs_less_than_on_demand():
    sheets = lists()["kinds"]
    reserved, hourly = (sheets[kind]["usd_per_hour"] for kind in ("reserved", "on-demand"))
    assert all(usd < hourly[card] for card, usd in reserved.items())


def test_an_owned_card_is_written_off_over_its_hours_and_draws_its_limit():
    terms = "owned:35064:years=4:kwh=0.10:utilisation=0.5"
    cost = kvroom.plan("llama-3-8b", "H100-SXM", prices={"H100-SXM": terms}).cost
    assert cost.usd_per_hour == pytest.approx((1.0 + 0.7 * 0.10) / 0.5)  # 35,064 hours; 700 W
    assert "700 W" in cost.price_source
    assert "in use 50%" in cost.price_source


def test_a_card_without_a_price_says_so():
    cost = kvroom.plan("llama-3-8b", "MI300X").cost
    assert cost.usd_per_hour is None
    assert cost.price_source == "no price of MI300X is known (--price MI300X=USD an hour)"


@pytest.mark.parametrize(
    "terms", ["resrved", "owned", "owned:", "owned:x", "owned:1:yeers=2", "owned:1:years=0"]
)
def test_terms_that_are_none_are_refused(terms):
    with pytest.raises(KvroomError) as refused:
        kvroom.plan("llama-3-8b", "H100-SXM", prices={"*": terms})
    check_told(refused.value)


def test_a_machine_file_has_a_price_over_a_catalogue_card(tmp_path):
    file = tmp_path / "ours.toml"
    file.write_text('device = "H100-SXM"\nusd_per_hour = 2.4\n')
    cost = kvroom.plan("llama-3-8b", file, gpu_count=2).cost
    assert cost.usd_per_hour == pytest.approx(4.8)
    assert "given by a machine file" in cost.price_source


def test_a_price_below_nothing_is_refused():
    with pytest.raises(KvroomError, match="prices"):
        kvroom.plan("llama-3-8b", "H100-SXM", prices={"H100-SXM": -1})
