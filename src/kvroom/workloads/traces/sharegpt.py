"""ShareGPT JSON: conversations as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvroom.errors import KvroomError
from kvroom.workloads.requests import Request, RequestGraph
from kvroom.workloads.traces.base import Format, Row, RowOptions
from kvroom.workloads.traces.fields import at, objects
from kvroom.workloads.traces.text import Text, message_text

ANSWERS = ("gpt", "assistant", "model", "chatgpt", "bing", "bard")
"""Who answers, in ``from`` or ``role``."""


def sharegpt(options: RowOptions) -> Row:
    """``conversations`` (or ``messages``): a list of {``from``, ``value``}; a request for every answer."""
    count = 0

    def row(values: Mapping[str, Any]) -> RequestGraph:
        nonlocal count
        count += 1
        text = Text(options)
        requests: list[Request] = []
        messages = objects(at(values, "conversations", "conversation", "items"))
        for message in messages:
            prompt = text.tokens
            before = text.prefix() if _answers(message) and prompt else None
            answer = text.add(message_text(message))
            if before is not None:
                requests.append(Request(0, prompt, answer, before, session=count))
        if not requests:
            fix = "A conversation needs a question and an answer to it."
            raise KvroomError("conversations", len(messages), "hold no answer", fix)
        return RequestGraph.chain(requests)

    return row


def _answers(message: Mapping[str, Any]) -> bool:
    return at(message, "from", "role") in ANSWERS


FORMAT = Format("ShareGPT", ("conversations",), sharegpt, timed=False, sessions=True)
