"""The block pool: the order in which free blocks are used, references, keys."""

from kvroom.kvcache.block_pool import BlockPool


def pool_of(blocks, keys=()):
    """A pool of that many usable blocks, all taken, the first ones registered under ``keys``."""
    pool = BlockPool(blocks + 1)
    taken = pool.get_new_blocks(blocks)
    for block, key in zip(taken, keys, strict=False):
        pool.cache_block(block, key, 16)
    return pool, taken


def test_blocks_are_given_out_from_one_on_and_the_null_block_never():
    pool = BlockPool(5)
    assert (pool.free, pool.in_use) == (4, 0)
    assert pool.get_new_blocks(3) == [1, 2, 3]
    assert (pool.free, pool.in_use) == (1, 3)
    assert pool.get_new_blocks(0) == []


def test_blocks_without_a_key_are_used_again_first_in_the_order_given_back():
    pool = BlockPool(9)
    pool.get_new_blocks(4)
    pool.free_blocks([4, 3, 2, 1])
    assert pool.free_order() == [4, 3, 2, 1, 5, 6, 7, 8]
    pool.get_new_blocks(1)
    pool.free_blocks([4])
    assert pool.get_new_blocks(6) == [4, 3, 2, 1, 5, 6]


def test_cached_blocks_wait_behind_all_others_oldest_first():
    pool, (a, b, c, d) = pool_of(4, keys=[70, 71])
    pool.free_blocks([b, a])
    pool.free_blocks([d, c])
    assert pool.free_order() == [d, c, b, a]
    assert pool.cached == 2
    assert pool.get_new_blocks(3) == [d, c, b]
    assert pool.get_cached_block(71) == 0  # given away, so forgotten
    assert pool.get_cached_block(70) == a


def test_a_shared_block_leaves_the_free_ones_and_comes_back_last():
    pool, (a, b) = pool_of(2, keys=[70, 71])
    pool.free_blocks([a, b])
    pool.touch(a)
    assert (pool.free, pool.references[a]) == (1, 1)
    pool.touch(a)
    pool.free_blocks([a])
    assert pool.free_order() == [b]
    pool.free_blocks([a])
    assert pool.free_order() == [b, a]


def test_the_null_block_is_neither_shared_nor_released():
    pool = BlockPool(3)
    pool.touch(0)
    pool.free_blocks([0, 0])
    assert pool.references[0] == 0
    assert pool.free_order() == [1, 2]


def test_of_several_blocks_with_one_key_the_first_that_remains_is_found():
    pool, (a, b, c) = pool_of(3)
    for block in (b, a, c):
        pool.cache_block(block, 70, 16)
    assert pool.cached == 1
    assert pool.get_cached_block(70) == b
    pool.uncache(b)
    assert pool.get_cached_block(70) == a
    pool.uncache(c)
    pool.uncache(a)
    assert (pool.get_cached_block(70), pool.cached) == (0, 0)


def test_a_block_may_be_found_by_a_part_of_itself_too():
    pool, (a, b) = pool_of(2)
    pool.cache_block(a, 70, 16)
    pool.cache_block(a, 71, 8)
    pool.cache_block(a, 71, 8)
    assert (pool.keys[a], pool.key_tokens[a], pool.get_cached_block(71)) == (70, 16, a)
    pool.move_keys(a, b)
    assert (pool.get_cached_block(70), pool.get_cached_block(71), pool.keys[a]) == (b, b, None)
    assert pool.uncache(b) == [70, 71]
    assert pool.cached == 0


def test_a_huge_pool_costs_what_is_used_of_it():
    pool = BlockPool(2**31)
    assert pool.get_new_blocks(3) == [1, 2, 3]
    assert pool.free == 2**31 - 4
    assert len(pool.references) == 4
