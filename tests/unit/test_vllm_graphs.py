"""CUDA graphs: how many sizes are captured, what they take, and where there are none."""

from __future__ import annotations

from typing import Any

import pytest

from kvroom.answer.plan import Account
from kvroom.engines.vllm.defaults import batching
from kvroom.engines.vllm.graphs import Captures, capture_sizes, captures
from kvroom.engines.vllm.setup import setup
from kvroom.errors import KvroomError
from kvroom.planner.place import deploy
from kvroom.planner.plan import plan
from kvroom.scenario.scenario import Scenario


def graph_bytes(gpu: str = "H100-SXM", version: str = "0.33.0", **args: Any) -> tuple[int, int]:
    """(the account of graphs, cache bytes) of an 8B model."""
    made = plan(
        Scenario.from_dict(
            {
                "model": "llama-3-8b", "gpu": gpu, "engine": "vllm", "engine_version": version,
                "context_tokens": 8192, "engine_args": args,
            }
        )
    )  # fmt: skip
    return next(a.bytes for a in made.memory.accounts if a.name == "graphs"), made.memory.kv_bytes


@pytest.mark.parametrize(
    ("largest", "sizes"), [(512, 51), (128, 19), (64, 11), (16, 5), (2, 2), (1, 1), (256, 35)]
)
def test_the_sizes_captured(largest: int, sizes: int) -> None:
    """A log of a GB300 with 64 requests counts 19 piecewise graphs (to 128) and 11 whole ones (to 64)."""
    assert len(capture_sizes(largest)) == sizes


@pytest.mark.parametrize(
    ("args", "pieces", "whole"),
    [
        ({}, 51, 51),
        ({"max_num_seqs": 8}, 5, 4),
        (
            {
                "max_num_seqs": 8,
                "speculative_config": {"method": "ngram", "num_speculative_tokens": 3},
            },
            11,  # the ladder to 64 by the V2 runner, which cuts decodes of 4 to 32 tokens apart from it
            5,
        ),
        ({"max_num_seqs": 8, "max_cudagraph_capture_size": 128}, 19, 4),
        ({"max_num_batched_tokens": 64}, 11, 11),
        ({"cudagraph_capture_sizes": [1, 2, 8]}, 3, 3),
        ({"cudagraph_capture_sizes": "1 2 8"}, 3, 3),
        ({"cuda_graph_sizes": 64}, 11, 11),
        ({"cuda_graph_sizes": [1, 64]}, 2, 2),
        ({"compilation_config": '{"cudagraph_capture_sizes": [4]}'}, 1, 1),
        ({"compilation_config": {"cudagraph_mode": "PIECEWISE"}}, 51, 0),
        ({"compilation_config": {"cudagraph_mode": "FULL_DECODE_ONLY"}}, 0, 51),
        ({"compilation_config": 3}, 51, 51),
    ],
)
def test_the_graphs_captured(args: dict[str, Any], pieces: int, whole: int) -> None:
    """A GB300 with 64 requests captures 19 in pieces (to 128) and 11 whole (to 64), its log counts."""
    d, _ = deploy(
        Scenario.from_dict(
            {"model": "llama-3-8b", "gpu": "H100-SXM", "context_tokens": 8192, "engine_args": args}
        )
    )
    s, _ = setup(d)
    assert captures(s, batching(s)) == Captures(pieces=pieces, whole=whole)


@pytest.mark.parametrize(
    ("version", "gpu", "model", "args", "sizes"),
    [
        # VllmConfig._set_cudagraph_sizes: 1,024 on data-centre Blackwell since 0.28
        ("0.27.1", "B200", "llama-3-8b", {}, 51),
        ("0.28.0", "B200", "llama-3-8b", {}, 83),
        ("0.28.0", "H100-SXM", "llama-3-8b", {}, 51),
        # all sequences at once, since 0.31; all tokens of a batch, since 0.21
        ("0.30.0", "H100-SXM", "llama-3-8b", {"max_num_seqs": 100}, 28),
        ("0.31.0", "H100-SXM", "llama-3-8b", {"max_num_seqs": 100}, 29),
        ("0.20.0", "H100-SXM", "llama-3-8b", {"max_num_batched_tokens": 100}, 15),
        ("0.21.0", "H100-SXM", "llama-3-8b", {"max_num_batched_tokens": 100}, 16),
    ],
)
def test_how_far_releases_capture(
    version: str, gpu: str, model: str, args: dict[str, Any], sizes: int
) -> None:
    made = counted(version, gpu, model, args)
    assert made.pieces == sizes


