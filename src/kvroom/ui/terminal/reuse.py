"""``kvroom reuse``: from its options to an answer, and the answer as text of 80 columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kvroom.errors import KvroomError
from kvroom.models.dtypes import cache_dtype
from kvroom.models.load import load
from kvroom.planner.results import reuse_notes
from kvroom.scenario.offload import KINDS
from kvroom.scenario.offload import asked as asked_tiers
from kvroom.simulator.reuse import BLOCK_TOKENS, Need, Price, Reuse, ages, placed, reuse
from kvroom.ui.terminal.plan import WIDTH, _plain, paragraph
from kvroom.units import GIB, parse_bytes, parse_tokens, show_count, show_gib
from kvroom.workloads import synthetic
from kvroom.workloads.requests import Request
from kvroom.workloads.statistics import fragmentation
from kvroom.workloads.traces.reader import Counts, Held, Trace

ROWS, LEVELS = 8, " ▁▂▃▄▅▆▇█"
MARGIN = 9


@dataclass(frozen=True, kw_only=True)
class Asked:
    """An answered question: the ``reuse`` of ``name``, what reading it met, what it costs."""

    name: str
    reuse: Reuse
    counts: Counts | None
    price: Price | None
    rooms: Mapping[str, int]
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain JSON values."""
        answer = self.reuse.to_dict()
        counts, price = self.counts, self.price
        if counts is not None:
            answer |= {"skipped_lines": counts.skipped_lines, "unordered": counts.unordered}
        if price is not None:
            answer["model"] = {
                "name": price.name,
                "kv_dtype": price.kv.name,
                "bytes_per_token": float(price.bytes_per_token),
                "fixed_bytes_per_prefix": price.fixed_bytes,
            }
            for need in answer["needs"]:
                size = price.bytes(need["tokens"])
                need |= {"bytes": size, "gib": size / GIB, "tiers": placed(size, self.rooms)}
            if self.rooms:
                found = self.reuse.by_tier(self.rooms, price)
                answer["tiers"] = [asdict(t) | {"gib": t.bytes / GIB} for t in found]
        return answer | {"warnings": list(self.warnings)}


def ask(
    *,
    trace: str | Held | None,
    workload: str | None,
    block_tokens: str | None,
    hash_tokens: str | None,
    policies: Sequence[str],
    capacity: str | None,
    model: str | None,
    kv_dtype: str,
    hbm: str | None,
    host: str | None,
    nvme: str | None,
    skip_bad_lines: bool,
    tiers: Sequence[str] = (),
    passing: Callable[[Iterable[Request]], Iterable[Request]] = lambda requests: requests,
) -> Asked:
    """The answer to what the options ask; KvroomError names the option that is wrong.

    All requests go through ``passing``, which may end it.
    """
    price = _price(model, kv_dtype) if model else None
    rooms = {
        name: parse_bytes(f"--{name}", size)
        for name, size in (("hbm", hbm), ("host", host), ("nvme", nvme))
        if size is not None
    }
    rooms = _rooms(rooms, tiers)
    if rooms and price is None:
        why = "is room for a cache of no known size"
        room, size = next(iter(rooms.items()))
        field = "--tier" if tiers else f"--{room}"
        raise KvroomError(field, size, why, "Give --model.")
    ids = parse_tokens("--hash-tokens", hash_tokens) if hash_tokens else None
    name, requests = _requests(trace, workload, ids, skip_bad_lines)
    read = requests if isinstance(requests, Trace) else None
    usual = (read.hash_tokens if read else None) or BLOCK_TOKENS
    block = parse_tokens("--block-tokens", block_tokens) if block_tokens else usual
    found = reuse(passing(requests), block, policies or ("lru",), _capacities(capacity))
    return Asked(
        name=name,
        reuse=found,
        counts=read.counts if read else None,
        price=price,
        rooms=rooms,
        warnings=tuple(_warnings(found, read, price)),
    )


