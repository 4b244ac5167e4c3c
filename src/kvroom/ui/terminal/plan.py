"""A Plan in words and bars, as wide as the terminal, with or without colour."""

from __future__ import annotations

from collections.abc import Iterable

import click

from kvroom.answer.figures import ACCOUNTS, Explanation
from kvroom.answer.plan import Account, Plan
from kvroom.hardware.mixed import so_many
from kvroom.planner.plan import Workings
from kvroom.scenario.engine_names import CEILING_ENGINE
from kvroom.ui.terminal.plain import ascii_only, plain_text, text_width
from kvroom.ui.terminal.text import paragraph
from kvroom.ui.terminal.times import times
from kvroom.units import GB, say_tokens, show_count, show_gb, show_gib

# A glyph and a colour for each account: colour is never the only code.
STYLES = {
    "weights": ("█", "#", "white"),
    "adapters": ("█", "#", "cyan"),
    "draft": ("█", "#", "cyan"),
    "activations": ("▓", "+", "yellow"),
    "runtime": ("▓", "+", "yellow"),
    "graphs": ("▓", "+", "yellow"),
    "encoder": ("▓", "+", "yellow"),
    "kv": ("▒", "=", "green"),
    "unused": ("·", ".", None),
}


def show(workings: Workings) -> str:
    """The whole answer."""
    plan = workings.plan
    blocks = [
        click.style(paragraph(plan.verdict.sentence, ""), bold=True),
        head(workings, bold=False),
        memory(workings),
        request(workings),
        room(plan),
        step(workings),
        *(plain_text(block) for block in times(workings)),
        *([warnings(plan.warnings)] if plan.warnings else []),
    ]
    return "\n\n".join(block for block in blocks if block)


def head(workings: Workings, *, bold: bool = True) -> str:
    """Two lines: what is served, on what, how."""
    deployment, plan = workings.deployment, workings.plan
    own = workings.own
    cards = so_many(own.gpu_count, deployment.device.name)
    degrees = [
        f"{name} {value}"
        for name, value in (
            ("tp", own.tp),
            ("pp", own.pp),
            ("dp", own.dp),
            ("ep", own.ep),
            ("dcp", own.dcp),
        )
        if value > 1
    ]
    layout = f" ({', '.join(degrees)})" if degrees else ""
    rule = deployment.weights.quantisation.name
    what = f"{deployment.model.name}: {show_count(plan.weights.params)} parameters in {rule}"
    length = say_tokens(deployment.context_tokens)
    how = f"{cards}{layout}, {own.engine}, cache in {deployment.kv_name}, {length}"
    return click.style(paragraph(what, ""), bold=bold) + "\n" + paragraph(how, "")


def memory(workings: Workings) -> str:
    """One GPU's memory as a bar and its accounts."""
    plan, deployment = workings.plan, workings.deployment
    gpu = plan.memory.gpu_bytes
    which = "One GPU" if deployment.layout.gpus > 1 else "The GPU"
    if deployment.layout.pp > 1:
        which = f"One GPU of stage {workings.answer.rank.stage + 1}, which binds"
    lines = [f"{which}: {show_gib(gpu)} ({show_gb(gpu)})", "  " + bar(workings)]
    for account in plan.memory.accounts:
        if account.bytes:
            lines.append(_account(account, gpu, workings))
    return "\n".join(plain_text(line) if "\x1b" not in line else line for line in lines)


def _account(account: Account, gpu: int, workings: Workings) -> str:
    glyph = _glyph(account.name)
    name = ACCOUNTS.get(account.name, account.name)
    note = account.source
    if account.name == "kv":
        each = workings.plan.kv.bytes_per_request_per_gpu
        note = f"{show_gib(each)} a request" if each else "nothing a request"
    elif account.name == "unused" and account.bytes < 0:
        name, note = "missing", "more than the card holds"
    if account.low_bytes != account.high_bytes:
        note += f", {show_gib(account.low_bytes)} to {show_gib(account.high_bytes)}"
    share = f"{100 * abs(account.bytes) / gpu:5.1f} %"
    figures = f"{name:12}{show_gib(abs(account.bytes)):>12} {share}"
    gap = "  " if len(figures) + len(note) <= text_width() - 6 else " "
    return f"  {glyph} {figures}{gap}{plain_text(note)}"


