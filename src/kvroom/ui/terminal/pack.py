"""Several models on one node, as one screen: the verdict, a line a model, times, sleep, cards."""

from __future__ import annotations

from collections.abc import Iterator

from kvroom.optimize.pack.answer import MPS, Packed, PackedSeat
from kvroom.optimize.pack.beside import BURST, BesideOthers, BesideTimes
from kvroom.ui.terminal.plain import ascii_only, spelled
from kvroom.ui.terminal.table import aligned
from kvroom.ui.terminal.text import paragraph
from kvroom.ui.words import span
from kvroom.units import GIB, show_memory, show_seconds, show_usd

NAME = 18
"""Columns of a model's name."""
SAVES = 0.95
"""One pool is told of where it would do with less than this of the peaks."""


def show(packed: Packed) -> str:
    """The whole answer."""
    blocks = [
        paragraph(packed.sentence),
        _seats(packed),
        _cards(packed),
        _nodes(packed),
        _times(packed),
    ]
    blocks += [_sleep(packed), _elastic(packed)]
    blocks += [paragraph(f"! {warning}", "") for warning in packed.warnings]
    text = "\n\n".join(block for block in blocks if block)
    return spelled(text) if ascii_only() else text


def _short(name: str) -> str:
    return name if len(name) <= NAME else name[: NAME - 1] + "…"


def _gib(size: int | None) -> str:
    return "–" if size is None else f"{size / GIB:.1f}"


def _seats(packed: Packed) -> str:
    rows = [["in this order", "cards", "start with", "free", "takes", "cache", "room", "asked"]]
    for one in packed.rows_of:
        trial, seat = one.seat.trial, one.seat
        placed = trial if seat.cards else None
        rows.append(
            [
                _short(seat.entry.name),
                ",".join(map(str, seat.cards)) or "none",
                _start(one) if placed else "–",
                _gib(one.free_bytes),
                _gib(placed.held_bytes if placed else None),
                _gib(placed.answer.kv_bytes if placed else None),
                "any"
                if trial and trial.requests is None
                else f"{trial.requests:,}"
                if trial
                else "–",
                f"{trial.needed:,}" if trial else "–",
            ]
        )
    flags = dict.fromkeys(
        f"{one.flag.replace('_', '-')} ({one.seat.entry.engine.label})"
        for one in packed.rows_of
        if one.flag and one.seat.cards
    )
    said = f" Start with: --{', --'.join(flags)}." if flags else ""
    layouts = [
        f"{one.seat.entry.name} {one.seat.trial.layout}"
        for one in packed.rows_of
        if one.seat.trial and len(one.seat.cards) > 1
    ]
    laid = f" Layout: {', '.join(layouts)}." if layouts else ""
    note = (
        f"GiB of each card: free when it starts, taken once it has; requests at once.{said}{laid}"
    )
    return aligned(rows, left=3, indent="  ", trimmed=True) + "\n\n" + paragraph(note)


def _start(one: PackedSeat) -> str:
    return f"{one.share:g}" if one.flag and one.share is not None else "what it needs"


def _cards(packed: Packed) -> str:
    lines = []
    for place, (card, size, taken) in enumerate(
        zip(packed.node.cards, packed.card_bytes, packed.taken_bytes, strict=True)
    ):
        lines.append([f"{place}  {card}", f"{_gib(taken)} of {_gib(size)}"])
    return aligned([["card", "GiB taken"], *lines], left=1, trimmed=True)


def _nodes(packed: Packed) -> str:
    if not packed.others:
        return ""
    rows = [["nodes tried, the cheapest first", "$/h", ""]]
    for name, price, fits in packed.others:
        cost = "–" if price is None else show_usd(price)
        rows.append([name, cost, "holds all" if fits else "does not"])
    return aligned(rows, left=1, trimmed=True)


def _times(packed: Packed) -> str:
    timed = [one.times for one in packed.rows_of if one.times]
    if not timed:
        return ""
    rows = [["TTFT p95, TPOT", "alone", "beside the others"]]
    for times in timed:
        rows.append([_short(times.name), _both(times.alone), _beside(packed, times)])
        for other, burst in times.bursts.items():
            if len(times.bursts) > 1:
                who = "it" if other == times.name else _short(other)
                rows.append([f"  {who} bursts {BURST}×", "", _both(burst)])
    way = (
        "With MPS times lie between the two told: with its share of the multiprocessors and all of the "
        "bandwidth, and as if engines took turns; how far they slow each other in between is not modelled."
        if packed.sharing == MPS
        else "Engines on one GPU take turns (time slicing): while n have work each has an n-th of it. Parts "
        "of time with work are means, so that bursts which fall together by chance are not told apart."
    )
    queue = any(
        one.queues for times in timed for one in (times.alone, times.beside, *times.bursts.values())
    )
    more = " Queues: more comes than is answered." if queue else ""
    return aligned(rows, left=1, trimmed=True) + "\n\n" + paragraph(way + more)


def _both(times: BesideTimes) -> str:
    ttft = "–" if times.ttft_p95_s is None else span(times.ttft_p95_s)
    tpot = "–" if times.tpot_mean_s is None else span(times.tpot_mean_s)
    return f"{'queues' if times.queues else ttft}, {tpot}"


def _beside(packed: Packed, times: BesideOthers) -> str:
    told = _both(times.beside)
    return f"{_both(times.side_by_side)} to {told}" if packed.sharing == MPS else told


def _sleep(packed: Packed) -> str:
    lines = list(_sleepers(packed))
    if not lines:
        return ""
    host = packed.host_needed_bytes
    if host:
        room = f" of {show_memory(packed.host_bytes)}" if packed.host_bytes else ""
        lines.append(f"Asleep they take {show_memory(host)}{room} of host memory.")
    lines.append(
        "One sleeper of a card is awake at a time; times are those of the copies alone, over the host link "
        "(level 1) or from disk (level 2)."
    )
    return "\n".join(paragraph(line) for line in lines)


def _sleepers(packed: Packed) -> Iterator[str]:
    for one in packed.rows_of:
        sleep = one.sleep
        if sleep is None:
            continue
        wake = "unknown" if sleep.wake_s is None else show_seconds(sleep.wake_s)
        down = f"falls asleep in {show_seconds(sleep.sleep_s)}, " if sleep.sleep_s else ""
        yield (
            f"{one.seat.entry.name} asleep (level {sleep.level}) frees {show_memory(sleep.freed_bytes)} of a "
            f"card and leaves {show_memory(sleep.stays_bytes)} there; {down}wakes in {wake}."
        )


def _elastic(packed: Packed) -> str:
    return "\n".join(
        paragraph(
            f"Were the cache of card {pool.card} one pool that engines take of as they need, "
            f"{show_memory(pool.pooled_bytes)} would do where their peaks one by one add up to "
            f"{show_memory(pool.peaks_bytes)}: the sum of their means and the largest rise above its own. "
            "No flag gives that: each engine takes its share when it starts."
        )
        for pool in packed.elastic
        if pool.pooled_bytes < SAVES * pool.peaks_bytes
    )
