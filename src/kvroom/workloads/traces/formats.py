"""The trace formats, recognised by the keys of their first row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvroom.errors import KvroomError, check_spelling
from kvroom.workloads.traces import (
    agents,
    aiperf,
    azure,
    bailian,
    burstgpt,
    columns,
    dataset,
    guidellm,
    mooncake,
    openai,
    otel,
    sharegpt,
    splitwise,
    token_ids,
    tracelab,
    vidur,
    vllm_log,
)
from kvroom.workloads.traces.base import Format

FORMATS = (
    token_ids.FORMAT,
    bailian.FORMAT,
    mooncake.GRAPH,
    mooncake.FORMAT,
    agents.FORMAT,
    otel.FORMAT,
    tracelab.FORMAT,
    aiperf.FORMAT,
    guidellm.FORMAT,
    sharegpt.FORMAT,
    openai.BATCH,
    dataset.INPUTS,
    openai.LOG,
    dataset.CUSTOM,
    azure.FORMAT,
    burstgpt.FORMAT,
    splitwise.FORMAT,
    vidur.FORMAT,
    vidur.LENGTHS,
)
"""The more particular first; CSV columns are told in any case."""
KNOWN = (
    f"Known are {', '.join(dict.fromkeys(kind.name for kind in (*FORMATS, vllm_log.FORMAT)))} and folders of "
    "ServeGen clients; name the columns of any other "
    "CSV or JSONL with --columns arrival=…,input=…,output=…."
)


def format_of(keys: Mapping[str, Any] | Sequence[str], shown: str) -> Format:
    """The format whose rows have such ``keys`` (a JSON row, or the columns of a CSV).

    KvroomError where there is none; ``shown`` is the row as it is named there.
    """
    csv = not isinstance(keys, Mapping)
    for kind in FORMATS:
        if kind.csv == csv and kind.fits(keys):
            check_spelling("row", keys, (*kind.needs, *kind.may))
            return kind
    same = [kind for kind in FORMATS if kind.csv == csv and len(kind.needs) > 1]
    near = max(same, key=lambda kind: sum(need in keys for need in kind.needs) / len(kind.needs))
    lacking = [need for need in near.needs if need not in keys]
    if 0 < len(lacking) < len(near.needs):
        why = f"looks like {near.name} but lacks {', '.join(lacking)}"
        raise KvroomError("row", shown, why, f"Give that too. {KNOWN}")
    raise KvroomError("row", shown, "is of no known trace format", KNOWN)


def named(named: Mapping[str, str], keys: Mapping[str, Any] | Sequence[str]) -> Format:
    """The format of a file whose columns were named; KvroomError where a CSV lacks one."""
    csv = not isinstance(keys, Mapping)
    kind = columns.named_format(named, csv=csv)
    if not isinstance(keys, Mapping):
        columns.check(keys, kind.needs)
    return kind
