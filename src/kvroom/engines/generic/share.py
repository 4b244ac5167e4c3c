"""A serving engine whose own rules are not modelled: a share of visible memory, less what any takes.

The share is what such engines take by default. Activations, runtime and graphs are
assumed from what engines print at start-up (a few hundred MiB to a few GiB; the band says so).
"""

from __future__ import annotations

from kvroom.answer.plan import EngineCapacity
from kvroom.engines.base import Engine, EngineAnswer, account
from kvroom.engines.support import Support
from kvroom.models.weight_dtypes import EXL2, MLX
from kvroom.records import dataclass
from kvroom.sharding.deployment import Deployment
from kvroom.sharding.ledger import binding_rank, longest_context
from kvroom.units import GIB, MIB, ceil_div, check_float

SHARE = 0.9
BLOCK_TOKENS = 16
ACTIVATIONS = (1 * GIB, 300 * MIB, 4 * GIB)
RUNTIME = (300 * MIB, 50 * MIB, 2 * GIB)
GRAPHS = (500 * MIB, 40 * MIB, 3 * GIB)


def share_of_memory(deployment: Deployment, usual: float = SHARE) -> EngineAnswer:
    """Visible bytes × share − weights − assumed overheads, in whole blocks of 16 tokens."""
    gpu = deployment.known_bytes.get("visible", deployment.device.engine_bytes)
    share = check_float(
        "engine_args.gpu_memory_utilization",
        deployment.args.get("gpu_memory_utilization", usual),
        low=0.01,
        high=1.0,
    )
    over = {
        "activations": ACTIVATIONS,
        "runtime": RUNTIME,
        "graphs": GRAPHS,
    }
    for name in over:
        if name in deployment.known_bytes:
            over[name] = (deployment.known_bytes[name],) * 3
    budget = int(gpu * share)
    assumed = sum(value[0] for value in over.values())
    rank = binding_rank(deployment, budget - assumed)
    weights = deployment.known_bytes.get("weights", rank.weight_bytes)
    taken = assumed + deployment.extras.loaded_bytes(rank.stage)
    left = budget - weights - taken
    cache = max(0, left)
    need = rank.request_bytes(
        ceil_div(deployment.context_tokens, BLOCK_TOKENS) * BLOCK_TOKENS,
        deployment.kv,
        deployment.encoder_tokens,
    )
    caches = [max(0, budget - deployment.loaded_bytes(rank) - assumed) for rank in deployment.ranks]
    most = cache / need if need else None
    starts = left > 0 and cache >= need
    low = max(0, left - sum(value[2] - value[0] for value in over.values()))
    high = max(0, left + sum(value[0] - value[1] for value in over.values()))
    longest = longest_context(deployment.ranks, caches, deployment.kv, deployment.encoder_tokens)
    return EngineAnswer(
        rank=rank,
        gpu_bytes=gpu,
        accounts=(
            account(
                "weights", weights, "measured" if "weights" in deployment.known_bytes else "config"
            ),
            *deployment.extras.accounts(rank.stage),
            *(
                account(
                    key,
                    value[0],
                    "measured" if key in deployment.known_bytes else "assumed",
                    (value[1], value[2]),
                )
                for key, value in over.items()
            ),
            account("kv", cache, "engine rule", (low, high)),
            account("unused", gpu - weights - taken - cache, "engine rule"),
        ),
        kv_bytes=cache,
        capacity=EngineCapacity(
            block_tokens=BLOCK_TOKENS,
            kv_tokens=int(most * deployment.context_tokens) if most is not None else None,
            max_concurrency=most,
            low=low / need if need else None,
            high=high / need if need else None,
            max_context_tokens=longest and longest // BLOCK_TOKENS * BLOCK_TOKENS,
        ),
        starts=starts,
        reason="" if starts else "weights, overheads and one request need more than its share",
        warnings=(
            f"{deployment.engine}'s own rules are not modelled yet: capacity.engine is an estimate",
        ),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class ShareOfMemory(Engine):
    """An engine of which only such a share is assumed."""

    share: float = SHARE

    def memory(self, deployment: Deployment) -> EngineAnswer:
        """A share of visible memory, less what any engine takes."""
        return share_of_memory(deployment, self.share)


EXLLAMAV2 = ShareOfMemory(
    name="exllamav2",
    label="ExLlamaV2",
    support=Support(weight_types=("fp16", "bf16", "gptq_int4_g128", *EXL2)),
)
MLC = ShareOfMemory(name="mlc", label="MLC LLM")
ATOM = ShareOfMemory(name="atom", label="ATOM", eras=())
GPT_FAST = ShareOfMemory(name="gpt-fast", label="gpt-fast")
MLX_LM = ShareOfMemory(
    name="mlx",
    label="MLX",
    share=1.0,  # mlx_lm wires what Metal calls the recommended working set, which is what a card shows
    support=Support(weight_types=("bf16", "fp16", *MLX, "mxfp4")),
)
