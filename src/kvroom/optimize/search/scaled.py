"""Answers of a search under an autoscaler: the settings that make each cheapest over the whole load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any

from kvroom.errors import KvroomError
from kvroom.optimize.scaling import (
    ScalePoint,
    ScaleRange,
    Settings,
    at,
    autoscaling_of,
    check_objectives,
    combined,
    named,
    played,
)
from kvroom.optimize.search.answers import Answer, Found
from kvroom.optimize.search.closed_form import Question, scenario_of
from kvroom.optimize.search.hunt import Hunt, Scored
from kvroom.optimize.search.trial import loaded
from kvroom.optimize.search.tuned import Tuned, tuned
from kvroom.records import dataclass
from kvroom.scenario.autoscale import Autoscaling
from kvroom.scenario.scenario import Scenario
from kvroom.units import show_seconds
from kvroom.workloads.synthetic import of_workload

MOST_PLAYED = 10**7
"""Requests of a day that are played, every one of them."""


@dataclass(frozen=True, kw_only=True)
class AutoscaledSearch:
    """What is asked of an autoscaler: the ``question`` with its whole load, and the values to try."""

    question: Question
    rule: Autoscaling
    over: tuple[ScaleRange, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        swept = {one.key: list(one.values) for one in self.over}
        return {"question": self.question.to_dict(), "over": swept}


def without(base: Scenario) -> Scenario:
    """``base`` with fleets that stay as they are."""
    fleet = base.fleet and replace(base.fleet, autoscale=None)
    return replace(base, fleet=fleet if fleet and fleet.keys else None)


def autoscaled(
    base: Scenario, question: Question, over: Sequence[ScaleRange], simulate: int
) -> AutoscaledSearch:
    """The search's own ``question`` as it is asked of the autoscaler of ``base``."""
    rule = autoscaling_of(base, value=over[0].key if over else None)
    demand = question.demand()
    check_objectives(demand.slo)
    for settings in combined(over):
        at(base, settings)
    if demand.free:
        fix = "Add arrivals=day:1e5/day:peak=1.6 to the workload."
        raise KvroomError("workload", None, "says not when requests come", fix)
    if not simulate:
        fix = "Leave out --simulate 0."
        raise KvroomError("--scale-to", rule.policy, "is told by simulation alone", fix)
    load = dict(question.workload)
    if base.workload is not None and question.trace is None:
        source = of_workload(base.workload)
        if source.arrivals.curve is not None:
            count = source.requests
            if count > MOST_PLAYED:
                why = f"has {count:,} requests, of which every one is played"
                fix = (
                    f"Ask for a day of {MOST_PLAYED:,} at most: fleets grow with it in proportion."
                )
                raise KvroomError("workload.arrivals", base.workload.arrivals, why, fix)
            load |= {"arrivals": base.workload.arrivals, "requests": count}
    fleet = base.to_dict()["fleet"]
    whole = replace(question, keys={**question.keys, "fleet": fleet}, workload=load)
    return AutoscaledSearch(question=whole, rule=rule, over=tuple(over))


def asked_of(
    question: Question, keys: Mapping[str, Any], replicas: int, settings: Settings | None
) -> Scenario:
    """The Scenario of an answer that begins with ``replicas``, or as many as the settings allow."""
    first = int(min(replicas, (settings or {}).get("max", replicas)))
    return scenario_of(question, keys, first)


def scaled(unit: Mapping[str, Any]) -> dict[str, Any]:
    """A unit of work: the whole load under one setting, or (None) under the fleet that never changes."""
    question, settings = Question(**unit["question"]), unit["settings"]
    scenario = asked_of(question, unit["keys"], unit["replicas"], settings)
    try:
        question_with_load, source, linked = loaded(question, scenario)
        point = played(
            question_with_load, settings, source, slo=question.demand().slo, linked=linked
        )
    except KvroomError as error:
        return {"refused": f"{error.field} {error.message}"}
    assert point is not None  # nobody watches it
    return point.to_dict()


