"""The error: told in one line, plain in JSON, whole after pickling."""

import json
import math
import pickle

import pytest

from kvroom import api
from kvroom.errors import KvroomError, as_sentence, did_you_mean, is_slip, nearest, shortened
from kvroom.planner.plan import plan, work
from kvroom.scenario.scenario import Scenario


def test_one_sentence_and_its_fix():
    e = KvroomError("tp", 3, "does not divide 64 attention heads", "Use one of 1, 2, 4.")
    assert str(e) == "tp: 3 does not divide 64 attention heads. Use one of 1, 2, 4."
    assert isinstance(e, ValueError)


def test_it_survives_pickling():
    e = pickle.loads(pickle.dumps(KvroomError("tp", 3, "is odd", "Use 4.")))
    assert (e.field, e.value, e.message, e.fix) == ("tp", 3, "is odd", "Use 4.")
    assert str(e) == "tp: 3 is odd. Use 4."


def deep():
    value = []
    for _ in range(100_000):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [None, True, 1, 1.5, "x" * 10_000, math.nan, math.inf, 10**5000, [1] * 1000, {1: {2}}, "\ud800"]
    + [b"\xff", "a\nb\x00c\x1b[31m", [10**5000], deep()],
    ids=lambda v: type(v).__name__,
)
def test_any_value_is_told_short_and_plain(value):
    e = KvroomError("x", value, "is odd", "Mend it.")
    assert len(str(e)) < 120
    assert str(e).isprintable()
    told = json.dumps(e.as_dict(), allow_nan=False, ensure_ascii=False).encode()
    assert json.loads(told)["message"] == "is odd"
    assert len(told) < 400


def test_names_from_files_cannot_reach_the_terminal():
    e = KvroomError("a\x1b[2J", 1, "holds \x07\u202e", "Drop \n it" + "!" * 10_000)
    assert str(e).isprintable()
    assert e.message == "holds ??"
    assert len(str(e)) < 1000


def test_shortened():
    assert shortened("abc") == "'abc'"
    assert shortened("a" * 100) == f"'{'a' * 59}…'"
    assert shortened(10**5000) == "a whole number of hundreds of digits"


def test_nearest_names_ignore_case():
    assert nearest("LLAMA-3-70B", ["llama-3-70b", "falcon-7b"]) == ["llama-3-70b"]
    assert did_you_mean("zzz", ["abc"], "See the list.") == "See the list."
    assert did_you_mean("abd", ["abc"], "") == "Did you mean abc?"


@pytest.mark.parametrize(
    ("clause", "said"),
    [
        ("lower the share", "Lower the share."),
        ("max_num_seqs=844 or fewer", "Set max_num_seqs=844 or fewer."),
        ("tp 2 or 4", "Set tp 2 or 4."),
        ("--max-model-len 8192", "Set --max-model-len 8192."),
        ("vLLM 0.9.0 or older", "vLLM 0.9.0 or older."),
        ("fp8 weights would hold them", "fp8 weights would hold them."),
        ("", ""),
    ],
)
def test_names_keep_their_spelling_at_the_beginning_of_a_sentence(clause, said):
    assert as_sentence(clause) == said


@pytest.mark.parametrize(
    ("word", "known", "slip"),
    [
        ("num_key_value_head", "num_key_value_heads", True),
        ("poinst", "points", True),
        ("tims", "times", True),
        ("hash_idz", "hash_ids", True),
        ("points", "points", False),
        ("head_dim", "v_head_dim", False),
        ("n_head", "d_head", False),
        ("seed", "need", False),
        ("input_length", "output_length", False),
    ],
)
def test_a_slip_is_one_letter(word: str, known: str, slip: bool) -> None:
    assert is_slip(word, known) is is_slip(known, word) is slip


MOONCAKE = '{"timestamp": 0, "input_length": 600, "output_length": 10, "hash_idz": [1, 2]}\n'
LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_head": 8,
    "intermediate_size": 11008,
    "vocab_size": 32000,
}


@pytest.mark.parametrize(
    ("keys", "meant"),
    [
        ({"calibration": {"kvroom_calibration": 1, "tims": {}}}, "times"),
        ({"calibration": {"kvroom_calibration": 1, "times": {"poinst": []}}}, "points"),
        (
            {
                "calibration": {
                    "kvroom_calibration": 1,
                    "memory": {"entries": [{"enginee": "vllm"}]},
                }
            },
            "engine",
        ),
        ({"model": {"config": LLAMA}}, "num_key_value_heads"),
        (
            {
                "engine_args": {
                    "speculative_config": {"method": "ngram", "num_speculative_token": 3}
                }
            },
            "num_speculative_tokens",
        ),
        ({"engine_args": {"kv_transfer_config": {"kv_conector": "X"}}}, "kv_connector"),
        ({"engine_args": {"hf_overrides": {"num_hidden_layer": 8}}}, "num_hidden_layers"),
    ],
)
def test_a_misspelt_key_is_refused_with_the_one_that_is_meant(keys, meant) -> None:
    asked = {"model": "llama-3-8b", "gpu": "H100-SXM", **keys}
    with pytest.raises(KvroomError, match=f"Did you mean {meant}\\?"):
        work(Scenario.from_dict(asked))


@pytest.mark.parametrize("key", ["q_lora_rank", "kv_heads", "n_heads", "num_experts", "hidden_dim"])
def test_another_authors_key_of_a_config_is_none_misspelt(key) -> None:
    config = {**LLAMA, "num_key_value_heads": 8, key: 4}
    del config["num_key_value_head"]
    assert plan(Scenario.from_dict({"model": {"config": config}, "gpu": "H100-SXM"})).kv


def test_a_misspelt_key_of_a_trace_is_refused(tmp_path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text(MOONCAKE)
    with pytest.raises(KvroomError, match=r"'hash_idz' is no known key\. Did you mean hash_ids"):
        api.simulate("llama-3-8b", "H100-SXM", trace=str(trace))


def test_a_calibration_that_holds_nothing_is_refused() -> None:
    asked = {"model": "llama-3-8b", "gpu": "H100-SXM", "calibration": {"kvroom_calibration": 1}}
    with pytest.raises(KvroomError, match="holds neither memory nor times"):
        work(Scenario.from_dict(asked))
