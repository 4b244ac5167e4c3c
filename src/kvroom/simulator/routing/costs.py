"""Rules that weigh what a prompt still costs to compute against what a replica serves.

- ``prefix``: the least ``weight`` × (prompt tokens it has still to compute, this prompt's among them
  without the leading ones that it has cached) + prompt tokens of all that it serves.
- ``kv-cost``: the cost of NVIDIA Dynamo's KV router (docs.nvidia.com/dynamo, "Routing Concepts" and
  "Configuration and Tuning", releases 1.4 to 1.6), in blocks::

      prefill = max(0, prompt tokens not yet computed there, this prompt's among them, / block
                       − overlap_score_credit × leading blocks cached there)
      decode  = blocks held there + those of this prompt that nobody there holds
      cost    = prefill_load_scale × prefill + decode
                + decode_active_request_weight × requests there

  A block that several requests hold counts once, which is what ``prefix`` lacks. With
  ``overlap_score_credit_decay`` the credit of a replica with more prompts to compute than the least one is
  divided by 1 + decay × (excess blocks / this prompt's blocks). ``lmetric``: prefill × (decode + 1).
  Of equal costs any; with a ``temperature`` one is drawn by softmax of the costs scaled to 0 to 1. Where
  replicas publish no events (``kv_events`` 0) what was sent there counts as cached for ``ttl`` seconds.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from itertools import chain
from math import exp, inf

from kvroom.kvcache.request import ServedRequest
from kvroom.latency.clock import PS_PER_S
from kvroom.simulator.routing.desk import RouterDesk, RoutingRule
from kvroom.simulator.routing.loads import HeldNames
from kvroom.simulator.routing.views import RecentNames, leading


class LeastToCompute(RoutingRule):
    """``prefix``."""

    @property
    def reads_cache(self) -> bool:
        """Always."""
        return True

    def choose(self, request: ServedRequest, up: Sequence[int], now: int) -> int:
        """The cheapest; of equal ones the first: they take turns."""
        desk = self.desk
        loads, views, weight, size = desk.loads, desk.views, desk.routing.weight, desk.name_tokens
        owed, tokens = loads.owed, loads.tokens
        names = desk.names(request)
        first, second = (*names[:2], None, None)[:2]
        turn = request.index % len(up)
        place, most, least = up[turn], 0, inf
        named = len(names) * size
        for each in chain(up[turn:], up[:turn]):
            if weight * (owed[each] - named) + tokens[each] >= least:
                continue  # not even with all of it cached
            known = views[each].names
            # Most have no more than what all prompts begin with.
            count = leading(names, known) if second in known else first in known
            cost = weight * (owed[each] - count * size) + tokens[each]
            if cost < least:
                place, most, least = each, count, cost
        loads.sent(request, place, most * size)
        views[place].sent(names)
        return place


class LeastBlocks(RoutingRule):
    """``kv-cost``."""

    def __init__(self, desk: RouterDesk) -> None:
        super().__init__(desk)
        setting = desk.routing.setting
        self.credit = setting("overlap_score_credit")
        self.decay = setting("overlap_score_credit_decay")
        self.scale = setting("prefill_load_scale")
        self.request_blocks = setting("decode_active_request_weight")
        self.temperature = setting("temperature")
        self.product = bool(setting("lmetric"))
        self.reuses = bool(setting("assume_kv_reuse"))
        self.tracks_prompts = bool(setting("track_prefill_tokens"))
        self.events = bool(setting("kv_events"))
        ttl_ps = round(setting("ttl") * PS_PER_S)
        self.recent = [] if self.events else [RecentNames(ttl_ps=ttl_ps) for _ in desk.room]
        self.held = HeldNames(len(desk.room), desk.name_tokens)
        desk.loads.on_over = self._over

    @property
    def reads_cache(self) -> bool:
        """Where replicas publish what they cache."""
        return self.events

    def _cached(self, place: int, now: int) -> Container[int]:
        if self.events:
            return self.desk.views[place].names
        self.recent[place].expire(now)
        return self.recent[place]

    def costs(
        self, request: ServedRequest, up: Sequence[int], cached: Sequence[int]
    ) -> list[float]:
        """The cost of each that is ``up``, which has ``cached`` tokens of the prompt, in blocks."""
        size, block, loads, held = (
            self.desk.name_tokens,
            self.desk.block_tokens,
            self.desk.loads,
            self.held,
        )
        names, tokens = self.desk.names(request), request.num_tokens
        whole = max(tokens // block * block, len(names) * size)
        blocks = max(1, -(-tokens // block))
        floor = min(loads.owed[place] for place in up) if self.decay else 0
        costs = []
        for place, found in zip(up, cached, strict=True):
            owed, credit = loads.owed[place], self.credit
            if self.decay:
                credit /= 1 + self.decay * (owed - floor) / block / blocks
            raw = owed + tokens if self.tracks_prompts else 0
            prefill = max(0.0, (raw - credit * found) / block)
            shared = leading(names, held.names[place]) * size if self.reuses else 0
            decode = (held.tokens[place] + whole - shared) / block
            costs.append(
                prefill * (decode + 1)
                if self.product
                else self.scale * prefill + decode + self.request_blocks * loads.requests[place]
            )
        return costs

    def choose(self, request: ServedRequest, up: Sequence[int], now: int) -> int:
        """The cheapest, or one drawn by its cost."""
        names, size = self.desk.names(request), self.desk.name_tokens
        cached = [leading(names, self._cached(place, now)) * size for place in up]
        chosen = self._draw(self.costs(request, up, cached))
        self.send(request, up[chosen], cached[chosen], now)
        return up[chosen]

    def send(self, request: ServedRequest, place: int, cached: int, now: int) -> None:
        """``request`` goes to ``place``, which has ``cached`` tokens of it."""
        names, size, block = self.desk.names(request), self.desk.name_tokens, self.desk.block_tokens
        self.desk.loads.sent(request, place, cached)
        self.held.hold(
            place, names, max(request.num_tokens // block * block - len(names) * size, 0)
        )
        if self.events:
            self.desk.views[place].sent(names)
        else:
            self.recent[place].sent(names, now)

    def _draw(self, costs: Sequence[float]) -> int:
        least, most = min(costs), max(costs)
        if self.temperature and least < most:
            scale = (most - least) * self.temperature
            weights = [exp((least - cost) / scale) for cost in costs]
            return self.dice.choices(range(len(costs)), weights)[0]
        ties = [index for index, cost in enumerate(costs) if cost == least]
        if self.temperature or len(ties) > 1:
            return self.dice.choice(ties)
        return ties[0]

    def _over(self, request: ServedRequest) -> None:
        size, block = self.desk.name_tokens, self.desk.block_tokens
        tokens, extents = request.routed_tokens, request.extents
        names = extents.names[: tokens // size] if extents is not None else ()
        rest = max(tokens // block * block - len(names) * size, 0)
        self.held.let_go(request.replica, names, rest)

    def lost(self, place: int) -> None:
        """Nothing is held or cached there any more."""
        self.held.clear(place)
        if not self.events:
            self.recent[place].clear()
