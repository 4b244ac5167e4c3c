"""Every figure of a Plan with its formula, the formula with its numbers, and its source.

``numbers`` is written to be read and to be evaluated: ×, − and ⌊…⌋ are the only signs beyond plain
arithmetic, so that a test (and a doubting reader) can compute it again.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvroom.answer.explanation import Explanation
from kvroom.engines.registry import engine_of
from kvroom.models.kinds import LayerKind, SharedCache
from kvroom.planner.explain_times import times
from kvroom.planner.plan import Workings
from kvroom.sharding.ledger import binding_rank


def explain(w: Workings) -> tuple[Explanation, ...]:
    """The explanations of ``w.plan``'s figures, in the order in which one follows from another."""
    return (*_weights(w), *_cache(w), *_memory(w), *_ceiling(w), *_step(w), *times(w))


def _sum(terms: Iterator[str] | list[str]) -> str:
    return " + ".join(terms) or "0"


def _n(value: int | float) -> str:
    return f"{value:,}"


def _weights(w: Workings) -> Iterator[Explanation]:
    model, plan = w.deployment.model, w.plan
    parts: dict[str, int] = {}
    for run in model.layers:
        for t in run.layer.tensors:
            parts[t.part] = parts.get(t.part, 0) + t.elements * run.count
    for t in (*model.embedding, *model.head, *model.beside):
        parts[t.part] = parts.get(t.part, 0) + t.elements
    tied = "; the head shares the embedding" if model.tied else ""
    yield Explanation(
        figure="weights.params",
        label="Parameters",
        value=plan.weights.params,
        unit="parameters",
        formula=" + ".join(p.replace("_", " ") for p in parts) + tied,
        numbers=_sum([_n(v) for v in parts.values()]),
        source=model.source,
    )
    rule = w.deployment.weights.quantisation
    if model.file_bytes is not None and rule is model.quantisation:
        formula, numbers = "the sizes of the file's own tensors", _n(plan.weights.bytes)
    elif rule.linear == rule.base and not rule.varies_by_layer:
        formula = f"parameters × bytes a parameter ({rule.name})"
        numbers = f"{_n(plan.weights.params)} × {rule.base.factor}"
    else:
        formula = f"every tensor at its width under {rule.name}, scales included"
        numbers = _n(plan.weights.bytes)
    yield Explanation(
        figure="weights.bytes",
        label="Weights",
        value=plan.weights.bytes,
        unit="bytes",
        formula=formula,
        numbers=numbers,
        source=model.source,
    )


def _entries(kind: LayerKind, tokens: int, encoder_tokens: int) -> str:
    """How many entries, as an expression of the length."""
    held = kind.entries(tokens, encoder_tokens)
    if kind.window_tokens is not None:
        return f"min({_n(tokens)}, {_n(kind.window_tokens)})"
    return _n(held)


def _cache(w: Workings) -> Iterator[Explanation]:
    d, plan = w.deployment, w.plan
    stores = [(k, n) for k, n in d.model.stores if not isinstance(k, SharedCache)]
    grows = [(k, n) for k, n in stores if k.growth(d.kv)]

    def per_token(kind: LayerKind, n: int) -> str:
        ratio = kind.tokens_per_entry
        return f"{n} × {kind.entry_formula(d.kv)}{f' / {ratio}' if ratio > 1 else ''}"

    yield Explanation(
        figure="kv.bytes_per_token",
        label="Cache that one more token adds",
        value=plan.kv.bytes_per_token,
        unit="bytes",
        formula="for each kind of growing layer: layers × numbers a token × bytes a number",
        numbers=_sum([per_token(k, n) for k, n in grows]),
        source="config",
    )
    yield Explanation(
        figure="kv.bytes_per_request",
        label=f"Cache of one request of {d.context_tokens:,} token{'s' if d.context_tokens != 1 else ''}",
        value=plan.kv.bytes_per_request,
        unit="bytes",
        formula="for each kind of layer: layers × entries held × bytes an entry",
        numbers=_sum(
            [
                f"{n} × {_entries(k, d.context_tokens, d.encoder_tokens)} × {k.entry_formula(d.kv)}"
                for k, n in stores
            ]
        ),
        source="config",
    )
    fixed = [(k, n) for k, n in stores if k.recurrent]
    if fixed:
        yield Explanation(
            figure="kv.state_bytes_per_request",
            label="State of one request, whatever its length",
            value=plan.kv.state_bytes_per_request,
            unit="bytes",
            formula="for each kind of recurrent layer: layers × numbers × bytes a number",
            numbers=_sum([f"{n} × {k.entry_formula(d.kv)}" for k, n in fixed]),
            source="config",
        )
    held = [(k, n) for k, n in w.answer.rank.stores if not isinstance(k, SharedCache)]
    yield Explanation(
        figure="kv.bytes_per_request_per_gpu",
        label="The same on the GPU that binds",
        value=plan.kv.bytes_per_request_per_gpu,
        unit="bytes",
        formula="what one rank keeps: its heads (at least one a layer), its stage's layers",
        numbers=_sum(
            [
                f"{n} × {_entries(k, w.answer.rank.held(k, d.context_tokens), d.encoder_tokens)}"
                f" × {k.entry_formula(d.kv)}"
                for k, n in held
            ]
        ),
        source="config",
    )


