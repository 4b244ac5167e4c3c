"""How vLLM is started."""

from __future__ import annotations

import re
from typing import Any

from kvroom.engines.command_line import QUANTIZATIONS, Chart, CommandLine, Texts
from kvroom.engines.vllm.flags import KNOWN_FLAGS, NAMES, READERS
from kvroom.units import GIB

CHART = Chart(
    config="vllmConfig",
    model="modelURL",
    extra="extraArgs",
    keys={
        "--tensor-parallel-size": "tensorParallelSize",
        "--max-model-len": "maxModelLen",
        "--dtype": "dtype",
        "--gpu-memory-utilization": "gpuMemoryUtilization",
        "--max-num-seqs": "maxNumSeqs",
    },
    plain=("v0", "v1"),
)
"""The chart of vLLM's production stack."""


class VllmCommandLine(CommandLine):
    """``vllm serve MODEL``."""

    def from_environment(self, env: Texts, keys: dict[str, Any], args: dict[str, Any]) -> None:
        """On a CPU a variable sets the cache, in GiB."""
        space = env.get("VLLM_CPU_KVCACHE_SPACE")
        if space and space.replace(".", "", 1).isdecimal():
            args.setdefault("kv_cache_memory_bytes", int(float(space) * GIB))


COMMAND = VllmCommandLine(
    engine="vllm",
    label="vLLM",
    programs=(
        ("vllm", "serve"),
        ("-m", "vllm.entrypoints.openai.api_server"),
        ("-m", "vllm.entrypoints.api_server"),
        ("-m", "vllm.entrypoints.cli.main", "serve"),
    ),
    image=re.compile(r"(?:^|/)vllm(?:-openai)?(?:-rocm)?(?::v?([\w.+-]+))?$"),
    default_image="vllm/vllm-openai",
    keys={
        "tp": ("tensor_parallel_size", "tp"),
        "pp": ("pipeline_parallel_size", "pp"),
        "dp": ("data_parallel_size", "dp"),
        "dcp": ("decode_context_parallel_size", "dcp"),
        "context_tokens": ("max_model_len",),
        "kv_dtype": ("kv_cache_dtype",),
    },
    names=NAMES,
    readers=READERS,
    known=KNOWN_FLAGS,
    model_flags=("model", "model_tag"),
    dtypes={"bf16": "bfloat16", "fp16": "float16"},
    at_load=("fp8",),
    quantizations=QUANTIZATIONS,
    dtype_flag="dtype",
    expert_switch="enable_expert_parallel",
    option_files=("config",),
    chart=CHART,
)
