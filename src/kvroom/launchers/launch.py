"""The command that starts an engine as a plan says: its own flag names, quoted for a shell.

What a command cannot say (the cards, the engine's version, how many users) goes into a comment that
``read_command`` takes back, so that the command stands for the same Scenario.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

from kvroom.engines.command_line import CommandLine
from kvroom.engines.drafting import from_flags, speculation_of
from kvroom.engines.flags import plain_name
from kvroom.engines.registry import command_lines, engine_of
from kvroom.errors import KvroomError, did_you_mean
from kvroom.models import catalogue
from kvroom.models.load import load
from kvroom.planner.plan import Workings
from kvroom.scenario.scenario import Scenario

REST = "# kvroom: "
"""What the comment begins with."""
WIDTHS = {"bf16": "bfloat16", "fp16": "float16"}
"""Words of ``--dtype``."""


@dataclass(frozen=True, kw_only=True)
class Launch:
    """How to start an engine: ``program`` and its ``flags`` (typed names with values, None for a switch).

    ``env`` are variables set in front, ``files`` texts to write first, ``after`` commands to give once it
    runs, ``scenario`` what is started, ``rest`` its keys that the command does not say, ``notes`` what to
    know.
    """

    command: CommandLine
    program: tuple[str, ...]
    flags: tuple[tuple[str, str | None], ...]
    scenario: Scenario
    rest: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    after: tuple[tuple[str, ...], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def argv(self) -> list[str]:
        """The command word by word."""
        words = ["env", *(f"{k}={v}" for k, v in self.env.items())] if self.env else []
        words += self.program
        for name, value in self.flags:
            words += [name] if value is None else [name, value]
        return words


def launch(w: Workings) -> Launch:
    """The command for a plan; KvroomError where the engine has no command, or the model no name."""
    s = w.plan.scenario
    command = engine_of(s.engine).command
    if command is None:
        known = [line.engine for line in command_lines()]
        raise KvroomError(
            "engine", s.engine, "has no command that kvroom writes",
            did_you_mean(s.engine, known, f"One of: {', '.join(known)}."),
        )  # fmt: skip
    s = stated(w)
    parts = command.parts(s, s.model if isinstance(s.model, str) else "")
    if parts is not None:
        rest = {k: v for k, v in s.differences().items() if k not in parts.keys}
        return Launch(
            command=command,
            program=command.programs[0],
            flags=(),
            scenario=s,
            rest=_plain({**rest, **parts.rest}),
            env=parts.env,
            files=parts.files,
            after=parts.after,
            notes=_notes(w, s, command),
        )
    flags, stated_keys = _flags(w, s, command)
    model = model_word(s.model)
    flags, files = command.split(flags, s)
    program = command.programs[0]
    if command.model_flag is None:
        program = (*program, model)
    else:
        by_hub = command.hub_flag and isinstance(s.model, str) and not s.model.endswith(".gguf")
        flags = {command.hub_flag if by_hub else command.model_flag: model, **flags}
    rest = {k: v for k, v in s.differences().items() if k not in stated_keys}
    if s.model != model:
        rest["model"] = s.model
    return Launch(
        command=command,
        program=program,
        flags=tuple(_typed(command, n, v) for n, v in flags.items()),
        scenario=s,
        rest=_plain(rest),
        env=_longer(w, command) | _variables(s, command),
        files=files,
        notes=_notes(w, s, command),
    )


def _longer(w: Workings, command: CommandLine) -> dict[str, str]:
    """The variable that lets requests be longer than the model states, where they are."""
    limit = w.deployment.model.max_context_tokens
    beyond = limit is not None and w.deployment.context_tokens > limit
    return {command.longer_variable: "1"} if command.longer_variable and beyond else {}


def _variables(s: Scenario, command: CommandLine) -> dict[str, str]:
    """The environment variables among the engine's flags."""
    given = {plain_name(k): v for k, v in s.engine_args.items()}
    return {
        k.upper(): _value(v) for k, v in given.items() if k in command.variables and v is not None
    }


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(int(value))
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _plain(rest: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v.to_dict() if hasattr(v, "to_dict") else v for k, v in rest.items()}


def stated(w: Workings) -> Scenario:
    """The plan's Scenario with what the engine would decide by itself written out: length and share."""
    s = w.plan.scenario
    args = dict(s.engine_args)
    for name in ("max_model_len", "context_length", "max_seq_len"):
        if args.get(name) not in (None, -1, "-1", "auto"):
            args.pop(name)
    engine = engine_of(s.engine)
    share = engine.memory_share(w.deployment)
    if share is not None:
        args.setdefault(*share)
    drafting, args = from_flags(engine.draft_flags, args, s.model, load)
    if drafting is not None:
        s = replace(s, speculation=drafting)
    s = replace(s, engine_args=args)
    return s if engine.command is None else engine.command.settled(s, w.deployment, w.plan)


