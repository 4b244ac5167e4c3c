"""The times and the price of a Plan in words, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvroom.answer.plan import Cost, Pool
from kvroom.latency.load import Load
from kvroom.planner.plan import Workings
from kvroom.ui.terminal.text import wrapped
from kvroom.units import (
    say_tokens,
    show_count,
    show_gb,
    show_gib,
    show_rate,
    show_seconds,
    show_usd,
)


def times(workings: Workings) -> list[str]:
    """The seconds of the step and under load, what they cost, and what lies below the GPU."""
    return [
        x
        for x in (
            "\n".join(b)
            for b in (
                _step(workings),
                _serving(workings),
                _pools(workings),
                _cost(workings),
                _tiers(workings),
            )
        )
        if x
    ]


def interval(low: float | None, high: float | None) -> str:
    """The band of a time in words; "" where there is none."""
    if low is None or high is None:
        return ""
    return f"80 % interval {show_seconds(low)} to {show_seconds(high)}"


def _band(low: float | None, high: float | None) -> str:
    return f"  {interval(low, high)}" if low is not None and high is not None else ""


def _step(workings: Workings) -> list[str]:
    step = workings.plan.step
    if step.seconds is None or step.tokens_per_s is None or workings.timing is None:
        return []
    terms, _ = workings.timing.step(step.batch, step.request_tokens)
    parts = {
        "weights": terms.weights_s,
        "cache": terms.cache_s,
        "arithmetic": terms.compute_s,
        "launches": terms.layers_s + terms.step_s + terms.requests_s,
        "links": terms.links_s,
        "drafting": terms.draft_s,
        "host memory": terms.host_s,
        "slowest stage": terms.uneven_s,
    }
    largest = sorted(parts.items(), key=lambda p: -p[1])[:3]
    shares = ", ".join(f"{n} {100 * v / step.seconds:.0f} %" for n, v in largest if v)
    lines = [
        "The step takes",
        f"  {'step':14}{show_seconds(step.seconds):>12}{_band(step.seconds_low, step.seconds_high)}",
        f"  {'of it':14}  {shares}",
        f"  {'tokens a s':14}{step.tokens_per_s:>12,.0f}  of all requests",
    ]
    if workings.deployment.speculation is not None:
        plain = workings.timing.clock.plain.decode_s(step.batch, step.request_tokens)
        gain = step.tokens_per_request * plain / step.seconds
        lines.append(
            f"  {'speculation':14}{'× ' + format(gain, '.2f'):>12}  of what it makes without"
            f"; {step.tokens_per_request:.2f} tokens each a step"
        )
    return lines


def _load(workings: Workings) -> Load | None:
    split = workings.split
    return split.pools.prefill if split and split.pools else workings.load


def load_in_words(workings: Workings) -> str:
    """Who comes with what: ``32 users, 1,000 tokens in, 300 tokens out``; "" where nobody says."""
    load = _load(workings)
    if load is None:
        return ""
    who = (
        f"one batch of {load.users:,}"
        if load.static
        else f"{load.requests_per_s:g} requests a second"
        if load.requests_per_s is not None
        else f"{load.users:,} user{'s' if load.users != 1 else ''}"
    )
    lengths = f"{say_tokens(load.input_tokens)} in, {say_tokens(load.output_tokens)} out"
    workload = workings.plan.scenario.workload
    if workload is None:
        return f"{who}, {lengths}"
    from kvroom.workloads.synthetic import spread_of, spreads  # where somebody comes

    if spreads(workload):
        wide = spread_of(workload, workings.deployment.context_tokens)
        lengths += f", ± {wide:.0%}".replace("%", " %") if wide >= 0.005 else ""
    return f"{who}, {lengths}"


def _serving(workings: Workings) -> list[str]:
    serving = workings.plan.serving
    times = workings.split.times if workings.split else workings.times
    if serving.tpot_s is None or _load(workings) is None or times is None:
        return []
    first = "no end" if serving.ttft_s is None else show_seconds(serving.ttft_s)
    parts = {
        "engine": serving.ttft_engine_s,
        "front end": serving.ttft_front_end_s,
        "start": serving.ttft_start_s,
    }
    text = ", ".join(f"{name} {show_seconds(part)}" for name, part in parts.items() if part)
    return [
        f"Under load: {load_in_words(workings)}",
        f"  {'TTFT':14}{first:>12}{_band(serving.ttft_low_s, serving.ttft_high_s)}",
        *([f"  {'of it':14}  {text}"] if serving.ttft_s is not None else []),
        f"  {'TPOT':14}{show_seconds(serving.tpot_s):>12}"
        f"{_band(serving.tpot_low_s, serving.tpot_high_s)}",
        f"  {'throughput':14}{serving.output_tokens_per_s or 0:>12,.0f}  tokens a second",
        f"  {'decoding':14}{times.decoding:>12,.1f}  at once",
        f"  {'measured':14}  {serving.rests_on}",
    ]


def _pools(workings: Workings) -> list[str]:
    """Two pools and the links between them, and what each keeps up with."""
    pools = workings.plan.pools
    if pools is None:
        return []
    link = f"{show_rate(pools.link_bytes_per_s)} a replica"
    rows = [
        ("prefill", _replicas(pools.prefill), pools.prefill.requests_per_s),
        ("link", link, pools.link_requests_per_s),
        ("decode", _replicas(pools.decode), pools.decode.requests_per_s),
    ]
    lines = ["Prompts and answers in pools, and the requests a second that they keep up with"]
    for name, what, rate in rows:
        rate_text = "" if rate is None else f"{rate:>12,.1f}"
        rate_text += "  binds" if name == pools.binding else ""
        lines.append(f"  {name:14}{what:>22}{rate_text}".rstrip())
    crossing = "" if pools.handover_s is None else f", {show_seconds(pools.handover_s)} after TTFT"
    lines.append(f"  {'hand-over':14}{show_gb(pools.handed_bytes):>22}  a request{crossing}")
    if pools.needs_link_bytes_per_s is not None:
        lines.append(
            f"  {'link needed':14}{show_rate(pools.needs_link_bytes_per_s):>22}  to hold up neither pool"
        )
    return lines


def _replicas(pool: Pool) -> str:
    cards = pool.gpu if pool.gpus == 1 else f"{pool.gpus} x {pool.gpu}"
    return f"{pool.replicas:,} of {cards}" + ("" if pool.fits else ", too small")


def money(cost: Cost) -> Iterator[tuple[str, str, str]]:
    """What an hour, a million output tokens and an output token's energy cost: name, value, note."""
    if cost.usd_per_hour is None:
        if cost.price_source:
            yield "cost", "-", cost.price_source
    else:
        yield "cost", show_usd(cost.usd_per_hour), f"an hour: {cost.price_source}"
        if cost.usd_per_million_output_tokens is not None:
            million = show_usd(cost.usd_per_million_output_tokens)
            yield "", million, "a million output tokens"
    if cost.joules_per_output_token is not None:
        low, high = cost.joules_per_output_token_low, cost.joules_per_output_token_high
        note = "an output token"
        if low is not None and high is not None:
            note += f", {low:,.2f} to {high:,.2f} J"
        yield "energy", f"{cost.joules_per_output_token:,.2f} J", note


