"""Scripts: how they are read, what is refused, dropped and counted, and that all of them end."""

import json

import pytest
from click.testing import CliRunner

from kvroom.errors import KvroomError
from kvroom.kvcache.request import RequestStatus
from kvroom.simulator.replay import play
from kvroom.simulator.script import Script
from kvroom.ui.cli.main import main


def engine(**changes):
    return {
        "num_gpu_blocks": 9,
        "groups": [{"type": "full", "block_size": 4}],
        "max_num_batched_tokens": 16,
        "max_num_seqs": 8,
        "enable_prefix_caching": False,
        "max_model_len": 64,
    } | changes


def request(prompt, output, at=0, first=100):
    return {"arrival_step": at, "prompt": [[first, prompt]], "output": [[first + prompt, output]]}


def script(*requests, **changes):
    return {"engine": engine(**changes), "requests": list(requests)}


def played(*requests, **changes):
    return Script.from_dict(script(*requests, **changes)).play()


def refused(value):
    with pytest.raises(KvroomError) as told:
        Script.from_dict(value)
    return told.value


def test_no_requests_no_steps():
    nothing = played()
    assert (nothing.total_steps, nothing.totals.completed) == (0, 0)


def test_a_prompt_at_the_limit_is_dropped_and_counted():
    run = played(request(64, 1), request(4, 2), max_num_batched_tokens=64, num_gpu_blocks=99)
    assert [r.dropped for r in run.requests] == [True, False]
    assert run.requests[0].first_scheduled_step is None
    assert (run.totals.dropped, run.totals.completed) == (1, 1)


def test_an_output_ends_at_the_limit_and_counts_as_completed():
    run = played(request(60, 50), num_gpu_blocks=99)
    assert run.requests[0].finish_step == 3 + 3  # four passes of prompt, then up to 64 tokens
    assert (run.totals.completed, run.totals.dropped) == (1, 0)


@pytest.mark.parametrize("whole", [True, False])
def test_a_prompt_larger_than_the_pool_is_dropped_before_it_waits(whole):
    run = played(request(33, 2), request(4, 2), scheduler_reserve_full_isl=whole)
    assert [r.dropped for r in run.requests] == [True, False]
    assert run.requests[1].first_scheduled_step == 0


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("ahead", [True, False])
@pytest.mark.parametrize("caching", [True, False])
def test_a_request_that_outgrows_the_pool_is_dropped_and_the_others_go_on(whole, ahead, caching):
    run = played(
        request(30, 20),
        request(4, 2, at=1, first=500),
        scheduler_reserve_full_isl=whole,
        async_scheduling=ahead,
        enable_prefix_caching=caching,
    )
    assert [r.dropped for r in run.requests] == [True, False]
    assert run.requests[1].finish_step is not None


def test_admission_that_the_watermark_forbids_waits_for_an_empty_engine():
    run = played(request(4, 6), request(4, 2, at=1), watermark=1.0)
    assert run.requests[1].first_scheduled_step > run.requests[0].finish_step


def test_a_run_that_takes_too_many_steps_is_refused():
    asked = Script.from_dict(script(request(4, 30), num_gpu_blocks=99))
    with pytest.raises(KvroomError, match="29 steps are not enough"):
        asked.play(max_steps=29)
    assert asked.play(max_steps=30).total_steps == 30


def test_states_at_the_end():
    asked = Script.from_dict(script(request(8, 4), request(80, 4), request(12, 9)))
    sequences = asked.served()
    rules = asked.engine.scheduler()
    play(rules, sequences)
    assert [s.status for s in sequences] == [
        RequestStatus.FINISHED,
        RequestStatus.DROPPED,
        RequestStatus.FINISHED,
    ]
    assert (rules.blocks_in_use, rules.running_count, rules.waiting_count) == (0, 0, 0)


def test_arrivals_may_stand_in_any_order():
    run = played(request(4, 2, at=9), request(4, 2, at=0))
    assert [r.first_scheduled_step for r in run.requests] == [9, 0]


def test_recorded_files_are_scripts():
    whole = script(request(4, 2)) | {"name": "x", "vllm": "0.33.0", "expected": {}}
    assert Script.from_dict(whole).play().totals.completed == 1


