"""llama.cpp's flags for speculative decoding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvroom.engines.drafting import DraftFlags, draft_name, draft_tokens
from kvroom.scenario.speculation import WITH_MODEL, Speculation

KINDS = {"draft": "draft-simple", "eagle": "draft-eagle3"}
"""Its words for ways of drafting, where they are not ``draft-METHOD``."""


class LlamaCppDraftFlags(DraftFlags):
    """``--spec-type`` and ``--model-draft``."""

    model_flag = "model_draft"

    def read(self, args: Mapping[str, Any]) -> Speculation | None:
        """What the flags ask for; None where nothing is drafted."""
        kind = str(args.get("spec_type") or "").lower()
        path = args.get("model_draft") or args.get("md")
        method = next((m for m in ("mtp", "eagle3") if m in kind), "draft" if path else "")
        if not method:
            return None
        return Speculation(
            method=method,
            tokens=draft_tokens(args.get("spec_draft_n_max", args.get("draft_max"))),
            model=path if isinstance(path, str) else None,
            field="engine_args.model_draft",
        )

    def write(self, speculation: Speculation, version: str | None = None) -> dict[str, Any]:
        """The type, the most tokens and the model; it looks nothing up in the text."""
        method = speculation.method
        if method == "ngram":
            return {}
        flags: dict[str, Any] = {
            "spec_type": KINDS.get(method, f"draft-{method}"),
            "spec_draft_n_max": speculation.tokens,
        }
        drafts = speculation.model or method in WITH_MODEL
        return flags | ({"model_draft": draft_name(speculation)} if drafts else {})
