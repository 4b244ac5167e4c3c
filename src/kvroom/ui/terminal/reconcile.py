"""``kvroom reconcile``: a start-up log and the prediction side by side, for a terminal."""

from __future__ import annotations

import click

from kvroom.answer.figures import ACCOUNTS
from kvroom.observe.reconcile import AccountLine, Reconciliation
from kvroom.ui.terminal.plan import paragraph
from kvroom.units import say_tokens, show_gib

FIGURES = (
    ("kv_tokens", "cache tokens", "{:,}"),
    ("num_blocks", "blocks", "{:,}"),
    ("max_concurrency", "concurrency", "{:,.2f}"),
    ("window_tokens", "window tokens", "{:,}"),
    ("state_slots", "state slots", "{:,}"),
    ("block_size", "tokens a block", "{:,}"),
    ("bytes_per_token", "bytes a token", "{:,}"),
)
HOW = {
    "engine": "Give a log of vLLM, SGLang, TensorRT-LLM, llama.cpp or Ollama, from its first line on.",
    "model": "Say which model it was: --model NAME, or the path of its config.json.",
    "gpu": "Say which card it ran on: --gpu NAME (kvroom gpus lists them).",
}


def show(r: Reconciliation) -> str:
    """The whole answer in words and tables."""
    blocks = [head(r), table(r), figures(r), reasons(r)]
    blocks += [paragraph(f"It refused to start: {text}") for text in r.refusals]
    blocks += [paragraph(f"What would do: {cure.text}.") for cure in r.remedies]
    if r.way is not None:
        blocks.append(click.style(paragraph(r.way.line, ""), bold=True))
        blocks.append(paragraph(f"Most of it: {r.way.cause}; {r.way.fix}."))
    if r.command:
        blocks.append(r.command)
    blocks.append(
        "\n".join(paragraph(HOW[name], "? ") for name in (r.missing if r.engine else ("engine",)))
    )
    blocks.append("\n".join(paragraph(note, "! ") for note in r.notes))
    return "\n\n".join(b for b in blocks if b)


def head(r: Reconciliation) -> str:
    """What the log is of."""
    if r.engine is None:
        return click.style("Not a start-up log that kvroom knows", bold=True)
    what = f"{r.engine} {r.engine_version or '(version not printed)'}"
    s = r.scenario
    if s is not None:
        model = s["model"] if isinstance(s["model"], str) else "the model given"
        card = s["gpu"] if isinstance(s["gpu"], str) else s["gpu"]["name"]
        many = s.get("gpu_count", 1)
        what += f": {model} on {many} × {card}" if many > 1 else f": {model} on {card}"
        length = s.get("context_tokens")
        what += f", {say_tokens(length)}" if length else ""
    return click.style(paragraph(what, ""), bold=True)


def table(r: Reconciliation) -> str:
    """Account by account: predicted, printed, difference."""
    if not r.accounts:
        return ""
    lines = [f"  {'one GPU':14}{'predicted':>12}{'printed':>12}{'difference':>13}"]
    for a in r.accounts:
        cells = (_size(a.predicted_bytes), _size(a.printed_bytes), _difference(a))
        name = ACCOUNTS.get(a.name, a.name)
        lines.append(f"  {name:14}{cells[0]:>12}{cells[1]:>12}{cells[2]:>13}")
    return "\n".join(lines)


def _size(value: int | None) -> str:
    return "-" if value is None else ("-" if value < 0 else "") + show_gib(abs(value))


def _difference(a: AccountLine) -> str:
    off = a.difference_bytes
    if off is None:
        return "-"
    return "0" if not off else ("+" if off > 0 else "-") + show_gib(abs(off))


def figures(r: Reconciliation) -> str:
    """What the cache comes to: from the flags alone, given the printed bytes, printed."""
    rows = []
    for name, label, form in FIGURES:
        values = [x.get(name) for x in (r.predicted, r.given_bytes, r.printed)]
        if values[2] is None and (name != "kv_tokens" or values == [None] * 3):
            continue
        cells = ["-" if v is None else form.format(v) for v in values]
        off = ""
        if values[2] and values[0] is not None:
            off = f"{values[0] / values[2] - 1:+.1%}"
        rows.append(f"  {label:14}{cells[0]:>12}{cells[1]:>14}{cells[2]:>12}{off:>10}")
    if not rows:
        return ""
    top = f"  {'the cache':14}{'from flags':>12}{'given bytes':>14}{'printed':>12}{'off by':>10}"
    return "\n".join([top, *rows])


def reasons(r: Reconciliation) -> str:
    """Why, and the flag that would change it."""
    lines = []
    for a in r.accounts:
        if a.printed_bytes is None or a.predicted_bytes is None:
            continue
        flag = f" ({a.flag})" if a.flag and a.difference_bytes else ""
        lines.append(paragraph(f"{ACCOUNTS.get(a.name, a.name)}: {a.reason}{flag}."))
    for name, (low, high) in r.spread.items():
        if not name.endswith("_bytes"):
            lines.append(paragraph(f"{name} differs from rank to rank: {low:,} to {high:,}."))
    return "\n".join(lines)