def _rooms(rooms: dict[str, int], tiers: Sequence[str]) -> dict[str, int]:
    """``rooms`` and those of ``tiers``, from near to far."""
    found = dict(rooms)
    for tier in asked_tiers(list(tiers), "--tier"):
        name = tier.kind
        if name in rooms:
            raise KvroomError("--tier", name, "is named twice", f"Leave --{name} out.")
        if tier.bytes is None:
            why = "has no size: reuse is asked of no machine"
            raise KvroomError("--tier", name, why, f"Write {name}:512GiB.")
        found[name] = tier.bytes
    return {name: found[name] for name in ("hbm", *KINDS) if name in found}


def _requests(
    trace: str | Held | None, workload: str | None, hash_tokens: int | None, skip_bad_lines: bool
) -> tuple[str, Iterable[Request]]:
    if (trace is None) == (workload is None):
        fix = "Give the path of a trace, or --workload SPEC in its place."
        raise KvroomError("TRACE", trace, "is missing" if trace is None else "is one of two", fix)
    if workload is not None:
        return workload, synthetic.parse(workload, "--workload")
    read = Trace(trace or "", hash_tokens=hash_tokens, skip_bad_lines=skip_bad_lines)
    return read.path.name, read


def _price(model: str, kv_dtype: str) -> Price:
    spec = load(model)
    if kv_dtype.lower() == "auto":
        own = spec.quantisation.kv_dtype if spec.quantisation else None
        kv_dtype = own or "bf16"
    return Price.of(spec, cache_dtype(kv_dtype, "--kv-dtype"))


def _capacities(text: str | None) -> list[int]:
    sizes: list[int] = []
    for part in (text or "").split(",") if text is not None else ():
        if not part.strip().isdecimal():
            fix = "Write numbers of blocks with commas between them: 1000,10000."
            raise KvroomError("--capacity", part, "is no number of blocks", fix)
        sizes.append(int(part))
    return sizes


def _warnings(found: Reuse, read: Trace | None, price: Price | None) -> Iterable[str]:
    yield from reuse_notes(found, read)
    if price is not None and price.fixed_bytes:
        yield (
            f"windows and state of {price.name} come on top: {show_gib(price.fixed_bytes)} for every"
            " prompt that is to be continued"
        )


