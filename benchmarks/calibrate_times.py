"""Fit the coefficients of a step to measurements: ``python benchmarks/calibrate_times.py DATA [OUT]``.

DATA holds a measurement a line (JSON, also gzipped): config, gpu, layout, widths, engine, lengths,
concurrency or batch, and ``measured`` with ``tpot_ms`` and ``ttft_ms``. OUT is the table that the
package reads. Needs numpy.

Logarithms of coefficients are sums of effects of levels; each effect is drawn towards zero as
strongly as it is narrow, so what few rows show moves little. Residuals are logarithms of predicted
over measured, with a Student-t loss: a run that something unstated slowed or sped up bends nothing.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from measured import Point, read

from kvroom.timing.calibration import NAMES, NOVEL
from kvroom.timing.steps import Coefficients

START = Coefficients(
    wide_eta=0.80, narrow_eta=0.70, expert_eta=0.8, cache_eta=0.75,
    wide_mu=0.65, narrow_mu=0.50, attention_mu=0.4,
    layer_s=40e-6, expert_layer_s=20e-6, latent_layer_s=10e-6, state_layer_s=20e-6,
    reduce_s=5e-6, link_eta=0.6, exchange_s=15e-6,
    request_s=20e-6, token_s=0.3e-6, step_s=0.4e-3, routing=0.8, scale=1.0,
    first_s=15e-3, first_scale=1.0, alone=0.3, burst=0.2, wait=1.0,
)  # fmt: skip
OVERALL_SD = dict.fromkeys(NAMES, 0.5) | {
    "wide_eta": 0.1, "narrow_eta": 0.15, "cache_eta": 0.15, "scale": 0.0001, "first_scale": 0.0001,
    "wide_mu": 0.25, "narrow_mu": 0.25,
}  # fmt: skip
"""How far (in logarithms) an overall value may lie from where operators' measurements put it."""
EFFECTS: dict[str, tuple[tuple[str, float], ...]] = {
    # kind of level → coefficients it may move, each with the spread expected of it
    "vendor": (("wide_eta", 0.1), ("narrow_eta", 0.1), ("wide_mu", 0.3), ("layer_s", 0.4)),
    "generation": (
        ("wide_eta", 0.1), ("narrow_eta", 0.1), ("cache_eta", 0.15), ("wide_mu", 0.2),
        ("narrow_mu", 0.2), ("attention_mu", 0.3), ("layer_s", 0.3), ("reduce_s", 0.3), ("expert_eta", 0.2),
    ),
    "gpu": (("wide_eta", 0.08), ("layer_s", 0.15), ("scale", 0.05)),
    "engine": (
        ("layer_s", 0.5), ("expert_layer_s", 0.5), ("request_s", 0.7), ("step_s", 0.7), ("token_s", 0.7),
        ("wide_eta", 0.1), ("narrow_eta", 0.1), ("cache_eta", 0.2), ("wide_mu", 0.3), ("narrow_mu", 0.3),
        ("reduce_s", 0.4), ("first_s", 0.8), ("alone", 1.0), ("burst", 0.8), ("wait", 0.7), ("attention_mu", 0.3),
    ),
    "kind": (("layer_s", 0.2), ("request_s", 0.3), ("narrow_mu", 0.3), ("burst", 0.3)),
    "weights": (("narrow_eta", 0.2), ("narrow_mu", 0.3), ("cache_eta", 0.2), ("expert_eta", 0.2)),
    "cache": (("cache_eta", 0.15),),
    "tp": (("reduce_s", 0.3),),
    "link": (("reduce_s", 0.7), ("link_eta", 0.3)),
    "model": (("scale", 0.07), ("first_scale", 0.1)),
    "engine generation": (("layer_s", 0.15), ("step_s", 0.3), ("narrow_mu", 0.15), ("first_s", 0.2)),
    "engine kind": (("layer_s", 0.2), ("expert_layer_s", 0.2), ("request_s", 0.3), ("scale", 0.05)),
    "engine weights": (("narrow_eta", 0.15), ("narrow_mu", 0.2), ("wide_mu", 0.2)),
    "weights generation": (("narrow_eta", 0.1), ("narrow_mu", 0.15)),
    "engine weights generation": (("narrow_eta", 0.1), ("narrow_mu", 0.1)),
    "engine model": (("scale", 0.07), ("first_scale", 0.1)),
    "model weights": (("scale", 0.05),),
    "engine generation model weights": (("scale", 0.07), ("first_scale", 0.1), ("request_s", 0.2), ("layer_s", 0.1)),
    "engine gpu model weights tp ep": (("scale", 0.07), ("first_scale", 0.15), ("first_s", 0.2)),
    "engine version": (("scale", 0.05),),
    "engine version model weights generation": (("scale", 0.15), ("first_scale", 0.15)),
}  # fmt: skip
STEP = 1e-3
FREEDOM = 4.0
LONGEST = 1.0
"""No effect moves further in a round: the model is linear only nearby."""
FLOOR = {"tpot": 0.06, "ttft": 0.12}
"""Measurements of one thing differ by this much (a typical pair's logarithm) whatever the model."""
BIG_ROUNDS = 2


