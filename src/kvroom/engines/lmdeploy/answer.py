"""LMDeploy's memory: a share of what the loaded model leaves free, in blocks of 64 tokens.

The PyTorch engine first takes off what it reserves for its run, two bytes a logit of a whole prefill and
of two batches, and its slots of recurrent state; TurboMind takes its share of all that is free, and works
in the rest. Either starts with fewer blocks than a session of ``--session-len`` has, and cuts sessions to
what there is. Sources: ``ExecutorBase._get_runtime_size`` and ``_update_num_gpu_blocks``
(``pytorch/engine/executor/base.py``, 0.18); LMDeploy documentation, ``cache_max_entry_count``.
"""

from __future__ import annotations

from kvroom.answer.plan import EngineCapacity
from kvroom.engines import flags as read
from kvroom.engines.base import EngineAnswer, account
from kvroom.engines.lmdeploy.flags import KNOWN_FLAGS, LmdeployFlags, read_flags
from kvroom.records import dataclass
from kvroom.sharding.deployment import Deployment
from kvroom.sharding.layout import Rank
from kvroom.sharding.ledger import binding_rank, longest_context
from kvroom.units import GIB, MIB, ceil_div

ACTIVATIONS = (1 * GIB, 300 * MIB, 4 * GIB)
RUNTIME = (300 * MIB, 50 * MIB, 2 * GIB)
GRAPHS = (500 * MIB, 40 * MIB, 3 * GIB)
"""Of a PyTorch engine; TurboMind captures none."""
FEWEST_BLOCKS = 16
"""The PyTorch engine halves its prefill until so many blocks are left."""
SEQUENCES = (
    (("A100", "A800"), 384),
    (("H100", "H800", "H200", "L20Y"), 1024),
)
"""Sequences at once by the card's name (``get_max_batch_size``, ``utils.py``)."""
OTHER_SEQUENCES = 128
LOGIT_BYTES = 2
Band = tuple[int, int, int]


@dataclass(frozen=True, kw_only=True)
class LmdeployMemory:
    """One rank's: what is free once its model is loaded, what is reserved, what the cache gets."""

    free: int
    reserved: int
    state: int
    share: float

    @property
    def cache(self) -> int:
        """Bytes for blocks."""
        return max(0, int((self.free - self.state - self.reserved) * self.share))


def sequences_of(deployment: Deployment, flags: LmdeployFlags) -> int:
    """Requests that run at once."""
    if flags.sequences is not None:
        return flags.sequences
    name = deployment.device.name.upper()
    return next((count for cards, count in SEQUENCES if name.startswith(cards)), OTHER_SEQUENCES)


