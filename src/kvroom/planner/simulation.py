"""What became of the requests of a simulation: figures, a row a request, and how things stood over time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from kvroom.answer import charts, html
from kvroom.answer.shown import Shown
from kvroom.errors import KvroomError
from kvroom.kvcache.request import ServedRequest
from kvroom.latency.clock import PS_PER_S
from kvroom.planner.plan import Workings
from kvroom.planner.simulate import (
    Objective,
    OtherScheduler,
    Simulated,
    over_seeds,
    serve,
)
from kvroom.records import dataclass
from kvroom.scenario.scenario import Scenario
from kvroom.simulator.frames import Frame
from kvroom.simulator.timeline import Watch
from kvroom.workloads.requests import Request
from kvroom.workloads.sessions import SessionPool
from kvroom.workloads.synthetic import Synthetic, spread_of, spreads
from kvroom.workloads.traces.reader import Trace

TIMES = {"ttft_s": "TTFT", "tpot_s": "TPOT", "itl_s": "ITL", "e2e_s": "end to end"}

OnEnd = Callable[[ServedRequest, int | None], None]
"""Called with each request that is done and when (ps), or dropped (None)."""


def request_row(request: ServedRequest, end_ps: int | None) -> dict[str, Any]:
    """One request as a row; ``end_ps`` is None where it was dropped. Times are seconds, those of a client
    but for ``ttft_engine_s``."""
    outside_ps = request.outside_ps
    tokens = request.output_tokens
    first = request.first_token_ps if request.first_token_ps >= 0 else None
    return {
        "request": request.index,
        "arrival_s": request.arrival / PS_PER_S,
        "input_tokens": request.num_prompt_tokens,
        "output_tokens": 0 if end_ps is None else tokens,
        "cached_tokens": request.num_cached_tokens,
        "ttft_s": None if first is None else (first - request.arrival + outside_ps) / PS_PER_S,
        "ttft_engine_s": None if first is None else (first - request.arrival) / PS_PER_S,
        "tpot_s": (end_ps - first) / (tokens - 1) / PS_PER_S
        if end_ps is not None and first is not None and tokens > 1
        else None,
        "e2e_s": None if end_ps is None else (end_ps - request.arrival + outside_ps) / PS_PER_S,
        "preemptions": request.num_preemptions,
        "status": "dropped" if end_ps is None else "completed",
    }


@dataclass(frozen=True, kw_only=True, repr=False)
class Simulation(Shown):
    """What happened to the requests of a simulation.

    ``figures`` are those of ``kvroom simulate --json`` (``ttft_s``, ``tpot_s``, ``prefix_hit_ratio`` …);
    ``requests`` a row each, in the order in which they ended (none where they were not to be kept);
    ``run`` the simulation that they are of, of several seeds the last.
    """

    TITLE = "What happens to the requests"

    run: Simulated
    figures: Mapping[str, Any]
    requests: Sequence[Mapping[str, Any]]

    @property
    def stopped(self) -> bool:
        """Whether ``watch`` ended it before all was served."""
        return self.run.fleet.stopped

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values (CONTRACT: simulate)."""
        return dict(self.figures)

    def rows(self) -> list[dict[str, Any]]:
        """A flat row a request: when it came, its tokens, what it found cached, its times."""
        return [dict(row) for row in self.requests]

    def line(self) -> list[dict[str, Any]]:
        """How things stood over time: running and waiting requests, blocks held, requests done."""
        return [
            {
                "time_s": m.time_ps / PS_PER_S,
                "running": m.running,
                "waiting": m.waiting,
                "blocks": m.blocks,
                "done": m.done,
            }
            for m in self.run.line
        ]

    def summary(self) -> str:
        """How many were answered, how fast, what the cache did."""
        figures = self.figures
        n, blocks = figures["requests"], figures["kv_blocks"]
        lost = figures["preemptions"]
        return (
            f"{n['completed']:,} of {n['arrived']:,} requests are answered in "
            f"{figures['duration_s']:,.1f} s, "
            f"{figures['output_tokens_per_s']:,.0f} tokens a second; {blocks['peak']:,} of "
            f"{blocks['total']:,} blocks are held at most; {figures['prefix_hit_ratio']:.1%} of the prompts' "
            f"tokens are found cached; {lost:,} preemption{'s' if lost != 1 else ''}."
        )

    def questions(self) -> Sequence[Scenario]:
        """The question that was played."""
        return [self.run.workings.plan.scenario]

    def _times(self) -> str:
        times = [{"what": name, **self.figures[key]} for key, name in TIMES.items()]
        columns = [html.Column(title="seconds", key="what")]
        columns += [
            html.Column(title=at, key=at, number=True, decimals=4)
            for at in ("mean", "p50", "p90", "p95", "p99", "max")
        ]
        return html.table(columns, times)

    def glance(self) -> list[str]:
        """The sentence and the times: a cell shows no row a request."""
        strong = html.element("strong", html.text(self.summary()))
        rows = html.paragraph(f"{len(self.requests):,} requests: rows(), to_frame(), to_html().")
        return [html.element("p", strong), self._times(), rows]

    def html_parts(self) -> list[str]:
        """The sentence, the times, and how things stood over time."""
        line = self.line()
        parts = [html.paragraph(self.summary()), html.heading("Times"), self._times()]
        for key in ("running", "waiting", "blocks"):
            points = [(row["time_s"], row[key]) for row in line]
            parts += [html.heading(f"{key} over seconds"), charts.curve(points, f"{key} over time")]
        return parts + [html.paragraph(f"Note: {w}.", soft=True) for w in self.figures["warnings"]]


