"""How a model is laid on cards: the ranks of each kind of parallelism, and how many cards they come to."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kvroom.errors import KvroomError
from kvroom.scenario.values import MAX_GPUS
from kvroom.units import check_int

DEGREES = ("tp", "pp", "dp", "ep", "dcp")
LAYOUT_KEYS = ("gpu_count", *DEGREES)
OPEN = 0
"""Tensor ranks of a question that states only a number of cards: the planner lays the model out."""


_FILES = (".toml", ".json")
_JOINED = re.compile(r"\s*\+\s*(?=[A-Za-z]|\d+\s*[x×*]|$)")
"""What stands between unlike cards: ``Ryzen AI Max+ 395`` is one."""
_TIMES = re.compile(
    r"(?P<before>[0-9]+)\s*[x×*]\s*(?P<card>\S.*)"
    r"|(?P<name>.+?)(?<!\bRT)(?<!\bGT)\s*[x×*]\s*(?P<after>[0-9]+)",
    re.I,
)
"""``RTX4090`` and ``GTX1080`` are names: their x is no sign of times."""


def counted_cards(text: str) -> tuple[str, int | None]:
    """A card's name and how many of it: ``H100:8``, ``8xH100``, ``H100x8`` (``×`` and ``*`` too); None where
    no number is said. Unlike cards are joined with ``+``, ``2xRTX-4090 + RTX-3090``, and counted together."""
    pieces = () if "{" in text else _JOINED.split(text)
    if len(pieces) > 1:
        parts = [counted_cards(part.strip()) for part in pieces]
        names = (f"{name}:{count}" if (count or 1) > 1 else name for name, count in parts)
        return " + ".join(names), sum(count or 1 for _, count in parts)
    name, colon, count = text.rpartition(":")
    if colon and count.isdecimal():
        return name.strip(), int(count[:12])
    match = None if text.strip().lower().endswith(_FILES) else _TIMES.fullmatch(text.strip())
    if match is None:
        return text, None
    return (match["card"] or match["name"]).strip(), int((match["before"] or match["after"])[:12])


def filled_layout(keys: Mapping[str, object]) -> dict[str, int]:
    """``tp`` and ``gpu_count`` of whole numbers some of which are left out.

    Several cards and no degree leave the layout open. ``gpu_count`` is tp × pp × dp and defaults to it;
    ``tp`` defaults to the cards that the others leave.
    ``ep`` and ``dcp`` reuse those ranks. KvroomError where they do not agree.
    """

    def degree(key: str, usual: int = 1) -> int:
        value = keys.get(key)
        return value if isinstance(value, int) else usual

    pp, dp = degree("pp"), degree("dp")
    cards = degree("gpu_count", 0)
    tp = degree("tp", 0)
    if cards > 1 and not any(keys.get(degree) for degree in DEGREES):
        check_int("gpu_count", cards, low=1, high=MAX_GPUS)
        return {"tp": OPEN, "gpu_count": cards}
    if not tp:
        if cards % (pp * dp):
            why = f"cannot be split by pp {pp} × dp {dp}"
            raise KvroomError("gpu_count", cards, why, "Change one of them.")
        tp = cards // (pp * dp) or 1
    needed = tp * pp * dp
    if cards and cards != needed:
        why = f"does not equal tp {tp} × pp {pp} × dp {dp} = {needed}"
        fix = f"Set gpu_count to {needed}, or leave it out."
        raise KvroomError("gpu_count", cards, why, fix)
    check_int("gpu_count", needed, low=1, high=MAX_GPUS)
    ep, dcp = degree("ep"), degree("dcp")
    if (tp * dp) % ep:
        fix = f"Expert ranks reuse those {tp * dp} GPUs."
        raise KvroomError("ep", ep, f"does not divide tp {tp} × dp {dp}", fix)
    if tp % dcp:
        fix = "Decode-context ranks reuse the tensor ranks."
        raise KvroomError("dcp", dcp, f"does not divide tp {tp}", fix)
    return {"tp": tp, "gpu_count": needed}
