"""Laws of the answer, for any model of the catalogue: room, bytes on ranks, traffic, round trips."""

import json
from math import isclose

from hypothesis import assume, given
from hypothesis import strategies as st

from kvroom.errors import KvroomError
from kvroom.models import catalogue
from kvroom.models.dtypes import CACHE_DTYPES
from kvroom.scenario.engine_names import engine_names
from kvroom.scenario.scenario import Scenario
from kvroom.sharding.layout import Layout, check_layout
from kvroom.ui import codec
from support import ask, asked

models = st.sampled_from(catalogue.names())
memory = st.integers(10**9, 10**13)
contexts = st.integers(1, 2**21)
degrees = st.sampled_from([1, 2, 4, 8])
caches = st.sampled_from(sorted(CACHE_DTYPES))
weight_dtypes = st.sampled_from([None, "bf16", "fp8", "int4", "q4_k_m", "nvfp4", "mxfp4"])
layouts = st.fixed_dictionaries({"tp": degrees, "pp": st.integers(1, 4), "dp": st.integers(1, 3)})


def card(size):
    return {"name": "card", "memory_bytes": size, "memory_bytes_per_s": 1e12}


def able(model, gpu, **keys):
    """The workings; an example whose layout the model cannot be cut into is left out."""
    try:
        return asked(model, gpu, **keys)
    except KvroomError as e:
        assert e.field in ("tp", "pp")
        assume(False)
        raise


def room(*question, **keys):
    limit = able(*question, **keys).plan.capacity.ceiling
    return (limit.requests, limit.exact) if limit else (0, 0.0)


@given(models, memory, st.integers(0, 10**12), contexts, layouts)
def test_more_memory_never_lowers_room(model, size, more, context, layout):
    keys = {"context_tokens": context, **layout}
    less, much = room(model, card(size), **keys), room(model, card(size + more), **keys)
    assert less[0] <= much[0]
    assert less[1] <= much[1]


@given(models, memory, contexts, st.integers(0, 10**6), layouts)
def test_a_longer_context_never_raises_it(model, size, context, more, layout):
    short = room(model, card(size), context_tokens=context, **layout)
    long = room(model, card(size), context_tokens=context + more, **layout)
    assert long[0] <= short[0]
    assert long[1] <= short[1]


@given(models, memory, contexts, caches, caches)
def test_a_narrower_cache_never_lowers_it(model, size, context, one, other):
    # Widths whose scales are whole for every head: bits and scale bytes a number.
    wide, narrow = sorted(
        (CACHE_DTYPES[d] for d in (one, other)), key=lambda d: -d.bytes_for(32 * 1024)
    )
    assume(all(d.fills(64) for d in (wide, narrow)))
    spec = catalogue.find(model)
    assume(all(getattr(k, "k_dim", 64) % 32 == 0 for k, _ in spec.stores))
    rooms = [
        room(model, card(size), context_tokens=context, kv_dtype=d.name) for d in (wide, narrow)
    ]
    assert rooms[0][0] <= rooms[1][0]
    assert rooms[0][1] <= rooms[1][1] * (1 + 1e-12)


@given(models, weight_dtypes, st.sampled_from([(1, 2), (2, 4), (4, 8), (1, 8), (8, 16)]))
def test_more_tensor_ranks_never_raise_a_ranks_weights_or_cache(model, dtype, degrees):
    few, many = (able(model, "B200-SXM", tp=n, weight_dtype=dtype) for n in degrees)
    assert many.answer.rank.weight_bytes <= few.answer.rank.weight_bytes
    assert many.plan.kv.bytes_per_request_per_gpu <= few.plan.kv.bytes_per_request_per_gpu
    assert many.plan.weights == few.plan.weights
    assert many.plan.kv.bytes_per_request == few.plan.kv.bytes_per_request


