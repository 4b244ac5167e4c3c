"""The peaks that a step meets: what a card's power limit leaves of them."""

import pytest

from kvroom.hardware import find
from kvroom.hardware.device import Device
from kvroom.latency.step_time import SUSTAINED_FLOPS_PER_J, Rates


@pytest.mark.parametrize("name", ["RTX-4090", "RTX-5090", "H100-SXM", "A100-SXM-80"])
def test_cards_with_power_to_spare_keep_their_peak(name):
    rates = Rates.of(find(name), "bf16")
    assert rates is not None and rates.wide_flops_per_s == find(name).flops("bf16")


@pytest.mark.parametrize(("name", "reached"), [("L40S", 0.65), ("B200-SXM", 0.77), ("GB300", 0.85)])
def test_operators_reach_nine_tenths_of_what_power_allows(name, reached):
    """The middle of what NVIDIA's 16-bit GEMMs reach of the data sheet's peak (operators.json)."""
    card = find(name)
    rates = Rates.of(card, "bf16")
    assert rates is not None
    assert 0.9 * rates.wide_flops_per_s / card.flops("bf16") == pytest.approx(reached, rel=0.07)


def test_narrow_products_are_held_alike():
    card = find("L40S")
    wide, narrow = Rates.of(card, "bf16"), Rates.of(card, "fp8")
    assert wide is not None and narrow is not None
    assert narrow.narrow_flops_per_s / card.flops("fp8") == pytest.approx(
        wide.wide_flops_per_s / card.flops("bf16")
    )


def test_half_the_power_holds_half_the_rate():
    def rate(watts: float) -> float:
        device = Device(
            name="card",
            sold_bytes=10**10,
            memory_bytes_per_s=1e12,
            flops_per_s={"bf16": 4e14},
            tdp_w=watts,
            compute_capability="8.9",
        )
        rates = Rates.of(device, "bf16")
        assert rates is not None
        return rates.wide_flops_per_s

    assert rate(300) == 300 * SUSTAINED_FLOPS_PER_J["8.9"] == 2 * rate(150)
    assert rate(10_000) == 4e14
