"""The lower sections' answers: the command line's own, explained; files dropped in; readers who leave."""

from __future__ import annotations

import gzip
import http.client
import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from starlette.testclient import TestClient

from kvroom.errors import KvroomError
from kvroom.models.catalogue import config_of
from kvroom.optimize.levers.rank import levers as find_levers
from kvroom.planner.plan import work
from kvroom.planner.simulate import serve
from kvroom.planner.tiers import plan_json
from kvroom.scenario.scenario import Scenario
from kvroom.ui import codec
from kvroom.ui.cli.main import main
from kvroom.ui.web import server
from kvroom.ui.web.presets import PRESETS, REFERENCE
from kvroom.ui.web.questions import Gone
from kvroom.ui.web.routes import UPLOAD
from kvroom.ui.web.sections import dropped, levers, reality, tiers
from kvroom.ui.web.transport import NDJSON, LineListener

H100 = {"model": "qwen2.5-14b", "gpu": "H100-SXM", "context_tokens": 4096}
LOG = (
    "INFO [utils.py:1] non-default args: {'model': 'Qwen/Qwen2.5-14B-Instruct', "
    "'gpu_memory_utilization': 0.92, 'max_model_len': 4096}\n"
    "INFO [core.py:1] Initializing a V1 LLM engine (v0.21.0) with config: "
    "model='Qwen/Qwen2.5-14B-Instruct', max_seq_len=4096, tensor_parallel_size=1, "
    "enforce_eager=False, kv_cache_dtype=auto\n"
    "INFO [gpu_worker.py:1] Available KV cache memory: 41.43 GiB\n"
    "INFO [kv_cache_utils.py:1] GPU KV cache size: 226,240 tokens\n"
    "INFO [kv_cache_utils.py:2] Maximum concurrency for 4,096 tokens per request: 55.23x\n"
)
METRICS = (Path(__file__).parents[1] / "golden" / "vllm_0.32.0_metrics.txt.gz").read_bytes()
OCTETS = {"content-type": "application/octet-stream"}


@pytest.fixture(scope="module")
def client() -> Any:
    with TestClient(server.app(), base_url="http://127.0.0.1:8642") as c:
        yield c


def state(asked: dict[str, Any]) -> str:
    return Scenario.from_dict(asked).link("").partition("s=")[2]


def drop(client: Any, data: bytes, asked: dict[str, Any], **headers: str) -> Any:
    return client.post(f"/api/reconcile?s={state(asked)}", content=data, headers=OCTETS | headers)


def plain(value: Any) -> Any:
    return json.loads(codec.encode(value))


def at(answer: Any, path: str) -> Any:
    for key in path.split("."):
        answer = answer[int(key)] if isinstance(answer, list) else answer[key]
    return answer


def explained(answer: dict[str, Any]) -> set[str]:
    """Every explanation that stands for a key of the answer says its very value."""
    for e in answer["explanations"]:
        try:
            value = at(answer, e["figure"])
        except (KeyError, IndexError, TypeError):
            continue
        assert value == e["value"], e
    return {e["figure"] for e in answer["explanations"]}


# ---- tiers ----


def test_tiers_are_the_plans_and_every_number_is_explained(client: Any) -> None:
    for preset in PRESETS[1:]:
        got = client.post("/api/tiers", json=preset.scenario).json()
        want = plain(plan_json(work(Scenario.from_dict(preset.scenario))))
        assert {k: got[k] for k in want} == want
        assert got["figures"]["tiers"]["stand_in"] is None
        told = explained(got)
        curve = got["figures"]["tiers"]["curve"]
        here = next(p for p in curve if p["tokens"] == got["tiers"]["prompt_tokens"])
        assert here["recompute_s"] == got["tiers"]["recompute_s"]
        for i, c in enumerate(got["tiers"]["crossings"]):
            assert here["fetch_s"][c["name"]] == c["fetch_s"]
            assert f"tiers.crossings.{i}.load_weights_s" in told
        assert {f"figures.tiers.curve.{i}.recompute_s" for i in range(len(curve))} <= told


