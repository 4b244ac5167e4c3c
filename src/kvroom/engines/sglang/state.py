"""SGLang's pool of recurrent state: how many slots, and what it leaves of a budget in GiB."""

from __future__ import annotations

from collections.abc import Sequence

from kvroom.engines.sglang.entries import has_state, state_bytes
from kvroom.engines.sglang.resolved_args import SglangArgs
from kvroom.models.spec import Layer
from kvroom.units import GIB


class PoolRefused(Exception):
    """SGLang would not start; the message says why."""


def slot_bytes(args: SglangArgs, stages: Sequence[Sequence[Layer]]) -> int:
    """Bytes of one slot: with padding slots (0.5.17) of the stage that has most such layers, before of
    the whole model, whatever the stage holds."""
    if not args.traits.state or not args.rules.state_pool:
        return 0
    whole = state_bytes(args, [x for stage in stages for x in stage])
    if not args.rules.state_padding:
        return whole
    held = [sum(has_state(x) for x in stage) for stage in stages]
    return int(whole * (max(held) / max(sum(held), 1)))


def state_pool(args: SglangArgs, per: int, rest_gib: float) -> tuple[float, int]:
    """(GiB left for tokens, slots) of a state pool with ``per`` bytes a slot."""
    if args.rules.draft_state == "with the slots":
        return _joint_state(args, per, rest_gib)
    drafts = args.draft.tokens if args.draft else 0
    groups = args.flags.attention_dp
    first = args.rules.state_without_radix is not None
    asked = (
        args.flags.state_slots
        if args.rules.draft_state == "all requests" or not args.radix
        else None
    )
    if (
        args.rules.draft_state == "all requests"
        and drafts
        and not (first and (asked or not args.radix))
    ):
        shared = 1 if first else groups
        rest_gib -= per * ((args.requests or 0) // shared) * drafts / GIB
    factor = 1 + drafts if args.rules.draft_state == "times the slots" else 1
    if asked is not None:
        slots = asked // groups
    elif not args.radix and (args.requests is not None or first):
        slots = (args.requests or args.rules.state_without_radix or 0) // groups
    else:
        slots = int(_state_share(args, rest_gib) * (1 << 30) // per // factor)
    if slots <= 0:
        raise PoolRefused("no slot of recurrent state fits the static part")
    return rest_gib - slots * per * factor / GIB, slots


def _state_share(args: SglangArgs, rest_gib: float) -> float:
    ratio = args.flags.state_ratio
    return rest_gib * ratio / (1 + ratio)


def _joint_state(args: SglangArgs, per: int, rest_gib: float) -> tuple[float, int]:
    """Since 0.5.13: states of drafts in flight are counted in with the slots."""
    drafts = args.draft.tokens if args.draft else 0
    pad = int(args.rules.state_padding)
    limit = max(1, args.requests_each or 1)
    if args.flags.state_slots is not None:
        slots = args.flags.state_slots // args.flags.attention_dp
        in_flight = min(limit, slots // args.state_slots_each)
    elif not args.radix and args.requests is not None:
        slots = in_flight = limit
    else:
        budget = _state_share(args, rest_gib) * (1 << 30)
        if drafts:
            each = per * (1 + drafts / args.state_slots_each)
            slots = int((budget - pad * per * (1 + drafts)) // each)
        else:
            slots = int((budget - pad * per) // per)
        in_flight = min(limit, slots // args.state_slots_each)
    if drafts:
        rest_gib -= per * (in_flight + pad) * drafts / GIB
    if slots <= 0:
        raise PoolRefused("no slot of recurrent state fits the static part")
    return rest_gib - (slots + pad) * per / GIB, slots
