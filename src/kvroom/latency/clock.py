"""Step times in whole picoseconds, for a simulation's clock.

A step's time is a fixed part, which depends on how many requests and prompt tokens are in it, and what
attention adds: so much for each token that a decoding request looks back on, so much for each pair of
tokens in a prompt. While the requests stay the same the second part grows by the same amount each
step, so the time of a run of steps is an exact sum.

Where a deployment speculates (``drafting.py``), ``decode_ps`` and ``context_ps`` are those of a step that
drafts for each request and verifies ``verified`` tokens of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from math import exp

from kvroom.latency.step_time import Clock, beyond, joined_s, none
from kvroom.records import dataclass

PS_PER_S = 10**12
PAIRS = 2**16
"""Prompt attention is counted in picoseconds for so many pairs: one alone takes less than one."""


@dataclass(frozen=True, kw_only=True)
class ExpertReads:
    """Experts of one kind that a step reads: ``all_ps`` for all of them, of which ``n`` tokens leave a
    share of ``exp(−n · decay)`` untouched. A decoding request brings ``each`` tokens to them, a token of a
    prompt one where ``of_prompts``."""

    all_ps: float
    decay: float
    each: int = 1
    of_prompts: bool = True

    def ps(self, requests: float, tokens: float) -> float:
        """What a step of so many decoding requests and prompt tokens reads of them."""
        met = self.each * requests + (tokens if self.of_prompts else 0)
        return self.all_ps * (1.0 - exp(-self.decay * met))


@dataclass(frozen=True, kw_only=True)
class Products:
    """A stage's products of matrices, ``times`` over: reading takes ``read_ps``, and computing so much for a
    decoding request, a prompt's token and a prompt. Where it ``overlaps`` (a GPU's copies run beside its
    arithmetic, a CPU core's loads do not), each hides behind the other as far as a hypotenuse is shorter
    than both sides."""

    read_ps: float
    request_ps: float
    token_ps: float = 0.0
    prompt_ps: float = 0.0
    times: int = 1
    overlaps: bool = True

    def ps(self, requests: float, tokens: float, prompts: float) -> float:
        """What a step of so many decoding requests and prompt tokens takes for them."""
        computed = self.request_ps * requests + self.token_ps * tokens + self.prompt_ps * prompts
        return self.times * joined_s(self.read_ps, computed, overlaps=self.overlaps)


@dataclass(frozen=True, kw_only=True)
class Reach:
    """What attention over at most ``tokens`` tokens back (None: all of them) adds to a step.

    ``context_ps`` a token that a decoding request reads, ``pairs_ps`` for ``PAIRS`` pairs of a prompt's
    token with one that it looks back on.
    """

    context_ps: int
    pairs_ps: int
    tokens: int | None = None

    def read(self, tokens: int) -> int:
        """Tokens that the last of ``tokens`` looks back on, itself included."""
        return tokens if self.tokens is None else min(tokens, self.tokens)

    def read_after(self, starts: Sequence[int]) -> int:
        """Tokens that requests look back on together, each having computed so many before."""
        if self.tokens is None:
            return sum(starts) + len(starts)
        return sum(min(start + 1, self.tokens) for start in starts)

    def pairs(self, start: int, tokens: int) -> int:
        """Pairs in a stretch of ``tokens`` prompt tokens that begins after ``start``."""
        if self.tokens is None:
            return tokens * start + tokens * (tokens + 1) // 2
        growing = max(0, min(tokens, self.tokens - start))
        inside = growing * start + growing * (growing + 1) // 2
        return inside + (tokens - growing) * self.tokens


@dataclass(frozen=True, kw_only=True)
class StepClock:
    """Times steps in whole picoseconds: so much a step, a request that computes one token, a token of
    prompts, a prompt; products of matrices, what attention reaches and experts are read come on top."""

    step_ps: int
    request_ps: int
    token_ps: int
    prompt_ps: int
    reaches: tuple[Reach, ...]
    experts: tuple[ExpertReads, ...] = ()
    products: tuple[Products, ...] = ()
    several_ps: int = 0
    """What a step of more than one token takes besides (``Rates.one_token_dispatch``)."""
    verified: int = 1
    tokens_a_step: float = 1.0
    stages: int = 1
    parts: tuple[StepClock, ...] = ()
    """Of a pipeline: the clocks of its stages, each for steps of its own."""
    handover_ps: int = 0
    handover_token_ps: int = 0
    """From one stage to the next, in every step and for each of its tokens."""
    hosted_ps: float = 0.0
    """What a request takes of the host, where that works while the card reads and launches."""
    launch_ps: float = 0.0
    """What the card launches meanwhile, whatever it computes."""
    ranks: int = 1
    """Data-parallel ranks that share a set of experts, and so step together."""
    shared_ps: int = 0
    """Of ``token_ps`` what a token costs at the experts they share, where each rank brings as many."""
    decodes: dict[int, int] = field(default_factory=dict, init=False, repr=False, compare=False)
    """``decode_ps`` of the batches that were asked for so far."""

    def decode_ps(self, requests: int) -> int:
        """A step in which ``requests`` compute a token each, without their attention."""
        known_ps = self.decodes.get(requests)
        if known_ps is None:
            known_ps = self.decodes[requests] = self.mixed_ps(requests, 0, 0)
        return known_ps

    def mixed_ps(self, requests: int, tokens: int, prompts: int) -> int:
        """The same with ``tokens`` of ``prompts`` prompts."""
        spent = (
            self.fixed_ps(requests, tokens) + self.request_ps * requests + self.token_ps * tokens
        )
        return spent + self.prompt_ps * prompts + round(self.bent_ps(requests, tokens, prompts))

    def fixed_ps(self, requests: float, tokens: float) -> int:
        """What a step takes whatever it computes; of as many as compute one token and several, between."""
        if not self.several_ps:
            return self.step_ps
        computed = (self.verified * requests + tokens) / self.stages
        return self.step_ps + round(self.several_ps * min(1.0, max(0.0, computed - 1)))

    def bent_ps(self, requests: float, tokens: float, prompts: float) -> float:
        """What does not grow evenly with a step's requests, prompt tokens and prompts."""
        spent = 0.0
        for product in self.products:
            spent += product.ps(requests, tokens, prompts)
        for expert in self.experts:
            spent += expert.ps(requests, tokens)
        if self.hosted_ps and requests:
            spent += beyond(self.hosted_ps * requests, spent + self.launch_ps)
        return spent

    def meeting_ps(self, requests: float, tokens: float) -> int:
        """What a step takes at the experts that ranks share, where each rank brings so many decoding
        requests and prompt tokens on average; nothing where they share none."""
        if self.ranks == 1:
            return 0
        read = sum((expert.ps(requests, tokens) for expert in self.experts), 0.0)
        return round(read + self.shared_ps * (self.verified * requests + tokens))

    def context_ps(self, tokens: int) -> int:
        """Attention of one request whose next token is its ``tokens``-th, in a step."""
        return sum(reach.context_ps * reach.read(tokens) for reach in self.reaches)

    def chunk_ps(self, start: int, tokens: int) -> int:
        """Attention of ``tokens`` prompt tokens of which ``start`` are computed before."""
        spent = 0
        for reach in self.reaches:
            spent += reach.pairs_ps * reach.pairs(start, tokens)
        return spent // PAIRS

    def passage_ps(self, tokens: int) -> int:
        """What a prompt of ``tokens`` takes in further stages of a pipeline before its first token is out,
        while the first ones work on others'."""
        each = self.token_ps + sum((product.token_ps for product in self.products), 0.0)
        return (self.stages - 1) * round(each * tokens + self.chunk_ps(0, tokens))

    def ps(self, work: Sequence[tuple[int, int]]) -> int:
        """A step in which each request, having computed ``start`` tokens, computes ``tokens`` more.

        Who computes a single token counts as decoding, whatever that token is.
        """
        ones = [start for start, tokens in work if tokens == 1]
        chunks = [(start, tokens) for start, tokens in work if tokens > 1]
        total = self.mixed_ps(len(ones), sum(tokens for _, tokens in chunks), len(chunks))
        total += sum(reach.context_ps * reach.read_after(ones) for reach in self.reaches)
        return total + sum(self.chunk_ps(start, tokens) for start, tokens in chunks)

    def tokens_of(self, work: Sequence[tuple[int, int]]) -> int:
        """Tokens that a step of this ``work`` (see ``ps``) computes."""
        return sum(self.verified if tokens == 1 else tokens for _, tokens in work)

    def each_ps(self, work: Sequence[tuple[int, int]]) -> list[int]:
        """The step of ``work`` (see ``ps``) in each of its stages."""
        ones = [start for start, tokens in work if tokens == 1]
        chunks = [(start, tokens) for start, tokens in work if tokens > 1]
        requests, tokens, prompts = len(ones), sum(many for _, many in chunks), len(chunks)
        read: dict[int | None, int] = {}
        found: list[int] = []
        for part in self.parts:
            spent = (
                part.mixed_ps(requests, tokens, prompts) if prompts else part.decode_ps(requests)
            )
            for reach in part.reaches:
                back = read.get(reach.tokens)
                if back is None:
                    back = read[reach.tokens] = reach.read_after(ones)
                spent += reach.context_ps * back
            for start, many in chunks:
                spent += part.chunk_ps(start, many)
            found.append(spent)
        return found

    def joint_ps(self, works: Sequence[tuple[StepClock, Sequence[tuple[int, int]]]]) -> int:
        """A step of ranks that share experts, each with its clock and its ``work`` (see ``ps``): that of the
        busiest, but for the experts, where the tokens of all meet. Who has none computes a dummy token."""
        longest = requests = tokens = 0
        for clock, work in works:
            ones = sum(many == 1 for _, many in work)
            more = sum(many for _, many in work) - ones
            if work:
                longest = max(longest, clock.ps(work) - clock.meeting_ps(ones, more))
            requests, tokens = requests + max(ones, not work), tokens + more
        return longest + self.meeting_ps(requests / len(works), tokens / len(works))


