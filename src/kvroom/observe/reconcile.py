"""A log against the prediction: account by account what was predicted, printed, and why they differ.

The prediction is made from the flags alone. A second one is given the bytes that the log prints, so
that what is left between it and the printed tokens is the engine's own rules and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from kvroom.answer.plan import Account, Plan
from kvroom.answer.shown import Shown
from kvroom.engines.drafting import from_flags
from kvroom.engines.log_reader import Remedy
from kvroom.engines.registry import all_engines, engine_of, log_reader
from kvroom.engines.shortage import Shortage
from kvroom.errors import KvroomError
from kvroom.hardware import catalogue as cards
from kvroom.hardware.reader import resolve
from kvroom.launchers.launch import launch, shell
from kvroom.models.load import load, read_name
from kvroom.models.spec import ModelSpec
from kvroom.observe import way_out
from kvroom.observe.logs.startup_log import StartupLog
from kvroom.observe.reasons import Facts, reason_for
from kvroom.observe.way import Way, way
from kvroom.planner.plan import Workings, work
from kvroom.records import dataclass
from kvroom.scenario.scenario import Scenario
from kvroom.units import MAX_BYTES, check_float, show_gib

PRINTED_AS = {
    "visible": "total_gpu_bytes",
    "free_before_load": "free_before_load_bytes",
    "weights": "weights_bytes",
    "activations": "activation_peak_bytes",
    "runtime": "non_torch_bytes",
    "graphs": "cuda_graph_bytes",
    "kv": "kv_available_bytes",
}
"""Accounts (and keys of known_bytes) → the names of the figures that print them."""


Planned = Callable[[Workings, bool], Workings]
"""From a plan to the same by an engine's own word; files are opened where the bool is true."""


@dataclass(frozen=True, kw_only=True)
class AccountLine:
    """One account: predicted and printed bytes, their difference, its likely reason, the flag that
    would change it."""

    name: str
    predicted_bytes: int | None
    printed_bytes: int | None
    difference_bytes: int | None
    reason: str
    flag: str


