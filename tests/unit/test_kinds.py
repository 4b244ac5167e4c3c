"""The layer kinds: each answers the same questions, and its answers agree with one another."""

from fractions import Fraction
from math import prod

import pytest

from kvroom.models.dtypes import BF16, CACHE_DTYPES, FP8_INDEX, FP32, Dtype, cache_dtype
from kvroom.models.kinds import (
    ChunkedAttention,
    Compressed,
    ConvState,
    CrossAttention,
    FullAttention,
    Indexer,
    Latent,
    LayerKind,
    RecurrentState,
    SharedCache,
    SlidingWindow,
    TiedWindow,
)
from support import evaluated

HEADS = {"kv_heads": 8, "k_dim": 128, "v_dim": 128, "q_heads": 64}
FULL = FullAttention(**HEADS)
KINDS = {
    "nothing": LayerKind(),
    "full": FULL,
    "full, odd heads": FullAttention(kv_heads=3, k_dim=80, v_dim=48, q_heads=12),
    "full, sparse": FullAttention(**HEADS, sparse_read=50),
    "window": SlidingWindow(**HEADS, window=100),
    "tied window": TiedWindow(kv_heads=1, k_dim=512, v_dim=512, q_heads=64, window=128),
    "chunked": ChunkedAttention(**HEADS, chunk=64),
    "latent": Latent(latent_dim=512, rope_dim=64, q_heads=128, k_dim=192, v_dim=128),
    "latent, sparse": Latent(
        latent_dim=512, rope_dim=64, q_heads=128, k_dim=192, v_dim=128, sparse_read=40
    ),
    "indexer": Indexer(dim=128, heads=64, dtype=FP8_INDEX),
    "indexer, every 4th": Indexer(dim=128, heads=64, ratio=4),
    "compressed": Compressed(dim=512, ratio=4, q_heads=64, sparse_read=20),
    "state": RecurrentState(heads=32, head_elements=128 * 128, dtype=FP32, form="mamba2"),
    "conv": ConvState(channels=((16, 128), (16, 128), (32, 128)), columns=3),
    "cross": CrossAttention(**HEADS),
    "shared": SharedCache(of=FULL),
}
LENGTHS = (1, 2, 3, 40, 63, 64, 65, 99, 100, 101, 128, 129, 1000, 8192)
ENCODER = 77
every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
every_dtype = pytest.mark.parametrize("kv", CACHE_DTYPES.values(), ids=CACHE_DTYPES)


@every_kind
@every_dtype
def test_the_formula_comes_to_the_bytes_of_an_entry(kind, kv):
    assert evaluated(kind.entry_formula(kv)) == kind.entry_bytes(kv)


@every_kind
@every_dtype
def test_a_longer_request_never_stores_less(kind, kv):
    stored = [kind.stored_bytes(n, kv, ENCODER) for n in LENGTHS]
    assert stored == sorted(stored)
    assert all(isinstance(s, int) for s in stored)


@every_kind
@every_dtype
def test_growth_is_what_one_more_token_adds_in_the_long_run(kind, kv):
    near, far = (kind.stored_bytes(n, kv, ENCODER) for n in (8192, 8192 + 4000))
    assert Fraction(far - near, 4000) == kind.growth(kv)


@every_kind
@every_dtype
def test_a_block_holds_its_entries(kind, kv):
    assert kind.block_bytes(16, kv) == 16 * kind.entry_bytes(kv)


@every_kind
def test_a_step_reads_no_more_than_is_stored(kind):
    bf16 = cache_dtype("bf16")
    for n in LENGTHS:
        stored, read = (f(n, bf16, ENCODER) for f in (kind.stored_bytes, kind.read_bytes))
        match kind.kind:
            case "state" | "conv":
                assert read == 2 * stored  # read and written back
            case "shared":
                assert stored == 0
                assert read == FULL.read_bytes(n, bf16)
            case _:
                assert read <= stored


@every_kind
def test_one_rank_holds_all_and_more_ranks_never_more(kind):
    bf16 = cache_dtype("bf16")
    assert kind.on_rank(1) == kind
    sizes = [kind.on_rank(tp).entry_bytes(bf16) for tp in (1, 2, 4, 8, 16, 64)]
    assert sizes == sorted(sizes, reverse=True)
    for tp in (2, 3, 8, 64):
        assert kind.on_rank(tp).entry_bytes(bf16) * tp >= kind.entry_bytes(bf16)


