"""The same question elsewhere: as a command, as Python, as a link, as engines' own flags."""

from __future__ import annotations

import shlex
from typing import Any

from kvroom.engines.registry import all_engines
from kvroom.errors import KvroomError
from kvroom.models import catalogue
from kvroom.planner.plan import Workings
from kvroom.scenario.command_line import command, python
from kvroom.scenario.scenario import Scenario
from kvroom.ui.web.assumptions import assumptions


def _published(model: str | dict[str, Any]) -> str:
    try:
        return catalogue.hub_id(model) if isinstance(model, str) else "MODEL"
    except KvroomError:
        return str(model)


def engine_flags(workings: Workings) -> dict[str, str]:
    """The engines' own command lines for this deployment, by engine."""
    scenario, deployment = workings.plan.scenario, workings.deployment
    model = _published(scenario.model)
    lines: dict[str, str] = {}
    for engine in all_engines():
        line = engine.command
        if line is None or not {"tp", "context_tokens", "kv_dtype"} <= set(line.keys):
            continue
        words = [*line.programs[0], *([line.typed(line.model_flag)] if line.model_flag else ())]
        words += [model, line.typed(line.keys["context_tokens"][0]), str(deployment.context_tokens)]
        for key in ("tp", "pp", "dp"):
            if key in line.keys and getattr(scenario, key) > 1:
                words += [line.typed(line.keys[key][0]), str(getattr(scenario, key))]
        if deployment.kv_name.startswith("fp8"):
            words += [line.typed(line.keys["kv_dtype"][0]), line.dtypes.get("fp8", "fp8")]
        if scenario.concurrency is not None:
            words += [line.typed(engine.limits.sequences), str(scenario.concurrency)]
        if scenario.engine == engine.name:
            for key, value in scenario.engine_args.items():
                words += [line.typed(key), str(value)]
        lines[line.label] = shlex.join(words)
    return lines


def take_away(workings: Workings, scenario: Scenario) -> dict[str, Any]:
    """The question as it was asked as a link, a command, Python; and what the answer rests on."""
    return {
        "link": scenario.link("#").removeprefix("#"),
        "command": command(scenario),
        "python": python(scenario),
        "assumptions": assumptions(workings),
    }
