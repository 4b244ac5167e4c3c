"""Multi-head latent attention: DeepSeek-V2, V3 and V3.2, Kimi K2, GLM-4.7-Flash and GLM-5.

A token and layer keep one vector of ``kv_lora_rank`` and a rotary part of ``qk_rope_head_dim`` for all
heads (arXiv 2405.04434, 2.1), which every tensor-parallel rank needs whole. DeepSeek sparse attention
(V3.2, GLM-5) adds a small key by which an indexer picks ``index_topk`` tokens to read; engines store it
in FP8 with scales. GLM-5.2's "shared" layers read what the last "full" layer picked and have no
indexer. Structure and defaults: the classes of transformers 5 and the published remote code.
"""

from __future__ import annotations

from typing import Any

from kvroom.errors import KvroomError
from kvroom.models import parts
from kvroom.models.config import MAX_LAYERS, Config
from kvroom.models.dtypes import FP8_INDEX
from kvroom.models.hf.common import INNER, check_groups, model, two_norms
from kvroom.models.hf.experts import (
    Mixture,
    by_kind,
    filled,
    mixture,
    names_of,
    prediction,
    shared_width,
    sparse_layers,
)
from kvroom.models.kinds import Indexer, Latent, LayerKind
from kvroom.models.parts import Tensors
from kvroom.models.spec import Layer, ModelSpec
from kvroom.records import dataclass


@dataclass(frozen=True, slots=True)
class LatentSizes:
    """The widths of latent attention; ``q_rank`` None means queries are projected in one go."""

    hidden: int
    heads: int
    q_rank: int | None
    kv_rank: int
    rope: int
    nope: int
    v: int

    def kept(self, sparse_read: int | None = None) -> Latent:
        """What a layer keeps for a request."""
        return Latent(
            latent_dim=self.kv_rank,
            rope_dim=self.rope,
            q_heads=self.heads,
            k_dim=self.nope + self.rope,
            v_dim=self.v,
            sparse_read=sparse_read,
        )

    def tensors(self, *, bias: bool = False) -> Tensors:
        """Down projections (whole on each rank), norms, and up projections cut at heads."""
        q_rows = self.heads * (self.nope + self.rope)
        at_heads: dict[str, Any] = {"part": "attention", "units": self.heads}
        if self.q_rank is None:
            query = parts.linear(
                "self_attn.q_proj", q_rows, self.hidden, split="column", **at_heads
            )
        else:
            query = (
                *parts.linear(
                    "self_attn.q_a_proj", self.q_rank, self.hidden, part="attention", bias=bias
                ),
                *parts.norm("self_attn.q_a_layernorm", self.q_rank),
                *parts.linear(
                    "self_attn.q_b_proj", q_rows, self.q_rank, split="column", **at_heads
                ),
            )
        return (
            *query,
            *parts.linear(
                "self_attn.kv_a_proj_with_mqa",
                self.kv_rank + self.rope,
                self.hidden,
                part="attention",
                bias=bias,
            ),
            *parts.norm("self_attn.kv_a_layernorm", self.kv_rank),
            *parts.linear(
                "self_attn.kv_b_proj",
                self.heads * (self.nope + self.v),
                self.kv_rank,
                split="column",
                **at_heads,
            ),
            *parts.linear(
                "self_attn.o_proj",
                self.hidden,
                self.heads * self.v,
                split="row",
                bias=bias,
                **at_heads,
            ),
        )


def latent_sizes(config: Config) -> LatentSizes:
    """Read the widths; a ``q_lora_rank`` of null (V2-Lite, Moonlight) means none."""
    heads = config.integer("num_attention_heads", high=100_000)
    check_groups(config, heads, config.integer("num_key_value_heads", default=heads, high=100_000))
    return LatentSizes(
        hidden=config.integer("hidden_size"),
        heads=heads,
        q_rank=config.maybe_integer("q_lora_rank"),
        kv_rank=config.integer("kv_lora_rank"),
        rope=config.integer("qk_rope_head_dim"),
        nope=config.integer("qk_nope_head_dim"),
        v=config.integer("v_head_dim"),
    )


