"""What a step moves and computes: bytes and FLOPs of a decode step and of a prefill.

A decode step reads every weight that it uses once, whatever the batch, and every request's cache. So
weights are shared by the batch and cache is not: past the crossover batch, cache outweighs weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import cached_property

from kvroom.answer.plan import StepBytes
from kvroom.hardware.device import Device
from kvroom.models.dtypes import Dtype
from kvroom.models.spec import ModelSpec
from kvroom.records import dataclass
from kvroom.sharding.layout import Layout, Rank
from kvroom.units import smallest

ACTIVATION_BYTES = 2
"""Activations travel as 16-bit numbers."""
MAX_BATCH = 2**40


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """A model in a layout: what its steps move (bytes summed over all GPUs) and compute.

    ``drafted`` tokens of each request are verified beside the next one; ``draft`` is the traffic of one
    pass of what drafts them, if anything on the GPU does.
    """

    model: ModelSpec
    layout: Layout
    ranks: Sequence[Rank]
    kv: Dtype
    encoder_tokens: int = 0
    drafted: int = 0
    draft: Traffic | None = None

    def weight_bytes(self, batch: float) -> int:
        """Weights that a decode step of ``batch`` requests reads.

        Of E routed experts, of which a token uses k, a batch of B tokens is expected to touch
        E·(1 − (1 − k/E)^B) when routing is even.
        """
        # Experts that replicas share serve the tokens of all of them.
        meeting = batch / self.layout.dp * self.layout.expert_replicas
        tokens = (1 + self.drafted) * meeting
        read = 0.0
        for rank in self.ranks:
            read += rank.read_bytes
            for size, count, active in rank.experts:
                read += size * (1 - (1 - active / count) ** tokens)
        return round(read * self.layout.tp * self.layout.dp)

    def request_bytes(self, tokens: int) -> tuple[int, int]:
        """(cache, state) bytes that one request of ``tokens`` makes a decode step move."""
        cache = state = 0
        for rank in self.ranks:
            c, s = rank.cache_read_bytes(tokens, self.kv, self.encoder_tokens)
            cache, state = cache + c, state + s
        return cache * self.layout.tp, state * self.layout.tp

    def step_bytes(self, batch: int, tokens: int) -> StepBytes:
        """What a decode step of ``batch`` requests at ``tokens`` tokens each moves, drafting included."""
        cache, state = self.request_bytes(tokens)
        own = StepBytes(
            weights=self.weight_bytes(batch),
            kv=batch * cache,
            state=batch * state,
            activations=batch * (1 + self.drafted) * self._activation_bytes,
            links=batch * (1 + self.drafted) * self._link_bytes(),
        )
        if self.draft is None:
            return own
        one = self.draft.step_bytes(batch, tokens)
        return StepBytes(
            **{
                field.name: getattr(own, field.name) + self.drafted * getattr(one, field.name)
                for field in fields(StepBytes)
            }
        )

    @cached_property
    def _activation_bytes(self) -> int:
        """Each matrix reads its input and writes its output; a token also looks its vector up."""
        widths = sum(
            (tensor.rows + tensor.columns) * (tensor.active or tensor.count) * layer.count
            for layer in self.model.layers
            for tensor in layer.layer.tensors
            if tensor.is_matrix
        )
        widths += sum(t.rows + t.columns for t in self.model.head if t.is_matrix)
        widths += 2 * self.model.hidden_size
        return widths * ACTIVATION_BYTES

    @cached_property
    def _expert_hops(self) -> int:
        """Experts that a token visits, over all layers."""
        return sum(
            max(
                (tensor.active for tensor in layer.layer.tensors if tensor.part == "expert"),
                default=0,
            )
            * layer.count
            for layer in self.model.layers
        )

    @cached_property
    def _expert_layers(self) -> int:
        """Layers with routed experts."""
        return sum(
            layer.count
            for layer in self.model.layers
            if any(tensor.part == "expert" for tensor in layer.layer.tensors)
        )

    def _link_bytes(self) -> int:
        """What one token sends between GPUs.

        Two all-reduces a layer over tensor ranks (a ring sends 2·(n − 1)/n of the vector from each
        of n ranks), one hand-over a stage, what context-parallel ranks exchange of queries and outputs
        (each its share to every other), and a dispatch and a combine of the vector to each of k
        experts where those lie on other ranks.
        """
        vector = self.model.hidden_size * ACTIVATION_BYTES
        tp, ep = self.layout.tp, self.layout.ep
        sent = 2 * 2 * (tp - 1) * vector * self.model.num_layers
        sent += (self.layout.pp - 1) * tp * vector
        numbers = sum(rank.exchanges()[1] for rank in self.ranks)
        sent += numbers * ACTIVATION_BYTES * tp
        if ep > 1:
            sent += 2 * self._expert_hops * vector * (ep - 1) // ep
        elif self.layout.expert_dp > 1:
            # every rank gathers all tokens for its slice of each expert, and the slices are summed
            sent += 2 * self._expert_layers * vector * (self.layout.expert_dp - 1)
        return sent

    def decode_flops(self, batch: int, tokens: int) -> int:
        """Floating-point operations of a decode step: a multiply and an add for each weight used,
        and the attention over what each request holds; of all tokens drafted and verified."""
        attention = sum(
            kind.decode_flops(tokens, self.encoder_tokens) * count
            for kind, count in self.model.stores
        )
        own = batch * (1 + self.drafted) * (2 * self._matrix_params() + attention)
        if self.draft is None:
            return own
        return own + self.drafted * self.draft.decode_flops(batch, tokens)

    def prefill_flops(self, tokens: int) -> int:
        """Floating-point operations of a prompt of ``tokens`` tokens (its last one sampled)."""
        attention = sum(
            kind.prefill_flops(tokens, self.encoder_tokens) * count
            for kind, count in self.model.stores
        )
        head = self._head_params()
        return 2 * ((self._matrix_params() - head) * tokens + head) + attention

    def _head_params(self) -> int:
        if self.model.tied:
            return self.model.vocab_size * self.model.hidden_size
        return sum(t.elements for t in self.model.head if t.is_matrix)

    def _matrix_params(self) -> int:
        used = sum(
            tensor.rows * tensor.columns * (tensor.active or tensor.count) * layer.count
            for layer in self.model.layers
            for tensor in layer.layer.tensors
            if tensor.is_matrix
        )
        return used + self._head_params()

    def crossover_batch(self, tokens: int) -> int | None:
        """The smallest batch whose cache and state outweigh the weights that its step reads.

        None where a request moves nothing.
        """
        each = sum(self.request_bytes(tokens))
        if not each:
            return None
        return smallest(lambda b: b * each >= self.weight_bytes(b), MAX_BATCH)


def compute_dtype(weights: Dtype, device: Device) -> str:
    """The width that the matrices of a step are multiplied in.

    Floating 8- and 4-bit weights use the card's own units for their width where it has any; others, and
    integer ones, are widened to 16 bits first.
    """
    if weights.name.startswith("fp8") and device.flops("fp8"):
        return "fp8"
    if weights.name in ("nvfp4", "mxfp4"):
        return "fp4" if device.flops("fp4") else "bf16"
    return "bf16"
