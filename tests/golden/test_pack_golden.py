"""Two vLLM servers on one GPU, as people reported them: who started and who was refused."""

import pytest

import kvroom
from kvroom.optimize.pack.pack import PackQuestion, pack


def started(gpu, version, *pairs, **keys):
    rows = [
        {"model": model, "name": f"{place}", "share": share, "version": version, **keys}
        for place, (model, share) in enumerate(pairs)
    ]
    found = kvroom.pack(rows, gpu, simulate=False)
    return [one.seat.fits for one in found.rows_of]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [(0.2, 0.2, [True, False]), (0.2, 0.3, [True, True]), (0.3, 0.3, [True, False])],
)
def test_two_tinyllamas_on_an_l40s(first, second, expected):
    """github vllm-project/vllm issue 14376 (March 2025, V1 engine): 20 % and 20 % is refused, 20 % and 30 %
    starts, 30 % and 30 % is refused. The nearest release that is modelled stands for it."""
    tiny = "tinyllama-1.1b"
    assert started("L40S", "0.8.5", (tiny, first), (tiny, second), context=1024) == expected


def test_their_shares_are_their_own_since_the_fix():
    """github vllm-project/vllm pull requests 18974 and 19312 (in 0.9.1): each share is what each uses."""
    tiny = "tinyllama-1.1b"
    for first, second in ((0.2, 0.2), (0.2, 0.3), (0.3, 0.3)):
        assert all(started("L40S", "0.9.2", (tiny, first), (tiny, second), context=1024))
    assert started("L40S", "0.9.2", (tiny, 0.7), (tiny, 0.4), context=1024) == [True, False]


def test_a_14b_after_a_72b_on_an_a100():
    """github vllm-project/vllm issue 10533 (0.6.4, 80 GB A100): Qwen2.5-72B GPTQ-Int4 at 0.75 starts, then
    Qwen2.5-14B GPTQ-Int4 at 0.20 has no memory for cache blocks; each starts alone. Its chunks were 512."""
    flags = {"enforce_eager": True, "enable_chunked_prefill": True, "max_num_batched_tokens": 512}
    keys = {"context": 16384, "weight_dtype": "int4", "engine_args": flags}
    large, small = ("qwen2.5-72b", 0.75), ("qwen2.5-14b", 0.20)
    assert started("A100-SXM-80", "0.6.4", large, small, **keys) == [True, False]
    assert started("A100-SXM-80", "0.6.4", large, **keys) == [True]
    assert started("A100-SXM-80", "0.6.4", small, **keys) == [True]
    assert started("A100-SXM-80", "0.9.2", large, small, **keys) == [True, True]


def asleep(gpu, **keys):
    found = pack([{"sleep": 1, **keys}], gpu, PackQuestion(prices={}, simulate=False))
    return found.rows_of[0].sleep


def test_what_sleep_leaves_on_a_card():
    """github NVIDIA-NeMo/RL issue 223 (April 2025): Llama 3.2 1B asleep on two ranks leaves 2,440 MiB."""
    flags = {"enforce_eager": True}
    keys = {"model": "llama-3.2-1b", "version": "0.8.5", "context": 512, "engine_args": flags}
    assert asleep("H100-SXM:2", tp=2, **keys).stays_bytes == pytest.approx(2440 * 2**20, rel=0.1)


def test_what_sleep_frees_of_a_card():
    """github vllm-project/vllm issue 32714 (0.13.0): a Qwen3 30B on four RTX 3090 frees 20 GB and more of
    each, and leaves 1.14 GB: between what is told without graphs and with them, whose bytes are estimates.
    A bridge joins two of these cards, so that four have none of the buffers of linked ones."""
    keys = {"model": "qwen3-30b-a3b", "version": "0.13.0", "context": "16K", "tp": 4}
    sleep = asleep("RTX-3090:4", **keys)
    assert 20e9 < sleep.freed_bytes < 24e9
    assert 1.14e9 < sleep.stays_bytes < 2 * 1.14e9
    eager = asleep("RTX-3090:4", engine_args={"enforce_eager": True}, **keys)
    assert 0.6e9 < eager.stays_bytes < 1.14e9
