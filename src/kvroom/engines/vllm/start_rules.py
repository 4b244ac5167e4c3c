"""What vLLM refuses as it starts: one table, a source a row.

Rules that follow from the question alone; those about the finished pool of blocks are in ``POOL_RULES``,
whether one request fits in ``capacity``.
"""

from __future__ import annotations

from kvroom.engines import flags as read
from kvroom.engines.releases import shown
from kvroom.engines.start_rules import (
    Against,
    StartRule,
    cache_type,
    capability,
    cut_blocks,
    cut_groups,
    too_old,
    uneven_mlp,
)
from kvroom.engines.vllm.capacity import VllmPool
from kvroom.engines.vllm.connectors import no_blocks, refused
from kvroom.engines.vllm.defaults import batch_refusal, batching
from kvroom.engines.vllm.encoding import largest_item
from kvroom.engines.vllm.graphs import captures
from kvroom.engines.vllm.memory import Budget
from kvroom.engines.vllm.model_classes import lacks_class, model_classes, stood_in
from kvroom.engines.vllm.pages import Pages
from kvroom.engines.vllm.setup import VllmSetup
from kvroom.engines.vllm.support import SUPPORT
from kvroom.models.kinds import SlidingWindow
from kvroom.models.spec import ModelSpec
from kvroom.records import dataclass
from kvroom.sharding.layout import uneven_heads
from kvroom.units import show_gib

Why = Against | None

WEIGHTS_NEED = {
    # what quantisation's kernels need, newest first: (since, compute capability)
    "mxfp4": (((0, 0, 0), 8.0),),
    "fp8": (((0, 14, 0), 7.5), ((0, 0, 0), 8.0)),
    "nvfp4": (((0, 0, 0), 8.0),),
    "awq": (((0, 0, 0), 7.5),),
}
LOOSE_SINCE, REFINED_SINCE = (0, 14, 0), (0, 29, 0)
BF16_NEEDS = 8.0
FP8_CACHE_KERNELS = (9.0, 10.0, 10.3)
"""Compute capabilities whose default attention kernel read an FP8 cache when others did not."""
FP8_BACKENDS = ("flashinfer", "triton_attn", "triton_attn_vllm_v1")


@dataclass(frozen=True)
class PoolQuestion:
    """A question with its pool of blocks and its ledger."""

    s: VllmSetup
    pool: VllmPool
    budget: Budget


def _capability(setup: VllmSetup) -> Why:
    return too_old(setup.d, SUPPORT.capability, "vLLM")


def _cache_type(setup: VllmSetup) -> Why:
    return cache_type(setup.d, SUPPORT.cache_types)


def _weights_on_card(setup: VllmSetup) -> Why:
    found, rule = capability(setup.d), setup.d.weights.quantisation
    if found is None:
        return None
    key = next((k for k in WEIGHTS_NEED if rule.name.startswith(k)), None)
    if key is None:
        return None
    least = next(c for since, c in WEIGHTS_NEED[key] if setup.release >= since)
    if found >= least:
        return None
    return Against(
        f"{rule.name} weights need compute capability {least} and {setup.d.device.name} has {found}",
        "16-bit or int4 (GPTQ) weights",
    )


def _bf16(setup: VllmSetup) -> Why:
    found = capability(setup.d)
    named = next(
        (value for key, value in setup.d.args.items() if read.plain_name(key) == "dtype"), None
    )
    if found is None or found >= BF16_NEEDS or str(named).lower() not in ("bfloat16", "bf16"):
        return None
    return Against(
        f"bfloat16 needs compute capability {BF16_NEEDS} and {setup.d.device.name} has {found}",
        "dtype=half",
        {"dtype": "half"},
    )


def _fp8_cache(setup: VllmSetup) -> Why:
    found = capability(setup.d)
    if found is None or found in FP8_CACHE_KERNELS or not setup.d.kv_name.startswith("fp8"):
        return None
    asked = str(_arg(setup, "attention_backend") or "").lower()
    if asked in FP8_BACKENDS:
        return None
    return Against(
        f"its default attention kernel on compute capability {found} reads no FP8 cache",
        "kv_cache_dtype=auto, attention_backend=FLASHINFER, or a newer release",
    )


def _heads(setup: VllmSetup) -> Why:
    found = uneven_heads(setup.d.model, setup.d.layout.tp)
    return Against(found, "a tp that divides the KV heads, or that they divide") if found else None


def _draft_model(setup: VllmSetup) -> Why:
    drafting = setup.d.speculation
    if drafting is None or drafting.method != "draft":
        return None
    return Against(
        "releases from 0.10.0 to 0.14 draft with no model of its own",
        "vLLM 0.15.0 or later, or speculation eagle3 or ngram",
    )


def _batch(setup: VllmSetup) -> Why:
    return batch_refusal(setup, batching(setup))