@dataclass(frozen=True, slots=True)
class _Index:
    """A lightning indexer: ``heads`` scoring heads over one key of ``dim`` a token."""

    dim: int
    heads: int
    topk: int

    def kept(self) -> Indexer:
        return Indexer(dim=self.dim, heads=self.heads, dtype=FP8_INDEX)

    def tensors(self, hidden: int, q_in: int) -> Tensors:
        name = "self_attn.indexer"
        return (
            *parts.linear(f"{name}.wq_b", self.heads * self.dim, q_in, part="attention"),
            *parts.linear(f"{name}.wk", self.dim, hidden, part="attention"),
            *parts.norm(f"{name}.k_norm", self.dim, bias=True),
            *parts.linear(f"{name}.weights_proj", self.heads, hidden, part="attention"),
        )


def _index(config: Config) -> _Index | None:
    if not config.has("index_topk"):
        return None
    return _Index(
        dim=config.integer("index_head_dim"),
        heads=config.integer("index_n_heads", high=100_000),
        topk=config.integer("index_topk", high=10**9),
    )


def _decoder(config: Config, indexed: list[bool] | None = None, **outer: Any) -> ModelSpec:
    """DeepSeek's decoder; ``indexed`` says which layers run an indexer of their own (default all)."""
    count = config.integer("num_hidden_layers", high=MAX_LAYERS)
    m = latent_sizes(config)
    index = _index(config)
    attention = m.tensors(bias=config.flag("attention_bias"))
    latent = m.kept(index.topk if index else None)
    dense_bias = config.flag("mlp_bias")
    each = config.integer("moe_intermediate_size") if config.has("n_routed_experts") else 0

    def mix() -> Mixture:
        return mixture(
            config,
            count=("n_routed_experts", "num_local_experts", "num_experts"),
            inner=("moe_intermediate_size",),
            shared=shared_width(config, each),
            shared_bias=dense_bias,
        )

    def build(kind: tuple[bool, bool]) -> Layer:
        has_experts, runs_index = kind
        feed = (
            mix().tensors(m.hidden)
            if has_experts
            else parts.mlp(m.hidden, config.integer(*INNER), bias=dense_bias)
        )
        stores: tuple[LayerKind, ...] = (latent,)
        extra: Tensors = ()
        if index and runs_index:
            stores = (latent, index.kept())
            extra = index.tensors(m.hidden, m.q_rank or m.hidden)
        return Layer(stores=stores, tensors=(*two_norms(m.hidden), *attention, *extra, *feed))

    sparse = sparse_layers(config, count) if each else [False] * count
    runs = indexed or [True] * count
    layers = by_kind(zip(sparse, runs, strict=True), build)
    return model(
        config,
        layers,
        hidden=m.hidden,
        vocab=config.integer("vocab_size"),
        q_heads=m.heads,
        kv_heads=1,  # the latent: one for all heads
        mtp=prediction(config, build((sparse[-1], True)), m.hidden),
        **outer,
    )


def deepseek_v2(config: Config, **outer: Any) -> ModelSpec:
    """DeepSeek-V2 and V2-Lite (arXiv 2405.04434); with ``use_mla`` false, as DeepSeek-OCR's decoder is, the
    first DeepSeek MoE's attention."""
    if config.get("use_mla") is False:
        from kvroom.models.hf.moe_shared import deepseek

        return deepseek(config)
    return _decoder(
        filled(
            config,
            num_hidden_layers=32,
            hidden_size=4096,
            num_attention_heads=32,
            vocab_size=102400,
            intermediate_size=11008,
            moe_intermediate_size=1407,
            first_k_dense_replace=0,
            n_routed_experts=64,
            n_shared_experts=2,
            num_experts_per_tok=6,
            q_lora_rank=1536,
            kv_lora_rank=512,
            qk_rope_head_dim=64,
            qk_nope_head_dim=128,
            v_head_dim=128,
            max_position_embeddings=2048,
        ),
        **outer,
    )


