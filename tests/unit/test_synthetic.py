"""Made-up workloads: what a SPEC says is what comes; what it cannot say is told."""

from hashlib import sha256
from itertools import pairwise
from statistics import mean, pstdev

import pytest

from kvroom.errors import KvroomError
from kvroom.scenario.scenario import Scenario
from kvroom.workloads.requests import PS_PER_S, TokenRuns
from kvroom.workloads.synthetic import of_workload, parse

BASE = "arrivals=poisson:2/s,input=100,output=10"


def made(more="", base=BASE):
    return list(parse(f"{base},{more}" if more else base))


def gaps_s(arrivals, n=20_000):
    requests = made(f"requests={n}", f"arrivals={arrivals},input=1,output=1")
    return [(b.arrival_ps - a.arrival_ps) / PS_PER_S for a, b in pairwise(requests)]


@pytest.mark.parametrize(
    ("arrivals", "cv"),
    [
        ("poisson:5/s", 1.0),
        ("gamma:300/min:cv=3", 3.0),
        ("gamma:5:cv=0.3", 0.3),
        ("uniform:5/s", 0.0),
    ],
)
def test_arrivals_have_their_rate_and_burstiness(arrivals, cv):
    gaps = gaps_s(arrivals)
    assert mean(gaps) == pytest.approx(0.2, rel=0.06)
    assert pstdev(gaps) / mean(gaps) == pytest.approx(cv, rel=0.06, abs=1e-6)


def test_bursts_come_together():
    gaps = gaps_s("burst:5/s:size=20")
    assert sum(gap == 0 for gap in gaps) == pytest.approx(len(gaps) * 19 / 20, abs=1)
    assert mean(gaps) == pytest.approx(0.2, rel=0.06)


def test_closed_loops_and_all_at_once_leave_the_clock_to_the_engine():
    closed = parse("arrivals=closed:8,input=1,output=1,turns=2,think=3s,requests=6")
    assert closed.arrivals.users == 8
    assert [[r.think_ps for r in s] for s in closed.sessions()] == [[0, 3 * PS_PER_S]] * 3
    assert {r.arrival_ps for r in made(base="arrivals=once,input=1,output=1")} == {0}


@pytest.mark.parametrize(
    ("text", "low", "high", "middle"),
    [
        ("fixed:7", 7, 7, 7),
        ("1K", 1024, 1024, 1024),
        ("uniform:10-30", 10, 30, 20),
        ("lognormal:mean=1000:sigma=0.8", 1, 10**9, 1000),
        ("lognormal:median=1000:sigma=0:max=500", 500, 500, 500),
        ("exponential:mean=200:min=2", 2, 10**9, 200),
        ("histogram:128=3:1K=1", 128, 1024, 352),
    ],
)
def test_lengths(text, low, high, middle):
    found = [r.input_tokens for r in made(f"requests=20000,input={text}", "arrivals=once,output=1")]
    assert low <= min(found) <= max(found) <= high
    assert mean(found) == pytest.approx(middle, rel=0.03)


def test_sharegpt_like_lengths_have_the_published_means():
    # 161.31 and 337.99 tokens: Kwon et al., SOSP 2023, section 6.1.
    found = made("requests=50000", "arrivals=once,input=sharegpt,output=sharegpt")
    assert mean(r.input_tokens for r in found) == pytest.approx(161.31, rel=0.02)
    assert mean(r.output_tokens for r in found) == pytest.approx(337.99, rel=0.02)


def test_a_shared_prefix_comes_before_the_input():
    found = made("prefix=shared:4x512,requests=200")
    assert {r.input_tokens for r in found} == {612}
    assert {r.prefix.prompt[0] for r in found} == {(512 * g, 512) for g in range(4)}
    own = [r.prefix.prompt[1][0] for r in found]
    assert own[0] == 4 * 512
    assert all(b == a + 110 for a, b in pairwise(own))


