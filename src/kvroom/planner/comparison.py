"""Plans side by side: which keys of their questions differ, and which figures differ as a result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kvroom.answer import charts, html
from kvroom.answer.plan import FIGURES, Plan, plan_row
from kvroom.answer.shown import Shown
from kvroom.records import dataclass
from kvroom.scenario.scenario import Scenario
from kvroom.units import show_gib, show_seconds, show_usd


@dataclass(frozen=True, kw_only=True, repr=False)
class Comparison(Shown):
    """Plans side by side."""

    TITLE = "Plans side by side"

    plans: tuple[Plan, ...]

    def differences(self) -> list[str]:
        """The keys that were asked differently."""
        questions = [plan.scenario.to_dict() for plan in self.plans]
        return [
            key
            for key in questions[0]
            if any(question[key] != questions[0][key] for question in questions)
        ]

    def summary(self) -> str:
        """How many, and in what they differ."""
        apart = ", ".join(self.differences()) or "nothing"
        return f"{len(self.plans)} plans, asked differently: {apart}"

    def questions(self) -> Sequence[Scenario]:
        """The question of each."""
        return [plan.scenario for plan in self.plans]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values (CONTRACT: compare)."""
        return {"plans": [plan.to_dict() for plan in self.plans]}

    def rows(self) -> list[dict[str, Any]]:
        """A flat row a Plan: what was asked differently, then its figures (``*_bytes``, ``*_s`` seconds)."""
        keys = self.differences()
        return [plan_row(plan, keys) for plan in self.plans]

    def glance(self) -> list[str]:
        """The figures side by side."""
        strong = html.element("strong", html.text(self.summary()))
        return [html.element("p", strong), self._beside()]

    def html_parts(self) -> list[str]:
        """The figures side by side, requests and prices drawn, and each verdict."""
        parts = [html.paragraph(self.summary() + "."), *self._pictures(), self._beside()]
        parts += [
            html.paragraph(f"{letter}: {plan.verdict.sentence}")
            for letter, plan in zip(letters(len(self.plans)), self.plans, strict=True)
        ]
        return parts

    def _pictures(self) -> Iterator[str]:
        """Requests as bars; where prices and times are known, each plan as a point of both."""
        names = letters(len(self.plans))
        requests = [plan.capacity.of_lengths.requests or _held(plan) for plan in self.plans]
        bars = [
            charts.Bar(label=name, length=count or 0.0)
            for name, count in zip(names, requests, strict=True)
        ]
        yield html.heading("Requests at once")
        yield charts.bars(bars, "Requests at once of each plan")
        dots = [
            charts.Dot(
                x=plan.cost.usd_per_million_output_tokens or 0,
                y=plan.serving.tpot_s or 0,
                label=name,
            )
            for name, plan in zip(names, self.plans, strict=True)
        ]
        if any(dot.x and dot.y for dot in dots):
            yield html.heading("Price against TPOT")
            x, y = "dollars a million output tokens", "TPOT, seconds"
            yield charts.scatter(dots, "Plans by price and TPOT", x, y)

    def _beside(self) -> str:
        """A column a plan, a row a figure."""
        names = letters(len(self.plans))
        columns = [html.Column(title="", key="figure")]
        columns += [html.Column(title=name, key=name) for name in names]
        rows = self.rows()
        return html.table(
            columns,
            [
                {"figure": key.replace("_", " ")}
                | {name: shown_figure(key, row[key]) for name, row in zip(names, rows, strict=True)}
                for key in rows[0]
                if any(row[key] is not None for row in rows)
            ],
        )


def _held(plan: Plan) -> float | None:
    capacity = plan.capacity
    if capacity.engine and capacity.engine.max_concurrency is not None:
        return capacity.engine.max_concurrency
    return capacity.ceiling.requests if capacity.ceiling else None


def letters(count: int) -> list[str]:
    """The names of plans side by side: A, B, C …, and numbers after Z."""
    return [chr(ord("A") + index) if index < 26 else str(index + 1) for index in range(count)]


def shown_figure(key: str, value: Any) -> str:
    """A figure as people read it, by the suffix of its key; a dash where there is none."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if key.endswith(("_bytes", "_per_token")) and isinstance(value, int):
        return show_gib(value)
    if key.startswith("usd_"):
        return show_usd(value)
    if key.endswith("_s") and "_per_" not in key:
        return show_seconds(value)
    return html.number(value, 2) if isinstance(value, int | float) else str(value)


__all__ = ["FIGURES", "Comparison", "letters", "shown_figure"]
