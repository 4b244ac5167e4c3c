"""Blocks that are cached twice: where a lookup's stretch ends, found without looking at all of it again."""

from hypothesis import given
from hypothesis import strategies as st

from kvroom.kvcache.extents import ExtentPool


@given(st.lists(st.booleans(), max_size=70), st.integers(0, 70), st.integers(0, 70))
def test_the_first_name_that_stands_twice(twice, first, end):
    names = list(range(len(twice)))
    first, end = min(first, len(names)), min(end, len(names))
    pool = ExtentPool(10)
    pool._overlapping = {name for name, is_twice in zip(names, twice, strict=True) if is_twice}
    expected = next((place for place in range(first, end) if twice[place]), max(first, end))
    assert pool._first_overlapping(names, first, max(first, end)) == expected
