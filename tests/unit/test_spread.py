"""A simulation on many workers is the one of a single process, to the last digit."""

from __future__ import annotations

import json
import random

import pytest

from kvroom import api
from kvroom.clusters import workers_of
from kvroom.distributed.simulation import spread_simulation
from kvroom.errors import KvroomError
from kvroom.planner.plan import work
from kvroom.planner.simulate import parse_slo
from kvroom.planner.simulation import simulation
from kvroom.scenario.scenario import Scenario
from kvroom.simulator import metrics
from kvroom.simulator.part import Part
from kvroom.workloads.synthetic import of_workload
from kvroom.workloads.traces.reader import Trace

OPEN = {
    "arrivals": "poisson:20/s",
    "input": "lognormal:mean=300:sigma=0.9",
    "output": "exponential:mean=60",
    "requests": 600,
}
CHATS = OPEN | {"turns": 3, "think": "2s", "prefix": "shared:4x512"}
SLO = parse_slo("ttft_p95=1s,tpot_p95=60ms")


def both(requests=None, *, workers=3, seeds=1, **keys):
    """The figures at home and of so many workers, as JSON, and what was said of how it was done."""
    question = Scenario.from_dict({"model": "llama-3-8b", "gpu": "L4", **keys})
    made = work(question)
    source = requests if requests is not None else of_workload(question.workload)
    told = []
    home = simulation(made, source, slo=SLO, seeds=seeds, keep_requests=False)
    away = spread_simulation(
        made,
        source,
        slo=SLO,
        seeds=seeds,
        pool=None,
        workers=workers,
        progress=lambda *done: told.append(done),
    )
    return json.dumps(home.figures), json.dumps(away.figures), told[-1]


@pytest.mark.parametrize("workers", [2, 5, 9])
def test_replicas_that_share_nothing_are_cut_into_parts(workers):
    home, away, (stage, done, total) = both(workers=workers, replicas=7, workload=OPEN)
    assert away == home
    assert (stage, done, total) == ("parts of the replicas", min(workers, 7), min(workers, 7))


@pytest.mark.parametrize("workload", [OPEN, CHATS])
@pytest.mark.parametrize("routing", ["round-robin", "session", "prefix:cells=3"])
def test_every_way_of_sharing_gives_the_same_bytes(routing, workload):
    home, away, (_, _, total) = both(replicas=5, routing=routing, workload=workload)
    assert away == home
    assert total == 3


def test_seeds_are_shared_out_whole():
    home, away, told = both(replicas=3, workload=OPEN, seeds=4)
    assert away == home
    assert told == ("seeds", 4, 4)


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"routing": "least-loaded"}, "its router looks at every replica"),
        ({"workload": OPEN | {"arrivals": "closed:40"}}, "users of a closed loop"),
        ({"workload": CHATS, "speculation": "ngram:3:acceptance=0.6"}, "drafts are drawn"),
        ({"fleet": {"failures": {"at": [{"s": 5, "replica": 1}]}}}, "come or go"),
    ],
)
def test_replicas_that_see_each_other_stay_in_one_process(keys, why):
    home, away, (stage, _, total) = both(**{"replicas": 3, "workload": OPEN, **keys})
    assert away == home
    assert total == 1
    assert why in stage


def sessions(path, *, named=True):
    draws = random.Random(7)
    rows = []
    for number in range(400):
        row = {
            "timestamp": 40 * number + draws.randrange(30),
            "input_length": draws.randrange(20, 900),
            "output_length": draws.randrange(1, 60),
        }
        if named or number % 50:
            row["session"] = draws.randrange(60)
        rows.append(json.dumps(row))
    path.write_text("\n".join(rows))
    return Trace(path)


def test_linked_sessions_of_a_trace_go_where_they_are_kept(tmp_path):
    trace = sessions(tmp_path / "trace.jsonl")
    home, away, (_, _, total) = both(trace, replicas=5, routing="session")
    assert away == home
    assert total == 3
    home, away, (stage, _, total) = both(trace, replicas=5)
    assert away == home
    assert total == 1
    assert "session routing does not" in stage


def test_a_request_of_no_session_among_linked_ones_is_told(tmp_path):
    trace = sessions(tmp_path / "trace.jsonl", named=False)
    with pytest.raises(KvroomError, match="is a request of no session"):
        both(trace, replicas=5, routing="session")


def test_what_was_read_is_told_once(tmp_path):
    path = tmp_path / "trace.csv"
    lines = ["TIMESTAMP,ContextTokens,GeneratedTokens"]
    lines += [f"2023-11-16 18:17:{n:02d}.0000000,{100 + n},{n % 7}" for n in range(50)]
    path.write_text("\n".join([*lines[:20], "2023-11-16 18:17:03.0,x,3", *lines[20:]]))
    home, away, _ = both(Trace(path, skip_bad_lines=True), replicas=4)
    assert away == home
    assert "1 bad line skipped" in home


