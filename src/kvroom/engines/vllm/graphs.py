"""CUDA graphs: which batch sizes vLLM captures one for, and what the graphs take.

Sources: ``VllmConfig._set_cudagraph_sizes``, ``CUDAGraphDispatcher.initialize_cudagraph_keys`` and
``profile_cudagraph_memory`` of the releases. Up to 0.11 the steps above 256 were of 8 too, which is a dozen
sizes more. A graph's own bytes depend on kernels: a line in the layers, fitted to 107 starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvroom.engines import flags as read
from kvroom.engines.vllm.defaults import Batching, on_v2_runner
from kvroom.engines.vllm.platform import BLACKWELL, HOPPER
from kvroom.engines.vllm.setup import VllmSetup
from kvroom.models.kinds import HeadedAttention, Latent
from kvroom.records import dataclass
from kvroom.sharding.layout import Rank
from kvroom.units import MIB, ceil_div

MOST, MOST_BLACKWELL = 512, 1024
"""The largest batch that is captured by default; the second on data-centre Blackwell, in newer releases."""
MOST_OF = {"gpt_oss": 1024}
"""Models whose own default is another."""
OFF = frozenset(("none", "0", "cudagraphmode.none"))
WHOLE_ONLY = ("full", "full_decode_only")
ROCM_RATIO = 3
"""HIP graphs take so many times what CUDA's do (starts of R9700)."""
SPLITS = 32
"""Parts that FlashAttention 3 splits a decode's keys into, each with an accumulator of its own."""


@dataclass(frozen=True, slots=True)
class Captures:
    """How many graphs are captured of a batch in pieces (attention left out), and of a whole one."""

    pieces: int = 0
    whole: int = 0

    @property
    def count(self) -> int:
        """Graphs in all."""
        return self.pieces + self.whole


def capture_sizes(largest: int) -> list[int]:
    """The batch sizes captured up to ``largest``: 1, 2, 4, then steps of 8, from 256 of 16."""
    ladder = (1, 2, 4, *range(8, 256, 8), *range(256, largest + 1, 16))
    return [n for n in ladder if n <= largest]


def captured(vllm_setup: VllmSetup, batch: Batching) -> list[int]:
    """The sizes captured; none where graphs are off.

    Twice the requests at once, up to a ceiling, where no flag says otherwise; ``compilation_config`` (a
    level, an object or its JSON) holds the same names.
    """
    given = _asked({read.plain_name(key): value for key, value in vllm_setup.d.args.items()})
    if given is None:
        return []
    sizes = given.get("cudagraph_capture_sizes")
    largest = given.get("max_cudagraph_capture_size")
    if sizes is None and (older := given.get("cuda_graph_sizes")) is not None:
        listed = read.counts("engine_args.cuda_graph_sizes", older)
        sizes, largest = (listed, None) if len(listed) > 1 else (None, listed[0])
    if sizes is not None:
        if sizes in ([], "[]", ()):
            return []
        return sorted(set(read.counts("engine_args.cudagraph_capture_sizes", sizes)))
    if largest is not None:
        bound = read.number("engine_args.max_cudagraph_capture_size", largest, 0, 10**6)
        return capture_sizes(min(bound, batch.tokens))
    most = _ceiling(vllm_setup)
    tokens = (
        1
        if vllm_setup.rules.drafted_captures == "none"
        else 1 + vllm_setup.flags.speculative_tokens
    )
    bound = min(2 * batch.sequences * tokens, most)
    made = {
        *capture_sizes(min(bound, batch.tokens)),
        *_decodes(vllm_setup, batch.sequences, bound, most),
    }
    if vllm_setup.rules.batch_captured and batch.tokens <= bound:
        made.add(batch.tokens)
    return sorted(n for n in made if n <= batch.tokens)


def _ceiling(vllm_setup: VllmSetup) -> int:
    usual = vllm_setup.rules.blackwell_captures and vllm_setup.platform.cuda == BLACKWELL
    return MOST_OF.get(vllm_setup.d.model.model_type, MOST_BLACKWELL if usual else MOST)


def _decodes(vllm_setup: VllmSetup, sequences: int, bound: int, most: int) -> list[int]:
    """Sizes of whole decodes that are captured beside the ladder: so many requests with their drafts, or
    all the sequences."""
    tokens = 1 + vllm_setup.flags.speculative_tokens
    if tokens > 1 and vllm_setup.rules.drafted_captures == "by request":
        requests = min(sequences, most)
        return [n * tokens for n in (*capture_sizes(requests), requests) if n * tokens <= bound]
    if tokens == 1 and vllm_setup.rules.sequences_captured and sequences <= bound:
        return [sequences]
    return []


