"""Every verb of kvroom: the keys of a Scenario in, an answer out.

The command line, the page's server and notebooks call these and nothing deeper. A question is a model, a
card and other keys of a Scenario, or a whole Scenario in place of the model.

Three keywords are common to all that read a model. ``hub`` reads the config of a hub id that the catalogue
does not hold: True asks the Hugging Face hub where the extra ``hub`` is installed, False asks nobody, and a
function (hub id → config) is asked in its place. ``paths=False`` takes models and cards by name or value
only, and touches no file: a server's rule. Sizes and tokens may be text with a unit (``"32K"``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, Unpack

from kvroom.errors import KvroomError, did_you_mean
from kvroom.models.load import HubReader, asking
from kvroom.scenario.scenario import Scenario
from kvroom.units import check_int, parse_bytes, parse_tokens

SCHEDULERS = ("own", "engine")
"""Who schedules a simulation: kvroom's rules of the engine, or the engine that is installed."""
MOST_ANSWERS, MOST_SEEDS, MAX_HASH_TOKENS = 10_000, 1_000, 2**20

if TYPE_CHECKING:
    from kvroom.answer.figures import Explanation
    from kvroom.answer.plan import Plan
    from kvroom.distributed.processes import MakePool
    from kvroom.distributed.workers import Progress
    from kvroom.hardware.device import Device
    from kvroom.kvcache.request import ServedRequest
    from kvroom.launchers.engine_command import EngineCommand
    from kvroom.models.spec import ModelSpec
    from kvroom.observe.calibrate import Calibrated
    from kvroom.observe.check import Checker, CheckReport
    from kvroom.observe.logs.startup_log import StartupLog
    from kvroom.observe.probe.machine import Probe
    from kvroom.observe.prove.proof import Proof
    from kvroom.observe.reconcile import Reconciliation
    from kvroom.observe.watch import Sample
    from kvroom.optimize.agents.answer import AgentsAnswer
    from kvroom.optimize.cliff import Cliff
    from kvroom.optimize.day.answer import Day
    from kvroom.optimize.fit import Fit
    from kvroom.optimize.levers.rank import Levers
    from kvroom.optimize.pack.answer import Packed
    from kvroom.optimize.scaling import ScaleRange, ScaleSweep
    from kvroom.optimize.search.answers import Found
    from kvroom.optimize.search.played import PlayedTrace
    from kvroom.optimize.split import Splits
    from kvroom.optimize.sweep import Curve
    from kvroom.planner.comparison import Comparison
    from kvroom.planner.plan import Workings
    from kvroom.planner.reuse import TraceReuse
    from kvroom.planner.sessions import Sessions
    from kvroom.planner.simulate import Objective, OtherScheduler
    from kvroom.planner.simulation import Simulation
    from kvroom.simulator.frames import Frame
    from kvroom.simulator.script_results import ScriptResult
    from kvroom.simulator.timeline import Watch
    from kvroom.workloads.requests import Request
    from kvroom.workloads.traces.base import Tokenizer
    from kvroom.workloads.traces.opened import Held
    from kvroom.workloads.traces.reader import Trace

ModelInput = str | os.PathLike[str] | Mapping[str, Any] | Scenario
"""A name, a path, ``{"config": {…}}``; or the whole question."""
TokenizerInput: TypeAlias = "Tokenizer | str | os.PathLike[str] | None"
"""A function text → token ids, or the path of a ``tokenizer.json``."""
GpuInput = str | os.PathLike[str] | Mapping[str, Any] | None
"""A card's name, a machine file, an inline card."""


class ScenarioKeys(TypedDict, total=False):
    """The other keys of a Scenario, as Python and JSON write them."""

    gpu_count: int
    host_memory_bytes: int | str | None
    tp: int
    pp: int
    dp: int
    ep: int
    dcp: int
    weight_dtype: str | None
    kv_dtype: str
    context_tokens: int | str | None
    encoder_tokens: int | str | None
    concurrency: int | None
    engine: str
    engine_version: str | None
    engine_args: Mapping[str, Any]
    workload: Mapping[str, Any] | None
    tiers: Sequence[Any] | None
    replicas: int
    routing: str | Mapping[str, Any] | None
    fleet: Mapping[str, Any] | None
    disaggregation: Mapping[str, Any] | None
    speculation: str | Mapping[str, Any] | None
    calibration: str | os.PathLike[str] | Mapping[str, Any] | None
    known_bytes: Mapping[str, Any] | None
    recipe: str | None
    prices: Mapping[str, float | str] | None
    allow_overcommit: bool


def scenario(model: ModelInput, gpu: GpuInput = None, **keys: Unpack[ScenarioKeys]) -> Scenario:
    """The question, checked; KvroomError names the key, its value and the fix."""
    if isinstance(model, Scenario):
        return model
    question: dict[str, Any] = {"model": model, "gpu": gpu, **keys}
    if gpu is None:
        del question["gpu"]
    return Scenario.from_dict({key: _text_of_path(value) for key, value in question.items()})


def _planned(question: Scenario, *, paths: bool = True) -> Workings:
    """The planner's answer; it is loaded when the first question comes, so that completion does without."""
    from kvroom.planner.plan import work

    return work(question, paths=paths)


def workings(
    model: ModelInput,
    gpu: GpuInput = None,
    *,
    engine_python: str | os.PathLike[str] | None = None,
    hub: HubReader | bool = True,
    paths: bool = True,
    **keys: Unpack[ScenarioKeys],
) -> Workings:
    """The Plan with what it was made of: the deployment, the engine's answer, the times."""
    with _asking(hub):
        planned = _planned(scenario(model, gpu, **keys), paths=paths)
        if engine_python is None:
            return planned
        from kvroom.observe.installed.engine import installed

        with installed(os.fspath(engine_python), planned) as engine:
            return engine.plan(planned, paths=paths).workings


def plan(
    model: ModelInput,
    gpu: GpuInput = None,
    *,
    engine_python: str | os.PathLike[str] | None = None,
    hub: HubReader | bool = True,
    paths: bool = True,
    **keys: Unpack[ScenarioKeys],
) -> Plan:
    """Where every byte goes, how many requests fit, what a step moves.

    ``keys`` are the other keys of a Scenario (``gpu_count``, ``context_tokens``, ``kv_dtype`` …).
    ``engine_python`` is a Python that has the engine (``"auto"``: it is looked for), whose own code then says
    how many blocks its cache has and whether it starts (vLLM; no card is needed). Raises
    KvroomError, which names the key, its value and the fix; a deployment that does not fit is an answer.

    >>> small = plan("llama-3-8b", "RTX-4090", engine="arithmetic", context_tokens="8K")
    >>> small.verdict.fits, small.capacity.ceiling.requests
    (True, 7)
    >>> plan("llama-3-8b", "RTX-4090", context_tokens="8G")
    Traceback (most recent call last):
    kvroom.errors.KvroomError: context_tokens: '8G' has an unknown unit 'G'. Write 32768, 32K or 1M.
    """
    return workings(model, gpu, engine_python=engine_python, hub=hub, paths=paths, **keys).plan


