"""Which hardware, layout and settings serve a load within its objectives, and at what price.

Every deployment of the space is judged in closed form; those that may do are simulated, the cheapest first,
until enough of them hold. The same question and seed give the same answer, in whatever pool it is worked out
and however often it is interrupted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from math import inf
from typing import Any

from kvroom.models.load import load as load_model
from kvroom.models.spec import ModelSpec
from kvroom.optimize.cost import figures_of
from kvroom.optimize.search.answers import Answer, Found, front, why_not_first
from kvroom.optimize.search.closed_form import CHUNK, Question, closed_chunk, scenario_of
from kvroom.optimize.search.demand import Demand
from kvroom.optimize.search.journal import Journal
from kvroom.optimize.search.space import Candidate, Space, candidates
from kvroom.optimize.search.trial import tried
from kvroom.optimize.search.workers import MakePool, Progress, run_all
from kvroom.planner.plan import work
from kvroom.records import dataclass
from kvroom.scenario.scenario import Scenario

SIMULATE = 8
"""Answers wanted that a simulation bears out."""
MOST_ROUNDS = 4
SHOWN_NEAR, SHOWN_LOST = 3, 5
LAYOUT = ("gpu", "gpu_count", "tp", "pp", "dp", "ep", "dcp", "replicas", "workload", "concurrency")
FEW = 0.8
"""The share of simulated figures that should lie within the closed form's 80 % bands."""


Scored = tuple[Candidate, dict[str, Any]]


@dataclass
class Hunt:
    """One search under way."""

    question: Question
    space: Space
    base: Scenario
    journal: Journal
    pool: MakePool | None
    progress: Progress | None
    simulate: int

    @cached_property
    def demand(self) -> Demand:
        """What has to be served."""
        return self.question.demand()

    def scored(self) -> tuple[list[Scored], list[Scored]]:
        """(deployments with figures, deployments that are refused), in the space's order."""
        every = list(candidates(self.base, self.space))
        asked = self.question.to_dict()
        units = [
            {"question": asked, "candidates": [dict(c.keys) for c in every[i : i + CHUNK]]}
            for i in range(0, len(every), CHUNK)
        ]
        chunks = run_all(
            "closed form", closed_chunk, units, self.journal, pool=self.pool, progress=self.progress
        )
        both = list(zip(every, (row for chunk in chunks for row in chunk), strict=True))
        return [x for x in both if "refused" not in x[1]], [x for x in both if "refused" in x[1]]

    def trials(self, ranked: Sequence[Scored]) -> list[tuple[Scored, dict[str, Any]]]:
        """Simulations of the best of ``ranked``, a round at a time, until enough of them hold."""
        made: list[tuple[Scored, dict[str, Any]]] = []
        asked = self.question.to_dict()
        for start in range(0, self.simulate * MOST_ROUNDS, self.simulate or 1):
            batch = ranked[start : start + self.simulate]
            if not batch or sum(t["met"] for _, t in made) >= self.simulate:
                break
            units = [{"question": asked, "keys": dict(c.keys), "row": row} for c, row in batch]
            results = run_all(
                f"simulations from {start + 1}",
                tried,
                units,
                self.journal,
                pool=self.pool,
                progress=self.progress,
            )
            made += list(zip(batch, results, strict=True))
        return made


def price_of(row: Mapping[str, Any], *, free: bool) -> tuple[float, float, float]:
    """What answers are ranked by: dollars an hour (a million tokens where no load is asked), GPUs, time."""
    money = row["usd_per_million_output_tokens" if free else "usd_per_hour"]
    return (inf if money is None else money, row["gpus"], row["e2e_s"])


def search(
    base: Scenario,
    slo: str = "",
    *,
    space: Space | None = None,
    seed: int = 0,
    simulate: int = SIMULATE,
    journal: str | None = None,
    pool: MakePool | None = None,
    progress: Progress | None = None,
) -> Found:
    """Search ``space`` for what serves ``base``'s model and workload within ``slo``.

    ``base``'s card and layout do not count. ``simulate`` answers are borne out by simulation (0: none).
    KvroomError for a question that contradicts itself; where nothing does, the answer says what is nearest.
    """
    space = space or Space()
    question = _question(base, slo, seed, space)
    asked = {"question": question.to_dict(), "space": space.to_dict(), "simulate": simulate}
    with Journal(journal, asked) as kept:
        hunt = Hunt(question, space, base, kept, pool, progress, simulate)
        free = hunt.demand.users is None and hunt.demand.requests_per_s is None
        rows, refused = hunt.scored()
        does = [x for x in rows if x[1]["meets"] and x[1]["gpus"] <= space.max_gpus]
        does.sort(key=lambda x: (price_of(x[1], free=free), x[0].name))
        trials = hunt.trials(does) if simulate else []
    return _told(hunt, rows, refused, does, trials, free=free, journal=journal)


