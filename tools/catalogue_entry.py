"""Print the catalogue line of a model: ``catalogue_entry.py CONFIG.json NAME HUB_ID [ALIAS …]``.

Keeps the sizes that every decoder has, and of the other keys only those without which the config would
describe another model. ``--no-quantisation`` before the rest leaves a quantised checkpoint's rules out.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kvroom.errors import KvroomError
from kvroom.models import hf
from kvroom.models.hf.common import CONTEXT, HEADS, HIDDEN, INNER, LAYERS
from kvroom.models.spec import ModelSpec

SIZES = {
    *LAYERS,
    *HEADS,
    *HIDDEN,
    *INNER,
    *CONTEXT,
    "model_type",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "tie_word_embeddings",
}
BY_ENGINES = {"encoder_attention_heads", "position_embedding_type"}
"""No figure follows from these, but the engine's own class asks for them."""


def same(config: dict[str, Any], wanted: ModelSpec) -> bool:
    """Whether ``config`` still describes ``wanted``."""
    try:
        return hf.read(config) == wanted
    except KvroomError:
        return False


def paths(config: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Every (object, key) of ``config``, an outer one before what it holds."""
    for key in list(config):
        yield config, key
        value = config.get(key)
        if isinstance(value, dict) and key != "quantization_config":
            yield from paths(value)


def shape_of(raw: dict[str, Any]) -> dict[str, Any]:
    """``raw`` without the keys that do not matter."""
    config = copy.deepcopy(raw)
    wanted = hf.read(config)
    for level, key in paths(config):
        if key in SIZES | BY_ENGINES:
            continue
        value = level.pop(key)
        if not same(config, wanted):
            level[key] = value
    return config


def entry(raw: dict[str, Any], name: str, hub_id: str, *aliases: str) -> str:
    """The line for the model that ``raw`` describes."""
    line = {
        "name": name,
        "id": hub_id,
        "aliases": list(aliases),
        "source": f"published config of {hub_id}",
        "config": shape_of(raw),
    }
    return json.dumps(line, ensure_ascii=False, separators=(",", ":"))


def main(arguments: list[str]) -> None:
    """The command."""
    plain = arguments[:1] == ["--no-quantisation"]
    path, *names = arguments[plain:] or [""]
    if len(names) < 2:
        raise SystemExit(__doc__)
    raw = json.loads(Path(path).read_text("utf-8"))
    if plain:
        raw.pop("quantization_config", None)
    print(entry(raw, *names))


if __name__ == "__main__":
    main(sys.argv[1:])
