# ruff: noqa: E501 - lines as engines print them
"""What a log asks for: remedies of refusals, the way from what was expected, lines of other machines."""

import io
from typing import Any

import pytest

from kvroom.observe.logs.startup import read
from kvroom.observe.reconcile import Reconciliation, reconcile
from kvroom.observe.recorded import read_bytes
from kvroom.units import GIB

CONFIG = "INFO Initializing a V1 LLM engine (v{release}) with config: model='{model}', tensor_parallel_size=1, max_seq_len={context}\n"
START = (
    CONFIG.format(release="0.19.0", model="meta-llama/Llama-3.1-8B-Instruct", context=32768)
    + "INFO non-default args: {'model': 'meta-llama/Llama-3.1-8B-Instruct', 'max_model_len': 32768, 'gpu_memory_utilization': 0.55}\n"
    "DEBUG [gpu_worker.py:399] Memory profiling takes 24.71 seconds. Total non KV cache memory: 17.13GiB; "
    "torch peak memory increase: 1.89GiB; non-torch forward increase memory: 0.25GiB; weights memory: 14.99GiB.\n"
    "INFO Available KV cache memory: 26.42 GiB\n"
    "INFO GPU KV cache size: 216,432 tokens\n"
    "INFO Maximum concurrency for 32,768 tokens per request: 6.60x\n"
)
HYBRID = CONFIG.format(release="0.22.0", model="Qwen/Qwen3.5-27B", context=262144)
BLOCKS = (
    "ValueError: max_num_seqs (1024) exceeds available Mamba cache blocks (512). Each decode sequence requires "
    "one Mamba cache block, so CUDA graph capture cannot proceed.\n"
)


def of(text: str, **given: Any) -> Reconciliation:
    expect = given.pop("expect", None)
    return reconcile(read(io.BytesIO(text.encode())), given, expect=expect)


def test_the_debug_line_names_all_three_accounts() -> None:
    printed = of(START, gpu="H100-SXM").printed
    assert printed["activation_peak_bytes"] == round(1.89 * GIB)
    assert printed["non_torch_bytes"] == round(0.25 * GIB)
    assert printed["weights_bytes"] == round(14.99 * GIB)


def test_bytes_a_token_are_those_of_the_cache_and_its_tokens() -> None:
    told = of(START, gpu="H100-SXM")
    # 32 layers of 8 heads of 128, keys and values of two bytes
    assert told.printed["bytes_per_token"] == pytest.approx(131_072, rel=1e-3)
    assert told.predicted["bytes_per_token"] == pytest.approx(131_072, rel=1e-3)


def test_the_way_goes_from_what_was_expected_to_what_was_printed() -> None:
    told = of(START, gpu="H100-SXM", expect=16).way
    assert told is not None
    assert [s.cause for s in told.steps[:4]] == ["expected", "arithmetic", "overheads", "share"]
    assert told.steps[0].requests == 16
    assert told.steps[-1].requests == pytest.approx(6.6, abs=0.01)
    assert told.cause == "your share of 0.55"
    assert told.line.startswith("16 → ")


def test_the_way_gives_a_command_without_what_takes_most() -> None:
    assert "--gpu-memory-utilization 0.9 " in of(START, gpu="H100-SXM", expect=16).command + " "


def test_without_an_expectation_there_is_no_way() -> None:
    told = of(START, gpu="H100-SXM")
    assert told.way is None
    assert told.command == ""


def test_blocks_of_state_ask_for_fewer_sequences() -> None:
    told = of(HYBRID + BLOCKS, gpu="H100-SXM")
    assert told.remedies[0].args == {"max_num_seqs": 512}
    assert told.printed["num_blocks"] == 512
    assert "--max-num-seqs" in told.command


@pytest.mark.parametrize(
    ("refusal", "args"),
    [
        (
            "ValueError: To serve at least one request with the models's max seq len (131072), (16.0 GiB KV cache is "
            "needed, which is larger than the available KV cache memory (11.2 GiB). Based on the available memory, "
            "the estimated maximum model length is 91744.\n",
            {"max_model_len": 91744},
        ),
        (
            "ValueError: Free memory on device (5.0/23.64 GiB) on startup is less than desired GPU memory "
            "utilization (0.9, 21.27 GiB). Decrease GPU memory utilization.\n",
            {},  # 15 GiB of weights: that share would be refused in turn
        ),
        ("ValueError: No available memory for the cache blocks. Try increasing it.\n", {}),
    ],
)
def test_a_refusal_names_the_flag(refusal: str, args: dict[str, Any]) -> None:
    text = CONFIG.format(release="0.19.0", model="meta-llama/Llama-3.1-8B", context=131072)
    told = of(text + refusal, gpu="RTX-4090")
    assert [dict(r.args) for r in told.remedies] == [args]


@pytest.mark.parametrize(("free", "args"), [(20.0, {"gpu_memory_utilization": 0.84}), (5.0, {})])
def test_a_lower_share_is_planned_before_it_is_told(free: float, args: dict[str, Any]) -> None:
    text = CONFIG.format(release="0.19.0", model="meta-llama/Llama-3.1-8B", context=8192)
    refusal = (
        f"ValueError: Free memory on device ({free}/23.64 GiB) on startup is less than desired GPU "
        "memory utilization (0.9, 21.27 GiB). Decrease GPU memory utilization.\n"
    )
    (told,) = of(text + refusal, gpu="RTX-4090").remedies
    assert dict(told.args) == args
    assert ("by the plan it would not start so" in told.text) is not bool(args)