def answer(deployment: Deployment) -> EngineAnswer:
    """What LMDeploy makes of the deployment."""
    flags = read_flags(deployment.args, deployment.layout)
    sequences = sequences_of(deployment, flags)
    known = deployment.known_bytes
    gpu = known.get("visible", deployment.device.engine_bytes)
    others = max(0, gpu - known.get("free_before_load", gpu))
    runtime = _band(deployment, "runtime", RUNTIME)
    made = [
        [_memory(deployment, flags, rank, gpu - others - taken, sequences) for taken in runtime]
        for rank in deployment.ranks
    ]
    rank = binding_rank(deployment, gpu - others - runtime[0])
    memory, high, low = made[deployment.ranks.index(rank)]
    block = _request(deployment, rank, flags.block_tokens)
    cache = memory.cache if flags.blocks is None else flags.blocks * block
    need = _request(deployment, rank, deployment.context_tokens, flags.block_tokens)
    most, least, best = (size / need if need else None for size in (cache, low.cache, high.cache))
    caches = [of_rank[0].cache + of_rank[0].state for of_rank in made]
    longest = longest_context(deployment.ranks, caches, deployment.kv, deployment.encoder_tokens)
    starts = memory.free > 0 and cache >= block
    weights = known.get("weights", rank.weight_bytes)
    accounts = [
        account("weights", weights, "measured" if "weights" in known else "config"),
        *deployment.extras.accounts(rank.stage),
    ]
    for name, band in (
        ("activations", _activations(deployment, flags, memory)),
        ("runtime", runtime),
        ("graphs", _band(deployment, "graphs", GRAPHS if flags.pytorch else (0, 0, 0))),
    ):
        source = "measured" if name in known else "assumed"
        accounts.append(
            account(name, band[0] + (others if name == "runtime" else 0), source, band[1:])
        )
    held = cache + memory.state
    left = gpu - held - sum(one.bytes for one in accounts)
    return EngineAnswer(
        rank=rank,
        gpu_bytes=gpu,
        accounts=(
            *accounts,
            account("kv", held, "engine rule", (low.cache + low.state, high.cache + high.state)),
            account("unused", left, "engine rule"),
        ),
        kv_bytes=held,
        capacity=EngineCapacity(
            num_blocks=cache // block if block else None,
            block_tokens=flags.block_tokens,
            kv_tokens=int(most * deployment.context_tokens) if most is not None else None,
            max_concurrency=most,
            low=least,
            high=best,
            max_context_tokens=longest and longest // flags.block_tokens * flags.block_tokens,
            max_running_requests=sequences,
        ),
        starts=starts,
        reason="" if starts else "its share of what the weights leave free is less than one block",
        cache_given=flags.blocks is not None,
        others_bytes=others,
        warnings=(
            *read.unknown("LMDeploy", deployment.args, KNOWN_FLAGS),
            "what LMDeploy takes beside weights and cache is assumed: none of its starts is published",
        ),
    )


def _memory(
    deployment: Deployment, flags: LmdeployFlags, rank: Rank, there: int, sequences: int
) -> LmdeployMemory:
    """``rank``'s of ``there`` bytes that its process may take."""
    weights = deployment.known_bytes.get("weights", rank.weight_bytes)
    free = there - weights - deployment.extras.loaded_bytes(rank.stage)
    state = reserved = 0
    if flags.pytorch:
        state = (sequences + 2) * _state(deployment, rank)
        reserved = _reserved(deployment, flags, rank, free - state, sequences)
    return LmdeployMemory(free=free, reserved=reserved, state=state, share=flags.share)


def _reserved(
    deployment: Deployment, flags: LmdeployFlags, rank: Rank, free: int, sequences: int
) -> int:
    """What the PyTorch engine keeps for logits: of a whole prefill, halved until some blocks are left."""
    block = _request(deployment, rank, flags.block_tokens)
    tokens = flags.prefill_tokens
    while True:
        reserved = (tokens + 2 * sequences) * deployment.model.vocab_size * LOGIT_BYTES
        if tokens <= 1 or int((free - reserved) * flags.share) >= FEWEST_BLOCKS * block:
            return reserved
        tokens //= 2


def _activations(deployment: Deployment, flags: LmdeployFlags, memory: LmdeployMemory) -> Band:
    """What it works in: its reserve, or for TurboMind an assumed part of what its share leaves."""
    if flags.pytorch and "activations" not in deployment.known_bytes:
        return (
            memory.reserved,
            min(ACTIVATIONS[1], memory.reserved),
            max(ACTIVATIONS[2], memory.reserved),
        )
    return _band(deployment, "activations", ACTIVATIONS)


def _band(deployment: Deployment, name: str, assumed: Band) -> Band:
    """An assumed account, or the measured one."""
    known = deployment.known_bytes.get(name)
    return assumed if known is None else (known, known, known)


def _request(deployment: Deployment, rank: Rank, tokens: int, block_tokens: int = 1) -> int:
    """Bytes of blocks that a request of ``tokens`` holds on ``rank``, its recurrent state apart."""
    whole = ceil_div(tokens, block_tokens) * block_tokens
    stored = rank.request_bytes(whole, deployment.kv, deployment.encoder_tokens)
    return stored - _state(deployment, rank)


def _state(deployment: Deployment, rank: Rank) -> int:
    """Bytes of one request's recurrent state on ``rank``."""
    return sum(
        kind.stored_bytes(1, deployment.kv) * count for kind, count in rank.stores if kind.recurrent
    )
