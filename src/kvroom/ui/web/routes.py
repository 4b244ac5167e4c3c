"""What the page may ask: each path, what its question holds, and the function that answers it.

Nothing here knows HTTP, so that a server and a page without one answer from the same table. A function is
given the question and a Listener; what it returns is the answer (text is JSON already), and what it says
through the Listener are lines before it. KvroomError says why there is no answer. What few questions need is
imported where they are answered: in a browser a start costs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

from kvroom import api
from kvroom.errors import KvroomError
from kvroom.records import dataclass
from kvroom.scenario.scenario import Scenario
from kvroom.ui import codec
from kvroom.ui.web.answers import Answers, parts_of
from kvroom.ui.web.questions import Listener, PageQuestion
from kvroom.ui.web.sections import reality
from kvroom.units import check_float, decimal_memory

MAX_TOGETHER = 16
MOST_REQUESTS_SAID = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyLimit:
    """What a body may be: its kind, length, the seconds in which it must come; and the words of refusals."""

    bytes: int
    seconds: float = 10
    media_type: str = "application/json"
    what: str = "JSON"
    field: str = "body"
    send: str = "Send a Scenario as application/json."
    shorter: str = "Ask with fewer or smaller questions."

    def refuse(self, size: int) -> KvroomError:
        """Why a body of ``size`` bytes is not taken."""
        return KvroomError(self.field, size, f"is longer than {self.bytes:,} bytes", self.shorter)


QUESTION = BodyLimit(bytes=2**20)
WITH_TRACE = BodyLimit(bytes=12 * 2**20)
"""A trace comes in it, in base64."""
UPLOAD = BodyLimit(
    bytes=2**25,
    seconds=60,
    media_type="application/octet-stream",
    what="file",
    field="file",
    send="Send the file's bytes as application/octet-stream.",
    shorter="Drop the start of the log, or only the first bytes of a model's file.",
)
"""The longest file taken; of a GGUF or safetensors file its first bytes hold the header."""

AnswerFunction = Callable[[PageQuestion, Listener], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A path and what it answers.

    ``body`` is what comes with it, within ``limit``. ``queue`` says how long it takes: ``none`` (at once),
    ``quick`` (a Plan), ``long``, ``stream`` (line by line for minutes). ``lines``: its lines are read by
    ``all``, or by those who ``accept`` them. Of one that is ``kept`` the same question has the same answer;
    ``ready`` gives what needs no work.
    """

    path: str
    answer: AnswerFunction
    body: Literal["none", "json", "file"] = "json"
    limit: BodyLimit = QUESTION
    queue: Literal["none", "quick", "long", "stream"] = "quick"
    lines: Literal["none", "accept", "all"] = "none"
    kept: bool = False
    ready: Callable[[PageQuestion], str | None] = lambda _: None


def _tiers(question: PageQuestion, _: Listener) -> Any:
    """A Scenario's Plan with ``figures.tiers``."""
    from kvroom.ui.web.sections import tiers

    return tiers.answer(Scenario.from_dict(question.body))


def _reality(question: PageQuestion, _: Listener) -> Any:
    """A Scenario's Plan with ``figures.reality``; ``says`` is what the reader's engine says."""
    words = question.query.get("says")
    return reality.answer(
        Scenario.from_dict(question.body), None if words is None else _requests(words)
    )


def _requests(words: str) -> float:
    try:
        return check_float("says", float(words), low=0, high=MOST_REQUESTS_SAID)
    except KvroomError:
        raise
    except ValueError:
        fix = "Write the requests that your engine says it has room for, as 13 or 11.9."
        raise KvroomError("says", words, "is no number", fix) from None


def _levers(question: PageQuestion, listener: Listener) -> Any:
    """What ``kvroom levers --json`` prints (with ``simulate=1`` what it prints with ``--simulate``), and how
    many Plans are made until then."""
    from kvroom.ui.web.sections import levers

    words = question.query.get("together")
    ids = None if words is None else [part for part in words.split(";") if part]
    if ids is not None and len(ids) > MAX_TOGETHER:
        fix = f"Name at most {MAX_TOGETHER}."
        raise KvroomError("together", len(ids), "is too many levers", fix)
    if question.query.get("simulate") == "1":
        return levers.served(question.body, listener=listener)
    explain = question.query.get("explain") == "1"
    return levers.answer(question.body, together=ids, listener=listener, explain=explain)


