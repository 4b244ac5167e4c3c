"""The stream of requests that come to an engine: those sent to it, and those that follow on others."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from heapq import heappop, heappush

from kvroom.kvcache.request import ServedRequest

FOREVER = 1 << 200
"""Later than anything happens (picoseconds)."""

Follow = Callable[[ServedRequest, int], Iterable[ServedRequest]]
"""(a request that is done or dropped, when) → those that come because of it."""


class RequestStream:
    """Requests that come: those handed over in order (``push``), and those that follow on others."""

    __slots__ = ("_coming", "_later", "decide", "follow", "next_ps")

    def __init__(self, follow: Follow | None = None) -> None:
        self.follow = follow
        self.decide = 0  # when the engine decides next
        self.next_ps = FOREVER  # when the next known request comes
        self._coming: deque[ServedRequest] = deque()
        self._later: list[tuple[int, int, ServedRequest]] = []

    def push(self, request: ServedRequest) -> None:
        """A request that comes: no earlier than those before it."""
        self._coming.append(request)
        if request.arrival < self.next_ps:  # noqa: PLR1730 (a call costs more)
            self.next_ps = request.arrival

    def come(self, request: ServedRequest, time_ps: int) -> None:
        """A request that comes at ``time_ps``, whenever it first arrived."""
        heappush(self._later, (time_ps, request.index, request))
        self.next_ps = min(self.next_ps, time_ps)

    def gather(self, now: int) -> None:
        """Queue all who have come by ``now``, if the next decision is no earlier: an engine at work may
        leave that until somebody can start."""
        while self.next_ps <= now <= self.decide:
            self.enqueue(self.next())

    def enqueue(self, request: ServedRequest) -> None:
        """``request`` is here: it waits, or is dropped."""
        raise NotImplementedError

    def take_coming(self) -> list[ServedRequest]:
        """Those that were to come, taken away again."""
        taken = []
        while self.next_ps < FOREVER:
            taken.append(self.next())
        return taken

    def next(self) -> ServedRequest:
        """Take the request that comes first."""
        coming, later = self._coming, self._later
        if later and (not coming or later[0][0] < coming[0].arrival):
            request = heappop(later)[2]
        else:
            request = coming.popleft()
        self.next_ps = coming[0].arrival if coming else FOREVER
        if later and later[0][0] < self.next_ps:
            self.next_ps = later[0][0]
        return request

    def over(self, request: ServedRequest, now: int) -> None:
        """``request`` is done or dropped: whoever waited for that comes."""
        for after in self.follow(request, now) if self.follow else ():
            self.come(after, after.arrival)
