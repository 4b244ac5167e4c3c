"""Checkpoints in the formats of single tools: bitsandbytes, exllama, MLX, HQQ, Quark, torchao and others.

Sources: the published configs themselves, and the tools' own readers of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from kvroom.models.config import Config
from kvroom.models.dtypes import BF16, PER_ROW, Dtype
from kvroom.models.quantization import base as w
from kvroom.models.quantization.base import Quantisation, grouped
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
from kvroom.models.quantization.rules import exl
from kvroom.models.tensors import Tensor
from kvroom.records import dataclass


def spelled(method: str) -> str:
    """A method's name in one spelling."""
    return method.lower().replace("_", "-").removeprefix("intel/")


@dataclass(frozen=True)
class Everything:
    """Every matrix in ``linear``, but for modules of their own width (None: left alone)."""

    linear: Dtype
    groups: tuple[tuple[Names, Dtype | None], ...] = ()
    layers: int | None = None

    def __call__(self, tensor: Tensor, layer: int | None) -> Dtype:
        """The width of one tensor."""
        if not tensor.is_matrix or tensor.part in ("norm", "encoder") or "conv" in tensor.name:
            return BF16
        for names, width in self.groups:
            if names.speak_of(tensor, layer, self.layers):
                return width or BF16
        return BF16 if tensor.part == "router" else self.linear


def bitsandbytes(config: Config, top: Config) -> Quantisation:
    """bitsandbytes: NF4 or FP4 with a scale for 64, or 8-bit by row."""
    eight = config.flag("load_in_8bit", "_load_in_8bit")
    double = config.flag("bnb_4bit_use_double_quant")
    linear = w.INT8_CHANNEL if eight else w.NF4_DOUBLE if double else w.NF4
    skip = skips(config, "llm_int8_skip_modules", *SKIPS)
    return listed("int8" if eight else "nf4", linear, Listed(linear, skip, layers=layer_count(top)))


def fp_quant(config: Config, top: Config) -> Quantisation:
    """FP-Quant: all linear layers in MXFP4, or NVFP4 where it says so."""
    linear = w.NVFP4 if "nv" in config.text("forward_dtype", default="mxfp4") else w.MXFP4
    skip = skips(config, "modules_to_not_convert", *SKIPS)
    return listed(linear.name, linear, Listed(linear, skip, layers=layer_count(top)))


def exllama(config: Config, top: Config) -> Quantisation:
    """exllamav2 and 3: an average width, another for the head."""
    kind = spelled(config.text("quant_method", default="exl2"))
    bits = config.number("bits", default=4.0, low=1.0, high=16.0)
    head = config.number("head_bits", "lm_head_bits", default=6.0, low=1.0, high=16.0)
    return exl(bits, head_bits=head, name=f"{kind}_{bits:g}")


def quark(config: Config, top: Config) -> Quantisation:
    """AMD's Quark: a global scheme, others by layer, and what is left out."""

    def width(level: Config) -> Dtype | None:
        weight = level.get("weight")
        if isinstance(weight, list) and weight:
            level = type(level)({"weight": weight[-1]}, path=level.path)
        s = level.sub("weight")
        kind, scheme = s.text("dtype", default=""), s.text("qscheme", default="per_tensor")
        if kind.startswith("fp4"):
            return w.MXFP4
        if kind.startswith(("int", "uint")):
            bits = int(kind.removeprefix("u").removeprefix("int") or 8)
            size = group_of(s, "group_size") if scheme == "per_group" else 0
            return grouped(min(bits, 32), size, zeros=kind.startswith("u"))
        if kind.startswith("fp8"):
            return w.FP8_CHANNEL if scheme == "per_channel" else w.FP8_TENSOR
        return None

    default = width(config.sub("global_quant_config"))
    table = config.sub("layer_quant_config")
    groups = tuple((Names(table.path, [n]), width(table.sub(n))) for n in table.raw)
    widths = [d for d in (default, *(d for _, d in groups)) if d]
    if not widths:
        return Quantisation(name="bf16", linear=BF16)
    return listed(
        widths[0].name, widths[0], Listed(default, skips(config), groups, layers=layer_count(top))
    )


def torchao(config: Config, top: Config) -> Quantisation:
    """torchao: the scheme's name says the width."""
    said = str(config.get("quant_type", default=""))[:500].lower()
    linear: Dtype | None = None
    for word, width in (
        ("int4", grouped(4, 128, zeros=True)),
        ("mxfp4", w.MXFP4),
        ("nvfp4", w.NVFP4),
        ("float8", w.FP8_CHANNEL),
        ("int8", w.INT8_CHANNEL),
    ):
        linear = linear or (width if word in said else None)
    if linear is None:
        return unknown(config, "torchao")
    return listed(linear.name, linear, Listed(linear, skips(config), layers=layer_count(top)))


