"""Where it lives: the machine's tiers, and from which length on fetching cache beats computing it.

A card that does not state its arithmetic has no time to compute anew; the same question is then drawn
on STAND_IN, which the figure says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from kvroom import api
from kvroom.answer.figures import Explanation, explained
from kvroom.hardware import catalogue as cards
from kvroom.hardware.device import Link
from kvroom.hardware.node import Machine
from kvroom.latency.transfer import BELOW, ladder, reached, transfer_s
from kvroom.latency.transfer import cache_bytes as stored
from kvroom.planner import place
from kvroom.planner.plan import Workings
from kvroom.planner.tiers import tiers as tiers_of
from kvroom.scenario.scenario import Scenario
from kvroom.ui.web.sections.answers import sectioned
from kvroom.units import show_seconds, show_tokens

STAND_IN = "A100-SXM-40"
"""Drawn where the asked card does not state its arithmetic."""
LENGTHS = tuple(n for step in range(9, 21) for n in (2**step, 3 * 2 ** (step - 1)))[:-1]
"""Tokens at which fetching and computing are drawn: 512, 768, 1K … 1M."""
OWN = ("hbm", "vram", "dram")
"""The device's own memory, by what it is made of."""
NAMES = {
    "sram": "on-chip SRAM",
    "l2": "L2 cache",
    "hbm": "HBM",
    "dram": "shared DRAM",
    "host": "host memory",
    "nvme": "NVMe",
    "network": "network",
}


def answer(scenario: Scenario) -> dict[str, Any]:
    """The Plan with ``figures.tiers``: rungs, the host link, and seconds over lengths."""
    w, stand_in = drawn(scenario)
    figure = data(w) | {"stand_in": stand_in}
    return sectioned(w, "tiers", figure, explanations(w, figure))


def drawn(scenario: Scenario) -> tuple[Workings, str | None]:
    """The question's workings, or those of the card that stands in for its own, and that one's name."""
    workings = api.workings(scenario, paths=False, hub=False)
    if workings.timing is None and workings.deployment.model.generates:
        told = api.workings(replace(scenario, gpu=STAND_IN), paths=False, hub=False)
        if told.timing is not None:
            return told, cards.find(STAND_IN).name
    return workings, None


def says(scenario: Scenario) -> str:
    """The figure in a sentence."""
    w, stand_in = drawn(scenario)
    return f"{f'On {stand_in}: ' if stand_in else ''}{sentence(w)}"


def data(workings: Workings) -> dict[str, Any]:
    """``rungs`` beside the Plan's ``tiers``, in their order; ``curve`` over LENGTHS and the asked one.

    ``against`` is a rung's rate in words, ``nearest`` the tier below the device that is drawn first.
    """
    machine = machine_of(workings)
    link = machine.device.host_link
    tokens = workings.asked_tokens
    reachable = [n for n in BELOW if transfer_s(machine, n, 1) is not None]
    return {
        "machine": machine.device.name,
        "cards": machine.count,
        "rungs": rungs(machine),
        "link": {"name": link.name, "bytes_per_s": link.bytes_per_s} if link else None,
        "tokens": tokens,
        "below": [{"name": n, "label": NAMES.get(n, n)} for n in reachable],
        "curve": [_point(workings, machine, n, reachable) for n in sorted({*LENGTHS, tokens})]
        if workings.timing is not None and stored(workings.deployment, tokens)
        else [],
        "sentence": sentence(workings),
    }


def machine_of(workings: Workings) -> Machine:
    """The machine whose tiers the Plan tells."""
    return place.machine_of(workings.own, workings.deployment.layout.gpus)


