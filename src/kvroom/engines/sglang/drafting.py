"""SGLang's flags for speculative decoding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvroom.engines.drafting import DraftFlags, draft_name, draft_tokens
from kvroom.scenario.speculation import ALIASES, METHODS, WITH_MODEL, Speculation, method_of

ALGORITHMS = {"mtp": "EAGLE", "draft": "STANDALONE"}
"""Its words, where they are not the method's own."""
HEADS = {
    ("eagle", False): "LlamaForCausalLMEagle",
    ("eagle", True): "LlamaForCausalLMEagle",
    ("eagle3", False): "LlamaForCausalLMEagle3",
    ("eagle3", True): "Eagle3DeepseekV2ForCausalLM",
}
"""Classes of published heads, by method and whether they keep latents."""
NGRAM_TOKENS = 12
"""Tokens that are verified a step where drafts are looked up in the text and nobody says."""
NOT_OF_HEADS = ("num_nextn_predict_layers", "layer_types", "quantization_config", "model_type")


class SglangDraftFlags(DraftFlags):
    """``--speculative-algorithm`` and what goes with it."""

    model_flag = "speculative_draft_model_path"

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
        method = method_of("engine_args.speculative_algorithm", word)
        tokens = args.get("speculative_num_steps")
        if method == "ngram":
            tokens = draft_tokens(args.get("speculative_num_draft_tokens") or NGRAM_TOKENS) - 1
        return Speculation(
            method=method,
            tokens=draft_tokens(tokens),
            model=path if isinstance(path, str) and path.strip() else None,
            field="engine_args.speculative_draft_model_path",
        )

    def write(self, speculation: Speculation, version: str | None = None) -> dict[str, Any]:
        """A chain of ``tokens`` steps, verified with the token before it."""
        method, tokens = speculation.method, speculation.tokens
        flags: dict[str, Any] = {"speculative_algorithm": ALGORITHMS.get(method, method.upper())}
        if method != "ngram":
            flags |= {"speculative_num_steps": tokens, "speculative_eagle_topk": 1}
        flags["speculative_num_draft_tokens"] = tokens + 1
        if method in WITH_MODEL:
            flags[self.model_flag] = draft_name(speculation)
        return flags

    def head(self, method: str, config: dict[str, Any]) -> dict[str, Any]:
        """As ``DraftFlags`` says."""
        text = config.get("text_config", config)
        own = {key: value for key, value in text.items() if key not in NOT_OF_HEADS}
        latent = "kv_lora_rank" in text
        if (method, latent) not in HEADS:
            return config
        kind = text.get("model_type") if latent else "llama"
        made = {"architectures": [HEADS[method, latent]], "model_type": kind}
        return {**own, **made, "num_hidden_layers": 1}

    def comparable(
        self, flags: dict[str, Any], speculation: Speculation, written: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Any word for the algorithm is the algorithm."""
        flags = super().comparable(flags, speculation, written)
        return flags | {"speculative_algorithm": written.get("speculative_algorithm")}
