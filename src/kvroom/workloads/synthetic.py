"""Made-up workloads from one line: ``arrivals=poisson:2/s,input=lognormal:mean=1000:sigma=0.8,…``.

A workload is sessions: chats of so many turns, each turn of so many model calls where an agent uses
tools. A later prompt is everything said before and something new, so it shares its predecessors' cache.
A session comes when ``arrivals`` says; within it the next request comes its think time after the answer
to the one before, whenever that is. Same seed, same requests, on every platform.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from kvroom.errors import KvroomError, did_you_mean
from kvroom.records import dataclass
from kvroom.scenario.values import check_keys
from kvroom.scenario.workload import Workload, spec_text
from kvroom.units import check_float, check_int, number, parse_tokens
from kvroom.workloads.distributions import (
    Distribution,
    Fixed,
    pairs,
    parse_length,
    parse_time,
)
from kvroom.workloads.draws import Draws
from kvroom.workloads.requests import PS_PER_S, Request, TokenRuns

MAX_REQUESTS = 10**9
MAX_TURNS = 10**5
CLOSED_LOOP_SPREAD = (0.8, 1.2)
"""Lengths over their mean where only the mean is told."""
EXAMPLE = "arrivals=poisson:2/s,input=lognormal:mean=1000:sigma=0.8,output=200,requests=1000"
KEYS = Workload.SPEC_KEYS
DRAWS = 256
"""Requests that stand for a workload whose lengths differ."""
PS_PER_NS = 10**3


@dataclass(frozen=True, slots=True)
class Arrivals:
    """When sessions come.

    ``poisson`` and ``uniform`` at ``rate_per_s``; ``gamma`` with coefficient of variation ``cv``;
    ``burst``: ``size`` at once, the bursts as a Poisson process; ``closed``: ``users`` at a time, the next
    when one ends; ``once``: all at the start.
    """

    kind: str
    rate_per_s: float = 0.0
    cv: float = 1.0
    size: int = 1
    users: int = 0

    def times_ps(self, draws: Draws) -> Iterator[int]:
        """The arrivals, without end; whole nanoseconds apart. A closed loop's are all 0."""
        now = 0
        while True:
            for _ in range(self.size):
                yield now
            now += self._gap_ns(draws) * PS_PER_NS

    def _gap_ns(self, draws: Draws) -> int:
        if not self.rate_per_s:
            return 0
        mean = 1e9 * self.size / self.rate_per_s
        if self.kind == "uniform":
            return int(mean + 0.5)
        if self.kind == "gamma":
            shape = 1.0 / (self.cv * self.cv)
            return int(mean / shape * draws.gamma(shape) + 0.5)
        return int(mean * draws.exponential() + 0.5)


@dataclass(frozen=True, slots=True)
class SharedPrefix:
    """``groups`` system prompts of ``tokens`` tokens; each session begins with one of them."""

    groups: int = 1
    tokens: int = 0


TOGETHER, SPREAD = "together", "spread"
Session = tuple[Request, ...]
ONE, AT_ONCE, NO_PREFIX, RESULT_TOKENS = Fixed(1), Fixed(0), SharedPrefix(), Fixed(500)


