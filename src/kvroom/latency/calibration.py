"""The fitted coefficients: data with provenance, found by what a deployment is.

``calibration.json`` holds for each coefficient its overall value and, for levels such as
``generation=hopper`` or ``engine=vllm``, the natural logarithm of a factor on it. A deployment's
coefficient is the overall value times the factors of all its levels, so a card, a model or an engine
nobody measured takes what its generation, its kind, its width share. ``benchmarks/calibrate_times.py``
makes the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from functools import lru_cache
from math import exp
from pathlib import Path
from typing import Any

from kvroom.engines.flags import switch
from kvroom.engines.registry import engine_of
from kvroom.latency.step_time import Coefficients
from kvroom.models.spec import ModelSpec
from kvroom.sharding.deployment import Deployment
from kvroom.sharding.layout import most_experts
from kvroom.units import check_int

_FILE = Path(__file__).with_name("calibration.json")
SETTING = "engine gpu model weights tp ep"
"""The kind of level that says all: what was measured so is known best."""
CELL = "engine gpu kind weights"
"""The kind of level that tells a card under an engine with such models: where each was measured, but not
together."""
NOVEL = ("generation", "gpu", "model", "engine", CELL, SETTING)
"""Kinds of level that a band is widened for where no measurement had them."""
BANDED = ("engine era vendor board", CELL, SETTING)
"""Kinds of level that have bands of their own, the most general first."""
SOURCE = "source"
UNKNOWN_RECIPE = "setup=unknown"
"""Where nobody says how a server was set up it is as a run of somebody not yet heard of."""


@lru_cache(maxsize=4096)
def kind_of_level(level: str) -> str:
    """``engine tp`` of ``engine=vllm tp=4``: the names without their values."""
    return " ".join(part.partition("=")[0] for part in level.split())


TODAY = "now"
NAMES = tuple(field.name for field in fields(Coefficients))
CPU = "cpu"
REACHED = dict.fromkeys(
    ("wide_eta", "narrow_eta", "cache_eta", "wide_mu", "narrow_mu", "scale"), 1.0
)
"""A CPU's rates are those that its own matrix products reached (``kvroom probe``), no data sheet's peaks:
nothing is taken off them."""


def width_class(name: str) -> str:
    """Weight widths that share their kernels: ``q4_k`` and ``q4_0``, any exl2."""
    if name in ("bf16", "fp16", "fp32"):
        return "wide"
    return name.partition("_")[0]


def kind_of(model: ModelSpec) -> str:
    """``dense`` or ``moe``."""
    return "moe" if most_experts(model) else "dense"


def shape_of(model: ModelSpec) -> str:
    """What distinguishes a model from others in this calibration: its type and its shape, not its name."""
    return f"{model.model_type}-{model.hidden_size}x{model.num_layers}"


def era_of(engine: str, version: str | None) -> tuple[str, bool]:
    """The era of a release, and whether its loop and kernels are today's (``Engine.eras``)."""
    if not version or not re.match(r"v?\d", version):
        return TODAY, True  # the newest, or a nightly build
    release = _release(version)
    for era in engine_of(engine).eras or ():
        if release < era.before:
            return era.name, era.today
    return TODAY, True


def _release(version: str) -> tuple[int, ...]:
    """Its first two numbers; a year stands for the releases of that year."""
    numbers = tuple(int(n) for n in re.findall(r"\d+", version)[:2])
    if numbers[0] < 2000:
        return numbers
    return (0, 0) if numbers[0] < 2024 else numbers


def recipe_of(deployment: Deployment) -> str:
    """How the server of ``deployment`` is set up: ``tuned`` for speed, by ``default``, or ``unknown``;
    as the question says, else as its flags suggest. An unknown setup is timed as a default server,
    with a wider band."""
    if deployment.recipe is not None:
        return deployment.recipe
    for flag, value in engine_of(deployment.engine).tuning_flags.items():
        if flag in deployment.args and (value is None or deployment.args[flag] == value):
            return "tuned"
    return "default" if deployment.args else "unknown"


def schedules_ahead(deployment: Deployment) -> bool:
    """Whether the next step is scheduled while the card computes one, as its flags say, else its release."""
    engine = engine_of(deployment.engine)
    for flag, on in engine.ahead_flags.items():
        for name, said in ((flag, on), (f"no_{flag}", not on)):
            if deployment.args.get(name) is not None:
                return switch(f"engine_args.{name}", deployment.args[name]) is said
    if engine.ahead_since is None:
        return False
    version = deployment.version
    return not version or not re.match(r"v?\d", version) or _release(version) >= engine.ahead_since


def unsaid_cache(deployment: Deployment) -> bool:
    """Whether neither the question nor the checkpoint says how wide the cache is. Its elements are then
    as wide as the model's, while most published runs of narrow weights kept theirs in 8 bits without
    saying so."""
    return deployment.kv_asked == "auto" and deployment.kv.bits >= 16


