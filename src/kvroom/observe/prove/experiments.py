"""What a running engine is asked so that a plan of it can be judged: a seeded, recorded workload.

Four experiments: the time of a decode step at several batches and contexts; the time to the first token
of prompts unknown and known to the engine; conversations one request at a time, whose cache hits must
come out exactly; and more requests at once than the cache holds, or arriving by chance, whose preemptions
and hits must come out about so. Every prompt, answer and time is kept, with the engine's counters before
and after, so that whatever is concluded can be concluded again from the record.

Prompts are runs of consecutive token ids, no two beginning alike unless meant to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, field
from random import Random
from statistics import median
from threading import Lock
from typing import Any

from kvroom.errors import KvroomError
from kvroom.observe.prove.completions import Ask, AskedEngine, Heard
from kvroom.observe.prove.quiet import Meter, TimedSpan
from kvroom.records import dataclass
from kvroom.units import ceil_div

FIRST_ID = 10
"""Ids below stand for ends and beginnings in many vocabularies."""
STEP_TOKENS = 32
"""Answer tokens of a request whose steps are timed."""
COUNTERS = ("queries", "hits", "preemptions")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStep:
    """Decode steps of ``concurrency`` requests of ``context_tokens`` (the middle of those timed): the
    median over ``spans`` of their seconds a step, and of seconds by the clock."""

    concurrency: int
    context_tokens: int
    step_s: float
    wall_s: float
    disturbed: float | None
    spans: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredFirstToken:
    """One request by itself: the tokens of its prompt, those that the engine found in its cache, and
    seconds to its only token, undisturbed and by the clock."""

    input_tokens: int
    cached_tokens: int
    ttft_s: float
    wall_s: float
    disturbed: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRequest:
    """One request of a workload: prompt as runs (first id, count), its answer, seconds."""

    at_s: float
    prompt: tuple[tuple[int, int], ...]
    answer: tuple[int, ...]
    ttft_s: float
    e2e_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredWorkload:
    """A workload as it was served, and how far the engine's counters rose over it."""

    name: str
    one_by_one: bool
    requests: tuple[MeasuredRequest, ...]
    counters: dict[str, int]
    disturbed: float | None


@dataclass(kw_only=True)
class Measurements:
    """All that one engine was asked."""

    steps: list[MeasuredStep] = field(default_factory=list)
    firsts: list[MeasuredFirstToken] = field(default_factory=list)
    workloads: list[MeasuredWorkload] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "steps": [asdict(step) for step in self.steps],
            "firsts": [asdict(first) for first in self.firsts],
            "workloads": [asdict(workload) for workload in self.workloads],
        }

    @classmethod
    def from_dict(cls, value: Any) -> Measurements:
        """What ``to_dict`` gave; KvroomError where it is something else."""
        try:
            measurements = cls(
                steps=[MeasuredStep(**s) for s in value["steps"]],
                firsts=[MeasuredFirstToken(**f) for f in value["firsts"]],
                workloads=[_workload(w) for w in value["workloads"]],
            )
            measurements.check()
            return measurements
        except (KeyError, TypeError, ValueError):
            fix = "Give a file that kvroom prove --record wrote."
            raise KvroomError("record", None, "is no record of experiments", fix) from None

    def check(self) -> None:
        """ValueError or TypeError where something cannot have been measured."""
        for step in self.steps:
            _within(1, step.concurrency, step.context_tokens, step.spans)
            _within(SHORTEST_S, step.step_s, step.wall_s)
        for first in self.firsts:
            _within(1, first.input_tokens)
            _within(0, first.cached_tokens)
            _within(SHORTEST_S, first.ttft_s, first.wall_s)
        of_all: list[MeasuredStep | MeasuredFirstToken | MeasuredWorkload] = [
            *self.steps,
            *self.firsts,
            *self.workloads,
        ]
        for m in of_all:
            _within(0, m.disturbed or 0)
        for workload in self.workloads:
            if not isinstance(workload.name, str):
                raise TypeError
            _within(1, len(workload.requests))
            _within(0, *(workload.counters[name] for name in COUNTERS))
            for request in workload.requests:
                _within(1, len(request.answer), sum(n for _, n in request.prompt))
                _within(
                    0, request.at_s, *request.answer, *(x for run in request.prompt for x in run)
                )
                _within(SHORTEST_S, request.ttft_s, request.e2e_s)


SHORTEST_S = 1e-9
MOST = 10**8
"""No number of a record is larger: seconds, tokens, ids."""


