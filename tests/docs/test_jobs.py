"""The jobs of the documentation: a script each, of three commands at most, with its output on its page."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from test_docs import ROOT, from_file, shown

from kvroom.engines.registry import all_engines
from kvroom.hardware.prices import lists
from kvroom.ui.cli.main import main

JOBS = ROOT / "docs/jobs"
SCRIPTS = sorted(JOBS.glob("*.sh"))
MOST = 3


def commands(script: Path) -> list[str]:
    """The kvroom commands of a script, each on one line."""
    lines = re.sub(r"\\\n\s*", "", script.read_text("utf-8")).splitlines()
    return [" ".join(line.split()) for line in lines if line.startswith("kvroom ")]


def test_every_question_has_a_script():
    pages = {page.stem for page in JOBS.glob("*.md")} - {"index", "peers"}
    assert pages == {script.stem for script in SCRIPTS}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_job_takes_three_commands_and_its_page_shows_what_they_print(script):
    """``test_docs`` runs what a page shows; here script and page are held to be the same commands."""
    page = [" ".join(s.command.split()) for s in shown.shown(JOBS / f"{script.stem}.md")]
    assert commands(script) == page
    assert 1 <= len(page) <= MOST


def test_the_list_of_jobs_names_every_page():
    text = (JOBS / "index.md").read_text("utf-8")
    for page in JOBS.glob("*.md"):
        if page.stem != "index":
            assert f"({page.name})" in text
            assert f"\n{page.stem}\n" in text


def test_tables_of_engines_and_prices_are_the_programs_own(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    tables = from_file("docs/tables.py")
    engines, prices = tables.engines(), tables.prices()
    for engine in all_engines():
        assert f"| {engine.label} |" in engines
    for sheet in lists()["kinds"].values():
        assert sheet["source"] in prices
        assert sheet["date"] in prices
        for usd in sheet["usd_per_hour"].values():
            assert f"{usd:.2f}" in prices


def test_completion_is_what_the_page_says():
    page = (JOBS / "completion.md").read_text("utf-8")
    for shell in ("bash", "zsh", "fish"):
        assert f"_KVROOM_COMPLETE={shell}_source kvroom" in page
        done = CliRunner(env={"_KVROOM_COMPLETE": f"{shell}_source"}).invoke(
            main, prog_name="kvroom"
        )
        assert "_KVROOM_COMPLETE" in done.output
