"""The Python calls: the keys of a Scenario in, a Plan out, or what to change about it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kvroom.answer.plan import Plan
from kvroom.errors import KvroomError
from kvroom.planner.plan import plan as answer
from kvroom.scenario.scenario import Scenario
from kvroom.units import check_int

MOST_ASKED, MOST_SEEDS, MAX_HASH_TOKENS = 10_000, 1_000, 2**20

if TYPE_CHECKING:
    from kvroom.optimize.levers.rank import Levers
    from kvroom.optimize.search.answers import Found
    from kvroom.planner.results import Comparison, Reused, Simulation
    from kvroom.workloads.requests import Request


def plan(
    model: str | os.PathLike[str] | Mapping[str, Any],
    gpu: str | os.PathLike[str] | Mapping[str, Any],
    **keys: Any,
) -> Plan:
    """Where every byte goes, how many requests fit, what a step moves.

    ``model`` is a name, a path or ``{"config": {…}}``; ``gpu`` a card's name, a machine file or an
    inline card; ``keys`` are the other keys of a Scenario (``gpu_count``, ``context_tokens``,
    ``kv_dtype`` …). Sizes and tokens may be text with a unit. Raises KvroomError, which names the key,
    its value and the fix; a deployment that does not fit is an answer.

    >>> small = plan("llama-3-8b", "RTX-4090", engine="arithmetic", context_tokens="8K")
    >>> small.verdict.fits, small.capacity.ceiling.requests
    (True, 7)
    >>> plan("llama-3-8b", "RTX-4090", context_tokens="8G")
    Traceback (most recent call last):
    kvroom.errors.KvroomError: context_tokens: '8G' has an unknown unit 'G'. Write 32768, 32K or 1M.
    """
    return answer(Scenario.from_dict({"model": _given(model), "gpu": _given(gpu), **keys}))


def levers(
    model: str | os.PathLike[str] | Mapping[str, Any],
    gpu: str | os.PathLike[str] | Mapping[str, Any],
    *,
    by: str = "requests",
    together: Sequence[str] | None = None,
    simulate: bool = False,
    **keys: Any,
) -> Levers:
    """Every lever of a question, ranked ``by`` requests, step, ttft or cost.

    Arguments are those of ``plan``; ``together`` names levers to combine, ``simulate`` serves the workload
    with those that only serving shows (``served``). The answer has ``before``,
    ``levers``, ``together``, ``waterfall`` and ``first``; ``to_dict()``, ``rows()``, ``to_frame()`` (polars
    or pandas) and ``to_html()`` turn it into other shapes. Raises KvroomError as ``plan`` does.

    >>> found = levers("llama-3-70b", "80GB", gpu_count=4, context_tokens="32K", engine="arithmetic")
    >>> found.before.requests, found.first.lever.id, found.first.after.requests
    (16, 'kv_dtype=fp8', 33)
    >>> found.first.changes
    {'kv_dtype': 'fp8'}
    """
    from kvroom.optimize.levers.rank import levers as ranked

    together = [together] if isinstance(together, str) else together
    asked = Scenario.from_dict({"model": _given(model), "gpu": _given(gpu), **keys})
    return ranked(asked, by=by, together=together, simulate=simulate)


def search(
    model: str | os.PathLike[str] | Mapping[str, Any],
    *,
    slo: str = "",
    users: int | None = None,
    rate: float | None = None,
    space: Mapping[str, Any] | None = None,
    simulate: int = 8,
    seed: int = 0,
    journal: str | None = None,
    jobs: int = 1,
    **keys: Any,
) -> Found:
    """Which hardware, layout and settings serve a workload within its objectives, the cheapest first.

    ``slo`` is such as ``"ttft_p95=2s,tpot_p95=50ms"``. The load is ``users`` at once or ``rate`` requests a
    second; with neither, the cheapest million tokens are sought. ``space`` narrows the choice: ``gpus``,
    ``counts``, ``engines``, ``weight_dtypes``, ``kv_dtypes``, ``budgets``, ``shares``, ``sequences``,
    ``max_gpus``. ``simulate``
    answers are borne out by simulation, ``jobs`` processes share the work, ``journal`` is a file to go on
    from. Other ``keys`` are those of a Scenario (``workload``, ``context_tokens`` …). The answer has
    ``answers``, ``pareto``, ``nearest`` and ``sentence``, and the shapes that ``levers`` has. Raises
    KvroomError for a question that contradicts itself.

    >>> found = search(
    ...     "llama-3-8b", slo="tpot_p95=50ms", users=16, simulate=0,
    ...     workload={"input_tokens": 1000, "output_tokens": 200},
    ...     space={"gpus": ["L4", "L40S"], "counts": [1]},
    ... )
    >>> len(found.answers) > 0, found.answers[0].scenario.gpu_count
    (True, 1)
    """
    from kvroom.optimize.search.search import search as hunt
    from kvroom.optimize.search.space import Space
    from kvroom.optimize.search.workers import processes

    given = keys.pop("workload", None) or {}
    if not isinstance(given, Mapping):
        raise KvroomError("workload", given, "is not an object", "Write {'input': …, 'output': …}.")
    workload = dict(given)
    workload |= {"concurrency": users} if users is not None else {}
    workload |= {"requests_per_s": rate} if rate is not None else {}
    asked = {"model": _given(model), "gpu": "H100-SXM", "workload": workload or None, **keys}
    usual = {"gpus": [_given(keys["gpu"])]} if "gpu" in keys else {}
    return hunt(
        Scenario.from_dict(asked),
        slo or "",
        space=Space.from_dict(usual if space is None else space),
        simulate=check_int("simulate", simulate, low=0, high=MOST_ASKED),
        seed=seed,
        journal=journal,
        pool=processes(check_int("jobs", jobs, low=1, high=MOST_ASKED)),
    )


def compare(*questions: Scenario | Mapping[str, Any]) -> Comparison:
    """Plans of two or more questions side by side, each a Scenario or its keys.

    The answer has ``plans`` and ``differences()``, and the shapes that ``levers`` has: a row a Plan. Raises
    KvroomError as ``plan`` does.

    >>> asked = {"model": "llama-3-70b", "gpu": "80GB", "gpu_count": 4, "engine": "arithmetic"}
    >>> found = compare(asked | {"context_tokens": "32K"}, asked | {"context_tokens": "8K"})
    >>> found.differences(), [row["requests"] for row in found.rows()]
    (['context_tokens'], [16, 66])
    """
    from kvroom.planner.results import Comparison

    if len(questions) < 2:
        fix = "Give two or more questions."
        raise KvroomError("compare", len(questions), "is too few to compare", fix)
    return Comparison(plans=tuple(answer(_question(q)) for q in questions))


def simulate(
    model: str | os.PathLike[str] | Mapping[str, Any],
    gpu: str | os.PathLike[str] | Mapping[str, Any],
    *,
    trace: str | os.PathLike[str] | Iterable[Request] | None = None,
    slo: str = "",
    seed: int | None = None,
    seeds: int = 1,
    hash_tokens: int | None = None,
    skip_bad_lines: bool = False,
    keep_requests: bool = True,
    **keys: Any,
) -> Simulation:
    """Requests played through the engine's own rules on the deployment of a question.

    Arguments are those of ``plan``. Requests come from ``trace`` (a file, or ``Request`` objects in order of
    arrival), else from the ``workload`` among ``keys``, drawn with ``seed``; over several ``seeds`` the
    figures have ``bands``. ``slo`` is such as ``"ttft_p95=2s,tpot_p95=50ms"``. ``hash_tokens`` says for how
    many tokens an id of the trace stands. ``keep_requests=False`` keeps no row a request: for runs of
    millions. The answer has ``figures``, ``line()`` and the shapes that ``levers`` has: a row a request.
    Raises KvroomError where nothing is to be served, a line is wrong or the engine would not start.

    >>> found = simulate(
    ...     "llama-3-8b", "H100-SXM", seed=1,
    ...     workload={"arrivals": "poisson:2/s", "input": 1000, "output": 100, "requests": 50},
    ... )
    >>> found.figures["requests"]["completed"], len(found.rows())
    (50, 50)
    >>> 0 < found.figures["ttft_s"]["p50"] < found.figures["e2e_s"]["p50"]
    True
    """
    from kvroom.planner.plan import work
    from kvroom.planner.results import Simulation, read_notes, request_row
    from kvroom.planner.simulate import over_seeds, parse_slo, serve
    from kvroom.workloads.synthetic import Synthetic, of_workload

    seeds = check_int("seeds", seeds, low=1, high=MOST_SEEDS)
    scenario = Scenario.from_dict({"model": _given(model), "gpu": _given(gpu), **keys})
    source: Iterable[Request]
    if trace is not None:
        source = _trace(trace, hash_tokens, skip_bad_lines=skip_bad_lines)
    elif scenario.workload is not None:
        source = of_workload(scenario.workload, seed)
    else:
        fix = "Give trace=… or workload=…"
        raise KvroomError("workload", None, "is missing: no requests to serve", fix)
    if seeds > 1 and not isinstance(source, Synthetic):
        fix = "Give a workload in place of a trace."
        raise KvroomError("seeds", seeds, "are drawn of made-up workloads only", fix)
    objectives = parse_slo(slo, "slo") if (slo or "").strip() else ()
    rows: list[Mapping[str, Any]] = []
    made = serve(
        work(scenario),
        source,
        slo=objectives,
        on_over=(lambda live, end: rows.append(request_row(live, end))) if keep_requests else None,
    )
    figures = made.to_dict()
    figures["warnings"] += read_notes(source)
    if seeds > 1 and isinstance(source, Synthetic):
        figures["bands"] = over_seeds(made, figures, source, seeds, slo=objectives)[1]
    return Simulation(made=made, figures=figures, requests=tuple(rows))


def reuse(
    trace: str | os.PathLike[str] | Iterable[Request],
    *,
    block_tokens: int | None = None,
    policies: Sequence[str] = ("lru",),
    capacities: Sequence[int] = (),
    hash_tokens: int | None = None,
    skip_bad_lines: bool = False,
) -> Reused:
    """How much of a trace's prompts a prefix cache of any size would have held already.

    ``trace`` is a file, or ``Request`` objects in their order (a ``Synthetic`` workload is such).
    ``block_tokens`` are those of the trace's ids, else 16. ``policies`` (lru, lru-tail, fifo, lfu, belady)
    are played at ``capacities`` in blocks, or at shares of the distinct blocks. The answer has ``reuse``, and
    the shapes that ``levers`` has: a row a policy and size. Raises KvroomError for an unknown policy or a bad
    line.

    >>> from kvroom.workloads.synthetic import parse
    >>> chats = parse("input=300,output=100,turns=4,requests=40,arrivals=poisson:1/s,seed=1")
    >>> found = reuse(chats, policies=["lru", "belady"], capacities=[500])
    >>> [row["policy"] for row in found.rows()]
    ['lru', 'belady']
    >>> 0 < found.rows()[0]["hit_ratio"] <= found.rows()[1]["hit_ratio"] < 1
    True
    """
    from kvroom.planner.results import Reused, reuse_notes
    from kvroom.simulator.reuse import BLOCK_TOKENS
    from kvroom.simulator.reuse import reuse as held

    policies = [policies] if isinstance(policies, str) else policies
    source = _trace(trace, hash_tokens, skip_bad_lines=skip_bad_lines)
    usual = getattr(source, "hash_tokens", None) or BLOCK_TOKENS
    found = held(source, usual if block_tokens is None else block_tokens, policies, capacities)
    return Reused(reuse=found, warnings=tuple(reuse_notes(found, source)))


def _trace(
    trace: str | os.PathLike[str] | Iterable[Request],
    hash_tokens: int | None,
    *,
    skip_bad_lines: bool,
) -> Iterable[Request]:
    """The requests of a file, or those given."""
    from kvroom.workloads.traces.reader import Trace

    if isinstance(trace, str | os.PathLike):
        if hash_tokens is not None:
            hash_tokens = check_int("hash_tokens", hash_tokens, low=1, high=MAX_HASH_TOKENS)
        return Trace(os.fspath(trace), hash_tokens=hash_tokens, skip_bad_lines=skip_bad_lines)
    if not isinstance(trace, Iterable):
        raise KvroomError("trace", trace, "is no trace", "Give a file's path, or Request objects.")
    return trace


def _question(q: Scenario | Mapping[str, Any]) -> Scenario:
    if not isinstance(q, Scenario | Mapping):
        raise KvroomError("compare", q, "is no question", "Give a Scenario or its keys.")
    return q if isinstance(q, Scenario) else Scenario.from_dict(dict(q))


def _given(value: Any) -> Any:
    return os.fspath(value) if isinstance(value, os.PathLike) else value
