"""Logs whose rows name their sessions: what each format says, what waits for what, what is wrong with one."""

import gzip
import json

import pytest

from kvroom import api
from kvroom.errors import KvroomError
from kvroom.workloads.requests import HashIds, Request, TokenIds
from kvroom.workloads.sessions import SessionOrder, grouped
from kvroom.workloads.traces.reader import Trace

S = 10**12


@pytest.fixture
def read(tmp_path):
    def opened(content, name="trace", **options):
        path = tmp_path / name
        data = content if isinstance(content, bytes) else content.encode()
        path.write_bytes(data)
        return Trace(path, **options)

    return opened


def lines(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def rows(trace):
    return [(r.arrival_ps / S, r.input_tokens, r.output_tokens, r.session) for r in trace]


def span(name, begin_s, end_s, prompt=None, answer=None, *, parent="", **more):
    told = {"gen_ai.operation.name": "chat", **more}
    if prompt is not None:
        told["gen_ai.usage.input_tokens"] = prompt
        told["gen_ai.usage.output_tokens"] = answer
    values = [
        {"key": k, "value": {"intValue": str(v)} if type(v) is int else {"stringValue": v}}
        for k, v in told.items()
    ]
    return {
        "traceId": "t",
        "spanId": name,
        "parentSpanId": parent,
        "startTimeUnixNano": str(10**18 + int(begin_s * 10**9)),
        "endTimeUnixNano": str(10**18 + int(end_s * 10**9)),
        "attributes": values,
    }


def exported(*spans):
    return {"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]}


FORKED = (
    span("a", 0, 2, 1000, 100, parent="root"),
    span("tool", 2, 3, parent="root", **{"gen_ai.operation.name": "execute_tool"}),
    span("b", 3, 9, 500, 50, parent="sub1"),
    span("c", 4, 6, 400, 40, parent="sub2"),
    span("d", 7, 8, 500, 30, parent="sub2"),
    span("e", 10, 12, 1400, 20, parent="root"),
)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("one_line", [False, True])
def test_spans_are_requests_that_fork_and_join(read, packed, one_line):
    text = lines(exported(*FORKED)) if one_line else lines(*(exported(s) for s in FORKED))
    trace = read(gzip.compress(text.encode()) if packed else text)
    assert trace.format.name == "OpenTelemetry spans"
    assert rows(trace)[0] == (0, 1000, 100, "t")
    (graph,) = grouped(trace).graphs
    # b and c wait for a, d for c, e for b and d: what ended when they came and nobody waited for.
    assert graph.after == ((), (0,), (0,), (2,), (1, 3))
    assert [r.think_ps / S for r in graph.requests] == [0, 1, 2, 1, 1]
    assert any("no call of a model" in note for note in trace.counts.notes())


def test_spans_tell_what_was_cached_or_the_text_itself(read):
    trace = read(
        lines(
            exported(span("a", 0, 1, 1000, 100)),
            exported(span("b", 2, 3, 1200, 9, **{"gen_ai.usage.cache_read.input_tokens": 640})),
        )
    )
    first, second = trace
    assert isinstance(second.prefix, HashIds)
    size = second.prefix.tokens
    shared = sum(a == b for a, b in zip(first.prefix.ids, second.prefix.ids, strict=False))
    assert shared * size == 640
    words = json.dumps([{"role": "user", "parts": [{"type": "text", "content": "word " * 400}]}])
    said = json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": "yes"}]}])
    told = {"gen_ai.input.messages": words, "gen_ai.output.messages": said}
    (only,) = read(lines(exported(span("a", 0, 1, **told))))
    assert only.input_tokens == pytest.approx(500, abs=10)


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (span("a", 5, 4, 10, 1), "is before the span's start"),
        (span("a", -(10**10), 4, 10, 1), "negative"),
        (span("a", 0, 1), "no tokens of the prompt"),
        (span("a", 0, 1, 10, 1, parent="a"), "makes a cycle"),
        (span("a", 0, 1, -10, 1), "input_tokens"),
    ],
)
def test_a_bad_span_is_named_alone(read, bad, why):
    text = lines(exported(span("x", 0, 1, 10, 1), bad, span("y", 2, 3, 20, 2)))
    with pytest.raises(KvroomError, match=why):
        list(read(text))
    trace = read(text, skip_bad_lines=True)
    assert [r.input_tokens for r in trace] == [10, 20]
    assert trace.counts.skipped_lines == 1