def test_the_curve_crosses_where_the_plan_says() -> None:
    every_head = {"model": "qwen1.5-72b", "gpu": "H100-SXM", "gpu_count": 8, "tp": 8}
    got = tiers.answer(Scenario.from_dict(every_head | {"context_tokens": 32768}))
    least = next(c["crossover_tokens"] for c in got["tiers"]["crossings"] if c["name"] == "nvme")
    assert least > 512
    curve = got["figures"]["tiers"]["curve"]
    below = [p for p in curve if p["tokens"] < least]
    assert all(p["fetch_s"]["nvme"] <= p["recompute_s"] for p in curve[len(below) :])
    assert below[-1]["fetch_s"]["nvme"] > below[-1]["recompute_s"]


def test_a_card_without_stated_arithmetic_has_a_stand_in() -> None:
    got = tiers.answer(Scenario.from_dict(REFERENCE.scenario))
    assert got["figures"]["tiers"]["stand_in"] == tiers.STAND_IN == got["scenario"]["gpu"]
    asked = {**REFERENCE.scenario, "gpu": tiers.STAND_IN}
    assert got["tiers"] == plan_json(work(Scenario.from_dict(asked)))["tiers"]
    assert tiers.STAND_IN in tiers.says(Scenario.from_dict(REFERENCE.scenario))


def test_a_model_without_cache_has_tiers_and_no_times() -> None:
    got = tiers.answer(Scenario.from_dict({"model": "bert-base", "gpu": "H100-SXM"}))
    figure = got["figures"]["tiers"]
    assert figure["curve"] == [] and [r["name"] for r in figure["rungs"]][:3] == [
        "sram",
        "l2",
        "hbm",
    ]
    assert "takes" not in figure["sentence"]


# ---- levers ----


def test_levers_are_the_command_lines(client: Any) -> None:
    for preset in (PRESETS[0], PRESETS[1]):
        words = levers.levers_command(Scenario.from_dict(preset.scenario)).split()[1:]
        shown = CliRunner().invoke(main, [*words, "--json"])
        assert shown.exit_code == 0, shown.output
        want = json.loads(shown.stdout)
        assert client.post("/api/levers", json=preset.scenario).json() == want
        got = client.post("/api/levers?explain=1", json=preset.scenario).json()
        assert {k: got[k] for k in want} == want
        told = explained(got)
        for i, p in enumerate(got["levers"]):
            for key, value in p["after"].items():
                if value is not None and key != "ttft_s":
                    assert f"levers.{i}.after.{key}" in told


def test_served_levers_are_the_command_lines(client: Any) -> None:
    asked = {
        **H100,
        "workload": {"arrivals": "poisson:4/s", "input": 400, "output": 40, "requests": 20},
    }
    got = client.post("/api/levers?explain=1&simulate=1", json=asked).json()
    want = plain(find_levers(Scenario.from_dict(asked), simulate=True, paths=False).to_dict())
    assert {k: got[k] for k in want} == want
    assert {x["id"] for x in got["served"]["levers"]} >= {"tiers=host", "speculation=ngram"}
    told = explained(got)
    for i, x in enumerate(got["served"]["levers"]):
        for key, value in x["after"].items():
            assert (value is None) != (f"served.levers.{i}.after.{key}" in told)
    assert got["figures"]["served"]["notes"] == []


def test_what_stands_in_for_serving_is_said() -> None:
    drawn, notes = levers.served_of(Scenario.from_dict(REFERENCE.scenario))
    assert (drawn.engine, drawn.gpu) == ("vllm", "H100-SXM")
    assert drawn.workload is not None and drawn.workload.requests == levers.MOST_SERVED
    for word in ("vllm's rules", "H100-SXM", "2,000 tokens", "at a time"):
        assert sum(word in note for note in notes) == 1
    many = {"arrivals": "poisson:1/s", "input": 100, "output": 10, "requests": 10**6}
    asked = Scenario.from_dict({**H100, "workload": many})
    drawn, notes = levers.served_of(asked)
    assert notes == [f"the first {levers.MOST_SERVED} of 1,000,000 requests"]
    assert drawn.workload == replace(asked.workload, requests=levers.MOST_SERVED)  # type: ignore[type-var]


