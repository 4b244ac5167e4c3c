"""``tools/refresh.py``: what a folder of published configs says beside the catalogue."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import pytest

from support import from_file

LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 256,
    "intermediate_size": 512, "num_attention_heads": 8, "num_hidden_layers": 4, "vocab_size": 512,
}  # fmt: skip


def published() -> list[dict[str, object]]:
    """Models of the catalogue with their configs, a line each."""
    text = resources.files("kvroom.models").joinpath("catalogue.json").read_text("utf-8")
    lines = (line.strip().rstrip(",") for line in text.splitlines())
    return [json.loads(line) for line in lines if line.startswith('{"name"')]


def put(folder: Path, hub_id: str, config: object) -> None:
    text = config if isinstance(config, str) else json.dumps(config)
    (folder / (hub_id.replace("/", "__") + ".json")).write_text(text)


def test_the_catalogues_own_configs_are_as_published(tmp_path: Path) -> None:
    tool = from_file("tools/refresh.py")
    rows = [row for row in published() if isinstance(row.get("config"), dict)][:40]
    for row in rows:
        put(tmp_path, str(row["id"]), row["config"])
    found = tool.refresh(tmp_path)
    assert len(found.same) + len(found.settled) > 30
    assert not found.changed
    assert not found.unread


def test_it_tells_what_is_new_changed_read_by_no_reader_or_not_at_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tool = from_file("tools/refresh.py")
    put(tmp_path, "meta-llama/Meta-Llama-3-70B", LLAMA)
    put(tmp_path, "somebody/something-new", LLAMA)
    put(
        tmp_path,
        "somebody/another-type",
        {**LLAMA, "model_type": "llama_of_tomorrow", "architectures": []},
    )
    put(tmp_path, "somebody/broken", "{")
    assert tool.main([str(tmp_path)]) == 1
    text = capsys.readouterr().out
    assert "changed    meta-llama/Meta-Llama-3-70B: parameters" in text
    assert "new        somebody/something-new" in text
    assert "no reader  llama_of_tomorrow (somebody/another-type): " in text
    assert "not read   somebody/broken" in text


def test_a_folder_without_configs_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert from_file("tools/refresh.py").main([str(tmp_path)]) == 2
    assert "has no published configs" in capsys.readouterr().err
