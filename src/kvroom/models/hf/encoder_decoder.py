"""Encoder-decoders: T5, BART, mBART and Whisper.

Each decoder layer keeps its own tokens' keys and values, which grow, and those of the encoder's output,
which do not. The encoder lies beside: a decode step does not read it. Shapes as in the transformers
classes.
"""

from __future__ import annotations

from kvroom.errors import KvroomError
from kvroom.models import parts
from kvroom.models.config import MAX_LAYERS, Config
from kvroom.models.hf import towers
from kvroom.models.hf.common import model
from kvroom.models.kinds import CrossAttention, FullAttention
from kvroom.models.parts import Tensors
from kvroom.models.spec import Layer, ModelSpec

OUT_PROJ = ("q_proj", "k_proj", "v_proj", "out_proj")


def _stores(heads: int, width: int) -> tuple[FullAttention, CrossAttention]:
    """What a decoder layer of ``heads`` heads keeps: its own tokens and the encoder's."""
    return (
        FullAttention(kv_heads=heads, k_dim=width, v_dim=width, q_heads=heads),
        CrossAttention(kv_heads=heads, k_dim=width, v_dim=width, q_heads=heads),
    )


def t5(config: Config) -> ModelSpec:
    """T5 and FLAN-T5: relative position biases in the first layer of each stack, no other biases.

    ``d_kv`` is a head's width whatever d_model / heads is (T5 11B: 128 heads of 128). A feed-forward
    block named gated-… has two input matrices. The head is tied unless ``tie_word_embeddings`` is false
    (T5 1.1 and FLAN-T5 publish a head of their own, which transformers 5 ties by class).
    """
    return _t5(config, every=False)


def mt5(config: Config) -> ModelSpec:
    """mT5: T5 1.1 for many languages, gated by class."""
    return _t5(config.of_class(feed_forward_proj="gated-gelu"), every=False)


def umt5(config: Config) -> ModelSpec:
    """UMT5: mT5 with a relative position bias in every layer."""
    return _t5(config.of_class(feed_forward_proj="gated-gelu"), every=True)


def _t5(config: Config, *, every: bool) -> ModelSpec:
    config = config.of_class(tie_word_embeddings=True, relative_attention_num_buckets=32)
    hidden, inner = config.integer("d_model"), config.integer("d_ff")
    heads, width = config.integer("num_heads", high=100_000), config.integer("d_kv", default=64)
    encoder = config.integer("num_layers", high=MAX_LAYERS)
    layers = config.integer("num_decoder_layers", default=encoder, high=MAX_LAYERS)
    gated = config.text("feed_forward_proj", default="relu").startswith("gated")
    buckets = config.integer("relative_attention_num_buckets")
    vocab = config.integer("vocab_size")
    wi = ("wi_0", "wi_1", "wo") if gated else ("wi", "wo")

    def attention(name: str) -> Tensors:
        return (
            *parts.norm(f"{name}.layer_norm", hidden),
            *parts.attention(hidden, heads, heads, width, name=name, names=("q", "k", "v", "o")),
        )

    tensors = (
        *attention("SelfAttention"),
        *attention("EncDecAttention"),
        *parts.norm("DenseReluDense.layer_norm", hidden),
        *parts.mlp(hidden, inner, name="DenseReluDense", names=wi),
    )
    bias = parts.linear("SelfAttention.relative_attention_bias", buckets, heads, part="norm")
    stores = _stores(heads, width)
    first = Layer(stores=stores, tensors=(*tensors, *bias))
    later = first if every else Layer(stores=stores, tensors=tensors)
    return model(
        config,
        [first] + [later] * (layers - 1),
        hidden=hidden,
        vocab=vocab,
        q_heads=heads,
        kv_heads=heads,
        embedding=parts.embedding(vocab, hidden, "shared"),
        final=parts.norm("final_layer_norm", hidden),
        beside=(
            *towers.stack(
                "encoder.block",
                encoder,
                hidden,
                inner,
                width=heads * width,
                matrices=len(wi),
                vectors=2 * hidden,
            ),
            *towers.plain(
                "encoder.relative_attention_bias", buckets, heads, encoder if every else 1
            ),
            *towers.plain("encoder.final_layer_norm", hidden),
        ),
        encoder_tokens=config.integer("n_positions", default=512, high=10**9),
        layer_names="decoder.block",
    )


