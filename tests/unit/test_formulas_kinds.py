"""What each layer kind computes and moves, against closed forms and published shapes."""

import pytest

from kvroom.models.dtypes import BF16
from kvroom.models.kinds import (
    ChunkedAttention,
    Compressed,
    ConvState,
    CrossAttention,
    FullAttention,
    Indexer,
    Latent,
    RecurrentState,
    SlidingWindow,
)
from support import asked

HEADS = {"kv_heads": 2, "k_dim": 48, "v_dim": 32, "q_heads": 8}
A_PAIR = 2 * 8 * (48 + 32)
"""A multiply and an add for each number of a key and of a value, for every query head."""
V3 = Latent(latent_dim=512, rope_dim=64, q_heads=128, k_dim=192, v_dim=128)
"""DeepSeek-V3's config.json: kv_lora_rank, qk_rope_head_dim, num_attention_heads, 128 + 64, v_head_dim."""


def stores(model):
    return {kind.kind: (kind, n) for kind, n in asked(model).deployment.model.stores}


def test_latent_decode_scores_with_the_rotary_part_too():
    # Keys of 512 + 64 numbers, values of 512: 2 × 128 × (576 + 512).
    assert V3.decode_flops(1) == 278_528
    assert V3.decode_flops(1000) == 278_528_000
    kind, layers = stores("deepseek-v3")["latent"]
    assert (kind.decode_flops(1), layers) == (278_528, 61)


def test_latent_prefill_computes_with_the_expanded_heads():
    assert V3.prefill_flops(10) == 2 * 128 * (192 + 128) * 55


def test_a_step_updates_each_number_of_a_state_by_six_operations():
    # Mamba-Codestral-7B's config.json: 128 heads of 64 × 128 numbers, 64 layers.
    kind, layers = stores("mamba-codestral-7b")["state"]
    assert kind.decode_flops(5000) == 6 * 128 * 64 * 128
    assert kind.prefill_flops(100) == 100 * 6 * 128 * 64 * 128
    assert layers == 64
    assert kind.read_bytes(5000, BF16) == 2 * kind.entry_bytes(BF16)


def test_a_convolution_multiplies_its_columns_and_the_new_one():
    kind = ConvState(channels=((4, 16), (2, 8)), columns=3)
    assert kind.decode_flops(5000) == 2 * (64 + 16) * 4
    assert kind.prefill_flops(100) == 100 * 2 * 80 * 4
    assert kind.read_bytes(5000, BF16) == 2 * 80 * 3 * 2


def test_the_recurrences_state_has_its_own_width():
    kind = RecurrentState(heads=4, head_elements=100, form="gdn")
    assert kind.entry_bytes(BF16) == 800
    assert kind.on_rank(2).decode_flops(1) == 6 * 2 * 100


@pytest.mark.parametrize(
    ("kind", "looks_back"),
    [
        (FullAttention(**HEADS), lambda n: n),
        (FullAttention(**HEADS, sparse_read=7), lambda n: min(n, 7)),
        (SlidingWindow(**HEADS, window=9), lambda n: min(n, 9)),
        (ChunkedAttention(**HEADS, chunk=6), lambda n: (n - 1) % 6 + 1),
    ],
    ids=["full", "sparse", "window", "chunk"],
)
def test_a_prompt_computes_what_its_tokens_look_back_on(kind, looks_back):
    for n in (1, 5, 6, 7, 13, 40):
        assert kind.decode_flops(n) == A_PAIR * looks_back(n)
        assert kind.prefill_flops(n) == A_PAIR * sum(map(looks_back, range(1, n + 1)))
        assert kind.read_bytes(n, BF16) == looks_back(n) * 2 * (48 + 32) * 2


def test_cross_attention_looks_at_the_whole_encoder_for_every_token():
    kind = CrossAttention(**HEADS)
    assert kind.decode_flops(3, 1500) == A_PAIR * 1500
    assert kind.prefill_flops(10, 1500) == A_PAIR * 10 * 1500


@pytest.mark.parametrize("ratio", [1, 4])
def test_an_indexer_scores_every_key(ratio):
    kind = Indexer(dim=128, heads=64, ratio=ratio)
    assert kind.decode_flops(4000) == 2 * 64 * 128 * 4000 // ratio
    assert kind.prefill_flops(4000) == 2 * 64 * 128 * (4000 * 4001 // 2) // ratio


def test_compressed_entries_are_key_and_value_in_one():
    kind = Compressed(dim=512, ratio=4, q_heads=64, sparse_read=100)
    assert kind.decode_flops(200) == 4 * 64 * 512 * 50
    assert kind.decode_flops(4000) == 4 * 64 * 512 * 100
    # As far as 400 tokens back, then a hundred entries each.
    pairs = 400 * 401 // 2 + (1000 - 400) * 400
    assert kind.prefill_flops(1000) == 4 * 64 * 512 * pairs // 4


def test_context_ranks_exchange_queries_outputs_and_normalisers():
    assert FullAttention(**HEADS).exchanged() == 8 * (48 + 32 + 2)
    assert V3.exchanged() == 128 * (512 + 64 + 512 + 2)
