"""A vLLM that holds nothing: the internals that kvroom asks, over a scheduler of forty lines.

Every module is made here. ``TOY`` in the environment makes it ill: hang, crash, print, hold, refuse, or
older: it falls back to another engine, it has no model, it lacks a function (0.8.5).
"""

import argparse
import dataclasses
import json
import logging
import os
import sys
import time
import types
from contextlib import nullcontext

__version__ = os.environ.get("TOY_VERSION", "9.1.0")
ILL = os.environ.get("TOY", "")
BLOCK = 16
LAYERS = 32


def module(name, **members):
    made = types.ModuleType(f"vllm.{name}")
    vars(made).update(members)
    sys.modules[f"vllm.{name}"] = made
    parent, _, last = f"vllm.{name}".rpartition(".")
    if parent in sys.modules:
        setattr(sys.modules[parent], last, made)
    return made


class Platform:
    device_type = "cpu"


class CudaPlatformBase(Platform):
    device_type = "cuda"


platforms = module("platforms", _current_platform=None)
platforms.__getattr__ = lambda name: platforms._current_platform or Platform()
module("platforms.cuda", CudaPlatformBase=CudaPlatformBase)
module("platforms.interface", DeviceCapability=lambda *parts: parts)
module("triton_utils", HAS_TRITON=True)
module("config", set_current_vllm_config=lambda config: nullcontext())
module("utils", FlexibleArgumentParser=argparse.ArgumentParser)
module("utils.import_utils")
module("usage")
module("usage.usage_lib", UsageContext=types.SimpleNamespace(OPENAI_API_SERVER="server"))


@dataclasses.dataclass
class AsyncEngineArgs:
    model: str = ""
    max_model_len: int = 4096
    max_num_batched_tokens: int = 2048
    max_num_seqs: int = 8
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    load_format: str = "auto"
    dtype: str = "auto"
    gpu_memory_utilization: float = 0.9
    kv_cache_memory_bytes: int = 0
    skip_tokenizer_init: bool = False
    enable_prefix_caching: bool = False

    @classmethod
    def add_cli_args(cls, parser):
        for each in dataclasses.fields(cls):
            name = "--" + each.name.replace("_", "-")
            if each.type is bool or each.type == "bool":
                parser.add_argument(name, action="store_true")
                parser.add_argument(
                    name.replace("--", "--no-"), dest=each.name, action="store_false"
                )
            else:
                parser.add_argument(name, type=type(each.default), default=each.default)
        return parser

    @classmethod
    def from_cli_args(cls, read):
        return cls(**{f.name: getattr(read, f.name) for f in dataclasses.fields(cls)})

    def create_engine_config(self, context):
        with open(f"{self.model}/config.json") as file:  # noqa: PTH123
            config = json.load(file)
        if ILL == "refuse":
            raise ValueError("the toy takes no models today")
        if ILL == "no model":
            raise ValueError("The toy does not recognize this architecture")
        if ILL == "falls back":
            first = os.environ.setdefault("VLLM_USE_V1", "1" if self.max_num_seqs == 8 else "0")
            if first == "1" and self.max_num_seqs != 8:
                raise NotImplementedError("VLLM_USE_V1=1 is not supported with it")
        plain = types.SimpleNamespace
        return plain(
            model_config=plain(max_model_len=self.max_model_len, dtype="bfloat16", config=config),
            scheduler_config=plain(
                max_num_seqs=self.max_num_seqs,
                max_num_batched_tokens=self.max_num_batched_tokens,
            ),
            cache_config=plain(block_size=BLOCK, enable_prefix_caching=False),
            parallel_config=plain(
                tensor_parallel_size=self.tensor_parallel_size,
                pipeline_parallel_size=self.pipeline_parallel_size,
                data_parallel_size=1,
            ),
            compilation_config=plain(),
        )


@dataclasses.dataclass
class FullAttentionSpec:
    block_size: int
    page_size_bytes: int


class Runner:
    def get_kv_cache_spec(self):
        config = self.vllm_config.model_config.config
        heads = (
            config["num_key_value_heads"] // self.vllm_config.parallel_config.tensor_parallel_size
        )
        head = config["hidden_size"] // config["num_attention_heads"]
        page = BLOCK * heads * head * 2 * 2
        layers = config["num_hidden_layers"]
        return {f"layer.{i}": FullAttentionSpec(BLOCK, page) for i in range(layers)}


class Executor:
    def __init__(self, config):
        self.vllm_config, self.parallel_config = config, config.parallel_config
        self._init_executor()


class Request:
    def __init__(self, request_id, prompt_token_ids, sampling_params, arrival_time, priority=0):
        self.request_id, self.prompt = request_id, prompt_token_ids
        self.num_tokens = len(prompt_token_ids)
        self.last = self.num_tokens + sampling_params.max_tokens
        self.num_computed_tokens, self.blocks = 0, 0


@dataclasses.dataclass
class ModelRunnerOutput:
    req_ids: list
    req_id_to_index: dict
    sampled_token_ids: list
    prompt_logprobs_dict: dict


class Pool:
    def __init__(self, count):
        self.num_gpu_blocks, self.free = count, count - 1

    def get_num_free_blocks(self):
        return self.free


