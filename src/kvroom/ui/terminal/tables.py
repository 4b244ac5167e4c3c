"""Tables for the terminal: models, cards, and plans side by side (rich, loaded only here)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kvroom import api
from kvroom.answer.plan import Plan
from kvroom.errors import KvroomError
from kvroom.hardware.device import Device
from kvroom.models import catalogue
from kvroom.models.dtypes import BF16
from kvroom.models.spec import ModelSpec
from kvroom.planner.comparison import letters
from kvroom.ui.terminal.text import paragraph
from kvroom.units import (
    show_count,
    show_gb,
    show_gib,
    show_rate,
    show_seconds,
    show_tokens,
    show_usd,
)

PIPED_WIDTH = 100
"""Columns where the output is no terminal."""


def _console() -> Console:
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = PIPED_WIDTH
    return console


def _table(*columns: str, title: str | None = None) -> Table:
    """A plain table: the first column to the left, figures to the right."""
    table = Table(title=title, box=None, pad_edge=False, title_justify="left", padding=(0, 2, 0, 0))
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right", overflow="fold")
    return table


def model_rows() -> list[dict[str, Any]]:
    """A row a model of the catalogue: name, hub id, parameters, cache bytes a token (bf16)."""
    return [_model_row(name, catalogue.find(name)) for name in catalogue.names()]


def _model_row(name: str, spec: ModelSpec) -> dict[str, Any]:
    growth = sum(kind.growth(BF16) * count for kind, count in spec.stores)
    return {
        "name": name,
        "id": catalogue.hub_id(name),
        "params": spec.params,
        "active_params": spec.active_params,
        "bytes_per_token": int(growth),
        "max_context_tokens": spec.max_context_tokens,
        "kinds": sorted({kind.kind for kind, _ in spec.stores}),
    }


def models(rows: Sequence[dict[str, Any]]) -> None:
    """The catalogue, a line a model."""
    table = _table("model", "parameters", "active", "a token", "context")
    table.add_column("cache", justify="left")
    for row in rows:
        table.add_row(
            row["name"],
            show_count(row["params"]),
            show_count(row["active_params"]),
            show_gib(row["bytes_per_token"]),
            show_tokens(row["max_context_tokens"]) if row["max_context_tokens"] else "-",
            ", ".join(row["kinds"]) or "none",
        )
    console = _console()
    console.print(table)
    console.print(
        f"\n{len(rows)} models; `kvroom models NAME` shows one. A config.json, a GGUF file or a "
        "safetensors index does as well as a name.",
        soft_wrap=False,
    )


def model_card(name: str) -> dict[str, Any]:
    """One model: sizes, runs of layers in order, weights by part, source."""
    spec = api.model(name)
    parts: dict[str, int] = {}
    for run in spec.layers:
        for tensor in run.layer.tensors:
            parts[tensor.part] = parts.get(tensor.part, 0) + tensor.elements * run.count
    for tensor in (*spec.embedding, *spec.head, *spec.beside):
        parts[tensor.part] = parts.get(tensor.part, 0) + tensor.elements
    return {
        "name": spec.name,
        "model_type": spec.model_type,
        "source": spec.source,
        "params": spec.params,
        "active_params": spec.active_params,
        "mtp_params": spec.mtp_params,
        "weight_dtype": spec.quantisation.name if spec.quantisation else spec.dtype,
        "max_context_tokens": spec.max_context_tokens,
        "hidden_size": spec.hidden_size,
        "vocab_size": spec.vocab_size,
        "tied": spec.tied,
        "parts": parts,
        "layers": [
            {
                "count": run.count,
                "params": run.layer.params,
                "stores": [
                    {
                        "kind": store.kind,
                        "bytes_per_entry": store.entry_bytes(BF16),
                        "formula": store.entry_formula(BF16),
                    }
                    for store in run.layer.stores
                ],
            }
            for run in spec.layers
        ],
        "warnings": list(spec.warnings),
    }


def model(card: dict[str, Any]) -> None:
    """One model on the screen."""
    console = _console()
    console.print(Text(card["name"], style="bold"))
    limit = card["max_context_tokens"]
    console.print(
        f"{show_count(card['params'])} parameters ({card['params']:,}), "
        f"{show_count(card['active_params'])} active a token, weights in {card['weight_dtype']}, "
        f"{'up to ' + show_tokens(limit) + ' tokens' if limit else 'no stated limit of tokens'}"
    )
    console.print(f"figures from: {card['source']}\n")
    table = _table("layers", "parameters a layer", "bytes an entry")
    table.add_column("stores (bf16 cache)", justify="left")
    for run in _pattern(card["layers"]):
        stores = run["stores"]
        table.add_row(
            run["where"],
            f"{run['params']:,}",
            " + ".join(f"{store['bytes_per_entry']:,}" for store in stores) or "0",
            ", ".join(f"{store['kind']}: {store['formula']}" for store in stores) or "nothing",
        )
    console.print(table)
    console.print()
    weights = _table("part", "parameters", "share")
    for part, size in sorted(card["parts"].items(), key=lambda p: -p[1]):
        weights.add_row(
            part.replace("_", " "), f"{size:,}", f"{100 * size / max(1, card['params']):.1f} %"
        )
    if card["mtp_params"]:
        weights.add_row("MTP layers (beside)", f"{card['mtp_params']:,}", "")
    console.print(weights)
    for text in card["warnings"]:
        console.print(f"! {text}", markup=False)


def _pattern(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Equal layers in one row, with where they stand: ``10 of 62: 6, 12, …``."""
    rows: dict[str, dict[str, Any]] = {}
    start = 1
    total = sum(run["count"] for run in runs)
    for run in runs:
        key = repr((run["stores"], run["params"]))
        row = rows.setdefault(key, {**run, "count": 0, "first": []})
        row["count"] += run["count"]
        last = start + run["count"] - 1
        row["first"].append(f"{start}" if last == start else f"{start}-{last}")
        start = last + 1
    for row in rows.values():
        shown = ", ".join(row["first"][:4]) + (", …" if len(row["first"]) > 4 else "")
        row["where"] = f"{row['count']} of {total}: {shown}"
    return list(rows.values())


