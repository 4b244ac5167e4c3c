"""Whole answers of SGLang's rules against what SGLang's own functions give.

The figures are those of SGLang 0.4.10.post2, 0.5.9 and 0.5.23: their argument resolution and pool
sizing run on a card that was told them (its memory, what was free before loading, what the weights took).
"""

from __future__ import annotations

from typing import Any

import pytest

from kvroom.answer.plan import Plan
from kvroom.engines.releases import nearest_release
from kvroom.engines.sglang.resolved_args import settings_of
from kvroom.engines.sglang.share import static_share
from kvroom.engines.sglang.versions import NEWEST, OLDEST, rules_of
from kvroom.planner.place import deploy
from kvroom.planner.plan import plan
from kvroom.scenario.scenario import Scenario

CARDS = {
    "H100-SXM": (85520809984, 84396107366),
    "H200-SXM": (150754820096, 149035365171),
    "RTX-4090": (25757220864, 25018184499),
    "L40S": (48305799168, 47352014438),
    "B200-SXM": (192265846784, 189622806118),
}
"""Bytes of the whole card, and free before loading."""

Case = tuple[str, str, str, int, int, int, dict[str, Any], float, int, tuple[int | None, ...]]
# release, model, card, tp, pp, bytes of weights, flags | static share, page | tokens, window, slots, requests
GOLDEN = [
    ("0.5.23", "qwen3-8b", "H100-SXM", 1, 1, 16399999999, {}, 0.83, 1, (363829, None, None, 4096)),
    (
        "0.5.23",
        "qwen3-8b",
        "H100-SXM",
        1,
        1,
        16399999999,
        {"kv_cache_dtype": "fp8_e4m3", "mem_fraction_static": 0.9, "page_size": 16},
        0.9,
        16,
        (807776, None, None, 4096),
    ),
    ("0.5.23", "qwen3-8b", "H100-SXM", 1, 2, 8300000000, {}, 0.834, 1, (842100, None, None, 4096)),
    (
        "0.5.23",
        "qwen3-8b",
        "H100-SXM",
        1,
        1,
        16399999999,
        {"max_total_tokens": 100000, "page_size": 64, "max_running_requests": 64},
        0.834,
        64,
        (99968, None, None, 64),
    ),
    (
        "0.5.23",
        "llama-3.3-70b",
        "H100-SXM",
        4,
        1,
        35400000000,
        {},
        0.819,
        1,
        (411626, None, None, 2048),
    ),
    (
        "0.5.23",
        "deepseek-v3",
        "H200-SXM",
        8,
        1,
        86000000000,
        {},
        0.886,
        1,
        (655244, None, None, 2048),
    ),
    (
        "0.5.23",
        "deepseek-v3",
        "H200-SXM",
        8,
        1,
        91000000000,
        {"dp_size": 8, "enable_dp_attention": True},
        0.758,
        1,
        (312625, None, None, 2048),
    ),
    (
        "0.5.23",
        "deepseek-v3",
        "H200-SXM",
        8,
        1,
        88000000000,
        {"attention_backend": "flashmla"},
        0.886,
        64,
        (626752, None, None, 2048),
    ),
    (
        "0.5.23",
        "gpt-oss-120b",
        "H100-SXM",
        1,
        1,
        65000000000,
        {},
        0.83,
        1,
        (76087, 60869, None, 2048),
    ),
    (
        "0.5.23",
        "gemma-3-27b",
        "H100-SXM",
        1,
        1,
        54900000000,
        {},
        0.83,
        1,
        (29826, None, None, 2048),
    ),
    (
        "0.5.23",
        "gemma-4-26b-a4b",
        "H100-SXM",
        1,
        1,
        52000000000,
        {},
        0.7596298339843749,
        1,
        (65130, 52104, None, 2048),
    ),
    (
        "0.5.23",
        "llama-4-scout",
        "H100-SXM",
        8,
        1,
        27300000000,
        {},
        0.812,
        1,
        (1973692, 1578953, None, 2048),
    ),
    (
        "0.5.23",
        "nemotron-3-nano-30b-a3b",
        "H100-SXM",
        1,
        1,
        63000000000,
        {},
        0.83,
        1,
        (604031, None, 67, 13),
    ),
    (
        "0.5.23",
        "qwen3-vl-8b",
        "H100-SXM",
        1,
        1,
        17500000000,
        {},
        0.7721792968749999,
        1,
        (315993, None, None, 2048),
    ),
    ("0.5.23", "qwen3-8b", "RTX-4090", 1, 1, 16399999999, {}, 0.704, 1, (8224, None, None, 2048)),
    (
        "0.5.23",
        "nemotron-nano-9b-v2",
        "L40S",
        1,
        1,
        17800000000,
        {},
        0.843,
        1,
        (719132, None, 71, 14),
    ),
    (
        "0.5.23",
        "lfm2-1.2b",
        "RTX-4090",
        1,
        1,
        2400000000,
        {},
        0.704,
        1,
        (651594, None, 87963, 2606),
    ),
    (
        "0.5.23",
        "qwen3-8b",
        "B200-SXM",
        1,
        1,
        16399999999,
        {},
        0.854,
        64,
        (986944, None, None, 4096),
    ),
    (
        "0.5.23",
        "deepseek-v3",
        "B200-SXM",
        8,
        1,
        86000000000,
        {},
        0.844,
        64,
        (1053632, None, None, 3292),
    ),
    (
        "0.5.23",
        "gemma-3n-e4b",
        "L40S",
        1,
        1,
        15700000000,
        {},
        0.64676,
        1,
        (206759, None, None, 3230),
    ),
    (
        "0.5.23",
        "deepseek-v4-flash",
        "H200-SXM",
        4,
        1,
        74000000000,
        {},
        0.9,
        256,
        (8101632, 809984, None, 256),
    ),
    (
        "0.5.23",
        "deepseek-v4-flash",
        "H200-SXM",
        4,
        1,
        74000000000,
        {"max_running_requests": 128},
        0.906,
        256,
        (8417280, 841728, None, 128),
    ),
    (
        "0.5.23",
        "nemotron-3-nano-30b-a3b",
        "H100-SXM",
        1,
        1,
        63000000000,
        {"kv_cache_dtype": "fp8_e4m3", "mamba_ssm_dtype": "bfloat16"},
        0.83,
        1,
        (1213674, None, 132, 26),
    ),
    ("0.5.9", "qwen3-8b", "H100-SXM", 1, 1, 16399999999, {}, 0.835, 1, (366690, None, None, 4096)),
    (
        "0.5.9",
        "deepseek-v3",
        "H200-SXM",
        8,
        1,
        91000000000,
        {"dp_size": 8, "enable_dp_attention": True},
        0.769,
        1,
        (335954, None, None, 2048),
    ),
    ("0.4.10", "qwen3-8b", "H100-SXM", 1, 1, 16399999999, {}, 0.874, 1, (389012, None, None, 4096)),
    (
        "0.4.10",
        "deepseek-v3",
        "H200-SXM",
        8,
        1,
        91000000000,
        {"dp_size": 8, "enable_dp_attention": True},
        0.858,
        1,
        (524708, None, None, 2048),
    ),
    (
        "0.4.10",
        "qwen3-235b-a22b",
        "H100-SXM",
        8,
        1,
        58900000000,
        {"kv_cache_dtype": "fp8_e4m3"},
        0.831,
        1,
        (466803, None, None, 4096),
    ),
    (
        "0.5.9",
        "mimo-v2-flash",
        "H200-SXM",
        8,
        1,
        39000000000,
        {},
        0.897,
        1,
        (3680219, 2944175, None, 4096),
    ),
    (
        "0.5.9",
        "qwen3-next-80b-a3b",
        "H100-SXM",
        4,
        1,
        40800000000,
        {},
        0.824,
        1,
        (1232373, None, 704, 234),
    ),
    (
        "0.5.9",
        "qwen3.5-9b",
        "RTX-4090",
        2,
        1,
        9500000000,
        {"mem_fraction_static": 0.8},
        0.8,
        1,
        (338361, None, 193, 64),
    ),
]


