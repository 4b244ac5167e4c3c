"""Where the release's own rule changes the answer: one sentence each, with the release it came with."""

from __future__ import annotations

from kvroom.engines.releases import shown
from kvroom.engines.vllm.capacity import VllmPool
from kvroom.engines.vllm.connectors import turns_manager_off
from kvroom.engines.vllm.first_engine import TWO_ENGINES
from kvroom.engines.vllm.model_classes import model_classes
from kvroom.engines.vllm.pages import Pages
from kvroom.engines.vllm.setup import VllmSetup
from kvroom.engines.vllm.versions import since
from kvroom.units import show_gib


def notes(
    setup: VllmSetup, pages: Pages, pool: VllmPool, *, hybrid: bool, tokens: int
) -> tuple[str, ...]:
    """What a reader of another release's numbers would trip over."""
    rules, release = setup.rules, shown(setup.rules.release)
    types = {spec.type for _, spec in pages.specs}
    near = types & {"window", "chunked"}
    notes: list[str] = []
    name = model_classes().of(setup.d.model)
    first = model_classes().came.get(name)
    if first is not None and setup.release < first:
        notes.append(
            f"vLLM {release} has no {name} of its own (it came with {shown(first)}): "
            "transformers' class stands in, where that beside it has one"
        )
    if setup.first_engine and setup.release >= TWO_ENGINES[0]:
        notes.append(
            f"vLLM {release} serves this by its first engine, V0 ({setup.first_engine_for}): batches and "
            "what is kept beside the cache are V0's here, but simulate's scheduler is V1's"
        )
    if near and "full" in types and not hybrid:
        why = "it is off here"
        if setup.first_engine:
            why = f"it came with V1 and this is V0 ({setup.first_engine_for})"
        elif not rules.hybrid_manager:
            why = "it came with 0.9.1 and this is " + release
        elif connector := turns_manager_off(setup):
            why = f"off beside {connector}, which serves no groups in {release}"
        notes.append(f"without vLLM's hybrid cache manager ({why}) windows are kept at full length")
    if near and hybrid and rules.in_flight_batches:
        notes.append(
            f"since vLLM {since('in_flight_batches', rules.release)} a window also keeps the "
            f"{pool.in_flight:,} tokens that may be in flight"
        )
    if len(pool.caching[0].groups) > 1 and not rules.tokens_from_concurrency:
        notes.append(
            f"until 0.20.1 (this is {release}) vLLM prints blocks over groups as its size in tokens: "
            f"it holds {int(pool.concurrency(tokens) * tokens):,}"
        )
    if pages.recurrent and not rules.mamba_v1:
        notes.append(
            f"vLLM {release} keeps state outside its blocks (0.10.2 put it there): not counted"
        )
    elif pages.hybrid and not pages.caching and setup.flags.prefix_caching is None:
        notes.append(
            f"vLLM {release} does not cache prefixes of models with state unless asked to "
            "(0.28 does by default)"
        )
    if pages.narrowed and not pages.fp8:
        notes.append(f"vLLM {release} stores this model's latents in FP8 unless asked for bfloat16")
    return tuple(notes)


def limit_of(pages: Pages, pool: VllmPool, stage: int, *, hybrid: bool, tokens: int) -> str:
    """What vLLM counts for one request of ``tokens`` on that stage, and why that is more than it stores."""
    types = {spec.type for _, spec in pages.specs}
    size = pool.stages[stage].block_bytes * pool.request_blocks(tokens)
    near = "window" if "window" in types else "chunk" if "chunked" in types else ""
    if near and "full" in types and not hybrid:
        why = f"a {near} is kept at full length"
    elif near and pool.in_flight:
        why = (
            f"a {near} keeps the {pool.in_flight:,} tokens of a batch in flight too "
            "(max_num_batched_tokens)"
        )
    elif "state" in types:
        why = "state and attention take pages of one size"
    else:
        return ""
    return f"vllm counts {show_gib(size)} for it: {why}"
