"""CUDA graphs: which batch sizes vLLM captures one for, unless it is told.

Sources: ``VllmConfig._set_cudagraph_sizes`` of the releases. Up to 0.11 the steps above 256 were of 8 too,
which is a dozen sizes more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvroom.engines import flags as read

MOST = 512
"""The largest batch that is captured by default."""
OFF = frozenset(("none", "0", "cudagraphmode.none"))


def largest_capture(sequences: int, drafted: int = 0) -> int:
    """The largest batch captured: twice the requests at once, each with its drafted tokens."""
    return min(2 * sequences * (1 + drafted), MOST)


def capture_sizes(largest: int) -> list[int]:
    """The batch sizes captured up to ``largest``: 1, 2, 4, then steps of 8, from 256 of 16."""
    ladder = (1, 2, 4, *range(8, 256, 8), *range(256, largest + 1, 16))
    return [n for n in ladder if n <= largest]


def captured(args: Mapping[str, Any], sequences: int, batch_tokens: int, drafted: int) -> int:
    """How many sizes are captured by the flags ``args``; 0 where graphs are off.

    ``compilation_config`` (a level, an object or its JSON) holds the same names.
    """
    level = args.get("compilation_config")
    if isinstance(level, int) or (isinstance(level, str) and level.isdecimal()):
        if int(level) == 0:
            return 0
        level = None
    compilation = read.mapping("engine_args.compilation_config", level)
    given = {**compilation, **{k: v for k, v in args.items() if v is not None}}
    if str(given.get("cudagraph_mode", "")).lower() in OFF or given.get("use_cudagraph") is False:
        return 0
    sizes = given.get("cudagraph_capture_sizes")
    largest = given.get("max_cudagraph_capture_size")
    if sizes is None and (older := given.get("cuda_graph_sizes")) is not None:
        listed = read.counts("engine_args.cuda_graph_sizes", older)
        sizes, largest = (listed, None) if len(listed) > 1 else (None, listed[0])
    if sizes is not None:
        if sizes in ([], "[]", ()):
            return 0
        return len(set(read.counts("engine_args.cudagraph_capture_sizes", sizes)))
    if largest is not None:
        most = read.number("engine_args.max_cudagraph_capture_size", largest, 0, 10**6)
    else:
        most = largest_capture(sequences, drafted)
    return len(capture_sizes(min(most, batch_tokens)))
