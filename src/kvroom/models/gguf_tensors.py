"""A GGUF of any architecture: tensors from its own table, caches from its metadata keys.

For architectures that ``gguf_config`` does not turn into a hub's config. Sources: llama.cpp's
``gguf-py/gguf/constants.py`` (keys and tensor names), ``llama-hparams.cpp`` (which layers slide, what a
recurrence keeps) and ``llama-arch.cpp``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from math import prod
from typing import Any

from kvroom.errors import KvroomError
from kvroom.models.dtypes import FP32
from kvroom.models.gguf_config import Keys
from kvroom.models.hf.experts import by_kind
from kvroom.models.kinds import (
    ConvState,
    CrossAttention,
    FullAttention,
    Indexer,
    Latent,
    LayerKind,
    RecurrentState,
    SharedCache,
    SlidingWindow,
)
from kvroom.models.spec import Layer, ModelSpec, Run, runs_of
from kvroom.models.tensors import Part, Split, Tensor

Shapes = Mapping[str, tuple[int, ...]]
Stores = tuple[LayerKind, ...]
MAX_LAYERS = 10_000

_BLOCK = re.compile(r"(?:dec\.)?blk\.(\d{1,6})\.(.+)", re.DOTALL)
_TOWER = re.compile(r"(enc\.|v\.|a\.|mm\.|resampler\.|cls|pos_|conv)")
_PARTS: tuple[tuple[str, Part], ...] = (
    (r"ffn_gate_inp|exp_probs", "router"),
    (r"_exps$|_exps\.", "expert"),
    (r"_shexp|_chexp", "shared_expert"),
    (r"norm|scale|rope|sinks", "norm"),
    (r"ssm_|shortconv|time_mix|wkv", "state"),
    (r"attn|cross_|indexer", "attention"),
)  # fmt: skip
_WINDOW_EVERY = {
    "gemma2": 2, "gemma3": 6, "gemma3n": 5, "cohere2": 4, "olmo2": 4, "exaone4": 4, "gpt-oss": 2,
    "afmoe": 4, "smallthinker": 4, "plamo3": 8, "gemma-embedding": 6, "modern-bert": 3,
    "exaone-moe": 4, "llama4": 4, "command-r": 4,
}  # fmt: skip
"""Every which layer is full, where llama.cpp's loader says it and the file does not."""


def windows(keys: Keys, layers: int) -> tuple[list[bool], tuple[str, ...]]:
    """Which layers slide a window, and what is to be said where the file leaves it open."""
    if not keys.number("attention.sliding_window", 0):
        return [False] * layers, ()
    pattern = keys.get("attention.sliding_window_pattern")
    if isinstance(pattern, list) and len(pattern) >= layers:
        return [bool(p) for p in pattern[:layers]], ()
    every = pattern if type(pattern) is int and pattern > 0 else _WINDOW_EVERY.get(keys.arch)
    if every is not None:
        return [bool((index + 1) % every) for index in range(layers)], ()
    problem = (
        f"{keys.arch}.attention.sliding_window is {keys.get('attention.sliding_window')} and the file does "
        "not say which layers slide: all are counted as full attention"
    )
    return [False] * layers, (problem,)


