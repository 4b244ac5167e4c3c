"""Plans side by side: what was asked differently, and the figures that differ by it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kvroom.answer import html
from kvroom.answer.frames import frame
from kvroom.answer.plan import Plan
from kvroom.records import dataclass
from kvroom.units import show_gib

FIGURES: Mapping[str, Callable[[Plan], Any]] = {
    "fits": lambda p: p.verdict.fits,
    "requests": lambda p: p.capacity.ceiling.requests if p.capacity.ceiling else None,
    "engine_requests": lambda p: p.capacity.engine.max_concurrency if p.capacity.engine else None,
    "expected_requests": lambda p: p.capacity.expected.requests,
    "shared_requests": lambda p: p.capacity.shared.requests,
    "weights_bytes": lambda p: p.weights.bytes,
    "kv_bytes": lambda p: p.memory.kv_bytes,
    "kv_bytes_per_token": lambda p: p.kv.bytes_per_token,
    "step_s": lambda p: p.step.seconds,
    "tpot_s": lambda p: p.serving.tpot_s,
    "ttft_s": lambda p: p.serving.ttft_s,
    "output_tokens_per_s": lambda p: p.serving.output_tokens_per_s,
    "usd_per_hour": lambda p: p.cost.usd_per_hour,
    "usd_per_million_output_tokens": lambda p: p.cost.usd_per_million_output_tokens,
}
"""The figures of a Plan that a comparison tells, by the names of its columns."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Plans side by side."""

    plans: tuple[Plan, ...]

    def differences(self) -> list[str]:
        """The keys that were asked differently."""
        questions = [plan.scenario.to_dict() for plan in self.plans]
        return [
            key
            for key in questions[0]
            if any(question[key] != questions[0][key] for question in questions)
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values (CONTRACT: compare)."""
        return {"plans": [plan.to_dict() for plan in self.plans]}

    def rows(self) -> list[dict[str, Any]]:
        """A flat row a Plan: what was asked differently, then its figures (``*_bytes``, ``*_s`` seconds)."""
        keys = self.differences()
        rows = []
        for plan in self.plans:
            question = plan.scenario.to_dict()
            shown = {
                key: question[key] if _flat(question[key]) else str(question[key]) for key in keys
            }
            rows.append(shown | {name: figure(plan) for name, figure in FIGURES.items()})
        return rows

    def to_frame(self) -> Any:
        """The rows as a data frame of polars or pandas; ImportError where neither is installed."""
        return frame(self.rows())

    def to_html(self) -> str:
        """A report as one self-contained HTML file."""
        rows = [{key: _shown(key, value) for key, value in row.items()} for row in self.rows()]
        columns = [html.Column(title=key.replace("_", " "), key=key) for key in rows[0]]
        parts = [html.table(columns, rows)]
        parts += [
            html.paragraph(f"{index}: {plan.verdict.sentence}")
            for index, plan in enumerate(self.plans, 1)
        ]
        return html.page("Plans side by side", parts)


def _flat(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def _shown(key: str, value: Any) -> Any:
    if key.endswith("_bytes") and isinstance(value, int):
        return show_gib(value)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return html.number(value, 4) if number else value
