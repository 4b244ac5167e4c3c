"""llama.cpp's answer: slots and cells, where layers lie, and what each GPU then holds."""

from __future__ import annotations

from dataclasses import replace

from kvroom.answer.plan import Account, EngineCapacity
from kvroom.engines import flags as read
from kvroom.engines.base import EngineAnswer, account
from kvroom.engines.llama_cpp import ollama
from kvroom.engines.llama_cpp.buffers import Band, compute_band
from kvroom.engines.llama_cpp.cells import is_windowed, state_bytes, window_cells
from kvroom.engines.llama_cpp.context import Context, padded
from kvroom.engines.llama_cpp.flags import ALL, KNOWN_FLAGS, TYPES, named
from kvroom.engines.llama_cpp.host import host_part, host_refusal
from kvroom.engines.llama_cpp.placement import HOST, DeviceBytes, Placement, ReplicaGpus, most, runs
from kvroom.engines.llama_cpp.setup import LlamaCppSetup, is_cpu, setup
from kvroom.models.kinds import Latent, RecurrentState
from kvroom.models.quantization.base import PLAIN
from kvroom.models.quantization.ggml import MIXES
from kvroom.records import dataclass
from kvroom.sharding.deployment import Deployment
from kvroom.sharding.layout import Rank, stores_of
from kvroom.sharding.ledger import LONGEST
from kvroom.units import longest_fit, show_gib

MOST_SLOTS = 256
"""llama.cpp's own limit of sequences (LLAMA_MAX_SEQ)."""


@dataclass(frozen=True)
class Chosen:
    """The cells, the placement, and the machine they lie on."""

    machine: ReplicaGpus
    context: Context
    placement: Placement
    by_kvroom: bool
    """The slots were left to kvroom."""

    @property
    def all_on_gpu(self) -> bool:
        """Every layer, experts included, lies on a GPU."""
        return self.placement.on_gpu == len(self.placement.places) and not (
            self.placement.host_experts
        )


@dataclass(frozen=True, slots=True)
class CacheSizes:
    """What the start-up log prints of the cache, all devices and host memory together: ``attention``
    bytes of keys and values, ``state`` bytes of recurrent layers, ``cells`` a stream, and the bytes
    of both kinds that lie on each GPU."""

    attention: int
    state: int
    cells: int
    streams: int
    on_gpus: tuple[int, ...]


def cache_sizes(deployment: Deployment) -> CacheSizes:
    """The cache as the log of this deployment's start prints it."""
    chosen = _chosen(deployment)[0]
    context = chosen.context
    state = sum(
        state_bytes(chosen.machine.s, layer, context) for layer in deployment.model.each_layer()
    )
    return CacheSizes(
        attention=sum(chosen.machine.cache(context)) - state,
        state=state,
        cells=context.cells,
        streams=context.streams,
        on_gpus=tuple(load.cache for load in chosen.machine.loads(chosen.placement, context)),
    )


def compute_buffer(deployment: Deployment) -> Band:
    """The compute buffer of one device that holds every layer: (estimate, low, high) in bytes."""
    chosen = _chosen(deployment)[0]
    return compute_band(chosen.machine.s, deployment.model, chosen.context, output=True)


def _chosen(deployment: Deployment) -> tuple[Chosen, tuple[str, ...]]:
    question, warnings = setup(
        deployment.engine,
        deployment.version,
        deployment.args,
        deployment.model,
        deployment.kv_asked,
        cpu=is_cpu(deployment.device),
    )
    if deployment.engine == "ollama":
        known = (*ollama.KNOWN, *ollama.OTHERS)
        warnings += read.unknown("Ollama", ollama.named(deployment.args), known)
    else:
        warnings += read.unknown(deployment.engine, named(deployment.args), KNOWN_FLAGS)
    chosen = _choose(_machine(deployment, question))
    if deployment.engine == "ollama" and chosen.by_kvroom:
        # its batch and GPUs follow the tokens of all slots, which are known only now
        slots = chosen.context.slots
        settled = _choose(
            _machine(
                deployment, replace(question, slots=slots, total=slots * deployment.context_tokens)
            )
        )
        if settled.all_on_gpu or not chosen.all_on_gpu:
            chosen = replace(settled, by_kvroom=True)
    return chosen, warnings


