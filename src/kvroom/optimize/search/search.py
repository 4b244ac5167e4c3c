"""Which hardware, layout and settings serve a load within its objectives, and at what price.

Every deployment of the space is judged in closed form; those that may do are simulated, the cheapest first,
until none can be cheaper than the best (``hunt.py``). The same question and seed give the same answer, in
whatever pool it is worked out and however often it is interrupted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any

from kvroom.distributed.journal import Journal
from kvroom.distributed.processes import MakePool
from kvroom.distributed.workers import Progress
from kvroom.errors import KvroomError, did_you_mean
from kvroom.models.load import load as load_model
from kvroom.models.spec import ModelSpec
from kvroom.optimize.cost import figures_of
from kvroom.optimize.scaling import ScaleRange
from kvroom.optimize.search.answers import Answer, Found, front, why_not_first
from kvroom.optimize.search.closed_form import Question, scenario_of
from kvroom.optimize.search.hunt import Hunt, Scored, firsts
from kvroom.optimize.search.played import PlayedTrace
from kvroom.optimize.search.scaled import autoscaled, reordered, tune, without
from kvroom.optimize.search.space import Space
from kvroom.planner.plan import work
from kvroom.scenario.layout import DEGREES
from kvroom.scenario.scenario import Scenario
from kvroom.units import show_seconds
from kvroom.workloads.synthetic import of_workload

SIMULATE = 8
"""Kinds of answer wanted that a simulation bears out."""
SHOWN_NEAR, SHOWN_LOST, SHOWN_UNPRICED = 3, 5, 5
OWN = ("gpu", "gpu_count", *DEGREES, "replicas", "workload", "concurrency", "disaggregation")
"""Keys that a deployment or the load sets."""
FEW = 0.8
"""The share of simulated figures that should lie within the closed form's 80 % bands."""
GPU = "gpu"


def search(
    base: Scenario,
    slo: str = "",
    *,
    space: Space | None = None,
    seed: int = 0,
    simulate: int = SIMULATE,
    per: str | None = None,
    journal: str | None = None,
    pool: MakePool | None = None,
    progress: Progress | None = None,
    traced: PlayedTrace | None = None,
    scale_to: Sequence[ScaleRange] = (),
) -> Found:
    """Search ``space`` for what serves ``base``'s model and workload within ``slo``; in the place of the
    workload a trace's ``traced``, which is ``lent`` to whoever simulates.

    ``base``'s card does not count; degrees of its layout that differ from one, and more replicas than one,
    are fixed choices. ``simulate`` kinds of answer are borne out by simulation (0: none), ``per`` "gpu" the
    best of each card. Where ``base``'s fleet has an autoscaler, what holds with fleets that stay as they are
    is played over the whole load with it, at the values of ``scale_to``. Interrupted from the keyboard it
    answers with what is known. KvroomError for a question that contradicts itself; where nothing does, the
    answer says what is nearest.
    """
    if per not in (None, GPU):
        raise KvroomError("--per", per, "is no group", did_you_mean(str(per), (GPU,), "Write gpu."))
    space = _fixed(base, space or Space())
    scaling = bool(scale_to) or (base.fleet is not None and base.fleet.autoscale is not None)
    if scaling:
        space = replace(space, splits=False)  # pools of two kinds have no autoscaler
    fixed = without(base) if scaling else base
    question = _question(fixed, slo, seed, space, traced)
    identity = {"question": question.to_dict(), "space": space.to_dict(), "simulate": simulate}
    rule = autoscaled(base, question, scale_to, simulate) if scaling else None
    if rule is not None:
        identity["autoscaler"] = rule.to_dict()
    with Journal(journal, identity | {"per": per}) as kept:
        hunt = Hunt(
            question=question,
            space=space,
            base=fixed,
            journal=kept,
            pool=pool,
            progress=progress,
            simulate=simulate,
        )
        rows, refused = hunt.scored()
        priced = [row for row in rows if row.row["usd_per_card_hour"] is not None] or rows
        groups = _by_card(priced) if per == GPU else [priced]
        if simulate:
            ended = [hunt.optimum(group) for group in groups]
            hunt.proven = all(ended)
        if simulate and per is None:
            hunt.others(priced, simulate)
        chosen = _chosen(hunt, rows, per=per)
        tunings = [tune(hunt, rule, one) for one in chosen] if rule is not None else []
    result = _told(hunt, rows, refused, chosen, journal=journal)
    return result if rule is None else reordered(result, chosen, rule, tunings)