def _reconcile(one_question: PageQuestion, _: Listener) -> Any:
    """A file beside the question in ``?s=``; what it tells. Nothing of it is kept."""
    from kvroom.ui.web.sections import dropped

    question = Scenario.from_link(f"#s={one_question.query.get('s', '')}")
    return dropped.answer(one_question.body, question.differences())


def _take(one_question: PageQuestion, _: Listener) -> Any:
    """Anything dropped or pasted beside the question in ``?s=``: the question that comes of it."""
    from kvroom.ui.web import taken

    query = one_question.query
    question = Scenario.from_link(f"#s={query.get('s', '')}")
    return taken.take(one_question.body, question.differences(), query.get("name", "")[:80])


def _choices(question: PageQuestion, _: Listener) -> Any:
    """What fields may hold in a question: those of ``of=a,b``, or all."""
    from kvroom.ui.web import choices

    if not isinstance(question.body, dict):
        raise KvroomError("body", None, "is no Scenario", "Send one object.")
    return choices.choices(question.body, parts_of(question.query.get("of", "")))


def _catalogue(_: PageQuestion, __: Listener) -> Any:
    """Models and cards, with the words that find them."""
    from kvroom.ui.web import choices

    return choices.known()


def _commands(question: PageQuestion, _: Listener) -> Any:
    """Engines' own command lines for a Scenario's deployment, by engine."""
    from kvroom.ui.web.takeaway import engine_flags

    workings = api.workings(Scenario.from_dict(question.body), paths=False, hub=False)
    return engine_flags(workings)


def _launch(question: PageQuestion, _: Listener) -> Any:
    """The commands that start a Scenario's deployment, a text a form; refused where its engine would."""
    from kvroom.ui.web.sections import launched

    return launched.answer(Scenario.from_dict(question.body))


def _simulate(question: PageQuestion, listener: Listener) -> None:
    """A simulation, line by line."""
    from kvroom.ui.web import simulations

    simulations.simulate(question.body, listener)


def _agents(question: PageQuestion, listener: Listener) -> None:
    """How many agents the deployment holds, line by line."""
    from kvroom.ui.web.sections import agents

    agents.answer(question.body, listener)


def _reuse(question: PageQuestion, listener: Listener) -> None:
    """How much of a trace's prefixes could be used again."""
    from kvroom.ui.web import simulations

    simulations.reuse(question.body, listener)


def _counted(answer: AnswerFunction) -> AnswerFunction:
    """``answer`` in the unit of memory that the question asks for."""

    def counted(question: PageQuestion, listener: Listener) -> Any:
        with decimal_memory(question.decimal):
            return answer(question, listener)

    return counted


def table() -> tuple[Route, ...]:
    """Every question that the page may ask; there is no other path."""
    return tuple(replace(route, answer=_counted(route.answer)) for route in _table())


def _table() -> tuple[Route, ...]:
    plans = Answers()
    return (
        Route(path="/api/plan", answer=plans.answer, ready=plans.ready),
        Route(path="/api/tiers", answer=_tiers, kept=True),
        Route(path="/api/reality", answer=_reality, kept=True),
        Route(path="/api/levers", answer=_levers, queue="long", lines="accept", kept=True),
        Route(path="/api/reconcile", answer=_reconcile, body="file", limit=UPLOAD, queue="long"),
        Route(path="/api/take", answer=_take, body="file", limit=UPLOAD, queue="long"),
        Route(path="/api/choices", answer=_choices, kept=True),
        Route(path="/api/launch", answer=_launch, kept=True),
        Route(path="/api/commands", answer=_commands, kept=True),
        Route(path="/api/catalogue", answer=_catalogue, kept=True),
        Route(
            path="/api/simulate", answer=_simulate, limit=WITH_TRACE, queue="stream", lines="all"
        ),
        Route(path="/api/agents", answer=_agents, queue="stream", lines="all"),
        Route(path="/api/reuse", answer=_reuse, limit=WITH_TRACE, queue="stream", lines="all"),
        Route(path="/api/schema", answer=lambda *_: codec.schema(), body="none", queue="none"),
        Route(path="/api/models", answer=lambda *_: api.models(), body="none", queue="none"),
        Route(path="/api/gpus", answer=lambda *_: api.gpus(), body="none", queue="none"),
    )
