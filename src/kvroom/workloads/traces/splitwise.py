"""SplitwiseSim CSV."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvroom.workloads.requests import PS_PER_S, Request
from kvroom.workloads.traces.base import Format, Row, RowOptions
from kvroom.workloads.traces.fields import lengths, time_ps


def splitwise(_: RowOptions) -> Row:
    """``arrival_timestamp`` in s, ``prompt_size``, ``token_size`` (of the answer)."""

    def row(values: Mapping[str, Any]) -> Request:
        prompt, answer = lengths(values, "prompt_size", "token_size")
        return Request(time_ps(values, "arrival_timestamp", PS_PER_S), prompt, answer)

    return row


FORMAT = Format(
    "Splitwise", ("arrival_timestamp", "prompt_size", "token_size"), splitwise, csv=True
)
