"""What each layer keeps, read from a config's keys alone.

For models without a reader of their own. The keys are those that published configs share: widths of
heads, a latent rank, windows and chunks, a list that names each layer's mixer, the sizes of a
recurrence. What could not be told from the keys is said.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvroom.models.config import Config
from kvroom.models.dtypes import FP8_INDEX
from kvroom.models.hf.common import HIDDEN
from kvroom.models.hf.schedules import labels_of, passes_of
from kvroom.models.hf.states import STATES, Stores, beside_attention, conv, heads_of, state
from kvroom.models.kinds import (
    ChunkedAttention,
    CrossAttention,
    FullAttention,
    HeadedAttention,
    Indexer,
    Latent,
    SharedCache,
    SlidingWindow,
    TiedWindow,
)
from kvroom.records import dataclass


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
    passes = passes_of(c, count)
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


def cross(stores: Stores) -> Stores:
    """The cross attention beside a decoder layer's own, of as many heads."""
    own = next((s for s in stores if isinstance(s, HeadedAttention)), None)
    if own is None:
        return ()
    heads = {"k_dim": own.k_dim, "v_dim": own.v_dim, "q_heads": own.q_heads}
    return (CrossAttention(kv_heads=own.kv_heads, **heads),)


def _stores(c: Config, label: str, indexer: object) -> Stores:
    """What a layer of that label keeps."""
    if label == "none":
        return ()
    if label == "conv":
        return (conv(c),)
    if label == "state":
        return state(c)
    if label.startswith("both"):
        attention = _attention(c, label.removeprefix("both").strip() or "full")
        return (*attention, *state(c, maybe=True), *beside_attention(c, attention))
    if c.has("kv_lora_rank") and c.has("qk_rope_head_dim"):
        return _latent(c, indexer, near=label == "window")
    return _attention(c, label)


_KV_HEADS = (
    "decoder_num_key_value_heads", "num_key_value_heads", "num_kv_heads", "n_head_kv",
    "multi_query_group_num", "n_kv_heads",
)  # fmt: skip
_WIDTHS = (
    "head_dim", "d_kv", "attention_head_dim", "kv_channels", "qk_head_dim", "dim_head", "d_head",
)  # fmt: skip
_WINDOWS = (
    "sliding_window", "local_attention", "sliding_window_size", "window_size", "attention_window_size",
)  # fmt: skip


def _attention(c: Config, label: str) -> Stores:
    """Grouped attention of a full, window or chunk layer; either kind may have widths of its own."""
    near = label == "window"
    heads = heads_of(c) or 1
    kv_names: tuple[str, ...] = _KV_HEADS
    widths: tuple[str, ...] = _WIDTHS
    if near:
        heads = c.integer("swa_num_attention_heads", default=heads, high=100_000)
        kv_names = ("swa_num_key_value_heads",) if c.has("swa_num_key_value_heads") else kv_names
        widths = ("swa_head_dim",) if c.has("swa_head_dim") else widths
    else:
        kv_names = ("num_global_key_value_heads", *kv_names)
        widths = ("global_head_dim", *widths)
    if isinstance(c.get(*kv_names), list):
        kv_heads = max([1, *c.integers(*kv_names, high=100_000)])
    else:
        alone = 1 if c.get("multi_query") is True else heads
        kv_heads = c.integer(*kv_names, default=alone, high=100_000)
    hidden = c.integer(*HIDDEN, "embed_dim", "emb_dim", "dim", default=heads)
    k = c.integer(*widths, default=max(1, hidden // heads), high=100_000)
    v = c.integer("swa_v_head_dim" if near else "v_head_dim", "v_head_dim", default=k, high=100_000)
    sizes = {"kv_heads": kv_heads, "k_dim": k, "v_dim": v, "q_heads": heads}
    if near:
        return (SlidingWindow(window=c.integer(*_WINDOWS, default=4096, high=10**9), **sizes),)
    if label == "chunk":
        chunk = c.integer("attention_chunk_size", default=8192, high=10**9)
        return (ChunkedAttention(chunk=chunk, **sizes),)
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
        q_heads=heads_of(c) or 1,
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
