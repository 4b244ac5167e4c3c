"""Long answers: the command line's figures, pictures of the real pool, limits, readers who leave."""

from __future__ import annotations

import base64
import gzip
import http.client
import json
import shlex
import threading
import time
from typing import Any

import pytest
from click.testing import CliRunner
from starlette.testclient import TestClient

from kvroom.ui.cli.main import main
from kvroom.ui.web import replays, routes, server, simulations
from kvroom.ui.web.presets import PRESETS, REFERENCE
from kvroom.ui.web.sections import agents

SERVED = {
    "model": "llama-3-8b",
    "gpu": "H100-SXM",
    "context_tokens": 2048,
    "engine_args": {"num_gpu_blocks_override": 300},
    "workload": {"arrivals": "poisson:20/s", "input": 200, "output": 60, "requests": 60},
}


@pytest.fixture(scope="module")
def client() -> Any:
    with TestClient(server.app(), base_url="http://127.0.0.1:8642") as c:
        yield c


def lines(client: Any, body: Any, path: str = "/api/simulate") -> list[dict[str, Any]]:
    reply = client.post(path, json=body)
    assert reply.status_code == 200, reply.text
    return [json.loads(line) for line in reply.text.splitlines()]


def refused(client: Any, body: Any, path: str = "/api/simulate", status: int = 422) -> str:
    reply = client.post(path, json=body)
    assert reply.status_code == status, reply.text
    return str(reply.json()["error"]["field"])


def said(command: str) -> Any:
    found = CliRunner().invoke(main, shlex.split(command)[1:])
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


def test_the_answer_is_what_the_command_prints(client: Any) -> None:
    asked, *_, last = lines(client, {"scenario": SERVED, "seed": 3, "slo": "ttft_p95=1s"})
    assert asked["kind"] == "asked" and last["kind"] == "answer"
    want = said(f"{asked['command']} --seed 3 --slo ttft_p95=1s")
    assert last["answer"] == want
    assert want["requests"]["completed"] == 60
    told = {e["figure"]: e["value"] for e in last["explanations"]}
    assert told["ttft_s.p99"] == want["ttft_s"]["p99"]


@pytest.mark.parametrize("preset", PRESETS, ids=lambda p: p.id)
def test_every_preset_has_its_replays_and_they_are_the_commands(client: Any, preset: Any) -> None:
    for story in replays.STORIES if preset is REFERENCE else replays.STORIES[:1]:
        body = {"scenario": preset.scenario, "replay": {"story": story.id}, "frames": True}
        asked, *frames, last = lines(client, body)
        assert asked["blocks"] in asked["steps"]
        assert last["answer"] == said(asked["command"]), story.id
        assert last["answer"]["requests"]["completed"] == 96
        assert sum(len(f.get("frames", ())) for f in frames) > 300
        if story.id == "chat":
            assert last["answer"]["preemptions"] > 0  # the middle of the slider is past the edge


def test_a_cliff_holds_the_replay(client: Any) -> None:
    body = {"scenario": REFERENCE.scenario, "replay": {"story": "chat"}}
    asked, *points, last = lines(client, {**body, "cliff": True})
    curve = last["answer"]["points"]
    assert [p["point"] for p in points if p["kind"] == "point"] == curve
    assert [p["value"] for p in curve] == sorted(asked["steps"], reverse=True)
    assert last["answer"] == said(asked["command"])
    replayed = lines(client, body)[-1]["answer"]
    here = next(p for p in curve if p["value"] == asked["blocks"])
    assert here["ttft_p99_s"] == replayed["ttft_s"]["p99"]
    assert here["preemptions"] == replayed["preemptions"]


def test_what_stands_beside_differs_in_one_thing(client: Any) -> None:
    def asked(beside: str) -> Any:
        replay = {"story": "prompt", "beside": beside, "seed": 4}
        return lines(client, {"scenario": REFERENCE.scenario, "replay": replay})

    plain = asked("")
    first = plain[0]["scenario"]
    for beside, _, _ in replays.BESIDE[1:]:
        found = asked(beside)
        other = found[0]["scenario"]
        differ = [k for k in first["workload"] if first["workload"][k] != other["workload"][k]]
        more = {k for k, v in other["engine_args"].items() if first["engine_args"].get(k) != v}
        assert (differ == ["seed"]) is (beside == "seed")
        assert len(differ) + len(more) == 1
        assert found[-1]["answer"] != plain[-1]["answer"]


