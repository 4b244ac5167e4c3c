"""Which release brought and which dropped each flag: ``flag_releases.py ENGINE FOLDER [RELEASE …]``.

FOLDER holds a folder a release, called by its number, with the engine's own sources as its wheel has them.
Prints the ``[releases]`` section of its ``flags.ini``: ``name = since..last``, an end left out where the flag
was there in the oldest release looked at, or is in the newest. What no release says stands in none. Each
RELEASE is one that is not in FOLDER: it is taken to have what either of its neighbours has.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

from kvroom.engines.registry import engine_of
from kvroom.engines.releases import published

SOURCES = {
    "vllm": ("vllm/engine/arg_utils.py", "vllm/entrypoints/**/*.py", "vllm/utils/*.py"),
    "sglang": ("sglang/srt/server_args.py", "sglang/srt/arg_groups/**/*.py"),
    "lmdeploy": ("lmdeploy/cli/*.py",),
}
"""Where each engine's command line is made."""
CLASSES = re.compile(r"(Base)?FrontendArgs|(Async)?EngineArgs|ServerArgs")
"""Classes each of whose fields is a flag; in SGLang's ``fields`` every class is."""
FLAG = re.compile(r"--[a-zA-Z][\w.-]*")


def flags_in(folder: Path, patterns: tuple[str, ...]) -> set[str]:
    """Every flag that a release's sources name: whole texts such as ``--page-size``, fields of classes."""
    found: set[str] = set()
    for path in {path for pattern in patterns for path in folder.glob(pattern)}:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                if FLAG.fullmatch(node.value):
                    found.add(node.value.lstrip("-").replace("-", "_"))
            elif isinstance(node, ast.ClassDef) and (
                CLASSES.fullmatch(node.name) or path.parent.name == "fields"
            ):
                fields = (part.target for part in node.body if isinstance(part, ast.AnnAssign))
                found |= {field.id for field in fields if isinstance(field, ast.Name)}
    return found


def spans(folder: Path, engine: str, between: list[str]) -> dict[str, str]:
    """``since..last`` of each flag that kvroom knows and that is not in every release."""
    said = {
        at: (place.name, flags)
        for place in folder.iterdir()
        if (at := published(place.name)) and (flags := flags_in(place, SOURCES[engine]))
    }
    for name in between:
        if (at := published(name)) and at not in said:
            older, newer = (
                max(each for each in said if each < at),
                min(each for each in said if each > at),
            )
            said[at] = (name, said[older][1] | said[newer][1])
    releases = [said[at] for at in sorted(said)]
    command = engine_of(engine).command
    assert command is not None
    names = {*command.known, *command.key_of, *command.machine_flags.names}
    found: dict[str, str] = {}
    for name in sorted(names):
        there = [called for called, flags in releases if name in flags]
        if not there:
            continue
        first = "" if there[0] == releases[0][0] else there[0]
        last = "" if there[-1] == releases[-1][0] else there[-1]
        if first or last:
            found[name] = f"{first}..{last}"
    return found


if __name__ == "__main__":
    print("[releases]")
    for flag, span in spans(Path(sys.argv[2]), sys.argv[1], sys.argv[3:]).items():
        print(f"{flag} = {span}")