def kind_of_level(level: str) -> str:
    return " ".join(part.split("=")[0] for part in level.split())


class Fit:
    """The points' design, and the effects that fit them."""

    def __init__(self, points: Sequence[Point]) -> None:
        self.points = points
        self.columns: list[tuple[str, str]] = [("", n) for n in NAMES]
        self.spread = [OVERALL_SD[n] for n in NAMES]
        seen: dict[str, int] = {}
        for p in points:
            for level in p.levels:
                if level not in seen:
                    seen[level] = len(self.columns)
                    for name, sd in EFFECTS.get(kind_of_level(level), ()):
                        self.columns.append((level, name))
                        self.spread.append(sd)
        index = {c: i for i, c in enumerate(self.columns)}
        self.design = [
            [[index["", n]] + [index[x, n] for x in p.levels if (x, n) in index] for n in NAMES]
            for p in points
        ]

    def coefficients(self, i: int, effects: Any) -> Coefficients:
        logs = {n: sum(effects[j] for j in js) for n, js in zip(NAMES, self.design[i], strict=True)}
        return Coefficients(**{n: getattr(START, n) * float(np.exp(logs[n])) for n in NAMES})

    def residuals(self, effects: Any, only: Iterable[int]) -> dict[tuple[int, str], float]:
        return {
            (i, m): float(np.log(v / self.points[i].measured[m]))
            for i in only
            for m, v in self.points[i].predict(self.coefficients(i, effects)).items()
        }

    def slopes(self, effects: Any, only: Sequence[int]) -> tuple[list[tuple[int, str]], Any, Any]:
        """Residuals and their derivatives by coefficient."""
        keys, values, rows = [], [], []
        for i in only:
            p, k = self.points[i], self.coefficients(i, effects)
            base = p.predict(k)
            still = p.idle()
            moved = [
                base if n in still else p.predict(replace(k, **{n: getattr(k, n) * (1 + STEP)}))
                for n in NAMES
            ]
            for m, v in base.items():
                keys.append((i, m))
                values.append(np.log(v / p.measured[m]))
                rows.append([(np.log(x[m] / v)) / np.log1p(STEP) for x in moved])
        return keys, np.array(values), np.array(rows)

    def linear(self, effects: Any, only: Sequence[int]) -> Linear:
        """The residuals of ``only`` and their derivatives by effect, at ``effects``."""
        keys, r, by_coefficient = self.slopes(effects, only)
        j = np.zeros((len(keys), len(self.columns)))
        for row, (i, _) in enumerate(keys):
            for c, js in enumerate(self.design[i]):
                for column in js:
                    j[row, column] += by_coefficient[row, c]
        groups = np.array([f"{self.points[i].group} {m}" for i, m in keys])
        weights = np.array([self.points[i].weight for i, _ in keys])
        return Linear(keys=keys, at=effects.copy(), r=r, j=j, groups=groups, weights=weights)

    def solve(self, lin: Linear, rows: Any, turns: int = 1) -> Any:
        """Effects that fit ``rows`` of a linearised problem, reweighted ``turns`` times."""
        j, groups = lin.j[rows], lin.groups[rows]
        prior = 1 / np.square(self.spread)
        effects = lin.at.copy()
        for _ in range(turns):
            r = lin.r[rows] + j @ (effects - lin.at)
            scale = np.ones(len(r))
            for g in set(groups):
                here = groups == g
                scale[here] = max(FLOOR[g.split()[-1]], 1.4826 * np.median(np.abs(r[here])))
            w = (FREEDOM + 1) / (FREEDOM + (r / scale) ** 2) / scale**2 * lin.weights[rows]
            a = (j * w[:, None]).T @ j + np.diag(prior)
            b = -(j.T @ (w * r) + prior * effects)
            step = np.linalg.solve(a, b)
            effects = effects + step * min(1.0, LONGEST / max(1e-9, float(np.abs(step).max())))
        return effects

    def run(self, only: Sequence[int], effects: Any, rounds: int, verbose: bool = False) -> Any:
        """Effects that fit ``only``, from ``effects`` on."""
        for turn in range(rounds):
            lin = self.linear(effects, only)
            new = self.solve(lin, np.arange(len(lin.keys)))
            if verbose:
                moved = float(np.abs(new - effects).max())
                print(
                    f"  round {turn}: median {np.median(np.abs(lin.r)):.4f}, moved {moved:.3f}",
                    flush=True,
                )
            effects = new
        return effects


@dataclass
class Linear:
    """A linearised problem: residuals ``r`` at effects ``at`` and their slopes ``j``."""

    keys: list[tuple[int, str]]
    at: Any
    r: Any
    j: Any
    groups: Any
    weights: Any


