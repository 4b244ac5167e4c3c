"""From a Scenario to the offload tiers of a simulation's engines, and what each tier did."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from kvroom.engines.registry import engine_of
from kvroom.engines.serving_rules import FetchRules, ServingRules
from kvroom.errors import KvroomError
from kvroom.latency.clock import PS_PER_S, StepClock
from kvroom.planner.place import machine_of
from kvroom.planner.plan import Workings
from kvroom.scenario.scenario import Scenario
from kvroom.sharding.deployment import Deployment
from kvroom.simulator.offload_tiers import (
    BlockBytes,
    Common,
    Plant,
    SizedTier,
    sized,
)
from kvroom.workloads.statistics import nearest_rank


def tiers_of(scenario: Scenario, deployment: Deployment) -> tuple[SizedTier, ...]:
    """The tiers that a Scenario asks for, on its machine; tiers of no bytes are left out."""
    if not scenario.tiers:
        return ()
    machine = machine_of(scenario, deployment.layout.gpus)
    return sized(scenario.tiers, machine)


def plant_of(
    workings: Workings,
    rules: ServingRules,
    clock: StepClock,
    *,
    unit: int,
    engines: int,
    common: Common,
) -> Plant | None:
    """The tiers of a planned deployment's engines; None where it asks for none.

    KvroomError where the engine's rules or the model's cache are not simulated with tiers.
    """
    scenario, deployment = workings.plan.scenario, workings.deployment
    tiers = tiers_of(scenario, deployment)
    if not tiers or not rules.setup.enable_prefix_caching:
        return None
    grouped = not rules.jumps and bool(rules.block_bytes)
    if not rules.jumps and not grouped and rules.loads_tokens is None:
        what = deployment.model.name if rules.own is None else deployment.engine
        why = "is not simulated with tiers: they take vLLM's rules and one full-attention cache"
        raise KvroomError("tiers", what, why, "Leave the tiers out, or take another.")
    if grouped:
        _check_grouped(tiers)
        unit = 1  # its blocks are told apart one by one
    fetch = _fetch(tiers, rules)
    plant = Plant(
        tiers=tiers,
        machine=machine_of(scenario, deployment.layout.gpus),
        d=deployment,
        clock=clock,
        block_tokens=rules.setup.groups[0].block_size,
        unit=unit,
        batch_tokens=rules.setup.config.max_num_batched_tokens,
        engines=engines,
        gpu_blocks=rules.setup.num_gpu_blocks - 1,
        groups=len(rules.setup.groups),
        pool_block=_pool_block(rules, deployment) if grouped else None,
        least_tokens=rules.loads_tokens,
        fetch=fetch,
        write=rules.tier_write,
        common=common,
    )
    if not plant.block.once:
        why = "keeps nothing that grows with every token: there is no prefix to keep below it"
        raise KvroomError("tiers", deployment.model.name, why, "Leave the tiers out.")
    return plant


def check_storage(workings: Workings) -> None:
    """KvroomError where the engine cannot fetch from the storage among its tiers as they are asked for."""
    deployment, answer = workings.deployment, workings.answer
    if answer.starts and (tiers := tiers_of(workings.own, deployment)):
        _fetch(tiers, engine_of(deployment.engine).serving_rules(deployment, answer))


def _check_grouped(tiers: Sequence[SizedTier]) -> None:
    """vLLM's own offloading serves layers in groups: host memory, its blocks, written when computed."""
    others = [tier.asked for tier in tiers if tier.asked.kind != "host"]
    (host,) = [tier.asked for tier in tiers if tier.asked.kind == "host"] or (None,)
    fix = "Leave host memory alone, with write=through and no chunks or width of its own."
    if others or host is None:
        why = "does not serve layers in groups (windows, recurrent state) in this simulation"
        raise KvroomError("tiers", ", ".join(tier.kind for tier in others), why, fix)
    if host.write not in (None, "through") or not host.inclusive or host.kv_dtype is not None:
        why = "is not how blocks of several layer groups are kept"
        raise KvroomError("tiers.write", host.write or host.kv_dtype, why, fix)


def _pool_block(rules: ServingRules, deployment: Deployment) -> BlockBytes:
    """A block of the pool: every rank keeps its own part below it."""
    everywhere = sum(rules.block_bytes) * deployment.layout.tp
    return BlockBytes(once=everywhere, gpu=max(rules.block_bytes), all=everywhere)


