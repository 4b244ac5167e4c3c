"""What a long run has finished so far, on disk: a line for each unit of work, so that a killed run can go
on.

The first line names the question; a journal of another question is refused. A line counts once it is
written whole and flushed; a line that a kill cut off is dropped.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from kvroom.errors import KvroomError

FORMAT = 1


def fingerprint(value: Any) -> str:
    """A short digest of plain JSON values: the same for the same."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


class Journal:
    """Results by the digest of their unit of work; in memory alone where ``path`` is None.

    A ``lean`` one leaves results where they lie on disk, and remembers no others.
    """

    def __init__(
        self, path: str | None, question: Mapping[str, Any], *, lean: bool = False
    ) -> None:
        self.path = path
        self.lean = lean
        self.done: dict[str, Any] = {}
        self._where: dict[str, int] = {}
        self._file: IO[bytes] | None = None
        if path is not None:
            self._open(Path(path), fingerprint(question))

    def _open(self, path: Path, question: str) -> None:
        head = {"kvroom": FORMAT, "question": question}
        try:
            good = self._read(path, head) if path.exists() and path.stat().st_size else 0
            self._file = path.open("r+b" if path.exists() else "w+b")
            self._file.truncate(good)
            self._file.seek(good)
            if not good:
                self._write(head)
        except OSError as error:
            fix = "Give a file that can be written to."
            raise KvroomError(
                "--journal", str(path), f"cannot be used ({error.strerror})", fix
            ) from None

    def _read(self, path: Path, head: Mapping[str, Any]) -> int:
        """Take the whole lines in; gives where they end."""
        good = 0
        with path.open("rb") as file:
            for line in file:
                entry = _line(line)
                if entry is None:
                    if good:
                        break
                    raise KvroomError(
                        "--journal", str(path), "is no journal of kvroom's", "Give another file."
                    )
                if not good and entry != head:
                    message = "belongs to another question"
                    raise KvroomError("--journal", str(path), message, "Give another file.")
                if good:
                    self._remember(entry["unit"], entry["result"], good)
                good += len(line)
        return good

    def _remember(self, unit: str, result: Any, at: int) -> None:
        if self.lean:
            self._where[unit] = at
        else:
            self.done[unit] = result

    def __contains__(self, unit: str) -> bool:
        return unit in self.done or unit in self._where

    def result(self, unit: str) -> Any:
        """What came of ``unit``, which is done."""
        if unit in self.done:
            return self.done[unit]
        assert self.path is not None
        with Path(self.path).open("rb") as file:
            file.seek(self._where[unit])
            entry = _line(file.readline())
        assert entry is not None
        return entry["result"]

    def add(self, unit: str, result: Any) -> None:
        """Note that ``unit`` is done."""
        self._remember(unit, result, self._file.tell() if self._file is not None else 0)
        if self._file is not None:
            self._write({"unit": unit, "result": result})

    def _write(self, value: Mapping[str, Any]) -> None:
        assert self._file is not None
        self._file.write(json.dumps(value, separators=(",", ":")).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()


def _line(line: bytes) -> dict[str, Any] | None:
    """The object of a whole line, None for one that is cut off or no object."""
    if not line.endswith(b"\n"):
        return None
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    whole = isinstance(entry, dict) and ({"unit", "result"} <= set(entry) or "kvroom" in entry)
    return entry if whole else None