@pytest.mark.parametrize(
    ("version", "drafts", "counts"),
    [
        # 0.12 captures up to twice the sequences (16), 0.13 their drafts too (64), in multiples of 4
        ("0.12.0", 3, (3, 3)),
        ("0.13.0", 3, (9, 5)),
        # 0.29: 1, 2, 4, 8 … 48 and 3, 6, 12, 24; decodes in multiples of 3 up to 24
        ("0.29.0", 2, (12, 6)),
    ],
)
def test_captures_with_drafts(version: str, drafts: int, counts: tuple[int, int]) -> None:
    config = {"method": "ngram", "num_speculative_tokens": drafts}
    args = {"max_num_seqs": 8, "speculative_config": config}
    made = counted(version, "H100-SXM", "llama-3-8b", args)
    assert (made.pieces, made.whole) == counts


def counted(version: str, gpu: str, model: str, args: dict[str, Any]) -> Captures:
    question = {"model": model, "gpu": gpu, "context_tokens": 8192, "engine_version": version}
    d, _ = deploy(Scenario.from_dict({**question, "engine_args": args}))
    s, _ = setup(d)
    return captures(s, batching(s))


def test_pieces_alone_until_0_11() -> None:
    older, newer = (graph_bytes(version=v)[0] for v in ("0.10.2", "0.11.0"))
    assert newer == pytest.approx(2 * older, rel=0.01)


ESTIMATES = [  # starts of vLLM 0.19 on H100 (llm-d-planner): the engine's own estimate, in GiB
    ("llama-3.1-8b", 1, 0.84),
    ("qwen3-8b", 1, 0.84),
    ("qwen2.5-72b", 2, 1.63),
    ("qwen2.5-72b", 4, 1.51),
    ("mixtral-8x7b", 2, 0.82),
]


def subtracted(model: str, tp: int) -> Account:
    question = {"model": model, "gpu": "H100-SXM", "tp": tp, "context_tokens": 8192}
    made = plan(Scenario.from_dict({**question, "engine_version": "0.20.0"}))
    return next(a for a in made.memory.accounts if a.name == "graphs")


@pytest.mark.parametrize(("model", "tp", "gib"), ESTIMATES)
def test_what_the_engine_takes_off_for_them(model: str, tp: int, gib: float) -> None:
    assert subtracted(model, tp).bytes == pytest.approx(gib * 2**30, rel=0.25)


def test_four_of_five_estimates_lie_in_their_band() -> None:
    told = [(subtracted(model, tp), gib * 2**30) for model, tp, gib in ESTIMATES]
    assert sum(a.low_bytes <= size <= a.high_bytes for a, size in told) >= 0.8 * len(told)


@pytest.mark.parametrize(
    "args",
    [
        {"enforce_eager": True},
        {"compilation_config": {"cudagraph_mode": "NONE"}},
        {"compilation_config": 0},
        {"cudagraph_capture_sizes": []},
    ],
)
def test_no_graphs(args: dict[str, Any]) -> None:
    none, cache = graph_bytes(**args)
    some, less = graph_bytes()
    assert none == 0
    assert cache == less + some


def test_only_gpus_capture_graphs_and_only_cuda_estimates_them() -> None:
    assert graph_bytes("Apple-M1-Max")[0] == graph_bytes("TPU-v6e")[0] == 0
    same = {"gpu_memory_utilization": 0.9, "max_num_batched_tokens": 8192, "max_num_seqs": 256}
    before, since = (graph_bytes("MI300X", v, **same) for v in ("0.19.0", "0.33.0"))
    assert before[0] == since[0] > 0
    cuda = [graph_bytes(version=v, **same) for v in ("0.19.0", "0.33.0")]
    assert cuda[0][1] > cuda[1][1]
    assert before[1] == pytest.approx(since[1], abs=2**20)


@pytest.mark.parametrize(
    "args",
    [{"compilation_config": "x"}, {"cudagraph_capture_sizes": ["a"]}, {"cuda_graph_sizes": -1}],
)
def test_graph_flags_that_cannot_be(args: dict[str, Any]) -> None:
    with pytest.raises(KvroomError) as e:
        graph_bytes(**args)
    assert e.value.field.startswith("engine_args.")
