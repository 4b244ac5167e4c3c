"""Launch files as they are written elsewhere, in small: machines, tasks, platforms; public crashes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kvroom import api
from kvroom.observe.check import Checked

LEADER = """\
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
spec:
  replicas: 3
  leaderWorkerTemplate:
    size: 2
    leaderTemplate:
      spec:
        containers:
        - name: first
          image: {image}
          command: {first}
          resources: {{limits: {{nvidia.com/gpu: "{gpus}"}}}}
    workerTemplate:
      spec:
        containers:
        - name: other
          image: {image}
          command: {other}
          resources: {{limits: {{nvidia.com/gpu: "{gpus}"}}}}
"""
RAY = LEADER.format(
    image="vllm/vllm-openai:v0.10.0",
    first='[sh, -c, "ray start --head; vllm serve meta-llama/Llama-3.1-70B-Instruct -tp 8 -pp 2"]',
    other='[sh, -c, "ray start --block --address=$(LWS_LEADER_ADDRESS):6379"]',
    gpus=8,
)
RANKS = (
    '[python3, -m, sglang.launch_server, --model-path, Qwen/Qwen3-8B, --tp, "2", '
    "--nnodes, $(LWS_GROUP_SIZE), --node-rank, $(LWS_WORKER_INDEX), "
    "--dist-init-addr, $(LWS_LEADER_ADDRESS):20000]"
)
SGLANG = LEADER.format(image="lmsysorg/sglang:v0.5.9", first=RANKS, other=RANKS, gpus=1)
DYNAMO = """\
kind: DynamoGraphDeployment
spec:
  services:
    Worker:
      replicas: 2
      multinode: {nodeCount: 2}
      resources: {limits: {gpu: "4"}}
      extraPodSpec:
        mainContainer:
          image: nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.1.1
          command: [python3, -m, dynamo.vllm]
          args: [--model, Qwen/Qwen3-8B, --tensor-parallel-size, "8", --is-prefill-worker]
