"""Laws of workloads: same seed same bytes; what is written reads back; any bytes are told or read."""

import math
from array import array

from hypothesis import example, given
from hypothesis import strategies as st

from kvroom.errors import KvroomError
from kvroom.scenario.workload import Workload
from kvroom.workloads import draws
from kvroom.workloads.requests import HashIds, Request, TokenIds, in_order
from kvroom.workloads.synthetic import parse
from kvroom.workloads.traces.reader import Trace
from kvroom.workloads.traces.writer import write

SESSIONS = st.none() | st.integers(0, 9) | st.text("abc", min_size=1)
ARRIVALS = st.integers(0, 10**15)


@st.composite
def hashed(draw):
    tokens = draw(st.integers(1, 100))
    ids = draw(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5))
    full = max(1, (len(ids) or 3) * 16 - draw(st.integers(0, 15)))
    prefix = HashIds(array("q", ids), 16) if ids else None
    arrival, session, priority = draw(ARRIVALS), draw(SESSIONS), draw(st.integers(-5, 5))
    return Request(arrival, full, tokens, prefix, session, priority)


@st.composite
def tokenised(draw):
    prompt = draw(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=20))
    answer = draw(st.lists(st.integers(0, 2**32 - 1), max_size=5))
    prefix = TokenIds(array("I", prompt), array("I", answer))
    return Request(draw(ARRIVALS), len(prompt), len(answer), prefix, draw(SESSIONS))


@given(st.lists(hashed(), min_size=1, max_size=9) | st.lists(tokenised(), min_size=1, max_size=9))
def test_a_written_trace_gives_itself_back(tmp_path_factory, requests):
    first = requests[0].arrival_ps
    shifted = [r._replace(arrival_ps=r.arrival_ps - first) for r in requests]
    path = tmp_path_factory.mktemp("traces") / "t.jsonl.gz"
    write(path, requests)
    assert list(Trace(path, hash_tokens=16)) == shifted


@given(st.binary(max_size=300) | st.text(max_size=300).map(str.encode), st.booleans())
@example(b"\x1f\x8b", True)
@example(b'{"timestamp":1,"input_length":1,"output_length":1}\n{"timestamp":1E9999}', True)
@example(b"TIMESTAMP,ContextTokens,GeneratedTokens\n0001-01-01 00:00:00+23:59,1,1", False)
@example(b"Timestamp,Request tokens,Response tokens\nsNaN,1,1", False)
@example(b"[" * 300, False)
def test_any_bytes_are_requests_or_a_told_error(tmp_path_factory, text, skip):
    path = tmp_path_factory.mktemp("traces") / "t"
    path.write_bytes(text)
    try:
        requests = list(Trace(path, skip_bad_lines=skip))
    except KvroomError as error:
        assert error.field.startswith("trace")
        assert error.fix
    else:
        assert all(r.input_tokens > 0 for r in requests)


@given(st.lists(st.integers(-(10**15), 10**15), min_size=1, max_size=40))
def test_in_order_sorts_and_keeps_every_request(arrivals):
    requests = [Request(t, 1, i) for i, t in enumerate(arrivals)]
    found = list(in_order(requests))
    least = min(arrivals)
    assert [r.arrival_ps + least for r in found] == sorted(arrivals)
    assert sorted(r.output_tokens for r in found) == list(range(len(arrivals)))
    assert list(in_order(found)) == found


WORDS = st.sampled_from(
    ["poisson:2/s", "closed:3", "once", "burst:1/min:size=2", "gamma:1/s:cv=2", "fixed:3", "5",
     "lognormal:mean=20:sigma=1", "uniform:2-9", "histogram:2=1:4=3", "shared:2x8", "none", "2s"]
)  # fmt: skip
KEYS = st.sampled_from((*Workload.SPEC_KEYS, "other"))
VALUES = WORDS | st.text(max_size=12) | st.integers() | st.floats() | st.none()


@given(st.dictionaries(KEYS, VALUES, max_size=8), st.text(max_size=40))
def test_any_spec_is_a_workload_or_a_told_error(given_keys, text):
    for spec in (given_keys, text, ",".join(f"{k}={v}" for k, v in given_keys.items())):
        try:
            workload = parse(spec)
        except KvroomError as error:
            assert error.field.startswith("workload")
            assert error.fix
        else:
            assert len(next(workload.sessions())) >= 1


@given(st.integers(0, 2**32), WORDS.filter(lambda w: w[0] in "pbg"), st.integers(1, 4))
def test_same_seed_same_requests_by_arrival(seed, arrivals, turns):
    spec = {
        "arrivals": arrivals,
        "input": "lognormal:mean=20:sigma=1",
        "output": "exponential:mean=9",
        "turns": turns,
        "think": "exponential:mean=3s",
        "requests": 40,
        "seed": seed,
    }
    found = list(parse(spec))
    assert found == list(parse(spec))
    assert len(found) == 40
    assert [r.arrival_ps for r in found] == sorted(r.arrival_ps for r in found)


@given(st.floats(1e-300, 1e300), st.floats(-700, 700))
def test_logarithm_and_exponential_are_good_to_the_last_digits(x, y):
    assert math.isclose(draws.log(x), math.log(x), rel_tol=1e-13, abs_tol=1e-15)
    assert math.isclose(draws.exp(y), math.exp(y), rel_tol=1e-12)
