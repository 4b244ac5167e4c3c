"""Which KV connectors leave vLLM's hybrid cache manager on, by release, and what a plan makes of that."""

import json

import pytest

from kvroom import api

SIZE = {"kv_offloading_size": 100}
GPT = ("gpt-oss-20b", "H100-SXM")


def config(name, **extra):
    said = {"kv_connector": name, "kv_role": "kv_both", "kv_connector_extra_config": extra}
    return {"kv_transfer_config": json.dumps(said)}


def plan(version, args=None, model=GPT[0], gpu=GPT[1], **keys):
    return api.plan(
        model, gpu, context_tokens="32K", engine_version=version, engine_args=args or {}, **keys
    )


def requests(version, args=None, **keys):
    return plan(version, args, **keys).capacity.engine.max_concurrency


def refusal(version, args):
    """The rule that refuses a connector, where one does."""
    workings = api.workings(
        api.scenario(*GPT, context_tokens="32K", engine_version=version, engine_args=args)
    )
    return next((r for r in workings.answer.refusals if r.rule == "connector_groups"), None)


def grouped(version, args=None, **keys):
    """Whether windows have groups of their own, as without a connector."""
    return requests(version, args, **keys) == requests(version)


@pytest.mark.parametrize(
    ("version", "args", "on"),
    [
        ("0.33.0", SIZE, True),
        ("0.33.0", config("OffloadingConnector", cpu_bytes_to_use=10**11), True),
        ("0.33.0", config("LMCacheConnectorV1"), False),
        ("0.33.0", SIZE | {"kv_offloading_backend": "lmcache"}, False),
        ("0.33.0", config("NixlConnector"), True),
        ("0.19.0", config("NixlConnector"), False),  # 0.18 serves groups, and was not asked to
        ("0.19.0", config("NixlConnector") | {"disable_hybrid_kv_cache_manager": False}, True),
        ("0.19.0", config("OffloadingConnector", cpu_bytes_to_use=10**11), False),
        ("0.12.0", config("SimpleCPUOffloadConnector"), False),
        ("0.33.0", config("MultiConnector", connectors=[{"kv_connector": "NixlConnector"}]), True),
        (
            "0.33.0",
            config(
                "MultiConnector",
                connectors=[
                    {"kv_connector": "NixlConnector"},
                    {"kv_connector": "LMCacheConnectorV1"},
                ],
            ),
            False,
        ),
        ("0.33.0", SIZE | {"disable_hybrid_kv_cache_manager": True}, False),
    ],
)
def test_the_manager_beside_a_connector(version, args, on):
    assert grouped(version, args) is on
    assert refusal(version, args) is None


@pytest.mark.parametrize(
    ("version", "args", "refused"),
    [
        # github ovg-project/kvcached issue 267: 0.16.0 with --kv-offloading-size does not start
        ("0.16.0", SIZE, True),
        ("0.20.0", SIZE, True),
        ("0.21.0", SIZE, False),
        ("0.16.0", SIZE | {"disable_hybrid_kv_cache_manager": True}, False),
        ("0.16.0", config("LMCacheConnectorV1") | {"disable_hybrid_kv_cache_manager": False}, True),
        ("0.16.0", config("LMCacheConnectorV1"), False),
        ("0.33.0", config("LMCacheConnectorV1") | {"disable_hybrid_kv_cache_manager": False}, True),
    ],
)
def test_a_connector_that_is_refused(version, args, refused):
    found = refusal(version, args)
    assert (found is not None) is refused
    if found is not None:
        fixed = args | dict(found.args)
        assert refusal(version, fixed) is None


def test_a_plan_says_what_windows_take():
    text = " ".join(plan("0.33.0", config("LMCacheConnectorV1")).warnings)
    assert "off beside LMCacheConnectorV1" in text


def test_state_beside_attention_does_not_start_without_the_manager():
    # github vllm-project/vllm issue 36463: Qwen3.5-27B with offloading and the manager off
    hybrid = {"model": "qwen3-next-80b-a3b", "gpu": "H100-SXM:4"}
    found = plan("0.19.0", config("OffloadingConnector", cpu_bytes_to_use=10**11), **hybrid)
    assert "one type" in found.verdict.sentence
    assert requests("0.33.0", SIZE, **hybrid) > 0


def test_a_tier_is_the_connector_that_launch_writes():
    assert grouped("0.33.0", tiers=["host:100GiB"])
    assert not grouped("0.33.0", tiers=["lmcache:100GB"])
    assert not grouped("0.19.0", tiers=["host:100GiB"])
    keys = {"context_tokens": "32K", "tiers": ["host:100GiB"]}
    for version, off in (("0.19.0", True), ("0.33.0", False), ("0.11.0", False)):
        words = api.launch(*GPT, engine_version=version, **keys).argv
        assert ("--disable-hybrid-kv-cache-manager" in words) is off
    args = {"kv_offloading_size": 100, "disable_hybrid_kv_cache_manager": True}
    assert requests("0.19.0", args) == requests("0.19.0", tiers=["host:100GiB"])


def test_tiers_beside_an_older_release_cost_the_windows():
    """One cache of full attention is simulated: what is found below it is told."""
    load = {"arrivals": "poisson:2/s", "input": 3000, "output": 20, "requests": 60,
            "prefix": "shared:6x2000"}  # fmt: skip
    found = api.simulate(*GPT, workload=load, engine_version="0.19.0", context_tokens="32K",
                         tiers=["host:100GiB"], engine_args={"num_gpu_blocks_override": 700})  # fmt: skip
    assert [row["tier"] for row in found.figures["tiers"]] == ["gpu", "host"]
