"""SGLang's rules by release: one table of what each release brought.

Sources: the Python code of the releases themselves, one of every minor release from 0.4.10 to 0.5.23
(a change is put down to the first of them that has it).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from kvroom.engines.releases import Changes, Release, rules_at
from kvroom.records import dataclass

PrefillGraphs = Literal["none", "asked", "piecewise", "breakable"]
RequestRule = Literal["profiled", "at most estimated", "at most half the tokens"]
WindowSplit = Literal["layers", "profiled bytes", "bytes"]
DraftState = Literal["times the slots", "all requests", "with the slots"]
PoolRule = Literal["none", "all in tokens", "state by request"]

LLAMA4 = "Llama4ForConditionalGeneration"
GPT_OSS = "GptOssForCausalLM"
_WINDOWS_8 = frozenset({LLAMA4, GPT_OSS, "MiMoV2FlashForCausalLM"})
_WINDOWS_9 = _WINDOWS_8 | {"Step3p5ForCausalLM"}
_WINDOWS_11 = _WINDOWS_9 | {
    "MiMoV2ForCausalLM",
    "Gemma4ForCausalLM",
    "Gemma4ForConditionalGeneration",
}
_WINDOWS_12 = _WINDOWS_11 | {"DeepseekV4ForCausalLM", "LagunaForCausalLM"}
_WINDOWS_14 = _WINDOWS_12 | {
    "Step3p7ForConditionalGeneration",
    "Gemma4UnifiedForConditionalGeneration",
}
_WINDOWS_16 = _WINDOWS_14 | {
    "MellumForCausalLM",
    "InklingForConditionalGeneration",
    "UnlimitedOCRForCausalLM",
}
_WINDOWS_18 = _WINDOWS_16 | {
    "MuseGlimmerForCausalLM",
    "MuseGlimmerForConditionalGeneration",
}
_WINDOWS_20 = _WINDOWS_18 | {"GraniteSWAForCausalLM", "GraniteMoeSWAForCausalLM"}
_WINDOWS_22 = _WINDOWS_20 | {
    "DiffusionGemmaForBlockDiffusion",
    "EmbeddingGemma2Model",
    "IQuestQ1ForCausalLM",
}
_WINDOWS_23 = _WINDOWS_22 | {"BeamForCausalLM"}

_TRACKED_14 = frozenset(
    {
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5MoeForConditionalGeneration",
        "Qwen3NextForCausalLM",
        "InternS2PreviewForConditionalGeneration",
        "MiniCPMV4_6ForConditionalGeneration",
        "BailingMoeV2_5ForCausalLM",
        "FalconH1ForCausalLM",
        "GraniteMoeHybridForCausalLM",
        "NemotronHForCausalLM",
        "NemotronHPuzzleForCausalLM",
    }
)
_TRACKED_16 = _TRACKED_14 | {"KimiLinearForCausalLM"}
_TRACKED_18 = _TRACKED_16 | {"KimiK3ForConditionalGeneration"}
_TRACKED_20 = _TRACKED_18 | {
    "Qwen3_5ForCausalLM",
    "Qwen3_5MoeForCausalLM",
    "Qwen4ExpForConditionalGeneration",
    "BailingMoeV3ForCausalLM",
    "Glm5NextForConditionalGeneration",
    "NemotronH_Omni_Reasoning_V3",
}
_TRACKED_22 = _TRACKED_20 | {
    "BailingMoeV3VLForConditionalGeneration",
    "InklingForConditionalGeneration",
}

_SEEN_16 = frozenset({"Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration"})
_SEEN_18 = _SEEN_16 | {
    "InternS2MobiusForConditionalGeneration",
    "KimiK25ForConditionalGeneration",
    "KimiK3ForConditionalGeneration",
    "MuseGlimmerForConditionalGeneration",
}
_SEEN_19 = _SEEN_18 | {
    "Cohere2VisionForConditionalGeneration",
    "PaddleOCRVLForConditionalGeneration",
}
_SEEN_20 = _SEEN_19 | {"Glm5NextForConditionalGeneration"}
_SEEN_22 = _SEEN_20 | {
    "MiniMaxM3SparseForCausalLM",
    "MiniMaxM3SparseForConditionalGeneration",
    "Qwen4ExpForConditionalGeneration",
}
_SEEN_23 = _SEEN_22 | {"MuseSparkForConditionalGeneration"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SglangRules:
    """What one release does. The defaults are those of 0.4.10, the oldest modelled."""

    release: Release = (0, 4, 10)

    reserve_from_chunk: bool = False
    """The share left out of the static part follows prefill chunk and graph sizes, not card size only."""
    small_card: tuple[int, int, int] = (2048, 8, 80)
    """Prefill chunk and decode graph sizes (below and from tp 4) of cards of 20 to 35 GiB."""
    eagle_mib: int = 2048
    standalone_mib: int = 2048
    """MiB left for a draft model."""
    graphs_counted_when_off: bool = True
    """The decode graphs' share stays even where graphs are switched off."""
    graphs_capped: bool = False
    """Decode graphs are not captured beyond ``max_running_requests``."""
    prefill_graphs: PrefillGraphs = "none"
    prefill_graph_divisor: int = 0
    """Prefill graphs take so many tokens a MiB; 0: 8 MiB for each size captured."""
    prefill_graphs_with_pp: bool = True
    prefill_graphs_with_latents: bool = True
    prefill_graphs_with_dp: bool = True
    prefill_graphs_with_kda: bool = True
    prefill_graphs_with_draft: bool = True
    prefill_graphs_off: frozenset[str] = frozenset()
    """Architectures without prefill graphs."""
    prefill_graphs_seeing: frozenset[str] = frozenset()
    """Multimodal architectures that have them all the same."""
    deepep_mib: int = 0
    image_cache_mib: int = 0
    """Taken off the cache where the model runs as multimodal."""
    hopper_qwen3_vl: bool = False
    """Qwen3-VL on large Hopper cards keeps features on the card instead of an image cache."""

    spread_odd_layers: bool = False
    """Pipeline stages differ by one layer, the last ones having more; before, the last takes the rest."""
    value_width: bool = False
    """Values may be narrower than keys; before, both count as wide as keys."""
    trtllm_mla: bool = False
    trtllm_mha: bool = False
    nemotron_trtllm: bool = False
    llama4_trtllm: bool = False
    """B200 and its kin attend with TensorRT-LLM's kernels, in pages of 64: DeepSeek's latents, plain
    attention, Nemotron-H, Llama 4."""
    llama4_kernel_asked: bool = False
    """Llama 4 starts with an attention kernel that is asked for by name only."""
    fa4_page: Literal["prefill backend", "sm100"] = "prefill backend"
    trtllm_pages: tuple[int, ...] = (16, 32, 64)
    trtllm_windows: bool = False
    """Those kernels know gpt-oss's window pool."""
    asymmetric_fa4: bool = False
    """Keys wider than values are attended with FlashAttention 4 there."""
    checkpoint_cache: bool = False
    """``auto`` takes the cache width that the checkpoint was quantised for."""

    sparse_index: bool = False
    """DeepSeek Sparse Attention's indexer is counted."""
    sparse_scales: bool = False
    """So are the scales of its FP8 latents."""
    sparse_shared: bool = False
    """Layers that reuse another's choice have no indexer."""
    draft_charged: bool = False
    """A token also pays for the draft model's layers."""
    draft_slots: bool = True
    """Tokens for drafts in flight are added to the pool."""

    llama4_ratio: bool = True
    """Llama-4 has a window pool only when asked for (``hybrid_kvcache_ratio``)."""
    window_archs: frozenset[str] = frozenset()
    """Architectures with a pool of their own for window layers."""
    window_split: WindowSplit = "layers"
    window_cap: bool = False
    """With a given request limit and no radix cache the window pool is sized for just those requests."""
    window_check: bool = False
    """A window pool that cannot admit one request is refused."""
    compressed: PoolRule = "none"
    """How DeepSeek-V4's pools are sized."""
    compressed_ring_page: bool = False
    """Its rings lie in pages of 256 tokens, not of a window."""
    compressed_padded: bool = False
    """Its pages are padded to whole multiples of 576 bytes."""

    state_pool: bool = False
    """Recurrent state has a pool of its own."""
    state_padding: bool = False
    """One more slot, for padding, comes out of the budget."""
    state_without_radix: int | None = 512
    """Slots where the radix cache is off and no request limit given; None: the share as usual."""
    draft_state: DraftState = "times the slots"
    state_tracked: frozenset[str] = frozenset()
    """Architectures whose radix cache keeps extra slots of state by default (``extra_buffer``)."""
    kimi_radix: bool = False
    """Kimi-Linear can use the radix cache."""

    requests: RequestRule = "profiled"

    drafts_overlap: Literal["never", "lines", "always"] = "never"
    """With which drafts too a batch is scheduled while the one before it is computed, and each request keeps
    room for what both may keep: those of a model in a line, or all (the second version of their workers)."""
    same_vocabulary: bool = False
    """A draft model of its own has to have the model's vocabulary."""
    draft_pairs: bool = False
    """Where drafts come from the model's states its radix tree is of pairs of ids."""
    paged_trees: tuple[str, ...] = ()
    """Attention kernels that take a tree of a model's drafts over pages; empty: no check."""
    drafts_shared_beyond: bool = True
    """Drafts that were kept beyond an answer's end stay in the radix tree too."""
    splits_prompts: bool = False
    """An answer is a node of its own in the radix tree: it may be evicted and its prompt stay."""
    refreshes_waiting: bool = False
    """Prefixes of those who wait are used anew now and then, so that they are evicted late."""
    ending_sit_out: bool = False
    """With overlap, who ends with the batch that is computed is in no further one; before, it decodes once
    more for nothing."""
    ended_leave_first: bool = False
    """Who has ended leaves the running batch before prompts are tried; before, with the next decode."""
    surplus_freed_late: bool = True
    """The place of a token computed for nothing, after its request's end, is free once it is computed; later
    at the end, and the radix tree keeps it."""
    shares_answers: bool = True
    """What a request has generated stays in the radix tree; from 0.5.6 to 0.5.8 its prompt alone does."""
    chunk_of_part_page: bool = True
    """A prompt's first part leaves out a page less a token; later it ends with a page."""
    page_promised: bool = False
    """Each prompt of a batch is promised a page more."""
    page_needed: bool = False
    """It is started where that page is there too."""
    input_limits_chunked: bool = True
    """With chunks too, a prompt that is longer than what ``max_prefill_tokens`` has left waits for the next
    batch; later without chunks only."""
    evicts_lacking: bool = False
    """As much is evicted as is lacking; before, where any is, as much as is asked for."""
    claims_ahead: bool = True
    """A decode on its way with drafts holds room for its token without a draft already."""
    drafting_sorted: bool = False
    """With drafts, too, those that have generated least are retracted; before, those that came last."""
    chunk_has_its_row: bool = True
    """A prompt that goes on has its row of the request table; from 0.5.12 to 0.5.22 it takes one of the
    others' too."""
    spent_try_nobody: bool = False
    """Where a prompt that goes on takes the whole batch, no other is looked at, and none finds it full."""

    writes_selected: bool = True
    """``hicache_write_policy`` is ``write_through_selective`` unless told, else ``write_through``."""
    prefetch: str = "best_effort"
    """``hicache_storage_prefetch_policy`` unless told."""
    prefetch_wait: tuple[float, float] = (3.0, 0.0)
    """Seconds that ``timeout`` waits unless told: in all, and for each 1,024 tokens."""
    prefetch_waits_from_turn: bool = False
    """They are counted from when a request's turn first comes, not from when it is queued."""
    prefetch_room: tuple[float, bool] = (0.8, True)
    """The share of host memory that prefetches may ask for, and whether it is of what exceeds the GPU's."""


