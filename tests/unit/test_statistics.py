"""What a workload is like, counted by hand."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvroom.errors import KvroomError
from kvroom.workloads.requests import PS_PER_S, Request, TokenRuns
from kvroom.workloads.statistics import (
    describe,
    fragmentation,
    nearest_rank,
    reservation,
    spread,
    spread_of,
)

REQUESTS = [
    Request(0, 10, 6),
    Request(PS_PER_S, 20, 0, TokenRuns(((0, 20),)), session=1),
    Request(4 * PS_PER_S, 30, 34, session=1),
]


def test_describe():
    told = describe(REQUESTS, (16,))
    assert (told["requests"], told["sessions"], told["duration_s"]) == (3, 1, 4.0)
    assert told["requests_per_s"] == 0.5
    assert told["interarrival_cv"] == pytest.approx(0.5)  # gaps of 1 and 3 s
    assert told["input_tokens"] == {
        "mean": 20.0, "p50": 20, "p90": 30, "p99": 30, "min": 10, "max": 30, "sum": 60,
    }  # fmt: skip
    assert told["total_tokens"]["sum"] == 100
    assert told["prefix"] == {"unknown": 2, "made up": 1}
    assert told["fragmentation"] == {"16": pytest.approx(12 / 112)}
    assert told["reservation"] == {
        "cap_tokens": 64, "requests": 3, "useful_ratio": pytest.approx(100 / 192),
    }  # fmt: skip


def test_one_request_has_no_rate():
    told = describe([Request(5, 1, 1)])
    assert told["requests_per_s"] is told["interarrival_cv"] is told["sessions"] is None
    with pytest.raises(KvroomError, match="too few"):
        describe([])


def test_nearest_rank():
    assert [nearest_rank([1, 2, 3, 4], p) for p in (1, 25, 26, 50, 99, 100)] == [1, 1, 2, 2, 4, 4]
    assert spread([]) == {}


def test_paging_wastes_less_than_reserving_the_longest():
    # ShareGPT's means and a cap of 2,048 (Kwon et al., SOSP 2023, figure 2): a quarter of what is
    # reserved is used, where blocks of 16 tokens waste a hundredth.
    lengths = {161 + 338: 1}
    assert reservation(lengths, 2048)["useful_ratio"] == pytest.approx(0.244, abs=0.001)
    assert fragmentation(lengths, [16])["16"] == pytest.approx(13 / 512)
    assert fragmentation({}, [16]) == {"16": 0.0}
    assert reservation({3000: 2}, 2048) == {"cap_tokens": 2048, "requests": 0, "useful_ratio": 0.0}


@given(st.lists(st.integers(0, 40), min_size=1, max_size=200))
def test_counted_values_are_spread_as_the_values_are(values):
    assert spread_of(Counter(values)) == spread(values)


def test_requests_out_of_order_are_described_as_in_order():
    rows = [Request(at * 10**12, 100 + at, 5, None) for at in (3, 1, 2, 9, 4)]
    assert describe(rows) == describe(sorted(rows, key=lambda row: row.arrival_ps))
