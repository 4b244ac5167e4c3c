"""Asks an installed vLLM, in its own Python: blocks and groups of a model for given bytes, its scheduler.

Loaded by path by ``observe/installed/child.py``; it imports the standard library, vLLM, and of kvroom the
modules that come with it. Nothing is computed and no card is needed: ``EngineCore`` is built as a server
builds it, with an executor that runs no model. The model's layers are made on torch's meta device, a card
that is not there is a platform of vLLM's own class, and compiled kernels that cannot be loaded without a
driver are stood in for, since nothing calls them. What moved between releases is found by looking
(``filled``) or listed in ``MOVED``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import importlib
import json
import logging
import os
import re
import sys
from collections.abc import Iterator, Sequence
from math import gcd
from pathlib import Path
from typing import Any

from kvroom.engines.config_folder import with_architecture
from kvroom.engines.decode_steps import decode
from kvroom.engines.moved import filled, given_to, named
from kvroom.engines.no_card import (
    TritonConfig,
    on_meta,
    stand_in_for_driver,
    stand_in_for_kernels,
)
from kvroom.engines.vllm.spared import spare, spared_request

REFUSALS = (ValueError, NotImplementedError, AssertionError)
"""How vLLM refuses a configuration."""
MOVED: dict[str, tuple[str, ...]] = {
    "set_default_torch_dtype": (
        "vllm.utils.torch_utils",
        "vllm.model_executor.model_loader.utils",
    ),
    "set_current_vllm_config": ("vllm.config",),
    "initialize_model": ("vllm.model_executor.model_loader.utils",),
    "_initialize_model": ("vllm.model_executor.model_loader.loader",),
    "EngineCore": ("vllm.v1.engine.core",),
    "Executor": ("vllm.v1.executor", "vllm.v1.executor.abstract"),
    "GPUModelRunner": ("vllm.v1.worker.gpu_model_runner",),
    "ModelRunnerOutput": ("vllm.v1.outputs",),
    "DraftTokenIds": ("vllm.v1.outputs",),
    "Request": ("vllm.v1.request",),
    "RequestStatus": ("vllm.v1.request",),
    "SamplingParams": ("vllm.sampling_params", "vllm"),
    "AsyncEngineArgs": ("vllm.engine.arg_utils",),
    "FlexibleArgumentParser": ("vllm.utils.argparse_utils", "vllm.utils"),
    "UsageContext": ("vllm.usage.usage_lib",),
    "DeviceCapability": ("vllm.platforms.interface",),
    "get_max_concurrency_for_kv_cache_config": ("vllm.v1.core.kv_cache_utils",),
    "get_current_attn_backends": ("vllm.v1.attention.backends.utils", "vllm.v1.worker.worker_base"),
}
"""Where a name is defined, the newest place first."""
KERNELS = r"vllm(\.\w+)*\._(\w+_)?C(_stable_libtorch)?|vllm\.third_party\.flashmla\..*"
"""Compiled modules, which load only beside a card's driver."""
OPTIONAL = r"(tilelang|cutlass|deep_gemm|gguf|diskcache|vllm\.vllm_flash_attn)(\..*)?"
"""Packages that a server's environment has, and which modules need at their import."""
SIZE = re.compile(r"KV cache size: ([\d,]+) tokens")
USES_V1 = "VLLM_USE_V1"
"""Where releases with two engines keep which of them serves."""
CHOSEN = USES_V1 in os.environ
"""Whether the user chose it; else each question does, which would stay for the next."""
HOST_BYTES = 2**40
"""Main memory of the card's machine, of which older configurations set some aside."""
PLACE_BITS = 40
"""A block's hash has its place in so many low bits, a request's moment its number."""


def _named(name: str) -> Any:
    """The object called ``name``, wherever this release keeps it."""
    return named(MOVED, name)


def _loader() -> Any:
    """What makes a model's layers; 0.8.5 calls it otherwise."""
    try:
        return _named("initialize_model")
    except ImportError:
        return _named("_initialize_model")


def _concurrency(config: Any, made: Any) -> float:
    """How many requests of the longest length the cache holds, as the release computes what it prints."""
    try:
        of = _named("get_max_concurrency_for_kv_cache_config")
    except ImportError:  # 0.8.5: all layers are of one kind, and it says tokens by length
        tokens = made.num_blocks * config.cache_config.block_size
        return float(tokens / config.model_config.max_model_len)
    return float(of(config, made))


def _cache_dtype(config: Any) -> Any:
    """The width that a runner of 0.8.5 lays its cache out with."""
    told = config.cache_config.cache_dtype
    if told == "auto":
        return config.model_config.dtype
    names: Any = importlib.import_module("vllm.utils")
    return getattr(names, "STR_DTYPE_TO_TORCH_DTYPE", {}).get(told)


class OlderEngineError(Exception):
    """A server of this release would serve the question by the engine before ``EngineCore``."""


