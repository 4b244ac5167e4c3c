"""Safetensors headers: what each tensor of a checkpoint is and weighs, without reading the weights.

A file starts with the header's length (8 bytes, little-endian) and the header, a JSON object of
``{name: {dtype, shape, data_offsets}}``. An index maps tensor names to the files of a checkpoint.
Source of the format and its limits: github.com/huggingface/safetensors.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from kvroom.errors import KvroomError
from kvroom.models.files import decode, read_bytes, read_json, stamp
from kvroom.models.spec import ModelSpec, Run
from kvroom.records import dataclass
from kvroom.units import MAX_BYTES

MAX_HEADER_BYTES = 100_000_000
"""The format's own limit."""
_FIX = "Give a whole .safetensors file."
_BITS = {
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("F8_E4M3", "F8_E5M2", "F8_E8M0", "I8", "U8", "BOOL"), 8),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}


class Entry(NamedTuple):
    """One tensor: its type as the file calls it, its shape, its bytes."""

    dtype: str
    shape: tuple[int, ...]
    nbytes: int


@dataclass(frozen=True)
class Index:
    """A checkpoint's tensors: ``entries`` where every file is there, else only names and a total."""

    names: frozenset[str]
    entries: Mapping[str, Entry] | None
    total_bytes: int | None


def read_header(source: Path | str | bytes) -> dict[str, Entry]:
    """The tensors of one file; of ``bytes`` a prefix that holds the header is enough.

    Raises KvroomError on ``model`` for a file that is truncated, too large a header, or not of the
    format.
    """
    if isinstance(source, bytes):
        return _parse(source, "safetensors", None)
    path = Path(source)
    size = stamp(path, ".safetensors file")[2]
    length = _length(read_bytes(path, 8), str(path), size)
    return _parse(read_bytes(path, 8 + length), str(path), size)


def _length(data: bytes, name: str, size: int | None) -> int:
    if len(data) < 8:
        raise KvroomError("model", name, "is too short to be a safetensors file", _FIX)
    length = int.from_bytes(data[:8], "little")
    if length > MAX_HEADER_BYTES or length < 2:
        problem = f"is no safetensors file (its header would be {length:,} bytes)"
        raise KvroomError("model", name, problem, _FIX)
    if size is not None and 8 + length > size:
        raise KvroomError("model", name, "is cut off inside its header", _FIX)
    return length


def _parse(data: bytes, name: str, size: int | None) -> dict[str, Entry]:
    length = _length(data, name, size)
    if len(data) < 8 + length:
        raise KvroomError("model", name, "is cut off inside its header", _FIX)
    header = decode(data[8 : 8 + length], name, "safetensors header")
    entries = {
        key: _entry(name, key, value) for key, value in header.items() if key != "__metadata__"
    }
    end = (
        8
        + length
        + max(
            (value["data_offsets"][1] for key, value in header.items() if key in entries), default=0
        )
    )
    if size is not None and end > size:
        raise KvroomError("model", name, f"is cut off: {size:,} of {end:,} bytes", _FIX)
    return entries


