"""Unlike cards that serve one model together, as one Device: ``RTX-4090 + RTX-3090``.

Tensor-parallel ranks hold equal shares and wait for one another, so each card counts as the least of
them in memory and in every rate. Where layers are shared out and run one after the other, a token
passes each card in turn: its time is the sum of theirs, so its rate is the mean of their rates weighted
by what each reads (the harmonic mean).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from kvroom.errors import KvroomError
from kvroom.hardware.device import Device, Link, Source

_JOINED = re.compile(r"\s*\+\s*(?=[A-Za-z]|\d+\s*[x×*]|$)")
"""What stands between cards: ``Ryzen AI Max+ 395`` is one."""
MOST = 64
"""Cards that one text may name."""


def names_in(text: str) -> tuple[str, ...]:
    """The cards that ``text`` names, each as often as it stands there.

    >>> names_in("RTX-4090:2 + RTX-3090")
    ('RTX-4090', 'RTX-4090', 'RTX-3090')
    """
    names: list[str] = []
    for piece in _JOINED.split(text):
        name, colon, count = piece.strip().rpartition(":")
        times = int(count) if colon and count.isdecimal() and len(count) < 4 else 1
        names += [name.strip() if colon and count.isdecimal() else piece.strip()] * times
    if not all(names) or len(names) > MOST:
        fix = f"Join up to {MOST} names with +, such as RTX-4090:2 + RTX-3090."
        raise KvroomError("gpu", text, "is no list of cards", fix)
    return tuple(names)


def so_many(count: int, name: str) -> str:
    """``4 × H100-SXM``: cards as a sentence says them; unlike ones are named one by one.

    >>> so_many(4, "H100-SXM"), so_many(1, "H100-SXM"), so_many(2, "RTX-4090 + RTX-3090")
    ('4 × H100-SXM', 'H100-SXM', 'RTX-4090 + RTX-3090')
    """
    return name if count == 1 or "+" in name else f"{count} × {name}"


def cards_together(cards: Sequence[Device]) -> Device:
    """``cards`` as ranks that wait for one another: the smallest value of every figure."""
    if len(set(cards)) == 1:
        return cards[0]
    least = min(cards, key=lambda card: card.engine_bytes)
    shown = " + ".join(_counted([card.name for card in cards]))
    prices = [card.usd_per_hour for card in cards if card.usd_per_hour is not None]
    watts = [card.tdp_w for card in cards if card.tdp_w is not None]
    slowest = min(cards, key=lambda card: card.memory_bytes_per_s)
    dtypes = set.intersection(*(set(card.flops_per_s) for card in cards))
    return replace(
        least,
        name=shown,
        generation=slowest.generation,
        compute_capability=slowest.compute_capability,
        aliases=(),
        parts=tuple(card.name for card in cards),
        memory_bytes_per_s=slowest.memory_bytes_per_s,
        flops_per_s={
            dtype: min(card.flops_per_s[dtype] for card in cards) for dtype in sorted(dtypes)
        },
        scale_up=_slower([card.scale_up for card in cards])
        if len({card.scale_up and card.scale_up.name for card in cards}) == 1
        else None,
        host_link=_slower([card.host_link for card in cards]),
        usd_per_hour=sum(prices) / len(cards) if len(prices) == len(cards) else None,
        tdp_w=sum(watts) / len(cards) if len(watts) == len(cards) else None,
        sources={
            **least.sources,
            "usd_per_hour": Source("assumed", f"the mean of {shown}"),
            "tdp_w": Source("assumed", f"the mean of {shown}"),
        },
    )


def cards_in_turn(mixed: Device, cards: Sequence[Device]) -> Device:
    """``mixed`` where a token passes its ``cards`` one after the other, each with layers in proportion to
    its memory. ``sold_bytes`` is then a share of all that they have, for plain arithmetic."""

    def mean(rate: Callable[[Device], float]) -> float:
        return sum(card.engine_bytes for card in cards) / sum(
            card.engine_bytes / rate(card) for card in cards
        )

    return replace(
        mixed,
        sold_bytes=sum(card.sold_bytes for card in cards) // len(cards),
        visible_bytes=mixed.engine_bytes,
        memory_bytes_per_s=mean(lambda card: card.memory_bytes_per_s),
        flops_per_s={
            dtype: mean(lambda card, dtype=dtype: card.flops_per_s[dtype])  # type: ignore[misc]
            for dtype in mixed.flops_per_s
        },
    )


def _slower(links: Sequence[Link | None]) -> Link | None:
    there = [link for link in links if link is not None]
    return min(there, key=lambda link: link.bytes_per_s) if len(there) == len(links) else None


def _counted(names: Sequence[str]) -> list[str]:
    """Each name once, with how often it stands in a row."""
    rows: list[tuple[str, int]] = []
    for name in names:
        if rows and rows[-1][0] == name:
            rows[-1] = name, rows[-1][1] + 1
        else:
            rows.append((name, 1))
    return [name if count == 1 else f"{name}:{count}" for name, count in rows]
