"""The recorded cases that ``follow.py`` asks an engine's release: capacities, starts, runs of a scheduler."""

from __future__ import annotations

import gzip
import importlib.util
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvroom.units import GIB

ROOT = Path(__file__).resolve().parents[1]
NEED_WHOLE = frozenset(
    (
        "deepseek-v4-flash",
        "mimo-v2-flash",
        "nemotron-3-nano-30b-a3b",
        "nemotron-nano-9b-v2",
        "qwen3-next-80b-a3b",
        "qwen3.5-9b",
    )
)
"""Models whose entry in the catalogue holds less of the config than SGLang's classes read: they are asked
with whole configs (``--cases``)."""
MOST_CARDS = 8
"""Ranks on one machine, as vLLM checks them."""


@dataclass(frozen=True)
class FollowCase:
    """One recorded question: a Scenario without its release."""

    name: str
    scenario: Mapping[str, Any]


def _recorded(name: str) -> Any:
    """A module of the unit tests, which holds recorded figures."""
    path = ROOT / "tests" / "unit" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"recorded_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _paged() -> Iterator[FollowCase]:
    """The models, flags and layouts of vLLM's tests, each once, and the start rules' own."""
    module = _recorded("test_vllm_capacity")
    seen: set[str] = set()
    for _, model, args, layout, _ in module.RECORDED:
        name = f"{model} {json.dumps(args | layout)}"
        if name in seen or layout.get("tp", 1) * layout.get("pp", 1) > MOST_CARDS:
            continue
        seen.add(name)
        given = {"kv_cache_memory_bytes": 40 * GIB, **args}
        question = {"model": {"config": module.MODELS[model]}, "context_tokens": 32768}
        yield FollowCase(name, {**question, **layout, "engine_args": given})
    for row in json.loads((ROOT / "tests" / "golden" / "start_cases.json").read_text()):
        yield FollowCase(row["name"], row["scenario"])


def _pooled() -> Iterator[FollowCase]:
    """The models, cards, flags and layouts of SGLang's tests, each once."""
    module, seen = _recorded("test_sglang_capacity"), set()
    for case in module.GOLDEN:
        if case[1] in NEED_WHOLE:
            continue
        scenario = {
            key: value
            for key, value in module.question(case).differences().items()
            if key not in ("engine", "engine_version")
        }
        name = f"{case[1]} {case[2]} {case[3]}x{case[4]} {json.dumps(case[6])}"
        if name not in seen:
            seen.add(name)
            yield FollowCase(name, {"gpu": case[2], **scenario})


def of_tests(engine: str) -> Iterator[FollowCase]:
    """The recorded cases that the project holds itself."""
    yield from _pooled() if engine == "sglang" else _paged()


def of_folder(engine: str, folder: Path) -> Iterator[FollowCase]:
    """Cases of a data folder: recorded capacities with the configs that they name."""
    yield from _pools_of_folder(folder) if engine == "sglang" else _pages_of_folder(folder)


def _pools_of_folder(folder: Path) -> Iterator[FollowCase]:
    """``sglang_capacity.json`` with configs in ``model-configs``."""
    seen: set[str] = set()
    for row in json.loads((folder / "sglang_capacity.json").read_text())["cases"]:
        name = f"{row['config']} {row['gpu']} {row['tp']}x{row['pp']} {json.dumps(row['args'])}"
        if name in seen:
            continue
        seen.add(name)
        config = json.loads((folder / "model-configs" / row["config"]).read_text())
        yield FollowCase(
            name,
            {
                "model": {"config": config},
                "gpu": row["gpu"],
                "tp": row["tp"],
                "pp": row["pp"],
                "engine_args": {
                    k: v for k, v in row["args"].items() if k not in ("tp_size", "pp_size")
                },
                "known_bytes": {
                    "visible": row["gpu_total_bytes"],
                    "free_before_load": row["free_bytes_before_load"],
                    "weights": row["weights_bytes_per_rank"],
                },
            },
        )


def _pages_of_folder(folder: Path) -> Iterator[FollowCase]:
    """``vllm_capacity*.json[.gz]`` with their configs in ``*capacity-configs``."""
    configs = {path.stem: path for path in folder.glob("*capacity-configs/*.json")}
    seen: set[str] = set()
    for path in sorted(folder.glob("vllm_capacity*.json*")):
        data = path.read_bytes()
        rows = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
        for row in rows["cases"]:
            wanted = (
                "model",
                "tp",
                "pp",
                "kv_cache_dtype",
                "max_model_len",
                "args",
                "available_bytes",
            )
            name = json.dumps([row[key] for key in wanted])
            if name in seen or row["tp"] * row["pp"] > MOST_CARDS or row["model"] not in configs:
                continue
            seen.add(name)
            question = {
                "model": {"config": json.loads(configs[row["model"]].read_text())},
                "context_tokens": row["max_model_len"],
                "engine_args": {"kv_cache_memory_bytes": row["available_bytes"], **row["args"]},
            }
            question |= {key: row[key] for key in ("tp", "pp") if row[key] > 1}
            if row["kv_cache_dtype"] != "auto":
                question["kv_dtype"] = row["kv_cache_dtype"]
            yield FollowCase(name, question)


def scripts(folder: Path | None) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Recorded runs of the scheduler: name and script."""
    if folder is None:
        for run in json.loads((ROOT / "tests" / "golden" / "vllm_scheduler.json").read_text()):
            yield run["name"], run
        return
    for path in sorted(folder.glob("scheduler-replays/*.json.gz")):
        yield path.name, json.loads(gzip.decompress(path.read_bytes()))
