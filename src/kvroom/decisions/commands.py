"""Reading a command that starts an engine, as people paste it, back into a Scenario's keys.

Environment variables in front, wrappers (``sudo``, ``docker run …``, ``mpirun``), line continuations,
comments, several lines: the first command that starts a known engine is read. A flag that kvroom does
not know is left out and named.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite
from typing import Any

from kvroom.decisions.dialects import (
    DIALECTS,
    LISTS,
    LLAMA_CPP,
    SGLANG,
    TENSORRT_LLM,
    UNSAID,
    VLLM,
    Dialect,
    is_switch,
    known_flags,
)
from kvroom.decisions.launch import REST
from kvroom.errors import KvroomError
from kvroom.models.load import load
from kvroom.units import GIB

MAX_CHARACTERS = 200_000
FIX = "Give the command that starts vLLM, SGLang, TensorRT-LLM or llama.cpp, in quotes."
_HEREDOC = re.compile(
    r"cat\s*>\s*(\S+)\s*<<\s*['\"]?(\w+)['\"]?[ \t]*\n(.*?)\n\2[ \t]*(?:\n|$)", re.DOTALL
)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::?-([^}]*))?\}|(\w+))")
_SCALED = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])")
_FLAG = re.compile(r"--?[A-Za-z]")
_SEPARATORS = frozenset(";|&()<>\n")
_STORED = {"fp8": "fp8", "bitsandbytes": "int4"}
"""Quantisation at load, by the engine's word; every other says what the checkpoint is."""


@dataclass(frozen=True)
class Command:
    """What a command says: Scenario ``keys`` (without the card, unless a comment names it), and
    ``warnings`` about what was left out."""

    keys: dict[str, Any]
    warnings: tuple[str, ...]


def read_command(text: str) -> Command:
    """The Scenario's keys of a command; KvroomError where it starts no engine that is known."""
    if len(text) > MAX_CHARACTERS:
        raise KvroomError("--from-command", text[:40], "is longer than any command", FIX)
    rest = _rest(text)
    files = {m[1].strip("'\""): m[3] for m in _HEREDOC.finditer(text)}
    words = _words(_HEREDOC.sub("\n", text))
    env: dict[str, str] = {}
    for command in _commands(words):
        plain = [_substituted(w, env) for w in command]
        found = _program(plain, env)
        if found is not None:
            dialect, arguments, version = found
            keys, warnings = _Reading(dialect, env, files).read(arguments)
            if version:
                keys.setdefault("engine_version", version)
            return Command({**keys, **rest}, tuple(warnings))
    raise KvroomError("--from-command", text.strip(), "starts no engine that kvroom knows", FIX)


def _rest(text: str) -> dict[str, Any]:
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


def _words(text: str) -> list[str]:
    """The shell's words; newlines and operators are words of their own."""
    joined = re.sub(r"[\\`^][ \t]*\r?\n", " ", _uncommented(text))
    lexer = shlex.shlex(joined, posix=True, punctuation_chars="".join(_SEPARATORS))
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        found = list(lexer)
    except ValueError:
        raise KvroomError(
            "--from-command", text.strip(), "has a quote that is not closed", "Close it."
        ) from None
    return found


def _uncommented(text: str) -> str:
    """``text`` without its comments: from a # at a word's beginning to the end of the line."""
    kept: list[str] = []
    quote, before, skip = "", "\n", False
    for c in text:
        if skip:
            skip = c != "\n"
        elif quote:
            quote = "" if c == quote and before != "\\" else quote
        elif c in "'\"" and before != "\\":
            quote = c
        elif c == "#" and before.isspace():
            skip = True
        if not skip:
            kept.append(c)
        before = "" if before == "\\" else c
    return "".join(kept)


def _commands(words: Iterable[str]) -> Iterable[list[str]]:
    """The words of each simple command."""
    current: list[str] = []
    for word in words:
        if word and set(word) <= _SEPARATORS:
            if current:
                yield current
            current = []
        else:
            current.append(word)
    if current:
        yield current


def _substituted(word: str, env: Mapping[str, str]) -> str:
    """``word`` with the variables that the text itself sets (or gives a default) put in."""

    def value(m: re.Match[str]) -> str:
        name = m[1] or m[3]
        if name in env:
            return env[name]
        return m[2] if m[2] is not None else m[0]

    return _VARIABLE.sub(value, word) if "$" in word else word


