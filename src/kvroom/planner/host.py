"""What a step reads from host memory: how many bytes lie there, and at which rates a step reads them."""

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


def with_host(timing: Timing, deployment: Deployment, answer: EngineAnswer) -> Timing:
    """``timing`` with the reads from host memory added; unchanged where a step reads nothing there."""
    memory = deployment.host or _unified(deployment)
    if answer.host:
        reads = _reads(deployment, answer.host, memory)
        rest = answer.host.on_gpu(deployment.model)
        work = _work(
            deployment, WeightMap(model=rest, quantisation=deployment.weights.quantisation)
        )
    elif deployment.weights.host_bytes:
        reads, work = _streamed(deployment, memory), Work.of(_beside(deployment))
    else:
        return timing
    return replace(timing, clock=replace(timing.clock, work=work, host=reads))


def _unified(deployment: Deployment) -> Tier:
    """Where memory is one, the host's cores read it too."""
    return Tier(name="host", bytes_per_s=deployment.device.memory_bytes_per_s)


def _work(deployment: Deployment, weights: WeightMap) -> Work:
    layout = replace(
        deployment.layout, pp=min(deployment.layout.pp, max(1, weights.model.num_layers))
    )
    ranks = weights.ranks(layout)
    return Work.of(
        replace(deployment, model=weights.model, weights=weights, layout=layout, ranks=ranks)
    )


def _reads(deployment: Deployment, part: HostPart, memory: Tier) -> HostReads:
    pieces = deployment.weights.pieces
    dense, params = float(pieces.head if part.head else 0), 0.0
    experts: dict[tuple[int, int], float] = {}
    for index, layer in enumerate(deployment.model.each_layer()):
        if index not in part.layers and index not in part.experts:
            continue
        dense += pieces.layers[index] - pieces.experts[index] if index in part.layers else 0
        for tensor in layer.tensors:
            routed = tensor.part == "expert"
            if routed:
                key = (tensor.count, tensor.active)
                experts[key] = experts.get(key, 0.0) + deployment.weights.bytes_on(
                    tensor, index, ONE
                )
            if tensor.is_matrix and (routed or index in part.layers):
                params += tensor.rows * tensor.columns * (tensor.active or tensor.count)
    return HostReads(
        dense_bytes=dense,
        experts=tuple((size, one_value, value) for (one_value, value), size in experts.items()),
        params=params,
        stores=part.stores(deployment.model),
        kv=deployment.kv,
        encoder_tokens=deployment.encoder_tokens,
        bytes_per_s=memory.bytes_per_s or deployment.device.memory_bytes_per_s,
        link_bytes_per_s=_link(deployment),
        layers=len(part.layers | part.experts),
        batch_tokens=part.batch_tokens,
    )


def _link(deployment: Deployment) -> float:
    if deployment.device.unified_memory:
        return deployment.device.memory_bytes_per_s
    link = deployment.device.host_link
    return link.bytes_per_s if link else HOST_LINK_BYTES_PER_S


def _beside(deployment: Deployment) -> Deployment:
    """``deployment`` without the weights that its ranks do not hold."""
    away = deployment.weights.host_bytes
    ranks = tuple(
        replace(own_rank, read_bytes=max(0, own_rank.read_bytes - away))
        for own_rank in deployment.own_ranks
    )
    return replace(deployment, ranks=ranks, extras=Extras())


def _streamed(deployment: Deployment, memory: Tier) -> HostReads:
    """Weights that the GPU itself reads over its link, all of them in each step."""
    rate = min(_link(deployment), memory.bytes_per_s or _link(deployment))
    return HostReads(
        dense_bytes=float(deployment.weights.host_bytes * deployment.layout.pp),
        experts=(),
        params=0.0,
        stores=(),
        kv=deployment.kv,
        encoder_tokens=deployment.encoder_tokens,
        bytes_per_s=rate,
        link_bytes_per_s=rate,
        computed=False,
    )
