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


def by_layer(config: Config, count: int, kind: str = "") -> Caches:
    """What each of ``count`` layers of this level keeps; ``kind`` is the model's own type."""
    labels, words = labels_of(config, count)
    shared = config.integer("num_kv_shared_layers", default=0, low=0)
    indexers = config.items("indexer_types", length=count, default=["full"] * count)
    passes = passes_of(config, count)
    own = config.get("per_layer_config")
    by_index = own if isinstance(own, Mapping) else {}
    by_kind: dict[Any, int] = {}
    kinds: list[Stores] = []
    at: list[int] = []
    for index, label in enumerate(labels):
        tail = 0 < count - shared <= index and label in labels[: count - shared]
        said = by_index.get(f"{index:02}", by_index.get(str(index)))
        key = (label, tail, str(indexers[index]), passes[index], str(said))
        if key not in by_kind:
            level = config
            if isinstance(said, Mapping):
                level = Config(
                    {**config.raw, **said},
                    config.defaults,
                    f"{config.path}per_layer_config.{index:02}.",
                )
            stores = (
                STATES[kind](config) if kind in STATES else _stores(level, label, indexers[index])
            )
            if tail:
                stores = tuple(SharedCache(of=kind) for kind in stores)
            by_kind[key] = len(kinds)
            kinds.append(stores * passes[index])
        at.append(by_kind[key])
    attends = [kind for stores in kinds for kind in stores]
    q = max(
        (attend.q_heads for attend in attends if isinstance(attend, HeadedAttention | Latent)),
        default=0,
    )
    kv = max(
        (attend.kv_heads for attend in attends if isinstance(attend, HeadedAttention)), default=0
    )
    return Caches(kinds, at, (q, kv or q), words)


def cross(stores: Stores) -> Stores:
    """The cross attention beside a decoder layer's own, of as many heads."""
    own = next((kind for kind in stores if isinstance(kind, HeadedAttention)), None)
    if own is None:
        return ()
    heads = {"k_dim": own.k_dim, "v_dim": own.v_dim, "q_heads": own.q_heads}
    return (CrossAttention(kv_heads=own.kv_heads, **heads),)


def _stores(config: Config, label: str, indexer: object) -> Stores:
    """What a layer of that label keeps."""
    if label == "none":
        return ()
    if label == "conv":
        return (conv(config),)
    if label == "state":
        return state(config)
    if label.startswith("both"):
        attention = _attention(config, label.removeprefix("both").strip() or "full")
        return (*attention, *state(config, maybe=True), *beside_attention(config, attention))
    if config.has("kv_lora_rank") and config.has("qk_rope_head_dim"):
        return _latent(config, indexer, near=label == "window")
    return _attention(config, label)


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


def _attention(config: Config, label: str) -> Stores:
    """Grouped attention of a full, window or chunk layer; either kind may have widths of its own."""
    near = label == "window"
    heads = heads_of(config) or 1
    kv_names: tuple[str, ...] = _KV_HEADS
    widths: tuple[str, ...] = _WIDTHS
    if near:
        heads = config.integer("swa_num_attention_heads", default=heads, high=100_000)
        kv_names = (
            ("swa_num_key_value_heads",) if config.has("swa_num_key_value_heads") else kv_names
        )
        widths = ("swa_head_dim",) if config.has("swa_head_dim") else widths
    else:
        kv_names = ("num_global_key_value_heads", *kv_names)
        widths = ("global_head_dim", *widths)
    if isinstance(config.get(*kv_names), list):
        kv_heads = max([1, *config.integers(*kv_names, high=100_000)])
    else:
        alone = 1 if config.get("multi_query") is True else heads
        kv_heads = config.integer(*kv_names, default=alone, high=100_000)
    hidden = config.integer(*HIDDEN, "embed_dim", "emb_dim", "dim", default=heads)
    k = config.integer(*widths, default=max(1, hidden // heads), high=100_000)
    v = config.integer(
        "swa_v_head_dim" if near else "v_head_dim", "v_head_dim", default=k, high=100_000
    )
    sizes = {"kv_heads": kv_heads, "k_dim": k, "v_dim": v, "q_heads": heads}
    if near:
        return (SlidingWindow(window=config.integer(*_WINDOWS, default=4096, high=10**9), **sizes),)
    if label == "chunk":
        chunk = config.integer("attention_chunk_size", default=8192, high=10**9)
        return (ChunkedAttention(chunk=chunk, **sizes),)
    return (FullAttention(**sizes),)


def _latent(config: Config, indexer: object, *, near: bool) -> Stores:
    """A latent; in a window it is one head whose key is the whole of it (Dots 3)."""
    nope = config.integer("qk_nope_head_dim", low=0, high=100_000, default=0)
    rope = config.integer("qk_rope_head_dim", low=0, high=100_000)
    v = config.integer("v_head_dim", default=nope or 1, high=100_000)
    read = config.maybe_integer("index_topk", "indexer_topk", high=10**9)
    latent = Latent(
        latent_dim=config.integer("kv_lora_rank"),
        rope_dim=rope,
        q_heads=heads_of(config) or 1,
        k_dim=nope + rope,
        v_dim=v,
        sparse_read=read,
    )
    if near:
        width = latent.latent_dim + rope
        window = config.integer("sliding_window", "sliding_window_size", default=4096, high=10**9)
        return (
            TiedWindow(
                kv_heads=1,
                k_dim=width,
                v_dim=latent.latent_dim,
                q_heads=latent.q_heads,
                window=window,
            ),
        )
    if not config.has("index_head_dim") or indexer != "full":
        return (latent,)
    heads = config.integer("index_n_heads", default=1, high=100_000)
    pooled = config.integer("index_kpool", default=1, high=100_000)
    dim = config.integer("index_head_dim")
    return (latent, Indexer(dim=dim, heads=heads, ratio=pooled, dtype=FP8_INDEX))
