"""What a search chooses from: cards, how many, layouts, widths, engines and their budgets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, field, fields, replace
from itertools import product
from types import MappingProxyType
from typing import Any

from kvroom.engines.base import Engine
from kvroom.engines.registry import engine_of
from kvroom.engines.support import Requirements
from kvroom.errors import KvroomError
from kvroom.hardware import all_devices
from kvroom.hardware.device import Device
from kvroom.hardware.prices import priced
from kvroom.hardware.reader import resolve
from kvroom.models.dtypes import cache_dtype
from kvroom.models.kinds import ConvState, RecurrentState, SlidingWindow
from kvroom.models.load import load
from kvroom.models.spec import ModelSpec
from kvroom.models.weight_dtypes import named
from kvroom.optimize.levers.published import CACHE_QUALITY, WEIGHT_QUALITY
from kvroom.records import dataclass
from kvroom.scenario.engine_names import DEFAULT_ENGINE, engine_name
from kvroom.scenario.layout import DEGREES
from kvroom.scenario.offload import line as tier_line
from kvroom.scenario.scenario import Scenario
from kvroom.scenario.speculation import line as speculation_line
from kvroom.scenario.values import MAX_GPUS, check_keys
from kvroom.sharding.layout import context_cuts, most_experts
from kvroom.units import check_float, check_int

COUNTS = (1, 2, 4, 8)
MOST_TENSOR_RANKS = 8
MOST_STAGES = 4
MOST_SETTING = 10**9
"""The largest value of a flag that is tried."""
NONE, MTP, HOST = "none", "mtp", "host"
OWN = "own"
"""The checkpoint's own weights, the cache that the engine takes by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """Values to try of each choice; an empty one means the usual ones.

    Usual: every card of the catalogue with known arithmetic (those without a price in their own widths
    alone); 1, 2, 4 and 8 of them; vLLM; the checkpoint's own weights and FP8; a 16-bit cache and FP8; no
    drafts and the checkpoint's own draft layer (``drafts``); no offload and host memory where later requests
    find something there (``tiers``); the engine's own token budget (``budgets``), share of the memory
    (``shares``) and requests at once (``sequences``). ``layout`` holds degrees that are fixed.
    ``splits``: pools of prompts and answers too.
    """

    gpus: tuple[Any, ...] = ()
    counts: tuple[int, ...] = COUNTS
    engines: tuple[str, ...] = (DEFAULT_ENGINE,)
    weight_dtypes: tuple[str, ...] = ()
    kv_dtypes: tuple[str, ...] = ()
    budgets: tuple[int, ...] = ()
    shares: tuple[float, ...] = ()
    sequences: tuple[int, ...] = ()
    drafts: tuple[str, ...] = ()
    tiers: tuple[str, ...] = ()
    layout: Mapping[str, int] = field(default_factory=dict)
    splits: bool = True
    max_gpus: int = 1024

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in asdict(self).items()
        }

    @classmethod
    def from_dict(cls, keys: Mapping[str, Any]) -> Space:
        """A Space from its plain form, checked; KvroomError names what is wrong."""
        if not isinstance(keys, Mapping):
            raise KvroomError("space", keys, "is not an object", "Name its choices by their keys.")
        check_keys("space", keys, tuple(one_field.name for one_field in fields(cls)))
        values: dict[str, Any] = {key: _listed(key, value) for key, value in keys.items()}
        space = cls(**values)
        for count in space.counts:
            check_int("--counts", count, low=1, high=MAX_GPUS)
        for name in ("budgets", "sequences"):
            for count in getattr(space, name):
                check_int(f"--{name}", count, low=1, high=MOST_SETTING)
        for dtype in space.weight_dtypes:
            if dtype != OWN:
                named(dtype)
        for dtype in space.kv_dtypes:
            if dtype != "auto":
                cache_dtype(dtype, "--kv-dtypes")
        check_keys("space.layout", space.layout, DEGREES)
        for name, count in space.layout.items():
            check_int(f"--{name}", count, low=1, high=MAX_GPUS)
        for text in space.drafts:
            if text != NONE:
                speculation_line(text, "--drafts")
        for text in space.tiers:
            if text != NONE:
                tier_line(text)
        check_int("--max-gpus", space.max_gpus, low=1, high=MAX_GPUS)
        for share in space.shares:
            check_float("--shares", share, low=0.01, high=1.0)
        for name in space.engines:
            engine_name("--engines", name)
        for gpu in space.gpus:
            resolve(gpu)
        return space


def _listed(key: str, value: Any) -> Any:
    """Choices as a tuple; the keys that are none of these are left as they are."""
    if key in ("max_gpus", "layout", "splits") or isinstance(value, tuple):
        return value
    if not isinstance(value, list):
        raise KvroomError(f"space.{key}", value, "is no list of choices", "Write such as [2, 4].")
    return tuple(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One deployment: the keys of a Scenario that it sets."""

    keys: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """A short name, the same for the same keys."""
        keys = self.keys
        gpu = keys["gpu"] if isinstance(keys["gpu"], str) else keys["gpu"].get("name", "card")
        parts = [f"{gpu}:{keys['gpu_count']}"]
        parts += [f"{d}{keys[d]}" for d in ("tp", "pp", "dp", "ep", "dcp") if keys.get(d, 1) > 1]
        parts += [keys["engine"], keys["weight_dtype"] or OWN, keys["kv_dtype"]]
        parts += [str(value) for value in keys.get("engine_args", {}).values()]
        parts += [f"drafts {keys['speculation']}"] if keys.get("speculation") else []
        parts += [f"tier {t['kind']}" for t in keys.get("tiers") or ()]
        if split := keys.get("disaggregation"):
            parts.append(
                f"{split['prefill']['count']}{_card(split)}+{split['decode']['count']} pools"
            )
        return " ".join(parts)

    @property
    def kind(self) -> tuple[str, ...]:
        """What answers that are shown differ in: all but the cache's width and an engine's settings."""
        own = {
            key: value for key, value in self.keys.items() if key not in ("kv_dtype", "engine_args")
        }
        if own.get("disaggregation"):
            own["disaggregation"] = f"pools{_card(own['disaggregation'])}"
        return tuple(f"{k}={v}" for k, v in sorted(own.items()))


