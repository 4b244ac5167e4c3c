"""``kvroom watch``: lines of JSON, lines of text, or a live view; and recordings told again."""

from __future__ import annotations

import re
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kvroom.answer.plan import Plan
from kvroom.errors import KvroomError
from kvroom.observe.endpoint import Endpoint
from kvroom.observe.prometheus import Reading
from kvroom.observe.recording import Recorder, Recording, cache_of, concurrency_of
from kvroom.observe.watch import Sample, Watcher, samples
from kvroom.records import dataclass
from kvroom.ui.cli.shell import say
from kvroom.ui.terminal.plain import ascii_only, plain_text
from kvroom.ui.terminal.text import paragraph
from kvroom.ui.words import spread, typical_and_p95
from kvroom.workloads.traces.writer import write as write_trace

if TYPE_CHECKING:
    from rich.console import RenderableType

HISTORY = 60
SPARKS = "▁▂▃▄▅▆▇█"
PATIENCE = 3
"""Samples without any answer after which a watch whose output nobody looks at ends."""
_DIGITS = re.compile(r"[\d.,%]+")


@dataclass
class LiveView:
    """What a view needs beside the newest sample."""

    address: str
    plan: Plan | None
    reading: Reading | None = None
    fills: deque[float | None] = field(default_factory=lambda: deque(maxlen=HISTORY))


def is_recording(url: str) -> bool:
    """Whether ``url`` is a file rather than an address."""
    return "://" not in url and Path(url).is_file()


def refuse_trace(trace: str | None) -> None:
    """KvroomError where a trace is asked of a running server."""
    if trace is not None:
        fix = "Record first (--record FILE), then: kvroom watch FILE --trace OUT."
        raise KvroomError("--trace", trace, "is made of a recording", fix)


def run(
    url: str,
    plan: Plan | None,
    *,
    interval_s: float,
    count: int | None,
    window_s: float,
    timeout_s: float,
    record: str | None,
    as_json: bool,
) -> None:
    """Watch until the count is reached or the reader has seen enough."""
    endpoint = Endpoint.of(url)
    view = LiveView(endpoint.shown, plan)
    answered = False
    error = ""
    unseen = as_json or not sys.stdout.isatty()
    tries = 0
    with ExitStack() as stack:
        recorder = stack.enter_context(Recorder(record)) if record else None
        show = stack.enter_context(_shower(view, once=count == 1, as_json=as_json))
        try:
            for sample, reading in samples(
                endpoint, Watcher(window_s), interval_s, count, timeout_s
            ):
                if recorder is not None and (reading is not None or answered):
                    if not answered:
                        assert reading is not None
                        question = plan.scenario.differences() if plan else None
                        recorder.header(endpoint.shown, reading, question)
                    recorder.sample(sample, reading)
                answered = answered or reading is not None
                error = sample.error or error
                view.reading = reading or view.reading
                view.fills.append(sample.kv_usage)
                show(sample)
                tries += 1
                if unseen and not answered and tries >= PATIENCE:
                    break
        except KeyboardInterrupt:
            pass
    if not answered and error:
        fix = "Is the server up, and is this its address?"
        raise KvroomError("URL", endpoint.shown, f"gave no figures: {error}", fix)


@contextmanager
def _shower(view: LiveView, *, once: bool, as_json: bool) -> Iterator[Callable[[Sample], None]]:
    """A function that shows a sample: as JSON, as a line, or in a live view."""
    if as_json:
        yield lambda sample: say(sample.to_dict(), pretty=False)
    elif not sys.stdout.isatty() or once:
        click.echo(f"watching {view.address}")
        yield _Lines(view).show
    else:
        from rich.live import Live

        with Live(auto_refresh=False) as live:
            yield lambda sample: live.update(picture(view, sample), refresh=True)


class _Lines:
    """A line a sample; a warning is told when it begins, or another comes first."""

    def __init__(self, view: LiveView | None) -> None:
        self._view = view
        self._told = ""
        self._begun = False

    def show(self, sample: Sample) -> None:
        """Print one sample."""
        view = self._view
        if view is not None and view.reading is not None:
            for block in filter(None, (_beside(view), _ignored(view.reading))):
                click.echo(plain_text(block))
            self._view = None
        if not self._begun and sample.error is None:
            self._begun = True
            click.echo(HEAD)
        click.echo(plain_text(line_of(sample)))
        worst = sample.warnings[0] if sample.warnings else ""
        kind = _DIGITS.sub("", worst)
        if kind and kind != self._told:
            click.echo(plain_text(paragraph(worst, "         ! ")))
        self._told = kind


def line_of(sample: Sample) -> str:
    """One sample in one line, under HEAD."""
    if sample.error is not None:
        head, *more = paragraph(f"no answer: {sample.error}", " " * 10).split("\n")
        return "\n".join((f"{sample.t_s:8.1f}{head[8:]}", *more))
    cells = [
        "-" if sample.kv_usage is None else f"{sample.kv_usage:.0%}",
        _number(sample.running),
        _number(sample.waiting),
        _number(sample.preemptions),
        "-" if sample.hit_ratio is None else f"{sample.hit_ratio:.0%}",
        *typical_and_p95(sample.ttft_s),
        *typical_and_p95(sample.itl_s),
    ]
    widths = (7, 6, 6, 11, 6, 9, 9, 9, 9)
    return f"{sample.t_s:8.1f}" + "".join(
        cell.rjust(width) for cell, width in zip(cells, widths, strict=True)
    )


