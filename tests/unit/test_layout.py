"""Layouts: what one GPU of each pipeline stage holds of the weights and of a request's cache."""

import pytest

from kvroom.errors import KvroomError
from kvroom.models import catalogue, weight_dtypes
from kvroom.models.dtypes import BF16
from kvroom.models.tensors import Tensor
from kvroom.sharding.layout import Layout, WeightMap, bytes_on_rank, stage_sizes
from support import ask, asked


def ranks(name, *layout, weights="bf16"):
    spec = catalogue.find(name)
    return WeightMap(model=spec, quantisation=weight_dtypes.named(weights)).ranks(Layout(*layout))


@pytest.mark.parametrize(
    ("layers", "pp", "sizes"),
    [
        (80, 1, (80,)),
        (80, 4, (20, 20, 20, 20)),
        (61, 2, (31, 30)),
        (61, 4, (15, 15, 16, 15)),  # the odd one before the last stage, which has the head
        (62, 4, (15, 16, 16, 15)),
        (63, 4, (16, 16, 16, 15)),
        (3, 3, (1, 1, 1)),
    ],
)
def test_stages_differ_by_one_layer(layers, pp, sizes):
    assert stage_sizes(layers, pp) == sizes


@pytest.mark.parametrize("pp", [1, 2, 3, 5, 8, 64])
def test_stages_hold_every_layer_once_in_order(pp):
    held = [layer for r in ranks("llama-3-70b", 1, pp) for layer in r.layers]
    assert held == list(range(80))


def test_the_table_lies_on_the_first_stage_and_the_head_on_the_last():
    first, *_, last = ranks("llama-3-70b", 1, 4)
    table = 128256 * 8192 * 2
    assert first.weight_bytes - last.weight_bytes == -8192 * 2  # the final norm
    assert first.read_bytes == first.weight_bytes - table  # a step looks rows up
    assert last.read_bytes == last.weight_bytes


def test_a_tied_head_needs_the_table_on_both_ends():
    whole = ask("llama-3.2-1b").weights.bytes
    table = 128256 * 2048 * 2
    stages = ranks("llama-3.2-1b", 1, 2)
    assert sum(r.weight_bytes for r in stages) == whole + table
    assert stages[-1].read_bytes == stages[-1].weight_bytes


def test_kv_heads_replicate_where_there_are_more_ranks():
    plans = {tp: ask("llama-3-70b", "H200", tp=tp, context_tokens=8192) for tp in (1, 8, 16, 64)}
    each = {tp: p.kv.bytes_per_request_per_gpu for tp, p in plans.items()}
    assert each[8] * 8 == each[1]
    assert each[64] == each[16] == each[8]
    assert len({p.kv.bytes_per_request for p in plans.values()}) == 1


def test_a_latent_is_on_every_rank():
    one, eight = (ask("deepseek-v3", "B300", tp=tp, context_tokens=8192) for tp in (1, 8))
    assert one.kv.bytes_per_request_per_gpu == eight.kv.bytes_per_request_per_gpu


def test_decode_context_ranks_share_a_request_out():
    one, four = (ask("deepseek-v3", "B300", tp=8, dcp=n, context_tokens=8192) for n in (1, 4))
    assert one.kv.bytes_per_request_per_gpu == 4 * four.kv.bytes_per_request_per_gpu
    assert four.kv.bytes_per_request == one.kv.bytes_per_request


@pytest.mark.parametrize(
    ("model", "tp", "dcp", "shared"),
    [
        ("llama-3-70b", 4, 4, 1),  # two of the eight KV heads on each rank: no copies
        ("llama-3-70b", 8, 2, 1),
        ("llama-3-70b", 16, 2, 2),
        ("llama-3-70b", 32, 8, 4),
        ("deepseek-v3", 8, 8, 8),  # each rank holds the whole latent
    ],
)
def test_only_copies_of_a_head_share_a_requests_tokens(model, tp, dcp, shared):
    """vLLM's rule: context ranks reuse the tensor ranks beyond the KV heads."""
    plain, split = (ask(model, "B300", tp=tp, dcp=n, context_tokens=8192) for n in (1, dcp))
    assert plain.kv.bytes_per_request_per_gpu == shared * split.kv.bytes_per_request_per_gpu
    assert any(f"dcp {dcp}" in w for w in split.warnings) == (shared < dcp)


def test_state_is_not_shared_out_over_context_ranks():
    one, two = (asked("jamba-v0.1", "H200", tp=16, dcp=n, context_tokens=8192) for n in (1, 2))
    stored = [
        {k.kind: k.stored_bytes(w.answer.rank.held(k, 8192), BF16) for k, _ in w.answer.rank.stores}
        for w in (one, two)
    ]
    assert stored[0]["full"] == 2 * stored[1]["full"]
    assert stored[0]["state"] == stored[1]["state"]


def test_expert_ranks_hold_whole_experts():
    spread, cut = (ranks("mixtral-8x7b", 8, 1, 1, ep)[0] for ep in (8, 1))
    assert spread.weight_bytes == cut.weight_bytes
    assert ranks("mixtral-8x7b", 1, 1, 8, 8)[0].weight_bytes < ranks("mixtral-8x7b")[0].weight_bytes
    three = ranks("mixtral-8x7b", 1, 1, 3, 3)[0]  # the fullest of them has three experts
    eight = ranks("mixtral-8x7b", 1, 1, 1, 1)[0]
    assert three.experts[0][0] * 8 == eight.experts[0][0] * 3


@pytest.mark.parametrize(
    ("split", "units", "tp", "size"),
    [
        ("column", 0, 4, 64 * 128 // 4),
        ("row", 0, 4, 64 * 128 // 4),
        ("kv", 4, 8, 16 * 128),  # four heads over eight ranks: one each
        ("replicated", 0, 8, 64 * 128),
        ("vocab", 0, 3, 22 * 128),
    ],
)
def test_one_tensor_on_a_rank(split, units, tp, size):
    tensor = Tensor(name="x", rows=64, columns=128, part="attention", split=split, units=units)
    assert bytes_on_rank(tensor, BF16, Layout(tp)) == 2 * size


@pytest.mark.parametrize(
    ("keys", "field", "fix"),
    [
        ({"model": "llama-3-70b", "tp": 3}, "tp", "1, 2, 4, 8, 16, 32, 64"),
        ({"model": "llama-3-70b", "pp": 81}, "pp", "at most 80"),
        ({"model": "llama-3-70b", "tp": 2, "ep": 2}, "ep", "Leave it out"),
        ({"model": "mixtral-8x7b", "tp": 16, "ep": 16}, "ep", "at most 8"),
    ],
)
def test_a_layout_that_the_model_cannot_be_cut_into(keys, field, fix):
    with pytest.raises(KvroomError) as e:
        ask(**keys)
    assert e.value.field == field
    assert fix in e.value.fix
