"""What the Python calls give beyond a Plan: a simulation, a trace's reuse, a comparison, as values that turn
to plain dicts, to flat rows and data frames, and to a report in one HTML file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvroom.answer import report
from kvroom.answer.plan import Plan
from kvroom.latency.clock import PS_PER_S
from kvroom.planner.simulate import Simulated
from kvroom.simulator.live import Live
from kvroom.simulator.reuse import Reuse
from kvroom.units import show_gib
from kvroom.workloads.requests import Request
from kvroom.workloads.traces.reader import Trace

TIMES = {"ttft_s": "to the first token", "tpot_s": "a token after it", "e2e_s": "whole request"}


def request_row(live: Live, end_ps: int | None) -> dict[str, Any]:
    """What is told of one request; ``end_ps`` is None where it was dropped. Times are seconds."""
    tokens = live.total - live.prompt
    first = live.first_ps if live.first_ps >= 0 else None
    return {
        "request": live.index,
        "arrival_s": live.arrival_ps / PS_PER_S,
        "input_tokens": live.prompt,
        "output_tokens": 0 if end_ps is None else tokens,
        "cached_tokens": live.cached_tokens,
        "ttft_s": None if first is None else (first - live.arrival_ps) / PS_PER_S,
        "tpot_s": (end_ps - first) / (tokens - 1) / PS_PER_S
        if end_ps is not None and first is not None and tokens > 1
        else None,
        "e2e_s": None if end_ps is None else (end_ps - live.arrival_ps) / PS_PER_S,
        "preemptions": live.preemptions,
        "status": "dropped" if end_ps is None else "completed",
    }


def _counted(n: int, what: str) -> str:
    return f"{n:,} {what}{'s' if n != 1 else ''}"


def read_notes(read: Iterable[Request] | None) -> Iterator[str]:
    """What is to be said of a trace that was read."""
    if not isinstance(read, Trace):
        return
    if read.counts.skipped_lines:
        reasons = "; ".join(read.counts.reasons)
        yield f"{_counted(read.counts.skipped_lines, 'bad line')} skipped ({reasons})"
    if read.counts.unordered:
        yield f"{_counted(read.counts.unordered, 'request')} came out of order, now sorted"


def reuse_notes(found: Reuse, source: Iterable[Request] | None) -> Iterator[str]:
    """What is to be said of the requests that ``found`` is of."""
    refs = found.refs
    read = source if isinstance(source, Trace) else None
    if refs.unknown_requests:
        yield (
            f"{refs.unknown_requests:,} of {len(refs.ends):,} requests say nothing of what they hold:"
            " they hit and fill nothing"
        )
    if read is not None and read.hash_tokens and refs.block_tokens != read.hash_tokens:
        yield (
            f"an id stands for {read.hash_tokens} tokens and a block for {refs.block_tokens}:"
            " what is shared within an id is not seen"
        )
    if read is not None and read.counts.unordered:
        yield f"{read.counts.unordered:,} requests come out of order; taken in file order"
    if read is not None and read.counts.skipped_lines:
        reasons = "; ".join(read.counts.reasons)
        yield f"{_counted(read.counts.skipped_lines, 'bad line')} skipped ({reasons})"


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """What happened to the requests of a simulation.

    ``figures`` are those of ``kvroom simulate --json`` (``ttft_s``, ``tpot_s``, ``prefix_hit_ratio`` …);
    ``requests`` a row each, in the order in which they ended (none where they were not to be kept).
    """

    made: Simulated
    figures: Mapping[str, Any]
    requests: Sequence[Mapping[str, Any]]

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
            for m in self.made.line
        ]

    def to_frame(self) -> Any:
        """The rows as a data frame of polars or pandas; ImportError where neither is installed."""
        return report.frame(self.rows())

    def to_html(self) -> str:
        """A report as one self-contained HTML file."""
        f = self.figures
        n, blocks = f["requests"], f["kv_blocks"]
        said = (
            f"{n['completed']:,} of {n['arrived']:,} requests are answered in {f['duration_s']:,.1f} s, "
            f"{f['output_tokens_per_s']:,.0f} tokens a second; {blocks['peak']:,} of "
            f"{blocks['total']:,} blocks are held at most; {f['prefix_hit_ratio']:.1%} of the prompts' "
            f"tokens are found cached; {f['preemptions']:,} times a request loses its blocks."
        )
        times = [{"what": name, **f[key]} for key, name in TIMES.items()]
        columns = [report.Column(title="seconds", key="what")]
        columns += [
            report.Column(title=at, key=at, number=True, decimals=4)
            for at in ("mean", "p50", "p90", "p95", "p99", "max")
        ]
        line = self.line()
        parts = [report.paragraph(said), report.heading("Times"), report.table(columns, times)]
        for key in ("running", "waiting", "blocks"):
            points = [(row["time_s"], row[key]) for row in line]
            parts += [
                report.heading(f"{key} over seconds"),
                report.curve(points, f"{key} over time"),
            ]
        parts += [report.paragraph(f"Note: {w}.", soft=True) for w in f["warnings"]]
        return report.page("What happens to the requests", parts)


@dataclass(frozen=True, kw_only=True)
class Reused:
    """What the prefixes of a trace allow a cache (``reuse``), and what was met while reading it."""

    reuse: Reuse
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values (CONTRACT: reuse)."""
        return {**self.reuse.to_dict(), "warnings": list(self.warnings)}

    def rows(self) -> list[dict[str, Any]]:
        """A flat row a policy and cache size: blocks, tokens, hits over references."""
        size = self.reuse.refs.block_tokens
        return [
            {"policy": policy, "blocks": int(n), "tokens": int(n) * size, "hit_ratio": ratio}
            for policy, by_size in self.reuse.hit_ratio.items()
            for n, ratio in by_size.items()
        ]

    def to_frame(self) -> Any:
        """The rows as a data frame of polars or pandas; ImportError where neither is installed."""
        return report.frame(self.rows())

    def to_html(self) -> str:
        """A report as one self-contained HTML file."""
        refs, best = self.reuse.refs, self.reuse.infinite
        said = (
            f"{len(refs.ends):,} requests refer {len(refs.blocks):,} times to {refs.unique_blocks:,} blocks "
            f"of {refs.block_tokens:,} tokens; a cache without limit hits {best.hit_blocks:,} of them, "
            f"{self.reuse.token_hit_ratio:.1%} of all prompt tokens."
        )
        columns = [
            report.Column(title="policy", key="policy"),
            report.Column(title="blocks", key="blocks", number=True),
            report.Column(title="tokens", key="tokens", number=True),
            report.Column(title="hit ratio", key="hit_ratio", number=True, decimals=4),
        ]
        parts = [report.paragraph(said), report.heading("Hit ratio of LRU caches by blocks")]
        parts += [report.curve(self.reuse.curve(64), "Hit ratio of LRU caches by blocks")]
        parts += [report.heading("By policy and size"), report.table(columns, self.rows())]
        parts += [report.paragraph(f"Note: {w}.", soft=True) for w in self.warnings]
        return report.page("What a prefix cache would hold", parts)


