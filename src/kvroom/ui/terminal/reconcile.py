"""``kvroom reconcile``: a start-up log and the prediction side by side, for a terminal."""

from __future__ import annotations

import click

from kvroom.answer.figures import ACCOUNTS
from kvroom.hardware.mixed import so_many
from kvroom.observe.reconcile import AccountLine, Reconciliation
from kvroom.ui.terminal.text import paragraph
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
    "model": "Say which model it was: --model NAME, or the path of its config.json.",
    "gpu": "Say which card it ran on: --gpu NAME (kvroom gpus lists them).",
}


def show(reconciliation: Reconciliation) -> str:
    """The whole answer in words and tables."""
    blocks = [
        click.style(paragraph(reconciliation.sentence, ""), bold=True),
        click.style(paragraph(reconciliation.way.line, ""), bold=True)
        if reconciliation.way
        else "",
        head(reconciliation),
        paragraph(reconciliation.sentence) if reconciliation.shortage else "",
        table(reconciliation),
        figures(reconciliation),
        reasons(reconciliation),
    ]
    blocks += [paragraph(f"It refused to start: {text}") for text in reconciliation.refusals[1:]]
    blocks += [paragraph(f"What would do: {cure.text}.") for cure in reconciliation.remedies]
    if reconciliation.way is not None:
        blocks.append(
            paragraph(f"Most of it: {reconciliation.way.cause}; {reconciliation.way.fix}.")
        )
    if reconciliation.command:
        blocks.append(reconciliation.command)
    blocks.append("\n".join(paragraph(HOW[name], "? ") for name in reconciliation.missing))
    blocks.append("\n".join(paragraph(note, "! ") for note in reconciliation.notes))
    return "\n\n".join(block for block in blocks if block)


def head(reconciliation: Reconciliation) -> str:
    """What the log is of."""
    what = f"{reconciliation.engine} {reconciliation.engine_version or '(version not printed)'}"
    scenario = reconciliation.scenario
    if scenario is not None:
        model = scenario["model"] if isinstance(scenario["model"], str) else "the model given"
        card = scenario["gpu"] if isinstance(scenario["gpu"], str) else scenario["gpu"]["name"]
        many = scenario.get("gpu_count", 1)
        what += f": {model} on {so_many(many, card)}"
        length = scenario.get("context_tokens")
        what += f", {say_tokens(length)}" if length else ""
    return paragraph(what, "")


def table(reconciliation: Reconciliation) -> str:
    """Account by account: predicted, printed, difference."""
    if not reconciliation.accounts:
        return ""
    lines = [f"  {'one GPU':14}{'predicted':>12}{'printed':>12}{'difference':>13}"]
    for account in reconciliation.accounts:
        cells = (_size(account.predicted_bytes), _size(account.printed_bytes), _difference(account))
        name = ACCOUNTS.get(account.name, account.name)
        lines.append(f"  {name:14}{cells[0]:>12}{cells[1]:>12}{cells[2]:>13}")
    return "\n".join(lines)


def _size(value: int | None) -> str:
    return "-" if value is None else ("-" if value < 0 else "") + show_gib(abs(value))


def _difference(account: AccountLine) -> str:
    off = account.difference_bytes
    if off is None:
        return "-"
    return "0" if not off else ("+" if off > 0 else "-") + show_gib(abs(off))


def figures(reconciliation: Reconciliation) -> str:
    """What the cache comes to: from the flags alone, given the printed bytes, printed."""
    rows = []
    for name, label, form in FIGURES:
        values = [
            x.get(name)
            for x in (reconciliation.predicted, reconciliation.given_bytes, reconciliation.printed)
        ]
        if values[2] is None and (name != "kv_tokens" or values == [None] * 3):
            continue
        cells = ["-" if value is None else form.format(value) for value in values]
        off = ""
        if values[2] and values[0] is not None:
            off = f"{values[0] / values[2] - 1:+.1%}"
        rows.append(f"  {label:14}{cells[0]:>12}{cells[1]:>14}{cells[2]:>12}{off:>10}")
    if not rows:
        return ""
    top = f"  {'the cache':14}{'from flags':>12}{'given bytes':>14}{'printed':>12}{'off by':>10}"
    return "\n".join([top, *rows])


def reasons(reconciliation: Reconciliation) -> str:
    """Why, and the flag that would change it."""
    lines = []
    for account in reconciliation.accounts:
        if account.printed_bytes is None or account.predicted_bytes is None:
            continue
        flag = f" ({account.flag})" if account.flag and account.difference_bytes else ""
        lines.append(
            paragraph(f"{ACCOUNTS.get(account.name, account.name)}: {account.reason}{flag}.")
        )
    for name, (low, high) in reconciliation.spread.items():
        if not name.endswith("_bytes"):
            lines.append(paragraph(f"{name} differs from rank to rank: {low:,} to {high:,}."))
    return "\n".join(lines)