def read(metadata: Mapping[str, Any], shapes: Shapes, name: str) -> ModelSpec:
    """The model that a GGUF's own tensors and keys describe; KvroomError where a key is missing."""
    keys = Keys(metadata, shapes, name)
    if keys.arch == "clip" or metadata.get("general.type") == "mmproj":
        problem = "is a vision or audio projector (mmproj), not a language model"
        raise KvroomError("model", name, problem, "Give the model's own .gguf file.")
    is_t5 = any(shape.startswith("dec.blk.") for shape in shapes)
    layers = keys.number("decoder_block_count", 0) if is_t5 else 0
    layers = layers or keys.number("block_count")
    drafts = keys.number("nextn_predict_layers", 0)
    if not drafts < layers <= MAX_LAYERS:
        problem = f"is a GGUF of {layers:,} layers"
        raise KvroomError("model", name, problem, "Give a language model's file.")
    main = layers - drafts
    active = max(1, keys.number("expert_used_count", 1))
    own: dict[int, list[Tensor]] = defaultdict(list)
    outside: list[Tensor] = []
    for tensor, shape in shapes.items():
        at = None if tensor.startswith("enc.") else _BLOCK.match(tensor)
        if at is not None and int(at[1]) < layers:
            own[int(at[1])].append(_tensor(at[2], shape, active))
        else:
            outside.append(_outer(tensor, shape))
    stores, words = _stores(keys, main, own)
    if is_t5:
        stores = [(*kind, *_cross(kind)) for kind in stores]
    keyed = [(stores[index], tuple(own[index])) for index in range(main)]
    each = by_kind(keyed, lambda made: Layer(stores=made[0], tensors=made[1]))
    tables = tuple(t for t in outside if t.part == "embedding")
    rest = tuple(t for t in outside if t.part not in ("embedding", "encoder"))
    tokens = shapes.get("token_embd.weight", ())
    attention = [
        s for layer in stores for s in layer if isinstance(s, FullAttention | SlidingWindow)
    ]
    heads = keys.each("attention.head_count", main, 0)
    return ModelSpec(
        name=name,
        model_type=keys.arch,
        layers=runs_of(each),
        embedding=tables,
        head=rest,
        beside=tuple(t for t in outside if t.part == "encoder"),
        mtp=tuple(Run(Layer(tensors=tuple(own[index])), 1) for index in range(main, layers)),
        tied=not any(t.part == "head" and t.is_matrix for t in rest),
        hidden_size=keys.number("embedding_length"),
        vocab_size=tokens[1] if len(tokens) == 2 else max(1, keys.number("vocab_size", 1)),
        q_heads=max(heads),
        kv_heads=max((s.kv_heads for s in attention), default=max(heads)),
        max_context_tokens=keys.number("context_length", 0) or None,
        encoder_tokens=keys.number("context_length", 0) if is_t5 else 0,
        generates=keys.get("attention.causal") is not False,
        dtype="fp16",
        warnings=(
            *words,
            f"GGUF architecture '{keys.arch}' has no reader of its own: tensors are the file's, "
            "caches follow from its keys",
        ),
        layer_names="dec.blk" if is_t5 else "blk",
    )


def _tensor(name: str, shape: tuple[int, ...], active: int) -> Tensor:
    """A layer's tensor; GGUF's shapes have columns first."""
    name = name.removesuffix(".weight")
    part: Part = next((p for pattern, p in _PARTS if re.search(pattern, name)), "mlp")
    sizes = [n for n in shape if n != 1] or [1]
    if part == "expert" and len(shape) == 3:
        columns, rows, count = shape
    elif part == "expert" and len(shape) == 2:
        columns, rows, count = 1, *shape
    else:
        count = 0
    if count:
        chosen = min(active, count)
        return Tensor(
            name=name,
            rows=rows,
            columns=columns,
            count=count,
            part=part,
            split="expert",
            active=chosen,
        )
    is_vector = len(sizes) != 2 or part == "norm" or "conv" in name
    rows, columns = (prod(shape), 1) if is_vector else (sizes[1], sizes[0])
    return Tensor(name=name, rows=rows, columns=columns, part=part, split=_split(name, columns))


def _split(name: str, columns: int) -> Split:
    if columns == 1 and not name.endswith("bias"):
        return "replicated"
    if re.search(r"attn_(k|v|qkv)\b", name):
        return "kv"
    if re.search(r"output|down|ssm_out|out_proj", name):
        return "row" if columns > 1 else "replicated"
    wide = re.search(r"attn_q|q_b|kv_b|gate|up|ssm_in|attn_gate|in_proj", name)
    return "column" if wide and "inp" not in name else "replicated"


def _outer(name: str, shape: tuple[int, ...]) -> Tensor:
    """A tensor outside the decoder's layers."""
    bare = name.removesuffix(".weight")
    rows, columns = (shape[1], shape[0]) if len(shape) == 2 else (prod(shape), 1)
    if bare in ("token_embd", "per_layer_token_embd", "position_embd", "token_types"):
        split: Split = "vocab" if bare != "position_embd" else "replicated"
        return Tensor(name=bare, rows=rows, columns=columns, part="embedding", split=split)
    if bare.startswith("output") and "norm" not in bare:
        return Tensor(name=bare, rows=rows, columns=columns, part="head", split="vocab")
    part: Part = "encoder" if _TOWER.match(bare) else "norm"
    return Tensor(name=bare, rows=rows, columns=columns, part=part)


def _cross(stores: Stores) -> Stores:
    own = next((kind for kind in stores if isinstance(kind, FullAttention)), None)
    if own is None:
        return ()
    sizes = {"kv_heads": own.kv_heads, "k_dim": own.k_dim, "v_dim": own.v_dim}
    return (CrossAttention(q_heads=own.q_heads, **sizes),)


