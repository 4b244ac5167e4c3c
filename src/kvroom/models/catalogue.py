"""The models people serve, under the names they type.

``catalogue.json`` holds a line a model: its name, its hub id, other names, where its figures come from,
and the keys of its published config that fix its shape. ``tools/catalogue_entry.py`` makes such a line
from a config.json.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from kvroom.errors import KvroomError, did_you_mean
from kvroom.models import hf
from kvroom.models.names import read as names_read
from kvroom.models.spec import ModelSpec


@lru_cache(maxsize=1)
def _entries() -> dict[str, dict[str, Any]]:
    """Every entry by its name."""
    text = Path(__file__).with_name("catalogue.json").read_text("utf-8")
    return {entry["name"]: entry for entry in json.loads(text)}


@lru_cache(maxsize=1)
def _keys() -> dict[str, str]:
    """Every spelling (normalised) → name; an exact name wins over an alias."""
    keys: dict[str, str] = {}
    for name, entry in _entries().items():
        for word in (entry["id"], *entry.get("aliases", ())):
            keys.setdefault(key_of(word), name)
            keys.setdefault(key_of(word.rpartition("/")[2]), name)
    return keys | {key_of(name): name for name in _entries()}


def key_of(word: str) -> str:
    """A name without what people vary: case, spaces, underscores."""
    return re.sub(r"[\s_]+", "-", word.strip().lower())


def names() -> list[str]:
    """Every name, in the catalogue's order."""
    return list(_entries())


def entry_of(name: str) -> dict[str, Any]:
    """The catalogue's entry for a name, hub id or alias; KvroomError with the nearest names if none.

    An ending such as ``-instruct`` that changes no shape may be left out or added.
    """
    reading = names_read(name, known)
    if reading is None or reading.words is not None:
        hint = did_you_mean(key_of(name), names(), "`kvroom models` lists them.")
        raise KvroomError(
            "model", name, "is no model of the catalogue", f"{hint} Or give its config.json."
        )
    return _entries()[reading.name]


def known(word: str) -> str | None:
    """The name that a spelling stands for, nothing taken off it; None where it is none."""
    return _keys().get(key_of(word))


def hub_id(name: str) -> str:
    """The hub id of the entry for ``name``: of several, the one that ``name`` spells, else the first."""
    entry, key = entry_of(name), key_of(name)
    for spelt in entry.get("aliases", ()):
        if (
            key != entry["name"]
            and "/" in spelt
            and key in (key_of(spelt), key_of(spelt.rpartition("/")[2]))
        ):
            return str(spelt)
    return str(entry["id"])


def loaded_as(name: str) -> str:
    """What an engine loads for ``name``: its hub id, as it was asked for where that is one; a name that is
    not known stands for itself."""
    try:
        served = hub_id(name)
    except KvroomError:
        return name
    return name if "/" in name and served.lower() != name.lower() else served


def config_of(name: str) -> Mapping[str, Any]:
    """The shape keys of the model's published config."""
    config: Mapping[str, Any] = entry_of(name)["config"]
    return config


def find(name: str) -> ModelSpec:
    """The model of that name, hub id or alias (any case); KvroomError with the nearest names if none."""
    return _read(str(entry_of(name)["name"]))


@lru_cache(maxsize=256)
def _read(name: str) -> ModelSpec:
    entry = _entries()[name]
    return replace(hf.read(entry["config"]), name=name, source=entry["source"])
