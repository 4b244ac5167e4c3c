"""``kvroom launch``: the command, or the chart's values, as text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvroom.errors import KvroomError, did_you_mean
from kvroom.launchers import helm
from kvroom.launchers.launch import Launch, launch, shell
from kvroom.planner.plan import work
from kvroom.scenario.scenario import Scenario

FORMS = ("shell", "helm")


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The command as words and as text, the files that it reads, and what to know of it."""

    engine: str
    argv: list[str]
    files: dict[str, str]
    command: str
    values: str | None
    scenario: dict[str, Any]
    notes: tuple[str, ...]
    refused: str = ""
    """Why the engine would not start so; nothing is handed out then."""


def ask(scenario: Scenario) -> Answer:
    """The command for a question."""
    made = work(scenario)
    found: Launch = launch(made)
    chart = None
    if found.dialect.engine == "vllm":
        chart = helm.values(found, made.plan.weights.bytes)
    return Answer(
        engine=found.dialect.engine,
        argv=found.argv,
        files=dict(found.files),
        command=shell(found),
        values=chart,
        scenario=found.scenario.differences(),
        notes=found.notes,
        refused="" if made.answer.starts else made.plan.verdict.sentence,
    )


def show(made: Answer, form: str) -> str:
    """The text of ``form``."""
    if form not in FORMS:
        fix = did_you_mean(form, FORMS, f"One of: {', '.join(FORMS)}.")
        raise KvroomError("--format", form, "is no form of a command", fix)
    if form == "shell":
        return made.command
    if made.values is None:
        raise KvroomError(
            "--format", form, f"is for vLLM, not {made.engine}", "Use --format shell."
        )
    return made.values