def _configured(args: Any) -> Any:
    """A server's configuration of its arguments."""
    if not CHOSEN:
        os.environ.pop(USES_V1, None)
    config = args.create_engine_config(_named("UsageContext").OPENAI_API_SERVER)
    if os.environ.get(USES_V1) == "0":
        why = "it falls back to its V0 engine for this, whose cache and scheduler are not asked"
        raise OlderEngineError(why)
    return config


class Processes:
    """Those ranks as torch's process group tells of them."""

    def __init__(self, size: int, rank: int) -> None:
        self.size, self.rank = (lambda: size), (lambda: rank)
        self.world_size = size


class Ranks:
    """A group of ranks of which one is here and none is spoken to."""

    def __init__(self, size: int, rank: int = 0) -> None:
        self.world_size, self.rank, self.rank_in_group, self.local_rank = size, rank, rank, 0
        self.ranks = list(range(size))
        self.first_rank, self.last_rank = 0, size - 1
        self.is_first_rank, self.is_last_rank = rank == 0, rank == size - 1
        self.device_group = self.cpu_group = Processes(size, rank)
        self.device_communicator = None
        self.use_device_communicator = False
        self.unique_name = "ranks:0"


class NoImages:
    """The scheduler's budget for images and sounds, where no request brings any: it needs no processor."""

    encoder_compute_budget = encoder_cache_size = 0

    def __init__(self, *_: object, **__: object) -> None:
        self.mm_max_toks_per_item: dict[str, int] = {}


class NoTokenizer:
    """What 0.9.0 and 0.9.1 ask for a tokenizer although they are told to make none."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def get_lora_tokenizer(self, _: object) -> None:
        """None, as later releases have it then."""


class Printed(logging.Handler):
    """Remembers the sizes of the cache as vLLM prints them: before 0.11.0 each stage's, and before all have
    the blocks of the least."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: set[int] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """As logging calls it."""
        found = SIZE.search(record.getMessage())
        if found:
            self.sizes.add(int(found[1].replace(",", "")))

    def tokens(self, made: Any) -> int | None:
        """The size printed; of several, what the blocks hold by the groups that the scheduler goes by."""
        if len(self.sizes) < 2:
            return next(iter(self.sizes), None)
        smallest = min(group.kv_cache_spec.block_size for group in made.kv_cache_groups)
        return int(made.num_blocks // len(made.kv_cache_groups) * smallest)


def _print_anew() -> None:
    """Let vLLM print what it prints once, though the question before had it printed."""
    logger = sys.modules.get("vllm.logger")
    for name, value in vars(logger).items() if logger else ():
        if name.endswith("_once") and hasattr(value, "cache_clear"):
            value.cache_clear()


def _with_triton() -> None:
    """Where there is no Triton, let configurations think that there is: the card's machine would have it."""
    triton: Any = importlib.import_module("vllm.triton_utils")
    if not getattr(triton, "HAS_TRITON", True):
        triton.triton.Config = TritonConfig
        with contextlib.suppress(ImportError):  # older releases have configurations in one module
            config: Any = importlib.import_module("vllm.config.vllm")
            if hasattr(config, "HAS_TRITON"):
                config.HAS_TRITON = True
    with contextlib.suppress(ImportError):  # older releases have it in one module with others
        imports: Any = importlib.import_module("vllm.utils.import_utils")
        if hasattr(imports, "has_deep_gemm"):
            imports.has_deep_gemm = lambda: True


def _pretend(card: dict[str, Any]) -> None:
    """Make vLLM run on a card that is not here."""
    platforms = importlib.import_module("vllm.platforms")
    stand_in_for_kernels(KERNELS, OPTIONAL, ("_", "vllm"))
    stand_in_for_driver(card)
    cuda = importlib.import_module("vllm.platforms.cuda")
    capability = _named("DeviceCapability")(*map(int, card["capability"].split(".")))
    base: Any = getattr(cuda, "CudaPlatformBase", None) or cuda.CudaPlatform
    facts = {
        "get_device_capability": capability,
        "get_device_name": card["name"],
        "get_device_total_memory": card["memory_bytes"],
        "get_device_uuid": "GPU-0",
        "is_fully_connected": True,
        "device_count": card["count"],
        "num_compute_units": card.get("multiprocessors") or 132,
        "is_integrated_gpu": bool(card.get("unified")),
        "is_async_output_supported": True,
        "get_cuda_runtime_major": 13,
        "import_kernels": None,
        "set_device": None,
    }
    told = {
        name: classmethod(lambda cls, *_, _value=value, **__: _value)
        for name, value in facts.items()
    }
    machine = {
        "_cuda_device_count_stateless": lambda *_: card["count"],
        "get_cpu_memory": lambda: HOST_BYTES,
    }
    for place in ("vllm.utils", "vllm.utils.torch_utils", "vllm.config", "vllm.config.cache"):
        with contextlib.suppress(ImportError):
            module: Any = importlib.import_module(place)
            for name in machine.keys() & vars(module).keys():  # older configurations ask by them
                setattr(module, name, machine[name])
    platforms._current_platform = type("Card", (base,), told)()  # type: ignore[attr-defined]
    _with_triton()


