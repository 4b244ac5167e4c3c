"""What an engine is: one ``Engine`` a served program, which holds all that kvroom knows of it.

Its folder has its flags, memory, scheduler, start rules, command line, log and metrics; what it leaves out
is that of an engine of which nothing else is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from kvroom.answer.plan import Account, EngineCapacity
from kvroom.engines.adapters import Adapters, idle_notes, unknown_notes
from kvroom.engines.asked import AskedScript
from kvroom.engines.command_line import CommandLine
from kvroom.engines.drafting import DraftFlags
from kvroom.engines.limits import LimitFlags
from kvroom.engines.log_reader import LogReader
from kvroom.engines.metric_names import MetricNames
from kvroom.engines.start_rules import (
    StartRefusal,
    StartRule,
    drafting_refusals,
    length_refusals,
    refusals,
    width_refusals,
)
from kvroom.engines.support import Support
from kvroom.errors import KvroomError, as_sentence
from kvroom.hardware.device import Device
from kvroom.models.spec import ModelSpec
from kvroom.records import dataclass
from kvroom.scenario.scenario import Scenario
from kvroom.sharding.deployment import Deployment
from kvroom.sharding.host import HostPart
from kvroom.sharding.layout import Rank

if TYPE_CHECKING:
    from kvroom.engines.serving_rules import ServingRules


MORE_ROOM = "take more or larger GPUs, a shorter context_tokens, or narrower weights or cache"
"""What makes room where memory alone is wanting."""


@dataclass(frozen=True, kw_only=True)
class EngineAnswer:
    """What an engine makes of a Deployment.

    ``rank`` is the one that binds, ``gpu_bytes`` what the engine counts as one GPU's memory,
    ``accounts`` its shares (they add up to ``gpu_bytes``), ``kv_bytes`` what is left for cache on that
    rank. ``starts`` is whether the engine's own start would succeed; ``reason`` says why not.
    ``refusals`` are the start rules that refuse it. ``host`` is what lies in host memory.
    ``cache_given``: the cache's bytes were asked for outright, so the weights were not weighed.
    ``context_tokens``: what the engine shortened requests to, where the question left that to it.
    ``pools``: how many such caches one replica has (attention that is data parallel within it).
    ``limit`` says in a clause what keeps a request out that the bytes alone would admit, ``binding`` is
    the verdict's word for it where it is not the larger share of a request.
    """

    rank: Rank
    gpu_bytes: int
    accounts: tuple[Account, ...]
    kv_bytes: int
    capacity: EngineCapacity | None
    starts: bool = True
    reason: str = ""
    cache_given: bool = False
    context_tokens: int | None = None
    pools: int = 1
    limit: str = ""
    binding: str = ""
    mean_gpu_bytes: int | None = None
    """Of unlike GPUs that share out layers, what plain arithmetic has of each: all their memory over how
    many they are."""
    refusals: tuple[StartRefusal, ...] = ()
    host: HostPart | None = None
    stage_bytes: tuple[int, ...] = ()
    """Cache bytes of each pipeline stage, where they are told apart."""
    warnings: tuple[str, ...] = ()
    outside_bytes: tuple[int, int, int] = (0, 0, 0)
    """Of one GPU, what it takes beside its accounts (estimate, low, high): a context that is there before
    it measures what is free."""
    others_bytes: int = 0
    """Of its accounts, what other processes hold."""

    @property
    def held_bytes(self) -> int:
        """What it holds of one GPU once it has started, so that another engine finds it taken."""
        own = sum(account.bytes for account in self.accounts if account.name != "unused")
        return own + self.outside_bytes[0] - self.others_bytes

    @property
    def ceiling_bytes(self) -> int:
        """The memory of one GPU as plain arithmetic divides it."""
        return self.mean_gpu_bytes or self.gpu_bytes


class Era(NamedTuple):
    """Releases before ``before`` (and no row above) whose steps cost alike, and what changed after them.
    ``today``: their loop and kernels are those of today's servers."""

    before: tuple[int, int]
    name: str
    change: str
    today: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class Engine:
    """One engine: facts as members, rules as methods.

    ``name`` is the canonical one of ``registry.json``, ``label`` what people call it, ``newest`` the
    newest release whose rules are known ("" where releases are not told apart), ``releases`` those that
    brought rules of their own, the newest first. ``support`` says what
    runs on it, ``limits`` what its flags for share, batch and sequences are called, ``draft_flags`` how
    it is told to draft, ``command`` how it is started, ``log`` and ``metrics`` what it prints at its start
    and tells while it runs (None: not known), ``account_flags`` the flags that change an account, by the
    account's name.
    """

    name: str
    label: str
    newest: str = ""
    releases: tuple[str, ...] = ()
    support: Support = field(default_factory=Support)
    limits: LimitFlags = field(default_factory=LimitFlags)
    draft_flags: DraftFlags = field(default_factory=DraftFlags)
    command: CommandLine | None = None
    log: LogReader | None = None
    metrics: MetricNames | None = None
    account_flags: Mapping[str, str] = field(default_factory=dict)
    start_rules: tuple[StartRule, ...] = ()
    """What it refuses to start with, beside what ``memory`` looks at itself."""
    shares_experts: bool = False
    """Data-parallel ranks step together, and cut routed experts over all of them."""
    ceiling: bool = False
    """It is plain arithmetic, the most that any engine has: nothing starts, pages or refuses."""
    tensor_parallel: bool = True
    """Cards share out the matrices of a layer; else each takes layers."""
    data_parallel_attention: bool = False
    """Data-parallel ranks share out the experts among them."""
    known_adapters: bool = False
    """What LoRA adapters take beside the weights is known."""
    takes_overrides: bool = False
    """Flags replace keys of the model's config, and keep weights in host memory."""
    eras: tuple[Era, ...] | None = None
    """Spans of releases whose steps cost alike, the oldest first (later ones are of today); None: it is no
    server of many users."""
    tuning_flags: Mapping[str, Any] = field(default_factory=dict)
    """Flags by which people set a server up for its speed, with the value that does; None: any."""
    intake_flag: str = ""
    """The flag by which it takes in requests every so many steps."""
    ahead_since: tuple[int, int] | None = None
    """The release from which it schedules the next step while the card computes one; None: none does."""
    ahead_flags: Mapping[str, bool] = field(default_factory=dict)
    """Flags that say so, by the value with which it does."""
    takes_token_ids: bool = False
    """Its server may be asked in token ids, which `prove` does."""
    benchmarks: tuple[str, ...] = ()
    """How names begin that tell it in what a benchmark wrote: its own tool, or the tool's backend."""
    asked: AskedScript | None = None
    """How one that is installed is asked itself; None: it cannot be."""
    own_card: bool = False
    """It runs published GGUF files on people's own machines (``optimize.fit``)."""
    fills_stages: bool = False
    """Whether each stage of a pipeline has a step of its own at any time, as its scheduler here plays it."""
    one_token_dispatch: bool = False
    """In a step of one token experts are chosen within their kernel; in longer ones tokens are sorted by
    expert first, at a cost a layer."""
    sleep_flag: str = ""
    """The flag with which it can be put to sleep, its weights to host memory (level 1) or dropped (2)."""
    schedule_of_one_rank: bool = False
    """Drafts by batch size hold only where it has no data-parallel ranks."""

    @property
    def serves_many(self) -> bool:
        """Whether its times are those of servers of many users: theirs, and a ceiling's."""
        return self.ceiling or self.eras is not None

    def prepare(
        self, scenario: Scenario, model: ModelSpec, device: Device
    ) -> tuple[Scenario, tuple[str, ...]]:
        """The question in the engine's own notions, where they are not those of a Scenario, and what to
        say of it."""
        return scenario, ()

    def as_served(self, model: ModelSpec) -> ModelSpec:
        """The model as the engine takes it, where it would take it for something else."""
        return model

    def memory(self, deployment: Deployment) -> EngineAnswer:
        """What the engine's own rules make of a device's bytes and a model's layout."""
        raise NotImplementedError(self.name)

    def subtracts_graphs(self, deployment: Deployment) -> bool:
        """Whether the bytes of its graphs are taken off the cache."""
        return False

    def attention_groups(self, args: Mapping[str, Any], tp: int) -> int:
        """Groups of tensor ranks that each compute their own requests' attention, by its flags."""
        return 1

    def answer(self, deployment: Deployment) -> EngineAnswer:
        """Its memory, refused where a start rule refuses; KvroomError of a flag that its release is known
        not to have."""
        if self.command is not None:
            self.command.check_release(deployment.args, deployment.version)
        result = self.memory(deployment)
        if self.command is not None and (notes := self.command.told_of(deployment)):
            result = replace(result, warnings=(*result.warnings, *notes))
        refused = (
            *self._without_flag(deployment),
            *(() if self.ceiling else width_refusals(deployment, self.support, self.label)),
            *drafting_refusals(deployment, self.support, self.label),
            *refusals(self.start_rules, deployment),
            *self._too_long(deployment),
        )
        if not refused:
            return result
        every = (*result.refusals, *refused)
        return replace(result, starts=False, reason=every[0].reason.clause, refusals=every)

    def _without_flag(self, deployment: Deployment) -> Iterator[StartRefusal]:
        """Ranks that its release has no flag for."""
        line = self.command
        if line is None:
            return
        for key, names in line.keys.items():
            if getattr(deployment.layout, key, 1) > 1:
                found = line.flag_refusal(names[:1], deployment.version, key)
                if found is not None:
                    yield found

    def _too_long(self, deployment: Deployment) -> Iterator[StartRefusal]:
        """What it has against requests beyond the model's own limit."""
        line = self.command
        if line is not None and line.longer_variable:
            flag = line.typed(line.keys["context_tokens"][0])
            yield from length_refusals(deployment, self.label, flag, line.longer_variable)

    def free_at_start(self, deployment: Deployment, others_bytes: int) -> int:
        """What it finds free of one GPU (``known_bytes.free_before_load``) where other processes hold
        ``others_bytes`` of it."""
        total = deployment.known_bytes.get("visible", deployment.device.engine_bytes)
        return max(0, total - others_bytes)

    def memory_share(self, deployment: Deployment) -> tuple[str, float] | None:
        """The flag of its share of memory, and the share that it takes where no flag says it."""
        return None

    def scheduler_rules(self, deployment: Deployment, capacity: EngineCapacity) -> ServingRules:
        """The scheduler that serves the deployment, with the blocks and limits of ``capacity``."""
        from kvroom.engines.serving_rules import paged_rules  # where requests come

        rules = paged_rules(deployment, capacity)
        if self.ceiling:
            return rules
        why = (
            f"requests of {self.name} are scheduled by vLLM's rules over its "
            f"{capacity.kv_tokens:,} tokens"
        )
        return replace(rules, warnings=(why,))

    def serving_rules(self, deployment: Deployment, answer: EngineAnswer) -> ServingRules:
        """What serves one data-parallel replica; KvroomError where it would not start."""
        if not (answer.starts or answer.cache_given) or answer.capacity is None:
            refused = answer.refusals[0] if answer.refusals else None
            why = refused.message if refused is not None else answer.reason
            fix = (refused.fix if refused is not None else "") or MORE_ROOM
            raise KvroomError("engine", self.name, f"would not start: {why}", as_sentence(fix))
        return self.scheduler_rules(deployment, answer.capacity)

    def adapters(
        self, version: str | None, args: Mapping[str, Any], model: ModelSpec
    ) -> Adapters | None:
        """The adapters that its flags make room for; None without them."""
        return None

    def adapter_notes(self, args: Mapping[str, Any]) -> tuple[str, ...]:
        """What is asked about adapters and changes nothing in the answer."""
        if self.known_adapters:
            return idle_notes(args)
        return () if self.ceiling else unknown_notes(self.name, args)


def account(name: str, size: int, source: str, band: tuple[int, int] | None = None) -> Account:
    """An account of ``size`` bytes; without a ``band`` it is exact."""
    low, high = band or (size, size)
    return Account(name=name, bytes=size, low_bytes=low, high_bytes=high, source=source)
