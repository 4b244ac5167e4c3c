"""Files that are wrong in every way: ``python benchmarks/fuzz.py [--count N] [--seed N] [--only INDEX]``.

Configs, GGUF headers, manifests, commands, start-up logs, traces and benchmark outputs that are right are
cut, doubled, flipped and filled with absurd values, and read as a user's files are. What is right is an
answer or a ``KvroomError``; any other exception, more than SECONDS of CPU time or more than MEGABYTES of
memory is a finding, printed with the index by which ``--only`` makes it again. Prints, by kind, how many
were answered and refused, and the longest.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import resource
import signal
import struct
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from itertools import islice
from pathlib import Path
from typing import Any

from kvroom.errors import KvroomError
from kvroom.launchers.commands import read_command
from kvroom.models.dtypes import BF16
from kvroom.models.load import load
from kvroom.observe.benchmarks.reader import read_file as read_benchmark
from kvroom.observe.logs.startup import read as read_log
from kvroom.planner.plan import plan
from kvroom.scenario.scenario import Scenario
from kvroom.workloads.traces.reader import Trace

ROOT = Path(__file__).parents[1]
SECONDS = 10
MEGABYTES = 1500
ROWS = 200
"""Requests of a trace that are taken."""
ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2**31, 2**63, -(2**63), 10**30, 0.5, -0.0, 1e308, float("inf"), float("nan"),
    "", "0", "-1", "auto", "null", "\x00", "é" * 50, "a" * 5000, "1" * 400, [], {}, [[]], [None], {"a": {}},
    [1] * 1000, ["full_attention"] * 9, "[" * 500, {"rope_type": None}, "${X}", "{{ .Values.x }}", "../../x",
)  # fmt: skip
BYTES = (
    b"",
    b"\x00",
    b"\xff\xfe",
    b"\r\n",
    b"{",
    b"[" * 300,
    b'"',
    b": ",
    b"- ",
    b"\t",
    b"&a *a",
    b"!!x ",
    b"1e999",
)


class TooLongError(Exception):
    """More CPU time than one file is worth."""


def configs() -> list[Any]:
    """The catalogue's configs."""
    lines = (ROOT / "src/kvroom/models/catalogue.json").read_text("utf-8").splitlines()
    found = []
    for line in lines:
        with suppress(ValueError):
            entry = json.loads(line.rstrip(","))
            found.append(entry["config"])
    return [config for config in found if isinstance(config, dict)]


def gguf(rng: random.Random) -> bytes:
    """A header with a few keys and tensors of a small Llama."""

    def text(word: str) -> bytes:
        return struct.pack("<Q", len(word)) + word.encode()

    arch = rng.choice(
        ("llama", "qwen3", "gemma3", "deepseek2", "mamba", "gpt-oss", "qwen3next", "bert")
    )
    keys = {"block_count": 2, "embedding_length": 256, "feed_forward_length": 512, "vocab_size": 512,
            "attention.head_count": 4, "attention.head_count_kv": 2, "context_length": 4096,
            "attention.key_length": 64, "attention.sliding_window": 512,
            "expert_count": 4, "expert_used_count": 2}  # fmt: skip
    pairs = [text("general.architecture") + struct.pack("<I", 8) + text(arch)]
    for name, value in keys.items():
        pairs.append(text(f"{arch}.{name}") + struct.pack("<II", 4, value))
    tensors = []
    for index in range(2):
        for name, shape in (("attn_q", (256, 256)), ("attn_k", (256, 128)), ("ffn_up", (256, 512))):
            head = text(f"blk.{index}.{name}.weight") + struct.pack("<I", 2)
            tensors.append(head + struct.pack("<QQIQ", *shape, rng.choice((0, 1, 2, 8, 12, 14)), 0))
    return b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs)) + b"".join(pairs + tensors)


SEEDS: dict[str, list[str]] = json.loads((ROOT / "benchmarks/fuzz_seeds.json").read_text("utf-8"))
"""Files that are right, by kind."""


def altered(value: Any, rng: random.Random) -> Any:
    """A JSON value with some of its parts replaced, taken away, doubled or nested."""
    made = json.loads(json.dumps(value))
    for _ in range(rng.choice((1, 1, 2, 3, 6))):
        holders = list(_holders(made))
        if not holders:
            return deepcopy(rng.choice(ODD))
        holder, key = rng.choice(holders)
        match rng.randrange(5):
            case 0:
                del holder[key]
            case 1 | 2:
                holder[key] = deepcopy(rng.choice(ODD))
            case 3:
                number = holder[key] if isinstance(holder[key], int | float) else 7
                with suppress(OverflowError):
                    holder[key] = number * rng.choice((-1, 0, 2, 3, 10**6, 10**12))
            case _:
                holder[key] = {"x": holder[key]} if rng.random() < 0.5 else [holder[key]] * 3
    return made


def _holders(value: Any, depth: int = 0) -> Any:
    if depth > 6:
        return
    pairs = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner in list(pairs)[:200]:
        yield value, key
        yield from _holders(inner, depth + 1)


