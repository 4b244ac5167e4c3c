"""Levers of how requests are served: drafted tokens, tiers under the cache, pools for prompts and answers.

A Plan has figures for drafts. What tiers and pools do depends on who comes and when: only serving the same
requests with and without them tells (``served.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvroom.engines.registry import engine_of
from kvroom.optimize.levers.lever import SAME, Lever
from kvroom.optimize.levers.published import LATENCY, Effect
from kvroom.scenario.scenario import Scenario
from kvroom.scenario.speculation import DEFAULT_TOKENS, USUAL_ACCEPTANCE
from kvroom.sharding.deployment import Deployment

LOSSLESS = Effect(
    effect="none: answers follow the model's own distribution",
    source="arXiv 2211.17192, appendix A.1",
    loss_ratio=0.0,
)
WORDS = {
    "mtp": "the model's own prediction layers",
    "eagle3": "an EAGLE-3 head",
    "ngram": "what the text repeats",
}


def drafting(scenario: Scenario, deployment: Deployment) -> Iterator[Lever]:
    """Drafted tokens, at each method's usual chance that they are kept; or none, where some are asked."""
    if deployment.speculation is not None:
        if deployment.speculation.field == "speculation":
            yield Lever(
                id="speculation=null",
                label="no drafted tokens",
                family="speculation",
                patch={"speculation": None},
                quality=LOSSLESS,
            )
        return
    engine = engine_of(scenario.engine)
    for method, need in engine.support.drafting.items():
        if method not in WORDS or not deployment.model.generates:
            continue  # a draft model of its own would have to be named
        if method == "mtp" and not deployment.model.mtp:
            continue
        tokens = DEFAULT_TOKENS.get(method, 3)
        chance = USUAL_ACCEPTANCE[method]
        yield Lever(
            id=f"speculation={method}",
            label=f"{tokens} drafted by {WORDS[method]}, {chance:g} of them kept (assumed)",
            family="speculation",
            patch={"speculation": {"method": method}},
            needs=tuple(need.listed(engine.label)),
            quality=LOSSLESS,
            latency=LATENCY["speculation"],
            one_flag=need.flag,
            refusal=need.refusal(engine.label, scenario.engine_version, deployment.device),
        )


def tiers(scenario: Scenario, deployment: Deployment) -> Iterator[Lever]:
    """Memory of the machine under the cache: host memory, then disks too."""
    if scenario.tiers is not None:
        return
    engine = engine_of(scenario.engine)
    need = engine.support.offload
    for kinds in (("host",), ("host", "nvme")):
        yield Lever(
            id=f"tiers={'+'.join(kinds)}",
            label=f"cached prefixes kept in {' and '.join(kinds)} memory",
            family="tiers",
            patch={"tiers": [{"kind": kind} for kind in kinds]},
            needs=tuple(need.listed(engine.label)) if need else (),
            quality=SAME,
            one_flag=bool(need and need.flag) and len(kinds) == 1,
            refusal=None if need else f"not known of {scenario.engine}",
        )


def pools(scenario: Scenario, deployment: Deployment) -> Iterator[Lever]:
    """Prompts and answers on cards of their own: the same cards, split in up to three ways."""
    if scenario.disaggregation is not None or scenario.fleet is not None:
        return
    engine = engine_of(scenario.engine)
    need = engine.support.split
    for prefill, decode in _splits(scenario):
        first, second = prefill["count"], decode["count"]
        half = f",tp={prefill['tp']}" if "tp" in prefill else ""
        yield Lever(
            id=f"disaggregation={first}:{second}{half}",
            label=f"prompts on {first} of {first + second} replicas, answers on {second}",
            family="disaggregation",
            patch={"disaggregation": {"prefill": prefill, "decode": decode}, "replicas": 1},
            needs=tuple(need.listed(engine.label)) if need else (),
            quality=SAME,
            latency=LATENCY["disaggregation"],
            one_flag=False,
            refusal=None if need else f"not known of {scenario.engine}",
        )


def _splits(scenario: Scenario) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Whole replicas where there are several, else one on either half of the tensor ranks."""
    replicas = scenario.replicas
    for first in sorted({1, replicas // 2, replicas - 1}) if replicas > 1 else ():
        yield {"count": first}, {"count": replicas - first}
    if replicas == 1 and scenario.tp % 2 == 0 and scenario.dp == scenario.ep == scenario.dcp == 1:
        half = {"count": 1, "tp": scenario.tp // 2, "gpu_count": scenario.tp // 2 * scenario.pp}
        yield half, dict(half)