class Scheduler:
    """First come, first served; the last admitted gives way."""

    block_size = BLOCK

    def __init__(self, config, kv_cache_config):
        self.kv_cache_config, self.settings = kv_cache_config, config.scheduler_config
        self.requests, self.waiting, self.running = {}, [], []
        pool = Pool(kv_cache_config.num_blocks)
        self.kv_cache_manager = types.SimpleNamespace(block_pool=pool)
        self.pool = pool

    def add_request(self, request):
        self.requests[request.request_id] = request
        self.waiting.append(request)

    def finish_requests(self, name, status):
        self._release(self.requests.pop(name))
        self.waiting = [r for r in self.waiting if r.request_id != name]

    def _release(self, request):
        self.pool.free += request.blocks
        request.blocks = 0

    def _room(self, request, tokens):
        need = -(-(request.num_computed_tokens + tokens) // BLOCK) - request.blocks
        if need > self.pool.free:
            return False
        self.pool.free -= need
        request.blocks += need
        return True

    def schedule(self):
        if ILL == "crash":
            os._exit(11)
        tokens, lost = {}, set()
        budget = self.settings.max_num_batched_tokens
        place = 0
        while place < len(self.running) and budget:
            request = self.running[place]
            count = min(budget, request.num_tokens - request.num_computed_tokens)
            while not self._room(request, count):
                victim = self.running.pop()
                budget += tokens.pop(victim.request_id, 0)
                self._release(victim)
                victim.num_computed_tokens = 0
                lost.add(victim.request_id)
                self.waiting.insert(0, victim)
                if victim is request:
                    break
            else:
                tokens[request.request_id] = count
                budget -= count
            place += 1
        while (
            not lost and self.waiting and budget and len(self.running) < self.settings.max_num_seqs
        ):
            request = self.waiting[0]
            if -(-request.num_tokens // BLOCK) > self.pool.free:
                break
            count = min(budget, request.num_tokens)
            self._room(request, count)
            self.running.append(self.waiting.pop(0))
            tokens[request.request_id] = count
            budget -= count
        for name, count in tokens.items():
            self.requests[name].num_computed_tokens += count
        return types.SimpleNamespace(
            num_scheduled_tokens=tokens, scheduled_spec_decode_tokens={}, preempted_req_ids=lost
        )

    def update_from_output(self, output, model):
        outputs = []
        for name, sampled in zip(model.req_ids, model.sampled_token_ids, strict=True):
            request = self.requests[name]
            request.num_tokens += len(sampled)
            over = request.num_tokens >= request.last
            if over:
                self.running.remove(request)
                self._release(self.requests.pop(name))
            outputs.append(types.SimpleNamespace(request_id=name, finish_reason=over or None))
        return {0: types.SimpleNamespace(outputs=outputs)}


def get_kv_cache_configs(config, specs, available):
    groups = [
        types.SimpleNamespace(layer_names=list(spec), kv_cache_spec=next(iter(spec.values())))
        for spec in specs[:1]
    ]
    size = sum(each.page_size_bytes for each in specs[0].values())
    plain = types.SimpleNamespace
    return [plain(num_blocks=min(available) // size, kv_cache_groups=groups)]


def concurrency_of(config, made):
    return made.num_blocks / -(-config.model_config.max_model_len // BLOCK)


class EngineCore:
    batch_queue_size = 1

    def __init__(self, config, executor, log_stats):
        self.vllm_config = config
        made = executor(config)
        room = made.collective_rpc("determine_available_memory")
        cache = get_kv_cache_configs(config, made.collective_rpc("get_kv_cache_spec"), room)[0]
        if concurrency_of(config, cache) < 1:
            raise ValueError("To serve at least one request more KV cache is needed")
        tokens = f"{cache.num_blocks * BLOCK:,}"
        logging.getLogger("vllm").warning("GPU KV cache size: %s tokens", tokens)
        self.scheduler = Scheduler(config, cache)


module("v1")
module("v1.engine")
module("v1.engine.core", EngineCore=EngineCore)
module("v1.executor", Executor=Executor)
module("v1.request", Request=Request, RequestStatus=types.SimpleNamespace(FINISHED_ABORTED=0))
module("v1.outputs", ModelRunnerOutput=ModelRunnerOutput)
module("v1.core")
module("v1.core.sched")
module("v1.core.sched.scheduler", Scheduler=Scheduler)
module(
    "v1.core.kv_cache_utils",
    **({} if ILL == "0.8.5" else {"get_max_concurrency_for_kv_cache_config": concurrency_of}),
)
module("v1.worker")
module("v1.worker.gpu_model_runner", GPUModelRunner=Runner)
module("sampling_params", SamplingParams=types.SimpleNamespace)
module("engine")
module("engine.arg_utils", AsyncEngineArgs=AsyncEngineArgs)
module("distributed")
module("distributed.parallel_state", _TP=None, _PP=None)
module("model_executor")
module("model_executor.models")
module("model_executor.models.registry")
module("model_executor.model_loader")
module(
    "model_executor.model_loader.utils",
    **({} if ILL == "0.8.5" else {"initialize_model": lambda config: None}),
    set_default_torch_dtype=lambda dtype: nullcontext(),
)
module("model_executor.model_loader.loader", _initialize_model=lambda vllm_config: None)

if ILL == "hang":
    time.sleep(600)
if ILL == "print":
    for _ in range(400):
        print("x" * 2**20, flush=True)
if ILL == "hold":
    kept = bytearray(2**30)
    kept[::4096] = b"x" * len(kept[::4096])
    time.sleep(600)
if ILL == "exit":
    sys.exit("no such device")
