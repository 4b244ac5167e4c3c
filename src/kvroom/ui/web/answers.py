"""Plans as JSON text for the page: one question or a list of them, those asked lately kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvroom import api
from kvroom.errors import KvroomError
from kvroom.planner.tiers import plan_json
from kvroom.scenario.scenario import Scenario
from kvroom.ui import codec
from kvroom.ui.web import page
from kvroom.ui.web.questions import Listener, PageQuestion
from kvroom.ui.web.recent import RecentTexts

MAX_SCENARIOS = 64
MAX_PARTS = 64
MAX_KEPT_CHARS = 2**24


def parts_of(text: str) -> tuple[str, ...]:
    """The dotted keys in ``a,b.c``; KvroomError where they are too many."""
    parts = tuple(part for part in text.split(",") if part)
    if len(parts) > MAX_PARTS:
        fix = f"Name at most {MAX_PARTS}, or none for all."
        raise KvroomError("parts", len(parts), "is too many keys", fix)
    return parts


class Answers:
    """Answers one Scenario or a list of them: explained with ``explain=1``, in ``parts=a,b.c`` or whole."""

    def __init__(self, most: int = MAX_KEPT_CHARS) -> None:
        self.kept = RecentTexts(most)

    def ready(self, question: PageQuestion) -> str | None:
        """The answer, where every question in it was answered lately."""
        many = question.body if isinstance(question.body, list) else [question.body]
        if not 1 <= len(many) <= MAX_SCENARIOS:
            return None
        texts = []
        for one in many:
            text = self.kept.get(_key(question, one))
            if text is None:
                return None
            texts.append(text)
        return f"[{','.join(texts)}]" if isinstance(question.body, list) else texts[0]

    def answer(self, question: PageQuestion, listener: Listener) -> str:
        """The answer as JSON; in a list an error stands in its own place; it ends for nobody."""
        parts = parts_of(question.query.get("parts", ""))
        if not isinstance(question.body, list):
            return self._one(question, question.body, parts)
        if not 1 <= len(question.body) <= MAX_SCENARIOS:
            fix = f"Send 1 to {MAX_SCENARIOS} Scenarios at a time."
            raise KvroomError("body", len(question.body), "is no number of questions taken", fix)
        texts: list[str] = []
        for one in question.body:
            if listener.gone():
                break
            try:
                texts.append(self._one(question, one, parts))
            except KvroomError as error:
                texts.append(codec.encode({"error": error.as_dict()}))
        return f"[{','.join(texts)}]"

    def _one(self, question: PageQuestion, scenario: Any, parts: tuple[str, ...]) -> str:
        key = _key(question, scenario)
        text = self.kept.get(key)
        if text is None:
            answer = answer_of(scenario, explain=question.query.get("explain") == "1")
            text = codec.encode(_picked(answer, parts) if parts else answer)
            self.kept.put(key, text)
        return text


def _key(question: PageQuestion, scenario: Any) -> str:
    return PageQuestion(scenario, question.query).key("")


def answer_of(scenario: Any, *, explain: bool = False) -> dict[str, Any]:
    """One question answered, models and cards by name and value only."""
    question = Scenario.from_dict(scenario)
    if explain:
        return page.answer(question)
    return plan_json(api.workings(question, paths=False, hub=False))


def _picked(answer: Mapping[str, Any], parts: tuple[str, ...]) -> dict[str, Any]:
    """``answer`` with only the keys that ``parts`` name."""
    picked: dict[str, Any] = {}
    for part in parts:
        *way, last = part.split(".")
        source: Any = answer
        target = picked
        for key in way:
            source = source.get(key) if isinstance(source, Mapping) else None
            target = target.setdefault(key, {})
        if not isinstance(source, Mapping) or last not in source:
            raise KvroomError("parts", part, "is no key of an answer", "See /api/schema.")
        target[last] = source[last]
    return picked
