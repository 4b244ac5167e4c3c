"""What launch files of every kind start, judged: the verdict, its line, its fix."""

from __future__ import annotations

import json
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from kvroom import api
from kvroom.errors import KvroomError
from kvroom.observe.check import Checked, CheckReport
from kvroom.ui.check_formats import FORMS
from kvroom.ui.terminal.check import show

FILES = {
    "serve.sh": "#!/bin/sh\n\nexec vllm serve Qwen/Qwen3-8B --max-model-len 8192\n",
    "Dockerfile": (
        "FROM python:3.12 AS build\nRUN true\n# the server\n"
        "FROM vllm/vllm-openai:v0.11.0\nENV MODEL=Qwen/Qwen3-8B\n"
        "ENTRYPOINT vllm serve $MODEL \\\n  --max-model-len 8192\n"
    ),
    "exec.Dockerfile": (
        'FROM vllm/vllm-openai:v0.11.0\n'
        'CMD ["--model", "Qwen/Qwen3-8B", "--max-model-len=8192"]\n'
    ),
    "compose.yaml": (
        "services:\n  llm:\n    image: vllm/vllm-openai:v0.11.0\n    environment: [HF_TOKEN]\n"
        "    command: --model Qwen/Qwen3-8B --max-model-len ${LENGTH:-8192}\n"
    ),
    "pod.yaml": (
        "kind: Pod\nspec:\n"
        "  nodeSelector: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}\n  containers:\n"
        "  - image: vllm/vllm-openai:v0.11.0\n"
        "    args: [--model, Qwen/Qwen3-8B, --max-model-len=8192]\n"
        "    resources: {limits: {nvidia.com/gpu: 1}}\n"
    ),
    "stack.yaml": (
        "servingEngineSpec:\n  modelSpec:\n  - name: q\n"
        "    modelURL: Qwen/Qwen3-8B\n    requestGPU: 1\n"
        "    vllmConfig: {maxModelLen: 8192}\n"
    ),
    "chart.yaml": (
        "image: {repository: vllm/vllm-openai, tag: v0.11.0}\n"
        "args: [--model, Qwen/Qwen3-8B, --max-model-len=8192]\n"
    ),
    "isvc.yaml": (
        "kind: InferenceService\nspec:\n  predictor:\n"
        "    model:\n      modelFormat: {name: huggingface}\n"
        "      args: [--model_name=q, --model_id=Qwen/Qwen3-8B, --max_model_len=8192]\n"
    ),
    "llmisvc.yaml": (
        "kind: LLMInferenceService\nspec:\n"
        "  model: {uri: hf://Qwen/Qwen3-8B, name: q}\n  template:\n    containers:\n"
        "    - name: main\n      env: [{name: VLLM_ADDITIONAL_ARGS, value: --max-model-len 8192}]\n"
    ),
    "modelservice.yaml": (
        "modelArtifacts: {uri: hf://Qwen/Qwen3-8B}\n"
        "decode:\n  containers:\n  - modelCommand: vllmServe\n"
        "    args: [--max-model-len=8192]\n"
    ),
    "dynamo.yaml": (
        "kind: DynamoGraphDeployment\nspec:\n  services:\n    Frontend:\n      extraPodSpec:\n"
        "        mainContainer: {image: nvcr.io/nvidia/ai-dynamo/vllm-runtime:0.5.0}\n    Worker:\n"
        "      resources: {limits: {gpu: '1'}}\n      extraPodSpec:\n        mainContainer:\n"
        "          image: nvcr.io/nvidia/ai-dynamo/vllm-runtime:0.5.0\n"
        "          command: [python3, -m, dynamo.vllm]\n"
        "          args: [--model, Qwen/Qwen3-8B, --max-model-len, '8192']\n"
    ),
    "ray.yaml": (
        "applications:\n- args:\n    llm_configs:\n"
        "    - model_loading_config: {model_id: q, model_source: Qwen/Qwen3-8B}\n"
        "      accelerator_type: H100\n"
        "      engine_kwargs: {max_model_len: 8192, enable_prefix_caching: true}\n"
    ),
    "rayservice.yaml": (
        "kind: RayService\nspec:\n  serveConfigV2: |\n"
        "    applications:\n    - args:\n        llm_configs:\n"
        "        - model_loading_config: {model_source: Qwen/Qwen3-8B}\n"
        "          engine_kwargs: {max_model_len: 8192}\n"
    ),
    "vllm.service": (
        "[Unit]\nDescription=a server\n[Service]\nEnvironment=\"LENGTH=8192\" A=b\n"
        "ExecStart=/usr/bin/vllm serve Qwen/Qwen3-8B \\\n  --max-model-len ${LENGTH}\n"
    ),
    "vllm.container": (
        "[Container]\nImage=docker.io/vllm/vllm-openai:v0.11.0\n"
        "Exec=--model Qwen/Qwen3-8B --max-model-len 8192\n"
    ),
    "sglang.sh": "python3 -m sglang.launch_server --model-path Qwen/Qwen3-8B --context-length 8192\n",
    "trt.sh": "trtllm-serve serve Qwen/Qwen3-8B --max_seq_len 8192\n",
}  # fmt: skip
LINES = {"serve.sh": 3, "vllm.service": 5, "compose.yaml": 3}


