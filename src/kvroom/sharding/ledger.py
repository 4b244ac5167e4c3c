"""The ledger of one GPU, and the ceiling: all memory but the weights over one request's bytes."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from kvroom.answer.plan import Ceiling
from kvroom.models.dtypes import Dtype
from kvroom.sharding.deployment import Deployment
from kvroom.sharding.layout import Rank
from kvroom.units import longest_fit

LONGEST = 2**30
"""No context is searched beyond this many tokens."""


def room(deployment: Deployment, rank: Rank, gpu_bytes: int) -> Fraction | None:
    """Requests of ``context_tokens`` that one replica holds beside the weights, as far as ``rank``
    goes; None where a request stores nothing there."""
    need = deployment.request_bytes(rank)
    if not need:
        return None
    return Fraction(max(0, gpu_bytes - deployment.loaded_bytes(rank)), need)


def binding_rank(deployment: Deployment, gpu_bytes: int) -> Rank:
    """The stage with least room, or where none stores anything the one with most weights."""
    rooms = [(room(deployment, rank, gpu_bytes), rank) for rank in deployment.ranks]
    held = [(x, r.stage, r) for x, r in rooms if x is not None]
    if held and min(held)[0] > 0:
        return min(held)[2]
    return max(deployment.ranks, key=lambda r: (deployment.loaded_bytes(r), -r.stage))


def ceiling(deployment: Deployment, gpu_bytes: int) -> Ceiling | None:
    """The ceiling of the whole deployment: ``exact`` times dp, ``requests`` = dp × floor."""
    rooms = [room(deployment, rank, gpu_bytes) for rank in deployment.ranks]
    least = min((room for room in rooms if room is not None), default=None)
    if least is None:
        return None
    if any(deployment.loaded_bytes(rank) > gpu_bytes for rank in deployment.ranks):
        least = Fraction(0)
    dp = deployment.layout.dp
    return Ceiling(requests=dp * int(least), exact=float(least) * dp)


def longest_context(
    ranks: Sequence[Rank], cache_bytes: Sequence[int], kv: Dtype, encoder_tokens: int
) -> int | None:
    """The longest request that fits ``cache_bytes`` of each rank; None where length costs nothing."""
    if not any(rank.token_bytes(kv) for rank in ranks):
        return None

    def fits(tokens: int) -> bool:
        return all(
            rank.request_bytes(tokens, kv, encoder_tokens) <= cache_byte
            for rank, cache_byte in zip(ranks, cache_bytes, strict=True)
        )

    return longest_fit(fits, LONGEST)
