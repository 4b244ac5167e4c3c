"""OpenTelemetry spans of GenAI calls, as the collector's file exporter writes them (OTLP JSON).

A row is an export request: ``resourceSpans`` → ``scopeSpans`` → ``spans``. Spans whose
``gen_ai.operation.name`` is a call of a model are requests, those of tools and agents are the time between
them; what a call waited for follows from when spans began and ended. Attribute names are those of the
semantic conventions since 1.27 (opentelemetry.io/docs/specs/semconv/gen-ai) and the older ones; spans of the
conventions of OpenInference (``llm.token_count.prompt``) are read too.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

from kvroom.errors import KvroomError
from kvroom.workloads.requests import Prefix, Request
from kvroom.workloads.traces.base import Format, Item, Row, RowOptions
from kvroom.workloads.traces.fields import PS_PER_NS, objects, span_ps, whole_tokens
from kvroom.workloads.traces.openai import FAILED
from kvroom.workloads.traces.opened import json_row
from kvroom.workloads.traces.text import Text, message_text

INPUTS = (
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.prompt_tokens",
    "llm.token_count.prompt",
    "llm.usage.prompt_tokens",
)
OUTPUTS = (
    "gen_ai.usage.output_tokens",
    "gen_ai.usage.completion_tokens",
    "llm.token_count.completion",
    "llm.usage.completion_tokens",
)
CACHED = (
    "gen_ai.usage.cache_read.input_tokens",
    "gen_ai.usage.cache_read_input_tokens",
    "gen_ai.usage.cached_tokens",
    "llm.token_count.prompt_details.cache_read",
)
SESSIONS = ("gen_ai.conversation.id", "session.id", "gen_ai.session.id", "conversation.id")
CALLS = ("chat", "text_completion", "generate_content", "completion", "responses")
PROMPTS = ("gen_ai.input.messages", "gen_ai.prompt", "input.value")
ANSWERS = ("gen_ai.output.messages", "gen_ai.completion", "output.value")
MOST_PARENTS = 200_000
"""Spans whose parents are remembered."""
STATUS_ERROR = (2, "STATUS_CODE_ERROR")
OTHER_SPANS = (
    "spans that are no call of a model are not requests: their time lies between the calls"
)


def otel(options: RowOptions) -> Row:
    """An export request a row; each bad span is told of alone."""
    parents: OrderedDict[tuple[str, str], str] = OrderedDict()

    def row(values: Mapping[str, Any]) -> Iterator[Item]:
        for span in _spans(values):
            try:
                _check_parents(span, parents)
                request = _request(span, options)
            except KvroomError as error:
                yield error
                continue
            if request is not None:
                yield request

    return row


def _spans(values: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for resource in objects(values.get("resourceSpans", values.get("resource_spans"))):
        for scope in objects(resource.get("scopeSpans", resource.get("scope_spans"))):
            yield from objects(scope.get("spans"))


def _check_parents(span: Mapping[str, Any], parents: OrderedDict[tuple[str, str], str]) -> None:
    """KvroomError where a span is its own ancestor."""
    trace, own = str(span.get("traceId") or ""), str(span.get("spanId") or "")
    parent = str(span.get("parentSpanId") or "")
    if not own or not parent:
        return
    seen, at = {own}, parent
    while at:
        if at in seen:
            fix = "Give spans whose parents lead to a root."
            raise KvroomError("parentSpanId", parent, f"makes a cycle with span {own}", fix)
        seen.add(at)
        at = parents.get((trace, at), "")
    parents[trace, own] = parent
    if len(parents) > MOST_PARENTS:
        parents.popitem(last=False)


def _attributes(span: Mapping[str, Any]) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    for pair in objects(span.get("attributes")):
        value = pair.get("value")
        if isinstance(value, Mapping) and value:
            attributes[str(pair.get("key"))] = next(iter(value.values()))
    return attributes


def _first(attributes: Mapping[str, Any], names: tuple[str, ...]) -> tuple[str, Any]:
    return next(
        ((name, attributes[name]) for name in names if attributes.get(name) is not None), ("", None)
    )


def _request(span: Mapping[str, Any], options: RowOptions) -> Request | None:
    attributes = _attributes(span)
    asked_name, prompt = _first(attributes, INPUTS)
    operation = attributes.get("gen_ai.operation.name")
    if not (operation in CALLS or (operation is None and prompt is not None)):
        options.note(OTHER_SPANS)
        return None
    status = span.get("status")
    if isinstance(status, Mapping) and status.get("code") in STATUS_ERROR:
        options.note(FAILED)
        return None
    begun = span_ps("startTimeUnixNano", span.get("startTimeUnixNano"), PS_PER_NS)
    ended = span_ps("endTimeUnixNano", span.get("endTimeUnixNano") or 0, PS_PER_NS)
    if ended and ended < begun:
        why = "is before the span's start"
        raise KvroomError("endTimeUnixNano", span["endTimeUnixNano"], why, "Mend the clock.")
    prefix: Prefix | None = None
    _, messages = _first(attributes, PROMPTS)
    if messages is not None and (prompt is None or options.tokenizer is not None):
        text = _text(messages, options)
        prompt, asked_name, prefix = text.tokens, "gen_ai.input.messages", text.prefix()
    if prompt is None:
        why = "is missing: no tokens of the prompt, and no messages"
        raise KvroomError(INPUTS[0], None, why, "Record usage, or the messages.")
    answer_name, answer = _first(attributes, OUTPUTS)
    if answer is None:
        said = _first(attributes, ANSWERS)[1]
        if said is None:
            why = "is missing: no tokens of the answer, and no messages"
            raise KvroomError(OUTPUTS[0], None, why, "Record usage, or the messages.")
        answer, answer_name = _text(said, options).tokens, "gen_ai.output.messages"
    session = _first(attributes, SESSIONS)[1] or span.get("traceId")
    request = Request(
        begun,
        whole_tokens(asked_name, _number(prompt), 1),
        whole_tokens(answer_name, _number(answer), 0),
        prefix,
        session if isinstance(session, int | str) else None,
        took_ps=max(0, ended - begun),
    )
    cached = _number(_first(attributes, CACHED)[1])
    return options.continued(request, cached if type(cached) is int else None)


def _number(value: Any) -> Any:
    """OTLP JSON writes 64-bit numbers as text."""
    return int(value) if isinstance(value, str) and value.isdecimal() else value


def _text(messages: Any, options: RowOptions) -> Text:
    text = Text(options)
    if isinstance(messages, str):
        try:
            parsed: Any = json_row(f'{{"m": {messages}}}'.encode())["m"]
        except KvroomError:
            parsed = messages
        messages = parsed
    for part in messages if isinstance(messages, list) else [messages]:
        if isinstance(part, str):
            text.add(part)
        elif isinstance(part, Mapping):
            parts = objects(part.get("parts"))
            words = [str(p.get("content") or p.get("arguments") or "") for p in parts]
            own = {"role": part.get("role"), "content": "\n".join(words)} if parts else part
            text.add(message_text(own))
    return text


def _exported(values: Mapping[str, Any]) -> bool:
    return bool(objects(values.get("resourceSpans", values.get("resource_spans"))))


FORMAT = Format("OpenTelemetry spans", (), otel, 16, known=_exported)
