"""The attention kernels that SGLang chooses by GPU generation and model, and the pages they work in."""

from __future__ import annotations

from kvroom.engines.sglang.flags import SglangFlags
from kvroom.engines.sglang.models import DEEPSEEK_FAMILY, GATED_DELTA, Traits
from kvroom.engines.sglang.platform import SglangPlatform
from kvroom.engines.sglang.versions import GPT_OSS, LLAMA4, SglangRules
from kvroom.models.dtypes import Dtype

MINIMAX_M3 = ("MiniMaxM3SparseForCausalLM", "MiniMaxM3SparseForConditionalGeneration")


def attention_backends(
    rules: SglangRules,
    flags: SglangFlags,
    platform: SglangPlatform,
    traits: Traits,
    *,
    buffered: bool,
    radix: bool,
) -> frozenset[str]:
    """The attention kernels, of prefill and of decode."""
    split = {flags.prefill_backend, flags.decode_backend}
    main = flags.backend
    if main is None and flags.prefill_backend and len(split) == 1:
        main = flags.prefill_backend
    if main is None:
        main = _default_backend(rules, flags, platform, traits, buffered=buffered, radix=radix)
    if traits.compressed:
        main = "dsv4"
    return frozenset({main, *(b for b in split if b)})


def _default_backend(
    rules: SglangRules,
    flags: SglangFlags,
    platform: SglangPlatform,
    traits: Traits,
    *,
    buffered: bool,
    radix: bool,
) -> str:
    arch = traits.architecture
    if traits.sparse and rules.sparse_index:
        return "dsa"
    if traits.latent:
        if platform.sm100:
            ours = arch in DEEPSEEK_FAMILY and rules.trtllm_mla
            return "trtllm_mla" if ours else "flashinfer"
        return "fa3" if platform.hopper else "triton"
    if arch == GPT_OSS or (arch == LLAMA4 and rules.llama4_trtllm):
        return "trtllm_mha" if platform.sm100 else "fa3" if platform.hopper else "triton"
    if arch.startswith(("Gemma4", "DiffusionGemma")):
        return "trtllm_mha" if platform.sm100 else "triton"
    if arch.startswith("Step3p") and rules.asymmetric_fa4 and platform.blackwell:
        return "fa4"
    if arch in MINIMAX_M3 and platform.sm100:
        return "fa4"
    if platform.sm100 and traits.state and rules.state_pool:
        return _state_backend(rules, flags, traits, buffered=buffered, radix=radix)
    return _headed_backend(rules, flags, platform, traits)


def _headed_backend(
    rules: SglangRules, flags: SglangFlags, platform: SglangPlatform, traits: Traits
) -> str:
    plain = flags.draft_topk is None or (flags.draft_topk == 1 and flags.page in (None, 1))
    if platform.hopper and plain:
        return "fa3"
    known = flags.speculation is None or flags.draft_topk is not None
    if platform.sm100 and plain and known and rules.trtllm_mha:
        return "fa4" if traits.asymmetric and rules.asymmetric_fa4 else "trtllm_mha"
    return "flashinfer"


def _state_backend(
    rules: SglangRules, flags: SglangFlags, traits: Traits, *, buffered: bool, radix: bool
) -> str:
    """What models with recurrent state attend with on data-centre Blackwell."""
    arch = traits.architecture
    if arch in GATED_DELTA:
        paged = buffered or not radix or flags.speculation is not None
        topk = flags.speculation is None or flags.draft_topk == 1
        return "trtllm_mha" if paged and topk and rules.state_tracked else "triton"
    if arch.startswith("NemotronH"):
        return "trtllm_mha" if rules.nemotron_trtllm else "flashinfer"
    if arch.startswith("Granite"):
        return "flashinfer" if rules.state_tracked else "triton"
    if arch.startswith("Lfm2"):
        return "flashinfer"
    return "triton"


def page_tokens(
    rules: SglangRules,
    flags: SglangFlags,
    platform: SglangPlatform,
    traits: Traits,
    backends: frozenset[str],
    *,
    buffered: bool,
) -> int:
    """Tokens of a page: as asked, where the attention kernel can do it, else as the kernel wants."""
    if traits.compressed:
        return 256
    page = flags.page
    if traits.sparse and rules.sparse_index:
        page = 64
    if traits.architecture in MINIMAX_M3 and page is None and backends & {"fa3", "fa4"}:
        page = 128
    if "flashmla" in backends:
        page = 64
    if "cutlass_mla" in backends:
        page = 128
    if backends & {"trtllm_mla", "cutedsl_mla"} and page not in (32, 64):
        page = 64
    if "trtllm_mha" in backends and page not in rules.trtllm_pages:
        page = 64
    if "hpc_ops" in backends:
        page = 64
    if _fa4_pages(rules, flags, platform, traits, backends):
        page = 128
    return page or 1


def _fa4_pages(
    rules: SglangRules,
    flags: SglangFlags,
    platform: SglangPlatform,
    traits: Traits,
    backends: frozenset[str],
) -> bool:
    if traits.latent:
        return False
    if rules.fa4_page == "prefill backend":
        return flags.prefill_backend == "fa4"
    return "fa4" in backends and platform.sm100 and (flags.draft_topk or 0) <= 1


def scaleless_latents(flags: SglangFlags, platform: SglangPlatform, kv: Dtype) -> bool:
    """Whether FP8 latents of sparse attention lie without scales: TensorRT-LLM's kernels, or TileLang's
    for prefill and decode both."""
    default = "trtllm" if platform.blackwell else "flashmla_kv"
    pair = (flags.sparse_prefill or default, flags.sparse_decode or default)
    return kv.bits != 8 or "trtllm" in pair or pair == ("tilelang", "tilelang")


def one_pool_only(
    rules: SglangRules, flags: SglangFlags, traits: Traits, backends: frozenset[str]
) -> bool:
    """Whether gpt-oss falls back to one pool: its first window pools had gaps."""
    if traits.architecture != GPT_OSS or rules.trtllm_windows:
        return False
    return "trtllm_mha" in backends or (
        flags.speculation is not None and rules.window_split == "layers"
    )
