"""vLLM's rules by release: one table of what each release brought.

A release is a tuple (0, 33, 0); ``rules_of`` gives the rules that hold in it. Sources: the Python code
of the releases themselves; what each entry changes is told beside it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from kvroom.engines.releases import Changes, Release, nearest_release, rules_at, shown
from kvroom.records import dataclass

FitCheck = Literal["layers", "first group", "groups", "usable blocks"]
MambaCaching = Literal["never", "flagged models", "modes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmRules:
    """What one release does. The defaults are those of 0.8.5, the oldest modelled."""

    release: Release = (0, 8, 5)

    hybrid_manager: bool = False
    """Windows and state keep only what they need, in groups of their own."""
    chunked_specs: bool = False
    """Chunked attention keeps only its chunk; before, such layers count as full attention."""
    chunked_grouped: bool = True
    """The hybrid manager is on by default for models with chunked attention."""
    whole_model_groups: bool = False
    """Groups are made of the whole model and projected on pipeline stages, not stage by stage."""
    unequal_pages: bool = False
    """Layers of one type with unequal pages make one group, its block the sum of their pages."""
    scaled_pages: bool = False
    """Smaller pages are brought to the largest by a whole multiple of tokens."""
    padded_pages: bool = False
    """Smaller attention pages that no multiple brings there are padded."""
    padded_state: bool = False
    """So are state pages."""
    wide_group_ratio: float = 1.0
    """A group is as long as the longest bucket where that is below so many times the shortest."""
    value_width_full: bool = False
    value_width_window: bool = False
    """Values may be narrower than keys in full attention, in windows; before, both take the key's."""
    packed: Literal["unknown", "tuples", "buckets", "overlay", "groups"] = "unknown"
    """How DeepSeek-V4's unequal pages lie in a block."""
    wide_fp8_pages: bool = False
    """Heads of 512 in an FP8 cache take pages of 64 tokens on Hopper (FlashAttention 4)."""
    window_block: Literal["block", "kernel"] = "block"
    """Windows are cut into the attention kernel's smallest block, or into the model's."""
    fit: FitCheck = "layers"
    """How the start-up check counts what one longest request needs."""
    fit_by_stage: bool = True
    """The check is made for each stage, not for the whole model against the least memory."""
    override_checked: bool = False
    """``num_gpu_blocks_override`` is what the check counts with."""
    tokens_from_concurrency: bool = False
    """The printed size is concurrency × max_model_len."""
    dcp_tokens: bool = False
    """The printed size counts the tokens of all decode-context ranks."""
    request_blocks: bool = False
    """Concurrency is blocks over a request's blocks; before, tokens over max_model_len."""
    in_flight_batches: bool = False
    """A window keeps what all batches in flight may add, not just one."""

    shares_hunyuan: bool = True
    """Hunyuan's layers that read an earlier one's cache keep none of their own; later its model is that of
    transformers, whose every layer keeps one."""
    cohere_reach: bool = False
    """Windows of Cohere's models see one token more than their config says: the one so far back, too."""
    skipped_aligned: bool = False
    """Where some layers keep the model's width, the others' blocks are as long as that takes."""

    mamba_v1: bool = False
    """Recurrent layers keep their state in the same pool of blocks."""
    mamba_caching: MambaCaching = "never"
    mamba_caching_default: bool = False
    mamba_all_mode: bool = False
    """State may be kept at every block boundary (``all``)."""
    all_mode_speculation: bool = False
    drafted_captures: Literal["none", "ceiling", "by request"] = "none"
    """Sizes of graphs with drafts: as without, up to twice the drafted tokens, or a ladder of requests."""
    blackwell_captures: bool = False
    """On data-centre Blackwell batches up to 1,024 are captured."""
    batch_captured: bool = False
    """A whole batch of tokens is captured where the ladder reaches as far, a step of it or not."""
    sequences_captured: bool = False
    """A decode of all sequences is captured although it is no step of the ladder."""
    drafted_conv: frozenset[str] = frozenset({"gdn"})
    """Recurrences, or types of Mamba-2 models, whose convolution keeps a column for each drafted token."""
    mamba2_checkpoint: bool = False
    gdn_checkpoint: bool = False
    """A prefill keeps one more block of state while it runs."""
    gdn_alignment: int = 1
    """Tokens that a block of gated delta nets is a multiple of, on Hopper."""
    backend_alignment: bool = False
    """A hybrid's block is a multiple of the attention kernel's block, chosen after loading."""
    latent_alignment: int = 16
    """What a hybrid's block is at least a multiple of where its attention is latent."""
    nemotron_state: str = "model"
    """Nemotron-H's state where its config does not say: the model's own dtype, or a named one."""
    nemotron_state_config: bool = False

    latent_block: Literal["forced", "backend"] = "forced"
    latent_block_blackwell: int = 16
    sparse_fp8_default: bool = False
    """Sparse attention takes its FP8 layout where the cache dtype is ``auto``."""
    glm_fp8_default: bool = False
    """So does GLM's on Blackwell."""

    start_snapshot: bool = False
    """Memory that other processes hold is left out of the account, and must be free at the start."""
    utilisation: float = 0.9
    whole_bytes: bool = False
    """The share of memory asked for is rounded up to whole bytes."""
    graphs_subtracted: bool = False
    """An estimate of CUDA graph memory is taken off the cache."""
    groups_inside: bool = True
    """The start's snapshot comes before the process groups: NCCL counts as the engine's own."""
    sorted_sampling: bool = True
    """The profiling run sorts the whole vocabulary of every sequence."""
    selection_buffer: bool = False
    """Selection keeps a buffer of one vocabulary for each multiprocessor (Triton's top-k)."""
    workspaces_kept: bool = False
    """A manager keeps the experts' workspaces; before, they come and go with a layer."""
    fused_all_reduce: bool = False
    """Tensor ranks fuse all-reduce and norm through FlashInfer (Hopper, data-centre Blackwell)."""
    triton_mxfp4: bool = True
    """Triton's kernels compute MXFP4 experts on Hopper, later Marlin's."""
    whole_graphs: bool = False
    """Decodes are captured whole beside the pieces."""
    video_profiled: bool = True
    """The largest video of some models is profiled with, where it is larger than an image."""
    rocm_settled: bool = False
    a100_small: bool = False
    """A100s of 80 GB take the small defaults."""
    huge_defaults: bool = False
    """Devices of 160 GiB and more have defaults of their own."""
    sequences_capped: bool = False
    """The default of max_num_seqs is at most max_num_batched_tokens."""
    batch_capped: bool = False
    """The default of max_num_batched_tokens is at most max_num_seqs × max_model_len."""
    expert_adapters: bool = False
    """LoRA adapts routed experts too."""
    whole_prompts: bool = True
    """The profile runs a whole max_model_len at once: prefill is not cut into chunks."""
    async_scheduling: bool = False
    """The next step is scheduled before the output of the last is there."""
    looked_up_overlaps: bool = False
    """With the V2 runner also where drafts are looked up in the text."""
    decodes_spread: bool = False
    """In a pipeline the V2 runner schedules asynchronously a step more than there are stages, and a request
    decodes in every so many."""
    pipeline_overlap: Literal["none", "one by one", "V2"] = "none"
    """Where pipeline stages and asynchronous scheduling go together: never, on either runner (on the first
    each step waits for the tokens of the one before), or on the V2 runner alone."""
    overruns: bool = True
    """Then a request whose last token is on its way computes one more that nobody takes."""
    chunks_told: bool = False
    """``--no-enable-chunked-prefill`` is heeded; before, prompts are cut whatever it says."""
    reserves_whole_prompt: bool = False
    """A request is admitted only where its whole prompt has blocks."""
    sparse_retention: bool = False
    """Prefixes of windows and state are kept at boundaries; before, each of their blocks."""
    state_short_of_end: bool = False
    """Where a prompt is cut to keep a recurrent state, its last token does not count: the next request with
    that prompt computes it again."""
    state_replays: bool = False
    """Requests that come back with a part of their answer stop at blocks like prompts, and nobody starts from
    a recurrent state in the step that writes it."""
    junctions: Literal["none", "first step", "prompt"] = "none"
    """Where a prompt leaves what others share, a step ends: the newcomer's first one, or any."""
    state_inside: bool = False
    """Hits may end inside the blocks of recurrent layers that are wider than the others'."""
    rest_uncut: bool = False
    """What a prompt has behind its last whole block is computed in one step."""
    state_named_once: bool = True
    """A recurrent state that is cached already is not taken for one of the step that names it again; else
    whoever would start from it waits for as long as its request stands at that boundary."""
    uncached_first: bool = False
    """Freed blocks that were not cached are used again before all that are; before, each in its turn."""
    bounding_batches: int | None = 0
    """Batches that bound what a newcomer's windows are counted to hold (0: no bound), which keep nothing for
    steps in flight; None: those in flight, which they keep."""
    passes_over: bool = False
    """With prompts uncut, one that a step has no tokens left for lets those behind it pass."""
    lone_prompt_uncapped: bool = False
    """``long_prefill_token_threshold`` holds back nobody who is alone."""
    priority_tries_others: bool = False
    """By priority, running requests behind one that gave way to itself are tried in the same step."""
    v2_estimates: bool = False
    """The V2 runner estimates its graphs; before, it told the ledger nothing of them."""
    v2_selects: bool = False
    """Its dummy run selects as requests do, on logits in fp32."""
    v2_types: frozenset[str] = frozenset()
    """Types of models that the V2 runner takes by name: its dummy run leaves out selection, and it overlaps
    pipeline stages with asynchronous scheduling."""
    v2_quantised: bool = False
    """Quantised ones among them too."""
    v2_others: Literal["none", "dense", "all"] = "none"
    """Of the other models it takes those without experts and state, or all."""


