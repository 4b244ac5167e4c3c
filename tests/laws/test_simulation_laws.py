"""Laws of the simulation: no block is lost or held twice, no request is lost, same script same run."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kvroom.errors import KvroomError
from kvroom.kvcache.block_pool import BlockPool
from kvroom.kvcache.tokens import BlockHashes
from kvroom.simulator.replay import play
from kvroom.simulator.script import Script


class Pool(RuleBasedStateMachine):
    """A block pool against a model of it: plain lists and dicts."""

    BLOCKS = 12

    def __init__(self):
        super().__init__()
        self.pool = BlockPool(self.BLOCKS + 1)
        self.free = list(range(1, self.BLOCKS + 1))
        self.held = {}  # block: references
        self.keys = {}  # block: keys
        self.order = {}  # key: blocks in the order of registration

    def drop_keys(self, block):
        for key in self.keys.pop(block, []):
            self.order[key].remove(block)
            if not self.order[key]:
                del self.order[key]

    @rule(data=st.data())
    def take(self, data):
        count = data.draw(st.integers(0, len(self.free)))
        taken = self.pool.get_new_blocks(count)
        assert taken == self.free[:count]
        assert not set(taken) & set(self.held)
        del self.free[:count]
        for block in taken:
            self.drop_keys(block)
            self.held[block] = 1

    @precondition(lambda self: self.held)
    @rule(data=st.data(), key=st.integers(1, 6))
    def register(self, data, key):
        block = data.draw(st.sampled_from(sorted(self.held)))
        self.pool.cache_block(block, key, 16)
        if key not in self.keys.setdefault(block, []):
            self.keys[block].append(key)
            self.order.setdefault(key, []).append(block)

    @rule(key=st.integers(1, 6))
    def hit(self, key):
        block = self.pool.get_cached_block(key)
        assert block == self.order.get(key, [0])[0]
        self.pool.touch(block)
        if block:
            if block in self.free:
                self.free.remove(block)
            self.held[block] = self.held.get(block, 0) + 1

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data):
        chosen = data.draw(st.lists(st.sampled_from(sorted(self.held)), unique=True))
        self.pool.free_blocks(chosen)
        plain, kept = [], []
        for block in chosen:
            self.held[block] -= 1
            if not self.held[block]:
                del self.held[block]
                (kept if self.keys.get(block) else plain).append(block)
        self.free = plain + self.free + kept

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def forget(self, data):
        block = data.draw(st.sampled_from(sorted(self.held)))
        assert self.pool.uncache(block) == self.keys.get(block, [])
        self.drop_keys(block)

    @invariant()
    def free_and_held_are_all(self):
        assert self.pool.free_order() == self.free
        assert self.pool.free == len(self.free)
        assert self.pool.in_use == len(self.held)
        assert self.pool.free + self.pool.in_use == self.BLOCKS
        assert self.pool.cached == len(self.order)
        for block, references in self.held.items():
            assert self.pool.references[block] == references


Pool.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestPool = Pool.TestCase


SIZES = st.sampled_from([2, 4, 8])


def groups(caching):
    size = st.shared(SIZES, key="size")
    kinds = st.one_of(
        st.fixed_dictionaries({"type": st.just("full"), "block_size": size}),
        st.fixed_dictionaries(
            {"type": st.just("sliding_window"), "block_size": size, "window": st.integers(1, 20)}
        ),
        st.fixed_dictionaries(
            {"type": st.just("chunked_local"), "block_size": size, "chunk": st.just(8)}
        ),
        st.fixed_dictionaries(
            {"type": st.just("mamba"), "block_size": size if caching else st.just(64)}
        ),
    )
    return st.lists(kinds, min_size=1, max_size=4)


@st.composite
def scripts(draw):
    caching = draw(st.booleans())
    engine = {
        "num_gpu_blocks": draw(st.integers(2, 60)),
        "groups": draw(groups(caching)),
        "max_num_batched_tokens": draw(st.sampled_from([8, 9, 24, 64])),
        "max_num_seqs": draw(st.integers(1, 6)),
        "enable_prefix_caching": caching,
        "max_model_len": 64,
    }
    options = st.fixed_dictionaries(
        {},
        optional={
            "long_prefill_token_threshold": st.integers(0, 9),
            "watermark": st.sampled_from([0.0, 0.1, 0.5]),
            "scheduler_reserve_full_isl": st.booleans(),
            "async_scheduling": st.booleans(),
            "policy": st.sampled_from(["fcfs", "priority"]),
        },
    )
    engine |= draw(options)
    run = st.tuples(st.sampled_from([0, 4, 100]), st.integers(1, 30)).map(list)
    rows = st.fixed_dictionaries(
        {
            "arrival_step": st.integers(0, 12),
            "prompt": st.lists(run, min_size=1, max_size=3),
            "output": st.lists(run, min_size=1, max_size=1),
            "priority": st.integers(0, 2),
        }
    )
    return {"engine": engine, "requests": draw(st.lists(rows, max_size=7))}


@given(scripts())
@settings(max_examples=150, deadline=None)
def test_no_request_is_lost_and_every_block_comes_back(script):
    asked = Script.from_dict(script)
    rules = asked.engine.scheduler()
    entered = []
    in_flight = rules.steps_in_flight

    def scheduled(made, seen):
        assert 0 < made.tokens <= asked.engine.config.max_num_batched_tokens
        assert seen.running_count <= asked.engine.config.max_num_seqs
        assert seen.blocks_in_use <= asked.engine.num_gpu_blocks - 1
        held = {b for s in rules.running for table in s.block_tables for b in table if b}
        assert len(held) == seen.blocks_in_use
        entered.append(made.step)

    played = play(rules, asked.served(), on_scheduled=scheduled)
    totals = played.totals
    assert totals.completed + totals.dropped == len(script["requests"])
    assert totals.preemptions == sum(r.preemptions for r in played.requests)
    assert totals.cached_tokens_all == sum(r.cached_tokens_all for r in played.requests)
    assert (rules.blocks_in_use, rules.running_count, rules.waiting_count) == (0, 0, 0)
    assert entered == sorted(set(entered))  # the clock never goes back
    assert in_flight == (2 if asked.engine.config.async_scheduling else 1)
    for record, request in zip(played.requests, asked.requests, strict=True):
        if not record.dropped:
            steps = (record.first_scheduled_step, record.first_token_step, record.finish_step)
            assert request.arrival_step <= steps[0] <= steps[1] <= steps[2]
            known = sum(n for _, n in request.prompt)
            assert record.cached_tokens_first < known


@given(scripts())
@settings(max_examples=40, deadline=None)
def test_the_same_script_gives_the_same_run(script):
    assert Script.from_dict(script).play().to_dict() == Script.from_dict(script).play().to_dict()


@given(scripts())
@settings(max_examples=60, deadline=None)
def test_every_output_token_takes_a_step(script):
    asked = Script.from_dict(script)
    for record, request in zip(asked.play().requests, asked.requests, strict=True):
        if not record.dropped:
            prompt, output = (sum(n for _, n in runs) for runs in (request.prompt, request.output))
            tokens = min(output, asked.engine.config.max_model_len - prompt)
            assert record.finish_step - record.first_token_step >= tokens - 1


RUNS = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), max_size=6)


@given(RUNS, RUNS, st.integers(1, 5))
def test_hashes_are_equal_just_where_the_tokens_are(one, other, block_tokens):
    def ids(runs):
        return [token for first, count in runs for token in range(first, first + count)]

    pairs = zip(
        BlockHashes(one, block_tokens).first(99),
        BlockHashes(other, block_tokens).first(99),
        strict=False,
    )
    for place, (left, right) in enumerate(pairs):
        end = (place + 1) * block_tokens
        assert (left == right) == (ids(one)[:end] == ids(other)[:end])


LEAF = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
ANY = st.recursive(
    LEAF, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner)
)


@given(scripts(), st.data())
@settings(max_examples=150, deadline=None)
def test_any_value_in_a_script_is_taken_or_told(script, data):
    place, value = data.draw(st.sampled_from(["engine", "request", "group"])), data.draw(ANY)
    target = {
        "engine": script["engine"],
        "request": (script["requests"] or [{}])[0],
        "group": script["engine"]["groups"][0],
    }[place]
    if target:
        target[data.draw(st.sampled_from(sorted(target)))] = value
    try:
        Script.from_dict(script)
    except KvroomError as error:
        assert error.fix
        error.as_dict()
