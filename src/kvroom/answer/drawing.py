"""The memory bar as marks: drawn once here, painted by the server as SVG and by the page's elements.

A mark is one SVG element: ``tag``, ``key`` (the same thing keeps its key from picture to picture),
``text`` and attributes. Across, everything is in percent of the width, so that one drawing suits
every screen; down, in pixels.
"""

from __future__ import annotations

from typing import Any

from kvroom.answer.figures import ACCOUNTS
from kvroom.answer.html import svg, svg_mark
from kvroom.units import ceil_div, show_memory

WIDTH = 94.0
"""Percent of the width that the cards take; a request that does not fit sticks out beyond."""
TOP, HEIGHT = 30, 84
MOST_BLOCKS = 100
"""Blocks drawn one a request; beyond, each stands for several."""
MOST_TILES, SLIM_TILES = 7, 3
"""Waiting requests drawn one a tile; on a narrow screen."""
_NICE = (1, 2, 5, 10, 20, 25, 50, 100, 200, 250, 500)

Mark = dict[str, Any]


def _pc(value: float) -> str:
    return f"{value:.3f}%"


def per_block(requests: int) -> int:
    """How many requests one drawn block stands for: 1, 2, 5, 10 …"""
    least = max(1, ceil_div(requests, MOST_BLOCKS))
    scale = 1
    while True:
        for n in _NICE:
            if n * scale >= least:
                return n * scale
        scale *= 1000


class _Bar:
    """Blocks laid one after another; ``scale`` is percent of the width a byte."""

    def __init__(self, m: dict[str, Any]) -> None:
        accounts = sum(a["bytes"] for a in m["accounts"])
        self.scale: float = WIDTH / max(m["total_bytes"], accounts)
        self.end: float = m["total_bytes"] * self.scale
        self.x = 0.0
        self.marks: list[Mark] = []

    def block(self, key: str, size: float, cls: str, title: str) -> float:
        """Draw ``size`` bytes as the next block; the width it takes."""
        width: float = size * self.scale
        if size > 0:
            mark: Mark = {"tag": "rect", "key": key, "class": cls, "x": _pc(self.x), "y": TOP}
            self.marks.append({**mark, "width": _pc(width), "height": HEIGHT, "title": title})
        self.x += width
        return width


def memory_marks(m: dict[str, Any]) -> list[Mark]:
    """The marks of ``figures.memory``: accounts, requests running, what is left, who waits."""
    bar = _Bar(m)
    for a in m["accounts"]:
        name, start = ACCOUNTS.get(a["name"], a["name"]), bar.x
        says = f"{name} {show_memory(a['bytes'])}"
        width = bar.block(a["name"], a["bytes"], "weights" if name == "weights" else "own", says)
        if name == "weights" and width > 12:
            note = "more than there is" if m["over_bytes"] else "loaded once, never move"
            bar.marks += [
                _text("w1", start, 67, "on-weights strong wide", says, dx=14),
                _text("w2", start, 88, "on-weights wide", note, dx=14),
            ]
        if name == "weights" and width > 22:
            bar.marks.append(_text("w3", start, 77, "on-weights strong slim", name, dx=10))
    start = bar.x
    wall = start + m["kv_bytes"] * bar.scale
    if m["kv_bytes"] and m["request_bytes"]:
        bar.block("pool", m["kv_bytes"], "free pool", "room for cache")
        bar.x = start
        ask = _text("ask", (start + wall) / 2, 77, "ask soft", "how many fit in here?")
        bar.marks.append({**ask, "text-anchor": "middle"})
    _requests(m, bar)
    if bar.x < wall - 0.01:
        kind = "left" if m["free_bytes"] < m["request_bytes"] or m["waiting"] else "free"
        says = f"{show_memory(m['free_bytes'])} {'left over' if kind == 'left' else 'free'}"
        bar.block("free", m["free_bytes"], kind, says)
    bar.x = wall
    bar.block("kept", m["kept_bytes"], "kept", f"{show_memory(m['kept_bytes'])} kept free")
    if m["over_bytes"]:
        over: Mark = {"tag": "rect", "key": "over", "class": "over", "x": _pc(bar.end), "y": TOP}
        bar.marks.append({**over, "width": _pc(WIDTH - bar.end), "height": HEIGHT})
    bar.marks += _edges(m, bar.end)
    if m["room"] is not None and not m["over_bytes"]:
        bar.marks += _above(m, start, bar.end)
    bar.marks += _waiting(m, bar.scale, wall)
    return bar.marks


def _requests(m: dict[str, Any], bar: _Bar) -> None:
    """One green block a request (or for several, where they are many), numbered where it is wide."""
    running, each = m["running"], m["request_bytes"]
    if not each:
        return
    bunch = per_block(max(running, m["room"] or 0))
    for index in range(ceil_div(running, bunch)):
        first, last = index * bunch + 1, min((index + 1) * bunch, running)
        start, size = bar.x, (last - first + 1) * each
        who = f"request {first}" if first == last else f"requests {first:,} to {last:,}"
        width = bar.block(f"r{index}", size, "cache", f"{who}: {show_memory(size)}")
        if width > 2.2 and bunch == 1:
            number = _text(f"n{index}", start + width / 2, 77, "on-cache num", f"{first}")
            bar.marks.append({**number, "text-anchor": "middle"})


def _text(key: str, x: float, y: int, cls: str, text: str, *, dx: int = 0) -> Mark:
    mark: Mark = {"tag": "text", "key": key, "class": cls, "x": _pc(x), "y": y, "text": text}
    return {**mark, "dx": dx} if dx else mark


