"""A day by the hour as text: the verdict, the whole day's times, a row an hour."""

from __future__ import annotations

from typing import Any

from kvroom.optimize.day.answer import Day
from kvroom.ui.terminal.plan import head
from kvroom.ui.terminal.table import aligned
from kvroom.ui.terminal.text import paragraph
from kvroom.ui.words import span
from kvroom.units import show_count

TIMES = (("ttft_s", "TTFT"), ("tpot_s", "TPOT"))
COLUMNS = ("mean", "p50", "p95", "p99")


def show(day: Day) -> str:
    """The whole answer."""
    figures = day.figures
    blocks = [head(day.question.workings), paragraph(day.summary()), _day(figures), _hours(figures)]
    blocks += [_regions(figures) if figures["hours"] else "", paragraph(_sampled(figures))]
    blocks += [paragraph(f"Note: {w}.") for w in figures["warnings"]]
    return "\n\n".join(block for block in blocks if block)


def _day(figures: Any) -> str:
    if not figures["hours"]:
        return ""
    rows = [["the day", *COLUMNS]]
    for key, name in TIMES:
        rows.append([name, *(span(figures[key][at]) for at in COLUMNS)])
        bands = [figures["bands"][key][at] for at in COLUMNS]
        rows.append(["80 %", *(f"{span(b['low'])}-{span(b['high'])}" for b in bands)])
    return aligned(rows, trimmed=True)


def _hours(figures: Any) -> str:
    if not figures["hours"]:
        return ""
    fixed = any(hour["needed"] != hour["replicas"] for hour in figures["hours"])
    head_row = ["hour", "requests/s", "replicas", *(["needed"] if fixed else [])]
    head_row += ["TTFT p50", "p95", "TPOT p50", "p95", "waiting"]
    rows = [head_row]
    for hour in figures["hours"]:
        needed = ["none" if hour["needed"] is None else f"{hour['needed']:,}"] if fixed else []
        times = [span(hour[key][at]) for key, _ in TIMES for at in ("p50", "p95")]
        rows.append(
            [
                f"{hour['hour']:02d}",
                _rate(hour["requests_per_s"]),
                f"{hour['replicas']:,}",
                *needed,
                *times,
                show_count(round(hour["waiting"])),
            ]
        )
    return aligned(rows, trimmed=True)


def _rate(per_s: float) -> str:
    return f"{per_s:,.0f}" if per_s >= 1000 else f"{per_s:,.3g}"


def _regions(figures: Any) -> str:
    if not figures["regions"]:
        return ""
    rows = [["region", "share", "replicas", "on average"]]
    for region in figures["regions"]:
        few, many = region["quietest"], region["busiest"]
        holding = "none hold" if many is None else f"{few:,} to {many:,}"
        rows.append(
            [region["region"], f"{region['share']:.0%}", holding, f"{region['mean'] or 0:,.1f}"]
        )
    return aligned(rows, trimmed=True)


def _sampled(figures: Any) -> str:
    """What the answer rests on."""
    sample = figures["sample"]
    return (
        f"{sample['replicas']:,} replicas were simulated for {sample['requests']:,} requests at "
        f"{len(sample['levels'])} loads, up to {sample['most_per_s']:,.3g} requests a second; the day is led "
        f"through them as a fluid. {figures['error']}."
    )
