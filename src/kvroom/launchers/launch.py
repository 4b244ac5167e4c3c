"""The command that starts an engine as a plan says: its own flag names, quoted for a shell.

What a command cannot say (the cards, the engine's version, how many users) goes into a comment that
``read_command`` takes back, so that the command stands for the same Scenario.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from kvroom.engines.command_line import AskedTiers, CommandLine
from kvroom.engines.drafting import HEAD, draft_name, from_flags, speculation_of
from kvroom.engines.flags import plain_name
from kvroom.engines.registry import command_lines, engine_of
from kvroom.engines.releases import published
from kvroom.engines.start_rules import by_auto
from kvroom.errors import KvroomError, StartRefused, as_sentence, did_you_mean
from kvroom.hardware.node import CARDS_A_MACHINE
from kvroom.models import catalogue
from kvroom.models.load import load
from kvroom.planner.offload import check_storage, tiers_of
from kvroom.planner.plan import Workings
from kvroom.records import dataclass
from kvroom.scenario.offload import from_flags as tiers_of_flags
from kvroom.scenario.offload import parse_tiers
from kvroom.scenario.scenario import Scenario
from kvroom.scenario.speculation import WITH_MODEL
from kvroom.simulator.offload_tiers import BlockBytes
from kvroom.units import ceil_div

REST = "# kvroom: "
"""What the comment begins with."""
WIDTHS = {"bf16": "bfloat16", "fp16": "float16"}
"""Words of ``--dtype``."""


@dataclass(frozen=True, kw_only=True)
class Launch:
    """How to start an engine: ``program`` and its ``flags`` (each its words: the name, then its values).

    ``env`` are variables set in front, ``machines`` on how many its ranks stand, ``files`` texts to write
    first, ``after`` commands to give once it runs, ``scenario`` what is started, ``rest`` its keys that the
    command does not say, ``notes`` what to know.
    """

    command: CommandLine
    program: tuple[str, ...]
    flags: tuple[tuple[str, ...], ...]
    scenario: Scenario
    rest: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    machines: int = 1
    files: Mapping[str, str] = field(default_factory=dict)
    after: tuple[tuple[str, ...], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def argv(self) -> list[str]:
        """The command word by word."""
        words = ["env", *(f"{key}={value}" for key, value in self.env.items())] if self.env else []
        words += self.program
        return [*words, *self.flag_words]

    @property
    def flag_words(self) -> list[str]:
        """The flags word by word."""
        return [word for flag in self.flags for word in flag]


def launch(workings: Workings) -> Launch:
    """The command for a plan; KvroomError where the engine has no command, or the model no name."""
    scenario = workings.plan.scenario
    command = engine_of(scenario.engine).command
    if command is None:
        known = [line.engine for line in command_lines()]
        raise KvroomError(
            "engine", scenario.engine, "has no command that kvroom writes",
            did_you_mean(scenario.engine, known, f"One of: {', '.join(known)}."),
        )  # fmt: skip
    scenario = stated(workings)
    parts = command.parts(scenario, scenario.model if isinstance(scenario.model, str) else "")
    if parts is not None:
        rest = {
            key: value for key, value in scenario.differences().items() if key not in parts.keys
        }
        return Launch(
            command=command,
            program=command.programs[0],
            flags=(),
            scenario=scenario,
            rest=_plain({**rest, **parts.rest}),
            env=parts.env,
            files=parts.files,
            after=parts.after,
            notes=(
                *_notes(workings, scenario, command),
                *_tiers(workings, scenario, command).notes,
            ),
        )
    flags, stated_keys = _flags(workings, scenario, command)
    tiers = _tiers(workings, scenario, command)
    flags |= tiers.flags
    _check_release(flags, scenario, command)
    model = model_word(scenario.model)
    flags, files = command.split(flags, scenario)
    program = command.programs[0]
    if command.model_flag is None:
        program = (*program, model)
    else:
        by_hub = (
            command.hub_flag
            and isinstance(scenario.model, str)
            and not scenario.model.endswith(".gguf")
        )
        flags = {command.hub_flag if by_hub else command.model_flag: model, **flags}
    rest = {key: value for key, value in scenario.differences().items() if key not in stated_keys}
    if scenario.model != model:
        rest["model"] = scenario.model
    return Launch(
        command=command,
        program=program,
        flags=tuple(command.flag_words(key, value) for key, value in flags.items()),
        scenario=scenario,
        rest=_plain(rest),
        env=_variables(scenario, command) | dict(tiers.variables),
        machines=machines_of(scenario, command),
        files=files,
        notes=(*_notes(workings, scenario, command), *tiers.notes),
    )


def _check_release(flags: Iterable[str], scenario: Scenario, command: CommandLine) -> None:
    """Refuse a command with a flag that its release does not have."""
    refusal = command.flag_refusal(flags, scenario.engine_version)
    if refusal is not None:
        what = f"{scenario.engine} would not start"
        raise StartRefused(what, None, refusal.message, as_sentence(refusal.fix))


def machines_of(scenario: Scenario, command: CommandLine) -> int:
    """On how many machines one start's ranks stand."""
    cards = scenario.gpu_count // (1 if "dp" in command.keys else max(1, scenario.dp))
    return ceil_div(cards, CARDS_A_MACHINE)