def levels(deployment: Deployment) -> tuple[str, ...]:
    """All levels of a deployment, from what many share to what is its own.

    What published runs did without saying so (``unsaid_cache``) holds only where nothing is said either.
    """
    device, model, layout = deployment.device, deployment.model, deployment.layout
    shape = f"model={shape_of(model)}"
    engine, kind = f"engine={deployment.engine}", f"kind={kind_of(model)}"
    generation, gpu = f"generation={device.generation}", f"gpu={device.name}"
    width = f"weights={width_class(deployment.weights.quantisation.linear.name)}"
    tp, vendor = f"tp={layout.tp}", f"vendor={device.vendor}"
    chip = f"chip={device.compute_capability or device.generation}"
    names = [
        vendor,
        generation,
        chip,
        gpu,
        engine,
        kind,
        width,
        f"cache={deployment.kv.bits}",
        tp,
        shape,
    ]
    pairs = [
        *((engine, vendor), (engine, generation), (engine, kind), (width, kind)),
        *((engine, width), (engine, width, kind), (width, vendor), (width, generation)),
        *((chip, width), (engine, shape), (shape, width), (engine, gpu, kind, width)),
        (engine, gpu, shape, width, tp, f"ep={layout.ep}"),
    ]
    # All-reduces over a scale-up link take what operators measure; over a bus they take far more, the
    # more cards there are, and they vary by card and engine, as those of old did.
    if device.scale_up is None:
        names.append("link=bus")
        pairs += [(engine, "link=bus"), ("link=bus", tp), (chip, "link=bus", tp)]
    if unsaid_cache(deployment):
        pairs.append((width, "cache=auto"))
    # what servers of many users have in common is a level: it is what one of them tells of another
    many = engine_of(deployment.engine).serves_many
    era, today = era_of(deployment.engine, deployment.version)
    if many:
        of = (engine, f"era={era}")
        pairs += [of, *((*of, x) for x in (generation, gpu, kind, shape, tp))]
        # a vendor's cards for servers have kernels of their own, which its other cards do not share
        pairs.append((*of, vendor, f"board={'single' if device.scale_up is None else 'linked'}"))
    if many and today:
        known = recipe_of(deployment)
        recipe = f"recipe={'tuned' if known == 'tuned' else 'default'}"
        names += ["served=new", recipe, f"stream={_streamed(deployment)}"]
        if known == "unknown":
            names.append(UNKNOWN_RECIPE)
        pairs += [(recipe, kind), (engine, recipe), (recipe, generation)]
        pairs.append((engine, recipe, generation, kind))
    else:  # what others make of a card says little of what today's servers do
        pairs += [("served=other", chip), ("served=other", gpu)]
    if unsaid_intake(deployment):
        names.append("intake=unsaid")
    return (*names, *(" ".join(pair) for pair in pairs))


def _streamed(deployment: Deployment) -> str:
    """Whether tokens are handed out one by one, each at its cost, or many together."""
    return "many" if deployment.args.get("stream_interval", 1) not in (None, 1) else "one"


def board_line(gpu: str, engine: str) -> str:
    """The name of a line of the board of accuracy."""
    return f"{gpu}, {engine}"


@lru_cache(maxsize=1)
def shipped() -> Mapping[str, Any]:
    """The table that comes with the package."""
    table: Mapping[str, Any] = json.loads(_FILE.read_text(encoding="utf-8"))
    return table


def coefficients(levels: Iterable[str], table: Mapping[str, Any]) -> Coefficients:
    """The coefficients of a deployment of levels ``levels``."""
    levels = tuple(levels)
    logs = dict.fromkeys(NAMES, 0.0)
    effects: Mapping[str, Mapping[str, float]] = table["effects"]
    for level in levels:
        for name, value in effects.get(level, {}).items():
            logs[name] += value
    overall: Mapping[str, float] = table["overall"]
    values = {name: overall[name] * exp(logs[name]) for name in NAMES}
    return Coefficients(**values | (REACHED if f"vendor={CPU}" in levels else {}))


def takes_in_every(deployment: Deployment) -> int | None:
    """The number of steps after which the engine takes in new requests, where its flags set it; else
    None."""
    flag = engine_of(deployment.engine).intake_flag
    steps = deployment.args.get(flag)
    return None if steps is None else check_int(f"engine_args.{flag}", steps, low=1, high=10**6)


def unsaid_intake(deployment: Deployment) -> bool:
    """Whether first tokens are those of published runs of SGLang, whose flags ``deployment`` does not
    state."""
    flag = engine_of(deployment.engine).intake_flag
    return bool(flag) and flag not in deployment.args


def waiting(coefficients: Coefficients, steps: int) -> Coefficients:
    """``coefficients`` of an engine that takes in requests every ``steps`` steps: one waits for a
    share of them, more
    than half the nearer it comes to the last intake."""
    return replace(coefficients, wait=coefficients.wait + coefficients.intake * (steps - 1))