def _groups_of_ranks(parallel: Any, stage: int) -> None:
    """Ranks of stage ``stage`` in place of vLLM's own groups."""
    state: Any = importlib.import_module("vllm.distributed.parallel_state")
    tp, dp = parallel.tensor_parallel_size, parallel.data_parallel_size
    pp = parallel.pipeline_parallel_size
    context = getattr(parallel, "decode_context_parallel_size", 1)
    sizes = {"_WORLD": tp * pp, "_TP": tp, "_ETP": tp, "_DP": dp, "_DCP": context}
    sizes |= {"_EP": tp * dp, "_EPLB": tp * dp, "_PCP": 1, "_INNER_DP_WORLD": 1}
    for name, size in sizes.items():
        if hasattr(state, name):
            setattr(state, name, Ranks(size))
    state._PP = Ranks(pp, stage)


class Worker:
    """A worker of one pipeline stage: it has the model's layers and nothing to run them."""

    def __init__(self, config: Any, number: int) -> None:
        import torch

        self.vllm_config = config
        self.shared_kv_cache_layers: dict[str, str] = {}
        # What runners before 0.11.1 keep beside the configuration.
        self.attention_chunk_size = getattr(config.model_config, "attention_chunk_size", None)
        self.speculative_config = getattr(config, "speculative_config", None)
        compilation = config.compilation_config
        compilation.static_forward_context = {}
        for name in ("static_all_moe_layers",):
            if isinstance(getattr(compilation, name, None), list):
                setattr(compilation, name, [])
        _groups_of_ranks(config.parallel_config, number)
        device = torch.device("meta")
        with contextlib.suppress(ImportError):
            workspace: Any = importlib.import_module("vllm.v1.worker.workspace")
            workspace.init_workspace_manager(device)
        initialize, current = _loader(), _named("set_current_vllm_config")
        dtype = _named("set_default_torch_dtype")
        with on_meta(), current(config), dtype(config.model_config.dtype), device:
            self.model = initialize(config)
            drafts: Any = self.speculative_config
            draft = getattr(drafts, "draft_model_config", None)
            if draft is not None and drafts.method not in ("ngram", "medusa", "mlp_speculator"):
                filled(initialize, vllm_config=config, model_config=draft, prefix="draft")
        platform = importlib.import_module("vllm.platforms").current_platform
        if hasattr(type(platform), "update_block_size_for_backend"):  # it has any name as None
            platform.update_block_size_for_backend(config)
        runner = _named("GPUModelRunner")
        with current(config):
            self.specs = runner.get_kv_cache_spec(self)

    def layouts(self) -> list[str]:
        """Names of the cache layouts that its attention backends take."""
        utils = importlib.import_module("vllm.v1.attention.backends.utils")
        backends = _named("get_current_attn_backends")(self.vllm_config)
        return [layout.name for layout in utils.get_supported_kv_cache_layouts(backends)]

    @property
    def kv_cache_dtype(self) -> Any:
        """What older runners lay all layers' cache out with."""
        return _cache_dtype(self.vllm_config)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"a worker without a model has no {name}")


def _arguments(words: Sequence[str]) -> tuple[Any, list[str]]:
    """vLLM's engine arguments of a command line, read by its own parser, and the words that it does not
    know. The model is a folder with a config alone."""
    args = _named("AsyncEngineArgs")
    parser = args.add_cli_args(_named("FlexibleArgumentParser")(prog="vllm"))

    def refuse(message: str) -> None:
        raise ValueError(message)

    parser.error = refuse
    told = ["--load-format", "dummy", "--skip-tokenizer-init"]
    read, unread = parser.parse_known_args(["--model", "model", *told, *words])
    with_architecture("model")
    return args.from_cli_args(read), unread