BAD = [
    ({}, "script.engine", "Add it to script."),
    ([], "script", "Write it in braces: {…}."),
    (script() | {"request": []}, "script.request", "Did you mean requests?"),
    (script(max_num_seq=3), "engine.max_num_seq", "Did you mean max_num_seqs"),
    (script(num_gpu_blocks=0), "engine.num_gpu_blocks", "from 2 to"),
    (script(num_gpu_blocks=1), "engine.num_gpu_blocks", "from 2 to"),
    (script(num_gpu_blocks="many"), "engine.num_gpu_blocks", "whole number"),
    (script(max_num_batched_tokens=-1), "engine.max_num_batched_tokens", "from 1 to"),
    (script(max_num_seqs=2.5), "engine.max_num_seqs", "whole number"),
    (script(max_model_len=10**12), "engine.max_model_len", "from 2 to"),
    (script(max_model_len=None), "engine.max_model_len", "whole number"),
    (script(enable_prefix_caching=1), "engine.enable_prefix_caching", "Write true or false."),
    (script(watermark=1.5), "engine.watermark", "from 0"),
    (script(policy="fcsf"), "engine.policy", "Did you mean fcfs?"),
    (script(policy=[]), "engine.policy", "Write fcfs or priority."),
    (script(groups=[]), "engine.groups", "from 1 to"),
    (script(groups={}), "engine.groups", "Write it in brackets: […]."),
    (
        script(groups=[{"type": "sliding", "block_size": 4}]),
        "engine.groups[0].type",
        "Did you mean sliding_window?",
    ),
    (script(groups=[{"type": ["full"]}]), "engine.groups[0].type", "full"),
    (
        script(groups=[{"type": "sliding_window", "block_size": 4}]),
        "engine.groups[0].window",
        "Add it",
    ),
    (
        script(groups=[{"type": "full", "block_size": 4, "window": 8}]),
        "engine.groups[0].window",
        "Known are type, block_size.",
    ),
    (script(groups=[{"type": "full", "block_size": 0}]), "engine.groups[0].block_size", "from 1"),
    (
        script(enable_chunked_prefill=False),
        "engine.max_num_batched_tokens",
        "Raise it to max_model_len or set enable_chunked_prefill to true.",
    ),
    (
        script(prefix_cache_retention_interval=8),
        "engine.prefix_cache_retention_interval",
        "Leave it out: it is about sliding_window and mamba groups.",
    ),
    (
        script(
            groups=[{"type": "sliding_window", "block_size": 4, "window": 8}],
            prefix_cache_retention_interval=6,
        ),
        "engine.prefix_cache_retention_interval",
        "Write a multiple of 4, the groups' common block size.",
    ),
    (
        script(
            groups=[
                {"type": "full", "block_size": 8},
                {"type": "chunked_local", "block_size": 4, "chunk": 8},
            ],
            enable_prefix_caching=True,
        ),
        "engine.groups[1].block_size",
        "Give all groups one block_size",
    ),
    (script("x"), "requests[0]", "Write it in braces: {…}."),
    (script({"arrival_step": 0, "prompt": [[1, 2]]}), "requests[0].output", "Add it"),
    (script(request(4, 2, at=-1)), "requests[0].arrival_step", "from 0"),
    (script(request(4, 2), request(-4, 2)), "requests[1].prompt[0]", "from 1"),
    (script(request(4, 0)), "requests[0].output[0]", "from 1"),
    (script(request(4, 2, first=-3)), "requests[0].prompt[0]", "from 0"),
    (script(request(4, 2) | {"output": []}), "requests[0].output", "Write at least one run"),
    (
        script(request(4, 2) | {"prompt": [5]}),
        "requests[0].prompt[0]",
        "Write [first id, how many]",
    ),
    (script(request(4, 2) | {"priority": True}), "requests[0].priority", "whole number"),
    (script(request(4, 2) | {"priorty": 1}), "requests[0].priorty", "Did you mean priority"),
]


@pytest.mark.parametrize(("value", "field", "fix"), BAD, ids=[field for _, field, _ in BAD])
def test_a_bad_script_is_told_by_its_key(value, field, fix):
    error = refused(value)
    assert error.field == field
    assert fix in error.fix


def run_cli(path, *flags):
    return CliRunner().invoke(main, ["simulate", "--script", str(path), *flags])


def test_the_command_prints_json(tmp_path):
    path = tmp_path / "script.json"
    path.write_text(json.dumps(script(request(20, 3), request(80, 1))))
    done = run_cli(path, "--json")
    assert done.exit_code == 0
    assert json.loads(done.output) == {
        "total_steps": 4,
        "totals": {
            "scheduled_tokens": 22,
            "preemptions": 0,
            "cached_tokens_first": 0,
            "cached_tokens_all": 0,
            "peak_blocks_in_use": 6,
            "peak_running": 1,
            "peak_waiting": 0,
            "completed": 1,
            "dropped": 1,
        },
        "requests": [
            {
                "first_scheduled_step": 0,
                "first_token_step": 1,
                "finish_step": 3,
                "cached_tokens_first": 0,
                "cached_tokens_all": 0,
                "preemptions": 0,
                "dropped": False,
            },
            {
                "first_scheduled_step": None,
                "first_token_step": None,
                "finish_step": None,
                "cached_tokens_first": 0,
                "cached_tokens_all": 0,
                "preemptions": 0,
                "dropped": True,
            },
        ],
    }


def test_the_command_prints_a_summary(tmp_path):
    path = tmp_path / "script.json"
    path.write_text(json.dumps(script(request(20, 3), request(80, 1))))
    done = run_cli(path)
    assert done.exit_code == 0
    assert "1 completed, 1 dropped (they can never be served)" in done.output


def test_the_command_tells_what_is_wrong(tmp_path):
    path = tmp_path / "script.json"
    path.write_text(json.dumps(script(num_gpu_blocks=0)))
    done = run_cli(path, "--json")
    assert done.exit_code == 2
    assert json.loads(done.output)["error"]["field"] == "engine.num_gpu_blocks"
    missing = run_cli(tmp_path / "none.json")
    assert missing.exit_code == 2
    assert "is not a file" in missing.output
