"""What SGLang refuses as it starts: one table, a source a row.

Whether its pools hold anything beside the weights is its own arithmetic (``engine``).
"""

from __future__ import annotations

from functools import partial

from kvroom.engines.sglang.support import SUPPORT
from kvroom.engines.start_rules import (
    StartRule,
    cache_type,
    cut_blocks,
    too_old,
    uneven_mlp,
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
    StartRule(name="mlp_width", why=uneven_mlp, source="SGLang, distributed/utils.py: divide"),
)