def show(asked: Asked) -> str:
    """The whole answer."""
    found, refs = asked.reuse, asked.reuse.refs
    total, best = len(refs.blocks), found.infinite
    head = (
        f"{asked.name}: {len(refs.ends):,} requests, {total:,} references to"
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
        blocks += [curve(found), policies(found), needs(asked), by_tier(asked), lives(found)]
    blocks += [waste(found), *(paragraph(f"Note: {w}.") for w in asked.warnings)]
    return "\n\n".join(block for block in blocks if block)


def curve(found: Reuse) -> str:
    """The hit ratio of LRU caches over their size, drawn in block characters."""
    width = WIDTH - MARGIN - 1
    largest = found.lru.curve()[0][-1] if found.lru.by_distance else 1
    sizes = [max(1, round(largest ** (i / (width - 1)))) for i in range(width)]
    ratios = [found.lru.ratio(size) for size in sizes]
    top = max(ratios) or 1.0
    steps = [round(ratio / top * ROWS * 8) for ratio in ratios]
    blocky = _plain("█") == "█"
    lines = ["LRU: hit ratio by cache size"]
    for row in range(ROWS, 0, -1):
        label = f"{top * row / ROWS:.1%}" if row in (ROWS, ROWS // 2) else ""
        cells = (min(max(step - 8 * (row - 1), 0), 8) for step in steps)
        drawn = (LEVELS[c] if blocky else " #"[c >= 4] for c in cells)
        lines.append(f"{label:>{MARGIN - 2}} |" + "".join(drawn).rstrip())
    lines.append(" " * (MARGIN - 1) + "+" + "-" * width)
    tokens = found.refs.block_tokens
    marks = (show_count(sizes[i] * tokens) for i in (0, width // 2, width - 1))
    left, middle, right = marks
    axis = f"{left:<{width // 2 - len(middle) // 2}}{middle}"
    lines.append(" " * MARGIN + f"{axis}{right + ' tokens':>{width - len(axis)}}")
    return _plain("\n".join(lines))


def policies(found: Reuse) -> str:
    """Hit ratios by cache size and policy."""
    names = list(found.hit_ratio)
    rows = [["blocks", "tokens", *names]]
    for size in next(iter(found.hit_ratio.values())):
        tokens = int(size) * found.refs.block_tokens
        ratios = (f"{found.hit_ratio[name][size]:.2%}" for name in names)
        rows.append([f"{int(size):,}", show_count(tokens), *ratios])
    return "Hit ratio by policy\n" + table(rows)


def needs(asked: Asked) -> str:
    """How large a cache each share of the best hit ratio needs."""
    price = asked.price
    rows = [["of best", "hits", *_columns(asked)], *(_need(n, asked) for n in asked.reuse.needs())]
    what = f" for {price.name} in {price.kv.name}" if price else ""
    return f"How large an LRU cache must be{what}\n" + table(rows)


def by_tier(asked: Asked) -> str:
    """The hits that each tier adds."""
    if asked.price is None or not asked.rooms:
        return ""
    rows = [["", "size", "tokens", "hits", "with those above"]]
    for tier in asked.reuse.by_tier(asked.rooms, asked.price):
        tokens = show_count(tier.blocks * asked.reuse.refs.block_tokens)
        ratios = (f"{tier.hit_ratio:.2%}", f"{tier.total_ratio:.2%}")
        rows.append([tier.tier, show_gib(tier.bytes), tokens, *ratios])
    return "Hits of each tier, LRU through all of them, each block kept once\n" + table(rows)


def _columns(asked: Asked) -> list[str]:
    """What ``needs`` tells of a size: where it lies is worth more than how many blocks it is."""
    if asked.price is None:
        return ["blocks", "tokens"]
    return (
        ["tokens", "size", *asked.rooms, "missing"] if asked.rooms else ["blocks", "tokens", "size"]
    )


def _need(need: Need, asked: Asked) -> list[str]:
    cells = {"blocks": f"{need.blocks:,}", "tokens": show_count(need.tokens)}
    if asked.price is not None:
        size = asked.price.bytes(need.tokens)
        parts = {"missing": 0} | placed(size, asked.rooms) | {"size": size}
        cells |= {name: show_gib(part) for name, part in parts.items()}
    return [f"{need.share:.0%}", f"{need.hit_ratio:.2%}", *(cells[c] for c in _columns(asked))]


def lives(found: Reuse) -> str:
    """How soon blocks are used again, and how uses spread over them."""
    told = ages(found.refs)
    within = ", ".join(
        f"{share:.0%} within {_span(int(limit))}" for limit, share in told["reuse_within_s"].items()
    )
    parts = [
        f"{told['never_reused_ratio']:.1%} of the blocks are never used again.",
        f"The most used tenth of them gives {told['top_tenth_ratio']:.1%} of the hits.",
    ]
    if told["reuse_time_s"]:
        median, late = told["lifetime_s"]["p50"], told["lifetime_s"]["p99"]
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


def waste(found: Reuse) -> str:
    """The share of allocated tokens left unused, by block size."""
    shares = fragmentation(found.refs.lengths)
    told = ", ".join(f"{size}: {share:.2%}" for size, share in shares.items())
    return paragraph(f"Left unused in a request's last block, by block size: {told}.", "")


def table(rows: Sequence[Sequence[str]]) -> str:
    """Right-aligned columns, as wide as need be."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(f"{c:>{w}}" for c, w in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(f"  {line}" for line in lines)
