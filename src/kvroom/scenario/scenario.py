"""The question: a Scenario, frozen, to and from plain dicts, and as a link.

Keys are those of the JSON that scripts and the page rely on; every quantity carries its unit as a
suffix. Bytes, tokens and counts are ``int``; seconds, ratios and dollars ``float``; ``None`` is what
is not known or not asked. Each value is checked once, here, and is of its own type from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import field, fields, replace
from typing import ClassVar

from kvroom.errors import KvroomError, did_you_mean, shortened
from kvroom.hardware.prices import check_terms
from kvroom.records import dataclass
from kvroom.scenario.cluster import Disaggregation, Fleet, ReplicaPool
from kvroom.scenario.engine_names import DEFAULT_ENGINE, engine_name
from kvroom.scenario.layout import DEGREES, LAYOUT_KEYS, OPEN, counted_cards, filled_layout
from kvroom.scenario.link import PAGE_ADDRESS, keys_of_link, link_of
from kvroom.scenario.offload import OffloadTier, parse_tiers
from kvroom.scenario.offload import from_flags as tiers_of_flags
from kvroom.scenario.routing import Routing
from kvroom.scenario.speculation import SpeculativeDecoding
from kvroom.scenario.values import (
    MAX_GPUS,
    MAX_REQUESTS,
    check_keys,
    parse_flag,
    parse_json_object,
    parse_keys,
    parse_named_object,
    parse_object,
    parse_text,
    parse_tokens_or_zero,
    whole,
)
from kvroom.scenario.workload import Workload
from kvroom.units import MAX_BYTES, ceil_div, check_float, check_int, parse_bytes, parse_tokens

RECIPES = ("tuned", "default", "unknown")
"""How a server was set up: flags chosen for its speed on this card, left as they come, or nobody says."""


def _recipe(name: str, value: object) -> str:
    word = parse_text(name, value).lower()
    if word not in RECIPES:
        fix = did_you_mean(word, RECIPES, f"One of: {', '.join(RECIPES)}.")
        raise KvroomError(name, value, "is no recipe", fix)
    return word


def _engine(name: str, value: object) -> str:
    return engine_name(name, parse_text(name, value))


def _version(name: str, value: object) -> str:
    """Any text: what cannot be read as a version takes the nearest modelled one."""
    text = value if isinstance(value, str) else shortened(value, 40)
    return text[:40].encode("utf-8", "replace").decode()


def _prices(name: str, value: object) -> dict[str, float | str]:
    """Dollars an hour of a card, or the terms of its price, by its name (``*``: every other card)."""
    found: dict[str, float | str] = {}
    for card, price in parse_object(name, value).items():
        field = f"{name}.{card}"
        if isinstance(price, str):
            found[card] = check_terms(field, price)
        elif price is not None:
            found[card] = check_float(field, price, low=0.0, high=1e6, unit="dollars an hour")
    return found


def _cards(keys: Mapping[str, object]) -> dict[str, object]:
    """``gpu`` and ``gpu_count`` where the one says both; KvroomError where they disagree."""
    text, said = keys["gpu"], keys.get("gpu_count")
    if not isinstance(text, str):
        return {}
    name, count = counted_cards(text)
    if count is None:
        return {}
    check_int("gpu_count", count, low=1, high=MAX_GPUS)
    if said is not None and said != count:
        raise KvroomError("gpu", text, f"and gpu_count {said} disagree", "Give the count once.")
    return {"gpu": name, "gpu_count": count}


KNOWN_BYTES = ("visible", "free_before_load", "weights", "activations", "runtime", "graphs")


def _known_bytes(name: str, value: object) -> dict[str, int]:
    given = parse_object(name, value)
    check_keys(name, given, KNOWN_BYTES)
    sizes = {
        key: parse_bytes(f"{name}.{key}", value)
        for key, value in given.items()
        if value is not None
    }
    if "visible" in sizes:
        check_int(f"{name}.visible", sizes["visible"], low=1, high=MAX_BYTES, unit="bytes")
        free = sizes.get("free_before_load", 0)
        if free > sizes["visible"]:
            wrong = f"is more than the {sizes['visible']:,} bytes visible"
            raise KvroomError(f"{name}.free_before_load", free, wrong, "Both are of one GPU.")
    return sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One question: a model on hardware, laid out and served so, at a length, for so many.

    Build it with ``Scenario.from_dict`` (``kvroom.plan`` does), which checks and fills in:
    ``gpu_count`` and the layout must agree; where ``tp`` alone is left out it takes the cards that pipeline
    and data parallelism leave. Where only ``gpu_count`` is said the layout is open (``tp`` is 0 here, null
    in JSON) until ``planner.layout`` chooses one.
    """

    model: str | dict[str, object]
    gpu: str | dict[str, object]
    gpu_count: int = 1
    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1
    dcp: int = 1
    weight_dtype: str | None = None
    kv_dtype: str = "auto"
    context_tokens: int | None = None
    encoder_tokens: int | None = None
    concurrency: int | None = None
    engine: str = DEFAULT_ENGINE
    engine_version: str | None = None
    engine_args: dict[str, object] = field(default_factory=dict)
    recipe: str | None = None
    workload: Workload | None = None
    tiers: tuple[OffloadTier, ...] | None = None
    replicas: int = 1
    routing: Routing | None = None
    fleet: Fleet | None = None
    disaggregation: Disaggregation | None = None
    speculation: SpeculativeDecoding | None = None
    calibration: dict[str, object] | None = None
    known_bytes: dict[str, int] | None = None
    host_memory_bytes: int | None = None
    prices: dict[str, float | str] | None = None
    allow_overcommit: bool = False

    PARSERS: ClassVar[dict[str, Callable[[str, object], object]]] = {
        "model": parse_named_object,
        "gpu": parse_named_object,
        **dict.fromkeys(LAYOUT_KEYS, whole(MAX_GPUS)),
        "weight_dtype": parse_text,
        "kv_dtype": parse_text,
        "context_tokens": parse_tokens,
        "encoder_tokens": parse_tokens_or_zero,
        "concurrency": whole(MAX_REQUESTS),
        "engine": _engine,
        "engine_version": _version,
        "engine_args": parse_json_object,
        "recipe": _recipe,
        "workload": Workload.parse,
        "tiers": parse_tiers,
        "replicas": whole(MAX_GPUS),
        "routing": Routing.parse,
        "fleet": Fleet.parse,
        "disaggregation": Disaggregation.parse,
        "speculation": SpeculativeDecoding.parse,
        "calibration": parse_json_object,
        "known_bytes": _known_bytes,
        "host_memory_bytes": parse_bytes,
        "prices": _prices,
        "allow_overcommit": parse_flag,
    }

    @classmethod
    def from_dict(cls, keys: object) -> Scenario:
        """The Scenario that a plain dict asks for; KvroomError names the key that is wrong."""
        parsed = parse_keys(cls.PARSERS, "scenario", keys)
        for key, example in (("model", "llama-3-70b"), ("gpu", "H100-SXM:4")):
            if key not in parsed:
                raise KvroomError(key, None, "is missing", f"Say which {key}, such as {example}.")
        parsed |= _cards(parsed)
        parsed |= filled_layout(parsed)
        scenario = cls(**parsed)  # type: ignore[arg-type]  # each key has been through its parser
        scenario._check_replicas()
        return scenario._with_users()._with_tiers()

    def _with_tiers(self) -> Scenario:
        """The tiers that an engine's own flags ask for, where none are given."""
        if self.tiers:
            return self
        # without a layout every card is taken for one replica's
        ranks = self.tp * self.pp * self.dp or self.gpu_count
        asked = tiers_of_flags(self.engine_args, ranks, max(1, self.dp))
        return replace(self, tiers=parse_tiers("tiers", asked)) if asked else self

    def _with_users(self) -> Scenario:
        """``concurrency`` and ``workload.concurrency`` stand in for each other."""
        workload, users = self.workload, self.concurrency
        if workload is None:
            return self
        if users is None and workload.concurrency is not None:
            return replace(self, concurrency=workload.concurrency)
        if users is not None and workload.concurrency is None:
            return replace(self, workload=replace(workload, concurrency=users))
        return self

    @property
    def replica_concurrency(self) -> int | None:
        """Requests at once in one replica: its even share of ``concurrency``."""
        return self.concurrency and ceil_div(self.concurrency, self.replicas)

    def _check_replicas(self) -> None:
        """Where pools have counts of their own, ``replicas`` means none of them."""
        fleet, split = self.fleet, self.disaggregation
        many = "replicas", self.replicas, "do not say which pool is meant"
        if split is not None:
            if self.replicas > 1:
                name = "disaggregation"
                fix = f"Say how many replicas each pool has: {name}.prefill.count, {name}.decode.count."
                raise KvroomError(*many, fix)
            for key in ("pools", "autoscale"):
                if fleet is not None and getattr(fleet, key) is not None:
                    why = "is not simulated together with disaggregation"
                    raise KvroomError(f"fleet.{key}", "…", why, "Leave one of them out.")
        elif fleet is not None and fleet.pools is not None and self.replicas > 1:
            fix = "Say how many replicas each pool has: fleet.pools[0].count."
            raise KvroomError(*many, fix)

    @property
    def layout_open(self) -> bool:
        """Whether the layout is still to be chosen."""
        return self.tp == OPEN

    def of_pool(self, pool: ReplicaPool) -> Scenario:
        """The Scenario of one replica of ``pool``."""
        keys = self.to_dict()
        keys |= {"replicas": 1, "routing": None, "fleet": None, "disaggregation": None}
        own = pool.differs
        if set(own) & {"gpu", *LAYOUT_KEYS}:
            keys = {key: value for key, value in keys.items() if key not in LAYOUT_KEYS}
        if pool.engine_args is not None:
            own["engine_args"] = {**self.engine_args, **pool.engine_args}
        return Scenario.from_dict(keys | own)

    def to_dict(self) -> dict[str, object]:
        """Every key, as plain JSON values; ``from_dict`` takes it back to an equal Scenario."""
        keys = {one_field.name: _plain(getattr(self, one_field.name)) for one_field in fields(self)}
        return keys | dict.fromkeys(DEGREES if self.layout_open else ())

    def differences(self) -> dict[str, object]:
        """Only the keys that differ from the defaults (``model`` and ``gpu`` always)."""
        keys: dict[str, object] = {}
        usual = Scenario(model="", gpu="")
        for one_field in fields(self):
            value = getattr(self, one_field.name)
            if isinstance(value, Workload):
                keys[one_field.name] = value.differences()
            elif one_field.name in ("model", "gpu") or value != getattr(usual, one_field.name):
                keys[one_field.name] = _plain(value)
        if self.layout_open:
            del keys["tp"]
        return keys

    def link(self, base: str = PAGE_ADDRESS) -> str:
        """The page's address for this very question."""
        return link_of(self.differences(), base)

    @classmethod
    def from_link(cls, link: str) -> Scenario:
        """The Scenario of an address: ``#s=1.…``, or plain ``?model=…&gpu=…&context=…``."""
        return cls.from_dict(keys_of_link(link))


PARTS = (Workload, OffloadTier, Routing, Fleet, Disaggregation, SpeculativeDecoding)


def _plain(value: object) -> object:
    """A value of a Scenario as JSON has it."""
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if isinstance(value, PARTS):
        return value.to_dict()
    return deepcopy(value) if isinstance(value, dict | list) else value
