"""``tools/follow.py``: a release's own answers beside the rules; held here with a toy vLLM."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from kvroom.engines.vllm import setup as vllm_setup
from kvroom.simulator.replay import play
from support import from_file

TESTS = Path(__file__).parents[1]
LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 1024,
    "intermediate_size": 2048, "num_attention_heads": 8, "num_key_value_heads": 4,
    "num_hidden_layers": 4, "vocab_size": 1000, "max_position_embeddings": 4096,
}  # fmt: skip
BLOCK_BYTES = 4 * 16 * 4 * 128 * 2 * 2
ROW = {
    "model": "llama", "tp": 1, "pp": 1, "kv_cache_dtype": "auto", "max_model_len": 2048,
    "args": {"max_num_seqs": 8, "max_num_batched_tokens": 2048, "enable_prefix_caching": False},
    "available_bytes": 500 * BLOCK_BYTES,
}  # fmt: skip


@pytest.fixture
def tool() -> ModuleType:
    return from_file("tools/follow.py")


@pytest.fixture
def cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with one case and no script, and the toy in the path of this Python."""
    monkeypatch.setenv("PYTHONPATH", str(TESTS / "toy_vllm"))
    (tmp_path / "toy-capacity-configs").mkdir()
    (tmp_path / "toy-capacity-configs" / "llama.json").write_text(json.dumps(LLAMA))
    (tmp_path / "vllm_capacity.json").write_text(json.dumps({"cases": [ROW, ROW]}))
    return tmp_path


def run(tool: ModuleType, cases: Path, *more: str) -> int:
    out = str(cases / "report")
    command = ["9.1.0", "--python", sys.executable, "--cases", str(cases), "--out", out, *more]
    status: int = tool.main(command)
    return status


def test_a_release_that_changed_nothing(
    tool: ModuleType, cases: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tool, cases) == 0
    assert "1 of 1 cases equal, 0 could not be asked" in capsys.readouterr().out
    rows = json.loads((cases / "report" / "rows.json").read_text())
    assert rows[0]["figures"] == [True, 500, 16, 8000, round(500 / 128, 6), 8]


