"""An engine that is told its free memory, and a scheduler that refuses, shortens and forgets, with fakes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kvroom import api
from kvroom.engines.registry import engine_of
from kvroom.kvcache.request import RequestStatus, ServedRequest
from kvroom.observe.installed.engine import InstalledEngine, card_of
from kvroom.observe.installed.scheduler import EngineFacts, InstalledScheduler
from kvroom.scenario.scenario import Scenario

BEFORE, WEIGHTS, VISIBLE = 84_396_107_366, 16_399_999_999, 85_520_809_984


class Answers:
    """An engine's process that gives the answers it was handed, one after the other."""

    def __init__(self, folder: Path, *answers: dict[str, Any]) -> None:
        self.folder, self.python = folder, "python"
        self.answers = list(answers)
        self.asked: list[dict[str, Any]] = []

    def ask(self, name: str, **question: Any) -> dict[str, Any]:
        self.asked.append({"ask": name, **question})
        return self.answers.pop(0)


def question(**args: Any) -> Scenario:
    return Scenario.from_dict(
        {
            "model": "qwen3-8b",
            "gpu": "H100-SXM",
            "engine": "sglang",
            "context_tokens": 8192,
            "engine_args": args,
            "known_bytes": {
                "visible": VISIBLE, "free_before_load": BEFORE, "weights": WEIGHTS,
            },
        }
    )  # fmt: skip


TOLD = {
    "num_blocks": 363_829, "block_tokens": 1, "kv_tokens": 363_829, "max_concurrency": None,
    "max_model_len": 8192, "max_num_seqs": 4096, "prefix_caching": True,
}  # fmt: skip


def test_it_is_told_what_memory_is_free_before_and_after_loading(tmp_path: Path) -> None:
    process = Answers(tmp_path, TOLD)
    engine = InstalledEngine(process, engine_of("sglang"), "0.5.23")  # type: ignore[arg-type]
    made = api.workings(question())
    asked = engine.plan(made)
    memory = process.asked[0]["memory"]
    assert memory == {"before_load": BEFORE, "after_load": BEFORE - WEIGHTS}
    card = card_of(made.deployment)
    assert card["memory_bytes"] == VISIBLE
    assert card["listed_bytes"] == made.deployment.device.driver_bytes  # as nvidia-smi tells
    assert asked.note.endswith("kvroom's own rules say the same")
    assert asked.workings.plan.capacity.engine == made.plan.capacity.engine


@pytest.mark.parametrize("share", [None, 0.7])
def test_its_share_is_its_own_unless_told(tmp_path: Path, share: float | None) -> None:
    process = Answers(tmp_path)
    engine = InstalledEngine(process, engine_of("sglang"), "0.5.23")  # type: ignore[arg-type]
    args = {} if share is None else {"mem_fraction_static": share}
    words, _ = engine.words(api.workings(question(**args)), paths=False)
    assert ("--mem-fraction-static" in words) == (share is not None)


def test_other_pools_are_told_where_they_differ(tmp_path: Path) -> None:
    process = Answers(tmp_path, TOLD | {"state_slots": 7, "kv_tokens": 1000, "num_blocks": 1000})
    engine = InstalledEngine(process, engine_of("sglang"), "0.5.23")  # type: ignore[arg-type]
    asked = engine.plan(api.workings(question()))
    assert "1,000 tokens and not 363,829" in asked.note
    assert "7 slots of state and not none" in asked.note


def scheduler(*answers: dict[str, Any], keeps_stale: bool = True) -> InstalledScheduler:
    engine = SimpleNamespace(ask=Answers(Path(), *answers).ask, name="toy", process=None)
    facts = EngineFacts(number=0, steps_in_flight=2, max_model_len=100, keeps_stale=keeps_stale)
    return InstalledScheduler(engine, facts)  # type: ignore[arg-type]


def step(**more: Any) -> dict[str, Any]:
    return {"held": 0, "running": 1, "waiting": 0, "rows": [], **more}


def test_what_it_refuses_is_dropped_and_what_it_shortens_is_shorter() -> None:
    rules = scheduler(step(refused=[0], shorter=[[1, 3]], rows=[[1, 9, True, 0]], step=0))
    long, cut = ServedRequest(0, 0, 90, 5), ServedRequest(1, 0, 9, 50)
    rules.add_request(long)
    rules.add_request(cut)
    output = rules.schedule()
    assert output.dropped == [long]
    assert long.status is RequestStatus.DROPPED
    assert cut.output_tokens == 3


@pytest.mark.parametrize("keeps", [True, False])
def test_tokens_under_way_at_a_preemption(keeps: bool) -> None:
    first = step(rows=[[0, 9, True, 0]], step=0, admitted=[[0, 0, False]])
    rules = scheduler(
        first, step(rows=[0], step=1), step(preempted=[0], rows=[]), keeps_stale=keeps
    )
    request = ServedRequest(0, 0, 9, 50)
    rules.add_request(request)
    prompt, decode = rules.schedule(), rules.schedule()
    rules.update_from_output(prompt)
    rules.schedule()
    rules.update_from_output(decode)
    assert request.num_tokens == 9 + 1 + keeps
