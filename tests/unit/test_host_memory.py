"""What lies in host memory: read at that memory's rate, and held by as much of it as there is."""

import pytest

from kvroom.hardware.catalogue import find
from kvroom.hardware.node import Machine
from kvroom.latency.host import HANDOVER_S, HOST_SHARE
from kvroom.planner.plan import plan, work
from kvroom.scenario.scenario import Scenario


def asked(model="llama-3.3-70b", gpu="RTX-4090", **keys):
    base = {"engine": "llama.cpp", "weight_dtype": "q4_k_m", "concurrency": 1}
    return Scenario.from_dict({"model": model, "gpu": gpu, "context_tokens": 8192, **base, **keys})


def test_layers_on_the_cpu_are_told_first_and_read_at_the_hosts_rate():
    made = work(asked())
    d, host = made.deployment, made.answer.host
    terms, _ = made.timing.step(1, made.plan.step.request_tokens)
    assert made.plan.verdict.sentence.startswith("39 of 80 layers on the CPU, about ")
    weights = sum(d.weights.pieces.layers[i] for i in host.layers)
    cache = sum(k.read_bytes(8192, d.kv) * n for k, n in host.stores(d.model))
    rate = d.host.bytes_per_s
    expected = weights / (HOST_SHARE * rate) + 39 * HANDOVER_S + cache / rate
    assert terms.host_s == pytest.approx(expected, rel=1e-6)
    assert terms.weights_s < weights / 300e9  # the card reads the other half only


def test_more_of_the_model_on_the_card_is_quicker():
    seconds = [plan(asked(engine_args={"n_gpu_layers": n})).step.seconds for n in (0, 20, 41)]
    assert seconds == sorted(seconds, reverse=True)


def test_experts_there_are_read_as_far_as_tokens_touch_them():
    """Of 128 experts a token uses 8: a sixteenth of their bytes."""
    made = work(asked("qwen3-30b-a3b", "RTX-4070", engine_args={"cpu_moe": True}))
    reads = made.timing.clock.host
    assert {each[1:] for each in reads.experts} == {(128, 8)}
    one = sum(each for each, _, _ in reads.experts) / 16 / (HOST_SHARE * reads.bytes_per_s)
    assert reads.weights_s(1) == pytest.approx(one + reads.layers * HANDOVER_S, rel=1e-6)


def test_what_fits_nowhere_does_not_fit():
    small = plan(asked(host_memory_bytes="16GB")).verdict
    assert small.status == "would_not_start"
    assert "host memory is 14.9 GiB" in small.sentence
    assert plan(asked(host_memory_bytes="32GB")).verdict.fits


@pytest.mark.parametrize(
    ("model", "gpu", "dtype", "context"),
    [("deepseek-r1", "Apple-M4-Pro", "q4_k_m", 8192), ("llama-3.3-70b", "Apple-M1-Max", "q8_0", 131072)],
)  # fmt: skip
def test_unified_memory_is_one_pool(model, gpu, dtype, context):
    verdict = plan(asked(model, gpu, weight_dtype=dtype, context_tokens=context)).verdict
    assert not verdict.fits
    assert "one memory for GPU and CPU" in verdict.sentence


def test_weights_that_the_card_reads_over_its_link_take_the_links_time():
    keys = {"engine": "vllm", "weight_dtype": None, "engine_version": "0.33.0"}
    made = work(asked("llama-3.1-8b", "L4", **keys, engine_args={"cpu_offload_gb": 8}))
    terms, _ = made.timing.step(1, made.plan.step.request_tokens)
    assert terms.host_s == pytest.approx(8 * 2**30 / find("L4").host_link.bytes_per_s)
    assert made.plan.verdict.sentence.startswith("8 GiB of each GPU's weights in host memory")


def test_a_machine_has_the_host_memory_of_its_kind():
    desktop, server = (Machine.standard(find(n)).tier("host") for n in ("RTX-4090", "H100-SXM"))
    assert desktop.bytes == 64 * 2**30
    assert desktop.bytes_per_s == 80e9
    assert server.bytes > desktop.bytes
    assert server.bytes_per_s > desktop.bytes_per_s
    assert Machine.standard(find("Apple-M4-Pro")).tier("host") is None
