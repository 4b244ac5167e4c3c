"""The page without a server: Python in the browser answers what the command line answers."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from static_host import ASK, FILE, LINES, PYODIDE, READY, hosted
from test_page import random_scenarios

from kvroom.answer import figures
from kvroom.scenario.scenario import Scenario
from kvroom.ui import codec
from kvroom.ui.cli.main import main
from kvroom.ui.web import page, site
from kvroom.ui.web.presets import REFERENCE
from kvroom.units import decimal_memory

LOG = Path(__file__).parents[2] / "docs/examples/vllm.log"
SERVED = {
    "model": "llama-3-70b",
    "gpu": "H100-SXM",
    "gpu_count": 4,
    "context_tokens": 8192,
    "kv_dtype": "fp8",
    "workload": {
        "arrivals": "poisson:2/s",
        "input": "lognormal:mean=900:sigma=0.6",
        "output": "lognormal:mean=200:sigma=0.5",
        "requests": 20000,
    },
}


def command(*args: str, **scenario: Any) -> Any:
    """What a command prints as JSON of a Scenario."""
    given = [] if not scenario else ["--scenario", "-"]
    done = CliRunner().invoke(main, [*args, *given, "--json"], input=json.dumps(scenario))
    return json.loads(done.stdout)


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, below a folder, as a host of many pages has it."""
    if not PYODIDE.is_dir():
        pytest.skip("no Pyodide here: make site installs it")
    root = tmp_path_factory.mktemp("host")
    site.write(root / "pages/kvroom", PYODIDE)
    return root


@pytest.fixture(scope="session")
def there(browser: Any, built: Path) -> Iterator[Any]:
    """A tab of the site whose Python runs, and what it asked for; no other host among them."""
    with hosted(built) as host:
        context = browser.new_context()
        context.add_init_script("sessionStorage.setItem('kvroom-guessed', '1')")
        tab = context.new_page()
        complaints: list[str] = []
        hosts: set[str] = set()
        tab.on("console", lambda m: complaints.append(m.text) if m.type == "error" else None)
        tab.on("pageerror", lambda e: complaints.append(str(e)))
        context.on("request", lambda r: hosts.add(r.url.split("/")[2]) if "//" in r.url else None)
        tab.goto(f"{host}pages/kvroom/")
        tab.wait_for_function(READY)
        assert tab.evaluate("document.documentElement.dataset.python") == "ready"
        tab.evaluate("() => { document.documentElement.dataset.units = 'gib'; }")  # as a terminal
        yield tab
        assert complaints == []
        assert hosts == {host.split("/")[2]}
        context.close()


def plan(tab: Any, **scenario: Any) -> Any:
    return tab.evaluate(ASK, ["api/plan", scenario])


def test_the_page_shows_the_reference_case_and_what_fp8_and_length_make_of_it(there: Any) -> None:
    room = "document.getElementById('memory').answer.figures.memory.room"
    assert there.evaluate(room) == 16
    for more, requests in (({}, 16), ({"kv_dtype": "fp8"}, 33), ({"context_tokens": 131072}, 4)):
        asked = {**REFERENCE.scenario, **more}
        told = plan(there, **asked)
        assert told["capacity"]["ceiling"]["requests"] == requests
        assert told == command("plan", **asked)


def test_random_questions_are_answered_as_on_the_command_line(there: Any) -> None:
    for asked in random_scenarios(50):
        assert plan(there, **asked) == command("plan", **asked)


def test_refusals_are_those_of_the_command_line(there: Any) -> None:
    for wrong in ({"model": "no-such"}, {"context_tokens": -1}, {"no_such_key": 1}, {"gpu": "80G"}):
        asked = {**REFERENCE.scenario, **wrong}
        told = plan(there, **asked)
        assert set(told["error"]) == {"field", "value", "message", "fix"}
        assert told == command("plan", **asked)
    assert "error" in there.evaluate(ASK, ["api/nowhere", {}])


def test_levers_are_those_of_the_command_line(there: Any) -> None:
    asked = {**REFERENCE.scenario, "engine": "vllm", "gpu": "H100-SXM"}
    assert there.evaluate(ASK, ["api/levers", asked]) == command("levers", **asked)


def test_a_dropped_log_is_held_against_the_plan(there: Any) -> None:
    text = LOG.read_text(encoding="utf-8")
    link = Scenario.from_dict({"model": "llama-3-8b", "gpu": "L40S"}).link("").partition("s=")[2]
    told = there.evaluate(FILE, [f"api/reconcile?s={link}", text])
    assert told["reconciliation"] == command("reconcile", str(LOG), "--gpu", "L40S")
    assert told["file"]["difference"]["sentence"]
    for wrong in ("", "no log at all"):
        assert there.evaluate(FILE, [f"api/reconcile?s={link}", wrong])["error"]["field"] == "file"


def test_twenty_thousand_requests_are_served_as_on_the_command_line(there: Any) -> None:
    told = there.evaluate(LINES, ["api/simulate", {"scenario": SERVED}])
    assert told[0]["kind"] == "asked"
    assert any(line["kind"] == "progress" for line in told)
    assert told[-1]["answer"] == command("simulate", **SERVED)


def test_a_replay_comes_picture_by_picture(there: Any) -> None:
    body = {"scenario": REFERENCE.scenario, "replay": {"story": "chat"}, "frames": True}
    told = there.evaluate(LINES, ["api/simulate", body])
    assert {"asked", "frames", "answer"} <= {line["kind"] for line in told}
    assert told[-1]["answer"]["requests"]["completed"] == 96
    wrong = {**body, "replay": {"story": "none"}}
    assert [line["kind"] for line in there.evaluate(LINES, ["api/simulate", wrong])] == ["error"]


