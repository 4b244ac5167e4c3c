"""A search on a local Ray cluster of several nodes, one of which is killed while it works."""

from __future__ import annotations

import os
import sys
import threading
import time

import pytest

from kvroom.optimize.search.journal import Journal
from kvroom.optimize.search.search import search
from kvroom.optimize.search.space import Space
from kvroom.optimize.search.workers import run_all
from kvroom.scenario.scenario import Scenario
from kvroom.ui.ray_workers import RayPool, ray_pool

ray = pytest.importorskip("ray", reason="needs the extra cluster (ray)")
cluster_utils = pytest.importorskip("ray.cluster_utils")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


@pytest.fixture(scope="module")
def cluster():
    made = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
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


def test_a_search_on_a_cluster_is_the_one_at_home(cluster):
    load = {"input_tokens": 1000, "output_tokens": 100, "concurrency": 16}
    asked = Scenario.from_dict({"model": "llama-3-8b", "gpu": "L4", "workload": load})
    space = Space(gpus=("L4", "L40S"), counts=(1, 2))
    home, away = (
        search(asked, "tpot_p95=60ms", space=space, simulate=2, pool=pool)
        for pool in (None, ray_pool(cluster.address))
    )
    assert away.to_dict() == home.to_dict()


def test_a_node_killed_in_the_middle_costs_nothing_but_time(cluster, tmp_path):
    node = cluster.add_node(num_cpus=2)
    cluster.wait_for_nodes()
    killer = threading.Timer(1.5, cluster.remove_node, (node,), {"allow_graceful": False})
    killer.start()
    path = tmp_path / "journal"
    units = [{"n": n} for n in range(20)]
    with Journal(str(path), {"q": 1}) as journal:
        results = run_all("double", slow_double, units, journal, pool=lambda: RayPool(ray))
    killer.join()
    assert results == [2 * n for n in range(20)]
    assert len(path.read_bytes().splitlines()) == 21