def test_a_cycle_of_several_spans_is_found(read):
    spans = [span("a", 0, 1, 5, 1, parent="b"), span("b", 2, 3, 5, 1, parent="a")]
    with pytest.raises(KvroomError, match="makes a cycle with span b"):
        list(read(lines(*(exported(s) for s in spans))))


ROUND = {
    "provider": "claude",
    "session_id": "s",
    "input_tokens_total": 32_272,
    "prefix_tokens": 27_217,
    "output_tokens": 931,
    "timing_events": [
        {"event_type": "user_message", "timestamp": "2026-06-01T05:40:20.151Z"},
        {"event_type": "reasoning", "timestamp": "2026-06-01T05:40:29.420Z"},
        {"event_type": "tool_call", "timestamp": "2026-06-01T05:40:31.647Z"},
    ],
}


def test_tracelab_rounds(read):
    after = ROUND | {
        "input_tokens_total": 35_740,
        "prefix_tokens": 29_380,
        "timing_events": [
            {"event_type": "tool_result", "timestamp": "2026-06-01T05:40:50.938Z"},
            {"event_type": "text", "timestamp": "2026-06-01T05:41:04.609Z"},
        ],
    }
    trace = read(lines(ROUND, after))
    assert trace.format.name == "TraceLab"
    first, second = trace
    assert (second.arrival_ps - first.arrival_ps) / S == pytest.approx(30.787)
    assert first.took_ps / S == pytest.approx(11.496)
    shared = sum(a == b for a, b in zip(first.prefix.ids, second.prefix.ids, strict=False))
    assert shared == 29_380 // 64
    (graph,) = grouped(trace).graphs
    assert graph.requests[1].think_ps / S == pytest.approx(30.787 - 11.496)


VLLM = """\
INFO 09-10 19:10:43 [api_server.py:1881] vLLM API server version 0.10.1
INFO 09-10 19:10:44 [logger.py:39] Received request cmpl-1-0: prompt: 'a b', params: \
SamplingParams(n=1, max_tokens=16), prompt_token_ids: [1, 2, 3], prompt_embeds shape: None, \
lora_request: None.
INFO 09-10 19:10:45 [logger.py:39] Received request chatcmpl-2: prompt: 'What is it?', params: \
SamplingParams(n=1, max_tokens=99), prompt_token_ids: None, prompt_embeds shape: None, lora_request: None.
INFO 09-10 19:10:46 [logger.py:60] Generated response cmpl-1: output: 'so it is', output_token_ids: \
[7, 8], finish_reason: stop
INFO:     127.0.0.1:1 - "POST /v1/completions HTTP/1.1" 200 OK
"""


def test_vllms_own_log(read):
    trace = read(VLLM)
    assert trace.format.name == "vLLM request log"
    first, second = trace
    assert (first.input_tokens, first.output_tokens, first.took_ps / S) == (3, 2, 2)
    assert isinstance(first.prefix, TokenIds)
    assert (second.input_tokens, second.output_tokens) == (3, 99)
    notes = " ".join(trace.counts.notes())
    assert "max_tokens" in notes
    assert "4 bytes" in notes


def test_a_newer_vllm_hides_prompts_at_debug(read):
    text = VLLM.replace("prompt: 'What is it?', ", "").replace("prompt_token_ids: None, ", "")
    with pytest.raises(KvroomError, match="is not in the log: no length of a prompt"):
        list(read(text))
    detail = (
        "DEBUG 09-10 19:10:45 [logger.py:30] Request chatcmpl-2 details: prompt: 'x', "
        "prompt_token_ids: [5, 6, 7, 8], prompt_embeds shape: None.\n"
    )
    assert [r.input_tokens for r in read(detail + text)] == [3, 4]


def test_mooncake_sessions_with_delays(read):
    trace = read(
        lines(
            {"session_id": "a", "timestamp": 0, "input_length": 1024, "output_length": 10,
             "hash_ids": [1, 2]},
            {"session_id": "a", "delay": 500, "input_length": 1536, "output_length": 10,
             "hash_ids": [1, 2, 3]},
            {"session_id": "b", "timestamp": 2000, "input_length": 600, "output_length": 5,
             "hash_ids": [1, 9]},
        )
    )  # fmt: skip
    assert trace.format.name == "Mooncake sessions"
    first, second = sorted(grouped(trace).graphs, key=len)
    assert len(first) == 1
    assert second.after == ((), (0,))
    assert second.requests[1].think_ps == S // 2
    assert list(second.requests[1].prefix.ids) == [1, 2, 3]


