"""What would give a start the memory that it lacked: each set of flags or keys is planned before it is named.

The stage at which an allocation failed says which accounts were there by then; what helps makes them smaller
by at least what was short, and the engine starts with it by its own rules.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil, floor
from typing import Any

from kvroom.engines.log_reader import Remedy
from kvroom.engines.registry import engine_of, log_reader
from kvroom.engines.shortage import WHEN, Shortage
from kvroom.errors import KvroomError
from kvroom.planner.plan import Workings, work
from kvroom.records import dataclass
from kvroom.scenario.scenario import Scenario
from kvroom.units import say_tokens, show_gib, show_memory

THERE = {
    "load": ("weights",),
    "profile": ("weights", "activations", "runtime"),
    "sampler": ("weights", "activations", "runtime"),
}
"""Accounts that are there by a stage; by the later ones all are."""
MOVED = ("weights", "graphs", "kv")
"""Accounts that flags make smaller once all are there; what is left beside them is no account of its own."""
RUNS = ("fits", "full")
LATE = ("cache", "graphs", "serve", "")
"""Stages at which the engine's share of memory was full."""
MORE_RANKS = (2, 4, 8, 16)
NARROWER = ("fp8", "int4")
SPARE_SHARE = 0.01
"""A share is lowered by so much more than what was short: what comes after it wants room too."""
MOST_SHARE = 0.97
"""Beyond this the engine's own context and graphs have no room."""
SPARE_BITS = 10
"""Weights of more bits a parameter may be had narrower."""
LEAST_TOKENS = 1024


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Flags and Scenario keys worth trying, and what to call them."""

    words: str
    args: Mapping[str, Any]
    keys: Mapping[str, Any]


def sentence(shortage: Shortage) -> str:
    """What was asked for, when, and what was free."""
    text = f"ran out of memory {WHEN[shortage.stage]}"
    if shortage.tried_bytes is None:
        return text
    text += f": {show_memory(shortage.tried_bytes)} asked"
    if shortage.free_bytes is None:
        return text
    of = f" of {show_memory(shortage.total_bytes)}" if shortage.total_bytes else ""
    return f"{text}, {show_memory(shortage.free_bytes)} free{of}, {show_memory(shortage.short_bytes)} short"


def way_out(shortage: Shortage, engine: str, workings: Workings | None) -> Remedy:
    """What would do, with the flags or keys of the least of it."""
    parts: list[str] = []
    trials: list[Trial] = []
    if shortage.others_bytes:
        parts = [f"end what else holds {show_gib(shortage.others_bytes)} of the card"]
    if workings is not None:
        needs, too_much = _needs(shortage, workings)
        parts += needs
        if (
            too_much
            or shortage.stage in LATE
            or not (shortage.others_bytes or shortage.stage == "load")
        ):
            trials = _found(shortage, workings)
    if not trials and not parts:
        parts.append(_blindly(shortage.stage, engine, known=workings is not None))
    return _remedy(shortage.text, parts, trials)


def _remedy(refusal: str, parts: Sequence[str], trials: Sequence[Trial]) -> Remedy:
    """What is to be said, and the first of the trials that were found."""
    ways = " or ".join(trial.words for trial in trials)
    return Remedy(
        refusal=refusal,
        text="; ".join([*parts, ways] if ways else parts),
        args=trials[0].args if trials else {},
        keys=trials[0].keys if trials else {},
    )


def _needs(shortage: Shortage, workings: Workings) -> tuple[list[str], bool]:
    """How what is needed by then compares with the card, in words, and whether it is more."""
    there, gpu = _there(workings, shortage.stage), workings.answer.gpu_bytes
    *most, last = THERE.get(shortage.stage, ("all accounts",))
    what = f"{', '.join(most)} and {last}" if most else last
    words = f"{what} come to {show_gib(there)} on one GPU of {show_gib(gpu)}"
    if there > gpu:
        return [f"{words}, {show_gib(there - gpu)} too much"], True
    if shortage.stage != "load" or not there or shortage.others_bytes:
        return [], False
    more = "the checkpoint is wider than assumed (--weight-dtype), or the card is shared"
    return [f"by the plan {words}: {more}"], False


def _there(workings: Workings, stage: str) -> int:
    """Bytes of the accounts that are there by ``stage``, by the plan."""
    names = THERE.get(stage) or [
        account.name for account in workings.answer.accounts if account.name != "unused"
    ]
    return _bytes_of(workings, names)


def _bytes_of(workings: Workings, names: Container[str]) -> int:
    return sum(account.bytes for account in workings.answer.accounts if account.name in names)


def _found(shortage: Shortage, workings: Workings) -> list[Trial]:
    """Of each way the first trial with which it starts and needs as much less as was short."""
    names = THERE.get(shortage.stage, MOVED)
    enough = _bytes_of(workings, names) - shortage.short_bytes - shortage.others_bytes

    def helps(planned: Workings) -> bool:
        return _bytes_of(planned, names) <= enough

    return first_of_each(_ways(shortage, workings), workings.plan.scenario, helps)


def first_of_each(
    ways: Iterable[Iterable[Trial]], scenario: Scenario, helps: Callable[[Workings], bool]
) -> list[Trial]:
    """Of each way the first trial that starts, has room while it runs, and ``helps``."""
    trials = []
    for way in ways:
        for trial in way:
            planned = _planned(scenario, trial)
            if planned is None or planned.plan.verdict.status not in RUNS:
                continue
            if helps(planned):
                trials.append(trial)
                break
    return trials


def _planned(scenario: Scenario, trial: Trial) -> Workings | None:
    try:
        return work(Scenario.from_dict(asked_with(scenario, trial.args, trial.keys)))
    except KvroomError:
        return None


def tried(cure: Remedy, workings: Workings) -> Remedy:
    """A remedy that sets the share of memory as it is, or without it where the plan of that share would not
    start either: and why. Other figures are the engine's own."""
    scenario = workings.plan.scenario
    share = engine_of(scenario.engine).memory_share(workings.deployment)
    if share is None or share[0] not in cure.args:
        return cure
    planned = _planned(scenario, Trial(words="", args=cure.args, keys=cure.keys))
    if planned is None or planned.plan.verdict.status in RUNS:
        return cure
    why = planned.answer.reason or planned.plan.verdict.sentence
    text = f"{cure.text}; by the plan it would not start so: {why}"
    return replace(cure, text=text, args={}, keys={})


