"""GGML's tensor types, and llama.cpp's mixes of them.

Sizes: ``ggml_type_size`` and ``ggml_blck_size`` (ggml.c). Mixes: ``llama_tensor_get_type`` and
``use_more_bits`` (llama.cpp, src/llama-quant.cpp): the K mixes as made without an importance matrix,
the IQ4 ones with it, as each is usually published.
"""

from __future__ import annotations

from kvroom.models.dtypes import BF16, FP32, Dtype
from kvroom.models.tensors import Tensor
from kvroom.records import dataclass


def _type(name: str, block: int, size: int, bits: int) -> Dtype:
    return Dtype(name, bits, block, size - block * bits // 8)


# number: (name, elements a block, bytes a block, bits an element before scales)
_TYPES: dict[int, tuple[str, int, int, int]] = {
    2: ("q4_0", 32, 18, 4),
    3: ("q4_1", 32, 20, 4),
    6: ("q5_0", 32, 22, 5),
    7: ("q5_1", 32, 24, 5),
    8: ("q8_0", 32, 34, 8),
    10: ("q2_k", 256, 84, 2),
    11: ("q3_k", 256, 110, 3),
    12: ("q4_k", 256, 144, 4),
    13: ("q5_k", 256, 176, 5),
    14: ("q6_k", 256, 210, 6),
    15: ("q8_k", 256, 292, 8),
    16: ("iq2_xxs", 256, 66, 2),
    17: ("iq2_xs", 256, 74, 2),
    18: ("iq3_xxs", 256, 98, 3),
    19: ("iq1_s", 256, 50, 1),
    20: ("iq4_nl", 32, 18, 4),
    21: ("iq3_s", 256, 110, 3),
    22: ("iq2_s", 256, 82, 2),
    23: ("iq4_xs", 256, 136, 4),
    29: ("iq1_m", 256, 56, 1),
    34: ("tq1_0", 256, 54, 1),
    35: ("tq2_0", 256, 66, 2),
    39: ("mxfp4", 32, 17, 4),
    40: ("nvfp4", 64, 36, 4),
}
TYPES: dict[int, Dtype] = {
    0: FP32,
    1: Dtype("fp16", 16),
    24: Dtype("int8", 8),
    25: Dtype("int16", 16),
    26: Dtype("int32", 32),
    27: Dtype("int64", 64),
    28: Dtype("fp64", 64),
    30: BF16,
    **{number: _type(*spec) for number, spec in _TYPES.items()},
}
"""``ggml_type`` numbers → widths; a row is whole blocks."""
BLOCK: dict[int, tuple[int, int]] = {
    **{number: (1, value.bits // 8) for number, value in TYPES.items() if number not in _TYPES},
    **{number: (block, size) for number, (_, block, size, _) in _TYPES.items()},
}
"""``ggml_type`` numbers → (elements, bytes) of one block."""
BY_NAME: dict[str, Dtype] = {kind.name: kind for kind in TYPES.values()}

_NARROW = {"q4_k": "q5_0", "q5_k": "q5_1", "q6_k": "q8_0"}
"""What a superblock type becomes where a row is no multiple of 256 (others: iq4_nl)."""

MIXES: dict[str, str] = {
    "q8_0": "q8_0",
    "q6_k": "q6_k",
    "q5_k_m": "q5_k",
    "q5_k_s": "q5_k",
    "q5_0": "q5_0",
    "q4_k_xl": "q4_k",
    "q4_k_m": "q4_k",
    "q4_k_s": "q4_k",
    "q4_1": "q4_1",
    "q4_0": "q4_0",
    "iq4_xs": "iq4_xs",
    "iq4_nl": "iq4_nl",
    "q3_k_l": "q3_k",
    "q3_k_m": "q3_k",
    "q3_k_s": "q3_k",
    "q2_k": "q2_k",
}
"""A file type's name → the type that most of its tensors take."""

_IQ4 = ("iq4_xs", "iq4_nl")
_EIGHT_EXPERTS = ("q2_k", "q3_k_s", "q3_k_m", "q4_k_s", "q4_k_m", "iq4_xs", "iq4_nl")
"""Mixes that widen the attention output of a model with eight experts (Mixtral)."""


def role_of(tensor: Tensor) -> str:
    """The tensor's role as llama.cpp's tensor names tell it (``attn_v``, ``ffn_down``, ``output``)."""
    name = tensor.name
    if tensor.part == "embedding":
        return "position_embd" if "pos" in name.lower() or "wpe" in name else "token_embd"
    if tensor.part == "head":
        return "output"
    if tensor.part in ("mlp", "expert", "shared_expert"):
        return "ffn_" + _feed_forward(name.rpartition(".")[2], name)
    if tensor.part == "attention":
        return "attn_" + _attention(name.rpartition(".")[2])
    return tensor.part


def _feed_forward(last: str, name: str) -> str:
    if "gate_up" in last or last in ("w13", "gate_up_proj"):
        return "up"
    if last in ("w2", "fc2", "linear_2", "wo", "c_proj", "fc_out", "ff_out"):
        return "down"
    if (
        "down" in last
        or last.endswith(("4h_to_h", "output_linear"))
        or name.endswith("output.dense")
    ):
        return "down"
    return "gate" if "gate" in last or last in ("w1", "wi_0") else "up"


def _attention(last: str) -> str:
    if any(w in last for w in ("qkv", "query_key_value", "c_attn", "pack", "Wqkv")):
        return "qkv"
    if last in ("v_proj", "v", "value", "wv", "v_lin"):
        return "v"
    if last in ("k_proj", "k", "key", "wk", "k_lin"):
        return "k"
    if last in ("o_proj", "out_proj", "dense", "c_proj", "wo", "out", "o", "out_lin"):
        return "output"
    return "q" if last in ("q_proj", "q", "query", "wq", "q_lin") else last


def use_more_bits(i: int, n: int) -> bool:
    """llama.cpp's choice of the layers that a medium mix stores wider."""
    return i < n // 8 or i >= 7 * n // 8 or (i - n // 8) % 3 == 2


@dataclass(frozen=True)
class Mix:
    """llama.cpp's type for each tensor of a model of ``layers`` layers.

    ``gqa`` is query heads to a KV head, ``experts`` routed experts a layer (0: dense), ``tied``
    whether the token table is the head as well, ``native`` what experts were trained in and stay in
    (gpt-oss).
    """

    mix: str
    layers: int = 32
    gqa: int = 1
    experts: int = 0
    tied: bool = False
    falcon: bool = False
    seventy_b: bool = False
    native: Dtype | None = None

    def __call__(self, tensor: Tensor, layer: int | None) -> Dtype:
        """The type of one tensor; vectors, routers, convolutions and positions are FP32."""
        role = role_of(tensor)
        fixed = tensor.part in ("norm", "router", "encoder") or role == "position_embd"
        if not tensor.is_matrix or (tensor.part == "state" and "conv" in tensor.name):
            return FP32
        if fixed:
            return FP32 if tensor.part != "encoder" else BY_NAME["fp16"]
        if self.native and tensor.part == "expert":
            return self.native
        return _that_fits(self._wanted(role, tensor, layer or 0), tensor.columns)

    def _wanted(self, role: str, tensor: Tensor, i: int) -> str:
        main, layers, mix = MIXES[self.mix], self.layers, self.mix
        if role == "output" or (role == "token_embd" and self.tied):
            return main if main == "q8_0" else "q8_0" if self.falcon else "q6_k"
        if role == "token_embd":
            return main
        more = use_more_bits(i, layers)
        if mix == "q4_k_xl":
            return _unsloth(role, tensor, i, layers)
        kind = main
        if role == "attn_v":
            kind = self._values(main, i, more)
        elif role == "attn_k" and self.experts == 8:
            kind = "q8_0"
        elif role == "ffn_down":
            kind = self._down(main, i, more)
        elif role == "attn_output" and not self.falcon:
            if self.experts == 8 and mix in _EIGHT_EXPERTS:
                kind = "q5_k"
            else:
                kind = {"q2_k": "q3_k", "q3_k_m": "q4_k", "q3_k_l": "q5_k"}.get(mix, main)
        elif role == "attn_qkv":
            wider = {"q3_k_m": "q4_k", "q3_k_l": "q4_k", "q4_k_m": "q5_k", "q5_k_m": "q6_k"}
            kind = wider.get(mix, main)
        return kind

    def _values(self, main: str, i: int, more: bool) -> str:
        mix, kind = self.mix, main
        if self.experts == 8 and main != "q8_0":
            return "q8_0"
        if mix == "q2_k":
            kind = "q4_k" if self.gqa >= 4 else "q3_k"
        elif mix == "q3_k_m":
            kind = "q5_k" if i < 2 else "q4_k"
        elif mix == "q3_k_l" or (mix == "q4_k_s" and i < 4) or (main in _IQ4 and self.gqa >= 4):
            kind = "q5_k"
        elif mix in ("q4_k_m", "q5_k_m") and more:
            kind = "q6_k"
        return "q5_k" if self.seventy_b and kind in ("q3_k", "q4_k") else kind

    def _down(self, main: str, i: int, more: bool) -> str:
        mix, layers = self.mix, self.layers
        if mix == "q2_k":
            return "q3_k"
        if mix == "q3_k_m":
            return "q5_k" if i < layers // 16 else "q3_k" if self.falcon and not more else "q4_k"
        if mix == "q3_k_l":
            return "q4_k" if self.falcon else "q5_k"
        if mix == "q4_k_m" and self.falcon:
            return "q6_k" if i < layers // 16 else "q5_k" if more else "q4_k"
        if mix in ("q4_k_m", "q5_k_m") and more:
            return "q6_k"
        return "q5_k" if mix == "q4_k_s" and i < layers // 8 else main


def _unsloth(role: str, tensor: Tensor, i: int, n: int) -> str:
    """Unsloth's dynamic Q4_K_XL, as its published files are on average (each has its own table)."""
    if tensor.part == "expert":
        return "q5_k" if role == "ffn_down" and (i < n // 8 or i >= n - n // 8) else "q4_k"
    if role == "attn_v" or tensor.part in ("shared_expert", "state"):
        return "q6_k"
    if role in ("attn_k", "attn_output", "attn_qkv"):
        return "q5_k"
    return "q6_k" if role == "ffn_down" and use_more_bits(i, n) else "q4_k"


def _that_fits(name: str, columns: int) -> Dtype:
    if columns % 256 and name.endswith(("_k", "_xs")):
        name = _NARROW.get(name, "iq4_nl")
    return BY_NAME[name] if columns % 32 == 0 else BY_NAME["fp16"]