def _cost(workings: Workings) -> list[str]:
    cost = workings.plan.cost
    more = [
        ("1M tokens in", cost.usd_per_million_input_tokens),
        ("a user's hour", cost.usd_per_user_hour),
    ]
    rows = [*money(cost), *((n, show_usd(v), "") for n, v in more if v is not None)]
    lines = [wrapped(f"  {name:14}{value:>12}  ", note) for name, value, note in rows]
    return ["Cost and energy", *lines] if lines else []


def _tiers(workings: Workings) -> list[str]:
    if workings.timing is None:
        return []
    from kvroom.planner.tiers import tiers  # where all is told

    rows = tiers(workings)
    lines = ["Tiers of memory, each so many times larger and slower than the one above"]
    for t in rows["tiers"]:
        size = show_gb(t["bytes"]) if t["bytes"] else "-"
        rate = show_rate(t["bytes_per_s"]) if t["bytes_per_s"] else "-"
        larger = f"× {t['times_larger']:,.0f}" if t["times_larger"] else ""
        slower = f"÷ {t['times_slower']:,.3g}" if t["times_slower"] else ""
        lines.append(f"  {t['name']:14}{size:>12}{larger:>10}{rate:>12}{slower:>9}".rstrip())
    if rows["crossings"]:
        tokens = say_tokens(rows["prompt_tokens"])
        again = show_seconds(rows["recompute_s"])
        lines.append(f"Loading all weights, fetching {tokens} of cache (anew: {again})")
    for c in rows["crossings"]:
        load, fetch = show_seconds(c["load_weights_s"]), show_seconds(c["fetch_s"])
        least = c["crossover_tokens"]
        wins = (
            f"quicker than anew from {least:,} token{'s' if least != 1 else ''}"
            if least
            else "never quicker than anew"
        )
        lines.append(f"  {c['name']:14}{load:>12}{fetch:>10}  {wins}")
    return lines + _holds(rows.get("holds", []))


def _holds(rows: list[dict[str, Any]]) -> list[str]:
    lines = ["Of cached prefixes, for each copy of the deployment"] if rows else []
    for row in rows:
        if row["bytes"] is None:
            lines.append(f"  {row['tier']:14}{'no limit':>12}")
            continue
        tokens, requests = row["tokens"], row["requests"]
        text = "" if tokens is None else f"{show_count(tokens)} tokens"
        text += "" if requests is None else f", {requests:,} requests of the longest context"
        lines.append(f"  {row['tier']:14}{show_gib(row['bytes']):>12}  {text}")
    return lines