def checked(folder: Path, text: str, name: str = "file", **keys: object) -> list[Checked]:
    path = folder / name
    path.write_text(text)
    return list(api.check(path, hub=False, **keys).deployments)


@pytest.mark.parametrize("name", FILES)
def test_every_kind_of_file_is_told_by_its_content(name: str, tmp_path: Path) -> None:
    (check,) = checked(tmp_path, FILES[name], gpu="H100-SXM")
    assert check.status == "fits", check.sentence
    assert check.scenario is not None
    assert check.scenario["model"] == "Qwen/Qwen3-8B"
    assert check.scenario["context_tokens"] == 8192
    assert check.line == LINES.get(name, check.line)


def test_a_modelfile(tmp_path: Path) -> None:
    (check,) = checked(tmp_path, "FROM llama3.1:8b\nPARAMETER num_ctx 8192\n", gpu="RTX-4090")
    assert (check.status, check.engine, check.model) == ("fits", "ollama", "llama-3.1-8b")


def test_the_card_of_a_file_is_used(tmp_path: Path) -> None:
    (check,) = checked(tmp_path, FILES["pod.yaml"])
    assert check.scenario is not None
    assert check.scenario["gpu"] == "H100-SXM"
    (unknown,) = checked(tmp_path, FILES["serve.sh"])
    assert unknown.status == "unreadable"
    assert "--gpu" in unknown.fix


def test_what_would_not_start_is_told_with_the_flags_that_do(tmp_path: Path) -> None:
    """SemiAnalysisAI/InferenceX#1587 is of this kind: no length limit, and one request does not fit."""
    text = "vllm serve openai/gpt-oss-120b --tensor-parallel-size 1\n"
    (check,) = checked(tmp_path, text, gpu="H100-SXM", engine_version="0.33.0")
    assert check.status == "would_not_start"
    assert check.fix.startswith("--max-model-len ")
    (mended,) = checked(
        tmp_path, f"{text.strip()} {check.fix}", gpu="H100-SXM", engine_version="0.33.0"
    )
    assert mended.status == "fits"


@pytest.mark.parametrize(
    ("start", "flag", "variable"),
    [
        ("vllm serve Qwen/Qwen3-32B -tp 4", "--max-model-len", "VLLM_ALLOW_LONG_MAX_MODEL_LEN"),
        (
            "python3 -m sglang.launch_server --model-path Qwen/Qwen3-32B --tp 4",
            "--context-length",
            "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN",
        ),
    ],
)
def test_a_length_beyond_the_models_own_does_not_start_unless_allowed(
    tmp_path: Path, start: str, flag: str, variable: str
) -> None:
    """vLLM's _get_and_verify_max_len and SGLang's ModelConfig raise a ValueError."""
    text = f"{start} {flag} 100000\n"
    (check,) = checked(tmp_path, text, gpu="H100-SXM")
    assert (check.status, check.fix.split(" ")[:2]) == ("would_not_start", [flag, "40960"])
    (mended,) = checked(tmp_path, text.replace("100000", "40960"), gpu="H100-SXM")
    assert mended.status == "fits"
    (off,) = checked(tmp_path, f"export {variable}=0\n{text}", gpu="H100-SXM")
    assert off.status == "would_not_start"
    (allowed,) = checked(tmp_path, f"export {variable}=1\n{text}", gpu="H100-SXM")
    assert allowed.status == "fits"
    yarn = '{"rope_type":"yarn","factor":4.0,"original_max_position_embeddings":32768}'
    if flag == "--max-model-len":
        (stretched,) = checked(
            tmp_path, f"{text.strip()} --rope-scaling '{yarn}'\n", gpu="H100-SXM"
        )
        assert stretched.status == "fits"


