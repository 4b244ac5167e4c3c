"""What SGLang refuses as it starts: one table, a source a row.

Whether its pools hold anything beside the weights is its own arithmetic (``engine``).
"""

from __future__ import annotations

from functools import partial

from kvroom.engines.flags import plain_args
from kvroom.engines.releases import shown
from kvroom.engines.sglang.answer import resolved
from kvroom.engines.sglang.support import SUPPORT
from kvroom.engines.sglang.versions import LLAMA4
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

Why = Against | None

LLAMA4_KERNELS = ("fa3", "aiter", "triton", "trtllm_mha")
"""Attention kernels that Llama 4 may be asked to start with."""


def _paged_trees(deployment: Deployment) -> Why:
    args = resolved(deployment)
    draft = args.draft
    if draft is None or draft.topk <= 1 or args.page <= 1 or not args.rules.paged_trees:
        return None
    looked_up = draft.algorithm == "NGRAM"
    kernels = ("flashinfer",) if looked_up else args.rules.paged_trees
    if args.backends & frozenset(kernels):
        return None
    flag = "speculative_ngram_max_bfs_breadth" if looked_up else "speculative_eagle_topk"
    return Against(
        f"SGLang drafts trees (of {draft.topk} branches) over pages of {args.page} tokens with "
        f"{' or '.join(kernels)} only",
        f"--{flag.replace('_', '-')} 1 drafts a line",
        {flag: 1},
    )


def _grouped_drafts(deployment: Deployment) -> Why:
    args = resolved(deployment)
    if args.draft is None or args.flags.attention_dp == 1:
        return None
    if args.draft.algorithm not in ("NGRAM", "STANDALONE"):
        return None
    return Against(
        f"SGLang does not draft by {args.draft.algorithm} with data-parallel attention",
        "EAGLE, or --tp without --enable-dp-attention",
    )


def _vocabularies(deployment: Deployment) -> Why:
    args, drafted = resolved(deployment), deployment.extras.draft
    if args.draft is None or args.draft.algorithm != "STANDALONE" or not args.rules.same_vocabulary:
        return None
    own = deployment.model.vocab_size
    if drafted is None or drafted.model.vocab_size == own:
        return None
    return Against(
        f"the draft model knows {drafted.model.vocab_size:,} tokens and the model {own:,}",
        "a draft of the model's own family",
    )


def _llama4_kernel(deployment: Deployment) -> Why:
    args = resolved(deployment)
    asked = args.flags.backend in LLAMA4_KERNELS
    if args.traits.architecture != LLAMA4 or not args.rules.llama4_kernel_asked or asked:
        return None
    return Against(
        f"SGLang {shown(args.rules.release)} starts Llama 4 only with an attention kernel that is asked for",
        "--attention-backend fa3 on Hopper, triton elsewhere",
        {"attention_backend": "fa3" if args.platform.hopper else "triton"},
    )


def _whole_gb(deployment: Deployment) -> Why:
    size = plain_args(deployment.args).get("hicache_size")
    number = number_of(size) if isinstance(size, str) else size
    if not isinstance(number, float) or "." not in str(size):
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
        name="paged_trees",
        why=_paged_trees,
        source="SGLang 0.5.14, _handle_eagle_family and _handle_ngram: topk > 1 with page_size > 1",
    ),
    StartRule(
        name="vocabularies",
        why=_vocabularies,
        source="SGLang 0.5.17, StandaloneWorkerV2: requires the draft model to share the same vocabulary",
    ),
    StartRule(
        name="grouped_drafts",
        why=_grouped_drafts,
        source="SGLang 0.5.14, _handle_eagle_family and _handle_ngram: does not support dp attention",
    ),
    StartRule(
        name="llama4_kernel",
        why=_llama4_kernel,
        source="SGLang 0.5.1 to 0.5.5, server_args.py: fa3, aiter, or triton is required for Llama4 model",
    ),
    StartRule(
        name="hicache_size",
        why=_whole_gb,
        source="SGLang 0.4.6 to 0.5.23, server_args.py: --hicache-size, type=int",
    ),
    StartRule(name="mlp_width", why=uneven_mlp, source="SGLang, distributed/utils.py: divide"),
)
