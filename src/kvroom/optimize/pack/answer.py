"""The answer of ``pack``: fits or not, and each model's cards, share, sleep and times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any

from kvroom.answer.shown import Shown
from kvroom.optimize.pack.asleep import PackSleep
from kvroom.optimize.pack.beside import BesideOthers
from kvroom.optimize.pack.question import PackNode
from kvroom.optimize.pack.seats import PackSeat
from kvroom.records import dataclass
from kvroom.scenario.scenario import Scenario
from kvroom.units import show_memory, show_usd

TURNS, MPS = "turns", "mps"
SHARING = (TURNS, MPS)
"""How engines use one GPU: in turns (the driver's time slicing), or side by side (MPS)."""


@dataclass(frozen=True, kw_only=True)
class PackedSeat:
    """One model's seat with all that is told of it. ``free_bytes``: of each of its cards when it starts."""

    seat: PackSeat
    free_bytes: int | None
    share: float | None
    flag: str
    sleep: PackSleep | None
    times: BesideOthers | None

    @property
    def started_with(self) -> str:
        """The flag of its share; empty where it takes what it takes by itself."""
        name = self.flag.replace("_", "-")
        return f"--{name} {self.share:g}" if self.flag and self.share is not None else ""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        seat, trial = self.seat, self.seat.trial
        values: dict[str, Any] = {
            "name": seat.entry.name,
            "engine": seat.entry.engine.name,
            "fits": seat.fits,
            "why": seat.why or (trial.verdict.sentence if trial and not seat.fits else ""),
            "cards": list(seat.cards),
            "layout": trial.layout if trial else None,
            "share": self.share,
            "share_flag": self.started_with,
            "free_at_start_bytes": self.free_bytes,
            "held_bytes": trial.held_bytes if trial and seat.cards else None,
            "kv_bytes": trial.answer.kv_bytes if trial and seat.cards else None,
            "requests": trial.requests if trial else None,
            "needed": trial.needed if trial else None,
            "sleep": asdict(self.sleep) if self.sleep else None,
            "times": asdict(self.times) if self.times else None,
            "scenario": trial.scenario.to_dict() if trial and seat.cards else None,
        }
        return values


@dataclass(frozen=True, kw_only=True)
class ElasticPool:
    """Cache of the models that share a card, were it one pool that each takes of as it needs: the sum of
    their means and the largest rise of one above its own, against the sum of their peaks."""

    card: int
    peaks_bytes: int
    pooled_bytes: int


@dataclass(frozen=True, kw_only=True, repr=False)
class Packed(Shown):
    """Models on one node, in the order of starting. ``others`` are the nodes that were looked at beside it,
    by what was asked for: dollars an hour (None: unknown) and whether they hold all."""

    TITLE = "Several models on one node"

    node: PackNode
    rows_of: tuple[PackedSeat, ...]
    card_bytes: tuple[int, ...]
    taken_bytes: tuple[int, ...]
    sharing: str = TURNS
    host_bytes: int | None = None
    elastic: tuple[ElasticPool, ...] = ()
    others: tuple[tuple[str, float | None, bool], ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def host_needed_bytes(self) -> int:
        """What sleeps in host memory, if all who may are asleep."""
        return sum(one.sleep.host_bytes for one in self.rows_of if one.sleep)

    @property
    def fits(self) -> bool:
        """Whether all start, hold their users, and have room to sleep."""
        return all(one.seat.fits for one in self.rows_of) and not self._host_short

    @property
    def _host_short(self) -> int:
        room = self.host_bytes
        return max(0, self.host_needed_bytes - room) if room is not None else 0

    @property
    def sentence(self) -> str:
        """The verdict."""
        cards, many = self.node.words, len(self.rows_of)
        out = [one for one in self.rows_of if not one.seat.fits]
        models = "the model fits" if many == 1 else f"all {many} models fit"
        if out:
            first = out[0].seat
            why = first.why or (first.trial.verdict.sentence.rstrip(".") if first.trial else "")
            left = many - len(out)
            room = f"{left} of {many} models {'has' if left == 1 else 'have'} room"
            return f"Does not fit {cards}: {room}. {first.entry.name}: {why}."
        if self._host_short:
            return (
                f"Does not fit {cards}: what sleeps takes {show_memory(self.host_needed_bytes)} of host "
                f"memory, {show_memory(self._host_short)} more than there are."
            )
        price = self.node.usd_per_hour
        money = f", {show_usd(price)} an hour" if price is not None else ""
        if self.others:
            return f"The cheapest node that holds them: {cards}{money}; {models}."
        return f"Fits: {models} {cards}{money}, started in this order."

    def with_warnings(self, warnings: Iterable[str]) -> Packed:
        """The same with what is to be said of it."""
        return replace(self, warnings=tuple(warnings))

    def summary(self) -> str:
        """The verdict."""
        return self.sentence

    def rows(self) -> list[dict[str, Any]]:
        """A flat row a model."""
        keys = ("name", "engine", "fits", "share", "free_at_start_bytes", "held_bytes", "kv_bytes")
        rows = []
        for one in self.rows_of:
            values = one.to_dict()
            rows.append(
                {key: values[key] for key in keys}
                | {"cards": " ".join(map(str, values["cards"])), "share_flag": values["share_flag"]}
                | {"requests": values["requests"], "needed": values["needed"]}
            )
        return rows

    def questions(self) -> Sequence[Scenario]:
        """Each engine's own question, beside the others."""
        return [
            one.seat.trial.scenario for one in self.rows_of if one.seat.trial and one.seat.cards
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "fits": self.fits,
            "sentence": self.sentence,
            "node": {
                "gpu": self.node.name,
                "cards": list(self.node.cards),
                "usd_per_hour": self.node.usd_per_hour,
                "card_bytes": list(self.card_bytes),
                "taken_bytes": list(self.taken_bytes),
                "host_bytes": self.host_bytes,
                "host_needed_bytes": self.host_needed_bytes,
            },
            "models": [one.to_dict() for one in self.rows_of],
            "sharing": self.sharing,
            "elastic": [asdict(pool) for pool in self.elastic],
            "nodes": [
                {"gpu": name, "usd_per_hour": price, "fits": fits}
                for name, price, fits in self.others
            ],
            "warnings": list(self.warnings),
        }
