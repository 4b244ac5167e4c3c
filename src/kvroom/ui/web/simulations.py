"""The long questions of the page: a simulation, picture by picture if wanted; a cliff; the reuse of a trace.

``POST /api/simulate`` takes ``{"scenario"}`` with a workload in it, or ``{"scenario", "replay"}``, which
makes one of the page's stories of the question; ``seed``, ``slo``, ``cliff``, ``frames``, ``trace`` and
``sessions`` (of the trace at a time) are the command line's. Its last line holds what ``kvroom simulate
--json`` prints.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from kvroom import api
from kvroom.answer.figures import Explanation
from kvroom.errors import KvroomError
from kvroom.latency.clock import PS_PER_S
from kvroom.optimize.cliff import CliffPoint, parse_range
from kvroom.planner.reuse import capacities_of
from kvroom.planner.simulate import Objective, Simulated, parse_slo
from kvroom.records import dataclass
from kvroom.scenario.scenario import Scenario
from kvroom.scenario.values import check_keys
from kvroom.scenario.workload import calls_of
from kvroom.simulator.frames import Frame
from kvroom.simulator.reuse import BLOCK_TOKENS
from kvroom.simulator.timeline import Moment
from kvroom.ui.web import replays
from kvroom.ui.web.questions import Gone, Listener, cpu_time
from kvroom.units import ceil_div, check_int, parse_tokens
from kvroom.workloads import synthetic
from kvroom.workloads.requests import HashIds, Request, RequestGraph
from kvroom.workloads.sessions import SessionPool, until
from kvroom.workloads.synthetic import Synthetic, of_workload
from kvroom.workloads.traces.opened import Held
from kvroom.workloads.traces.pool import pool_of
from kvroom.workloads.traces.reader import Trace

MOST_REQUESTS, MOST_PICTURED = 50_000, 400
MOST_TOKENS, MOST_PROMPT_TOKENS = 10**9, 4 * 2**20
"""Of all prompts together, of one."""
MOST_REFERENCES = 1_000_000
"""Blocks of all prompts together whose reuse is measured."""
MOST_SESSIONS = 1000
"""Of a trace at a time."""
MOST_FRAMES = 6000
MOST_CPU_S = 30.0
"""A job that has taken so much of a processor is ended; it tells what was done until then."""
MOST_TRACE_BYTES = 64 * 2**20
"""Of a trace when it is unpacked."""
TOGETHER = 32
"""Frames in a line."""
TOLD_EVERY_S = 0.1
KEYS = ("scenario", "replay", "seed", "slo", "cliff", "frames", "trace", "sessions")
REPLAY_KEYS = ("story", "blocks", "seed", "beside")
REUSE_KEYS = (
    "trace", "workload", "story", "scenario", "seed", "block_tokens", "policies", "capacity", "model",
    "kv_dtype",
)  # fmt: skip
SOURCE = "simulated: vLLM's scheduling rules on this plan's step times"


class Supervisor:
    """Looks after one job: ends it when its reader leaves or it has taken too long, tells how far it is."""

    def __init__(self, listener: Listener, expected: int | None = None) -> None:
        self.listener = listener
        self.expected = expected
        self.cut = False
        self._end = cpu_time() + MOST_CPU_S
        self._due = cpu_time() + TOLD_EVERY_S
        self.worst: Frame | None = None
        """The frame in which most wait."""
        self._frames: list[dict[str, Any]] = []
        self._count = 0

    def over(self) -> bool:
        """Whether to end now."""
        self.cut = self.cut or cpu_time() > self._end or self._count >= MOST_FRAMES
        return self.cut or self.listener.gone()

    def moment(self, now: Moment) -> bool:
        """Told of how things stand; whether to end."""
        if cpu_time() >= self._due:
            self._due = cpu_time() + TOLD_EVERY_S
            moment = {"done": now.done, "of": self.expected, "time_s": now.time_ps / PS_PER_S}
            self.listener.say({"kind": "progress", **moment})
        return self.over()

    def frame(self, frame: Frame) -> None:
        """Send a frame, some of them in a line."""
        self._count += 1
        if self.worst is None or frame.waiting > self.worst.waiting:
            self.worst = frame
        self._frames.append(frame.to_dict())
        if len(self._frames) >= TOGETHER:
            self.flush()

    def flush(self) -> None:
        """Send the frames that wait."""
        if self._frames:
            self.listener.say({"kind": "frames", "frames": self._frames})
            self._frames = []

    def passing(
        self, requests: Iterable[Request], blocks: Callable[[Request], int] = lambda _: 0
    ) -> Iterator[Request]:
        """The requests, looked at as they go by; ``blocks`` tells how many of one are to be counted."""
        tokens = references = 0
        for number, request in enumerate(requests, 1):
            if self.listener.gone():
                raise Gone
            tokens += request.input_tokens
            references += blocks(request)
            long = request.input_tokens > MOST_PROMPT_TOKENS or tokens > MOST_TOKENS
            long = long or references > MOST_REFERENCES
            if number > MOST_REQUESTS or long or self.over():
                why = f"is more than this page takes (request {number:,})"
                fix = "Ask for fewer or shorter requests; the command line has no such limit."
                raise KvroomError("requests", number, why, fix)
            yield request


class Bounded:
    """The first ``most`` requests of a trace, whose sessions wait for answers; each iteration reads it
    anew."""

    def __init__(self, trace: Trace, most: int, supervisor: Supervisor) -> None:
        self.hash_tokens = trace.hash_tokens
        self.more = False
        self._trace, self._most, self._watched = trace, most, supervisor
        self.has_sessions, self.names_sessions = trace.has_sessions, trace.names_sessions

    def __iter__(self) -> Iterator[Request]:
        for number, request in enumerate(self._watched.passing(self._trace)):
            if number == self._most:
                self.more = True
                return
            yield request

    def sessions(self) -> Iterator[RequestGraph]:
        """The sessions of a trace that has such, up to so many requests."""
        left = self._most
        for graph in self._trace.sessions():
            for _ in self._watched.passing(graph.requests):
                pass
            if len(graph.requests) > left:
                self.more = True
                graph = until(graph, left)  # noqa: PLW2901
            if not left:
                return
            left -= len(graph.requests)
            yield graph


@dataclass(frozen=True, kw_only=True)
class SimulationQuestion:
    """A simulation as it is to be run."""

    scenario: Scenario
    source: Synthetic | Bounded | SessionPool
    slo: tuple[Objective, ...]
    cliff: str | None
    frames: bool
    replay: replays.Replay | None


def simulate(body: Any, listener: Listener) -> None:
    """Answer one body of ``POST /api/simulate``."""
    supervisor = Supervisor(listener)
    question = _question(body, supervisor)
    supervisor.expected = getattr(question.source, "requests", None)
    more: tuple[str, ...] = () if question.cliff is None else ("--cliff", question.cliff)
    if body.get("trace") is not None:
        more += ("--trace", str(body["trace"].get("name") or "FILE"))
    if isinstance(question.source, SessionPool):
        more += ("--sessions", str(question.source.users))
    command = replays.command_of(question.scenario, *more, "--json")
    first_line = {"kind": "asked", "scenario": question.scenario.differences(), "command": command}
    listener.heading = first_line | _of_replay(question.replay)
    if question.cliff is not None:
        _cliff(question, question.cliff, supervisor)
        return
    simulation = api.simulate(
        question.scenario,
        trace=question.source,
        slo=question.slo,
        keep_requests=False,
        watch=supervisor.moment,
        on_frame=supervisor.frame if question.frames else None,
        paths=False,
        hub=False,
    )
    if listener.gone():
        raise Gone
    supervisor.flush()
    answer = simulation.to_dict()
    warnings = answer["warnings"]
    if simulation.stopped:
        warnings.append("ended before all was served: a page's simulation is limited")
    if isinstance(question.source, Bounded) and question.source.more:
        warnings.append(f"only the first {MOST_PICTURED} requests of the trace are played")
    listener.say(
        {
            "kind": "answer",
            "answer": answer,
            "explanations": [
                explanation.to_dict() for explanation in explanations(simulation.run, answer)
            ],
            "command": command,
            "worst_s": supervisor.worst.to_dict()["start_s"] if supervisor.worst else None,
        }
    )


def _of_replay(replay: replays.Replay | None) -> dict[str, Any]:
    if replay is None:
        return {}
    keys = ("name", "says", "blocks", "steps", "notes")
    return {key: getattr(replay, key) for key in keys}


def _cliff(question: SimulationQuestion, over: str, supervisor: Supervisor) -> None:
    listener = supervisor.listener

    def told(point: CliffPoint) -> None:
        listener.say({"kind": "point", "point": point.to_dict()})

    cliff = api.cliff(
        over,
        question.scenario,
        trace=question.source,
        slo=question.slo,
        watch=supervisor.moment,
        on_point=told,
        paths=False,
        hub=False,
    )
    if listener.gone():
        raise Gone
    listener.say({"kind": "answer", "answer": cliff.to_dict(), "cut": supervisor.cut})


def _question(body: Any, supervisor: Supervisor) -> SimulationQuestion:
    """The body, checked; KvroomError names what is wrong with it."""
    if not isinstance(body, dict):
        raise KvroomError("body", None, "is no object", 'Send {"scenario": {…}}.')
    check_keys("body", body, KEYS)
    trace = None if body.get("trace") is None else Trace(_held(body["trace"]))
    frames = body.get("frames") is True
    most = MOST_PICTURED if frames or body.get("replay") is not None else MOST_REQUESTS
    bounded = None if trace is None else Bounded(trace, most, supervisor)
    replay = None
    if body.get("replay") is not None:
        asked = body["replay"]
        if not isinstance(asked, dict):
            raise KvroomError("replay", None, "is no object", 'Send {"story": "chat"}.')
        check_keys("replay", asked, REPLAY_KEYS)
        lengths = None if bounded is None else _lengths(bounded)
        replay = replays.replay(_scenario(body), asked, lengths)
        scenario = replay.scenario
    else:
        scenario = Scenario.from_dict(_scenario(body))
    cliff = body.get("cliff")
    wanted = None
    if cliff is True and replay is not None:
        wanted = replay.cliff
    elif cliff:
        parse_range(str(cliff), "cliff")
        wanted = str(cliff)
    return SimulationQuestion(
        scenario=scenario,
        source=_pool(bounded, body, replay, most)
        or bounded
        or _made_up(scenario, body.get("seed"), most, supervisor),
        slo=parse_slo(str(body["slo"]), "slo") if body.get("slo") else (),
        cliff=wanted,
        frames=frames,
        replay=replay,
    )


def _pool(
    trace: Bounded | None, body: Mapping[str, Any], replay: replays.Replay | None, most: int
) -> SessionPool | None:
    """So many of the trace's sessions at a time; None where that is not asked."""
    users = body.get("sessions")
    if users is None:
        return None
    if trace is None:
        raise KvroomError("sessions", users, "is of traces only", "Send a trace with it.")
    users = check_int("sessions", users, low=1, high=MOST_SESSIONS)
    seed = body.get("seed") if replay is None else (body["replay"].get("seed") or 0)
    number = None if seed is None else check_int("seed", seed, low=0, high=2**63)
    return pool_of(trace, users, requests=min(most, calls_of(users)), seed=number)


