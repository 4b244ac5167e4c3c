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
from kvroom.models.hf.common import INNER, Sizes, layer_kinds, model, sizes
from kvroom.models.kinds import FullAttention, LayerKind, SlidingWindow
from kvroom.models.parts import Tensors
from kvroom.models.spec import Layer, ModelSpec

FUSED = ("qkv_proj", "qkv_proj", "qkv_proj", "o_proj")
FUSED_MLP = ("gate_up_proj", "gate_up_proj", "down_proj")


def kind_of(dims: Sizes, window: int | None = None) -> LayerKind:
    """What one attention layer of these sizes keeps: a window's tokens, or (None) all."""
    heads = {
        "kv_heads": dims.kv_heads,
        "k_dim": dims.head_dim,
        "v_dim": dims.head_dim,
        "q_heads": dims.heads,
    }
    return SlidingWindow(**heads, window=window) if window else FullAttention(**heads)


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
    full = Layer(stores=(kind_of(dims),), tensors=tensors)
    near = Layer(stores=(kind_of(dims, window),), tensors=tensors)
    each = [near if slides else full for slides in sliding or [True] * dims.layers]
    return model(
        config,
        each,
        hidden=dims.hidden,
        vocab=dims.vocab,
        q_heads=dims.heads,
        kv_heads=dims.kv_heads,
        **rest,
    )


def sliding_window(config: Config) -> int | None:
    """The window, if the config or its class names one."""
    return config.maybe_integer("sliding_window", low=1, high=10**9)


def head_norms(dims: Sizes) -> Tensors:
    """Norms of queries and keys over a head's width, which all heads share."""
    return (
        *parts.norm("self_attn.q_norm", dims.head_dim),
        *parts.norm("self_attn.k_norm", dims.head_dim),
    )


def width_norms(dims: Sizes) -> Tensors:
    """Norms of queries and keys over the width of all heads (OLMo 2, Command-R+)."""
    return (
        *parts.norm("self_attn.q_norm", dims.heads * dims.head_dim),
        *parts.norm("self_attn.k_norm", dims.kv_heads * dims.head_dim),
    )


def llama_tensors(
    config: Config,
    dims: Sizes,
    *,
    qkv_bias: bool = False,
    o_bias: bool = False,
    mlp_bias: bool = False,
    extra: Tensors = (),
    norms: Sequence[str] = ("input_layernorm", "post_attention_layernorm"),
    norm_bias: bool = False,
    names: tuple[str, str, str, str] = ("q_proj", "k_proj", "v_proj", "o_proj"),
    mlp_names: tuple[str, ...] | None = None,
    gated: bool = True,
) -> Tensors:
    """One layer: its ``norms``, attention, ``extra`` and feed-forward block."""
    return (
        *(t for name in norms for t in parts.norm(name, dims.hidden, bias=norm_bias)),
        *parts.attention(
            dims.hidden,
            dims.heads,
            dims.kv_heads,
            dims.head_dim,
            qkv_bias=qkv_bias,
            o_bias=o_bias,
            names=names,
        ),
        *extra,
        *parts.mlp(
            dims.hidden, config.integer(*INNER), bias=mlp_bias, gated=gated, names=mlp_names
        ),
    )


def llama(config: Config, root: Config | None = None) -> ModelSpec:
    """Llama and its many likes: RMS norms, rotary positions, gated feed-forward.

    ``attention_bias`` and ``mlp_bias`` add vectors. Windows only where ``layer_types`` names layers
    that slide.
    """
    dims = sizes(config)
    bias = config.flag("attention_bias")
    tensors = llama_tensors(
        config, dims, qkv_bias=bias, o_bias=bias, mlp_bias=config.flag("mlp_bias")
    )
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
    tensors = llama_tensors(config, dims, qkv_bias=bias, o_bias=bias, extra=head_norms(dims))
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
    tensors = llama_tensors(
        config, dims, qkv_bias=bias, o_bias=bias, mlp_bias=config.flag("mlp_bias")
    )
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


READERS: dict[str, Callable[[Config], ModelSpec]] = {
    "llama": llama,
    "aquila": llama,
    "yi": llama,
    "Yi": llama,
    "mistral": mistral,
    "ministral": mistral,
    "qwen2": qwen2,
    "qwen3": qwen3,
    "granite": biased(),
    "seed_oss": biased(
        num_key_value_heads=8,
        head_dim=128,
        attention_bias=True,
        attention_out_bias=False,
        max_position_embeddings=524288,
    ),
    "smollm3": smollm3,
    "internlm3": internlm3,
    "phi3": phi3,
    "glm": glm,
    "glm4": glm4,
}
