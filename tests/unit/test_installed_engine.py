"""An installed engine is asked itself: held here with a toy vLLM that speaks the same internals."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kvroom import api
from kvroom.engines.config_folder import with_architecture
from kvroom.engines.registry import engine_of
from kvroom.engines.vllm.asked import Printed, moment
from kvroom.errors import KvroomError
from kvroom.kvcache.request import ServedRequest
from kvroom.observe.installed import engine as asking
from kvroom.observe.installed.engine import installed, variables_of
from kvroom.observe.installed.process import InstalledProcess, ProcessLimits
from kvroom.planner.plan import work
from kvroom.scenario.scenario import Scenario
from kvroom.units import GIB, MIB

TOY = Path(__file__).parents[1] / "toy_vllm"
CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 1024,
    "intermediate_size": 2048,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
}
BLOCK_BYTES = 4 * 16 * 4 * 128 * 2 * 2
"""Layers × tokens × heads × head size × (K, V) × two bytes."""


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("PYTHONPATH", str(TOY))
    return sys.executable


def question(**args: Any) -> Scenario:
    return Scenario.from_dict(
        {
            "model": {"config": CONFIG},
            "gpu": "H100-SXM",
            "engine_version": "0.32.0",
            "context_tokens": 2048,
            "engine_args": {"max_num_seqs": 8, "max_num_batched_tokens": 2048, **args},
        }
    )


def test_capacity_is_what_the_engine_says(toy: str) -> None:
    made = api.workings(question(kv_cache_memory_bytes=500 * BLOCK_BYTES + 7), engine_python=toy)
    engine = made.plan.capacity.engine
    assert engine is not None
    assert engine.num_blocks == 500
    assert engine.kv_tokens == 8000
    assert engine.max_concurrency == pytest.approx(500 / 128)
    assert made.plan.warnings[0] == (
        "capacity is what vLLM 9.1.0 itself says; kvroom's own rules say the same"
    )


def test_where_own_rules_differ_the_plan_says_by_how_much(
    toy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = api.plan(question(kv_cache_memory_bytes=500 * BLOCK_BYTES, block_size=32))
    assert own.capacity.engine is not None
    assert own.capacity.engine.num_blocks == 250
    asked = api.plan(
        question(kv_cache_memory_bytes=500 * BLOCK_BYTES, max_num_seqs=4), engine_python=toy
    )
    assert asked.capacity.engine is not None
    assert asked.capacity.engine.max_running_requests == 4


def test_a_release_that_nobody_knows_is_asked_all_the_same(
    toy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOY_VERSION", "99.9.9")
    made = api.plan(question(kv_cache_memory_bytes=GIB), engine_python=toy)
    assert "vLLM 99.9.9 itself says" in made.warnings[0]


def test_a_release_without_a_flag_for_the_caches_bytes_is_told_them_beside(toy: str) -> None:
    asked = question(kv_cache_memory_bytes=500 * BLOCK_BYTES)
    made = api.plan(replace(asked, engine_version="0.9.1"), engine_python=toy)
    assert made.capacity.engine is not None
    assert made.capacity.engine.num_blocks == 500


def test_of_sizes_printed_stage_by_stage_none_is_the_pools() -> None:
    group = SimpleNamespace(kv_cache_spec=SimpleNamespace(block_size=16))
    made = SimpleNamespace(num_blocks=109_226, kv_cache_groups=[group] * 8)
    printed = Printed()
    printed.sizes = {349_520}
    assert printed.tokens(made) == 349_520
    printed.sizes = {349_520, 327_680}
    assert printed.tokens(made) == 218_448


def test_its_refusal_is_an_answer(toy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOY", "refuse")
    made = api.plan(question(kv_cache_memory_bytes=GIB), engine_python=toy)
    assert not made.verdict.starts
    assert "the toy takes no models today" in made.verdict.sentence
    assert "kvroom's own rules would start it" in made.warnings[0]


def test_a_release_of_other_names_is_asked_the_same(
    toy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = question(kv_cache_memory_bytes=500 * BLOCK_BYTES)
    now = api.plan(scenario, engine_python=toy)
    monkeypatch.setenv("TOY", "0.8.5")
    assert api.plan(scenario, engine_python=toy).capacity == now.capacity


def test_longer_requests_are_let_in_only_where_the_question_says_so() -> None:
    """As a server of the user's own environment: it refuses them otherwise, and so does kvroom."""
    variable = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"
    assert variables_of(work(question()).deployment) == {}
    for value in ("0", "1"):
        assert variables_of(work(question(**{variable: value})).deployment) == {variable: value}


