"""Every figure of a Plan with its formula, the formula with its numbers, and its source.

``numbers`` is written to be read and to be evaluated: ×, − and ⌊…⌋ are the only signs beyond plain
arithmetic, so that a test (and a doubting reader) can compute it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kvroom.answer.figures import Explanation, explained
from kvroom.engines.registry import engine_of
from kvroom.models.kinds import LayerKind, SharedCache
from kvroom.planner.explain_times import times
from kvroom.planner.plan import Workings
from kvroom.sharding.ledger import binding_rank


def explain(workings: Workings) -> tuple[Explanation, ...]:
    """The explanations of ``w.plan``'s figures, in the order in which one follows from another."""
    config = workings.deployment.model.source
    return tuple(
        replace(told, source=config) if told.source == "config" else told
        for told in _told(workings)
    )


def _told(workings: Workings) -> tuple[Explanation, ...]:
    return (
        explained("scenario.context_tokens", workings.deployment.context_tokens),
        *_weights(workings),
        *_cache(workings),
        *_memory(workings),
        *_ceiling(workings),
        *_engine(workings),
        *_step(workings),
        *times(workings),
    )


def _sum(terms: Iterator[str] | list[str]) -> str:
    return " + ".join(terms) or "0"


def _n(value: int | float) -> str:
    return f"{value:,}"


def _weights(workings: Workings) -> Iterator[Explanation]:
    model, plan = workings.deployment.model, workings.plan
    parts: dict[str, int] = {}
    for run in model.layers:
        for tensor in run.layer.tensors:
            parts[tensor.part] = parts.get(tensor.part, 0) + tensor.elements * run.count
    for tensor in (*model.embedding, *model.head, *model.beside):
        parts[tensor.part] = parts.get(tensor.part, 0) + tensor.elements
    tied = "; the head shares the embedding" if model.tied else ""
    yield explained(
        "weights.params",
        plan.weights.params,
        numbers=_sum([_n(part) for part in parts.values()]),
        formula=" + ".join(part.replace("_", " ") for part in parts) + tied,
        source=model.source,
    )
    rule = workings.deployment.weights.quantisation
    if workings.deployment.weights.from_file:
        formula, numbers = "the sizes of the file's own tensors", _n(plan.weights.bytes)
    elif rule.linear == rule.base and not rule.varies_by_layer:
        formula = f"parameters × bytes a parameter ({rule.name})"
        numbers = f"{_n(plan.weights.params)} × {rule.base.factor}"
    else:
        formula = f"every tensor at its width under {rule.name}, scales included"
        numbers = _n(plan.weights.bytes)
    yield explained(
        "weights.bytes", plan.weights.bytes, numbers=numbers, formula=formula, source=model.source
    )


def _entries(kind: LayerKind, tokens: int, encoder_tokens: int) -> str:
    """How many entries, as an expression of the length."""
    held = kind.entries(tokens, encoder_tokens)
    if kind.window_tokens is not None:
        return f"min({_n(tokens)}, {_n(kind.window_tokens)})"
    return _n(held)


def _cache(workings: Workings) -> Iterator[Explanation]:
    deployment, plan = workings.deployment, workings.plan
    stores = [
        (kind, count)
        for kind, count in deployment.model.stores
        if not isinstance(kind, SharedCache)
    ]
    grows = [(kind, count) for kind, count in stores if kind.growth(deployment.kv)]

    def per_token(kind: LayerKind, n: int) -> str:
        ratio = kind.tokens_per_entry
        return f"{n} × {kind.entry_formula(deployment.kv)}{f' / {ratio}' if ratio > 1 else ''}"

    yield explained(
        "kv.bytes_per_token",
        plan.kv.bytes_per_token,
        numbers=_sum([per_token(k, n) for k, n in grows]),
    )
    yield explained(
        "kv.bytes_per_request",
        plan.kv.bytes_per_request,
        numbers=_sum(
            [
                f"{count} × {_entries(kind, deployment.context_tokens, deployment.encoder_tokens)}"
                f" × {kind.entry_formula(deployment.kv)}"
                for kind, count in stores
            ]
        ),
        tokens=f"{deployment.context_tokens:,} token{'s' if deployment.context_tokens != 1 else ''}",
    )
    fixed = [(kind, count) for kind, count in stores if kind.recurrent]
    if fixed:
        yield explained(
            "kv.state_bytes_per_request",
            plan.kv.state_bytes_per_request,
            numbers=_sum([f"{n} × {k.entry_formula(deployment.kv)}" for k, n in fixed]),
        )
    yield explained("kv.bytes_per_token_per_gpu", plan.kv.bytes_per_token_per_gpu)
    rank = workings.answer.rank
    kinds = [(kind, count) for kind, count in rank.stores if not isinstance(kind, SharedCache)]
    yield explained(
        "kv.bytes_per_request_per_gpu",
        plan.kv.bytes_per_request_per_gpu,
        numbers=_sum(
            [
                f"{n} × "
                f"{_entries(k, rank.held(k, deployment.context_tokens), deployment.encoder_tokens)}"
                f" × {k.entry_formula(deployment.kv)}"
                for k, n in kinds
            ]
        ),
    )


