"""Plain decoders: the same attention and the same gated feed-forward block in every layer.

Llama's own shape and those that keep it but for a bias, a norm of queries and keys, a fused projection
or a window. Shapes, module names and class defaults are those of the models' published configurations
and of their transformers classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kvroom.models import parts
from kvroom.models.config import Config
from kvroom.models.hf.common import INNER, Sizes, around, grouped, layer_kinds, sizes, stored
from kvroom.models.parts import Tensors
from kvroom.models.spec import Layer, ModelSpec
from kvroom.records import dataclass

FUSED = ("qkv_proj", "qkv_proj", "qkv_proj", "o_proj")
FUSED_MLP = ("gate_up_proj", "gate_up_proj", "down_proj")


def decoder(
    config: Config,
    dims: Sizes,
    tensors: Tensors,
    *,
    window: int | None = None,
    sliding: Sequence[bool] | None = None,
    **rest: Any,
) -> ModelSpec:
    """A model of ``dims.layers`` layers with equal ``tensors``; ``rest`` goes to ``model``.

    With a ``window`` every layer slides it, or those of which ``sliding`` says so.
    """
    full = Layer(stores=(stored(dims),), tensors=tensors)
    near = Layer(stores=(stored(dims, window),), tensors=tensors)
    each = [near if slides else full for slides in sliding or [True] * dims.layers]
    return around(config, dims, each, **rest)


def sliding_window(config: Config) -> int | None:
    """The window, if the config or its class names one."""
    return config.maybe_integer("sliding_window", low=1, high=10**9)


def llama_tensors(
    config: Config,
    dims: Sizes,
    *,
    norms: Sequence[str] = ("input_layernorm", "post_attention_layernorm"),
    norm_bias: bool = False,
    extra: Tensors = (),
    inner: int | None = None,
    mlp_bias: bool = False,
    mlp_name: str = "mlp",
    mlp_names: tuple[str, ...] | None = None,
    gated: bool = True,
    **attention: Any,
) -> Tensors:
    """One layer: its ``norms``, ``attention`` (as ``grouped`` takes it), ``extra`` and a feed-forward block,
    ``inner`` wide or as the config says."""
    inner = config.integer(*INNER) if inner is None else inner
    return (
        *(t for name in norms for t in parts.norm(name, dims.hidden, bias=norm_bias)),
        *grouped(dims, **attention),
        *extra,
        *parts.mlp(dims.hidden, inner, bias=mlp_bias, gated=gated, name=mlp_name, names=mlp_names),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleNames:
    """What a checkpoint calls the modules of a plain decoder, each a list of words.

    ``layers`` is where its layers lie. ``attention`` is the block, then its query, key, value and output
    projections (one name more than once: they are fused). ``mlp`` is the block (``-``: it has no name), then
    its projections, down last.
    """

    layers: str = "model.layers"
    norms: str = "input_layernorm post_attention_layernorm"
    attention: str = "self_attn q_proj k_proj v_proj o_proj"
    mlp: str = "mlp gate_proj up_proj down_proj"
    embedding: str = "embed_tokens"
    final: str = "norm"
    head: str = "lm_head"


def plain_decoder(
    config: Config,
    dims: Sizes,
    names: ModuleNames,
    *,
    inner: int | None = None,
    bias: bool = False,
    o_bias: bool | None = None,
    mlp_bias: bool | None = None,
    norm_bias: bool = False,
    head_bias: bool = False,
    extra: Tensors = (),
    positions: int = 0,
    **rest: Any,
) -> ModelSpec:
    """A plain decoder under the ``names`` of its checkpoint; its feed-forward block is ``inner`` wide.

    ``bias`` is that of queries, keys and values, and of the output and the feed-forward block unless these
    have their own. ``extra`` are tensors of each layer, ``positions`` the rows of a learned table. ``rest``
    goes to ``decoder``.
    """
    attention, *projections = names.attention.split()
    mlp, *mlp_names = names.mlp.split()
    tensors = llama_tensors(
        config,
        dims,
        norms=names.norms.split(),
        norm_bias=norm_bias,
        extra=extra,
        inner=inner,
        mlp_bias=bias if mlp_bias is None else mlp_bias,
        mlp_name=mlp.strip("-"),
        mlp_names=tuple(mlp_names),
        name=attention,
        names=tuple(projections),
        qkv_bias=bias,
        o_bias=bias if o_bias is None else o_bias,
    )
    embedding = parts.embedding(dims.vocab, dims.hidden, names.embedding)
    if positions:
        embedding += parts.positions(positions, dims.hidden, "wpe")
    outer = {
        "embedding": embedding,
        "final": parts.norm(names.final, dims.hidden, bias=norm_bias),
        "lm_head": parts.lm_head(dims.vocab, dims.hidden, bias=head_bias, name=names.head),
        "layer_names": names.layers,
    }
    return decoder(config, dims, tensors, **{**outer, **rest})


def llama(config: Config, root: Config | None = None) -> ModelSpec:
    """Llama and its many likes: RMS norms, rotary positions, gated feed-forward.

    ``attention_bias`` and ``mlp_bias`` add vectors. Windows only where ``layer_types`` names layers
    that slide.
    """
    dims = sizes(config)
    bias = config.flag("attention_bias")
    tensors = llama_tensors(config, dims, bias=bias, mlp_bias=config.flag("mlp_bias"))
    sliding = layer_kinds(config, dims.layers, lambda i: False)
    return decoder(config, dims, tensors, window=sliding_window(config), sliding=sliding, root=root)


def mistral(config: Config, root: Config | None = None) -> ModelSpec:
    """Mistral: a window in every layer, 4096 where the key is none where it is null.

    Ministral's ``layer_types`` name the layers that slide.
    """
    config = config.of_class(
        num_key_value_heads=8, sliding_window=4096, max_position_embeddings=131072
    )
    dims = sizes(config)
    sliding = layer_kinds(config, dims.layers, lambda i: True)
    tensors = llama_tensors(config, dims)
    return decoder(config, dims, tensors, window=sliding_window(config), sliding=sliding, root=root)


def ministral3(config: Config, root: Config | None = None) -> ModelSpec:
    """Ministral 3 and Devstral 2: Mistral with a head width of its own and no window by default."""
    return mistral(
        config.of_class(head_dim=128, sliding_window=None, max_position_embeddings=262144), root
    )


def qwen2(config: Config, root: Config | None = None) -> ModelSpec:
    """Qwen 1.5 to 2.5: biases on query, key and value; windows only with ``use_sliding_window``."""
    config = config.of_class(max_position_embeddings=32768)
    dims = sizes(config)
    tensors = llama_tensors(config, dims, qkv_bias=True)
    return decoder(config, dims, tensors, root=root, **qwen_windows(config, dims))


def qwen3(config: Config, root: Config | None = None) -> ModelSpec:
    """Qwen 3: query and key norms of a head's width."""
    config = config.of_class(head_dim=128, max_position_embeddings=32768)
    dims = sizes(config)
    bias = config.flag("attention_bias")
    tensors = llama_tensors(config, dims, bias=bias, qk_norms="head")
    return decoder(config, dims, tensors, root=root, **qwen_windows(config, dims))