class WrittenTiers(NamedTuple):
    """Flags and variables of tiers, and what of them these do not say."""

    flags: Mapping[str, Any] = {}
    variables: Mapping[str, str] = {}
    notes: tuple[str, ...] = ()


def _tiers(workings: Workings, scenario: Scenario, command: CommandLine) -> WrittenTiers:
    """The tiers as flags and variables, unless the engine's own flags say some."""
    own = {plain_name(key) for key in scenario.engine_args}
    tiers = tuple(tier for tier in scenario.tiers or () if tier.bytes != 0)
    if not tiers or own & command.tier_names:
        return WrittenTiers()
    deployment = workings.deployment
    sizes = {
        tier.asked.kind: tier.bytes
        for tier in tiers_of(scenario, deployment)
        if tier.bytes is not None
    }
    check_storage(workings)
    engine = workings.plan.capacity.engine
    block = BlockBytes.of(deployment, (engine and engine.block_tokens) or 1)
    asked = AskedTiers(
        tiers=tiers,
        sizes=sizes,
        ranks=deployment.layout.gpus,
        engines=deployment.layout.dp,
        version=scenario.engine_version,
        block_bytes=block.all,
    )
    flags, variables = command.tier_flags(asked)
    return WrittenTiers(flags, variables, tuple(_unsaid(asked, flags, variables, command)))


FIRST = (0, 0, 0, 0)
MACHINES_OWN = ("kind", "bytes", "bytes_per_s", "latency_s", "pinned_bytes", "lookup_s")
"""Keys of a tier that say what the machine has, which no engine is told, and its kind."""


def _unsaid(
    asked: AskedTiers, flags: Mapping[str, Any], variables: Mapping[str, str], command: CommandLine
) -> Iterator[str]:
    """What of the tiers does not come back when the command is read."""
    read = parse_tiers("tiers", tiers_of_flags({**flags, **variables}, asked.ranks, asked.engines))
    found = {tier.kind: tier for tier in read}
    label = f"{command.label} {asked.version or ''}".rstrip()
    for tier in asked.tiers:
        there = found.get(tier.kind)
        if there is None:
            since = command.tiers_since if tier.kind == "host" else ""
            later = (published(asked.version) or FIRST) < (published(since) or FIRST)
            brings = f" ({since} brings one)" if later else ""
            yield f"the tier {tier.kind} is not written: {label} has no flag for it{brings}"
            continue
        for key, value in tier.to_dict().items():
            if key not in MACHINES_OWN and getattr(there, key) != value:
                said = str(value).lower() if isinstance(value, bool) else value
                yield f"{key}={said} of the tier {tier.kind} is not written: {label} has no flag for it"


def _variables(scenario: Scenario, command: CommandLine) -> dict[str, str]:
    """The environment variables among the engine's flags."""
    given = {plain_name(key): value for key, value in scenario.engine_args.items()}
    return {
        key.upper(): _value(value)
        for key, value in given.items()
        if key in command.variables and value is not None
    }


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(int(value))
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _plain(rest: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: value.to_dict() if hasattr(value, "to_dict") else value for key, value in rest.items()
    }


