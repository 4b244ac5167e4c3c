"""Pages: how many tokens a block holds, and what one block of one layer takes.

Sources: the releases' own ``kv_cache_interface``, attention backends and ``_align_hybrid_block_size``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from math import lcm
from typing import Literal

from kvroom.engines.vllm.flags import VllmFlags
from kvroom.engines.vllm.packed import compressed_specs
from kvroom.engines.vllm.platform import BLACKWELL, HOPPER, VllmPlatform
from kvroom.engines.vllm.setup import VllmSetup
from kvroom.engines.vllm.specs import Spec
from kvroom.engines.vllm.versions import VllmRules
from kvroom.errors import KvroomError
from kvroom.models.dtypes import BF16, CACHE_DTYPES, FP32, Dtype
from kvroom.models.kinds import (
    ChunkedAttention,
    Compressed,
    ConvState,
    CrossAttention,
    HeadedAttention,
    Indexer,
    Latent,
    LayerKind,
    RecurrentState,
    SharedCache,
    SlidingWindow,
)
from kvroom.models.spec import Layer
from kvroom.records import dataclass
from kvroom.sharding.deployment import Deployment
from kvroom.units import ceil_div

DEFAULT_BLOCK = 16
CPU_BLOCK = 128
CPU_LATENT_BLOCK = 16
WIDE_HEAD, WIDE_FP8_BLOCK = 512, 64
SKIPPED_WINDOWS = "sliding_window"
"""What ``kv_cache_dtype_skip_layers`` calls all windows."""
SPARSE_BLOCK = 64
"""What the sparse indexer's kernels take."""
SPARSE_FP8_BYTES = 656
"""A latent of 512 + 64 in DeepSeek's sparse FP8 layout: 512 FP8, 4 FP32 scales, 64 BF16."""


