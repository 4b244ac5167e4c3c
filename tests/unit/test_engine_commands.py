# ruff: noqa: E501 - lines as engines print them and people paste them
"""Commands as people paste them."""

import json
from typing import Any

import pytest

from kvroom.engines.llama_cpp.ollama_command import library_name
from kvroom.errors import KvroomError
from kvroom.launchers.commands import read_command
from kvroom.launchers.launch import launch, shell
from kvroom.planner.plan import work
from kvroom.scenario.scenario import Scenario

PASTED: dict[str, tuple[str, dict[str, Any]]] = {
    "vllm serve": (
        "vllm serve Qwen/Qwen3-8B -tp 2 --max-model-len 32K --max-num-seqs=64 --enforce-eager --port 8000",
        {
            "engine": "vllm", "model": "Qwen/Qwen3-8B", "tp": 2, "context_tokens": 32768,
            "engine_args": {"max_num_seqs": 64, "enforce_eager": True},
        },
    ),
    "the old module, with variables": (
        "CUDA_VISIBLE_DEVICES=0,1 VLLM_USE_V1=1 nohup python3 -m vllm.entrypoints.openai.api_server \\\n"
        "    --model meta-llama/Llama-2-70b-hf \\\n    --tensor-parallel-size 2 \\\n"
        "    --gpu_memory_utilization 0.85 --trust-remote-code --dtype half > serve.log 2>&1 &",
        {
            "engine": "vllm", "model": "meta-llama/Llama-2-70b-hf", "tp": 2,
            "engine_args": {"gpu_memory_utilization": 0.85},
        },
    ),
    "docker": (
        "sudo docker run --gpus all -v ~/.cache:/root/.cache -e HF_TOKEN=x -p 8000:8000 --ipc=host "
        "vllm/vllm-openai:v0.9.2 --model mistralai/Mistral-7B-v0.1 --kv-cache-dtype fp8 --max-model-len auto",
        {
            "engine": "vllm", "engine_version": "0.9.2", "model": "mistralai/Mistral-7B-v0.1",
            "kv_dtype": "fp8", "engine_args": {"max_model_len": -1},
        },
    ),
    "dotted and negative": (
        "vllm serve m --no-enable-prefix-caching --enable-expert-parallel -tp 4 "
        "--speculative-config.method ngram --speculative-config.num_speculative_tokens 3",
        {
            "engine": "vllm", "model": "m", "tp": 4, "ep": 4,
            "engine_args": {"enable_prefix_caching": False},
            "speculation": {"method": "ngram", "num_speculative_tokens": 3},
        },
    ),
    "several lines with variables": (
        "#!/bin/bash\nexport MODEL=acme/big  # whose isn't\nLEN=8192\n\n"
        "vllm serve $MODEL --max-model-len ${LEN} --max-num-seqs ${SEQS:-32} && echo done",
        {
            "engine": "vllm", "model": "acme/big", "context_tokens": 8192,
            "engine_args": {"max_num_seqs": 32},
        },
    ),
    "cpu": (
        "VLLM_CPU_KVCACHE_SPACE=4 vllm serve m",
        {"engine": "vllm", "model": "m", "engine_args": {"kv_cache_memory_bytes": 4 * 2**30}},
    ),
    "sglang": (
        "python -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 --tp 8 --dp 8 "
        "--enable-dp-attention --mem-fraction-static 0.8 --kv-cache-dtype fp8_e4m3 "
        "--cuda-graph-bs 1 2 4 --context-length 65536",
        {
            "engine": "sglang", "model": "deepseek-ai/DeepSeek-V3", "tp": 8, "kv_dtype": "fp8",
            "context_tokens": 65536,
            "engine_args": {
                "enable_dp_attention": True, "mem_fraction_static": 0.8, "cuda_graph_bs": [1, 2, 4],
                "dp_size": 8,
            },
        },
    ),
    "trtllm": (
        "mpirun -n 1 trtllm-serve serve Qwen/Qwen3-0.6B --tp_size 2 --max_seq_len 32768 "
        "--free_gpu_memory_fraction 0.8",
        {
            "engine": "tensorrt-llm", "model": "Qwen/Qwen3-0.6B", "tp": 2, "context_tokens": 32768,
            "engine_args": {"kv_cache_free_gpu_memory_fraction": 0.8},
        },
    ),
    "llama-server": (
        "./build/bin/llama-server -m /models/q.gguf -c 16384 -np 4 -ngl 99 -fa on -ctk q8_0 -ctv q8_0 --host 0.0.0.0",
        {
            "engine": "llama.cpp", "model": "/models/q.gguf", "kv_dtype": "q8_0",
            "engine_args": {
                "ctx_size": 16384, "parallel": 4, "n_gpu_layers": 99, "flash_attn": "on",
            },
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PASTED)
def test_pasted(name: str) -> None:
    text, expected = PASTED[name]
    read = read_command(text)
    assert read.keys == expected
    assert read.warnings == ()


def test_what_is_left_out_is_named() -> None:
    read = read_command("vllm serve m --no-such-flag $X --max-num-seqs 8 stray")
    assert read.keys["engine_args"] == {"max_num_seqs": 8}
    assert any("--no-such-flag" in w for w in read.warnings)
    assert any("stray" in w for w in read.warnings)


@pytest.mark.parametrize("model", ["$MODEL", "${MODEL}", "$(cat model.txt)", "/models/$NAME"])
def test_an_unset_model_is_asked_for(model: str) -> None:
    read = read_command(f'vllm serve "{model}" --max-num-seqs 8')
    assert "model" not in read.keys
    with pytest.raises(KvroomError, match="is not set by the command") as e:
        read.check_model()
    assert e.value.value == model
    assert "--model" in e.value.fix
    read_command(f"MODEL=m; NAME=x; vllm serve {model}")


def test_a_command_without_a_model_says_so() -> None:
    with pytest.raises(KvroomError, match="not named by the command"):
        read_command("vllm serve --max-num-seqs 8").check_model()
    read_command("vllm serve m").check_model()


@pytest.mark.parametrize(
    ("text", "flag"),
    [
        ("vllm serve m --max-model-len", "--max-model-len"),
        (
            "vllm serve m --gpu-memory-utilization --tensor-parallel-size 2",
            "--gpu-memory-utilization",
        ),
        ("vllm serve m -tp --enforce-eager", "-tp"),
        ("vllm serve --model --enforce-eager", "--model"),
        (
            "python -m sglang.launch_server --model-path m --mem-fraction-static",
            "--mem-fraction-static",
        ),
        ("trtllm-serve m --max_batch_size", "--max_batch_size"),
        ("llama-server -m m.gguf -np", "-np"),
        ("llama-server -m m.gguf -c -fa", "-c"),
    ],
)
def test_a_flag_without_its_value(text: str, flag: str) -> None:
    with pytest.raises(KvroomError, match="wants a value") as e:
        read_command(text)
    assert e.value.field == flag


@pytest.mark.parametrize(
    ("text", "flag", "value"),
    [
        ("trtllm-serve m --tp_size two", "--tp_size", "two"),
        ("vllm serve m --tensor-parallel-size=2.5", "--tensor-parallel-size", "2.5"),
        ("vllm serve m -tp $(nvidia-smi -L | wc -l)", "-tp", "$(nvidia-smi -L | wc -l)"),
        ("vllm serve m --max-num-seqs $SEQS", "--max-num-seqs", "$SEQS"),
    ],
)
def test_a_value_that_is_none(text: str, flag: str, value: str) -> None:
    with pytest.raises(KvroomError) as e:
        read_command(text)
    assert (e.value.field, e.value.value) == (flag, value)


def test_switches_and_what_is_not_kept_need_no_value() -> None:
    read = read_command("vllm serve m --enforce-eager --async-scheduling --port $PORT --host")
    assert read.keys["engine_args"] == {"enforce_eager": True, "async_scheduling": True}
    assert read_command("llama-server -m m.gguf -c 0 -fa").keys["engine_args"] == {
        "ctx_size": 0,
        "flash_attn": True,
    }


SAME = "vllm serve m -tp 2 --max-model-len 8192"
WRAPPED = {
    "bash -c": f"bash -c '{SAME}'",
    "bash -c --": f"bash -c -- '{SAME}'",
    "an option after -c": f"bash -c -x '{SAME}'",
    "nested": f"""ssh host "bash -lc '{SAME}'" """.replace("ssh host ", "srun bash -c "),
    "cd first": f'sh -c "cd /srv && exec {SAME}"',
    "docker and a shell": f"docker run --rm --name vllm vllm/vllm-openai:v0.9.2 /bin/bash -c '{SAME}'",
    "docker's name": "docker run -d --name vllm -e A=1 vllm/vllm-openai:v0.9.2 --model m -tp 2 --max-model-len 8192",
    "a variable within": "docker run -e TP=2 vllm/vllm-openai:v0.9.2 sh -c 'vllm serve m -tp $TP --max-model-len 8192'",
    "older module": "python3 -m vllm.entrypoints.api_server --model m -tp 2 --max-model-len 8192",
    "newer module": "python -m vllm.entrypoints.cli.main serve m -tp 2 --max-model-len 8192",
    "continued": "vllm serve m \\\n  -tp 2 \\\n  --max-model-len 8192",
    "PowerShell": "vllm serve m `\n  -tp 2 `\n  --max-model-len 8192",
    "Kubernetes": """
apiVersion: apps/v1
kind: Deployment
spec:
  template:
    spec:
      containers:
        - name: vllm
          image: vllm/vllm-openai:v0.9.2  # pinned
          command: ["vllm", "serve"]
          args:
            - m
            - "-tp"
            - "2"
            - --max-model-len=8192
          resources: {limits: {nvidia.com/gpu: 2}}
""",
    "Kubernetes and a shell": """
kind: Pod
spec:
  containers:
  - image: vllm/vllm-openai:v0.9.2
    env:
    - name: LENGTH
      value: '8192'
    command: [/bin/sh, -c]
    args:
    - |
      vllm serve m \\
        -tp 2 --max-model-len $LENGTH
""",
    "Kubernetes' own variables": """
kind: Pod
spec:
  containers:
  - image: vllm/vllm-openai:v0.9.2
    env: [{name: LENGTH, value: "8192"}]
    args: [--model, m, --max-model-len, $(LENGTH), '-tp=2']
""",
    "compose": """
services:
  web:
    image: nginx
  llm:
    image: vllm/vllm-openai:v0.9.2
    environment:
      - A=2
    command: >
      --model m -tp ${TP:-2}
      --max-model-len 8192
""",
    "Helm": """
servingEngineSpec:
  modelSpec:
  - name: "m"
    repository: "vllm/vllm-openai"
    tag: "v0.9.2"
    modelURL: "m"
    vllmConfig:
      tensorParallelSize: 2
      maxModelLen: 8192
      v1: 1
      extraArgs: []
""",
    "JSON": '{"spec": {"containers": [{"image": "vllm/vllm-openai:v0.9.2", "args": ["--model", "m", "-tp=2", "--max-model-len", "8192"]}]}}',
}


@pytest.mark.parametrize("name", WRAPPED)
def test_wrapped(name: str) -> None:
    read = read_command(WRAPPED[name])
    keys = dict(read.keys)
    version = keys.pop("engine_version", None)
    assert keys == {"engine": "vllm", "model": "m", "tp": 2, "context_tokens": 8192}
    assert version == ("0.9.2" if "0.9.2" in WRAPPED[name] else None)
    assert read.warnings == ()


YAML = {
    "anchors and merges": """
x-engine: &engine
  image: vllm/vllm-openai:v0.9.2
  environment: {LENGTH: 8192}
services:
  llm:
    <<: *engine
    command: --model m -tp 2 --max-model-len 8192
""",
    "tags": """
services:
  llm:
    image: !Sub vllm/vllm-openai:v0.9.2
    args: !reset [--model, m, -tp, "2", --max-model-len, 8192]
""",
    "several documents": """
---
kind: Service
spec: {ports: [{port: 80}]}
---
kind: Pod
spec:
  containers:
  - image: vllm/vllm-openai:v0.9.2
    args:
    - --model=m
    - -tp=2
    - --max-model-len=8192
...
""",
    "a command over several lines": """
services:
  llm:
    image: vllm/vllm-openai:v0.9.2
    command: |
      --model m -tp 2
      --max-model-len 8192
""",
}


@pytest.mark.parametrize("name", YAML)
def test_yaml_of_any_kind(name: str) -> None:
    read = read_command(YAML[name])
    wanted = {"model": "m", "tp": 2, "context_tokens": 8192, "engine_version": "0.9.2"}
    assert read.keys == {"engine": "vllm", **wanted}
    assert read.warnings == ()


def test_plain_words_are_those_of_yaml_1_2() -> None:
    text = (
        "image: ghcr.io/ggml-org/llama.cpp\ncommand: [llama-server, -m, x.gguf, -fa, on, -a, 12:30]"
    )
    assert read_command(text).keys["engine_args"]["flash_attn"] == "on"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("image: x\nspec:\n  containers: [", "line 3"),
        ("image: x\nspec:\n\t- image: y", "line 3: - image: y"),
        ("spec:\n  image: {{ .Values.image }}", "line 2"),
        ("a: &x\n  b: *x", "line 1"),
        ("a: *nothing", "line 1"),
    ],
)
def test_an_error_names_the_line(text: str, line: str) -> None:
    with pytest.raises(KvroomError) as e:
        read_command(text)
    assert str(e.value.value).startswith(line)


