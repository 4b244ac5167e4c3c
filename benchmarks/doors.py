"""How many launch files of folders are read, and what of it is right: ``python benchmarks/doors.py FOLDER``.

Every file is checked as ``kvroom check`` does. Read is what names each deployment that it starts: an answer,
or what is to be said (a variable, a model that the catalogue has not). Resolved is what leaves no variable
open, answered what has a verdict. ``NAME.json`` beside a file holds what it is checked with
(``{"gpu": "H100-SXM:8", "set": {"TP": "8"}}``) and, under ``truth``, what is right: the words that a shell
comes to, from the engine's own command on (``["serve", …]``), or keys of each Scenario; ``set.json`` is for
all files of a folder. Prints a line a kind, the files that were not read, and the wrong answers; exit status
1 with any.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kvroom.errors import KvroomError
from kvroom.launchers.commands import starts_of
from kvroom.launchers.manifests import is_manifest
from kvroom.launchers.nearby import Nearby
from kvroom.launchers.unit_files import kind_of
from kvroom.observe.check import Checked, Checker, expectations

GPU = "H100-SXM:8"
OPEN = ("is not set by the command", "are not set by the command")


def kind(text: str) -> str:
    """Which kind of file a text is."""
    return kind_of(text) or ("manifest" if is_manifest(text) else "script")


def settings_of(path: Path) -> Mapping[str, Any]:
    """What a file is checked with, and what is right of it."""
    found: dict[str, Any] = {"gpu": GPU, "set": {}}
    for place in (path.with_name("set.json"), path.with_name(path.name + ".json")):
        if place.is_file():
            said = json.loads(place.read_text("utf-8"))
            found = {**found, **said, "set": {**found["set"], **said.get("set", {})}}
    return found


def checked(path: Path, text: str, given: Mapping[str, Any]) -> list[Checked]:
    """Its deployments."""
    name, _, count = given["gpu"].partition(":")
    keys: dict[str, Any] = {"gpu": name, "gpu_count": int(count or 1)}
    keys |= {"model": given["model"]} if "model" in given else {}
    checker = Checker(keys, given["set"], expectations(""), lambda *_: {})
    return checker.file(str(path), text, nearby=Nearby(str(path), keys["gpu_count"]))


def wrong(text: str, path: Path, given: Mapping[str, Any], rows: list[Checked]) -> Iterator[str]:
    """What differs from the truth."""
    truth = given.get("truth")
    if truth is None:
        return
    if truth and isinstance(truth[0], str):
        cards = int(given["gpu"].partition(":")[2] or 1)
        first = next(iter(starts_of(text, given["set"], Nearby(str(path), cards))), None)
        words = [] if first is None else first.words
        if words != truth[1:]:
            yield f"is read as {' '.join(words)[:200]}, not {' '.join(truth[1:])[:200]}"
        return
    if len(truth) != len(rows):
        yield f"{len(rows)} deployments, not {len(truth)}"
    for row, right in zip(rows, truth, strict=False):
        got = row.scenario or {}
        odd = {key: got.get(key) for key, value in right.items() if got.get(key) != value}
        if odd:
            yield f"line {row.line}: {odd}"


def main(folders: list[str]) -> int:
    """The command."""
    if not folders:
        raise SystemExit(__doc__)
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    lines: list[str] = []
    for path in sorted(p for f in folders for p in Path(f).rglob("*") if p.is_file()):
        if path.suffix == ".json" or path.stat().st_size > 200_000:
            continue
        text = path.read_text("utf-8", "replace")
        given = settings_of(path)
        if given.get("skip"):
            continue
        count = counts[kind(text)]
        count["files"] += 1
        try:
            rows = checked(path, text, given)
            odd = list(wrong(text, path, given, rows))
        except KvroomError as error:
            lines.append(f"not read  {path}: {error}")
            continue
        except Exception as error:  # what is looked for
            count["crashed"] += 1
            lines.append(f"crashed   {path}: {type(error).__name__}: {error}")
            continue
        unread = [row for row in rows if row.status == "unreadable"]
        starts = [row for row in rows if row.engine is not None]
        count["read"] += bool(starts)
        count["resolved"] += bool(starts) and not any(
            says in row.sentence for row in unread for says in OPEN
        )
        count["answered"] += bool(starts) and not unread
        count["checked"] += "truth" in given
        count["wrong"] += bool(odd)
        lines += [f"wrong     {path}: {one}" for one in odd]
        lines += [f"not read  {path}: {row.sentence}" for row in unread[:1]]
    names = ("files", "read", "resolved", "answered", "checked", "wrong", "crashed")
    print(f"{'kind':12}" + "".join(f"{name:>10}" for name in names))
    for name, count in sorted(counts.items()):
        print(f"{name:12}" + "".join(f"{count[column]:10}" for column in names))
    print(*lines, sep="\n")
    return int(any(count["crashed"] or count["wrong"] for count in counts.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
