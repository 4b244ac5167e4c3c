"""GuideLLM's benchmark files: the requests of every benchmark in it, as they were sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvroom.errors import KvroomError
from kvroom.workloads.requests import Request
from kvroom.workloads.traces.base import Format, Row, RowOptions
from kvroom.workloads.traces.fields import at, moment_ps, objects, whole_tokens

TIMES = (
    "start_time",
    "info.timings.request_start",
    "scheduler_info.request_timings.request_start",
    "scheduler_info.started_at",
    "info.timings.resolve_start",
)
PROMPTS = ("prompt_tokens", "input_metrics.text_tokens", "input_metrics.total_tokens")
ANSWERS = ("output_tokens", "output_metrics.text_tokens", "output_metrics.total_tokens")


def guidellm(_: RowOptions) -> Row:
    """``benchmarks``, each with ``requests.successful``."""

    def row(values: Mapping[str, Any]) -> list[Request]:
        requests = []
        for benchmark in objects(values.get("benchmarks")):
            sent = at(benchmark, "requests.successful", "requests.completed", "requests")
            for request in objects(sent):
                requests.append(
                    Request(
                        moment_ps("start_time", at(request, *TIMES)),
                        whole_tokens("prompt_tokens", at(request, *PROMPTS), 1),
                        whole_tokens("output_tokens", at(request, *ANSWERS), 0),
                    )
                )
        if not requests:
            fix = "Let GuideLLM write them: --output-path with requests, not a summary."
            raise KvroomError("benchmarks", None, "hold no request that succeeded", fix)
        requests.sort()
        return requests

    return row


FORMAT = Format("GuideLLM", ("benchmarks",), guidellm)
