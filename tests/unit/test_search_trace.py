"""A search whose load is a trace: it plays what ``simulate`` and ``agents`` play, and gives their figures."""

import json
import pickle

import pytest
from click.testing import CliRunner

from kvroom import api
from kvroom.errors import KvroomError
from kvroom.optimize.search.played import likeness, played_trace
from kvroom.ui.cli.main import main
from kvroom.workloads.draws import Draws
from kvroom.workloads.requests import HashIds, Request
from kvroom.workloads.sessions import grouped
from kvroom.workloads.synthetic import parse
from kvroom.workloads.traces.reader import Trace
from kvroom.workloads.traces.sample import held_trace

KEYS = {"context_tokens": "8K", "engine_version": "0.33.0"}
SPACE = {"gpus": ["L40S", "H100-SXM"], "counts": [1], "kv_dtypes": ["auto"], "weight_dtypes": ["own"],
         "tiers": ["none"]}  # fmt: skip
SLO = "ttft_p95=2s,tpot_p95=60ms"


def log(path, sessions=12, calls=8, gap=40.0):
    """A gateway's log: chats of growing prompts, with how long each answer took."""
    draws = Draws(7, "log")
    rows = []
    for number in range(sessions):
        at, prompt = number * gap, 800 + int(draws.uniform() * 1000)
        for _ in range(calls):
            took = 1 + draws.uniform()
            out = 20 + int(draws.uniform() * 60)
            rows.append((at, took, prompt, out, f"s{number}"))
            at += took + 5 + 10 * draws.uniform()
            prompt += out + int(draws.uniform() * 500)
    keys = ("t", "n", "p", "g", "s")
    path.write_text(
        "".join(json.dumps(dict(zip(keys, r, strict=True))) + "\n" for r in sorted(rows))
    )
    return {"columns": "arrival=t,took=n,input=p,output=g,session=s"}


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "log.jsonl"
    return {"trace": path, **log(path)}


def answered(trace, **more):
    return api.search("llama-3.1-8b", slo=SLO, space=SPACE, simulate=2, **trace, **KEYS, **more)


def again(answer, trace, **more):
    keys = answer.scenario.differences()
    keys = {key: value for key, value in keys.items() if key not in ("workload", "model", "gpu")}
    scenario = answer.scenario
    return api.simulate(scenario.model, scenario.gpu, slo=SLO, **trace, **keys, **more)


@pytest.mark.parametrize(
    "how", [{}, {"sessions": 6}, {"sessions": 3, "seed": 4}, {"recorded_times": True}]
)
def test_what_is_found_is_what_simulate_says(trace, how):
    found = answered(trace, **how)
    assert found.answers
    for answer in found.answers:
        told = again(answer, trace, **how).figures
        for key in ("ttft_s", "tpot_s"):
            assert answer.trial[key] == told[key]["mean"]
        for name, value in answer.trial["slo"].items():
            assert value == told["slo"][name]["value_s"]
        assert answer.trial["requests"] == told["requests"]["completed"]
    objective = found.to_dict()["objective"]
    assert objective["trace"]["sessions_at_a_time"] == how.get("sessions")
    assert objective["trace"]["recorded_times"] == ("recorded_times" in how)
    if "sessions" in how:
        assert any("sessions at a time" in note for note in objective["trace"]["notes"])


def test_agents_says_the_same_of_so_many_sessions(trace):
    found = answered(trace, sessions=5)
    best = found.answers[0]
    keys = {
        k: v
        for k, v in best.scenario.differences().items()
        if k not in ("workload", "model", "gpu")
    }
    held = api.agents(
        trace["trace"], best.scenario.model, best.scenario.gpu, slo=SLO, sessions=5, seeds=1, only=(),
        most=5, columns=trace["columns"], **keys,
    )  # fmt: skip
    trial = held.base.held[0].at(5)
    assert trial.met
    assert trial.ttft_p95_s == best.trial["slo"]["ttft_p95"]
    assert trial.tpot_p95_s == best.trial["slo"]["tpot_p95"]
    alone = again(best, trace, sessions=5).figures
    assert trial.hit_ratio == alone["prefix_hit_ratio"]


