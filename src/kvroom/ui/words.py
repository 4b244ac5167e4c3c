"""Times as people say them."""

from __future__ import annotations

from typing import Any


def span(seconds: float) -> str:
    """``seconds`` with three figures and a unit that suits."""
    for unit, size, upto in (("ms", 1e-3, 1.0), ("s", 1.0, 600.0), ("min", 60.0, 7200.0)):
        if seconds < upto:
            value = seconds / size
            return f"{value:.0f} {unit}" if value >= 99.95 else f"{value:.3g} {unit}"
    return f"{seconds / 3600:,.1f} h"


def seconds(value: float | None) -> str:
    """A time as people say it."""
    if value is None:
        return "-"
    return f"{value * 1e3:.3g} ms" if value < 0.9995 else f"{value:,.{1 if value < 100 else 0}f} s"


def typical_and_p95(spread: dict[str, Any] | None) -> tuple[str, str]:
    """The median (the mean where there is no more) and the 95th percentile."""
    if spread is None:
        return "-", "-"
    if "p50" not in spread:
        return seconds(spread["mean"]), "-"
    first, second = (
        (">" if name in spread["at_least"] else "") + seconds(spread[name])
        for name in ("p50", "p95")
    )
    return first, second


def spread(told: dict[str, Any] | None) -> str:
    """Typical time and 95th percentile in words."""
    typical, p95 = typical_and_p95(told)
    return typical if p95 == "-" else f"{typical}, p95 {p95}"
