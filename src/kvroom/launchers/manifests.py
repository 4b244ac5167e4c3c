"""Commands within a manifest: Kubernetes objects, compose files, values of Helm charts, KServe, llm-d,
Dynamo graphs, Ray Serve. Each container becomes the words of a ``docker run``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from kvroom.engines.command_line import CommandLine
from kvroom.engines.registry import command_lines
from kvroom.launchers.launched import (
    Launched,
    card,
    flags,
    gpu_count,
    line_of,
    listed,
    replica_count,
    word,
)
from kvroom.launchers.serving_objects import modelservice, serving_words
from kvroom.launchers.shell.words import words_of
from kvroom.launchers.yaml_documents import yaml_documents

_FIRST = re.compile(r"(?:---\s*|[\w.\"'-]+[ ]*:(?:\s.*)?|-[ ].*|\{.*)")
_REFERENCE = re.compile(r"\$\((\w+)\)")
_INNER = ("serveConfigV2",)
"""Keys whose text is a manifest of its own."""


def is_manifest(text: str) -> bool:
    """Whether ``text`` begins as YAML or JSON does, and not as a command."""
    lines = (line for line in text.splitlines() if line.strip() and line.strip()[0] != "#")
    return _FIRST.fullmatch(next(lines, "")) is not None


def manifest_launches(text: str) -> Iterator[Launched]:
    """What each container of a manifest runs; KvroomError where it cannot be read."""
    for document in yaml_documents(text):
        yield from _launches(document, Launched([]))


def _launches(value: Any, around: Launched) -> Iterator[Launched]:
    """Every container below ``value``; ``around`` holds the line and the cards of what it stands in."""
    if isinstance(value, list):
        for item in value:
            yield from _launches(item, around)
    elif isinstance(value, dict):
        yield from _object(value, _within(value, around))


def _within(value: Mapping[str, Any], around: Launched) -> Launched:
    places = [value, *(value.get(k) for k in ("nodeSelector", "labels", "nodeLabels"))]
    named = next((c for place in places if isinstance(place, dict) and (c := card(place))), None)
    count = gpu_count(value)
    return replace(
        around,
        line=line_of(value, around.line),
        gpu=named or around.gpu,
        gpus=around.gpus if count is None else count,
        replicas=replica_count(value) or around.replicas,
    )


def _object(value: Mapping[str, Any], here: Launched) -> Iterator[Launched]:
    if (command := _charted(value)) is not None:
        yield replace(here, words=_chart(value, command))
    elif pools := modelservice(value):
        for part, words in pools:
            inside = _within(part, here)
            yield replace(inside, words=["env", *_pairs(part), *words])
    elif (served := serving_words(value)) is not None:
        template = value.get("template")
        inside = _within(template, here) if isinstance(template, dict) else here
        for container in listed(template.get("containers")) if isinstance(template, dict) else []:
            if isinstance(container, dict) and gpu_count(container) is not None:
                inside = _within(container, inside)
        model = value.get("model")
        inside = _within(model, inside) if isinstance(model, dict) else inside
        yield replace(inside, words=served, line=here.line)
    elif image := _image(value):
        environment = _variables(value)
        variables = dict(p.split("=", 1) for p in environment[1::2] if "=" in p)
        # Kubernetes puts $(NAME) in itself
        words = [_REFERENCE.sub(lambda m: variables.get(m[1], m[0]), w) for w in _command(value)]
        own, words = (["--entrypoint", words[0]], words[1:]) if _replaces(value) else ([], words)
        if words or own or isinstance(value["image"], str):  # an image alone is no start
            files = [w for name in _env_files(value) for w in ("--env-file", name)]
            yield replace(here, words=["docker", "run", *environment, *files, *own, image, *words])
    else:
        for key, item in value.items():
            if key in _INNER and isinstance(item, str):
                yield from manifest_launches(item)
            elif not str(key).startswith("x-"):  # compose's fragments, which others merge
                yield from _launches(item, here)


def _image(value: Mapping[str, Any]) -> str:
    """The image of a container, or of a chart's values that name its repository and tag."""
    image = value.get("image")
    if isinstance(image, str):
        return image
    if isinstance(image, dict) and isinstance(image.get("repository"), str):
        return f"{image['repository']}:{image.get('tag') or 'latest'}"
    return ""


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
    config = spec[chart.config]
    options = {
        key: value for key, value in config.items() if key not in (chart.extra, *chart.plain)
    }
    more = [word(w) for w in listed(config.get(chart.extra))]
    return ["docker", "run", *_variables(spec), image, *program, *flags(options), *more]


def _command(container: Mapping[str, Any]) -> list[str]:
    """What a container runs: ``entrypoint``/``command``, then ``args``, lists or text."""
    parts: list[str] = []
    image = container.get("image")
    places = [image, container] if isinstance(image, dict) else [container]
    for place in places:
        for key in ("entrypoint", "command", "args", "extraArgs"):
            words = place.get(key)
            parts += words_of(words) if isinstance(words, str) else [word(w) for w in listed(words)]
    return parts


def _replaces(container: Mapping[str, Any]) -> bool:
    """Whether its command takes the place of the image's own program: Kubernetes' ``command``, compose's
    ``entrypoint``."""
    entry = container.get("entrypoint")
    kubernetes = "name" in container or "args" in container
    return bool(entry) or (kubernetes and bool(listed(container.get("command"))))


def _env_files(container: Mapping[str, Any]) -> list[str]:
    """The files that a compose service takes its variables from."""
    named = container.get("env_file")
    rows = [named] if isinstance(named, str) else listed(named)
    paths = [row.get("path") if isinstance(row, dict) else row for row in rows]
    return [path for path in paths if isinstance(path, str)]


def _pairs(container: Mapping[str, Any]) -> list[str]:
    """Its environment as ``NAME=VALUE``, or ``NAME`` where the host has the value."""
    named = (container.get(key) for key in ("env", "environment", "envs"))
    environment: Any = next(filter(None, named), [])
    if isinstance(environment, dict):
        return [f"{key}={word(value)}" for key, value in environment.items()]
    return [
        f"{e.get('name')}={word(e.get('value'))}" if isinstance(e, dict) else word(e)
        for e in listed(environment)
    ]


def _variables(container: Mapping[str, Any]) -> list[str]:
    return [w for pair in _pairs(container) for w in ("-e", pair)]
