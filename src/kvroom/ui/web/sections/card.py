"""The answer card of the page's instrument: the figures that decide, each with its 80 % band.

``figures.card`` has ``rows`` in their order (``key``, ``label``, ``value``, ``low``, ``high``, ``form`` as
the page writes it, ``says``), ``colour`` (the verdict's), ``reasons`` and ``warnings`` with the key of the
question that mends each, and the ``layout`` that answers, with why it was chosen. All figures are of the
whole deployment, one GPU nowhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from kvroom.answer.figures import Explanation, explained
from kvroom.answer.plan import Room
from kvroom.engines.registry import engine_of
from kvroom.errors import KvroomError
from kvroom.latency.traffic import compute_dtype
from kvroom.planner.place import weight_rule
from kvroom.planner.plan import Workings
from kvroom.scenario.command_line import FLAGS
from kvroom.scenario.layout import DEGREES
from kvroom.scenario.scenario import Scenario
from kvroom.ui.web.sections.reality import FOLLOWS
from kvroom.ui.web.sections.reality import data as staircase
from kvroom.units import show_seconds

COLOURS = {
    "fits": "fits",
    "full": "waiting",
    "would_not_start": "stopped",
    "unsupported": "stopped",
    "unlikely": "stopped",
}
"""A verdict's status → what its colour says."""
NO_LENGTHS = "needs the lengths of prompts and answers"
NO_TIMES = "the card's arithmetic is not known"
NO_PRICE = "needs what a card costs an hour"
STOPPED = "it does not start"
ROWS = "figures.card.rows"
CHOSEN = "layout chosen: "
_HINT = re.compile(
    r"^(?P<message>.*) \((?P<fix>[^()]*--[a-z][^()]*|known_bytes\.\w+|\w+\.\w+)\)$", re.S
)
_FLAG_KEYS = {flag: key for flag, key, _, _ in FLAGS} | {
    "--price": "prices", "--users": "concurrency", "--engine-arg": "engine_args"
}  # fmt: skip


def degrees(scenario: Scenario) -> str:
    """A layout in words: ``tp 4 pp 2``."""
    degrees_of = [(key, getattr(scenario, key)) for key in DEGREES]
    return " ".join(f"{key} {ranks}" for key, ranks in degrees_of if ranks > 1) or "tp 1"


def card(workings: Workings, scenario: Scenario) -> dict[str, Any]:
    """The card of an answer to the question ``scenario``."""
    plan, verdict = workings.plan, workings.plan.verdict
    about = {refusal.rule: refusal.key for refusal in workings.answer.refusals}
    return {
        "colour": COLOURS[verdict.status],
        "sentence": verdict.sentence,
        "replicas": plan.scenario.replicas,
        "rows": list(_rows(workings)),
        "reasons": [
            {"message": reason.message, "fix": reason.fix, "source": reason.source,
             "key": about.get(reason.rule, "")}
            for reason in verdict.reasons
        ],
        "warnings": [_warning(text) for text in plan.warnings if not text.startswith(CHOSEN)],
        "layout": _layout(workings, scenario),
        "limits": _limits(workings),
        "facts": _facts(workings),
    }  # fmt: skip


def _rows(workings: Workings) -> Iterator[dict[str, Any]]:
    plan = workings.plan
    stairs = {stair["key"]: stair for stair in staircase(workings)["stairs"] if stair["level"]}
    rooms = {"expected": plan.capacity.expected, "shared": plan.capacity.shared}
    for key, label in (
        ("ceiling", "Ceiling: arithmetic alone"),
        ("engine", f"Engine: as {engine_of(plan.scenario.engine).label} counts"),
        ("expected", "Expected: at the workload's lengths"),
        ("shared", "Shared: its common prefix stored once"),
    ):
        stair = stairs.get(key)
        if key == "engine" and engine_of(plan.scenario.engine).ceiling:
            stair = None
        if stair is None:
            needs = NO_LENGTHS if key in rooms else "no engine is asked about"
            if not stairs:
                needs = "requests store nothing"
            elif not workings.answer.starts:
                needs = STOPPED
            yield _row(key, label, None, form="requests", needs=needs)
            continue
        low, high = (stair.get("low"), stair.get("high")) if stair["to"] else (None, None)
        room = rooms.get(key, Room())
        yield _row(
            key, label, stair["to"], low if room.low is None else room.low,
            high if room.high is None else room.high, form="requests", unit="requests",
            formula=stair["formula"], source=stair["source"], says=_lengths(workings, key),
            of=FOLLOWS[key],
        )  # fmt: skip
    yield from _times(workings)


