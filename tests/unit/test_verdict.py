"""The verdict: its status, the lengths that it counts, and what launch and the times make of it."""

import pytest

from kvroom.answer.verdict import Reason
from kvroom.errors import StartRefused
from kvroom.launchers.engine_command import engine_command
from kvroom.planner.plan import plan, work
from kvroom.scenario.scenario import Scenario

LENGTHS = {"input_tokens": 1500, "output_tokens": 300}


def asked(**keys):
    base = {"model": "llama-3-70b", "gpu": "H100-SXM", "tp": 4, "context_tokens": 8192}
    return Scenario.from_dict({**base, "engine_version": "0.33.0", **keys})


def test_it_fits_and_gives_no_reason():
    verdict = plan(asked()).verdict
    assert (verdict.status, verdict.fits, verdict.starts, verdict.reasons) == (
        "fits", True, True, (),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("keys", "status", "rule"),
    [
        ({"concurrency": 5000, "engine_args": {"max_num_seqs": 5000}}, "full", "kv_memory"),
        ({"concurrency": 20, "engine_args": {"max_num_seqs": 10}}, "full", "max_num_seqs"),
        ({"tp": 1}, "would_not_start", "weights"),
        (
            {"model": "llama-3.1-70b", "tp": 2, "context_tokens": "128K"},
            "would_not_start",
            "kv_memory",
        ),
        ({"context_tokens": "16K"}, "would_not_start", "context_limit"),
    ],
)
def test_a_status_has_its_reason(keys, status, rule):
    verdict = plan(asked(**keys)).verdict
    assert (verdict.status, verdict.fits) == (status, False)
    (reason,) = verdict.reasons
    assert isinstance(reason, Reason)
    assert reason.rule == rule
    assert reason.message in verdict.sentence or status == "would_not_start"
    assert verdict.starts is (status == "full")


def test_told_lengths_are_those_of_verdict_step_and_price():
    """Requests of 1,500 + 300 tokens hold less than a fifth of 8K: as many more have room, and a step
    reads what they hold half way through their answers."""
    many = {"engine_args": {"max_num_seqs": 5000}}
    users = work(asked(**many)).held + 20
    whole, told = (plan(asked(concurrency=users, workload=w, **many)) for w in (None, LENGTHS))
    assert not whole.verdict.fits
    assert told.verdict.fits
    words = f" at once, where {users:,} are asked for: requests of 1,500 tokens in and 300 out"
    assert words in told.verdict.sentence
    assert told.step.batch == users
    assert told.step.request_tokens == pytest.approx(1650, rel=0.02)
    assert told.step.bytes.kv == users * told.step.request_tokens * told.kv.bytes_per_token
    assert told.capacity.expected.requests > users


def test_a_step_never_holds_more_than_the_cache_unless_it_is_asked():
    many = {"concurrency": 5000, "engine_args": {"max_num_seqs": 5000}}
    held, over = plan(asked(**many)), plan(asked(**many, allow_overcommit=True))
    assert held.step.bytes.kv <= 4 * held.memory.kv_bytes < over.step.bytes.kv
    assert over.step.batch == 5000


def test_times_of_what_does_not_start_are_answered_where_it_is_asked():
    none, some = plan(asked(tp=1)), plan(asked(tp=1, allow_overcommit=True))
    assert none.step.seconds is None
    assert some.step.seconds > 0
    assert none.verdict == some.verdict


def test_launch_hands_out_nothing_that_the_engine_would_refuse():
    with pytest.raises(StartRefused, match="would not start") as refused:
        engine_command(work(asked(tp=1)))
    assert refused.value.exit_status == 3
    assert "would hold them" in refused.value.fix
    assert engine_command(work(asked())).argv[:2] == ["vllm", "serve"]


def test_measured_weights_keep_their_proportion_in_what_would_hold_them() -> None:
    measured = {"weights": 100 * 10**9}
    said = plan(asked(known_bytes=measured)).verdict.reasons[0]
    assert said.rule == "weights"
    assert said.fix.startswith("8 of them (tp 8)")
    narrow = plan(asked(tp=1, known_bytes={"weights": 500 * 10**9})).verdict.reasons[0]
    assert "fp8" not in narrow.fix
    assert "tp 8" in narrow.fix
