"""One question of the page, and who reads its answer as it comes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Protocol

from kvroom.records import dataclass

cpu_time: Callable[[], float] = getattr(time, "thread_time", time.perf_counter)
"""Seconds of a processor that this thread has taken; where a machine does not tell (WebAssembly), those that
went by."""


class Gone(Exception):
    """Raised inside a job whose reader has left."""


class Listener(Protocol):
    """Who reads an answer as it comes."""

    heading: dict[str, Any] | None
    """Sent before the first line: until then the job may still be refused."""

    def say(self, value: dict[str, Any]) -> None:
        """Send one line; Gone where nobody reads."""

    def gone(self) -> bool:
        """Whether nobody reads any more."""


@dataclass(frozen=True, slots=True)
class PageQuestion:
    """One request: its ``body`` (a JSON value, or a file's bytes) and the words of its address."""

    body: Any = None
    query: Mapping[str, str] = field(default_factory=dict)

    @property
    def decimal(self) -> bool:
        """Memory is counted as cards are sold, in GB (``units=gb``); else as engines print it, in GiB."""
        return self.query.get("units") == "gb"

    def key(self, path: str) -> str:
        """The same for the same question, however its keys are ordered."""
        return json.dumps([path, dict(self.query), self.body], sort_keys=True)
