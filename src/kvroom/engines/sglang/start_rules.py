"""What SGLang refuses as it starts: one table, a source a row.

Whether its pools hold anything beside the weights is its own arithmetic (``engine``).
"""

from __future__ import annotations

from kvroom.engines.sglang.support import SUPPORT
from kvroom.engines.start_rules import (
    Against,
    StartRule,
    cache_type,
    cut_blocks,
    too_old,
    uneven_mlp,
)
from kvroom.sharding.deployment import Deployment

Why = Against | None


def _card(deployment: Deployment) -> Why:
    return too_old(deployment, SUPPORT.capability, "SGLang")


def _cache_type(deployment: Deployment) -> Why:
    return cache_type(deployment, SUPPORT.cache_types)


START_RULES = (
    StartRule(
        name="card",
        why=_card,
        source="SGLang, ModelRunner: only supports sm75 and above",
        unsupported=True,
    ),
    StartRule(
        name="cache_type",
        why=_cache_type,
        source="SGLang, choices of --kv-cache-dtype",
        key="kv_dtype",
    ),
    StartRule(
        name="quantisation_blocks",
        why=cut_blocks,
        source="SGLang, Fp8MoEMethod.create_weights: not divisible by weight quantization block_n",
    ),
    StartRule(name="mlp_width", why=uneven_mlp, source="SGLang, distributed/utils.py: divide"),
)
