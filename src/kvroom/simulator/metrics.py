"""What came of a simulation: times by request, gaps between tokens by run, counts and a time line."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, compress
from operator import mul
from tempfile import TemporaryFile
from typing import IO, NamedTuple

from kvroom.kvcache.request import ServedRequest

BINS = 65536
"""How finely runs of gaps are told apart before they are counted one by one."""


MOST = 1 << 21
"""Runs that are kept in memory (64 MiB of them)."""
NUMBERS = 5 * 4096
"""Numbers of runs that are packed at once."""


class Gaps:
    """Gaps between tokens, kept as runs of steps.

    A run is ``steps`` gaps of ``first``, ``first + slope``, … picoseconds, each had by ``weight`` requests.
    ``add`` takes one as (first, slope, steps, weight, how long it lasts); every few thousand of them want
    ``settle``. Beyond ``MOST`` runs they lie in a temporary file.
    """

    __slots__ = ("_file", "_fresh", "_laid", "add", "first", "slope", "steps", "total_ps", "weight")

    def __init__(self) -> None:
        self.first = array("q")
        self.slope = array("q")
        self.steps = array("q")
        self.weight = array("q")
        self.total_ps = 0
        self._fresh: list[int] = []
        self._file: IO[bytes] | None = None
        self._laid: list[int] = []  # runs in each piece of the file
        self.add = self._fresh.extend

    def __del__(self) -> None:
        if self._file is not None:
            self._file.close()

    def settle(self, least: int = 1) -> None:
        """Put runs that were added lately, if they are so many numbers, into the columns, where they take
        less memory; ``total_ps`` is that of the columns."""
        if len(self._fresh) >= least:
            first, slope, steps, weight, spent = (self._fresh[number::5] for number in range(5))
            self.total_ps += sum(map(mul, spent, weight))
            self.take(*(array("q", column) for column in (first, slope, steps, weight)))
            self._fresh.clear()

    def take(
        self, first: array[int], slope: array[int], steps: array[int], weight: array[int]
    ) -> None:
        """Put columns of runs behind those that are there."""
        self.first += first
        self.slope += slope
        self.steps += steps
        self.weight += weight
        if len(self.first) >= MOST:
            if self._file is None:
                self._file = TemporaryFile()  # noqa: SIM115 (it goes when this goes)
            self._file.seek(0, 2)
            for column in self._columns:
                column.tofile(self._file)
            self._laid.append(len(self.first))
            for column in self._columns:
                del column[:]

    @property
    def _columns(self) -> tuple[array[int], array[int], array[int], array[int]]:
        return self.first, self.slope, self.steps, self.weight

    def pieces(self) -> Iterator[tuple[array[int], array[int], array[int], array[int]]]:
        """All runs, piece by piece: firsts, slopes, steps, weights."""
        self.settle()
        if self._file is not None:
            self._file.seek(0)
        for runs in self._laid:
            assert self._file is not None
            read = [array("q") for _ in range(4)]
            for column in read:
                column.fromfile(self._file, runs)
            first, slope, steps, weight = read
            yield first, slope, steps, weight
        if self.first:
            yield self._columns

    @property
    def count(self) -> int:
        """How many gaps there are."""
        return sum(sum(map(mul, steps, weight)) for _, _, steps, weight in self.pieces())

    def ranked(self, ranks: Sequence[int]) -> list[int]:
        """The gaps that are the ``ranks``-th smallest (from 1), exactly.

        Runs are told apart by their first gap, in narrow bins. No run grows by more than ``most``, so a
        rank's gap lies at most that far above the bin that its rank falls into.
        """
        ends = [
            (max(map(mul, slope, steps)), min(first), max(first))
            for first, slope, steps, _ in self.pieces()
        ]
        if not ends:
            return []
        most = max(end[0] for end in ends)
        low, high = min(end[1] for end in ends), max(end[2] for end in ends)
        width = max(1, (high - low + most) // BINS)
        bins = [0] * ((high - low) // width + 1)
        for first, _, steps, weight in self.pieces():
            for start, gaps in zip(first, map(mul, steps, weight), strict=True):
                bins[(start - low) // width] += gaps
        upto = list(accumulate(bins))
        reach = most // width + 1
        places_of = [bisect_left(upto, rank) for rank in ranks]
        around = {
            one_place
            for place in places_of
            for one_place in range(place - reach, place + reach + 1)
        }
        near = tuple(array("q") for _ in range(4))
        for piece in self.pieces():
            chosen = [(first - low) // width in around for first in piece[0]]
            for column, numbers in zip(near, piece, strict=True):
                column.extend(compress(numbers, chosen))
        ranked: list[int] = []
        for rank, place in zip(ranks, places_of, strict=True):
            start = place - reach
            least, end = low + start * width, low + (place + reach + 1) * width
            chosen = [least <= first < end for first in near[0]]
            runs = [array("q", compress(column, chosen)) for column in near]
            below = upto[start - 1] if start > 0 else 0
            least = low + place * width
            ranked.append(_ranked(rank - below, runs, least, least + width - 1 + most))
        return ranked


def _ranked(rank: int, runs: Sequence[array[int]], low: int, high: int) -> int:
    """The ``rank``-th smallest gap of ``runs`` (columns), known to lie from ``low`` to ``high``."""
    while low < high:
        middle = (low + high) // 2
        count = 0
        for first, slope, steps, weight in zip(*runs, strict=True):
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

    def done(self, request: ServedRequest, end: int) -> int | None:
        """A request got its last token at ``end``; gives when its answer is whole, for ``over``, None where
        it goes on elsewhere."""
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
        return end

    def over(self, request: ServedRequest, end: int | None) -> None:
        """A request whose answer is whole (``done``) has left its engine: nothing more happens to it."""
        if self.on_over and end is not None:
            self.on_over(request, end)

    def drop(self, request: ServedRequest, now: int) -> None:
        """A request can never be served."""
        self.dropped += 1
        self.last_ps = max(self.last_ps, now)
        if self.on_over:
            self.on_over(request, None)
