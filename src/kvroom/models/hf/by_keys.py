"""A ``model_type`` that neither a reader nor the table of classes knows: read by its keys.

Published configs share their words: widths, heads, a latent rank, expert counts, a list of what each
layer is. What they say is taken, with a warning that names the keys by which the less usual parts were
told, and the keys that were not understood.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kvroom.errors import KvroomError, did_you_mean
from kvroom.models import parts
from kvroom.models.config import MAX_LAYERS, Config
from kvroom.models.hf import caches, schedules
from kvroom.models.hf.common import CONTEXT, HEADS, HIDDEN, INNER, LAYERS, model, two_norms
from kvroom.models.hf.experts import ACTIVE, EXPERTS, Mixture, by_kind, prediction
from kvroom.models.hf.latent import latent_sizes
from kvroom.models.hf.recurrent import conv1d, grouped_vector
from kvroom.models.hf.towers import by_its_keys
from kvroom.models.kinds import ConvState, HeadedAttention, Latent, RecurrentState, SharedCache
from kvroom.models.parts import Tensors
from kvroom.models.spec import Layer, ModelSpec
from kvroom.models.tensors import Tensor

WRAPPERS = (
    "text_config",
    "llm_config",
    "language_config",
    "thinker_config",
    "language_model_config",
    "decoder_config",
    "decoder",
)
TOWERS = re.compile(r"(?:.*_)?(vision|visual|audio|vit|speech|image)\w*|.*encoder_config|encoder")

SYNONYMS = {
    "attention_kv_lora_dim": "kv_lora_rank",
    "attention_q_lora_dim": "q_lora_rank",
    "attention_qk_dim": "qk_nope_head_dim",
    "attention_qk_rope_dim": "qk_rope_head_dim",
    "attention_v_dim": "v_head_dim",
    "num_routed_experts": "n_routed_experts",
    "hidden_size_per_head": "head_dim",
    "moe_layer_frequency": "decoder_sparse_step",
    "full_attention_idx": "full_attn_idxs",
}
"""What some authors call the keys that others share."""

MOE_INNER = ("moe_intermediate_size", "expert_ffn_hidden_size", "moe_ffn_hidden_size", "expert_dim")
SHARED_INNER = ("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size")
SHARED = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert")
NORMS = ("use_qk_norm", "qk_norm", "qk_layernorm", "use_qk_layernorm", "attn_qk_norm")
BIASES = ("attention_bias", "qkv_bias", "use_qkv_bias", "add_qkv_bias", "use_bias", "bias")

PLAIN_ACTS = ("relu", "relu2", "relu_squared", "squared_relu", "xielu", "relu^2")
"""Activations of feed-forward blocks that have no gate."""
GATELESS_IF_LAYERNORM = ("gelu", "gelu_new", "gelu_fast", "quick_gelu", "gelu_pytorch_tanh")
"""As ``PLAIN_ACTS`` in models of LayerNorms (GPT-2's line), gated in those of RMS norms (Gemma's)."""

SHAPELESS = re.compile(
    r"_.*|.*_tokens?(_ids?|_index)?|.*token_id.*|.*dropout.*|.*_pdrop|initializer_.*|rope.*|.*_rope_.*|rotary_.*"
    r"|original_max_.*|partial_rotary_factor|use_cache|(torch_)?dtype|transformers_version|architectures"
    r"|auto_map|model_type|.*act(ivation)?(_fn|_function)?|.*_eps(ilon)?|output_.*|return_.*|pad_.*"
    r"|tokenizer_.*|.*attn_implementation|use_flash.*|pretraining_tp|.*logit.*|.*softcap.*|.*_multiplier"
    r"|gradient_.*|id2label|label2id|problem_type|quantization_config|compression_config|.*_scale"
    r"|chunk_size_feed_forward|is_decoder|is_encoder_decoder|task_specific_params|torchscript|use_bfloat16"
    r"|language|license|name|description|.*_template|temperature|top_[pk]|do_sample|seed|.*_coef\w*|.*_loss\w*"
    r"|norm_topk_prob|scoring_func|topk_method|routed_scaling_factor|ep_size|router_\w+|attention_dropout"
    r"|max_window_layers|use_sliding_window|tie_word_embeddings|num_hidden_layers|vocab_size|n_group|topk_group"
    r"|moe_router\w*|.*_interleaved?|use_rmsnorm|head_dim|v_head_dim|qk_\w+|.*factor|moe_layer_freq|.*_range|.*_std"
)
"""Keys that change no tensor and no cache, or that ``caches`` reads."""


def read(config: Config, types: Sequence[str], inner: Callable[..., ModelSpec]) -> ModelSpec:
    """The model by its keys; ``inner`` reads a level whose ``model_type`` is known.

    KvroomError where the config names no layers or no width.
    """
    kind = config.text("model_type", default="")
    source = f"model_type {kind!r}" if kind else "a config without model_type"
    for name in WRAPPERS:
        level = config.get(name)
        if isinstance(level, Mapping) and (level.get("model_type") in types or _sized(level)):
            spec = _level(config, name, level, types, inner)
            return _with_towers(config, spec, source, name)
    if not _sized(config.raw):
        fix = did_you_mean(
            kind, types, "Give a language model's config.json (num_hidden_layers …)."
        )
        what = "is not known, and the config names no layers or no hidden_size"
        raise KvroomError("model_type", kind or None, what, fix)
    return _with_towers(config, _decoder(config, source), source, "")


def _sized(level: Mapping[str, Any]) -> bool:
    return any(level.get(layer) is not None for layer in LAYERS) and any(
        level.get(k) is not None for k in HIDDEN
    )


def _level(
    root: Config,
    name: str,
    level: Mapping[str, Any],
    types: Sequence[str],
    inner: Callable[..., ModelSpec],
) -> ModelSpec:
    """The text level: by its own type's reader, else by its keys."""
    outer = {
        key: value
        for key, value in root.raw.items()
        if key in ("quantization_config", "torch_dtype", "dtype", "tie_word_embeddings")
        and value is not None
    }
    if level.get("model_type") in types:
        return inner(
            {
                **outer,
                **level,
                **{key: value for key, value in outer.items() if key.startswith("quant")},
            }
        )
    own = level.get("model_type")
    source = f"{name}.model_type {own!r}" if own else f"{name} without model_type"
    return _decoder(Config({**outer, **level}, path=f"{name}."), source)