def asked_with(
    scenario: Scenario, args: Mapping[str, Any], keys: Mapping[str, Any]
) -> dict[str, Any]:
    """The question with flags (None: without that flag) and keys in it."""
    flags = {
        key: value for key, value in {**scenario.engine_args, **args}.items() if value is not None
    }
    return {**scenario.differences(), **keys, "engine_args": flags}


def _ways(shortage: Shortage, workings: Workings) -> Iterator[Iterator[Trial]]:
    """Ways out, the one that costs least first."""
    engine = engine_of(workings.plan.scenario.engine)
    if shortage.stage in LATE:
        yield _less_share(shortage, workings)
    for flag, values in log_reader(engine.name).ways_out.get(shortage.stage, ()):
        yield _flags(workings, flag, values)
    if engine.log is not None and engine.log.buffers and shortage.stage in ("cache", "buffers", ""):
        yield _shorter(workings, engine.log.length_flags)
    if shortage.stage not in LATE:
        yield from _larger(workings)


def _larger(workings: Workings) -> Iterator[Iterator[Trial]]:
    """More ranks, and narrower weights."""
    deployment = workings.deployment
    if engine_of(workings.plan.scenario.engine).tensor_parallel:
        layout = deployment.layout
        yield (
            Trial(
                words=f"tp {layout.tp * times} ({layout.gpus * times} cards)",
                args={},
                keys={"tp": layout.tp * times, "gpu_count": layout.gpus * times},
            )
            for times in MORE_RANKS
        )
    if deployment.weights.whole_bytes * 8 > deployment.model.params * SPARE_BITS:
        yield (
            Trial(words=f"{width} weights", args={}, keys={"weight_dtype": width})
            for width in NARROWER
        )


def more_cache(
    refusal: str, printed: Mapping[str, Any], workings: Workings | None
) -> Remedy | None:
    """What would leave a cache of one longest request, where the share had no room for it; None where
    nothing that is known does."""
    if workings is None:
        return None
    scenario, deployment, answer = workings.plan.scenario, workings.deployment, workings.answer
    need = printed.get("needed_bytes") or deployment.request_bytes(answer.rank)
    have = printed.get("kv_available_bytes")
    if have is None:
        have = answer.kv_bytes + min(0, sum(a.bytes for a in answer.accounts if a.name == "unused"))
    short = need - have
    if short <= 0:
        return None

    def helps(planned: Workings) -> bool:
        return planned.answer.kv_bytes - answer.kv_bytes >= min(short, need)

    trials = first_of_each(_more_cache(short, workings), scenario, helps)
    request = f"one request of {say_tokens(deployment.context_tokens)} takes {show_gib(need)}"
    return (
        _remedy(refusal, [f"{request}, {show_gib(short)} short on one GPU"], trials)
        if trials
        else None
    )


