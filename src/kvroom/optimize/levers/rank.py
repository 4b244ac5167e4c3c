"""Which lever moves the number: each one alone, the best together, and the gain split over them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from itertools import combinations
from typing import Any

from kvroom.answer import charts, html
from kvroom.answer.shown import Shown
from kvroom.errors import KvroomError, did_you_mean
from kvroom.optimize.cost import ORDERS, STAIRS, Figures, binding_figure, figures_of
from kvroom.optimize.levers import serving as serving_levers
from kvroom.optimize.levers.catalogue import levers_of
from kvroom.optimize.levers.lever import Lever, Unmodelled
from kvroom.optimize.levers.served import ServedFigures, ServedLever, each_served, served
from kvroom.optimize.levers.waterfall import EXACT, shapley
from kvroom.planner.layout import laid_out
from kvroom.planner.plan import Workings, work
from kvroom.records import dataclass
from kvroom.scenario.scenario import Scenario
from kvroom.simulator.timeline import Watch
from kvroom.workloads.requests import Request

UNSERVED = "what it brings depends on who comes: `--simulate` serves the workload with it"
MERGED = ("engine_args", "workload")
"""Keys that hold objects: a lever sets some of their keys and leaves the others."""
SHOWN_SETS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulled:
    """A lever alone: what it changes, key by key, and the figures after."""

    lever: Lever
    changes: Mapping[str, Any]
    after: Figures
    moves_binding: bool

    @property
    def easy(self) -> bool:
        """One flag away, model, cards and limit kept, its cost in quality published and small."""
        cheap = self.lever.quality is not None and self.lever.quality.small
        return self.lever.one_flag and cheap and len(self.lever.keeps) == 3

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        lever = self.lever
        return {
            "id": lever.id,
            "label": lever.label,
            "changes": dict(self.changes),
            "after": self.after.to_dict(),
            "needs": list(lever.needs),
            "quality": lever.quality.to_dict() if lever.quality else None,
            "latency": lever.latency.to_dict() if lever.latency else None,
            "moves_binding": self.moves_binding,
            "keeps": list(lever.keeps),
            "one_flag": lever.one_flag,
            "easy": self.easy,
            "reads": lever.reading,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """Levers pulled at once."""

    ids: tuple[str, ...]
    after: Figures


@dataclass(frozen=True, kw_only=True, repr=False)
class Levers(Shown):
    """The answer of ``levers``: ranked levers, the best sets of them, the first set's gain split.

    ``verdict`` is the Plan's own sentence, told where nothing fits as it is. ``waterfall`` splits
    ``together[0]``'s requests less ``before``'s over its levers. ``served``, where a simulation is asked
    for: the workload's requests served with a lever, ``served_before`` without any.
    """

    TITLE = "Which lever to pull"

    scenario: Scenario
    before: Figures
    binding: str
    verdict: str
    levers: tuple[Pulled, ...]
    together: tuple[Together, ...]
    waterfall: tuple[tuple[str, float], ...]
    left_out: tuple[Unmodelled, ...] = ()
    served_before: ServedFigures | None = None
    served: tuple[ServedLever, ...] = ()
    ranked_by: str = "requests"
    warnings: tuple[str, ...] = ()

    @cached_property
    def first(self) -> Pulled | None:
        """The best of the easy levers that better anything; None where there is none."""
        better = ORDERS[self.ranked_by]
        easy = (
            lever
            for lever in self.levers
            if lever.easy and better(lever.after) > better(self.before)
        )
        return next(easy, None)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values (CONTRACT: levers)."""
        return {
            "before": self.before.to_dict(),
            "levers": [lever.to_dict() for lever in self.levers],
            "together": [{"ids": list(t.ids), "after": t.after.to_dict()} for t in self.together],
            "waterfall": [{"id": i, "requests": r} for i, r in self.waterfall],
            "first": self.first.lever.id if self.first else None,
            "left_out": [x.to_dict() for x in self.left_out],
            "served": {
                "before": self.served_before.to_dict(),
                "levers": [x.to_dict() for x in self.served],
            }
            if self.served_before
            else None,
            "ranked_by": self.ranked_by,
            "scenario": self.scenario.to_dict(),
            "warnings": list(self.warnings),
        }

    def rows(self) -> list[dict[str, Any]]:
        """A flat row a lever, for a table or a data frame."""
        before = {f"{key}_before": value for key, value in self.before.to_dict().items()}
        return [
            {
                "id": lever.lever.id,
                "label": lever.lever.label,
                **lever.after.to_dict(),
                **before,
                "needs": "; ".join(lever.lever.needs),
                "quality": lever.lever.quality.effect if lever.lever.quality else None,
                "source": lever.lever.quality.source if lever.lever.quality else None,
                "moves_binding": lever.moves_binding,
            }
            for lever in self.levers
        ]

    def summary(self) -> str:
        """What to pull first."""
        return self.sentence

    def questions(self) -> Sequence[Scenario]:
        """The question whose levers they are."""
        return [self.scenario]

    def html_parts(self) -> list[str]:
        """The sentence, the gains drawn, and every lever."""
        was, better = self.before.requests or 0, ORDERS[self.ranked_by]
        parts = [html.paragraph(self.sentence)]
        chart = [charts.Bar(label="as it is", length=was, kind="was")]
        gained = [lever for lever in self.levers if better(lever.after) > better(self.before)]
        chart += [charts.Bar(label=p.lever.id, length=p.after.requests or 0) for p in gained[:20]]
        parts += [html.heading("Requests at once, each lever alone")]
        parts += [charts.bars(chart, "Requests at once with each lever alone")]
        if self.waterfall:
            reached, steps = was, [charts.Bar(label="as it is", length=was, kind="was")]
            for name, share in self.waterfall:
                start = reached if share >= 0 else reached + share
                steps.append(charts.Bar(label=name, start=start, length=abs(share)))
                reached += share
            steps.append(charts.Bar(label="together", length=reached, kind="was"))
            parts += [html.heading("Together: each lever's share of the gain, whatever the order")]
            parts += [charts.bars(steps, "Waterfall of requests at once")]
        parts += [html.heading("Every lever"), html.table(_COLUMNS, self.rows())]
        if self.served_before is not None:
            rows = [{"id": "as it is"} | self.served_before.to_dict()]
            rows += [{"id": x.lever.id} | x.after.to_dict() for x in self.served]
            parts += [html.heading("The workload's requests, served with each alone")]
            parts += [html.table(_SERVED, rows)]
        left = [x.to_dict() for x in self.left_out]
        parts += [html.heading("Left out"), html.table(_LEFT, left)]
        return parts

    @property
    def sentence(self) -> str:
        """What to pull first, what it brings, and its price."""
        first = self.first
        if first is None and not self.before.requests:
            return self.verdict
        if first is None:
            return "No lever that is one flag away, keeps everything and has a small published cost helps."
        before, after, key = self.before, first.after, self.ranked_by
        changes = {
            "requests": (before.requests, after.requests, "requests", 1.0),
            "step": (before.token_s, after.token_s, "ms a token", 1e3),
            "ttft": (before.ttft_s, after.ttft_s, "ms TTFT", 1e3),
            "cost": (
                before.usd_per_million_output_tokens,
                after.usd_per_million_output_tokens,
                "dollars for a million tokens",
                1.0,
            ),
        }
        old, new, unit, scale = changes[key]
        brings = f"{html.number(old and old * scale)} → {html.number(new and new * scale)} {unit}"
        quality = first.lever.quality
        price = f"{quality.effect} ({quality.source})" if quality else "not published"
        sentence = f"Pull {first.lever.id} first: {brings}. Its price in quality: {price}."
        return sentence + (
            f" That is {first.lever.label}." if first.lever.family == "speculation" else ""
        )


