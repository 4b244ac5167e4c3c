"""What SGLang refuses as it starts: one table, a source a row.

Whether its pools hold anything beside the weights is its own arithmetic (``engine``).
"""

from __future__ import annotations

from functools import partial

from kvroom.engines.flags import plain_args
from kvroom.engines.sglang.support import SUPPORT
from kvroom.engines.start_rules import (
    Against,
    StartRule,
    cache_type,
    cut_blocks,
    too_old,
    uneven_mlp,
)
from kvroom.scenario.values import number_of
from kvroom.sharding.deployment import Deployment


def _whole_gb(deployment: Deployment) -> Against | None:
    size = plain_args(deployment.args).get("hicache_size")
    number = number_of(size) if isinstance(size, str) else size
    if not isinstance(number, float) or isinstance(size, int) or "." not in str(size):
        return None
    whole = max(1, int(number))
    return Against(
        f"--hicache-size takes whole GB, and {size} is none",
        f"--hicache-size {whole}",
        {"hicache_size": whole},
    )


START_RULES = (
    StartRule(
        name="card",
        why=partial(too_old, least=SUPPORT.capability, engine="SGLang"),
        source="SGLang, ModelRunner: only supports sm75 and above",
        unsupported=True,
    ),
    StartRule(
        name="cache_type",
        why=partial(cache_type, known=SUPPORT.cache_types),
        source="SGLang, choices of --kv-cache-dtype",
        key="kv_dtype",
    ),
    StartRule(
        name="quantisation_blocks",
        why=cut_blocks,
        source="SGLang, Fp8MoEMethod.create_weights: not divisible by weight quantization block_n",
    ),
    StartRule(
        name="hicache_size",
        why=_whole_gb,
        source="SGLang 0.4.6 to 0.5.23, server_args.py: --hicache-size, type=int",
    ),
    StartRule(name="mlp_width", why=uneven_mlp, source="SGLang, distributed/utils.py: divide"),
)
