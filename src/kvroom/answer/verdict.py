"""The verdict: one object, made once (``planner.verdict``), told first wherever an answer is shown."""

from __future__ import annotations

from typing import Literal, TypeAlias

from kvroom.records import dataclass

Status: TypeAlias = Literal["fits", "full", "would_not_start", "unsupported", "unlikely"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why a deployment does not do what is asked of it: the ``rule`` that says so, in words what it says
    (``message``), what would do instead (``fix``, "" where nothing is known), and the rule's ``source``."""

    rule: str
    message: str
    fix: str
    source: str

    @property
    def clause(self) -> str:
        """Message and fix as one clause."""
        return f"{self.message}: {self.fix}" if self.fix else self.message


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Does it start, does it hold what is asked at once (one request where none is asked), what gives way
    first.

    ``status``: ``fits``; ``full``, it starts and holds fewer; ``would_not_start``, by the engine's own
    checks; ``unsupported``, the engine does not run so at all; ``unlikely``, its checks pass and memory
    still runs out. ``binding`` is what runs out first, ``reasons`` say why it is not ``fits``.
    """

    status: Status
    fits: bool
    binding: str
    sentence: str
    reasons: tuple[Reason, ...] = ()

    @property
    def starts(self) -> bool:
        """Whether the engine would start."""
        return self.status not in ("would_not_start", "unsupported")
