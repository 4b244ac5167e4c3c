"""The server against strangers: wrong hosts, bad bodies, path tricks, floods, readers who leave."""

from __future__ import annotations

import http.client
import json
import random
import socket
import subprocess
import sys
import threading
import time
from typing import Any

import pytest
from starlette.testclient import TestClient

from kvroom.models.catalogue import config_of
from kvroom.planner.plan import work
from kvroom.planner.tiers import plan_json
from kvroom.scenario.scenario import Scenario
from kvroom.ui import codec
from kvroom.ui.web import answers, page, server
from kvroom.ui.web.presets import COMPARED, PRESETS, REFERENCE
from kvroom.ui.web.recent import RecentTexts


@pytest.fixture(scope="module")
def client() -> Any:
    with TestClient(server.app(), base_url="http://127.0.0.1:8642") as c:
        yield c


def error_of(reply: Any, status: int) -> dict[str, Any]:
    assert reply.status_code == status, reply.text
    error = reply.json()["error"]
    assert set(error) == {"field", "value", "message", "fix"}
    return dict(error)


def test_answers_are_the_command_lines(client: Any) -> None:
    for preset in PRESETS:
        scenario = Scenario.from_dict(preset.scenario)
        got = client.post("/api/plan", json=preset.scenario)
        assert got.status_code == 200
        assert got.json() == json.loads(codec.encode(plan_json(work(scenario))))


def test_a_list_is_answered_in_order_and_a_failure_stands_in_its_place(client: Any) -> None:
    bad = {"model": "no-such-model", "gpu": "80GB"}
    got = client.post("/api/plan", json=[REFERENCE.scenario, bad, REFERENCE.scenario]).json()
    assert got[0] == got[2]
    assert got[1]["error"]["field"] == "model"
    error_of(client.post("/api/plan", json=[REFERENCE.scenario] * 65), 422)
    error_of(client.post("/api/plan", json=[]), 422)


def test_explanations_are_added_when_asked(client: Any) -> None:
    got = client.post("/api/plan?explain=1", json=REFERENCE.scenario).json()
    told = {e["figure"] for e in got["explanations"]}
    assert {"kv.bytes_per_token", "weights.bytes", "figures.memory.left_bytes"} <= told
    assert (
        Scenario.from_link(f"#{got['take_away']['link'].removeprefix('#')}").model == "llama-3-70b"
    )


def test_parts_of_an_answer(client: Any) -> None:
    parts = "scenario,figures.memory.room,kv.bytes_per_token"
    got = client.post(f"/api/plan?explain=1&parts={parts}", json=[REFERENCE.scenario]).json()[0]
    whole = client.post("/api/plan?explain=1", json=REFERENCE.scenario).json()
    assert got == {
        "scenario": whole["scenario"],
        "figures": {"memory": {"room": 16}},
        "kv": {"bytes_per_token": 327680},
    }
    for bad in ("nothing", "kv.nothing", "kv.bytes_per_token.deeper", ".", "kv,kv.layers.0"):
        reply = client.post(f"/api/plan?parts={bad}", json=REFERENCE.scenario)
        assert error_of(reply, 422)["field"] == "parts"
    many = ",".join(["kv"] * 65)
    error_of(client.post(f"/api/plan?parts={many}", json=REFERENCE.scenario), 422)


def test_a_question_asked_again_is_not_worked_out_again(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {**REFERENCE.scenario, "context_tokens": 4321}
    first = client.post("/api/plan", json=asked)
    monkeypatch.setattr(answers, "answer_of", lambda *_, **__: pytest.fail("worked out again"))
    again = client.post("/api/plan", json=dict(reversed(asked.items())))
    assert again.json() == first.json()
    both = client.post("/api/plan", json=[asked, asked])
    assert both.json() == [first.json()] * 2


def test_what_is_kept_has_a_limit() -> None:
    recent = RecentTexts(100)
    for i in range(50):
        recent.put(f"key {i:02}", "x" * 20)
        recent.get("key 00")
    assert recent.size <= 100
    assert recent.get("key 00") and recent.get("key 49") and recent.get("key 40") is None
    recent.put("long", "x" * 1000)
    assert recent.size <= 100


def test_small_answers(client: Any) -> None:
    assert client.get("/health").json()["status"] == "ok"
    assert "Scenario" in client.get("/api/schema").json()["$defs"]
    assert set(COMPARED) <= set(client.get("/api/models").json())
    assert "H100-SXM" in client.get("/api/gpus").json()


def test_headers(client: Any) -> None:
    for path in ("/", "/page.js", "/health", "/nowhere"):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"


def test_nothing_inline_and_nothing_foreign(client: Any) -> None:
    html = client.get("/").text
    assert "style=" not in html and "onclick=" not in html
    assert "<script>" not in html and "https://" not in html


def test_hosts(client: Any) -> None:
    for host in (
        "evil.example",
        "evil.example:8642",
        "127.0.0.1",
        "127.0.0.1:80",
        "localhost.evil:8642",
        "",
    ):
        error_of(client.get("/health", headers={"host": host}), 421)
    for host in ("localhost:8642", "127.0.0.1:8642", "[::1]:8642", "LOCALHOST:8642"):
        assert client.get("/health", headers={"host": host}).status_code == 200


def test_other_sites_may_not_ask(client: Any) -> None:
    asked = {"json": REFERENCE.scenario}
    for origin in ("https://evil.example", "null", "http://127.0.0.1:1"):
        error_of(client.post("/api/plan", headers={"origin": origin}, **asked), 421)
    own = {"origin": "http://127.0.0.1:8642"}
    assert client.post("/api/plan", headers=own, **asked).status_code == 200
    plain = {"content-type": "text/plain"}
    error_of(client.post("/api/plan", headers=plain, content="{}"), 415)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"NaN",
        b'{"context_tokens": NaN}',
        b'{"a": Infinity}',
        b"[" * 100_000,
    ],
    ids=["empty", "cut", "not-utf8", "nan", "nan-inside", "infinity", "deep"],
)
def test_malformed_json(client: Any, body: bytes) -> None:
    reply = client.post("/api/plan", content=body, headers={"content-type": "application/json"})
    assert error_of(reply, 400)["field"] == "body"


