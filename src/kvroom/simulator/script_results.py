"""What a simulation tells: each request's steps and hits, and the totals."""

from __future__ import annotations

from dataclasses import asdict, field
from typing import Any

from kvroom.answer.shown import Shown
from kvroom.engines.scheduler import EngineScheduler, SchedulerOutput
from kvroom.records import dataclass


@dataclass(slots=True)
class RequestRecord:
    """One request: steps are those that computed its tokens; None where it never came to that."""

    first_scheduled_step: int | None = None
    first_token_step: int | None = None
    finish_step: int | None = None
    cached_tokens_first: int = 0
    cached_tokens_all: int = 0
    preemptions: int = 0
    dropped: bool = False


@dataclass(slots=True)
class Totals:
    """Sums and peaks over the whole run; blocks without the null block, peaks after scheduling."""

    scheduled_tokens: int = 0
    preemptions: int = 0
    cached_tokens_first: int = 0
    cached_tokens_all: int = 0
    peak_blocks_in_use: int = 0
    peak_running: int = 0
    peak_waiting: int = 0
    completed: int = 0
    dropped: int = 0


@dataclass(slots=True, repr=False)
class ScriptResult(Shown):
    """A whole run: ``total_steps`` steps that scheduled tokens, totals, one record a request."""

    TITLE = "A script, played"

    requests: list[RequestRecord]
    totals: Totals = field(default_factory=Totals)
    total_steps: int = 0

    def summary(self) -> str:
        """Requests, steps and preemptions."""
        totals = self.totals
        return (
            f"{totals.completed:,} of {len(self.requests):,} requests completed in {self.total_steps:,} "
            f"steps, {totals.preemptions:,} preemption{'s' if totals.preemptions != 1 else ''}"
        )

    def rows(self) -> list[dict[str, Any]]:
        """A flat row a request: its steps, hits and preemptions."""
        return [{"request": index} | asdict(r) for index, r in enumerate(self.requests)]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as ``kvroom simulate --script --json`` prints them."""
        rows = [asdict(record) for record in self.requests]
        return {"total_steps": self.total_steps, "totals": asdict(self.totals), "requests": rows}

    def scheduled(self, output: SchedulerOutput, rules: EngineScheduler) -> None:
        """Note what a step decided."""
        totals, requests = self.totals, self.requests
        for request, cached, resumed in output.admitted:
            record = requests[request.index]
            record.cached_tokens_all += cached
            totals.cached_tokens_all += cached
            if not resumed:
                record.first_scheduled_step = output.step
                record.cached_tokens_first = cached
                totals.cached_tokens_first += cached
        for request in output.preempted:
            requests[request.index].preemptions += 1
        totals.preemptions += len(output.preempted)
        for request in output.dropped:
            self.drop(request.index)
        if output.scheduled:
            self.total_steps += 1
            totals.scheduled_tokens += output.tokens
            totals.peak_blocks_in_use = max(totals.peak_blocks_in_use, rules.blocks_in_use)
            totals.peak_running = max(totals.peak_running, rules.running_count)
            totals.peak_waiting = max(totals.peak_waiting, rules.waiting_count)

    def drop(self, index: int) -> None:
        """Note that a request can never be served."""
        self.requests[index].dropped = True
        self.totals.dropped += 1

    def delivered(self, output: SchedulerOutput, finished: list[int]) -> None:
        """Note the output of a step, and which requests it finished."""
        for request, _, samples, _ in output.scheduled:
            record = self.requests[request.index]
            if samples and record.first_token_step is None:
                record.first_token_step = output.step
        for index in finished:
            self.requests[index].finish_step = output.step
        self.totals.completed += len(finished)
