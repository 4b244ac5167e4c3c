"""Prompts that begin alike as often as a recording says: made up, to replay at the recorded hit ratio.

An engine's metrics count the tokens that its cache gave, not which prompts shared them. Requests of one
made-up document, each holding as much of its beginning as is still owed, are found so often in whatever
order they come; a document that every request touches is the last that a cache forgets.
"""

from __future__ import annotations

from array import array

from kvroom.records import dataclass
from kvroom.units import ceil_div
from kvroom.workloads.requests import HashIds

BLOCK_TOKENS = 16
"""Where a recording does not tell its engine's blocks."""
OWN = 1 << 32
"""Ids from here on are one request's own."""


@dataclass(slots=True)
class Sharing:
    """Gives each request its beginning: ``ratio`` of all prompt tokens are to be found in the cache.

    What whole blocks and a cold start leave out is made up for by the requests after.
    """

    ratio: float
    block_tokens: int = BLOCK_TOKENS
    _owed: float = 0.0
    _warm: int = 0
    _own: int = OWN

    def prefix(self, prompt_tokens: int) -> HashIds:
        """What the next request, of so many tokens, begins with: an id a block."""
        size = self.block_tokens
        self._owed += self.ratio * prompt_tokens
        most = (prompt_tokens - 1) // size  # a prompt's last token is always computed
        shared = min(most, max(0, round(self._owed / size)))
        self._owed -= min(shared, self._warm) * size
        self._warm = max(self._warm, shared)
        own = ceil_div(prompt_tokens, size) - shared
        self._own += own
        return HashIds(array("q", [*range(shared), *range(self._own - own, self._own)]), size)
