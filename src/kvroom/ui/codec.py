"""JSON in and out, and its schema (msgspec: strict, quick, knows dataclasses)."""

from __future__ import annotations

import json
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

from kvroom.errors import KvroomError
from kvroom.scenario.scenario import Scenario
from kvroom.ui import plain_json

_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
MAX_SCENARIO_BYTES = 20_000_000
"""A Scenario that carries a model's config by value stays far below this."""


@cache
def _msgspec() -> Any:
    """msgspec, loaded where JSON is first written; None in a browser, where looking for it costs as much as
    writing an answer."""
    try:
        import msgspec
    except ImportError:
        return None
    return msgspec


def encode(value: Any, *, pretty: bool = False, ascii_only: bool = False) -> str:
    """``value`` (dataclasses, dicts …) as JSON text; ``pretty`` on several lines.

    With ``ascii_only`` other characters are escaped, which changes no value.
    """
    msgspec = _msgspec()
    if msgspec is None:
        return plain_json.encode(value)
    raw = msgspec.json.encode(value)
    text = (msgspec.json.format(raw, indent=2) if pretty else raw).decode()
    return _NOT_ASCII.sub(lambda c: json.dumps(c[0])[1:-1], text) if ascii_only else text


def decode(text: str | bytes, field: str = "scenario", source: str | None = None) -> Any:
    """The value of strict JSON ``text``; KvroomError on ``field`` where it is none, naming the
    ``source`` (a file), or else how the text starts."""
    fix = "Give one JSON object, its keys in double quotes."
    start = source or (text[:40] if isinstance(text, str) else text[:40].decode("utf-8", "replace"))
    if len(text) > MAX_SCENARIO_BYTES:
        raise KvroomError(field, start, f"is longer than {MAX_SCENARIO_BYTES:,} bytes", fix)
    try:
        msgspec = _msgspec()
        return plain_json.decode(text) if msgspec is None else msgspec.json.decode(text)
    except ValueError as error:  # of both
        raise KvroomError(field, start, f"is not JSON ({error})", fix) from None
    except RecursionError:
        raise KvroomError(field, start, "is nested too deeply", fix) from None


def read_json(path: str, field: str) -> Any:
    """The value of a JSON file, or of one of TOML by its name (``-``: standard input); KvroomError on
    ``field``."""
    if path == "-":
        return decode(sys.stdin.buffer.read(MAX_SCENARIO_BYTES + 1), field)
    file = Path(path)
    try:
        if not file.is_file():
            raise KvroomError(field, path, "is not a file", "Give the path of a JSON file.")
        with file.open("rb") as stream:
            raw = stream.read(MAX_SCENARIO_BYTES + 1)
        return _toml(raw, field, path) if file.suffix == ".toml" else decode(raw, field, path)
    except (OSError, ValueError) as error:
        if isinstance(error, KvroomError):
            raise
        raise KvroomError(field, path, "cannot be read", "Check its name and rights.") from None


def _toml(raw: bytes, field: str, path: str) -> Any:
    """The value of a TOML file; KvroomError on ``field``."""
    import tomllib  # where such a file is given, and nowhere else

    if len(raw) > MAX_SCENARIO_BYTES:
        raise KvroomError(field, path, "is too large", "Give a file of one question.")
    try:
        return tomllib.loads(raw.decode("utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise KvroomError(field, path, f"is not TOML: {error}", "Check the file.") from None


def _any(kind: type) -> dict[str, Any]:
    """The schema of a value that may be anything JSON holds."""
    if kind is object:
        return {"description": "any JSON value"}
    raise NotImplementedError(kind)


def described(definitions: dict[str, Any], name: str, within: str) -> None:
    """Put what the registry says of each figure into the schema of ``name``, as deep as it goes.

    A definition that stands at several keys (one pool, one band) is described by the first of them.
    """
    from kvroom.answer.figures import registry

    known = registry()
    for key, value in definitions[name].get("properties", {}).items():
        at = f"{within}{key}"
        branches = value.get("anyOf", [value])
        items = [branche["items"] for branche in branches if "items" in branche]
        entry = known.get(at)
        if entry is not None and "description" not in value:
            value["description"] = entry.meaning + (f" ({entry.unit})" if entry.unit else "")
        for branch in (*branches, *items):
            inner = branch.get("$ref", "").rpartition("/")[2]
            if inner and inner != "Scenario":
                described(definitions, inner, f"{at}{'[]' if items else ''}.")


def _check_schema() -> dict[str, Any]:
    """The definitions of what ``check`` prints: ``Check``, and a ``Checked`` a deployment."""
    import msgspec

    from kvroom.observe.check import Checked

    _, definitions = msgspec.json.schema_components(
        [Checked], ref_template="#/$defs/{name}", schema_hook=_any
    )
    checked = definitions["Checked"]
    checked["properties"] |= {
        "finding": {"type": "boolean"},
        "reason": {"type": "string"},
        "fix": {"type": "string"},
    }
    checked["required"] = [*checked.get("required", []), "finding", "reason", "fix"]
    properties = {
        "exit_status": {"enum": [0, 1, 2]},
        "deployments": {"type": "array", "items": {"$ref": "#/$defs/Checked"}},
    }
    check = {
        "title": "Check",
        "type": "object",
        "properties": properties,
        "required": [*properties],
    }
    return {**definitions, "Check": check}


def schema() -> dict[str, Any]:
    """The JSON schema of Scenario, Plan and Check (draft 2020-12, definitions under ``$defs``)."""
    import msgspec

    from kvroom.answer.plan import Plan

    _, definitions = msgspec.json.schema_components(
        [Scenario, Plan], ref_template="#/$defs/{name}", schema_hook=_any
    )
    described(definitions, "Plan", "")
    definitions = _check_schema() | definitions
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "kvroom: a Scenario is the question, a Plan the answer, a Check that of launch files",
        "$defs": definitions,
    }
