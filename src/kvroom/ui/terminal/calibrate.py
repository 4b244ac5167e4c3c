"""``kvroom calibrate`` for a terminal: what was learned, and the error before and after."""

from __future__ import annotations

from kvroom.observe.calibrate import Calibrated
from kvroom.ui.terminal.plain import ascii_only, spelled
from kvroom.ui.terminal.text import paragraph
from kvroom.ui.words import seconds


def show(calibrated: Calibrated, out: str | None) -> str:
    """The whole answer."""
    blocks = [_memory(calibrated), _times(calibrated)]
    blocks.append("\n".join(paragraph(f"left out: {text}", "? ") for text in calibrated.left_out))
    if out is not None:
        blocks.append(paragraph(f"Written to {out}. Use it: kvroom plan … --calibration {out}", ""))
    text = "\n\n".join(block for block in blocks if block)
    return spelled(text) if ascii_only() else text


def _memory(calibrated: Calibrated) -> str:
    if not calibrated.memory:
        return ""
    lines = [f"  {'cache':26}{'printed':>16}{'before':>10}{'after':>10}"]
    for m in calibrated.memory:
        before, after = (
            "-" if v is None else f"{v / m.printed - 1:+.1%}" for v in (m.before, m.after)
        )
        alone = "  by itself" if m.alone else ""
        lines.append(f"  {m.file[:25]:26}{m.printed:>16,.0f}{before:>10}{after:>10}{alone}")
    return "\n".join(lines)


def _times(calibrated: Calibrated) -> str:
    if not calibrated.times:
        return ""
    head = f"  {'time':20}{'at once':>8}{'tokens':>8}{'':>6}{'measured':>10}"
    lines = [f"{head}{'before':>9}{'after':>9}"]
    for time in calibrated.times:
        before, after = (
            "-" if v is None else f"{v / time.measured_s - 1:+.1%}"
            for v in (time.before_s, time.after_s)
        )
        name = {"step_s": "step"}.get(time.metric, time.metric[:4].upper())
        alone = " alone" if time.alone else ""
        lines.append(
            f"  {time.file[:19]:20}{time.concurrency:>8,}{time.tokens:>8,}{name:>6}"
            f"{seconds(time.measured_s):>10}{before:>9}{after:>9}{alone}"
        )
    return "\n".join(lines)
