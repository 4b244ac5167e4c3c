"""The same question elsewhere: as a command, as Python, as a link, as an engine's own flags."""

from __future__ import annotations

import json
import shlex
from typing import Any

from kvroom.errors import KvroomError
from kvroom.models import catalogue
from kvroom.planner.plan import Workings
from kvroom.scenario.scenario import Scenario
from kvroom.ui.cli.options import FLAGS
from kvroom.ui.web.assumptions import assumptions

_FLAG = {key: flag for flag, key, _, _ in FLAGS}
_PLAIN = (str, int, float)


def command(scenario: Scenario) -> str:
    """The command line that answers ``scenario``; one with values that no flag holds goes by link."""
    asked = scenario.differences()
    workload = asked.pop("workload", {})
    arguments = asked.pop("engine_args", {})
    asked.pop("gpu_count", None)
    if scenario.tp * scenario.pp * scenario.dp == scenario.gpu_count and asked.get("tp"):
        del asked["tp"]  # what is left of the count
    if workload.get("concurrency") == scenario.concurrency:
        workload.pop("concurrency", None)
        users = bool(workload)
    else:
        users = False
    asked |= {f"workload.{k}": v for k, v in workload.items()}
    if not all(isinstance(v, _PLAIN) and k in {"model", *_FLAG} for k, v in asked.items()):
        return shlex.join(["kvroom", "plan", scenario.link()])
    count = f":{scenario.gpu_count}" if scenario.gpu_count != 1 else ""
    words = ["kvroom", "plan", asked.pop("model"), "--gpu", f"{asked.pop('gpu')}{count}"]
    for key, value in asked.items():
        flag = "--users" if key == "concurrency" and users else _FLAG[key]
        words += [flag, str(value)]
    for key, value in arguments.items():
        words += ["--engine-arg", f"{key}={value if isinstance(value, str) else json.dumps(value)}"]
    return shlex.join(words)


def python(scenario: Scenario) -> str:
    """The same in Python: a call that prints the verdict."""
    asked = scenario.differences()
    given = [_literal(asked.pop("model"), 1), _literal(asked.pop("gpu"), 1)]
    given += [f"{key}={_literal(value, 1)}" for key, value in asked.items()]
    rows = "".join(f"    {one},\n" for one in given)
    return f"import kvroom\n\nanswer = kvroom.plan(\n{rows})\nprint(answer.verdict.sentence)\n"


def _literal(value: Any, indent: int = 0) -> str:
    pad = "    " * (indent + 1)
    if isinstance(value, dict) and value:
        rows = "".join(
            f"{pad}{json.dumps(k)}: {_literal(v, indent + 1)},\n" for k, v in value.items()
        )
        return "{\n" + rows + "    " * indent + "}"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _published(model: str | dict[str, Any]) -> str:
    try:
        return catalogue.hub_id(model) if isinstance(model, str) else "MODEL"
    except KvroomError:
        return str(model)


def engine_flags(w: Workings) -> dict[str, str]:
    """The engines' own command lines for this deployment, by engine."""
    s, d = w.plan.scenario, w.deployment
    model = _published(s.model)
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
        "assumptions": assumptions(w),
    }
