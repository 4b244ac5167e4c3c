"""Made-up workloads from one line: ``arrivals=poisson:2/s,input=lognormal:mean=1000:sigma=0.8,…``.

A workload is sessions: chats of so many turns, each turn of so many model calls where an agent uses
tools. A later prompt is everything said before and something new, so it shares its predecessors' cache.
A session comes when ``arrivals`` says; within it the next request comes its think time after the answer
to the one before, whenever that is. A turn may fork sub-agents, whose calls run beside each other with
contexts of their own; the next call waits for all of them. A context that outgrows its limit is compacted:
what was said becomes a summary that shares nothing with it. Same seed, same requests, on every platform.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from math import ceil
from typing import Any

from kvroom.errors import KvroomError, did_you_mean
from kvroom.records import dataclass
from kvroom.scenario.values import check_keys
from kvroom.scenario.workload import Workload, spec_text, with_agents
from kvroom.units import MAX_TOKENS, check_float, check_int, number, parse_tokens
from kvroom.workloads import daily
from kvroom.workloads.distributions import (
    Distribution,
    Fixed,
    Uniform,
    pairs,
    parse_length,
    parse_time,
)
from kvroom.workloads.draws import Draws
from kvroom.workloads.requests import PS_PER_S, Request, RequestGraph, TokenRuns
from kvroom.workloads.sessions import as_graph, from_moment

MAX_REQUESTS = 10**9
MAX_TURNS = 10**5
CLOSED_LOOP_SPREAD = (0.8, 1.2)
"""Lengths over their mean where only the mean is told."""
EXAMPLE = "arrivals=poisson:2/s,input=lognormal:mean=1000:sigma=0.8,output=200,requests=1000"
KEYS = Workload.SPEC_KEYS
CLOSED_LOOP_ROUNDS = 6
"""Sessions of each user of a closed loop where their number is not asked, at least."""
MOST_UNASKED = 20_000
DRAWS = 256
"""Requests that stand for a workload whose lengths differ."""
KEPT = 32
"""Workloads whose draws are kept."""
PS_PER_NS = 10**3


@dataclass(frozen=True, slots=True)
class Arrivals:
    """When sessions come.

    ``poisson`` and ``uniform`` at ``rate_per_s``; ``gamma`` with coefficient of variation ``cv``;
    ``burst``: ``size`` at once, the bursts as a Poisson process; ``day``: a Poisson process whose rate
    follows the ``curve`` of a day, ``rate_per_s`` on average; ``closed``: ``users`` at a time, the next
    when one ends; ``once``: all at the start.
    """

    kind: str
    rate_per_s: float = 0.0
    cv: float = 1.0
    size: int = 1
    users: int = 0
    curve: daily.DailyCurve | None = None

    @property
    def busiest_per_s(self) -> float:
        """The rate at the busiest time of a day; of all others the rate."""
        return self.rate_per_s * (self.curve.busiest if self.curve else 1.0)

    def times_ps(self, draws: Draws) -> Iterator[int]:
        """The arrivals, without end; whole nanoseconds apart. A closed loop's are all 0."""
        if self.curve is not None:
            yield from self.curve.times_ps(self.rate_per_s, draws)
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


@dataclass(frozen=True, slots=True)
class Compaction:
    """A prompt that would be longer than ``tokens`` holds ``share`` of that in place of all that was said."""

    tokens: int
    share: float


TOGETHER, SPREAD = "together", "spread"
Session = tuple[Request, ...] | RequestGraph
TokenRunsPart = tuple[tuple[int, int], ...]
ONE, AT_ONCE, NO_PREFIX, RESULT_TOKENS = Fixed(1), Fixed(0), SharedPrefix(), Fixed(500)