PROVENANCE = (
    "benchmarks/calibrate_times.py, from published measurements: the aiconfigurator silicon sample, "
    "Splitwise's performance model, AccelMark, llama.cpp scoreboards and the tables of XiongjieDai, "
    "lhl (Strix Halo), MLC, exllamav2, gpt-fast, lmdeploy and NVIDIA NIM"
)


def measured(points: Sequence[Point]) -> dict[str, int]:
    """How many points each card, model and engine has."""
    counts: dict[str, int] = {}
    for p in points:
        for level in p.levels:
            if kind_of_level(level) in NOVEL:
                counts[level] = counts.get(level, 0) + 1
    return counts


Residuals = dict[tuple[int, str], float]


def left_out(fit: Fit, lin: Linear, of: str, rounds: int = 1) -> Residuals:
    """Residuals of every point under the effects that the points of other GPUs (or models) give."""
    names = [getattr(p, of) for p in fit.points]
    row_names = np.array([names[i] for i, _ in lin.keys])
    made: Residuals = {}
    for name in dict.fromkeys(names):
        effects = fit.solve(lin, np.flatnonzero(row_names != name), turns=2)
        held = [i for i, n in enumerate(names) if n == name]
        if len(held) > 0.1 * len(names):
            rest = [i for i, n in enumerate(names) if n != name]
            effects = fit.run(rest, effects, BIG_ROUNDS)
        made |= fit.residuals(effects, held)
    return made


def summary(fit: Fit, residuals: dict[tuple[int, str], float]) -> None:
    groups: dict[str, list[float]] = {}
    for (i, m), r in residuals.items():
        groups.setdefault(f"{fit.points[i].group} {m}", []).append(abs(np.expm1(r)))
        groups.setdefault(f"{fit.points[i].row['tier']} {m}", []).append(abs(np.expm1(r)))
    for g in sorted(groups):
        e = np.array(groups[g])
        print(
            f"    {g:24s} n {len(e):5d}  median {100 * np.median(e):5.1f}  p90 {100 * np.quantile(e, 0.9):6.1f}"
        )


def table(fit: Fit, effects: Any) -> dict[str, Any]:
    found: dict[str, dict[str, float]] = {}
    overall = {}
    for (level, name), value in zip(fit.columns, effects, strict=True):
        if not level:
            overall[name] = float(f"{getattr(START, name) * np.exp(value):.4g}")
        elif abs(value) >= 0.002:
            found.setdefault(level, {})[name] = round(float(value), 3)
    return {"overall": overall, "effects": found}


def metric_of(p: Point, metric: str) -> str:
    """What the package calls it: a step outside a closed loop is ``step``."""
    return "step" if metric == "tpot" and (p.static or not p.load) else metric


def bands(fit: Fit, inside: Residuals, out: dict[str, Residuals]) -> dict[str, dict[str, float]]:
    """Half widths (logarithms) that hold four of five residuals, and what novelty adds to them."""

    def widths(residuals: Residuals) -> dict[str, float]:
        found: dict[str, list[float]] = {}
        for (i, m), r in residuals.items():
            p = fit.points[i]
            for kind in (p.group.split()[1], "any"):
                found.setdefault(f"{metric_of(p, m)} {kind}", []).append(abs(r))
        return {g: float(np.quantile(v, 0.8)) for g, v in found.items()}

    known = widths(inside)
    made = {g: {"known": round(max(w, 0.05), 3)} for g, w in known.items()}
    for of, residuals in out.items():
        for g, w in widths(residuals).items():
            made[g][of] = round(float(np.sqrt(max(0.0, w**2 - known[g] ** 2))), 3)
    for g in made:
        made[g]["engine"] = made[g].get("model", 0.3)
    return made


def main() -> None:
    parse = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parse.add_argument("data", type=Path)
    parse.add_argument("out", type=Path, nargs="?")
    parse.add_argument("--configs", type=Path)
    parse.add_argument("--rounds", type=int, default=10)
    given = parse.parse_args()
    points = read(given.data, given.configs or given.data.parent / "model-configs")
    fit = Fit(points)
    every = list(range(len(points)))
    effects = fit.run(every, np.zeros(len(fit.columns)), given.rounds, verbose=True)
    lin = fit.linear(effects, every)
    print(len(fit.columns), "effects")
    inside = dict(zip(lin.keys, map(float, lin.r), strict=True))
    print("in sample")
    summary(fit, inside)
    out = {}
    for of in ("gpu", "model"):
        print(f"leaving one {of} out")
        out[of] = left_out(fit, lin, of)
        summary(fit, out[of])
    if given.out:
        made = table(fit, effects) | {
            "bands": bands(fit, inside, out),
            "measured": measured(points),
            "provenance": PROVENANCE,
        }
        given.out.write_text(json.dumps(made, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
