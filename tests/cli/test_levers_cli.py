"""``kvroom levers`` at the command line."""

from __future__ import annotations

import csv
import json

import pytest
from click.testing import CliRunner

from kvroom.ui.cli.levers import _ids
from kvroom.ui.cli.main import main

ASKED = ["levers", "llama-3-70b", "--gpu", "80GB:4", "--context", "32K", "--engine", "arithmetic"]


def run(*words):
    return CliRunner().invoke(main, list(words))


def test_the_text_fits_and_says_what_to_pull():
    result = run(*ASKED)
    assert result.exit_code == 0
    assert max(map(len, result.output.splitlines())) <= 80
    assert "Pull kv_dtype=fp8 first: 16 → 33 requests" in " ".join(result.output.split())


def test_json():
    told = json.loads(run(*ASKED, "--json").output)
    assert told["first"] == "kv_dtype=fp8"
    assert told["before"]["requests"] == 16


def test_files(tmp_path):
    table, page = tmp_path / "levers.csv", tmp_path / "levers.html"
    assert run(*ASKED, "--csv", str(table), "--html", str(page)).exit_code == 0
    with table.open() as file:
        rows = list(csv.DictReader(file))
    assert {"kv_dtype=fp8"} <= {r["id"] for r in rows}
    assert page.read_text().startswith("<!doctype html>")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["levers.csv", "levers.html"]


def test_parquet(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "levers.parquet"
    assert run(*ASKED, "--parquet", str(path)).exit_code == 0
    assert "kv_dtype=fp8" in parquet.read_table(path).column("id").to_pylist()


def test_a_file_that_cannot_be_written_is_told(tmp_path):
    result = run(*ASKED, "--csv", str(tmp_path / "no" / "levers.csv"))
    assert result.exit_code == 2
    assert "--csv" in result.output


def test_a_list_of_ids_keeps_layouts_whole():
    assert _ids("gpu_count=8,tp=8,kv_dtype=fp8") == ["gpu_count=8,tp=8", "kv_dtype=fp8"]
    assert _ids("kv_dtype=fp8,tp=2,pp=2") == ["kv_dtype=fp8", "tp=2,pp=2"]


def test_wrong_questions_are_one_sentence():
    for words in (["--by", "speed"], ["--together", "magic"]):
        result = run(*ASKED, *words)
        assert result.exit_code == 2
        assert len(result.output.splitlines()) == 1
