"""DeepSeek-V4's caches in vLLM: what a layer keeps, and groups whose unequal pages lie side by side.

Beside the window, the compressed vectors and the indexer's keys, each compressor keeps the inputs of
the tokens that it has not closed yet, as a short window in FP32. Latents take DeepSeek's packed FP8
layout whatever the cache dtype. Sources: ``models/deepseek_v4`` and ``_get_packed_kv_cache_groups``
(since 0.29; before, ``_get_kv_cache_groups_uniform_groups``). Up to 0.26 the printed size weighs each group
by its pages (``get_max_concurrency_for_kv_cache_config``). Read in 0.21.0, 0.25.1 to 0.28.0 and 0.33.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kvroom.engines.vllm.groups import CannotStart, Group, family
from kvroom.engines.vllm.specs import LayerSpec, Spec
from kvroom.engines.vllm.versions import VllmRules
from kvroom.models.kinds import Compressed, Indexer, LayerKind, TiedWindow
from kvroom.units import ceil_div

BLOCK = 256
WINDOW_BLOCK = 64
ALIGNMENT = 576
LATENT_BYTES = 584
"""448 FP8 numbers, 64 BF16 ones and 8 scale bytes for a latent of 512."""
CLOSE_RATIO = 4
"""Compressors of this ratio overlap: each vector is made of two groups of tokens."""
STATE_BLOCK = {4: 4, 128: 8}


def compressed_specs(stores: Sequence[LayerKind]) -> tuple[Spec, ...]:
    """The caches of one layer, in the order that the engine makes them."""
    made: list[Spec] = []
    for kind in stores:
        match kind:
            case TiedWindow():
                page = _aligned(WINDOW_BLOCK * LATENT_BYTES)
                made.append(Spec("window", WINDOW_BLOCK, page, (kind.k_dim,), window=kind.window))
            case Compressed():
                page = _aligned(BLOCK // kind.ratio * LATENT_BYTES)
                made.append(Spec("latent", BLOCK, page, (kind.dim, kind.ratio)))
                made.append(_state(kind.dim, kind.ratio))
            case Indexer():
                page = _aligned(BLOCK // kind.ratio * (kind.dim + 4))
                made.append(Spec("latent", BLOCK, page, (kind.dim, kind.ratio, 1)))
                made.append(_state(kind.dim, kind.ratio))
    return tuple(made)


def _state(dim: int, ratio: int) -> Spec:
    """What a compressor keeps of open groups: a key and a score of ``dim``, in FP32, a token."""
    overlap = 2 if ratio == CLOSE_RATIO else 1
    tokens = STATE_BLOCK.get(ratio, 8)
    page = _aligned(tokens * 2 * overlap * dim * 4)
    return Spec("window", tokens, page, (dim, ratio), window=overlap * ratio)


def _aligned(size: int) -> int:
    return ceil_div(size, ALIGNMENT) * ALIGNMENT


def packed_groups(specs: Sequence[LayerSpec], rules: VllmRules) -> list[Group]:
    """Layers of one family together, long families cut so that all groups are about as long.

    A block is as large as the largest group ("groups", "overlay"), as all sizes of the full group side by
    side, times the layers of a group ("tuples"), or each size as often as one group has it ("buckets").
    Raises CannotStart where the release does not know the model.
    """
    if rules.packed == "unknown":
        raise CannotStart("this release does not know this model's caches")
    families: dict[tuple[object, ...], list[LayerSpec]] = {}
    for member in specs:
        families.setdefault(family(member[1]), []).append(member)
    # The full family (latents and indexer keys) stays whole, and comes first.
    ordered = sorted(families.values(), key=lambda f: f[0][1].type != "latent")
    full, near = ordered[0], ordered[1:]
    paged = [_by_page(f) for f in ordered]
    longest = [max(map(len, pages.values())) for pages in paged]
    if rules.packed == "groups":
        mixed = [n for n, p in zip(longest[1:], paged[1:], strict=True) if len(p) > 1]
        length = least_padding(longest[1:], max(mixed, default=1)) if mixed else max(longest)
    else:
        length = least_padding(longest, longest[0])
    weighed = rules.packed in ("tuples", "buckets")
    padding = 0
    if weighed:
        near = [_filled(members, tuple(paged[0])) for members in near]
        paged = [paged[0], *map(_by_page, near)]
        slots = (
            length * sum(paged[0])
            if rules.packed == "tuples"
            else sum(size * _slots(size, paged, length) for size in paged[0])
        )
        padding = slots - sum(spec.page_bytes for _, spec in full)
    made = [Group(full[0][1], tuple(full), padding, weighed)]
    for members, pages in zip(near, paged[1:], strict=True):
        repeats = list(zip(*pages.values(), strict=True))
        count = ceil_div(len(repeats), length)
        for index in range(count):
            part = tuple(m for repeat in repeats[index::count] for m in repeat)
            made.append(Group(members[0][1], part, weighed=weighed))
    return made


def _slots(size: int, paged: Sequence[dict[int, list[LayerSpec]]], length: int) -> int:
    """Most members with pages of ``size`` that one group has; families beside the first are cut."""
    counts = [len(pages.get(size, ())) for pages in paged]
    cut = (ceil_div(count, ceil_div(count, length)) for count in counts[1:] if count)
    return max([counts[0], *cut])


def _filled(members: Sequence[LayerSpec], pages: Sequence[int]) -> list[LayerSpec]:
    """Members whose pages are filled up to the nearest of ``pages`` that holds them."""
    wide = {
        own: min((page for page in pages if page >= own), default=own) for own in _by_page(members)
    }
    return [(layer, replace(spec, page_bytes=wide[spec.page_bytes])) for layer, spec in members]


def _by_page(members: Sequence[LayerSpec]) -> dict[int, list[LayerSpec]]:
    """Members by the size of their page."""
    pages: dict[int, list[LayerSpec]] = {}
    for member in members:
        pages.setdefault(member[1].page_bytes, []).append(member)
    return pages


def least_padding(counts: Sequence[int], least: int) -> int:
    """The group length from ``least`` up that pads ``counts`` least; of equals the longest."""
    return min(
        range(least, max([least, *counts]) + 1),
        key=lambda d: (sum(-count % d for count in counts), -d),
    )