def question(case: Case) -> Scenario:
    release, model, card, tp, pp, weights, flags, *_ = case
    visible, free = CARDS[card]
    known = {"visible": visible, "free_before_load": free, "weights": weights}
    return Scenario.from_dict(
        {
            "model": model,
            "gpu": card,
            "tp": tp,
            "pp": pp,
            "engine": "sglang",
            "engine_version": release,
            "engine_args": flags,
            "known_bytes": known,
        }
    )


@pytest.mark.parametrize("case", GOLDEN, ids=lambda c: f"{c[0]}-{c[1]}-{c[2]}-{c[6]}")
def test_pools_are_sglangs_own(case: Case) -> None:
    engine = plan(question(case), paths=False).capacity.engine
    assert engine is not None
    found = (
        engine.kv_tokens,
        engine.window_tokens,
        engine.state_slots,
        engine.max_running_requests,
    )
    assert found == case[9]
    assert engine.block_tokens == case[8]


@pytest.mark.parametrize("case", GOLDEN, ids=lambda c: f"{c[0]}-{c[1]}-{c[2]}-{c[6]}")
def test_the_static_share_is_sglangs_own(case: Case) -> None:
    d, _ = deploy(question(case), paths=False)
    release, _ = nearest_release("SGLang", case[0], OLDEST, NEWEST)
    assert static_share(settings_of(d, rules_of(release))).fraction == pytest.approx(case[7])


def test_llama4_window_pool_when_asked_for() -> None:
    """SGLang 0.4.10.post2, hybrid_kvcache_ratio 0.25: 2,144,703 full and 1,608,945 window tokens."""
    case: Case = (
        "0.4.10",
        "llama-4-scout",
        "H100-SXM",
        8,
        1,
        27_300_000_000,
        {"hybrid_kvcache_ratio": 0.25},
        0.831,
        1,
        (2144703, 1608945, None, 2048),
    )
    test_pools_are_sglangs_own(case)
    without: Plan = plan(question((*case[:6], {}, *case[7:])), paths=False)
    assert without.capacity.engine is not None
    assert without.capacity.engine.window_tokens is None