def test_more_ranks_than_cards(tmp_path: Path) -> None:
    text = FILES["pod.yaml"].replace("[--model,", "[-tp=4, --model,")
    (check,) = checked(tmp_path, text)
    assert check.status == "would_not_start"
    assert "4 GPUs, and 1 is given" in check.reason
    (idle,) = checked(tmp_path, text.replace("gpu: 1}", "gpu: 8}"))
    assert any("4 of the 8 GPUs" in w for w in idle.warnings)


def test_a_promise_of_requests(tmp_path: Path) -> None:
    text = "vllm serve Qwen/Qwen3-8B --max-model-len 32768\n"
    (check,) = checked(tmp_path, text, gpu="H100-SXM", expect="concurrency=64")
    (promise,) = check.promises
    assert not promise.holds
    assert check.is_finding
    assert promise.answer is not None
    (kept,) = checked(tmp_path, text, gpu="H100-SXM", expect=f"concurrency={promise.answer}")
    assert not kept.is_finding


def test_replicas_share_a_promise(tmp_path: Path) -> None:
    text = "spec:\n  replicas: 4\n  template:\n" + "".join(
        f"    {line}\n" for line in FILES["pod.yaml"].splitlines()
    )
    (one,) = checked(tmp_path, FILES["pod.yaml"], expect="concurrency=160")
    (four,) = checked(tmp_path, text, expect="concurrency=160")
    assert one.is_finding
    assert not four.is_finding


def test_a_promise_of_times(tmp_path: Path) -> None:
    workload = {"input_tokens": 1000, "output_tokens": 100, "concurrency": 4}
    keys = {"gpu": "H100-SXM", "workload": workload}
    (kept,) = checked(tmp_path, FILES["serve.sh"], expect="ttft_p95=30s,tpot_mean=1s", **keys)
    assert [p.holds for p in kept.promises] == [True, True]
    (broken,) = checked(tmp_path, FILES["serve.sh"], expect="tpot_p50=1ms", **keys)
    assert broken.is_finding
    assert "tpot_p50" in broken.reason
    (unasked,) = checked(tmp_path, FILES["serve.sh"], gpu="H100-SXM", expect="tpot_p50=1ms")
    assert "workload" in unasked.sentence
    with pytest.raises(KvroomError, match="is no objective"):
        api.check(expect="speed=1s")


