"""How many sessions of agents hold: the number, its band, why no more, and what changes are worth."""

import json

import pytest
from click.testing import CliRunner

from kvroom import api
from kvroom.errors import KvroomError
from kvroom.optimize.agents.answer import VariantHeld, cause, thrashes
from kvroom.optimize.agents.hold import SeedHeld, held
from kvroom.optimize.agents.trial import AgentTrial
from kvroom.optimize.agents.variants import Variant, variants
from kvroom.planner.plan import work
from kvroom.planner.sessions import fitted, within
from kvroom.planner.simulate import parse_slo
from kvroom.ui.cli.main import main
from kvroom.workloads.requests import HashIds, Request, RequestGraph
from kvroom.workloads.sessions import SessionPool
from kvroom.workloads.synthetic import parse

SPEC = (
    "agents=4,prefix=shared:512,first=lognormal:median=4000:sigma=0.5:max=9000,turns=4,agent=6,input=200,"
    "result=lognormal:median=300:sigma=1:max=3000,output=lognormal:median=100:sigma=0.8:max=800,"
    "think=exponential:mean=2min:max=9min,tool=exponential:mean=20s,compact=12K:0.3"
)
SLO = "ttft_p95=2s,tpot_p95=60ms"
KEYS = {"context_tokens": "16K", "engine_version": "0.33.0", "host_memory_bytes": "512GiB",
        "engine_args": {"num_gpu_blocks_override": 5001}}  # fmt: skip


@pytest.fixture(scope="module")
def answer():
    return api.agents(
        SPEC, "llama-3.1-8b", "L40S", slo=SLO, seeds=2, only=("host",), most=24, **KEYS
    )


