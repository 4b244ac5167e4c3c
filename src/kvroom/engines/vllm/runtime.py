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


def non_torch(s: VllmSetup) -> Band:
    """Bytes of one GPU inside the share that are not PyTorch's."""
    p = s.platform
    if p.tpu:
        return _gib(0.05, 0.0, 0.3)
    if p.cuda == 0 and not p.hip:
        return _gib(0.3, 0.05, 1.5)
    if p.hip:
        return _rocm(s)
    if p.unified:  # what else runs there takes of the same memory while it is measured
        return _gib(2.6, 1.2, 4.6)
    return _alone(s) if s.d.layout.tp == 1 and s.d.layout.dp == 1 else _together(s)


def outside(s: VllmSetup) -> Band:
    """Bytes of one GPU that are gone before the engine's snapshot: no part of its share."""
    p, layout = s.platform, s.d.layout
    if not s.rules.start_snapshot or s.first_engine:
        return 0, 0, 0
    if p.hip:
        return _gib(0.5, 0.25, 1.2)
    if p.cuda == 0 or p.unified:
        return 0, 0, 0
    context = _gib(0.51, 0.4, 0.6) if p.cuda >= HOPPER else _gib(0.4, 0.2, 0.55)
    if s.rules.groups_inside or layout.gpus == 1:
        return context
    if not s.linked:
        return _add(context, _gib(0.2, 0.05, 0.6))
    if layout.tp * layout.dp == 1:  # pipeline stages alone
        return _add(context, _gib(0.94, 0.8, 1.0))
    if s.experts:
        return _add(context, _gib(1.51, 1.4, 1.6))
    return _add(context, _gib(1.01, 0.9, 1.1))


def _alone(s: VllmSetup) -> Band:
    """One tensor rank."""
    if s.first_engine:
        return _gib(1.79, 1.4, 2.2) if s.release < (0, 6, 6) else _gib(0.1, 0.01, 0.25)
    if s.d.layout.pp > 1:
        return _gib(0.07, 0.03, 0.3)
    if s.rules.sorted_sampling:
        return _gib(0.14, 0.07, 0.2)
    if s.platform.cuda < HOPPER:
        return _gib(0.15, 0.05, 0.26)
    if not s.rules.graphs_subtracted:
        return _gib(0.25, 0.24, 0.28)
    return _gib(0.36, 0.23, 0.5)


def _together(s: VllmSetup) -> Band:
    """Several tensor ranks, or replicas that step together."""
    tp, rules = s.d.layout.tp, s.rules
    if s.first_engine:
        return _gib(3.58, 2.8, 4.5) if s.release < (0, 6, 6) else _gib(1.54, 0.4, 2.6)
    if rules.groups_inside:
        return _gib(2.2, 1.7, 2.8) if s.linked else _gib(0.5, 0.1, 0.9)
    if not s.linked:
        return _gib(0.15, 0.05, 0.3)
    if rules.sorted_sampling:
        return _gib(0.53, 0.47, 0.65)
    reckoned = fused_all_reduce(s) + CUSTOM_ALL_REDUCE
    if not rules.graphs_subtracted:
        rest = _gib(1.55, 1.45, 1.7) if tp <= 2 else _gib(2.12, 1.95, 2.25)
    elif s.platform.cuda == BLACKWELL:
        rest = _gib(0.6, 0.4, 1.9) if tp <= 2 else _gib(1.9, 1.5, 2.1)
    else:
        rest = _gib(0.62, 0.4, 0.9) if tp <= 2 else _gib(0.78, 0.5, 1.0)
    return _add((reckoned, reckoned, reckoned), rest)


def fused_all_reduce(s: VllmSetup) -> int:
    """FlashInfer's workspace for an all-reduce fused with the norm behind it."""
    layout, major = s.d.layout, s.platform.cuda
    if not s.rules.fused_all_reduce or layout.pp > 1 or layout.dp > 1:
        return 0
    most = FUSED_TOKENS.get((major, layout.tp), 0)
    if major == BLACKWELL and s.platform.minor == 3:
        most = FUSED_ULTRA.get(layout.tp, most)
    return FUSED_COPIES * layout.tp * most


def _rocm(s: VllmSetup) -> Band:
    """By release: what kernels are built with differs, and so does what they set aside."""
    if s.rules.rocm_settled:
        return _gib(0.61, 0.42, 0.8) if s.d.layout.tp == 1 else _gib(0.5, 0.35, 0.9)
    return _gib(2.2, 0.8, 3.3)


def _add(*bands: Band) -> Band:
    middle = sum(b[0] for b in bands)
    low = middle - sum(b[0] - b[1] for b in bands)
    high = middle + sum(b[2] - b[0] for b in bands)
    return middle, low, high


def _gib(middle: float, low: float, high: float) -> Band:
    return round(middle * GIB), round(low * GIB), round(high * GIB)
