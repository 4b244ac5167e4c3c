"""GGUF headers: a model's structure and every tensor's own size, without reading the weights.

Format (versions 2 and 3, either byte order): ggml's docs/gguf.md. Only the header is read; everything
in it is bounded by the bytes that are there.
"""

from __future__ import annotations

import math
import re
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from kvroom.errors import KvroomError
from kvroom.models import gguf_tensors, hf
from kvroom.models.dtypes import FP32, Dtype
from kvroom.models.files import read_bytes, stamp
from kvroom.models.gguf_config import config_of, known
from kvroom.models.kinds import Latent
from kvroom.models.quantization.base import Quantisation, average
from kvroom.models.quantization.ggml import BLOCK, TYPES, role_of
from kvroom.models.spec import ModelSpec
from kvroom.models.tensors import Tensor
from kvroom.records import dataclass
from kvroom.units import MAX_BYTES, ceil_div

_FIX = "Give a whole .gguf file (version 2 or 3)."
_FIRST_READ = 16_000_000
_MAX_HEADER = 1_000_000_000
_MAX_NAME = 65_536
_MAX_TENSORS = 1_000_000
_MAX_KEPT = 16_384
"""Arrays longer than this (vocabularies) are counted, not kept."""
_SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_FILE_TYPES = {
    0: "fp32",
    1: "fp16",
    2: "q4_0",
    3: "q4_1",
    7: "q8_0",
    8: "q5_0",
    9: "q5_1",
    10: "q2_k",
    11: "q3_k_s",
    12: "q3_k_m",
    13: "q3_k_l",
    14: "q4_k_s",
    15: "q4_k_m",
    16: "q5_k_s",
    17: "q5_k_m",
    18: "q6_k",
    25: "iq4_nl",
    30: "iq4_xs",
    32: "bf16",
    38: "mxfp4",
}


class Info(NamedTuple):
    """One tensor: its shape (columns first, as GGUF has it), ``ggml_type`` and bytes."""

    shape: tuple[int, ...]
    type: int
    nbytes: int


@dataclass(frozen=True)
class Header:
    """Metadata and tensors of one file; long arrays are their ``Counted`` length."""

    metadata: Mapping[str, Any]
    tensors: Mapping[str, Info]


@dataclass(frozen=True)
class Counted:
    """An array that was too long to keep, or whose items are strings: how many it has."""

    length: int


class _CutOffError(Exception):
    """The header goes on past the bytes that are there."""


class _Cursor:
    def __init__(self, data: bytes, name: str) -> None:
        self.data = data
        self.name = name
        self.at = 0
        self.order = "<"

    def wrong(self, what: str) -> KvroomError:
        return KvroomError("model", self.name, what, _FIX)

    def take(self, count: int) -> int:
        """Step over ``count`` bytes; where they start."""
        start = self.at
        if count > len(self.data) - start:
            raise _CutOffError
        self.at = start + count
        return start

    def scalar(self, code: str) -> Any:
        size = struct.calcsize(code)
        return struct.unpack_from(self.order + code, self.data, self.take(size))[0]

    def text(self, limit: int = _MAX_HEADER) -> str:
        length: int = self.scalar("Q")
        if length > limit:
            raise self.wrong(f"is no GGUF file (a string of {length:,} bytes)")
        start = self.take(length)
        return self.data[start : start + length].decode("utf-8", "replace")

    def skip_texts(self, count: int) -> None:
        data, at, size = self.data, self.at, len(self.data)
        unpack = struct.Struct(self.order + "Q").unpack_from
        for _ in range(count):
            if at + 8 > size:
                raise _CutOffError
            at += 8 + unpack(data, at)[0]
        if at > size:
            raise _CutOffError
        self.at = at

    def value(self, kind: int, depth: int = 0) -> Any:
        if kind in _SCALARS:
            return self.scalar(_SCALARS[kind])
        if kind == 8:
            return self.text()
        if kind != 9:
            raise self.wrong(f"has a metadata value of unknown type {kind}")
        if depth > 2:
            raise self.wrong("has arrays nested too deeply")
        inner, count = self.scalar("I"), self.scalar("Q")
        if inner in _SCALARS:
            code = _SCALARS[inner]
            start = self.take(struct.calcsize(code) * count)
            if count > _MAX_KEPT:
                return Counted(count)
            return list(struct.unpack_from(f"{self.order}{count}{code}", self.data, start))
        if inner == 8:
            if count * 8 > len(self.data) - self.at:
                raise _CutOffError
            self.skip_texts(count)
            return Counted(count)
        if count > 1024:
            raise self.wrong(f"has {count:,} nested arrays")
        return [self.value(inner, depth + 1) for _ in range(count)]


