"""How many of a number of GPUs should compute prompts and how many answers, and whether that pays.

Every split of the GPUs that ``disaggregation`` names serves the same requests; so do the same GPUs with
each replica doing both. What is compared is goodput where objectives are set, else the mean time of a
whole request. Where the best split wins, the slowest link with which it still does is looked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from kvroom.answer.shown import Shown
from kvroom.errors import KvroomError
from kvroom.optimize.cliff import figures
from kvroom.planner.layout import laid_out
from kvroom.planner.plan import work
from kvroom.planner.pools import pools_of
from kvroom.planner.simulate import Objective, serve
from kvroom.records import dataclass
from kvroom.scenario.cluster import Disaggregation
from kvroom.scenario.scenario import Scenario
from kvroom.simulator.timeline import Watch
from kvroom.workloads.requests import Request

MOST = 15
"""Splits that are tried; of more, as many are taken evenly."""
CLOSE = 1.1
"""The link is found to within this ratio."""
SLOWEST, FASTEST = 1e6, 1e15
"""Bytes per second between which a link is looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """So many replicas of each kind (``prefill`` 0: each does both) and their results."""

    prefill: int
    decode: int
    gpus: int
    answer: dict[str, Any]
    score: float
    """Higher is better."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        split = {"prefill": self.prefill, "decode": self.decode} if self.prefill else {}
        replicas = {} if self.prefill else {"replicas": self.decode}
        mean = {"e2e_mean_s": self.answer["e2e_s"]["mean"]}
        return {**split, **replicas, "gpus": self.gpus} | figures(self.answer) | mean


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Splits(Shown):
    """All splits, the same GPUs without one, the best, and the slowest link with which it is no worse
    than without (None: it never is)."""

    TITLE = "Prefill and decode pools"

    by: str
    tried: Sequence[Tried]
    together: Tried
    best: Tried
    needs_bytes_per_s: float | None

    @property
    def pays(self) -> bool:
        """Whether the best split is better than none."""
        return self.best.score > self.together.score

    def summary(self) -> str:
        """The best split, and whether it is better than none."""
        best = f"{self.best.prefill} prefill and {self.best.decode} decode replicas do best"
        return f"{best}, {'better' if self.pays else 'no better'} than without pools."

    def rows(self) -> list[dict[str, Any]]:
        """A flat row a split, and one without pools (prefill 0)."""
        return [
            {"prefill": t.prefill, "decode": t.decode} | t.to_dict()
            for t in (*self.tried, self.together)
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "by": self.by,
            "splits": [t.to_dict() for t in self.tried],
            "aggregated": self.together.to_dict(),
            "best": {"prefill": self.best.prefill, "decode": self.best.decode},
            "pays": self.pays,
            "needs_link_bytes_per_s": self.needs_bytes_per_s,
        }


class Stopped(Exception):
    """The watcher ended the run."""


class _Hunt:
    def __init__(
        self,
        scenario: Scenario,
        pools: Disaggregation,
        source: Iterable[Request],
        slo: tuple[Objective, ...],
        watch: Watch | None,
    ) -> None:
        self.scenario = scenario
        self.pools = pools
        self.source = source
        self.slo = slo
        self.watch = watch

    def score(self, answer: dict[str, Any]) -> float:
        if self.slo:
            return float(answer["goodput_requests_per_s"])
        mean = answer["e2e_s"]["mean"]
        return float("-inf") if mean is None else -float(mean)

    def split(self, prefill: int, decode: int, gpus: int, link: float | None = None) -> Tried:
        own = self.pools
        pools = replace(
            own,
            prefill=replace(own.prefill, count=prefill),
            decode=replace(own.decode, count=decode),
            link_bytes_per_s=own.link_bytes_per_s if link is None else link,
        )
        return self._tried(prefill, decode, gpus, replace(self.scenario, disaggregation=pools))

    def together(self, gpus: int) -> Tried:
        scenario = self.scenario
        copies = gpus // scenario.gpu_count
        if not copies:
            why = f"GPUs are fewer than the {scenario.gpu_count} of one replica that does both"
            fix = "Say a smaller layout beside disaggregation: --gpu-count, --tp."
            raise KvroomError("disaggregation", gpus, why, fix)
        together = replace(scenario, disaggregation=None, replicas=copies)
        return self._tried(0, copies, copies * scenario.gpu_count, together)

    def _tried(self, prefill: int, decode: int, gpus: int, scenario: Scenario) -> Tried:
        simulated = serve(work(scenario), self.source, slo=self.slo, watch=self.watch)
        if simulated.fleet.stopped:
            raise Stopped
        answer = simulated.to_dict()
        score = self.score(answer)
        return Tried(prefill=prefill, decode=decode, gpus=gpus, answer=answer, score=score)


def splits(
    scenario: Scenario,
    source: Iterable[Request],
    *,
    slo: tuple[Objective, ...] = (),
    watch: Watch | None = None,
) -> Splits:
    """Try every split of the GPUs of ``scenario.disaggregation``.

    KvroomError where there is nothing to split; Stopped where ``watch`` ends it.
    """
    pools = scenario.disaggregation
    if pools is None:
        fix = 'Say what to split: --disaggregation \'{"prefill": {"count": 2}, "decode": {"count": 2}}\'.'
        raise KvroomError("--splits", None, "needs disaggregation", fix)
    (_, prefill, p), (_, decode, d) = pools_of(scenario)
    total = p * prefill.gpu_count + d * decode.gpu_count
    pairs = [
        (number, (total - number * prefill.gpu_count) // decode.gpu_count)
        for number in range(1, total // prefill.gpu_count + 1)
    ]
    pairs = [pair for pair in pairs if pair[1] >= 1]
    if len(pairs) > MOST:
        pairs = [pairs[index * (len(pairs) - 1) // (MOST - 1)] for index in range(MOST)]
    scenario, _ = laid_out(scenario)
    hunt = _Hunt(scenario, pools, source, slo, watch)
    together = hunt.together(total)
    tried = [hunt.split(n, m, n * prefill.gpu_count + m * decode.gpu_count) for n, m in pairs]
    best = max(tried, key=lambda t: t.score)
    return Splits(
        by="goodput_requests_per_s" if slo else "e2e_mean_s",
        tried=tried,
        together=together,
        best=best,
        needs_bytes_per_s=_link(hunt, best, together.score),
    )


def _link(hunt: _Hunt, best: Tried, goal: float) -> float | None:
    """The slowest link with which ``best`` reaches ``goal``."""

    def reaches(link: float) -> bool:
        return hunt.split(best.prefill, best.decode, best.gpus, link).score >= goal

    slow, fast = SLOWEST, FASTEST
    if not reaches(fast):
        return None
    while fast > slow * CLOSE:
        middle = (slow * fast) ** 0.5
        slow, fast = (slow, middle) if reaches(middle) else (middle, fast)
    return fast
