"""How TensorRT-LLM is started: ``trtllm-serve`` with a few flags, and a file for the rest."""

from __future__ import annotations

import json
import re
from typing import Any

from kvroom.engines.command_line import CommandLine
from kvroom.engines.tensorrt_llm.flags import KNOWN_FLAGS, NAMES, READERS
from kvroom.models.spec import ModelSpec
from kvroom.scenario.scenario import Scenario

FILE = "trtllm.yaml"
FILE_FLAG = "extra_llm_api_options"
ON_LINE = frozenset(
    (
        "max_batch_size",
        "max_num_tokens",
        "max_beam_width",
        "kv_cache_free_gpu_memory_fraction",
        "backend",
        "log_level",
        "trust_remote_code",
        FILE_FLAG,
    )
)
"""What trtllm-serve takes as flags, besides those of the layout."""
OF_CACHE = (
    "tokens_per_block",
    "max_tokens",
    "max_gpu_total_bytes",
    "enable_block_reuse",
    "max_attention_window",
    "use_kv_cache_manager_v2",
)
"""What stands under ``kv_cache_config`` in the file."""

CACHE_WORDS = ("fp8", "nvfp4", "int8")
"""What stands for a width in the file; 16 bits are ``auto`` (``_VALID_KV_CACHE_DTYPES``)."""


class TensorrtLlmCommandLine(CommandLine):
    """``trtllm-serve MODEL``."""

    def notes(self, scenario: Scenario, model: ModelSpec) -> tuple[str, ...]:
        """What its PyTorch backend has no cache for."""
        if scenario.kv_dtype != "int8":
            return ()
        return ("an int8 cache is for engines that trtllm-build made: --backend tensorrt",)

    def split(
        self, flags: dict[str, Any], scenario: Scenario
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """(what trtllm-serve takes as flags, the file for the rest)."""
        of_layout = {name for names in self.keys.values() for name in names}
        on_line = {key: value for key, value in flags.items() if key in of_layout | ON_LINE}
        inner = dict(flags.get("kv_cache_config") or {})
        if scenario.kv_dtype in CACHE_WORDS:
            inner["dtype"] = scenario.kv_dtype
        outer = {
            key: value
            for key, value in flags.items()
            if key not in on_line and key != "kv_cache_config"
        }
        inner |= {k: outer.pop(k) for k in OF_CACHE if k in outer}
        if not inner and not outer:
            return on_line, {}
        lines = [f"{key}: {json.dumps(value)}" for key, value in outer.items()]
        if inner:
            lines += [
                "kv_cache_config:",
                *(f"  {key}: {json.dumps(value)}" for key, value in inner.items()),
            ]
        on_line[FILE_FLAG] = FILE
        return on_line, {FILE: "\n".join(lines) + "\n"}


COMMAND = TensorrtLlmCommandLine(
    engine="tensorrt-llm",
    label="TensorRT-LLM",
    programs=(("trtllm-serve",), ("-m", "tensorrt_llm.commands.serve"), ("-m", "dynamo.trtllm")),
    optional_word="serve",
    image=re.compile(r"tensorrt-llm(?:/release)?(?::v?([\w.+-]+))?$"),
    default_image="nvcr.io/nvidia/tensorrt-llm/release",
    keys={
        "tp": ("tp_size",),
        "pp": ("pp_size",),
        "ep": ("ep_size",),
        "context_tokens": ("max_seq_len",),
    },
    names=NAMES,
    readers=READERS,
    known=KNOWN_FLAGS,
    joiner="_",
    variable_prefixes=("TRTLLM_", "TLLM_"),
    option_files=(FILE_FLAG, "config"),
    switch_values=True,
)
