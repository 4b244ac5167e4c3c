"""A file dropped on the page → the staircase of what it is about, with what it measured.

Engine logs, ``/metrics`` texts and recordings are reconciled; a config.json or a GGUF header becomes the
question's model; a safetensors header is weighed against the model asked about. Nothing is written to
disk, and no file is opened that the content names.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from kvroom import api
from kvroom.answer.figures import ACCOUNTS
from kvroom.errors import KvroomError
from kvroom.models import gguf, gguf_config, safetensors
from kvroom.models.files import MAX_JSON_BYTES
from kvroom.observe.logs.startup import read_bytes
from kvroom.observe.reconcile import AccountLine, Reconciliation
from kvroom.planner.plan import Workings
from kvroom.scenario.scenario import Scenario
from kvroom.ui.web.sections import reality
from kvroom.units import show_memory

MOST_UNFOLDED = 2**26
"""Bytes that a gzip archive may unfold to."""
NO_QUESTION = ("known_bytes",)
"""Keys of a reconciled Scenario that hold what was measured, and so are no part of the prediction."""
FAR = 2.0
"""So many times off, what was lent to the file is doubted before its accounts are."""
SLIGHT = 5e-4
"""Closer than this, the printed number is the predicted one."""
_WHAT = (
    "Drop an engine's log from its first line on, its /metrics text, a config.json, or a GGUF or "
    "safetensors file."
)


def answer(data: bytes, question: Mapping[str, Any]) -> dict[str, Any]:
    """What ``data`` tells beside ``question``, the page's question.

    ``kind`` (log, config, gguf, safetensors), ``question`` the question that the file is about, an answer
    with ``figures.reality`` (``measured``, ``lines``, ``difference``, ``notes``), and for a log
    ``reconciliation`` as ``kvroom reconcile --json`` prints it. KvroomError for what cannot be read.
    """
    data = unfolded(data)
    if data[:4] in (b"GGUF", b"FUGG"):
        return _gguf(data, question)
    if is_safetensors(data):
        return _safetensors(data, question)
    if data.lstrip()[:1] == b"{" and len(data) <= MAX_JSON_BYTES:
        config = _object(data)
        if config is not None and is_config(config):
            return _config(config, question)
    return _log(data, question)


def unfolded(data: bytes) -> bytes:
    """``data``, unpacked where it is a gzip archive; KvroomError beyond MOST_UNFOLDED."""
    if data[:2] != b"\x1f\x8b":
        return data
    packed = zlib.decompressobj(wbits=31)
    try:
        content = packed.decompress(data, MOST_UNFOLDED)
    except zlib.error:
        raise KvroomError("file", "gzip", "is damaged", "Drop the file itself.") from None
    if packed.unconsumed_tail:
        message = f"unfolds to more than {MOST_UNFOLDED:,} bytes"
        raise KvroomError("file", "gzip", message, "Drop the start-up part of the log.")
    return content


def _object(data: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def is_config(content: Mapping[str, Any]) -> bool:
    """Whether an object is a model's config.json."""
    return "kvroom_recording" not in content and (
        "model_type" in content or "architectures" in content
    )


def is_safetensors(data: bytes) -> bool:
    """Whether a file begins as safetensors do."""
    return data[8:9] == b"{" and 2 <= int.from_bytes(data[:8], "little") <= 100_000_000


# ---- a log, metrics, a recording ----


def _log(data: bytes, asked: Mapping[str, Any]) -> dict[str, Any]:
    log = read_bytes(data)
    if log.engine is None:
        raise KvroomError("file", None, "holds no line of an engine's start-up", _WHAT)
    reconciliation = api.reconcile(log, paths=False, hub=False)
    lent = {k: asked[k] for k in reconciliation.missing if k in ("model", "gpu") and k in asked}
    if "model" in lent and "weight_dtype" in asked:
        lent["weight_dtype"] = asked["weight_dtype"]
    if lent:
        reconciliation = api.reconcile(log, paths=False, hub=False, **lent)
    if reconciliation.scenario is None:
        need = " and ".join(reconciliation.missing)
        raise KvroomError(
            "file", reconciliation.engine, f"does not say its {need}", "Choose it above."
        )
    question = {
        key: value for key, value in reconciliation.scenario.items() if key not in NO_QUESTION
    }
    lengths = {k: asked[k] for k in ("workload",) if k in asked}
    drawn, stands = reality.asked_of(Scenario.from_dict({**question, **lengths}))
    workings = api.workings(drawn, paths=False, hub=False)
    figure = reality.data(workings) | {"stands_in": stands}
    measured = _measured(reconciliation, workings)
    if measured is not None:
        figure["stairs"].insert(_after_engine(figure["stairs"]), measured)
    words = [
        f"the {k.replace('_', ' ')} is not in the file: taken from the question above" for k in lent
    ]
    return _told("log", question, workings, figure) | {
        "reconciliation": asdict(reconciliation),
        "file": {
            "title": f"{reconciliation.engine} {reconciliation.engine_version or ''}".strip(),
            "lines": [asdict(account) for account in reconciliation.accounts],
            "difference": difference(reconciliation, figure["stairs"], measured, lent),
            "notes": [
                *words,
                *_short(reconciliation),
                *reconciliation.refusals,
                *_blocks_said(reconciliation),
                *reconciliation.notes,
            ],
        },
    }