def test_mooncake_deltas_are_told_and_added_up(read):
    trace = read(
        lines(
            {"session_id": "a", "timestamp": 0, "input_length": 1024, "output_length": 100,
             "hash_ids": [1, 2]},
            {"session_id": "a", "delay": 500, "input_length": 400, "output_length": 10,
             "hash_ids": [3]},
        )
    )  # fmt: skip
    first, second = trace
    assert (first.input_tokens, second.input_tokens) == (1024, 1524)
    assert list(second.prefix.ids[:2]) == [1, 2]
    assert any("on top of" in note for note in trace.counts.notes())


def test_mooncake_graphs_wait_for_what_they_name(read):
    def row(name, waits=(), **more):
        return {"request_id": name, "session_id": "s", "input_length": 512, "output_length": 9,
                "hash_ids": [1], **({"wait_for": list(waits)} if waits else {}), **more}  # fmt: skip

    text = lines(
        row("a", timestamp=0),
        row("b", ["a"], delay=100, tool_wait_ms=50),
        row("c", ["a"], delay=10),
        row("d", ["b", "c"]),
    )
    trace = read(text)
    (graph,) = grouped(trace).graphs
    assert graph.after == ((), (0,), (0,), (1, 2))
    assert [r.think_ps // 10**9 for r in graph.requests] == [0, 150, 10, 0]
    cycle = lines(row("a", timestamp=0), row("b", ["c"]), row("c", ["b"]))
    with pytest.raises(KvroomError, match="a cycle, or a row that is missing"):
        list(read(cycle))
    trace = read(cycle, skip_bad_lines=True)
    assert len(list(trace)) == 1
    assert trace.counts.skipped_lines == 2


def test_agentic_mooncake_with_a_header(read):
    head = {"schema": "dynamo.agentic_mooncake", "version": 1, "block_size": 64,
            "hash_id_scope": "local", "source": {"format": "weka", "digest": "x"}}  # fmt: skip

    def row(name, play, waits=(), **more):
        edges = [{"request_id": w, "relation": "r", "trigger": "t", "delay_ms": 5} for w in waits]
        return {"request_id": name, "play_id": play, "session_id": name, "model": "m",
                "input_length": 128, "output_length": 3, "hash_ids": [10, 20], "not_before_ms": 0.0,
                "recorded_api_time_ms": 7.0, "dependencies": edges, **more}  # fmt: skip

    trace = read(lines(head, row("a", "p"), row("b", "p", ["a"]), row("c", "q")))
    first, second = grouped(trace).graphs
    assert first.after == ((), (0,))
    assert second.after == ((),)
    assert first.requests[0].prefix.ids != second.requests[0].prefix.ids  # a scope of their own
    assert first.requests[0].prefix.tokens == 64


def test_litellm_payloads_with_digests(read):
    def payload(begin, ids, **more):
        return {"standard_logging_object": {
            "trace_id": "t", "startTime": begin, "endTime": begin + 2.5, "status": "success",
            "prompt_tokens": 40, "completion_tokens": 3,
            "metadata": {"prefix_block_hashes": {"hash_ids": ids, "block_size": 16}}, **more}}  # fmt: skip

    trace = read(lines(payload(100.0, ["00ff" * 4, "ab" * 8, "cd" * 8])))
    (only,) = trace
    assert only.prefix == HashIds(only.prefix.ids, 16)
    assert only.prefix.ids[0] == 0x00FF00FF00FF00FF
    assert only.took_ps / S == 2.5
    with pytest.raises(KvroomError, match="is before its start"):
        list(read(lines(payload(100.0, [], endTime=99.0))))


def test_burstgpt_sessions_go_on(read):
    head = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens\n"
    trace = read(head + "5,1,2,m,100,50\n45,1,3,m,200,10\n46,2,3,m,80,10\n60,1,1,m,90,5\n")
    first, second, third, fourth = trace
    assert (first.took_ps / S, second.session) == (2, "1")
    shared = len({*first.prefix.ids, *first.prefix.answer} & set(second.prefix.ids))
    assert shared == 150 // second.prefix.tokens  # its answer too
    assert not set(third.prefix.ids) & set(second.prefix.ids)
    assert not set(fourth.prefix.ids) & set(second.prefix.ids)  # shorter: begun anew
    assert any("does not say what prompts hold" in note for note in trace.counts.notes())


def servegen(folder, table):
    folder.mkdir()
    (folder / "chunk-0-trace.csv").write_text(table)
    shares = {"0": {"input_tokens": "{100: 0.5, 300: 0.5}", "output_tokens": "{10: 1.0}"}}
    (folder / "chunk-0-dataset.json").write_text(json.dumps(shares))
    return folder


def test_servegen_clients_are_drawn(tmp_path):
    table = "0,2.0,1.0,Gamma,1.0,0.5\n600,4.0,1.0,Weibull,1.0,0.25\n1200,0,0,,0,0\n"
    folder = servegen(tmp_path / "m", table)
    trace = Trace(folder)
    found = list(trace)
    assert trace.format.name == "ServeGen clients"
    early = sum(r.arrival_ps < 600 * S for r in found)
    # Poisson counts of 1,200 and 2,400: five deviations.
    assert early == pytest.approx(1200, abs=175)
    assert len(found) - early == pytest.approx(2400, abs=245)
    assert {r.input_tokens for r in found} == {100, 300}
    assert found == list(Trace(folder / "chunk-0-trace.csv"))
    assert any("ServeGen" in note for note in trace.counts.notes())


def test_a_bad_window_of_servegen_is_named(tmp_path):
    folder = servegen(tmp_path / "m", "0,2.0,1.0,Gamma,1.0,0.5\n600,x,1,Gamma,1,1\n1200,1\n")
    with pytest.raises(KvroomError, match="line 2"):
        list(Trace(folder))
    trace = Trace(folder, skip_bad_lines=True)
    assert list(trace)
    assert trace.counts.skipped_lines == 2


def test_mixed_formats_and_clocks_are_named(read):
    first = {"timestamp": 0, "input_length": 10, "output_length": 1}
    text = lines(first, exported(span("a", 0, 1, 5, 1)), first | {"timestamp": 10**9})
    with pytest.raises(KvroomError, match="is OpenTelemetry spans, the trace is Mooncake"):
        list(read(text))
    trace = read(text, skip_bad_lines=True)
    assert len(list(trace)) == 2
    notes = list(trace.counts.notes())
    assert "1 bad line skipped" in notes[0]
    assert "a clock may have jumped" in notes[1]


def test_without_durations_a_row_keeps_its_distance():
    order = SessionOrder()
    assert order.add(0, Request(5 * S, 1, 1)) == ([], 0, 0)
    assert order.add(1, Request(9 * S, 1, 1)) == ([0], 0, 4 * S)
    assert order.add(2, Request(9 * S, 1, 1)) == ([1], 0, 0)


def test_pauses_are_as_long_as_said(tmp_path):
    rows = [
        {"t": 100.0 * i, "in": 2000 + 192 * i, "out": 50, "hash_ids": list(range(31 + 3 * i)), "api_time": 2}
        for i in range(20)
    ]  # fmt: skip
    file = tmp_path / "agents.jsonl"
    file.write_text(json.dumps({"id": "a", "block_size": 64, "requests": rows}) + "\n")
    keys = {"context_tokens": "16K", "trace": str(file), "sessions": 1, "warmup": 0}
    found = {
        times: api.simulate("llama-3.1-8b", "H100-SXM", pauses=times, **keys).figures
        for times in (0, 0.5, 1)
    }
    spent = [each["duration_s"] for each in found.values()]
    busy = spent[0]
    assert busy < 0.1 * spent[1]
    # What is more is pauses, in proportion.
    assert spent[1] - busy == pytest.approx((spent[2] - busy) / 2, rel=0.01)
    assert found[0]["prefix_hit_ratio"] == pytest.approx(found[1]["prefix_hit_ratio"], abs=0.02)
    with pytest.raises(KvroomError, match="sessions at a time"):
        api.simulate("llama-3.1-8b", "H100-SXM", trace=str(file), pauses=0, context_tokens="16K")
    with pytest.raises(KvroomError, match="outside"):
        api.simulate("llama-3.1-8b", "H100-SXM", pauses=-1, **keys)