HEAD = f"{'seconds':>8}{'cache':>7}{'run':>6}{'wait':>6}{'preempted':>11}{'hits':>6}"
HEAD += f"{'TTFT':>9}{'p95':>9}{'ITL':>9}{'p95':>9}"


def expected(view: LiveView) -> list[tuple[str, str, str]]:
    """(what, the plan's, the engine's): the cache's size as planned and as the engine tells it."""
    rows: list[tuple[str, str, str]] = []
    if view.plan is None or view.reading is None:
        return rows
    cache = cache_of(view.reading)
    room = view.plan.capacity.engine
    pairs = (
        ("cache tokens", room.kv_tokens if room else None, cache.get("kv_tokens")),
        ("blocks", room.num_blocks if room else None, cache.get("num_blocks")),
        ("tokens a block", room.block_tokens if room else None, cache.get("block_size")),
    )
    for name, planned_, real in pairs:
        if planned_ is not None or real is not None:
            rows.append((name, _number(planned_), _number(real)))
    if room is not None:
        real_room = concurrency_of(view.reading)
        shown = "-" if real_room is None else f"{real_room:,.2f}"
        rows.append(("requests at once", f"{room.max_concurrency:,.2f}", shown))
    return rows


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _beside(view: LiveView) -> str:
    rows = expected(view)
    if not rows:
        return ""
    lines = [f"  {'':18}{'plan':>14}{'engine':>14}"]
    return "\n".join((*lines, *(f"  {n:18}{p:>14}{e:>14}" for n, p, e in rows)))


def _ignored(reading: Reading) -> str:
    """The names that were not used, where there are any."""
    parts = []
    if reading.unknown:
        shown = ", ".join(reading.unknown[:6]) + (", …" if len(reading.unknown) > 6 else "")
        parts.append(f"{len(reading.unknown)} metrics are not used: {shown}")
    if reading.unreadable:
        parts.append(f"{reading.unreadable:,} lines could not be read")
    return "\n".join(paragraph(part, "  ") for part in parts)


def sparks(fills: deque[float | None]) -> str:
    """The fill over time, a character a sample."""
    top = len(SPARKS) - 1
    return "".join(" " if fill is None else SPARKS[min(top, round(fill * top))] for fill in fills)


def picture(view: LiveView, sample: Sample) -> RenderableType:
    """The live view."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    reading = view.reading
    name = f"{reading.engine} {reading.model or ''}".strip() if reading else "waiting"
    grid = Table(box=None, show_header=False, pad_edge=False)
    grid.add_column(style="bold")
    grid.add_column()
    fill = sample.kv_usage
    bar = "" if fill is None else "█" * round(fill * 40) + "░" * (40 - round(fill * 40))
    grid.add_row("cache", Text(plain_text(f"{bar} {'-' if fill is None else format(fill, '.1%')}")))
    if not ascii_only():
        grid.add_row("", Text(sparks(view.fills)))
    grid.add_row("running", _number(sample.running))
    grid.add_row("waiting", _number(sample.waiting))
    grid.add_row("preempted", _number(sample.preemptions))
    grid.add_row("prefix hits", "-" if sample.hit_ratio is None else f"{sample.hit_ratio:.1%}")
    grid.add_row("TTFT", plain_text(spread(sample.ttft_s)))
    grid.add_row("ITL", plain_text(spread(sample.itl_s)))
    for label, rate in (
        ("requests/s", sample.requests_per_s),
        ("prompt tokens/s", sample.prompt_tokens_per_s),
        ("tokens/s", sample.generation_tokens_per_s),
    ):
        grid.add_row(label, "-" if rate is None else f"{rate:,.1f}")
    parts: list[RenderableType] = [Text(f"{name} at {view.address}", style="bold"), grid]
    parts.append(
        Text(plain_text(sample.sentence), style="yellow" if sample.warnings or sample.error else "")
    )
    parts += [Text(plain_text(warning), style="yellow") for warning in sample.warnings[1:]]
    parts += [Text(t) for t in (_beside(view), _ignored(reading) if reading else "") if t]
    return Group(*parts)


def replay(path: str, trace: str | None, *, as_json: bool) -> None:
    """Tell a recording again, or make a trace of it."""
    recording = Recording.open(path)
    if trace is not None:
        requests = recording.requests()
        first = next(requests, None)
        if first is None:
            why = "holds no arrival to make a trace of"
            raise KvroomError("recording", path, why, "Record while requests come.")
        count = write_trace(trace, chain((first,), requests))
        ratio = recording.hit_ratio()
        shared = (
            "what their prompts share is not in a recording, so they share nothing."
            if not ratio
            else f"they begin alike, made up so that {ratio:.1%} of their tokens are found in a "
            "cache as in the recording."
        )
        text = (
            f"{count:,} requests in {trace}: as many as were counted, of lengths as were counted; "
        )
        click.echo(plain_text(paragraph(text + shared, "")))
        return
    names = Sample.__dataclass_fields__
    lines = _Lines(None)
    if not as_json:
        header = recording.header
        click.echo(f"{header['engine']} at {header['address']}, recorded {header['began']}")
    for line in recording.samples():
        if as_json:
            say({name: line.get(name) for name in names}, pretty=False)
        else:
            known = {key: value for key, value in line.items() if key in names}
            lines.show(Sample(**{**known, "warnings": tuple(line["warnings"])}))
