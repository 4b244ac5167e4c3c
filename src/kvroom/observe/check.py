"""What launch files start, judged before it is launched: does each start, does it hold what was promised."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

from kvroom.answer.shown import Shown
from kvroom.answer.verdict import Reason, Status
from kvroom.engines.flags import plain_name
from kvroom.engines.registry import command_lines
from kvroom.errors import KvroomError
from kvroom.launchers.commands import (
    Command,
    read_start,
    read_together,
    starts_of,
    stated_rest,
)
from kvroom.launchers.manifests import is_manifest
from kvroom.launchers.nearby import MAX_CHARACTERS, NOWHERE, Nearby
from kvroom.launchers.starts import Start, script_end
from kvroom.launchers.unit_files import kind_of
from kvroom.launchers.yaml_documents import TextUnread
from kvroom.models.load import load
from kvroom.observe.check_remedy import remedy
from kvroom.observe.logs.startup import read_bytes
from kvroom.planner.plan import Workings, work
from kvroom.planner.simulate import Objective, parse_slo
from kvroom.records import dataclass
from kvroom.scenario.scenario import Scenario
from kvroom.units import ceil_div, check_int

Outcome: TypeAlias = Status | Literal["unreadable", "none"]
"""A verdict's status; ``unreadable`` where there is none to be had, ``none`` where nothing is started."""
Serve: TypeAlias = Callable[[Workings, tuple[Objective, ...]], Mapping[str, Any]]
"""Serves a deployment's workload: the figures of a simulation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What a deployment is to do (``wanted``), what it does (``answer``), and whether that ``holds``."""

    name: str
    wanted: float
    answer: float | None
    holds: bool

    @property
    def clause(self) -> str:
        """What it is, and what it is not."""
        unit = "" if self.name == "concurrency" else " s"
        answer = "not known" if self.answer is None else f"{_said(self.answer)}{unit}"
        return f"{self.name} is {answer}, not {_said(self.wanted)}{unit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """One deployment of a file: where it is started, the verdict, why, and what would do instead."""

    file: str
    line: int
    engine: str | None
    model: str | None
    status: Outcome
    sentence: str
    reasons: tuple[Reason, ...] = ()
    promises: tuple[Promise, ...] = ()
    warnings: tuple[str, ...] = ()
    flags: dict[str, Any] | None = None
    """With these, by the engine's own names, it starts; None where it does, or none are known."""
    scenario: dict[str, Any] | None = None

    @property
    def is_finding(self) -> bool:
        """Whether it does not start or does not hold what was promised."""
        broken = any(not promise.holds for promise in self.promises)
        return broken or self.status not in ("fits", "none", "unreadable")

    @property
    def reason(self) -> str:
        """Why it is a finding, or what is to be known of it, in one line."""
        broken = [promise.clause for promise in self.promises if not promise.holds]
        if self.reasons and self.status != "full":
            return "; ".join([self.reasons[0].message, *broken])
        return "; ".join(broken) or self.sentence

    @property
    def fix(self) -> str:
        """What would do instead; "" where nothing is known."""
        if self.flags:
            return " ".join(f"{flag} {value}" for flag, value in self.flags.items())
        return next((reason.fix for reason in self.reasons if reason.fix), "")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CheckReport(Shown):
    """Every deployment of every file, in their order."""

    TITLE = "What launch files start"

    deployments: tuple[Checked, ...]

    @property
    def exit_status(self) -> int:
        """0 where all is fine, 1 with a finding, 2 where a file could not be read."""
        if any(deployment.status == "unreadable" for deployment in self.deployments):
            return 2
        return int(any(deployment.is_finding for deployment in self.deployments))

    @property
    def sentence(self) -> str:
        """How many of the deployments are fine, and what is wrong with the first that is not."""
        rows = [deployment for deployment in self.deployments if deployment.status != "none"]
        odd = [row for row in rows if row.is_finding or row.status == "unreadable"]
        if not odd:
            return (
                f"{_counted(len(rows))} would start and hold what is asked."
                if rows
                else "Nothing starts an engine."
            )
        first = odd[0]
        told = f"{first.file}:{first.line}: {first.reason.rstrip('.')}" + (
            f" ({first.fix.rstrip('.')})" if first.fix else ""
        )
        return f"{len(odd)} of {_counted(len(rows))} would not do. {told}."

    def summary(self) -> str:
        """How many are fine, and what is wrong with the first that is not."""
        return self.sentence

    def rows(self) -> list[dict[str, Any]]:
        """A flat row a deployment: where it stands, its verdict, what is wrong and what mends it."""
        return [
            {
                "file": checked.file,
                "line": checked.line,
                "engine": checked.engine,
                "model": checked.model,
                "status": checked.status,
                "finding": checked.is_finding,
                "sentence": checked.sentence,
                "fix": checked.fix,
            }
            for checked in self.deployments
        ]

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        rows = [
            {
                **asdict(deployment),
                "finding": deployment.is_finding,
                "reason": deployment.reason,
                "fix": deployment.fix,
            }
            for deployment in self.deployments
        ]
        return {"exit_status": self.exit_status, "deployments": rows}


