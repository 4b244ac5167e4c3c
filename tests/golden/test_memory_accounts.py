"""Memory accounts of vLLM against what starts printed, each with where it was published.

Printed to two digits of GiB. Shapes are those of kvroom's catalogue; flags and release as in the log.
"""

from __future__ import annotations

from typing import Any

import pytest

from kvroom.planner.plan import work
from kvroom.scenario.scenario import Scenario

GIB = 2**30
PLANNER = "github llm-d-incubation/llm-d-planner, commit d3121e0: vLLM 0.19 on H100 SXM at 0.95"
TOOLBOX = "github kyuz0/amd-r9700-vllm-toolboxes"

Row = tuple[str, dict[str, Any], dict[str, float]]
H100 = {"engine_version": "0.19.0", "gpu": "H100-SXM", "context_tokens": 8192}


def shared(share: float, **args: Any) -> dict[str, Any]:
    return {"engine_args": {"gpu_memory_utilization": share, **args}}


ROWS: list[Row] = [
    # model, keys, what was printed in GiB (PLANNER)
    ("llama-3.1-8b", {**H100, **shared(0.95)},
     {"weights": 14.99, "activations": 1.89, "runtime": 0.25, "kv": 58.11}),
    ("llama-3.1-8b", {**H100, "tp": 4, **shared(0.95)},
     {"weights": 3.77, "activations": 1.89, "runtime": 2.13, "kv": 67.44}),
    ("llama-3.1-8b", {**H100, **shared(0.95, dtype="float32")},
     {"weights": 29.98, "activations": 2.21, "runtime": 0.25, "kv": 42.80}),
    ("llama-3.1-8b", {**H100, "pp": 4, **shared(0.95)}, {"weights": 4.26, "kv": 68.88}),
    ("qwen3-8b", {**H100, **shared(0.95)},
     {"weights": 15.27, "activations": 2.21, "runtime": 0.25, "kv": 57.50}),
    ("qwen2.5-72b", {**H100, "tp": 4, **shared(0.95)},
     {"weights": 34.01, "activations": 2.29, "runtime": 2.21, "kv": 36.72}),
    ("phi-4", {**H100, **shared(0.95)},
     {"weights": 27.39, "activations": 1.52, "runtime": 0.25, "kv": 46.08}),
    ("mixtral-8x7b", {**H100, "tp": 2, **shared(0.95)},
     {"weights": 43.51, "activations": 1.21, "runtime": 2.07, "kv": 28.44}),
    ("llama-4-scout", {**H100, "tp": 4, **shared(0.95)},
     {"weights": 53.12, "activations": 3.19, "runtime": 2.17, "kv": 16.75}),
    ("gpt-oss-20b", {**H100, **shared(0.95)},
     {"weights": 13.64, "activations": 2.87, "runtime": 0.25, "kv": 58.47}),
    # 0.16 sorts the whole vocabulary (PLANNER's sweep of releases)
    ("llama-3.1-8b", {**H100, "engine_version": "0.16.0", **shared(0.95)}, {"activations": 4.76}),
    # A consumer card, one sequence: a layer at work is the peak, not the sampler
    ("qwen2.5-3b", {"engine_version": "0.10.2", "gpu": "RTX-4090", "context_tokens": 4096,
                    **shared(0.9, max_num_seqs=1)}, {"weights": 5.79, "activations": 0.17}),
    # V0 profiles a whole prompt at once (T4, vLLM 0.7.2)
    ("qwen2.5-1.5b", {"engine_version": "0.7.2", "gpu": "T4", "context_tokens": 32768,
                      **shared(0.5)}, {"weights": 2.89, "activations": 2.02}),
    # padded MXFP4 experts: Marlin on Ada, AITER's tiles on ROCm (TOOLBOX)
    ("gpt-oss-20b", {"engine_version": "0.12.0", "gpu": "RTX-4090", "context_tokens": 16384,
                     **shared(0.9, max_num_seqs=32)}, {"weights": 13.72}),
    ("gpt-oss-20b", {"engine_version": "0.13.0", "gpu": "R9700", "context_tokens": 32768,
                     **shared(0.98, max_num_seqs=64)}, {"weights": 14.31}),
]  # fmt: skip
SLACK = {"weights": 0.014, "activations": 0.04, "runtime": 0.06, "kv": 0.025}
"""How far off an account may be, as a share of it."""


@pytest.mark.parametrize(("model", "keys", "printed"), ROWS)
def test_accounts_as_printed(model: str, keys: dict[str, Any], printed: dict[str, float]) -> None:
    w = work(Scenario.from_dict({"model": model, **keys}))
    found = {a.name: a for a in w.plan.memory.accounts}
    for name, gib in printed.items():
        size = found[name].bytes + (
            found["encoder"].bytes if name == "activations" and "encoder" in found else 0
        )
        assert size / GIB == pytest.approx(gib, rel=SLACK[name], abs=0.011), name


