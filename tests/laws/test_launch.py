"""A command that kvroom writes is read back as the same question, for every engine."""

import json
import os
import re
import shlex
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvroom.engines.registry import engine_of
from kvroom.engines.releases import published
from kvroom.errors import KvroomError
from kvroom.launchers.commands import read_command, read_start, starts_of
from kvroom.launchers.engine_command import engine_command
from kvroom.launchers.helm import values, yaml
from kvroom.launchers.launch import launch, shell, stated
from kvroom.launchers.objects import manifests
from kvroom.launchers.yaml_documents import yaml_documents
from kvroom.planner.plan import work
from kvroom.scenario.offload import from_flags, parse_tiers
from kvroom.scenario.scenario import Scenario

CARDS = ("H100-SXM", "A100-SXM-80", "L40S", "RTX-4090", "B200-SXM")
MODELS = ("llama-3-8b", "llama-3-70b", "qwen3-30b-a3b", "gemma-3-27b", "mistral-7b", "gpt-oss-20b")
DRAFT = {"method": "draft", "model": "llama-3.2-1b", "num_speculative_tokens": 3}
LAYOUTS = st.sampled_from(
    [
        {},
        {"tp": 2},
        {"tp": 4},
        {"tp": 2, "pp": 2},
        {"tp": 2, "dp": 2},
        {"tp": 4, "ep": 4},
        {"tp": 8, "pp": 2},
        {"tp": 8, "dp": 2},
    ]
)
TIERS = (
    [{"kind": "host", "bytes": 64 * 10**9}],
    [{"kind": "host"}, {"kind": "nvme", "bytes": 10**12}],
)
PLANS = int(os.environ.get("KVROOM_PLANS", "8"))
"""How many plans of an engine go through every form and back."""
EXPERTS = ("qwen3-30b-a3b", "gpt-oss-20b")
WORDS = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1, max_size=8
)
ARGS = {
    "vllm": st.fixed_dictionaries(
        {},
        optional={
            "gpu_memory_utilization": st.sampled_from([0.5, 0.85, 0.9, 0.95]),
            "max_num_seqs": st.integers(1, 512),
            "max_num_batched_tokens": st.integers(64, 32768),
            "enable_prefix_caching": st.booleans(),
            "enforce_eager": st.booleans(),
            "kv_cache_memory_bytes": st.integers(2**30, 2**34),
            "hf_overrides": st.dictionaries(WORDS, WORDS, max_size=2),
            "cudagraph_capture_sizes": st.lists(st.integers(1, 64), min_size=1, max_size=4),
            "kv_cache_dtype_skip_layers": st.sampled_from([["0", "1"], ["sliding_window"], [3]]),
            "lora_modules": st.sampled_from(
                [["a=b", "c=d"], [{"name": "a", "path": "x y"}], "a=b c=d"]
            ),
        },
    ),
    "sglang": st.fixed_dictionaries(
        {},
        optional={
            "mem_fraction_static": st.sampled_from([0.6, 0.8, 0.9]),
            "max_running_requests": st.integers(1, 512),
            "chunked_prefill_size": st.sampled_from([2048, 8192]),
            "disable_radix_cache": st.just(True),
            "cuda_graph_max_bs": st.integers(1, 256),
            "cuda_graph_bs": st.lists(st.integers(1, 64), min_size=1, max_size=4),
        },
    ),
    "tensorrt-llm": st.fixed_dictionaries(
        {},
        optional={
            "kv_cache_free_gpu_memory_fraction": st.sampled_from([0.5, 0.85]),
            "max_batch_size": st.integers(1, 512),
            "max_num_tokens": st.sampled_from([2048, 8192]),
            "tokens_per_block": st.sampled_from([32, 64]),
        },
    ),
    "llama.cpp": st.fixed_dictionaries(
        {},
        optional={
            "parallel": st.integers(1, 16),
            "n_gpu_layers": st.integers(1, 99),
            "ubatch_size": st.sampled_from([256, 512, 2048]),
            "kv_unified": st.booleans(),
            "swa_full": st.just(True),
        },
    ),
}
ARGS["ollama"] = st.fixed_dictionaries(
    {},
    optional={
        "num_parallel": st.integers(1, 16),
        "num_gpu": st.integers(1, 99),
        "num_batch": st.sampled_from([256, 512]),
        "flash_attention": st.booleans(),
        "gpu_overhead": st.integers(0, 2**31),
        "OLLAMA_SCHED_SPREAD": st.booleans(),
        "keep_alive": st.just("24h"),
    },
)
DTYPES = {
    "vllm": ("auto", "fp8", "bf16"),
    "sglang": ("auto", "fp8", "bf16"),
    "tensorrt-llm": ("auto", "fp8"),
    "llama.cpp": ("auto", "q8_0", "q4_0"),
    "ollama": ("auto", "q8_0", "fp16"),
}
BY_FILE = ("llama.cpp", "ollama")
"""Engines that cut no matrices and load GGUF files."""


