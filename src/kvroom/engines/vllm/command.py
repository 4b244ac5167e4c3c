"""How vLLM is started."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from kvroom.answer.plan import Plan
from kvroom.engines.command_line import (
    QUANTIZATIONS,
    AskedTiers,
    Chart,
    CommandLine,
    MachineFlags,
    Texts,
    lmcache_variables,
)
from kvroom.engines.flags import plain_args
from kvroom.engines.releases import shown
from kvroom.engines.vllm.connectors import (
    OFFLOADS_SINCE,
    SIZE_BECOMES_ONE,
    SIZE_SEEN,
    SIZE_WORKS,
    STAYS_ON,
    STORES_AGAIN_SINCE,
    connector,
)
from kvroom.engines.vllm.flags import KNOWN_FLAGS, NAMES, READERS, VARIABLES
from kvroom.engines.vllm.setup import setup
from kvroom.engines.vllm.versions import parse_release
from kvroom.scenario.offload import LMCACHE, OFFLOADING
from kvroom.scenario.scenario import Scenario
from kvroom.sharding.deployment import Deployment
from kvroom.units import GIB

_HARMLESS = """
    VLLM_CPU_KVCACHE_SPACE VLLM_ATTENTION_BACKEND VLLM_LOGGING_LEVEL
    VLLM_API_KEY VLLM_PORT VLLM_HOST_IP VLLM_USE_MODELSCOPE VLLM_CACHE_ROOT VLLM_NO_USAGE_STATS
    VLLM_LOG_STATS_INTERVAL VLLM_WORKER_MULTIPROC_METHOD VLLM_ENGINE_READY_TIMEOUT_S
    VLLM_CONFIGURE_LOGGING
"""
HARMLESS = frozenset(_HARMLESS.split())
"""Variables that change nothing that is answered here, or are read by name."""
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

    def tier_flags(self, asked: AskedTiers) -> tuple[dict[str, Any], dict[str, str]]:
        """Its own offloading for host memory alone; LMCache where that is asked for or a disk is below."""
        host, disk = asked.sizes.get("host", 0), asked.sizes.get("nvme", 0)
        chunk = next((tier.chunk_tokens for tier in asked.tiers if tier.chunk_tokens), None)
        if disk or (host and chunk):
            connector = {"kv_connector": LMCACHE[1], "kv_role": "kv_both"}
            variables = lmcache_variables(host, disk, asked.ranks, chunk)
            return {"kv_transfer_config": connector}, variables
        host //= asked.engines  # each data-parallel rank takes as much as is said
        release, _ = parse_release(asked.version)
        if not host or release < OFFLOADS_SINCE:
            return {}, {}
        tier = next(tier for tier in asked.tiers if tier.kind == "host")
        again = tier.write == "selective" and release >= STORES_AGAIN_SINCE
        if release >= SIZE_WORKS and not again:
            return {"kv_offloading_backend": "native", "kv_offloading_size": host / GIB}, {}
        # Blocks are what releases count that take no size, bytes what later ones do.
        extra = {"cpu_bytes_to_use": host}
        if release < SIZE_WORKS:
            extra["num_cpu_blocks"] = host // max(1, asked.block_bytes)
        if again:
            extra["store_threshold"] = 2
        native: dict[str, Any] = {
            "kv_connector": OFFLOADING, "kv_role": "kv_both", "kv_connector_extra_config": extra,
        }  # fmt: skip
        return {"kv_transfer_config": native}, {}

    def settled(self, scenario: Scenario, deployment: Deployment, plan: Plan) -> Scenario:
        """Its own offloading, where that serves no groups yet, starts with the hybrid manager off only."""
        made = setup(deployment)[0]
        args = plain_args(scenario.engine_args)
        late = SIZE_BECOMES_ONE <= made.release < SIZE_SEEN
        said = args.keys() & {*STAYS_ON, *self.tier_names}
        if said or not late or connector(made) != OFFLOADING:
            return scenario
        return replace(scenario, engine_args={**scenario.engine_args, **STAYS_ON})

    def unused(self, env: Texts) -> list[str]:
        """V1 is what there is."""
        return super().unused(
            {key: value for key, value in env.items() if (key, value) != ("VLLM_USE_V1", "1")}
        )

    def from_environment(self, env: Texts, keys: dict[str, Any], args: dict[str, Any]) -> None:
        """On a CPU a variable sets the cache, in GiB; older releases take their kernels from one."""
        super().from_environment(env, keys, args)
        if backend := env.get("VLLM_ATTENTION_BACKEND"):
            args.setdefault("attention_backend", backend)
        space = env.get("VLLM_CPU_KVCACHE_SPACE")
        if space and space.replace(".", "", 1).isdecimal():
            args.setdefault("kv_cache_memory_bytes", int(float(space) * GIB))


COMMAND = VllmCommandLine(
    engine="vllm",
    label="vLLM",
    platform_program=("vllm", "serve"),
    programs=(
        ("vllm", "serve"),
        ("-m", "vllm.entrypoints.openai.api_server"),
        ("-m", "vllm.entrypoints.api_server"),
        ("-m", "vllm.entrypoints.cli.main", "serve"),
        ("-m", "dynamo.vllm"),
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
    longer_variable="VLLM_ALLOW_LONG_MAX_MODEL_LEN",
    variables=frozenset(VARIABLES),
    variable_prefixes=("VLLM_", "LMCACHE_"),
    harmless=HARMLESS,
    dtypes={"bf16": "bfloat16", "fp16": "float16"},
    at_load=("fp8",),
    quantizations=QUANTIZATIONS,
    dtype_flag="dtype",
    expert_switch="enable_expert_parallel",
    option_files=("config",),
    chart=CHART,
    machine_flags=MachineFlags(
        count="nnodes",
        rank="node_rank",
        address="master_addr",
        follower="headless",
        data_local="data_parallel_size_local",
        data_address="data_parallel_address",
        others=("master_port", "data_parallel_rpc_port", "data_parallel_start_rank"),
    ),
    tiers_since=shown(OFFLOADS_SINCE),
    tier_names=frozenset(
        (
            "kv_offloading_size",
            "kv_offloading_backend",
            "kv_transfer_config",
            "lmcache_local_cpu",
            "lmcache_max_local_cpu_size",
            "lmcache_local_disk",
            "lmcache_max_local_disk_size",
            "lmcache_chunk_size",
        )
    ),
)
