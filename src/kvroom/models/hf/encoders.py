"""Encoder-only models: BERT and its kin, which embed or score text and keep no cache.

What stands on the encoder (a pooler, a masked-language head, a classifier) follows from the first of
``architectures``. Shapes as in the transformers classes; Nomic's published form as in its remote code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from kvroom.models import parts
from kvroom.models.config import Config
from kvroom.models.hf.common import INNER, Sizes, model, sizes
from kvroom.models.parts import Tensors
from kvroom.models.spec import Layer, ModelSpec

BERT_NAMES = ("self.query", "self.key", "self.value", "output.dense")


def bert(c: Config) -> ModelSpec:
    """BERT: learned positions and token types, biases everywhere, a norm after each half."""
    return _bert(c.of_class(max_position_embeddings=512), pooled=True)


def roberta(c: Config) -> ModelSpec:
    """RoBERTa and XLM-R: BERT whose positions start after the padding token's index."""
    spec = _bert(c.of_class(max_position_embeddings=512), pooled=False)
    first = c.integer("pad_token_id", default=1, low=0) + 1
    limit = spec.max_context_tokens or 0
    return replace(spec, max_context_tokens=limit - first) if limit > first else spec


def _bert(c: Config, *, pooled: bool) -> ModelSpec:
    s = sizes(c)
    layer = Layer(tensors=_bert_layer(c, s))
    return _encoder(c, s, [layer] * s.layers, _bert_tables(c, s), _bert_head(c, s, pooled=pooled))


def _bert_layer(c: Config, s: Sizes) -> Tensors:
    return (
        *parts.attention(
            s.hidden,
            s.heads,
            s.kv_heads,
            s.head_dim,
            qkv_bias=True,
            o_bias=True,
            name="attention",
            names=BERT_NAMES,
        ),
        *parts.norm("attention.output.LayerNorm", s.hidden, bias=True),
        *parts.mlp(
            s.hidden,
            c.integer(*INNER),
            bias=True,
            name="",
            names=("intermediate.dense", "output.dense"),
        ),
        *parts.norm("output.LayerNorm", s.hidden, bias=True),
    )


def _bert_tables(c: Config, s: Sizes) -> Tensors:
    return (
        *parts.embedding(s.vocab, s.hidden, "embeddings.word_embeddings"),
        *parts.positions(
            c.integer("max_position_embeddings"), s.hidden, "embeddings.position_embeddings"
        ),
        *_token_types(c, s),
        *parts.norm("embeddings.LayerNorm", s.hidden, bias=True),
    )


def _token_types(c: Config, s: Sizes) -> Tensors:
    types = c.integer("type_vocab_size", default=2, low=0)
    return parts.positions(types, s.hidden, "embeddings.token_type_embeddings") if types else ()


def _architecture(c: Config) -> str:
    names = c.items("architectures", default=[])
    return names[0] if names and isinstance(names[0], str) else ""


def _labels(c: Config) -> int:
    labels = c.sub("id2label").raw
    return len(labels) or c.integer("num_labels", default=2)


def _bert_head(c: Config, s: Sizes, *, pooled: bool) -> Tensors:
    """What stands on the encoder; ``pooled`` says whether a classifier goes through the pooler."""
    kind = _architecture(c)
    dense = parts.linear("pooler.dense", s.hidden, s.hidden, part="mlp", bias=True)
    if kind.endswith(("ForMaskedLM", "ForPreTraining")):
        head = (
            *parts.linear(
                "cls.predictions.transform.dense", s.hidden, s.hidden, part="mlp", bias=True
            ),
            *parts.norm("cls.predictions.transform.LayerNorm", s.hidden, bias=True),
            *parts.vector("cls.predictions.bias", s.vocab),
        )
        if not c.flag("tie_word_embeddings", default=True):
            head += parts.lm_head(s.vocab, s.hidden, name="cls.predictions.decoder")
        return head
    if kind.endswith("ForTokenClassification"):
        return parts.linear("classifier", _labels(c), s.hidden, part="head", bias=True)
    if kind.endswith("ForSequenceClassification"):
        module = (
            dense
            if pooled
            else parts.linear("classifier.dense", s.hidden, s.hidden, part="mlp", bias=True)
        )
        return (
            *module,
            *parts.linear("classifier", _labels(c), s.hidden, part="head", bias=True),
        )
    return dense