def simulation(
    workings: Workings,
    requests: Iterable[Request],
    *,
    slo: tuple[Objective, ...] = (),
    seeds: int = 1,
    keep_requests: bool = True,
    on_end: OnEnd | None = None,
    warmup: int | None = None,
    watch: Watch | None = None,
    on_frame: Callable[[Frame], None] | None = None,
    scheduler: OtherScheduler | None = None,
    linked: bool = True,
) -> Simulation:
    """Serve ``requests``, the first ``warmup`` of which are left out of the times; without ``linked`` those
    of a trace's sessions when they were recorded. ``scheduler`` as in ``serve``.

    Over several ``seeds`` of a made-up workload the figures have ``bands``.
    """
    if seeds > 1 and not isinstance(requests, Synthetic | SessionPool):
        fix = "Give a workload in place of a trace, or --sessions N of the trace."
        raise KvroomError("--seeds", seeds, "are drawn of made-up workloads only", fix)
    rows: list[Mapping[str, Any]] = []

    def ended(request: ServedRequest, end_ps: int | None) -> None:
        if keep_requests:
            rows.append(request_row(request, end_ps))
        if on_end is not None:
            on_end(request, end_ps)

    wanted = ended if keep_requests or on_end is not None else None
    run = serve(
        workings,
        requests,
        slo=slo,
        on_over=wanted,
        watch=watch,
        tell=on_frame,
        warmup=warmup,
        scheduler=scheduler,
        linked=linked,
    )
    figures = figures_of(run, requests, linked=linked)
    if seeds > 1 and isinstance(requests, Synthetic | SessionPool):
        run, figures["bands"] = over_seeds(
            run, figures, requests, seeds, slo=slo, watch=watch, scheduler=scheduler
        )
    return Simulation(run=run, figures=figures, requests=tuple(rows))


def figures_of(run: Simulated, requests: Iterable[Request], *, linked: bool) -> dict[str, Any]:
    """The figures of a simulation that has served ``requests``, with what reading them met."""
    figures = run.to_dict()
    figures["warnings"] += [*_read_notes(requests), *_spread_notes(run.workings, requests)]
    if (
        isinstance(requests, Trace)
        and linked
        and (requests.has_sessions or requests.names_sessions)
        and not run.fleet.stopped
    ):
        left = requests.counts.requests - figures["requests"]["arrived"]
        if left > 0:
            what = f"{left:,} requests of sessions never come: one that they wait for is dropped"
            figures["warnings"].append(what)
    return figures


def _spread_notes(workings: Workings, requests: Iterable[Request]) -> Iterator[str]:
    """Whether lengths were drawn round the means that the question tells."""
    workload = workings.plan.scenario.workload
    loop = isinstance(requests, Synthetic) and requests.arrivals.users
    if loop and workload is not None and spreads(workload):
        wide = round(spread_of(workload, workings.deployment.context_tokens), 2)
        short = "" if wide == 0.2 else ", no further since requests may be no longer"
        yield (
            f"lengths are drawn from {1 - wide:g} to {1 + wide:g} of their means{short}, as benchmarks do,"
            " since users of one length would keep step"
            " (--workload input=1000,output=200 keeps to one length)"
        )


def _read_notes(requests: Iterable[Request]) -> Iterator[str]:
    """What reading a trace met."""
    if isinstance(requests, SessionPool):
        yield from requests.notes
    if isinstance(requests, Trace):
        yield from requests.counts.notes()
        unordered = requests.counts.unordered
        if unordered:
            yield f"{unordered:,} request{'s' if unordered != 1 else ''} came out of order, now sorted"
