"""What llama.cpp, ik_llama.cpp and Ollama print as they load: buffers by device, the cache, the context."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from kvroom.engines.log_memory import at_stage, short
from kvroom.engines.log_reader import LogReader
from kvroom.engines.log_shapes import Figures, Record, Shape, size, whole
from kvroom.engines.shortage import Shortage
from kvroom.errors import KvroomError
from kvroom.models.dtypes import CACHE_ALIASES
from kvroom.models.weight_dtypes import named

ENGINE = "llama.cpp"
BUFFERS = {"model": "weights", "KV": "kv", "RS": "state", "compute": "compute", "output": "output"}
SERVER = "server"
"""The setting that holds what a server says before it loads anything."""
KEPT = ("ollama", SERVER)
_FLASH = {"1": True, "0": False, "enabled": True, "disabled": False}
"""Words for flash attention; ``auto`` leaves it to what is printed of it later."""
_FILE_WEIGHTS = re.compile(
    r"[-._]((?:i?q\d\w*?|bf16|f16|f32|mxfp4))(?:-\d{5}-of-\d{5})?\.gguf$", re.IGNORECASE
)
_PAIRS = re.compile(r"(\w+)=(?:\"([^\"]*)\"|(\S*))")
_HOST = re.compile(r"CPU|Host|host", re.IGNORECASE)


def _buffer(record: Record, match: re.Match[str]) -> None:
    """One device's buffer of weights, cache, state or work; contexts of a draft add none of their own."""
    record.part(BUFFERS[match["kind"] or "model"], match["device"], size(match["size"]))


def _cache(record: Record, match: re.Match[str]) -> None:
    """One cache: models with windows have two, told apart by cells and layers."""
    cells, layers = whole(match["cells"]), whole(match["layers"])
    seqs = re.search(r"(\d+)/(\d+) seqs", match[0])
    slots, streams = (int(seqs[1][:9]), int(seqs[2][:9])) if seqs else (1, 1)
    if cells is not None:
        record.part("cells", f"{cells} x {layers}", cells * max(1, streams))
    record.part("caches", f"{cells} x {layers}", size(match["size"]))
    record.add("k_type", match["k"])
    record.add("v_type", match["v"])
    if seqs:
        record.add("n_seq_max", slots)
        record.settings["shared_cells"] = streams == 1 < slots


def _self_size(record: Record, match: re.Match[str]) -> None:
    record.part("caches", "self", size(match["size"]))


def _command(record: Record, match: re.Match[str]) -> None:
    record.settings["command"] = match["rest"]


def _word(name: str) -> Callable[[Record, re.Match[str]], None]:
    """Keeps a setting's word."""

    def keep(record: Record, match: re.Match[str]) -> None:
        record.settings[name] = match["name"]

    return keep


def _state(record: Record, match: re.Match[str]) -> None:
    """The recurrent layers' state, all devices together."""
    record.part("states", "all", size(match["size"]))


def _card(record: Record, match: re.Match[str]) -> None:
    """One card: those that are used, or those that are there, are counted by their names."""
    record.part("cards " + ("used" if "using" in match[0] else "seen"), match["device"], 1)
    record.add("gpu", match["gpu"].strip()[:300] or None)


def _ftype(record: Record, match: re.Match[str]) -> None:
    """The file's mix as its name is written: ``Q4_K - Medium`` is q4_k_m."""
    word = re.sub(r"\s*-\s*(Small|Medium|Large)\b", lambda m: "_" + m[1][0], match["name"])
    record.settings["file_type"] = word.split()[0].lower()


def _server(record: Record, **more: Any) -> dict[str, Any]:
    """What Ollama's server says once, for every model that it loads: it stays with the next start."""
    record.settings["ollama"] = True
    server: dict[str, Any] = record.settings.setdefault(SERVER, {"cards": {}})
    server.update(more)
    return server


