"""Where a deployment breaks: the same requests at rising rates, or on fewer and fewer blocks.

A cliff is where p99 of the time to first token leaves the level of the easy end, or where an objective
is first missed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from kvroom.answer import charts, html
from kvroom.answer.shown import Shown, table_of
from kvroom.errors import KvroomError, did_you_mean
from kvroom.planner.plan import work
from kvroom.planner.simulate import Objective, Simulated, serve
from kvroom.records import dataclass
from kvroom.scenario.scenario import Scenario
from kvroom.simulator.timeline import Watch
from kvroom.units import check_float
from kvroom.workloads.requests import PS_PER_S, Request, placed
from kvroom.workloads.synthetic import Synthetic
from kvroom.workloads.traces.reader import Trace

KEYS = ("rate", "kv_blocks")
POINTS = 9
BREAKS = 5.0
"""p99 of the time to first token has broken where it is so many times that of the easy end."""
_EXAMPLE = "Write rate=1..20 (requests per second) or kv_blocks=2000..20000."


@dataclass(frozen=True, slots=True)
class CliffRange:
    """``key`` from ``low`` to ``high``, in equal ratios."""

    key: str
    low: float
    high: float

    @property
    def values(self) -> list[float]:
        """The points from the easy end to the hard one."""
        ratio = (self.high / self.low) ** (1 / (POINTS - 1))
        values = [self.low * ratio**index for index in range(POINTS)]
        if self.key == "kv_blocks":
            return [float(round(value)) for value in reversed(values)]
        return values


def parse_range(text: str, field: str = "--cliff") -> CliffRange:
    """``KEY=FROM..TO``; KvroomError says what is wrong."""
    key, equals, ends = (part.strip() for part in text.partition("="))
    first, dots, last = ends.partition("..")
    if not equals or not dots:
        raise KvroomError(field, text, "is no KEY=FROM..TO", _EXAMPLE)
    if key not in KEYS:
        raise KvroomError(field, key, "cannot be swept", did_you_mean(key, KEYS, _EXAMPLE))
    try:
        low, high = float(first), float(last)
    except ValueError:
        raise KvroomError(field, text, "has ends that are no numbers", _EXAMPLE) from None
    least = 2.0 if key == "kv_blocks" else 1e-9
    low, high = (check_float(f"{field} {key}", v, low=least, high=1e9) for v in (low, high))
    if low >= high:
        raise KvroomError(field, text, "ends before it begins", _EXAMPLE)
    return CliffRange(key, low, high)


class Hurried:
    """The requests of ``source`` at ``rate`` a second on average, instead of its own ``usual`` rate."""

    def __init__(self, source: Trace, usual: float, rate: float) -> None:
        self.hash_tokens = source.hash_tokens
        self._source = source
        self._factor = usual / rate

    def __iter__(self) -> Iterator[Request]:
        for request in self._source:
            yield placed(request, int(request.arrival_ps * self._factor))


def rate_of(source: Trace) -> float:
    """Requests a second of a trace."""
    count = last = 0
    for request in source:
        count += 1
        last = max(last, request.arrival_ps)
    if not last:
        fix = "Sweep kv_blocks, or give requests that come one after the other."
        raise KvroomError("--cliff", "rate", "has no meaning where all come at once", fix)
    return (count - 1) * PS_PER_S / last


@dataclass(frozen=True, slots=True)
class CliffPoint:
    """One value of the sweep and what came of it."""

    value: float
    made: Simulated
    answer: dict[str, Any]

    @property
    def p99_s(self) -> float | None:
        """p99 of the time to first token."""
        found: float | None = self.answer["ttft_s"]["p99"]
        return found

    def to_dict(self) -> dict[str, Any]:
        """The figures that matter, plain."""
        return {"value": self.value} | figures(self.answer)


def figures(answer: dict[str, Any]) -> dict[str, Any]:
    """The figures of a simulation's answer that a sweep compares."""
    a = answer
    return {
        "ttft_p50_s": a["ttft_s"]["p50"],
        "ttft_p99_s": a["ttft_s"]["p99"],
        "tpot_p99_s": a["tpot_s"]["p99"],
        "output_tokens_per_s": a["output_tokens_per_s"],
        "goodput_requests_per_s": a["goodput_requests_per_s"],
        "prefix_hit_ratio": a["prefix_hit_ratio"],
        "preemptions": a["preemptions"],
        "completed": a["requests"]["completed"],
        "dropped": a["requests"]["dropped"],
    }


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Cliff(Shown):
    """The points over a range, from the easy end on; fewer than its values where ``watch`` ended it."""

    TITLE = "Where it breaks"

    range: CliffRange
    points: tuple[CliffPoint, ...]

    @property
    def stopped(self) -> bool:
        """Whether it was ended before the last point."""
        return len(self.points) < len(self.range.values)

    @property
    def breaks_at(self) -> float | None:
        """The first value at which an objective is missed, or else p99 leaves the easy end's level."""
        easy = next((point.p99_s for point in self.points if point.p99_s), None)
        for point in self.points:
            objectives = point.answer.get("slo")
            if objectives is not None:
                if not all(each["met"] for each in objectives.values()):
                    return point.value
            elif point.p99_s is None or (easy and point.p99_s > BREAKS * easy):
                return point.value
        return None

    def summary(self) -> str:
        """Where it breaks."""
        if self.breaks_at is None:
            return "It does not break between these ends."
        return f"It breaks at {self.range.key} {self.breaks_at:,.3g}."

    def rows(self) -> list[dict[str, Any]]:
        """A flat row a point: its value, TTFT, TPOT, throughput, goodput, hits, preemptions."""
        return [point.to_dict() for point in self.points]

    def questions(self) -> Sequence[Scenario]:
        """The question that was swept."""
        return [self.points[0].made.workings.plan.scenario] if self.points else []

    def html_parts(self) -> list[str]:
        """The sentence, p99 of TTFT over the values, and every point."""
        title = f"TTFT p99 in seconds over {self.range.key}"
        points = [(p.value, p.p99_s) for p in self.points if p.p99_s is not None]
        drawn = charts.curve(points, title, labelled=True)
        return [html.paragraph(self.summary()), html.heading(title), drawn, table_of(self.rows())]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        rows = [point.to_dict() for point in self.points]
        return {"key": self.range.key, "points": rows, "breaks_at": self.breaks_at}


