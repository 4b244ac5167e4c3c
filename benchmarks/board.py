"""The board of accuracy: ``python benchmarks/board.py DATA [--write]``.

DATA is a folder of published measurements (``measured.py`` says of what form). Every plain row is asked as it
was run, with the package's own table, and a plain roofline beside it (the larger of bytes over the memory's
rate and arithmetic over its peak, of one step): error in the median and at the ninetieth percentile, bias,
and the share inside the 80 % band, by card, engine, release, kind of model, load and source. Then what the
fit predicts of what it has not seen: a fifth of each setting, a setting, a cell, a model, a card, a source.
``--beside`` takes a file of another calculator's answers (``aiconfigurator_rows.py``; the one kept here
unless said) and prints it, kvroom and the roofline on the rows that all of them answer. ``--write`` makes
``docs/accuracy.md``. Needs numpy, and a minute or two.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from beliefs import BELIEFS
from calibrate_times import LEFT_OUT, metric_of
from fitting import Fit, Key, Residuals
from measured import Point, read, roofline_s

from kvroom.latency.calibration import era_of, recipe_of, shipped
from kvroom.latency.estimate import Timing

PAGE = Path(__file__).parents[1] / "docs" / "accuracy.md"
BESIDE = Path(__file__).with_name("aiconfigurator.json")
LEAST_ROWS = 8
METRICS = {
    "tpot": "a token under load",
    "ttft": "the first token",
    "whole": "a whole static batch",
    "step": "a step outside a loop",
}
Line = tuple[float, bool | None, float | None]
"""Logarithm of predicted over measured, inside the band, the same logarithm of the roofline."""


def lines_of(points: list[Point], fit: Fit, inside: Residuals) -> dict[Key, Line]:
    made: dict[Key, Line] = {}
    for (i, m), r in inside.items():
        p = points[i]
        span = Timing.of(p.deployment, p.rates).span(metric_of(p, m), 1.0)
        roof = None
        if (m != "ttft" and p.load is None) or (p.load and p.load.requests_per_s is None):
            seconds = roofline_s(p)
            if m == "whole" and p.load is not None:
                seconds = seconds and seconds * p.load.output_tokens
            roof = None if m == "ttft" or not seconds else float(np.log(seconds / p.measured[m]))
        made[i, m] = (r, abs(r) <= float(np.log(span.high)), roof)
    return made


def load_of(p: Point) -> str:
    """Users at once, in powers of four."""
    if p.load is None:
        return "one request"
    if p.load.requests_per_s is not None:
        return "open arrivals"
    power = int(np.log2(max(1, p.load.users)) // 2)
    users = f"{4**power} to {4 ** (power + 1) - 1} users"
    return f"batch, {users}" if p.static else users


GROUPS: dict[str, Callable[[Point], str]] = {
    "card and engine": lambda p: f"{p.gpu}, {p.engine}",
    "engine and release": lambda p: (
        f"{p.engine}, {era_of(p.engine, p.deployment.version)[0]}, {recipe_of(p.deployment)} recipe"
    ),
    "kind of model": lambda p: p.kind,
    "load": load_of,
    "source": lambda p: p.source,
}


def row(name: str, lines: list[Line]) -> str:
    logs = np.array([r for r, _, _ in lines])
    errors = np.abs(np.expm1(logs))
    held = [h for _, h, _ in lines if h is not None]
    roof = [np.abs(np.expm1(x)) for _, _, x in lines if x is not None]
    return (
        f"| {name} | {len(lines):,} | {100 * np.median(errors):.1f} %"
        f" | {100 * np.quantile(errors, 0.9):.0f} % | {np.exp(np.median(logs)):.2f}"
        f" | {f'{100 * np.mean(held):.0f} %' if held else ''}"
        f" | {f'{100 * np.median(roof):.0f} %' if roof else ''} |"
    )


HEAD = (
    "| {} | n | median | p90 | bias | in band | roofline |\n"
    "|---|---|---|---|---|---|---|"
)  # fmt: skip


def section(points: list[Point], lines: dict[Key, Line], of: Callable[[Point], str]) -> list[str]:
    """Tables of each metric, the worst line first."""
    said = []
    for metric, what in METRICS.items():
        found: dict[str, list[Line]] = {}
        for (i, m), line in lines.items():
            if metric_of(points[i], m) == metric:
                found.setdefault(of(points[i]), []).append(line)
        many = [(g, each) for g, each in found.items() if len(each) >= LEAST_ROWS]
        if not many:
            continue
        worst = sorted(many, key=lambda g: -float(np.median([abs(r) for r, _, _ in g[1]])))
        said += [HEAD.format(what), *(row(g, each) for g, each in worst), ""]
    return said


def _a(name: str) -> str:
    return f"an {name}" if name[0] in "aeiou" else f"a {name}"


def unseen(points: list[Point], out: dict[str, Residuals]) -> list[str]:
    said = ["| left out | " + " | ".join(METRICS.values()) + " |", "|---|" + "---|" * len(METRICS)]
    for name, residuals in out.items():
        cells = []
        for metric in METRICS:
            errors = [
                abs(float(np.expm1(r)))
                for (i, m), r in residuals.items()
                if metric_of(points[i], m) == metric
            ]
            cells.append(
                f"{100 * np.median(errors):.1f} %, p90 {100 * np.quantile(errors, 0.9):.0f}"
            )
        said.append(f"| {_a(name)} | " + " | ".join(cells) + " |")
    return said


def beside(
    points: list[Point], lines: dict[Key, Line], out: dict[str, Residuals], other: dict[str, Any]
) -> Iterable[str]:
    """kvroom, in sample and of what it has not seen, another calculator and the roofline on the same rows."""
    answers, none = other["answers"], other["none"]
    name = f"{other['tool']} {other['version']}"
    asked = [p for p in points if p.row["id"] in answers or p.row["id"] in none]
    engines = sorted({p.engine for p in asked})
    both = [p for p in asked if p.row["id"] in answers]
    yield (
        f"{name}, asked for {len(asked):,} of these runs (loops of users without drafts on cards and engines"
        f" that it knows, drawn by chance), answers {len(both):,}; for {len(asked) - len(both):,} it has no"
        f" tables or no room. The other cards here it does not know. On the rows that all answer"
        f" ({', '.join(engines)}):"
    )
    yield ""
    yield "| | | n | median | p90 | bias |"
    yield "|---|---|---|---|---|---|"
    places = {"tpot": 0, "ttft": 1}
    for metric, place in places.items():
        theirs: dict[Key, float] = {}
        for i, p in enumerate(points):
            said = answers.get(p.row["id"])
            if said and (i, metric) in lines and said[place] > 0:
                theirs[i, metric] = float(np.log(said[place] / 1e3 / p.measured[metric]))
        whose = {
            "kvroom, in sample": {key: lines[key][0] for key in theirs},
            "kvroom, the setting left out": {key: out["setting"][key] for key in theirs},
            "kvroom, the cell left out": {key: out["cell"][key] for key in theirs},
            "kvroom, the model left out": {key: out["model"][key] for key in theirs},
            name: theirs,
        }
        if metric == "tpot":
            roofs = {key: lines[key][2] for key in theirs}
            whose["plain roofline"] = {key: r for key, r in roofs.items() if r is not None}
        for who, found in whose.items():
            logs = np.array(list(found.values()))
            errors = np.abs(np.expm1(logs))
            yield (
                f"| {METRICS[metric]} | {who} | {len(logs):,} | {100 * np.median(errors):.1f} %"
                f" | {100 * np.quantile(errors, 0.9):.0f} % | {np.exp(np.median(logs)):.2f} |"
            )
    yield ""
    yield f"{name}'s tables were measured on these cards; kvroom's fit has seen runs of theirs, too."


def page(
    points: list[Point],
    lines: dict[Key, Line],
    out: dict[str, Residuals],
    other: dict[str, Any] | None = None,
) -> Iterable[str]:
    by_group = {
        g: [r for (i, m), (r, _, _) in lines.items() if GROUPS["card and engine"](points[i]) == g]
        for g in {GROUPS["card and engine"](p) for p in points}
    }
    worst = sorted(
        (g for g, each in by_group.items() if len(each) >= LEAST_ROWS),
        key=lambda g: -float(np.median(np.abs(by_group[g]))),
    )[:3]
    yield "# How accurate the times are"
    yield ""
    yield (
        f"{len(lines):,} measurements of {len(points):,} published runs, each asked with the flags, layout"
        " and lengths that it had. `python benchmarks/board.py DATA --write` makes this page;"
        " `python benchmarks/calibrate_times.py` makes the fit that it holds against them. Median and p90 are"
        " of the relative error, bias is predicted over measured in the median, in band is how many lie"
        " inside the plan's 80 % band, roofline is the median error of the larger of bytes over bandwidth"
        " and arithmetic over peak."
    )
    yield ""
    yield f"The worst first: {'; '.join(worst)} are off most. What the fit has never seen:"
    yield ""
    yield from unseen(points, out)
    yield ""
    yield (
        "A plan's `serving.rests_on` names its line of the table by card and engine. Where card or engine was"
        " not measured it says so, and the band is that of a card (a model, an engine) left out."
    )
    if other is not None:
        yield ""
        yield "## Beside others"
        yield ""
        yield from beside(points, lines, out, other)
    for title, of in GROUPS.items():
        yield ""
        yield f"## By {title}"
        yield ""
        yield from section(points, lines, of)


def main() -> None:
    parse = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parse.add_argument("data", type=Path)
    parse.add_argument("--configs", type=Path)
    parse.add_argument("--beside", type=Path, default=BESIDE, help="another calculator's answers")
    parse.add_argument("--write", action="store_true", help=f"make {PAGE.name}")
    args = parse.parse_args()
    points = read(args.data, args.configs or args.data / "model-configs")
    fit = Fit(points, BELIEFS)
    lin = fit.linear(fit.effects_of(shipped()))
    inside: Residuals = dict(zip(lin.keys, map(float, lin.r), strict=True))
    names = [[of(p) for p in points] for _, of in LEFT_OUT.values()]
    out = dict(zip(LEFT_OUT, fit.left_out(lin, *names), strict=True))
    other = json.loads(args.beside.read_text("utf-8")) if args.beside.exists() else None
    text = "\n".join(page(points, lines_of(points, fit, inside), out, other)).rstrip() + "\n"
    print(text)
    if args.write:
        PAGE.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
