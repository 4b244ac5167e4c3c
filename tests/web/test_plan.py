"""The instrument in a browser: what is typed is asked, what is dropped is taken, what is shown is a Plan."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import pytest
from test_read import STOPS

from kvroom import api
from kvroom.errors import KvroomError
from kvroom.planner.plan import plan, work
from kvroom.planner.tiers import plan_json
from kvroom.scenario.scenario import Scenario
from kvroom.units import decimal_memory

LOG = """\
INFO 10-01 09:00:00 [core.py:93] Initializing a V1 LLM engine (v0.33.0) with config: \
model='Qwen/Qwen3-235B-A22B-FP8', speculative_config=None, tensor_parallel_size=4, \
data_parallel_size=2, max_seq_len=32768
INFO 10-01 09:00:40 [gpu_model_runner.py:3259] Model loading took 55.3 GiB memory and 20.1 seconds
INFO 10-01 09:00:59 [kv_cache_utils.py:1229] GPU KV cache size: 1,433,152 tokens
INFO 10-01 09:00:59 [kv_cache_utils.py:1234] Maximum concurrency for 32,768 tokens per request: 43.74x
"""
ENGINEER: dict[str, Any] = {
    "model": "qwen3-235b-a22b", "gpu": "H200-SXM", "gpu_count": 8, "weight_dtype": "fp8",
    "workload": {"input_tokens": 2000, "output_tokens": 300, "concurrency": 32},
    "concurrency": 32,
}  # fmt: skip


def asked(v: Any) -> dict[str, Any]:
    """The question that the address holds."""
    return Scenario.from_link(v.page.evaluate("location.href")).differences()


def answered(v: Any) -> dict[str, Any]:
    found: dict[str, Any] = v.page.evaluate("document.getElementById('card').answer")
    beside = ("explanations", "figures", "take_away")
    return {key: value for key, value in found.items() if key not in beside}


def typed(v: Any, selector: str, text: str) -> None:
    """Reach a field, type, and leave it: as a hand on the keyboard does."""
    v.page.focus(selector)
    v.page.keyboard.press("Control+a")
    v.page.keyboard.type(text)
    v.page.keyboard.press("Tab")
    v.settle()


def chosen(v: Any, selector: str, text: str) -> None:
    v.page.focus(selector)
    v.page.keyboard.type(text)
    v.page.wait_for_selector(f"{selector}-list [aria-selected=true]")
    v.page.keyboard.press("Enter")
    v.settle()


def test_an_engineers_path_by_keyboard_alone(visit: Any, browser: Any) -> None:
    v = visit("#view=plan")
    chosen(v, "#model", "qwen3 235b a22b")
    assert v.page.input_value("#model") == "qwen3-235b-a22b"
    chosen(v, "#weights", "fp8")
    chosen(v, "#gpu", "h200 sxm")
    typed(v, "#count", "8")
    chosen(v, "#engine", "vllm")
    for field, text in (("#input", "2000"), ("#output", "300"), ("#users", "32")):
        typed(v, field, text)
    with decimal_memory():
        want = plan(Scenario.from_dict(asked(v)))
    assert v.text("#verdict .sentence") == want.verdict.sentence
    v.page.focus("#paste")
    v.page.keyboard.insert_text(LOG)
    v.page.keyboard.press("Tab")
    v.page.keyboard.press("Enter")
    v.page.wait_for_selector("#taken ul")
    v.settle()
    told = v.text("#taken")
    assert "Taken from vllm 0.33.0" in told and "Qwen/Qwen3-235B-A22B-FP8" in told
    assert "The engine printed" in told and "gpu is not in the file" in told
    assert (
        asked(v)["tp"] == 4 and asked(v)["dp"] == 2 and asked(v)["workload"]["input_tokens"] == 2000
    )
    v.page.wait_for_function("() => document.getElementById('reality-figure').answer?.file")
    v.page.focus("#layout")
    v.page.keyboard.press("ArrowDown")
    v.page.wait_for_selector("#layout-list [role=option]")
    v.page.keyboard.press("Home")
    v.page.keyboard.press("Control+a")
    v.page.keyboard.type("tp 4 pp 2")
    v.page.wait_for_selector("#layout-list [aria-selected=true]")
    v.page.keyboard.press("Enter")
    v.settle()
    assert (asked(v)["tp"], asked(v)["pp"]) == (4, 2) and "dp" not in asked(v)
    want = plan(Scenario.from_dict(asked(v)))
    rows = {
        r["key"]: r
        for r in v.page.evaluate("document.getElementById('card').answer.figures.card.rows")
    }
    assert rows["ttft"]["value"] == want.serving.ttft_s
    assert rows["total"]["value"] == want.serving.output_tokens_per_s
    assert v.page.locator("#card kv-n").count() == len(
        [r for r in rows.values() if r["value"] is not None]
    )
    v.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    v.page.focus("#copy-link")
    v.page.keyboard.press("Enter")
    v.page.wait_for_selector("text=Link copied")
    link = v.page.evaluate("navigator.clipboard.readText()")
    other = visit(link.removeprefix(v.address))
    assert asked(other) == asked(v)
    assert other.text("#card") == v.text("#card").replace("Link copied", "")
    assert other.text("#verdict") == v.text("#verdict")
    fields = """() => Object.fromEntries([...document.querySelectorAll(
        '#question [data-key], #question [data-combo]')].map((f) => [f.id, f.value]))"""
    assert other.page.evaluate(fields) == v.page.evaluate(fields)


def test_maverick_finds_llama_4(visit: Any) -> None:
    v = visit("#view=plan")
    v.page.focus("#model")
    v.page.keyboard.type("maverick")
    v.page.wait_for_selector("#model-list [role=option]")
    assert "llama-4-maverick" in v.page.inner_text("#model-list [aria-selected=true]")
    assert v.page.get_attribute("#model", "aria-expanded") == "true"
    active = v.page.get_attribute("#model", "aria-activedescendant")
    assert v.page.locator(f"#{active}").get_attribute("aria-selected") == "true"
    v.page.keyboard.press("Escape")
    assert v.page.input_value("#model") == "llama-3-70b"
    assert v.page.get_attribute("#model", "aria-expanded") == "false"


def test_a_refused_choice_says_why_and_is_not_taken(visit: Any) -> None:
    v = visit(
        Scenario.from_dict({"model": "qwen3-8b", "gpu": "H100-SXM", "engine": "llama.cpp"}).link("")
    )
    v.page.focus("#kv")
    v.page.keyboard.press("ArrowDown")
    off = v.page.locator("#kv-list [aria-disabled=true]", has_text="fp8").first
    off.wait_for()
    assert "no cache type fp8: kv_dtype q8_0" in off.inner_text()
    off.click(force=True)
    assert v.page.get_attribute("#kv", "aria-expanded") == "true" and "kv_dtype" not in asked(v)
    v.page.wait_for_function(
        "() => document.getElementById('live').textContent.includes('no cache type fp8')"
    )
    chosen(v, "#kv", "q8_0")
    assert asked(v)["kv_dtype"] == "q8_0"


def test_an_error_stands_at_its_field_with_its_fix_and_figures_turn_grey(visit: Any) -> None:
    v = visit("#view=plan")
    typed(v, "#context", "80G")
    assert v.page.get_attribute("#context", "aria-invalid") == "true"
    assert "unknown unit" in v.text("#context-err") and "32K" in v.text("#context-err")
    assert "context-err" in (v.page.get_attribute("#context", "aria-describedby") or "")
    assert v.page.evaluate("document.documentElement.classList.contains('stale')")
    grey = "getComputedStyle(document.getElementById('card')).filter"
    assert "grayscale" in v.page.evaluate(grey)
    v.page.wait_for_function(
        "() => document.getElementById('live').textContent.includes('unknown unit')"
    )
    typed(v, "#context", "32K")
    assert v.page.get_attribute("#context", "aria-invalid") is None
    assert v.page.evaluate(grey) == "none"
    v.complaints.clear()


@pytest.mark.parametrize(
    ("query", "word"),
    [("?model=no-such&gpu=H100", "no-such"), ("?model=llama-3-70b&gpu=H100:0", "gpu_count: 0")],
)
def test_a_plain_link_that_asks_nothing_says_so(visit: Any, query: str, word: str) -> None:
    v = visit(query)
    assert word in v.text("#verdict .fault")
    v.complaints.clear()


def test_a_fold_opens_where_its_field_is_wrong(visit: Any) -> None:
    v = visit("#view=plan")
    v.page.click("text=Parallel ranks, one by one")
    typed(v, "#tp", "3")
    v.page.wait_for_selector("#tp-err:visible")
    assert "Does not divide 64 attention heads" in v.text("#tp-err")
    v.complaints.clear()


@pytest.mark.parametrize(
    ("field", "text", "key", "value"),
    [
        ("#input", "lognormal:mean=900:sigma=0.7", "workload.input", "lognormal:mean=900:sigma=0.7"),
        ("#output", "2K", "workload.output_tokens", 2048),
        ("#rate", "2.5", "workload.requests_per_s", 2.5),
        ("#prefix", "shared:4x512", "workload.prefix", "shared:4x512"),
        ("#turns", "3", "workload.turns", 3),
        ("#think", "15s", "workload.think", "15s"),
        ("#users", "12", "concurrency", 12),
        ("#context", "16k", "context_tokens", 16384),
        ("#version", "0.12.0", "engine_version", "0.12.0"),
        ("#share", "0.8", "engine_args.gpu_memory_utilization", 0.8),
        ("#sequences", "64", "engine_args.max_num_seqs", 64),
        ("#batched", "4096", "engine_args.max_num_batched_tokens", 4096),
        ("#layout", "tp 2", "tp", 2),
    ],
)  # fmt: skip
def test_each_field_asks_its_key(visit: Any, field: str, text: str, key: str, value: Any) -> None:
    question = {"model": "qwen3-8b", "gpu": "H100-SXM", "gpu_count": 2}
    v = visit(Scenario.from_dict(question).link(""))
    typed(v, field, text)
    found: Any = asked(v)
    for part in key.split("."):
        found = found[part]
    assert found == value
    v.page.go_back()
    v.settle()
    assert asked(v) == Scenario.from_dict(question).differences()


def test_every_key_of_a_scenario_has_a_field(visit: Any) -> None:
    v = visit("#view=plan")
    keys = set(v.page.evaluate(
        """() => [...document.querySelectorAll('#question [data-key]')]
        .flatMap((f) => [f.dataset.key, f.dataset.spec]).filter((k) => k)"""
    ))  # fmt: skip
    tops = {key.partition(".")[0] for key in keys}
    assert set(Scenario.PARSERS) - tops == set()
    from kvroom.scenario.workload import Workload

    said = {key.removeprefix("workload.") for key in keys if key.startswith("workload.")}
    assert set(Workload.PARSERS) - said == {"concurrency", "lengths"}  # users; input and output


def test_an_own_card(visit: Any) -> None:
    v = visit("#view=plan")
    v.page.click("text=A card of your own")
    typed(v, "#own-bytes", "141GB")
    typed(v, "#own-rate", "4.8TB/s")
    typed(v, "#own-name", "mine")
    gpu = asked(v)["gpu"]
    assert (gpu["name"], gpu["memory_bytes"], gpu["memory_bytes_per_s"]) == (
        "mine",
        "141GB",
        "4.8TB/s",
    )
    assert v.page.input_value("#gpu") == "your own: mine"
    assert answered(v)["memory"]["gpu_bytes"] == 141_000_000_000
    typed(v, "#price-hour", "2.5")
    assert asked(v)["prices"] == {"mine": 2.5}


def test_a_command_dropped_anywhere_fills_the_fields(visit: Any) -> None:
    v = visit("#view=plan")
    command = "vllm serve Qwen/Qwen3-32B -tp 2 --max-model-len 16384 --kv-cache-dtype fp8 --odd 1"
    v.page.evaluate(
        """(text) => {
            const data = new DataTransfer();
            data.setData('text/plain', text);
            const how = {dataTransfer: data, bubbles: true, cancelable: true};
            document.getElementById('levers').dispatchEvent(new DragEvent('drop', how));
        }""",
        command,
    )
    v.page.wait_for_selector("#taken ul")
    v.settle()
    assert v.page.input_value("#model") == "Qwen/Qwen3-32B"
    assert v.page.input_value("#kv") == "fp8" and v.page.input_value("#context") == "16384"
    assert "--odd is no flag of vLLM" in v.text("#taken")
    v.page.go_back()
    v.settle()
    assert v.page.input_value("#model") == "llama-3-70b"


def test_what_is_nothing_is_told_and_changes_nothing(visit: Any) -> None:
    v = visit("#view=plan")
    before = v.text("#verdict")
    v.page.fill("#paste", "good morning")
    v.page.click("#paste-read")
    v.page.wait_for_selector("#taken .err")
    assert "launch command" in v.text("#taken") and v.text("#verdict") == before
    v.complaints.clear()


def test_simulation_and_commands_are_the_command_lines(visit: Any) -> None:
    question = {
        "model": "qwen3-8b", "gpu": "H100-SXM", "concurrency": 8,
        "workload": {"input_tokens": 500, "output_tokens": 50, "concurrency": 8, "requests": 60},
    }  # fmt: skip
    v = visit(Scenario.from_dict(question).link(""))
    v.page.fill("#slo", "ttft_p95=2s,tpot_p95=1ms")
    v.page.click("#serve-run")
    v.page.wait_for_selector("#served table")
    want = api.simulate(**question, slo="ttft_p95=2s,tpot_p95=1ms").to_dict()
    text = v.text("#served")
    assert f"{want['requests']['completed']} of {want['requests']['arrived']}" in text
    for name, one in want["slo"].items():
        assert f"{name}: " in text
        line = v.page.locator(f'#served .kept li:has-text("{name}")')
        assert line.get_attribute("data-holds") == str(one["met"]).lower()
    v.page.locator("#run").scroll_into_view_if_needed()
    v.page.wait_for_selector("#launched pre")
    assert v.text("#launched pre") == api.launch(**question).command
    forms = v.page.locator("#launched .seg span").all_inner_texts()
    assert {"shell", "kubernetes", "compose", "kvroom"} <= set(forms)
    typed(v, "#input", "600")
    assert "stale" in (v.page.get_attribute("#served", "class") or "")


def test_agents_are_sessions_as_on_the_command_line(visit: Any) -> None:
    question = {"model": "qwen3-8b", "gpu": "H100-SXM", "context_tokens": "32K"}
    v = visit(Scenario.from_dict(question).link(""))
    v.page.evaluate("document.getElementById('agents').closest('details').open = true")
    typed(v, "#agents", "3")
    typed(v, "#requests", "24")
    typed(v, "#tool", "5s")
    workload = {"agents": 3, "requests": 24, "tool": "5s"}
    same = Scenario.from_dict({**question, "workload": workload})
    assert asked(v)["workload"] == same.differences()["workload"]
    v.page.click("#serve-run")
    v.page.wait_for_selector("#served table", timeout=120_000)
    figures = api.simulate(same).figures["requests"]
    told = f"{figures['completed']} of {figures['arrived']}"
    assert told in v.page.inner_text("#served")


def test_how_many_agents_hold_is_what_the_command_line_says(visit: Any) -> None:
    question = {
        "model": "llama-3.1-8b",
        "gpu": "RTX-4090",
        "context_tokens": 16384,
        "kv_dtype": "fp8",
    }
    spec = {"agents": 3, "first": "4000", "result": "200", "turns": "1", "agent": "3", "tool": "1s"}
    v = visit(Scenario.from_dict(question).link(""))
    assert v.page.locator("#agents-run").is_hidden()  # nobody asks for agents
    v = visit(Scenario.from_dict({**question, "workload": spec}).link("") + "&slo=ttft_p95%3D100ms")
    assert v.page.input_value("#slo") == "ttft_p95=100ms"
    v.page.click("#agents-run")
    v.page.wait_for_selector("#served .kept li", timeout=120_000)
    line = ",".join(f"{key}={value}" for key, value in spec.items())
    want = api.agents(line, **question, slo="ttft_p95=100ms", seeds=1, only=())
    assert v.text("#served .kept li") == want.sentence
    assert v.page.get_attribute("#served .kept li", "data-holds") == "false"
    tried = v.page.locator("#served .table:last-of-type tbody tr").count()
    assert tried == len(want.base.held[0].trials)
    assert "kvroom agents" in v.text("#served p.soft code")
    assert {"host", "FP8"} & set(v.text("#served .buttons").replace(" cache", "").split())


def test_an_objective_is_in_the_link_and_refused_at_its_field(visit: Any) -> None:
    v = visit(Scenario.from_dict(ENGINEER).link(""))
    typed(v, "#slo", "ttft_p95=2s")
    link = v.page.evaluate("document.getElementById('card').link()")
    assert visit(link.removeprefix(v.address)).page.input_value("#slo") == "ttft_p95=2s"
    assert Scenario.from_link(link).differences() == asked(v)
    typed(v, "#slo", "soon")
    v.page.click("#serve-run")
    v.page.wait_for_selector("#slo-err")
    assert v.page.get_attribute("#slo", "aria-invalid") == "true"
    v.complaints.clear()


def test_what_would_not_start_says_so_first_in_its_colour(visit: Any) -> None:
    v = visit(Scenario.from_dict({"model": "llama-3-70b", "gpu": "L4"}).link(""))
    assert v.page.get_attribute("#verdict", "data-colour") == "stopped"
    assert v.text("#verdict .sentence").startswith("Does not fit")
    assert v.page.locator(".answer[data-colour=stopped] .reasons li").count() == 1
    v.page.locator("#run").scroll_into_view_if_needed()
    v.page.wait_for_selector("#launched .err")


def test_a_warnings_fix_leads_to_its_field(visit: Any) -> None:
    v = visit(Scenario.from_dict({"model": "qwen3-8b", "gpu": "H100-SXM"}).link(""))
    v.page.click(".answer .warnings button:has-text('--engine-version')")
    assert v.page.evaluate("document.activeElement.id") == "version"


def drawn(random: random.Random) -> dict[str, Any]:
    """A state of the form."""
    engine = random.choice(["arithmetic", "vllm", "sglang", "tensorrt-llm", "llama.cpp"])
    question: dict[str, Any] = {
        "model": random.choice(api.models()),
        "gpu": random.choice(["A100-80GB", "H100-SXM", "H200-SXM", "B200", "MI300X", "L40S"]),
        "gpu_count": random.choice([1, 2, 4, 8]),
        "engine": engine,
    }
    if random.random() < 0.6:
        question["context_tokens"] = random.choice([2048, 10_000, 32_768, 131_072])
    if random.random() < 0.4:
        question["weight_dtype"] = random.choice(["fp8", "int4", "q4_k_m", "nvfp4"])
    if random.random() < 0.4:
        question["kv_dtype"] = random.choice(["bf16", "fp8", "q8_0"])
    if random.random() < 0.7:
        question["workload"] = {
            "input_tokens": random.choice([100, 2000, 9000]),
            "output_tokens": random.choice([1, 50, 700]),
        }
        if random.random() < 0.3:
            question["workload"]["requests_per_s"] = random.choice([0.5, 4.0])
        else:
            question["concurrency"] = random.choice([1, 16, 300])
    if engine == "vllm" and random.random() < 0.3:
        question["engine_args"] = {"gpu_memory_utilization": 0.85, "max_num_seqs": 128}
    return question


def test_fifty_states_of_the_form_equal_the_command_line(visit: Any) -> None:
    v = visit("#view=plan")
    dice = random.Random(18)
    refused = 0
    for _ in range(50):
        question = drawn(dice)
        v.page.fill("#paste", json.dumps(question))
        v.page.click("#paste-read")
        try:
            scenario = Scenario.from_dict(question)
            with decimal_memory():
                want = json.loads(json.dumps(plan_json(work(scenario, paths=False))))
        except KvroomError as error:
            refused += 1
            v.page.wait_for_selector(".err >> nth=0")
            assert error.message[:30] in v.page.inner_text("#plan")
            v.settle()
            continue
        v.settle()
        link = v.page.evaluate("document.getElementById('card').link()")
        assert Scenario.from_link(link).differences() == scenario.differences()
        assert answered(v) == want
        assert v.page.inner_text("#verdict .sentence") == want["verdict"]["sentence"]
    assert refused < 25
    v.complaints.clear()


@pytest.mark.parametrize("width", [320, 360, 1280, 1600, 2560])
def test_nothing_is_wider_than_the_screen(visit: Any, width: int) -> None:
    v = visit(Scenario.from_dict(ENGINEER).link(""), viewport={"width": width, "height": 900})
    for fold in v.page.locator("#question details").all():
        fold.evaluate("(d) => (d.open = true)")
    assert v.page.evaluate("document.documentElement.scrollWidth") <= width
    v.page.focus("#kv")
    v.page.keyboard.press("ArrowDown")
    v.page.wait_for_selector("#kv-list [role=option]")
    assert v.page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 360)])
def test_axe_finds_nothing_whatever_is_open(visit: Any, scheme: str, width: int) -> None:
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe is not installed"
    )
    v = visit(
        Scenario.from_dict(ENGINEER).link(""),
        color_scheme=scheme,
        viewport={"width": width, "height": 900},
        reduced_motion="reduce",
    )
    for fold in v.page.locator("#question details").all():
        fold.evaluate("(d) => (d.open = true)")
    v.page.fill("#paste", "vllm serve Qwen/Qwen3-32B -tp 2 --odd 1")
    v.page.click("#paste-read")
    v.page.wait_for_selector("#taken ul")
    v.settle()
    typed(v, "#think", "soon")
    v.page.focus("#kv")
    v.page.keyboard.press("ArrowDown")
    v.page.wait_for_selector("#kv-list [aria-disabled]")
    v.complaints.clear()
    found = axe.Axe().run(v.page)
    assert found.violations_count == 0, found.generate_report()


def test_few_stops_of_tab(visit: Any) -> None:
    v = visit(Scenario.from_dict(ENGINEER).link(""))
    for section in ("run", "levers", "reality", "replay", "take"):
        v.page.locator(f"#{section}").scroll_into_view_if_needed()
        v.settle()
    v.page.wait_for_selector("kv-reuse figure")
    v.page.wait_for_timeout(600)  # stops are counted anew once the hand rests
    stops = v.page.evaluate(STOPS)
    assert len(stops) <= 60, stops


def test_boxes_of_one_stop_are_gone_through_by_arrows(visit: Any) -> None:
    v = visit(Scenario.from_dict(ENGINEER).link(""))
    v.page.locator("#levers").scroll_into_view_if_needed()
    v.page.wait_for_selector("kv-levers .ranking input")
    v.settle()
    v.page.wait_for_timeout(600)
    first = v.page.locator("kv-levers .ranking .pull input").first
    first.focus()
    v.page.keyboard.press("ArrowRight")
    assert v.page.evaluate("document.activeElement.matches('kv-levers :is(input, kv-n)')")
    assert not first.evaluate("(e) => e === document.activeElement")
    v.page.focus(".modes [aria-current]")
    v.page.keyboard.press("ArrowRight")
    assert v.page.evaluate("document.activeElement.dataset.view") == "present"
    v.page.keyboard.press("Enter")
    v.settle()
    links = "[...document.querySelectorAll('header.top [data-view]')]"
    v.page.wait_for_function(f"() => {links}.every((a) => !a.tabIndex)")  # arrows turn slides there
    v.page.keyboard.press("ArrowRight")
    v.settle()
    assert "slide=2" in v.page.evaluate("location.hash")


def test_an_engines_name_keeps_its_letters_and_a_way_out_leads_to_the_levers(visit: Any) -> None:
    asked = {"model": "llama-3.1-70b", "gpu": "H100-SXM", "gpu_count": 8, "engine": "vllm"}
    v = visit(Scenario.from_dict({**asked, "context_tokens": 2**20}).link(""))
    assert v.text("#card .reasons li").startswith("vLLM refuses")
    v = visit(Scenario.from_dict({**asked, "context_tokens": 8192, "concurrency": 90_000}).link(""))
    assert v.page.locator("#card .reasons a").get_attribute("href") == "#levers"


def test_commands_under_way_are_said_in_their_own_section(visit: Any) -> None:
    v = visit()

    def late(route: Any) -> None:
        time.sleep(1.5)
        route.continue_()

    v.page.route("**/api/launch*", late)
    v.page.locator("#run").scroll_into_view_if_needed()
    v.page.wait_for_selector("#run .near-said >> text=Working it out")
    assert v.page.locator("#serve .near-said").count() == 0
    v.page.wait_for_selector("#launched pre")
    v.settle()


def test_words_that_places_put_behind_a_shared_link_ask_nothing(visit: Any) -> None:
    v = visit("?utm_source=feed&fbclid=abc")
    assert v.page.evaluate("document.documentElement.dataset.view") == "read"
    assert v.page.locator(".fault:visible").count() == 0
    v = visit("?model=llama-3-8b&gpu=80GB&utm_source=feed")
    assert asked(v)["model"] == "llama-3-8b"


def test_the_usual_engine_is_named_where_a_command_brings_it(visit: Any) -> None:
    v = visit("#view=plan")
    v.page.fill("#paste", "vllm serve meta-llama/Llama-3.3-70B-Instruct --tensor-parallel-size 4")
    v.page.click("#paste-read")
    v.page.wait_for_selector("#taken li")
    assert "Engine: vllm (was arithmetic)" in v.text("#taken")
    v.settle()
