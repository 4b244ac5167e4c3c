"""Random draws that are the same on every platform.

``random.Random`` gives the same uniform numbers everywhere, but ``math.log`` and ``math.exp`` differ in
the last bit from one C library to the next. Those here use only operations that IEEE 754 fixes.
"""

from __future__ import annotations

from math import factorial, frexp, ldexp, sqrt
from random import Random

_LN2 = 0.6931471805599453
_SQRT_HALF = 0.7071067811865476
_A3, _A5, _A7, _A9, _A11, _A13, _A15, _A17, _A19 = (1.0 / step for step in range(3, 21, 2))
_E2, _E3, _E4, _E5, _E6, _E7, _E8, _E9, _E10, _E11, _E12, _E13 = (
    1.0 / factorial(step) for step in range(2, 14)
)


def log(x: float) -> float:
    """The natural logarithm of ``x`` > 0, to some 15 digits (the series of 2 artanh)."""
    mantissa, exponent = frexp(x)
    if mantissa < _SQRT_HALF:
        mantissa, exponent = mantissa * 2.0, exponent - 1
    z = (mantissa - 1.0) / (mantissa + 1.0)
    s = z * z
    series = _A13 + s * (_A15 + s * (_A17 + s * _A19))
    series = 1.0 + s * (_A3 + s * (_A5 + s * (_A7 + s * (_A9 + s * (_A11 + s * series)))))
    return exponent * _LN2 + 2.0 * z * series


def exp(x: float) -> float:
    """e to the ``x``, to some 15 digits (Taylor's series of what is left of whole powers of two)."""
    power = int(x / _LN2 + (0.5 if x > 0 else -0.5))
    r = x - power * _LN2
    series = _E8 + r * (_E9 + r * (_E10 + r * (_E11 + r * (_E12 + r * _E13))))
    series = _E3 + r * (_E4 + r * (_E5 + r * (_E6 + r * (_E7 + r * series))))
    return ldexp(1.0 + r * (1.0 + r * (_E2 + r * series)), power)


class Draws:
    """A stream of draws, of its own for each ``name``: a change to one leaves the others as they are."""

    def __init__(self, seed: int, name: str) -> None:
        self.uniform = Random(f"{seed} {name}").random
        """A number from 0 up to 1."""
        self._spare: float | None = None

    def exponential(self) -> float:
        """A wait of mean 1."""
        return -log(1.0 - self.uniform())

    def normal(self) -> float:
        """A standard normal number (Marsaglia's polar method)."""
        if self._spare is not None:
            spare, self._spare = self._spare, None
            return spare
        while True:
            a, b = 2.0 * self.uniform() - 1.0, 2.0 * self.uniform() - 1.0
            square = a * a + b * b
            if 0.0 < square < 1.0:
                scale = sqrt(-2.0 * log(square) / square)
                self._spare = b * scale
                return a * scale

    def gamma(self, shape: float) -> float:
        """A gamma number of that ``shape`` and scale 1 (Marsaglia and Tsang, 2000)."""
        if shape < 1.0:
            u = 1.0 - self.uniform()
            return self.gamma(shape + 1.0) * exp(log(u) / shape)
        d = shape - 1.0 / 3.0
        c = 1.0 / sqrt(9.0 * d)
        while True:
            x = self.normal()
            v = 1.0 + c * x
            if v <= 0.0:
                continue
            v = v * v * v
            u = 1.0 - self.uniform()
            if log(u) < 0.5 * x * x + d - d * v + d * log(v):
                return d * v
