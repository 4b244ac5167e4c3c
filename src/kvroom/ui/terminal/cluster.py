"""What became of a fleet's replicas, and splits of its GPUs, as text of 80 columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvroom.optimize.split import Splits, Tried
from kvroom.ui.terminal.plain import plain_text
from kvroom.ui.terminal.table import aligned
from kvroom.ui.terminal.text import paragraph
from kvroom.ui.words import span
from kvroom.units import show_gb, show_rate

ROWS = 16
"""Replicas, and lines of what happened to them, that are told; of more, the first of them."""


def fleet_text(fleet: Mapping[str, Any]) -> str:
    """The replicas one by one, what happened to them and what crossed between them."""
    rows = [["replica", "GPUs", "requests", "hits", "cache", "there", "starts", "failures"]]
    for r in fleet["replicas"][:ROWS]:
        blocks = r["kv_blocks"]
        name = f"{r['role']} {r['replica']}" if "role" in r else str(r["replica"])
        rows.append(
            [
                name,
                f"{r['gpus']} x {r['gpu']}",
                f"{r['requests']:,}",
                f"{r['prefix_hit_ratio']:.1%}",
                f"{blocks['peak'] / blocks['total']:.0%}",
                span(r["there_s"]),
                f"{r['cold_starts']:,}",
                f"{r['failures']:,}",
            ]
        )
    parts = [aligned(rows)]
    if len(fleet["replicas"]) > ROWS:
        parts.append(f"  … and {len(fleet['replicas']) - ROWS:,} more")
    sums = [f"{fleet['gpu_hours']:,.3g} GPU hours"]
    if fleet["failures"]:
        again = _many(fleet["retries"], "request")
        sums.append(f"{_many(fleet['failures'], 'failure')}, {again} tried again")
    if fleet["cold_starts"]:
        sums.append(_many(fleet["cold_starts"], "cold start"))
    crossed = fleet.get("transfers")
    if crossed:
        sums.append(
            f"{crossed['count']:,} caches handed over, {show_gb(crossed['bytes'])} in all, "
            f"{span(crossed['mean_s'])} each on average, links of "
            f"{show_rate(crossed['link_bytes_per_s'])} busy {crossed['link_busy']:.0%} of the time"
        )
    parts.append(paragraph("; ".join(sums) + "."))
    line = fleet["timeline"]
    events = [f"  {span(t['t_s']):>8}  replica {t['replica']} {t['what']}" for t in line[:ROWS]]
    if len(line) > ROWS:
        events.append(f"  … and {len(line) - ROWS:,} more")
    return plain_text("\n\n".join([*parts, *(["\n".join(events)] if events else [])]))


def _many(count: int, word: str) -> str:
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def splits_text(splits: Splits) -> str:
    """Every split as a row, the same GPUs without one, and what the link must give."""
    heads = ["prefill:decode", "GPUs", "TTFT p50", "TTFT p99", "TPOT p99", "request", "good/s", ""]
    rows = [heads]
    for t in (*splits.tried, splits.together):
        rows.append(_row(t, "<- best" if t is splits.best else ""))
    best = f"{splits.best.prefill}:{splits.best.decode}"
    measure = "goodput" if splits.by.startswith("goodput") else "time of a request"
    if splits.pays:
        text = f"The best split is {best}, and its {measure} is better than that of the same GPUs "
        text += "each doing both"
    else:
        text = (
            f"The best split is {best}, but the same GPUs each doing both do no worse ({measure})"
        )
    link = splits.needs_bytes_per_s
    if link is None:
        text += "; no link, however fast, would change that."
    else:
        text += f"; to be no worse it needs a link of {show_rate(link)} a replica."
    return paragraph(text, "") + "\n\n" + plain_text(aligned(rows))


def _row(tried: Tried, mark: str) -> list[str]:
    a = tried.to_dict()
    times = (a["ttft_p50_s"], a["ttft_p99_s"], a["tpot_p99_s"], a["e2e_mean_s"])
    cells = ["none" if time is None else span(time) for time in times]
    name = f"{tried.prefill}:{tried.decode}" if tried.prefill else f"{tried.decode} x both"
    return [name, f"{tried.gpus:,}", *cells, f"{a['goodput_requests_per_s']:,.3g}", mark]