def _fixed(base: Scenario, space: Space) -> Space:
    """``space`` with the degrees that the question sets."""
    degrees = {
        degree: getattr(base, degree)
        for degree in DEGREES
        if degree in base.differences() and getattr(base, degree)
    }
    return replace(space, layout={**degrees, **space.layout})


def _by_card(rows: Sequence[Scored]) -> list[list[Scored]]:
    groups: dict[str, list[Scored]] = {}
    for row in rows:
        groups.setdefault(str(row.candidate.keys["gpu"]), []).append(row)
    return list(groups.values())


def _question(
    base: Scenario, slo: str, seed: int, space: Space, traced: PlayedTrace | None
) -> Question:
    keys = {key: value for key, value in base.differences().items() if key not in OWN}
    workload = base.workload
    load: dict[str, Any] = {} if traced is None else dict(traced.load)
    if workload is not None and traced is None:
        load = {key: value for key, value in workload.to_dict().items() if value is not None}
        load.pop("static", None) if not workload.static else None
        seed = seed or workload.seed or 0
        source = of_workload(workload) if workload.arrivals else None
        if source and source.arrivals.curve and not workload.requests:
            # As many as are simulated are those of a day's busiest time, as in the closed form.
            load["arrivals"] = f"poisson:{source.arrivals.busiest_per_s:.9g}/s"
    if keys.get("context_tokens") is None:
        keys.pop("context_tokens", None)
    question = Question(
        keys=keys,
        workload=load,
        slo=slo,
        seed=seed,
        max_gpus=space.max_gpus,
        replicas=base.replicas if base.replicas > 1 or base.disaggregation else None,
        trace=None if traced is None else traced.summary,
    )
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


def _does(hunt: Hunt, rows: Sequence[Scored]) -> list[Scored]:
    """Those that may do in closed form, in order."""
    return sorted((row for row in rows if (row.closed or row.row)["meets"]), key=hunt.rank)


def _chosen(hunt: Hunt, rows: Sequence[Scored], *, per: str | None) -> list[Scored]:
    """The answers, in order."""
    priced_rows = [row for row in rows if row.row["usd_per_card_hour"] is not None]
    does = _does(hunt, rows)
    met = [trial for trial in hunt.trials if trial.trial and trial.trial["met"]]
    alone = not hunt.simulate or (hunt.stopped and not met)
    chosen = [doe for doe in does if doe in priced_rows or not priced_rows] if alone else met
    chosen = list(firsts(sorted(chosen, key=hunt.rank)))
    if per == GPU:
        return [group[0] for group in _by_card(chosen)]
    return chosen[: hunt.simulate or SIMULATE]


def _told(
    hunt: Hunt,
    rows: Sequence[Scored],
    refused: Sequence[Scored],
    chosen: Sequence[Scored],
    *,
    journal: str | None,
) -> Found:
    does = _does(hunt, rows)
    answers = [_answer(hunt, x) for x in chosen]
    answers = [
        answer if index == 0 else replace(answer, why=why_not_first(answer, answers[0]))
        for index, answer in enumerate(answers)
    ]
    failed = [trial for trial in hunt.trials if trial.trial and not trial.trial["met"]]
    near = [] if answers else _nearest(hunt, rows)
    searched = {
        "deployments": len(rows) + len(refused),
        "planned": len(rows),
        "candidates": len(refused) + sum((row.closed or row.row)["loads"] for row in rows),
        "refused": len(refused),
        "feasible_in_closed_form": len(does),
        "simulated": len(hunt.trials),
        "simulations": hunt.runs,
        "proven": hunt.proven,
        "stopped": hunt.stopped,
        "simulated_within_band": _within(hunt),
    }
    return Found(
        objective=_objective(hunt),
        searched=searched,
        answers=tuple(answers),
        pareto=tuple(front(answers)),
        lost=tuple(
            {
                "name": x.candidate.name,
                "replicas": x.trial["replicas"],
                "why": _failed(hunt, x.trial),
            }
            for x in failed[:SHOWN_LOST]
            if x.trial
        ),
        nearest=tuple(near),
        unpriced=tuple(_unpriced(x) for x in _unpriced_best(does))[:SHOWN_UNPRICED],
        sentence=_cheapest(answers[0], searched, asked=bool(hunt.demand.slo))
        if answers
        else _nothing(hunt, rows, refused, near),
        journal=journal,
    )