def _within(least: float, *values: float) -> None:
    if not all(least <= value <= MOST for value in values):
        raise ValueError


def _workload(value: dict[str, Any]) -> MeasuredWorkload:
    requests = tuple(
        MeasuredRequest(
            **{
                **r,
                "prompt": tuple((int(a), int(n)) for a, n in r["prompt"]),
                "answer": tuple(map(int, r["answer"])),
            }
        )
        for r in value["requests"]
    )
    return MeasuredWorkload(**{**value, "requests": requests})


class Lab:
    """Asks one engine; ``vocabulary`` is the number of token ids of its model."""

    def __init__(self, engine: AskedEngine, meter: Meter, vocabulary: int, seed: int = 0) -> None:
        self.engine = engine
        self.meter = meter
        self._random = Random(seed)
        self._ids = vocabulary - FIRST_ID
        self._begun: set[int] = set()

    def fresh(self, tokens: int) -> tuple[tuple[int, int], ...]:
        """A prompt that begins like none before it."""
        if len(self._begun) >= self._ids // 2:
            fix = "Take a model of a larger vocabulary, or ask for less."
            raise KvroomError("model", self._ids, "has too few token ids for this", fix)
        while (first := self._random.randrange(self._ids)) in self._begun:
            pass
        self._begun.add(first)
        runs: list[tuple[int, int]] = []
        while tokens:
            count = min(tokens, self._ids - first)
            runs.append((FIRST_ID + first, count))
            tokens, first = tokens - count, 0
        return tuple(runs)

    def warm(self) -> None:
        """One request that nothing is measured of: an engine's first takes longer."""
        _fine(self.engine.one_by_one([Ask(ids(self.fresh(32)), 4)]))

    def steps(
        self, batches: Sequence[int], contexts: Sequence[int], most_tokens: int, repeats: int = 3
    ) -> list[MeasuredStep]:
        """Decode steps at every batch and context that hold at most ``most_tokens`` together.

        The prompts of a shorter context begin those of a longer, so each token is computed about once.
        Of ``repeats`` the less disturbed half counts.
        """
        prompts = [ids(self.fresh(max(contexts))) for _ in range(max(batches))]
        steps: list[MeasuredStep] = []
        for context in contexts:
            for batch in batches:
                if batch * context > most_tokens:
                    continue
                asks = [Ask(prompt[:context], STEP_TOKENS) for prompt in prompts[:batch]]
                spans = [s for s in (self._step(asks) for _ in range(repeats)) if s is not None]
                if spans:
                    spans.sort(key=lambda s: s[0].disturbed or 0.0)
                    steps.append(_step(batch, context, spans[: ceil_div(len(spans), 2)]))
        return steps

    def _step(self, asks: Sequence[Ask]) -> tuple[TimedSpan, float, float] | None:
        """(The span, steps in it, tokens answered at its middle) while all of ``asks`` decode."""
        lock = Lock()
        counts = [0] * len(asks)
        seen: list[tuple[TimedSpan, float, float]] = []
        start: list[float] = []

        def on_tokens(i: int, count: int) -> None:
            with lock:
                counts[i] = count
                mean = sum(counts) / len(counts)
                if not start and min(counts) >= 2:
                    start.append(mean)
                    self.meter.begin()
                elif start and not seen and max(counts) >= STEP_TOKENS - 1:
                    seen.append((self.meter.end(), mean - start[0], (mean + start[0]) / 2))

        _fine(self.engine.together(asks, on_tokens))
        return seen[0] if seen and seen[0][1] >= STEP_TOKENS / 4 else None

    def firsts(self, lengths: Sequence[int]) -> list[MeasuredFirstToken]:
        """The first token of prompts of ``lengths``, asked anew and asked again."""
        firsts: list[MeasuredFirstToken] = []
        for tokens in lengths:
            prompt = ids(self.fresh(tokens))
            for _ in range(2):
                before = self.counters()
                self.meter.begin()
                (heard,) = self.engine.one_by_one([Ask(prompt, 1)])
                span = self.meter.end()
                _fine([heard])
                # Between sending and hearing, what others took of the whole span.
                share = span.seconds / span.wall_s
                firsts.append(
                    MeasuredFirstToken(
                        input_tokens=tokens,
                        cached_tokens=self.counters()["hits"] - before["hits"],
                        ttft_s=heard.ttft_s * share,
                        wall_s=heard.ttft_s,
                        disturbed=span.disturbed,
                    )
                )
        return firsts

    def conversations(
        self, name: str, *, users: int, turns: int, system_tokens: int, most_tokens: int
    ) -> MeasuredWorkload:
        """``users`` of one system prompt who take turns, one request at a time; each turn holds all that
        was said before. Lengths are drawn so that the last turn has at most ``most_tokens``."""
        system = self.fresh(system_tokens)
        said = [system] * users
        each = (most_tokens - system_tokens) // turns
        asks: list[tuple[tuple[tuple[int, int], ...], int]] = []

        def serve() -> list[Heard]:
            heard: list[Heard] = []
            for _ in range(turns):
                for user in self._random.sample(range(users), users):
                    answer = self._random.randint(2, max(3, each // 4))
                    asked = self._random.randint(each // 4, each - answer)
                    prompt = said[user] + self.fresh(asked)
                    (one,) = self.engine.one_by_one([Ask(ids(prompt), answer)])
                    _fine([one])
                    said[user] = prompt + tuple((i, 1) for i in one.answer)
                    asks.append((prompt, answer))
                    heard.append(one)
            return heard

        return self._workload(name, serve, asks, one_by_one=True)

    def arrivals(
        self,
        name: str,
        *,
        requests: int,
        gap_s: float,
        input_tokens: int,
        output_tokens: int,
        shared_tokens: int = 0,
    ) -> MeasuredWorkload:
        """``requests`` that arrive ``gap_s`` apart on average, by chance (0: all at once). Prompts are
        up to half longer or shorter than ``input_tokens``, answers likewise; all begin with the same
        ``shared_tokens``."""
        shared = self.fresh(shared_tokens) if shared_tokens else ()
        asks: list[tuple[tuple[tuple[int, int], ...], int]] = []
        made: list[Ask] = []
        at = 0.0
        for _ in range(requests):
            own = max(1, self._about(input_tokens) - shared_tokens)
            prompt = shared + self.fresh(own)
            answer = self._about(output_tokens)
            asks.append((prompt, answer))
            made.append(Ask(ids(prompt), answer, at))
            at += self._random.expovariate(1 / gap_s) if gap_s else 0.0
        return self._workload(name, lambda: self.engine.together(made), asks, one_by_one=False)

    def _about(self, tokens: int) -> int:
        return max(1, round(tokens * self._random.uniform(0.5, 1.5)))

    def _workload(
        self,
        name: str,
        serve: Any,
        asks: list[tuple[tuple[tuple[int, int], ...], int]],
        *,
        one_by_one: bool,
    ) -> MeasuredWorkload:
        before = self.counters()
        self.meter.begin()
        heard: list[Heard] = serve()
        span = self.meter.end()
        _fine(heard)
        after = self.counters()
        return MeasuredWorkload(
            name=name,
            one_by_one=one_by_one,
            requests=tuple(
                MeasuredRequest(
                    at_s=h.sent_s,
                    prompt=prompt,
                    answer=tuple(h.answer),
                    ttft_s=h.ttft_s,
                    e2e_s=h.tokens_s[-1] - h.sent_s,
                )
                for (prompt, _), h in zip(asks, heard, strict=True)
            ),
            counters={counter: after[counter] - before[counter] for counter in COUNTERS},
            disturbed=span.disturbed,
        )

    def counters(self) -> dict[str, int]:
        """The engine's counters of cache hits and preemptions (tokens, tokens, times)."""
        counters = self.engine.reading().counters
        return {counter: round(counters.get(counter, 0.0)) for counter in COUNTERS}


def ids(runs: Sequence[tuple[int, int]]) -> list[int]:
    """The token ids of runs."""
    return [index for first, count in runs for index in range(first, first + count)]


def _step(batch: int, context: int, spans: list[tuple[TimedSpan, float, float]]) -> MeasuredStep:
    shares = [s.disturbed for s, _, _ in spans if s.disturbed is not None]
    return MeasuredStep(
        concurrency=batch,
        context_tokens=context + round(median(middle for _, _, middle in spans)),
        step_s=median(s.seconds / count for s, count, _ in spans),
        wall_s=median(s.wall_s / count for s, count, _ in spans),
        disturbed=median(shares) if shares else None,
        spans=len(spans),
    )


def _fine(heard: Sequence[Heard]) -> None:
    """KvroomError where a request failed: what it measured would be something else."""
    failed = [h.error for h in heard if h.error]
    if failed:
        why = f"did not answer {len(failed)} of {len(heard)} requests: {failed[0]}"
        fix = "Look at the engine's log; it must take prompts of token ids at /v1/completions."
        raise KvroomError("URL", None, why, fix)
