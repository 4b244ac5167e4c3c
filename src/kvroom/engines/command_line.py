"""How an engine is started: its programs, what each Scenario key is called, its switches.

One object for writing and for reading a command. Names are the engine's own with underscores; flags that a
Scenario has no key for are its ``engine_args``. The methods are what an engine does in its own way.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from kvroom.answer.plan import Plan
from kvroom.engines.flag_names import FlagNames, only_serves
from kvroom.engines.flags import Reader, plain_name, switch, value_of
from kvroom.engines.start_rules import StartRefusal
from kvroom.errors import KvroomError
from kvroom.models.spec import ModelSpec
from kvroom.records import dataclass
from kvroom.scenario.offload import LMCACHE_CHUNK_TOKENS, OffloadTier
from kvroom.scenario.scenario import Scenario
from kvroom.sharding.deployment import Deployment

Texts = Mapping[str, str]
"""Variables by name, or files' contents."""
_SWITCH = re.compile(r"(enable|disable|no|skip|use|trust|enforce|return|allow|show|keep|ignore)_")
"""How the names of switches begin, by and large."""
_OPEN = re.compile(r"\$(?:\{\w|\w|\()|\{\{-?\s*[.$(]")
BYTES_FLAGS = frozenset(("kv_cache_memory_bytes", "kv_cache_memory"))
VALUED = frozenset(
    (
        "quantization",
        "speculative_config",
        "max_loras",
        "max_lora_rank",
        "parallel",
        "num_speculative_tokens",
    )
)
"""Flags that say nothing without a value, whatever reads them."""
OPTIONAL = frozenset(("flash_attn", "use_kv_cache_manager_v2"))
"""Switches that may be given a word too."""
_SERVING = """
    host port api_key hf_token served_model_name uvicorn_log_level log_level ssl_keyfile
    ssl_certfile ssl_ca_certs root_path download_dir chat_template tool_call_parser
    reasoning_parser enable_auto_tool_choice trust_remote_code disable_log_requests
    disable_log_stats enable_log_requests allowed_origins tokenizer tokenizer_mode revision
    alias a api_key_file threads t seed log_file jinja dtype
    is_prefill_worker is_decode_worker disaggregation_mode migration_limit store_kv event_plane
    request_plane discovery_backend custom_jinja_template
"""
SERVING = frozenset(_SERVING.split())
"""What a command says of serving and not of memory (or should not be repeated): it is left out. Some are
those of Dynamo's workers, which take an engine's own flags too."""
VISIBLE = (
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "GGML_CUDA_VISIBLE_DEVICES",
)
"""Variables that say which cards are seen."""
_PLATFORM = """
    CUDA_ CUBLAS_ CUDNN_ NVIDIA_ NCCL_ NVSHMEM_ UCX_ PYTORCH_ TORCH_ TORCHINDUCTOR_ TRITON_ OMP_
    MKL_ HIP_ ROCR_ ROCM_ HSA_ RCCL_ MIOPEN_ AMD_ FLASHINFER_ FLASH_ATTN DG_ GGML_ GOMP_ KMP_ MALLOC_
"""
PLATFORM = tuple(_PLATFORM.split())
"""How variables begin of what every engine runs on: drivers, collectives, PyTorch, kernels, threads."""
_PLATFORM_HARMLESS = """
    CUDA_HOME CUDA_DEVICE_ORDER CUDA_VERSION CUDA_LAUNCH_BLOCKING NVIDIA_DRIVER_CAPABILITIES
    NVIDIA_REQUIRE_CUDA NVIDIA_PRODUCT_NAME TORCH_HOME TORCH_CUDA_ARCH_LIST ROCM_HOME
"""
PLATFORM_HARMLESS = frozenset((*VISIBLE, *_PLATFORM_HARMLESS.split()))
"""Those that are read by name (which cards are seen), or say where something lies."""
_METHODS = """
    none awq awq_marlin auto-round bitblas bitsandbytes compressed-tensors cpu_awq deepspeedfp
    experts_int8 fbgemm_fp8 fp8 fp_quant gguf gptq gptq_bitblas gptq_marlin gptq_marlin_24 hqq inc
    int8 ipex marlin modelopt modelopt_fp4 modelopt_fp8 modelopt_mixed modelopt_mxfp8 modelslim
    moe_wna16 mxfp4 mxfp8 neuron_quant nvfp4 petit_nvfp4 ptpc_fp8 qoq qqq quark
    quark_int4fp8_moe rtn torchao tpu_int8 unquant w4afp8 w8a8_fp8 w8a8_int8 humming
    online fp8_per_tensor fp8_per_block int8_per_channel_weight_only
"""
QUANTIZATIONS = frozenset(_METHODS.split())
"""What ``--quantization`` takes in engines that load checkpoints of the hub, of any release."""
AT_LOAD = {"fp8": "fp8", "bitsandbytes": "int4"}
"""Words for weights that are narrowed as they load → kvroom's; every other says what the checkpoint is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Values of a Helm chart: an engine's settings under ``config``, the model under ``model``.

    ``keys`` are the chart's own keys by flag; every other flag is its ``extra``. ``plain`` are keys of it
    that are no flags.
    """

    config: str
    model: str
    extra: str
    keys: Mapping[str, str]
    plain: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StartParts:
    """A start that is more than one command with flags: variables, files to write first, commands to give
    once it runs, and the Scenario's keys that these say."""

    env: Texts = field(default_factory=dict)
    files: Texts = field(default_factory=dict)
    after: tuple[tuple[str, ...], ...] = ()
    keys: frozenset[str] = frozenset()
    rest: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFlags:
    """How an engine is spread over machines: flags for how many there are, which one this is, the first
    one's address (also for data-parallel ranks, with how many a machine has); what a further one has beside
    them; and others that say no more than where ranks are."""

    count: str = ""
    rank: str = ""
    address: str = ""
    address_form: str = "{}"
    follower: str = ""
    data_local: str = ""
    data_address: str = ""
    others: tuple[str, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """All of them."""
        return frozenset(
            filter(
                None,
                (
                    self.count,
                    self.rank,
                    self.address,
                    self.follower,
                    self.data_local,
                    self.data_address,
                    *self.others,
                ),
            )
        )


CommandKeys = tuple[dict[str, Any], list[str], str]
"""(Scenario keys, warnings, the model as typed where only a shell could tell)."""


LMCACHE_FOLDER = "file:///tmp/lmcache/"
"""Where LMCache keeps a disk's tier."""


def lmcache_variables(
    host_bytes: int, disk_bytes: int, ranks: int, chunk_tokens: int | None = None
) -> dict[str, str]:
    """LMCache's variables for tiers of ``ranks`` GPUs (GB a worker), in chunks of so many tokens."""
    found = {
        "LMCACHE_LOCAL_CPU": str(bool(host_bytes)),
        "LMCACHE_MAX_LOCAL_CPU_SIZE": f"{host_bytes / 1e9 / ranks:g}",
    }
    if disk_bytes:
        found["LMCACHE_LOCAL_DISK"] = LMCACHE_FOLDER
        found["LMCACHE_MAX_LOCAL_DISK_SIZE"] = f"{disk_bytes / 1e9 / ranks:g}"
    if chunk_tokens not in (None, LMCACHE_CHUNK_TOKENS):
        found["LMCACHE_CHUNK_SIZE"] = str(chunk_tokens)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedTiers:
    """``tiers`` that an engine's flags are to say, of the bytes of ``sizes`` (by kind), for ``ranks`` GPUs
    with ``engines`` data-parallel ranks, and a release. ``block_bytes``: a block of the GPUs' cache in host
    memory, all ranks' parts of it."""

    tiers: Sequence[OffloadTier]
    sizes: Mapping[str, int]
    ranks: int
    engines: int = 1
    version: str | None = None
    block_bytes: int = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class CommandLine:
    """One engine's command line; read back it is that of ``engine``, which people call ``label``.

    ``programs`` are the ways to start it, the first that to write, with an ``optional_word`` behind it;
    ``keys`` flags by Scenario key, the first that to write; ``dtypes`` cache dtypes by kvroom's name.
    ``model_flag`` is None where the model stands by itself, ``hub_flag`` names one of the hub. ``image``
    finds its container image, its first group the tag. ``readers`` and ``known`` are those of its flags.
    """

    engine: str
    label: str
    programs: tuple[tuple[str, ...], ...]
    image: re.Pattern[str]
    default_image: str
    platform_program: tuple[str, ...] = ()
    """What serves a platform's object (KServe's, llm-d's, Ray Serve's) that names a model and no program."""
    modelfile_starts: tuple[tuple[str, ...], ...] = ()
    """Commands by which a file called Modelfile is served."""
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    names: FlagNames = field(default_factory=FlagNames)
    readers: Mapping[str, tuple[str, Reader]] = field(default_factory=dict)
    known: frozenset[str] = frozenset()
    optional_word: str = ""
    model_flag: str | None = None
    model_flags: tuple[str, ...] = ("model",)
    hub_flag: str = ""
    joiner: str = "-"
    dtypes: Mapping[str, str] = field(default_factory=dict)
    at_load: tuple[str, ...] = ()
    """Weight dtypes that ``--quantization`` makes as it loads a 16-bit checkpoint."""
    quantizations: frozenset[str] = frozenset()
    """What ``--quantization`` takes; empty: any word."""
    dtype_flag: str = ""
    longer_variable: str = ""
    """The variable without which it refuses a length beyond the model's own."""
    variables: frozenset[str] = frozenset()
    """Environment variables that bear on the answer, as ``engine_args`` call them (lower case)."""
    variable_prefixes: tuple[str, ...] = ()
    """How the names of its environment variables begin, beside those of what it runs on (PLATFORM)."""
    flag_variables: str = ""
    """How a variable begins that sets the flag named behind it (``LLAMA_ARG_CTX_SIZE``)."""
    harmless: frozenset[str] = frozenset()
    """Those that change nothing that is answered here, or are read elsewhere."""
    expert_switch: str = ""
    """The switch that makes experts parallel over all ranks."""
    option_files: tuple[str, ...] = ()
    """Flags that name a file of options."""
    switch_values: bool = False
    """Switches are written with true or false."""
    list_joiner: str = ""
    """What stands between the items of a list that is one word; empty: such a list is JSON."""
    default_tp: bool = True
    """It has tensor-parallel ranks, one where none are said."""
    chart: Chart | None = None
    machine_flags: MachineFlags = field(default_factory=MachineFlags)
    tier_names: frozenset[str] = frozenset()
    """Flags and variables (in lower case) that say tiers."""
    tiers_since: str = ""
    """The release that brought its own offloading to host memory; empty: all that are known have it."""
    port: int = 8000
    health: str = "/health"
    """Where a running server says that it is ready."""
    several_starts: bool = False
    """More than one command starts it: all are read together, by ``read_starts``."""

    @property
    def key_of(self) -> dict[str, str]:
        """Flag → Scenario key."""
        return {name: key for key, names in self.keys.items() for name in names}

    def typed(self, name: str) -> str:
        """``--the-flag`` as it is typed."""
        return "--" + name.replace("_", self.joiner)

    def listed(self, name: str, value: Any) -> Any:
        """The value of a flag, a list in its one spelling: of items where each is a word of its own, else
        what ``list_joiner`` makes of it."""
        if name in self.names.lists and value is not None and not isinstance(value, bool):
            return items_of(value)
        if self.list_joiner and isinstance(value, list | tuple):
            return value_of(self.list_joiner.join(map(str, value)))
        return value

    def flag_words(self, name: str, value: Any) -> tuple[str, ...]:
        """A flag as it is typed, and its value: nothing for a switch, a word an item for a list."""
        if isinstance(value, bool) and not self.switch_values:
            return (self.typed(name if value else f"no_{name}"),)
        value = self.listed(name, value)
        if name in self.names.lists and isinstance(value, list):
            if not value:
                why = "is empty, which the command line has no way to say"
                raise KvroomError(f"engine_args.{name}", [], why, "Leave it out, or list one.")
            return self.typed(name), *map(_word, value)
        return self.typed(name), _word(value)

    def check_release(self, args: Mapping[str, Any], version: str | None) -> None:
        """Refuse a flag of ``args`` that the release is known not to have. The cache's bytes are also a
        way to ask for a cache, whatever starts it."""
        for key, value in args.items():
            name = plain_name(key)
            if name in BYTES_FLAGS or value is None:
                continue
            if why := self.names.lacks(name, version):
                raise KvroomError(
                    f"engine_args.{key}", value, f"is no flag of {self.label} {version}: it {why}",
                    f"Leave it out, or {self.other_release(name)}.",
                )  # fmt: skip

    def flag_refusal(
        self, names: Iterable[str], version: str | None, key: str = ""
    ) -> StartRefusal | None:
        """What a release does with flags that it does not have; None where it has them all."""
        lacking = {name: why for name in names if (why := self.names.lacks(name, version))}
        if not lacking:
            return None
        told = "; ".join(f"{self.typed(name)} {why}" for name, why in lacking.items())
        releases = dict.fromkeys(self.other_release(name) for name in lacking)
        each = key or ("it" if len(lacking) == 1 else "them")
        fix = f"{', '.join(releases)}, or leave {each} out"
        return StartRefusal(
            rule="flag",
            message=f"{self.label} {version} has no such flag: {told}",
            fix=fix,
            source=f"{self.label}'s own argument parser, release by release",
            key=key,
        )

    def other_release(self, name: str) -> str:
        """The releases that have the flag of that name."""
        first, last = self.names.span(name)
        ends = [f"from {first} on"] if first else []
        return " ".join(["take a release", *ends, *([f"up to {last}"] if last else [])])

    def told_of(self, deployment: Deployment) -> tuple[str, ...]:
        """What is to be said of the flags of a deployment."""
        args = deployment.args
        return (*self.names.unused(args), *self.names.gone(args, deployment.version))

    def is_switch(self, name: str) -> bool:
        """Whether a flag of that name takes no value."""
        return name in self.names.switches or (
            name not in self.names.valued
            and _SWITCH.match(name) is not None
            and name not in self.key_of
        )

    def takes_value(self, name: str) -> bool:
        """Whether a flag of that name says nothing without a value."""
        if name in self.key_of or name in self.model_flags or name in VALUED:
            return True
        reader = self.readers.get(name)
        return reader is not None and reader[1] is not switch and name not in OPTIONAL

    def flag_of(self, variable: str) -> str:
        """The flag that a variable sets; none for most."""
        begin = self.flag_variables
        return variable[len(begin) :].lower() if begin and variable.startswith(begin) else ""

    def from_environment(self, env: Texts, keys: dict[str, Any], args: dict[str, Any]) -> None:
        """Put what variables say into ``keys`` and ``args``."""
        for name, value in env.items():
            if name.lower() in self.variables:
                args.setdefault(name.lower(), value_of(value))

    def unused(self, env: Texts) -> list[str]:
        """A warning for each variable of the engine, or of what it runs on, that is not read and does not
        serve alone."""
        begin, used = PLATFORM + self.variable_prefixes, self.harmless | PLATFORM_HARMLESS
        return [
            f"{name} is not used: it may change speed or memory"
            for name in env
            if name.startswith(begin)
            and not self.flag_of(name)
            and name.lower() not in self.variables
            and name not in used
            and not only_serves(name.lower())
        ]

    def too_few_cards(self, env: Texts, keys: Mapping[str, Any]) -> list[str]:
        """A warning where the variables show fewer cards than the layout has ranks."""
        ranks, shown = keys.get("tp", 1) * keys.get("pp", 1), visible_cards(env)
        if shown is None or ranks <= shown[1] or not self.default_tp:
            return []
        return [
            f"{shown[0]} shows {shown[1]} of the {ranks} GPUs of its layout: it would not start"
        ]

    def finish(self, keys: dict[str, Any], args: dict[str, Any]) -> None:
        """Settle keys and flags that mean something together, once all are read."""

    def read_starts(
        self,
        starts: Sequence[tuple[tuple[str, ...], list[str]]],
        env: Texts,
        files: Texts,
        known: Mapping[str, Any],
    ) -> CommandKeys:
        """What several commands (program, words) say together; ``known`` are keys that are stated."""
        raise NotImplementedError(self.label)

    def model_keys(self, name: str, known: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """(the Scenario's model and what goes with it, warnings) of a model as this engine names it."""
        return {"model": name}, []

    def settled(self, scenario: Scenario, deployment: Deployment, plan: Plan) -> Scenario:
        """The Scenario with what the engine would decide by itself written out as flags."""
        return scenario

    def tier_flags(self, asked: AskedTiers) -> tuple[dict[str, Any], dict[str, str]]:
        """(flags, variables) for tiers, as the release has them; nothing where it has none for them."""
        return {}, {}

    def cache_word(self, kv_dtype: str, version: str | None) -> str | None:
        """What a release calls a cache width; None where it has no word for it."""
        return self.dtypes.get(kv_dtype, kv_dtype)

    def cache_flags(self, kv_dtype: str) -> dict[str, Any]:
        """Flags for a cache width that are not one of ``keys``."""
        return {}

    def parts(self, scenario: Scenario, model: str) -> StartParts | None:
        """Variables, files and commands in place of flags; None where flags say it all."""
        return None

    def split(
        self, flags: dict[str, Any], scenario: Scenario
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """(what goes on the command line, files for the rest)."""
        return flags, {}

    def narrows(self, scenario: Scenario, model: ModelSpec) -> bool:
        """Whether the engine makes weights of ``scenario.weight_dtype`` out of what it loads."""
        return model.quantisation is None and scenario.weight_dtype in self.at_load

    def notes(self, scenario: Scenario, model: ModelSpec) -> tuple[str, ...]:
        """What to know before starting it."""
        return ()


def items_of(value: Any) -> list[Any]:
    """The items of a flag that takes a list of words: of a list, of JSON of one, or the words of a text."""
    if isinstance(value, str):
        stated = value_of(value)
        if stated == value and "{" not in value:
            return [value_of(part) for part in re.split(r"[,\s]+", value.strip()) if part]
        value = stated
    items = value if isinstance(value, list | tuple) else [value]
    return [value_of(item) if isinstance(item, str) else item for item in items]


def _word(value: Any) -> str:
    """A value as one word."""
    if isinstance(value, bool | dict | list | tuple):
        return json.dumps(value, separators=(",", ":"))
    return str(value) if isinstance(value, str | int) else repr(value)


def visible_cards(env: Texts) -> tuple[str, int] | None:
    """(the variable, the number of cards) where a variable says which cards are seen."""
    for name in VISIBLE:
        cards = [part for part in env.get(name, "").split(",") if part.strip()]
        if cards and cards[0].strip().lower() not in ("all", "void", "none", "-1"):
            return None if unset_variable(env[name]) else (name, len(cards))
    return None


def unset_variable(value: str) -> bool:
    """Whether ``value`` holds a variable, or a command's output, that only a shell could put in."""
    return _OPEN.search(value) is not None