def _short(reconciliation: Reconciliation) -> list[str]:
    """That it ran out of memory, and what would do."""
    if reconciliation.shortage is None:
        return []
    return [
        reconciliation.sentence,
        *(f"What would do: {cure.text}." for cure in reconciliation.remedies[:1]),
    ]


def _after_engine(stairs: list[dict[str, Any]]) -> int:
    return next(
        (index + 1 for index, stair in enumerate(stairs) if stair["key"] == "engine"), len(stairs)
    )


def _measured(reconciliation: Reconciliation, workings: Workings) -> dict[str, Any] | None:
    """The bar of what the engine printed: requests of its longest length, of the whole deployment."""
    copies = workings.deployment.layout.dp * workings.answer.pools
    each = reconciliation.printed.get("max_concurrency")
    rule = "printed"
    if each is None and reconciliation.printed.get("kv_tokens"):
        each = reconciliation.printed["kv_tokens"] / workings.deployment.context_tokens
        rule = "the tokens printed / the longest request"
    if each is None:
        each = _by_blocks(reconciliation)
        rule = "the blocks printed / those of the longest request"
    if each is None:
        return None
    return {
        "key": "measured", "label": "Measured", "level": True, "from": 0.0, "to": each * copies,
        "change": each * copies, "formula": rule, "source": "measured: the file dropped in",
    }  # fmt: skip


def _by_blocks(reconciliation: Reconciliation) -> float | None:
    """Requests in the blocks that metrics tell, where nothing else is printed: a request's own number of
    blocks is the engine's rule, whatever memory there is."""
    printed, blocks = (
        reconciliation.printed.get("num_blocks"),
        reconciliation.predicted.get("num_blocks"),
    )
    requests = reconciliation.predicted.get("max_concurrency")
    return printed * requests / blocks if printed and blocks and requests else None


def _blocks_said(reconciliation: Reconciliation) -> list[str]:
    blocks, size = (reconciliation.printed.get(key) for key in ("num_blocks", "block_size"))
    if not blocks:
        return []
    return [f"{blocks:,.0f} blocks" + (f" of {size:,.0f} tokens" if size else "") + " are printed"]


def difference(
    reconciliation: Reconciliation,
    stairs: list[dict[str, Any]],
    measured: dict[str, Any] | None,
    lent: Mapping[str, Any],
) -> dict[str, str] | None:
    """The measured number against the predicted one: a sentence, its reason, and the flag; ``lent`` is
    what the file lacks and the page's question stood in for."""
    engine = next((stair["to"] for stair in stairs if stair["key"] == "engine"), None)
    if measured is None or not engine:
        return None
    to, cause = measured["to"], _cause(reconciliation)
    ratio = to / engine
    how = f"{abs(ratio - 1):.1%} {'more' if ratio >= 1 else 'fewer'}"
    if not 1 / FAR < ratio < FAR:
        how = f"{ratio:,.3g} times as many"
    sentence = (
        f"The engine printed {reality.requests(to)} where {reality.requests(engine)} was "
        f"predicted: {how}."
    )
    if abs(ratio - 1) < SLIGHT:
        sentence = f"The engine printed {reality.requests(to)}, as predicted."
    reason = f"{ACCOUNTS.get(cause.name, cause.name)}: {cause.reason}" if cause else ""
    if lent and not 1 / FAR < ratio < FAR:
        what = " or ".join(k for k in ("model", "gpu") if k in lent)
        reason = f"most likely another {what} than the one above, which the file does not tell"
        cause = None
    return {
        "sentence": sentence,
        "reason": reason,
        "flag": cause.flag if cause else "",
        "account": cause.name if cause else "",
    }


