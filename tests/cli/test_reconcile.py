# ruff: noqa: E501 - lines as engines print them
"""``kvroom reconcile``, ``launch`` and ``plan --from-command`` as they are typed."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kvroom.ui.cli.main import main

LOG = """\
INFO [utils.py:1] non-default args: {'model': 'llama-3.1-8b', 'max_model_len': 8192, 'gpu_memory_utilization': 0.9}
INFO [core.py:1] Initializing a V1 LLM engine (v0.11.0) with config: model='llama-3.1-8b', max_seq_len=8192, tensor_parallel_size=1, kv_cache_dtype=auto
INFO [gpu_model_runner.py:1] Model loading took 14.9889 GiB and 2.1 seconds
INFO [gpu_worker.py:298] Available KV cache memory: 54.17 GiB
INFO [kv_cache_utils.py:864] GPU KV cache size: 443,760 tokens
INFO [kv_cache_utils.py:868] Maximum concurrency for 8,192 tokens per request: 54.17x
INFO [gpu_worker.py:391] Free memory on device (78.66/79.19 GiB) on startup. Desired GPU memory utilization is (0.9, 71.27 GiB). Actual usage is 14.99 GiB for weight, 1.97 GiB for peak activation, 0.14 GiB for non-torch memory, and 0.67 GiB for CUDAGraph memory.
"""


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "vllm.log"
    path.write_text(LOG)
    return str(path)


def typed(*args: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, list(args), input=stdin)


def answer(*args: str, stdin: str | None = None) -> dict[str, Any]:
    done = typed(*args, "--json", stdin=stdin)
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_keys_that_scripts_rely_on(log: str) -> None:
    told = answer("reconcile", log, "--gpu", "H100-SXM")
    assert (told["engine"], told["engine_version"]) == ("vllm", "0.11.0")
    assert told["missing"] == []
    assert told["printed"]["kv_tokens"] == 443_760
    assert told["printed"]["weights_bytes"] == round(14.99 * 2**30)
    assert told["given_bytes"]["kv_tokens"] == pytest.approx(443_760, rel=0.005)
    names = {"weights", "activations", "runtime", "graphs", "kv"}
    accounts = {a["name"]: a for a in told["accounts"]}
    assert names <= set(accounts)
    for a in accounts.values():
        keys = ["name", "predicted_bytes", "printed_bytes", "difference_bytes", "reason", "flag"]
        assert list(a) == keys
        assert a["reason"]
        if a["printed_bytes"] is not None:
            assert a["difference_bytes"] == a["printed_bytes"] - a["predicted_bytes"]
    known = told["scenario"]["known_bytes"]
    assert known["visible"] == told["printed"]["total_gpu_bytes"]
    assert known["runtime"] == round(0.14 * 2**30)


def test_its_scenario_plans_what_was_printed(log: str, tmp_path: Path) -> None:
    told = answer("reconcile", log, "--gpu", "H100-SXM")
    question = tmp_path / "question.json"
    question.write_text(json.dumps(told["scenario"]))
    plan = answer("plan", "--scenario", str(question))
    assert plan["capacity"]["engine"]["kv_tokens"] == pytest.approx(443_760, rel=0.005)


def test_what_is_missing_is_asked_for(log: str) -> None:
    told = answer("reconcile", log)
    assert told["missing"] == ["gpu"]
    assert told["predicted"] == {}
    assert told["given_bytes"]["kv_tokens"] == pytest.approx(443_760, rel=0.005)
    assert "--gpu NAME" in typed("reconcile", log).output


def test_on_the_screen(log: str) -> None:
    done = typed("reconcile", log, "--gpu", "H100-SXM")
    assert done.exit_code == 0
    for word in ("predicted", "printed", "weights", "443,760", "--gpu-memory-utilization"):
        assert word in done.output
    assert max(map(len, done.output.splitlines())) <= 80


@pytest.mark.parametrize(
    "data", [b"", b"\0\1\2" * 1000, b"nothing of the kind\n" * 100, b"\x1f\x8b\x08 not gzip", b"{"]
)
def test_a_file_that_is_no_log(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "any"
    path.write_bytes(data)
    ended = typed("reconcile", str(path))
    assert ended.exit_code == 2
    assert "is no engine's start-up log" in ended.stderr
    assert not ended.stdout
    told = json.loads(typed("reconcile", str(path), "--json").stdout)
    assert set(told["error"]) == {"field", "value", "message", "fix"}


@pytest.mark.parametrize("path", ["no/such/file", ".", "a\0b"])
def test_a_file_that_cannot_be_read(path: str) -> None:
    done = typed("reconcile", path)
    assert done.exit_code == 2
    assert "Traceback" not in done.output
    assert "Give the file" in done.stderr


def test_a_bad_answer_is_refused(log: str) -> None:
    done = typed("reconcile", log, "--gpu", "no such card")
    assert done.exit_code == 2
    assert "gpu" in done.stderr


def test_calibration_corrects_later_plans(log: str, tmp_path: Path) -> None:
    profile = tmp_path / "cluster.json"
    told = answer("reconcile", log, "--gpu", "H100-SXM", "--calibrate", str(profile))
    kept = json.loads(profile.read_text())
    assert kept["kvroom_calibration"] == 1
    entry = kept["memory"]["entries"][0]
    assert (entry["engine"], entry["gpu"]) == ("vllm", "H100-SXM")
    assert "vllm.log" in entry["source"]
    question = ["plan", "llama-3.1-8b", "--gpu", "H100-SXM", "--context", "8192"]
    question += ["--engine-version", "0.11.0", "--engine-arg", "gpu_memory_utilization=0.9"]
    plain = answer(*question)
    mended = answer(*question, "--calibration", str(profile))
    printed = told["printed"]["kv_available_bytes"]
    off = [abs(p["memory"]["kv_bytes"] - printed) for p in (plain, mended)]
    assert off[1] < off[0]
    assert off[1] < 0.005 * printed
    assert sum(a["bytes"] for a in mended["memory"]["accounts"]) == mended["memory"]["gpu_bytes"]
    other = answer(
        *[x.replace("llama-3.1-8b", "qwen3-8b") for x in question], "--calibration", str(profile)
    )
    assert any("corrected by" in w for w in other["warnings"])
    elsewhere = answer("plan", "llama-3.1-8b", "--gpu", "L40S", "--calibration", str(profile))
    assert not any("corrected by" in w for w in elsewhere["warnings"])


def test_too_little_to_learn_from(tmp_path: Path) -> None:
    path = tmp_path / "short.log"
    path.write_text("INFO GPU KV cache size: 5 tokens\n")
    out = tmp_path / "out.json"
    done = typed("reconcile", str(path), "--calibrate", str(out))
    assert done.exit_code == 2
    assert not out.exists()


@pytest.mark.parametrize(
    "content", ["{}", "[1]", '{"kvroom_calibration": 9}', '{"kvroom_calibration": 1, "memory": 5}']
)
def test_a_calibration_that_is_none(content: str, tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(content)
    done = typed("plan", "llama-3-8b", "--gpu", "L40S", "--calibration", str(path))
    assert done.exit_code == 2
    assert "calibration" in done.stderr


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm", "llama.cpp", "ollama"])
def test_launch_and_back(engine: str) -> None:
    question = ["llama-3.1-8b", "--gpu", "L40S:2", "--context", "16K", "--engine", engine]
    if engine in ("llama.cpp", "ollama"):
        question[2] = "L40S"
    made = answer("launch", *question)
    plan = answer("plan", *question)
    back = answer("plan", "--from-command", made["command"])
    assert back["capacity"]["engine"]["kv_tokens"] == plan["capacity"]["engine"]["kv_tokens"]
    piped = answer("plan", "--from-command", "-", stdin=typed("launch", *question).output)
    assert piped == back


def test_flags_win_over_the_command() -> None:
    back = answer(
        "plan", "--from-command", "vllm serve llama-3-8b --max-model-len 4096 --max-num-seqs 8",
        "--gpu", "L40S", "--context", "8K", "--engine-arg", "gpu_memory_utilization=0.8",
    )  # fmt: skip
    scenario = back["scenario"]
    assert scenario["context_tokens"] == 8192
    assert scenario["engine_args"] == {"max_num_seqs": 8, "gpu_memory_utilization": 0.8}


def test_unknown_flags_are_warnings() -> None:
    back = answer("plan", "--from-command", "vllm serve llama-3-8b --brand-new 5", "--gpu", "L40S")
    assert any("--brand-new" in w for w in back["warnings"])


def test_helm() -> None:
    done = typed("launch", "llama-3-8b", "--gpu", "L40S", "--format", "helm")
    assert done.exit_code == 0
    assert "modelURL" in done.output
    assert typed("launch", "llama-3-8b", "--gpu", "L40S", "--format", "tarball").exit_code == 2
    other = typed("launch", "llama-3-8b", "--gpu", "L40S", "--engine", "sglang", "--format", "helm")
    assert other.exit_code == 2


@pytest.mark.parametrize("form", ["shell", "helm"])
def test_a_file_that_holds_the_command(form: str, tmp_path: Path) -> None:
    question = (
        "llama-3-8b",
        "--gpu",
        "H100-SXM",
        "--engine-version",
        "0.33.0",
        "--kv-dtype",
        "fp8",
    )
    path = tmp_path / "start"
    path.write_text(typed("launch", *question, "--format", form).output, "utf-8")
    back = answer("plan", "--from-command", str(path))
    first = answer("plan", *question)
    assert back["capacity"] == first["capacity"]
    assert back["memory"] == first["memory"]
    assert back["verdict"] == first["verdict"]


def test_a_command_that_lacks_its_model() -> None:
    command = ("plan", "--gpu", "H100-SXM", "--from-command", "vllm serve $MODEL --max-num-seqs 8")
    refused = typed(*command)
    assert refused.exit_code == 2
    assert "$MODEL" in refused.stderr
    assert "--model" in refused.stderr
    told = answer(*command, "--model", "llama-3-8b")
    assert told["scenario"]["engine_args"] == {"max_num_seqs": 8}


@pytest.mark.parametrize(
    ("command", "gpu", "layout"),
    [
        ("vllm serve deepseek-ai/DeepSeek-V3 -tp 16", "H200-SXM:8", None),
        ("vllm serve llama-3-8b -tp 4", "L40S:8", {"tp": 4, "gpu_count": 4}),
        ("vllm serve llama-3-8b", "L40S:4", {"gpu_count": 1}),
        (
            "python -m sglang.launch_server --model-path llama-3-8b --tp 1",
            "L40S:8",
            {"tp": 1, "gpu_count": 1},
        ),
        ("vllm serve deepseek-v3 -tp 8 -dcp 8", "H200-SXM:8", {"tp": 8, "dcp": 8}),
        ("vllm serve llama-3-70b -tp 4 -pp 2", "H100-SXM:8", {"tp": 4, "pp": 2}),
        (
            "vllm serve mixtral-8x7b --enable-expert-parallel -tp 4",
            "H100-SXM:4",
            {"tp": 4, "ep": 4},
        ),
        ("llama-server -m llama-3-8b", "L40S:2", {"gpu_count": 2}),
    ],
)
def test_the_commands_layout_stands_beside_a_count(
    command: str, gpu: str, layout: dict[str, int] | None
) -> None:
    asked = ("plan", "--from-command", command, "--gpu", gpu)
    if layout is None:
        refused = typed(*asked)
        assert refused.exit_code == 2
        assert "gpu_count" in refused.stderr
        return
    found = answer(*asked)["scenario"]
    assert {k: found[k] for k in layout} == layout


def test_ranks_given_beside_a_command() -> None:
    command = "vllm serve mixtral-8x7b --enable-expert-parallel -tp 4 -pp 2"
    found = answer("plan", "--from-command", command, "--gpu", "H100-SXM:16", "--tp", "8")[
        "scenario"
    ]
    assert (found["tp"], found["pp"], found["ep"], found["gpu_count"]) == (8, 2, 8, 16)
    dp = ("--gpu", "L40S:4", "--dp", "4")
    found = answer("plan", "--from-command", "vllm serve llama-3-8b", *dp)["scenario"]
    assert (found["tp"], found["dp"]) == (1, 4)


SHORT = """\
INFO [utils.py:1] non-default args: {'model': 'llama-3.1-8b', 'max_model_len': 8192, 'gpu_memory_utilization': 0.9}
INFO [core.py:1] Initializing a V1 LLM engine (v0.11.0) with config: model='llama-3.1-8b', max_seq_len=8192, tensor_parallel_size=1, kv_cache_dtype=auto
INFO [gpu_model_runner.py:1] Model loading took 14.9889 GiB and 2.1 seconds
INFO [gpu_worker.py:298] Available KV cache memory: 49.8 GiB
INFO [kv_cache_utils.py:864] GPU KV cache size: 407,952 tokens
"""
PLAIN = ("plan", "llama-3.1-8b", "--gpu", "H100-SXM", "--context", "8K", "--engine-version", "0.11.0",
         "--engine-arg", "gpu_memory_utilization=0.9")  # fmt: skip


@pytest.mark.parametrize(("text", "tokens"), [(LOG, 443_760), (SHORT, 407_952)])
def test_the_printed_cache_calibrates_what_is_not_printed(
    text: str, tokens: int, tmp_path: Path
) -> None:
    (tmp_path / "log").write_text(text)
    profile = str(tmp_path / "profile.json")
    answer("reconcile", str(tmp_path / "log"), "--gpu", "H100-SXM", "--calibrate", profile)
    assert answer(*PLAIN)["capacity"]["engine"]["kv_tokens"] != tokens
    mended = answer(*PLAIN, "--calibration", profile)
    assert mended["capacity"]["engine"]["kv_tokens"] == tokens


def test_a_reason_says_how_much_it_leaves(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(SHORT)
    told = answer("reconcile", str(tmp_path / "log"), "--gpu", "H100-SXM")
    kv = next(a for a in told["accounts"] if a["name"] == "kv")
    assert "weights" not in kv["reason"]  # a few MiB of 1.6 GiB
    assert "1.58 GiB of 1.58 GiB stays unexplained" in kv["reason"]
    (tmp_path / "log").write_text(SHORT.replace("14.9889", "15.5"))
    told = answer("reconcile", str(tmp_path / "log"), "--gpu", "H100-SXM")
    kv = next(a for a in told["accounts"] if a["name"] == "kv")
    assert "partly weights, 523.5 MiB more than predicted" in kv["reason"]
    assert "stays unexplained" in kv["reason"]


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--from-command", "ollama run nosuchmodel:1b"), ("nosuchmodel:1b", "--model")),
        (
            ("--from-command", "OLLAMA_NUM_PARALLEL=abc ollama run llama3:8b"),
            ("OLLAMA_NUM_PARALLEL", "abc"),
        ),
        (
            ("--from-command", "OLLAMA_KV_CACHE_TYPE=fp9 ollama run llama3:8b"),
            ("OLLAMA_KV_CACHE_TYPE",),
        ),
        (
            ("--from-command", "OLLAMA_FLASH_ATTENTION=perhaps ollama run llama3:8b"),
            ("OLLAMA_FLASH_ATTENTION",),
        ),
        (("--from-command", "vllm serve /models/nothing-known"), ("is not there", "--model")),
    ],
)
def test_refusals_name_what_was_typed(args: tuple[str, ...], told: tuple[str, ...]) -> None:
    refused = typed("plan", *args, "--gpu", "L40S")
    assert refused.exit_code == 2
    assert all(word in refused.stderr for word in told)


def test_a_path_of_another_machine_is_taken_by_its_name() -> None:
    back = answer("plan", "--from-command", "vllm serve /models/Llama-3-8B", "--gpu", "L40S")
    assert any("taken for llama-3-8b" in w for w in back["warnings"])
    assert any("/models/Llama-3-8B is not here" in w for w in back["warnings"])


def test_a_name_of_ollamas_library_beside_ollama() -> None:
    for args in (("--engine", "ollama"), ("--from-command", "ollama serve")):
        back = answer("plan", "--model", "qwen3:8b-q8_0", "--gpu", "L40S", *args)
        assert back["scenario"]["model"] == "qwen3-8b"
        assert back["scenario"]["weight_dtype"] == "q8_0"
    trained = answer("plan", "gemma3:27b-it-qat", "--gpu", "L40S", "--engine", "ollama")
    assert trained["scenario"]["weight_dtype"] == "q4_0"
    own = answer(
        "plan",
        "--model",
        "qwen3:8b",
        "--gpu",
        "L40S",
        "--engine",
        "ollama",
        "--weight-dtype",
        "q4_0",
    )
    assert own["scenario"]["weight_dtype"] == "q4_0"


def test_a_tag_of_ollamas_library_is_the_file_behind_it(tmp_path: Path) -> None:
    log = tmp_path / "ollama.log"
    log.write_text(
        "time=2025-06-01 level=INFO source=server.go:168 msg=offload library=cuda layers.model=29 "
        'layers.offload=29 memory.available="[23.3 GiB]" memory.required.full="5.6 GiB" '
        'memory.required.kv="224.0 MiB" memory.weights.total="4.1 GiB" memory.graph.full="304.0 MiB"\n'
    )
    read = answer("reconcile", str(log), "--model", "qwen2.5:7b", "--gpu", "RTX-4090")
    assert read["scenario"]["model"] == "qwen2.5-7b"
    assert read["scenario"]["weight_dtype"] == "q4_k_m"
    weights = next(line for line in read["accounts"] if line["name"] == "weights")
    assert abs(weights["difference_bytes"]) < 0.02 * weights["printed_bytes"]


def test_an_unknown_card_is_refused_before_the_model_is_looked_for(log: str) -> None:
    assert "gpu" in typed("plan", "nosuch/model", "--gpu", "H1000").stderr
    refused = typed("reconcile", log, "--gpu", "H1000")
    assert refused.exit_code == 2
    assert "H1000" in refused.stderr


def test_the_first_sentence_is_the_verdict_and_what_has_no_answer_fails(log: str) -> None:
    said = typed("reconcile", log, "--gpu", "H100-SXM", "--expect", "16")
    assert said.exit_code == 0
    first, way = said.output.split("\n\n")[:2]
    assert first.startswith("vllm printed 443,760 tokens of cache, ")
    assert way.startswith("16 → ")
    open_ = typed("reconcile", log, "--expect", "16")
    assert (open_.exit_code, open_.output.split("\n")[0]) == (2, "No prediction yet: say the gpu.")


def test_a_start_that_ran_out_of_memory_answers_what_was_expected(tmp_path: Path) -> None:
    path = tmp_path / "vllm.log"
    path.write_text(
        "\n".join(LOG.splitlines()[:3])
        + "\nRuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests.\n"
    )
    said = typed("reconcile", str(path), "--gpu", "H100-SXM", "--expect", "16")
    assert said.exit_code == 0, said.output
    assert said.output.startswith("It ran out of memory as it warmed up its sampler")
