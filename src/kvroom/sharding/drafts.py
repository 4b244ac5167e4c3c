"""Draft models: the weights that stand beside the model's own, and the cache layers that they add.

Prediction layers (MTP) and EAGLE heads use the model's token table and head; where the model is cut into
pipeline stages the last one keeps a table for them. A draft model of its own brings all it has. Every
draft runs on all tensor ranks, or on the last stage's. Sources: vLLM's ``v1/spec_decode``
(``_maybe_share_embeddings``, ``_maybe_share_lm_head``) and EAGLE's published checkpoints (arXiv 2401.15077,
2503.01840): one decoder layer behind ``fc``, which for EAGLE-3 takes three hidden states and feeds
attention twice the width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kvroom.errors import KvroomError
from kvroom.models import parts, weight_dtypes
from kvroom.models.kinds import FullAttention, Latent
from kvroom.models.quantization.base import Quantisation
from kvroom.models.spec import Layer, ModelSpec, Run
from kvroom.scenario.speculation import Speculation
from kvroom.sharding.extras import NONE, Extra, Extras
from kvroom.sharding.layout import Layout, WeightMap

Load = Callable[[Any], ModelSpec]
WIDE = ("q_proj", "k_proj", "v_proj", "qkv_proj")
"""Projections that EAGLE-3 feeds the token's embedding beside the hidden state."""
DRAFT_VOCABULARY = 32_000
"""What published EAGLE-3 heads draft from, whatever the model's own vocabulary."""
ASSUMED_BAND = (0.5, 2.0)


def drafts(
    speculation: Speculation | None,
    weights: WeightMap,
    layout: Layout,
    load: Load,
    narrow: Callable[[ModelSpec], Quantisation],
) -> Extras:
    """The draft's account and layers. ``narrow`` says how a draft of its own is stored.

    Raises KvroomError where the way of drafting needs what is not there.
    """
    if speculation is None or speculation.method == "ngram":
        return NONE
    if speculation.method == "mtp" and speculation.model is None:
        return _prediction(speculation, weights, layout)
    if speculation.model is None:
        if speculation.method == "draft" and speculation.field != "speculation":
            return Extras(warnings=("no draft model is named: nothing is counted for it",))
        if speculation.method == "draft":
            raise KvroomError(
                f"{speculation.field}.model",
                None,
                "is missing",
                "Say which model drafts, or take eagle.",
            )
        return _head(speculation, weights, layout)
    try:
        own = load(speculation.model)
    except KvroomError as error:
        if speculation.field == "speculation":
            raise KvroomError(
                f"{speculation.field}.model", error.value, error.message, error.fix
            ) from None
        return _unread(speculation, weights, layout, error)
    own = _trimmed(speculation.method, own, weights.model)
    alone = WeightMap(model=own, quantisation=narrow(own))
    size = _on_rank(alone, layout)
    if speculation.method != "draft":
        size += _spare_table(weights, layout)
    return _extras(size, own, layout, runs=_running(speculation.method, alone, weights))


def _prediction(speculation: Speculation, weights: WeightMap, layout: Layout) -> Extras:
    """The model's own prediction layers, counted on from its last."""
    model = weights.model
    if not model.mtp:
        if speculation.field != "speculation":
            return Extras(
                warnings=("the config names no prediction layers: nothing is counted for drafting",)
            )
        raise KvroomError(
            f"{speculation.field}.method",
            "mtp",
            "needs prediction layers, and this model's config names none",
            "Use eagle, draft or ngram.",
        )
    size, index = _spare_table(weights, layout), model.num_layers
    for run in model.mtp:
        for _ in range(run.count):
            size += sum(weights.bytes_on(tensor, index, layout) for tensor in run.layer.tensors)
            index += 1
    own = WeightMap(model=_trimmed("mtp", model, model), quantisation=weights.quantisation)
    return _extras(
        size, replace(model, layers=model.mtp), layout, runs=_running("mtp", own, weights)
    )


def _spare_table(weights: WeightMap, layout: Layout) -> int:
    """The token table that the last stage keeps for a draft if the model's own table lies on another
    stage."""
    if layout.pp == 1:
        return 0
    return sum(weights.bytes_on(t, None, layout) for t in weights.model.embedding)


