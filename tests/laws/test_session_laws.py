"""Laws of sessions: nobody comes before what it waits for is answered, nothing is lost."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from kvroom import api
from kvroom.simulator.reuse import reuse
from kvroom.workloads.requests import Request
from kvroom.workloads.sessions import SessionPool, by_arrival, from_moment, grouped, held_sessions
from kvroom.workloads.synthetic import parse
from kvroom.workloads.traces.reader import Trace

S = 10**12
MODEL, CARD = "llama-3-8b", "H100-SXM"


@st.composite
def logs(draw):
    """Rows of a log: when they came, how long they took (0: not recorded), of which session."""
    rows = draw(
        st.lists(
            st.tuples(
                st.integers(0, 60), st.integers(0, 20), st.integers(0, 3),
                st.integers(1, 3000), st.integers(0, 60),
            ),
            min_size=1,
            max_size=24,
        )
    )  # fmt: skip
    return [
        Request(at * S, prompt, answer, session=f"s{who}", took_ps=took * S)
        for at, took, who, prompt, answer in sorted(rows)
    ]


def written(requests, path):
    rows = [
        {"t": r.arrival_ps / S, "n": r.took_ps / S, "p": r.input_tokens, "g": r.output_tokens,
         "s": r.session}
        for r in requests
    ]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Trace(path, columns="arrival=t,took=n,input=p,output=g,session=s")


def played(source, **more):
    ended = []

    def on_end(request, end_ps):
        ended.append((request, end_ps))

    found = api.simulate(MODEL, CARD, trace=source, on_end=on_end, keep_requests=False, **more)
    return found, ended


@settings(max_examples=25)
@given(logs())
def test_no_turn_starts_before_what_it_waits_for_is_answered(tmp_path_factory, requests):
    trace = written(requests, tmp_path_factory.mktemp("logs") / "log.jsonl")
    graphs = {graph.requests[0].session: graph for graph in grouped(trace).graphs}
    found, ended = played(trace)
    # A session's tokens are conserved: each of its requests is served once, as long as it was.
    for name, graph in graphs.items():
        of_it = [
            (r.num_prompt_tokens, r.output_tokens or 1) for r, _ in ended if r.session_id == name
        ]
        told = [(r.input_tokens, r.output_tokens or 1) for r in graph.requests]
        assert sorted(of_it) == sorted((p, a) for p, a in told)
    assert found.figures["requests"]["completed"] == len(requests)
    # In the order of arrival the k-th of a session is its k-th in the log, and waits for those before it.
    for name, graph in graphs.items():
        served = [(r, end) for r, end in ended if r.session_id == name]
        by_length = {}
        for r, end in sorted(served, key=lambda pair: pair[0].index):
            by_length.setdefault((r.num_prompt_tokens, r.output_tokens or 1), []).append((r, end))
        chain = all(
            after == ((place - 1,) if place else ()) for place, after in enumerate(graph.after)
        )
        if chain and all(len(group) == 1 for group in by_length.values()):
            order = [by_length[r.input_tokens, r.output_tokens or 1][0] for r in graph.requests]
            for (_, end), (after, _), row in zip(
                order, order[1:], graph.requests[1:], strict=False
            ):
                assert after.arrival >= end + row.think_ps


@settings(max_examples=20)
@given(
    st.integers(1, 4), st.floats(0, 2), st.integers(1, 5), st.integers(0, 99),
    st.sampled_from(["together", "spread"]),
)  # fmt: skip
def test_made_up_agents_wait_too_and_none_is_lost(agents, subagents, turns, seed, start):
    spec = {
        "agents": agents, "turns": turns, "agent": 3, "subagents": subagents, "input": 200,
        "result": 100, "output": 20, "first": 500, "tool": "1s", "think": "5s", "prefix": "shared:2x64",
        "compact": "4K:0.2", "requests": 30 * agents, "seed": seed, "start": start,
    }  # fmt: skip
    source = parse(spec)
    sessions = list(source.sessions())
    assert sum(map(len, sessions)) == 30 * agents
    graphs = [s for s in sessions if not isinstance(s, tuple)]
    for graph in graphs:
        for row, waits in zip(graph.requests, graph.after, strict=True):
            assert all(graph.requests[w].arrival_ps + row.think_ps <= row.arrival_ps for w in waits)
    assert max(r.input_tokens for s in sessions for r in s) <= 4096
    found, ended = played(source)
    assert found.figures["requests"]["completed"] == 30 * agents
    assert found.figures["requests"]["waiting"] == 0
    # So many at a time: whoever runs is of one of so many sessions.
    spans = {}
    for request, end in ended:
        low, high = spans.get(request.session_id, (request.arrival, end))
        spans[request.session_id] = min(low, request.arrival), max(high, end)
    moments = sorted({low for low, _ in spans.values()})
    for moment in moments:
        assert sum(low <= moment < high for low, high in spans.values()) <= agents


@settings(max_examples=15)
@given(st.integers(1, 6), st.integers(1, 800), st.integers(1, 40), st.integers(0, 9))
def test_one_session_that_never_thinks_is_the_plain_closed_loop(turns, prompt, answer, seed):
    """A log of one session without pauses, a chat whose user never thinks, and users of one request each who
    come one after the other take the same time, without a cache."""
    keys = {"engine_args": {"enable_prefix_caching": False}, "engine_version": "0.33.0"}
    loop = {
        "arrivals": "closed:1",
        "input": prompt,
        "output": answer,
        "requests": turns,
        "seed": seed,
    }
    plain = api.simulate(MODEL, CARD, workload=loop, warmup=0, **keys)
    rows = [Request(0, prompt, answer, session="s", took_ps=0) for _ in range(turns)]
    graphs = grouped(rows).graphs
    pool = SessionPool(held_sessions(graphs), 1, turns, midway=False)
    alone = api.simulate(MODEL, CARD, trace=pool, warmup=0, **keys)
    for name in ("ttft_engine_s", "tpot_s", "itl_s", "duration_s", "requests"):
        assert alone.figures[name] == plain.figures[name]


@settings(max_examples=20)
@given(st.integers(1, 5), st.integers(0, 50), st.integers(1, 400), st.integers(1, 400))
def test_more_memory_never_lowers_hits_of_a_stack_policy(agents, seed, small, more):
    source = parse(
        {"agents": agents, "turns": 3, "agent": 4, "input": 300, "result": 200, "output": 40,
         "first": 900, "compact": "3K:0.3", "subagents": 0.5, "requests": 40, "seed": seed}
    )  # fmt: skip
    sizes = sorted({small, small + more})
    for policy in ("lru", "lru-tail"):
        hits = reuse(source, 16, [policy], sizes).hit_ratio[policy]
        ratios = [hits[str(size)] for size in sizes]
        assert ratios == sorted(ratios)


@settings(max_examples=25)
@given(logs(), st.integers(1, 4), st.integers(1, 60), st.integers(0, 99))
def test_a_pool_sends_whole_sessions_in_any_order(requests, users, count, seed):
    graphs = held_sessions(grouped(requests).graphs)
    pool = SessionPool(graphs, users, count, seed=seed)
    sent = list(pool.sessions())
    assert sum(len(graph.requests) for graph in sent) == count
    assert [list(g.requests) for g in sent] == [
        list(g.requests) for g in SessionPool(graphs, users, count, seed=seed).sessions()
    ]
    for graph in sent:
        for place, waits in enumerate(graph.after):
            assert all(w != place for w in waits)
    assert len(list(pool)) == count
    for graph in graphs:
        assert len(from_moment(graph, 0.0).requests) == len(graph.requests)
        assert len(from_moment(graph, 1.0).requests) >= 1


@settings(max_examples=40)
@given(st.lists(logs(), min_size=1, max_size=5))
def test_sessions_at_their_recorded_times_come_in_order(rows):
    graphs = [graph for log in rows for graph in grouped(log).graphs]
    sent = list(by_arrival(graphs))
    times = [r.arrival_ps for r in sent]
    assert times == sorted(times)
    assert times[0] == 0
    every = sorted((r.arrival_ps, r.input_tokens) for graph in graphs for r in graph.requests)
    assert (
        sorted((at + every[0][0], r.input_tokens) for at, r in zip(times, sent, strict=True))
        == every
    )
