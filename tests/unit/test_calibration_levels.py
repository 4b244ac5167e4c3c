"""What a deployment shares with others, as the fit of times sees it."""

import pytest

from kvroom.engines.registry import all_engines
from kvroom.latency.calibration import coefficients, kind_of_level, levels, shipped
from kvroom.planner.place import deploy
from kvroom.scenario.scenario import Scenario
from support import asked


def of(engine, version=None, *, gpu="H100-SXM", **keys):
    scenario = {
        "model": "llama-3-8b",
        "gpu": gpu,
        "engine": engine,
        "engine_version": version,
        **keys,
    }
    return levels(deploy(Scenario.from_dict(scenario))[0])


@pytest.mark.parametrize("engine", [e.name for e in all_engines() if e.serves_many])
def test_servers_of_today_share_a_level(engine):
    assert "served=new" in of(engine)
    assert not any(x.startswith("served=other") for x in of(engine))


@pytest.mark.parametrize(("engine", "version"), [("vllm", "0.7.3"), ("llama.cpp", None)])
def test_what_others_make_of_a_card_is_told_apart(engine, version):
    found = of(engine, version)
    assert "served=new" not in found
    assert {"served=other chip=9.0", "served=other gpu=H100-SXM"} <= set(found)


def test_old_releases_have_an_effect_of_their_own():
    assert "engine=vllm era=v0" in of("vllm", "0.7.3")
    assert "engine=vllm era=2024" in of("vllm", "0.5.4.post1")
    assert "engine=vllm era=2023" in of("vllm", "2023-10")
    assert "engine=vllm era=now" in of("vllm", "0.19.0")
    assert "engine=vllm era=now" in of("vllm", "nightly-5b8c30d")
    assert "engine=vllm era=now" in of("vllm")


@pytest.mark.parametrize(
    ("keys", "recipe"),
    [
        ({}, "default"),
        ({"engine_args": {"max_num_seqs": 64}}, "default"),
        ({"engine_args": {"enable_prefix_caching": True}}, "default"),
        ({"engine_args": {"enable_prefix_caching": False}}, "tuned"),
        ({"engine_args": {"stream_interval": 20}}, "tuned"),
        ({"recipe": "tuned"}, "tuned"),
        ({"recipe": "default", "engine_args": {"stream_interval": 20}}, "default"),
    ],
)
def test_a_recipe_is_as_said_or_as_the_flags_tell(keys, recipe):
    found = of("vllm", "0.19.0", **keys)
    assert f"recipe={recipe}" in found
    assert ("setup=unknown" in found) is (not keys)


def test_who_says_nothing_of_a_server_gets_its_default_in_a_wider_band():
    keys = {"engine": "vllm", "engine_version": "0.19.0", "context_tokens": 4096}
    unsaid = asked("llama-3-8b", "H100-SXM", **keys)
    told = asked("llama-3-8b", "H100-SXM", recipe="default", **keys)
    assert unsaid.plan.step.seconds == told.plan.step.seconds
    assert unsaid.plan.step.seconds_high > told.plan.step.seconds_high


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
        ("H100-SXM", 1, "sglang", None),
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
        met |= {kind_of_level(x) for x in levels(d)}
    assert kinds <= met


def wide(metric, **keys):
    """How many times its figure a band reaches, of a card and an engine."""
    w = asked("llama-3-8b", **{"engine": "vllm", "kv_dtype": "bf16", "context_tokens": 4096} | keys)
    return w.timing.span(metric, 1.0).high


@pytest.mark.parametrize("metric", ["step", "tpot", "ttft"])
def test_what_nobody_measured_has_a_wider_band(metric):
    """The H100 was measured, the B300's generation was, none of a Gaudi's was."""
    seen, akin, strange = (wide(metric, gpu=g) for g in ("H100-SXM", "B300-SXM", "Gaudi-3"))
    assert seen < min(akin, strange)


def test_a_card_measured_by_its_steps_alone_is_new_under_load():
    """The L40S's published runs are of one user: of a server on it they tell little."""
    card = asked("llama-3-8b", "L40S", engine="vllm", context_tokens=4096).timing
    assert "gpu" not in card.unseen("step")
    assert "gpu" in card.unseen("tpot")
    assert "gpu" in card.unseen("ttft")


@pytest.mark.parametrize("width", ["fp8", "bfloat16"])
def test_a_cache_width_told_by_flag_is_told(width):
    """--kv-cache-dtype and --kv-dtype say the same, so a step takes the same."""
    keys = {"engine": "vllm", "weight_dtype": "fp8", "context_tokens": 32768, "concurrency": 16}
    own = {"fp8": "fp8", "bfloat16": "bf16"}[width]
    flag = asked("qwen3-32b", "H200-SXM", engine_args={"kv_cache_dtype": width}, **keys)
    key = asked("qwen3-32b", "H200-SXM", kv_dtype=own, **keys)
    assert flag.plan.step.seconds == key.plan.step.seconds


def test_what_published_runs_did_unsaid_is_told():
    keys = {"engine": "vllm", "context_tokens": 8192}

    def notes(**more):
        warnings = asked("qwen3-32b", "H200-SXM", **keys, **more).plan.warnings
        return [w for w in warnings if "kept the cache in 8 bits" in w]

    assert notes(weight_dtype="fp8")
    assert not notes(weight_dtype="fp8", kv_dtype="bf16")
    assert not notes(weight_dtype="bf16")