def rungs(machine: Machine) -> list[dict[str, Any]]:
    """Each tier's name, where it lies, and how its size and rate stand against the device's own memory: the
    one base of all ratios. Below the device a rate is what one GPU alone gets through the host link."""
    base = next(rung.tier for rung in ladder(machine) if rung.tier.name in OWN)
    name = NAMES.get(base.name, base.name)
    rungs_found = []
    for rung in ladder(machine):
        tier = rung.tier
        size = rate = ""
        if tier.name != base.name:
            size = _against(tier.bytes, base.bytes, ("larger", "smaller"), name)
            own = reached(machine, tier.name)
            rate = _against(own, base.bytes_per_s, ("faster", "slower"), name)
            if rate and own and tier.bytes_per_s and own < tier.bytes_per_s:
                rate += ", through the host link"
        rungs_found.append(
            {
                "name": tier.name,
                "label": NAMES.get(tier.name, tier.name),
                "below": tier.name in BELOW,
                "larger": size,
                "against": rate,
            }
        )
    return rungs_found


def _against(value: float | None, base: float | None, words: tuple[str, str], name: str) -> str:
    """``12.5 × faster than HBM``: a figure against the base's; nothing where one is unknown."""
    if not value or not base:
        return ""
    times, word = (value / base, words[0]) if value >= base else (base / value, words[1])
    return f"{times:,.{1 if times < 20 else 0}f} × {word} than {name}"


def _point(workings: Workings, machine: Machine, tokens: int, tiers: list[str]) -> dict[str, Any]:
    size = stored(workings.deployment, tokens)
    fetch = partial(transfer_s, machine, gpu_bytes=size)
    return {
        "tokens": tokens,
        "bytes_per_gpu": size,
        "recompute_s": workings.timing.prefill_s(tokens) if workings.timing else None,
        "fetch_s": {tier: fetch(tier) for tier in tiers},
    }


def sentence(workings: Workings) -> str:
    """What the picture shows at the asked length, for whoever does not see it."""
    found = tiers_of(workings)
    names = " → ".join(NAMES.get(t["name"], t["name"]) for t in found["tiers"])
    text = f"From fast and small to slow and large: {names}."
    if not found.get("crossings"):
        return text
    tokens = show_tokens(found["prompt_tokens"])
    ways = ", ".join(
        f"{show_seconds(c['fetch_s'])} from {NAMES.get(c['name'], c['name'])}"
        for c in found["crossings"]
    )
    again = show_seconds(found["recompute_s"])
    return (
        f"{text} The cache of {tokens} tokens is back in {ways}; computing it anew takes {again}."
    )


def explanations(workings: Workings, figure: dict[str, Any]) -> Iterator[Explanation]:
    """Each number of the figure with its formula and source."""
    found = tiers_of(workings)
    for index, t in enumerate(found["tiers"]):
        for key in ("bytes", "bytes_per_s"):
            if t[key] is not None:
                at, name = f"tiers.tiers.{index}.{key}", _name(t["name"])
                yield explained(at, t[key], source=t["source"], tier=name)
    link: Link | None = machine_of(workings).device.host_link
    if link is not None:
        key, rate = "figures.tiers.link.bytes_per_s", link.bytes_per_s
        yield explained(key, rate, source=str(link.source), link=link.name)
    if found.get("recompute_s") is not None:
        asked = found["prompt_tokens"]
        yield explained("tiers.prompt_tokens", asked)
        again = found["recompute_s"]
        yield explained("tiers.recompute_s", again, numbers=repr(again), tokens=f"{asked:,}")
    for index, c in enumerate(found.get("crossings") or ()):
        for key in ("load_weights_s", "fetch_s", "crossover_tokens"):
            if c[key] is not None:
                at = f"tiers.crossings.{index}.{key}"
                yield explained(at, c[key], numbers=_written(c[key]), tier=_name(c["name"]))
    for index, p in enumerate(figure["curve"]):
        at, tokens = f"figures.tiers.curve.{index}.", f"{p['tokens']:,}"
        yield explained(f"{at}bytes_per_gpu", p["bytes_per_gpu"], tokens=tokens)
        yield explained(f"{at}tokens", p["tokens"])
        again = p["recompute_s"]
        yield explained(f"{at}recompute_s", again, numbers=_written(again), tokens=tokens)
        for tier, value in p["fetch_s"].items():
            key = f"{at}fetch_s.{tier}"
            yield explained(key, value, numbers=_written(value), tokens=tokens, tier=_name(tier))


def _name(tier: str) -> str:
    return NAMES.get(tier, tier)


def _written(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else repr(value)
