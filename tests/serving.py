"""Random engines and requests, served from event to event and step by step, to be compared."""

from dataclasses import dataclass
from random import Random

from kvroom.engines.paged.scheduler_config import SchedulerConfig
from kvroom.engines.paged.scheduler_setup import GroupSpec, SchedulerSetup
from kvroom.kvcache.connector import RemoteHit
from kvroom.kvcache.extents import ExtentPool, RequestExtents
from kvroom.kvcache.request import ServedRequest
from kvroom.latency.clock import PAIRS, Reach, StepClock
from kvroom.simulator.event_engine import EventEngine
from kvroom.simulator.group_engine import GroupEngine
from kvroom.simulator.metrics import Outcome
from kvroom.simulator.step_engine import StepEngine


class Noted(Outcome):
    """An Outcome that keeps what each request met."""

    def __init__(self):
        super().__init__(on_over=self.told)
        self.rows = {}
        self.first_ps = {}
        self.done_ps = {}
        self.gone = set()
        self.found = {}

    def first(self, live):
        super().first(live)
        self.first_ps[live.index] = live.first_token_ps

    def done(self, live, end):
        self.done_ps[live.index] = end
        return super().done(live, end)

    def told(self, live, end):
        """As a row a request tells of it."""
        self.rows[live.index] = end, live.num_preemptions

    def drop(self, live, now):
        super().drop(live, now)
        self.gone.add(live.index)

    def admitted(self, live, cached_tokens):
        super().admitted(live, cached_tokens)
        self.found.setdefault(live.index, []).append(cached_tokens)

    def samples(self):
        """Every gap, in order of size."""
        gaps = self.gaps
        gaps.settle()
        runs = (run for piece in gaps.pieces() for run in zip(*piece, strict=True))
        return sorted(f + s * i for f, s, n, w in runs for i in range(n) for _ in range(w))


@dataclass
class Case:
    """An engine with a full-attention group, its clock, and who comes."""

    engine: SchedulerSetup
    clock: StepClock
    unit: int
    requests: list  # (arrival_ps, prompt, output, names, named, priority)

    def lives(self):
        """The requests anew, each with what it can share."""
        sharing = self.engine.enable_prefix_caching
        for index, (arrival, prompt, output, names, named, priority) in enumerate(self.requests):
            held = RequestExtents(names, named) if sharing and named else None
            live = ServedRequest(index, arrival, prompt, output, extents=held)
            live.priority = priority
            yield live


def jumped(case, random=None, connector=None):
    """The EventEngine and its Noted outcome once all are served; pushed piecemeal where ``random`` says."""
    out, engine = Noted(), case.engine
    server = EventEngine(
        engine.config,
        ExtentPool(engine.num_gpu_blocks - 1, case.unit),
        case.clock,
        out,
        block_tokens=engine.groups[0].block_size,
        caching=engine.enable_prefix_caching,
        connector=connector,
        events=connector,
    )
    for live in case.lives():
        server.push(live)
        if random is not None and random.random() < 0.3:
            server.advance(live.arrival)
    assert server.advance()
    return server, out


def stepped(case, connector=None, *, runs=False):
    """The StepEngine and its Noted outcome once all are served: step by step, or in runs of decode steps."""
    out = Noted()
    stepper = StepEngine(
        case.engine.scheduler(),
        case.clock,
        out,
        unit=case.unit,
        connector=connector,
        events=connector,
    )
    if not runs:
        stepper.decode_runs = False
        stepper.scheduler.cache.quiet = False
    for live in case.lives():
        stepper.push(live)
    assert stepper.advance()
    return stepper, out


def same(case, random=None, connectors=(None, None)):
    """Serve ``case`` both ways and hold one against the other; gives the EventEngine's outcome."""
    server, fast = jumped(case, random, connectors[0])
    stepper, slow = stepped(case, connectors[1])
    assert fast.first_ps == slow.first_ps
    assert fast.done_ps == slow.done_ps
    assert fast.rows == slow.rows
    assert fast.gone == slow.gone
    assert fast.found == slow.found
    assert fast.preempted == slow.preempted
    assert server.peak_blocks == stepper.peak_blocks
    if not fast.gone:
        assert fast.samples() == slow.samples()
    assert server.pool.free == server.pool.usable
    assert (server.running_count, server.waiting_count) == (0, 0)
    return fast