def bart(config: Config) -> ModelSpec:
    """BART: learned positions (two rows to spare), norms after each half and after the embeddings."""
    return _bart(config, last_norm=False)


def mbart(config: Config) -> ModelSpec:
    """mBART: BART with norms before each half, so with a last norm in each stack."""
    return _bart(config, last_norm=True)


def _bart(config: Config, *, last_norm: bool) -> ModelSpec:
    config = config.of_class(tie_word_embeddings=True, max_position_embeddings=1024)
    hidden = config.integer("d_model")
    rows = config.integer("max_position_embeddings") + 2
    positions = towers.plain("encoder.embed_positions", rows, hidden)
    return _biased(
        config,
        encoder=positions,
        positions=rows,
        embedding_norm=True,
        last_norm=last_norm,
        k_bias=True,
        encoder_tokens=rows - 2,
    )


def whisper(config: Config) -> ModelSpec:
    """Whisper: two convolutions over mel bands before the encoder, keys without biases.

    30 seconds of sound make ``max_source_positions`` encoder tokens, whatever was said in them.
    """
    config = config.of_class(
        tie_word_embeddings=True,
        num_mel_bins=80,
        max_source_positions=1500,
        max_target_positions=448,
    )
    hidden = config.integer("d_model")
    heard = config.integer("max_source_positions")
    front = (
        *towers.plain("encoder.conv1", hidden, 3 * config.integer("num_mel_bins") + 1),
        *towers.plain("encoder.conv2", hidden, 3 * hidden + 1),
        *towers.plain("encoder.embed_positions", heard, hidden),
    )
    return _biased(
        config,
        encoder=front,
        positions=config.integer("max_target_positions"),
        embedding_norm=False,
        last_norm=True,
        k_bias=False,
        encoder_tokens=heard,
    )


def _biased(
    config: Config,
    *,
    encoder: Tensors,
    positions: int,
    embedding_norm: bool,
    last_norm: bool,
    k_bias: bool,
    encoder_tokens: int,
) -> ModelSpec:
    """BART's plan: LayerNorms, biases and two feed-forward matrices in every layer."""
    hidden, vocab = config.integer("d_model"), config.integer("vocab_size")
    layers = config.integer("decoder_layers", high=MAX_LAYERS)
    heads = config.integer("decoder_attention_heads", high=100_000)
    inner = config.integer("decoder_ffn_dim")
    if hidden % heads:
        raise KvroomError(
            config.field("decoder_attention_heads"),
            heads,
            f"does not divide d_model {hidden}",
            "Correct one of them.",
        )

    def attention(name: str) -> Tensors:
        return (
            *parts.attention(
                hidden,
                heads,
                heads,
                hidden // heads,
                qkv_bias=True,
                k_bias=k_bias,
                o_bias=True,
                name=name,
                names=OUT_PROJ,
            ),
            *parts.norm(f"{name}_layer_norm", hidden, bias=True),
        )

    layer = Layer(
        stores=_stores(heads, hidden // heads),
        tensors=(
            *attention("self_attn"),
            *attention("encoder_attn"),
            *parts.mlp(hidden, inner, bias=True, name="", names=("fc1", "fc2")),
            *parts.norm("final_layer_norm", hidden, bias=True),
        ),
    )
    wide = config.integer("encoder_ffn_dim")
    norms = embedding_norm + last_norm
    stack = towers.stack(
        "encoder.layers",
        config.integer("encoder_layers", high=MAX_LAYERS),
        hidden,
        wide,
        vectors=towers.biases(hidden, wide) - (0 if k_bias else hidden),
    )
    first = parts.norm("layernorm_embedding", hidden, bias=True) if embedding_norm else ()
    return model(
        config,
        [layer] * layers,
        hidden=hidden,
        vocab=vocab,
        q_heads=heads,
        kv_heads=heads,
        embedding=(
            *parts.embedding(vocab, hidden),
            *parts.positions(positions, hidden),
            *first,
        ),
        final=parts.norm("layer_norm", hidden, bias=True) if last_norm else (),
        beside=(
            *encoder,
            *stack,
            *(towers.plain("encoder.norms", 2 * hidden, count=norms) if norms else ()),
        ),
        encoder_tokens=encoder_tokens,
        layer_names="model.decoder.layers",
    )
