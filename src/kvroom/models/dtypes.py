"""Element widths: how many bytes a row of numbers takes, scales included.

A width is never "half a byte": it is bits an element, and so many scale bytes for each group of
elements. Sources: the GGUF type table (ggml), the OCP MX specification (mxfp4, mxfp8: one scale byte
for 32), NVIDIA's NVFP4 (one FP8 scale for 16), GPTQ/AWQ (an FP16 scale and a packed 4-bit zero point
for each group), exllamav2 (average bits a weight).
"""

from __future__ import annotations

from kvroom.errors import KvroomError, did_you_mean
from kvroom.records import dataclass
from kvroom.units import ceil_div

PER_ROW = 2**40
"""A group as long as any row: one scale for each output channel."""


@dataclass(frozen=True, slots=True)
class Dtype:
    """``bits`` an element; ``scale_bytes`` for every ``group_rows`` × ``group`` elements of a matrix."""

    name: str
    bits: int
    group: int = 1
    scale_bytes: int = 0
    group_rows: int = 1

    @property
    def factor(self) -> str:
        """Bytes an element as it is put into a formula: ``2``, ``1/2``, ``34/32``."""
        if self.scale_bytes:
            return f"{self.group * self.bits // 8 + self.scale_bytes}/{self.group}"
        return f"{self.bits // 8}" if self.bits % 8 == 0 else f"{self.bits}/8"

    def fills(self, *columns: int) -> bool:
        """Whether rows of so many ``columns`` fill whole groups and bytes, so that ``factor`` is exact."""
        return all(column % self.group == 0 and column * self.bits % 8 == 0 for column in columns)

    def bytes_for(self, columns: int, rows: int = 1) -> int:
        """Bytes of a ``rows`` × ``columns`` matrix stored row by row, partial groups rounded up."""
        data = ceil_div(rows * columns * self.bits, 8)
        if not self.scale_bytes:
            return data
        groups = ceil_div(columns, self.group) * ceil_div(rows, self.group_rows)
        return data + groups * self.scale_bytes


BF16 = Dtype("bf16", 16)
FP32 = Dtype("fp32", 32)
FP8_INDEX = Dtype("fp8+scale", 8, 128, 4)
"""Sparse-indexer keys in engines: FP8 with an FP32 scale for 128 (132 B for 128 elements)."""

CACHE_DTYPES: dict[str, Dtype] = {
    d.name: d
    for d in (
        BF16,
        Dtype("fp16", 16),
        FP32,
        Dtype("fp8", 8),
        Dtype("int8", 8),
        Dtype("mxfp8", 8, 32, 1),
        Dtype("nvfp4", 4, 16, 1),
        Dtype("int4", 4),
        Dtype("fp8_per_token_head", 8, PER_ROW, 4),
        Dtype("int8_per_token_head", 8, PER_ROW, 4),
        Dtype("int4_per_token_head", 4, PER_ROW, 4),
        Dtype("q8_0", 8, 32, 2),
        Dtype("q5_1", 5, 32, 4),
        Dtype("q5_0", 5, 32, 2),
        Dtype("q4_1", 4, 32, 4),
        Dtype("q4_0", 4, 32, 2),
        Dtype("iq4_nl", 4, 32, 2),
    )
}
"""What keys, values and latents can be stored in (``kv_dtype``)."""

CACHE_ALIASES = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "f16": "fp16",
    "f32": "fp32",
    "float32": "fp32",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
    "fp8_inc": "fp8",
    "fp8_ds_mla": "fp8",
    "nvfp4_4over6": "nvfp4",
    "fp4": "nvfp4",
    "fp4_e2m1": "nvfp4",
}


def cache_dtype(name: str, field: str = "kv_dtype") -> Dtype:
    """The cache width called ``name`` (any case, engines' aliases too); KvroomError if unknown.

    ``q8_0/q4_0`` means keys in one and values in the other.
    """
    low = name.lower()
    if low.count("/") == 1:
        key, value = (cache_dtype(part.strip(), field) for part in low.split("/"))
        return _mean(key, value)
    dtype = CACHE_DTYPES.get(CACHE_ALIASES.get(low, low))
    if low.endswith("_ds_mla") and dtype is None:
        fix = "Take fp8_ds_mla, or a plain width (nvfp4) and engine_args.kv_cache_memory_bytes."
        raise KvroomError(field, name, "is a layout of latents that kvroom has no bytes for", fix)
    if dtype is None:
        names = ["auto", *CACHE_DTYPES]
        fix = did_you_mean(name, names, f"One of: {', '.join(names)}.")
        raise KvroomError(field, name, "is no cache dtype", fix)
    return dtype


def _mean(dtype: Dtype, one_dtype: Dtype) -> Dtype:
    """The width of keys in ``dtype`` and as many values in ``one_dtype``, over 32 elements at a time."""
    group = (dtype.bytes_for(32) + one_dtype.bytes_for(32)) // 2
    return Dtype(f"{dtype.name}/{one_dtype.name}", group // 4, 32, group % 4)
