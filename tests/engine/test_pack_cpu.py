"""Two of vLLM's CPU servers on one machine, one after the other: each prints what ``pack`` says of it.

Needs the environment that ``make engine`` installs; skipped without it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import kvroom
from engine import models, server
from engine.test_cpu import USUAL, flags, machine

pytestmark = pytest.mark.engine
PAIR = {"first": models.LLAMA, "second": models.QWEN2}

__all__ = ["machine"]


def test_two_servers_have_the_cache_that_pack_says(tmp_path: Path, machine: Path) -> None:
    rows = [
        {
            "name": name,
            "model": {"config": config},
            "version": server.RELEASE,
            "engine_args": USUAL,
        }
        for name, config in PAIR.items()
    ]
    found = kvroom.pack(rows, str(machine), simulate=False)
    assert found.fits
    tokens = [one.seat.trial.answer.capacity.kv_tokens for one in found.rows_of if one.seat.trial]
    for name in PAIR:
        (tmp_path / name).mkdir()
    with (
        server.running(tmp_path / "first", PAIR["first"], *flags(USUAL)) as first,
        server.running(tmp_path / "second", PAIR["second"], *flags(USUAL)) as second,
    ):
        assert first.address, first.log[-4000:]
        assert second.address, second.log[-4000:]
        assert [first.tokens, second.tokens] == tokens
