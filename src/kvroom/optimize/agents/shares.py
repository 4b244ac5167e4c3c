"""The draws of every deployment, shared out: which may begin when, in this process or in several.

The number that a draw holds is sought near what is known: the first draw of the deployment as asked near
what was asked, everything else near that one, further draws of a change near its own first. So the same
is tried wherever it is done, and in whatever order it ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait

from kvroom.distributed.processes import MakePool, lent
from kvroom.errors import KvroomError
from kvroom.optimize.agents.hold import SeedHeld, held
from kvroom.optimize.agents.variants import Variant
from kvroom.planner.plan import Workings, work
from kvroom.planner.sessions import Sessions
from kvroom.planner.simulate import Objective
from kvroom.records import dataclass
from kvroom.scenario.scenario import Scenario
from kvroom.simulator.timeline import Watch

Found = dict[str, list[SeedHeld]]
"""By the change's id, what its draws hold, in their order."""
OnDone = Callable[[str, int, int], None]
"""Told of (what is done, how many are, of how many)."""
Play = Callable[["SeedDraw"], SeedHeld | KvroomError]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lent:
    """What all processes that play draws hold."""

    scenario: Scenario
    sessions: Sessions
    slo: tuple[Objective, ...]
    seed: int
    most: int
    paths: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedDraw:
    """One draw of the sessions on one deployment: its number, near which sessions to look, and how many more
    are tried in any case."""

    variant: Variant
    number: int
    guess: int
    also: int | None = None


def shared_out(
    variants: list[Variant],
    seeds: int,
    first: SeedDraw,
    play: Play,
    *,
    pool: MakePool | None = None,
    progress: OnDone | None = None,
) -> tuple[Found, dict[str, KvroomError]]:
    """What each draw of ``variants`` holds, and why some have none; ``first`` is that of the deployment as
    asked, whose error is raised."""
    found: Found = {variant.id: [] for variant in variants}
    kept: dict[tuple[str, int], SeedHeld] = {}
    why: dict[str, KvroomError] = {}
    ready = deque([first])
    total = seeds * len(variants)

    def over(draw: SeedDraw, result: SeedHeld | KvroomError) -> None:
        base = draw.variant.id == first.variant.id
        if isinstance(result, KvroomError):
            if base:
                raise result
            why[draw.variant.id] = result
        else:
            kept[draw.variant.id, draw.number] = result
            if draw.number == 0:
                near = result.users or draw.guess
                more = range(1, seeds)
                ready.extend(SeedDraw(variant=draw.variant, number=n, guess=near) for n in more)
                if base:
                    ready.extend(SeedDraw(variant=v, number=0, guess=near) for v in variants[1:])
        if progress is not None:
            progress(
                f"{draw.variant.label}, draw {draw.number + 1}",
                len(kept) + seeds * len(why),
                total,
            )

    if pool is None:
        while ready:
            draw = ready.popleft()
            over(draw, play(draw))
    else:
        _pooled(ready, over, pool)
    for (name, _), one in sorted(kept.items(), key=lambda item: item[0][1]):
        found[name].append(one)
    return found, why


def _pooled(
    ready: deque[SeedDraw],
    over: Callable[[SeedDraw, SeedHeld | KvroomError], None],
    pool: MakePool,
) -> None:
    with pool() as executor:
        given: dict[Future[SeedHeld | KvroomError], SeedDraw] = {}
        try:
            while ready or given:
                while ready:
                    draw = ready.popleft()
                    given[executor.submit(drawn, draw)] = draw
                done, _ = wait(given, return_when=FIRST_COMPLETED)
                for future in done:
                    over(given.pop(future), future.result())
        except BrokenExecutor:
            fix = "Look at the workers' memory, or take fewer with --jobs; a script asks below __main__."
            raise KvroomError("--jobs", None, "lost a worker with its draws", fix) from None
        except BaseException:
            executor.shutdown(wait=False, cancel_futures=True)
            raise


def drawn(draw: SeedDraw) -> SeedHeld | KvroomError:
    """A unit of work: what ``draw`` holds of what was lent, or why it cannot be."""
    lent_work: Lent = lent()
    try:
        return played(
            lent_work, draw, work(draw.variant.of(lent_work.scenario), paths=lent_work.paths)
        )
    except KvroomError as error:
        return error


def played(lent: Lent, draw: SeedDraw, workings: Workings, watch: Watch | None = None) -> SeedHeld:
    """What ``draw`` holds; of later draws what only misses an objective is not played to its end."""
    return held(
        workings,
        lent.sessions,
        lent.slo,
        seed=lent.seed + draw.number,
        guess=draw.guess,
        also=draw.also,
        most=lent.most,
        short=draw.number > 0,
        watch=watch,
    )