def _blocks(setup: VllmSetup) -> Why:
    """Whole blocks a rank. Merged layers may end in part of one since 0.14; since 0.29 experts' blocks are
    refined to what their slices divide, which a command for an unnamed release cannot count on."""
    named = bool((setup.d.version or "").strip())
    experts = not named or setup.release < REFINED_SINCE
    found = cut_blocks(setup.d, merged=setup.release < LOOSE_SINCE, experts=experts)
    if found is None or setup.release < REFINED_SINCE:
        return found
    since = shown(REFINED_SINCE)
    return found._replace(
        fix=f"{found.fix}, or name a release (--engine-version {since} refines them)"
    )


def _groups(setup: VllmSetup) -> Why:
    return cut_groups(setup.d)


def _mlp(setup: VllmSetup) -> Why:
    return uneven_mlp(setup.d)


def _whole_items(setup: VllmSetup) -> Why:
    """Chunked multimodal input off: a batch has to hold the largest item."""
    off = _arg(setup, "disable_chunked_mm_input")
    if off is None or not read.switch("engine_args.disable_chunked_mm_input", off):
        return None
    if setup.d.model.vision is None or not setup.d.model.beside:
        return None
    item, tokens = largest_item(setup).tokens, batching(setup).tokens
    if item <= tokens:
        return None
    return Against(
        f"an image of {item:,} tokens is more than max_num_batched_tokens {tokens:,}, and chunked "
        "multimodal input is off",
        f"max_num_batched_tokens={item}",
        {"max_num_batched_tokens": item},
    )


def _chunked_states(setup: VllmSetup) -> Why:
    """Prefixes of recurrent layers are kept at block ends, which prompts reach only in chunks."""
    if setup.flags.chunked_prefill or Pages(setup).mode != "align":
        return None
    return Against(
        "prefixes of layers with state are cached only with chunked prefill, which is off",
        "enable_prefix_caching=false, or leave enable_chunked_prefill on",
        {"enable_prefix_caching": False},
    )


def _whole_states(setup: VllmSetup) -> Why:
    """Cached states a request's length apart, which are no multiple of the hashes' blocks."""
    pages = Pages(setup)
    if not pages.caching or not pages.whole_states:
        return None
    return Against(
        f"states of a model without attention are cached {setup.context:,} tokens apart, and prefixes are "
        "hashed in blocks",
        "enable_prefix_caching=false, or block_size=16",
        {"enable_prefix_caching": False},
    )


def narrowest_window(model: ModelSpec) -> int | None:
    """Tokens of the narrowest window of a model's; None where it has none."""
    kinds = (kind for kind, _ in model.stores)
    return min((kind.window for kind in kinds if isinstance(kind, SlidingWindow)), default=None)


def _windows_off(setup: VllmSetup) -> Why:
    """Windows off: a request is as long as the narrowest at most, as the model was not trained past it."""
    window = narrowest_window(setup.d.model)
    if not setup.flags.windows_off or window is None or setup.context <= window:
        return None
    return Against(
        f"with disable_sliding_window a request holds the window's {window:,} tokens at most, and "
        f"max_model_len is {setup.context:,}",
        f"max_model_len={window}, or leave disable_sliding_window out",
        {"max_model_len": window},
    )


def _architecture(setup: VllmSetup) -> Why:
    """The model's class is not in the release yet, or no longer."""
    classes = model_classes()
    name = classes.of(setup.d.model)
    first, last = classes.came.get(name), classes.last.get(name)
    if last is not None and setup.release > last and name not in classes.carried:
        return Against(f"vLLM dropped {name} after {shown(last)}", f"vLLM {shown(last)} or older")
    if not lacks_class(setup) or stood_in(setup):
        return None
    assert first is not None
    return Against(
        f"vLLM {shown(setup.release)} has no {name}; it came with {shown(first)}",
        f"vLLM {shown(first)} or newer",
    )


def _stages(setup: VllmSetup) -> Why:
    """Pipeline stages of a class that has no interface for them; transformers' own have one."""
    classes = model_classes()
    name = classes.of(setup.d.model)
    since = classes.staged.get(name)
    whole = name in classes.unstaged or (since is not None and setup.release < since)
    if setup.d.layout.pp == 1 or not whole or lacks_class(setup):
        return None
    later = f", or vLLM {shown(since)} or newer" if since else ""
    release = shown(setup.release)
    return Against(f"vLLM {release} cannot split {name} into pipeline stages", f"pp=1{later}")


def _free_memory(pool_question: PoolQuestion) -> Why:
    """The share must be free when the start's snapshot is taken, after context and process groups."""
    setup, budget = pool_question.s, pool_question.budget
    if setup.flags.cache_bytes is not None or not setup.rules.start_snapshot or setup.first_engine:
        return None
    known = setup.d.known_bytes.get("free_before_load")
    free = budget.gpu_bytes - budget.outside[1] if known is None else known
    if free >= budget.requested_bytes:
        return None
    share = int(1000 * free / budget.gpu_bytes) / 1000
    return Against(
        f"{show_gib(budget.requested_bytes)} are asked for (gpu_memory_utilization) and "
        f"{show_gib(free)} are free at the start, {show_gib(budget.requested_bytes - free)} over",
        f"gpu_memory_utilization={share:.3f} at most",
        {"gpu_memory_utilization": share},
    )


