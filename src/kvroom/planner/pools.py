"""The ``fleet`` and ``disaggregation`` keys of a Scenario, read and checked.

``fleet`` is an object of these keys, each optional:

- ``pools``: replicas of their own hardware and layout in place of ``replicas``: each ``{"count": n, …}``
  with Scenario keys that differ (POOL_KEYS);
- ``autoscale``: ``{"min", "max", "every_s", "cool_down_s", "queue", "high", "low"}``
  (``simulation.replicas.Autoscale``);
- ``failures``: ``{"at": [{"s", "replica"}], "mtbf_s", "repair_s"}``;
- ``start``: what a cold start takes: ``{"weights_from": "host"|"nvme"|"network", "seconds"}``, the
  weights' way from that tier plus so many seconds;
- ``lockstep``: true where data-parallel ranks step together (``simulation.lockstep``).

``disaggregation`` is ``{"prefill": {"count", …}, "decode": {"count", …}, "link_bytes_per_s",
"latency_s", "layerwise", "routing"}``: two pools, each like one of ``fleet.pools``, what connects them
(a replica's adapters together), and how requests are spread over the second.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kvroom.errors import KvroomError
from kvroom.scenario.scenario import Scenario, check_keys
from kvroom.simulator.replicas import Autoscale, Failures, seconds_ps
from kvroom.simulator.router import Routing, parse_routing
from kvroom.units import check_float, check_int

MAX_REPLICAS = 10_000
POOL_KEYS = (
    "gpu", "gpu_count", "tp", "pp", "dp", "ep", "dcp", "weight_dtype", "kv_dtype", "engine_args",
)  # fmt: skip
KEYS = ("pools", "autoscale", "failures", "start", "lockstep")
_LAYOUT = ("gpu_count", "tp", "pp", "dp", "ep", "dcp")


def pool_of(scenario: Scenario, given: Any, field: str) -> tuple[Scenario, int]:
    """The Scenario of one pool and how many replicas it has."""
    pool = object_of(field, given)
    check_keys(field, pool, (*POOL_KEYS, "count"))
    count = count_of(f"{field}.count", pool.get("count", 1))
    own = {key: value for key, value in pool.items() if key != "count"}
    alone = {"replicas": 1, "routing": None, "fleet": None, "disaggregation": None}
    base = scenario.to_dict() | alone
    if set(own) & {"gpu", *_LAYOUT}:
        base = {k: v for k, v in base.items() if k not in _LAYOUT}
    if "engine_args" in own:
        own["engine_args"] = {**scenario.engine_args, **object_of(field, own["engine_args"])}
    with within(field):
        return Scenario.from_dict(base | own), count


@contextmanager
def within(field: str) -> Iterator[None]:
    """What is refused of a pool's keys is told as that pool's, ``field``."""
    try:
        yield
    except KvroomError as e:
        if e.field.partition(".")[0] not in POOL_KEYS:
            raise
        raise KvroomError(f"{field}.{e.field}", e.value, e.message, e.fix) from None


def autoscale_of(asked: Mapping[str, Any], first: int, dp: int) -> Autoscale | None:
    """The rule by which ``first`` replicas (of ``dp`` ranks) become more or fewer; None: they stay."""
    field, given = "fleet.autoscale", asked.get("autoscale")
    if given is None:
        return None
    keys = object_of(field, given)
    check_keys(field, keys, ("min", "max", "every_s", "cool_down_s", "queue", "high", "low"))
    if dp > 1:
        raise KvroomError(
            field, dp, "data-parallel ranks cannot be started one by one", "Set dp 1."
        )
    least = count_of(f"{field}.min", keys.get("min", first))
    most = count_of(f"{field}.max", keys.get("max", first))
    if least > most:
        raise KvroomError(f"{field}.min", least, f"is more than max, {most}", "Swap them.")
    if not least <= first <= most:
        why = f"is not between min, {least}, and max, {most}"
        raise KvroomError("replicas", first, why, "Begin with a count between them.")
    high, low = (
        check_float(f"{field}.{k}", keys.get(k, usual), low=0, high=1)
        for k, usual in (("high", 0.9), ("low", 0.3))
    )
    if low > high:
        raise KvroomError(f"{field}.low", low, f"is more than high, {high}", "Swap them.")
    return Autoscale(
        least=least,
        most=most,
        every_ps=_seconds(field, keys, "every_s", 15.0, least=1e-3),
        cool_down_ps=_seconds(field, keys, "cool_down_s", 60.0),
        queue=check_float(f"{field}.queue", keys.get("queue", 4.0), low=0, high=1e9),
        high=high,
        low=low,
    )


def failures_of(asked: Mapping[str, Any], count: int, seed: int) -> Failures | None:
    """When which of ``count`` replicas die; None: they do not."""
    field, given = "fleet.failures", asked.get("failures")
    if given is None:
        return None
    keys = object_of(field, given)
    check_keys(field, keys, ("at", "mtbf_s", "repair_s"))
    at = []
    for n, one in enumerate(list_of(f"{field}.at", keys["at"]) if "at" in keys else ()):
        where = f"{field}.at[{n}]"
        check_keys(where, object_of(where, one), ("s", "replica"))
        place = check_int(f"{where}.replica", one.get("replica", 0), low=0, high=count - 1)
        at.append((_seconds(where, one, "s", 0.0), place))
    chance = keys.get("mtbf_s")
    return Failures(
        at=at,
        mtbf_ps=None if chance is None else _seconds(field, keys, "mtbf_s", 0.0, least=1e-3),
        repair_ps=_seconds(field, keys, "repair_s", 0.0),
        seed=seed,
    )


def lockstep_of(asked: Mapping[str, Any], dp: Sequence[int]) -> bool:
    """Whether data-parallel ranks, so many of them in each pool, step together."""
    field, given = "fleet.lockstep", asked.get("lockstep", False)
    if not isinstance(given, bool):
        raise KvroomError(field, given, "is not true or false", "Write one.")
    if given and min(dp) == 1:
        raise KvroomError(field, given, "needs ranks that step together", "Set dp to 2 or more.")
    if given and "failures" in asked:
        why = "is not simulated together with failures of single ranks"
        raise KvroomError(field, given, why, "Leave one of them out.")
    return given


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Two pools and what connects them; ``link_bytes_per_s`` None: one network adapter a GPU."""

    prefill: tuple[Scenario, int]
    decode: tuple[Scenario, int]
    """Of each pool the Scenario of one replica, and how many there are."""
    link_bytes_per_s: float | None
    latency_s: float
    layerwise: bool
    routing: Routing


