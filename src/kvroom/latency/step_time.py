"""How long a step takes: a sum of what it reads and computes, sends and launches.

    t = √((W/(η·BW))² + (F/(μ·peak))²) + cache/(η·BW) + F_attention/(μ·peak)
        + a·layers + links + b·requests + c

fits published measurements far better than the larger of memory and arithmetic time does: kernels of
one layer wait for one another, so what one waits for is not hidden behind another. Within one, a product
of matrices reads while it computes: its time is the hypotenuse of both, as operators measure it. So is what
the host does for requests beside what the card reads and launches, nearly, where an engine schedules a step
while the card computes one (``beyond``). Every
term is linear in cache bytes, so between events a run of steps sums in closed form. Coefficients are fitted
(``calibration.py``); a step of several stages passes one after another. Where tokens are drafted a step
verifies all drafts of a request, and the draft's passes are a term of their own (``drafting.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from math import exp, hypot, inf, log1p

from kvroom.hardware.device import Device
from kvroom.latency.drafting import Drafting
from kvroom.latency.host import HostReads
from kvroom.latency.work import ACTIVATION_BYTES, NO_ATTENTION, Attention, Expert, StageWork, Work
from kvroom.records import dataclass

HOST_LINK_BYTES_PER_S = 25e9
"""What joins cards of which no link is known: PCIe 4.0 x16 as it is reached."""

FLOPS_PER_BYTE = {"apple": 33.0}
"""16-bit FLOPs for each byte of memory traffic where a vendor publishes no peak: its other chips' usual
ratio (Apple's M1 to M4: 26 to 38)."""
SUSTAINED_FLOPS_PER_J = {
    "8.0": 0.78e12,
    "8.9": 0.75e12,
    "9.0": 1.42e12,
    "10.0": 1.92e12,
    "10.3": 1.92e12,
    "12.0": 0.78e12,
}
"""16-bit FLOPs for each joule of a card's power limit that its chip, by compute capability, keeps up.

Peak rates are those of the boost clock; power holds large products below it on cards with much
arithmetic for their watts (L40S, B200), and not on those with little (GeForce, whose products that
accumulate in 32 bits run at half rate). From NVIDIA's operators (``benchmarks/operators.json``): their
GEMMs reach 0.9 of a peak that power allows, and so much less where it does not; for chips that power
held nowhere there, the most that was seen."""
USUAL_WIDTH = 4096
"""The hidden size at which a layer costs ``layer_s``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficients:
    """What calibration fits; all positive.

    ``*_eta``: share of the memory's rate reached on wide and narrow weights and on cache; on experts
    against other weights. ``*_mu``: share of the peak FLOP rate; on experts against others. ``*_s``:
    seconds a layer (and more for layers with experts, latents, an indexer, state), an all-reduce, an
    exchange of tokens between expert ranks, a hand-over between stages, a request, a token of a
    prompt, a step, a pass of a draft (with what building and checking its tokens takes). ``link_eta``:
    share of the link's rate. ``layer_width``: the power of the hidden size by which a layer's own
    seconds grow. ``routing``: how many evenly routed tokens touch as many experts as one unevenly
    routed one. ``expert_width``: the inner width of a rank's share of an expert at which it runs at
    half its rate. ``scale`` multiplies the whole step.

    Of serving (``load.py``): ``first_s`` a request passes in the front end, and ``wait`` steps before the
    scheduler hears of it, ``intake`` of the steps between two intakes the share that it waits more;
    ``burst`` is how much of the queue of a start at once a benchmark's mean holds.
    """

    wide_eta: float
    narrow_eta: float
    expert_eta: float
    cache_eta: float
    wide_mu: float
    narrow_mu: float
    attention_mu: float
    expert_mu: float
    layer_s: float
    layer_width: float
    expert_layer_s: float
    latent_layer_s: float
    indexer_layer_s: float
    state_layer_s: float
    reduce_s: float
    link_eta: float
    exchange_s: float
    stage_s: float
    request_s: float
    token_s: float
    step_s: float
    draft_s: float
    routing: float
    expert_width: float
    scale: float
    first_s: float
    burst: float
    wait: float
    intake: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """A device's peaks as a step meets them: bytes and FLOPs a second (as far as its power allows), and
    its link to its peers."""

    memory_bytes_per_s: float
    wide_flops_per_s: float
    narrow_flops_per_s: float
    link_bytes_per_s: float
    overlaps: bool = True
    """Whether reading runs beside arithmetic: a GPU's asynchronous copies do, a CPU core's loads do not."""
    one_token_dispatch: bool = False
    """A step of one token chooses experts within their kernel (``Engine.one_token_dispatch``)."""
    fills_stages: bool = False
    """Each stage of a pipeline has a step of its own at any time (``Engine.fills_stages``)."""
    schedules_ahead: bool = False
    """The host's work on requests is done while the card reads and launches (``schedules_ahead``)."""

    @classmethod
    def of(
        cls,
        device: Device,
        narrow_dtype: str,
        *,
        one_token_dispatch: bool = False,
        fills_stages: bool = False,
        schedules_ahead: bool = False,
    ) -> Rates | None:
        """The rates of ``device`` with narrow matrices multiplied in ``narrow_dtype``; None where its
        peak arithmetic is neither known nor near that of its vendor's other chips."""
        wide = device.flops("bf16")
        if wide is None and device.vendor in FLOPS_PER_BYTE:
            wide = FLOPS_PER_BYTE[device.vendor] * device.memory_bytes_per_s
        if wide is None:
            return None
        link = device.peer_link
        share = _powered(device, wide)
        return cls(
            memory_bytes_per_s=device.memory_bytes_per_s,
            wide_flops_per_s=share * wide,
            narrow_flops_per_s=share * (device.flops(narrow_dtype) or wide),
            link_bytes_per_s=link.bytes_per_s if link else HOST_LINK_BYTES_PER_S,
            overlaps=device.vendor != "cpu",
            one_token_dispatch=one_token_dispatch,
            fills_stages=fills_stages,
            schedules_ahead=schedules_ahead,
        )


OVERLAP = 1.5
"""The power by which the host's work and the card's add up: 1 is one after the other, 2 a hypotenuse, ever
more the longer of both. By the errors of fits: 1 has slow cards wait for what they hide, 2 has quick ones
wait too little."""


def beyond(host: float, card: float) -> float:
    """What the host's work on requests adds to a step of which the card takes ``card`` meanwhile."""
    longer = max(host, card)
    if longer <= 0:
        return 0.0
    both = (host / longer) ** OVERLAP + (card / longer) ** OVERLAP
    whole: float = longer * both ** (1 / OVERLAP)
    return whole - card


def joined_s(read: float, computed: float, *, overlaps: bool) -> float:
    """What reading matrices and multiplying by them takes together, in the unit of both."""
    return hypot(read, computed) if overlaps else read + computed


SHARES = ("wide_eta", "narrow_eta", "wide_mu", "narrow_mu", "attention_mu")
SHARP = 6.0
"""How sharply a share bends below its peak: 0.9 of it for one that would just reach it."""


def below(share: float, peak: float) -> float:
    """``share``, bent so that it stays below ``peak``: a half is kept, twice as much is not had."""
    bent: float = share * (1 + (share / peak) ** SHARP) ** (-1 / SHARP)
    return bent


def _powered(device: Device, wide_flops_per_s: float) -> float:
    """The share of its peaks that the card's power limit allows; numbers half as wide take half."""
    each = SUSTAINED_FLOPS_PER_J.get(device.compute_capability or "")
    if each is None or not device.tdp_w:
        return 1.0
    return min(1.0, each * device.tdp_w / wide_flops_per_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The seconds of one step, term by term."""

    weights_s: float
    cache_s: float
    compute_s: float
    layers_s: float
    links_s: float
    requests_s: float
    step_s: float
    draft_s: float
    host_s: float = 0.0
    uneven_s: float = 0.0
    """What other stages of a pipeline wait for the slowest."""

    @property
    def seconds(self) -> float:
        """The whole step."""
        return (
            self.weights_s
            + self.cache_s
            + self.compute_s
            + self.layers_s
            + self.links_s
            + self.requests_s
            + self.step_s
            + self.draft_s
            + self.host_s
            + self.uneven_s
        )


@dataclass(frozen=True, kw_only=True)
class Clock:
    """Times the steps of one deployment; ``drafting`` is how it speculates, if it does, ``host`` what it
    reads in host memory, if any (``work`` is then without that)."""

    work: Work
    rates: Rates
    k: Coefficients
    drafting: Drafting | None = None
    host: HostReads | None = None
    first_ratio: float = 1.0
    """First tokens over what is reckoned, as one's own measurements say (``own_points.py``)."""
    meeting: float | None = None
    """How many replicas' tokens meet at one set of experts in a step (None: those of all that share it, as
    where all have as much to do)."""

    @property
    def lone(self) -> Clock:
        """The same while the other replicas that share its experts have nothing to do."""
        return replace(self, meeting=1.0)

    @property
    def plain(self) -> Clock:
        """The same deployment without speculation."""
        return replace(self, drafting=None)

    def at(self, requests: float) -> Clock:
        """The clock of steps of so many requests of a replica: engines may draft less in larger ones."""
        drafting = self.drafting
        return (
            self
            if drafting is None or not drafting.schedule
            else replace(self, drafting=drafting.at(requests))
        )

    @cached_property
    def by_stage(self) -> list[Clock]:
        """The clock of each stage of a pipeline by itself, without the hand-overs: the last one selects
        tokens, drafts and takes what a step takes but once."""
        work, last = self.work, len(self.work.stages) - 1
        plain = replace(self.k, step_s=0.0, request_s=0.0, token_s=0.0)
        layout = replace(work.layout, pp=1, stage_layers=())
        return [
            replace(
                self,
                work=replace(work, stages=(stage,), layout=layout),
                k=self.k if place == last else plain,
                drafting=self.drafting
                if place == last or self.drafting is None
                else replace(self.drafting, work=None),
                host=self.host.part(last + 1) if self.host else None,
            )
            for place, stage in enumerate(work.stages)
        ]

    def handover_s(self, tokens: float) -> float:
        """Seconds from one stage of a pipeline to the next with so many tokens."""
        sent = self.work.hidden_size * ACTIVATION_BYTES * tokens
        rate = self.k.link_eta * self.rates.link_bytes_per_s
        return self.k.scale * (sent / rate + self.k.stage_s)

    def drafts(self, tokens: int) -> Clock:
        """The clock of steps that draft only so many tokens of each request."""
        return replace(self, drafting=self.drafting.of(tokens) if self.drafting else None)

    @property
    def width(self) -> int:
        """Tokens of each request that a decode step computes: one, and the drafts that it verifies."""
        return 1 + (self.drafting.drafted if self.drafting else 0)

    @property
    def tokens_a_step(self) -> float:
        """Tokens that each request gains by a decode step, as expected."""
        return self.drafting.expected_tokens if self.drafting else 1.0

    @property
    def works_ahead(self) -> bool:
        """Whether the host's work on requests hides behind the card's; what drafts waits for each step."""
        return self.rates.schedules_ahead and self.draft is None

    @property
    def launching_s(self) -> float:
        """Seconds, unscaled, of a step's launches and of what it takes but once."""
        return sum(self._launch_s(stage, inf) for stage in self.work.stages) + self.k.step_s

    def within_peaks(self, *, cache: bool, hold: Callable[[float, float], float] = below) -> Clock:
        """The clock with reading and computing held below the card's peak rates (with ``cache``, reading the
        cache as well; ``hold(share, peak)`` is how): what was fitted trades one term for another, so finds
        shares above the peak where little of a kind was measured."""
        k = self.k
        k = replace(k, **{name: hold(getattr(k, name), k.scale) for name in SHARES})
        read, computed = max(k.wide_eta, k.narrow_eta), max(k.wide_mu, k.narrow_mu)
        k = replace(
            k,
            expert_eta=hold(k.expert_eta, k.scale / read),
            expert_mu=hold(k.expert_mu, k.scale / computed),
        )
        if cache:
            k = replace(k, cache_eta=min(k.cache_eta, k.scale))
        return replace(self, k=k)

    @cached_property
    def draft(self) -> Clock | None:
        """Times the draft's passes: at the deployment's coefficients, without what a step takes but
        once. None where no draft runs."""
        if self.drafting is None or self.drafting.work is None:
            return None
        k = replace(self.k, step_s=0.0, request_s=0.0, token_s=0.0)
        return Clock(work=self.drafting.work, rates=self.rates, k=k)

    def decoding(self, tokens: int) -> list[Attention]:
        """One decode step's attention of a request of ``tokens``, stage by stage: the cache read once
        for all tokens that are verified, and on the last stage once for each of the draft's passes."""
        own = self.work.decoding(tokens)
        if self.host is not None:
            there = replace(NO_ATTENTION, host_bytes=self.host.cache_bytes(tokens))
            own = (*own[:-1], own[-1].plus(there))
        if self.drafting is None:
            return list(own)
        widened = [replace(a, flops=a.flops * self.width) for a in own]
        if self.draft is not None:
            (passed,) = self.draft.work.decoding(tokens)
            widened[-1] = widened[-1].plus(passed.times(self.drafting.drafted))
        return widened

    def prefilling(self, tokens: int) -> list[Attention]:
        """The attention of a whole prompt of ``tokens``, the draft's pass over it included."""
        work = list(self.work.prefilling(tokens))
        if self.draft is not None:
            work[-1] = work[-1].plus(self.draft.work.prefilling(tokens)[0])
        return work

    def decode(self, requests: float, attention: Sequence[Attention]) -> Terms:
        """A decode step of ``requests`` (whole deployment) equal ones, each with ``attention``; in a pipeline
        a round, in which its stages work on as many steps, each with its share of the requests."""
        here, stages = requests / self.work.layout.dp, self.work.layout.pp
        each = here / stages
        if self.rates.fills_stages:
            each = max(min(1.0, here), each)
        terms = self._terms(each, 0.0, [a.times(each) for a in attention])
        if stages == 1 or here < stages or not self.rates.fills_stages:
            return terms
        slowest = max(
            clock._terms(each, 0.0, [a.times(each)]).seconds
            for clock, a in zip(self.by_stage, attention, strict=True)
        )
        return replace(terms, uneven_s=max(0.0, stages * slowest - terms.seconds))

    def decode_s(self, requests: float, tokens: int) -> float:
        """Seconds of a decode step of ``requests`` of ``tokens`` tokens each."""
        return self.decode(requests, self.decoding(tokens)).seconds

    def step(
        self,
        requests: float,
        attention: Sequence[Attention],
        *,
        tokens: float = 0.0,
        prompts: float = 0.0,
    ) -> Terms:
        """One step of a replica: ``requests`` that decode, ``tokens`` of ``prompts`` prompts, and the
        ``attention`` of all of them."""
        return self._terms(requests, tokens, attention, prompts=prompts)

    def prefill(
        self,
        tokens: float,
        attention: Sequence[Attention],
        *,
        chunks: float = 1.0,
        prompts: float = 1,
    ) -> Terms:
        """``tokens`` prompt tokens of one replica computed in ``chunks`` steps, ``prompts`` of them."""
        return self._terms(0.0, tokens, attention, chunks=chunks, prompts=prompts)

    def mixed(
        self,
        requests: float,
        attention: Sequence[Attention],
        tokens: float,
        prompt: Sequence[Attention],
    ) -> Terms:
        """One step that decodes ``requests`` of a replica and computes ``tokens`` of a prompt."""
        both = [a.times(requests).plus(p) for a, p in zip(attention, prompt, strict=True)]
        return self._terms(requests, tokens, both)

    def _terms(
        self,
        requests: float,
        prompt_tokens: float,
        attention: Sequence[Attention],
        *,
        chunks: float = 1.0,
        prompts: float = 1.0,
    ) -> Terms:
        k, work = self.k, self.work
        verified = requests * self.width
        tokens = verified + prompt_tokens
        sampled = verified + (prompts if prompt_tokens else 0.0)
        weights = cache = compute = layers = joined_all = 0.0
        for stage, a in zip(work.stages, attention, strict=True):
            read, products = self.products_s(stage, tokens, sampled, chunks)
            weights += read + chunks * self._experts_s(stage, tokens / chunks)
            cache += (a.cache_bytes + a.state_bytes) / (k.cache_eta * self.rates.memory_bytes_per_s)
            joined = joined_s(read, products, overlaps=self.rates.overlaps)
            joined_all += joined - read
            compute += joined - read + self._compute_s(stage, tokens, a.flops)
            layers += chunks * self._launch_s(stage, tokens / chunks)
        requests_s = k.request_s * requests
        if self.works_ahead:
            busy = weights + joined_all + layers + k.step_s * chunks
            requests_s = beyond(requests_s, busy)
        return Terms(
            weights_s=k.scale * weights,
            cache_s=k.scale * cache,
            compute_s=k.scale * compute,
            layers_s=k.scale * layers,
            links_s=k.scale * self._links_s(tokens, verified, chunks),
            requests_s=k.scale * (requests_s + k.token_s * prompt_tokens),
            step_s=k.scale * k.step_s * chunks,
            draft_s=self._draft_s(requests, prompt_tokens, chunks),
            host_s=self._host_s(tokens, chunks, attention),
        )

    def _host_s(self, tokens: float, chunks: float, attention: Sequence[Attention]) -> float:
        """Seconds for the bytes that lie in host memory, at that place's rate."""
        if self.host is None:
            return 0.0
        cache = sum(a.host_bytes for a in attention) / self.host.bytes_per_s
        return self.host.weights_s(tokens, chunks) + cache

    def _draft_s(self, requests: float, prompt_tokens: float, chunks: float) -> float:
        """The draft's passes but for their attention: the first also takes in what was computed of
        prompts, those that follow a token of each request."""
        if self.drafting is None or self.draft is None:
            return 0.0
        off = none(self.draft.work)
        first = self.draft._terms(requests, prompt_tokens, off, chunks=chunks, prompts=0.0)
        later = self.draft._terms(requests, 0.0, off, chunks=chunks)
        own = chunks * self.k.scale * self.k.draft_s * self.drafting.drafted
        return first.seconds + (self.drafting.drafted - 1) * later.seconds + own

    @property
    def _meeting(self) -> float:
        """How many replicas bring as many tokens to the experts as this one."""
        return self.work.layout.expert_replicas if self.meeting is None else self.meeting

    def _domain(self, tokens: float) -> float:
        """Tokens that meet at the experts: those of all replicas whose expert ranks are one group."""
        return tokens * self._meeting

    def shared_s(self, tokens: float) -> float:
        """What experts that replicas share compute of ``tokens`` of each; none where each has its own."""
        if self.work.layout.expert_replicas == 1:
            return 0.0
        return self.k.scale * sum(
            self._experts_compute_s(stage, tokens) for stage in self.work.stages
        )

    def products_s(
        self, stage: StageWork, tokens: float, sampled: float, chunks: float = 1.0
    ) -> tuple[float, float]:
        """Seconds, unscaled, to read the weights of ``stage`` but its experts', and to multiply ``tokens`` by
        them (``sampled`` of which pass the head)."""
        k, rates = self.k, self.rates
        read = (
            stage.wide_bytes / k.wide_eta + stage.narrow_bytes / k.narrow_eta
        ) / rates.memory_bytes_per_s
        wide = stage.wide_params * tokens + stage.head_params * sampled
        narrow = stage.narrow_params * tokens
        flops_s = 2 * wide / (k.wide_mu * rates.wide_flops_per_s)
        return chunks * read, flops_s + 2 * narrow / (k.narrow_mu * rates.narrow_flops_per_s)

    def _experts_s(self, stage: StageWork, tokens: float) -> float:
        """Seconds, unscaled, to read the experts that ``tokens`` touch."""
        spent = 0.0
        for expert in stage.experts:
            touched = 1 - exp(-tokens * self.expert_decay(expert))
            spent += self.expert_read_s(expert) / self.k.scale * touched
        return spent

    def expert_read_s(self, expert: Expert) -> float:
        """Seconds to read all of ``expert``."""
        k = self.k
        eta = k.expert_eta * (k.narrow_eta if expert.narrow else k.wide_eta)
        wide = 1 + k.expert_width / expert.width
        return k.scale * expert.bytes * wide / (eta * self.rates.memory_bytes_per_s)

    def expert_decay(self, expert: Expert) -> float:
        """How fast a step of more tokens of one replica leaves fewer of ``expert`` unread: n tokens leave
        a share of exp(−n · decay)."""
        if expert.active >= expert.count:
            return 1e9  # all of them, by the first token
        return -log1p(-expert.active / expert.count) * self._domain(self.k.routing)

    def _compute_s(self, stage: StageWork, tokens: float, attention: float) -> float:
        """Seconds, unscaled, that experts and ``attention`` compute."""
        k, rates = self.k, self.rates
        looking = attention / (k.attention_mu * rates.wide_flops_per_s)
        return self._experts_compute_s(stage, tokens) + looking

    def _experts_compute_s(self, stage: StageWork, tokens: float) -> float:
        """Seconds, unscaled, that experts compute."""
        k, rates = self.k, self.rates
        wide = narrow = 0.0
        for expert in stage.experts:
            used = expert.active_params * self._domain(tokens)
            used *= (1 + k.expert_width / expert.width) / k.expert_mu
            wide, narrow = (wide, narrow + used) if expert.narrow else (wide + used, narrow)
        return 2 * wide / (k.wide_mu * rates.wide_flops_per_s) + 2 * narrow / (
            k.narrow_mu * rates.narrow_flops_per_s
        )

    def _launch_s(self, stage: StageWork, tokens: float) -> float:
        """Launches of a step of so many tokens; between one and two, of as many steps of each."""
        k = self.k
        sorted_share = min(1.0, max(0.0, tokens - 1)) if self.rates.one_token_dispatch else 1.0
        width: float = (self.work.hidden_size / USUAL_WIDTH) ** k.layer_width
        return width * (
            k.layer_s * stage.layers
            + k.expert_layer_s * stage.expert_layers * sorted_share
            + k.latent_layer_s * stage.latent_layers
            + k.indexer_layer_s * stage.indexer_layers
            + k.state_layer_s * stage.state_layers
        )

    def _links_s(self, tokens: float, decoded: float, chunks: float) -> float:
        k, work = self.k, self.work
        layout = work.layout
        rate = k.link_eta * self.rates.link_bytes_per_s
        vector = work.hidden_size * ACTIVATION_BYTES
        sent = calls = 0.0
        layers = sum(stage.layers for stage in work.stages)
        if layout.tp > 1:
            # A ring sends 2·(n − 1)/n of the vector; two all-reduces a layer.
            sent += 2 * layers * 2 * (layout.tp - 1) / layout.tp * vector * tokens
            calls += 2 * layers * k.reduce_s
        for stage in work.stages:
            # Context ranks gather queries, reduce outputs and normalisers: three calls a layer.
            shared, numbers = stage.rank.exchanges()
            sent += numbers * ACTIVATION_BYTES * decoded
            calls += 3 * shared * k.reduce_s
        routed = sum(stage.expert_layers for stage in work.stages)
        if layout.ep > layout.tp or layout.expert_dp > 1:
            sent += self._exchanged_bytes(tokens)
            calls += 2 * routed * k.exchange_s
        if layout.pp > 1:
            sent += (layout.pp - 1) * vector * tokens
            calls += (layout.pp - 1) * k.stage_s
        return sent / rate + calls * chunks

    def _exchanged_bytes(self, tokens: float) -> float:
        """What the busiest rank sends, or gets, of ``tokens`` of each replica, to the experts and back."""
        work, layout = self.work, self.work.layout
        vector = work.hidden_size * ACTIVATION_BYTES
        routed = sum(stage.expert_layers for stage in work.stages)
        if layout.ep > layout.tp:
            copies = min(work.active_experts, layout.ep)
            return 2 * routed * copies * (layout.ep - 1) / layout.ep * vector * tokens
        # Every rank gathers the tokens of all for its slice of each expert; the slices are summed.
        return 2 * routed * max(1.0, self._meeting - 1) * vector * tokens


def none(work: Work) -> list[Attention]:
    """No attention, for every stage of ``work``."""
    return [NO_ATTENTION for _ in work.stages]
