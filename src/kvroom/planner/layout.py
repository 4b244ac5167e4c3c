"""The layout that kvroom chooses where a question states only a number of cards: one that people run.

- Tensor parallel within a machine (``CARDS_A_MACHINE``), as many ranks as share out the model's heads.
- Across machines, or where the cards are no multiple that shares out the heads: replicas (data parallel)
  where one replica holds a request, else pipeline stages.
- Data-parallel attention with expert parallel for a model of experts, where that does better: tensor ranks
  each keep a copy of a latent, or of the KV heads that they outnumber; data-parallel ranks keep each request
  once (vLLM, "Data Parallel Deployment"; DeepSeek-V3, arXiv 2412.19437, 3.4.2). Where a load is told with its
  lengths, of the two those that hold it, and of these the one whose tokens come sooner; else where it holds
  more requests and the other does not hold all that are asked.
- Engines without tensor parallelism deal the layers out to the cards.
"""

from __future__ import annotations

from dataclasses import replace

from kvroom.engines.registry import engine_of
from kvroom.errors import KvroomError
from kvroom.hardware.node import CARDS_A_MACHINE
from kvroom.latency.load import Load, Times, held_per_s, served
from kvroom.latency.step_time import Clock
from kvroom.models.kinds import HeadedAttention, Latent
from kvroom.models.spec import ModelSpec
from kvroom.planner.host import with_host
from kvroom.planner.place import deploy, subject
from kvroom.planner.times import timing_of
from kvroom.planner.verdict import requests_held
from kvroom.records import dataclass
from kvroom.scenario.scenario import Scenario
from kvroom.sharding.layout import most_experts, uneven_heads
from kvroom.sharding.ledger import ceiling
from kvroom.units import show_seconds

ALIKE = 1.02
"""How much later tokens may come of a layout with more room that is as good as another."""


def laid_out(
    scenario: Scenario, *, paths: bool = True, by_load: bool = True
) -> tuple[Scenario, tuple[str, ...]]:
    """``scenario`` with a layout, and what is to be said of one that was chosen for it; not ``by_load``: it
    serves a part of what comes."""
    if not scenario.layout_open:
        return scenario, ()
    cards = scenario.gpu_count
    model = subject(scenario, paths=paths)[0]
    if not engine_of(scenario.engine).tensor_parallel:
        return _with(scenario, tp=1, pp=cards), ()
    tp = _tensor_ranks(model, cards)
    rest = cards // tp
    plain, words = _with(scenario, tp=tp), f"tp {tp}"
    if rest > 1:
        each = f"{tp} cards" if tp > 1 else "one card"
        plain = _with(scenario, tp=tp, dp=rest)
        words = f"{_degrees(plain)}: {rest} replicas, each on {each}"
        if not _holds(plain, paths) and rest <= model.num_layers:
            plain = _with(scenario, tp=tp, pp=rest)
            words = f"{_degrees(plain)}: stages of layers, since {each} would hold no replica"
    spread = _spread(scenario, model)
    if spread is not None:
        timed = _sooner(plain, spread, paths) if by_load else None
        if timed is not None:
            return timed
        own, other = _holds(plain, paths), _holds(spread, paths)
        if other > own and own < (scenario.replica_concurrency or other):
            words = (
                f"{_degrees(spread)}: data-parallel attention with expert parallel holds {other:,}"
                f" requests at once, {_degrees(plain)} {own:,}"
            )
            return spread, (f"layout chosen: {words} (--tp, --pp, --dp, --ep set another)",)
    if rest == 1:
        return plain, ()
    return plain, (f"layout chosen: {words} (--tp, --pp, --dp set another)",)


@dataclass(frozen=True, kw_only=True)
class _Served:
    """A layout under the load that the question tells, and how many requests it has room for."""

    scenario: Scenario
    clock: Clock
    load: Load
    times: Times

    @property
    def holds(self) -> bool:
        """Whether nobody waits for room or without end."""
        open_ = self.load.requests_per_s is not None
        return not self.times.saturated and (open_ or self.load.users <= self.load.slots)

    @property
    def better(self) -> tuple[float, ...]:
        """Who holds the load comes before who does not; then the sooner token, or what is served."""
        if self.holds:
            return (0, self.times.tpot_s)
        return (1, -self.times.requests_per_s)

    def alike(self, other: _Served) -> bool:
        """Whether ``other`` is hardly later."""
        late = ALIKE * self.times.tpot_s
        return self.holds and other.holds and other.times.tpot_s <= late

    def words(self) -> str:
        """What the load gets of it."""
        token = f"a token in {show_seconds(self.times.tpot_s)}"
        if self.holds:
            return token
        if self.load.requests_per_s is None:
            return f"{token} for the {int(self.load.slots):,} users that have room at once"
        most = held_per_s(self.clock, self.load)
        return f"no more than {most:.3g} requests a second"