def cliff(
    over: CliffRange,
    scenario: Scenario,
    source: Iterable[Request],
    *,
    slo: Sequence[Objective] = (),
    watch: Watch | None = None,
    paths: bool = True,
    on_point: Callable[[CliffPoint], None] | None = None,
) -> Cliff:
    """Serve the requests at every point of the range; fewer points where ``watch`` stops it.

    ``on_point`` is told of each as it is done. Without ``paths`` models and machines are taken by name or
    value only.
    """
    usual = rate_of(source) if over.key == "rate" and isinstance(source, Trace) else 0.0
    workings = work(scenario, paths=paths)
    points: list[CliffPoint] = []
    for value in over.values:
        requests: Iterable[Request] = source
        if over.key == "kv_blocks":
            # The null block comes on top of those that can be used.
            args = {**scenario.engine_args, "num_gpu_blocks_override": int(value) + 1}
            workings = work(replace(scenario, engine_args=args), paths=paths)
        elif isinstance(source, Trace):
            requests = Hurried(source, usual, value)
        elif isinstance(source, Synthetic) and source.arrivals.rate_per_s:
            requests = replace(source, arrivals=replace(source.arrivals, rate_per_s=value))
        else:
            fix = "Give arrivals such as poisson:2/s, or sweep kv_blocks."
            raise KvroomError("--cliff", "rate", "does not fit arrivals without a rate", fix)
        simulated = serve(workings, requests, slo=tuple(slo), watch=watch)
        if simulated.fleet.stopped:
            break
        points.append(CliffPoint(value, simulated, simulated.to_dict()))
        if on_point:
            on_point(points[-1])
    return Cliff(range=over, points=tuple(points))