_COLUMNS = (
    html.Column(title="lever", key="id"),
    html.Column(title="what it is", key="label"),
    html.Column(title="requests", key="requests", number=True),
    html.Column(title="step, s a token", key="token_s", number=True, decimals=4),
    html.Column(title="TTFT, s", key="ttft_s", number=True, decimals=3),
    html.Column(title="$ / M tokens", key="usd_per_million_output_tokens", number=True),
    html.Column(title="needs", key="needs"),
    html.Column(title="quality", key="quality"),
    html.Column(title="source", key="source"),
)
_SERVED = (
    html.Column(title="lever", key="id"),
    html.Column(title="TTFT, s", key="ttft_s", number=True, decimals=3),
    html.Column(title="its p95", key="ttft_p95_s", number=True, decimals=3),
    html.Column(title="TPOT, s", key="tpot_s", number=True, decimals=4),
    html.Column(title="tokens/s", key="output_tokens_per_s", number=True),
    html.Column(title="hits", key="prefix_hit_ratio", number=True, decimals=3),
    html.Column(title="$ / M tokens", key="usd_per_million_output_tokens", number=True),
)
_LEFT = (
    html.Column(title="lever", key="id"),
    html.Column(title="what it is", key="label"),
    html.Column(title="why", key="why"),
)


