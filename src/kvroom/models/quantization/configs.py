"""What a config's ``quantization_config`` says, in the words of each quantiser.

Sources: the published configs themselves, and how vLLM and transformers read them
(``model_executor/layers/quantization``, ``transformers/quantizers``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from kvroom.errors import KvroomError
from kvroom.models.config import Config
from kvroom.models.dtypes import BF16, PER_ROW, Dtype
from kvroom.models.quantization import base as w
from kvroom.models.quantization import methods as m
from kvroom.models.quantization.base import Quantisation, fp8_block, grouped
from kvroom.models.quantization.listed import (
    SKIPS,
    Listed,
    bits_of,
    group_of,
    layer_count,
    listed,
    skips,
)
from kvroom.models.quantization.match import Names
from kvroom.models.quantization.rules import OnlyExperts


def from_config(config: Mapping[str, Any]) -> Quantisation | None:
    """What the config's ``quantization_config`` says; None for a checkpoint at its own width.

    Also where it is nested (``text_config``) or called ``compression_config``. An unknown method is
    taken at the bits that it states, else as 16-bit, with a warning. Raises KvroomError naming the
    key for what cannot be read.
    """
    stated = w.rule_in(config)
    return None if stated is None else _read(*stated)


def _read(path: str, raw: Any, owner: Mapping[str, Any]) -> Quantisation | None:
    """The rule ``raw`` that stands at ``path`` of the level ``owner``; None where it says nothing."""
    if not isinstance(raw, Mapping):
        raise KvroomError(path, raw, "is not an object", "Write it in braces, or take it away.")
    config, top = Config(raw, path=f"{path}."), Config(owner)
    method = config.text("quant_method", default="")
    read = _METHODS.get(m.spelled(method)) if method else _guess(config)
    if read is None and not method:
        return None
    made = read(config, top) if read else m.unknown(config, method)
    return replace(made, kv_dtype=_cache_dtype(config))


def _fp8(config: Config, top: Config) -> Quantisation:
    """FP8 as DeepSeek, Qwen and Mistral publish it; with FP4 experts, DeepSeek V4."""
    block = config.get("weight_block_size")
    four_bit = top.text("expert_dtype", default="") == "fp4"
    linear = w.FP8_TENSOR
    if block is not None:
        rows, columns = config.integers("weight_block_size", length=2, low=1)
        linear = fp8_block(rows, columns, scale_bytes=1 if four_bit else 4)
    groups = _quantised_layers(config)
    # With a table of layers, `ignore` tells what the table's quantiser left to FP8.
    skip = skips(config, *(SKIPS[:2] if groups else SKIPS))
    experts = w.MXFP4 if four_bit else None
    rule = Listed(linear, skip, groups, experts, layers=layer_count(top))
    return listed("fp8_block" if block is not None else "fp8", linear, rule)


def _gptq(config: Config, top: Config) -> Quantisation:
    """GPTQ (also AutoRound): packed integers, zero points stored even where symmetric."""
    bits, group = bits_of(config, "bits"), group_of(config, "group_size")
    linear = grouped(bits, group, zeros=True, kind="gptq_int")
    groups: list[tuple[Names, Dtype | None]] = []
    for key in ("dynamic", "extra_config"):
        for pattern, said in config.sub(key).raw.items():
            one = config.sub(key).sub(pattern)
            field = f"{config.path}{key}"
            plain = key == "extra_config"
            entry = pattern if plain else "re:" + pattern.removeprefix("-:").removeprefix("+:")
            own = bits_of(one, "bits", default=bits)
            width = grouped(own, group_of(one, "group_size", default=group), zeros=True)
            off = pattern.startswith("-:") or own >= 16 or (not plain and said is False)
            groups.append((Names(field, [entry]), None if off else width))
    only = config.get("modules_in_block_to_quantize")
    default: Dtype | None = linear
    if only is not None:
        flat: list[object] = []
        for entry in config.items("modules_in_block_to_quantize"):
            flat += entry if isinstance(entry, list) else [entry]
        groups.append((Names(config.field("modules_in_block_to_quantize"), flat), linear))
        default = None
    head = config.flag("lm_head", default=False)
    rule = Listed(default, skips(config), tuple(groups), head=head, layers=layer_count(top))
    return listed(f"gptq_int{bits}", linear, rule)


def _awq(config: Config, top: Config) -> Quantisation:
    """AWQ: 4-bit integers with a scale and a zero point for each group."""
    bits, group = bits_of(config, "bits", "w_bit"), group_of(config, "group_size", "q_group_size")
    linear = grouped(bits, group, zeros=config.flag("zero_point", default=True), kind="awq_int")
    return listed(f"awq_int{bits}", linear, Listed(linear, skips(config), layers=layer_count(top)))


def _mxfp4(config: Config, top: Config) -> Quantisation:
    """gpt-oss: routed experts alone."""
    return Quantisation(name="mxfp4", linear=w.MXFP4, rule=OnlyExperts(w.MXFP4))


def _compressed_tensors(config: Config, top: Config) -> Quantisation:
    """compressed-tensors (llm-compressor): groups of targets, each with its weight scheme."""
    groups: list[tuple[Names, Dtype | None]] = []
    default: Dtype | None = None
    widths: list[Dtype] = []
    for key in config.sub("config_groups").raw:
        group = config.sub("config_groups").sub(key)
        form = group.text("format", default=config.text("format", default=""))
        width = _scheme(group.sub("weights"), form) if group.has("weights") else None
        if width:
            widths.append(width)
        targets = group.items("targets", default=["Linear"])
        named = [
            target
            for target in targets
            if isinstance(target, str) and ("." in target or target.startswith("re:"))
        ]
        classes = [target for target in targets if target not in named]
        if named:
            groups.append((Names(group.field("targets"), named), width))
        if any(isinstance(cls, str) and ("Linear" in cls or "MoE" in cls) for cls in classes):
            default = default or width
        elif classes:
            groups.append((Names(group.field("targets"), classes), width))
    if not widths:
        return Quantisation(name="bf16", linear=BF16)
    skip = skips(config)
    if skip:
        groups.insert(0, (skip, None))
    rule = Listed(default, skip, tuple(groups), head=True, layers=layer_count(top))
    return listed(max(widths, key=lambda d: -d.bits).name, widths[0], rule)


def _scheme(config: Config, form: str) -> Dtype:
    """The width that compressed-tensors' ``weights`` object describes."""
    bits = bits_of(config, "num_bits", default=8)
    kind, strategy = config.text("type", default="int"), config.text("strategy", default="")
    group = config.get("group_size")
    size = group_of(config, "group_size") if group is not None else 0
    if kind == "float" and bits == 4:
        return w.MXFP4 if form.startswith("mxfp4") or size == 32 else w.NVFP4
    if kind == "float" and form.startswith("mxfp8"):
        return w.MXFP8
    if strategy == "block" or config.has("block_structure"):
        rows, columns = config.integers("block_structure", default=[128, 128], length=2, low=1)
        return Dtype(f"{'fp' if kind == 'float' else 'int'}{bits}", bits, columns, 4, rows)
    if kind == "float":
        channel = strategy in ("channel", "group")
        return replace(w.FP8_CHANNEL if channel else w.FP8_TENSOR, name=f"fp{bits}", bits=bits)
    if strategy == "tensor":
        return Dtype(f"int{bits}", bits, PER_ROW, 4, PER_ROW)
    return grouped(bits, size, zeros=not config.flag("symmetric", default=True))