def test_a_small_text_that_stands_for_billions_is_refused() -> None:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]
    with pytest.raises(KvroomError, match="more than any manifest"):
        read_command("\n".join(rows))


@pytest.mark.parametrize(
    "text",
    [
        "spec:\n  containers: [",
        "spec:\n\t- image: vllm/vllm-openai",
        "spec:\n  image: {{ .Values.image }}",
        "a: 1\n   b: 2\n c",
        "a: &x\n  b: 1",
        "kind: Pod\nspec:\n  containers:\n  - image: nginx\n",
        '{"spec": ',
        "a: " + "[" * 100,
        "".join(f"{'  ' * i}a:\n" for i in range(90)),
    ],
)
def test_a_manifest_that_cannot_be_read(text: str) -> None:
    with pytest.raises(KvroomError) as e:
        read_command(text)
    assert e.value.field == "--from-command"


DRAFTING = {
    """vllm serve deepseek-ai/DeepSeek-V3 --speculative-config '{"method": "deepseek_mtp", "num_speculative_tokens": 2}'""": {
        "method": "mtp", "num_speculative_tokens": 2,
    },
    """vllm serve qwen3-32b --speculative-config '{"model": "qwen3-0.6b", "method": "draft_model", "num_speculative_tokens": 4}'""": {
        "method": "draft", "num_speculative_tokens": 4, "model": "qwen3-0.6b",
    },
    "python -m sglang.launch_server --model-path deepseek-v3 --speculative-algorithm NEXTN "
    "--speculative-num-steps 2 --speculative-eagle-topk 1 --speculative-num-draft-tokens 3": {
        "method": "mtp", "num_speculative_tokens": 2,
    },
}  # fmt: skip


