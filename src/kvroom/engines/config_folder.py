"""A model's folder that holds its config alone, as an installed engine reads it.

Loaded by path in the engine's own Python, beside its script (``observe/installed/child.py``).
"""

from __future__ import annotations

import importlib
import json
import shutil
from itertools import count
from pathlib import Path
from typing import Any

NUMBERS = count()


def with_architecture(folder: str) -> None:
    """Name in the config of ``folder`` the class that transformers has for its model type, where it names
    none: one that generates, and of encoders, which fill in masks, the bare model."""
    path = Path(folder) / "config.json"
    config = json.loads(path.read_text())
    if config.get("architectures"):
        return
    auto: Any = importlib.import_module("transformers.models.auto.modeling_auto")
    known = dict(auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    if "vision_config" in config:
        known |= getattr(auto, "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES", {})
    masked = getattr(auto, "MODEL_FOR_MASKED_LM_MAPPING_NAMES", ())
    known |= {kind: name for kind, name in auto.MODEL_MAPPING_NAMES.items() if kind in masked}
    if config.get("model_type") in known:
        path.write_text(json.dumps(config | {"architectures": [known[config["model_type"]]]}))


def fresh(folder: str) -> str:
    """A copy of ``folder`` under a name of its own: engines remember configs by their paths."""
    made = f"{folder}-{next(NUMBERS)}"
    shutil.copytree(folder, made)
    return made
