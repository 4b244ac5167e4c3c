"""Encoder-only models: BERT and its kin, which embed or score text and keep no cache.

What stands on the encoder (a pooler, a masked-language head, a classifier) follows from the first of
``architectures``. Shapes as in the transformers classes; Nomic's published form as in its remote code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kvroom.models import parts
from kvroom.models.config import Config
from kvroom.models.hf.common import INNER, Sizes, around, grouped, sizes
from kvroom.models.parts import Tensors
from kvroom.models.spec import Layer, ModelSpec

BERT_NAMES = ("self.query", "self.key", "self.value", "output.dense")


def bert(config: Config) -> ModelSpec:
    """BERT: learned positions and token types, biases everywhere, a norm after each half."""
    return _bert(config.of_class(max_position_embeddings=512), pooled=True)


def roberta(config: Config) -> ModelSpec:
    """RoBERTa and XLM-R: BERT whose positions start after the padding token's index."""
    spec = _bert(config.of_class(max_position_embeddings=512), pooled=False)
    first = config.integer("pad_token_id", default=1, low=0) + 1
    limit = spec.max_context_tokens or 0
    return replace(spec, max_context_tokens=limit - first) if limit > first else spec


def _bert(config: Config, *, pooled: bool) -> ModelSpec:
    dims = sizes(config)
    layer = Layer(tensors=_bert_layer(config, dims))
    return _encoder(
        config,
        dims,
        [layer] * dims.layers,
        _bert_tables(config, dims),
        _bert_head(config, dims, pooled=pooled),
    )


def _bert_layer(config: Config, dims: Sizes) -> Tensors:
    return (
        *grouped(dims, bias=True, name="attention", names=BERT_NAMES),
        *parts.norm("attention.output.LayerNorm", dims.hidden, bias=True),
        *parts.mlp(
            dims.hidden,
            config.integer(*INNER),
            bias=True,
            name="",
            names=("intermediate.dense", "output.dense"),
        ),
        *parts.norm("output.LayerNorm", dims.hidden, bias=True),
    )


def _bert_tables(config: Config, dims: Sizes) -> Tensors:
    return (
        *parts.embedding(dims.vocab, dims.hidden, "embeddings.word_embeddings"),
        *parts.positions(
            config.integer("max_position_embeddings"), dims.hidden, "embeddings.position_embeddings"
        ),
        *_token_types(config, dims),
        *parts.norm("embeddings.LayerNorm", dims.hidden, bias=True),
    )


def _token_types(config: Config, dims: Sizes) -> Tensors:
    types = config.integer("type_vocab_size", default=2, low=0)
    return parts.positions(types, dims.hidden, "embeddings.token_type_embeddings") if types else ()


def _architecture(config: Config) -> str:
    names = config.items("architectures", default=[])
    return names[0] if names and isinstance(names[0], str) else ""


def _labels(config: Config) -> int:
    labels = config.sub("id2label").raw
    return len(labels) or config.integer("num_labels", default=2)


def _bert_head(config: Config, dims: Sizes, *, pooled: bool) -> Tensors:
    """What stands on the encoder; ``pooled`` says whether a classifier goes through the pooler."""
    kind = _architecture(config)
    dense = parts.linear("pooler.dense", dims.hidden, dims.hidden, part="mlp", bias=True)
    if kind.endswith(("ForMaskedLM", "ForPreTraining")):
        head = (
            *parts.linear(
                "cls.predictions.transform.dense", dims.hidden, dims.hidden, part="mlp", bias=True
            ),
            *parts.norm("cls.predictions.transform.LayerNorm", dims.hidden, bias=True),
            *parts.vector("cls.predictions.bias", dims.vocab),
        )
        if not config.flag("tie_word_embeddings", default=True):
            head += parts.lm_head(dims.vocab, dims.hidden, name="cls.predictions.decoder")
        return head
    if kind.endswith("ForTokenClassification"):
        return parts.linear("classifier", _labels(config), dims.hidden, part="head", bias=True)
    if kind.endswith("ForSequenceClassification"):
        module = (
            dense
            if pooled
            else parts.linear("classifier.dense", dims.hidden, dims.hidden, part="mlp", bias=True)
        )
        return (
            *module,
            *parts.linear("classifier", _labels(config), dims.hidden, part="head", bias=True),
        )
    return dense


def nomic_bert(config: Config) -> ModelSpec:
    """Nomic Embed: BERT with rotary positions, a gated feed-forward block and no biases.

    GPT-2's keys (``n_embd``, ``n_inner``) as in the published files, or BERT's as in transformers.
    """
    dims = sizes(config)
    bias = config.flag("qkv_proj_bias")
    mlp_bias = config.flag("mlp_fc1_bias")
    names = ("Wqkv", "Wqkv", "Wqkv", "out_proj")
    tensors = (
        *grouped(dims, bias=bias, name="attn", names=names),
        *parts.norm("norm1", dims.hidden, bias=True),
        *parts.mlp(
            dims.hidden, config.integer(*INNER), bias=mlp_bias, names=("fc11", "fc12", "fc2")
        ),
        *parts.norm("norm2", dims.hidden, bias=True),
    )
    embedding = (
        *parts.embedding(dims.vocab, dims.hidden, "embeddings.word_embeddings"),
        *_token_types(config, dims),
        *parts.norm("emb_ln", dims.hidden, bias=True),
    )
    return _encoder(config, dims, [Layer(tensors=tensors)] * dims.layers, embedding, ())


def modernbert(config: Config) -> ModelSpec:
    """ModernBERT: rotary positions, gated feed-forward, norms without shift, none in the first layer."""
    config = config.of_class(max_position_embeddings=8192)
    dims = sizes(config)
    bias, shift = config.flag("attention_bias"), config.flag("norm_bias")
    rest = (
        *grouped(dims, bias=bias, name="attn", names=("Wqkv", "Wqkv", "Wqkv", "Wo")),
        *parts.norm("mlp_norm", dims.hidden, bias=shift),
        *parts.mlp(
            dims.hidden,
            config.integer(*INNER),
            bias=config.flag("mlp_bias"),
            names=("Wi", "Wi", "Wo"),
        ),
    )
    later = (*parts.norm("attn_norm", dims.hidden, bias=shift), *rest)
    embedding = (
        *parts.embedding(dims.vocab, dims.hidden, "embeddings.tok_embeddings"),
        *parts.norm("embeddings.norm", dims.hidden, bias=shift),
    )
    final = parts.norm("final_norm", dims.hidden, bias=shift)
    if _architecture(config).endswith("ForMaskedLM"):
        final += (
            *parts.linear(
                "head.dense",
                dims.hidden,
                dims.hidden,
                part="mlp",
                bias=config.flag("classifier_bias"),
            ),
            *parts.norm("head.norm", dims.hidden, bias=shift),
        )
        if config.flag("decoder_bias", default=True):
            final += parts.vector("decoder.bias", dims.vocab)
    layers = [Layer(tensors=rest)] + [Layer(tensors=later)] * (dims.layers - 1)
    return _encoder(config, dims, layers, embedding, final)


def _encoder(
    config: Config, dims: Sizes, layers: Sequence[Layer], embedding: Tensors, head: Tensors
) -> ModelSpec:
    """A model that keeps nothing and generates nothing; its layers are the encoder's."""
    return around(
        config,
        dims,
        layers,
        embedding=embedding,
        final=head,
        lm_head=(),
        generates=False,
        layer_names="encoder.layer",
    )
