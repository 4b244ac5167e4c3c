"""What a card draws while it serves, as a share of its power limit.

Reading memory, computing and waiting for links draw each their share of the limit beside what a card draws
that waits, so the mean is the sum of these weighted by the time that a step spends on each. Where a step
waits for launches and the host, little is drawn. The shares are fitted to ML.ENERGY's and InferenceX's
measured watts (``benchmarks/power.py``); the band is that of four in five of their rows, each card's
predicted from the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, hypot, log
from typing import Any

from kvroom.latency.load import Load, Times
from kvroom.latency.step_time import Clock, Terms
from kvroom.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """Shares of a card's power limit: least, usual, most (four times of five)."""

    low: float
    share: float
    high: float

    def widened(self, low_s: float, seconds: float, high_s: float) -> tuple[float, float, float]:
        """The factors on an energy that is ``share`` of the limit for ``seconds``, whose band is
        ``low_s`` to ``high_s``: both are off for reasons of their own."""
        less = hypot(log(self.share / self.low), log(seconds / low_s))
        more = hypot(log(self.high / self.share), log(high_s / seconds))
        return self.share * exp(-less), self.share, self.share * exp(more)


def parts_of(terms: Terms, prompts_s: float = 0.0) -> tuple[float, float, float]:
    """The shares of a step's time that go to memory, to arithmetic (``prompts_s`` of prompts beside the
    decode step of ``terms``) and to links."""
    whole = terms.seconds + prompts_s
    memory = terms.weights_s + terms.cache_s
    return memory / whole, (terms.compute_s + prompts_s) / whole, terms.links_s / whole


def draw(parts: tuple[float, float, float], table: Mapping[str, Any]) -> Draw:
    """What a card draws whose time goes to these parts; never more than its limit."""
    k: Mapping[str, float] = table["power"]
    memory, compute, links = parts
    share = k["idle"] + k["memory"] * memory + k["compute"] * compute + k["links"] * links
    share = min(1.0, share)
    return Draw(low=share * exp(-k["band"]), share=share, high=min(1.0, share * exp(k["band"])))


def under_load(clock: Clock, load: Load, times: Times) -> tuple[float, float, float]:
    """Those parts where ``times`` are those of ``load``, of one replica."""
    tokens = load.input_tokens + load.output_tokens // 2
    decoding = times.decoding / load.replicas
    step = clock.at(decoding / clock.work.layout.dp)
    return parts_of(
        step.decode(decoding, step.decoding(tokens)), times.prompts_a_step * times.prompt_s
    )
