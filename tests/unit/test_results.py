"""What simulations, reuse and comparisons turn to: plain values, rows, data frames, reports."""

import json

import pytest

import kvroom
from kvroom.workloads.synthetic import parse

LOAD = {"arrivals": "poisson:4/s", "input": "uniform:200-800", "output": 50, "requests": 40}


@pytest.fixture(scope="module")
def simulation():
    return kvroom.simulate(
        "llama-3-8b", "H100-SXM", workload=LOAD, seed=3, seeds=2, slo="ttft_p95=5s"
    )


def test_a_simulation_has_a_row_a_request(simulation):
    told = simulation.to_dict()
    assert told == json.loads(json.dumps(told))
    assert told["slo"]["ttft_p95"]["met"]
    assert told["bands"]["seeds"] == 2
    rows = simulation.rows()
    assert sorted(r["request"] for r in rows) == list(range(40))
    assert all(r["status"] == "completed" and r["output_tokens"] == 50 for r in rows)
    mean = sum(r["ttft_s"] for r in rows) / len(rows)
    assert mean == pytest.approx(told["ttft_s"]["mean"])
    assert simulation.line()[-1]["done"] == 40


def test_rows_need_not_be_kept(simulation):
    bare = kvroom.simulate("llama-3-8b", "H100-SXM", workload=LOAD, seed=3, keep_requests=False)
    assert bare.rows() == []
    assert bare.figures["ttft_s"] == simulation.figures["ttft_s"]


def test_a_trace_is_played_and_its_bad_lines_told(tmp_path):
    trace = tmp_path / "trace.jsonl"
    lines = ['{"timestamp": 0, "input_length": 100, "output_length": 9}', "{", "{}"]
    trace.write_text("\n".join(lines) + "\n")
    found = kvroom.simulate("llama-3-8b", "H100-SXM", trace=trace, skip_bad_lines=True)
    assert found.figures["requests"]["completed"] == 1
    assert any("2 bad lines" in w for w in found.figures["warnings"])
    with pytest.raises(kvroom.KvroomError, match="seeds"):
        kvroom.simulate("llama-3-8b", "H100-SXM", trace=trace, seeds=2)


def test_nothing_to_serve_is_told():
    with pytest.raises(kvroom.KvroomError, match="no requests to serve"):
        kvroom.simulate("llama-3-8b", "H100-SXM")


def test_reuse_tells_policies_and_what_is_unknown():
    chats = parse("input=300,output=100,turns=4,requests=40,arrivals=poisson:1/s,seed=1")
    found = kvroom.reuse(chats, policies=["lru", "belady"], capacities=[100, 500])
    rows = {(r["policy"], r["blocks"]): r["hit_ratio"] for r in found.rows()}
    assert len(rows) == 4
    assert rows["lru", 100] <= rows["belady", 100] <= rows["belady", 500]
    assert found.to_dict()["references"] == len(found.reuse.refs.blocks)
    unknown = kvroom.reuse([r._replace(prefix=None) for r in chats])
    assert any("say nothing" in w for w in unknown.warnings)


def test_a_comparison_names_what_differs():
    asked = {"model": "llama-3-70b", "gpu": "80GB", "gpu_count": 4, "engine": "arithmetic"}
    asked["context_tokens"] = "32K"
    found = kvroom.compare(asked, asked | {"kv_dtype": "fp8"})
    assert found.differences() == ["kv_dtype"]
    assert [(r["kv_dtype"], r["requests"]) for r in found.rows()] == [("auto", 16), ("fp8", 33)]
    assert [p["capacity"]["ceiling"]["requests"] for p in found.to_dict()["plans"]] == [16, 33]
    with pytest.raises(kvroom.KvroomError, match="too few"):
        kvroom.compare(asked)


def test_every_answer_is_a_frame_and_a_report(simulation):
    pytest.importorskip("pandas")
    chats = parse("input=300,output=100,turns=2,requests=10,arrivals=poisson:1/s,seed=1")
    asked = {"model": "llama-3-8b", "gpu": "H100-SXM"}
    found = [
        simulation,
        kvroom.reuse(chats),
        kvroom.compare(asked, asked | {"kv_dtype": "fp8"}),
        kvroom.levers("llama-3-8b", "80GB", context_tokens="8K", engine="arithmetic"),
    ]
    for each in found:
        frame = each.to_frame()
        assert len(frame) == len(each.rows()) > 0
        assert list(frame.columns) == list(each.rows()[0])
        page = each.to_html()
        assert page.startswith("<!doctype html>")
        assert "<script" not in page
        assert page.count("<table") == page.count("</table>") > 0
