"""What a deployment shares with others, as the fit of times sees it."""

import pytest

from kvroom.planning import deploy
from kvroom.scenario import Scenario
from kvroom.timing.calibration import SERVERS, coefficients, kind_of_level, levels, shipped


def of(engine, version=None, *, gpu="H100-SXM", **keys):
    scenario = {
        "model": "llama-3-8b",
        "gpu": gpu,
        "engine": engine,
        "engine_version": version,
        **keys,
    }
    return levels(deploy(Scenario.from_dict(scenario))[0])


@pytest.mark.parametrize("engine", SERVERS)
def test_servers_of_today_share_a_level(engine):
    assert "served=new" in of(engine)
    assert not any(x.startswith("served=other") for x in of(engine))


@pytest.mark.parametrize(("engine", "version"), [("vllm", "0.7.3"), ("llama.cpp", None)])
def test_what_others_make_of_a_card_is_told_apart(engine, version):
    found = of(engine, version)
    assert "served=new" not in found
    assert {"served=other chip=9.0", "served=other gpu=H100-SXM"} <= set(found)


def test_old_releases_have_an_effect_of_their_own():
    assert "engine=vllm era=old" in of("vllm", "0.7.3")
    assert not any("era=" in x for x in of("vllm", "0.19.0"))


def test_buses_differ_by_chip_and_by_how_many_cards_are_on_them():
    pair = of("vllm", gpu="RTX-PRO-6000-BSE", gpu_count=2, tp=2)
    assert {"link=bus", "link=bus tp=2", "chip=12.0 link=bus tp=2"} <= set(pair)
    assert "link=bus" not in of("vllm", gpu_count=2, tp=2)


def test_all_reduces_over_a_bus_take_what_operators_measure():
    """Of PCIe's rate, in pairs: an L40S's three tenths, an RTX PRO 6000's two (operators.json)."""

    def share(gpu, cards):
        k = coefficients(of("tensorrt-llm", gpu=gpu, gpu_count=cards, tp=cards), shipped())
        return k.link_eta

    assert share("RTX-PRO-6000-BSE", 2) == pytest.approx(0.18, rel=0.25)
    assert share("L40S", 2) == pytest.approx(0.3, rel=0.25)
    assert share("L40S", 8) < share("L40S", 4) < share("L40S", 2)


def test_every_fitted_level_can_be_met():
    kinds = {kind_of_level(x) for x in shipped()["effects"]}
    cards = [
        ("RTX-PRO-6000-BSE", 2, "vllm", None),
        ("A100-SXM-80", 2, "vllm", "0.7.3"),
        ("H100-SXM", 1, "vllm", None),
    ]
    met = set()
    for gpu, count, engine, version in cards:
        scenario = {
            "model": "llama-3-8b",
            "gpu": gpu,
            "gpu_count": count,
            "tp": count,
            "engine": engine,
        }
        d, _ = deploy(Scenario.from_dict(scenario | {"engine_version": version}))
        met |= {kind_of_level(x) for x in levels(d, auto_cache=True)}
    assert kinds <= met
