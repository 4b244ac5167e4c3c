"""Any CSV or JSONL, its columns named: ``arrival=t:ms,input=p,output=g``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvroom.errors import KvroomError, did_you_mean
from kvroom.workloads.requests import PS_PER_S, Request
from kvroom.workloads.traces.base import Format, Row, RowOptions
from kvroom.workloads.traces.fields import (
    PS_PER_MS,
    PS_PER_NS,
    PS_PER_US,
    at,
    date_ps,
    hash_ids,
    priority,
    session,
    span_ps,
    whole_tokens,
)

UNITS = {"s": PS_PER_S, "ms": PS_PER_MS, "us": PS_PER_US, "ns": PS_PER_NS}
NAMES = ("arrival", "input", "output", "session", "priority", "hash_ids", "took")
EXAMPLE = "Write --columns arrival=t:ms,input=prompt,output=answer."


def parse(columns: str | Mapping[str, str], field: str = "--columns") -> dict[str, str]:
    """What is where: ``input`` and ``output`` (tokens), ``arrival`` (with its unit: ``t:ms``), ``session``,
    ``priority``, ``hash_ids``, ``took`` (how long the answer took, with its unit) → the column's name.
    KvroomError for others."""
    if isinstance(columns, str):
        pairs = [part.partition("=") for part in columns.split(",")]
        for name, sign, column in pairs:
            if not sign or not column.strip():
                raise KvroomError(field, name, "names no column", EXAMPLE)
        named = {name.strip(): column.strip() for name, _, column in pairs}
        if len(named) < len(pairs):
            raise KvroomError(field, columns, "names one thing twice", EXAMPLE)
    elif isinstance(columns, Mapping):
        named = {str(key): str(value) for key, value in columns.items()}
    else:
        raise KvroomError(field, columns, "is no list of columns", EXAMPLE)
    for name in named:
        if name not in NAMES:
            raise KvroomError(
                field, name, "is no part of a request", did_you_mean(name, NAMES, EXAMPLE)
            )
    for name in ("input", "output"):
        if name not in named:
            raise KvroomError(field, name, "has no column", EXAMPLE)
    return named


def arrival_of(named: Mapping[str, str]) -> tuple[str | None, int | None]:
    """The column of arrivals, and its unit in picoseconds (None: dates and times)."""
    column = named.get("arrival")
    if column is not None and column.endswith(":date"):
        return column.removesuffix(":date"), None
    return unit_of(column)


def unit_of(column: str | None) -> tuple[str | None, int]:
    """A column of times and its unit in picoseconds: ``t:ms``; seconds where none is named."""
    if column is None:
        return None, PS_PER_S
    name, sign, unit = column.rpartition(":")
    if not sign:
        return column, PS_PER_S
    if unit not in UNITS:
        fix = f"Units are {', '.join(UNITS)} and date."
        raise KvroomError("--columns arrival", unit, "is no unit of time", fix)
    return name, UNITS[unit]


def named_format(columns: Mapping[str, str], *, csv: bool) -> Format:
    """The format of rows whose cells stand where ``columns`` says (CSV: in any case; JSON: keys with dots
    between lead into objects)."""
    arrival, unit_ps = arrival_of(columns)
    where = {name: column for name, column in columns.items() if name != "arrival"}
    if arrival is not None:
        where["arrival"] = arrival
    took_column, took_unit_ps = unit_of(columns.get("took"))
    if took_column is not None:
        where["took"] = took_column
    if csv:
        where = {name: column.strip().lower() for name, column in where.items()}

    def reader(options: RowOptions) -> Row:
        def cell(values: Mapping[str, Any], name: str) -> Any:
            column = where[name]
            value = values[column] if column in values else at(values, column)
            if value is None or value == "":
                raise KvroomError(column, value, "is missing", "Every row needs it.")
            return value

        def time(values: Mapping[str, Any]) -> int:
            if "arrival" not in where:
                return 0
            value = cell(values, "arrival")
            if unit_ps is None:
                return date_ps(value, where["arrival"])
            return span_ps(where["arrival"], value, unit_ps)

        def took(values: Mapping[str, Any]) -> int:
            value = optional(values, "took").get("took")
            return 0 if value in (None, "") else span_ps(where["took"], value, took_unit_ps)

        def optional(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
            column = where.get(name)
            return {} if column is None else {name: values.get(column) or at(values, column)}

        def row(values: Mapping[str, Any]) -> Request:
            prompt = whole_tokens(where["input"], cell(values, "input"), 1)
            request = Request(
                time(values),
                prompt,
                whole_tokens(where["output"], cell(values, "output"), 0),
                hash_ids(optional(values, "hash_ids"), prompt, options.hash_tokens),
                session(optional(values, "session"), "session"),
                priority(optional(values, "priority")),
                took_ps=took(values),
            )
            return options.continued(request)

        return row

    return Format(
        "named columns",
        tuple(where.values()),
        reader,
        512 if "hash_ids" in where else None,
        csv=csv,
        timed=arrival is not None,
    )


def check(columns: Sequence[str], needs: Sequence[str]) -> None:
    """KvroomError where a CSV lacks a column that is named."""
    for name in needs:
        if name not in columns:
            raise KvroomError(
                "--columns",
                name,
                "is no column of the file",
                did_you_mean(name, columns, f"It has {', '.join(columns)[:200]}."),
            )