@given(models, layouts, weight_dtypes, contexts)
def test_the_ranks_together_hold_at_least_the_whole(model, layout, dtype, context):
    w = able(model, "B200-SXM", **layout, weight_dtype=dtype, context_tokens=context)
    tp = layout["tp"]
    assert tp * sum(r.weight_bytes for r in w.deployment.ranks) >= w.plan.weights.bytes
    held = tp * sum(w.deployment.request_bytes(r) for r in w.deployment.ranks)
    assert held >= w.plan.kv.bytes_per_request
    assert tp * sum(r.read_bytes for r in w.deployment.ranks) <= tp * sum(
        r.weight_bytes for r in w.deployment.ranks
    )


@given(models, st.sampled_from(engine_names()), memory, layouts, contexts, caches, weight_dtypes)
def test_a_plan_adds_up_and_round_trips(model, engine, size, layout, context, cache, weights):
    w = able(
        model,
        card(size),
        engine=engine,
        **layout,
        context_tokens=context,
        kv_dtype=cache,
        weight_dtype=weights,
    )
    plan = w.plan
    assert sum(a.bytes for a in plan.memory.accounts) == plan.memory.gpu_bytes == size
    assert all(a.low_bytes <= a.bytes <= a.high_bytes for a in plan.memory.accounts)
    assert all(a.bytes >= 0 for a in plan.memory.accounts if a.name != "unused")
    assert sum(g.count for g in plan.kv.layers) >= 0
    assert 0 <= plan.kv.state_bytes_per_request <= plan.kv.bytes_per_request
    assert 0 < plan.weights.active_params <= plan.weights.params
    assert plan.scenario == Scenario.from_dict(plan.scenario.to_dict())
    assert plan.scenario == Scenario.from_link(plan.scenario.link())
    said = json.loads(codec.encode(plan))
    assert said == json.loads(json.dumps(plan.to_dict()))
    assert Scenario.from_dict(said["scenario"]) == plan.scenario


@given(models, layouts, contexts, st.integers(0, 10**5), st.integers(1, 5000), st.integers(0, 5000))
def test_traffic_rises_with_batch_and_context(model, layout, context, longer, batch, more):
    w = able(model, "B200-SXM", **layout, context_tokens=context)
    one, larger = (w.traffic.step_bytes(n, context) for n in (batch, batch + more))
    for part in ("weights", "kv", "state", "activations", "links"):
        assert getattr(one, part) <= getattr(larger, part)
    assert w.traffic.decode_flops(batch, context) <= w.traffic.decode_flops(batch + more, context)
    chunked = any(k.kind == "chunked" for k, _ in w.deployment.model.stores)
    if not chunked:  # a chunk that starts anew is read less
        far = w.traffic.step_bytes(batch, context + longer)
        assert far.kv >= one.kv
    assert w.traffic.step_bytes(batch, context + longer).weights == one.weights
    assert w.traffic.prefill_flops(context + longer) >= w.traffic.prefill_flops(context)


@given(models, memory, contexts, st.integers(1, 10**6))
def test_the_verdict_is_what_the_figures_say(model, size, context, users):
    plan = ask(model, card(size), context_tokens=context, concurrency=users)
    assert plan.verdict.sentence
    limit = plan.capacity.ceiling
    if limit is not None:
        assert plan.verdict.fits == (limit.requests >= users)


@given(models, memory, contexts, layouts)
def test_whole_requests_are_the_exact_ones_rounded_down(model, size, context, layout):
    limit = able(model, card(size), context_tokens=context, **layout).plan.capacity.ceiling
    if limit is not None:
        each = limit.exact / layout["dp"]
        whole = limit.requests // layout["dp"]
        assert whole == int(each) or isclose(each, whole, rel_tol=1e-12)


@given(models, st.integers(1, 200), st.integers(1, 200))
def test_a_layout_is_taken_or_refused_by_its_degree(model, tp, pp):
    try:
        check_layout(catalogue.find(model), Layout(tp, pp))
    except KvroomError as e:
        assert e.field in ("tp", "pp")
        assert e.value == (tp if e.field == "tp" else pp)