def test_a_journal_is_gone_on_from(tmp_path, monkeypatch):
    question = Scenario.from_dict(
        {"model": "llama-3-8b", "gpu": "L4", "replicas": 4, "workload": OPEN}
    )
    made, source = work(question), of_workload(question.workload)
    path = tmp_path / "journal"

    class EndedError(Exception):
        pass

    def progress(stage, done, total):
        if done == 2:
            raise EndedError

    with pytest.raises(EndedError):
        spread_simulation(made, source, pool=None, workers=4, journal=str(path), progress=progress)
    lines = path.read_bytes()
    assert len(lines.splitlines()) == 4  # its head, into how many parts, two of these
    path.write_bytes(lines[:-20])  # a kill cuts a line off
    again = spread_simulation(made, source, pool=None, workers=2, journal=str(path))
    home = simulation(made, source, keep_requests=False)
    assert json.dumps(again.figures) == json.dumps(home.figures)
    units = [json.loads(line).get("unit") for line in path.read_bytes().splitlines()[1:]]
    assert len(units) == len(set(units)) == 5
    with pytest.raises(KvroomError, match="belongs to another question"):
        spread_simulation(made, source.at_seed(9), pool=None, workers=4, journal=str(path))


def test_cells_have_a_router_each():
    """The splitter's own error: cells of least-loaded routers know less than one router over all."""
    asked = {"model": "llama-3-8b", "gpu": "L4", "replicas": 6, "workload": OPEN}
    for routing in ("least-loaded:cells=2", {"policy": "least-loaded", "cells": 2}):
        found = api.simulate(Scenario.from_dict({**asked, "routing": routing}))
        assert found.figures["requests"]["completed"] == 600
        assert sum(row["requests"] for row in found.figures["fleet"]["replicas"]) == 600
        assert len({row["requests"] for row in found.figures["fleet"]["replicas"]}) > 1
    one = Scenario.from_dict({**asked, "routing": "least-loaded:cells=1"})
    assert one.routing.to_dict() == "least-loaded"
    for wrong, words in (
        ({"routing": "least-loaded:cells=7"}, "are more than the 6 replicas"),
        ({"routing": "prefix:cells=2", "workload": OPEN | {"arrivals": "closed:8"}}, "closed loop"),
    ):
        with pytest.raises(KvroomError, match=words):
            api.simulate(Scenario.from_dict({**asked, **wrong}))


def test_parts_hold_every_replica_and_every_request_once():
    for replicas in (1, 4, 7):
        for cells in range(1, replicas + 1):
            for sticky in (False, True):
                parts = [Part(cell, cells, replicas, sticky) for cell in range(cells)]
                assert sorted(p for part in parts for p in part.places) == list(range(replicas))
                for turn in range(50):
                    assert sum(part.takes(turn, turn % 9) for part in parts) == 1


def test_processes_serve_the_same(tmp_path):
    asked = Scenario.from_dict(
        {"model": "llama-3-8b", "gpu": "L4", "replicas": 2, "workload": OPEN}
    )
    home = api.simulate(asked, slo=SLO)
    away = api.simulate(asked, slo=SLO, cluster="processes:2")
    assert json.dumps(away.figures) == json.dumps(home.figures)
    assert not away.rows()
    assert away.run.fleet.timeline.moments


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("rays", "Did you mean ray"),
        ("processes:", "names no workers"),
        ("processes:0", "below 1"),
        ("processes:many", "is no whole number"),
        ("auto:3", "takes no address"),
        ("ray:", "names no workers"),
    ],
)
def test_workers_that_are_none_are_told(words, message):
    with pytest.raises(KvroomError, match=message) as told:
        workers_of(words)
    assert told.value.field == "--cluster"


def test_what_one_process_keeps_is_not_asked_of_many():
    asked = Scenario.from_dict({"model": "llama-3-8b", "gpu": "L4", "workload": OPEN})
    with pytest.raises(KvroomError, match="tells of no single request"):
        api.simulate(asked, cluster="processes:2", on_end=lambda request, end: None)
    with pytest.raises(KvroomError, match="schedules in one process only"):
        api.simulate(asked, cluster="processes:2", scheduler="engine")
    assert workers_of("processes:1").pool is None


def test_runs_in_a_file_are_counted_as_those_in_memory(monkeypatch):
    """Few runs at a time or all of them: the same gaps, to the last one."""
    draws = random.Random(3)
    runs = [
        (
            draws.randrange(10**6, 10**7),
            draws.randrange(0, 50),
            draws.randrange(1, 40),
            draws.randrange(1, 9),
        )
        for _ in range(3000)
    ]
    found = []
    for most in (1 << 21, 64):
        monkeypatch.setattr(metrics, "MOST", most)
        gaps = metrics.Gaps()
        for first, slope, steps, weight in runs:
            spent = steps * first + slope * steps * (steps - 1) // 2
            gaps.add((first, slope, steps, weight, spent))
            gaps.settle(100)
        ranks = [1, gaps.count // 2, gaps.count * 99 // 100, gaps.count]
        found.append((gaps.count, gaps.total_ps, gaps.ranked(ranks), len(list(gaps.pieces())) > 1))
    assert found[0][:3] == found[1][:3]
    assert [file for *_, file in found] == [False, True]


def test_several_replicas_of_one_worker_are_not_called_one():
    question = {"workload": OPEN | {"requests": 20}, "replicas": 4}
    _, _, told = both(workers=1, **question)
    assert told[0].startswith("in one process: one worker")