def _head(speculation: Speculation, weights: WeightMap, layout: Layout) -> Extras:
    """A head of one layer like the model's own attention, its own config unknown: an assumption."""
    like = replace(_one_layer(weights.model), draft_vocab_size=DRAFT_VOCABULARY)
    own = _trimmed(speculation.method, like, weights.model)
    alone = WeightMap(model=own, quantisation=weight_dtypes.named("bf16"))
    size = _on_rank(alone, layout) + _spare_table(weights, layout)
    extras = _extras(
        size, own, layout, ASSUMED_BAND, runs=_running(speculation.method, alone, weights)
    )
    note = (
        f"no {speculation.method} head given: one layer like the model's own is assumed "
        f"(speculation.model)"
    )
    return replace(extras, warnings=(note,))


def _unread(
    speculation: Speculation, weights: WeightMap, layout: Layout, why: KvroomError
) -> Extras:
    """A draft that only the engine's flags name and that cannot be read here."""
    note = f"the draft model {why.value} {why.message}"
    if speculation.method == "draft":
        return Extras(warnings=(f"{note}: nothing is counted for it",))
    if speculation.method == "mtp":
        return _prediction(speculation, weights, layout)
    return replace(
        _head(speculation, weights, layout),
        warnings=(f"{note}: one layer like the model's own is assumed",),
    )


def _one_layer(model: ModelSpec) -> ModelSpec:
    """``model`` with a single dense layer: its lightest that keeps every token."""
    keeping = [
        layer.layer
        for layer in model.layers
        if any(isinstance(kind, FullAttention | Latent) for kind in layer.layer.stores)
    ]
    layers = keeping or [layer.layer for layer in model.layers]
    lightest = min(map(_dense, layers), key=lambda x: x.params)
    return replace(model, layers=(Run(lightest, 1),))


def _dense(layer: Layer) -> Layer:
    """``layer`` with the experts that a token uses and no others: heads are dense, whatever they draft for
    (``lmsys/SGLang-EAGLE3-…-SpecForge`` on the hub)."""
    tensors = tuple(
        replace(tensor, count=tensor.active, active=0, part="mlp")
        if tensor.part == "expert"
        else tensor
        for tensor in layer.tensors
    )
    return replace(layer, tensors=tensors)


def _trimmed(method: str, own: ModelSpec, target: ModelSpec) -> ModelSpec:
    """``own`` without what it shares with ``target``, plus what such a draft has beside its layers."""
    if method == "draft":
        return replace(own, beside=(), mtp=())
    bare = replace(own, embedding=(), head=(), beside=(), mtp=(), tied=False, file_bytes=None)
    if method == "mtp":
        return replace(bare, layers=own.mtp or own.layers)
    hidden = own.hidden_size
    if method == "eagle":
        return replace(bare, head=parts.linear("fc", hidden, 2 * hidden, part="mlp"))
    first, *rest = own.each_layer()
    head = parts.lm_head(min(own.draft_vocab_size or own.vocab_size, own.vocab_size), hidden)
    return replace(
        bare,
        layers=(Run(_widened(first), 1), *(Run(x, 1) for x in rest)),
        head=(*parts.linear("fc", hidden, 3 * target.hidden_size, part="mlp"), *head),
    )


def _widened(layer: Layer) -> Layer:
    """``layer`` with attention that takes two vectors of the hidden size."""
    return replace(
        layer,
        tensors=tuple(
            replace(tensor, columns=2 * tensor.columns)
            if tensor.is_matrix and tensor.name.endswith(WIDE)
            else tensor
            for tensor in layer.tensors
        ),
    )


def _on_rank(weights: WeightMap, layout: Layout) -> int:
    """What a draft weighs on one tensor rank."""
    return weights.ranks(replace(layout, pp=1, dcp=1))[0].weight_bytes


def _running(method: str, alone: WeightMap, target: WeightMap) -> WeightMap:
    """The draft as it runs: with the target's head where it has none of its own."""
    if method in ("draft", "eagle3"):
        return alone
    model = target.model
    head = parts.lm_head(model.vocab_size, model.hidden_size) if model.tied else model.head
    own = alone.model
    return replace(alone, model=replace(own, head=(*own.head, *head)))


def _extras(
    size: int,
    own: ModelSpec,
    layout: Layout,
    band: tuple[float, float] = (1.0, 1.0),
    *,
    runs: WeightMap,
) -> Extras:
    source = "config" if band == (1.0, 1.0) else "assumed"
    stages = (*(0 for _ in range(layout.pp - 1)), size)
    part = Extra(name="draft", stages=stages, source=source, low=band[0], high=band[1])
    return Extras(parts=(part,), draft_layers=tuple(own.each_layer()), draft=runs)
