"""What a router counts of each replica by what it sends there and what comes back."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kvroom.kvcache.request import ServedRequest


class ReplicaLoads:
    """What a router counts of each replica: requests and prompt tokens it serves (``requests``,
    ``tokens``), and tokens of prompts whose first token has not come (``owed``)."""

    def __init__(self, replicas: int) -> None:
        self.requests = [0] * replicas
        self.tokens = [0] * replicas
        self.owed = [0] * replicas
        self._news: list[tuple[int, ServedRequest, bool]] = []
        self.on_over: Callable[[ServedRequest], None] | None = None
        """Told of each request that is over, when that is taken in."""

    def sent(self, request: ServedRequest, place: int, cached_tokens: int = 0) -> None:
        """A request goes to the replica at ``place``, which is thought to have some of it cached."""
        request.routed_tokens = request.num_tokens
        request.owed_tokens = request.num_tokens - cached_tokens
        self.requests[place] += 1
        self.tokens[place] += request.routed_tokens
        self.owed[place] += request.owed_tokens

    def heard(self, time_ps: int, request: ServedRequest, *, over: bool) -> None:
        """A replica computed a first token, or (``over``) is through with a request."""
        self._news.append((time_ps, request, over))

    def settle(self, now: int) -> None:
        """Take in what happened up to ``now``."""
        later = []
        for one in self._news:
            time_ps, request, over = one
            if time_ps > now:
                later.append(one)
                continue
            place = request.replica
            self.owed[place] -= request.owed_tokens
            request.owed_tokens = 0
            if over:
                self.requests[place] -= 1
                self.tokens[place] -= request.routed_tokens
                if self.on_over is not None:
                    self.on_over(request)
        self._news = later

    def as_of(self, now: int, place: int) -> tuple[int, int, int]:
        """Requests, tokens and owed tokens of the replica at ``place`` at ``now``, whatever was taken in."""
        requests, tokens, owed = self.requests[place], self.tokens[place], self.owed[place]
        told = set()
        for time_ps, request, over in self._news:
            if time_ps > now or request.replica != place:
                continue
            if request.index not in told:
                told.add(request.index)
                owed -= request.owed_tokens
            if over:
                requests -= 1
                tokens -= request.routed_tokens
        return requests, tokens, owed

    def clear(self, place: int) -> None:
        """The replica at ``place`` is gone, with all that it served."""
        self._news = [one for one in self._news if one[1].replica != place]
        self.requests[place] = self.tokens[place] = self.owed[place] = 0


class HeldNames:
    """The prompts' blocks that each replica's requests hold, one that several share counted once:
    ``tokens`` by place, and how many requests hold each name."""

    def __init__(self, replicas: int, name_tokens: int) -> None:
        self.name_tokens = name_tokens
        self.tokens = [0] * replicas
        self.names: list[dict[int, int]] = [{} for _ in range(replicas)]

    def hold(self, place: int, names: Iterable[int], rest_tokens: int) -> None:
        """A request of these names, and tokens that no name stands for, goes to ``place``."""
        held = self.names[place]
        for name in names:
            many = held.get(name, 0)
            held[name] = many + 1
            if not many:
                rest_tokens += self.name_tokens
        self.tokens[place] += rest_tokens

    def let_go(self, place: int, names: Iterable[int], rest_tokens: int) -> None:
        """It is over."""
        held = self.names[place]
        for name in names:
            many = held.pop(name)
            if many > 1:
                held[name] = many - 1
            else:
                rest_tokens += self.name_tokens
        self.tokens[place] -= rest_tokens

    def clear(self, place: int) -> None:
        """The replica at ``place`` is gone."""
        self.names[place].clear()
        self.tokens[place] = 0
