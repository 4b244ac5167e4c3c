"""Vision encoders at work: what encoding images takes while vLLM measures its peak.

The profiling run encodes as many images as its encoder budget holds (the batch's tokens, or one item where
that is more), then keeps their embeddings and pixels while the language model runs. Embeddings and pixels
are counted; what the encoder's own blocks hold at once is an assumption with a wide band. Sources:
``MultiModalBudget`` and ``profile_run``; sizes of images: the models' processors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvroom.engines import flags as read
from kvroom.engines.vllm.setup import VllmSetup
from kvroom.models.spec import ModelSpec
from kvroom.records import dataclass
from kvroom.units import ceil_div

NUMBER_BYTES = 2
BAND = (0.4, 2.2)
"""Of what the encoder's blocks hold, over what is reckoned here."""
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
LARGEST_VIDEO_TOKENS = {"qwen3_vl": 153_600, "qwen3_vl_moe": 153_600}
"""Of the largest video, where a release profiles with that."""
TILES = {"llama4": 17, "llava_next": 5}
"""Tiles of the tower's own size that the largest image is cut into."""
TILED_TOKENS = {"llama4": 2465, "llava_next": 2928}
"""Tokens of such an image: 144 a tile and separators; the grid's rows with their newlines."""
ASSUMED_IMAGE_TOKENS = 1024
MERGED = 2
"""Patches of a side that such a tower joins into one token."""
PATCH_NUMBERS = 3 * 2 * 14**2
"""Numbers of a patch as such processors hand it over: three colours of two frames."""
OFF = ("language_model_only", "skip_mm_profiling")


@dataclass(frozen=True, slots=True)
class Item:
    """One image (or video) of the largest size."""

    tokens: int
    patches: int
    pixel_numbers: int
    """Of what is really encoded: the dummy of a long video is short, its embeddings are padded."""


def encoder_band(
    vllm_setup: VllmSetup, batch_tokens: int, working: int
) -> tuple[int, int, int] | None:
    """(bytes, low, high) that encoding adds on the first stage to a peak of ``working`` bytes; None
    where no image may come."""
    model, args = vllm_setup.d.model, vllm_setup.d.args
    if model.vision is None or not model.beside or not model.generates or vllm_setup.first_engine:
        return None
    given = {read.plain_name(key): value for key, value in args.items() if value is not None}
    if any(read.switch(f"engine_args.{k}", given.get(k, False)) for k in OFF) or _forbidden(given):
        return None
    item = largest_item(vllm_setup)
    count = max(1, batch_tokens // item.tokens)
    kept = count * item.pixel_numbers * NUMBER_BYTES
    kept += count * item.tokens * model.hidden_size * (1 + _levels(model)) * NUMBER_BYTES
    blocks = 2 * count * item.patches * _numbers_a_patch(vllm_setup) * NUMBER_BYTES
    at = [max(kept, kept + round(blocks * f) - working) for f in (1.0, *BAND)]
    return at[0], min(at[1], round(0.9 * kept)), at[2]


def largest_item(vllm_setup: VllmSetup) -> Item:
    """The largest image or video that the model takes, as the release profiles with."""
    model, kind = vllm_setup.d.model, vllm_setup.d.model.model_type
    seen, pixels = model.vision, _pixels(vllm_setup)
    tokens = LARGEST_IMAGE_TOKENS.get(kind)
    merged = (seen.spatial_merge_size if seen else None) or MERGED
    if tokens is not None:
        side = (seen.patch_size if seen else None) or 14
        if pixels is not None:
            tokens = max(1, min(tokens, pixels // (side * merged) ** 2))
        patches = tokens * merged**2
        if pixels is None and vllm_setup.rules.video_profiled and not _no_video(vllm_setup):
            tokens = LARGEST_VIDEO_TOKENS.get(kind, tokens)
        return Item(tokens, patches, patches * 3 * 2 * side**2)
    if seen is None or not (seen.image_size and seen.patch_size):
        patches = ASSUMED_IMAGE_TOKENS * merged**2
        return Item(ASSUMED_IMAGE_TOKENS, patches, patches * PATCH_NUMBERS)
    tiles = TILES.get(kind, 1)
    patches = tiles * max(1, seen.image_size // seen.patch_size) ** 2
    tokens = TILED_TOKENS.get(kind) or TOKENS.get(kind)
    if tokens is None:
        tokens = ceil_div(patches, (seen.spatial_merge_size or 1) ** 2)
    return Item(tokens, patches, tiles * 3 * seen.image_size**2)


TOKENS = {"gemma3": 256}
"""Tokens of an image whose embeddings are pooled to so many."""


def _pixels(vllm_setup: VllmSetup) -> int | None:
    """The most pixels that an image may have, by ``mm_processor_kwargs``."""
    given = {
        read.plain_name(key): value for key, value in vllm_setup.d.args.items() if value is not None
    }
    words = read.mapping("engine_args.mm_processor_kwargs", given.get("mm_processor_kwargs"))
    found = words.get("max_pixels")
    if found is None and isinstance(words.get("size"), Mapping):
        found = words["size"].get("longest_edge")
    if found is None:
        return None
    return read.number("engine_args.mm_processor_kwargs.max_pixels", found, 1, 10**12)


def _levels(model: ModelSpec) -> int:
    """Layers of the encoder whose outputs go into the language model beside its last one's."""
    return max((t.count for t in model.beside if "deepstack" in t.name), default=0)


def _numbers_a_patch(vllm_setup: VllmSetup) -> int:
    """Numbers alive for a patch in the widest block: its vector twice, and the widest projection."""
    matrices = [t for t in vllm_setup.d.model.beside if t.is_matrix]
    blocks = [matrice for matrice in matrices if matrice.count > 1] or matrices
    width = min((min(block.rows, block.columns) for block in blocks), default=0)
    widest = max((block.rows for block in blocks), default=0)
    return 3 * width + ceil_div(widest, vllm_setup.d.layout.tp)


def _limits(given: Mapping[str, Any]) -> Mapping[str, Any]:
    limits = given.get("limit_mm_per_prompt")
    return limits if isinstance(limits, Mapping) else {}


def _forbidden(given: Mapping[str, Any]) -> bool:
    """Whether ``limit_mm_per_prompt`` lets no image and no video in."""
    return all(_limits(given).get(k) in (0, "0") for k in ("image", "video"))


def _no_video(vllm_setup: VllmSetup) -> bool:
    given = {
        read.plain_name(key): value for key, value in vllm_setup.d.args.items() if value is not None
    }
    return _limits(given).get("video") in (0, "0")
