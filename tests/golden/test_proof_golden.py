"""A record of a real vLLM 0.32.0 on a CPU, asked by ``make proof`` on a machine that others used too."""

import gzip
import re
from pathlib import Path

import pytest

from kvroom.observe.prove.proof import errors
from kvroom.observe.prove.session import read_record
from kvroom.ui import codec
from kvroom.ui.words import seconds

DOCS = Path(__file__).parents[2]
RECORD = Path(__file__).with_name("proof_vllm_0.32.0.json.gz")


@pytest.fixture(scope="module")
def proofs(tmp_path_factory):
    path = tmp_path_factory.mktemp("proof") / "record.json"
    path.write_bytes(gzip.decompress(RECORD.read_bytes()))
    return read_record(codec.read_json(str(path), "record"), str(path))[0]


def test_what_must_be_exact_is(proofs):
    assert [p.exact for p in proofs] == [True, True]
    talks = [r for p in proofs for r in p.counts if r.one_by_one and r.counter == "hits"]
    assert [(r.predicted, r.measured) for r in talks] == [(5504, 5504), (4032, 4032)]


def test_requests_at_once_are_within_their_tolerance(proofs):
    crowds = [r for r in proofs[1].counts if not r.one_by_one]
    assert all(r.holds for r in crowds)
    assert [r.measured for r in crowds if r.counter == "preemptions"] == [6, 16]


def test_steps_are_as_near_as_wanted(proofs):
    off = errors(proofs[0].steps)
    assert off["predicted"]["points"] == 15
    assert off["predicted"]["near"] >= 13
    assert off["predicted"]["median"] < 0.105
    assert off["calibrated"]["median"] < 0.07


def test_batching_pays_and_the_cache_costs(proofs):
    """Both are in the measured numbers themselves."""
    step = {
        (r.measured.concurrency, r.measured.context_tokens): r.measured.step_s
        for r in proofs[0].steps
    }
    assert step[16, 144] / 16 < step[1, 144] / 8
    assert step[16, 400] - step[16, 144] > 4 * abs(step[1, 400] - step[1, 144])


def test_a_known_prompt_saves_its_prefill(proofs):
    rows = proofs[0].firsts
    assert [r.cached_tokens for r in rows] == [r.measured.cached_tokens for r in rows]
    cold, warm = rows[-2:]
    assert warm.measured.ttft_s < cold.measured.ttft_s / 10
    assert warm.predicted_s < cold.predicted_s / 10
    assert all(abs(r.predicted_s / r.measured.ttft_s - 1) < 0.35 for r in rows)


def test_preempting_costs_what_the_simulator_says(proofs):
    times = {r.workload: r for r in proofs[1].times}
    crowd = times["all at once"]
    assert crowd.predicted_s == pytest.approx(crowd.measured_s, rel=0.105)
    assert crowd.measured_s > 1.4 * crowd.roomy_s
    assert times["conversations"].predicted_s == pytest.approx(38.8, rel=0.15)
    assert "by chance" not in times


NUMBER = re.compile(r"(\d[\d.,]*)")


def tells(text, said):
    """Whether ``text`` says it, its numbers within a tenth or one: predictions move a little with every
    fit of times."""
    parts = NUMBER.split(said)
    pattern = "".join(NUMBER.pattern if i % 2 else re.escape(p) for i, p in enumerate(parts))
    wanted = pytest.approx(_numbers(parts[1::2]), rel=0.1, abs=1)
    return any(_numbers(m.groups()) == wanted for m in re.finditer(pattern, text))


def _numbers(told):
    return [float(n.rstrip(".,").replace(",", "")) for n in told]


def test_the_documentation_tells_these_figures(proofs):
    roomy, small = proofs
    step = {(r.measured.concurrency, r.measured.context_tokens): r for r in roomy.steps}
    one, sixteen, two, long = (step[k] for k in ((1, 144), (16, 144), (2, 144), (2, 2064)))
    counts = {(r.workload, r.counter): r for r in small.counts}
    crowd, chance, hits = (
        counts[k]
        for k in (
            ("all at once", "preemptions"),
            ("by chance", "preemptions"),
            ("by chance", "hits"),
        )
    )
    took = next(r for r in small.times if r.workload == "all at once")
    cold, warm = roomy.firsts[-2:]
    off = errors(roomy.steps)
    predicted, tuned = off["predicted"], off["calibrated"]
    a_token = seconds(sixteen.predicted_s / 16), seconds(sixteen.measured.step_s / 16)
    rows = [
        f"| preemptions, eleven requests at once | {crowd.predicted} | {crowd.measured} |",
        f"| {seconds(took.predicted_s)}, {seconds(took.roomy_s)} | {seconds(took.measured_s)} |",
        f"| {chance.predicted}; {hits.predicted:,} tokens | {chance.measured}; {hits.measured:,} |",
        f"| {seconds(one.predicted_s)}, {seconds(sixteen.predicted_s)} "
        f"| {seconds(one.measured.step_s)}, {seconds(sixteen.measured.step_s)} |",
        f"| {seconds(one.predicted_s)}, {a_token[0]} | {seconds(one.measured.step_s)}, {a_token[1]} |",
        f"| {two.predicted_s * 1e3:.1f} → {seconds(long.predicted_s)} "
        f"| {two.measured.step_s * 1e3:.1f} → {seconds(long.measured.step_s)} |",
        f"| {seconds(cold.predicted_s)}, {seconds(warm.predicted_s)} "
        f"| {seconds(cold.measured.ttft_s)}, {seconds(warm.measured.ttft_s)} |",
        f"median error was {predicted['median'] * 100:.1f} % "
        f"and the largest {predicted['largest'] * 100:.0f} %",
        f"off by {tuned['median'] * 100:.1f} % in the median, {tuned['near']} of 15 within 10 %",
    ]
    text = " ".join((DOCS / "docs" / "evidence.md").read_text("utf-8").split())
    assert [row for row in rows if not tells(text, row)] == []
    worst = max(abs(r.predicted_s / r.measured.ttft_s - 1) for r in roomy.firsts)
    said = (
        f"steps off by {predicted['median'] * 100:.1f} % in the median from the machine's own rates, "
        f"first tokens by up to {worst * 100:.0f} %"
    )
    assert tells((DOCS / "README.md").read_text("utf-8"), said)
