"""The layer kinds: what one layer keeps for a request, and what a step reads of it.

Each kind alone answers the same few questions, so that nothing downstream asks which model this is:
how many entries it holds at a length, how many bytes an entry takes, how it grows, what one decode
step reads, what its attention computes, and what is left of it on one tensor-parallel rank.

Shapes are for one layer and one request. ``kv`` is the cache's element width; state and convolution
columns carry their own. Formulas: the models' published configurations and vLLM's cache specs
(``vllm/v1/kv_cache_interface.py``), checked against transformers' measured caches.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import ClassVar

from kvroom.models.dtypes import BF16, Dtype
from kvroom.records import dataclass
from kvroom.units import ceil_div


def triangle(n: int) -> int:
    """1 + 2 + … + n."""
    return n * (n + 1) // 2


def _row_formula(dtype: Dtype, columns: int) -> str:
    """``dtype.bytes_for(columns)`` as its factors, or the figure where a group is begun and not filled."""
    if not dtype.fills(columns):
        return str(dtype.bytes_for(columns))
    return f"{columns} × {dtype.factor}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerKind:
    """What one layer keeps for one request. The base keeps nothing."""

    kind: ClassVar[str] = "none"
    fixed_size: ClassVar[bool] = False
    """Whether its bytes are the same however long the text: state, an encoder's output."""
    recurrent: ClassVar[bool] = False
    """Whether each token rewrites it: the state of a recurrence, the columns of its convolution."""
    context_parallel: ClassVar[bool] = False
    """Whether decode-context-parallel ranks share the tokens out among them."""

    @property
    def window_tokens(self) -> int | None:
        """Tokens back that it is kept for: a window's or a chunk's; None: all."""
        return None

    @property
    def reach_tokens(self) -> int | None:
        """Tokens back that a step reads at most, on average of the lengths; None: all."""
        return self.window_tokens

    @property
    def tokens_per_entry(self) -> int:
        """How many tokens one entry stands for."""
        return 1

    def dtype_of(self, kv: Dtype) -> Dtype:
        """How its numbers are stored: as the cache is, but for state and the like."""
        return kv

    def factors(self) -> tuple[tuple[str, int], ...]:
        """What an entry's count of numbers is the product of, each factor with its name."""
        return ()

    def sentence(self) -> str:
        """What it keeps, in words."""
        return "keeps nothing"

    def entries(self, tokens: int, encoder_tokens: int = 0) -> int:
        """How many entries are held once the request has ``tokens`` tokens."""
        return 0

    def entry_bytes(self, kv: Dtype) -> int:
        """Bytes of one entry."""
        return 0

    def entry_formula(self, kv: Dtype) -> str:
        """``entry_bytes`` as a product of its factors, to be read and checked."""
        return "0"

    def growth(self, kv: Dtype) -> Fraction:
        """Bytes that one more token adds for ever; zero for windows, state and cross attention."""
        return Fraction(0)

    def token_bytes(self, kv: Dtype) -> Fraction:
        """Bytes of one token while it is held: of a window that keeps it, too; zero for state."""
        return self.growth(kv) if self.window_tokens is None else Fraction(self.entry_bytes(kv))

    def stored_bytes(self, tokens: int, kv: Dtype, encoder_tokens: int = 0) -> int:
        """Bytes held at a length of ``tokens``, before any rounding to blocks."""
        return self.entries(tokens, encoder_tokens) * self.entry_bytes(kv)

    def block_bytes(self, block_tokens: int, kv: Dtype) -> int:
        """Bytes of one block of ``block_tokens`` entries."""
        return block_tokens * self.entry_bytes(kv)

    def read_bytes(self, tokens: int, kv: Dtype, encoder_tokens: int = 0) -> int:
        """Bytes that one decode step reads (and, for state, writes back) at a length of ``tokens``."""
        return self.stored_bytes(tokens, kv, encoder_tokens)

    def decode_flops(self, tokens: int, encoder_tokens: int = 0) -> int:
        """Floating-point operations of the attention of one new token at a length of ``tokens``."""
        return 0

    def prefill_flops(self, tokens: int, encoder_tokens: int = 0) -> int:
        """The same summed over a prompt of ``tokens`` tokens."""
        return 0

    def exchanged(self) -> int:
        """Numbers that a token's queries, outputs and their normalisers (two numbers' width a head)
        come to: what decode-context-parallel ranks exchange, each its share."""
        return 0

    def on_rank(self, tp: int) -> LayerKind:
        """What is left of this on one of ``tp`` tensor-parallel ranks."""
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadedAttention(LayerKind):
    """Keys of ``k_dim`` and values of ``v_dim`` numbers for each of ``kv_heads`` heads."""

    kv_heads: int
    k_dim: int
    v_dim: int
    q_heads: int

    def entry_bytes(self, kv: Dtype) -> int:
        return kv.bytes_for(self.k_dim, self.kv_heads) + kv.bytes_for(self.v_dim, self.kv_heads)

    def entry_formula(self, kv: Dtype) -> str:
        if not kv.fills(self.k_dim, self.v_dim):
            k, v = (kv.bytes_for(n, self.kv_heads) for n in (self.k_dim, self.v_dim))
            return f"({k} + {v})"
        dims = f"2 × {self.k_dim}" if self.k_dim == self.v_dim else f"({self.k_dim} + {self.v_dim})"
        return f"{self.kv_heads} × {dims} × {kv.factor}"

    def factors(self) -> tuple[tuple[str, int], ...]:
        if self.k_dim == self.v_dim:
            return ("heads", self.kv_heads), ("width", self.k_dim), ("key and value", 2)
        return ("heads", self.kv_heads), ("key width + value width", self.k_dim + self.v_dim)

    def exchanged(self) -> int:
        return self.q_heads * (self.k_dim + self.v_dim + 2)

    def _flops(self, pairs: int) -> int:
        # query·key and weight·value, a multiply and an add each
        return 2 * self.q_heads * (self.k_dim + self.v_dim) * pairs

    def decode_flops(self, tokens: int, encoder_tokens: int = 0) -> int:
        return self._flops(self.entries(tokens, encoder_tokens))

    def on_rank(self, tp: int) -> LayerKind:
        # More ranks than heads: each rank keeps one, so the cache is replicated.
        return replace(
            self, kv_heads=ceil_div(self.kv_heads, tp), q_heads=ceil_div(self.q_heads, tp)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FullAttention(HeadedAttention):
    """Every token's keys and values, for ever.

    ``sparse_read`` is how many tokens a step reads where an indexer picks them (None: all).
    """

    kind: ClassVar[str] = "full"
    context_parallel: ClassVar[bool] = True
    sparse_read: int | None = None

    @property
    def reach_tokens(self) -> int | None:
        return self.sparse_read

    def sentence(self) -> str:
        return "keeps every token"

    def entries(self, tokens: int, encoder_tokens: int = 0) -> int:
        return tokens

    def growth(self, kv: Dtype) -> Fraction:
        return Fraction(self.entry_bytes(kv))

    def read_bytes(self, tokens: int, kv: Dtype, encoder_tokens: int = 0) -> int:
        return min(tokens, self.sparse_read or tokens) * self.entry_bytes(kv)

    def decode_flops(self, tokens: int, encoder_tokens: int = 0) -> int:
        return self._flops(min(tokens, self.sparse_read or tokens))

    def prefill_flops(self, tokens: int, encoder_tokens: int = 0) -> int:
        near = min(tokens, self.sparse_read or tokens)
        return self._flops(triangle(near) + (tokens - near) * near)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlidingWindow(HeadedAttention):
    """The last ``window`` tokens only."""

    kind: ClassVar[str] = "window"
    window: int

    @property
    def window_tokens(self) -> int | None:
        return self.window

    def sentence(self) -> str:
        return f"keeps the last {self.window:,} tokens only"

    def entries(self, tokens: int, encoder_tokens: int = 0) -> int:
        return min(tokens, self.window)

    def prefill_flops(self, tokens: int, encoder_tokens: int = 0) -> int:
        near = min(tokens, self.window)
        return self._flops(triangle(near) + (tokens - near) * near)


@dataclass(frozen=True, slots=True, kw_only=True)
class TiedWindow(SlidingWindow):
    """A sliding window whose keys are its values too: one vector for both (DeepSeek-V4)."""

    def factors(self) -> tuple[tuple[str, int], ...]:
        return ("heads", self.kv_heads), ("width, key and value in one", self.k_dim)

    def entry_bytes(self, kv: Dtype) -> int:
        return kv.bytes_for(self.k_dim, self.kv_heads)

    def entry_formula(self, kv: Dtype) -> str:
        return f"{self.kv_heads} × {_row_formula(kv, self.k_dim)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkedAttention(HeadedAttention):
    """The tokens of the current chunk of ``chunk``; ``entries`` is the most held on the way there."""

    kind: ClassVar[str] = "chunked"
    chunk: int

    @property
    def window_tokens(self) -> int | None:
        return self.chunk

    @property
    def reach_tokens(self) -> int | None:
        return max(1, self.chunk // 2)  # the chunk in progress is half full on average

    def sentence(self) -> str:
        return f"keeps the current chunk of {self.chunk:,} tokens only"

    def entries(self, tokens: int, encoder_tokens: int = 0) -> int:
        return min(tokens, self.chunk)

    def live(self, tokens: int) -> int:
        """Tokens of the chunk in progress at exactly ``tokens`` tokens."""
        return (tokens - 1) % self.chunk + 1 if tokens else 0

    def read_bytes(self, tokens: int, kv: Dtype, encoder_tokens: int = 0) -> int:
        return self.live(tokens) * self.entry_bytes(kv)

    def decode_flops(self, tokens: int, encoder_tokens: int = 0) -> int:
        return self._flops(self.live(tokens))

    def prefill_flops(self, tokens: int, encoder_tokens: int = 0) -> int:
        whole, rest = divmod(tokens, self.chunk)
        return self._flops(whole * triangle(self.chunk) + triangle(rest))


@dataclass(frozen=True, slots=True, kw_only=True)
class Latent(LayerKind):
    """Multi-head latent attention: one compressed vector and its rotary part for all heads.

    Every tensor-parallel rank needs the whole latent, so it is replicated. ``sparse_read`` as in
    FullAttention. ``k_dim``/``v_dim`` are a head's expanded widths, which prefill computes with.
    """

    kind: ClassVar[str] = "latent"
    context_parallel: ClassVar[bool] = True
    latent_dim: int
    rope_dim: int
    q_heads: int
    k_dim: int
    v_dim: int
    sparse_read: int | None = None

    @property
    def reach_tokens(self) -> int | None:
        return self.sparse_read

    def factors(self) -> tuple[tuple[str, int], ...]:
        return (("latent + rotary numbers", self.latent_dim + self.rope_dim),)

    def sentence(self) -> str:
        return "keeps one compressed vector a token for all heads"

    def entries(self, tokens: int, encoder_tokens: int = 0) -> int:
        return tokens

    def entry_bytes(self, kv: Dtype) -> int:
        return kv.bytes_for(self.latent_dim + self.rope_dim)

    def entry_formula(self, kv: Dtype) -> str:
        if not kv.fills(self.latent_dim + self.rope_dim):
            return str(self.entry_bytes(kv))
        return f"({self.latent_dim} + {self.rope_dim}) × {kv.factor}"

    def growth(self, kv: Dtype) -> Fraction:
        return Fraction(self.entry_bytes(kv))

    def read_bytes(self, tokens: int, kv: Dtype, encoder_tokens: int = 0) -> int:
        return min(tokens, self.sparse_read or tokens) * self.entry_bytes(kv)

    def decode_flops(self, tokens: int, encoder_tokens: int = 0) -> int:
        # Decode attends in the latent space: keys of latent + rope, values of latent.
        read = min(tokens, self.sparse_read or tokens)
        return 2 * self.q_heads * (2 * self.latent_dim + self.rope_dim) * read

    def prefill_flops(self, tokens: int, encoder_tokens: int = 0) -> int:
        near = min(tokens, self.sparse_read or tokens)
        pairs = triangle(near) + (tokens - near) * near
        return 2 * self.q_heads * (self.k_dim + self.v_dim) * pairs

    def exchanged(self) -> int:
        return self.q_heads * (2 * self.latent_dim + self.rope_dim + 2)

    def on_rank(self, tp: int) -> LayerKind:
        return replace(self, q_heads=ceil_div(self.q_heads, tp))


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexer(LayerKind):
    """Small keys by which a sparse attention picks the tokens it reads; all are read each step.

    One key of ``dim`` numbers for every ``ratio`` tokens, stored as ``dtype`` (None: as the cache is).
    """

    kind: ClassVar[str] = "indexer"
    context_parallel: ClassVar[bool] = True
    dim: int
    heads: int
    ratio: int = 1
    dtype: Dtype | None = None

    @property
    def tokens_per_entry(self) -> int:
        return self.ratio

    def dtype_of(self, kv: Dtype) -> Dtype:
        return self.dtype or kv

    def factors(self) -> tuple[tuple[str, int], ...]:
        return (("numbers a key", self.dim),)

    def sentence(self) -> str:
        return "keeps a small key a token, to choose what is read"

    def entries(self, tokens: int, encoder_tokens: int = 0) -> int:
        return tokens // self.ratio

    def entry_bytes(self, kv: Dtype) -> int:
        return self.dtype_of(kv).bytes_for(self.dim)

    def entry_formula(self, kv: Dtype) -> str:
        return _row_formula(self.dtype_of(kv), self.dim)

    def growth(self, kv: Dtype) -> Fraction:
        return Fraction(self.entry_bytes(kv), self.ratio)

    def decode_flops(self, tokens: int, encoder_tokens: int = 0) -> int:
        return 2 * self.heads * self.dim * (tokens // self.ratio)

    def prefill_flops(self, tokens: int, encoder_tokens: int = 0) -> int:
        return 2 * self.heads * self.dim * triangle(tokens) // self.ratio

    def on_rank(self, tp: int) -> LayerKind:
        return self  # engines replicate the indexer, its scoring included


@dataclass(frozen=True, slots=True, kw_only=True)
class Compressed(LayerKind):
    """One vector (key and value in one) of ``dim`` numbers for every ``ratio`` tokens (DeepSeek-V4).

    ``sparse_read`` is how many of them a step reads where an indexer picks (None: all). Replicated.
    """

    kind: ClassVar[str] = "compressed"
    context_parallel: ClassVar[bool] = True
    dim: int
    ratio: int
    q_heads: int
    sparse_read: int | None = None

    @property
    def reach_tokens(self) -> int | None:
        return None if self.sparse_read is None else self.sparse_read * self.ratio

    @property
    def tokens_per_entry(self) -> int:
        return self.ratio

    def factors(self) -> tuple[tuple[str, int], ...]:
        return (("numbers a key", self.dim),)

    def sentence(self) -> str:
        return f"keeps one vector for every {self.ratio} tokens"

    def entries(self, tokens: int, encoder_tokens: int = 0) -> int:
        return tokens // self.ratio

    def entry_bytes(self, kv: Dtype) -> int:
        return kv.bytes_for(self.dim)

    def entry_formula(self, kv: Dtype) -> str:
        return _row_formula(kv, self.dim)

    def growth(self, kv: Dtype) -> Fraction:
        return Fraction(self.entry_bytes(kv), self.ratio)

    def _read(self, tokens: int) -> int:
        held = tokens // self.ratio
        return min(held, self.sparse_read or held)

    def read_bytes(self, tokens: int, kv: Dtype, encoder_tokens: int = 0) -> int:
        return self._read(tokens) * self.entry_bytes(kv)

    def decode_flops(self, tokens: int, encoder_tokens: int = 0) -> int:
        return 4 * self.q_heads * self.dim * self._read(tokens)

    def prefill_flops(self, tokens: int, encoder_tokens: int = 0) -> int:
        near = min(tokens, (self.sparse_read or tokens) * self.ratio)
        return 4 * self.q_heads * self.dim * (triangle(near) + (tokens - near) * near) // self.ratio

    def on_rank(self, tp: int) -> LayerKind:
        return replace(self, q_heads=ceil_div(self.q_heads, tp))


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentState(LayerKind):
    """A state of fixed size that each token rewrites: ``heads`` × ``head_elements`` numbers.

    ``form`` is the recurrence (mamba1, mamba2, gdn, kda, lightning, rglru), which engines' kernels and
    so their paging depend on.
    """

    kind: ClassVar[str] = "state"
    fixed_size: ClassVar[bool] = True
    recurrent: ClassVar[bool] = True
    heads: int
    head_elements: int
    form: str
    dtype: Dtype = BF16

    def dtype_of(self, kv: Dtype) -> Dtype:
        return self.dtype

    def factors(self) -> tuple[tuple[str, int], ...]:
        return ("heads", self.heads), ("numbers a head", self.head_elements)

    def sentence(self) -> str:
        return "keeps a state of fixed size, however long the text"

    def entries(self, tokens: int, encoder_tokens: int = 0) -> int:
        return 1

    def entry_bytes(self, kv: Dtype) -> int:
        return self.dtype.bytes_for(self.heads * self.head_elements)

    def entry_formula(self, kv: Dtype) -> str:
        return f"{self.heads} × {self.head_elements} × {self.dtype.factor}"

    def read_bytes(self, tokens: int, kv: Dtype, encoder_tokens: int = 0) -> int:
        return 2 * self.entry_bytes(kv)  # read, then written back

    def decode_flops(self, tokens: int, encoder_tokens: int = 0) -> int:
        # decay, outer-product update and read-out: a multiply and an add for each state element
        return 6 * self.heads * self.head_elements

    def prefill_flops(self, tokens: int, encoder_tokens: int = 0) -> int:
        return self.decode_flops(1) * tokens

    def on_rank(self, tp: int) -> LayerKind:
        return replace(self, heads=ceil_div(self.heads, tp))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvState(LayerKind):
    """The last ``columns`` inputs of a short convolution (kernel − 1 in engines).

    ``channels`` is ((units, width), …): each part is cut over ranks at its units (heads, groups), and
    a part with fewer units than ranks is replicated.
    """

    kind: ClassVar[str] = "conv"
    fixed_size: ClassVar[bool] = True
    recurrent: ClassVar[bool] = True
    channels: tuple[tuple[int, int], ...]
    columns: int
    dtype: Dtype = BF16

    def dtype_of(self, kv: Dtype) -> Dtype:
        return self.dtype

    def factors(self) -> tuple[tuple[str, int], ...]:
        return ("channels", self.width), ("columns", self.columns)

    def sentence(self) -> str:
        return "keeps the last few inputs of a short convolution"

    def entries(self, tokens: int, encoder_tokens: int = 0) -> int:
        return 1

    @property
    def width(self) -> int:
        """Channels of all parts."""
        return sum(units * width for units, width in self.channels)

    def entry_bytes(self, kv: Dtype) -> int:
        return self.dtype.bytes_for(self.width * self.columns)

    def entry_formula(self, kv: Dtype) -> str:
        return f"{self.width} × {self.columns} × {self.dtype.factor}"

    def read_bytes(self, tokens: int, kv: Dtype, encoder_tokens: int = 0) -> int:
        return 2 * self.entry_bytes(kv)

    def decode_flops(self, tokens: int, encoder_tokens: int = 0) -> int:
        return 2 * self.width * (self.columns + 1)

    def prefill_flops(self, tokens: int, encoder_tokens: int = 0) -> int:
        return self.decode_flops(1) * tokens

    def on_rank(self, tp: int) -> LayerKind:
        return replace(self, channels=tuple((ceil_div(u, tp), w) for u, w in self.channels))


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossAttention(HeadedAttention):
    """Keys and values of the encoder's output (or of an image), computed once a request."""

    kind: ClassVar[str] = "cross"
    fixed_size: ClassVar[bool] = True

    def sentence(self) -> str:
        return "keeps the encoder's output, once a request"

    def entries(self, tokens: int, encoder_tokens: int = 0) -> int:
        return encoder_tokens

    def prefill_flops(self, tokens: int, encoder_tokens: int = 0) -> int:
        return self._flops(tokens * encoder_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedCache(LayerKind):
    """Stores nothing: attends to what an earlier layer (``of``) stored."""

    kind: ClassVar[str] = "shared"
    of: LayerKind

    @property
    def reach_tokens(self) -> int | None:
        return self.of.reach_tokens

    def sentence(self) -> str:
        return "keeps nothing: reads what an earlier layer kept"

    def read_bytes(self, tokens: int, kv: Dtype, encoder_tokens: int = 0) -> int:
        return self.of.read_bytes(tokens, kv, encoder_tokens)

    def decode_flops(self, tokens: int, encoder_tokens: int = 0) -> int:
        return self.of.decode_flops(tokens, encoder_tokens)

    def prefill_flops(self, tokens: int, encoder_tokens: int = 0) -> int:
        return self.of.prefill_flops(tokens, encoder_tokens)

    def on_rank(self, tp: int) -> LayerKind:
        return replace(self, of=self.of.on_rank(tp))
