"""A Scenario as a command line and as Python: the flag of every key, and the call that asks the same."""

from __future__ import annotations

import json
import shlex

from kvroom.scenario.scenario import Scenario
from kvroom.scenario.workload import Workload

NUMBER = "NUMBER"
TOKENS = "TOKENS"

FLAGS: tuple[tuple[str, str, str, str], ...] = (
    # flag, scenario key, what it takes, help
    (
        "--gpu",
        "gpu",
        "NAME[:COUNT]",
        "Card, machine file or inline {…}, with how many; unlike: A + B.",
    ),
    ("--gpu-count", "gpu_count", NUMBER, "How many GPUs (must equal tp × pp × dp)."),
    (
        "--tp",
        "tp",
        NUMBER,
        "Tensor-parallel ranks (default: what pp and dp leave; with only a count, chosen).",
    ),
    ("--pp", "pp", NUMBER, "Pipeline stages."),
    ("--dp", "dp", NUMBER, "Data-parallel replicas."),
    ("--ep", "ep", NUMBER, "Expert-parallel ranks, reusing tp × dp."),
    ("--dcp", "dcp", NUMBER, "Decode-context-parallel ranks, reusing tp."),
    (
        "--weight-dtype",
        "weight_dtype",
        "DTYPE",
        "bf16, fp8, int4, nvfp4, q4_k_m and more (default: the checkpoint's).",
    ),
    ("--kv-dtype", "kv_dtype", "DTYPE", "auto, bf16, fp8, int8, q8_0, q4_0 and more."),
    (
        "--context",
        "context_tokens",
        TOKENS,
        "Longest request: 32768, 32K, 1M (default: the model's limit).",
    ),
    ("--encoder-tokens", "encoder_tokens", TOKENS, "Encoder or image tokens of a request."),
    ("--concurrency", "concurrency", NUMBER, "Requests in a step."),
    ("--engine", "engine", "NAME", "arithmetic, vllm, sglang, tensorrt-llm, llama.cpp and more."),
    (
        "--engine-version",
        "engine_version",
        "VERSION",
        "Its version (default: the newest modelled).",
    ),
    (
        "--recipe",
        "recipe",
        "NAME",
        "How the server is set up, for its times: tuned, default, unknown (default: by its flags).",
    ),
    ("--replicas", "replicas", NUMBER, "Copies of the whole deployment."),
    (
        "--routing",
        "routing",
        "NAME[:KEY=…]",
        "How requests are spread: round-robin, least-loaded, prefix, session, dynamo, llm-d …",
    ),
    ("--fleet", "fleet", "JSON", "Unequal replicas, autoscaling, failures, cold starts."),
    (
        "--host-memory",
        "host_memory_bytes",
        "SIZE",
        "Host memory beside the cards: 64GB (default: what machines with such cards have).",
    ),
    ("--calibration", "calibration", "FILE", "A calibration file to use."),
    ("--tiers", "tiers", "JSON", "Offload tiers, as a list of objects."),
    ("--disaggregation", "disaggregation", "JSON", "Prefill and decode pools."),
    (
        "--speculation",
        "speculation",
        "METHOD[:KEY=…]",
        "Drafted tokens: mtp:1:acceptance=0.8, eagle3:3, ngram, or JSON.",
    ),
    ("--input-tokens", "workload.input_tokens", TOKENS, "Prompt length of the workload."),
    ("--output-tokens", "workload.output_tokens", TOKENS, "Answer length of the workload."),
    (
        "--shared-prefix-tokens",
        "workload.shared_prefix_tokens",
        TOKENS,
        "Prefix all requests share.",
    ),
    (
        "--start",
        "workload.start",
        "together|spread",
        "How users of a closed loop begin (default: together, as benchmarks do).",
    ),
    ("--rate", "workload.requests_per_s", NUMBER, "Open arrivals, requests per second."),
    ("--lengths", "workload.lengths", "JSON", "Length distribution of the workload."),
)
"""Every key of a Scenario that has a flag of its own: the flag, the key, what it takes, and its help."""

_FLAG = {key: flag for flag, key, _, _ in FLAGS}
_PLAIN = (str, int, float)


def command(scenario: Scenario) -> str:
    """The command line that answers ``scenario``; one with values that no flag holds goes by link."""
    keys = scenario.differences()
    for key in ("workload", "engine_args", "gpu_count"):
        keys.pop(key, None)
    workload = scenario.workload.differences() if scenario.workload else {}
    if keys.get("tp") and {"pp", "dp", "ep", "dcp"} & set(keys):
        del keys["tp"]  # what the others leave of the count
    if workload.get("concurrency") == scenario.concurrency:
        workload.pop("concurrency", None)
        users = bool(workload)
    else:
        users = False
    spec = [f"{key}={workload.pop(key)}" for key in Workload.SPEC_KEYS if _said(workload.get(key))]
    told = [*_pairs("--known-bytes", keys.pop("known_bytes", None), "B")]
    told += _pairs("--price", keys.pop("prices", None))
    told += ["--workload", ",".join(spec)] if spec else []
    told += ["--static"] if workload.pop("static", False) else []
    told += ["--allow-overcommit"] if keys.pop("allow_overcommit", False) else []
    keys |= {f"workload.{key}": value for key, value in workload.items()}
    if not all(
        isinstance(value, _PLAIN) and key in {"model", *_FLAG} for key, value in keys.items()
    ):
        return shlex.join(["kvroom", "plan", scenario.link()])
    count = f":{scenario.gpu_count}" if scenario.gpu_count != 1 else ""
    words = ["kvroom", "plan", str(keys.pop("model")), "--gpu", f"{keys.pop('gpu')}{count}"]
    for key, value in keys.items():
        flag = "--users" if key == "concurrency" and users else _FLAG[key]
        words += [flag, str(value)]
    for key, value in scenario.engine_args.items():
        words += ["--engine-arg", f"{key}={value if isinstance(value, str) else json.dumps(value)}"]
    return shlex.join([*words, *told])


def _said(value: object) -> bool:
    """Whether a key of a workload goes into a SPEC line as it is."""
    return isinstance(value, _PLAIN) and "," not in str(value)


def _pairs(flag: str, values: object, unit: str = "") -> list[str]:
    """``KEY=VALUE`` for each of an object's values; a price of every card has no key."""
    if not isinstance(values, dict):
        return []
    words = (
        f"{value}{unit}" if key == "*" else f"{key}={value}{unit}" for key, value in values.items()
    )
    return [word for pair in words for word in (flag, pair)]


def python(scenario: Scenario) -> str:
    """The same in Python: a call that prints the verdict."""
    keys = scenario.differences()
    arguments = [_literal(keys.pop("model"), 1), _literal(keys.pop("gpu"), 1)]
    arguments += [f"{key}={_literal(value, 1)}" for key, value in keys.items()]
    rows = "".join(f"    {one},\n" for one in arguments)
    return f"import kvroom\n\nanswer = kvroom.plan(\n{rows})\nprint(answer.verdict.sentence)\n"


def _literal(value: object, indent: int = 0) -> str:
    pad = "    " * (indent + 1)
    if isinstance(value, dict) and value:
        rows = "".join(
            f"{pad}{json.dumps(key)}: {_literal(value, indent + 1)},\n"
            for key, value in value.items()
        )
        return "{\n" + rows + "    " * indent + "}"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
