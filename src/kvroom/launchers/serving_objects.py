"""Objects that say what an engine is to serve and not how it is called: KServe, llm-d, Ray Serve.

Each becomes the words of its engine's command.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from kvroom.engines.command_line import CommandLine
from kvroom.engines.registry import command_lines
from kvroom.errors import KvroomError
from kvroom.launchers.launched import flags, listed, word
from kvroom.units import GIB, parse_bytes

_URI = re.compile(r"^(?:hf|oci|pvc|s3|gs)://")


def model_of(uri: Any) -> str:
    """A model's name or path out of an address (``hf://Qwen/Qwen3-8B``)."""
    text = word(uri)
    return _URI.sub("" if text.startswith("hf:") else "/", text).partition("@")[0]


def _served_by() -> CommandLine:
    """The engine behind objects that name none."""
    return next(line for line in command_lines() if line.platform_program)


def serving_words(spec: Mapping[str, Any]) -> list[str] | None:
    """The command that ``spec`` comes to; None where it is no such object."""
    for read in (_llm_service, _inference_service, _ray):
        words = read(spec)
        if words is not None:
            return words
    return None


def _parallel(spec: Mapping[str, Any]) -> list[str]:
    """Flags of a ``parallelism``: tensor, pipeline, data, expert."""
    sizes = spec.get("parallelism")
    if not isinstance(sizes, dict):
        return []
    words: list[str] = []
    for key, flag in (("tensor", "--tensor-parallel-size"), ("pipeline", "--pipeline-parallel-size"),
                      ("data", "--data-parallel-size")):  # fmt: skip
        if isinstance(sizes.get(key), int) and sizes[key] > 1:
            words += [flag, str(sizes[key])]
    return [*words, "--enable-expert-parallel"] if sizes.get("expert") is True else words


def environment(container: Mapping[str, Any]) -> dict[str, str]:
    """A container's variables by name, those of other places left out."""
    variables = container.get("env")
    return {
        str(e.get("name")): word(e.get("value"))
        for e in listed(variables)
        if isinstance(e, dict) and "value" in e
    }


