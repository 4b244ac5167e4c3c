"""The answer of ``launch``: an engine's command as words, as text, and as manifests of every form."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from kvroom.answer import html
from kvroom.answer.shown import Shown
from kvroom.errors import KvroomError, StartRefused, as_sentence, did_you_mean
from kvroom.launchers import helm, objects
from kvroom.launchers.launch import launch, shell
from kvroom.planner.plan import Workings
from kvroom.planner.verdict import not_started
from kvroom.records import dataclass
from kvroom.scenario.scenario import Scenario

FORMS = ("shell", "helm", *objects.FORMS)


@dataclass(frozen=True, kw_only=True, repr=False)
class EngineCommand(Shown):
    """The command as words and as text, the files that it reads, what to know of it, and the ``manifests``
    by form; of forms that are not written ``refused`` says why."""

    TITLE = "How it is started"

    engine: str
    argv: list[str]
    files: dict[str, str]
    command: str
    values: str | None
    scenario: dict[str, Any]
    notes: tuple[str, ...]
    manifests: dict[str, str]
    refused: dict[str, str]

    def summary(self) -> str:
        """The command on one line."""
        return shlex.join(self.argv)

    def rows(self) -> list[dict[str, Any]]:
        """A flat row a word of the command."""
        return [{"word": word} for word in self.argv]

    def glance(self) -> list[str]:
        """The command as it is typed, and what to know of it."""
        notes = [html.paragraph(note, soft=True) for note in self.notes]
        return [html.element("pre", html.text(self.command)), *notes]

    def html_parts(self) -> list[str]:
        """The command, and the files that it reads."""
        files = (
            html.heading(name) + html.element("pre", html.text(text))
            for name, text in self.files.items()
        )
        return [*self.glance(), *files]

    def questions(self) -> Sequence[Scenario]:
        """The question that it realises."""
        return [Scenario.from_dict(self.scenario)] if self.scenario else []

    def text(self, form: str = "shell") -> str:
        """The text of ``form`` (one of FORMS); KvroomError where the engine has none."""
        if form not in FORMS:
            fix = did_you_mean(form, FORMS, f"One of: {', '.join(FORMS)}.")
            raise KvroomError("--format", form, "is no form of a command", fix)
        if form == "shell":
            return self.command
        if form in self.manifests:
            return self.manifests[form]
        if form in self.refused:
            why, _, fix = self.refused[form].partition(". ")
            raise KvroomError("--format", form, why, fix)
        if self.values is None:
            raise helm.no_chart(self.engine)
        return self.values


def engine_command(workings: Workings) -> EngineCommand:
    """The command that realises a plan; StartRefused where its engine would refuse it."""
    verdict = workings.plan.verdict
    if not verdict.starts:
        why, cure = not_started(workings.plan)
        what = f"{workings.plan.scenario.engine} would not start"
        raise StartRefused(what, None, why, as_sentence(cure))
    launched = launch(workings)
    command = launched.command
    charted = command.chart is not None and launched.machines == 1
    chart = helm.values(launched, workings.plan.weights.bytes) if charted else None
    manifests, refused = objects.manifests(launched)
    if command.chart is not None and not charted:
        why = f"starts on one machine, and this takes {launched.machines}"
        refused["helm"] = KvroomError("--format", "helm", why, "Use --format kubernetes.")
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
