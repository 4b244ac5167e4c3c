"""Traces as Parquet and in object storage: the same requests as from a file of text."""

from __future__ import annotations

import json
import pickle
import threading
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar
from urllib.parse import unquote, urlparse

import pytest

from kvroom import api, installed
from kvroom.errors import KvroomError
from kvroom.scenario.scenario import Scenario
from kvroom.workloads.traces.reader import Trace

pyarrow = pytest.importorskip("pyarrow", reason="needs the extra traces (pyarrow)")
parquet = pytest.importorskip("pyarrow.parquet")

MOONCAKE = [
    {
        "timestamp": 250 * n,
        "input_length": 600 + n,
        "output_length": 5 + n % 7,
        "hash_ids": [0, n % 3 + 1],
    }
    for n in range(40)
]


def table(path, rows, **keys):
    parquet.write_table(pyarrow.Table.from_pylist(rows, **keys), path)
    return path


def opened(path, **keys):
    return Trace(path, parquet=installed.parquet_rows(), **keys)


def lines(path, rows):
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return path


def test_a_format_of_json_rows_is_told_in_parquet(tmp_path):
    text = Trace(lines(tmp_path / "t.jsonl", MOONCAKE))
    made = opened(table(tmp_path / "t.parquet", MOONCAKE))
    assert made.format.name == text.format.name
    assert made.hash_tokens == text.hash_tokens
    assert list(made) == list(text)


def test_a_format_of_csv_columns_is_told_in_parquet(tmp_path):
    rows = [
        {
            "TIMESTAMP": datetime(2023, 11, 16, 18, 17, n),
            "ContextTokens": 100 + n,
            "GeneratedTokens": n,
        }
        for n in range(20)
    ]
    text = "\n".join(
        f"{row['TIMESTAMP'].isoformat(' ')},{row['ContextTokens']},{row['GeneratedTokens']}"
        for row in rows
    )
    (tmp_path / "t.csv").write_text(f"TIMESTAMP,ContextTokens,GeneratedTokens\n{text}\n")
    assert list(opened(table(tmp_path / "t.parquet", rows))) == list(Trace(tmp_path / "t.csv"))


def test_any_columns_are_named(tmp_path):
    rows = [{"at": 0.5 * n, "prompt": 100, "answer": 20, "other": None} for n in range(9)]
    named = {"arrival": "at", "input": "prompt", "output": "answer"}
    made = list(opened(table(tmp_path / "t.parquet", rows), columns=named))
    assert [request.arrival_ps for request in made] == [n * 5 * 10**11 for n in range(9)]
    assert {(request.input_tokens, request.output_tokens) for request in made} == {(100, 20)}


def test_a_bad_row_is_told_by_its_number(tmp_path):
    rows = [*MOONCAKE[:3], MOONCAKE[3] | {"input_length": 0}, *MOONCAKE[4:]]
    path = table(tmp_path / "t.parquet", rows)
    with pytest.raises(KvroomError, match="trace line 4"):
        list(opened(path))
    made = opened(path, skip_bad_lines=True)
    assert len(list(made)) == 39
    assert made.counts.skipped_lines == 1


def test_a_file_that_breaks_off_is_told(tmp_path):
    path = table(tmp_path / "t.parquet", MOONCAKE)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(KvroomError, match="is no Parquet that can be read"):
        opened(path)
    with pytest.raises(KvroomError, match="is Parquet"):
        Trace(path)


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_an_address_is_read_as_a_file_is(tmp_path, kind):
    """``file://`` goes the way of s3:// and gs://: pyarrow's file systems."""
    if kind == "parquet":
        path = table(tmp_path / "t.parquet", MOONCAKE)
    else:
        path = lines(tmp_path / "t.jsonl", MOONCAKE)
    asked = Scenario.from_dict({"model": "llama-3-8b", "gpu": "L4", "replicas": 2})
    home = api.simulate(asked, trace=str(path))
    away = api.simulate(asked, trace=f"file://{path}")
    spread = api.simulate(asked, trace=f"file://{path}", cluster="processes:2")
    assert away.figures == home.figures
    assert json.dumps(spread.figures) == json.dumps(home.figures)


