"""Ollama's commands: the server's environment variables, a Modelfile, the model's name in its library.

Its names (``llama3.1:8b-instruct-q4_K_M``) are the catalogue's with a size and a quantisation as tags;
without one the library holds Q4_K_M.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kvroom.answer.plan import Plan
from kvroom.engines.command_line import (
    CommandKeys,
    CommandLine,
    StartParts,
    Texts,
    unset_variable,
    visible_cards,
)
from kvroom.engines.flags import switch, value_of
from kvroom.engines.llama_cpp.command import slots_of
from kvroom.engines.llama_cpp.flags import CACHE_WORDS, cache_type
from kvroom.engines.llama_cpp.ollama import ENVIRONMENT, KNOWN, OTHERS, named
from kvroom.engines.llama_cpp.support import OLLAMA_SUPPORT
from kvroom.errors import KvroomError
from kvroom.models import catalogue, weight_dtypes
from kvroom.models.dtypes import CACHE_ALIASES
from kvroom.models.names import QAT, QAT_WIDTH
from kvroom.models.spec import ModelSpec
from kvroom.scenario.scenario import Scenario
from kvroom.sharding.deployment import Deployment

MODELFILE = "Modelfile"
CREATED = "kvroom"
"""What the model is called that a written Modelfile makes."""
LIBRARY_WEIGHTS = "q4_k_m"
"""What the library's tags hold unless they say otherwise."""
LATEST = {"gemma3": "gemma-3-4b", "gpt-oss": "gpt-oss-20b", "deepseek-r1": None}
"""Names whose size, where no tag says it, is not that of the catalogue's name."""
_HUB = re.compile(r"(?:hf\.co|huggingface\.co)/(.+)", re.IGNORECASE)
_SIZE = re.compile(r"(?:\d+x)?e?[\d.]+[bm]", re.IGNORECASE)
_WEIGHTS = re.compile(r"(?:i?q\d\w*|fp16|f16|bf16|mxfp4|fp8)", re.IGNORECASE)
_VALUED = frozenset(("--keepalive", "--format", "-f", "--file", "-q", "--quantize", "--think"))

NUMBERS = {
    "num_parallel": 4,
    "num_ctx": 8192,
    "context_length": 8192,
    "num_batch": 512,
    "num_gpu": 99,
    "gpu_overhead": 1073741824,
}
"""Settings that take a whole number, with an example."""


def read_ollama(
    starts: Iterable[tuple[tuple[str, ...], list[str]]],
    env: Mapping[str, str],
    files: Mapping[str, str],
    known: Mapping[str, Any],
) -> CommandKeys:
    """What ``ollama serve``, ``run`` and ``create`` (program, words) say together.

    ``known`` are keys that a comment states: nothing is assumed about them.
    """
    args: dict[str, Any] = {}
    warnings: list[str] = []
    keys: dict[str, Any] = {"engine": "ollama"}
    modelfiles: dict[str, str] = {}
    model = ""
    for program, words in starts:
        plain = _positional(words)
        if program[1] == "create" and plain:
            modelfiles[plain[0]] = files.get(_option(words, ("-f", "--file")) or MODELFILE, "")
            model = model or plain[0]
        elif program[1] == "run" and plain:
            model = plain[0]
    if model in modelfiles:
        model = _modelfile(modelfiles[model], args, warnings) or ""
    for name, value in env.items():
        if name.startswith("OLLAMA_"):
            _take(name, value, args, warnings)
    if "kv_cache_type" in args:
        kind = str(args.pop("kv_cache_type")).lower()
        keys["kv_dtype"] = CACHE_ALIASES.get(kind, kind)
    if not args.keys() & {"num_parallel", "num_ctx", "context_length"}:
        args["num_parallel"] = 1  # its own default; with a length it is taken so anyway
    if args:
        keys["engine_args"] = args
    if unset_variable(model):
        return keys, warnings, model
    if model and "model" not in known:
        keys_of_model, notes = of_library(model, known)
        warnings += notes
        keys |= keys_of_model
    return keys, warnings, "" if "model" in keys else model


def _positional(words: Sequence[str]) -> list[str]:
    plain: list[str] = []
    skip = False
    for word in words:
        if not skip and not word.startswith("-"):
            plain.append(word)
        skip = not skip and word in _VALUED
    return plain


def _option(words: Sequence[str], names: Sequence[str]) -> str | None:
    for at, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name in names:
            return value if equals else next(iter(words[at + 1 :]), None)
    return None


