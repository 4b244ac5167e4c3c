"""The answer of ``launch``: an engine's command as words and as text, and as values of a Helm chart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvroom.errors import KvroomError, did_you_mean
from kvroom.launchers import helm
from kvroom.launchers.launch import launch, shell
from kvroom.planner.plan import Workings

FORMS = ("shell", "helm")


@dataclass(frozen=True, kw_only=True)
class EngineCommand:
    """The command as words and as text, the files that it reads, and what to know of it."""

    engine: str
    argv: list[str]
    files: dict[str, str]
    command: str
    values: str | None
    scenario: dict[str, Any]
    notes: tuple[str, ...]

    def text(self, form: str = "shell") -> str:
        """The text of ``form`` (shell, helm); KvroomError where there is none."""
        if form not in FORMS:
            fix = did_you_mean(form, FORMS, f"One of: {', '.join(FORMS)}.")
            raise KvroomError("--format", form, "is no form of a command", fix)
        if form == "shell":
            return self.command
        if self.values is None:
            why = f"is for vLLM, not {self.engine}"
            raise KvroomError("--format", form, why, "Use --format shell.")
        return self.values


def engine_command(w: Workings) -> EngineCommand:
    """The command that realises a plan."""
    launched = launch(w)
    engine = launched.dialect.engine
    chart = helm.values(launched, w.plan.weights.bytes) if engine == "vllm" else None
    return EngineCommand(
        engine=engine,
        argv=launched.argv,
        files=dict(launched.files),
        command=shell(launched),
        values=chart,
        scenario=launched.scenario.differences(),
        notes=launched.notes,
    )
