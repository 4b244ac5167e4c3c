"""What vLLM's CPU build prints at start-up equals what kvroom says, to the block.

Needs the environment that ``make engine`` installs; skipped without it. One start takes some 20 s.
"""

from __future__ import annotations

import io
import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from engine import models, server
from kvroom.answer.plan import EngineCapacity, Plan
from kvroom.engines import served_by
from kvroom.engines.scheduler import EngineScheduler, SchedulerOutput
from kvroom.kvcache.request import ServedRequest
from kvroom.kvcache.tokens import BlockHashes
from kvroom.observe.logs import startup as startup_log
from kvroom.observe.reconcile import reconcile
from kvroom.planner.plan import plan
from kvroom.planner.plan import work as workings
from kvroom.scenario.scenario import Scenario
from kvroom.simulator.replay import play
from kvroom.units import GIB

pytestmark = pytest.mark.engine

CPU = {"name": "CPU", "vendor": "cpu", "sold_bytes": 24 * GIB, "memory_bytes_per_s": 25e9}
FEATURES = ("amx_tile", "avx512_bf16")
"""Instruction sets that vLLM's CPU kernels, and so its blocks, depend on."""
USUAL = {"max_model_len": 4096, "kv_cache_memory_bytes": GIB}

CASES: dict[str, tuple[models.Config, dict[str, Any]]] = {
    "plain": (models.LLAMA, {}),
    "tied and biased": (models.QWEN2, {}),
    "windows": (models.MISTRAL, {}),
    "interleaved windows": (models.GEMMA3, {}),
    "latents": (models.DEEPSEEK, {}),
    "gated delta nets": (models.QWEN3_NEXT, {}),
    "Mamba hybrid": (models.GRANITE, {}),
    "fp8 cache": (models.LLAMA, {"kv_cache_dtype": "fp8"}),
    "blocks of 32": (models.LLAMA, {"block_size": 32}),
    "uneven windows, small batches": (models.GEMMA3_UNEVEN, {"max_num_batched_tokens": 700}),
    "windows in full": (models.GEMMA3, {"disable_hybrid_kv_cache_manager": True}),
    "Mamba hybrid, no prefix cache": (models.GRANITE, {"enable_prefix_caching": False}),
    "state only": (models.MAMBA2, {}),
}
DRAFTS: dict[str, tuple[models.Config, str, models.Config | None]] = {
    "prediction layer": (models.DEEPSEEK_V3, "mtp", None),
    "EAGLE-3 head": (models.LLAMA, "eagle3", models.EAGLE3),
    "draft model beside windows": (models.GEMMA3, "draft", models.SMALL_LLAMA),
}
ADAPTED = {
    "dense, table and head too": models.LLAMA,
    "experts and routers": models.QWEN3_MOE,
    "gated delta nets": models.QWEN3_NEXT,
    "Mamba hybrid": models.GRANITE,
    "latents": models.DEEPSEEK,
}


def most(cases: Iterable[str], usual: int) -> list[Any]:
    """Cases by name; those after the first ``usual`` are marked slow."""
    return [
        pytest.param(name, marks=[pytest.mark.slow] if i >= usual else [])
        for i, name in enumerate(cases)
    ]


def flags(args: dict[str, Any]) -> list[str]:
    """Engine arguments as they are typed."""
    made: list[str] = []
    for name, value in args.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            made.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            made += [f"--{flag}", str(value)]
    return made


def said(config: models.Config, machine: Path, args: dict[str, Any], **more: Any) -> Plan:
    """kvroom's Plan for the same question."""
    return plan(asked(config, machine, args, **more))


def asked(config: models.Config, machine: Path, args: dict[str, Any], **more: Any) -> Scenario:
    """That question."""
    return Scenario.from_dict(
        {
            "model": {"config": config},
            "gpu": str(machine),
            "engine": "vllm",
            "engine_version": server.RELEASE,
            "engine_args": args,
            **more,
        }
    )


def capacity(made: Plan) -> EngineCapacity:
    assert made.capacity.engine is not None
    return made.capacity.engine


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    path = tmp_path / "cpu.toml"
    sets = sorted(set(FEATURES) & set(Path("/proc/cpuinfo").read_text().split()))
    stated = {**CPU, "compute_capability": " ".join(sets) or "none"}
    path.write_text("\n".join(f"{k} = {v!r}" for k, v in stated.items()))
    return path


@pytest.mark.parametrize("case", most(CASES, 7))
def test_what_it_prints_is_what_kvroom_says(case: str, tmp_path: Path, machine: Path) -> None:
    config, args = CASES[case]
    args = {**USUAL, **args}
    engine = capacity(said(config, machine, args))
    with server.running(tmp_path, config, *flags(args)) as run:
        assert run.address, run.log[-4000:]
        assert run.tokens == engine.kv_tokens
        assert run.concurrency == pytest.approx(engine.max_concurrency, abs=0.00501)
        cache = run.cache()
        assert int(cache["num_gpu_blocks"]) == engine.num_blocks
        assert int(cache["block_size"]) == engine.block_tokens
        assert len(run.complete(range(7, 27), 4)) == 4


