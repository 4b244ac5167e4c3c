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

from kvroom.engines.llama_cpp.ollama import named
from kvroom.errors import KvroomError, did_you_mean
from kvroom.launchers.dialects import DIALECTS, LLAMA_CPP, OLLAMA, TENSORRT_LLM, VLLM, Dialect
from kvroom.launchers.ollama import CREATED, LIBRARY_WEIGHTS, MODELFILE, library_name, settings
from kvroom.models import catalogue
from kvroom.models.dtypes import CACHE_ALIASES
from kvroom.models.load import load
from kvroom.planner.plan import Workings
from kvroom.scenario import speculation
from kvroom.scenario.scenario import Scenario

REST = "# kvroom: "
"""What the comment begins with."""
CACHE_WORDS = {"fp16": "f16", "fp32": "f32"}
"""Ollama's words for cache widths, where they differ."""
CONFIG_FILE = "trtllm.yaml"
_ON_LINE = """
    max_batch_size max_num_tokens max_beam_width kv_cache_free_gpu_memory_fraction backend
    log_level trust_remote_code extra_llm_api_options
"""
_CLI_ONLY = frozenset(_ON_LINE.split())
"""What trtllm-serve takes as flags; the rest goes into its file."""


@dataclass(frozen=True, kw_only=True)
class Launch:
    """How to start an engine: ``program`` and its ``flags`` (typed names with values, None for a switch).

    ``env`` are variables set in front, ``files`` texts to write first, ``after`` commands to give once it
    runs, ``scenario`` what is started, ``rest`` its keys that the command does not say, ``notes`` what to
    know.
    """

    dialect: Dialect
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
    dialect = DIALECTS.get("llama.cpp" if s.engine == "ik_llama.cpp" else s.engine)
    if dialect is None:
        known = ", ".join(DIALECTS)
        raise KvroomError(
            "engine", s.engine, "has no command that kvroom writes",
            did_you_mean(s.engine, DIALECTS, f"One of: {known}."),
        )  # fmt: skip
    s = stated(w)
    if dialect is OLLAMA:
        return _ollama(w, s)
    flags, said = _flags(w, s, dialect)
    model = model_word(s.model)
    files: dict[str, str] = {}
    if dialect is TENSORRT_LLM:
        flags, files = _file(flags, s)
    program = dialect.programs[0]
    if dialect.model_flag is None:
        program = (*program, model)
    else:
        name = "hf_repo" if dialect is LLAMA_CPP and _is_hub_id(s.model) else dialect.model_flag
        flags = {name: model, **flags}
    rest = {k: v for k, v in s.differences().items() if k not in said}
    if s.model != model:
        rest["model"] = s.model
    return Launch(
        dialect=dialect,
        program=program,
        flags=tuple(_typed(dialect, n, v) for n, v in flags.items()),
        scenario=s,
        rest=_plain(rest),
        env=_longer(w) | _variables(s, dialect),
        files=files,
        notes=_notes(w, s),
    )


LONGER = {
    "vllm": "VLLM_ALLOW_LONG_MAX_MODEL_LEN",
    "sglang": "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN",
}
"""The variable without which an engine refuses a length beyond the model's own."""


def _longer(w: Workings) -> dict[str, str]:
    """The variable that lets requests be longer than the model states, where they are."""
    name, limit = LONGER.get(w.deployment.engine), w.deployment.model.max_context_tokens
    beyond = limit is not None and w.deployment.context_tokens > limit
    return {name: "1"} if name is not None and beyond else {}


def _variables(s: Scenario, d: Dialect) -> dict[str, str]:
    """The environment variables among the engine's flags."""
    given = {k.strip().lstrip("-").replace("-", "_"): v for k, v in s.engine_args.items()}
    return {k.upper(): _value(v) for k, v in given.items() if k in d.variables and v is not None}


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(int(value))
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _plain(rest: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v.to_dict() if hasattr(v, "to_dict") else v for k, v in rest.items()}


def _ollama(w: Workings, s: Scenario) -> Launch:
    """The server with its variables, then the model; a Modelfile where it takes parameters."""
    args = dict(s.engine_args)
    if s.kv_dtype != "auto":
        args["kv_cache_type"] = CACHE_WORDS.get(s.kv_dtype, s.kv_dtype)
    env, parameters = settings(args)
    name = library_name(s.model if isinstance(s.model, str) else model_word(s.model))
    files: dict[str, str] = {}
    after: tuple[tuple[str, ...], ...] = (("ollama", "run", name),)
    if parameters or name.endswith(".gguf"):
        lines = [f"FROM {name}", *(f"PARAMETER {k} {v}" for k, v in parameters.items())]
        files[MODELFILE] = "\n".join(lines) + "\n"
        after = (
            ("ollama", "create", CREATED, "-f", MODELFILE),
            ("ollama", "run", CREATED),
        )
    said = {"engine", "engine_args", "kv_dtype"}
    rest = {k: v for k, v in s.differences().items() if k not in said}
    return Launch(
        dialect=OLLAMA,
        program=OLLAMA.programs[0],
        flags=(),
        scenario=s,
        rest=_plain(rest | {"model": s.model, "weight_dtype": s.weight_dtype}),
        env=env,
        files=files,
        after=after,
        notes=_notes(w, s),
    )