def tune(hunt: Hunt, scaled_search: AutoscaledSearch, scored: Scored) -> Tuned | str:
    """The settings for the fleet of ``scored``, or why it has no autoscaler."""
    refused: list[str] = []
    n = scored.row["replicas"]

    def play(settings: Sequence[Settings | None]) -> list[ScalePoint]:
        alike = {"question": scaled_search.question.to_dict(), "keys": dict(scored.candidate.keys)}
        units = [alike | {"replicas": n, "settings": one and dict(one)} for one in settings]
        points = hunt.work(f"autoscaler of {scored.candidate.name}", scaled, units)
        refused.extend(one["refused"] for one in points if one and "refused" in one)
        return [ScalePoint(**one) for one in points if one and "refused" not in one]

    tuned_rule = tuned(scaled_search.over, scaled_search.rule, n, play)
    return refused[0] if refused else tuned_rule


def cheapest(tuned: Tuned | str | None) -> ScalePoint | None:
    """What an answer costs a day: the cheapest settings that hold, or the fleet that never changes."""
    if not isinstance(tuned, Tuned):
        return None
    if tuned.best is not None:
        return tuned.best
    return tuned.fixed if tuned.fixed and tuned.fixed.holds else None


def told(scaled_search: AutoscaledSearch, tuned: Tuned | str) -> dict[str, Any]:
    """An answer's ``autoscaler``, as plain JSON values."""
    policy = {"policy": scaled_search.rule.policy}
    if isinstance(tuned, str):
        return policy | {"best": None, "fixed": None, "points": [], "why": tuned}
    why = None
    if tuned.best is None:
        why = "no setting that was tried holds" if tuned.points else "no replica can be let go"
    return policy | {
        "best": tuned.best and tuned.best.to_dict(),
        "fixed": tuned.fixed and tuned.fixed.to_dict(),
        "points": [point.to_dict() for point in tuned.points],
        "why": why,
    }


def sentence(name: str, scaled_search: AutoscaledSearch, tuned: Tuned | str | None, of: int) -> str:
    """The cheapest under its autoscaler in words, and what the fleet that never changes costs."""
    best = cheapest(tuned)
    if best is None or not isinstance(tuned, Tuned) or tuned.fixed is None:
        return "No fleet that was simulated holds the objectives over the whole load."
    reached = ", ".join(f"{name} {show_seconds(value or 0.0)}" for name, value in best.slo.items())
    text = (
        f"The cheapest over the whole load, of {of:,} simulated: {name}, {{}}: {best.told_cost()}"
    )
    text += f", {reached}"
    if best.settings is None:
        return f"{text.format('always')}."
    text = text.format(f"{scaled_search.rule.policy} with {named(best.settings)}")
    holds = "holds" if tuned.fixed.holds else "does not hold"
    return (
        f"{text}, {best.mean_replicas:.3g} replicas on average; as many as there may be, always, {holds} at "
        f"{tuned.fixed.told_cost()}."
    )


def why_dearer(mine: ScalePoint | None, best: ScalePoint) -> str:
    """Why an answer is not first under its autoscaler."""
    if mine is None:
        return "does not hold the objectives over the whole load"
    if mine.cost > best.cost * 1.005:
        more = mine.cost / best.cost
        return f"costs {more:.2f} times as much: {mine.told_cost()} against {best.told_cost()}"
    slow, quick = (show_seconds(point.ttft_p95_s or 0.0) for point in (mine, best))
    return f"costs as much a day; TTFT p95 {slow} against {quick}"


def reordered(
    result: Found, chosen: Sequence[Scored], rule: AutoscaledSearch, tunings: Sequence[Tuned | str]
) -> Found:
    """``result`` with what its answers cost under the autoscaler, the cheapest first."""
    costs = [cheapest(tuning) for tuning in tunings]
    order = sorted(
        range(len(costs)), key=lambda i: (inf, i) if (c := costs[i]) is None else (*c.rank, i)
    )
    answers: list[Answer] = []
    for place in order:
        answer, mine, best = result.answers[place], costs[place], costs[order[0]]
        settings = mine.settings if mine else None
        keys, n = chosen[place].candidate.keys, chosen[place].row["replicas"]
        if settings is not None:
            asked = asked_of(rule.question, keys, n, settings)
            answer = replace(answer, scenario=at(asked, settings))
        why = "" if best is None or not answers else why_dearer(mine, best)
        answers.append(replace(answer, autoscaler=told(rule, tunings[place]), why=why))
    if not answers:
        return result
    first = order[0]
    words = sentence(answers[0].name, rule, tunings[first], len(answers))
    return replace(
        result,
        answers=tuple(answers),
        pareto=tuple(order.index(index) for index in result.pareto),
        sentence=f"{words} With a fleet that stays as it is: "
        f"{result.sentence[0].lower()}{result.sentence[1:]}",
    )
