"""How much of the requests' prefixes a cache of any size would still hold, and what that size means on
a machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, field
from pathlib import Path
from typing import Any

from kvroom.answer import charts, html
from kvroom.answer.shown import Shown
from kvroom.errors import KvroomError
from kvroom.models.dtypes import cache_dtype
from kvroom.models.load import load
from kvroom.records import dataclass
from kvroom.scenario.offload import KINDS, parse_tiers
from kvroom.simulator.reuse import BLOCK_TOKENS, MAX_CAPACITY_BLOCKS, Price, Reuse, placed, reuse
from kvroom.units import GIB, parse_bytes, parse_count, show_gib
from kvroom.workloads import synthetic
from kvroom.workloads.requests import Request
from kvroom.workloads.traces.opened import Held
from kvroom.workloads.traces.reader import Counts, Trace


@dataclass(frozen=True, kw_only=True, repr=False)
class TraceReuse(Shown):
    """What the prefixes of the requests of ``name`` allow a cache, and what was met while reading them.

    With a ``price`` (a model's bytes a token) sizes are told in bytes; ``rooms`` are bytes by tier, the
    nearest first.
    """

    TITLE = "What a prefix cache would hold"

    reuse: Reuse
    name: str = ""
    counts: Counts | None = None
    price: Price | None = None
    rooms: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values (CONTRACT: reuse)."""
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
                tiers = self.reuse.by_tier(self.rooms, price)
                answer["tiers"] = [asdict(tier) | {"gib": tier.bytes / GIB} for tier in tiers]
        return answer | {"warnings": list(self.warnings)}

    def rows(self) -> list[dict[str, Any]]:
        """A flat row a policy and cache size: blocks, tokens, hits over references."""
        size = self.reuse.refs.block_tokens
        return [
            {"policy": policy, "blocks": int(key), "tokens": int(key) * size, "hit_ratio": ratio}
            for policy, by_size in self.reuse.hit_ratio.items()
            for key, ratio in by_size.items()
        ]

    def summary(self) -> str:
        """How much a cache without limit would hold."""
        refs, best = self.reuse.refs, self.reuse.infinite
        return (
            f"{len(refs.ends):,} requests refer {len(refs.blocks):,} times to {refs.unique_blocks:,} blocks "
            f"of {refs.block_tokens:,} tokens; a cache without limit hits {best.hit_blocks:,} of them, "
            f"{self.reuse.token_hit_ratio:.1%} of all prompt tokens."
        )

    def html_parts(self) -> list[str]:
        """The sentence, the curve of hit ratios, and every policy and size."""
        columns = [
            html.Column(title="policy", key="policy"),
            html.Column(title="blocks", key="blocks", number=True),
            html.Column(title="tokens", key="tokens", number=True),
            html.Column(title="hit ratio", key="hit_ratio", number=True, decimals=4),
        ]
        parts = [html.paragraph(self.summary()), html.heading("Hit ratio of LRU caches by blocks")]
        parts += [charts.curve(self.reuse.curve(64), "Hit ratio of LRU caches by blocks")]
        parts += [html.heading("By policy and size"), html.table(columns, self.rows())]
        parts += [html.paragraph(f"Note: {warning}.", soft=True) for warning in self.warnings]
        return parts


def requests_of(
    trace: Any,
    workload: str | None,
    read: Callable[[str | Held], Trace | Iterable[Request]],
) -> tuple[str, Iterable[Request]]:
    """The requests and what they are called: of a trace (a path, a file's content, requests), or of a SPEC
    line. ``read`` opens a trace."""
    if (trace is None) == (workload is None):
        fix = "Give the path of a trace, or --workload SPEC in its place."
        raise KvroomError("TRACE", trace, "is missing" if trace is None else "is one of two", fix)
    if workload is not None:
        return workload, synthetic.parse(workload, "--workload")
    if isinstance(trace, str | Held):
        name = trace.name if isinstance(trace, Held) else Path(trace).name
        return name, read(trace)
    if not isinstance(trace, Iterable):
        raise KvroomError("trace", trace, "is no trace", "Give a file's path, or Request objects.")
    return "", trace


def price_of(model: Any, kv_dtype: str, *, paths: bool = True) -> Price:
    """What a token of ``model``'s cache takes at ``kv_dtype`` (``auto``: the checkpoint's own, else bf16)."""
    spec = load(model, paths=paths)
    if kv_dtype.lower() == "auto":
        own = spec.quantisation.kv_dtype if spec.quantisation else None
        kv_dtype = own or "bf16"
    return Price.of(spec, cache_dtype(kv_dtype, "--kv-dtype"))


def rooms_of(
    rooms: Mapping[str, int | str], tiers: Sequence[Any], *, priced: bool
) -> dict[str, int]:
    """Bytes by tier, from near to far: of ``rooms`` and of ``tiers`` as a Scenario writes them."""
    sizes = {name: parse_bytes(f"--{name}", size) for name, size in rooms.items()}
    bytes_by_tier = dict(sizes)
    for tier in parse_tiers("--tier", list(tiers)):
        name = tier.kind
        if name in sizes:
            raise KvroomError("--tier", name, "is named twice", f"Leave --{name} out.")
        if tier.bytes is None:
            why = "has no size: reuse is asked of no machine"
            raise KvroomError("--tier", name, why, f"Write {name}:512GiB.")
        bytes_by_tier[name] = tier.bytes
    if bytes_by_tier and not priced:
        room, size = next(iter(bytes_by_tier.items()))
        field = "--tier" if tiers else f"--{room}"
        raise KvroomError(field, size, "is room for a cache of no known size", "Give --model.")
    return {name: bytes_by_tier[name] for name in ("hbm", *KINDS) if name in bytes_by_tier}


def reuse_of(
    requests: Iterable[Request],
    *,
    name: str = "",
    block_tokens: int | None = None,
    policies: Sequence[str] = ("lru",),
    capacities: Sequence[int] = (),
    price: Price | None = None,
    rooms: Mapping[str, int] | None = None,
    passing: Callable[[Iterable[Request]], Iterable[Request]] | None = None,
) -> TraceReuse:
    """The reuse of ``requests``, read once, in blocks of their own hash ids' size where none is given.

    All requests go through ``passing``, which may end it.
    """
    size = block_tokens or getattr(requests, "hash_tokens", None) or BLOCK_TOKENS
    passed = requests if passing is None else passing(requests)
    answer = reuse(passed, size, policies or ("lru",), capacities)
    read = requests if isinstance(requests, Trace) else None
    return TraceReuse(
        name=name,
        reuse=answer,
        counts=read.counts if read else None,
        price=price,
        rooms=rooms or {},
        warnings=tuple(_warnings(answer, read, price)),
    )


def _warnings(answer: Reuse, read: Trace | None, price: Price | None) -> Iterator[str]:
    refs = answer.refs
    if refs.unknown_requests:
        yield (
            f"{refs.unknown_requests:,} of {len(refs.ends):,} requests say nothing of what they hold:"
            " they hit and fill nothing"
        )
    if read is not None and read.hash_tokens and refs.block_tokens != read.hash_tokens:
        yield (
            f"an id stands for {read.hash_tokens} tokens and a block for {refs.block_tokens}:"
            " what is shared within an id is not seen"
        )
    if read is not None and read.counts.unordered:
        yield f"{read.counts.unordered:,} requests come out of order; taken in file order"
    if read is not None:
        yield from read.counts.notes()
    if price is not None and price.fixed_bytes:
        yield (
            f"windows and state of {price.name} come on top: {show_gib(price.fixed_bytes)} for every"
            " prompt that is to be continued"
        )


def capacities_of(text: str | None) -> list[int]:
    """The numbers of blocks in ``A,B,…``."""
    parts = text.split(",") if text is not None else ()
    return [parse_count("--capacity", part, low=1, high=MAX_CAPACITY_BLOCKS) for part in parts]