def _sooner(
    plain: Scenario, spread: Scenario, paths: bool
) -> tuple[Scenario, tuple[str, ...]] | None:
    """The one of two layouts that does better under the load that is told, and why; None where none is, or
    none can be timed."""
    found = [each for x in (plain, spread) if (each := _served(x, paths)) is not None]
    if not found:
        return None
    best, *others = sorted(found, key=lambda each: each.better)
    if others and best.alike(others[0]) and best.load.slots < others[0].load.slots:
        best, others = others[0], [best]
    words = f"{_degrees(best.scenario)}: at this load {best.words()}"
    words += "".join(f"; {_degrees(each.scenario)}: {each.words()}" for each in others)
    return best.scenario, (f"layout chosen: {words} (--tp, --pp, --dp, --ep set another)",)


def _served(scenario: Scenario, paths: bool) -> _Served | None:
    """``scenario`` under its load; None where it tells none with its lengths, or where it would not start."""
    workload = scenario.workload
    if workload is None or workload.static or not _holds(scenario, paths):
        return None
    if not (
        workload.arrivals or workload.requests_per_s or workload.concurrency or scenario.concurrency
    ):
        return None
    d, _ = deploy(scenario, paths=paths)
    answer = engine_of(d.engine).answer(d)
    if answer.context_tokens is not None:
        d = replace(d, context_tokens=answer.context_tokens)
    timing = timing_of(d, scenario) if d.model.generates else None
    if timing is None:
        return None
    from kvroom.planner.load import kept_below, load_of  # where somebody comes
    from kvroom.simulator.occupancy import expected_room

    room = expected_room(d, answer, workload)[1]
    load = load_of(workload, d, answer, room, scenario.replicas)
    if load is None:
        return None
    load = kept_below(load, scenario, d)
    clock = with_host(timing, d, answer).clock
    return _Served(scenario=scenario, clock=clock, load=load, times=served(clock, load))


def _with(scenario: Scenario, *, tp: int = 1, pp: int = 1, dp: int = 1, ep: int = 1) -> Scenario:
    return replace(scenario, tp=tp, pp=pp, dp=dp, ep=ep, dcp=1)


def _degrees(scenario: Scenario) -> str:
    s = scenario
    degrees = (("tp", s.tp), ("pp", s.pp), ("dp", s.dp), ("ep", s.ep))
    return " ".join(f"{name} {n}" for name, n in degrees if n > 1)


def _tensor_ranks(model: ModelSpec, cards: int) -> int:
    """The most tensor ranks of one machine that divide the cards and share out the heads."""
    heads = model.q_heads or cards
    return next(
        number
        for number in range(min(cards, CARDS_A_MACHINE), 0, -1)
        if cards % number == 0 and heads % number == 0 and uneven_heads(model, number) is None
    )


def _spread(scenario: Scenario, model: ModelSpec) -> Scenario | None:
    """Every card a data-parallel rank of attention, experts shared out among all; None where the model or
    the engine has none of it, or tensor ranks would keep nothing twice."""
    cards, experts = scenario.gpu_count, most_experts(model)
    copies = any(
        isinstance(kind, Latent)
        or (isinstance(kind, HeadedAttention) and kind.kv_heads < min(cards, CARDS_A_MACHINE))
        for kind, _ in model.stores
    )
    fits = experts >= cards and experts % cards == 0
    if not (copies and fits and engine_of(scenario.engine).data_parallel_attention):
        return None
    return _with(scenario, dp=cards, ep=cards)


def _holds(scenario: Scenario, paths: bool) -> int:
    """Requests at once, 0 where it would not start."""
    try:
        d, _ = deploy(scenario, paths=paths)
        answer = engine_of(d.engine).answer(d)
    except KvroomError:
        return 0
    if not answer.starts or answer.rank.weight_bytes > answer.gpu_bytes:
        return 0
    limit = ceiling(d, answer.ceiling_bytes) if d.model.generates else None
    held = requests_held(d, answer, limit)
    return 1 if held is None else held
