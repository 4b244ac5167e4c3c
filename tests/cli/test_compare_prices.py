"""``kvroom compare --price``."""

import json

from click.testing import CliRunner

from kvroom.__main__ import main


def test_a_price_is_every_questions(tmp_path):
    paths = []
    for kv in ("auto", "fp8"):
        path = tmp_path / f"{kv}.json"
        asked = {"model": "llama-3-8b", "gpu": "H100-SXM", "context_tokens": 8192, "kv_dtype": kv}
        path.write_text(json.dumps(asked))
        paths.append(str(path))
    answer = CliRunner().invoke(main, ["compare", *paths, "--price", "H100-SXM=1.23", "--json"])
    assert answer.exit_code == 0, answer.output
    plans = json.loads(answer.stdout)["plans"]
    assert [plan["cost"]["usd_per_hour"] for plan in plans] == [1.23, 1.23]
