"""Lines of logs that tell of an allocation without room: PyTorch's message, CUDA's, Python's frames.

PyTorch writes ``Tried to allocate 224.00 MiB. GPU 0 has a total capacity of 23.64 GiB of which 153.69 MiB
is free. Including non-PyTorch memory, this process has 23.47 GiB memory in use``, before 2.1
``Tried to allocate … (GPU 0; 23.69 GiB total capacity; 22.10 GiB already allocated; 17.56 MiB free; …)``
(``c10/cuda/CUDACachingAllocator.cpp``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from kvroom.engines.log_shapes import Record, Shape, size
from kvroom.engines.shortage import Shortage, inner

_SIZE = r"([\d.,]+ ?(?:[KMGT]i?B|bytes))"
_SAYS = {
    "total_bytes": re.compile(rf"total capaci?ty of {_SIZE}|{_SIZE} total capacity"),
    "free_bytes": re.compile(rf"of which {_SIZE} is free|{_SIZE} free"),
    "held_bytes": re.compile(rf"this process has {_SIZE} memory in use"),
}
STAGE = "stage"
"""The setting that holds the stage which the last frames named."""
ELSEWHERE = "frames"
"""The setting that tells of frames in files of other programs."""
PLAIN = {
    "error: out of memory": r"\w+ error: out of memory.*",
    "'out of memory'": r"Cuda failure (?:\d+ )?'out of memory'.*",
    "STATUS_ALLOC_FAILED": r"CUBLAS_STATUS_ALLOC_FAILED.*",
}
"""What CUDA, NCCL and cuBLAS say, without a figure."""
MOST = 64
"""So many failed allocations are kept: every rank prints its own."""


def short(record: Record, shortage: Shortage) -> None:
    """Add an allocation that failed."""
    if len(record.shortages) < MOST:
        record.shortages.append(shortage)
    if shortage.total_bytes is not None:
        record.add("total_gpu_bytes", shortage.total_bytes)


def at_stage(record: Record, stage: str, text: str) -> None:
    """A line that names the stage of the allocation that just failed, or tells of one itself."""
    if record.shortages:
        record.shortages[-1] = replace(record.shortages[-1], stage=stage)
    else:
        short(record, Shortage(stage=stage, text=text[:400]))


def memory_shapes(
    package: str, frames: Mapping[str, str], printed: Sequence[tuple[str, str]]
) -> tuple[Shape, ...]:
    """The shapes for an engine in Python.

    ``frames`` are names of functions in files of ``package`` with the stage they belong to; ``printed``
    figures with the stage that is under way until they are printed, for logs without a traceback.
    """

    inside = f"{package}/"

    def frame(record: Record, match: re.Match[str]) -> None:
        if inside not in match["file"]:
            record.settings.setdefault(ELSEWHERE, "")
            return
        record.lines += 1
        stage = frames.get(match["frame"])
        if stage is not None:
            record.settings[STAGE] = inner(record.settings.get(STAGE, ""), stage)

    def stage_of(record: Record) -> str:
        if record.settings.get(STAGE):
            return str(record.settings[STAGE])
        if not record.figures and record.settings.keys() == {ELSEWHERE}:
            return ""  # a traceback of another program: nothing tells how far it had come
        return next((stage for name, stage in printed if name not in record.figures), "serve")

    def tried(record: Record, match: re.Match[str]) -> None:
        said: dict[str, int | None] = {}
        for name, pattern in _SAYS.items():
            found = pattern.search(match["rest"])
            if found is not None:
                said[name] = size(next(group for group in found.groups() if group))
        short(
            record,
            Shortage(
                stage=stage_of(record),
                tried_bytes=size(match["tried"]),
                text=match[0][:400],
                **said,
            ),
        )

    def plain(record: Record, match: re.Match[str]) -> None:
        if not record.shortages:
            short(record, Shortage(stage=stage_of(record), text=match[0][:400]))

    return (
        Shape(
            '", line ',
            r'File "(?P<file>[^"]*)", line \d+, in (?P<frame>\w+)',
            quiet=True,
            common=True,
            read=frame,
        ),
        Shape(
            "out of memory. Tried",
            r"\w+ out of memory\. Tried to allocate (?P<tried>[\d.,]+ ?(?:[KMGT]i?B|bytes))(?P<rest>.*)",
            common=True,
            read=tried,
        ),
        *(Shape(needle, pattern, common=True, read=plain) for needle, pattern in PLAIN.items()),
    )
