"""Several models on one node: seats, shares, sleep, slices, bursts, the cheapest node."""

import pytest

import kvroom
from kvroom.errors import KvroomError
from kvroom.hardware.mig import profiles
from kvroom.hardware.reader import resolve

CHAT = {"model": "llama-3.1-8b", "context": "8K", "users": 8, "version": "0.33.0"}
SMALL = {"model": "qwen3-4b", "context": "8K", "users": 4, "version": "0.33.0"}
LOADED = {"input": 1000, "output": 100}


def packed(*rows, gpu="H100-SXM", simulate=False, **keys):
    return kvroom.pack(list(rows), gpu, simulate=simulate, **keys)


def test_each_starts_by_its_own_rule_with_what_is_free_then():
    found = packed(CHAT, SMALL)
    assert found.fits
    before = 0
    for one in found.rows_of:
        trial = one.seat.trial
        assert one.share * trial.answer.gpu_bytes <= one.free_bytes
        assert one.free_bytes == trial.answer.gpu_bytes - before - trial.answer.outside_bytes[0]
        assert trial.requests >= trial.needed
        before += trial.held_bytes
    assert before <= found.card_bytes[0]


def test_shares_that_ask_for_more_than_is_free_are_refused_as_vllm_refuses():
    found = packed(CHAT | {"share": 0.6}, SMALL | {"share": 0.5})
    assert not found.fits
    first, second = found.rows_of
    assert first.seat.fits and not second.seat.fits
    assert "gpu_memory_utilization" in found.sentence


def test_sleepers_share_one_place_and_keep_what_sleep_keeps():
    rows = [
        {
            "model": "qwen3-14b",
            "context": "8K",
            "users": 4,
            "sleep": level,
            "name": f"level {level}",
        }
        for level in (1, 2)
    ]
    found = packed(*rows)
    assert found.fits
    one, two = found.rows_of
    for each in found.rows_of:
        assert each.sleep.freed_bytes + each.sleep.stays_bytes == each.seat.trial.held_bytes
    together = one.seat.trial.held_bytes + two.seat.trial.held_bytes
    assert together > found.card_bytes[0] >= found.taken_bytes[0]
    weights = next(a.bytes for a in one.seat.trial.answer.accounts if a.name == "weights")
    assert one.sleep.host_bytes == weights and two.sleep.host_bytes == 0
    assert one.sleep.wake_s < two.sleep.wake_s
    short = packed(*rows, host_memory_bytes="16GiB")
    assert not short.fits and "host memory" in short.sentence


def test_a_pinned_model_stays_there_and_others_take_the_empty_card():
    found = packed(CHAT | {"gpus": [1]}, SMALL, gpu="H100-SXM:2")
    assert [one.seat.cards for one in found.rows_of] == [(1,), (0,)]


def test_a_model_too_large_for_one_card_takes_two():
    found = packed({"model": "llama-3.3-70b", "context": "8K", "users": 2}, gpu="H100-SXM:4")
    assert found.fits and found.rows_of[0].seat.cards in ((0, 1), (0, 1, 2, 3))


def test_other_engines_start_beside_each_other():
    found = packed(
        SMALL,
        {"model": "qwen3-8b", "context": "8K", "users": 2, "engine": "sglang"},
        {"model": "qwen3-0.6b", "context": "4K", "users": 1, "engine": "llama.cpp"},
    )
    assert found.fits
    flags = [one.started_with.split(" ")[0] for one in found.rows_of]
    assert flags == ["--gpu-memory-utilization", "--mem-fraction-static", ""]


def test_slices_are_cards_and_add_up_to_no_more_than_one():
    card = resolve("H100-SXM")
    for profile in profiles(card):
        part = resolve(f"H100-SXM:mig={profile.name}")
        assert part.engine_bytes == int(card.engine_bytes * profile.memory)
        assert part.memory_bytes_per_s == card.memory_bytes_per_s * profile.memory
        assert profile.most * profile.memory <= 1 and profile.most * profile.compute <= 1
    found = packed(CHAT, SMALL, gpu="H100-SXM:mig=3g.40gb")
    assert found.fits and len(found.card_bytes) == 2
    assert {one.seat.cards for one in found.rows_of} == {(0,), (1,)}
    with pytest.raises(KvroomError, match=r"3g\.40gb\+3g\.40gb\+1g\.20gb"):
        packed(CHAT, gpu="H100-SXM:mig=3g.40gb+3g.40gb+1g.20gb")


def test_turns_slow_who_shares_a_card_and_nobody_else():
    found = packed(CHAT | LOADED, SMALL | LOADED, simulate=True)
    for one in found.rows_of:
        times = one.times
        assert times.beside.tpot_mean_s > times.alone.tpot_mean_s
        assert 1 < times.beside.slower <= 2
        assert all(b.tpot_mean_s >= times.alone.tpot_mean_s for b in times.bursts.values())
    apart = packed(CHAT | LOADED, SMALL | LOADED, gpu="H100-SXM:2", simulate=True)
    assert all(one.times.beside == one.times.alone for one in apart.rows_of)


def test_the_cheapest_node_that_holds_them():
    found = kvroom.pack([CHAT, SMALL], gpus=["H100-SXM", "L4:1", "L40S"], simulate=False)
    assert found.fits and found.node.name == "L40S:1"
    assert ("L4:1", False) in [(name, fits) for name, _, fits in found.others]
    dear = kvroom.pack(
        [CHAT, SMALL], gpus=["H100-SXM", "L40S"], simulate=False, prices={"L40S": 100.0}
    )
    assert dear.node.name == "H100-SXM:1"


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ({}, "models[0].model"),
        ({"model": "qwen3-4b", "contxt": 1}, "models[0]"),
        ({"model": "qwen3-4b", "sleep": 3}, "models[0].sleep"),
        ({"model": "qwen3-4b", "sleep": 1, "engine": "sglang"}, "models[0].sleep"),
        ({"model": "qwen3-4b", "engine": "arithmetic"}, "models[0].engine"),
        ({"model": "qwen3-4b", "gpus": [3]}, "models[0].gpus"),
        ({"model": "qwen3-4b", "users": 1, "rate": 2}, "models[0].rate"),
        ({"model": "no-such-model"}, "models[0].model"),
        (
            {"model": "qwen3-4b", "share": 0.3, "engine_args": {"gpu_memory_utilization": 0.4}},
            "models[0].share",
        ),
    ],
)
def test_what_is_wrong_is_told_by_entry_key_and_fix(row, field):
    with pytest.raises(KvroomError) as refused:
        packed(row)
    assert refused.value.field == field and refused.value.fix