def _entry(file: str, key: str, entry: Any) -> Entry:
    def wrong(what: str) -> KvroomError:
        return KvroomError("model", file, f"has a tensor '{key[:80]}' {what}", _FIX)

    if not isinstance(entry, dict):
        raise wrong("that is not an object")
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(dtype, str):
        raise wrong("without a dtype")
    if not _counts(shape) or len(shape) > 16:
        raise wrong("without a proper shape")
    if not _counts(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise wrong("without proper data_offsets")
    if offsets[1] > MAX_BYTES:
        raise wrong("that is absurdly large")
    nbytes = offsets[1] - offsets[0]
    bits = _BITS.get(dtype)
    if bits and nbytes * 8 != math.prod(shape) * bits:
        raise wrong(f"of {nbytes:,} bytes, which does not fit its shape")
    return Entry(dtype, tuple(shape), nbytes)


def _counts(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(v) is int and 0 <= v < 2**60 for v in value)


def read_index(source: Path | str) -> Index:
    """A ``model.safetensors.index.json`` with the headers of its files, where all of them are there."""
    path = Path(source)
    raw = read_json(path, "model.safetensors.index.json")
    fix = "Give the index as published."
    table = raw.get("weight_map")
    if not isinstance(table, dict) or not all(isinstance(value, str) for value in table.values()):
        raise KvroomError("model", str(path), "has no weight_map of names to files", fix)
    metadata = raw.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    if isinstance(total, float) and total.is_integer():
        total = int(total)
    if type(total) is not int or not 0 <= total <= MAX_BYTES:
        total = None
    files = sorted(set(table.values()))
    for name in files:
        if Path(name).name != name or "\\" in name or not name or name in (".", ".."):
            raise KvroomError("model", name, "in the index is not a file beside it", fix)
    shards = [path.parent / name for name in files]
    try:
        there = bool(shards) and all(shard.is_file() for shard in shards)
    except (OSError, ValueError):
        there = False
    entries: dict[str, Entry] | None = None
    if there:
        entries = {}
        for shard in shards:
            entries.update(read_header(shard))
        total = sum(entry.nbytes for entry in entries.values())
    return Index(frozenset(entries or table), entries, total)


_MTP = re.compile(r"(?:^|\.)mtp(?:\.|_|$)")


def idle(spec: ModelSpec, names: Iterable[str]) -> frozenset[str]:
    """Names of tensors that a plain load leaves in the file: MTP layers, and the copy of a tied head."""
    layer = re.compile(rf"(?:^|\.){re.escape(spec.layer_names.rpartition('.')[2])}\.(\d+)\.")
    idle_layers = set()
    for name in names:
        at = layer.search(name)
        beyond = at is not None and spec.layer_names in name and int(at[1][:9]) >= spec.num_layers
        tied_copy = spec.tied and name.endswith("lm_head.weight")
        if beyond or tied_copy or _MTP.search(name):
            idle_layers.add(name)
    return frozenset(idle_layers)


@dataclass(frozen=True)
class Stated:
    """What a checkpoint's own files come to in memory (None: they do not say), and what to say of it."""

    nbytes: int | None
    warnings: tuple[str, ...] = ()


_AGREES = 0.05
"""Biases, scales and buffers that a config does not tell of stay below this share of the weights."""


def loaded_bytes(spec: ModelSpec, weights: Path) -> Stated:
    """Bytes that an engine loads of the checkpoint: everything but what is ``idle``.

    FP32 tensors of a checkpoint that is not quantised are loaded in 16 bits, as every engine does.
    Where the files are not there, the index's total less the arithmetic of its MTP layers.
    """
    if weights.name.endswith(".json"):
        index = read_index(weights)
    else:
        entries = read_header(weights)
        index = Index(frozenset(entries), entries, None)
    unread = idle(spec, index.names)
    expected = weight_bytes(spec, spec.layers) + _loose_bytes(spec)
    if index.entries is not None:
        nbytes = sum(
            _loaded(value, spec) for name, value in index.entries.items() if name not in unread
        )
    elif index.total_bytes is None:
        return Stated(None)
    else:
        nbytes = max(0, index.total_bytes - (_mtp_bytes(spec) if unread else 0))
        if spec.quantisation is None and abs(nbytes / max(1, expected) - 2) < _AGREES:
            note = f"the index states {nbytes:,} bytes: FP32 tensors, which engines load in 16 bits"
            return Stated(nbytes // 2, (note,))
    if abs(nbytes - expected) <= _AGREES * expected:
        return Stated(nbytes)
    note = (
        f"the checkpoint's files come to {nbytes:,} bytes, the config's tensors to {expected:,}: the "
        "files' bytes are taken; is it this model's config?"
    )
    return Stated(nbytes, (note,))


def _loaded(entry: Entry, spec: ModelSpec) -> int:
    halved = entry.dtype == "F32" and spec.quantisation is None
    return entry.nbytes // 2 if halved else entry.nbytes


def _loose_bytes(spec: ModelSpec) -> int:
    rule = spec.quantisation
    loose = (*spec.embedding, *spec.head, *spec.beside)
    return sum(rule.bytes_of(t) if rule else 2 * t.elements for t in loose)


def _mtp_bytes(spec: ModelSpec) -> int:
    return weight_bytes(spec, spec.mtp, spec.num_layers)


def weight_bytes(spec: ModelSpec, runs: tuple[Run, ...], first: int = 0) -> int:
    """The arithmetic of layers from index ``first`` on: the checkpoint's own rule, else 16 bits."""
    rule, total, at = spec.quantisation, 0, first
    for run in runs:
        tensors = run.layer.tensors
        if rule is None:
            total += 2 * run.count * sum(tensor.elements for tensor in tensors)
        elif rule.varies_by_layer:
            total += sum(
                rule.bytes_of(tensor, at + index)
                for index in range(run.count)
                for tensor in tensors
            )
        else:
            total += run.count * sum(rule.bytes_of(tensor, at) for tensor in tensors)
        at += run.count
    return total
