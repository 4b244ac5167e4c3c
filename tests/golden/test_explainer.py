"""The figures of the explainer: Llama 3 70B in BF16 on four plain 80 GB cards, by arithmetic alone."""

import pytest

from kvroom.ui import tour
from support import ask

KIB, GIB = 2**10, 2**30


def room(**keys):
    return ask(gpu_count=keys.pop("gpu_count", 4), **keys).capacity.ceiling.requests


@pytest.mark.parametrize(
    ("keys", "requests"),
    [
        ({"context_tokens": "32K"}, 16),
        ({"context_tokens": "32K", "kv_dtype": "fp8"}, 33),
        ({"context_tokens": "8K"}, 66),
        ({"context_tokens": "128K"}, 4),
        ({"context_tokens": "32K", "gpu_count": 1}, 0),
    ],
)
def test_room(keys, requests):
    assert room(**keys) == requests


def test_bytes():
    plan = ask(gpu_count=4, context_tokens="128K")
    assert plan.weights.bytes == 141_107_412_992
    assert plan.kv.bytes_per_token == 320 * KIB
    assert plan.kv.bytes_per_request == 40 * GIB
    assert ask(context_tokens=32 * KIB).kv.bytes_per_request == 10 * GIB
    assert [(g.kind, g.count, g.bytes_per_token) for g in plan.kv.layers] == [("full", 80, 4096)]


def test_not_even_the_weights_fit_one_card():
    plan = ask(gpu_count=1, context_tokens="32K")
    assert not plan.verdict.fits
    assert plan.verdict.binding == "weights"
    assert "131.4 GiB" in plan.verdict.sentence
    assert plan.memory.kv_bytes == 0


def test_a_batch_of_64_moves_about_fifty_times_fewer_bytes_a_token():
    alone, many = (ask(gpu_count=4, context_tokens=2048, concurrency=n) for n in (1, 64))
    moved = [(p.step.bytes.weights + p.step.bytes.kv) / p.step.batch for p in (alone, many)]
    assert moved[0] / moved[1] == pytest.approx(49.1, abs=0.05)


def test_the_tour_says_so(capsys):
    tour.tour()
    said = capsys.readouterr().out
    for figure in ("16 requests", "33 requests", "66 requests", "4 requests", "320 KiB", "40 GiB"):
        assert figure in said
    assert "49.1 times fewer bytes a token" in said
    assert tour.COMMAND in said
