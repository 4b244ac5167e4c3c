"""Decode steps that an installed engine's scheduler takes one after the other, without a word between them.

Loaded by path in the engine's own Python, beside its script (``observe/installed/child.py``).
"""

from __future__ import annotations

from typing import Any, Protocol


class StepPlayer(Protocol):
    """A scheduler as it serves."""

    @property
    def steps_in_flight(self) -> int:
        """Steps that are scheduled before the output of the first is there."""
        ...

    @property
    def in_flight(self) -> dict[int, Any]:
        """Steps whose output is on its way, by number, the oldest first."""
        ...

    def schedule(self) -> dict[str, Any]:
        """The next step, as an answer."""
        ...

    def update(self, number: int, kept: dict[str, int]) -> list[int]:
        """Take the output of a step; gives the requests that it finished."""
        ...


def decode(player: StepPlayer, steps: int) -> dict[str, Any]:
    """Schedule up to so many steps and take their outputs, while each is the one before over again.

    Gives how many were ``done``, the number of the last (``step``), the most blocks ``held``, and in ``next``
    the answer of a step that was otherwise. Each step is the engine's own decision.
    """
    answer: dict[str, Any] = {"done": 0, "step": -1, "held": 0}
    for _ in range(steps):
        told = player.schedule()
        if "same" not in told or "admitted" in told or "preempted" in told:
            return answer | {"next": told}
        answer["done"] += 1
        answer["step"] = told["step"]
        answer["held"] = max(answer["held"], told["held"])
        while len(player.in_flight) >= player.steps_in_flight:
            player.update(next(iter(player.in_flight)), {})
    return answer