def _question(base: Scenario, slo: str, seed: int, space: Space) -> Question:
    keys = {k: v for k, v in base.differences().items() if k not in LAYOUT}
    workload = base.workload
    if workload is None:
        load: dict[str, Any] = {}
    else:
        load = {k: v for k, v in workload.to_dict().items() if v is not None}
        load.pop("static", None) if not workload.static else None
    if keys.get("context_tokens") is None:
        keys.pop("context_tokens", None)
    question = Question(keys=keys, workload=load, slo=slo, seed=seed, max_gpus=space.max_gpus)
    demand = question.demand()
    if "context_tokens" not in keys:
        keys["context_tokens"] = _roomy(demand.longest_tokens, load_model(base.model))
        question = replace(question, keys=keys)
    return question


def _roomy(tokens: int, model: ModelSpec) -> int:
    """The longest request to allow for: a power of two beyond ``tokens``, within the model's own limit."""
    limit = 2048
    while limit <= tokens:
        limit *= 2
    return max(tokens + 1, min(limit, model.max_context_tokens or limit))


def _told(
    hunt: Hunt,
    rows: Sequence[Scored],
    refused: Sequence[Scored],
    does: Sequence[Scored],
    trials: Sequence[tuple[Scored, dict[str, Any]]],
    *,
    free: bool,
    journal: str | None,
) -> Found:
    held, within = _merged(trials)
    chosen = held if hunt.simulate else [(c, row, None) for c, row in does[:SIMULATE]]
    chosen.sort(key=lambda x: (price_of(x[1], free=free), x[0].name))
    answers = [_answer(hunt, *x) for x in chosen]
    answers = [
        a if i == 0 else replace(a, why=why_not_first(a, answers[0])) for i, a in enumerate(answers)
    ]
    lost = [
        {"name": c.name, "replicas": t["replicas"], "why": _failed(hunt, t)}
        for (c, _), t in trials
        if not t["met"]
    ]
    near = [] if answers else _nearest(hunt, rows, trials)
    searched = {
        "deployments": len(rows) + len(refused),
        "planned": len(rows),
        "candidates": len(refused) + sum(row["loads"] for _, row in rows),
        "refused": len(refused),
        "feasible_in_closed_form": len(does),
        "simulated": len(trials),
        "simulated_within_band": within,
    }
    return Found(
        objective=_objective(hunt),
        searched=searched,
        answers=tuple(answers),
        pareto=tuple(front(answers)),
        lost=tuple(lost[:SHOWN_LOST]),
        nearest=tuple(near),
        sentence=_cheapest(answers[0], searched)
        if answers
        else _nothing(hunt, rows, refused, near),
        journal=journal,
    )


def _merged(
    trials: Sequence[tuple[Scored, dict[str, Any]]],
) -> tuple[list[tuple[Candidate, dict[str, Any], dict[str, Any] | None]], dict[str, float]]:
    """Those that hold, with the replicas that it took; by time, the share of simulated ones that lay
    within the closed form's band (of simulations of what the closed form had in mind)."""
    held: list[tuple[Candidate, dict[str, Any], dict[str, Any] | None]] = []
    inside: dict[str, list[bool]] = {}
    for (c, row), t in trials:
        if t["replicas"] == row["replicas"] and t.get("users") == row["users"]:
            for metric in ("ttft", "tpot"):
                value = t.get(f"{metric}_s")
                if value is not None:
                    low, high = row[f"{metric}_low_s"], row[f"{metric}_high_s"]
                    inside.setdefault(metric, []).append(low <= value <= high)
        if t["met"]:
            more = t["replicas"] / row["replicas"]
            row = {  # noqa: PLW2901
                **row,
                "replicas": t["replicas"],
                "users": t["users"],
                "gpus": round(row["gpus"] * more),
                "usd_per_hour": row["usd_per_hour"] and row["usd_per_hour"] * more,
                "output_tokens_per_s": t["output_tokens_per_s"],
                "e2e_s": t["ttft_s"] + t["tpot_s"] * (row["e2e_s"] - row["ttft_s"]) / row["tpot_s"],
            }
            hour, tokens = row["usd_per_hour"], row["output_tokens_per_s"]
            row["usd_per_million_output_tokens"] = hour and hour / 3600 / tokens * 1e6
            held.append((c, row, t))
    return held, {metric: sum(found) / len(found) for metric, found in inside.items()}


def _answer(hunt: Hunt, c: Candidate, row: dict[str, Any], trial: dict[str, Any] | None) -> Answer:
    scenario = scenario_of(hunt.question, c.keys, row)
    values = trial["slo"] if trial else {}
    margin = {
        o.name: (o.limit_s - values.get(o.name, row.get(f"{o.metric}_s", row["tpot_s"])))
        / o.limit_s
        for o in hunt.demand.slo
    }
    figures = replace(
        figures_of(work(scenario)),
        usd_per_million_output_tokens=row["usd_per_million_output_tokens"],
    )
    name = c.name if row["replicas"] == 1 else f"{row['replicas']} × {c.name}"
    return Answer(
        name=name, scenario=scenario, figures=figures, row=row, trial=trial, margin=margin
    )


