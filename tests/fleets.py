"""Random fleets over the random engines of ``serving``, to be held against one engine or each other."""

from kvroom.engines.paged.scheduler_config import SchedulerConfig
from kvroom.engines.paged.scheduler_setup import GroupSpec, SchedulerSetup
from kvroom.kvcache.extents import ExtentPool
from kvroom.latency.clock import Reach, StepClock
from kvroom.scenario.autoscale import AUTOSCALERS
from kvroom.scenario.routing import ROUTING_POLICIES, Routing
from kvroom.simulator.autoscaling.concurrency import AtATime
from kvroom.simulator.autoscaling.hpa import PodMetrics, SummedMetrics
from kvroom.simulator.autoscaling.planner import ByLatency, ByThroughput
from kvroom.simulator.autoscaling.saturation import SpareCapacity
from kvroom.simulator.autoscaling.thresholds import Autoscale
from kvroom.simulator.event_engine import EventEngine
from kvroom.simulator.managed_cluster import ManagedCluster
from kvroom.simulator.replicas import ClusterOutcome, Failures, Replica
from kvroom.simulator.routed_pool import RoutedPool
from kvroom.simulator.router import Router
from kvroom.simulator.step_engine import StepEngine
from kvroom.simulator.transfer import TransferConnector, TransferLinks
from serving import Case, Noted

S = 1000
"""Picoseconds of a step of ``queue``."""


def queue(places, clock=None):
    """An engine with so many places whose steps take S whatever is in them."""
    flat = StepClock(
        step_ps=S, request_ps=0, token_ps=0, prompt_ps=0, reaches=(Reach(context_ps=0, pairs_ps=0),)
    )
    settings = SchedulerConfig(
        max_num_batched_tokens=10**6, max_num_seqs=places, max_model_len=10**6
    )
    engine = SchedulerSetup(
        num_gpu_blocks=10**6,
        groups=(GroupSpec(type="full", block_size=16),),
        enable_prefix_caching=False,
        prefix_cache_retention_interval=0,
        config=settings,
    )
    return Case(engine, clock or flat, 1, [])


class NotedLedger(ClusterOutcome, Noted):
    """A ClusterOutcome that keeps what each request met."""

    def __init__(self, replicas):
        Noted.__init__(self)
        self.replicas = replicas
        self.routers = {}
        self.on_prefilled = self.on_drop = None


def fleet_of(case, count, *, policy="round-robin", stale_s=0.0, jumps=True, **more):
    """``count`` replicas of the engine of ``case`` behind a router, and their ledger.

    ``more``: ``begin``, ``scale``, ``failures``, ``cold_ps``, ``follow``.
    """
    engine = case.engine
    usable, size = engine.num_gpu_blocks - 1, engine.groups[0].block_size
    replicas: list = []
    ledger = NotedLedger(replicas)
    follow = more.get("follow")
    router = Router(
        Routing(policy=policy, stale_s=stale_s), [usable * size] * count, case.unit * size, size
    )

    def after(live, now):
        fleet.after(live, now)
        return ()

    def make(place):
        told = after if follow else None
        if jumps:
            server = EventEngine(
                engine.config,
                ExtentPool(usable, case.unit),
                case.clock,
                ledger,
                block_tokens=size,
                caching=engine.enable_prefix_caching,
                follow=told,
            )
        else:
            server = StepEngine(engine.scheduler(), case.clock, ledger, follow=told, unit=case.unit)
        router.watch(place, server)
        return server

    replicas += [
        Replica(place=p, make=make, blocks=usable, cold_ps=more.get("cold_ps", 0))
        for p in range(count)
    ]
    pool = RoutedPool(
        replicas=replicas,
        router=router,
        begin=more.get("begin", count),
        scale=more.get("scale"),
        least=more.get("least", 1),
        grace_ps=more.get("grace_ps"),
    )
    fleet = ManagedCluster([pool], ledger, failures=more.get("failures"), linked=follow is not None)
    fleet.follow = follow
    return fleet, ledger