def explain(
    model: ModelInput,
    gpu: GpuInput = None,
    *,
    hub: HubReader | bool = True,
    paths: bool = True,
    **keys: Unpack[ScenarioKeys],
) -> tuple[Explanation, ...]:
    """Every figure of the Plan with its formula, the formula with its numbers, and its source.

    >>> told = explain("llama-3-70b", "80GB", gpu_count=4, context_tokens="32K", engine="arithmetic")
    >>> {e.figure: e.numbers for e in told}["kv.bytes_per_token"]
    '80 × 8 × 2 × 128 × 2'
    """
    from kvroom.planner.explain import explain as explained

    return explained(workings(model, gpu, hub=hub, paths=paths, **keys))


def sweep(
    key: str,
    model: ModelInput,
    gpu: GpuInput = None,
    *,
    hub: HubReader | bool = True,
    **keys: Unpack[ScenarioKeys],
) -> Curve:
    """A curve of figures over one key: ``"batch=1..512"``, ``"kv_dtype=bf16,fp8"``.

    >>> curve = sweep("context=8K..32K", "llama-3-70b", "80GB", gpu_count=4, engine="arithmetic")
    >>> [int(point.row()["requests"]) for point in curve.points]
    [66, 33, 16]
    """
    from kvroom.optimize.sweep import curve

    with _asking(hub):
        return curve(scenario(model, gpu, **keys), key)


def compare(*questions: Scenario | Mapping[str, Any], hub: HubReader | bool = True) -> Comparison:
    """Plans of two or more questions side by side, each a Scenario or its keys.

    The answer has ``plans`` and ``differences()``, and the shapes that ``levers`` has: a row a Plan. Raises
    KvroomError as ``plan`` does.

    >>> asked = {"model": "llama-3-70b", "gpu": "80GB", "gpu_count": 4, "engine": "arithmetic"}
    >>> found = compare(asked | {"context_tokens": "32K"}, asked | {"context_tokens": "8K"})
    >>> found.differences(), [row["requests"] for row in found.rows()]
    (['context_tokens'], [16, 66])
    """
    from kvroom.planner.comparison import Comparison

    if len(questions) < 2:
        fix = "Give two or more questions."
        raise KvroomError("compare", len(questions), "is too few to compare", fix)
    with _asking(hub):
        return Comparison(plans=tuple(_planned(_one_of(question)).plan for question in questions))


def levers(
    model: ModelInput,
    gpu: GpuInput = None,
    *,
    by: str = "requests",
    together: Sequence[str] | None = None,
    simulate: bool = False,
    trace: str | os.PathLike[str] | Iterable[Request] | None = None,
    sessions: int | None = None,
    before_each: Callable[[], None] | None = None,
    watch: Watch | None = None,
    hub: HubReader | bool = True,
    paths: bool = True,
    **keys: Unpack[ScenarioKeys],
) -> Levers:
    """Every lever of a question, ranked ``by`` requests, step, ttft or cost.

    ``together`` names levers to combine, ``simulate`` serves the workload with those that only serving shows
    (``served``), or the requests of a ``trace``, ``sessions`` of it at a time.
    ``before_each`` is called before each Plan, ``watch`` is told how a simulation stands;
    either may end it by an exception. The answer has ``before``, ``levers``, ``together``, ``waterfall`` and
    ``first``; ``to_dict()``, ``rows()``, ``to_frame()`` (polars or pandas) and ``to_html()`` turn it into
    other shapes. Raises KvroomError as ``plan`` does.

    >>> found = levers("llama-3-70b", "80GB", gpu_count=4, context_tokens="32K", engine="arithmetic")
    >>> found.before.requests, found.first.lever.id, found.first.after.requests
    (16, 'kv_dtype=fp8', 33)
    >>> found.first.changes
    {'kv_dtype': 'fp8'}
    """
    from kvroom.optimize.levers.rank import levers as ranked

    together = [together] if isinstance(together, str) else together
    with _asking(hub):
        question = scenario(model, gpu, **keys)
        opener = _opener(None, None, None, skip=False)
        source = None
        if trace is not None:
            source = _pooled(_requests(question, trace, None, opener), sessions, None)
        return ranked(
            question,
            by=by,
            together=together,
            simulate=simulate,
            source=source,
            paths=paths,
            before_each=before_each,
            watch=watch,
        )


def search(
    model: ModelInput,
    gpu: GpuInput = None,
    *,
    slo: str = "",
    users: int | None = None,
    rate: float | None = None,
    space: Mapping[str, Any] | None = None,
    simulate: int = 8,
    per: str | None = None,
    scale_to: str | Sequence[str] = (),
    seed: int = 0,
    journal: str | None = None,
    cluster: str | None = None,
    jobs: int = 1,
    pool: MakePool | None = None,
    progress: Progress | None = None,
    trace: str | os.PathLike[str] | Iterable[Request] | None = None,
    sessions: int | None = None,
    recorded_times: bool = False,
    hash_tokens: int | str | None = None,
    skip_bad_lines: bool = False,
    columns: str | Mapping[str, str] | None = None,
    tokenizer: TokenizerInput = None,
    hub: HubReader | bool = True,
    **keys: Unpack[ScenarioKeys],
) -> Found:
    """Which hardware, layout and settings serve a workload within its objectives, the cheapest first.

    ``slo`` is such as ``"ttft_p95=2s,tpot_p95=50ms"``. The load is ``users`` at once or ``rate`` requests a
    second; with neither, the cheapest million tokens are sought. ``space`` narrows the choice: ``gpus``,
    ``counts``, ``engines``, ``weight_dtypes``, ``kv_dtypes``, ``budgets``, ``shares``, ``sequences``,
    ``drafts``, ``tiers``, ``layout`` (degrees that are fixed), ``splits``, ``max_gpus``; without it
    a ``gpu`` that is named is the only one. ``simulate`` kinds of answer are borne out by simulation, ``per``
    ``"gpu"`` the best of each card, ``cluster`` (``"processes:8"``, ``"ray:HOST:6379"``; or ``jobs``
    processes, or the executors of ``pool``) shares the work, ``journal`` is a file to go on from,
    ``progress`` is told (stage, done, of how many). In the place of a
    workload the requests of a ``trace`` are simulated, as ``simulate`` plays them: ``sessions`` of it at a
    time, or as they came; of a long one a stretch of whole sessions, which ``objective`` tells. With
    ``fleet.autoscale`` every answer is played over the whole load by that autoscaler, at each of ``scale_to``
    (``"waiting=2..64"``), and ``autoscaler`` of an answer has the settings that cost least a day. The answer
    has ``answers``, ``pareto``, ``nearest``, ``unpriced`` and ``sentence``, and the shapes that ``levers``
    has. Raises KvroomError for a question that contradicts itself.

    >>> found = search(
    ...     "llama-3-8b", slo="tpot_p95=50ms", users=16, simulate=0,
    ...     workload={"input_tokens": 1000, "output_tokens": 200},
    ...     space={"gpus": ["L4", "L40S"], "counts": [1]},
    ... )
    >>> len(found.answers) > 0, found.answers[0].scenario.gpu_count
    (True, 1)
    """
    from kvroom.clusters import workers_of
    from kvroom.distributed.processes import carrying, lending
    from kvroom.optimize.search.search import search as searched
    from kvroom.optimize.search.space import Space

    if not isinstance(model, Scenario):
        keys["workload"] = _load(keys.get("workload"), users, rate)
    usual = {} if gpu is None else {"gpus": [_text_of_path(gpu)]}
    jobs = check_int("jobs", jobs, low=1, high=MOST_ANSWERS)
    with _asking(hub):
        question = scenario(model, "H100-SXM" if gpu is None else gpu, **keys)
        opener = _opener(hash_tokens, columns, tokenizer, skip=skip_bad_lines)
        traced = _traced(question, trace, sessions, seed, opener, recorded_times=recorded_times)
        if pool is None:
            workers = cluster or f"processes:{jobs}"
            pool = workers_of(workers, _reader(hub), value=traced).pool
        else:
            pool = carrying(pool, traced)
        with lending(traced):
            return searched(
                question,
                slo or "",
                space=Space.from_dict(usual if space is None else space),
                simulate=check_int("simulate", simulate, low=0, high=MOST_ANSWERS),
                per=per,
                seed=seed,
                journal=journal,
                pool=pool,
                progress=progress,
                traced=traced,
                scale_to=_targets(scale_to),
            )