FAR = 2**20
"""A length at which whatever reaches only so far has long stopped growing."""


@dataclass
class _Rate:
    """What attention of one reach reads and computes on the stages of a replica, for a token."""

    read_bytes: float = 0.0
    decode_flops: float = 0.0
    pair_flops: float = 0.0


def step_clock(clock: Clock) -> StepClock:
    """The clock of one data-parallel replica of ``clock``'s deployment, with those of its stages."""
    spread = _step_clock(clock)
    if spread.stages == 1:
        return spread
    fixed_s = clock.handover_s(0)
    return replace(
        spread,
        parts=tuple(map(_step_clock, clock.by_stage)),
        handover_ps=round(fixed_s * PS_PER_S),
        handover_token_ps=round((clock.handover_s(1) - fixed_s) * PS_PER_S),
    )


def _step_clock(clock: Clock) -> StepClock:
    """The clock of one data-parallel replica of ``clock``'s deployment.

    Chunked attention counts as a window of half a chunk, what it reads on average. A pipeline's stages
    each work on their share of the requests: a step is one passage of such a share. The later tokens
    that a step verifies, and the passes that draft them, are timed as if they looked back as far as its
    first.
    """
    work, draft = clock.work, clock.draft
    k, stages = clock.k, work.layout.pp
    drafted = clock.width - 1
    byte_s = k.scale / (k.cache_eta * clock.rates.memory_bytes_per_s)
    flop_s = k.scale / (k.attention_mu * clock.rates.wide_flops_per_s)
    rates: dict[int | None, _Rate] = {}
    request_s = token_s = chunk_s = 0.0
    # (rank, how often a step reads its cache, how many tokens of a request look back on it)
    parts = [(stage.rank, 1, clock.width) for stage in work.stages]
    parts += [(stage.rank, drafted, drafted) for stage in draft.work.stages] if draft else []
    for rank, reads, looks in parts:
        for kind, count in rank.stores:
            if kind.fixed_size:
                read = kind.read_bytes(1, work.kv, work.encoder_tokens) * count * byte_s
                computed = kind.decode_flops(1, work.encoder_tokens) * count * flop_s
                request_s += reads * read + looks * computed
                chunk_s += read
                token_s += kind.prefill_flops(1, work.encoder_tokens) * count * flop_s
                continue
            reach = kind.reach_tokens
            rate = rates.setdefault(reach, _Rate())
            length = reach or FAR
            far = kind.read_bytes(rank.held(kind, length), work.kv, work.encoder_tokens)
            rate.read_bytes += reads * count * far / length
            rate.decode_flops += looks * count * kind.decode_flops(length) / length
            rate.pair_flops += count * kind.prefill_flops(length) / (length * (length + 1) / 2)
            token_s += float(kind.growth(work.kv)) * count * byte_s  # written once
    host, host_rate = clock.host, clock.host.bytes_per_s if clock.host else 1.0
    for kind, count in host.stores if host else ():
        length = kind.reach_tokens or FAR
        rate = rates.setdefault(kind.reach_tokens, _Rate())
        read = kind.read_bytes(length, work.kv, work.encoder_tokens) / host_rate
        rate.read_bytes += count * read / length / byte_s  # in bytes of the card's rate
    off, experts = none(work), _experts(clock, stages, each=clock.width)
    if draft is not None:
        experts += _experts(draft, stages)
        experts += _experts(draft, stages, times=drafted - 1, of_prompts=False)

    products = _products(clock, stages, width=clock.width)
    if draft is not None:
        products += _products(draft, stages, prompts=0)
        products += _products(draft, stages, tokens=0, prompts=0, times=drafted - 1)
    ahead, unit = clock.works_ahead, k.scale * PS_PER_S
    bent = StepClock(
        step_ps=0, request_ps=0, token_ps=0, prompt_ps=0, reaches=(),
        experts=tuple(experts), products=tuple(products),
        hosted_ps=unit * k.request_s / stages if ahead else 0.0,
        launch_ps=unit * clock.launching_s if ahead else 0.0,
    )  # fmt: skip

    # what hangs on a step's having several tokens does not grow with them
    alone = (
        replace(clock, k=replace(k, expert_layer_s=0.0))
        if clock.rates.one_token_dispatch
        else clock
    )
    one, none_of_it = (c.step(2.0, off, tokens=0.0, prompts=0.0).seconds for c in (clock, alone))

    def seconds(requests: int, tokens: int, prompts: int) -> float:
        base = alone.step(
            requests / stages, off, tokens=tokens / stages, prompts=prompts / stages
        ).seconds
        base += (requests * request_s + tokens * token_s + prompts * chunk_s) / stages
        return base - bent.bent_ps(requests, tokens, prompts) / PS_PER_S

    nothing = seconds(0, 0, 0)
    each = [seconds(*one) - nothing for one in ((1, 0, 0), (0, 1, 0), (0, 1, 1))]
    return StepClock(
        step_ps=max(1, round(nothing * PS_PER_S)),
        request_ps=round(each[0] * PS_PER_S),
        token_ps=round(each[1] * PS_PER_S),
        prompt_ps=round((each[2] - each[1]) * PS_PER_S),
        several_ps=round((one - none_of_it) * PS_PER_S),
        experts=bent.experts,
        products=bent.products,
        hosted_ps=bent.hosted_ps,
        launch_ps=bent.launch_ps,
        verified=clock.width,
        tokens_a_step=clock.tokens_a_step,
        stages=stages,
        ranks=work.layout.expert_replicas,
        shared_ps=round(clock.shared_s(1.0) / stages * PS_PER_S),
        reaches=tuple(
            Reach(
                tokens=reach,
                context_ps=round(
                    (r.read_bytes * byte_s + r.decode_flops * flop_s) / stages * PS_PER_S
                ),
                pairs_ps=round(r.pair_flops * flop_s / stages * PS_PER_S * PAIRS),
            )
            for reach, r in sorted(rates.items(), key=lambda item: (item[0] is not None, item[0]))
        ),
    )


