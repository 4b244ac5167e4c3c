"""What llama.cpp, ik_llama.cpp and Ollama print as they load: buffers by device, the cache, the context."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from kvroom.evidence.shapes import Figures, Record, Shape, shape, size, whole

ENGINE = "llama.cpp"
BUFFERS = {"model": "weights", "KV": "kv", "RS": "state", "compute": "compute", "output": "output"}
_HOST = re.compile(r"CPU|Host|host", re.IGNORECASE)


def _buffer(record: Record, found: re.Match[str]) -> None:
    """One device's buffer of weights, cache, state or work; contexts of a draft add none of their own."""
    record.part(BUFFERS[found["kind"] or "model"], found["device"], size(found["size"]))


def _cache(record: Record, found: re.Match[str]) -> None:
    """One cache: models with windows have two, told apart by cells and layers."""
    cells, layers = whole(found["cells"]), whole(found["layers"])
    record.part("cells", f"{cells} x {layers}", cells)
    record.part("caches", f"{cells} x {layers}", size(found["size"]))
    record.add("k_type", found["k"])
    record.add("v_type", found["v"])
    streams = re.search(r"(\d+)/(\d+) seqs", found[0])
    if streams:
        record.add("n_seq_max", int(streams[1][:9]))


def _self_size(record: Record, found: re.Match[str]) -> None:
    record.part("caches", "self", size(found["size"]))


def _command(record: Record, found: re.Match[str]) -> None:
    record.settings["command"] = found["rest"]


def _word(name: str) -> Callable[[Record, re.Match[str]], None]:
    """Keeps a setting's word."""

    def keep(record: Record, found: re.Match[str]) -> None:
        record.settings[name] = found["name"]

    return keep


def _ollama(record: Record, found: re.Match[str]) -> None:
    kind = {"model weights": "weights", "kv cache": "kv", "compute graph": "compute"}
    record.part(kind[found["kind"]], found["device"], size(found["size"]))
    record.settings["ollama"] = True


SHAPES: tuple[Shape, ...] = (
    shape("build: ", r"build: (?P<engine_version>\d+) \(", opens=True),
    shape("starting ", r"starting .*?(?:server|runner).*?cmd=(?P<rest>.*)", opens=True, read=_command),
    shape("meta data with", r"key-value pairs.* from (?P<model>\S+\.gguf)"),
    shape("general.name", r"general\.name\s*(?:str)?\s*= *{name}$"),
    shape("n_ctx", r"\bn_ctx\s*= *{n_ctx}\b"),
    shape("n_ctx_train", r"n_ctx_train\s*= *{n_ctx_train}\b"),
    shape("n_seq_max", r"\bn_seq_max\s*= *{n_seq_max}\b"),
    shape("n_batch", r"\bn_batch\s*= *{n_batch}\b"),
    shape("n_ubatch", r"\bn_ubatch\s*= *{n_ubatch}\b"),
    shape("kv_unified", r"kv_unified\s*= *(?P<name>true|false)", read=_word("kv_unified")),
    shape("flash_attn", r"flash_attn\s*= *(?P<name>\w+)", read=_word("flash_attn")),
    shape("layers to GPU", r"offloaded {offloaded_layers}/{all_layers} layers to GPU"),
    shape(
        "buffer size",
        r"(?P<device>[\w.:+-]+)\s+(?:(?P<kind>model|KV|RS|compute|output)\s+)?buffer size"
        r"\s*= *(?P<size>[\d.,]+ ?[KMG]i?B)",
        read=_buffer,
    ),
    shape(
        " cells",
        r"size\s*= *(?P<size>[\d.,]+ ?[KMG]i?B) *\( *(?P<cells>\d+) cells, *(?P<layers>\d+) layers"
        r".*?K \((?P<k>\w+)\)(?:.*?V \((?P<v>\w+)\))?",
        read=_cache,
    ),
    shape(" self size", r"(?:KV|kv) self size\s*= *(?P<size>[\d.,]+ ?[KMG]i?B)", read=_self_size),
    shape("using device", r"using device \w+ \({gpu}\)"),
    shape("compute capability", r"Device \d+: {gpu}, compute capability"),
    shape(
        " msg=",
        r"msg=\"(?P<kind>model weights|kv cache|compute graph)\" device=\"?(?P<device>[^\s\"]+)\"?"
        r" size=\"(?P<size>[\d.]+ [KMGT]i?B)\"",
        read=_ollama,
    ),
)  # fmt: skip


def figures(r: Record) -> Figures:
    """The figures under their common names; buffers are added up over devices, host apart."""
    found: Figures = {"max_model_len": r.last("n_ctx"), "n_seq_max": r.last("n_seq_max")}
    caches = r.parts.get("caches") or r.parts.get("kv")
    if caches:
        found["kv_bytes"] = sum(caches.values())
        cells = r.parts.get("cells")
        if cells:
            found["kv_tokens"] = max(cells.values())
    for name, key in (
        ("weights", "weights_bytes"),
        ("compute", "activation_peak_bytes"),
        ("state", "state_bytes"),
    ):
        devices = {d: v for d, v in r.parts.get(name, {}).items() if not _HOST.search(d)}
        if devices:
            found[key] = sum(devices.values())
        host = {d: v for d, v in r.parts.get(name, {}).items() if _HOST.search(d)}
        if host:
            found[key.replace("_bytes", "_host_bytes")] = sum(host.values())
    return {n: v for n, v in found.items() if v is not None}


def question(r: Record) -> dict[str, Any]:
    """The Scenario's keys as far as the log states them."""
    ollama = bool(r.settings.get("ollama"))
    asked: dict[str, Any] = {"engine": "ollama" if ollama else ENGINE}
    model = r.last("model") or r.last("name")
    if model:
        asked["model"] = model
    version = r.last("engine_version")
    if version:
        asked["engine_version"] = str(version)
    if r.last("gpu"):
        asked["gpu"] = r.last("gpu")
    args: dict[str, Any] = {
        flag: r.last(name)
        for name, flag in (
            ("n_ctx", "ctx_size"), ("n_seq_max", "parallel"), ("n_ubatch", "ubatch_size"),
            ("n_batch", "batch_size"), ("offloaded_layers", "n_gpu_layers"),
        )
        if r.last(name) is not None
    }  # fmt: skip
    if ollama:
        args = {"num_ctx": r.last("n_ctx")} if r.last("n_ctx") else {}
    elif r.settings.get("kv_unified") == "true":
        args["kv_unified"] = True
    k, v = r.last("k_type"), r.last("v_type")
    if k and k == v and k != "f16":
        asked["kv_dtype"] = k
    elif k and v and k != v:
        args.update(cache_type_k=k, cache_type_v=v)
    asked["engine_args"] = args
    return asked


def quantisation(r: Record) -> str | None:
    """The file's own types say it."""
    return None
