"""Asks an installed SGLang, in its own Python: the pools of a model on a card, its scheduler.

Loaded by path by ``observe/installed/child.py``; it imports the standard library, SGLang, and of kvroom the
modules that come with it. Nothing is computed and no card is needed: a ``Scheduler`` with its worker, model
runner and pools is built as a server's process builds it. What stands in: ranks that are not there
(torch's fake process group), free memory as kvroom says it is before and after the weights are loaded, a
model that has layers and nothing to run, compiled kernels, and the card itself: what is laid onto it and
read by the scheduler lies in main memory, caches have a shape and no bytes.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from kvroom.engines.config_folder import fresh, with_architecture
from kvroom.engines.moved import given_to, named
from kvroom.engines.no_card import Absent, off_card, stand_in_for_driver, stand_in_for_kernels
from kvroom.engines.sglang.played import SglangPlayer

REFUSALS = (ValueError, NotImplementedError, AssertionError, RuntimeError)
"""How SGLang refuses a configuration."""
MOVED: dict[str, tuple[str, ...]] = {
    "ServerArgs": ("sglang.srt.server_args",),
    "PortArgs": ("sglang.srt.server_args",),
    "Scheduler": ("sglang.srt.managers.scheduler",),
    "ModelRunner": ("sglang.srt.model_executor.model_runner",),
    "destroy_model_parallel": ("sglang.srt.distributed.parallel_state",),
    "destroy_distributed_environment": ("sglang.srt.distributed.parallel_state",),
}
"""Where a name is defined, the newest place first."""
STATE = "sglang.srt.distributed.parallel_state"
QUEUE = "sglang.srt.distributed.device_communicators.shm_broadcast"
KERNELS = (
    r"(sgl_kernel|tvm_ffi|xgrammar|flashinfer|deep_gemm|tilelang|cutlass|flash_attn|flash_mla|quack|nvshmem"
    r"|deep_ep|humming|torch_memory_saver|torchao|llguidance|mooncake)(\..*)?"
)
"""Packages of compiled kernels, which load only beside a card's driver, and none of which is called."""
PACKAGES = (
    r"(triton|cuda|outlines|decord|torchaudio|compressed_tensors|gguf|pynvml|modelscope|datasets"
    r"|soundfile|openai_harmony|anthropic|numba|timm|av|kernels|mistral_common|blobfile|watchfiles|py_spy"
    r"|cachetools|zstandard|nvtx|openai|uvloop|IPython|interegular|tiktoken|sentencepiece|loguru)(\..*)?"
)
"""Packages that a server's environment has, and which modules need at their import."""
SKIPPED = (
    "init_attention_backends",
    "init_attention_backend",
    "init_cuda_graphs",
    "init_device_graphs",
    "init_piecewise_cuda_graphs",
    "prewarm_sampling",
    "kernel_warmup",
    "warmup_flashinfer_autotune",
    "init_cublas",
)
"""What a model runner does beside a card only, and nothing of capacity or scheduling follows from."""


DRAFT_SKIPPED = (
    "init_token_map",
    "init_lm_head",
    "init_attention_backend",
    "init_attention_backends",
    "init_cuda_graphs",
    "_capture_cuda_graphs",
)
"""The same of a worker that drafts."""


class CardMemory:
    """Bytes of each card: all, and those free before the weights are loaded and after."""

    def __init__(self, total: int) -> None:
        self.total = self.free = self.after = total


class Synced:
    """What ranks agree on: each rank's tokens when it is asked first, the least of them then."""

    def __init__(self) -> None:
        self.said: list[int] = []
        self.least: int | None = None

    def reduce(self, tensor: Any, *_: object, **__: object) -> None:
        """``all_reduce`` to the least."""
        if tensor.numel() == 1 and not tensor.is_floating_point():
            self.said.append(int(tensor))
            if self.least is not None:
                tensor.fill_(self.least)


