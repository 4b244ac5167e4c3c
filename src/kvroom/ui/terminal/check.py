"""What ``check`` finds, a line a deployment."""

from __future__ import annotations

from kvroom.observe.check import Checked, CheckReport

WORDS = {
    "fits": "fits", "full": "holds fewer", "would_not_start": "would not start", "unsupported": "unsupported",
    "unlikely": "unlikely", "unreadable": "unreadable", "none": "nothing to check",
}  # fmt: skip


def show(report: CheckReport, *, warnings: bool = True) -> str:
    """``file:line  verdict  reason  fix`` of each deployment, what is to be known of it below."""
    lines: list[str] = []
    for check in report.deployments:
        lines.append(_line(check))
        if warnings:
            lines += [f"  ! {warning}" for warning in check.warnings]
    return "\n".join(lines)


def _line(check: Checked) -> str:
    broken = check.status == "fits" and check.is_finding
    word = "promise not held" if broken else WORDS[check.status]
    parts = [f"{check.file}:{check.line}", word, check.reason.rstrip(".")]
    return "  ".join(p for p in (*parts, check.fix.rstrip(".")) if p)