def _glyph(name: str) -> str:
    fancy, simple, colour = STYLES.get(name, ("▓", "+", "yellow"))
    return click.style(simple if ascii_only() else fancy, fg=colour)


def key(workings: Workings) -> list[str]:
    """What the bar shows, on as few lines as hold it: the engine's own accounts as one."""
    sizes: dict[str, int] = {}
    for account in workings.plan.memory.accounts:
        name = ACCOUNTS.get(account.name, account.name)
        if account.name == "unused" and account.bytes < 0:
            name = "missing"
        elif account.name not in STYLES or STYLES[account.name][0] == "▓":
            name = "engine"
        sizes[name] = sizes.get(name, 0) + account.bytes
    glyphs = {ACCOUNTS.get(name, name): _glyph(name) for name in STYLES}
    glyphs |= {"engine": _glyph("runtime"), "missing": _glyph("unused")}
    lines, used = [""], 0
    for name, size in sizes.items():
        if not size:
            continue
        words = plain_text(f"{name} {show_gib(abs(size))}")
        if used and used + len(words) + 5 > text_width() - 2:
            lines, used = [*lines, ""], 0
        lines[-1] += ("   " if used else "  ") + f"{glyphs[name]} {words}"
        used += len(words) + 5
    return lines


def bar(workings: Workings) -> str:
    """The accounts as one bar; requests in the cache are told apart where there is room to."""
    plan = workings.plan
    gpu = plan.memory.gpu_bytes
    total = sum(max(0, account.bytes) for account in plan.memory.accounts)
    over = " over" if total > gpu else ""
    scale = (text_width() - 4 - len(over)) / max(gpu, total)
    cells: list[str] = []
    reached = 0.0
    for account in plan.memory.accounts:
        reached += max(0, account.bytes) * scale
        width = round(reached) - len(cells)
        cells += (
            _cache_cells(workings, width)
            if account.name == "kv"
            else [_glyph(account.name)] * width
        )
    return "".join(cells) + (click.style(over, fg="red") if over else "")


def _cache_cells(workings: Workings, width: int) -> list[str]:
    each, size = workings.plan.kv.bytes_per_request_per_gpu, workings.plan.memory.kv_bytes
    fancy, simple, colour = STYLES["kv"]
    glyph, other = (simple, "-") if ascii_only() else (fancy, "░")
    if not each or not size or size / each > width / 2:
        return [click.style(glyph, fg=colour)] * width
    whole = size // each
    return [
        click.style(glyph if i % 2 == 0 else other, fg=colour) if i < whole else _glyph("unused")
        for i in (int(cell * size / each / width) for cell in range(width))
    ]


def request(workings: Workings) -> str:
    """What one request stores, by kind of layer."""
    plan, deployment = workings.plan, workings.deployment
    if not plan.kv.layers:
        return ""
    kv = plan.kv
    lines = ["One request"]
    if kv.bytes_per_token:
        lines.append(f"  {'a token adds':14}{show_gib(kv.bytes_per_token):>12}")
    tokens = f"{say_tokens(deployment.context_tokens)}"
    lines.append(f"  {tokens:14}{show_gib(kv.bytes_per_request):>12}")
    if kv.state_bytes_per_request:
        lines.append(f"  {'of it state':14}{show_gib(kv.state_bytes_per_request):>12}")
    kinds = [
        f"{layer.count} {layer.kind}"
        + (f" × {show_gib(layer.bytes_per_token)}" if layer.bytes_per_token else "")
        for layer in kv.layers
    ]
    lines.append(paragraph("layers: " + ", ".join(kinds)))
    return "\n".join(plain_text(line) for line in lines)


