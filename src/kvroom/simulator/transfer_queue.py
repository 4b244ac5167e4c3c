"""Links that transfers share: first come, first served, in whole picoseconds.

A transfer's end is known when it is queued and later ones never change it, so a request's wait is exact and
a run the same however it is stepped. Fair shares would carry as many bytes in the same time, but a
transfer's end would move with each one that joins it; queues of copy engines and of drives are first
come, first served.
"""

from __future__ import annotations

from kvroom.latency.clock import PS_PER_S

READ, WRITE = 0, 1
Width = tuple[int, int]
"""What is carried over what the GPU keeps: numerator and denominator."""
SAME: Width = (1, 1)


class TransferQueue:
    """Carries ``unit_bytes`` for each unit (a block of cache) at ``bytes_per_s``; None: in no time.

    ``duplex``: reads and writes do not share it. ``busy_ps`` is how long it carried anything.
    """

    __slots__ = ("_free", "busy_ps", "bytes_per_s", "duplex", "unit_bytes")

    def __init__(self, bytes_per_s: int | None, unit_bytes: int, *, duplex: bool) -> None:
        self.bytes_per_s = bytes_per_s
        self.unit_bytes = unit_bytes
        self.duplex = duplex
        self.busy_ps = 0
        self._free = [0, 0]

    def takes_ps(self, units: int, width: Width = SAME) -> int:
        """How long it carries so many units, alone, each ``width`` times as large."""
        if self.bytes_per_s is None:
            return 0
        above, below = width
        return -(-units * self.unit_bytes * above * PS_PER_S // (self.bytes_per_s * below))

    def free_ps(self, way: int) -> int:
        """When it has carried what is queued that way."""
        return self._free[way if self.duplex else READ]

    def carry(self, way: int, now: int, units: int, width: Width = SAME) -> int:
        """Queue a transfer at ``now``; gives when it ends."""
        place = way if self.duplex else READ
        spent = self.takes_ps(units, width)
        end = max(self._free[place], now) + spent
        self._free[place] = end
        self.busy_ps += spent
        return end

    def give_back(self, way: int, end: int, units: int, width: Width = SAME) -> None:
        """So many units of the transfer that was to end at ``end`` are not carried; what is queued behind it
        keeps its time."""
        place = way if self.duplex else READ
        spare = self.takes_ps(units, width)
        self.busy_ps -= spare
        if self._free[place] == end:
            self._free[place] = end - spare
