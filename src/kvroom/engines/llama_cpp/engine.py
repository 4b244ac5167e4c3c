"""llama.cpp's answer: slots and cells, where layers lie, and what each GPU then holds."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvroom.answer.plan import Account, EngineCapacity
from kvroom.engines.base import EngineAnswer, account
from kvroom.engines.llama_cpp import ollama
from kvroom.engines.llama_cpp.cells import is_windowed, state_bytes, window_cells
from kvroom.engines.llama_cpp.context import Context, padded
from kvroom.engines.llama_cpp.flags import ALL, TYPES
from kvroom.engines.llama_cpp.placement import HOST, DeviceBytes, Placement, ReplicaGpus, most, runs
from kvroom.engines.llama_cpp.setup import LlamaCppSetup, is_cpu, setup
from kvroom.models.kinds import Latent, RecurrentState
from kvroom.models.quantization.base import PLAIN
from kvroom.models.quantization.ggml import MIXES
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


def cache_sizes(d: Deployment) -> CacheSizes:
    """The cache as the log of this deployment's start prints it."""
    chosen = _chosen(d)[0]
    c = chosen.context
    state = sum(state_bytes(chosen.machine.s, layer, c) for layer in d.model.each_layer())
    return CacheSizes(
        attention=sum(chosen.machine.cache(c)) - state,
        state=state,
        cells=c.cells,
        streams=c.streams,
        on_gpus=tuple(load.cache for load in chosen.machine.loads(chosen.placement, c)),
    )


def _chosen(d: Deployment) -> tuple[Chosen, tuple[str, ...]]:
    s, warnings = setup(d.engine, d.version, d.args, d.model, d.kv_asked, cpu=is_cpu(d.device))
    chosen = _choose(_machine(d, s))
    if d.engine == "ollama" and chosen.by_kvroom:
        # its batch and GPUs follow the tokens of all slots, which are known only now
        slots = chosen.context.slots
        settled = _choose(_machine(d, replace(s, slots=slots, total=slots * d.context_tokens)))
        if settled.all_on_gpu or not chosen.all_on_gpu:
            chosen = replace(settled, by_kvroom=True)
    return chosen, warnings


def answer(d: Deployment) -> EngineAnswer:
    """What llama.cpp (or Ollama, or ik_llama.cpp) makes of the deployment."""
    chosen, warnings = _chosen(d)
    machine = chosen.machine
    refusal = _refusal(machine.s, d, chosen.context)
    loads = machine.loads(chosen.placement, chosen.context)
    short = [i for i, load in enumerate(loads) if load.total() > machine.free_bytes]
    if not refusal and short:
        refusal = (
            f"GPU {short[0]} would have to hold {show_gib(loads[short[0]].total())} and has "
            f"{show_gib(machine.free_bytes)}"
        )
    at = max(range(machine.gpus), key=lambda g: (loads[g].total(), -g))
    rank = _rank(chosen, at, loads[at])
    return EngineAnswer(
        rank=rank,
        gpu_bytes=machine.gpu_bytes,
        accounts=_accounts(machine, loads[at]),
        kv_bytes=loads[at].cache,
        capacity=_capacity(chosen, starts=not refusal),
        starts=not refusal,
        reason=refusal,
        context_tokens=_shortened(d, chosen.context),
        warnings=(*warnings, *_notes(chosen)),
    )


def _machine(d: Deployment, s: LlamaCppSetup) -> ReplicaGpus:
    """The GPUs, as many as the engine uses; Ollama's batch, which follows their memory."""
    gpus = d.layout.pp
    machine = ReplicaGpus(d, s, gpus)
    if d.engine != "ollama":
        return machine
    total = s.total or d.context_tokens * (s.slots or 1)
    predicted = ollama.predicted_bytes(d.model, d.weights.whole_bytes, total)
    if s.auto_batch:
        batch = ollama.auto_batch(predicted, total, machine.free_bytes, s.flash)
        s = replace(s, flags=replace(s.flags, batch=batch, ubatch=batch))
    elif s.spread == "fewest" and s.flags.batch == 2048:
        s = replace(s, flags=replace(s.flags, batch=512, ubatch=512))
    if s.spread == "one or all" and predicted <= 0.8 * machine.free_bytes:
        gpus = 1
    if s.spread == "fewest":
        c = s.context(s.slots or 1, total)
        trials = (ReplicaGpus(d, s, n) for n in range(1, gpus))
        fit = (m.gpus for m in trials if m.fits(m.split(ALL), c))
        gpus = next(fit, gpus)
    return ReplicaGpus(d, s, gpus)


