"""OpenAI-format requests: batch files (JSONL in, JSONL out) and the logs of gateways."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any

from kvroom.errors import KvroomError
from kvroom.units import check_int
from kvroom.workloads.requests import PS_PER_S, HashIds, Prefix, Request
from kvroom.workloads.traces.base import Format, Row, RowOptions
from kvroom.workloads.traces.fields import (
    PS_PER_MS,
    at,
    moment_ps,
    objects,
    span_ps,
    table,
    whole_tokens,
)
from kvroom.workloads.traces.text import LIMITS, Text, answer_limit, message_text, prompt_of

USAGE = ("usage", "response.usage", "response.body.usage", "body.usage", "metadata.usage_object")
BODIES = ("request.body", "request", "request_body", "body", "input")
ANSWERS = ("response.body", "response", "response_body", "output", "completion")
TIMES = (
    "timestamp",
    "startTime",
    "start_time",
    "request_time",
    "created_at",
    "created",
    "time",
    "request.timestamp",
    "response.created",
    "response.body.created",
)
ENDS = ("endTime", "end_time", "response_time_stamp", "finished_at", "ended_at")
TOOK = (
    ("duration_ms", PS_PER_MS),
    ("latency_ms", PS_PER_MS),
    ("request_duration_ms", PS_PER_MS),
    ("response_time", PS_PER_S),
    ("duration", PS_PER_S),
    ("latency", PS_PER_S),
)
CACHED = (
    "prompt_tokens_details.cached_tokens",
    "input_tokens_details.cached_tokens",
    "cache_read_input_tokens",
    "cached_tokens",
)
SESSIONS = (
    "session_id",
    "conversation_id",
    "metadata.session_id",
    "litellm_session_id",
    "metadata.trace_id",
    "trace_id",
    "metadata.user_id",
)
INPUTS = ("prompt_tokens", "input_tokens")
OUTPUTS = ("completion_tokens", "output_tokens")


def _body(values: Mapping[str, Any]) -> Mapping[str, Any]:
    for path in BODIES:
        body = at(values, path)
        if isinstance(body, Mapping) and at(body, "messages", "prompt", "input") is not None:
            return body
    return values


def _usage(values: Mapping[str, Any]) -> Mapping[str, Any]:
    return table(at(values, *USAGE)) or values


def _answer(values: Mapping[str, Any], options: RowOptions) -> int | None:
    """Tokens of the answer's text."""
    answer = at(values, *ANSWERS)
    text = Text(options)
    if isinstance(answer, str):
        return text.add(answer)
    for choice in objects(at(answer, "choices")):
        said = at(choice, "message", "text")
        return text.add(said if isinstance(said, str) else message_text(said))
    return None


def _lengths(values: Mapping[str, Any], options: RowOptions) -> tuple[int, int, Prefix | None]:
    """Tokens of a prompt and of its answer as ``usage`` says, else of their text."""
    usage, body = _usage(values), _body(values)
    asked, answered = at(usage, *INPUTS), at(usage, *OUTPUTS)
    read = prompt_of(body, options) if asked is None or options.tokenizer else None
    if asked is None and read is None:
        why = "has neither usage nor messages"
        raise KvroomError("row", sorted(values)[:5], why, "Log one of them with every request.")
    if answered is None:
        answered = _answer(values, options)
    if answered is None:
        answered = answer_limit(body)
        if answered is None:
            fix = "Give the batch's output, or a log with usage in it."
            raise KvroomError("max_tokens", None, "is missing: no length of an answer", fix)
        options.note(LIMITS)
    prompt = whole_tokens("prompt_tokens", asked if read is None else read[0], 1)
    answer = whole_tokens("completion_tokens", answered, 0)
    return prompt, answer, None if read is None else read[1]


def _took(values: Mapping[str, Any], begun_ps: int) -> int:
    """How long the answer took, 0 where the log does not say it."""
    ended = next((path for path in ENDS if at(values, path) is not None), None)
    if ended is not None:
        end = moment_ps(ended, at(values, ended))
        if end < begun_ps:
            raise KvroomError(ended, at(values, ended), "is before its start", "Mend the clock.")
        return end - begun_ps
    for name, unit_ps in TOOK:
        if (value := at(values, name)) is not None:
            return span_ps(name, value, unit_ps)
    return 0


def _hashed(values: Mapping[str, Any], options: RowOptions) -> HashIds | None:
    """LiteLLM's chained digests of a prompt's blocks (its callback ``prefix_block_hashes``)."""
    hashes = table(at(values, "metadata.prefix_block_hashes", "prefix_block_hashes"))
    ids, size = at(hashes, "hash_ids", "ids", "hashes"), at(hashes, "block_size", "block_tokens")
    if not isinstance(ids, list) or not ids:
        return None
    try:
        digests = array("Q", [i if type(i) is int else int(str(i), 16) for i in ids])
    except (ValueError, OverflowError):
        raise KvroomError("hash_ids", ids[0], "is no digest", "Write 16 hex digits.") from None
    return HashIds(digests, check_int("block_size", size or 16, low=1, high=2**20))


def batch(options: RowOptions) -> Row:
    """``custom_id`` with ``body`` (a batch's input) or ``response`` (its output)."""

    def row(values: Mapping[str, Any]) -> Request | tuple[()]:
        failed = values.get("error") is not None or at(values, "response.status_code") not in (
            None,
            200,
        )
        if failed:
            options.note(FAILED)
            return ()
        prompt, answer, prefix = _lengths(values, options)
        return Request(0, prompt, answer, prefix)

    return row


FAILED = "requests that failed are left out"


def log(options: RowOptions) -> Row:
    """A request a line: when it came, ``usage`` or the text of ``messages`` and ``choices``; LiteLLM's
    ``standard_logging_object`` is such a line too."""

    def row(values: Mapping[str, Any]) -> Request | tuple[()]:
        values = _payload(values)
        if values.get("error") or values.get("status") == "failure":
            options.note(FAILED)
            return ()
        name = next((path for path in TIMES if at(values, path) is not None), None)
        if name is None:
            raise KvroomError(
                "timestamp", None, "is missing", f"Log one of {', '.join(TIMES[:6])}."
            )
        prompt, answer, prefix = _lengths(values, options)
        session = at(values, *SESSIONS)
        begun = moment_ps(name, at(values, name))
        request = Request(
            begun,
            prompt,
            answer,
            _hashed(values, options) or prefix,
            session if isinstance(session, int | str) else None,
            took_ps=_took(values, begun),
        )
        cached = at(_usage(values), *CACHED)
        return options.continued(request, cached if type(cached) is int else None)

    return row


def _payload(values: Mapping[str, Any]) -> Mapping[str, Any]:
    return table(at(values, "standard_logging_object", "kwargs.standard_logging_object")) or values


def _logs(values: Mapping[str, Any]) -> bool:
    """Whether rows with these values are a log: they say when, and how long or what."""
    values = _payload(values)
    if at(values, *TIMES) is None:
        return False
    usage = at(_usage(values), *INPUTS) is not None
    return usage or at(_body(values), "messages", "prompt") is not None


def _batches(values: Mapping[str, Any]) -> bool:
    return isinstance(at(values, "body", "response"), Mapping)


BATCH = Format("OpenAI batch", ("custom_id",), batch, timed=False, known=_batches)
LOG = Format("OpenAI request log", (), log, known=_logs)
