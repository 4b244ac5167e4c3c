"""The layout that is chosen where only a number of cards is said."""

import pytest

from kvroom.planner.layout import laid_out
from kvroom.planner.plan import plan
from kvroom.scenario.scenario import Scenario


def asked(model, gpu, count, **keys):
    keys = {"engine_version": "0.33.0", "context_tokens": 8192, **keys}
    return Scenario.from_dict({"model": model, "gpu": gpu, "gpu_count": count, **keys})


def degrees(scenario):
    return tuple(getattr(scenario, k) for k in ("tp", "pp", "dp", "ep"))


@pytest.mark.parametrize(
    ("model", "gpu", "count", "layout"),
    [
        ("llama-3-70b", "H100-SXM", 4, (4, 1, 1, 1)),
        ("llama-3-70b", "H100-SXM", 16, (8, 1, 2, 1)),  # replicas across machines
        ("llama-3.1-405b", "H100-SXM", 16, (8, 2, 1, 1)),  # 8 cards hold no replica
        ("llama-3.1-8b", "H100-SXM", 3, (1, 1, 3, 1)),  # 32 heads in no three parts
        ("llama-3-70b", "H100-SXM", 3, (1, 3, 1, 1)),
        ("deepseek-v3", "H200-SXM", 16, (1, 1, 16, 16)),
        ("qwen3-30b-a3b", "H100-SXM", 2, (2, 1, 1, 1)),  # tensor ranks keep nothing twice
    ],
)
def test_a_layout_that_people_run(model, gpu, count, layout):
    chosen, notes = laid_out(asked(model, gpu, count))
    assert degrees(chosen) == layout
    assert chosen.tp * chosen.pp * chosen.dp == count
    assert bool(notes) is (layout != (count, 1, 1, 1))


def test_deepseek_on_two_machines_holds_1840():
    """About 115 requests of 8K in each of 16 ranks, where tensor ranks of two machines hold 146 together."""
    made = plan(asked("deepseek-v3", "H200-SXM", 16))
    assert 16 * int(made.capacity.engine.max_concurrency) == pytest.approx(1840, rel=0.06)
    assert any("dp 16 ep 16" in w for w in made.warnings)
    assert not any("layout" in w for w in plan(made.scenario).warnings)


def test_few_users_stay_with_tensor_ranks():
    few, many = (laid_out(asked("deepseek-v3", "H200-SXM", 8, concurrency=n))[0] for n in (8, 300))
    assert degrees(few) == (8, 1, 1, 1)
    assert degrees(many) == (1, 1, 8, 8)


def test_what_is_told_stands():
    told = asked("deepseek-v3", "H200-SXM", 16, tp=16)
    assert laid_out(told) == (told, ())


def test_an_engine_without_tensor_ranks_deals_out_layers():
    assert degrees(laid_out(asked("llama-3-70b", "RTX-4090", 2, engine="llama.cpp"))[0]) == (
        1, 2, 1, 1,
    )  # fmt: skip


def test_an_open_layout_stays_open_through_dict_and_link():
    open_ = asked("llama-3-70b", "H100-SXM", 4)
    assert open_.layout_open
    assert open_.to_dict()["tp"] is None
    assert "tp" not in open_.differences()
    assert Scenario.from_dict(open_.to_dict()) == open_ == Scenario.from_link(open_.link())
    assert plan(open_) == plan(asked("llama-3-70b", "H100-SXM", 4, tp=4))
