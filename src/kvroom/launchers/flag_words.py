"""Reading the flags behind an engine's program into a Scenario's keys, by the engine's dialect."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from math import isfinite
from typing import Any

from kvroom.errors import KvroomError, did_you_mean
from kvroom.launchers.dialects import (
    LISTS,
    LLAMA_CPP,
    OPTIONAL,
    SGLANG,
    UNSAID,
    VLLM,
    Dialect,
    is_switch,
    known_flags,
    takes_value,
)
from kvroom.launchers.shell import is_open
from kvroom.models.load import load
from kvroom.scenario.speculation import from_flags
from kvroom.units import GIB

HARMLESS = frozenset(
    (
        "VLLM_CPU_KVCACHE_SPACE", "VLLM_ALLOW_LONG_MAX_MODEL_LEN", "VLLM_LOGGING_LEVEL", "VLLM_API_KEY",
        "VLLM_PORT", "VLLM_HOST_IP", "VLLM_USE_MODELSCOPE", "VLLM_CACHE_ROOT", "VLLM_NO_USAGE_STATS",
        "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN", "SGLANG_USE_MODELSCOPE", "VLLM_LOG_STATS_INTERVAL",
        "VLLM_WORKER_MULTIPROC_METHOD", "VLLM_ENGINE_READY_TIMEOUT_S", "VLLM_CONFIGURE_LOGGING",
    )
)  # fmt: skip
"""Variables that change nothing that is answered here, or are read elsewhere."""
_SCALED = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])")
_FLAG = re.compile(r"--?[A-Za-z]")
_STORED = {"fp8": "fp8", "bitsandbytes": "int4"}
"""Quantisation at load, by the engine's word; every other says what the checkpoint is."""


_METHODS = """
    none awq awq_marlin auto-round bitblas bitsandbytes compressed-tensors cpu_awq deepspeedfp
    experts_int8 fbgemm_fp8 fp8 fp_quant gguf gptq gptq_bitblas gptq_marlin gptq_marlin_24 hqq inc
    int8 ipex marlin modelopt modelopt_fp4 modelopt_fp8 modelopt_mixed modelopt_mxfp8 modelslim
    moe_wna16 mxfp4 mxfp8 neuron_quant nvfp4 petit_nvfp4 ptpc_fp8 qoq qqq quark
    quark_int4fp8_moe rtn torchao tpu_int8 unquant w4afp8 w8a8_fp8 w8a8_int8 humming
    online fp8_per_tensor fp8_per_block int8_per_channel_weight_only
"""
METHODS = frozenset(_METHODS.split())
"""What ``--quantization`` takes in vLLM and SGLang, of any release."""


