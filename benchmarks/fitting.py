"""Fitting the coefficients of a step to measurements (numpy).

Logarithms of coefficients are sums of effects of levels; each effect is drawn towards what is known
beforehand (mostly nothing: zero) as strongly as its spread is narrow, so what few rows show moves
little. Residuals are logarithms of predicted over measured, with a Student-t loss: a run that something
unstated slowed or sped up bends nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from measured import Point

from kvroom.latency.calibration import NAMES, kind_of_level
from kvroom.latency.step_time import Coefficients

Residuals = dict[tuple[int, str], float]
Spreads = Mapping[str, Sequence[tuple[str, float]]]

STEP = 1e-3
FREEDOM = 4.0
CHORDS = 3
LONGEST = 1.0
"""No effect moves further in a round: the model is linear only nearby."""


@dataclass(frozen=True)
class Beliefs:
    """What is known before: overall values and their spreads, the spread of each kind of level's
    effects, effects known from elsewhere, and how far measurements scatter whatever the model."""

    start: Coefficients
    overall: Mapping[str, float]
    effects: Spreads
    known: Mapping[str, Mapping[str, float]]
    floor: Mapping[str, float]


@dataclass
class Linear:
    """A linearised problem: residuals ``r`` at effects ``at`` and their slopes ``j``."""

    keys: list[tuple[int, str]]
    at: Any
    r: Any
    j: Any
    groups: Any
    weights: Any


class Fit:
    """The points' design, and the effects that fit them."""

    def __init__(self, points: Sequence[Point], beliefs: Beliefs) -> None:
        self.points, self.beliefs = points, beliefs
        self.columns: list[tuple[str, str]] = [("", n) for n in NAMES]
        spread = [beliefs.overall[n] for n in NAMES]
        mean = [0.0] * len(NAMES)
        for level in dict.fromkeys(x for p in points for x in p.levels):
            for name, sd in beliefs.effects.get(kind_of_level(level), ()):
                self.columns.append((level, name))
                spread.append(sd)
                mean.append(beliefs.known.get(level, {}).get(name, 0.0))
        self.spread, self.mean = np.array(spread), np.array(mean)
        index = {c: i for i, c in enumerate(self.columns)}
        self.design = [
            [
                np.array([index["", n], *(index[x, n] for x in p.levels if (x, n) in index)])
                for n in NAMES
            ]
            for p in points
        ]

    def coefficients(self, i: int, effects: Any) -> Coefficients:
        start = self.beliefs.start
        return Coefficients(
            **{
                n: getattr(start, n) * float(np.exp(effects[js].sum()))
                for n, js in zip(NAMES, self.design[i], strict=True)
            }
        )

    def residuals(self, effects: Any, only: Sequence[int]) -> Residuals:
        return {
            (i, m): float(np.log(v / self.points[i].measured[m]))
            for i in only
            for m, v in self.points[i].predict(self.coefficients(i, effects)).items()
        }

    def linear(self, effects: Any, only: Sequence[int]) -> Linear:
        """The residuals of ``only`` and their derivatives by effect, at ``effects``."""
        keys, r, rows = [], [], []
        for i in only:
            p, k = self.points[i], self.coefficients(i, effects)
            base, still = p.predict(k), p.idle()
            moved = [
                None if n in still else p.predict(replace(k, **{n: getattr(k, n) * (1 + STEP)}))
                for n in NAMES
            ]
            for m, v in base.items():
                keys.append((i, m))
                r.append(np.log(v / p.measured[m]))
                row = np.zeros(len(self.columns))
                for x, js in zip(moved, self.design[i], strict=True):
                    if x is not None:
                        row[js] += np.log(x[m] / v) / np.log1p(STEP)
                rows.append(row)
        return Linear(
            keys=keys,
            at=effects.copy(),
            r=np.array(r),
            j=np.array(rows),
            groups=np.array([f"{self.points[i].group} {m}" for i, m in keys]),
            weights=np.array([self.points[i].weight for i, _ in keys]),
        )

    def row_weights(self, lin: Linear, rows: Any, effects: Any) -> Any:
        r, groups = lin.r[rows] + lin.j[rows] @ (effects - lin.at), lin.groups[rows]
        scale = np.ones(len(r))
        for g in set(groups):
            here = groups == g
            spread = 1.4826 * float(np.median(np.abs(r[here])))
            scale[here] = max(self.beliefs.floor[g.split()[-1]], spread)
        return (FREEDOM + 1) / (FREEDOM + (r / scale) ** 2) / scale**2 * lin.weights[rows]

    def solve(self, lin: Linear, rows: Any, turns: int = 1) -> Any:
        """Effects that fit ``rows`` of a linearised problem, reweighted ``turns`` times."""
        moved = np.flatnonzero(lin.j[rows].any(axis=0))  # the rest stays where it is believed to be
        j, prior = lin.j[np.ix_(rows, moved)], 1 / np.square(self.spread[moved])
        effects = np.where(lin.j[rows].any(axis=0), lin.at, self.mean)
        for _ in range(turns):
            off = effects[moved] - lin.at[moved]
            r = lin.r[rows] + j @ off
            w = self.row_weights(lin, rows, effects)
            a = (j * w[:, None]).T @ j + np.diag(prior)
            pull = prior * (effects[moved] - self.mean[moved])
            step = np.linalg.solve(a, -(j.T @ (w * r) + pull))
            step *= min(1.0, LONGEST / max(1e-9, float(np.abs(step).max())))
            effects[moved] += step
        return effects

    def run(
        self, only: Sequence[int], effects: Any, rounds: int, *, chords: int = 0, say: bool = False
    ) -> Any:
        """Effects that fit ``only``, from ``effects`` on; ``chords`` times a round the slopes of its
        beginning serve again, for slopes cost twenty times what residuals do."""
        for turn in range(rounds):
            lin = self.linear(effects, only)
            rows = np.arange(len(lin.keys))
            new = self.solve(lin, rows)
            for _ in range(chords):
                r = np.array(list(self.residuals(new, only).values()))
                new = self.solve(replace(lin, at=new, r=r), rows)
            moved = float(np.abs(new - effects).max())
            if say:
                median = float(np.median(np.abs(lin.r)))
                print(f"  round {turn}: median {median:.4f}, moved {moved:.3f}", flush=True)
            effects = new
            if moved < 0.02:
                break
        return effects

    def left_out(
        self, lin: Linear, names: Sequence[str], *, refit: float, rounds: int
    ) -> Residuals:
        """Residuals of every point under the effects that points of another name give.

        Near the optimum leaving a group out moves the effects by a known step (the Woodbury
        identity); groups larger than ``refit`` of all points are fitted anew, in ``rounds``.
        """
        w = self.row_weights(lin, slice(None), lin.at)
        prior = np.diag(1 / np.square(self.spread))
        inverse = np.linalg.inv((lin.j * w[:, None]).T @ lin.j + prior)
        of_row = np.array([names[i] for i, _ in lin.keys])
        made: Residuals = {}
        for name in dict.fromkeys(names):
            held = [i for i, n in enumerate(names) if n == name]
            rows = np.flatnonzero(of_row == name)
            if len(held) > refit * len(names):
                effects = self.solve(lin, np.flatnonzero(of_row != name), turns=2)
                rest = [i for i, n in enumerate(names) if n != name]
                effects = self.run(rest, effects, rounds, chords=CHORDS)
            else:
                jg = lin.j[rows]
                gain = inverse @ (jg.T * w[rows])
                effects = lin.at + gain @ np.linalg.solve(
                    np.eye(len(rows)) - jg @ gain, lin.r[rows]
                )
            made |= self.residuals(effects, held)
        return made
