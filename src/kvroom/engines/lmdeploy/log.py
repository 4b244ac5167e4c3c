"""What LMDeploy prints at its start: its PyTorch engine with ``--log-level INFO``, TurboMind unasked.

Sources: ``async_engine.py`` (``input backend=…``) and ``pytorch/engine/executor/base.py`` of 0.10.2;
TurboMind's ``BlockManager.cc``, which tells the blocks of each GPU. Neither prints what the weights took.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kvroom.engines.lmdeploy.command import POLICIES
from kvroom.engines.lmdeploy.flags import BLOCK_TOKENS
from kvroom.engines.log_memory import memory_shapes
from kvroom.engines.log_reader import LogReader
from kvroom.engines.log_reprs import read_keywords
from kvroom.engines.log_shapes import MAX_NUMBER, Figures, Record, Shape, refusal, whole
from kvroom.units import MIB

ENGINE = "lmdeploy"
PYTORCH, TURBOMIND = "pytorch", "turbomind"
SAID = ("max_batch_size", "cache_max_entry_count", "max_prefill_token_num")
"""Flags that bear on memory, as the engines' configs call them; a block's tokens have two names."""
FRAMES = {
    "build_model": "load",
    "build_cache_engine": "cache",
    "warmup": "graphs",
    "forward": "serve",
}
"""Functions that a traceback names, and the stage of a start they are."""


def _count(settings: Mapping[str, Any], name: str) -> int | None:
    """A whole number above 0 among the settings."""
    value = settings.get(name)
    return value if isinstance(value, int) and 0 < value < MAX_NUMBER else None


def _asked(record: Record, match: re.Match[str]) -> None:
    record.settings["backend"] = match["backend"]
    record.settings["config"] = read_keywords(match["rest"])


def _cache(record: Record, match: re.Match[str]) -> None:
    """The PyTorch engine's cache, once it has counted its blocks."""
    made = read_keywords(match["rest"])
    record.settings.setdefault("backend", PYTORCH)
    record.settings["cache"] = made
    record.add("num_blocks", _count(made, "num_gpu_blocks"))


def _blocks(record: Record, match: re.Match[str]) -> None:
    record.settings.setdefault("backend", TURBOMIND)
    record.add("num_blocks", whole(match["blocks"]))


def _block_bytes(record: Record, match: re.Match[str]) -> None:
    """A block on one GPU, where it is not cut to whole MiB."""
    if "." in match["mib"]:
        record.add("block_bytes", round(float(match["mib"]) * MIB))


SHAPES: tuple[Shape, ...] = (
    Shape(
        "backend_config=",
        r"input backend=(?P<backend>\w+), backend_config=\w+Config\((?P<rest>.*)",
        opens=True,
        read=_asked,
    ),
    Shape("CacheConfig(max_batches=", r"CacheConfig\((?P<rest>.*)", read=_cache),
    Shape(
        "[BlockManager] max_block_count",
        r"max_block_count = (?P<blocks>\d+)",
        read=_blocks,
    ),
    Shape(
        "[BlockManager] block_size", r"block_size = (?P<mib>\d+(?:\.\d+)?) MB", read=_block_bytes
    ),
    Shape("No enough gpu memory for", r"No enough gpu memory for [\w ]+", read=refusal),
    *memory_shapes("lmdeploy", FRAMES, (("num_blocks", "load"),)),
)


class LmdeployLog(LogReader):
    """LMDeploy's log, which names neither model nor version."""

    def figures(self, record: Record) -> Figures:
        """The figures under their common names; of several ranks the one with fewest blocks."""
        blocks, size = record.low("num_blocks"), record.low("block_bytes")
        tokens = self._block_tokens(record)
        printed: Figures = {
            "num_blocks": blocks,
            "block_size": tokens if blocks else None,
            "kv_tokens": blocks * tokens if blocks else None,
            "kv_available_bytes": blocks * size if blocks and size else None,
            "total_gpu_bytes": record.low("total_gpu_bytes"),
        }
        return {key: value for key, value in printed.items() if value is not None}

    @staticmethod
    def _block_tokens(record: Record) -> int:
        """Tokens of a block: as said, else as usual."""
        for settings in (record.settings.get("cache", {}), record.settings.get("config", {})):
            for name in ("block_size", "cache_block_seq_len"):
                if (tokens := _count(settings, name)) is not None:
                    return tokens
        return BLOCK_TOKENS

    def question(self, record: Record) -> dict[str, Any]:
        """The Scenario's keys as far as the log states them."""
        said: dict[str, Any] = {
            **record.settings.get("config", {}),
            **record.settings.get("cache", {}),
        }
        keys: dict[str, Any] = {"engine": ENGINE}
        for name, key in (("tp", "tp"), ("ep", "ep"), ("session_len", "context_tokens")):
            if (_count(said, name) or 0) > 1:
                keys[key] = said[name]
        policy = POLICIES.get(str(said.get("quant_policy", 0)), "auto")
        if policy != "auto":
            keys["kv_dtype"] = policy
        args = {name: said[name] for name in SAID if isinstance(said.get(name), int | float)}
        args = {name: value for name, value in args.items() if 0 < value < MAX_NUMBER}
        if self._block_tokens(record) != BLOCK_TOKENS:
            args["cache_block_seq_len"] = self._block_tokens(record)
        if record.settings.get("backend") == PYTORCH:
            args["backend"] = PYTORCH
        keys["engine_args"] = args
        return keys


LOG = LmdeployLog(engine=ENGINE, shapes=SHAPES, scales=True)
