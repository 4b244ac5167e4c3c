"""What ``check`` finds in the forms that other tools read: SARIF, GitHub annotations, JUnit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from kvroom import __version__
from kvroom.errors import did_you_mean
from kvroom.observe.check import Checked, CheckReport
from kvroom.ui import codec

SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def _rule(check: Checked) -> str:
    if check.reasons:
        return check.reasons[0].rule.replace(" ", "-") or check.status
    return "promise" if check.status == "fits" else check.status


def _message(check: Checked) -> str:
    return f"{check.reason}. {check.fix}".rstrip(". ") + "."


def _shown(report: CheckReport) -> list[Checked]:
    return [
        deployment
        for deployment in report.deployments
        if deployment.is_finding or deployment.status == "unreadable"
    ]


def sarif(report: CheckReport) -> str:
    """SARIF 2.1.0: a result a finding."""
    results: list[dict[str, Any]] = []
    for check in _shown(report):
        place = {"artifactLocation": {"uri": check.file}, "region": {"startLine": check.line}}
        results.append(
            {
                "ruleId": _rule(check),
                "level": "error" if check.status != "unlikely" else "warning",
                "message": {"text": _message(check)},
                "locations": [{"physicalLocation": place}],
            }
        )
    rules = [{"id": fromkey} for fromkey in dict.fromkeys(_rule(c) for c in _shown(report))]
    driver = {"name": "kvroom", "version": __version__, "rules": rules}
    run = {"tool": {"driver": driver}, "results": results}
    return codec.encode({"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}, pretty=True)


def github(report: CheckReport) -> str:
    """Workflow commands: an annotation a finding."""
    lines = []
    for check in _shown(report):
        level = "warning" if check.status == "unlikely" else "error"
        text = _message(check).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
        file = check.file.replace("%", "%25").replace(":", "%3A").replace(",", "%2C")
        lines.append(f"::{level} file={file},line={check.line},title=kvroom::{text}")
    return "\n".join(lines)


def junit(report: CheckReport) -> str:
    """JUnit's XML: a test case a deployment."""
    cases = []
    failures = errors = 0
    for check in report.deployments:
        name = quoteattr(f"{check.file}:{check.line}")
        inner = ""
        if check.status == "unreadable":
            errors += 1
            inner = f"<error message={quoteattr(_message(check))}/>"
        elif check.is_finding:
            failures += 1
            inner = (
                f"<failure message={quoteattr(check.reason)}>{escape(_message(check))}</failure>"
            )
        cases.append(f'  <testcase classname="kvroom.check" name={name}>{inner}</testcase>')
    counts = f'tests="{len(cases)}" failures="{failures}" errors="{errors}"'
    return "\n".join(
        [
            '<?xml version="1.0" encoding="UTF-8"?>',
            f'<testsuite name="kvroom check" {counts}>',
            *cases,
            "</testsuite>",
        ]
    )


def json_text(report: CheckReport) -> str:
    """The report as JSON."""
    return codec.encode(report.to_dict(), pretty=True)


FORMS: dict[str, Callable[[CheckReport], str]] = {
    "json": json_text, "sarif": sarif, "github": github, "junit": junit,
}  # fmt: skip


def no_form(form: str) -> str:
    """What to write in place of ``form``."""
    known = ("text", *FORMS)
    return did_you_mean(form, known, f"One of: {', '.join(known)}.")