def _traced(
    question: Scenario,
    trace: str | os.PathLike[str] | Iterable[Request] | None,
    sessions: int | None,
    seed: int,
    opener: Callable[[str | Held], Trace | Iterable[Request]],
    *,
    recorded_times: bool,
) -> PlayedTrace | None:
    """A trace as the load of a search; None where there is none."""
    from kvroom.models.load import load as load_model
    from kvroom.optimize.search.played import played_trace

    _check_played(trace is not None, sessions, recorded_times=recorded_times)
    if trace is None:
        return None
    if question.workload is not None:
        fix = "Leave out the workload, --users and --rate; --sessions says how many there are at a time."
        raise KvroomError("trace", None, "and a workload are two sources of requests", fix)
    limit = question.context_tokens or load_model(question.model).max_context_tokens
    return played_trace(
        _requests(question, trace, seed, opener),
        name=Path(trace).name if isinstance(trace, str | os.PathLike) else "",
        sessions=sessions,
        recorded_times=recorded_times,
        seed=seed,
        limit_tokens=limit,
    )


def _check_played(traced: bool, sessions: int | None, *, recorded_times: bool) -> None:
    """Raise KvroomError where it is said how a trace is played that is not there, or in two ways."""
    if sessions is not None and recorded_times:
        what = "and sessions at a time are two ways to play a trace"
        raise KvroomError("--recorded-times", None, what, "Leave one of them out.")
    flag = "--sessions" if sessions is not None else "--recorded-times"
    if not traced and (sessions is not None or recorded_times):
        fix = "Give --trace FILE, or agents=40 in the workload."
        raise KvroomError(flag, sessions, "is of traces only", fix)


def simulate(
    model: ModelInput,
    gpu: GpuInput = None,
    *,
    trace: str | os.PathLike[str] | Iterable[Request] | None = None,
    slo: str | tuple[Objective, ...] = "",
    seed: int | None = None,
    seeds: int = 1,
    warmup: int | None = None,
    sessions: int | None = None,
    recorded_times: bool = False,
    pauses: float = 1.0,
    hash_tokens: int | str | None = None,
    skip_bad_lines: bool = False,
    columns: str | Mapping[str, str] | None = None,
    tokenizer: TokenizerInput = None,
    keep_requests: bool = True,
    on_end: Callable[[ServedRequest, int | None], None] | None = None,
    watch: Watch | None = None,
    on_frame: Callable[[Frame], None] | None = None,
    scheduler: str = "own",
    engine_python: str | os.PathLike[str] | None = None,
    cluster: str | None = None,
    journal: str | None = None,
    progress: Progress | None = None,
    hub: HubReader | bool = True,
    paths: bool = True,
    **keys: Unpack[ScenarioKeys],
) -> Simulation:
    """Requests played through the engine's own rules on the deployment of a question.

    Requests come from ``trace`` (a file, or ``Request`` objects in order of arrival), else from the
    ``workload`` of the question, drawn with ``seed``; over several ``seeds`` the figures have ``bands``.
    A request of a trace's session waits for the answers before it, unless its ``recorded_times`` are to be
    kept; ``sessions`` of a trace are there at a time, in place of as they came, and pause ``pauses`` times as
    long as recorded (0: each turn follows on the answer before it).
    ``slo`` is such as ``"ttft_p95=2s,tpot_p95=50ms"``. ``hash_tokens`` says for how many tokens an id of the
    trace stands. ``keep_requests=False`` keeps no row a request: for runs of millions. ``on_end`` is told of
    each request that is done (and when, in ps) or dropped (None), ``watch`` of how things stand (and may end
    it), ``on_frame`` of every frame of a picture. The answer has ``figures``, ``line()`` and the shapes that
    ``levers`` has: a row a request. Raises KvroomError where nothing is to be served, a line is wrong or the
    engine would not start. The first ``warmup`` requests are left out of the times (of a closed loop, which
    begins with everybody at once, two of each user unless it says otherwise). With ``scheduler="engine"`` the
    engine that is installed in the environment of ``engine_python`` schedules, on a virtual clock of kvroom's
    step times.

    ``cluster`` (``"processes:8"``, ``"ray:HOST:6379"``, ``"auto"``) shares seeds, or replicas that share
    nothing, among workers: the same figures, without a row a request. ``journal`` is a file to go on from,
    ``progress`` is told (what, done, of how many).

    >>> found = simulate(
    ...     "llama-3-8b", "H100-SXM", seed=1,
    ...     workload={"arrivals": "poisson:2/s", "input": 1000, "output": 100, "requests": 50},
    ... )
    >>> found.figures["requests"]["completed"], len(found.rows())
    (50, 50)
    >>> 0 < found.figures["ttft_s"]["p50"] < found.figures["e2e_s"]["p50"]
    True
    """
    from kvroom.planner.simulation import simulation

    seeds = check_int("seeds", seeds, low=1, high=MOST_SEEDS)
    _check_played(trace is not None, None, recorded_times=recorded_times)
    if sessions is not None and trace is not None:
        _check_played(True, sessions, recorded_times=recorded_times)
    if pauses != 1 and sessions is None:
        raise KvroomError("--pauses", pauses, "is of sessions at a time", "Give --sessions COUNT.")
    warmup = None if warmup is None else check_int("warmup", warmup, low=0, high=10**9)
    with _asking(hub):
        question = scenario(model, gpu, **keys)

        def played(workings: Workings, scheduler: OtherScheduler | None = None) -> Simulation:
            opener = _opener(hash_tokens, columns, tokenizer, skip=skip_bad_lines)
            return simulation(
                workings,
                _pooled(_requests(question, trace, seed, opener), sessions, seed, pauses),
                linked=not recorded_times,
                slo=_objectives(slo),
                seeds=seeds,
                keep_requests=keep_requests,
                on_end=on_end,
                warmup=warmup,
                watch=watch,
                on_frame=on_frame,
                scheduler=scheduler,
            )

        planned = _planned(question, paths=paths)
        if cluster is not None or journal is not None:
            _check_spread(on_end=on_end, on_frame=on_frame, scheduler=scheduler)
            from kvroom.clusters import Workers, workers_of
            from kvroom.distributed.simulation import spread_simulation

            workers = Workers(None, 1) if cluster is None else workers_of(cluster)
            opener = _opener(hash_tokens, columns, tokenizer, skip=skip_bad_lines)
            return spread_simulation(
                planned,
                _pooled(_requests(question, trace, seed, opener), sessions, seed, pauses),
                pool=workers.pool,
                workers=workers.at_once,
                slo=_objectives(slo),
                seeds=seeds,
                warmup=warmup,
                linked=not recorded_times,
                journal=journal,
                progress=progress,
            )
        if not _by_engine(scheduler, engine_python):
            return played(planned)
        from kvroom.observe.installed.engine import installed
        from kvroom.observe.installed.serving import scheduler_of

        with installed(os.fspath(engine_python or "auto"), planned) as engine:
            asked = engine.plan(planned, paths=paths)
            return played(asked.workings, scheduler_of(engine, asked))