def _program(words: list[str], env: dict[str, str]) -> tuple[Dialect, list[str], str | None] | None:
    """(the engine, the words behind its program, its version by the image's tag); variables that are
    set on the way go into ``env``."""
    at = 0
    while at < len(words) and (
        _ASSIGNMENT.match(words[at]) or words[at] in ("export", "env", "set")
    ):
        if "=" in words[at]:
            name, _, value = words[at].partition("=")
            env[name] = value
        at += 1
    words = words[at:]
    container: tuple[Dialect, str | None, int] | None = None
    for i, word in enumerate(words):
        for dialect in DIALECTS.values():
            for program in dialect.programs:
                if (
                    _base(word) == program[0]
                    and tuple(words[i + 1 : i + len(program)]) == program[1:]
                ):
                    end = i + len(program)
                    if dialect is TENSORRT_LLM and words[end : end + 1] == ["serve"]:
                        end += 1
                    version = container[1] if container and container[0] is dialect else None
                    return dialect, words[end:], version
            image = dialect.image.search(word)
            if (
                image
                and container is None
                and i
                and _base(words[0]) in ("docker", "podman", "nerdctl", "sudo")
            ):
                container = (dialect, _release(image[1]), i)
                _container_env(words[:i], env)
    if container is None:
        return None
    return container[0], words[container[2] + 1 :], container[1]


def _base(word: str) -> str:
    """A program's name without its folder; any Python is ``python``."""
    name = re.split(r"[/\\]", word)[-1]
    return "python" if re.fullmatch(r"python[\d.]*", name) else name


def _release(tag: str | None) -> str | None:
    found = re.match(r"v?(\d+\.\d+(?:\.\d+)?)", tag or "")
    return found[1] if found else None


def _container_env(options: list[str], env: dict[str, str]) -> None:
    """The variables that ``docker run`` hands in."""
    for flag, value in pairwise(options):
        if flag in ("-e", "--env") and _ASSIGNMENT.match(value):
            env[value.partition("=")[0]] = value.partition("=")[2]