def _environment(record: Record, match: re.Match[str]) -> None:
    variables = re.findall(r"OLLAMA_(\w+):(\S*?)(?=\s|\]|$)", match["rest"])
    _server(record, env={name.lower(): value for name, value in variables[:100]})


def _listening(record: Record, match: re.Match[str]) -> None:
    _server(record, version=match["engine_version"])


def _compute(record: Record, match: re.Match[str]) -> None:
    """One card as Ollama's server finds it; newer ones call it CUDA0 and describe it."""
    fields = {k: a or b for k, a, b in _PAIRS.findall(match["rest"])}
    if fields.get("library", "").lower() == "cpu":
        return
    cards = _server(record)["cards"]
    if len(cards) < 1000:
        name = fields.get("description") or fields.get("name") or ""
        cards[fields.get("id", str(len(cards)))] = (name[:300], size(fields.get("total", "")))


def _ollama(record: Record, match: re.Match[str]) -> None:
    kind = {"model weights": "weights", "kv cache": "kv", "compute graph": "compute"}
    record.part(kind[match["kind"]], match["device"], size(match["size"]))
    record.settings["ollama"] = True


_SCHEDULED = {
    "memory.weights.total": "weights_bytes",
    "memory.required.kv": "kv_bytes",
    "memory.graph.full": "activation_peak_bytes",
    "memory.available": "free_before_load_bytes",
}
"""What Ollama's scheduler reckoned before it loaded, up to 0.11 by itself."""


def _scheduled(record: Record, match: re.Match[str]) -> None:
    """The scheduler's own estimate: weights, cache and graph together, and the layers that it placed."""
    fields = dict(re.findall(r"([\w.]+)=(?:\"?\[?)([\d.]+ [KMGT]?i?B|\d+)", match["rest"]))
    record.settings["ollama"] = True
    record.settings["scheduled"] = {
        name: size(fields[word]) for word, name in _SCHEDULED.items() if word in fields
    }
    for word, name in (("layers.offload", "offloaded_layers"), ("layers.model", "all_layers")):
        if fields.get(word, "").isdecimal():
            record.add(name, int(fields[word][:9]))


def _no_room(record: Record, match: re.Match[str]) -> None:
    """A device's allocation that failed; the line behind it says what for."""
    short(record, Shortage(stage=BEFORE[bool(record.parts.get("weights"))],
                           tried_bytes=size(match["tried"]), text=match[0][:400]))  # fmt: skip


def _in_bytes(record: Record, match: re.Match[str]) -> None:
    """The same without a line of the driver's before it."""
    if not record.shortages:
        stage = BEFORE[bool(record.parts.get("weights"))]
        tried = size(f"{match['bytes'][:18]} bytes")
        short(record, Shortage(stage=stage, tried_bytes=tried, text=match[0][:400]))


BEFORE = {False: "load", True: "buffers"}
"""What is under way before and after the weights' buffers are printed."""
_WHAT = {"kv cache": "cache", "rs cache": "cache", "compute": "buffers", "DSV4": "cache"}


def _what_for(record: Record, match: re.Match[str]) -> None:
    """What the buffer was for."""
    at_stage(record, next((s for w, s in _WHAT.items() if w in match[0]), "load"), match[0])


def _system(record: Record, match: re.Match[str]) -> None:
    """Ollama's own check before it loads."""
    record.settings["ollama"] = True
    short(record, Shortage(stage="load", tried_bytes=size(match["need"]),
                           free_bytes=size(match["free"]), text=match[0][:400]))  # fmt: skip


def _error(record: Record, match: re.Match[str]) -> None:
    if not record.shortages:
        loaded = any(record.parts.get(name) for name in ("kv", "caches", "compute"))
        stage = "serve" if loaded else BEFORE[bool(record.parts.get("weights"))]
        short(record, Shortage(stage=stage, text=match[0][:400]))


def _runner(record: Record, match: re.Match[str]) -> None:
    record.settings["ollama"] = True
    if not record.shortages:
        short(record, Shortage(stage="", text=match[0][:400]))


