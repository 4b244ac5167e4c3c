"""Where layers lie: on which GPU, or in host memory; and what that comes to on each.

Sources: ``llama_model::load_tensors`` (layers to devices), ``common/fit.cpp`` (what --fit does).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate

from kvroom.engines.llama_cpp.buffers import DRIVER, NONE, Band, compute_band
from kvroom.engines.llama_cpp.cells import is_windowed, layer_cache_bytes, store_bytes
from kvroom.engines.llama_cpp.context import Context
from kvroom.engines.llama_cpp.setup import LlamaCppSetup
from kvroom.hardware.catalogue import find
from kvroom.records import dataclass
from kvroom.sharding.deployment import Deployment
from kvroom.units import ceil_div, longest_fit

HOST = -1


@dataclass(frozen=True, slots=True)
class Placement:
    """The GPU of each layer and, last, of the output projection (HOST: none); the layers whose routed
    experts stay in host memory."""

    places: tuple[int, ...]
    host_experts: frozenset[int] = frozenset()

    @property
    def on_gpu(self) -> int:
        """Layers that a GPU holds, the output projection counted as one."""
        return sum(place != HOST for place in self.places)


@dataclass(frozen=True, slots=True)
class DeviceBytes:
    """What one device holds, in bytes."""

    weights: int
    cache: int
    compute: Band
    driver: Band
    draft: int = 0
    """A draft model's weights and cache."""

    def total(self, end: int = 0) -> int:
        """All of it: as estimated, or at the low (1) or high (2) end of the bands."""
        return self.weights + self.draft + self.cache + self.compute[end] + self.driver[end]


