"""The work of a step on one GPU: what it reads, computes and sends, by kind and width.

``Traffic`` counts a whole deployment's bytes; a step takes as long as one rank of each stage does, so
times are made from what one rank does. Widths fall in two classes: wide (16 bits and more) and narrow
(whatever the checkpoint was narrowed to), because each is read and multiplied at its own efficiency.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from math import inf

from kvroom.memo import Memo
from kvroom.models.dtypes import Dtype
from kvroom.models.kinds import Indexer, Latent, RecurrentState
from kvroom.models.quantization.base import Quantisation
from kvroom.models.spec import Layer
from kvroom.models.tensors import Tensor
from kvroom.records import dataclass
from kvroom.sharding.deployment import Deployment
from kvroom.sharding.layout import Layout, Rank, bytes_on_rank

WIDE_BITS = 16
_A_BYTE = Dtype("count", 8)
ACTIVATION_BYTES = 2
"""Activations travel between GPUs as 16-bit numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expert:
    """Routed experts of one shape on one rank: their bytes, how many a layer of the model has, how
    many of them a token uses, the parameters that one token is multiplied with here, and the inner
    width of this rank's share of one."""

    bytes: float
    count: int
    active: int
    narrow: bool
    active_params: float
    width: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StageWork:
    """What one rank of a pipeline stage does in a step.

    ``wide_bytes``, ``narrow_bytes``: weights read whatever the batch. ``wide_params``,
    ``narrow_params``: parameters that a token is multiplied with, experts left out. ``layers`` counts
    decoder layers; the other counts say how many of them have experts, latents, recurrent state.
    """

    rank: Rank
    wide_bytes: float
    narrow_bytes: float
    wide_params: float
    narrow_params: float
    head_params: float
    experts: tuple[Expert, ...]
    layers: int
    expert_layers: int
    latent_layers: int
    indexer_layers: int
    state_layers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """What one request's attention takes on one rank of one stage, at one length."""

    cache_bytes: float
    state_bytes: float
    flops: float
    host_bytes: float = 0.0
    """Cache that is read in host memory."""

    def times(self, requests: float) -> Attention:
        """The same for ``requests`` equal ones."""
        return Attention(
            cache_bytes=self.cache_bytes * requests,
            state_bytes=self.state_bytes * requests,
            flops=self.flops * requests,
            host_bytes=self.host_bytes * requests,
        )

    def plus(self, other: Attention) -> Attention:
        """Both together."""
        return Attention(
            cache_bytes=self.cache_bytes + other.cache_bytes,
            state_bytes=self.state_bytes + other.state_bytes,
            flops=self.flops + other.flops,
            host_bytes=self.host_bytes + other.host_bytes,
        )


NO_ATTENTION = Attention(cache_bytes=0.0, state_bytes=0.0, flops=0.0)


