"""Laws of what is loaded beside a model: it adds up, and it never makes room."""

from __future__ import annotations

from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kvroom.answer.plan import Plan
from kvroom.engines.vllm.adapters import RANKS
from kvroom.planner.plan import plan
from kvroom.scenario.scenario import Scenario

MODELS = ("llama-3-8b", "qwen3.5-9b", "qwen2.5-vl-7b", "deepseek-v3", "gpt-oss-20b")
VLLM = {"slots": "max_loras", "rank": "max_lora_rank"}
SGLANG = {"slots": "max_loras_per_batch", "rank": "max_lora_rank"}
engines = st.sampled_from(("vllm", "sglang"))
models, degrees = st.sampled_from(MODELS), st.sampled_from((1, 2, 4))


def planned(model: str, engine: str, tp: int, **more: Any) -> Plan:
    asked = {"model": model, "gpu": "B200", "tp": tp, "engine": engine, "context_tokens": 16384}
    return plan(Scenario.from_dict({**asked, **more}))


def check_steady(model: str, engine: str) -> None:
    """SGLang rounds a hybrid's slots of state down first: a little less memory may hold more tokens."""
    assume(engine == "vllm" or model != "qwen3.5-9b")


def room(made: Plan) -> float:
    assert sum(a.bytes for a in made.memory.accounts) == made.memory.gpu_bytes
    for a in made.memory.accounts:
        assert a.low_bytes <= a.bytes <= a.high_bytes
    return (made.capacity.engine.max_concurrency or 0.0) if made.capacity.engine else 0.0


@settings(max_examples=40)
@given(
    model=models,
    engine=engines,
    tp=degrees,
    slots=st.integers(1, 32),
    at=st.integers(0, len(RANKS) - 2),
)
def test_an_adapter_never_adds_room(model: str, engine: str, tp: int, slots: int, at: int) -> None:
    check_steady(model, engine)
    names = VLLM if engine == "vllm" else SGLANG
    sizes = []
    for more in (0, 1):
        args = {
            "enable_lora": True,
            names["slots"]: slots + more,
            names["rank"]: RANKS[at + more],
        }
        sizes.append(planned(model, engine, tp, engine_args=args))
    plain = planned(model, engine, tp)
    assert room(plain) >= room(sizes[0]) >= room(sizes[1])
    assert plain.weights == sizes[0].weights == sizes[1].weights


@settings(max_examples=40)
@given(
    model=models,
    engine=engines,
    tp=degrees,
    method=st.sampled_from(("eagle", "eagle3", "draft", "ngram")),
    tokens=st.integers(1, 8),
)
def test_drafting_never_adds_room(
    model: str, engine: str, tp: int, method: str, tokens: int
) -> None:
    check_steady(model, engine)
    asked: dict[str, Any] = {"method": method, "num_speculative_tokens": tokens}
    if method == "draft":
        asked["model"] = "llama-3.2-1b"
    plain = planned(model, engine, tp)
    drafting = planned(model, engine, tp, speculation=asked)
    slack = 0.0 if engine == "vllm" else 1e-3  # SGLang's kernels for it may take smaller pages
    assert room(plain) * (1 + slack) >= room(drafting)
    assert drafting.weights == plain.weights