def _card(split: Mapping[str, Any]) -> str:
    """The card that computes prompts, where it is another."""
    gpu = split["prefill"].get("gpu")
    return "" if gpu is None else f" {gpu if isinstance(gpu, str) else gpu.get('name', 'card')}"


def usual_cards(prices: Mapping[str, float | str]) -> tuple[list[str], list[str]]:
    """Cards of the catalogue whose arithmetic is known: those with a price, and those without."""
    devices = [all_device for all_device in all_devices() if all_device.flops("bf16") is not None]
    dear = [d.name for d in devices if priced(d, prices).usd_per_hour is not None]
    return dear, [d.name for d in devices if d.name not in dear]


def candidates(base: Scenario, space: Space, *, reuses: bool = False) -> Iterator[Candidate]:
    """Every deployment of the space that nothing known rules out, in a fixed order. ``reuses``: requests find
    in the cache what earlier ones left."""
    model = load(base.model)
    named, others = ([*space.gpus], []) if space.gpus else usual_cards(base.prices or {})
    own = replace(space, weight_dtypes=(OWN,), kv_dtypes=("auto",), drafts=(NONE,), tiers=(NONE,))
    for gpu, choice in [*((g, space) for g in named), *((other, own) for other in others)]:
        device = resolve(gpu)
        for count in sorted(set(choice.counts)):
            for layout in layouts(model, count, choice.layout):
                for name in choice.engines:
                    engine = engine_of(name)
                    if layout["dcp"] > 1 and not engine.support.context_ranks:
                        continue
                    for widths, args, more in product(
                        _widths(base, choice, device, engine),
                        _settings(base, choice, engine, model),
                        _beside(base, choice, engine, model, reuses=reuses),
                    ):
                        keys = {"gpu": gpu, "engine": name, **layout, **widths, **args, **more}
                        yield Candidate(keys=keys)


def _beside(
    base: Scenario, space: Space, engine: Engine, model: ModelSpec, *, reuses: bool
) -> Iterator[dict[str, Any]]:
    """Drafts and tiers to try beside a deployment; what the question sets of them is in every one."""
    drafts, tiers = space.drafts, space.tiers
    if not drafts:
        own = model.mtp_params and MTP in engine.support.drafting
        drafts = (NONE, f"{MTP}:1") if own else (NONE,)
    if not tiers:
        tiers = (NONE, HOST) if reuses and engine.support.offload is not None else (NONE,)
    drafts = (NONE,) if base.speculation is not None else drafts
    tiers = (NONE,) if base.tiers else tiers
    for draft, tier in product(drafts, tiers):
        keys: dict[str, Any] = {} if draft == NONE else {"speculation": draft}
        if base.disaggregation is not None:
            keys["disaggregation"] = base.to_dict()["disaggregation"]
        yield keys if tier == NONE else {**keys, "tiers": [tier_line(tier)]}


