"""Formats of others: what a row of each says, in small files made here in the shapes that the tools write."""

import gzip
import json
import lzma

import pytest

from kvroom import installed
from kvroom.errors import KvroomError
from kvroom.workloads.requests import HashIds, Request, RequestGraph, TokenIds
from kvroom.workloads.traces.reader import Trace

S = 10**12
TEXT = "The quick brown fox jumps over the lazy dog. " * 10  # 450 bytes


@pytest.fixture
def read(tmp_path):
    def opened(content, name="trace", **options):
        path = tmp_path / name
        data = content if isinstance(content, bytes | str) else json.dumps(content)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return Trace(path, **options)

    return opened


def lines(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def lengths(trace):
    return [(r.arrival_ps / S, r.input_tokens, r.output_tokens) for r in trace]


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("arrived_at,num_prefill_tokens,num_decode_tokens", "Vidur"),
        ("arrival_timestamp,prompt_size,token_size", "Splitwise"),
    ],
)
def test_csv_of_simulators(read, header, name):
    trace = read(f"request_id,{header}\n0,0.5,374,44\n1,2,396,109\n")
    assert trace.format.name == name
    assert lengths(trace) == [(0, 374, 44), (1.5, 396, 109)]


def test_lengths_without_arrivals_come_at_once_and_say_so(read):
    trace = read("num_prefill_tokens,num_decode_tokens,pd_ratio\n374,44,8.5\n396.0,109,3.6\n")
    assert lengths(trace) == [(0, 374, 44), (0, 396, 109)]
    assert any("no arrival times" in note for note in trace.counts.notes())


@pytest.mark.parametrize(
    ("columns", "content", "arrivals"),
    [
        ("arrival=t,input=p,output=g", "t,p,g\n0.5,100,20\n1.5,120,30\n", [0, 1]),
        ("arrival=t:ms,input=p,output=g", "t\tP\tg\n500\t100\t20\n1500\t120\t30\n", [0, 1]),
        ("arrival=t:ns,input=p,output=g", "t;p;g\n0;100;20\n1000000000;120;30\n", [0, 1]),
        (
            "arrival=t:date,input=p,output=g",
            "t,p,g\n2026-01-01 00:00:00,100,20\n2026-01-01 00:00:01,120,30\n",
            [0, 1],
        ),
        ("input=p,output=g", "p,g\n100,20\n120,30\n", [0, 0]),
        (
            "arrival=at:us,input=n.in,output=n.out",
            lines({"at": 7, "n": {"in": 100, "out": 20}}, {"at": 8, "n": {"in": 120, "out": 30}}),
            [0, 1e-6],
        ),
    ],
)
def test_any_table_by_its_columns(read, columns, content, arrivals):
    trace = read(content, columns=columns)
    assert lengths(trace) == [(arrivals[0], 100, 20), (arrivals[1], 120, 30)]


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ("arrival=t,input=q,output=g", "'q' is no column of the file"),
        ("arrival=t,output=g", "'input' has no column"),
        ("arrive=t,input=p,output=g", "Did you mean arrival"),
        ("arrival=t:min,input=p,output=g", "is no unit of time"),
        ("input", "names no column"),
    ],
)
def test_wrong_columns_are_named(read, columns, why):
    with pytest.raises(KvroomError, match=why):
        list(read("t,p,g\n0,100,20\n", columns=columns))


def test_session_and_priority_columns(read):
    trace = read(
        "p,g,who,rank\n100,20,ann,3\n7,8,,\n",
        columns={"input": "p", "output": "g", "session": "who", "priority": "rank"},
    )
    assert [(r.session, r.priority) for r in trace] == [("ann", 3), (None, 0)]


CHATS = [
    {
        "id": "a",
        "conversations": [
            {"from": "human", "value": TEXT},
            {"from": "gpt", "value": TEXT[:200]},
            {"from": "human", "value": "And then?"},
            {"from": "gpt", "value": "Nothing."},
        ],
    },
    {
        "id": "b",
        "conversations": [{"from": "human", "value": TEXT}, {"from": "gpt", "value": "So."}],
    },
]


@pytest.mark.parametrize("indent", [None, 2])
def test_sharegpt_is_sessions_of_text(read, indent):
    trace = read(json.dumps(CHATS, indent=indent))
    assert trace.format.name == "ShareGPT"
    first, second, third = trace
    # 450 bytes and the marks of a message: within a few tokens of a quarter of them.
    assert first.input_tokens == pytest.approx(450 / 4, abs=5)
    assert first.output_tokens == pytest.approx(200 / 4, abs=5)
    assert second.input_tokens > first.input_tokens + first.output_tokens
    shared = len(first.prefix.ids)
    assert list(second.prefix.ids[:shared]) == list(first.prefix.ids)
    assert list(third.prefix.ids) == list(first.prefix.ids)  # another session, the same words
    assert [r.session for r in (first, second, third)] == [1, 1, 2]
    assert [graph.after for graph in trace.sessions()] == [((), (0,)), ((),)]
    assert any("4 bytes" in note for note in trace.counts.notes())


