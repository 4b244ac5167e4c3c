"""Token runs and their hashes; hits, admission and freeing over layer groups."""

import pytest

from kvroom.kvcache.groups import ChunkedLocalGroup, FullAttentionGroup, SlidingWindowGroup
from kvroom.kvcache.mamba_groups import AlignedMambaGroup
from kvroom.kvcache.prefix_cache import PrefixCache
from kvroom.kvcache.request import ServedRequest
from kvroom.kvcache.tokens import BlockHashes, joined, length


def hashes(*runs, block_tokens=4, count=100):
    return BlockHashes(runs, block_tokens).first(count)


def cache_of(*groups, blocks=100, caching=True, interval=0):
    return PrefixCache(
        groups,
        blocks,
        caching=caching,
        context_tokens=1024,
        in_flight_tokens=64,
        interval=interval,
    )


def entered(cache, *runs, prompt=None, index=0):
    tokens = length(runs) if prompt is None else prompt
    made = ServedRequest(index, 0, tokens, 64, hashes=BlockHashes(runs, cache.hash_tokens))
    cache.enter(made)
    return made


def served(cache, *runs, index=0):
    """A request that was computed in one pass and is gone."""
    made = entered(cache, *runs, index=index)
    assert cache.allocate(made, made.num_tokens, cache.lookup(made))
    cache.end_step()
    cache.free(made)
    cache.begin_step()
    return made


# Tokens


def test_runs_are_joined_where_ids_go_on():
    assert joined([(10, 3), (13, 2), (0, 0), (20, 1)]) == [(10, 5), (20, 1)]


def test_equal_tokens_give_equal_hashes_however_they_are_written():
    assert hashes((10, 20)) == hashes((10, 1), (11, 6), (17, 13))
    assert len(hashes((10, 20))) == 5


def test_a_hash_covers_everything_before_it():
    one, other = hashes((10, 8), (50, 4)), hashes((11, 8), (50, 4))
    assert all(a != b for a, b in zip(one, other, strict=True))
    assert hashes((10, 8), (50, 4))[:2] == hashes((10, 8), (60, 4))[:2]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([(10, 2), (20, 2)], [(20, 2), (10, 2)]),
        ([(10, 1), (20, 3)], [(10, 3), (20, 1)]),
        ([(0, 4)], [(1, 4)]),
        ([(0, 4), (9, 4)], [(9, 4), (0, 4)]),
    ],
)
def test_other_tokens_give_other_hashes(one, other):
    assert hashes(*one) != hashes(*other)


def test_hashes_do_not_depend_on_the_platform():
    assert hashes((10, 8)) == [2981005912207910363, 304633592769472443]


def test_only_hashes_asked_for_are_made():
    endless = BlockHashes([(0, 10**15)], 16)
    assert len(endless.first(3)) == 3
    assert len(endless.first(2)) == 3


# Hits


def test_full_attention_needs_every_block_from_the_left():
    cache = cache_of(FullAttentionGroup(0, 4))
    served(cache, (10, 13))
    assert cache.lookup(entered(cache, (10, 13))).tokens == 12
    assert cache.lookup(entered(cache, (10, 9), (90, 5))).tokens == 8
    assert cache.lookup(entered(cache, (9, 13))).tokens == 0


def test_the_last_token_is_always_computed():
    cache = cache_of(FullAttentionGroup(0, 4))
    served(cache, (10, 12))
    assert cache.lookup(entered(cache, (10, 12))).tokens == 8
    assert cache.lookup(entered(cache, (10, 13))).tokens == 12


def test_a_hit_of_free_blocks_counts_against_the_free_ones():
    cache = cache_of(FullAttentionGroup(0, 4), blocks=6)
    served(cache, (10, 12))
    follower = entered(cache, (10, 12), (50, 9))
    hit = cache.lookup(follower)
    assert hit.tokens == 12
    assert not cache.allocate(follower, 9, hit)  # 3 hit and 3 new of 5
    assert cache.allocate(follower, 8, hit, headroom=0)
    assert cache.pool.in_use == 5


def test_whole_asks_for_all_known_tokens_and_takes_only_the_pass():
    cache = cache_of(FullAttentionGroup(0, 4), blocks=6)
    big = entered(cache, (10, 21))
    assert not cache.allocate(big, 4, whole=True)
    fitting = entered(cache, (10, 20))
    assert not cache.allocate(fitting, 4, whole=True, headroom=1)
    assert cache.allocate(fitting, 4, whole=True)
    assert cache.pool.in_use == 1


def test_without_caching_nothing_is_found_and_nothing_kept():
    cache = cache_of(FullAttentionGroup(0, 4), caching=False)
    served(cache, (10, 12))
    assert cache.lookup(entered(cache, (10, 13))).tokens == 0
    assert cache.pool.cached == 0


