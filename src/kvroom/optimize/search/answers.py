"""The answer of a search: what does, in order, with figures, margins and why others are not first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from kvroom.answer import charts, html
from kvroom.answer.shown import Shown
from kvroom.optimize.cost import Figures
from kvroom.optimize.search.space import LEFT_OUT
from kvroom.records import dataclass
from kvroom.scenario.scenario import Scenario


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One deployment that does: the Scenario with its replicas, figures of its Plan, what came of it."""

    name: str
    scenario: Scenario
    figures: Figures
    row: Mapping[str, Any]
    trial: Mapping[str, Any] | None
    margin: Mapping[str, float]
    why: str = ""
    autoscaler: Mapping[str, Any] | None = None
    """What was tried of an autoscaler: the ``best`` settings, the ``fixed`` fleet, all ``points``."""

    @property
    def simulated(self) -> bool:
        """Whether a simulation bears it out."""
        return self.trial is not None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        shown = (
            "gpus",
            "usd_per_hour",
            "output_tokens_per_s",
            "ttft_s",
            "tpot_s",
            "users",
            "replicas",
        )
        return {
            "name": self.name,
            "scenario": self.scenario.to_dict(),
            "figures": self.figures.to_dict(),
            "served": {k: self.row[k] for k in shown},
            "trial": None if self.trial is None else dict(self.trial),
            "margin": dict(self.margin),
            "simulated": self.simulated,
            "why": self.why,
            **({} if self.autoscaler is None else {"autoscaler": dict(self.autoscaler)}),
        }

    def scaled(self) -> dict[str, Any]:
        """What an autoscaler makes of it, flat; nothing where none was asked for."""
        if self.autoscaler is None:
            return {}
        best, fixed = self.autoscaler["best"] or {}, self.autoscaler["fixed"] or {}
        shown = ("usd_per_day", "gpu_hours_per_day", "mean_replicas", "ttft_p95_s")
        settings = best.get("settings") or {}
        return {
            "settings": ", ".join(f"{key}={value:g}" for key, value in settings.items()),
            **{f"scaled_{key}": best.get(key) for key in shown},
            "always_usd_per_day": fixed.get("usd_per_day"),
            "always_gpu_hours_per_day": fixed.get("gpu_hours_per_day"),
        }