def _with_towers(root: Config, spec: ModelSpec, source: str, name: str) -> ModelSpec:
    """``spec`` with the towers of the outer level beside it, and what was done said."""
    beside: list[Tensor] = []
    for key, value in root.raw.items():
        if key != name and isinstance(value, Mapping) and TOWERS.fullmatch(key):
            beside += by_its_keys(Config(value, path=f"{key}."), key, spec.hidden_size)
    if not name and not beside:
        return spec
    towers = ", ".join(dict.fromkeys(t.name.partition(".")[0] for t in beside)) or "no tower"
    words = (
        f"{source} is not known: read as {name or 'its own'} text model beside {towers} by its keys"
    )
    warnings = (*spec.warnings, words) if name else spec.warnings
    return replace(spec, beside=(*spec.beside, *beside), warnings=warnings)


def _decoder(config: Config, source: str) -> ModelSpec:
    """A decoder by its keys."""
    config = Config(
        {SYNONYMS.get(key, key): value for key, value in config.raw.items()},
        config.defaults,
        config.path,
    )
    count = config.integer(*LAYERS, high=MAX_LAYERS)
    hidden = config.integer(*HIDDEN)
    own = caches.by_layer(config, count)
    notes: list[str] = list(own.words)
    sparse = _sparse(config, count, notes)
    gated = _gated(config, notes)
    mixtures = _mixtures(config, hidden, notes, gated=gated) if any(sparse) else ()
    bias = any(config.get(biase) is True for biase in BIASES)
    mlp_bias = config.get("mlp_bias") is True or config.get("use_bias") is True

    def build(kind: tuple[int, bool]) -> Layer:
        stores = own.kinds[kind[0]]
        mixers = tuple(t for kind in stores for t in _mixer(config, hidden, kind, bias=bias))
        if kind[1] and mixtures:
            feed = tuple(tensor for mixture in mixtures for tensor in mixture.tensors(hidden))
        elif config.has(*INNER):
            inner = config.get(*INNER)
            width = (
                max(config.integers(*INNER), default=1)
                if isinstance(inner, list)
                else config.integer(*INNER)
            )
            feed = parts.mlp(hidden, width, gated=gated, bias=mlp_bias)
        else:
            feed = parts.mlp(hidden, 4 * hidden, gated=gated, bias=mlp_bias)
        return Layer(stores=stores, tensors=(*two_norms(hidden), *mixers, *feed))

    layers = by_kind(zip(own.at, sparse, strict=True), build)
    spec = model(
        config,
        layers,
        hidden=hidden,
        vocab=config.integer("vocab_size", "padded_vocab_size"),
        q_heads=own.heads[0],
        kv_heads=own.heads[1],
        mtp=prediction(config, layers[-1], hidden),
    )
    if config.has("kv_lora_rank"):
        notes.append("latents from kv_lora_rank")
    kinds = {kind.kind for stores in own.kinds for kind in stores} - {"full", "latent"}
    if kinds:
        notes.append(f"{', '.join(sorted(kinds))} layers from the config's layer keys")
    odd = sorted(
        key
        for key, value in config.raw.items()
        if value not in (None, False, 0, "", [], {}) and not _read(key)
    )
    if odd:
        more = f" and {len(odd) - 8} more" if len(odd) > 8 else ""
        notes.append(f"not understood: {', '.join(odd[:8])}{more}")
    taken = f" ({'; '.join(notes)})" if notes else ""
    warning = f"{source} is not known: read as a decoder by its keys{taken}; parameters may differ"
    return replace(spec, warnings=(*spec.warnings, warning))