def test_reconcile_reads_its_log(tmp_path: Path, machine: Path) -> None:
    args = {**USUAL, "kv_cache_dtype": "fp8"}
    with server.running(tmp_path, models.GEMMA3, *flags(args)) as run:
        log = startup_log.read(io.BytesIO(run.log.encode()))
    assert (log.engine, log.version) == ("vllm", server.RELEASE)
    given = {"model": {"config": models.GEMMA3}, "gpu": str(machine)}
    found = reconcile(log, given)
    assert not found.missing
    assert found.printed["kv_tokens"] == run.tokens
    assert found.predicted["kv_tokens"] == run.tokens


@pytest.mark.parametrize("case", most(DRAFTS, 1))
def test_a_draft_keeps_its_cache_in_the_same_blocks(
    case: str, tmp_path: Path, machine: Path
) -> None:
    config, method, draft = DRAFTS[case]
    asked: dict[str, Any] = {"method": method, "num_speculative_tokens": 1}
    engine = capacity(
        said(
            config,
            machine,
            USUAL,
            speculation={**asked, "model": {"config": draft}} if draft else asked,
        )
    )
    if draft:
        asked["model"] = "draft"
    if method == "draft":
        asked["method"] = "draft_model"
    typed = flags({**USUAL, "speculative_config": json.dumps(asked)})
    with server.running(tmp_path, config, *typed, draft=draft) as run:
        assert run.address, run.log[-4000:]
        assert run.tokens == engine.kv_tokens
        assert int(run.cache()["num_gpu_blocks"]) == engine.num_blocks


@pytest.mark.parametrize("case", most(ADAPTED, 1))
def test_adapter_buffers_are_as_large_as_kvroom_says(
    case: str, tmp_path: Path, machine: Path
) -> None:
    lora = {"enable_lora": True, "max_loras": 3, "max_lora_rank": 16}
    made = said(ADAPTED[case], machine, {**USUAL, **lora})
    size = next(a.bytes for a in made.memory.accounts if a.name == "adapters")
    assert server.adapter_bytes(tmp_path, ADAPTED[case], lora) == size


TALKS = {"max_model_len": 1024, "max_num_seqs": 16}


def conversations(seed: int) -> list[list[tuple[int, list[int], int]]]:
    """Three rounds of twelve conversations with two shared beginnings: conversation, new tokens, answer."""
    dice = random.Random(seed)

    def ids(count: int) -> list[int]:
        return [dice.randrange(3, 511) for _ in range(count)]

    shared, rounds = [ids(150), ids(300)], []
    lengths = [0] * 12
    for number in range(3):
        turns = []
        for talk in range(len(lengths)):
            if number and dice.random() < 0.25:
                continue
            more = (
                ids(dice.randint(20, 120))
                if number
                else [*shared[talk % 2], *ids(dice.randint(10, 200))]
            )
            answer = dice.randint(10, 80)
            if lengths[talk] + len(more) + answer < 1000:
                lengths[talk] += len(more) + answer
                turns.append((talk, more, answer))
        rounds.append(turns)
    return rounds


@pytest.mark.slow
def test_conversations_count_as_in_kvroom(tmp_path: Path, machine: Path) -> None:
    args = {**TALKS, "kv_cache_memory_bytes": 4 * 2**20}
    rounds = conversations(1)
    told = server.talks(
        tmp_path, models.LLAMA, {k: v for k, v in args.items() if k != "usage_context"}, rounds
    )
    made = workings(asked(models.LLAMA, machine, args))
    rules = served_by(made.deployment, made.answer)
    said: dict[int, list[int]] = {}
    requests: list[ServedRequest] = []
    ends = []
    for number, (turns, answers) in enumerate(zip(rounds, told["answers"], strict=True)):
        for (talk, ids, _), answer in zip(turns, answers, strict=True):
            prompt = [*said.get(talk, ()), *ids]
            said[talk] = [*prompt, *answer]
            hashes = BlockHashes([(token, 1) for token in said[talk]], rules.name_tokens)
            arrival = number * 100_000  # when those before are done
            requests.append(
                ServedRequest(len(requests), arrival, len(prompt), len(answer), hashes=hashes)
            )
        ends.append(len(requests))
    hits, preempted = [0] * len(requests), [0] * len(requests)

    def watch(output: SchedulerOutput, _: EngineScheduler) -> None:
        for request, cached, resumed in output.admitted:
            hits[request.index] += 0 if resumed else cached
        for request in output.preempted:
            preempted[request.index] += 1

    play(rules.scheduler(), requests, on_scheduled=watch)
    assert sum(preempted)
    for end, counters in zip(ends, told["counters"], strict=True):
        assert counters["queries"] == sum(request.num_prompt_tokens for request in requests[:end])
        assert counters["hits"] == sum(hits[:end])
        assert counters["preemptions"] == sum(preempted[:end])


def test_it_refuses_a_request_that_the_cache_cannot_hold(tmp_path: Path, machine: Path) -> None:
    config = {**models.LLAMA, "max_position_embeddings": 2**22}
    args = {**USUAL, "max_model_len": 2**22}
    made = said(config, machine, args)
    assert not made.verdict.fits
    with server.running(tmp_path, config, *flags(args)) as run:
        assert not run.address
        assert run.longest == capacity(made).max_context_tokens
