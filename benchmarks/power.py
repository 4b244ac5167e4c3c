"""Fit what cards draw to measured watts: ``python benchmarks/power.py DATA [--write]``.

DATA is a folder of measurements (``measured.py``), of which those with watts are taken. Shares of the power
limit are fitted by relative least squares to the parts of a step's time that the package's own table gives;
the errors printed are in sample and of each card by the others. ``--write`` keeps the result in the table.
Needs numpy.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from measured import Point, read

from kvroom.latency import calibration, load, power

OUT = Path(calibration.__file__).with_name("calibration.json")
NAMES = ("idle", "memory", "compute", "links")


def parts_of(p: Point) -> tuple[float, ...]:
    """What the watts are a sum of: one, and the parts of a step's time."""
    assert p.load is not None
    clock = p.clock(calibration.coefficients(p.levels, calibration.shipped()))
    return 1.0, *power.under_load(clock, p.load, load.served(clock, p.load))


def shares(parts: Any, drawn: Any) -> Any:
    """The coefficients that fit relatively."""
    return np.linalg.lstsq(parts / drawn[:, None], np.ones(len(drawn)), rcond=None)[0]


def main() -> None:
    parse = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parse.add_argument("data", type=Path)
    parse.add_argument("--configs", type=Path)
    parse.add_argument("--write", action="store_true")
    args = parse.parse_args()
    points = [
        p
        for p in read(args.data, args.configs or args.data / "model-configs")
        if p.row["measured"].get("power_w_per_gpu") and p.load and p.deployment.device.tdp_w
    ]
    parts = np.array([parts_of(p) for p in points])
    drawn = np.array(
        [p.row["measured"]["power_w_per_gpu"] / (p.deployment.device.tdp_w or 1) for p in points]
    )
    k = shares(parts, drawn)
    print(f"{len(points)} rows", dict(zip(NAMES, k.round(3), strict=True)))
    out = np.empty(len(points))
    for gpu in sorted({p.gpu for p in points}):
        own = np.array([p.gpu == gpu for p in points])
        other = shares(parts[~own], drawn[~own])
        out[own] = np.log(np.clip(parts[own] @ other, 0.1, 1.0) / drawn[own])
        inside = np.clip(parts[own] @ k, 0.1, 1.0) / drawn[own]
        print(
            f"  {gpu:12s} n {own.sum():4d}  in sample {np.median(np.abs(inside - 1)):.3f}"
            f"  by the others {np.median(np.abs(np.expm1(out[own]))):.3f}"
            f"  bias {np.exp(np.median(out[own])):.2f}"
        )
    band = float(np.quantile(np.abs(out), 0.8))
    print(f"  band {band:.3f}")
    if args.write:
        table = json.loads(OUT.read_text("utf-8"))
        table["power"] = {n: round(float(v), 3) for n, v in zip(NAMES, k, strict=True)} | {
            "band": round(band, 3)
        }
        OUT.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n", "utf-8")


if __name__ == "__main__":
    main()
