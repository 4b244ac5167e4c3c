"""What sleep frees of a GPU, what it keeps in host memory, and how long falling asleep and waking take.

vLLM's level 1 copies the weights to host memory and forgets the cache, level 2 forgets both (vLLM
documentation, Sleep Mode): waking copies the weights back over the host link, or reads them from disk.
Context, communication buffers and captured graphs stay on the GPU.
"""

from __future__ import annotations

from kvroom.hardware.node import Machine
from kvroom.latency.transfer import transfer_s
from kvroom.optimize.pack.seats import PackSeat
from kvroom.planner.place import machine_of
from kvroom.records import dataclass


@dataclass(frozen=True, kw_only=True)
class PackSleep:
    """Of each card of one model: bytes ``freed`` and those that stay; of all its cards together what lies in
    host memory meanwhile. Seconds are those of the copies alone, None where a rate is not known."""

    level: int
    freed_bytes: int
    stays_bytes: int
    host_bytes: int
    sleep_s: float | None
    wake_s: float | None


def sleep_of(seat: PackSeat) -> PackSleep | None:
    """Its sleep; None for who never sleeps or has no card."""
    trial, level = seat.trial, seat.entry.sleep
    if trial is None or not level or not seat.cards:
        return None
    machine: Machine = machine_of(trial.scenario, len(seat.cards))
    each = sum(
        account.bytes
        for account in trial.answer.accounts
        if account.name == "weights" or account in trial.deployment.extras.accounts(0)
    )
    copied = transfer_s(machine, "host", each)
    return PackSleep(
        level=level,
        freed_bytes=trial.held_bytes - trial.asleep_bytes,
        stays_bytes=trial.asleep_bytes,
        host_bytes=each * len(seat.cards) if level == 1 else 0,
        sleep_s=copied if level == 1 else 0.0,
        wake_s=copied if level == 1 else transfer_s(machine, "nvme", each),
    )


def host_room(seats: tuple[PackSeat, ...]) -> int | None:
    """Bytes of the node's host memory; None where nobody knows or asks."""
    for seat in seats:
        if seat.trial is not None:
            tier = machine_of(seat.trial.scenario, 1).tier("host")
            return tier.bytes if tier else None
    return None