class SglangAsked:
    """The questions that an installed SGLang answers."""

    def __init__(self) -> None:
        self.memory = CardMemory(0)
        self.question: tuple[Sequence[str], dict[str, int]] = ((), {})
        self.server: Any = None
        self.players: list[SglangPlayer] = []

    def about(self, card: dict[str, Any] | None = None) -> dict[str, Any]:
        """Its version; ``card``: the one that it is to think it runs on."""
        if card is None or card["vendor"] != "nvidia":
            raise ImportError("cards other than NVIDIA's cannot be stood in for")
        import torch

        self.memory = memory = CardMemory(card["memory_bytes"])
        stand_in_for_kernels(KERNELS, PACKAGES, ("_", "sgl"))
        stand_in_for_driver(card)
        torch.version.cuda = "13.0"
        processor: Any = importlib.import_module("torch._C")._cpu
        if not hasattr(processor, "_is_amx_tile_supported"):  # older releases ask an older torch
            processor._is_amx_tile_supported = lambda: False
        told: dict[str, Callable[..., Any]] = {
            "is_available": lambda: True,
            "mem_get_info": lambda *_: (memory.free, memory.total),
        }
        for name, value in told.items():
            setattr(torch.cuda, name, value)
        extensions: Any = importlib.import_module("torch.utils.cpp_extension")
        extensions.load = lambda name, *_, **__: Absent(name)  # nothing is compiled
        sglang: Any = importlib.import_module("sglang")
        utils: Any = importlib.import_module("sglang.srt.utils")
        for holder in (utils, getattr(utils, "common", utils)):
            for name in ("is_pin_memory_available", "is_confidential_compute", "log_info_on_rank0"):
                if hasattr(holder, name):
                    setattr(holder, name, lambda *_: False)
        named(MOVED, "ServerArgs")
        return {"engine": "sglang", "version": str(sglang.__version__), "platform": "cuda"}

    def capacity(
        self, words: Sequence[str], memory: dict[str, int], cache_bytes: Sequence[int] = ()
    ) -> dict[str, Any]:
        """Pools and limits of a server started with ``words``, with the ``memory`` of its fullest rank
        (``before_load`` and ``after_load``, bytes)."""
        self.question, self.players = (words, memory), []
        self.server = None
        self.server, unread = self._server()
        return {"unread": unread, **told_of(self.server)}

    def begin(self) -> dict[str, Any]:
        """A scheduler of the server that ``capacity`` asked about, with empty pools."""
        server, self.server = self.server, None
        self.players.append(SglangPlayer(server or self._server()[0]))
        return {"number": len(self.players) - 1, **self.players[-1].facts()}

    def step(self, engine: int, **what: Any) -> dict[str, Any]:
        """A step of scheduler number ``engine``."""
        return self.players[engine].step(**what)

    def decode(self, engine: int, **what: Any) -> dict[str, Any]:
        """Decode steps of scheduler number ``engine``."""
        return self.players[engine].decode(**what)

    def _server(self) -> tuple[Any, list[str]]:
        words, _ = self.question
        synced = Synced()
        args, unread = arguments(words)
        stages = int(args.pp_size)
        if stages == 1:
            return self._built(args, 0, synced), unread
        built = [self._built(arguments(words)[0], stage, synced) for stage in range(stages)]
        if not synced.said:  # older releases: each stage by itself
            return min(built, key=lambda server: int(server.max_total_num_tokens)), unread
        del built
        synced.least = min(synced.said)
        return self._built(args, 0, synced), unread

    def _built(self, args: Any, stage: int, synced: Synced) -> Any:
        """A scheduler process of pipeline stage ``stage``."""
        _, memory = self.question
        self.memory.free = memory["before_load"]
        self.memory.after = memory["after_load"]
        scheduler = named(MOVED, "Scheduler")
        _forgotten()
        given = _published(args, stage)
        with (
            _ranks(int(args.tp_size), int(args.pp_size), stage, synced),
            off_card(),
            _no_model(self),
        ):
            ports = named(MOVED, "PortArgs").init_new(args)
            return given_to(scheduler, server_args=args, port_args=ports, **given)


def arguments(words: Sequence[str]) -> tuple[Any, list[str]]:
    """SGLang's arguments of a command line, read by its own parser, and the words that it does not know."""
    args = named(MOVED, "ServerArgs")
    parser = argparse.ArgumentParser(prog="sglang", exit_on_error=False)
    args.add_cli_args(parser)

    def refuse(message: str) -> None:
        raise ValueError(message)

    parser.error = refuse  # type: ignore[method-assign,assignment]
    with_architecture("model")
    told = ["--model-path", fresh("model"), "--load-format", "dummy", "--skip-tokenizer-init"]
    read, unread = parser.parse_known_args([*words, *told])  # the last word holds
    if getattr(read, "speculative_draft_model_path", None) == "draft":
        with_architecture("draft")
        read.speculative_draft_model_path = fresh("draft")
    return args.from_cli_args(read), unread


