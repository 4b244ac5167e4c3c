"""The answer: a Plan, frozen and plain.

Keys are those of the JSON that scripts and the page rely on. ``None`` is what is not known, not asked,
or not modelled for that engine.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any

from kvroom.scenario.scenario import Scenario


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
    drawn, and how far the closed form was off simulations (``simulation.occupancy``)."""

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
    """One decode step of ``batch`` requests of ``context_tokens``; times are 80 % bands.

    ``tokens_per_request`` is what each gains by it: more than one, as expected, where tokens are drafted.
    """

    batch: int
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
    """Times under load, with 80 % bands; ``rests_on`` is the line of the board of accuracy
    (``docs/accuracy.md``) that says how well such times were predicted."""

    tpot_s: float | None = None
    tpot_low_s: float | None = None
    tpot_high_s: float | None = None
    ttft_s: float | None = None
    ttft_low_s: float | None = None
    ttft_high_s: float | None = None
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
    """Money, where the hardware's price is known, and energy, an estimate from thermal limits."""

    usd_per_hour: float | None = None
    usd_per_million_output_tokens: float | None = None
    usd_per_million_input_tokens: float | None = None
    usd_per_user_hour: float | None = None
    joules_per_output_token: float | None = None
    joules_per_output_token_low: float | None = None
    joules_per_output_token_high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Does it start and hold the asked concurrency (one request where none is asked), and what
    gives way first."""

    fits: bool
    binding: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One answer to one Scenario."""

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
        return asdict(self)

    def _repr_html_(self) -> str:
        """The Plan as notebooks show it. How that looks is a face's matter, asked only when it is shown."""
        return str(import_module("kvroom.ui.notebook").html(self))
