"""The layout that is chosen where only a number of cards is said."""

import pytest

from kvroom.latency.load import held_per_s
from kvroom.planner.layout import laid_out
from kvroom.planner.plan import plan, work
from kvroom.scenario.scenario import Scenario
from kvroom.units import show_seconds


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


@pytest.mark.parametrize(
    ("load", "layout"),
    [
        ({"requests_per_s": 1.0}, (8, 1, 1, 1)),  # both hold it: tokens of tensor ranks come sooner
        ({"requests_per_s": 8.0}, (1, 1, 8, 8)),  # tensor ranks do not
        ({"requests_per_s": 50.0}, (1, 1, 8, 8)),  # neither does: who serves more
        ({"concurrency": 32}, (8, 1, 1, 1)),
        ({"concurrency": 2000}, (1, 1, 8, 8)),
    ],
)
def test_a_load_is_held_and_then_answered_sooner(load, layout):
    load = {"input_tokens": 2000, "output_tokens": 500, **load}
    question = asked("deepseek-v3", "B200-SXM", 8, context_tokens=16384, workload=load)
    (chosen, (why,)) = laid_out(question)
    assert degrees(chosen) == layout
    assert why.startswith("layout chosen: tp 8" if layout[0] == 8 else "layout chosen: dp 8 ep 8")

    def at(tp, dp):
        told = {"tp": tp, "dp": dp, "ep": dp, "pp": 1}
        return work(
            asked("deepseek-v3", "B200-SXM", 8, context_tokens=16384, workload=load, **told)
        )

    made, other = at(chosen.tp, chosen.dp), at(chosen.dp, chosen.tp)
    holds = [
        not w.times.saturated and (w.load.requests_per_s or w.load.users <= w.load.slots)
        for w in (made, other)
    ]
    assert holds[0] or not holds[1]  # it holds the load if either does
    if all(holds):
        assert made.times.tpot_s < other.times.tpot_s
    if holds[0]:
        assert f"a token in {show_seconds(made.times.tpot_s)}" in why
    if load.get("requests_per_s") and not holds[1]:
        assert f"{held_per_s(other.timing.clock, other.load):.3g} requests a second" in why
        assert f"up to {held_per_s(other.timing.clock, other.load):.3g} requests" in "".join(
            other.plan.warnings
        )


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
