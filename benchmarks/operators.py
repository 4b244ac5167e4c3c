"""Distil NVIDIA's measured operators into a few figures: ``python benchmarks/operators.py DATA OUT``.

DATA is the ``systems/data`` folder of the package aiconfigurator-core (0.12.0, Apache-2.0, copyright
NVIDIA CORPORATION & AFFILIATES), of which this reads the tables of GEMM, decode and prompt attention,
experts and all-reduce. OUT (``benchmarks/operators.json``) holds for each system, engine and width what an
additive cost t = floor + bytes / (eta·rate) + FLOPs / (mu·peak) fits them best with, and the median error
of that. ``beliefs.py`` starts from these figures. Needs numpy and pyarrow; neither package nor tables are
needed to use kvroom.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from pyarrow import parquet

from kvroom.hardware.catalogue import find
from kvroom.hardware.device import Device

NOTICE = (
    "Distilled by benchmarks/operators.py from the operator tables of aiconfigurator-core 0.12.0, "
    "Copyright (c) 2025-2026 NVIDIA CORPORATION & AFFILIATES, licensed under Apache-2.0."
)
SYSTEMS = {
    "a100_sxm": "A100-SXM-80",
    "h100_sxm": "H100-SXM",
    "h200_sxm": "H200-SXM",
    "b200_sxm": "B200-SXM",
    "b300_sxm": "B300-SXM",
    "gb200": "GB200",
    "gb300": "GB300",
    "l40s": "L40S",
    "rtx_pro_6000_server": "RTX-PRO-6000-BSE",
    "b60": "Arc-Pro-B60",
}
WIDTHS = {
    "bfloat16": ("bf16", 2.0),
    "fp8": ("fp8", 1.0),
    "fp8_block": ("fp8", 1.0),
    "nvfp4": ("fp4", 0.5625),
}
LEAST_ROWS = 50
Columns = dict[str, Any]
Row = dict[str, Any]


def tables(data: Path, name: str) -> Iterator[tuple[Device, str, Columns]]:
    """(card, ``engine version``, columns) of every table called ``name``."""
    for file in sorted(data.glob(f"*/*/*/*/{name}.parquet")):
        system, _, engine, version = file.relative_to(data).parts[:4]
        if system in SYSTEMS:
            read = parquet.read_table(file).to_pydict()
            yield (
                find(SYSTEMS[system]),
                f"{engine} {version}",
                {k: np.array(v) for k, v in read.items()},
            )


def additive(terms: list[Any], seconds: Any) -> tuple[list[float], float]:
    """Coefficients of ``terms`` that fit ``seconds`` relatively, and the median relative error."""
    a = np.stack([np.ones(len(seconds)), *terms], 1)
    weight = 1 / seconds
    found, *_ = np.linalg.lstsq(a * weight[:, None], seconds * weight, rcond=None)
    return [float(x) for x in found], float(np.median(np.abs(a @ found / seconds - 1)))


def _row(where: tuple[Device, str], what: str, width: str, names: list[str], fit: Any) -> Row:
    device, engine = where
    (floor, *rest), error = fit
    shares = {n: round(1 / x, 2) for n, x in zip(names, rest, strict=True) if x > 0}
    made: Row = {"gpu": device.name, "engine": engine, "operator": what, "width": width}
    return made | {"floor_us": round(floor * 1e6, 1)} | shares | {"error": round(error, 2)}


def gemms(data: Path) -> Iterator[Row]:
    for d, engine, t in tables(data, "gemm_perf"):
        for width, (peak, size) in WIDTHS.items():
            weights = t["n"] * t["k"]
            x = (t["gemm_dtype"] == width) & (weights >= 4e6) & (t["m"] <= 16384)
            flops = d.flops(peak)
            if flops and x.sum() >= LEAST_ROWS:
                terms = [
                    weights[x] * size / d.memory_bytes_per_s,
                    2.0 * t["m"][x] * weights[x] / flops,
                ]
                fit = additive(terms, t["latency"][x] * 1e-3)
                yield _row((d, engine), "gemm", width, ["eta", "mu"], fit)


def decode_attention(data: Path) -> Iterator[Row]:
    for d, engine, t in tables(data, "generation_attention_perf"):
        for width in ("bfloat16", "fp8"):
            x = (t["kv_cache_dtype"] == width) & (t["head_dim"] == 128) & (t["step"] <= 65536)
            x &= t["num_key_value_heads"] <= 8
            if "window_size" in t:
                x &= t["window_size"] == 0
            if x.sum() >= LEAST_ROWS:
                held = t["batch_size"][x] * (t["step"][x] + 1.0) * t["num_key_value_heads"][x]
                read = held * 2 * 128 * WIDTHS[width][1]
                fit = additive([read / d.memory_bytes_per_s], t["latency"][x] * 1e-3)
                yield _row((d, engine), "decode attention", width, ["eta"], fit)


def prompt_attention(data: Path) -> Iterator[Row]:
    for d, engine, t in tables(data, "context_attention_perf"):
        x = (t["attn_dtype"] == "bfloat16") & (t["head_dim"] == 128) & (t["step"] == 0)
        x &= (t["isl"] <= 16384) & (t["num_heads"] >= 4)
        if "window_size" in t:
            x &= t["window_size"] == 0
        flops = d.flops("bf16")
        if flops and x.sum() >= LEAST_ROWS:
            pairs = t["batch_size"][x] * t["num_heads"][x] * t["isl"][x] * (t["isl"][x] + 1.0) / 2
            fit = additive([2 * 256 * pairs / flops], t["latency"][x] * 1e-3)
            yield _row((d, engine), "prompt attention", "bfloat16", ["mu"], fit)


def experts(data: Path) -> Iterator[Row]:
    for d, engine, t in tables(data, "moe_perf"):
        for width, (peak, size) in WIDTHS.items():
            x = (t["moe_dtype"] == width) & (t["distribution"] == "power_law_1.01")
            x &= t["num_tokens"] <= 8192
            flops = d.flops(peak)
            if flops and x.sum() >= LEAST_ROWS:
                one = 3.0 * t["hidden_size"][x] * t["inter_size"][x] / t["moe_tp_size"][x]
                tokens, count = t["num_tokens"][x], t["num_experts"][x]
                touched = 1 - (1 - t["topk"][x] / count) ** tokens
                terms = [
                    count / t["moe_ep_size"][x] * one * size * touched / d.memory_bytes_per_s,
                    2.0 * tokens * t["topk"][x] / t["moe_ep_size"][x] * one / flops,
                ]
                fit = additive(terms, t["latency"][x] * 1e-3)
                yield _row((d, engine), "experts", width, ["eta", "mu"], fit)


def all_reduces(data: Path) -> Iterator[Row]:
    for d, engine, t in tables(data, "custom_allreduce_perf"):
        link = d.peer_link
        for gpus in (2, 4, 8):
            x = t["num_gpus"] == gpus
            x &= np.array(["eager" not in k for k in t["kernel_source"]])
            if link and x.sum() >= 5:
                ring = 2 * (gpus - 1) / gpus * t["message_size"][x] / link.bytes_per_s
                fit = additive([ring], t["latency"][x] * 1e-3)
                yield _row((d, engine), f"all-reduce of {gpus}", "bfloat16", ["eta"], fit)


def main() -> None:
    parse = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parse.add_argument("data", type=Path)
    parse.add_argument("out", type=Path)
    given = parse.parse_args()
    parts = (gemms, decode_attention, prompt_attention, experts, all_reduces)
    lines = [json.dumps(row) for part in parts for row in part(given.data)]
    text = ",\n".join(lines)
    given.out.write_text(f'{{"notice": {json.dumps(NOTICE)},\n"operators": [\n{text}\n]}}\n')


if __name__ == "__main__":
    main()
