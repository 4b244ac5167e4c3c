"""What each layer keeps, read from a config's keys alone.

For models without a reader of their own. The keys are those that published configs share: widths of
heads, a latent rank, windows and chunks, a list that names each layer's mixer, the sizes of a
recurrence. What could not be told from the keys is said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvroom.models.dtypes import FP8_INDEX, FP32
from kvroom.models.hf.common import HEADS, HIDDEN
from kvroom.models.hf.config import Config
from kvroom.models.hf.experts import sparse_layers
from kvroom.models.hf.recurrent import state_dtype
from kvroom.models.kinds import (
    ChunkedAttention,
    ConvState,
    CrossAttention,
    FullAttention,
    HeadedAttention,
    Indexer,
    Latent,
    LayerKind,
    RecurrentState,
    SharedCache,
    SlidingWindow,
    TiedWindow,
)

Stores = tuple[LayerKind, ...]

LABELS = {
    "full_attention": "full", "attention": "full", "full": "full", "global": "full",
    "global_attention": "full", "indexed_attention": "full", "*": "full", "dense_attention": "full",
    "attn": "full", "minicpm4": "full", "sparse_attention": "full", "hybrid": "both",
    "hybrid_sliding": "both window",
    "sliding_attention": "window", "sliding": "window", "local": "window", "local_attention": "window",
    "window_attention": "window", "swa": "window", "reference_sliding_attention": "window",
    "chunked_attention": "chunk", "chunked": "chunk",
    "linear_attention": "state", "mamba": "state", "mamba2": "state", "recurrent": "state",
    "kda": "state", "gdn": "state", "gated_deltanet": "state", "lightning": "state", "M": "state",
    "lightning-attn": "state", "linear": "state", "rglru": "state", "mamba1": "state",
    "conv": "conv", "short_conv": "conv",
    "mlp": "none", "moe": "none", "ffn": "none", "-": "none", "E": "none", "no_op": "none",
}  # fmt: skip
"""What configs call a layer's mixer, and what that keeps."""

NAMES = ("layer_types", "layers_block_type", "layer_type_list", "block_types", "attn_type_list")
"""Keys of lists with a word for each layer."""

SCHEDULES: dict[str, tuple[str, ...]] = {
    "layer_types": (
        "sliding_window_pattern", "full_attention_interval", "global_attn_every_n_layers",
        "attn_layer_indices", "full_attn_idxs", "layer_group_size", "hybrid_override_pattern",
        "attention_layers_idx", "no_rope_layers", "use_sliding_window",
    ),
    "mlp_layer_types": (
        "first_k_dense_replace", "moe_layer_freq", "num_dense_layers", "decoder_sparse_step",
        "mlp_only_layers", "interleave_moe_layer_step", "n_dense_first_layers",
    ),
}  # fmt: skip
"""A list that newer configs have → the keys from which older ones have it follow."""


@dataclass(frozen=True)
class Caches:
    """``kinds[at[i]]`` is what layer ``i`` keeps; ``heads`` the (query, KV) heads of the widest layer."""

    kinds: list[Stores]
    at: list[int]
    heads: tuple[int, int]
    words: tuple[str, ...] = ()


def by_layer(c: Config, count: int, kind: str = "") -> Caches:
    """What each of ``count`` layers of this level keeps; ``kind`` is the model's own type."""
    labels, words = labels_of(c, count)
    shared = c.integer("num_kv_shared_layers", default=0, low=0)
    indexers = c.items("indexer_types", length=count, default=["full"] * count)
    passes = _passes(c, count)
    own = c.get("per_layer_config")
    by_index = own if isinstance(own, Mapping) else {}
    made: dict[Any, int] = {}
    kinds: list[Stores] = []
    at: list[int] = []
    for i, label in enumerate(labels):
        tail = 0 < count - shared <= i and label in labels[: count - shared]
        said = by_index.get(f"{i:02}", by_index.get(str(i)))
        key = (label, tail, str(indexers[i]), passes[i], str(said))
        if key not in made:
            level = c
            if isinstance(said, Mapping):
                level = Config({**c.raw, **said}, c.defaults, f"{c.path}per_layer_config.{i:02}.")
            stores = STATES[kind](c) if kind in STATES else _stores(level, label, indexers[i])
            if tail:
                stores = tuple(SharedCache(of=s) for s in stores)
            made[key] = len(kinds)
            kinds.append(stores * passes[i])
        at.append(made[key])
    attends = [s for stores in kinds for s in stores]
    q = max((s.q_heads for s in attends if isinstance(s, HeadedAttention | Latent)), default=0)
    kv = max((s.kv_heads for s in attends if isinstance(s, HeadedAttention)), default=0)
    return Caches(kinds, at, (q, kv or q), words)


