"""Blocks that nobody asks for by their names may have none: the answers are the same."""

from __future__ import annotations

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from kvroom.errors import KvroomError
from kvroom.planner import simulate
from kvroom.planner.plan import work
from kvroom.scenario.scenario import Scenario
from kvroom.workloads.synthetic import of_workload

MODELS = ("llama-3-8b", "gemma-3-27b", "gpt-oss-20b", "falcon-h1-34b")
"""Full attention; windows beside it; state beside it."""
ROUTERS = (
    None, "round-robin", "least-loaded", "prefix", "prefix:stale=50ms", "dynamo", "dynamo:kv_events=0",
    "session", "llm-d",
)  # fmt: skip


def served(scenario: Scenario) -> dict:
    assert scenario.workload is not None
    return simulate.serve(work(scenario), of_workload(scenario.workload)).to_dict()


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_answers_do_not_depend_on_names_that_nobody_asks_for(data):
    draw = data.draw
    routing = draw(st.sampled_from(ROUTERS))
    length = draw(st.integers(40, 900))
    scenario = Scenario.from_dict(
        {
            "model": draw(st.sampled_from(MODELS)),
            "gpu": "H200-SXM",
            "engine_version": "0.33.0",
            "context_tokens": 4096,
            "routing": routing,
            "replicas": 1 if routing is None else draw(st.integers(2, 3)),
            "engine_args": {"num-gpu-blocks-override": draw(st.integers(600, 6000))},
            "workload": {
                "arrivals": draw(
                    st.sampled_from(["poisson:40/s", "burst:40/s:size=20", "closed:24"])
                ),
                "input": f"uniform:1-{length}",
                "output": f"uniform:1-{draw(st.integers(2, 300))}",
                "prefix": f"shared:{draw(st.integers(1, 4))}x{draw(st.integers(1, 400))}",
                "requests": 50,
                "seed": draw(st.integers(0, 99)),
            },
        }
    )
    try:
        short = served(scenario)
    except KvroomError:
        reject()  # so few blocks hold no whole request of this model
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulate, "shared_tokens_of", lambda *_: None)
        assert served(scenario) == short