def sent(text: str, name: str = "own.jsonl", *, zipped: bool = False) -> dict[str, str]:
    raw = gzip.compress(text.encode()) if zipped else text.encode()
    return {"name": name, "base64": base64.b64encode(raw).decode()}


TRACE = "".join(
    json.dumps({"timestamp": 40 * i, "input_length": 600, "output_length": 30, "hash_ids": [i % 3, 9 + i]})
    + "\n"
    for i in range(40)
)  # fmt: skip


def test_a_trace_that_is_sent_is_replayed_and_never_written(client: Any, tmp_path: Any) -> None:
    replay = {"story": "trace"}
    body = {"scenario": REFERENCE.scenario, "replay": replay, "trace": sent(TRACE, zipped=True)}
    asked, *_, last = lines(client, {**body, "frames": True})
    path = tmp_path / "own.jsonl"
    path.write_text(TRACE)
    assert last["answer"] == said(f"{asked['command']} --trace {path}")
    assert last["answer"]["requests"]["completed"] == 40
    assert last["answer"]["prefix_hit_ratio"] > 0.5
    assert refused(client, {**body, "replay": {"story": "chat"}}) == "replay.story"
    long = TRACE * 11
    *_, last = lines(client, {**body, "trace": sent(long), "frames": True})
    assert last["answer"]["requests"]["arrived"] == simulations.MOST_PICTURED
    assert any("only the first" in w for w in last["answer"]["warnings"])


def test_reuse_is_what_the_command_prints(client: Any, tmp_path: Any) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text(TRACE)
    [line] = lines(client, {"trace": sent(TRACE)}, "/api/reuse")
    assert line["answer"] == said(f"kvroom reuse {path} --json")
    spec = "arrivals=poisson:2/s,prefix=shared:2x512,input=100,output=20,requests=50"
    asked = {"workload": spec, "policies": ["lru", "belady"], "capacity": "20,40"}
    [line] = lines(client, asked, "/api/reuse")
    want = f"kvroom reuse --workload {spec} --policy lru --policy belady --capacity 20,40 --json"
    assert line["answer"] == said(want)
    story = {"scenario": REFERENCE.scenario, "story": "prompt", "seed": 2}
    [line] = lines(client, story, "/api/reuse")
    assert "seed=2" in line["workload"]
    assert line["answer"] == said(f"kvroom reuse --workload {line['workload']} --json")


def test_lines_come_packed_where_that_is_taken(client: Any) -> None:
    body = {"scenario": REFERENCE.scenario, "replay": {"story": "prompt"}, "frames": True}
    packed = client.post("/api/simulate", json=body)
    assert packed.headers["content-encoding"] == "gzip"
    plain = client.post("/api/simulate", json=body, headers={"accept-encoding": "identity"})
    assert plain.headers["content-encoding"] == "identity"
    told = [[x for x in r.text.splitlines() if '"progress"' not in x] for r in (packed, plain)]
    assert told[0] == told[1]
    assert packed.num_bytes_downloaded < 25_000 < plain.num_bytes_downloaded


