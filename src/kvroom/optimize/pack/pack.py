"""Models and a node in, what holds and what does what to whom out; or the cheapest of several nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from kvroom.errors import KvroomError, did_you_mean
from kvroom.hardware.mig import MARK
from kvroom.hardware.reader import resolve
from kvroom.optimize.pack.answer import MPS, SHARING, TURNS, ElasticPool, Packed, PackedSeat
from kvroom.optimize.pack.asleep import host_room, sleep_of
from kvroom.optimize.pack.beside import BesideOthers, Neighbours
from kvroom.optimize.pack.question import (
    PackedModel,
    PackNode,
    check_pins,
    entries_of,
    node_of,
)
from kvroom.optimize.pack.seats import PackSeat, Seating
from kvroom.optimize.pack.trial import Trials
from kvroom.records import dataclass
from kvroom.units import show_memory

COUNTS = (1, 2, 4, 8)
"""Of each card that ``cheapest`` tries."""


@dataclass(frozen=True, kw_only=True)
class PackQuestion:
    """What is asked beside the models and the node. ``simulate``: say what they do to each other's times."""

    prices: Mapping[str, float | str]
    host_bytes: int | None = None
    sharing: str = TURNS
    simulate: bool = True

    def __post_init__(self) -> None:
        if self.sharing not in SHARING:
            fix = did_you_mean(self.sharing, SHARING, "Write turns (time slicing) or mps.")
            raise KvroomError("--sharing", self.sharing, "is no way to share a GPU", fix)


def pack(models: object, gpu: str, question: PackQuestion) -> Packed:
    """``models`` (rows as ``entries_of`` takes them) on the cards of ``gpu``."""
    return _packed(entries_of(models), node_of(gpu, question.prices), question)


def cheapest(models: object, gpus: Sequence[str], question: PackQuestion) -> Packed:
    """``models`` on the cheapest node of those ``gpus``, 1, 2, 4 and 8 of each where no number is told; on
    the one that holds most where none holds all."""
    entries = entries_of(models)
    nodes = sorted(_nodes(gpus, question.prices), key=_cost)
    if not nodes:
        fix = "Name cards: --gpus L40S,H100-SXM."
        raise KvroomError("--gpus", ",".join(gpus), "are no cards", fix)
    tried: list[tuple[str, float | None, bool]] = []
    best: tuple[int, PackNode] | None = None
    for node in nodes:
        if any(place >= len(node.cards) for one in entries for place in one.gpus or ()):
            continue
        seating = Seating(node, entries, Trials(question.prices, question.host_bytes))
        seated = sum(seat.fits for seat in seating.seated())
        tried.append((node.name, node.usd_per_hour, seated == len(entries)))
        if best is None or seated > best[0]:
            best = seated, node
        if seated == len(entries):
            break
    if best is None:
        check_pins(entries, nodes[0])
        raise AssertionError("a node without the cards that models are pinned to is refused")
    return _packed(entries, best[1], question, others=tuple(tried))


def _nodes(gpus: Iterable[str], prices: Mapping[str, float | str]) -> Iterator[PackNode]:
    for text in gpus:
        if MARK in text or text.rpartition(":")[2].isdecimal():
            yield node_of(text, prices)
        else:
            yield from (node_of(f"{text}:{count}", prices) for count in COUNTS)


def _cost(node: PackNode) -> tuple[bool, float, int]:
    """Those of no known price come last, the fewest cards first."""
    price = node.usd_per_hour
    return price is None, price or 0.0, len(node.cards)


def _packed(
    entries: Sequence[PackedModel],
    node: PackNode,
    question: PackQuestion,
    others: tuple[tuple[str, float | None, bool], ...] = (),
) -> Packed:
    check_pins(entries, node)
    trials = Trials(question.prices, question.host_bytes)
    seating = Seating(node, entries, trials)
    seats = seating.seated()
    times: dict[str, BesideOthers] = {}
    if question.simulate:
        times = {one.name: one for one in Neighbours(seats).answers()}
    rows = tuple(
        _row(seat, seats[:place], seating, trials, times) for place, seat in enumerate(seats)
    )
    packed = Packed(
        node=node,
        rows_of=rows,
        card_bytes=tuple(seating.sizes),
        taken_bytes=tuple(seating.taken(seats, place) for place in range(len(node.cards))),
        sharing=question.sharing,
        host_bytes=host_room(seats),
        elastic=tuple(_elastic(seats, times, len(node.cards))),
        others=others,
    )
    return packed.with_warnings(_warnings(packed, seats, timed=question.simulate))


def _row(
    seat: PackSeat,
    before: Sequence[PackSeat],
    seating: Seating,
    trials: Trials,
    times: Mapping[str, BesideOthers],
) -> PackedSeat:
    entry, trial = seat.entry, seat.trial
    free, share = None, None
    if seat.cards and trial is not None:
        taken = max(seating.found_taken(before, place) for place in seat.cards)
        free = entry.engine.free_at_start(trial.deployment, taken)
        kind = seating.node.cards[seat.cards[0]]
        share = trial.share or trials.default_share(entry, kind, len(seat.cards))
    return PackedSeat(
        seat=seat,
        free_bytes=free,
        share=share,
        flag=entry.engine.limits.share if trial is not None else "",
        sleep=sleep_of(seat),
        times=times.get(entry.name),
    )


def _elastic(
    seats: Sequence[PackSeat], times: Mapping[str, BesideOthers], cards: int
) -> Iterator[ElasticPool]:
    for place in range(cards):
        on = [times[s.entry.name] for s in seats if place in s.cards and s.entry.name in times]
        if len(on) < 2:
            continue
        means = sum(one.mean_cache_bytes for one in on)
        rise = max(one.peak_cache_bytes - one.mean_cache_bytes for one in on)
        peaks = sum(one.peak_cache_bytes for one in on)
        yield ElasticPool(card=place, peaks_bytes=peaks, pooled_bytes=min(peaks, means + rise))


def _warnings(packed: Packed, seats: Sequence[PackSeat], *, timed: bool) -> Iterator[str]:
    shared = [
        place
        for place in range(len(packed.node.cards))
        if sum(place in seat.cards for seat in seats) > 1
    ]
    if shared:
        yield (
            "start them one after another, each when the one before answers: an engine counts what another "
            "takes meanwhile as its own (vLLM issue 55827)"
        )
    for one in packed.rows_of:
        trial = one.seat.trial
        if trial is None or not one.seat.cards or not timed:
            continue
        if not trial.deployment.model.generates and any(c in shared for c in one.seat.cards):
            yield (
                f"{one.seat.entry.name} writes no text: its steps take turns with the others', and are not "
                "timed"
            )
        elif one.times is None and any(c in shared for c in one.seat.cards):
            yield (
                f"{one.seat.entry.name}: say users or rate, input and output for what it does to the "
                "others' times"
            )
    if packed.sharing == MPS and any(MARK in card for card in packed.node.cards):
        yield "slices of MIG share nothing: --sharing mps changes nothing between them"
    sold = sum(resolve(card).engine_bytes for card in packed.node.cards)
    left = sold - sum(packed.taken_bytes)
    if packed.fits and left > sold // 4:
        yield f"{show_memory(left)} of the node's memory stay free"