@dataclass(frozen=True, kw_only=True)
class Work:
    """A deployment's steps: its stages, and what joins their ranks."""

    stages: tuple[StageWork, ...]
    layout: Layout
    hidden_size: int
    kv: Dtype
    encoder_tokens: int
    active_experts: int
    _seen: dict[tuple[str, int], tuple[Attention, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @classmethod
    def of(cls, deployment: Deployment) -> Work:
        """The work of ``deployment``'s steps: the same for any card."""
        whose = (deployment.weights, deployment.own_ranks)
        return _MADE.get(
            whose,
            (deployment.layout, deployment.kv, deployment.encoder_tokens),
            lambda: cls._of(deployment),
        )

    @classmethod
    def _of(cls, deployment: Deployment) -> Work:
        layers, ranks = list(deployment.model.each_layer()), deployment.own_ranks
        return cls(
            stages=tuple(
                _stage(
                    deployment,
                    rank,
                    [layers[layer] for layer in rank.layers],
                    last=rank is ranks[-1],
                )
                for rank in ranks
            ),
            layout=deployment.layout,
            hidden_size=deployment.model.hidden_size,
            kv=deployment.kv,
            encoder_tokens=deployment.encoder_tokens,
            active_experts=max(
                (
                    tensor.active
                    for layer in deployment.model.layers
                    for tensor in layer.layer.tensors
                    if tensor.part == "expert"
                ),
                default=0,
            ),
        )

    def decoding(self, tokens: int) -> tuple[Attention, ...]:
        """One decode step's attention of a request of ``tokens``, stage by stage."""
        return self._attention("decode_flops", tokens)

    def prefilling(self, tokens: int) -> tuple[Attention, ...]:
        """The attention of a whole prompt of ``tokens``, stage by stage: its cache written once, its
        state carried through."""
        return self._attention("prefill_flops", tokens)

    def _attention(self, flops: str, tokens: int) -> tuple[Attention, ...]:
        key = (flops, tokens)
        if key not in self._seen:
            terms = []
            for stage in self.stages:
                cache, state = stage.rank.cache_read_bytes(tokens, self.kv, self.encoder_tokens)
                used = sum(
                    getattr(kind, flops)(tokens, self.encoder_tokens) * count
                    for kind, count in stage.rank.stores
                )
                terms.append(Attention(cache_bytes=cache, state_bytes=state, flops=used))
            self._seen[key] = tuple(terms)
        return self._seen[key]


_MADE: Memo[Work] = Memo(256)


def _stage(deployment: Deployment, rank: Rank, layers: Sequence[Layer], *, last: bool) -> StageWork:
    rule, layout, model = deployment.weights.quantisation, deployment.layout, deployment.model
    wide_bytes = wide = narrow = 0.0
    experts: dict[tuple[int, int, bool], list[float]] = {}
    for index, layer, times in _distinct(rule, rank.layers, layers):
        for tensor in layer.tensors:
            dtype = rule.dtype_of(tensor, index)
            is_narrow = dtype.bits < WIDE_BITS
            if tensor.part == "expert":
                held = experts.setdefault((tensor.count, tensor.active, is_narrow), [0.0, 0.0, inf])
                held[0] += bytes_on_rank(tensor, dtype, layout) * times
                if tensor.is_matrix:
                    spread = layout.expert_cut * layout.ep
                    held[2] = min(held[2], min(tensor.rows, tensor.columns) / layout.expert_cut)
                    held[1] += tensor.rows * tensor.columns * tensor.active / spread * times
                continue
            if not is_narrow:
                wide_bytes += bytes_on_rank(tensor, dtype, layout) * times
            if tensor.is_matrix:
                share = _params_on_rank(tensor, layout) * times
                wide, narrow = (wide, narrow + share) if is_narrow else (wide + share, narrow)
    head = 0.0
    if last:
        tables = model.embedding[:1] if model.tied else model.head
        for tensor in tables:
            dtype = rule.dtype_of(tensor, None)
            if dtype.bits >= WIDE_BITS:
                wide_bytes += bytes_on_rank(tensor, dtype, layout)
            if tensor.is_matrix:
                head += _params_on_rank(tensor, layout)
    wide_bytes = min(wide_bytes, rank.read_bytes)
    return StageWork(
        rank=rank,
        wide_bytes=wide_bytes,
        narrow_bytes=rank.read_bytes - wide_bytes,
        wide_params=wide,
        narrow_params=narrow,
        head_params=head,
        experts=tuple(
            Expert(bytes=b, count=n, active=k, narrow=small, active_params=p, width=w)
            for (n, k, small), (b, p, w) in experts.items()
        ),
        layers=len(layers),
        expert_layers=_having(
            layers, lambda x: any(tensor.part == "expert" for tensor in x.tensors)
        ),
        latent_layers=_having(layers, lambda x: any(isinstance(kind, Latent) for kind in x.stores)),
        indexer_layers=_having(
            layers, lambda x: any(isinstance(kind, Indexer) for kind in x.stores)
        ),
        state_layers=_having(
            layers, lambda x: any(isinstance(kind, RecurrentState) for kind in x.stores)
        ),
    )


def _distinct(
    rule: Quantisation, indices: range, layers: Sequence[Layer]
) -> Iterator[tuple[int, Layer, int]]:
    """(index, layer, how many like it), each layer by itself where its width depends on its index."""
    if rule.varies_by_layer:
        yield from ((index, layer, 1) for index, layer in zip(indices, layers, strict=True))
        return
    counts: dict[int, list[int]] = {}
    for index, layer in enumerate(layers):
        counts.setdefault(id(layer), [index, 0])[1] += 1
    for index, times in counts.values():
        yield indices[index], layers[index], times


def _params_on_rank(tensor: Tensor, layout: Layout) -> int:
    return bytes_on_rank(tensor, _A_BYTE, layout)


def _having(layers: Sequence[Layer], has: Callable[[Layer], bool]) -> int:
    return sum(map(has, layers))
