"""What fits one's own card."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

import kvroom
from kvroom.__main__ import main
from kvroom.errors import KvroomError
from kvroom.optimize.fit import LADDER, fit


@pytest.fixture(scope="module")
def whole():
    return fit({"gpu": "RTX-4090"})


@pytest.fixture(scope="module")
def ladder():
    return fit({"gpu": "RTX-4090"}, "qwen3-32b")


def test_every_row_is_what_plan_answers(ladder):
    assert [row.weight_dtype for row in ladder.rows] == list(LADDER)
    for row in ladder.rows:
        plan = kvroom.plan(
            "qwen3-32b", "RTX-4090", engine="llama.cpp", weight_dtype=row.weight_dtype,
            context_tokens=8192, concurrency=1,
        )  # fmt: skip
        assert row.starts == plan.verdict.fits
        assert row.tokens_per_s == pytest.approx(1 / plan.step.seconds)
        assert row.tokens_per_s_low < row.tokens_per_s < row.tokens_per_s_high


def test_narrower_files_are_smaller_hold_longer_requests_and_lose_more(ladder):
    sizes = [row.file_bytes for row in ladder.rows]
    assert sizes == sorted(sizes, reverse=True)
    lengths = [row.longest_tokens for row in ladder.rows if row.on_gpu]
    assert lengths == sorted(lengths)
    losses = [row.perplexity_ratio for row in ladder.rows]
    assert losses == sorted(losses)


def test_the_first_sentence_names_the_widest_file_that_lies_on_the_card(ladder):
    widest = next(row for row in ladder.rows if row.on_gpu)
    assert ladder.sentence.startswith(
        f"{widest.weight_dtype.upper()} is the widest file of qwen3-32b that fits RTX-4090 whole"
    )


def test_models_that_fit_do_and_the_others_say_where_the_rest_lies(whole):
    assert len(whole.rows) > 100
    assert all(row.on_gpu is (row.placed == "all on the GPU") for row in whole.rows)
    assert {row.weight_dtype for row in whole.rows} <= {*LADDER, "mxfp4"}
    names = [row.model for row in (*whole.rows, *whole.slow)]
    assert len(names) == len(set(names))
    assert not set(names) & set(whole.too_large)
    assert all(row.context_tokens == 8192 for row in whole.rows)


def test_a_larger_card_holds_no_narrower_file(whole):
    order = [*LADDER, "mxfp4"]
    larger = {row.model: row for row in fit({"gpu": "RTX-5090"}).rows}
    for row in whole.rows:
        if row.on_gpu:
            more = larger[row.model]
            assert more.on_gpu
            assert order.index(more.weight_dtype) <= order.index(row.weight_dtype)


def test_gpt_oss_has_its_one_published_file():
    """ggml-org/gpt-oss-120b-GGUF: 59.02 GiB, experts in MXFP4 and all else in Q8_0."""
    (row,) = fit({"gpu": "Apple-M4-Max"}, "gpt-oss-120b").rows
    assert row.weight_dtype == "mxfp4"
    assert row.file_bytes / 2**30 == pytest.approx(59.02, abs=0.02)


def test_a_mac_comes_in_sizes():
    small, large = (kvroom.fit("Apple-M4-Max", "qwen3-32b", memory=m) for m in ("36GB", "64GB"))
    assert (small.gpu, large.gpu) == ("Apple-M4-Max-36GB", "Apple-M4-Max-64GB")
    assert sum(row.on_gpu for row in small.rows) < sum(row.on_gpu for row in large.rows)
    with pytest.raises(KvroomError, match="H100"):
        kvroom.fit("H100-SXM", "qwen3-32b", memory="64GB")


def test_what_cannot_be_asked_is_told_with_what_can():
    with pytest.raises(KvroomError, match="is for servers"):
        fit({"gpu": "RTX-4090", "engine": "vllm"})
    with pytest.raises(KvroomError, match="is no known model"):
        fit({"gpu": "RTX-4090"}, "no-such-model")


@pytest.mark.parametrize("model", [[], ["qwen3-32b"], ["llama-3.1-405b"]])
def test_a_screen_is_a_screen(model):
    answer = CliRunner().invoke(main, ["fit", *model, "--gpu", "RTX-4090"])
    assert answer.exit_code == 0
    lines = answer.stdout.splitlines()
    assert len(lines) < 40
    commands = [line for line in lines if line.startswith(("  llama-server", "  ollama", "  lms"))]
    assert max(len(line) for line in lines if line not in commands) <= 80


def test_json_has_every_row(ladder):
    answer = CliRunner().invoke(main, ["fit", "qwen3-32b", "--gpu", "RTX-4090", "--json"])
    assert json.loads(answer.stdout) == json.loads(json.dumps(ladder.to_dict()))


def test_where_none_fits_whole_a_quick_file_that_loses_little_leads():
    found = fit({"gpu": "RTX-4090"}, "llama-3.1-70b")
    rows = {row.weight_dtype: row for row in found.rows}
    chosen = next(name for name in rows if f"{name.upper()} runs with" in found.sentence)
    little = [row for row in rows.values() if row.starts and (row.perplexity_ratio or 0) <= 0.03]
    assert rows[chosen].tokens_per_s == max(row.tokens_per_s for row in little)
    assert f":{chosen.upper()}" in found.commands[0]


def test_a_file_without_a_published_loss_has_no_column_of_it():
    said = CliRunner().invoke(main, ["fit", "gpt-oss-20b", "--gpu", "RTX-4090"]).output
    assert "erplexity" not in said
