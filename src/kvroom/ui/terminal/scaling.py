"""Targets of an autoscaler as text of 80 columns: the best in a sentence, then each as a row."""

from __future__ import annotations

from kvroom.optimize.scaling import ScalePoint, ScaleSweep
from kvroom.ui.terminal.plain import plain_text
from kvroom.ui.terminal.table import aligned
from kvroom.ui.terminal.text import paragraph
from kvroom.ui.words import span
from kvroom.units import show_usd


def scaling_text(found: ScaleSweep) -> str:
    """The sentence and the table."""
    fixed = [found.fixed] if found.fixed is not None else []
    priced = all(point.usd_per_day is not None for point in (*found.points, *fixed))
    cost = "$/day" if priced else "GPU h/day"
    rows = [[found.range.key, cost, "replicas", "starts", "TTFT p50", "TTFT p95", "TPOT p95", ""]]
    rows += [_row(point, found) for point in (*found.points, *fixed)]
    return paragraph(found.summary(), "") + "\n\n" + plain_text(aligned(rows))


def _row(point: ScalePoint, found: ScaleSweep) -> list[str]:
    figures = point.to_dict()
    times = (figures["ttft_p50_s"], figures["ttft_p95_s"], figures["tpot_p95_s"])
    mark = "" if point.holds else "misses"
    if point is found.best:
        mark = "<- best"
    return [
        "always" if point.value is None else f"{point.value:g}",
        f"{point.gpu_hours_per_day:,.4g}"
        if point.usd_per_day is None
        else show_usd(point.usd_per_day).removeprefix("$"),
        f"{figures['mean_replicas']:.2f}",
        f"{figures['cold_starts']:,}",
        *("none" if time is None else span(time) for time in times),
        mark,
    ]
