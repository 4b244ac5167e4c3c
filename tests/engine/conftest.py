"""Tests against a real engine run only where ``make engine`` has set one up."""

from __future__ import annotations

import pytest

from engine.server import PYTHON


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip them, saying what they need."""
    if PYTHON:
        return
    reason = "needs a vLLM for the CPU: make engine"
    for item in items:
        if "engine" in item.keywords:
            item.add_marker(pytest.mark.skip(reason=reason))
