"""Answers as JSON text for the server: one question or a list of them, those asked lately kept."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvroom.errors import KvroomError
from kvroom.planner.plan import work
from kvroom.scenario.scenario import Scenario
from kvroom.ui import codec
from kvroom.ui.terminal import times
from kvroom.ui.web import page

MAX_SCENARIOS = 64
MAX_PARTS = 64
MAX_KEPT_CHARS = 2**24


class Recent:
    """Texts by key; beyond ``most`` characters in all, those unused for longest are forgotten."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.size = 0
        self.texts: OrderedDict[str, str] = OrderedDict()
        self.lock = threading.Lock()

    def get(self, key: str) -> str | None:
        """The text kept under ``key``."""
        with self.lock:
            if key in self.texts:
                self.texts.move_to_end(key)
            return self.texts.get(key)

    def put(self, key: str, text: str) -> None:
        """Keep ``text``."""
        with self.lock:
            if key not in self.texts:
                self.texts[key] = text
                self.size += len(key) + len(text)
            while self.size > self.most:
                old_key, old = self.texts.popitem(last=False)
                self.size -= len(old_key) + len(old)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a client wants: one Scenario or a list, explained or not, whole or in parts.

    ``parts`` are dotted keys of an answer; none stands for all of it.
    """

    given: Any
    explain: bool = False
    parts: tuple[str, ...] = ()

    def key(self, scenario: Any) -> str:
        """The same for the same question about ``scenario``, however its keys are ordered."""
        return json.dumps([scenario, self.explain, self.parts], sort_keys=True)


def parts_of(text: str) -> tuple[str, ...]:
    """The keys in ``a,b.c``; KvroomError where they are too many."""
    parts = tuple(p for p in text.split(",") if p)
    if len(parts) > MAX_PARTS:
        fix = f"Name at most {MAX_PARTS}, or none for all."
        raise KvroomError("parts", len(parts), "is too many keys", fix)
    return parts


class Answers:
    """Answers questions; ``ready`` only those that need no work."""

    def __init__(self, most: int = MAX_KEPT_CHARS) -> None:
        self.kept = Recent(most)

    def ready(self, asked: Asked) -> str | None:
        """The body, where every question in it was answered lately."""
        many = asked.given if isinstance(asked.given, list) else [asked.given]
        found = []
        for one in many[:MAX_SCENARIOS]:
            text = self.kept.get(asked.key(one))
            if text is None:
                return None
            found.append(text)
        if not 1 <= len(many) <= MAX_SCENARIOS:
            return None
        return f"[{','.join(found)}]" if isinstance(asked.given, list) else found[0]

    def work(self, asked: Asked, stop: threading.Event) -> tuple[int, str]:
        """Status and body; in a list a failure stands in its own place. ``stop`` ends it early."""
        try:
            if not isinstance(asked.given, list):
                return 200, self._one(asked.given, asked)
            if not 1 <= len(asked.given) <= MAX_SCENARIOS:
                fix = f"Send 1 to {MAX_SCENARIOS} Scenarios at a time."
                raise KvroomError("body", len(asked.given), "is no number of questions taken", fix)
            found: list[str] = []
            for one in asked.given:
                if stop.is_set():
                    break
                try:
                    found.append(self._one(one, asked))
                except KvroomError as e:
                    found.append(_failed(e))
            return 200, f"[{','.join(found)}]"
        except KvroomError as e:
            return 422, _failed(e)
        except RecursionError:
            deep = KvroomError("body", None, "is nested too deeply", "Send a plain Scenario.")
            return 400, _failed(deep)

    def _one(self, given: Any, asked: Asked) -> str:
        key = asked.key(given)
        text = self.kept.get(key)
        if text is None:
            text = codec.encode(answer(given, asked))
            self.kept.put(key, text)
        return text


def _failed(error: KvroomError) -> str:
    return codec.encode({"error": error.as_dict()})


def answer(given: Any, asked: Asked) -> dict[str, Any]:
    """One question answered, as far as ``asked`` wants it."""
    scenario = Scenario.from_dict(given)
    found = page.answer(scenario) if asked.explain else times.as_json(work(scenario, paths=False))
    return _picked(found, asked.parts) if asked.parts else found


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