def day(
    model: ModelInput,
    gpu: GpuInput = None,
    *,
    slo: str | tuple[Objective, ...] = "",
    all_day: bool | None = None,
    seed: int | None = None,
    cluster: str | None = None,
    journal: str | None = None,
    progress: Progress | None = None,
    hub: HubReader | bool = True,
    paths: bool = True,
    **keys: Unpack[ScenarioKeys],
) -> Day:
    """A day of requests by the hour: replicas that are needed, times over the day, cost.

    The ``workload`` has a day's arrivals (``"day:1e9/day:peak=1.6"``). A sample of replicas is simulated at a
    dozen loads and the day is led through them as a fluid, so that 10^9 requests take seconds; what that is
    off was measured and is in the ``bands``. ``replicas`` stay ``all_day`` (where more than one is asked,
    unless told); else each hour has as many as hold ``slo`` (means and percentiles of ttft and tpot).
    ``cluster``, ``journal`` and ``progress`` as in ``simulate``. The answer has ``figures``, ``holds`` and
    the shapes that ``levers`` has: a row an hour. Raises KvroomError for a question that is none of a day.
    """
    from kvroom.clusters import Workers, workers_of
    from kvroom.optimize.day.day import day as answered

    with _asking(hub):
        question = scenario(model, gpu, **keys)
        _planned(question, paths=paths)
        workers = Workers(None, 1) if cluster is None else workers_of(cluster)
        return answered(
            question,
            slo=_objectives(slo),
            all_day=question.replicas > 1 if all_day is None else all_day,
            seed=seed,
            pool=workers.pool,
            journal=journal,
            progress=progress,
        )


def _check_spread(*, on_end: object, on_frame: object, scheduler: str) -> None:
    """KvroomError for what is not asked of many workers."""
    for name, value in (("on_end", on_end), ("on_frame", on_frame)):
        if value is not None:
            fix = f"Leave {name} (--per-request) out, or --cluster and --journal."
            raise KvroomError("--cluster", None, f"tells of no single request ({name})", fix)
    if scheduler != "own":
        fix = "Leave --cluster and --journal out, or --scheduler."
        raise KvroomError("--scheduler", scheduler, "schedules in one process only", fix)


def agents(
    sessions_of: str | os.PathLike[str] | Iterable[Request],
    model: ModelInput,
    gpu: GpuInput = None,
    *,
    slo: str | tuple[Objective, ...] = "",
    sessions: int | None = None,
    seeds: int = 3,
    seed: int | None = None,
    only: Sequence[str] | None = None,
    most: int | None = None,
    pauses: float = 1.0,
    hash_tokens: int | str | None = None,
    skip_bad_lines: bool = False,
    columns: str | Mapping[str, str] | None = None,
    tokenizer: TokenizerInput = None,
    progress: Callable[[str, int, int], None] | None = None,
    watch: Watch | None = None,
    cluster: str | None = None,
    jobs: int = 1,
    hub: HubReader | bool = True,
    paths: bool = True,
    **keys: Unpack[ScenarioKeys],
) -> AgentsAnswer:
    """How many sessions of agents hold within ``slo``, where it breaks and why, and what changes are worth.

    ``sessions_of`` is a trace (a path, or ``Request`` objects) or a workload as a SPEC line
    (``"agents=40"``); ``sessions`` are those that are to be held (of a SPEC its ``agents``). A trace's pauses
    are ``pauses`` times as long as recorded. Each number is
    simulated, found anew for each of ``seeds`` draws; ``only`` names the changes that are tried (none:
    ``()``), ``most`` the most sessions. ``jobs`` processes, or the workers of a ``cluster``, share the draws,
    with the same answer; ``progress`` is told (what is done, how many, of how many), ``watch`` of how things
    stand. The answer has ``found``, ``sentence``, ``holds``, ``to_svg()`` and the shapes that ``levers``
    has. Raises KvroomError as ``simulate`` does.

    >>> found = agents("agents=4", "qwen3-coder-30b-a3b", "H200-SXM", seeds=1, only=(), most=4)
    >>> found.base.sessions, found.rows()[0]["label"]
    (4, 'as asked')
    """
    from kvroom.clusters import workers_of
    from kvroom.optimize.agents.agents import USUAL_SLO, AgentsQuestion
    from kvroom.optimize.agents.agents import agents as answered
    from kvroom.optimize.agents.hold import MOST_USERS

    opener = _opener(hash_tokens, columns, tokenizer, skip=skip_bad_lines)
    name, source, users = _sessions_of(_text_of_path(sessions_of), sessions, seed, opener, pauses)
    with _asking(hub):
        question = AgentsQuestion(
            scenario=scenario(model, gpu, **keys),
            sessions=source,
            slo=_objectives(slo or USUAL_SLO),
            name=name,
            asked=users,
            seeds=check_int("seeds", seeds, low=1, high=MOST_SEEDS),
            seed=source.seed if seed is None else check_int("seed", seed, low=0, high=2**63),
            only=None if only is None else tuple(only),
            most=check_int("most", MOST_USERS if most is None else most, low=1, high=MOST_USERS),
        )
        jobs = check_int("jobs", jobs, low=1, high=MOST_ANSWERS)

        def share(value: object) -> MakePool | None:
            return workers_of(cluster or f"processes:{jobs}", _reader(hub), value=value).pool

        return answered(question, paths=paths, progress=progress, watch=watch, share=share)


def _sessions_of(
    trace: Any,
    users: int | None,
    seed: int | None,
    opener: Callable[[str | Held], Trace | Iterable[Request]],
    pauses: float,
) -> tuple[str, Sessions, int | None]:
    """What the sessions are called, where they come from, and how many are to be held."""
    from kvroom.workloads.synthetic import Synthetic, parse
    from kvroom.workloads.traces.pool import pool_of

    made_up = isinstance(trace, str) and "=" in trace and not os.path.exists(trace)  # noqa: PTH110 (a SPEC may be too long for a path)
    if pauses != 1 and (made_up or isinstance(trace, Synthetic)):
        fix = "Write them in the SPEC: think=…, tool=…."
        raise KvroomError("--pauses", pauses, "is of a trace's sessions", fix)
    if isinstance(trace, Synthetic):
        return "", trace, users or trace.users or None
    if made_up:
        workload = parse(trace, "SPEC")
        if not workload.users:
            fix = "Write agents=40, or arrivals=closed:40."
            raise KvroomError("SPEC", trace, "says not how many sessions there are at a time", fix)
        return trace, workload, users or workload.users
    source = opener(trace) if isinstance(trace, str) else trace
    if not isinstance(source, Iterable):
        raise KvroomError("TRACE|SPEC", trace, "is no trace", "Give a file's path, or agents=40.")
    name = Path(trace).name if isinstance(trace, str) else ""
    return name, pool_of(source, users or 1, seed=seed, pauses=pauses), users


