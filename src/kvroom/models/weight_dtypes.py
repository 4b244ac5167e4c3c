"""The usual checkpoint of each ``weight_dtype``."""

from __future__ import annotations

from kvroom.errors import KvroomError, did_you_mean
from kvroom.models.dtypes import BF16, Dtype
from kvroom.models.quantization.base import (
    FP8_CHANNEL,
    FP16,
    INT8_CHANNEL,
    MXFP4,
    MXFP8,
    NF4_DOUBLE,
    NVFP4,
    PLAIN,
    Quantisation,
    fp8_block,
    grouped,
    is_linear,
)
from kvroom.models.quantization.ggml import BY_NAME, MIXES, Mix
from kvroom.models.quantization.methods import Everything
from kvroom.models.quantization.rules import OnlyExperts, exl
from kvroom.models.spec import ModelSpec
from kvroom.models.tensors import Tensor
from kvroom.records import dataclass

EXL2 = ("exl2_2.5", "exl2_3.0", "exl2_4.0", "exl2_5.0")
_LINEAR: dict[str, Dtype] = {
    "fp8": FP8_CHANNEL,
    "fp8_block": fp8_block(),
    "int8": INT8_CHANNEL,
    "int4": grouped(4, 128, zeros=False),
    "gptq_int4_g128": grouped(4, 128, zeros=True),
    "awq_int4_g128": grouped(4, 128, zeros=True),
    "mxfp8": MXFP8,
    "nf4": NF4_DOUBLE,
}
MLX = {f"mlx_int{bits}": Dtype(f"mlx_int{bits}", bits, 64, 4) for bits in (3, 4, 5, 6, 8)}
"""MLX's own: groups of 64 with a scale and a bias of 16 bits, embedding and head too."""
WEIGHT_DTYPES: tuple[str, ...] = (
    *PLAIN,
    *_LINEAR,
    "int4_g32",
    "mxfp4",
    "nvfp4",
    *MIXES,
    *EXL2,
    *MLX,
)
"""Every name that ``weight_dtype`` takes."""
ALIASES = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "f16": "fp16",
    "float32": "fp32",
    "f32": "fp32",
    "fp8_e4m3": "fp8",
    "fp8_dynamic": "fp8",
    "gptq": "gptq_int4_g128",
    "awq": "awq_int4_g128",
    "w4a16": "int4",
    "w8a8": "int8",
    "bitsandbytes": "nf4",
    "bnb_nf4": "nf4",
    "fp4": "nvfp4",
    "ud-q4_k_xl": "q4_k_xl",
    **{name.removesuffix(".0"): name for name in EXL2},
    **{name.replace("int", "") + "bit": name for name in MLX},
}


def named(weight_dtype: str, spec: ModelSpec | None = None) -> Quantisation:
    """The usual checkpoint of that ``weight_dtype``; KvroomError if there is none of that name.

    Mixes depend on the model: give its ``spec`` (else 32 dense layers without shared KV heads are
    taken).
    """
    low = weight_dtype.lower().strip()
    low = ALIASES.get(low, low)
    if low in PLAIN:
        return Quantisation(name=low, linear=PLAIN[low], base=PLAIN[low])
    if low in _LINEAR:
        return Quantisation(name=low, linear=_LINEAR[low])
    if low == "mxfp4":
        return _mxfp4(spec)
    if low == "int4_g32":
        return _int4_g32(spec)
    if low == "nvfp4":
        return _nvfp4(spec)
    if low in MIXES:
        return _mix(low, spec)
    if low in MLX:
        return Quantisation(name=low, linear=MLX[low], rule=Everything(MLX[low]))
    if low in EXL2:
        return exl(float(low.removeprefix("exl2_")), head_bits=6, name=low)
    otherwise = f"One of: {', '.join(WEIGHT_DTYPES)}."
    fix = did_you_mean(weight_dtype, (*WEIGHT_DTYPES, *ALIASES), otherwise)
    raise KvroomError("weight_dtype", weight_dtype, "is no weight dtype", fix)


def _mxfp4(spec: ModelSpec | None) -> Quantisation:
    """gpt-oss and its likes narrow routed experts only; a model without experts, its matrices."""
    if spec is None or _experts(spec):
        return Quantisation(name="mxfp4", linear=MXFP4, rule=OnlyExperts(MXFP4))
    return Quantisation(name="mxfp4", linear=MXFP4)


def _int4_g32(spec: ModelSpec | None) -> Quantisation:
    """Kimi K2 Thinking narrows routed experts; dense ones are gpt-fast's: the head too, and zeros."""
    if spec is None or _experts(spec):
        linear = grouped(4, 32, zeros=False)
        return Quantisation(name="int4_g32", linear=linear, rule=OnlyExperts(linear))
    linear = Dtype("int4", 4, 32, 4)
    return Quantisation(name="int4_g32", linear=linear, rule=Kept(linear, head=True))


def _nvfp4(spec: ModelSpec | None) -> Quantisation:
    """NVIDIA's narrow every linear layer, but leave latent attention as it was."""
    latent = spec is not None and any(
        "kv_a_proj" in tensor.name for layer in spec.layers for tensor in layer.layer.tensors
    )
    rule = Kept(NVFP4, attention=not latent)
    return Quantisation(name="nvfp4", linear=NVFP4, rule=rule)


@dataclass(frozen=True)
class Kept:
    """Linear matrices in ``linear``, with or without attention, and the head as well or not."""

    linear: Dtype
    attention: bool = True
    head: bool = False

    def __call__(self, tensor: Tensor, layer: int | None) -> Dtype:
        """The width of one tensor."""
        if tensor.part == "head" and tensor.is_matrix:
            return self.linear if self.head else BF16
        if tensor.part == "attention" and not self.attention:
            return BF16
        return self.linear if is_linear(tensor) else BF16


def _mix(mix: str, spec: ModelSpec | None) -> Quantisation:
    rule = Mix(mix)
    if spec is not None:
        kv_heads = spec.kv_heads or 1
        seventy_b = spec.model_type == "llama" and spec.num_layers == 80
        rule = Mix(
            mix,
            layers=spec.num_layers,
            gqa=spec.q_heads // kv_heads,
            experts=_experts(spec),
            tied=spec.tied,
            native=MXFP4 if spec.model_type == "gpt_oss" else None,
            falcon=spec.model_type == "falcon",
            seventy_b=seventy_b and spec.q_heads != kv_heads,
        )
    linear = BY_NAME[MIXES[mix]]
    varies = mix not in ("q8_0", "q6_k", "q5_0", "q4_1", "q4_0")
    # gpt-oss as published in GGUF (file type MXFP4_MOE): experts as they were trained, the rest in Q8_0
    name = "mxfp4" if rule.native and mix == "q8_0" else mix
    return Quantisation(name=name, linear=linear, base=FP16, rule=rule, varies_by_layer=varies)


def _experts(spec: ModelSpec) -> int:
    """Routed experts of a layer, 0 where there are none."""
    each = (
        tensor.count
        for layer in spec.layers
        for tensor in layer.layer.tensors
        if tensor.part == "expert"
    )
    return max(each, default=0)