def answer(deployment: Deployment) -> EngineAnswer:
    """What llama.cpp (or Ollama, or ik_llama.cpp) makes of the deployment."""
    chosen, warnings = _chosen(deployment)
    machine = chosen.machine
    refusal = _refusal(machine.s, deployment, chosen.context)
    loads = machine.loads(chosen.placement, chosen.context)
    short = [index for index, load in enumerate(loads) if load.total() > machine.free_bytes[index]]
    if not refusal and short:
        refusal = (
            f"GPU {short[0]} would have to hold {show_gib(loads[short[0]].total())} and has "
            f"{show_gib(machine.free_bytes[short[0]])}"
        )
    host = host_part(machine, chosen.placement, chosen.context)
    if not refusal:
        refusal = host_refusal(machine, host, sum(load.total() for load in loads))
    at = max(range(machine.gpus), key=lambda g: (loads[g].total() / machine.free_bytes[g], -g))
    rank = _rank(chosen, at, loads[at])
    return EngineAnswer(
        rank=rank,
        gpu_bytes=machine.gpu_bytes[at],
        mean_gpu_bytes=sum(machine.gpu_bytes) // machine.gpus if deployment.device.parts else None,
        accounts=_accounts(machine, loads[at], at),
        kv_bytes=loads[at].cache,
        capacity=_capacity(chosen, starts=not refusal),
        starts=not refusal,
        reason=refusal,
        host=host,
        context_tokens=_shortened(deployment, chosen.context),
        warnings=(*warnings, *_notes(chosen)),
    )


def _machine(deployment: Deployment, setup: LlamaCppSetup) -> ReplicaGpus:
    """The GPUs, as many as the engine uses; Ollama's batch, which follows their memory."""
    gpus = deployment.layout.pp
    machine = ReplicaGpus(deployment, setup, gpus)
    if deployment.engine != "ollama":
        return machine
    total = setup.total or deployment.context_tokens * (setup.slots or 1)
    predicted = ollama.predicted_bytes(deployment.model, deployment.weights.whole_bytes, total)
    if setup.auto_batch:
        batch = ollama.auto_batch(predicted, total, max(machine.free_bytes), setup.flash)
        setup = replace(setup, flags=replace(setup.flags, batch=batch, ubatch=batch))
    elif setup.spread == "fewest" and setup.flags.batch == 2048:
        setup = replace(setup, flags=replace(setup.flags, batch=512, ubatch=512))
    if setup.spread == "one or all" and predicted <= 0.8 * max(machine.free_bytes):
        gpus = 1
    if setup.spread == "fewest":
        context = setup.context(setup.slots or 1, total)
        trials = (ReplicaGpus(deployment, setup, number) for number in range(1, gpus))
        fit = (trial.gpus for trial in trials if trial.fits(trial.split(ALL), context))
        gpus = next(fit, gpus)
    return ReplicaGpus(deployment, setup, gpus)


def _choose(machine: ReplicaGpus) -> Chosen:
    """Slots, context and placement: as asked, fitted where left open, or as many as have room."""
    setup, deployment = machine.s, machine.d
    whole = _asked_placement(machine)
    by_kvroom = setup.slots is None and setup.total is None
    slots = setup.slots or 1
    total = setup.total
    if total == 0:
        total = deployment.model.max_context_tokens or deployment.context_tokens
    if total is None:
        total = _needed(setup, deployment, slots)
        if not deployment.context_given and setup.fit and not setup.cpu:
            least = min(total, padded(setup.flags.fit_context))
            total = machine.reduced_context(slots, total, least, whole)
    if by_kvroom:
        each = total

        def holds(n: int) -> bool:
            context = setup.context(n, each * n)
            if not machine.fits(whole, context):
                return False
            return n == 1 or not host_refusal(machine, host_part(machine, whole, context), 0)

        stores = bool(deployment.model.stores)
        slots = (most(holds, MOST_SLOTS) if stores else 0) or min(
            deployment.concurrency or 1, MOST_SLOTS
        )
        total = each * slots
    elif setup.auto_slots > 1:
        more = setup.context(setup.auto_slots, total * setup.auto_slots)
        if machine.fits(whole, more):
            slots, total = setup.auto_slots, more.tokens
    context = setup.context(slots, total)
    placement = whole
    if _may_move(setup) and not machine.fits(whole, context):
        placement = machine.fitted(context)
    return Chosen(machine, context, placement, by_kvroom)


def _shortened(deployment: Deployment, context: Context) -> int | None:
    """The context that --fit left of the model's own limit; None where it is whole, or was asked for."""
    return (
        context.limit
        if not deployment.context_given and context.limit < deployment.context_tokens
        else None
    )


def _needed(setup: LlamaCppSetup, deployment: Deployment, slots: int) -> int:
    """Tokens for ``slots`` slots of ``context_tokens`` each; one context where the server's own
    default number of slots shares it."""
    if setup.flags.auto_slots and setup.unified:
        return padded(deployment.context_tokens, setup.rules.padding)
    return padded(deployment.context_tokens, setup.rules.padding) * slots


