"""Commands within a manifest: Helm values of an engine's chart, a Kubernetes object, a compose file.

Each container becomes the words of a ``docker run``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kvroom.engines.command_line import CommandLine
from kvroom.engines.registry import command_lines
from kvroom.launchers.shell.words import words_of
from kvroom.launchers.yaml_documents import yaml_documents

_FIRST = re.compile(r"(?:---\s*|[\w.\"'-]+[ ]*:(?:\s.*)?|\{.*)")
_REFERENCE = re.compile(r"\$\((\w+)\)")


def is_manifest(text: str) -> bool:
    """Whether ``text`` begins as YAML or JSON does, and not as a command."""
    lines = (line for line in text.splitlines() if line.strip() and line.strip()[0] != "#")
    return _FIRST.fullmatch(next(lines, "")) is not None


def manifest_commands(text: str) -> Iterator[list[str]]:
    """The words of each container of a manifest; KvroomError where it cannot be read."""
    for document in yaml_documents(text):
        yield from _containers(document)


def _containers(value: Any) -> Iterator[list[str]]:
    """Every container below ``value``."""
    if isinstance(value, list):
        for item in value:
            yield from _containers(item)
    elif isinstance(value, dict):
        if (command := _charted(value)) is not None:
            yield _chart(value, command)
        elif isinstance(value.get("image"), str) and value["image"]:
            environment = _variables(value)
            variables = dict(p.split("=", 1) for p in environment[1::2] if "=" in p)
            # Kubernetes puts $(NAME) in itself
            words = [
                _REFERENCE.sub(lambda m: variables.get(m[1], m[0]), w) for w in _command(value)
            ]
            yield ["docker", "run", *environment, value["image"], *words]
        else:
            for key, item in value.items():
                if not str(key).startswith("x-"):  # compose's fragments, which others merge
                    yield from _containers(item)


def _charted(spec: Mapping[str, Any]) -> CommandLine | None:
    """The engine whose chart ``spec`` is one model of."""
    for command in command_lines():
        chart = command.chart
        if chart and isinstance(spec.get(chart.config), dict) and spec.get(chart.model):
            return command
    return None


def _chart(spec: Mapping[str, Any], command: CommandLine) -> list[str]:
    """One model of a chart's values."""
    chart = command.chart
    assert chart is not None
    image = f"{spec.get('repository') or command.default_image}:{spec.get('tag') or 'latest'}"
    program = (*command.programs[0], str(spec[chart.model]))
    words = ["docker", "run", *_variables(spec), image, *program]
    config = spec[chart.config]
    for key, value in config.items():
        if key in (chart.extra, *chart.plain) or value is None:
            continue
        name = re.sub(r"(?<=[a-z0-9])([A-Z])", r"-\1", key).lower()
        if value is False and name.startswith("enable-"):
            words.append(f"--no-{name}")
        elif value is not False:
            words += [f"--{name}"] if value is True else [f"--{name}", _word(value)]
    return words + [_word(w) for w in _listed(config.get(chart.extra))]


def _command(container: Mapping[str, Any]) -> list[str]:
    """What a container runs: ``entrypoint``/``command``, then ``args``, lists or text."""
    parts: list[str] = []
    for key in ("entrypoint", "command", "args"):
        words = container.get(key)
        parts += _words(words) if isinstance(words, str) else [_word(w) for w in _listed(words)]
    return parts


def _words(text: str) -> list[str]:
    """A command as text: its words, over however many lines."""
    return words_of(text)


def _variables(container: Mapping[str, Any]) -> list[str]:
    """Its environment as ``-e NAME=VALUE``."""
    environment = container.get("env") or container.get("environment") or []
    if isinstance(environment, dict):
        pairs = [f"{k}={_word(v)}" for k, v in environment.items()]
    else:
        pairs = [
            f"{e.get('name')}={_word(e.get('value'))}" if isinstance(e, dict) else _word(e)
            for e in _listed(environment)
        ]
    return [w for pair in pairs for w in ("-e", pair)]


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else []


def _word(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)
