"""Which lever to pull: the command line's answer, and what the page draws of it.

The page may name the levers that are pulled together; their steps stay in the order in which they are
named, whatever each comes to bring.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from kvroom import api
from kvroom.answer.figures import Explanation
from kvroom.errors import KvroomError
from kvroom.optimize.cost import ORDERS, Figures, figures_of
from kvroom.optimize.levers.rank import Levers
from kvroom.scenario.command_line import command
from kvroom.scenario.scenario import Scenario
from kvroom.scenario.workload import Workload
from kvroom.simulator.timeline import Moment
from kvroom.ui.web.questions import Gone, Listener, cpu_time
from kvroom.ui.web.sections import reality

STAND_IN = "H100-SXM"
"""Serves where the asked card does not state its arithmetic."""
MOST_SERVED = 200
"""Requests that are served with each lever."""
EVERY = 8
"""Plans between two lines of progress."""
MOST_CPU_S = 60.0
"""A job that has taken so much of a processor is ended."""

RANKINGS = {"requests": "requests", "step": "token_s", "cost": "usd_per_million_output_tokens"}
"""What levers are ranked by on the page, and the key of that figure."""


def answer(
    body: Any,
    *,
    together: Sequence[str] | None,
    listener: Listener,
    explain: bool = True,
) -> dict[str, Any]:
    """``kvroom levers --json``'s keys; with ``explain`` also ``figures.levers`` and explanations.

    ``together`` names the levers to pull at once (None: the best; empty: none). ``listener`` is told how
    many Plans were made; Gone once it has left.
    """
    scenario = Scenario.from_dict(body)
    before_each = _counting(listener)
    levers = api.levers(
        scenario, together=together or None, before_each=before_each, paths=False, hub=False
    )
    reply = levers.to_dict()
    if not explain:
        return reply
    figure = data(levers, together)
    return {
        **reply,
        "figures": {"levers": figure},
        "explanations": [explanation.to_dict() for explanation in explanations(levers, figure)],
        "take_away": {"command": levers_command(scenario)},
    }


def served(body: Any, *, listener: Listener) -> dict[str, Any]:
    """``kvroom levers --simulate --json``'s keys: the workload served with each lever of serving.

    What the question lacks for that stands in and is said in ``figures.served.notes``. Of many requests the
    first MOST_SERVED are served. Gone once ``listener`` has left; KvroomError past MOST_CPU_S.
    """
    scenario, notes = served_of(Scenario.from_dict(body))
    end = cpu_time() + MOST_CPU_S
    counting = _counting(listener)

    def before_each() -> None:
        watch(None)
        counting()

    def watch(_: Moment | None) -> bool:
        if listener.gone():
            raise Gone
        if cpu_time() > end:
            fix = (
                "Ask with shorter or fewer requests; `kvroom levers --simulate` has no such limit."
            )
            raise KvroomError("workload", None, "takes too long to serve here", fix)
        return False

    levers = api.levers(
        scenario, simulate=True, before_each=before_each, watch=watch, paths=False, hub=False
    )
    reply = levers.to_dict()
    line = f"{levers_command(scenario)} --simulate"
    return {
        **reply,
        "figures": {"served": {"notes": notes}},
        "explanations": [
            served_explanation.to_dict()
            for served_explanation in served_explanations(reply["served"], line)
        ],
        "take_away": {"command": line},
    }


def _counting(listener: Listener) -> Callable[[], None]:
    """Called before each Plan: tells how many there were, now and then, and ends the work for nobody."""
    count = 0

    def before_each() -> None:
        nonlocal count
        if listener.gone():
            raise Gone
        if count % EVERY == 0:
            listener.say({"planned": count})
        count += 1

    return before_each


def served_of(scenario: Scenario) -> tuple[Scenario, list[str]]:
    """The question as it can be served, and a sentence for each thing that stands in."""
    drawn, stands = reality.asked_of(scenario)
    notes = []
    if "engine" in stands:
        notes.append(f"served by {drawn.engine}'s rules, as plain arithmetic serves nobody")
    if api.workings(drawn, paths=False, hub=False).timing is None:
        name = (
            scenario.gpu if isinstance(scenario.gpu, str) else scenario.gpu.get("name", "this card")
        )
        drawn = replace(drawn, gpu=STAND_IN)
        notes.append(f"step times of {STAND_IN}, as {name} does not say how fast it computes")
    if "lengths" in stands:
        notes.append(f"requests of {reality.LENGTHS[0]['says']}")
    come = drawn.workload or Workload()
    if come.arrivals is None and come.requests_per_s is None and come.concurrency is None:
        users = figures_of(api.workings(drawn, paths=False, hub=False)).requests or 1
        come = replace(come, arrivals=f"closed:{max(1, int(users))}")
        notes.append(f"{max(1, int(users)):,} at a time, as many as have room at their longest")
    many = come.requests
    if many is None or many > MOST_SERVED:
        come = replace(come, requests=MOST_SERVED)
        if many:
            notes.append(f"the first {MOST_SERVED} of {many:,} requests")
    return replace(drawn, workload=come), notes


_SERVED = {
    "ttft_s": ("TTFT, mean", "s"),
    "ttft_p95_s": ("TTFT, p95", "s"),
    "tpot_s": ("TPOT, mean", "s"),
    "output_tokens_per_s": ("Throughput", "tokens/s"),
    "prefix_hit_ratio": ("Share of the prompts found cached", ""),
    "usd_per_million_output_tokens": ("A million output tokens", "USD"),
}


def served_explanations(found: dict[str, Any], line: str) -> Iterator[Explanation]:
    """Where each served figure comes from: a simulation of its own."""
    rows = [("served.before", "as it is", found["before"])]
    rows += [
        (f"served.levers.{index}.after", x["label"], x["after"])
        for index, x in enumerate(found["levers"])
    ]
    for at, label, after in rows:
        for key, (what, unit) in _SERVED.items():
            if after[key] is not None:
                yield Explanation(
                    figure=f"{at}.{key}",
                    label=f"{what}: {label}",
                    value=after[key],
                    unit=unit,
                    formula="the same requests, served from first to last",
                    numbers=repr(after[key]),
                    source=f"simulated: {line}",
                )


def levers_command(scenario: Scenario) -> str:
    """The command line that gives the same answer."""
    return command(scenario).replace("kvroom plan", "kvroom levers", 1)


def data(levers: Levers, named: Sequence[str] | None) -> dict[str, Any]:
    """``steps`` of the waterfall in the order named, ``reached`` at their end; ``goal``, what to look for
    first: the users asked for where they have no room, else twice as many; ``families`` by lever;
    ``rankings`` by each figure that is known: ids, the best first."""
    pulled = named is None or bool(named)
    best = levers.together[0] if levers.together and pulled else None
    shares = dict(levers.waterfall) if best else {}
    ids = list(named) if named is not None else list(shares)
    was = levers.before.requests or 0
    at, steps = was, []
    for name in ids:
        share = shares.get(name, 0.0)
        steps.append({"id": name, "from": at, "to": at + share, "requests": share})
        at += share
    return {
        "steps": steps,
        "before": was,
        "goal": int(levers.scenario.concurrency or 0)
        if (levers.scenario.concurrency or 0) > was
        else max(1, int(2 * was)),
        "reached": (best.after.requests or 0) if best else was,
        "after": (best.after if best else levers.before).to_dict(),
        "families": {lever.lever.id: lever.lever.family for lever in levers.levers},
        "rankings": {
            by: ranking(levers, by)
            for by, key in RANKINGS.items()
            if getattr(levers.before, key) is not None
        },
        "sentence": levers.sentence,
    }


def ranking(levers: Levers, by: str) -> list[str]:
    """The levers that better the question by that figure, the best first."""
    better = ORDERS[by]
    helps = [lever for lever in levers.levers if better(lever.after) > better(levers.before)]
    return [help_.lever.id for help_ in sorted(helps, key=lambda p: better(p.after), reverse=True)]


_UNITS = {
    "requests": ("Requests at once", "requests"),
    "step_s": ("A decode step", "s"),
    "token_s": ("A token of one request", "s"),
    "usd_per_million_output_tokens": ("A million output tokens", "USD"),
}


def explanations(levers: Levers, figure: dict[str, Any]) -> Iterator[Explanation]:
    """Where each number of the answer comes from: a Plan of its own."""
    yield from _figures("before", "as it is", levers.before, "the question as asked")
    for index, lever in enumerate(levers.levers):
        made = (
            ", ".join(f"{key} = {value}" for key, value in lever.changes.items())
            or "the question as asked"
        )
        source = (
            lever.lever.quality.source
            if lever.lever.quality
            else "nobody published a cost in quality"
        )
        yield from _figures(
            f"levers.{index}.after",
            lever.lever.label,
            lever.after,
            f"planned anew with {made}",
            source,
        )
    if levers.together:
        ids = " and ".join(levers.together[0].ids)
        yield from _figures(
            "together.0.after", "together", levers.together[0].after, f"planned anew with {ids}"
        )
    for index, s in enumerate(figure["steps"]):
        yield Explanation(
            figure=f"figures.levers.steps.{index}.requests",
            label=f"Share of {s['id']} in the gain",
            value=s["requests"],
            unit="requests",
            formula="what it adds on average over all orders in which the levers can be pulled",
            numbers=repr(s["requests"]),
            source="Shapley's split of a gain, each set of levers planned anew",
        )
    for key, value in (("before", figure["before"]), ("reached", figure["reached"])):
        yield Explanation(
            figure=f"figures.levers.{key}",
            label="Requests at once " + ("as it is" if key == "before" else "with these levers"),
            value=value,
            unit="requests",
            formula="whole requests that the deployment runs at once",
            numbers=repr(value),
            source="the Plan of that question",
        )


def _figures(
    at: str, label: str, figures: Figures, formula: str, source: str = "the Plan of that question"
) -> Iterator[Explanation]:
    for key, (what, unit) in _UNITS.items():
        value = getattr(figures, key)
        if value is not None:
            yield Explanation(
                figure=f"{at}.{key}",
                label=f"{what}: {label}",
                value=value,
                unit=unit,
                formula=formula,
                numbers=repr(value),
                source=source,
            )
