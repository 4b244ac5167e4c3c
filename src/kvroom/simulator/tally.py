"""What a simulation counted, as bytes that another process can add to its own.

All that figures are made of adds up exactly: counts and sums are whole numbers, percentiles go by all times
together, whatever their order. How things stood over time is looked at by each part at moments of its own,
so of several parts it is a picture, not a count.
"""

from __future__ import annotations

import zlib
from array import array
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kvroom.simulator.cluster import Cluster
from kvroom.simulator.managed_cluster import ManagedCluster
from kvroom.simulator.timeline import LONGEST_LINE, Moment

COUNTS = (
    "preempted",
    "dropped",
    "good",
    "prompt_tokens",
    "cached_tokens",
    "output_tokens",
    "verifying",
    "drafted_tokens",
    "gained_tokens",
)
TIMES = ("ttft_ps", "e2e_ps", "tpot_ps")
REPLICA = ("requests", "completed", "prompt_tokens", "cached_tokens", "peak_blocks")
CHUNK = 1 << 18
"""Numbers that are packed together."""


def packed(numbers: array[Any]) -> list[str]:
    """``numbers`` as text, in pieces."""
    pieces = (numbers[at : at + CHUNK].tobytes() for at in range(0, len(numbers), CHUNK))
    return [b64encode(zlib.compress(piece, 1)).decode() for piece in pieces]


def unpacked(kind: str, pieces: Sequence[str]) -> Iterator[array[Any]]:
    """The numbers of ``packed``, piece by piece."""
    for piece in pieces:
        yield array(kind, zlib.decompress(b64decode(piece)))


def tally(fleet: Cluster) -> dict[str, Any]:
    """What ``fleet`` counted, as plain JSON values."""
    out = fleet.outcome
    out.gaps.settle()
    values: dict[str, Any] = {
        "counts": {name: getattr(out, name) for name in COUNTS},
        "last_ps": out.last_ps,
        "gaps_ps": out.gaps.total_ps,
        "peak_blocks": fleet.peak_blocks,
        "times": {name: packed(getattr(out, name)) for name in TIMES},
        "runs": [[packed(column) for column in piece] for piece in out.gaps.pieces()],
        "warm": out.warm,
        "line": fleet.timeline.moments,
        "at_once": fleet.timeline.at_once,
    }
    if isinstance(fleet, ManagedCluster):
        values["replicas"] = [[getattr(r, name) for name in REPLICA] for r in fleet.replicas]
    return values


def add(fleet: Cluster, values: Mapping[str, Any], places: Sequence[int]) -> None:
    """Put what another one counted for the replicas at ``places`` into ``fleet``, which has served nothing
    itself."""
    out = fleet.outcome
    for name in COUNTS:
        setattr(out, name, getattr(out, name) + values["counts"][name])
    out.last_ps = max(out.last_ps, values["last_ps"])
    for name in TIMES:
        own = getattr(out, name)
        for piece in unpacked(own.typecode, values["times"][name]):
            own += piece
    for columns in values["runs"]:
        for four in zip(*(unpacked("q", column) for column in columns), strict=True):
            out.gaps.take(*four)
    out.gaps.total_ps += values["gaps_ps"]
    for name, times in values["warm"].items():
        out.warm[name] += times
    fleet.elsewhere_blocks += values["peak_blocks"]
    if isinstance(fleet, ManagedCluster):
        rows = values["replicas"]
        if len(rows) == len(fleet.replicas):  # it knew of all
            rows = [rows[place] for place in places]
        for place, row in zip(places, rows, strict=True):
            fleet.replicas[place].since_ps = 0
            for name, value in zip(REPLICA, row, strict=True):
                setattr(fleet.replicas[place], name, value)


def joined(lines: Sequence[Sequence[Sequence[int]]]) -> list[Moment]:
    """The time lines of parts that were served beside each other as one: each as it stood last."""
    if len(lines) == 1:
        return [Moment(*moment) for moment in lines[0]]
    changes = sorted(
        (moment[0], part, number)
        for part, line in enumerate(lines)
        for number, moment in enumerate(line)
    )
    every = -(-len(changes) // LONGEST_LINE)
    now = [(0,) * len(Moment._fields)] * len(lines)
    rows: list[Moment] = []
    for count, (time_ps, part, number) in enumerate(changes, 1):
        now[part] = tuple(lines[part][number])
        if count % every == 0 or count == len(changes):
            sums = [sum(column) for column in zip(*now, strict=True)]
            waits = [m[6] for m in now if m[6]]
            sums[0], sums[6] = time_ps, sum(waits) // len(waits) if waits else 0
            rows.append(Moment(*sums))
    return rows
