"""The Python calls: the keys of a Scenario in, a Plan out, or what to change about it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kvroom.answer import Plan
from kvroom.planning import plan as answer
from kvroom.scenario import Scenario

if TYPE_CHECKING:
    from kvroom.decisions.found import Found
    from kvroom.decisions.levers import Levers


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
    from kvroom.decisions.levers import levers as ranked

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
    ``counts``, ``engines``, ``weight_dtypes``, ``kv_dtypes``, ``budgets``, ``max_gpus``. ``simulate``
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
    from kvroom.decisions.search import search as hunt
    from kvroom.decisions.space import Space
    from kvroom.decisions.workers import processes

    workload = dict(keys.pop("workload", None) or {})
    workload |= {"concurrency": users} if users is not None else {}
    workload |= {"requests_per_s": rate} if rate is not None else {}
    asked = {"model": _given(model), "gpu": "H100-SXM", "workload": workload or None, **keys}
    return hunt(
        Scenario.from_dict(asked),
        slo,
        space=Space.from_dict(space or {}),
        simulate=simulate,
        seed=seed,
        journal=journal,
        pool=processes(jobs),
    )


def _given(value: Any) -> Any:
    return os.fspath(value) if isinstance(value, os.PathLike) else value
