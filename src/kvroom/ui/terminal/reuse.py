"""``kvroom reuse`` as text, as wide as the terminal."""

from __future__ import annotations

from kvroom.planner.reuse import TraceReuse
from kvroom.simulator.reuse import Need, Reuse, ages, placed
from kvroom.ui.terminal.plain import plain_text, text_width
from kvroom.ui.terminal.table import aligned
from kvroom.ui.terminal.text import paragraph
from kvroom.units import show_count, show_gib
from kvroom.workloads.statistics import fragmentation

ROWS, LEVELS = 8, " ▁▂▃▄▅▆▇█"
MARGIN = 9


def show(answer: TraceReuse) -> str:
    """The whole answer."""
    found, refs = answer.reuse, answer.reuse.refs
    total, best = len(refs.blocks), found.infinite
    head = (
        f"{answer.name}: {len(refs.ends):,} requests, {total:,} references to"
        f" {refs.unique_blocks:,} blocks of {refs.block_tokens} tokens"
    )
    blocks = [paragraph(head, "")]
    if total:
        blocks.append(
            paragraph(
                f"A cache without limit hits {best.hit_blocks:,} blocks"
                f" ({best.hit_blocks / total:.1%}): {found.token_hit_ratio:.1%} of all prompt tokens."
            )
        )
        blocks += [curve(found), policies(found), needs(answer), by_tier(answer), lives(found)]
    blocks += [waste(found), *(paragraph(f"Note: {warning}.") for warning in answer.warnings)]
    return "\n\n".join(block for block in blocks if block)


def curve(reuse: Reuse) -> str:
    """The hit ratio of LRU caches over their size, drawn in block characters."""
    width = text_width() - MARGIN - 1
    largest = reuse.lru.curve()[0][-1] if reuse.lru.by_distance else 1
    sizes = [max(1, round(largest ** (index / (width - 1)))) for index in range(width)]
    ratios = [reuse.lru.ratio(size) for size in sizes]
    top = max(ratios) or 1.0
    steps = [round(ratio / top * ROWS * 8) for ratio in ratios]
    blocky = plain_text("█") == "█"
    lines = ["LRU: hit ratio by cache size"]
    for row in range(ROWS, 0, -1):
        label = f"{top * row / ROWS:.1%}" if row in (ROWS, ROWS // 2) else ""
        cells = (min(max(step - 8 * (row - 1), 0), 8) for step in steps)
        drawn = (LEVELS[cell] if blocky else " #"[cell >= 4] for cell in cells)
        lines.append(f"{label:>{MARGIN - 2}} |" + "".join(drawn).rstrip())
    lines.append(" " * (MARGIN - 1) + "+" + "-" * width)
    tokens = reuse.refs.block_tokens
    marks = (show_count(sizes[i] * tokens) for i in (0, width // 2, width - 1))
    left, middle, right = marks
    axis = f"{left:<{width // 2 - len(middle) // 2}}{middle}"
    lines.append(" " * MARGIN + f"{axis}{right + ' tokens':>{width - len(axis)}}")
    return plain_text("\n".join(lines))


def policies(reuse: Reuse) -> str:
    """Hit ratios by cache size and policy."""
    names = list(reuse.hit_ratio)
    rows = [["blocks", "tokens", *names]]
    for size in next(iter(reuse.hit_ratio.values())):
        tokens = int(size) * reuse.refs.block_tokens
        ratios = (f"{reuse.hit_ratio[name][size]:.2%}" for name in names)
        rows.append([f"{int(size):,}", show_count(tokens), *ratios])
    return "Hit ratio by policy\n" + aligned(rows)


def needs(answer: TraceReuse) -> str:
    """How large a cache each share of the best hit ratio needs."""
    price = answer.price
    rows = [
        ["of best", "hits", *_columns(answer)],
        *(_need(need, answer) for need in answer.reuse.needs()),
    ]
    what = f" for {price.name} in {price.kv.name}" if price else ""
    return f"How large an LRU cache must be{what}\n" + aligned(rows)


def by_tier(answer: TraceReuse) -> str:
    """The hits that each tier adds."""
    if answer.price is None or not answer.rooms:
        return ""
    rows = [["", "size", "tokens", "hits", "with those above"]]
    for tier in answer.reuse.by_tier(answer.rooms, answer.price):
        tokens = show_count(tier.blocks * answer.reuse.refs.block_tokens)
        ratios = (f"{tier.hit_ratio:.2%}", f"{tier.total_ratio:.2%}")
        rows.append([tier.tier, show_gib(tier.bytes), tokens, *ratios])
    return "Hits of each tier, LRU through all of them, each block kept once\n" + aligned(rows)


def _columns(answer: TraceReuse) -> list[str]:
    """What ``needs`` tells of a size: where it lies is worth more than how many blocks it is."""
    if answer.price is None:
        return ["blocks", "tokens"]
    return (
        ["tokens", "size", *answer.rooms, "missing"]
        if answer.rooms
        else ["blocks", "tokens", "size"]
    )


def _need(need: Need, answer: TraceReuse) -> list[str]:
    cells = {"blocks": f"{need.blocks:,}", "tokens": show_count(need.tokens)}
    if answer.price is not None:
        size = answer.price.bytes(need.tokens)
        parts = {"missing": 0} | placed(size, answer.rooms) | {"size": size}
        cells |= {name: show_gib(part) for name, part in parts.items()}
    return [
        f"{need.share:.0%}",
        f"{need.hit_ratio:.2%}",
        *(cells[column] for column in _columns(answer)),
    ]


def lives(reuse: Reuse) -> str:
    """How soon blocks are used again, and how uses spread over them."""
    by_age = ages(reuse.refs)
    within = ", ".join(
        f"{share:.0%} within {_span(int(limit))}"
        for limit, share in by_age["reuse_within_s"].items()
    )
    parts = [
        f"{by_age['never_reused_ratio']:.1%} of the blocks are never used again.",
        f"The most used tenth of them gives {by_age['top_tenth_ratio']:.1%} of the hits.",
    ]
    if by_age["reuse_time_s"]:
        median, late = by_age["lifetime_s"]["p50"], by_age["lifetime_s"]["p99"]
        parts += [
            f"Uses come again: {within}.",
            f"A block used again lives {median:,.0f} s (median), {late:,.0f} s (99th percentile).",
        ]
    return paragraph(" ".join(parts), "")


def _span(seconds: int) -> str:
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def waste(reuse: Reuse) -> str:
    """The share of allocated tokens left unused, by block size."""
    shares = fragmentation(reuse.refs.lengths)
    by_size = ", ".join(f"{size}: {share:.2%}" for size, share in shares.items())
    return paragraph(f"Left unused in a request's last block, by block size: {by_size}.", "")