def _passes(c: Config, count: int) -> list[int]:
    """How often a token passes each layer: looped models keep a cache for each pass."""
    if c.has("loop_num_passes"):
        first = c.integer("loop_layer_index_start", default=0, low=0)
        last = c.integer("loop_layer_index_end", default=count, low=0)
        times = c.integer("loop_num_passes", high=1000)
        return [times if first <= i < last else 1 for i in range(count)]
    if c.has("n_recurrent_loops", "n_recurrent_layers"):
        labels = c.get("layer_types")
        every = max(1, len(labels) // count) if isinstance(labels, list) else 1
        first = c.integer("n_input_layers", default=0, low=0) // every
        last = first + c.integer("n_recurrent_layers") // every
        times = c.integer("n_recurrent_loops", high=1000)
        return [times if first <= i < last else 1 for i in range(count)]
    if c.has("num_layers_per_stack"):
        total = c.integer("num_hidden_layers", high=10_000)
        return [max(1, total // c.integer("num_layers_per_stack"))] * count
    return [1] * count


def cross(stores: Stores) -> Stores:
    """The cross attention beside a decoder layer's own, of as many heads."""
    own = next((s for s in stores if isinstance(s, HeadedAttention)), None)
    if own is None:
        return ()
    heads = {"k_dim": own.k_dim, "v_dim": own.v_dim, "q_heads": own.q_heads}
    return (CrossAttention(kv_heads=own.kv_heads, **heads),)


def labels_of(c: Config, count: int) -> tuple[list[str], tuple[str, ...]]:
    """A word of ``LABELS``' values for each layer, and what is to be said of how it was told."""
    for key in NAMES:
        said = c.get(key)
        if isinstance(said, list):
            mixers = [v for v in said if not isinstance(v, str) or LABELS.get(v) != "none"]
            if len(said) >= 2 * count == 2 * len(mixers):  # blocks counted on their own
                return _known(mixers, key)
            return _known(c.items(key, length=count), key)
    made = schedule(c, "layer_types", count)
    if made is not None:
        return _known(made, "layer_types")
    if _recurrent(c) and not _heads(c):
        return ["state"] * count, ()
    if c.has("sliding_window") and c.flag("use_sliding_window", default=True):
        return ["window"] * count, ()
    if c.has("attention_chunk_size") and not c.has("no_rope_layers"):
        return ["chunk"] * count, ()
    return ["full"] * count, ()


def _known(values: Sequence[Any], key: str) -> tuple[list[str], tuple[str, ...]]:
    odd = sorted({str(v) for v in values if not isinstance(v, str) or v not in LABELS})
    labels = [LABELS.get(v, "full") if isinstance(v, str) else "full" for v in values]
    said = ", ".join(odd[:4])
    return labels, ((f"{key} {said}: counted as full attention",) if odd else ())


def schedule(c: Config, key: str, count: int) -> list[Any] | None:
    """The list called ``key`` as older configs say it; None where nothing says it."""
    if key == "mlp_layer_types":
        return _feeds(c, count)
    if key not in NAMES:
        return None
    near = "sliding_attention" if c.has("sliding_window") else "linear_attention"
    pattern = c.get("hybrid_override_pattern")
    if isinstance(pattern, str) and len(pattern) >= count:
        return list(pattern[:count])
    for name in ("attn_layer_indices", "full_attn_idxs", "attention_layers_idx"):
        if isinstance(c.get(name), list):
            full = set(c.integers(name))
            other = "linear_attention" if _recurrent(c) else "conv"
            return ["full_attention" if i in full else other for i in range(count)]
    every = next(
        (
            n
            for n in ("full_attention_interval", "global_attn_every_n_layers", "layer_group_size",
                      "sliding_window_pattern", "_sliding_window_pattern")
            if type(c.get(n)) is int and c.get(n) > 0
        ),
        None,
    )  # fmt: skip
    if every is None:
        return None
    n = c.integer(every, high=10_000)
    if "sliding" not in every and "global" not in every:
        near = "linear_attention"
    return [near if (i + 1) % n else "full_attention" for i in range(count)]


def _feeds(c: Config, count: int) -> list[Any] | None:
    if c.has("num_dense_layers", "n_dense_first_layers"):
        first = c.integer("num_dense_layers", "n_dense_first_layers", low=0)
        return ["dense" if i < first else "sparse" for i in range(count)]
    if c.has("decoder_sparse_step", "mlp_only_layers"):
        step = c.integer("decoder_sparse_step", default=1)
        dense = set(c.integers("mlp_only_layers", default=[]))
        return ["dense" if i in dense or (i + 1) % step else "sparse" for i in range(count)]
    if c.has("interleave_moe_layer_step"):
        step = c.integer("interleave_moe_layer_step")
        return ["dense" if (i + 1) % step else "sparse" for i in range(count)]
    if c.has("first_k_dense_replace", "moe_layer_freq"):
        return ["sparse" if s else "dense" for s in sparse_layers(c, count)]
    return None


def _heads(c: Config) -> int:
    return c.integer(
        "decoder_attention_heads", *HEADS, "attention_heads", default=0, low=0, high=100_000
    )


def _stores(c: Config, label: str, indexer: object) -> Stores:
    """What a layer of that label keeps."""
    if label == "none":
        return ()
    if label == "conv":
        return (_conv(c),)
    if label == "state":
        return _state(c)
    if label.startswith("both"):
        attention = _attention(c, label.removeprefix("both").strip() or "full")
        return (*attention, *_state(c, maybe=True), *_beside_attention(c, attention))
    if c.has("kv_lora_rank") and c.has("qk_rope_head_dim"):
        return _latent(c, indexer, near=label == "window")
    return _attention(c, label)


def _beside_attention(c: Config, attention: Stores) -> Stores:
    """Short convolutions over keys, values and both block inputs beside attention (Inkling)."""
    own = attention[0]
    if c.has("cca_time0", "cca_time1") and isinstance(own, HeadedAttention):
        # Compressed convolutional attention (Zaya): two convolutions over queries and keys in a row.
        taps = c.integer("cca_time0", default=2) + c.integer("cca_time1", default=2) - 2
        channels = ((own.q_heads, own.k_dim), (own.kv_heads, own.k_dim))
        return (ConvState(channels=channels, columns=max(1, taps)),)
    if not c.has("conv_kernel_size") or not isinstance(own, HeadedAttention):
        return ()
    inputs = (c.integer(*HIDDEN), 1)
    channels = ((own.kv_heads, own.k_dim), (own.kv_heads, own.v_dim), inputs, inputs)
    kernel = c.integer("conv_kernel_size", low=2, high=1000)
    return (ConvState(channels=channels, columns=kernel - 1),)


def _attention(c: Config, label: str) -> Stores:
    near = label == "window"
    heads = _heads(c) or 1
    if near and c.has("swa_num_attention_heads"):
        heads = c.integer("swa_num_attention_heads", high=100_000)
    kv = c.get(
        "num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num", "n_kv_heads"
    )
    names = (
        "num_key_value_heads",
        "num_kv_heads",
        "n_head_kv",
        "multi_query_group_num",
        "n_kv_heads",
    )
    names = ("decoder_num_key_value_heads", *names)
    if near and c.has("swa_num_key_value_heads"):
        names = ("swa_num_key_value_heads",)
    elif not near and c.has("num_global_key_value_heads"):
        names = ("num_global_key_value_heads",)
    if isinstance(kv, list):
        kv_heads = max(c.integers(*names, low=0), default=1) or 1
    else:
        kv_heads = c.integer(
            *names, default=1 if c.get("multi_query") is True else heads, high=100_000
        )
    widths = (
        "head_dim",
        "d_kv",
        "attention_head_dim",
        "kv_channels",
        "qk_head_dim",
        "dim_head",
        "d_head",
    )
    if near and c.has("swa_head_dim"):
        widths = ("swa_head_dim",)
    elif not near and c.has("global_head_dim"):
        widths = ("global_head_dim",)
    hidden = c.integer(*HIDDEN, "embed_dim", "emb_dim", "dim", default=heads)
    k = c.integer(*widths, default=max(1, hidden // heads), high=100_000)
    v = c.integer("swa_v_head_dim" if near else "v_head_dim", "v_head_dim", default=k, high=100_000)
    sizes = {"kv_heads": kv_heads, "k_dim": k, "v_dim": v, "q_heads": heads}
    if near:
        window = c.integer("sliding_window", "local_attention", "sliding_window_size", "window_size",
                           "attention_window_size", default=4096, high=10**9)  # fmt: skip
        return (SlidingWindow(window=window, **sizes),)
    if label == "chunk":
        return (
            ChunkedAttention(
                chunk=c.integer("attention_chunk_size", default=8192, high=10**9), **sizes
            ),
        )
    return (FullAttention(**sizes),)


def _latent(c: Config, indexer: object, *, near: bool) -> Stores:
    """A latent; in a window it is one head whose key is the whole of it (Dots 3)."""
    nope = c.integer("qk_nope_head_dim", low=0, high=100_000, default=0)
    rope = c.integer("qk_rope_head_dim", low=0, high=100_000)
    v = c.integer("v_head_dim", default=nope or 1, high=100_000)
    read = c.maybe_integer("index_topk", "indexer_topk", high=10**9)
    latent = Latent(
        latent_dim=c.integer("kv_lora_rank"),
        rope_dim=rope,
        q_heads=_heads(c) or 1,
        k_dim=nope + rope,
        v_dim=v,
        sparse_read=read,
    )
    if near:
        width = latent.latent_dim + rope
        window = c.integer("sliding_window", "sliding_window_size", default=4096, high=10**9)
        return (
            TiedWindow(
                kv_heads=1,
                k_dim=width,
                v_dim=latent.latent_dim,
                q_heads=latent.q_heads,
                window=window,
            ),
        )
    if not c.has("index_head_dim") or indexer != "full":
        return (latent,)
    heads = c.integer("index_n_heads", default=1, high=100_000)
    pooled = c.integer("index_kpool", default=1, high=100_000)
    dim = c.integer("index_head_dim")
    return (latent, Indexer(dim=dim, heads=heads, ratio=pooled, dtype=FP8_INDEX))


_RECURRENT = (
    "linear_num_value_heads", "mamba_num_heads", "mamba_n_heads", "mamba_d_state", "ssm_state_size",
    "state_size", "linear_attn_config",
)  # fmt: skip


def _recurrent(c: Config) -> bool:
    return c.has(*_RECURRENT)


def _state(c: Config, *, maybe: bool = False) -> Stores:
    """A recurrence's state and convolution by whose sizes the config has."""
    if c.has("linear_num_value_heads"):
        keys = c.integer("linear_num_key_heads", default=c.integer("linear_num_value_heads"))
        k = c.integer("linear_key_head_dim", default=128, high=100_000)
        values = c.integer("linear_num_value_heads", high=100_000)
        v = c.integer("linear_value_head_dim", default=k, high=100_000)
        kernel = c.integer("linear_conv_kernel_dim", default=4, high=1000)
        conv = ConvState(channels=((keys, k), (keys, k), (values, v)), columns=kernel - 1)
        return (
            RecurrentState(heads=values, head_elements=k * v, form="gdn", dtype=state_dtype(c)),
            *((conv,) if kernel > 1 else ()),
        )
    kda = c.get("linear_attn_config")
    if isinstance(kda, dict):
        at = c.sub("linear_attn_config")
        heads = at.integer("num_heads", default=_heads(c) or 1, high=100_000)
        width = at.integer("head_dim", default=128, high=100_000)
        kernel = at.integer("short_conv_kernel_size", default=4, high=1000)
        return (
            RecurrentState(heads=heads, head_elements=width * width, form="kda", dtype=FP32),
            ConvState(channels=((heads, width),) * 3, columns=kernel - 1),
        )
    if c.has("linear_num_heads") and c.has("linear_head_dim"):
        heads = c.integer("linear_num_heads", high=100_000)
        width = c.integer("linear_head_dim", high=100_000)
        kernel = c.integer("linear_conv_kernel_dim", "short_conv_kernel_size", default=4, high=1000)
        return (
            RecurrentState(heads=heads, head_elements=width * width, form="kda", dtype=FP32),
            ConvState(channels=((heads, width),) * 3, columns=max(1, kernel - 1)),
        )
    if c.has("mamba_num_heads", "mamba_n_heads"):
        heads = c.integer("mamba_num_heads", "mamba_n_heads", high=100_000)
        width = c.integer("mamba_head_dim", "mamba_d_head", default=64, high=100_000)
        groups = c.integer(
            "n_groups", "mamba_n_groups", "mamba_num_groups", default=1, high=100_000
        )
        state = c.integer(
            "ssm_state_size", "mamba_d_state", "state_size", default=128, high=100_000
        )
        kernel = c.integer("conv_kernel", "mamba_d_conv", "mamba_conv_kernel", default=4, high=1000)
        return (
            RecurrentState(
                heads=heads, head_elements=width * state, form="mamba2", dtype=state_dtype(c)
            ),
            ConvState(
                channels=((heads, width), (groups, state), (groups, state)), columns=kernel - 1
            ),
        )
    if c.has("mamba_d_state", "ssm_state_size", "state_size"):
        state = c.integer("mamba_d_state", "ssm_state_size", "state_size", high=100_000)
        hidden = c.integer(*HIDDEN)
        inner = int(hidden * c.number("mamba_expand", "expand", default=2.0, high=100))
        kernel = c.integer("mamba_d_conv", "conv_kernel", default=4, high=1000)
        return (
            RecurrentState(heads=inner, head_elements=state, form="mamba1", dtype=state_dtype(c)),
            ConvState(channels=((inner, 1),), columns=kernel - 1),
        )
    if maybe:
        return ()
    heads = _heads(c) or 1
    width = c.integer("head_dim", default=max(1, c.integer(*HIDDEN) // heads), high=100_000)
    return (RecurrentState(heads=heads, head_elements=width * width, form="lightning", dtype=FP32),)


def _conv(c: Config) -> ConvState:
    kernel = c.integer("conv_L_cache", "conv_kernel", "conv_kernel_size", default=3, high=1000)
    return ConvState(channels=((c.integer(*HIDDEN), 1),), columns=max(1, kernel - 1))


def _rwkv(c: Config) -> Stores:
    """RWKV-4: five vectors a layer, three of them in FP32 (arXiv 2305.13048, appendix D)."""
    hidden = c.integer("hidden_size")
    inner = c.integer("attention_hidden_size", default=hidden)
    return (
        RecurrentState(heads=inner, head_elements=3, form="rwkv", dtype=FP32),
        ConvState(channels=((hidden, 1),), columns=2),
    )


def _xlstm(c: Config) -> Stores:
    """xLSTM (mLSTM): a matrix of key × value, a normaliser of the key's width and a maximum a head."""
    heads = _heads(c) or 1
    hidden = c.integer("hidden_size", "embedding_dim")
    v = c.integer("v_head_dim", default=hidden // heads)
    k = c.integer("qk_head_dim", default=max(1, hidden // heads // 2))
    return (RecurrentState(heads=heads, head_elements=k * v + k + 1, form="mlstm", dtype=FP32),)


STATES: dict[str, Callable[[Config], Stores]] = {"rwkv": _rwkv, "xlstm": _xlstm}
"""Models all of whose layers keep a state of their own form."""