def test_a_question_that_falls_back_does_not_decide_the_next(
    toy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOY", "falls back")
    monkeypatch.delenv("VLLM_USE_V1", raising=False)
    first = work(question(kv_cache_memory_bytes=GIB))
    other = work(question(kv_cache_memory_bytes=GIB, max_num_seqs=4))
    with installed(toy, first) as engine:
        for _ in range(2):
            assert engine.plan(first).workings.answer.starts
            with pytest.raises(KvroomError, match="falls back to its V0 engine"):
                engine.plan(other)


def test_an_encoder_without_a_class_is_asked_as_the_bare_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {
        "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES": {
            "llama": "LlamaForCausalLM",
            "bert": "BertLMHeadModel",
        },
        "MODEL_FOR_MASKED_LM_MAPPING_NAMES": {"bert": "BertForMaskedLM"},
        "MODEL_MAPPING_NAMES": {"llama": "LlamaModel", "bert": "BertModel"},
    }
    auto = "transformers.models.auto.modeling_auto"
    monkeypatch.setitem(sys.modules, auto, SimpleNamespace(**names))
    for kind, wanted in (("bert", "BertModel"), ("llama", "LlamaForCausalLM")):
        (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
        with_architecture(str(tmp_path))
        read = json.loads((tmp_path / "config.json").read_text())
        assert read["architectures"] == [wanted]


def test_too_few_bytes_are_refused_by_both(toy: str) -> None:
    made = api.plan(question(kv_cache_memory_bytes=4 * BLOCK_BYTES), engine_python=toy)
    assert not made.verdict.starts
    assert "refuse it too" in made.warnings[0]


ROWS = ("request", "cached_tokens", "preemptions", "status")


@pytest.mark.parametrize("blocks", [400, 130])
def test_its_scheduler_serves_like_kvrooms(
    toy: str, blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions: Counter[str] = Counter()
    ask = InstalledProcess.ask

    def counted(self: InstalledProcess, name: str, **what: Any) -> dict[str, Any]:
        questions[name] += 1
        answer = ask(self, name, **what)
        questions["steps of decodes"] += answer.get("done", 0)
        return answer

    monkeypatch.setattr(InstalledProcess, "ask", counted)
    # The toy serves one step after the other and knows no flag for it: so did vLLM 0.13 by default.
    asked = question(kv_cache_memory_bytes=blocks * BLOCK_BYTES, enable_prefix_caching=False)
    workload = {
        "arrivals": "poisson:200/s", "input": "uniform:100-900", "output": "uniform:5-300",
        "requests": 60,
    }  # fmt: skip
    more = {"workload": workload, "engine_version": "0.13.0"}
    scenario = Scenario.from_dict(asked.differences() | more)
    own = api.simulate(scenario, seed=3)
    theirs = api.simulate(scenario, seed=3, scheduler="engine", engine_python=toy)
    assert theirs.figures["requests"]["completed"] == 60
    assert theirs.figures["preemptions"] == own.figures["preemptions"]
    assert (own.figures["preemptions"] > 0) == (blocks == 130)
    assert [[row[k] for k in ROWS] for row in theirs.rows()] == [
        [row[k] for k in ROWS] for row in own.rows()
    ]
    assert theirs.figures["ttft_engine_s"] == own.figures["ttft_engine_s"]
    assert theirs.figures["kv_blocks"] == own.figures["kv_blocks"]
    assert any("scheduled by vLLM 9.1.0 itself" in w for w in theirs.figures["warnings"])
    assert questions["steps of decodes"] > questions["decode"] > 0


def ends(ill: str, monkeypatch: pytest.MonkeyPatch, limits: ProcessLimits, words: str) -> None:
    """Asking an ill engine fails in a sentence with ``words``, and nothing of it is left."""
    monkeypatch.setenv("TOY", ill)
    made = work(question(kv_cache_memory_bytes=GIB))
    begun = time.monotonic()
    with (
        pytest.raises(KvroomError, match=words) as told,
        asking.installed(sys.executable, made, limits) as engine,
    ):
        engine.plan(made)
        engine.ask("begin")
        engine.ask("step", engine=0)
    assert "\n" not in str(told.value)
    assert time.monotonic() - begun < 120


def test_a_hang_is_ended(toy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ends("hang", monkeypatch, ProcessLimits(answer_s=1.0), "gave no answer to about in 1 s")


def test_a_flood_of_logging_is_ended(toy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ends("print", monkeypatch, ProcessLimits(printed_bytes=8 * MIB), "printed more than 8 MiB")


def test_a_python_that_answers_without_end_is_ended(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexec head -c 400000000 /dev/zero\n")
    python.chmod(0o755)
    script = engine_of("vllm").asked
    assert script is not None
    limits = ProcessLimits(printed_bytes=8 * MIB)
    with (
        InstalledProcess(str(python), script, limits=limits) as process,
        pytest.raises(KvroomError, match="printed more than 8 MiB"),
    ):
        process.ask("about")


def test_a_python_in_the_folder_one_is_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "python").write_text("#!/bin/sh\nexit 7\n")
    (tmp_path / "python").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    made = work(question(kv_cache_memory_bytes=GIB))
    with (
        pytest.raises(KvroomError, match="ended with status 7"),
        asking.installed("./python", made),
    ):
        pass


def test_an_engine_that_holds_too_much_is_ended(toy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ends("hold", monkeypatch, ProcessLimits(memory_bytes=256 * MIB), "of memory and was ended")


def test_a_crash_is_told_with_its_status(toy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ends("crash", monkeypatch, ProcessLimits(), "ended with status 11")


def test_an_exit_at_its_import_is_told(toy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ends("exit", monkeypatch, ProcessLimits(), "no such device")


def test_its_process_is_gone_afterwards(toy: str) -> None:
    script = engine_of("vllm").asked
    assert script is not None
    with InstalledProcess(toy, script) as process:
        assert process.ask("about")["version"] == "9.1.0"
        pid, folder = process.pid, process.folder
        os.kill(pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert not folder.exists()


def test_no_such_interpreter() -> None:
    with pytest.raises(KvroomError, match="is no program that can be run here"):
        api.plan(question(), engine_python="/nowhere/bin/python")


def test_an_interpreter_without_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "")
    with pytest.raises(KvroomError, match=r"has no vllm installed.*pip install vllm"):
        api.plan(question(), engine_python=sys.executable)


def test_auto_finds_one_or_says_what_it_looked_for(
    toy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = api.plan(question(kv_cache_memory_bytes=GIB), engine_python="auto")
    assert "vLLM 9.1.0 itself says" in made.warnings[0]
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setattr(asking, "_on_path", lambda: iter(()))
    with pytest.raises(KvroomError, match="finds no Python that has vllm"):
        api.plan(question(), engine_python="auto")


def test_an_engine_that_cannot_be_asked(toy: str) -> None:
    scenario = Scenario.from_dict(
        {"model": {"config": CONFIG}, "gpu": "H100-SXM", "engine": "llama.cpp"}
    )
    with pytest.raises(KvroomError, match="cannot be asked itself"):
        api.plan(scenario, engine_python=toy)


def test_a_card_that_cannot_be_stood_in_for(toy: str) -> None:
    scenario = Scenario.from_dict(question().differences() | {"gpu": "MI300X"})
    with pytest.raises(KvroomError, match=r"about MI300X.*only NVIDIA's and CPUs"):
        api.plan(scenario, engine_python=toy)


def test_what_only_kvrooms_scheduler_serves_is_refused(toy: str) -> None:
    scenario = Scenario.from_dict(
        question().differences()
        | {
            "tiers": [{"kind": "host"}],
            "workload": {"arrivals": "poisson:1/s", "input": 10, "output": 2},
        }
    )
    with pytest.raises(KvroomError, match="tiers: is served by kvroom's own scheduler only"):
        api.simulate(scenario, scheduler="engine", engine_python=toy)


def test_who_schedules_is_named() -> None:
    with pytest.raises(KvroomError, match="Did you mean engine"):
        api.simulate(question(), scheduler="engin")
    with pytest.raises(KvroomError, match="Add --scheduler engine"):
        api.simulate(question(), engine_python="auto")


def test_no_two_requests_come_at_once() -> None:
    """vLLM orders by the moment of arrival, and takes the first of equals: a server has no equals."""
    came = [(2, 0), (2, 1), (2, 5), (3, 4), (10**16, 2), (10**16, 3)]
    moments = [moment(arrival, index) for arrival, index in came]
    assert moments == sorted(set(moments))
    requests = [ServedRequest(index, arrival, 8, 8) for arrival, index in came]
    assert sorted(requests) == requests
