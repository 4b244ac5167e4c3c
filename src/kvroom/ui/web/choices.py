"""What a field of the page's instrument may hold: the choices of a question, and why others are none.

``choices`` tries each value in the question and asks the engine's own start rules, so that what is offered
is what ``plan`` takes for this engine, release, model and card, and what is refused it refuses, with the
same words. ``known`` lists the models and cards that are known by name, with the words that find them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from functools import lru_cache
from typing import Any

from kvroom import api
from kvroom.answer.verdict import Reason
from kvroom.engines.base import Engine
from kvroom.engines.registry import all_engines, engine_of
from kvroom.engines.support import Requirements, weights_need
from kvroom.errors import KvroomError
from kvroom.hardware import catalogue as cards
from kvroom.models import catalogue
from kvroom.models.dtypes import CACHE_DTYPES, cache_dtype
from kvroom.models.weight_dtypes import WEIGHT_DTYPES, named
from kvroom.optimize.search.space import usual_layouts
from kvroom.planner.place import deploy, subject
from kvroom.records import dataclass
from kvroom.scenario.engine_names import engine_aliases
from kvroom.scenario.layout import DEGREES
from kvroom.scenario.scenario import Scenario
from kvroom.sharding.layout import most_experts
from kvroom.ui.web.sections.card import CHOSEN, degrees

CACHE_FLAGS = ("kv_cache_dtype",)
"""Flags of engines that say what a key of the question says too, and win."""
ASKED_FOR = ("fp8", "int8", "nvfp4", "int4", "q8_0", "q4_0")
"""Widths that people look for by name: they are listed, and why not, where an engine has none."""
MOST_LAYOUTS = 40


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One value of a field: what is ``value``d in the question, how it is called and what is to be known of
    it; ``refused`` where the engine would not take it. ``changes`` are the keys that choosing it sets."""

    value: Any
    label: str
    says: str = ""
    refused: Reason | None = None
    changes: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


def choices(keys: Mapping[str, Any], fields: Iterable[str] = ()) -> dict[str, Any]:
    """The choices of ``fields`` (all where none is named) in the question of ``keys``, a list a field.

    KvroomError where the question itself is none, or for a field that has no choices.
    """
    scenario = Scenario.from_dict(dict(keys))
    wanted = tuple(fields) or tuple(FIELDS)
    for name in wanted:
        if name not in FIELDS:
            raise KvroomError(
                "of", name, "is no field with choices", f"One of: {', '.join(FIELDS)}."
            )
    return {name: [choice.to_dict() for choice in FIELDS[name](scenario)] for name in wanted}


def _engines(scenario: Scenario) -> Iterator[Choice]:
    aliases = engine_aliases()
    alone = _one_card(scenario)
    for engine in all_engines():
        tried = replace(
            alone,
            engine=engine.name,
            engine_version=None,
            engine_args={},
            kv_dtype="auto",
            weight_dtype=None,
        )
        yield Choice(
            value=engine.name,
            label=engine.name if engine.ceiling else engine.label,
            says="plain arithmetic: the most that any engine has"
            if engine.ceiling
            else ", ".join(alias for alias, name in aliases.items() if name == engine.name),
            refused=_refusal(tried, ("card", "vendor")),
            changes={"engine": engine.name, "engine_version": None, "engine_args": None},
        )


def _versions(scenario: Scenario) -> Iterator[Choice]:
    engine = engine_of(scenario.engine)
    newest = engine.releases[0] if engine.releases else ""
    yield Choice(
        value=None,
        label=f"newest modelled ({newest})" if newest else "any",
        says="" if newest else f"{engine.label} is not told apart by release",
        changes={"engine_version": None},
    )
    for release in engine.releases:
        yield Choice(value=release, label=release, changes={"engine_version": release})