def _asked_placement(machine: ReplicaGpus) -> Placement:
    setup = machine.s
    if setup.cpu:
        return machine.split(ALL)
    layers = setup.flags.gpu_layers
    if layers is None:
        layers = ALL if setup.rules.all_layers or setup.fit else 0
    return machine.split(layers)


def _may_move(setup: LlamaCppSetup) -> bool:
    """Whether --fit may move layers: nothing that bears on it is set by hand."""
    by_hand = (
        setup.flags.gpu_layers is not None or setup.flags.tensor_split or setup.flags.host_experts
    )
    rows = setup.flags.split_mode in ("row", "tensor")
    return setup.fit and not (by_hand or rows or setup.flags.overridden or setup.cpu)


def _refusal(setup: LlamaCppSetup, deployment: Deployment, context: Context) -> str:
    """Why llama.cpp would not build the cache, "" where it would."""
    for dtype in (setup.key, setup.value):
        if dtype.name not in TYPES:
            return f"it has no cache type {dtype.name} (q8_0 is as wide as one byte)"
    if context.slots > MOST_SLOTS:
        return f"{context.slots:,} slots are more than its {MOST_SLOTS} (parallel)"
    latent = (
        any(isinstance(kind, Latent) for kind, _ in deployment.model.stores) and not setup.expanded
    )
    if latent and setup.rules.latent == "latent" and setup.key != setup.value:
        return "latent attention stores keys only, and K and V types must then be equal"
    if setup.value.scale_bytes and not setup.flash and not latent:
        return f"values in {setup.value.name} need flash attention, and it is off"
    return ""


def _rank(chosen: Chosen, gpu: int, load: DeviceBytes) -> Rank:
    """What lies on that GPU, as a rank."""
    places = chosen.placement.places[:-1]
    held = runs(places, gpu)
    layers = list(chosen.machine.d.model.each_layer())
    kept = [layers[i] for i in held] if load.cache else []
    return Rank(
        stage=gpu,
        layers=held,
        weight_bytes=load.weights,
        read_bytes=load.weights,
        experts=(),
        stores=stores_of(kept),
    )


def _accounts(machine: ReplicaGpus, load: DeviceBytes, gpu: int) -> tuple[Account, ...]:
    known = machine.d.known_bytes

    def source(name: str, otherwise: str) -> str:
        return "measured" if name in known else otherwise

    graphs = known.get("graphs", 0)
    spent = load.total() + graphs
    return (
        account("weights", load.weights, source("weights", "config")),
        *((account("draft", load.draft, "config"),) if load.draft else ()),
        account("activations", load.compute[0], source("activations", "assumed"), load.compute[1:]),
        account("runtime", load.driver[0], source("runtime", "assumed"), load.driver[1:]),
        account("graphs", graphs, source("graphs", "engine rule")),
        account("kv", load.cache, "engine rule"),
        account("unused", machine.gpu_bytes[gpu] - spent, "engine rule"),
    )


def _capacity(chosen: Chosen, *, starts: bool) -> EngineCapacity:
    machine, context = chosen.machine, chosen.context
    setup, deployment = machine.s, machine.d
    stores = [kind for kind, _ in deployment.model.stores]
    near = next((kind.window_tokens for kind in stores if kind.window_tokens), 0)
    windowed = bool(near) and is_windowed(deployment.model) and setup.rules.windows
    tokens = _shortened(deployment, context) or deployment.context_tokens
    held = _held(setup, context, tokens)
    low, high = _ends(chosen, held, tokens) if stores else (None, None)
    return EngineCapacity(
        kv_tokens=context.tokens if any(not kind.recurrent for kind in stores) else None,
        max_concurrency=held if stores else None,
        max_context_tokens=_longest(chosen) if starts else _longest_alone(chosen),
        low=low,
        high=high,
        window_tokens=window_cells(setup, context, near) * context.streams if windowed else None,
        state_slots=context.slots * (1 + setup.flags.drafted)
        if any(kind.recurrent for kind in stores)
        else None,
        max_running_requests=context.slots,
    )


def _held(setup: LlamaCppSetup, context: Context, tokens: int) -> float:
    """Requests of ``tokens`` that the slots hold at once."""
    if setup.unified:
        return min(float(context.slots), context.tokens / tokens)
    return float(context.slots) if tokens <= context.limit else context.limit / tokens


