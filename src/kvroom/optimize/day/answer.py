"""The answer for a day: a verdict, the hours, and what they rest on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvroom.answer import charts, html
from kvroom.answer.shown import Shown, table_of
from kvroom.optimize.day.question import DayQuestion
from kvroom.records import dataclass
from kvroom.scenario.scenario import Scenario
from kvroom.scenario.values import MAX_REPLICAS
from kvroom.units import show_seconds


@dataclass(frozen=True, kw_only=True, repr=False)
class Day(Shown):
    """A day by the hour. ``figures`` are those of ``kvroom simulate --day --json``."""

    TITLE = "A day by the hour"

    question: DayQuestion
    figures: Mapping[str, Any]

    @property
    def holds(self) -> bool:
        """Whether the objectives hold in every hour."""
        return bool(self.figures["holds"])

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {"sentence": self.summary(), **self.figures}

    def rows(self) -> list[dict[str, Any]]:
        """A flat row an hour."""
        rows = []
        for hour in self.figures["hours"]:
            row = {key: value for key, value in hour.items() if not isinstance(value, dict | list)}
            for metric in ("ttft", "tpot"):
                row |= {f"{metric}_{at}_s": value for at, value in hour[f"{metric}_s"].items()}
            rows.append(row)
        return rows

    def questions(self) -> Sequence[Scenario]:
        """The question."""
        return [self.question.workings.plan.scenario]

    def summary(self) -> str:
        """The verdict."""
        question, figures = self.question, self.figures
        slo = ",".join(f"{o.name}={show_seconds(o.limit_s)}" for o in question.slo)
        requests = f"{figures['requests']:,} requests"
        replicas, card = figures["replicas"], self._card()
        if question.replicas is not None:
            return self._fixed(slo, requests, card)
        if replicas["busiest"] is None:
            most = f"No number of replicas up to {MAX_REPLICAS:,} ({card} each)"
            return f"{most} holds {slo} through a day of {requests}{self._alone()}."
        cost = figures["cost"]
        few, many = replicas["quietest"], replicas["busiest"]
        span = f"{few:,} to {many:,}" if few < many else f"{many:,}"
        be = "replica" if many == 1 else "replicas"
        verb = "holds" if many == 1 else "hold"
        sentence = f"{span} {be} ({card} each) {verb} {slo} through a day of {requests}"
        sentence += f", {replicas['mean']:,.1f} on average"
        if cost["usd"] is not None:
            sentence += f": ${cost['usd']:,.0f} a day; {many:,} all day would cost"
            sentence += f" ${cost['usd_all_day']:,.0f}"
        if "one_fleet" in figures:
            one = figures["one_fleet"]
            sentence += (
                f". One fleet for all regions would need {one['quietest']:,} to {one['busiest']:,}"
            )
            sentence += f" (${one['usd']:,.0f})" if one["usd"] is not None else ""
        return sentence + "."

    def _fixed(self, slo: str, requests: str, card: str) -> str:
        """The verdict on a number of replicas that stays."""
        figures, count = self.figures, self.question.replicas
        short = [
            hour
            for hour in figures["hours"]
            if hour["needed"] is None or hour["needed"] > hour["replicas"]
        ]
        be = "replica" if count == 1 else "replicas"
        usd = figures["cost"]["usd"]
        cost = "" if usd is None else f": ${usd:,.0f} a day"
        if not short:
            verb = "holds" if count == 1 else "hold"
            return f"{count:,} {be} ({card} each) {verb} {slo} through a day of {requests}{cost}."
        verb = "does not hold" if count == 1 else "do not hold"
        when = _spans([hour["hour"] for hour in short])
        most = figures["replicas"]["busiest"]
        more = "no number does" if most is None else f"{most:,} would"
        return (
            f"{count:,} {be} ({card} each) {verb} {slo} {when} of a day of {requests}; "
            f"{more} in every hour."
        )

    def _card(self) -> str:
        deployment = self.question.workings.deployment
        return f"{deployment.layout.gpus} x {deployment.device.name}"

    def _alone(self) -> str:
        """How long requests take on an almost idle replica, where that is already too long."""
        least = self.figures["sample"]["levels"][0]
        return (
            f": at a twentieth of its load one takes {show_seconds(least['ttft_p95_s'])} to the first "
            f"token and {show_seconds(least['tpot_p95_s'])} a token (p95)"
        )

    def html_parts(self) -> list[str]:
        """The verdict, and the hours as pictures and as a table."""
        parts = [html.paragraph(self.summary())]
        for key, label in (
            ("replicas", "Replicas"),
            ("ttft_p95_s", "TTFT p95"),
            ("tpot_p95_s", "TPOT p95"),
        ):
            points = [(row["hour"], row[key]) for row in self.rows()]
            parts += [
                html.heading(f"{label} by the hour"),
                charts.curve(points, f"{label} by the hour"),
            ]
        parts.append(table_of(self.rows()))
        return parts + [html.paragraph(f"Note: {w}.", soft=True) for w in self.figures["warnings"]]


def _spans(hours: Sequence[int]) -> str:
    """``from 13 to 18 o'clock``: stretches of hours, each with its end."""
    spans: list[list[int]] = []
    for hour in hours:
        if spans and spans[-1][1] == hour:
            spans[-1][1] = hour + 1
        else:
            spans.append([hour, hour + 1])
    return "from " + " and ".join(f"{first} to {last}" for first, last in spans) + " o'clock"