@pytest.mark.parametrize("text", DRAFTING)
def test_drafting_is_the_scenarios_own_word(text: str) -> None:
    read = read_command(text)
    assert read.keys["speculation"] == DRAFTING[text]
    assert "engine_args" not in read.keys


@pytest.mark.parametrize(
    "config",
    [
        '{"method": "eagle3", "model": "nobody/knows", "num_speculative_tokens": 2}',
        '{"method": "mtp", "num_speculative_tokens": 2}',  # of a model without such layers
        '{"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_max": 4}',
        '{"method": "medusa", "model": "x", "num_speculative_tokens": 2}',
    ],
)
def test_drafting_that_a_scenario_cannot_say_stays_a_flag(config: str) -> None:
    read = read_command(f"vllm serve llama-3-8b --speculative-config '{config}'")
    assert "speculation" not in read.keys
    assert read.keys["engine_args"]["speculative_config"] == json.loads(config)
    work(Scenario.from_dict({**read.keys, "gpu": "H100-SXM"}))


OLLAMA = {
    "one line": (
        "OLLAMA_CONTEXT_LENGTH=8192 OLLAMA_NUM_PARALLEL=4 OLLAMA_KV_CACHE_TYPE=q8_0 OLLAMA_FLASH_ATTENTION=1 "
        "OLLAMA_GPU_OVERHEAD=1073741824 ollama serve & ollama run llama3.1:8b-instruct-q8_0 hello",
        {
            "model": "llama-3.1-8b", "weight_dtype": "q8_0", "kv_dtype": "q8_0",
            "engine_args": {
                "context_length": 8192, "num_parallel": 4, "flash_attention": 1, "gpu_overhead": 2**30,
            },
        },
    ),
    "a Modelfile": (
        "cat > Modelfile <<EOF\nFROM ./q.gguf\nPARAMETER num_ctx 16384\nPARAMETER num_gpu 20\nEOF\n"
        "ollama create mine -f Modelfile && ollama run mine",
        {"model": "./q.gguf", "engine_args": {"num_ctx": 16384, "num_gpu": 20}},
    ),
    "docker": (
        "docker run -d --gpus=all -v ollama:/root/.ollama -e OLLAMA_NUM_PARALLEL=2 --name ollama "
        "ollama/ollama:0.12.5\ndocker exec -it ollama ollama run gpt-oss:20b --verbose",
        {"model": "gpt-oss-20b", "engine_version": "0.12.5", "engine_args": {"num_parallel": 2}},
    ),
    "compose": (
        "services:\n  o:\n    image: ollama/ollama:0.12.5\n    entrypoint: ollama run\n    command: gemma3:27b-it-qat-q4_0\n",
        {"model": "gemma-3-27b", "weight_dtype": "q4_0", "engine_version": "0.12.5",
         "engine_args": {"num_parallel": 1}},
    ),
    "from the hub": (
        "ollama run hf.co/bartowski/Llama-3.2-3B-Instruct-GGUF:Q5_K_M",
        {"model": "bartowski/Llama-3.2-3B-Instruct", "weight_dtype": "q5_k_m",
         "engine_args": {"num_parallel": 1}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OLLAMA)
def test_ollama(name: str) -> None:
    text, expected = OLLAMA[name]
    read = read_command(text)
    assert read.keys == {"engine": "ollama", **expected}
    assert read.warnings == ()


def test_ollama_says_what_it_takes_a_name_for() -> None:
    read = read_command("OLLAMA_NUMPARALLEL=3 ollama run gemma3")
    assert read.keys == {
        "engine": "ollama",
        "model": "gemma-3-4b",
        "weight_dtype": "q4_k_m",
        "engine_args": {"num_parallel": 1},
    }
    assert [w.split()[0] for w in read.warnings] == ["OLLAMA_NUMPARALLEL", "gemma3", "weights"]
    unknown = read_command("ollama run sideways:7b")
    assert "not in the catalogue" in unknown.warnings[0]
    with pytest.raises(KvroomError, match="sideways:7b' is not in the catalogue"):
        unknown.check_model()
    with pytest.raises(KvroomError, match="not named"):
        read_command("OLLAMA_NUM_PARALLEL=3 ollama serve").check_model()


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("llama-3.1-8b", "llama3.1:8b"),
        ("meta-llama/Meta-Llama-3-70B", "llama3:70b"),
        ("gemma-3-27b", "gemma3:27b"),
        ("qwen3-30b-a3b", "qwen3:30b-a3b"),
        ("gpt-oss-20b", "gpt-oss:20b"),
        ("phi-4", "phi4"),
        ("mixtral-8x7b", "mixtral:8x7b"),
        ("someone/Model", "hf.co/someone/Model"),
        ("/models/a.gguf", "/models/a.gguf"),
    ],
)
def test_what_ollama_calls_a_model(model: str, name: str) -> None:
    assert library_name(model) == name


