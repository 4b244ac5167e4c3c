"""Published measurements as questions to the time model."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
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

METRICS = ("tpot", "ttft")


@dataclass
class Point:
    """A measured row: what was asked, what came out, and the levels that its coefficients have."""

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
    def group(self) -> str:
        kind = calibration.kind_of(self.deployment.model)
        return f"{self.row['tier']} {kind}"

    @property
    def gpu(self) -> str:
        return self.deployment.device.name

    @property
    def model(self) -> str:
        return calibration.shape_of(self.deployment.model)

    @property
    def setting(self) -> str:
        return next(x for x in self.levels if calibration.kind_of_level(x) == calibration.SETTING)

    def idle(self) -> set[str]:
        """Coefficients that this point says nothing of."""
        still: set[str] = set()
        layout, stages = self.work.layout, self.work.stages
        if self.static or not self.load:
            still |= {"burst", "wait"}
        if "ttft" not in self.measured:
            still |= {"first_s"} | ({"token_s"} if self.static or not self.load else set())
        if "tpot" not in self.measured:
            still |= {"request_s"}
        if layout.tp == 1:
            still.add("reduce_s")
        if layout.pp == 1:
            still.add("stage_s")
        if layout.gpus == 1:
            still.add("link_eta")
        if layout.ep <= layout.tp:
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

    def predict(self, k: Coefficients) -> dict[str, float]:
        clock = Clock(work=self.work, rates=self.rates, k=k)
        made: dict[str, float] = {}
        if self.load and not self.static:
            times = serving.served(clock, self.load, self.near)
            self.near = times.decoding
            made = {"tpot": times.tpot_s, "ttft": times.ttft_s}
        else:
            if "tpot" in self.measured:
                made["tpot"] = clock.decode_s(self.requests, self.tokens)
            if "ttft" in self.measured and self.load:
                made["ttft"] = serving.static_batch(clock, self.load).ttft_s
        return {m: made[m] for m in self.measured}


def scenario_of(row: dict[str, Any], configs: Path) -> dict[str, Any]:
    users = row["concurrency_or_batch"] or 1
    s: dict[str, Any] = {
        "model": str(configs / f"{row['config']}.json"),
        **{
            k: row[k]
            for k in ("gpu", "gpu_count", "tp", "pp", "dp", "ep", "weight_dtype", "engine")
        },
        "kv_dtype": row["kv_dtype"] or "auto",
        "engine_version": row["engine_version"],
        "allow_overcommit": True,
    }
    lengths = {"input_tokens": row["isl"], "output_tokens": row["osl"] or 1, "concurrency": users}
    if row["tier"] == "serving":
        return s | {"workload": lengths}
    s |= {"concurrency": users, "context_tokens": context(row)}
    return s | ({"workload": lengths | {"static": True}} if row["isl"] else {})


def context(row: dict[str, Any]) -> int:
    return int(row["context_len_in_kv"] or (row["isl"] or 128) + (row["osl"] or 0) // 2)


def read(data: Path, configs: Path) -> list[Point]:
    points = list(_points(data, configs))
    same = Counter(_key(p) for p in points)
    for p in points:
        p.weight = 1 / same[_key(p)]
    return points


def _key(p: Point) -> tuple[Any, ...]:
    r = p.row
    names = ("config", "gpu", "tp", "pp", "dp", "ep", "weight_dtype", "engine", "isl", "osl")
    return (*(r[n] for n in names), r["concurrency_or_batch"], *sorted(p.measured.items()))


def _points(data: Path, configs: Path) -> Iterator[Point]:
    opened = gzip.open if data.suffix == ".gz" else open
    with opened(data, "rt") as lines:
        rows = [json.loads(line) for line in lines if line.strip()]
    for row in rows:
        scenario = Scenario.from_dict(scenario_of(row, configs))
        point = point_of(scenario, row)
        if point is not None:
            yield point


def point_of(scenario: Scenario, row: dict[str, Any]) -> Point | None:
    deployment, _ = deploy(scenario)
    rates = rates_of(deployment)
    if rates is None:
        return None
    answer = engines.answer(deployment)
    w = scenario.workload
    room = expected_room(deployment, answer, w)[1]
    return Point(
        row=row,
        deployment=deployment,
        work=Work.of(deployment),
        rates=rates,
        levels=calibration.levels(deployment),
        load=load_of(w, deployment, answer, room) if w else None,
        static=bool(w and w.static),
        requests=scenario.concurrency or 1,
        tokens=deployment.context_tokens,
        measured={
            m: row["measured"][f"{m}_ms"] / 1e3
            for m in METRICS
            if f"{m}_ms" in row["measured"] and not (m == "ttft" and row["engine"] == "lmdeploy")
        },
    )
