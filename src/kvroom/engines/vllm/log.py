"""What vLLM prints at its start, V0 and V1: figures, settings, refusals; and its metrics' cache line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kvroom.engines.adapters import FLAGS as ADAPTER_FLAGS
from kvroom.engines.log_memory import at_stage, memory_shapes
from kvroom.engines.log_reader import LogReader, PrintedStart, Remedy
from kvroom.engines.log_reprs import read_dict, read_keywords
from kvroom.engines.log_shapes import Figures, Record, Shape, refusal, size
from kvroom.engines.vllm.flags import MEMORY_FLAGS
from kvroom.engines.vllm.remedies import remedy
from kvroom.engines.vllm.versions import parse_release, rules_of, since

ENGINE = "vllm"

UNASKED = ("config", "cpu", "cpu_cache_bytes", "tpu_chips")
"""Settings that are told of the machine, not asked of the engine."""
DEGREES = {
    "tensor_parallel_size": "tp",
    "pipeline_parallel_size": "pp",
    "data_parallel_size": "dp",
    "decode_context_parallel_size": "dcp",
}
_ENGINE_WORDS = {  # the configuration line's names → the flags that set them
    "enable_prefix_caching": "enable_prefix_caching",
    "enforce_eager": "enforce_eager",
    "enable_chunked_prefill": "enable_chunked_prefill",
}


def _arguments(record: Record, match: re.Match[str]) -> None:
    record.settings.update(read_dict(match["rest"]))


def _namespace(record: Record, match: re.Match[str]) -> None:
    given = {key: value for key, value in read_keywords(match["rest"]).items() if value is not None}
    for key, value in given.items():
        record.settings.setdefault(key, value)


def _configuration(record: Record, match: re.Match[str]) -> None:
    record.add("engine_version", match["engine_version"])
    if match["rest"]:
        record.settings["config"] = read_keywords(match["rest"])


def _metrics(record: Record, match: re.Match[str]) -> None:
    labels = dict(re.findall(r'(\w+)="([^"]*)"', match["rest"]))
    for name in ("num_gpu_blocks", "block_size"):
        if labels.get(name, "").isdecimal():
            record.add({"num_gpu_blocks": "num_blocks"}.get(name, name), int(labels[name][:18]))
    dtype = labels.get("cache_dtype")
    if dtype:
        record.settings.setdefault("kv_cache_dtype", dtype)
    share = labels.get("gpu_memory_utilization")
    if share:
        record.settings.setdefault("gpu_memory_utilization", share)


def _stored(record: Record, match: re.Match[str]) -> None:
    record.settings.setdefault("kv_cache_dtype", match["rest"])


def _padding(record: Record, match: re.Match[str]) -> None:
    record.part("padding", match["layers"] + " " + match["share"], int(match["layers"][:9]))


def _free(record: Record, match: re.Match[str]) -> None:
    """Free and total memory, with the unit behind both: ``(78.66/79.19 GiB)``."""
    record.add("free_before_load_bytes", size(match["free"] + " GiB"))
    record.add("total_gpu_bytes", size(match["total"] + " GiB"))


def _cpu(record: Record, match: re.Match[str]) -> None:
    """The CPU platform's cache and memory, in GiB."""
    record.add("kv_available_bytes", size(match["cache"] + " GiB"))
    record.add("total_gpu_bytes", size(match["total"] + " GiB"))
    record.settings["cpu"] = True
    record.settings["cpu_cache_bytes"] = size(match["cache"] + " GiB")


def _hbm(record: Record, match: re.Match[str]) -> None:
    """A TPU chip's memory: what is used of it and what there is; how many chips the process has."""
    record.add("total_gpu_bytes", size(match["total"] + " GiB"))
    used = size(match["used"] + " GiB")
    if "Init model" in match.string and used:
        record.add("weights_bytes", used)
    record.settings["tpu_chips"] = 1 + match["rest"].count("(")