SHAPES: tuple[Shape, ...] = (
    Shape("build: ", r"build: (?P<engine_version>\d+) \(", opens=True),
    Shape("starting ", r"starting .*?(?:server|runner).*?cmd=(?P<rest>.*)", opens=True, read=_command),
    Shape("meta data with", r"key-value pairs.* from (?P<model>\S+\.gguf)"),
    Shape("general.name", r"general\.name\s*(?:str)?\s*= *{name}$"),
    Shape("n_ctx", r"\bn_ctx\s*= *{n_ctx}\b"),
    Shape("n_ctx_train", r"n_ctx_train\s*= *{n_ctx_train}\b"),
    Shape("n_seq_max", r"\bn_seq_max\s*= *{n_seq_max}\b"),
    Shape("n_batch", r"\bn_batch\s*= *{n_batch}\b"),
    Shape("n_ubatch", r"\bn_ubatch\s*= *{n_ubatch}\b"),
    Shape("kv_unified", r"kv_unified\s*= *(?P<name>true|false)", read=_word("kv_unified")),
    Shape("flash_attn", r"flash_attn\s*= *(?P<name>\w+)", read=_word("flash_attn")),
    Shape("layers to GPU", r"offloaded {offloaded_layers}/{all_layers} layers to GPU"),
    Shape(
        "buffer size",
        r"(?P<device>[\w.:+-]+)\s+(?:(?P<kind>model|KV|RS|compute|output)\s+)?buffer size"
        r"\s*= *(?P<size>[\d.,]+ ?[KMG]i?B)",
        read=_buffer,
    ),
    Shape(
        " cells",
        r"size\s*= *(?P<size>[\d.,]+ ?[KMG]i?B) *\( *(?P<cells>\d+) cells, *(?P<layers>\d+) layers"
        r".*?K \((?P<k>\w+)\)(?:.*?V \((?P<v>\w+)\))?",
        read=_cache,
    ),
    Shape(" self size", r"(?:KV|kv) self size\s*= *(?P<size>[\d.,]+ ?[KMG]i?B)", read=_self_size),
    Shape(" cells", r"recurrent: size\s*= *(?P<size>[\d.,]+ ?[KMG]i?B)", read=_state),
    Shape("file type", r"file type\s*= *(?P<name>\w.*?)\s*$", read=_ftype),
    Shape("model ftype", r"model ftype\s*= *(?P<name>\w.*?)\s*$", read=_ftype),
    Shape(
        "Flash Attention was auto",
        r"was auto, set to (?P<name>\w+)",
        read=_word("flash_attn"),
    ),
    Shape(
        "using device",
        r"using device (?P<device>\w+) \((?P<gpu>[^()]*(?:\([^()]*\)[^()]*)*)\)",
        read=_card,
    ),
    Shape(
        "compute capability", r"Device (?P<device>\d+): (?P<gpu>.+?), compute capability", read=_card
    ),
    Shape("memory.required.full", r"(?P<rest>layers\..*memory\.required\.full.*)", read=_scheduled),
    Shape("server config", r"msg=\"server config\" env=(?P<rest>.*)", read=_environment),
    Shape("(version ", r"Listening on .*\(version (?P<engine_version>[\w.+-]+)\)", read=_listening),
    Shape("inference compute", r"msg=\"inference compute\" (?P<rest>.*)", read=_compute),
    Shape(
        " msg=",
        r"msg=\"(?P<kind>model weights|kv cache|compute graph)\" device=\"?(?P<device>[^\s\"]+)\"?"
        r" size=\"(?P<size>[\d.]+ [KMGT]i?B)\"",
        read=_ollama,
    ),
    # no room for an allocation
    Shape(
        "alloc_buffer: ",
        r"alloc_buffer: (?:allocating|error: failed to allocate buffer, size =) *"
        r"(?P<tried>[\d.,]+ MiB).*(?:out of memory|$)",
        read=_no_room,
    ),
    Shape(
        "failed to allocate",
        r"failed to allocate (?:buffer for (?:kv|rs) cache|buffer for DSV4|compute (?:pp |tg )?buffers).*",
        read=_what_for,
    ),
    Shape("unable to allocate", r"unable to allocate \w+ buffer.*", read=_what_for),
    Shape("buffer of size", r"failed to allocate \w+ buffer of size (?P<bytes>\d+)", read=_in_bytes),
    Shape("allocation of size", r"Device memory allocation of size (?P<bytes>\d+) failed", read=_in_bytes),
    Shape(
        "more system memory",
        r"requires more system memory \((?P<need>[\d.]+ \w+)\) than is available "
        r"\((?P<free>[\d.]+ \w+)\)",
        read=_system,
    ),
    Shape("has terminated", r"runner process has terminated: .*(?:out of memory|allocate).*", read=_runner),
    Shape("CUDA error: out of memory", r"CUDA error: out of memory.*", common=True, read=_error),
)  # fmt: skip