@dataclass(frozen=True)
class ReplicaGpus:
    """The GPUs of one replica and the model to be laid on them."""

    d: Deployment
    s: LlamaCppSetup
    gpus: int

    @cached_property
    def gpu_bytes(self) -> tuple[int, ...]:
        """What the engine counts as each GPU's memory; Ollama takes the largest first."""
        device, known = self.d.device, self.d.known_bytes.get("visible")
        if not device.parts or self.d.layout.dp > 1:
            return (device.engine_bytes if known is None else known,) * self.gpus
        sizes = [find(name).engine_bytes if known is None else known for name in device.parts]
        if self.s.engine == "ollama":
            sizes.sort(reverse=True)
        return tuple(sizes[index % len(sizes)] for index in range(self.gpus))

    @cached_property
    def free_bytes(self) -> tuple[int, ...]:
        """What of it is there to be taken."""
        known = self.d.known_bytes.get("free_before_load")
        return self.gpu_bytes if known is None else (known,) * self.gpus

    @property
    def layers(self) -> int:
        """Layers of the model, the output projection left out."""
        return self.d.model.num_layers

    @cached_property
    def used_gpus(self) -> list[int]:
        """The GPUs that take layers."""
        if self.s.flags.split_mode == "none":
            return [min(self.s.flags.main_gpu, self.gpus - 1)]
        return list(range(self.gpus))

    # Placements

    def split(self, count: int) -> Placement:
        """The last ``count`` layers shared out over the GPUs, in proportion to their free memory or as
        asked (``tensor_split``)."""
        places = [HOST] * (self.layers + 1)
        count = min(count, self.layers + 1)
        start = self.layers + 1 - count
        gpus = self.used_gpus
        shares = [*self.s.flags.tensor_split, *[0.0] * len(gpus)][: len(gpus)]
        free: list[float] = [float(self.free_bytes[gpu]) for gpu in gpus]
        sums = list(accumulate(shares if any(shares) else free))
        points = [sum_ / sums[-1] for sum_ in sums]
        for index in range(start, self.layers + 1):
            places[index] = gpus[min(bisect_right(points, (index - start) / count), len(gpus) - 1)]
        return Placement(tuple(places), self.asked_experts)

    @property
    def asked_experts(self) -> frozenset[int]:
        """The layers whose experts are asked to stay in host memory."""
        return frozenset(range(min(self.s.flags.host_experts, self.layers)))

    def packed(self, context: Context, host_experts: frozenset[int]) -> Placement:
        """Layers filled in from the back, the last GPU first, each as far as it has room."""
        places = [HOST] * (self.layers + 1)
        at = self.layers
        for gpu in reversed(self.used_gpus):

            def holds(n: int, gpu: int = gpu, at: int = at) -> bool:
                trial = [*places]
                trial[at + 1 - n : at + 1] = [gpu] * n
                load = self.loads(Placement(tuple(trial), host_experts), context)[gpu]
                return self.room(gpu, load) >= 0

            n = longest_fit(holds, at + 1)
            if n and not holds(n):
                n = 0
            places[at + 1 - n : at + 1] = [gpu] * n
            at -= n
            if at < 0:
                break
        return Placement(tuple(places), host_experts)

    # What lies there

    def loads(self, placement: Placement, context: Context) -> list[DeviceBytes]:
        """What each GPU holds, in order."""
        pieces, setup = self.d.weights.pieces, self.s
        cache = self.cache(context)
        weights, stored = [0] * self.gpus, [0] * self.gpus
        for index, gpu in enumerate(placement.places[:-1]):
            if gpu != HOST:
                weights[gpu] += pieces.layers[index] - (
                    pieces.experts[index] if index in placement.host_experts else 0
                )
                if setup.flags.kv_on_gpu:
                    stored[gpu] += cache[index]
        if placement.places[-1] != HOST:
            weights[placement.places[-1]] += pieces.head
        if setup.flags.split_mode in ("row", "tensor"):
            weights = self._shared_out(sum(weights))
            if setup.flags.split_mode == "tensor":
                stored = self._shared_out(sum(stored))
            else:
                first = min(setup.flags.main_gpu, self.gpus - 1)
                stored = [sum(stored) if index == first else 0 for index in range(self.gpus)]
        if setup.flags.towers and placement.on_gpu:
            weights[self.used_gpus[0]] += pieces.beside
        if setup.cpu:
            weights[0] += pieces.table
        known = self.d.known_bytes
        if "weights" in known:
            weights = [known["weights"] if weight else 0 for weight in weights]
        loads: list[DeviceBytes] = []
        for gpu in range(self.gpus):
            busy = bool(weights[gpu] or stored[gpu])
            compute = (
                compute_band(self.s, self.d.model, context, placement.places[-1] == gpu)
                if busy
                else NONE
            )
            driver = NONE if setup.cpu or not busy else DRIVER
            if busy and "activations" in known:
                compute = (known["activations"],) * 3
            if busy and "runtime" in known:
                driver = (known["runtime"],) * 3
            draft = self.draft_bytes(context) if gpu == self.used_gpus[-1] else 0
            loads.append(DeviceBytes(weights[gpu], stored[gpu], compute, driver, draft))
        return loads

    def _shared_out(self, size: int) -> list[int]:
        shares = [*self.s.flags.tensor_split, *[0.0] * self.gpus][: self.gpus]
        if not any(shares):
            shares = [float(free) for free in self.free_bytes]
        return [round(size * share / sum(shares)) for share in shares]

    def cache(self, context: Context) -> tuple[int, ...]:
        """Cache bytes of every layer."""
        return layer_cache_bytes(self.s, self.d.model, context)

    def draft_bytes(self, context: Context) -> int:
        """A draft's weights, and its cache in a context like the model's own; on the last GPU."""
        extras = self.d.extras
        stores = (kind for layer in extras.draft_layers for kind in layer.stores)
        cache = sum(
            store_bytes(self.s, kind, context, windowed=is_windowed(self.d.model))
            for kind in stores
        )
        return cache + extras.loaded_bytes(self.d.layout.pp - 1)

    # Whether it fits

    def room(self, gpu: int, load: DeviceBytes, end: int = 0) -> int:
        """Bytes that stay free of that GPU beside ``load`` and what is to be left (negative: lacking)."""
        if not load.weights + load.cache + load.draft:
            return self.free_bytes[gpu]
        return self.free_bytes[gpu] - self.s.margin(gpu) - load.total(end)

    def fits(self, placement: Placement, context: Context, end: int = 0) -> bool:
        """Whether every GPU has room for what lies on it."""
        return all(
            self.room(index, load, end) >= 0
            for index, load in enumerate(self.loads(placement, context))
        )

    # What --fit does

    def fitted(self, context: Context) -> Placement:
        """Layers and experts moved to host memory until the rest fits: whole layers of a dense model,
        the experts of the last layers first where there are experts."""
        whole = self.split(self.layers + 1)
        if self.fits(whole, context):
            return whole
        pieces = self.d.weights.pieces
        routed = frozenset(index for index, size in enumerate(pieces.experts) if size)
        if not routed:
            return self.packed(context, frozenset())
        for dense in (replace(whole, host_experts=routed), self.packed(context, routed)):
            if dense.on_gpu == self.layers + 1 and self.fits(dense, context):
                return self._with_experts(dense, context)
        return self.packed(context, routed)

    def _with_experts(self, dense: Placement, context: Context) -> Placement:
        """Experts brought back, GPU by GPU from the front, as far as there is room."""
        experts = self.d.weights.pieces.experts
        left = [self.room(index, load) for index, load in enumerate(self.loads(dense, context))]
        host = set(dense.host_experts)
        for index, gpu in enumerate(dense.places[:-1]):
            if index in host and experts[index] <= left[gpu]:
                left[gpu] -= experts[index]
                host.discard(index)
            elif index in host:
                left[gpu] = -1  # full: later layers of this GPU stay dense
        return replace(dense, host_experts=frozenset(host))

    def reduced_context(self, slots: int, total: int, least: int, placement: Placement) -> int:
        """The context that --fit brings ``total`` down to, between what the device uses at ``total``
        and at ``least`` by a straight line; ``least`` where that is not enough."""
        short = self._short(placement, self.s.context(slots, total))
        if short <= 0 or total <= least:
            return total
        gain = short - self._short(placement, self.s.context(slots, least))
        if gain < short:
            return least
        cut = ceil_div(short * (total - least), gain)
        step = 256 * self.s.context(slots, total).streams
        return max(least, (total - cut) // step * step)

    def _short(self, placement: Placement, context: Context) -> int:
        """Bytes that the fullest GPU lacks."""
        return -min(
            self.room(index, load) for index, load in enumerate(self.loads(placement, context))
        )


def most(holds: Callable[[int], bool], limit: int) -> int:
    """The largest n ≤ ``limit`` for which ``holds``, found from below; 0 for none."""
    n = 1
    while n < limit and holds(n):
        n *= 2
    return longest_fit(holds, min(n, limit))


def runs(values: Sequence[int], of: int) -> range:
    """The indices at which ``values`` holds ``of``: one range, as layers lie."""
    matches = [index for index, value in enumerate(values) if value == of]
    return range(matches[0], matches[-1] + 1) if matches else range(0)
