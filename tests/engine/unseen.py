"""Models and settings that no other test has, as an installed vLLM answers them: what it says of its cache,
and what its scheduler makes of one load each. Its answers lie in ``tests/golden/asked_vllm.json``.

    PYTHONPATH=tests python -m engine.unseen PYTHON [ROW …] < rows

asks the Python of a vLLM anew about rows of JSON, a line each, and prints them with what it says.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

from engine.compared import compared, planned
from engine.loads import Load, chats
from kvroom.errors import KvroomError
from kvroom.observe.installed.engine import InstalledEngine, installed
from kvroom.observe.installed.process import ProcessLimits
from kvroom.planner.plan import Workings
from kvroom.simulator.script_results import ScriptResult

Row = dict[str, Any]
ROWS: list[Row] = json.loads(
    (Path(__file__).parents[1] / "golden" / "asked_vllm.json").read_text("utf-8")
)


def load_of(row: Row) -> Load:
    """The load of a row, drawn by its seed."""
    context = row["scenario"]["engine_args"]["max_model_len"]
    return Load(row["name"], row["scenario"], chats(random.Random(row["seed"]), context))


def figures(made: Workings) -> list[Any]:
    """Blocks, their tokens, the printed size, concurrency, requests in a step; why it does not start."""
    room = made.answer.capacity
    if not made.answer.starts or room is None:
        return [False]
    most = room.max_concurrency
    return [
        room.num_blocks,
        room.block_tokens,
        room.kv_tokens,
        None if most is None else round(most, 6),
        room.max_running_requests,
    ]


def outcome(played: ScriptResult) -> Row:
    """What came of a load."""
    totals = played.totals
    return {
        "steps": played.total_steps,
        "hits": totals.cached_tokens_all,
        "preemptions": totals.preemptions,
        "peak_blocks": totals.peak_blocks_in_use,
    }


def ask(engine: InstalledEngine, row: Row) -> Row:
    """The row with what the engine says; ``other`` where kvroom's own rules say something else."""
    made = planned(load_of(row))
    asked = engine.plan(made)
    row = {**row, "figures": figures(asked.workings)}
    other = "" if figures(made) == row["figures"] else asked.note
    if row.get("seed") is not None and row["figures"] != [False]:
        both = compared(engine, load_of(row))
        assert both.engine is not None
        row["played"], other = outcome(both.engine), other or both.first
    return {**row, "other": other} if other else row


def main(python: str) -> None:
    """Ask about the rows of the standard input."""
    rows = [json.loads(line) for line in sys.stdin if line.strip()]
    with installed(python, planned(load_of(rows[0])), ProcessLimits(answer_s=1500.0)) as engine:
        for row in rows:
            try:
                print(json.dumps(ask(engine, row)), flush=True)
            except KvroomError as error:
                print(json.dumps({**row, "unasked": str(error)[:300]}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