_ALGOS: dict[str, Dtype] = {
    "FP8": w.FP8_TENSOR,
    "FP8_PER_CHANNEL_PER_TOKEN": w.FP8_CHANNEL,
    "FP8_PB_WO": fp8_block(),
    "FP8_PB_REAL": fp8_block(),
    "FP8_BLOCK_SCALES": fp8_block(),
    "NVFP4": w.NVFP4,
    "NVFP4_AWQ": w.NVFP4,
    "NVFP4_AWQ_LITE": w.NVFP4,
    "NVFP4_SVDQUANT": w.NVFP4,
    "W4A16_NVFP4": w.NVFP4,
    "W4A8_NVFP4_FP8": w.NVFP4,
    "MXFP4": w.MXFP4,
    "W4A8_MXFP4_FP8": w.MXFP4,
    "W4A16_MXFP4": w.MXFP4,
    "MXFP8": w.MXFP8,
    "INT8_SQ": w.INT8_CHANNEL,
    "W8A8_SQ_PER_CHANNEL": w.INT8_CHANNEL,
    "W8A8_SQ_PER_CHANNEL_PER_TOKEN_PLUGIN": w.INT8_CHANNEL,
    "W8A16": w.INT8_CHANNEL,
    "W4A16_AWQ": grouped(4, 128, zeros=False),
    "W4A8_AWQ": grouped(4, 128, zeros=False),
    "W4A16": grouped(4, 128, zeros=False),
}


