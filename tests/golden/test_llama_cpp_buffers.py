"""Caches and compute buffers that a real llama.cpp reserves for shapes of published models, without weights.

The figures in llama_cpp.json are those that libllama v0.5.0 (the CPU build in npm's
``@node-llama-cpp/linux-x64`` 3.22.1) logged when it was given files that hold a model's keys and the places
of its tensors, loaded with ``no_alloc``: ``llama_kv_cache: size``, ``llama_memory_recurrent: size`` and
``compute buffer size``, in MiB. The shapes are what it asked for itself, one complaint after the other.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from kvroom.engines.llama_cpp.answer import cache_sizes, compute_buffer
from kvroom.planner.plan import Workings, work
from kvroom.scenario.scenario import Scenario
from kvroom.units import MIB

oracle = pytest.importorskip("gguf")
RECORDED = json.loads((Path(__file__).parent / "llama_cpp.json").read_text())
MODELS: dict[str, Any] = RECORDED["models"]
HEADED = ("llama3-8b", "qwen3-8b", "gemma3-27b", "gpt-oss-20b")
"""Models whose layers are attention with heads: their compute buffer is computed."""
NEAR = 0.02
LATENT = ("deepseek2",)
ABSORBED = 0.05
"""Which of the queries' copies share a place follows from the order of sizes."""
QUANTISED = 0.1
"""With quantised keys one of them is made anew in another place."""


def tensors(model: dict[str, Any]) -> dict[str, list[int]]:
    """Shapes by name."""
    found = dict(model["beside"])
    for shapes, layers in model["layers"]:
        found |= {f"blk.{i}.{role}": shape for i in layers for role, shape in shapes.items()}
    return found


def write(path: Path, model: dict[str, Any]) -> str:
    """A file of the model's shapes, its tensors a hole."""
    arch, quants = model["arch"], oracle.GGMLQuantizationType
    writer = oracle.GGUFWriter(path, arch)
    for key, value in model["keys"].items():
        add = writer.add_float32 if isinstance(value, float) else writer.add_uint32
        add(f"{arch}.{key}", value)
    total = 0
    for name, shape in tensors(model).items():
        kind = quants.F32 if len(shape) == 1 or shape[0] % 256 else quants.Q4_K
        block, size = oracle.GGML_QUANT_SIZES[kind]
        held = math.prod(shape) // block * size
        if kind is quants.F32:
            writer.add_tensor_info(name, shape[::-1], oracle.np.dtype("float32"), held)
        else:
            rows = [*shape[:0:-1], shape[0] // block * size]
            writer.add_tensor_info(name, rows, oracle.np.dtype("uint8"), held, raw_dtype=kind)
        total += math.ceil(held / 32) * 32
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size + total)
    return str(path)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("shapes")
    return {name: write(folder / f"{name}.gguf", model) for name, model in MODELS.items()}


def worked(path: str, args: dict[str, Any]) -> Workings:
    return work(
        Scenario.from_dict(
            {
                "model": path,
                "gpu": "H200-SXM:8",
                "engine": "llama.cpp",
                "engine_version": RECORDED["build"],
                "engine_args": {"fit": "off", "n_gpu_layers": "all", **args},
            }
        )
    )


CASES = [(name, row) for name, model in MODELS.items() for row in model["rows"]]


@pytest.mark.parametrize(
    ("name", "row"), CASES, ids=[f"{name}-{json.dumps(row['args'])}" for name, row in CASES]
)
def test_caches_are_llama_cpps(files: dict[str, str], name: str, row: dict[str, Any]) -> None:
    made = worked(files[name], row["args"])
    sizes = cache_sizes(made.deployment)
    assert sizes.attention / MIB == pytest.approx(row["attention_mib"], abs=0.02)
    assert sizes.state / MIB == pytest.approx(row["state_mib"], abs=0.02)
    middle, low, high = compute_buffer(made.deployment)
    assert low / MIB <= row["compute_mib"] <= high / MIB
    if name in LATENT:
        assert middle / MIB == pytest.approx(row["compute_mib"], rel=ABSORBED)
    if name in HEADED:
        near = QUANTISED if "cache_type_k" in row["args"] else NEAR
        assert middle / MIB == pytest.approx(row["compute_mib"], rel=near)
