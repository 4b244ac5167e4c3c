"""Random loads over recurrent, windowed and chunked layers, step by step as vLLM 0.33.0 served them.

The steps in vllm_0.33.0_steps.json.gz are those of vLLM 0.33.0's own ``Scheduler`` and cache manager (the
release on PyPI, its code driven on a CPU without a model): (step, tokens by request, who was preempted,
blocks in use once it was scheduled). ``prefill_checkpoint`` is the alignment of the state that a prefill
saves within a step (Mamba-2: 1).
"""

import gzip
import json
from pathlib import Path

import pytest

from kvroom.simulator.replay import play
from kvroom.simulator.script import Script

FILE = Path(__file__).parent / "vllm_0.33.0_steps.json.gz"
RUNS = json.loads(gzip.decompress(FILE.read_bytes()))["runs"]


def steps_of(engine, requests):
    script = Script.from_dict({"engine": engine, "requests": requests})
    steps = []

    def scheduled(output, scheduler):
        tokens = sorted([each.request.index, each.tokens] for each in output.scheduled)
        preempted = sorted(request.index for request in output.preempted)
        steps.append([output.step, tokens, preempted, scheduler.blocks_in_use])

    play(script.engine.scheduler(), script.served(), on_scheduled=scheduled)
    return steps


@pytest.mark.parametrize("run", RUNS, ids=[str(n) for n in range(len(RUNS))])
def test_every_step_is_vllms(run):
    assert steps_of(run["engine"], run["requests"]) == run["steps"]


def test_a_state_saved_within_a_step_makes_a_difference():
    """Without it prompts are cut where their state has to be written: most of these runs are others."""
    others = 0
    checkpoints = [r for r in RUNS if any("prefill_checkpoint" in g for g in r["engine"]["groups"])]
    for run in checkpoints:
        groups = [
            {k: v for k, v in group.items() if k != "prefill_checkpoint"}
            for group in run["engine"]["groups"]
        ]
        others += steps_of(run["engine"] | {"groups": groups}, run["requests"]) != run["steps"]
    assert others > len(checkpoints) / 2
