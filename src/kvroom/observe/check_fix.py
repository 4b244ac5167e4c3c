"""The flags that make a deployment start, put into its file: a patch, and only one that was read back."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

from kvroom.errors import KvroomError
from kvroom.launchers.commands import read_start, starts_of, stated_rest
from kvroom.launchers.nearby import NOWHERE, Nearby
from kvroom.launchers.starts import Start
from kvroom.observe.check import Checker
from kvroom.observe.check_remedy import Flags, remedy
from kvroom.planner.plan import work


def patch(checker: Checker, name: str, text: str) -> str:
    """A unified diff of ``text`` in which every deployment that would not start does; "" where none is to
    be had."""
    fixed = text
    nearby = NOWHERE if name == "-" else Nearby(name)
    for at, start in enumerate(starts_of(text, checker.settings, nearby)):
        if not start.command.several_starts:
            fixed = _mended(checker, fixed, at, start, nearby) or fixed
    before, after = text.splitlines(keepends=True), fixed.splitlines(keepends=True)
    return "".join(difflib.unified_diff(before, after, f"a/{name}", f"b/{name}"))


def _mended(checker: Checker, text: str, at: int, start: Start, nearby: Nearby) -> str | None:
    """``text`` in which start number ``at`` starts; None where it does anyway, or nothing helps."""
    try:
        command = read_start(start, stated_rest(text), model_stated="model" in checker.keys)
        scenario, _ = checker.scenario(start, command)
        workings = work(scenario)
    except KvroomError:
        return None
    if workings.plan.verdict.starts:
        return None
    flags = remedy(scenario, workings, start.command)
    for edited in _edits(text, at, start, flags) if flags else ():
        if _starts(checker, edited, at, nearby):
            return edited
    return None


def _starts(checker: Checker, text: str, at: int, nearby: Nearby) -> bool:
    """Whether start number ``at`` of ``text`` starts."""
    try:
        start = list(starts_of(text, checker.settings, nearby))[at]
        command = read_start(start, stated_rest(text), model_stated="model" in checker.keys)
        return work(checker.scenario(start, command)[0]).plan.verdict.starts
    except (KvroomError, IndexError):
        return False


def _edits(text: str, at: int, start: Start, flags: Flags) -> Iterator[str]:
    """``text`` with the flags in it, in every way that they may be written there."""
    lines = text.splitlines(keepends=True)
    first = max(0, start.line - 1)
    typed = {start.command.typed(name): str(value) for name, value in flags.items()}
    kept = list(lines)
    missing: list[str] = []
    for flag, value in typed.items():
        spellings = {flag, flag.replace("-", "_").replace("__", "--", 1)}
        pattern = re.compile(
            rf"({'|'.join(map(re.escape, spellings))})([ \t]+|=|['\"],?\s+['\"]?)([\w.$%{{}}]+)"
        )
        here = next(
            (index for index in range(first, len(kept)) if pattern.search(kept[index])), None
        )
        if here is None:
            missing += [flag, value]
        else:
            kept[here] = pattern.sub(lambda m, v=value: m[1] + m[2] + v, kept[here], count=1)  # type: ignore[misc]
    if not missing:
        yield "".join(kept)
        return
    words = " ".join(missing)
    program = re.compile(
        "(" + "|".join(r"\s+".join(map(re.escape, program)) for program in start.command.programs)
        + r")(\s+(?![-\\&|;])(?:\"[^\"]*\"|'[^']*'|[^\s\\\"']+))?"
    )  # fmt: skip
    for index in range(first, len(kept)):
        if match := program.search(kept[index]):
            line = f"{kept[index][: match.end()]} {words}{kept[index][match.end() :]}"
            yield "".join([*kept[:index], line, *kept[index + 1 :]])
            break
    pairs = [f"{f}={v}" for f, v in zip(missing[::2], missing[1::2], strict=True)]
    for index in range(first, len(kept)):
        if re.match(r"\s*-?\s*(args|extraArgs|command):\s*$", kept[index]) and index + 1 < len(
            kept
        ):
            indent = re.match(r"\s*", kept[index + 1])
            dash = f"{indent[0] if indent else ''}- "
            items = [f'{dash}"{pair}"\n' for pair in pairs]
            end = index + 1
            while end < len(kept) and kept[end].startswith(dash):
                end += 1
            yield "".join([*kept[:end], *items, *kept[end:]])
        elif match := re.search(
            r"(args|command|extraArgs|CMD|ENTRYPOINT)(\"?:)?\s*\[.*(?=\])", kept[index]
        ):
            items = [f', "{pair}"' for pair in pairs]
            line = kept[index][: match.end()] + "".join(items) + kept[index][match.end() :]
            yield "".join([*kept[:index], line, *kept[index + 1 :]])
        elif match := re.match(
            r"\s*command:\s*(?:--?\w|vllm|python).*(?<!\\)$", kept[index].rstrip("\n")
        ):
            yield "".join([*kept[:index], f"{match[0]} {words}\n", *kept[index + 1 :]])
