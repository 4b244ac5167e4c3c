"""Refresh the catalogue from published configs: ``refresh.py FOLDER [--json] [--strict]``.

A config is ``OWNER__NAME.json``, or ``config.json`` in a folder of that name. Prints model types that have
no reader (and by which class or keys they are read), ids that the catalogue does not know, and figures of
those it knows that the published config has otherwise: parameters, limit, weights' width, cache bytes. Exit
status 1 where figures differ or a config cannot be read; ``--strict``: where a type has no reader too.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kvroom.errors import KvroomError
from kvroom.models import catalogue, hf, names
from kvroom.models.dtypes import BF16
from kvroom.models.load import load
from kvroom.models.spec import ModelSpec

LENGTHS = (1_024, 131_072)
SETTLED = {
    "CohereForAI/c4ai-command-r-plus": "its config states 8,192 positions, its card and engines 131,072",
    "meta-llama/Llama-2-13b-hf": "an early config of it stated 2,048 positions",
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": "that config leaves its vision tower to the defaults",
}
"""Differences that are understood: the catalogue is right."""


@dataclass
class Refresh:
    """What a folder of configs says beside the catalogue."""

    same: list[str] = field(default_factory=list)
    changed: dict[str, list[str]] = field(default_factory=dict)
    """Hub id → figures that the catalogue has otherwise."""
    settled: dict[str, str] = field(default_factory=dict)
    """Hub id → why its difference is none."""
    new: dict[str, str] = field(default_factory=dict)
    """Hub id → how its name is read."""
    unread: dict[str, str] = field(default_factory=dict)
    """Hub id → why its config cannot be read."""
    no_reader: dict[str, dict[str, str]] = field(default_factory=dict)
    """Model type → hub id → what it is read by in place of a reader."""

    def lines(self) -> Iterator[str]:
        """The report, the gravest first."""
        for hub_id, why in self.unread.items():
            yield f"not read   {hub_id}: {why}"
        for hub_id, odd in self.changed.items():
            yield from (f"changed    {hub_id}: {line}" for line in odd)
        for hub_id, why in self.settled.items():
            yield f"settled    {hub_id}: {why}"
        for kind, ids in self.no_reader.items():
            for hub_id, how in ids.items():
                yield f"no reader  {kind} ({hub_id}): {how}"
        for hub_id, reading in self.new.items():
            yield f"new        {hub_id}" + (f": {reading}" if reading else "")
        yield (
            f"{len(self.same)} as published, {len(self.changed)} changed, {len(self.settled)} settled, "
            f"{len(self.new)} not in the catalogue, {len(self.no_reader)} model types without a reader, "
            f"{len(self.unread)} not read"
        )


def configs(folder: Path) -> Iterator[tuple[str, Path]]:
    """(hub id, config) of everything in a folder."""
    for path in sorted(folder.rglob("*.json")):
        name = path.parent.name if path.name == "config.json" else path.stem
        if "__" in name:
            yield name.replace("__", "/", 1), path


def differences(ours: ModelSpec, published: ModelSpec) -> list[str]:
    """What the catalogue says otherwise than the published config."""
    pairs = [
        ("parameters", ours.params, published.params),
        ("active parameters", ours.active_params, published.active_params),
        ("limit", ours.max_context_tokens, published.max_context_tokens),
        (
            "weights",
            ours.quantisation.name if ours.quantisation else ours.dtype,
            published.quantisation.name if published.quantisation else published.dtype,
        ),
    ]
    for tokens in LENGTHS:
        held = [
            sum(k.stored_bytes(tokens, BF16, m.encoder_tokens) * n for k, n in m.stores)
            for m in (ours, published)
        ]
        pairs.append((f"cache of {tokens:,} tokens", *held))
    return [f"{what} {a}, published {b}" for what, a, b in pairs if a != b]


def refresh(folder: Path) -> Refresh:
    """What the configs of ``folder`` say; KvroomError where it has none."""
    found = Refresh()
    for hub_id, path in configs(folder):
        known = catalogue.known(hub_id) is not None
        if not known:
            reading = names.read(hub_id, catalogue.known)
            found.new[hub_id] = reading.words if reading else ""
        try:
            config = json.loads(path.read_text("utf-8"))
            published = load({"config": config})
        except (KvroomError, ValueError) as error:
            found.unread[hub_id] = str(error)
            continue
        kind = str(
            config.get("model_type") or config.get("text_config", {}).get("model_type") or "none"
        )
        if not hf.has_reader(kind):
            how = next((warning for warning in published.warnings), "by its class")
            found.no_reader.setdefault(kind, {})[hub_id] = how
        if known and (odd := differences(catalogue.find(hub_id), published)):
            if hub_id in SETTLED:
                found.settled[hub_id] = SETTLED[hub_id]
            else:
                found.changed[hub_id] = odd
        elif known:
            found.same.append(hub_id)
    if not any(vars(found).values()):
        fix = "Name configs OWNER__NAME.json, or put each as config.json into a folder OWNER__NAME."
        raise KvroomError("FOLDER", str(folder), "has no published configs", fix)
    return found


def main(arguments: list[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument("--strict", action="store_true", help="a type without a reader fails too")
    given = parser.parse_args(arguments)
    try:
        found = refresh(given.folder)
    except KvroomError as error:
        print(error, file=sys.stderr)
        return 2
    if given.json:
        print(json.dumps(vars(found), indent=1))
    else:
        print(*found.lines(), sep="\n")
    return 1 if found.changed or found.unread or (given.strict and found.no_reader) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