def test_the_number_is_where_the_objective_breaks(answer):
    base = answer.base
    first = base.held[0]
    assert first.best.met
    assert all(trial.met for trial in first.trials if trial.users <= first.users)
    assert first.broken is not None
    assert first.users < first.broken.users <= first.users + max(1, first.users // 24)
    assert base.sessions in [each.users for each in base.held]
    low, high = base.band
    assert low <= base.sessions <= high
    assert first.at(4) is not None  # what was asked is tried too
    assert answer.holds
    assert answer.sentence.startswith("4 sessions hold: ")


def test_memory_below_the_gpus_ends_the_thrash(answer):
    base, host = answer.found
    worst = base.held[0].trials[-1]
    assert thrashes(worst)
    assert "the cache thrashes" in cause(base.best, worst)
    assert "the cache thrashes" in answer.sentence
    assert host.sessions > base.sessions
    hits = dict(host.best.tiers)
    assert hits["host"] > 0
    assert sum(hits.values()) == pytest.approx(host.best.hit_ratio)
    assert host.usd_per_session_hour < base.usd_per_session_hour


def test_the_shapes_of_the_answer(answer):
    told = json.loads(json.dumps(answer.to_dict()))
    assert told["asked"] == 4
    assert [row["id"] for row in told["variants"]] == ["base", "host"]
    assert told["variants"][0]["trials"][0]["users"] == 4
    rows = answer.rows()
    assert rows[0]["usd_per_session_hour"] == rows[0]["usd_per_hour"] / rows[0]["sessions"]
    for label in ("as asked", "+ host memory", "objective"):
        assert label in answer.to_svg()
    assert "as asked" in answer.to_html()


def test_the_same_question_has_the_same_answer(answer):
    again = api.agents(SPEC, "llama-3.1-8b", "L40S", slo=SLO, seeds=2, only=(), most=24, **KEYS)
    assert again.base.row() == answer.base.row()


def trial(users, met, **more):
    usual = {
        "seed": 0, "requests": 1, "requests_per_s": 1.0, "ttft_p50_s": 1.0, "ttft_p95_s": 1.0,
        "tpot_p95_s": 0.01, "hit_ratio": 0.9, "ideal_ratio": 0.95, "tiers": (("gpu", 0.9),),
        "prefill_ratio": 0.5, "again_ratio": 0.0, "output_tokens_per_s": 1.0, "peak_ratio": 0.5,
        "dropped": 0, "preemptions": 0, "missed": () if met else ("ttft_p95",),
    }  # fmt: skip
    return AgentTrial(users=users, met=met, **(usual | more))


def test_what_breaks_first():
    best = trial(10, True)
    assert "faster than they are computed" in cause(best, trial(11, False))
    assert "wait for room" in cause(best, trial(11, False, peak_ratio=1.0))
    assert "steps get longer" in cause(best, trial(11, False, missed=("tpot_p95",)))
    assert "thrashes" in cause(best, trial(11, False, hit_ratio=0.6, again_ratio=0.3))


def test_a_band_is_students_interval():
    def of(*users):
        rows = tuple(SeedHeld(n, (trial(n, True),)) for n in users)
        return VariantHeld(variant=Variant(id="base", label="", keys={}), held=rows)

    assert of(40).band is None
    # Mean 40, deviation 2 and a grain of 1.67/√12; t of two degrees of freedom 1.886, √(1 + 1/3).
    assert of(38, 40, 42).band == (36, 44)
    assert of(38, 40, 42).sessions == 40


def test_every_change_is_a_question():
    scenario = api.scenario("llama-3-70b", "H100-SXM", gpu_count=8, kv_dtype="auto")
    made = {v.id: v.of(scenario) for v in variants(scenario)}
    assert list(made) == [
        "base", "host", "nvme", "store", "kv_dtype=fp8", "gpu_count=10", "routing=round-robin",
        "routing=prefix", "routing=session",
    ]  # fmt: skip
    assert made["base"] == scenario
    assert made["gpu_count=10"].gpu_count == 10
    prefix = made["routing=prefix"]
    assert (prefix.gpu_count, prefix.replicas, prefix.routing.policy) == (4, 2, "prefix")
    fleet = api.scenario("llama-3.1-8b", "L40S", replicas=4, kv_dtype="fp8")
    assert "kv_dtype=fp8" not in {v.id for v in variants(fleet)}


def test_sessions_end_where_the_model_does():
    def request(tokens):
        return Request(0, tokens, 5, HashIds([1] * (tokens // 16), 16), session=0)

    graph = RequestGraph(
        (request(100), request(900), request(50), request(60)), ((), (0,), (0,), (1, 2))
    )
    assert [r.input_tokens for r in within(graph, 500).requests] == [100, 50]
    pool, notes = fitted(SessionPool([graph], 1, 9), 500)
    assert len(pool.graphs[0]) == 2
    assert "2 of 4 requests are left out" in notes[0]
    with pytest.raises(KvroomError, match="are fewer than any session begins with"):
        fitted(SessionPool([graph], 1, 9), 60)
    made, notes = fitted(parse("agents=2"), 32_768)
    assert made.compact.tokens == 31_129
    assert "compacted at 31,129" in notes[0]


def test_an_easier_objective_holds_no_fewer():
    workings = work(api.scenario("llama-3.1-8b", "L40S", **KEYS))
    source = parse(SPEC)
    hard = held(workings, source, parse_slo("ttft_p95=1s,tpot_p95=25ms"), guess=12, most=24)
    easy = held(workings, source, parse_slo("ttft_p95=9s,tpot_p95=90ms"), guess=12, most=24)
    assert easy.users >= hard.users > 0


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["nosuch.json", "llama-3.1-8b", "--gpu", "L40S"], "is not a file"),
        (["arrivals=poisson:1/s,input=9,output=9", "llama-3.1-8b", "--gpu", "L40S"], "says not how many"),
        (["agents=0", "llama-3.1-8b", "--gpu", "L40S"], "agents"),
        (["agents=2", "llama-3.1-8b", "--gpu", "L40S", "--slo", "ttft=1s"], "is no objective"),
        (["agents=2", "llama-3.1-8b", "--gpu", "L40S", "--svg", "/no/such/place.svg"], "no such folder"),
        (["agents=2,subagents=-1", "llama-3.1-8b", "--gpu", "L40S"], "subagents"),
        (["agents=2,compact=9K", "llama-3.1-8b", "--gpu", "L40S"], "Write it like 190K:0.2"),
    ],
)  # fmt: skip
def test_bad_questions(words, why):
    ran = CliRunner().invoke(main, ["agents", *words])
    assert ran.exit_code == 2
    assert why in ran.output


def test_the_command(tmp_path):
    words = ["agents", SPEC, "llama-3.1-8b", "--gpu", "L40S", "--context", "16K", "--engine-version",
             "0.33.0", "--seeds", "1", "--changes", "none", "--most", "4"]  # fmt: skip
    csv, svg = tmp_path / "a.csv", tmp_path / "a.svg"
    ran = CliRunner().invoke(main, [*words, "--csv", str(csv), "--svg", str(svg)])
    assert ran.exit_code == 0, ran.output
    assert "4 sessions hold: 4 at a time" in " ".join(ran.output.split())
    assert all(len(line) <= 80 for line in ran.output.splitlines())
    assert csv.read_text().startswith("id,label,gpus,sessions")
    assert svg.read_text().startswith("<svg")


def test_sessions_longer_than_the_model_takes_are_told_as_such():
    found = api.agents("agents=2", "llama-3-8b", "H100-SXM", seeds=1, only=(), most=2)
    assert found.base.sessions == 0
    assert "every request is dropped" in found.sentence