@dataclass(frozen=True)
class Pages:
    """The block sizes and specs of one deployment under one release's rules."""

    setup: VllmSetup

    @property
    def d(self) -> Deployment:
        """The deployment."""
        return self.setup.d

    @property
    def rules(self) -> VllmRules:
        """The release's rules."""
        return self.setup.rules

    @property
    def flags(self) -> VllmFlags:
        """The engine's flags."""
        return self.setup.flags

    @property
    def platform(self) -> VllmPlatform:
        """The device as vLLM sees it."""
        return self.setup.platform

    @cached_property
    def layers(self) -> list[Layer]:
        """Every layer of the model in order, a draft's after them."""
        return [*self.d.model.each_layer(), *self.d.extras.draft_layers]

    @cached_property
    def _kinds(self) -> tuple[LayerKind, ...]:
        return tuple(kind.on_rank(self.d.layout.tp) for kind, _ in self.d.model.stores)

    def _has(self, *types: type[LayerKind]) -> bool:
        return any(isinstance(kind, types) for kind in self._kinds)

    @property
    def latent(self) -> bool:
        """Attention is over latents."""
        return self._has(Latent)

    @property
    def sparse(self) -> bool:
        """An indexer picks the latents that are read."""
        return self.latent and self._has(Indexer)

    @property
    def compressed(self) -> bool:
        """Far tokens are compressed (DeepSeek-V4), whose caches have rules of their own."""
        return self._has(Compressed)

    @property
    def recurrent(self) -> bool:
        """Some layers keep state."""
        return self._has(RecurrentState, ConvState)

    @property
    def hybrid(self) -> bool:
        """State and attention in one model."""
        return self.recurrent and self._has(HeadedAttention, Latent)

    @property
    def fp8(self) -> bool:
        """Whether the cache is asked for in FP8."""
        return self.d.kv.name == "fp8"

    # Block sizes

    @cached_property
    def kernel_block(self) -> int:
        """The fewest tokens that a block of the attention kernel holds."""
        if self.platform.cpu:
            return CPU_LATENT_BLOCK if self._plain_cpu_latents else 32
        if self.sparse:
            return SPARSE_BLOCK
        if self.latent and self.rules.latent_block == "backend":
            return self._chosen_latent_block
        if self._blackwell_wide_heads:
            return 32
        return DEFAULT_BLOCK

    @property
    def _plain_cpu_latents(self) -> bool:
        """Latent attention on a CPU without a kernel for its tiles, which takes one block size only."""
        return self.platform.cpu and self.latent and not self.platform.latent_tiles

    @property
    def _blackwell_wide_heads(self) -> bool:
        """Heads of 256 on Blackwell, whose first kernel takes blocks of 32 and more."""
        return (
            self.platform.cuda == BLACKWELL
            and not self.rules.backend_alignment
            and self.rules.mamba_caching != "never"
            and any(isinstance(kind, HeadedAttention) and kind.k_dim == 256 for kind in self._kinds)
        )

    @property
    def _chosen_latent_block(self) -> int:
        """The block of the first MLA kernel that the device and the cache's width allow."""
        if self.platform.cuda == BLACKWELL:
            return self.rules.latent_block_blackwell
        if self.platform.cuda == HOPPER and self.fp8:
            return 64  # FlashMLA; FlashAttention's takes no FP8 cache
        return DEFAULT_BLOCK

    @cached_property
    def plain_block(self) -> int:
        """Tokens of a block before a hybrid's alignment."""
        asked = self.flags.block_tokens
        if self.platform.cpu:
            # Blocks of state are set before the CPU's own default is.
            usual = DEFAULT_BLOCK if self.recurrent and not self.hybrid else CPU_BLOCK
            return CPU_LATENT_BLOCK if self._plain_cpu_latents else asked or usual
        if self.latent and self.rules.latent_block == "forced":
            forced = self._forced_latent_block
            return asked if asked is not None and asked % forced == 0 else forced
        if asked is None and self._wide_fp8_heads:
            return WIDE_FP8_BLOCK
        if asked is None:
            return max(self.kernel_block, DEFAULT_BLOCK) if self.latent else DEFAULT_BLOCK
        if self.latent and self.platform.hip:
            return asked  # AITER's latent kernel goes token by token, whatever the block
        if asked % self.kernel_block:
            raise KvroomError(
                "engine_args.block_size",
                asked,
                f"is no multiple of {self.kernel_block}, the attention kernel's block",
                f"Use {ceil_div(asked, self.kernel_block) * self.kernel_block}, or leave it out.",
            )
        return asked

    @property
    def _wide_fp8_heads(self) -> bool:
        """Heads of 512 (Gemma 4's full layers) in an FP8 cache on Hopper: FlashAttention 4 reads pages of
        64 tokens there, and every layer starts from the widest one's block."""
        return (
            self.rules.wide_fp8_pages
            and self.platform.cuda == HOPPER
            and self.fp8
            and any(
                isinstance(kind, HeadedAttention) and kind.k_dim == WIDE_HEAD
                for kind in self._kinds
            )
        )

    @property
    def _forced_latent_block(self) -> int:
        if self.sparse or self.platform.cuda == HOPPER:
            return 64
        return self.rules.latent_block_blackwell if self.platform.cuda == BLACKWELL else 16

    @cached_property
    def block(self) -> int:
        """Tokens of a block of attention, a hybrid's alignment included."""
        if not self._skips_aligned:
            return self._aligned_block
        narrow, step = self._token_bytes, max(self.kernel_block, self._aligned_block)
        wide = max(self._entry(kind, wide=True) for kind in self._attention)
        return step * ceil_div(wide * self.kernel_block, step * narrow)

    @cached_property
    def _aligned_block(self) -> int:
        """Tokens of a block whose page holds a hybrid's state."""
        if not self.hybrid or not self.rules.mamba_v1 or not self._state_bytes:
            return self.plain_block
        token = self._token_bytes
        step = self._alignment
        if self.mode == "all":
            step = lcm(self.flags.mamba_block or self._chunk, step)
            tokens = ceil_div(self._state_bytes, token)
            least = step * ceil_div(tokens, step)
        else:
            least = step * ceil_div(self._state_bytes, step * token)
        return max(self.plain_block, least)

    @property
    def _alignment(self) -> int:
        """What a hybrid's block is a multiple of."""
        rules = self.rules
        if not rules.backend_alignment:
            return rules.latent_alignment if self.latent else self.kernel_block
        step = max(self.kernel_block, self.plain_block)
        if self.latent:
            step = max(step, rules.latent_alignment)
        if self.mode == "align" and self._gdn_checkpoint:
            step = lcm(step, rules.gdn_alignment)
        return step

    @property
    def _token_bytes(self) -> int:
        """What one token takes in one layer of a hybrid's attention."""
        return max((self._entry(kind) for kind in self._attention), default=1)

    @property
    def _attention(self) -> list[LayerKind]:
        return [kind for kind in self._kinds if isinstance(kind, HeadedAttention | Latent)]

    @property
    def _state_bytes(self) -> int:
        """One layer's state, the largest of the model's."""
        return max((self.state_page(layer.stores) for layer in self.layers), default=0)

    @property
    def _chunk(self) -> int:
        """The chunk of the scan kernel, which block boundaries keep to."""
        return self.d.model.scan_chunk_tokens or 2048

    # State

    @cached_property
    def caching(self) -> bool:
        """Whether prefixes are cached, recurrent models considered."""
        asked = self.flags.prefix_caching
        if not self.recurrent:
            return True if asked is None else asked
        match self.rules.mamba_caching:
            case "never":
                return False
            case "flagged models":
                return bool(asked) and self._flagged
        # Of models without attention by default in no release.
        return self.rules.mamba_caching_default and self.hybrid if asked is None else asked

    @property
    def _flagged(self) -> bool:
        """The model's scan can resume at block boundaries: Mamba and Mamba-2."""
        forms = {kind.form for kind in self._kinds if isinstance(kind, RecurrentState)}
        return bool(forms) and forms <= {"mamba1", "mamba2"}

    @cached_property
    def mode(self) -> Literal["none", "align", "all"]:
        """How state is kept for cached prefixes."""
        if not self.recurrent or not self.caching:
            return "none"
        if self.rules.mamba_caching == "flagged models":
            return "all"
        if not self.rules.mamba_all_mode:
            return "align"
        if self.flags.mamba_mode == "all" or (
            self.flags.mamba_mode == "none" and not self.rules.mamba_caching_default
        ):
            return "all" if self._flagged else "align"
        return "align"

    @property
    def whole_states(self) -> bool:
        """States of a model without attention are cached at a request's full length alone, unless a block is
        given (0.12 and later heed it): the default block is not known when theirs is set."""
        given = self.flags.mamba_block or (self.rules.scaled_pages and self.flags.block_tokens)
        lone = bool(self.recurrent) and not self.hybrid
        return self.rules.mamba_caching == "flagged models" and lone and not given

    @property
    def _gdn_checkpoint(self) -> bool:
        """FlashInfer's gated-delta-net prefill, on Hopper and newer, keeps a checkpoint."""
        forms = {kind.form for kind in self._kinds if isinstance(kind, RecurrentState)}
        return self.rules.gdn_checkpoint and forms == {"gdn"} and self.platform.cuda >= HOPPER

    def state_page(self, stores: Sequence[LayerKind]) -> int:
        """What one request's state takes in a layer with these ``stores``, before padding."""
        more = self._drafted_columns(stores)
        return sum(
            self._state_dtyped(kind, more).on_rank(self.d.layout.tp).entry_bytes(self.d.kv)
            for kind in stores
            if isinstance(kind, RecurrentState | ConvState)
        )

    def _drafted_columns(self, stores: Sequence[LayerKind]) -> int:
        """Columns that a convolution keeps beside its own: one a drafted token, to step back by
        (``num_spec`` of MambaStateShapeCalculator)."""
        form = next((kind.form for kind in stores if isinstance(kind, RecurrentState)), "")
        name = self.d.model.model_type if form == "mamba2" else form
        return self.flags.speculative_tokens if name in self.rules.drafted_conv else 0

    def _state_dtyped(
        self, kind: RecurrentState | ConvState, more: int
    ) -> RecurrentState | ConvState:
        """``kind`` at the width that this release stores it in, a convolution with ``more`` columns."""
        conv, state = _state_width(self.flags.conv_dtype), _state_width(self.flags.state_dtype)
        if isinstance(kind, ConvState):
            return replace(kind, dtype=conv or BF16, columns=kind.columns + more)
        asked = {"lightning": conv, "kda": state}.get(kind.form, state or conv)
        if self.platform.state_fp32 and not (asked and kind.form == "gdn"):
            return replace(kind, dtype=FP32)
        if asked is not None:
            return replace(kind, dtype=asked)
        if self.d.model.model_type == "nemotron_h":
            return replace(kind, dtype=self._nemotron_dtype(kind))
        return kind

    def _nemotron_dtype(self, kind: RecurrentState) -> Dtype:
        if self.d.model.state_dtype not in (None, "auto") and self.rules.nemotron_state_config:
            return kind.dtype
        named = {"model": BF16, "fp16": CACHE_DTYPES["fp16"], "fp32": FP32}
        return named[self.rules.nemotron_state]

    # Specs

    @cached_property
    def specs(self) -> list[tuple[int, Spec]]:
        """(layer, Spec) of every cache of the model, in the order in which its class makes them."""
        by_layer: dict[tuple[int, bool], tuple[Spec, ...]] = {}
        made: list[tuple[int, Spec]] = []
        for index, layer in enumerate(self.layers):
            wide = str(index) in self.flags.skipped_layers
            if (id(layer), wide) not in by_layer:
                by_layer[id(layer), wide] = self._of_layer(layer, wide=wide)
            made += [(index, spec) for spec in by_layer[id(layer), wide]]
        if (
            self.d.model.model_type == "zamba2"
        ):  # zamba2.py makes the attention that layers share first
            made.sort(key=lambda each: each[1].type != "full")
        return made

    def _of_layer(self, layer: Layer, *, wide: bool) -> tuple[Spec, ...]:
        if self.compressed:
            return compressed_specs(layer.stores)
        kept: list[Spec] = []
        for store in layer.stores:
            own = store.of if isinstance(store, SharedCache) and self._unshared else store
            if not isinstance(own, RecurrentState | ConvState | SharedCache):
                kept.append(self._of_attention(own.on_rank(self.d.layout.tp), wide=wide))
        state = self.state_page(layer.stores)
        if state and self.rules.mamba_v1:
            kept.append(self._of_state(state, layer.stores))
        return tuple(kept)

    @property
    def _unshared(self) -> bool:
        """Layers that would read another's cache keep their own."""
        return not self.rules.shares_hunyuan and self.d.model.model_type.startswith("hunyuan")

    def _of_attention(self, kind: LayerKind, *, wide: bool) -> Spec:
        tokens = self.block
        if isinstance(kind, SlidingWindow) and self.rules.window_block == "kernel":
            tokens = self.kernel_block
        windowed = isinstance(kind, SlidingWindow)
        wide = wide or (windowed and SKIPPED_WINDOWS in self.flags.skipped_layers)
        entry = self._entry(kind, wide=wide)
        page = tokens * entry
        if windowed and self._skips_aligned:
            page = tokens * self._token_bytes  # that of the layers that are narrow
            tokens = max(self.kernel_block, page // entry // self.kernel_block * self.kernel_block)
            page = max(page, tokens * entry)
        match kind:
            case SlidingWindow() if self.flags.windows_off:
                return Spec("full", tokens, page, _heads(kind))
            case Indexer():
                return Spec("latent", tokens, page, (kind.dim, 1))
            case Latent():
                return Spec("latent", tokens, page, (kind.latent_dim + kind.rope_dim, 0))
            case SlidingWindow():
                farther = self.rules.cohere_reach and self.d.model.model_type.startswith("cohere2")
                reach = kind.window + farther
                return Spec("window", tokens, page, _heads(kind), window=reach)
            case ChunkedAttention() if self.rules.chunked_specs:
                return Spec("chunked", tokens, page, _heads(kind), window=kind.chunk)
            case CrossAttention():
                return Spec("cross", tokens, page, _heads(kind))
            case HeadedAttention():
                return Spec("full", tokens, page, _heads(kind))
        raise KvroomError(
            "model", kind.kind, "is a cache that vLLM's rules do not know", "Use another engine."
        )

    @property
    def _skips_aligned(self) -> bool:
        """Some layers are wider than the others, and blocks are made so that their pages are equal."""
        narrow = self.d.kv.bytes_for(128) < BF16.bytes_for(128)
        return self.rules.skipped_aligned and bool(self.flags.skipped_layers) and narrow

    def _entry(self, kind: LayerKind, *, wide: bool = False) -> int:
        """Bytes of one token in one layer; ``wide``: at the model's width whatever the cache's is."""
        kv = BF16 if wide else self.d.kv
        if isinstance(kind, Latent) and self.sparse and self._sparse_fp8 and not wide:
            return SPARSE_FP8_BYTES
        if isinstance(kind, HeadedAttention) and kind.v_dim != kind.k_dim:
            window = isinstance(kind, SlidingWindow)
            own = self.rules.value_width_window if window else self.rules.value_width_full
            if not own:
                kind = replace(kind, v_dim=kind.k_dim)
        return kind.entry_bytes(kv)

    @property
    def _sparse_fp8(self) -> bool:
        return self.fp8 or self.narrowed

    @property
    def narrowed(self) -> bool:
        """The release stores this model's latents in FP8 although it was not asked to."""
        if not self.sparse or self.d.kv_asked != "auto":
            return False
        glm = self.d.model.model_type == "glm_moe_dsa" and self.platform.cuda == BLACKWELL
        return self.rules.sparse_fp8_default or (self.rules.glm_fp8_default and glm)

    def _of_state(self, page: int, stores: Sequence[LayerKind]) -> Spec:
        spoken = self.flags.speculative_tokens
        shape = (
            page,
            *(kind.entry_bytes(self.d.kv) for kind in stores if isinstance(kind, ConvState)),
        )
        padded = max(page, self.block * self._token_bytes) if self.hybrid else page
        rules = self.rules
        fixed, grows, tokens = 1 + spoken, False, self.setup.context
        if rules.mamba_caching == "never":
            fixed = 1
        elif rules.mamba_caching == "flagged models":
            fixed, grows = 0, True
            whole = self.mode != "all" or self.whole_states
            tokens = self.setup.context if whole else self.block
        elif self.mode == "all":
            fixed, grows, tokens = spoken if rules.all_mode_speculation else 0, True, self.block
        elif self.mode == "align":
            saved = self._checkpoint_tokens(stores)
            fixed, tokens = 2 + spoken + (saved > 0), self.block
            return Spec("state", tokens, padded, shape, blocks=fixed, checkpoint_tokens=saved)
        return Spec("state", tokens, padded, shape, blocks=fixed, grows=grows)

    def _checkpoint_tokens(self, stores: Sequence[LayerKind]) -> int:
        """What the state that a prefill saves in a block of its own is a multiple of; 0: it saves none."""
        form = next((kind.form for kind in stores if isinstance(kind, RecurrentState)), "")
        if form == "mamba2":
            return int(self.rules.mamba2_checkpoint)
        # FlashInfer's states lie on the grid of cached prefixes: block ends.
        return self.block if form == "gdn" and self._gdn_checkpoint else 0


def _heads(kind: HeadedAttention) -> tuple[int, ...]:
    return (kind.kv_heads, kind.k_dim, kind.v_dim)


def _state_width(name: str) -> Dtype | None:
    """The width that a flag asks of state; None for ``auto``."""
    return {"float32": FP32, "float16": CACHE_DTYPES["fp16"], "bfloat16": BF16}.get(name)