_KEYS = {
    *LAYERS, *HEADS, *HIDDEN, *INNER, *CONTEXT, *EXPERTS, *ACTIVE, *MOE_INNER, *SHARED, *SHARED_INNER,
    *NORMS, *BIASES, *schedules.NAMES,
    *(key for keys in schedules.SCHEDULES.values() for key in keys),
    "num_key_value_heads", "num_kv_heads", "kv_lora_rank", "q_lora_rank", "sliding_window", "mlp_bias",
    "attention_chunk_size", "index_topk", "index_head_dim", "index_n_heads", "mlp_layer_types",
    "num_nextn_predict_layers", "num_kv_shared_layers", "padded_vocab_size",
}  # fmt: skip


def _read(key: str) -> bool:
    recurrence = re.fullmatch(r"(mamba|linear|ssm|conv|swa)_\w+|state_size|expand|chunk_size", key)
    return (
        key in _KEYS
        or bool(recurrence)
        or SHAPELESS.fullmatch(key) is not None
        or bool(TOWERS.fullmatch(key))
    )


def _gated(config: Config, notes: list[str]) -> bool:
    """Whether the feed-forward block has a gate, by its activation."""
    act = config.get(
        "hidden_act", "hidden_activation", "activation_function", "mlp_hidden_act", "activation"
    )
    act = act.lower() if isinstance(act, str) else "silu"
    layernorm = config.has("layer_norm_eps", "layer_norm_epsilon") and not config.has(
        "rms_norm_eps"
    )
    if act in PLAIN_ACTS or (act in GATELESS_IF_LAYERNORM and layernorm):
        notes.append(f"a feed-forward block without gate from {act}")
        return False
    return True


def _sparse(config: Config, count: int, notes: list[str]) -> list[bool]:
    """Which layers have routed experts."""
    experts = next(
        (expert for expert in EXPERTS if config.has(expert) and max(_listed(config, expert)) > 1),
        None,
    )
    if experts is None:
        return [False] * count
    listed = config.get("mlp_layer_types")
    said = listed[:count] if isinstance(listed, list) and len(listed) >= count else None
    said = said or schedules.schedule(config, "mlp_layer_types", count) or ["sparse"] * count
    sparse = [s != "dense" for s in said]
    notes.append(f"{config.get(experts)} experts from {experts} in {sum(sparse)} of {count} layers")
    return sparse


