"""LMDeploy: all that it is, behind one Engine."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from kvroom.engines.base import Engine, EngineAnswer
from kvroom.engines.flags import plain_args
from kvroom.engines.limits import LimitFlags
from kvroom.engines.lmdeploy.answer import answer
from kvroom.engines.lmdeploy.command import COMMAND
from kvroom.engines.lmdeploy.flags import SHARE
from kvroom.engines.lmdeploy.log import LOG
from kvroom.engines.start_rules import StartRule, cache_type
from kvroom.engines.support import Requirement, Support
from kvroom.hardware.device import Device
from kvroom.models.spec import ModelSpec
from kvroom.scenario.scenario import Scenario
from kvroom.sharding.deployment import Deployment

SCALED = {"int8": "int8_per_token_head", "int4": "int4_per_token_head"}
"""Its integers come with a scale and a zero point of 16 bits for each token and head."""
_INTEGER = Requirement(
    source="LMDeploy documentation, KV Cache Quantization",
    since=(0, 4, 0),
    capability=7.0,
    chips="Volta or later",
)


class Lmdeploy(Engine):
    """LMDeploy: TurboMind, or its PyTorch engine."""

    def prepare(
        self, scenario: Scenario, model: ModelSpec, device: Device
    ) -> tuple[Scenario, tuple[str, ...]]:
        """Integers in the cache with their scales."""
        stored = SCALED.get(scenario.kv_dtype)
        return (replace(scenario, kv_dtype=stored) if stored else scenario), ()

    def memory(self, deployment: Deployment) -> EngineAnswer:
        """A share of what the loaded model leaves free."""
        return answer(deployment)

    def memory_share(self, deployment: Deployment) -> tuple[str, float] | None:
        """Its share of what is free; none where blocks are counted out."""
        if plain_args(deployment.args).get("num_gpu_blocks"):
            return None
        return self.limits.share, self.limits.usual_share


LMDEPLOY = Lmdeploy(
    name="lmdeploy",
    label="LMDeploy",
    support=Support(cache=dict.fromkeys((*SCALED, *SCALED.values()), _INTEGER)),
    start_rules=(
        StartRule(
            name="cache_type",
            why=partial(cache_type, known=("bf16", "fp16", "fp8", *SCALED, *SCALED.values())),
            source="LMDeploy, choices of --quant-policy",
            key="kv_dtype",
        ),
    ),
    limits=LimitFlags(
        batch_tokens="max_prefill_token_num",
        share="cache_max_entry_count",
        sequences="max_batch_size",
        usual_share=SHARE,
        share_values=(0.9,),
    ),
    command=COMMAND,
    log=LOG,
    account_flags={
        "visible": "--gpu",
        "weights": "--tp, --model-format",
        "activations": "--max-prefill-token-num",
        "kv": "--cache-max-entry-count",
    },
)
