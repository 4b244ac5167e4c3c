"""The page of JSON names every key of what ``agents``, ``search`` and ``simulate --describe`` answer."""

import re
from pathlib import Path

from kvroom import api
from kvroom.workloads.requests import Request

PAGE = Path(__file__).parents[2] / "docs/reference/json.md"
TIERS = PAGE.with_name("tiers.md")


def named(page):
    return set(re.findall(r"`([a-z0-9_.]+)`", page.read_text("utf-8")))


def test_every_key_is_named():
    words = named(PAGE)
    found = api.agents(
        "agents=2,compact=6K:0.3", "llama-3-8b", "L40S", seeds=1, only=(), most=2
    ).to_dict()
    variant = found["variants"][0]
    for told in (found, variant, variant["trials"][0]):
        assert set(told) <= words, set(told) - words
    rows = [Request(i * 10**12, 100, 5) for i in range(9)]
    assert set(api.describe(trace=rows)) <= words | {"skipped_lines", "unordered"}
    searched = api.search(
        "llama-3-8b",
        trace=rows,
        slo="ttft_p95=5s",
        simulate=0,
        space={"gpus": ["L4"], "counts": [1]},
    )
    told = searched.to_dict()["objective"]["trace"]
    assert set(told) <= words, set(told) - words


def test_every_key_of_a_tier_is_named():
    load = {"arrivals": "once", "input": 100, "output": 5, "requests": 3}
    found = api.simulate("llama-3-8b", "L40S", workload=load, tiers=["host:8GB"]).figures
    words = named(TIERS)
    for row in found["tiers"]:
        assert set(row) <= words, set(row) - words
