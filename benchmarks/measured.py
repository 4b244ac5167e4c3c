"""Published measurements as questions to the time model.

A folder holds ``measured.jsonl.gz`` and ``served.jsonl.gz``, a measurement a line (config, card, layout,
widths, engine, lengths, load, and ``measured`` with ``tpot_ms``, ``ttft_ms``, ``e2e_ms``), and
``measured_labels.jsonl.gz``, what is known beyond them of the former: the server's flags, the lengths as
they were, drafting, why a row is suspect. Each of them may be absent.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from kvroom import engines
from kvroom.latency import calibration
from kvroom.latency import load as serving
from kvroom.latency.step_time import Clock, Coefficients, Rates
from kvroom.latency.work import Work
from kvroom.planner.load import load_of
from kvroom.planner.place import deploy
from kvroom.planner.times import rates_of
from kvroom.scenario.scenario import Scenario
from kvroom.sharding.deployment import Deployment
from kvroom.simulator.occupancy import expected_room

METRICS = {"tpot": "tpot_ms", "ttft": "ttft_ms", "whole": "e2e_ms"}
NO_FIRST = ("lmdeploy",)
"""Engines whose published first tokens are of something else."""
DISAGGREGATED = "disagg"
BENCHES = {"llama.cpp": "llama_bench", "mlx": "mlx_bench"}
"""Published benchmarks by engine: files beside this one."""


@dataclass
class Point:
    """A measured row: its question, what was measured, and the levels that its coefficients have."""

    row: dict[str, Any]
    deployment: Deployment
    work: Work
    rates: Rates
    levels: tuple[str, ...]
    load: serving.Load | None
    static: bool
    requests: int
    tokens: int
    measured: dict[str, float]
    weight: float = 1.0
    near: float | None = None
    """How many decoded at once when it was last asked: where the next search begins."""

    @property
    def kind(self) -> str:
        return calibration.kind_of(self.deployment.model)

    @property
    def group(self) -> str:
        return f"{self.row['tier']} {self.kind}"

    @property
    def source(self) -> str:
        return source_of(self.row)

    @property
    def gpu(self) -> str:
        return self.deployment.device.name

    @property
    def engine(self) -> str:
        return self.deployment.engine

    @property
    def model(self) -> str:
        return calibration.shape_of(self.deployment.model)

    @property
    def cell(self) -> str:
        """Card × model × engine."""
        return f"{self.gpu} {self.model} {self.engine}"

    @property
    def setting(self) -> str:
        return next(x for x in self.levels if calibration.kind_of_level(x) == calibration.SETTING)

    def idle(self) -> set[str]:
        """Coefficients that this point says nothing of."""
        still: set[str] = {"draft_s"}
        layout, stages = self.work.layout, self.work.stages
        if self.static or not self.load:
            still |= {"burst", "wait"}
        if "tpot" in self.measured and len(self.measured) == 1 and (self.static or not self.load):
            still |= {"first_s", "token_s"}
        if calibration.takes_in_every(self.deployment) in (None, 1):
            still.add("intake")
        if layout.tp == 1:
            still.add("reduce_s")
        if layout.pp == 1:
            still.add("stage_s")
        if layout.gpus == 1:
            still.add("link_eta")
        if layout.ep <= layout.tp and layout.expert_dp == 1:
            still.add("exchange_s")
        if not any(s.experts for s in stages):
            still |= {"expert_eta", "expert_mu", "expert_width", "routing", "expert_layer_s"}
        if not any(s.latent_layers for s in stages):
            still.add("latent_layer_s")
        if not any(s.indexer_layers for s in stages):
            still.add("indexer_layer_s")
        if not any(s.state_layers for s in stages):
            still.add("state_layer_s")
        if not any(s.narrow_bytes for s in stages) and not any(
            e.narrow for s in stages for e in s.experts
        ):
            still |= {"narrow_eta", "narrow_mu"}
        return still

    def clock(self, k: Coefficients) -> Clock:
        """Its steps under ``k``, as the package times them."""
        every = calibration.takes_in_every(self.deployment)
        if every is not None:
            k = calibration.waiting(k, every)
        clock = Clock(work=self.work, rates=self.rates, k=k)
        return clock.within_peaks(cache=not calibration.unsaid_cache(self.deployment))

    def predict(self, k: Coefficients) -> dict[str, float]:
        clock = self.clock(k)
        seconds: dict[str, float] = {}
        if self.load is None or (self.static and "tpot" in self.measured):
            seconds["tpot"] = clock.decode_s(self.requests, self.tokens)
        if self.load is not None:
            times = serving.served(clock, self.load, self.near)
            if not self.static and self.load.requests_per_s is None:
                self.near = times.decoding
            seconds.setdefault("tpot", times.tpot_s)
            if times.ttft_s is not None:
                seconds["ttft"] = times.ttft_s
                steps = max(0, self.load.output_tokens - 1)
                seconds["whole"] = times.ttft_s + steps * times.tpot_s
        return {m: seconds[m] for m in self.measured if m in seconds}


def source_of(row: dict[str, Any]) -> str:
    """Who measured it."""
    return str(row.get("family") or row["id"].rpartition("-")[0])


def scenario_of(row: dict[str, Any], configs: Path) -> dict[str, Any]:
    """The question that a row answers: as it was run."""
    users = row["concurrency_or_batch"] or 1
    entering = row.get("isl_mean") or row["isl"]
    leaving = row.get("osl_mean") or row["osl"]
    s: dict[str, Any] = {
        "model": str(configs / f"{row['config']}.json"),
        **{
            k: row[k]
            for k in ("gpu", "gpu_count", "tp", "pp", "dp", "ep", "weight_dtype", "engine")
        },
        "kv_dtype": row.get("kv_flag") or row["kv_dtype"] or "auto",
        "engine_version": row["engine_version"],
        "engine_args": row.get("engine_args") or {},
        "allow_overcommit": True,
    }
    lengths = {"input_tokens": entering, "output_tokens": leaving or 1}
    if row["tier"] == "open":
        return s | {"workload": lengths | {"requests_per_s": row["requests_per_s"]}}
    lengths |= {"concurrency": users}
    if row["tier"] == "serving":
        return s | {"workload": lengths}
    context = int(row["context_len_in_kv"] or (entering or 128) + (row["osl"] or 0) // 2)
    s |= {"concurrency": users, "context_tokens": context}
    return s | ({"workload": lengths | {"static": True}} if entering else {})


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        with gzip.open(path, "rt") as lines:
            yield from (json.loads(line) for line in lines if line.strip())


def rows(folder: Path) -> Iterator[dict[str, Any]]:
    """Every row of a folder, with what its label adds."""
    labels = {x["id"]: x for x in _lines(folder / "measured_labels.jsonl.gz")}
    for row in _lines(folder / "measured.jsonl.gz"):
        label = labels.get(row["id"], {})
        for key in ("kv_dtype", "engine_args", "spec", "suspect", "family", "date"):
            if label.get(key):
                row[key] = label[key]
        for key in ("isl", "osl"):
            row[key] = round(label.get(f"{key}_mean") or 0) or row[key]
        yield row
    yield from _lines(folder / "served.jsonl.gz")
    for engine in BENCHES:
        yield from benches(engine)


def benches(engine: str) -> Iterator[dict[str, Any]]:
    """Published benchmarks of ``engine`` alone: text generation (``tg``) at a number of cached tokens, and
    prompt processing (``pp``), whose first token comes when all prompts are done.

    Prompts that pass several cards one after another are left out: their parts overlap.
    """
    name = BENCHES[engine]
    with Path(__file__).with_name(f"{name}.csv").open(newline="") as lines:
        for i, r in enumerate(csv.DictReader(lines)):
            gpus, batch, tokens = int(r["gpus"]), int(r["batch"]), int(r["tokens"])
            row: dict[str, Any] = {
                "id": f"{name.replace('_', '')}-{i:04d}",
                "family": name.replace("_", ""),
                "engine": engine,
                "engine_version": None,
                "gpu_count": gpus,
                "tp": 1,
                "pp": gpus,
                "dp": 1,
                "ep": 1,
                "kv_dtype": None,
                "osl": None,
                "concurrency_or_batch": batch,
                **{key: r[key] for key in ("gpu", "config", "weight_dtype")},
            }
            each_ms = 1e3 / float(r["tokens_per_s"])
            if r["test"] == "tg":
                yield row | {
                    "tier": "batch1" if batch == 1 else "static",
                    "isl": None,
                    "context_len_in_kv": int(r["context_tokens"]) or 1,
                    "measured": {"tpot_ms": batch * each_ms},
                }
            elif gpus == 1:
                yield row | {
                    "tier": "static",
                    "isl": tokens,
                    "context_len_in_kv": tokens,
                    "measured": {"ttft_ms": batch * tokens * each_ms},
                }


def plain(row: dict[str, Any]) -> bool:
    """Whether a row is of one pool without drafts, and nothing speaks against it."""
    drafted = row.get("spec") not in (None, "none")
    return not drafted and not row.get("suspect") and row["tier"] != DISAGGREGATED


def roofline_s(p: Point) -> float | None:
    """One decode step at the card's peaks; None for first tokens."""
    requests = p.requests if p.load is None else (p.load.users or 1)
    tokens = p.tokens if p.load is None else p.load.input_tokens + p.load.output_tokens // 2
    each = requests / (p.work.layout.dp * p.work.layout.pp)
    read = flops = 0.0
    for stage, a in zip(p.work.stages, p.work.decoding(tokens), strict=True):
        read += stage.wide_bytes + stage.narrow_bytes + each * (a.cache_bytes + a.state_bytes)
        flops += each * (
            2 * (stage.wide_params + stage.narrow_params + stage.head_params) + a.flops
        )
        for e in stage.experts:
            share = e.active / e.count
            read += e.bytes * (1 - (1 - share) ** each)
            flops += 2 * each * e.active_params
    return max(read / p.rates.memory_bytes_per_s, flops / p.rates.narrow_flops_per_s)