def test_serving_ends_when_the_reader_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = {"arrivals": "poisson:4/s", "input": 4000, "output": 400}
    asked = {**H100, "workload": workload}
    listener = LineListener()
    stop = listener.stop
    seen: list[int] = []

    def stopped(made: Any, source: Any, watch: Any) -> Any:
        def look(now: Any) -> bool:
            seen.append(now.done)
            stop.set()
            return bool(watch(now))

        return serve(made, source, watch=look)

    monkeypatch.setattr("kvroom.planner.simulate.serve", stopped)
    with pytest.raises(Gone):
        levers.served(asked, listener=listener)
    assert len(seen) == 1  # in the midst of the first simulation
    monkeypatch.setattr("kvroom.planner.simulate.serve", serve)
    monkeypatch.setattr(levers, "MOST_CPU_S", -1.0)
    with pytest.raises(KvroomError, match="takes too long"):
        levers.served(asked, listener=LineListener())


def test_the_goal_is_the_users_without_room_else_twice_as_many(client: Any) -> None:
    def goal(**more: Any) -> Any:
        got = client.post("/api/levers?explain=1", json={**REFERENCE.scenario, **more}).json()
        return got["figures"]["levers"]["goal"]

    assert goal() == 32
    assert goal(concurrency=40) == 40
    assert (
        goal(concurrency=5)
        == 2
        * client.post("/api/levers", json={**REFERENCE.scenario, "concurrency": 5}).json()[
            "before"
        ]["requests"]
    )


def test_steps_lead_from_before_to_together_in_the_order_named(client: Any) -> None:
    got = client.post("/api/levers?explain=1", json=REFERENCE.scenario).json()
    figure = got["figures"]["levers"]
    ids = [s["id"] for s in figure["steps"]]
    assert len(ids) == 3
    for order in (ids, ids[::-1], [ids[1]], []):
        path = f"/api/levers?explain=1&together={';'.join(order)}"
        found = client.post(path, json=REFERENCE.scenario).json()["figures"]["levers"]
        assert [s["id"] for s in found["steps"]] == order
        ends = [found["before"], *(s["to"] for s in found["steps"])]
        assert [s["from"] for s in found["steps"]] == ends[:-1]
        assert ends[-1] == pytest.approx(found["reached"])
        assert found["before"] == 16
    assert figure["reached"] == got["together"][0]["after"]["requests"] == 111


def test_three_rankings_each_the_command_lines(client: Any) -> None:
    asked = PRESETS[1].scenario
    got = client.post("/api/levers?explain=1", json=asked).json()
    rankings = got["figures"]["levers"]["rankings"]
    assert list(rankings) == ["requests", "step", "cost"]
    words = levers.levers_command(Scenario.from_dict(asked)).split()[1:]
    for by, ids in rankings.items():
        shown = CliRunner().invoke(main, [*words, "--by", by, "--json"])
        ranked = [p["id"] for p in json.loads(shown.stdout)["levers"]]
        assert ids and ids == [i for i in ranked if i in ids]
        assert ranked[0] == ids[0]
    plain_card = client.post("/api/levers?explain=1", json=REFERENCE.scenario).json()
    assert list(plain_card["figures"]["levers"]["rankings"]) == ["requests"]


def test_levers_tell_how_far_they_are(client: Any) -> None:
    asked = {**REFERENCE.scenario, "context_tokens": 31000}
    headers = {"accept": NDJSON}
    reply = client.post("/api/levers?explain=1", json=asked, headers=headers)
    lines = [json.loads(line) for line in reply.text.splitlines()]
    counts = [line["planned"] for line in lines[:-1]]
    assert counts == sorted(counts) and counts[0] == 0 and len(counts) > 2
    assert lines[-1] == client.post("/api/levers?explain=1", json=asked).json()
    again = client.post("/api/levers?explain=1", json=asked, headers=headers)
    assert len(again.text.splitlines()) == 1  # kept
    bad = client.post("/api/levers", json={"model": "no-such", "gpu": "80GB"}, headers=headers)
    assert json.loads(bad.text.splitlines()[-1])["error"]["field"] == "model"