def _choose(machine: ReplicaGpus) -> Chosen:
    """Slots, context and placement: as asked, fitted where left open, or as many as have room."""
    s, d = machine.s, machine.d
    whole = _asked_placement(machine)
    by_kvroom = s.slots is None and s.total is None
    slots = s.slots or 1
    total = s.total
    if total == 0:
        total = d.model.max_context_tokens or d.context_tokens
    if total is None:
        total = _needed(s, d, slots)
        if not d.context_given and s.fit and not s.cpu:
            least = min(total, padded(s.flags.fit_context))
            total = machine.reduced_context(slots, total, least, whole)
    if by_kvroom:
        each = total

        def holds(n: int) -> bool:
            return machine.fits(whole, s.context(n, each * n))

        stores = bool(d.model.stores)
        slots = (most(holds, MOST_SLOTS) if stores else 0) or min(d.concurrency or 1, MOST_SLOTS)
        total = each * slots
    context = s.context(slots, total)
    placement = whole
    if _may_move(s) and not machine.fits(whole, context):
        placement = machine.fitted(context)
    return Chosen(machine, context, placement, by_kvroom)


def _shortened(d: Deployment, c: Context) -> int | None:
    """The context that --fit left of the model's own limit; None where it is whole, or was asked for."""
    return c.limit if not d.context_given and c.limit < d.context_tokens else None


def _needed(s: LlamaCppSetup, d: Deployment, slots: int) -> int:
    """Tokens for ``slots`` slots of ``context_tokens`` each; one context where the server's own
    default number of slots shares it."""
    if s.flags.auto_slots and s.unified:
        return padded(d.context_tokens, s.rules.padding)
    return padded(d.context_tokens, s.rules.padding) * slots


def _asked_placement(machine: ReplicaGpus) -> Placement:
    s = machine.s
    if s.cpu:
        return machine.split(ALL)
    layers = s.flags.gpu_layers
    if layers is None:
        layers = ALL if s.rules.all_layers or s.fit else 0
    return machine.split(layers)


def _may_move(s: LlamaCppSetup) -> bool:
    """Whether --fit may move layers: nothing that bears on it is set by hand."""
    by_hand = s.flags.gpu_layers is not None or s.flags.tensor_split or s.flags.host_experts
    rows = s.flags.split_mode in ("row", "tensor")
    return s.fit and not (by_hand or rows or s.flags.overridden or s.cpu)


def _refusal(s: LlamaCppSetup, d: Deployment, c: Context) -> str:
    """Why llama.cpp would not build the cache, "" where it would."""
    for dtype in (s.key, s.value):
        if dtype.name not in TYPES:
            return f"it has no cache type {dtype.name} (q8_0 is as wide as one byte)"
    if c.slots > MOST_SLOTS:
        return f"{c.slots:,} slots are more than its {MOST_SLOTS} (parallel)"
    latent = any(isinstance(k, Latent) for k, _ in d.model.stores) and not s.expanded
    if latent and s.rules.latent == "latent" and s.key != s.value:
        return "latent attention stores keys only, and K and V types must then be equal"
    if s.value.scale_bytes and not s.flash and not latent:
        return f"values in {s.value.name} need flash attention, and it is off"
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


def _accounts(machine: ReplicaGpus, load: DeviceBytes) -> tuple[Account, ...]:
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
        account("unused", machine.gpu_bytes - spent, "engine rule"),
    )


def _capacity(chosen: Chosen, *, starts: bool) -> EngineCapacity:
    machine, c = chosen.machine, chosen.context
    s, d = machine.s, machine.d
    stores = [k for k, _ in d.model.stores]
    near = next((k.window_tokens for k in stores if k.window_tokens), 0)
    windowed = bool(near) and is_windowed(d.model) and s.rules.windows
    tokens = _shortened(d, c) or d.context_tokens
    held = _held(s, c, tokens)
    low, high = _ends(chosen, held, tokens) if stores else (None, None)
    return EngineCapacity(
        kv_tokens=c.tokens if any(not k.recurrent for k in stores) else None,
        max_concurrency=held if stores else None,
        max_context_tokens=_longest(chosen) if starts else _longest_alone(chosen),
        low=low,
        high=high,
        window_tokens=window_cells(s, c, near) * c.streams if windowed else None,
        state_slots=c.slots * (1 + s.flags.drafted) if any(k.recurrent for k in stores) else None,
        max_running_requests=c.slots,
    )


