"""Bytes on one rank: how a layout shares a model's weights and a request's cache out over GPUs.

Tensor ranks cut matrices and heads; KV heads are replicated where there are more ranks than heads,
latents always. Pipeline stages hold their own layers. Expert ranks hold whole experts. Data-parallel
replicas are copies. Decode-context ranks share a request's tokens out among tensor ranks that would
otherwise hold the same heads. All tensor ranks of a stage are alike, so a layout is one Rank a stage.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from functools import cached_property

from kvroom.errors import KvroomError
from kvroom.models.dtypes import Dtype
from kvroom.models.kinds import HeadedAttention, LayerKind
from kvroom.models.quantization.base import Quantisation
from kvroom.models.spec import Layer, ModelSpec
from kvroom.models.tensors import Tensor
from kvroom.records import dataclass
from kvroom.units import ceil_div


@dataclass(frozen=True, slots=True)
class Layout:
    """Tensor, pipeline, data, expert and decode-context parallel degrees.

    ``expert_dp`` is how many data-parallel ranks share one set of routed experts: ``dp`` where they
    step together as one engine, 1 where each is a replica with experts of its own. ``stage_layers`` are
    the layers of each pipeline stage where they are not dealt out evenly. ``attention_dp`` groups of
    tensor ranks each compute the attention of their own requests: its weights, and the token table, are
    cut within a group only.
    """

    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1
    dcp: int = 1
    expert_dp: int = 1
    stage_layers: tuple[int, ...] = ()
    attention_dp: int = 1

    @property
    def gpus(self) -> int:
        """GPUs of the whole deployment; expert and context ranks reuse them."""
        return self.tp * self.pp * self.dp

    @property
    def expert_cut(self) -> int:
        """Ranks that share one expert."""
        return max(1, self.tp * self.expert_dp // self.ep)

    @property
    def attention_ranks(self) -> int:
        """Tensor ranks that attention's weights are cut over."""
        return max(1, self.tp // self.attention_dp)

    @property
    def expert_replicas(self) -> int:
        """Data-parallel ranks whose tokens meet at one set of experts."""
        return max(self.expert_dp, self.ep // self.tp, 1)


def check_layout(model: ModelSpec, layout: Layout) -> None:
    """Refuse a layout that this model cannot be cut into, naming the degree and what would do."""
    heads, layers = model.q_heads, model.num_layers
    if heads and heads % layout.tp:
        fits = [number for number in range(1, min(heads, 64) + 1) if heads % number == 0]
        raise KvroomError(
            "tp",
            layout.tp,
            f"does not divide {heads} attention heads",
            f"Use one of {', '.join(map(str, fits))}.",
        )
    if layout.pp > layers:
        raise KvroomError(
            "pp", layout.pp, f"is more than the model's {layers} layers", f"Use at most {layers}."
        )
    experts = most_experts(model)
    if layout.ep > 1 and not experts:
        raise KvroomError(
            "ep", layout.ep, "needs experts, and this model has none", "Leave it out."
        )
    if layout.ep > max(experts, 1):
        raise KvroomError(
            "ep", layout.ep, f"is more than {experts} experts", f"Use at most {experts}."
        )


def uneven_heads(model: ModelSpec, tp: int) -> str | None:
    """Why engines cannot deal the KV heads of some layer out to ``tp`` ranks (None: they can).

    Arithmetic rounds up to whole heads; an engine needs as many on each rank, or copies on as many.
    """
    for kind, _ in model.stores:
        if isinstance(kind, HeadedAttention) and kind.kv_heads % tp and tp % kind.kv_heads:
            return (
                f"{kind.kv_heads} KV heads can be neither shared out nor copied evenly over tp {tp}"
            )
    return None


def context_ranks(model: ModelSpec, layout: Layout) -> int:
    """Decode-context ranks that a request's tokens are shared out among, at most ``layout.dcp``.

    Only tensor ranks that would hold the same share: copies of a KV head where there are more ranks
    than heads, and every rank of a latent. Without copies there is one.
    """
    heads = [
        kind.kv_heads
        for kind, _ in model.stores
        if isinstance(kind, HeadedAttention) and kind.context_parallel
    ]
    return min(layout.dcp, *(max(1, layout.tp // head) for head in heads)) if heads else layout.dcp


def context_cuts(model: ModelSpec, tp: int) -> tuple[int, ...]:
    """Decode-context ranks beyond one that ``tp`` tensor ranks have a use for."""
    return tuple(
        n for n in (2, 4, 8) if tp % n == 0 and context_ranks(model, Layout(tp=tp, dcp=n)) == n
    )


def most_experts(model: ModelSpec) -> int:
    """Routed experts of the layer that has most (0: a dense model)."""
    return max(
        (
            tensor.count
            for layer in model.layers
            for tensor in layer.layer.tensors
            if tensor.part == "expert"
        ),
        default=0,
    )


def stage_sizes(layers: int, pp: int) -> tuple[int, ...]:
    """Layers of each pipeline stage: as even as can be, the odd ones to the second-last and back.

    The last stage also holds the output head, so it is the last to take one more (vLLM's rule).
    """
    base, odd = divmod(layers, pp)
    sizes = [base] * pp
    for index in range(odd):
        sizes[(pp - 2 - index) % pp] += 1
    return tuple(sizes)


def shape_on_rank(tensor: Tensor, layout: Layout) -> tuple[int, int, int]:
    """(rows, columns, count) of ``tensor`` on one rank of ``layout``."""
    rows, columns, count = tensor.rows, tensor.columns, tensor.count
    grouped = tensor.part in ("attention", "state", "embedding")
    tp = layout.attention_ranks if grouped else layout.tp
    match tensor.split:
        case "column" | "kv" | "vocab":
            rows = _cut(rows, tensor.units, tp)
        case "row":
            columns = _cut(columns, tensor.units, tp)
        case "expert":
            count = ceil_div(count, layout.ep)
            rows = _cut(rows, 0, layout.expert_cut)
    return rows, columns, count


def bytes_on_rank(tensor: Tensor, dtype: Dtype, layout: Layout) -> int:
    """Bytes of ``tensor``, stored as ``dtype``, on one rank of ``layout``."""
    rows, columns, count = shape_on_rank(tensor, layout)
    return count * dtype.bytes_for(columns, rows)


def _cut(size: int, units: int, ranks: int) -> int:
    if not units or size % units:
        return ceil_div(size, ranks)
    return ceil_div(units, ranks) * (size // units)


@dataclass(frozen=True, kw_only=True)
class Rank:
    """One GPU of a pipeline stage: its weights, and its share of every request's cache.

    ``layers`` are the indices that it holds; ``stores`` the cache kinds as this rank sees them, with
    how many of its layers keep each; ``dcp`` ranks share a request's tokens out. ``read_bytes`` are the
    weights that a decode step reads whatever its batch; ``experts`` those of routed experts as
    (bytes, experts, active) a group.
    """

    stage: int
    layers: range
    weight_bytes: int
    read_bytes: int
    experts: tuple[tuple[int, int, int], ...]
    stores: tuple[tuple[LayerKind, int], ...]
    dcp: int = 1

    def held(self, kind: LayerKind, tokens: int) -> int:
        """Tokens of a request of ``tokens`` whose entries of ``kind`` this rank holds."""
        return ceil_div(tokens, self.dcp) if kind.context_parallel else tokens

    def request_bytes(self, tokens: int, kv: Dtype, encoder_tokens: int = 0) -> int:
        """What a request of ``tokens`` tokens stores on this rank, before rounding to blocks."""
        return sum(
            kind.stored_bytes(self.held(kind, tokens), kv, encoder_tokens) * count
            for kind, count in self.stores
        )

    def cache_read_bytes(self, tokens: int, kv: Dtype, encoder_tokens: int = 0) -> tuple[int, int]:
        """What one decode step of such a request moves on this rank: (cache, state) bytes."""
        cache = state = 0
        for kind, count in self.stores:
            read = kind.read_bytes(self.held(kind, tokens), kv, encoder_tokens) * count
            if kind.recurrent:
                state += read
            else:
                cache += read
        return cache, state

    def exchanges(self) -> tuple[int, int]:
        """(layers whose cache context-parallel ranks share, numbers that this rank sends the others for
        one decoded token): its own share of queries, outputs and normalisers to each of them."""
        if self.dcp == 1:
            return 0, 0
        shared = [
            (kind.exchanged(), count)
            for kind, count in self.stores
            if kind.context_parallel and kind.exchanged()
        ]
        return sum(n for _, n in shared), (self.dcp - 1) * sum(x * n for x, n in shared)

    def token_bytes(self, kv: Dtype) -> float:
        """What one more token adds on this rank, growing layers only."""
        return float(
            sum(
                kind.growth(kv) / (self.dcp if kind.context_parallel else 1) * count
                for kind, count in self.stores
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """A model's weights in bytes, uncut: of each layer, of the routed experts within it, and beside.

    ``table`` are the looked-up tables, ``head`` the output projection (a tied one is the table again),
    ``beside`` encoders and towers.
    """

    layers: tuple[int, ...]
    experts: tuple[int, ...]
    table: int
    head: int
    beside: int


@dataclass(frozen=True, kw_only=True)
class WeightMap:
    """A model's weights under one quantisation: bytes in all, and on any rank.

    ``host_bytes`` of each rank's layers lie in host memory (an engine's ``cpu_offload_gb``): they are
    no part of its ``weight_bytes``, and a step reads them all the same.
    """

    model: ModelSpec
    quantisation: Quantisation
    host_bytes: int = 0
    _cut: dict[object, tuple[Rank, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @cached_property
    def whole_bytes(self) -> int:
        """The model stored once, as its file says where there is one, else tensor by tensor."""
        if self.from_file:
            return self.model.file_bytes or 0
        return self._arithmetic_bytes

    @property
    def from_file(self) -> bool:
        """Whether the weights are as the checkpoint's own files hold them, whose bytes then win."""
        own, rule = self.model.quantisation, self.quantisation
        as_stored = rule is own or (own is None and rule.name in ("bf16", "fp16"))
        return self.model.file_bytes is not None and as_stored

    @cached_property
    def _arithmetic_bytes(self) -> int:
        one = Layout()
        loose = (*self.model.embedding, *self.model.head, *self.model.beside)
        return sum(self.bytes_on(t, None, one) for t in loose) + sum(self._uncut_layers)

    @cached_property
    def _uncut_layers(self) -> list[int]:
        return self._layer_bytes(Layout())

    @cached_property
    def _file_ratio(self) -> float:
        """A file's own size over the arithmetic one: what its ranks' shares are scaled by."""
        return self.whole_bytes / self._arithmetic_bytes if self.from_file else 1.0

    def bytes_on(self, tensor: Tensor, layer: int | None, layout: Layout) -> int:
        """Bytes of ``tensor`` of the layer with that index (None: outside the layers) on one rank."""
        return bytes_on_rank(tensor, self.quantisation.dtype_of(tensor, layer), layout)

    def _layer_bytes(self, layout: Layout) -> list[int]:
        """Bytes of each layer on one rank, in order."""
        layers: list[int] = []
        for run in self.model.layers:
            first = len(layers)
            if self.quantisation.varies_by_layer:
                layers += [
                    sum(self.bytes_on(tensor, index, layout) for tensor in run.layer.tensors)
                    for index in range(first, first + run.count)
                ]
            else:
                layers += [
                    sum(self.bytes_on(tensor, first, layout) for tensor in run.layer.tensors)
                ] * run.count
        return layers

    @cached_property
    def pieces(self) -> Pieces:
        """The weights as an engine meets them that moves whole layers, experts or tables about."""
        one, ratio, model = Layout(), self._file_ratio, self.model
        tables = [self.bytes_on(t, None, one) for t in model.embedding]
        head = sum(self.bytes_on(t, None, one) for t in model.head)
        if model.tied:
            head += max(tables, default=0)
        experts = [
            sum(
                self.bytes_on(tensor, index, one)
                for tensor in layer.tensors
                if tensor.part == "expert"
            )
            for index, layer in enumerate(model.each_layer())
        ]
        return Pieces(
            layers=tuple(round(uncut_layer * ratio) for uncut_layer in self._uncut_layers),
            experts=tuple(round(expert * ratio) for expert in experts),
            table=round(sum(tables) * ratio),
            head=round(head * ratio),
            beside=round(sum(self.bytes_on(t, None, one) for t in model.beside) * ratio),
        )

    def ranks(
        self, layout: Layout, stages: Sequence[int] | None = None, attention_tp: int | None = None
    ) -> tuple[Rank, ...]:
        """One Rank for each pipeline stage.

        ``stages`` are their layers where not ``stage_sizes``; ``attention_tp`` the ranks that share a
        request's cache where not all tensor ranks do.
        """
        key = (layout, stages and tuple(stages), attention_tp)
        if key not in self._cut:
            self._cut[key] = self._ranks(layout, stages, attention_tp)
        return self._cut[key]

    def _ranks(
        self, layout: Layout, stages: Sequence[int] | None, attention_tp: int | None
    ) -> tuple[Rank, ...]:
        layers = list(self.model.each_layer())
        sizes = self._layer_bytes(layout)
        ranks: list[Rank] = []
        start = 0
        even = stage_sizes(len(layers), layout.pp)
        for stage, count in enumerate(stages or layout.stage_layers or even):
            held = range(start, start + count)
            start += count
            rank = self._rank(stage, held, [layers[i] for i in held], sizes, layout)
            if attention_tp is not None:
                shared = stores_of([layers[i] for i in held], attention_tp)
                rank = replace(rank, stores=shared)
            ranks.append(rank)
        return tuple(ranks)

    def _rank(
        self, stage: int, held: range, layers: list[Layer], sizes: list[int], layout: Layout
    ) -> Rank:
        model, ratio = self.model, self._file_ratio
        first, last = stage == 0, stage == layout.pp - 1
        table = sum(self.bytes_on(t, None, layout) for t in model.embedding)
        head = sum(self.bytes_on(t, None, layout) for t in model.head) if last else 0
        beside = sum(self.bytes_on(t, None, layout) for t in model.beside) if first else 0
        in_layers = sum(sizes[i] for i in held)
        copies = int(first) or int(last and model.tied)  # a tied head needs the table on its stage
        experts = self._experts(held, layers, layout)
        read = in_layers - sum(expert[0] for expert in experts) + head
        if last and model.tied:
            read += max((self.bytes_on(t, None, layout) for t in model.embedding), default=0)
        return Rank(
            stage=stage,
            layers=held,
            weight_bytes=round((in_layers + head + beside + table * copies) * ratio)
            - min(self.host_bytes, round(in_layers * ratio)),
            read_bytes=round(read * ratio),
            experts=tuple((round(b * ratio), n, k) for b, n, k in experts),
            stores=stores_of(layers, layout.tp),
            dcp=context_ranks(model, layout),
        )

    def _experts(
        self, held: range, layers: list[Layer], layout: Layout
    ) -> list[tuple[int, int, int]]:
        groups: dict[tuple[int, int], int] = {}
        for index, layer in zip(held, layers, strict=True):
            for tensor in layer.tensors:
                if tensor.part == "expert":
                    key = (tensor.count, tensor.active)
                    groups[key] = groups.get(key, 0) + self.bytes_on(tensor, index, layout)
        return [(size, one_value, value) for (one_value, value), size in groups.items()]


def stores_of(layers: Iterable[Layer], tp: int = 1) -> tuple[tuple[LayerKind, int], ...]:
    """The cache kinds that ``layers`` keep on one of ``tp`` tensor ranks, with how many of each."""
    counts: dict[int, tuple[Layer, int]] = {}
    for layer in layers:
        counts[id(layer)] = (layer, counts.get(id(layer), (layer, 0))[1] + 1)
    kinds: dict[LayerKind, int] = {}
    for layer, count in counts.values():
        for store in layer.stores:
            cut = store.on_rank(tp)
            kinds[cut] = kinds.get(cut, 0) + count
    return tuple(kinds.items())
