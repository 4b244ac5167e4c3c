"""Tests against a real engine run only where ``make engine`` has set one up, and only so long."""

from __future__ import annotations

import os
import time

import pytest

from engine.server import PYTHON

SECONDS = float(os.environ.get("KVROOM_ENGINE_SECONDS", "inf"))
"""After so long, the installation included, no more of them is begun."""
BEGUN = float(os.environ.get("KVROOM_ENGINE_BEGUN", time.time()))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test of the engine, saying what it lacks."""
    if item.get_closest_marker("engine") is None:
        return
    if not PYTHON:
        pytest.skip("needs a vLLM for the CPU: make engine")
    if time.time() - BEGUN > SECONDS:
        pytest.skip(f"the {SECONDS:.0f} s for a real engine are used up")