def _published(args: Any, stage: int) -> dict[str, Any]:
    """Make ``args`` those of this process, as its launcher does; gives the ranks that ``Scheduler`` takes in
    releases whose process does not keep them."""
    ranks = {
        "gpu_id": 0,
        "tp_rank": 0,
        "moe_ep_rank": 0,
        "pp_rank": stage,
        "attn_cp_rank": 0,
        "moe_dp_rank": 0,
        "dp_rank": None,
    }
    try:
        context: Any = importlib.import_module("sglang.srt.runtime_context")
    except ImportError:
        context = None
    if hasattr(context, "publish"):
        more = {}
        if hasattr(context, "SpawnRanks"):
            world = stage * int(args.tp_size)
            more["ranks"] = context.SpawnRanks(world_rank=world, dp_rank=None, gpu_id=0)
        context.publish(args, role="scheduler", **more)
    return ranks


def _forgotten() -> None:
    """No ranks, as in a new process."""
    import torch

    if torch.distributed.is_initialized():
        named(MOVED, "destroy_model_parallel")()
        named(MOVED, "destroy_distributed_environment")()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    state: Any = importlib.import_module(STATE)
    for name, value in list(vars(state).items()):
        if type(value).__name__ == "GroupCoordinator":
            setattr(state, name, None)
    with contextlib.suppress(ImportError, AttributeError):
        importlib.import_module("sglang.srt.runtime_context").reset_context()
    with contextlib.suppress(ImportError):
        experts: Any = importlib.import_module("sglang.srt.eplb.expert_location")
        experts._global_expert_location_metadata = None


@contextlib.contextmanager
def _ranks(tp: int, pp: int, stage: int, synced: Synced) -> Iterator[None]:
    """Process groups of ranks of which one is here and none is spoken to."""
    import torch

    distributed: Any = torch.distributed
    fake: Any = importlib.import_module("torch.testing._internal.distributed.fake_pg")
    distributed.init_process_group(
        "fake", store=fake.FakeStore(), rank=stage * tp, world_size=tp * pp
    )
    before = {
        name: getattr(distributed, name)
        for name in ("new_group", "all_reduce", "monitored_barrier")
    }
    make, reduce = before["new_group"], before["all_reduce"]
    with contextlib.suppress(ImportError):
        shared: Any = importlib.import_module(
            f"{STATE.rpartition('.')[0]}.device_communicators.shm_broadcast"
        )
        shared.MessageQueue.create_from_process_group = lambda *_, **__: None

    def group(ranks: Any = None, *_: object, **__: object) -> Any:
        return make(ranks, backend="fake")

    def reduced(tensor: Any, op: Any = None, *rest: object, **more: Any) -> Any:
        if op == distributed.ReduceOp.MIN:
            return synced.reduce(tensor)
        return reduce(tensor, distributed.ReduceOp.SUM if op is None else op, *rest, **more)

    distributed.new_group, distributed.all_reduce = group, reduced
    distributed.monitored_barrier = lambda *_, **__: None
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(distributed, name, value)


@contextlib.contextmanager
def _no_model(asked: SglangAsked) -> Iterator[None]:
    """Model runners whose model has layers and runs nothing; loading it takes memory from the card."""
    runner = named(MOVED, "ModelRunner")
    module: Any = importlib.import_module(runner.__module__)
    worker: Any = importlib.import_module("sglang.srt.managers.tp_worker")

    def model(*_: object, model_config: Any, **__: object) -> Any:
        asked.memory.free = asked.memory.after
        return _layers(model_config)

    def loaded(*_: object, model_config: Any, **__: object) -> Any:
        return types.SimpleNamespace(
            model=model(model_config=model_config),
            loader=types.SimpleNamespace(preloaded_weights_bytes=0),
            startup_weight_load=None,
            remote_instance_weight_info=None,
        )

    def loader(*_: object, **__: object) -> Any:
        return types.SimpleNamespace(load_model=model)

    ways = (
        ("load_model_with_memory_saver", loaded),
        ("get_model", model),  # until 0.5.6
        ("get_model_loader", loader),  # until 0.5.15
    )

    def skipped(self: Any, *_: object, **__: object) -> None:
        if not hasattr(self, "attn_backend"):
            self.attn_backend = types.SimpleNamespace()

    if not hasattr(runner, "attn_backend"):  # a draft's worker would lay it out
        runner.attn_backend = types.SimpleNamespace()
    changed: list[tuple[Any, str, Any]] = []
    drafting: Any = importlib.import_module("sglang.srt.speculative.spec_info")
    algorithm = drafting.SpeculativeAlgorithm
    created = getattr(algorithm, "create_worker", None)
    pools: Any = importlib.import_module("sglang.srt.mem_cache.memory_pool")
    for holder, name, value in (
        (algorithm, "create_worker", lambda *given, **more: _drafter(created, *given, **more)),
        (module, *next(way for way in ways if hasattr(module, way[0]))),
        *((runner, name, skipped) for name in SKIPPED),
        (worker, "broadcast_pyobj", lambda data, *_, **__: data),
        (pools.MHATokenToKVPool, "_init_kv_copy_and_warmup", skipped),
    ):
        if hasattr(holder, name):
            changed.append((holder, name, getattr(holder, name)))
            setattr(holder, name, value)
    try:
        yield
    finally:
        for holder, name, value in changed:
            setattr(holder, name, value)


