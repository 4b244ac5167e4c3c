"""What README and documentation show is what the program does, and every key is explained."""

import doctest
import json
import re
from pathlib import Path

import pytest

from kvroom.answer.figures import registry
from kvroom.models import catalogue
from kvroom.ui import codec
from kvroom.ui.cli.main import main
from support import from_file

ROOT = Path(__file__).resolve().parents[2]
shown = from_file("tools/shown.py")
catalogue_entry = from_file("tools/catalogue_entry.py")
ALL = [s for page in shown.pages() for s in shown.shown(page)]


@pytest.mark.slow
@pytest.mark.parametrize("example", ALL, ids=lambda s: s.name)
def test_a_command_prints_what_its_page_says(example):
    printed = shown.run(example.command)
    if not shown.agrees(example.output, printed):
        assert printed == example.output, "make docs-shown puts today's output in"


def test_every_command_is_documented():
    said = (ROOT / "docs/reference/commands.md").read_text("utf-8")
    for name in main.commands:
        assert f"$ kvroom {name} --help" in said


def test_dots_stand_for_any_lines():
    assert shown.agrees("…\nb\n…", "a\nb\nc")
    assert shown.agrees("a\n…", "a\nb\nc")
    assert not shown.agrees("…\nd\n…", "a\nb\nc")
    assert not shown.agrees("a\nc", "a\nb\nc")


@pytest.mark.parametrize(
    ("said", "now", "then"),
    [
        ("a\nb", "c\nd\ne", "c\nd\ne"),
        ("…\nroom\n  16\n…", "x\nroom\n  33\nz", "…\nroom\n  33\n…"),
        (
            "head\n  1\n…\nexit status 1",
            "tail\n  2\n3\nexit status 1",
            "tail\n  2\n…\nexit status 1",
        ),
    ],
)
def test_rewriting_leaves_out_what_was_left_out(said, now, then):
    assert shown.cut_like(said, now) == then


def test_readme_table_of_changes():
    """Each row's flags, put to the reference case, give the room that the row says."""
    readme = (ROOT / "README.md").read_text("utf-8")
    rows = re.findall(r"`kvroom plan … (--[^`]+)` \| (\w+)", readme)
    assert len(rows) == 4
    reference = "kvroom plan llama-3-70b --gpu 80GB:4 --context 32K --engine arithmetic --json"
    for flags, room in rows:
        plan = json.loads(shown.run(f"{reference} {flags}"))
        said = 0 if room == "none" else int(room)
        assert plan["capacity"]["ceiling"]["requests"] == said


@pytest.mark.parametrize("page", ["docs/python.md"])
def test_python_examples(page):
    text = (ROOT / page).read_text("utf-8")
    blocks = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    test = doctest.DocTestParser().get_doctest(blocks, {}, page, page, 0)
    assert test.examples
    assert doctest.DocTestRunner().run(test).failed == 0


def plan_keys(name: str = "Plan", prefix: str = "") -> list[str]:
    """Every dotted key of a Plan that holds a figure or a list."""
    definitions = codec.schema()["$defs"]
    found = []
    for key, schema in definitions[name]["properties"].items():
        text = json.dumps(schema)
        inner = re.search(r"#/\$defs/(\w+)", text)
        if inner is None or inner[1] == "Scenario":
            found.append(prefix + key)
        else:
            item = "[]" if '"items"' in text or '"prefixItems"' in text else ""
            found += plan_keys(inner[1], f"{prefix}{key}{item}.")
    return found


def test_every_key_of_a_plan_is_a_figure_of_the_registry():
    known = registry()
    keys = [key for key in plan_keys() if key != "scenario"]
    assert not [key for key in keys if key not in known]
    assert not [key for key in keys if not known[key].meaning]


def test_the_registry_names_no_key_that_is_gone():
    known = plan_keys()
    groups = {k.rpartition(".")[0].removesuffix("[]") for k in known}
    keys = [k for k, f in registry().items() if f.meaning and not k.startswith("scenario.")]
    assert [k for k in keys if k not in known and k not in groups] == []


def test_the_schema_and_the_glossary_say_what_the_registry_says(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    text = from_file("docs/tables.py").figures()
    defs = codec.schema()["$defs"]
    for key, value in defs["Step"]["properties"].items():
        if key != "bytes":
            figure = registry()[f"step.{key}"]
            assert value["description"].startswith(figure.meaning)
            assert f"| `step.{key}` | {figure.meaning}" in text


def test_every_scenario_key_has_a_meaning(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    tables = from_file("docs/tables.py")
    for name, within in (("Scenario", ""), ("Workload", "workload.")):
        rows = tables.keys(name, within).strip().split("\n")[2:]
        assert rows
        assert not [row for row in rows if row.endswith("|  |")]


def test_pictures_are_those_of_today():
    for name, svg in from_file("docs/figures.py").draw().items():
        drawn = (ROOT / "docs/images" / name).read_text("utf-8")
        assert drawn == svg, "make figures draws them anew"


def test_links_between_pages_lead_somewhere():
    for page in (*shown.pages(), ROOT / "CHANGELOG.md"):
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_decisions_are_listed():
    index = (ROOT / "docs/adr/index.md").read_text("utf-8")
    for page in (ROOT / "docs/adr").glob("0*.md"):
        assert page.stem in index


@pytest.mark.parametrize("name", catalogue.names())
def test_the_catalogue_keeps_what_its_tool_keeps(name):
    config = dict(catalogue.config_of(name))
    noise = {"bos_token_id": 1, "transformers_version": "5.0.0", "use_cache": True}
    assert catalogue_entry.shape_of(config | noise) == config


def test_every_file_that_the_architecture_names_is_there():
    text = (ROOT / "docs/architecture.md").read_text("utf-8")
    named = {path for path in re.findall(r"`([\w.]+(?:/[\w.]+)+/?)`", text) if path == path.lower()}
    assert len(named) > 40
    homes = [ROOT / "src/kvroom", ROOT]
    assert not [path for path in named if not any((home / path).exists() for home in homes)]


def test_every_module_is_listed_and_none_that_is_gone():
    listed = []
    room = ""
    for line in (ROOT / "docs/modules.md").read_text("utf-8").split("\n"):
        if line.startswith("## "):
            room = line[3:] if line.endswith("/") else ""
        elif line.startswith("| `"):
            listed.append(room + line.split("`")[1])
    modules = from_file("tools/modules.py").modules()
    assert sorted(listed) == sorted(name for name, _ in modules), "make modules writes it anew"
    assert not [name for name, says in modules if not says]
