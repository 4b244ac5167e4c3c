"""DeepSeek-V4: a short window in every layer, and far tokens compressed 4 or 128 to one vector.

Keys are values too: one vector of ``head_dim`` for each of the last ``sliding_window`` tokens and one
for every ``ratio`` tokens before. Ratio-4 layers pick ``index_topk`` compressed vectors through an
indexer with a key for every 4 tokens (in FP8 with scales, as engines store it); ratio-128 layers read
all. Residual streams are ``hc_mult`` wide (hyper-connections). Structure: the published inference code
and transformers 5's class; module names: the published checkpoint.
"""

from __future__ import annotations

from typing import NamedTuple

from kvroom.errors import KvroomError
from kvroom.models import parts
from kvroom.models.config import MAX_LAYERS, Config
from kvroom.models.dtypes import FP8_INDEX
from kvroom.models.hf.common import model
from kvroom.models.hf.experts import by_kind, filled, mixture, names_of, shared_width
from kvroom.models.kinds import Compressed, Indexer, LayerKind, TiedWindow
from kvroom.models.parts import Tensors
from kvroom.models.spec import Layer, ModelSpec, Run

W_MODULES = ("w1", "w3", "w2")


class Far(NamedTuple):
    """A layer's far tokens: one vector for ``ratio`` of them (0: none), ``sparse`` through an indexer."""

    ratio: int
    sparse: bool


def deepseek_v4(config: Config) -> ModelSpec:
    """DeepSeek-V4 Flash and Pro; ``deepseek_ref`` is the same config under the reference's name.

    Left out as in every count: the balancing bias and the hash layers' token-to-expert table.
    """
    config = filled(
        config,
        num_hidden_layers=43,
        hidden_size=4096,
        num_attention_heads=64,
        vocab_size=129280,
        head_dim=512,
        q_lora_rank=1024,
        o_groups=8,
        o_lora_rank=1024,
        moe_intermediate_size=2048,
        n_routed_experts=256,
        n_shared_experts=1,
        num_experts_per_tok=6,
        sliding_window=128,
        hc_mult=4,
        index_n_heads=64,
        index_head_dim=128,
        index_topk=512,
        max_position_embeddings=1048576,
        num_nextn_predict_layers=1,
    )
    count = config.integer("num_hidden_layers", high=MAX_LAYERS)
    hidden, heads = (
        config.integer("hidden_size"),
        config.integer("num_attention_heads", high=100_000),
    )
    vocab = config.integer("vocab_size")
    kinds = _kinds(config, count)
    outside = config.integer("num_nextn_predict_layers", low=0, high=1000)
    streams = config.integer("hc_mult", high=1000)

    def build(far: Far) -> Layer:
        return Layer(
            stores=_stores(config, far, heads),
            tensors=(
                *parts.norm("attn_norm", hidden),
                *parts.norm("ffn_norm", hidden),
                *_hyper("hc_attn", streams, hidden),
                *_hyper("hc_ffn", streams, hidden),
                *_attention(config, far, hidden, heads),
                *mixture(
                    config,
                    count=("n_routed_experts", "num_local_experts"),
                    inner=("moe_intermediate_size",),
                    name="ffn.experts",
                    modules=W_MODULES,
                    router_name="ffn.gate",
                    shared=shared_width(config, config.integer("moe_intermediate_size")),
                    shared_name="ffn.shared_experts",
                    shared_modules=W_MODULES,
                ).tensors(hidden),
            ),
        )

    final = (
        *parts.norm("norm", hidden),
        *parts.vector("hc_head_fn", streams * streams * hidden),
        *parts.vector("hc_head_base", streams),
        *parts.vector("hc_head_scale", 1),
    )
    return model(
        config,
        by_kind(kinds[:count], build),
        hidden=hidden,
        vocab=vocab,
        q_heads=heads,
        kv_heads=1,
        embedding=parts.embedding(vocab, hidden, name="embed"),
        final=final,
        lm_head=parts.lm_head(vocab, hidden, name="head"),
        mtp=_prediction(
            build(kinds[-1] if len(kinds) > count else Far(0, False)), hidden, final, outside
        ),
        layer_names="layers",
    )


def _kinds(config: Config, count: int) -> list[Far]:
    """What each layer does with far tokens; entries past ``count`` are prediction layers.

    ``layer_types`` by name, else ``compress_ratios`` (an indexer goes with 4, as in the reference
    code); else two layers of 128, then 128 and 4 in turn.
    """
    if config.has("layer_types"):
        rates = config.sub("compress_rates")
        sparse, heavy = "compressed_sparse_attention", "heavily_compressed_attention"
        near = rates.integer(sparse, default=config.integer("compress_rate_csa", default=4))
        far = rates.integer(heavy, default=config.integer("compress_rate_hca", default=128))
        named = {
            "sliding_attention": Far(0, False),
            sparse: Far(near, True),
            heavy: Far(far, False),
        }
        return [named[t] for t in names_of(config, "layer_types", count, tuple(named))]
    if not config.has("compress_ratios"):
        return [
            Far(128, False) if index < 2 or index % 2 == 0 else Far(4, True)
            for index in range(count)
        ]
    config.items("compress_ratios", length=count)
    return [Far(integer, integer == 4) for integer in config.integers("compress_ratios")]