def _drafter(create: Any, *given: Any, **more: Any) -> Any:
    """The class of the worker that drafts, without what it has to run."""
    made = create(*given, **more)
    for kind in made.__mro__[:-1]:
        module: Any = importlib.import_module(kind.__module__)
        kinds = [each for each in vars(module).values() if isinstance(each, type)]
        for each in kinds:
            if each.__name__.endswith("Worker") or each is kind:
                for name in DRAFT_SKIPPED:
                    if name in vars(each):
                        setattr(each, name, lambda *_, **__: None)
        if hasattr(module, "NgramCorpus"):  # compiled, and where drafts are looked up
            module.NgramCorpus = lambda **_: Absent("ngram")
    return made


def _layers(config: Any) -> Any:
    """What the model runner asks of a model: its layers, and the windows that its class tells of."""
    module: Any = importlib.import_module("torch.nn").Module

    class Layers(module):  # type: ignore[misc]
        start_layer, end_layer = 0, 0
        config: Any

        def forward(self, pp_proxy_tensors: Any = None) -> Any:
            raise NotImplementedError("no model is run")

        def set_eagle3_layers_to_capture(self, layers: object = None) -> None:
            """What a draft would read of it."""

    group: Any = importlib.import_module(STATE).get_pp_group()
    split: Any = importlib.import_module("sglang.srt.distributed.utils").get_pp_indices
    made = Layers()
    layers, stage = config.num_hidden_layers, group.rank_in_group
    made.start_layer, made.end_layer = split(layers, stage, group.world_size)
    made.config = config.hf_config
    window = _window(config.hf_config.architectures or (), made)
    if window is not None:
        made.get_attention_sliding_window_size = lambda: window
    return made


def _window(classes: Sequence[str], model: Any) -> int | None:
    """The window that the model's class tells of, which may be shorter than the config's."""
    models: Any = importlib.import_module("sglang.srt.models")
    for path in (path for place in models.__path__ for path in Path(place).glob("*.py")):
        text = path.read_text(errors="replace")
        for name in classes:
            if f"class {name}(" in text and "def get_attention_sliding_window_size" in text:
                with contextlib.suppress(Exception):  # of a class that asks more than its config
                    kind = getattr(importlib.import_module(f"{models.__name__}.{path.stem}"), name)
                    return int(kind.get_attention_sliding_window_size(model))
    return None


def told_of(server: Any) -> dict[str, Any]:
    """Pools and limits of a built scheduler, in plain values."""
    worker = server.tp_worker
    runner = getattr(worker, "worker", worker).model_runner  # older: behind a thread of its own
    page, tokens = int(server.page_size), int(server.max_total_num_tokens)
    told: dict[str, Any] = {
        "num_blocks": tokens // page,
        "block_tokens": page,
        "kv_tokens": tokens,
        "max_concurrency": None,
        "max_model_len": int(server.model_config.context_len),
        "max_num_seqs": int(server.max_running_requests),
        "max_num_batched_tokens": server.chunked_prefill_size,
        "prefix_caching": not server.server_args.disable_radix_cache,
        "groups": [],
    }
    window = getattr(runner, "swa_max_total_num_tokens", None)
    if window is not None:
        told["window_tokens"] = int(window)
    slots = getattr(server.req_to_token_pool, "mamba_pool", None)
    if slots is not None:
        told["state_slots"] = int(slots.size)
    return told


ENGINE = SglangAsked