def test_windows_keep_what_the_end_of_the_prompt_needs():
    cache = cache_of(FullAttentionGroup(0, 4), SlidingWindowGroup(1, 4, window=6))
    served(cache, (10, 18))
    assert cache.lookup(entered(cache, (10, 18))).tokens == 16
    shorter = cache.lookup(entered(cache, (10, 12), (90, 4)))
    assert (shorter.tokens, shorter.junction) == (0, 12)  # full attention has it, the window not


def test_a_junction_is_kept_for_the_next_one():
    cache = cache_of(FullAttentionGroup(0, 4), SlidingWindowGroup(1, 4, window=6))
    served(cache, (10, 18))
    second = entered(cache, (10, 12), (90, 4), index=1)
    hit = cache.lookup(second)
    second.junction = hit.junction
    assert cache.allocate(second, second.num_tokens - hit.tokens, hit)
    assert cache.lookup(entered(cache, (10, 12), (70, 4))).tokens == 12


def test_dense_retention_keeps_every_window():
    cache = cache_of(FullAttentionGroup(0, 4), SlidingWindowGroup(1, 4, window=6), interval=None)
    served(cache, (10, 18))
    assert cache.lookup(entered(cache, (10, 12), (90, 4))).tokens == 12


def test_a_window_alone_may_hit_a_run_that_reaches_the_start():
    cache = cache_of(SlidingWindowGroup(0, 4, window=14), interval=None)
    served(cache, (10, 9))
    assert cache.lookup(entered(cache, (10, 9), (90, 9))).tokens == 8


def test_blocks_before_the_window_are_given_back():
    cache = cache_of(SlidingWindowGroup(0, 4, window=6), caching=False)
    made = entered(cache, (10, 20))
    assert cache.allocate(made, 20)
    made.num_computed_tokens = 20
    assert cache.allocate(made, 1)
    assert made.block_tables[0][:3] == [0, 0, 0]  # 15 tokens are out of the window of the 21st
    assert cache.pool.in_use == 3


def test_earlier_chunks_count_as_found():
    cache = cache_of(ChunkedLocalGroup(0, 4, chunk=8))
    fresh = cache.lookup(entered(cache, (10, 22)))
    assert (fresh.tokens, fresh.blocks[0]) == (16, [0, 0, 0, 0])


def test_a_state_written_in_this_pass_is_not_hit_before_the_next():
    cache = cache_of(FullAttentionGroup(0, 4), AlignedMambaGroup(1, 4), interval=None)
    first = entered(cache, (10, 12))
    assert cache.allocate(first, 8)
    follower = entered(cache, (10, 12), index=1)
    hit = cache.lookup(follower)
    assert hit.tokens == 8
    assert not cache.allocate(follower, 4, hit)
    cache.begin_step()
    assert cache.allocate(follower, 4, hit)


def test_a_hit_inside_a_block_is_copied_before_it_is_written():
    cache = cache_of(FullAttentionGroup(0, 4), AlignedMambaGroup(1, 8), interval=None)
    assert (cache.hash_tokens, cache.hit_tokens) == (4, 4)
    first = entered(cache, (10, 15))
    assert cache.allocate(first, 12)
    cache.end_step()
    cache.begin_step()
    follower = entered(cache, (10, 15), index=1)
    hit = cache.lookup(follower)
    assert hit.tokens == 12
    assert cache.allocate(follower, 3, hit)
    assert follower.block_tables[1][1] != first.block_tables[1][1]
    assert follower.block_tables[0][:3] == first.block_tables[0]


def test_unequal_blocks_hit_at_a_common_multiple():
    cache = cache_of(FullAttentionGroup(0, 8), SlidingWindowGroup(1, 4, window=6), interval=None)
    served(cache, (10, 21))
    assert cache.lookup(entered(cache, (10, 15))).tokens == 8
    assert cache.lookup(entered(cache, (10, 17))).tokens == 16


def test_freed_blocks_are_used_again_from_the_tail_group_after_group():
    cache = cache_of(FullAttentionGroup(0, 4), FullAttentionGroup(1, 4), caching=False, blocks=7)
    made = entered(cache, (10, 12))
    assert cache.allocate(made, 12)
    assert made.block_tables == [[1, 2, 3], [4, 5, 6]]
    cache.free(made)
    assert cache.pool.free_order() == [6, 5, 4, 3, 2, 1]


def test_what_no_pool_holds_is_known_beforehand():
    cache = cache_of(FullAttentionGroup(0, 4), SlidingWindowGroup(1, 4, window=6), blocks=5)
    assert cache.fits_ever(entered(cache, (10, 16)))
    assert not cache.fits_ever(entered(cache, (10, 17)))
