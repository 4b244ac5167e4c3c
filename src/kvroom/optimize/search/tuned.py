"""The settings of an autoscaler for one fleet: its targets, and how many replicas stay and may start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil

from kvroom.optimize.scaling import ScalePoint, ScaleRange, Settings, best_of, combined
from kvroom.records import dataclass
from kvroom.scenario.autoscale import Autoscaling

ROOM = 0.25
"""More replicas that may start, by this share, where as many as hold at the busiest time start too late."""
Play = Callable[[Sequence[Settings | None]], list[ScalePoint]]
"""From settings to what came of each, fewer where it was ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """What was tried of an autoscaler for a fleet, and the fleet that never changes (None: ended before)."""

    points: tuple[ScalePoint, ...]
    fixed: ScalePoint | None

    @property
    def best(self) -> ScalePoint | None:
        """The cheapest that holds."""
        return best_of(self.points)


def tuned(over: Sequence[ScaleRange], rule: Autoscaling, replicas: int, play: Play) -> Tuned:
    """The settings for a fleet of which ``replicas`` hold at the busiest time.

    The values of ``over`` are tried with one replica at least and ``replicas`` at most. Where none holds, a
    quarter more may start. Then more have to stay, twice as many each time, while that can be cheaper and is.
    ``min`` and ``max`` that are swept, or said in ``rule``, stay.
    """
    keys = {one.key for one in over}
    ends: dict[str, float] = {}
    if "min" not in keys:
        ends["min"] = 1 if rule.min is None else rule.min
    if "max" not in keys:
        ends["max"] = max(rule.max or replicas, ends.get("min", 1))
    values = combined(over)
    fixed = next(iter(play([None])), None)
    points: list[ScalePoint] = []
    if fixed and fixed.holds and "min" in ends and ends["min"] == ends.get("max"):
        return Tuned(points=(), fixed=fixed)  # there is nothing to let go

    def tried() -> ScalePoint | None:
        made = play([{**one, **ends} for one in values])
        points.extend(made)
        return best_of(made)

    best = tried() if fixed else None
    if fixed and best is None and "max" in ends and rule.max is None:
        ends["max"] += ceil(ROOM * ends["max"])
        best = tried()
    while (
        fixed
        and "min" in ends
        and rule.min is None
        and 2 * ends["min"] <= ends.get("max", replicas)
    ):
        ends["min"] *= 2
        if best and ends["min"] * fixed.cost / fixed.mean_replicas >= best.cost:
            break
        found = tried()
        if best and (found is None or found.cost >= best.cost):
            break
        best = found
    return Tuned(points=tuple(points), fixed=fixed)
