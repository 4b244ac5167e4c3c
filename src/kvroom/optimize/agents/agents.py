"""From sessions and a deployment to how many sessions hold and what each change is worth."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvroom.distributed.processes import MakePool
from kvroom.errors import KvroomError
from kvroom.optimize.agents.answer import AgentsAnswer, VariantHeld
from kvroom.optimize.agents.hold import FIRST, MOST_USERS, SeedHeld
from kvroom.optimize.agents.shares import Lent, OnDone, SeedDraw, played, shared_out
from kvroom.optimize.agents.variants import Variant, variants
from kvroom.planner.plan import Workings, work
from kvroom.planner.sessions import Sessions, fitted
from kvroom.planner.simulate import Objective
from kvroom.records import dataclass
from kvroom.scenario.scenario import Scenario
from kvroom.simulator.timeline import Watch

USUAL_SLO = "ttft_p95=10s,tpot_p95=50ms"
"""What is wanted unless it is said: an agent waits ten seconds for a first token and reads 20 a second."""


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
    progress: OnDone | None = None,
    watch: Watch | None = None,
    share: Callable[[object], MakePool | None] | None = None,
) -> AgentsAnswer:
    """How many sessions hold, the deployment as asked first; KvroomError where that cannot be.

    The pool that ``share`` makes, which is lent what it is given, shares the draws, with the same answer;
    ``watch`` is told by this process alone.
    """
    base = work(question.scenario, paths=paths)
    sessions, notes = fitted(question.sessions, base.deployment.context_tokens)
    notes = [*getattr(sessions, "notes", ()), *notes]
    chosen = [v for v in variants(question.scenario) if _wanted(v, question.only)]
    workings_of: dict[str, Workings | KvroomError] = {chosen[0].id: base}
    for variant in chosen[1:]:
        try:
            workings_of[variant.id] = work(variant.of(question.scenario), paths=paths)
        except KvroomError as error:
            workings_of[variant.id] = error
    lent = Lent(
        scenario=question.scenario,
        sessions=sessions,
        slo=question.slo,
        seed=question.seed,
        most=question.most,
        paths=paths,
    )

    def play(draw: SeedDraw) -> SeedHeld | KvroomError:
        workings = workings_of[draw.variant.id]
        if isinstance(workings, KvroomError):
            return workings
        try:
            return played(lent, draw, workings, watch)
        except KvroomError as error:
            return error

    first = SeedDraw(
        variant=chosen[0], number=0, guess=question.asked or FIRST, also=question.asked
    )
    alone = question.seeds * len(chosen) == 1
    pool = None if watch is not None or alone or share is None else share(lent)
    found, why = shared_out(chosen, question.seeds, first, play, pool=pool, progress=progress)
    rows = [_row(v, found[v.id], workings_of[v.id], why.get(v.id)) for v in chosen]
    trials = [trial for held in rows[0].held for trial in held.trials]
    warnings = list(dict.fromkeys([*notes, *(w for trial in trials for w in trial.warnings)]))
    return AgentsAnswer(
        name=question.name,
        slo=question.slo,
        found=tuple(rows),
        asked=question.asked,
        seeds=question.seeds,
        warnings=tuple(warnings),
    )


def _wanted(variant: Variant, only: Sequence[str] | None) -> bool:
    return variant.id == "base" or only is None or variant.id in only


def _row(
    variant: Variant,
    seeds: list[SeedHeld],
    made: Workings | KvroomError,
    why: KvroomError | None,
) -> VariantHeld:
    if why is not None or isinstance(made, KvroomError):
        error = why if why is not None else made
        assert isinstance(error, KvroomError)
        return VariantHeld(variant=variant, why=f"{error.field} {error.message}")
    scenario = made.plan.scenario
    gpus = scenario.gpu_count * scenario.replicas
    price = made.deployment.device.usd_per_hour
    return VariantHeld(
        variant=variant,
        gpus=gpus,
        usd_per_hour=None if price is None else price * gpus,
        held=tuple(seeds),
        workings=made,
    )
