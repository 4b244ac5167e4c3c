"""Models and settings that no other test has, as vLLM 0.32.0 itself answered them (``engine.unseen``): its
blocks, and what its scheduler made of a load of chats; shapes are those of published configs."""

from __future__ import annotations

import pytest

from engine.compared import planned
from engine.unseen import ROWS, Row, figures, load_of, outcome
from kvroom import engines
from kvroom.simulator.replay import play


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_own_rules_say_what_vllm_said(row: Row) -> None:
    load = load_of(row)
    made = planned(load)
    assert figures(made) == row["figures"]
    if "played" in row:
        rules = engines.served_by(made.deployment, made.answer)
        played = play(rules.scheduler(), load.served(rules.name_tokens))
        assert outcome(played) == row["played"]