def test_sequences_and_not_only_tokens_set_the_peak() -> None:
    sizes = {}
    for n in (16, 512, 1024):
        keys = {**H100, "engine_version": "0.16.0", **shared(0.9, max_num_seqs=n)}
        w = work(Scenario.from_dict({"model": "llama-3.1-8b", **keys}))
        sizes[n] = next(a.bytes for a in w.plan.memory.accounts if a.name == "activations")
    assert sizes[16] == pytest.approx(0.94 * GIB, rel=0.02)  # a layer at work on 8,192 tokens
    assert sizes[1024] > 5 * sizes[16]
    assert sizes[1024] - sizes[512] == pytest.approx(512 * 128_256 * 38, rel=0.01)


def test_experts_are_cut_over_data_parallel_ranks() -> None:
    """vLLM documentation, data parallel deployment: without expert parallel each expert is cut over
    tp × dp; attention is copied."""

    def weights(**keys: Any) -> int:
        asked = {"model": "qwen3-30b-a3b", "gpu": "H100-SXM", "context_tokens": 8192, **keys}
        w = work(Scenario.from_dict(asked))
        return next(a.bytes for a in w.plan.memory.accounts if a.name == "weights")

    assert weights(dp=2) == pytest.approx(weights(dp=2, ep=2), rel=0.01)
    assert weights(dp=2) < 0.6 * weights()
    assert weights(dp=2, engine="sglang", engine_version="0.5.9") == pytest.approx(
        weights(engine="sglang", engine_version="0.5.9"), rel=0.01
    )  # SGLang's data-parallel ranks are replicas
    big = work(
        Scenario.from_dict(
            {"model": "deepseek-v3", "gpu": "H200-SXM", "tp": 4, "dp": 2, "context_tokens": 8192}
        )
    )
    assert big.answer.starts


def test_a_dense_model_is_copied() -> None:
    one, two = (
        work(Scenario.from_dict({"model": "llama-3.1-8b", "gpu": "H100-SXM", "dp": n}))
        for n in (1, 2)
    )
    assert one.answer.rank.weight_bytes == two.answer.rank.weight_bytes


CLUB = "github noonghunna/club-3090"
HYBRIDS: list[tuple[str, dict[str, Any], float, int, float]] = [
    # model, keys, printed GiB of cache, printed tokens, printed concurrency
    # dual/nvfp4/mtp.yml: three drafted tokens widen each convolution's state, and with it every page
    ("qwen3.6-27b",
     {"engine_version": "0.25.1", "gpu": "RTX-5090", "gpu_count": 2, "tp": 2,
      "context_tokens": 262144, "kv_dtype": "fp8", "speculation": {"method": "mtp", "tokens": 3}},
     14.68, 841_541, 3.21),
    # issue 612: no drafts, prefixes cached
    ("qwen3.6-35b-a3b",
     {"engine_version": "0.24.0", "gpu": "RTX-5090", "context_tokens": 131072, "kv_dtype": "fp8",
      "engine_args": {"enable_prefix_caching": True, "max_num_seqs": 1,
                      "max_num_batched_tokens": 8192}},
     5.98, 567_978, 4.33),
]  # fmt: skip


@pytest.mark.parametrize(("model", "keys", "gib", "tokens", "times"), HYBRIDS)
def test_tokens_of_hybrids_in_printed_bytes(
    model: str, keys: dict[str, Any], gib: float, tokens: int, times: float
) -> None:
    args = {**keys.get("engine_args", {}), "kv_cache_memory_bytes": round(gib * GIB)}
    engine = work(
        Scenario.from_dict({"model": model, **keys, "engine_args": args})
    ).plan.capacity.engine
    assert engine is not None
    assert engine.kv_tokens == tokens
    assert engine.max_concurrency == pytest.approx(times, abs=0.005)


def test_a_draft_widens_the_page_of_what_can_step_back() -> None:
    def page(model: str, version: str, drafts: int) -> int | None:
        keys = {"model": model, "gpu": "H100-SXM", "gpu_count": 1, "engine_version": version}
        speculation = {"speculation": {"method": "ngram", "tokens": drafts}} if drafts else {}
        made = work(Scenario.from_dict({**keys, "context_tokens": 8192, **speculation}))
        engine = made.plan.capacity.engine
        return engine.block_tokens if engine else None

    # MambaStateShapeCalculator: gated delta nets in every release, Mamba-2 since 0.17.
    assert page("qwen3.5-9b", "0.19.0", 4) > page("qwen3.5-9b", "0.19.0", 0)  # type: ignore[operator]
    assert page("nemotron-nano-9b-v2", "0.16.0", 8) == page("nemotron-nano-9b-v2", "0.16.0", 0)
    assert page("nemotron-nano-9b-v2", "0.19.0", 8) > page("nemotron-nano-9b-v2", "0.19.0", 0)  # type: ignore[operator]