SLOTS = {"llama.cpp": "parallel", "ollama": "num_parallel"}


@st.composite
def questions(draw: st.DrawFn, engine: str) -> Scenario:
    asked = {
        "model": draw(st.sampled_from(MODELS)),
        "gpu": draw(st.sampled_from(CARDS)),
        "engine": engine,
        "context_tokens": draw(st.sampled_from([2048, 8192, 12345])),
        "kv_dtype": draw(st.sampled_from(DTYPES[engine])),
        "engine_args": draw(ARGS[engine]),
        **draw(LAYOUTS if engine not in BY_FILE else st.just({})),
    }
    if asked["model"] not in EXPERTS:
        asked.pop("ep", None)
    for key, value in (
        ("concurrency", 7),
        ("weight_dtype", "fp8"),
        ("known_bytes", {"runtime": 5}),
    ):
        if draw(st.booleans()) and not (key == "weight_dtype" and engine in BY_FILE):
            asked[key] = value
    drafts = {
        "vllm": [{"method": "ngram", "num_speculative_tokens": 2}, DRAFT],
        "sglang": [DRAFT],
        "llama.cpp": [DRAFT],
    }
    if engine in drafts and asked["model"] == "llama-3-70b" and draw(st.booleans()):
        asked["speculation"] = draw(st.sampled_from(drafts[engine]))
    if draw(st.integers(0, 3)) == 0:
        asked["tiers"] = draw(st.sampled_from(TIERS))
    if engine == "ollama" and draw(st.booleans()):
        asked["weight_dtype"] = draw(st.sampled_from(["q4_k_m", "q8_0"]))
    return Scenario.from_dict(asked)


