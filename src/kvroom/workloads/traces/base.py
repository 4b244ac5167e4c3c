"""What a trace format is: how its rows are known, and the function that makes Requests of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from kvroom.errors import KvroomError
from kvroom.records import dataclass
from kvroom.workloads.requests import Request, RequestGraph
from kvroom.workloads.sessions import SessionContexts

Tokenizer = Callable[[str], Sequence[int]]
"""Text → its token ids."""
Item = Request | RequestGraph | KvroomError
"""A part of a row, or what is wrong with it."""
Row = Callable[[Mapping[str, Any]], Request | RequestGraph | Iterable[Item]]
"""A row → its request, or the requests or sessions that it holds."""


GROWS = (
    "the log does not say what prompts hold: each is taken to begin with the one before it in its session "
    "and that one's answer, unless it is shorter"
)
FOUND = "prompts are taken to begin like the one before them as far as the log says that they were cached"


@dataclass(slots=True)
class RowOptions:
    """How rows are to be read: ``hash_tokens``, the tokens of one hash id; ``tokenizer``, what counts the
    tokens of a text (None: its bytes do). ``notes``: what was assumed on the way, and how often."""

    hash_tokens: int = 1
    tokenizer: Tokenizer | None = None
    notes: dict[str, int] = field(default_factory=dict)
    contexts: SessionContexts | None = None
    deltas: bool = False
    """Whether later rows of a session hold what is new only."""

    def context(self) -> SessionContexts:
        """The contexts of sessions whose prompts are made up."""
        if self.contexts is None:
            self.contexts = SessionContexts(self.hash_tokens if self.hash_tokens > 1 else 16)
        return self.contexts

    def continued(self, request: Request, cached: int | None = None) -> Request:
        """``request`` with what it may hold: it goes on with its session, where nothing else is known of it.
        ``cached``: so many of its tokens were found cached when it was served."""
        if request.session is None or request.prefix is not None:
            return request
        self.note(GROWS if cached is None else FOUND)
        return request._replace(prefix=self.context().prefix(request, cached))

    def note(self, text: str) -> None:
        """Count once more that ``text`` was assumed."""
        self.notes[text] = self.notes.get(text, 0) + 1


@dataclass(frozen=True, slots=True)
class Format:
    """A trace format: the keys it ``needs``, and ``reader``, which makes a function row → Request.

    ``hash_tokens`` is what the format's own traces use (None: it has no hash ids). Of a CSV format the
    columns are in lower case. ``timed``: rows say when requests came. ``sessions``: a row is a session,
    whose requests wait for each other. ``known`` looks closer where keys are not enough. ``may`` are keys
    that a row has besides: one that is a slip of theirs would be passed over.
    """

    name: str
    needs: tuple[str, ...]
    reader: Callable[[RowOptions], Row]
    hash_tokens: int | None = None
    csv: bool = False
    timed: bool = True
    sessions: bool = False
    plain: Callable[[bytes], Request | None] | None = None
    """A short cut for rows of the commonest shape."""
    known: Callable[[Mapping[str, Any]], bool] | None = None
    may: tuple[str, ...] = ()
    tells_deltas: Callable[[Iterable[Mapping[str, Any]]], bool] | None = None
    """Whether later rows of a session hold what is new only, by its first rows."""

    def fits(self, keys: Mapping[str, Any] | Sequence[str]) -> bool:
        """Whether rows with these keys can be of this format."""
        if not all(need in keys for need in self.needs):
            return False
        return self.known is None or (isinstance(keys, Mapping) and self.known(keys))
