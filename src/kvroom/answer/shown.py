"""What every answer can be turned into: a line, rows, a data frame, a piece of HTML, a report, a picture."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kvroom.answer import html
from kvroom.answer.frames import frame
from kvroom.errors import KvroomError
from kvroom.scenario.command_line import command
from kvroom.scenario.scenario import Scenario
from kvroom.version import VERSION

if TYPE_CHECKING:
    from datetime import date

MOST_ROWS = 20
"""Rows of an answer that a notebook's cell shows; the report has all."""


class Shown:
    """An answer that shows itself: short in a shell, as HTML in a notebook, whole as a report.

    A class says its ``summary`` and its ``rows``; ``TITLE`` heads its report, ``questions`` are named in it.
    """

    __slots__ = ()
    TITLE = ""

    def summary(self) -> str:
        """The answer in a sentence."""
        raise NotImplementedError

    def rows(self) -> list[dict[str, Any]]:
        """Flat rows, for a table or a data frame."""
        raise NotImplementedError

    def questions(self) -> Sequence[Scenario]:
        """The questions that it answers."""
        return ()

    def to_frame(self) -> Any:
        """The rows as a data frame of polars or pandas; ImportError where neither is installed."""
        return frame(self.rows())

    def html_parts(self) -> list[str]:
        """What its report says, each a piece of HTML."""
        return [html.paragraph(self.summary()), table_of(self.rows())]

    def glance(self) -> list[str]:
        """What a notebook's cell says of it."""
        rows = self.rows()
        more = len(rows) - MOST_ROWS
        parts = [html.element("p", html.element("strong", html.text(self.summary())))]
        parts.append(table_of(rows[:MOST_ROWS]))
        if more > 0:
            parts.append(html.paragraph(f"{more:,} more row{'s' if more != 1 else ''}: rows()."))
        return parts

    def to_html(self) -> str:
        """A report as one self-contained HTML file, which names its question, version, date and prices."""
        return report(self.TITLE, self.html_parts(), self.questions())

    def to_svg(self) -> str:
        """The report's first picture as a file of its own; KvroomError where it has none."""
        for part in self.html_parts():
            if "<svg" in part:
                return html.svg_file(part[part.index("<svg") : part.rindex("</svg>") + 6])
        raise KvroomError(
            "--svg", None, "is for answers with a picture", "Write --html in its place."
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.summary()}>"

    def _repr_html_(self) -> str:
        style = "max-width:960px;font-family:system-ui,sans-serif;overflow-x:auto"
        return html.element("div", *self.glance(), style=style)


def table_of(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as a table, every key a column; "" for none."""
    if not rows:
        return ""
    columns = [
        html.Column(title=key.replace("_", " "), key=key, number=_numbers(rows, key), decimals=4)
        for key in rows[0]
    ]
    return html.table(columns, rows)


def _numbers(rows: Sequence[Mapping[str, Any]], key: str) -> bool:
    values = [row[key] for row in rows if row.get(key) is not None]
    return bool(values) and all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in values
    )


def report(title: str, parts: Iterable[str], questions: Sequence[Scenario] = ()) -> str:
    """A report, with what it answers, by which version, when and at which prices below it."""
    return html.page(title, [*parts, html.element("footer", *_about(questions))])


def _about(questions: Sequence[Scenario]) -> Iterator[str]:
    yield html.heading("About this report")
    for question in questions:
        yield html.element("p", "Question: ", html.element("code", html.text(command(question))))
    yield from (html.paragraph(f"Price: {words}.") for words in prices_of(questions))
    yield html.paragraph(f"kvroom {VERSION}, {today().isoformat()}.", soft=True)


def today() -> date:
    """The day of a report (``SOURCE_DATE_EPOCH`` wins, for reports that are to be the same again)."""
    from datetime import UTC, datetime

    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    moment = datetime.fromtimestamp(int(epoch), UTC) if epoch.isdecimal() else datetime.now(UTC)
    return moment.date()


def prices_of(questions: Iterable[Scenario]) -> list[str]:
    """The price of each card of the questions in words, or that none is known."""
    from kvroom.hardware.prices import in_words, priced
    from kvroom.hardware.reader import resolve

    prices = (in_words(priced(resolve(q.gpu), q.prices or {})) for q in questions)
    return list(dict.fromkeys(prices))