def test_a_config_nested_too_deeply(client: Any) -> None:
    deep = '{"a":' * 900 + "1" + "}" * 900
    text = '{"gpu": "80GB", "model": {"config": ' + deep + "}}"
    reply = client.post("/api/plan", content=text, headers={"content-type": "application/json"})
    assert 400 <= reply.status_code < 500
    assert "error" in reply.json()


@pytest.mark.parametrize(
    "scenario",
    [
        1,
        "text",
        {},
        {"model": "llama-3-70b"},
        {"model": "/etc/passwd", "gpu": "80GB"},
        {"model": "../../config.json", "gpu": "80GB"},
        {"model": "llama-3-70b", "gpu": "/etc/passwd"},
        {"model": "llama-3-70b", "gpu": "./machine.json"},
        {"model": {"config": {}, "path": "/etc"}, "gpu": "80GB"},
        {"model": {"config": {"model_type": "llama", "num_hidden_layers": 10**30}}, "gpu": "80GB"},
        {"model": "llama-3-70b", "gpu": "80GB", "context_tokens": -1},
        {"model": "llama-3-70b", "gpu": "80GB", "contex_tokens": 1},
        {"model": "llama-3-70b", "gpu": "80GB", "gpu_count": 10**12},
        {"model": "x" * 100_000, "gpu": "80GB"},
    ],
)
def test_bad_questions(client: Any, scenario: Any) -> None:
    error = error_of(client.post("/api/plan", json=scenario), 422)
    assert "root:" not in json.dumps(error)


def test_too_long(client: Any) -> None:
    headers = {"content-type": "application/json"}
    error_of(client.post("/api/plan", content=b" " * (2**20 + 1), headers=headers), 413)

    def stream() -> Any:
        for _ in range(40):
            yield b" " * 65536

    error_of(client.post("/api/plan", content=stream(), headers=headers), 413)


@pytest.mark.parametrize(
    "path",
    ["/../pyproject.toml", "/..%2f..%2fetc/passwd", "/%2e%2e/server.py", "/server.py", "/index.html",
     "/vendor/", "/page.js/", "//page.js", "/page.js%00", "/vendor/../../server.py", "/types.d.ts"],
)  # fmt: skip
def test_no_path_that_a_client_names(address: str, path: str) -> None:
    host = address.split("/")[2]
    c = http.client.HTTPConnection(host, timeout=5)
    c.request("GET", path)
    reply = c.getresponse()
    assert reply.status in (307, 404)
    assert b"import" not in reply.read()
    c.close()


def test_methods(client: Any) -> None:
    error_of(client.get("/api/plan"), 405)
    error_of(client.put("/", content=b""), 405)
    error_of(client.get("/nowhere"), 404)


def test_a_question_in_the_address(client: Any) -> None:
    good = client.get("/?model=llama-3-70b&gpu=80GB:4&context=32K&kv=fp8&engine=arithmetic")
    assert good.status_code == 200 and "Room for 33 requests" in good.text
    bad = client.get("/?model=<script>alert(1)</script>&gpu=80GB")
    assert bad.status_code == 422
    assert "<script>alert" not in bad.text
    assert client.get("/?" + "a=1&" * 5000).status_code in (200, 414, 422)