def test_what_is_refused(client: Any) -> None:
    own = {**SERVED, "workload": {**SERVED["workload"], "requests": 10**6}}  # type: ignore[dict-item]
    assert refused(client, {"scenario": own}) == "workload.requests"
    long = {"arrivals": "once", "input": 10**8, "output": 1, "requests": 100}
    assert refused(client, {"scenario": {**SERVED, "workload": long}}) == "requests"
    assert refused(client, {"scenario": REFERENCE.scenario}) == "workload"
    assert refused(client, {"scenario": SERVED, "replay": {"story": "chta"}}) == "replay.story"
    assert refused(client, {"scenario": SERVED, "replay": {"seeds": 1}}) == "replay"
    assert refused(client, {"scenario": SERVED, "replay": {"blocks": 10**6}}) == "replay.blocks"
    assert refused(client, {"scenario": SERVED, "simulated": 1}) == "body"
    assert refused(client, []) == "body"
    assert refused(client, {"scenario": SERVED, "cliff": "kv_blocks"}) == "cliff"
    assert refused(client, {"scenario": SERVED, "trace": {"base64": "%"}}) == "trace"
    assert refused(client, {"scenario": SERVED, "trace": sent("nothing")}) == "trace line 1"
    model = {**SERVED, "model": "/etc/passwd"}
    assert refused(client, {"scenario": model}) == "model"
    sglang = {**SERVED, "engine": "sglang", "engine_args": {}}
    assert refused(client, {"scenario": sglang, "frames": True}) == "engine"
    assert refused(client, {"workload": "input"}, "/api/reuse") == "workload"
    assert refused(client, {}, "/api/reuse") == "TRACE"
    much = "arrivals=once,input=10,output=1,requests=100000"
    assert refused(client, {"workload": much}, "/api/reuse") == "workload.requests"
    fine = {"workload": "arrivals=once,input=1000,output=1,requests=2000", "block_tokens": "1"}
    assert refused(client, fine, "/api/reuse") == "requests"
    assert refused(client, {"trace": sent(TRACE.replace("600", "600000")), "block_tokens": "2"},
                   "/api/reuse") == "requests"  # fmt: skip
    bomb = base64.b64encode(gzip.compress(b"\n" * (simulations.MOST_TRACE_BYTES + 1))).decode()
    assert refused(client, {"trace": {"base64": bomb}}, "/api/reuse") == "trace"
    big = {"trace": {"base64": "A" * routes.WITH_TRACE.bytes}}
    assert refused(client, big, "/api/reuse", 413) == "body"


def test_work_without_end_is_ended(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulations, "MOST_CPU_S", 0.05)
    own = {**SERVED, "engine_args": {}, "workload": {**SERVED["workload"], "requests": 20000}}  # type: ignore[dict-item]
    monkeypatch.setattr(simulations.Supervisor, "passing", lambda self, requests: iter(requests))
    *_, last = lines(client, {"scenario": own})
    assert last["answer"]["stopped"] is True
    assert any("ended before" in w for w in last["answer"]["warnings"])
    assert 0 < last["answer"]["requests"]["completed"] < 20000


def counts(host: str) -> dict[str, int]:
    c = http.client.HTTPConnection(host, timeout=10)
    c.request("GET", "/health")
    found = json.loads(c.getresponse().read())["long_answers"]
    c.close()
    return dict(found)


def settled(host: str) -> dict[str, int]:
    """The counts once nothing is under way."""
    for _ in range(600):
        found = counts(host)
        if not found["under_way"]:
            return found
        time.sleep(0.05)
    raise AssertionError(found)


def begin(host: str, requests: int = 50_000) -> tuple[http.client.HTTPConnection, Any]:
    """A long simulation whose first line has come."""
    own = {**SERVED, "workload": {**SERVED["workload"], "requests": requests}}  # type: ignore[dict-item]
    c = http.client.HTTPConnection(host, timeout=60)
    body = json.dumps({"scenario": own})
    c.request("POST", "/api/simulate", body, {"content-type": "application/json"})
    reply = c.getresponse()
    assert json.loads(reply.readline())["kind"] == "asked"
    return c, reply


def test_work_ends_when_its_reader_leaves(address: str) -> None:
    host = address.split("/")[2]
    before = settled(host)
    c, reply = begin(host)
    assert counts(host)["under_way"] == 1
    reply.close()
    c.close()
    after = settled(host)
    assert after["left"] == before["left"] + 1
    assert after["ended"] == before["ended"]