def _unpriced_best(does: Sequence[Scored]) -> list[Scored]:
    """The fewest GPUs of each card whose price is not known."""
    bare = [doe for doe in does if doe.row["usd_per_card_hour"] is None]
    best = [min(group, key=lambda x: x.row["gpus"]) for group in _by_card(bare)]
    return sorted(best, key=lambda x: (x.row["gpus"], x.candidate.name))


def _unpriced(scored: Scored) -> dict[str, Any]:
    keys = ("replicas", "gpus", "ttft_s", "tpot_s", "output_tokens_per_s")
    return {
        "name": _named(scored),
        "scenario": dict(scored.candidate.keys),
        **{key: scored.row[key] for key in keys},
        "simulated": scored.trial is not None,
    }


def _within(hunt: Hunt) -> dict[str, float]:
    """By time, the share of simulations of what the closed form had in mind that lay within its band."""
    inside: dict[str, list[bool]] = {}
    for one_trial in hunt.trials:
        trial, row = one_trial.trial or {}, one_trial.closed
        alike = trial.get("replicas") == row["replicas"] and trial.get("users") in (
            None,
            row["users"],
        )
        for metric in ("ttft", "tpot") if alike and "pools" not in trial else ():
            value, low, high = (
                trial.get(f"{metric}_s"),
                row[f"{metric}_low_s"],
                row[f"{metric}_high_s"],
            )
            if value is not None:
                inside.setdefault(metric, []).append(low <= value <= high)
    return {metric: sum(best) / len(best) for metric, best in inside.items()}


def _named(scored: Scored) -> str:
    n = scored.row["replicas"]
    return scored.candidate.name if n == 1 else f"{n} × {scored.candidate.name}"


def _answer(hunt: Hunt, scored: Scored) -> Answer:
    row, trial = scored.row, scored.trial
    scenario = scenario_of(hunt.question, scored.candidate.keys, row["replicas"], row["users"])
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
    return Answer(
        name=_named(scored), scenario=scenario, figures=figures, row=row, trial=trial, margin=margin
    )


def _failed(hunt: Hunt, t: Mapping[str, Any]) -> str:
    if "why" in t:
        return str(t["why"])
    limits = {o.name: o.limit_s for o in hunt.demand.slo}
    missed = [
        f"{name} {'none' if value is None else f'{value:.3g} s'} against {limits[name]:g} s"
        for name, value in t["slo"].items()
        if value is None or value > limits[name]
    ]
    if t["dropped"]:
        missed.append(f"{t['dropped']:,} requests are longer than it takes")
    many = f"{t['replicas']:,} replica{'s' if t['replicas'] != 1 else ''}"
    return f"simulated with {many}: {', '.join(missed)}"