@dataclass(frozen=True, kw_only=True)
class Synthetic:
    """A made-up workload: ``sessions()`` for who can wait for answers, ``iter`` for who cannot.

    ``input`` is what a turn's user adds, on top of the shared prefix and all that was said before.
    ``agent`` is how many model calls a turn takes; between them a tool runs for ``tool`` seconds and
    adds ``result`` tokens. ``requests`` counts calls. Users of a closed loop ``start`` all together, or
    spread: what a client sees of a start together is in the mean of its first tokens.
    """

    arrivals: Arrivals
    input: Distribution
    output: Distribution
    prefix: SharedPrefix = NO_PREFIX
    turns: Distribution = ONE
    think: Distribution = AT_ONCE
    agent: Distribution = ONE
    tool: Distribution = AT_ONCE
    result: Distribution = RESULT_TOKENS
    start: str = TOGETHER
    requests: int = 1000
    seed: int = 0

    def lengths(self) -> Iterable[tuple[int, int]]:
        """(prompt, answer) tokens of the requests that stand for all: one where all are alike."""
        varied = [self.input, self.output, self.turns, self.agent]
        alike = all(isinstance(each, Fixed) for each in varied)
        if alike and self.turns.mean == self.agent.mean == 1:
            return [(self.prefix.tokens + round(self.input.mean), round(self.output.mean))]
        # Session by session: by arrival all first turns, which are short, would come first.
        each = (r for session in self.sessions() for r in session)
        return ((r.input_tokens, r.output_tokens) for r in islice(each, DRAWS))

    def sessions(self) -> Iterator[Session]:
        """The sessions by arrival, ``requests`` requests in all.

        ``arrival_ps`` of a later request is the earliest it can be: answers taken as immediate.
        """
        left, number = self.requests, 0
        times = self.arrivals.times_ps(Draws(self.seed, "arrivals"))
        draws = {name: Draws(self.seed, name) for name in KEYS}
        first = self.prefix.groups * self.prefix.tokens
        while left:
            session = self._session(next(times), number, first, left, draws)
            last = session[-1]
            yield session
            left -= len(session)
            number += 1
            first += last.input_tokens + last.output_tokens - self.prefix.tokens

    def _session(
        self, arrival: int, number: int, first: int, most: int, draws: Mapping[str, Draws]
    ) -> Session:
        """One session, its own tokens numbered from ``first``, of at most ``most`` requests."""
        shared = self.prefix.tokens
        head: tuple[tuple[int, int], ...] = ()
        if shared:
            head = ((int(draws["prefix"].uniform() * self.prefix.groups) * shared, shared),)
        made: list[Request] = []
        said = think = 0
        turns = _whole(self.turns, draws["turns"])
        name = number if turns > 1 or self.agent != ONE else None
        for turn in range(turns):
            calls = _whole(self.agent, draws["agent"])
            for call in range(calls):
                if len(made) == most:
                    return tuple(made)
                if call:
                    think = _ps(self.tool, draws["tool"])
                elif turn:
                    think = _ps(self.think, draws["think"])
                added = ("result", self.result) if call else ("input", self.input)
                said += _whole(added[1], draws[added[0]])
                answer = _whole(self.output, draws["output"])
                runs = TokenRuns((*head, (first, said)), ((first + said, answer),))
                arrival += think
                made.append(Request(arrival, shared + said, answer, runs, name, 0, think))
                said += answer
        return tuple(made)

    def __iter__(self) -> Iterator[Request]:
        """All requests by their earliest arrival."""
        waiting: list[tuple[int, int, Request]] = []
        order = 0
        for session in self.sessions():
            arrival = session[0].arrival_ps
            while waiting and waiting[0][0] <= arrival:
                yield heapq.heappop(waiting)[2]
            yield session[0]
            for request in session[1:]:
                order += 1
                heapq.heappush(waiting, (request.arrival_ps, order, request))
        while waiting:
            yield heapq.heappop(waiting)[2]


def _whole(distribution: Distribution, draws: Draws) -> int:
    return int(distribution.draw(draws) + 0.5) or 1


