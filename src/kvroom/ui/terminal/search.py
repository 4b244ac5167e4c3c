"""A search in words, for a terminal of 80 columns, and its progress on standard error."""

from __future__ import annotations

import click

from kvroom.optimize.scaling import ScalePoint
from kvroom.optimize.search.answers import Answer, Found
from kvroom.ui.terminal.plain import ascii_only, plain_text, spelled
from kvroom.ui.terminal.scaling import day_cost
from kvroom.ui.terminal.table import aligned
from kvroom.ui.terminal.text import paragraph
from kvroom.ui.words import span

NAME = 36


def show(result: Found) -> str:
    """The whole answer."""
    blocks = [_head(result), paragraph(result.sentence)]
    if result.answers:
        blocks += [_table(result), _scaled(result), _runners_up(result)]
    if result.lost:
        blocks.append(
            "\n".join(
                [
                    "Failed when it was simulated",
                    *(paragraph(f"{x['name']}: {x['why']}.") for x in result.lost),
                ]
            )
        )
    if result.nearest:
        blocks.append(
            "\n".join(
                ["Nearest", *(paragraph(f"{x['name']}: {x['why']}.") for x in result.nearest)]
            )
        )
    if result.unpriced:
        unpriced = ", ".join(f"{x['name']} ({x['gpus']:,})" for x in result.unpriced)
        blocks.append(paragraph(f"Without a known price would do, by their GPUs: {unpriced}."))
    blocks.append(_searched(result))
    trace = result.objective["trace"]
    if trace is not None:
        blocks.append(paragraph(f"Simulations play the trace {trace['name']}."))
        blocks += [paragraph(f"Note: {note}.") for note in trace["notes"]]
    text = "\n\n".join(block for block in blocks if block)
    return spelled(text) if ascii_only() else text


def _head(result: Found) -> str:
    objective = result.objective
    load = "as much as one deployment serves"
    if objective["users"] is not None:
        load = f"{objective['users']:,} users"
        if objective["trace"] is not None:
            load = f"{objective['users']:,} sessions at a time"
    elif objective["requests_per_s"] is not None:
        load = f"{objective['requests_per_s']:,.4g} requests a second"
    limits = ", ".join(f"{name} {_time(limit)}" for name, limit in objective["slo"].items())
    line = f"{objective['input_tokens']:,} tokens in, {objective['output_tokens']:,} out, {load}"
    return click.style(paragraph(line + (f"; {limits}" if limits else ""), ""), bold=True)


def _time(seconds: float) -> str:
    return f"{seconds:g} s" if seconds >= 1 else f"{seconds * 1e3:g} ms"


def _table(result: Found) -> str:
    lines = [
        f"     {'':{NAME}}{'GPUs':>5}{'$/h':>8}{'$/M':>7}{'TTFT':>8}{'TPOT':>8}",
    ]
    for index, answer in enumerate(result.answers):
        mark = "*" if index in result.pareto else " "
        lines.append(_row(f"{index + 1:>2}{mark}", answer))
    return "\n".join(
        [
            *lines,
            paragraph(
                "* Pareto-optimal: no other is at least as cheap, as quick and as productive."
            ),
        ]
    )


def _scaled(result: Found) -> str:
    """What each answer costs a day with its autoscaler, and without."""
    if not any(answer.autoscaler for answer in result.answers):
        return ""
    first = next(iter(result.objective["slo"]))
    rows = [["", "over the whole load", "$/day", "always", "replicas", first]]
    notes = []
    for index, answer in enumerate(result.answers):
        told = answer.autoscaler or {}
        best, fixed = (ScalePoint(**one) if one else None for one in (told["best"], told["fixed"]))
        settings = "–"
        if best is not None:
            settings = answer.scaled()["settings"].replace(",", "")
        elif fixed is not None and fixed.holds:
            best, settings = fixed, "always"
        reached = best.slo[first] if best else None
        rows.append(
            [
                f"{index + 1}",
                settings,
                *(day_cost(point) if point else "–" for point in (best, fixed)),
                f"{best.mean_replicas:.2f}" if best else "–",
                "–" if reached is None else span(reached),
            ]
        )
        if told["why"]:
            notes.append(paragraph(f"{index + 1}: {told['why']}."))
    return "\n".join([plain_text(aligned(rows)), *notes])


def _row(mark: str, answer: Answer) -> str:
    name = answer.name if len(answer.name) <= NAME - 1 else answer.name[: NAME - 2] + "…"
    times = answer.trial or answer.row
    money = (_money(answer.row[k]) for k in ("usd_per_hour", "usd_per_million_output_tokens"))
    hour, million = money
    ttft, tpot = (_time(float(f"{times[k]:.3g}")) for k in ("ttft_s", "tpot_s"))
    return f"{mark}  {name:{NAME}}{answer.row['gpus']:>5,}{hour:>8}{million:>7}{ttft:>8}{tpot:>8}"


def _money(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.2f}" if value < 1000 else f"{value:,.0f}"


def _runners_up(result: Found) -> str:
    reasons = [
        f"{index + 1}: {answer.why}." for index, answer in enumerate(result.answers) if answer.why
    ]
    return "\n".join(["Why the others are not first", *map(paragraph, reasons)]) if reasons else ""


def _searched(result: Found) -> str:
    searched = result.searched
    text = f"{searched['deployments']:,} deployments, {searched['candidates']:,} candidates in closed form"
    text += f" ({searched['refused']:,} do not run, {searched['feasible_in_closed_form']:,} may do)"
    if searched["simulated"]:
        text += f"; {searched['simulated']:,} simulated, {searched['simulations']:,} times in all"
        text += ", until none could be cheaper" if searched["proven"] else ""
        shares = searched["simulated_within_band"].items()
        shares_text = " and ".join(f"{share:.0%} of {metric.upper()}" for metric, share in shares)
        text += f", {shares_text} within the closed form's bands" if shares_text else ""
    return paragraph(text + ".")