def read_header(source: Path | str | bytes) -> Header:
    """The header of a GGUF file; of ``bytes`` a prefix that holds the header is enough.

    Raises KvroomError on ``model`` for what is cut off, hostile or no GGUF.
    """
    if isinstance(source, bytes):
        return _header(source, "gguf", None)
    path = Path(source)
    size = stamp(path, ".gguf file")[2]
    limit = _FIRST_READ
    while True:
        data = read_bytes(path, limit, ".gguf file")
        try:
            return _parse(_Cursor(data, str(path)), size)
        except _CutOffError:
            if limit >= size or limit >= _MAX_HEADER:
                raise KvroomError(
                    "model", str(path), "is cut off inside its header", _FIX
                ) from None
            limit *= 4


def _header(data: bytes, name: str, size: int | None) -> Header:
    try:
        return _parse(_Cursor(data, name), size)
    except _CutOffError:
        raise KvroomError("model", name, "is cut off inside its header", _FIX) from None


def _parse(c: _Cursor, size: int | None) -> Header:
    start = c.take(4)
    if c.data[start : start + 4] not in (b"GGUF", b"FUGG"):
        raise c.wrong("is no GGUF file")
    version = c.scalar("I")
    if version & 0xFFFF == 0:
        c.order, version = ">", int.from_bytes(c.data[4:8], "big")
    if version not in (2, 3):
        raise c.wrong(f"is GGUF of version {version}, which is not read")
    tensors, pairs = c.scalar("Q"), c.scalar("Q")
    # The least that one takes: a name's length, dimensions, type and offset; a key's length and type.
    if tensors > _MAX_TENSORS or pairs > _MAX_TENSORS:
        raise c.wrong(f"says it has {tensors:,} tensors and {pairs:,} keys")
    metadata: dict[str, Any] = {}
    for _ in range(pairs):
        key = c.text(_MAX_NAME)
        metadata[key] = c.value(c.scalar("I"))
    raw: list[tuple[str, tuple[int, ...], int, int]] = []
    for _ in range(tensors):
        name = c.text(_MAX_NAME)
        dims = c.scalar("I")
        if dims > 8:
            raise c.wrong(f"has a tensor '{name[:80]}' of {dims} dimensions")
        shape = tuple(c.scalar("Q") for _ in range(dims))
        raw.append((name, shape, c.scalar("I"), c.scalar("Q")))
    return Header(metadata, _sized(c, raw, metadata.get("general.alignment"), size))


