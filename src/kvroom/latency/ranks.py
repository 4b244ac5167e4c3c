"""How prompts fall on data-parallel ranks that step together, and on the steps that follow one another."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import ceil, erf, exp, sqrt

from kvroom.records import dataclass

MOST_COUNTED = 400
"""Prompts a step above which their number is taken as normal."""
ROUNDS = 80
"""Steps after which the first one is forgotten."""
CLOSE = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSteps:
    """Steps of open arrivals: their mean, what is left of one for who comes at any time, and in which share
    of them a rank decodes."""

    mean_s: float
    rest_s: float = 0.0
    decodes: float = 1.0


def most_of(mean: float, ranks: int, own: int, elsewhere: float) -> list[tuple[float, float]]:
    """By how many more prompts than ``own`` the fullest of ``ranks`` begins in a step, where ``mean`` more
    begin in the first and ``elsewhere`` in each other (Poisson): the chance of it where the first begins any
    itself, and where only others do."""
    mine, others = (_cumulated(each, max(mean, elsewhere), own) for each in (mean, elsewhere))
    if ranks == 1:
        others = [1.0] * len(mine)
    chances, before, before_others = [], 0.0, 0.0
    for many in range(len(mine) - own):
        there = others[many + own] ** (ranks - 1)
        now = mine[many] * there
        idle = mine[0] * (there - before_others) if many and not own else 0.0
        chances.append((now - before - idle, idle))
        before, before_others = now, there
    total = sum(map(sum, chances))
    return [(chance / total, idle / total) for chance, idle in chances]


def _cumulated(mean: float, longest: float, more: int) -> list[float]:
    """The chance of at most 0, 1, 2 … (Poisson), for as many as ``longest`` has, and ``more``."""
    chance, within, found = exp(-mean), 0.0, []
    for many in range(ceil(longest + 6 * sqrt(longest) + 3) + more):
        within += chance
        found.append(min(1.0, within))
        chance *= mean / (many + 1)
    return found


def shares(mean: float, ends: Sequence[int]) -> list[float]:
    """The chances that a number (Poisson) is at most the first of ``ends``, above it and at most the second,
    and so on; the last holds what is beyond."""
    if mean < MOST_COUNTED:
        within = _cumulated(mean, mean, 0)
        upto = [within[min(end, len(within) - 1)] for end in ends[:-1]]
    else:
        upto = [(1 + erf((end + 0.5 - mean) / sqrt(2 * mean))) / 2 for end in ends[:-1]]
    return [high - low for low, high in pairwise((0.0, *upto, 1.0))]


def steady(means: Sequence[float], ends: Sequence[int]) -> list[float]:
    """The chances of each state of steps in the steady state of a Markov chain: while a step of the n-th
    lasts ``means[n]`` prompts come (Poisson), which the next computes: a state up to each of ``ends``."""
    goes = [shares(mean, ends) for mean in means]
    chances = [1.0] + [0.0] * (len(ends) - 1)
    for _ in range(ROUNDS):
        after = [
            sum(chance * to[n] for chance, to in zip(chances, goes, strict=True))
            for n in range(len(ends))
        ]
        off = max(abs(new - old) for new, old in zip(after, chances, strict=True))
        chances = after
        if off < CLOSE:
            break
    return chances
