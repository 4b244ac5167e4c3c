"""The replicas behind one router: who takes requests, what an autoscaler sees of them, who goes first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from kvroom.kvcache.request import ServedRequest
from kvroom.records import dataclass
from kvroom.simulator.autoscaling.gauges import PoolGauges, ReplicaGauge, ScalingRule
from kvroom.simulator.replicas import Replica, ReplicaState
from kvroom.simulator.router import Router
from kvroom.simulator.stream import FOREVER


@dataclass(kw_only=True)
class RoutedPool:
    """Replicas that one router chooses from; the first ``begin`` of them are up when it begins."""

    replicas: Sequence[Replica]
    router: Router
    begin: int
    scale: ScalingRule | None = None
    least: int = 1
    most: int = 0
    """Between so many replicas ``scale`` chooses; 0: as many as there are."""
    grace_ps: int | None = None
    """How long a replica that drains may take; None: as long as it does."""
    came: int = 0
    came_tokens: int = 0
    """Requests that came, and the tokens of their prompts."""
    idle_ps: int = -1
    """Since when requests wait though none is there or comes."""
    waiting: list[ServedRequest] = field(default_factory=list)
    """Requests for which no replica is up."""
    up: list[int] = field(default_factory=list)

    def note_up(self) -> None:
        """Bring the places that take requests up to date."""
        self.up = [replica.place for replica in self.replicas if replica.state is ReplicaState.UP]

    def gauges(self, now: int) -> PoolGauges:
        """What an autoscaler sees of it at ``now``."""
        loads = self.router.loads
        if not self.router.looks:
            loads.settle(now)
        ready = []
        for replica in self.replicas:
            engine = replica.engine
            if replica.state is not ReplicaState.UP or engine is None:
                continue
            # Who is in its last step still runs, which engines do not all count so.
            requests, tokens, owed = loads.as_of(now, replica.place)
            waiting = engine.waiting_count
            ready.append(
                ReplicaGauge(
                    waiting=waiting,
                    running=requests - waiting,
                    held_blocks=engine.blocks_in_use,
                    blocks=replica.blocks,
                    owed_tokens=owed,
                    tokens=tokens,
                )
            )
        states = [replica.state for replica in self.replicas]
        return PoolGauges(
            now_ps=now,
            ready=ready,
            starting=states.count(ReplicaState.STARTING),
            draining=states.count(ReplicaState.DRAINING),
            stranded=len(self.waiting),
            came=self.came,
            came_tokens=self.came_tokens,
        )

    def drained(self) -> list[Replica]:
        """Those that drain and are through with all that they served."""
        return [
            replica
            for replica in self.replicas
            if replica.state is ReplicaState.DRAINING
            and replica.engine is not None
            and replica.engine.wakes_ps == FOREVER
        ]

    def going(self, count: int, *, newest: bool) -> tuple[list[Replica], list[Replica]]:
        """Which ``count`` go first: those that are only starting, then of those that serve the ``newest``,
        else the emptiest."""
        starting = [r for r in self.replicas if r.state is ReplicaState.STARTING]
        starting.sort(key=lambda r: (-r.up_ps, -r.place))
        serving = [r for r in self.replicas if r.state is ReplicaState.UP and r.engine is not None]
        serving.sort(
            key=lambda r: (
                -r.up_ps if newest else (r.engine.blocks_in_use if r.engine else 0),
                -r.place,
            )
        )
        return starting[:count], serving[: max(0, count - len(starting))]
