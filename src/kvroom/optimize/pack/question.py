"""The question of ``pack``: models, each with what its engine takes and who uses it, and a node of cards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvroom.engines.base import Engine
from kvroom.engines.flags import plain_name
from kvroom.engines.registry import all_engines, engine_of
from kvroom.errors import KvroomError
from kvroom.hardware.mig import MARK, check_together, profile_of, slice_of
from kvroom.hardware.mixed import names_in
from kvroom.hardware.prices import priced
from kvroom.hardware.reader import resolve
from kvroom.records import dataclass
from kvroom.scenario.layout import counted_cards
from kvroom.scenario.scenario import Scenario
from kvroom.scenario.values import check_keys, number_of, parse_list, parse_object
from kvroom.units import check_float, check_int

MAX_MODELS, MAX_CARDS = 64, 64
SHORT = {"context": "context_tokens", "version": "engine_version", "users": "concurrency"}
"""What people write for a Scenario's key, as the flags of ``plan`` do."""
LOAD = ("input", "output", "rate", "lengths")
OWN = ("name", "gpus", "share", "sleep", "starts", "compute")
NODE = ("gpu", "replicas", "routing", "fleet", "disaggregation", "prices", "host_memory_bytes")
"""Keys of a Scenario that are the node's, or of several nodes."""
KNOWN = (
    *OWN,
    *SHORT,
    *LOAD,
    *(key for key in Scenario.PARSERS if key not in NODE),
)


@dataclass(frozen=True, kw_only=True)
class PackedModel:
    """One entry: ``keys`` are its Scenario's without a card, ``at`` where it stands in the question
    (``models[0]``). ``gpus``: places of cards that it is pinned to, ``share``: of the memory, as its engine's
    flag takes it; None: chosen. ``sleep``: the level at which it sleeps while another is used (0: never).
    ``starts``: its place in the order of starting. ``compute``: of the multiprocessors, what MPS lets it use
    (``CUDA_MPS_ACTIVE_THREAD_PERCENTAGE``)."""

    name: str
    at: str
    keys: Mapping[str, Any]
    gpus: tuple[int, ...] | None = None
    share: float | None = None
    sleep: int = 0
    starts: int = 0
    compute: float = 1.0

    @property
    def engine(self) -> Engine:
        """Its engine."""
        return engine_of(str(self.keys["engine"]))


@dataclass(frozen=True, kw_only=True)
class PackNode:
    """Cards by the ``gpu`` text of each, slices of MIG among them; dollars an hour of all of them, None
    where no price is known. ``name`` is what was asked for."""

    name: str
    cards: tuple[str, ...]
    usd_per_hour: float | None

    @property
    def words(self) -> str:
        """The cards as people say them."""
        counts = {card: self.cards.count(card) for card in self.cards}
        return " + ".join(card if n == 1 else f"{n} × {card}" for card, n in counts.items())


def entries_of(value: object) -> tuple[PackedModel, ...]:
    """The models of a list, or of ``{"models": [...]}``, in the order of starting; KvroomError names the
    entry, the key and the fix."""
    if isinstance(value, Mapping):
        check_keys("models", value, ("models",))
        value = value.get("models")
    rows = parse_list("models", value)
    if len(rows) > MAX_MODELS:
        fix = "Pack them in parts."
        raise KvroomError("models", len(rows), f"are more than {MAX_MODELS}", fix)
    entries = [_entry(f"models[{place}]", row, place) for place, row in enumerate(rows)]
    names = [one.name for one in entries]
    for place, one in enumerate(entries):
        if names.index(one.name) != place:
            fix = "Give each entry a name of its own: name: chat-2."
            raise KvroomError(f"{one.at}.name", one.name, "is another entry's too", fix)
    return tuple(sorted(entries, key=lambda one: one.starts))


def _entry(at: str, row: object, place: int) -> PackedModel:
    given = {key: value for key, value in parse_object(at, row).items() if value is not None}
    check_keys(at, given, KNOWN)
    if "model" not in given:
        raise KvroomError(f"{at}.model", None, "is missing", "Say which: model: llama-3-8b.")
    keys: dict[str, Any] = {
        SHORT.get(key, key): value
        for key, value in given.items()
        if key not in (*OWN, *LOAD) and not (key in SHORT and SHORT[key] in given)
    }
    for short, full in SHORT.items():
        if short in given and full in given:
            raise KvroomError(
                f"{at}.{short}", given[short], f"and {full} say one thing", "Give one."
            )
    if load := _load(at, given):
        keys["workload"] = load
    # a card of any kind: the keys are checked once here, and again with each card that is tried
    checked = _checked(at, {**keys, "gpu": "H100-SXM"})
    keys["engine"] = checked.engine
    engine = engine_of(checked.engine)
    if engine.ceiling:
        real = [one.name for one in all_engines() if not one.ceiling]
        fix = f"Name one that starts: {', '.join(real)}."
        raise KvroomError(f"{at}.engine", checked.engine, "starts nothing", fix)
    sleep = check_int(f"{at}.sleep", given.get("sleep", 0), low=0, high=2)
    if sleep and not engine.sleep_flag:
        able = [one.name for one in all_engines() if one.sleep_flag]
        fix = f"Leave it out, or take {' or '.join(able)}."
        raise KvroomError(f"{at}.sleep", sleep, f"is nothing that {engine.label} can do", fix)
    model = given["model"]
    return PackedModel(
        name=str(given.get("name") or (model if isinstance(model, str) else f"model {place + 1}")),
        at=at,
        keys=keys,
        gpus=_pins(f"{at}.gpus", given.get("gpus")),
        share=_share(at, engine, given, keys),
        sleep=sleep,
        starts=check_int(f"{at}.starts", given.get("starts", place), low=0, high=10**6),
        compute=check_float(f"{at}.compute", given.get("compute", 1.0), low=0.01, high=1.0),
    )