def _fetch(tiers: Sequence[SizedTier], rules: ServingRules) -> FetchRules | None:
    """How an engine fetches from the storage among ``tiers``; KvroomError where it cannot."""
    host = [tier for tier in tiers if tier.asked.kind == "host"]
    below = [tier.asked for tier in tiers if tier.asked.kind != "host"]
    usual = rules.fetch
    if usual is None or not below:
        if asked := [tier for tier in below if tier.prefetch is not None]:
            why = "is SGLang's: other engines read a tier when a request is admitted"
            raise KvroomError("tiers.prefetch", asked[0].prefetch, why, "Leave it out.")
        return None
    names = ", ".join(tier.kind for tier in below)
    if not host:
        why = "is storage, which is read through host memory, of which there is none"
        raise KvroomError("tiers", names, why, "Add --tier hicache.")
    if len(below) > 1:
        why = "are two stores, and it has one storage backend"
        raise KvroomError("tiers", names, why, "Leave one out.")
    (tier,) = below
    if tier.write is not None or not tier.inclusive:
        why = "is not chosen: storage is written when host memory is"
        raise KvroomError("tiers.write", tier.write, why, "Give it to host, or leave it out.")
    per_token = tier.prefetch_wait_s_per_1k_tokens
    return replace(
        usual,
        policy=tier.prefetch or usual.policy,
        least_tokens=tier.prefetch_tokens or usual.least_tokens,
        wait_s=usual.wait_s if tier.prefetch_wait_s is None else tier.prefetch_wait_s,
        wait_s_per_token=usual.wait_s_per_token if per_token is None else per_token / 1024,
    )


def warnings_of(scenario: Scenario, plants: Sequence[Plant]) -> Iterable[str]:
    """Warnings about the tiers."""
    if scenario.tiers and not plants:
        if any(tier.bytes != 0 for tier in scenario.tiers):
            yield "tiers keep nothing: prefix caching is off"
        return
    yield from dict.fromkeys(warning for plant in plants for warning in plant.warnings())


def told(plants: Sequence[Plant], seconds: float) -> list[dict[str, Any]]:
    """By tier, the GPUs' own cache first: hits, bytes, times of reading, what is left in it.

    Hit ratios are over all prompt tokens at first schedule, each token counted where it was found
    first: they add up to ``prefix_hit_ratio``. ``read_s`` is from admission until what a request reads of
    a tier is there, ``busy`` the busiest link's share of the time, of those that lead there.
    """
    made = [tiers for plant in plants for tiers in plant.made]
    prompt = sum(tiers.prompt_tokens for tiers in made)
    found = sum(tiers.gpu_tokens for tiers in made)
    rows: list[dict[str, Any]] = [{"tier": "gpu", **_hits(found, prompt)}]
    for place, tier in enumerate(plants[0].tiers):
        levels = [(plant, tiers.levels[place]) for plant in plants for tiers in plant.made]
        stores = {id(level.store): (plant, level.store) for plant, level in levels}
        page_bytes = plants[0].bytes_of(tier).once * plants[0].unit
        chunk = plants[0].chunk_of(tier)
        page_tokens = Fraction(plants[0].unit * plants[0].block_tokens * chunk, plants[0].groups)
        waits = sorted(wait for _, level in levels for wait in level.waits_ps)
        busy = max(link.busy_ps for _, level in levels for link in level.links)
        rooms = [store.room for _, store in stores.values()]
        rows.append(
            {
                "tier": tier.asked.kind,
                **_hits(sum(level.hit_tokens for _, level in levels), prompt),
                "bytes": tier.bytes,
                "room_tokens": None
                if None in rooms
                else int(sum(room for room in rooms if room) * page_tokens),
                "held_tokens": int(sum(len(store) for _, store in stores.values()) * page_tokens),
                "read_bytes": sum(level.read_blocks * level.block_bytes for _, level in levels),
                "written_bytes": sum(level.written_pages for _, level in levels) * page_bytes,
                "evicted_bytes": sum(kind.evicted for _, kind in stores.values())
                * page_bytes
                * chunk,
                "reads": len(waits),
                "read_s": {
                    "mean": sum(waits) / len(waits) / PS_PER_S if waits else None,
                    "p99": nearest_rank(waits, 99) / PS_PER_S if waits else None,
                },
                "busy": min(1.0, busy / PS_PER_S / seconds) if seconds else 0.0,
            }
        )
    return rows


def _hits(tokens: int, prompt: int) -> dict[str, Any]:
    return {"hit_tokens": tokens, "hit_ratio": tokens / prompt if prompt else 0.0}


def holdings(scenario: Scenario, deployment: Deployment) -> list[dict[str, Any]]:
    """What the tiers of a Scenario hold of its cache, for one copy of the deployment: tokens, and requests
    of ``context_tokens``."""
    if not deployment.model.generates or not scenario.tiers:
        return []
    per_request = sum(
        kind.stored_bytes(deployment.context_tokens, deployment.kv, deployment.encoder_tokens)
        * count
        for kind, count in deployment.model.stores
    )
    rows: list[dict[str, Any]] = []
    for t in tiers_of(scenario, deployment):
        per_token = BlockBytes.of(deployment, 1, t.asked).once
        row: Mapping[str, Any] = {
            "tier": t.asked.kind,
            "bytes": t.bytes,
            "tokens": t.bytes // per_token if t.bytes is not None and per_token else None,
            "requests": t.bytes // per_request if t.bytes is not None and per_request else None,
        }
        rows.append(dict(row))
    return rows
