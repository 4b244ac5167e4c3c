"""``kvroom search`` at the command line."""

from __future__ import annotations

import csv
import json
import socket
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from kvroom import ray_workers as cluster
from kvroom.clusters import workers_of
from kvroom.errors import KvroomError
from kvroom.optimize.search.closed_form import Question
from kvroom.ui.cli.main import main

ASKED = [
    "search", "llama-3-8b", "--workload", "input=800,output=100", "--users", "8",
    "--slo", "ttft_p95=3s,tpot_p95=80ms", "--gpus", "L4,L40S", "--counts", "1",
    "--simulate", "2", "--jobs", "1",
]  # fmt: skip


def run(*words):
    return CliRunner().invoke(main, list(words))


def test_the_text_fits_and_names_the_cheapest():
    result = run(*ASKED)
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "The cheapest that does:" in result.stdout
    assert "closed form:" in result.stderr
    assert "closed form:" not in result.stdout


def test_json_and_files(tmp_path):
    table, page = tmp_path / "found.csv", tmp_path / "found.html"
    result = run(*ASKED, "--json", "--csv", str(table), "--html", str(page))
    told = json.loads(result.stdout)
    assert told["answers"][0]["rank"] == 1
    with table.open() as file:
        assert len(list(csv.DictReader(file))) == len(told["answers"])
    assert page.read_text().startswith("<!doctype html>")


def test_a_card_with_its_count_narrows_the_search():
    words = ["--input-tokens", "800", "--output-tokens", "100", "--users", "8", "--gpu", "L40S:2"]
    told = json.loads(run("search", "llama-3-8b", *words, "--simulate", "0", "--json").stdout)
    assert {(a["scenario"]["gpu"], a["scenario"]["gpu_count"]) for a in told["answers"]} == {
        ("L40S", 2)
    }


def test_a_resumed_search_prints_the_same(tmp_path):
    journal = str(tmp_path / "journal")
    first, again = (run(*ASKED, "--journal", journal, "--json").stdout for _ in range(2))
    assert first == again


@pytest.mark.parametrize(
    "words",
    [
        ["--gpus", "H1000"],
        ["--slo", "ttft_p95=2s,ttft_p95=3s"],
        ["--rate", "2"],
        ["--counts", "two"],
        ["--counts", "0"],
        ["--journal", "/nowhere/at/all"],
        ["--slo", "speed=2s"],
    ],
)
def test_wrong_questions_are_one_sentence(words):
    result = run(*ASKED, *words)
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1


def test_without_ray_the_cluster_is_refused(monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(cluster, "import_module", missing)
    with pytest.raises(KvroomError) as told:
        cluster.ray_pool("auto")
    assert told.value.field == "--cluster"


def test_an_address_where_no_cluster_answers_is_refused(monkeypatch):
    def refuse(**keys):
        raise ConnectionError("nobody there")

    ray = SimpleNamespace(is_initialized=lambda: False, init=refuse)
    monkeypatch.setattr(cluster, "import_module", lambda name: ray)
    with socket.create_server(("127.0.0.1", 0)) as listens:
        port = listens.getsockname()[1]
        with pytest.raises(KvroomError, match=r"no cluster that answers \(nobody there\)"):
            cluster.ray_pool(f"127.0.0.1:{port}")
    # Where nothing listens Ray is not asked: it would wait for minutes.
    for address in (f"127.0.0.1:{port}", f"ray://127.0.0.1:{port}"):
        with pytest.raises(KvroomError, match=r"no cluster that answers \(Connection refused\)"):
            cluster.ray_pool(address)
    with pytest.raises(KvroomError, match="no whole number"):
        cluster.ray_pool("127.0.0.1:head")


def test_the_client_port_without_rays_client_names_what_is_missing(monkeypatch):
    def refuse(**keys):
        raise ImportError("Ray Client requires pip package `ray[client]`.")

    ray = SimpleNamespace(is_initialized=lambda: False, init=refuse)
    monkeypatch.setattr(cluster, "import_module", lambda name: ray)
    with socket.create_server(("127.0.0.1", 0)) as listens:
        address = f"ray://127.0.0.1:{listens.getsockname()[1]}"
        with pytest.raises(KvroomError) as told:
            workers_of(address)
    assert told.value.value == address
    assert "pip install 'ray[client]'" in told.value.fix


def test_questions_travel_as_plain_values():
    question = Question(keys={"model": "llama-3-8b"}, workload={}, slo="", seed=0, max_gpus=8)
    assert Question(**json.loads(json.dumps(question.to_dict()))) == question


def test_lengths_in_a_line_with_a_rate_users_or_neither():
    words = ["search", "llama-3-8b", "--workload", "input=800,output=100", "--gpus", "L4"]
    words += ["--counts", "1", "--simulate", "0", "--jobs", "1", "--json"]
    for load, users, rate in (
        (["--rate", "2"], None, 2.0),
        (["--users", "8"], 8, None),
        ([], None, None),
    ):
        objective = json.loads(run(*words, *load).stdout)["objective"]
        assert (objective["users"], objective["requests_per_s"]) == (users, rate)
    result = run(*words[:-1], "--users", "0")
    assert result.exit_code == 2
    assert "0 is below 1" in result.output


def test_a_file_in_no_folder_is_told_before_the_search(tmp_path):
    result = run(*ASKED, "--html", str(tmp_path / "none" / "x.html"))
    assert result.exit_code == 2
    assert len(result.output.splitlines()) == 1


def test_an_empty_list_is_told():
    result = run("search", "llama-3-8b", "--users", "3", "--input-tokens", "5", "--gpus", ",")
    assert result.output.startswith("kvroom: --gpus: ',' names nothing")


def test_without_an_objective_the_waits_are_told():
    asked = [word for word in ASKED if word not in ("--slo", "ttft_p95=3s,tpot_p95=80ms")]
    said = " ".join(run(*asked).stdout.split())
    assert "however long its users wait" in said
    assert "No objective was asked for, and these are its times: TTFT " in said
