"""One GPU's ledger and the ceiling: who binds, what is left, how long the longest request is."""

import pytest

from kvroom.units import longest_fit
from support import ask, asked

CARD = {"name": "card", "memory_bytes": 10**11, "memory_bytes_per_s": 1e12}
ENGINES = ["arithmetic", "vllm", "sglang", "llama.cpp"]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("model", ["llama-3-8b", "llama-3.1-405b", "qwen3-next-80b-a3b"])
def test_accounts_add_up(engine, model):
    plan = ask(model, "H100-SXM", engine=engine, context_tokens=8192)
    accounts = {a.name: a for a in plan.memory.accounts}
    assert list(accounts) == ["weights", "activations", "runtime", "graphs", "kv", "unused"]
    assert sum(a.bytes for a in accounts.values()) == plan.memory.gpu_bytes
    assert accounts["kv"].bytes == plan.memory.kv_bytes
    assert all(a.low_bytes <= a.bytes <= a.high_bytes for a in accounts.values())
    assert {a.source for a in accounts.values()} <= {"config", "engine rule", "assumed"}


def test_the_ceiling_is_what_is_left_over_what_one_request_takes():
    plan = ask("llama-3-8b", CARD, context_tokens=8192)
    left = 10**11 - plan.weights.bytes
    assert plan.capacity.ceiling.exact == pytest.approx(left / plan.kv.bytes_per_request)
    assert plan.capacity.ceiling.requests == left // plan.kv.bytes_per_request


def test_replicas_multiply_whole_requests():
    one, three = (ask("llama-3-8b", CARD, dp=n, context_tokens=8192) for n in (1, 3))
    assert three.capacity.ceiling.requests == 3 * one.capacity.ceiling.requests
    assert three.capacity.ceiling.exact == pytest.approx(3 * one.capacity.ceiling.exact)
    assert three.capacity.engine.max_concurrency == one.capacity.engine.max_concurrency


def test_the_stage_with_least_room_binds():
    w = asked("llama-3-8b", CARD, pp=4, context_tokens=8192)
    assert w.answer.rank.weight_bytes == max(r.weight_bytes for r in w.deployment.ranks)
    held = [(10**11 - r.weight_bytes) / w.deployment.request_bytes(r) for r in w.deployment.ranks]
    assert w.plan.capacity.ceiling.exact == pytest.approx(min(held))


def test_weights_that_do_not_fit_leave_no_room_and_say_what_is_missing():
    plan = ask("llama-3-70b", "80GB", context_tokens=8192)
    missing = next(a.bytes for a in plan.memory.accounts if a.name == "unused")
    assert missing == 80 * 10**9 - plan.weights.bytes < 0
    assert plan.capacity.ceiling.requests == 0


@pytest.mark.parametrize("model", ["llama-3-8b", "gemma-3-27b", "qwen3-next-80b-a3b"])
def test_the_longest_request_fits_and_one_token_more_does_not(model):
    card = {**CARD, "memory_bytes": 180 * 10**9}
    longest = ask(model, card).capacity.engine.max_context_tokens
    assert ask(model, card, context_tokens=longest).capacity.ceiling.requests == 1
    assert ask(model, card, context_tokens=longest + 1).capacity.ceiling.requests == 0


def test_state_alone_makes_no_length_too_long():
    plan = ask("mamba-codestral-7b", "80GB", context_tokens=8192)
    assert plan.kv.bytes_per_token == 0
    assert plan.capacity.engine.max_context_tokens is None
    assert plan.kv.bytes_per_request == plan.kv.state_bytes_per_request > 0


def test_measured_bytes_take_the_place_of_estimates():
    known = {"visible": "79GiB", "weights": "20GiB", "graphs": 0, "runtime": "1GiB"}
    plan = ask("llama-3-8b", "H100", engine="vllm", known_bytes=known)
    accounts = {a.name: a for a in plan.memory.accounts}
    assert plan.memory.gpu_bytes == 79 * 2**30
    assert accounts["weights"].bytes == 20 * 2**30
    assert accounts["graphs"].bytes == accounts["graphs"].high_bytes == 0
    assert accounts["runtime"].source == "measured"
    assert accounts["activations"].source == "engine rule"


@pytest.mark.parametrize("most", [0, 1, 7, 99, 100])
def test_longest_fit(most):
    assert longest_fit(lambda n: n <= most, 100) == most
