"""What a file launches: the words of a command, where they stand, and the cards that the file gives them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from kvroom.errors import KvroomError
from kvroom.hardware import catalogue
from kvroom.records import dataclass

_COUNTS = ("nvidia.com/gpu", "amd.com/gpu", "gpu", "requestGPU", "habana.ai/gaudi")
_LABELS = """
    nvidia.com/gpu.product cloud.google.com/gke-accelerator gpu.nvidia.com/model gpu.nvidia.com/class
    karpenter.k8s.aws/instance-gpu-name amd.com/gpu.product-name
    accelerator accelerator_type gpuType gpu_type
"""
_PRODUCTS = _LABELS.split()
"""Labels and keys that name a card."""


@dataclass(frozen=True)
class Launched:
    """``words`` as a shell has them, from ``line`` on; ``gpu`` and ``gpus`` are the card and how many of
    them the file gives a machine, None where it does not say; ``replicas`` are started of it, each on so
    many ``machines``. What ``follows`` is a further machine of one that is started elsewhere in the file."""

    words: list[str]
    line: int = 1
    gpu: str | None = None
    gpus: int | None = None
    replicas: int = 1
    machines: int = 1
    follows: bool = False
    files: Mapping[str, str] = field(default_factory=dict)


def card(value: Mapping[str, Any]) -> str | None:
    """The catalogue's card that labels or keys of ``value`` name."""
    for key in _PRODUCTS:
        text = value.get(key)
        if isinstance(text, str) and text:
            for name in _spellings(text):
                try:
                    return catalogue.find(name).name
                except KvroomError:
                    continue
    return None


def machine_count(value: Mapping[str, Any]) -> int | None:
    """How many machines one replica of an object takes, where it says."""
    multinode, template, workers = (
        value.get(key) for key in ("multinode", "leaderWorkerTemplate", "parallelism")
    )
    count: Any = None
    if isinstance(template, dict):
        count = template.get("size")
    elif isinstance(multinode, dict):
        count = multinode.get("nodeCount")
    elif isinstance(workers, dict):
        local = workers.get("dataLocal")
        count = workers.get("workers")
        if isinstance(local, int) and local and isinstance(workers.get("data"), int):
            count = -(-workers["data"] // local)
        elif isinstance(value.get("worker"), dict) and isinstance(workers.get("pipeline"), int):
            count = workers["pipeline"]
    return count if isinstance(count, int) and 0 < count < 1_000 else None


def _spellings(text: str) -> list[str]:
    plain = re.sub(r"^(nvidia|amd|tesla)[-_ ]", "", text.replace("_", "-"), flags=re.IGNORECASE)
    plain = re.sub(r"^tesla[-_ ]", "", plain, flags=re.IGNORECASE)
    plain = re.sub(r"(-shared|-mig.*)$", "", plain, flags=re.IGNORECASE)
    bare = re.sub(r"-hbm\w+$", "", plain, flags=re.IGNORECASE)
    return [text, plain, bare, re.sub(r"-\d+gb$", "", bare, flags=re.IGNORECASE)]


def gpu_count(value: Mapping[str, Any]) -> int | None:
    """How many cards a container, a service or a chart's model is given."""
    resources = value.get("resources")
    places: list[Any] = [value]
    if isinstance(resources, dict):
        places += [resources.get("limits"), resources.get("requests"), resources]
    for place in places:
        if isinstance(place, dict):
            for key in _COUNTS:
                count = place.get(key)
                if isinstance(count, int | str) and re.fullmatch(r"\d{1,4}", str(count)):
                    return int(count)
    return _compose_count(value)


def replica_count(value: Mapping[str, Any]) -> int | None:
    """How many replicas an object, a service or a chart's model is started in."""
    deploy = value.get("deploy")
    for place in (value, deploy if isinstance(deploy, dict) else {}):
        for key in ("replicas", "replicaCount", "minReplicas", "num_replicas"):
            count = place.get(key)
            if isinstance(count, int) and 0 < count < 10_000:
                return count
    return None


def _compose_count(value: Mapping[str, Any]) -> int | None:
    at: Any = value
    for key in ("deploy", "resources", "reservations", "devices"):
        at = at.get(key) if isinstance(at, dict) else None
    for device in at if isinstance(at, list) else []:
        if isinstance(device, dict):
            if isinstance(device.get("count"), int):
                return int(device["count"])
            if isinstance(device.get("device_ids"), list):
                return len(device["device_ids"])
    return None


def line_of(value: Any, otherwise: int = 1) -> int:
    """The line that ``value`` stands on."""
    return int(getattr(value, "line", otherwise))


def listed(value: Any) -> Sequence[Any]:
    """``value`` where it is a list, else nothing."""
    return value if isinstance(value, list) else []


def word(value: Any) -> str:
    """A value as a word of a command."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)


def flags(options: Mapping[str, Any]) -> list[str]:
    """Options by name as flags: ``max_model_len: 8`` is ``--max-model-len 8``."""
    words: list[str] = []
    for key, value in options.items():
        name = re.sub(r"(?<=[a-z0-9])([A-Z])", r"-\1", str(key)).lower().replace("_", "-")
        if value is False and name.startswith("enable-"):
            words.append(f"--no-{name}")
        elif value is True:
            words.append(f"--{name}")
        elif value is not None and value is not False:
            words += [f"--{name}", word(value)]
    return words