def _stores(config: Config, far: Far, heads: int) -> tuple[LayerKind, ...]:
    dim = config.integer("head_dim", high=100_000)
    near = TiedWindow(
        kv_heads=1,
        k_dim=dim,
        v_dim=dim,
        q_heads=heads,
        window=config.integer("sliding_window", high=10**9),
    )
    if not far.ratio:
        return (near,)
    if not far.sparse:
        return (near, Compressed(dim=dim, ratio=far.ratio, q_heads=heads))
    return (
        near,
        Compressed(
            dim=dim,
            ratio=far.ratio,
            q_heads=heads,
            sparse_read=config.integer("index_topk", high=10**9),
        ),
        Indexer(
            dim=config.integer("index_head_dim"),
            heads=config.integer("index_n_heads", high=100_000),
            ratio=far.ratio,
            dtype=FP8_INDEX,
        ),
    )


def _hyper(name: str, streams: int, hidden: int) -> Tensors:
    """Mixing weights of the residual streams: into, out of and among them, kept in FP32."""
    mixes = streams * (streams + 2)
    return (
        *parts.vector(f"{name}_fn", mixes * streams * hidden),
        *parts.vector(f"{name}_base", mixes),
        *parts.vector(f"{name}_scale", 3),
    )


def _compressor(name: str, hidden: int, dim: int, far: Far) -> Tensors:
    """Gated pooling of ``ratio`` tokens; sparse layers' pools overlap, which doubles the widths."""
    wide = 2 * dim if far.sparse else dim
    return (
        *parts.vector(f"{name}.ape", far.ratio * wide),
        *parts.linear(f"{name}.wkv", wide, hidden, part="attention"),
        *parts.linear(f"{name}.wgate", wide, hidden, part="attention"),
        *parts.norm(f"{name}.norm", dim),
    )


def _attention(config: Config, far: Far, hidden: int, heads: int) -> Tensors:
    dim = config.integer("head_dim", high=100_000)
    q_rank = config.integer("q_lora_rank")
    groups, o_rank = config.integer("o_groups", high=100_000), config.integer("o_lora_rank")
    if heads * dim % groups:
        raise KvroomError(
            config.field("o_groups"),
            groups,
            f"does not divide the {heads} heads of {dim}",
            "Give a divisor.",
        )
    tensors = (
        *parts.vector("attn.attn_sink", heads, part="attention", split="column"),
        *parts.linear("attn.wq_a", q_rank, hidden, part="attention"),
        *parts.norm("attn.q_norm", q_rank),
        *parts.linear(
            "attn.wq_b", heads * dim, q_rank, part="attention", split="column", units=heads
        ),
        *parts.linear("attn.wkv", dim, hidden, part="attention"),
        *parts.norm("attn.kv_norm", dim),
        *parts.linear(
            "attn.wo_a",
            groups * o_rank,
            heads * dim // groups,
            part="attention",
            split="column",
            units=groups,
        ),
        *parts.linear(
            "attn.wo_b", hidden, groups * o_rank, part="attention", split="row", units=groups
        ),
    )
    if not far.ratio:
        return tensors
    tensors += _compressor("attn.compressor", hidden, dim, far)
    if not far.sparse:
        return tensors
    index, scorers = config.integer("index_head_dim"), config.integer("index_n_heads", high=100_000)
    return (
        *tensors,
        *_compressor("attn.indexer.compressor", hidden, index, far),
        *parts.linear("attn.indexer.wq_b", scorers * index, q_rank, part="attention"),
        *parts.linear("attn.indexer.weights_proj", scorers, hidden, part="attention"),
    )


def _prediction(layer: Layer, hidden: int, final: Tensors, count: int) -> tuple[Run, ...]:
    """Prediction layers: separate projections of embedding and hidden state, final weights of its own."""
    if not count:
        return ()
    tensors = (
        *parts.norm("enorm", hidden),
        *parts.norm("hnorm", hidden),
        *parts.linear("e_proj", hidden, hidden, part="mlp"),
        *parts.linear("h_proj", hidden, hidden, part="mlp"),
        *layer.tensors,
        *final,
    )
    return (Run(Layer(stores=layer.stores, tensors=tensors), count),)
