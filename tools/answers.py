"""Every command's answers to three hundred questions, kept in a file and compared with it later.

    answers.py record FILE              ask all and write what was answered
    answers.py compare FILE [NAME …]    ask again; print each key that differs, exit status 1 if any does
    answers.py compare FILE --figures   the same without sentences: numbers, names and keys only

It calls the command's own entry point in this process and knows nothing else of kvroom, so that it
asks the same before and after its modules move. An answer is the exit status, what was printed
(parsed where it is JSON) and the files that were written.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import importlib
import json
import math
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from questions import Question, files, questions

HERE = Path(__file__).resolve().parent.parent
FROM_THE_TREE = ("docs/examples/watched.jsonl", "tests/golden/proof_vllm_0.32.0.json.gz")
SAME = 1e-9
"""Floats as near as this (relatively) are the same: sums may be taken in another order."""


def command() -> Any:
    """kvroom's command, of whatever tree is on the path."""
    return importlib.import_module("kvroom.__main__").main


def parsed(text: str) -> Any:
    """Printed text as the JSON that it is, as a list where each line is JSON, else its lines."""
    with contextlib.suppress(ValueError):
        return json.loads(text)
    lines = text.splitlines()
    with contextlib.suppress(ValueError):
        return [json.loads(line) for line in lines]
    return lines


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def answer(
    main: Any, question: Question, folder: Path, before: Mapping[str, bytes]
) -> dict[str, Any]:
    """What the command does with one question; the files that it writes are taken away again."""
    done = CliRunner().invoke(main, list(question.args), input=question.stdin, prog_name="kvroom")
    told: dict[str, Any] = {
        "asked": list(question.args),
        "status": done.exit_code,
        "stdout": parsed(done.stdout),
        "stderr": done.stderr.splitlines(),
    }
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        told["raised"] = repr(done.exception)
    written = {name: data for name, data in contents(folder).items() if before.get(name) != data}
    for name, data in written.items():
        told.setdefault("files", {})[name] = parsed(data.decode(errors="replace"))
        path = folder / name
        if name in before:
            path.write_bytes(before[name])
        else:
            path.unlink()
    return told


def ask(names: tuple[str, ...] = ()) -> dict[str, Any]:
    """All answers, by the questions' names; only of those that begin with one of ``names``, if any."""
    os.environ.update(COLUMNS="80", NO_COLOR="1", HF_HUB_OFFLINE="1", TZ="UTC")
    main = command()
    with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):
        folder = Path(place)
        for name, text in files().items():
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        for name in FROM_THE_TREE:
            data = (root() / name).read_bytes()
            path = folder / Path(name).name
            if path.suffix == ".gz":
                data, path = gzip.decompress(data), path.with_suffix("")
            path.write_bytes(data)
        before = contents(folder)
        return {
            q.name: answer(main, q, folder, before)
            for q in questions()
            if not names or q.name.startswith(names)
        }


def root() -> Path:
    """The tree whose kvroom is asked."""
    package = importlib.import_module("kvroom").__file__
    assert package is not None
    return Path(package).resolve().parents[2]


def differences(
    before: Any, after: Any, path: str, *, figures: bool
) -> Iterator[tuple[str, Any, Any]]:
    """Each key whose value differs: its path, before, after."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in [*before, *(k for k in after if k not in before)]:
            one, other = before.get(key, MISSING), after.get(key, MISSING)
            yield from differences(one, other, f"{path}.{key}", figures=figures)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for i, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from differences(one, other, f"{path}[{i}]", figures=figures)
    elif figures and sentences(before) and sentences(after):
        return
    elif not same(before, after):
        yield path, before, after


MISSING = "(none)"


def sentences(value: Any) -> bool:
    """Whether it is words for a reader, or a list of nothing else."""
    if isinstance(value, list):
        return all(map(sentences, value))
    return isinstance(value, str) and " " in value.strip()


def same(before: Any, after: Any) -> bool:
    """Equal, floats but for the order of their sums."""
    if isinstance(before, float) and isinstance(after, float):
        return math.isclose(before, after, rel_tol=SAME)
    return type(before) is type(after) and bool(before == after)


def short(value: Any) -> str:
    """A value in a line."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 160 else text[:157] + "…"


def main() -> int:
    """Record, or compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("do", choices=("record", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument("names", nargs="*", help="only questions whose names begin so")
    parser.add_argument("--figures", action="store_true", help="leave sentences out")
    args = parser.parse_args()
    answers = ask(tuple(args.names))
    if args.do == "record":
        text = json.dumps(answers, indent=1, sort_keys=True, ensure_ascii=False)
        args.file.write_text(text + "\n", encoding="utf-8")
        print(f"{len(answers)} answers in {args.file}")
        return 0
    recorded = json.loads(args.file.read_text(encoding="utf-8"))
    if args.names:
        recorded = {k: v for k, v in recorded.items() if k.startswith(tuple(args.names))}
    answers = json.loads(json.dumps(answers))
    found = list(differences(recorded, answers, "", figures=args.figures))
    for path, before, after in found:
        print(f"{path[1:]}: {short(before)} → {short(after)}")
    several = {path[1:].partition(".")[0] for path, *_ in found}
    print(
        f"{len(several)} of {len(recorded)} answers differ, in {len(found)} keys", file=sys.stderr
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
