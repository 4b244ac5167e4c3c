"""Fit the coefficients of a step to measurements: ``python benchmarks/calibrate_times.py DATA [OUT]``.

DATA is a folder of published measurements (``measured.py`` says of what form). OUT is the table that the
package reads (``src/kvroom/latency/calibration.json``). Without OUT only errors are printed: in sample, and
of what the fit has not seen, a source, a card, a model, a cell (card × model × engine) and a fifth of each
setting left out in turn. Needs numpy, and a few minutes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from beliefs import BELIEFS
from fitting import Fit, Linear, Residuals
from measured import Point, read

from kvroom.latency.calibration import (
    BANDED,
    CELL,
    NOVEL,
    SETTING,
    board_line,
    kind_of_level,
    shipped,
)

PROVENANCE = (
    "benchmarks/calibrate_times.py, from published measurements: the aiconfigurator silicon sample and"
    " InferenceX (SemiAnalysis, Apache-2.0), LLM-Inference-Bench (Argonne, BSD-3-Clause), ML.ENERGY v3,"
    " Splitwise's performance model, AccelMark, SGLang's cookbook, dstack, llama.cpp scoreboards and the"
    " tables of XiongjieDai, lhl (Strix Halo), kyuz0 (R9700), MLC, MLX (mlx-lm's own and mlxcel's), exllamav2,"
    " gpt-fast, lmdeploy and NVIDIA NIM"
)
ROUNDS = 8
SMALLEST_BAND = 0.05
USUAL_NOVELTY = 0.3
INSIDE = 0.8
POOLED = 12
"""A band of its own counts as so many measurements of what it is drawn towards."""
FIFTHS = 5
LEAST_ROWS = 8
"""Groups with fewer measurements get no line of their own."""


def metric_of(p: Point, metric: str) -> str:
    """What the package calls it: a step outside a closed loop is ``step``, a static batch's ``whole``."""
    return "step" if metric == "tpot" and (p.static or not p.load) else metric


def kind_of(p: Point, metric: str) -> str:
    return f"{metric_of(p, metric)} {p.kind}"


def fifth(p: Point) -> str:
    """A fifth of the measurements of a setting, drawn by their names."""
    drawn = int(sha256(p.row["id"].encode()).hexdigest(), 16) % FIFTHS
    return f"{p.setting} {p.source} {drawn}"


LEFT_OUT: dict[str, tuple[str | None, Callable[[Point], str]]] = {
    "fifth of a setting": (None, fifth),
    "setting": (SETTING, lambda p: p.setting),
    "cell": (CELL, lambda p: p.cell),
    "model": ("model", lambda p: p.model),
    "card": ("gpu", lambda p: p.gpu),
    "generation": ("generation", lambda p: p.deployment.device.generation),
    "engine": ("engine", lambda p: p.engine),
    "source": ("source", lambda p: p.source),
}
"""What is left out in turn: the kind of level that it makes new, and what it is of a point."""


def wide(residuals: Iterable[float]) -> float:
    """The half width (logarithm) that holds four of five."""
    return float(np.quantile(np.abs(list(residuals)), INSIDE))


def by_kind(fit: Fit, residuals: Residuals) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for (i, m), r in residuals.items():
        found.setdefault(kind_of(fit.points[i], m), []).append(r)
    return found


def bands(fit: Fit, out: Mapping[str, Residuals]) -> dict[str, dict[str, float]]:
    """Half widths where the setting was measured, and what each novelty adds (in squares)."""
    known = {
        g: max(SMALLEST_BAND, wide(r)) for g, r in by_kind(fit, out["fifth of a setting"]).items()
    }
    made = {g: {"known": round(w, 3)} for g, w in known.items()}
    for name, (novelty, _) in LEFT_OUT.items():
        if novelty is not None:
            for g, r in by_kind(fit, out[name]).items():
                made[g][novelty] = round(float(np.sqrt(max(0.0, wide(r) ** 2 - known[g] ** 2))), 3)
    for band in made.values():
        for novelty in NOVEL:
            band.setdefault(novelty, band.get("model", USUAL_NOVELTY))
        band["generation"] = max(band["gpu"], band["generation"])
    return made


def own_bands(
    fit: Fit, residuals: Residuals, bands: Mapping[str, Mapping[str, float]]
) -> dict[str, dict[str, float]]:
    """By level and metric, how many times as wide as usual a band is: what the level's own residuals say,
    drawn towards the level above it (``BANDED``, the most general first)."""
    of: dict[tuple[str, str], list[tuple[float, tuple[str, ...]]]] = {}
    for (i, m), r in residuals.items():
        p = fit.points[i]
        metric, usual = metric_of(p, m), bands[kind_of(p, m)]["known"]
        chain = [x for kind in BANDED for x in p.levels if kind_of_level(x) == kind]
        for place, level in enumerate(chain):
            of.setdefault((level, metric), []).append((r / usual, tuple(chain[:place])))
    made: dict[str, dict[str, float]] = {}
    for (level, metric), rows in sorted(of.items(), key=lambda x: len(x[1][0][1])):
        above = next(
            (made[x][metric] for x in reversed(rows[0][1]) if metric in made.get(x, {})), 1.0
        )
        share = len(rows) / (len(rows) + POOLED)
        value = share * wide(r for r, _ in rows) + (1 - share) * above
        made.setdefault(level, {})[metric] = round(value, 2)
    return made


