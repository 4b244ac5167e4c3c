"""Devices and machines from what people write: an inline card, a TOML or JSON file, a name.

An inline card has ``name``, ``memory_bytes`` (a number, or ``80GiB``) and ``memory_bytes_per_s``,
and may have ``flops_per_s`` by dtype, ``link_bytes_per_s`` and ``host_link_bytes_per_s`` (one
direction), ``vendor`` (``cpu`` for a CPU), ``compute_capability``, ``usd_per_hour`` and ``tdp_w``. A
machine file holds the same keys, or all of Device's, and may add ``tiers``, ``links``, ``count`` and
``device`` (a catalogue name or a table, beside which ``usd_per_hour`` is its price here). Everything
else is a KvroomError.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from kvroom.errors import KvroomError
from kvroom.hardware.catalogue import INLINE, find
from kvroom.hardware.checks import check_mapping, check_size
from kvroom.hardware.device import REST, Device, Link, Source, Tier
from kvroom.hardware.node import Machine, device_tiers, parse_items

MAX_FILE_BYTES = 1_000_000
_INLINE_KEYS = (
    "name",
    "memory_bytes",
    "memory_bytes_per_s",
    "flops_per_s",
    "link_bytes_per_s",
    "host_link_bytes_per_s",
    "vendor",
    "compute_capability",
    "usd_per_hour",
    "tdp_w",
)
_MACHINE_KEYS = ("tiers", "links", "count", "device")
_DEVICE_KEYS = tuple(field.name for field in fields(Device))
_SUFFIXES = (".toml", ".json")
GIVEN = Source("assumed", "given by the question")
IN_FILE = Source("assumed", "given by a machine file")


def device_from_dict(value: Any, source: Source = GIVEN) -> Device:
    """A Device from an inline card; its bytes count as sold, driver's and visible alike.

    Raises KvroomError (fields ``gpu.…``) for unknown keys, naming the nearest, missing ones, and
    figures out of range. ``source`` is recorded for all its figures.
    """
    return _from_inline(value, source, _INLINE_KEYS)


def _from_inline(value: Any, source: Source, known: tuple[str, ...]) -> Device:
    card = dict(check_mapping("gpu", value, known))
    for key in _INLINE_KEYS[:3]:
        if card.get(key) is None:
            raise KvroomError(f"gpu.{key}", None, "is missing", INLINE)
    size = check_size("gpu.memory_bytes", card.pop("memory_bytes"))
    rest = {key: value for key, value in card.items() if value is not None}
    for key, field in (("link_bytes_per_s", "scale_up"), ("host_link_bytes_per_s", "host_link")):
        rate = rest.pop(key, None)
        if rate is not None:
            table = {"name": field, "bytes_per_s": rate, "source": str(source)}
            rest[field] = _renamed(table, f"gpu.{key}")
    rest.setdefault("sources", {REST: str(source)})
    for key in ("sold_bytes", "driver_bytes", "visible_bytes"):
        rest.setdefault(key, size)
    return Device.from_dict(rest)


def _renamed(table: dict[str, Any], field: str) -> Link:
    """A Link whose error names the inline key that gave its rate."""
    try:
        return Link.from_dict(table)
    except KvroomError as error:
        raise KvroomError(field, error.value, error.message, error.fix) from None


def load_machine(path: str | Path) -> Machine | Device:
    """The machine (or, where the file has no tiers, links or count, the device) that a file tells.

    ``.toml`` or ``.json``, at most 1 MB, UTF-8. Raises KvroomError (field ``gpu``) for a file that
    is missing, too large, binary, cut short, or that tells no machine.
    """
    name = str(path)
    table = _read_table(Path(path), name)
    if not isinstance(table, Mapping):
        raise KvroomError("gpu", name, "does not hold a table", INLINE)
    extra = {
        machine_key: table[machine_key]
        for machine_key in _MACHINE_KEYS
        if table.get(machine_key) is not None
    }
    rest = {key: value for key, value in table.items() if key not in _MACHINE_KEYS}
    if "device" in extra:
        check_mapping("gpu", rest, ("name", "usd_per_hour"))
        device = resolve_in_file(extra["device"])
        if rest.get("usd_per_hour") is not None:
            sources = {**device.sources, "usd_per_hour": IN_FILE}
            device = replace(device, usd_per_hour=rest["usd_per_hour"], sources=sources)
    else:
        device = resolve_in_file(rest)
    if not extra:
        return device
    tiers: tuple[Tier, ...] = parse_items(Tier, extra.get("tiers"), "gpu.tiers")
    links: tuple[Link, ...] = parse_items(Link, extra.get("links"), "gpu.links")
    standard = Machine.standard(device, extra.get("count", 1))
    return Machine(
        name=rest.get("name", standard.name),
        device=device,
        count=standard.count,
        tiers=_merged(tiers, device_tiers(device)) if tiers else standard.tiers,
        links=links or standard.links,
    )


def _merged(given: tuple[Tier, ...], own: tuple[Tier, ...]) -> tuple[Tier, ...]:
    """The tiers given, with the device's own in front where the file leaves them out."""
    have = {t.name for t in given}
    if have & {"hbm", "dram", "vram"}:
        return given
    return (*(t for t in own if t.name not in have), *given)


