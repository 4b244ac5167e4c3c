"""Reading a command that starts an engine, as people paste it, back into a Scenario's keys.

Environment variables in front, wrappers (``sudo``, ``docker run …``, ``mpirun``, ``bash -c '…'``), line
continuations, comments, several lines, manifests: the first command that starts a known engine is read.
A flag that kvroom does not know is left out and named; a value that only a shell could tell is asked for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from kvroom.engines.command_line import unset_variable
from kvroom.engines.drafting import speculation_of
from kvroom.engines.registry import command_lines, engine_of
from kvroom.errors import KvroomError
from kvroom.launchers.flag_words import FlagReader
from kvroom.launchers.launch import REST
from kvroom.launchers.launched import Launched
from kvroom.launchers.manifests import is_manifest, manifest_launches
from kvroom.launchers.nearby import MAX_CHARACTERS, NOWHERE, Nearby
from kvroom.launchers.starts import Start, interpolated, script_starts, words_starts
from kvroom.launchers.unit_files import kind_of, unit_launches
from kvroom.launchers.yaml_documents import TEMPLATE_FIX, is_template
from kvroom.records import dataclass

_COMPOSE = re.compile(r"^services:\s*$", re.MULTILINE)
"""A compose file, which takes variables from ``.env`` beside it."""


@dataclass(frozen=True)
class Command:
    """What a command says: Scenario ``keys`` (without the card, unless a comment names it), and
    ``warnings`` about what was left out. ``unset_model`` is the model as typed where it is a variable
    that the command does not set, or a name of Ollama's library that is not known."""

    keys: dict[str, Any]
    warnings: tuple[str, ...]
    unset_model: str = ""

    def check_model(self) -> None:
        """Refuse a command that names no model."""
        if "model" in self.keys:
            return
        fix = "Say which: --model NAME (single quotes keep a shell from replacing $VARIABLES)."
        if self.unset_model and not unset_variable(self.unset_model):
            fix = "Say which it is: --model NAME (kvroom models lists them), or its config.json."
            raise KvroomError("model", self.unset_model, "is not in the catalogue", fix)
        if self.unset_model:
            why = "is not set by the command"
            if is_template(self.unset_model):
                raise KvroomError("model", self.unset_model, why, TEMPLATE_FIX)
            fix = f"{fix[:-1]}, or put the variable in front: NAME=value."
            raise KvroomError("model", self.unset_model, why, fix)
        raise KvroomError("model", None, "is not named by the command", fix)


def _fix() -> str:
    *first, last = [line.label for line in command_lines()]
    return f"Give the command that starts {', '.join(first)} or {last}, or its manifest."


def read_command(
    text: str,
    settings: Mapping[str, str] | None = None,
    *,
    model_stated: bool = False,
    nearby: Nearby = NOWHERE,
) -> Command:
    """The Scenario's keys of a command, or of a manifest that holds one; KvroomError where it starts no
    engine that is known.

    ``settings`` are values of the variables in it (``--set``); with ``model_stated`` it need not name one.
    ``nearby`` are the files beside it.
    """
    commands = read_commands(text, settings or {}, model_stated=model_stated, nearby=nearby)
    first = next(commands, None)
    if first is None:
        why = "starts no engine that kvroom knows"
        raise KvroomError("--from-command", text.strip(), why, _fix())
    return first


def read_commands(
    text: str,
    settings: Mapping[str, str],
    *,
    model_stated: bool = False,
    nearby: Nearby = NOWHERE,
) -> Iterator[Command]:
    """Each command of ``text`` that starts an engine; those that make one deployment together are last."""
    rest = stated_rest(text)
    together: list[Start] = []
    for start in starts_of(text, settings, nearby):
        if start.command.several_starts:
            together.append(start)
        else:
            yield read_start(start, rest, model_stated=model_stated)
    if together:
        yield read_together(together, rest)


def starts_of(text: str, settings: Mapping[str, str], nearby: Nearby = NOWHERE) -> Iterator[Start]:
    """The commands of a script or a manifest that start an engine, those of further machines left out."""
    starts = list(_every_start(text, settings, nearby))
    first = [start for start in starts if not start.is_further_machine]
    yield from first or starts


def _every_start(text: str, settings: Mapping[str, str], nearby: Nearby) -> Iterator[Start]:
    if len(text) > MAX_CHARACTERS:
        raise KvroomError("--from-command", text[:40], "is longer than any command", _fix())
    launches: Iterator[Launched]
    if kind := kind_of(text):
        launches = unit_launches(text, kind)
    elif is_manifest(text):
        launches = manifest_launches(text)
    else:
        yield from script_starts(text, settings, nearby=nearby)
        return
    beside = nearby.variables(".env") if _COMPOSE.search(text) else {}
    for launched in launches:
        env = {**beside, **settings}
        words = interpolated(launched.words, env)
        around = replace(nearby, cards=launched.gpus or nearby.cards)
        for start in words_starts(words, env, settings, nearby=around):
            yield replace(
                start, line=launched.line, gpu=launched.gpu, gpus=launched.gpus, replicas=launched.replicas,
                machines=launched.machines, follows=launched.follows,
                files={**launched.files, **start.files},
            )  # fmt: skip


def read_start(
    start: Start, rest: dict[str, Any], *, model_stated: bool = False, paths: bool = True
) -> Command:
    """The keys of one command; ``rest`` are those of the comment of ``launch``. Without ``paths`` no file
    that it names is opened."""
    reader = FlagReader(start.command, start.environment, start.files, paths=paths)
    keys, warnings, model = reader.read(start.words, model_stated=model_stated or "model" in rest)
    return _command(start, keys, rest, warnings, model)


def read_together(starts: list[Start], rest: dict[str, Any]) -> Command:
    """The keys of several commands that make one deployment."""
    first = starts[0].command
    words = [(start.program, start.words) for start in starts if start.command is first]
    environment = {key: value for start in starts for key, value in start.environment.items()}
    files = {key: value for start in starts for key, value in start.files.items()}
    keys, warnings, model = first.read_starts(words, environment, files, rest)
    return _command(starts[0], keys, rest, warnings, model)


def _command(
    start: Start, keys: dict[str, Any], rest: dict[str, Any], warnings: list[str], model: str
) -> Command:
    if start.version:
        keys.setdefault("engine_version", start.version)
    drafts, args = engine_of(start.command.engine).draft_flags, keys.get("engine_args", {})
    drafting = speculation_of(None, drafts, args) if rest.get("speculation") else None
    if drafting is not None:  # the comment says what these flags are for
        written = drafts.write(drafting)
        keys["engine_args"] = {key: value for key, value in args.items() if key not in written}
    if rest.get("tiers"):  # what these flags are for
        args = keys.get("engine_args", {})
        keys["engine_args"] = {
            key: value for key, value in args.items() if key not in start.command.tier_names
        }
    warnings = list(dict.fromkeys([*start.notes, *warnings]))
    return Command({**keys, **rest}, tuple(warnings), model)


def stated_rest(text: str) -> dict[str, Any]:
    """The Scenario keys of the comment that ``launch`` writes."""
    for line in text.splitlines():
        if line.strip().startswith(REST.strip()):
            try:
                value = json.loads(line.strip().removeprefix(REST.strip()))
            except (ValueError, RecursionError):
                value = None
            if not isinstance(value, dict):
                fix = "Take the line away, or leave it as kvroom launch wrote it."
                raise KvroomError("--from-command", line.strip(), "is cut or garbled", fix)
            return value
    return {}
