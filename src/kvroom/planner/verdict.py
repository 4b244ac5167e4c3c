"""The verdict: does it fit, what gives way first, and that in one sentence."""

from __future__ import annotations

from dataclasses import replace
from math import floor

from kvroom.answer.plan import Ceiling, Verdict
from kvroom.engines.base import EngineAnswer
from kvroom.models import quantization as quantisation
from kvroom.scenario.scenario import Scenario
from kvroom.sharding.deployment import Deployment
from kvroom.units import say_tokens, show_gib


def requests_held(d: Deployment, answer: EngineAnswer, limit: Ceiling | None) -> int | None:
    """Whole requests of ``context_tokens`` that the deployment runs at once: those that its cache
    holds, as far as its scheduler takes them; None where length is free."""
    stored, taken = _stored(d, answer, limit), _taken(d, answer)
    return stored if stored is None or taken is None else min(stored, taken)


def _stored(d: Deployment, answer: EngineAnswer, limit: Ceiling | None) -> int | None:
    """Whole requests that the cache holds."""
    if limit is None:
        return None
    if d.engine == "arithmetic":
        return limit.requests
    most = answer.capacity.max_concurrency if answer.capacity else None
    return None if most is None else d.layout.dp * answer.pools * floor(most)


def _taken(d: Deployment, answer: EngineAnswer) -> int | None:
    """Requests that the engine's schedulers run at once, whatever is free; None without a limit."""
    most = answer.capacity.max_running_requests if answer.capacity else None
    return None if most is None else d.layout.dp * answer.pools * most


def judge(
    scenario: Scenario, d: Deployment, answer: EngineAnswer, limit: Ceiling | None
) -> Verdict:
    """Whether it starts and holds the asked requests, and the sentence that says so."""
    asked = scenario.concurrency or 1
    stored, held = _stored(d, answer, limit), requests_held(d, answer, limit)
    rank = answer.rank
    if rank.weight_bytes > answer.gpu_bytes and not answer.cache_given:
        return Verdict(fits=False, binding="weights", sentence=_too_heavy(d, answer))
    if stored is None or held is None:
        return Verdict(
            fits=answer.starts,
            binding="nothing" if answer.starts or answer.kv_bytes else "weights",
            sentence=_no_cache(d, answer),
        )
    if held < 1 and answer.starts and answer.cache_given:
        return Verdict(fits=asked == 1, binding=_account(d, answer), sentence=_lenient(d, answer))
    fits = answer.starts and held >= asked
    if held < 1 or not answer.starts:
        return Verdict(fits=False, binding=_account(d, answer), sentence=_too_long(d, answer))
    return Verdict(
        fits=fits,
        binding="max_num_seqs" if held < stored else answer.binding or _account(d, answer),
        sentence=_room(d, answer, held, stored, scenario.concurrency),
    )


def _account(d: Deployment, answer: EngineAnswer) -> str:
    """Which share of a request's bytes it is that runs out: growing cache, or fixed state."""
    rank, kv = answer.rank, d.kv
    fixed = sum(k.stored_bytes(1, kv) * n for k, n in rank.stores if k.kind in ("state", "conv"))
    return "state" if 2 * fixed > d.request_bytes(rank) else "kv_memory"


def _cards(d: Deployment) -> str:
    n = d.layout.gpus
    return d.device.name if n == 1 else f"{n} × {d.device.name}"


def _a_request(d: Deployment) -> str:
    return f"a request of {say_tokens(d.context_tokens)}"


SCHEDULER_FLAGS = {
    "vllm": "max_num_seqs",
    "sglang": "max_running_requests",
    "tensorrt-llm": "max_batch_size",
    "llama.cpp": "parallel",
}
"""What an engine calls the most requests that it runs at once."""


