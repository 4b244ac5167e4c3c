"""The deployment as what starts it: kvroom's own command, its engine's, charts and manifests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvroom import api
from kvroom.errors import KvroomError
from kvroom.launchers.engine_command import FORMS, EngineCommand, engine_command
from kvroom.scenario.command_line import command
from kvroom.scenario.scenario import Scenario


def answer(scenario: Scenario) -> dict[str, Any]:
    """``forms``, each with its ``text``, and ``notes``; ``refused`` why there is none but ours."""
    own_form = {"form": "kvroom", "text": command(scenario)}
    workings = api.workings(scenario, paths=False, hub=False)
    try:
        start = engine_command(workings)
    except KvroomError as error:
        return {"forms": [own_form], "notes": [], "refused": error.as_dict()}
    return {
        "forms": [*({"form": form, "text": text} for form, text in _texts(start)), own_form],
        "notes": list(start.notes),
        "refused": None,
    }


def _texts(command: EngineCommand) -> Iterator[tuple[str, str]]:
    """The forms that its engine has."""
    for form in FORMS:
        known = form == "shell" or form in command.manifests or (form == "helm" and command.values)
        if known:
            yield form, command.text(form)
