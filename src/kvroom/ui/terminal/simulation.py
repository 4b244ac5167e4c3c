"""A simulation as text, as wide as the terminal: one sentence, the times, lines over time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kvroom.latency.clock import PS_PER_S
from kvroom.optimize.cliff import Cliff
from kvroom.planner.simulate import Simulated
from kvroom.planner.simulation import Simulation
from kvroom.simulator.script_results import ScriptResult
from kvroom.ui.terminal.cluster import fleet_text
from kvroom.ui.terminal.plain import plain_text, text_width
from kvroom.ui.terminal.plan import head
from kvroom.ui.terminal.reuse import LEVELS
from kvroom.ui.terminal.table import aligned
from kvroom.ui.terminal.text import paragraph
from kvroom.ui.words import span
from kvroom.units import show_count, show_gb

LABEL = 15
TIMES = (
    ("ttft_s", "TTFT"),
    ("tpot_s", "TPOT"),
    ("itl_s", "ITL"),
    ("e2e_s", "end to end"),
)


def show(simulation: Simulation) -> str:
    """The whole answer."""
    simulated, answer = simulation.run, simulation.figures
    blocks = [head(simulated.workings), paragraph(sentence(simulated, answer)), times(answer)]
    notes = (paragraph(f"Note: {w}.") for w in answer["warnings"])
    blocks += [tiers(answer), lines(simulated), slo(answer), band(answer), *notes]
    blocks += [fleet_text(answer["fleet"])] if "fleet" in answer else []
    return "\n\n".join(block for block in blocks if block)


def sentence(simulated: Simulated, answer: Mapping[str, Any]) -> str:
    """What happened, in words."""
    n, spent = answer["requests"], answer["duration_s"]
    parts = [f"{n['completed']:,} of {n['arrived']:,} requests are answered in {span(spent)}"]
    rate = answer["output_tokens_per_s"]
    parts[0] += f", {rate:,.0f} tokens a second" if rate >= 10 else f", {rate:.2g} tokens a second"
    if answer["warmup_requests"]:
        parts.append(f"the times leave out the first {answer['warmup_requests']:,}")
    if n["dropped"]:
        be = "is" if n["dropped"] == 1 else "are"
        parts.append(f"{n['dropped']:,} can never be served and {be} dropped")
    if simulated.fleet.stopped:
        parts.append(f"stopped with {n['running']:,} running and {n['waiting']:,} waiting")
    blocks = answer["kv_blocks"]
    peak = blocks["peak"] / blocks["total"] if blocks["total"] else 0.0
    parts.append(f"the cache is {peak:.0%} full at most")
    if answer["prefix_hit_ratio"]:
        parts.append(f"{answer['prefix_hit_ratio']:.1%} of the prompts' tokens are found cached")
    if "speculation" in answer:
        s = answer["speculation"]
        parts.append(
            f"a step gives a request {s['tokens_per_step']:.2f} tokens, and "
            f"{s['wasted_tokens'] / s['drafted_tokens']:.0%} of the drafts are wasted"
        )
    if answer["preemptions"]:
        lost = answer["preemptions"]
        parts.append(f"{show_count(lost)} preemption{'s' if lost != 1 else ''}")
    return "; ".join(parts) + "."


def times(answer: Mapping[str, Any]) -> str:
    """Mean and percentiles of every time."""
    columns = ["mean", "p50", "p90", "p95", "p99", "max"]
    rows = [["", *columns]]
    for key, name in TIMES:
        spread = answer[key]
        if spread["mean"] is not None:
            rows.append([name, *(span(spread[column]) for column in columns)])
    return aligned(rows) if len(rows) > 1 else ""


def tiers(answer: Mapping[str, Any]) -> str:
    """What each tier gave: hits, bytes, how long reading it took."""
    if "tiers" not in answer:
        return ""
    rows = [["", "hits", "read", "written", "reads", "mean", "p99", "busy"]]
    for tier in answer["tiers"]:
        cells = [tier["tier"], f"{tier['hit_ratio']:.1%}"]
        if "reads" in tier:
            cells += [show_gb(tier["read_bytes"]), show_gb(tier["written_bytes"])]
            waits = (tier["read_s"]["mean"], tier["read_s"]["p99"])
            cells += [
                f"{tier['reads']:,}",
                *("none" if wait is None else span(wait) for wait in waits),
            ]
            cells.append(f"{tier['busy']:.1%}")
        rows.append([*cells, *[""] * (len(rows[0]) - len(cells))])
    return "Where prompts are found, and what it takes to read them\n" + aligned(rows, trimmed=True)


MEAN_TTFT = "mean TTFT"


def lines(simulated: Simulated) -> str:
    """Queue, blocks and time to first token over time, as rows of block characters."""
    moments = simulated.line
    if len(moments) < 2:
        return ""
    total = simulated.blocks
    width = text_width() - LABEL - 20
    start, end = moments[0].time_ps, moments[-1].time_ps
    cells: list[list[Any]] = [[] for _ in range(width)]
    for moment in moments:
        place = (moment.time_ps - start) * (width - 1) // max(1, end - start)
        cells[min(place, width - 1)].append(moment)
    outside = simulated.fleet.outcome.outside_ps
    rows = (
        ("queue", [_mean(cell, "waiting") for cell in cells], None, "{} waiting"),
        ("running", [_mean(cell, "running") for cell in cells], None, "{} running"),
        ("blocks", [_mean(cell, "blocks") for cell in cells], float(total), "{:.0%} of them"),
        (MEAN_TTFT, [_first_token_s(cell, outside) for cell in cells], None, "{}"),
    )
    drawn = []
    for name, values, top, words in rows:
        most = max(values)
        told = most / top if top else most
        text = words.format(_SAID.get(name, _counted)(told))
        drawn.append(f"  {name:{LABEL - 4}} {spark(values, top or most)} up to {text}")
    return plain_text("\n".join(drawn))


def _counted(mean: float) -> str:
    """A mean of requests: whole, or with its first figure where it is less than a few."""
    return f"{mean:,.0f}" if mean >= 9.5 or mean == int(mean) else f"{mean:.1g}"


_SAID: dict[str, Callable[[float], object]] = {"blocks": float, MEAN_TTFT: span}
"""How figures other than counts are said."""


def _first_token_s(moments: Sequence[Any], outside_ps: int) -> float:
    """Mean seconds to a first token as users see it, of the moments that had one; 0 where none had."""
    times = [moment.ttft_ps + outside_ps for moment in moments if moment.ttft_ps]
    return sum(times) / len(times) / PS_PER_S if times else 0.0


def _mean(moments: Sequence[Any], name: str) -> float:
    return sum(getattr(moment, name) for moment in moments) / len(moments) if moments else 0.0


def spark(values: Sequence[float], top: float) -> str:
    """One character for each value, as high as its share of ``top``."""
    blocky = plain_text("█") == "█"
    levels = LEVELS if blocky else " .:-=+*#@"
    steps = (min(8, round(8 * value / top)) if top else 0 for value in values)
    return "".join(levels[step] for step in steps)


def slo(answer: Mapping[str, Any]) -> str:
    """Whether the objectives are met."""
    if "slo" not in answer:
        return ""
    rows = []
    for name, kept in answer["slo"].items():
        value = "none" if kept["value_s"] is None else span(kept["value_s"])
        verdict = "met" if kept["met"] else "MISSED"
        rows.append(f"  {name}: {value}, {span(kept['limit_s'])} wanted: {verdict}")
    rate = answer["goodput_requests_per_s"]
    return "\n".join([*rows, f"  {rate:,.3g} requests a second keep to all of them"])


def band(answer: Mapping[str, Any]) -> str:
    """How far the figures differ from seed to seed."""
    bands = answer.get("bands")
    if not bands:
        return ""
    rows = [["", "p50", "p99"]]
    for key, name in TIMES:
        cells = (bands[key][at] for at in ("p50", "p99"))
        ranges = [
            f"{span(cell['low'])} to {span(cell['high'])}" if cell else "none" for cell in cells
        ]
        rows.append([name, *ranges])
    text = f"80 % intervals over {bands['seeds']} seeds\n" + aligned(rows)
    held = bands["requests_at_once"]["while_waiting"]
    if held:
        text += f"\n  {held['low']:,.1f} to {held['high']:,.1f} requests at once while others wait"
    return text


def cliff_text(cliff: Cliff) -> str:
    """A sweep as a table, with where it breaks."""
    key, broken = cliff.range.key, cliff.breaks_at
    rows = [[key, "TTFT p50", "TTFT p99", "TPOT p99", "tokens/s", "hits", "preempted", ""]]
    for point in cliff.points:
        a = point.to_dict()
        times = (a["ttft_p50_s"], a["ttft_p99_s"], a["tpot_p99_s"])
        cells = ["none" if time is None else span(time) for time in times]
        value = f"{point.value:,.0f}" if key == "kv_blocks" else f"{point.value:,.3g}"
        cells += [f"{a['output_tokens_per_s']:,.0f}", f"{a['prefix_hit_ratio']:.1%}"]
        mark = "<- breaks" if point.value == broken else ""
        rows.append([value, *cells, f"{a['preemptions']:,}", mark])
    where = "It does not break between these ends."
    if broken is not None:
        where = f"It breaks at {key} {broken:,.3g}."
    return paragraph(where, "") + "\n\n" + plain_text(aligned(rows))


def describe_text(description: Mapping[str, Any]) -> str:
    """The statistics of a workload."""
    rate = description["requests_per_s"]
    parts = [f"{description['requests']:,} requests in {span(description['duration_s'])}"]
    if rate:
        parts.append(f"{rate:,.3g} a second")
    if description["interarrival_cv"] is not None:
        parts.append(
            f"gaps vary {description['interarrival_cv']:.2f} times their mean (Poisson: 1)"
        )
    if description["sessions"]:
        parts.append(f"{description['sessions']:,} sessions")
    columns = ["mean", "p50", "p90", "p99", "max"]
    rows = [["tokens", *columns]]
    for key in ("input_tokens", "output_tokens", "total_tokens"):
        name = key.removesuffix("_tokens")
        rows.append([name, *(f"{description[key][column]:,.0f}" for column in columns)])
    prefix = ", ".join(f"{name}: {value:,}" for name, value in description["prefix"].items())
    reserved = description["reservation"]
    useful = (
        f"Reserving {reserved['cap_tokens']:,} tokens for each would keep "
        f"{reserved['useful_ratio']:.1%} of them useful; blocks of 16 waste "
        f"{description['fragmentation']['16']:.2%}."
    )
    shared = f"What is known of their prefixes: {prefix}."
    blocks = [
        paragraph("; ".join(parts) + ".", ""),
        aligned(rows),
        paragraph(useful),
        paragraph(shared),
    ]
    blocks += [paragraph(f"Note: {note}.") for note in description.get("warnings", ())]
    return "\n\n".join(blocks)


def script_text(played: ScriptResult) -> str:
    """The totals of a run in a few lines."""
    totals = played.totals
    dropped = f", {totals.dropped:,} dropped (they can never be served)" if totals.dropped else ""
    return "\n".join(
        [
            f"requests     {totals.completed:,} completed{dropped}",
            f"steps        {played.total_steps:,}, {totals.scheduled_tokens:,} tokens computed",
            f"cache hits   {totals.cached_tokens_first:,} tokens at first schedule, "
            f"{totals.cached_tokens_all:,} with those after preemptions",
            f"preemptions  {totals.preemptions:,}",
            f"peaks        {totals.peak_blocks_in_use:,} blocks in use, "
            f"{totals.peak_running:,} running, {totals.peak_waiting:,} waiting",
        ]
    )