def _ps(distribution: Distribution, draws: Draws) -> int:
    return int(distribution.draw(draws) * 1e9 + 0.5) * (PS_PER_S // 10**9)


def _count(field: str, text: str) -> int:
    value = number(field, text, "Write a whole number.")
    return check_int(field, value, low=1, high=MAX_REQUESTS)


def _seed(field: str, text: str) -> int:
    try:
        return check_int(field, int(text), low=0, high=2**63)
    except ValueError:
        raise KvroomError(field, text, "is no seed", "Write a whole number, 0 or more.") from None


def _counts(field: str, text: str) -> Distribution:
    """A distribution of counts, written like one of lengths."""
    if text.isdecimal() and len(text) <= 12:
        check_int(field, int(text), low=1, high=MAX_TURNS)
    found = parse_length(field, text)
    check_float(field, found.mean, low=1.0, high=float(MAX_TURNS))
    return found


_RATED = {
    "poisson": "poisson:2/s",
    "uniform": "uniform:2/s",
    "gamma": "gamma:2/s:cv=3",
    "burst": "burst:2/s:size=20",
}
_UNRATED = {"closed": "closed:32", "once": "once"}
_RATES = {"s": 1.0, "min": 60.0, "h": 3600.0}


def parse_rate(field: str, text: str) -> float:
    """``2/s``, ``120/min``, ``7200/h`` or plain requests per second."""
    digits, slash, unit = text.partition("/")
    if slash and unit not in _RATES:
        raise KvroomError(field, text, "has an unknown unit", "Write 2/s, 120/min or 7200/h.")
    rate = number(field, digits, "Write 2/s, 120/min or 7200/h.") / _RATES.get(unit, 1.0)
    return check_float(field, rate, low=1e-6, high=1e6, unit="requests per second")


def parse_arrivals(field: str, text: str) -> Arrivals:
    """The process of a text such as ``poisson:2/s``, ``gamma:2/s:cv=3``, ``closed:32``."""
    kind, *parts = text.split(":")
    examples = _RATED | _UNRATED
    if kind not in examples:
        otherwise = f"Write one of {', '.join(examples.values())}."
        raise KvroomError(
            field, kind, "is no known arrival process", did_you_mean(kind, examples, otherwise)
        )
    example = examples[kind]
    if kind == "once" and not parts:
        return Arrivals(kind)
    if not parts or kind == "once":
        raise KvroomError(field, text, "is not complete", f"Write it like {example}.")
    if kind == "closed":
        if len(parts) > 1:
            raise KvroomError(field, text, "takes one value", f"Write it like {example}.")
        return Arrivals(kind, users=_count(field, parts[0]))
    more = {"gamma": ("cv",), "burst": ("size",)}.get(kind, ())
    given = pairs(field, parts[1:], more, example)
    rate = parse_rate(field, parts[0])
    if kind == "gamma":
        cv = number(field, given.get("cv", "2"), f"Write it like {example}.")
        return Arrivals(kind, rate, cv=check_float(f"{field} cv", cv, low=0.01, high=100.0))
    if kind == "burst":
        return Arrivals(kind, rate, size=_count(field, given.get("size", "10")))
    return Arrivals(kind, rate)


def parse_prefix(field: str, text: str) -> SharedPrefix:
    """``shared:4x512`` (4 system prompts of 512 tokens), ``shared:512``, or ``none``."""
    if text == "none":
        return SharedPrefix()
    kind, _, rest = text.partition(":")
    groups, times, tokens = rest.partition("x")
    if kind != "shared" or not rest:
        raise KvroomError(field, text, "is no shared prefix", "Write it like shared:4x512.")
    if not times:
        groups, tokens = "1", rest
    return SharedPrefix(_count(field, groups), parse_tokens(field, tokens))


def parse_start(field: str, text: str) -> str:
    """How the users of a closed loop begin."""
    if text not in (TOGETHER, SPREAD):
        fix = did_you_mean(text, (TOGETHER, SPREAD), f"Write {TOGETHER} or {SPREAD}.")
        raise KvroomError(field, text, "is no way to start", fix)
    return text


_PARSERS: dict[str, Callable[[str, str], Any]] = {
    "arrivals": parse_arrivals,
    "input": parse_length,
    "output": parse_length,
    "prefix": parse_prefix,
    "turns": _counts,
    "think": parse_time,
    "agent": _counts,
    "tool": parse_time,
    "result": parse_length,
    "start": parse_start,
    "requests": _count,
    "seed": _seed,
}


def parse(spec: str | Mapping[str, Any], field: str = "workload") -> Synthetic:
    """The workload of a SPEC line or of the same keys as an object; KvroomError names the key."""
    given = split_spec(spec, field) if isinstance(spec, str) else dict(spec)
    check_keys(field, given, KEYS)
    for key in ("arrivals", "input", "output"):
        if given.get(key) is None:
            raise KvroomError(f"{field}.{key}", None, "is missing", f"Write it like {EXAMPLE}.")
    parsed = {
        key: _PARSERS[key](f"{field}.{key}", spec_text(f"{field}.{key}", value))
        for key, value in given.items()
        if value is not None
    }
    return Synthetic(**parsed)


def split_spec(spec: str, field: str = "workload") -> dict[str, str]:
    """The keys of a SPEC line with their values as written; KvroomError where a part is no key=value."""
    found: dict[str, str] = {}
    for part in spec.split(","):
        key, equals, value = part.partition("=")
        key = key.strip()
        if not equals or not value.strip():
            raise KvroomError(field, part, "is no key=value", f"Write it like {EXAMPLE}.")
        if key in found:
            raise KvroomError(field, key, "is said twice", "Write each key once.")
        found[key] = value.strip()
    return found


def of_workload(workload: Workload, seed: int | None = None) -> Synthetic:
    """The workload that a Scenario describes: its SPEC keys, else lengths, rate and concurrency."""
    if workload.requests_per_s is not None and workload.arrivals is not None:
        fix = "Give --rate, or the workload's arrivals."
        rate = workload.requests_per_s
        raise KvroomError("--rate", rate, "is not the only load that is asked for", fix)
    given = {key: getattr(workload, key) for key in KEYS if getattr(workload, key) is not None}
    plain = {
        "input": _plain_lengths(workload, workload.input_tokens),
        "output": _plain_lengths(workload, workload.output_tokens),
        "arrivals": _plain_arrivals(workload),
        "prefix": f"shared:{workload.shared_prefix_tokens}"
        if workload.shared_prefix_tokens
        else None,
        "seed": seed,
    }
    lengths = workload.lengths or {}
    given = {key: value for key, value in (plain | lengths).items() if value is not None} | given
    return parse(given if seed is None else given | {"seed": seed})


def spreads(workload: Workload) -> bool:
    """Whether lengths of which only the mean is told are drawn round it."""
    closed = workload.concurrency is not None or str(workload.arrivals).startswith("closed")
    plain = (workload.input is None and workload.input_tokens is not None) or (
        workload.output is None and workload.output_tokens is not None
    )
    return closed and plain and not workload.static and workload.lengths is None


def _plain_lengths(workload: Workload, tokens: int | None) -> str | int | None:
    """Lengths of which only the mean is told: in a closed loop from 0.8 to 1.2 of it, as benchmarks draw
    them, since users of one length would all keep step."""
    if tokens is None or not spreads(workload):
        return tokens
    low, high = (max(1, round(factor * tokens)) for factor in CLOSED_LOOP_SPREAD)
    return f"uniform:{low}-{high}"


def decoding_tokens(workload: Workload) -> int | None:
    """Tokens that a request of ``workload`` holds on average while its answer is generated, each length
    counted as often as it takes a step; None where no lengths are stated."""
    if workload.output_tokens is None and workload.output is None and not workload.lengths:
        return None
    try:
        lengths = replace(workload, arrivals="once", concurrency=None, requests_per_s=None)
        made = of_workload(lengths)
    except KvroomError:
        return None
    steps = held = 0
    for prompt, answer in made.lengths():
        steps += answer
        held += answer * (2 * prompt + answer)
    return max(1, held // (2 * steps)) if steps else None


def _plain_arrivals(workload: Workload) -> str | None:
    if workload.static:
        return "once"
    if workload.requests_per_s is not None:
        return f"poisson:{workload.requests_per_s!r}/s"
    return f"closed:{workload.concurrency}" if workload.concurrency is not None else None
