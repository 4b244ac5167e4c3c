"""The times of a Plan with their formulas: the terms of a step, the parts of TPOT and TTFT, the price.

Seconds are written out in full, so that their sum is the figure itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvroom.answer.figures import Explanation, explained
from kvroom.answer.plan import Serving
from kvroom.latency.disaggregation import Handed, PoolsUnderLoad
from kvroom.latency.drafting import at_batch
from kvroom.latency.load import Times
from kvroom.latency.step_time import Terms
from kvroom.planner.plan import Divided, Workings

TERMS = (
    ("weights_s", "weights read / (share reached × memory rate)"),
    ("cache_s", "cache and state read / (share reached × memory rate)"),
    ("compute_s", "FLOP / (share reached × peak rate)"),
    ("layers_s", "launches, layer by layer"),
    ("links_s", "all-reduces and what they send"),
    ("requests_s", "each request's own"),
    ("step_s", "the step's own"),
    ("draft_s", "the draft's passes"),
    ("host_s", "bytes in host memory / its rate"),
    ("uneven_s", "waiting for the slowest stage"),
)


def times(workings: Workings) -> Iterator[Explanation]:
    """The explanations of ``step.seconds``, ``serving`` and ``cost`` where they are known."""
    if workings.timing is None:
        return
    step, tokens = workings.plan.step, workings.plan.step.request_tokens
    terms, _ = workings.timing.step(step.batch, tokens)
    if step.seconds is not None:
        yield explained(
            "step.seconds",
            step.seconds,
            numbers=_terms(terms),
            formula=" + ".join(words for name, words in TERMS if getattr(terms, name)),
        )
    yield from _speculation(workings)
    gained = " × tokens that each gains" if workings.deployment.speculation else ""
    times_over = f" × {step.tokens_per_request!r}" if gained else ""
    if step.tokens_per_s is not None:
        yield explained(
            "step.tokens_per_s",
            step.tokens_per_s,
            numbers=f"{step.batch}{times_over} / {step.seconds!r}",
            formula=f"requests{gained} / the step",
        )
    if workings.split is not None:
        yield from _pools(workings, workings.split)
        return
    yield from _serving(workings)
    yield from _cost(workings)


def _speculation(workings: Workings) -> Iterator[Explanation]:
    speculation = at_batch(workings.deployment, workings.plan.step.batch).speculation
    if speculation is None:
        return
    if isinstance(speculation.acceptance_rate, tuple):
        formula = f"1 + the share of {speculation.tokens} drafts that is kept, position by position"
        numbers = " + ".join(map(repr, (1, *speculation.kept)))
    else:
        drafts = speculation.tokens
        formula = f"1 + a + a² + … + a^{drafts}, each of {drafts} drafts kept with chance a"
        numbers = " + ".join(
            f"{speculation.kept[0]!r}**{index}" for index in range(speculation.tokens + 1)
        )
    yield explained(
        "step.tokens_per_request",
        workings.plan.step.tokens_per_request,
        numbers=numbers,
        formula=formula,
        source="assumed" if speculation.acceptance_assumed else "speculation.acceptance_rate",
    )


def _terms(terms: Terms) -> str:
    return " + ".join(repr(getattr(terms, n)) for n, _ in TERMS if getattr(terms, n)) or "0"


def _serving(workings: Workings) -> Iterator[Explanation]:
    times, load, serving = workings.times, workings.load, workings.plan.serving
    if times is None or load is None:
        return
    if serving.tpot_s is not None:
        others = f" + {times.prompts_a_step!r} × {times.prompt_s!r}" if times.prompts_a_step else ""
        yield explained(
            "serving.tpot_s",
            serving.tpot_s,
            numbers=f"{times.step_s!r}{others}"
            if times.tokens_a_step == 1
            else f"({times.step_s!r}{others}) / {times.tokens_a_step!r}",
            formula=f"a decode step of {times.decoding:,.1f} requests"
            + (" + prompts begun in a step × what one adds" if others else "")
            + (", over the tokens that it gains each" if times.tokens_a_step != 1 else ""),
        )
    if serving.ttft_s is not None:
        parts = [
            ("the prompt's own prefill", times.own_s),
            ("the step under way and prompts before it", times.queued_s),
            ("answers that must end before there is room", times.no_room_s),
            *_outside(times),
        ]
        kept = [(words, s) for words, s in parts if s]
        yield explained(
            "serving.ttft_s",
            serving.ttft_s,
            numbers=" + ".join(repr(s) for _, s in kept),
            formula=" + ".join(words for words, _ in kept),
        )
    if serving.output_tokens_per_s is not None:
        yield explained(
            "serving.output_tokens_per_s",
            serving.output_tokens_per_s,
            numbers=f"{times.requests_per_s!r} × {load.output_tokens}",
        )


def _outside(t: Times | Handed) -> tuple[tuple[str, float], ...]:
    """What a client waits for beside the engine."""
    return (
        ("the front end", t.front_end_s),
        ("a benchmark's start of all users at once", t.start_s),
    )


def _pools(workings: Workings, split: Divided) -> Iterator[Explanation]:
    """Times and price of two pools."""
    if split.pools is not None and split.times is not None:
        yield from _handed(workings.plan.serving, split.pools, split.times)
    hour, pools = workings.plan.cost.usd_per_hour, workings.plan.pools
    if hour is None or pools is None:
        return
    both = ((split.prefill.deployment, pools.prefill), (split.decode.deployment, pools.decode))
    yield explained(
        "cost.usd_per_hour",
        hour,
        numbers=" + ".join(f"{d.device.usd_per_hour!r} × {p.gpus} × {p.replicas}" for d, p in both),
        formula="a GPU's hour × GPUs × replicas, of both pools",
        source="; ".join(dict.fromkeys(str(d.device.source("usd_per_hour")) for d, _ in both)),
    )


def _handed(serving: Serving, pools: PoolsUnderLoad, handed: Handed) -> Iterator[Explanation]:
    steps = max(1, pools.steps)
    waits = [
        ("prompts before it", handed.queued_s),
        ("room in the first pool", handed.no_room_s),
        *_outside(handed),
    ]
    waits = [(words, s) for words, s in waits if s]
    first = " + ".join(["the prompt's own prefill", *(words for words, _ in waits)])
    rows: list[tuple[str, float | None, str | None, str]] = [
        (
            "serving.tpot_s",
            serving.tpot_s,
            "a decode step of a replica + the hand-over / tokens after the first",
            f"{handed.token_s!r} + {handed.handover_s!r} / {steps}",
        ),
        (
            "serving.ttft_s",
            serving.ttft_s,
            first,
            " + ".join(repr(s) for s in (handed.own_s, *(s for _, s in waits))),
        ),
        (
            "serving.output_tokens_per_s",
            serving.output_tokens_per_s,
            None,
            f"{handed.requests_per_s!r} × {pools.decode.output_tokens}",
        ),
        (
            "pools.prefill.requests_per_s",
            pools.prefill_rate,
            None,
            f"{pools.first_engines} × {pools.first.work.layout.pp} / {pools.full_s!r}",
        ),
        (
            "pools.decode.requests_per_s",
            pools.decode_rate if pools.steps else None,
            None,
            f"{pools.second_engines} × {pools.slots!r} / ({steps} × {pools.token_s(pools.slots)!r})",
        ),
    ]
    for key, value, formula, numbers in rows:
        if value is not None:
            yield explained(key, value, numbers=numbers, formula=formula)


def _cost(workings: Workings) -> Iterator[Explanation]:
    cost, deployment, plan = workings.plan.cost, workings.deployment, workings.plan
    if cost.usd_per_hour is None:
        return
    copies = f" × {plan.scenario.replicas}" if plan.scenario.replicas > 1 else ""
    source = str(deployment.device.source("usd_per_hour"))
    yield explained(
        "cost.usd_per_hour",
        cost.usd_per_hour,
        numbers=f"{deployment.device.usd_per_hour!r} × {deployment.layout.gpus}{copies}",
        formula="a GPU's hour × GPUs" + (" × replicas" if copies else ""),
        source=source,
    )
    of_step = plan.step.tokens_per_s and plan.step.tokens_per_s * plan.scenario.replicas
    rate = plan.serving.output_tokens_per_s or of_step
    if cost.usd_per_million_output_tokens is not None and rate:
        yield explained(
            "cost.usd_per_million_output_tokens",
            cost.usd_per_million_output_tokens,
            numbers=f"{deployment.device.usd_per_hour!r} × {deployment.layout.gpus}{copies}"
            f" / 3600 / {rate!r} × 1000000",
            source=source,
        )
    if cost.usd_per_user_hour is not None:
        yield explained("cost.usd_per_user_hour", cost.usd_per_user_hour, source=source)
