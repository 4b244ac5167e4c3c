"""The times and the price of a Plan in words, for a terminal."""

from __future__ import annotations

from typing import Any

from kvroom.answer.plan import Pool
from kvroom.planner.plan import Workings
from kvroom.planner.tiers import tiers
from kvroom.units import (
    say_tokens,
    show_count,
    show_gb,
    show_gib,
    show_rate,
    show_seconds,
    show_usd,
)


def times(w: Workings) -> list[str]:
    """The seconds of the step and under load, what they cost, and what lies below the GPU."""
    return [
        x
        for x in ("\n".join(b) for b in (_step(w), _serving(w), _pools(w), _cost(w), _tiers(w)))
        if x
    ]


def _band(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return ""
    return f"  {show_seconds(low)} to {show_seconds(high)}, four times of five"


def _step(w: Workings) -> list[str]:
    s = w.plan.step
    if s.seconds is None or s.tokens_per_s is None or w.timing is None:
        return []
    terms, _ = w.timing.step(s.batch, s.request_tokens)
    parts = {
        "weights": terms.weights_s,
        "cache": terms.cache_s,
        "arithmetic": terms.compute_s,
        "launches": terms.layers_s + terms.step_s + terms.requests_s,
        "links": terms.links_s,
        "drafting": terms.draft_s,
    }
    largest = sorted(parts.items(), key=lambda p: -p[1])[:3]
    shares = ", ".join(f"{n} {100 * v / s.seconds:.0f} %" for n, v in largest if v)
    lines = [
        "The step takes",
        f"  {'step':14}{show_seconds(s.seconds):>12}{_band(s.seconds_low, s.seconds_high)}",
        f"  {'of it':14}  {shares}",
        f"  {'tokens a s':14}{s.tokens_per_s:>12,.0f}  of all requests",
    ]
    if w.deployment.speculation is not None:
        plain = w.timing.clock.plain.decode_s(s.batch, s.request_tokens)
        gain = s.tokens_per_request * plain / s.seconds
        lines.append(
            f"  {'speculation':14}{'× ' + format(gain, '.2f'):>12}  of what it makes without"
            f"; {s.tokens_per_request:.2f} tokens each a step"
        )
    return lines


def _serving(w: Workings) -> list[str]:
    s = w.plan.serving
    load = w.split.pools.prefill if w.split and w.split.pools else w.load
    t = w.split.times if w.split else w.times
    if s.tpot_s is None or load is None or t is None:
        return []
    who = (
        f"one batch of {load.users:,}"
        if load.static
        else f"{load.requests_per_s:g} requests a second"
        if load.requests_per_s is not None
        else f"{load.users:,} user{'s' if load.users != 1 else ''}"
    )
    first = "no end" if s.ttft_s is None else show_seconds(s.ttft_s)
    lengths = f"{say_tokens(load.input_tokens)} in, {say_tokens(load.output_tokens)} out"
    return [
        f"Under load: {who}, {lengths}",
        f"  {'first token':14}{first:>12}{_band(s.ttft_low_s, s.ttft_high_s)}",
        f"  {'then each':14}{show_seconds(s.tpot_s):>12}{_band(s.tpot_low_s, s.tpot_high_s)}",
        f"  {'output':14}{s.output_tokens_per_s or 0:>12,.0f}  tokens a second",
        f"  {'decoding':14}{t.decoding:>12,.1f}  at once",
        f"  {'measured':14}  {s.rests_on}",
    ]


def _pools(w: Workings) -> list[str]:
    """Two pools and the links between them, and what each keeps up with."""
    p = w.plan.pools
    if p is None:
        return []
    link = f"{show_rate(p.link_bytes_per_s)} a replica"
    rows = [
        ("prefill", _replicas(p.prefill), p.prefill.requests_per_s),
        ("link", link, p.link_requests_per_s),
        ("decode", _replicas(p.decode), p.decode.requests_per_s),
    ]
    lines = ["Prompts and answers in pools, and the requests a second that they keep up with"]
    for name, what, rate in rows:
        told = "" if rate is None else f"{rate:>12,.1f}"
        told += "  binds" if name == p.binding else ""
        lines.append(f"  {name:14}{what:>22}{told}".rstrip())
    crossing = (
        "" if p.handover_s is None else f", {show_seconds(p.handover_s)} after the first token"
    )
    lines.append(f"  {'hand-over':14}{show_gb(p.handed_bytes):>22}  a request{crossing}")
    if p.needs_link_bytes_per_s is not None:
        lines.append(
            f"  {'link needed':14}{show_rate(p.needs_link_bytes_per_s):>22}  to hold up neither pool"
        )
    return lines


def _replicas(p: Pool) -> str:
    cards = p.gpu if p.gpus == 1 else f"{p.gpus} x {p.gpu}"
    return f"{p.replicas:,} of {cards}" + ("" if p.fits else ", too small")


def _cost(w: Workings) -> list[str]:
    c = w.plan.cost
    figures = [
        ("an hour", c.usd_per_hour),
        ("1M tokens out", c.usd_per_million_output_tokens),
        ("1M tokens in", c.usd_per_million_input_tokens),
        ("a user's hour", c.usd_per_user_hour),
    ]
    lines = [f"  {n:14}{show_usd(v):>12}" for n, v in figures if v is not None]
    if c.joules_per_output_token is not None:
        low, high = c.joules_per_output_token_low, c.joules_per_output_token_high
        lines.append(
            f"  {'energy':14}{c.joules_per_output_token:>10,.2f} J"
            f"  a token out, {low:,.2f} to {high:,.2f} by the power limit"
        )
    return ["It costs", *lines] if lines else []


def _tiers(w: Workings) -> list[str]:
    if w.timing is None:
        return []
    found = tiers(w)
    lines = ["Tiers of memory, each so many times larger and slower than the one above"]
    for t in found["tiers"]:
        size = show_gb(t["bytes"]) if t["bytes"] else "-"
        rate = show_rate(t["bytes_per_s"]) if t["bytes_per_s"] else "-"
        larger = f"× {t['times_larger']:,.0f}" if t["times_larger"] else ""
        slower = f"÷ {t['times_slower']:,.3g}" if t["times_slower"] else ""
        lines.append(f"  {t['name']:14}{size:>12}{larger:>10}{rate:>12}{slower:>9}".rstrip())
    if found["crossings"]:
        tokens = say_tokens(found["prompt_tokens"])
        again = show_seconds(found["recompute_s"])
        lines.append(f"Loading all weights, fetching {tokens} of cache (anew: {again})")
    for c in found["crossings"]:
        load, fetch = show_seconds(c["load_weights_s"]), show_seconds(c["fetch_s"])
        least = c["crossover_tokens"]
        wins = (
            f"quicker than anew from {least:,} token{'s' if least != 1 else ''}"
            if least
            else "never quicker than anew"
        )
        lines.append(f"  {c['name']:14}{load:>12}{fetch:>10}  {wins}")
    return lines + _holds(found.get("holds", []))


def _holds(rows: list[dict[str, Any]]) -> list[str]:
    lines = ["Of cached prefixes, for each copy of the deployment"] if rows else []
    for row in rows:
        if row["bytes"] is None:
            lines.append(f"  {row['tier']:14}{'no limit':>12}")
            continue
        tokens, requests = row["tokens"], row["requests"]
        told = "" if tokens is None else f"{show_count(tokens)} tokens"
        told += "" if requests is None else f", {requests:,} requests of the longest context"
        lines.append(f"  {row['tier']:14}{show_gib(row['bytes']):>12}  {told}")
    return lines
