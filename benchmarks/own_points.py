"""Ten measurements of one's own: ``python benchmarks/own_points.py DATA``.

DATA is a folder of published measurements (``measured.py``). One source's closed-loop runs of one setting and
layout are left out of the fit, as of a machine that nobody measured. Of those of one release and month ten,
drawn by chance, are given as points of one's own (``kvroom/latency/own_points.py``), and the others
predicted. Printed by metric: the median error and the ninetieth percentile without points and with ten, and
what of it the bands hold. Needs numpy, and a minute or two.
"""

from __future__ import annotations

import argparse
import random
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from beliefs import BELIEFS
from fitting import Fit
from measured import Point, read

from kvroom.latency import calibration
from kvroom.latency.estimate import Timing
from kvroom.latency.load import served
from kvroom.latency.own_points import drawn_to, place_of

POINTS = 10
LEAST = 15
"""Runs that a group must have: ten to give and some to predict."""
DRAWS = 3
METRICS = ("tpot", "ttft")


def group_of(p: Point) -> str | None:
    """The machine that ``p`` is of; None where it is no closed loop."""
    if p.load is None or p.static or p.load.requests_per_s is not None:
        return None
    layout = p.deployment.layout
    return (
        f"{p.source} {p.setting} dp={layout.dp} pp={layout.pp} {sorted(p.deployment.args.items())}"
    )


def time_of(p: Point) -> tuple[str, str]:
    """The release that a machine ran, and the month: those that name none change within a few."""
    return str(p.row["engine_version"]), str(p.row.get("date"))[:7]


def own(p: Point) -> dict[str, Any]:
    """``p`` as a point of one's own."""
    assert p.load is not None
    load = p.load
    lengths = {"input_tokens": load.input_tokens, "output_tokens": load.output_tokens}
    times = {f"{m}_s": p.measured[m] for m in METRICS if m in p.measured}
    return times | lengths | {"concurrency": round(load.users)}


def timing_of(fit: Fit, i: int, effects: Any) -> Timing:
    """The times of point ``i`` under ``effects``."""
    p, table = fit.points[i], calibration.shipped()
    return Timing(
        clock=p.clock(fit.coefficients(i, effects)),
        levels=p.levels,
        kind=p.kind,
        card=p.gpu,
        engine=p.engine,
        table=table,
    )


def predicted(timing: Timing, p: Point) -> dict[str, tuple[float, float]]:
    """Logarithm of predicted over measured, and the band's half width, of ``p``'s metrics."""
    assert p.load is not None
    t = served(timing.clock, p.load)
    found = {}
    for metric, seconds in (("tpot", t.tpot_s), ("ttft", t.ttft_s)):
        if metric in p.measured and seconds:
            span = timing.span(metric, seconds)
            off = float(np.log(seconds / p.measured[metric]))
            found[metric] = (off, float(np.log(span.high / seconds)))
    return found


def main() -> None:
    parse = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parse.add_argument("data", type=Path)
    parse.add_argument("--configs", type=Path)
    args = parse.parse_args()
    points = read(args.data, args.configs or args.data / "model-configs")
    fit = Fit(points, BELIEFS)
    lin = fit.linear(fit.effects_of(calibration.shipped()))
    machines: dict[str, dict[tuple[str, str], list[int]]] = defaultdict(lambda: defaultdict(list))
    for i, p in enumerate(points):
        name = group_of(p)
        if name is not None and METRICS[0] in p.measured:
            machines[name][time_of(p)].append(i)
    chosen = {
        name: many
        for name, times in machines.items()
        if (many := [group for group in times.values() if len(group) >= LEAST])
    }
    found: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    draw = random.Random(1)
    whole = [[i for group in machines[name].values() for i in group] for name in chosen]
    for many, effects in zip(chosen.values(), fit.without(lin, whole), strict=True):
        for group in many:
            for _ in range(DRAWS):
                given = draw.sample(group, POINTS)
                _predict(fit, effects, given, [i for i in group if i not in given], found)
    print(f"{sum(map(len, chosen.values()))} groups of {len(chosen)} machines")
    for (metric, what), each in sorted(found.items()):
        errors = np.abs(np.expm1([off for off, _ in each]))
        held = np.mean([abs(off) <= wide for off, wide in each])
        print(
            f"  {metric} {what:8s} n {len(each):5d}  median {100 * np.median(errors):5.1f} %"
            f"  p90 {100 * np.quantile(errors, 0.9):5.1f} %  inside {100 * held:3.0f} %"
        )


def _predict(
    fit: Fit,
    effects: Any,
    given: Sequence[int],
    rest: Sequence[int],
    found: dict[tuple[str, str], list[tuple[float, float]]],
) -> None:
    points = [own(fit.points[i]) for i in given]
    for i in rest:
        p, timing = fit.points[i], timing_of(fit, i, effects)
        assert p.load is not None
        here = place_of(p.load.users, p.load.input_tokens + p.load.output_tokens // 2)
        for what, t in (("without", timing), ("with", drawn_to(timing, points, here))):
            for metric, off in predicted(t, p).items():
                found[metric, what].append(off)


if __name__ == "__main__":
    main()
