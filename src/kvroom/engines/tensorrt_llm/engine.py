"""TensorRT-LLM: all that it is, behind one Engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvroom.engines.base import Engine, EngineAnswer, Era
from kvroom.engines.flags import plain_args
from kvroom.engines.limits import LimitFlags
from kvroom.engines.releases import modelled, shown
from kvroom.engines.tensorrt_llm.answer import answer
from kvroom.engines.tensorrt_llm.command import COMMAND
from kvroom.engines.tensorrt_llm.flags import attention_groups
from kvroom.engines.tensorrt_llm.log import LOG
from kvroom.engines.tensorrt_llm.start_rules import START_RULES
from kvroom.engines.tensorrt_llm.support import SUPPORT
from kvroom.engines.tensorrt_llm.versions import CHANGES, NEWEST, OLDEST
from kvroom.sharding.deployment import Deployment


class TensorrtLlm(Engine):
    """TensorRT-LLM: a share of what is free once the model has loaded and a full batch has run."""

    def memory(self, deployment: Deployment) -> EngineAnswer:
        """Pools of blocks and of state, by the release's rules."""
        return answer(deployment)

    def attention_groups(self, args: Mapping[str, Any], tp: int) -> int:
        """Those of data-parallel attention."""
        return attention_groups(args, tp)

    def memory_share(self, deployment: Deployment) -> tuple[str, float] | None:
        """Its share of what is free; none where a config object has it."""
        named = (self.limits.share, *self.limits.share_aliases, "kv_cache_config")
        if plain_args(deployment.args).keys() & set(named):
            return None
        return self.limits.share, self.limits.usual_share


TENSORRT_LLM = TensorrtLlm(
    name="tensorrt-llm",
    label="TensorRT-LLM",
    newest=shown(NEWEST),
    releases=modelled(OLDEST, CHANGES),
    support=SUPPORT,
    limits=LimitFlags(
        batch_tokens="max_num_tokens",
        share="kv_cache_free_gpu_memory_fraction",
        sequences="max_batch_size",
        usual_share=0.9,
        share_values=(0.95,),
        share_aliases=("free_gpu_memory_fraction",),
    ),
    command=COMMAND,
    log=LOG,
    account_flags={
        "visible": "--gpu",
        "weights": "--tp_size",
        "activations": "--max_num_tokens",
        "graphs": "--max_batch_size",
        "kv": "--kv_cache_free_gpu_memory_fraction",
    },
    eras=(Era((1, 0), "0.x", "compiled engines in place of the PyTorch runtime"),),
    tuning_flags=dict.fromkeys(
        ("stream_interval", "max_num_tokens", "kv_cache_free_gpu_memory_fraction")
    ),
    start_rules=START_RULES,
    ahead_since=(1, 0),
    ahead_flags={"disable_overlap_scheduler": False},
)
