"""SGLang's flags for speculative decoding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvroom.engines.drafting import DraftFlags, draft_name, draft_tokens
from kvroom.scenario.speculation import ALIASES, METHODS, WITH_MODEL, Speculation, method_of

ALGORITHMS = {"mtp": "EAGLE", "draft": "STANDALONE"}
"""Its words, where they are not the method's own."""


class SglangDraftFlags(DraftFlags):
    """``--speculative-algorithm`` and what goes with it."""

    def read(self, args: Mapping[str, Any]) -> Speculation | None:
        """What the flags ask for; EAGLE without a draft's path is the model's own prediction layers."""
        algorithm, path = (args.get(f"speculative_{k}") for k in ("algorithm", "draft_model_path"))
        if not isinstance(algorithm, str):
            return None
        word = algorithm.strip().lower()
        if word == "eagle" and not path:
            word = "mtp"
        if word not in METHODS and word not in ALIASES:
            return None
        return Speculation(
            method=method_of("engine_args.speculative_algorithm", word),
            tokens=draft_tokens(args.get("speculative_num_steps")),
            model=path if isinstance(path, str) and path.strip() else None,
            field="engine_args.speculative_draft_model_path",
        )

    def write(self, speculation: Speculation) -> dict[str, Any]:
        """A chain of ``tokens`` steps, verified with the token before it."""
        method, tokens = speculation.method, speculation.tokens
        flags: dict[str, Any] = {"speculative_algorithm": ALGORITHMS.get(method, method.upper())}
        if method != "ngram":
            flags |= {"speculative_num_steps": tokens, "speculative_eagle_topk": 1}
        flags["speculative_num_draft_tokens"] = tokens + 1
        if method in WITH_MODEL:
            flags["speculative_draft_model_path"] = draft_name(speculation)
        return flags

    def comparable(
        self, flags: dict[str, Any], speculation: Speculation, written: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Any word for the algorithm is the algorithm."""
        return flags | {"speculative_algorithm": written.get("speculative_algorithm")}