def test_quantised_at_load() -> None:
    narrowed = read_command("vllm serve meta-llama/Meta-Llama-3-8B --quantization fp8")
    assert narrowed.keys["weight_dtype"] == "fp8"
    stored = read_command("vllm serve meta-llama/Meta-Llama-3-8B --quantization awq")
    assert "weight_dtype" not in stored.keys


@pytest.mark.parametrize("text", ["", "ls -l", "python train.py --model m", "docker run ubuntu"])
def test_no_engine(text: str) -> None:
    with pytest.raises(KvroomError, match="starts no engine"):
        read_command(text)


def test_an_open_quote() -> None:
    with pytest.raises(KvroomError, match="not closed"):
        read_command("vllm serve 'm --max-num-seqs 8")


def test_a_secret_is_not_kept() -> None:
    read = read_command("vllm serve m --api-key abc123 --hf-token xyz")
    assert "abc123" not in str(read.keys)
    assert "xyz" not in str(read.keys)


def test_a_model_by_value_has_no_command() -> None:
    config = {
        "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100,
    }  # fmt: skip
    scenario = Scenario.from_dict(
        {"model": {"config": config}, "gpu": "L40S", "context_tokens": 128}
    )
    with pytest.raises(KvroomError, match="nothing that an engine can load"):
        launch(work(scenario))