def gpus(devices: Sequence[Device]) -> None:
    """The cards, a line each."""
    table = _table("card", "sold", "an engine sees", "bandwidth", "16-bit", "fp8", "link")
    for device in devices:
        link = device.scale_up
        table.add_row(
            device.name,
            show_gb(device.sold_bytes),
            show_gib(device.engine_bytes) + ("" if device.visible_bytes else " *"),
            show_rate(device.memory_bytes_per_s),
            _flops(device, "bf16"),
            _flops(device, "fp8"),
            show_rate(link.bytes_per_s) if link else "-",
        )
    console = _console()
    console.print(table)
    console.print(
        f"\n{len(devices)} cards. * no source gives what an engine sees: the driver's or the sold "
        "size stands in. `kvroom gpus NAME` shows every figure with its source."
    )


def _flops(device: Device, dtype: str) -> str:
    peak = device.flops(dtype)
    return "-" if peak is None else f"{peak / 1e12:,.0f} T"


def gpu(device: Device) -> None:
    """One card: every figure and its source."""
    console = _console()
    console.print(Text(device.name, style="bold"), f"({device.vendor}, {device.generation})")
    table = _table("figure", "value")
    table.add_column("source", justify="left")
    rows: list[tuple[str, Any, Callable[[Any], str]]] = [
        ("sold_bytes", device.sold_bytes, lambda v: f"{v:,} ({show_gb(v)})"),
        ("driver_bytes", device.driver_bytes, lambda v: f"{v:,} ({show_gib(v)})"),
        ("visible_bytes", device.visible_bytes, lambda v: f"{v:,} ({show_gib(v)})"),
        ("memory_bytes_per_s", device.memory_bytes_per_s, show_rate),
        ("sram_bytes", device.sram_bytes, show_gb),
        ("sram_bytes_per_s", device.sram_bytes_per_s, show_rate),
        ("l2_bytes", device.l2_bytes, show_gb),
        ("l2_bytes_per_s", device.l2_bytes_per_s, show_rate),
        ("tdp_w", device.tdp_w, lambda v: f"{v:g} W"),
        ("usd_per_hour", device.usd_per_hour, lambda v: f"${v:g}"),
    ]
    for name, value, show in rows:
        table.add_row(name, "-" if value is None else show(value), str(device.source(name)))
    for dtype, peak in device.flops_per_s.items():
        table.add_row(
            f"flops_per_s.{dtype}", f"{peak / 1e12:,.1f} T", str(device.source("flops_per_s"))
        )
    for name in ("scale_up", "host_link"):
        link = getattr(device, name)
        if link is not None:
            table.add_row(
                name, f"{show_rate(link.bytes_per_s)} one way", f"{link.name}; {link.source}"
            )
    console.print(table)
    if device.aliases:
        console.print(f"also called: {', '.join(device.aliases)}", markup=False)
    if device.notes:
        console.print(device.notes, markup=False)


