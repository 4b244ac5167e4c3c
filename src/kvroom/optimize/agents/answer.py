"""How many sessions hold, why no more, and what each change is worth: the answer of ``kvroom agents``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, sqrt
from typing import Any

from kvroom.answer import html
from kvroom.answer.plot import STYLE, Series, plot
from kvroom.answer.shown import Shown
from kvroom.optimize.agents.hold import STEPS, SeedHeld
from kvroom.optimize.agents.trial import AgentTrial
from kvroom.optimize.agents.variants import Variant
from kvroom.planner.plan import Workings
from kvroom.planner.simulate import Objective
from kvroom.records import dataclass
from kvroom.scenario.scenario import Scenario
from kvroom.units import show_seconds

STUDENT = (3.078, 1.886, 1.638, 1.533, 1.476, 1.440, 1.415, 1.397, 1.383, 1.372)
"""Student's t at 90 %, for one degree of freedom and more (from eleven on the last is taken)."""
FALLS, EATS = 0.03, 0.25
"""Hits that fall by so much, and so much of the prompts' time for what was evicted, are thrash."""
BEYOND = 3.0
FULL = 0.98
"""Of the cache, held by requests that run."""
METRICS = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2e": "end to end"}


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantHeld:
    """What one deployment holds, by seed; ``why`` it holds nothing where it cannot be."""

    variant: Variant
    gpus: int = 0
    usd_per_hour: float | None = None
    held: tuple[SeedHeld, ...] = ()
    why: str | None = None
    workings: Workings | None = None

    @property
    def sessions(self) -> int:
        """The median of the numbers of sessions that its seeds hold."""
        users = sorted(each.users for each in self.held)
        return users[(len(users) - 1) // 2] if users else 0

    @property
    def band(self) -> tuple[int, int] | None:
        """The range that another draw of sessions falls into four times in five: Student's prediction
        interval, including the step width of the search. None for a single seed."""
        found = [each.users for each in self.held]
        count = len(found)
        if count < 2:
            return None
        mean = sum(found) / count
        spread = sum((users - mean) ** 2 for users in found) / (count - 1)
        grain = max(1.0, mean / STEPS)
        deviation = sqrt(spread + grain * grain / 12)
        wide = STUDENT[min(count - 2, len(STUDENT) - 1)] * deviation * sqrt(1 + 1 / count)
        return max(0, round(mean - wide)), round(mean + wide)

    @property
    def best(self) -> AgentTrial | None:
        """The load of as many sessions as hold; where none hold, of the fewest that were tried."""
        if not self.held:
            return None
        middle = next((each for each in self.held if each.users == self.sessions), self.held[0])
        return middle.best or (middle.trials[0] if middle.trials else None)

    @property
    def usd_per_session_hour(self) -> float | None:
        """Dollars for an hour of one session, when as many run as hold."""
        if self.usd_per_hour is None or not self.sessions:
            return None
        return self.usd_per_hour / self.sessions

    def row(self) -> dict[str, Any]:
        """A flat row."""
        best, band = self.best, self.band
        tiers = dict(best.tiers) if best else {}
        return {
            "id": self.variant.id,
            "label": self.variant.label,
            "gpus": self.gpus,
            "sessions": self.sessions,
            "sessions_low": band[0] if band else None,
            "sessions_high": band[1] if band else None,
            "requests_per_hour": best.requests_per_s * 3600 if best else None,
            "ttft_p95_s": best.ttft_p95_s if best else None,
            "tpot_p95_s": best.tpot_p95_s if best else None,
            "hit_ratio": best.hit_ratio if best else None,
            **{f"hit_ratio_{kind}": tiers.get(kind) for kind in ("gpu", "host", "nvme", "network")},
            "usd_per_hour": self.usd_per_hour,
            "usd_per_session_hour": self.usd_per_session_hour,
            "why": self.why,
        }


@dataclass(frozen=True, kw_only=True, repr=False)
class AgentsAnswer(Shown):
    """The base question first, then its changes; ``asked`` sessions were to be held (None: as many as
    can)."""

    TITLE = "How many sessions hold"
    name: str
    slo: tuple[Objective, ...]
    found: tuple[VariantHeld, ...]
    asked: int | None = None
    seeds: int = 1
    warnings: tuple[str, ...] = ()

    @property
    def base(self) -> VariantHeld:
        """The deployment as it is asked."""
        return self.found[0]

    @property
    def holds(self) -> bool:
        """Whether the number of sessions that was asked for holds; whether any hold, where none was
        asked for."""
        return self.base.sessions >= (self.asked or 1)

    @property
    def sentence(self) -> str:
        """The verdict."""
        base, wanted = self.base, limits_text(self.slo)
        if base.why:
            return f"Not one session holds: {base.why}."
        place = _place(base)
        most = f"{base.sessions:,}"
        if base.band:
            low, high = base.band
            most += f" ({low:,} to {high:,} in four draws of five)"
        if not base.sessions:
            return f"Not one session keeps {wanted} on {place}: {self.reason}."
        if self.asked is None:
            return f"{most} sessions at a time keep {wanted} on {place}: {self.reason}."
        word = "hold" if self.holds else "do not hold"
        return f"{self.asked:,} sessions {word}: {most} at a time keep {wanted} on {place}: {self.reason}."

    @property
    def reason(self) -> str:
        """Why no more hold."""
        return broken_text(self.base.held[0].trials)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "sessions_of": self.name,
            "asked": self.asked,
            "holds": self.holds,
            "sentence": self.sentence,
            "slo": {objective.name: objective.limit_s for objective in self.slo},
            "seeds": self.seeds,
            "variants": [
                {
                    **each.row(),
                    "by_seed": [held.users for held in each.held],
                    "trials": [trial.to_dict() for held in each.held[:1] for trial in held.trials],
                }
                for each in self.found
            ],
            "warnings": list(self.warnings),
        }

    def rows(self) -> list[dict[str, Any]]:
        """A flat row a deployment."""
        return [each.row() for each in self.found]

    def summary(self) -> str:
        """The verdict."""
        return self.sentence

    def questions(self) -> Sequence[Scenario]:
        """The deployment as asked."""
        made = self.base.workings
        return () if made is None else (made.plan.scenario,)

    def picture(self) -> str:
        """The plot: the 95th percentile of first tokens over sessions, a line a deployment, cut off at
        BEYOND times the objective."""
        limit = next((o.limit_s for o in self.slo if o.metric == "ttft"), None)
        series = [
            Series(each.variant.label, points, points, said="simulated")
            for each in self.found
            if (points := _points(each, limit))
        ]
        xs = [x for one in series for x, _ in one.line]
        if limit and xs:
            series.append(Series("objective", [(min(xs), limit), (max(xs), limit)]))
        says = "p95 of the time to first token over sessions"
        head, sign, rest = plot(says, "sessions", "TTFT p95 (s)", series).partition(">")
        return f"{head}{sign}{html.element('style', STYLE)}{rest}"

    def html_parts(self) -> list[str]:
        """What its report says."""
        columns = [
            html.Column(title="deployment", key="label"),
            html.Column(title="GPUs", key="gpus", number=True, decimals=0),
            html.Column(title="sessions", key="sessions", number=True, decimals=0),
            html.Column(title="from", key="sessions_low", number=True, decimals=0),
            html.Column(title="to", key="sessions_high", number=True, decimals=0),
            html.Column(title="requests an hour", key="requests_per_hour", number=True, decimals=0),
            html.Column(title="TTFT p95 (s)", key="ttft_p95_s", number=True),
            html.Column(title="TPOT p95 (s)", key="tpot_p95_s", number=True, decimals=4),
            html.Column(title="hits", key="hit_ratio", number=True, decimals=3),
            html.Column(title="$ a session-hour", key="usd_per_session_hour", number=True),
        ]
        parts = [
            html.paragraph(self.sentence),
            self.picture(),
            html.heading("What each is worth"),
        ]
        parts.append(html.table(columns, [row for row in self.rows() if not row["why"]]))
        reasons = [f"{r['label']}: {r['why']}" for r in self.rows() if r["why"]]
        parts += [html.paragraph(f"{words}.", soft=True) for words in (*reasons, *self.warnings)]
        return parts


