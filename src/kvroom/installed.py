"""What other libraries can do where they are installed: zstd, Parquet, object storage, tokenizers.

The core imports none of them; it takes these functions as arguments.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from kvroom.errors import KvroomError
from kvroom.workloads.traces.opened import Held, RemoteFile, TraceFile

if TYPE_CHECKING:
    from kvroom.workloads.traces.base import Tokenizer
    from kvroom.workloads.traces.opened import ParquetRows, Unpack

BATCH = 8192
"""Rows of a Parquet file that are read together."""


def unpack_zstd() -> Unpack | None:
    """What unpacks a zstd stream: pyarrow, of the extra ``traces``; None without it."""
    return _zstd if find_spec("pyarrow") is not None else None


def _zstd(raw: IO[bytes]) -> IO[bytes]:
    import pyarrow

    return cast("IO[bytes]", io.BufferedReader(pyarrow.input_stream(raw, compression="zstd")))


def parquet_rows() -> ParquetRows | None:
    """What reads the rows of a Parquet file: pyarrow, of the extra ``traces``; None without it."""
    return _parquet_rows if find_spec("pyarrow") is not None else None


def _parquet_rows(path: TraceFile) -> Iterator[Mapping[str, Any]]:
    """Row by row, a batch of BATCH at a time; cells that are null are left out."""
    import pyarrow
    from pyarrow import parquet

    if isinstance(path, Path):
        source: Any = str(path)
    else:
        source = pyarrow.BufferReader(path.data) if isinstance(path, Held) else _random(path.name)
    try:
        file = parquet.ParquetFile(source)
        for batch in file.iter_batches(batch_size=BATCH):
            for row in batch.to_pylist():
                yield {key: _cell(cell) for key, cell in row.items() if cell is not None}
    except (OSError, pyarrow.ArrowException) as error:
        why = f"is no Parquet that can be read ({str(error).splitlines()[0][:120]})"
        raise KvroomError("trace", str(path), why, "Fetch the file again.") from None


def _cell(value: Any) -> Any:
    """A cell as JSON has it: floats as exact decimals, times as text."""
    if isinstance(value, float):
        return Decimal(repr(value))
    return value.isoformat(" ") if isinstance(value, datetime) else value


def remote_file(address: str) -> RemoteFile:
    """What lies at an address of object storage (s3://, gs://, hdfs://, abfs://, file://), read as it is
    asked for, by pyarrow's file systems; a folder's parts by name. KvroomError where it cannot be had."""
    fix = "Give such as s3://BUCKET/trace.parquet; keys are taken from where the store's own tools find them."
    if find_spec("pyarrow") is None:
        raise KvroomError("trace", address, "needs pyarrow", "Install kvroom[traces].")
    import pyarrow
    from pyarrow import fs

    try:
        system, path = fs.FileSystem.from_uri(address)
        found = system.get_file_info(path)
        if found.type == fs.FileType.Directory:
            inside = system.get_file_info(fs.FileSelector(path))
            base = address.rstrip("/")
            parts = tuple(
                _remote(f"{base}/{each.base_name}")
                for each in sorted(inside, key=lambda one: one.path)
                if each.type == fs.FileType.File and not each.base_name.startswith((".", "_"))
            )
            if not parts:
                raise KvroomError("trace", address, "is a folder without files", fix)
            return replace(parts[0], name=address, parts=parts)
    except (OSError, pyarrow.ArrowException) as error:
        why = f"cannot be had ({str(error).splitlines()[0][:160]})"
        raise KvroomError("trace", address, why, fix) from None
    if found.type != fs.FileType.File:
        raise KvroomError("trace", address, "is not there", fix)
    return _remote(address)


def _remote(address: str) -> RemoteFile:
    return RemoteFile(address, partial(_stream, address))


def _stream(address: str) -> IO[bytes]:
    from pyarrow import fs

    system, path = fs.FileSystem.from_uri(address)
    return cast("IO[bytes]", system.open_input_stream(path, compression=None))


def _random(address: str) -> Any:
    """A file whose end can be read first, as Parquet's must."""
    from pyarrow import fs

    system, path = fs.FileSystem.from_uri(address)
    return system.open_input_file(path)


def tokenizer(path: str | os.PathLike[str]) -> Tokenizer:
    """The tokenizer of a ``tokenizer.json``; KvroomError where the file or the library is missing."""
    if find_spec("tokenizers") is None:
        fix = "Run pip install tokenizers, or leave it out: 4 bytes then count as a token."
        raise KvroomError("--tokenizer", str(path), "needs the library tokenizers", fix)
    import tokenizers

    try:
        whole: Any = tokenizers.Tokenizer.from_file(os.fspath(path))
    except Exception as error:
        fix = "Give the tokenizer.json of the model."
        raise KvroomError("--tokenizer", str(path), f"cannot be read ({error})", fix) from None
    return lambda text: cast("list[int]", whole.encode(text, add_special_tokens=False).ids)
