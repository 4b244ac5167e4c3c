"""Who comes: lengths of prompts and answers, how many at once, how fast."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from math import isfinite
from typing import ClassVar, Self, TypeAlias

from kvroom.errors import KvroomError
from kvroom.records import dataclass
from kvroom.scenario.values import (
    MAX_REQUESTS,
    check_keys,
    parse_flag,
    parse_json_object,
    parse_keys,
    parse_tokens_or_zero,
    whole,
)
from kvroom.units import check_float, parse_tokens

Spec: TypeAlias = str | int | float | None
"""One value of a SPEC line as it is written: ``1000``, ``lognormal:mean=1000:sigma=0.8``."""


def spec_text(name: str, value: object) -> str:
    """One value of a workload's SPEC as its text: ``1000``, ``fixed:1000``, ``{"fixed": 1000}``.

    An object holds one kind, with its value or an object of its keys.
    """
    if isinstance(value, Mapping):
        if len(value) != 1:
            fix = 'Write one kind, such as {"lognormal": {"mean": 1000, "sigma": 0.8}}.'
            raise KvroomError(name, len(value), "kinds are given", fix)
        kind, inner = next(iter(value.items()))
        if isinstance(inner, Mapping):
            return ":".join(
                [str(kind), *(f"{key}={_scalar(name, value)}" for key, value in inner.items())]
            )
        return f"{kind}:{_scalar(name, inner)}"
    return _scalar(name, value)


def _scalar(name: str, value: object) -> str:
    if isinstance(value, str) and value.strip():
        return value.strip()
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise KvroomError(name, value, "is no text or number", "Write it as in a SPEC line.")
    return repr(value)


AGENTS = {
    "prefix": "shared:13776",
    "first": "lognormal:median=53600:sigma=1.1:max=560K",
    "turns": "lognormal:median=2:sigma=1:max=40",
    "agent": "lognormal:median=9:sigma=1.1:max=80",
    "input": "lognormal:median=150:sigma=2:max=100K",
    "result": "lognormal:median=372:sigma=1.75:max=100K",
    "output": "lognormal:median=216:sigma=1.2:max=12K",
    "think": "lognormal:median=2min:sigma=1.6:max=30min",
    "tool": "lognormal:median=10s:sigma=1.5:max=10min",
    "compact": "190K:0.2",
    "start": "spread",
}
"""What ``agents=N`` takes where nothing else is said: the middles and spreads of 26 coding-agent sessions
that kv-cache-tester publishes (commit 94f6046: 1,264 calls outside sub-agents; their longest pauses are cut
off). Compaction at so many tokens is assumed."""

CALLS_EACH, FEWEST_CALLS, MOST_CALLS = 24, 400, 12_000
SETTLING_CALLS = 4


def calls_of(users: int) -> int:
    """Requests that are simulated of so many sessions at a time, unless it is said."""
    return min(MOST_CALLS, max(FEWEST_CALLS, CALLS_EACH * users))


def settling(users: int, requests: int) -> int:
    """How many of them are left out: sessions that are in their midst at first begin with a cache that knows
    nothing of them."""
    return min(SETTLING_CALLS * users, requests // 2)


def with_agents(field: str, given: Mapping[str, object]) -> dict[str, object]:
    """The keys of a workload with ``agents`` spelled out: so many sessions at a time, and what those of
    coding agents are like where nothing is said."""
    keys = {key: value for key, value in given.items() if key != "agents"}
    if given.get("agents") is None:
        return keys
    name = f"{field}.agents"
    text = spec_text(name, given["agents"])
    count = whole(MAX_REQUESTS)(name, int(text) if text.isdecimal() else text)
    own = {key: value for key, value in keys.items() if value is not None}
    if own.get("arrivals") not in (None, f"closed:{count}", "once"):
        fix = "Give agents, or arrivals."
        raise KvroomError(f"{field}.arrivals", own["arrivals"], "and agents are two loads", fix)
    return {**AGENTS, "requests": calls_of(count), **own, "arrivals": f"closed:{count}"}


def _spec(name: str, value: object) -> Spec:
    text = spec_text(name, value)
    return value if isinstance(value, int | float) else text


def _lengths(name: str, value: object) -> dict[str, object]:
    """The distributions of prompts and answers: ``{"input": SPEC, "output": SPEC}``."""
    lengths = parse_json_object(name, value)
    check_keys(name, lengths, ("input", "output"))
    for key, spec in lengths.items():
        spec_text(f"{name}.{key}", spec)
    return lengths


def _rate(name: str, value: object) -> float:
    return check_float(name, value, low=1e-9, high=1e9, unit="requests per second")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """``static`` is one batch with no arrivals while it runs; otherwise a steady closed loop of
    ``concurrency`` users (of the whole deployment), or open arrivals at ``requests_per_s``.

    The keys of SPEC_KEYS say the same in the language of ``--workload`` and win; they are written here as
    they were given, and ``workloads.synthetic`` draws from them. ``lengths`` says ``input`` and
    ``output`` as one object.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    concurrency: int | None = None
    static: bool = False
    shared_prefix_tokens: int = 0
    requests_per_s: float | None = None
    lengths: dict[str, object] | None = None
    arrivals: Spec = None
    input: Spec = None
    output: Spec = None
    prefix: Spec = None
    turns: Spec = None
    think: Spec = None
    agent: Spec = None
    tool: Spec = None
    result: Spec = None
    first: Spec = None
    subagents: Spec = None
    compact: Spec = None
    start: Spec = None
    requests: int | None = None
    seed: int | None = None

    SPEC_KEYS: ClassVar[tuple[str, ...]] = (
        "arrivals",
        "input",
        "output",
        "prefix",
        "turns",
        "think",
        "agent",
        "tool",
        "result",
        "first",
        "subagents",
        "compact",
        "start",
        "requests",
        "seed",
    )
    KNOWN_KEYS: ClassVar[tuple[str, ...]] = (*SPEC_KEYS, "agents")
    PARSERS: ClassVar[dict[str, Callable[[str, object], object]]] = {
        "input_tokens": parse_tokens,
        "output_tokens": parse_tokens,
        "concurrency": whole(MAX_REQUESTS),
        "static": parse_flag,
        "shared_prefix_tokens": parse_tokens_or_zero,
        "requests_per_s": _rate,
        "lengths": _lengths,
        **dict.fromkeys(SPEC_KEYS, _spec),
        "requests": whole(MAX_REQUESTS),
        "seed": whole(2**63, low=0),
    }

    @classmethod
    def parse(cls, name: str, value: object) -> Self:
        """The Workload of an object; KvroomError names the key that is wrong."""
        if isinstance(value, cls):
            return value
        if isinstance(value, Mapping) and value.get("agents") is not None:
            value = with_agents(name, value)
        keys = parse_keys(cls.PARSERS, name, value)
        lengths = keys.get("lengths")
        for key in lengths if isinstance(lengths, dict) else ():
            if key in keys:
                why = f"is said twice: {key} and lengths.{key}"
                raise KvroomError(f"{name}.{key}", keys[key], why, "Leave one of them out.")
        return cls(**keys)  # type: ignore[arg-type]  # each key has been through its parser

    def tells(self, name: str) -> bool:
        """Whether it says how long prompts (``input``) or answers (``output``) are."""
        plain = getattr(self, name), getattr(self, f"{name}_tokens"), (self.lengths or {}).get(name)
        return any(value is not None for value in plain)

    def to_dict(self) -> dict[str, object]:
        """Every key, as plain JSON values."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def differences(self) -> dict[str, object]:
        """Only the keys that differ from the defaults."""
        return {
            field.name: v
            for field in fields(self)
            if (v := getattr(self, field.name)) != field.default
        }