def cliff(
    key: str,
    model: ModelInput,
    gpu: GpuInput = None,
    *,
    trace: str | os.PathLike[str] | Iterable[Request] | None = None,
    slo: str | tuple[Objective, ...] = "",
    seed: int | None = None,
    hash_tokens: int | str | None = None,
    skip_bad_lines: bool = False,
    columns: str | Mapping[str, str] | None = None,
    tokenizer: TokenizerInput = None,
    watch: Watch | None = None,
    on_point: Callable[[Any], None] | None = None,
    hub: HubReader | bool = True,
    paths: bool = True,
    **keys: Unpack[ScenarioKeys],
) -> Cliff:
    """The same simulation over ``"rate=1..20"`` or ``"kv_blocks=1000..9000"``, and where it breaks.

    Requests are those of ``simulate``; ``on_point`` is told of each point as it is done.
    """
    from kvroom.optimize.cliff import cliff as swept
    from kvroom.optimize.cliff import parse_range

    with _asking(hub):
        question = scenario(model, gpu, **keys)
        return swept(
            parse_range(key),
            question,
            _requests(
                question, trace, seed, _opener(hash_tokens, columns, tokenizer, skip=skip_bad_lines)
            ),
            slo=_objectives(slo),
            watch=watch,
            paths=paths,
            on_point=on_point,
        )


def scale_to(
    targets: str | Sequence[str],
    model: ModelInput,
    gpu: GpuInput = None,
    *,
    trace: str | os.PathLike[str] | Iterable[Request] | None = None,
    slo: str | tuple[Objective, ...] = "",
    seed: int | None = None,
    hash_tokens: int | str | None = None,
    skip_bad_lines: bool = False,
    columns: str | Mapping[str, str] | None = None,
    tokenizer: TokenizerInput = None,
    watch: Watch | None = None,
    on_point: Callable[[Any], None] | None = None,
    hub: HubReader | bool = True,
    paths: bool = True,
    **keys: Unpack[ScenarioKeys],
) -> ScaleSweep:
    """The same simulation with the autoscaler at each of ``"waiting=2..64"``, or of several such together:
    what each target costs a day, which is the cheapest within ``slo``, and what as many replicas as there may
    be would cost, always.

    Requests are those of ``simulate``; ``on_point`` is told of each target as it is done.
    """
    from kvroom.optimize.scaling import sweep

    with _asking(hub):
        question = scenario(model, gpu, **keys)
        return sweep(
            _targets(targets),
            question,
            _requests(
                question, trace, seed, _opener(hash_tokens, columns, tokenizer, skip=skip_bad_lines)
            ),
            slo=_objectives(slo),
            watch=watch,
            paths=paths,
            on_point=on_point,
        )


def _targets(text: str | Sequence[str]) -> list[ScaleRange]:
    """The ranges that an autoscaler is swept over."""
    from kvroom.optimize.scaling import parse_targets

    return [parse_targets(one) for one in ([text] if isinstance(text, str) else text)]


def splits(
    model: ModelInput,
    gpu: GpuInput = None,
    *,
    trace: str | os.PathLike[str] | Iterable[Request] | None = None,
    slo: str | tuple[Objective, ...] = "",
    seed: int | None = None,
    hash_tokens: int | str | None = None,
    skip_bad_lines: bool = False,
    columns: str | Mapping[str, str] | None = None,
    tokenizer: TokenizerInput = None,
    watch: Watch | None = None,
    hub: HubReader | bool = True,
    **keys: Unpack[ScenarioKeys],
) -> Splits:
    """Every prefill:decode split of the GPUs of ``disaggregation``, simulated. Requests are those of
    ``simulate``."""
    from kvroom.optimize.split import splits as tried

    with _asking(hub):
        question = scenario(model, gpu, **keys)
        requests = _requests(
            question, trace, seed, _opener(hash_tokens, columns, tokenizer, skip=skip_bad_lines)
        )
        return tried(question, requests, slo=_objectives(slo), watch=watch)


def describe(
    *,
    trace: str | os.PathLike[str] | Iterable[Request] | None = None,
    workload: Mapping[str, Any] | None = None,
    seed: int | None = None,
    hash_tokens: int | str | None = None,
    skip_bad_lines: bool = False,
    columns: str | Mapping[str, str] | None = None,
    tokenizer: TokenizerInput = None,
) -> dict[str, Any]:
    """What the requests of a trace or of a made-up workload are like: lengths, gaps, sessions, prefixes.

    The keywords of a trace are those of ``simulate``.

    >>> told = describe(workload={"arrivals": "poisson:2/s", "input": 100, "output": 50, "requests": 20})
    >>> told["requests"], told["input_tokens"]["mean"]
    (20, 100.0)
    """
    from kvroom.workloads.statistics import describe as described
    from kvroom.workloads.traces.reader import Trace

    # What comes does not depend on what serves it.
    question = scenario("llama-3-8b", "H100-SXM", workload=workload)
    requests = _requests(
        question, trace, seed, _opener(hash_tokens, columns, tokenizer, skip=skip_bad_lines)
    )
    answer = described(requests)
    if isinstance(requests, Trace):
        counts = requests.counts
        answer |= {"skipped_lines": counts.skipped_lines, "unordered": counts.unordered}
        answer["warnings"] = list(counts.notes())
    return answer


def anonymise(
    trace: str | os.PathLike[str] | Iterable[Request],
    out: str | os.PathLike[str],
    *,
    key: bytes | None = None,
    hash_tokens: int | str | None = None,
    skip_bad_lines: bool = False,
    columns: str | Mapping[str, str] | None = None,
    tokenizer: TokenizerInput = None,
) -> dict[str, Any]:
    """Write ``trace`` (a file, a SPEC line or requests) without what was said in it: lengths, times,
    numbered sessions and salted hashes of blocks. The salt (``key``) is drawn anew and kept nowhere unless
    it is given. Gives counts and notes."""
    from kvroom.workloads.synthetic import parse
    from kvroom.workloads.traces.anonymise import anonymised
    from kvroom.workloads.traces.reader import Trace

    source: Any = _text_of_path(trace)
    if isinstance(source, str) and "=" in source and not os.path.exists(source):  # noqa: PTH110
        source = parse(source, "SPEC")
    elif isinstance(source, str):
        source = _opener(hash_tokens, columns, tokenizer, skip=skip_bad_lines)(source)
    anonymiser = anonymised(source, os.fspath(out), key)
    notes = [*source.counts.notes()] if isinstance(source, Trace) else []
    return {"requests": anonymiser.requests, "blocks": anonymiser.blocks, "warnings": notes}


def play(
    script: Mapping[str, Any],
    *,
    scheduler: str = "own",
    engine_python: str | os.PathLike[str] | None = None,
) -> ScriptResult:
    """A script of requests played against an engine's rules alone, clocked in engine steps; with
    ``scheduler="engine"`` by the scheduler of the vLLM that ``engine_python`` has."""
    from kvroom.simulator.script import Script

    if not _by_engine(scheduler, engine_python):
        return Script.from_dict(script).play()
    from kvroom.observe.installed.engine import installed
    from kvroom.observe.installed.serving import play_script

    planned = _planned(Scenario.from_dict({"model": "llama-3-8b", "gpu": "H100-SXM"}))
    with installed(os.fspath(engine_python or "auto"), planned) as engine:
        return play_script(engine, script)