def _caches(scenario: Scenario) -> Iterator[Choice]:
    engine = engine_of(scenario.engine)
    alone = _one_card(scenario, drop=CACHE_FLAGS)
    args = {k: v for k, v in scenario.engine_args.items() if k not in CACHE_FLAGS}
    flags = {"engine_args": args or None} if args != scenario.engine_args else {}
    own = deploy(replace(alone, kv_dtype="auto"), paths=False)[0].kv_name
    yield Choice(
        value="auto",
        label=f"auto ({own})",
        says="as the checkpoint says, else 16 bits",
        refused=_refusal(replace(alone, kv_dtype="auto"), key="kv_dtype"),
        changes={"kv_dtype": None, **flags},
    )
    for name in _types(engine.support.cache_types, CACHE_DTYPES):
        yield Choice(
            value=name,
            label=name,
            says=_width(cache_dtype(name).bytes_for(1024) / 128, engine.support.cache, name, alone),
            refused=_refusal(replace(alone, kv_dtype=name), key="kv_dtype"),
            changes={"kv_dtype": name, **flags},
        )


def _weights(scenario: Scenario) -> Iterator[Choice]:
    engine = engine_of(scenario.engine)
    alone = _one_card(scenario)
    own = deploy(replace(alone, weight_dtype=None), paths=False)[0].weights
    yield Choice(
        value=None,
        label=f"the checkpoint's own ({own.quantisation.name})",
        refused=_refusal(replace(alone, weight_dtype=None), key="weight_dtype"),
        changes={"weight_dtype": None},
    )
    for name in _types(engine.support.weight_types, WEIGHT_DTYPES):
        linear = named(name, own.model).linear
        bits = linear.bytes_for(1024, 1024) / 2**17
        yield Choice(
            value=name,
            label=name,
            says=_width(bits, engine.support.weights, name, alone),
            refused=_refusal(replace(alone, weight_dtype=name), key="weight_dtype"),
            changes={"weight_dtype": name},
        )


def _layouts(scenario: Scenario) -> Iterator[Choice]:
    """Layouts of the question's cards: the one that kvroom chooses, then those that people run."""
    usual = dict.fromkeys(DEGREES)
    open_layout = Scenario.from_dict(
        {**scenario.to_dict(), **usual, "gpu_count": scenario.gpu_count}
    )
    chosen = api.workings(open_layout, paths=False).plan
    reason = next((text for text in chosen.warnings if text.startswith(CHOSEN)), "")
    yield Choice(
        value=None,
        label=f"chosen for you: {degrees(chosen.scenario)}",
        says=reason.removeprefix(CHOSEN).partition(": ")[2].partition(" (--")[0],
        changes={**usual, "gpu_count": scenario.gpu_count},
    )
    model = subject(scenario, paths=False)[0]
    engine = engine_of(scenario.engine)
    for layout in _degrees(engine, model, scenario.gpu_count):
        says, refused = "", None
        try:
            workings = api.workings(
                Scenario.from_dict({**scenario.to_dict(), **layout}), paths=False
            )
        except KvroomError as error:
            refused = _of_error(error)
        else:
            verdict = workings.plan.verdict
            if verdict.starts:
                held = workings.held
                what = "request" if held == 1 else "requests"
                says = "" if held is None else f"{held:,} {what} at once"
            else:
                refused = verdict.reasons[0]
        yield Choice(
            value={key: layout[key] for key in DEGREES},
            label=degrees(Scenario.from_dict({**scenario.to_dict(), **layout})),
            says=says,
            refused=refused,
            changes=layout,
        )


FIELDS: Mapping[str, Callable[[Scenario], Iterator[Choice]]] = {
    "engine": _engines,
    "engine_version": _versions,
    "weight_dtype": _weights,
    "kv_dtype": _caches,
    "layout": _layouts,
}


