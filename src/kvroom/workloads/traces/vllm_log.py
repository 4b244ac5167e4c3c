"""vLLM's own request log: what an API server prints with ``--enable-log-requests``.

``Received request ID: …`` tells when a request came and, by release, its prompt or its token ids (since
0.11.1 at the level DEBUG, in ``Request ID details: …``); with ``--enable-log-outputs``
``Generated response ID (…): …`` tells what was answered. A request without an answer in the log has its
``max_tokens``. Dates of log lines have no year: only distances count.
"""

from __future__ import annotations

import ast
import re
from array import array
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

from kvroom.errors import KvroomError
from kvroom.workloads.requests import PS_PER_S, Prefix, Request, TokenIds
from kvroom.workloads.traces.base import Format, Item, Row, RowOptions
from kvroom.workloads.traces.fields import date_ps
from kvroom.workloads.traces.text import LIMITS, Text, token_ids

LINE = "line"
"""The key under which a row holds its text."""
YEAR = 2026
DAYS = 366
MOST_OPEN = 100_000
"""Requests that wait for their answer's line."""
_STAMP = re.compile(r"(?:^|\s)(?:INFO|DEBUG)\s+(\d\d)-(\d\d)\s+(\d\d:\d\d:\d\d(?:[.,]\d+)?)")
_RECEIVED = re.compile(r"Received request ([^\s:]+): (.*)", re.DOTALL)
_DETAILS = re.compile(r"Request ([^\s:]+) details: (.*)", re.DOTALL)
_GENERATED = re.compile(r"Generated response ([^\s:(]+)[^:]*: output: (.*)", re.DOTALL)
_MAX_TOKENS = re.compile(r"max_tokens=(\d+)")
_IDS = re.compile(r"(?:prompt|output)_token_ids: (\[[\d,\s]*\])")
_PROMPT = re.compile(r"prompt: ('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")", re.DOTALL)
UNANSWERED = "answers that the log does not hold are taken to be as long as max_tokens"


class _Open:
    """A request whose answer's line has not come."""

    __slots__ = ("begun_ps", "most", "prompt")

    def __init__(self, begun_ps: int) -> None:
        self.begun_ps = begun_ps
        self.most: int | None = None
        self.prompt: tuple[int, Prefix] | None = None


def vllm_log(options: RowOptions) -> Row:
    """A line of the log a row; requests come out as their answers do."""
    opened: OrderedDict[str, _Open] = OrderedDict()
    ended = False

    def row(values: Mapping[str, Any]) -> Iterator[Item]:
        nonlocal ended
        line = values[LINE]
        if line is None:  # the log is over
            ended = True
            while opened:
                yield _closed(opened.popitem(last=False), None, 0, options)
            return
        stamp = _STAMP.search(line)
        if stamp is None:
            return
        now = date_ps(f"{YEAR}-{stamp[1]}-{stamp[2]} {stamp[3].replace(',', '.')}", "timestamp")
        if match := _RECEIVED.search(line):
            request = opened.setdefault(match[1], _Open(now))
            _learn(request, match[2], options)
            if most := _MAX_TOKENS.search(match[2]):
                request.most = int(most[1])
        elif match := _DETAILS.search(line):
            _learn(opened.setdefault(match[1], _Open(now)), match[2], options)
        elif match := _GENERATED.search(line):
            # A completion's prompts are numbered when they come, its answer is not.
            key = match[1] if match[1] in opened else f"{match[1]}-0"
            if key in opened:
                answer = _answer(match[2], options)
                yield _closed((key, opened.pop(key)), answer, now, options)
        if len(opened) > MOST_OPEN:
            yield _closed(opened.popitem(last=False), None, 0, options)

    return row


def _learn(request: _Open, told: str, options: RowOptions) -> None:
    """What a line says of a prompt."""
    if ids := _IDS.search(told):
        listed = array("I", ast.literal_eval(ids[1]))
        if listed:
            request.prompt = len(listed), TokenIds(listed)
            return
    if request.prompt is None and (match := _PROMPT.search(told)):
        text = Text(options)
        text.add(ast.literal_eval(match[1]))
        if text.tokens:
            request.prompt = text.tokens, text.prefix()


def _answer(text: str, options: RowOptions) -> int | None:
    if ids := _IDS.search(text):
        return len(token_ids(ast.literal_eval(ids[1])))
    match = re.match(r"('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")", text, re.DOTALL)
    return Text(options).add(ast.literal_eval(match[1])) if match else None


def _closed(entry: tuple[str, _Open], answer: int | None, now: int, options: RowOptions) -> Item:
    key, request = entry
    if request.prompt is None:
        fix = "Log prompts too: VLLM_LOGGING_LEVEL=DEBUG with --enable-log-requests."
        return KvroomError("prompt", key, "is not in the log: no length of a prompt", fix)
    if answer is None:
        if request.most is None:
            fix = "Log answers too: --enable-log-outputs."
            return KvroomError("output", key, "is not in the log: no length of an answer", fix)
        answer = request.most
        options.note(UNANSWERED)
        options.note(LIMITS)
    tokens, prefix = request.prompt
    took = now - request.begun_ps if now else 0
    if took < 0:
        took += DAYS * 86_400 * PS_PER_S
    return Request(request.begun_ps, tokens, answer, prefix, took_ps=took)


def is_log(line: bytes) -> bool:
    """Whether a line is one of vLLM's request log."""
    text = line[:4096].decode("utf-8", "replace")
    match = _RECEIVED.search(text) or _DETAILS.search(text)
    return bool(match and _STAMP.search(text))


FORMAT = Format("vLLM request log", (LINE,), vllm_log)
