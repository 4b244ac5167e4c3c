"""What a release with two engines still serves by its first (V0): 0.8 to 0.10, until 0.11.0 had one alone.

Source: ``EngineArgs._is_v1_supported_oracle`` of each release from 0.8.5 to 0.10.2, which falls back without
a word in the answer unless ``VLLM_USE_V1`` is set.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kvroom.engines.flags import plain_args
from kvroom.engines.releases import Release
from kvroom.models.kinds import CrossAttention, Latent
from kvroom.sharding.deployment import Deployment

TWO_ENGINES: tuple[Release, Release] = (0, 8, 0), (0, 11, 0)
"""The release that serves by V1 where it can, and the one that has nothing else."""
AMPERE, HOPPER, BLACKWELL = 8.0, 9.0, 10.0
FLAGS: Mapping[str, tuple[Release, tuple[str, ...]]] = {
    # the release whose V1 takes it (or that has it no longer), and the values that are as usual
    "scheduling_policy": ((0, 10, 0), ("fcfs",)),
    "num_scheduler_steps": ((0, 10, 1), ("1",)),
    "scheduler_delay_factor": ((0, 11, 0), ("0", "0.0")),
    "preemption_mode": ((0, 11, 0), ()),
    "disable_async_output_proc": ((0, 11, 0), ("false",)),
    "enable_prompt_adapter": ((0, 10, 0), ("false",)),
    "max_num_partial_prefills": ((0, 11, 0), ("1",)),
    "max_long_partial_prefills": ((0, 11, 0), ("1",)),
    "dtype": ((0, 10, 0), ("auto", "half", "float16", "bfloat16", "fp16", "bf16")),
}


def first_engine_for(deployment: Deployment, release: Release) -> str:
    """Why ``release`` serves a deployment by its first engine; "" where it does not."""
    since, until = TWO_ENGINES
    if release < since:
        return "there is no other"
    if release >= until:
        return ""
    args = plain_args(deployment.args)
    told = args.get("vllm_use_v1")
    if told is not None:
        return "VLLM_USE_V1=0" if str(told).lower() in ("0", "false") else ""
    return next(_reasons(deployment, release, args), "")


def _reasons(d: Deployment, release: Release, args: Mapping[str, Any]) -> Iterator[str]:
    vendor, stated = d.device.vendor.lower(), d.device.compute_capability or ""
    card = float(stated) if vendor == "nvidia" and stated.replace(".", "", 1).isdigit() else HOPPER
    if card < AMPERE and release < (0, 10, 2):
        yield f"compute capability {card}"
    if vendor == "amd" and release < (0, 9, 2):
        yield "a card of AMD's"
    if any(kind.recurrent for kind, _ in d.model.stores) and release < (0, 10, 2):
        yield "a model with recurrent state"
    if any(isinstance(kind, CrossAttention) for kind, _ in d.model.stores) and release < (0, 10, 2):
        yield "an encoder beside its decoder"
    latent = any(isinstance(kind, Latent) for kind, _ in d.model.stores)
    reads_fp8 = card == HOPPER or (release >= (0, 10, 0) and card >= BLACKWELL)
    if d.kv_name.startswith("fp8") and not reads_fp8 and not (latent and release >= (0, 10, 2)):
        yield f"an FP8 cache on compute capability {card}"
    executor = str(args.get("distributed_executor_backend") or "")
    unasked = () if release >= (0, 9, 1) else ("",)
    others = ("mp", "external_launcher") if release < (0, 9, 0) else ()
    if d.layout.pp > 1 and release < (0, 9, 1) and executor in (*unasked, *others):
        yield "pipeline stages without Ray"
    method = d.speculation.method if d.speculation else ""
    if method and release < ((0, 10, 0) if method == "draft" else (0, 9, 0)):
        yield f"drafts by {method}"
    for name, (taken, usual) in FLAGS.items():
        value = args.get(name)
        if value is not None and release < taken and str(value).lower() not in usual:
            yield f"--{name.replace('_', '-')}"
