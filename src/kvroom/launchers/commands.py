"""Reading a command that starts an engine, as people paste it, back into a Scenario's keys.

Environment variables in front, wrappers (``sudo``, ``docker run …``, ``mpirun``, ``bash -c '…'``), line
continuations, comments, several lines, manifests: the first command that starts a known engine is read.
A flag that kvroom does not know is left out and named; a value that only a shell could tell is asked for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from kvroom.engines.command_line import CommandLine, unset_variable
from kvroom.engines.drafting import speculation_of
from kvroom.engines.registry import command_lines, engine_of
from kvroom.errors import KvroomError
from kvroom.launchers.flag_words import FlagReader
from kvroom.launchers.launch import REST
from kvroom.launchers.manifests import is_manifest, manifest_commands
from kvroom.launchers.shell import (
    base_name,
    inner_text,
    simple_commands,
    substituted,
    words_of,
    written_files,
)

MAX_CHARACTERS = 200_000
MAX_DEPTH = 8
"""Shells within shells."""
_DOCKER_SWITCHES = """
    -d -i -t -it -ti -dit -itd -P --rm --init --privileged --detach --interactive --tty
"""
DOCKER_SWITCHES = frozenset(_DOCKER_SWITCHES.split())
"""Options of ``docker run`` that take no value: the word behind any other is its value."""
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")


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
            fix = f"{fix[:-1]}, or put the variable in front: NAME=value."
            raise KvroomError("model", self.unset_model, why, fix)
        raise KvroomError("model", None, "is not named by the command", fix)


def _fix() -> str:
    *first, last = [line.label for line in command_lines()]
    return f"Give the command that starts {', '.join(first)} or {last}, or its manifest."


def read_command(text: str) -> Command:
    """The Scenario's keys of a command, or of a manifest that holds one; KvroomError where it starts no
    engine that is known."""
    if len(text) > MAX_CHARACTERS:
        raise KvroomError("--from-command", text[:40], "is longer than any command", _fix())
    rest = _rest(text)
    env: dict[str, str] = {}
    bare, files = written_files(text)
    commands = manifest_commands(text) if is_manifest(text) else simple_commands(words_of(bare))
    together: list[Start] = []
    for start in _starts(commands, env):
        if start.command.several_starts:
            together.append(start)
            continue
        keys, warnings, model = FlagReader(start.command, env, files).read(start.words)
        return _command(start, keys, rest, warnings, model)
    if together:
        first = together[0].command
        starts = [(s.program, s.words) for s in together if s.command is first]
        keys, warnings, model = first.read_starts(starts, env, files, rest)
        return _command(together[0], keys, rest, warnings, model)
    raise KvroomError("--from-command", text.strip(), "starts no engine that kvroom knows", _fix())


def _command(
    start: Start, keys: dict[str, Any], rest: dict[str, Any], warnings: list[str], model: str
) -> Command:
    if start.version:
        keys.setdefault("engine_version", start.version)
    drafts, args = engine_of(start.command.engine).draft_flags, keys.get("engine_args", {})
    drafting = speculation_of(None, drafts, args) if rest.get("speculation") else None
    if drafting is not None:  # the comment says what these flags are for
        written = drafts.write(drafting)
        keys["engine_args"] = {k: v for k, v in args.items() if k not in written}
    return Command({**keys, **rest}, tuple(warnings), model)


def _rest(text: str) -> dict[str, Any]:
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


@dataclass(frozen=True)
class Start:
    """A command that starts an engine: the ``words`` behind its ``program``; ``version`` by the image."""

    command: CommandLine
    program: tuple[str, ...]
    words: list[str]
    version: str | None


def _starts(commands: Iterable[list[str]], env: dict[str, str], depth: int = 0) -> Iterable[Start]:
    """The commands that start an engine, within other shells too; variables that are set on the way go
    into ``env``."""
    for simple in commands:
        words = _after_assignments([substituted(w, env) for w in simple], env)
        image = _container(words, env)
        inner = inner_text(words)
        if inner is not None and depth < MAX_DEPTH:
            for start in _starts(simple_commands(words_of(inner)), env, depth + 1):
                yield replace(start, version=start.version or _version(image, start.command))
        elif (start_here := _program(words)) is not None:
            yield replace(start_here, version=_version(image, start_here.command))
        elif image is not None:
            at, line, _ = image
            yield Start(line, line.programs[0], words[at + 1 :], _version(image, line))


def _after_assignments(words: list[str], env: dict[str, str]) -> list[str]:
    """The words behind the variables that are set in front, which go into ``env``."""
    at = 0
    while at < len(words) and (
        _ASSIGNMENT.match(words[at]) or words[at] in ("export", "env", "set")
    ):
        name, equals, value = words[at].partition("=")
        if equals:
            env[name] = value
        at += 1
    return words[at:]


Image = tuple[int, CommandLine, str]
"""Where an engine's container image stands among the words, whose it is, its tag."""


def _container(words: list[str], env: dict[str, str]) -> Image | None:
    """An engine's image that ``docker run`` starts; the variables handed in go into ``env``."""
    if not words or base_name(words[0]) not in ("docker", "podman", "nerdctl", "sudo"):
        return None
    for i, (before, word) in enumerate(pairwise(words), 1):
        if before.startswith("-") and "=" not in before and before not in DOCKER_SWITCHES:
            continue  # the value of an option, such as a name
        for command in command_lines():
            if image := command.image.search(word):
                for flag, value in pairwise(words[:i]):
                    if flag in ("-e", "--env") and _ASSIGNMENT.match(value):
                        env[value.partition("=")[0]] = value.partition("=")[2]
                return i, command, image[1] or ""
    return None


def _version(image: Image | None, command: CommandLine) -> str | None:
    """The release that the image's tag names."""
    if image is None or image[1] is not command:
        return None
    release = re.match(r"v?(\d+\.\d+(?:\.\d+)?)", image[2])
    return release[1] if release else None


def _program(words: list[str]) -> Start | None:
    """The first program of an engine among the words."""
    for i, word in enumerate(words):
        for command in command_lines():
            for program in command.programs:
                end = i + len(program)
                if base_name(word) == program[0] and tuple(words[i + 1 : end]) == program[1:]:
                    if words[end : end + 1] == [command.optional_word]:
                        end += 1
                    return Start(command, program, words[end:], None)
    return None
