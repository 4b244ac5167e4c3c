"""How far the times are off: ``python benchmarks/step_time.py DATA [--configs DIR]``.

Prints, by tier, kind of model and metric, the error of the package's own table on DATA and how many
measurements its bands hold; then the errors on a GPU, a model and a setting left out, each fitted anew
without it, also GPU by GPU and model by model.
Needs numpy.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from fitting import Fit, Residuals

from kvroom.latency.calibration import shipped

EACH = ("gpu", "model")
LEAST_ROWS = 8
"""Cards and models with fewer rows get no line of their own."""


def show(
    title: str,
    fit: Fit,
    residuals: Residuals,
    bands: Mapping[str, Mapping[str, float]],
    novel: tuple[str, str] | None = None,
) -> None:
    """Median and ninetieth percentile of the error, and the share inside the package's ``bands``.

    ``novel``: what was left out of the fit, as a point and as a band call it; each one of it then has a
    line as well.
    """
    from calibrate_times import metric_of

    groups: dict[str, list[tuple[float, bool]]] = {}
    for (i, m), r in residuals.items():
        p = fit.points[i]
        band = bands[f"{metric_of(p, m)} {p.group.split()[1]}"]
        width = np.hypot(band["known"], band[novel[1]] if novel else 0.0)
        keys = [f"{p.group} {m}", f"{p.row['tier']} all {m}"]
        if novel and novel[0] in EACH:
            keys.append(f"{getattr(p, novel[0])}: {p.row['tier']} {m}")
        for g in keys:
            groups.setdefault(g, []).append((abs(float(np.expm1(r))), bool(abs(r) <= width)))
    print(title)
    for g, found in sorted(groups.items()):
        errors, held = zip(*found, strict=True)
        if ":" in g and len(found) < LEAST_ROWS:
            continue
        print(
            f"    {g:44s} n {len(found):5d}  median {100 * np.median(errors):5.1f} %"
            f"  p90 {100 * np.quantile(errors, 0.9):6.1f} %  in band {100 * np.mean(held):3.0f} %",
            flush=True,
        )


def main() -> None:
    from calibrate_times import LEFT_OUT, arguments, fitted, left_out
    from measured import read

    given = arguments(__doc__)
    points = read(given.data, given.configs)
    fit, _, lin = fitted(points)
    bands = shipped()["bands"]
    show("in sample", fit, dict(zip(lin.keys, map(float, lin.r), strict=True)), bands)
    for of, kind in LEFT_OUT.items():
        show(f"one {of} left out", fit, left_out(fit, lin, of), bands, (of, kind))


if __name__ == "__main__":
    main()
