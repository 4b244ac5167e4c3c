"""What an answer rests on beside the question: each figure taken, and where it is taken from."""

from __future__ import annotations

from collections.abc import Iterator

from kvroom.answer.figures import ACCOUNTS, title
from kvroom.planner.plan import Workings
from kvroom.scenario.engine_names import CEILING_ENGINE
from kvroom.units import show_memory, show_rate, show_seconds, show_usd


def assumptions(workings: Workings) -> list[dict[str, str]]:
    """``what`` was taken, as ``taken``, from ``source``: the card's figures, the engine's own memory with
    its bands, times, prices, lengths."""
    return [{"what": a, "taken": b, "source": c} for a, b, c in _all(workings)]


def _all(workings: Workings) -> Iterator[tuple[str, str, str]]:
    plan, deployment = workings.plan, workings.deployment
    device = deployment.device
    memory = str(device.engine_bytes_source)
    if deployment.engine == CEILING_ENGINE:
        memory = str(device.source("sold_bytes"))
    yield "Memory of a card", show_memory(plan.memory.gpu_bytes), memory
    yield (
        "What its memory reads in a second",
        show_rate(device.memory_bytes_per_s),
        str(device.source("memory_bytes_per_s")),
    )
    model = plan.scenario.model
    where = (
        "its config.json, as published" if isinstance(model, str) else "the config that was given"
    )
    yield "Shape of the model", str(deployment.model.name), where
    if plan.scenario.kv_dtype == "auto":
        yield "Cache stored as", deployment.kv_name, "the checkpoint's own choice, else 16 bits"
    for account in plan.memory.accounts:
        if account.source == "assumed" and account.high_bytes:
            low, high = show_memory(account.low_bytes), show_memory(account.high_bytes)
            band = f"{show_memory(account.bytes)} a card ({low} to {high})"
            yield (
                title(ACCOUNTS.get(account.name, account.name)),
                band,
                "an estimate, fitted to engines' own logs",
            )
    if plan.scenario.workload is None:
        yield (
            "Length of each request",
            "the whole context, from its first token on",
            "the question asked",
        )
    step = plan.step
    if step.seconds is not None and step.seconds_low is not None and step.seconds_high is not None:
        low, high = show_seconds(step.seconds_low), show_seconds(step.seconds_high)
        band = f"{show_seconds(step.seconds)} (80 % interval {low} to {high})"
        yield "Time of a step", band, "a model of the step, calibrated on published measurements"
    if device.usd_per_hour is not None:
        yield (
            "Price of a card's hour",
            show_usd(device.usd_per_hour),
            str(device.source("usd_per_hour")),
        )