def changed(scenario: Scenario, levers: Iterable[Lever]) -> dict[str, Any]:
    """The keys that ``levers`` set, whole values, as a Scenario takes them."""
    keys = scenario.to_dict()
    changes: dict[str, Any] = {}
    for lever in levers:
        for key, value in lever.patch.items():
            base = changes.get(key, keys[key]) or {}
            new = {**base, **value} if key in MERGED else value
            if new != keys[key]:
                changes[key] = new
    return changes


@dataclass
class Bench:
    """Plans of one question with sets of levers pulled, each made once."""

    scenario: Scenario
    paths: bool = True
    before_each: Callable[[], None] | None = None
    """Called before each Plan that is made; what it raises ends the work."""
    _known: dict[frozenset[str], Workings | KvroomError] = field(default_factory=dict)

    def work(self, levers: Sequence[Lever]) -> Workings:
        """The workings with ``levers`` pulled; KvroomError where they do not go together."""
        key = frozenset(lever.id for lever in levers if lever.patch)
        if key not in self._known:
            if self.before_each is not None:
                self.before_each()
            keys = self.scenario.to_dict() | changed(self.scenario, levers)
            try:
                self._known[key] = work(Scenario.from_dict(keys), paths=self.paths)
            except KvroomError as error:
                self._known[key] = error
        workings = self._known[key]
        if isinstance(workings, KvroomError):
            raise workings
        return workings

    def figures(self, levers: Sequence[Lever]) -> Figures:
        """The figures with ``levers`` pulled, counted as the farthest of them counts."""
        stair = max((lever.reading for lever in levers), key=STAIRS.index, default="held")
        return figures_of(self.work(levers), stair)


def levers(
    scenario: Scenario,
    *,
    by: str = "requests",
    together: Sequence[str] | None = None,
    simulate: bool = False,
    source: Iterable[Request] | None = None,
    seed: int = 0,
    paths: bool = True,
    before_each: Callable[[], None] | None = None,
    watch: Watch | None = None,
) -> Levers:
    """Every lever of ``scenario``, ranked ``by`` requests, step, ttft or cost.

    ``together`` names the levers to combine (default: of each family the best that keeps model and limit
    and whose cost in quality, if any, is published and small). ``simulate`` serves the requests of
    ``source``, or the workload's,
    as it is and with the levers that only serving shows: drafts, tiers, pools, and the first.
    ``before_each`` is called before each Plan, to count them or, by raising, to end the work; ``watch`` the
    same while requests are served. Raises
    KvroomError for a question that cannot be asked.
    """
    if by not in ORDERS:
        fix = did_you_mean(by, ORDERS, f"One of: {', '.join(ORDERS)}.")
        raise KvroomError("--by", by, "is nothing that levers are ranked by", fix)
    scenario, _ = laid_out(scenario, paths=paths)
    bench = Bench(scenario, paths, before_each)
    base = bench.work(())
    before = figures_of(base)
    pulled, left_out = _alone(bench, levers_of(base), base)
    pulled.sort(key=lambda p: ORDERS[by](p.after), reverse=True)  # stable: the easier lever first
    players = _named(together, pulled) if together else _best_of_each(pulled, before, by)
    sets = _sets(bench, players, before, by)
    first = [player for player in players if sets and player.id in sets[0].ids]
    answer = Levers(
        scenario=base.plan.scenario,
        before=before,
        binding=base.plan.verdict.binding,
        verdict=base.plan.verdict.sentence,
        levers=tuple(pulled),
        together=tuple(sets),
        waterfall=tuple(_split(bench, first, seed)),
        left_out=tuple(left_out),
        ranked_by=by,
        warnings=base.plan.warnings,
    )
    return _with_served(answer, bench, base, simulate=simulate, watch=watch, source=source)


