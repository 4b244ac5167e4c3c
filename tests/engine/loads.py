"""Random loads on random deployments, drawn from a seed: both schedulers are held to each other by them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from engine import models
from kvroom.kvcache.request import ServedRequest
from kvroom.kvcache.tokens import BlockHashes, Run, length

H100 = "H100-SXM"

FALCON_H1 = models.of(
    "FalconH1ForCausalLM",
    "falcon_h1",
    mamba_d_ssm=512,
    mamba_n_heads=8,
    mamba_d_head=64,
    mamba_d_state=16,
    mamba_d_conv=4,
    mamba_expand=2,
    mamba_n_groups=1,
    mamba_chunk_size=64,
    mamba_conv_bias=True,
    mamba_proj_bias=False,
    mamba_norm_before_gate=True,
    mamba_rms_norm=False,
    projectors_bias=False,
    attention_bias=False,
    mlp_bias=False,
)
"""Attention and Mamba-2 side by side in every layer."""
NEMOTRON_H = models.of(
    "NemotronHForCausalLM",
    "nemotron_h",
    hybrid_override_pattern="M-M*",
    attention_bias=False,
    mlp_bias=False,
    mlp_hidden_act="relu2",
    use_bias=False,
    use_conv_bias=True,
    mamba_num_heads=8,
    mamba_head_dim=64,
    ssm_state_size=16,
    conv_kernel=4,
    n_groups=1,
    chunk_size=64,
    layer_norm_epsilon=1e-5,
    residual_in_fp32=False,
    mamba_hidden_act="silu",
)
"""Layers of Mamba-2, of attention and of nothing but an MLP."""
MODELS: dict[str, tuple[models.Config, bool]] = {
    "plain": (models.LLAMA, False),
    "windows": (models.MISTRAL, False),
    "interleaved windows": (models.GEMMA3, False),
    "uneven windows": (models.GEMMA3_UNEVEN, False),
    "latents": (models.DEEPSEEK, False),
    "gated delta nets": (models.QWEN3_NEXT, True),
    "Granite hybrid": (models.GRANITE, True),
    "Falcon-H1": (FALCON_H1, True),
    "Nemotron-H": (NEMOTRON_H, True),
    "state only": (models.MAMBA2, True),
}
"""By name: a config, and whether its layers keep a state."""


@dataclass(frozen=True)
class Load:
    """One draw: a Scenario's keys, and requests as (arrival step, prompt, answer, priority)."""

    name: str
    scenario: dict[str, Any]
    requests: list[tuple[int, tuple[Run, ...], tuple[Run, ...], int]]

    def served(self, hash_tokens: int) -> list[ServedRequest]:
        """The requests as kvroom's scheduler takes them."""
        made = []
        for index, (arrival, prompt, answer, priority) in enumerate(self.requests):
            hashes = BlockHashes(prompt + answer, hash_tokens)
            request = ServedRequest(index, arrival, length(prompt), length(answer), hashes=hashes)
            request.priority = priority
            made.append(request)
        return made

    @property
    def texts(self) -> dict[int, tuple[tuple[Run, ...], tuple[Run, ...]]]:
        """Token ids of prompts and answers, by request."""
        return {index: (row[1], row[2]) for index, row in enumerate(self.requests)}


def drawn(
    seed: int, release: str, names: list[str] | None = None, stages: int | None = None
) -> Load:
    """Load number ``seed``, of one of ``names``, on so many ``stages`` of a pipeline."""
    dice = random.Random(seed)
    name = dice.choice(names or list(MODELS))
    config, state = MODELS[name]
    context = dice.choice([2048, 4096, 8192])
    args: dict[str, Any] = {
        "max_model_len": context,
        "max_num_batched_tokens": dice.choice([512, 1024, 2048, 4096]),
        "max_num_seqs": dice.choice([8, 24, 64]),
        "enable_prefix_caching": dice.random() < 0.8,
        "async_scheduling": dice.random() < 0.6,
    }
    if dice.random() < 0.3:
        args["scheduling_policy"] = "priority"
    if dice.random() < 0.2:
        args["long_prefill_token_threshold"] = dice.choice([128, 256])
    if dice.random() < 0.2 and not state:
        args["block_size"] = dice.choice([32, 64])
    if dice.random() < 0.2:
        args["watermark"] = 0.05
    if dice.random() < 0.2:
        args["scheduler_reserve_full_isl"] = False
    args["kv_cache_memory_bytes"] = dice.choice([24, 32, 48, 96]) * 2**20
    scenario = {
        "model": {"config": config},
        "pp": _stages(seed, name) if stages is None else stages,
        "gpu": H100,
        "engine": "vllm",
        "engine_version": release,
        "engine_args": args,
    }
    return Load(f"{seed}: {name}", scenario, chats(dice, context))


def _stages(seed: int, name: str) -> int:
    """Pipeline stages of a load, drawn apart so that a seed's requests do not hang on them. A stage of these
    few layers may have none of attention, whose blocks then are others than those of real models."""
    if MODELS[name][1] and name != "Falcon-H1":
        return 1
    return random.Random(f"stages {seed}").choice([1, 1, 2, 4])


def chats(
    dice: random.Random, context: int
) -> list[tuple[int, tuple[Run, ...], tuple[Run, ...], int]]:
    """Requests that share prefixes or go on where earlier ones ended, none longer than ``context``."""
    prefixes = [(100_000 * (n + 1), dice.randint(40, context // 3)) for n in range(6)]
    requests: list[Any] = []
    fresh, step = 10_000_000, 0
    for _ in range(dice.choice([30, 60])):
        step += dice.choice([0, 0, 1, 3, 20])
        own, answer = dice.randint(1, context // 4), dice.randint(1, context // 8)
        prompt: list[Run] = [(fresh, own)]
        if dice.random() < 0.6:
            prompt.insert(0, dice.choice(prefixes))
        if requests and dice.random() < 0.25:  # a turn more of an earlier one
            _, before, said, _ = dice.choice(requests)
            prompt = [*before, *said, (fresh, own)]
        while length(prompt) + answer >= context:
            prompt = [(fresh, own)]
        requests.append((step, tuple(prompt), ((fresh + own, answer),), dice.choice([0, 0, 1, 2])))
        fresh += own + answer
    return requests
