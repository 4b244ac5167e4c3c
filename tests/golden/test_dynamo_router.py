"""Costs that NVIDIA Dynamo's KV router printed, decision by decision.

Recorded with ai-dynamo-runtime 1.4.2, ``python -m dynamo.replay own.jsonl --num-workers 4 --router-mode
kv_router`` with its simulated engine (2,000 blocks of 16, 2,048 tokens a step) and DYN_LOG=debug, on 60
requests that share prefixes in blocks of 512 tokens. A line a request, in the order of the decisions: its
prompt, when its first and last tokens came, and by worker how many blocks the router took as cached and
the cost that it printed.
"""

import json
from pathlib import Path

import pytest

from kvroom.kvcache.extents import RequestExtents
from kvroom.kvcache.request import ServedRequest
from kvroom.scenario.routing import Routing
from kvroom.simulator.router import Router
from kvroom.simulator.routing.costs import LeastBlocks

RECORD = Path(__file__).with_name("dynamo_router_1.4.2.jsonl")
BLOCK, NAMED = 16, 512
PS_PER_MS = 10**9


def replayed():
    """(costs printed, costs by the rule, the worker that was chosen) of each decision."""
    rows = [json.loads(line) for line in RECORD.read_text().splitlines()]
    workers = range(len(rows[0]["costs"]))
    router = Router(Routing(policy="dynamo"), [2000 * BLOCK] * len(workers), BLOCK, BLOCK)
    rule = router.rule
    assert isinstance(rule, LeastBlocks)
    for index, row in enumerate(rows):
        blocks = row["tokens"] // BLOCK
        per = NAMED // BLOCK
        names = [row["ids"][place // per] * per + place % per for place in range(blocks)]
        request = ServedRequest(index, 0, row["tokens"], 1, extents=RequestExtents(names, blocks))
        now = round(row["arrival_ms"] * PS_PER_MS)
        router.loads.settle(now)
        cached = [count * BLOCK for count in row["cached_blocks"]]
        yield row["costs"], rule.costs(request, workers, cached), row["worker"]
        request.replica = row["worker"]
        rule.send(request, row["worker"], cached[row["worker"]], now)
        router.loads.heard(round(row["first_ms"] * PS_PER_MS), request, over=False)
        router.loads.heard(round(row["over_ms"] * PS_PER_MS), request, over=True)


def test_every_cost_is_the_printed_one():
    decisions = list(replayed())
    assert len(decisions) == 60
    for printed, ours, _ in decisions:
        assert ours == pytest.approx(printed, abs=0.00051)  # three decimals are printed


def test_the_chosen_worker_is_the_cheapest():
    for _, ours, worker in replayed():
        assert ours[worker] == min(ours)