PRINTED_SHARE = 0.0005
"""A smaller difference is told by its figures alone."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Reconciliation(Shown):
    """A log held against the prediction.

    ``printed`` and ``predicted`` have the same names; ``predicted`` comes from the flags alone,
    ``given_bytes`` from the printed cache bytes. ``missing`` names what the log does not say and the
    prediction needs; ``spread`` the figures that differ from rank to rank.
    """

    TITLE = "What the engine printed, and what was predicted"

    engine: str | None
    engine_version: str | None
    scenario: dict[str, Any] | None
    printed: dict[str, Any]
    predicted: dict[str, Any]
    given_bytes: dict[str, Any]
    accounts: tuple[AccountLine, ...]
    missing: tuple[str, ...]
    spread: dict[str, tuple[Any, Any]]
    refusals: tuple[str, ...]
    notes: tuple[str, ...]
    remedies: tuple[Remedy, ...] = ()
    """What would let the engine start, for refusals that are known."""
    shortage: Shortage | None = None
    """The allocation for which the GPU had no room, where the engine ran out of memory."""
    way: Way | None = None
    """From the requests that were expected to the printed ones, where ``expect`` was given."""
    command: str = ""
    """The command to run, with the remedy or the fix in it."""

    @property
    def sentence(self) -> str:
        """What the engine printed beside what was predicted, in a sentence."""
        if self.shortage is not None:
            return f"It {way_out.sentence(self.shortage)}."
        if self.refusals:
            return f"It refused to start: {self.refusals[0].rstrip('.')}."
        if self.missing:
            return f"No prediction yet: say the {' and the '.join(self.missing)}."
        for name, words in (("kv_tokens", "tokens of cache"), ("num_blocks", "blocks")):
            printed, predicted = self.printed.get(name), self.predicted.get(name)
            if printed and predicted:
                off = predicted / printed - 1
                share = f" ({off:+.1%})" if abs(off) >= PRINTED_SHARE else ""
                beside = f"{predicted:,} predicted{share}" if off else "as predicted"
                return f"{self.engine} printed {printed:,} {words}, {beside}."
        return f"{self.engine} printed no size of its cache."

    def summary(self) -> str:
        """What the engine printed beside what was predicted."""
        return self.sentence if self.way is None else f"{self.sentence} {self.way.line}."

    def rows(self) -> list[dict[str, Any]]:
        """A flat row an account: predicted, printed, the difference, why, and which flag changes it."""
        return [asdict(account) for account in self.accounts]

    def questions(self) -> Sequence[Scenario]:
        """The question that the log answers, where all of it is known."""
        return [Scenario.from_dict(self.scenario)] if self.scenario else []

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


def reconcile(
    log: StartupLog,
    given: Mapping[str, Any] | None = None,
    *,
    paths: bool = True,
    expect: float | None = None,
    planned: Planned | None = None,
) -> Reconciliation:
    """``log`` against the prediction; ``given`` are Scenario keys that win over the log's. Without
    ``paths`` no file is opened that the log names (a server's rule). ``expect`` are the requests of the
    longest length that somebody reckoned with: the way from them to the printed ones is told. ``planned``
    makes of a plan the one by the engine's own word.

    Raises KvroomError where what was given cannot be (an unknown card, a flag's value); what the log
    lacks is told in ``missing``.
    """
    given = dict(given or {})
    if expect is not None:
        check_float("expect", expect, low=0.01, high=1e9, unit="requests")
    if "gpu" in given:
        by_name = isinstance(given["gpu"], str) and not paths
        (cards.find if by_name else resolve)(given["gpu"])  # refused whatever the log lacks
    if log.engine is None:
        return _nothing(log)
    asked, notes, missing = complete(log, given, paths=paths)
    asks = missing[:]
    workings = None
    if not missing:
        workings, more = _predict(asked, given, paths=paths, planned=planned)
        notes += more
        if workings is None:
            missing = ["model", "gpu"]
    predicted = figures_of(workings) if workings else {}
    if workings:
        log = log.on_device(workings.answer.rank.stage)
    with_bytes, more = _given_bytes(
        log, asked, workings, "gpu" in asks, paths=paths, planned=planned
    )
    cures = _remedies(log, workings)
    told = way(expect, log, workings) if expect is not None and workings else None
    if workings:
        notes += other_card(log, workings)
    predicted |= _a_token(predicted)
    return Reconciliation(
        engine=log.engine,
        engine_version=log.version,
        scenario=_scenario(asked, log) if workings else None,
        printed={**log.printed, **_a_token(log.printed)},
        predicted=predicted,
        given_bytes=with_bytes,
        accounts=accounts_of(log, workings) if workings else _printed_only(log),
        missing=tuple(missing),
        spread=log.spread,
        refusals=log.refusals,
        notes=(
            *log.notes,
            *notes,
            *more,
            *_padded(log),
            *(workings.plan.warnings if workings else ()),
        ),
        remedies=cures,
        shortage=log.shortage,
        way=told,
        command=_command(workings, cures, told, expect),
    )


def _remedies(log: StartupLog, workings: Workings | None) -> tuple[Remedy, ...]:
    """What would do, for refusals of which that is known, and for an allocation without room."""
    if log.engine is None:
        return ()
    reader = log_reader(log.engine)
    remedies = [reader.remedy(text, log.printed) for text in log.refusals]
    for index, cure in enumerate(remedies):
        if cure is not None and not cure.args:
            remedies[index] = way_out.more_cache(cure.refusal, log.printed, workings) or cure
        elif cure is not None and workings is not None:
            remedies[index] = way_out.tried(cure, workings)
    if log.shortage is not None:
        remedies.insert(0, way_out.way_out(log.shortage, log.engine, workings))
    return tuple(remedy for remedy in remedies if remedy is not None)


def _a_token(figures: Mapping[str, Any]) -> dict[str, int]:
    """Bytes of cache a token, of figures that name both; nothing where they do not."""
    size = figures.get("kv_available_bytes") or figures.get("kv_bytes")
    tokens = figures.get("kv_tokens")
    return {"bytes_per_token": round(size / tokens)} if size and tokens and size > 0 else {}


def other_card(log: StartupLog, workings: Workings) -> list[str]:
    """Another card of the same name that fits the printed memory, where the one taken does not."""
    total, device = log.printed.get("total_gpu_bytes"), workings.deployment.device
    held_bytes = sum(log.printed.get(n, 0) for n in ("weights_bytes", "kv_available_bytes"))
    needed = total or held_bytes
    if (
        not needed
        or abs(workings.answer.gpu_bytes / needed - 1) < SAME_CARD
        or (total is None and held_bytes <= workings.answer.gpu_bytes)
    ):
        return []
    family = device.name.split("-")[0].lower()
    fits = [
        all_device.name
        for all_device in cards.all_devices()
        if all_device.name.split("-")[0].lower() == family
        and all_device.name != device.name
        and (
            abs(all_device.engine_bytes / needed - 1) < SAME_CARD
            if total
            else all_device.engine_bytes > held_bytes
        )
    ]
    if not fits:
        return []
    return [
        f"the log holds {show_gib(needed)} and {device.name} has {show_gib(workings.answer.gpu_bytes)}: is "
        f"the card {' or '.join(fits[:3])}? (--gpu)"
    ]


def _command(
    workings: Workings | None, cures: tuple[Remedy, ...], way: Way | None, expect: float | None
) -> str:
    """The engine's command with what would do in it; "" where there is nothing to do or no command."""
    moves = any(cure.args or cure.keys for cure in cures)
    if workings is None or not (moves or way):
        return ""
    args: dict[str, Any] = {}
    keys: dict[str, Any] = {}
    for cure in cures:
        args |= cure.args
        keys |= cure.keys
    if way is not None and not args:
        args = way.args(workings, expect)
    scenario = workings.plan.scenario
    length = args.pop("max_model_len", scenario.context_tokens)
    try:
        for _ in range(2):
            question = way_out.asked_with(scenario, args, {"context_tokens": length, **keys})
            made = work(Scenario.from_dict(question))
            if not (refused := made.answer.refusals):
                break
            for refusal in refused:
                args |= refusal.args
        return shell(launch(made))
    except KvroomError:
        return ""


def _padded(log: StartupLog) -> list[str]:
    """What the engine said of padding its groups of layers."""
    said = (p.split() for p in log.padding)
    return [
        f"{n} layers of padding, at most {share} % of the cache, as printed" for n, share in said
    ]


def unknown_log(name: str | None, log: StartupLog) -> KvroomError:
    """What is wrong with a log of which no line is a known engine's; a program that had no room is told."""
    why = "is no engine's start-up log"
    if log.shortage is not None:
        why = f"{way_out.sentence(log.shortage)}; no line of it is of an engine that kvroom knows"
    *first, last = (engine.label for engine in all_engines() if engine.log is not None)
    fix = f"Give a log of {', '.join(first)} or {last}, from its first line on."
    return KvroomError("log", name, why, fix)


def _nothing(log: StartupLog) -> Reconciliation:
    why = "no line of a known engine's start-up was found"
    return Reconciliation(
        engine=None, engine_version=None, scenario=None, printed={}, predicted={}, given_bytes={},
        accounts=(), missing=("engine", "model", "gpu"), spread={}, refusals=(),
        notes=(*log.notes, why),
    )  # fmt: skip


def complete(
    log: StartupLog, overrides: dict[str, Any], *, paths: bool = True
) -> tuple[dict[str, Any], list[str], list[str]]:
    """(the Scenario's keys from the log and from what was given, notes, names of what is missing)."""
    question = dict(log.question)
    overrides = _attention_groups(question, overrides)
    notes: list[str] = []
    missing: list[str] = []
    args = {**question.pop("engine_args", {}), **overrides.get("engine_args", {})}
    question |= {key: value for key, value in overrides.items() if key != "engine_args"}
    for name in ("max_model_len", "context_length"):
        if "context_tokens" in question:
            args.pop(name, None)
    question["engine_args"] = args
    if "gpu" not in overrides:
        card = _card(question.pop("gpu", None), log, notes)
        if card is None:
            missing.append("gpu")
        else:
            question["gpu"] = card
    spec = None
    tagged: dict[str, Any] = {}
    if "model" not in question:
        missing.insert(0, "model")
    else:
        tagged = _of_library(question, notes)
        spec = _known(question, overrides, notes, paths=paths)
        if spec is None:
            missing.insert(0, "model")
    if spec is not None and "speculation" not in question:
        drafting, question["engine_args"] = from_flags(
            engine_of(question["engine"]).draft_flags, args, question["model"], load
        )
        if drafting is not None:
            question["speculation"] = drafting.to_dict()
    if spec is not None and "weight_dtype" not in question and _width_open(spec, question["model"]):
        word = log.quantisation
        stored = log_reader(question["engine"]).weight_dtype(word) if word else None
        if stored:
            question["weight_dtype"] = stored
            notes.append(f"quantization={word} is taken as {stored} weights (--weight-dtype)")
    if "weight_dtype" in tagged:
        question.setdefault("weight_dtype", tagged["weight_dtype"])
    return question, notes, missing


def _of_library(question: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    """What the engine's own name for a model says beside the model, which is put in its place: the file
    behind a tag of a library."""
    command = engine_of(question["engine"]).command
    if command is None or not isinstance(question["model"], str):
        return {}
    keys, library_keys = command.model_keys(question["model"], question)
    notes += library_keys
    question["model"] = keys.pop("model", question["model"])
    return keys


def _width_open(spec: ModelSpec, model: object) -> bool:
    """Whether the model's own files leave open how its weights are stored: the log then says."""
    reading = read_name(model) if isinstance(model, str) else None
    rule = spec.quantisation
    return rule is None or (reading is not None and rule.name == reading.weight_dtype)


def _attention_groups(question: Mapping[str, Any], overrides: dict[str, Any]) -> dict[str, Any]:
    """``overrides`` with its dp as the groups of data-parallel attention, where that is what the log runs:
    SGLang counts them among its tensor ranks."""
    args = {**question.get("engine_args", {}), **overrides.get("engine_args", {})}
    if not args.get("enable_dp_attention") or "dp" not in overrides:
        return overrides
    rest = {key: value for key, value in overrides.items() if key != "dp"}
    return rest | {"engine_args": {**overrides.get("engine_args", {}), "dp_size": overrides["dp"]}}


SAME_CARD = 0.03
"""Memory as near as that is of one card."""


def _card(name: Any, log: StartupLog, notes: list[str]) -> Any:
    """The card that the log names, or the CPU with the memory that it prints."""
    if log.cpu:
        size = log.printed.get("total_gpu_bytes")
        return {"name": "CPU", "memory_bytes": size, "memory_bytes_per_s": 1e11} if size else None
    if not name:
        return None
    if isinstance(name, Mapping) or str(name).endswith((".json", ".toml")):
        return name  # a recording's plan names its card as the question did
    try:
        return cards.find(str(name).replace("_", " ")).name
    except KvroomError:
        notes.append(f"the log names the card '{str(name)[:60]}', which is not in the catalogue")
        return None


def _known(
    question: dict[str, Any], overrides: Mapping[str, Any], notes: list[str], *, paths: bool
) -> ModelSpec | None:
    """The model, where it can be read; one that the user named must be.

    A path or a name of the log's machine is read for the model's own name, which is then said.
    """
    model = question["model"]
    try:
        spec = load(model, paths=paths)
    except KvroomError as error:
        if "model" in overrides:
            raise
        notes.append(f"the log's model '{str(model)[:80]}' cannot be read here: {error.message}")
        return None
    reading = read_name(model) if isinstance(model, str) and "model" not in overrides else None
    by_path = isinstance(model, str) and model.startswith(("/", "~", "\\"))
    if reading is not None and spec.source != "config" and (reading.words or by_path):
        words = reading.words or f"read as {reading.name}"
        notes.append(f"the log's model '{model[:80]}' is {words}, by its name (--model)")
    return spec


def _predict(
    question: dict[str, Any],
    overrides: Mapping[str, Any],
    *,
    paths: bool,
    planned: Planned | None = None,
) -> tuple[Workings | None, list[str]]:
    """The plan from the flags alone. What the log says and cannot be is left out and named; a layout
    that the model cannot have says that it is not this model, and nothing is predicted."""
    notes: list[str] = []
    for _ in range(20):
        try:
            workings = work(Scenario.from_dict(question), paths=paths)
            return (planned(workings, paths) if planned else workings), notes
        except KvroomError as error:
            key, _, name = error.field.partition(".")
            logged, ours = (question, overrides) if key != "engine_args" else (
                question["engine_args"], overrides.get("engine_args", {})
            )  # fmt: skip
            name = name if key == "engine_args" else key
            if name not in logged or name in ours:
                raise
            note = f"{name} {str(logged[name])[:40]} in the log {error.message}"
            if key in ("gpu", "gpu_count", "tp", "pp", "dp", "ep", "dcp", "model"):
                return None, [*notes, f"{note}: is it this model and card?"]
            del logged[name]
            notes.append(f"{note}: left out")
    return None, notes


def figures_of(workings: Workings) -> dict[str, Any]:
    """A plan's figures under the names that logs' figures have."""
    figures: dict[str, Any] = {"total_gpu_bytes": workings.plan.memory.gpu_bytes}
    for account in workings.plan.memory.accounts:
        if account.name in PRINTED_AS:
            figures[PRINTED_AS[account.name]] = account.bytes
    engine = workings.plan.capacity.engine
    if engine is not None:
        for name in ("kv_tokens", "num_blocks", "max_concurrency", "window_tokens", "state_slots"):
            value = getattr(engine, name)
            if value is not None:
                figures[name] = value
        figures["block_size"] = engine.block_tokens
    if _in_buffers(workings.plan.scenario.engine):
        figures["kv_bytes"] = figures.pop("kv_available_bytes", None)
    figures["max_model_len"] = workings.deployment.context_tokens
    return {key: value for key, value in figures.items() if value is not None}


def known_bytes(log: StartupLog) -> dict[str, int]:
    """What the log prints of one GPU, as a Scenario's known_bytes."""
    printed = {
        printed_a: log.printed.get(PRINTED_AS[printed_a])
        for printed_a in PRINTED_AS
        if printed_a != "kv"
    }
    estimate = log.printed.get("cuda_graph_estimate_bytes")
    if estimate is not None and estimate > 0:
        printed["graphs"] = estimate  # what was taken off the cache, not what the graphs came to
    if log.engine is not None:
        printed |= log_reader(log.engine).known_bytes(log.printed)
    return {
        key: value
        for key, value in printed.items()
        if value is not None and 0 <= value <= MAX_BYTES
    }


def _in_buffers(engine: str | None) -> bool:
    """Whether an engine prints its cache as buffers."""
    reader = engine_of(engine).log if engine else None
    return reader is not None and reader.buffers


def _scenario(question: dict[str, Any], log: StartupLog) -> dict[str, Any]:
    """The question with what the log measured put in."""
    known = {**known_bytes(log), **(question.get("known_bytes") or {})}
    return Scenario.from_dict(
        {**question, **({"known_bytes": known} if known else {})}
    ).differences()


def _given_bytes(
    log: StartupLog,
    asked: dict[str, Any],
    workings: Workings | None,
    no_card: bool,
    *,
    paths: bool,
    planned: Planned | None = None,
) -> tuple[dict[str, Any], list[str]]:
    """The figures that follow from the printed cache bytes."""
    reader = log_reader(log.engine) if log.engine else None
    size = reader.cache_bytes(log.printed) if reader else None
    if reader is None or size is None or size <= 0 or "model" not in asked:
        return {}, []
    if workings is None and not no_card:
        return {}, []
    question = dict(asked)
    notes: list[str] = []
    if "gpu" not in question:
        total = log.printed.get("total_gpu_bytes")
        question["gpu"] = {
            "name": "the log's card", "memory_bytes": total or 80 * 2**30, "memory_bytes_per_s": 1e12,
        }  # fmt: skip
        notes.append("without --gpu a Hopper card's rules stand in where the card matters")
    if reader.cache_flag:
        args = {**question["engine_args"], reader.cache_flag: size}
        question["engine_args"] = args
    else:
        known = known_bytes(log)
        if known:
            question["known_bytes"] = known
    try:
        made, _ = _predict(question, {}, paths=paths, planned=planned)
    except KvroomError:
        return {}, notes
    if made is None or made.plan.capacity.engine is None:
        return {}, notes
    names = ("kv_tokens", "num_blocks", "max_concurrency", "block_size")
    figures = {key: value for key, value in figures_of(made).items() if key in names}
    if reader.scales:
        figures |= _scaled(made.plan, size)
    return figures, notes


def _scaled(plan: Plan, size: int) -> dict[str, int]:
    """The sizes in tokens and blocks of ``size`` bytes, for engines that take no flag for them.

    Pools are as long as they are large; state, which has a pool of its own, is not in ``size``.
    """
    engine = plan.capacity.engine
    if engine is None or not engine.kv_tokens or not plan.memory.kv_bytes:
        return {}
    tokens = round(engine.kv_tokens * size / plan.memory.kv_bytes)
    if engine.window_tokens is None and plan.kv.bytes_per_token_per_gpu:
        tokens = size // plan.kv.bytes_per_token_per_gpu
    counts = {"kv_tokens": tokens}
    if engine.num_blocks is not None and engine.block_tokens:
        counts["num_blocks"] = tokens // engine.block_tokens
    return counts


def accounts_of(log: StartupLog, workings: Workings) -> tuple[AccountLine, ...]:
    """Every account that was predicted or printed."""
    facts = Facts(log, workings)
    lines = []
    accounts: dict[str, Account | None] = {"visible": None}
    accounts |= {
        account.name: account
        for account in workings.plan.memory.accounts
        if account.name in PRINTED_AS
    }
    for name, account in accounts.items():
        printed = _printed(log, name)
        size = workings.plan.memory.gpu_bytes if account is None else account.bytes
        if printed is None and account is not None and not account.bytes:
            continue
        reason, flag = reason_for(name, size, printed, account, facts)
        lines.append(
            AccountLine(
                name=name,
                predicted_bytes=size,
                printed_bytes=printed,
                difference_bytes=None if printed is None else printed - size,
                reason=reason,
                flag=flag,
            )
        )
    return tuple(lines)


def _printed(log: StartupLog, name: str) -> int | None:
    found = log.printed
    if name == "graphs" and "cuda_graph_estimate_bytes" in found:
        return int(found["cuda_graph_estimate_bytes"])
    if name == "kv" and _in_buffers(log.engine):
        return found.get("kv_bytes")
    return found.get(PRINTED_AS[name])


def _printed_only(log: StartupLog) -> tuple[AccountLine, ...]:
    return tuple(
        AccountLine(
            name=name, predicted_bytes=None, printed_bytes=printed, difference_bytes=None,
            reason="not predicted", flag="",
        )
        for name in PRINTED_AS
        if (printed := _printed(log, name)) is not None and name != "free_before_load"
    )  # fmt: skip