def test_a_folder_of_parts_is_one_trace(tmp_path):
    folder = tmp_path / "parts"
    folder.mkdir()
    for number in range(4):
        table(folder / f"part-{number}.parquet", MOONCAKE[10 * number : 10 * number + 10])
    (folder / "_SUCCESS").write_text("")
    far = Trace(installed.remote_file(f"file://{folder}"), parquet=installed.parquet_rows())
    assert list(far) == list(Trace(lines(tmp_path / "t.jsonl", MOONCAKE)))
    assert list(pickle.loads(pickle.dumps(far))) == list(far)


@pytest.mark.parametrize("address", ["file:///nowhere/at/all.parquet", "nothing://bucket/key"])
def test_an_address_where_nothing_is_is_told(address):
    with pytest.raises(KvroomError) as told:
        installed.remote_file(address)
    assert told.value.field == "trace"


def test_a_trace_of_another_process_is_the_same(tmp_path):
    trace = Trace(lines(tmp_path / "t.jsonl", MOONCAKE), skip_bad_lines=True)
    assert list(pickle.loads(pickle.dumps(trace))) == list(trace)


def test_what_was_written_by_a_request_is_read_again(tmp_path):
    """The rows of --per-request as Parquet are a trace."""
    path = tmp_path / "rows.parquet"
    asked = {"arrivals": "poisson:4/s", "input": 100, "output": 20, "requests": 30}
    found = api.simulate("llama-3-8b", "L4", workload=asked)
    table(path, sorted(found.rows(), key=lambda row: row["arrival_s"]))
    named = "arrival=arrival_s,input=input_tokens,output=output_tokens"
    again = list(opened(path, columns=named))
    assert len(again) == 30
    assert again[-1].arrival_ps > again[0].arrival_ps


class Bucket(BaseHTTPRequestHandler):
    """Just so much of S3 as reading takes: heads and ranges of the objects in a folder."""

    folder: Path
    asked: ClassVar[list[str]] = []

    def do_HEAD(self):
        self.answer(body=False)

    def do_GET(self):
        self.answer(body=True)

    def answer(self, *, body):
        path = self.folder / unquote(urlparse(self.path).path).removeprefix("/traces/")
        if not path.is_file():
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        data = path.read_bytes()
        part = self.headers.get("Range")
        self.asked.append(part or "")
        if part:
            first, last = part.removeprefix("bytes=").split("-")
            start, end = int(first), min(int(last or len(data)), len(data) - 1)
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{end}/{len(data)}")
            data = data[start : end + 1]
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Last-Modified", "Mon, 16 Nov 2026 18:17:03 GMT")
        self.end_headers()
        if body:
            self.wfile.write(data)

    def log_message(self, *_):
        pass


def test_an_object_store_is_streamed_from(tmp_path):
    Bucket.folder = tmp_path
    table(tmp_path / "t.parquet", MOONCAKE)
    lines(tmp_path / "t.jsonl", MOONCAKE)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Bucket)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    where = f"127.0.0.1:{server.server_address[1]}&scheme=http&region=here"
    try:
        for kind in ("jsonl", "parquet"):
            address = f"s3://key:secret@traces/t.{kind}?endpoint_override={where}"
            far = Trace(installed.remote_file(address), parquet=installed.parquet_rows())
            assert list(far) == list(Trace(tmp_path / "t.jsonl"))
        with pytest.raises(KvroomError, match=r"is not there|cannot be had"):
            installed.remote_file(f"s3://key:secret@traces/none?endpoint_override={where}")
    finally:
        server.shutdown()
        server.server_close()
    assert any(part.startswith("bytes=") for part in Bucket.asked)