def _accounts(record: Record) -> dict[str, dict[str, int]]:
    """Accounts' figures by device."""
    cache, state = record.parts.get("kv", {}), record.parts.get("state", {})
    return {
        "weights_bytes": record.parts.get("weights", {}),
        "kv_bytes": {d: cache.get(d, 0) + state.get(d, 0) for d in (*cache, *state)},
        "activation_peak_bytes": record.parts.get("compute", {}),
    }


def _of_llama_cpp(record: Record) -> dict[str, Any]:
    args: dict[str, Any] = {
        flag: record.last(name)
        for name, flag in (
            ("n_ctx", "ctx_size"), ("n_seq_max", "parallel"), ("n_ubatch", "ubatch_size"),
            ("n_batch", "batch_size"), ("offloaded_layers", "n_gpu_layers"),
        )
        if record.last(name) is not None
    }  # fmt: skip
    if record.settings.get("kv_unified") == "true" or (
        "kv_unified" not in record.settings and record.settings.get("shared_cells")
    ):
        args["kv_unified"] = True
    flash = _FLASH.get(str(record.settings.get("flash_attn")))
    if flash is not None:
        args["flash_attn"] = flash
    question: dict[str, Any] = {"engine": ENGINE, "engine_args": args}
    version = record.last("engine_version")
    if version:
        question["engine_version"] = str(version)
    return question