def of_one_text(p: Point) -> bool:
    """Whether the requests of a row held the same tokens, which choose the same experts: a step was shorter
    than reading, at the memory's peak, what independent tokens would choose."""
    seconds = roofline_s(p) if p.kind == "moe" and p.load is None else None
    return seconds is not None and p.measured.get("tpot", inf) < seconds


def read(folder: Path, configs: Path) -> list[Point]:
    """The plain rows of a folder as points; many of one cell count for less each, so that no source
    outvotes the others, and one measurement under several names counts once."""
    points = [
        p
        for row in rows(folder)
        if plain(row)
        and (p := point_of(Scenario.from_dict(scenario_of(row, configs)), row)) is not None
        and not of_one_text(p)
    ]
    same = Counter(_key(p) for p in points)
    of_cell = Counter((p.source, p.cell) for p in points)
    for p in points:
        p.weight = min(1.0, (CELL / of_cell[p.source, p.cell]) ** 0.5) / same[_key(p)]
    return points


CELL = 20
"""Rows of one source and cell that count in full; of n more each counts (20 / n)^½."""


def _key(p: Point) -> tuple[Any, ...]:
    r = p.row
    names = ("config", "gpu", "tp", "pp", "dp", "ep", "weight_dtype", "engine", "isl", "osl")
    return (*(r[n] for n in names), r["concurrency_or_batch"], *sorted(p.measured.items()))


def point_of(scenario: Scenario, row: dict[str, Any]) -> Point | None:
    deployment, _ = deploy(scenario)
    rates = rates_of(deployment)
    if rates is None:
        return None
    answer = engines.answer(deployment)
    w = scenario.workload
    room = expected_room(deployment, answer, w)[1]
    load = load_of(w, deployment, answer, room) if w else None
    measured = {
        m: row["measured"][key] / 1e3 for m, key in METRICS.items() if row["measured"].get(key)
    }
    if load is None or row["engine"] in NO_FIRST:
        measured = {m: v for m, v in measured.items() if m == "tpot"}
    return Point(
        row=row,
        deployment=deployment,
        work=Work.of(deployment),
        rates=rates,
        levels=calibration.levels(deployment),
        load=load,
        static=bool(w and w.static),
        requests=scenario.concurrency or 1,
        tokens=deployment.context_tokens,
        measured=measured,
    )