def stated(w: Workings) -> Scenario:
    """The plan's Scenario with what the engine would decide by itself written out: length and share."""
    s = w.plan.scenario
    args = dict(s.engine_args)
    for name in ("max_model_len", "context_length", "max_seq_len"):
        if args.get(name) not in (None, -1, "-1", "auto"):
            args.pop(name)
    share = default_share(w)
    if share is not None:
        args.setdefault(*share)
    if s.engine in ("llama.cpp", "ik_llama.cpp"):
        args = _cells(w, args)
    if s.engine == "ollama":
        return _ollama_stated(w, s, args)
    drafting, args = speculation.from_flags(s.engine, args, s.model, load)
    if drafting is not None:
        s = replace(s, speculation=drafting)
    if s.engine == "sglang":
        args = {k: v for k, v in args.items() if v is not False}  # its switches have no negative
    return replace(s, engine_args=args)


def _ollama_stated(w: Workings, s: Scenario, args: dict[str, Any]) -> Scenario:
    """Ollama's settings by their plain names, the context of one request and the slots among them."""
    args = {k: v for k, v in named(args).items() if v is not None}
    if not args.keys() & {"num_ctx", "context_length"}:
        args["context_length"] = w.deployment.context_tokens
    args.setdefault("num_parallel", _slots(w))
    kind = args.pop("kv_cache_type", None)
    kv = s.kv_dtype if kind is None else CACHE_ALIASES.get(str(kind).lower(), str(kind).lower())
    return replace(s, engine_args=args, kv_dtype=kv)


def default_share(w: Workings) -> tuple[str, float] | None:
    """The share of memory that the engine takes where no flag says it."""
    d = w.deployment
    args = {k.replace("-", "_") for k in d.args}
    if d.engine == "vllm" and not args & {"kv_cache_memory_bytes", "kv_cache_memory"}:
        from kvroom.engines.vllm.setup import setup

        return "gpu_memory_utilization", setup(d)[0].rules.utilisation
    if d.engine == "sglang":
        from kvroom.engines.releases import nearest_release
        from kvroom.engines.sglang.settings import settings_of
        from kvroom.engines.sglang.share import static_share
        from kvroom.engines.sglang.versions import NEWEST, OLDEST, rules_of

        release, _ = nearest_release("SGLang", d.version, OLDEST, NEWEST)
        return "mem_fraction_static", static_share(settings_of(d, rules_of(release))).fraction
    if d.engine == "tensorrt-llm" and not args & {
        "free_gpu_memory_fraction", "kv_cache_free_gpu_memory_fraction", "kv_cache_config",
    }:  # fmt: skip
        return "kv_cache_free_gpu_memory_fraction", 0.9
    return None


def _slots(w: Workings) -> int:
    """The requests that are asked for, else as many slots as the plan has."""
    c, asked = w.plan.capacity.engine, w.plan.scenario.concurrency
    most = (c.max_running_requests if c else None) or 1
    return min(asked, most) if asked else most


def _cells(w: Workings, args: dict[str, Any]) -> dict[str, Any]:
    """llama.cpp's context is that of all slots together."""
    c = w.plan.capacity.engine
    slots = args.get("parallel") or _slots(w)
    if "ctx_size" not in args and "c" not in args:
        held = c.kv_tokens if c and c.max_running_requests == slots else None
        args["ctx_size"] = held or w.deployment.context_tokens * slots
    args.setdefault("parallel", slots)
    return args