class Reading:
    """One command's flags, read by one engine's dialect."""

    def __init__(self, dialect: Dialect, env: Mapping[str, str], files: Mapping[str, str]) -> None:
        self.d, self.env, self.files = dialect, env, files
        self.keys: dict[str, Any] = {"engine": dialect.engine}
        self.args: dict[str, Any] = {}
        self.warnings: list[str] = []
        self.quantisation: str | None = None

    def read(self, words: list[str]) -> tuple[dict[str, Any], list[str], str]:
        """(Scenario keys, warnings, the model as typed where it is unset) of the words behind the
        program."""
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
                if not taken and takes_value(self.d, name):
                    raise KvroomError(
                        word, None, "wants a value", f"Write {word} VALUE, or leave it out."
                    )
                value = " ".join(taken) if taken else "true"
            self._flag(name, inner.replace("-", "_") if dot else "", value, bare=word)
        unset = self._model(positional)
        self._environment()
        return *self._done(), unset

    def _name(self, typed: str) -> str:
        name = typed.replace("-", "_")
        name = self.d.short.get(name, name)
        if self.d is LLAMA_CPP and name not in self.d.model_flags:
            from kvroom.engines.llama_cpp.flag_names import SHORT

            name = SHORT.get(name, name)
        return name

    def _values(self, name: str, following: list[str]) -> list[str]:
        """The words that belong to the flag."""
        first = following[0] if following else None
        if first is None or _FLAG.match(first):
            return []
        if is_switch(self.d, name) or name in OPTIONAL:
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
        told = name in self.d.names or name in known_flags(self.d) or name == "quantization"
        if told and is_open(value) and name not in (*UNSAID, *self.d.model_flags):
            raise KvroomError(
                bare.partition("=")[0], value, "is not set by the command",
                "Put the value in, or VARIABLE=value in front of the command.",
            )  # fmt: skip
        if key is not None:
            self._key(key, name, value, bare)
        elif name in self.d.model_flags:
            self.keys["model"] = value
        elif name in ("quantization", "weight_dtype"):
            self.quantisation = _method(self.d, bare, value.lower())
        elif name == "enable_expert_parallel" and value != "false":
            self.keys["ep"] = 0  # all ranks; counted at the end
        elif name in ("extra_llm_api_options", "config") and self.d is not LLAMA_CPP:
            self._file(value)
        elif name in UNSAID:
            return
        elif name in known_flags(self.d) or name.removeprefix("no_") in known_flags(self.d):
            made = value_of(value)
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

    def _key(self, key: str, name: str, value: str, bare: str) -> None:
        made = value_of(value)
        if key == "kv_dtype":
            ours = {theirs: ours for ours, theirs in self.d.dtypes.items()}
            self.keys[key] = ours.get(value, value)
        elif key == "context_tokens" and (made == -1 or value == "auto"):
            self.args[name] = -1
        elif isinstance(made, int):
            self.keys[key] = made
        else:
            fix = "Write a whole number, such as 2."
            raise KvroomError(bare.partition("=")[0], value, "is no whole number", fix)

    def _file(self, name: str) -> None:
        """An engine's file of options, where its text is in the command."""
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
                self.keys["kv_dtype"] = str(value_of(value.strip()))
            elif not key.startswith(" ") or outer == "kv_cache_config":
                name = self._name(key.strip())
                self._flag(name, "", _unquoted(value.strip()), bare=key.strip())

    def _model(self, positional: list[str]) -> str:
        """Take the model; what it is typed as where only a shell could tell."""
        if self.d.model_flag is None and "model" not in self.keys and positional:
            self.keys["model"] = positional.pop(0)
        for word in positional[:5]:
            self.warnings.append(f"'{word[:60]}' is left out: it belongs to no flag")
        if is_open(str(self.keys.get("model", ""))):
            return str(self.keys.pop("model"))
        return ""

    def _environment(self) -> None:
        space = self.env.get("VLLM_CPU_KVCACHE_SPACE")
        if self.d is VLLM and space and space.replace(".", "", 1).isdecimal():
            self.args.setdefault("kv_cache_memory_bytes", int(float(space) * GIB))
        for name, value in self.env.items():
            if name.lower() in self.d.variables:
                self.args.setdefault(name.lower(), value_of(value))
            elif name == "VLLM_ATTENTION_BACKEND" and self.d is VLLM:
                self.args.setdefault("attention_backend", value)
            elif name.startswith(self.d.prefixes or "\0") and not (
                name in HARMLESS or (name, value) == ("VLLM_USE_V1", "1")
            ):
                self.warnings.append(f"{name} is not used: it may change the answer")
        devices = self.env.get("CUDA_VISIBLE_DEVICES", "")
        if self.d is LLAMA_CPP and devices:
            self.keys["gpu_count"] = len([x for x in devices.split(",") if x.strip()])

    def _done(self) -> tuple[dict[str, Any], list[str]]:
        if self.d is SGLANG and self.args.get("enable_dp_attention") and "dp" in self.keys:
            self.args["dp_size"] = self.keys.pop("dp")
        if self.d is LLAMA_CPP:
            self._cache_types()
            if not self.args.keys() & {"parallel", "ctx_size", "kv_unified_per_slot"}:
                self.args["parallel"] = -1  # a server's own number of slots
        if self.keys.get("ep") == 0:
            self.keys["ep"] = self.keys.get("tp", 1) * self.keys.get("dp", 1)
        stored = _STORED.get(self.quantisation or "")
        if stored and self._unquantised():
            self.keys["weight_dtype"] = stored
        drafting, self.args = from_flags(self.d.engine, self.args, self.keys.get("model"), load)
        if drafting is not None:
            self.keys["speculation"] = drafting
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


def _method(dialect: Dialect, bare: str, word: str) -> str:
    """How the weights are quantised, in the engine's word; KvroomError where it has no such."""
    if dialect in (VLLM, SGLANG) and word not in METHODS and not is_open(word):
        fix = did_you_mean(word, sorted(METHODS), f"One of: {', '.join(sorted(METHODS))}.")
        why = f"is no quantisation of {dialect.label}"
        raise KvroomError(bare.partition("=")[0], word, why, fix)
    return word


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def value_of(text: str) -> Any:
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
