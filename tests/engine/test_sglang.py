"""An installed SGLang asked itself: its pools and its scheduler are what kvroom says, to the last token.

``KVROOM_SGLANG`` is a Python that has one (``make follow ENGINE=sglang`` sets one up); no card is needed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from engine.compared import compared, planned
from engine.sglang_loads import PYTHON, RELEASE, drawn
from kvroom import api
from kvroom.observe.installed.engine import InstalledEngine, installed
from kvroom.observe.installed.process import ProcessLimits
from kvroom.scenario.scenario import Scenario
from unit import test_sglang_capacity as recorded

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON, reason="needs a Python that has SGLang (KVROOM_SGLANG)"),
]
LIMITS = ProcessLimits(answer_s=900.0)
LOADS = int(os.environ.get("KVROOM_LOADS", "10"))
FIRST = int(os.environ.get("KVROOM_FIRST_LOAD", "0"))


@pytest.fixture(scope="module")
def engine() -> Iterator[InstalledEngine]:
    with installed(PYTHON, planned(drawn(0)), LIMITS) as asked:
        yield asked


@pytest.mark.parametrize("seed", range(FIRST, FIRST + LOADS))
def test_both_schedulers_agree_to_the_last_token(engine: InstalledEngine, seed: int) -> None:
    made = compared(engine, drawn(seed))
    assert not made.refused, made.refused
    assert made.blocks[0] == made.blocks[1]
    assert not made.first, f"load {made.load.name}: {made.first}"


CASES = [each for each in recorded.GOLDEN if each[0] == RELEASE]


def test_pools_are_what_its_own_code_says() -> None:
    by_card: dict[str, list[Scenario]] = {}
    for case in CASES:
        by_card.setdefault(case[2], []).append(recorded.question(case))
    other = []
    for questions in by_card.values():
        with installed(PYTHON, api.workings(questions[0]), LIMITS) as asked:
            for scenario in questions:
                told = asked.plan(api.workings(scenario))
                if not told.note.endswith("kvroom's own rules say the same"):
                    other.append(f"{scenario.model} {scenario.engine_args}: {told.note}")
    assert not other