def test_a_tokenizer_that_is_passed_in_counts(read):
    trace = read(json.dumps(CHATS), tokenizer=lambda text: [ord(c) % 50 for c in text.split()[0]])
    first = next(iter(trace))
    assert isinstance(first.prefix, TokenIds)
    assert first.input_tokens == len("<|human|>")
    assert not [note for note in trace.counts.notes() if "bytes" in note]


def test_a_broken_list_is_named(read):
    text = json.dumps(CHATS)
    with pytest.raises(KvroomError, match="is no JSON in item 2"):
        list(read(text[:-20]))
    assert len(list(read(text[:-20], skip_bad_lines=True))) == 2
    with pytest.raises(KvroomError, match="breaks off in its list"):
        list(read(text[:-1]))


def test_openai_batch_input_and_output(read):
    body = {"model": "m", "messages": [{"role": "user", "content": TEXT}], "max_tokens": 64}
    row = {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": body}
    trace = read(lines(row, row | {"custom_id": "2"}))
    assert trace.format.name == "OpenAI batch"
    assert [(r.input_tokens, r.output_tokens) for r in trace] == [
        (pytest.approx(115, abs=3), 64)
    ] * 2
    assert any("max_tokens" in note for note in trace.counts.notes())

    usage = {"prompt_tokens": 900, "completion_tokens": 7}
    done = {"custom_id": "1", "response": {"status_code": 200, "body": {"usage": usage}}}
    failed = {"custom_id": "2", "response": {"status_code": 500, "body": {}}, "error": None}
    trace = read(lines(done, failed))
    assert lengths(trace) == [(0, 900, 7)]
    assert any("failed" in note for note in trace.counts.notes())


def test_request_logs_of_gateways(read):
    usage = {"prompt_tokens": 900, "completion_tokens": 7}
    trace = read(
        lines(
            {"timestamp": "2026-05-01T10:00:00.500Z", "usage": usage, "session_id": "s"},
            {"timestamp": 1777629602, "response": {"usage": usage}},  # 1.5 s later, in seconds
            {"timestamp": 1777629602500, "response": {"body": {"usage": usage}}},  # in ms
        )
    )
    assert trace.format.name == "OpenAI request log"
    assert lengths(trace) == [(0, 900, 7), (1.5, 900, 7), (2, 900, 7)]
    assert next(iter(trace)).session == "s"
    trace = read(
        lines(
            {
                "created_at": 5,
                "request": {"messages": [{"role": "user", "content": TEXT}]},
                "response": {
                    "choices": [{"message": {"role": "assistant", "content": "Yes it is."}}]
                },
            }
        )
    )
    ((_, prompt, answer),) = lengths(trace)
    assert (prompt, answer) == (pytest.approx(115, abs=3), pytest.approx(3, abs=6))


def test_litellm_spend_logs(read):
    row = {"startTime": 1.25, "prompt_tokens": 11, "completion_tokens": 3, "trace_id": "t"}
    trace = read(lines(row, row | {"startTime": 2.5}, row | {"status": "failure"}))
    assert lengths(trace) == [(0, 11, 3), (1.25, 11, 3)]


def test_vllm_custom_dataset(read):
    trace = read(lines({"prompt": TEXT, "output_tokens": 12}, {"prompt": TEXT}))
    assert trace.format.name == "vLLM custom dataset"
    assert [r.output_tokens for r in trace] == [12, 256]
    assert any("256" in note for note in trace.counts.notes())


def test_aiperf_records_and_inputs(read):
    record = {
        "metadata": {"x_correlation_id": "c", "request_start_ns": 1759813207532900363},
        "metrics": {
            "input_sequence_length": {"value": 550, "unit": "tokens"},
            "output_sequence_length": {"value": 9, "unit": "tokens"},
        },
        "error": None,
    }
    later = record | {
        "metadata": {"x_correlation_id": "d", "request_start_ns": 1759813208532900363}
    }
    lost = record | {"metrics": {"error_isl": {"value": 550}}, "error": {"code": 499}}
    trace = read(lines(record, lost, later))
    assert (trace.format.name, lengths(trace)) == ("AIPerf", [(0, 550, 9), (1, 550, 9)])
    assert [r.session for r in trace] == ["c", "d"]

    payload = {"messages": [{"role": "user", "content": TEXT}], "max_completion_tokens": 5}
    trace = read({"data": [{"session_id": "x", "payloads": [payload, payload]}]})
    assert [graph.after for graph in trace.sessions()] == [((), (0,))]
    assert [r.output_tokens for r in trace] == [5, 5]


@pytest.mark.parametrize(
    "request_",
    [
        {"start_time": 5.0, "prompt_tokens": 10, "output_tokens": 4},
        {
            "info": {"timings": {"request_start": 5.0}},
            "input_metrics": {"text_tokens": 10},
            "output_metrics": {"text_tokens": 4},
        },
    ],
)
def test_guidellm(read, request_):
    report = {"benchmarks": [{"requests": {"successful": [request_, request_], "errored": []}}]}
    trace = read(json.dumps(report, indent=1))
    assert (trace.format.name, lengths(trace)) == ("GuideLLM", [(0, 10, 4)] * 2)
    with pytest.raises(KvroomError, match="hold no request that succeeded"):
        list(read({"benchmarks": [{"metrics": {}}]}))


def call(t, blocks, api_time, think_time, **more):
    row = {"t": t, "type": "n", "in": 64 * len(blocks) + 5, "out": 10, "hash_ids": blocks}
    return row | {"api_time": api_time, "think_time": think_time} | more


AGENT = {
    "id": "trace_1",
    "block_size": 64,
    "hash_id_scope": "local",
    "requests": [
        call(0.0, [1, 2], 4.0, 0.0),
        {  # two sub-agents from second 5 on, told when they are done
            "t": 15.0,
            "type": "subagent",
            "duration_ms": 10_000,
            "requests": [call(0.0, [9], 2.0, 0.0), call(5.0, [9, 10], 4.0, 3.0)],
        },
        {
            "t": 11.0,
            "type": "subagent",
            "duration_ms": 6_000,
            "requests": [call(0.0, [11], 5.5, 0.0)],
        },
        call(18.0, [1, 2, 3], 1.0, 14.0),
    ],
}


def test_agent_traces_fork_and_join(read):
    trace = read(AGENT)
    assert (trace.format.name, trace.hash_tokens) == ("agents", 64)
    (graph,) = trace.sessions()
    assert [r.arrival_ps / S for r in graph.requests] == [0, 5, 10, 5, 18]
    assert graph.after == ((), (0,), (1,), (0,), (0, 2, 3))
    # From when the last of those that it waits for is answered.
    assert [r.think_ps / S for r in graph.requests] == [0, 1, 3, 1, 4]
    assert [r.arrival_ps / S for r in trace] == [0, 5, 5, 10, 18]


def test_blocks_of_two_sessions_are_not_the_same(read, tmp_path):
    for name in ("one", "two"):
        read(AGENT, name=f"{name}.json")
    ids = [{i for r in graph for i in r.prefix.ids} for graph in Trace(tmp_path).sessions()]
    assert len(ids) == 2
    assert not ids[0] & ids[1]
    trace = read(lines(AGENT | {"hash_id_scope": "global"}, AGENT | {"hash_id_scope": "global"}))
    ids = [{i for r in graph for i in r.prefix.ids} for graph in trace.sessions()]
    assert ids[0] == ids[1]


def test_a_folder_holds_one_format(read, tmp_path):
    read(AGENT, name="a.json")
    read("t,p,g\n0,1,1\n", name="b.csv", columns="input=p,output=g")
    with pytest.raises(KvroomError, match="is of no known trace format"):
        list(Trace(tmp_path))


ROW = b'{"timestamp": 0, "input_length": 10, "output_length": 5}\n'


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_packed_files_are_told_by_content(read, pack):
    assert lengths(read(pack(ROW))) == [(0, 10, 5)]
    with pytest.raises(KvroomError, match="breaks off or is garbled"):
        list(read(pack(ROW * 1000)[:-20]))


def test_zstd_where_a_library_is_installed(read):
    pyarrow = pytest.importorskip("pyarrow")
    packed = pyarrow.compress(ROW * 3, codec="zstd", asbytes=True)
    assert len(list(read(packed, unpack_zstd=installed.unpack_zstd()))) == 3
    with pytest.raises(KvroomError, match="is packed with zstd"):
        read(packed)
    with pytest.raises(KvroomError, match="cannot be read"):
        list(read(packed[:20], unpack_zstd=installed.unpack_zstd()))


def test_a_chain_waits_for_the_one_before():
    graph = RequestGraph.chain([Request(0, 1, 1), Request(5, 2, 1, HashIds([1], 16))])
    assert graph.after == ((), (0,))
