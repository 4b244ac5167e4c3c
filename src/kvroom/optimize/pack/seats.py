"""Which cards each model takes, and with what share it is started, in the order of starting.

A card is full where what all hold is more than it has: those that are always awake, what stays of those that
sleep, and the largest of these awake. First each gets the least share that holds its users; then what is left
of each card is shared out by need, the bytes of cache that those users fill. Cards are chosen by trying them,
the emptiest first, in the order of starting, going back where one finds no place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from kvroom.hardware.mig import MARK
from kvroom.hardware.reader import resolve
from kvroom.optimize.pack.question import PackedModel, PackNode
from kvroom.optimize.pack.trial import PackTrial, Trials
from kvroom.records import dataclass
from kvroom.units import show_memory

MOST_TRIES = 4000
"""Seats that are tried; a node on which so many fail is told as full."""


@dataclass(frozen=True, kw_only=True)
class PackSeat:
    """A model on its ``cards`` (places on the node; none: it found no place, and ``why`` says why)."""

    entry: PackedModel
    cards: tuple[int, ...]
    trial: PackTrial | None
    why: str = ""

    @property
    def fits(self) -> bool:
        """Whether it starts where it sits, and holds its users."""
        return bool(self.cards) and self.trial is not None and self.trial.enough


class Seating:
    """Seats on one node."""

    def __init__(self, node: PackNode, entries: Sequence[PackedModel], trials: Trials) -> None:
        self.node, self.entries, self.trials = node, entries, trials
        self.sizes = [resolve(card).engine_bytes for card in node.cards]
        self._tries = 0

    def seated(self) -> tuple[PackSeat, ...]:
        """A seat for each, in the order of starting; shares as they are to be started with."""
        found = self._search((), self.entries)
        seats = found if found is not None else self._as_far_as_it_goes()
        return self._shared_out(seats)

    # Where

    def _search(
        self, before: tuple[PackSeat, ...], left: Sequence[PackedModel]
    ) -> tuple[PackSeat, ...] | None:
        if not left:
            return before
        for seat in self._places(before, left[0]):
            self._tries += 1
            if self._tries > MOST_TRIES:
                return None
            if not seat.fits or not self._hold((*before, seat)):
                continue
            if (seats := self._search((*before, seat), left[1:])) is not None:
                return seats
        return None

    def _places(self, before: tuple[PackSeat, ...], entry: PackedModel) -> Iterator[PackSeat]:
        """Seats for ``entry``, the fewest cards and then the emptiest first; equal ones once."""
        for count in self.trials.counts(entry, len(self.node.cards)):
            seen: set[tuple[str, tuple[int, ...]]] = set()
            windows = self._windows(entry, count)
            for cards in sorted(windows, key=lambda window: self._rank(before, window)):
                kind = self.node.cards[cards[0]]
                taken = tuple(self._held(before, place) for place in cards)
                if (kind, taken) in seen and not any(taken):
                    continue
                seen.add((kind, taken))
                others = max(self.found_taken(before, place) for place in cards)
                yield PackSeat(
                    entry=entry,
                    cards=cards,
                    trial=self.trials.least(entry, kind, count, others),
                )

    def _windows(self, entry: PackedModel, count: int) -> Iterator[tuple[int, ...]]:
        cards = self.node.cards
        if entry.gpus is not None:
            yield entry.gpus
            return
        for first in range(0, len(cards) - count + 1, count):
            window = tuple(range(first, first + count))
            alike = len({cards[place] for place in window}) == 1
            if alike and (count == 1 or MARK not in cards[first]):
                yield window

    def _as_far_as_it_goes(self) -> tuple[PackSeat, ...]:
        """Each in its turn where it fits; who does not, without a card and with what is in the way."""
        seats: tuple[PackSeat, ...] = ()
        for entry in self.entries:
            last: PackSeat | None = None
            for seat in self._places(seats, entry):
                if seat.fits and self._hold((*seats, seat)):
                    seats = (*seats, seat)
                    break
                last = last if last and last.fits and not seat.fits else seat
            else:
                why = self._reason(seats, last) if last else "no card of the node can take it"
                trial = last.trial if last else None
                seats = (*seats, PackSeat(entry=entry, cards=(), trial=trial, why=why))
        return seats

    def _reason(self, before: tuple[PackSeat, ...], seat: PackSeat) -> str:
        trial = seat.trial
        if trial is None or not trial.verdict.starts:
            return trial.verdict.sentence.rstrip(".") if trial else ""
        if not trial.enough:
            requests = trial.requests or 0
            return f"{requests:,} at once have room and {trial.needed:,} are there"
        over = max(
            self._held((*before, seat), place) + self._spread((*before, seat), place)
            - self.sizes[place]
            for place in seat.cards
        )  # fmt: skip
        return (
            f"it needs {show_memory(trial.held_bytes)} of a card, {show_memory(over)} more than the others "
            "leave it"
        )

    # What is taken

    def _on(self, seats: Sequence[PackSeat], place: int) -> list[tuple[PackSeat, PackTrial]]:
        return [(seat, seat.trial) for seat in seats if place in seat.cards and seat.trial]

    def found_taken(self, before: Sequence[PackSeat], place: int) -> int:
        """What an engine that starts after ``before`` finds taken of a card: those that sleep are asleep."""
        return sum(
            trial.asleep_bytes if seat.entry.sleep else trial.held_bytes
            for seat, trial in self._on(before, place)
        )

    def _held(self, seats: Sequence[PackSeat], place: int) -> int:
        """What is taken of a card with the largest of its sleepers awake."""
        woken = [
            trial.held_bytes - trial.asleep_bytes
            for seat, trial in self._on(seats, place)
            if seat.entry.sleep
        ]
        return self.found_taken(seats, place) + max(woken, default=0)

    def _spread(self, seats: Sequence[PackSeat], place: int) -> int:
        """How much more contexts may take than estimated; nothing where the shares are told."""
        on = self._on(seats, place)
        return sum(trial.spread_bytes for seat, trial in on if seat.entry.share is None)

    def taken(self, seats: Sequence[PackSeat], place: int) -> int:
        """What all hold of a card at most: the largest of its sleepers awake."""
        return self._held(seats, place)

    def _rank(self, before: Sequence[PackSeat], window: Sequence[int]) -> tuple[bool, int]:
        """Cards that nobody has come first, then those with the most left."""
        return any(self._on(before, place) for place in window), -self._free(before, window)

    def _free(self, before: Sequence[PackSeat], window: Sequence[int]) -> int:
        return min(self.sizes[place] - self._held(before, place) for place in window)

    def _hold(self, seats: Sequence[PackSeat]) -> bool:
        """Whether every card holds what sits on it; who has a card for itself is judged by its own plan."""
        return all(
            len(self._on(seats, place)) < 2
            or self._held(seats, place) + self._spread(seats, place) <= self.sizes[place]
            for place in seats[-1].cards
        )

    # How much

    def _shared_out(self, seats: tuple[PackSeat, ...]) -> tuple[PackSeat, ...]:
        """Every seat with what is left of its cards shared out by need, each started after those before."""
        made: tuple[PackSeat, ...] = ()
        for seat in seats:
            if not seat.cards or seat.trial is None:
                made = (*made, seat)
                continue
            kind, count = self.node.cards[seat.cards[0]], len(seat.cards)
            others = max(self.found_taken(made, place) for place in seat.cards)
            if all(len(self._on(seats, place)) < 2 for place in seat.cards):
                trial = self.trials.trial(seat.entry, kind, count, 0, seat.entry.share)
            else:
                allotted = min(self._allotted(seats, seat, place) for place in seat.cards)
                trial = self.trials.most(seat.entry, kind, count, others, allotted)
            made = (*made, replace(seat, trial=trial))
        return made

    def _allotted(self, seats: Sequence[PackSeat], seat: PackSeat, place: int) -> int:
        """Bytes of a card that ``seat`` may hold: its least, and its part of what is left."""
        assert seat.trial is not None
        on = self._on(seats, place)
        left = self.sizes[place] - self._held(seats, place) - self._spread(seats, place)
        awake = [trial for one, trial in on if not one.entry.sleep]
        asleep = [trial for one, trial in on if one.entry.sleep]
        in_turn = max((_need(trial) for trial in asleep), default=0)
        needs = sum(map(_need, awake)) + in_turn
        mine = in_turn if seat.entry.sleep else _need(seat.trial)
        part = max(0, left) * mine // max(1, needs)
        if not seat.entry.sleep:
            return seat.trial.held_bytes + part
        woken = max(trial.held_bytes - trial.asleep_bytes for trial in asleep)
        return seat.trial.asleep_bytes + woken + part


def _need(trial: PackTrial) -> int:
    """Bytes of cache that its users fill, at least one."""
    return max(1, trial.answer.kv_bytes)