def _memory(w: Workings) -> Iterator[Explanation]:
    plan, d = w.plan, w.deployment
    arithmetic = engine_of(d.engine).ceiling
    device = d.device
    source = device.source("sold_bytes") if arithmetic else device.engine_bytes_source
    what = "the size the card is sold by" if arithmetic else "what an engine sees of the card"
    yield Explanation(
        figure="memory.gpu_bytes",
        label=f"Memory of one {device.name}",
        value=plan.memory.gpu_bytes,
        unit="bytes",
        formula=what,
        numbers=_n(plan.memory.gpu_bytes),
        source="measured" if "visible" in d.known_bytes else str(source),
    )
    others = [a for a in plan.memory.accounts if a.name != "kv" and a.bytes]
    if plan.memory.kv_bytes:
        yield Explanation(
            figure="memory.kv_bytes",
            label="Left for cache on one GPU",
            value=plan.memory.kv_bytes,
            unit="bytes",
            formula=" − ".join(["memory", *(a.name for a in others)]),
            numbers=" − ".join(_n(v) for v in (plan.memory.gpu_bytes, *(a.bytes for a in others))),
            source="engine rule",
        )


def _ceiling(w: Workings) -> Iterator[Explanation]:
    limit, d, plan = w.plan.capacity.ceiling, w.deployment, w.plan
    if limit is None or not limit.exact:
        return
    # The stage with least room by arithmetic, which need not be the one where the engine runs out.
    rank = binding_rank(d, plan.memory.gpu_bytes)
    free = plan.memory.gpu_bytes - rank.weight_bytes
    need = d.request_bytes(rank)
    times = f" × {d.layout.dp}" if d.layout.dp > 1 else ""
    words = " × replicas" if times else ""
    yield Explanation(
        figure="capacity.ceiling.exact",
        label="Requests, arithmetic ceiling",
        value=limit.exact,
        unit="requests",
        formula=f"(memory − weights) / a request's cache on that GPU{words}",
        numbers=f"{_n(free)} / {_n(need)}{times}",
        source="engine rule",
    )
    yield Explanation(
        figure="capacity.ceiling.requests",
        label="Whole requests",
        value=limit.requests,
        unit="requests",
        formula=f"the same, rounded down{words}",
        numbers=f"⌊{_n(free)} / {_n(need)}⌋{times}",
        source="engine rule",
    )


def _step(w: Workings) -> Iterator[Explanation]:
    step, t = w.plan.step, w.traffic
    cache, state = t.request_bytes(step.request_tokens)
    yield Explanation(
        figure="step.bytes.weights",
        label="Weights that one decode step reads",
        value=step.bytes.weights,
        unit="bytes",
        formula="all weights but looked-up tables and towers; of experts those a batch touches,"
        " E·(1 − (1 − k/E)^batch), summed over GPUs",
        numbers=_n(step.bytes.weights),
        source="config",
    )
    for figure, label, each, total in (
        ("step.bytes.kv", "Cache that the step reads", cache, step.bytes.kv),
        ("step.bytes.state", "State that the step reads and writes", state, step.bytes.state),
    ):
        if total:
            yield Explanation(
                figure=figure,
                label=label,
                value=total,
                unit="bytes",
                formula="requests × what each makes a step move, summed over GPUs",
                numbers=f"{_n(step.batch)} × {_n(each)}",
                source="config",
            )
    yield Explanation(
        figure="step.flops",
        label="Arithmetic of the step",
        value=step.flops,
        unit="FLOP",
        formula="requests × (2 × weights used + attention over what is held)",
        numbers=f"{_n(step.batch)} × {_n(step.flops // step.batch)}",
        source="config",
    )
    if step.crossover_batch is not None:
        yield Explanation(
            figure="step.crossover_batch",
            label="Batch at which cache outweighs weights",
            value=step.crossover_batch,
            unit="requests",
            formula="the smallest batch whose cache and state reach the weights that its step reads",
            numbers=_n(step.crossover_batch),
            source="config",
        )