def _stores(
    keys: Keys, layers: int, own: Mapping[int, list[Tensor]]
) -> tuple[list[Stores], tuple[str, ...]]:
    """What each layer keeps, and what is to be said of it."""
    if keys.get("attention.causal") is False:
        return [()] * layers, ()
    heads = keys.each("attention.head_count", layers, 0)
    kv_heads = keys.each("attention.head_count_kv", layers, max(heads))
    slides, words = windows(keys, layers)
    every = keys.number("full_attention_interval", 0)
    shared = keys.number("attention.shared_kv_layers", 0)
    by_shape: dict[Any, Stores] = {}
    found: list[Stores] = []
    for index in range(layers):
        names = {t.name.partition(".")[0] for t in own.get(index, ())}
        recurs = bool((index + 1) % every) if every else not kv_heads[index]
        both = (
            not recurs and any(name.startswith("ssm_") for name in names) and bool(kv_heads[index])
        )
        key = (recurs, both, heads[index], kv_heads[index], slides[index], layers - shared <= index)
        if key not in by_shape:
            stores = (
                ()
                if recurs
                else _attention(keys, heads[index], kv_heads[index], slide=slides[index])
            )
            if key[5]:
                stores = tuple(SharedCache(of=kind) for kind in stores)
            by_shape[key] = (*stores, *(_state(keys) if recurs or both else ()))
        found.append(by_shape[key])
    return found, words


def _attention(keys: Keys, heads: int, kv_heads: int, *, slide: bool) -> Stores:
    heads, kv_heads = max(heads, 1), max(kv_heads, 1)
    near = "_swa" if slide and keys.get("attention.key_length_swa") else ""
    width = max(1, keys.number("embedding_length") // heads)
    key = keys.number(f"attention.key_length{near}", width) or 1
    value = keys.number(f"attention.value_length{near}", key) or 1
    rank = keys.number("attention.kv_lora_rank", 0)
    if rank:
        rope = keys.number("rope.dimension_count", 0)
        latent = Latent(
            latent_dim=rank,
            rope_dim=rope,
            q_heads=heads,
            k_dim=keys.number("attention.key_length_mla", key),
            v_dim=keys.number("attention.value_length_mla", value),
            sparse_read=keys.number("attention.indexer.top_k", 0) or None,
        )
        dim = keys.number("attention.indexer.key_length", 0)
        scored = keys.number("attention.indexer.head_count", 1)
        return (latent, *((Indexer(dim=dim, heads=scored),) if dim else ()))
    sizes = {"kv_heads": kv_heads, "k_dim": key, "v_dim": value, "q_heads": heads}
    if slide:
        return (SlidingWindow(window=keys.number("attention.sliding_window"), **sizes),)
    return (FullAttention(**sizes),)


def _state(keys: Keys) -> Stores:
    """What a recurrent layer keeps; llama.cpp holds all of it in FP32."""
    hidden = keys.number("embedding_length")
    head = keys.number("wkv.head_size", 0)
    if head:
        shifts = keys.number("token_shift_count", 2) or 1
        return (
            RecurrentState(
                heads=hidden // head or 1, head_elements=head * head, form="rwkv", dtype=FP32
            ),
            ConvState(channels=((hidden, 1),), columns=shifts, dtype=FP32),
        )
    cached = keys.number("shortconv.l_cache", 0)
    if cached:
        return (ConvState(channels=((hidden, 1),), columns=max(1, cached - 1), dtype=FP32),)
    kda = keys.number("kda.head_dim", 0)
    if kda:
        heads = max(keys.each("attention.head_count", 1, 1))
        taps = keys.number("ssm.conv_kernel", 4) - 1
        return (
            RecurrentState(heads=heads, head_elements=kda * kda, form="kda", dtype=FP32),
            ConvState(channels=((heads, kda),) * 3, columns=max(1, taps), dtype=FP32),
        )
    inner = keys.number("ssm.inner_size", 0)
    if not inner:
        return ()
    state = keys.number("ssm.state_size")
    groups = keys.number("ssm.group_count", 0)
    taps = max(1, keys.number("ssm.conv_kernel", 4) - 1)
    form = "mamba2" if groups else "mamba1"
    return (
        RecurrentState(heads=inner, head_elements=state, form=form, dtype=FP32),
        ConvState(channels=((inner, 1), (groups, 2 * state)), columns=taps, dtype=FP32),
    )
