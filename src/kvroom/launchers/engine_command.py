"""The answer of ``launch``: an engine's command as words, as text, and as manifests of every form."""

from __future__ import annotations

from typing import Any

from kvroom.errors import KvroomError, StartRefused, did_you_mean
from kvroom.launchers import helm, objects
from kvroom.launchers.launch import launch, shell
from kvroom.planner.plan import Workings
from kvroom.records import dataclass

FORMS = ("shell", "helm", *objects.FORMS)


@dataclass(frozen=True, kw_only=True)
class EngineCommand:
    """The command as words and as text, the files that it reads, what to know of it, and the ``manifests``
    by form; of forms that are not written ``refused`` says why."""

    engine: str
    argv: list[str]
    files: dict[str, str]
    command: str
    values: str | None
    scenario: dict[str, Any]
    notes: tuple[str, ...]
    manifests: dict[str, str]
    refused: dict[str, str]

    def text(self, form: str = "shell") -> str:
        """The text of ``form`` (one of FORMS); KvroomError where the engine has none."""
        if form not in FORMS:
            fix = did_you_mean(form, FORMS, f"One of: {', '.join(FORMS)}.")
            raise KvroomError("--format", form, "is no form of a command", fix)
        if form == "shell":
            return self.command
        if form in self.manifests:
            return self.manifests[form]
        if form in objects.FORMS:
            why, _, fix = self.refused[form].partition(". ")
            raise KvroomError("--format", form, why, fix)
        if self.values is None:
            raise helm.no_chart(self.engine)
        return self.values


def engine_command(workings: Workings) -> EngineCommand:
    """The command that realises a plan; StartRefused where its engine would refuse it."""
    verdict = workings.plan.verdict
    if not verdict.starts:
        fix = next(
            (reason.fix for reason in verdict.reasons if reason.fix), "kvroom plan says more"
        )
        message = verdict.reasons[0].message if verdict.reasons else verdict.sentence
        fix = f"{fix[0].upper()}{fix[1:]}."
        raise StartRefused(f"{workings.plan.scenario.engine} would not start", None, message, fix)
    launched = launch(workings)
    command = launched.command
    chart = helm.values(launched, workings.plan.weights.bytes) if command.chart else None
    manifests, refused = objects.manifests(launched)
    return EngineCommand(
        engine=command.engine,
        argv=launched.argv,
        files=dict(launched.files),
        command=shell(launched),
        values=chart,
        scenario=launched.scenario.differences(),
        notes=launched.notes,
        manifests=manifests,
        refused={form: f"{error.message}. {error.fix}" for form, error in refused.items()},
    )
