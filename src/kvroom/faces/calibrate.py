"""``kvroom calibrate`` for a terminal: what was learned, and the error before and after."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvroom.evidence.calibrate import Calibrated, calibrate
from kvroom.faces import codec, hub
from kvroom.faces.options import keys_from
from kvroom.faces.plain import ascii_only, spelled
from kvroom.faces.reconcile import write_calibration
from kvroom.faces.text import paragraph
from kvroom.faces.watch import seconds


def ask(
    files: Sequence[str], model: str | None, given: dict[str, Any], out: str | None
) -> Calibrated:
    """What the files teach; written to ``out`` where it is given."""
    keys = keys_from(given)
    if model:
        hub.offer()
        keys["model"] = model
    answer = calibrate(files, keys)
    if out is not None:
        write_calibration("--out", out, codec.encode(answer.content(), pretty=True) + "\n")
    return answer


def show(c: Calibrated, out: str | None) -> str:
    """The whole answer."""
    blocks = [_memory(c), _times(c)]
    blocks.append("\n".join(paragraph(f"left out: {text}", "? ") for text in c.left_out))
    if out is not None:
        blocks.append(paragraph(f"Written to {out}. Use it: kvroom plan … --calibration {out}", ""))
    text = "\n\n".join(b for b in blocks if b)
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
    lines = [f"  {'run':20}{'at once':>9}{'TTFT':>10}{'planned':>10}{'TPOT':>10}{'planned':>10}"]
    for t in c.times:
        r = t.run
        held = "-" if r.concurrency is None else f"{r.concurrency:.1f}"
        cells = "".join(f"{seconds(v):>10}" for v in (r.ttft_s, t.ttft_s, r.tpot_s, t.tpot_s))
        lines.append(f"  {t.file[:19]:20}{held:>9}{cells}")
    return "\n".join(lines)
