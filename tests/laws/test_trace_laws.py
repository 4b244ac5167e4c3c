"""Laws of traces: any bytes are read or refused, and sessions keep their order whatever is simulated."""

import gzip
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvroom import api
from kvroom.errors import KvroomError
from kvroom.workloads.requests import Request, RequestGraph, SessionProgress
from kvroom.workloads.traces.opened import Held
from kvroom.workloads.traces.reader import Trace

TEXT = "Where is the cache? " * 5
MESSAGES = [{"role": "user", "content": TEXT}]
CALL = {"t": 0.0, "in": 130, "out": 5, "hash_ids": [1, 2], "api_time": 2.0, "think_time": 0.0}
SUB = {"t": 5.0, "duration_ms": 2000, "requests": [CALL, CALL | {"t": 1.5}]}
SAMPLES = [
    {"timestamp": 3, "input_length": 40, "output_length": 5, "hash_ids": [1, 2, 3], "session": 1},
    {"chat_id": 1, "parent_chat_id": -1, "timestamp": 1.5, "input_length": 20, "output_length": 2},
    {"arrival_time_ns": 5, "input_tok_ids": [1, 2], "output_tok_ids": [3]},
    {"id": "a", "block_size": 64, "requests": [CALL, SUB, CALL | {"t": 9.0}]},
    {"conversations": [{"from": "human", "value": TEXT}, {"from": "gpt", "value": "Here."}]},
    {"custom_id": "1", "body": {"messages": MESSAGES, "max_tokens": 4}},
    {"custom_id": "1", "response": {"status_code": 200, "body": {"usage": {"prompt_tokens": 5}}}},
    {"timestamp": "2026-05-01T10:00:00Z", "usage": {"prompt_tokens": 5, "completion_tokens": 1}},
    {"created": 7, "request": {"messages": MESSAGES}, "response": {"choices": [{"text": "Yes"}]}},
    {"prompt": TEXT, "output_tokens": 3},
    {"data": [{"session_id": "x", "payloads": [{"messages": MESSAGES, "max_tokens": 4}]}]},
    {
        "metadata": {"request_start_ns": 10**18, "x_correlation_id": "c"},
        "metrics": {"input_sequence_length": {"value": 5}, "output_sequence_length": {"value": 5}},
    },
    {"benchmarks": [{"requests": {"successful": [{"start_time": 1, "prompt_tokens": 2}]}}]},
]
TABLES = [
    "arrived_at,num_prefill_tokens,num_decode_tokens\n0,374,44\n1.5,396,109\n",
    "arrival_timestamp,prompt_size,token_size\n0,374,44\n",
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n",
    "Timestamp,Session ID,Request tokens,Response tokens\n5,a,472,18\n",
]
WHOLE = [json.dumps(SAMPLES[4:5] * 3), json.dumps(SAMPLES[3], indent=1), *TABLES]
VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers(-(2**70), 2**70) | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)


def read_or_refused(data, **options):
    """How many requests there are; None where the trace is refused, with a word."""
    try:
        requests = list(Trace(Held("trace", data), **options))
    except KvroomError as error:
        assert error.message
        assert error.fix
        return None
    for request in requests:
        assert request.input_tokens >= 1
        assert request.output_tokens >= 0
    return len(requests)


def inside(value, data):
    """``value`` with something else in one place, however deep."""
    if isinstance(value, dict) and value and data.draw(st.integers(0, 5)):
        key = data.draw(st.sampled_from(sorted(value)))
        return value | {key: inside(value[key], data)}
    if isinstance(value, list) and value and data.draw(st.integers(0, 5)):
        place = data.draw(st.integers(0, len(value) - 1))
        return [*value[:place], inside(value[place], data), *value[place + 1 :]]
    return data.draw(VALUES)


@settings(max_examples=600, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(SAMPLES), st.data())
def test_any_value_in_any_place_of_a_row(sample, data):
    text = json.dumps(sample) + "\n"
    changed = json.dumps(inside(sample, data))
    read_or_refused((text + changed).encode())
    read_or_refused((changed + "\n" + text).encode(), skip_bad_lines=True)


@settings(max_examples=300)
@given(
    st.sampled_from(WHOLE + [json.dumps(s) + "\n" for s in SAMPLES]),
    st.binary(max_size=8),
    st.data(),
)
def test_any_bytes_in_any_place_of_a_file(text, noise, data):
    whole = text.encode()
    place = data.draw(st.integers(0, len(whole)))
    cut = data.draw(st.integers(0, 8))
    for skip in (False, True):
        read_or_refused(whole[:place] + noise + whole[place + cut :], skip_bad_lines=skip)


