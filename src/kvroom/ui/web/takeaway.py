"""The same question elsewhere: as a command, as Python, as a link, as an engine's own flags."""

from __future__ import annotations

import shlex
from typing import Any

from kvroom.errors import KvroomError
from kvroom.models import catalogue
from kvroom.planner.plan import Workings
from kvroom.scenario.command_line import command, python
from kvroom.ui.web.assumptions import assumptions


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
    scenario = w.plan.scenario
    return {
        "link": scenario.link("#").removeprefix("#"),
        "command": command(scenario),
        "python": python(scenario),
        "engines": engine_flags(w),
        "assumptions": assumptions(w),
    }
