"""What lies beside PyTorch's own memory: the driver's context, NCCL, the buffers of collectives.

vLLM takes a snapshot of free memory as it starts and again after its profiling run; what went in between
and is not PyTorch's is "non-torch" memory, inside its share. Where the snapshot comes after the process
groups (since 0.11), context and NCCL's first buffers lie *outside* the share and bound it: less than the
share may be free by then.

Buffers whose code states their size are reckoned (custom and FlashInfer all-reduce). The rest, NCCL's
lazily made channels above all, is the median of starts of the same kind, with the band that they show.
Sources: ``gpu_worker.init_device``, ``MemorySnapshot``, ``CustomAllreduce`` and ``AllReduceFusionPass`` of
the releases, FlashInfer's workspace sizes; 195 starts that people published.
"""

from __future__ import annotations

from kvroom.engines.vllm.platform import BLACKWELL, HOPPER
from kvroom.engines.vllm.setup import VllmSetup
from kvroom.units import GIB, MIB

Band = tuple[int, int, int]
"""(estimate, low, high) in bytes."""

CUSTOM_ALL_REDUCE = 2 * 8 * MIB
FUSED_TOKENS = {
    (HOPPER, 2): 64 * MIB,
    (HOPPER, 4): 2 * MIB,
    (HOPPER, 8): MIB // 2,
    (BLACKWELL, 2): 64 * MIB,
    (BLACKWELL, 4): 32 * MIB,
    (BLACKWELL, 8): MIB,
}
"""Most bytes that FlashInfer's fused all-reduce takes in one call, by generation and tensor ranks."""
FUSED_ULTRA = {2: 64 * MIB, 4: 64 * MIB, 8: 4 * MIB}
"""The same on compute capability 10.3."""
FUSED_COPIES = 4


def non_torch(vllm_setup: VllmSetup) -> Band:
    """Bytes of one GPU inside the share that are not PyTorch's."""
    platform = vllm_setup.platform
    if platform.tpu:
        return _gib(0.05, 0.0, 0.3)
    if platform.cuda == 0 and not platform.hip:
        return _gib(0.3, 0.05, 1.5)
    if platform.hip:
        return _rocm(vllm_setup)
    if platform.unified:  # what else runs there takes of the same memory while it is measured
        return _gib(2.6, 1.2, 4.6)
    return (
        _alone(vllm_setup)
        if vllm_setup.d.layout.tp == 1 and vllm_setup.d.layout.dp == 1
        else _together(vllm_setup)
    )


def outside(vllm_setup: VllmSetup) -> Band:
    """Bytes of one GPU that are gone before the engine's snapshot: no part of its share."""
    platform, layout = vllm_setup.platform, vllm_setup.d.layout
    if not vllm_setup.rules.start_snapshot or vllm_setup.first_engine:
        return 0, 0, 0
    if platform.hip:
        return _gib(0.5, 0.25, 1.2)
    if platform.cuda == 0 or platform.unified:
        return 0, 0, 0
    context = _gib(0.51, 0.4, 0.6) if platform.cuda >= HOPPER else _gib(0.4, 0.2, 0.55)
    if vllm_setup.rules.groups_inside or layout.gpus == 1:
        return context
    if not vllm_setup.linked:
        return _add(context, _gib(0.2, 0.05, 0.6))
    if layout.tp * layout.dp == 1:  # pipeline stages alone
        return _add(context, _gib(0.94, 0.8, 1.0))
    if vllm_setup.experts:
        return _add(context, _gib(1.51, 1.4, 1.6))
    return _add(context, _gib(1.01, 0.9, 1.1))


def _alone(vllm_setup: VllmSetup) -> Band:
    """One tensor rank."""
    if vllm_setup.first_engine:
        return _gib(1.79, 1.4, 2.2) if vllm_setup.release < (0, 6, 6) else _gib(0.1, 0.01, 0.25)
    if vllm_setup.d.layout.pp > 1:
        return _gib(0.07, 0.03, 0.3)
    if vllm_setup.rules.sorted_sampling:
        return _gib(0.14, 0.07, 0.2)
    if vllm_setup.platform.cuda < HOPPER:
        return _gib(0.15, 0.05, 0.26)
    if not vllm_setup.rules.graphs_subtracted:
        return _gib(0.25, 0.24, 0.28)
    return _gib(0.36, 0.23, 0.5)


def _together(vllm_setup: VllmSetup) -> Band:
    """Several tensor ranks, or replicas that step together."""
    tp, rules = vllm_setup.d.layout.tp, vllm_setup.rules
    if vllm_setup.first_engine:
        return _gib(3.58, 2.8, 4.5) if vllm_setup.release < (0, 6, 6) else _gib(1.54, 0.4, 2.6)
    if rules.groups_inside:
        return _gib(2.2, 1.7, 2.8) if vllm_setup.linked else _gib(0.5, 0.1, 0.9)
    if not vllm_setup.linked:
        return _gib(0.15, 0.05, 0.3)
    if rules.sorted_sampling:
        return _gib(0.53, 0.47, 0.65)
    reckoned = fused_all_reduce(vllm_setup) + CUSTOM_ALL_REDUCE
    if not rules.graphs_subtracted:
        rest = _gib(1.55, 1.45, 1.7) if tp <= 2 else _gib(2.12, 1.95, 2.25)
    elif vllm_setup.platform.cuda == BLACKWELL:
        rest = _gib(0.6, 0.4, 1.9) if tp <= 2 else _gib(1.9, 1.5, 2.1)
    else:
        rest = _gib(0.62, 0.4, 0.9) if tp <= 2 else _gib(0.78, 0.5, 1.0)
    return _add((reckoned, reckoned, reckoned), rest)


def fused_all_reduce(vllm_setup: VllmSetup) -> int:
    """FlashInfer's workspace for an all-reduce fused with the norm behind it."""
    layout, major = vllm_setup.d.layout, vllm_setup.platform.cuda
    if not vllm_setup.rules.fused_all_reduce or layout.pp > 1 or layout.dp > 1:
        return 0
    most = FUSED_TOKENS.get((major, layout.tp), 0)
    if major == BLACKWELL and vllm_setup.platform.minor == 3:
        most = FUSED_ULTRA.get(layout.tp, most)
    return FUSED_COPIES * layout.tp * most


def _rocm(vllm_setup: VllmSetup) -> Band:
    """By release: what kernels are built with differs, and so does what they set aside."""
    if vllm_setup.rules.rocm_settled:
        return _gib(0.61, 0.42, 0.8) if vllm_setup.d.layout.tp == 1 else _gib(0.5, 0.35, 0.9)
    return _gib(2.2, 0.8, 3.3)


def _add(*bands: Band) -> Band:
    middle = sum(band[0] for band in bands)
    low = middle - sum(band[0] - band[1] for band in bands)
    high = middle + sum(band[2] - band[0] for band in bands)
    return middle, low, high


def _gib(middle: float, low: float, high: float) -> Band:
    return round(middle * GIB), round(low * GIB), round(high * GIB)
