"""The arithmetic engine: no overhead, no pages, no rounding. What it gives is the ceiling itself."""

from __future__ import annotations

from kvroom.answer.plan import EngineCapacity
from kvroom.engines.base import Engine, EngineAnswer, account
from kvroom.engines.support import OFFLINE_SCALES, W4, Requirement, Support, drafting, split
from kvroom.sharding.deployment import Deployment
from kvroom.sharding.ledger import binding_rank, longest_context, room


def ceiling(deployment: Deployment) -> EngineAnswer:
    """Every byte of the card's catalogue size that is not weights is cache."""
    gpu = deployment.known_bytes.get("visible", deployment.device.catalogue_bytes)
    rank = binding_rank(deployment, gpu)
    weights = deployment.known_bytes.get("weights", rank.weight_bytes)
    left = gpu - weights - deployment.extras.loaded_bytes(rank.stage)
    cache = max(0, left)
    exact = room(deployment, rank, gpu)
    starts = left >= deployment.request_bytes(rank)
    lengths = longest_context(
        deployment.ranks,
        [max(0, gpu - deployment.loaded_bytes(rank)) for rank in deployment.ranks],
        deployment.kv,
        deployment.encoder_tokens,
    )
    return EngineAnswer(
        rank=rank,
        gpu_bytes=gpu,
        accounts=(
            account(
                "weights", weights, "measured" if "weights" in deployment.known_bytes else "config"
            ),
            *deployment.extras.accounts(rank.stage),
            account("activations", 0, "assumed"),
            account("runtime", 0, "assumed"),
            account("graphs", 0, "assumed"),
            account("kv", cache, "engine rule"),
            account("unused", min(0, left), "engine rule"),
        ),
        kv_bytes=cache,
        capacity=EngineCapacity(
            kv_tokens=int(exact * deployment.context_tokens) if exact is not None else None,
            max_concurrency=float(exact) if exact is not None else None,
            max_context_tokens=lengths,
        ),
        starts=starts,
        reason="" if starts else "weights and one request need more than the card holds",
    )


_INTEGER = "LMDeploy documentation, KV Cache Quantization"
SUPPORT = Support(
    cache={
        "fp8": Requirement(
            source="vLLM documentation, Quantized KV Cache; engine arguments of 0.4.2"
        ),
        "int8": Requirement(source=_INTEGER),
        "int4": Requirement(source=_INTEGER),
        "nvfp4": Requirement(
            source="TensorRT-LLM documentation, Quantization (1.3)",
            capability=10.0,
            chips="Blackwell",
            flag=False,
            checkpoint=OFFLINE_SCALES,
        ),
    },
    weights={
        "fp8": Requirement(source="vLLM documentation, FP8 W8A8 (0.32)"),
        "int4": Requirement(
            source="vLLM documentation, Quantization, Supported Hardware (0.14)",
            flag=False,
            checkpoint=W4,
        ),
    },
    drafting=drafting("vLLM documentation, Speculative Decoding", "mtp", "eagle3", "ngram"),
    offload=Requirement(source="vLLM documentation, engine arguments, --kv-offloading-size"),
    split=split("vLLM documentation, NixlConnector Usage Guide", "a transfer library"),
    context_ranks=True,
)
"""What some engine has: the most that a question may choose from."""


class Arithmetic(Engine):
    """The ceiling: weights and cache, nothing else."""

    def memory(self, deployment: Deployment) -> EngineAnswer:
        """Every byte of the card's catalogue size that is not weights is cache."""
        return ceiling(deployment)


ARITHMETIC = Arithmetic(
    name="arithmetic",
    label="any engine",
    ceiling=True,
    support=SUPPORT,
    data_parallel_attention=True,
)
