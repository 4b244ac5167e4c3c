"""The installed engine's own scheduler and block pool, stepped like kvroom's (``engines.scheduler``).

Each step is one line each way: the outputs of steps that are done and the requests that came go with the
question for the next. Decode steps that nobody comes between are one line together (``decode``). What the
engine decides is mirrored in the requests, since step times and reports follow from them; no decision is
made here.
"""

from __future__ import annotations

from typing import Any

from kvroom.engines.draft_tokens import Drafts
from kvroom.engines.scheduler import Admitted, ScheduledTokens, SchedulerOutput
from kvroom.errors import KvroomError
from kvroom.kvcache.request import RequestHashes, RequestStatus, ServedRequest
from kvroom.kvcache.tokens import Run
from kvroom.observe.installed.engine import InstalledEngine
from kvroom.observe.installed.process import FIELD
from kvroom.records import dataclass

GONE = (RequestStatus.FINISHED, RequestStatus.DROPPED)


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineFacts:
    """What the parent needs to know of the engine's settings."""

    number: int
    """Which of the process's schedulers it is."""
    steps_in_flight: int
    max_model_len: int
    queues_idle: bool = False
    keeps_stale: bool = True
    """Whether a request that is preempted keeps tokens of steps that were under way."""


class InstalledScheduler:
    """An ``EngineScheduler`` that an installed engine plays."""

    def __init__(
        self,
        engine: InstalledEngine,
        facts: EngineFacts,
        drafts: Drafts | None = None,
        texts: dict[int, tuple[tuple[Run, ...], tuple[Run, ...]]] | None = None,
    ) -> None:
        self.engine, self.facts, self.drafts = engine, facts, drafts
        self.texts = texts
        """Token ids of prompts and answers, by request; None: their blocks go by names."""
        self.steps_in_flight = facts.steps_in_flight
        self.queues_idle = facts.queues_idle
        self.running_count = self.waiting_count = self.blocks_in_use = 0
        self.requests: dict[int, ServedRequest] = {}
        self._coming: list[dict[str, Any]] = []
        self._dropped: list[int] = []
        self._done: list[tuple[int, dict[str, int]]] = []
        self._numbers: dict[int, int] = {}  # of outputs in flight, by identity
        self._rows: list[ScheduledTokens] = []
        self._first = -1  # whom a step that computes nothing leaves waiting
        self._finished: set[int] = set()  # by the mirror; the engine must say the same
        self._next: dict[str, Any] | None = None  # decided already, after steps of ``decode``
        self._last = 0  # the output of the last step, by identity

    def add_request(self, request: ServedRequest) -> bool:
        """Queue a request; False where the engine's front end would refuse it for its length."""
        limit = self.facts.max_model_len
        if request.num_prompt_tokens >= limit:
            request.status = RequestStatus.DROPPED
            return False
        request.final_tokens = min(request.final_tokens, limit)
        told: dict[str, Any] = {"index": request.index, "arrival": request.arrival}
        if request.priority:
            told["priority"] = request.priority
        if self.texts is not None:
            told["prompt"], told["output"] = self.texts[request.index]
        else:
            told["prompt"] = request.num_prompt_tokens
            told["output"] = request.final_tokens - request.num_prompt_tokens
            if request.extents is not None and request.extents.named:
                extents, hashes = request.extents, request.hashes
                unit = hashes.unit if isinstance(hashes, RequestHashes) else 1
                told["shares"] = (list(extents.names), unit, extents.named)
        self.requests[request.index] = request
        self._coming.append(told)
        self.waiting_count += 1
        return True

    def schedule(self, now: int = 0) -> SchedulerOutput:
        """The next step, as the engine decides it."""
        told = self._step() if self._next is None else self._next
        self._next = None
        requests, output = self.requests, SchedulerOutput()
        self.blocks_in_use = told["held"]
        self.running_count, self.waiting_count = told["running"], told["waiting"]
        for index, left in told.get("shorter", ()):
            request = requests[index]
            request.final_tokens = request.num_prompt_tokens + left
        for index in told.get("refused", ()):
            refused = requests.pop(index)
            refused.status = RequestStatus.DROPPED
            output.dropped.append(refused)
        for index in told.get("preempted", ()):
            request = requests[index]
            request.status = RequestStatus.PREEMPTED
            request.stale_tokens = request.in_flight_tokens
            request.num_computed_tokens = 0
            output.preempted.append(request)
        for index, cached, resumed in told.get("admitted", ()):
            request = requests[index]
            request.status = RequestStatus.RUNNING
            request.num_computed_tokens = cached
            output.admitted.append(Admitted(request, cached, resumed))
        if not told.get("same"):
            self._rows = [self._row(row) for row in told["rows"]]
        output.scheduled = list(self._rows)
        for request, tokens, _, _ in output.scheduled:
            request.num_computed_tokens += tokens
            request.in_flight_tokens += tokens
        if "drafted" in told:
            output.drafted = told["drafted"]
        self._first = told.get("first", -1)
        if output.scheduled:
            self._numbers[id(output)] = told["step"]
        self._last = id(output)
        return output

    def decoding(self) -> list[ServedRequest]:
        """As ``DecodingScheduler`` says."""
        if self._coming or self._dropped or len(self._rows) != self.running_count:
            return []
        for request, tokens, samples, drafts in self._rows:
            if tokens != 1 or not samples or drafts or request.status is not RequestStatus.RUNNING:
                return []
            if request.stale_tokens or request.num_tokens <= request.num_prompt_tokens:
                return []
        return [row.request for row in self._rows]

    def decode(self, steps: int) -> int:
        """As ``DecodingScheduler`` says."""
        told = self._told("decode", steps=steps)
        done: int = told["done"]
        for request, _, _, _ in self._rows:
            request.num_computed_tokens += done
            request.num_tokens += done
        self.blocks_in_use = told["held"]
        if self._last in self._numbers and done:
            self._numbers[self._last] = told["step"]
        self._next = told.get("next")
        return done

    def _row(self, row: Any) -> ScheduledTokens:
        if isinstance(row, int):
            return ScheduledTokens(self.requests[row], 1, True)
        return ScheduledTokens(self.requests[row[0]], row[1], row[2], row[3])

    def update_from_output(self, output: SchedulerOutput) -> list[ServedRequest]:
        """Take the output of a step; the engine hears of it with the next question."""
        finished: list[ServedRequest] = []
        kept: dict[str, int] = {}
        for request, tokens, samples, drafts in output.scheduled:
            request.in_flight_tokens -= tokens
            stale = request.stale_tokens > 0
            if stale:
                request.stale_tokens -= tokens
            if not samples or request.status in GONE or (stale and not self.facts.keeps_stale):
                continue
            gained = 1
            if drafts and self.drafts is not None:
                accepted = self.drafts.kept(request.index, request.num_tokens, drafts)
                if not stale:
                    request.num_computed_tokens -= drafts - accepted
                kept[str(request.index)] = accepted
                gained = min(1 + accepted, request.tokens_left)
            request.new_tokens = gained
            request.num_tokens += gained
            if request.finished:
                request.status = RequestStatus.FINISHED
                finished.append(request)
        self._done.append((self._numbers.pop(id(output)), kept))
        for request in finished:
            self._finished.add(request.index)
        return finished

    def drop_stuck(self) -> ServedRequest | None:
        """Give up the request that waits first though nothing runs: the engine would wait for ever."""
        stuck = self.requests.get(self._first)
        if stuck is None:
            return None
        stuck.status = RequestStatus.DROPPED
        self._dropped.append(stuck.index)
        self.waiting_count -= 1
        del self.requests[stuck.index]
        return stuck

    def _step(self) -> dict[str, Any]:
        question: dict[str, Any] = {}
        if self._coming:
            question["add"], self._coming = self._coming, []
        if self._dropped:
            question["drop"], self._dropped = self._dropped, []
        return self._told("step", **question)

    def _told(self, what: str, **question: Any) -> dict[str, Any]:
        """The answer to a question, which takes along the outputs of steps that are done."""
        if self._done:
            question["done"], self._done = self._done, []
        told = self.engine.ask(what, engine=self.facts.number, **question)
        if "error" in told:
            why = f"{self.engine.name} failed at a step ({told['message'][:300]})"
            fix = "Leave --scheduler engine out: kvroom's own scheduler serves it."
            raise KvroomError(FIELD, self.engine.process.python, why, fix)
        finished = set(told.get("finished", ()))
        if finished != self._finished:
            odd = sorted(finished ^ self._finished)[:3]
            why = (
                f"{self.engine.name} finished other requests than those whose answers ended ({odd})"
            )
            fix = "Leave --scheduler engine out, and report it with the question."
            raise KvroomError(FIELD, self.engine.process.python, why, fix)
        for index in finished:
            del self.requests[index]
        self._finished = set()
        return told
