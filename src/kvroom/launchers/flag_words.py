"""Reading the flags behind an engine's program into a Scenario's keys, by the engine's command line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from kvroom.engines.command_line import (
    AT_LOAD,
    OPTIONAL,
    SERVING,
    CommandLine,
    unset_variable,
)
from kvroom.engines.drafting import from_flags
from kvroom.engines.flag_names import only_serves
from kvroom.engines.flags import value_of
from kvroom.engines.registry import engine_of
from kvroom.errors import KvroomError, did_you_mean
from kvroom.launchers.shell.expand import names_in
from kvroom.launchers.yaml_documents import TEMPLATE_FIX, is_template, yaml_documents
from kvroom.models.load import load
from kvroom.models.spec import ModelSpec

_FLAG = re.compile(r"--?[A-Za-z]")
_OPEN_WORD = re.compile(r"\$(?:\w+|\{\w+(?:\[@\])?\})")
_STRAY = "is left out: it belongs to no flag"


class FlagReader:
    """One command's flags, read by one engine's command line; without ``paths`` no file that they name is
    opened."""

    def __init__(
        self,
        command: CommandLine,
        env: Mapping[str, str],
        files: Mapping[str, str],
        *,
        paths: bool = True,
    ) -> None:
        self.command, self.env, self.files = command, env, files
        self.load: Callable[[Any], ModelSpec] = partial(load, paths=paths)
        self.keys: dict[str, Any] = {"engine": command.engine}
        self.args: dict[str, Any] = {}
        self.warnings: list[str] = []
        self.quantisation: str | None = None
        self.unset: list[tuple[str, str]] = []
        self.named: list[str] = []
        """Every flag of the command, by its name."""

    def read(
        self, words: list[str], *, model_stated: bool = False
    ) -> tuple[dict[str, Any], list[str], str]:
        """(Scenario keys, warnings, the model as typed where it is unset) of the words behind the
        program. KvroomError names every flag at once whose value only a shell could tell; the model too,
        unless it is stated elsewhere."""
        positional: list[str] = []
        for variable, value in self.env.items():
            if value and (flag := self.command.flag_of(variable)):
                self._flag(self._name(flag), "", value, bare=variable)
        at = 0
        while at < len(words):
            word = words[at]
            at += 1
            if not _FLAG.match(word):
                positional.append(word)
                continue
            name, equals, value = word.lstrip("-").partition("=")
            name, dot, inner = name.partition(".")
            name = self._name(name)
            self.named.append(name)
            if not equals:
                taken = self._values(name, words[at:])
                at += len(taken)
                if not taken and self.command.takes_value(name):
                    raise KvroomError(
                        word, None, "wants a value", f"Write {word} VALUE, or leave it out."
                    )
                value = " ".join(taken) if taken else "true"
                if len(taken) > 1:  # a list: each word is an item, whatever stands in it
                    value = json.dumps([value_of(item) for item in taken])
            self._flag(name, inner.replace("-", "_") if dot else "", value, bare=word)
        unset = self._model(positional)
        if self.unset:
            raise _not_set(
                [*([("model", unset)] if unset and not model_stated else []), *self.unset]
            )
        self.command.from_environment(self.env, self.keys, self.args)
        self.warnings += self.command.unused(self.env)
        self.warnings += self.command.too_few_cards(self.env, self.keys)
        return *self._done(), unset

    def _name(self, typed: str) -> str:
        name = typed.replace("-", "_")
        return self.command.names.aliases.get(name, name)

    def _values(self, name: str, following: list[str]) -> list[str]:
        """The words that belong to the flag."""
        first = following[0] if following else None
        if first is None or _FLAG.match(first):
            return []
        if self.command.is_switch(name) or name in OPTIONAL:
            return (
                [first] if first.lower() in ("true", "false", "on", "off", "auto", "0", "1") else []
            )
        count = 1
        if name in self.command.names.lists:
            while count < len(following) and not following[count].startswith("-"):
                count += 1
        return following[:count]

    def _flag(self, name: str, inner: str, value: str, *, bare: str) -> None:
        command = self.command
        if name in command.machine_flags.names:
            return
        key = command.key_of.get(name)
        if unset_variable(value) and name in command.names.passed_over:
            if not only_serves(name):
                self.warnings.append(f"{command.typed(name)} {value} has no value here: left out")
        elif unset_variable(value) and self._bears(name, value):
            self.unset.append((bare.partition("=")[0], value))
        elif key is not None:
            self._key(key, name, value, bare)
        elif name in command.model_flags:
            self.keys["model"] = value
        elif name in ("quantization", "weight_dtype"):
            self.quantisation = _method(command, bare, value.lower())
        elif name == command.expert_switch and value != "false":
            self.keys["ep"] = 0  # all ranks; counted at the end
        elif name in command.option_files:
            self._file(value)
        elif name in SERVING or name.startswith("dyn_"):
            return
        elif name in command.known or name.removeprefix("no_") in command.known:
            stated = value_of(value)
            if name.startswith("no_") and name.removeprefix("no_") in command.known:
                name, stated = name.removeprefix("no_"), stated is False
            if inner:
                config = self.args.setdefault(name, {})
                if isinstance(config, dict):
                    config[inner] = stated
            else:
                self.args[name] = command.listed(name, stated)
        else:
            self.warnings.append(
                f"{bare.partition('=')[0]} is no flag of {command.label} that kvroom knows: left out"
            )

    def _bears(self, name: str, value: str) -> bool:
        """Whether an answer needs the value of a flag that holds a variable without one."""
        command = self.command
        if name in (*SERVING, *command.model_flags, *command.option_files) or name == "config":
            return False
        if isinstance(value_of(value), dict):  # a variable within a text of it
            return False
        return (
            command.key_of.get(name) is not None or name in command.known or name == "quantization"
        )

    def _key(self, key: str, name: str, value: str, bare: str) -> None:
        stated = value_of(value)
        if key == "kv_dtype":
            ours = {theirs: ours for ours, theirs in self.command.dtypes.items()}
            self.keys[key] = ours.get(value, value)
        elif key == "context_tokens" and (stated == -1 or value == "auto"):
            self.args[name] = -1
        elif isinstance(stated, int):
            self.keys[key] = stated
        else:
            fix = "Write a whole number, such as 2."
            raise KvroomError(bare.partition("=")[0], value, "is no whole number", fix)

    def _file(self, name: str) -> None:
        """An engine's file of options, where its text is in the command."""
        text = self.files.get(name)
        if text is None:
            self.warnings.append(f"{name} is not read: its options may bear on memory")
            return
        for options in yaml_documents(text):
            if isinstance(options, dict):
                self._options(options)

    def _options(self, options: Mapping[str, Any]) -> None:
        for key, value in options.items():
            name = self._name(str(key))
            if name == "kv_cache_config" and isinstance(value, dict):
                inner = dict(value)
                if "dtype" in inner:
                    self.keys["kv_dtype"] = str(inner.pop("dtype"))
                self._options(inner)
            elif value is not None:
                self._flag(
                    name, "", value if isinstance(value, str) else json.dumps(value), bare=str(key)
                )

    def _model(self, positional: list[str]) -> str:
        """Take the model; what it is typed as where only a shell could tell."""
        if self.command.model_flag is None and "model" not in self.keys and positional:
            self.keys["model"] = positional.pop(0)
        for word in positional[:5]:
            why = "has no value: taken as empty" if _OPEN_WORD.fullmatch(word) else _STRAY
            self.warnings.append(f"'{word[:60]}' {why}")
        if unset_variable(str(self.keys.get("model", ""))):
            return str(self.keys.pop("model"))
        return ""

    def _done(self) -> tuple[dict[str, Any], list[str]]:
        self.command.finish(self.keys, self.args)
        if self.keys.get("ep") == 0:
            self.keys["ep"] = self.keys.get("tp", 1) * self.keys.get("dp", 1)
        stored = AT_LOAD.get(self.quantisation or "")
        if stored and self._unquantised():
            self.keys["weight_dtype"] = stored
        drafting, self.args = from_flags(
            engine_of(self.command.engine).draft_flags, self.args, self.keys.get("model"), self.load
        )
        if drafting is not None:
            self.keys["speculation"] = drafting.to_dict()
        if self.args:
            self.keys["engine_args"] = self.args
        return self.keys, self.warnings

    def _unquantised(self) -> bool:
        """Whether the checkpoint is known to be 16-bit: only such is narrowed as it loads."""
        try:
            return self.load(self.keys.get("model")).quantisation is None
        except KvroomError:
            return True


def _method(command: CommandLine, bare: str, word: str) -> str:
    """How the weights are quantised, in the engine's word; KvroomError where it has no such."""
    known = sorted(command.quantizations)
    if known and word not in known and not unset_variable(word):
        fix = did_you_mean(word, known, f"One of: {', '.join(known)}.")
        why = f"is no quantisation of {command.label}"
        raise KvroomError(bare.partition("=")[0], word, why, fix)
    return word


def _not_set(unset: list[tuple[str, str]]) -> KvroomError:
    """That values of flags are variables without one: all of them at once."""
    flags = ", ".join(flag for flag, _ in unset)
    values = ", ".join(dict.fromkeys(value for _, value in unset))
    names = dict.fromkeys(name for _, value in unset for name in names_in(value))
    fix = "Put the value in, or VARIABLE=value in front of the command."
    if names:
        fix = f"Say {' '.join(f'--set {name}=…' for name in names)}, or put the value in."
    elif is_template(values):
        fix = TEMPLATE_FIX
    one = len({value for _, value in unset}) == 1
    why = "is not set by the command" if one else "are not set by the command"
    return KvroomError(flags, values, why, fix)
