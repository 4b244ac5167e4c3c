"""Data-parallel ranks that step together, as attention ranks around shared experts do.

Every layer of experts takes tokens of all ranks, so no rank is ahead of another: a step lasts as long as
its slowest rank takes, and a rank with nothing to do runs along. Each rank has requests, blocks and a
cache of its own (vLLM and SGLang: data-parallel attention).
"""

from __future__ import annotations

from collections import deque
from typing import Any

from kvroom.engines.scheduler import Pass
from kvroom.simulator.live import FOREVER
from kvroom.simulator.loop import Stepper


class Rank(Stepper):
    """One rank: what it is asked to do the whole ``group`` does."""

    def __init__(self, group: Lockstep, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.group = group
        group.ranks.append(self)

    def advance(self, until: int = FOREVER, events: int = FOREVER) -> bool:
        """Take all scheduling decisions of the group that fall before ``until``."""
        return self.group.advance(until, events)

    @property
    def wakes_ps(self) -> int:
        """When the group next decides anything."""
        return self.group.wakes_ps


class Lockstep:
    """Ranks whose scheduling passes begin and end together."""

    def __init__(self) -> None:
        self.ranks: list[Rank] = []
        self._flying: deque[tuple[list[Pass], int]] = deque()

    @property
    def wakes_ps(self) -> int:
        """When they next decide anything; FOREVER where none has anything to do."""
        if self._flying or any(r.running for r in self.ranks):
            return self.ranks[0].decide
        return max(self.ranks[0].decide, min(r.next_ps for r in self.ranks))

    def advance(self, until: int, events: int) -> bool:
        """Take all scheduling decisions that fall before ``until``; False where ``events`` passes were
        not enough."""
        ranks, flying = self.ranks, self._flying
        while ranks[0].decide < until:
            if not events:
                return False
            events -= 1
            now = ranks[0].decide
            for rank in ranks:
                rank.gather(now)
            if not flying and not any(rank.running for rank in ranks):
                coming = min(rank.next_ps for rank in ranks)
                if coming == FOREVER:
                    return True
                self._decide(max(ranks[0].end, coming))
                continue
            made = [rank.rules.schedule() for rank in ranks]
            for rank, one in zip(ranks, made, strict=True):
                rank.note(one)
            work = any(one.work for one in made)
            if work:
                slowest = max(
                    rank.spent_ps(one) for rank, one in zip(ranks, made, strict=True) if one.work
                )
                end = max(now, ranks[0].end) + slowest
                for rank in ranks:
                    rank.end = end
                flying.append((made, end))
            if len(flying) == ranks[0].rules.passes_in_flight or (flying and not work):
                done, over = flying.popleft()
                self._decide(max(now, over))
                for rank, one in zip(ranks, done, strict=True):
                    rank.delivered(one, rank.rules.deliver(one), over)
            elif not work and not any(one.preempted or one.dropped for one in made):
                for rank in ranks:
                    rank.drop_stuck()
        return True

    def _decide(self, time_ps: int) -> None:
        for rank in self.ranks:
            rank.decide = time_ps
