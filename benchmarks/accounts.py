"""Memory accounts of real starts against what kvroom reckons from their flags alone.

    python benchmarks/accounts.py STARTS.jsonl --configs FOLDER [--bands] [--worst N]

STARTS.jsonl holds one start a line: engine, version, config (the name of a config.json in FOLDER), gpu,
layout, engine_args, what the log says the engine took (settings), and ``printed`` bytes (any may be null).
The table tells, by engine, release and card, how far each account is off: median and 90th percentile in
percent, how many starts lie in the 80 % band, and how many there are. ``--bands`` prints, for each account,
the middle 80 % of printed over reckoned, and how many starts it holds when each model is judged by the
others alone: what the bands in kvroom are taken from.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvroom.errors import KvroomError
from kvroom.planner.plan import plan
from kvroom.scenario.scenario import Scenario

GIB = 2**30
ROUNDED = 0.006 * GIB
"""Two digits of GiB are printed."""
COVER = 0.8
ACCOUNTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    # account: (what is printed of it, kvroom's accounts that it holds)
    "cache": ("kv_bytes", ("kv",)),
    "weights": ("weights_bytes", ("weights", "draft")),
    "activations": ("activation_peak_bytes", ("activations", "encoder")),
    "runtime": ("non_torch_bytes", ("runtime",)),
    "graphs": ("graph_bytes", ("graphs",)),
}
DROPPED = (
    "kv_cache_dtype", "data_parallel_size", "language_model_only", "performance_mode",
    "speculative_config", "compilation_config", "max_model_len", "context_length",
)  # fmt: skip
GENERATIONS = ((0, 8), (0, 11), (0, 17), (0, 21), (0, 27))
Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One printed account of one start beside the reckoned one and its band."""

    start: str
    model: str
    groups: tuple[str, ...]
    account: str
    printed: float
    reckoned: int
    low: int
    high: int

    @property
    def error(self) -> float:
        """How far off, as a share of what is printed."""
        return abs(self.reckoned / self.printed - 1)

    @property
    def inside(self) -> bool:
        """Whether the band holds it."""
        return self.low - ROUNDED <= self.printed <= self.high + ROUNDED


def scenario(row: Row, config: Path) -> Scenario:
    """The start's question, by its flags alone."""
    args = dict(row["engine_args"])
    length = args.get("max_model_len") or args.get("context_length")
    length = length or row["settings"].get("max_model_len")
    asked: dict[str, Any] = {
        "model": str(config), "gpu": row["gpu"], "gpu_count": row["gpu_count"],
        **{k: row[k] for k in ("tp", "pp", "dp", "ep", "engine")},
        "engine_version": row["version"], "weight_dtype": row["weight_dtype"],
        "context_tokens": length, "engine_args": {k: v for k, v in args.items() if k not in DROPPED},
    }  # fmt: skip
    if row["kv_dtype"] not in (None, "auto"):
        asked["kv_dtype"] = row["kv_dtype"]
    draft = args.get("speculative_config")
    if isinstance(draft, dict) and draft.get("method") in ("mtp", "ngram"):
        tokens = draft.get("num_speculative_tokens", 1)
        asked["speculation"] = {"method": draft["method"], "num_speculative_tokens": tokens}
    return Scenario.from_dict(asked)


def generation(engine: str, version: str) -> str:
    """The engine with the span of releases whose accounts are alike."""
    if engine != "vllm":
        return engine
    release = tuple(int(x) for x in version.split(".")[:2])
    since = max((g for g in GENERATIONS if g <= release), default=None)
    return f"vllm since {since[0]}.{since[1]}" if since else "vllm V0"