def _by_engine(scheduler: str, engine_python: object) -> bool:
    """Whether the installed engine schedules; KvroomError where the two do not go together."""
    if scheduler not in SCHEDULERS:
        fix = did_you_mean(scheduler, SCHEDULERS, "Write own or engine.")
        raise KvroomError("--scheduler", scheduler, "schedules nothing", fix)
    if scheduler == SCHEDULERS[0] and engine_python is not None:
        fix = "Add --scheduler engine, or leave --engine-python out."
        raise KvroomError("--engine-python", engine_python, "is asked nothing here", fix)
    return scheduler == SCHEDULERS[1]


def reuse(
    trace: str | os.PathLike[str] | Held | Iterable[Request] | None = None,
    *,
    workload: str | None = None,
    block_tokens: int | str | None = None,
    policies: Sequence[str] = ("lru",),
    capacities: Sequence[int] = (),
    hash_tokens: int | str | None = None,
    skip_bad_lines: bool = False,
    columns: str | Mapping[str, str] | None = None,
    tokenizer: TokenizerInput = None,
    model: ModelInput | None = None,
    kv_dtype: str = "auto",
    rooms: Mapping[str, int | str] | None = None,
    tiers: Sequence[Any] = (),
    passing: Callable[[Iterable[Request]], Iterable[Request]] | None = None,
    hub: HubReader | bool = True,
    paths: bool = True,
) -> TraceReuse:
    """How much of a trace's prompts a prefix cache of any size would have held already.

    ``trace`` is a file or folder, or ``Request`` objects in their order (a ``Synthetic`` workload is such);
    ``workload`` a SPEC line in its place. ``block_tokens`` are those of the trace's ids, else 16.
    ``policies`` (lru, lru-tail, fifo, lfu, belady) are played at ``capacities`` in blocks, or at shares of
    the distinct blocks. With a ``model`` sizes are told in bytes, and ``rooms`` (bytes by tier: hbm, host,
    nvme, network) or ``tiers`` (as in a Scenario) say what each tier adds. ``passing`` sees the requests go
    by, and may end it. The answer has ``reuse``, and the shapes that ``levers`` has: a row a policy and size.
    Raises KvroomError for an unknown policy or a bad line.

    >>> from kvroom.workloads.synthetic import parse
    >>> chats = parse("input=300,output=100,turns=4,requests=40,arrivals=poisson:1/s,seed=1")
    >>> found = reuse(chats, policies=["lru", "belady"], capacities=[500])
    >>> [row["policy"] for row in found.rows()]
    ['lru', 'belady']
    >>> 0 < found.rows()[0]["hit_ratio"] <= found.rows()[1]["hit_ratio"] < 1
    True
    """
    from kvroom.planner.reuse import price_of, requests_of, reuse_of, rooms_of

    policies = [policies] if isinstance(policies, str) else policies
    opener = _opener(hash_tokens, columns, tokenizer, skip=skip_bad_lines)
    name, requests = requests_of(_text_of_path(trace), workload, opener)
    with _asking(hub):
        price = None if model is None else price_of(_text_of_path(model), kv_dtype, paths=paths)
    return reuse_of(
        requests,
        name=name,
        block_tokens=None if block_tokens is None else parse_tokens("--block-tokens", block_tokens),
        policies=policies,
        capacities=capacities,
        price=price,
        rooms=rooms_of(rooms or {}, tiers, priced=price is not None),
        passing=passing,
    )


def reconcile(
    log: str | os.PathLike[str] | StartupLog,
    *,
    expect: float | None = None,
    engine_python: str | os.PathLike[str] | None = None,
    hub: HubReader | bool = True,
    paths: bool = True,
    **keys: Any,
) -> Reconciliation:
    """An engine's own start-up log beside the prediction, account by account.

    ``log`` is a path (``-``: standard input), or a log that is read already; a recording of ``watch`` or a
    metrics text does too. ``keys`` are those of a Scenario that the log does not say, or that are to win over
    it (``model``, ``gpu`` …). ``expect``: requests of the longest length that somebody reckoned with; the way
    from them is told. ``engine_python`` as in ``plan``: the installed engine's own code then makes blocks of
    the bytes, those predicted and those printed. Raises KvroomError for a file in which no engine says how
    it started.
    """
    from kvroom.observe.logs.startup import read_file
    from kvroom.observe.reconcile import reconcile as reconciled
    from kvroom.observe.reconcile import unknown_log

    name = os.fspath(log) if isinstance(log, str | os.PathLike) else None
    read = read_file(os.fspath(log)) if isinstance(log, str | os.PathLike) else log
    if read.engine is None:
        raise unknown_log(name, read)
    # An id that was typed is asked for, one that a log names is not.
    with _asking(hub if "model" in keys else False):
        if engine_python is None:
            return reconciled(read, keys, paths=paths, expect=expect)
        from kvroom.observe.installed.engine import asking_plans

        with asking_plans(os.fspath(engine_python)) as planned:
            return reconciled(read, keys, paths=paths, expect=expect, planned=planned)


def calibration_of(reconciliation: Reconciliation, source: str) -> dict[str, Any]:
    """The calibration file that the log ``source`` teaches; KvroomError where it prints too little."""
    from kvroom.observe.calibration_file import profile_of

    return profile_of(reconciliation, source)


def calibrate(
    files: Sequence[str | os.PathLike[str]], *, hub: HubReader | bool = True, **keys: Any
) -> Calibrated:
    """What logs, recordings, records of ``prove`` and outputs of benchmarks teach, with the error before and
    after; ``content()`` of it is a calibration file. ``keys`` are those of ``reconcile``."""
    from kvroom.observe.calibrate import calibrate as calibrated

    with _asking(hub if "model" in keys else False):
        return calibrated([os.fspath(file) for file in files], keys)


def launch(
    model: ModelInput,
    gpu: GpuInput = None,
    *,
    hub: HubReader | bool = True,
    **keys: Unpack[ScenarioKeys],
) -> EngineCommand:
    """The engine's command line that realises a plan, with the files it reads and what to know of it.

    >>> made = launch("llama-3-8b", "H100-SXM", context_tokens="8K", engine="vllm")
    >>> made.argv[:3]
    ['vllm', 'serve', 'meta-llama/Meta-Llama-3-8B']
    """
    from kvroom.launchers.engine_command import engine_command

    with _asking(hub):
        return engine_command(_planned(scenario(model, gpu, **keys)))


def check(
    *files: str | os.PathLike[str],
    expect: str = "",
    settings: Mapping[str, str] | None = None,
    skip_others: bool = False,
    hub: HubReader | bool = True,
    **keys: Any,
) -> CheckReport:
    """Does what launch files start start, and does it hold what was promised.

    Files are told by their content: shell scripts, Dockerfiles, compose files, Kubernetes objects, values of
    charts, KServe, Dynamo, Ray Serve, Modelfiles, systemd units. ``keys`` are Scenario keys that the files
    leave open (``gpu`` above all, ``model`` where they name none that is known), ``settings`` values of their
    variables, ``expect`` is such as ``"concurrency=16,ttft_p95=1s"``. A file that starts no engine is
    unreadable, or with ``skip_others`` passed over. Nothing of a file is run. Raises KvroomError for an
    expectation that is none; what is wrong with a file is in the answer.
    """
    from kvroom.observe.check import CheckReport as Report

    checker = _checker(expect, settings, keys)
    with _asking(hub):
        rows = [c for file in files for c in checker.path(os.fspath(file), skip_others=skip_others)]
    return Report(deployments=tuple(rows))