def _checked(at: str, keys: Mapping[str, Any]) -> Scenario:
    try:
        return Scenario.from_dict(keys)
    except KvroomError as error:
        raise KvroomError(f"{at}.{error.field}", error.value, error.message, error.fix) from None


def _load(at: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The workload that an entry's own words say."""
    load = dict(parse_object(f"{at}.workload", given.get("workload", {})))
    for key in ("input", "output", "lengths"):
        if key in given:
            load[key] = given[key]
    if "rate" in given:
        if "users" in given or "concurrency" in given:
            fix = "Give users (a closed loop) or rate (requests a second)."
            raise KvroomError(f"{at}.rate", given["rate"], "and users are two loads", fix)
        load["arrivals"] = f"poisson:{_rate(f'{at}.rate', given['rate']):g}/s"
    return load


def _rate(name: str, value: object) -> float:
    text = value.removesuffix("/s") if isinstance(value, str) else value
    rate = number_of(text)
    if rate is None or rate <= 0:
        raise KvroomError(name, value, "is no number of requests a second", "Write rate: 2.5.")
    return check_float(name, rate, low=1e-6, high=1e6, unit="requests a second")


def _pins(name: str, value: object) -> tuple[int, ...] | None:
    if value is None:
        return None
    rows = value if isinstance(value, list | tuple) else [value]
    places = tuple(check_int(name, one, low=0, high=MAX_CARDS - 1) for one in rows)
    if not places or len(set(places)) < len(places):
        raise KvroomError(name, value, "are not cards, each once", "Write gpus: [0, 1].")
    return places


def _share(
    at: str, engine: Engine, given: Mapping[str, Any], keys: Mapping[str, Any]
) -> float | None:
    """The fixed share, as a key of its own or among the engine's flags."""
    flag = engine.limits.share
    args = keys.get("engine_args") or {}
    names = {plain_name(key): value for key, value in args.items()} if flag else {}
    said = next((names[n] for n in (flag, *engine.limits.share_aliases) if n in names), None)
    share = given.get("share")
    if share is None:
        return None if said is None else number_of(said)
    if not flag:
        fix = f"Leave it out: {engine.label} takes what it needs."
        raise KvroomError(f"{at}.share", share, "is no flag of this engine", fix)
    if said is not None:
        fix = f"Leave {flag} out of engine_args."
        raise KvroomError(f"{at}.share", share, f"and {flag} say one thing", fix)
    return check_float(f"{at}.share", number_of(share), low=0.001, high=1.0)


def node_of(text: str, prices: Mapping[str, float | str] | None = None) -> PackNode:
    """The cards of ``H100-SXM:2``, or of ``H100-SXM:mig=3g.40gb+2g.20gb`` (one profile alone: as many as
    the card has room for; ``:2`` behind it: so many); KvroomError (field ``gpu``)."""
    card, mig, sliced = text.partition(MARK)
    if not mig:
        name, count = counted_cards(text)
        check_int("gpu", count or 1, low=1, high=MAX_CARDS, unit="cards")
        unlike = names_in(name)
        cards = unlike if len(unlike) > 1 else (name,) * (count or 1)
        each = [priced(resolve(one), prices or {}).usd_per_hour for one in cards]
        known = [price for price in each if price is not None]
        return PackNode(
            name=text,
            cards=tuple(cards),
            usd_per_hour=sum(known) if len(known) == len(each) else None,
        )
    device = priced(resolve(card), prices or {})
    wanted, _, many = sliced.partition(":")
    names = tuple(part.strip().lower() for part in wanted.split("+"))
    if len(names) == 1:
        most = profile_of(device, names[0]).most
        names *= check_int("gpu", int(many) if many.isdecimal() else most, low=1, high=most)
    check_together(device, names)
    return PackNode(
        name=text,
        cards=tuple(slice_of(device, name).name for name in names),
        usd_per_hour=device.usd_per_hour,
    )


def check_pins(entries: Sequence[PackedModel], node: PackNode) -> None:
    """Refuse a pin to a card that the node has not."""
    for one in entries:
        for place in one.gpus or ():
            if place >= len(node.cards):
                fix = f"Its cards are 0 to {len(node.cards) - 1}."
                raise KvroomError(f"{one.at}.gpus", place, f"is no card of {node.words}", fix)
