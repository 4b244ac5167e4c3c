"""What every answer can be turned into: a line, rows, a data frame, a cell, a report, a picture."""

from __future__ import annotations

import asyncio
import json
import xml.dom.minidom
from pathlib import Path

import pytest

import kvroom
from kvroom import api
from kvroom.answer.shown import Shown
from kvroom.errors import KvroomError

EXAMPLES = Path(__file__).parents[2] / "docs/examples"
SERVED = {"arrivals": "poisson:2/s", "input": 1000, "output": 100, "requests": 60}
LOAD = {"input_tokens": 1000, "output_tokens": 200, "concurrency": 8}
CARD = {"engine_version": "0.33.0", "workload": SERVED}
ROWS_OF_HTML = 40_000
"""Characters that an answer may put into a notebook's cell."""


def plan(**more):
    return kvroom.plan("llama-3-8b", "L40S", engine_version="0.33.0", workload=LOAD, **more)


def simulated():
    return kvroom.simulate("llama-3-8b", "L40S", **CARD)


ANSWERS = {
    "plan": plan,
    "compare": lambda: kvroom.compare(plan().scenario, plan(kv_dtype="fp8").scenario),
    "sweep": lambda: kvroom.sweep("batch=1..8", plan().scenario),
    "levers": lambda: kvroom.levers(plan().scenario),
    "search": lambda: kvroom.search(
        "llama-3-8b", slo="tpot_p95=60ms", users=16, simulate=0, workload=LOAD | {"concurrency": None},
        space={"gpus": ["L4", "L40S"], "counts": [1]},
    ),
    "simulate": simulated,
    "cliff": lambda: api.cliff("rate=1..8", "llama-3-8b", "L40S", **CARD),
    "splits": lambda: api.splits(
        "llama-3-8b", "L40S", engine_version="0.33.0", workload=SERVED,
        disaggregation={"prefill": {"count": 1}, "decode": {"count": 1}},
    ),
    "reuse": lambda: kvroom.reuse(
        workload="input=300,output=100,turns=4,requests=40,arrivals=once", capacities=[500]
    ),
    "reconcile": lambda: kvroom.reconcile(EXAMPLES / "vllm.log", gpu="H100-SXM", expect=16),
    "launch": lambda: kvroom.launch(plan().scenario),
    "check": lambda: kvroom.check(EXAMPLES / "serve.sh", gpu="H100-SXM", engine_version="0.33.0"),
    "calibrate": lambda: kvroom.calibrate([EXAMPLES / "vllm.log"], gpu="H100-SXM"),
    "play": lambda: api.play(json.loads((EXAMPLES / "script.json").read_text("utf-8"))),
}  # fmt: skip
PICTURED = ("plan", "compare", "sweep", "levers", "search", "simulate", "cliff", "reuse")
PRICED = ("plan", "compare", "sweep", "levers", "search", "simulate", "cliff", "launch")


@pytest.fixture(scope="module")
def answers():
    return {name: make() for name, make in ANSWERS.items()}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_shell_shows_one_short_line(answers, name):
    line = repr(answers[name])
    assert isinstance(answers[name], Shown)
    assert line.startswith(f"<{type(answers[name]).__name__}: ")
    assert len(line) < 600
    assert "\n" not in line


@pytest.mark.parametrize("name", ANSWERS)
def test_a_cell_is_small_and_well_formed(answers, name):
    cell = answers[name]._repr_html_()
    xml.dom.minidom.parseString(cell)
    assert len(cell) < ROWS_OF_HTML
    assert "<script" not in cell


@pytest.mark.parametrize("name", ANSWERS)
def test_rows_are_flat_and_a_data_frame_holds_them(answers, name):
    pytest.importorskip("pandas")
    rows = answers[name].rows()
    assert rows
    for row in rows:
        for value in row.values():
            assert value is None or isinstance(value, bool | int | float | str), (name, value)
    json.dumps(rows, allow_nan=False)
    assert len(answers[name].to_frame()) == len(rows)


@pytest.mark.parametrize("name", ANSWERS)
def test_a_report_names_its_version_and_its_date(answers, name, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1796000000")
    page = answers[name].to_html()
    assert f"kvroom {kvroom.__version__}, 2026-11-30." in page
    assert page.startswith("<!doctype html>")
    assert answers[name].TITLE in page
    assert "<script" not in page


@pytest.mark.parametrize("name", PRICED)
def test_a_report_names_its_question_and_its_prices(answers, name):
    page = answers[name].to_html()
    assert "kvroom plan llama-3-8b --gpu L40S" in page
    assert "Price: L40S at $0.79, on demand, third-party hosts" in page


@pytest.mark.parametrize("name", PICTURED)
def test_a_picture_is_a_file_of_its_own(answers, name):
    drawn = answers[name].to_svg()
    tree = xml.dom.minidom.parseString(drawn)
    assert tree.documentElement.getAttribute("xmlns") == "http://www.w3.org/2000/svg"
    assert int(float(tree.documentElement.getAttribute("width"))) > 500


def test_an_answer_without_a_picture_says_so(answers):
    with pytest.raises(KvroomError, match="--html"):
        answers["check"].to_svg()


def test_points_stand_beside_their_names(answers):
    drawn = answers["search"].to_svg()
    words = {
        n.firstChild.data for n in xml.dom.minidom.parseString(drawn).getElementsByTagName("text")
    }
    best = [answers["search"].answers[index].name for index in answers["search"].pareto]
    assert set(best) <= words


def test_a_simulation_keeps_its_rows_to_itself(answers):
    told = repr(answers["simulate"]) + answers["simulate"]._repr_html_()
    assert len(told) < 5000
    assert len(answers["simulate"].rows()) == 60


def test_models_and_cards_are_one_line():
    assert repr(api.model("llama-3-70b")) == "<ModelSpec llama-3-70b: 70.55B parameters, 80 layers>"
    assert repr(api.gpu("H100-SXM")).startswith("<Device H100-SXM: 80 GB at 3.35 TB/s")


def test_calls_from_an_event_loop_do_not_disturb_each_other():
    cards = ("L4", "L40S", "H100-SXM", "A100-SXM-80") * 3

    async def ask():
        calls = (
            asyncio.to_thread(kvroom.plan, "llama-3-8b", card, context_tokens="8K")
            for card in cards
        )
        return await asyncio.gather(*calls)

    alone = [kvroom.plan("llama-3-8b", card, context_tokens="8K").to_dict() for card in cards]
    assert [found.to_dict() for found in asyncio.run(ask())] == alone


def test_a_notebook_with_every_answer_is_small(monkeypatch):
    """The notebook of the documentation, run: its source and all that its cells show."""
    shell_module = pytest.importorskip("IPython.core.interactiveshell")
    monkeypatch.chdir(EXAMPLES)
    shell = shell_module.InteractiveShell()
    book = json.loads((EXAMPLES / "answers.ipynb").read_text("utf-8"))
    shown = []
    for cell in book["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None
            ran = shell.run_cell("".join(cell["source"]), store_history=False)
            ran.raise_error()
            shown.append(shell.display_formatter.format(ran.result)[0])
    assert sum("text/html" in told for told in shown) >= 11
    assert len(json.dumps(book)) + len(json.dumps(shown)) < 300_000
