"""How each engine is started: its programs, the flags that say what a Scenario says, its switches.

One table for writing and for reading a command. Names are the engine's own with underscores; flags that
a Scenario has no key for are its ``engine_args``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module

from kvroom.engines.flags import switch


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """One engine's command line.

    ``programs`` are the ways to start it, the first that to write; ``keys`` flags by Scenario key, the
    first that to write; ``short`` other spellings of flags; ``dtypes`` cache dtypes by kvroom's name.
    ``model_flag`` is None where the model stands by itself. ``image`` finds its container image, its
    first group the tag.
    """

    engine: str
    label: str
    package: str
    programs: tuple[tuple[str, ...], ...]
    image: re.Pattern[str]
    default_image: str
    keys: Mapping[str, tuple[str, ...]]
    model_flag: str | None = None
    model_flags: tuple[str, ...] = ("model",)
    short: Mapping[str, str] = field(default_factory=dict)
    joiner: str = "-"
    switches: frozenset[str] = frozenset()
    share: str = ""
    """The flag of the share of memory."""
    variables: frozenset[str] = frozenset()
    """Environment variables that bear on the answer, as ``engine_args`` call them (lower case)."""
    prefixes: tuple[str, ...] = ()
    """How the names of the engine's environment variables begin."""
    dtypes: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> dict[str, str]:
        """Flag → Scenario key."""
        return {name: key for key, names in self.keys.items() for name in names}

    def written(self, name: str) -> str:
        """``--the-flag`` as it is typed."""
        return "--" + name.replace("_", self.joiner)


_LMCACHE = (
    "lmcache_local_cpu",
    "lmcache_max_local_cpu_size",
    "lmcache_local_disk",
    "lmcache_max_local_disk_size",
)
_VLLM_SWITCHES = """
    async_scheduling calculate_kv_scales fully_sharded_loras headless language_model_only
    mm_encoder_only interleave_mm_strings tokens_only allow_credentials grpc
"""
_LLAMA_SWITCHES = """
    swa_full kv_unified cpu_moe mlock metrics jinja embedding embeddings reranking verbose v
    webui props slots offline escape special warmup perf context_shift cont_batching
    check_tensors direct_io op_offload repack mmap kv_offload
"""
_VALUED = """
    disable_access_log_for_endpoints use_kv_cache_manager_v2 enable_block_reuse
    enable_partial_reuse show_hidden_metrics_for_version ignore_patterns
"""
_LISTS = """
    cuda_graph_bs cuda_graph_bs_decode cuda_graph_bs_prefill cudagraph_capture_sizes
    cuda_graph_sizes served_model_name lora_modules lora_paths allowed_origins middleware
    piecewise_cuda_graph_tokens lora_target_modules
"""
_DOCKER_SWITCHES = """
    -d -i -t -it -ti -dit -itd -P --rm --init --privileged --detach --interactive --tty
"""
_UNSAID = """
    host port api_key hf_token served_model_name uvicorn_log_level log_level ssl_keyfile
    ssl_certfile ssl_ca_certs root_path download_dir chat_template tool_call_parser
    reasoning_parser enable_auto_tool_choice trust_remote_code disable_log_requests
    disable_log_stats enable_log_requests allowed_origins tokenizer tokenizer_mode revision
    alias a api_key_file threads t seed log_file jinja dtype
"""


