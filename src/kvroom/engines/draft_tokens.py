"""Drafted tokens in a simulation: how many a request gets in a step, and how many of them are kept.

Whether a draft is kept is a property of the place in the text where it stands: a number drawn from the
seed, the request and the place, held against the chance of the draft's position. So a request's answer
takes as many steps whenever and with whomever it is served, and more of it is kept at higher chances.
"""

from __future__ import annotations

from kvroom.records import dataclass
from kvroom.scenario.speculation import Speculation, drafted_at

WORD = (1 << 64) - 1
READS_HIDDEN_STATES = ("mtp", "eagle", "eagle3")
"""Ways of drafting that compute with the model's own states."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafts:
    """``chances``: by position, that a draft is kept, given all before it were; ``schedule`` as in
    ``speculation.Speculation``.

    ``ahead_tokens``: what vLLM has room for beyond the tokens of a step, where the draft writes to the
    cache. ``rereads``: it computes the last block of a cached prefix anew, whose states the draft needs.
    """

    chances: tuple[float, ...]
    schedule: tuple[tuple[int, int], ...] = ()
    ahead_tokens: int = 0
    rereads: bool = False
    seed: int = 0

    @classmethod
    def of(cls, speculation: Speculation) -> Drafts:
        """The drafts that ``s`` asks for."""
        before = (1.0, *speculation.kept[:-1])
        return cls(
            chances=tuple(
                k / b if b else 0.0 for k, b in zip(speculation.kept, before, strict=True)
            ),
            schedule=speculation.schedule,
            ahead_tokens=0 if speculation.method == "ngram" else speculation.tokens,
            rereads=speculation.method in READS_HIDDEN_STATES,
        )

    def at(self, requests: int) -> int:
        """Tokens drafted for each of ``requests`` in a step."""
        return min(len(self.chances), drafted_at(len(self.chances), self.schedule, requests))

    def kept(self, index: int, known: int, drafted: int) -> int:
        """How many of ``drafted`` tokens are kept after the first ``known`` of request ``index``."""
        text = stream(self.seed, index)
        for place in range(drafted):
            if drawn(text, known + place) >= self.chances[place]:
                return place
        return drafted


def stream(seed: int, index: int) -> int:
    """Where the numbers of request ``index`` begin."""
    return seed * 0xD1342543DE82EF95 + index * 0xA24BAED4963EE407


def drawn(text: int, place: int) -> float:
    """The number from 0 to 1 at ``place`` of a stream (SplitMix64, Steele et al., OOPSLA 2014)."""
    bits = (text + place * 0x9E3779B97F4A7C15) & WORD
    bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & WORD
    return float(bits ^ (bits >> 31)) / 2.0**64