def _edges(m: dict[str, Any], end: float) -> list[Mark]:
    """Where one card ends and the next begins, and how much they hold together."""
    gpus = m["gpus"]
    marks: list[Mark] = []
    for index in range(1, min(gpus, 64) + 1):
        at = _pc(end * index / min(gpus, 64))
        marks.append(
            {
                "tag": "line",
                "key": f"c{index}",
                "class": "tick",
                "x1": at,
                "x2": at,
                "y1": 118,
                "y2": 126,
            }
        )
    cards = f"{gpus} cards" if gpus > 1 else "one card"
    words = f"{cards}, {show_memory(m['total_bytes'])}{' in all' if gpus > 1 else ''}"
    return [*marks, {**_text("cards", end, 143, "soft", words), "text-anchor": "end"}]


def _above(m: dict[str, Any], start: float, end: float) -> list[Mark]:
    """The label over the green part."""
    if not m["running"] or not m["request_bytes"]:
        return []
    plural = "s" if m["running"] != 1 else ""
    bunch = per_block(max(m["running"], m["room"] or 0))
    text = f"{m['running']:,} request{plural} × {show_memory(m['request_bytes'])}"
    if bunch > 1:
        text += f", a stripe is {bunch:,}"
    if start > WIDTH / 2 and not m["waiting"]:
        return [{**_text("above", end, 14, "soft wide", text), "text-anchor": "end"}]
    at = 0.0 if start > WIDTH / 2 else start
    return [_text("above", at, 14, "soft wide", text)]


def _waiting(m: dict[str, Any], scale: float, wall: float) -> list[Mark]:
    """The break: the next request sticks out of the memory, unless the engine alone holds it back; all
    that wait queue below."""
    if not m["waiting"] or not m["request_bytes"] or m["over_bytes"]:
        return []
    first, short = m["running"] + 1, m["short_bytes"]
    marks: list[Mark] = []
    if short:
        start = wall - (m["request_bytes"] - short) * scale
        width = min(m["request_bytes"] * scale, 99.8 - start)
        marks += [
            {"tag": "rect", "key": "break", "class": "stuck", "x": _pc(start), "y": TOP - 6,
             "width": _pc(width), "height": HEIGHT + 12, "title": f"request {first:,} does not fit"},
            {"tag": "line", "key": "wall", "class": "wall", "x1": _pc(wall), "x2": _pc(wall),
             "y1": TOP - 10, "y2": TOP + HEIGHT + 14},
        ]  # fmt: skip
    says = f"request {first:,} {'does not fit' if short else 'waits'}"
    why = f"{show_memory(short)} short" if short else "the engine runs no more at once"
    why = why if m["starts"] else "the engine does not start"
    for key, cls, text in (
        ("short", "strong wide", f"{says}: {why}"),
        ("slim", "strong slim", says),
    ):
        marks.append({**_text(key, 99.8, 14, cls, text), "text-anchor": "end"})
    tiles = min(m["waiting"], MOST_TILES)
    for index in range(tiles):
        wide = " wide" if index >= SLIM_TILES else ""
        marks += [
            {"tag": "rect", "key": f"q{index}",
             "class": f"waiting{wide}", "x": index * 38, "y": 158, "width": 34,
             "height": 26, "title": f"request {first + index:,} waits"},
            {"tag": "text", "key": f"qn{index}", "class": f"on-waiting{wide}", "x": index * 38 + 17, "y": 176,
             "text-anchor": "middle", "text": f"{first + index}" if first + index < 1000 else ""},
        ]  # fmt: skip
    for key, cls, shown in (
        ("qsay", "strong wide", tiles),
        ("qslim", "strong slim", min(tiles, SLIM_TILES)),
    ):
        more = m["waiting"] - shown
        say = f"+ {more:,} more wait" if more else "waits" if shown == 1 else "wait"
        marks.append({**_text(key, 0, 176, cls, say), "dx": shown * 38 + 4})
    return marks


def memory_height(m: dict[str, Any]) -> int:
    """Pixels that the drawing needs, the queue in."""
    return 190 if m["waiting"] and m["request_bytes"] and not m["over_bytes"] else 152


def memory_sentence(m: dict[str, Any]) -> str:
    """What the picture shows, for whoever does not see it."""
    parts = [
        f"{ACCOUNTS.get(a['name'], a['name'])} {show_memory(a['bytes'])}" for a in m["accounts"]
    ]
    text = f"Memory of {m['gpus']} card{'s' if m['gpus'] > 1 else ''}, {show_memory(m['total_bytes'])}: "
    text += ", ".join(parts)
    if m["over_bytes"]:
        return f"{text}, {show_memory(m['over_bytes'])} more than there is."
    if m["running"] and m["request_bytes"]:
        text += f", {m['running']:,} requests of {show_memory(m['request_bytes'])}"
        text += f", {show_memory(m['free_bytes'])} not in use"
    if m["waiting"]:
        text += f"; {m['waiting']:,} wait"
    return f"{text}."


def memory_drawing(m: dict[str, Any]) -> dict[str, Any]:
    """Marks, height and sentence together, as the page's element takes them."""
    return {"height": memory_height(m), "sentence": memory_sentence(m), "marks": memory_marks(m)}


def to_svg(drawing: dict[str, Any], label: str = "") -> str:
    """The drawing as an ``svg`` element, styled by the page's sheet."""
    marks = map(svg_mark, drawing["marks"])
    says = label or drawing["sentence"]
    return svg(says, *marks, width="100%", height=drawing["height"], cls="marks")
