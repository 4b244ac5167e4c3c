"""Fit the coefficients of a step to measurements: ``python benchmarks/calibrate_times.py DATA OUT``.

DATA holds a measurement a line (JSON, also gzipped): config, gpu, layout, widths, engine, lengths,
concurrency or batch, and ``measured`` with ``tpot_ms`` and ``ttft_ms``. OUT is the table that the package
reads (``src/kvroom/latency/calibration/json``). Without OUT only errors are printed. Needs numpy.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from beliefs import BELIEFS
from fitting import Fit, Linear, Residuals
from measured import Point, read

from kvroom.latency.calibration import NOVEL, SETTING, kind_of_level

PROVENANCE = (
    "benchmarks/calibrate_times.py, from published measurements: the aiconfigurator silicon sample, "
    "Splitwise's performance model, AccelMark, llama.cpp scoreboards and the tables of XiongjieDai, "
    "lhl (Strix Halo), MLC, exllamav2, gpt-fast, lmdeploy and NVIDIA NIM"
)
ROUNDS = 8
REFIT = 0.05
"""Groups with a larger share of the points are fitted anew when they are left out."""
SMALLEST_BAND = 0.05
USUAL_NOVELTY = 0.3


def metric_of(p: Point, metric: str) -> str:
    """What the package calls it: a step outside a closed loop is ``step``."""
    return "step" if metric == "tpot" and (p.static or not p.load) else metric


def widths(fit: Fit, residuals: Residuals) -> dict[str, float]:
    """Half widths (logarithms) that hold four of five residuals, by metric and kind of model."""
    found: dict[str, list[float]] = {}
    for (i, m), r in residuals.items():
        p = fit.points[i]
        found.setdefault(f"{metric_of(p, m)} {p.group.split()[1]}", []).append(abs(r))
    return {g: float(np.quantile(v, 0.8)) for g, v in found.items()}


def bands(
    fit: Fit, inside: Residuals, out: dict[str, Residuals], generation: float
) -> dict[str, dict[str, float]]:
    """Half widths where everything was measured, and what each novelty adds (in squares): a new
    ``generation`` as much as its steps do, and no less than a new card."""
    known = widths(fit, inside)
    made = {g: {"known": round(max(w, SMALLEST_BAND), 3)} for g, w in known.items()}
    for of, residuals in out.items():
        for g, w in widths(fit, residuals).items():
            made[g][of] = round(float(np.sqrt(max(0.0, w**2 - known[g] ** 2))), 3)
    for band in made.values():
        for of in NOVEL:
            band.setdefault(of, band.get("model", USUAL_NOVELTY))
        band["generation"] = max(band["gpu"], round(generation, 3))
    return made


def unlike(fit: Fit, lin: Linear) -> float:
    """Half width (logarithm) that holds four of five generations of cards, one as much as another, when
    all cards of a generation are left out: of each what holds four of five of its steps.

    Generations that most loaded runs are of are not asked: without them little is left to fit.
    """
    names = [p.deployment.device.generation for p in fit.points]
    few = {n for n in names if names.count(n) <= REFIT * len(names)}
    out = fit.left_out(lin, names, refit=1.0, rounds=0)
    found: dict[str, list[float]] = {}
    for (i, m), r in out.items():
        if names[i] in few and metric_of(fit.points[i], m) == "step":
            found.setdefault(names[i], []).append(abs(r))
    return float(np.quantile([np.quantile(v, 0.8) for v in found.values()], 0.8))


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
        level: {n: round(v, 3) for n, v in sorted(e.items()) if abs(v) >= 0.002}
        for level, e in sorted(found.items())
    }
    return {"overall": overall, "effects": {x: e for x, e in rounded.items() if e}}


def written(fit: Fit, effects: Any, widths: dict[str, dict[str, float]]) -> str:
    """The text of the package's table."""
    made = table(fit, effects) | {
        "bands": widths,
        "measured": measured(fit.points),
        "provenance": PROVENANCE,
    }
    return json.dumps(made, indent=1, sort_keys=True) + "\n"


def fitted(points: Sequence[Point]) -> tuple[Fit, Any, Linear]:
    """The fit of all points, and the problem linearised there."""
    fit, every = Fit(points, BELIEFS), list(range(len(points)))
    effects = fit.run(every, fit.mean.copy(), ROUNDS, chords=1, say=True)
    return fit, effects, fit.linear(effects, every)


def left_out(fit: Fit, lin: Linear, of: str) -> Residuals:
    """Residuals of every point by effects fitted without its ``gpu`` (``model``, ``setting``)."""
    return fit.left_out(lin, [getattr(p, of) for p in fit.points], refit=REFIT, rounds=2)


LEFT_OUT = {"gpu": "gpu", "model": "model", "setting": SETTING}
"""What is left out in turn, and the kind of level that it makes new."""


def arguments(text: str | None) -> argparse.Namespace:
    parse = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parse.add_argument("data", type=Path)
    parse.add_argument("out", type=Path, nargs="?")
    parse.add_argument("--configs", type=Path, help="folder of the models' config.json files")
    given = parse.parse_args()
    given.configs = given.configs or given.data.parent / "model-configs"
    return given


def main() -> None:
    from step_time import show

    given = arguments(__doc__)
    fit, effects, lin = fitted(read(given.data, given.configs))
    inside = dict(zip(lin.keys, map(float, lin.r), strict=True))
    out = {kind: left_out(fit, lin, of) for of, kind in LEFT_OUT.items()}
    widths = bands(fit, inside, out, unlike(fit, lin))
    show("in sample", fit, inside, widths)
    for of, kind in LEFT_OUT.items():
        show(f"one {of} left out", fit, out[kind], widths, (of, kind))
    if given.out:
        given.out.write_text(written(fit, effects, widths))


if __name__ == "__main__":
    main()
