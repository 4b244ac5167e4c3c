"""The known devices: ``catalogue.json``, one line a device, read when first asked for.

A name is matched whatever its case, spaces, hyphens, underscores and vendor words, and so are the
names that people type (``4090``) and that drivers print (``NVIDIA H100 80GB HBM3``). The file
writes bytes as ``81559MiB`` or ``80GB``; rates are plain numbers per second; ``host_link`` and
``sources`` may name a shared entry of the file's ``links`` and ``references``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from kvroom.errors import KvroomError, nearest
from kvroom.hardware.device import Device
from kvroom.hardware.mig import MARK, slice_of
from kvroom.hardware.mixed import cards_together, names_in
from kvroom.hardware.prices import listed

_FILE = Path(__file__).with_name("catalogue.json")
_SEPARATORS = str.maketrans("", "", " -_\t()/,+®™")
_VENDOR_WORDS = (
    "nvidia", "geforce", "tesla", "amd", "instinct", "radeon", "intel", "google", "cloud", "aws",
    "habana",
    "apple", "huawei", "graphics", "gpu",
)  # fmt: skip
_ENDS_IN_SIZE = re.compile(r"(.+?)[-_ ]?(\d{1,4}) ?GB", re.IGNORECASE)
_SIZE = re.compile(r"[0-9.]+[kmgtp]?i?b?")
MAX_NAME = 200
INLINE = (
    'Write a card\'s name, or an inline card such as {"name": "my-24gb", "memory_bytes": '
    '24000000000, "memory_bytes_per_s": 1e12}.'
)


def key_of(name: str) -> str:
    """``name`` as it is compared: lower case, no separators, no vendor words."""
    words = (part for part in name.lower().replace("_", " ").split() if part not in _VENDOR_WORDS)
    key = "".join(words).translate(_SEPARATORS)
    while word := next(
        (
            vendor_word
            for vendor_word in _VENDOR_WORDS
            if key.startswith(vendor_word) and key != vendor_word
        ),
        None,
    ):
        key = key.removeprefix(word)
    return key


@lru_cache(maxsize=1)
def _load() -> dict[str, Any]:
    data = json.loads(_FILE.read_text(encoding="utf-8"))
    index: dict[str, str] = {}
    for row in data["devices"]:
        for name in (row["name"], *row.get("aliases", ())):
            index.setdefault(key_of(name), row["name"])
    for key, name in list(index.items()):
        if key.startswith("rtx"):
            index.setdefault(key.removeprefix("rtx"), name)
    return {
        "rows": {row["name"]: row for row in data["devices"]},
        "index": index,
        "links": data["links"],
        "references": data["references"],
        "ambiguous": {key_of(key): value for key, value in data["ambiguous"].items()},
    }


@lru_cache(maxsize=512)
def _device(name: str) -> Device:
    data = _load()
    row = dict(data["rows"][name])
    for link in ("host_link", "scale_up"):
        if isinstance(row.get(link), str):
            row[link] = data["links"][row[link]]
    references: Mapping[str, str] = data["references"]
    row["sources"] = {key: references.get(value, value) for key, value in row["sources"].items()}
    usd, source = listed(name)
    if usd is not None:
        row |= {"usd_per_hour": usd, "sources": {**row["sources"], "usd_per_hour": source}}
    return Device.from_dict(row)


def find(name: Any) -> Device:
    """The device of that name or alias; KvroomError (field ``gpu``) names the nearest otherwise.

    A name that fits several cards is refused with their names; a bare size such as ``24GB`` is
    refused with how to write an inline card (``80GB`` alone is a card: the explainer's). Names joined with
    ``+`` are unlike cards together (``hardware.mixed``), ``H100-SXM:mig=3g.40gb`` a slice (``hardware.mig``).
    """
    if not isinstance(name, str) or not name.strip():
        raise KvroomError("gpu", name, "is not a card's name", INLINE)
    if len(name) > MAX_NAME:
        raise KvroomError("gpu", name, "is too long for a card's name", INLINE)
    if MARK in name:
        card, _, profile = name.partition(MARK)
        return slice_of(find(card), profile)
    data = _load()
    key = key_of(name)
    device = data["index"].get(key)
    if device is not None:
        return _device(device)
    if len(names := names_in(name)) > 1:
        return cards_together([find(part) for part in names])
    sized = _of_size(name)
    if sized is not None:
        return sized
    if _SIZE.fullmatch(key):
        raise KvroomError("gpu", name, "is a size, not a card", INLINE)
    several = data["ambiguous"].get(key) or _starting_with(key)
    if len(several) > 1:
        fix = f"Write one of {', '.join(several[:8])}."
        raise KvroomError("gpu", name, "may be several cards", fix)
    close = nearest(key, data["index"])
    best = list(dict.fromkeys([*several, *(data["index"][k] for k in close)]))[:3]
    fix = f"Did you mean {' or '.join(best)}?" if best else INLINE
    raise KvroomError("gpu", name, "is not a known card", fix)


def _of_size(name: str) -> Device | None:
    """A chip whose memory is its machine's, and sold in sizes: ``Apple-M4-Max-64GB``."""
    match = _ENDS_IN_SIZE.fullmatch(name.strip())
    base = _load()["index"].get(key_of(match[1])) if match else None
    device = _device(base) if base else None
    if match is None or device is None or not device.unified_memory:
        return None
    sold = int(match[2]) * 10**9

    def scaled(size: int | None) -> int | None:
        return None if size is None else size * sold // device.sold_bytes

    return replace(
        device,
        name=f"{device.name}-{match[2]}GB",
        aliases=(),
        sold_bytes=sold,
        driver_bytes=scaled(device.driver_bytes),
        visible_bytes=scaled(device.visible_bytes),
    )


def _starting_with(key: str) -> list[str]:
    """Cards whose name or alias starts with ``key`` (of three characters or more)."""
    if len(key) < 3:
        return []
    index = _load()["index"]
    return list(dict.fromkeys(name for one_key, name in index.items() if one_key.startswith(key)))


def names() -> list[str]:
    """The names of all known devices, in the file's order (by vendor and generation)."""
    return list(_load()["rows"])


def all_devices() -> list[Device]:
    """All known devices, in the order of ``names``."""
    return [_device(name) for name in names()]
