"""What sparse decoders are assembled from: routed experts, grouped attention, layers of a few kinds.

A layer is attention, a feed-forward block (dense, or routed experts with perhaps a shared one) and
two norms. Routing biases that only balance the load (``e_score_correction_bias``) are left out: the
checkpoints hold them as buffers of a few kilobytes, and parameter counts do not include them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from kvroom.errors import KvroomError
from kvroom.models import parts
from kvroom.models.config import Config
from kvroom.models.hf.common import INNER, Sizes, around, stored, two_norms
from kvroom.models.parts import Tensors
from kvroom.models.spec import Layer, ModelSpec, Run
from kvroom.records import dataclass

K = TypeVar("K")

CORE = ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size")
"""What a flat config must say itself; nested ones are written as differences from their class."""

EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
ACTIVE = ("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_k", "moe_top_k")


def filled(config: Config, **defaults: Any) -> Config:
    """``config`` with its class's ``defaults``, those of ``CORE`` in nested levels only."""
    return config.of_class(
        **{key: value for key, value in defaults.items() if config.path or key not in CORE}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """Routed experts of width ``inner``, ``active`` of ``count`` a token, beside a shared one.

    ``shared`` is the width of the shared expert (several are one of their summed width; 0: none).
    ``modules`` are gate, up and down; one name twice means that they are stored as one matrix.
    """

    count: int
    active: int
    inner: int
    shared: int = 0
    bias: bool = False
    router_bias: bool = False
    shared_bias: bool = False
    shared_gate: bool = False
    name: str = "mlp.experts"
    modules: tuple[str, ...] = ("gate_proj", "up_proj", "down_proj")
    shared_name: str = "mlp.shared_experts"
    shared_modules: tuple[str, ...] = ("gate_proj", "up_proj", "down_proj")
    router_name: str = "mlp.gate"

    def tensors(self, hidden: int) -> Tensors:
        """Router, routed experts and shared expert."""
        tensors = parts.router(hidden, self.count, bias=self.router_bias, name=self.router_name)
        tensors += parts.experts(
            hidden,
            self.inner,
            self.count,
            self.active,
            bias=self.bias,
            name=self.name,
            names=self.modules,
        )
        if self.shared:
            tensors += parts.mlp(
                hidden,
                self.shared,
                bias=self.shared_bias,
                name=self.shared_name,
                names=self.shared_modules,
                part="shared_expert",
            )
            if self.shared_gate:
                tensors += parts.linear("mlp.shared_expert_gate", 1, hidden, part="router")
        return tensors


def mixture(
    config: Config,
    *,
    count: tuple[str, ...] = EXPERTS,
    active: tuple[str, ...] = ACTIVE,
    inner: tuple[str, ...] = ("moe_intermediate_size", "intermediate_size"),
    **more: Any,
) -> Mixture:
    """The Mixture that a config describes; ``more`` goes to Mixture as it is."""
    experts = config.integer(*count, high=100_000)
    chosen = check_active(config, experts, config.integer(*active, high=100_000), active)
    return Mixture(count=experts, active=chosen, inner=config.integer(*inner), **more)


def check_active(config: Config, count: int, active: int, names: tuple[str, ...] = ACTIVE) -> int:
    """``active``, refused where a token would go to more experts than there are."""
    if active > count:
        raise KvroomError(
            config.field(*names),
            active,
            f"is more than the {count} experts",
            f"Give at most {count}.",
        )
    return active


def shared_width(config: Config, each: int, *names: str) -> int:
    """The summed width of the shared experts of width ``each`` (0 where there are none)."""
    return each * config.integer(*(names or ("n_shared_experts",)), default=0, low=0, high=10_000)


def sparse_layers(config: Config, layers: int, first_dense: int = 0) -> list[bool]:
    """Which layers have routed experts.

    ``mlp_layer_types`` says it by name, a list in ``moe_layer_freq`` by 0 and 1; else all after
    ``first_k_dense_replace`` (``first_dense`` where absent), each ``moe_layer_freq``-th of them.
    """
    if config.has("mlp_layer_types"):
        known = ("dense", "sparse", "moe", "hash_moe")
        return [t != "dense" for t in names_of(config, "mlp_layer_types", layers, known)]
    if isinstance(config.get("moe_layer_freq"), list):
        return [integer > 0 for integer in config.integers("moe_layer_freq", length=layers, high=1)]
    first = config.integer("first_k_dense_replace", default=first_dense, low=0)
    every = config.integer("moe_layer_freq", default=1)
    return [index >= first and index % every == 0 for index in range(layers)]


def names_of(config: Config, key: str, layers: int, known: tuple[str, ...]) -> list[str]:
    """A list of one of the ``known`` words for each layer."""
    words = config.items(key, length=layers)
    for word in words:
        if word not in known:
            raise KvroomError(
                config.field(key), word, "is no kind of layer here", f"One of: {', '.join(known)}."
            )
    return [str(word) for word in words]


def by_kind(kinds: Iterable[K], build: Callable[[K], Layer]) -> list[Layer]:
    """A layer for each of ``kinds`` in order, each distinct one built once."""
    layer_of: dict[K, Layer] = {}
    layers = []
    for kind in kinds:
        if kind not in layer_of:
            layer_of[kind] = build(kind)
        layers.append(layer_of[kind])
    return layers


PREDICTION = ("num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers")
DEEPSEEK_PREDICTION = ("enorm", "hnorm", "eh_proj", "shared_head.norm")


def prediction(
    config: Config, layer: Layer, hidden: int, names: tuple[str, ...] = DEEPSEEK_PREDICTION
) -> tuple[Run, ...]:
    """The multi-token-prediction layers: each a ``layer`` behind [embedding, hidden state] projected.

    DeepSeek-V3's form (arXiv 2412.19437, 2.2); ``names`` are its norms of the two, the projection and
    the norm after it, where there is one. The token table and output head that some files repeat in it
    are the model's own and count once.
    """
    count = config.integer(*PREDICTION, default=0, low=0, high=1000)
    if not count:
        return ()
    tensors = (
        *parts.norm(names[0], hidden),
        *parts.norm(names[1], hidden),
        *parts.linear(names[2], hidden, 2 * hidden, part="mlp"),
        *layer.tensors,
        *(t for name in names[3:] for t in parts.norm(name, hidden)),
    )
    return (Run(Layer(stores=layer.stores, tensors=tensors), count),)


def decoder(
    config: Config,
    dims: Sizes,
    attention: Tensors,
    mix: Callable[[], Mixture],
    *,
    sparse: list[bool] | None = None,
    windowed: list[bool] | None = None,
    dense: Callable[[], Tensors] | None = None,
    norm_bias: bool = False,
    **outer: Any,
) -> ModelSpec:
    """Equal attention everywhere; layer by layer a window or none, experts (``mix``) or ``dense``.

    ``mix`` and ``dense`` are asked only where some layer needs them; ``outer`` goes to common.model.
    """
    near = windowed or [False] * dims.layers
    window = config.integer("sliding_window", high=10**9) if any(near) else None

    def build(kind: tuple[bool, bool]) -> Layer:
        if kind[1]:
            feed = mix().tensors(dims.hidden)
        else:
            feed = dense() if dense else parts.mlp(dims.hidden, config.integer(*INNER))
        return Layer(
            stores=(stored(dims, window if kind[0] else None),),
            tensors=(*two_norms(dims.hidden, bias=norm_bias), *attention, *feed),
        )

    layers = by_kind(zip(near, sparse or [True] * dims.layers, strict=True), build)
    outer.setdefault("mtp", prediction(config, layers[-1], dims.hidden))
    return around(config, dims, layers, **outer)