def test_several_releases_at_one_command(
    tool: ModuleType, cases: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = {**ROW, "gpu": "A100-80G", "available_bytes": 400 * BLOCK_BYTES}
    (cases / "vllm_capacity.json").write_text(json.dumps({"cases": [ROW, other]}))
    command = ["9.1.0,9.2.0", "--python", sys.executable, "--cases", str(cases)]
    assert tool.main([*command, "--out", str(cases / "report")]) == 0
    text = capsys.readouterr().out
    assert text.count("2 of 2 cases equal, 0 could not be asked") == 2
    assert "the environment has 9.1.0, which is what answers" in text


def test_a_case_that_moved_is_told_with_where_its_rule_lies(
    tool: ModuleType,
    cases: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TOY", "refuse")
    assert run(tool, cases) == 1
    text = capsys.readouterr().out
    assert "the toy takes no models today" in text
    assert "points to start_rules.py" in text
    assert "0 of 1 cases equal" in text
    assert "((9, 1, 0), {})," in (cases / "report" / "versions_row.txt").read_text()


def test_a_model_that_came_later_is_not_asked(
    tool: ModuleType,
    cases: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TOY", "no model")
    assert run(tool, cases) == 0
    text = capsys.readouterr().out
    assert "it and its transformers know no model of type llama" in text
    assert "0 of 0 cases equal, 1 could not be asked" in text


def test_prompts_are_cut_whatever_is_told_before_it_was_heeded(tool: ModuleType) -> None:
    script = next(script for each, script in tool.scripts(None) if "chunked prefill off" in each)
    only = {"engine": script["engine"], "requests": script["requests"]}
    assert tool.by_rules(only, "0.11.0").engine.config.enable_chunked_prefill
    assert not tool.by_rules(only, "0.11.1").engine.config.enable_chunked_prefill


def test_the_rule_is_found_whose_other_value_accounts_for_it(tool: ModuleType) -> None:
    hunyuan = next(case for case in tool.of_tests("vllm") if case.name == "cross-layer attention")
    before = tool.figures(tool.question(hunyuan, "vllm", "0.28.0"))
    found = tool.explained(hunyuan, "vllm", "0.29.0", before)
    assert ("shares_hunyuan", True) in found
    assert vllm_setup.rules_of((0, 29, 0)).shares_hunyuan is False
    moved = [tool.Moved(hunyuan, "", before, [("shares_hunyuan", True)])]
    assert tool.stub("0.34.0", moved, {"new_flag"}) == (
        "    ((0, 34, 0), {'shares_hunyuan': True}),\n    # new flag: new_flag\n"
    )


def test_what_would_be_asked_is_listed(
    tool: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tool.main(["0.33.0", "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert "skipped windows" in text
    assert "33 scripts would be asked" in text


def test_an_engine_that_cannot_be_asked_says_so(
    tool: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tool.main(["b11000", "--engine", "llama.cpp"]) == 2
    assert (
        "cannot be asked: it is a program, whose releases are build numbers"
        in capsys.readouterr().out
    )


def test_the_newest_known_release_is_installed_once(
    tool: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(tool, "BASE", tmp_path)
    place = tmp_path / f"sglang-{tool.engine_of('sglang').newest}"
    place.mkdir()
    (place / ".ready").touch()
    assert tool.main(["newest", "--engine", "sglang", "--install"]) == 0
    assert capsys.readouterr().out == f"{place / 'bin' / 'python'}\n"


def test_flags_are_read_from_an_engines_source(tool: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "sglang" / "srt").mkdir(parents=True)
    source = "class ServerArgs:\n    model_path: str\n    tp_size: int = 1\n"
    source += "class PortArgs:\n    no: int = 1\n"
    (tmp_path / "sglang" / "srt" / "server_args.py").write_text(source)
    assert tool.flags_of(tool.PACKAGES["sglang"], tmp_path) == {"model_path", "tp_size"}
    (tmp_path / "sglang" / "srt" / "arg_groups" / "fields").mkdir(parents=True)
    (tmp_path / "sglang" / "srt" / "arg_groups" / "fields" / "memory.py").write_text(
        "class MemoryFields:\n    page_size: int = 1\n"
    )
    found = tool.flags_of(tool.PACKAGES["sglang"], tmp_path)
    assert found == {"model_path", "tp_size", "page_size"}
    assert "mem_fraction_static" in tool.known_flags("sglang")


@pytest.mark.parametrize(
    ("name", "step", "before", "now"),
    [
        (
            "recurrent blocks wider than the others: hits end inside them, on a copy",
            7, [(1, 1), (2, 8)], [(1, 1), (2, 4)],
        ),
        ("asynchronous, window and recurrent state together", 8, [(3, 8)], [(3, 4)]),
    ],
)  # fmt: skip
def test_scripts_go_by_the_rules_of_a_release(
    tool: ModuleType,
    name: str,
    step: int,
    before: list[tuple[int, int]],
    now: list[tuple[int, int]],
) -> None:
    """Requests and tokens of a step, as vLLM 0.31.0's own scheduler served it, and 0.33.0's."""
    script = next(script for each, script in tool.scripts(None) if each == name)
    only = {"engine": script["engine"], "requests": script["requests"]}

    def rows(version: str) -> list[tuple[int, int]]:
        trail: list[list[tuple[int, int]]] = []
        read = tool.by_rules(only, version)
        play(
            read.engine.scheduler(),
            read.served(),
            on_scheduled=lambda output, _: trail.append(
                [(row.request.index, row.tokens) for row in output.scheduled]
            ),
        )
        return trail[step]

    assert rows("0.31.0") == before
    assert rows("0.33.0") == now


def test_blocks_that_were_not_cached_wait_their_turn_before_0_24(tool: ModuleType) -> None:
    """By ``BlockPool.free_blocks`` of both: the last prompt finds a block more once they are used first."""
    prompts = [(0, [[100, 12]], 2), (5, [[200, 5]], 1), (8, [[200, 11]], 3), (12, [[100, 14]], 2)]
    script = {
        "engine": {
            "num_gpu_blocks": 6, "groups": [{"type": "full", "block_size": 4}], "max_num_seqs": 8,
            "max_num_batched_tokens": 32, "enable_prefix_caching": True, "max_model_len": 64,
        },
        "requests": [
            {"arrival_step": at, "prompt": prompt, "output": [[1000 * at + 1000, count]]}
            for at, prompt, count in prompts
        ],
    }  # fmt: skip
    found = {
        version: [
            each["cached_tokens_all"]
            for each in tool.by_rules(script, version).play().to_dict()["requests"]
        ]
        for version in ("0.23.0", "0.24.0")
    }
    assert found == {"0.23.0": [0, 0, 4, 0], "0.24.0": [0, 0, 4, 4]}


WITH_STATE = {
    "num_gpu_blocks": 40, "max_num_seqs": 8, "enable_prefix_caching": True, "max_model_len": 64,
    "groups": [{"type": "full", "block_size": 4}, {"type": "mamba", "block_size": 4}],
}  # fmt: skip


def test_where_prompts_are_cut_for_recurrent_states(tool: ModuleType) -> None:
    """By ``_mamba_block_aligned_split``: at what others share from 0.24.0 on; what is left behind the last
    whole block is not cut again from 0.27.0 on."""

    def steps(version: str, requests: list[tuple[int, list[list[int]]]], budget: int) -> list[int]:
        script = {
            "engine": {**WITH_STATE, "max_num_batched_tokens": budget},
            "requests": [
                {"arrival_step": at, "prompt": prompt, "output": [[1000 * at + 1000, 1]]}
                for at, prompt in requests
            ],
        }
        trail: list[int] = []
        read = tool.by_rules(script, version)
        last = len(requests) - 1
        play(
            read.engine.scheduler(),
            read.served(),
            on_scheduled=lambda output, _: trail.extend(
                row.tokens for row in output.scheduled if row.request.index == last
            ),
        )
        return trail

    shared = [(0, [[100, 18]]), (9, [[100, 9], [300, 9]])]
    assert steps("0.23.0", shared, 32) == [16, 2]
    assert steps("0.24.0", shared, 32) == [8, 8, 2]
    assert steps("0.26.0", shared, 32) == [8, 8, 2]
    behind_another = [(0, [[100, 16]]), (0, [[300, 3]])]
    assert steps("0.26.0", behind_another, 5) == [1, 1, 1]
    assert steps("0.27.0", behind_another, 5) == [3]


def test_windows_have_the_kernels_block_from_0_25_to_0_29(tool: ModuleType) -> None:
    """By ``Attention.get_kv_cache_spec``: the kernel's smallest block; before and after, the model's."""
    mistral = next(case for case in tool.of_tests("vllm") if case.name == "mistral {}")
    args = {**mistral.scenario["engine_args"], "block_size": 64}
    case = tool.FollowCase("blocks of 64", {**mistral.scenario, "engine_args": args})
    tokens = {
        version: tool.figures(tool.question(case, "vllm", version))[2]
        for version in ("0.24.0", "0.25.0", "0.29.0", "0.30.0", "0.31.0")
    }
    assert tokens == {"0.24.0": 64, "0.25.0": 16, "0.29.0": 16, "0.30.0": 64, "0.31.0": 64}


FOLLOWED = {
    (engine, version)
    for engine in ("vllm", "sglang")
    for data in [json.loads((TESTS / f"golden/followed/{engine}.json").read_text())]
    for version in [*data["releases"], *data.get("alike", ())]
}


@pytest.mark.parametrize(("engine", "version"), sorted(FOLLOWED))
def test_what_a_release_said_is_what_the_rules_say(
    tool: ModuleType, engine: str, version: str
) -> None:
    """Cases and scripts' runs that ``make follow … FOLLOW=--write`` recorded of the release itself."""
    rows = tool.FollowedRows(engine)
    for name, scenario, figures in rows.of(version):
        own = tool.figures(tool.question(tool.FollowCase(name, scenario), engine, version))
        assert list(own) == figures, name
    told = rows.runs(version)
    for name, script in tool.scripts(None):
        if name in told:
            only = {"engine": script["engine"], "requests": script["requests"]}
            assert tool.served(tool.by_rules(only, version).play().to_dict()) == told[name], name


def test_rows_of_releases_are_held_once_while_they_are_the_same(
    tool: ModuleType, tmp_path: Path
) -> None:
    def row(blocks: int) -> list[dict[str, object]]:
        return [{"name": "llama", "scenario": {"model": "llama-3-8b"}, "figures": (True, blocks)}]

    for version, blocks in (("0.9.0", 5), ("0.10.0", 7), ("0.9.1", 5), ("0.9.0.1", 5)):
        rows = tool.FollowedRows("vllm", tmp_path)
        rows.add(version, row(blocks), {"a script": [3, [blocks]]})
        written = json.loads(rows.write().read_text())
    assert written["releases"] == ["0.9.0", "0.9.0.1", "0.9.1", "0.10.0"]
    assert written["cases"][0]["figures"] == {"0.9.0": [True, 5], "0.10.0": [True, 7]}
    rows.add("0.9.1", [])
    assert not list(rows.of("0.9.1"))
    rows.write()
    read = tool.FollowedRows("vllm", tmp_path)
    assert not list(read.of("0.9.1"))
    assert [figures for *_, figures in read.of("0.10.0")] == [[True, 7]]
    assert read.scripts["a script"]["0.9.0.1"] == [3, [5]]


def test_a_row_of_rules_goes_where_its_release_stands(tool: ModuleType) -> None:
    text = "CHANGES: Changes = (\n    ((0, 9, 0), {}),\n    (\n        (0, 11, 0),\n        {},\n    ),\n)\n"
    row = "    ((0, 10, 0), {'x': 1}),\n    # a case: see groups.py\n"
    between = tool.with_row(text, (0, 10, 0), row)
    assert between.index("(0, 9, 0)") < between.index("a case") < between.index("(0, 11, 0)")
    first = tool.with_row(text, (0, 8, 0), "    ((0, 8, 0), {}),\n")
    assert first.startswith("CHANGES: Changes = (\n    ((0, 8, 0), {}),\n    ((0, 9, 0)")
    last = tool.with_row(text, (0, 12, 0), "    ((0, 12, 0), {}),\n")
    assert last.endswith("    ),\n    ((0, 12, 0), {}),\n)\n")


def test_which_classes_can_be_split_into_stages_is_read_from_the_source(tmp_path: Path) -> None:
    classes = from_file("tools/model_classes.py")
    models = tmp_path / "vllm/model_executor/models"
    (models / "whole").mkdir(parents=True)
    (models / "registry.py").write_text(
        '_TEXT_MODELS = {"A": ("a", "A"), "B": ("b", "B"), "C": ("whole", "C"), "D": ("b", "D")}\n'
    )
    (models / "a.py").write_text("class Base(Module, SupportsPP): ...\nclass A(Base): ...\n")
    (models / "b.py").write_text(
        "from .a import A as Other\nclass B(Other): ...\nclass D(D): ...\n"
    )
    (models / "whole" / "__init__.py").write_text("from .parts import Part\nclass C(Part): ...\n")
    (models / "whole" / "parts.py").write_text("class Part(Module): ...\n")
    found = classes.classes_in(tmp_path)
    assert found["B"] == ("b", "B")
    assert classes.staged_in(tmp_path, found) == {"A", "B"}

    table = {"staged": {}, "unstaged": "C D"}
    classes.with_stages(table, "0.9.1.post1", {"A", "C", "D"}, {"A", "D"})
    assert table == {"staged": {"0.9.1": "D"}, "unstaged": "C"}


def test_a_release_that_brings_stages_and_no_class_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    classes = from_file("tools/model_classes.py")
    monkeypatch.setattr(classes, "TABLE", tmp_path / "table.json")
    models = tmp_path / "vllm/model_executor/models"
    models.mkdir(parents=True)
    (models / "registry.py").write_text('_TEXT_MODELS = {"A": ("a", "A")}\n')
    for version, bases in (("0.9.0", "Module"), ("0.9.1", "Module, SupportsPP")):
        (models / "a.py").write_text(f"class A({bases}): ...\n")
        classes.main([version, str(tmp_path)])
    table = json.loads(classes.TABLE.read_text())
    assert table["came"] == {"0.9.0": "A"}
    assert (table["staged"], table["unstaged"]) == ({"0.9.1": "A"}, "")