@dataclass(frozen=True)
class Expectations:
    """``concurrency`` requests at once, and ``objectives`` for times of a workload."""

    concurrency: int | None = None
    objectives: tuple[Objective, ...] = ()


_PYTHON = re.compile(r"^(import|from) \w[\w.]*( import .+|$)", re.MULTILINE)
LAYOUT = ("tp", "pp", "dp", "ep", "dcp")
"""What an engine refuses where it cannot be: of a file that could be read this is a finding."""
GPUS_SOURCE = "the file's own count of GPUs"


def is_log(text: str) -> bool:
    """Whether a text is what an engine, or a program without room, wrote."""
    log = read_bytes(text.encode(errors="replace"))
    return log.engine is not None or log.shortage is not None


def _log(name: str) -> KvroomError:
    return KvroomError(name, None, "is a log, and starts nothing", "Read it: kvroom reconcile")


def expectations(text: str) -> Expectations:
    """Those of ``concurrency=16,ttft_p95=1s``; KvroomError names what is wrong."""
    requests: int | None = None
    times: list[str] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = part.partition("=")
        if name.strip() == "concurrency":
            number = int(value) if value.strip().isdecimal() else value
            requests = check_int("--expect concurrency", number, low=1, high=10**7)
        else:
            times.append(part)
    return Expectations(requests, parse_slo(",".join(times), "--expect") if times else ())


