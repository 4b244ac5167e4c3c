"""Hold the catalogue against a folder of published configs: ``catalogue_check.py FOLDER``.

A config is ``OWNER__NAME.json``, or ``config.json`` in a folder of that name. Prints the ids that the
catalogue does not know, and those whose parameters, limit, weights' width or cache bytes differ. Exit status
1 where anything differs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from kvroom.errors import KvroomError
from kvroom.models import catalogue, names
from kvroom.models.dtypes import BF16
from kvroom.models.load import load
from kvroom.models.spec import ModelSpec

LENGTHS = (1_024, 131_072)


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


def main(arguments: list[str]) -> int:
    """The command."""
    if len(arguments) != 1:
        raise SystemExit(__doc__)
    wrong = missing = right = 0
    for hub_id, path in configs(Path(arguments[0])):
        if catalogue.known(hub_id) is None:
            missing += 1
            reading = names.read(hub_id, catalogue.known)
            print(f"missing  {hub_id}" + (f": {reading.words}" if reading else ""))
            continue
        try:
            published = load({"config": json.loads(path.read_text("utf-8"))})
        except (KvroomError, ValueError) as e:
            print(f"not read {hub_id}: {e}")
            continue
        odd = differences(catalogue.find(hub_id), published)
        wrong += bool(odd)
        right += not odd
        for line in odd:
            print(f"differs  {hub_id}: {line}")
    print(f"{right} as published, {wrong} differ, {missing} not in the catalogue")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
