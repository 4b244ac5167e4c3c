"""Commands within a manifest: Helm values of vLLM's chart, a Kubernetes object, a compose file.

Each container becomes the words of a ``docker run``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kvroom.errors import KvroomError
from kvroom.launchers.shell import words_of
from kvroom.launchers.yaml_reader import FIX, read_yaml

_FIRST = re.compile(r"(?:---\s*|[\w.\"'-]+[ ]*:(?:\s.*)?|\{.*)")
_REFERENCE = re.compile(r"\$\((\w+)\)")
_PLAIN_KEYS = ("v0", "v1")
"""Keys of the chart's vllmConfig that are no flags of the engine."""


def is_manifest(text: str) -> bool:
    """Whether ``text`` begins as YAML or JSON does, and not as a command."""
    lines = (line for line in text.splitlines() if line.strip() and line.strip()[0] != "#")
    return _FIRST.fullmatch(next(lines, "")) is not None


def manifest_commands(text: str) -> Iterator[list[str]]:
    """The words of each container of a manifest; KvroomError where it cannot be read."""
    for document in re.split(r"^---.*$", text, flags=re.MULTILINE):
        yield from _containers(_parsed(document))


def _parsed(document: str) -> Any:
    if not document.lstrip().startswith("{"):
        return read_yaml(document)
    try:
        return json.loads(document)
    except (ValueError, RecursionError):
        raise KvroomError("--from-command", document.strip(), "is no JSON", FIX) from None


def _containers(value: Any) -> Iterator[list[str]]:
    """Every container below ``value``."""
    if isinstance(value, list):
        for item in value:
            yield from _containers(item)
    elif isinstance(value, dict):
        if isinstance(value.get("vllmConfig"), dict) and value.get("modelURL"):
            yield _chart(value)
        elif isinstance(value.get("image"), str) and value["image"]:
            handed = _variables(value)
            given = dict(pair.split("=", 1) for pair in handed[1::2])
            # Kubernetes puts $(NAME) in itself
            words = [_REFERENCE.sub(lambda m: given.get(m[1], m[0]), w) for w in _command(value)]
            yield ["docker", "run", *handed, value["image"], *words]
        else:
            for item in value.values():
                yield from _containers(item)


def _chart(spec: Mapping[str, Any]) -> list[str]:
    """One model of the values of vLLM's production stack."""
    image = f"{spec.get('repository') or 'vllm/vllm-openai'}:{spec.get('tag') or 'latest'}"
    words = ["docker", "run", *_variables(spec), image, "vllm", "serve", str(spec["modelURL"])]
    config = spec["vllmConfig"]
    for key, value in config.items():
        if key in ("extraArgs", *_PLAIN_KEYS) or value is None:
            continue
        name = re.sub(r"(?<=[a-z0-9])([A-Z])", r"-\1", key).lower()
        if value is False and name.startswith("enable-"):
            words.append(f"--no-{name}")
        elif value is not False:
            words += [f"--{name}"] if value is True else [f"--{name}", _word(value)]
    return words + [_word(w) for w in _listed(config.get("extraArgs"))]


def _command(container: Mapping[str, Any]) -> list[str]:
    """What a container runs: ``entrypoint``/``command``, then ``args``, lists or text."""
    parts: list[str] = []
    for key in ("entrypoint", "command", "args"):
        given = container.get(key)
        parts += words_of(given) if isinstance(given, str) else [_word(w) for w in _listed(given)]
    return parts


def _variables(container: Mapping[str, Any]) -> list[str]:
    """Its environment as ``-e NAME=VALUE``."""
    given = container.get("env") or container.get("environment") or []
    if isinstance(given, dict):
        pairs = [f"{k}={_word(v)}" for k, v in given.items()]
    else:
        pairs = [
            f"{e.get('name')}={_word(e.get('value'))}" if isinstance(e, dict) else _word(e)
            for e in _listed(given)
        ]
    return [w for pair in pairs for w in ("-e", pair)]


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else []


def _word(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)