def _sized(
    c: _Cursor, raw: list[tuple[str, tuple[int, ...], int, int]], align: Any, size: int | None
) -> dict[str, Info]:
    """Bytes of each tensor: by its type, or of a type not known here by where the next one starts."""
    sizes: dict[str, Info] = {}
    align = align if type(align) is int and 0 < align < 2**20 else 32
    begin = ceil_div(c.at, align) * align
    ends = sorted({offset for *_, offset in raw})
    after = dict(pairwise(ends))
    total = 0
    for name, shape, kind, offset in raw:
        elements = math.prod(shape)
        if elements > MAX_BYTES or (kind in BLOCK and shape and shape[0] % BLOCK[kind][0]):
            raise c.wrong(f"has a tensor '{name[:80]}' of impossible shape")
        if kind in BLOCK:
            block, block_bytes = BLOCK[kind]
            nbytes = elements // block * block_bytes
        else:
            end = after.get(offset, None if size is None else size - begin)
            if end is None or end < offset:
                raise c.wrong(f"has a tensor '{name[:80]}' of unknown type {kind}")
            nbytes = end - offset
        total += nbytes
        sizes[name] = Info(shape, kind, nbytes)
    if total > MAX_BYTES:
        raise c.wrong("says that it is absurdly large")
    return sizes


# --- a file as a model -------------------------------------------------------------------------


def read(source: Path | str | bytes) -> ModelSpec:
    """The model in a GGUF file (of several parts: any one of them), with the file's own sizes.

    KvroomError on ``model`` if the file is broken, its architecture unknown, or a key missing.
    """
    warnings: tuple[str, ...] = ()
    if isinstance(source, bytes):
        header, name = read_header(source), "gguf"
    else:
        path = Path(source)
        header, warnings = _all_parts(path)
        name = str(path)
    spec = spec_of(header, name)
    title = header.metadata.get("general.name")
    latent = header.metadata.get(
        f"{header.metadata.get('general.architecture')}.attention.key_length_mla"
    )
    if not header.tensors:
        warnings = ("the file holds no tensors, only keys: weights are counted by arithmetic",)
    whole = not warnings
    return replace(
        spec,
        name=title if isinstance(title, str) and title else name,
        source="gguf header",
        quantisation=_quantisation(header, spec) if header.tensors else spec.quantisation,
        file_bytes=sum(value.nbytes for value in _loaded(header, spec).values()) if whole else None,
        expanded_latents=latent is None
        and any(isinstance(kind, Latent) for kind, _ in spec.stores),
        warnings=(*spec.warnings, *warnings, *(_mismatch(header, spec) if whole else ())),
    )


def spec_of(header: Header, name: str) -> ModelSpec:
    """The structure: by its architecture's reader, else from the file's own tensors and keys."""
    shapes = {key: value.shape for key, value in header.tensors.items()}
    if not known(header.metadata) and shapes:
        return gguf_tensors.read(header.metadata, shapes, name)
    try:
        return hf.read(config_of(header.metadata, shapes, name))
    except KvroomError as one_error:
        error = one_error
    if shapes and known(header.metadata):
        try:
            return gguf_tensors.read(header.metadata, shapes, name)
        except KvroomError:
            pass  # what the first reading missed says more
    if error.field == "model":
        raise error
    problem = f"has a header that does not add up ({error.field}: {error.message})"
    raise KvroomError("model", name, problem, error.fix)


_PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf", re.DOTALL)


def _all_parts(path: Path) -> tuple[Header, tuple[str, ...]]:
    """The metadata of the first part and the tensors of all; a warning where parts are missing."""
    match = _PART.fullmatch(path.name)
    if not match:
        return read_header(path), ()
    count = int(match[3])
    if not 1 <= count <= 1000:
        raise KvroomError("model", str(path), "is named as one of too many parts", _FIX)
    parts = [
        path.with_name(f"{match[1]}-{index:05}-of-{match[3]}.gguf") for index in range(1, count + 1)
    ]
    there = [part for part in parts if part.is_file()]
    if parts[0] not in there:
        fix = f"Put {parts[0].name} beside it: it holds the model's keys."
        raise KvroomError("model", str(path), "is a later part of a split file", fix)
    headers = [read_header(p) for p in there]
    tensors = {name: info for header in headers for name, info in header.tensors.items()}
    warnings: tuple[str, ...] = ()
    if len(there) < count:
        warnings = (
            f"{count - len(there)} of {count} parts are missing beside {path.name}: "
            "weights are counted by arithmetic",
        )
    return Header(headers[0].metadata, tensors), warnings


