"""The peak of vLLM's profiling run: what a dummy batch takes beside weights and cache.

The engine runs ``max_num_batched_tokens`` through the model, samples ``max_num_seqs`` of them, and reads
PyTorch's peak. Two moments compete: a layer at work on the whole batch, and the sampler, whose logits are
gathered on every tensor rank. What the mixture of experts keeps for its kernels lives through both.

Sources: ``profile_run``, ``_dummy_run``, ``_dummy_sampler_run`` of the model runners, ``Sampler``,
``TopKTopPSampler`` and the workspace manager of the releases, held against starts that print the peak.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvroom.engines.vllm.defaults import Batching, on_v2_runner
from kvroom.engines.vllm.platform import HOPPER
from kvroom.engines.vllm.setup import VllmSetup
from kvroom.models.kinds import Latent
from kvroom.models.spec import Layer
from kvroom.models.tensors import Tensor
from kvroom.records import dataclass
from kvroom.sharding.layout import Layout, Rank, shape_on_rank
from kvroom.units import MIB, ceil_div

CUBLAS_BYTES = {True: 32 * MIB, False: 8 * MIB + 128 * 1024}
"""cuBLAS's workspace: on Hopper and later, and before."""
SORTING = 38
"""Bytes a logit while the whole vocabulary is sorted: 2 as computed, 4 in fp32, 4 + 8 sorted, 20 of the
sort's own (the last from starts that print the peak)."""
SELECTING = 14
"""Without a sort: 2, then 4 each in fp32, as probabilities and as noise."""
PLAIN = 2
"""The V2 model runner's dummy run: logits alone."""
FEWEST_SELECTED = 8
"""Below so many sequences the whole vocabulary is sorted in every release."""
HIDDEN = 8
"""Bytes a number of the hidden vector while a layer works: it, the residual, its norm, the output."""
HANDED_ON = 4
"""And what a pipeline stage hands to the next: hidden and residual."""
TRTLLM_EXPERTS = 28
"""Bytes a token and hidden number that FlashInfer's TRT-LLM experts take (NVFP4; three starts of
32,768 to 65,536 tokens)."""
NARROW_BITS = 8


@dataclass(frozen=True, slots=True)
class Peak:
    """``working``: the most that comes and goes; ``kept``: what lives as long as the engine."""

    working: int
    kept: int

    @property
    def bytes(self) -> int:
        """Both at once."""
        return self.working + self.kept


@dataclass(frozen=True, slots=True)
class Width:
    """Numbers a token that one layer holds at once on a rank beside the hidden vector.

    ``dense`` of its widest plain part (what goes in at each side of its activation), ``narrowed`` of
    that once more in 8 bits; ``workspaces`` of its routed experts' two buffers; ``experts`` is how wide
    their weights are.
    """

    dense: int
    narrowed: int
    workspaces: int
    experts: str


def peak(vllm_setup: VllmSetup, rank: Rank, batch: Batching) -> Peak:
    """The profiling run's peak on ``rank``. On a TPU nothing runs before the cache is cut: the share less
    what the loaded model uses is the cache (tpu-inference, "Memory statistics")."""
    if vllm_setup.platform.tpu:
        return Peak(0, 0)
    number = vllm_setup.number_bytes
    hidden = vllm_setup.d.model.hidden_size
    tokens = batch.tokens
    cublas = (
        0 if vllm_setup.platform.cuda == 0 else CUBLAS_BYTES[vllm_setup.platform.cuda >= HOPPER]
    )
    widths = list(_widths(vllm_setup, rank))
    kept = max((_kept(vllm_setup, width, tokens) for width in widths), default=0)
    layer = max((_layer(vllm_setup, width, tokens) for width in widths), default=0)
    forward = layer + HIDDEN * tokens * hidden * number // 2 + cublas
    last = rank.stage == vllm_setup.d.layout.pp - 1
    if not last:
        forward += HANDED_ON * tokens * hidden * number // 2
    working = forward
    if last and vllm_setup.d.model.generates:
        logits, buffer = sampler(vllm_setup, batch)
        held = (2 * tokens + 4 * min(batch.sequences, tokens)) * hidden * number // 2
        working = max(forward, logits + held + cublas + buffer)
    return Peak(working, kept)