def split_fleet(case, prefill, decode, *, rate, latency_s=0.0, layerwise=False, failures=None):
    """``prefill`` replicas that compute prompts and ``decode`` that go on, over links of ``rate`` bytes a
    second; a token is a byte of cache. Gives the fleet and its ledger."""
    engine = case.engine
    usable, size = engine.num_gpu_blocks - 1, engine.groups[0].block_size
    replicas: list = []
    ledger = NotedLedger(replicas)
    links = TransferLinks(
        bytes_per_s=rate,
        latency_s=latency_s,
        layerwise=layerwise,
        layers=4,
        request_bytes=lambda tokens: tokens,
        longest_tokens=engine.config.max_model_len,
    )
    room = [usable * size] * (prefill + decode)
    routers = [Router(Routing(policy=p), room) for p in ("round-robin", "least-loaded")]

    def make(place):
        connector = TransferConnector(links, place, fleet.release) if place >= prefill else None
        return EventEngine(
            engine.config,
            ExtentPool(usable, case.unit),
            case.clock,
            ledger,
            block_tokens=size,
            caching=engine.enable_prefix_caching,
            connector=connector,
        )

    replicas += [Replica(place=p, make=make, blocks=usable) for p in range(prefill + decode)]
    pools = [
        RoutedPool(replicas=replicas[:prefill], router=routers[0], begin=prefill),
        RoutedPool(replicas=replicas[prefill:], router=routers[1], begin=decode),
    ]
    fleet = ManagedCluster(pools, ledger, failures=failures, links=links)
    return fleet, ledger


TIMES = ("sync", "up_window", "down_window", "up_period", "down_period", "rate_window", "polling")
TIMES += ("cooldown", "window", "zero_grace", "tick", "interval", "peak_window", "scrape")
SHORT = 1e-10
"""So many seconds are one of an autoscaler's in these fleets: 15 s are 1,500 ps."""


def said(policy, **given):
    """The settings of an autoscaler of the list, their times shortened, by name."""
    usual = {key: entry[0] for key, entry in AUTOSCALERS[policy].settings.items()} | given
    return lambda key: usual[key] * (SHORT if key in TIMES else 1)


def some_rule(dice, count, clock):
    """An autoscaler of the list with random targets, and the least that it may leave."""
    metric = dice.choice(["waiting", "running", "concurrency", "kv"])
    targets = {metric: dice.choice([0.3, 1.0, 4.0])}
    rules = {
        "hpa": lambda: PodMetrics(targets, said("hpa"), 1, count),
        "keda": lambda: SummedMetrics(
            {"concurrency": 1.0, **targets}, said("keda", cooldown=dice.choice([0, 60])), 0, count
        ),
        "knative": lambda: AtATime(said("knative", target=dice.choice([1, 10])), 0, count),
        "llm-d": lambda: SpareCapacity(said("llm-d", queue_threshold=dice.choice([5, 9]))),
        "dynamo-load": lambda: ByLatency(
            said("dynamo-load", ttft=dice.choice([1e-9, 1e-7]), itl=1e-8), clock, 64
        ),
        "dynamo-throughput": lambda: ByThroughput(said("dynamo-throughput", rps=1e8)),
    }
    name = dice.choice(list(rules))
    return rules[name](), 0 if AUTOSCALERS[name].zero else 1


def some_fleet(dice, case, **given):
    """A fleet of a random size whose replicas die, start and drain at random."""
    count = dice.randint(1, 5)
    span = max(r[0] for r in case.requests) + 5000
    deaths = [(dice.randrange(span), dice.randrange(count)) for _ in range(dice.randint(0, 4))]
    failures = Failures(
        at=sorted(deaths),
        mtbf_ps=dice.choice([None, None, 20 * span]),
        repair_ps=dice.choice([0, 100, span]),
        seed=dice.randrange(9),
    )
    scale = None
    begin = count
    if dice.random() < 0.5:
        begin = dice.randint(1, count)
        scale = Autoscale(
            least=1,
            most=count,
            every_ps=dice.choice([50, 1000]),
            cool_down_ps=dice.choice([0, 500]),
            queue=dice.choice([0.0, 2.0]),
            high=0.8,
            low=0.4,
        )
    least = 1
    if scale is not None and dice.random() < 0.7:
        scale, least = some_rule(dice, count, case.clock)
    settings = {
        "least": least,
        "policy": dice.choice(ROUTING_POLICIES),
        "stale_s": dice.choice([0.0, 0.0, 3e-10, 1e-8]),
        "begin": begin,
        "scale": scale,
        "failures": failures,
        "cold_ps": dice.choice([0, 300, 3000]),
    }
    return fleet_of(case, count, **(settings | given))