def _held(s: LlamaCppSetup, c: Context, tokens: int) -> float:
    """Requests of ``tokens`` that the slots hold at once."""
    if s.unified:
        return min(float(c.slots), c.tokens / tokens)
    return float(c.slots) if tokens <= c.limit else c.limit / tokens


def _ends(chosen: Chosen, held: float, tokens: int) -> tuple[float, float]:
    """The same where the estimated buffers are at the ends of their bands."""
    machine, c = chosen.machine, chosen.context
    fixed = replace(machine, s=replace(machine.s, margins=()))
    if _shortened(machine.d, c):
        return held, held  # it would be a little shorter or longer
    if not chosen.by_kvroom or not chosen.all_on_gpu:
        worst = fixed.fits(chosen.placement, c, 2)
        return (held if worst or _may_move(machine.s) else 0.0), held
    each = c.limit

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
    if not any(k.growth(machine.d.kv) for k, _ in stores):
        return None
    step = max(machine.s.rules.padding, 1)
    found = longest_fit(
        lambda n: machine.fits(chosen.placement, machine.s.context(1, n * step)), LONGEST // step
    )
    return found * step


def _notes(chosen: Chosen) -> tuple[str, ...]:
    """How to get there, and what lies in host memory."""
    machine, c, p = chosen.machine, chosen.context, chosen.placement
    s, d = machine.s, machine.d
    made: list[str] = []
    if chosen.by_kvroom:
        made.append(_setting(d.engine, c))
        if chosen.all_on_gpu and _may_move(s) and (d.concurrency or 0) > c.slots:
            made.append(
                f"asked for {d.concurrency} slots it would start, with layers in host memory"
            )
    if _shortened(d, c):
        made.append(
            f"the context is fitted to the memory: {c.limit:,} of {d.context_tokens:,} tokens (--fit)"
        )
    if s.flags.overridden:
        made.append("override_tensor is not followed: give cpu_moe or n_cpu_moe for experts")
    if machine.gpus < d.layout.pp:
        made.append(f"Ollama uses {machine.gpus} of the {d.layout.pp} GPUs: the model fits there")
    if not s.cpu:
        made.append(_host(chosen))
    forms = {k.form for k, _ in d.model.stores if isinstance(k, RecurrentState)}
    if forms & {"rglru", "lightning"}:
        made.append(f"llama.cpp does not run this model's recurrence ({', '.join(forms)})")
    if p.on_gpu == 0 and not s.cpu:
        why = "" if s.rules.all_layers else " (n_gpu_layers is 0 by default in this release)"
        made.append(f"no layer lies on a GPU{why}")
    rule = d.weights.quantisation.name
    if d.model.source != "gguf header" and rule not in (*MIXES, *PLAIN, "mxfp4"):
        made.append(f"{d.engine} loads GGUF files: {rule} weights have none (weight_dtype q8_0 …)")
    return tuple(made)


def _setting(engine: str, c: Context) -> str:
    if engine == "ollama":
        return f"these slots are OLLAMA_NUM_PARALLEL={c.slots} and num_ctx {c.limit} (its default is 1 slot)"
    return (
        f"these slots are --parallel {c.slots} --ctx-size {c.tokens} "
        "(without --parallel a server's slots share one context)"
    )


def _host(chosen: Chosen) -> str:
    """What host memory holds of the model and its cache."""
    machine, c, p = chosen.machine, chosen.context, chosen.placement
    pieces, cache = machine.d.weights.pieces, machine.cache(c)
    away = [i for i, gpu in enumerate(p.places[:-1]) if gpu == HOST]
    parts = [f"the token table ({show_gib(pieces.table)})"]
    if away:
        size = sum(pieces.layers[i] for i in away)
        parts.append(f"{len(away)} of {machine.layers} layers ({show_gib(size)})")
    experts = sum(pieces.experts[i] for i in p.host_experts if i not in away)
    if experts:
        n = sum(bool(pieces.experts[i]) for i in p.host_experts if i not in away)
        parts.append(f"the experts of {n} layers ({show_gib(experts)})")
    on_gpu = machine.s.flags.kv_on_gpu
    stored = sum(cache) if not on_gpu else sum(cache[i] for i in away)
    if stored:
        parts.append(f"cache of {show_gib(stored)}")
    listed = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
    return f"in host memory: {listed}"
