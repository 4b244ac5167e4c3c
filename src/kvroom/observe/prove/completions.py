"""A client of an engine's ``/v1/completions`` that asks in token ids and notes when each token came.

Prompts are token ids and answers are read as such, so that what the engine holds in its cache is known
to the block. One address is contacted, as ``endpoint`` has it; every request has a connection and a
thread of its own.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import field, replace
from functools import partial
from typing import Any

from kvroom.observe import prometheus
from kvroom.observe.endpoint import Endpoint, NoAnswerError
from kvroom.observe.prometheus import Reading
from kvroom.records import dataclass

PATIENCE_S = 600.0
"""A stream that is silent so long has failed."""
METRICS_S = 10.0


@dataclass(frozen=True, slots=True)
class Ask:
    """One request: its prompt's token ids, how many tokens to answer (always all of them), and how many
    seconds after the beginning it is sent."""

    prompt: Sequence[int]
    output_tokens: int
    at_s: float = 0.0


@dataclass(slots=True)
class Heard:
    """What came of an Ask: when it was sent and when each token came (seconds since the beginning), the
    tokens, and why it failed ("" where it did not)."""

    ask: Ask
    sent_s: float = 0.0
    tokens_s: list[float] = field(default_factory=list)
    answer: list[int] = field(default_factory=list)
    error: str = ""

    @property
    def ttft_s(self) -> float:
        """Seconds to the first token."""
        return self.tokens_s[0] - self.sent_s


OnTokens = Callable[[int, int], None]
"""Told, in a request's own thread, its place among the asks and how many of its tokens came so far."""


@dataclass(frozen=True, slots=True)
class AskedEngine:
    """A server that is asked: ``metrics`` is where its figures are, ``model`` how it calls what it
    serves."""

    metrics: Endpoint
    model: str

    @classmethod
    def at(cls, url: str) -> AskedEngine:
        """The engine at ``url`` and its first model; NoAnswerError where it tells none."""
        endpoint = Endpoint.of(url)
        asked = replace(endpoint, path="/v1/models", query="")
        try:
            name = json.loads(asked.fetch(METRICS_S))["data"][0]["id"]
        except (ValueError, LookupError, TypeError):
            raise NoAnswerError("it lists no model at /v1/models") from None
        return cls(endpoint, str(name))

    def reading(self) -> Reading:
        """Its metrics now; NoAnswerError where they cannot be read."""
        reading = prometheus.read(self.metrics.fetch(METRICS_S))
        if reading is None:
            raise NoAnswerError("its metrics hold no figure of a known engine")
        return reading

    def one_by_one(self, asks: Sequence[Ask]) -> list[Heard]:
        """Each sent when the one before it is answered."""
        begun = time.monotonic()
        return [self._heard(replace(ask, at_s=0.0), begun) for ask in asks]

    def together(self, asks: Sequence[Ask], on_tokens: OnTokens | None = None) -> list[Heard]:
        """Each sent at its time, whatever the others do."""
        begun = time.monotonic()
        answers: list[Heard] = [Heard(ask) for ask in asks]

        def run(i: int) -> None:
            told = None if on_tokens is None else partial(on_tokens, i)
            answers[i] = self._heard(asks[i], begun, told)

        threads = [
            threading.Thread(target=run, args=(index,), daemon=True) for index in range(len(asks))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return answers

    def _heard(
        self, ask: Ask, begun: float, on_tokens: Callable[[int], None] | None = None
    ) -> Heard:
        """One request from beginning to end; what fails is told in it."""
        heard = Heard(ask)
        body = json.dumps(
            {
                "model": self.model,
                "prompt": list(ask.prompt),
                "max_tokens": ask.output_tokens,
                "temperature": 0,
                "ignore_eos": True,
                "return_token_ids": True,
                "stream": True,
            }
        )
        headers = {**self.metrics.headers, "Content-Type": "application/json", "Accept": "*/*"}
        with closing(self.metrics.connection(PATIENCE_S)) as connection:
            try:
                connection.connect()
                time.sleep(max(0.0, begun + ask.at_s - time.monotonic()))
                heard.sent_s = time.monotonic() - begun
                connection.request("POST", "/v1/completions", body, headers)
                with closing(connection.getresponse()) as answer:
                    if answer.status != http.client.OK:
                        heard.error = f"status {answer.status}: {answer.read(300)!r}"
                        return heard
                    _listen(answer, heard, begun, on_tokens)
            except (http.client.HTTPException, OSError) as error:
                heard.error = f"{type(error).__name__} after {len(heard.answer)} tokens"
        if not heard.error and len(heard.answer) != ask.output_tokens:
            heard.error = f"{len(heard.answer)} of {ask.output_tokens} tokens came"
        return heard


def _listen(
    answer: http.client.HTTPResponse,
    heard: Heard,
    begun: float,
    on_tokens: Callable[[int], None] | None,
) -> None:
    """Read the stream's events as they come; tokens that come in one event came at one time."""
    while line := answer.readline(1_000_000):
        if not line.startswith(b"data:"):
            continue
        text = line[5:].strip()
        if text == b"[DONE]":
            return
        now = time.monotonic() - begun
        ids = _ids(text)
        heard.answer += ids
        heard.tokens_s += [now] * len(ids)
        if on_tokens is not None and ids:
            on_tokens(len(heard.answer))


def _ids(text: bytes) -> list[int]:
    """The token ids of one event; none where it holds none."""
    try:
        value: Any = json.loads(text)
        ids = value["choices"][0].get("token_ids")
    except (ValueError, LookupError, TypeError, AttributeError):
        return []
    whole = isinstance(ids, list) and all(type(i) is int for i in ids)
    return list(ids) if whole else []
