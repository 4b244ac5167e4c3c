"""The routes' table for the page that Python itself runs in: a question in, texts out.

``static/worker.js`` makes one desk and calls ``answer`` for each question. Nobody else is there, so there is
no queue: what is asked while a long answer is under way is answered in its pauses, where the browser lets
Python pause at all.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from time import perf_counter
from urllib.parse import parse_qsl

from kvroom.engines.registry import engine_of
from kvroom.errors import KvroomError
from kvroom.scenario.engine_names import DEFAULT_ENGINE
from kvroom.scenario.scenario import Scenario
from kvroom.ui import codec
from kvroom.ui.web import desk, page, routes
from kvroom.ui.web.presets import REFERENCE
from kvroom.ui.web.questions import Gone, PageQuestion

CHOICES = "kvroom.ui.web.choices"
BREATH_S = 0.02
"""So long a job runs before it looks for other questions, and whether anybody still reads."""


class PageSpeaker(desk.Speaker):
    """Hands lines to the page; ``pause`` lets others in and tells whether anybody still reads."""

    def __init__(self, send: Callable[[str], object], pause: Callable[[], bool]) -> None:
        super().__init__()
        self._send, self._pause = send, pause
        self._due = perf_counter() + BREATH_S
        self._gone = False

    def gone(self) -> bool:
        """Whether nobody reads any more."""
        if not self._gone and perf_counter() >= self._due:
            self._gone = not self._pause()
            self._due = perf_counter() + BREATH_S
        return self._gone

    def wait(self) -> None:
        """Gone where nobody reads."""
        if self.gone():
            raise Gone

    def hand_over(self, line: str) -> None:
        """Send ``line`` as it is."""
        self._send(line)


class PageDesk:
    """Answers the page's questions."""

    def __init__(self) -> None:
        self.desk = desk.Desk()
        self.routes = {route.path.lstrip("/"): route for route in routes.table()}
        page.answer(Scenario.from_dict(REFERENCE.scenario))  # all that a first answer loads
        self.later: list[Callable[[], object]] = [
            partial(engine_of, DEFAULT_ENGINE),
            partial(import_module, CHOICES),
        ]

    def load(self) -> bool:
        """Load a piece of what the next questions are likely to need; whether there is more."""
        if self.later:
            self.later.pop(0)()
        return bool(self.later)

    def answer(
        self,
        address: str,
        body: bytes,
        in_lines: bool,
        send: Callable[[str], object],
        pause: Callable[[], bool],
    ) -> None:
        """Send the texts of an answer, each whole JSON, whole or ``in_lines`` as its reader takes them.

        ``address`` is the path with its words, ``body`` what comes with it. ``pause`` lets other questions
        in and says whether anybody still reads this one; where nobody does, nothing more is sent.
        """
        path, _, words = address.partition("?")
        route = self.routes.get(path)
        try:
            if route is None:
                fix = "See docs/page.md for the questions."
                raise KvroomError("path", path, "is not here", fix)
            query = dict(parse_qsl(words, keep_blank_values=True))
            question = PageQuestion(body=desk.read(route, body), query=query)
        except KvroomError as error:
            send(codec.encode({"error": error.as_dict()}))
            return
        text = self.desk.ready(route, question)
        if text is not None:
            send(text)
            return
        speaker = PageSpeaker(send, pause)

        def job() -> object:
            return route.answer(question, speaker)

        try:
            if desk.lines_of(route, in_lines):
                answer = desk.spoken(job, speaker)
                if answer[0] != 200 and not speaker.begun:
                    send(answer[1])
            else:
                answer = desk.answered(job)
                send(answer[1])
        except Gone:
            return
        self.desk.keep(route, question, answer)