def test_an_engine_without_a_command() -> None:
    scenario = Scenario.from_dict({"model": "llama-3-8b", "gpu": "L40S", "engine": "arithmetic"})
    with pytest.raises(KvroomError, match="no command"):
        launch(work(scenario))


def test_a_plan_that_does_not_fit_says_so() -> None:
    scenario = Scenario.from_dict({"model": "llama-3-70b", "gpu": "RTX-4090"})
    made = launch(work(scenario))
    assert any("Does not fit" in note for note in made.notes)


@pytest.mark.parametrize(
    ("command", "slots"),
    [
        ("llama-server -m llama-3-8b", 4),
        ("llama-server -m llama-3-8b -np 2", 2),
        ("ollama run llama3:8b", 1),
        ("OLLAMA_NUM_PARALLEL=3 ollama serve & ollama run llama3:8b", 3),
    ],
)
def test_slots_that_a_command_leaves_out_are_the_engines_own(command: str, slots: int) -> None:
    plan = work(Scenario.from_dict({**read_command(command).keys, "gpu": "L40S"})).plan
    assert plan.capacity.engine is not None
    assert plan.capacity.engine.max_running_requests == slots


@pytest.mark.parametrize(
    ("engine", "flag"), [("llama.cpp", "parallel"), ("ollama", "num_parallel")]
)
def test_a_launch_for_so_many_users_has_so_many_slots(engine: str, flag: str) -> None:
    asked = {"model": "llama-3-8b", "gpu": "L40S", "engine": engine, "concurrency": 4}
    made = launch(work(Scenario.from_dict(asked)))
    assert made.scenario.engine_args[flag] == 4
    back = work(Scenario.from_dict(read_command(shell(made)).keys)).plan
    assert back.capacity.engine is not None
    assert back.capacity.engine.max_running_requests == 4
    assert back.scenario.context_tokens == 8192
    assert back.verdict.fits


def test_a_command_that_is_started_for_each_rank_says_so() -> None:
    asked = {"model": "llama-3-8b", "gpu": "L40S", "engine": "tensorrt-llm", "tp": 2, "dp": 2}
    made = launch(work(Scenario.from_dict(asked)))
    text = shell(made)
    assert text.startswith("# 2 × L40S, TensorRT-LLM")
    assert any("start 2 of these, each on 2 GPUs" in n for n in made.notes)
    assert work(Scenario.from_dict(read_command(text).keys)).plan.scenario.dp == 2
    own = launch(work(Scenario.from_dict({**asked, "engine": "vllm"})))
    assert shell(own).startswith("# 4 × L40S, vLLM")
    assert not any("start" in n for n in own.notes)