def _algo(config: Config, *names: str) -> Dtype | None:
    word = config.text(*names, default="").upper()
    if word in ("", "NONE", "MIXED_PRECISION"):
        return None
    scheme = _ALGOS.get(word)
    if scheme is None:
        fix = f"kvroom knows {', '.join(_ALGOS)}."
        raise KvroomError(config.field(*names), word, "is no known algorithm of modelopt", fix)
    if scheme.name == "int4" and config.has("group_size"):
        return grouped(4, group_of(config, "group_size"), zeros=False)
    return scheme


def _quantised_layers(config: Config) -> tuple[tuple[Names, Dtype | None], ...]:
    """modelopt's table of layers of mixed precision, gathered by width."""
    table = config.sub("quantized_layers")
    by_width: dict[Dtype | None, list[str]] = {}
    for name in table.raw:
        by_width.setdefault(_algo(table.sub(name), "quant_algo"), []).append(name)
    field = config.field("quantized_layers")
    return tuple((Names(field, names), width) for width, names in by_width.items())


def _modelopt(config: Config, top: Config) -> Quantisation:
    """NVIDIA's modelopt: one algorithm and what is left out, or a table of layers."""
    inner = config.sub("quantization") if config.has("quantization") else config
    groups = _quantised_layers(inner)
    default = None if groups else _algo(inner, "quant_algo", "moe_quant_algo")
    widths = [d for d in (default, *(d for _, d in groups)) if d]
    if not widths:
        return Quantisation(name="bf16", linear=BF16)
    skip = skips(inner)
    narrow = min(widths, key=lambda d: d.bits)
    rule = Listed(default, skip, groups, head=bool(skip), layers=layer_count(top))
    return listed(narrow.name, narrow, rule)


def _fbgemm(config: Config, top: Config) -> Quantisation:
    """Meta's FP8: a scale for each output channel."""
    rule = Listed(w.FP8_CHANNEL, skips(config), layers=layer_count(top))
    return listed("fp8", w.FP8_CHANNEL, rule)


_Reader = Callable[["Config", "Config"], Quantisation]
_METHODS: dict[str, _Reader] = {
    "fp8": _fp8,
    "deepseek-fp8": _fp8,
    "gptq": _gptq,
    "gptq-marlin": _gptq,
    "auto-round": _gptq,
    "awq": _awq,
    "awq-marlin": _awq,
    "mxfp4": _mxfp4,
    "gpt-oss-mxfp4": _mxfp4,
    "bitsandbytes": m.bitsandbytes,
    "exl2": m.exllama,
    "exl3": m.exllama,
    "compressed-tensors": _compressed_tensors,
    "compressed-tensors-sparse": _compressed_tensors,
    "modelopt": _modelopt,
    "modelopt-fp4": _modelopt,
    "modelopt-mixed": _modelopt,
    "modelopt-mxfp8": _modelopt,
    "nvfp4": _modelopt,
    "fbgemm-fp8": _fbgemm,
    "quark": m.quark,
    "torchao": m.torchao,
    "mlx": m.mlx,
    "hqq": m.hqq,
    "quanto": m.quanto,
    "eetq": m.quanto,
    "aqlm": m.aqlm,
    "bitnet": m.bitnet,
    "fp-quant": m.fp_quant,
    "finegrained-fp8": _fp8,
}


def _guess(config: Config) -> _Reader | None:
    """The reader of a config that does not name its method."""
    if config.has("quant_algo", "quantization"):
        return _modelopt
    if config.has("config_groups"):
        return _compressed_tensors
    if config.has("load_in_4bit", "load_in_8bit", "_load_in_4bit", "_load_in_8bit"):
        return m.bitsandbytes
    if config.has("bits") and config.has("group_size"):
        return m.mlx
    if config.has("weight_block_size"):
        return _fp8
    return (lambda q, _: m.unknown(q, "unnamed")) if config.raw else None


def _cache_dtype(config: Config) -> str | None:
    """The cache width that the checkpoint asks for, by kvroom's name."""
    inner = (
        config.sub("quantization") if isinstance(config.get("quantization"), Mapping) else config
    )
    scheme = inner.get("kv_cache_scheme", "kv_cache_quant_algo")
    if scheme is None:
        return None
    if isinstance(scheme, Mapping):
        s = inner.sub("kv_cache_scheme", "kv_cache_quant_algo")
        bits, kind = bits_of(s, "num_bits", default=8), s.text("type", default="float")
        return {("float", 8): "fp8", ("float", 4): "nvfp4", ("int", 8): "int8"}.get((kind, bits))
    name = inner.text("kv_cache_scheme", "kv_cache_quant_algo").upper()
    return {"FP8": "fp8", "NVFP4": "nvfp4", "INT8": "int8", "FP8_E4M3": "fp8"}.get(name)