def _lengths(workings: Workings, key: str) -> str:
    """How long the requests are that a row counts."""
    if key in ("ceiling", "engine"):
        return f"requests of {workings.deployment.context_tokens:,} tokens, the longest"
    load = workings.load
    if load is None or key != "expected":
        return ""
    return f"requests of {load.input_tokens:,} tokens in and {load.output_tokens:,} out on average"


def _times(workings: Workings) -> Iterator[dict[str, Any]]:
    plan, serving, step = workings.plan, workings.plan.serving, workings.plan.step
    why = NO_TIMES if workings.timing is None else NO_LENGTHS
    stopped = not plan.verdict.starts and not plan.scenario.allow_overcommit
    if stopped:
        why = STOPPED
    model = "the model of steps, calibrated on published measurements"
    yield _row(
        "ttft", "TTFT: time to first token", serving.ttft_s, serving.ttft_low_s, serving.ttft_high_s,
        form="seconds", unit="s", needs=why, source=serving.rests_on or model, figure="serving.ttft_s",
    )  # fmt: skip
    tpot, low, high = serving.tpot_s, serving.tpot_low_s, serving.tpot_high_s
    figure, of_step = "serving.tpot_s", False
    if tpot is None and step.seconds is not None:
        gained, figure, of_step = step.tokens_per_request, "", True
        tpot = step.seconds / gained
        low, high = _over(step.seconds_low, gained), _over(step.seconds_high, gained)
    batch = f"a decode step of {step.batch:,} requests of {step.request_tokens:,} tokens each"
    yield _row(
        "tpot", "TPOT: time per output token", tpot, low, high, form="seconds", unit="s",
        needs=why, figure=figure, formula=f"{batch} / tokens that each gains by it",
        numbers=f"{step.seconds!r} / {step.tokens_per_request!r}",
        source=serving.rests_on or model, says=batch if of_step else "", of=("step.seconds",),
    )  # fmt: skip
    yield _row(
        "user", "Tokens/s, each user", _over(1.0, tpot), _over(1.0, high), _over(1.0, low),
        form="requests", unit="tokens/s", needs=why, formula="1 / time per output token",
        numbers=f"1 / {tpot!r}", source="TPOT", of=(figure or f"{ROWS}.5.value",),
    )  # fmt: skip
    rate, band = serving.output_tokens_per_s, _band(workings)
    figure = "serving.output_tokens_per_s"
    if rate is None and step.tokens_per_s is not None:
        rate, figure = step.tokens_per_s * plan.scenario.replicas, ""
    yield _row(
        "total", "Tokens/s, all users", rate, *_scaled(rate, band), form="requests", unit="tokens/s",
        needs=why, figure=figure, formula="the step's tokens × replicas",
        numbers=f"{step.tokens_per_s!r} × {plan.scenario.replicas}", source="TPOT",
        of=("step.tokens_per_s",),
        says=_load_words(workings),
    )  # fmt: skip
    price = plan.cost.usd_per_million_output_tokens
    low, high = _scaled(price, (1 / band[1], 1 / band[0]) if band else None)
    unpriced = plan.cost.usd_per_hour is None and not stopped
    yield _row(
        "usd", "$ per million output tokens", price, low, high, form="usd", unit="$",
        needs=NO_PRICE if unpriced else why, figure="cost.usd_per_million_output_tokens",
    )  # fmt: skip


