"""What the fit starts from: coefficients as operators' own measurements put them, and spreads."""

from __future__ import annotations

from math import log

from fitting import Beliefs

from kvroom.latency.calibration import NAMES
from kvroom.latency.step_time import Coefficients

START = Coefficients(
    wide_eta=0.85, narrow_eta=0.80, expert_eta=1.15, cache_eta=0.85,
    wide_mu=0.85, narrow_mu=0.55, attention_mu=0.45, expert_mu=0.8,
    layer_s=45e-6, layer_width=0.25, expert_layer_s=25e-6, latent_layer_s=20e-6, indexer_layer_s=25e-6,
    state_layer_s=15e-6, reduce_s=5e-6, link_eta=0.5, exchange_s=12e-6, stage_s=100e-6,
    request_s=15e-6, token_s=0.5e-6, step_s=0.3e-3, draft_s=0.3e-3, routing=0.85, expert_width=150.0,
    scale=1.0, first_s=30e-3, burst=0.15, wait=1.0, intake=0.6,
)  # fmt: skip
OVERALL = dict.fromkeys(NAMES, 0.4) | {
    "reduce_s": 0.15, "wide_eta": 0.07, "narrow_eta": 0.1, "cache_eta": 0.1, "scale": 0.4,
    "wide_mu": 0.15, "narrow_mu": 0.15, "attention_mu": 0.2, "layer_s": 0.3, "routing": 0.25,
    "burst": 1.0, "wait": 0.7, "intake": 0.5, "first_s": 0.7, "step_s": 0.7,
    "request_s": 0.7, "token_s": 0.7,
}  # fmt: skip
# fmt: off
EFFECTS: dict[str, dict[str, float]] = {
    "vendor": {
        "layer_s": 0.3, "wide_mu": 0.15, "narrow_mu": 0.21, "wide_eta": 0.035, "narrow_eta": 0.075,
        "cache_eta": 0.075, "attention_mu": 0.09, "expert_mu": 0.09, "expert_layer_s": 0.15,
        "reduce_s": 0.15, "link_eta": 0.15,
    },
    "generation": {
        "wide_eta": 0.015, "narrow_eta": 0.015, "cache_eta": 0.025, "layer_s": 0.025,
        "expert_layer_s": 0.075, "wide_mu": 0.05, "narrow_mu": 0.05, "attention_mu": 0.05,
        "expert_mu": 0.05, "reduce_s": 0.05, "link_eta": 0.05,
    },
    "chip": {
        "wide_eta": 0.013, "narrow_eta": 0.013, "layer_s": 0.02, "narrow_mu": 0.025,
        "scale": 0.0025,
    },
    "gpu": {"wide_eta": 0.013, "layer_s": 0.013, "scale": 0.0025},
    "served": {
        "layer_s": 0.75, "expert_layer_s": 0.25, "request_s": 0.4, "step_s": 0.4, "token_s": 1.6,
        "cache_eta": 0.075, "wide_mu": 0.09, "narrow_mu": 0.09, "attention_mu": 0.045,
        "expert_mu": 0.09, "scale": 0.5, "first_s": 1.6,         "burst": 1.6, "wait": 1.6,     },
    "engine": {
        "layer_s": 0.8, "expert_layer_s": 1.2, "request_s": 1.2, "step_s": 1.2, "token_s": 1.0,
        "wide_eta": 0.28, "narrow_eta": 0.4, "cache_eta": 0.4, "wide_mu": 0.48, "narrow_mu": 0.48,
        "reduce_s": 0.4, "stage_s": 2.0, "first_s": 1.0, "burst": 0.6, "wait": 1.0,
        "attention_mu": 0.48, "expert_mu": 0.48, "scale": 0.24,     },
    "served chip": {"layer_s": 0.2, "scale": 0.025},
    "served gpu": {"layer_s": 0.05, "scale": 0.03},
    "kind": {"burst": 0.1},
    "weights": {"narrow_eta": 0.025, "narrow_mu": 0.05, "expert_eta": 0.025, "expert_mu": 0.05},
    "weights cache": {"cache_eta": 0.3, },
    "cache": {"cache_eta": 0.1},
    "tp": {"reduce_s": 0.1},
    "link": {"reduce_s": 0.4, "link_eta": 0.15},
    "model": {"scale": 0.025, },
    "engine kind": {"burst": 0.5, "scale": 0.025, "wait": 0.5, "first_s": 0.3},
    "link tp": {"reduce_s": 0.6, "link_eta": 0.6, "exchange_s": 0.4},
    "chip link tp": {"reduce_s": 0.1, "link_eta": 0.1},
    "engine link": {"reduce_s": 0.8},
    "engine vendor": {"layer_s": 0.15, "wide_eta": 0.025, "narrow_eta": 0.05, "narrow_mu": 0.15},
    "engine generation": {"layer_s": 0.02, "first_s": 0.1},
    "engine weights": {"narrow_eta": 0.2, "narrow_mu": 0.2, "layer_s": 0.2},
    "weights kind": {
        "layer_s": 0.2, "expert_layer_s": 0.4, "narrow_mu": 0.2, "expert_eta": 0.1,
        "expert_mu": 0.2,
    },
    "engine weights kind": {"layer_s": 0.2, "expert_layer_s": 1.0, "expert_mu": 0.4},
    "weights vendor": {"narrow_eta": 0.05, "narrow_mu": 0.15},
    "weights generation": {"narrow_mu": 0.15},
    "engine model": {"scale": 0.03, "first_s": 0.3, "burst": 0.3},
    "model weights": {"scale": 0.05},
    "engine gpu model weights tp ep": {"scale": 0.02, },
    "engine era": {
        "layer_s": 1.0, "step_s": 1.0, "request_s": 1.2, "wide_mu": 0.48, "narrow_mu": 0.36,
        "attention_mu": 0.36, "cache_eta": 0.6, "wide_eta": 0.2, "narrow_eta": 0.4,
        "expert_layer_s": 0.8, "expert_mu": 0.48, "expert_eta": 0.4, "first_s": 0.6, "scale": 0.15,
        "token_s": 0.8, "reduce_s": 0.8,
    },
    "engine era vendor board": {
        "layer_s": 1.0, "step_s": 1.0, "request_s": 1.2, "wide_mu": 0.48, "narrow_mu": 0.36,
        "attention_mu": 0.36, "cache_eta": 0.6, "wide_eta": 0.2, "narrow_eta": 0.4,
        "expert_layer_s": 0.8, "expert_mu": 0.48, "expert_eta": 0.4, "first_s": 0.6, "scale": 0.12,
        "token_s": 0.8, "reduce_s": 0.8,
    },
    "engine era generation": {
        "layer_s": 0.15, "wide_mu": 0.12, "narrow_mu": 0.09, "attention_mu": 0.09,
        "cache_eta": 0.09, "expert_mu": 0.12, "expert_layer_s": 0.12, "request_s": 0.18,
        "reduce_s": 0.12, "scale": 0.045,     },
    "engine era gpu": {"scale": 0.04, "layer_s": 0.05, "request_s": 0.2},
    "engine era kind": {
        "scale": 0.1, "expert_layer_s": 0.3, "expert_mu": 0.3, "expert_eta": 0.2, "request_s": 0.2,
    },
    "engine era model": {"scale": 0.05, "cache_eta": 0.1},
    "engine era tp": {"reduce_s": 1.0},
    "engine gpu kind weights": {"scale": 0.08, "first_s": 0.4, "burst": 0.4, "wait": 0.4},
    "chip weights": {"narrow_mu": 0.1},
    "recipe": {
        "request_s": 0.5, "layer_s": 0.2, "step_s": 0.3, "expert_layer_s": 0.2, "token_s": 0.5,
        "scale": 0.075, "cache_eta": 0.075, "expert_eta": 0.075, "expert_mu": 0.15,
        "wide_mu": 0.075, "first_s": 0.6, "burst": 0.5,         "wait": 0.5, "reduce_s": 0.15,
    },
    "recipe kind": {
        "request_s": 0.4, "layer_s": 0.16, "step_s": 0.24, "expert_layer_s": 0.16, "token_s": 0.2,
        "scale": 0.06, "cache_eta": 0.06, "expert_eta": 0.06, "expert_mu": 0.12, "wide_mu": 0.06,
        "first_s": 0.24, "burst": 0.2, "wait": 0.2,
        "reduce_s": 0.12,
    },
    "engine recipe": {
        "request_s": 0.25, "layer_s": 0.1, "step_s": 0.15, "expert_layer_s": 0.1, "token_s": 0.25,
        "scale": 0.075, "cache_eta": 0.037, "expert_eta": 0.037, "expert_mu": 0.075,
        "wide_mu": 0.037, "first_s": 0.3, "burst": 0.25,         "wait": 0.25, "reduce_s": 0.075,
    },
    "recipe generation": {
        "request_s": 0.15, "layer_s": 0.06, "scale": 0.022, "first_s": 0.09,     },
    "engine recipe generation kind": {
        "scale": 0.1, "expert_mu": 0.2, "expert_layer_s": 0.2, "request_s": 0.2,
    },
    "stream": {"request_s": 0.7},
    "intake": {"wait": 1.2},
}
# fmt: on
"""Kind of level → coefficients it may move, each with the spread expected of it.

Narrow levels are held: what many of them would say alike belongs to those that they share, or a card or
a model that is left out loses it. That of single cards most of all: while one card stands for a generation,
what is its own and what is today's servers' cannot be told apart, and a card that is left out gets only
the latter.
"""
FP8_CACHE = {"cache_eta": log(1.8)}
KNOWN: dict[str, dict[str, float]] = {
    # From operators.json: floors of small GEMMs, of experts and of decode attention, shares of memory and
    # of (powered) arithmetic rates, each against a Hopper's.
    "chip=8.0": {"layer_s": 0.25},
    "generation=blackwell": {
        "layer_s": -0.2, "expert_layer_s": -0.35, "wide_eta": -0.08, "narrow_eta": -0.12, "cache_eta": 0.15,
        "narrow_mu": 0.15,
    },
    # All-reduces over a bus: the geometric mean of L40S and RTX PRO 6000, then each by itself. (Of the
    # latter there are two sets of tables, in which every engine alike reaches 0.11 and 0.3 of the link: that
    # is the host's doing, not an engine's version. L40S and older releases reach 0.3.)
    "link=bus": {"link_eta": log(0.23 / 0.36), "reduce_s": log(7 / 5)},
    "link=bus tp=4": {"link_eta": log(0.13 / 0.23), "reduce_s": log(13.3 / 7)},
    "link=bus tp=8": {"link_eta": log(0.08 / 0.23), "reduce_s": log(25 / 7)},
    # What data-parallel ranks gather and scatter: NCCL's own between two RTX PRO 6000 or L40S takes 5 to 6
    # us and 0.46 to 0.6 of the link (of a Hopper or Blackwell board's eight cards 10 to 18 us) on the quicker
    # host of the two; the slower one's all-reduces take 2.6 times as long to begin and reach 0.37 of that.
    # The mean stands.
    "link=bus tp=1": {"link_eta": log(0.29 / 0.23), "exchange_s": log(10 / 12)},
    "chip=8.9 link=bus tp=2": {"link_eta": log(0.3 / 0.23), "reduce_s": log(6 / 7)},
    "chip=8.9 link=bus tp=4": {"link_eta": log(0.065 / 0.13), "reduce_s": log(12.6 / 13.3)},
    "chip=8.9 link=bus tp=8": {"link_eta": log(0.03 / 0.08), "reduce_s": log(23.3 / 25)},
    "chip=12.0 link=bus tp=2": {"link_eta": log(0.18 / 0.23), "reduce_s": log(8 / 7)},
    "chip=12.0 link=bus tp=4": {"link_eta": log(0.2 / 0.13), "reduce_s": log(13.6 / 13.3)},
    "chip=12.0 link=bus tp=8": {"link_eta": log(0.17 / 0.08), "reduce_s": log(26.7 / 25)},
    "chip=10.3": {"attention_mu": 0.2},
    "chip=12.0": {"wide_eta": 0.05, "narrow_mu": 0.25},
    "gpu=H200-SXM": {"wide_eta": -0.06, "narrow_eta": -0.06, "cache_eta": -0.07},
    "weights=nvfp4 generation=blackwell": {"narrow_mu": -0.25},
    "chip=10.3 weights=nvfp4": {"narrow_mu": -0.25},
    # The scripts of most published SGLang runs let it take in requests every 10 to 30 steps and hand out
    # tokens every 10.
    "intake=unsaid": {"wait": log(25)},
    # Prompts of that time reach a third to a half of the peak, the GEMMs of today nine tenths.
    **{f"engine=vllm era={e}": {"wide_mu": -0.4} for e in ("2023", "2024", "v0")},
    "weights=fp8 kind=moe": {"expert_mu": -0.7, "expert_layer_s": 0.3},
    "weights=int4 kind=moe": {"expert_mu": -1.0, "expert_layer_s": 0.9, "expert_eta": -0.4},
    # Checkpoints of these widths are mostly served with an FP8 cache, whatever they say themselves.
    "weights=fp8 cache=auto": FP8_CACHE,
    "weights=nvfp4 cache=auto": FP8_CACHE,
}  # fmt: skip
FLOOR = {"tpot": 0.08, "ttft": 0.15, "whole": 0.08}

HELD = 0.6
"""Spreads of all but the scales are drawn in by this: it lowers the errors on models left out."""
SCALES = ("scale",)
SPREADS = {
    kind: tuple((n, sd if n in SCALES else HELD * sd) for n, sd in effects.items())
    for kind, effects in EFFECTS.items()
}
BELIEFS = Beliefs(start=START, overall=OVERALL, effects=SPREADS, known=KNOWN, floor=FLOOR)