def _executor(cache_bytes: Sequence[int]) -> type:
    """An executor class whose stages have ``cache_bytes`` and run nothing."""
    base = _named("Executor")

    class NoModel(base):  # type: ignore[misc, valid-type]
        supports_pp = True

        def _init_executor(self) -> None:
            count = self.parallel_config.pipeline_parallel_size
            self.stages = [Worker(self.vllm_config, number) for number in range(count)]

        def __init__(self, config: Any) -> None:
            super().__init__(config)

        def collective_rpc(self, method: Any, *args: Any, **more: Any) -> Any:
            match method:
                case "get_kv_cache_spec":
                    return [stage.specs for stage in self.stages]
                case "determine_available_memory":
                    last = cache_bytes[-1]
                    rest = [last] * (len(self.stages) - len(cache_bytes))
                    return [*cache_bytes, *rest][: len(self.stages)]
                case "get_supported_kv_cache_layouts":
                    return [stage.layouts() for stage in self.stages]
                case "get_supported_tasks":
                    return [("generate",)] * len(self.stages)
            return []

        def initialize_from_config(self, configs: Any) -> None:
            self.configs = configs

        def compile_or_warm_up_model(self) -> None:
            pass

        @property
        def max_concurrent_batches(self) -> int:
            told = getattr(self.vllm_config, "max_concurrent_batches", None)
            if told is None:  # before 0.23.0 the executor of several processes says it
                module = importlib.import_module("vllm.v1.executor.multiproc_executor")
                own: Any = vars(module.MultiprocExecutor)["max_concurrent_batches"]
                told = (own.func if hasattr(own, "func") else own.fget)(self)
            return int(told)

        def execute_model(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError("no model is run")

        def check_health(self) -> None:
            pass

    for name in getattr(NoModel, "__abstractmethods__", ()):
        setattr(NoModel, name, lambda self, *_, **__: None)
    NoModel.__abstractmethods__ = frozenset()
    return NoModel


TINY = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "vocab_size": 64,
    "torch_dtype": "bfloat16",
}
"""A model of which nothing matters but that there is one."""


def _spec_of(group: dict[str, Any], engine: dict[str, Any]) -> Any:
    """The cache spec of one group of a script."""
    import torch

    kinds: Any = importlib.import_module("vllm.v1.kv_cache_interface")
    kind = {
        "sliding_window": "SlidingWindowSpec",
        "chunked_local": "ChunkedLocalAttentionSpec",
        "mamba": "MambaSpec",
    }.get(group["type"], "FullAttentionSpec")
    if not hasattr(kinds, kind):
        raise ImportError(f"{kind}: its cache has no layers of that kind")
    size, dtype = group["block_size"], torch.bfloat16
    heads = {"block_size": size, "num_kv_heads": 1, "head_size": 64, "dtype": dtype}
    heads["use_mla"] = False
    match group["type"]:
        case "sliding_window":
            return given_to(kinds.SlidingWindowSpec, **heads, sliding_window=group["window"])
        case "chunked_local":
            name = "attention_chunk_size"
            return given_to(kinds.ChunkedLocalAttentionSpec, **heads, **{name: group["chunk"]})
        case "mamba":
            caching = engine["enable_prefix_caching"]
            if caching and not hasattr(kinds.MambaSpec, "mamba_cache_mode"):
                raise ImportError("mamba_cache_mode: it keeps states otherwise")
            saved = group.get("prefill_checkpoint", 0)
            return given_to(
                kinds.MambaSpec,
                block_size=size,
                shapes=((size * 64, 4),),
                dtypes=(torch.bfloat16,),
                page_size_padded=None,
                mamba_type="mamba2",
                mamba_cache_mode="align" if caching else "none",
                num_prefill_checkpoint_blocks=1 if saved else 0,
                prefill_checkpoint_alignment=saved or 1,
            )
        case _:
            return given_to(kinds.FullAttentionSpec, **heads)


def _scripted(engine: dict[str, Any]) -> Any:
    """An ``EngineCore`` whose blocks and groups are those of a script."""
    length = engine["max_model_len"]
    folder = Path("script")
    folder.mkdir(exist_ok=True)
    config = TINY | {"max_position_embeddings": length}
    (folder / "config.json").write_text(json.dumps(config))
    switches = {
        "enable_prefix_caching": engine["enable_prefix_caching"],
        "enable_chunked_prefill": engine.get("enable_chunked_prefill", True),
        "async_scheduling": engine.get("async_scheduling", False),
        "scheduler_reserve_full_isl": engine.get("scheduler_reserve_full_isl", True),
    }
    valued = {
        "max_num_batched_tokens": engine["max_num_batched_tokens"],
        "max_num_seqs": engine["max_num_seqs"],
        "max_model_len": length,
        "long_prefill_token_threshold": engine.get("long_prefill_token_threshold", 0),
        "watermark": engine.get("watermark", 0.0),
        "scheduling_policy": engine.get("policy", "fcfs"),
    }
    interval = engine.get("prefix_cache_retention_interval", 0)
    args = _named("AsyncEngineArgs")
    given = {"model": str(folder), "load_format": "dummy", "skip_tokenizer_init": True}
    known = {field.name for field in dataclasses.fields(args)}
    told = {**switches, **valued}
    for name in ("async_scheduling", "watermark", "scheduler_reserve_full_isl"):
        if name not in known and engine.get(name):
            raise ValueError(f"this release has no {name}")
    if "prefix_cache_retention_interval" in known:
        told["prefix_cache_retention_interval"] = interval
    made = args(**given, **{name: value for name, value in told.items() if name in known})
    config = _configured(made)
    if any(group["type"] == "mamba" for group in engine["groups"]):
        cached = engine["enable_prefix_caching"]
        config.cache_config.mamba_cache_mode = "align" if cached else "none"
    interface: Any = importlib.import_module("vllm.v1.kv_cache_interface")
    groups = [
        filled(interface.KVCacheGroupSpec, layer_names=[f"layer.{number}"], kv_cache_spec=spec)
        for number, spec in enumerate(_spec_of(group, engine) for group in engine["groups"])
    ]
    core: Any = importlib.import_module("vllm.v1.engine.core")
    if not hasattr(core, "resolve_kv_cache_block_sizes"):  # it hashes by the block of its flags
        config.cache_config.block_size = gcd(*(group["block_size"] for group in engine["groups"]))
    cache = given_to(
        interface.KVCacheConfig,
        num_blocks=engine["num_gpu_blocks"],
        kv_cache_tensors=[],
        tensors={},  # as 0.8.5 calls them
        kv_cache_groups=groups,
        prefix_cache_retention_interval=interval,
    )
    name, answer = "get_kv_cache_configs", lambda *_, **__: [cache]
    if not hasattr(core, name):  # one worker's at a time
        name, answer = "get_kv_cache_config", lambda *_, **__: cache
    before = getattr(core, name)
    setattr(core, name, answer)
    try:
        return _named("EngineCore")(config, _executor([2**40]), log_stats=False)
    finally:
        setattr(core, name, before)