def in_groups(case, random):
    """The GroupEngine and its Noted outcome once all are served, pushed piecemeal."""
    out = Noted()
    server = GroupEngine(case.engine, case.clock, out, unit=case.unit)
    for live in case.lives():
        server.push(live)
        if random.random() < 0.3:
            server.advance(live.arrival)
    assert server.advance()
    return server, out


def same_in_groups(case, random):
    """Serve ``case`` over its layer groups in jumps and step by step, and hold one against the other. Where a
    request that the pool cannot hold is given up, how often it tries before may differ by one."""
    server, fast = in_groups(case, random)
    stepper, slow = stepped(case)
    assert server.pool.free == server.pool.usable
    assert (server.running_count, server.waiting_count) == (0, 0)
    if slow.gone & set(slow.found):
        return fast
    assert fast.first_ps == slow.first_ps
    assert fast.done_ps == slow.done_ps
    assert fast.rows == slow.rows
    assert fast.gone == slow.gone
    assert fast.found == slow.found
    assert fast.preempted == slow.preempted
    assert server.peak_blocks == stepper.peak_blocks
    assert fast.samples() == slow.samples()
    return fast


def same_in_runs(case):
    """Serve ``case`` step by step and in runs of decode steps, and hold one against the other."""
    plain, slow = stepped(case)
    stepper, fast = stepped(case, runs=True)
    assert fast.first_ps == slow.first_ps
    assert fast.done_ps == slow.done_ps
    assert fast.rows == slow.rows
    assert fast.gone == slow.gone
    assert fast.found == slow.found
    assert fast.preempted == slow.preempted
    assert fast.samples() == slow.samples()
    assert stepper.peak_blocks == plain.peak_blocks
    assert stepper.decide == plain.decide
    pools = stepper.scheduler.cache.pool, plain.scheduler.cache.pool
    assert pools[0].cached == pools[1].cached
    assert pools[0].free == pools[1].free
    assert pools[0].in_use == pools[1].in_use == 0
    return fast


def some_groups(random):
    """Layer groups of several kinds, as models mix them."""
    size = random.choice([2, 4, 8])
    full = GroupSpec(type="full", block_size=size)
    window = GroupSpec(type="sliding_window", block_size=size, reach=random.choice([3, 8, 17]))
    chunk = GroupSpec(type="chunked_local", block_size=size, reach=random.choice([8, 24]))
    state = GroupSpec(type="mamba", block_size=size)
    wide = GroupSpec(type="full", block_size=2 * size)
    kinds = [(full, window), (window,), (full, chunk), (full, state), (full, window, chunk)]
    return random.choice([*kinds, (full, state, state), (wide, window), (full, window, window)])


def counted_groups(random, size, *, states):
    """Layer groups whose kinds stand together, with blocks of ``size``."""
    pick = random.choice
    full = GroupSpec(type="full", block_size=size)
    window = GroupSpec(
        type="sliding_window", block_size=size, reach=pick([2, 3, 4, 5, 8, 9, 16, 17, 33])
    )
    wider = GroupSpec(type="sliding_window", block_size=size, reach=pick([6, 12, 24]))
    chunk = GroupSpec(type="chunked_local", block_size=size, reach=pick([8, 10, 24]))
    state = GroupSpec(type="mamba", block_size=size, prefill_checkpoint=pick([0, 0, 1, size]))
    if states:
        return pick([(full, state), (state, state, full), (state, full), (state, window, full)])
    kinds = [(full, window), (window,), (full, chunk), (window, full), (window, window, full)]
    return pick(
        [*kinds, (window, wider, full), (chunk, chunk, full), (full, full, window), (full,)]
    )


def some_engine(random):
    """SchedulerConfig that make blocks, tokens and places give out."""
    pick = random.choice
    longest = pick([20, 50, 100, 400])
    chunked = random.random() < 0.8
    tokens = pick([4, 8, 16, 32, 100, 1000])
    settings = SchedulerConfig(
        max_num_batched_tokens=tokens if chunked else max(tokens, longest),
        max_num_seqs=pick([1, 2, 4, 8, 64]),
        max_model_len=longest,
        enable_chunked_prefill=chunked,
        long_prefill_token_threshold=pick([0, 0, 0, 3, 10]),
        watermark=pick([0, 0, 0.05, 0.2]),
        scheduler_reserve_full_isl=random.random() < 0.7,
        async_scheduling=random.random() < 0.5,
        policy=pick(["fcfs", "fcfs", "priority"]),
    )
    return SchedulerSetup(
        num_gpu_blocks=random.randint(4, 60),
        groups=(GroupSpec(type="full", block_size=pick([1, 2, 4, 16])),),
        enable_prefix_caching=random.random() < 0.75,
        prefix_cache_retention_interval=0,
        config=settings,
    )


