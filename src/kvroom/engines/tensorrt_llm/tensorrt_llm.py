"""TensorRT-LLM: all that it is, behind one Engine."""

from __future__ import annotations

from kvroom.engines.base import Engine, EngineAnswer, Era
from kvroom.engines.limits import Limits
from kvroom.engines.releases import shown
from kvroom.engines.tensorrt_llm.engine import answer
from kvroom.engines.tensorrt_llm.support import SUPPORT
from kvroom.engines.tensorrt_llm.versions import NEWEST
from kvroom.sharding.deployment import Deployment


class TensorrtLlm(Engine):
    """TensorRT-LLM: a share of what is free once the model has loaded and a full batch has run."""

    def memory(self, deployment: Deployment) -> EngineAnswer:
        """Pools of blocks and of state, by the release's rules."""
        return answer(deployment)


TENSORRT_LLM = TensorrtLlm(
    name="tensorrt-llm",
    label="TensorRT-LLM",
    newest=shown(NEWEST),
    support=SUPPORT,
    limits=Limits(
        batch_tokens="max_num_tokens",
        share="kv_cache_free_gpu_memory_fraction",
        sequences="max_batch_size",
        usual_share=0.9,
        share_values=(0.95,),
        share_aliases=("free_gpu_memory_fraction",),
    ),
    eras=(Era((1, 0), "0.x", "compiled engines in place of the PyTorch runtime"),),
    tuning_flags=dict.fromkeys(
        ("stream_interval", "max_num_tokens", "kv_cache_free_gpu_memory_fraction")
    ),
)