@pytest.mark.parametrize("engine", ARGS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_round_trip(engine: str, data: st.DataObject) -> None:
    question = data.draw(questions(engine))
    w = work(question)
    text = shell(launch(w))
    read = read_command(text)
    assert not read.warnings
    again = Scenario.from_dict(read.keys)
    assert again == stated(w)
    if question.speculation:
        words = ("--speculative-config", "--speculative-algorithm", "--spec-type")
        assert any(word in text for word in words)
    then = work(again)
    slots = SLOTS.get(engine)
    if slots and question.concurrency and slots not in question.engine_args:
        # So many are asked for, so many slots are started, not all that have room.
        room = w.plan.capacity.engine.max_running_requests
        asked = {**question.engine_args, slots: min(question.concurrency, room)}
        w = work(replace(question, engine_args=asked))
    if engine in BY_FILE:  # as many slots as have room are now a number of slots
        for name in ("kv_tokens", "max_concurrency", "max_running_requests"):
            assert getattr(then.plan.capacity.engine, name) == getattr(w.plan.capacity.engine, name)
    else:
        assert then.plan.capacity == w.plan.capacity
    sizes = [[(a.name, a.bytes) for a in p.memory.accounts] for p in (then.plan, w.plan)]
    assert sizes[0] == sizes[1]
    assert then.plan.verdict == w.plan.verdict
    assert shell(launch(then)) == text  # and nothing changes any more


@settings(max_examples=25, deadline=None)
@given(question=questions("vllm"))
def test_without_its_comments_a_command_stands_for_the_same_memory(question: Scenario) -> None:
    if question.weight_dtype or question.known_bytes or question.ep > 1:
        return  # what no flag says
    w = work(question)
    bare = "\n".join(x for x in shell(launch(w)).splitlines() if not x.startswith("#"))
    again = Scenario.from_dict({"gpu": question.gpu, **read_command(bare).keys})
    assert work(again).plan.memory == w.plan.memory


@settings(max_examples=25, deadline=None)
@given(question=questions("vllm"))
def test_helm_values_hold_every_flag(question: Scenario) -> None:
    w = work(question)
    made = launch(w)
    (read,) = yaml_documents(values(made, w.plan.weights.bytes))
    spec = read["servingEngineSpec"]["modelSpec"][0]
    config = spec["vllmConfig"]
    words = [*config["extraArgs"], *map(str, config.values())]
    for name, *typed in made.flags:
        assert (set(typed) <= set(words)) if typed else (name in words)
    assert spec["requestGPU"] == question.gpu_count


@settings(max_examples=40, deadline=None)
@given(question=questions("vllm"))
def test_helm_values_are_read_back(question: Scenario) -> None:
    w = work(question)
    text = values(launch(w), w.plan.weights.bytes)
    read = read_command(text)
    assert not read.warnings
    again = Scenario.from_dict(read.keys)
    assert again == stated(w)
    assert work(again).plan.memory == w.plan.memory


@pytest.mark.parametrize("engine", ARGS)
@settings(max_examples=PLANS, deadline=None)
@given(data=st.data())
def test_every_manifest_is_read_back(engine: str, data: st.DataObject) -> None:
    w = work(data.draw(questions(engine)))
    texts, _ = manifests(launch(w))
    assert "compose" in texts
    for form, text in texts.items():
        read = read_command(text)
        assert not read.warnings, form
        assert Scenario.from_dict(read.keys) == stated(w), (form, text)
        start, *others = starts_of(text, {})
        assert not others or start.command.several_starts  # further machines are no further starts
        if start.gpus is not None and form != "compose" and engine in ("vllm", "sglang"):
            assert start.gpus * start.own_machines == w.plan.scenario.gpu_count, form


def test_a_list_is_a_word_an_item_where_the_engine_takes_words() -> None:
    asked = {"model": "llama-3-8b", "gpu": "H100-SXM", "context_tokens": 8192}
    args = {"cudagraph_capture_sizes": [1, 2, 4], "allowed_origins": ["*"]}
    made = engine_command(work(Scenario.from_dict(asked | {"engine_args": args})))
    assert "--cudagraph-capture-sizes 1 2 4 " in made.command
    assert """--allowed-origins '["*"]'""" in made.command  # JSON, as vLLM reads it
    (value,) = yaml_documents(made.text("ray-serve"))
    (config,) = value["applications"][0]["args"]["llm_configs"]
    assert config["engine_kwargs"]["cudagraph_capture_sizes"] == [1, 2, 4]
    split = {"engine": "llama.cpp", "engine_args": {"tensor_split": [3, 1]}}
    made = engine_command(work(Scenario.from_dict(asked | split)))
    assert "--tensor-split 3,1" in made.command


@pytest.mark.parametrize(
    ("engine", "forms"),
    [
        ("vllm", {"compose", "kubernetes", "kserve", "llm-d", "dynamo", "ray-serve"}),
        ("sglang", {"compose", "kubernetes", "dynamo"}),
        ("ollama", {"compose", "kubernetes"}),
    ],
)
def test_the_forms_of_an_engine(engine: str, forms: set[str]) -> None:
    question = Scenario.from_dict(
        {"model": "llama-3-8b", "gpu": "H100-SXM", "context_tokens": 8192, "engine": engine}
    )
    made = engine_command(work(question))
    assert set(made.manifests) == forms
    for form in forms:
        (value,) = yaml_documents(made.text(form))
        assert value
    if "kserve" not in forms:
        with pytest.raises(KvroomError, match="--format"):
            made.text("kserve")


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_two_machines_are_a_leader_with_a_worker(engine: str) -> None:
    asked = {"model": "deepseek-v3", "gpu": "H100-SXM", "tp": 8, "pp": 2, "engine": engine}
    question = Scenario.from_dict(asked | {"context_tokens": 8192})
    made = engine_command(work(question))
    (value,) = yaml_documents(made.text("kubernetes"))
    template = value["spec"]["leaderWorkerTemplate"]
    assert (value["kind"], template["size"]) == ("LeaderWorkerSet", 2)
    for role in ("leaderTemplate", "workerTemplate"):
        (container,) = template[role]["spec"]["containers"]
        assert container["resources"]["limits"] == {"nvidia.com/gpu": 8}
        assert container["args"][container["args"].index("--nnodes") + 1] == "2"
    assert "--nnodes 2" in made.command
    (graph,) = yaml_documents(made.text("dynamo"))
    assert graph["spec"]["services"]["Worker"]["multinode"] == {"nodeCount": 2}
    if engine == "vllm":
        with pytest.raises(KvroomError, match="starts on one machine, and this takes 2"):
            made.text("helm")
        older = replace(question, engine_version="0.10.0")
        with pytest.raises(KvroomError, match=r"spreads no vLLM 0\.10\.0 over 2 machines"):
            engine_command(work(older)).text("kubernetes")


def test_tiers_are_written_as_the_engine_calls_them() -> None:
    asked = {"model": "llama-3-8b", "gpu": "H100-SXM", "context_tokens": 8192, "tp": 2}
    host = {"tiers": [{"kind": "host", "bytes": 64 * 2**30}]}
    disk = {"tiers": [*host["tiers"], {"kind": "nvme", "bytes": 10**12}]}
    text = engine_command(work(Scenario.from_dict(asked | host))).command
    assert "--kv-offloading-size 64.0" in text
    text = engine_command(work(Scenario.from_dict(asked | disk))).command
    assert "LMCACHE_MAX_LOCAL_DISK_SIZE=500" in text
    text = engine_command(work(Scenario.from_dict(asked | disk | {"engine": "sglang"}))).command
    assert "--enable-hierarchical-cache" in text
    assert "--hicache-storage-backend file" in text
    made = engine_command(work(Scenario.from_dict(asked | host | {"engine": "tensorrt-llm"})))
    assert any("the tier host is not written" in note for note in made.notes)
    made = engine_command(work(Scenario.from_dict(asked | host | {"engine": "ollama", "tp": 1})))
    assert "the tier host is not written: Ollama has no flag for it" in made.notes


RELEASES = {
    "vllm": ("0.33.0", "0.20.0", "0.14.0", "0.13.0", "0.11.0", "0.10.0", "0.8.5"),
    "sglang": ("0.5.23", "0.5.9", "0.5.1", "0.4.10", "0.4.9"),
}
BELOW = (
    ["host:64GB"], ["host:64GB", "nvme:1TB"], ["lmcache:64GB"], ["hicache", "nvme:1TB:prefetch=timeout"],
    ["host:64GB:kv_dtype=fp8:write=back"], ["native:64GB:write=selective"], ["hicache", "network"],
    ["nvme:1TB"],
)  # fmt: skip


CACHE_WORDS = {
    "vllm": {
        "0.8.5": ("auto", "fp8", "fp8_e4m3", "fp8_e5m2"),
        "0.11.0": ("bfloat16",),
        "0.18.0": ("float16",),
        "0.20.0": ("fp8_per_token_head", "int8_per_token_head", "nvfp4"),
        "0.33.0": ("int4_per_token_head",),
    },
    "sglang": {
        "0.4.6": ("auto", "fp8_e5m2", "fp8_e4m3"),
        "0.5.4": ("bf16", "bfloat16"),
        "0.5.5": ("fp4_e2m1",),
        "0.5.16": ("nvfp4",),
    },
}
"""What ``--kv-cache-dtype`` takes, by the release that brought it: vLLM's ``CacheDType`` (config/cache.py of
0.8.5 to 0.33.0) and the choices in SGLang's server_args.py of 0.4.6 to 0.5.23."""
METHODS = {
    "0.8.5": (None, "ngram", "eagle", "eagle3", "draft_model"),
    "0.11.0": ("mtp",),
}
"""vLLM's ``SpeculativeMethod`` (0.8.5 knows eagle3, though its type does not say so)."""
ALGORITHMS = {"0.4.6": ("EAGLE", "EAGLE3", "NEXTN"), "0.5.2": ("STANDALONE",), "0.5.3": ("NGRAM",)}
"""The choices of SGLang's ``--speculative-algorithm``."""
CACHE_TYPES = ("fp16", "nvfp4", "fp8_per_token_head", "int8_per_token_head", "int4_per_token_head")
DRAFTED = (None, "eagle3:3", "ngram:2", "mtp:1", "draft:2:model=llama-3-8b")


def _known(words, version):
    """The words that a release knows."""
    return {
        w for since, new in words.items() if published(since) <= published(version) for w in new
    }


@pytest.mark.parametrize("engine", RELEASES)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_command_has_no_flag_that_its_release_lacks(engine: str, data: st.DataObject) -> None:
    """Whatever is asked of whichever release: refused in a sentence, or written in words it knows; keys of a
    tier are among them, or in a note."""
    version = data.draw(st.sampled_from(RELEASES[engine]))
    question = data.draw(questions(engine)).to_dict() | {"engine_version": version}
    question.pop("tiers", None)
    if drafts := data.draw(st.sampled_from(DRAFTED)):
        question |= {"speculation": drafts} | (
            {"model": "deepseek-v3", "tp": 8} if "mtp" in drafts else {}
        )
    if width := data.draw(st.sampled_from((None, *CACHE_TYPES))):
        question["kv_dtype"] = width
    asked = data.draw(st.sampled_from((None, *BELOW)))
    try:
        made = engine_command(
            work(Scenario.from_dict(question | ({"tiers": asked} if asked else {})))
        )
    except KvroomError:
        return
    names = engine_of(engine).command.names
    words = dict(zip(made.argv, [*made.argv[1:], ""], strict=True))
    assert words.get("--kv-cache-dtype", "auto") in _known(CACHE_WORDS[engine], version)
    if method := words.get("--speculative-algorithm"):
        assert method in _known(ALGORITHMS, version)
    if config := words.get("--speculative-config"):
        drafts = json.loads(config)
        assert drafts.get("method") in _known(METHODS, version)
        assert drafts.get("model") or drafts.get("method") in ("ngram", "mtp", None)
    for text in (made.command, *made.manifests.values()):
        for flag in set(re.findall(r"--([a-z][a-z0-9-]+)", text)):
            assert not names.lacks(flag.replace("-", "_"), version), (flag, version)
    for tier in parse_tiers("tiers", asked or []):
        told = [note for note in made.notes if f"the tier {tier.kind} is not written" in note]
        engines = made.scenario.get("dp", 1)
        ranks = made.scenario.get("tp", 1) * made.scenario.get("pp", 1) * engines
        argv = [word for word in made.argv if not word.startswith("#")]
        read = read_start(next(iter(starts_of(shlex.join(argv), {}))), {}).keys
        found = {
            each["kind"]: each for each in from_flags(read.get("engine_args", {}), ranks, engines)
        }
        assert tier.kind in found or told, (tier, made.command)
        for key in ("write", "kv_dtype", "prefetch", "chunk_tokens"):
            value = getattr(tier, key)
            same = value is None or (found.get(tier.kind) or {}).get(key) == value
            assert same or told or any(key in note for note in made.notes), (key, made.command)


@pytest.mark.parametrize(
    ("engine", "version", "key", "why"),
    [
        (
            "vllm",
            "0.9.1",
            {"dcp": 2, "tp": 8},
            r"--decode-context-parallel-size came with 0\.10\.2",
        ),
        ("sglang", "0.5.9", {"dcp": 2, "tp": 8}, r"--dcp-size came with 0\.5\.15"),
        ("vllm", "0.8.5", {"engine_args": {"kv_cache_memory_bytes": 10**10}}, "came with 0.10.2"),
    ],
)
def test_what_a_release_has_no_flag_for_is_refused(engine, version, key, why) -> None:
    asked = {"model": "deepseek-v3", "gpu": "B200-SXM", "context_tokens": 8192, "engine": engine}
    asked |= {"engine_version": version, "tp": 8}
    with pytest.raises(KvroomError, match=why):
        engine_command(work(Scenario.from_dict(asked | key)))


def test_offloading_is_written_as_its_release_has_it() -> None:
    asked = {
        "model": "llama-3-8b",
        "gpu": "H100-SXM",
        "context_tokens": 8192,
        "tiers": ["host:64GB"],
    }

    def flags(version: str) -> tuple[str, tuple[str, ...]]:
        made = engine_command(work(Scenario.from_dict(asked | {"engine_version": version})))
        return made.command, made.notes

    for version in ("0.11.0", "0.11.2", "0.13.0"):
        text, _ = flags(version)
        assert '"num_cpu_blocks":' in text
        assert "--kv-offloading" not in text
    text, _ = flags("0.14.0")
    assert "--kv-offloading-backend native" in text
    text, notes = flags("0.10.2")
    assert (
        "the tier host is not written: vLLM 0.10.2 has no flag for it (0.11.0 brings one)" in notes
    )
    args = {"kv_offloading_size": 10, "kv_offloading_backend": "native"}
    verdict = work(Scenario.from_dict({**asked, "tiers": None, "engine_version": "0.13.0",
                                       "engine_args": args})).plan.verdict  # fmt: skip
    assert verdict.status == "would_not_start"
    assert "offloaded_blocks" in {reason.rule for reason in verdict.reasons}


@pytest.mark.parametrize(
    ("engine", "tiers", "why"),
    [
        (
            "vllm",
            ["host:64GB", "nvme:1TB:prefetch=timeout"],
            "tiers.prefetch: 'timeout' is SGLang's",
        ),
        ("sglang", ["nvme:1TB"], "is read through host memory, of which there is none"),
    ],
)
def test_launch_refuses_the_tiers_that_simulate_refuses(engine, tiers, why) -> None:
    asked = {"model": "llama-3-8b", "gpu": "H100-SXM", "context_tokens": 8192, "engine": engine}
    with pytest.raises(KvroomError, match=why):
        engine_command(work(Scenario.from_dict(asked | {"tiers": tiers})))


def test_a_deployment_has_probes_shared_memory_and_cards() -> None:
    question = Scenario.from_dict(
        {"model": "llama-3-70b", "gpu": "H100-SXM", "tp": 4, "context_tokens": 8192}
    )
    (value,) = yaml_documents(engine_command(work(question)).text("kubernetes"))
    pod = value["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 4}
    assert container["startupProbe"]["httpGet"] == {"path": "/health", "port": 8000}
    assert pod["volumes"][0]["emptyDir"]["medium"] == "Memory"


PIECES = (
    "\n", "  ", "- ", "a: ", "image: vllm/vllm-openai:v0.9.2", "args: ", "[", "]", "{", "}", ",", "'", '"',
    "|", ">", "#", "&", "--model=m", "\t", "\\", "command:", "vllmConfig:", "modelURL: m", ": ",
)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS,
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3)
        | st.dictionaries(
            st.from_regex(r"key[a-z]{1,5}", fullmatch=True), inner, min_size=1, max_size=3
        )
    ),
    max_leaves=8,
)