def layouts(
    model: ModelSpec, count: int, fixed: Mapping[str, int] = MappingProxyType({})
) -> Iterator[dict[str, int]]:
    """Ways to lay ``model`` out on ``count`` cards, with the degrees that are ``fixed``.

    Dense models are copied by replicas, so data-parallel ranks are only tried where experts are spread
    over them, or they are asked for.
    """
    usual = [
        usual_layout
        for usual_layout in usual_layouts(model, count)
        if all(usual_layout[key] == value for key, value in fixed.items())
    ]
    if not usual and fixed:
        degrees = {"gpu_count": count, **dict.fromkeys(DEGREES, 1), **fixed}
        if "tp" not in fixed:
            degrees["tp"] = max(1, count // (degrees["pp"] * degrees["dp"]))
        usual = [degrees] if degrees["tp"] * degrees["pp"] * degrees["dp"] == count else []
    yield from usual


def usual_layouts(model: ModelSpec, count: int) -> Iterator[dict[str, int]]:
    """Layouts of ``count`` cards that people run, as keys of a Scenario: tensor ranks with stages, and with
    attention data parallel over spread experts."""
    experts, heads = most_experts(model), model.q_heads or 2**20
    windowed = any(
        isinstance(kind, SlidingWindow) for kind, _ in model.stores
    )  # vLLM does not share those out
    for tp in range(min(count, MOST_TENSOR_RANKS), 0, -1):
        if count % tp or heads % tp:
            continue
        rest = count // tp
        base = {"gpu_count": count, "tp": tp, "pp": 1, "dp": 1, "ep": 1, "dcp": 1}
        shared = [1] if windowed else [1, *context_cuts(model, tp)]
        if rest <= min(MOST_STAGES, model.num_layers):
            yield from ({**base, "pp": rest, "dcp": n} for n in shared)
        if 1 < count <= experts:
            yield from ({**base, "dp": rest, "ep": count, "dcp": n} for n in shared)


def _widths(
    base: Scenario, space: Space, device: Device, engine: Engine
) -> Iterator[dict[str, Any]]:
    weights = space.weight_dtypes or _usual(engine.support.weights, WEIGHT_QUALITY, OWN)
    caches = space.kv_dtypes or _usual(engine.support.cache, CACHE_QUALITY, "auto")
    if base.weight_dtype is not None and not space.weight_dtypes:
        weights = (base.weight_dtype,)
    if base.kv_dtype != "auto" and not space.kv_dtypes:
        caches = (base.kv_dtype,)
    for weight in weights:
        if _ruled_out(engine.support.weights, weight, base, device, engine):
            continue
        for cache in caches:
            if not _ruled_out(engine.support.cache, cache, base, device, engine):
                yield {"weight_dtype": None if weight == OWN else weight, "kv_dtype": cache}


def _usual(needs: Mapping[str, Any], quality: Mapping[str, Any], own: str) -> tuple[str, ...]:
    """The width of one's own and FP8, where its price in quality is published and small."""
    return (
        own,
        *(need for need in needs if need == "fp8" and need in quality and quality[need].small),
    )


def _ruled_out(
    table: Requirements, dtype: str, base: Scenario, device: Device, engine: Engine
) -> bool:
    need = table.get(dtype)
    version = base.engine_version if engine.name == base.engine else None
    return need is not None and need.refusal(engine.label, version, device) is not None


LEFT_OUT = (
    "offload to disks and networks",
    "drafts of models and heads that are not the checkpoint's own",
    "other models and other versions of an engine",
    "data-parallel ranks of dense models, which are replicas",
)
"""What a search does not choose among; what of it the question sets holds for every deployment."""


def _settings(
    base: Scenario, space: Space, engine: Engine, model: ModelSpec
) -> Iterator[dict[str, Any]]:
    """The settings to try; flags asked for stay with the engine that they were asked for."""
    args = dict(base.engine_args) if engine.name == base.engine else {}
    version = {"engine_version": base.engine_version if engine.name == base.engine else None}
    tried: list[list[tuple[str, Any]]] = []
    limits = engine.limits
    sequences = space.sequences or (limits.state_sequences if _recurrent(model) else ())
    for flag, values in (
        (limits.batch_tokens, space.budgets),
        (limits.share, space.shares),
        (limits.sequences, sequences),
    ):
        if values and flag and flag not in args:
            tried.append([(flag, value) for value in values])
    for chosen in product(*tried):
        yield {"engine_args": {**args, **dict(chosen)}, **version}


def _recurrent(model: ModelSpec) -> bool:
    return any(isinstance(kind, RecurrentState | ConvState) for kind, _ in model.stores)