def _band(workings: Workings) -> tuple[float, float] | None:
    """The rate's 80 % band over the rate itself: a closed loop's is users over the time of a request, so it
    goes as that time's band; open arrivals set their own rate."""
    serving, step, load = workings.plan.serving, workings.plan.step, workings.load
    if serving.output_tokens_per_s is None:
        if step.seconds is None or not step.seconds_low or not step.seconds_high:
            return None
        return step.seconds / step.seconds_high, step.seconds / step.seconds_low
    split = workings.split and workings.split.pools
    tokens = load.output_tokens if load else split.decode.output_tokens if split else 0
    if (load is not None and load.requests_per_s is not None) or not tokens:
        return None

    def whole(first: float | None, each: float | None) -> float | None:
        return None if first is None or each is None else first + (tokens - 1) * each

    mid = whole(serving.ttft_s, serving.tpot_s)
    low = whole(serving.ttft_low_s, serving.tpot_low_s)
    high = whole(serving.ttft_high_s, serving.tpot_high_s)
    return (mid / high, mid / low) if mid and low and high else None


def _scaled(
    value: float | None, band: tuple[float, float] | None
) -> tuple[float | None, float | None]:
    if value is None or band is None:
        return None, None
    return value * band[0], value * band[1]


def _over(value: float | None, by: float | None) -> float | None:
    return value / by if value is not None and by else None


def _load_words(workings: Workings) -> str:
    """Under which load the rate is."""
    load, step = workings.load, workings.plan.step
    if load is None:
        return f"{step.batch:,} requests decode together" if step.seconds is not None else ""
    if load.requests_per_s is not None:
        return f"{load.requests_per_s:,g} requests arrive a second"
    return f"{load.users:,.0f} users, each asking again once answered"


def _row(
    key: str,
    label: str,
    value: float | None,
    low: float | None = None,
    high: float | None = None,
    *,
    form: str,
    unit: str = "",
    needs: str = "",
    figure: str = "",
    formula: str = "",
    numbers: str = "",
    source: str = "",
    says: str = "",
    of: tuple[str, ...] = (),
) -> dict[str, Any]:
    banded = value is not None and low is not None and high is not None and low < high
    return {
        "key": key,
        "label": label,
        "value": value,
        "low": low if banded else None,
        "high": high if banded else None,
        "form": form,
        "unit": unit,
        "needs": needs if value is None else "",
        "figure": figure,
        "formula": formula,
        "numbers": numbers,
        "source": source,
        "of": of,
        "says": says if value is not None else "",
    }


def _warning(text: str) -> dict[str, str]:
    """A warning apart from what mends it: the flag in brackets at its end, and the key that this sets."""
    match = _HINT.match(text)
    if match is None:
        return {"message": text, "fix": "", "key": ""}
    fix = match["fix"]
    flag = fix.split()[0]
    return {
        "message": match["message"],
        "fix": fix,
        "key": _FLAG_KEYS.get(flag, fix.partition(".")[0] if "." in flag else ""),
    }


def _layout(workings: Workings, scenario: Scenario) -> dict[str, Any]:
    """The layout that answers; ``why`` where kvroom chose it."""
    reasons = (text for text in workings.plan.warnings if text.startswith(CHOSEN))
    why = next(reasons, "").removeprefix(CHOSEN).partition(" (--")[0]
    if scenario.layout_open and not why:
        why = f"{degrees(workings.plan.scenario)}: tensor ranks within one machine, as most run it"
        if not engine_of(scenario.engine).tensor_parallel:
            why = f"{degrees(workings.plan.scenario)}: {scenario.engine} deals the layers out to its cards"
    return {
        "says": degrees(workings.plan.scenario),
        "chosen": scenario.layout_open,
        "why": why,
        **{key: getattr(workings.plan.scenario, key) for key in DEGREES},
    }


