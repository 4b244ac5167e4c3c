"""What a simulation tells: each request's steps and hits, and the totals."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from kvroom.engines.scheduler import Pass, RuleSet


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


@dataclass(slots=True)
class Played:
    """A whole run: ``total_steps`` passes that scheduled tokens, totals, one record a request."""

    requests: list[RequestRecord]
    totals: Totals = field(default_factory=Totals)
    total_steps: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as ``kvroom simulate --script --json`` prints them."""
        rows = [asdict(record) for record in self.requests]
        return {"total_steps": self.total_steps, "totals": asdict(self.totals), "requests": rows}

    def scheduled(self, made: Pass, rules: RuleSet) -> None:
        """Note what a pass decided."""
        totals, requests = self.totals, self.requests
        for sequence, cached, resumed in made.admitted:
            record = requests[sequence.index]
            record.cached_tokens_all += cached
            totals.cached_tokens_all += cached
            if not resumed:
                record.first_scheduled_step = made.step
                record.cached_tokens_first = cached
                totals.cached_tokens_first += cached
        for sequence in made.preempted:
            requests[sequence.index].preemptions += 1
        totals.preemptions += len(made.preempted)
        for sequence in made.dropped:
            self.drop(sequence.index)
        if made.work:
            self.total_steps += 1
            totals.scheduled_tokens += made.tokens
            totals.peak_blocks_in_use = max(totals.peak_blocks_in_use, rules.blocks_in_use)
            totals.peak_running = max(totals.peak_running, rules.running_count)
            totals.peak_waiting = max(totals.peak_waiting, rules.waiting_count)

    def drop(self, index: int) -> None:
        """Note that a request can never be served."""
        self.requests[index].dropped = True
        self.totals.dropped += 1

    def delivered(self, done: Pass, finished: list[int]) -> None:
        """Note the output of a pass, and which requests it finished."""
        for sequence, _, samples, _ in done.work:
            record = self.requests[sequence.index]
            if samples and record.first_token_step is None:
                record.first_token_step = done.step
        for index in finished:
            self.requests[index].finish_step = done.step
        self.totals.completed += len(finished)
