"""Alternatives to a deployment of agents: tiers, a narrower cache, more cards, routers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kvroom.engines.registry import engine_of
from kvroom.records import dataclass
from kvroom.scenario.scenario import Scenario

MORE_GPUS = 2
LAYOUT = ("gpu_count", "tp", "pp", "dp", "ep", "dcp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One change of the question: its ``keys`` take the place of the question's; None is left out."""

    id: str
    label: str
    keys: Mapping[str, Any]

    def of(self, scenario: Scenario) -> Scenario:
        """``scenario`` with this change."""
        keys = scenario.differences()
        if set(self.keys) & set(LAYOUT):
            keys = {key: value for key, value in keys.items() if key not in LAYOUT}
        keys |= self.keys
        return Scenario.from_dict({key: value for key, value in keys.items() if value is not None})


def variants(scenario: Scenario) -> Iterator[Variant]:
    """The question itself, then every change of it."""
    yield Variant(id="base", label="as asked", keys={})
    if not scenario.tiers:
        yield Variant(id="host", label="+ host memory", keys={"tiers": [{"kind": "host"}]})
        both = [{"kind": "host"}, {"kind": "nvme"}]
        yield Variant(id="nvme", label="+ host memory, NVMe", keys={"tiers": both})
        through_host = engine_of(scenario.engine).support.storage_below_host
        store = [*([{"kind": "host"}] if through_host else []), {"kind": "network"}]
        yield Variant(id="store", label="+ shared store", keys={"tiers": store})
    if scenario.kv_dtype not in ("fp8", "fp8_e4m3", "fp8_e5m2", "nvfp4", "int4"):
        yield Variant(id="kv_dtype=fp8", label="FP8 cache", keys={"kv_dtype": "fp8"})
    more = scenario.gpu_count + MORE_GPUS
    if scenario.replicas == 1:
        yield Variant(
            id=f"gpu_count={more}", label=f"{MORE_GPUS} more GPUs", keys={"gpu_count": more}
        )
    yield from _routed(scenario)


def _routed(scenario: Scenario) -> Iterator[Variant]:
    """The same cards as replicas behind a router."""
    if scenario.fleet is not None or scenario.disaggregation is not None:
        return
    keys: dict[str, Any] = {}
    words = f"{scenario.replicas * scenario.dp} replicas"
    if scenario.replicas * max(1, scenario.dp) == 1:
        if scenario.gpu_count % 2:
            return
        half = scenario.gpu_count // 2
        keys, words = {"gpu_count": half, "replicas": 2}, f"2 × {half} GPUs"
    for policy, name in (
        ("round-robin", "in turn"),
        ("prefix", "prefix-aware"),
        ("session", "by session"),
    ):
        yield Variant(
            id=f"routing={policy}", label=f"{words}, {name}", keys={**keys, "routing": policy}
        )