def test_exit_statuses(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.sh", tmp_path / "bad.sh"
    good.write_text(FILES["serve.sh"])
    bad.write_text("vllm serve openai/gpt-oss-120b\n")
    none, gone = tmp_path / "none.sh", tmp_path / "gone.sh"
    none.write_text("echo hello\n")
    keys = {"gpu": "H100-SXM", "hub": False}
    assert api.check(good, **keys).exit_status == 0
    assert api.check(good, bad, **keys).exit_status == 1
    assert api.check(good, bad, none, **keys).exit_status == 2
    assert api.check(good, none, skip_others=True, **keys).exit_status == 0
    assert api.check(gone, skip_others=True, **keys).exit_status == 2


PATCHED = {
    "a script": "#!/bin/sh\nvllm serve openai/gpt-oss-120b \\\n  --port 8000\n",
    "a flag that is there": "vllm serve openai/gpt-oss-120b --max-model-len=131072 --port 1\n",
    "a list": (
        "kind: Pod\nspec:\n  containers:\n"
        "  - image: vllm/vllm-openai:v0.19.0\n    args:\n    - --model\n"
        "    - openai/gpt-oss-120b\n    - --port=8000\n"
    ),
    "a list on one line": (
        "kind: Pod\nspec:\n  containers:\n  - image: vllm/vllm-openai:v0.19.0\n"
        "    args: [--model, openai/gpt-oss-120b]\n"
    ),
    "compose": (
        "services:\n  a:\n    image: vllm/vllm-openai:v0.19.0\n"
        "    command: --model openai/gpt-oss-120b\n"
    ),
    "a Dockerfile": 'FROM vllm/vllm-openai:v0.19.0\nCMD ["--model", "openai/gpt-oss-120b"]\n',
}  # fmt: skip


@pytest.mark.parametrize("name", PATCHED)
def test_a_patch_makes_it_start(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = PATCHED[name]
    (before,) = checked(tmp_path, text, gpu="H100-SXM", engine_version="0.19.0")
    assert before.status == "would_not_start"
    patch = api.check_patch("file", gpu="H100-SXM", engine_version="0.19.0", hub=False)
    subprocess.run(["git", "apply", "-"], input=patch, text=True, check=True, cwd=tmp_path)
    mended = (tmp_path / "file").read_text()
    assert mended != text
    (after,) = checked(tmp_path, mended, gpu="H100-SXM", engine_version="0.19.0")
    assert after.status == "fits", (patch, after.sentence)


def report(folder: Path) -> CheckReport:
    for name, text in (
        ("bad.sh", "vllm serve openai/gpt-oss-120b\n"), ("good.sh", FILES["serve.sh"]),
        ("open.sh", "vllm serve $MODEL -tp $TP\n"),
    ):  # fmt: skip
        (folder / name).write_text(text)
    return api.check(*sorted(folder.iterdir()), gpu="H100-SXM", hub=False)


def test_a_line_a_deployment(tmp_path: Path) -> None:
    lines = show(report(tmp_path), warnings=False).splitlines()
    assert [line.rpartition(".sh:")[0][-4:].strip("/") for line in lines] == ["bad", "good", "open"]
    assert [line.split("  ")[1] for line in lines] == ["would not start", "fits", "unreadable"]
    assert "--max-model-len" in lines[0]
    assert "--set MODEL=… --set TP=…" in lines[2]


def test_other_tools_read_it(tmp_path: Path) -> None:
    found = report(tmp_path)
    sarif = json.loads(FORMS["sarif"](found))
    assert sarif["version"] == "2.1.0"
    results = sarif["runs"][0]["results"]
    assert [r["locations"][0]["physicalLocation"]["region"]["startLine"] for r in results] == [1, 1]
    assert {r["ruleId"] for r in results} == {
        r["id"] for r in sarif["runs"][0]["tool"]["driver"]["rules"]
    }
    annotations = FORMS["github"](found).splitlines()
    assert all(a.startswith("::error file=") for a in annotations)
    assert len(annotations) == 2
    suite = ET.fromstring(FORMS["junit"](found))
    assert suite.attrib == {"name": "kvroom check", "tests": "3", "failures": "1", "errors": "1"}
    assert len(suite.findall("testcase")) == 3


def _row(tmp_path: Path, name: str, text: str, **keys: object) -> Checked:
    file = tmp_path / name
    file.write_text(text)
    (row,) = api.check(str(file), **{"gpu": "H100-SXM", **keys}).deployments  # type: ignore[arg-type]
    return row


def test_a_layout_that_cannot_be_is_a_finding(tmp_path: Path) -> None:
    command = "vllm serve meta-llama/Llama-3.1-8B-Instruct --tensor-parallel-size 3\n"
    row = _row(tmp_path, "a.sh", command)
    assert (row.status, row.is_finding) == ("would_not_start", True)
    assert row.reason == "tp: 3 does not divide 32 attention heads"
    assert api.check(str(tmp_path / "a.sh"), gpu="H100-SXM").exit_status == 1


@pytest.mark.parametrize(
    ("text", "line", "says", "fix"),
    [
        ("a:\n  command: [--model, b\n  ports:\n", 3, "expected ',' or ']'", "Give plain YAML"),
        ("a: 1\nmetadata: {name: {{ .Release.Name }}}\n", 2, "is a Helm template", "helm template"),
        ("a:\n  - b\n{{- if .Values.len }}\n  - c\n", 3, "is a Helm template", "helm template"),
        (
            'a: {image: "vllm/vllm-openai", args: ["--model", "{{ .Values.model }}"]}\n',
            1, "is not set by the command", "helm template",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_told_where(
    tmp_path: Path, text: str, line: int, says: str, fix: str
) -> None:
    row = _row(tmp_path, "a.yaml", text)
    assert (row.status, row.line) == ("unreadable", line)
    assert says in row.reason
    assert "--from-command" not in row.reason
    assert fix in row.fix


def test_a_name_without_a_file_is_told_as_it_is(tmp_path: Path) -> None:
    (none,) = api.check(str(tmp_path / "none.yaml")).deployments
    (empty,) = api.check(str(tmp_path)).deployments
    assert (none.reason, empty.reason) == ("does not exist", "is a folder without files")
    (tmp_path / "a.yaml").write_text("")
    (folder,) = api.check(str(tmp_path)).deployments
    assert folder.reason == "is a folder"
    assert "a.yaml" in folder.fix


def test_a_variable_that_lacks_a_value_is_listed_once(tmp_path: Path) -> None:
    flags = "--max-model-len $LEN --max-num-batched-tokens $LEN"
    row = _row(tmp_path, "a.sh", f"vllm serve Qwen/Qwen3-8B {flags}\n")
    assert "'$LEN' is not set" in row.reason
    assert row.fix.count("LEN") == 1


@pytest.mark.parametrize("gpu", ["RTX-4080", "RTX-5090"])
@pytest.mark.parametrize("model", ["microsoft/phi-4", "mistralai/Mistral-7B-Instruct-v0.3"])
def test_a_fix_leaves_a_length_that_can_be_used(tmp_path: Path, model: str, gpu: str) -> None:
    command = f"vllm serve {model}"
    row = _row(tmp_path, "a.sh", command, gpu=gpu)
    if row.flags is None:
        assert not row.is_finding or "would hold" in row.fix
        return
    assert row.flags.get("--max-model-len", 4096) >= 4096
    assert not _row(tmp_path, "b.sh", f"{command} {row.fix}", gpu=gpu).is_finding


@pytest.mark.parametrize(
    ("image", "args", "says"),
    [
        (
            "vllm/vllm-openai:v0.11.0",
            "--kv-offloading-size=10",
            "--kv-offloading-size came with 0.11.1",
        ),
        ("vllm/vllm-openai:v0.20.0", "--swap-space=4", "--swap-space went after"),
        ("vllm/vllm-openai:v0.20.0", "--disable-log-requests", "--disable-log-requests went after"),
        ("lmsysorg/sglang:v0.4.9-cu126", "--hicache-storage-backend=file", "came with 0.4.9.post3"),
        (
            "lmsysorg/sglang:v0.5.23",
            "--enable-deepep-waterfill",
            "waterfill went after 0.5.15.post1",
        ),
    ],
)
def test_a_flag_of_another_release_is_a_finding(
    tmp_path: Path, image: str, args: str, says: str
) -> None:
    model = "--model-path" if "sglang" in image else "--model"
    start = "python3 -m sglang.launch_server " if "sglang" in image else ""
    row = _row(tmp_path, "a.sh", f"docker run {image} {start}{model} Qwen/Qwen3-8B {args}\n")
    assert (row.status, row.is_finding) == ("would_not_start", True)
    assert says in row.reason
    assert "take a release" in row.fix


def test_a_build_between_releases_may_have_any_flag(tmp_path: Path) -> None:
    command = (
        "docker run vllm/vllm-openai:v0.11.0rc2 --model Qwen/Qwen3-8B --kv-offloading-size 10\n"
    )
    assert _row(tmp_path, "a.sh", command).status == "fits"


def test_a_flag_that_went_is_told_where_no_release_is_named(tmp_path: Path) -> None:
    row = _row(tmp_path, "a.sh", "vllm serve Qwen/Qwen3-8B --swap-space 4\n")
    assert row.status == "fits"
    assert any(note.startswith("swap_space went after ") for note in row.warnings)


@pytest.mark.parametrize(
    ("comment", "flags", "key", "value"),
    [
        ({"model": "llama-3.1-8b"}, "", "model", "Qwen/Qwen3-8B"),
        ({"weight_dtype": "int4"}, " --quantization fp8", "weight_dtype", "fp8"),
        ({"tp": 4}, " -tp 2", "tp", 2),
        (
            {"tiers": [{"kind": "host", "bytes": 64 * 10**9}]},
            " --kv-offloading-backend native --kv-offloading-size 5",
            "tiers",
            [{"kind": "host", "bytes": 5 * 2**30, "per_rank": True}],
        ),
        ({"tiers": [{"kind": "host", "bytes": 64 * 10**9}]}, "", "tiers", None),
    ],
)
def test_flags_win_over_the_comment_and_the_difference_is_told(
    tmp_path: Path, comment: dict[str, object], flags: str, key: str, value: object
) -> None:
    text = f"# kvroom: {json.dumps(comment)}\nvllm serve Qwen/Qwen3-8B{flags}\n"
    row = _row(tmp_path, "a.sh", text, engine_version="0.33.0")
    assert row.scenario is not None
    assert row.scenario.get(key) == value
    assert any(note.startswith(f"the comment says {key} ") for note in row.warnings)


def test_a_part_of_a_gb_is_nothing_that_hicache_takes(tmp_path: Path) -> None:
    start = "python3 -m sglang.launch_server --model-path Qwen/Qwen3-8B --enable-hierarchical-cache"
    row = _row(tmp_path, "a.sh", f"{start} --hicache-size 12.5\n")
    assert row.status == "would_not_start"
    assert row.fix == "--hicache-size 12"
    assert _row(tmp_path, "a.sh", f"{start} --hicache-size 12\n").status == "fits"


def test_a_dynamo_services_own_variables_reach_its_container(tmp_path: Path) -> None:
    text = (
        "kind: DynamoGraphDeployment\nspec:\n  envs: [{name: LENGTH, value: '8192'}]\n  services:\n"
        "    Worker:\n      envs: [{name: MODEL, value: Qwen/Qwen3-8B}]\n      extraPodSpec:\n"
        "        mainContainer:\n          image: nvcr.io/nvidia/ai-dynamo/vllm-runtime:0.7.0\n"
        "          command: [python3, -m, dynamo.vllm]\n"
        "          args: [--model, $(MODEL), --max-model-len, $(LENGTH)]\n"
    )
    row = _row(tmp_path, "graph.yaml", text)
    assert (row.model, row.status, row.line) == ("Qwen/Qwen3-8B", "fits", 9)


def test_what_uv_runs_is_a_start(tmp_path: Path) -> None:
    command = "uv run --with vllm==0.20.0 vllm serve Qwen/Qwen3-8B --max-model-len 8192\n"
    assert _row(tmp_path, "a.sh", command).status == "fits"
    assert _row(tmp_path, "b.sh", "uv pip install vllm serve\n").status == "unreadable"


def test_python_is_told_as_such_and_the_engines_by_name(tmp_path: Path) -> None:
    row = _row(tmp_path, "serve.py", "from vllm import LLM\nllm = LLM(model='Qwen/Qwen3-8B')\n")
    assert (row.status, row.reason) == ("unreadable", "is Python, of which nothing is run here")
    other = _row(tmp_path, "tgi.sh", "text-generation-launcher --model-id Qwen/Qwen3-8B\n")
    assert "SGLang" in other.fix


def test_a_log_is_told_to_be_one(tmp_path: Path) -> None:
    oom = (
        'Traceback (most recent call last):\n  File "/home/me/train.py", line 3, in main\n'
        "    return self._apply(lambda t: t)\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 224.00 MiB. GPU 0 has a total "
        "capacity of 23.64 GiB of which 153.69 MiB is free.\n"
    )
    for text in (oom, "[TM][INFO] [BlockManager] max_block_count = 5816\n"):
        file = tmp_path / "engine.log"
        file.write_text(text)
        (found,) = api.check(file).deployments
        assert "is a log, and starts nothing" in found.sentence
