"""Requests → a trace file that reads back as the same."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from kvroom.errors import KvroomError
from kvroom.workloads.requests import HashIds, Request, TokenIds, TokenRuns
from kvroom.workloads.traces.fields import PS_PER_MS, PS_PER_NS


def write(path: str | Path, requests: Iterable[Request]) -> int:
    """Write ``requests`` as a trace that reads back as the same; gzipped if the name ends in .gz.

    Requests with token ids (runs are written out) make token-id JSONL, all others Mooncake JSONL; one
    file holds one kind. The file appears only once it is whole. Returns how many were written.
    """
    target = Path(path)
    count = 0
    by_token: bool | None = None
    with whole_file(target) as stream:
        for count, request in enumerate(requests, 1):  # noqa: B007
            tokens = isinstance(request.prefix, TokenIds | TokenRuns)
            if by_token not in (None, tokens):
                why = "mixes token ids with other requests"
                raise KvroomError("trace", str(target), why, "Write each kind to its own file.")
            by_token = tokens
            stream.write(_line(request).encode())
    return count


@contextmanager
def whole_file(target: Path) -> Iterator[IO[bytes] | gzip.GzipFile]:
    """A file to write to that appears only once it is whole, gzipped if its name ends in .gz; KvroomError
    where it cannot be written."""
    part = target.with_name(target.name + ".part")
    try:
        with part.open("wb") as raw, _zipped(raw, target.suffix == ".gz") as stream:
            yield stream
        part.replace(target)
    except OSError as error:
        fix = "Give a path that can be written."
        raise KvroomError(
            "trace", str(target), f"cannot be written ({error.strerror})", fix
        ) from None
    finally:
        with suppress(OSError):
            os.unlink(part)  # noqa: PTH108


@contextmanager
def _zipped(raw: IO[bytes], zipped: bool) -> Iterator[IO[bytes] | gzip.GzipFile]:
    if not zipped:
        yield raw
        return
    # No name and no time in the header: the same requests give the same bytes.
    with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as stream:
        yield stream


def _line(request: Request) -> str:
    prefix = request.prefix
    row: dict[str, Any] = {}
    if isinstance(prefix, TokenIds | TokenRuns):
        time = f'"arrival_time_ns": {_units(request.arrival_ps, PS_PER_NS)}'
        row["input_tok_ids"] = _ids(prefix, "prompt")
        answer = _ids(prefix, "answer")
        row |= {"output_tok_ids": answer} if answer else {"output_toks": request.output_tokens}
    else:
        time = f'"timestamp": {_units(request.arrival_ps, PS_PER_MS)}'
        row |= {"input_length": request.input_tokens, "output_length": request.output_tokens}
        if isinstance(prefix, HashIds):
            row["hash_ids"] = list(prefix.ids)
    if request.session is not None:
        row["session"] = request.session
    if request.priority:
        row["priority"] = request.priority
    return f"{{{time}, {json.dumps(row)[1:]}\n"


def _ids(prefix: TokenIds | TokenRuns, part: str) -> list[int]:
    known = getattr(prefix, part)
    if isinstance(prefix, TokenIds):
        return list(known or ())
    return [token for first, count in known for token in range(first, first + count)]


def _units(ps: int, unit_ps: int) -> str:
    whole, rest = divmod(ps, unit_ps)
    digits = len(str(unit_ps)) - 1
    return f"{whole}.{rest:0{digits}d}".rstrip("0") if rest else str(whole)