def trials(rows: Iterable[Row], configs: Path) -> Iterator[Trial]:
    """Every printed account of the starts whose model is at hand."""
    for row in rows:
        config = configs / f"{row['config']}.json"
        if not row["config"] or not config.is_file():
            continue
        try:
            made = plan(scenario(row, config))
        except KvroomError as e:
            print(f"- {row['id']}: refused: {e}")
            continue
        found = {a.name: a for a in made.memory.accounts}
        groups = (
            "all", row["engine"], generation(row["engine"], row["version"]), row["gpu"],
        )  # fmt: skip
        for account, (key, names) in ACCOUNTS.items():
            printed = row["printed"][key]
            parts = [found[n] for n in names if n in found]
            if not parts or not printed or printed <= 0:
                continue
            yield Trial(
                start=row["id"],
                model=row["config"],
                groups=tuple(dict.fromkeys(groups)),
                account=account,
                printed=printed,
                reckoned=sum(a.bytes for a in parts),
                low=sum(a.low_bytes for a in parts),
                high=sum(a.high_bytes for a in parts),
            )


def quantile(values: list[float], share: float) -> float:
    """The value below which so large a ``share`` of ``values`` lies, between neighbours."""
    ranked = sorted(values)
    at = share * (len(ranked) - 1)
    low = int(at)
    high = min(low + 1, len(ranked) - 1)
    return ranked[low] + (at - low) * (ranked[high] - ranked[low])


def table(found: list[Trial]) -> Iterator[str]:
    """The lines of the table."""
    cells: dict[str, dict[str, list[Trial]]] = defaultdict(lambda: defaultdict(list))
    for t in found:
        for group in t.groups:
            cells[group][t.account].append(t)
    yield f"{'':20}" + "".join(f"{a:>26}" for a in ACCOUNTS)
    for group, by in sorted(cells.items(), key=lambda x: (x[0] != "all", x[0])):
        line = f"{group:20}"
        for account in ACCOUNTS:
            here = by.get(account, [])
            if not here:
                line += f"{'':>26}"
                continue
            errors = [100 * t.error for t in here]
            middle, most = statistics.median(errors), quantile(errors, 0.9)
            held = 100 * sum(t.inside for t in here) / len(here)
            line += f"{middle:9.1f}/{most:6.1f} {held:4.0f} % {len(here):3}"
        yield line


def bands(found: list[Trial]) -> Iterator[str]:
    """Each account's middle 80 % of printed over reckoned, and how well it holds models left out."""
    for account in ACCOUNTS:
        here = [t for t in found if t.account == account]
        if not here:
            continue
        ratios = [t.printed / t.reckoned for t in here if t.reckoned]
        half = (1 - COVER) / 2
        low, high = quantile(ratios, half), quantile(ratios, 1 - half)
        held = 0
        for t in here:
            others = [o.printed / o.reckoned for o in here if o.model != t.model and o.reckoned]
            if not others or not t.reckoned:
                continue
            slack = ROUNDED / t.reckoned
            ratio = t.printed / t.reckoned
            held += quantile(others, half) - slack <= ratio <= quantile(others, 1 - half) + slack
        yield (
            f"{account:12} {low:6.3f} to {high:6.3f} of {len(here)}; each model by the others: "
            f"{100 * held / len(here):.0f} % held"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("starts", type=Path)
    parser.add_argument("--configs", type=Path, required=True, help="folder of config.json files")
    parser.add_argument("--bands", action="store_true", help="the bands that the starts show")
    parser.add_argument("--worst", type=int, default=0, help="how many of the worst to list")
    asked = parser.parse_args()
    with asked.starts.open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines if line.strip()]
    found = list(trials(rows, asked.configs))
    print("\n".join(table(found)))
    if asked.bands:
        print("\n".join(bands(found)))
    caches = [t for t in found if t.account == "cache"]
    for t in sorted(caches, key=lambda t: -t.error)[: asked.worst]:
        print(
            f"{100 * t.error:6.1f} % {t.start} {t.model}: printed {t.printed / GIB:.2f} GiB, "
            f"reckoned {t.reckoned / GIB:.2f} ({t.low / GIB:.2f} to {t.high / GIB:.2f})"
        )


if __name__ == "__main__":
    main()
