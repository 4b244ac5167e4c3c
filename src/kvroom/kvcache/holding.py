"""What a request holds of several layer groups while it is served in jumps: places, not blocks."""

from __future__ import annotations

FAR = 1 << 60


class Holding:
    """What a request holds beside its blocks' number, by kind.

    ``lows``: leading places given back while its prompt is computed. ``states``: of recurrent kinds with
    prefix caching, the places that they hold then. ``chunk_tokens`` of its prompt were computed in step
    ``chunk_step``. ``real``: its blocks have numbers (``ServedRequest.block_tables``), and what of them
    decoding adds has none. While it decodes: ``first`` is its first such step, ``processed`` the tokens that
    are settled in that, ``entry`` the blocks that its prompt took, ``joined`` the kinds whose blocks go
    regularly; ``trimmed`` the last step scheduled for it alone.
    """

    __slots__ = (
        "chunk_step",
        "chunk_tokens",
        "entry",
        "first",
        "joined",
        "lows",
        "processed",
        "real",
        "registered",
        "states",
        "trimmed",
    )

    def __init__(self, kinds: int) -> None:
        self.lows = [0] * kinds
        self.states: dict[int, list[int]] = {}
        self.chunk_tokens = 0
        self.chunk_step = -2
        self.real = False
        self.first = FAR
        self.processed = 0
        self.entry = FAR
        self.registered = 0
        self.joined: list[int] = []
        self.trimmed = -1