def test_files_come_packed_and_are_not_sent_twice(client: Any) -> None:
    first = client.get("/page.js")
    assert first.headers["content-encoding"] == "gzip"
    again = client.get("/page.js", headers={"if-none-match": first.headers["etag"]})
    assert again.status_code == 304 and not again.content


def test_the_page_is_small(client: Any) -> None:
    table = server.files()
    html = server.gzip.compress(page.render()[1].encode(), 4)
    sent = sum(len(f.packed) for path, f in table.items() if "LICENSE" not in path)
    assert sent + len(html) < 215_000  # 29,000 of them are the font


def slow(monkeypatch: pytest.MonkeyPatch, seconds: float) -> list[str]:
    asked: list[str] = []

    def answer(given: Any, **_: Any) -> dict[str, Any]:
        asked.append(given["gpu"])
        time.sleep(seconds)
        return {}

    monkeypatch.setattr(answers, "answer_of", answer)
    return asked


def post(host: str, body: bytes) -> http.client.HTTPConnection:
    c = http.client.HTTPConnection(host, timeout=30)
    c.request("POST", "/api/plan", body, {"content-type": "application/json"})
    return c


def test_a_flood_is_refused_with_a_sentence_and_passes(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = address.split("/")[2]
    with monkeypatch.context() as patch:
        slow(patch, 0.02)
        flood = [post(host, b'{"gpu": "%d"}' % i) for i in range(120)]
        statuses = []
        for c in flood:
            reply = c.getresponse()
            body = json.loads(reply.read())
            statuses.append(reply.status)
            if reply.status == 429:
                assert "busy" in body["error"]["message"]
            c.close()
    assert set(statuses) <= {200, 429, 503}
    assert 200 in statuses and 429 in statuses
    c = post(host, json.dumps(REFERENCE.scenario).encode())
    assert c.getresponse().status == 200
    c.close()


def test_work_is_dropped_when_its_reader_leaves(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = address.split("/")[2]
    with monkeypatch.context() as patch:
        asked = slow(patch, 0.2)
        first = post(host, b'[{"gpu": "a"}, {"gpu": "b"}, {"gpu": "c"}, {"gpu": "d"}]')
        while not asked:
            time.sleep(0.01)
        queued = [post(host, b'{"gpu": "never"}') for _ in range(10)]
        time.sleep(0.05)
        for c in (first, *queued):
            c.close()
        last = post(host, b'{"gpu": "last"}')
        assert last.getresponse().status == 200
        last.close()
    assert "never" not in asked
    assert "d" not in asked


def test_rubbish_on_the_wire(address: str) -> None:
    host, port = address.split("/")[2].split(":")
    pick = random.Random(3)
    for _ in range(50):
        with socket.create_connection((host, int(port)), timeout=5) as s:
            s.sendall(pick.randbytes(pick.randrange(1, 400)) + b"\r\n\r\n")
    c = http.client.HTTPConnection(f"{host}:{port}", timeout=5)
    c.request("GET", "/health")
    assert c.getresponse().status == 200
    c.close()


def test_many_at_once(client: Any) -> None:
    results: list[int] = []

    def ask() -> None:
        results.append(client.post("/api/plan", json=REFERENCE.scenario).status_code)

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert set(results) <= {200, 429}


def test_commands_shown_answer_the_same() -> None:
    import shlex

    from click.testing import CliRunner

    from kvroom.ui.cli.main import main

    asked = [
        *(p.scenario for p in PRESETS),
        {**REFERENCE.scenario, "kv_dtype": "fp8", "concurrency": 17},
        {"model": "llama-3-8b", "gpu": "H100-SXM", "gpu_count": 4, "pp": 2, "engine": "vllm",
         "engine_args": {"gpu_memory_utilization": 0.8}},
        {"model": {"config": dict(config_of("llama-3-8b"))}, "gpu": "H100-SXM"},
        {**REFERENCE.scenario, "workload": {"input_tokens": 100, "concurrency": 8}},
    ]  # fmt: skip
    for one in asked:
        found = page.answer(Scenario.from_dict(one))
        words = shlex.split(found["take_away"]["command"])
        assert words[:2] == ["kvroom", "plan"]
        got = CliRunner().invoke(main, [*words[1:], "--json"])
        assert got.exit_code == 0, got.output
        want = json.loads(codec.encode(plan_json(work(Scenario.from_dict(one)))))
        assert json.loads(got.stdout) == want, one
        space: dict[str, Any] = {"print": lambda *_: None}
        exec(found["take_away"]["python"], space)
        del want["tiers"]
        assert json.loads(codec.encode(space["answer"])) == want


@pytest.mark.parametrize(
    ("asked", "traits"),
    [
        (REFERENCE.scenario, "within room grows breaks arithmetic many crosses"),
        ({"model": "llama-3.1-405b", "gpu": "80GB", "engine": "arithmetic"}, "over arithmetic"),
        ({"model": "bert-base", "gpu": "H100-SXM"}, "within free engine level"),
        ({"model": "mamba-codestral-7b", "gpu": "H100-SXM", "engine": "arithmetic"}, "room fixed"),
        (
            {"model": "llama-3-8b", "gpu": "RTX-4090", "engine": "llama.cpp", "kv_dtype": "fp8"},
            "within stopped",
        ),
        (
            {"model": "mamba-codestral-7b", "gpu": "H200-SXM", "engine": "vllm", "gpu_count": 8},
            "room fixed capped",
        ),
        ({"model": "mixtral-8x7b", "gpu": "H200-SXM"}, "experts engine"),
    ],
)
def test_what_is_so_of_an_answer(asked: dict[str, Any], traits: str) -> None:
    found = page.answer(Scenario.from_dict(asked))["figures"]["traits"]
    assert set(traits.split()) <= set(found)
    assert ("over" in found) != ("within" in found)
    assert ("crosses" in found) != ("level" in found)


def test_what_does_not_start_holds_nothing() -> None:
    """llama.cpp has no FP8 cache: what FP8 would hold is told as none, not as another's number."""
    status, html = page.render("model=llama-3-8b&gpu=RTX-4090&engine=llama.cpp")
    fp8 = html.split('of="fp8">')[1].split("<")[0]
    assert status == 200 and fp8 == "0"
    stopped = {"model": "glm-5", "gpu": "H200-SXM", "gpu_count": 8, "engine": "sglang"}
    m = page.answer(Scenario.from_dict(stopped | {"concurrency": 20}))["figures"]["memory"]
    assert (m["room"], m["running"], m["waiting"]) == (0, 0, 20)
    assert ">none<" in page.number({"": {}, "fp8": {}}, "figures.memory.room", "count", "fp8")


@pytest.mark.parametrize(
    "asked",
    [
        {
            "model": "deepseek-v3",
            "gpu": "B200",
            "engine": "sglang",
            "engine_args": {"enable-dp-attention": True, "dp-size": 8},
        },
        {"model": "qwen3.5-122b-a10b", "gpu": "H200-SXM", "engine": "sglang"},
        {"model": "llama-3-8b", "gpu": "80GB", "tp": 2, "dp": 4, "engine": "arithmetic"},
    ],
)
def test_requests_never_take_more_than_the_room(asked: dict[str, Any]) -> None:
    more = {"gpu_count": 8, "context_tokens": 8192, "concurrency": 100_000}
    m = page.answer(Scenario.from_dict(asked | more))["figures"]["memory"]
    assert m["running"] == m["room"] and m["left_bytes"] == m["free_bytes"] >= 0
    assert 0 < m["short_bytes"] <= m["request_bytes"]
    stuck = next(k for k in m["drawing"]["marks"] if k["key"] == "break")
    wall = next(k for k in m["drawing"]["marks"] if k["key"] == "wall")
    begins, width, limit = (float(t.rstrip("%")) for t in (stuck["x"], stuck["width"], wall["x1"]))
    assert begins <= limit < begins + width + 0.01


def test_what_the_engine_alone_holds_back_does_not_break_the_memory() -> None:
    asked = {"model": "mamba-codestral-7b", "gpu": "H200-SXM", "gpu_count": 8,
             "context_tokens": 8192, "concurrency": 2000}  # fmt: skip
    m = page.answer(Scenario.from_dict(asked))["figures"]["memory"]
    assert m["waiting"] == 2000 - m["room"] and m["left_bytes"] > m["request_bytes"]
    keys = {k["key"]: k for k in m["drawing"]["marks"]}
    assert "break" not in keys and "wall" not in keys
    assert "runs no more at once" in keys["short"]["text"]


def test_a_key_that_serves_as_value_is_counted_once() -> None:
    price = page.answer(
        Scenario.from_dict({"model": "deepseek-v4-flash", "gpu": "H200-SXM", "gpu_count": 8})
    )["figures"]["price"]
    for kind in price["kinds"]:
        if not kind["scales"]:
            product = kind["bits"] // 8
            for factor in kind["factors"]:
                product *= factor["value"]
            assert product == kind["bytes_per_layer"], kind


def test_the_routes_know_neither_http_nor_a_command_line() -> None:
    code = (
        "import sys; from kvroom.ui.web import routes; table = routes.table();"
        "from kvroom.ui.web.questions import PageQuestion;"
        "plan = next(r for r in table if r.path == '/api/plan');"
        f"print(plan.answer(PageQuestion({REFERENCE.scenario!r}), None)[:12]);"
        "tiers = next(r for r in table if r.path == '/api/tiers');"
        f"tiers.answer(PageQuestion({REFERENCE.scenario!r}), None);"
        "print([m for m in ('starlette', 'uvicorn', 'click', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ['{"scenario":', "[]"]
