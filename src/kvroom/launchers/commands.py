"""Reading a command that starts an engine, as people paste it, back into a Scenario's keys.

Environment variables in front, wrappers (``sudo``, ``docker run …``, ``mpirun``, ``bash -c '…'``), line
continuations, comments, several lines, manifests: the first command that starts a known engine is read.
A flag that kvroom does not know is left out and named; a value that only a shell could tell is asked for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kvroom.engines.command_line import AskedTiers, unset_variable
from kvroom.engines.drafting import draft_name, speculation_of
from kvroom.engines.registry import command_lines, engine_of
from kvroom.errors import KvroomError
from kvroom.launchers.flag_words import FlagReader
from kvroom.launchers.launch import REST, model_word
from kvroom.launchers.launched import Launched
from kvroom.launchers.manifests import is_manifest, manifest_launches
from kvroom.launchers.nearby import MAX_CHARACTERS, NOWHERE, Nearby
from kvroom.launchers.starts import Start, interpolated, script_starts, words_starts
from kvroom.launchers.unit_files import kind_of, unit_launches
from kvroom.launchers.yaml_documents import TEMPLATE_FIX, is_template
from kvroom.records import dataclass
from kvroom.scenario.offload import from_flags as tiers_of_flags
from kvroom.scenario.offload import parse_tiers
from kvroom.scenario.speculation import SpeculativeDecoding

_COMPOSE = re.compile(r"^services:\s*$", re.MULTILINE)
"""A compose file, which takes variables from ``.env`` beside it."""


@dataclass(frozen=True)
class Command:
    """What a command says: Scenario ``keys`` (without the card, unless a comment names it), and
    ``warnings`` about what was left out. ``unset_model`` is the model as typed where it is a variable
    that the command does not set, or a name of Ollama's library that is not known. ``flags`` are the names
    of all that it is given."""

    keys: dict[str, Any]
    warnings: tuple[str, ...]
    unset_model: str = ""
    flags: tuple[str, ...] = ()

    def check_model(self) -> None:
        """Refuse a command that names no model."""
        if "model" in self.keys:
            return
        fix = "Say which: --model NAME (single quotes keep a shell from replacing $VARIABLES)."
        if self.unset_model and not unset_variable(self.unset_model):
            fix = "Say which it is: --model NAME (kvroom models lists them), or its config.json."
            raise KvroomError("model", self.unset_model, "is not in the catalogue", fix)
        if self.unset_model:
            why = "is not set by the command"
            if is_template(self.unset_model):
                raise KvroomError("model", self.unset_model, why, TEMPLATE_FIX)
            fix = f"{fix[:-1]}, or put the variable in front: NAME=value."
            raise KvroomError("model", self.unset_model, why, fix)
        raise KvroomError("model", None, "is not named by the command", fix)


def _fix() -> str:
    *first, last = [line.label for line in command_lines()]
    return f"Give the command that starts {', '.join(first)} or {last}, or its manifest."


def read_command(
    text: str,
    settings: Mapping[str, str] | None = None,
    *,
    model_stated: bool = False,
    nearby: Nearby = NOWHERE,
) -> Command:
    """The Scenario's keys of a command, or of a manifest that holds one; KvroomError where it starts no
    engine that is known.

    ``settings`` are values of the variables in it (``--set``); with ``model_stated`` it need not name one.
    ``nearby`` are the files beside it.
    """
    commands = read_commands(text, settings or {}, model_stated=model_stated, nearby=nearby)
    first = next(commands, None)
    if first is None:
        why = "starts no engine that kvroom knows"
        raise KvroomError("--from-command", text.strip(), why, _fix())
    return first


def read_commands(
    text: str,
    settings: Mapping[str, str],
    *,
    model_stated: bool = False,
    nearby: Nearby = NOWHERE,
) -> Iterator[Command]:
    """Each command of ``text`` that starts an engine; those that make one deployment together are last."""
    rest = stated_rest(text)
    together: list[Start] = []
    for start in starts_of(text, settings, nearby):
        if start.command.several_starts:
            together.append(start)
        else:
            yield read_start(start, rest, model_stated=model_stated)
    if together:
        yield read_together(together, rest)


def starts_of(text: str, settings: Mapping[str, str], nearby: Nearby = NOWHERE) -> Iterator[Start]:
    """The commands of a script or a manifest that start an engine, those of further machines left out."""
    starts = list(_every_start(text, settings, nearby))
    first = [start for start in starts if not start.is_further_machine]
    yield from first or starts


def _every_start(text: str, settings: Mapping[str, str], nearby: Nearby) -> Iterator[Start]:
    if len(text) > MAX_CHARACTERS:
        raise KvroomError("--from-command", text[:40], "is longer than any command", _fix())
    launches: Iterator[Launched]
    if kind := kind_of(text):
        launches = unit_launches(text, kind)
    elif is_manifest(text):
        launches = manifest_launches(text)
    else:
        yield from script_starts(text, settings, nearby=nearby)
        return
    beside = nearby.variables(".env") if _COMPOSE.search(text) else {}
    for launched in launches:
        env = {**beside, **settings}
        words = interpolated(launched.words, env)
        around = replace(nearby, cards=launched.gpus or nearby.cards)
        for start in words_starts(words, env, settings, nearby=around):
            yield replace(
                start, line=launched.line, gpu=launched.gpu, gpus=launched.gpus, replicas=launched.replicas,
                machines=launched.machines, follows=launched.follows,
                files={**launched.files, **start.files},
            )  # fmt: skip


def read_start(
    start: Start, rest: dict[str, Any], *, model_stated: bool = False, paths: bool = True
) -> Command:
    """The keys of one command; ``rest`` are those of the comment of ``launch``. Without ``paths`` no file
    that it names is opened."""
    reader = FlagReader(start.command, start.environment, start.files, paths=paths)
    keys, warnings, model = reader.read(start.words, model_stated=model_stated or "model" in rest)
    return replace(_command(start, keys, rest, warnings, model), flags=tuple(reader.named))


def read_together(starts: list[Start], rest: dict[str, Any]) -> Command:
    """The keys of several commands that make one deployment."""
    first = starts[0].command
    words = [(start.program, start.words) for start in starts if start.command is first]
    environment = {key: value for start in starts for key, value in start.environment.items()}
    files = {key: value for start in starts for key, value in start.files.items()}
    keys, warnings, model = first.read_starts(words, environment, files, rest)
    return _command(starts[0], keys, rest, warnings, model)


def _command(
    start: Start, keys: dict[str, Any], rest: dict[str, Any], warnings: list[str], model: str
) -> Command:
    if start.version:
        keys.setdefault("engine_version", start.version)
    kept = dict(rest)
    for key, said in list(rest.items()):
        told = _told_by_flags(start, keys, key, said)
        if told is None:
            continue
        del kept[key]
        shown = told if isinstance(told, str | int) else json.dumps(told)
        comment = said if isinstance(said, str | int) else json.dumps(said)
        warnings.append(f"the comment says {key} {comment}, the command {shown}: the command holds")
    args = keys.get("engine_args", {})
    if kept.get("speculation"):  # the comment says what these flags are for
        drafts = engine_of(start.command.engine).draft_flags
        drafting = speculation_of(None, drafts, args)
        written = drafts.write(drafting) if drafting is not None else {}
        args = {key: value for key, value in args.items() if key not in written}
    if kept.get("tiers"):  # what these flags are for
        args = {key: value for key, value in args.items() if key not in start.command.tier_names}
    if "engine_args" in keys:
        keys["engine_args"] = args
    warnings = list(dict.fromkeys([*start.notes, *warnings]))
    return Command({**keys, **kept}, tuple(warnings), model)


def _told_by_flags(start: Start, keys: Mapping[str, Any], key: str, said: Any) -> Any:
    """What the command itself says of a key of the comment, where that is something else; None where it is
    not."""
    if key == "tiers":
        return _told_tiers(start, keys, said)
    if key == "speculation":
        return _told_drafting(start, keys, said)
    if key not in keys or keys[key] == said:
        return None
    if key == "model":
        return None if model_word(said) in (keys[key], model_word(keys[key])) else keys[key]
    return keys[key]


def _told_tiers(start: Start, keys: Mapping[str, Any], said: Any) -> list[dict[str, Any]] | None:
    """The tiers of the command's flags where they are not those ``said``; [] where it has none of those that
    ``launch`` writes."""
    asked = [tier for tier in parse_tiers("tiers", said) if tier.bytes != 0]
    engines = keys.get("dp", 1)
    ranks = keys.get("tp", 1) * keys.get("pp", 1) * engines
    found = tiers_of_flags(keys.get("engine_args", {}), ranks, engines)
    sizes = {tier.kind: tier.bytes or 10**12 for tier in asked}
    flags, variables = start.command.tier_flags(
        AskedTiers(
            tiers=asked,
            sizes=sizes,
            ranks=ranks,
            engines=engines,
            version=keys.get("engine_version"),
            block_bytes=1,
        )
    )
    written = tiers_of_flags({**flags, **variables}, ranks, engines)

    def room(tiers: Sequence[Mapping[str, Any]]) -> dict[str, int]:
        return {str(tier["kind"]): int(tier.get("bytes") or 0) for tier in tiers}

    here, there = room(found), room(written)
    both = {tier.kind for tier in asked if tier.bytes is not None} & here.keys() & there.keys()
    # Whole GB a rank are as near as some engines' flags come.
    alike = all(abs(here[kind] - there[kind]) < 2 * 10**9 * ranks for kind in both)
    return None if here.keys() == there.keys() and alike else found


def _told_drafting(start: Start, keys: Mapping[str, Any], said: Any) -> Any:
    """What the command's flags draft with where it is not what is ``said``."""
    drafts = engine_of(start.command.engine).draft_flags
    asked = SpeculativeDecoding.parse("speculation", said)
    wanted = speculation_of(asked, drafts, {})
    own = keys.get("speculation")
    own = None if own is None else SpeculativeDecoding.parse("speculation", own)
    found = speculation_of(own, drafts, keys.get("engine_args", {}))
    if wanted is None or wanted.field != "speculation":
        return None
    if found is None:
        return "none" if drafts.write(wanted) else None
    ours, theirs = ((each.method, each.tokens, draft_name(each)) for each in (wanted, found))
    return None if ours == theirs else f"{found.method} of {found.tokens} tokens"


def stated_rest(text: str) -> dict[str, Any]:
    """The Scenario keys of the comment that ``launch`` writes."""
    for line in text.splitlines():
        if line.strip().startswith(REST.strip()):
            try:
                value = json.loads(line.strip().removeprefix(REST.strip()))
            except (ValueError, RecursionError):
                value = None
            if not isinstance(value, dict):
                fix = "Take the line away, or leave it as kvroom launch wrote it."
                raise KvroomError("--from-command", line.strip(), "is cut or garbled", fix)
            return value
    return {}
