"""vLLM's custom dataset (JSONL of prompts) and the input files of GenAI-Perf and AIPerf."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kvroom.errors import KvroomError
from kvroom.workloads.requests import Request, RequestGraph
from kvroom.workloads.traces.base import Format, Row, RowOptions
from kvroom.workloads.traces.fields import at, objects, session
from kvroom.workloads.traces.text import LIMITS, Text, answer_limit, prompt_of

CUSTOM_OUTPUT_TOKENS = 256
"""``vllm bench serve --custom-output-len`` where it is not given."""
DEFAULTED = f"answers of rows without output_tokens have {CUSTOM_OUTPUT_TOKENS} tokens, as vllm bench serve's"


def custom(options: RowOptions) -> Row:
    """``prompt``, optional ``output_tokens`` (or the ``completion`` as text)."""

    def row(values: Mapping[str, Any]) -> Request:
        prompt = prompt_of(values, options)
        if prompt is None:
            raise KvroomError("prompt", values.get("prompt"), "is no text", "Write the prompt.")
        answer = answer_limit(values)
        if answer is None and isinstance(completion := at(values, "completion", "response"), str):
            answer = Text(options).add(completion)
        if answer is None:
            answer = CUSTOM_OUTPUT_TOKENS
            options.note(DEFAULTED)
        return Request(0, prompt[0], answer, prompt[1])

    return row


def inputs(options: RowOptions) -> Row:
    """``data``: sessions of ``payloads`` (GenAI-Perf: ``payload``), each an OpenAI request."""

    def row(values: Mapping[str, Any]) -> list[RequestGraph]:
        chats = objects(values.get("data"))
        sessions = [RequestGraph.chain(turns(index, chat)) for index, chat in enumerate(chats)]
        if not any(session.requests for session in sessions):
            raise KvroomError(
                "data", None, "holds no payload", "Give inputs.json as it was written."
            )
        return sessions

    def turns(number: int, chat: Mapping[str, Any]) -> Iterator[Request]:
        name = session(chat, "session_id")
        for body in objects(at(chat, "payloads", "payload")):
            prompt, answer = prompt_of(body, options), answer_limit(body)
            if prompt is None or answer is None:
                lacking = "messages" if prompt is None else "max_tokens"
                raise KvroomError(lacking, None, "is missing in a payload", "Give it too.")
            options.note(LIMITS)
            yield Request(0, prompt[0], answer, prompt[1], number if name is None else name)

    return row


def _inputs(values: Mapping[str, Any]) -> bool:
    return any(at(chat, "payloads", "payload") is not None for chat in objects(values["data"])[:1])


CUSTOM = Format("vLLM custom dataset", ("prompt",), custom, timed=False)
INPUTS = Format("AIPerf inputs", ("data",), inputs, timed=False, sessions=True, known=_inputs)