def _ends(chosen: Chosen, held: float, tokens: int) -> tuple[float, float]:
    """The same where the estimated buffers are at the ends of their bands."""
    machine, context = chosen.machine, chosen.context
    fixed = replace(machine, s=replace(machine.s, margins=()))
    if _shortened(machine.d, context):
        return held, held  # it would be a little shorter or longer
    if not chosen.by_kvroom or not chosen.all_on_gpu:
        worst = fixed.fits(chosen.placement, context, 2)
        return (held if worst or _may_move(machine.s) else 0.0), held
    each = context.limit

    def at(end: int) -> float:
        n = most(
            lambda n: machine.fits(chosen.placement, machine.s.context(n, each * n), end),
            MOST_SLOTS,
        )
        return (
            _held(machine.s, machine.s.context(max(n, 1), each * max(n, 1)), tokens) if n else 0.0
        )

    return min(at(2), held), max(at(1), held)


def _longest(chosen: Chosen) -> int | None:
    """The longest request: what a slot holds, or what one slot alone could where kvroom chose."""
    if not chosen.by_kvroom or not chosen.all_on_gpu:
        return chosen.context.limit
    return _longest_alone(chosen)


def _longest_alone(chosen: Chosen) -> int | None:
    machine = chosen.machine
    stores = machine.d.model.stores
    if not any(kind.growth(machine.d.kv) for kind, _ in stores):
        return None
    step = max(machine.s.rules.padding, 1)
    found = longest_fit(
        lambda n: machine.fits(chosen.placement, machine.s.context(1, n * step)), LONGEST // step
    )
    return found * step


def _notes(chosen: Chosen) -> tuple[str, ...]:
    """How to get there, and what lies in host memory."""
    machine, context, placement = chosen.machine, chosen.context, chosen.placement
    setup, deployment = machine.s, machine.d
    notes: list[str] = []
    if chosen.by_kvroom:
        notes.append(_setting(deployment.engine, context, setup.auto_slots))
        if chosen.all_on_gpu and _may_move(setup) and (deployment.concurrency or 0) > context.slots:
            notes.append(
                f"asked for {deployment.concurrency} slots it would start, with layers in host memory"
            )
    if _shortened(deployment, context):
        notes.append(
            f"the context is fitted to the memory: {context.limit:,} of "
            f"{deployment.context_tokens:,} tokens (--fit)"
        )
    if setup.flags.overridden:
        notes.append("override_tensor is not followed: give cpu_moe or n_cpu_moe for experts")
    if machine.gpus < deployment.layout.pp:
        notes.append(
            f"Ollama uses {machine.gpus} of the {deployment.layout.pp} GPUs: the model fits there"
        )
    if not setup.cpu:
        notes.append(_host(chosen))
    forms = {kind.form for kind, _ in deployment.model.stores if isinstance(kind, RecurrentState)}
    if forms & {"rglru", "lightning"}:
        notes.append(f"llama.cpp does not run this model's recurrence ({', '.join(forms)})")
    if placement.on_gpu == 0 and not setup.cpu:
        why = "" if setup.rules.all_layers else " (n_gpu_layers is 0 by default in this release)"
        notes.append(f"no layer lies on a GPU{why}")
    rule = deployment.weights.quantisation.name
    if deployment.model.source != "gguf header" and rule not in (*MIXES, *PLAIN, "mxfp4"):
        notes.append(
            f"{deployment.engine} loads GGUF files: {rule} weights have none (weight_dtype q8_0 …)"
        )
    return tuple(notes)


def _setting(engine: str, context: Context, default: int) -> str:
    if engine == "ollama":
        slots = "1 slot" if default == 1 else f"{default} slots, 1 where they do not fit"
        return (
            f"these slots are OLLAMA_NUM_PARALLEL={context.slots} and num_ctx {context.limit} "
            f"(its default is {slots})"
        )
    return (
        f"these slots are --parallel {context.slots} --ctx-size {context.tokens} "
        "(without --parallel a server's slots share one context)"
    )


def _host(chosen: Chosen) -> str:
    """What host memory holds of the model and its cache."""
    machine, context, placement = chosen.machine, chosen.context, chosen.placement
    pieces, cache = machine.d.weights.pieces, machine.cache(context)
    away = [index for index, gpu in enumerate(placement.places[:-1]) if gpu == HOST]
    parts = [f"the token table ({show_gib(pieces.table)})"]
    if away:
        size = sum(pieces.layers[i] for i in away)
        parts.append(f"{len(away)} of {machine.layers} layers ({show_gib(size)})")
    experts = sum(
        pieces.experts[host_expert]
        for host_expert in placement.host_experts
        if host_expert not in away
    )
    if experts:
        n = sum(
            bool(pieces.experts[host_expert])
            for host_expert in placement.host_experts
            if host_expert not in away
        )
        parts.append(f"the experts of {n} layers ({show_gib(experts)})")
    on_gpu = machine.s.flags.kv_on_gpu
    stored = sum(cache) if not on_gpu else sum(cache[i] for i in away)
    if stored:
        parts.append(f"cache of {show_gib(stored)}")
    listed = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
    return f"in host memory: {listed}"
