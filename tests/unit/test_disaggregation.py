"""Handing over: what crosses takes as long as it should, and whoever has no room holds the others up."""

from dataclasses import replace

import pytest

from fleets import S, queue, split_fleet
from kvroom.simulator.replicas import Failures

BYTE_PS = 1000  # at 1e9 bytes a second; a token is a byte


def served(requests, *, blocks=1000, prefill=1, decode=1, sharing=False, **more):
    """Serve (arrival, prompt, output, names) and give the fleet and its ledger."""
    case = queue(64)
    case.engine = replace(case.engine, num_gpu_blocks=blocks + 1, enable_prefix_caching=sharing)
    case.requests = [(at, p, o, n, len(n), 0) for at, p, o, n in requests]
    fleet, out = split_fleet(case, prefill, decode, rate=1e9, **more)
    fleet.serve(case.lives())
    return fleet, out


def test_one_request_waits_for_its_bytes():
    fleet, out = served([(0, 32, 3, [])], latency_s=5e-9)
    assert out.first_ps[0] == S
    assert out.done_ps[0] == S + 32 * BYTE_PS + 5000 + 2 * S
    assert out.samples() == [S, 32 * BYTE_PS + 5000 + S]
    assert fleet.links.dict(1.0) | {"link_busy": 0} == {
        "count": 1,
        "bytes": 32,
        "mean_s": (32 * BYTE_PS + 5000) / 1e12,
        "link_bytes_per_s": 1e9,
        "link_busy": 0,
    }


def test_an_answer_of_one_token_does_not_cross():
    fleet, out = served([(0, 32, 1, [])])
    assert out.done_ps[0] == out.first_ps[0] == S
    assert fleet.links.transfers == 0


def test_a_link_carries_one_at_a_time():
    _, out = served([(0, 32, 2, []), (0, 64, 2, [])])
    assert out.done_ps[0] == S + 32 * BYTE_PS + S
    assert out.done_ps[1] == S + 96 * BYTE_PS + S
    _, apart = served([(0, 32, 2, []), (0, 64, 2, [])], prefill=2, decode=2)
    assert apart.done_ps[1] == S + 64 * BYTE_PS + S
    # Two senders to one receiver: its link is the queue.
    _, joined = served([(0, 32, 2, []), (0, 64, 2, [])], prefill=2, decode=1)
    assert joined.done_ps[1] == S + 96 * BYTE_PS + S


def test_layers_cross_while_the_prompt_is_computed():
    # 32 bytes take 32 S; four layers; the prompt takes S: of 32 S one is hidden.
    _, out = served([(0, 32, 2, [])], layerwise=True)
    assert out.done_ps[0] == S + 31 * BYTE_PS + S
    # One byte takes S, all of it hidden but the last layer.
    _, out = served([(0, 1, 2, [])], layerwise=True)
    assert out.done_ps[0] == S + BYTE_PS // 4 + S


def test_what_the_receiver_has_is_not_sent():
    names = [1, 2, 3]
    fleet, _ = served([(0, 48, 2, names), (10**6, 48, 2, names)], sharing=True)
    # The second finds two blocks: the last known token but one is in the third.
    assert fleet.links.moved_bytes == 48 + (48 - 48 // 16 * 16)
    assert fleet.links.transfers == 2


def test_a_sender_without_room_waits_for_the_link():
    """Its blocks hold one prompt: the next begins when the first has crossed."""
    _, out = served([(0, 32, 2, []), (0, 32, 2, [])], blocks=3)
    assert out.first_ps[1] == S + 32 * BYTE_PS + S
    _, roomy = served([(0, 32, 2, []), (0, 32, 2, [])], blocks=100)
    assert roomy.first_ps[1] == S


def test_a_receiver_without_room_holds_the_senders_blocks():
    """The receiver holds one request; the second crosses when that is through."""
    _, out = served([(0, 32, 10, []), (0, 32, 10, [])], blocks=4)
    first = out.done_ps[0]
    assert first == S + 32 * BYTE_PS + 9 * S
    assert out.done_ps[1] >= first + 32 * BYTE_PS + 9 * S


def test_a_dead_senders_cache_is_computed_anew():
    """It dies while its blocks wait: the receiver computes the prompt itself, and nothing crosses."""
    requests = [(0, 32, 30, []), (0, 32, 5, [])]
    calm, _ = served(requests, blocks=4)
    assert calm.links.transfers == 2
    died = Failures(at=[(S + 40 * BYTE_PS, 0)])
    fleet, out = served(requests, blocks=4, failures=died)
    assert fleet.links.transfers == 1
    assert len(out.done_ps) == 2
    assert fleet.retries == 0


def test_a_dead_receivers_requests_begin_again_at_the_first_pool():
    fleet, out = served(
        [(0, 32, 30, [])],
        decode=2,
        failures=Failures(at=[(S + 32 * BYTE_PS + 10 * S, 1)], repair_ps=10**6),
    )
    assert fleet.retries == 1
    assert [r.requests for r in fleet.replicas] == [2, 1, 1]
    assert fleet.links.transfers == 2
    # Eleven of its tokens are there when the step that ran is over; they are computed with the prompt.
    assert fleet.links.moved_bytes > 64
    assert out.output_tokens == 30
    assert out.first_ps[0] == S


@pytest.mark.parametrize("layerwise", [False, True])
def test_a_faster_link_answers_no_later(layerwise):
    ends = []
    for rate in (1e8, 1e9, 1e12, 1e15):
        case = queue(8)
        case.engine = replace(case.engine, num_gpu_blocks=101)
        case.requests = [(i * 3 * S, 32 + 16 * (i % 3), 4 + i % 5, [], 0, 0) for i in range(60)]
        fleet, out = split_fleet(case, 2, 2, rate=rate, layerwise=layerwise)
        fleet.serve(case.lives())
        ends.append(sum(out.e2e_ps))
    assert ends == sorted(ends, reverse=True)
