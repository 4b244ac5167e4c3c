"""``kvroom calibrate`` for a terminal: what was learned, and the error before and after."""

from __future__ import annotations

from kvroom.observe.calibrate import Calibrated
from kvroom.ui.terminal.plain import ascii_only, spelled
from kvroom.ui.terminal.plan import paragraph
from kvroom.ui.words import seconds


def show(c: Calibrated, out: str | None) -> str:
    """The whole answer."""
    blocks = [_memory(c), _times(c)]
    blocks.append("\n".join(paragraph(f"left out: {text}", "? ") for text in c.left_out))
    if out is not None:
        blocks.append(paragraph(f"Written to {out}. Use it: kvroom plan … --calibration {out}", ""))
    text = "\n\n".join(b for b in blocks if b) or "These files hold nothing to calibrate by."
    return spelled(text) if ascii_only() else text


def _memory(c: Calibrated) -> str:
    if not c.memory:
        return ""
    lines = [f"  {'cache':26}{'printed':>16}{'before':>10}{'after':>10}"]
    for m in c.memory:
        before, after = (
            "-" if v is None else f"{v / m.printed - 1:+.1%}" for v in (m.before, m.after)
        )
        alone = "  by itself" if m.alone else ""
        lines.append(f"  {m.file[:25]:26}{m.printed:>16,.0f}{before:>10}{after:>10}{alone}")
    return "\n".join(lines)


def _times(c: Calibrated) -> str:
    if not c.times:
        return ""
    head = f"  {'time':20}{'at once':>8}{'tokens':>8}{'':>6}{'measured':>10}"
    lines = [f"{head}{'before':>9}{'after':>9}"]
    for t in c.times:
        before, after = (
            "-" if v is None else f"{v / t.measured_s - 1:+.1%}" for v in (t.before_s, t.after_s)
        )
        name = {"step_s": "step"}.get(t.metric, t.metric[:4].upper())
        alone = " alone" if t.alone else ""
        lines.append(
            f"  {t.file[:19]:20}{t.concurrency:>8,}{t.tokens:>8,}{name:>6}"
            f"{seconds(t.measured_s):>10}{before:>9}{after:>9}{alone}"
        )
    return "\n".join(lines)
