"""Sessions told by prompts that go on from each other, and recordings as traffic."""

import json
from array import array
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from kvroom import api
from kvroom.workloads.continued import MOST_BRANCHES, with_sessions
from kvroom.workloads.requests import HashIds, Request
from kvroom.workloads.traces.pool import pool_of

S = 10**12
WATCHED = Path(__file__).parents[2] / "docs/examples/watched.jsonl"


def request(at, ids, answer=5):
    return Request(at * S, len(ids) * 16 + 3, answer, HashIds(array("Q", ids), 16))


def chats(count, turns, common=3):
    """``count`` chats, all beginning alike, turn by turn."""
    rows, fresh = [], 1000
    held = {chat: list(range(common)) for chat in range(count)}
    for turn in range(turns):
        for chat in range(count):
            held[chat] = [*held[chat], fresh, fresh + 1]
            fresh += 2
            rows.append((chat, request(turn * count + chat, held[chat])))
    return rows


@given(st.integers(1, 9), st.integers(1, 6))
def test_every_chat_is_found_again(count, turns):
    rows = chats(count, turns)
    told, several = with_sessions(row for _, row in rows)
    names = {}
    for (chat, _), found in zip(rows, told, strict=True):
        if turns > 1:
            assert found.session is not None
            assert names.setdefault(chat, found.session) == found.session
    assert len(set(names.values())) == len(names)
    assert several == (count if turns > 1 else 0)


def test_what_all_begin_with_is_no_turn_of_theirs():
    alone = request(0, [0, 1, 2])
    rows = [alone, *(row for _, row in chats(MOST_BRANCHES + 1, 2))]
    told, several = with_sessions(rows)
    assert several == MOST_BRANCHES + 1
    assert told[0].session is None


def test_a_fork_stays_in_its_session():
    rows = [
        request(0, [1, 2]),
        request(1, [1, 2, 3]),
        request(2, [1, 2, 4]),
        request(3, [1, 2, 4, 5]),
    ]
    told, several = with_sessions(rows)
    assert {row.session for row in told} == {0}
    assert several == 1


def test_a_log_that_names_its_sessions_is_left_alone():
    rows = [row._replace(session="a") for _, row in chats(2, 2)]
    assert with_sessions(rows) == (rows, 0)


def test_a_pool_says_how_sessions_were_told(tmp_path):
    path = tmp_path / "mooncake.jsonl"
    lines = [
        {"timestamp": row.arrival_ps // 10**9, "input_length": row.input_tokens, "output_length": 5,
         "hash_ids": list(row.prefix.ids)}
        for _, row in chats(5, 4)
    ]  # fmt: skip
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = api.simulate(
        "llama-3.1-8b", "H100-SXM", trace=path, sessions=3, hash_tokens=16, engine_version="0.33.0"
    )
    assert any("5 of several requests are told by prompts" in w for w in found.figures["warnings"])
    single = pool_of([row for _, row in chats(5, 1)], 2)
    assert "each request is one" in single.notes[0]


def test_what_if_on_a_recording():
    """Last week's traffic: the same recording served, held against objectives, and searched with."""
    keys = {"context_tokens": "8K", "engine_version": "0.33.0"}
    served = api.simulate("llama-3.1-8b", "L4", trace=WATCHED, slo="ttft_p95=5s", **keys).figures
    found = api.search(
        "llama-3.1-8b", trace=WATCHED, slo="ttft_p95=5s", simulate=1, **keys,
        space={"gpus": ["L4"], "counts": [1], "kv_dtypes": ["auto"], "weight_dtypes": ["own"],
               "tiers": ["none"]},
    )  # fmt: skip
    assert found.answers[0].trial["slo"]["ttft_p95"] == served["slo"]["ttft_p95"]["value_s"]
    held = api.agents(
        WATCHED, "llama-3.1-8b", "L4", slo="ttft_p95=5s,tpot_p95=200ms", seeds=1, only=(), most=4, **keys
    )  # fmt: skip
    assert held.base.sessions > 0
    assert any("names no sessions" in warning for warning in held.warnings)