def _flags(w: Workings, s: Scenario, d: Dialect) -> tuple[dict[str, Any], set[str]]:
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
    if d is VLLM and s.ep > 1 and s.ep == s.tp * s.dp:
        flags["enable_expert_parallel"] = True
        said.add("ep")
    if d is LLAMA_CPP and s.kv_dtype != "auto":
        flags |= {"cache_type_k": s.kv_dtype, "cache_type_v": s.kv_dtype}
    plain = w.deployment.model.quantisation is None
    if s.weight_dtype == "fp8" and plain and d.engine in ("vllm", "sglang"):
        flags["quantization"] = "fp8"
    if d.engine in ("vllm", "sglang"):
        widths = {"bf16": "bfloat16", "fp16": "float16"}
        own = w.deployment.model.dtype
        flags["dtype"] = widths.get(s.weight_dtype or own, widths.get(own, "auto"))
    drafting = speculation.asked(s.speculation, s.engine, s.engine_args)
    if drafting is not None and drafting.field == "speculation":
        flags |= speculation.flags(drafting, d.engine)
    flags |= {k.strip().lstrip("-").replace("-", "_"): v for k, v in s.engine_args.items()}
    flags = {k: v for k, v in flags.items() if k not in d.variables}
    return {k: v for k, v in flags.items() if v is not None}, said


def _file(flags: dict[str, Any], s: Scenario) -> tuple[dict[str, Any], dict[str, str]]:
    """(what trtllm-serve takes as flags, the file for the rest)."""
    keys = {n for names in TENSORRT_LLM.keys.values() for n in names}
    on_line = {k: v for k, v in flags.items() if k in keys | _CLI_ONLY}
    inner = dict(flags.get("kv_cache_config") or {})
    if s.kv_dtype != "auto":
        inner["dtype"] = s.kv_dtype
    outer = {k: v for k, v in flags.items() if k not in on_line and k != "kv_cache_config"}
    cache = ("tokens_per_block", "max_tokens", "max_gpu_total_bytes", "enable_block_reuse",
             "max_attention_window", "use_kv_cache_manager_v2")  # fmt: skip
    inner |= {k: outer.pop(k) for k in cache if k in outer}
    if not inner and not outer:
        return on_line, {}
    lines = [f"{k}: {json.dumps(v)}" for k, v in outer.items()]
    if inner:
        lines += ["kv_cache_config:", *(f"  {k}: {json.dumps(v)}" for k, v in inner.items())]
    on_line["extra_llm_api_options"] = CONFIG_FILE
    return on_line, {CONFIG_FILE: "\n".join(lines) + "\n"}


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


def _is_hub_id(model: Any) -> bool:
    return isinstance(model, str) and not model.endswith(".gguf")


def _typed(d: Dialect, name: str, value: Any) -> tuple[str, str | None]:
    """A flag as it is typed, and its value; None for a switch."""
    if isinstance(value, bool) and d is not TENSORRT_LLM:
        return d.written(name if value else f"no_{name}"), None
    if isinstance(value, bool | dict | list | tuple):
        return d.written(name), json.dumps(value, separators=(",", ":"))
    return d.written(name), str(value) if isinstance(value, str | int) else repr(value)


def _times(s: Scenario) -> int:
    """How many of the commands make the deployment: data-parallel ranks where no flag starts them."""
    engine = "llama.cpp" if s.engine == "ik_llama.cpp" else s.engine
    return s.replicas * (1 if "dp" in DIALECTS[engine].keys else s.dp)


def _notes(w: Workings, s: Scenario) -> tuple[str, ...]:
    notes = []
    if not w.plan.verdict.fits:
        notes.append(w.plan.verdict.sentence)
    for name in _longer(w):
        limit = w.deployment.model.max_context_tokens or 0
        notes.append(
            f"the model states a limit of {limit:,} tokens: {s.engine} refuses a longer one unless "
            f"{name}=1, and answers beyond it may be nonsense"
        )
    plain = w.deployment.model.quantisation is None
    narrow = s.weight_dtype not in (None, "bf16", "fp16")
    by_library = s.engine == "ollama" and s.weight_dtype == LIBRARY_WEIGHTS
    by_engine = plain and s.weight_dtype == "fp8" and s.engine in ("vllm", "sglang")
    if narrow and not (by_library or by_engine):
        notes.append(f"needs a checkpoint of this model in {s.weight_dtype}")
    if s.engine in ("llama.cpp", "ik_llama.cpp") and not str(s.model).endswith(".gguf"):
        notes.append(
            "llama.cpp loads GGUF files: name one (--model), or a repository that holds one"
        )
    if s.engine == "ollama" and not str(s.model).endswith(".gguf"):
        notes.append("the name is what the Ollama library should call this model: check it there")
        if s.weight_dtype is None and plain:
            notes.append(
                f"the library's default weights are {LIBRARY_WEIGHTS}, this plan's are not"
            )
    if s.speculation and "max_concurrency" in s.speculation:
        notes.append("no flag here says speculation's max_concurrency: set the engine's own")
    if (times := _times(s)) > 1:
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
    count = s.gpu_count * s.replicas // _times(s)
    lines = [f"# {count} × {cards}, {made.dialect.label} {version}".rstrip()]
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


__all__ = ["Launch", "default_share", "launch", "shell"]