def _mixtures(config: Config, hidden: int, notes: list[str], *, gated: bool) -> tuple[Mixture, ...]:
    """The routed experts; lists give one set for each modality (ERNIE VL), a token using the first."""
    counts, inners = _listed(config, *EXPERTS), _listed(config, *MOE_INNER, *INNER)
    inner = inners[0]
    if config.has(*SHARED_INNER):
        shared = config.integer(*SHARED_INNER, low=0)
    else:
        shared = inner * config.integer(*SHARED, default=0, low=0, high=10_000)
    if shared:
        notes.append(f"a shared expert of width {shared:,}")
    modules = ("gate_proj", "up_proj", "down_proj") if gated else ("up_proj", "down_proj")
    active = config.integer(*ACTIVE, "moe_topk", "num_selected_experts", default=1, high=100_000)
    return tuple(
        Mixture(
            count=count,
            active=0 if index else min(active, count),
            inner=inners[min(index, len(inners) - 1)],
            shared=0 if index else shared,
            modules=modules,
            shared_modules=modules,
        )
        for index, count in enumerate(counts)
    )


def _listed(config: Config, *names: str) -> list[int]:
    """A number, or several in a list."""
    if isinstance(config.get(*names), list):
        return config.integers(*names, low=1)[:8] or [1]
    return [config.integer(*names)]


def _mixer(config: Config, hidden: int, kind: object, *, bias: bool) -> Tensors:
    """The tensors behind what a layer keeps."""
    if isinstance(kind, SharedCache):
        return tuple(
            t
            for t in _mixer(config, hidden, kind.of, bias=bias)
            if not re.search(r"\.[kv]_(proj|norm)", t.name)
        )
    if isinstance(kind, Latent):
        return latent_sizes(config).tensors(bias=config.get("attention_bias") is True)
    if isinstance(kind, HeadedAttention):
        o_bias = config.get("attention_bias") is True or config.get("use_bias") is True
        norms = any(config.get(norm) is True for norm in NORMS)
        return (
            *parts.attention(
                hidden,
                kind.q_heads,
                kind.kv_heads,
                kind.k_dim,
                v_dim=kind.v_dim,
                qkv_bias=bias,
                o_bias=o_bias,
            ),
            *(parts.norm("self_attn.q_norm", kind.k_dim) if norms else ()),
            *(parts.norm("self_attn.k_norm", kind.k_dim) if norms else ()),
        )
    if isinstance(kind, RecurrentState):
        return _recurrence(config, hidden, kind)
    if isinstance(kind, ConvState):
        channels = [(u, w) for u, w in kind.channels]
        return conv1d("mixer.conv1d", channels, kind.columns + 1, bias=False)
    return ()


def _recurrence(config: Config, hidden: int, kind: RecurrentState) -> Tensors:
    """Projections in and out of a recurrence, as wide as its heads (a gate as wide as its values)."""
    if kind.form == "mamba2":
        width = config.integer("mamba_head_dim", "mamba_d_head", default=64, high=100_000)
        inner, keys = kind.heads * width, kind.head_elements // width
    elif kind.form == "mamba1":
        inner, keys = kind.heads, kind.head_elements
    else:
        v = config.integer(
            "linear_value_head_dim", "head_dim", default=max(1, int(kind.head_elements**0.5))
        )
        inner, keys = kind.heads * v, kind.heads * (kind.head_elements // v)
    rows = 2 * inner + 2 * keys + kind.heads
    return (
        *parts.linear(
            "mixer.in_proj", rows, hidden, part="state", split="column", units=kind.heads
        ),
        *grouped_vector("mixer.A_log", kind.heads, kind.heads),
        *parts.linear("mixer.out_proj", hidden, inner, part="state", split="row", units=kind.heads),
    )