def _degrees(engine: Engine, model: Any, count: int) -> Iterator[dict[str, int]]:
    """Layouts of ``count`` cards, each once, the most tensor ranks first."""
    base = {"gpu_count": count, "tp": 1, "pp": 1, "dp": 1, "ep": 1, "dcp": 1}
    if not engine.tensor_parallel:
        yield {**base, "pp": count}
        return
    by_degrees = {tuple(each.values()): each for each in usual_layouts(model, count)}
    for tp in range(min(count, 16), 0, -1):
        if count % tp == 0:
            replicas = {**base, "tp": tp, "dp": count // tp}
            by_degrees.setdefault(tuple(replicas.values()), replicas)
            if 1 < count <= most_experts(model):
                whole = {**replicas, "ep": count}
                by_degrees.setdefault(tuple(whole.values()), whole)
    ordered = sorted(
        by_degrees.values(), key=lambda d: (-d["tp"], d["pp"], d["dp"], d["ep"], d["dcp"])
    )
    yield from ordered[:MOST_LAYOUTS]


def _one_card(scenario: Scenario, drop: tuple[str, ...] = ()) -> Scenario:
    """The question on one card, where only widths and chips matter."""
    args = {key: value for key, value in scenario.engine_args.items() if key not in drop}
    return replace(
        scenario, gpu_count=1, tp=1, pp=1, dp=1, ep=1, dcp=1, engine_args=args, speculation=None
    )


def _types(known: tuple[str, ...] | None, every: Iterable[str]) -> list[str]:
    """The engine's own widths, then those that people look for; all where nobody says."""
    if known is None:
        return list(every)
    return [*known, *(name for name in ASKED_FOR if name not in known and name in set(every))]


def _width(bits: float, table: Requirements, name: str, scenario: Scenario) -> str:
    """Bits an element, scales included, and what the card lacks for it."""
    engine = engine_of(scenario.engine)
    need = weights_need(table, name)
    device = cards.find(scenario.gpu) if isinstance(scenario.gpu, str) else None
    lacks = need and device and need.refusal(engine.label, scenario.engine_version, device)
    words = [f"{bits:.3g} bits"]
    if need is not None and need.checkpoint:
        words.append(f"needs {need.checkpoint}")
    if need is not None and lacks and not need.refuses:
        words.append(f"{lacks}: not computed in it")
    return "; ".join(words)


def _refusal(scenario: Scenario, rules: tuple[str, ...] = (), *, key: str = "") -> Reason | None:
    """What the engine's start rules, those of ``rules`` or about ``key``, say against ``scenario``."""
    try:
        deployment, _ = deploy(scenario, paths=False)
        answer = engine_of(deployment.engine).answer(deployment)
    except KvroomError as error:
        return _of_error(error) if key and error.field.split(".")[-1] == key else None
    for refusal in answer.refusals:
        if (key and refusal.key == key) or refusal.rule in rules:
            return Reason(
                rule=refusal.rule, message=refusal.message, fix=refusal.fix, source=refusal.source
            )
    return None


def _of_error(error: KvroomError) -> Reason:
    return Reason(
        rule=error.field, message=f"{error.field} {error.value} {error.message}", fix=error.fix,
        source="the question",
    )  # fmt: skip


@lru_cache(maxsize=1)
def known() -> dict[str, list[dict[str, Any]]]:
    """``models`` and ``gpus`` by name, each with its ``group`` and the ``words`` by which it is found."""
    return {
        "models": [
            {
                "name": name,
                "group": (entry := catalogue.entry_of(name))["id"].partition("/")[0],
                "words": [entry["id"], *entry.get("aliases", ())],
                "context_tokens": entry["config"].get("max_position_embeddings"),
            }
            for name in catalogue.names()
        ],
        "gpus": [
            {
                "name": device.name,
                "group": device.vendor,
                "words": list(device.aliases),
                "memory_bytes": device.sold_bytes,
                "memory_bytes_per_s": device.memory_bytes_per_s,
                "usd_per_hour": device.usd_per_hour,
            }
            for device in cards.all_devices()
        ],
    }
