"""Cache policies and their figures on traces small enough to follow by hand."""

from array import array
from fractions import Fraction

import pytest

from kvroom.errors import KvroomError
from kvroom.models.dtypes import BF16, cache_dtype
from kvroom.models.load import load
from kvroom.simulator.replacement import Marks, belady_hits, fifo_hits, lfu_hits, lru, next_uses
from kvroom.simulator.reuse import POLICIES, Price, log_spaced, placed, reuse
from kvroom.workloads.requests import PS_PER_S, HashIds, Request, TokenIds, TokenRuns

KIB, GIB = 2**10, 2**30


def prompts(*ids, block=10, tail=10):
    """Requests a second apart, of whole blocks but the last, which holds ``tail`` tokens."""
    return [
        Request(i * PS_PER_S, (len(p) - 1) * block + tail, 5, HashIds(array("q", p), block))
        for i, p in enumerate(ids)
    ]


def refs_of(*ids):
    return reuse(prompts(*ids), 10).refs


def test_a_cache_without_limit_hits_leading_runs():
    found = reuse(prompts([1, 2, 3], [1, 2, 4], [9, 2, 3], [1, 2, 4], tail=4), 10)
    assert (len(found.refs.blocks), found.refs.unique_blocks) == (12, 5)
    # 2 of the second; none of the third, whose first block is new; all 3 of the last: 24 tokens.
    assert (found.infinite.hit_blocks, found.infinite.hit_tokens) == (5, 44)
    assert found.token_hit_ratio == pytest.approx(44 / 96)
    assert found.infinite.requests_with_hit == 2


def test_lru_distances_count_the_block_itself():
    stack = lru(refs_of([1, 1, 2, 3, 1]))
    assert dict(stack.by_distance) == {1: 1, 3: 1}
    assert [stack.hits(c) for c in (0, 1, 2, 3, 99)] == [0, 1, 1, 2, 2]
    assert [stack.blocks_for(n) for n in (0, 1, 2, 9)] == [0, 1, 3, 3]
    assert stack.ratio(3) == 2 / 5


def test_tail_first_keeps_the_head_of_a_prompt():
    once_more = [1, 2, 3, 4], [1, 2, 3, 4]
    found = reuse(prompts(*once_more), 10, ["lru", "lru-tail"], [2, 4])
    # Head to tail, each of four blocks pushes out the next one that is wanted.
    assert found.hit_ratio == {"lru": {"2": 0.0, "4": 0.5}, "lru-tail": {"2": 0.25, "4": 0.5}}


def test_fifo_is_not_moved_by_hits():
    refs = refs_of([1, 2, 1, 3, 1])
    assert fifo_hits(refs, 2) == 1
    assert lru(refs).hits(2) == 2


def test_lfu_never_parts_with_what_was_used_twice():
    assert lfu_hits(refs_of([1, 1, 2, 3, 2, 1]), 2) == 2  # 2 and 3 push each other out
    assert lfu_hits(refs_of([1, 1, 2, 2, 1]), 1) == 2  # 2 itself has to go


def test_belady_takes_every_block_in():
    uses = next_uses(refs_of([1, 2, 3, 1, 2]))
    assert list(uses) == [3, 4, 5, 5, 5]
    assert [belady_hits(uses, c) for c in (1, 2, 3)] == [0, 1, 2]


def test_marks_are_counted_below_any_position():
    marks = Marks(5000)
    marks.mark(10, 1500)
    marks.mark(4999, 1)
    assert [marks.below(p) for p in (0, 10, 11, 512, 1510, 4999, 5000)] == [
        0,
        0,
        1,
        502,
        1500,
        1500,
        1501,
    ]
    assert marks.total == 1501


