"""What the page's fields offer: all that is offered `plan` takes, all that is refused it refuses."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from kvroom import api
from kvroom.errors import KvroomError
from kvroom.scenario.scenario import Scenario
from kvroom.ui.web.choices import FIELDS, choices, known

ENGINES = (
    ("vllm", None),
    ("vllm", "0.11.0"),
    ("sglang", None),
    ("tensorrt-llm", None),
    ("tensorrt-llm", "1.0.0"),
    ("llama.cpp", None),
    ("ollama", None),
    ("exllamav2", None),
    ("lmdeploy", None),
    ("arithmetic", None),
)
CARDS = ("T4", "A100-80GB", "H100-SXM", "B200", "MI300X", "80GB")
MODELS = ("qwen3-8b", "gpt-oss-20b", "deepseek-v2-lite")
DTYPES = ("kv_dtype", "weight_dtype")
QUESTIONS = [
    (model, card, engine, version)
    for index, (card, (engine, version)) in enumerate(product(CARDS, ENGINES))
    for model in (MODELS[index % len(MODELS)],)
]


def changed(question: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in {**question, **changes}.items() if value is not None}


def against(question: dict[str, Any], field: str) -> tuple[str, str] | None:
    """The rule and message with which `plan` refuses a width; None where it takes it."""
    try:
        verdict = api.plan(**question, paths=False, hub=False).verdict
    except KvroomError as error:
        return (error.field, error.message) if error.field.endswith(field) else None
    rules = {"kv_dtype": ("cache_type", "cache_on_card", "fp8_cache_on_card")}.get(
        field, ("weight_type", "weights_on_card")
    )
    found = next((reason for reason in verdict.reasons if reason.rule in rules), None)
    assert found is None or not verdict.starts
    return found and (found.rule, found.message)


@pytest.mark.parametrize(("model", "card", "engine", "version"), QUESTIONS)
def test_widths_offered_are_taken_and_refused_ones_are_not(
    model: str, card: str, engine: str, version: str | None
) -> None:
    question = changed(
        {"model": model, "gpu": card, "engine": engine, "context_tokens": 4096},
        {"engine_version": version},
    )
    for field, rows in choices(question, DTYPES).items():
        assert any(row["refused"] is None for row in rows)
        for row in rows:
            told = against(changed(question, row["changes"]), field)
            refused = row["refused"]
            assert told == (refused and (refused["rule"], refused["message"])), (field, row)


@pytest.mark.parametrize("card", ["H100-SXM", "MI300X", "K80", "TPU-v5e"])
def test_engines_offered_run_on_the_card(card: str) -> None:
    try:
        api.gpu(card)
    except KvroomError:
        pytest.skip("no such card in the catalogue")
    question = {"model": "qwen3-8b", "gpu": card}
    for row in choices(question, ["engine"])["engine"]:
        verdict = api.plan(**changed(question, row["changes"]), hub=False).verdict
        off = [reason for reason in verdict.reasons if reason.rule in ("card", "vendor")]
        assert bool(off) == (row["refused"] is not None), row


@pytest.mark.parametrize(
    ("model", "count"), [("qwen3-235b-a22b", 8), ("llama-3-70b", 6), ("deepseek-v2-lite", 16)]
)
@pytest.mark.parametrize("engine", ["vllm", "llama.cpp", "arithmetic"])
def test_layouts_offered_start_and_refused_ones_do_not(model: str, count: int, engine: str) -> None:
    question = {"model": model, "gpu": "H200-SXM", "gpu_count": count, "engine": engine}
    rows = choices(question, ["layout"])["layout"]
    assert rows[0]["value"] is None
    for row in rows:
        asked = changed(question, row["changes"])
        try:
            starts = api.plan(**asked, hub=False).verdict.starts
        except KvroomError:
            starts = False
        assert starts == (row["refused"] is None), row
    wanted = api.plan(**question, hub=False).scenario
    assert rows[0]["label"].endswith(
        " ".join(f"{k} {getattr(wanted, k)}" for k in ("tp", "pp", "dp", "ep", "dcp")
                 if getattr(wanted, k) > 1) or "tp 1"
    )  # fmt: skip


def test_fp8_of_llama_cpp_is_q8_0() -> None:
    rows = choices({"model": "qwen3-8b", "gpu": "H100-SXM", "engine": "llama.cpp"}, DTYPES)
    cache = {row["value"]: row["refused"] for row in rows["kv_dtype"]}
    assert cache["q8_0"] is None and "q8_0" in cache["fp8"]["fix"]
    weights = {row["value"]: row["refused"] for row in rows["weight_dtype"]}
    assert weights["q8_0"] is None and weights["fp8"]["fix"] == "weight_dtype q8_0"


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
def test_an_nvfp4_cache_is_for_blackwell(engine: str) -> None:
    def refused(card: str) -> Any:
        rows = choices({"model": "qwen3-8b", "gpu": card, "engine": engine}, ["kv_dtype"])
        return next(row["refused"] for row in rows["kv_dtype"] if row["value"] == "nvfp4")

    assert refused("B200") is None
    assert "is not Blackwell" in refused("H100-SXM")["message"]


def test_the_engines_own_cache_flag_gives_way_to_a_choice() -> None:
    question = {
        "model": "qwen3-8b", "gpu": "H100-SXM",
        "engine_args": {"kv_cache_dtype": "fp8", "max_num_seqs": 8},
    }  # fmt: skip
    row = next(r for r in choices(question, ["kv_dtype"])["kv_dtype"] if r["value"] == "bf16")
    assert row["changes"]["engine_args"] == {"max_num_seqs": 8}
    assert Scenario.from_dict({**question, **row["changes"]}).kv_dtype == "bf16"


def test_versions_are_the_modelled_ones() -> None:
    rows = choices({"model": "qwen3-8b", "gpu": "H100-SXM"}, ["engine_version"])["engine_version"]
    assert rows[0]["value"] is None and "0.33.0" in rows[0]["label"]
    for row in rows[1:]:
        plan = api.plan("qwen3-8b", "H100-SXM", engine_version=row["value"])
        assert not [text for text in plan.warnings if "not modelled" in text]


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(KvroomError, match="is no field with choices"):
        choices({"model": "qwen3-8b", "gpu": "L4"}, ["price"])
    assert set(choices({"model": "qwen3-8b", "gpu": "L4"})) == set(FIELDS)


def test_models_and_cards_are_found_by_the_words_that_people_type() -> None:
    lists = known()
    words = {row["name"]: " ".join([row["name"], *row["words"]]).lower() for row in lists["models"]}
    assert "maverick" in words["llama-4-maverick"]
    assert "meta-llama/llama-3.3-70b-instruct" in words["llama-3.3-70b"]
    assert [row["name"] for row in lists["models"]] == api.models()
    assert [row["name"] for row in lists["gpus"]] == api.gpus()
