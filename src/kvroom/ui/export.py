"""Answers as files: CSV, Parquet, HTML. A file is whole or not there."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kvroom.errors import KvroomError

if TYPE_CHECKING:
    from kvroom.answer.shown import Shown

Rows = Sequence[Mapping[str, Any]]


def report_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give ``command`` the options that write its answer as a report and as a picture."""
    for flag, words in (
        ("--svg", "Write its picture: one SVG file."),
        ("--html", "Write a report: one self-contained HTML file."),
    ):
        command = click.option(flag, metavar="FILE", help=words)(command)
    return command


def file_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give ``command`` the options that write its answer into files."""
    for flag, words in (
        ("--parquet", "Write the rows as Parquet (needs pyarrow)."),
        ("--csv", "Write the rows as CSV."),
    ):
        command = click.option(flag, metavar="FILE", help=words)(command)
    return report_options(command)


def check_places(**paths: str | None) -> None:
    """Refuse, before any work is done, an option's file in a folder that is not there; None is no file."""
    for flag, path in paths.items():
        folder = Path(path).parent if path else None
        if folder is not None and not folder.is_dir():
            fix = "Give a file in a folder that can be written to."
            raise KvroomError(f"--{flag}", path, "cannot be written (no such folder)", fix)


def write(
    answer: Shown,
    *,
    csv: str | None = None,
    parquet: str | None = None,
    html: str | None = None,
    svg: str | None = None,
) -> None:
    """Write ``answer`` into the files that are named."""
    if csv:
        save("--csv", csv, as_csv(answer.rows()).encode())
    if parquet:
        save("--parquet", parquet, as_parquet(answer.rows()))
    if html:
        save("--html", html, answer.to_html().encode())
    if svg:
        save("--svg", svg, answer.to_svg().encode())


def as_csv(rows: Rows) -> str:
    """``rows`` with a line of headings."""
    import csv  # not needed by most plans

    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def as_parquet(rows: Rows) -> bytes:
    """``rows`` as a Parquet file; KvroomError where pyarrow is not installed."""
    try:
        arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        fix = "pip install 'kvroom[traces]', or write --csv."
        raise KvroomError("--parquet", None, "needs pyarrow", fix) from None
    columns = list(rows[0]) if rows else []
    sink = io.BytesIO()
    parquet.write_table(
        arrow.table({column: [row[column] for row in rows] for column in columns}), sink
    )
    return sink.getvalue()


def check_writable(flag: str, path: str | None) -> None:
    """KvroomError where ``path`` could not be written: said before minutes are spent on what it is to
    hold. What is there stays."""
    if path is None:
        return
    try:
        there = Path(path).exists()
        Path(path).open("a").close()
        if not there:
            Path(path).unlink()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "the name cannot be one"
        fix = "Give a file in a folder that can be written to."
        raise KvroomError(flag, path, f"cannot be written ({why})", fix) from None


def save(flag: str, path: str, data: bytes) -> None:
    """Put ``data`` into the file at ``path``, all of it or nothing."""
    check_writable(flag, path)
    whole = Path(path)
    part = whole.with_name(f".{whole.name}.{os.getpid()}")
    try:
        part.write_bytes(data)
        part.replace(whole)
    except OSError as error:
        part.unlink(missing_ok=True)
        fix = "Give a file in a folder that can be written to."
        raise KvroomError(flag, path, f"cannot be written ({error.strerror})", fix) from None
