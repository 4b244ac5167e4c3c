"""The layout that kvroom chooses where a question states only a number of cards: one that people run.

- Tensor parallel within a machine (``CARDS_A_MACHINE``), as many ranks as share out the model's heads.
- Across machines, or where the cards are no multiple that shares out the heads: replicas (data parallel)
  where one replica holds a request, else pipeline stages.
- Data-parallel attention with expert parallel for a model of experts, where that holds more requests and the
  other layout does not hold all that are asked (tensor ranks answer each of few users sooner):
  tensor ranks each keep a copy of a latent, or of the KV heads that they outnumber; data-parallel ranks
  keep each request once (vLLM, "Data Parallel Deployment"; DeepSeek-V3, arXiv 2412.19437, 3.4.2).
- Engines without tensor parallelism deal the layers out to the cards.
"""

from __future__ import annotations

from dataclasses import replace

from kvroom.engines.registry import engine_of
from kvroom.errors import KvroomError
from kvroom.hardware.node import CARDS_A_MACHINE
from kvroom.models.kinds import HeadedAttention, Latent
from kvroom.models.spec import ModelSpec
from kvroom.planner.place import deploy, subject
from kvroom.planner.verdict import requests_held
from kvroom.scenario.scenario import Scenario
from kvroom.sharding.layout import most_experts, uneven_heads
from kvroom.sharding.ledger import ceiling


def laid_out(scenario: Scenario, *, paths: bool = True) -> tuple[Scenario, tuple[str, ...]]:
    """``scenario`` with a layout, and what is to be said of one that was chosen for it."""
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
