"""Print the catalogue line of a model: ``catalogue_entry.py CONFIG.json NAME HUB_ID [ALIAS …]``.

Keeps of the config only the keys that its reader asked for and that have a value, so that a line holds a
model's shape and nothing else.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kvroom.models import hf

WHOLE = ("quantization_config", "rope_scaling", "rope_parameters")
LONGEST_RULE = 1500


class Asked(dict[str, Any]):
    """A config that notes which of its keys a reader looks at."""

    def __init__(self, raw: dict[str, Any]) -> None:
        super().__init__(
            {k: Asked(v) if isinstance(v, dict) and k not in WHOLE else v for k, v in raw.items()}
        )
        self.seen: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.seen.add(key)
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        self.seen.add(str(key))
        return super().__contains__(key)

    def __getitem__(self, key: str) -> Any:
        self.seen.add(key)
        return super().__getitem__(key)

    def kept(self) -> dict[str, Any]:
        """The keys looked at, nested ones likewise."""
        return dict(self._kept())

    def _kept(self) -> Iterator[tuple[str, Any]]:
        for key, value in self.items():
            if key not in self.seen or key == "_name_or_path":
                continue
            if isinstance(value, Asked):
                if value.kept():
                    yield key, value.kept()
            elif key == "quantization_config" and len(json.dumps(value)) > LONGEST_RULE:
                print(f"left out: a {key} of {len(json.dumps(value))} characters", file=sys.stderr)
            else:
                yield key, value


def entry(path: Path, name: str, hub_id: str, *aliases: str) -> str:
    """The line for the model whose config.json lies at ``path``."""
    raw = json.loads(path.read_text("utf-8"))
    asked = Asked(raw)
    before = hf.read(asked)
    config = asked.kept()
    after = hf.read(config)
    if (before.params, before.stores, before.layers) != (after.params, after.stores, after.layers):
        raise SystemExit(f"{name}: the kept keys do not give the same model")
    line = {
        "name": name,
        "id": hub_id,
        "aliases": list(aliases),
        "source": f"published config of {hub_id}",
        "config": config,
    }
    return json.dumps(line, ensure_ascii=False, separators=(",", ":"))


if __name__ == "__main__":
    if len(sys.argv) < 4:
        raise SystemExit(__doc__)
    print(entry(Path(sys.argv[1]), *sys.argv[2:]))