def sampler(vllm_setup: VllmSetup, batch: Batching) -> tuple[int, int]:
    """(bytes of logits in every shape they take, bytes of the selection's own buffer)."""
    vocabulary = vllm_setup.d.model.vocab_size
    rows = min(batch.sequences, batch.tokens)
    wide = vllm_setup.number_bytes - 2  # logits computed in fp32
    if on_v2_runner(vllm_setup) and not vllm_setup.rules.v2_selects:
        return (PLAIN + wide) * rows * vocabulary, 0
    if vllm_setup.rules.sorted_sampling or (
        rows < FEWEST_SELECTED and not on_v2_runner(vllm_setup)
    ):
        return (SORTING + wide) * rows * vocabulary, 0
    buffer = 0
    if vllm_setup.rules.selection_buffer:
        power = 1 << (rows - 1).bit_length()
        buffer = 4 * vocabulary * min(vllm_setup.platform.multiprocessors, power)
    return (SELECTING + wide) * rows * vocabulary, buffer


def _kept(vllm_setup: VllmSetup, width: Width, tokens: int) -> int:
    """The experts' workspaces where a manager keeps them: those of the Triton kernels."""
    if not vllm_setup.rules.workspaces_kept or width.experts not in ("wide", "fp8"):
        return 0
    return 2 * width.workspaces * tokens * vllm_setup.gathered


def _layer(vllm_setup: VllmSetup, width: Width, tokens: int) -> int:
    """A layer at work, its hidden vectors apart."""
    dense = vllm_setup.number_bytes * width.dense * tokens + width.narrowed * tokens
    if not width.experts or _kept(vllm_setup, width, tokens):
        return dense
    if width.experts == "nvfp4" and vllm_setup.platform.cuda > HOPPER:
        own = TRTLLM_EXPERTS - HIDDEN
        return max(dense, own * tokens * vllm_setup.d.model.hidden_size)
    return max(dense, 2 * width.workspaces * tokens * vllm_setup.gathered)


def _widths(vllm_setup: VllmSetup, rank: Rank) -> Iterator[Width]:
    """The Width of each kind of layer that ``rank`` holds."""
    first = 0
    for run in vllm_setup.d.model.layers:
        here = range(max(first, rank.layers.start), min(first + run.count, rank.layers.stop))
        if here:
            yield _width(vllm_setup, run.layer, here.start)
        first += run.count


def _width(vllm_setup: VllmSetup, layer: Layer, index: int) -> Width:
    layout, hidden = vllm_setup.d.layout, vllm_setup.d.model.hidden_size
    rule = vllm_setup.d.weights.quantisation
    dense = narrowed = 0
    latent = any(isinstance(kind, Latent) for kind in layer.stores)
    for part in ("mlp", "shared_expert", "attention", "state"):
        if part == "attention" and latent:
            continue  # a prompt's keys and values are expanded in chunks of their own
        tensors = [tensor for tensor in layer.tensors if tensor.part == part and tensor.is_matrix]
        numbers, inner = _in_and_out(tensors, layout)
        dense = max(dense, numbers + inner)
        if part in ("mlp", "shared_expert") and any(
            _eight_bits(rule.dtype_of(tensor, index).name) for tensor in tensors
        ):
            narrowed = max(narrowed, inner)
    workspaces, experts = 0, ""
    for tensor in layer.tensors:
        if tensor.part != "expert" or not tensor.is_matrix:
            continue
        inner = ceil_div(
            tensor.rows if tensor.columns == hidden else tensor.columns, layout.expert_cut
        )
        both = max(inner, hidden) + max(2 * inner, hidden)
        workspaces = max(workspaces, tensor.active * both)
        dtype = rule.dtype_of(tensor, index)
        experts = (
            "wide" if dtype.bits > NARROW_BITS
            else "fp8" if dtype.bits == NARROW_BITS
            else "nvfp4" if dtype.name.startswith("nvfp4")
            else "four"
        )  # fmt: skip
    return Width(dense, narrowed, workspaces, experts)


def _in_and_out(tensors: list[Tensor], layout: Layout) -> tuple[int, int]:
    """Numbers a token that a part's first matrices give on a rank, and that its last one takes."""
    given = taken = 0
    for tensor in tensors:
        rows, columns, _ = shape_on_rank(tensor, layout)
        if tensor.split in ("column", "kv"):
            given += rows
        elif tensor.split == "row":
            taken = max(taken, columns)
    return given, taken


def _eight_bits(name: str) -> bool:
    """Whether matrices of that width take their inputs in 8 bits, narrowed as they come."""
    return name.startswith(("fp8", "int8", "mxfp8"))
