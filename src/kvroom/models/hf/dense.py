"""Plain decoders: the same attention and the same feed-forward block in every layer."""

from __future__ import annotations

from collections.abc import Callable

from kvroom.models import parts
from kvroom.models.hf.common import INNER, model, sizes
from kvroom.models.hf.config import Config
from kvroom.models.kinds import FullAttention, LayerKind, SlidingWindow
from kvroom.models.spec import Layer, ModelSpec


def llama(c: Config) -> ModelSpec:
    """Llama and its many likes: RMS norms, rotary positions, gated feed-forward.

    ``attention_bias`` and ``mlp_bias`` add vectors. A ``sliding_window`` that is a number holds in
    every layer (Mistral 7B v0.1); null or absent means full attention.
    """
    return _plain(
        c,
        qkv_bias=c.flag("attention_bias"),
        o_bias=c.flag("attention_bias"),
        mlp_bias=c.flag("mlp_bias"),
    )


def qwen2(c: Config) -> ModelSpec:
    """Qwen 1.5 to 2.5: biases on query, key and value; windows only with ``use_sliding_window``."""
    return _plain(c, qkv_bias=True, windowed=_qwen_windowed(c))


def qwen3(c: Config) -> ModelSpec:
    """Qwen 3: query and key norms of a head's width."""
    return _plain(
        c,
        qkv_bias=c.flag("attention_bias"),
        o_bias=c.flag("attention_bias"),
        head_norms=True,
        windowed=_qwen_windowed(c),
    )


def _qwen_windowed(c: Config) -> Callable[[int], bool]:
    if not c.flag("use_sliding_window") or not c.has("sliding_window"):
        return lambda i: False
    first = c.integer("max_window_layers", default=28, low=0)
    return lambda i: i >= first


def _plain(
    c: Config,
    *,
    qkv_bias: bool = False,
    o_bias: bool = False,
    mlp_bias: bool = False,
    head_norms: bool = False,
    windowed: Callable[[int], bool] | None = None,
) -> ModelSpec:
    s = sizes(c)
    window = c.maybe_integer("sliding_window", low=1, high=10**9)
    tensors = (
        *parts.norm("input_layernorm", s.hidden),
        *parts.attention(
            s.hidden, s.heads, s.kv_heads, s.head_dim, qkv_bias=qkv_bias, o_bias=o_bias
        ),
        *(parts.norm("self_attn.qk_norm", 2 * s.head_dim) if head_norms else ()),
        *parts.norm("post_attention_layernorm", s.hidden),
        *parts.mlp(s.hidden, c.integer(*INNER), bias=mlp_bias),
    )

    def layer(kind: LayerKind) -> Layer:
        return Layer(stores=(kind,), tensors=tensors)

    full = layer(
        FullAttention(kv_heads=s.kv_heads, k_dim=s.head_dim, v_dim=s.head_dim, q_heads=s.heads)
    )
    near = full
    if window is not None:
        near = layer(
            SlidingWindow(
                kv_heads=s.kv_heads,
                k_dim=s.head_dim,
                v_dim=s.head_dim,
                q_heads=s.heads,
                window=window,
            )
        )
    each = [near if windowed is None or windowed(i) else full for i in range(s.layers)]
    return model(c, each, hidden=s.hidden, vocab=s.vocab, q_heads=s.heads, kv_heads=s.kv_heads)


READERS: dict[str, Callable[[Config], ModelSpec]] = {
    "llama": llama,
    "mistral": llama,
    "qwen2": qwen2,
    "qwen3": qwen3,
}