def _points(each: VariantHeld, limit: float | None) -> list[tuple[float, float]]:
    trials: Sequence[AgentTrial] = each.held[0].trials if each.held else ()
    most = BEYOND * limit if limit else inf
    return [(float(t.users), min(most, t.ttft_p95_s)) for t in trials if t.ttft_p95_s]


def _place(each: VariantHeld) -> str:
    assert each.workings is not None
    return f"{each.gpus} × {each.workings.deployment.device.name}"


def limits_text(slo: Sequence[Objective]) -> str:
    """The objectives in words."""
    return " and ".join(
        f"{o.at} of {METRICS[o.metric]} within {show_seconds(o.limit_s)}" for o in slo
    )


def broken_text(trials: Sequence[AgentTrial]) -> str:
    """Why the next larger number of sessions is too many: which objective it misses, what the GPUs do
    meanwhile, and from where on the cache thrashes."""
    broken = next((trial for trial in trials if not trial.met), None)
    if broken is None:
        return "more were not tried"
    if broken.dropped and not broken.requests:
        long = (warning for warning in broken.warnings if "the longest may have" in warning)
        why = next(long, "no request is within the model's length")
        return f"at {broken.users:,} every request is dropped: {why}"
    missed = " and ".join(_missed(name, broken) for name in broken.missed) or "nothing is answered"
    text = f"at {broken.users:,} {missed}, since {cause(trials[0], broken)}"
    worse = next(
        (trial for trial in trials if trial.users > broken.users and thrashes(trial)), None
    )
    if worse is not None and not thrashes(broken):
        text += f"; at {worse.users:,} {cause(trials[0], worse)}"
    return text


def thrashes(trial: AgentTrial) -> bool:
    """Whether evicted tokens are needed again too soon: hits fall, and computing them again takes the
    GPUs' time."""
    again = trial.again_ratio / trial.prefill_ratio if trial.prefill_ratio else 0.0
    return trial.ideal_ratio - trial.hit_ratio >= FALLS and again >= EATS


def _missed(name: str, trial: AgentTrial) -> str:
    metric, _, at = name.rpartition("_")
    values: Mapping[str, float | None] = {
        "ttft_p95": trial.ttft_p95_s,
        "ttft_p50": trial.ttft_p50_s,
        "tpot_p95": trial.tpot_p95_s,
    }
    value = values.get(name)
    text = f"{at} of {METRICS[metric]}"
    return f"{text} is {show_seconds(value)}" if value else f"{text} is missed"


def cause(light: AgentTrial, broken: AgentTrial) -> str:
    """What breaks first, against a ``light`` load."""
    if thrashes(broken):
        again = broken.again_ratio / broken.prefill_ratio
        return (
            f"the cache thrashes: hits fall from {light.hit_ratio:.1%} of the prompts to "
            f"{broken.hit_ratio:.1%}, a larger cache had {broken.ideal_ratio:.1%}, and {again:.0%} of the "
            "prompts' time computes again what was evicted"
        )
    if any(name.startswith(("tpot", "itl")) for name in broken.missed):
        return "steps get longer with every request that decodes and every prompt beside it"
    if broken.peak_ratio >= FULL:
        return "requests that run fill the cache and the others wait for room"
    return "new parts of prompts come faster than they are computed"