def test_heads_are_cut_and_then_replicated():
    assert [FULL.on_rank(tp).kv_heads for tp in (2, 4, 8, 16, 64)] == [4, 2, 1, 1, 1]
    assert FULL.on_rank(16).q_heads == 4


@pytest.mark.parametrize("name", ["latent", "indexer", "compressed"])
def test_what_all_heads_need_is_replicated(name):
    bf16 = cache_dtype("bf16")
    assert KINDS[name].on_rank(8).entry_bytes(bf16) == KINDS[name].entry_bytes(bf16)


SAME_IN_PREFILL = [k for k in KINDS if not k.startswith(("latent", "indexer", "compressed"))]


@pytest.mark.parametrize("name", SAME_IN_PREFILL)
def test_a_prompt_computes_what_its_tokens_would_one_by_one(name):
    kind = KINDS[name]
    for n in (1, 63, 64, 65, 130, 200):
        one_by_one = sum(kind.decode_flops(t, ENCODER) for t in range(1, n + 1))
        assert kind.prefill_flops(n, ENCODER) == one_by_one


def test_a_chunk_starts_anew():
    chunked = KINDS["chunked"]
    assert [chunked.live(n) for n in (0, 1, 64, 65, 128, 129)] == [0, 1, 64, 1, 64, 1]
    assert chunked.entries(129) == 64  # the most held on the way there


def test_a_window_keeps_its_last_tokens():
    assert [KINDS["window"].entries(n) for n in (1, 99, 100, 101, 10**6)] == [1, 99, 100, 100, 100]


def test_an_indexer_key_is_132_bytes_whatever_the_cache():
    assert {KINDS["indexer"].entry_bytes(kv) for kv in CACHE_DTYPES.values()} == {132}


def test_a_sparse_step_reads_what_the_indexer_picks():
    bf16 = cache_dtype("bf16")
    sparse = KINDS["latent, sparse"]
    assert sparse.stored_bytes(1000, bf16) == 1000 * 1152
    assert sparse.read_bytes(1000, bf16) == 40 * 1152
    assert sparse.decode_flops(1000) == sparse.decode_flops(40)


def test_cross_attention_grows_with_the_encoder_only():
    bf16 = cache_dtype("bf16")
    cross = KINDS["cross"]
    assert cross.stored_bytes(1, bf16, 1500) == cross.stored_bytes(9000, bf16, 1500) == 1500 * 4096
    assert cross.growth(bf16) == 0


@pytest.mark.parametrize(
    ("dtype", "columns", "rows", "size"),
    [
        (Dtype("q8_0", 8, 32, 2), 128, 1, 136),
        (Dtype("q4_0", 4, 32, 2), 80, 1, 40 + 3 * 2),  # a third group begun
        (Dtype("fp8_block", 8, 128, 4, group_rows=128), 256, 256, 65536 + 4 * 4),
        (Dtype("int4", 4), 3, 1, 2),
        (Dtype("bf16", 16), 3, 2, 12),
    ],
)
def test_widths(dtype, columns, rows, size):
    assert dtype.bytes_for(columns, rows) == size


def test_cache_widths_by_name():
    assert cache_dtype("FP8_E4M3").name == "fp8"
    assert cache_dtype("half").name == "fp16"


@every_kind
def test_a_fixed_size_and_a_window_are_what_they_say(kind):
    """Bytes of a fixed size are the same at any length; beyond a window nothing is added, and a step
    reads no further back than it reaches."""
    far, further = 2**20, 2**20 + 4096

    def stored(tokens):
        return kind.stored_bytes(tokens, BF16, 64)

    assert kind.fixed_size == (stored(1) == stored(far) > 0)
    assert not kind.recurrent or kind.fixed_size
    if kind.window_tokens is not None:
        assert stored(far) == stored(further) == stored(kind.window_tokens)
        assert kind.token_bytes(BF16) == kind.entry_bytes(BF16) > kind.growth(BF16) == 0
    if kind.reach_tokens is not None and not isinstance(kind, ChunkedAttention):
        assert kind.read_bytes(far, BF16) == kind.read_bytes(kind.reach_tokens, BF16)
    if kind.growth(BF16):
        assert stored(far) == far * kind.growth(BF16)
        assert stored(far) == far // kind.tokens_per_entry * kind.entry_bytes(BF16)


@every_kind
def test_factors_multiply_to_the_numbers_of_an_entry(kind):
    numbers = prod(value for _, value in kind.factors())
    dtype = kind.dtype_of(BF16)
    if kind.factors() and not dtype.scale_bytes:
        assert kind.entry_bytes(BF16) == dtype.bytes_for(numbers)
