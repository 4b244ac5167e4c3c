"""What a section answers: the Plan's own keys, one figure more, and how that one's numbers follow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kvroom.answer.figures import Explanation, chained
from kvroom.planner.plan import Workings
from kvroom.planner.tiers import plan_json
from kvroom.scenario.command_line import command


def sectioned(
    workings: Workings, name: str, figure: dict[str, Any], explanations: Iterable[Explanation]
) -> dict[str, Any]:
    """``w``'s answer with ``figures.name``, as the page's elements take it."""
    return {
        **plan_json(workings),
        "explanations": [e.to_dict() for e in chained(explanations)],
        "figures": {name: figure},
        "take_away": {"command": command(workings.plan.scenario)},
    }
