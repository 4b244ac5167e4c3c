"""vLLM's flags for speculative decoding: ``speculative_config``, and the single flags of old releases."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kvroom.engines.drafting import DraftFlags, draft_name, draft_tokens
from kvroom.engines.vllm.versions import parse_release
from kvroom.errors import KvroomError, check_spelling
from kvroom.scenario.speculation import (
    ALIASES,
    METHODS,
    MOST_REQUESTS,
    MOST_TOKENS,
    WITH_MODEL,
    Speculation,
    method_of,
)
from kvroom.units import check_int

FIELD = "engine_args.speculative_config"
CONFIG_KEYS = (
    "method", "model", "num_speculative_tokens", "num_speculative_tokens_per_batch_size", "quantization",
    "draft_tensor_parallel_size", "tensor_parallel_size", "max_model_len", "revision", "code_revision",
    "enforce_eager", "prompt_lookup_max", "prompt_lookup_min", "disable_by_batch_size", "kv_cache_dtype",
    "attention_backend", "parallel_drafting", "suffix_decoding_max_tree_depth", "draft_sample_method",
)  # fmt: skip
"""Fields of ``SpeculativeConfig``, which refuses any other (0.8.5 to 0.33.0)."""
WORDS = {"draft": "draft_model"}
"""Its words for methods, where they are not kvroom's."""
MTP_SINCE = (0, 11, 0)
"""The first release that knows the word ``mtp``; before it a config of no method and no draft drafts by the
model's own prediction layers (``SpeculativeConfig.__post_init__`` in 0.8.5 to 0.10.2)."""


class VllmDraftFlags(DraftFlags):
    """``--speculative-config`` as an object."""

    def read(self, args: Mapping[str, Any]) -> Speculation | None:
        """What the flags ask for; None where nothing is drafted, or by a way that keeps no model."""
        config = args.get("speculative_config")
        if isinstance(config, str):
            try:
                config = json.loads(config)
            except ValueError:
                return None  # the engine's own reader refuses it
        if not isinstance(config, Mapping):
            config = {
                "model": args.get("speculative_model"),
                "num_speculative_tokens": args.get("num_speculative_tokens"),
            }
        check_spelling(FIELD, config, CONFIG_KEYS)
        method, model = config.get("method"), config.get("model")
        if method is None and model is None and "speculative_config" in args:
            method = "mtp" if config.get("num_speculative_tokens") else None
        if not isinstance(method, str) and not isinstance(model, str):
            return None
        word = method if isinstance(method, str) else _guess(str(model))
        if word not in ALIASES and word not in METHODS and not word.endswith("_mtp"):
            return None  # a way of drafting that keeps no model: Medusa and others
        return Speculation(
            method=method_of(f"{FIELD}.method", word),
            tokens=draft_tokens(config.get("num_speculative_tokens")),
            model=model if isinstance(model, str) and method_of(FIELD, word) != "ngram" else None,
            field=FIELD,
            schedule=_by_batch(config.get("num_speculative_tokens_per_batch_size")),
        )

    def write(self, speculation: Speculation, version: str | None = None) -> dict[str, Any]:
        """One object."""
        method = WORDS.get(speculation.method, speculation.method)
        config: dict[str, Any] = {
            "method": method,
            "num_speculative_tokens": speculation.tokens,
        }
        if method == "mtp" and parse_release(version)[0] < MTP_SINCE:
            del config["method"]
        if speculation.model or speculation.method in WITH_MODEL:
            config["model"] = draft_name(speculation)
        return {"speculative_config": config}

    def comparable(
        self, flags: dict[str, Any], speculation: Speculation, written: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Any word for the method is the method, any name of the draft the draft."""
        config = flags.get("speculative_config")
        if not isinstance(config, Mapping):
            return flags
        config = {**config, "method": WORDS.get(speculation.method, speculation.method)}
        if speculation.model:
            config["model"] = draft_name(speculation)
        return flags | {"speculative_config": config}


def _by_batch(rows: Any) -> tuple[tuple[int, int], ...]:
    """vLLM's table of [first batch, last batch, tokens]: from which batch on so many are drafted."""
    field = f"{FIELD}.num_speculative_tokens_per_batch_size"
    if rows is None:
        return ()
    schedule: list[tuple[int, int]] = []
    for row in rows if isinstance(rows, list | tuple) else [rows]:
        if not isinstance(row, list | tuple) or len(row) != 3:
            fix = "Write rows of [first batch, last batch, tokens]."
            raise KvroomError(field, row, "is no row of three numbers", fix)
        first, last, tokens = row
        first = check_int(field, first, low=1, high=MOST_REQUESTS)
        check_int(field, last, low=first, high=MOST_REQUESTS)
        schedule.append((first, check_int(field, tokens, low=0, high=MOST_TOKENS)))
    return tuple(sorted(schedule))


def _guess(model: str) -> str:
    """The method that a draft's name tells, where none is said."""
    name = model.lower()
    if "ngram" in name:
        return "ngram"
    return "eagle3" if "eagle3" in name else "eagle" if "eagle" in name else "draft"