def _more_cache(short: int, workings: Workings) -> Iterator[Iterator[Trial]]:
    """A larger share, fewer sequences, a shorter context, more ranks, narrower weights."""
    scenario = workings.plan.scenario
    engine = engine_of(scenario.engine)
    share = engine.memory_share(workings.deployment)
    if share is not None:
        flag, usual = share
        now = scenario.engine_args.get(flag, usual)
        if isinstance(now, int | float):
            larger = ceil(100 * (now + short / workings.answer.gpu_bytes)) / 100
            if larger <= MOST_SHARE:
                words = f"{_typed(engine.name, flag)} {larger:.2f}"
                yield iter([Trial(words=words, args={flag: larger}, keys={})])
    for flag, values in log_reader(engine.name).ways_out.get("sampler", ()):
        yield _flags(workings, flag, values)
    yield from _larger(workings)
    yield _shorter(workings, ())


def _less_share(shortage: Shortage, workings: Workings) -> Iterator[Trial]:
    """A share (or cache bytes) lower by what was short, and by what the graphs are estimated to take."""
    engine, args = engine_of(workings.plan.scenario.engine), workings.plan.scenario.engine_args
    total = shortage.total_bytes or workings.answer.gpu_bytes
    lacking = shortage.short_bytes + shortage.others_bytes + round(total * SPARE_SHARE)
    if shortage.stage == "graphs" and not engine.subtracts_graphs(workings.deployment):
        graphs = (account.bytes for account in workings.answer.accounts if account.name == "graphs")
        lacking = max(lacking, sum(graphs))
    given = engine.log.cache_flag if engine.log is not None else ""
    bytes_now = args.get(given) if given else None
    if isinstance(bytes_now, int):
        size = bytes_now - lacking
        if size > 0:
            yield Trial(words=f"{_typed(engine.name, given)} {size}", args={given: size}, keys={})
        return
    share = engine.memory_share(workings.deployment)
    if share is None:
        return
    flag, usual = share
    now = args.get(flag, usual)
    if not isinstance(now, int | float):
        return
    lower = floor(100 * (now - lacking / total)) / 100
    if lower > 0:
        yield Trial(words=f"{_typed(engine.name, flag)} {lower:.2f}", args={flag: lower}, keys={})


def _flags(workings: Workings, flag: str, values: Any) -> Iterator[Trial]:
    """A flag at values below what it is now."""
    now = workings.plan.scenario.engine_args.get(flag)
    name = _typed(workings.plan.scenario.engine, flag)
    for value in values:
        if value is True:
            yield Trial(words=name, args={flag: True}, keys={})
        elif not isinstance(now, int) or value < now:
            yield Trial(words=f"{name} {value}", args={flag: value}, keys={})


def _shorter(workings: Workings, flags: Sequence[str]) -> Iterator[Trial]:
    """Shorter requests, for engines whose cache is as long as their context; ``flags`` say it too."""
    now = workings.deployment.context_tokens
    kept = {flag: None for flag in flags if flag in workings.plan.scenario.engine_args}
    for part in (2, 4, 8, 16):
        tokens = now // part // LEAST_TOKENS * LEAST_TOKENS
        if tokens:
            yield Trial(
                words=f"a context of {tokens:,}", args=kept, keys={"context_tokens": tokens}
            )


def _typed(engine: str, flag: str) -> str:
    """The flag as it is typed."""
    command = engine_of(engine).command
    return command.typed(flag) if command is not None else flag


def _blindly(stage: str, engine: str, *, known: bool) -> str:
    """What helps at a stage, where nothing that was planned does."""
    named_engine = engine_of(engine)
    share = named_engine.limits.share
    lower = f"a lower {_typed(engine, share)}" if share else "a shorter context"
    loaded = "narrower weights, more tensor ranks, or a larger card"
    if named_engine.log is not None and named_engine.log.buffers:
        loaded = "a file of narrower weights, fewer layers on the GPU, or a shorter context"
    by_stage = {
        "load": loaded,
        "profile": "a smaller batch, narrower weights, or more tensor ranks",
        "sampler": "fewer sequences at once",
        "buffers": "a smaller batch or a shorter context",
    }
    return by_stage.get(stage, lower) + ("" if known else " (--model and --gpu say how much)")