def room(plan: Plan) -> str:
    """The staircase of requests at once."""
    capacity = plan.capacity
    if capacity.ceiling is None:
        return ""
    lines = ["Requests at once"]
    lines.append(
        f"  {'ceiling':14}{capacity.ceiling.requests:>12,}  ({capacity.ceiling.exact:,.2f})"
    )
    engine = plan.scenario.engine
    if engine != CEILING_ENGINE and capacity.engine and capacity.engine.max_concurrency is not None:
        one_engine = capacity.engine
        band = ""
        if (
            one_engine.low is not None
            and one_engine.high is not None
            and one_engine.low != one_engine.high
        ):
            band = f"  ({one_engine.low:,.1f} to {one_engine.high:,.1f})"
        replica = "  a replica" if plan.scenario.dp > 1 else ""
        lines.append(f"  {engine:14}{one_engine.max_concurrency:>12,.2f}{replica}{band}")
        if one_engine.kv_tokens is not None:
            blocks = (
                f"  in {one_engine.num_blocks:,} blocks"
                if one_engine.num_blocks is not None
                else ""
            )
            lines.append(f"  {'cache tokens':14}{one_engine.kv_tokens:>12,}{replica}{blocks}")
    for name, figure in (("expected", capacity.expected), ("shared prefix", capacity.shared)):
        if figure.requests is not None:
            band = ""
            if figure.low is not None and figure.high is not None and figure.low < figure.high:
                band = f"  ({figure.low:,.1f} to {figure.high:,.1f})"
            lines.append(f"  {name:14}{figure.requests:>12,.1f}{band}")
    if capacity.engine and capacity.engine.max_context_tokens is not None:
        lines.append(f"  {'longest one':14}{capacity.engine.max_context_tokens:>12,}  tokens")
    return "\n".join(lines)


def step(workings: Workings) -> str:
    """What a decode step moves."""
    plan = workings.plan
    step = plan.step
    if not workings.deployment.model.generates:
        return ""
    many = f"{step.batch:,} request{'s' if step.batch != 1 else ''}"
    lines = [f"A decode step of {many} moves (all GPUs)"]
    parts = [
        ("weights", step.bytes.weights, "weights"),
        ("cache", step.bytes.kv, "kv"),
        ("state", step.bytes.state, "kv"),
    ]
    parts += [
        ("activations", step.bytes.activations, "runtime"),
        ("links", step.bytes.links, "runtime"),
    ]
    most = max(size for _, size, _ in parts) or 1
    for name, size, style in parts:
        if size:
            drawn = _glyph(style) * max(1, round(size / most * 40)) if size > most / 80 else ""
            lines.append(f"  {name:14}{show_gb(size):>12}  {drawn}".rstrip())
    total = sum(size for _, size, _ in parts)
    lines.append(f"  {'a token':14}{show_gb(total / step.batch / step.tokens_per_request):>12}")
    notes = []
    if step.crossover_batch is not None:
        notes.append(f"Cache outweighs weights from batch {step.crossover_batch:,}.")
    if step.bound is not None:
        waits = "memory" if step.bound == "memory" else "arithmetic"
        notes.append(f"At the card's peak rates the step waits for {waits}.")
    if notes:
        lines.append(paragraph(" ".join(notes)))
    return "\n".join(plain_text(line) if "\x1b" not in line else line for line in lines)


def warnings(found: Iterable[str]) -> str:
    """Warnings, a bullet each."""
    return "\n".join(
        click.style("! ", fg="yellow") + paragraph(text, "  ").removeprefix("  ") for text in found
    )


def show_explanations(explanations: Iterable[Explanation]) -> str:
    """Each figure: its value, its formula, the numbers put in, the source."""
    return "\n\n".join(_explanation(e) for e in explanations)


def _explanation(explanation: Explanation) -> str:
    value = (
        f"{explanation.value:,} {explanation.unit}"
        if isinstance(explanation.value, int)
        else f"{explanation.value:,.4f} {explanation.unit}"
    )
    if explanation.unit == "bytes":
        value += f" = {show_gib(explanation.value)}" + (
            f" = {show_gb(explanation.value)}" if explanation.value >= GB else ""
        )
    return "\n".join(
        (
            click.style(plain_text(explanation.label), bold=True) + f"  [{explanation.figure}]",
            paragraph(value),
            paragraph(f"= {explanation.formula}", "    "),
            paragraph(f"= {explanation.numbers}", "    "),
            paragraph(f"source: {explanation.source}", "    "),
        )
    )
