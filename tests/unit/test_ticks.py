"""The clock in whole picoseconds says what the model of step times says."""

import pytest

from kvroom.latency.clock import PAIRS, PS_PER_S, Reach, StepClock, step_clock
from kvroom.latency.step_time import none
from support import asked

DEPLOYMENTS = {
    "dense": {"model": "llama-3-70b", "gpu": "H100-SXM", "tp": 4},
    "experts and latents": {"model": "deepseek-v3", "gpu": "B200", "tp": 8},
    "prediction layers with experts": {
        "model": "deepseek-v3",
        "gpu": "B200",
        "tp": 8,
        "speculation": {"method": "mtp", "num_speculative_tokens": 2},
    },
    "a draft over two stages": {
        "model": "llama-3-70b",
        "gpu": "H100-SXM",
        "tp": 2,
        "pp": 2,
        "speculation": {"method": "draft", "model": "llama-3-8b", "num_speculative_tokens": 4},
    },
    "context ranks": {"model": "deepseek-v3", "gpu": "B200", "tp": 8, "dcp": 8},
    "windows, two stages": {"model": "gemma-3-27b", "gpu": "H100-SXM", "tp": 2, "pp": 2},
}


@pytest.mark.parametrize("keys", DEPLOYMENTS.values(), ids=DEPLOYMENTS)
def test_ticks_are_the_step_model_rounded(keys):
    clock = asked(**keys, engine="vllm").timing.clock
    ticks, work, stages = step_clock(clock), clock.work, keys.get("pp", 1)
    for requests, tokens in ((1, 100), (16, 1000), (256, 30_000)):
        want = clock.step(
            requests / stages, [a.times(requests / stages) for a in clock.decoding(tokens)]
        ).seconds
        got = ticks.ps([(tokens - 1, 1)] * requests) / PS_PER_S
        assert got == pytest.approx(want, rel=1e-4)
    for tokens in (100, 2000, 8000):
        prompt = [a.times(1 / stages) for a in clock.prefilling(tokens)]
        want = clock.step(0, prompt, tokens=tokens / stages, prompts=1 / stages).seconds
        assert ticks.ps([(0, tokens)]) / PS_PER_S == pytest.approx(want, rel=2e-3)
    assert none(work)


def test_a_step_is_the_sum_of_what_is_in_it():
    reaches = (
        Reach(context_ps=7, pairs_ps=3 * PAIRS),
        Reach(context_ps=5, pairs_ps=2 * PAIRS, tokens=10),
    )
    clock = StepClock(step_ps=100, request_ps=10, token_ps=2, prompt_ps=1, reaches=reaches)
    assert clock.ps([(19, 1)]) == 100 + 10 + 7 * 20 + 5 * 10
    # Pairs: 1 + 2 + 3 within both reaches.
    assert clock.ps([(0, 3)]) == 100 + 3 * 2 + 1 + 6 * 3 + 6 * 2
    # Tokens 10, 11, 12 look back on 10 each within the shorter reach.
    assert clock.ps([(9, 3)]) == 100 + 3 * 2 + 1 + 33 * 3 + 30 * 2
    assert clock.ps([(19, 1), (0, 3)]) == 100 + 10 + 190 + 6 + 1 + 30


def test_chunks_cost_what_the_whole_does_in_pairs():
    reach = Reach(context_ps=0, pairs_ps=PAIRS, tokens=5)
    assert sum(reach.pairs(start, 4) for start in (0, 4, 8)) == reach.pairs(0, 12)
