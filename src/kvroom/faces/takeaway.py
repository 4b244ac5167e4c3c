"""The same question elsewhere: as a command, as Python, as a link, as an engine's own flags."""

from __future__ import annotations

import json
import shlex
from typing import Any

from kvroom.planning import Workings
from kvroom.scenario import Scenario

_FLAGS = {"context_tokens": "context", "encoder_tokens": "encoder-tokens", "concurrency": "users"}
_ALONE = ("model", "gpu", "gpu_count", "workload", "engine_args")


def command(scenario: Scenario) -> str:
    """The command line that answers ``scenario``; a question held by value goes by its link."""
    asked = scenario.differences()
    words = ["kvroom", "plan"]
    plain = all(isinstance(v, str | int | float) for k, v in asked.items() if k not in _ALONE)
    workload = asked.get("workload", {})
    if not plain or isinstance(scenario.model, dict) or isinstance(scenario.gpu, dict):
        return shlex.join([*words, scenario.link()])
    if any(isinstance(v, dict) for v in workload.values()):
        return shlex.join([*words, scenario.link()])
    count = f":{scenario.gpu_count}" if scenario.gpu_count != 1 else ""
    words += [str(scenario.model), "--gpu", f"{scenario.gpu}{count}"]
    implied = {"tp": scenario.gpu_count // (scenario.pp * scenario.dp)}
    for key, value in asked.items():
        if key in _ALONE or implied.get(key) == value:
            continue
        flag = _FLAGS.get(key, key.replace("_", "-"))
        words += [f"--{flag}"] if value is True else [f"--{flag}", str(value)]
    for key, value in workload.items():
        if key == "concurrency" and value == scenario.concurrency:
            continue
        flag = "rate" if key == "requests_per_s" else key.replace("_", "-")
        words += [f"--{flag}"] if value is True else [f"--{flag}", str(value)]
    for key, value in scenario.engine_args.items():
        words += [
            "--engine-arg",
            f"{key}={json.dumps(value) if not isinstance(value, str) else value}",
        ]
    return shlex.join(words)


def python(scenario: Scenario) -> str:
    """The same in Python: three lines that print the verdict."""
    body = _literal(scenario.differences())
    return (
        "from kvroom.planning import plan\n"
        "from kvroom.scenario import Scenario\n\n"
        f"answer = plan(Scenario.from_dict({body}))\n"
        "print(answer.verdict.sentence)\n"
    )


def _literal(value: Any, indent: int = 0) -> str:
    pad = "    " * (indent + 1)
    if isinstance(value, dict) and value:
        rows = "".join(f"{pad}{k!r}: {_literal(v, indent + 1)},\n" for k, v in value.items())
        return "{\n" + rows + "    " * indent + "}"
    return repr(value)


def engine_flags(w: Workings) -> dict[str, str]:
    """The engines' own command lines for this deployment, by engine."""
    s, d = w.plan.scenario, w.deployment
    model = s.model if isinstance(s.model, str) else "MODEL"
    users = s.concurrency
    lines = {
        "vLLM": ["vllm", "serve", model, "--max-model-len", str(d.context_tokens)],
        "SGLang": [
            "python", "-m", "sglang.launch_server", "--model-path", model,
            "--context-length", str(d.context_tokens),
        ],
    }  # fmt: skip
    for engine, layouts in (
        ("vLLM", (("tensor-parallel-size", s.tp), ("pipeline-parallel-size", s.pp),
                  ("data-parallel-size", s.dp))),
        ("SGLang", (("tp-size", s.tp), ("pp-size", s.pp), ("dp-size", s.dp))),
    ):  # fmt: skip
        for flag, n in layouts:
            if n > 1:
                lines[engine] += [f"--{flag}", str(n)]
    if d.kv_name.startswith("fp8"):
        lines["vLLM"] += ["--kv-cache-dtype", "fp8"]
        lines["SGLang"] += ["--kv-cache-dtype", "fp8_e4m3"]
    if users is not None:
        lines["vLLM"] += ["--max-num-seqs", str(users)]
        lines["SGLang"] += ["--max-running-requests", str(users)]
    if s.engine == "vllm":
        for key, value in s.engine_args.items():
            lines["vLLM"] += [f"--{key.replace('_', '-')}", str(value)]
    return {name: shlex.join(words) for name, words in lines.items()}


def take_away(w: Workings) -> dict[str, Any]:
    """All of them for the asked question, with the assumptions that the answer rests on."""
    asked = w.plan.scenario
    return {
        "link": asked.link("#").removeprefix("#"),
        "command": command(asked),
        "python": python(asked),
        "engines": engine_flags(w),
    }