def some_clock(random):
    """A clock whose steps last some hundred picoseconds."""
    near = Reach(context_ps=5, pairs_ps=PAIRS + 4464, tokens=random.choice([1, 8, 30]))
    full = Reach(context_ps=7, pairs_ps=3 * PAIRS)
    flat = Reach(context_ps=0, pairs_ps=0)
    reaches = random.choice([(full,), (full, near), (flat,)])
    return StepClock(step_ps=100, request_ps=3, token_ps=2, prompt_ps=11, reaches=reaches)


def some_case(random):
    """Requests that share the beginnings of their prompts, or nothing."""
    engine = some_engine(random)
    size = engine.groups[0].block_size
    unit = random.choice([1, 1, 2, 4])
    shares = random.random() < 0.6
    gap = random.choice([1, 50, 300, 2000]) * 10
    known: dict = {}
    requests = []
    now = 0
    for _ in range(random.randint(1, 30)):
        now += random.choice([0, random.randint(0, gap)])
        longest = min(engine.config.max_model_len + 3, 120)
        prompt = random.randint(1, random.choice([10, 40, longest]))
        output = random.randint(0, random.choice([3, 30, 60]))
        names, path = [], ()
        for _ in range(prompt // (size * unit) + random.randint(0, 1) if shares else 0):
            path = (*path, random.randint(0, 1) if random.random() < 0.3 else 0)
            names.append(known.setdefault(path, len(known) + 1))
        named = min(prompt // size, len(names) * unit)
        requests.append((now, prompt, output, names, named, random.randint(0, 2)))
    return Case(engine, some_clock(random), unit, requests)


def some_chats(random):
    """Chats: prompts that begin with earlier prompts and their answers, which may still be running."""
    engine = some_engine(random)
    size = engine.groups[0].block_size
    gap = random.choice([1, 50, 300, 2000]) * 10
    made = 0
    now = 0

    def fresh(count):
        nonlocal made
        made += count
        return list(range(made - count, made))

    systems = [fresh(random.randint(0, 3 * size)) for _ in range(2)]
    said: list = []
    requests = []
    for _ in range(random.randint(1, 30)):
        now += random.choice([0, random.randint(0, gap)])
        output = random.randint(1, random.choice([3, 30]))
        before = random.choice(said) if said and random.random() < 0.5 else random.choice(systems)
        prompt = before + fresh(random.randint(1, 2 * size + 3))
        if len(prompt) > engine.config.max_model_len + 5:
            prompt = fresh(5)
        whole = prompt + fresh(output)
        said.append(whole)
        ends = range(size, len(whole) + 1, size)
        names = [hash(tuple(whole[:end])) & 0xFFFFFFFFFF for end in ends]
        requests.append((now, len(prompt), output, names, len(names), random.randint(0, 2)))
    return Case(engine, some_clock(random), 1, requests)


class Fickle:
    """A KVConnector whose offers depend on who asks and what it finds, and KVEvents that keep what they hear.

    Some offers are there at once, some late, some hand over all but the last token.
    """

    wants_removed = True

    def __init__(self, block_tokens, salt, slowest):
        self.block_tokens = block_tokens
        self.salt = salt
        self.slowest = slowest
        self.heard = [([], [], [])]  # by admission: it, the pages filled since, those evicted
        self.late = 0

    def lookup(self, live, now, found, limit):
        dice = Random(f"{self.salt} {live.index} {live.num_preemptions} {found}")
        if dice.random() < 0.4 or live.num_tokens <= found + 1:
            return None
        blocks = (limit - found) // self.block_tokens
        tokens = found + dice.randint(0, blocks) * self.block_tokens
        if dice.random() < 0.3:
            tokens = live.num_tokens - 1
        if tokens <= found:
            return None
        wait = dice.choice([0, dice.randint(0, self.slowest)])
        return RemoteHit(tokens, now + wait, "note")

    def allocated(self, live, now, found, brought):
        self.late += brought is not None and brought.ready_ps > now
        self.heard.append(([now, live.index, found, brought], [], []))

    def stored(self, names, blocks, first=0):
        self.heard[-1][1].extend([*names, *["unnamed"] * blocks])

    def removed(self, names, blocks):
        self.heard[-1][2].extend([*names, *["unnamed"] * blocks])