@settings(max_examples=50, deadline=None)
@given(
    st.dictionaries(st.from_regex(r"key[a-z]{1,5}", fullmatch=True), VALUES, min_size=1, max_size=3)
)
def test_yaml_is_well_formed(value: dict[str, object]) -> None:
    assert list(yaml_documents(yaml(value))) == [value]


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=60), st.lists(st.sampled_from(PIECES), max_size=20))
def test_any_manifest_is_read_or_an_error(text: str, pieces: list[str]) -> None:
    for manifest in (f"spec: {text}", "image: x\n" + text, "spec:" + "".join(pieces)):
        try:
            read_command(manifest)
        except KvroomError as e:
            assert e.field
            assert e.fix


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=80))
def test_any_text_is_a_command_or_an_error(text: str) -> None:
    for command in (text, "vllm serve " + text, f"vllm serve m --max-model-len {text}"):
        try:
            read = read_command(command)
        except KvroomError as e:
            assert e.field
            assert e.message
            assert e.fix
        else:
            json.dumps(read.keys)


@settings(max_examples=60, deadline=None)
@given(question=questions("vllm"), cut=st.integers(0, 400))
def test_a_cut_command_is_a_command_or_an_error(question: Scenario, cut: int) -> None:
    text = shell(launch(work(question)))
    try:
        read_command(text[:cut])
    except KvroomError as e:
        assert e.fix


