"""Several replicas as a question: how requests are spread over them, unequal pools, autoscaling, failures,
cold starts, and pools of their own for prompts and answers (disaggregation).

A Scenario's ``fleet`` is an object of these keys, each optional:

- ``pools``: replicas of their own hardware and layout in place of ``replicas``: each ``{"count": n, …}``
  with the Scenario keys in which it differs (ReplicaPool);
- ``autoscale``: ``{"policy", "min", "max", …}`` (Autoscaling);
- ``failures``: ``{"at": [{"s", "replica"}], "mtbf_s", "repair_s"}``;
- ``start``: what a cold start takes: ``{"weights_from": "host"|"nvme"|"network", "image_bytes",
  "pull_bytes_per_s", "engine_s", "graphs_s", "seconds"}`` (ColdStart);
- ``lockstep``: true where data-parallel ranks step together.

``disaggregation`` is ``{"prefill": {"count", …}, "decode": {"count", …}, "link_bytes_per_s",
"latency_s", "layerwise", "routing"}``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import ClassVar, Self

from kvroom.errors import KvroomError
from kvroom.records import dataclass
from kvroom.scenario.autoscale import Autoscaling
from kvroom.scenario.routing import Routing
from kvroom.scenario.values import (
    MAX_GPUS,
    MAX_REPLICAS,
    check_keys,
    parse_flag,
    parse_json_object,
    parse_keys,
    parse_list,
    parse_named_object,
    parse_object,
    parse_text,
    parse_word,
    whole,
)
from kvroom.units import check_float, check_int, parse_bytes

COLD_TIERS = ("host", "nvme", "network")
"""Where the weights of a replica that starts may lie."""


def _said(value: object) -> dict[str, object]:
    """The keys of a part of the question that are not at their usual values."""
    values: dict[str, object] = {}
    for field in fields(value):  # type: ignore[arg-type]
        own = getattr(value, field.name)
        if own != field.default:
            values[field.name] = _plain(own)
    return values


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    told = getattr(value, "to_dict", None)
    return value if told is None else told()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaPool:
    """``count`` equal replicas, and the keys in which the Scenario of one differs (None: in none)."""

    count: int = 1
    gpu: str | dict[str, object] | None = None
    gpu_count: int | None = None
    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    ep: int | None = None
    dcp: int | None = None
    weight_dtype: str | None = None
    kv_dtype: str | None = None
    engine_args: dict[str, object] | None = None

    PARSERS: ClassVar[dict[str, Callable[[str, object], object]]] = {
        "count": whole(MAX_REPLICAS),
        "gpu": parse_named_object,
        **dict.fromkeys(("gpu_count", "tp", "pp", "dp", "ep", "dcp"), whole(MAX_GPUS)),
        "weight_dtype": parse_text,
        "kv_dtype": parse_text,
        "engine_args": parse_json_object,
    }

    @classmethod
    def parse(cls, name: str, value: object) -> Self:
        """The pool of an object; KvroomError names the key that is wrong."""
        return cls(**parse_keys(cls.PARSERS, name, value))  # type: ignore[arg-type]

    @property
    def differs(self) -> dict[str, object]:
        """The Scenario keys that it sets."""
        return {key: value for key, value in _said(self).items() if key != "count"}

    def to_dict(self) -> dict[str, object]:
        """What it sets, its count in any case."""
        return {"count": self.count, **self.differs}


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The ``replica`` of that number dies ``s`` seconds after the start."""

    s: float = 0.0
    replica: int = 0

    def to_dict(self) -> dict[str, object]:
        """Both keys."""
        return {"s": self.s, "replica": self.replica}