def _flags(w: Workings, s: Scenario, d: CommandLine) -> tuple[dict[str, Any], set[str]]:
    """(flags by name, the Scenario's keys that they say)."""
    flags: dict[str, Any] = {}
    said = {"engine", "engine_args", "model", "gpu_count"}
    for key, names in d.keys.items():
        value = getattr(s, key)
        if key == "kv_dtype":
            value = None if value == "auto" else d.dtypes.get(value, value)
            said.add(key)
        elif key == "context_tokens" or value > 1:
            said.add(key)
            if key == "context_tokens" and s.engine_args.get(names[0]) is not None:
                value = None  # max_model_len=-1 asks the engine itself
        else:
            value = None
        if value is not None:
            flags[names[0]] = value
    if d.expert_switch and s.ep > 1 and s.ep == s.tp * s.dp:
        flags[d.expert_switch] = True
        said.add("ep")
    if s.kv_dtype != "auto":
        flags |= d.cache_flags(s.kv_dtype)
    if d.narrows(s, w.deployment.model):
        flags["quantization"] = s.weight_dtype
    if d.dtype_flag:
        own = w.deployment.model.dtype
        flags[d.dtype_flag] = WIDTHS.get(s.weight_dtype or own, WIDTHS.get(own, "auto"))
    drafting = speculation_of(s.speculation, engine_of(s.engine).draft_flags, s.engine_args)
    if drafting is not None and drafting.field == "speculation":
        flags |= engine_of(d.engine).draft_flags.write(drafting)
    flags |= {plain_name(k): v for k, v in s.engine_args.items()}
    return {k: v for k, v in flags.items() if v is not None and k not in d.variables}, said


def model_word(model: str | dict[str, Any]) -> str:
    """The model as an engine loads it: its hub id, or the path of its folder or file."""
    if not isinstance(model, str):
        raise KvroomError(
            "model", "a config by value", "is nothing that an engine can load",
            "Give the model's hub id, or the path of its folder.",
        )  # fmt: skip
    if model.endswith(("/config.json", "model.safetensors.index.json")):
        return str(PurePosixPath(model).parent)
    try:
        return catalogue.hub_id(model)
    except KvroomError:
        return model


def _typed(d: CommandLine, name: str, value: Any) -> tuple[str, str | None]:
    """A flag as it is typed, and its value; None for a switch."""
    if isinstance(value, bool) and not d.switch_values:
        return d.typed(name if value else f"no_{name}"), None
    if isinstance(value, bool | dict | list | tuple):
        return d.typed(name), json.dumps(value, separators=(",", ":"))
    return d.typed(name), str(value) if isinstance(value, str | int) else repr(value)


def _times(s: Scenario, command: CommandLine) -> int:
    """How many of the commands make the deployment: data-parallel ranks where no flag starts them."""
    return s.replicas * (1 if "dp" in command.keys else s.dp)


def _notes(w: Workings, s: Scenario, command: CommandLine) -> tuple[str, ...]:
    notes = []
    if not w.plan.verdict.fits:
        notes.append(w.plan.verdict.sentence)
    for name in _longer(w, command):
        limit = w.deployment.model.max_context_tokens or 0
        notes.append(
            f"the model states a limit of {limit:,} tokens: {s.engine} refuses a longer one unless "
            f"{name}=1, and answers beyond it may be nonsense"
        )
    model = w.deployment.model
    if s.weight_dtype not in (None, "bf16", "fp16") and not command.narrows(s, model):
        notes.append(f"needs a checkpoint of this model in {s.weight_dtype}")
    notes += command.notes(s, model)
    if s.speculation and s.speculation.max_concurrency is not None:
        notes.append("no flag here says speculation's max_concurrency: set the engine's own")
    if (times := _times(s, command)) > 1:
        each = s.gpu_count * s.replicas // times
        by = "" if s.replicas > 1 else f": {s.engine} has no data-parallel flag"
        notes.append(f"start {times} of these, each on {each} GPU{'s' if each > 1 else ''}{by}")
    for key in ("disaggregation", "fleet"):
        if getattr(s, key) is not None:
            notes.append(f"{key} is not written: this starts one copy of the deployment")
    return tuple(notes)


def shell(made: Launch) -> str:
    """The command for a POSIX shell, a flag a line, with what it is for in comments."""
    s = made.scenario
    cards = s.gpu if isinstance(s.gpu, str) else str(s.gpu.get("name", "the card given"))
    version = s.engine_version or ""
    count = s.gpu_count * s.replicas // _times(s, made.command)
    lines = [f"# {count} × {cards}, {made.command.label} {version}".rstrip()]
    lines += [f"# {note}" for note in made.notes]
    lines.append(stated_rest(made))
    for name, text in made.files.items():
        lines += [f"cat > {shlex.quote(name)} <<'EOF'", text.rstrip("\n"), "EOF"]
    parts = [f"{name}={shlex.quote(value)}" for name, value in made.env.items()]
    parts.append(shlex.join(made.program) + (" &" if made.after else ""))
    for name, value in made.flags:
        parts.append(name if value is None else f"{name} {shlex.quote(value)}")
    lines.append(" \\\n  ".join(parts))
    return "\n".join([*lines, *map(shlex.join, made.after)])


def stated_rest(made: Launch) -> str:
    """The comment that holds what the command does not say."""
    return REST + json.dumps(made.rest, separators=(",", ":"), sort_keys=True)


__all__ = ["Launch", "launch", "shell"]