WIDTHS = {
    "llama.cpp": {
        "fp16": "--cache-type-k f16",
        "fp32": "--cache-type-v f32",
        "q8_0": "--cache-type-k q8_0",
    },
    "ollama": {"fp16": "KV_CACHE_TYPE=f16", "q8_0": "KV_CACHE_TYPE=q8_0", "bf16": ""},
    "tensorrt-llm": {"fp8": 'dtype: "fp8"', "bf16": ""},
    "lmdeploy": {"int8": "--quant-policy 8", "int4": "--quant-policy 4", "bf16": "", "fp16": ""},
    "vllm": {"bf16": "--kv-cache-dtype bfloat16", "fp16": "--kv-cache-dtype float16", "fp8": "fp8"},
    "sglang": {"bf16": "--kv-cache-dtype bf16", "fp8": "--kv-cache-dtype fp8_e4m3"},
}
"""What each engine calls a width; "": nothing, since 16 bits are what it takes unasked."""


@pytest.mark.parametrize("engine", WIDTHS)
def test_a_width_is_written_in_the_engines_own_word(engine: str) -> None:
    asked = {"model": "llama-3-8b", "gpu": "H100-SXM", "context_tokens": 8192, "engine": engine}
    for width, words in WIDTHS[engine].items():
        w = work(Scenario.from_dict(asked | {"kv_dtype": width}))
        text = shell(launch(w))
        bare = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
        assert words in bare
        assert words or width not in bare
        read = read_command(text)
        assert not read.warnings
        then = work(Scenario.from_dict(read.keys)).plan.capacity.engine
        assert then.kv_tokens == w.plan.capacity.engine.kv_tokens
    with pytest.raises(KvroomError, match="has no cache type"):
        engine_command(work(Scenario.from_dict(asked | {"kv_dtype": "mxfp8"})))


def test_quoting_survives_the_shell() -> None:
    name = '/models/it\'s a "model" $HOME/x.gguf'
    scenario = Scenario.from_dict(
        {"model": "llama-3-8b", "gpu": "L40S", "engine_args": {"hf_overrides": {"a b": name}}}
    )
    text = shell(launch(work(scenario)))
    body = text[text.index("vllm serve") :].replace("\\\n", " ")
    words = shlex.split(body)
    assert json.loads(words[words.index("--hf-overrides") + 1]) == {"a b": name}
