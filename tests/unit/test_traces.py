"""Every trace format, told by what it holds; every wrong line, named or counted."""

import gzip
import json
from array import array

import pytest

from kvroom.errors import KvroomError
from kvroom.workloads.requests import HashIds, Request, TokenIds, TokenRuns, in_order
from kvroom.workloads.traces import opened
from kvroom.workloads.traces.reader import Trace
from kvroom.workloads.traces.writer import write

MS, S = 10**9, 10**12
GOOD = {"timestamp": 0, "input_length": 10, "output_length": 5}


@pytest.fixture
def trace(tmp_path):
    def made(*lines, name="trace", **options):
        path = tmp_path / name
        rows = (line if isinstance(line, str) else json.dumps(line) for line in lines)
        path.write_text("".join(row + "\n" for row in rows))
        return Trace(path, **options)

    return made


def test_mooncake(trace):
    read = trace(
        {"timestamp": 27, "input_length": 1030, "output_length": 5, "hash_ids": [0, 1, 2]},
        {"timestamp": 3027.5, "input_length": 513, "output_length": 0, "hash_ids": [0, 7], "x": 1},
    )
    assert (read.format.name, read.hash_tokens) == ("Mooncake", 512)
    assert list(read) == [
        Request(0, 1030, 5, HashIds(array("q", [0, 1, 2]), 512)),
        Request(3000 * MS + MS // 2, 513, 0, HashIds(array("q", [0, 7]), 512)),
    ]
    assert list(read) == list(read)  # each iteration reads anew
    assert read.counts.requests == 2


def test_mooncake_with_sessions_priorities_and_unsigned_ids(trace):
    row = GOOD | {"hash_ids": [2**63], "session": "a", "priority": 3}
    (request,) = trace(row)
    assert (request.session, request.priority) == ("a", 3)
    assert list(request.prefix.ids) == [2**63]


def test_bailian_chats_follow_their_root(trace):
    row = {"timestamp": 1.25, "input_length": 40, "output_length": 8, "hash_ids": [5, 6, 7]}
    read = trace(
        row | {"chat_id": 10, "parent_chat_id": -1},
        row | {"chat_id": 11, "parent_chat_id": 10, "timestamp": 2},
        row | {"chat_id": 12, "parent_chat_id": 11, "timestamp": 3},
        row | {"chat_id": 13, "parent_chat_id": -1, "timestamp": 4},
    )
    assert (read.format.name, read.hash_tokens) == ("Qwen-Bailian", 16)
    requests = list(read)
    assert [r.session for r in requests] == [10, 10, 10, 13]
    assert [r.arrival_ps for r in requests] == [0, 3 * S // 4, 7 * S // 4, 11 * S // 4]


def test_token_ids(trace):
    read = trace(
        {"arrival_time_ns": 5, "input_tok_ids": [1, 2, 3], "output_tok_ids": [4], "input_toks": 3},
        {"arrival_time_ns": 7, "input_tok_ids": [1], "output_toks": 9},
    )
    first, second = read
    assert first == Request(0, 3, 1, TokenIds(array("I", [1, 2, 3]), array("I", [4])))
    assert (second.arrival_ps, second.output_tokens) == (2000, 9)


def test_azure(trace):
    read = trace(
        "TIMESTAMP,ContextTokens,GeneratedTokens",
        "2023-11-16 18:15:46.6805900,374,44",
        "2023-11-16 18:15:50,396,109",
        "2023-11-16 18:16:00.000001+00:00,1,1",
    )
    assert read.format.name == "Azure"
    assert list(read) == [
        Request(0, 374, 44),
        Request(3_319_410_000_000, 396, 109),
        Request(13_319_411_000_000, 1, 1),
    ]


def test_burstgpt_with_and_without_sessions(trace):
    columns = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type"
    (request,) = trace(columns, "5,ChatGPT,472,0,472,Conversation log")
    assert request == Request(0, 472, 0)
    columns = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens"
    first, second = trace(columns, '5.5,a,1,"GPT-4, new",472,18,490', "6,,1,GPT-4,3,1,4")
    assert (first.session, second.session) == ("a", None)
    assert second.arrival_ps == S // 2


def test_gzip_is_told_by_content(tmp_path):
    path = tmp_path / "plainly.named"
    path.write_bytes(gzip.compress(json.dumps(GOOD).encode()))
    assert len(list(Trace(path))) == 1


def test_byte_order_mark_blank_lines_and_carriage_returns(tmp_path):
    path = tmp_path / "trace.csv"
    text = "\ufeffTIMESTAMP,ContextTokens,GeneratedTokens\r\n\r\n2023-11-16 18:15:46,3,4\r\n"
    path.write_bytes(text.encode())
    assert list(Trace(path)) == [Request(0, 3, 4)]


@pytest.mark.parametrize(
    ("rows", "tokens"),
    [
        ([(9, 1), (28, 2)], 16),  # one id fits any size: the second row decides
        ([(9, 1)], 512),  # nothing decides: the format's own
        ([(6758, 14)], 512),
        ([(130, 2), (300, 4)], 75),  # no power of two fits: the least that does
    ],
)
def test_tokens_of_an_id_are_told_from_lengths(trace, rows, tokens):
    lines = [
        {"timestamp": 0, "input_length": n, "output_length": 1, "hash_ids": list(range(k))}
        for n, k in rows
    ]
    assert trace(*lines).hash_tokens == tokens
    assert trace(*lines, hash_tokens=7).hash_tokens == 7


BAD = [
    ({"timestamp": -1}, "timestamp", "is negative"),
    ({"timestamp": "a"}, "timestamp", "is not a number"),
    ({"timestamp": 1e300}, "timestamp", "is beyond any trace"),
    ({"timestamp": None}, "timestamp", "is missing"),
    ({"timestamp": True}, "timestamp", "is not a number"),
    ({"input_length": 0}, "input_length", "is below 1 tokens"),
    ({"input_length": -3}, "input_length", "is below 1 tokens"),
    ({"input_length": 10**10}, "input_length", "is above 1,000,000,000 tokens"),
    ({"input_length": 2.5}, "input_length", "is not a whole number"),
    ({"output_length": -1}, "output_length", "is below 0 tokens"),
    ({"hash_ids": [1, 2]}, "hash_ids", "ids do not fit 10 prompt tokens at 512 tokens an id"),
    ({"hash_ids": ["a"]}, "hash_ids", "is no list of whole numbers of 64 bits"),
    ({"hash_ids": [2**70]}, "hash_ids", "is no list of whole numbers of 64 bits"),
    ({"session": [1]}, "session", "is no session"),
]


@pytest.mark.parametrize(("change", "key", "why"), BAD)
def test_a_wrong_line_is_named_or_counted(trace, change, key, why):
    lines = (GOOD, GOOD | change, GOOD | {"timestamp": 9})
    with pytest.raises(KvroomError) as caught:
        list(trace(*lines, hash_tokens=512))
    assert caught.value.field == f"trace line 2, {key}"
    assert caught.value.message == why
    assert "--skip-bad-lines" in caught.value.fix
    read = trace(*lines, hash_tokens=512, skip_bad_lines=True)
    assert [r.arrival_ps for r in read] == [0, 9 * MS]
    assert read.counts.skipped_lines == 1
    assert read.counts.reasons[0].startswith(f"line 2: {key}")


@pytest.mark.parametrize("line", ['{"timestamp": 1', "[1]", "{}", '{"timestamp": NaN}', "\udcff"])
def test_lines_that_are_no_rows(tmp_path, line):
    path = tmp_path / "trace"
    path.write_bytes(json.dumps(GOOD).encode() + b"\n" + line.encode(errors="surrogateescape"))
    with pytest.raises(KvroomError, match="trace line 2, "):
        list(Trace(path))
    assert len(list(Trace(path, skip_bad_lines=True))) == 1


def test_csv_rows_have_the_header_s_cells(trace):
    read = trace("TIMESTAMP,ContextTokens,GeneratedTokens", "2023-11-16 18:15:46,3")
    with pytest.raises(KvroomError, match="has 2 cells where the header has 3"):
        list(read)


def test_bad_lines_before_the_first_good_one(trace):
    assert len(list(trace("nonsense", GOOD, skip_bad_lines=True))) == 1
    with pytest.raises(KvroomError, match="trace line 1"):
        trace("nonsense", GOOD)


def test_a_format_that_is_nearly_known_says_what_it_lacks(trace):
    with pytest.raises(KvroomError, match="looks like Mooncake but lacks output_length"):
        trace({"timestamp": 0, "input_length": 3})


def test_files_that_hold_no_trace(tmp_path, trace):
    with pytest.raises(KvroomError, match="is not a file"):
        Trace(tmp_path / "nothing")
    with pytest.raises(KvroomError, match="is not a folder of traces"):
        Trace(tmp_path)
    with pytest.raises(KvroomError, match="is empty"):
        trace()
    header = "TIMESTAMP,ContextTokens,GeneratedTokens"
    with pytest.raises(KvroomError, match="holds no request"):
        list(trace(header))
    cut = tmp_path / "cut.gz"
    cut.write_bytes(gzip.compress((json.dumps(GOOD) + "\n").encode() * 1000)[:-9])
    with pytest.raises(KvroomError, match="breaks off or is garbled"):
        list(Trace(cut))


def test_a_line_too_long_is_a_bad_line(trace, monkeypatch):
    monkeypatch.setattr(opened, "MAX_LINE_BYTES", 100)
    long = GOOD | {"note": "x" * 1000}
    with pytest.raises(KvroomError, match=r"trace line 2, row: .* is longer than 100 bytes"):
        list(trace(GOOD, long, GOOD))
    assert len(list(trace(GOOD, long, GOOD, skip_bad_lines=True))) == 2


def test_unordered_arrivals_are_counted_and_can_be_sorted(trace):
    read = trace(*(GOOD | {"timestamp": t} for t in (100, 20, 300, 299)))
    assert [r.arrival_ps // MS for r in read] == [0, -80, 200, 199]
    assert read.counts.unordered == 2
    assert [r.arrival_ps // MS for r in in_order(read)] == [0, 80, 279, 280]
    with pytest.raises(KvroomError, match="comes more than 1 requests too late"):
        list(in_order([Request(t, 1, 1) for t in (5, 6, 7, 1)], window=1))


def test_what_is_written_reads_back(tmp_path):
    hashed = [
        Request(0, 20, 3, HashIds(array("q", [4, 5]), 16), "s", 2),
        Request(123_456_789_012, 10, 0),
    ]
    assert write(tmp_path / "a.jsonl", hashed) == 2
    assert list(Trace(tmp_path / "a.jsonl", hash_tokens=16)) == hashed
    tokens = [Request(0, 2, 1, TokenIds(array("I", [1, 2]), array("I", [3])))]
    write(tmp_path / "b.jsonl.gz", tokens)
    assert list(Trace(tmp_path / "b.jsonl.gz")) == tokens
    first = (tmp_path / "b.jsonl.gz").read_bytes()
    write(tmp_path / "b.jsonl.gz", tokens)
    assert (tmp_path / "b.jsonl.gz").read_bytes() == first
    write(tmp_path / "c.jsonl", [Request(0, 3, 2, TokenRuns(((7, 3),), ((10, 2),)))])
    (request,) = Trace(tmp_path / "c.jsonl")
    assert (list(request.prefix.prompt), list(request.prefix.answer)) == ([7, 8, 9], [10, 11])


def test_nothing_half_written_stays(tmp_path):
    mixed = [Request(0, 1, 1), Request(0, 1, 1, TokenRuns(((0, 1),)))]
    with pytest.raises(KvroomError, match="mixes token ids"):
        write(tmp_path / "t.jsonl", mixed)
    with pytest.raises(KvroomError, match="cannot be written"):
        write(tmp_path / "no" / "t.jsonl", mixed)
    assert list(tmp_path.iterdir()) == []


def test_clocks_that_jump_by_years_are_told(tmp_path):
    """Forth and back by more than 64 bits of picoseconds hold: told, sorted, and served."""
    from kvroom import api

    path = tmp_path / "clock.jsonl"
    times = [0, 10, 3e8, 3e8 + 5, 20]
    rows = [{"t": at, "p": 100, "g": 5} for at in times]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    columns = "arrival=t,input=p,output=g"
    told = api.describe(trace=path, columns=columns)
    assert told["duration_s"] == 3e8 + 5
    trace = Trace(path, columns=columns)
    assert len(list(trace)) == 5
    notes = " ".join(trace.counts.notes())
    assert "nothing comes for more than a day, 1 times" in notes
    assert "1 are more than a day older than one before" in notes
    found = api.simulate("llama-3-8b", "L40S", trace=path, columns=columns, context_tokens="8K")
    assert found.figures["requests"]["completed"] == 5