def _first_container(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    template = spec.get("template")
    containers = listed(template.get("containers")) if isinstance(template, dict) else []
    return next((container for container in containers if isinstance(container, dict)), {})


def _llm_service(spec: Mapping[str, Any]) -> list[str] | None:
    """KServe's LLMInferenceService: ``spec.model.uri`` with ``spec.parallelism``."""
    model = spec.get("model")
    if not isinstance(model, dict) or not isinstance(model.get("uri"), str):
        return None
    container = _first_container(spec)
    more = environment(container).get("VLLM_ADDITIONAL_ARGS", "").split()
    args = [word(w) for w in listed(container.get("args"))]
    command = [word(w) for w in listed(container.get("command"))]
    if command[:1] and command[0].endswith("sh"):
        return [*command, *args]
    variables = [
        f"{key}={value}"
        for key, value in environment(container).items()
        if key != "VLLM_ADDITIONAL_ARGS"
    ]
    words = [
        *_served_by().platform_program,
        model_of(model["uri"]),
        *_parallel(spec),
        *_drafts(spec),
        *_offloading(spec),
        *args,
        *more,
    ]
    return ["env", *variables, *words] if variables else words


def _drafts(spec: Mapping[str, Any]) -> list[str]:
    """The flag of a ``speculator``."""
    speculator = spec.get("speculator")
    if not isinstance(speculator, dict):
        return []
    config = speculator.get("config")
    settings = {
        key: int(value) if isinstance(value, str) and value.isdecimal() else value
        for key, value in (config if isinstance(config, dict) else {}).items()
    }
    model = speculator.get("model")
    if isinstance(model, dict) and model.get("uri"):
        settings["model"] = model_of(model["uri"])
    return ["--speculative-config", json.dumps(settings)] if settings else []


def _offloading(spec: Mapping[str, Any]) -> list[str]:
    """The flags of ``kvCacheOffloading`` to host memory."""
    offloading = spec.get("kvCacheOffloading")
    host = offloading.get("cpu") if isinstance(offloading, dict) else None
    size = host.get("size") if isinstance(host, dict) else None
    try:
        gib = parse_bytes("kvCacheOffloading.cpu.size", _kubernetes_size(size)) / GIB
    except KvroomError:
        return []
    return ["--kv-offloading-size", f"{gib:g}"]


def _kubernetes_size(size: Any) -> str:
    """``10Gi`` as ``10GiB``."""
    text = word(size)
    return f"{text}B" if re.fullmatch(r"[\d.]+[KMGTP]i?", text) else text


def serving_pools(spec: Mapping[str, Any]) -> list[tuple[Mapping[str, Any], list[str]]]:
    """The prompts' pool of an LLMInferenceService, which stands beside that of the answers."""
    pool = spec.get("prefill")
    if not isinstance(pool, dict) or not isinstance(spec.get("model"), dict):
        return []
    words = _llm_service({**spec, "template": {}, "parallelism": {}, **pool})
    container = _first_container(pool)
    return [] if words is None else [({**pool, **container}, words)]


def chart_tiers(spec: Mapping[str, Any], command: CommandLine) -> tuple[list[str], list[str]]:
    """(flags, variables) of a chart's model that keeps cache outside the card by LMCache."""
    config = spec.get("lmcacheConfig")
    if not isinstance(config, dict) or config.get("enabled") is not True:
        return [], []
    role = config.get("kvRole", "kv_both")
    connector = {"kv_connector": "LMCacheConnectorV1", "kv_role": role}
    size = config.get("cpuOffloadingBufferSize", config.get("maxLocalCpuSize"))
    disk = config.get("diskOffloadingBufferSize", config.get("maxLocalDiskSize"))
    variables = [] if size is None else [f"LMCACHE_MAX_LOCAL_CPU_SIZE={word(size)}"]
    if config.get("localCpu") is False or word(size) == "0":
        variables.append("LMCACHE_LOCAL_CPU=False")
    if disk not in (None, 0, "0"):
        variables.append(f"LMCACHE_MAX_LOCAL_DISK_SIZE={word(disk)}")
    return [command.typed("kv_transfer_config"), json.dumps(connector)], variables


def _inference_service(spec: Mapping[str, Any]) -> list[str] | None:
    """KServe's InferenceService, whose runtime for Hugging Face models is an engine's."""
    model = spec.get("model")
    if not isinstance(model, dict) or not isinstance(model.get("modelFormat"), dict):
        return None
    line = _served_by()
    if model["modelFormat"].get("name") not in ("huggingface", line.engine, line.label):
        return None
    args = [word(w) for w in listed(model.get("args"))]
    named = [arg for arg in args if re.match(r"--model[_-](id|dir)\b", arg)]
    kept = [arg for arg in args if not re.match(r"--(model[_-](name|id|dir)|backend|task)\b", arg)]
    uri = named[0].partition("=")[2] if named else model.get("storageUri")
    return (
        [*_served_by().platform_program, *([model_of(uri)] if uri else []), *kept]
        if uri or kept
        else None
    )


def _ray(spec: Mapping[str, Any]) -> list[str] | None:
    """One model of Ray Serve's LLM configs: ``model_loading_config`` and ``engine_kwargs``."""
    loading = spec.get("model_loading_config")
    if not isinstance(loading, dict):
        return None
    source = loading.get("model_source") or loading.get("model_id")
    options = spec.get("engine_kwargs")
    options = options if isinstance(options, dict) else {}
    off = [f"--no-{str(key).replace('_', '-')}" for key, value in options.items() if value is False]
    runtime = spec.get("runtime_env")
    variables = runtime.get("env_vars") if isinstance(runtime, dict) else None
    pairs = (
        [f"{key}={word(value)}" for key, value in variables.items()]
        if isinstance(variables, dict)
        else []
    )
    words = [
        *_served_by().platform_program,
        word(source),
        *flags({key: value for key, value in options.items() if value is not False}),
        *off,
    ]
    return ["env", *pairs, *words] if pairs else words


Pool = tuple[Mapping[str, Any], Mapping[str, Any], list[str]]
"""A pool of a chart's values, its container, the words."""


def modelservice(spec: Mapping[str, Any]) -> list[Pool]:
    """The pools of llm-d's model service: ``modelArtifacts`` with ``decode`` and ``prefill``."""
    artifacts = spec.get("modelArtifacts")
    if not isinstance(artifacts, dict):
        return []
    found: list[Pool] = []
    for pool in ("decode", "prefill"):
        part = spec.get(pool)
        if not isinstance(part, dict) or part.get("create") is False:
            continue
        for container in listed(part.get("containers")):
            if not isinstance(container, dict) or container.get("modelCommand") not in (
                "vllmServe",
                "imageDefault",
            ):
                continue
            model = model_of(artifacts.get("uri") or artifacts.get("name"))
            args = [word(w) for w in listed(container.get("args"))]
            found.append(
                (part, container, [*_served_by().platform_program, model, *_parallel(part), *args])
            )
    return found