def measured(points: Sequence[Point]) -> dict[str, dict[str, int]]:
    """How many measurements of each metric each card, model, engine and setting has."""
    counts: dict[str, dict[str, int]] = {}
    for p in points:
        for level in p.levels:
            if kind_of_level(level) in NOVEL:
                here = counts.setdefault(level, {})
                for metric in (metric_of(p, m) for m in p.measured):
                    here[metric] = here.get(metric, 0) + 1
    return counts


def board(fit: Fit, residuals: Residuals) -> dict[str, dict[str, dict[str, float]]]:
    """By card and engine: how many measurements of each metric, and their median error."""
    found: dict[str, dict[str, list[float]]] = {}
    for (i, m), r in residuals.items():
        p = fit.points[i]
        line = found.setdefault(board_line(p.gpu, p.engine), {})
        line.setdefault(metric_of(p, m), []).append(abs(float(np.expm1(r))))
    return {
        line: {
            m: {"n": len(errors), "median": round(float(np.median(errors)), 3)}
            for m, errors in metrics.items()
        }
        for line, metrics in found.items()
    }


def table(fit: Fit, effects: Any) -> dict[str, Any]:
    """The fitted coefficients as the package reads them."""
    beliefs = fit.beliefs
    found: dict[str, dict[str, float]] = {level: dict(e) for level, e in beliefs.known.items()}
    overall = {}
    for (level, name), value in zip(fit.columns, effects, strict=True):
        if not level:
            overall[name] = float(f"{getattr(beliefs.start, name) * np.exp(value):.4g}")
        else:
            found.setdefault(level, {})[name] = float(value)
    rounded = {
        level: {n: round(v, 3) for n, v in sorted(e.items()) if abs(v) >= 0.003}
        for level, e in sorted(found.items())
    }
    return {"overall": overall, "effects": {x: e for x, e in rounded.items() if e}}


def fitted(
    points: Sequence[Point], *, rounds: int = ROUNDS, warm: bool = False
) -> tuple[Fit, Any, Linear, dict[str, Residuals]]:
    """The fit of all points, the problem linearised there, and the residuals of what is left out."""
    fit = Fit(points, BELIEFS)
    print(f"{len(points)} points, {len(fit.keys)} measurements, {len(fit.columns)} effects")
    effects = fit.run(rounds, fit.effects_of(shipped()) if warm else None)
    lin = fit.linear(effects)
    names = [[of(p) for p in points] for _, of in LEFT_OUT.values()]
    return fit, effects, lin, dict(zip(LEFT_OUT, fit.left_out(lin, *names), strict=True))


Groups = Callable[[Point, str], Iterable[str]]


def show(title: str, fit: Fit, residuals: Residuals, groups: Groups) -> None:
    """Median and ninetieth percentile of the error, and bias."""
    found: dict[str, list[float]] = {}
    for (i, m), r in residuals.items():
        for g in groups(fit.points[i], m):
            found.setdefault(g, []).append(r)
    print(title)
    for g, logs in sorted(found.items()):
        if len(logs) < LEAST_ROWS:
            continue
        errors = np.abs(np.expm1(logs))
        print(
            f"    {g:58s} n {len(logs):5d}  median {100 * np.median(errors):5.1f} %"
            f"  p90 {100 * np.quantile(errors, 0.9):6.1f} %  bias {np.exp(np.median(logs)):.2f}",
            flush=True,
        )


def where(p: Point, m: str) -> Iterable[str]:
    yield f"{metric_of(p, m)} {p.source} {p.gpu} {p.engine}"
    yield f"{m} all"


def left_out_groups(name: str, of: Callable[[Point], str], p: Point, m: str) -> Iterable[str]:
    yield f"{metric_of(p, m)} all"
    yield f"{metric_of(p, m)} {p.kind}"
    if name in ("source", "card", "model", "engine"):
        yield f"{m} [{of(p)}]"


def main() -> None:
    parse = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parse.add_argument("data", type=Path, help="folder of measurements")
    parse.add_argument("out", type=Path, nargs="?")
    parse.add_argument("--configs", type=Path, help="folder of the models' config.json files")
    parse.add_argument("--warm", action="store_true", help="begin with the package's table")
    parse.add_argument("--rounds", type=int, default=ROUNDS, help="at most so many (0: bands only)")
    args = parse.parse_args()
    points = read(args.data, args.configs or args.data / "model-configs")
    fit, effects, lin, out = fitted(points, rounds=args.rounds, warm=args.warm)
    inside: Residuals = dict(zip(lin.keys, map(float, lin.r), strict=True))
    usual = bands(fit, out)
    own = own_bands(fit, out["fifth of a setting"], usual)
    show("in sample", fit, inside, where)
    for name, (_, of) in LEFT_OUT.items():
        show(f"one {name} left out", fit, out[name], partial(left_out_groups, name, of))
    if args.out:
        kept = {key: shipped()[key] for key in ("power", "pools")}  # their own scripts fit those
        made = table(fit, effects) | {
            **kept,
            "bands": usual,
            "own_bands": own,
            "board": board(fit, out["fifth of a setting"]),
            "measured": measured(points),
            "provenance": PROVENANCE,
        }
        args.out.write_text(json.dumps(made, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
