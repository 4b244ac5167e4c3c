"""Small scripts, one a rule, against what vLLM 0.33.0's own scheduler did with them, step by step.

The figures in vllm_scheduler.json are those of vLLM 0.33.0's ``Scheduler`` and ``AsyncScheduler``
(the release on PyPI), fed with these requests and sampled tokens; no model was run.
"""

import json
from pathlib import Path

import pytest

from kvroom.simulator.replay import play
from kvroom.simulator.script import Script

RUNS = json.loads((Path(__file__).parent / "vllm_scheduler.json").read_text())
SERVED = (
    "first_scheduled_step",
    "first_token_step",
    "finish_step",
    "cached_tokens_first",
    "cached_tokens_all",
    "preemptions",
)


@pytest.mark.parametrize("run", RUNS, ids=[run["name"] for run in RUNS])
def test_every_step_is_vllms(run):
    script = Script.from_dict({"engine": run["engine"], "requests": run["requests"]})
    steps = []

    def scheduled(made, rules):
        steps.append(
            [
                made.step,
                [[work.request.index, work.tokens] for work in made.scheduled],
                # vLLM lists those that came back after the new ones
                [
                    [admitted.request.index, admitted.cached_tokens]
                    for admitted in sorted(made.admitted, key=lambda a: a.resumed)
                ],
                [sequence.index for sequence in made.preempted],
                [],
                rules.running_count,
                rules.waiting_count,
                rules.blocks_in_use,
                rules.cache.pool.cached,
                rules.blocks_in_use,
            ]
        )

    def delivered(done, finished, rules):
        steps[-1][4] += [sequence.index for sequence in finished]
        steps[-1][-1] = rules.blocks_in_use

    played = play(
        script.engine.scheduler(),
        script.served(),
        on_scheduled=scheduled,
        on_delivered=delivered,
    )
    assert steps == run["steps"]
    assert [[getattr(r, name) for name in SERVED] for r in played.requests] == run["served"]
    assert played.total_steps == len(run["steps"])
    assert played.totals.completed == len(run["requests"])
