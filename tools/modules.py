"""docs/modules.md: every module in one line, the first of its docstring. ``--write`` puts it there."""

from __future__ import annotations

import ast
import sys
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src/kvroom"
PAGE = ROOT / "docs/modules.md"
HEAD = """# The modules

One line each, by room; [how they hang together](architecture.md). `make modules` writes this page anew.
"""


def modules() -> list[tuple[str, str]]:
    """(Path within the package, what the module says of itself) of each, in the order of the rooms."""
    found = []
    for path in sorted(SOURCE.rglob("*.py"), key=lambda p: (p.parent.as_posix(), p.name)):
        text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
        if path.name != "__init__.py" or "\n" in text or path.parent == SOURCE:
            found.append(
                (
                    path.relative_to(SOURCE).as_posix(),
                    " ".join(text.split("\n\n")[0].split()).replace("``", "`"),
                )
            )
    return found


def page() -> str:
    """The page's text."""
    parts = [HEAD]
    for room, rows in groupby(modules(), key=lambda m: m[0].rpartition("/")[0]):
        lines = [f"| `{name.rpartition('/')[2]}` | {says} |" for name, says in rows]
        title = f"{room}/" if room else "the package itself"
        parts.append("\n".join((f"## {title}\n", "| module | |", "|---|---|", *lines)) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page(), "utf-8")
    else:
        print(page(), end="")
