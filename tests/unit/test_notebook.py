"""A Plan in a notebook: figure and table without anything, widget with anywidget, the example run."""

from __future__ import annotations

import json
import re
import sys
import xml.dom.minidom
from pathlib import Path
from typing import Any

import pytest

import kvroom
from kvroom.errors import KvroomError
from kvroom.ui import notebook

EXAMPLE = Path(__file__).parents[2] / "docs/examples/room.ipynb"
ASKED: dict[str, Any] = {"gpu_count": 4, "context_tokens": "32K", "engine": "arithmetic"}


def reference(**more: Any) -> kvroom.Plan:
    return kvroom.plan("llama-3-70b", "80GB", **{**ASKED, **more})


def test_a_plan_shows_itself() -> None:
    html = reference()._repr_html_()
    tree = xml.dom.minidom.parseString(html)  # every element is closed
    assert "Room for 16 requests" in html
    rects = tree.getElementsByTagName("rect")
    assert sum(r.getAttribute("fill") == "#009e73" for r in rects) == 16
    rows = {
        r.firstChild.firstChild.data: r.lastChild.firstChild.data
        for r in tree.getElementsByTagName("tr")
    }
    assert rows["One request"] == "10 GiB" and rows["Requests with room"] == "16"
    assert "class=" not in html and "url(" not in html and "<script" not in html
    assert "kvroom plan llama-3-70b --gpu 80GB:4" in html


def test_who_waits_and_what_does_not_fit_is_drawn() -> None:
    assert "request 17 does not fit" in reference(concurrency=20)._repr_html_()
    html = reference(gpu_count=1)._repr_html_()
    xml.dom.minidom.parseString(html)
    assert "#d55e00" in html and "does not" in html.lower()


def test_bands_prices_and_warnings_are_said() -> None:
    html = kvroom.plan("qwen3-32b", "H100-SXM", gpu_count=2, context_tokens="32K")._repr_html_()
    assert re.search(r"A step of [\d,]+</th>.*ms \([\d.]+ ms to [\d.]+ ms\)", html)
    assert "A million output tokens" in html and "<li>no vLLM version given" in html


def test_what_a_config_says_is_text() -> None:
    config = {**_config(), "_name_or_path": "<img src=x onerror=alert(1)>"}
    html = kvroom.plan({"config": config}, "80GB", **ASKED)._repr_html_()
    assert "<img" not in html


def _config() -> dict[str, Any]:
    from kvroom.models.catalogue import config_of

    return dict(config_of("llama-3-8b"))


def test_the_plan_itself_loads_no_face() -> None:
    import subprocess

    code = (
        "import kvroom, sys; kvroom.plan('llama-3-8b', '80GB'); print('kvroom.ui' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


def test_without_anywidget_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "anywidget", None)
    with pytest.raises(KvroomError, match=r"kvroom\[notebook\]"):
        notebook.widget(reference())
    with pytest.raises(KvroomError, match="is no figure"):
        notebook.widget(reference(), ["memry"])


def test_a_widget_asks_anew_when_a_number_is_turned() -> None:
    pytest.importorskip("anywidget", reason="needs the extra notebook (anywidget)")
    made = notebook.widget(reference(), ["price"])
    assert made.elements == ["kv-price"]
    assert made.plan == reference()
    made._handle_custom_msg({"name": "bits", "value": 8}, [])
    assert made.plan == reference(kv_dtype="fp8")
    assert made.answer["kv"]["bytes_per_token"] == 163840
    made._handle_custom_msg({"name": "layers", "value": 40}, [])
    assert made.plan.kv.bytes_per_token == 81920


def test_a_widget_carries_a_picture_for_whatever_runs_no_widgets() -> None:
    pytest.importorskip("anywidget", reason="needs the extra notebook (anywidget)")
    made = notebook.widget(reference())
    data, _ = made._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in data
    assert data["text/html"] == reference()._repr_html_()
    drawn = xml.dom.minidom.parseString(data["image/svg+xml"])
    assert drawn.documentElement.tagName == "svg"
    assert "10.74 GB" in json.dumps(made.answer)  # its sentences count as its figures do


def test_the_example_runs() -> None:
    shell_module = pytest.importorskip(
        "IPython.core.interactiveshell", reason="needs the extra notebook (IPython)"
    )
    shell = shell_module.InteractiveShell()
    shown: list[Any] = []
    book = json.loads(EXAMPLE.read_text(encoding="utf-8"))
    for cell in book["cells"]:
        if cell["cell_type"] != "code":
            continue
        assert cell["outputs"] == [] and cell["execution_count"] is None
        ran = shell.run_cell("".join(cell["source"]), store_history=False)
        ran.raise_error()
        shown.append(shell.display_formatter.format(ran.result)[0])
    assert "Room for" in shown[0]["text/html"] and "<svg" in shown[0]["text/html"]
    assert eval(shown[1]["text/plain"])[8192] > eval(shown[1]["text/plain"])[131072]
    assert "fp8" in shown[2]["text/html"]
    assert "application/vnd.jupyter.widget-view+json" in shown[3]
