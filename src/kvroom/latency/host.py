"""Bytes in host memory, and the rate at which a step gets them from there.

The host's own cores compute what lies in its memory: a step waits for its bytes at that memory's rate,
or for their arithmetic. From ``STREAMED_FROM`` tokens on the weights are copied to the GPU instead
where that is quicker (llama.cpp's op offload, ``ggml_backend_cuda_device_offload_op``: batches of 32
and more). An engine whose GPU reads host memory itself (vLLM's ``cpu_offload_gb``) gets all of them
over the link.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, exp, log1p

from kvroom.models.dtypes import Dtype
from kvroom.models.kinds import LayerKind
from kvroom.records import dataclass

STREAMED_FROM = 32
"""Tokens in a step from which weights are copied to the GPU."""
FLOPS_PER_BYTE = 15.0
"""Arithmetic of the host's cores for each byte of its memory's traffic: a desktop of 16 cores multiplies
about 1.2e12 numbers of narrowed weights a second beside 80 GB/s, a server of two sockets in proportion."""
HOST_SHARE = 0.6
"""Of the memory's rate, what the host's cores reach as they multiply."""
HANDOVER_S = 130e-6
"""A layer whose work passes from the GPU to the host and back: copies, and threads that wait for each other.
Both are fitted over all rows of ``tests/golden/host_memory.json`` at once."""


SPREAD = 0.25
"""Half width (a logarithm) by which 80 % of those rows lie within what is reckoned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReads:
    """What a step of one replica reads in host memory.

    ``dense_bytes`` of weights whatever the batch; ``experts`` are (bytes, how many a layer has, how many a
    token uses); ``params`` a token is multiplied with there; ``stores`` the cache; ``layers`` with any of it.
    ``computed``: by the
    host's cores, else the GPU reads it over the link.
    """

    dense_bytes: float
    experts: tuple[tuple[float, int, int], ...]
    params: float
    stores: tuple[tuple[LayerKind, int], ...]
    kv: Dtype
    encoder_tokens: int
    bytes_per_s: float
    link_bytes_per_s: float
    layers: int = 0
    computed: bool = True
    batch_tokens: int = 512

    def part(self, parts: int) -> HostReads:
        """One of so many equal parts, each read by another stage of a pipeline."""
        return replace(
            self,
            dense_bytes=self.dense_bytes / parts,
            experts=tuple((size / parts, n, k) for size, n, k in self.experts),
            params=self.params / parts,
            layers=ceil(self.layers / parts),
        )

    def weights_s(self, tokens: float, chunks: float = 1.0) -> float:
        """Seconds that a step of ``tokens`` tokens, computed in ``chunks``, waits for weights there."""
        passes = max(chunks, ceil(tokens / self.batch_tokens)) if self.computed else chunks
        each = tokens / passes
        scattered = sum(
            size * (1 - exp(each * log1p(-k / n)) if k < n else 1.0) for size, n, k in self.experts
        )
        streamed = (self.dense_bytes + scattered) / self.link_bytes_per_s
        if not self.computed:
            return passes * streamed
        read = (self.dense_bytes + scattered) / (HOST_SHARE * self.bytes_per_s)
        there = max(read, 2 * self.params * each / (FLOPS_PER_BYTE * self.bytes_per_s))
        there += self.layers * HANDOVER_S
        return passes * (min(there, streamed) if each >= STREAMED_FROM else there)

    def cache_bytes(self, tokens: int) -> float:
        """Cache there that a request of ``tokens`` makes a step read."""
        return sum(
            kind.read_bytes(tokens, self.kv, self.encoder_tokens) * count
            for kind, count in self.stores
        )
