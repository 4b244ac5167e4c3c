"""Every lever there is for a question: what it changes, what it needs, what it is known to cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kvroom.engines.registry import engine_of
from kvroom.engines.support import Requirements
from kvroom.errors import KvroomError
from kvroom.models import catalogue
from kvroom.models.dtypes import cache_dtype
from kvroom.optimize.levers import serving as serving_levers
from kvroom.optimize.levers.lever import SAME, Lever
from kvroom.optimize.levers.published import CACHE_QUALITY, LATENCY, WEIGHT_QUALITY, Effect
from kvroom.planner.plan import Workings, work
from kvroom.scenario.scenario import Scenario
from kvroom.sharding.deployment import Deployment
from kvroom.sharding.layout import context_cuts, most_experts
from kvroom.units import say_tokens, show_count

MOST_TENSOR_RANKS = 8
"""Tensor ranks stay within one machine, which joins so many."""
LIKE_PARAMS = 0.25
"""Models whose parameters differ by at most so large a share are of one class."""
MOST_MODELS = 3


def levers_of(workings: Workings) -> list[Lever]:
    """The levers for the question that ``workings`` answers, the cheapest to pull first."""
    scenario, deployment = workings.plan.scenario, workings.deployment
    return [
        *_cache(workings),
        *_flags(workings),
        *_stairs(workings),
        *_weights(workings),
        *_layouts(
            scenario, deployment, more=2 if workings.plan.verdict.fits else _enough(scenario)
        ),
        *serving_levers.drafting(scenario, deployment),
        *_version(scenario),
        *_limit(scenario),
        *_models(scenario, deployment),
    ]


def _dtypes(
    key: str, table: Requirements, quality: Mapping[str, Effect], workings: Workings
) -> Iterator[Lever]:
    scenario, deployment = workings.plan.scenario, workings.deployment
    engine = engine_of(scenario.engine)
    words = {"kv_dtype": "cache", "weight_dtype": "weights"}[key]
    for dtype, need in table.items():
        name = f"{key}={dtype}"
        yield Lever(
            id=name,
            label=f"{words} in {dtype}",
            family=key,
            patch={key: dtype},
            needs=tuple(need.listed(engine.label)),
            quality=quality.get(dtype),
            latency=LATENCY.get(name),
            one_flag=need.flag,
            refusal=need.refusal(engine.label, scenario.engine_version, deployment.device),
        )


def _cache(workings: Workings) -> Iterator[Lever]:
    scenario, deployment = workings.plan.scenario, workings.deployment
    if "kv_cache_dtype" in scenario.engine_args:
        return  # the engine's own flag wins over the key
    table = {
        key: need
        for key, need in engine_of(scenario.engine).support.cache.items()
        if cache_dtype(key).bytes_for(128) < deployment.kv.bytes_for(128)
    }
    yield from _dtypes("kv_dtype", table, CACHE_QUALITY, workings)


def _weights(workings: Workings) -> Iterator[Lever]:
    table = engine_of(workings.plan.scenario.engine).support.weights
    wide = workings.deployment.weights.quantisation.linear.bits
    narrower = {key: need for key, need in table.items() if (4 if "4" in key else 8) < wide}
    yield from _dtypes("weight_dtype", narrower, WEIGHT_QUALITY, workings)


def _flags(workings: Workings) -> Iterator[Lever]:
    scenario = workings.plan.scenario
    args = scenario.engine_args
    limits = engine_of(scenario.engine).limits
    flag = limits.share_flag(args)
    now = args.get(flag, limits.usual_share)
    for share in limits.share_values if "kv_cache_config" not in args else ():
        if isinstance(now, int | float) and share > now:
            yield _flag(flag, share, f"{flag.replace('_', ' ')} {share:g}", "share", SAME)
    for trial in limits.trials:
        stated = args.get(trial.flag)
        if (bool(stated) if trial.value is True else stated) != trial.value:
            yield _flag(trial.flag, trial.value, trial.words, trial.family, SAME)
    for refused in workings.answer.refusals:
        for name, value in refused.args.items():
            yield _flag(name, value, f"what {scenario.engine} would start with", "start", SAME)
    taken = workings.plan.capacity.engine and workings.plan.capacity.engine.max_running_requests
    if workings.plan.verdict.binding == "max_num_seqs" and limits.sequences and taken:
        yield _flag(
            limits.sequences, 2 * taken, "twice as many sequences at once", "sequences", SAME
        )


def _flag(flag: str, value: Any, words: str, family: str, quality: Effect | None) -> Lever:
    shown_value = str(value).lower() if isinstance(value, bool) else str(value)
    return Lever(
        id=f"{flag}={shown_value}",
        label=words,
        family=family,
        patch={"engine_args": {flag: value}},
        quality=quality,
        latency=LATENCY.get(flag),
    )


def _stairs(workings: Workings) -> Iterator[Lever]:
    """Counting what requests really hold, where the workload says how long they are: plain arithmetic
    reserves the longest for each, while the engines page and share prefixes by themselves."""
    capacity = workings.plan.capacity
    if not engine_of(workings.deployment.engine).ceiling:
        return
    if capacity.expected.requests is not None:
        yield Lever(
            id="paging",
            label="blocks as requests grow, not the limit reserved",
            family="paging",
            quality=SAME,
            reading="expected",
        )
    if (
        capacity.shared.requests is not None
        and capacity.shared.requests != capacity.expected.requests
    ):
        yield Lever(
            id="prefix_caching",
            label="the shared prefix stored once",
            family="prefix",
            quality=SAME,
            reading="shared",
        )


def _enough(scenario: Scenario) -> int:
    """How many times the cards, as tensor ranks, it takes until anything fits; 2 where 8 do not help."""
    for n in (2, 4, 8):
        wider = scenario.to_dict() | {"tp": n * scenario.tp, "gpu_count": n * scenario.gpu_count}
        try:
            if work(Scenario.from_dict(wider)).plan.verdict.fits:
                return n
        except KvroomError:
            continue
    return 2


def _layouts(scenario: Scenario, deployment: Deployment, more: int) -> Iterator[Lever]:
    """Other layouts of the same cards, then of twice (tensor ranks: ``more`` times) as many."""
    heads, experts = deployment.model.q_heads or 2**20, most_experts(deployment.model)
    shares = engine_of(scenario.engine).data_parallel_attention
    others = [
        cut for cut in _cuts(scenario.gpu_count) if cut != (scenario.tp, scenario.pp, scenario.dp)
    ]
    wider = [
        (more * scenario.tp, scenario.pp, scenario.dp),
        (scenario.tp, 2 * scenario.pp, scenario.dp),
        (scenario.tp, scenario.pp, 2 * scenario.dp),
    ]
    for tp, pp, dp in (*others, *wider):
        if (
            tp <= max(MOST_TENSOR_RANKS, scenario.tp)
            and heads % tp == 0
            and pp <= deployment.model.num_layers
        ):
            yield _layout(scenario, tp=tp, pp=pp, dp=dp)
            if dp > 1 and tp * dp <= experts and shares:
                yield _layout(scenario, tp=tp, pp=pp, dp=dp, ep=tp * dp)
    if (
        experts
        and scenario.ep == 1
        and scenario.tp * scenario.dp > 1
        and scenario.tp * scenario.dp <= experts
    ):
        yield _layout(
            scenario, tp=scenario.tp, pp=scenario.pp, dp=scenario.dp, ep=scenario.tp * scenario.dp
        )
    if scenario.dcp == 1 and engine_of(scenario.engine).support.context_ranks:
        for dcp in context_cuts(deployment.model, scenario.tp):
            yield _layout(
                scenario, tp=scenario.tp, pp=scenario.pp, dp=scenario.dp, ep=scenario.ep, dcp=dcp
            )


def _cuts(count: int) -> Iterator[tuple[int, int, int]]:
    """Every tp × pp × dp of ``count``, tensor ranks first."""
    for tp in range(count, 0, -1):
        if count % tp == 0:
            for pp in range(1, count // tp + 1):
                if count // tp % pp == 0:
                    yield tp, pp, count // tp // pp


def _layout(scenario: Scenario, *, tp: int, pp: int, dp: int, ep: int = 1, dcp: int = 1) -> Lever:
    count = tp * pp * dp
    degrees = {"tp": tp, "pp": pp, "dp": dp, "ep": ep, "dcp": dcp}
    more = count - scenario.gpu_count
    words = [f"{key}={value}" for key, value in degrees.items() if value != getattr(scenario, key)]
    names = [f"{key} {value}" for key, value in degrees.items() if value > 1] or ["no cut"]
    grown = next((n for n in ("tp", "pp") if degrees[n] > getattr(scenario, n)), "")
    return Lever(
        id=",".join([f"gpu_count={count}", *words] if more else words),
        label=f"{count} cards: {', '.join(names)}" if more else ", ".join(names),
        family="layout",
        patch={"gpu_count": count, **degrees},
        quality=SAME,
        latency=LATENCY.get(grown),
        keeps=("model", "limit") if more else ("model", "cards", "limit"),
        needs=(f"{more} more of these cards",) if more else (),
        one_flag=not more and len(words) == 1,
    )


def _version(scenario: Scenario) -> Iterator[Lever]:
    engine = engine_of(scenario.engine)
    newest = engine.newest
    if scenario.engine_version is None or not newest:
        return
    if newest != scenario.engine_version.strip().removeprefix("v"):
        yield Lever(
            id=f"engine_version={newest}",
            label=f"{engine.label} {newest}",
            family="version",
            patch={"engine_version": newest},
            needs=(f"{engine.label} {newest}",),
            quality=SAME,
            one_flag=False,
        )


def _limit(scenario: Scenario) -> Iterator[Lever]:
    limit = scenario.context_tokens
    if (
        limit is None
        or "max_model_len" in scenario.engine_args
        or "context_length" in scenario.engine_args
    ):
        return
    for part in (2, 4):
        if limit // part >= 1:
            tokens = limit // part
            yield Lever(
                id=f"context_tokens={tokens}",
                label=f"requests of at most {say_tokens(tokens)}",
                family="limit",
                patch={"context_tokens": tokens},
                keeps=("model", "cards"),
                needs=("requests that are no longer",),
            )


def _models(scenario: Scenario, deployment: Deployment) -> Iterator[Lever]:
    """Models of about as many parameters whose requests store least."""
    if scenario.encoder_tokens:
        return
    levers: list[tuple[int, str]] = []
    now = sum(
        kind.stored_bytes(deployment.context_tokens, deployment.kv, deployment.encoder_tokens)
        * count
        for kind, count in deployment.model.stores
    )
    for name in _like(deployment.model.params):
        spec = catalogue.find(name)
        limit = spec.max_context_tokens
        if (
            not spec.generates
            or spec.name == deployment.model.name
            or (limit and limit < deployment.context_tokens)
        ):
            continue
        size = sum(
            kind.stored_bytes(deployment.context_tokens, deployment.kv, spec.encoder_tokens) * count
            for kind, count in spec.stores
        )
        if size < now:
            levers.append((size, name))
    for _, name in sorted(levers)[:MOST_MODELS]:
        yield Lever(
            id=f"model={name}",
            label=f"{name}, {show_count(catalogue.find(name).active_params)} active",
            family="model",
            patch={"model": name},
            keeps=("cards", "limit"),
            needs=("another model",),
            one_flag=False,
        )


def _like(params: int) -> Sequence[str]:
    close = []
    for name in catalogue.names():
        try:
            other = catalogue.find(name).params
        except KvroomError:
            continue
        if abs(other - params) <= LIKE_PARAMS * params:
            close.append(name)
    return close