def _nearest(hunt: Hunt, rows: Sequence[Scored]) -> list[dict[str, Any]]:
    """What comes nearest: those that failed least when simulated, else in closed form."""
    limits = {o.name: o.limit_s for o in hunt.demand.slo}
    near: list[tuple[float, dict[str, Any]]] = []

    def add(scored: Scored, ratio: float, why: str, replicas: int) -> None:
        nearest = {
            "name": scored.candidate.name,
            "scenario": dict(scored.candidate.keys),
            "replicas": replicas,
        }
        nearest |= {"ratio": ratio, "why": why, "usd_per_hour": scored.row["usd_per_hour"]}
        near.append((ratio, nearest))

    for trial in hunt.trials:
        if trial.trial:
            over = [
                (value or inf) / limits[key] for key, value in trial.trial.get("slo", {}).items()
            ]
            add(trial, max(over, default=inf), _failed(hunt, trial.trial), trial.trial["replicas"])
    for trial in rows if not near else ():
        row, most = trial.row, hunt.space.max_gpus
        if row["ratio"] <= 1 and row["gpus"] > most:
            why = f"would take {row['gpus']:,} GPUs, more than {most:,}"
            add(trial, row["gpus"] / most, why, row["replicas"])
            continue
        limit = limits.get(row["worst"], 0) * row["ratio"]
        why = (
            f"{row['worst']} is {row['ratio']:.2f} times its limit with one user: it would do with "
        )
        add(trial, row["ratio"], f"{why}{row['worst']}={limit:.3g}s", row["replicas"])
    near.sort(key=lambda x: (x[0], x[1]["name"]))
    return [
        {**nearest, "ratio": None if nearest["ratio"] == inf else nearest["ratio"]}
        for _, nearest in near[:SHOWN_NEAR]
    ]


def _objective(hunt: Hunt) -> dict[str, Any]:
    demand = hunt.demand
    return {
        "slo": {o.name: o.limit_s for o in demand.slo},
        "users": demand.users,
        "requests_per_s": demand.requests_per_s,
        "input_tokens": demand.input_tokens,
        "output_tokens": demand.output_tokens,
        "minimise": "usd_per_million_output_tokens" if demand.free else "usd_per_hour",
        "seed": hunt.question.seed,
        "trace": None if hunt.question.trace is None else dict(hunt.question.trace),
    }


def _cheapest(best: Answer, searched: Mapping[str, Any], *, asked: bool) -> str:
    """The answer in a sentence, whether it is the optimum, and whether the closed form is borne out; where
    no objective was ``asked`` for, which waits it has."""
    money = best.row["usd_per_hour"]
    price = f" at ${money:,.2f} an hour" if money is not None else ", whose price is not known"
    gpus, n = best.row["gpus"], searched["simulated"]
    first = "The cheapest that does" if asked else "The cheapest, however long its users wait"
    if best.simulated and not searched["proven"]:
        first = f"The cheapest of {n:,} simulated{'' if asked else ', however long its users wait'}"
    text = f"{first}: {best.name}, {gpus:,} GPU{'s' if gpus > 1 else ''}{price}"
    if best.margin:
        name, ratio = min(best.margin.items(), key=lambda x: x[1])
        text += f", {name} with {ratio:.0%} to spare"
    text += "." if best.simulated else ", in closed form alone."
    times = best.trial or best.row
    if not asked and times["ttft_s"] is not None:
        waits = f"TTFT {show_seconds(times['ttft_s'])}, TPOT {show_seconds(times['tpot_s'])}"
        text += (
            f" No objective was asked for, and these are its times: {waits} (--slo sets limits)."
        )
    if searched["stopped"]:
        text += " The search was stopped before it was over."
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
    if hunt.stopped:
        return f"Stopped before anything was found, after {len(hunt.trials):,} were simulated."
    if not rows and not refused:
        return "Nothing to search: no layout of these cards and counts suits the model."
    if not rows:
        reasons = Counter(str(x.row["refused"]) for x in refused)
        most = reasons.most_common(1)[0][0].rstrip(".")
        return f"None of {len(refused):,} deployments runs. Most often: {most}."
    most_gpus = hunt.space.max_gpus
    fewest = min((row.row["gpus"] for row in rows if row.row["ratio"] <= 1), default=0)
    if fewest > most_gpus:
        return (
            f"No fleet of up to {most_gpus:,} GPUs carries this load: the smallest that would has "
            f"{fewest:,}."
        )
    return f"Nothing meets the objectives. Nearest: {near[0]['name']}: {near[0]['why']}."