def _asked(args: Mapping[str, Any]) -> dict[str, Any] | None:
    """The settings of graphs; None where they are turned off."""
    level = args.get("compilation_config")
    if isinstance(level, int) or (isinstance(level, str) and level.isdecimal()):
        if int(level) == 0:
            return None
        level = None
    compilation = read.mapping("engine_args.compilation_config", level)
    stated = {key: value for key, value in args.items() if value is not None}
    given = {**{key: value for key, value in compilation.items() if value is not None}, **stated}
    if str(given.get("cudagraph_mode", "")).lower() in OFF or given.get("use_cudagraph") is False:
        return None
    return given


def captures(vllm_setup: VllmSetup, batch: Batching) -> Captures:
    """The graphs of a start; none where they are off, or the device has none."""
    if vllm_setup.flags.eager or not vllm_setup.platform.graphs:
        return Captures()
    args = {read.plain_name(key): value for key, value in vllm_setup.d.args.items()}
    tokens = 1 + vllm_setup.flags.speculative_tokens
    sizes = captured(vllm_setup, batch)
    mode = (
        str((_asked(args) or {}).get("cudagraph_mode", "")).lower().removeprefix("cudagraphmode.")
    )
    # A decode verifies every draft: its sizes are multiples of a request's tokens.
    whole = {n for n in (ceil_div(size, tokens) * tokens for size in sizes) if n <= max(sizes)}
    if tokens > 1 and vllm_setup.rules.whole_graphs and not on_v2_runner(vllm_setup):
        sizes = sorted(whole)
    decodes = sum(1 for n in whole if n <= batch.sequences * tokens)
    if vllm_setup.first_engine or mode in WHOLE_ONLY:
        return Captures(whole=decodes)
    if mode == "piecewise" or not vllm_setup.rules.whole_graphs:
        return Captures(pieces=len(sizes))
    return Captures(pieces=len(sizes), whole=decodes)


def graph_bytes(vllm_setup: VllmSetup, rank: Rank, captures: Captures) -> tuple[int, int, int]:
    """(bytes, low, high) of the graphs as they come to be."""
    layers = len(rank.layers)
    if vllm_setup.first_engine:
        each = 5.0
    elif _wide(vllm_setup, rank):
        each = 8 + 0.13 * layers
    else:
        each = 3.8 + 0.147 * layers
    if vllm_setup.platform.hip:
        each *= ROCM_RATIO
    size = round(captures.count * each * MIB)
    return size, round(0.7 * size), round(1.5 * size)


def estimated_bytes(vllm_setup: VllmSetup, rank: Rank, captures: Captures) -> tuple[int, int, int]:
    """(bytes, low, high) of what the engine itself takes off its cache for them: the first graph of each
    kind as measured, and as much for every other as the next one took."""
    if not captures.count:
        return 0, 0, 0
    size = (captures.count - 1) * _each(vllm_setup, rank) + _accumulators(
        vllm_setup, rank, captures
    )
    return size, round(0.85 * size), round(1.25 * size)


def _wide(vllm_setup: VllmSetup, rank: Rank) -> bool:
    """Whether a graph holds the many kernels of latent attention or of routed experts."""
    return vllm_setup.experts or any(isinstance(kind, Latent) for kind, _ in rank.stores)


def _each(vllm_setup: VllmSetup, rank: Rank) -> int:
    """Bytes by which a graph more is estimated: kernels' arguments and what each layer keeps for it."""
    layers = len(rank.layers)
    return round((0.8 + 0.245 * layers if _wide(vllm_setup, rank) else 1.2 + 0.16 * layers) * MIB)


def _accumulators(vllm_setup: VllmSetup, rank: Rank, captures: Captures) -> int:
    """FlashAttention 3's accumulators of the largest decode, which only the first whole graph takes."""
    if vllm_setup.platform.cuda != HOPPER or not captures.whole:
        return 0
    heads = [
        (kind.q_heads, kind.v_dim) for kind, _ in rank.stores if isinstance(kind, HeadedAttention)
    ]
    return max((MOST * n * (v + 1) * 4 * SPLITS for n, v in heads), default=0)
