"""What a deployment gives vLLM's scheduler, by release."""

import pytest

from kvroom.engines.vllm.serving import serving_rules
from kvroom.errors import KvroomError
from kvroom.planner.plan import work
from kvroom.scenario.scenario import Scenario


def setup(model, version, **args):
    asked = {"model": model, "gpu": "H100-SXM", "gpu_count": 4, "tp": 4, "engine": "vllm"}
    asked |= {"engine_version": version, "engine_args": args, "context_tokens": 8192}
    return serving_rules(work(Scenario.from_dict(asked)).deployment).setup


@pytest.mark.parametrize("model", ["gpt-oss-120b", "gemma-3-27b", "llama-3-8b"])
def test_prefixes_of_windows_are_kept_sparsely_from_0_29_on(model):
    """CacheConfig.prefix_cache_retention_interval: 0 since 0.29.0, whatever the layers; before, a variable
    of the environment that is not set."""
    assert setup(model, "0.28.0").prefix_cache_retention_interval is None
    for version in ("0.29.0", "0.33.0"):
        assert setup(model, version).prefix_cache_retention_interval == 0


def test_the_retention_interval_of_the_flag_is_taken():
    name = "prefix_cache_retention_interval"
    blocks = {value: setup("gpt-oss-120b", "0.33.0", **{name: value}) for value in (0, 1024, None)}
    assert [s.prefix_cache_retention_interval for s in blocks.values()] == [0, 1024, None]
    for model, value in (("gpt-oss-120b", 1000), ("llama-3-8b", 1024)):
        with pytest.raises(KvroomError) as caught:
            setup(model, "0.33.0", **{name: value})
        assert caught.value.field == f"engine_args.{name}"


def checkpoints(model, version):
    groups = setup(model, version, enable_prefix_caching=True).groups
    (tokens,) = {g.prefill_checkpoint for g in groups if g.type == "mamba"}
    return tokens, groups[0].block_size


def test_a_prefill_saves_a_state_within_a_step_as_the_release_can():
    """Mamba-2 from 0.32.0 on, anywhere; gated delta nets from 0.33.0 on, at block ends."""
    assert checkpoints("granite-4.0-h-small", "0.31.0")[0] == 0
    assert checkpoints("granite-4.0-h-small", "0.32.0")[0] == 1
    assert checkpoints("qwen3-next-80b-a3b", "0.32.0")[0] == 0
    tokens, block_tokens = checkpoints("qwen3-next-80b-a3b", "0.33.0")
    assert tokens == block_tokens > 0


def test_windows_of_cohere_reach_one_token_farther_from_0_29_on():
    """vLLM's commandr.py gives its attention ``sliding_window + 1`` since 0.29.0."""

    def reach(model, version):
        (tokens,) = {group.reach for group in setup(model, version).groups if group.reach}
        return tokens

    assert [reach("command-r7b", version) for version in ("0.28.0", "0.29.0")] == [4096, 4097]
    assert [reach("gemma-3-27b", version) for version in ("0.28.0", "0.29.0")] == [1024, 1024]
