"""llama.cpp's rules by build: one table of what each build brought.

Builds are llama.cpp's tags (``b7410``). Sources: the pull requests named beside each entry, with the
first tag that holds them (those marked ≈ by their merge date between two dated tags).
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal

from kvroom.records import dataclass

LatentCache = Literal["heads", "latent and values", "latent"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRules:
    """What one build does. The defaults are those of the oldest modelled."""

    windows: bool = False
    """Windowed layers keep a cache of their own, as long as the window."""
    window_adds: Literal["batch", "ubatch"] = "batch"
    """What is added to the window for the tokens being computed."""
    padding: int = 256
    """Tokens that the context is padded to a multiple of."""
    window_padding: bool = False
    """Windows are padded so too; before, by 32 where flash attention is off."""
    streams: bool = False
    """Slots may have cells of their own; before, all share one row of cells."""
    flash: bool = False
    """Flash attention is on by default (where the backend has it)."""
    all_layers: bool = False
    """Every layer goes to the GPU by default; before, none."""
    auto_slots: int = 1
    """Slots of a server that is not told how many; more than one are then unified."""
    fit: bool = False
    """What the user leaves unset is fitted to the device's memory."""
    latent: LatentCache = "heads"
    """What is stored of latent attention."""
    indexer: bool = False
    """Sparse attention keeps its indexer's keys; before, it ran dense without."""
    gated_apart: bool = False
    """What a gated feed-forward block makes has a place of its own beside the gate's two inputs; before, it
    takes that of one."""
    outputs: Literal["batch", "slots"] = "batch"
    """Rows of logits that the compute buffer reserves."""


CHANGES: tuple[tuple[int, dict[str, Any]], ...] = (
    (5140, {"latent": "latent and values"}),  # #12801, 2025-04-15 (≈)
    (5434, {"windows": True}),  # #13194, 2025-05-20 (≈)
    (5558, {"window_adds": "ubatch"}),  # 2025-05-31 (≈)
    (5787, {"gated_apart": True}),  # #14158, 2025-06-29 (≈)
    (5913, {"streams": True}),  # #14363, 2025-07-16 (≈)
    (6325, {"flash": True, "all_layers": True}),  # #15434
    (6929, {"auto_slots": 4, "window_padding": True}),  # #16736, 2025-11-02 (≈)
    (7410, {"fit": True}),  # #16653
    (7833, {"latent": "latent"}),  # #19067, 2026-01-25 (≈)
    (9437, {"outputs": "slots"}),  # #23861, 2026-05-31 (≈)
    (9990, {"indexer": True}),  # #25407, 2026-07 (≈)
)
OLDEST, NEWEST = 4000, 10488
"""The builds between which the rules are known; the newest is the one read line by line."""
BUILDS = tuple(f"b{build}" for build in (NEWEST, *(b for b, _ in reversed(CHANGES)), OLDEST))
"""Builds that brought rules of their own, the newest first."""

_BUILD = re.compile(r"\s*(?!20\d\d-[01]\d)[bB]?(\d{3,6})(?!\.?\d)")
"""``b4000``, not ``2024-05``: a date is no build."""
VERSIONS = {"0.5.0": NEWEST}
"""Versions that llama.cpp has beside its builds since 2026, by the build whose rules they were held against
(``tests/golden/llama_cpp.json``)."""


def parse_build(text: str | None) -> tuple[int, str]:
    """The modelled build nearest to ``text``, and a warning ("" where none is due)."""
    if text is None or not text.strip():
        return NEWEST, f"no llama.cpp build given: b{NEWEST} assumed (--engine-version)"
    if (known := VERSIONS.get(text.strip().removeprefix("v"))) is not None:
        return known, ""
    match = _BUILD.match(text)
    if match is None:
        return NEWEST, f"'{text[:40]}' is no llama.cpp build: the rules of b{NEWEST} are used"
    asked = int(match[1])
    nearest = max(asked, OLDEST)
    if nearest != asked:
        return nearest, f"llama.cpp b{asked} is not modelled: the rules of b{nearest} are used"
    return asked, ""


@lru_cache(maxsize=64)
def rules_of(build: int) -> BuildRules:
    """The rules that hold in ``build``."""
    rules = BuildRules()
    for since, changed in CHANGES:
        if since <= build:
            rules = replace(rules, **changed)
    return rules


IK = BuildRules(padding=1, fit=False, latent="latent")
"""ik_llama.cpp, as its logs of 2025 show it: windows at full length, nothing padded; what is stored of
latent attention is the user's choice (``mla_use``)."""