class _Reading:
    """One command's flags, read by one engine's dialect."""

    def __init__(self, dialect: Dialect, env: Mapping[str, str], files: Mapping[str, str]) -> None:
        self.d, self.env, self.files = dialect, env, files
        self.keys: dict[str, Any] = {"engine": dialect.engine}
        self.args: dict[str, Any] = {}
        self.warnings: list[str] = []
        self.quantisation: str | None = None

    def read(self, words: list[str]) -> tuple[dict[str, Any], list[str]]:
        """(Scenario keys, warnings) of the words behind the program."""
        positional: list[str] = []
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
            if not equals:
                taken = self._values(name, words[at:])
                at += len(taken)
                value = " ".join(taken) if taken else "true"
            self._flag(name, inner.replace("-", "_") if dot else "", value, bare=word)
        self._model(positional)
        self._environment()
        return self._done()

    def _name(self, typed: str) -> str:
        name = typed.replace("-", "_")
        name = self.d.short.get(name, name)
        if self.d is LLAMA_CPP and name not in self.d.model_flags:
            from kvroom.memory.engines.llama_cpp.flag_names import SHORT

            name = SHORT.get(name, name)
        return name

    def _values(self, name: str, following: list[str]) -> list[str]:
        """The words that belong to the flag."""
        first = following[0] if following else None
        if first is None or _FLAG.match(first):
            return []
        if is_switch(self.d, name) or name == "flash_attn":
            return (
                [first] if first.lower() in ("true", "false", "on", "off", "auto", "0", "1") else []
            )
        count = 1
        if name in LISTS:
            while count < len(following) and not following[count].startswith("-"):
                count += 1
        return following[:count]

    def _flag(self, name: str, inner: str, value: str, *, bare: str) -> None:
        key = self.d.names.get(name)
        if key is not None:
            self._key(key, name, value)
        elif name in self.d.model_flags:
            self.keys["model"] = value
        elif name in ("quantization", "weight_dtype"):
            self.quantisation = value.lower()
        elif name == "enable_expert_parallel" and value != "false":
            self.keys["ep"] = 0  # all ranks; counted at the end
        elif name in ("extra_llm_api_options", "config") and self.d is TENSORRT_LLM:
            self._file(value)
        elif name in UNSAID:
            return
        elif name in known_flags(self.d) or name.removeprefix("no_") in known_flags(self.d):
            made = _value(value)
            if name.startswith("no_") and name.removeprefix("no_") in known_flags(self.d):
                name, made = name.removeprefix("no_"), made is False
            if inner:
                held = self.args.setdefault(name, {})
                if isinstance(held, dict):
                    held[inner] = made
            else:
                self.args[name] = made
        else:
            self.warnings.append(
                f"{bare.partition('=')[0]} is no flag of {self.d.label} that kvroom knows: left out"
            )

    def _key(self, key: str, name: str, value: str) -> None:
        made = _value(value)
        if key == "kv_dtype":
            ours = {theirs: ours for ours, theirs in self.d.dtypes.items()}
            self.keys[key] = ours.get(value, value)
        elif key == "context_tokens" and (made == -1 or value == "auto"):
            self.args[name] = -1
        elif isinstance(made, int):
            self.keys[key] = made
        else:
            self.warnings.append(f"--{name}={value[:40]} is no whole number: left out")

    def _file(self, name: str) -> None:
        """The options file of trtllm-serve, where its text is in the command."""
        text = self.files.get(name)
        if text is None:
            self.warnings.append(f"{name} is not read: its options may bear on memory")
            return
        outer = ""
        for line in text.splitlines():
            key, colon, value = line.partition(":")
            if not colon or key.strip().startswith("#"):
                continue
            if not value.strip():
                outer = key.strip()
            elif key.startswith(" ") and outer == "kv_cache_config" and key.strip() == "dtype":
                self.keys["kv_dtype"] = str(_value(value.strip()))
            elif not key.startswith(" ") or outer == "kv_cache_config":
                self._flag(key.strip(), "", _unquoted(value.strip()), bare=key.strip())

    def _model(self, positional: list[str]) -> None:
        if self.d.model_flag is None and "model" not in self.keys and positional:
            self.keys["model"] = positional.pop(0)
        model = self.keys.get("model")
        if isinstance(model, str) and "$" in model:
            del self.keys["model"]
            self.warnings.append(f"the model is {model}, which the command does not set (--model)")
        for word in positional[:5]:
            self.warnings.append(f"'{word[:60]}' is left out: it belongs to no flag")

    def _environment(self) -> None:
        space = self.env.get("VLLM_CPU_KVCACHE_SPACE")
        if self.d is VLLM and space and space.replace(".", "", 1).isdecimal():
            self.args.setdefault("kv_cache_memory_bytes", int(float(space) * GIB))
        devices = self.env.get("CUDA_VISIBLE_DEVICES", "")
        if self.d is LLAMA_CPP and devices:
            self.keys["gpu_count"] = len([x for x in devices.split(",") if x.strip()])

    def _done(self) -> tuple[dict[str, Any], list[str]]:
        if self.d is SGLANG and self.args.get("enable_dp_attention") and "dp" in self.keys:
            self.args["dp_size"] = self.keys.pop("dp")
        if self.d is LLAMA_CPP:
            self._cache_types()
        if self.keys.get("ep") == 0:
            self.keys["ep"] = self.keys.get("tp", 1) * self.keys.get("dp", 1)
        stored = _STORED.get(self.quantisation or "")
        if stored and self._unquantised():
            self.keys["weight_dtype"] = stored
        if self.args:
            self.keys["engine_args"] = self.args
        return self.keys, self.warnings

    def _cache_types(self) -> None:
        """One width for keys and values is the Scenario's own."""
        key, value = self.args.get("cache_type_k"), self.args.get("cache_type_v")
        if key is not None and key == value:
            del self.args["cache_type_k"], self.args["cache_type_v"]
            self.keys["kv_dtype"] = key

    def _unquantised(self) -> bool:
        """Whether the checkpoint is known to be 16-bit: only such is narrowed as it loads."""
        try:
            return load(self.keys.get("model")).quantisation is None
        except KvroomError:
            return True


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def _value(text: str) -> Any:
    """A flag's value: a number, true or false, JSON, ``32K`` (binary) or ``32k`` (decimal), or a word."""
    scaled = _SCALED.fullmatch(text)
    if scaled and len(text) < 20:
        step = 1024 if scaled[2].isupper() else 1000
        return int(float(scaled[1]) * step ** ("kmgt".index(scaled[2].lower()) + 1))
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if isinstance(value, float) and not isfinite(value):
        return text
    return value
