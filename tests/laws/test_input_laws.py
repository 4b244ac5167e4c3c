"""Every input counts: a flag or variable of any engine is used, named as not used, or refused."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvroom
from kvroom.engines.flag_names import ADDRESSES, only_serves
from kvroom.engines.registry import all_engines
from kvroom.errors import KvroomError
from kvroom.launchers.commands import read_command
from kvroom.planner.plan import plan
from kvroom.scenario.scenario import Scenario
from kvroom.units import parse_bytes, parse_seconds

ENGINES = [e for e in all_engines() if e.command is not None]
SOURCES = "\n".join(
    p.read_text("utf-8") for p in sorted(Path(kvroom.__file__).parent.rglob("*.py"))
)
READ = set(re.findall(r"[\"']([A-Za-z_0-9.-]+)[\"']", SOURCES))
WORDS = {
    w for text in re.findall(r'"""[^"]*"""|"[^"]*"', SOURCES) for w in re.findall(r"\w+", text)
}
NEW = st.from_regex(r"new_[a-z]{3,12}", fullmatch=True)


@pytest.mark.parametrize("engine", ENGINES, ids=lambda e: e.name)
def test_every_known_flag_is_read_named_or_harmless(engine):
    """A flag in ``[elsewhere]`` is read somewhere; one passed over is told of, or bears on serving alone."""
    names = engine.command.names
    assert not {n for n in names.elsewhere if n not in READ | WORDS}
    silent = {n for n in names.passed_over if not names.unused([n])}
    assert silent == {n for n in names.passed_over if only_serves(n)}
    weighty = re.compile(r"kv|cache|memory|offload|parallel|quant|swap")
    assert not {n for n in silent if weighty.search(n) and not ADDRESSES.search(n)}


@settings(max_examples=6)
@given(st.sampled_from(["vllm", "sglang", "tensorrt-llm", "llama.cpp"]), NEW)
def test_a_flag_of_a_newer_release_is_a_warning(engine, flag):
    keys = {"model": "llama-3.1-8b", "gpu": "H100-SXM", "engine": engine, "context_tokens": 8192}
    base = plan(Scenario.from_dict(keys))
    told = plan(Scenario.from_dict({**keys, "engine_args": {flag: 1}}))
    assert any(flag in w for w in told.warnings)
    assert told.capacity == base.capacity


@pytest.mark.parametrize(
    ("engine", "flag"),
    [
        ("vllm", "swap_space"),
        ("vllm", "all2all_backend"),
        ("sglang", "flashinfer_mxfp4_moe_precision"),
    ],
)
def test_a_flag_that_is_passed_over_is_named(engine, flag):
    keys = {"model": "llama-3.1-8b", "gpu": "H100-SXM", "engine": engine}
    told = plan(Scenario.from_dict({**keys, "engine_args": {flag: 4}}))
    assert any(w.startswith(f"{flag} is not used") for w in told.warnings)


@given(st.integers(1, 10**12))
def test_a_size_or_a_time_without_its_unit_is_asked_back(number):
    for parse in (parse_bytes, parse_seconds):
        with pytest.raises(KvroomError, match="has no unit") as asked:
            parse("x", str(number))
        assert asked.value.fix.startswith(f"Write {number}")
    assert parse_bytes("x", number) == number