@dataclass(frozen=True, kw_only=True, repr=False)
class Found(Shown):
    """What does, the cheapest first; the front; what was nearest where nothing does."""

    TITLE = "Which hardware, layout and settings"

    objective: Mapping[str, Any]
    searched: Mapping[str, Any]
    answers: tuple[Answer, ...]
    pareto: tuple[int, ...]
    lost: tuple[Mapping[str, Any], ...]
    nearest: tuple[Mapping[str, Any], ...]
    unpriced: tuple[Mapping[str, Any], ...]
    """The fewest GPUs of each card without a price that would do, in closed form."""
    sentence: str
    journal: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values (CONTRACT: search)."""
        return {
            "objective": dict(self.objective),
            "searched": dict(self.searched),
            "answers": [
                {"rank": index + 1, **answer.to_dict()} for index, answer in enumerate(self.answers)
            ],
            "pareto": list(self.pareto),
            "lost": [dict(x) for x in self.lost],
            "nearest": [dict(x) for x in self.nearest],
            "unpriced": [dict(x) for x in self.unpriced],
            "left_out": list(LEFT_OUT),
            "sentence": self.sentence,
            "journal": self.journal,
        }

    def rows(self) -> list[dict[str, Any]]:
        """A flat row an answer, for a table or a data frame."""
        return [
            {
                "rank": index + 1,
                "name": answer.name,
                **answer.to_dict()["served"],
                **answer.figures.to_dict(),
                "ttft_s": answer.row["ttft_s"],
                "simulated_ttft_s": answer.trial["ttft_s"] if answer.trial else None,
                "simulated_tpot_s": answer.trial["tpot_s"] if answer.trial else None,
                "simulated": answer.simulated,
                "on_front": index in self.pareto,
                "margin": min(answer.margin.values(), default=None),
                "why": answer.why,
                **answer.scaled(),
            }
            for index, answer in enumerate(self.answers)
        ]

    def summary(self) -> str:
        """What does, or that nothing does."""
        return self.sentence

    def questions(self) -> Sequence[Scenario]:
        """The question of each answer."""
        return [answer.scenario for answer in self.answers]

    def html_parts(self) -> list[str]:
        """The sentence, the answers by price and time, and what failed."""
        dots = [
            charts.Dot(
                x=answer.row["usd_per_hour"] or 0,
                y=answer.row["e2e_s"],
                label=answer.name if index in self.pareto else str(index + 1),
                says=(
                    f"{answer.name}: ${answer.row['usd_per_hour'] or 0:,.2f} an hour, "
                    f"{answer.row['e2e_s']:.2f} s"
                ),
                best=index in self.pareto,
            )
            for index, answer in enumerate(self.answers)
        ]
        parts = [html.paragraph(self.sentence)]
        if any(dot.x for dot in dots):
            parts += [
                html.heading("Price against the time of a whole request"),
                charts.scatter(
                    dots, "Answers by price and time", "dollars an hour", "seconds a request"
                ),
            ]
        parts += [html.heading("Answers"), html.table(_COLUMNS, self.rows())]
        if any(answer.autoscaler for answer in self.answers):
            parts += [
                html.heading("Over the whole load, with the autoscaler"),
                html.table(_SCALED, self.rows()),
            ]
        if self.lost:
            parts += [
                html.heading("What failed when it was simulated"),
                html.table(_LOST, self.lost),
            ]
        if self.nearest:
            parts += [html.heading("Nearest"), html.table(_NEAREST, self.nearest)]
        return parts


_COLUMNS = (
    html.Column(title="rank", key="rank", number=True),
    html.Column(title="deployment", key="name"),
    html.Column(title="replicas", key="replicas", number=True),
    html.Column(title="GPUs", key="gpus", number=True),
    html.Column(title="$ / hour", key="usd_per_hour", number=True),
    html.Column(title="$ / M tokens", key="usd_per_million_output_tokens", number=True),
    html.Column(title="TTFT, s", key="ttft_s", number=True, decimals=3),
    html.Column(title="TPOT, s", key="tpot_s", number=True, decimals=4),
    html.Column(title="tokens / s", key="output_tokens_per_s", number=True, decimals=0),
    html.Column(title="margin", key="margin", number=True),
    html.Column(title="why not first", key="why"),
)
_SCALED = (
    html.Column(title="rank", key="rank", number=True),
    html.Column(title="deployment", key="name"),
    html.Column(title="settings", key="settings"),
    html.Column(title="$ / day", key="scaled_usd_per_day", number=True),
    html.Column(title="always, $ / day", key="always_usd_per_day", number=True),
    html.Column(title="replicas on average", key="scaled_mean_replicas", number=True),
    html.Column(title="TTFT p95, s", key="scaled_ttft_p95_s", number=True, decimals=3),
)
_LOST = (html.Column(title="deployment", key="name"), html.Column(title="why", key="why"))
_NEAREST = (
    html.Column(title="deployment", key="name"),
    html.Column(title="replicas", key="replicas", number=True),
    html.Column(title="what fails", key="why"),
)


def why_not_first(answer: Answer, best: Answer) -> str:
    """Why ``answer`` is not first."""
    mine, first = answer.row["usd_per_hour"], best.row["usd_per_hour"]
    if mine is None or first is None:
        return f"{answer.row['gpus']:,} GPUs against {best.row['gpus']:,}" + (
            "; its price is not known" if mine is None else ""
        )
    if mine > first * 1.005:
        more, less = _apart(mine, first)
        return f"costs {mine / first:.2f} times as much: ${more} an hour against ${less}"
    per, other = (x.row["usd_per_million_output_tokens"] or 0 for x in (answer, best))
    if per > other * 1.005:
        more, less = _apart(per, other)
        return f"a million tokens cost ${more} against ${less}"
    slow, quick = _apart(answer.row["e2e_s"], best.row["e2e_s"])
    if slow == quick:
        return "costs the same and takes as long"
    return f"costs the same and takes {slow} s a request against {quick} s"


def _apart(one: float, other: float) -> tuple[str, str]:
    """Both with two decimals, or as many more as tell them apart (six at most)."""
    for decimals in range(2, 7):
        shown = f"{one:,.{decimals}f}", f"{other:,.{decimals}f}"
        if shown[0] != shown[1]:
            return shown
    return f"{one:,.2f}", f"{other:,.2f}"


def front(answers: Sequence[Answer]) -> list[int]:
    """Those that no other beats in price, time and tokens a second at once."""

    def point(answer: Answer) -> tuple[float, float, float]:
        money = answer.row["usd_per_hour"]
        return (
            inf if money is None else money,
            answer.row["e2e_s"],
            -answer.row["output_tokens_per_s"],
        )

    points = [point(answer) for answer in answers]

    def beaten(p: tuple[float, float, float]) -> bool:
        return any(
            point != p and all(x <= y for x, y in zip(point, p, strict=True)) for point in points
        )

    return [index for index, point in enumerate(points) if not beaten(point)]
