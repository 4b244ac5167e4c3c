"""Speculative decoding between a Scenario's words and an engine's flags: either into the other.

Each engine says how its own flags read and write (``Engine.draft_flags``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from kvroom.errors import KvroomError
from kvroom.models import catalogue
from kvroom.scenario.speculation import (
    DEFAULT_TOKENS,
    MOST_TOKENS,
    Speculation,
    SpeculativeDecoding,
)

HEAD = "PATH_OF_THE_HEAD"
"""What stands for a head that the question does not name."""


class DraftFlags:
    """How an engine is told to draft; this one has no flags for it."""

    model_flag = ""
    """The flag that names the draft model, where one does by itself."""

    def read(self, args: Mapping[str, Any]) -> Speculation | None:
        """What the flags ask for; None where nothing is drafted."""
        return None

    def write(self, speculation: Speculation, version: str | None = None) -> dict[str, Any]:
        """The flags that ask for it, as the release has them; nothing where it has none."""
        return {}

    def head(self, method: str, config: dict[str, Any]) -> dict[str, Any]:
        """The config of a head that drafts for the model of ``config``, one layer like its own."""
        return config

    def comparable(
        self, flags: dict[str, Any], speculation: Speculation, written: Mapping[str, Any]
    ) -> dict[str, Any]:
        """``flags`` with words that mean the same as those of ``written`` replaced by them."""
        if self.model_flag in flags:
            flags = flags | {self.model_flag: draft_name(speculation)}
        return flags


def speculation_of(
    speculation: SpeculativeDecoding | None, flags: DraftFlags, args: Mapping[str, Any]
) -> Speculation | None:
    """What the engine's flags ask for, else the Scenario; None where nothing is drafted.

    No flag says how many drafts are accepted: that is the Scenario's to say.
    """
    by_flags = flags.read(args)
    if speculation is None:
        return by_flags
    rate = speculation.acceptance_rate
    if by_flags is None:
        method = speculation.method
        usual = len(rate) if isinstance(rate, tuple) else DEFAULT_TOKENS.get(method, 3)
        by_flags = Speculation(
            method=method,
            tokens=speculation.num_speculative_tokens or usual,
            model=speculation.model,
        )
    if isinstance(rate, tuple) and len(rate) < by_flags.tokens:
        why = f"has {len(rate)} positions of the {by_flags.tokens} tokens drafted"
        raise KvroomError("speculation.acceptance_rate", list(rate), why, "Give all of them.")
    most = speculation.max_concurrency
    schedule = by_flags.schedule if most is None else (*by_flags.schedule, (most + 1, 0))
    return replace(by_flags, acceptance_rate=rate, schedule=schedule)


def from_flags(
    flags: DraftFlags, args: Mapping[str, Any], model: Any, load: Callable[[Any], Any]
) -> tuple[SpeculativeDecoding | None, dict[str, Any]]:
    """(a Scenario's ``speculation``, the flags without those that it says) of an engine's flags.

    None, and all flags, where they say more than a Scenario can, or name a draft that ``load`` does not
    know: as flags they are followed as far as they go. ``load`` reads ``model`` and drafts.
    """
    every = dict(args)
    drafts = flags.read(args)
    if drafts is None:
        return None, every
    written = flags.write(drafts)
    stated = {
        key: _parsed(value)
        for key, value in every.items()
        if key in written or key.startswith("spec")
    }
    if flags.comparable(stated, drafts, written) != written or not _readable(drafts, model, load):
        return None, every
    rest = {key: value for key, value in every.items() if key not in written}
    return SpeculativeDecoding(
        method=drafts.method, model=drafts.model, num_speculative_tokens=drafts.tokens
    ), rest


def draft_name(speculation: Speculation) -> str:
    """What a flag calls the draft model."""
    model = speculation.model
    return catalogue.loaded_as(model) if isinstance(model, str) else HEAD


def draft_tokens(value: Any) -> int:
    """Tokens drafted a step, as a flag says; 3 where it says nothing that can be read."""
    try:
        return min(max(int(value), 1), MOST_TOKENS)
    except (TypeError, ValueError):
        return 3


def _parsed(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def _readable(speculation: Speculation, model: Any, load: Callable[[Any], Any]) -> bool:
    """Whether what ``s`` drafts with is known: the model's own layers, or a model named."""
    try:
        if speculation.method == "mtp":
            return speculation.model is None and bool(load(model).mtp)
        return speculation.method == "ngram" or (
            speculation.model is not None and load(speculation.model) is not None
        )
    except KvroomError:
        return False
