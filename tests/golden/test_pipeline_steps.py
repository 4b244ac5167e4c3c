"""Random loads on pipelines as vLLM's own scheduler served them, step by step, its batches in flight.

The figures in pipeline_steps.json are those of the ``Scheduler`` of the release that each names (from PyPI),
which kvroom asked itself (``tests/engine/test_installed.py``); no model was run.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.compared import Trail, planned
from engine.loads import drawn
from kvroom import engines
from kvroom.simulator.replay import play

ROWS = json.loads((Path(__file__).parent / "pipeline_steps.json").read_text())


@pytest.mark.parametrize(
    "row", ROWS, ids=[f"{row['release']}-{row['seed']}-{row['stages']}" for row in ROWS]
)
def test_every_step_is_vllms(row: dict[str, Any]) -> None:
    load = drawn(row["seed"], row["release"], stages=row["stages"])
    made = planned(load)
    rules = engines.served_by(made.deployment, made.answer)
    trail = Trail()
    play(rules.scheduler(), load.served(rules.name_tokens), on_scheduled=trail)
    assert trail.told == row["told"], load.name