def _failed(hunt: Hunt, t: Mapping[str, Any]) -> str:
    if "why" in t:
        return str(t["why"])
    limits = {o.name: o.limit_s for o in hunt.demand.slo}
    missed = [
        f"{name} {'none' if v is None else f'{v:.3g} s'} against {limits[name]:g} s"
        for name, v in t["slo"].items()
        if v is None or v > limits[name]
    ]
    if t["dropped"]:
        missed.append(f"{t['dropped']:,} requests are longer than it takes")
    return f"simulated with {t['replicas']:,} replicas: {', '.join(missed)}"


def _nearest(
    hunt: Hunt, rows: Sequence[Scored], trials: Sequence[tuple[Scored, dict[str, Any]]]
) -> list[dict[str, Any]]:
    """What comes nearest: those that failed least when simulated, else in closed form."""
    limits = {o.name: o.limit_s for o in hunt.demand.slo}
    near: list[tuple[float, dict[str, Any]]] = []
    for (c, row), t in trials:
        over = [(v or inf) / limits[n] for n, v in t.get("slo", {}).items()]
        told = {"name": c.name, "scenario": dict(c.keys), "replicas": t["replicas"]}
        told |= {"ratio": max(over, default=inf), "why": _failed(hunt, t)}
        near.append((told["ratio"], told | {"usd_per_hour": row["usd_per_hour"]}))
    if not near:
        for c, row in rows:
            over_fleet = row["gpus"] > hunt.space.max_gpus
            why = (
                f"would take {row['gpus']:,} GPUs, more than {hunt.space.max_gpus:,}"
                if over_fleet
                else f"{row['worst']} is {row['ratio']:.2f} times its limit with one user: it would do with "
                f"{row['worst']}={limits.get(row['worst'], 0) * row['ratio']:.3g}s"
            )
            ratio = row["gpus"] / hunt.space.max_gpus if over_fleet else row["ratio"]
            told = {"name": c.name, "scenario": dict(c.keys), "replicas": row["replicas"]}
            near.append(
                (ratio, {**told, "ratio": ratio, "why": why, "usd_per_hour": row["usd_per_hour"]})
            )
    near.sort(key=lambda x: (x[0], x[1]["name"]))
    return [
        {**told, "ratio": None if told["ratio"] == inf else told["ratio"]}
        for _, told in near[:SHOWN_NEAR]
    ]


def _objective(hunt: Hunt) -> dict[str, Any]:
    d = hunt.demand
    return {
        "slo": {o.name: o.limit_s for o in d.slo},
        "users": d.users,
        "requests_per_s": d.requests_per_s,
        "input_tokens": d.input_tokens,
        "output_tokens": d.output_tokens,
        "minimise": "usd_per_hour"
        if d.users or d.requests_per_s
        else "usd_per_million_output_tokens",
        "seed": hunt.question.seed,
    }


def _cheapest(best: Answer, searched: Mapping[str, Any]) -> str:
    """The answer in a sentence, and whether the closed form can be trusted here."""
    money = best.row["usd_per_hour"]
    price = f" at ${money:,.2f} an hour" if money is not None else ", whose price is not known"
    gpus = best.row["gpus"]
    text = f"The cheapest that does: {best.name}, {gpus:,} GPU{'s' if gpus > 1 else ''}{price}"
    if best.margin:
        name, ratio = min(best.margin.items(), key=lambda x: x[1])
        text += f", {name} with {ratio:.0%} to spare"
    text += "." if best.simulated else ", in closed form alone."
    for metric, share in searched["simulated_within_band"].items():
        if share < FEW:
            text += (
                f" Only {share:.0%} of the simulated {metric.upper()} lie within the closed form's bands: "
                "trust the simulated ones."
            )
    return text


def _nothing(
    hunt: Hunt,
    rows: Sequence[Scored],
    refused: Sequence[Scored],
    near: Sequence[Mapping[str, Any]],
) -> str:
    """Why nothing does."""
    if not rows and not refused:
        return "Nothing to search: no layout of these cards and counts suits the model."
    if not rows:
        reasons = Counter(str(row["refused"]) for _, row in refused)
        most = reasons.most_common(1)[0][0].rstrip(".")
        return f"None of {len(refused):,} deployments runs. Most often: {most}."
    most_gpus = hunt.space.max_gpus
    fewest = min((row["gpus"] for _, row in rows if row["ratio"] <= 1), default=0)
    if fewest > most_gpus:
        return (
            f"No fleet of up to {most_gpus:,} GPUs carries this load: the smallest that would has "
            f"{fewest:,}."
        )
    return f"Nothing meets the objectives. Nearest: {near[0]['name']}: {near[0]['why']}."
