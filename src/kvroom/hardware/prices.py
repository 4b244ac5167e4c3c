"""What an hour of a card costs: dated price lists, one source for each kind of terms, and owned cards.

A price is told (dollars an hour), or one of the words of ``prices.json`` (``community``, ``on-demand``,
``reserved``), or ``owned:DOLLARS`` with ``years``, ``kwh`` (dollars for one) and ``utilisation``. A card
that a list does not have has no price by it: none is made up. All are US dollars for one card.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from kvroom.errors import KvroomError, did_you_mean
from kvroom.hardware.device import Device, Source
from kvroom.units import check_float, number, show_usd

EVERY = "*"
"""The key of ``prices`` that speaks for all cards that it does not name."""
OWNED = "owned"
HOURS_A_YEAR = 8766
USUAL: Mapping[str, float] = {"years": 4.0, "kwh": 0.12, "utilisation": 0.7}
"""What an owned card is taken to be unless told: written off over so many years, dollars for a kWh, the
share of its hours that it serves. Assumptions, said with every price that rests on them."""
HIGHS: Mapping[str, float] = {"years": 30.0, "kwh": 10.0, "utilisation": 1.0}
FIX = "Write dollars an hour (2.10), {} or owned:30000:years=4:kwh=0.12:utilisation=0.7."


@lru_cache(maxsize=1)
def lists() -> Mapping[str, Any]:
    """The price lists: ``default`` and, for each of ``kinds``, terms, date, source and dollars by card."""
    content: Mapping[str, Any] = json.loads(
        Path(__file__).with_name("prices.json").read_text(encoding="utf-8")
    )
    return content


def kinds() -> tuple[str, ...]:
    """The words that stand for a list."""
    return tuple(lists()["kinds"])


def listed(card: str, kind: str | None = None) -> tuple[float | None, Source]:
    """Dollars an hour of a card of the catalogue by a list (the default one), None where it has none, and
    where that comes from."""
    kind = kind or lists()["default"]
    sheet = lists()["kinds"][kind]
    usd = sheet["usd_per_hour"].get(card)
    if usd is None:
        return None, Source("assumed", f"no {kind} price of {card} is known")
    return usd, Source("datasheet", f"{sheet['terms']} ({sheet['source']}, {sheet['date']})")


def check_terms(field: str, text: str) -> str:
    """``text`` where it is a price's terms; KvroomError otherwise."""
    if text.partition(":")[0] == OWNED:
        _owned(field, text)
        return text
    if text in kinds():
        return text
    fix = did_you_mean(text, (*kinds(), OWNED), FIX.format(", ".join(kinds())))
    raise KvroomError(field, text, "is no price", fix)


def _owned(field: str, text: str) -> tuple[float, dict[str, float]]:
    """The price of a card that was bought, and the assumptions about its use."""
    _, *parts = text.split(":")
    fix = "Write owned:30000:years=4:kwh=0.12:utilisation=0.7 (dollars for one card)."
    if not parts or not parts[0]:
        raise KvroomError(field, text, "says no price of the card", fix)
    dollars = number(field, parts[0].removeprefix("$"), fix)
    check_float(field, dollars, low=0.0, high=1e7, unit="dollars")
    use = dict(USUAL)
    for part in parts[1:]:
        key, equals, value = part.partition("=")
        if not equals or key not in USUAL:
            fix_text = did_you_mean(key, USUAL, fix)
            raise KvroomError(field, part, "is no term of an owned card", fix_text)
        least = 0.0 if key == "kwh" else 0.01
        use[key] = check_float(
            f"{field}.{key}", number(field, value, fix), low=least, high=HIGHS[key]
        )
    return dollars, use


def owned(device: Device, text: str) -> tuple[float, Source]:
    """Dollars for an hour in which an owned card serves: its price over its years and the power of its
    limit, divided by the share of its hours in which it works."""
    dollars, use = _owned("prices", text)
    watts = device.tdp_w or 0.0
    power = watts / 1000 * use["kwh"]
    usd = (dollars / (use["years"] * HOURS_A_YEAR) + power) / use["utilisation"]
    drawn = f"{watts:g} W at ${use['kwh']:g} a kWh" if watts else "power not counted: unknown"
    terms = f"owned: ${dollars:,.0f} over {use['years']:g} years, {drawn}, in use {use['utilisation']:.0%}"
    return usd, Source("assumed", terms)


def priced(device: Device, prices: Mapping[str, float | str]) -> Device:
    """``device`` at the price that ``prices`` give its name, one of its other names, or every card."""
    names = {name.lower() for name in (device.name, *device.aliases)}
    for name, price in prices.items():
        if name.lower() in names:
            return _at(device, name, price)
    return _at(device, EVERY, prices[EVERY]) if EVERY in prices else device


def _at(device: Device, name: str, price: float | str) -> Device:
    usd: float | None
    if not isinstance(price, str):
        usd, source = price, Source("measured", f"told: --price {name}={price:g}")
    elif price.partition(":")[0] == OWNED:
        usd, source = owned(device, price)
    else:
        usd, source = listed(device.name, price)
    return replace(device, usd_per_hour=usd, sources={**device.sources, "usd_per_hour": source})


def in_words(device: Device) -> str:
    """The price of ``device`` with its terms, source and date, or that there is none and how to tell one."""
    if device.usd_per_hour is not None:
        source = device.source("usd_per_hour").text
        return f"{device.name} at {show_usd(device.usd_per_hour)}, {source}"
    why = device.sources.get("usd_per_hour")
    none = why.text if why is not None else f"no price of {device.name} is known"
    return f"{none} (--price {device.name}=USD an hour)"
