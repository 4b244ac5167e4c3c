"""Reuse of agent sessions against a plain count, and logs played by levers and the page."""

import json
from collections import OrderedDict

import pytest

from kvroom import api
from kvroom.errors import KvroomError
from kvroom.workloads.draws import Draws
from kvroom.workloads.traces.reader import Trace


def sessions(path, count, seed=0):
    """Agent sessions in the shape that kv-cache-tester writes, compacted now and then."""
    draws = Draws(seed, "sessions")
    rows = []
    for number in range(count):
        ids, at, requests = list(range(1, 12)), 0.0, []
        for call in range(int(draws.uniform() * 12) + 3):
            if draws.uniform() < 0.1:
                ids = ids[:6]
            ids = ids + [1000 * call + i for i in range(int(draws.uniform() * 7))]
            requests.append(
                {"t": round(at, 2), "in": len(ids) * 64 + int(draws.uniform() * 63), "out": 40,
                 "hash_ids": ids, "api_time": 3.0, "type": "n"}
            )  # fmt: skip
            at += 3.0 + 30 * draws.uniform()
        rows.append(
            {"id": number, "block_size": 64, "hash_id_scope": "local", "requests": requests}
        )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return rows


def brute(rows, capacity):
    """Hits of an LRU cache of ``capacity`` blocks, block after block, in the order of the file."""
    cache, hits, refs = OrderedDict(), 0, 0
    for number, session in enumerate(rows):
        for request in sorted(session["requests"], key=lambda r: r["t"]):
            for block in request["hash_ids"]:
                name, refs = (number, block), refs + 1
                if name in cache:
                    hits += 1
                    cache.move_to_end(name)
                else:
                    cache[name] = None
                    if len(cache) > capacity:
                        cache.popitem(last=False)
    return hits / refs


@pytest.mark.parametrize("seed", range(3))
def test_reuse_curves_equal_a_plain_count(tmp_path, seed):
    path = tmp_path / "agents.jsonl"
    rows = sessions(path, 9, seed)
    sizes = [1, 5, 12, 20, 40, 80, 10_000]
    found = api.reuse(path, capacities=sizes).reuse
    for size in sizes:
        assert found.hit_ratio["lru"][str(size)] == pytest.approx(brute(rows, size), abs=1e-12)
    assert found.infinite.hit_blocks / len(found.refs.blocks) <= brute(rows, 10_000) + 1e-12


def test_levers_serve_a_trace(tmp_path):
    path = tmp_path / "agents.jsonl"
    sessions(path, 6)
    keys = {"context_tokens": "8K", "engine_version": "0.33.0"}
    found = api.levers("llama-3-8b", "L40S", simulate=True, trace=path, sessions=3, **keys)
    assert found.served_before.prefix_hit_ratio > 0.3
    assert {x.lever.id for x in found.served} >= {"tiers=host"}


def test_a_pool_is_of_traces_only():
    load = {"arrivals": "poisson:1/s", "input": 9, "output": 9}
    with pytest.raises(KvroomError, match="is of traces only"):
        api.simulate("llama-3-8b", "L40S", workload=load, sessions=3)


def test_recorded_times_are_kept_where_they_are_wanted(tmp_path):
    """Two turns a second apart whose first takes longer: the second waits for it, or does not."""
    path = tmp_path / "log.jsonl"
    path.write_text(
        "".join(json.dumps({"t": t, "p": 4000, "g": 400, "s": "a"}) + "\n" for t in (0, 1))
    )
    columns = "arrival=t,input=p,output=g,session=s"
    first, second = (
        api.simulate("llama-3-8b", "L40S", trace=path, columns=columns, recorded_times=kept).rows()
        for kept in (False, True)
    )
    assert first[1]["arrival_s"] == pytest.approx(first[0]["e2e_s"], abs=0.2)
    assert second[1]["arrival_s"] == 1.0


def test_sessions_go_on_where_prompts_and_answers_are_computed_apart(tmp_path):
    path = tmp_path / "agents.jsonl"
    rows = sessions(path, 4)
    found = api.simulate(
        "llama-3-8b", "H100-SXM", trace=path, context_tokens="8K", engine_version="0.33.0",
        disaggregation={"prefill": {"count": 1}, "decode": {"count": 1}},
    )  # fmt: skip
    assert found.figures["requests"]["completed"] == sum(len(row["requests"]) for row in rows)


def test_a_recording_is_a_trace(tmp_path):
    from pathlib import Path

    example = Path(__file__).parents[2] / "docs/examples/watched.jsonl"
    found = api.describe(trace=example)
    assert found["requests"] > 0
    assert api.reuse(example).reuse.refs.lengths
    assert isinstance(Trace, type)
