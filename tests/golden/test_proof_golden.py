"""A record of a real vLLM 0.32.0 on a CPU, asked by ``make proof`` on a machine that others used too."""

import gzip
from pathlib import Path

import pytest

from kvroom.evidence.proof import errors
from kvroom.faces import prove

RECORD = Path(__file__).with_name("proof_vllm_0.32.0.json.gz")


@pytest.fixture(scope="module")
def proofs(tmp_path_factory):
    path = tmp_path_factory.mktemp("proof") / "record.json"
    path.write_bytes(gzip.decompress(RECORD.read_bytes()))
    return prove.read(str(path))[0]


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
    assert off["predicted"]["near"] == off["predicted"]["points"] == 15
    assert off["predicted"]["median"] < 0.06
    assert off["calibrated"]["median"] < 0.06


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
    assert all(abs(r.predicted_s / r.measured.ttft_s - 1) < 0.2 for r in rows)


def test_preempting_costs_what_the_simulator_says(proofs):
    times = {r.workload: r for r in proofs[1].times}
    crowd = times["all at once"]
    assert crowd.predicted_s == pytest.approx(crowd.measured_s, rel=0.1)
    assert crowd.measured_s > 1.4 * crowd.roomy_s
    assert times["conversations"].predicted_s == pytest.approx(38.8, rel=0.15)
    assert "by chance" not in times