FIGURES: tuple[tuple[str, Callable[[Plan], Any], Callable[[Any], str]], ...] = (
    ("weights", lambda p: p.weights.bytes, show_gib),
    ("a token", lambda p: p.kv.bytes_per_token, show_gib),
    ("a request", lambda p: p.kv.bytes_per_request, show_gib),
    ("cache on one GPU", lambda p: p.memory.kv_bytes, show_gib),
    ("ceiling", lambda p: p.capacity.ceiling and p.capacity.ceiling.requests, "{:,}".format),
    (
        "engine",
        lambda p: p.capacity.engine and p.capacity.engine.max_concurrency,
        "{:,.2f}".format,
    ),
    (
        "longest request",
        lambda p: p.capacity.engine and p.capacity.engine.max_context_tokens,
        "{:,}".format,
    ),
    ("step: batch", lambda p: p.step.batch, "{:,}".format),
    ("step: weights", lambda p: p.step.bytes.weights, show_gb),
    ("step: cache", lambda p: p.step.bytes.kv + p.step.bytes.state, show_gb),
    ("crossover batch", lambda p: p.step.crossover_batch, "{:,}".format),
    ("TTFT", lambda p: p.serving.ttft_s, show_seconds),
    ("TPOT", lambda p: p.serving.tpot_s, show_seconds),
    ("tokens a second", lambda p: p.serving.output_tokens_per_s, "{:,.0f}".format),
    ("an hour", lambda p: p.cost.usd_per_hour, show_usd),
    ("1M tokens out", lambda p: p.cost.usd_per_million_output_tokens, show_usd),
    ("energy a token", lambda p: p.cost.joules_per_output_token, "{:,.2f} J".format),
    ("fits", lambda p: "yes" if p.verdict.fits else "no", str),
    ("binds", lambda p: p.verdict.binding, str),
)


def compare(plans: Sequence[Plan]) -> None:
    """Plans side by side: the verdicts, what was asked differently, then every figure."""
    console = _console()
    names = letters(len(plans))
    for name, plan in zip(names, plans, strict=True):
        console.print(
            paragraph(f"{name}: {plan.verdict.sentence}", ""), markup=False, soft_wrap=True
        )
    console.print()
    table = _table("", *names)
    scenarios = [plan.scenario.to_dict() for plan in plans]
    for key in scenarios[0]:
        values = [a[key] for a in scenarios]
        if any(value != values[0] for value in values):
            table.add_row(key, *(_short(value) for value in values), style="bold")
    for name, figure, show in FIGURES:
        values = [figure(plan) for plan in plans]
        if all(value is None for value in values):
            continue
        table.add_row(name, *("-" if value is None else show(value) for value in values))
    console.print(table)
    for price in dict.fromkeys(plan.cost.price_source for plan in plans):
        if price:
            console.print(paragraph(f"Price: {price}", ""), markup=False, soft_wrap=True)


def _short(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, dict):
        return value.get("name") or ("by value" if "config" in value else str(value)[:40])
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    return text if len(text) <= 40 else "…" + text[-39:]


__all__ = ["KvroomError", "compare", "gpu", "gpus", "model", "model_card", "model_rows", "models"]