CHANGES: Changes = (
    ((0, 5, 1), {"checkpoint_cache": True, "llama4_kernel_asked": True}),
    (
        (0, 5, 2),
        {
            "standalone_mib": 6144,
            "writes_selected": False,
            "chunk_of_part_page": False,
            "paged_trees": ("flashinfer",),
        },
    ),
    (
        (0, 5, 3),
        {
            "prefetch_wait": (1.0, 0.25),
            "reserve_from_chunk": True,
            "small_card": (2048, 16, 80),
            "sparse_index": True,
            "state_pool": True,
        },
    ),
    ((0, 5, 4), {"trtllm_mla": True}),
    (
        (0, 5, 5),
        {"small_card": (2048, 24, 80), "prefill_graphs": "asked", "prefill_graph_divisor": 4},
    ),
    (
        (0, 5, 6),
        {
            "spread_odd_layers": True,
            "paged_trees": ("flashinfer", "fa3"),
            "llama4_trtllm": True,
            "llama4_kernel_asked": False,
            "shares_answers": False,
            "surplus_freed_late": False,
        },
    ),
    (
        (0, 5, 7),
        {
            "draft_slots": False,
            "trtllm_mha": True,
            "draft_state": "all requests",
            "prefill_graph_divisor": 8,
            "value_width": True,
            "window_archs": frozenset({"MiMoV2FlashForCausalLM"}),
        },
    ),
    (
        (0, 5, 8),
        {
            "llama4_ratio": False,
            "prefill_graph_divisor": 0,
            "state_without_radix": None,
            "window_archs": _WINDOWS_8,
        },
    ),
    (
        (0, 5, 9),
        {
            "draft_pairs": True,
            "shares_answers": True,
            "window_archs": _WINDOWS_9,
            "window_split": "profiled bytes",
        },
    ),
    (
        (0, 5, 10),
        {
            "eagle_mib": 4096,
            "page_promised": True,
            "prefill_graphs": "piecewise",
            "prefill_graphs_with_pp": False,
            "prefill_graphs_with_dp": False,
            "prefill_graphs_with_draft": False,
            "prefill_graphs_off": frozenset(
                {
                    "DeepseekV32ForCausalLM",
                    "GlmMoeDsaForCausalLM",
                    "Qwen3NextForCausalLM",
                    "BailingMoeV2_5ForCausalLM",
                }
            ),
            "requests": "at most estimated",
        },
    ),
    (
        (0, 5, 11),
        {
            "window_archs": _WINDOWS_11,
            "window_split": "bytes",
            "trtllm_windows": True,
            "prefill_graphs_with_draft": True,
            "page_needed": True,
        },
    ),
    (
        (0, 5, 12),
        {
            "prefetch": "timeout",
            "chunk_has_its_row": False,
            "drafts_overlap": "lines",
            "window_archs": _WINDOWS_12,
            "compressed": "all in tokens",
            "prefill_graphs_off": frozenset(
                {
                    "DeepseekV32ForCausalLM",
                    "DeepseekV4ForCausalLM",
                    "GlmMoeDsaForCausalLM",
                    "Qwen3NextForCausalLM",
                    "BailingMoeV2_5ForCausalLM",
                }
            ),
        },
    ),
    ((0, 5, 13), {"draft_state": "with the slots", "input_limits_chunked": False}),
    (
        (0, 5, 14),
        {
            "eagle_mib": 0,
            "standalone_mib": 0,
            "draft_charged": True,
            "drafts_overlap": "always",
            "paged_trees": ("flashinfer", "fa3", "triton"),
            "window_archs": _WINDOWS_14,
            "window_cap": True,
            "state_tracked": _TRACKED_14,
            "requests": "at most half the tokens",
        },
    ),
    (
        (0, 5, 15),
        {
            "graphs_counted_when_off": False,
            "prefill_graphs": "breakable",
            "prefill_graphs_with_pp": True,
            "prefill_graphs_with_latents": False,
            "prefill_graphs_off": frozenset({"DeepseekV4ForCausalLM"}),
            "deepep_mib": 2048,
            "prefetch_room": (0.5, False),
            "claims_ahead": False,
            "compressed": "state by request",
        },
    ),
    (
        (0, 5, 16),
        {
            "window_archs": _WINDOWS_16,
            "state_tracked": _TRACKED_16,
            "kimi_radix": True,
            "prefill_graphs_seeing": _SEEN_16,
        },
    ),
    (
        (0, 5, 17),
        {
            "same_vocabulary": True,
            "drafting_sorted": True,
            "evicts_lacking": True,
            "state_padding": True,
            "asymmetric_fa4": True,
            "fa4_page": "sm100",
            "prefill_graphs_with_dp": True,
            "prefill_graphs_off": frozenset({"DeepseekV4ForCausalLM", "NemotronHForCausalLM"}),
        },
    ),
    (
        (0, 5, 18),
        {
            "image_cache_mib": 100,
            "sparse_scales": True,
            "sparse_shared": True,
            "window_archs": _WINDOWS_18,
            "state_tracked": _TRACKED_18,
            "prefill_graphs_with_latents": True,
            "prefill_graphs_off": frozenset({"DeepseekV4ForCausalLM"}),
            "prefill_graphs_seeing": _SEEN_18,
        },
    ),
    ((0, 5, 19), {"prefill_graphs_with_pp": False, "prefill_graphs_seeing": _SEEN_19}),
    (
        (0, 5, 20),
        {
            "small_card": (4096, 48, 160),
            "nemotron_trtllm": True,
            "hopper_qwen3_vl": True,
            "splits_prompts": True,
            "window_archs": _WINDOWS_20,
            "window_check": True,
            "state_tracked": _TRACKED_20,
            "prefill_graphs_with_kda": False,
            "prefill_graphs_seeing": _SEEN_20,
        },
    ),
    ((0, 5, 21), {"compressed_ring_page": True, "compressed_padded": True}),
    (
        (0, 5, 22),
        {
            "graphs_capped": True,
            "drafts_shared_beyond": False,
            "trtllm_pages": (16, 32, 64, 128),
            "refreshes_waiting": True,
            "ending_sit_out": True,
            "window_archs": _WINDOWS_22,
            "state_tracked": _TRACKED_22,
            "prefill_graphs_seeing": _SEEN_22,
        },
    ),
    (
        (0, 5, 23),
        {
            "window_archs": _WINDOWS_23,
            "prefill_graphs_seeing": _SEEN_23,
            "prefetch_waits_from_turn": True,
            "ended_leave_first": True,
            "chunk_has_its_row": True,
            "spent_try_nobody": True,
        },
    ),
)
"""What each release changed in how much memory it keeps free, shares out and refuses."""

OLDEST: Release = (0, 4, 10)
NEWEST: Release = CHANGES[-1][0]


@lru_cache(maxsize=256)
def rules_of(release: Release) -> SglangRules:
    """The rules that hold in ``release``."""
    return rules_at(SglangRules(release=release), CHANGES, release)


def newest_rules() -> SglangRules:
    """The rules of the newest release."""
    return rules_of(NEWEST)