DRAFTED_0_17 = frozenset({"gdn", "mamba2", "nemotron_h"})
DRAFTED_0_27 = DRAFTED_0_17 | {"kda"}
V2_0_23 = frozenset({"qwen3", "llama", "mistral"})
V2_0_24 = V2_0_23 | {"deepseek_v2", "qwen2_moe", "granitemoe"}
V2_0_26 = V2_0_24 | {"inkling_mm_model", "inkling_text", "longcat_flash_ngram"}
CHANGES: Changes = (
    ((0, 9, 0), {"a100_small": True, "whole_prompts": False}),
    ((0, 9, 1), {"hybrid_manager": True, "request_blocks": True, "start_snapshot": True}),
    ((0, 10, 0), {"chunked_specs": True}),
    (
        (0, 10, 1),
        {"sequences_capped": True, "chunked_grouped": False, "latent_block_blackwell": 128},
    ),
    ((0, 10, 2), {"mamba_v1": True, "dcp_tokens": True}),
    (
        (0, 11, 0),
        {
            "whole_model_groups": True,
            "unequal_pages": True,
            "sparse_fp8_default": True,
            "groups_inside": False,
            "whole_graphs": True,
        },
    ),
    (
        (0, 11, 1),
        {
            "chunks_told": True,
            "passes_over": True,
            "mamba_caching": "flagged models",
            "expert_adapters": True,
            "batch_capped": True,
            "latent_alignment": 64,
            "sparse_fp8_default": False,
        },
    ),
    (
        (0, 12, 0),
        {"scaled_pages": True, "wide_group_ratio": 1.25, "passes_over": False, "overruns": False},
    ),
    (
        (0, 13, 0),
        {
            "nemotron_state": "fp16",
            "drafted_captures": "ceiling",
            "nemotron_state_config": True,
            "rocm_settled": True,
            "workspaces_kept": True,
            "video_profiled": False,
        },
    ),
    (
        (0, 14, 0),
        {
            "fit": "first group",
            "fit_by_stage": False,
            "chunked_grouped": True,
            "async_scheduling": True,
            "value_width_full": True,
            "whole_bytes": True,
        },
    ),
    (
        (0, 15, 0),
        {
            "mamba_caching": "modes",
            "mamba_all_mode": True,
            "pipeline_overlap": "one by one",
            "latent_block_blackwell": 64,
        },
    ),
    (
        (0, 17, 0),
        {
            "fit_by_stage": True,
            "state_replays": True,
            "drafted_conv": DRAFTED_0_17,
            "sorted_sampling": False,
            "selection_buffer": True,
            "fused_all_reduce": True,
        },
    ),
    (
        (0, 18, 0),
        {"wide_group_ratio": 1.5, "latent_block": "backend", "latent_block_blackwell": 32},
    ),
    ((0, 19, 0), {"fit": "groups", "reserves_whole_prompt": True}),
    (
        (0, 20, 0),
        {
            "utilisation": 0.92,
            "graphs_subtracted": True,
            "nemotron_state": "fp32",
            "value_width_window": True,
            "backend_alignment": True,
            "latent_alignment": 16,
            "packed": "tuples",
            "triton_mxfp4": False,
            "bounding_batches": 1,
        },
    ),
    (
        (0, 20, 1),
        {"tokens_from_concurrency": True, "override_checked": True, "batch_captured": True},
    ),
    ((0, 21, 0), {"selection_buffer": False}),
    ((0, 22, 0), {"all_mode_speculation": True, "v2_types": frozenset({"qwen3"})}),
    ((0, 23, 0), {"v2_types": V2_0_23, "packed": "buckets", "decodes_spread": True}),
    (
        (0, 24, 0),
        {
            "padded_pages": True,
            "v2_types": V2_0_24,
            "v2_quantised": True,
            "uncached_first": True,
            "junctions": "first step",
        },
    ),
    ((0, 25, 0), {"skipped_aligned": True, "v2_others": "dense", "window_block": "kernel"}),
    (
        (0, 26, 0),
        {
            "in_flight_batches": True,
            "bounding_batches": None,
            "v2_types": V2_0_26,
            "junctions": "prompt",
            "state_inside": True,
        },
    ),
    (
        (0, 27, 0),
        {
            "latent_alignment": 128,
            "rest_uncut": True,
            "drafted_conv": DRAFTED_0_27,
            "packed": "overlay",
            "v2_types": V2_0_26 | {"kimi_k3"},
        },
    ),
    (
        (0, 28, 0),
        {
            "mamba_caching_default": True,
            "huge_defaults": True,
            "padded_state": True,
            "blackwell_captures": True,
            "v2_types": V2_0_26 | {"kimi_k3", "deepseek_v4"},
        },
    ),
    (
        (0, 29, 0),
        {
            "fit": "usable blocks",
            "drafted_captures": "by request",
            "v2_others": "all",
            "v2_estimates": True,
            "packed": "groups",
            "glm_fp8_default": True,
            "sparse_retention": True,
            "shares_hunyuan": False,
            "cohere_reach": True,
        },
    ),
    ((0, 30, 0), {"window_block": "block"}),
    (
        (0, 31, 0),
        {
            "wide_fp8_pages": True,
            "sequences_captured": True,
            "lone_prompt_uncapped": True,
            "pipeline_overlap": "V2",
        },
    ),
    (
        (0, 32, 0),
        {
            "mamba_all_mode": False,
            "mamba2_checkpoint": True,
            "state_short_of_end": True,
            "state_named_once": False,
            "drafted_conv": DRAFTED_0_27 | {"falcon_h1", "granitemoehybrid", "zamba2"},
        },
    ),
    (
        (0, 33, 0),
        {
            "gdn_checkpoint": True,
            "gdn_alignment": 64,
            "v2_selects": True,
            "state_named_once": True,
            "priority_tries_others": True,
            "looked_up_overlaps": True,
        },
    ),
)
"""What each release changed in how much memory it finds, cuts, needs and prints."""

OLDEST: Release = (0, 8, 5)
NEWEST: Release = CHANGES[-1][0]


def parse_release(text: str | None) -> tuple[Release, str]:
    """The modelled release nearest to ``text``, and a warning ("" where none is due)."""
    return nearest_release("vLLM", text, OLDEST, NEWEST)


@lru_cache(maxsize=256)
def rules_of(release: Release) -> VllmRules:
    """The rules that hold in ``release``."""
    return rules_at(VllmRules(release=release), CHANGES, release)


def since(name: str, release: Release) -> str:
    """The release, up to ``release``, that last changed the rule called ``name``."""
    changed = [r for r, c in CHANGES if r <= release and name in c]
    return shown(max(changed, default=OLDEST))