def test_made_up_agents_are_the_same_everywhere():
    spec = (
        "agents=3,prefix=shared:512,turns=3,agent=4,input=200,result=100,output=40,first=900,think=5s,"
        "tool=1s,compact=6K:0.3"
    )
    found = api.search(
        "llama-3.1-8b", slo=SLO, space=SPACE | {"gpus": ["L40S"]}, simulate=1, workload=parse_keys(spec),
        **KEYS,
    )  # fmt: skip
    trial = found.answers[0].trial
    simulated = api.simulate(
        "llama-3.1-8b", "L40S", workload=parse_keys(spec), slo=SLO, **KEYS
    ).figures
    held = api.agents(spec, "llama-3.1-8b", "L40S", slo=SLO, seeds=1, only=(), most=3, **KEYS)
    own = held.base.held[0].at(3)
    assert trial["slo"]["ttft_p95"] == simulated["ttft_s"]["p95"] == own.ttft_p95_s
    assert trial["slo"]["tpot_p95"] == simulated["tpot_s"]["p95"] == own.tpot_p95_s
    assert simulated["prefix_hit_ratio"] == own.hit_ratio
    assert simulated["requests"]["completed"] == own.requests == 400


def parse_keys(spec):
    return dict(part.split("=", 1) for part in spec.split(","))


@pytest.mark.slow
def test_processes_and_this_one_answer_alike(trace):
    one, two = (answered(trace, sessions=4, jobs=jobs).to_dict() for jobs in (1, 2))
    assert json.dumps(one) == json.dumps(two)


def test_a_long_trace_is_played_by_whole_sessions():
    rows = [
        Request(i * 10**12, 100 + i % 7, 5, session=f"s{i // 10}", took_ps=10**11)
        for i in range(1000)
    ]
    held = held_trace(rows, most=95, seed=3)
    names = [r.session for r in held.rows]
    assert len(names) == 90
    assert len(set(names)) == 9
    assert [r.arrival_ps for r in held.rows] == sorted(r.arrival_ps for r in held.rows)
    assert "90 of the trace's 1,000 requests are played: 9 of 100 sessions" in held.notes[0]
    assert held_trace(rows, most=95, seed=3) == held
    assert held_trace(rows, most=95, seed=4).rows != held.rows
    assert held_trace(rows).rows == tuple(rows)
    assert not held_trace(rows).notes


def test_the_likeness_has_the_lengths_of_the_trace(trace):
    rows = list(Trace(trace["trace"], columns=trace["columns"]))
    graphs = grouped(rows).graphs
    made = parse(likeness(graphs) | {"arrivals": "closed:5", "requests": 4000})
    drawn = list(made)
    for name in ("input_tokens", "output_tokens"):
        mean = sum(getattr(r, name) for r in rows) / len(rows)
        assert sum(getattr(r, name) for r in drawn) / len(drawn) == pytest.approx(mean, rel=0.1)
    assert max(r.input_tokens for r in drawn) <= max(r.input_tokens for r in rows)


def test_one_after_the_other_shares_what_came_before():
    """Prompts without sessions that begin alike: the closed form takes it for a prefix."""
    rows = [
        Request(i * 10**12, 128, 5, HashIds([1, 2, 3, 1000 + i, 2000 + i, 3000 + i, 4000 + i, 5000 + i], 16))
        for i in range(200)
    ]  # fmt: skip
    found = played_trace(
        rows, name="", sessions=None, recorded_times=False, seed=0, limit_tokens=None
    )
    assert found.summary["reuses"]
    assert found.load["prefix"] == "shared:47"
    assert found.summary["requests_per_s"] == pytest.approx(1.0)
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--sessions", "4"], "is of traces only"),
        (["--recorded-times"], "is of traces only"),
        (["--trace", "nosuch.jsonl"], "is not a file"),
        (["--trace", "LOG", "--sessions", "4", "--recorded-times"], "two ways to play"),
        (["--trace", "LOG", "--users", "4"], "two sources of requests"),
        (["--trace", "LOG", "--workload", "agents=4"], "two sources of requests"),
        (["--trace", "LOG", "--sessions", "0"], "--sessions"),
        (["--trace", "ONCE"], "does not say when requests came"),
    ],
)
def test_what_cannot_be_played(tmp_path, words, why):
    path, once = tmp_path / "log.jsonl", tmp_path / "once.jsonl"
    columns = log(path)["columns"]
    once.write_text('{"t": 0, "n": 0, "p": 9, "g": 9, "s": "a"}\n' * 2)
    words = [{"LOG": str(path), "ONCE": str(once)}.get(word, word) for word in words]
    ran = CliRunner().invoke(
        main, ["search", "llama-3.1-8b", "--gpus", "L4", "--columns", columns, *words]
    )
    assert ran.exit_code == 2
    assert why in ran.output


def test_simulate_says_so_too(trace):
    with pytest.raises(KvroomError, match="two ways to play"):
        api.simulate("llama-3.1-8b", "L40S", sessions=2, recorded_times=True, **trace)