def split_of(scenario: Scenario) -> Split | None:
    """The pools that ``disaggregation`` asks for; KvroomError names what is wrong."""
    field = "disaggregation"
    if scenario.disaggregation is None:
        return None
    keys = object_of(field, scenario.disaggregation)
    known = ("prefill", "decode", "link_bytes_per_s", "latency_s", "layerwise", "routing")
    check_keys(field, keys, known)
    if scenario.replicas > 1:
        fix = f"Say how many replicas each pool has: {field}.prefill.count, {field}.decode.count."
        raise KvroomError("replicas", scenario.replicas, "do not say which pool is meant", fix)
    fleet = fleet_keys(scenario)
    for key in ("pools", "autoscale"):
        if key in fleet:
            why = "is not simulated together with disaggregation"
            raise KvroomError(f"fleet.{key}", "…", why, "Leave one of them out.")
    layerwise = keys.get("layerwise", False)
    if not isinstance(layerwise, bool):
        raise KvroomError(f"{field}.layerwise", layerwise, "is not true or false", "Write one.")
    link = keys.get("link_bytes_per_s")
    if link is not None:
        link = check_float(f"{field}.link_bytes_per_s", link, low=1, high=1e18, unit="bytes/s")
    return Split(
        prefill=pool_of(scenario, keys.get("prefill", {}), f"{field}.prefill"),
        decode=pool_of(scenario, keys.get("decode", {}), f"{field}.decode"),
        link_bytes_per_s=link,
        latency_s=check_float(f"{field}.latency_s", keys.get("latency_s", 5e-6), low=0, high=1e3),
        layerwise=layerwise,
        routing=parse_routing(keys.get("routing", "least-loaded:by=tokens"), f"{field}.routing"),
    )


def check_widths(names: Sequence[str]) -> None:
    """Refuse caches of two widths: what one pool computes the other could not read."""
    if len(set(names)) > 1:
        fix = "Give both pools the same kv_dtype."
        raise KvroomError("disaggregation", list(names), "are the widths of the two caches", fix)


def check_fleet(scenario: Scenario) -> tuple[str, ...]:
    """Which keys of ``routing`` and ``fleet`` are asked for, all of them read; KvroomError names what is
    wrong."""
    parse_routing(scenario.routing)
    asked = fleet_keys(scenario)
    owns = [(scenario, scenario.replicas)]
    if "pools" in asked:
        owns = pools_of(scenario, asked["pools"])
    count = sum(n * own.dp for own, n in owns)
    scale = autoscale_of(asked, count, owns[0][0].dp)
    failures_of(asked, max(count, scale.most if scale else 0), 0)
    lockstep_of(asked, [own.dp for own, _ in owns])
    return (*(["routing"] if scenario.routing is not None else []), *(f"fleet.{k}" for k in asked))


def pools_of(scenario: Scenario, given: Any) -> list[tuple[Scenario, int]]:
    """Of each of ``fleet.pools`` the Scenario of one replica, and how many there are."""
    field = "fleet.pools"
    if scenario.replicas > 1:
        fix = f"Say how many replicas each pool has: {field}[0].count."
        raise KvroomError("replicas", scenario.replicas, "do not say which pool is meant", fix)
    pools = list_of(field, given)
    return [pool_of(scenario, pool, f"{field}[{n}]") for n, pool in enumerate(pools)]


def fleet_keys(scenario: Scenario) -> Mapping[str, Any]:
    """The ``fleet`` object of a Scenario, empty where there is none."""
    if scenario.fleet is None:
        return {}
    given = object_of("fleet", scenario.fleet)
    check_keys("fleet", given, KEYS)
    return given


def object_of(field: str, value: Any) -> Mapping[str, Any]:
    """``value``, which is to be an object."""
    if not isinstance(value, Mapping):
        raise KvroomError(field, value, "is not an object", "Write it in braces: {…}.")
    return value


def list_of(field: str, value: Any) -> Sequence[Any]:
    """``value``, which is to be a list of one or more."""
    if not isinstance(value, list | tuple) or not value:
        raise KvroomError(field, value, "is not a list", "Write it in brackets, one or more.")
    return value


def count_of(field: str, value: Any) -> int:
    """``value``, which is to be a number of replicas."""
    return check_int(field, value, low=1, high=MAX_REPLICAS)


def _seconds(
    field: str, keys: Mapping[str, Any], key: str, usual: float, *, least: float = 0.0
) -> int:
    value = check_float(f"{field}.{key}", keys.get(key, usual), low=least, high=1e9, unit="seconds")
    return seconds_ps(value)