def test_hash_ids_in_blocks_of_another_size():
    ids = HashIds(array("q", [7, 8]), 32)
    assert ids.block_keys(32, 40) == array("q", [7, 8])
    assert len(ids.block_keys(16, 40)) == 3  # two of the first id, the partial third of the second
    assert len(ids.block_keys(64, 64)) == 1
    assert len(ids.block_keys(16, 80)) == 4  # ids end before the prompt does
    other = HashIds(array("q", [7, 9]), 32)
    assert [
        a == b for a, b in zip(ids.block_keys(16, 64), other.block_keys(16, 64), strict=True)
    ] == [
        True,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize("kind", ["ids", "runs"])
def test_token_blocks_depend_on_all_that_comes_before(kind):
    def keys(*runs):
        if kind == "runs":
            prefix = TokenRuns(runs)
        else:
            prefix = TokenIds(array("I", [t for first, n in runs for t in range(first, first + n)]))
        return list(prefix.block_keys(4, sum(n for _, n in runs)))

    base = keys((100, 10))
    assert len(base) == 3
    assert keys((100, 8)) == base[:2]
    assert keys((100, 10), (900, 2))[:2] == base[:2]
    assert keys((100, 10), (900, 2))[2] != base[2]
    assert set(keys((5, 1), (101, 9))).isdisjoint(base)


def test_answers_belong_to_what_is_known():
    ids = TokenIds(array("I", [1, 2, 3]), array("I", [4]))
    runs = TokenRuns(((1, 3),), ((4, 1),))
    assert len(ids.block_keys(2, 4)) == len(runs.block_keys(2, 4)) == 2
    assert len(ids.block_keys(2, 3)) == len(runs.block_keys(2, 3)) == 2
    assert ids.block_keys(2, 4)[1] != ids.block_keys(2, 3)[1]


def test_needs_ages_and_fragmentation():
    found = reuse(prompts([1, 2], [1, 3], [1, 2]), 10, POLICIES).to_dict()
    # Block 1 is hit at distances 2 and 2 (after 2, after 3), block 2 at distance 3 (after 1, 3, and itself).
    assert found["hit_ratio"]["lru"] == {"1": 0.0, "2": 2 / 6, "3": 0.5}
    assert found["needs"][0] == {"share": 0.5, "hit_ratio": 2 / 6, "blocks": 2, "tokens": 20}
    assert found["needs"][-1] == {"share": 1.0, "hit_ratio": 0.5, "blocks": 3, "tokens": 30}
    assert found["never_reused_ratio"] == pytest.approx(1 / 3)
    assert found["top_tenth_ratio"] == pytest.approx(2 / 3)
    assert found["reuse_time_s"]["max"] == 2.0
    assert found["reuse_within_s"]["1"] == pytest.approx(2 / 3)
    assert found["lifetime_s"]["p50"] == 2.0
    # Three requests of 25 tokens: 32 allocated at 16, 32 or 64 …
    assert found["fragmentation"]["16"] == pytest.approx(7 / 32)
    assert found["fragmentation"]["64"] == pytest.approx(39 / 64)


def test_prompts_of_which_nothing_is_known_hit_nothing():
    found = reuse([Request(0, 100, 5), *prompts([1], [1])], 10).to_dict()
    assert (found["references"], found["hit_blocks"], found["unknown_requests"]) == (2, 1, 1)
    empty = reuse([Request(0, 100, 5)], 16, POLICIES, [10]).to_dict()
    assert empty["hit_ratio"]["belady"] == {"10": 0.0}
    assert empty["needs"] == empty["curve"] == []


def test_a_price_in_bytes():
    llama = Price.of(load("llama-3-70b"), BF16)
    # 80 layers of 8 heads of 128 keys and 128 values: Mooncake (FAST 2025) says 320 KB a token.
    assert (llama.bytes(1), llama.fixed_bytes) == (320 * KIB, 0)
    assert llama.bytes(128 * KIB) == 40 * GIB
    gemma = Price.of(load("gemma-3-27b"), cache_dtype("fp8"))
    # 10 full layers, 52 with a window of 1,024, 16 heads of 128.
    assert gemma.bytes(1) == 10 * 2 * 16 * 128
    assert gemma.fixed_bytes == 52 * 1024 * 2 * 16 * 128


def test_sizes_fill_the_fastest_tier_first():
    rooms = {"hbm": 10, "host": 20}
    assert placed(5, rooms) == {"hbm": 5, "host": 0}
    assert placed(35, rooms) == {"hbm": 10, "host": 20, "missing": 5}


def test_log_spaced():
    assert log_spaced(1000, 4) == [1, 10, 100, 1000]
    assert log_spaced(3, 64) == [1, 2, 3]
    assert log_spaced(1, 64) == [1]


@pytest.mark.parametrize(
    ("block", "policy", "capacity", "field"),
    [
        (0, "lru", 1, "--block-tokens"),
        (10, "lfuu", 1, "--policy"),
        (10, "lru", 0, "--capacity"),
    ],
)
def test_bad_questions(block, policy, capacity, field):
    with pytest.raises(KvroomError) as caught:
        reuse(prompts([1]), block, [policy], [capacity])
    assert caught.value.field == field


def test_hits_by_tier_come_from_one_pass():
    found = reuse(prompts((1, 2, 3, 4), (1, 2, 3, 4), (9, 8, 7, 6), (1, 2, 3, 4)), 10)
    price = Price("toy", BF16, Fraction(100), 0)  # a block of 10 tokens is 1,000 bytes
    rows = found.by_tier({"hbm": 3_999, "host": 2_000, "nvme": 10**6}, price)
    assert [row.blocks for row in rows] == [3, 2, 1000]
    # Four references come back after 4 blocks, four after 8, of sixteen.
    assert [row.hit_ratio for row in rows] == [0, 0.25, 0.25]
    assert [row.total_ratio for row in rows] == [0, 0.25, 0.5]
    assert rows[-1].total_ratio == found.lru.ratio(10**6)
