"""Targets of an autoscaler as text of 80 columns: the best in a sentence, then each as a row."""

from __future__ import annotations

from kvroom.optimize.scaling import ScalePoint, ScaleSweep
from kvroom.ui.terminal.plain import plain_text
from kvroom.ui.terminal.table import aligned
from kvroom.ui.terminal.text import paragraph
from kvroom.ui.words import span
from kvroom.units import show_usd


def scaling_text(sweep: ScaleSweep) -> str:
    """The sentence and the table."""
    fixed = [sweep.fixed] if sweep.fixed is not None else []
    priced = all(point.usd_per_day is not None for point in (*sweep.points, *fixed))
    cost = "$/day" if priced else "GPU h/day"
    keys = [one.key for one in sweep.over]
    rows = [[*keys, cost, "replicas", "starts", "TTFT p50", "TTFT p95", "TPOT p95", ""]]
    rows += [_row(point, sweep, keys) for point in (*sweep.points, *fixed)]
    return paragraph(sweep.summary(), "") + "\n\n" + plain_text(aligned(rows))


def _row(point: ScalePoint, sweep: ScaleSweep, keys: list[str]) -> list[str]:
    times = (point.ttft_p50_s, point.ttft_p95_s, point.tpot_p95_s)
    mark = "" if point.holds else "misses"
    if point is sweep.best:
        mark = "<- best"
    if point.settings is None:
        values = ["always", *[""] * (len(keys) - 1)]
    else:
        values = [f"{point.settings[key]:g}" for key in keys]
    return [
        *values,
        day_cost(point),
        f"{point.mean_replicas:.2f}",
        f"{point.cold_starts:,}",
        *("none" if time is None else span(time) for time in times),
        mark,
    ]


def day_cost(point: ScalePoint) -> str:
    """Dollars of a day, or GPU hours where there is no price."""
    if point.usd_per_day is None:
        return f"{point.gpu_hours_per_day:,.4g}"
    return show_usd(point.usd_per_day).removeprefix("$")
