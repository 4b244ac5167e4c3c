"""Random loads on random settings of SGLang, from a seed: tight pools, pages, chunks, shared prefixes."""

from __future__ import annotations

import os
import random
from typing import Any

from engine import models
from engine.loads import H100, Load
from kvroom.kvcache.tokens import Run, length

PYTHON = os.environ.get("KVROOM_SGLANG", "")
"""The Python that has sglang."""
RELEASE = os.environ.get("KVROOM_SGLANG_RELEASE", "0.5.23")
CONTEXT = 2048
PLAIN = 40
"""Loads before this one have limits of prompts by chunks alone."""
HEAD = {"speculative_draft_model_path": "draft"}
"""A draft of which nothing is known: a head like one layer of the model, for STANDALONE a model like it."""
DRAFTS: tuple[dict[str, Any], ...] = (
    {"speculative_algorithm": "NGRAM"},
    {
        "speculative_algorithm": "NGRAM",
        "speculative_num_draft_tokens": 6,
        "speculative_ngram_max_bfs_breadth": 1,
    },
    {
        "speculative_algorithm": "EAGLE",
        "speculative_num_steps": 3,
        "speculative_eagle_topk": 1,
        **HEAD,
    },
    {
        "speculative_algorithm": "EAGLE3",
        "speculative_num_steps": 4,
        "speculative_eagle_topk": 4,
        "speculative_num_draft_tokens": 8,
        **HEAD,
    },
    {
        "speculative_algorithm": "STANDALONE",
        "speculative_num_steps": 2,
        "speculative_eagle_topk": 1,
        **HEAD,
    },
)
"""Ways of drafting: looked up in the text as a tree and as a line, a head's line and tree, a small model."""


def drawn(seed: int, release: str = RELEASE) -> Load:
    """Load number ``seed``."""
    dice = random.Random(seed)
    args: dict[str, Any] = {
        "max_total_tokens": dice.choice([3000, 6000, 20000]),
        "chunked_prefill_size": dice.choice([256, 512, 2048]),
        "max_running_requests": dice.choice([4, 16, 64]),
    }
    if dice.random() < 0.25:
        args["page_size"] = 16
    if dice.random() < 0.3:
        args["disable_overlap_schedule"] = True
    if dice.random() < 0.15:
        args["disable_radix_cache"] = True
    if dice.random() < 0.2:
        args["schedule_conservativeness"] = dice.choice([0.3, 1.3])
    if seed >= PLAIN:
        more = random.Random(-1 - seed)
        if more.random() < 0.3:
            args["max_prefill_tokens"] = more.choice([400, 1200])
        if more.random() < 0.2:
            args["chunked_prefill_size"] = -1
    scenario = {
        "model": {"config": models.LLAMA},
        "gpu": H100,
        "engine": "sglang",
        "engine_version": release,
        "context_tokens": CONTEXT,
        "engine_args": args,
    }
    prefixes = [(100_000 * (n + 1), dice.randint(40, 700)) for n in range(6)]
    requests: list[Any] = []
    fresh, step = 10_000_000, 0
    for _ in range(dice.choice([20, 50])):
        step += dice.choice([0, 0, 1, 3, 20])
        own, answer = dice.randint(1, 500), dice.randint(1, 250)
        prompt: list[Run] = [(fresh, own)]
        if dice.random() < 0.6:
            prompt.insert(0, dice.choice(prefixes))
        if requests and dice.random() < 0.25:  # a turn more of an earlier one
            _, before, said, _ = dice.choice(requests)
            prompt = [*before, *said, (fresh, own)]
        if length(prompt) + answer >= CONTEXT:
            prompt = [(fresh, own)]
        requests.append((step, tuple(prompt), ((fresh + own, answer),), 0))
        fresh += own + answer
    if dice.random() < 0.4:
        args |= dice.choice(DRAFTS)
        if args["speculative_algorithm"] == "NGRAM" and args.get("page_size", 1) > 1:
            args["speculative_ngram_max_bfs_breadth"] = 1  # trees over pages are refused
        scenario["speculation"] = {
            "method": {"STANDALONE": "draft"}.get(
                args["speculative_algorithm"], args["speculative_algorithm"].lower()
            ),
            "acceptance_rate": dice.choice([0.4, 0.7, 0.95]),
        }
    return Load(f"{seed}: {args}", scenario, requests)
