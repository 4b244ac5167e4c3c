"""Bytes and FLOPs of steps and prompts, and of what ranks hold, against counts by hand."""

import pytest

from kvroom.models.dtypes import BF16
from kvroom.models.tensors import Tensor
from kvroom.sharding.layout import Layout, shape_on_rank
from support import ask, asked

LAYER = 4096 * 4096 * 2 + 2 * 1024 * 4096 + 3 * 4096 * 14336
HEAD = 128_256 * 4096
"""Of Llama-3-8B's config.json: the matrices of a layer, and the vocabulary's."""
VECTOR = 4096 * 2


def step(model="llama-3-8b", batch=1, **keys):
    return ask(model, "B300", concurrency=batch, **{"context_tokens": 4096, **keys}).step


def test_matrices_read_their_input_and_write_their_output():
    widths = 2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 14336)
    token = 32 * widths + (4096 + 128_256) + 2 * 4096  # and the vector that is looked up
    assert step().bytes.activations == 2 * token
    assert step(batch=5).bytes.activations == 5 * 2 * token


def test_stages_hand_each_ranks_vector_over():
    layers = 32 * 2 * 2 * 1 * VECTOR  # two all-reduces a layer over two ranks
    assert step(tp=2, pp=4).bytes.links == layers + 3 * 2 * VECTOR


def test_experts_on_other_ranks_are_sent_to_and_from():
    # Qwen3-30B-A3B: 48 layers of 8 experts a token, hidden size 2048; three of four lie elsewhere.
    links = step("qwen3-30b-a3b", tp=1, dp=4, ep=4).bytes.links
    assert links == 2 * 48 * 8 * 2048 * 2 * 3 // 4


def test_every_context_rank_sends_its_share():
    alone, shared = (step("deepseek-v3", tp=8, dcp=n).bytes.links for n in (1, 8))
    numbers = 61 * 7 * 16 * (512 + 64 + 512 + 2)  # of one of eight ranks
    assert shared - alone == numbers * 2 * 8


def test_expert_ranks_that_span_replicas_serve_the_tokens_of_all():
    apart, spanning = (step("qwen3-30b-a3b", 64, tp=1, dp=4, ep=n).bytes.weights for n in (1, 4))
    experts = 48 * 128 * 3 * 2048 * 768 * 2
    unread = 1 - 8 / 128
    rest = apart - 4 * experts * (1 - unread**16)
    assert spanning == pytest.approx(rest + experts * (1 - unread**64), rel=1e-6)


def test_only_a_prompts_last_token_meets_the_head():
    traffic = asked("llama-3-8b", "B300").traffic
    attention = 32 * 2 * 32 * (128 + 128) * (1000 * 1001 // 2)
    assert traffic.prefill_flops(1000) == 2 * (32 * LAYER * 1000 + HEAD) + attention


def test_drafted_tokens_are_computed_whether_they_are_kept_or_not():
    keys = {"speculation": {"method": "ngram", "num_speculative_tokens": 3}}
    plain, drafting = step(batch=4), step(batch=4, **keys)
    assert drafting.flops == 4 * plain.flops
    assert drafting.bytes.kv == plain.bytes.kv
    assert drafting.bytes.activations == 4 * plain.bytes.activations


def test_heads_are_cut_whole():
    # Qwen2.5-0.5B's config.json: 14 query heads of 64 numbers; four ranks hold four each.
    tensor = Tensor(
        name="q_proj", rows=14 * 64, columns=896, part="attention", split="column", units=14
    )
    assert shape_on_rank(tensor, Layout(4)) == (4 * 64, 896, 1)
    assert shape_on_rank(tensor, Layout(16)) == (64, 896, 1)


def test_experts_go_to_expert_ranks_and_the_rest_of_the_cut_to_each():
    tensor = Tensor(
        name="gate_proj", rows=768, columns=2048, count=128, active=8, part="expert", split="expert"
    )
    assert shape_on_rank(tensor, Layout(8, 1, 1, 4)) == (384, 2048, 32)


def test_context_ranks_hold_a_share_rounded_up():
    (rank,) = asked("deepseek-v3", "B300", tp=8, dcp=8).deployment.ranks
    kind = next(k for k, _ in rank.stores if k.kind == "latent")
    assert [rank.held(kind, n) for n in (1, 8, 9, 4096)] == [1, 1, 2, 512]
    assert rank.request_bytes(9, BF16) == 61 * 2 * 576 * 2


@pytest.mark.parametrize("tp", [1, 2])
def test_adapters_have_an_a_for_each_slice_and_b_for_all_rows(tp):
    """vLLM's ``create_lora_weights``: A whole and B cut over ranks where outputs are cut, the other way
    round where inputs are."""
    args = {"enable_lora": True, "max_loras": 3, "max_lora_rank": 32}
    plan = ask("llama-3-8b", "B300", engine="vllm", tp=tp, engine_args=args)
    (account,) = (a for a in plan.memory.accounts if a.name == "adapters")
    columns = (3 + 2) * 4096 + (4096 + 2 * 1024 + 2 * 14336) // tp
    rows = (4096 + 14336) // tp + 2 * 4096
    tables = 2 * (128_256 + 4096)
    assert account.bytes == 3 * 2 * 32 * (32 * (columns + rows) + tables)


def test_published_cache_bytes_a_token():
    """Layers × (keys and values) × heads × width × 2 bytes, by each model's config.json."""
    published = {
        "llama-3-70b": 80 * 2 * 8 * 128 * 2,
        "llama-2-7b": 32 * 2 * 32 * 128 * 2,
        "qwen2.5-7b": 28 * 2 * 4 * 128 * 2,
        "deepseek-v3": 61 * (512 + 64) * 2,
        "mistral-nemo": 40 * 2 * 8 * 128 * 2,
    }
    for name, size in published.items():
        assert ask(name, "B300").kv.bytes_per_token == size, name


def test_fully_sharded_adapters_cut_both_matrices():
    args = {"enable_lora": True, "max_lora_rank": 32, "fully_sharded_loras": True}
    plan = ask("llama-3-8b", "B300", engine="vllm", tp=4, engine_args=args)
    (account,) = (a for a in plan.memory.accounts if a.name == "adapters")
    columns = 5 * 32 // 4 * 4096 + 32 * (4096 + 2 * 1024 + 2 * 14336) // 4
    rows = 32 * (4096 + 14336) // 4 + 2 * 4096 // 4 * 32
    assert account.bytes == 2 * (32 * (columns + rows) + 32 * 2 * (128_256 + 4096))