def _products(
    clock: Clock, stages: int, *, width: int = 1, tokens: int = 1, prompts: int = 1, times: int = 1
) -> list[Products]:
    """The products of each stage, ``times`` over, of ``width`` tokens of a request; prompts' tokens and
    last tokens count where ``tokens`` and ``prompts`` do. Requests and prompts spread over ``stages``."""
    products = []
    unit = clock.k.scale * PS_PER_S
    for stage in clock.work.stages if times else ():
        read, request = clock.products_s(stage, width, width)
        products.append(
            Products(
                read_ps=unit * read,
                request_ps=unit * request / stages,
                token_ps=unit * tokens * clock.products_s(stage, 1, 0)[1] / stages,
                prompt_ps=unit * prompts * clock.products_s(stage, 0, 1)[1] / stages,
                times=times,
                overlaps=clock.rates.overlaps,
            )
        )
    return products


def _experts(
    clock: Clock, stages: int, *, each: int = 1, times: int = 1, of_prompts: bool = True
) -> list[ExpertReads]:
    """What a step reads of experts, ``times`` over, its requests spread over ``stages``."""
    return [
        ExpertReads(
            all_ps=times * clock.expert_read_s(expert) * PS_PER_S,
            decay=clock.expert_decay(expert) / stages,
            each=each,
            of_prompts=of_prompts,
        )
        for stage in clock.work.stages
        for expert in stage.experts
        if times
    ]