def stated(workings: Workings) -> Scenario:
    """The plan's Scenario with what the engine would decide by itself written out: length and share."""
    scenario = workings.plan.scenario
    args = dict(scenario.engine_args)
    for name in ("max_model_len", "context_length", "max_seq_len"):
        if args.get(name) not in (None, -1, "-1", "auto"):
            args.pop(name)
    engine = engine_of(scenario.engine)
    share = engine.memory_share(workings.deployment)
    if share is not None:
        args.setdefault(*share)
    drafting, args = from_flags(engine.draft_flags, args, scenario.model, load)
    if drafting is not None:
        scenario = replace(scenario, speculation=drafting)
    if engine.command is not None:
        args = {name: engine.command.listed(plain_name(name), args[name]) for name in args}
    scenario = replace(scenario, engine_args=args)
    return (
        scenario
        if engine.command is None
        else engine.command.settled(scenario, workings.deployment, workings.plan)
    )


def _flags(
    workings: Workings, scenario: Scenario, line: CommandLine
) -> tuple[dict[str, Any], set[str]]:
    """(flags by name, the Scenario's keys that they say)."""
    flags: dict[str, Any] = {}
    stated_keys = {"engine", "engine_args", "model", "gpu_count"}
    for key, names in line.keys.items():
        value = getattr(scenario, key)
        if key == "kv_dtype":
            need = engine_of(line.engine).support.cache.get(workings.deployment.kv.name)
            unknown = need is not None and need.too_old(line.label, scenario.engine_version)
            if unknown and by_auto(workings.deployment):
                value = None  # the release has no word for what it takes unasked
            else:
                asked = value != "auto"
                value = line.cache_word(value, scenario.engine_version) if asked else None
                stated_keys |= {key} if value is not None or not asked else set()
        elif key == "context_tokens" or value > 1:
            stated_keys.add(key)
            if key == "context_tokens" and scenario.engine_args.get(names[0]) is not None:
                value = None  # max_model_len=-1 asks the engine itself
        else:
            value = None
        if value is not None:
            flags[names[0]] = value
    if line.expert_switch and scenario.ep > 1 and scenario.ep == scenario.tp * scenario.dp:
        flags[line.expert_switch] = True
        stated_keys.add("ep")
    if scenario.kv_dtype != "auto":
        flags |= line.cache_flags(scenario.kv_dtype)
    if line.narrows(scenario, workings.deployment.model):
        flags["quantization"] = scenario.weight_dtype
    if line.dtype_flag:
        own = workings.deployment.model.dtype
        flags[line.dtype_flag] = WIDTHS.get(scenario.weight_dtype or own, WIDTHS.get(own, "auto"))
    drafting = speculation_of(
        scenario.speculation, engine_of(scenario.engine).draft_flags, scenario.engine_args
    )
    if drafting is not None and drafting.field == "speculation":
        drafts = engine_of(line.engine).draft_flags
        flags |= drafts.write(drafting, scenario.engine_version)
    flags |= {plain_name(key): value for key, value in scenario.engine_args.items()}
    return {
        key: value
        for key, value in flags.items()
        if value is not None and key not in line.variables
    }, stated_keys


def model_word(model: str | dict[str, Any]) -> str:
    """The model as an engine loads it: its hub id, or the path of its folder or file."""
    if not isinstance(model, str):
        raise KvroomError(
            "model", "a config by value", "is nothing that an engine can load",
            "Give the model's hub id, or the path of its folder.",
        )  # fmt: skip
    if model.endswith(("/config.json", "model.safetensors.index.json")):
        return str(PurePosixPath(model).parent)
    return catalogue.loaded_as(model)


def _times(scenario: Scenario, command: CommandLine) -> int:
    """How many of the commands make the deployment: data-parallel ranks where no flag starts them."""
    return scenario.replicas * (1 if "dp" in command.keys else scenario.dp)


def _notes(workings: Workings, scenario: Scenario, command: CommandLine) -> tuple[str, ...]:
    notes = []
    if not workings.plan.verdict.fits:
        notes.append(workings.plan.verdict.sentence)
    limit = workings.deployment.model.max_context_tokens
    if limit is not None and workings.deployment.context_tokens > limit:
        notes.append(
            f"the model states a limit of {limit:,} tokens: answers beyond it may be nonsense"
        )
    model = workings.deployment.model
    if scenario.weight_dtype not in (None, "bf16", "fp16") and not command.narrows(scenario, model):
        notes.append(f"needs a checkpoint of this model in {scenario.weight_dtype}")
    notes += command.notes(scenario, model)
    notes += _drafting_notes(scenario, command)
    if scenario.speculation and scenario.speculation.max_concurrency is not None:
        notes.append("no flag here says speculation's max_concurrency: set the engine's own")
    if (times := _times(scenario, command)) > 1:
        each = scenario.gpu_count * scenario.replicas // times
        by = "" if scenario.replicas > 1 else f": {scenario.engine} has no data-parallel flag"
        notes.append(f"start {times} of these, each on {each} GPU{'s' if each > 1 else ''}{by}")
    for key in ("disaggregation", "fleet"):
        if getattr(scenario, key) is not None:
            notes.append(f"{key} is not written: this starts one copy of the deployment")
    return tuple(notes)


