"""llama.cpp, ik_llama.cpp and Ollama: all that they are, each behind an Engine."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from kvroom.answer.plan import EngineCapacity
from kvroom.engines.base import Engine, EngineAnswer
from kvroom.engines.limits import LimitFlags
from kvroom.engines.llama_cpp import ollama
from kvroom.engines.llama_cpp.answer import answer
from kvroom.engines.llama_cpp.command import COMMAND
from kvroom.engines.llama_cpp.drafting import LlamaCppDraftFlags
from kvroom.engines.llama_cpp.log import LOG
from kvroom.engines.llama_cpp.metrics import METRICS
from kvroom.engines.llama_cpp.ollama_command import COMMAND as OLLAMA_COMMAND
from kvroom.engines.llama_cpp.serving import serving_rules
from kvroom.engines.llama_cpp.setup import prepare
from kvroom.engines.llama_cpp.support import BUILT_ON, OLLAMA_SUPPORT, SUPPORT
from kvroom.engines.llama_cpp.versions import BUILDS
from kvroom.engines.releases import modelled
from kvroom.engines.serving_rules import ServingRules
from kvroom.engines.start_rules import StartRule, cache_type
from kvroom.hardware.device import Device
from kvroom.models.dtypes import FP32
from kvroom.models.kinds import ConvState, LayerKind, RecurrentState
from kvroom.models.spec import ModelSpec
from kvroom.scenario.scenario import Scenario
from kvroom.sharding.deployment import Deployment


def wide(stores: tuple[LayerKind, ...]) -> tuple[LayerKind, ...]:
    """A layer's kinds with what is recurrent in FP32."""
    return tuple(
        replace(kind, dtype=FP32) if isinstance(kind, RecurrentState | ConvState) else kind
        for kind in stores
    )


class LlamaCpp(Engine):
    """Slots and cells, layers shared out over GPUs and the host."""

    def prepare(
        self, scenario: Scenario, model: ModelSpec, device: Device
    ) -> tuple[Scenario, tuple[str, ...]]:
        """GPUs in a row in place of ranks, its cache types, its context."""
        return prepare(scenario, model, device)

    def as_served(self, model: ModelSpec) -> ModelSpec:
        """The model with its recurrent states in FP32, which is how ggml computes them."""
        if not any(kind.recurrent for kind, _ in model.stores):
            return model
        runs = (
            replace(layer, layer=replace(layer.layer, stores=wide(layer.layer.stores)))
            for layer in model.layers
        )
        return replace(model, layers=tuple(runs))

    def memory(self, deployment: Deployment) -> EngineAnswer:
        """What each GPU holds of weights, cells and buffers, by the build's rules."""
        return answer(deployment)

    def scheduler_rules(self, deployment: Deployment, capacity: EngineCapacity) -> ServingRules:
        """Slots."""
        return serving_rules(deployment, capacity)


START_RULES = (
    StartRule(
        name="cache_type",
        why=partial(cache_type, known=BUILT_ON.cache_types),
        source="llama.cpp, common/arg.cpp: kv_cache_types",
        key="kv_dtype",
    ),
)
OLLAMA_START_RULES = (
    StartRule(
        name="cache_type",
        why=partial(cache_type, known=OLLAMA_SUPPORT.cache_types),
        source="Ollama documentation, FAQ: OLLAMA_KV_CACHE_TYPE",
        key="kv_dtype",
    ),
)
LLAMA_CPP = LlamaCpp(
    tensor_parallel=False,
    one_token_dispatch=True,
    own_card=True,
    name="llama.cpp",
    releases=BUILDS,
    label="llama.cpp",
    benchmarks=("llama-bench",),
    support=SUPPORT,
    start_rules=START_RULES,
    limits=LimitFlags(sequences="parallel"),
    draft_flags=LlamaCppDraftFlags(),
    command=COMMAND,
    log=LOG,
    metrics=METRICS,
    account_flags={
        "visible": "--gpu",
        "weights": "--n-gpu-layers",
        "activations": "--ubatch-size",
        "kv": "--ctx-size, --parallel, --cache-type-k, --cache-type-v",
    },
)
IK_LLAMA_CPP = LlamaCpp(
    tensor_parallel=False,
    one_token_dispatch=True,
    name="ik_llama.cpp",
    label="ik_llama.cpp",
    support=BUILT_ON,
    start_rules=START_RULES,
    draft_flags=LlamaCppDraftFlags(),
    command=COMMAND,
    log=LOG,
)
OLLAMA = LlamaCpp(
    tensor_parallel=False,
    one_token_dispatch=True,
    own_card=True,
    name="ollama",
    releases=modelled(ollama.OLDEST, ollama.CHANGES),
    label="Ollama",
    support=OLLAMA_SUPPORT,
    start_rules=OLLAMA_START_RULES,
    command=OLLAMA_COMMAND,
    log=LOG,
    account_flags={
        "visible": "--gpu",
        "weights": "num_gpu",
        "activations": "num_batch",
        "kv": "num_ctx, OLLAMA_NUM_PARALLEL, OLLAMA_KV_CACHE_TYPE",
    },
)
