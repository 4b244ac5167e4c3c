"""Random loads as SGLang's own scheduler served them, step by step: with drafts and without, tight and roomy.

The figures in sglang_steps.json are those of the ``Scheduler`` of the release that each names (from PyPI),
which kvroom asked itself (``tests/engine/test_sglang.py``); no model was run, and which drafts are kept is
kvroom's draw.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.compared import Trail, planned
from engine.sglang_loads import drawn
from kvroom import engines
from kvroom.simulator.replay import play

ROWS = json.loads((Path(__file__).parent / "sglang_steps.json").read_text())


@pytest.mark.parametrize("row", ROWS, ids=[f"{row['release']}-{row['seed']}" for row in ROWS])
def test_every_step_is_sglangs(row: dict[str, Any]) -> None:
    load = drawn(row["seed"], row["release"])
    made = planned(load)
    rules = engines.served_by(made.deployment, made.answer)
    trail = Trail()
    play(rules.scheduler(), load.served(rules.name_tokens), on_scheduled=trail)
    assert trail.told == row["told"], load.name