def check_text(
    text: str,
    name: str = "-",
    *,
    expect: str = "",
    settings: Mapping[str, str] | None = None,
    hub: HubReader | bool = True,
    **keys: Any,
) -> CheckReport:
    """The same of a launch file's text, which is called ``name`` in the answer.

    >>> found = check_text("vllm serve Qwen/Qwen3-8B --max-model-len 8192", gpu="L40S")
    >>> found.exit_status, found.deployments[0].status
    (0, 'fits')
    """
    from kvroom.observe.check import CheckReport as Report

    with _asking(hub):
        return Report(deployments=tuple(_checker(expect, settings, keys).file(name, text)))


def check_patch(
    file: str | os.PathLike[str],
    *,
    settings: Mapping[str, str] | None = None,
    hub: HubReader | bool = True,
    **keys: Any,
) -> str:
    """A unified diff that puts into ``file`` the flags with which everything in it starts, as ``check`` then
    reads it; "" where all starts anyway, or no flags do it."""
    from kvroom.observe.check_fix import patch

    checker = _checker("", settings, keys)
    name = os.fspath(file)
    with _asking(hub):
        text = checker.text_of(name)
        return "" if text is None else patch(checker, name, text)


def _checker(expect: str, settings: Mapping[str, str] | None, keys: Mapping[str, Any]) -> Checker:
    from kvroom.observe.check import Checker, expectations

    def serve(workings: Workings, slo: tuple[Objective, ...]) -> Mapping[str, Any]:
        from kvroom.planner.simulation import simulation
        from kvroom.workloads.synthetic import of_workload

        workload = workings.plan.scenario.workload
        if workload is None:
            fix = "Say what comes: --input-tokens 1000 --output-tokens 200."
            raise KvroomError("--expect", None, "needs a workload for times", fix)
        return simulation(
            workings, of_workload(workload, None), slo=slo, keep_requests=False
        ).figures

    return Checker(keys, settings or {}, expectations(expect), serve)


def watch(
    url: str,
    *,
    interval_s: float = 1.0,
    count: int | None = None,
    window_s: float = 60.0,
    timeout_s: float = 5.0,
) -> Iterator[Sample]:
    """Samples of a running engine's metrics, one an interval, whatever the server does."""
    from kvroom.observe.endpoint import Endpoint
    from kvroom.observe.watch import Watcher, samples

    endpoint = Endpoint.of(url)
    for sample, _ in samples(endpoint, Watcher(window_s), interval_s, count, timeout_s):
        yield sample


def measure(
    url: str,
    model: ModelInput,
    gpu: GpuInput = None,
    *,
    parts: Sequence[str] = (),
    seed: int = 0,
    pid: int | None = None,
    hub: HubReader | bool = True,
    **keys: Unpack[ScenarioKeys],
) -> dict[str, Any]:
    """A record of what a running vLLM did with the experiments of ``prove``, which ``judge`` reads.

    ``parts`` are some of steps, firsts, conversations, pressure (none: all); ``pid`` is the engine's first
    process, where it runs here: times are then its own.
    """
    from kvroom.observe.prove.session import PARTS, about, measured, record_of

    with _asking(hub):
        question = scenario(model, gpu, **keys)
        run = measured(url, question, tuple(parts) or PARTS, seed=seed, pid=pid)
        return record_of([run], about(question, pid))


def judge(record: Mapping[str, Any], source: str = "record") -> tuple[list[Proof], dict[str, Any]]:
    """The proofs of a record of ``measure``, and what it was measured on; ``source`` is what the record is
    called where it is none."""
    from kvroom.observe.prove.session import read_record

    return read_record(record, source)


def prove(
    url: str,
    model: ModelInput,
    gpu: GpuInput = None,
    *,
    parts: Sequence[str] = (),
    seed: int = 0,
    pid: int | None = None,
    hub: HubReader | bool = True,
    **keys: Unpack[ScenarioKeys],
) -> Proof:
    """A running vLLM, measured beside its plan: cache, steps, first tokens, hits, preemptions.

    It takes minutes and loads the server. Arguments are those of ``measure``.
    """
    record = measure(url, model, gpu, parts=parts, seed=seed, pid=pid, hub=hub, **keys)
    return judge(record)[0][0]