def _cause(reconciliation: Reconciliation) -> AccountLine | None:
    """The account that explains at least half of what the cache is off by, else the cache's own."""
    off = {account.name: account for account in reconciliation.accounts if account.difference_bytes}
    cache = off.pop("kv", None)
    off.pop("free_before_load", None)
    most = max(off.values(), key=_size, default=None)
    if cache is None or (most is not None and 2 * _size(most) >= _size(cache)):
        return most
    return cache


def _size(account: AccountLine) -> int:
    return abs(account.difference_bytes or 0)


# ---- a model ----


def _config(config: dict[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    question = _with_model(base, config)
    reply = _plain("config", question)
    plan = reply["weights"]
    words = f"{plan['params']:,} parameters, {show_memory(plan['bytes'])} of weights"
    reply["file"] = _file(f"config.json: {config.get('model_type', 'a model')}", notes=[words])
    return reply


def _with_model(question: Mapping[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    kept = {
        key: value for key, value in question.items() if key not in ("weight_dtype", "speculation")
    }
    return {**kept, "model": {"config": config}}


def _gguf(data: bytes, base: Mapping[str, Any]) -> dict[str, Any]:
    """The file's model, its usual width as the weights'; what its tensors weigh, measured."""
    spec = gguf.read(data)
    header = gguf.read_header(data)
    shapes = {key: value.shape for key, value in header.tensors.items()}
    config = gguf_config.config_of(header.metadata, shapes, "gguf")
    question = _with_model(base, config)
    notes = list(spec.warnings)
    if spec.quantisation is not None:
        named = {**question, "weight_dtype": spec.quantisation.name}
        try:
            api.workings(Scenario.from_dict(named), paths=False, hub=False)
            question = named
        except KvroomError:
            notes.append(f"its type {spec.quantisation.name} has no name here: counted unquantised")
    reply = _plain("gguf", question)
    why = "each tensor's own type: the file mixes widths where the name tells one"
    reply["file"] = _file(
        f"GGUF: {spec.name}", _weighed(reply["weights"]["bytes"], spec.file_bytes, why), notes
    )
    return reply


def _safetensors(data: bytes, base: Mapping[str, Any]) -> dict[str, Any]:
    """The bytes of the file's tensors against the weights of the model asked about."""
    entries = safetensors.read_header(data)
    reply = _plain("safetensors", dict(base))
    unread = safetensors.idle(
        api.workings(Scenario.from_dict(base), paths=False, hub=False).deployment.model, entries
    )
    size = sum(value.nbytes for key, value in entries.items() if key not in unread)
    whole = reply["weights"]["bytes"]
    share = size / whole if whole else 0.0
    why = (
        "the same to the digits shown"
        if abs(share - 1) < 0.001
        else f"one file of several: {share:.0%} of the model asked about"
        if share < 0.9
        else "another width, or another model, than the one asked about (--weight-dtype)"
        if abs(share - 1) > 0.02
        else "padding, scales and buffers"
    )
    kinds = sorted({entry.dtype for entry in entries.values()})
    notes = [f"{len(entries):,} tensors of {', '.join(kinds)}"]
    reply["file"] = _file("safetensors header", _weighed(whole, size, why), notes)
    return reply


def _weighed(predicted: int, measured: int | None, why: str) -> list[dict[str, Any]]:
    if measured is None:
        return []
    off = measured - predicted
    reason = why if off else "the same, byte for byte"
    return [
        {
            "name": "weights", "predicted_bytes": predicted, "printed_bytes": measured,
            "difference_bytes": off, "reason": reason, "flag": "--weight-dtype" if off else "",
        }
    ]  # fmt: skip


def _file(
    title: str, lines: list[dict[str, Any]] | None = None, notes: list[str] | None = None
) -> dict[str, Any]:
    return {"title": title, "lines": lines or [], "difference": None, "notes": notes or []}


def _plain(kind: str, question: dict[str, Any]) -> dict[str, Any]:
    drawn, stands = reality.asked_of(Scenario.from_dict(question))
    workings = api.workings(drawn, paths=False, hub=False)
    return _told(kind, question, workings, reality.data(workings) | {"stands_in": stands})


def _told(
    kind: str, question: dict[str, Any], workings: Workings, figure: dict[str, Any]
) -> dict[str, Any]:
    figure["sentence"] = reality.sentence(figure["stairs"])
    return {**reality.answered(workings, figure), "kind": kind, "asked": question}