def resolve_in_file(value: Any) -> Device:
    """A Device told inside a machine file: a catalogue name, an inline card, or a full table."""
    if isinstance(value, str):
        return find(value)
    if isinstance(value, Mapping) and "memory_bytes" not in value and "sold_bytes" in value:
        return Device.from_dict(value)
    return _from_inline(value, IN_FILE, _FILE_KEYS)


_FILE_KEYS = (
    *_INLINE_KEYS,
    *(device_key for device_key in _DEVICE_KEYS if device_key not in _INLINE_KEYS),
)


def _read_table(path: Path, name: str) -> Any:
    suffix = path.suffix.lower()
    if suffix not in _SUFFIXES:
        raise KvroomError("gpu", name, "is neither a .toml nor a .json file", INLINE)
    fix = "Give the path of a machine file (kvroom probe writes one) or a card's name."
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise KvroomError("gpu", name, "is no regular file", fix)
        with path.open("rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
    except KvroomError:
        raise
    except (OSError, ValueError) as error:
        why = "does not exist" if isinstance(error, FileNotFoundError) else "cannot be read"
        raise KvroomError("gpu", name, why, fix) from None
    if len(raw) > MAX_FILE_BYTES:
        raise KvroomError("gpu", name, "is larger than 1 MB", fix)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise KvroomError("gpu", name, "is not a text file", fix) from None
    try:
        if suffix == ".toml":
            import tomllib  # where a file is one

            return tomllib.loads(text)
        return json.loads(text)
    except RecursionError:
        raise KvroomError("gpu", name, "is nested too deeply", fix) from None
    except ValueError as error:
        why = f"is not whole {suffix[1:].upper()}: {str(error)[:120]}"
        raise KvroomError("gpu", name, why, "Mend the file, or write it anew.") from None


def resolve_machine(gpu: Any, count: int = 1) -> Machine:
    """The Machine that the ``gpu`` key names, with ``count`` devices where it names one device."""
    if isinstance(gpu, str) and gpu.strip().lower().endswith(_SUFFIXES):
        loaded = load_machine(gpu.strip())
        return loaded if isinstance(loaded, Machine) else Machine.standard(loaded, count)
    return Machine.standard(resolve(gpu), count)


def resolve(gpu: Any) -> Device:
    """The Device that the ``gpu`` key of a Scenario names: a name, a machine file, or a table.

    Raises KvroomError with field ``gpu`` or ``gpu.KEY``.
    """
    if isinstance(gpu, Device):
        return gpu
    if isinstance(gpu, str):
        if gpu.strip().lower().endswith(_SUFFIXES):
            loaded = load_machine(gpu.strip())
            return loaded.device if isinstance(loaded, Machine) else loaded
        return find(gpu)
    if isinstance(gpu, Mapping):
        return device_from_dict(gpu)
    raise KvroomError("gpu", gpu, "is neither a card's name nor a table", INLINE)
