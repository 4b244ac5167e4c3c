"""Asking an engine and judging its answers: against an imitation whose counters can be reckoned."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import completions_server
from kvroom.errors import KvroomError
from kvroom.observe.prove import session
from kvroom.observe.prove.completions import Ask, AskedEngine
from kvroom.observe.prove.experiments import Lab, MeasuredStep, Measurements, ids
from kvroom.observe.prove.proof import calibrated, errors, prove
from kvroom.observe.prove.quiet import Meter, between
from kvroom.scenario.scenario import Scenario
from kvroom.ui import codec, proof_page
from kvroom.ui.cli.main import main
from kvroom.ui.terminal import prove as text_of
from support import check_told

pytest.importorskip("prometheus_client")

GOLDEN = Path(__file__).parents[1] / "golden" / "proof_vllm_0.32.0.json.gz"
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 512,
    "max_position_embeddings": 8192,
}
CPU = {
    "name": "a CPU",
    "vendor": "cpu",
    "memory_bytes": 2**34,
    "memory_bytes_per_s": 1e10,
    "flops_per_s": {"bf16": 1e11},
}


def scenario(blocks=1000, **args):
    return Scenario.from_dict(
        {
            "model": {"config": CONFIG},
            "gpu": CPU,
            "engine": "vllm",
            "engine_version": "0.32.0",
            "engine_args": {
                "max_model_len": 2048,
                "block_size": 32,
                "num_gpu_blocks_override": blocks,
                **args,
            },
        }
    )


def test_tokens_and_their_times_are_heard():
    with completions_server.serving() as server:
        engine = AskedEngine.at(server.address)
        (heard,) = engine.one_by_one([Ask([11, 12, 13], 5)])
        assert engine.model == "imitation"
    assert heard.answer == [36, 37, 38, 39, 40]
    assert heard.error == ""
    assert len(heard.tokens_s) == 5
    assert heard.tokens_s == sorted(heard.tokens_s)
    assert heard.ttft_s > 0
    assert server.asked[0]["ignore_eos"] is True


def test_requests_together_are_sent_at_their_times():
    seen = []
    with completions_server.serving() as server:
        engine = AskedEngine.at(server.address)
        asks = [Ask([i], 3, i * 0.05) for i in range(3)]
        heard = engine.together(asks, lambda i, n: seen.append((i, n)))
    assert all(h.sent_s >= h.ask.at_s for h in heard)
    assert sorted(seen) == [(i, n) for i in range(3) for n in (1, 2, 3)]


@pytest.mark.parametrize("told", ['["x"]', "[null]", '"7"', "[1.5]", "{}", "[[1]]"])
def test_ids_that_are_none_are_an_error_of_the_request(told, monkeypatch):
    real = json.dumps
    monkeypatch.setattr(
        completions_server.json, "dumps",
        lambda v: '{"choices": [{"token_ids": ' + told + "}]}" if "choices" in v else real(v),
    )  # fmt: skip
    with completions_server.serving() as server:
        engine = AskedEngine.at(server.address)
        heard = engine.together([Ask([11, 12], 3)])
    assert [h.error for h in heard] == ["0 of 3 tokens came"]


@pytest.mark.parametrize("broken", ["status", "cut"])
def test_an_engine_that_fails_is_told(broken):
    with completions_server.serving() as server:
        lab = Lab(AskedEngine.at(server.address), Meter(None), 512)
        server.status = 400 if broken == "status" else 200
        server.cut_after = 2 if broken == "cut" else None
        with pytest.raises(KvroomError) as e:
            lab.warm()
    check_told(e.value)
    assert "400" in str(e.value) if broken == "status" else "2 of 4 tokens" in str(e.value)


def test_prompts_begin_differently_and_a_small_vocabulary_is_refused():
    lab = Lab(None, Meter(None), 512)
    prompts = [ids(lab.fresh(700)) for _ in range(100)]
    assert len({p[0] for p in prompts}) == 100
    assert {len(p) for p in prompts} == {700}
    assert min(map(min, prompts)) >= 10
    assert max(map(max, prompts)) < 512
    with pytest.raises(KvroomError, match="vocabulary"):
        for _ in range(300):
            lab.fresh(3)


def test_conversations_of_an_endless_cache_come_out_exactly():
    with completions_server.serving() as server:
        lab = Lab(AskedEngine.at(server.address), Meter(None), 512, seed=3)
        talk = lab.conversations("t", users=3, turns=3, system_tokens=100, most_tokens=900)
    assert len(talk.requests) == 9
    assert max(sum(n for _, n in r.prompt) + len(r.answer) for r in talk.requests) <= 900
    proof = prove("t", scenario(), {"num_blocks": 1000}, Measurements(workloads=[talk]))
    assert talk.counters["hits"] > 2000
    assert [(r.predicted, r.holds) for r in proof.counts] == [
        (talk.counters[c], True) for c in ("queries", "hits", "preemptions")
    ]
    assert proof.exact
    small = prove(
        "t",
        scenario(blocks=35, max_model_len=1024),
        {"num_blocks": 35},
        Measurements(workloads=[talk]),
    )
    assert not small.exact  # an engine of so few blocks would have found less
    assert not prove("t", scenario(), {"num_blocks": 999}, Measurements()).exact


def test_first_tokens_asked_again_are_found():
    with completions_server.serving() as server:
        lab = Lab(AskedEngine.at(server.address), Meter(None), 512)
        firsts = lab.firsts([64, 200])
    assert [f.cached_tokens for f in firsts] == [0, 32, 0, 192]
    rows = prove("t", scenario(), {}, Measurements(firsts=firsts)).firsts
    assert [r.cached_tokens for r in rows] == [0, 32, 0, 192]
    assert rows[2].predicted_s > 2 * rows[3].predicted_s


def test_steps_are_timed_while_all_decode():
    with completions_server.serving() as server:
        server.token_s = 0.004
        lab = Lab(AskedEngine.at(server.address), Meter(None), 512)
        steps = lab.steps([1, 2, 4], [64, 128], most_tokens=300, repeats=1)
    found = {(s.concurrency, s.context_tokens // 64) for s in steps}
    # One that ends before the last begins is left out; alone there is no other.
    assert {(1, 1), (1, 2)} <= found <= {(1, 1), (2, 1), (4, 1), (1, 2), (2, 2)}
    assert len(server.asked) == 1 + 2 + 4 + 1 + 2
    assert {s.context_tokens for s in steps if s.concurrency == 1} == {64 + 16, 128 + 16}
    assert all(s.step_s == s.wall_s > 0.003 for s in steps)
    assert {s.disturbed for s in steps} == {None}


def test_what_the_engine_cannot_hold_is_not_asked():
    question = scenario(max_num_seqs=2, max_model_len=256)
    with completions_server.serving() as server:
        server.token_s = 0.002
        run = session.measured(server.address, question, ("steps", "firsts"))
    measured = Measurements.from_dict(run["measured"])
    assert {s.concurrency for s in measured.steps} <= {1, 2}
    assert max(f.input_tokens for f in measured.firsts) == 64
    assert max(len(a["prompt"]) + a["max_tokens"] for a in server.asked) <= 256
    small = scenario(max_model_len=128)
    with completions_server.serving() as server:
        run = session.measured(server.address, small, ("steps", "conversations"))
    assert run["measured"]["steps"] == []
    assert max(len(a["prompt"]) + a["max_tokens"] for a in server.asked) <= 128


def made_steps(factor):
    """Steps that take ``factor`` times what the plan says."""
    blank = {"wall_s": 1.0, "disturbed": None, "spans": 1}
    shape = [(b, c) for c in (128, 1024) for b in (1, 2, 4, 8)]
    steps = [MeasuredStep(concurrency=b, context_tokens=c, step_s=1.0, **blank) for b, c in shape]
    said = prove("t", scenario(), {}, Measurements(steps=steps)).steps
    return [replace(s, step_s=factor * r.predicted_s) for s, r in zip(steps, said, strict=True)]


def test_steps_are_judged_by_a_calibration_of_the_other_half():
    proof = prove("t", scenario(), {}, Measurements(steps=made_steps(1.5)))
    off = errors(proof.steps)
    assert off["predicted"]["median"] == pytest.approx(1 / 3)
    assert off["predicted"]["near"] == 0
    assert off["calibrated"]["largest"] < 0.05
    assert off["calibrated"]["near"] == 8
    tuned = calibrated(scenario(), made_steps(1.5)).calibration
    assert len(tuned["times"]["points"]) == 8
    few = prove("t", scenario(), {}, Measurements(steps=made_steps(1.5)[:3])).steps
    assert {r.calibrated_s for r in few} == {None}


def test_what_others_had_is_left_out():
    s = 10**9
    before = {"1/1": (0, 0), "1/2": (0, 0), "1/3": (5 * s, 0)}
    after = {"1/1": (4 * s, 3 * s), "1/2": (s, s), "1/3": (5 * s, 9 * s), "1/4": (9 * s, 0)}
    span = between(before, after, 10.0)
    assert (span.ran_s, span.undisturbed_s) == (4.0, 6.0)
    assert span.disturbed == pytest.approx(0.4)
    assert between(before, after, 5.0).undisturbed_s == 4.0  # no less than it ran
    assert between({}, {}, 5.0).seconds == 5.0


def test_a_meter_sees_a_busy_process_and_what_it_starts():
    import os

    meter = Meter(os.getpid())
    meter.begin()
    while meter.end().ran_s < 0.02:
        pass
    span = meter.end()
    # What has run is counted in ticks of the scheduler, so it can be one ahead of the clock.
    assert 0.02 <= span.ran_s <= span.wall_s + 0.02
    assert span.seconds <= span.wall_s


def test_the_command_asks_records_and_judges_again(tmp_path):
    question, rec, page = tmp_path / "q.json", tmp_path / "rec.json", tmp_path / "p.html"
    question.write_text(json.dumps(scenario().to_dict()))
    asked = ["--scenario", str(question), "--only", "firsts", "--only", "conversations"]
    run = CliRunner().invoke
    with completions_server.serving() as server:
        told = run(
            main, ["prove", server.address, *asked, "--record", str(rec), "--html", str(page)]
        )
    assert told.exit_code == 0, told.output
    assert "Cache blocks exact on 1 of 1 engines. 3 of 3 counters" in told.output
    again = run(main, ["prove", str(rec), "--json"])
    value = json.loads(again.output)
    assert value["engines"][0]["exact"] is True
    html = page.read_text()
    assert not re.search(r"https?://(?!www\.w3)", html)
    assert "prefers-color-scheme: dark" in html
    assert ">conversations, hits<" in html


def test_the_plots_hold_every_measured_point():
    proof = prove("A <b>", scenario(), {"num_blocks": 1000}, Measurements(steps=made_steps(1.2)))
    html = proof_page.render([proof], {"machine": "<x>"})
    assert html.count("<circle") == 3 * 8
    assert html.count("<svg") == 3
    assert "<b>" not in html
    assert "<x>" not in html


@pytest.mark.parametrize(
    "text", ["{}", '{"kvroom_proof": 1}', '{"kvroom_proof": 1, "runs": [3], "about": {}}']
)
def test_a_wrong_record_is_told(tmp_path, text):
    path = tmp_path / "r.json"
    path.write_text(text)
    with pytest.raises(KvroomError) as e:
        session.read_record(codec.read_json(str(path), "record"), str(path))
    check_told(e.value)


ODD = ("x", -1, 0, None, [], {}, 1e300, 10**12)


@pytest.mark.parametrize("odd", ODD)
def test_a_record_of_odd_values_is_told(tmp_path, odd):
    real = json.loads(gzip.decompress(GOLDEN.read_bytes()))
    path = tmp_path / "r.json"
    places = [
        (part, key)
        for part in ("steps", "firsts", "workloads")
        for key in real["runs"][0]["measured"][part][0]
    ]
    for part, key in [*places, *(("served", k) for k in ("at_s", "prompt", "answer", "e2e_s"))]:
        if (
            key == "one_by_one"
            or (key in ("cached_tokens", "at_s", "disturbed") and not odd)
            or (key == "name" and odd == "x")
        ):
            continue  # it may be so
        record = json.loads(json.dumps(real))
        run = record["runs"][0]["measured"]
        place = run["workloads"][0]["requests"][0] if part == "served" else run[part][0]
        place[key] = odd
        path.write_text(json.dumps({**record, "runs": record["runs"][:1]}))
        with pytest.raises(KvroomError) as e:
            session.read_record(codec.read_json(str(path), "record"), str(path))
        check_told(e.value)


def test_nothing_there_is_told():
    asked = ["llama-3-8b", "--gpu", "H100-SXM", "--engine", "vllm"]
    told = CliRunner().invoke(main, ["prove", "http://u:secret@127.0.0.1:9", *asked])
    assert told.exit_code == 2
    assert "secret" not in told.output
    assert "'http://127.0.0.1:9/metrics' gave no answer: nothing listens there" in told.output


def refused(*more):
    """What stands in the way before a server is asked for minutes."""
    asked = ["prove", "http://127.0.0.1:9", "llama-3-8b", "--gpu", "H100-SXM", "--engine", "vllm"]
    told = CliRunner().invoke(main, [*asked, *more])
    assert told.exit_code == 2, told.output
    return told.output


@pytest.mark.parametrize("flag", ["--record", "--html"])
def test_a_file_that_cannot_be_written_is_told_before_anything_is_asked(tmp_path, flag):
    assert f"{flag}: " in refused(flag, str(tmp_path / "nowhere" / "x"))
    assert "nothing listens" in refused(flag, str(tmp_path / "x"))
    assert not (tmp_path / "x").exists()
    (tmp_path / "mine").write_text("mine")
    refused(flag, str(tmp_path / "mine"))
    assert (tmp_path / "mine").read_text() == "mine"


def test_a_process_that_is_none_and_another_engine_are_refused():
    assert "--pid: 4194999 is no process here" in refused("--pid", "4194999")
    assert "engine: 'sglang' is not asked in token ids" in refused("--engine", "sglang")


def test_no_line_is_wider_than_a_terminal():
    about = {"times": "the engine's own: " + "by the clock, less what others took, " * 4}
    text = text_of.show([], about)
    assert max(map(len, text.splitlines())) <= 80