VLLM = Dialect(
    engine="vllm",
    label="vLLM",
    package="vllm",
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
    model_flags=("model", "model_tag"),
    short={"q": "quantization", "ep": "enable_expert_parallel", "n": "nnodes", "r": "node_rank"},
    switches=frozenset(_VLLM_SWITCHES.split()),
    share="gpu_memory_utilization",
    dtypes={"bf16": "bfloat16", "fp16": "float16"},
    variables=frozenset(
        ("vllm_pp_layer_partition", "vllm_memory_profiler_estimate_cudagraphs", *_LMCACHE)
    ),
    prefixes=("VLLM_", "LMCACHE_"),
)
SGLANG = Dialect(
    engine="sglang",
    label="SGLang",
    package="sglang",
    programs=(("python", "-m", "sglang.launch_server"), ("-m", "sglang.launch_server"), ("sglang", "serve")),
    image=re.compile(r"(?:^|/)sglang(?::v?([\w.+-]+))?$"),
    default_image="lmsysorg/sglang",
    keys={
        "tp": ("tp_size", "tp", "tensor_parallel_size"),
        "pp": ("pp_size", "pp", "pipeline_parallel_size"),
        "ep": ("ep_size", "ep", "expert_parallel_size"),
        "dcp": ("dcp_size", "decode_context_parallel_size"),
        "dp": ("dp_size", "dp", "data_parallel_size"),
        "context_tokens": ("context_length",),
        "kv_dtype": ("kv_cache_dtype",),
    },
    model_flag="model_path",
    model_flags=("model_path", "model"),
    short={"radix_cache": "disable_radix_cache"},
    share="mem_fraction_static",
    dtypes={"fp8": "fp8_e4m3", "bf16": "bf16"},
)  # fmt: skip
TENSORRT_LLM = Dialect(
    engine="tensorrt-llm",
    label="TensorRT-LLM",
    package="tensorrt_llm",
    programs=(("trtllm-serve",), ("-m", "tensorrt_llm.commands.serve")),
    image=re.compile(r"tensorrt-llm(?:/release)?(?::v?([\w.+-]+))?$"),
    default_image="nvcr.io/nvidia/tensorrt-llm/release",
    keys={
        "tp": ("tp_size",),
        "pp": ("pp_size",),
        "ep": ("ep_size",),
        "context_tokens": ("max_seq_len",),
    },
    joiner="_",
    short={"free_gpu_memory_fraction": "kv_cache_free_gpu_memory_fraction"},
    share="kv_cache_free_gpu_memory_fraction",
    variables=frozenset(("sglang_pp_layer_partition", *_LMCACHE)),
    prefixes=("SGLANG_", "LMCACHE_"),
)
LLAMA_CPP = Dialect(
    engine="llama.cpp",
    label="llama.cpp",
    package="llama_cpp",
    programs=(("llama-server",), ("llama-cli",), ("llama-server.exe",)),
    image=re.compile(r"(?:^|/)llama\.cpp(?::([\w.+-]+))?$"),
    default_image="ghcr.io/ggml-org/llama.cpp",
    keys={},
    model_flag="model",
    model_flags=("model", "m", "hf_repo", "hf", "hfr"),
    switches=frozenset(_LLAMA_SWITCHES.split()),
)
OLLAMA = Dialect(
    engine="ollama",
    label="Ollama",
    package="llama_cpp",
    programs=(("ollama", "serve"), ("ollama", "start"), ("ollama", "run"), ("ollama", "create")),
    image=re.compile(r"(?:^|/)ollama(?::v?([\w.+-]+))?$"),
    default_image="ollama/ollama",
    keys={},
)
"""Its settings are environment variables and a Modelfile's parameters (``ollama_commands``)."""
DIALECTS = {d.engine: d for d in (VLLM, SGLANG, TENSORRT_LLM, LLAMA_CPP, OLLAMA)}
SWITCH = re.compile(r"(enable|disable|no|skip|use|trust|enforce|return|allow|show|keep|ignore)_")
"""How the names of switches begin, by and large."""
VALUED = frozenset(_VALUED.split())
"""Names that begin so and take a value."""
LISTS = frozenset(_LISTS.split())
"""Flags that take several values."""
_ALWAYS_VALUED = frozenset(
    (
        "quantization",
        "speculative_config",
        "max_loras",
        "max_lora_rank",
        "parallel",
        "num_speculative_tokens",
    )
)
OPTIONAL = frozenset(("flash_attn", "use_kv_cache_manager_v2"))
"""Switches that may be given a word too."""
DOCKER_SWITCHES = frozenset(_DOCKER_SWITCHES.split())
"""Options of ``docker run`` that take no value: the word behind any other is its value."""
UNSAID = frozenset(_UNSAID.split())
"""What a command says of serving and not of memory (or should not be repeated): it is not kept."""


def is_switch(dialect: Dialect, name: str) -> bool:
    """Whether a flag of that name takes no value."""
    return name in dialect.switches or (
        name not in VALUED and SWITCH.match(name) is not None and name not in dialect.names
    )


def takes_value(dialect: Dialect, name: str) -> bool:
    """Whether a flag of that name says nothing without a value."""
    if name in dialect.names or name in dialect.model_flags or name in _ALWAYS_VALUED:
        return True
    module = import_module(f"kvroom.engines.{dialect.package}.flags")
    found = module.READERS.get(name)
    return found is not None and found[1] is not switch and name not in OPTIONAL


def known_flags(dialect: Dialect) -> frozenset[str]:
    """Every flag that a Scenario of this engine may carry."""
    module = import_module(f"kvroom.engines.{dialect.package}.flags")
    known: frozenset[str] = module.KNOWN_FLAGS
    return known