_BLOCK_NAME = re.compile(r"blk\.(\d{1,9})\.(.+)", re.DOTALL)


def _loaded(header: Header, spec: ModelSpec) -> dict[str, Info]:
    """What an engine loads: all but the blocks past the model's layers (next-token predictors)."""
    tensors = {}
    for name, info in header.tensors.items():
        at = _BLOCK_NAME.match(name)
        if at is None or int(at[1]) < spec.num_layers:
            tensors[name] = info
    return tensors


def _mismatch(header: Header, spec: ModelSpec) -> tuple[str, ...]:
    held = sum(math.prod(value.shape) for value in _loaded(header, spec).values())
    said = spec.params - sum(t.elements for t in spec.beside)
    if held and abs(held - said) <= 0.02 * said:
        return ()
    return (
        f"the file holds {held:,} parameters, its keys describe {said:,}: sizes are the file's",
    )


@dataclass(frozen=True, eq=False)
class FileTypes:
    """The width of each tensor as the file has it, by layer and role; ``usual`` where it has none."""

    table: Mapping[tuple[int | None, str], Dtype]
    usual: Dtype

    def __call__(self, tensor: Tensor, layer: int | None) -> Dtype:
        """The width of one tensor."""
        if not tensor.is_matrix:
            return FP32
        for role in (tensor.name, *_roles(tensor)):
            dtype = self.table.get((layer, role)) or self.table.get((None, role))
            if dtype is not None:
                return dtype
        return FP32 if tensor.part in ("router", "norm") else self.usual


def _roles(tensor: Tensor) -> tuple[str, ...]:
    """The names that llama.cpp may give a tensor, without ``blk.N.`` and ``.weight``."""
    role = role_of(tensor)
    if tensor.part == "expert":
        return (f"{role}_exps", "ffn_gate_up_exps", f"{role}.0")
    if tensor.part == "shared_expert":
        return (f"{role}_shexp", role)
    last = tensor.name.rpartition(".")[2]
    if tensor.part == "state":
        names = {"in_proj": "ssm_in", "out_proj": "ssm_out", "x_proj": "ssm_x", "dt_proj": "ssm_dt"}
        conv = "conv" in tensor.name
        return ("ssm_conv1d", "shortconv.conv") if conv else (names.get(last, last), "attn_qkv")
    other = {
        "output": ("token_embd",),
        "router": ("ffn_gate_inp",),
        "attn_q_a_proj": ("attn_q_a",),
        "attn_q_b_proj": ("attn_q_b",),
        "attn_kv_a_proj_with_mqa": ("attn_kv_a_mqa",),
        "attn_kv_b_proj": ("attn_kv_b", "attn_k_b"),
    }
    return (role, *other.get(role, ()))


def _quantisation(header: Header, spec: ModelSpec) -> Quantisation:
    table: dict[tuple[int | None, str], Dtype] = {}
    weights: Counter[Dtype] = Counter()
    for name, info in _loaded(header, spec).items():
        width = TYPES.get(info.type) or _measured(info)
        at = _BLOCK_NAME.match(name)
        layer, role = (int(at[1]), at[2]) if at else (None, name)
        table[layer, role.removesuffix(".weight")] = width
        if len(info.shape) > 1 and layer is not None:
            weights[width] += info.nbytes
    usual = max(weights, key=lambda d: (weights[d], d.name), default=FP32)
    kind = _FILE_TYPES.get(header.metadata.get("general.file_type", -1), usual.name)
    rule = FileTypes(table, usual)
    return Quantisation(name=kind, linear=usual, base=FP32, rule=rule, varies_by_layer=True)


def _measured(info: Info) -> Dtype:
    """A type not known here, by its bytes."""
    return average(f"ggml_{info.type}", 8 * info.nbytes / max(1, math.prod(info.shape)))
