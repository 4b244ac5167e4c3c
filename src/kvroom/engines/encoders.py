"""Vision encoders at work: what encoding images takes while an engine measures its peak.

vLLM's profiling run encodes as many images as its encoder budget holds (the batch budget, or one image
where that is more) beside the language model's own batch, and keeps their embeddings. How much that is
depends on kernels; counted here are the widest block's numbers for every patch at once, as an assumption
with a wide band. Sources: vLLM's ``MultiModalBudget`` and ``profile_run``; sizes of images: the models'
processors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvroom.engines import flags as read
from kvroom.models.spec import ModelSpec
from kvroom.sharding.layout import Layout
from kvroom.units import ceil_div

NUMBER_BYTES = 2
BAND = (0.4, 2.5)
LARGEST_IMAGE_TOKENS = {
    "qwen2_vl": 16384,
    "qwen2_5_vl": 16384,
    "qwen3_vl": 16384,
    "qwen3_vl_moe": 16384,
    "qwen3_5": 16384,
    "qwen3_5_moe": 16384,
    "kimi_k25": 4096,
    "glm4v_moe": 6144,
}
"""Tokens of the largest image where its size is the processor's choice, not the tower's."""
ASSUMED_IMAGE_TOKENS = 1024
MERGED = 2
"""Patches of a side that such a tower joins into one token."""
OFF = ("language_model_only", "skip_mm_profiling")


def encoder_band(
    args: Mapping[str, Any], model: ModelSpec, layout: Layout, batch_tokens: int
) -> tuple[int, int, int] | None:
    """(bytes, low, high) that encoding takes on the first stage; None where no image may come."""
    if model.vision is None or not model.beside or not model.generates:
        return None
    given = {read.plain_name(k): v for k, v in args.items() if v is not None}
    if any(read.switch(f"engine_args.{k}", given.get(k, False)) for k in OFF) or _forbidden(given):
        return None
    tokens, patches = image_size(model)
    images = max(1, batch_tokens // tokens)
    numbers = patches * _numbers_a_patch(model, layout) + tokens * model.hidden_size
    size = images * numbers * NUMBER_BYTES
    return size, round(size * BAND[0]), round(size * BAND[1])


def image_size(model: ModelSpec) -> tuple[int, int]:
    """(tokens, patches) of the largest image that the model takes."""
    seen, dynamic = model.vision, LARGEST_IMAGE_TOKENS.get(model.model_type)
    if seen is None or dynamic is not None or not (seen.image_size and seen.patch_size):
        merged = (seen.spatial_merge_size if seen else None) or MERGED
        tokens = dynamic or ASSUMED_IMAGE_TOKENS
        return tokens, tokens * merged**2
    patches = max(1, seen.image_size // seen.patch_size) ** 2
    return ceil_div(patches, (seen.spatial_merge_size or 1) ** 2), patches


def _numbers_a_patch(model: ModelSpec, layout: Layout) -> int:
    """Numbers alive for a patch in the widest block: its vector twice, and the widest projection."""
    matrices = [t for t in model.beside if t.is_matrix]
    blocks = [t for t in matrices if t.count > 1] or matrices
    width = min((t.columns for t in blocks), default=0)
    widest = max((t.rows for t in blocks), default=0)
    return 3 * width + ceil_div(widest, layout.tp)


def _forbidden(given: Mapping[str, Any]) -> bool:
    """Whether ``limit_mm_per_prompt`` lets no image and no video in."""
    limits = given.get("limit_mm_per_prompt")
    if not isinstance(limits, Mapping):
        return False
    return all(limits.get(k) in (0, "0") for k in ("image", "video"))