STARTS = {
    "vllm": "vllm serve llama-3.1-8b --max-model-len 8192",
    "sglang": "python -m sglang.launch_server --model-path llama-3.1-8b --context-length 8192",
    "tensorrt-llm": "trtllm-serve llama-3.1-8b --max_seq_len 8192",
    "llama.cpp": "llama-server -m llama-3.1-8b",
    "ollama": "ollama run llama3.1:8b",
}
OWN = """
    VLLM_ALLOW_LONG_MAX_MODEL_LEN VLLM_ALL2ALL_BACKEND VLLM_API_KEY VLLM_ATTENTION_BACKEND
    VLLM_CPU_KVCACHE_SPACE VLLM_DP_SIZE VLLM_ENABLE_V1_MULTIPROCESSING VLLM_FLASH_ATTN_VERSION
    VLLM_FUSED_MOE_CHUNK_SIZE VLLM_HOST_IP VLLM_KV_CACHE_LAYOUT VLLM_LOGGING_LEVEL
    VLLM_LOG_STATS_INTERVAL VLLM_MARLIN_USE_ATOMIC_ADD
    VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS VLLM_MLA_DISABLE VLLM_MM_INPUT_CACHE_GIB
    VLLM_MOE_DP_CHUNK_SIZE VLLM_NIXL_SIDE_CHANNEL_PORT VLLM_PORT VLLM_PP_LAYER_PARTITION
    VLLM_ROCM_USE_AITER VLLM_TORCH_PROFILER_DIR VLLM_TPU_MOST_MODEL_LEN VLLM_USE_DEEP_GEMM
    VLLM_USE_FLASHINFER_MOE_FP4 VLLM_USE_V1 VLLM_USE_TRITON_AWQ LMCACHE_LOCAL_CPU
    LMCACHE_MAX_LOCAL_CPU_SIZE LMCACHE_CHUNK_SIZE SGLANG_MAMBA_SSM_DTYPE
    SGLANG_ENABLE_POST_CAPTURE_KV_SIZING SGLANG_PP_LAYER_PARTITION SGLANG_USE_MODELSCOPE
    SGLANG_VLM_CACHE_SIZE_MB SGL_ENABLE_JIT_DEEPGEMM TRTLLM_ENABLE_PDL TLLM_LOG_LEVEL
    TRTLLM_FORCE_XQA LLAMA_ARG_CTX_SIZE LLAMA_ARG_N_PARALLEL LLAMA_ARG_N_GPU_LAYERS
    LLAMA_ARG_UBATCH LLAMA_ARG_CACHE_TYPE_K LLAMA_ARG_NO_KV_OFFLOAD LLAMA_ARG_PORT LLAMA_CACHE
    OLLAMA_NUM_PARALLEL OLLAMA_CONTEXT_LENGTH OLLAMA_FLASH_ATTENTION OLLAMA_GPU_OVERHEAD
    OLLAMA_HOST OLLAMA_KEEP_ALIVE OLLAMA_KV_CACHE_TYPE OLLAMA_MAX_LOADED_MODELS OLLAMA_MAX_VRAM
    OLLAMA_NUM_GPU OLLAMA_SCHED_SPREAD
"""
"""Variables as the engines' own sources list them: vllm/envs.py, sglang's environ.py, TensorRT-LLM's
envUtils, llama.cpp's common/arg.cpp, ollama's envconfig."""
COMMON = """
    CUDA_VISIBLE_DEVICES CUDA_DEVICE_MAX_CONNECTIONS NVIDIA_VISIBLE_DEVICES NCCL_DEBUG
    NCCL_P2P_DISABLE NCCL_IB_HCA PYTORCH_CUDA_ALLOC_CONF PYTORCH_ALLOC_CONF TORCHINDUCTOR_CACHE_DIR
    OMP_NUM_THREADS HIP_VISIBLE_DEVICES HSA_OVERRIDE_GFX_VERSION FLASHINFER_WORKSPACE_BASE
    GGML_CUDA_ENABLE_UNIFIED_MEMORY GGML_CUDA_FORCE_MMQ TRITON_CACHE_DIR CUBLAS_WORKSPACE_CONFIG
"""
"""Those of what engines run on."""
BEGIN = {
    "vllm": "VLLM_",
    "sglang": "SGLANG_",
    "tensorrt-llm": "TRTLLM_",
    "llama.cpp": "LLAMA_ARG_",
    "ollama": "OLLAMA_",
}
READ_BY_NAME = frozenset(
    (
        "VLLM_ALLOW_LONG_MAX_MODEL_LEN",
        "VLLM_WORKER_MULTIPROC_METHOD",
        "VLLM_CACHE_ROOT",
        "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN",
        "LLAMA_CACHE",
    )
)
VISIBLE = re.compile(r"_VISIBLE_DEVICES$")


@st.composite
def variables(draw):
    """(engine, variable, value): a variable of its own, of the platform, or of a newer release."""
    engine = draw(st.sampled_from(sorted(STARTS)))
    begin = {
        "vllm": ("VLLM", "LMCACHE"),
        "sglang": ("SGL", "LMCACHE"),
        "tensorrt-llm": ("TRTLLM", "TLLM"),
    }
    own = [n for n in OWN.split() if n.startswith(begin.get(engine, BEGIN[engine].split("_")[0]))]
    new = st.from_regex(r"NEW_[A-Z]{3,12}", fullmatch=True).map(lambda n: BEGIN[engine] + n)
    name = draw(st.one_of(st.sampled_from(own + COMMON.split()), new))
    return engine, name


@settings(max_examples=100)
@given(variables())
def test_a_variable_is_used_named_or_harmless(variable):
    """Some value of it changes the question, or it is named, is refused by its name, or only serves."""
    engine, name = variable
    base, used, named = read_command(STARTS[engine]), False, True
    for value in ("1", "3", "fp8", "q8_0", "0,1"):
        try:
            told = read_command(f"{name}={value} {STARTS[engine]}")
        except KvroomError as error:
            assert name in f"{error.field} {error.message}"
            continue
        used |= told.keys != base.keys
        named &= any(name in warning for warning in told.warnings)
    if used or named or name in READ_BY_NAME or VISIBLE.search(name):
        return
    short = name.removeprefix("LLAMA_ARG_").removeprefix("OLLAMA_").lower()
    assert only_serves(short)
    assert not re.search(r"kv|cache_size|mem|offload|quant", short)


@given(st.integers(1, 4), st.sampled_from(["vllm", "sglang"]))
def test_cards_that_are_not_seen_are_told_of(seen, engine):
    shown = ",".join(map(str, range(seen)))
    flag = {"vllm": "--tensor-parallel-size 2", "sglang": "--tp-size 2"}[engine]
    told = read_command(f"CUDA_VISIBLE_DEVICES={shown} {STARTS[engine]} {flag}")
    assert any("CUDA_VISIBLE_DEVICES" in w for w in told.warnings) == (seen < 2)
