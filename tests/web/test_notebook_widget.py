"""The widget's module in a browser, as anywidget loads it: one text, no server behind it."""

from __future__ import annotations

import json
from typing import Any

from kvroom.scenario.scenario import Scenario
from kvroom.ui import codec, notebook
from kvroom.ui.web import page
from kvroom.ui.web.presets import REFERENCE

CELL = """async ([esm, css, answer, elements]) => {
    const sheet = document.createElement('style');
    sheet.textContent = css;
    document.head.append(sheet);
    const url = URL.createObjectURL(new Blob([esm], { type: 'text/javascript' }));
    const { default: widget } = await import(url);
    window.sent = [];
    window.heard = {};
    const state = { answer, elements };
    window.model = { get: (key) => state[key], on: (name, f) => { heard[name] = f; }, off() {},
        send: (message) => sent.push(message),
        set: (key, value) => { state[key] = value; heard['change:' + key](); } };
    const el = document.body.appendChild(document.createElement('div'));
    await widget.render({ model, el });
    await Promise.all([...el.children].map((one) => one.updateComplete));
}"""


def answer(**more: Any) -> Any:
    return json.loads(codec.encode(page.answer(Scenario.from_dict({**REFERENCE.scenario, **more}))))


def test_the_figures_draw_in_a_cell(browser: Any) -> None:
    tab = browser.new_page()
    complaints: list[str] = []
    tab.on("pageerror", lambda e: complaints.append(str(e)))
    tab.on("console", lambda m: complaints.append(m.text) if m.type == "error" else None)
    tab.set_content("<!doctype html><p><svg id='own' width='10' height='10'></svg> other cells</p>")
    elements = [name for name, _ in notebook.FIGURES.values()]
    given = [notebook.script(), notebook.sheet(), answer(), elements]
    tab.evaluate(CELL, given)
    tab.evaluate(CELL, given)  # a second cell
    assert tab.locator("kv-memory .marks .cache").count() == 32
    green = "getComputedStyle(document.querySelector('kv-memory .cache')).fill"
    assert tab.evaluate(green) == "rgb(0, 158, 115)"
    assert tab.evaluate("getComputedStyle(document.getElementById('own')).display") == "inline"
    tab.locator("kv-step kv-n").first.click()
    assert tab.locator(".kvroom #explain").is_visible()
    tab.keyboard.press("Escape")
    tab.locator("kv-price kv-drag").last.focus()
    tab.keyboard.press("ArrowLeft")
    assert tab.evaluate("sent") == [{"name": "bits", "value": 8}]
    tab.evaluate("a => model.set('answer', a)", answer(kv_dtype="fp8"))
    tab.wait_for_function(
        "() => document.querySelectorAll('kv-memory .marks .cache').length === 49"
    )
    assert complaints == []
    tab.close()