def _drafting_notes(scenario: Scenario, command: CommandLine) -> Iterator[str]:
    """What the engine's flags do not say of how tokens are drafted."""
    flags = engine_of(command.engine).draft_flags
    drafting = speculation_of(scenario.speculation, flags, scenario.engine_args)
    if drafting is None or drafting.field != "speculation":
        return
    if not flags.write(drafting, scenario.engine_version):
        yield f"speculation is not written: kvroom knows no flag of {command.label} for {drafting.method}"
    elif drafting.method in WITH_MODEL and draft_name(drafting) == HEAD:
        yield f"put the path of the {drafting.method} head in place of {HEAD}"


def shell(start: Launch) -> str:
    """The command for a POSIX shell, a flag a line, with what it is for in comments."""
    scenario = start.scenario
    cards = (
        scenario.gpu
        if isinstance(scenario.gpu, str)
        else str(scenario.gpu.get("name", "the card given"))
    )
    version = scenario.engine_version or ""
    count = scenario.gpu_count * scenario.replicas // _times(scenario, start.command)
    shown = cards if "+" in cards else f"{count} × {cards}"
    lines = [f"# {shown}, {start.command.label} {version}".rstrip()]
    lines += [f"# {note}" for note in (*start.notes, *_on_each(start))]
    lines.append(stated_rest(start))
    for name, text in start.files.items():
        lines += [f"cat > {shlex.quote(name)} <<'EOF'", text.rstrip("\n"), "EOF"]
    parts = [f"{name}={shlex.quote(value)}" for name, value in start.env.items()]
    parts.append(shlex.join(start.program) + (" &" if start.after else ""))
    parts += [" ".join((name, *map(shlex.quote, values))) for name, *values in start.flags]
    if start.machines > 1:
        parts += machine_words(start, "${HEAD:?}", "${RANK:-0}")
    lines.append(" \\\n  ".join(parts))
    return "\n".join([*lines, *map(shlex.join, start.after)])


def _on_each(start: Launch) -> tuple[str, ...]:
    """What to know of a start on several machines."""
    if start.machines == 1:
        return ()
    if not spreads(start):
        each = start.scenario.gpu_count // start.machines
        return (one_of(start.machines, each),)
    told = "on each of {} machines: RANK=0 on the first, 1 on the next …, HEAD is the first one's address"
    return (told.format(start.machines),)


def one_of(machines: int, cards: int) -> str:
    """That a start takes more machines than it starts on."""
    return f"takes {machines} machines of {cards} GPUs, of which this starts one"


def spreads(start: Launch) -> bool:
    """Whether the engine's own flags spread a start over machines."""
    count = start.command.machine_flags.count
    return bool(count) and not start.command.names.lacks(count, start.scenario.engine_version)


def machine_words(start: Launch, head: str, rank: str, *, follower: bool = False) -> list[str]:
    """Flags, as they are typed, that spread a start over its machines; ``head`` is the first one's address,
    ``rank`` which one this is."""
    line = start.command
    names = line.machine_flags
    if not spreads(start):
        return []
    words = [
        f"{line.typed(names.count)} {start.machines}",
        f"{line.typed(names.rank)} {rank}",
        f"{line.typed(names.address)} {names.address_form.format(head)}",
    ]
    if start.scenario.dp > 1 and names.data_local:
        words.append(f"{line.typed(names.data_local)} {start.scenario.dp // start.machines or 1}")
        words.append(f"{line.typed(names.data_address)} {head}")
    return words + ([line.typed(names.follower)] if follower and names.follower else [])


def stated_rest(start: Launch) -> str:
    """The comment that holds what the command does not say."""
    return REST + json.dumps(start.rest, separators=(",", ":"), sort_keys=True)


__all__ = ["Launch", "launch", "shell"]
