"""What an engine calls its limits: the share of memory it takes, tokens in a batch, sequences at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvroom.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagTrial:
    """A flag worth trying: ``value``, in ``words``, one of a ``family`` of levers."""

    flag: str
    value: Any
    words: str
    family: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitFlags:
    """Names of flags, "" where the engine has none.

    ``share_values`` are shares worth trying, ``usual_share`` the default (0: a rule's), ``share_aliases``
    other names of that flag. ``state_sequences`` are counts of sequences to try for models whose
    recurrent state takes a block a sequence, ``trials`` further flags worth trying.
    """

    batch_tokens: str = ""
    share: str = ""
    sequences: str = ""
    usual_share: float = 0.0
    share_values: tuple[float, ...] = ()
    share_aliases: tuple[str, ...] = ()
    state_sequences: tuple[int, ...] = ()
    trials: tuple[FlagTrial, ...] = ()

    def share_flag(self, args: Mapping[str, Any]) -> str:
        """The name under which ``args`` have the share, else the usual one."""
        return next((name for name in self.share_aliases if name in args), self.share)
