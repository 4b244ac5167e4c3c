"""How LMDeploy is started: ``lmdeploy serve api_server MODEL``."""

from __future__ import annotations

import re
from typing import Any

from kvroom.engines.command_line import CommandLine
from kvroom.engines.lmdeploy.flags import KNOWN_FLAGS, NAMES, READERS

POLICIES = {
    "0": "auto",
    "none": "auto",
    "4": "int4_per_token_head",
    "int4": "int4_per_token_head",
    "8": "int8_per_token_head",
    "int8": "int8_per_token_head",
    "16": "fp8",
    "fp8_e4m3": "fp8",
    "17": "fp8_e5m2",
}
"""``--quant-policy`` → how keys and values are stored: integers with a scale and a zero point for each
token and head (``QuantPolicy``, ``messages.py``)."""
FORMATS = {"awq": "int4", "gptq": "gptq_int4_g128", "fp8": "fp8_block", "mxfp4": "mxfp4"}
"""``--model-format`` → weights, where the checkpoint's own config does not say them."""


class LmdeployCommandLine(CommandLine):
    """``lmdeploy serve api_server``."""

    def finish(self, keys: dict[str, Any], args: dict[str, Any]) -> None:
        """Its number for the cache's width, the format of its weights, its data-parallel ranks."""
        if isinstance(args.get("dp"), int) and args["dp"] > 1:
            # Each rank has attention of its own, and ``--tp`` cuts experts over all of them (``DistConfig``).
            keys["dp"] = args.pop("dp")
            keys.pop("tp", None)
        policy = str(keys.pop("kv_dtype", "0")).lower()
        stored = POLICIES.get(policy, policy)
        if stored != "auto":
            keys["kv_dtype"] = stored
        form = FORMATS.get(str(args.pop("model_format", "")).lower())
        if form is not None and not self._says_itself(keys.get("model")):
            keys.setdefault("weight_dtype", form)

    @staticmethod
    def _says_itself(model: object) -> bool:
        """Whether the model's name says how its weights are stored."""
        return (
            isinstance(model, str)
            and re.search(r"awq|gptq|fp8|int4|4bit|w4a16", model.lower()) is not None
        )

    def cache_word(self, kv_dtype: str, version: str | None) -> str | None:
        """Its number for a width; the model's own has none."""
        return {"int8": "8", "int4": "4", "fp8": "16", **self.dtypes}.get(kv_dtype)


COMMAND = LmdeployCommandLine(
    engine="lmdeploy",
    label="LMDeploy",
    programs=(
        ("lmdeploy", "serve", "api_server"),
        ("-m", "lmdeploy", "serve", "api_server"),
        ("-m", "lmdeploy.serve.openai.api_server"),
    ),
    image=re.compile(r"(?:^|/)lmdeploy(?::(?:v?([\d.]+))?[\w.+-]*)?$"),
    default_image="openmmlab/lmdeploy",
    keys={
        "tp": ("tp",),
        "ep": ("ep",),
        "context_tokens": ("session_len",),
        "kv_dtype": ("quant_policy",),
    },
    names=NAMES,
    readers=READERS,
    known=KNOWN_FLAGS,
    model_flags=("model", "model_path"),
    dtypes={"int8_per_token_head": "8", "int4_per_token_head": "4", "fp8_e5m2": "17"},
    variable_prefixes=("LMDEPLOY_", "TM_"),
    port=23333,
)
