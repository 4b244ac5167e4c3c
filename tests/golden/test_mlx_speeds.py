"""What MLX reaches on Apple's chips, as published, within the bands of plans asked alike.

mlx-lm's own BENCHMARKS.md (mlx 0.29.2, mlx-lm 0.28.2, an M4 Max: prompts of 2,048 tokens, 128 generated),
its pull request 1569 (an M3 Pro), and the mlx-lm baseline of lablup/mlxcel (an M1 Ultra, a short prompt).
"""

import pytest

from support import ask

DECODES = [  # chip, model, width, tokens held, tokens a second
    ("Apple-M4-Max", "qwen3-4b", "bf16", 2112, 52.47),
    ("Apple-M4-Max", "qwen3-4b", "mlx_8bit", 2112, 86.91),
    ("Apple-M4-Max", "qwen3-4b", "mlx_4bit", 2112, 134.52),
    ("Apple-M4-Max", "qwen3-30b-a3b", "mlx_4bit", 2112, 113.33),
    ("Apple-M3-Pro", "qwen3-4b", "mlx_4bit", 2112, 44.62),
    ("Apple-M1-Ultra", "llama-3.1-8b", "mlx_4bit", 80, 110.66),
    ("Apple-M1-Ultra", "qwen3-8b", "mlx_4bit", 80, 84.54),
]


def step_of(gpu, model, width, tokens):
    keys = {"engine": "mlx", "weight_dtype": width, "context_tokens": tokens, "concurrency": 1}
    return ask(model, gpu, **keys).step


@pytest.mark.parametrize(("gpu", "model", "width", "tokens", "rate"), DECODES)
def test_a_token_a_step(gpu, model, width, tokens, rate):
    assert step_of(gpu, model, width, tokens).seconds == pytest.approx(1 / rate, rel=0.25)


def test_bands_hold_four_of_five():
    held = 0
    for *asked, rate in DECODES:
        step = step_of(*asked)
        held += step.seconds_low <= 1 / rate <= step.seconds_high
    assert held >= 0.7 * len(DECODES)


def test_a_prompt():
    workload = {"input_tokens": 2048, "output_tokens": 1, "concurrency": 1, "static": True}
    keys = {"engine": "mlx", "weight_dtype": "mlx_4bit", "context_tokens": 4096}
    times = ask("qwen3-4b", "Apple-M4-Max", workload=workload, **keys).serving
    assert times.ttft_low_s <= 2048 / 1622.27 <= times.ttft_high_s


def test_its_checkpoints_narrow_everything_but_norms():
    made = ask("qwen3-4b", "Apple-M4-Max", engine="mlx", weight_dtype="mlx_4bit")
    weights = next(a.bytes for a in made.memory.accounts if a.name == "weights")
    assert weights == pytest.approx(2.26e9, rel=0.02)  # mlx-community/Qwen3-4B-4bit on the hub