def test_a_tpus_chips_are_read() -> None:
    text = CONFIG.format(release="0.11.0", model="meta-llama/Llama-3.1-8B", context=8192) + (
        "INFO Init model | hbm=[(14.96, 31.25)]Gb\n"
        "INFO Memory statistics | total_hbm_limit_gb=31.25GiB | total_hbm_limit_cap_gb=28.12GiB | "
        "total_hbm_used_gb=14.98GiB | total_hbm_avail_gb=13.14GiB\n"
    )
    printed = of(text, gpu="TPU-v6e").printed
    assert printed["total_gpu_bytes"] == round(31.25 * GIB)
    assert printed["weights_bytes"] == round(14.96 * GIB)
    assert printed["kv_available_bytes"] == round(13.14 * GIB)


def test_ollamas_scheduler_reckons_in_one_line() -> None:
    text = (
        'time=2025-01-01 level=INFO source=memory.go:356 msg="offload to cuda" layers.requested=-1 layers.model=33 '
        'layers.offload=33 layers.split="" memory.available="[23.3 GiB]" memory.required.full="6.2 GiB" '
        'memory.required.partial="6.2 GiB" memory.required.kv="1.0 GiB" memory.required.allocations="[6.2 GiB]" '
        'memory.weights.total="4.3 GiB" memory.graph.full="560.0 MiB"\n'
    )
    log = read(io.BytesIO(text.encode()))
    assert log.engine == "ollama"
    assert log.printed["kv_bytes"] == GIB
    assert log.printed["weights_bytes"] == round(4.3 * GIB)
    assert log.printed["activation_peak_bytes"] == 560 * 2**20


def test_another_card_of_the_name_is_proposed() -> None:
    text = START.replace(
        "INFO Available",
        "INFO Free memory on device (139.0/139.81 GiB) on startup. Desired GPU memory utilization is (0.55, 76.89 "
        "GiB). Actual usage is 14.99 GiB for weight, 1.89 GiB for peak activation, 0.25 GiB for non-torch memory, "
        "and 0.67 GiB for CUDAGraph memory.\nINFO Available",
    )
    assert any("is the card H20-" in note for note in of(text, gpu="H20").notes)
    assert not any("is the card" in note for note in of(START, gpu="H100-SXM").notes)


def test_attention_groups_are_no_replicas() -> None:
    text = (
        "server_args=ServerArgs(model_path='deepseek-ai/DeepSeek-V3', tp_size=8, enable_dp_attention=True, mem_fraction_static=0.8)\n"
        "[TP0] KV Cache is allocated. #tokens: 500000, KV size: 20.0 GB\n"
        "[TP0] max_total_num_tokens=500000, chunked_prefill_size=8192, context_len=40960\n"
    )
    told = of(text, gpu="H200-SXM", tp=8, dp=8)
    assert told.scenario is not None
    assert told.scenario["engine_args"]["dp_size"] == 8
    assert told.scenario.get("dp", 1) == 1


def test_each_replicas_log_says_one_of_itself_and_the_flags_how_many() -> None:
    config = CONFIG.replace("max_seq_len", "data_parallel_size=1, max_seq_len")
    model = "meta-llama/Llama-3.1-8B-Instruct"
    text = (
        f"INFO non-default args: {{'model': '{model}', 'data_parallel_size': 2}}\n"
        + config.format(release="0.19.0", model=model, context=32768)
        + "INFO Available KV cache memory: 26.42 GiB\nINFO GPU KV cache size: 216,432 tokens\n"
    )
    told = of(text, gpu="H100-SXM", gpu_count=2)
    assert told.scenario is not None
    assert told.scenario["dp"] == 2
    assert "tp" not in told.scenario


def test_overridden_blocks_are_the_ones_that_count() -> None:
    text = CONFIG.format(release="0.19.0", model="meta-llama/Llama-3.1-8B-Instruct", context=32768)
    text += "INFO Overriding num_gpu_blocks=13527 with num_gpu_blocks_override=4096\n"
    told = of(text, gpu="H100-SXM")
    assert told.printed["num_blocks"] == told.predicted["num_blocks"] == 4096


def test_sglangs_settings_are_read_as_a_dictionary_too() -> None:
    text = (
        "[2026-11-02 10:00:00] server_args={'model_path': 'Qwen/Qwen3-8B', 'context_length': 40960, "
        "'mem_fraction_static': 0.83, 'tp_size': 2, 'disable_radix_cache': False, 'quantization': None}\n"
        "[2026-11-02 10:00:12] max_total_num_tokens=363829, chunked_prefill_size=8192, max_prefill_tokens=16384, "
        "max_running_requests=4096, context_len=40960, available_gpu_mem=11.00 GB\n"
    )
    told = of(text, gpu="H100-SXM", gpu_count=2)
    assert told.scenario is not None
    assert told.scenario["model"] == "Qwen/Qwen3-8B"
    assert told.scenario["tp"] == 2
    assert told.scenario["engine_args"] == {"mem_fraction_static": 0.83}


def test_metrics_of_replicas_tell_one_replicas_cache() -> None:
    pytest.importorskip("prometheus_client")
    lines = (
        f'sglang:max_total_num_tokens{{model_name="Qwen/Qwen3-8B",dp_rank="{rank}"}} 363829.0\n'
        for rank in range(2)
    )
    found = read_bytes("".join(lines).encode())
    assert found is not None
    assert found.printed["kv_tokens"] == 363829
