"""A gain split over the levers that made it, whatever the order they are pulled in (Shapley's split)."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import combinations
from math import comb

EXACT = 8
"""Up to so many levers every subset is valued; beyond, orders are drawn."""
ORDERS = 64
"""Orders drawn, each with its reverse."""

Value = Callable[[frozenset[str]], float]


def shapley(players: Sequence[str], value: Value, seed: int = 0) -> dict[str, float]:
    """Each player's share of ``value(all) − value(none)``: what it adds on average over all orders.

    The shares sum to that difference. Exact for up to ``EXACT`` players; beyond, the average over
    ``2 × ORDERS`` orders drawn with ``seed`` (L. S. Shapley, A value for n-person games, 1953).
    """
    share = _exact if len(players) <= EXACT else _drawn
    return {key: float(value) for key, value in share(list(players), value, seed).items()}


def _exact(players: list[str], value: Value, seed: int) -> dict[str, Fraction]:
    count = len(players)
    shares = dict.fromkeys(players, Fraction(0))
    for player in players:
        others = [one_player for one_player in players if one_player != player]
        for size in range(count):
            weight = Fraction(1, count * comb(count - 1, size))
            for chosen in combinations(others, size):
                without = frozenset(chosen)
                gain = Fraction(value(without | {player})) - Fraction(value(without))
                shares[player] += weight * gain
    return shares


def _drawn(players: list[str], value: Value, seed: int) -> dict[str, Fraction]:
    draw = random.Random(seed)
    shares = dict.fromkeys(players, Fraction(0))
    for _ in range(ORDERS):
        order = players[:]
        draw.shuffle(order)
        for way in (order, order[::-1]):
            pulled: frozenset[str] = frozenset()
            before = Fraction(value(pulled))
            for player in way:
                pulled |= {player}
                after = Fraction(value(pulled))
                shares[player] += (after - before) / (2 * ORDERS)
                before = after
    return shares
