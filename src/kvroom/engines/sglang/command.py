"""How SGLang is started."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kvroom.answer.plan import Plan
from kvroom.engines.command_line import (
    QUANTIZATIONS,
    AskedTiers,
    CommandLine,
    MachineFlags,
    Texts,
    lmcache_variables,
)
from kvroom.engines.releases import nearest_release
from kvroom.engines.sglang.flags import KNOWN_FLAGS, NAMES, READERS, VARIABLES
from kvroom.scenario.offload import OffloadTier
from kvroom.scenario.scenario import Scenario
from kvroom.sharding.deployment import Deployment

_HARMLESS = """
    SGLANG_USE_MODELSCOPE SGLANG_MAMBA_SSM_DTYPE
"""
HARMLESS = frozenset(_HARMLESS.split())
"""Variables that change nothing that is answered here, or are read by name."""


WRITE_POLICIES = {
    "through": "write_through", "selective": "write_through_selective", "back": "write_back",
}  # fmt: skip
FOUR_BITS, NVFP4_SINCE = "fp4_e2m1", (0, 5, 16)
"""What ``--kv-cache-dtype`` called four bits, with a scale for 16 of them, until it took ``nvfp4``."""
BACKENDS = {"nvme": "file", "network": "mooncake"}
"""What stands for a tier among the choices of ``--hicache-storage-backend``."""


def _storage_flags(tier: OffloadTier, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Its storage backend, when a request no longer waits for it, and from how many tokens on."""
    flags: dict[str, Any] = {"hicache_storage_backend": BACKENDS[tier.kind]}
    if tier.prefetch is not None:
        flags["hicache_storage_prefetch_policy"] = tier.prefetch
    extra = {
        "prefetch_threshold": tier.prefetch_tokens,
        "prefetch_timeout_base": tier.prefetch_wait_s,
        "prefetch_timeout_per_ki_token": tier.prefetch_wait_s_per_1k_tokens,
        "max_size": str(sizes[tier.kind]) if tier.kind == "nvme" and tier.bytes else None,
    }
    if said := {key: value for key, value in extra.items() if value is not None}:
        flags["hicache_storage_backend_extra_config"] = said
    return flags


class SglangCommandLine(CommandLine):
    """``python -m sglang.launch_server --model-path MODEL``."""

    def from_environment(self, env: Texts, keys: dict[str, Any], args: dict[str, Any]) -> None:
        """A variable says the width of recurrent states, as a flag does."""
        super().from_environment(env, keys, args)
        if width := env.get("SGLANG_MAMBA_SSM_DTYPE"):
            args.setdefault("mamba_ssm_dtype", width)

    def finish(self, keys: dict[str, Any], args: dict[str, Any]) -> None:
        """With data-parallel attention ``--dp-size`` groups tensor ranks: no replicas. Both words for four
        bits are one width."""
        if keys.get("kv_dtype") == FOUR_BITS:
            keys["kv_dtype"] = "nvfp4"
        if args.get("enable_dp_attention") and "dp" in keys:
            args["dp_size"] = keys.pop("dp")

    def cache_word(self, kv_dtype: str, version: str | None) -> str | None:
        """Four bits had another word."""
        older, _ = nearest_release(self.label, version, (0, 0, 0), (9999, 0, 0))
        if kv_dtype == "nvfp4" and version and older < NVFP4_SINCE:
            return FOUR_BITS
        return super().cache_word(kv_dtype, version)

    def tier_flags(self, asked: AskedTiers) -> tuple[dict[str, Any], dict[str, str]]:
        """Its hierarchical cache: GB of host memory a rank, or its ratio, and the storage below, which has no
        size among the flags; what a release has no flag for is left out."""
        tiers = {tier.kind: tier for tier in asked.tiers}
        flags: dict[str, Any] = {}
        variables: dict[str, str] = {}
        host, storage = tiers.get("host"), tiers.get("nvme") or tiers.get("network")
        size = asked.sizes.get("host", 0)
        if host is not None and host.chunk_tokens is not None and size:
            below = asked.sizes.get("nvme", 0)
            flags = {"enable_lmcache": True}
            variables = lmcache_variables(size, below, asked.ranks, host.chunk_tokens)
        elif size:
            # Whole GB are all that the flag takes.
            whole = max(1, int(size / 1e9 / asked.ranks))
            flags = {"enable_hierarchical_cache": True, "hicache_size": whole}
        elif host is not None and host.times_gpu is not None and host.bytes is None:
            flags = {"enable_hierarchical_cache": True, "hicache_ratio": host.times_gpu}
        if host is None or not flags or self.names.lacks(next(iter(flags)), asked.version):
            return {}, {}
        if not variables:
            if host.write is not None:
                flags["hicache_write_policy"] = WRITE_POLICIES[host.write]
            if storage is not None:
                flags |= _storage_flags(storage, asked.sizes)
        known = {key: flags[key] for key in flags if not self.names.lacks(key, asked.version)}
        return known, variables

    def settled(self, scenario: Scenario, deployment: Deployment, plan: Plan) -> Scenario:
        """Its switches have no negative."""
        args = {key: value for key, value in scenario.engine_args.items() if value is not False}
        return replace(scenario, engine_args=args)


COMMAND = SglangCommandLine(
    engine="sglang",
    label="SGLang",
    programs=(
        ("python", "-m", "sglang.launch_server"),
        ("-m", "sglang.launch_server"),
        ("sglang", "serve"),
        ("-m", "dynamo.sglang"),
    ),
    image=re.compile(r"(?:^|/)sglang(?::v?([\w.+-]+))?$"),
    default_image="lmsysorg/sglang",
    port=30000,
    keys={
        "tp": ("tp_size", "tp", "tensor_parallel_size"),
        "pp": ("pp_size", "pp", "pipeline_parallel_size"),
        "ep": ("ep_size", "ep", "expert_parallel_size"),
        "dcp": ("dcp_size", "decode_context_parallel_size"),
        "dp": ("dp_size", "dp", "data_parallel_size"),
        "context_tokens": ("context_length",),
        "kv_dtype": ("kv_cache_dtype",),
    },
    names=NAMES,
    readers=READERS,
    known=KNOWN_FLAGS,
    model_flag="model_path",
    model_flags=("model_path", "model"),
    longer_variable="SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN",
    variables=frozenset(VARIABLES),
    variable_prefixes=("SGLANG_", "SGL_", "LMCACHE_"),
    harmless=HARMLESS,
    dtypes={"fp8": "fp8_e4m3", "bf16": "bf16"},
    at_load=("fp8",),
    quantizations=QUANTIZATIONS,
    dtype_flag="dtype",
    option_files=("config",),
    machine_flags=MachineFlags(
        count="nnodes",
        rank="node_rank",
        address="dist_init_addr",
        address_form="{}:20000",
    ),
    tier_names=frozenset(
        (
            "enable_hierarchical_cache",
            "enable_hicache",
            "enable_lmcache",
            "hicache_size",
            "hicache_ratio",
            "hicache_write_policy",
            "hicache_storage_backend",
            "hicache_storage_backend_extra_config",
            "hicache_storage_prefetch_policy",
        )
    ),
)
