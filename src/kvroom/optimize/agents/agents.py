"""Sessions and a deployment in, how many hold and what each change is worth out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from kvroom.errors import KvroomError
from kvroom.optimize.agents.answer import AgentsAnswer, VariantHeld
from kvroom.optimize.agents.hold import FIRST, MOST_USERS, SeedHeld, held
from kvroom.optimize.agents.trial import Sessions
from kvroom.optimize.agents.variants import Variant, variants
from kvroom.planner.plan import Workings, work
from kvroom.planner.simulate import Objective
from kvroom.records import dataclass
from kvroom.scenario.scenario import Scenario
from kvroom.simulator.timeline import Watch
from kvroom.workloads.requests import Request, RequestGraph
from kvroom.workloads.sessions import SessionPool
from kvroom.workloads.synthetic import Compaction, Synthetic

USUAL_SLO = "ttft_p95=10s,tpot_p95=50ms"
"""What is wanted unless it is said: an agent waits ten seconds for a first token and reads 20 a second."""
ROOM = 0.95
"""A context is compacted below so much of what the model takes."""
OnVariant = Callable[[str, int, int], None]
"""Told of (what is tried, how many are done, of how many)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentsQuestion:
    """Sessions on a deployment. ``only``: ids of the changes that are tried (None: all)."""

    scenario: Scenario
    sessions: Sessions
    slo: tuple[Objective, ...]
    name: str = ""
    asked: int | None = None
    seeds: int = 3
    seed: int = 0
    only: tuple[str, ...] | None = None
    most: int = MOST_USERS


def agents(
    question: AgentsQuestion,
    *,
    paths: bool = True,
    progress: OnVariant | None = None,
    watch: Watch | None = None,
) -> AgentsAnswer:
    """How many sessions hold, the deployment as asked first; KvroomError where that cannot be."""
    base = work(question.scenario, paths=paths)
    limit = base.deployment.context_tokens
    sessions, notes = fitted(question.sessions, limit)
    chosen = [v for v in variants(question.scenario) if _wanted(v, question.only)]
    found: list[VariantHeld] = []
    guess = question.asked or FIRST
    for number, variant in enumerate(chosen):
        if progress is not None:
            progress(variant.label, number, len(chosen))
        try:
            made = base if number == 0 else work(variant.of(question.scenario), paths=paths)
            one = _held(question, sessions, made, variant=variant, guess=guess, watch=watch)
        except KvroomError as error:
            if number == 0:
                raise
            one = VariantHeld(variant=variant, why=f"{error.field} {error.message}")
        found.append(one)
        guess = found[0].sessions or guess
    trials = [trial for held in found[0].held for trial in held.trials]
    said = list(dict.fromkeys([*notes, *(w for trial in trials for w in trial.warnings)]))
    return AgentsAnswer(
        name=question.name,
        slo=question.slo,
        found=tuple(found),
        asked=question.asked,
        seeds=question.seeds,
        warnings=tuple(said),
    )


def _wanted(variant: Variant, only: Sequence[str] | None) -> bool:
    return variant.id == "base" or only is None or variant.id in only


def _held(
    question: AgentsQuestion,
    sessions: Sessions,
    made: Workings,
    *,
    variant: Variant,
    guess: int,
    watch: Watch | None,
) -> VariantHeld:
    rows: list[SeedHeld] = []
    asked = question.asked if variant.id == "base" else None
    for number in range(question.seeds):
        rows.append(
            held(
                made,
                sessions,
                question.slo,
                seed=question.seed + number,
                guess=rows[0].users if rows and rows[0].users else guess,
                also=asked if number == 0 else None,
                most=question.most,
                short=number > 0,
                watch=watch,
            )
        )
    scenario = made.plan.scenario
    gpus = scenario.gpu_count * scenario.replicas
    price = made.deployment.device.usd_per_hour
    return VariantHeld(
        variant=variant,
        gpus=gpus,
        usd_per_hour=None if price is None else price * gpus,
        held=tuple(rows),
        workings=made,
    )


def fitted(sessions: Sessions, limit: int) -> tuple[Sessions, list[str]]:
    """``sessions`` whose prompts the model takes: made-up contexts are compacted before its limit, recorded
    sessions end where theirs pass it. And what is to be said of that."""
    notes: list[str] = []
    if isinstance(sessions, Synthetic):
        compact, most = sessions.compact, int(ROOM * limit)
        if compact is not None and compact.tokens > most:
            sessions = replace(sessions, compact=Compaction(most, compact.share))
            notes.append(f"contexts are compacted at {most:,} tokens, which the model takes")
        return sessions, notes
    graphs = [graph for each in sessions.graphs if (graph := within(each, limit)).requests]
    cut = sum(map(len, sessions.graphs)) - sum(map(len, graphs))
    if not graphs:
        fix = "Give a model, or --context, that takes them."
        raise KvroomError(
            "trace", f"{limit:,} tokens", "are fewer than any session begins with", fix
        )
    if cut:
        notes.append(
            f"{cut:,} of {sum(map(len, sessions.graphs)):,} requests are left out: they come in a session "
            f"after a prompt of more than the {limit:,} tokens that the model takes"
        )
    made = SessionPool(
        graphs,
        sessions.users,
        sessions.requests,
        seed=sessions.seed,
        hash_tokens=sessions.hash_tokens,
        midway=sessions.midway,
    )
    return made, [*sessions.notes, *notes]


def within(graph: RequestGraph, limit: int) -> RequestGraph:
    """``graph`` without what is too long, and all that waits for it."""
    kept: list[int] = []
    anew: dict[int, int] = {}
    for place, (request, waits) in enumerate(zip(graph.requests, graph.after, strict=True)):
        if _fits(request, limit) and all(w in anew for w in waits):
            anew[place] = len(kept)
            kept.append(place)
    after = tuple(tuple(anew[w] for w in graph.after[old]) for old in kept)
    return RequestGraph(tuple(graph.requests[old] for old in kept), after)


def _fits(request: Request, limit: int) -> bool:
    return request.input_tokens < limit
