"""Model files read with care: regular files only, bounded, and JSON that is an object.

Nothing here trusts a file: every way in which it can be wrong is a KvroomError on ``model``.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from kvroom.errors import KvroomError

MAX_JSON_BYTES = 20_000_000
"""No published config or index comes near (the longest index is about 10 MB)."""

Stamp = tuple[str, int, int]
"""A file's path, modification time in ns and size: what a cached reading holds for."""


def stamp(path: Path, what: str = "file") -> Stamp:
    """The stamp of a regular file; KvroomError if it is missing, unreadable, or a pipe or device."""
    try:
        found = path.stat()
    except (OSError, ValueError) as error:
        raise KvroomError(
            "model", str(path), _reason(error), f"Give the path of a {what}."
        ) from None
    if not stat.S_ISREG(found.st_mode):
        kind = "is a folder" if stat.S_ISDIR(found.st_mode) else "is no regular file"
        raise KvroomError("model", str(path), kind, f"Give the path of a {what}.")
    return str(path), found.st_mtime_ns, found.st_size


def read_bytes(path: Path, limit: int, what: str = "file") -> bytes:
    """The first ``limit`` bytes of a regular file."""
    stamp(path, what)
    try:
        # A pipe put there since the look above must not block.
        with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:  # noqa: PTH123
            return file.read(limit)
    except (OSError, ValueError) as error:
        raise KvroomError(
            "model", str(path), _reason(error), f"Give the path of a {what}."
        ) from None


def read_json(path: Path, what: str = "config.json") -> dict[str, Any]:
    """The JSON object in a file of at most 20 MB."""
    size = stamp(path, what)[2]
    if size > MAX_JSON_BYTES:
        limit = f"is {size:,} bytes, too large for a {what} (limit {MAX_JSON_BYTES:,})"
        raise KvroomError("model", str(path), limit, f"Give the model's {what}.")
    return decode(read_bytes(path, MAX_JSON_BYTES, what), str(path), what)


def decode(data: bytes | str, source: str, what: str = "config.json") -> dict[str, Any]:
    """``data`` as a JSON object; ``source`` is what to call it in the error.

    Infinity and NaN are taken as the floats they are: published configs have them
    (``time_step_limit``), and a size that is one is refused where it is read.
    """
    fix = f"Give a whole {what} as published with the model."
    if not data.strip():
        raise KvroomError("model", source, "is empty", fix)
    try:
        value = json.loads(data)
    except RecursionError:
        raise KvroomError("model", source, "is nested too deeply", fix) from None
    except UnicodeDecodeError:
        raise KvroomError("model", source, "is binary, not JSON text", fix) from None
    except json.JSONDecodeError as error:
        where = f"is not valid JSON (line {error.lineno}, column {error.colno}: {error.msg})"
        raise KvroomError("model", source, where, fix) from None
    except ValueError:  # what Python says of an integer that it will not read
        raise KvroomError("model", source, "holds a number of too many digits", fix) from None
    if not isinstance(value, dict):
        kind = type(value).__name__.replace("NoneType", "null")
        raise KvroomError("model", source, f"holds a JSON {kind}, not an object", fix)
    return value


def _reason(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "is not there"
    if isinstance(error, PermissionError):
        return "may not be read"
    text = error.strerror if isinstance(error, OSError) else str(error)
    return f"cannot be read ({text})"