def _room(d: Deployment, answer: EngineAnswer, held: int, stored: int, asked: int | None) -> str:
    each = show_gib(d.request_bytes(answer.rank))
    left = show_gib(answer.kv_bytes)
    where = "a GPU" if d.layout.gpus > 1 else "the GPU"
    what = f"{say_tokens(d.context_tokens)} on {_cards(d)}"
    why = f"{_a_request(d)} takes {each} on {where}, and {left} is left beside the weights"
    if not d.request_bytes(answer.rank):
        why = f"{_a_request(d)} keeps nothing on {where}"
    elif d.request_bytes(answer.rank) * (held // d.layout.dp + 1) <= answer.kv_bytes:
        limit = answer.limit or f"as {d.engine} shares out its {left} of cache no more fit"
        why = f"{_a_request(d)} stores {each} on {where}, but {limit}"
    if held < stored:
        flag = SCHEDULER_FLAGS.get(d.engine)
        limit = f" ({flag})" if flag else ""
        why = f"{d.engine} runs no more at once{limit}, though its cache would hold {stored:,}"
    if asked is not None and held < asked:
        return f"Room for {held:,} of {asked:,} requests of {what}: {why}."
    more = f" The {_ordinal(held + 1)} would wait." if asked is None or held == asked else ""
    of = f"Room for {held:,} request{'s' if held != 1 else ''} of {what}"
    if asked is not None and held > asked:
        of += f", {held - asked:,} more than the {asked:,} asked for"
    return f"{of}: {why}.{more}"


def _ordinal(n: int) -> str:
    suffix = "th" if 10 < n % 100 < 14 else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n:,}{suffix}"


def _no_cache(d: Deployment, answer: EngineAnswer) -> str:
    if not answer.starts:
        return f"Does not start on {_cards(d)}: {answer.reason}."
    return f"Fits on {_cards(d)}, and requests store nothing: this model keeps no cache."


def _too_heavy(d: Deployment, answer: EngineAnswer) -> str:
    need, have = answer.rank.weight_bytes, answer.gpu_bytes
    return (
        f"Does not fit: the weights need {show_gib(need)} on one GPU and {d.device.name} holds "
        f"{show_gib(have)}, {show_gib(need - have)} too little.{_remedy(d, answer)}"
    )


def _remedy(d: Deployment, answer: EngineAnswer) -> str:
    """The fewest cards, and the widest narrower weights, that would hold the weights."""
    found: list[str] = []
    heads = d.model.q_heads or 2**20
    for tp in (2, 4, 8, 16, 32, 64):
        if tp > d.layout.tp and heads % tp == 0:
            layout = replace(d.layout, tp=tp, ep=1, dcp=1)
            if max(r.weight_bytes for r in d.weights.ranks(layout)) < answer.gpu_bytes:
                found.append(f"{layout.gpus} of them (tp {tp})")
                break
    for name in ("fp8", "int4"):
        rule = type(d.weights)(model=d.model, quantisation=quantisation.named(name, d.model))
        if rule.whole_bytes < d.weights.whole_bytes and all(
            r.weight_bytes < answer.gpu_bytes for r in rule.ranks(d.layout)
        ):
            found.append(f"{name} weights")
            break
    return f" {' or '.join(found).capitalize()} would hold them." if found else ""


def _lenient(d: Deployment, answer: EngineAnswer) -> str:
    part = answer.capacity.max_concurrency if answer.capacity else None
    return (
        f"Starts, since {d.engine}'s own check passes, but {show_gib(answer.kv_bytes)} of cache hold "
        f"only {part or 0:.2f} of {_a_request(d)}."
    )


def _too_long(d: Deployment, answer: EngineAnswer) -> str:
    need = d.request_bytes(answer.rank)
    longest = answer.capacity.max_context_tokens if answer.capacity else None
    say = (
        f" The longest request that fits is {longest:,} tokens."
        if longest
        else " Not even a short one fits."
    )
    if not answer.starts and answer.reason and d.engine != "arithmetic":
        shorter = longest is not None and longest < d.context_tokens
        return f"Does not start on {_cards(d)}: {answer.reason}.{say if shorter else ''}"
    if need <= answer.kv_bytes:
        return (
            f"Not one request fits: {_a_request(d)} stores {show_gib(need)}, but as {d.engine} "
            f"shares out its {show_gib(answer.kv_bytes)} of cache on one GPU it needs more.{say}"
        )
    return (
        f"Not one request fits: beside the weights {show_gib(answer.kv_bytes)} is left for cache "
        f"on one GPU, and {_a_request(d)} needs {show_gib(need)}.{say}"
    )
