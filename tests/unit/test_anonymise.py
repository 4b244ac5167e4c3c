"""A log without what was said in it: what stays, what leaves nothing behind."""

import gzip
import json

import pytest
from click.testing import CliRunner

from kvroom import api
from kvroom.ui.cli.main import main
from kvroom.workloads.sessions import grouped
from kvroom.workloads.synthetic import parse
from kvroom.workloads.traces.reader import Trace

SECRET = "the launch code is 0000"
CHAT = [
    {"timestamp": "2026-05-01T10:00:00Z", "endTime": "2026-05-01T10:00:04Z", "session_id": "ann@example.org",
     "request": {"messages": [{"role": "user", "content": SECRET * 40}]},
     "response": {"choices": [{"message": {"role": "assistant", "content": "ok " * 30}}]}},
    {"timestamp": "2026-05-01T10:00:09Z", "endTime": "2026-05-01T10:00:11Z", "session_id": "ann@example.org",
     "request": {"messages": [{"role": "user", "content": SECRET * 40 + " and more " * 40}]},
     "response": {"choices": [{"message": {"role": "assistant", "content": "yes"}}]}},
]  # fmt: skip


def test_nothing_that_was_said_leaves(tmp_path):
    log, out = tmp_path / "log.jsonl", tmp_path / "out.jsonl.gz"
    log.write_text("".join(json.dumps(row) + "\n" for row in CHAT))
    told = api.anonymise(log, out)
    text = gzip.decompress(out.read_bytes()).decode()
    for word in ("launch", "ann", "example", "2026", "ok"):
        assert word not in text
    assert told["requests"] == 2
    own, other = Trace(log), Trace(out)
    assert [r[1:3] for r in other] == [r[1:3] for r in own]
    assert [r.took_ps for r in other] == [r.took_ps for r in own]
    (graph,), (before,) = grouped(other).graphs, grouped(own).graphs
    assert graph.after == before.after
    assert [r.think_ps for r in graph.requests] == [r.think_ps for r in before.requests]
    assert api.reuse(out).reuse.token_hit_ratio == api.reuse(log).reuse.token_hit_ratio > 0.3
    again = tmp_path / "again.jsonl"
    api.anonymise(log, again)
    first, second = next(iter(Trace(again))).prefix.ids, next(iter(other)).prefix.ids
    assert set(first).isdisjoint(second)  # another salt
    api.anonymise(log, again, key=b"x")
    third = list(next(iter(Trace(again))).prefix.ids)
    api.anonymise(log, again, key=b"x")
    assert list(next(iter(Trace(again))).prefix.ids) == third


@pytest.mark.parametrize(
    "spec",
    ["agents=3,subagents=0.6,requests=60", "arrivals=poisson:1/s,input=90,output=9,requests=9"],
)
def test_made_up_sessions_read_back(tmp_path, spec):
    out = tmp_path / "made.jsonl"
    told = api.anonymise(spec, out)
    made = parse(spec)
    assert told["requests"] == made.requests
    back = list(Trace(out))
    assert sorted(r[1:3] for r in back) == sorted(r[1:3] for r in made)
    chains = sorted(tuple(map(len, g.after)) for g in grouped(Trace(out)).graphs)
    assert sum(map(len, chains)) == made.requests


def test_the_command(tmp_path):
    log, out = tmp_path / "log.jsonl", tmp_path / "out.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in CHAT))
    ran = CliRunner().invoke(main, ["trace", "anonymise", str(log), str(out), "--json"])
    assert ran.exit_code == 0, ran.output
    assert json.loads(ran.output)["requests"] == 2
    for words, why in (
        (["nosuch", str(out)], "is not a file"),
        ([str(log), str(tmp_path / "no" / "out")], "cannot be written"),
    ):
        ran = CliRunner().invoke(main, ["trace", "anonymise", *words])
        assert ran.exit_code == 2
        assert why in " ".join(ran.output.split())
