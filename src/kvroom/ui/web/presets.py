"""The five questions that the page offers, and the models it compares side by side."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from kvroom.records import dataclass
from kvroom.scenario.engine_names import CEILING_ENGINE


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A question worth starting from: ``scenario`` are its keys, ``says`` why."""

    id: str
    label: str
    says: str
    scenario: dict[str, Any] = field(hash=False)


REFERENCE = Preset(
    id="reference",
    label="Llama 3 70B, four cards",
    says="The reference case: plain arithmetic, nothing but weights and cache.",
    scenario={
        "model": "llama-3-70b",
        "gpu": "80GB",
        "gpu_count": 4,
        "context_tokens": 32768,
        "engine": CEILING_ENGINE,
    },
)
PRESETS = (
    REFERENCE,
    Preset(
        id="one-node",
        label="Qwen3 32B on two H100",
        says="A dense model as vLLM serves it: the engine keeps some memory for itself.",
        scenario={
            "model": "qwen3-32b",
            "gpu": "H100-SXM",
            "gpu_count": 2,
            "context_tokens": 32768,
        },
    ),
    Preset(
        id="latent",
        label="DeepSeek V3 on eight H200",
        says="Latent attention: many layers, little cache, and a copy of it on every card.",
        scenario={
            "model": "deepseek-v3",
            "gpu": "H200-SXM",
            "gpu_count": 8,
            "tp": 8,
            "context_tokens": 65536,
        },
    ),
    Preset(
        id="window",
        label="Gemma 3 27B on one card",
        says="Five layers in six look back over a window only.",
        scenario={
            "model": "gemma-3-27b",
            "gpu": "H100-SXM",
            "context_tokens": 65536,
        },
    ),
    Preset(
        id="hybrid",
        label="Qwen3 Next 80B at 256K",
        says="Three layers in four keep a state of fixed size, so that length costs little.",
        scenario={
            "model": "qwen3-next-80b-a3b",
            "gpu": "H200-SXM",
            "gpu_count": 2,
            "context_tokens": 262144,
        },
    ),
)
COMPARED = (
    "qwen1.5-72b",
    "llama-3-70b",
    "qwen3-32b",
    "gemma-3-27b",
    "deepseek-v3",
    "gpt-oss-120b",
    "qwen3-next-80b-a3b",
    "kimi-linear-48b-a3b",
)
"""One of each family: every head its own cache, shared heads, windows, latent, hybrid."""