_V3: dict[str, Any] = {
    "num_hidden_layers": 61,
    "hidden_size": 7168,
    "num_attention_heads": 128,
    "vocab_size": 129280,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "first_k_dense_replace": 3,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "max_position_embeddings": 4096,
}


def deepseek_v3(config: Config, **outer: Any) -> ModelSpec:
    """DeepSeek-V3 and R1 (arXiv 2412.19437), and Kimi K2 (arXiv 2507.20534), which is built as V3.

    A config of this type that has ``index_topk`` is read with its indexer, as engines do.
    """
    return _decoder(filled(config, **_V3), **outer)


def deepseek_v32(config: Config, **outer: Any) -> ModelSpec:
    """DeepSeek-V3.2 (arXiv 2512.02556): V3 with sparse attention in every layer."""
    index = {"index_topk": 2048, "index_head_dim": 128, "index_n_heads": 64}
    return _decoder(filled(config, **{**_V3, **index, "max_position_embeddings": 163840}), **outer)


def glm_moe_dsa(config: Config, **outer: Any) -> ModelSpec:
    """GLM-5: DeepSeek sparse attention; ``indexer_types`` says which layers run the indexer.

    Without it ``index_topk_pattern`` ("F" and "S"), else the schedule of ``index_topk_freq``.
    """
    config = filled(
        config,
        num_hidden_layers=78,
        hidden_size=6144,
        num_attention_heads=64,
        vocab_size=154880,
        intermediate_size=12288,
        moe_intermediate_size=2048,
        first_k_dense_replace=3,
        n_routed_experts=256,
        n_shared_experts=1,
        num_experts_per_tok=8,
        q_lora_rank=2048,
        kv_lora_rank=512,
        qk_rope_head_dim=64,
        qk_nope_head_dim=192,
        v_head_dim=256,
        index_topk=2048,
        index_head_dim=128,
        index_n_heads=32,
        max_position_embeddings=202752,
    )
    return _decoder(
        config, _indexed(config, config.integer("num_hidden_layers", high=MAX_LAYERS)), **outer
    )


def _indexed(config: Config, layers: int) -> list[bool]:
    if config.has("indexer_types"):
        return [t == "full" for t in names_of(config, "indexer_types", layers, ("full", "shared"))]
    pattern = config.get("index_topk_pattern")
    if pattern is not None:
        letters = list(pattern) if isinstance(pattern, str) else config.items("index_topk_pattern")
        if len(letters) < layers or not set(map(str, letters)) <= {"F", "S", "full", "shared"}:
            raise KvroomError(
                config.field("index_topk_pattern"),
                pattern,
                f"is not an F (full) or S (shared) for each of {layers} layers",
                "Correct it or leave it out.",
            )
        return [str(letter) in ("F", "full") for letter in letters[:layers]]
    every = max(config.integer("index_topk_freq", default=1, low=0), 1)
    offset = config.integer("index_skip_topk_offset", default=2, low=0)
    return [max(index - offset + 1, 0) % every == 0 for index in range(layers)]


def glm4_moe_lite(config: Config, **outer: Any) -> ModelSpec:
    """GLM-4.7-Flash: latent attention under GLM's experts, only the first layer dense."""
    return _decoder(
        filled(
            config,
            num_hidden_layers=47,
            hidden_size=2048,
            num_attention_heads=20,
            vocab_size=154880,
            intermediate_size=10240,
            moe_intermediate_size=1536,
            first_k_dense_replace=1,
            n_routed_experts=64,
            n_shared_experts=1,
            num_experts_per_tok=4,
            q_lora_rank=768,
            kv_lora_rank=512,
            qk_rope_head_dim=64,
            qk_nope_head_dim=192,
            v_head_dim=256,
            max_position_embeddings=202752,
        ),
        **outer,
    )