@settings(max_examples=200)
@given(st.text(max_size=40), st.sampled_from(TABLES))
def test_any_columns(columns, table):
    read_or_refused(table.encode(), columns=columns)


@settings(max_examples=100)
@given(st.integers(0, 200), st.binary(max_size=6))
def test_any_packed_bytes(tmp_path_factory, cut, noise):
    path = tmp_path_factory.mktemp("packed") / "trace"
    packed = gzip.compress((json.dumps(SAMPLES[0]) + "\n").encode() * 20)
    path.write_bytes(packed[:cut] + noise + packed[cut + 2 :])
    try:
        list(Trace(path))
    except KvroomError as error:
        assert error.fix


GRAPHS = st.lists(st.sets(st.integers(0, 30), max_size=3), min_size=1, max_size=12).map(
    lambda rows: tuple(
        tuple(sorted({w % place for w in waits})) if place else ()
        for place, waits in enumerate(rows)
    )
)


@given(GRAPHS, st.randoms())
def test_everyone_of_a_session_comes_once_and_after_those_it_waits_for(after, dice):
    graph = RequestGraph(tuple(Request(0, 1, 1) for _ in after), after)
    progress = SessionProgress(graph)
    running, done = progress.roots(), []
    while running:
        place = running.pop(dice.randrange(len(running)))
        done.append(place)
        running += progress.answered(place)
    assert sorted(done) == list(range(len(after)))
    for place, waits in enumerate(after):
        assert all(done.index(w) < done.index(place) for w in waits)


QUESTION = {"model": "llama-3-8b", "gpu": "H100-SXM", "context_tokens": "8K"}


def agent(requests, path):
    path.write_text(json.dumps({"id": "a", "block_size": 64, "requests": requests}))
    return str(path)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 20), min_size=2, max_size=6), st.integers(0, 3))
def test_no_turn_starts_before_those_it_waits_for_ended(tmp_path_factory, thinks, subs):
    calls, now = [], 0.0
    for number, think in enumerate(thinks):
        now += think
        # A length of its own tells which row is whose.
        calls.append({"t": now, "in": 100 + number, "out": 20, "api_time": 1.0})
        now += 1.0
    inner = [{"t": 0.0, "in": 500, "out": 9, "api_time": 0.2}]
    agents = [
        {"t": 1.5, "duration_ms": 500, "requests": [inner[0] | {"in": 500 + n}]}
        for n in range(subs)
    ]
    thinks[1] += 1  # room for the sub-agents
    for call in calls[1:]:
        call["t"] += 1
    path = agent([calls[0], *agents, *calls[1:]], tmp_path_factory.mktemp("agents") / "a.json")
    (graph,) = Trace(path).sessions()
    rows = {r["input_tokens"]: r for r in api.simulate(**QUESTION, trace=path).rows()}
    assert len(rows) == len(graph.requests)
    outside = next(r["ttft_s"] - r["ttft_engine_s"] for r in rows.values())
    for request, waits in zip(graph.requests, graph.after, strict=True):
        row = rows[request.input_tokens]
        if waits:
            ends = [rows[graph.requests[w].input_tokens] for w in waits]
            ended = max(r["arrival_s"] + r["e2e_s"] - outside for r in ends)
            assert row["arrival_s"] == pytest.approx(ended + request.think_ps / 1e12, abs=1e-6)


def test_one_session_without_thinking_is_the_plain_closed_loop(tmp_path):
    calls = [{"t": 2.0 * i, "in": 1000, "out": 50, "api_time": 2.0} for i in range(8)]
    trace = agent(calls, tmp_path / "a.json")
    loop = {"arrivals": "closed:1", "input": "fixed:1000", "output": "fixed:50", "requests": 8}
    session = api.simulate(**QUESTION, trace=trace)
    plain = api.simulate(**QUESTION, workload=loop, warmup=0)
    columns = ("arrival_s", "ttft_engine_s", "tpot_s")
    for one, other in zip(session.rows(), plain.rows(), strict=True):
        assert [one[c] for c in columns] == [other[c] for c in columns]


def test_what_never_comes_is_told(tmp_path):
    calls = [
        {"t": 2.0 * i, "in": n, "out": 5, "api_time": 1.0} for i, n in enumerate((9, 99_999, 9))
    ]
    answer = api.simulate(**QUESTION, trace=agent(calls, tmp_path / "a.json"))
    assert answer.figures["requests"]["dropped"] == 1
    assert any("1 requests of sessions never come" in w for w in answer.figures["warnings"])
