"""What answering has in common with and without a server: a question read, worked out, kept.

Nothing here knows HTTP: ``transport.py`` and ``server.py`` bring questions from a socket, ``in_page.py`` from
the page that Python itself runs in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvroom.errors import KvroomError
from kvroom.ui import codec
from kvroom.ui.web.questions import PageQuestion
from kvroom.ui.web.recent import RecentTexts
from kvroom.ui.web.routes import Route

MAX_KEPT_CHARS = 2**23

Answer = tuple[int, str]
"""Status and body."""


class Speaker:
    """A Listener: values become lines of JSON, ``heading`` before the first of them."""

    def __init__(self) -> None:
        self.begun = False
        self.heading: dict[str, Any] | None = None

    def gone(self) -> bool:
        """Whether nobody reads any more."""
        raise NotImplementedError

    def say(self, value: dict[str, Any]) -> None:
        """Send one line; Gone where nobody reads."""
        self.wait()
        self.begun = True
        if self.heading is not None:
            heading, self.heading = self.heading, None
            self.hand_over(codec.encode(heading))
            self.wait()
        self.hand_over(codec.encode(value))

    def line(self, text: str) -> None:
        """Send a line that is JSON already, however many wait."""
        self.begun = True
        self.hand_over(text)

    def wait(self) -> None:
        """Until a line may be sent; Gone where nobody reads."""
        raise NotImplementedError

    def hand_over(self, line: str) -> None:
        """Send ``line`` as it is."""
        raise NotImplementedError


def read(route: Route, body: bytes) -> Any:
    """What ``route`` is asked in ``body``; KvroomError where it is too long, empty, or no JSON."""
    if route.body == "none":
        return None
    if len(body) > route.limit.bytes:
        raise route.limit.refuse(len(body))
    if route.body == "file":
        if not body:
            raise KvroomError("file", 0, "is empty", "Drop a file.")
        return body
    return codec.decode(body, "body")


def answered(job: Callable[[], Any]) -> Answer:
    """Status and body of a job, or why there is none."""
    try:
        value = job()
    except KvroomError as error:
        return 422, codec.encode({"error": error.as_dict()})
    except RecursionError:
        deep = KvroomError("body", None, "is nested too deeply", "Send a plain one.")
        return 400, codec.encode({"error": deep.as_dict()})
    return 200, value if isinstance(value, str) else codec.encode(value)


def spoken(job: Callable[[], Any], speaker: Speaker) -> Answer:
    """The same of a job that speaks: its value, and an error after the first line, are lines too."""
    status, text = answered(job)
    if (status == 200 or speaker.begun) and text != "null":
        speaker.line(text if status == 200 else f'{{"kind":"error",{text[1:]}')
    return status, text


class Desk:
    """Answers given lately, by question; ``most`` characters of them in all."""

    def __init__(self, most: int = MAX_KEPT_CHARS) -> None:
        self.kept = RecentTexts(most)

    def ready(self, route: Route, question: PageQuestion) -> str | None:
        """What needs no work."""
        return self.kept.get(question.key(route.path)) if route.kept else route.ready(question)

    def keep(self, route: Route, question: PageQuestion, answer: Answer) -> None:
        """Keep an answer that is the same whenever it is asked for."""
        if route.kept and answer[0] == 200:
            self.kept.put(question.key(route.path), answer[1])


def lines_of(route: Route, accepts: bool) -> bool:
    """Whether an answer of ``route`` comes line by line to one who ``accepts`` lines."""
    return route.lines == "all" or (route.lines == "accept" and accepts)
