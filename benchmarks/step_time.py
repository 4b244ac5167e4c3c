"""How far the times are off: ``python benchmarks/step_time.py DATA [--configs DIR]``.

Prints, by tier, kind of model and metric, the error of the package's own table on DATA and how many
measurements its bands hold; then the errors on a GPU and on a model left out, each fitted anew without it.
Needs numpy.
"""

from __future__ import annotations

import numpy as np
from fitting import Fit, Residuals

from kvroom.timing.calibration import shipped


def show(title: str, fit: Fit, residuals: Residuals, novel: str | None = None) -> None:
    """Median and ninetieth percentile of the error, and the share inside the package's bands."""
    from calibrate_times import metric_of

    bands = shipped()["bands"]
    groups: dict[str, list[tuple[float, bool]]] = {}
    for (i, m), r in residuals.items():
        p = fit.points[i]
        band = bands[f"{metric_of(p, m)} {p.group.split()[1]}"]
        width = np.hypot(band["known"], band[novel] if novel else 0.0)
        inside = abs(r) <= width
        for g in (f"{p.group} {m}", f"{p.row['tier']} all {m}"):
            groups.setdefault(g, []).append((abs(float(np.expm1(r))), inside))
    print(title)
    for g, found in sorted(groups.items()):
        errors, held = zip(*found, strict=True)
        print(
            f"    {g:22s} n {len(found):5d}  median {100 * np.median(errors):5.1f} %"
            f"  p90 {100 * np.quantile(errors, 0.9):6.1f} %  in band {100 * np.mean(held):3.0f} %"
        )


def main() -> None:
    from calibrate_times import LEFT_OUT, arguments, fitted, left_out
    from measured import read

    given = arguments(__doc__)
    points = read(given.data, given.configs)
    fit, _, lin = fitted(points)
    show("in sample", fit, dict(zip(lin.keys, map(float, lin.r), strict=True)))
    for of, kind in LEFT_OUT.items():
        show(f"one {of} left out", fit, left_out(fit, lin, of), kind)


if __name__ == "__main__":
    main()