def qwen_windows(config: Config, dims: Sizes) -> dict[str, Any]:
    """Windows of Qwen's decoders: from layer ``max_window_layers`` on, and only where switched on."""
    if not config.flag("use_sliding_window") or sliding_window(config) is None:
        return {}
    first = config.integer("max_window_layers", default=28, low=0)
    return {
        "window": sliding_window(config),
        "sliding": layer_kinds(config, dims.layers, lambda i: i >= first),
    }


def biased(**defaults: Any) -> Callable[[Config], ModelSpec]:
    """A reader of Llama's shape whose class has its own ``defaults`` for absent keys.

    ``attention_out_bias`` is separate in Seed-OSS; elsewhere the output is biased as its inputs are.
    """

    def read(config: Config) -> ModelSpec:
        config = config.of_class(**defaults)
        dims = sizes(config)
        bias = config.flag("attention_bias")
        tensors = llama_tensors(
            config,
            dims,
            qkv_bias=bias,
            o_bias=config.flag("attention_out_bias", default=bias),
            mlp_bias=config.flag("mlp_bias"),
        )
        return decoder(config, dims, tensors)

    return read


def smollm3(config: Config) -> ModelSpec:
    """SmolLM3: Llama with tied embeddings; layers without rotary positions may slide a window."""
    config = config.of_class(
        num_key_value_heads=4, tie_word_embeddings=True, max_position_embeddings=32768
    )
    dims = sizes(config)
    every = config.integer("no_rope_layer_interval", default=4)
    rotary = config.items(
        "no_rope_layers",
        length=dims.layers,
        default=[(index + 1) % every for index in range(dims.layers)],
    )
    bias = config.flag("attention_bias")
    tensors = llama_tensors(config, dims, bias=bias, mlp_bias=config.flag("mlp_bias"))
    return decoder(
        config,
        dims,
        tensors,
        window=sliding_window(config) if config.flag("use_sliding_window") else None,
        sliding=layer_kinds(config, dims.layers, lambda i: not rotary[i]),
    )


def internlm3(config: Config) -> ModelSpec:
    """InternLM 3: Llama whose biases are called ``qkv_bias`` and ``bias`` (output and feed-forward)."""
    config = config.of_class(num_key_value_heads=2, head_dim=128, max_position_embeddings=32768)
    dims = sizes(config)
    rest = config.flag("bias", "mlp_bias")
    qkv = config.flag("qkv_bias", "attention_bias")
    return decoder(
        config, dims, llama_tensors(config, dims, qkv_bias=qkv, o_bias=rest, mlp_bias=rest)
    )


def phi3(config: Config) -> ModelSpec:
    """Phi-3 to Phi-4: Llama with fused projections; a window in every layer where one is given."""
    dims = sizes(config.of_class(max_position_embeddings=4096))
    tensors = llama_tensors(config, dims, names=FUSED, mlp_names=FUSED_MLP)
    return decoder(config, dims, tensors, window=sliding_window(config))


def glm(config: Config) -> ModelSpec:
    """GLM-4 9B in transformers' form: biases on query, key and value, fused gate and up."""
    return _glm(config, ("input_layernorm", "post_attention_layernorm"))


def glm4(config: Config) -> ModelSpec:
    """GLM-4 0414: GLM with a norm after attention and after the feed-forward block as well."""
    return _glm(
        config,
        (
            "input_layernorm",
            "post_self_attn_layernorm",
            "post_attention_layernorm",
            "post_mlp_layernorm",
        ),
    )


def _glm(config: Config, norms: Sequence[str]) -> ModelSpec:
    config = config.of_class(
        num_key_value_heads=2,
        head_dim=128,
        attention_bias=True,
        max_position_embeddings=131072,
    )
    dims = sizes(config)
    tensors = llama_tensors(
        config, dims, qkv_bias=config.flag("attention_bias"), norms=norms, mlp_names=FUSED_MLP
    )
    return decoder(config, dims, tensors)


granite = biased()
seed_oss = biased(
    num_key_value_heads=8,
    head_dim=128,
    attention_bias=True,
    attention_out_bias=False,
    max_position_embeddings=524288,
)
