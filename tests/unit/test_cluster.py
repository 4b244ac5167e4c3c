"""Work on a local Ray cluster, a head and two workers, one of which is killed while it works."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time

import pytest

from kvroom.clusters import workers_of
from kvroom.distributed.journal import Journal
from kvroom.distributed.simulation import spread_simulation
from kvroom.distributed.workers import run_all
from kvroom.optimize.search.search import search
from kvroom.optimize.search.space import Space
from kvroom.planner.plan import work
from kvroom.planner.simulate import parse_slo
from kvroom.planner.simulation import simulation
from kvroom.ray_workers import RayPool, ray_pool
from kvroom.scenario.scenario import Scenario
from kvroom.workloads.synthetic import of_workload

ray = pytest.importorskip("ray", reason="needs the extra cluster (ray)")
cluster_utils = pytest.importorskip("ray.cluster_utils")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]

LOAD = {
    "arrivals": "poisson:20/s",
    "input": "lognormal:mean=300:sigma=0.9",
    "output": "exponential:mean=60",
    "turns": 2,
    "think": "1s",
    "requests": 4000,
}


@pytest.fixture(scope="module")
def cluster():
    made = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    for _ in range(2):
        started(made)
    made.wait_for_nodes()
    paths = os.pathsep.join(p for p in sys.path if p)
    ray.init(
        address=made.address,
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": paths}},
    )
    yield made
    ray.shutdown()
    made.shutdown()


def slow_double(unit):
    time.sleep(0.3)
    return unit["n"] * 2


def started(cluster):
    """One more worker of one CPU. Ray gives a node 30 s to start, which a crowded machine may not keep."""
    for _ in range(3):
        try:
            return cluster.add_node(num_cpus=1)
        except Exception as error:
            if "timed out during startup" not in str(error):
                raise
    pytest.skip("Ray cannot start a node here in its 30 s")


def killer_of(cluster):
    """Adds a worker, and makes what kills it as its machine would die."""
    node = started(cluster)
    cluster.wait_for_nodes()
    return threading.Thread(
        target=cluster.remove_node, args=(node,), kwargs={"allow_graceful": False}
    )


def test_a_search_on_a_cluster_is_the_one_at_home(cluster):
    load = {"input_tokens": 1000, "output_tokens": 100, "concurrency": 16}
    asked = Scenario.from_dict({"model": "llama-3-8b", "gpu": "L4", "workload": load})
    space = Space(gpus=("L4", "L40S"), counts=(1, 2))
    home, away = (
        search(asked, "tpot_p95=60ms", space=space, simulate=2, pool=pool)
        for pool in (None, ray_pool(cluster.address))
    )
    assert away.to_dict() == home.to_dict()


@pytest.mark.parametrize("keys", [{}, {"routing": "session"}, {"routing": "prefix:cells=3"}])
def test_a_simulation_with_a_worker_killed_is_the_one_at_home(cluster, tmp_path, keys):
    """Replicas that share nothing, in six parts on three workers, one of which dies after the first part:
    the figures are those of one process, byte for byte, and the journal has each part once."""
    made = Scenario.from_dict(
        {"model": "llama-3-8b", "gpu": "L4", "replicas": 6, "workload": LOAD, **keys}
    )
    slo = parse_slo("ttft_p95=1s")
    home = simulation(work(made), of_workload(made.workload), slo=slo, keep_requests=False)
    killer = killer_of(cluster)

    def progress(stage, done, total):
        if done == 1:
            killer.start()

    path = tmp_path / "journal"
    away = spread_simulation(
        work(made),
        of_workload(made.workload),
        slo=slo,
        pool=ray_pool(cluster.address),
        workers=6,
        journal=str(path),
        progress=progress,
    )
    killer.join()
    assert json.dumps(away.figures) == json.dumps(home.figures)
    parts = 3 if keys.get("routing", "").endswith("3") else 6
    units = [json.loads(line).get("unit") for line in path.read_bytes().splitlines()[1:]]
    assert len(units) == len(set(units)) == parts + (parts == 6)  # and how many they are


def test_the_command_finds_the_cluster(cluster):
    asked = [sys.executable, "-m", "kvroom", "simulate", "llama-3-8b", "--gpu", "L4", "--json"]
    asked += ["--replicas", "2"]
    asked += ["--workload", "arrivals=poisson:4/s,input=300,output=40,requests=200"]
    home = subprocess.run(asked, capture_output=True, text=True, check=True)
    away = subprocess.run(
        [*asked, "--cluster", f"ray:{cluster.address}"], capture_output=True, text=True, check=True
    )
    assert away.stdout == home.stdout
    assert "2 of 2 units" in away.stderr


def test_all_cpus_of_the_cluster_work(cluster):
    # A node that another test killed is counted until the cluster misses it.
    until = time.monotonic() + 60
    while (counted := workers_of(f"ray:{cluster.address}").at_once) != 2:
        assert time.monotonic() < until, counted
        time.sleep(0.5)


def test_a_node_killed_in_the_middle_costs_nothing_but_time(cluster, tmp_path):
    killer = killer_of(cluster)
    path = tmp_path / "journal"
    units = [{"n": n} for n in range(20)]
    threading.Timer(1.5, killer.start).start()
    with Journal(str(path), {"q": 1}) as journal:
        results = run_all("double", slow_double, units, journal, pool=lambda: RayPool(ray))
    killer.join()
    assert results == [2 * n for n in range(20)]
    assert len(path.read_bytes().splitlines()) == 21