@dataclass(frozen=True)
class Checker:
    """Judges files: ``keys`` are the Scenario's keys that hold for all of them, ``settings`` variables that
    they leave open, ``serve`` plays a workload where a time is promised."""

    keys: Mapping[str, Any]
    settings: Mapping[str, str]
    expected: Expectations
    serve: Serve

    def path(self, name: str, *, skip_others: bool = False) -> list[Checked]:
        """Every deployment of the file of that path (``-``: standard input)."""
        text = self.text_of(name)
        if text is None:
            return [_unreadable(name, 1, _no_text(name))]
        cards = self.keys.get("gpu_count")
        nearby = Nearby("" if name == "-" else name, cards if isinstance(cards, int) else None)
        return self.file(name, text, skip_others=skip_others, nearby=nearby)

    @staticmethod
    def text_of(name: str) -> str | None:
        """The text of the file of that path; None where it cannot be read."""
        try:
            if name == "-":
                return sys.stdin.read(MAX_CHARACTERS + 1)
            with Path(name).open(encoding="utf-8", errors="replace") as file:
                return file.read(MAX_CHARACTERS + 1)
        except (OSError, ValueError):
            return None

    def file(
        self, name: str, text: str, *, skip_others: bool = False, nearby: Nearby = NOWHERE
    ) -> list[Checked]:
        """Every deployment of one file."""
        try:
            starts = list(starts_of(text, self.settings, nearby))
            rest = stated_rest(text)
        except KvroomError as error:
            if is_log(text):
                return [_unreadable(name, 1, _log(name))]
            return [_unreadable(name, error.line if isinstance(error, TextUnread) else 1, error)]
        together = [start for start in starts if start.command.several_starts]
        stated = "model" in self.keys
        found: list[Checked] = []
        for start in starts:
            if not start.command.several_starts:
                found.append(
                    self.start(name, start, partial(read_start, start, rest, model_stated=stated))
                )
        if together:
            found.append(self.start(name, together[0], partial(read_together, together, rest)))
        if not found and not skip_others:
            return [_unreadable(name, 1, self.nothing(name, text, nearby))]
        found = _once(found)
        if not found:
            none = "starts no engine"
            found.append(
                Checked(file=name, line=1, engine=None, model=None, status="none", sentence=none)
            )
        return found

    def nothing(self, name: str, text: str, nearby: Nearby) -> KvroomError:
        """Why a file starts no engine."""
        if is_log(text):
            return _log(name)
        ended = (
            "" if is_manifest(text) or kind_of(text) else script_end(text, self.settings, nearby)
        )
        if name.endswith(".py") or _PYTHON.search(text):
            why = "is Python, of which nothing is run here"
            return KvroomError(
                name, None, why, "Give the command that it starts, in a file or on -."
            )
        if not ended or ended.startswith("exit 0"):
            labels = ", ".join(line.label for line in command_lines())
            fix = f"Name the file that does: of {labels}."
            return KvroomError(name, None, "starts no engine that kvroom knows", fix)
        fix = "Say what it asks for: --set NAME=VALUE, or --set 1=VALUE for its first argument."
        return KvroomError(name, ended, "ends it before an engine is started", fix)

    def start(self, name: str, start: Start, read: Callable[[], Command]) -> Checked:
        """One deployment, judged."""
        try:
            command = read()
            scenario, cards = self.scenario(start, command)
            return self.judged(name, start, command, scenario, cards)
        except KvroomError as error:
            unread = _unreadable(name, start.line, error, start.command.engine)
            if error.field not in LAYOUT:
                return unread
            sentence = f"Does not start: {unread.reasons[0].message}."
            return replace(unread, status="would_not_start", sentence=sentence)

    def scenario(self, start: Start, command: Command) -> tuple[Scenario, int | None]:
        """(the question that a start asks, the cards that it is given, None where nobody says)."""
        keys = {
            key: value
            for key, value in self.keys.items()
            if key not in ("model", "gpu_count", "engine_args")
        }
        base = {**command.keys, **keys}
        if "engine_args" in self.keys:
            base["engine_args"] = {
                **command.keys.get("engine_args", {}),
                **self.keys["engine_args"],
            }
        model = command.keys.get("model")
        if "model" in self.keys and (model is None or not _loads(model)):
            base["model"] = self.keys["model"]
        elif model is None:
            command.check_model()
        if "gpu" not in base:
            if start.gpu is None:
                fix = "Say which card it runs on: --gpu H100-SXM (kvroom gpus lists them)."
                raise KvroomError("gpu", None, "is not named by the file", fix)
            base["gpu"] = start.gpu
        machines = start.own_machines
        cards = None if start.gpus is None else start.gpus * machines
        cards = self.keys.get("gpu_count", cards)
        if start.command.default_tp:
            base.setdefault("tp", 1)
        elif cards:
            base["gpu_count"] = cards
        if self.expected.concurrency is not None:
            base["concurrency"] = ceil_div(self.expected.concurrency, start.replicas)
        return Scenario.from_dict(base), cards

    def judged(
        self, name: str, start: Start, command: Command, scenario: Scenario, cards: int | None
    ) -> Checked:
        """The verdict on a question, and whether its promises hold."""
        line, version = start.command, scenario.engine_version
        lacking = line.flag_refusal(command.flags, version)
        kept = {
            key: value
            for key, value in scenario.engine_args.items()
            if not line.names.lacks(plain_name(key), version)
        }
        workings = work(replace(scenario, engine_args=kept))
        verdict = workings.plan.verdict
        status: Outcome = verdict.status
        reasons, sentence = verdict.reasons, verdict.sentence
        if lacking is not None:
            reasons = (lacking.reason, *(each for each in reasons if each.rule != lacking.rule))
            status, sentence = "would_not_start", f"Does not start: {lacking.message}."
        warnings = (*command.warnings, *workings.plan.warnings)
        needed = scenario.tp * scenario.pp * scenario.dp
        if cards is not None and cards < needed <= cards * start.own_machines:
            cards *= start.own_machines  # so many on each machine
        if cards is not None and needed > cards and scenario.tp > cards:
            label = start.command.label
            message = f"{label} is to run on {needed} GPUs, and {cards} {'is' if cards == 1 else 'are'} given"
            fix = f"give it {needed} GPUs, or {_flag(start, 'tp')} {cards}"
            reasons = (Reason(rule="gpus", message=message, fix=fix, source=GPUS_SOURCE), *reasons)
            status, sentence = "would_not_start", f"Does not start: {message}."
        elif cards is not None and needed < cards and start.command.default_tp:
            warnings = (*warnings, f"{cards - needed} of the {cards} GPUs given are not used")
        flags = None if verdict.starts else remedy(scenario, workings, start.command)
        starts = status not in ("would_not_start", "unsupported")
        return Checked(
            file=name,
            line=start.line,
            engine=scenario.engine,
            model=scenario.model if isinstance(scenario.model, str) else None,
            status=status,
            sentence=sentence,
            reasons=reasons,
            promises=tuple(self.promises(workings, start.replicas)) if starts else (),
            warnings=tuple(dict.fromkeys(warnings)),
            flags={start.command.typed(key): value for key, value in flags.items()}
            if flags
            else None,
            scenario=scenario.differences(),
        )

    def promises(self, workings: Workings, replicas: int) -> list[Promise]:
        """What was promised of all ``replicas``, and what comes of it."""
        found: list[Promise] = []
        wanted = self.expected.concurrency
        if wanted is not None:
            held = None if workings.held is None else workings.held * replicas
            holds = held is None or held >= wanted
            found.append(Promise(name="concurrency", wanted=wanted, answer=held, holds=holds))
        if not self.expected.objectives:
            return found
        scenario = workings.plan.scenario
        if scenario.workload is None or not scenario.workload.input_tokens:
            fix = "Say what comes: --input-tokens 1000 --output-tokens 200 (and --users or --rate)."
            raise KvroomError("--expect", self.expected.objectives[0].name, "needs a workload", fix)
        figures = self.serve(workings, self.expected.objectives)
        for objective in self.expected.objectives:
            value = figures[f"{objective.metric}_s"][objective.at]
            holds = value is not None and value <= objective.limit_s
            found.append(
                Promise(name=objective.name, wanted=objective.limit_s, answer=value, holds=holds)
            )
        return found