def _modelfile(text: str, args: dict[str, Any], warnings: list[str]) -> str | None:
    """The model of a Modelfile, whose parameters go into ``args``."""
    model = None
    for line in text.splitlines():
        word, _, rest = line.strip().partition(" ")
        if word.upper() == "FROM":
            model = rest.strip()
        elif word.upper() == "PARAMETER":
            name, _, value = rest.strip().partition(" ")
            _take(name, value.strip(), args, warnings)
    return model


def _take(name: str, value: str, args: dict[str, Any], warnings: list[str]) -> None:
    if unset_variable(value):
        raise KvroomError(name, value, "is not set by the command", "Put the value in.")
    key = next(iter(named({name: value})))
    if key in NUMBERS and value and not value.lstrip("-").isdecimal():
        raise KvroomError(name, value, "is no whole number", f"Write {name}={NUMBERS[key]}.")
    if key in ("flash_attention", "sched_spread") and value:
        switch(name, value)
    if key == "kv_cache_type" and value:
        cache_type(name, value)
    if key in KNOWN or key in OTHERS:
        if key not in ("host", "origins", "models", "debug", "tmpdir"):
            args[key] = value_of(value)
    else:
        warnings.append(f"{name} is no setting of Ollama that kvroom knows: left out")


def of_library(name: str, known: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """(the Scenario's model and weights, warnings) of a model as Ollama names it; no model where it is
    none of the catalogue. ``known`` are keys that are stated: nothing is assumed about them."""
    warnings: list[str] = []
    if name.endswith(".gguf"):
        return {"model": name}, warnings
    hub = _HUB.fullmatch(name)
    base, _, tag = (hub[1] if hub else name).partition(":")
    parts = [part for part in tag.split("-") if part and part != "latest"]
    weights = next((part.lower() for part in parts if _WEIGHTS.fullmatch(part)), None)
    sizes = [part for part in parts if not _WEIGHTS.fullmatch(part)]
    catalogue_name = (
        re.sub(r"-gguf$", "", base, flags=re.IGNORECASE) if hub else _in_catalogue(base, sizes)
    )
    if catalogue_name is None:
        why = f"the model {name} of Ollama's library is not in the catalogue (--model)"
        return {}, [why]
    keys: dict[str, Any] = {"model": catalogue_name}
    if not sizes and not hub:
        warnings.append(f"{name} taken as {catalogue_name}")
    if "weight_dtype" in known or _stored(catalogue_name):
        return keys, warnings
    if weights is None:
        weights = QAT_WIDTH if QAT in parts or base.endswith(f"-{QAT}") else LIBRARY_WEIGHTS
        warnings.append(f"weights taken as {weights}, as Ollama's library stores them")
    try:
        weight_dtypes.named(weights)
    except KvroomError:
        warnings.append(f"weights in {weights} are not known: left out (--weight-dtype)")
        return keys, warnings
    return keys | {"weight_dtype": CACHE_ALIASES.get(weights, weights)}, warnings


def _in_catalogue(base: str, sizes: Sequence[str]) -> str | None:
    """The catalogue's name of a library's name and its tags: the longest that is known."""
    if not sizes and base in LATEST:
        return LATEST[base]
    for stem in (base, re.sub(r"(?<=[a-z])(?=\d)", "-", base, count=1)):
        for count in range(len(sizes), 0 if sizes else -1, -1):
            word = "-".join((stem, *sizes[:count]))
            try:
                return str(catalogue.entry_of(word)["name"])
            except KvroomError:
                continue
    return None


def _stored(model: str) -> bool:
    """Whether the model is published in a narrow form of its own, which Ollama keeps."""
    try:
        return catalogue.find(model).quantisation is not None
    except KvroomError:
        return False


def library_name(model: str) -> str:
    """What Ollama calls a model: its library's name (``llama3.1:8b``), a hub id, or a file's path."""
    if model.endswith(".gguf"):
        return model
    try:
        parts = str(catalogue.entry_of(model)["name"]).split("-")
    except KvroomError:
        return f"hf.co/{model}" if "/" in model else model
    at = next(
        (index for index, part in enumerate(parts) if index and _SIZE.fullmatch(part)), len(parts)
    )
    base = re.sub(r"(?<=[a-z])-(?=[\d.]+(?:-|$))", "", "-".join(parts[:at]), count=1)
    return ":".join(part for part in (base, "-".join(parts[at:])) if part)


def settings(args: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """(environment variables, Modelfile parameters) that say ``args``."""
    env: dict[str, str] = {}
    parameters: dict[str, str] = {}
    for name, value in sorted(named(args).items()):
        text = str(int(value)) if isinstance(value, bool) else str(value)
        if name in ENVIRONMENT:
            env[f"OLLAMA_{name.upper()}"] = text
        else:
            parameters[name] = text
    return env, parameters


class OllamaCommandLine(CommandLine):
    """The server with its variables, then the model; a Modelfile where it takes parameters."""

    def read_starts(
        self,
        starts: Sequence[tuple[tuple[str, ...], list[str]]],
        env: Texts,
        files: Texts,
        known: Mapping[str, Any],
    ) -> CommandKeys:
        """What ``ollama serve``, ``run`` and ``create`` say together."""
        keys, warnings, model = read_ollama(starts, env, files, known)
        if shown := visible_cards(env):
            keys["gpu_count"] = shown[1]
        return keys, [*warnings, *self.unused(env)], model

    def model_keys(self, name: str, known: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """A name with a tag is one of its library."""
        if ":" in name and "\\" not in name:
            keys, warnings = of_library(name, known)
            if "model" in keys:
                return keys, warnings
        return {"model": name}, []

    def settled(self, scenario: Scenario, deployment: Deployment, plan: Plan) -> Scenario:
        """Settings by their plain names, the context of one request and the slots among them."""
        args = {
            name: value for name, value in named(scenario.engine_args).items() if value is not None
        }
        if not args.keys() & {"num_ctx", "context_length"}:
            args["context_length"] = deployment.context_tokens
        args.setdefault("num_parallel", slots_of(plan))
        kind = args.pop("kv_cache_type", None)
        kv = scenario.kv_dtype
        if kind is not None:
            kv = CACHE_ALIASES.get(str(kind).lower(), str(kind).lower())
        return replace(scenario, engine_args=args, kv_dtype=kv)

    def parts(self, scenario: Scenario, model: str) -> StartParts | None:
        """Variables, a Modelfile, and the command that runs the model."""
        args = dict(scenario.engine_args)
        kv = scenario.kv_dtype
        said = kv == "auto" or kv in (
            OLLAMA_SUPPORT.cache_types or ()
        )  # else the model's own width
        if said and kv != "auto":
            args["kv_cache_type"] = CACHE_WORDS.get(scenario.kv_dtype, scenario.kv_dtype)
        env, parameters = settings(args)
        name = library_name(scenario.model if isinstance(scenario.model, str) else model)
        files: dict[str, str] = {}
        after: tuple[tuple[str, ...], ...] = (("ollama", "run", name),)
        if parameters or name.endswith(".gguf"):
            lines = [
                f"FROM {name}",
                *(f"PARAMETER {name} {value}" for name, value in parameters.items()),
            ]
            files[MODELFILE] = "\n".join(lines) + "\n"
            after = (
                ("ollama", "create", CREATED, "-f", MODELFILE),
                ("ollama", "run", CREATED),
            )
        return StartParts(
            env=env,
            files=files,
            after=after,
            keys=frozenset(("engine", "engine_args", *(("kv_dtype",) if said else ()))),
            rest={"model": scenario.model, "weight_dtype": scenario.weight_dtype},
        )

    def narrows(self, scenario: Scenario, model: ModelSpec) -> bool:
        """Its library holds one width unless a tag says otherwise."""
        return scenario.weight_dtype == LIBRARY_WEIGHTS

    def notes(self, scenario: Scenario, model: ModelSpec) -> tuple[str, ...]:
        """What the library should hold."""
        if str(scenario.model).endswith(".gguf"):
            return ()
        notes = ["the name is what the Ollama library should call this model: check it there"]
        if scenario.weight_dtype is None and model.quantisation is None:
            notes.append(
                f"the library's default weights are {LIBRARY_WEIGHTS}, this plan's are not"
            )
        return tuple(notes)


COMMAND = OllamaCommandLine(
    engine="ollama",
    label="Ollama",
    modelfile_starts=(
        ("ollama", "create", "model", "-f", "Modelfile"),
        ("ollama", "run", "model"),
    ),
    programs=(("ollama", "serve"), ("ollama", "start"), ("ollama", "run"), ("ollama", "create")),
    image=re.compile(r"(?:^|/)ollama(?::v?([\w.+-]+))?$"),
    default_image="ollama/ollama",
    port=11434,
    health="/",
    default_tp=False,
    several_starts=True,
)
