"""SGLang's settings as it resolves them before it loads: kernels, pages, cache width, chunks, drafts."""

from __future__ import annotations

from dataclasses import replace

from kvroom.engines.sglang.drafting import NGRAM_TOKENS
from kvroom.engines.sglang.flags import SglangFlags, read_flags
from kvroom.engines.sglang.kernels import (
    attention_backends,
    one_pool_only,
    page_tokens,
    scaleless_latents,
)
from kvroom.engines.sglang.models import DRAFTS_UNCOUNTED, Traits, traits_of
from kvroom.engines.sglang.platform import SglangPlatform, platform_of
from kvroom.engines.sglang.versions import SglangRules
from kvroom.models.dtypes import BF16, CACHE_DTYPES, Dtype
from kvroom.records import dataclass
from kvroom.sharding.deployment import Deployment
from kvroom.units import ceil_div

KIB = 1024
TREES = ("LlamaForCausalLM", "Grok1ForCausalLM", "Grok1VForCausalLM")
"""Models that EAGLE drafts a tree for by default, of up to 8 tokens; others get a line of 4."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """Speculative decoding: ``tokens`` verified a step, ``layers`` of the draft that keep a cache."""

    algorithm: str
    steps: int
    topk: int
    tokens: int
    layers: int
    own_checkpoint: bool

    @property
    def keeps_cache(self) -> bool:
        """Whether the draft model writes a cache of its own."""
        return self.algorithm in ("EAGLE", "EAGLE3", "STANDALONE")

    @property
    def reads_states(self) -> bool:
        """Whether it computes with the model's states, each beside the token that came next."""
        return self.algorithm in ("EAGLE", "EAGLE3")

    def overlaps(self, rules: SglangRules) -> bool:
        """Whether a release has the worker for it that scheduling may overlap with."""
        line = self.topk == 1 and self.keeps_cache
        return rules.drafts_overlap == "always" or (rules.drafts_overlap == "lines" and line)

    def reserved(self, page: int) -> int:
        """Tokens that a request holds at a decode beyond those it has computed: twice those of one step, for
        which are kept of the step under way is not known yet (``mem_cache/allocation_sizing.py``)."""
        each = self.steps * self.topk
        if page > 1 and self.topk > 1 and self.keeps_cache:
            each = ceil_div(page - 1 + self.steps, page) * page * self.topk
        return 2 * max(each, self.tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class SglangArgs:
    """One question with everything that SGLang decides before it looks at memory.

    ``chunk`` is the prefill chunk before data-parallel attention divides it, ``graph_size`` the largest
    decode batch captured, ``requests`` the request limit asked for (or set by a rule), all groups
    together. ``state_slots_each``: slots of recurrent state that a running request may take.
    """

    d: Deployment
    rules: SglangRules
    flags: SglangFlags
    platform: SglangPlatform
    traits: Traits
    kv: Dtype
    chunk: int
    graph_size: int
    prefill_graphs: bool
    page: int
    backends: frozenset[str]
    sparse_raw: bool
    windows: bool
    radix: bool
    overlap: bool
    state_slots_each: int
    requests: int | None
    draft: Draft | None

    @property
    def attention_tp(self) -> int:
        """Ranks that share one request's heads."""
        inner = self.flags.attention_dp * self.flags.context_parallel
        return max(1, self.d.layout.tp // inner)

    @property
    def chunk_each(self) -> int:
        """The prefill chunk of one data-parallel attention group."""
        return self.chunk // self.flags.attention_dp if self.chunk > 0 else self.chunk

    @property
    def requests_each(self) -> int | None:
        """The request limit of one data-parallel attention group."""
        return None if self.requests is None else self.requests // self.flags.attention_dp


def settings_of(deployment: Deployment, rules: SglangRules) -> SglangArgs:
    """The SglangArgs of ``d`` in a release with ``rules``."""
    flags = read_flags(deployment.args, deployment.layout)
    platform = platform_of(deployment.device)
    traits = traits_of(deployment.model, rules, flags)
    draft = _draft(deployment, flags, traits)
    requests = flags.requests
    if requests is None and (draft or traits.compressed):
        requests = 256 if traits.compressed else 48
    chunk, graphs = card_defaults(platform, rules, deployment.layout.tp)
    if flags.chunk is not None:
        chunk = flags.chunk
    overlap = flags.overlap and deployment.layout.pp == 1
    radix = _radix(rules, flags, traits, draft)
    buffered = _extra_buffer(rules, flags, traits, overlap=flags.overlap) and radix
    if traits.state and radix and not buffered:
        overlap = False
    backends = attention_backends(rules, flags, platform, traits, buffered=buffered, radix=radix)
    if traits.state and not rules.state_tracked and "trtllm_mha" in backends and not buffered:
        radix = False  # these kernels need pages, which that radix cache does not know
    kv = _cache_dtype(deployment, rules, platform, traits)
    size = flags.graph_size or graphs
    if flags.graph_size is None and requests is not None and rules.graphs_capped:
        size = min(size, flags.requests or size)
    made = SglangArgs(
        d=deployment,
        rules=rules,
        flags=flags,
        platform=platform,
        traits=traits,
        kv=kv,
        chunk=chunk,
        graph_size=size,
        prefill_graphs=_prefill_graphs(deployment, rules, flags, traits, draft),
        page=page_tokens(rules, flags, platform, traits, backends, buffered=buffered),
        backends=backends,
        sparse_raw=scaleless_latents(flags, platform, kv),
        windows=traits.windows and not one_pool_only(rules, flags, traits, backends),
        radix=radix,
        overlap=overlap,
        state_slots_each=_slots_each(
            rules, flags, draft, radix=radix, buffered=buffered, overlap=overlap
        ),
        requests=requests,
        draft=draft,
    )
    if hopper_qwen3_vl(made) and flags.graph_size is None and flags.requests:
        grown = max(size, flags.requests) if flags.requests <= 512 else size
        made = replace(made, graph_size=grown)
    return made


def card_defaults(platform: SglangPlatform, rules: SglangRules, tp: int) -> tuple[int, int]:
    """Prefill chunk and largest decode graph by the card's memory."""
    mib, wide = platform.memory_mib, tp >= 4
    if mib < 20 * KIB:
        return 2048, 8
    if mib < 35 * KIB:
        chunk, few, many = rules.small_card
        return chunk, many if wide else few
    if mib < 60 * KIB:
        return (4096 if rules.reserve_from_chunk else 8192), 160 if wide else 32
    if mib < 160 * KIB:
        return 8192, 512 if wide else 256
    return 16384, 512


def hopper_qwen3_vl(args: SglangArgs) -> bool:
    """Qwen3-VL on a Hopper card of 60 GiB and more, which has defaults of its own."""
    return (
        args.rules.hopper_qwen3_vl
        and args.platform.hopper
        and args.platform.memory_mib >= 60 * KIB
        and args.traits.multimodal
        and args.d.model.model_type in ("qwen3_vl", "qwen3_vl_moe")
    )


def _draft(deployment: Deployment, flags: SglangFlags, traits: Traits) -> Draft | None:
    if flags.speculation is None:
        return None
    steps, topk, tokens = flags.draft_steps, flags.draft_topk, flags.draft_tokens
    if flags.speculation == "NGRAM":
        topk, tokens = flags.ngram_breadth, tokens or NGRAM_TOKENS
        steps = tokens // topk if steps is None else steps
    elif steps is None:
        tree = traits.architecture in TREES and flags.speculation != "STANDALONE"
        chosen = (5, 4, 8) if tree else (3, 1, 4)
        steps, topk, tokens = chosen[0], topk or chosen[1], tokens or chosen[2]
    topk = topk or 1
    if topk == 1 and flags.speculation in ("EAGLE", "EAGLE3", "STANDALONE"):
        tokens = steps + 1
    layers = sum(r.count for r in deployment.model.mtp)
    if traits.architecture in DRAFTS_UNCOUNTED:
        layers = 0
    return Draft(
        algorithm=flags.speculation,
        steps=steps,
        topk=topk,
        tokens=tokens or steps + 1,
        layers=layers or len(deployment.extras.draft_layers) or int(flags.draft_path),
        own_checkpoint=flags.draft_path,
    )


def _radix(rules: SglangRules, flags: SglangFlags, traits: Traits, draft: Draft | None) -> bool:
    if traits.kda and not rules.kimi_radix:
        return False
    if (
        traits.state
        and draft
        and not rules.state_tracked
        and flags.strategy in ("auto", "no_buffer")
    ):
        return False
    return flags.radix


def _extra_buffer(rules: SglangRules, flags: SglangFlags, traits: Traits, *, overlap: bool) -> bool:
    """Whether the radix cache of a model with state keeps slots to track it."""
    if not traits.state:
        return False
    if flags.strategy != "auto":
        return flags.strategy.startswith("extra_buffer")
    paged = flags.page is not None and flags.page > 1
    return traits.architecture in rules.state_tracked and (overlap or paged)


def _slots_each(
    rules: SglangRules,
    flags: SglangFlags,
    draft: Draft | None,
    *,
    radix: bool,
    buffered: bool,
    overlap: bool,
) -> int:
    if not radix:
        return 1
    if not buffered:
        return 3
    if flags.strategy == "extra_buffer_lazy":
        return 4
    lone = draft is not None if not rules.state_tracked else not overlap
    return 4 if lone else 5


def _cache_dtype(
    deployment: Deployment, rules: SglangRules, platform: SglangPlatform, traits: Traits
) -> Dtype:
    """The cache's width: as asked, else 16 bits or what the model's own rule makes of ``auto``."""
    if traits.compressed:
        return (
            BF16
            if deployment.kv.bits == 16 and deployment.kv_asked != "auto"
            else CACHE_DTYPES["fp8"]
        )
    if deployment.kv_asked != "auto":
        return deployment.kv
    if traits.sparse and rules.sparse_index:
        return CACHE_DTYPES["fp8"] if platform.blackwell else BF16
    return deployment.kv if rules.checkpoint_cache else BF16


def _prefill_graphs(
    deployment: Deployment,
    rules: SglangRules,
    flags: SglangFlags,
    traits: Traits,
    draft: Draft | None,
) -> bool:
    """Whether prefill runs in CUDA graphs, which then need memory of their own."""
    if rules.prefill_graphs in ("none", "asked"):
        return rules.prefill_graphs == "asked" and flags.prefill_graphs_asked
    if flags.prefill_graphs is not None:
        return flags.prefill_graphs != "disabled"
    early = rules.prefill_graphs == "piecewise" or not rules.prefill_graphs_with_latents
    off = (
        (deployment.layout.pp > 1 and not rules.prefill_graphs_with_pp)
        or (flags.attention_dp > 1 and not rules.prefill_graphs_with_dp)
        or (traits.latent and not traits.sparse and not rules.prefill_graphs_with_latents)
        or (traits.kda and not rules.prefill_graphs_with_kda)
        or traits.architecture in rules.prefill_graphs_off
        or (traits.multimodal and traits.architecture not in rules.prefill_graphs_seeing)
        or deployment.layout.dcp > 1
        or flags.context_parallel > 1
        or flags.two_batches
        or flags.a2a not in (("none",) if early else ("none", "deepep", "megamoe", "flashinfer"))
        or (flags.lora and early)
        or (draft is not None and not rules.prefill_graphs_with_draft)
    )
    return not off
