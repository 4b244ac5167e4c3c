"""Anything dropped or pasted on the page → the question that it asks: what was taken from it, what was not.

A launch command or manifest, a start-up log, ``/metrics`` text, a recording, a trace, a config.json, a GGUF
or safetensors header, a machine file, a Scenario, a Plan or a link. What it leaves open stays as the page's
question has it, which is said. Nothing is run or written to disk, and no file is opened that it names.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kvroom import api
from kvroom.errors import KvroomError
from kvroom.launchers.commands import read_start, read_together, starts_of, stated_rest
from kvroom.models.files import MAX_JSON_BYTES
from kvroom.observe.check import Checker, Expectations
from kvroom.observe.logs.startup import read_bytes
from kvroom.records import dataclass
from kvroom.scenario.layout import LAYOUT_KEYS
from kvroom.scenario.scenario import Scenario
from kvroom.scenario.workload import Workload
from kvroom.ui.web.sections import dropped
from kvroom.workloads.traces.opened import Held
from kvroom.workloads.traces.reader import Trace

LENT = ("workload", "concurrency", "prices", "host_memory_bytes", "calibration")
"""What a command never says: it stays as the page has it."""
KNOWN = (
    "Drop or paste a launch command or manifest, an engine's start-up log or /metrics text, a trace, a "
    "config.json, a GGUF or safetensors file, a machine file, a Scenario or a link."
)
MOST_COMMAND_BYTES = 200_000
SPREAD = 1.05
"""Lengths whose longest is beyond so many times the mean are told to differ."""


@dataclass(frozen=True, kw_only=True)
class Taken:
    """``scenario`` is the question that comes of it, ``notes`` what was left out of the file or assumed;
    ``figure`` an answer with the log against the prediction, ``workload`` that of a trace."""

    kind: str
    title: str
    scenario: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    figure: Mapping[str, Any] | None = None


def take(data: bytes, asked: Mapping[str, Any], name: str = "") -> dict[str, Any]:
    """What ``data``, called ``name``, makes of ``asked``, the page's question.

    ``kind``, ``title``, ``scenario`` (the new question), ``taken`` (each key with its value and the one
    before), ``kept`` (keys that stay), ``left`` (what was not used), ``figure``. KvroomError for what cannot
    be read.
    """
    taken_file = _read(dropped.unfolded(data), dict(asked), name)
    scenario = Scenario.from_dict(dict(taken_file.scenario))
    question = scenario.differences()
    taken = [
        {"key": key, "value": _stated(scenario, key, value), "before": before}
        for key, value, before in _differences(question, asked)
    ]
    changed = {row["key"].partition(".")[0] for row in taken}
    return {
        "kind": taken_file.kind,
        "title": taken_file.title,
        "scenario": question,
        "taken": taken,
        "kept": [key for key in question if key in asked and key not in changed],
        "left": list(taken_file.notes),
        "figure": taken_file.figure,
    }


def _stated(scenario: Scenario, key: str, value: Any) -> Any:
    """``value``, or what holds where a question that leaves ``key`` out says none: vLLM is an engine too."""
    usual = getattr(scenario, key, None) if value is None else None
    return usual if isinstance(usual, str) else value


def _differences(
    question: Mapping[str, Any], asked: Mapping[str, Any]
) -> list[tuple[str, Any, Any]]:
    """(dotted key, value now, value before) of all that changes, objects key by key."""
    rows: list[tuple[str, Any, Any]] = []
    for key in dict.fromkeys((*question, *asked)):
        now, before = question.get(key), asked.get(key)
        if now == before:
            continue
        if key in ("engine_args", "workload"):
            now, before = now or {}, before or {}
            rows += [
                (f"{key}.{part}", now.get(part), before.get(part))
                for part in dict.fromkeys((*now, *before))
                if now.get(part) != before.get(part)
            ]
        else:
            rows.append((key, now, before))
    return rows


def _read(data: bytes, question: dict[str, Any], name: str) -> Taken:
    if data[:4] in (b"GGUF", b"FUGG") or dropped.is_safetensors(data):
        return _figured(data, question)
    text = data.decode("utf-8", "replace").strip()
    if not text:
        raise KvroomError("file", name, "is empty", KNOWN)
    table = _table(text, name) if len(data) <= MAX_JSON_BYTES else None
    if table is not None:
        if dropped.is_config(table):
            return _figured(data, question)
        told = _of_table(table, question)
        if told is not None:
            return told
    if "\n" not in text and ("#s=" in text or text.startswith(("http://", "https://", "?"))):
        keys = Scenario.from_link(text).differences()
        return Taken(kind="link", title="a link", scenario=keys)
    log = read_bytes(data)
    if log.engine is not None and (log.printed or log.refusals or log.shortage):
        return _figured(data, question)
    command, refused = None, None
    if len(data) <= MOST_COMMAND_BYTES:
        try:
            command = _command(text, question)
        except KvroomError as error:
            refused = error
    if command is not None:
        return command
    try:
        return _trace(data, question, name)
    except KvroomError:
        if refused is not None:
            field = "file" if refused.field == "--from-command" else refused.field
            raise KvroomError(
                field, refused.value, refused.message, f"{refused.fix} {KNOWN}"
            ) from None
        if log.engine is not None:
            return _figured(data, question)
        raise KvroomError(
            "file", name or text[:40], "is nothing that kvroom reads", KNOWN
        ) from None


def _table(text: str, name: str) -> dict[str, Any] | None:
    """The object that a JSON or TOML text is; None where it is none."""
    try:
        if text.startswith("{"):
            table = json.loads(text)
        elif name.endswith(".toml"):
            table = tomllib.loads(text)
        else:
            return None
    except (ValueError, RecursionError):
        return None
    return table if isinstance(table, dict) else None


def _of_table(table: dict[str, Any], question: dict[str, Any]) -> Taken | None:
    """A Scenario, a Plan or a card."""
    if isinstance(table.get("scenario"), dict) and "model" in table["scenario"]:
        return Taken(kind="scenario", title="a Plan", scenario=table["scenario"])
    if "model" in table and "gpu" in table:
        return Taken(kind="scenario", title="a Scenario", scenario=table)
    device = table.get("device", table)
    if isinstance(device, dict) and "memory_bytes" in device and "memory_bytes_per_s" in device:
        keys = {key: value for key, value in question.items() if key not in LAYOUT_KEYS}
        return Taken(
            kind="card", title=f"a card: {device.get('name', 'unnamed')}",
            scenario={**keys, "gpu": device, "gpu_count": table.get("count", 1)},
        )  # fmt: skip
    return None


def _figured(data: bytes, asked: dict[str, Any]) -> Taken:
    """A log, or a model's file: reconciled, or weighed."""
    reply = dropped.answer(data, asked)
    file = reply["file"]
    question = dict(reply["asked"])
    if reply["kind"] == "log":
        question |= {key: asked[key] for key in LENT if key in asked}
    return Taken(
        kind=reply["kind"], title=file["title"], scenario=question, notes=tuple(file["notes"]),
        figure=reply,
    )  # fmt: skip


