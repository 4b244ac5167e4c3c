"""Fitting the coefficients of a step to measurements (numpy).

Logarithms of coefficients are sums of effects of levels; each effect is drawn towards what is known
beforehand (mostly nothing: zero) as strongly as its spread is narrow, so what few rows show moves
little. Residuals are logarithms of predicted over measured, with a Student-t loss: a run that something
unstated slowed or sped up bends nothing.

Effects are many more than measurements, so a linearised problem is solved in the measurements' space:
with effects of covariance S, slopes J and scatter D, C = J·S·Jᵀ + D, and effects = mean + S·Jᵀ·C⁻¹·t for
targets t. What a group g would have been predicted without its own rows follows from the same inverse:
its residuals are (C⁻¹)_gg⁻¹·(C⁻¹·t)_g (Rasmussen and Williams, Gaussian Processes, 5.4.2).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from measured import Point

from kvroom.latency.calibration import NAMES, kind_of_level
from kvroom.latency.step_time import Coefficients

Key = tuple[int, str]
Residuals = dict[Key, float]
Spreads = Mapping[str, Sequence[tuple[str, float]]]

STEP = 1e-3
FREEDOM = 4.0
LONGEST = 1.5
"""No effect moves further in a round: the model is linear only nearby."""
SHORTER = (1.0, 0.6, 0.3, 0.1)
"""Shares of a step that are tried until one lowers the loss."""
FARTHEST = 3.0
"""Residuals beyond (20 times) weigh no less."""


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

    keys: list[Key]
    at: Any
    r: Any
    j: Any


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
        start = self.residuals(self.mean)
        self.keys = list(start)
        self.groups = np.array([f"{points[i].group} {m}" for i, m in self.keys])
        self.weights = np.array([points[i].weight for i, _ in self.keys])

    def effects_of(self, table: Mapping[str, Any]) -> Any:
        """The effects of a fitted table, as far as it holds these columns."""
        effects = np.zeros(len(self.columns))
        for j, (level, name) in enumerate(self.columns):
            if level:
                effects[j] = table["effects"].get(level, {}).get(name, 0.0)
            else:
                effects[j] = np.log(table["overall"][name] / getattr(self.beliefs.start, name))
        return effects

    def coefficients(self, i: int, effects: Any) -> Coefficients:
        start = self.beliefs.start
        return Coefficients(
            **{
                n: getattr(start, n) * float(np.exp(effects[js].sum()))
                for n, js in zip(NAMES, self.design[i], strict=True)
            }
        )

    def residuals(self, effects: Any) -> Residuals:
        """Logarithm of predicted over measured, of every point and metric."""
        return {
            (i, m): float(np.log(v / p.measured[m]))
            for i, p in enumerate(self.points)
            for m, v in p.predict(self.coefficients(i, effects)).items()
        }

    def linear(self, effects: Any) -> Linear:
        """The residuals and their derivatives by effect, at ``effects``."""
        keys: list[Key] = []
        r: list[float] = []
        j = np.zeros((len(self.keys), len(self.columns)), np.float32)
        for i, p in enumerate(self.points):
            k, still = self.coefficients(i, effects), p.idle()
            p.predict(k)  # where the fixed point of the load begins
            base = p.predict(k)
            moved = [
                None if n in still else p.predict(replace(k, **{n: getattr(k, n) * (1 + STEP)}))
                for n in NAMES
            ]
            for m, v in base.items():
                row = j[len(keys)]
                keys.append((i, m))
                r.append(np.log(v / p.measured[m]))
                for x, js in zip(moved, self.design[i], strict=True):
                    if x is not None and m in x:
                        row[js] += np.log(x[m] / v) / np.log1p(STEP)
        assert keys == self.keys
        return Linear(keys=keys, at=effects.copy(), r=np.array(r), j=j)

    def scales(self, r: Any) -> Any:
        """How far residuals of each one's group scatter (of a normal distribution's width)."""
        scale = np.ones(len(r))
        for g in set(self.groups):
            here = self.groups == g
            spread = 1.4826 * float(np.median(np.abs(r[here])))
            scale[here] = max(self.beliefs.floor[g.split()[-1]], spread)
        return scale

    def scatter(self, r: Any) -> Any:
        """The variance that each residual is taken to have: Student's t as a reweighted normal."""
        scale = self.scales(r)
        far = np.clip(r, -FARTHEST, FARTHEST) / scale
        return scale**2 * (FREEDOM + far**2) / (FREEDOM + 1) / self.weights

    def loss(self, effects: Any, scale: Any) -> float:
        """Minus twice the logarithm of the posterior, but for a constant."""
        r = np.array(list(self.residuals(effects).values()))
        t = self.weights * (FREEDOM + 1) * np.log1p((r / scale) ** 2 / FREEDOM)
        return float(t.sum() + np.sum(((effects - self.mean) / self.spread) ** 2))

    def joint(self, lin: Linear, r: Any) -> tuple[Any, Any]:
        """C, with the scatter of residuals ``r``, and the targets t."""
        wide = lin.j * self.spread.astype(np.float32)
        c = (wide @ wide.T).astype(np.float64)
        c[np.diag_indices(len(r))] += self.scatter(r)
        return c, -(lin.r + lin.j @ (self.mean - lin.at))

    def solve(self, lin: Linear) -> Any:
        """The effects that fit a linearised problem."""
        c, t = self.joint(lin, lin.r)
        return self.mean + self.spread**2 * (lin.j.T @ np.linalg.solve(c, t))

    def run(self, rounds: int, effects: Any = None) -> Any:
        """The effects that fit the points, from ``effects`` on."""
        effects = self.mean.copy() if effects is None else effects
        for turn in range(rounds):
            lin = self.linear(effects)
            scale, step = self.scales(lin.r), self.solve(lin) - effects
            step = np.clip(step, -LONGEST, LONGEST)
            before, best = self.loss(effects, scale), effects
            least = before
            for share in SHORTER:
                loss = self.loss(effects + share * step, scale)
                if loss >= least:
                    break
                least, best = loss, effects + share * step
            moved = float(np.abs(best - effects).max())
            median = float(np.median(np.abs(lin.r)))
            print(
                f"  round {turn}: median {median:.4f}, loss {before:.0f} to {least:.0f},"
                f" moved {moved:.3f}",
                flush=True,
            )
            effects = best
            if before - least < 0.003 * before:
                break
        return effects

    def left_out(self, lin: Linear, *names: Sequence[str]) -> list[Residuals]:
        """Residuals of every point under the effects that points of another name give, for each of
        ``names`` (a name a point)."""
        c, t = self.joint(lin, lin.r)
        inverse = np.linalg.inv(c)
        solved = inverse @ t
        made = []
        for each in names:
            of_row = np.array([each[i] for i, _ in self.keys])
            r = np.empty(len(t))
            for name in set(of_row):
                rows = np.flatnonzero(of_row == name)
                r[rows] = -np.linalg.solve(inverse[np.ix_(rows, rows)], solved[rows])
            made.append(dict(zip(self.keys, map(float, r), strict=True)))
        return made

    def without(self, lin: Linear, groups: Sequence[Sequence[int]]) -> Iterator[Any]:
        """The effects that fit the points but those of each of ``groups``, in turn."""
        c, t = self.joint(lin, lin.r)
        inverse = np.linalg.inv(c)
        solved = inverse @ t
        for group in groups:
            out = set(group)
            rows = np.array([n for n, (i, _) in enumerate(self.keys) if i in out])
            left = np.linalg.solve(inverse[np.ix_(rows, rows)], solved[rows])
            others = solved - inverse[:, rows] @ left
            yield self.mean + self.spread**2 * (lin.j.T @ others)
