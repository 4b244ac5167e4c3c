"""Fleets as they are typed: routers, unequal replicas, replicas that come and go, pools, splits."""

import json

import pytest
from click.testing import CliRunner

from kvroom.ui.cli.main import main

pytestmark = pytest.mark.slow

HARDWARE = ["llama-3-8b", "--gpu", "H100-SXM", "--context", "8K", "--engine-version", "0.33.0"]
LOAD = "arrivals=poisson:20/s,input=lognormal:mean=900:sigma=0.6,output=60,prefix=shared:4x512"
CHATS = f"{LOAD},turns=3,think=2s,requests=300"
LOAD += ",requests=300"
POOLS = {"prefill": {"count": 2}, "decode": {"count": 2}}


def typed(*args):
    return CliRunner().invoke(main, ["simulate", *HARDWARE, *args])


def answer(*args):
    done = typed(*args, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def refused(*args):
    done = typed(*args, "--json")
    assert done.exit_code == 2, done.output
    return json.loads(done.stdout)["error"]


def adds_up(told):
    """Nobody is lost, and what the replicas did is what was done."""
    n, fleet = told["requests"], told["fleet"]
    assert n["arrived"] == n["completed"] + n["dropped"]
    assert (n["running"], n["waiting"]) == (0, 0)
    last = [r for r in fleet["replicas"] if r.get("role") != "prefill"]
    assert sum(r["completed"] for r in last) <= n["completed"]
    assert told["kv_blocks"]["peak"] == sum(r["kv_blocks"]["peak"] for r in fleet["replicas"])
    for key in ("failures", "cold_starts"):
        assert fleet[key] == sum(r[key] for r in fleet["replicas"])
    return fleet


@pytest.mark.parametrize(
    "routing", ["least-loaded", "least-loaded:by=tokens", "prefix", "prefix:stale=50ms", "session"]
)
@pytest.mark.parametrize("load", [LOAD, CHATS])
def test_every_router_serves_all(routing, load):
    told = answer("--workload", load, "--replicas", "3", "--routing", routing)
    fleet = adds_up(told)
    assert sum(r["requests"] for r in fleet["replicas"]) == told["requests"]["arrived"]
    assert all(r["requests"] > 20 for r in fleet["replicas"])
    assert fleet["routing"]["policy"] == routing.split(":")[0]


@pytest.mark.parametrize("load", [LOAD, CHATS])
@pytest.mark.parametrize("routing", ["least-loaded", "prefix:stale=1s", "session"])
def test_one_replica_behind_any_router_is_no_fleet(routing, load):
    plain = typed("--workload", load, "--json")
    assert typed("--workload", load, "--routing", routing, "--json").stdout == plain.stdout


def test_the_same_seed_gives_the_same_bytes():
    fleet = '{"failures": {"mtbf_s": 5, "repair_s": 1}}'
    args = ["--workload", CHATS, "--replicas", "3", "--routing", "prefix", "--fleet", fleet]
    first = typed(*args, "--json")
    assert first.exit_code == 0
    assert typed(*args, "--json").stdout == first.stdout
    assert typed(*args, "--seed", "5", "--json").stdout != first.stdout


def test_prefixes_are_found_where_they_are():
    """A hundred beginnings on four replicas: who looks for them finds more than who does not."""
    load = LOAD.replace("4x512", "100x512")
    hits = {
        routing: answer("--workload", load, "--replicas", "4", "--routing", routing)[
            "prefix_hit_ratio"
        ]
        for routing in ("round-robin", "prefix:weight=5")
    }
    assert hits["prefix:weight=5"] > 1.5 * hits["round-robin"]


def test_unequal_replicas_share_by_load():
    fleet = '{"pools": [{"count": 1}, {"count": 1, "gpu": "L40S", "kv_dtype": "fp8"}]}'
    told = answer("--workload", LOAD, "--routing", "least-loaded", "--fleet", fleet)
    fast, slow = adds_up(told)["replicas"]
    assert (fast["gpu"], slow["gpu"]) == ("H100-SXM", "L40S")
    assert fast["requests"] > 2 * slow["requests"]
    assert fast["kv_blocks"]["total"] != slow["kv_blocks"]["total"]


def test_what_dies_is_counted_and_tried_elsewhere():
    fleet = '{"failures": {"at": [{"s": 5, "replica": 1}], "repair_s": 2}, "start": {"seconds": 1}}'
    told = answer("--workload", LOAD, "--replicas", "2", "--fleet", fleet)
    found = adds_up(told)
    assert (found["failures"], found["cold_starts"]) == (1, 1)
    assert found["retries"] > 0
    assert [(t["what"], t["replica"]) for t in found["timeline"]] == [
        ("fails", 1),
        ("starts", 1),
        ("up", 1),
    ]
    calm = answer("--workload", LOAD, "--replicas", "2")
    assert told["e2e_s"]["max"] > calm["e2e_s"]["max"]
    assert told["requests"] == calm["requests"]


def test_replicas_follow_the_load():
    rule = {"autoscale": {"max": 4, "queue": 1, "every_s": 1, "cool_down_s": 1}}
    load = LOAD.replace("poisson:20/s", "poisson:150/s").replace("output=60", "output=200")
    args = ("--workload", load, "--routing", "least-loaded", "--fleet", json.dumps(rule))
    told = answer(*args)
    found = adds_up(told)
    assert 1 < sum(r["there_s"] > 0 for r in found["replicas"]) <= 4
    assert found["cold_starts"] >= 1
    assert 0 < found["gpu_hours"] < 4 * told["duration_s"] / 3600


def test_answers_are_generated_in_the_second_pool():
    told = answer("--workload", LOAD, "--disaggregation", json.dumps(POOLS))
    found = adds_up(told)
    assert [r["role"] for r in found["replicas"]] == ["prefill"] * 2 + ["decode"] * 2
    crossed = found["transfers"]
    assert crossed["count"] == told["requests"]["completed"]
    # Llama 3 8B: 131,072 bytes a token; what the receivers have of the four prefixes is not sent.
    assert 131_072 * 300 * 300 < crossed["bytes"] < 131_072 * 300 * 1200
    assert crossed["link_bytes_per_s"] == 50e9


def test_a_slow_link_is_told():
    slow = POOLS | {"link_bytes_per_s": 2e8}
    told = answer("--workload", LOAD, "--disaggregation", json.dumps(slow))
    assert any("links of 200 MB/s are busy" in w for w in told["warnings"])
    fast = answer("--workload", LOAD, "--disaggregation", json.dumps(POOLS))
    assert told["e2e_s"]["mean"] > 2 * fast["e2e_s"]["mean"]
    assert not fast["warnings"]


def test_every_split_is_tried_and_the_link_found():
    load = LOAD.replace("poisson:20/s", "poisson:40/s")
    args = ("--workload", load, "--disaggregation", json.dumps(POOLS), "--splits")
    told = answer(*args, "--slo", "ttft_p95=500ms,tpot_p95=8ms")
    assert [(s["prefill"], s["decode"]) for s in told["splits"]] == [(1, 3), (2, 2), (3, 1)]
    assert told["aggregated"]["replicas"] == 4
    best = max(told["splits"], key=lambda s: s["goodput_requests_per_s"])
    assert told["best"] == {"prefill": best["prefill"], "decode": best["decode"]}
    better = best["goodput_requests_per_s"] > told["aggregated"]["goodput_requests_per_s"]
    assert told["pays"] == better
    link = told["needs_link_bytes_per_s"]
    if link is not None:
        split = {"prefill": {"count": best["prefill"]}, "decode": {"count": best["decode"]}}
        slo = ("--slo", "ttft_p95=500ms,tpot_p95=8ms")
        goods = [
            answer(
                "--workload",
                load,
                *slo,
                "--disaggregation",
                json.dumps(split | {"link_bytes_per_s": rate}),
            )["goodput_requests_per_s"]
            for rate in (link / 1.2, link)
        ]
        assert goods[0] < told["aggregated"]["goodput_requests_per_s"] <= goods[1]


def test_ranks_of_experts_step_together():
    moe = ["--dp", "2", "--ep", "2", "--weight-dtype", "fp8", "--workload", LOAD]
    moe = ["mixtral-8x7b", "--gpu", "H100-SXM", "--context", "8K", *moe]

    def told(*more):
        done = CliRunner().invoke(main, ["simulate", *moe, *more, "--json"])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    apart = told("--routing", "least-loaded", "--fleet", '{"lockstep": false}')
    assert any("fleet.lockstep" in w for w in apart["warnings"])
    together = told("--routing", "least-loaded")
    adds_up(together)
    assert not any("fleet.lockstep" in w for w in together["warnings"])
    assert together["tpot_s"]["mean"] > apart["tpot_s"]["mean"]
    asked = told("--routing", "least-loaded", "--fleet", '{"lockstep": true}')
    in_turn = told()
    assert asked["tpot_s"] == together["tpot_s"]
    assert in_turn["tpot_s"]["mean"] == pytest.approx(together["tpot_s"]["mean"], rel=0.05)


@pytest.mark.parametrize(
    ("flags", "field"),
    [
        (["--routing", "nearest"], "routing"),
        (["--routing", "prefix:stale=x"], "routing stale"),
        (["--fleet", '{"autoscale": {"min": 5, "max": 2}}'], "fleet.autoscale.min"),
        (["--fleet", "{"], "fleet"),
        (["--disaggregation", '{"prefill": {"count": 0}}'], "disaggregation.prefill.count"),
        (["--disaggregation", '{"link_bytes_per_s": 0}'], "disaggregation.link_bytes_per_s"),
        (["--splits"], "--splits"),
    ],
)
def test_bad_settings_are_refused(flags, field):
    error = refused("--workload", LOAD, *flags)
    assert error["field"] == field
    assert error["fix"]


@pytest.mark.parametrize(
    "flags",
    [
        ["--replicas", "3", "--routing", "prefix"],
        ["--replicas", "3", "--fleet", '{"failures": {"mtbf_s": 4, "repair_s": 1}}'],
        ["--disaggregation", json.dumps(POOLS)],
        ["--disaggregation", json.dumps(POOLS), "--splits"],
    ],
)
def test_text_fits_a_terminal(flags):
    done = typed("--workload", LOAD, *flags)
    assert done.exit_code == 0, done.output
    assert max(map(len, done.output.splitlines())) <= 80
    assert "replica" in done.output
