"""Step times in whole picoseconds, for a simulation's clock.

A step's time is a fixed part, which depends on how many requests and prompt tokens are in it, and what
attention adds: so much for each token that a decoding request looks back on, so much for each pair of
tokens in a prompt. While the requests stay the same the second part grows by the same amount each
step, so the time of a run of steps is an exact sum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

PS_PER_S = 10**12
PAIRS = 2**16
"""Prompt attention is counted in picoseconds for so many pairs: one alone takes less than one."""

Fixed = Callable[[int, int, int], float]
"""(requests that compute one token, prompt tokens, prompts) → seconds of a step without attention."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """What attention over at most ``tokens`` tokens back (None: all of them) adds to a step.

    ``context_ps`` a token that a decoding request reads, ``pairs_ps`` for ``PAIRS`` pairs of a prompt's
    token with one that it looks back on.
    """

    context_ps: int
    pairs_ps: int
    tokens: int | None = None

    def read(self, tokens: int) -> int:
        """Tokens that the last of ``tokens`` looks back on, itself included."""
        return tokens if self.tokens is None else min(tokens, self.tokens)

    def pairs(self, start: int, tokens: int) -> int:
        """Pairs in a stretch of ``tokens`` prompt tokens that begins after ``start``."""
        if self.tokens is None:
            return tokens * start + tokens * (tokens + 1) // 2
        growing = max(0, min(tokens, self.tokens - start))
        inside = growing * start + growing * (growing + 1) // 2
        return inside + (tokens - growing) * self.tokens


@dataclass(frozen=True, kw_only=True)
class StepClock:
    """Times steps in whole picoseconds."""

    fixed: Fixed
    reaches: tuple[Reach, ...]
    _known: dict[tuple[int, int, int], int] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def fixed_ps(self, requests: int, tokens: int = 0, prompts: int = 0) -> int:
        """The step without its attention; at least one picosecond."""
        if tokens:
            return max(1, round(self.fixed(requests, tokens, prompts) * PS_PER_S))
        key = (requests, tokens, prompts)
        found = self._known.get(key)
        if found is None:
            found = max(1, round(self.fixed(requests, tokens, prompts) * PS_PER_S))
            self._known[key] = found
        return found

    def context_ps(self, tokens: int) -> int:
        """Attention of one request whose next token is its ``tokens``-th."""
        return sum(r.context_ps * r.read(tokens) for r in self.reaches)

    def prompt_ps(self, start: int, tokens: int) -> int:
        """Attention of ``tokens`` prompt tokens of which ``start`` are computed before."""
        return sum(r.pairs_ps * r.pairs(start, tokens) for r in self.reaches) // PAIRS

    def step_ps(self, work: Sequence[tuple[int, int]]) -> int:
        """A step in which each request, having computed ``start`` tokens, computes ``tokens`` more.

        Who computes a single token counts as decoding, whatever that token is.
        """
        ones = [start for start, tokens in work if tokens == 1]
        chunks = [(start, tokens) for start, tokens in work if tokens > 1]
        total = self.fixed_ps(len(ones), sum(tokens for _, tokens in chunks), len(chunks))
        total += sum(self.context_ps(start + 1) for start in ones)
        return total + sum(self.prompt_ps(start, tokens) for start, tokens in chunks)
