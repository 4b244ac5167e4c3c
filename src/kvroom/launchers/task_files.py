"""Tasks that hold a shell's text beside the machine that runs it: SkyPilot, dstack, Baseten; also KAITO.

Each becomes the words of a shell, or of the engine's own command, with the cards that the task asks for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from kvroom.engines.command_line import CommandLine
from kvroom.engines.registry import command_lines
from kvroom.errors import KvroomError
from kvroom.hardware import catalogue
from kvroom.launchers.launched import flags, listed, word
from kvroom.launchers.yaml_documents import yaml_documents

_TEXTS = ("run", "commands", "start_command", "command", "script")
"""Keys whose text a shell runs."""
_COUNTS = ("SKYPILOT_NUM_GPUS_PER_NODE", "DSTACK_GPUS_NUM", "DSTACK_GPUS_PER_NODE")
"""Variables by which such a task is told how many cards a machine has."""
CONFIG = "inference_config.yaml"
"""What KAITO calls an engine's options within a ConfigMap."""
Cards = tuple[str, int]


@lru_cache(maxsize=1)
def instances() -> Mapping[str, Cards]:
    """(card, how many) of the clouds' machines by their names, in lower case."""
    text = Path(catalogue.__file__).with_name("instances.json").read_text("utf-8")
    return {name.lower(): (card, count) for name, (card, count) in json.loads(text).items()}


def instance(name: Any) -> Cards | None:
    """(card, how many) of a cloud's machine; None where it is not known."""
    return instances().get(name.lower()) if isinstance(name, str) else None


def accelerators(value: Any) -> Cards | None:
    """(card, how many) of ``H100:8``, ``{H100: 8}``, ``{name: …, count: …}``, the first of a list."""
    if isinstance(value, list):
        return next((found for item in value if (found := accelerators(item))), None)
    if isinstance(value, dict):
        name = value.get("name")
        name = name[0] if isinstance(name, list) and name else name
        if name is None and len(value) == 1:
            ((name, count),) = value.items()
        else:
            count = value.get("count", 1)
        value = f"{name}:{count}"
    if not isinstance(value, str):
        return None
    name, _, count = value.partition(":")
    count = count.rpartition(":")[2] or "1"  # dstack: H100:80GB:8
    try:
        return catalogue.find(name).name, int(float(count)) if re.fullmatch(r"[\d.]+", count) else 1
    except KvroomError:
        return None


def task_words(value: Mapping[str, Any]) -> list[list[str]]:
    """The shells that a task runs, each as words; none where it starts no engine."""
    found: list[list[str]] = []
    for key in _TEXTS:
        text = value.get(key)
        if isinstance(text, list) and all(isinstance(line, str) for line in text):
            text = "\n".join(text)
        if isinstance(text, str) and _program().search(text):
            found.append(["env", *_environment(value), "bash", "-c", text])
    return found


def _environment(value: Mapping[str, Any]) -> list[str]:
    pairs: list[str] = []
    for key in ("envs", "env"):
        given = value.get(key)
        if isinstance(given, dict):
            pairs += [f"{name}={word(text)}" for name, text in given.items() if text is not None]
        else:
            pairs += [row for row in listed(given) if isinstance(row, str) and "=" in row]
    cards = task_cards(value)
    return pairs + ([f"{name}={cards[1]}" for name in _COUNTS] if cards else [])


def task_cards(value: Mapping[str, Any]) -> Cards | None:
    """(card, how many) that a task asks for."""
    resources = value.get("resources")
    if not isinstance(resources, dict):
        return None
    given = resources.get("accelerators") or resources.get("accelerator") or resources.get("gpu")
    return accelerators(given) or instance(resources.get("instance_type"))


@lru_cache(maxsize=1)
def _program() -> re.Pattern[str]:
    """A text that names a program of an engine."""
    programs = {" ".join(program) for line in command_lines() for program in line.programs}
    return re.compile("|".join(re.escape(program).replace(r"\ ", r"\s+") for program in programs))


def configs_of(documents: list[Any]) -> dict[str, dict[str, Any]]:
    """KAITO's options by the name of the ConfigMap that holds them."""
    found: dict[str, dict[str, Any]] = {}
    for document in documents:
        if not isinstance(document, dict) or document.get("kind") != "ConfigMap":
            continue
        data, metadata = document.get("data"), document.get("metadata")
        text = data.get(CONFIG) if isinstance(data, dict) else None
        if isinstance(text, str) and isinstance(metadata, dict):
            options = next(yaml_documents(text), None)
            if isinstance(options, dict):
                found[str(metadata.get("name"))] = options
    return found


def workspace(
    value: Mapping[str, Any], configs: Mapping[str, dict[str, Any]]
) -> tuple[list[str], Cards | None] | None:
    """(the engine's command, the cards) of KAITO's Workspace or InferenceSet; None where it is none."""
    inference, resource = value.get("inference"), value.get("resource")
    preset = inference.get("preset") if isinstance(inference, dict) else None
    if not isinstance(preset, dict) or not preset.get("name"):
        return None
    assert isinstance(inference, dict)
    resource = resource if isinstance(resource, dict) else value
    cards = instance(resource.get("instanceType"))
    line = _served_by()
    options = configs.get(str(inference.get("config")), {}).get(line.engine)
    own = options if isinstance(options, dict) else {}
    parallel = [name for names in line.keys.values() for name in names]
    ranks = ["--tensor-parallel-size", str(cards[1])] if cards and cards[1] > 1 else []
    if any(str(key).replace("-", "_") in parallel[:2] for key in own):
        ranks = []
    count = resource.get("count")
    many = cards and (cards[0], cards[1] * count if isinstance(count, int) else cards[1])
    return [*line.platform_program, word(preset["name"]), *ranks, *flags(own)], many


def _served_by() -> CommandLine:
    return next(line for line in command_lines() if line.platform_program)
