"""Shapes of lines: a literal that any such line holds, and a pattern with the figures' names in it.

A pattern is a regular expression in which ``{weights_bytes}`` stands for a figure of that name; its
ending says how it is read: ``…_bytes`` a number with its unit, a name of FLOATS a number with a
fraction, one of TEXTS a word, and the rest whole numbers. ``GB`` reads as GiB: that
is what all four engines mean by it. Decimal commas and thousands separators are told apart.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import field
from functools import cached_property
from typing import Any

from kvroom.engines.shortage import Shortage
from kvroom.records import dataclass
from kvroom.units import GIB, KIB, MIB, TIB

UNITS = {"b": 1, "bytes": 1, "kb": KIB, "kib": KIB, "mb": MIB, "mib": MIB, "gb": GIB, "gib": GIB}
UNITS |= {"tb": TIB, "tib": TIB}
TEXTS = ("engine_version", "model", "gpu", "kv_type", "k_type", "v_type", "device", "name")
FLOATS = ("max_concurrency", "gpu_memory_utilization", "free_gpu_memory_fraction", "mamba_padding")
_SIZE = r"-?[\d.,]+\s?(?:[KMGT]i?B|bytes|B)\b"
_COUNT = r"-?\d[\d,. ]*\d|-?\d"
_FLOAT = r"-?[\d.,]+"
_NAME = re.compile(r"\{([a-z_]+)\}")
_RANK = re.compile(r"(?<![A-Za-z])(TP|PP|DP)(\d+)")
MAX_NUMBER = 10**18

Figures = dict[str, Any]


def number(text: str) -> float | None:
    """The number that ``text`` writes, whatever separators it uses; None where there is none."""
    text = text.strip().replace(" ", "").rstrip(".,")
    if "," in text and "." in text:
        decimal = max(text.rfind(","), text.rfind("."))
        text = re.sub(r"[.,]", "", text[:decimal]) + "." + text[decimal + 1 :]
    elif "," in text:
        head, _, tail = text.rpartition(",")
        grouped = len(tail) == 3 and re.fullmatch(r"-?\d{1,3}(?:,\d{3})*", head)
        text = text.replace(",", "") if grouped else head.replace(",", "") + "." + tail
    elif text.count(".") > 1:
        text = text.replace(".", "")
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) <= MAX_NUMBER else None


def whole(text: str) -> int | None:
    """A whole number with any thousands separators."""
    digits = re.sub(r"[,. ]", "", text)
    return int(digits) if digits.lstrip("-").isdecimal() and len(digits) <= 18 else None


def size(text: str) -> int | None:
    """A size in bytes: ``12.66 GiB``, ``2713,50 MiB``, ``59212694937 bytes``."""
    unit = re.search(r"[A-Za-z]+$", text)
    if unit is None:
        return None
    value = number(text[: unit.start()])
    factor = UNITS.get(unit[0].lower())
    return None if value is None or factor is None else round(value * factor)


def _kind(name: str) -> tuple[str, Callable[[str], Any]]:
    if name.endswith("_bytes"):
        return _SIZE, size
    if name in FLOATS:
        return _FLOAT, number
    if name in TEXTS:
        return r".+?", lambda t: t.strip()[:300] or None
    return _COUNT, whole


@dataclass(frozen=True)
class Shape:
    """Lines that hold ``needle`` and match ``text``, in which ``{names}`` stand for figures (none: the
    needle itself); ``opens`` where such a line begins a start."""

    needle: str
    text: str = ""
    opens: bool = False
    quiet: bool = False
    """Such lines come by the thousand and are not counted among those of interest."""
    common: bool = False
    """Any engine may print such a line: it does not tell whose log it is."""
    read: Callable[[Record, re.Match[str]], None] | None = None
    """What to do with a match, where its groups are not simply figures."""

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """What matches; made when the first such line comes, as most commands read no log."""
        text = self.text or re.escape(self.needle)
        return re.compile(_NAME.sub(lambda m: f"(?P<{m[1]}>{_kind(m[1])[0]})", text))


@dataclass(slots=True)
class Figure:
    """One printed figure over all the lines that print it (ranks, restarts of a phase)."""

    low: Any
    high: Any
    last: Any
    count: int = 1

    def add(self, value: Any) -> None:
        """One more line's value."""
        self.last = value
        self.count += 1
        if isinstance(value, int | float):
            self.low, self.high = min(self.low, value), max(self.high, value)


@dataclass(slots=True)
class Record:
    """What one start of one engine printed.

    ``parts`` are figures with several holders: devices' buffers, pools. ``settings`` are the engine's
    own names with values.
    """

    engine: str
    figures: dict[str, Figure] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    parts: dict[str, dict[str, int]] = field(default_factory=dict)
    refusals: list[str] = field(default_factory=list)
    ranks: dict[str, int] = field(default_factory=dict)
    """The highest number of each kind of rank (TP, PP, DP) among the lines' prefixes."""
    shortages: list[Shortage] = field(default_factory=list)
    """Allocations for which a GPU had no room."""
    lines: int = 0

    @property
    def shortage(self) -> Shortage | None:
        """The one that missed most."""
        return max(
            self.shortages,
            key=lambda failed: (failed.short_bytes, failed.tried_bytes or 0),
            default=None,
        )

    def add(self, name: str, value: Any) -> None:
        """One printed figure."""
        if value is None:
            return
        known = self.figures.get(name)
        if known is None:
            self.figures[name] = Figure(value, value, value)
        else:
            known.add(value)

    def part(self, name: str, holder: str, value: int | None) -> None:
        """A figure of one device or pool; said again it replaces the older value."""
        holders = self.parts.setdefault(name, {})
        if value is not None and (holder in holders or len(holders) < 1000):
            holders[holder] = value

    def refuse(self, text: str) -> None:
        """A sentence with which the engine refused to start."""
        if text not in self.refusals and len(self.refusals) < 5:
            self.refusals.append(text[:400])

    def low(self, name: str) -> Any:
        """The least value printed, None where there is none."""
        return self.figures[name].low if name in self.figures else None

    def high(self, name: str) -> Any:
        """The greatest."""
        return self.figures[name].high if name in self.figures else None

    def last(self, name: str) -> Any:
        """The latest."""
        return self.figures[name].last if name in self.figures else None


def take(record: Record, match: re.Match[str], of: Shape) -> None:
    """Read what a line's match says into ``record``."""
    record.lines += not of.common
    for kind, rank in _RANK.findall(match.string[:120]):
        record.ranks[kind] = max(record.ranks.get(kind, 0), int(rank[:4]))
    if of.read is not None:
        of.read(record, match)
        return
    for name, text in match.groupdict().items():
        if text is not None:
            record.add(name, _kind(name)[1](text))


def refusal(record: Record, match: re.Match[str]) -> None:
    """For ``Shape.read``: the whole match is a sentence with which the engine refused to start."""
    record.refuse(match[0])
