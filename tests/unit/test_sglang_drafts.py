"""SGLang with drafts: what its flags ask for, what it refuses, what a request holds and leaves behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvroom import api
from kvroom.engines.draft_tokens import Drafts
from kvroom.engines.registry import engine_of
from kvroom.engines.sglang.answer import resolved
from kvroom.engines.sglang.scheduler import SglangScheduler, SglangSettings
from kvroom.engines.sglang.serving import serving_rules
from kvroom.kvcache.request import ServedRequest
from kvroom.kvcache.tokens import BlockHashes
from kvroom.observe.installed.engine import InstalledEngine
from kvroom.planner.plan import Workings
from kvroom.scenario.scenario import Scenario

HEAD = {"speculative_algorithm": "EAGLE", "speculative_draft_model_path": "draft"}
LINE = {**HEAD, "speculative_num_steps": 3, "speculative_eagle_topk": 1}
TREE = {**HEAD, "speculative_num_steps": 4, "speculative_eagle_topk": 4}
NGRAM = {"speculative_algorithm": "NGRAM"}


def worked(release: str = "0.5.23", **args: Any) -> Workings:
    return api.workings(
        Scenario.from_dict(
            {
                "model": "llama-3-8b",
                "gpu": "H100-SXM",
                "engine": "sglang",
                "engine_version": release,
                "context_tokens": 8192,
                "engine_args": args,
            }
        )
    )


@pytest.mark.parametrize(
    ("args", "tokens"),
    [
        (NGRAM, 11),
        ({**NGRAM, "speculative_num_draft_tokens": 6}, 5),
        (LINE, 3),
        ({**NGRAM, "speculative_num_steps": 2}, 11),  # how deep its tree is, is another figure
    ],
)
def test_drafts_of_a_step_as_its_flags_say(args: dict[str, Any], tokens: int) -> None:
    found = engine_of("sglang").draft_flags.read(args)
    assert found is not None
    assert found.tokens == tokens


@pytest.mark.parametrize(
    ("args", "page", "reserved"),
    [
        (LINE, 1, 2 * 4),
        (TREE, 1, 2 * 16),
        (TREE, 16, 2 * 2 * 16 * 4),  # two pages for each branch
        (NGRAM, 1, 2 * 12),
        (
            {**NGRAM, "speculative_ngram_max_bfs_breadth": 1, "speculative_num_draft_tokens": 6},
            16,
            12,
        ),
    ],
)
def test_room_for_the_drafts_of_two_steps(args: dict[str, Any], page: int, reserved: int) -> None:
    made = worked(**args, **({} if page == 1 else {"page_size": page}))
    draft = resolved(made.deployment).draft
    assert draft is not None
    assert draft.reserved(page) == reserved


@pytest.mark.parametrize(
    ("release", "args", "overlap"),
    [
        ("0.5.23", NGRAM, True),
        ("0.5.14", TREE, True),
        ("0.5.12", LINE, True),
        ("0.5.12", TREE, False),
        ("0.5.12", NGRAM, False),
        ("0.5.9", LINE, False),
        ("0.5.9", {}, True),
    ],
)
def test_batches_overlap_with_the_drafts_that_a_release_has_it_for(
    release: str, args: dict[str, Any], overlap: bool
) -> None:
    made = worked(release, **args)
    assert made.answer.capacity is not None
    rules = serving_rules(made.deployment, made.answer.capacity)
    assert rules.own_steps == 1 + overlap


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (
            {**NGRAM, "page_size": 16},
            "trees (of 10 branches) over pages of 16 tokens with flashinfer",
        ),
        (
            {**TREE, "page_size": 64, "attention_backend": "trtllm_mla"},
            "flashinfer or fa3 or triton",
        ),
        ({**TREE, "page_size": 16}, ""),
        ({**NGRAM, "page_size": 16, "speculative_ngram_max_bfs_breadth": 1}, ""),
        ({**NGRAM, "page_size": 16, "attention_backend": "flashinfer"}, ""),
    ],
)
def test_trees_over_pages_are_for_some_kernels(args: dict[str, Any], says: str) -> None:
    answer = worked(**args).answer
    assert answer.starts is not bool(says)
    assert says in "".join(each.message for each in answer.refusals)


def test_the_text_does_not_draft_for_groups_of_ranks() -> None:
    made = api.workings(
        Scenario.from_dict(
            {
                "model": "deepseek-v3",
                "gpu": "H200-SXM",
                "tp": 8,
                "engine": "sglang",
                "engine_args": {**NGRAM, "enable_dp_attention": True, "dp_size": 8},
            }
        )
    )
    assert "does not draft by NGRAM" in "".join(each.message for each in made.answer.refusals)


def served(*, beyond: bool, output: int, pairs: bool = False) -> SglangScheduler:
    """A request of 10 tokens whose drafts are all kept, from its prompt to its end."""
    settings = SglangSettings(
        tokens=1000,
        page=1,
        max_running_requests=4,
        context_tokens=500,
        chunked_prefill_size=512,
        reserved_tokens=8,
        shares_beyond=beyond,
        pairs=pairs,
    )
    rules = SglangScheduler(settings, Drafts(chances=(1.0, 1.0, 1.0)))
    hashes = BlockHashes(((100, 10), (500, output)), 1)
    request = ServedRequest(0, 0, 10, output, hashes=hashes)
    rules.add_request(request)
    rules.update_from_output(rules.schedule())
    held = []
    while not request.finished:
        output_of = rules.schedule()
        held.append(rules.blocks_in_use)
        rules.update_from_output(output_of)
    assert held == [10 + 4 * step + 8 for step in range(len(held))]
    return rules


@pytest.mark.parametrize(
    ("output", "beyond", "kept"),
    [
        (
            9,
            False,
            10 + 9 - 1,
        ),  # the last step ends with the answer: its last token is not computed
        (7, False, 10 + 7),  # two more were kept than are wanted
        (7, True, 10 + 1 + 4 + 4 - 1),
    ],
)
def test_what_a_finished_answer_leaves_in_the_tree(output: int, beyond: bool, kept: int) -> None:
    rules = served(beyond=beyond, output=output)
    assert rules.cache.evictable == kept
    assert rules.free == 1000 - kept


@pytest.mark.parametrize(("pairs", "cached"), [(False, 10), (True, 9)])
def test_a_tree_of_pairs_knows_a_token_less(pairs: bool, cached: int) -> None:
    rules = served(beyond=False, output=7, pairs=pairs)
    hashes = BlockHashes(((100, 10), (900, 6)), 1)
    request = ServedRequest(1, 0, 15, 1, hashes=hashes)
    rules.add_request(request)
    (admitted,) = rules.schedule().admitted
    assert admitted.cached_tokens == cached


def test_a_small_model_drafts_in_the_models_own_tokens() -> None:
    draft = {"speculative_algorithm": "STANDALONE", "speculative_draft_model_path": "qwen3-0.6b"}
    answer = worked(**draft).answer
    assert not answer.starts
    assert "the draft model knows 151,936 tokens and the model 128,256" in answer.reason


class Quiet:
    """An engine's process of which only the folder is needed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder


@pytest.mark.parametrize(
    ("draft", "layers"),
    [
        ({"speculative_algorithm": "EAGLE3", "speculative_draft_model_path": "some/head"}, 1),
        (
            {"speculative_algorithm": "STANDALONE", "speculative_draft_model_path": "llama-3.2-1b"},
            16,
        ),
    ],
)
def test_the_draft_model_lies_beside_the_model(
    tmp_path: Path, draft: dict[str, Any], layers: int
) -> None:
    engine = InstalledEngine(Quiet(tmp_path), engine_of("sglang"), "0.5.23")  # type: ignore[arg-type]
    words, _ = engine.words(worked(**draft), paths=False)
    assert words[words.index("--speculative-draft-model-path") + 1] == "draft"
    config = json.loads((tmp_path / "draft" / "config.json").read_text())
    assert config["num_hidden_layers"] == layers
    if layers == 1:
        assert config["architectures"] == ["LlamaForCausalLMEagle3"]