def _memory(workings: Workings) -> Iterator[Explanation]:
    plan, deployment = workings.plan, workings.deployment
    arithmetic = engine_of(deployment.engine).ceiling
    device = deployment.device
    source = device.source("sold_bytes") if arithmetic else device.engine_bytes_source
    what = "the size the card is sold by" if arithmetic else "what an engine sees of the card"
    yield explained(
        "memory.gpu_bytes",
        plan.memory.gpu_bytes,
        gpu=device.name,
        formula=what,
        source="measured" if "visible" in deployment.known_bytes else str(source),
    )
    others = [account for account in plan.memory.accounts if account.name != "kv" and account.bytes]
    if plan.memory.kv_bytes:
        yield explained(
            "memory.kv_bytes",
            plan.memory.kv_bytes,
            numbers=" − ".join(
                _n(v) for v in (plan.memory.gpu_bytes, *(other.bytes for other in others))
            ),
            formula=" − ".join(["memory", *(other.name for other in others)]),
        )


def _ceiling(workings: Workings) -> Iterator[Explanation]:
    limit, deployment = workings.plan.capacity.ceiling, workings.deployment
    if limit is None or not limit.exact:
        return
    # The stage with least room by arithmetic, which need not be the one where the engine runs out.
    memory = workings.answer.ceiling_bytes
    rank = binding_rank(deployment, memory)
    free = memory - rank.weight_bytes
    need = deployment.request_bytes(rank)
    times = f" × {deployment.layout.dp}" if deployment.layout.dp > 1 else ""
    words = " × replicas" if times else ""
    yield explained(
        "capacity.ceiling.exact",
        limit.exact,
        numbers=f"{_n(free)} / {_n(need)}{times}",
        formula=f"(memory − weights) / a request's cache on that GPU{words}",
    )
    yield explained(
        "capacity.ceiling.requests",
        limit.requests,
        numbers=f"⌊{_n(free)} / {_n(need)}⌋{times}",
        formula=f"the same, rounded down{words}",
    )


def _engine(workings: Workings) -> Iterator[Explanation]:
    """What the engine counts, from blocks to requests; and what has room at other lengths."""
    capacity = workings.plan.capacity
    engine = capacity.engine
    context = workings.deployment.context_tokens
    if engine is not None:
        tokens = engine.kv_tokens
        blocks, size = engine.num_blocks, engine.block_tokens
        if blocks is not None and size is not None:
            yield explained("capacity.engine.num_blocks", blocks)
            yield explained("capacity.engine.block_tokens", size)
        if tokens is not None:
            whole = blocks is not None and size is not None and blocks * size == tokens
            numbers = f"{_n(blocks or 0)} × {_n(size or 0)}" if whole else None
            yield explained("capacity.engine.kv_tokens", tokens, numbers=numbers)
        most = engine.max_concurrency
        if most is not None:
            exact = tokens is not None and tokens / context == most
            numbers = f"{_n(tokens or 0)} / {_n(context)}" if exact else None
            yield explained("capacity.engine.max_concurrency", most, numbers=numbers)
        for key in ("low", "high", "max_running_requests"):
            value = getattr(engine, key)
            if value is not None:
                yield explained(f"capacity.engine.{key}", value)
    for name in ("expected", "shared"):
        value = getattr(capacity, name).requests
        if value is not None:
            yield explained(f"capacity.{name}.requests", value)


def _step(workings: Workings) -> Iterator[Explanation]:
    step, traffic = workings.plan.step, workings.traffic
    cache, state = traffic.request_bytes(step.request_tokens)
    source = "the question" if workings.plan.scenario.concurrency else None
    of = () if source else None
    yield explained("step.batch", step.batch, source=source, of=of)
    yield explained("step.request_tokens", step.request_tokens)
    yield explained("step.bytes.weights", step.bytes.weights)
    for key, each, total in (
        ("step.bytes.kv", cache, step.bytes.kv),
        ("step.bytes.state", state, step.bytes.state),
    ):
        if total:
            yield explained(key, total, numbers=f"{_n(step.batch)} × {_n(each)}")
    yield explained(
        "step.flops", step.flops, numbers=f"{_n(step.batch)} × {_n(step.flops // step.batch)}"
    )
    if step.crossover_batch is not None:
        yield explained("step.crossover_batch", step.crossover_batch)
