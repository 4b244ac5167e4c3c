"""The commands that README and docs show, run and held against the output printed below them.

A ``console`` block holds ``$ kvroom …`` lines, each followed by what it prints; a line ``…`` stands for
any lines, ``exit status N`` for a status other than 0. They run in ``docs/examples``, in 80 columns.

    shown.py           name the outputs that differ (exit status 1 if any does)
    shown.py --write   put in what the commands print today; where a block has ``…``, as many lines as
                       before from the first line of each part on
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "docs" / "examples"
BLOCK = re.compile(r"(?P<fence>^ *```)console\n(?P<body>.*?)^ *```", re.MULTILINE | re.DOTALL)
ANY = "…"


def pages() -> list[Path]:
    """README and every page of the documentation."""
    written = [p for p in (ROOT / "docs").rglob("*.md") if "_" not in p.parent.name]
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(written)]


@dataclass(frozen=True)
class Shown:
    """One command with the output printed below it."""

    page: Path
    command: str
    output: str

    @property
    def name(self) -> str:
        """Where it stands, for a report."""
        return f"{self.page.relative_to(ROOT)}: {self.command}"


def shown(page: Path) -> Iterator[Shown]:
    """The ``$ kvroom`` commands of a page, in order."""
    for block in BLOCK.finditer(page.read_text("utf-8")):
        for typed, output in _parts(block["body"]):
            if typed.startswith("kvroom "):
                yield Shown(page, joined(typed), output)


def _parts(body: str) -> Iterator[tuple[str, str]]:
    """Each command of a block as it is typed, and the output below it."""
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        typed = re.match(r"(?:.*\\\n)*.*", part)
        assert typed
        yield typed[0], tidy(part[typed.end() :])


def joined(typed: str) -> str:
    """A command on one line."""
    return re.sub(r"\s*\\\n\s*", " ", typed)


def tidy(text: str) -> str:
    """``text`` without trailing blanks and without empty lines at its ends."""
    return "\n".join(line.rstrip() for line in text.split("\n")).strip("\n")


def run(command: str) -> str:
    """What a command prints, both streams, and its exit status where that is not 0."""
    from click.testing import CliRunner

    from kvroom.ui.cli.main import main

    here = Path.cwd()
    os.chdir(EXAMPLES)
    try:
        done = CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1"}).invoke(
            main, shlex.split(command)[1:], prog_name="kvroom"
        )
    finally:
        os.chdir(here)
    status = f"\nexit status {done.exit_code}" if done.exit_code else ""
    # How far a simulation is is told by the clock, so only on a slow machine.
    output = re.sub(
        r"^[\d,]+( of [\d,]+)? requests done, .*\n", "", done.output, flags=re.MULTILINE
    )
    return tidy(tidy(output) + status)


def agrees(said: str, printed: str) -> bool:
    """Whether ``printed`` is what the page says, ``…`` standing for any lines."""
    parts = [re.escape(p) for p in re.split(rf"^{ANY}$", said, flags=re.MULTILINE)]
    return re.fullmatch(".*".join(parts), printed, re.DOTALL) is not None


def cut_like(said: str, printed: str) -> str:
    """``printed`` with left out what ``said`` leaves out: each part is found by its first line."""
    parts = [p.strip("\n") for p in re.split(rf"^{ANY}$", said, flags=re.MULTILINE)]
    if len(parts) == 1:
        return printed
    lines = printed.split("\n")
    made = []
    for i, part in enumerate(parts):
        first, size = part.split("\n")[0], len(part.split("\n"))
        if first and i and first not in lines:
            raise SystemExit(f"{first!r} is printed no longer: mend the page by hand")
        start = lines.index(first) if first and i else 0
        made.append("\n".join(lines[start : start + size]) if part else "")
    return f"\n{ANY}\n".join(made).strip("\n")


def rewritten(text: str) -> str:
    """A page's text with today's outputs."""

    def block(match: re.Match[str]) -> str:
        made = []
        for typed, said in _parts(match["body"]):
            ours = typed.startswith("kvroom ")
            printed = cut_like(said, run(joined(typed))) if ours else said
            made.append(f"$ {typed}\n{printed}".rstrip())
        body = "\n\n".join(made)
        return f"{match['fence']}console\n{body}\n```"

    return BLOCK.sub(block, text)


def main(arguments: list[str]) -> int:
    """The command."""
    if arguments == ["--write"]:
        for page in pages():
            page.write_text(rewritten(page.read_text("utf-8")), "utf-8")
        return 0
    if arguments:
        print(__doc__)
        return 2
    stale = [
        s.name for page in pages() for s in shown(page) if not agrees(s.output, run(s.command))
    ]
    print("\n".join(stale) or "every command shown prints what its page says")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
