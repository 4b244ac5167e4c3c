"""Which model classes a release of vLLM has: when each came, the last that had it, and which transformers'
own class stands in for.

Source: ``_VLLM_MODELS`` of ``model_executor/models/registry.py`` in every release from 0.8.5 on
(``model_classes.json``, which ``tools/model_classes.py`` writes).
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

from kvroom.engines.releases import Release
from kvroom.engines.vllm.setup import VllmSetup
from kvroom.models.kinds import ChunkedAttention, FullAttention, SlidingWindow
from kvroom.models.spec import ModelSpec
from kvroom.records import dataclass

IMAGES_SINCE: Release = (0, 10, 0)
"""Since when transformers' classes serve more than text (the registry's ``TransformersForMultimodalLM``)."""
STOOD_IN = (FullAttention, SlidingWindow, ChunkedAttention)
"""What transformers' classes may keep: their attention is vLLM's own layer, and it has no other there."""


@dataclass(frozen=True)
class ModelClasses:
    """``came`` and ``last`` give a class's first and last release, where it came after 0.8.5 or has gone.
    ``carried``: transformers' class of that name takes vLLM's attention. ``types``: a model type's class.
    ``staged``: since when a class can be split into pipeline stages that once could not; ``unstaged``: those
    that cannot."""

    came: dict[str, Release]
    last: dict[str, Release]
    carried: frozenset[str]
    types: dict[str, str]
    staged: dict[str, Release]
    unstaged: frozenset[str]

    def of(self, model: ModelSpec) -> str:
        """The class that a model's config names, or that of its type."""
        return model.architecture or self.types.get(model.model_type, "")


@lru_cache(maxsize=1)
def model_classes() -> ModelClasses:
    """The table."""
    text = Path(__file__).with_name("model_classes.json").read_text("utf-8")
    table = json.loads(text)
    first = next(iter(table["came"]))

    def by_name(key: str, but: str = "") -> dict[str, Release]:
        return {
            name: _release(release)
            for release, names in table[key].items()
            if release != but
            for name in names.split()
        }

    return ModelClasses(
        came=by_name("came", first),
        last=by_name("last"),
        carried=frozenset(table["carried"].split()),
        types=table["types"],
        staged=by_name("staged"),
        unstaged=frozenset(table["unstaged"].split()),
    )


def _release(text: str) -> Release:
    major, minor, patch = map(int, text.split("."))
    return major, minor, patch


def lacks_class(setup: VllmSetup) -> bool:
    """Whether the model's class came after the release."""
    classes = model_classes()
    return setup.release < classes.came.get(classes.of(setup.d.model), setup.release)


def stood_in(setup: VllmSetup) -> bool:
    """Whether transformers' own class serves the model in a release that has none of its own (its
    ``TransformersForCausalLM`` and the like), if the transformers beside it has one."""
    classes, model = model_classes(), setup.d.model
    return (
        classes.of(model) in classes.carried
        and all(isinstance(kind, STOOD_IN) for kind, _ in model.stores)
        and (model.vision is None or setup.release >= IMAGES_SINCE)
    )
