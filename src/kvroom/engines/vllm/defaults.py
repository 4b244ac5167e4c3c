"""Scheduler defaults: tokens and sequences a batch, and how many batches are in flight.

Those of the API server (``vllm serve``), or of the offline ``LLM`` class where ``usage_context`` says
so. Source: ``EngineArgs.get_batch_defaults`` and ``VllmConfig.max_concurrent_batches`` of the releases.
"""

from __future__ import annotations

from kvroom.engines.start_rules import Against
from kvroom.engines.vllm.setup import VllmSetup
from kvroom.records import dataclass
from kvroom.units import GIB

FIRST_CHUNKED = 32_768
"""The first engine cuts prompts into chunks only where requests may be longer than that."""
LARGEST_ITEM = {"gemma4": 2496}
"""Tokens of the largest image or video of models that attend to it both ways: a batch holds one."""

SYNC_ONLY = ("ngram",)
"""Drafts that are looked up on the CPU once a step is done: the next is not scheduled before."""


@dataclass(frozen=True, slots=True)
class Batching:
    """``tokens`` of one batch at most, ``sequences`` at once, ``batches`` in flight that windows keep;
    ``asynchronous``: the next is scheduled before the output of the last is there; ``spreads``: a request of
    a pipeline decodes in every so many steps."""

    tokens: int
    sequences: int
    batches: int
    asynchronous: bool
    spreads: bool

    @property
    def in_flight_tokens(self) -> int:
        """Tokens that may be scheduled and not yet settled."""
        return self.tokens * self.batches


def batching(setup: VllmSetup) -> Batching:
    """What the scheduler works with: the flags, else the defaults of this release and device."""
    flags, rules = setup.flags, setup.rules
    tokens, sequences = _defaults(setup)
    if flags.performance == "throughput":
        tokens, sequences = 2 * tokens, 2 * sequences
    if flags.sequences is not None:
        sequences = flags.sequences
    if flags.batch_tokens is not None:
        tokens = flags.batch_tokens
    else:
        if not flags.chunked_prefill:
            tokens = max(tokens, setup.context)
        tokens = max(
            tokens, LARGEST_ITEM.get(setup.d.model.model_type, 0) if setup.d.model.beside else 0
        )
        if rules.batch_capped:
            tokens = min(tokens, sequences * setup.context)
    if flags.sequences is None and rules.sequences_capped:
        sequences = min(sequences, tokens)
    batches = _batches(setup) if rules.in_flight_batches else 1
    spreads = rules.decodes_spread and _v2_by_default(setup)
    return Batching(tokens, sequences, batches, _asynchronous(setup), spreads)


def batch_refusal(setup: VllmSetup, batching: Batching) -> Against | None:
    """Why the scheduler's configuration would be refused (``SchedulerConfig``'s own checks)."""
    if setup.flags.sequences is not None and batching.tokens < batching.sequences:
        return Against(
            f"max_num_batched_tokens {batching.tokens:,} is less than max_num_seqs {batching.sequences:,}",
            f"max_num_seqs={batching.tokens}, or max_num_batched_tokens={batching.sequences}",
            {"max_num_seqs": batching.tokens},
        )
    if (
        not setup.flags.chunked_prefill
        and not setup.flags.auto_fit
        and batching.tokens < setup.context
    ):
        return Against(
            f"max_num_batched_tokens {batching.tokens:,} is less than max_model_len {setup.context:,}, and "
            "chunked prefill is off",
            f"max_num_batched_tokens={setup.context}, or leave enable_chunked_prefill on",
            {"max_num_batched_tokens": setup.context},
        )
    return None


def _defaults(setup: VllmSetup) -> tuple[int, int]:
    rules, platform, layout = setup.rules, setup.platform, setup.d.layout
    if setup.first_engine:
        short = setup.context <= FIRST_CHUNKED
        return (max(setup.context, 2048) if short else 2048), 256
    if platform.cpu:
        world = layout.tp * layout.pp * (2 if setup.flags.offline else 1)
        return 2048 * world, 128 * world
    if rules.huge_defaults and platform.memory_bytes >= 160 * GIB:
        return 16384, 1024
    small = (rules.a100_small and "a100" in platform.name) or platform.small
    if platform.memory_bytes >= 70 * GIB and not small:
        return (16384 if setup.flags.offline else 8192), 1024
    return (8192 if setup.flags.offline else 2048), 256


def _batches(setup: VllmSetup) -> int:
    """A pipeline fills its stages; asynchronous scheduling overlaps one more."""
    pp = setup.d.layout.pp
    if not _asynchronous(setup):
        return pp
    if _v2_by_default(setup):
        return pp + 1
    return 2 if pp == 1 else pp


def _asynchronous(setup: VllmSetup) -> bool:
    """The flag, else the release's default but for drafts that are looked up on the host; the CPU platform
    turns it off whatever is asked, and so does a pipeline that the release does not overlap."""
    if setup.platform.cpu:
        return False
    if setup.d.layout.pp > 1 and not _overlaps_stages(setup):
        return False
    if setup.flags.asynchronous is not None:
        return setup.flags.asynchronous
    speculation = setup.d.speculation
    looked_up = speculation is not None and speculation.method in SYNC_ONLY
    if looked_up and not (setup.rules.looked_up_overlaps and _v2_by_default(setup)):
        return False
    return setup.rules.async_scheduling


def _overlaps_stages(setup: VllmSetup) -> bool:
    overlap = setup.rules.pipeline_overlap
    return overlap == "one by one" or (overlap == "V2" and _v2_by_default(setup))


def on_v2_runner(setup: VllmSetup) -> bool:
    """Whether the V2 model runner profiles the model."""
    return bool(setup.platform.cuda) and _v2_by_default(setup)


def _v2_by_default(setup: VllmSetup) -> bool:
    """``VllmConfig._is_default_v2_model_runner_model``: classes by name, then dense ones, then all."""
    model, rules = setup.d.model, setup.rules
    if rules.v2_others == "all":
        return True
    if model.model_type in rules.v2_types:
        own = model.quantisation is None and setup.d.weights.quantisation.name in ("bf16", "fp16")
        return own or rules.v2_quantised
    recurrent = any(kind.recurrent for kind, _ in model.stores)
    return rules.v2_others == "dense" and not (setup.experts or recurrent)
