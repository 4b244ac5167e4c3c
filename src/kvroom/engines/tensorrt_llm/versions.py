"""TensorRT-LLM's rules by release: one table of what each release brought.

Sources: ``llm_args.py``, ``_util.py`` and ``resource_manager.py`` of the PyTorch backend (newest read:
before 1.4), the documentation of 0.12 to 0.17 for TensorRT engines, the release notes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from kvroom.engines.releases import Release, nearest_release, rules_at
from kvroom.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorrtLlmRules:
    """What one release does. The defaults are those of the oldest modelled."""

    pytorch: bool = False
    """The PyTorch backend is the default; before, a compiled TensorRT engine."""
    windows_derived: bool = False
    """Windows of a model that mixes them follow from its config; before, from a flag alone."""
    second_manager: tuple[str, ...] = ()
    """Models that the cache manager V2 takes by default, by the beginning of their type."""


CHANGES: tuple[tuple[Release, dict[str, Any]], ...] = (
    ((1, 0, 0), {"pytorch": True}),
    (
        (1, 3, 0),
        {
            "windows_derived": True,
            "second_manager": ("gemma4", "deepseek_v32", "deepseek_v4", "glm_moe_dsa"),
        },
    ),
    (
        (1, 4, 0),
        {"second_manager": ("gemma4", "gpt_oss", "deepseek_v32", "deepseek_v4", "glm_moe_dsa")},
    ),
)
OLDEST: Release = (0, 5, 0)
NEWEST: Release = CHANGES[-1][0]


def release_of(version: str | None) -> tuple[TensorrtLlmRules, str]:
    """The rules of the modelled release nearest to ``version``, and a warning ("" where none is due)."""
    release, note = nearest_release("TensorRT-LLM", version, OLDEST, NEWEST)
    return _rules(release), note


@lru_cache(maxsize=64)
def _rules(release: Release) -> TensorrtLlmRules:
    return rules_at(TensorrtLlmRules(), CHANGES, release)