def _state_blocks(pool_question: PoolQuestion) -> Why:
    """Every sequence of a batch that is captured whole holds a block of state."""
    setup, pool = pool_question.s, pool_question.pool
    if setup.flags.cache_bytes is not None or not any(
        group.spec.type == "state" for stage in pool.caching for group in stage.groups
    ):
        return None
    batch = batching(setup)
    if not 0 < pool.num_blocks < batch.sequences or not captures(setup, batch).whole:
        return None
    return Against(
        f"max_num_seqs {batch.sequences:,} exceeds the {pool.num_blocks:,} blocks that hold "
        "recurrent state, one a sequence",
        f"max_num_seqs={pool.num_blocks} or fewer",
        {"max_num_seqs": pool.num_blocks},
    )


def _arg(setup: VllmSetup, name: str) -> object:
    return next(
        (value for key, value in setup.d.args.items() if read.plain_name(key) == name), None
    )


START_RULES = (
    StartRule(
        name="card",
        why=_capability,
        source="vLLM documentation, GPU installation: compute capability 7.0 or higher",
        unsupported=True,
    ),
    StartRule(
        name="cache_type",
        why=_cache_type,
        source="vLLM, config/cache.py: CacheDType",
        key="kv_dtype",
    ),
    StartRule(
        name="weights_on_card",
        why=_weights_on_card,
        source="get_min_capability of vLLM's quantization configs",
        unsupported=True,
        key="weight_dtype",
    ),
    StartRule(
        name="bf16_on_card",
        why=_bf16,
        source="vLLM, check_if_supports_dtype: compute capability of at least 8.0",
    ),
    StartRule(
        name="fp8_cache_on_card",
        why=_fp8_cache,
        source="vLLM 0.11.0, platforms/cuda.py: is_kv_cache_dtype_supported",
        key="kv_dtype",
        since=(0, 11, 0),
        until=(0, 11, 1),
    ),
    StartRule(name="kv_heads", why=_heads, source="vLLM, QKVParallelLinear and get_num_kv_heads"),
    StartRule(name="mlp_width", why=_mlp, source="vLLM, distributed/utils.py: divide"),
    StartRule(
        name="quantisation_blocks",
        why=_blocks,
        source="github vllm-project/vllm issue 17569; validate_fp8_block_shape",
    ),
    StartRule(
        name="quantisation_groups",
        why=_groups,
        source="vLLM, AWQLinearMethod and GPTQLinearMethod.create_weights: input size not aligned",
    ),
    StartRule(
        name="draft_model",
        why=_draft_model,
        source="vLLM 0.10.2 to 0.14.0, engine/arg_utils.py: draft model is not supported yet; issue 31883",
        since=(0, 10, 0),
        until=(0, 15, 0),
        key="speculation",
    ),
    StartRule(name="batch", why=_batch, source="vLLM, SchedulerConfig's own checks"),
    StartRule(
        name="architecture",
        why=_architecture,
        source="vLLM, model_executor/models/registry.py of each release from 0.8.5 on",
        unsupported=True,
        key="model",
    ),
    StartRule(
        name="stages",
        why=_stages,
        source="vLLM, verify_with_parallel_config: models without SupportsPP, by each release's classes",
        unsupported=True,
        key="pp",
    ),
    StartRule(
        name="windows_off",
        why=_windows_off,
        source="vLLM, config/model.py: _get_and_verify_max_len, disable_sliding_window",
    ),
    StartRule(
        name="chunked_states",
        why=_chunked_states,
        source="vLLM, model_executor/models/config.py: chunked prefill is required for mamba prefix caching",
        since=(0, 15, 0),
    ),
    StartRule(
        name="whole_states",
        why=_whole_states,
        source="vLLM 0.12 to 0.14, UnitaryKVCacheCoordinator: assumes hash_block_size == block_size",
        since=(0, 12, 0),
        until=(0, 15, 0),
    ),
    StartRule(
        name="connector_groups",
        why=refused,
        source="vLLM, KVConnectorFactory.create_connector; github ovg-project/kvcached issue 267",
    ),
    StartRule(
        name="offloaded_blocks",
        why=no_blocks,
        source="vLLM 0.11.1 to 0.13.0, v1/kv_offload/cpu.py: num_cpu_blocks must be specified",
    ),
    StartRule(
        name="whole_items",
        why=_whole_items,
        source="vLLM, compute_mm_encoder_budget: chunked multimodal input disabled",
        since=(0, 8, 5),
    ),
)
POOL_RULES = (
    StartRule(
        name="free_memory",
        why=_free_memory,
        source="vLLM, request_memory: free memory less than desired utilization",
    ),
    StartRule(
        name="state_blocks",
        why=_state_blocks,
        source="github vllm-project/vllm pull request 38270; issues 38632, 49064",
        since=(0, 20, 0),
    ),
)
