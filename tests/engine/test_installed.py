"""An installed vLLM asked itself: its capacity and its scheduler are what kvroom says, block for block.

A night draws 200 loads (``KVROOM_LOADS``); each is played by both schedulers on the same blocks.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from engine import models, server, unseen
from engine.compared import compared, planned
from engine.loads import MODELS, drawn
from kvroom import api
from kvroom.observe.installed.engine import InstalledEngine, installed
from kvroom.observe.installed.process import ProcessLimits
from kvroom.scenario.scenario import Scenario
from kvroom.units import GIB

pytestmark = pytest.mark.engine

LOADS = int(os.environ.get("KVROOM_LOADS", "10"))
FIRST = int(os.environ.get("KVROOM_FIRST_LOAD", "0"))


@pytest.fixture(scope="module")
def engine() -> Iterator[InstalledEngine]:
    limits = ProcessLimits(answer_s=900.0)
    with installed(server.PYTHON, planned(drawn(0, server.RELEASE)), limits) as asked:
        yield asked


@pytest.mark.parametrize("seed", range(FIRST, FIRST + LOADS))
def test_both_schedulers_agree_block_for_block(engine: InstalledEngine, seed: int) -> None:
    made = compared(engine, drawn(seed, server.RELEASE))
    assert not made.refused, made.refused
    assert made.blocks[0] == made.blocks[1]
    assert not made.first, f"load {made.load.name}: {made.first}"


def test_what_its_scheduler_is_spared_decides_nothing(
    engine: InstalledEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVROOM_SPARE_NOTHING", "1")
    names = ["plain", "interleaved windows", "latents", "gated delta nets"]
    loads = [drawn(seed, server.RELEASE, [name]) for seed, name in enumerate(names)]
    with installed(server.PYTHON, planned(loads[0]), ProcessLimits(answer_s=900.0)) as whole:
        for load in loads:
            assert compared(whole, load).engine == compared(engine, load).engine


@pytest.mark.parametrize("row", unseen.ROWS, ids=lambda row: row["name"])
def test_it_still_answers_models_that_no_other_test_has(
    engine: InstalledEngine, row: unseen.Row
) -> None:
    assert unseen.ask(engine, row) == row


def test_a_simulation_is_the_same_by_both() -> None:
    """Decode steps are asked for together here, and served one by one above."""
    scenario = Scenario.from_dict(
        {
            "model": {"config": models.LLAMA},
            "gpu": "H100-SXM",
            "engine_version": server.RELEASE,
            "engine_args": {"max_model_len": 2048, "kv_cache_memory_bytes": GIB // 256},
            "workload": {
                "arrivals": "poisson:300/s", "input": "uniform:100-1500", "output": "uniform:5-300",
                "requests": 60,
            },
        }
    )  # fmt: skip
    own = api.simulate(scenario, seed=3)
    theirs = api.simulate(scenario, seed=3, scheduler="engine", engine_python=server.PYTHON)
    assert own.figures["preemptions"] > 0
    assert list(theirs.rows()) == list(own.rows())


CAPACITY: dict[str, tuple[models.Config, dict[str, Any]]] = {
    **{name: (config, {}) for name, (config, _) in MODELS.items()},
    "eight bits": (models.GEMMA3, {"kv_cache_dtype": "fp8"}),
    "windows in full": (models.GEMMA3, {"disable_hybrid_kv_cache_manager": True}),
    "small batches": (models.GEMMA3_UNEVEN, {"max_num_batched_tokens": 700}),
    "no prefix cache": (models.GRANITE, {"enable_prefix_caching": False}),
    "no overlap": (models.GEMMA3, {"async_scheduling": False}),
    "LoRA": (models.LLAMA, {"enable_lora": True, "max_lora_rank": 16}),
    "ngram drafts": (
        models.LLAMA,
        {"speculative_config": {"method": "ngram", "num_speculative_tokens": 3}},
    ),
}


@pytest.mark.parametrize("case", CAPACITY)
def test_capacity_is_what_its_own_code_says(engine: InstalledEngine, case: str) -> None:
    config, args = CAPACITY[case]
    scenario = Scenario.from_dict(
        {
            "model": {"config": config},
            "gpu": "H100-SXM",
            "engine_version": server.RELEASE,
            "engine_args": {"max_model_len": 4096, "kv_cache_memory_bytes": GIB, **args},
        }
    )
    asked = engine.plan(api.workings(scenario))
    assert "error" not in asked.told, asked.note
    assert asked.note.endswith("kvroom's own rules say the same")
