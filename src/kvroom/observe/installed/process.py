"""The process that asks an installed engine: started, asked line by line, held to its limits, ended.

It runs ``child.py`` in the engine's own Python. It may take so long for an answer, print so much and hold so
much memory; past that, or where it dies, it is ended by its process id and a KvroomError says what happened,
with the last line that it printed.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from kvroom.engines.asked import AskedScript
from kvroom.errors import KvroomError
from kvroom.records import dataclass
from kvroom.units import GIB, MIB, show_gib

CHILD = Path(__file__).with_name("child.py")
FIELD = "--engine-python"
TAIL_BYTES = 16 * 1024
"""Of what it prints so much is kept."""
LOOK_S = 1.0
"""How often its memory is looked at while it is waited for."""
STOP_S = 0.5
QUIET = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "NO_COLOR": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONUNBUFFERED": "1",
    "OMP_NUM_THREADS": "1",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessLimits:
    """How long one answer may take, how much may be printed in all, how much memory may be held."""

    answer_s: float = 300.0
    printed_bytes: int = 64 * MIB
    memory_bytes: int = 12 * GIB


class InstalledProcess:
    """One such process; a context manager, which ends it."""

    def __init__(
        self,
        python: str,
        script: AskedScript,
        *,
        limits: ProcessLimits | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self.python = python
        self.limits = limits or ProcessLimits()
        self._room = tempfile.TemporaryDirectory(prefix="kvroom-", ignore_cleanup_errors=True)
        self.folder = Path(self._room.name)
        self._printed = 0
        self._tail = b""
        self._answers = bytearray()
        caches = {name: str(self.folder) for name in ("VLLM_CACHE_ROOT", "SGLANG_CACHE_ROOT")}
        parts = [f"{name}={path}" for name, path in script.parts.items()]
        try:
            self._process = subprocess.Popen(
                [python, "-s", str(CHILD), str(script.path), *parts],
                cwd=self.folder,
                env={**os.environ, **QUIET, **caches, **(variables or {})},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            self._room.cleanup()
            fix = "Give the path of the Python that runs the engine: /opt/engine/bin/python."
            why = f"cannot be run ({error.strerror or error})"
            raise KvroomError(FIELD, python, why, fix) from None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._questions = self._process.stdin
        self._pipes = selectors.DefaultSelector()
        self._pipes.register(self._process.stdout, selectors.EVENT_READ, "answer")
        self._pipes.register(self._process.stderr, selectors.EVENT_READ, "print")

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    def __enter__(self) -> InstalledProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End it, and whatever is left of its session."""
        self._pipes.close()
        with suppress(OSError):
            self._questions.close()
        if self._process.poll() is None:
            try:
                self._process.wait(STOP_S)  # its questions have ended
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)  # its own session
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        self._room.cleanup()

    def ask(self, name: str, **question: Any) -> dict[str, Any]:
        """The answer to one question; an answer with ``error`` is given as it is.

        KvroomError where it hangs, dies, prints or holds too much, or answers what is no answer.
        """
        line = json.dumps({"ask": name, **question}, separators=(",", ":")).encode() + b"\n"
        try:
            self._questions.write(line)
            self._questions.flush()
        except OSError:
            raise self._ended() from None
        answer = self._line(name)
        try:
            found = json.loads(answer)
        except ValueError:
            raise self._wrong("answered what is no answer") from None
        if not isinstance(found, dict):
            raise self._wrong("answered what is no answer")
        return found

    def _line(self, name: str) -> bytes:
        begun, looked_at = time.monotonic(), 0
        while True:
            end = self._answers.find(b"\n", looked_at)
            if end >= 0:
                line = bytes(self._answers[:end])
                del self._answers[: end + 1]
                return line
            looked_at = len(self._answers)
            if looked_at > self.limits.printed_bytes:
                self._tail = bytes(self._answers[-TAIL_BYTES:])
                raise self._flooded()
            ready = self._pipes.select(LOOK_S)
            for key, _ in ready:
                data = os.read(key.fd, 2**20)
                if not data and key.data == "answer":
                    raise self._ended()
                if not data:
                    self._pipes.unregister(key.fileobj)
                elif key.data == "answer":
                    self._answers += data
                else:
                    self._print(data)
            if not ready or time.monotonic() - begun > LOOK_S:
                self._check(name, begun)

    def _print(self, data: bytes) -> None:
        self._printed += len(data)
        self._tail = (self._tail + data)[-TAIL_BYTES:]
        if self._printed > self.limits.printed_bytes:
            raise self._flooded()

    def _flooded(self) -> KvroomError:
        most = self.limits.printed_bytes // MIB
        return self._wrong(f"printed more than {most:,} MiB and was ended")

    def _check(self, name: str, begun: float) -> None:
        if time.monotonic() - begun > self.limits.answer_s:
            raise self._wrong(
                f"gave no answer to {name} in {self.limits.answer_s:,.0f} s and was ended"
            )
        held = resident_bytes(self._process.pid)
        if held > self.limits.memory_bytes:
            raise self._wrong(f"held {show_gib(held)} of memory and was ended")

    def _ended(self) -> KvroomError:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_S)
        for key in list(self._pipes.get_map().values()):
            if key.data == "print":  # its last words
                with suppress(OSError):
                    os.set_blocking(key.fd, False)
                    self._tail = (self._tail + (os.read(key.fd, 2**20) or b""))[-TAIL_BYTES:]
        status = self._process.poll()
        how = "ended" if status is None else f"ended with status {status}"
        if status is not None and status < 0:
            how = f"was ended by {signal.Signals(-status).name}"
        return self._wrong(how)

    def _wrong(self, what: str) -> KvroomError:
        """What went wrong, with the last line it printed. It is ended."""
        lines = self._tail.decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        said = f"; it said last: {last[:200]}" if last else ""
        self._process.kill()
        fix = "Try that Python by itself, or leave --engine-python out: kvroom's own rules answer."
        return KvroomError(FIELD, self.python, f"{what}{said}", fix)


def resident_bytes(pid: int) -> int:
    """Memory that process ``pid`` holds; 0 where the system does not tell."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