def _facts(workings: Workings) -> dict[str, Any]:
    """What the question leaves open and the answer took: the checkpoint's width, the release, the card."""
    deployment = workings.deployment
    device = deployment.device
    return {
        "weights": weight_rule(replace(workings.own, weight_dtype=None), deployment.model).name,
        "version": engine_of(deployment.engine).newest,
        "name": device.name,
        "usd_per_hour": device.usd_per_hour,
        "gpu": {
            "memory_bytes": device.sold_bytes,
            "memory_bytes_per_s": device.memory_bytes_per_s,
            "flops_per_s": dict(device.flops_per_s),
        },
    }


def _limits(workings: Workings) -> dict[str, dict[str, Any]]:
    """The engine's own flags for memory share, sequences and batched tokens, as they are; ``value`` is
    what holds (None: not known), ``flag`` "" where the engine has none."""
    deployment, capacity = workings.deployment, workings.plan.capacity.engine
    engine = engine_of(deployment.engine)
    limits, args = engine.limits, deployment.args
    share = engine.memory_share(deployment)
    shares = limits.share_flag(args) if limits.share else ""
    return {
        "share": {"flag": shares, "value": args.get(shares, share[1] if share else None)},
        "sequences": {
            "flag": limits.sequences,
            "value": args.get(
                limits.sequences, capacity.max_running_requests if capacity else None
            ),
        },
        "batch_tokens": {
            "flag": limits.batch_tokens,
            "value": args.get(limits.batch_tokens, _batch_tokens(workings)),
        },
    }


def _batch_tokens(workings: Workings) -> int | None:
    """Tokens of a step at most, of an engine that is served by paged blocks; None where it starts none, and
    for plain arithmetic."""
    deployment = workings.deployment
    engine = engine_of(deployment.engine)
    if engine.ceiling:
        return None
    try:
        rules = engine.serving_rules(deployment, workings.answer)
    except KvroomError:
        return None
    return rules.setup.config.max_num_batched_tokens if rules.own is None else None


def explanations(workings: Workings, found: dict[str, Any]) -> Iterator[Explanation]:
    """How each row comes about, where no figure of the Plan says it; and what the card's maker states."""
    device, at = workings.deployment.device, "figures.card.facts.gpu."
    if device.memory_bytes_per_s:
        source = str(device.source("memory_bytes_per_s"))
        yield explained(f"{at}memory_bytes_per_s", device.memory_bytes_per_s, source=source)
    dtype = compute_dtype(workings.deployment.weights.quantisation.linear, device)
    if dtype in device.flops_per_s:
        source = str(device.source("flops_per_s"))
        rate = device.flops_per_s[dtype]
        yield explained(f"{at}flops_per_s.{dtype}", rate, source=source, dtype=dtype)
    for index, row in enumerate(found["rows"]):
        if row["value"] is None or row["figure"]:
            continue
        yield Explanation(
            figure=f"{ROWS}.{index}.value",
            label=row["label"],
            value=row["value"],
            unit=row["unit"],
            formula=row["formula"],
            numbers=row["numbers"] or repr(row["value"]),
            source=row["source"] or "the Plan",
            of=row["of"],
        )


def spoken(found: dict[str, Any]) -> str:
    """The card in a sentence or two, for whoever does not see it."""
    rows = {row["key"]: row for row in found["rows"] if row["value"] is not None}
    words = [
        f"{name} {show_seconds(rows[key]['value'])}"
        for key, name in (("ttft", "TTFT"), ("tpot", "TPOT"))
        if key in rows
    ]
    if "total" in rows:
        words.append(f"{rows['total']['value']:,.0f} tokens a second in all")
    return " ".join([found["sentence"], f"{', '.join(words)}." if words else ""]).strip()
