"""A day's curve: its mean, its regions, and arrivals that follow it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvroom.errors import KvroomError
from kvroom.workloads.daily import DAY_S, PARTS, DailyCurve, Region, parse_curve, raised_cosine
from kvroom.workloads.draws import Draws
from kvroom.workloads.synthetic import parse

PS_PER_HOUR = 3600 * 10**12


def day(more: str = "", requests: int = 40_000):
    return parse(f"arrivals=day:{requests}/day{more},input=10,output=2")


def by_hour(source) -> list[int]:
    found = [0] * 24
    for request in source:
        found[request.arrival_ps // PS_PER_HOUR % 24] += 1
    return found


def test_a_day_is_whole_unless_told():
    made = day(":peak=1.6:at=15")
    assert made.requests == 40_000
    counts = by_hour(made)
    for hour, count in enumerate(
        counts[1:-1], 1
    ):  # the last ones come a little before or after midnight
        expected = (
            40_000 / 24 * (made.arrivals.curve.at(hour) + made.arrivals.curve.at(hour + 1)) / 2
        )
        assert abs(count - expected) < 5 * expected**0.5
    assert made.arrivals.busiest_per_s == pytest.approx(1.6 * 40_000 / DAY_S)
    assert parse("arrivals=day:1e9/day,input=10,output=2").requests == 10**9
    assert parse("arrivals=day:1e9/day,input=10,output=2,requests=5").requests == 5


def test_the_next_day_is_like_the_first():
    source = parse("arrivals=day:20000/day:peak=2,input=10,output=2,requests=40000")
    times = [request.arrival_ps for request in source]
    assert times == sorted(times)
    first = sum(time < DAY_S * 10**12 for time in times)
    assert abs(first - 20_000) < 700


def test_regions_are_each_ahead_of_the_clock():
    """A region eight hours ahead has at 7 o'clock what one at the clock has at 15."""
    here = parse_curve("day", {"peak": "1.8", "at": "15"})
    ahead = parse_curve("day", {"peak": "1.8", "at": "15", "regions": "1@8"})
    assert max(range(PARTS), key=here.rates.__getitem__) == 60
    assert max(range(PARTS), key=ahead.rates.__getitem__) == 28
    both = parse_curve("day", {"peak": "1.8", "at": "15", "regions": "0.5@0+0.5@12"})
    assert both.regions == (Region(0.5, 0.0), Region(0.5, 12.0))
    assert max(both.rates) - min(both.rates) < 1e-9  # opposite days even each other out


def test_ones_own_weights():
    text = "+".join(["0"] * 12 + ["3"] * 12)
    counts = by_hour(day(f":curve={text}", requests=12_000))
    assert sum(counts[:11]) == 0
    assert sum(counts[12:23]) > 0.9 * sum(counts)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (":peak=3", "outside 1 to 2"),
        (":at=25", "outside 0 to 24"),
        (":curve=1+2", "has 2 weights and no 24"),
        (f":curve={'+'.join(['0'] * 24)}", "has no request in all the day"),
        (f":peak=1.2:curve={'+'.join(['1'] * 24)}", "are two curves|and curve"),
        (":regions=0.5", "is no share@hours"),
        (":regions=0.5@40", "outside -12 to 14"),
        (":regions=0@1", "outside"),
        (":regions=0.5@-6+0.3@1", "add up to 0.8"),
        (":regions=0.5@1+0.5@1", r"names the region at \+1 hours twice"),
        (":regions=50@-6+50@1", "add up to 100"),
        (":hours=3", "is no known key"),
    ],
)
def test_what_is_wrong_with_a_day_is_told(text, message):
    with pytest.raises(KvroomError, match=message):
        day(text)


@pytest.mark.parametrize("text", ["day:2", "day:1e6:peak=2"])
def test_a_day_says_in_which_time_so_many_come(text):
    with pytest.raises(KvroomError, match="does not say how many come in which time") as told:
        parse(f"arrivals={text},input=10,output=2")
    assert "/day" in told.value.fix


@pytest.mark.parametrize("text", ["day:-3/day", "day:0/day", "day:1e12/day"])
def test_a_rate_that_is_none_is_told_in_its_own_unit(text):
    with pytest.raises(KvroomError, match=r"is outside 0\.0864/day to 8\.64e\+10/day") as told:
        parse(f"arrivals={text},input=10,output=2")
    assert told.value.value == text.removeprefix("day:")


@given(
    st.floats(1.0, 2.0),
    st.floats(0.0, 24.0),
    st.lists(st.tuples(st.floats(0.01, 5.0), st.floats(-12.0, 14.0)), min_size=1, max_size=4),
)
def test_the_mean_of_a_day_is_what_was_asked(peak, at, regions):
    total = sum(share for share, _ in regions)
    curve = DailyCurve(
        raised_cosine(peak, at), tuple(Region(share / total, ahead) for share, ahead in regions)
    )
    rates = curve.rates
    assert min(rates) >= -1e-12
    mean = sum((a + b) / 2 for a, b in pairwise(rates)) / PARTS
    # Between full hours a region off the quarters is sampled, not summed.
    assert mean == pytest.approx(1.0, abs=0.02)
    assert curve.busiest <= peak + 1e-9


@given(st.integers(0, 50), st.floats(1.0, 2.0))
def test_arrivals_come_in_order(seed, peak):
    curve = DailyCurve(raised_cosine(peak, 15.0), (Region(1.0, 5.5),))
    times = curve.times_ps(0.02, Draws(seed, "arrivals"))
    first = [next(times) for _ in range(300)]
    assert first == sorted(first)