def mlx(config: Config, top: Config) -> Quantisation:
    """MLX: groups with a scale and a bias, embedding and head too; modules may have widths of their own."""

    def width(level: Config) -> Dtype:
        bits = bits_of(level, "bits", default=bits_of(config, "bits"))
        group = group_of(level, "group_size", default=group_of(config, "group_size", default=64))
        mode = level.text("mode", default=config.text("mode", default="affine"))
        dtypes = {"mxfp4": w.MXFP4, "nvfp4": w.NVFP4, "mxfp8": w.MXFP8}
        return dtypes.get(mode) or Dtype(f"mlx_int{bits}", bits, group, 4)

    by_width: dict[Dtype | None, list[str]] = {}
    for name, said in config.raw.items():
        if isinstance(said, Mapping) and "." in name:
            by_width.setdefault(width(config.sub(name)), []).append(name)
        elif said is False and "." in name:
            by_width.setdefault(None, []).append(name)
    linear = width(config)
    groups = tuple(
        (Names(config.path + names[0], names), dtype) for dtype, names in by_width.items()
    )
    return Quantisation(
        name=linear.name,
        linear=linear,
        rule=Everything(linear, groups, layer_count(top)),
        varies_by_layer=any(names.layered for names, _ in groups),
    )


def hqq(config: Config, top: Config) -> Quantisation:
    """HQQ: a 16-bit scale and zero point a group; ``quant_config`` is one scheme, or one a module."""
    inner = config.sub("quant_config") if config.has("quant_config") else config

    def width(level: Config) -> Dtype:
        at = level.sub("weight_quant_params") if level.has("weight_quant_params") else level
        bits = bits_of(at, "nbits", "bits")
        group = group_of(at, "group_size", default=64)
        return Dtype(f"hqq_int{bits}", bits, group if group > 0 else PER_ROW, 4)

    modules = [
        key
        for key, value in inner.raw.items()
        if isinstance(value, Mapping) and not key.endswith("_params")
    ]
    skip = skips(config, "skip_modules", *SKIPS)
    if not modules:
        linear = width(inner)
        return listed(linear.name, linear, Listed(linear, skip, layers=layer_count(top)))
    groups = tuple(
        (Names(inner.path + module, [module]), width(inner.sub(module))) for module in modules
    )
    linear = groups[0][1]
    return listed(linear.name, linear, Listed(None, skip, groups, layers=layer_count(top)))


def quanto(config: Config, top: Config) -> Quantisation:
    """Quanto and EETQ: the width is a word under ``weights``; a scale for each output channel."""
    word = config.text("weights", default="int8").lower()
    words = {"int8": w.INT8_CHANNEL, "float8": w.FP8_CHANNEL, "qint8": w.INT8_CHANNEL}
    bits = re.fullmatch(r"q?int(\d)", word)
    linear = words.get(word) or (grouped(int(bits[1]), 128, zeros=True) if bits else w.INT8_CHANNEL)
    return listed(linear.name, linear, Listed(linear, skips(config), layers=layer_count(top)))


def aqlm(config: Config, top: Config) -> Quantisation:
    """AQLM: ``num_codebooks`` codes of ``nbits_per_codebook`` for each group of ``in_group_size``."""
    codes = bits_of(config, "nbits_per_codebook", default=16) * config.integer(
        "num_codebooks", default=1
    )
    group = config.integer("in_group_size", default=8) * config.integer("out_group_size", default=1)
    linear = w.average("aqlm", codes / group)
    skip = skips(config, "linear_weights_not_to_quantize", *SKIPS)
    return listed("aqlm", linear, Listed(linear, skip, layers=layer_count(top)))


def bitnet(config: Config, top: Config) -> Quantisation:
    """BitNet: four ternary weights a byte."""
    linear = Dtype("int2", 2, PER_ROW, 2, PER_ROW)
    return listed("int2", linear, Listed(linear, skips(config), layers=layer_count(top)))


def unknown(config: Config, method: str) -> Quantisation:
    """A method that is not known: at the bits that it states, else as 16-bit, with a warning."""
    what = f"quantisation method '{method[:40]}' is not known"
    if not config.has("bits", "w_bit", "nbits", "num_bits"):
        warning = f"{what} and states no bits: weights are counted as 16-bit"
        return Quantisation(name="bf16", linear=BF16, warnings=(warning,))
    bits = config.number("bits", "w_bit", "nbits", "num_bits", default=4, low=0.5, high=32)
    if bits == int(bits):
        linear = grouped(int(bits), group_of(config, "group_size", "q_group_size"), zeros=True)
    else:
        linear = w.average(f"{method[:20]}_{bits:g}", bits)
    warning = f"{what}: its linear layers are counted at {bits:g} bits"
    return listed(linear.name, linear, Listed(linear, skips(config)), warning)
