"""vLLM's rules one by one: versions, flags, groups, blocks, defaults, the ledger.

Expected figures follow from the rules as the releases' own code states them, with the arithmetic in
the test; whole answers are in test_vllm_capacity.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kvroom.answer.plan import Plan
from kvroom.engines import served_by
from kvroom.engines.vllm.capacity import Stage, VllmPool
from kvroom.engines.vllm.flags import read_flags
from kvroom.engines.vllm.groups import CannotStart, Group, bytes_per_block, groups_of
from kvroom.engines.vllm.packed import least_padding
from kvroom.engines.vllm.specs import LayerSpec, Spec
from kvroom.engines.vllm.versions import (
    CHANGES,
    NEWEST,
    OLDEST,
    VllmRules,
    parse_release,
    rules_of,
    since,
)
from kvroom.errors import KvroomError
from kvroom.planner.plan import plan, work
from kvroom.scenario.scenario import Scenario
from kvroom.sharding.layout import Layout
from kvroom.units import GIB

LLAMA = {  # meta-llama/Llama-3.1-8B
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
}
NEW = rules_of(NEWEST)
FULL = Spec("full", 16, 65536, (8, 128, 128))
NEAR = Spec("window", 16, 65536, (8, 128, 128), window=128)


def answered(args: dict[str, Any] | None = None, **more: Any) -> Plan:
    return plan(
        Scenario.from_dict(
            {
                "model": {"config": LLAMA},
                "gpu": "H100-SXM",
                "engine_version": "0.33.0",
                "context_tokens": 8192,
                "engine_args": args or {},
                **more,
            }
        )
    )


def stack(*runs: tuple[Spec, int]) -> list[LayerSpec]:
    return list(enumerate(spec for spec, n in runs for _ in range(n)))


# Versions


@pytest.mark.parametrize(
    ("text", "release", "warns"),
    [
        ("0.33.0", (0, 33, 0), False),
        ("v0.19.1rc1.dev3+g12ab", (0, 19, 1), False),
        ("0.20", (0, 20, 0), False),
        ("0.22.3", (0, 22, 3), False),
        (None, NEWEST, True),
        ("  ", NEWEST, True),
        ("nightly", NEWEST, True),
        ("0.41.0", NEWEST, True),
        ("0.6.3", OLDEST, True),
        ("99999.9", NEWEST, True),
    ],
)
def test_a_version_is_read_or_warned_about(
    text: str | None, release: tuple[int, int, int], warns: bool
) -> None:
    found, note = parse_release(text)
    assert found == release
    assert bool(note) is warns


def test_every_change_names_a_rule_and_changes_it() -> None:
    assert [r for r, _ in CHANGES] == sorted({r for r, _ in CHANGES})
    rules = VllmRules()
    for release, changed in CHANGES:
        assert all(getattr(rules, name) != value for name, value in changed.items()), release
        rules = replace(rules, release=release, **changed)
    assert rules == rules_of(NEWEST)


def test_since_names_the_release_of_a_rule() -> None:
    assert since("utilisation", NEWEST) == "0.20.0"
    assert since("utilisation", (0, 19, 1)) == "0.8.5"


def test_an_unknown_version_warns_in_the_plan() -> None:
    assert any("nightly" in w for w in answered(engine_version="nightly").warnings)
    assert not answered().warnings


# Flags


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("gpu_memory_utilisation", 0.9),
        ("gpu_memory_utilization", 1.5),
        ("gpu_memory_utilization", 0),
        ("gpu_memory_utilization", "most"),
        ("block_size", 0),
        ("block_size", 24),
        ("block_size", "many"),
        ("max_num_seqs", 0),
        ("max_num_batched_tokens", -5),
        ("num_gpu_blocks_override", 1.5),
        ("enable_prefix_caching", "perhaps"),
        ("mamba_cache_mode", "sometimes"),
        ("mamba_ssm_cache_dtype", "float8"),
        ("performance_mode", "fast"),
        ("kv_cache_memory_bytes", "80G"),
        ("kv_cache_dtype", "fp7"),
        ("tensor_parallel_size", 4),
        ("speculative_config", "[1]"),
        ("max_model_len", "long"),
    ],
)
def test_a_wrong_flag_is_named(flag: str, value: Any) -> None:
    with pytest.raises(KvroomError) as error:
        answered({flag: value})
    assert error.value.field.startswith(f"engine_args.{flag}")


def test_an_unknown_flag_names_its_neighbour() -> None:
    with pytest.raises(KvroomError, match="max_num_seqs"):
        answered({"max_num_seq": 8})


def test_flags_without_bearing_pass() -> None:
    given = {"served_model_name": "x", "port": 8000, "trust_remote_code": True, "dtype": "bfloat16"}
    assert answered(given).capacity == answered().capacity


def test_negative_switches_and_text_are_read() -> None:
    flags = read_flags(
        {"no_enable_prefix_caching": True, "max-num-seqs": "64", "no-async-scheduling": ""},
        Layout(),
    )
    assert (flags.prefix_caching, flags.sequences, flags.asynchronous) == (False, 64, False)


def test_drafted_tokens_are_read_from_json() -> None:
    text = '{"method": "mtp", "num_speculative_tokens": 3}'
    assert read_flags({"speculative_config": text}, Layout()).speculative_tokens == 3


def test_the_cache_dtype_flag_wins() -> None:
    given = {"kv_cache_memory_bytes": GIB}
    half = answered(given, kv_dtype="fp8").capacity.engine
    assert answered({**given, "kv_cache_dtype": "fp8_e5m2"}).capacity.engine == half


# Groups


def test_equal_layers_are_one_group() -> None:
    (group,) = groups_of(stack((FULL, 80)), NEW, hybrid=True)
    assert group.page_bytes == 80 * 65536


def test_the_rarest_kind_sets_the_length_of_groups() -> None:
    """Gemma-3 27B: 10 full, 52 near layers; 7 groups of at most 10, round and round."""
    made = groups_of(stack((NEAR, 52), (FULL, 10)), NEW, hybrid=True)
    assert [len(g.members) for g in made] == [9, 9, 9, 9, 8, 8, 10]
    assert [i for i, _ in made[0].members][:3] == [0, 6, 12]
    assert bytes_per_block(made) == 10 * 65536
    old = groups_of(stack((NEAR, 52), (FULL, 10)), rules_of((0, 10, 2)), hybrid=True)
    assert [len(g.members) for g in old] == [10, 10, 10, 10, 10, 2, 10]


@pytest.mark.parametrize(
    ("release", "lengths"),
    [((0, 11, 0), [12, 7, 6]), ((0, 12, 0), [12, 13]), ((0, 33, 0), [12, 13])],
)
def test_nearly_equal_kinds_share_the_longer_length(
    release: tuple[int, int, int], lengths: list[int]
) -> None:
    made = groups_of(stack((NEAR, 12), (FULL, 13)), rules_of(release), hybrid=True)
    assert [len(g.members) for g in made] == lengths


def test_latents_and_indexer_keys_are_one_group() -> None:
    keys = Spec("latent", 64, 64 * 132, (128, 1))
    latents = Spec("latent", 64, 64 * 1152, (576, 0))
    layers = [(i, s) for i in range(61) for s in (keys, latents)]
    (group,) = groups_of(layers, NEW, hybrid=True)
    assert group.page_bytes == 5_012_736  # what vLLM 0.33.0 prints for DeepSeek-V3.2
    with pytest.raises(CannotStart):
        groups_of(layers, rules_of((0, 10, 2)), hybrid=True)


def test_smaller_pages_take_more_tokens_or_padding() -> None:
    half = replace(FULL, page_bytes=32768, shape=(4, 128, 128))
    near, full = groups_of(stack((NEAR, 4), (half, 4)), NEW, hybrid=True)
    assert (near.block_tokens, full.block_tokens) == (16, 32)
    odd = replace(FULL, page_bytes=40960, shape=(5, 128, 128))
    near, full = groups_of(stack((NEAR, 4), (odd, 4)), NEW, hybrid=True)
    assert (full.block_tokens, full.page_bytes) == (16, near.page_bytes)
    with pytest.raises(CannotStart):
        groups_of(stack((NEAR, 4), (odd, 4)), rules_of((0, 19, 1)), hybrid=True)


def test_without_the_hybrid_manager_windows_are_full() -> None:
    (group,) = groups_of(stack((NEAR, 52), (FULL, 10)), NEW, hybrid=False)
    assert {s.type for _, s in group.members} == {"full"}
    (alone,) = groups_of(stack((NEAR, 32)), NEW, hybrid=False)
    assert alone.spec.type == "window"
    state = Spec("state", 16, 65536, (65536,), blocks=1)
    with pytest.raises(CannotStart):
        groups_of(stack((state, 10), (FULL, 10)), NEW, hybrid=False)


def test_a_stage_holds_its_part_of_each_group() -> None:
    made = groups_of(stack((NEAR, 18), (FULL, 18)), NEW, hybrid=True)
    first = [g.on(range(27)) for g in made]
    assert [len(g.members) for g in first] == [18, 9]
    assert bytes_per_block(first) == 18 * 65536


def test_padding_is_least() -> None:
    assert least_padding([43, 21, 20], 21) == 22
    assert least_padding([20, 20], 5) == 20


# Blocks of a request


def pool(*specs: Spec, rules: VllmRules = NEW, cache: int = GIB, **more: Any) -> VllmPool:
    groups = tuple(Group(s, ((i, s),)) for i, s in enumerate(specs))
    stage = Stage(groups, tuple(enumerate(specs)), cache)
    return VllmPool([stage], rules, more.pop("in_flight", 8192), **more)


def test_blocks_of_each_type() -> None:
    p = pool(FULL, encoder_tokens=1500)
    assert p.blocks_needed(FULL, 8193) == 513
    assert p.blocks_needed(NEAR, 1000) == 64  # 63 for the tokens, one for where it begins
    assert p.blocks_needed(NEAR, 10**6) == 521  # 127 + 8,192 in flight, and that one
    chunk = replace(NEAR, type="chunked", window=8192)
    assert p.blocks_needed(chunk, 10**6) == 1024
    state = Spec("state", 528, 65536, (), blocks=3)
    assert p.blocks_needed(state, 10**6) == 3
    assert p.blocks_needed(replace(state, blocks=0, grows=True), 1056) == 2
    assert p.blocks_needed(replace(FULL, type="cross"), 10) == 94


def test_context_ranks_share_full_tokens_out() -> None:
    assert pool(FULL, dcp=8).blocks_needed(FULL, 8193) == 65


@pytest.mark.parametrize(
    ("release", "need"),
    [
        ((0, 13, 0), 65536 * (64 + 64)),  # each layer for itself
        ((0, 16, 0), 65536 * 64),  # the first group only
        ((0, 20, 0), 65536 * (64 + 64)),  # all groups
        ((0, 33, 0), 65536 * (64 + 64)),
    ],
)
def test_what_the_start_up_check_counts(release: tuple[int, int, int], need: int) -> None:
    rules = rules_of(release)
    near, full = replace(NEAR, window=512), FULL
    p = pool(near, full, rules=rules, cache=2**24, in_flight=497)  # 63 + 1 blocks of a window
    ((found, have),) = p.needs(1024)
    assert found == need
    assert have == 2**24 - (65536 if release >= (0, 29, 0) else 0)


def test_the_null_block_is_not_there_for_a_request() -> None:
    exact = 65536 * 64
    assert pool(FULL, rules=rules_of((0, 28, 0)), cache=exact).fits(1024)
    assert not pool(FULL, cache=exact).fits(1024)
    assert pool(FULL, cache=exact + 65536).fits(1024)
    assert pool(FULL, cache=exact + 65536).longest() == 1024


def test_printed_tokens_by_release() -> None:
    old = pool(NEAR, FULL, rules=rules_of((0, 20, 0)))
    assert old.printed_tokens(1024) == old.num_blocks // 2 * 16
    new = pool(NEAR, FULL, rules=rules_of((0, 20, 1)))
    assert new.printed_tokens(1024) == int(new.concurrency(1024) * 1024)
    ranks = pool(FULL, rules=rules_of((0, 19, 0)), dcp=8)
    assert ranks.printed_tokens(8192) == ranks.num_blocks * 16 * 8


def test_an_override_of_blocks_is_what_counts() -> None:
    made = answered({"num_gpu_blocks_override": 4096}).capacity.engine
    assert made is not None
    assert (made.num_blocks, made.max_concurrency) == (4096, 8.0)
    assert not answered({"num_gpu_blocks_override": 100}).verdict.fits
    lax = answered({"num_gpu_blocks_override": 512}, engine_version="0.20.0")
    assert lax.verdict.fits


# Defaults


@pytest.mark.parametrize(
    ("release", "gpu", "args", "sequences"),
    [
        ("0.33.0", "H100-SXM", {}, 1024),
        ("0.33.0", "L4", {}, 256),
        ("0.33.0", "A100-SXM-80", {}, 256),
        ("0.8.5", "A100-SXM-80", {}, 1024),
        # logs of 0.13 and 0.25.1 print the small batch; 0.33 names the card so
        ("0.13.0", "DGX-Spark-GB10", {}, 256),
        ("0.33.0", "DGX-Spark-GB10", {}, 256),
        ("0.33.0", "L4", {"performance_mode": "throughput"}, 512),
        ("0.33.0", "H100-SXM", {"max_num_batched_tokens": 512}, 512),
        ("0.10.0", "H100-SXM", {"max_num_batched_tokens": 512}, 1024),
        ("0.33.0", "H100-SXM", {"max_num_seqs": 7}, 7),
    ],
)
def test_requests_at_once(release: str, gpu: str, args: dict[str, Any], sequences: int) -> None:
    made = answered(args, gpu=gpu, engine_version=release).capacity.engine
    assert made is not None
    assert made.max_running_requests == sequences


# The ledger


@pytest.mark.parametrize(
    ("release", "share"), [("0.19.1", 0.9), ("0.20.0", 0.92), ("0.33.0", 0.92)]
)
def test_the_share_of_what_is_visible(release: str, share: float) -> None:
    known = dict.fromkeys(("activations", "runtime", "graphs"), 0)
    made = answered(
        engine_version=release, known_bytes={"visible": 80 * GIB, "weights": 15 * GIB, **known}
    )
    assert made.memory.kv_bytes == pytest.approx(80 * GIB * share - 15 * GIB, abs=2)


def test_graphs_come_off_the_cache_since_0_20() -> None:
    known = {"visible": 80 * GIB, "graphs": 2 * GIB, "activations": GIB, "runtime": GIB}
    for release, inside in (("0.19.1", 0), ("0.20.0", 2 * GIB)):
        share = 0.9 if release == "0.19.1" else 0.92
        made = answered(engine_version=release, known_bytes={**known, "weights": 15 * GIB})
        left = 80 * GIB * share - 17 * GIB - inside
        assert made.memory.kv_bytes == pytest.approx(left, abs=2)
        assert {a.name: a.source for a in made.memory.accounts}["graphs"] == "measured"
    eager = answered({"enforce_eager": True}).memory.accounts
    assert {a.name: a.bytes for a in eager}["graphs"] == 0


def test_memory_that_others_hold() -> None:
    known = {"visible": 80 * GIB, "free_before_load": 60 * GIB}
    assert not answered(known_bytes=known).verdict.fits
    assert answered({"gpu_memory_utilization": 0.7}, known_bytes=known).verdict.fits
    old, all_free = (
        answered(engine_version="0.8.5", known_bytes={**known, "free_before_load": free})
        for free in (60 * GIB, 80 * GIB)
    )
    assert all_free.memory.kv_bytes - old.memory.kv_bytes == 20 * GIB


def test_given_cache_skips_the_ledger() -> None:
    made = answered({"kv_cache_memory_bytes": 8 * GIB}, gpu="RTX-3060")
    assert made.capacity.engine is not None
    assert made.capacity.engine.num_blocks == 8 * GIB // (32 * 65536)
    assert made.verdict.fits
    assert not answered({"kv_cache_memory_bytes": GIB}, gpu="H200").verdict.fits


def test_the_longest_context_is_fitted_when_asked() -> None:
    given = {"kv_cache_memory_bytes": GIB, "max_model_len": -1}
    made = answered(given, context_tokens=131072)
    engine = made.capacity.engine
    assert engine is not None
    assert engine.max_context_tokens == 8176  # 512 blocks but the null one
    assert engine.max_concurrency == pytest.approx(512 / 511)
    assert any("8,176" in w for w in made.warnings)


def test_a_refusal_says_why() -> None:
    made = answered({"kv_cache_memory_bytes": GIB})
    assert not made.verdict.fits
    assert "needs 1 GiB" in made.verdict.sentence
    assert "8,176 tokens" in made.verdict.sentence
    hybrid = {
        "model_type": "jamba",
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "vocab_size": 65536,
    }
    off = {"disable_hybrid_kv_cache_manager": True}
    refused = answered(off, model={"config": hybrid}, gpu="H200")
    assert refused.capacity.engine is None
    assert "hybrid cache manager" in refused.verdict.sentence


def test_notes_name_the_release_that_brought_the_rule() -> None:
    near = {
        "model_type": "gpt_oss",
        "hidden_size": 2880,
        "num_attention_heads": 64,
        "num_hidden_layers": 24,
        "vocab_size": 201088,
    }
    given = {"kv_cache_memory_bytes": 8 * GIB}

    def said(release: str) -> str:
        return " ".join(answered(given, model={"config": near}, engine_version=release).warnings)

    assert "0.9.1" in said("0.9.0")
    assert "0.20.1" in said("0.19.1")
    assert "0.26.0" in said("0.33.0")


@pytest.mark.parametrize(
    ("tp", "dcp", "starts"), [(8, 2, False), (16, 2, True), (16, 4, False), (8, 1, True)]
)
def test_context_ranks_are_copies_of_heads(tp: int, dcp: int, starts: bool) -> None:
    given = {"kv_cache_memory_bytes": 8 * GIB}
    one, made = (answered(given, tp=tp, dcp=n).capacity.engine for n in (1, dcp))
    assert (made is not None) is starts
    if starts and one is not None and made is not None:
        assert made.max_concurrency == pytest.approx((one.max_concurrency or 0) * dcp)


def test_scales_of_a_head_lie_in_the_page() -> None:
    made = answered({"kv_cache_memory_bytes": 8 * GIB, "kv_cache_dtype": "int8_per_token_head"})
    assert made.capacity.engine is not None
    assert made.capacity.engine.num_blocks == 8 * GIB // (32 * 16 * 8 * 2 * (128 + 4))


@pytest.mark.parametrize(
    ("model_type", "gpu", "release", "page"),
    [
        ("deepseek_v32", "H200", "0.11.0", 656 + 132),
        ("deepseek_v32", "H200", "0.12.0", 1152 + 132),
        ("deepseek_v32", "B200", "0.33.0", 1152 + 132),
        ("glm_moe_dsa", "B200", "0.33.0", 656 + 132),
        ("glm_moe_dsa", "H200", "0.33.0", 1152 + 132),
    ],
)
def test_sparse_latents_are_narrowed_by_default(
    model_type: str, gpu: str, release: str, page: int
) -> None:
    config = {
        "model_type": model_type,
        "hidden_size": 7168,
        "num_attention_heads": 128,
        "num_hidden_layers": 10,
        "vocab_size": 129280,
    }
    made = answered(
        {"kv_cache_memory_bytes": 8 * GIB},
        model={"config": config},
        gpu=gpu,
        engine_version=release,
    )
    assert made.capacity.engine is not None
    assert made.capacity.engine.num_blocks == 8 * GIB // (10 * 64 * page)
    assert any("FP8" in w for w in made.warnings) is (page == 656 + 132)


def test_a_stage_of_state_alone_keeps_no_blocks_in_older_versions():
    from support import ask

    question = {"engine": "vllm", "engine_version": "0.9.2", "pp": 4, "context_tokens": 8192}
    engine = ask("nemotron-nano-9b-v2", "H100-SXM", **question).capacity.engine
    assert engine.num_blocks > 0
    assert engine.max_context_tokens > 8192


@pytest.mark.parametrize(("release", "steps"), [("0.32.0", 1), ("0.33.0", 2)])
def test_drafts_that_are_looked_up_overlap_since_0_33(release: str, steps: int) -> None:
    """``VllmConfig.__post_init__``: before, asynchronous scheduling is off with them; since, it is only where
    the V1 runner serves."""
    made = work(
        Scenario.from_dict(
            {
                "model": "qwen2.5-7b",
                "gpu": "H100-SXM",
                "engine_version": release,
                "engine_args": {
                    "max_model_len": 4096,
                    "speculative_config": {"method": "ngram", "num_speculative_tokens": 4},
                },
            }
        )
    )
    assert served_by(made.deployment, made.answer).steps_in_flight == steps


@pytest.mark.parametrize(
    ("release", "args", "flight", "every", "depth"),
    [
        ("0.14.0", {}, 4, 1, 4),
        ("0.20.2", {}, 4, 1, 1),
        ("0.22.0", {"async_scheduling": False}, 4, 1, 4),
        ("0.23.0", {}, 5, 4, 4),
        ("0.33.0", {}, 5, 4, 4),
        ("0.33.0", {"async_scheduling": False}, 4, 1, 4),
    ],
)
def test_batches_in_flight_of_a_pipeline(
    release: str, args: dict[str, Any], flight: int, every: int, depth: int
) -> None:
    """``VllmConfig.max_concurrent_batches`` and ``AsyncScheduler``; on the V1 runner the first stage waits
    for the tokens of the step before (``_pp_receive_prev_sampled_token_ids_to_input_batch``)."""
    question = {
        "model": "llama-3.1-70b",
        "gpu": "H100-SXM:4",
        "context_tokens": 4096,
        "pp": 4,
        "tp": 1,
    }
    made = work(Scenario.from_dict({**question, "engine_version": release, "engine_args": args}))
    config = served_by(made.deployment, made.answer).setup.config
    assert (config.steps_in_flight, config.decodes_every, config.depth) == (flight, every, depth)


def test_a_model_of_the_v1_runner_is_not_overlapped_in_stages() -> None:
    question = {
        "model": "gemma-3-27b",
        "gpu": "H100-SXM:2",
        "context_tokens": 4096,
        "pp": 2,
        "tp": 1,
    }
    for release, flight, depth in (("0.24.0", 2, 1), ("0.33.0", 3, 2)):
        made = work(Scenario.from_dict({**question, "engine_version": release}))
        config = served_by(made.deployment, made.answer).setup.config
        assert (config.steps_in_flight, config.depth) == (flight, depth)