@pytest.mark.parametrize(
    ("together", "field"),
    [("no-such-lever", "--together"), (";".join(f"x{i}" for i in range(17)), "together")],
)
def test_levers_that_are_not_there(client: Any, together: str, field: str) -> None:
    reply = client.post(f"/api/levers?together={together}", json=REFERENCE.scenario)
    assert reply.status_code == 422 and reply.json()["error"]["field"] == field


def test_levers_end_when_the_reader_leaves(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The work is asked to stop before its next Plan."""
    begun, ended = threading.Event(), threading.Event()

    def slow(given: Any, *, listener: LineListener, **_: Any) -> dict[str, Any]:
        begun.set()
        if listener.stop.wait(20):
            ended.set()
        return {}

    monkeypatch.setattr(levers, "answer", slow)
    for accept in ("application/json", NDJSON):
        begun.clear()
        ended.clear()
        wire = http.client.HTTPConnection(address.split("/")[2])
        body = json.dumps({**REFERENCE.scenario, "context_tokens": 30000})
        wire.request(
            "POST", "/api/levers", body, {"content-type": "application/json", "accept": accept}
        )
        assert begun.wait(10)
        wire.close()
        assert ended.wait(10), accept


def test_a_stop_ends_the_levers_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(levers, "EVERY", 1)
    told: list[int] = []

    class Leaving(LineListener):
        def say(self, value: dict[str, Any]) -> None:
            told.append(value["planned"])
            if value["planned"] == 5:
                self.stop.set()

    with pytest.raises(Gone):
        levers.answer(REFERENCE.scenario, together=None, listener=Leaving())
    assert told == [0, 1, 2, 3, 4, 5]


# ---- reality ----


@pytest.mark.parametrize("asked", [*(p.scenario for p in PRESETS), {**H100, "engine": "sglang"}])
def test_stairs_lead_from_the_ceiling_to_the_shared(asked: dict[str, Any]) -> None:
    got = reality.answer(Scenario.from_dict(asked))
    stairs = got["figures"]["reality"]["stairs"]
    levels = {s["key"]: s["to"] for s in stairs if s["level"]}
    assert list(levels) == ["ceiling", "engine", "expected", "shared"]
    drawn, _ = reality.asked_of(Scenario.from_dict(asked))
    plan = work(drawn).plan
    capacity, copies = plan.capacity, plan.scenario.dp
    assert levels["ceiling"] == capacity.ceiling.exact  # type: ignore[union-attr]
    assert levels["engine"] == capacity.engine.max_concurrency * copies  # type: ignore[union-attr, operator]
    assert levels["expected"] == capacity.expected.requests
    assert levels["shared"] == capacity.shared.requests
    at_now, slack = 0.0, 0.0
    for s in stairs:
        if s["level"]:
            assert at_now in (0.0, pytest.approx(s["to"], rel=0.005, abs=slack))
        else:
            assert s["from"] == pytest.approx(at_now, rel=0.005)
            assert s["change"] == s["to"] - s["from"]
        at_now = s["to"]
    told = explained(plain(got))
    assert len([f for f in told if f.startswith("figures.reality.stairs.")]) == len(stairs)


def test_what_stands_in_is_said() -> None:
    def stands(**more: Any) -> list[str]:
        asked = Scenario.from_dict({**REFERENCE.scenario, **more})
        return list(reality.answer(asked)["figures"]["reality"]["stands_in"])

    lengths = reality.LENGTHS[1]["workload"]
    assert stands() == ["engine", "lengths"]
    assert stands(engine="vllm") == ["lengths"]
    assert stands(engine="vllm", workload=lengths) == []
    for x in reality.LENGTHS:
        asked = Scenario.from_dict({**H100, "context_tokens": 32768, "workload": x["workload"]})
        figure = reality.answer(asked)["figures"]["reality"]
        assert figure["length"] == x["id"]
        assert {"expected", "shared"} <= {s["key"] for s in figure["stairs"]}


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (12.9, "12.9 is what is to be expected (predicted 12.9, 12.6 to 13.0 likely)"),
        (40, "40 is more than arithmetic has room for (16.7)"),
        (14.5, "14.5 is more than likely"),
        (2, "2 is fewer than likely"),
    ],
)
def test_what_ones_own_engine_says_is_held_against_the_estimate(
    client: Any, said: float, words: str
) -> None:
    got = client.post(f"/api/reality?says={said}", json=REFERENCE.scenario).json()
    figure = got["figures"]["reality"]
    assert figure["against"].startswith(words)
    keys = [s["key"] for s in figure["stairs"]]
    assert keys[keys.index("engine") + 1] == "said"
    assert figure["stairs"][keys.index("said")]["to"] == said
    assert f"figures.reality.stairs.{keys.index('said')}.to" in explained(got)
    if said < 16:
        taken = sum(-s["change"] for s in figure["stairs"] if s["change"] < 0)
        ceiling, engine = figure["stairs"][0]["to"], figure["stairs"][keys.index("engine")]["to"]
        assert (
            taken == pytest.approx(ceiling - engine, rel=0.005)
            and "kept free 2.4" in figure["against"]
        )
    plain_answer = client.post("/api/reality", json=REFERENCE.scenario).json()
    assert plain_answer["figures"]["reality"]["against"] == ""


@pytest.mark.parametrize("said", ["many", "-1", "nan", "1e99", ""])
def test_what_is_no_number_of_requests(client: Any, said: str) -> None:
    reply = client.post(f"/api/reality?says={said}", json=REFERENCE.scenario)
    assert reply.status_code == 422
    assert reply.json()["error"]["field"] == "says" and reply.json()["error"]["fix"]


def test_a_shorter_request_leaves_a_part_of_its_last_block() -> None:
    got = reality.answer(Scenario.from_dict({**H100, "context_tokens": 4090}))
    step = next(s for s in got["figures"]["reality"]["stairs"] if s["key"] == "last-blocks")
    assert step["to"] == pytest.approx(step["from"] * 4090 / 4096)


# ---- files ----


def test_a_log_is_reconciled_as_the_command_line_does(client: Any, tmp_path: Path) -> None:
    got = drop(client, LOG.encode(), H100).json()
    (tmp_path / "vllm.log").write_text(LOG)
    words = ["reconcile", str(tmp_path / "vllm.log"), "--gpu", "H100-SXM", "--json"]
    want = json.loads(CliRunner().invoke(main, words).stdout)
    assert got["kind"] == "log" and got["reconciliation"] == want
    levels = {s["key"]: s["to"] for s in got["figures"]["reality"]["stairs"] if s["level"]}
    assert levels["measured"] == 55.23
    assert levels["engine"] == want["predicted"]["max_concurrency"]
    off = got["file"]["difference"]
    ratio = 55.23 / levels["engine"]
    predicted, how = reality.requests(levels["engine"]), "more" if ratio >= 1 else "fewer"
    assert f"55.2 where {predicted} was predicted: {abs(ratio - 1):.1%} {how}" in off["sentence"]
    assert off["account"] == "kv" and "--gpu-memory-utilization" in off["flag"]
    assert off["reason"] == f"cache: {want['accounts'][-1]['reason']}"
    assert any("gpu is not in the file" in n for n in got["file"]["notes"])
    assert got["asked"]["model"] == "Qwen/Qwen2.5-14B-Instruct"
    assert "known_bytes" not in got["asked"]
    explained(got)


def test_metrics_yield_their_blocks(client: Any) -> None:
    text = (
        "# TYPE vllm:cache_config_info gauge\n"
        'vllm:cache_config_info{block_size="16",cache_dtype="auto",gpu_memory_utilization="0.9",'
        'num_gpu_blocks="27000"} 1.0\n'
        "# TYPE vllm:num_requests_running gauge\n"
        'vllm:num_requests_running{model_name="meta-llama/Llama-3.1-8B-Instruct"} 3.0\n'
    )
    asked = {"model": "llama-3.1-8b", "gpu": "H100-SXM"}
    got = drop(client, text.encode(), asked).json()
    assert got["reconciliation"]["printed"]["num_blocks"] == 27000
    (stair,) = (s for s in got["figures"]["reality"]["stairs"] if s["key"] == "measured")
    assert stair["to"] == 27000 / (131072 / 16)  # blocks of one request of the model's limit
    assert "27,000 blocks of 16 tokens are printed" in got["file"]["notes"]
    assert got["file"]["difference"]["sentence"].startswith("The engine printed 3.3")


def test_a_log_is_taken_packed_and_on_any_question(client: Any) -> None:
    assert (
        drop(client, gzip.compress(LOG.encode()), H100).json()
        == drop(client, LOG.encode(), H100).json()
    )
    for preset in PRESETS:
        got = drop(client, LOG.encode(), preset.scenario).json()
        assert got["reconciliation"]["engine_version"] == "0.21.0"


def test_another_model_than_the_one_asked_about_is_doubted() -> None:
    foreign = LOG.replace("Qwen/Qwen2.5-14B-Instruct", "someone/tiny")
    off = dropped.answer(foreign.encode(), {**H100, "model": "llama-3-8b", "gpu": "H200-SXM"})
    told = off["file"]["difference"]
    assert "another model" in told["reason"] and "times as many" in told["sentence"]


def test_metrics_are_a_measurement(client: Any) -> None:
    got = drop(client, gzip.decompress(METRICS), {"model": "qwen3-8b", "gpu": "H100-SXM"}).json()
    measured = [s for s in got["figures"]["reality"]["stairs"] if s["key"] == "measured"]
    assert [s["to"] for s in measured] == [2.5]


def test_a_config_becomes_the_model(client: Any) -> None:
    config = dict(config_of("llama-3-8b"))
    got = drop(client, json.dumps(config).encode(), H100).json()
    assert got["kind"] == "config" and got["asked"]["model"] == {"config": config}
    assert got["weights"]["params"] == work(Scenario.from_dict(got["asked"])).plan.weights.params
    assert got["asked"]["gpu"] == "H100-SXM"


def safetensors(shapes: dict[str, list[int]]) -> bytes:
    header: dict[str, Any] = {}
    end = 0
    for name, shape in shapes.items():
        size = 2 * shape[0] * shape[1]
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text


def test_a_safetensors_header_is_weighed(client: Any) -> None:
    got = drop(client, safetensors({"a": [4096, 1024], "b": [1024, 1024]}), H100).json()
    line = got["file"]["lines"][0]
    assert got["kind"] == "safetensors" and line["printed_bytes"] == 2 * 5 * 1024 * 1024
    assert line["predicted_bytes"] == got["weights"]["bytes"]
    assert "one file of several" in line["reason"]


def test_a_gguf_header_becomes_the_model(client: Any, tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    numpy = pytest.importorskip("numpy")
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in {
        "context_length": 4096, "embedding_length": 256, "block_count": 2,
        "feed_forward_length": 512, "head_count": 8, "head_count_kv": 2,
    }.items():  # fmt: skip
        getattr(writer, f"add_{key}")(value)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(512)
    writer.add_file_type(1)
    made = {
        "token_embd.weight": (512, 256),
        "output_norm.weight": (256,),
        "output.weight": (512, 256),
    }
    for i in range(2):
        made |= {f"blk.{i}.{n}.weight": s for n, s in {
            "attn_norm": (256,), "ffn_norm": (256,), "attn_q": (256, 256), "attn_k": (64, 256),
            "attn_v": (64, 256), "attn_output": (256, 256), "ffn_gate": (512, 256),
            "ffn_up": (512, 256), "ffn_down": (256, 512)}.items()}  # fmt: skip
    for name, shape in made.items():
        kind = numpy.float32 if len(shape) == 1 else numpy.float16
        writer.add_tensor(name, numpy.zeros(shape, kind))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    got = drop(client, path.read_bytes(), H100).json()
    assert got["kind"] == "gguf" and got["asked"]["weight_dtype"] == "fp16"
    line = got["file"]["lines"][0]
    assert line["printed_bytes"] == sum(
        (4 if len(s) == 1 else 2) * numpy.prod(s) for s in made.values()
    )
    assert abs(line["difference_bytes"]) < line["printed_bytes"] / 100
    assert got["kv"]["bytes_per_token"] == 2 * 2 * 64 * 2


@pytest.mark.parametrize(
    "data",
    [b"nothing of the kind\n" * 9, b"{}", b"GGUF", b"\x1f\x8b\x08 no", b"[1, 2]", b"\0" * 64],
)
def test_files_that_are_nothing(client: Any, data: bytes) -> None:
    reply = drop(client, data, H100)
    assert reply.status_code == 422
    assert set(reply.json()["error"]) == {"field", "value", "message", "fix"}


def test_no_file_is_opened_that_a_log_names(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(dict(config_of("llama-3-8b"))))
    named = LOG.replace("Qwen/Qwen2.5-14B-Instruct", str(config))
    got = dropped.answer(named.encode(), H100)
    assert got["asked"]["model"] == "qwen2.5-14b"
    assert any("model is not in the file" in n for n in got["file"]["notes"])


def test_what_unfolds_too_far_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dropped, "MOST_UNFOLDED", 1000)
    with pytest.raises(KvroomError, match="unfolds to more"):
        dropped.unfolded(gzip.compress(b"x" * 5000))


def test_too_large_a_file_is_refused_unread(address: str) -> None:
    wire = socket_to(address)
    head = f"POST /api/reconcile?s= HTTP/1.1\r\nHost: {address.split('/')[2]}\r\n"
    head += "Content-Type: application/octet-stream\r\n"
    long = head + f"Content-Length: {UPLOAD.bytes + 1}\r\n\r\n"
    wire.sendall(long.encode())
    assert b" 413 " in wire.recv(4096).split(b"\r\n")[0]
    wire.close()
    wire = socket_to(address)
    wire.sendall((head + "Transfer-Encoding: chunked\r\n\r\n").encode())
    chunk = b"100000\r\n" + b"x" * 2**20 + b"\r\n"
    sent = 0
    try:
        for _ in range(64):
            wire.sendall(chunk)
            sent += 2**20
    except OSError:
        pass
    wire.close()
    assert sent < 2 * UPLOAD.bytes


def socket_to(address: str) -> Any:
    import socket

    host, port = address.split("/")[2].split(":")
    return socket.create_connection((host, int(port)), timeout=20)


def test_only_bytes_are_taken_as_a_file(client: Any) -> None:
    reply = client.post("/api/reconcile", content=LOG, headers={"content-type": "text/plain"})
    assert reply.status_code == 415
    assert drop(client, b"", H100).status_code == 422
    reply = client.post("/api/reconcile?s=9.x", content=LOG.encode(), headers=OCTETS)
    assert reply.status_code == 422 and reply.json()["error"]["field"] == "link"


def test_nothing_is_written_to_disk(
    client: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    before = set(tmp_path.rglob("*"))
    assert drop(client, LOG.encode() + b"#" * 2**21, H100).status_code == 200
    assert set(tmp_path.rglob("*")) == before


def test_the_engine_that_stands_in_takes_requests_beyond_the_models_limit() -> None:
    """The story's question is longer than its model states, and arithmetic's: vLLM is told to take it."""
    asked = {"model": "llama-3-70b", "gpu": "80GB", "gpu_count": 4, "context_tokens": 32768}
    drawn = reality.answer(Scenario.from_dict({**asked, "engine": "arithmetic"}))
    stairs = {stair["key"]: stair["to"] for stair in drawn["figures"]["reality"]["stairs"]}
    assert {"engine", "expected", "shared"} <= set(stairs)
    assert stairs["engine"] > 10
    own = reality.answer(Scenario.from_dict({**asked, "engine": "vllm"}))
    assert not own["verdict"]["fits"]  # who asks for vLLM is told that it would not start


@pytest.mark.parametrize("key", ["tp", "pp", "dp"])
def test_engines_of_every_layout_are_taken_away(client: TestClient, key: str) -> None:
    asked = {"model": "llama-3-8b", "gpu": "H100-SXM", "gpu_count": 4, key: 4}
    lines = client.post("/api/commands", json=asked).json()
    assert len(lines) >= 3
    assert all("meta-llama/" in line and "8192" in line for line in lines.values())
