"""What came of a simulation: times by request, gaps between tokens by run, counts and a time line."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate
from operator import mul
from typing import NamedTuple

from kvroom.kvcache.request import ServedRequest

BINS = 65536
"""How finely runs of gaps are told apart before they are counted one by one."""


NUMBERS = 5 * 4096
"""Numbers of runs that are packed at once."""


class Gaps:
    """Gaps between tokens, kept as runs of steps.

    A run is ``steps`` gaps of ``first``, ``first + slope``, … picoseconds, each had by ``weight`` requests.
    ``add`` takes one as (first, slope, steps, weight, how long it lasts); every few thousand of them want
    ``settle``.
    """

    __slots__ = ("_fresh", "add", "first", "slope", "steps", "total_ps", "weight")

    def __init__(self) -> None:
        self.first = array("q")
        self.slope = array("q")
        self.steps = array("q")
        self.weight = array("q")
        self.total_ps = 0
        self._fresh: list[int] = []
        self.add = self._fresh.extend

    def settle(self, least: int = 1) -> None:
        """Put runs that were added lately, if they are so many numbers, into the columns, where they take
        less memory; ``total_ps`` is that of the columns."""
        if len(self._fresh) >= least:
            first, slope, steps, weight, spent = (self._fresh[number::5] for number in range(5))
            self.total_ps += sum(map(mul, spent, weight))
            self.first += array("q", first)
            self.slope += array("q", slope)
            self.steps += array("q", steps)
            self.weight += array("q", weight)
            self._fresh.clear()

    @property
    def count(self) -> int:
        """How many gaps there are."""
        self.settle()
        return sum(map(mul, self.steps, self.weight))

    def ranked(self, ranks: Sequence[int]) -> list[int]:
        """The gaps that are the ``ranks``-th smallest (from 1), exactly.

        Runs are told apart by their first gap, in narrow bins. No run grows by more than ``most``, so a
        rank's gap lies at most that far above the bin that its rank falls into.
        """
        self.settle()
        if not self.first:
            return []
        most = max(map(mul, self.slope, self.steps))
        low, high = min(self.first), max(self.first)
        width = max(1, (high - low + most) // BINS)
        places = [(first - low) // width for first in self.first]
        bins = [0] * ((high - low) // width + 1)
        for place, gaps in zip(places, map(mul, self.steps, self.weight), strict=True):
            bins[place] += gaps
        upto = list(accumulate(bins))
        reach = most // width + 1
        places_of = [bisect_left(upto, rank) for rank in ranks]
        around = {
            one_place
            for place in places_of
            for one_place in range(place - reach, place + reach + 1)
        }
        near = [index for index, place in enumerate(places) if place in around]
        ranked: list[int] = []
        for rank, place in zip(ranks, places_of, strict=True):
            start = place - reach
            within = [i for i in near if start <= places[i] <= place + reach]
            below = upto[start - 1] if start > 0 else 0
            least = low + place * width
            ranked.append(self._ranked(rank - below, within, least, least + width - 1 + most))
        return ranked

    def _ranked(self, rank: int, near: Sequence[int], low: int, high: int) -> int:
        """The ``rank``-th smallest gap of the runs ``near``, known to lie from ``low`` to ``high``."""
        runs = [(self.first[i], self.slope[i], self.steps[i], self.weight[i]) for i in near]
        while low < high:
            middle = (low + high) // 2
            count = 0
            for first, slope, steps, weight in runs:
                if first <= middle:
                    within = min(steps, (middle - first) // slope + 1) if slope else steps
                    count += within * weight
            low, high = (low, middle) if count >= rank else (middle + 1, high)
        return low


class RequestLimits(NamedTuple):
    """What a good request keeps to, picoseconds: to its first token, a token after it, in all."""

    ttft_ps: float
    tpot_ps: float
    e2e_ps: float


class Outcome:
    """What engines report while they serve.

    Times are the engine's; a client sees each first token ``outside_ps`` later. The first ``warmup``
    requests are no part of the steady state: their times are kept in ``warm`` too, to be left out.
    """

    __slots__ = (
        "cached_tokens",
        "count_from",
        "drafted_tokens",
        "dropped",
        "e2e_ps",
        "gained_tokens",
        "gaps",
        "good",
        "last_ps",
        "limits",
        "on_over",
        "output_tokens",
        "outside_ps",
        "passage_ps",
        "preempted",
        "prompt_tokens",
        "tpot_ps",
        "ttft_ps",
        "verifying",
        "warm",
        "warmup",
    )

    def __init__(
        self,
        *,
        limits: RequestLimits | None = None,
        on_over: Callable[[ServedRequest, int | None], None] | None = None,
        passage_ps: Callable[[ServedRequest], int] | None = None,
        outside_ps: int = 0,
        warmup: int = 0,
    ) -> None:
        self.outside_ps = outside_ps
        self.warmup = warmup
        self.count_from = 0
        """Prompt tokens, and which of them are found cached, are counted from this request on."""
        self.warm: dict[str, list[float]] = {"ttft": [], "tpot": [], "e2e": []}
        self.gaps = Gaps()
        self.ttft_ps = array("q")
        self.e2e_ps = array("q")
        self.tpot_ps = array("d")
        self.limits = limits
        self.on_over = on_over
        self.passage_ps = (
            passage_ps  # of a request: what a prompt takes beyond its step, in a pipeline
        )
        self.preempted = 0
        self.dropped = 0
        self.good = 0
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.output_tokens = 0
        self.verifying = 0  # steps of a request that checked drafts
        self.drafted_tokens = 0
        self.gained_tokens = 0  # in those steps
        self.last_ps = 0

    def verified(self, drafts: int, gained: int) -> None:
        """A step checked so many drafts of a request, and gave it so many tokens."""
        self.verifying += 1
        self.drafted_tokens += drafts
        self.gained_tokens += gained

    def admitted(self, request: ServedRequest, cached_tokens: int) -> None:
        """A request's first tokens are scheduled, so many of its prompt found cached."""
        if not request.seen:
            request.seen = True
            request.num_cached_tokens = cached_tokens
            if request.index < self.count_from:
                return
            self.prompt_tokens += request.num_prompt_tokens
            self.cached_tokens += cached_tokens

    def first(self, request: ServedRequest) -> None:
        """A request got its first token."""
        if self.passage_ps:
            request.pipeline_ps = self.passage_ps(request)
            request.first_token_ps += request.pipeline_ps
        request.outside_ps = self.outside_ps
        spent = request.first_token_ps - request.arrival
        self.ttft_ps.append(spent)
        if request.index < self.warmup:
            self.warm["ttft"].append(spent)

    def done(self, request: ServedRequest, end: int) -> None:
        """A request got its last token at ``end``."""
        end += request.pipeline_ps
        spent = end - request.arrival
        self.e2e_ps.append(spent)
        tokens = request.final_tokens - request.num_prompt_tokens
        self.output_tokens += tokens
        tpot = 0.0
        if tokens > 1:
            tpot = (end - request.first_token_ps) / (tokens - 1)
            self.tpot_ps.append(tpot)
        if request.index < self.warmup:
            self.warm["e2e"].append(spent)
            if tokens > 1:
                self.warm["tpot"].append(tpot)
        limits = self.limits
        if limits is None or (
            request.first_token_ps - request.arrival + self.outside_ps <= limits.ttft_ps
            and tpot <= limits.tpot_ps
            and spent + self.outside_ps <= limits.e2e_ps
        ):
            self.good += 1
        if end > self.last_ps:  # noqa: PLR1730 (a call costs more)
            self.last_ps = end
        if self.on_over:
            self.on_over(request, end)

    def drop(self, request: ServedRequest, now: int) -> None:
        """A request can never be served."""
        self.dropped += 1
        self.last_ps = max(self.last_ps, now)
        if self.on_over:
            self.on_over(request, None)
