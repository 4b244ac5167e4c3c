"""A plan as values for a Helm chart, where its engine has one (``CommandLine.chart``): YAML, written by hand.

Strings are written as JSON strings, which YAML takes as they are.
"""

from __future__ import annotations

import json
import re
from typing import Any

from kvroom.engines.registry import command_lines
from kvroom.errors import KvroomError
from kvroom.launchers.launch import Launch, stated_rest
from kvroom.units import GIB, ceil_div

_NO_WORDS = frozenset(("true", "false", "null", "yes", "no", "on", "off", "y", "n"))
HOST_SHARE = 2
"""Host memory asked for over the weights' bytes: the file cache they are read through."""


def values(start: Launch, weight_bytes: int) -> str:
    """The chart's values for one deployment; KvroomError where its engine has no chart."""
    scenario, chart = start.scenario, start.command.chart
    if chart is None:
        raise no_chart(start.command.engine)
    config: dict[str, Any] = {}
    extra: list[str] = []
    for name, *words in start.flags:
        if name in chart.keys and words and words != ["-1"]:
            config[chart.keys[name]] = _scalar(words[0])
        else:
            extra += [name, *words]
    config[chart.extra] = extra
    model = start.program[-1]
    spec = {
        "name": re.sub(r"[^a-z0-9]+", "-", model.rpartition("/")[2].lower()).strip("-")[:50],
        "repository": start.command.default_image,
        "tag": f"v{scenario.engine_version}" if scenario.engine_version else "latest",
        chart.model: model,
        "replicaCount": scenario.replicas,
        "requestCPU": 4 * scenario.gpu_count,
        "requestMemory": f"{max(16, ceil_div(HOST_SHARE * weight_bytes, GIB))}Gi",
        "requestGPU": scenario.gpu_count,
        chart.config: config,
    }
    if start.env:
        spec["env"] = [{"name": name, "value": value} for name, value in start.env.items()]
    head = [*(f"# {note}" for note in start.notes), stated_rest(start)]
    body = yaml({"servingEngineSpec": {"modelSpec": [spec]}})
    return "\n".join([*head, body])


def no_chart(engine: str) -> KvroomError:
    """That an engine has no chart."""
    charts = [
        command_line.label for command_line in command_lines() if command_line.chart is not None
    ]
    why = f"is for {' and '.join(charts)}, not {engine}"
    return KvroomError("--format", "helm", why, "Use --format shell.")


def _scalar(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, int | float) else text


def yaml(value: Any, indent: int = 0) -> str:
    """``value`` (mappings, lists, scalars) as block YAML."""
    pad = "  " * indent
    if isinstance(value, dict):
        return "\n".join(
            f"{pad}{_key(key)}:{_inner(value, indent)}" for key, value in value.items()
        )
    if isinstance(value, list):
        lines = []
        for item in value:
            text = yaml(item, indent + 1)
            lines.append(f"{pad}- {text.lstrip()}")
        return "\n".join(lines)
    return pad + json.dumps(value, ensure_ascii=False)


def _key(key: Any) -> str:
    """A key, in quotes unless it is a plain word."""
    text = str(key)
    plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_./-]*", text) is not None
    return text if plain and text.lower() not in _NO_WORDS else json.dumps(text, ensure_ascii=False)


def _inner(value: Any, indent: int) -> str:
    if isinstance(value, dict | list):
        if not value:
            return " {}" if isinstance(value, dict) else " []"
        return "\n" + yaml(value, indent + 1)
    return " " + json.dumps(value, ensure_ascii=False)