def test_a_flood_of_simulations_is_refused_and_the_page_answers(address: str) -> None:
    host = address.split("/")[2]
    settled(host)
    opened = [begin(host), begin(host)]  # both workers are taken

    def wait() -> None:
        c = http.client.HTTPConnection(host, timeout=60)
        body = json.dumps({"scenario": SERVED})
        c.request("POST", "/api/simulate", body, {"content-type": "application/json"})
        replies.append(c.getresponse().status)
        c.close()

    replies: list[int] = []
    waiting = [threading.Thread(target=wait) for _ in range(12)]
    for t in waiting:
        t.start()
    while len(replies) < 4:
        time.sleep(0.02)
    assert set(replies) == {429}
    c = http.client.HTTPConnection(host, timeout=30)
    c.request(
        "POST", "/api/plan", json.dumps(REFERENCE.scenario), {"content-type": "application/json"}
    )
    assert c.getresponse().status == 200
    c.close()
    for connection, reply in opened:
        reply.close()
        connection.close()
    for t in waiting:
        t.join()
    assert sorted(replies) == [200] * 8 + [429] * 4
    settled(host)


def chats() -> dict[str, str]:
    """Six chats whose sessions are named."""
    rows = [
        {"timestamp": 400 * (6 * turn + chat), "input_length": 256 + 128 * turn, "output_length": 20,
         "hash_ids": [100 * chat + i for i in range((256 + 128 * turn) // 128)], "session": f"s{chat}"}
        for turn in range(5)
        for chat in range(6)
    ]  # fmt: skip
    return sent("".join(json.dumps(row) + "\n" for row in rows))


def test_so_many_sessions_of_a_trace_at_a_time(client: Any) -> None:
    body = {"scenario": REFERENCE.scenario, "replay": {"story": "trace"}, "trace": chats()}
    as_they_came = lines(client, body)[-1]["answer"]
    asked, *frames, _ = lines(client, {**body, "sessions": 2, "frames": True})
    assert "--sessions 2" in asked["command"]
    assert frames
    last = lines(client, {**body, "sessions": 2})[-1]
    answer = last["answer"]
    assert answer["requests"]["completed"] == 400
    assert answer["duration_s"] != as_they_came["duration_s"]
    again = lines(client, {**body, "sessions": 2})[-1]["answer"]
    assert again == answer
    other = lines(client, {**body, "sessions": 2, "replay": {"story": "trace", "seed": 1}})[-1]
    assert other["answer"]["duration_s"] != answer["duration_s"]


AGENTS = {
    "model": "llama-3.1-8b", "gpu": "RTX-4090", "context_tokens": 16384, "kv_dtype": "fp8",
    "workload": {"agents": 3, "first": "4000", "result": "200", "turns": "1", "agent": "3"},
}  # fmt: skip


def test_how_many_agents_hold_is_what_the_command_prints(client: Any) -> None:
    body = {"scenario": AGENTS, "slo": "ttft_p95=100ms"}
    asked, *told, last = lines(client, body, "/api/agents")
    assert asked["kind"] == "asked" and {one["kind"] for one in told} == {"progress"}
    assert last["answer"] == said(f"{last['command']} --seeds 1 --json")
    assert last["answer"]["holds"] is False


def test_agents_that_nobody_asks_for_or_that_take_too_long_are_refused(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for wrong, field in (
        ({"scenario": {**AGENTS, "workload": None}}, "workload.agents"),
        ({"scenario": {**AGENTS, "workload": {"agents": 5000}}}, "workload.agents"),
        ({"scenario": AGENTS, "changes": "host"}, "changes"),
        ({}, "scenario"),
    ):
        assert refused(client, wrong, "/api/agents") == field
    monkeypatch.setattr(agents, "MOST_CPU_S", 0.0)
    *_, last = lines(client, {"scenario": AGENTS}, "/api/agents")
    assert last["kind"] == "error" and last["error"]["field"] == "workload"


def test_sessions_are_of_traces(client: Any) -> None:
    assert refused(client, {"scenario": SERVED, "sessions": 2}) == "sessions"
    body = {"scenario": REFERENCE.scenario, "replay": {"story": "trace"}, "trace": chats()}
    assert refused(client, {**body, "sessions": 0}) == "sessions"
    assert refused(client, {**body, "sessions": 10**6}) == "sessions"