def _command(text: str, question: dict[str, Any]) -> Taken | None:
    """The first deployment that a command, script or manifest starts; None where it starts none."""
    starts = list(starts_of(text, {}))
    if not starts:
        return None
    rest, first = stated_rest(text), starts[0]
    together = [start for start in starts if start.command.several_starts]
    if together:
        command = read_together(together, rest)
    else:
        command = read_start(first, rest, model_stated=True, paths=False)
    keys: dict[str, Any] = {key: question[key] for key in LENT if key in question}
    notes = [*command.warnings]
    if first.gpu is None and "gpu" not in command.keys:
        keys["gpu"] = question["gpu"]
        notes.append("it names no card: that of the page stays")
    model = command.keys.get("model")
    if model is None or not _is_known(model):
        keys["model"] = question["model"]
        word = command.unset_model or model
        why = f"the model {word} is not in the catalogue" if word else "it names no model"
        notes.append(f"{why}: that of the page stays")
        others = {key: value for key, value in command.keys.items() if key != "model"}
        command = replace(command, keys=others)
    page_cards = question.get("gpu_count", 1)
    counted = replace(first, gpus=first.gpus or page_cards)
    checker = Checker(keys, {}, Expectations(), lambda *_: {})
    scenario, cards = checker.scenario(counted, command)
    if first.gpus is None and cards and scenario.gpu_count < cards:
        notes.append(f"its ranks take {scenario.gpu_count} of the page's {cards} cards")
    if len(starts) > 1 and not together:
        notes.append(f"it starts {len(starts)} engines: the first, of line {first.line}, is taken")
    if first.replicas > 1:
        notes.append(f"it starts {first.replicas} replicas: one is asked about")
    return Taken(
        kind="command",
        title=f"{first.command.label}, line {first.line}",
        scenario=scenario.differences(),
        notes=tuple(dict.fromkeys(notes)),
    )


def _is_known(model: Any) -> bool:
    try:
        api.model(model, hub=False, paths=False)
    except KvroomError:
        return False
    return True


def _trace(data: bytes, question: dict[str, Any], name: str) -> Taken:
    """A trace's mean lengths and rate."""
    description = api.describe(trace=Trace(Held(name or "trace", data)))
    entering, leaving = description["input_tokens"], description["output_tokens"]
    workload: dict[str, Any] = {
        "input_tokens": max(1, round(entering["mean"])),
        "output_tokens": max(1, round(leaving["mean"])),
    }
    notes = [*description["warnings"]]
    rate = description.get("requests_per_s")
    if rate:
        workload["requests_per_s"] = rate
    for what, spread in (("prompts", entering), ("answers", leaving)):
        if spread["max"] > SPREAD * spread["mean"]:
            notes.append(
                f"{what} of {spread['min']:,} to {spread['max']:,} tokens count as their mean here; "
                "Simulate plays the trace itself"
            )
    before = dict(question.get("workload") or {})
    for key in ("input", "output", "lengths", "arrivals", "concurrency", "requests_per_s"):
        before.pop(key, None)
    keys = {key: value for key, value in question.items() if not (rate and key == "concurrency")}
    return Taken(
        kind="trace", title=f"a trace of {description['requests']:,} requests",
        scenario={**keys, "workload": Workload.parse("workload", {**before, **workload}).differences()},
        notes=tuple(notes),
    )  # fmt: skip
