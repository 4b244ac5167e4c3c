"""The answer: a Plan, frozen and plain.

Its keys are those of the JSON that scripts and the page rely on. ``None`` means that a figure is not
known, was not asked for, or is not modelled for that engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from math import floor
from sys import maxsize
from typing import Any

from kvroom.answer.card import card
from kvroom.answer.shown import Shown
from kvroom.answer.verdict import Verdict
from kvroom.records import dataclass
from kvroom.scenario.command_line import command
from kvroom.scenario.engine_names import CEILING_ENGINE
from kvroom.scenario.scenario import Scenario
from kvroom.units import ceil_div, show_gib, show_seconds, show_usd


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """``params`` logical parameters of the model; ``bytes`` as stored at the plan's weight dtype."""

    params: int
    active_params: int
    mtp_params: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGroup:
    """``count`` layers of one cache kind; what one more token adds to each of them."""

    kind: str
    count: int
    bytes_per_token: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """What one request stores. ``bytes_per_token`` counts growing layers only, each byte once;
    ``bytes_per_request`` a request of ``context_tokens`` before block rounding, state included;
    the ``…_per_gpu`` figures are those of the rank that binds, replicas in."""

    bytes_per_token: int
    bytes_per_request: int
    state_bytes_per_request: int
    bytes_per_token_per_gpu: int
    bytes_per_request_per_gpu: int
    layers: tuple[LayerGroup, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """One share of a GPU's memory with its band and where the figure comes from
    (measured, driver, datasheet, config, engine rule, assumed)."""

    name: str
    bytes: int
    low_bytes: int
    high_bytes: int
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """One GPU, the rank that binds: its accounts add up to ``gpu_bytes``.

    ``unused`` is negative by as much as the weights do not fit.
    """

    gpu_bytes: int
    accounts: tuple[Account, ...]
    kv_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """The arithmetic limit: everything but weights over one request's bytes."""

    requests: int
    exact: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCapacity:
    """What the engine would print, per data-parallel replica."""

    num_blocks: int | None = None
    block_tokens: int | None = None
    kv_tokens: int | None = None
    max_concurrency: float | None = None
    max_context_tokens: int | None = None
    low: float | None = None
    high: float | None = None
    window_tokens: int | None = None
    state_slots: int | None = None
    max_running_requests: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Requests at once with their 80 % band, all three None where they are not known: lengths as they are
    drawn, and how far the closed form was off simulations (``simulator.occupancy``)."""

    requests: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The staircase: ceiling, what the engine gives, at the workload's lengths, prefix shared."""

    ceiling: Ceiling | None
    engine: EngineCapacity | None
    expected: Room = Room()
    shared: Room = Room()

    @property
    def of_lengths(self) -> Room:
        """Requests at once of the workload's lengths, its prefix shared; nothing where it states none."""
        return self.expected if self.shared.requests is None else self.shared


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBytes:
    """What one decode step moves, summed over all GPUs."""

    weights: int
    kv: int
    state: int
    activations: int
    links: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One decode step of ``batch`` requests that hold ``request_tokens`` each (the workload's mean, where it
    states lengths, else ``context_tokens``); times are 80 % bands.

    ``tokens_per_request`` is what each gains by it: more than one, as expected, where tokens are drafted.
    """

    batch: int
    request_tokens: int
    bytes: StepBytes
    flops: int
    seconds: float | None = None
    seconds_low: float | None = None
    seconds_high: float | None = None
    bound: str | None = None
    crossover_batch: int | None = None
    tokens_per_request: float = 1.0
    tokens_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """Times under load, with 80 % bands.

    ``ttft_s``, what a client sees, is the engine's part (``ttft_engine_s``), the front end's and, of loops
    that begin all at once, the start's. ``rests_on`` is the line of the board of accuracy
    (``docs/accuracy.md``) that says how well such times were predicted.
    """

    tpot_s: float | None = None
    tpot_low_s: float | None = None
    tpot_high_s: float | None = None
    ttft_s: float | None = None
    ttft_low_s: float | None = None
    ttft_high_s: float | None = None
    ttft_engine_s: float | None = None
    ttft_front_end_s: float | None = None
    ttft_start_s: float | None = None
    output_tokens_per_s: float | None = None
    rests_on: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """One pool of a disaggregated deployment: ``replicas`` of ``gpus`` cards each; ``fits`` where one
    starts. ``requests_per_s`` of the workload is what all of them keep up with."""

    gpu: str
    gpus: int
    replicas: int
    fits: bool
    requests_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pools:
    """Prompts computed in one pool, answers generated in another. The link is that of one replica;
    ``handed_bytes`` cross for a request of the workload (else of ``context_tokens``), ``handover_s``
    after its first token. ``binding`` (prefill, link, decode) keeps up with the fewest requests; a link of
    ``needs_link_bytes_per_s`` would hold up neither pool."""

    prefill: Pool
    decode: Pool
    handed_bytes: int
    link_bytes_per_s: float
    handover_s: float | None = None
    link_requests_per_s: float | None = None
    needs_link_bytes_per_s: float | None = None
    binding: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Money in US dollars, where the hardware's price is known, and energy, an estimate from thermal limits.

    ``price_source``: the price of each card with its terms, source and date, or that none is known.
    """

    usd_per_hour: float | None = None
    usd_per_million_output_tokens: float | None = None
    usd_per_million_input_tokens: float | None = None
    usd_per_user_hour: float | None = None
    joules_per_output_token: float | None = None
    joules_per_output_token_low: float | None = None
    joules_per_output_token_high: float | None = None
    price_source: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Plan(Shown):
    """One answer to one Scenario."""

    TITLE = "Where every byte goes, and how many requests have room"

    scenario: Scenario
    weights: Weights
    kv: Cache
    memory: Memory
    capacity: Capacity
    step: Step
    serving: Serving
    cost: Cost
    verdict: Verdict
    pools: Pools | None = None
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, keys as in the dataclasses."""
        plain = asdict(replace(self, scenario=Scenario(model="", gpu="")))
        return plain | {"scenario": self.scenario.to_dict()}

    def memory_bar(self) -> dict[str, Any]:
        """One GPU as a bar of bytes: its accounts, the requests that its replica runs and those that wait.

        The keys are those of ``drawing``.
        """
        memory, engine = self.memory, self.capacity.engine
        replicas = self.scenario.dp
        each, pool = self.kv.bytes_per_request_per_gpu, memory.kv_bytes
        limits = [self.capacity.ceiling.requests // replicas] if self.capacity.ceiling else []
        if self.scenario.engine != CEILING_ENGINE and engine and engine.max_concurrency is not None:
            limits = [floor(engine.max_concurrency), engine.max_running_requests or maxsize]
            each = floor(pool / engine.max_concurrency) if engine.max_concurrency and each else each
        if lengths := self.capacity.of_lengths.requests:
            limits, each = [floor(lengths / replicas)], floor(pool * replicas / lengths)
        room = min(limits) if limits else None
        wanted = self.scenario.concurrency
        users = (room or 0) if wanted is None else ceil_div(wanted, replicas)
        starts = self.verdict.starts
        room = room if starts or room is None else 0
        running = users if room is None else min(users, room)
        accounts = [
            account
            for account in memory.accounts
            if account.name not in ("kv", "unused") and account.bytes
        ]
        used = sum(account.bytes for account in accounts)
        left = pool - (room or 0) * each
        return {
            "gpus": 1,
            "starts": starts,
            "total_bytes": memory.gpu_bytes,
            "accounts": [asdict(account) for account in accounts],
            "kv_bytes": pool,
            "kept_bytes": max(0, memory.gpu_bytes - used - pool),
            "over_bytes": max(0, used - memory.gpu_bytes),
            "request_bytes": each,
            "room": room,
            "running": running,
            "waiting": users - running,
            "free_bytes": pool - running * each,
            "short_bytes": max(0, each - left),
        }

    def summary(self) -> str:
        """The verdict."""
        return self.verdict.sentence

    def rows(self) -> list[dict[str, Any]]:
        """One flat row: the keys that were asked, then the figures that ``compare`` tells."""
        return [plan_row(self, self.scenario.differences())]

    def questions(self) -> Sequence[Scenario]:
        """Its question."""
        return [self.scenario]

    def _repr_html_(self) -> str:
        """The Plan as notebooks show it: its verdict, one GPU drawn, the figures as a table."""
        return self._card(command(self.scenario))

    def html_parts(self) -> list[str]:
        """Its verdict, one GPU drawn, the figures, the times with their intervals, the warnings."""
        return [self._card("")]

    def _card(self, asked: str) -> str:
        bar = self.memory_bar()
        rows = self._card_rows(bar["room"])
        return card(self.verdict.sentence, bar, rows, self.warnings, asked)

    def _card_rows(self, room: int | None) -> Iterator[tuple[str, str]]:
        replica = " a replica" if self.scenario.dp > 1 else ""
        for account in self.memory.accounts:
            if account.bytes and account.name not in ("kv", "unused"):
                yield f"{account.name.capitalize()} on one GPU", show_gib(account.bytes)
        yield "Room for cache on one GPU", show_gib(self.memory.kv_bytes)
        yield "One request", show_gib(self.kv.bytes_per_request)
        yield "One token of cache", show_gib(self.kv.bytes_per_token)
        if room is not None:
            yield f"Requests with room{replica}", f"{room:,}"
        step, serving = self.step, self.serving
        for name, time, low, high in (
            ("TTFT", serving.ttft_s, serving.ttft_low_s, serving.ttft_high_s),
            ("TPOT", serving.tpot_s, serving.tpot_low_s, serving.tpot_high_s),
        ):
            if time is not None and low is not None and high is not None:
                band = f" (80 % interval {show_seconds(low)} to {show_seconds(high)})"
                yield name, show_seconds(time) + band
        if serving.output_tokens_per_s is not None:
            yield "Tokens a second", f"{serving.output_tokens_per_s:,.0f}"
        if step.seconds is not None:
            band = ""
            if step.seconds_low is not None and step.seconds_high is not None:
                band = f" ({show_seconds(step.seconds_low)} to {show_seconds(step.seconds_high)})"
            yield f"A step of {step.batch:,}", show_seconds(step.seconds) + band
        cost = self.cost
        if cost.usd_per_hour is not None:
            yield "An hour", show_usd(cost.usd_per_hour)
        if cost.usd_per_million_output_tokens is not None:
            yield "A million output tokens", show_usd(cost.usd_per_million_output_tokens)
        if cost.joules_per_output_token is not None:
            yield "Energy of an output token", f"{cost.joules_per_output_token:,.2f} J"


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
    "ttft_s": lambda p: p.serving.ttft_s,
    "ttft_low_s": lambda p: p.serving.ttft_low_s,
    "ttft_high_s": lambda p: p.serving.ttft_high_s,
    "tpot_s": lambda p: p.serving.tpot_s,
    "tpot_low_s": lambda p: p.serving.tpot_low_s,
    "tpot_high_s": lambda p: p.serving.tpot_high_s,
    "output_tokens_per_s": lambda p: p.serving.output_tokens_per_s,
    "usd_per_hour": lambda p: p.cost.usd_per_hour,
    "usd_per_million_output_tokens": lambda p: p.cost.usd_per_million_output_tokens,
    "joules_per_output_token": lambda p: p.cost.joules_per_output_token,
    "price_source": lambda p: p.cost.price_source,
}
"""The figures of a Plan that are compared, by the names of their columns."""


def plan_row(plan: Plan, keys: Iterable[str]) -> dict[str, Any]:
    """What was asked (its ``keys``), then FIGURES, as plain values."""
    question = plan.scenario.to_dict()
    asked = {key: question[key] if _flat(question[key]) else str(question[key]) for key in keys}
    return asked | {name: figure(plan) for name, figure in FIGURES.items()}


def _flat(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)