FIGURES: Mapping[str, Callable[[Plan], Any]] = {
    "fits": lambda p: p.verdict.fits,
    "requests": lambda p: p.capacity.ceiling.requests if p.capacity.ceiling else None,
    "engine_requests": lambda p: p.capacity.engine.max_concurrency if p.capacity.engine else None,
    "expected_requests": lambda p: p.capacity.expected.requests,
    "shared_requests": lambda p: p.capacity.shared.requests,
    "weights_bytes": lambda p: p.weights.bytes,
    "kv_bytes": lambda p: p.memory.kv_bytes,
    "kv_bytes_per_token": lambda p: p.kv.bytes_per_token,
    "step_s": lambda p: p.step.seconds,
    "tpot_s": lambda p: p.serving.tpot_s,
    "ttft_s": lambda p: p.serving.ttft_s,
    "output_tokens_per_s": lambda p: p.serving.output_tokens_per_s,
    "usd_per_hour": lambda p: p.cost.usd_per_hour,
    "usd_per_million_output_tokens": lambda p: p.cost.usd_per_million_output_tokens,
}
"""The figures of a Plan that a comparison tells, by the names of its columns."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Plans side by side."""

    plans: tuple[Plan, ...]

    def differences(self) -> list[str]:
        """The keys that were asked differently."""
        asked = [p.scenario.to_dict() for p in self.plans]
        return [key for key in asked[0] if any(a[key] != asked[0][key] for a in asked)]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values (CONTRACT: compare)."""
        return {"plans": [p.to_dict() for p in self.plans]}

    def rows(self) -> list[dict[str, Any]]:
        """A flat row a Plan: what was asked differently, then its figures (``*_bytes``, ``*_s`` seconds)."""
        keys = self.differences()
        made = []
        for p in self.plans:
            asked = p.scenario.to_dict()
            told = {k: asked[k] if _flat(asked[k]) else str(asked[k]) for k in keys}
            made.append(told | {name: figure(p) for name, figure in FIGURES.items()})
        return made

    def to_frame(self) -> Any:
        """The rows as a data frame of polars or pandas; ImportError where neither is installed."""
        return report.frame(self.rows())

    def to_html(self) -> str:
        """A report as one self-contained HTML file."""
        told = [{k: _shown(k, v) for k, v in row.items()} for row in self.rows()]
        columns = [report.Column(title=key.replace("_", " "), key=key) for key in told[0]]
        parts = [report.table(columns, told)]
        parts += [
            report.paragraph(f"{i}: {p.verdict.sentence}") for i, p in enumerate(self.plans, 1)
        ]
        return report.page("Plans side by side", parts)


def _flat(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def _shown(key: str, value: Any) -> Any:
    if key.endswith("_bytes") and isinstance(value, int):
        return show_gib(value)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return report.number(value, 4) if number else value