def test_turns_repeat_all_that_was_said():
    first, second, third = next(parse(f"{BASE},turns=3,think=15s,prefix=shared:64").sessions())
    assert [r.input_tokens for r in (first, second, third)] == [164, 274, 384]
    assert [r.arrival_ps for r in (first, second, third)] == [0, 15 * PS_PER_S, 30 * PS_PER_S]
    assert first.prefix == TokenRuns(((0, 64), (64, 100)), ((164, 10),))
    assert second.prefix == TokenRuns(((0, 64), (64, 210)), ((274, 10),))
    whole = first.prefix.block_keys(16, first.input_tokens + first.output_tokens)
    assert second.prefix.block_keys(16, 272)[: 174 // 16] == whole[: 174 // 16]
    assert first.session == third.session == 0


def test_agents_call_tools_between_calls():
    spec = parse(f"{BASE},turns=2,agent=3,tool=2s,result=50,think=9s")
    calls = next(spec.sessions())
    assert [r.think_ps // PS_PER_S for r in calls] == [0, 2, 2, 9, 2, 2]
    assert [r.input_tokens for r in calls] == [100, 160, 220, 330, 390, 450]


def test_requests_are_counted_and_come_by_arrival():
    found = made("turns=3,think=15s,requests=1000")
    assert len(found) == 1000
    assert all(a.arrival_ps <= b.arrival_ps for a, b in pairwise(found))


def test_one_seed_one_workload_on_every_platform():
    spec = (
        "arrivals=gamma:2/s:cv=0.7,input=lognormal:mean=900:sigma=1.1,output=exponential:mean=200,"
        "prefix=shared:3x64,turns=uniform:1-4,think=lognormal:mean=15s:sigma=1,requests=2000,seed=7"
    )
    text = "\n".join(
        f"{r.arrival_ps} {r.input_tokens} {r.output_tokens} {r.prefix.prompt} {r.think_ps}"
        for r in parse(spec)
    )
    assert sha256(text.encode()).hexdigest()[:16] == "4575c899f5f1b09d"
    assert list(parse(spec)) != list(parse(spec + "1"))


def test_a_change_to_one_thing_leaves_the_others_as_they_are():
    one, other = made("requests=50"), made("requests=50,prefix=shared:2x16")
    longer = made("requests=50", "arrivals=poisson:2/s,input=uniform:1-9,output=10")
    assert [r.arrival_ps for r in one] == [r.arrival_ps for r in other]
    assert [r.arrival_ps for r in one] == [r.arrival_ps for r in longer]


def test_the_same_as_an_object():
    given = {
        "arrivals": {"gamma": "2/s:cv=3"},
        "input": {"lognormal": {"mean": 1000, "sigma": 0.8}},
        "output": 200,
        "turns": 3,
        "requests": 9,
    }
    text = (
        "arrivals=gamma:2/s:cv=3,input=lognormal:mean=1000:sigma=0.8,output=200,turns=3,requests=9"
    )
    assert parse(given) == parse(text)
    question = {"model": "llama-3-70b", "gpu": "H100-SXM", "workload": given}
    scenario = Scenario.from_dict(question)
    assert of_workload(scenario.workload) == parse(text)
    assert Scenario.from_dict(scenario.to_dict()) == scenario == Scenario.from_link(scenario.link())


def test_a_scenario_s_plain_workload_is_one_too():
    plain = {"input_tokens": 1024, "output_tokens": 256, "shared_prefix_tokens": 512}
    question = {
        "model": "llama-3-70b",
        "gpu": "H100-SXM",
        "workload": plain | {"requests_per_s": 2},
    }
    workload = Scenario.from_dict(question).workload
    text = "arrivals=poisson:2/s,input=1024,output=256,prefix=shared:512,seed=5"
    assert of_workload(workload, seed=5) == parse(text)
    question["workload"] = plain | {"concurrency": 32}
    assert of_workload(Scenario.from_dict(question).workload).arrivals.users == 32
    question["workload"] = plain | {"static": True}
    assert of_workload(Scenario.from_dict(question).workload).arrivals.kind == "once"


@pytest.mark.parametrize(
    ("spec", "field", "fix"),
    [
        ("nonsense", "workload", "arrivals=poisson"),
        ("arrivals=poisson:2/s,output=3", "workload.input", "Write it like"),
        (f"{BASE},turn=3", "workload", "Did you mean turns"),
        (f"{BASE},input=3", "workload", "Write each key once."),
        ("arrivals=poisson,input=1,output=1", "workload.arrivals", "poisson:2/s"),
        ("arrivals=poison:2/s,input=1,output=1", "workload.arrivals", "Did you mean poisson"),
        ("arrivals=poisson:-2/s,input=1,output=1", "workload.arrivals", "1e-06/s to 1e+06/s"),
        ("arrivals=poisson:2/week,input=1,output=1", "workload.arrivals", "7200/h"),
        ("arrivals=gamma:2/s:cvv=3,input=1,output=1", "workload.arrivals", "Did you mean cv"),
        ("arrivals=once:3,input=1,output=1", "workload.arrivals", "once"),
        ("arrivals=closed:0,input=1,output=1", "workload.arrivals", "from 1 to"),
        (
            "arrivals=once,input=lognorml:mean=3,output=1",
            "workload.input",
            "Did you mean lognormal",
        ),
        ("arrivals=once,input=lognormal:sigma=3,output=1", "workload.input", "mean=1000"),
        ("arrivals=once,input=lognormal:mean=3:median=3,output=1", "workload.input", "one of them"),
        (
            "arrivals=once,input=lognormal:mean=3:sigma=nan,output=1",
            "workload.input sigma",
            "from 0",
        ),
        (
            "arrivals=once,input=exponential:mean=3:min=9:max=2,output=1",
            "workload.input",
            "mean=1000",
        ),
        ("arrivals=once,input=uniform:9-3,output=1", "workload.input", "uniform:100-2000"),
        ("arrivals=once,input=fixed,output=1", "workload.input", "fixed:200"),
        ("arrivals=once,input=histogram:5=0,output=1", "workload.input", "histogram:"),
        ("arrivals=once,input=histogram:5,output=1", "workload.input", "histogram:"),
        ("arrivals=once,input=0,output=1", "workload.input", "from 1 to"),
        ("arrivals=once,input=1,output=1,think=3x", "workload.think", "15s"),
        ("arrivals=once,input=1,output=1,think=-3s", "workload.think", "from 0"),
        ("arrivals=once,input=1,output=1,turns=sharegpt", "workload.turns", "Write a distribution"),
        ("arrivals=once,input=1,output=1,prefix=512", "workload.prefix", "shared:4x512"),
        ("arrivals=once,input=1,output=1,prefix=shared:0x3", "workload.prefix", "from 1 to"),
        ("arrivals=once,input=1,output=1,requests=1e99", "workload.requests", "from 1 to"),
        ("arrivals=once,input=1,output=1,seed=-1", "workload.seed", "0 or more"),
        (
            {"arrivals": "once", "input": {"a": 1, "b": 2}, "output": 1},
            "workload.input",
            "one kind",
        ),
        ({"arrivals": "once", "input": True, "output": 1}, "workload.input", "SPEC line"),
    ],
)
def test_what_is_wrong_is_told_with_a_fix(spec, field, fix):
    with pytest.raises(KvroomError) as caught:
        parse(spec)
    assert caught.value.field == field
    assert fix in str(caught.value)