def _hbm_shares(record: Record, match: re.Match[str]) -> None:
    """What is left of a TPU process's share, over its chips."""
    chips = int(record.settings.get("tpu_chips", 1))
    left = size(match["rest"] + " GiB")
    if left is not None:
        record.add("kv_available_bytes", left // chips)
    total, cap = float(match["total"]), float(match["cap"])
    if total:
        record.add("gpu_memory_utilization", round(cap / total, 2))


FRAMES = {
    "load_model": "load",
    "process_weights_after_loading": "load",
    "profile_run": "profile",
    "determine_num_available_blocks": "profile",
    "determine_available_memory": "profile",
    "_dummy_sampler_run": "sampler",
    "initialize_kv_cache": "cache",
    "initialize_cache": "cache",
    "_allocate_kv_cache": "cache",
    "_allocate_kv_cache_tensors": "cache",
    "capture_model": "graphs",
    "compile_or_warm_up_model": "graphs",
    "kernel_warmup": "graphs",
    "execute_model": "serve",
}
"""Functions of its workers that a traceback names, and the stage of a start they are."""
PRINTED = (
    ("weights_bytes", "load"),
    ("kv_available_bytes", "profile"),
    ("cuda_graph_bytes", "graphs"),
)


def _sampler(record: Record, match: re.Match[str]) -> None:
    at_stage(record, "sampler", match[0])


SHAPES: tuple[Shape, ...] = (
    Shape("non-default args", r"non-default args:\s*(?P<rest>\{.*)", opens=True, read=_arguments),
    Shape("Namespace(", r"args: Namespace\((?P<rest>.*)", opens=True, read=_namespace),
    Shape(
        "LLM engine (v",
        r"LLM engine \(v?(?P<engine_version>[^\s)]+)\)(?: with config:\s*(?P<rest>.*))?",
        opens=True,
        read=_configuration,
    ),
    Shape("vLLM API server version", r"vLLM API server version v?{engine_version}(?:\s|$)"),
    Shape("█  version", r"█\s+version v?{engine_version}\s*$"),
    # weights
    Shape("odel weights take", r"odel weights take {weights_bytes}"),
    Shape("odel weights took", r"odel weights took {weights_bytes}"),
    Shape("odel loading took", r"odel loading took {weights_bytes}"),
    # V0's profile, one sentence on several lines, or one line of pairs
    Shape("total_gpu_memory", r"total_gpu_memory ?[(=]{total_gpu_bytes}"),
    Shape("gpu_memory_utilization", r"gpu_memory_utilization ?[(=]{gpu_memory_utilization}"),
    Shape("non_torch_memory", r"non_torch_memory(?: takes |=){non_torch_bytes}"),
    Shape("activation peak memory", r"activation peak memory takes {activation_peak_bytes}"),
    Shape("reserved for KV Cache", r"reserved for KV Cache is {kv_available_bytes}"),
    Shape("kv_cache_size=", r"kv_cache_size={kv_available_bytes}"),
    Shape("peak_torch_memory=", r"peak_torch_memory={peak_torch_bytes}"),
    # V1's ledger
    Shape("Free memory on device", r"\({free_before_load_bytes}/{total_gpu_bytes}\) on startup"),
    Shape("Free memory on device", r"\((?P<free>[\d.,]+)/(?P<total>[\d.,]+) GiB\)", read=_free),
    Shape(
        "GPU memory utilization",
        r"utilization (?:is )?\({gpu_memory_utilization}, {requested_bytes}\)",
    ),
    Shape("GiB for weight", r"{weights_bytes} for weights?,"),
    Shape("for consumed memory", r"{consumed_bytes} for consumed memory"),
    Shape("for peak activation", r"{activation_peak_bytes} for peak activation"),
    Shape("for non-torch memory", r"{non_torch_bytes} for non-torch memory"),
    # the DEBUG line that names all three accounts
    Shape(
        "torch peak memory increase",
        r"torch peak memory increase: {activation_peak_bytes}; non-torch forward increase memory: "
        r"{non_torch_bytes}(?:; weights memory: {weights_bytes})?",
    ),
    # a TPU's memory, chip by chip or all together
    Shape("hbm=[", r"hbm=\[\((?P<used>[\d.]+), (?P<total>[\d.]+)\)(?P<rest>[^\]]*)", read=_hbm),
    Shape(
        "total_hbm_limit_gb",
        r"total_hbm_limit_gb=(?P<total>[\d.]+)GiB \| total_hbm_limit_cap_gb=(?P<cap>[\d.]+)GiB \| "
        r"total_hbm_used_gb=(?P<used>[\d.]+)GiB.*?total_hbm_avail_gb=(?P<rest>[\d.]+)GiB",
        read=_hbm_shares,
    ),
    Shape("raph memory", r"{cuda_graph_bytes} for (?:CUDAG|NPU g|CPU g|XPUG)raph memory"),
    Shape("raph memory: ", r"Estimated CUDA graph memory: {cuda_graph_estimate_bytes}"),
    Shape(
        "raph pool memory",
        r"memory: {cuda_graph_bytes} \(actual\), {cuda_graph_estimate_bytes} \(estimated\)",
    ),
    Shape("raph capturing finished", r"finished in .*?took {cuda_graph_bytes}"),
    Shape("vailable KV cache memory: ", r"vailable KV cache memory: {kv_available_bytes}"),
    Shape("kv cache memory in use", r"kv cache memory in use is {kv_available_bytes}"),
    Shape("Current KV cache memory", r"Current KV cache memory: {kv_available_bytes}"),
    Shape(
        "for KV cache on node",
        r"\((?P<cache>[\d.,]+)/(?P<total>[\d.,]+)\) GiB for KV cache on node",
        read=_cpu,
    ),
    # what it comes to
    Shape("CPU blocks", r"# (?:\w+) blocks: {num_blocks}, # CPU blocks"),
    Shape(
        "num_gpu_blocks_override=",
        r"Overriding num_gpu_blocks=.*?num_gpu_blocks_override={blocks_override}(?!\d)",
    ),
    Shape("num_gpu_blocks", r"(?<!Overriding )num_gpu_blocks(?: is|:|=) ?{num_blocks}(?![\d\"])"),
    Shape("cache_config_info{", r"cache_config_info\{(?P<rest>[^}]*)\}", read=_metrics),
    Shape("KV cache size", r"KV cache size: {kv_tokens} tokens"),
    Shape(
        "aximum concurrency for",
        r"aximum concurrency for {max_model_len} tokens(?: per request)?: {max_concurrency}x",
    ),
    Shape("Using max model len", r"Using max model len {max_model_len}"),
    Shape("max_num_batched_tokens=", r"enabled with max_num_batched_tokens={max_num_batched_tokens}"),
    Shape(
        "padding layers",
        r"Add (?P<layers>\d+) padding layers, may waste at most (?P<share>[\d.,]+)%",
        read=_padding,
    ),
    Shape("ttention block size to", r"attention block size to {block_size} tokens"),
    Shape("kv cache block size to", r"kv cache block size to {block_size}"),
    Shape("mamba page size by", r"mamba page size by {mamba_padding}%"),
    Shape("to store kv cache", r"Using (?P<rest>fp8\w*) data type to store kv cache", read=_stored),
    # refusals
    Shape("KV cache is needed", r"{needed_bytes} KV cache is needed"),
    Shape("vailable KV cache memory (", r"available KV cache memory \({kv_available_bytes}\)"),
    Shape("max seq len (", r"max seq len \({max_model_len}\)"),
    Shape("aximum model length is", r"maximum model length is {estimated_max_len}"),
    Shape("KV cache is needed", r"To serve at least one request.*", read=refusal),
    Shape("stored in KV cache (", r"stored in KV cache \({kv_tokens}\)"),
    Shape("stored in KV cache (", r"The model's max seq len.*", read=refusal),
    Shape("for the cache blocks", r"No available memory for the cache blocks.*", read=refusal),
    Shape(
        "available Mamba cache",
        r"max_num_seqs \({max_num_seqs}\) exceeds available Mamba cache blocks \({num_blocks}\)",
    ),
    Shape("available Mamba cache", r"max_num_seqs \(\d+\) exceeds.*", read=refusal),
    Shape("less than desired GPU", r"Free memory on device.*", read=refusal),
    # no room for an allocation
    *memory_shapes("vllm", FRAMES, PRINTED),
    Shape("warming up sampler", r"CUDA out of memory occurred when warming up.*", read=_sampler),
    # the card, where a kernel's tuning file names it
    Shape("device_name=", r"device_name={gpu}(?:,dtype|,block|\.json|$|\s)"),
)  # fmt: skip


def _flags(
    settings: Mapping[str, Any], config: Mapping[str, Any], record: Record
) -> dict[str, Any]:
    args = {
        key: value
        for key, value in settings.items()
        if key in (*MEMORY_FLAGS, *ADAPTER_FLAGS)
        and value is not None
        and value not in ("auto", -1)
    }
    for name, flag in _ENGINE_WORDS.items():
        if isinstance(config.get(name), bool) and (config[name] or name == "enable_prefix_caching"):
            args.setdefault(flag, config[name])
    blocks = record.last("blocks_override")
    if blocks:
        args.setdefault("num_gpu_blocks_override", blocks)
    share = record.low("gpu_memory_utilization")
    if share is not None and 0 < share <= 1:
        args.setdefault("gpu_memory_utilization", share)
    sequences = record.last("max_num_seqs")
    if sequences:
        args.setdefault("max_num_seqs", sequences)
    batch = record.last("max_num_batched_tokens")
    if batch:
        args.setdefault("max_num_batched_tokens", batch)
    speculation = _speculation(settings.get("speculative_config"), config.get("speculative_config"))
    if speculation:
        args["speculative_config"] = speculation
    cache = record.settings.get("cpu_cache_bytes")
    if cache:
        args.setdefault("kv_cache_memory_bytes", cache)
    return args


def _speculation(stated: Any, config: Any) -> dict[str, Any]:
    """How it drafts: as the flags say, else ``SpeculativeConfig(method=…, model=…)`` of the settings."""
    if isinstance(stated, Mapping):
        return dict(stated)
    word, bracket, rest = str(config or "").partition("(")
    if not bracket or not word.endswith("SpeculativeConfig"):
        return {}
    words = read_keywords(rest)
    words["num_speculative_tokens"] = words.pop(
        "num_spec_tokens", words.get("num_speculative_tokens")
    )
    if str(words.get("method")).endswith("mtp"):
        words.pop("model", None)  # the model itself
    known = ("method", "model", "num_speculative_tokens")
    return {key: value for key, value in words.items() if key in known and value is not None}


class VllmLog(LogReader):
    """vLLM's log."""

    def figures(self, record: Record) -> Figures:
        """The figures under their common names: of several ranks the one that binds.

        Blocks are those of the rank with least; the same holds for what is left for cache. Since 0.20 what
        is printed as activation holds the graphs' estimate too, which is taken off where it is printed.
        """
        low = (
            "kv_available_bytes", "kv_tokens", "num_blocks", "max_concurrency", "total_gpu_bytes",
            "free_before_load_bytes", "max_model_len", "needed_bytes", "estimated_max_len",
            "gpu_memory_utilization", "requested_bytes", "block_size", "max_num_batched_tokens",
        )  # fmt: skip
        high = (
            "weights_bytes", "non_torch_bytes", "activation_peak_bytes", "cuda_graph_bytes",
            "cuda_graph_estimate_bytes", "consumed_bytes",
        )  # fmt: skip
        printed: Figures = {n: record.low(n) for n in low} | {n: record.high(n) for n in high}
        printed["max_model_len"] = record.last("max_model_len")
        if "blocks_override" in record.figures:  # what was found before it is left out
            printed["num_blocks"] = record.last("blocks_override")
        weights, consumed = printed["weights_bytes"], printed["consumed_bytes"]
        estimate, activation = (
            printed["cuda_graph_estimate_bytes"],
            printed["activation_peak_bytes"],
        )
        if consumed is not None and weights is not None and printed["non_torch_bytes"] is None:
            printed["non_torch_bytes"] = max(0, consumed - weights)
        if (
            consumed is not None
            and None not in (estimate, activation)
            and activation > estimate > 0
        ):
            printed["activation_peak_bytes"] = activation - estimate
        peak = record.high("peak_torch_bytes")
        if activation is None and peak is not None and weights is not None and peak > weights:
            printed["activation_peak_bytes"] = peak - weights
        return {key: value for key, value in printed.items() if value is not None}

    def question(self, record: Record) -> dict[str, Any]:
        """The Scenario's keys as far as the log states them."""
        config = record.settings.get("config") or {}
        settings = {key: value for key, value in record.settings.items() if key not in UNASKED}
        keys: dict[str, Any] = {"engine": ENGINE}
        model = config.get("model") or settings.get("model_tag") or settings.get("model")
        if isinstance(model, str):
            keys["model"] = model
        if record.last("gpu"):
            keys["gpu"] = record.last("gpu")
        for name, key in DEGREES.items():
            # Each replica's own configuration says that it is the only one.
            stated = [config.get(name), settings.get(name)]
            degree = max((value for value in stated if isinstance(value, int)), default=1)
            if degree > 1:
                keys[key] = degree
        if settings.get("enable_expert_parallel") is True:
            keys["ep"] = keys.get("tp", 1) * keys.get("dp", 1)
        length = (
            record.last("max_model_len")
            or config.get("max_seq_len")
            or settings.get("max_model_len")
        )
        if isinstance(length, int) and length > 0:
            keys["context_tokens"] = length
        dtype = settings.get("kv_cache_dtype") or config.get("kv_cache_dtype")
        if isinstance(dtype, str) and dtype != "auto":
            keys["kv_dtype"] = dtype
        version = record.last("engine_version")
        if version:
            keys["engine_version"] = version
        keys["engine_args"] = _flags(settings, config, record)
        return keys

    def quantization(self, record: Record) -> str | None:
        """How the log says that the weights are stored, in the engine's word."""
        config = record.settings.get("config") or {}
        word = record.settings.get("quantization") or config.get("quantization")
        return word if isinstance(word, str) else None

    def remedy(self, refusal: str, printed: Mapping[str, Any]) -> Remedy | None:
        """The flag that each of its own messages asks for."""
        return remedy(refusal, printed)

    def reasons(self, account: str, start: PrintedStart) -> list[str]:
        """What activations and graphs hold in one release and not in another."""
        why: list[str] = []
        rules = rules_of(parse_release(start.version)[0]) if start.version else None
        if account == "activations":
            estimated = "cuda_graph_estimate_bytes" in start.figures
            more = start.printed_bytes > start.predicted_bytes
            if rules and rules.graphs_subtracted and not estimated and more:
                since_release = since("graphs_subtracted", rules.release).removesuffix(".0")
                why.append(
                    f"since {since_release} the last line counts the graphs' estimate in with it"
                )
            if rules and rules.whole_prompts and "max_num_batched_tokens" not in start.args:
                why.append("without chunked prefill the profile runs a whole max_model_len at once")
            if start.model.vision is not None:
                why.append("the profile runs the largest images that a request may hold")
        if account == "graphs" and rules and not rules.graphs_subtracted:
            why.append("captured after the cache is cut, outside its share")
        return why


LOG = VllmLog(
    engine=ENGINE,
    shapes=SHAPES,
    cache_flag="kv_cache_memory_bytes",
    whole_share=True,
    ways_out={
        "profile": (("max_num_batched_tokens", (8192, 4096, 2048, 1024, 512)),),
        "sampler": (("max_num_seqs", (512, 256, 128, 64, 32, 16, 8)),),
        "graphs": (("max_num_seqs", (256, 128, 64, 32, 16)), ("enforce_eager", (True,))),
    },
)