@dataclass(frozen=True, slots=True, kw_only=True)
class FailurePlan:
    """Replicas die ``at`` given times, or on average every ``mtbf_s`` of each one's time; each is down for
    ``repair_s``."""

    at: tuple[Failure, ...] = ()
    mtbf_s: float | None = None
    repair_s: float = 0.0

    @classmethod
    def parse(cls, name: str, value: object) -> Self:
        """The failures of an object; KvroomError names the key that is wrong."""
        keys = parse_object(name, value)
        check_keys(name, keys, tuple(field.name for field in fields(cls)))
        at: list[Failure] = []
        for index, each in enumerate(parse_list(f"{name}.at", keys["at"]) if "at" in keys else ()):
            where = f"{name}.at[{index}]"
            one = parse_object(where, each)
            check_keys(where, one, ("s", "replica"))
            replica = check_int(
                f"{where}.replica", one.get("replica", 0), low=0, high=MAX_REPLICAS * MAX_GPUS
            )
            at.append(Failure(s=_seconds(where, one, "s", 0.0), replica=replica))
        chance = keys.get("mtbf_s")
        return cls(
            at=tuple(at),
            mtbf_s=None if chance is None else _seconds(name, keys, "mtbf_s", 0.0, low=1e-3),
            repair_s=_seconds(name, keys, "repair_s", 0.0),
        )

    def to_dict(self) -> dict[str, object]:
        """The keys that are not as usual."""
        return _said(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdStart:
    """What a replica that starts waits for, one after the other: its image (``image_bytes`` at
    ``pull_bytes_per_s``; 0: it is there), its weights from a tier, the engine's own start (``engine_s``:
    imports, profiling, compilation), captured graphs (``graphs_s``), and so many ``seconds`` besides."""

    weights_from: str = "nvme"
    seconds: float = 0.0
    image_bytes: int = 0
    pull_bytes_per_s: float = 1e9
    engine_s: float = 0.0
    graphs_s: float = 0.0

    @property
    def fixed_s(self) -> float:
        """All of it but the weights."""
        pulled = self.image_bytes / self.pull_bytes_per_s
        return pulled + self.engine_s + self.graphs_s + self.seconds

    @classmethod
    def parse(cls, name: str, value: object) -> Self:
        """The start of an object; KvroomError names the key that is wrong."""
        keys = parse_object(name, value)
        check_keys(name, keys, tuple(field.name for field in fields(cls)))
        what = "is no tier that holds weights"
        tier = keys.get("weights_from", "nvme")
        image = keys.get("image_bytes", 0)
        return cls(
            weights_from=parse_word(f"{name}.weights_from", tier, COLD_TIERS, what),
            seconds=_seconds(name, keys, "seconds", 0.0),
            image_bytes=parse_bytes(f"{name}.image_bytes", image) if image else 0,
            pull_bytes_per_s=check_float(
                f"{name}.pull_bytes_per_s", keys.get("pull_bytes_per_s", 1e9), low=1, high=1e15
            ),
            engine_s=_seconds(name, keys, "engine_s", 0.0),
            graphs_s=_seconds(name, keys, "graphs_s", 0.0),
        )

    def to_dict(self) -> dict[str, object]:
        """The keys that are not as usual."""
        return _said(self)


def _pools(name: str, value: object) -> tuple[ReplicaPool, ...]:
    pools = parse_list(name, value)
    return tuple(ReplicaPool.parse(f"{name}[{index}]", pool) for index, pool in enumerate(pools))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Replicas that are not all alike for ever; ``lockstep`` None: it is not asked."""

    pools: tuple[ReplicaPool, ...] | None = None
    autoscale: Autoscaling | None = None
    failures: FailurePlan | None = None
    start: ColdStart | None = None
    lockstep: bool | None = None

    PARSERS: ClassVar[dict[str, Callable[[str, object], object]]] = {
        "pools": _pools,
        "autoscale": Autoscaling.parse,
        "failures": FailurePlan.parse,
        "start": ColdStart.parse,
        "lockstep": parse_flag,
    }

    @classmethod
    def parse(cls, name: str, value: object) -> Self:
        """The fleet of an object; KvroomError names the key that is wrong."""
        if isinstance(value, cls):
            return value
        fleet = cls(**parse_keys(cls.PARSERS, name, value))  # type: ignore[arg-type]
        if fleet.lockstep and fleet.failures is not None:
            why = "is not simulated together with failures of single ranks"
            raise KvroomError(f"{name}.lockstep", True, why, "Leave one of them out.")
        if fleet.autoscale is not None and len(fleet.pools or ()) > 1:
            fix = "Give equal replicas (replicas in place of fleet.pools)."
            why = "pools cannot be scaled by one rule"
            raise KvroomError(f"{name}.autoscale", len(fleet.pools or ()), why, fix)
        return fleet

    @property
    def keys(self) -> tuple[str, ...]:
        """Those of its keys that are asked."""
        return tuple(field.name for field in fields(self) if getattr(self, field.name) is not None)

    def to_dict(self) -> dict[str, object]:
        """The keys that are asked."""
        return _said(self)


def _link_rate(name: str, value: object) -> float:
    return check_float(name, value, low=1, high=1e18, unit="bytes/s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Disaggregation:
    """Prompts computed in one pool, answers generated in another; ``link_bytes_per_s`` connects a replica's
    adapters together (None: one network adapter a GPU); ``routing`` spreads over the second pool."""

    prefill: ReplicaPool = ReplicaPool()
    decode: ReplicaPool = ReplicaPool()
    link_bytes_per_s: float | None = None
    latency_s: float = 5e-6
    layerwise: bool = False
    routing: Routing = Routing(policy="least-loaded", by="tokens")

    PARSERS: ClassVar[dict[str, Callable[[str, object], object]]] = {
        "prefill": ReplicaPool.parse,
        "decode": ReplicaPool.parse,
        "link_bytes_per_s": _link_rate,
        "latency_s": lambda name, value: check_float(name, value, low=0, high=1e3),
        "layerwise": parse_flag,
        "routing": Routing.parse,
    }

    @classmethod
    def parse(cls, name: str, value: object) -> Self:
        """The pools of an object; KvroomError names the key that is wrong."""
        if isinstance(value, cls):
            return value
        return cls(**parse_keys(cls.PARSERS, name, value))  # type: ignore[arg-type]

    def to_dict(self) -> dict[str, object]:
        """Both pools, and the keys that are not as usual."""
        return {**_said(self), "prefill": self.prefill.to_dict(), "decode": self.decode.to_dict()}


def _seconds(
    name: str, keys: Mapping[str, object], key: str, usual: float, *, low: float = 0.0
) -> float:
    return check_float(f"{name}.{key}", keys.get(key, usual), low=low, high=1e9, unit="seconds")