@dataclass(frozen=True, kw_only=True)
class Synthetic:
    """A made-up workload: ``sessions()`` for who can wait for answers, ``iter`` for who cannot.

    ``input`` is what a turn's user adds, on top of the shared prefix and all that was said before.
    ``first`` takes its place in a session's first turn.
    ``agent`` is how many model calls a turn takes; between them a tool runs for ``tool`` seconds and
    adds ``result`` tokens. ``subagents`` is how many a turn forks on average, behind its first call; each
    makes as many calls as a turn. ``requests`` counts calls. Users of a closed loop ``start`` all together,
    each with its session's first turn, or spread, in the midst of their sessions: what a client sees of a
    start together is in the mean of its first tokens. ``spread`` are the lengths of which only the mean was
    asked.
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
    first: Distribution | None = None
    subagents: float = 0.0
    compact: Compaction | None = None
    start: str = TOGETHER
    requests: int = 1000
    seed: int = 0
    spread: tuple[str, ...] = ()

    @property
    def chains(self) -> bool:
        """Whether a session may have more than one request."""
        return self.turns != ONE or self.agent != ONE or self.subagents > 0

    @property
    def users(self) -> int:
        """How many there are at a time in a closed loop; 0 where they come openly."""
        return self.arrivals.users

    def at_seed(self, seed: int) -> Synthetic:
        """The same workload, drawn by another seed."""
        return replace(self, seed=seed)

    def at_once(self, users: int, requests: int, seed: int) -> Synthetic:
        """The same sessions, with so many active at a time."""
        arrivals = Arrivals("closed", users=users)
        return replace(self, arrivals=arrivals, requests=requests, seed=seed)

    def within(self, limit_tokens: int) -> Synthetic:
        """The same with lengths of which only the mean was asked spread no wider than ``limit_tokens`` allow
        a request: who asks for a mean that fits means no requests that do not."""
        if not self.spread or self.chains or self.first is not None:
            return self
        room = limit_tokens - self.prefix.tokens
        means = {name: getattr(self, name).mean for name in ("input", "output")}
        wide = {name: getattr(self, name).high - means[name] for name in self.spread}
        over = sum(means.values()) + sum(wide.values()) - room
        if over <= 0 or any(
            not isinstance(getattr(self, n), Fixed) for n in means if n not in wide
        ):
            return self
        share = max(0.0, 1 - over / sum(wide.values()))
        drawn = {name: _around(means[name], int(means[name] + share * wide[name])) for name in wide}
        lengths = {"input": self.input, "output": self.output} | drawn
        return replace(self, input=lengths["input"], output=lengths["output"], spread=())

    @property
    def midway(self) -> bool:
        """Whether the users of a closed loop start in the middle of their sessions."""
        return self.start == SPREAD and self.chains and self.arrivals.users > 0

    @property
    def calls(self) -> float:
        """Requests of a session, on average."""
        return max(1.0, self.turns.mean * self.agent.mean * (1 + self.subagents))

    def lengths(self) -> Iterable[tuple[int, int]]:
        """(prompt, answer) tokens of the requests that represent all; a single one where all are alike."""
        varied = [self.input, self.output, self.turns, self.agent]
        alike = all(isinstance(each, Fixed) for each in varied) and self.first is None
        if alike and not self.subagents and self.turns.mean == self.agent.mean == 1:
            return [(self.prefix.tokens + round(self.input.mean), round(self.output.mean))]
        return _drawn_lengths(self)

    def sessions(self) -> Iterator[Session]:
        """The sessions by arrival, ``requests`` requests in all.

        ``arrival_ps`` of a later request is the earliest it can be: answers taken as immediate.
        """
        if not self.chains:
            yield from self._single()
            return
        left, number = self.requests, 0
        times = self.arrivals.times_ps(Draws(self.seed, "arrivals"))
        draws = {name: Draws(self.seed, name) for name in (*KEYS, "compaction")}
        own = self.prefix.groups * self.prefix.tokens
        moments = Draws(self.seed, "moments")
        while left:
            made = _SessionDraw(self, next(times), number=number, own=own, most=left, draws=draws)
            session = made.session()
            if self.midway and number < self.arrivals.users:
                session = from_moment(as_graph(session), moments.uniform())
            yield session
            left -= len(session)
            number += 1
            own = made.own

    def _single(self) -> Iterator[tuple[Request]]:
        """The sessions where each is one request: what ``_SessionDraw`` makes of them, without its way."""
        added = ("input", self.input) if self.first is None else ("first", self.first)
        draw_input, inputs = added[1].draw, Draws(self.seed, added[0])
        draw_output, outputs = self.output.draw, Draws(self.seed, "output")
        shared, groups = self.prefix.tokens, self.prefix.groups
        most = MAX_TOKENS if self.compact is None else max(1, self.compact.tokens - shared)
        heads: list[TokenRunsPart] = [((group * shared, shared),) for group in range(groups)]
        group = Draws(self.seed, "prefix").uniform
        own = groups * shared
        times = self.arrivals.times_ps(Draws(self.seed, "arrivals"))
        for arrival in islice(times, self.requests):
            tokens = min(int(draw_input(inputs) + 0.5) or 1, most)
            answer = int(draw_output(outputs) + 0.5) or 1
            prompt: TokenRunsPart = ((own, tokens),)
            if shared:
                prompt = heads[int(group() * groups)] + prompt
            own += tokens + answer
            runs = TokenRuns(prompt, ((own - answer, answer),))
            yield (Request(arrival, shared + tokens, answer, runs),)

    def __iter__(self) -> Iterator[Request]:
        """All requests by their earliest arrival."""
        waiting: list[tuple[int, int, Request]] = []
        order = 0
        for session in self.sessions():
            requests = iter(session)
            first = next(requests)
            while waiting and waiting[0][0] <= first.arrival_ps:
                yield heapq.heappop(waiting)[2]
            yield first
            for request in requests:
                order += 1
                heapq.heappush(waiting, (request.arrival_ps, order, request))
        while waiting:
            yield heapq.heappop(waiting)[2]


@lru_cache(maxsize=KEPT)
def _drawn_lengths(workload: Synthetic) -> tuple[tuple[int, int], ...]:
    # Session by session: by arrival all first turns, which are short, would come first.
    each = (r for session in workload.sessions() for r in session)
    return tuple((r.input_tokens, r.output_tokens) for r in islice(each, DRAWS))


@lru_cache(maxsize=KEPT)
def drawn_sessions(workload: Synthetic) -> tuple[Session, ...]:
    """The sessions of ``workload``, kept for those who ask again: many questions have one workload."""
    return tuple(workload.sessions())


class _SessionDraw:
    """One session as it is drawn: its requests so far and what each waits for, of at most ``most`` requests.
    Its own tokens are numbered from ``own``."""

    def __init__(
        self,
        workload: Synthetic,
        arrival: int,
        *,
        number: int,
        own: int,
        most: int,
        draws: Mapping[str, Draws],
    ) -> None:
        self.made, self.arrival, self.own, self.most, self.draws = (
            workload,
            arrival,
            own,
            most,
            draws,
        )
        self.requests: list[Request] = []
        self.after: list[tuple[int, ...]] = []
        self.forked = False
        shared = workload.prefix.tokens
        self.head: TokenRunsPart = ()
        if shared:
            group = int(draws["prefix"].uniform() * workload.prefix.groups)
            self.head = ((group * shared, shared),)
        self.name = number if workload.chains else None

    def session(self) -> Session:
        """Its turns, each of so many calls."""
        made, draws = self.made, self.draws
        context = _Context(self)
        last: tuple[int, ...] = ()
        for turn in range(_whole(made.turns, draws["turns"])):
            calls = _whole(made.agent, draws["agent"])
            for call in range(calls):
                if self.full:
                    return self.done()
                think = 0
                if call:
                    think = _ps(made.tool, draws["tool"])
                elif turn:
                    think = _ps(made.think, draws["think"])
                added = ("result", made.result) if call else ("input", made.input)
                if made.first is not None and not turn and not call:
                    added = ("first", made.first)
                last = (context.ask(_whole(added[1], draws[added[0]]), last, think),)
                if not call and made.subagents:
                    last = self.fork(last)
        return self.done()

    @property
    def full(self) -> bool:
        """Whether no more requests are to come."""
        return len(self.requests) == self.most

    def fork(self, last: tuple[int, ...]) -> tuple[int, ...]:
        """The sub-agents of a turn: what the next call waits for."""
        made, draws = self.made, self.draws
        mean = made.subagents
        count = int(mean) + (draws["subagents"].uniform() < mean - int(mean))
        ends = list(last) if not count else []
        begun = self.requests[last[0]].arrival_ps
        latest = self.arrival
        for _ in range(count):
            self.arrival = begun
            context, own = _Context(self), last
            for call in range(_whole(made.agent, draws["agent"])):
                if self.full:
                    break
                added = ("result", made.result) if call else ("input", made.input)
                think = _ps(made.tool, draws["tool"]) if call else 0
                own = (context.ask(_whole(added[1], draws[added[0]]), own, think),)
            self.forked = True
            ends += own
            latest = max(latest, self.arrival)
        self.arrival = latest
        return tuple(dict.fromkeys(ends))

    def done(self) -> Session:
        """All its requests: a chain, unless it forked."""
        if self.forked:
            return RequestGraph(tuple(self.requests), tuple(self.after))
        return tuple(self.requests)


class _Context:
    """What one agent has said and heard: its tokens are runs of numbers of their own."""

    def __init__(self, session: _SessionDraw) -> None:
        self.session = session
        self.runs: list[tuple[int, int]] = []
        self.said = 0

    def ask(self, tokens: int, waits: tuple[int, ...], think_ps: int) -> int:
        """One more request, which adds ``tokens`` and waits for ``waits``: its place."""
        session = self.session
        made, compact, shared = session.made, session.made.compact, session.made.prefix.tokens
        if compact and shared + self.said + tokens > compact.tokens:
            kept = min(int(compact.share * compact.tokens), self.said)
            self.runs, self.said = [], 0
            self.add(kept)
            tokens = max(1, min(tokens, compact.tokens - shared - kept))
        self.add(tokens)
        answer = _whole(made.output, session.draws["output"])
        prompt = tuple(self.runs)
        runs = TokenRuns((*session.head, *prompt), ((session.own, answer),))
        session.arrival += think_ps
        session.requests.append(
            Request(session.arrival, shared + self.said, answer, runs, session.name, 0, think_ps)
        )
        session.after.append(waits)
        self.add(answer)
        return len(session.requests) - 1

    def add(self, tokens: int) -> None:
        """Put so many new tokens behind what was said."""
        first = self.session.own
        if not tokens:
            return
        if self.runs and sum(self.runs[-1]) == first:
            self.runs[-1] = (self.runs[-1][0], self.runs[-1][1] + tokens)
        else:
            self.runs.append((first, tokens))
        self.session.own += tokens
        self.said += tokens


def _around(mean: float, high: int) -> Distribution:
    return Uniform(2 * mean - high, high) if high > mean else Fixed(mean)


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
    length = parse_length(field, text)
    check_float(field, length.mean, low=1.0, high=float(MAX_TURNS))
    return length


_RATED = {
    "poisson": "poisson:2/s",
    "uniform": "uniform:2/s",
    "gamma": "gamma:2/s:cv=3",
    "burst": "burst:2/s:size=20",
    "day": "day:1e9/day:peak=1.6:at=15",
}
_UNRATED = {"closed": "closed:32", "once": "once"}
LEAST_PER_S, MOST_PER_S = 1e-6, 1e6
_RATES = {"s": 1.0, "min": 60.0, "h": 3600.0, "day": daily.DAY_S}


def parse_rate(field: str, text: str) -> float:
    """``2/s``, ``120/min``, ``7200/h``, ``1e6/day`` or plain requests per second."""
    digits, slash, unit = text.partition("/")
    if slash and unit not in _RATES:
        fix = "Write 2/s, 120/min, 7200/h or 1e6/day."
        raise KvroomError(field, text, "has an unknown unit", fix)
    seconds = _RATES.get(unit, 1.0)
    count = number(field, digits, "Write 2/s, 120/min or 7200/h.")
    if not LEAST_PER_S <= count / seconds <= MOST_PER_S:
        low, high = (f"{limit * seconds:.3g}/{unit or 's'}" for limit in (LEAST_PER_S, MOST_PER_S))
        fix = "Write how many come, such as 2/s, 7200/h or 1e6/day."
        raise KvroomError(field, text, f"is outside {low} to {high}", fix)
    return count / seconds


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
    more = {"gamma": ("cv",), "burst": ("size",), "day": daily.KEYS}.get(kind, ())
    given = pairs(field, parts[1:], more, example)
    rate = parse_rate(field, parts[0])
    if kind == "day" and "/" not in parts[0]:
        fix = "Write {0}/day, {0}/h or {0}/s.".format(parts[0])
        raise KvroomError(field, text, "does not say how many come in which time", fix)
    if kind == "gamma":
        cv = number(field, given.get("cv", "2"), f"Write it like {example}.")
        return Arrivals(kind, rate, cv=check_float(f"{field} cv", cv, low=0.01, high=100.0))
    if kind == "burst":
        return Arrivals(kind, rate, size=_count(field, given.get("size", "10")))
    if kind == "day":
        return Arrivals(kind, rate, curve=daily.parse_curve(field, given))
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


def parse_subagents(field: str, text: str) -> float:
    """How many sub-agents a turn forks on average: ``0.2``, ``3``."""
    return check_float(field, number(field, text, "Write such as 0.2 or 3."), low=0.0, high=1000.0)


def parse_compaction(field: str, text: str) -> Compaction | None:
    """``190K:0.2``: from which length on a context is compacted, and to what share of it; ``none``."""
    if text == "none":
        return None
    tokens, colon, share = text.partition(":")
    fix = "Write it like 190K:0.2."
    if not colon:
        raise KvroomError(field, text, "is no length and share", fix)
    limit = parse_tokens(field, tokens)
    return Compaction(
        limit, check_float(f"{field} share", number(field, share, fix), low=0, high=0.9)
    )


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
    "first": parse_length,
    "subagents": parse_subagents,
    "compact": parse_compaction,
    "start": parse_start,
    "requests": _count,
    "seed": _seed,
}


def parse(spec: str | Mapping[str, Any], field: str = "workload") -> Synthetic:
    """The workload of a SPEC line or of the same keys as an object; KvroomError names the key."""
    given = split_spec(spec, field) if isinstance(spec, str) else dict(spec)
    check_keys(field, given, Workload.KNOWN_KEYS)
    given = with_agents(field, given)
    for key in ("arrivals", "input", "output"):
        if given.get(key) is None:
            raise KvroomError(f"{field}.{key}", None, "is missing", f"Write it like {EXAMPLE}.")
    parsed = {
        key: _PARSERS[key](f"{field}.{key}", spec_text(f"{field}.{key}", value))
        for key, value in given.items()
        if value is not None
    }
    workload = Synthetic(**parsed)
    if "requests" not in parsed and workload.arrivals.curve is not None:
        whole = round(workload.arrivals.rate_per_s * daily.DAY_S * workload.calls)
        return replace(workload, requests=max(1, min(whole, MAX_REQUESTS)))
    if "requests" in parsed or not workload.users:
        return workload
    # A closed loop is steady once everybody has come several times.
    rounds = ceil(CLOSED_LOOP_ROUNDS * workload.users * workload.turns.mean)
    return replace(workload, requests=max(workload.requests, min(rounds, MOST_UNASKED)))


def split_spec(spec: str, field: str = "workload") -> dict[str, str]:
    """The keys of a SPEC line with their values as written; KvroomError where a part is no key=value."""
    words: dict[str, str] = {}
    for part in spec.split(","):
        key, equals, value = part.partition("=")
        key = key.strip()
        if not equals or not value.strip():
            raise KvroomError(field, part, "is no key=value", f"Write it like {EXAMPLE}.")
        if key in words:
            raise KvroomError(field, key, "is said twice", "Write each key once.")
        words[key] = value.strip()
    return words


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
    spread = tuple(
        n for n in ("input", "output") if spreads(workload) and n not in given and plain[n]
    )
    given = {key: value for key, value in (plain | lengths).items() if value is not None} | given
    return replace(parse(given if seed is None else given | {"seed": seed}), spread=spread)


def spreads(workload: Workload) -> bool:
    """Whether lengths of which only the mean is told are drawn round it."""
    closed = workload.concurrency is not None or str(workload.arrivals).startswith("closed")
    plain = (workload.input is None and workload.input_tokens is not None) or (
        workload.output is None and workload.output_tokens is not None
    )
    return closed and plain and not workload.static and workload.lengths is None


def spread_of(workload: Workload, limit_tokens: int) -> float:
    """How far lengths of which only the mean is told are drawn from it, over it: at most 0.2, and no further
    than a request may be long."""
    synthetic = of_workload(workload)
    drawn = synthetic.within(limit_tokens)
    each = [getattr(drawn, name) for name in synthetic.spread]
    return max((x.high / x.mean - 1 for x in each if isinstance(x, Uniform)), default=0.0)


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
        synthetic = of_workload(lengths)
    except KvroomError:
        return None
    steps = tokens = 0
    for prompt, answer in synthetic.lengths():
        steps += answer
        tokens += answer * (2 * prompt + answer)
    return max(1, tokens // (2 * steps)) if steps else None


def _plain_arrivals(workload: Workload) -> str | None:
    if workload.static:
        return "once"
    if workload.requests_per_s is not None:
        return f"poisson:{workload.requests_per_s!r}/s"
    return f"closed:{workload.concurrency}" if workload.concurrency is not None else None