def _with_served(
    levers: Levers,
    bench: Bench,
    base: Workings,
    *,
    simulate: bool,
    watch: Watch | None,
    source: Iterable[Request] | None,
) -> Levers:
    """``levers`` with the levers that only serving shows: served where asked, else left out."""
    scenario, deployment = base.plan.scenario, base.deployment
    tried = [
        *serving_levers.tiers(scenario, deployment),
        *serving_levers.pools(scenario, deployment),
    ]
    if not simulate:
        out = [Unmodelled(id=x.id, label=x.label, why=x.refusal or UNSERVED) for x in tried]
        return replace(levers, left_out=(*levers.left_out, *out))
    first = [levers.first.lever] if levers.first else []
    drafts = [lever.lever for lever in levers.levers if lever.lever.family == "speculation"]
    every = {x.id: x for x in (*first, *drafts, *tried) if x.reading == "held"}
    after, out = each_served(
        every.values(),
        lambda lever: bench.work((lever,)),
        lambda lever: changed(bench.scenario, (lever,)),
        watch,
        source,
    )
    left = (*levers.left_out, *out)
    before = served(base, watch, source)
    return replace(levers, served_before=before, served=tuple(after), left_out=left)


def _alone(
    bench: Bench, all_levers: Iterable[Lever], base: Workings
) -> tuple[list[Pulled], list[Unmodelled]]:
    found: list[Pulled] = []
    left_out: list[Unmodelled] = []
    for lever in all_levers:
        try:
            pulled = lever.refusal or _pulled(bench, lever, base)
        except KvroomError as error:
            pulled = f"{error.field} {error.message}"
        if isinstance(pulled, Pulled):
            found.append(pulled)
        else:
            left_out.append(Unmodelled(id=lever.id, label=lever.label, why=pulled))
    return found, left_out


def _pulled(bench: Bench, lever: Lever, base: Workings) -> Pulled | str:
    """The lever alone, or why nothing runs with it where something ran before."""
    made, after = bench.work((lever,)), bench.figures((lever,))
    before = base.plan.verdict
    lost = not after.requests and figures_of(base).requests
    if lost or (before.starts and not made.plan.verdict.starts):
        return made.plan.verdict.sentence
    now, then = (binding_figure(w.plan, before.binding) for w in (base, made))
    return Pulled(
        lever=lever,
        changes=changed(bench.scenario, (lever,)),
        after=after,
        moves_binding=now != then or lever.reading != "held",
    )


def _named(ids: Sequence[str], pulled: Sequence[Pulled]) -> list[Lever]:
    by_id = {p.lever.id: p.lever for p in pulled}
    for name in ids:
        if name not in by_id:
            fix = did_you_mean(name, by_id, "`kvroom levers` lists them.")
            raise KvroomError("--together", name, "is no lever of this question", fix)
    chosen = [by_id[name] for name in dict.fromkeys(ids)]
    families = [x.family for x in chosen]
    for x in chosen:
        if families.count(x.family) > 1:
            message = f"is not the only one that sets {x.family}"
            raise KvroomError("--together", x.id, message, "Take one of each kind.")
    return chosen


def _best_of_each(pulled: Sequence[Pulled], before: Figures, by: str) -> list[Lever]:
    better = ORDERS[by]
    best: dict[str, Lever] = {}
    for p in pulled:  # ranked: the first of a family is its best
        lever = p.lever
        unchanged = "model" in lever.keeps and "limit" in lever.keeps
        cheap = lever.quality is not None and lever.quality.small
        if unchanged and cheap and better(p.after) > better(before):
            best.setdefault(lever.family, lever)
    return list(best.values())


def _sets(bench: Bench, players: Sequence[Lever], before: Figures, by: str) -> list[Together]:
    """The sets of levers that do best, the best first; of equals the smaller."""
    better = ORDERS[by]
    chosen = (
        (s for number in range(len(players), 0, -1) for s in combinations(players, number))
        if len(players) <= EXACT
        else ((*players[:number],) for number in range(len(players), 0, -1))
    )
    sets: list[Together] = []
    for levers_set in chosen:
        try:
            after = bench.figures(levers_set)
        except KvroomError:
            continue
        if better(after) > better(before):
            sets.append(Together(ids=tuple(x.id for x in levers_set), after=after))
    sets.sort(key=lambda t: (-better(t.after), len(t.ids)))
    return sets[:SHOWN_SETS]


def _split(bench: Bench, players: Sequence[Lever], seed: int) -> list[tuple[str, float]]:
    by_id = {player.id: player for player in players}

    def value(ids: frozenset[str]) -> float:
        try:
            return bench.figures([player for player in players if player.id in ids]).requests or 0
        except KvroomError:
            return bench.figures(()).requests or 0  # levers that exclude each other bring nothing

    shares = shapley(list(by_id), value, seed)
    return sorted(shares.items(), key=lambda item: -item[1])
