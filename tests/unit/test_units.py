"""Sizes, tokens and numbers: what is read, what is refused, how they print."""

import math

import pytest

from kvroom import units
from kvroom.errors import KvroomError


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("80GB", 80_000_000_000),
        ("80gb", 80_000_000_000),
        ("80GiB", 80 * 2**30),
        (" 80 GiB ", 80 * 2**30),
        ("1,024B", 1024),
        ("1_024 B", 1024),
        (".5KiB", 512),
        ("79.1GiB", int(79.1 * 2**30)),
        ("1PB", 10**15),
        (0, 0),
        (12.0, 12),
    ],
)
def test_bytes(text, size):
    assert units.parse_bytes("x", text) == size


@pytest.mark.parametrize(("text", "first"), [("80G", "80GB"), ("80 g", "80GB"), ("1.5M", "1.5MB")])
def test_a_bare_unit_is_refused_with_both_readings(text, first):
    with pytest.raises(KvroomError) as e:
        units.parse_bytes("x", text)
    assert first in e.value.fix
    assert f"{first[:-1]}iB" in e.value.fix


@pytest.mark.parametrize(
    ("text", "tokens"), [("8k", 8192), ("8K", 8192), ("1M", 2**20), ("0.5K", 512), (7, 7)]
)
def test_tokens(text, tokens):
    assert units.parse_tokens("x", text) == tokens


@pytest.mark.parametrize(
    "bad",
    ["", "x", "-1", "80QB", "1e9", "9" * 50, "8K8", -1, 1.5, math.nan, math.inf, True, None, [], {}]
    + [10**15 + 1, 10**400, "2PB", "NaN"],
    ids=lambda v: type(v).__name__,
)
def test_what_is_no_size(bad):
    with pytest.raises(KvroomError) as e:
        units.parse_bytes("x", bad)
    assert e.value.field == "x"


@pytest.mark.parametrize("bad", [0, -1, "0", "0.3", 10**12 + 1, "8GB", True, None, math.nan])
def test_what_is_no_count_of_tokens(bad):
    with pytest.raises(KvroomError):
        units.parse_tokens("x", bad)


@pytest.mark.parametrize(
    ("tokens", "said"), [(1, "1 token"), (2, "2 tokens"), (32768, "32K tokens"), (0, "0 tokens")]
)
def test_a_length_in_words(tokens, said):
    assert units.say_tokens(tokens) == said


@pytest.mark.parametrize(
    "bad", [True, "1", None, math.nan, math.inf, -0.1, 1.1, 10**400], ids=lambda v: str(v)[:9]
)
def test_what_is_no_ratio(bad):
    with pytest.raises(KvroomError):
        units.check_float("x", bad, low=0.0, high=1.0)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0 B"),
        (1023, "1,023 B"),
        (320 * 2**10, "320 KiB"),
        (10 * 2**30, "10 GiB"),
        (2**50, "1 PiB"),
        (141_107_412_992, "131.4 GiB"),
        (-(2**30), "-1 GiB"),
    ],
)
def test_memory_prints_in_binary_units(value, shown):
    assert units.show_gib(value) == shown


def test_rates_counts_and_tokens():
    assert units.show_rate(3.35e12) == "3.35 TB/s"
    assert units.show_count(70_553_706_496) == "70.55B"
    assert units.show_tokens(32768) == "32K"
    assert units.show_tokens(2**20) == "1M"
    assert units.show_tokens(1000) == "1,000"
    assert units.show_tokens(10_240_000) == "10,240,000"
    assert units.show_tokens(10**12) == "1,000,000,000,000"


def test_ceil_div():
    assert [units.ceil_div(n, 4) for n in (0, 1, 4, 5)] == [0, 1, 1, 2]


@pytest.mark.parametrize("limit", [1, 2, 7, 100])
def test_the_smallest_that_holds_is_found(limit):
    for least in range(1, limit + 1):
        assert units.smallest(lambda n, least=least: n >= least, limit) == least
    assert units.smallest(lambda n: n > limit, limit) is None