def spoiled(data: bytes, rng: random.Random) -> bytes:
    """Bytes that were cut, doubled, flipped and filled."""
    made = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 8))):
        at = rng.randrange(len(made) + 1)
        end = min(len(made), at + rng.choice((1, 2, 8, 40)))
        match rng.randrange(7):
            case 0:
                del made[at:end]
            case 1:
                made[at:at] = rng.choice(BYTES)
            case 2:
                made[at:at] = made[at:end] * rng.choice((1, 3, 50))
            case 3:
                made[at:end] = rng.randbytes(end - at)
            case 4:
                del made[at:]
            case 5 if at < len(made):
                made[at] ^= 1 << rng.randrange(8)
            case _:
                made[at:at] = str(rng.choice(ODD))[:600].encode("utf-8", "replace")
    return bytes(made[:200_000])


def _spec(model: Any) -> Any:
    spec = load(model)
    return spec.params, sum(kind.stored_bytes(4096, BF16) * count for kind, count in spec.stores)


class Fuzz:
    """Kinds of files, made and read; ``folder`` is where those lie that are read from a path."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "file"
        self.configs = configs()
        self.kinds: tuple[tuple[str, Callable[[random.Random], Callable[[], Any]]], ...] = (
            ("config", self.config),
            ("gguf", self.gguf),
            ("yaml", self.yaml),
            ("trace", self.trace),
            ("log", self.log),
            ("benchmark", self.benchmark),
        )

    def made(self, index: int, seed: int) -> tuple[str, Callable[[], Any]]:
        """(the kind, what reads the file) of number ``index``."""
        rng = random.Random(f"{seed} {index}")
        name, make = self.kinds[index % len(self.kinds)]
        return name, make(rng)

    def _file(self, data: bytes, name: str) -> Path:
        path = self.path.with_name(name)
        path.write_bytes(data)
        return path

    def config(self, rng: random.Random) -> Callable[[], Any]:
        """A config by value, or as a file."""
        config = altered(rng.choice(self.configs), rng)
        drawn = rng.random()
        if drawn < 0.3:
            engine = rng.choice(("vllm", "sglang", "llama.cpp", "arithmetic"))
            return lambda: plan(Scenario(model={"config": config}, gpu="H100-SXM", engine=engine))
        if drawn < 0.8:
            return lambda: _spec({"config": config})
        path = self._file(spoiled(json.dumps(config).encode(), rng), "config.json")
        return lambda: _spec(str(path))

    def gguf(self, rng: random.Random) -> Callable[[], Any]:
        """A GGUF file."""
        path = self._file(spoiled(gguf(rng), rng), "model.gguf")
        return lambda: _spec(str(path))

    def yaml(self, rng: random.Random) -> Callable[[], Any]:
        """A manifest, a script or a command."""
        text = spoiled(rng.choice(SEEDS["yaml"]).encode(), rng).decode("utf-8", "replace")
        return lambda: read_command(text)

    def trace(self, rng: random.Random) -> Callable[[], Any]:
        """A trace."""
        path = self._file(
            spoiled(rng.choice(SEEDS["trace"]).encode(), rng),
            rng.choice(("t.jsonl", "t.csv", "t.json")),
        )
        return lambda: sum(1 for _ in islice(Trace(path), ROWS))

    def log(self, rng: random.Random) -> Callable[[], Any]:
        """A start-up log."""
        data = spoiled(rng.choice(SEEDS["log"]).encode(), rng)
        return lambda: read_log(io.BytesIO(data))

    def benchmark(self, rng: random.Random) -> Callable[[], Any]:
        """A benchmark's output."""
        path = self._file(spoiled(rng.choice(SEEDS["benchmark"]).encode(), rng), "out.json")
        return lambda: read_benchmark(str(path))


def _too_long(signum: int, frame: object) -> None:
    raise TooLongError


def main(argv: list[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int)
    asked = parser.parse_args(argv)
    limit = MEGABYTES * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    signal.signal(signal.SIGPROF, _too_long)
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    longest: dict[str, tuple[float, int]] = defaultdict(lambda: (0.0, 0))
    findings: list[str] = []
    indices = range(asked.first, asked.first + asked.count) if asked.only is None else [asked.only]
    with tempfile.TemporaryDirectory() as folder:
        fuzz = Fuzz(Path(folder))
        for index in indices:
            kind, read = fuzz.made(index, asked.seed)
            begun = time.process_time()
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            try:
                read()
                counts[kind]["answered"] += 1
            except KvroomError as error:
                counts[kind]["refused"] += 1
                if asked.only is not None:
                    print(error)
            except (Exception, MemoryError) as error:
                counts[kind]["findings"] += 1
                where = traceback.extract_tb(error.__traceback__)[-1]
                findings.append(
                    f"{index} {kind}: {type(error).__name__}: {str(error)[:120]} ({where.name})"
                )
                if asked.only is not None:
                    traceback.print_exc()
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
            longest[kind] = max(longest[kind], (time.process_time() - begun, index))
    print(f"{'kind':10}{'files':>8}{'answered':>10}{'refused':>9}{'findings':>10}{'longest':>10}")
    for kind, count in counts.items():
        seconds, index = longest[kind]
        cells = f"{count['answered']:10}{count['refused']:9}{count['findings']:10}"
        print(f"{kind:10}{sum(count.values()):8}{cells}{seconds:8.2f} s  (of number {index})")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    spent = f"most memory {peak:.0f} MiB of {MEGABYTES}; CPU {time.process_time():.0f} s"
    print(f"{len(findings)} findings; {spent}")
    print(*findings[:200], sep="\n")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
