"""When replicas are started and let go, as a question: an autoscaler by its name, with its settings.

``autoscalers.json`` lists them: what each does, its source, whether it can leave none (``zero``), whether it
goes by targets of metrics, and its settings by its own names, each ``[usual, least, most]``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Self

from kvroom.errors import KvroomError, did_you_mean
from kvroom.records import dataclass
from kvroom.scenario.values import MAX_REPLICAS, check_keys, parse_object, parse_word, whole
from kvroom.units import check_float

METRICS = ("waiting", "running", "concurrency", "kv", "owed_tokens", "rate")
"""Of each replica: requests in its queue, running, both; the share of its blocks that is held; prompt tokens
whose first token has not come; requests a second that come for it."""
COUNTS_WAITING = ("waiting", "concurrency", "rate")
"""Those that tell of requests for which no replica is there."""
_BY_THRESHOLD = ("every_s", "cool_down_s", "queue", "high", "low")
"""Keys that only ``threshold`` goes by."""
_METRICS_FIX = 'Say what each replica should have, such as {"metrics": {"waiting": 8}}.'


@dataclass(frozen=True, slots=True)
class AutoscalerEntry:
    """An autoscaler of the list."""

    says: str
    settings: Mapping[str, tuple[float, float, float]]
    zero: bool = False
    metrics: bool = False
    source: str = ""


def _read() -> dict[str, AutoscalerEntry]:
    listed = json.loads(Path(__file__).with_name("autoscalers.json").read_text("utf-8"))
    return {name: AutoscalerEntry(**entry) for name, entry in listed.items()}


AUTOSCALERS = _read()
"""By name; the first is what is done unless another is asked for."""
_USUAL = next(iter(AUTOSCALERS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Autoscaling:
    """When replicas are started and let go, between ``min`` and ``max`` of them (None: as many as there are).

    ``threshold`` goes by ``every_s``, ``cool_down_s`` (after the last change at the earliest), ``queue``,
    ``high`` and ``low``; others by ``metrics`` (what each replica should have) or ``settings`` of their own,
    those that are not as usual. A replica that is let go finishes what it serves, within ``grace_s`` (None:
    however long that takes); then it is ended, and whoever it served comes again.
    """

    policy: str = _USUAL
    min: int | None = None
    max: int | None = None
    every_s: float = 15.0
    cool_down_s: float = 60.0
    queue: float = 4.0
    high: float = 0.9
    low: float = 0.3
    metrics: dict[str, float] | None = None
    settings: dict[str, float] | None = None
    grace_s: float | None = None

    def setting(self, key: str) -> float:
        """One of the autoscaler's own settings, as asked or as usual."""
        return (self.settings or {}).get(key, AUTOSCALERS[self.policy].settings[key][0])

    @classmethod
    def known(cls, policy: str) -> tuple[str, ...]:
        """The keys that ``policy`` goes by."""
        other = () if policy == _USUAL else _BY_THRESHOLD
        keys = (field.name for field in fields(cls) if field.name not in other)
        return (*keys, *AUTOSCALERS[policy].settings)

    @classmethod
    def parse(cls, name: str, value: object) -> Self:
        """The rule of an object; KvroomError names the key that is wrong."""
        keys = parse_object(name, value)
        what = "is no known autoscaler"
        policy = parse_word(f"{name}.policy", keys.get("policy", _USUAL), tuple(AUTOSCALERS), what)
        entry = AUTOSCALERS[policy]
        check_keys(name, keys, cls.known(policy))

        def number(key: str, usual: float, high: float = 1e9, low: float = 0.0) -> float:
            return check_float(f"{name}.{key}", keys.get(key, usual), low=low, high=high)

        def replicas(key: str, low: int) -> int | None:
            return (
                whole(MAX_REPLICAS, low)(f"{name}.{key}", keys[key])
                if keys.get(key) is not None
                else None
            )

        rule = cls(
            policy=policy,
            min=replicas("min", 0 if entry.zero else 1),
            max=replicas("max", 1),
            every_s=number("every_s", 15.0, low=1e-3),
            cool_down_s=number("cool_down_s", 60.0),
            queue=number("queue", 4.0),
            high=number("high", 0.9, 1),
            low=number("low", 0.3, 1),
            metrics=_metrics(name, keys.get("metrics"), policy),
            settings=_settings(name, keys, policy),
            grace_s=None if keys.get("grace_s") is None else number("grace_s", 0.0),
        )
        rule.check(name)
        return rule

    def check(self, name: str) -> None:
        """KvroomError where its keys do not go together."""
        if self.min and self.max and self.min > self.max:
            why = f"is more than max, {self.max}"
            raise KvroomError(f"{name}.min", self.min, why, "Swap them.")
        if self.low > self.high:
            why = f"is more than high, {self.high}"
            raise KvroomError(f"{name}.low", self.low, why, "Swap them.")
        if self.min == 0 and self.metrics and not {*COUNTS_WAITING} & {*self.metrics}:
            fix = f"Add one of {', '.join(COUNTS_WAITING)}."
            why = "do not count requests that wait while no replica is there"
            raise KvroomError(f"{name}.metrics", list(self.metrics), why, fix)

    def check_targets(self, name: str) -> None:
        """KvroomError where what it goes by is not said: neither with it nor, once it is to scale, by
        ``--scale-to``."""
        entry = AUTOSCALERS[self.policy]
        if entry.metrics and not self.metrics:
            raise KvroomError(f"{name}.metrics", None, "are not said", _METRICS_FIX)
        if "rps" in entry.settings and not self.setting("rps"):
            fix = "Say how many requests a second one replica serves within its objectives."
            raise KvroomError(f"{name}.rps", None, "is not said", fix)

    def to_dict(self) -> dict[str, object]:
        """The keys that are not as usual."""
        return {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if getattr(self, field.name) != field.default
        }


def _metrics(name: str, given: object, policy: str) -> dict[str, float] | None:
    """What each replica should have of which metric."""
    if not AUTOSCALERS[policy].metrics:
        if given is None:
            return None
        why = f"are not what {policy} goes by"
        raise KvroomError(f"{name}.metrics", given, why, "Leave them out.")
    if given is None:
        return None
    targets: dict[str, float] = {}
    for key, target in parse_object(f"{name}.metrics", given).items():
        if key not in METRICS:
            fix = did_you_mean(str(key), METRICS, _METRICS_FIX)
            raise KvroomError(f"{name}.metrics", key, "is no known metric", fix)
        targets[key] = check_float(f"{name}.metrics.{key}", target, low=1e-6, high=1e12)
    if not targets:
        raise KvroomError(f"{name}.metrics", {}, "are none", _METRICS_FIX)
    return targets


def _settings(name: str, keys: Mapping[str, object], policy: str) -> dict[str, float] | None:
    """The autoscaler's own settings, given beside its keys or under ``settings``."""
    known = AUTOSCALERS[policy].settings
    given = {key: keys[key] for key in known if key in keys}
    if keys.get("settings") is not None:
        inner = parse_object(f"{name}.settings", keys["settings"])
        check_keys(f"{name}.settings", inner, tuple(known))
        given |= inner
    found: dict[str, float] = {}
    for key, value in given.items():
        usual, low, high = known[key]
        number = check_float(f"{name}.{key}", value, low=low, high=high)
        if number != usual:
            found[key] = number
    return found or None
