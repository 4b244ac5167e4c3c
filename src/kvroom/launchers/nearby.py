"""What stands around a launch file: files that it sources, variables of containers, the machine's cards.

They are read, never run, and only where the launch file itself was given by its path.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from kvroom.records import dataclass

MAX_CHARACTERS = 200_000
_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_]\w*)\s*=\s*(.*?)\s*")


@dataclass(frozen=True)
class Nearby:
    """Reads files by the names that the launch file at ``path`` gives them; without a path none. ``cards``
    is how many a machine has, where that is known."""

    path: str = ""
    cards: int | None = None

    def text(self, name: str) -> str | None:
        """The text of a file; None where there is none, or nothing may be read."""
        if not self.path or not name or "\0" in name:
            return None
        for place in (Path(name), Path(self.path).parent / name):
            try:
                if place.is_file():
                    with place.open(encoding="utf-8", errors="replace") as file:
                        return file.read(MAX_CHARACTERS)
            except (OSError, ValueError):
                continue
        return None

    def variables(self, name: str) -> Mapping[str, str]:
        """The variables of a file of ``NAME=VALUE`` lines, as docker and compose read it."""
        found: dict[str, str] = {}
        for line in (self.text(name) or "").splitlines():
            match = _LINE.fullmatch(line)
            if match is not None:
                value = match[2]
                quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
                found[match[1]] = value[1:-1] if quoted else re.sub(r"\s+#.*", "", value)
        return found


NOWHERE = Nearby()