def nomic_bert(c: Config) -> ModelSpec:
    """Nomic Embed: BERT with rotary positions, a gated feed-forward block and no biases.

    GPT-2's keys (``n_embd``, ``n_inner``) as in the published files, or BERT's as in transformers.
    """
    s = sizes(c)
    bias = c.flag("qkv_proj_bias")
    mlp_bias = c.flag("mlp_fc1_bias")
    names = ("Wqkv", "Wqkv", "Wqkv", "out_proj")
    tensors = (
        *parts.attention(
            s.hidden,
            s.heads,
            s.kv_heads,
            s.head_dim,
            qkv_bias=bias,
            o_bias=bias,
            name="attn",
            names=names,
        ),
        *parts.norm("norm1", s.hidden, bias=True),
        *parts.mlp(s.hidden, c.integer(*INNER), bias=mlp_bias, names=("fc11", "fc12", "fc2")),
        *parts.norm("norm2", s.hidden, bias=True),
    )
    embedding = (
        *parts.embedding(s.vocab, s.hidden, "embeddings.word_embeddings"),
        *_token_types(c, s),
        *parts.norm("emb_ln", s.hidden, bias=True),
    )
    return _encoder(c, s, [Layer(tensors=tensors)] * s.layers, embedding, ())


def modernbert(c: Config) -> ModelSpec:
    """ModernBERT: rotary positions, gated feed-forward, norms without shift, none in the first layer."""
    c = c.of_class(max_position_embeddings=8192)
    s = sizes(c)
    bias, shift = c.flag("attention_bias"), c.flag("norm_bias")
    rest = (
        *parts.attention(
            s.hidden,
            s.heads,
            s.kv_heads,
            s.head_dim,
            qkv_bias=bias,
            o_bias=bias,
            name="attn",
            names=("Wqkv", "Wqkv", "Wqkv", "Wo"),
        ),
        *parts.norm("mlp_norm", s.hidden, bias=shift),
        *parts.mlp(s.hidden, c.integer(*INNER), bias=c.flag("mlp_bias"), names=("Wi", "Wi", "Wo")),
    )
    later = (*parts.norm("attn_norm", s.hidden, bias=shift), *rest)
    embedding = (
        *parts.embedding(s.vocab, s.hidden, "embeddings.tok_embeddings"),
        *parts.norm("embeddings.norm", s.hidden, bias=shift),
    )
    final = parts.norm("final_norm", s.hidden, bias=shift)
    if _architecture(c).endswith("ForMaskedLM"):
        final += (
            *parts.linear(
                "head.dense",
                s.hidden,
                s.hidden,
                part="mlp",
                bias=c.flag("classifier_bias"),
            ),
            *parts.norm("head.norm", s.hidden, bias=shift),
        )
        if c.flag("decoder_bias", default=True):
            final += parts.vector("decoder.bias", s.vocab)
    layers = [Layer(tensors=rest)] + [Layer(tensors=later)] * (s.layers - 1)
    return _encoder(c, s, layers, embedding, final)


def _encoder(
    c: Config, s: Sizes, layers: Sequence[Layer], embedding: Tensors, head: Tensors
) -> ModelSpec:
    """A model that keeps nothing and generates nothing; its layers are the encoder's."""
    return model(
        c,
        layers,
        hidden=s.hidden,
        vocab=s.vocab,
        q_heads=s.heads,
        kv_heads=s.kv_heads,
        embedding=embedding,
        final=head,
        lm_head=(),
        generates=False,
        layer_names="encoder.layer",
    )


READERS: dict[str, Callable[[Config], ModelSpec]] = {
    "bert": bert,
    "roberta": roberta,
    "xlm-roberta": roberta,
    "nomic_bert": nomic_bert,
    "modernbert": modernbert,
}
