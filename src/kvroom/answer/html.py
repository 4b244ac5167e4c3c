"""HTML, written here only: elements, tables, and a report as one file without a script.

It stands with the answer and not with the page, because answers turn themselves to HTML (``to_html``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from kvroom.records import dataclass

STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1a; --soft: #5c5c58; --paper: #fdfcf9; --line: #d8d5cc;
  --bar: #2f7d4f; --was: #8a8a84; --dot: #2f5d9d; --best: #b4472d; }
@media (prefers-color-scheme: dark) { :root { --ink: #ecebe6; --soft: #a9a8a1; --paper: #181817;
  --line: #3c3b38; --bar: #58b37c; --was: #85847d; --dot: #7faae0; --best: #ef8a6d; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; } .wide { overflow-x: auto; }
th, td { text-align: left; padding: .25rem .6rem .25rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.soft, svg text.soft { color: var(--soft); fill: var(--soft); } svg { width: 100%; height: auto; }
svg text { fill: var(--ink); font: 13px system-ui, sans-serif; }
code { font-size: .95em; }
""".strip()


FULL = 960
"""Pixels of a picture that is as wide as its page, where it stands alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table: its heading, the key of a row, how a value is shown."""

    title: str
    key: str
    number: bool = False
    decimals: int = 2


def text(value: object) -> str:
    """``value`` as text, with nothing in it that HTML would take for its own."""
    return escape(str(value), quote=False)


def quoted(value: object) -> str:
    """``value`` as it stands between an attribute's quotes."""
    return escape(str(value))


def element(tag: str, *inner: str, cls: str = "", **attributes: Any) -> str:
    """An element round ``inner``, which is HTML already.

    Of ``attributes`` ``_`` stands for ``-``, True for one without a value; None and False are left out.
    """
    if cls:
        attributes = {"class": cls, **attributes}
    written = "".join(
        f" {name.replace('_', '-')}" + ("" if value is True else f'="{escape(str(value))}"')
        for name, value in attributes.items()
        if value is not None and value is not False
    )
    return f"<{tag}{written}>{''.join(inner)}</{tag}>"


def document(title: str, *body: str, style: str) -> str:
    """A whole document: nothing in it is fetched from elsewhere."""
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    head += '<meta name="color-scheme" content="light dark">'
    head += element("title", text(title)) + element("style", style)
    inner = "\n".join(body)
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>{inner}</body></html>\n'


def page(title: str, parts: Iterable[str]) -> str:
    """A report."""
    return document(title, element("main", element("h1", text(title)), *parts), style=STYLE)


def heading(words: str, level: int = 2) -> str:
    """A heading of a section."""
    return element(f"h{level}", text(words))


def paragraph(words: str, *, soft: bool = False, cls: str = "") -> str:
    """A paragraph of plain text."""
    return element("p", text(words), cls="soft" if soft else cls)


def number(value: Any, decimals: int = 2) -> str:
    """A figure as people read it; a dash where there is none."""
    if value is None:
        return "–"
    if isinstance(value, float) and not value.is_integer():
        return f"{value:,.{decimals}f}" if abs(value) >= 10**-decimals else f"{value:.2g}"
    return f"{value:,.0f}"


def table(columns: Sequence[Column], rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows as a table; columns without any value are left out."""
    rows = list(rows)
    shown = [column for column in columns if any(row.get(column.key) is not None for row in rows)]
    head = [element("th", text(c.title), cls="n" if c.number else "") for c in shown]
    body = [[_cell(c, row.get(c.key)) for c in shown] for row in rows]
    return cells(head, body)


def cells(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of cells that are elements already; it scrolls where it is wider than the page."""
    top = element("thead", element("tr", *head))
    body = element("tbody", *(element("tr", *row) for row in rows))
    return element("div", element("table", top, body), cls="wide")


def _cell(column: Column, value: Any) -> str:
    if column.number:
        return element("td", number(value, column.decimals), cls="n")
    return element("td", "–" if value is None else text(value))


def svg(says: str, *marks: str, **attributes: Any) -> str:
    """A picture, which ``says`` tells to who cannot see it."""
    return element("svg", *marks, role="img", aria_label=says, **attributes)


def svg_file(drawn: str) -> str:
    """A picture of a report as a file of its own: its sheet in it, its size that of its view box."""
    sizes = re.search(r'viewBox="0 0 ([0-9.]+) ([0-9.]+)"', drawn)
    size = f' width="{sizes[1]}" height="{sizes[2]}"' if sizes else ""
    drawn = drawn.replace(' width="100%"', f' width="{FULL}"', 1)
    head = f'<svg xmlns="http://www.w3.org/2000/svg"{size}'
    return drawn.replace("<svg", head, 1).replace(">", f">{element('style', STYLE)}", 1) + "\n"


def svg_mark(mark: Mapping[str, Any], looks: Mapping[str, Any] | None = None) -> str:
    """One SVG element: its ``tag``, ``text``, ``title``, all else as attributes, ``looks`` before them."""
    own = {key: value for key, value in mark.items() if key not in ("tag", "text", "title", "key")}
    inner = element("title", text(mark["title"])) if "title" in mark else ""
    if looks is None:
        own = {"data-key": mark["key"], **own}
    else:
        own = {**looks, **{key: value for key, value in own.items() if key != "class"}}
    return element(mark["tag"], inner + text(mark.get("text", "")), **own)
