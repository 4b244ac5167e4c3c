"""One row a request, to a file of JSON lines or, with the ``traces`` extra, to a Parquet file."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from kvroom.errors import KvroomError
from kvroom.kvcache.request import ServedRequest
from kvroom.planner.simulation import request_row

BATCH = 10_000
"""Rows of a Parquet file that are written together."""


class RowFile:
    """Rows written while it is open; the file appears under its name once it is whole.

    ``on_over`` takes each request that is done or dropped (None where no file is wanted). KvroomError where
    the file cannot be written.
    """

    def __init__(self, path: str | None) -> None:
        self.on_over: Callable[[ServedRequest, int | None], None] | None = None
        self._path = Path(path) if path is not None else None
        self._part = Path(f"{path}.part")
        self._stream: IO[str] | None = None
        self._parquet: Any = None
        self._rows: list[dict[str, Any]] = []

    def __enter__(self) -> RowFile:
        if self._path is None:
            return self
        if self._path.suffix not in (".jsonl", ".parquet"):
            fix = "End its name in .jsonl or .parquet."
            raise KvroomError("--per-request", str(self._path), "is of no known format", fix)
        try:
            if self._path.suffix == ".jsonl":
                self._stream = self._part.open("w", encoding="utf-8")
                self.on_over = self._line
            else:
                self._parquet = _Parquet(self._part)
                self.on_over = self._column
        except OSError as error:
            raise self._unwritable(error) from None
        return self

    def _line(self, request: ServedRequest, end: int | None) -> None:
        assert self._stream is not None
        self._stream.write(json.dumps(request_row(request, end)) + "\n")

    def _column(self, request: ServedRequest, end: int | None) -> None:
        self._rows.append(request_row(request, end))
        if len(self._rows) >= BATCH:
            self._parquet.write(self._rows)
            self._rows = []

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._path is None:
            return
        try:
            if self._stream is not None:
                self._stream.close()
            elif self._parquet is not None:
                self._parquet.write(self._rows)
                self._parquet.close()
            if kind is None:
                self._part.replace(self._path)
        except OSError as error:
            raise self._unwritable(error) from None
        finally:
            with suppress(OSError):
                self._part.unlink(missing_ok=True)

    def _unwritable(self, why: OSError) -> KvroomError:
        fix = "Give a path that can be written."
        path = str(self._path)
        return KvroomError("--per-request", path, f"cannot be written ({why.strerror})", fix)


class _Parquet:
    """A Parquet file, written batch by batch with pyarrow."""

    def __init__(self, path: Path) -> None:
        try:
            pyarrow = import_module("pyarrow")
            self._parquet = import_module("pyarrow.parquet")
        except ImportError:
            fix = "Install kvroom[traces], or end the name in .jsonl."
            raise KvroomError("--per-request", str(path), "needs pyarrow", fix) from None
        self._arrow = pyarrow
        whole, real, text = pyarrow.int64(), pyarrow.float64(), pyarrow.string()
        kinds = {"status": text} | dict.fromkeys(("arrival_s", "ttft_s", "tpot_s", "e2e_s"), real)
        names = request_row(ServedRequest(0, 0, 1, 1), None)
        self._schema = pyarrow.schema([(name, kinds.get(name, whole)) for name in names])
        self._writer = self._parquet.ParquetWriter(str(path), self._schema)

    def write(self, rows: list[dict[str, Any]]) -> None:
        """One more batch."""
        if rows:
            self._writer.write_table(self._arrow.Table.from_pylist(rows, schema=self._schema))

    def close(self) -> None:
        """Write the end of the file."""
        self._writer.close()
