"""What most decoders share: their sizes, their limits, and the ModelSpec around their layers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

from kvroom.errors import KvroomError
from kvroom.models import parts
from kvroom.models.config import MAX_LAYERS, Config
from kvroom.models.kinds import FullAttention, LayerKind, SlidingWindow
from kvroom.models.parts import Tensors
from kvroom.models.quantization.configs import from_config
from kvroom.models.spec import Layer, ModelSpec, Run, runs_of
from kvroom.models.tensors import Tensor
from kvroom.records import dataclass

LAYERS = (
    "num_hidden_layers",
    "n_layer",
    "n_layers",
    "num_layers",
    "decoder_layers",
    "num_decoder_layers",
)
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "decoder_attention_heads")
HIDDEN = ("hidden_size", "d_model", "n_embd", "n_embed")
INNER = ("intermediate_size", "ffn_dim", "d_ff", "n_inner", "ffn_hidden_size", "decoder_ffn_dim")
CONTEXT = (
    "max_position_embeddings",
    "n_positions",
    "max_sequence_length",
    "max_seq_len",
    "max_seq_length",
    "seq_length",
    "n_ctx",
    "max_target_positions",
    "model_max_length",
)


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a decoder, under one name each."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int


def sizes(config: Config) -> Sizes:
    """Read a decoder's sizes; head_dim is the config's own where it has one, else hidden / heads."""
    hidden = config.integer(*HIDDEN)
    heads = config.integer(*HEADS, high=100_000)
    kv_heads = config.integer("num_key_value_heads", "num_kv_heads", default=heads, high=100_000)
    check_groups(config, heads, kv_heads)
    return Sizes(
        layers=config.integer(*LAYERS, high=MAX_LAYERS),
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim(config, hidden, heads),
        vocab=config.integer("vocab_size", "padded_vocab_size"),
    )


def head_dim(config: Config, hidden: int, heads: int) -> int:
    """``head_dim`` where the config has it, else hidden / heads, which must divide."""
    if config.has("head_dim"):
        return config.integer("head_dim", high=100_000)
    if hidden % heads:
        raise KvroomError(
            config.field(*HEADS),
            heads,
            f"does not divide hidden_size {hidden}",
            "Correct one of them, or add head_dim.",
        )
    return hidden // heads


def check_groups(config: Config, heads: int, kv_heads: int, *names: str) -> None:
    """Refuse query heads that do not share KV heads evenly; ``names`` is the key that gave these."""
    if heads % kv_heads:
        raise KvroomError(
            config.field(*names or ("num_key_value_heads", "num_kv_heads")),
            kv_heads,
            f"does not divide {heads} attention heads",
            f"Give a divisor of {heads}.",
        )


def stored(
    dims: Sizes,
    window: int | None = None,
    *,
    v_dim: int | None = None,
    sparse_read: int | None = None,
) -> LayerKind:
    """What a layer of grouped attention keeps: the last ``window`` tokens, or all (``window`` None)."""
    heads = {
        "kv_heads": dims.kv_heads,
        "k_dim": dims.head_dim,
        "v_dim": dims.head_dim if v_dim is None else v_dim,
        "q_heads": dims.heads,
    }
    if window is None:
        return FullAttention(**heads, sparse_read=sparse_read)
    return SlidingWindow(**heads, window=window)


def grouped(
    dims: Sizes,
    *,
    qk_norms: Literal["none", "head", "width"] = "none",
    norm_names: tuple[str, str] = ("q_norm", "k_norm"),
    name: str = "self_attn",
    bias: bool = False,
    **projections: Any,
) -> Tensors:
    """Grouped attention with query and key norms of one head's width or of the whole projection.

    ``bias`` is for all four projections; ``projections`` is what ``parts.attention`` takes beside it: their
    names, biases of some, the width of a value.
    """
    projections = {"qkv_bias": bias, "o_bias": bias, **projections}
    widths = {
        "none": (0, 0),
        "head": (dims.head_dim, dims.head_dim),
        "width": (dims.heads * dims.head_dim, dims.kv_heads * dims.head_dim),
    }[qk_norms]
    return (
        *parts.attention(
            dims.hidden, dims.heads, dims.kv_heads, dims.head_dim, name=name, **projections
        ),
        *(
            norm
            for module, width in zip(norm_names, widths, strict=True)
            if width
            for norm in parts.norm(f"{name}.{module}", width)
        ),
    )


def two_norms(hidden: int, *, bias: bool = False) -> Tensors:
    """The norms before attention and before the feed-forward block."""
    return (
        *parts.norm("input_layernorm", hidden, bias=bias),
        *parts.norm("post_attention_layernorm", hidden, bias=bias),
    )


def layer_kinds(config: Config, layers: int, default: Callable[[int], bool]) -> list[bool]:
    """Whether each layer sees only a window or chunk: ``layer_types``, else ``default`` of its index."""
    if not config.has("layer_types"):
        return [default(index) for index in range(layers)]
    near = "chunked_attention" if config.has("attention_chunk_size") else "sliding_attention"
    known = {near: True, "full_attention": False}
    labels = config.items("layer_types", length=layers)
    for entry in labels:
        if not isinstance(entry, str) or entry not in known:
            raise KvroomError(
                config.field("layer_types"),
                entry,
                "is no attention type of this architecture",
                f"Write {' or '.join(known)}.",
            )
    return [known[entry] for entry in labels]


def context_limit(config: Config) -> int | None:
    """The longest context that the model states, as vLLM derives it from the config.

    The smallest of the keys that state one (``model_max_length`` wins over all: Command-R), times the
    factor of the rotary scaling. YaRN scales from its original length; the limit of llama3 and longrope,
    and of every Gemma 3, includes the scaling already.
    """
    limits = [config.integer(key, high=10**9) for key in CONTEXT if config.has(key)]
    if not limits:
        return None
    limit = config.integer("model_max_length", default=min(limits), high=10**9)
    if "gemma3" in config.text("model_type", default=""):
        return limit
    scaling = config.get("rope_scaling", "rope_parameters")
    if not isinstance(scaling, dict):
        return limit
    rope = config.sub("rope_scaling", "rope_parameters")
    by_type = [rope.sub(key) for key, value in scaling.items() if isinstance(value, dict)]
    factor = 1.0
    for level in by_type or [rope]:
        kind = level.get("rope_type", "type", default="default")
        if kind in ("su", "longrope", "llama3"):
            continue
        factor = level.number("factor", default=factor, low=1e-3, high=1e6)
        if kind == "yarn":
            limit = level.integer("original_max_position_embeddings", default=limit, high=10**9)
    return int(limit * factor)


def model(
    config: Config,
    layers: Iterable[Layer],
    *,
    hidden: int,
    vocab: int,
    q_heads: int,
    kv_heads: int,
    embedding: tuple[Tensor, ...] | None = None,
    final: tuple[Tensor, ...] | None = None,
    lm_head: tuple[Tensor, ...] | None = None,
    tied: bool | None = None,
    beside: tuple[Tensor, ...] = (),
    mtp: tuple[Run, ...] = (),
    encoder_tokens: int = 0,
    generates: bool = True,
    warnings: tuple[str, ...] = (),
    layer_names: str = "model.layers",
    root: Config | None = None,
) -> ModelSpec:
    """The ModelSpec around ``layers``.

    ``embedding`` defaults to a token table, ``final`` to one RMS norm, ``lm_head`` to a projection
    without bias (left out where ``tied``; ``tied`` defaults to the config's ``tie_word_embeddings``,
    itself false by default). ``root`` is the outermost level of a nested config, where quantisation,
    dtype and tying may be said.
    """
    top = root or config
    if tied is None:
        tied = ties(config, top)
    if embedding is None:
        embedding = parts.embedding(vocab, hidden)
    if final is None:
        final = parts.norm("norm", hidden)
    if lm_head is None:
        lm_head = parts.lm_head(vocab, hidden)
    return ModelSpec(
        name=top.text("_name_or_path", default="") or top.text("model_type", default="model"),
        model_type=top.text("model_type", default=""),
        layers=runs_of(layers),
        embedding=embedding,
        head=final + tuple(t for t in lm_head if not (tied and t.is_matrix)),  # a bias stays
        beside=beside,
        mtp=mtp,
        tied=tied,
        hidden_size=hidden,
        vocab_size=vocab,
        q_heads=q_heads,
        kv_heads=kv_heads,
        max_context_tokens=context_limit(config),
        encoder_tokens=encoder_tokens,
        generates=generates,
        dtype=dtype_of(config, top),
        quantisation=from_config(top.raw),
        warnings=warnings,
        state_dtype=config.get("mamba_ssm_cache_dtype", "mamba_ssm_dtype"),
        scan_chunk_tokens=config.maybe_integer("mamba_chunk_size", "chunk_size", high=10**6),
        layer_names=layer_names,
    )


def around(config: Config, dims: Sizes, layers: Iterable[Layer], **rest: Any) -> ModelSpec:
    """The ModelSpec around ``layers`` of these sizes; ``rest`` goes to ``model``."""
    return model(
        config,
        layers,
        hidden=dims.hidden,
        vocab=dims.vocab,
        q_heads=dims.heads,
        kv_heads=dims.kv_heads,
        **rest,
    )


def ties(config: Config, top: Config) -> bool:
    """Whether the head is the token table.

    The text level says it, else the outermost. In a file that transformers 5 wrote the outermost wins:
    there it ties the whole model, and text levels keep what they once said.
    """
    version = str(top.raw.get("transformers_version", ""))
    major = version.partition(".")[0]
    key = "tie_word_embeddings"
    if major.isdigit() and int(major) >= 5 and isinstance(top.raw.get(key), bool):
        return top.flag(key)
    return config.flag(key, default=top.flag(key, default=False))


def dtype_of(config: Config, top: Config) -> str:
    """The checkpoint's own width: ``bf16`` where it does not say or says something odd."""
    word = config.get("dtype", "torch_dtype") or top.get("dtype", "torch_dtype")
    names = {"float16": "fp16", "half": "fp16", "float32": "fp32", "float": "fp32"}
    return names.get(str(word).removeprefix("torch."), "bf16")