"""
KSERVE = """\
kind: LLMInferenceService
spec:
  model: {uri: hf://Qwen/Qwen3-30B-A3B}
  replicas: 1
  parallelism: {data: 16, dataLocal: 8, expert: true, tensor: 1}
  kvCacheOffloading: {mode: cpu, cpu: {size: 10Gi}}
  template:
    containers:
    - name: main
      resources: {limits: {nvidia.com/gpu: "8"}}
  worker:
    containers:
    - name: main
      resources: {limits: {nvidia.com/gpu: "8"}}
"""
SCRIPT = (
    "MODEL=Qwen/Qwen3-8B\n"
    "for RANK in 0 1; do\n"
    "  ssh node$RANK vllm serve $MODEL -tp 8 --max-model-len 8192 --nnodes 2 --node-rank $RANK &\n"
    "done\n"
)


def checked(folder: Path, text: str, name: str = "file", **keys: Any) -> list[Checked]:
    path = folder / name
    path.write_text(text)
    return list(api.check(path, hub=False, **keys).deployments)


@pytest.mark.parametrize(
    ("text", "cards", "layout"),
    [
        (RAY, 16, {"tp": 8, "pp": 2}),
        (SGLANG, 2, {"tp": 2}),
        (DYNAMO, 8, {"tp": 8}),
        (KSERVE, 16, {"dp": 16, "ep": 16}),
    ],
    ids=["ray", "sglang", "dynamo", "kserve"],
)
def test_several_machines_are_one_deployment(
    text: str, cards: int, layout: dict[str, int], tmp_path: Path
) -> None:
    (row,) = checked(tmp_path, text, gpu="H100-SXM")
    assert row.status == "fits", row.sentence
    assert row.scenario is not None
    assert row.scenario.get("gpu_count", 1) == cards
    assert {key: row.scenario.get(key) for key in layout} == layout
    assert not [
        warning for warning in row.warnings if "left out" in warning or "not used" in warning
    ]


def test_a_further_machine_is_no_further_deployment(tmp_path: Path) -> None:
    (row,) = checked(tmp_path, SCRIPT, gpu="H100-SXM", gpu_count=4)
    assert row.status == "fits", row.sentence  # four on each of two machines


def test_offloading_of_a_platform_is_a_tier(tmp_path: Path) -> None:
    (row,) = checked(tmp_path, KSERVE, gpu="H100-SXM")
    assert row.scenario is not None
    assert row.scenario["engine_args"]["kv_offloading_size"] == 10


TASKS = {
    "skypilot": (
        "resources:\n  accelerators: {H100: 2}\nenvs:\n  M: Qwen/Qwen3-8B\nrun: |\n"
        "  source ~/.venv/bin/activate\n"
        "  vllm serve $M -tp $SKYPILOT_NUM_GPUS_PER_NODE --max-model-len 8192\n"
    ),
    "dstack": (
        "type: service\nenv:\n  - M=Qwen/Qwen3-8B\ncommands:\n"
        "  - pip install vllm\n  - vllm serve $M -tp $DSTACK_GPUS_NUM --max-model-len 8192\n"
        "resources:\n  gpu: H100:80GB:2\n"
    ),
    "kaito": (
        "kind: Workspace\nresource:\n  instanceType: Standard_NC80adis_H100_v5\ninference:\n"
        "  preset: {name: Qwen/Qwen3-8B}\n  config: c\n---\nkind: ConfigMap\nmetadata: {name: c}\n"
        "data:\n  inference_config.yaml: |\n    vllm:\n      max-model-len: 8192\n"
    ),
    "instance type": (
        "kind: Pod\nspec:\n  nodeSelector:\n    node.kubernetes.io/instance-type: p5.48xlarge\n"
        "  containers:\n  - name: a\n    image: vllm/vllm-openai:v0.19.0\n"
        "    args: [--model, Qwen/Qwen3-8B, -tp, '2', --max-model-len, '8192']\n"
        "    resources: {limits: {nvidia.com/gpu: 2}}\n"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TASKS)
def test_a_task_says_its_cards(name: str, tmp_path: Path) -> None:
    (row,) = checked(tmp_path, TASKS[name])
    assert row.status == "fits", row.sentence
    assert row.scenario is not None
    assert row.scenario["model"] == "Qwen/Qwen3-8B"
    assert (row.scenario["gpu"][:4], row.scenario["gpu_count"]) == ("H100", 2)
    assert (row.scenario["tp"], row.scenario["context_tokens"]) == (2, 8192)


def test_what_stands_beside_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "env.sh").write_text("MODEL=Qwen/Qwen3-8B\nexport LEN=8192\n")
    (tmp_path / ".env").write_text("TAG=v0.19.0\nLEN='8192'\n")
    script = 'source "$(dirname "$0")/env.sh"\nvllm serve $MODEL --max-model-len $LEN\n'
    compose = (
        "services:\n  a:\n    image: vllm/vllm-openai:${TAG}\n"
        "    command: --model Qwen/Qwen3-8B --max-model-len ${LEN}\n"
    )
    for name, text in (("serve.sh", script), ("compose.yaml", compose)):
        (row,) = checked(tmp_path, text, name, gpu="L40S")
        assert row.scenario is not None, row.sentence
        assert row.scenario["context_tokens"] == 8192
    alone = api.check_text(script, gpu="L40S", hub=False).deployments[0]
    assert alone.status == "unreadable"
    assert "MODEL" in alone.sentence


def test_a_script_that_ends_says_where(tmp_path: Path) -> None:
    text = "if [ $# -lt 1 ]; then echo usage; exit 1; fi\nvllm serve $1 --max-model-len 8192\n"
    (row,) = checked(tmp_path, text, gpu="L40S")
    assert "exit 1 on line 1" in row.sentence
    assert "--set 1=" in row.fix
    (row,) = checked(tmp_path, text, gpu="L40S", settings={"1": "Qwen/Qwen3-8B"})
    assert row.status == "fits"


def test_a_loop_over_models_is_a_deployment_each(tmp_path: Path) -> None:
    text = (
        "for m in Qwen/Qwen3-8B Qwen/Qwen3-4B; do\n"
        "  for p in 1 2; do vllm serve $m --port 800$p --max-model-len 4096 & done\ndone\n"
    )
    rows = checked(tmp_path, text, gpu="L40S")
    assert [row.model for row in rows] == ["Qwen/Qwen3-8B", "Qwen/Qwen3-4B"]


# Crashes that were reported in public, from their files alone. What the engine printed stands beside each.

KIMI = (
    'OFFLOAD=""\nif [ "$KV" = native ]; then\n  OFFLOAD="--kv_offloading_size $RAM"\nfi\n'
    'vllm serve "$MODEL" --gpu-memory-utilization 0.95 --tensor-parallel-size $TP --max-num-seqs $CONC '
    "--kv-cache-dtype fp8 $OFFLOAD &\n"
)
HYBRID = (
    "apiVersion: kaito.sh/v1beta1\nkind: Workspace\nresource:\n  instanceType: Standard_NC40ads_H100_v5\n"
    "inference:\n  preset: {name: Qwen/Qwen3.6-27B}\n"
)
PREFILL = """\
kind: DynamoGraphDeployment
spec:
  services:
    VllmPrefillWorker:
      replicas: 4
      resources: {limits: {gpu: "1"}}
      extraPodSpec:
        mainContainer:
          image: nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.1.1
          command: [python3, -m, dynamo.vllm]
          args: [--model, nvidia/Llama-3.1-70B-Instruct-FP8, --max-model-len, "131072", --is-prefill-worker]
"""
CRASHES: dict[str, tuple[str, dict[str, Any], str, str]] = {
    # SemiAnalysisAI/InferenceX#1587: 262,144 tokens need 8.58 GiB; fix there: cap --max-model-len
    "kimi": (
        KIMI,
        {
            "gpu": "H100-SXM", "gpu_count": 8, "engine_version": "0.21.0",
            "settings": {"MODEL": "moonshotai/Kimi-K2.5", "TP": "8", "CONC": "8", "KV": "none"},
        },
        "256K tokens needs 8.58 GiB", "--max-model-len ",
    ),
    # kaito-project/kaito#2319: max_num_seqs (1024) exceeds 614 blocks; fix there: lower max-num-seqs
    "hybrid": (
        HYBRID, {"engine_version": "0.25.1"}, "max_num_seqs 1,024 exceeds the 6", "--max-num-seqs 512",
    ),
    # ai-dynamo/dynamo#10104: 131,072 tokens need 20.0 GiB, 1.15 GiB are there; fix there: at most 7,536
    "prefill": (
        PREFILL, {"gpu": "H100-SXM", "engine_version": "0.19.0"}, "128K tokens needs 20 GiB",
        "--max-model-len 7168",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CRASHES)
def test_a_public_crash_is_told_before(name: str, tmp_path: Path) -> None:
    text, keys, says, fix = CRASHES[name]
    (row,) = checked(tmp_path, text, **keys)
    assert row.status == "would_not_start"
    assert says in row.reason
    assert row.fix.startswith(fix)
    patch = api.check_patch(tmp_path / "file", hub=False, **keys)
    assert not patch or "+" in patch