def _once(found: list[Checked]) -> list[Checked]:
    """Each deployment once that one line starts several times over, as in a loop over ports."""
    kept: list[Checked] = []
    for row in found:
        again = (
            row.scenario is not None and other.line == row.line and other.scenario == row.scenario
            for other in kept
        )
        if not any(again):
            kept.append(row)
    return kept


def _flag(start: Start, key: str) -> str:
    names = start.command.keys.get(key)
    return start.command.typed(names[0]) if names else key


def _loads(model: Any) -> bool:
    try:
        load(model)
    except KvroomError:
        return False
    return True


def _no_text(name: str) -> KvroomError:
    """Why the file of that path has no text to read."""
    path = Path(name)
    if path.is_dir():
        inside = sorted(child.name for child in path.iterdir() if child.is_file())
        fix = "Name the files to check in it." if inside else "Name the files to check."
        if inside:
            fix = f"Name the files to check in it, such as {path / inside[0]}."
        why = "is a folder" if inside else "is a folder without files"
        return KvroomError(name, None, why, fix)
    if not path.exists():
        return KvroomError(name, None, "does not exist", "Check its name.")
    return KvroomError(name, None, "cannot be read as text", "Check its rights.")


def _unreadable(name: str, line: int, error: KvroomError, engine: str | None = None) -> Checked:
    message = str(error).removesuffix(f" {error.fix}").rstrip(".")
    message = message.removeprefix("--from-command: ").removeprefix(f"{name}: ")
    reason = Reason(rule=error.field, message=message, fix=error.fix, source="")
    return Checked(
        file=name, line=line, engine=engine, model=None, status="unreadable",
        sentence=str(error), reasons=(reason,),
    )  # fmt: skip


def _counted(number: int) -> str:
    return f"{number} deployment{'' if number == 1 else 's'}"


def _said(value: float) -> str:
    return f"{int(value):,}" if value == int(value) else f"{value:,.4g}"
