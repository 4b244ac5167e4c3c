"""Files that are neither a script nor a manifest: Dockerfiles, systemd units, Ollama's Modelfiles."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from kvroom.engines.registry import command_lines
from kvroom.launchers.launched import Launched
from kvroom.launchers.shell.words import substituted, words_of

_INSTRUCTIONS = """
    FROM ARG ENV RUN CMD ENTRYPOINT COPY ADD EXPOSE WORKDIR LABEL USER SHELL VOLUME STOPSIGNAL HEALTHCHECK
"""
_DOCKER = frozenset(_INSTRUCTIONS.split())
_MODELFILE = frozenset(("FROM", "PARAMETER", "TEMPLATE", "SYSTEM", "ADAPTER", "LICENSE", "MESSAGE"))
_INSTRUCTION = re.compile(r"[ \t]*([A-Za-z]+)[ \t]+")
_SYNTAX = re.compile(r"#.*")


def kind_of(text: str) -> str:
    """``dockerfile``, ``modelfile``, ``systemd`` by the content; "" for anything else."""
    if re.search(r"^\[(?:Service|Container)\]\s*$", text, re.MULTILINE):
        return "systemd"
    first = next(
        (line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")),
        "",
    )
    if not re.match(r"(?:FROM|ARG)[ \t]+\S", first):
        return ""
    words = {m[1] for line in text.splitlines() if (m := _INSTRUCTION.match(line))}
    if words & (_MODELFILE - {"FROM"}) or not words & (_DOCKER - {"FROM"}):
        return "modelfile"
    return "dockerfile"


def unit_launches(text: str, kind: str) -> Iterator[Launched]:
    """What a file of that ``kind`` starts."""
    if kind == "systemd":
        yield from _systemd(text)
    elif kind == "dockerfile":
        yield from _dockerfile(text)
    else:
        files = {"Modelfile": text}
        for line in command_lines():
            yield from (Launched([*start], files=files) for start in line.modelfile_starts)


def _logical(text: str) -> Iterator[tuple[int, str]]:
    """(line number, text) of each line, those continued with a backslash as one; comments left out."""
    number, parts = 0, []
    for at, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith(("#", ";")):
            continue
        number = number or at
        if line.rstrip().endswith("\\"):
            parts.append(line.rstrip()[:-1])
            continue
        yield number, " ".join([*parts, line])
        number, parts = 0, []
    if parts:
        yield number, " ".join(parts)


def _systemd(text: str) -> Iterator[Launched]:
    """``ExecStart=`` with the ``Environment=`` of the unit, and podman's ``Image=`` with its ``Exec=``."""
    variables: list[str] = []
    starts: list[tuple[int, str]] = []
    image, command, at = "", "", 1
    for number, line in _logical(text):
        key, equals, value = line.strip().partition("=")
        if not equals:
            continue
        if key == "Environment":
            variables += words_of(value)
        elif key == "ExecStart" and value.strip():
            starts.append((number, value.strip().lstrip("@-:+!")))
        elif key == "Image":
            image, at = value.strip(), number
        elif key == "Exec":
            command = value
    known = dict(variable.split("=", 1) for variable in variables if "=" in variable)
    for number, value in starts:
        yield Launched(["env", *variables, *words_of(substituted(value, known))], number)
    if image:
        environment = [w for variable in variables for w in ("-e", variable)]
        yield Launched(["docker", "run", *environment, image, *words_of(command)], at)


def _dockerfile(text: str) -> Iterator[Launched]:
    """The last stage's ``ENTRYPOINT`` and ``CMD`` on its image, with ``ENV`` and defaults of ``ARG``."""
    variables: dict[str, str] = {}
    image, entry, command, at = "", [""], [""], 1
    for number, line in _logical(text):
        match = _INSTRUCTION.match(line)
        if match is None:
            continue
        name, rest = match[1].upper(), line[match.end() :].strip()
        if name == "FROM":
            image = next((part for part in rest.split() if not part.startswith("--")), "")
            entry, command, at = [], [], number
        elif name in ("ENV", "ARG"):
            variables |= _pairs(rest)
        elif name == "ENTRYPOINT":
            entry, command, at = _words(rest), [], number
        elif name == "CMD":
            command, at = _words(rest), number if not entry else at
    if image and (entry or command):  # an image that others build on starts nothing by itself
        environment = [w for key, value in variables.items() for w in ("-e", f"{key}={value}")]
        own = ["--entrypoint", entry[0]] if entry else []
        yield Launched(["docker", "run", *environment, *own, image, *entry[1:], *command], at)


def _pairs(text: str) -> dict[str, str]:
    words = words_of(text)
    if words and "=" not in words[0]:
        return {words[0]: " ".join(words[1:])} if len(words) > 1 else {}
    return dict(word.split("=", 1) for word in words if "=" in word)


def _words(text: str) -> list[str]:
    """A list in JSON as it is; anything else is a shell's text."""
    if text.startswith("["):
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        if isinstance(value, list):
            return [str(w) for w in value]
    return ["sh", "-c", text]