def test_a_question_is_answered_while_a_long_one_is_under_way_and_that_one_can_be_left(
    there: Any,
) -> None:
    how = there.evaluate(
        """async ([asked, served]) => {
            const { ask, lines } = await import(new URL('ask.js', document.baseURI));
            const leaving = new AbortController();
            const long = (async () => {
                try {
                    for await (const line of lines('api/simulate', { scenario: served }, leaving.signal));
                } catch (error) {
                    return error.name;
                }
                return 'ended';
            })();
            await new Promise((done) => setTimeout(done, 200));
            const quick = await ask('api/plan', asked);
            leaving.abort();
            const left = await long;
            return [quick, left, await ask('api/plan', asked)];
        }""",
        [REFERENCE.scenario, SERVED],
    )
    assert how[0] == how[2] == command("plan", **REFERENCE.scenario)
    assert how[1] == "AbortError"


def test_an_old_link_is_read_without_a_server(browser: Any, built: Path) -> None:
    context = browser.new_context()
    tab = context.new_page()
    with hosted(built) as host:
        tab.goto(f"{host}pages/kvroom/?model=llama-3-8b&gpu=H100-SXM&kv=fp8")
        tab.wait_for_function(
            "() => document.getElementById('memory').answer.scenario.kv_dtype === 'fp8'"
        )
        asked = tab.evaluate("document.getElementById('memory').answer.scenario")
        assert (asked["model"], asked["gpu"]) == ("llama-3-8b", "H100-SXM")
    context.close()


def test_a_python_that_does_not_start_is_told_and_started_again(browser: Any, built: Path) -> None:
    context = browser.new_context()
    tab = context.new_page()
    tab.route("**/library.zip.pack", lambda route: route.abort())
    with hosted(built) as host:
        tab.goto(f"{host}pages/kvroom/")
        tab.wait_for_function(READY)
        assert tab.evaluate("document.documentElement.dataset.python") == "failed"
        tab.wait_for_selector("#start-again", state="attached")
        tab.unroute("**/library.zip.pack")
        tab.evaluate("document.getElementById('start-again').click()")
        tab.wait_for_function("() => document.documentElement.dataset.python === 'ready'")
    context.close()


def test_it_works_without_a_network_once_it_was_there(browser: Any, built: Path) -> None:
    context = browser.new_context()
    with hosted(built) as host:
        tab = context.new_page()
        tab.goto(f"{host}pages/kvroom/")
        tab.wait_for_function(READY)
        tab.evaluate("() => navigator.serviceWorker.ready.then(() => null)")
    tab.reload()  # the host is gone
    tab.wait_for_function(READY)
    assert tab.evaluate("document.documentElement.dataset.python") == "ready"
    asked = {**REFERENCE.scenario, "kv_dtype": "fp8"}
    assert plan(tab, **asked)["capacity"]["ceiling"]["requests"] == 33
    context.close()


def test_sliders_move_before_python_runs(browser: Any, built: Path) -> None:
    context = browser.new_context()
    tab = context.new_page()
    tab.route("**/worker.js*", lambda route: route.abort())
    with hosted(built) as host:
        tab.goto(f"{host}pages/kvroom/")
        for more in ({"context_tokens": 131072}, {"kv_dtype": "fp8"}, {"concurrency": 17}):
            asked = {**REFERENCE.scenario, **more}
            told = tab.evaluate(ASK, ["api/plan?explain=1", asked])
            with decimal_memory():
                want = page.answer(Scenario.from_dict(asked))
            assert told == json.loads(codec.encode(want))
        assert tab.evaluate("document.documentElement.dataset.python") != "ready"
    context.close()


def test_python_in_the_page_starts_with_what_a_first_answer_needs() -> None:
    code = """
import sys
from kvroom.ui.web.in_page import PageDesk
desk = PageDesk()
names = ("vllm", "sglang", "llama_cpp", "paged", "serving_rules")
print([m for m in sys.modules if m.startswith(tuple(f"kvroom.engines.{n}" for n in names))])
print([m for m in sys.modules if m.startswith(("kvroom.simulator", "kvroom.optimize"))])
while desk.load():
    pass
print("kvroom.engines.vllm.engine" in sys.modules, "kvroom.ui.web.choices" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:3] == ["[]", "[]", "True True"]


def test_a_site_brings_the_registry_of_figures_read_already() -> None:
    files = dict(site.sources())
    assert not any(name.endswith(".toml") for name in files)
    text = (Path(figures.__file__).with_name("figures.toml")).read_text(encoding="utf-8")
    assert json.loads(files["kvroom/answer/figures.json"]) == tomllib.loads(text)


def test_what_a_site_may_be_written_over(tmp_path: Path) -> None:
    if not PYODIDE.is_dir():
        pytest.skip("no Pyodide here: make site installs it")
    (tmp_path / "own").mkdir()
    (tmp_path / "own/letter.txt").write_text("mine")
    done = CliRunner().invoke(main, ["site", str(tmp_path / "own"), "--pyodide", str(PYODIDE)])
    assert done.exit_code == 2 and "holds other files" in done.stderr
    done = CliRunner().invoke(main, ["site", str(tmp_path / "new"), "--pyodide", str(tmp_path)])
    assert done.exit_code == 2 and "npm install pyodide" in done.stderr
    assert not (tmp_path / "new").exists()
