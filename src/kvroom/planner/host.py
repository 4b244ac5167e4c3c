"""What lies in host memory, as the times have it: the bytes there, and the rates that a step gets them at."""

from __future__ import annotations

from dataclasses import replace

from kvroom.engines.base import EngineAnswer
from kvroom.hardware.device import Tier
from kvroom.latency.estimate import Timing
from kvroom.latency.host import HostReads
from kvroom.latency.step_time import HOST_LINK_BYTES_PER_S
from kvroom.latency.work import Work
from kvroom.sharding.deployment import Deployment
from kvroom.sharding.extras import Extras
from kvroom.sharding.host import HostPart
from kvroom.sharding.layout import Layout, WeightMap

ONE = Layout()
"""Weights uncut, as the engines have them that keep some in host memory."""


def with_host(timing: Timing, d: Deployment, answer: EngineAnswer) -> Timing:
    """``timing`` with what lies in host memory read there; as it is where a step reads nothing there."""
    memory = d.host or _unified(d)
    if answer.host:
        reads = _reads(d, answer.host, memory)
        rest = answer.host.on_gpu(d.model)
        work = _work(d, WeightMap(model=rest, quantisation=d.weights.quantisation))
    elif d.weights.host_bytes:
        reads, work = _streamed(d, memory), Work.of(_beside(d))
    else:
        return timing
    return replace(timing, clock=replace(timing.clock, work=work, host=reads))


def _unified(d: Deployment) -> Tier:
    """Where memory is one, the host's cores read it too."""
    return Tier(name="host", bytes_per_s=d.device.memory_bytes_per_s)


def _work(d: Deployment, weights: WeightMap) -> Work:
    layout = replace(d.layout, pp=min(d.layout.pp, max(1, weights.model.num_layers)))
    ranks = weights.ranks(layout)
    return Work.of(replace(d, model=weights.model, weights=weights, layout=layout, ranks=ranks))


def _reads(d: Deployment, part: HostPart, memory: Tier) -> HostReads:
    pieces = d.weights.pieces
    dense, params = float(pieces.head if part.head else 0), 0.0
    experts: dict[tuple[int, int], float] = {}
    for i, layer in enumerate(d.model.each_layer()):
        if i not in part.layers and i not in part.experts:
            continue
        dense += pieces.layers[i] - pieces.experts[i] if i in part.layers else 0
        for t in layer.tensors:
            routed = t.part == "expert"
            if routed:
                key = (t.count, t.active)
                experts[key] = experts.get(key, 0.0) + d.weights.bytes_on(t, i, ONE)
            if t.is_matrix and (routed or i in part.layers):
                params += t.rows * t.columns * (t.active or t.count)
    return HostReads(
        dense_bytes=dense,
        experts=tuple((size, n, k) for (n, k), size in experts.items()),
        params=params,
        stores=part.stores(d.model),
        kv=d.kv,
        encoder_tokens=d.encoder_tokens,
        bytes_per_s=memory.bytes_per_s or d.device.memory_bytes_per_s,
        link_bytes_per_s=_link(d),
        layers=len(part.layers | part.experts),
        batch_tokens=part.batch_tokens,
    )


def _link(d: Deployment) -> float:
    if d.device.unified_memory:
        return d.device.memory_bytes_per_s
    link = d.device.host_link
    return link.bytes_per_s if link else HOST_LINK_BYTES_PER_S


def _beside(d: Deployment) -> Deployment:
    """``d`` without the weights that its ranks do not hold."""
    away = d.weights.host_bytes
    ranks = tuple(replace(r, read_bytes=max(0, r.read_bytes - away)) for r in d.own_ranks)
    return replace(d, ranks=ranks, extras=Extras())


def _streamed(d: Deployment, memory: Tier) -> HostReads:
    """Weights that the GPU itself reads over its link, all of them in each step."""
    rate = min(_link(d), memory.bytes_per_s or _link(d))
    return HostReads(
        dense_bytes=float(d.weights.host_bytes * d.layout.pp),
        experts=(),
        params=0.0,
        stores=(),
        kv=d.kv,
        encoder_tokens=d.encoder_tokens,
        bytes_per_s=rate,
        link_bytes_per_s=rate,
        computed=False,
    )