def _of_ollama(record: Record) -> dict[str, Any]:
    """Ollama's settings: what its runner was started with, else its server's environment.

    ``OLLAMA_FLASH_ATTENTION:false`` and zeros are what is printed of a variable that is not set.
    """
    server = record.settings.get(SERVER) or {}
    env = {
        key: value
        for key, value in server.get("env", {}).items()
        if value not in ("", "0", "false")
    }
    question: dict[str, Any] = {"engine": "ollama"}
    args: dict[str, Any] = {}
    for name in ("num_parallel", "context_length", "gpu_overhead"):
        if env.get(name, "").isdecimal():
            args[name] = int(env[name][:18])
    for name in ("flash_attention", "sched_spread"):
        if env.get(name) in ("1", "true"):
            args[name] = True
    typed = dict(re.findall(r"--?([a-z][\w-]*)[ =]([^\s\"]+)", record.settings.get("command", "")))
    for flag, name in (("parallel", "num_parallel"), ("batch-size", "num_batch")):
        if typed.get(flag, "").isdecimal():
            args[name] = int(typed[flag][:9])
    flash = _FLASH.get(str(record.settings.get("flash_attn")))
    if flash is not None:
        args["flash_attention"] = flash
    total = record.last("n_ctx") or int(typed.get("ctx-size", "0")[:9] or 0)
    if total:
        args.pop("context_length", None)
        args["num_ctx"] = max(1, total // args.get("num_parallel", 1))
    if "kv_cache_type" in env or "kv-cache-type" in typed:
        question["kv_dtype"] = typed.get("kv-cache-type") or env["kv_cache_type"]
    if server.get("version"):
        question["engine_version"] = server["version"]
    return question | {"engine_args": args}


class LlamaCppLog(LogReader):
    """llama.cpp's log, and that of what is built on it."""

    def figures(self, record: Record) -> Figures:
        """The figures under their common names: of the GPU that holds most, and what host memory holds.

        The cache is keys, values and recurrent state. Where no device's part is printed it is the whole.
        """
        figures: Figures = {
            "max_model_len": record.last("n_ctx"),
            "n_seq_max": record.last("n_seq_max"),
        }
        cells = record.parts.get("cells")
        if cells:
            figures["kv_tokens"] = max(cells.values())
        state = record.parts.get("state") or record.parts.get("states") or {}
        figures["state_bytes"] = sum(state.values()) if state else None
        parts = _accounts(record)
        if by_gpu := self.devices(record):
            fullest: Figures = max(by_gpu, key=lambda f: sum(f.values()))
            figures |= fullest
        for key, held in parts.items():
            if host := [value for key, value in held.items() if _HOST.search(key)]:
                figures[key.replace("_bytes", "_host_bytes")] = sum(host)
        if not parts["kv_bytes"] and (caches := record.parts.get("caches")):
            figures["kv_bytes"] = sum(caches.values()) + sum(state.values())
        cards: dict[str, Any] = (record.settings.get(SERVER) or {}).get("cards", {})
        figures["total_gpu_bytes"] = min((card for _, card in cards.values() if card), default=None)
        for name, value in (record.settings.get("scheduled") or {}).items():
            if figures.get(name) is None:
                figures[name] = value
        return {key: value for key, value in figures.items() if value is not None}

    def question(self, record: Record) -> dict[str, Any]:
        """The Scenario's keys as far as the log states them."""
        model = record.last("model") or record.last("name")
        k, v = record.last("k_type"), record.last("v_type")
        question: dict[str, Any] = {"model": model} if model else {}
        cards = record.parts.get("cards used") or record.parts.get("cards seen") or {}
        count = len(cards)
        if record.last("gpu"):
            question["gpu"] = record.last("gpu")
        if record.settings.get("ollama"):
            question |= _of_ollama(record)
            server = (record.settings.get(SERVER) or {}).get("cards", {})
            names = [name for name, _ in server.values() if name]
            if names:
                question["gpu"], count = names[0], len(server)
        else:
            question |= _of_llama_cpp(record)
            if k and k != v and v:
                question["engine_args"] |= {"cache_type_k": k, "cache_type_v": v}
        if count > 1:
            question["pp"] = count
        if k and k == v and k != "f16":
            question["kv_dtype"] = k
        return question

    def quantization(self, record: Record) -> str | None:
        """How the file stores its weights: as its header says, else as its name does."""
        file_type: str | None = record.settings.get("file_type")
        named = _FILE_WEIGHTS.search(str(record.last("model") or ""))
        return file_type or (named[1].lower() if named else None)

    def devices(self, record: Record) -> tuple[Figures, ...]:
        """What each GPU holds, in the order of their names."""
        parts = _accounts(record)
        names = {d for held in parts.values() for d in held if not _HOST.search(d)}
        return tuple(
            {key: held[name] for key, held in parts.items() if name in held}
            for name in sorted(names, key=lambda d: (len(d), d))
        )

    def weight_dtype(self, word: str) -> str | None:
        """A GGUF type."""
        try:
            return named(CACHE_ALIASES.get(word, word)).name
        except KvroomError:
            return None


LOG = LlamaCppLog(
    engine=ENGINE,
    shapes=SHAPES,
    lasting=KEPT,
    buffers=True,
    ways_out={"buffers": (("ubatch_size", (256, 128, 64, 32)),)},
    length_flags=("ctx_size", "num_ctx", "context_length"),
)