def probe(
    *,
    memory_share: float = 0.1,
    disk: str | os.PathLike[str] | None = None,
    gpu_python: str | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Probe:
    """This machine's memory tiers, measured: ``machine`` of the answer is a machine file.

    ``disk`` is a folder (a test file is read there) or a large file; ``gpu_python`` a Python that has torch
    or CuPy; ``progress`` is told what is being measured.
    """
    from kvroom.observe.probe.machine import Wishes
    from kvroom.observe.probe.machine import probe as probed

    place = None if disk is None else Path(disk)
    wishes = Wishes(memory_share, place)
    if gpu_python is not None:
        wishes = Wishes(memory_share, place, gpu_python)
    return probed(wishes, progress)


def fit(
    gpu: GpuInput = None,
    model: str | None = None,
    *,
    memory: str | int | None = None,
    progress: Callable[[int, int], None] = lambda _done, _of: None,
    **keys: Unpack[ScenarioKeys],
) -> Fit:
    """What fits one's own card: every known model in the widest file that fits, or one ``model``'s files.

    ``gpu`` is what ``plan`` takes, None this machine's own card; ``memory`` its bytes where a card is sold in
    several sizes. ``keys`` as ``plan``'s: ``context_tokens`` must have room (8K), ``engine`` is ``llama.cpp``
    or ``ollama``. Speeds are one user's. Raises KvroomError as ``plan`` does, and where no card is seen.
    """
    from kvroom.hardware.reader import resolve
    from kvroom.optimize.fit import fit as fitted

    question: dict[str, Any] = {**keys, "gpu": _own_card() if gpu is None else _text_of_path(gpu)}
    if memory is not None:
        size = parse_bytes("memory", memory)
        if not resolve(question["gpu"]).unified_memory:
            fix = "Leave it out, or give an inline card of that size."
            raise KvroomError(
                "memory", memory, f"is no size of {question['gpu']}, which has one", fix
            )
        question["gpu"] = f"{question['gpu']}-{size // 10**9}GB"
    return fitted(question, model, progress=progress)


def pack(
    models: str | os.PathLike[str] | Sequence[Mapping[str, Any]],
    gpu: str | None = None,
    *,
    gpus: Sequence[str] | None = None,
    sharing: str = "turns",
    simulate: bool = True,
    prices: Mapping[str, float | str] | None = None,
    host_memory_bytes: int | str | None = None,
    hub: HubReader | bool = True,
) -> Packed:
    """Whether several models fit one node: their cards, the share each is started with, in the order of
    starting, and what they do to each other's times.

    ``models`` is a YAML or JSON file, or rows: the keys of a Scenario (``context``, ``version``, ``users``,
    ``rate``, ``input`` and ``output`` are short for some) and ``name``, ``gpus`` (cards it is pinned to),
    ``share`` (of memory, as its engine's flag takes it), ``sleep`` (level 1 or 2), ``starts`` (its place in
    the order), ``compute`` (its share by MPS). ``gpu`` is ``"H100-SXM:2"`` or slices,
    ``"H100-SXM:mig=3g.40gb"``; with ``gpus`` the cheapest of those that holds all is taken. ``sharing`` of a
    card: ``turns`` or ``mps``. Without ``simulate`` no times are told. The answer has ``fits``, ``sentence``
    and the shapes that ``levers`` has. Raises KvroomError, which names the entry and its key.

    >>> found = pack(
    ...     [{"model": "llama-3.1-8b", "context": "8K", "users": 20},
    ...      {"model": "qwen3-4b", "context": "8K", "users": 8}], "H100-SXM", simulate=False)
    >>> found.fits, found.rows()[1]["share_flag"]
    (True, '--gpu-memory-utilization 0.33')
    """
    from kvroom.launchers.yaml_documents import read_yaml
    from kvroom.optimize.pack.pack import PackQuestion, cheapest
    from kvroom.optimize.pack.pack import pack as packed

    entries = _text_of_path(models)
    rows = read_yaml(entries, "MODELS.yaml") if isinstance(entries, str) else entries
    question = PackQuestion(
        prices=prices or {},
        host_bytes=None
        if host_memory_bytes is None
        else parse_bytes("host_memory_bytes", host_memory_bytes),
        sharing=sharing,
        simulate=simulate,
    )
    with _asking(hub):
        if gpus:
            if gpu is not None:
                fix = "Give a node, or the cards of which the cheapest node is sought."
                raise KvroomError("--gpu", gpu, "and --gpus are two questions", fix)
            return cheapest(rows, gpus, question)
        if gpu is None:
            fix = "Name the cards of the node: --gpu H100-SXM:2, or --gpus L40S,H100-SXM."
            raise KvroomError("--gpu", None, "is missing", fix)
        return packed(rows, gpu, question)


def _own_card() -> dict[str, Any] | str:
    """This machine's card, as its driver tells; KvroomError where none is seen."""
    from kvroom.observe.probe.machine import Wishes
    from kvroom.observe.probe.machine import probe as probed

    probe = probed(Wishes(disk=None))
    device = probe.machine.get("device", probe.machine)
    if not probe.machine or device.get("vendor") in (None, "cpu"):
        fix = "Name one: kvroom fit --gpu RTX-4090, or a machine file of kvroom probe --out."
        raise KvroomError("gpu", None, "is not given, and no GPU is seen on this machine", fix)
    return str(device["name"])


def models() -> list[str]:
    """Names of the catalogue's models."""
    from kvroom.models import catalogue

    return catalogue.names()


def model(name: ModelInput, *, hub: HubReader | bool = True, paths: bool = True) -> ModelSpec:
    """One model, by whatever ``plan`` takes: its layers, tensors and where its numbers come from. Without
    ``paths`` no file is opened."""
    from kvroom.models.load import load

    with _asking(hub):
        return load(_text_of_path(name), paths=paths)


def gpus() -> list[str]:
    """Names of the catalogue's cards."""
    from kvroom.hardware import catalogue

    return catalogue.names()


def gpu(name: GpuInput) -> Device:
    """One card, by whatever ``plan`` takes: every figure and its source."""
    from kvroom.hardware.reader import resolve

    return resolve(_text_of_path(name))


def _reader(hub: HubReader | bool) -> HubReader | None:
    if hub is True:
        from kvroom import hub as installed

        return installed.reader()
    return hub or None


def _asking(hub: HubReader | bool) -> AbstractContextManager[None]:
    return asking(_reader(hub))


def _text_of_path(value: Any) -> Any:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _one_of(q: Scenario | Mapping[str, Any]) -> Scenario:
    if not isinstance(q, Scenario | Mapping):
        raise KvroomError("compare", q, "is no question", "Give a Scenario or its keys.")
    return q if isinstance(q, Scenario) else Scenario.from_dict(dict(q))


def _load(workload: Any, users: int | None, rate: float | None) -> Mapping[str, Any] | None:
    """The workload with the load that is asked for beside it."""
    if not isinstance(workload or {}, Mapping):
        fix = "Write {'input': …, 'output': …}."
        raise KvroomError("workload", workload, "is not an object", fix)
    load = dict(workload or {})
    load |= {"concurrency": users} if users is not None else {}
    load |= {"requests_per_s": rate} if rate is not None else {}
    return load or None


def _objectives(slo: str | tuple[Objective, ...]) -> tuple[Objective, ...]:
    from kvroom.planner.simulate import parse_slo

    if not isinstance(slo, str):
        return slo or ()
    return parse_slo(slo, "slo") if slo.strip() else ()


def _hash_tokens(value: int | str | None) -> int | None:
    if value is None:
        return None
    if isinstance(value, str):
        return parse_tokens("--hash-tokens", value)
    return check_int("hash_tokens", value, low=1, high=MAX_HASH_TOKENS)


def _opener(
    hash_tokens: int | str | None,
    columns: str | Mapping[str, str] | None,
    tokenizer: TokenizerInput,
    *,
    skip: bool,
) -> Callable[[str | Held], Trace | Iterable[Request]]:
    """What opens a trace as the keywords say, with what is installed; a recording of ``watch`` is one too."""
    from kvroom import installed
    from kvroom.observe.recording import Recording, recorded_requests
    from kvroom.workloads.traces.reader import Trace

    count = (
        installed.tokenizer(tokenizer) if isinstance(tokenizer, str | os.PathLike) else tokenizer
    )
    ids = _hash_tokens(hash_tokens)

    def opened(path: str | Held) -> Trace | Iterable[Request]:
        if isinstance(path, str) and recorded_requests(path):
            return tuple(Recording.open(path).requests())
        far = isinstance(path, str) and "://" in path
        return Trace(
            installed.remote_file(path) if far else path,  # type: ignore[arg-type]  # text it is
            hash_tokens=ids,
            skip_bad_lines=skip,
            columns=columns,
            tokenizer=count,
            unpack_zstd=installed.unpack_zstd(),
            parquet=installed.parquet_rows(),
        )

    return opened


def _pooled(
    requests: Iterable[Request], sessions: int | None, seed: int | None, pauses: float = 1.0
) -> Iterable[Request]:
    """The requests, those of so many sessions at a time where that is asked."""
    from kvroom.workloads.synthetic import Synthetic
    from kvroom.workloads.traces.pool import pool_of

    if sessions is None:
        return requests
    if isinstance(requests, Synthetic):
        fix = "Write agents=40 or arrivals=closed:40 in the workload."
        raise KvroomError("--sessions", sessions, "is of traces only", fix)
    return pool_of(requests, sessions, seed=seed, pauses=pauses)


def _requests(
    question: Scenario,
    trace: str | os.PathLike[str] | Iterable[Request] | None,
    seed: int | None,
    opener: Callable[[str | Held], Trace | Iterable[Request]],
) -> Iterable[Request]:
    """The requests of a file, those given, or those of the question's workload."""
    from kvroom.workloads.synthetic import of_workload

    if isinstance(trace, str | os.PathLike):
        return opener(os.fspath(trace))
    if trace is not None:
        if not isinstance(trace, Iterable):
            fix = "Give a file's path, or Request objects."
            raise KvroomError("trace", trace, "is no trace", fix)
        return trace
    if question.workload is None:
        fix = "Give --trace FILE, or --workload arrivals=poisson:2/s,input=1000,output=200."
        raise KvroomError("workload", None, "is missing: no requests to serve", fix)
    return of_workload(question.workload, seed)
