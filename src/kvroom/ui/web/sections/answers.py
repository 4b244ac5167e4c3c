"""What a section answers: the Plan's own keys, one figure more, and how that one's numbers follow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kvroom.answer.figures import Explanation, chained
from kvroom.planner.explain import explain
from kvroom.planner.plan import Workings
from kvroom.planner.tiers import plan_json
from kvroom.scenario.command_line import command
from kvroom.ui.web import derived
from kvroom.ui.web.figures import figures


def sectioned(
    workings: Workings, name: str, figure: dict[str, Any], explanations: Iterable[Explanation]
) -> dict[str, Any]:
    """``w``'s answer with ``figures.name``, as the page's elements take it."""
    return {
        **plan_json(workings),
        "explanations": [e.to_dict() for e in _down(workings, tuple(explanations))],
        "figures": {name: figure},
        "take_away": {"command": command(workings.plan.scenario)},
    }


def _down(workings: Workings, told: tuple[Explanation, ...]) -> list[Explanation]:
    """What is ``told``, and what it follows from down to the config, the card and the question."""
    below = (*explain(workings), *derived.explanations(workings, figures(workings)))
    all_told = {e.figure: e for e in chained((*below, *told))}
    left = [e.figure for e in told]
    kept: dict[str, Explanation] = {}
    while left:
        key = left.pop()
        if key not in kept:
            kept[key] = all_told[key]
            left.extend(all_told[key].of)
    return list(kept.values())
