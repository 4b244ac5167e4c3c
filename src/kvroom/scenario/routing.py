"""How requests are spread over replicas, as a question: a router by its name, with its settings.

``routers.json`` lists the routers: the ``rule`` that each goes by (``simulator/router.py``), what it does,
its source, and its settings by the router's own names, each ``[usual, least, most]``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from kvroom.errors import KvroomError, did_you_mean
from kvroom.records import dataclass
from kvroom.scenario.values import (
    MAX_REPLICAS,
    number_of,
    parse_object,
    parse_text,
    parse_word,
    whole,
)
from kvroom.units import check_float, parse_seconds

LOADS = ("requests", "tokens")
_EXAMPLE = 'Write prefix, prefix:stale=50ms, or {"policy": "prefix", "stale_s": 0.05}.'
_WHAT = "is no known way to spread requests"


@dataclass(frozen=True, slots=True)
class RouterEntry:
    """A router of the list: the ``rule`` it goes by, its settings as (usual, least, most), and how old its
    view of the replicas usually is."""

    rule: str
    says: str
    settings: Mapping[str, tuple[float, float, float]]
    stale_s: float = 0.0
    source: str = ""


def _read() -> dict[str, RouterEntry]:
    listed = json.loads(Path(__file__).with_name("routers.json").read_text("utf-8"))
    return {name: RouterEntry(**entry) for name, entry in listed.items()}


ROUTERS = _read()
"""By name."""
ROUTING_POLICIES = tuple(ROUTERS)
"""By name; the first is what is done unless another is asked for."""
_COMMON = ("policy", "stale_s", "cells")
_OWN = {"prefix": ("weight",), "least-loaded": ("by",), "power-of-two": ("by",)}
"""Keys of a Routing itself that only some policies go by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """A router and its settings: how old its view may be, what of prompts weighs against load (prefix),
    what is counted as load (least-loaded, power-of-two), into how many ``cells`` the replicas are cut (each
    has a router of its own, and requests are split between them in turn, those of a linked trace by
    session), and ``settings``, those of its own that are not as usual."""

    policy: str = ROUTING_POLICIES[0]
    stale_s: float = 0.0
    weight: float = 1.0
    by: str = LOADS[0]
    cells: int = 1
    settings: dict[str, float] | None = None

    @property
    def rule(self) -> str:
        """The rule that it goes by."""
        return ROUTERS[self.policy].rule

    def setting(self, key: str) -> float:
        """One of the router's own settings, as asked or as usual."""
        return (self.settings or {}).get(key, ROUTERS[self.policy].settings[key][0])

    @classmethod
    def parse(cls, name: str, value: object) -> Self:
        """The Routing of a name, ``name:key=value…`` or an object; KvroomError names what is wrong."""
        if isinstance(value, cls):
            return value
        if isinstance(value, str):
            parse_text(name, value)
            value = _routing_keys(name, value)
        if not isinstance(value, Mapping):
            raise KvroomError(name, value, "is no way to spread requests", _EXAMPLE)
        policy = parse_word(name, value.get("policy"), ROUTING_POLICIES, _WHAT)
        entry = ROUTERS[policy]
        own_keys = (*_OWN.get(policy, ()), *entry.settings)
        allowed = (*_COMMON, *own_keys)
        keys = {**value, **parse_object(f"{name}.settings", value.get("settings", {}))}
        keys.pop("settings", None)
        own: dict[str, float] = {}
        for key, setting in keys.items():
            if key not in allowed:
                told = f"Its settings: {', '.join(('stale', 'cells', *own_keys))}."
                fix = did_you_mean(str(key), allowed, told)
                raise KvroomError(name, key, f"is no known key of {policy}", fix)
            if key in entry.settings:
                usual, low, high = entry.settings[key]
                number = check_float(f"{name}.{key}", setting, low=low, high=high)
                if number != usual:
                    own[key] = number
        return cls(
            policy=policy,
            stale_s=check_float(
                f"{name}.stale_s", value.get("stale_s", entry.stale_s), low=0, high=1e6
            ),
            weight=check_float(f"{name}.weight", value.get("weight", 1.0), low=0, high=1e6),
            by=parse_word(f"{name}.by", value.get("by", LOADS[0]), LOADS, _WHAT),
            cells=whole(MAX_REPLICAS)(f"{name}.cells", value.get("cells", 1)),
            settings=own or None,
        )

    def to_dict(self) -> str | dict[str, object]:
        """The name of the router, or an object where it has settings."""
        values: dict[str, object] = {}
        if self.stale_s != ROUTERS[self.policy].stale_s:
            values["stale_s"] = self.stale_s
        if self.weight != 1.0:
            values["weight"] = self.weight
        if self.by != LOADS[0]:
            values["by"] = self.by
        if self.cells != 1:
            values["cells"] = self.cells
        if self.settings:
            values["settings"] = self.settings
        return {"policy": self.policy, **values} if values else self.policy


def _routing_keys(name: str, text: str) -> dict[str, object]:
    policy, *pairs = text.split(":")
    policy = policy.strip()
    keys: dict[str, object] = {"policy": policy}
    settings = ROUTERS[policy].settings if policy in ROUTERS else {}
    for pair in pairs:
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not equals:
            raise KvroomError(name, pair, "is no key=value", _EXAMPLE)
        if key == "stale":
            keys["stale_s"] = parse_seconds(f"{name} stale", value) if value != "0" else 0.0
        elif key == "cells" and value.isdecimal():
            keys[key] = int(value)
        elif key == "by":
            keys[key] = value
        else:
            number = number_of(value)
            if number is None and value[:1].isdigit() and value[-1:].isalpha():
                number = parse_seconds(f"{name} {key}", value)
            if number is None and key in (*_COMMON, *_OWN.get(policy, ()), *settings):
                raise KvroomError(f"{name} {key}", value, "is no number", _EXAMPLE)
            keys[key] = value if number is None else number
    return keys