def _told(spec: Any) -> dict[str, Any]:
    """A cache spec in plain values: its kind, tokens a block, bytes a page, reach, spare blocks."""
    names = {
        "block_size": "block_tokens",
        "page_size_bytes": "page_bytes",
        "sliding_window": "window",
        "attention_chunk_size": "chunk",
        "num_speculative_blocks": "speculative_blocks",
        "num_prefill_checkpoint_blocks": "checkpoint_blocks",
        "prefill_checkpoint_alignment": "checkpoint_tokens",
        "mamba_cache_mode": "mode",
    }
    told = {ours: getattr(spec, theirs, None) for theirs, ours in names.items()}
    inner = getattr(spec, "kv_cache_specs", None)
    of = sorted({type(each).__name__ for each in inner.values()}) if isinstance(inner, dict) else []
    kept = {key: value for key, value in told.items() if isinstance(value, int | str) and value}
    return {"type": type(spec).__name__, **kept, **({"of": of} if of else {})}


class Hashes:
    """Hashes of a request's blocks from the names of what it shares, in place of its token ids."""

    def __init__(
        self, index: int, names: Sequence[int], unit: int, named: int, tokens: int
    ) -> None:
        self.index, self.names, self.unit, self.named = index, names, unit, named
        self.tokens = tokens

    def __call__(self, request: Any) -> list[bytes]:
        """The hashes of its blocks that have filled up since the last call."""
        have, full = len(request.block_hashes), request.num_tokens // self.tokens
        if full <= have:
            return []
        names, unit, named = self.names, self.unit, self.named
        own = -(self.index + 1) << PLACE_BITS
        shared = [
            names[place // unit] << PLACE_BITS | place for place in range(have, min(full, named))
        ]
        numbers = shared + [own | place for place in range(max(have, named), full)]
        return [number.to_bytes(32, "little", signed=True) for number in numbers]

    def at(self, place: int) -> bytes:
        """The hash of one block: of its name and place, or its request's own."""
        shared = place < self.named
        name = self.names[place // self.unit] if shared else -(self.index + 1)
        return (name << PLACE_BITS | place).to_bytes(32, "little", signed=True)

    def tokens_of(self, count: int) -> list[int]:
        """``count`` token ids that tell blocks apart as the hashes do, for a release that hashes them."""
        blocks = range(-(-count // self.tokens))
        ids = (int.from_bytes(self.at(place), "little", signed=True) for place in blocks)
        return [each for each in ids for _ in range(self.tokens)][:count]


class VllmAsked:
    """The questions that an installed vLLM answers."""

    def __init__(self) -> None:
        self.core: Any = None
        self.printed = Printed()
        self.question: tuple[Sequence[str], Sequence[int]] = ((), ())
        self.players: list[Player] = []

    def about(self, card: dict[str, Any] | None = None) -> dict[str, Any]:
        """Its version; ``card``: the one that it is to think it runs on (None: its own platform)."""
        vllm: Any = importlib.import_module("vllm")
        if card is not None and card["vendor"] == "nvidia":
            _pretend(card)
        elif card is not None and card["vendor"] != "cpu":
            why = f"cards of {card['vendor']} cannot be stood in for, only NVIDIA's and CPUs"
            raise ImportError(why)
        platform = importlib.import_module("vllm.platforms").current_platform
        if card is not None and card["vendor"] == "cpu" and platform.device_type != "cpu":
            raise ImportError("it is no build for the CPU, which is the card asked about")
        scheduling: Any = importlib.import_module("vllm.v1.core.sched.scheduler")
        if hasattr(scheduling, "MultiModalBudget"):
            scheduling.MultiModalBudget = NoImages
        elif hasattr(scheduling, "compute_encoder_budget"):
            scheduling.compute_encoder_budget = lambda *_, **__: (0, 0)
        with contextlib.suppress(ImportError):
            structured: Any = importlib.import_module("vllm.v1.structured_output")
            if hasattr(structured, "init_tokenizer_from_configs"):
                structured.init_tokenizer_from_configs = NoTokenizer
        state: Any = importlib.import_module("vllm.distributed.parallel_state")
        state.in_the_same_node_as = lambda group, *_, **__: [True] * group.size()
        registry: Any = importlib.import_module("vllm.model_executor.models.registry")
        if hasattr(registry, "_run_in_subprocess"):
            registry._run_in_subprocess = lambda function: function()
        version = str(getattr(vllm, "__version__", ""))
        return {"engine": "vllm", "version": version, "platform": platform.device_type}

    def capacity(self, words: Sequence[str], cache_bytes: Sequence[int]) -> dict[str, Any]:
        """Blocks, groups, tokens and concurrency of a server started with ``words`` and ``cache_bytes`` a
        stage."""
        self.question, self.players = (words, cache_bytes), []
        self.printed.sizes.clear()
        _print_anew()
        log = logging.getLogger("vllm")
        if self.printed not in log.handlers:  # it may have been configured anew
            log.addHandler(self.printed)
        self.core = None
        try:
            core, unread = self._core()
        except ValueError as error:
            if "failed to be inspected" in str(error):  # it is not the question that is refused
                why = "a package that the model's class imports (torchvision, timm or another)"
                raise ImportError(why) from error
            raise
        self.core = core
        config = getattr(core, "vllm_config", None) or core.scheduler.vllm_config
        made = core.scheduler.kv_cache_config
        concurrency = None
        if made.kv_cache_groups:
            concurrency = _concurrency(config, made)
        cache, settings = config.cache_config, config.scheduler_config
        return {
            "unread": unread,
            "num_blocks": made.num_blocks,
            "groups": [
                {"layers": len(group.layer_names), **_told(group.kv_cache_spec)}
                for group in made.kv_cache_groups
            ],
            "kv_tokens": getattr(cache, "kv_cache_size_tokens", self.printed.tokens(made)),
            "max_concurrency": concurrency,
            "block_tokens": cache.block_size,
            "max_model_len": config.model_config.max_model_len,
            "max_num_seqs": settings.max_num_seqs,
            "max_num_batched_tokens": settings.max_num_batched_tokens,
            "async_scheduling": bool(getattr(settings, "async_scheduling", False)),
            "prefix_caching": bool(cache.enable_prefix_caching),
        }

    def _core(self) -> tuple[Any, list[str]]:
        words, cache_bytes = self.question
        args, unread = _arguments(words)
        config = _configured(args)
        executor = _executor(cache_bytes)
        return _named("EngineCore")(config, executor, log_stats=False), unread

    def begin(self) -> dict[str, Any]:
        """A scheduler of the server that ``capacity`` asked about, with an empty pool."""
        core, self.core = self.core, None
        return self._play(core or self._core()[0])

    def script(self, engine: dict[str, Any]) -> dict[str, Any]:
        """A scheduler over blocks and groups given outright (``engine`` of a script)."""
        return self._play(_scripted(engine))

    def _play(self, core: Any) -> dict[str, Any]:
        player = Player(core)
        self.players.append(player)
        gc.collect()
        gc.freeze()
        gc.set_threshold(500_000, 50, 100)
        return {"number": len(self.players) - 1, **player.facts()}

    def step(self, engine: int, **what: Any) -> dict[str, Any]:
        """A step of scheduler number ``engine``."""
        return self.players[engine].step(**what)

    def decode(self, engine: int, **what: Any) -> dict[str, Any]:
        """Decode steps of scheduler number ``engine``."""
        return self.players[engine].decode(**what)


def _name(index: int) -> str:
    """A request's id: in the order of their numbers."""
    return f"{index:012d}"


def moment(arrival: int, index: int) -> int:
    """When a request came, as the engine orders by it: a server reads its clock anew for each, so that no
    two come at once. Of equals it would put back the first by priority, and not the last of its queue."""
    return arrival << PLACE_BITS | index


class Batch:
    """The requests of a step: their tokens, whether each gives its next token, their rows as told; it
    ``decodes`` where each computes one token and gives the next."""

    def __init__(self, counts: dict[str, int]) -> None:
        self.counts = counts
        self.samples: list[bool] = []
        self.rows: list[Any] = []
        self.decodes = True
        self.names = list(counts)
        self.places = {name: place for place, name in enumerate(counts)}


class Player:
    """One scheduler as it serves: what it was given, what it is waiting for."""

    def __init__(self, core: Any) -> None:
        self.core, self.scheduler = core, core.scheduler
        self.requests = self.scheduler.requests
        self.pool = self.scheduler.kv_cache_manager.block_pool
        self.in_flight: dict[int, tuple[Any, Batch]] = {}
        self.steps_in_flight = int(core.batch_queue_size)
        self.queues_idle = False
        if hasattr(self.scheduler, "current_step") and self.scheduler.use_v2_model_runner:
            parallel = self.scheduler.vllm_config.parallel_config
            self.queues_idle = int(parallel.pipeline_parallel_size) > 1
        self.answers: dict[str, Iterator[int]] = {}
        self.running: set[str] = set()
        self.known: set[str] = set()
        self.params: dict[int, Any] = {}
        self.last = Batch({})
        self.number = 0
        self.drafts = int(getattr(self.scheduler, "num_spec_tokens", 0))
        self.by_itself = hasattr(self.scheduler, "_spec_token_placeholders")
        hashes = hasattr(self.scheduler.kv_cache_manager, "req_to_block_hashes")
        self.by_tokens = hashes and not hasattr(core, "request_block_hasher")
        self.request = spared_request(_named("Request"))
        spare(self.scheduler)
        self.model_output = _named("ModelRunnerOutput")
        fields = dataclasses.fields(self.model_output)
        kinds = {field.name: str(field.type) for field in fields}
        self.in_arrays = "ndarray" in kinds.get("sampled_token_ids", "")  # 0.11.2
        self.blank: dict[str, Any] = {
            field.name: {} if field.name.endswith("_dict") else None
            for field in fields
            if field.default is dataclasses.MISSING
            and field.default_factory is dataclasses.MISSING
            and field.name not in ("req_ids", "req_id_to_index", "sampled_token_ids")
        }

    @property
    def hash_tokens(self) -> int:
        """Tokens of a stretch that its cache tells apart."""
        own = getattr(self.scheduler, "hash_block_size", None)
        return int(own or self.scheduler.block_size)

    def facts(self) -> dict[str, Any]:
        """What whoever steps it needs to know."""
        return {
            "num_blocks": self.pool.num_gpu_blocks,
            "steps_in_flight": self.steps_in_flight,
            "queues_idle": self.queues_idle,
            "hash_tokens": self.hash_tokens,
            "drafts": self.drafts,
        }

    def step(
        self,
        add: Sequence[dict[str, Any]] = (),
        done: Sequence[tuple[int, dict[str, int]]] = (),
        drop: Sequence[int] = (),
    ) -> dict[str, Any]:
        """Take the outputs of steps that are ``done`` (with drafts kept, by request), queue those to ``add``,
        and schedule the next step.

        Of a step each request is a row ``[request, tokens, samples, drafts]``, or its number alone where
        it decodes one token. ``same`` stands for the rows of the step before.
        """
        finished: list[int] = []
        for number, kept in done:
            finished += self.update(number, kept)
        for index in drop:
            self.running.discard(_name(index))
            self.scheduler.finish_requests(_name(index), _named("RequestStatus").FINISHED_ABORTED)
        for request in add:
            self._add(**request)
        answer: dict[str, Any] = {"finished": finished} if finished else {}
        return answer | self.schedule()

    def decode(self, steps: int, done: Sequence[tuple[int, dict[str, int]]] = ()) -> dict[str, Any]:
        """Take the outputs of steps that are ``done``, then up to ``steps`` decode steps."""
        finished = [index for number, kept in done for index in self.update(number, kept)]
        return {"finished": finished, **decode(self, steps)}

    def _add(
        self,
        *,
        index: int,
        prompt: Any,
        output: Any,
        priority: int = 0,
        arrival: int = 0,
        shares: tuple[Sequence[int], int, int] | None = None,
    ) -> None:
        """A request: ``prompt`` and ``output`` as runs ``[first, count]`` of token ids, or as counts, where
        names of blocks (``shares``: names, blocks a name, blocks named) stand for them."""
        name = _name(index)
        hasher = getattr(self.core, "request_block_hasher", None)
        if isinstance(prompt, int):
            ids, length = [0] * prompt, int(output)
            names, unit, named = shares or ((), 1, 0)
            hashes = Hashes(index, names, unit, named, self.hash_tokens)
            hasher = hashes if hasher is not None else None
            if self.by_tokens:
                text = hashes.tokens_of(prompt + length)
                ids, self.answers[name] = text[:prompt], iter(text[prompt:])
        else:
            ids = [token for first, count in prompt for token in range(first, first + count)]
            length = sum(count for _, count in output)
            self.answers[name] = (
                token for first, count in output for token in range(first, first + count)
            )
        params = self.params.get(length)
        if params is None:
            make = _named("SamplingParams")
            params = make(max_tokens=length, ignore_eos=True, detokenize=False)
            self.params[length] = params
        request = filled(
            self.request,
            request_id=name,
            prompt_token_ids=ids,
            sampling_params=params,
            arrival_time=moment(arrival, index),
            client_index=0,
            priority=priority,
            block_hasher=hasher,
        )
        if hasattr(request, "begin"):
            request.begin(self.hash_tokens)
        self.scheduler.add_request(request)

    def schedule(self) -> dict[str, Any]:
        """The next step."""
        scheduler, requests = self.scheduler, self.requests
        output = scheduler.schedule()
        counts = output.num_scheduled_tokens
        before, admitted = self.last, list[tuple[int, int, bool]]()
        same = (
            before.decodes and counts == before.counts and not output.scheduled_spec_decode_tokens
        )
        batch = before if same else self._batch(output, admitted)
        answer: dict[str, Any] = {
            "held": self.pool.num_gpu_blocks - 1 - self.pool.get_num_free_blocks(),
            "running": len(scheduler.running),
            "waiting": len(requests) - len(scheduler.running),
        }
        if admitted:
            answer["admitted"] = admitted
        if preempted := self._preempted(output):
            answer["preempted"] = preempted
        if batch.rows and batch.rows == before.rows:
            answer["same"] = True
        else:
            answer["rows"] = batch.rows
        self.last = batch
        if batch.rows:
            answer["step"] = self.number
            self.in_flight[self.number] = (output, batch)
            self.number += 1
        elif requests:
            waiting = next(iter(scheduler.waiting), None) or next(iter(requests.values()))
            answer["first"] = int(waiting.request_id)
        return answer

    def _batch(self, output: Any, admitted: list[tuple[int, int, bool]]) -> Batch:
        """The requests of a step; those that came into it are ``admitted``."""
        drafts, running = output.scheduled_spec_decode_tokens, self.running
        batch = Batch(dict(output.num_scheduled_tokens))
        for name, tokens in batch.counts.items():
            request = self.requests[name]
            gives = self._samples(request, drafts)
            batch.samples.append(gives)
            if name not in running:
                running.add(name)
                cached = request.num_computed_tokens - tokens
                admitted.append((int(name), cached, name in self.known))
                self.known.add(name)
            checked = len(drafts[name]) if name in drafts else 0
            if tokens == 1 and gives and not checked:
                batch.rows.append(int(name))
            else:
                batch.rows.append((int(name), tokens, gives, checked))
                batch.decodes = False
        return batch

    def _samples(self, request: Any, drafts: dict[str, Any]) -> bool:
        chunk = getattr(request, "is_prefill_chunk", None)
        if chunk is not None:
            return not chunk
        placeholders = getattr(request, "num_output_placeholders", 0)
        own = 1 + len(drafts.get(request.request_id, ())) if placeholders else 0
        return bool(request.num_computed_tokens >= request.num_tokens + placeholders - own)

    def _preempted(self, output: Any) -> list[int]:
        told: Any = getattr(output, "preempted_req_ids", False)
        if told is False:
            still = {request.request_id for request in self.scheduler.running}
            told = [name for name in self.running if name not in still and name in self.requests]
        lost = sorted(map(int, told or ()))
        self.running.difference_update(map(_name, lost))
        return lost

    def update(self, number: int, kept: dict[str, int]) -> list[int]:
        """Take the output of a step; gives the requests that it finished."""
        output, batch = self.in_flight.pop(number)
        if batch.decodes and not self.answers:
            sampled = [[0] for _ in batch.samples]
        else:
            sampled = [
                self._sampled(name, 1 + kept.get(str(int(name)), 0) if gives else 0)
                for name, gives in zip(batch.counts, batch.samples, strict=True)
            ]
        if self.in_arrays:
            sampled = list(map(importlib.import_module("numpy").array, sampled))
        made = self.model_output(
            **self.blank,
            req_ids=batch.names,
            req_id_to_index=batch.places,
            sampled_token_ids=sampled,
        )
        told = self.scheduler.update_from_output(output, made)
        by_client = told.values() if isinstance(told, dict) else [told]  # 0.8.5 knows one client
        outputs = [one for each in by_client for one in each.outputs]
        finished = [one.request_id for one in outputs if one.finish_reason is not None]
        for name in finished:
            self.running.discard(name)
            self.answers.pop(name, None)
        if self.drafts and not self.by_itself:
            self._draft(batch)
        return list(map(int, finished))

    def _sampled(self, name: str, count: int) -> list[int]:
        """The next tokens of a request's answer."""
        answer = self.answers.get(name)
        if answer is None or name not in self.requests:
            return [0] * count
        return [next(answer, 0) for _ in range(count)]

    def _draft(self, batch: Batch) -> None:
        """Give those that decode drafted tokens, as a worker does after a step."""
        having = [
            name
            for name, gives in zip(batch.names, batch.samples, strict=True)
            if gives and name in self.requests
        ]
        drafts = filled(
            _named("DraftTokenIds"),
            req_ids=having,
            draft_token_ids=[[0] * self.drafts for _ in having],
        )
        self.scheduler.update_draft_token_ids(drafts)


ENGINE = VllmAsked