def _scenario(body: Mapping[str, Any]) -> Mapping[str, Any]:
    scenario = body.get("scenario")
    if not isinstance(scenario, dict):
        raise KvroomError("scenario", None, "is missing", 'Send {"scenario": {…}}.')
    return scenario


def _made_up(scenario: Scenario, seed: Any, most: int, supervisor: Supervisor) -> Synthetic:
    """The scenario's workload, gone through once to see that it is within the limits."""
    if scenario.workload is None:
        fix = 'Give "workload": {"arrivals": "poisson:2/s", "input": 1000, "output": 200}.'
        raise KvroomError("workload", None, "is missing: no requests to serve", fix)
    number = None if seed is None else check_int("seed", seed, low=0, high=2**63)
    source = of_workload(scenario.workload, number)
    check_int("workload.requests", source.requests, low=1, high=most, unit="requests")
    for _ in supervisor.passing(source):
        pass
    return source


def _lengths(trace: Bounded) -> replays.Lengths:
    """What the requests that will be played are like."""
    rows = [(r.input_tokens, r.output_tokens) for r in trace]
    return replays.Lengths(
        longest_tokens=max(i + o for i, o in rows),
        input_tokens=max(1, sum(i for i, _ in rows) // len(rows)),
        output_tokens=max(1, sum(o for _, o in rows) // len(rows)),
    )


def _held(trace: Any) -> Held:
    """A trace that was sent, unpacked where it is gzipped; it never touches a disk."""
    fix = 'Send {"name": "trace.jsonl", "base64": "…"}.'
    if not isinstance(trace, dict) or not isinstance(trace.get("base64"), str):
        raise KvroomError("trace", None, "is no file that was sent", fix)
    name = str(trace.get("name") or "trace")[:80]
    try:
        data = base64.b64decode(trace["base64"], validate=True)
        if data[:2] == b"\x1f\x8b":
            unpack = zlib.decompressobj(zlib.MAX_WBITS | 16)
            data = unpack.decompress(data, MOST_TRACE_BYTES)
            if unpack.unconsumed_tail:
                why = f"is more than {MOST_TRACE_BYTES:,} bytes when unpacked"
                raise KvroomError("trace", name, why, "Send its beginning.")
    except (binascii.Error, ValueError, zlib.error):
        raise KvroomError("trace", name, "is garbled", fix) from None
    return Held(name, data)


def reuse(body: Any, listener: Listener) -> None:
    """Answer one body of ``POST /api/reuse``: a trace, a SPEC line, or a replay's story."""
    if not isinstance(body, dict):
        raise KvroomError("body", None, "is no object", 'Send {"workload": "…"}.')
    check_keys("body", body, REUSE_KEYS)
    supervisor = Supervisor(listener)
    spec = body.get("workload")
    if body.get("story") is not None:
        story = {"story": body["story"], "seed": body.get("seed", 0)}
        workload = replays.replay(_scenario(body), story, None).scenario.workload
        spec = replays.spec_of(workload) if workload else None
    if spec is not None:
        check_int(
            "workload.requests", synthetic.parse(str(spec)).requests, low=1, high=MOST_REQUESTS
        )
    size = _text(body, "block_tokens")
    asked_tokens = parse_tokens("block_tokens", size) if size else None

    def blocks(request: Request) -> int:
        own = request.prefix.tokens if isinstance(request.prefix, HashIds) else BLOCK_TOKENS
        return ceil_div(request.input_tokens, asked_tokens or own)

    policies = body.get("policies") or ["lru"]
    if not isinstance(policies, list) or len(policies) > 5:
        raise KvroomError("policies", None, "is no short list of policies", 'Send ["lru"].')
    answer = api.reuse(
        trace=None if body.get("trace") is None else _held(body["trace"]),
        workload=None if spec is None else str(spec),
        block_tokens=size,
        policies=[str(policy) for policy in policies],
        capacities=capacities_of(_text(body, "capacity")),
        model=_text(body, "model"),
        kv_dtype=_text(body, "kv_dtype") or "auto",
        passing=lambda requests: supervisor.passing(requests, blocks),
        paths=False,
        hub=False,
    )
    listener.say(
        {"kind": "answer", "answer": answer.to_dict(), "of": answer.name, "workload": spec}
    )


def _text(body: Mapping[str, Any], key: str) -> str | None:
    return None if body.get(key) is None else str(body[key])


def explanations(simulated: Simulated, answer: Mapping[str, Any]) -> Iterator[Explanation]:
    """How the figures of a simulation come about, in the form of a Plan's."""
    counts = simulated.counts
    firsts, gaps = len(simulated.fleet.outcome.ttft_ps), simulated.fleet.outcome.gaps.count
    for key, label, count, what in (
        ("ttft_s", "TTFT", firsts, "waits from arrival to first token"),
        ("itl_s", "ITL", gaps, "times between a request's tokens"),
    ):
        for at, words in (("p50", 50), ("p99", 99)):
            if answer[key][at] is not None:
                yield Explanation(
                    figure=f"{key}.{at}",
                    label=f"{label}, p{words}",
                    value=answer[key][at],
                    unit="s",
                    formula=f"nearest rank: of all {what} the one that {words} % do not exceed",
                    numbers=f"the {ceil_div(words * count, 100):,}th smallest of {count:,}",
                    source=SOURCE,
                )
    out, seconds = simulated.fleet.outcome, simulated.duration_s
    for figure, label, unit, formula, numbers in (
        ("requests.completed", "Requests answered", "requests", "counted", f"{counts['completed']:,}"),
        ("preemptions", "Times a request lost its blocks", "times", "counted",
         f"{answer['preemptions']:,}"),
        ("output_tokens_per_s", "Output of all requests", "tokens/s",
         "tokens written / seconds simulated", f"{out.output_tokens:,} / {seconds!r}"),
        ("prefix_hit_ratio", "Prompt tokens found in the cache", "of 1",
         "prompt tokens found cached at first schedule / prompt tokens",
         f"{out.cached_tokens:,} / {out.prompt_tokens:,}"),
        ("kv_blocks.total", "Blocks of the pool", "blocks", "as chosen, the null block not counted",
         f"{answer['kv_blocks']['total']:,}"),
        ("kv_blocks.peak", "Most blocks held at once", "blocks", "counted after each pass",
         f"{answer['kv_blocks']['peak']:,}"),
        ("duration_s", "Simulated time", "s", "last token − first arrival", f"{seconds!r}"),
    ):  # fmt: skip
        value: Any = answer
        for part in figure.split("."):
            value = value[part]
        yield Explanation(
            figure=figure, label=label, value=value, unit=unit, formula=formula, numbers=numbers,
            source=SOURCE,
        )  # fmt: skip
