"""What releases said of themselves: one file an engine in ``tests/golden/followed``.

Of a case it holds the figures by the release from which they were the same up to the next one named (null:
that release could not be asked it); ``releases`` are those that were asked, ``alike`` those whose source is
another's but for files that have no part in it. Runs of the scheduler's scripts, which lie in
``tests/golden/vllm_scheduler.json``, are held likewise: steps, totals, each request's figures.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

FOLLOWED = Path(__file__).resolve().parents[1] / "tests" / "golden" / "followed"
Said = dict[str, dict[str, Any]]
"""What each release said by what it was asked, ``cases`` or ``scripts`` by name: figures, or None."""


def in_order(version: str) -> tuple[int, ...]:
    """A release's numbers, posts among them."""
    return tuple(map(int, re.findall(r"\d+", version)))


class FollowedRows:
    """What the releases of one engine said: ``cases`` and ``scripts``, and the ``scenarios`` of the cases."""

    def __init__(self, engine: str, folder: Path = FOLLOWED) -> None:
        self.engine, self.path = engine, folder / f"{engine}.json"
        data: dict[str, Any] = {"releases": [], "cases": [], "scripts": []}
        if self.path.is_file():
            data = json.loads(self.path.read_text())
        self.releases: list[str] = data["releases"]
        self.alike: dict[str, str] = data.get("alike", {})
        self.scenarios = {row["name"]: row["scenario"] for row in data["cases"]}
        self.cases = self._unrolled(data["cases"])
        self.scripts = self._unrolled(data["scripts"])

    def _unrolled(self, rows: list[dict[str, Any]]) -> Said:
        made: Said = {}
        for row in rows:
            now, made[row["name"]] = None, {}
            for version in self.releases:
                now = row["figures"].get(version, now)
                made[row["name"]][version] = now
        return made

    def _rolled(self, said: Said) -> Iterator[dict[str, Any]]:
        for name, figures in said.items():
            now, kept = None, {}
            for version in self.releases:
                told = figures.get(version)
                if told != now:
                    now = kept[version] = told
            scenario = {"scenario": self.scenarios[name]} if said is self.cases else {}
            yield {"name": name, **scenario, "figures": kept}

    def add(
        self, version: str, rows: list[dict[str, Any]], scripts: Mapping[str, Any] | None = None
    ) -> None:
        """A release's rows (``name``, ``scenario``, ``figures``) in place of what it said before. A case that
        is asked otherwise now has nothing of the others."""
        self.releases = sorted({*self.releases, version}, key=in_order)
        self.alike.pop(version, None)
        for said in (*self.cases.values(), *self.scripts.values()):
            said.pop(version, None)
        for row in rows:
            name = row["name"]
            if self.scenarios.get(name) != row["scenario"]:
                self.cases[name] = {}
            self.scenarios[name] = row["scenario"]
            self.cases[name][version] = json.loads(json.dumps(row["figures"]))
        for name, served in (scripts or {}).items():
            self.scripts.setdefault(name, {})[version] = json.loads(json.dumps(served))

    def of(self, version: str) -> Iterator[tuple[str, Any, list[Any]]]:
        """Name, scenario and figures of each case that ``version``, or one alike, was asked."""
        version = self.alike.get(version, version)
        for name, figures in self.cases.items():
            if figures.get(version) is not None:
                yield name, self.scenarios[name], figures[version]

    def runs(self, version: str) -> dict[str, Any]:
        """The runs of scripts that ``version``, or one alike, was asked to make."""
        version = self.alike.get(version, version)
        found = {name: runs.get(version) for name, runs in self.scripts.items()}
        return {name: run for name, run in found.items() if run is not None}

    def write(self) -> Path:
        """Write the file, a row a line."""
        heads = {"engine": self.engine, "releases": self.releases, "alike": self.alike}
        parts = [f' "{key}": {json.dumps(value)}' for key, value in heads.items() if value]
        for key, said in (("cases", self.cases), ("scripts", self.scripts)):
            rows = ",\n".join(f"  {json.dumps(row)}" for row in self._rolled(said))
            parts.append(f' "{key}": [\n{rows}\n ]' if rows else f' "{key}": []')
        self.path.parent.mkdir(exist_ok=True)
        self.path.write_text("{\n" + ",\n".join(parts) + "\n}\n")
        return self.path


def served(played: Mapping[str, Any]) -> list[Any]:
    """A script's run in short: its steps, totals, and the figures of each request."""
    requests = [list(each.values()) for each in played["requests"]]
    return [played["total_steps"], list(played["totals"].values()), requests]
