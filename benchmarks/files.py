"""How many files of folders are read, and what of that is right: ``python benchmarks/files.py FOLDER …``.

Configs, GGUF headers, safetensors indices, start-up logs, traces, commands and manifests are told apart by
name and content. Read is what gives an answer without an error; right is what agrees with the truth that
``NAME.truth.json`` beside it states: ``{"params": N, "weight_bytes": N, "kv_bytes_at": {"TOKENS": N}}``.
Prints a table by kind, then each file that was not read with the reason, and the wrong ones.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kvroom.errors import KvroomError
from kvroom.launchers.commands import read_command
from kvroom.models.dtypes import BF16
from kvroom.models.load import load
from kvroom.models.spec import ModelSpec
from kvroom.observe.logs import startup
from kvroom.workloads.traces.reader import Trace

MAX_BYTES = 200_000_000
CONFIG, GGUF, INDEX, LOG, TRACE, COMMAND = "config", "gguf", "index", "log", "trace", "command"


def kind_of(path: Path) -> str | None:
    """What a file is; None for what is none of kvroom's business."""
    name = path.name.lower()
    if name.endswith(".truth.json"):
        return None
    if name.endswith(".gguf"):
        return GGUF
    if name.endswith((".safetensors", ".safetensors.index.json")):
        return INDEX
    if name.endswith((".log", ".log.txt", ".out")):
        return LOG
    if name.endswith((".sh", ".yaml", ".yml", "dockerfile")):
        return COMMAND
    if name.endswith((".jsonl", ".csv", ".jsonl.gz", ".csv.gz")):
        return TRACE
    if name.endswith(".json"):
        try:
            said = json.loads(path.read_bytes()[:20_000_000])
        except ValueError:
            return None
        return (
            CONFIG
            if isinstance(said, dict) and ("model_type" in said or "architectures" in said)
            else None
        )
    return None


def _log(path: Path) -> Any:
    log = startup.read_file(str(path))
    if log.engine is None:
        raise KvroomError("file", path.name, "is no known engine's log", "")
    return log


def _trace(path: Path) -> Any:
    return next(iter(Trace(path)), None)


READERS: dict[str, Callable[[Path], Any]] = {
    CONFIG: lambda path: load(str(path)),
    GGUF: lambda path: load(str(path)),
    INDEX: lambda path: load(str(path)),
    LOG: _log,
    TRACE: _trace,
    COMMAND: lambda path: read_command(path.read_text("utf-8", "replace")),
}


def wrong(answer: Any, truth: Path) -> list[str]:
    """What of an answer differs from what the file beside states."""
    if not truth.is_file() or not isinstance(answer, ModelSpec):
        return []
    said, odd = json.loads(truth.read_text()), []
    if "params" in said and answer.params not in (
        said["params"],
        said["params"] - answer.mtp_params,
    ):
        odd.append(f"params {answer.params:,}, not {said['params']:,}")
    if "weight_bytes" in said and answer.file_bytes not in (None, said["weight_bytes"]):
        odd.append(f"weight bytes {answer.file_bytes:,}, not {said['weight_bytes']:,}")
    for tokens, nbytes in said.get("kv_bytes_at", {}).items():
        held = sum(k.stored_bytes(int(tokens), BF16) * n for k, n in answer.stores)
        if held != nbytes:
            odd.append(f"cache of {tokens} tokens {held:,}, not {nbytes:,}")
    return odd


def main(folders: list[str]) -> int:
    """The command."""
    if not folders:
        raise SystemExit(__doc__)
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    lines = []
    for path in sorted(p for f in folders for p in Path(f).rglob("*") if p.is_file()):
        kind = kind_of(path) if path.stat().st_size <= MAX_BYTES else None
        if kind is None:
            continue
        begun = time.perf_counter()
        counts[kind]["files"] += 1
        try:
            answer = READERS[kind](path)
        except KvroomError as e:
            lines.append(f"not read  {path}: {e.field}: {e.message}")
            continue
        except Exception as e:  # what is looked for
            counts[kind]["crashed"] += 1
            lines.append(f"crashed   {path}: {type(e).__name__}: {e}")
            continue
        counts[kind]["read"] += 1
        truth = path.with_name(path.name + ".truth.json")
        odd = wrong(answer, truth)
        counts[kind]["checked"] += truth.is_file()
        counts[kind]["right"] += truth.is_file() and not odd
        lines += [f"wrong     {path}: {o}" for o in odd]
        if time.perf_counter() - begun > 5:
            lines.append(f"slow      {path}: {time.perf_counter() - begun:.1f} s")
    print(f"{'kind':10}{'files':>7}{'read':>7}{'checked':>9}{'right':>7}{'crashed':>9}")
    for kind, c in sorted(counts.items()):
        print(f"{kind:10}{c['files']:7}{c['read']:7}{c['checked']:9}{c['right']:7}{c['crashed']:9}")
    print(*lines, sep="\n")
    return 1 if any(c["crashed"] for c in counts.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
