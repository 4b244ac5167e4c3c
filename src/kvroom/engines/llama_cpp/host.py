"""What llama.cpp leaves in host memory, and whether there is room for it."""

from __future__ import annotations

from kvroom.engines.llama_cpp.context import Context
from kvroom.engines.llama_cpp.placement import HOST, Placement, ReplicaGpus
from kvroom.sharding.host import HostPart
from kvroom.units import show_gb, show_gib


def host_part(machine: ReplicaGpus, placement: Placement, context: Context) -> HostPart:
    """What lies in host memory, and how much that is."""
    if machine.s.cpu:
        return HostPart()
    pieces, cache = machine.d.weights.pieces, machine.cache(context)
    layers = frozenset(index for index, gpu in enumerate(placement.places[:-1]) if gpu == HOST)
    experts = frozenset(i for i in placement.host_experts - layers if pieces.experts[i])
    on_gpu = machine.s.flags.kv_on_gpu
    head = placement.places[-1] == HOST
    size = pieces.table + sum(pieces.layers[layer] for layer in layers)
    size += sum(pieces.experts[expert] for expert in experts) + (pieces.head if head else 0)
    size += sum(size for index, size in enumerate(cache) if index in layers or not on_gpu)
    return HostPart(
        layers=layers,
        experts=experts,
        head=head,
        cache=not on_gpu,
        bytes=size,
        batch_tokens=machine.s.flags.ubatch,
    )


def host_refusal(machine: ReplicaGpus, part: HostPart, on_gpus: int) -> str:
    """Why host memory does not hold its part, "" where it does; memory that is one holds both."""
    device, host = machine.d.device, machine.d.host
    if device.unified_memory:
        both, has = on_gpus + part.bytes, device.sold_bytes * machine.gpus
        if machine.s.cpu or both <= has:
            return ""
        return (
            f"{show_gib(both)} are needed and {device.name} has {show_gib(has)} ({show_gb(has)}) in all, "
            "one memory for GPU and CPU"
        )
    if host is None or host.bytes is None or not part or part.bytes <= host.bytes:
        return ""
    return (
        f"{part.words(machine.d.model)} take {show_gib(part.bytes)}, and host memory is "
        f"{show_gib(host.bytes)} (--host-memory)"
    )
