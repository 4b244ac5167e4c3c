"""The verdict: does it start, does it hold what is asked, what gives way first; and that in one sentence."""

from __future__ import annotations

from dataclasses import replace
from math import floor

from kvroom.answer.plan import Ceiling, Plan, Room, Step
from kvroom.answer.verdict import Reason, Status, Verdict
from kvroom.engines.base import MORE_ROOM, EngineAnswer
from kvroom.engines.registry import engine_of
from kvroom.errors import as_sentence
from kvroom.hardware.mixed import so_many
from kvroom.models import weight_dtypes
from kvroom.records import dataclass
from kvroom.scenario.scenario import Scenario
from kvroom.scenario.workload import Workload
from kvroom.sharding.deployment import Deployment
from kvroom.sharding.layout import Rank
from kvroom.units import ceil_div, say_tokens, show_memory


def not_started(plan: Plan) -> tuple[str, str]:
    """Why a plan's engine would not start, and what would cure that very reason, each as a clause."""
    reasons = plan.verdict.reasons
    cured = next((reason for reason in reasons if reason.fix), None)
    if cured is not None:
        return cured.message, cured.fix
    return (reasons[0].message if reasons else plan.verdict.sentence.rstrip(".")), MORE_ROOM


def requests_held(
    deployment: Deployment, answer: EngineAnswer, limit: Ceiling | None, room: Room | None = None
) -> int | None:
    """Whole requests that the deployment runs at once: those that its cache holds, as far as its scheduler
    takes them; of the workload's lengths where ``room`` has them, else of ``context_tokens``. None where
    requests store nothing."""
    stored, taken = _stored(deployment, answer, limit, room), _taken(deployment, answer)
    return stored if stored is None or taken is None else min(stored, taken)


def _stored(
    deployment: Deployment, answer: EngineAnswer, limit: Ceiling | None, room: Room | None = None
) -> int | None:
    """Whole requests that the cache holds."""
    if limit is None:
        return None
    if room is not None and room.requests is not None:
        return floor(room.requests)
    if engine_of(deployment.engine).ceiling:
        return limit.requests
    most = answer.capacity.max_concurrency if answer.capacity else None
    return None if most is None else deployment.layout.dp * answer.pools * floor(most)


def _taken(deployment: Deployment, answer: EngineAnswer) -> int | None:
    """Requests that the engine's schedulers run at once, whatever is free; None without a limit."""
    most = answer.capacity.max_running_requests if answer.capacity else None
    return None if most is None else deployment.layout.dp * answer.pools * most


def judge(
    scenario: Scenario,
    deployment: Deployment,
    answer: EngineAnswer,
    limit: Ceiling | None,
    room: Room | None = None,
) -> Verdict:
    """The verdict on a deployment; ``room`` is that of the workload's lengths, where it states any."""
    return _Judge(scenario, deployment, answer, limit, room).verdict()


@dataclass(frozen=True)
class _Judge:
    scenario: Scenario
    d: Deployment
    answer: EngineAnswer
    limit: Ceiling | None
    room: Room | None

    @property
    def asked(self) -> int:
        return self.scenario.replica_concurrency or 1

    @property
    def lengths(self) -> Workload | None:
        """The workload whose lengths are meant; None: requests of ``context_tokens`` are."""
        of_lengths = self.room is not None and self.room.requests is not None
        return self.scenario.workload if of_lengths else None

    @property
    def weight_bytes(self) -> int:
        """Those on the binding GPU, as measured where that is known."""
        return self.d.known_bytes.get("weights", self.answer.rank.weight_bytes)

    def verdict(self) -> Verdict:
        d, answer = self.d, self.answer
        if answer.refusals:
            return self._refused()
        if self.weight_bytes > answer.gpu_bytes and not answer.cache_given:
            return _refusal("weights", *self._too_heavy())
        stored = _stored(d, answer, self.limit)
        if stored is None:
            return self._no_cache()
        taken = _taken(d, answer)
        held = stored if taken is None else min(stored, taken)
        if held < 1 and answer.starts and answer.cache_given:
            return self._counted(held, stored)
        if held < 1 or not answer.starts:
            return self._too_long()
        if (over := self._over_bytes()) > 0:
            return self._overrun(over)
        of_lengths = _stored(d, answer, self.limit, self.room)
        stored = stored if of_lengths is None else of_lengths
        return self._counted(stored if taken is None else min(stored, taken), stored)

    # Refused

    def _refused(self) -> Verdict:
        rules = self.answer.refusals
        unsupported = next((rule for rule in rules if rule.unsupported), None)
        first = unsupported or rules[0]
        status: Status = "unsupported" if unsupported else "would_not_start"
        how = "Does not run" if unsupported else "Does not start"
        return Verdict(
            status=status,
            fits=False,
            binding=self.answer.binding or "nothing",
            sentence=f"{how} on {self._cards}: {first.reason.clause}.",
            reasons=tuple(rule.reason for rule in rules),
        )

    def _too_heavy(self) -> tuple[str, Reason]:
        d, answer = self.d, self.answer
        need, have = self.weight_bytes, answer.gpu_bytes
        message = (
            f"the weights need {show_memory(need)} on one GPU and {d.device.name} holds "
            f"{show_memory(have)}, {show_memory(need - have)} too little"
        )
        fix = self._remedy(have, "would hold them")
        more = f" {as_sentence(fix)}" if fix else ""
        reason = Reason(rule="weights", message=message, fix=fix, source="config")
        return f"Does not fit: {message}.{more}", reason

    def _remedy(self, room: int, do: str, *, cache: bool = False) -> str:
        """The fewest cards, and the widest narrower weights, whose weights take less than ``room`` of a GPU,
        with the ``cache`` of one request where that is meant too, and what they ``do``. Weights that were
        measured keep their proportion to those reckoned."""
        d, reckoned = self.d, self.answer.rank.weight_bytes

        def taken(rank: Rank) -> int:
            weights = ceil_div(rank.weight_bytes * self.weight_bytes, reckoned) if reckoned else 0
            return weights + (d.request_bytes(rank) if cache else 0)

        remedies: list[str] = []
        heads = d.model.q_heads or 2**20
        for tp in (2, 4, 8, 16, 32, 64):
            if tp > d.layout.tp and heads % tp == 0:
                layout = replace(d.layout, tp=tp, ep=1, dcp=1)
                if max(map(taken, d.weights.ranks(layout))) < room:
                    remedies.append(f"{layout.gpus} of them (tp {tp})")
                    break
        for name in ("fp8", "int4"):
            rule = type(d.weights)(model=d.model, quantisation=weight_dtypes.named(name, d.model))
            if rule.whole_bytes < d.weights.whole_bytes and all(
                taken(rank) < room for rank in rule.ranks(d.layout)
            ):
                remedies.append(f"{name} weights")
                break
        return f"{' or '.join(remedies)} {do}" if remedies else ""

    def _no_cache(self) -> Verdict:
        if not self.answer.starts:
            why = self.answer.reason
            reason = Reason(rule="start", message=why, fix="", source=self._check)
            sentence = f"Does not start on {self._cards}: {why}."
            return _refusal("nothing" if self.answer.kv_bytes else "weights", sentence, reason)
        sentence = f"Fits on {self._cards}, and requests store nothing: this model keeps no cache."
        return Verdict(status="fits", fits=True, binding="nothing", sentence=sentence)

    def _too_long(self) -> Verdict:
        d, answer = self.d, self.answer
        need = d.request_bytes(answer.rank)
        longest = answer.capacity.max_context_tokens if answer.capacity else None
        shorter = bool(longest and longest < d.context_tokens)
        fix = f"the longest request that fits is {longest:,} tokens" if shorter else ""
        none = "" if longest else " Not even a short one fits."
        say = f" {as_sentence(fix)}" if fix else none
        if not answer.starts and answer.reason and not engine_of(d.engine).ceiling:
            message = answer.reason
            if answer.kv_bytes <= 0:
                room = self.weight_bytes + answer.kv_bytes
                fix = self._remedy(room, "would leave room", cache=True)
                shorter, say = bool(fix), f" {as_sentence(fix)}"
            sentence = f"Does not start on {self._cards}: {message}.{say if shorter else ''}"
        elif need <= answer.kv_bytes:
            message = (
                f"{_a_request(d)} stores {show_memory(need)}, but as {d.engine} shares out its "
                f"{show_memory(answer.kv_bytes)} of cache on one GPU it needs more"
            )
            sentence = f"Not one request fits: {message}.{say}"
        else:
            message = (
                f"beside the weights {show_memory(answer.kv_bytes)} is left for cache on one GPU, and "
                f"{_a_request(d)} needs {show_memory(need)}"
            )
            sentence = f"Not one request fits: {message}.{say}"
        binding = self._account
        return _refusal(
            binding, sentence, Reason(rule=binding, message=message, fix=fix, source=self._check)
        )

    # Out of memory while it runs

    def _over_bytes(self) -> int:
        """Bytes of one GPU by which all its accounts together exceed it."""
        if self.answer.cache_given or engine_of(self.d.engine).ceiling:
            return 0
        return -sum(account.bytes for account in self.answer.accounts if account.name == "unused")

    def _overrun(self, over: int) -> Verdict:
        d, answer = self.d, self.answer
        message = (
            f"weights, cache and what {d.engine} allocates beside them come to "
            f"{show_memory(answer.gpu_bytes + over)} on one GPU of {show_memory(answer.gpu_bytes)}"
        )
        share = engine_of(d.engine).limits.share
        fix = f"lower {share}" if share else "leave it less cache"
        return Verdict(
            status="unlikely",
            fits=False,
            binding=self._account,
            sentence=f"Starts on {self._cards} by its own checks and then runs out of memory: "
            f"{message}. {as_sentence(fix)}",
            reasons=(Reason(rule="out of memory", message=message, fix=fix, source="estimate"),),
        )

    # Started

    def _counted(self, held: int, stored: int) -> Verdict:
        """It starts and holds so many, of so many that its cache would."""
        d, answer = self.d, self.answer
        fits = held >= self.asked or (held < 1 and self.asked == 1)
        binding = "max_num_seqs" if held < stored else answer.binding or self._account
        if held < 1 and self.lengths is None:
            why = self._part()
            sentence = f"Starts, since {d.engine}'s own check passes, but {why}."
            binding = self._account
        else:
            why = self._why(held, stored)
            sentence = self._room(held, why)
        reason = Reason(rule=binding, message=why, fix=self._raise(binding), source=self._check)
        return Verdict(
            status="fits" if fits else "full",
            fits=fits,
            binding=binding,
            sentence=sentence,
            reasons=() if fits else (reason,),
        )

    def _raise(self, binding: str) -> str:
        if binding == "max_num_seqs" and (flag := engine_of(self.d.engine).limits.sequences):
            return f"raise {flag}"
        return "kvroom levers ranks what would make room"

    def _part(self) -> str:
        part = self.answer.capacity.max_concurrency if self.answer.capacity else None
        return (
            f"{show_memory(self.answer.kv_bytes)} of cache hold only {part or 0:.2f} of "
            f"{_a_request(self.d)}"
        )

    def _room(self, held: int, why: str) -> str:
        asked, copies = self.scenario.replica_concurrency, self.scenario.replicas
        where = self._cards if copies == 1 else f"each of {copies:,} replicas ({self._cards})"
        of = f"requests of {self._of} on {where}"
        if self.lengths is not None and asked is not None:
            told = f" of {asked:,} asked" if held < asked else f", where {asked:,} are asked for"
            return f"{held:,} at once{told}: {of}; {why}."
        if asked is not None and held < asked:
            return f"Room for {held:,} of {asked:,} {of}: {why}."
        more = f" The {_ordinal(held + 1)} would wait." if asked is None or held == asked else ""
        one = of.replace("requests", "request", 1) if held == 1 else of
        room = f"Room for {held:,} {one}"
        if asked is not None and held > asked:
            room += f", {held - asked:,} more than the {asked:,} asked for"
        return f"{room}: {why}.{more}"

    def _why(self, held: int, stored: int) -> str:
        d, answer = self.d, self.answer
        left = show_memory(answer.kv_bytes)
        where = "a GPU" if d.layout.gpus > 1 else "the GPU"
        if held < stored:
            flag = engine_of(d.engine).limits.sequences
            limit = f" ({flag})" if flag else ""
            return f"{d.engine} runs no more at once{limit}, though its cache would hold {stored:,}"
        if self.lengths is not None:
            return f"{left} on {where} is left for cache beside the weights"
        each = show_memory(d.request_bytes(answer.rank))
        if not d.request_bytes(answer.rank):
            return f"{_a_request(d)} keeps nothing on {where}"
        if d.request_bytes(answer.rank) * (held // d.layout.dp + 1) <= answer.kv_bytes:
            limit = answer.limit or f"as {d.engine} shares out its {left} of cache no more fit"
            return f"{_a_request(d)} stores {each} on {where}, but {limit}"
        return f"{_a_request(d)} takes {each} on {where}, and {left} is left beside the weights"

    # Words

    @property
    def _cards(self) -> str:
        return so_many(self.d.layout.gpus, self.d.device.name)

    @property
    def _check(self) -> str:
        return "arithmetic" if engine_of(self.d.engine).ceiling else "engine rule"

    @property
    def _of(self) -> str:
        lengths = self.lengths
        if lengths is None:
            return say_tokens(self.d.context_tokens)
        if lengths.input_tokens is not None and lengths.output_tokens is not None:
            return f"{lengths.input_tokens:,} tokens in and {lengths.output_tokens:,} out"
        return "the workload's lengths"

    @property
    def _account(self) -> str:
        """Which share of a request's bytes it is that runs out: growing cache, or fixed state."""
        rank, kv = self.answer.rank, self.d.kv
        fixed = sum(
            kind.stored_bytes(1, kv) * count for kind, count in rank.stores if kind.recurrent
        )
        return "state" if 2 * fixed > self.d.request_bytes(rank) else "kv_memory"


def _refusal(binding: str, sentence: str, reason: Reason) -> Verdict:
    return Verdict(
        status="would_not_start",
        fits=False,
        binding=binding,
        sentence=sentence,
        reasons=(reason,),
    )


def with_speed(
    verdict: Verdict, deployment: Deployment, answer: EngineAnswer, step: Step
) -> Verdict:
    """The verdict on what reads host memory in each step, which is told first with the speed of it."""
    away = deployment.weights.host_bytes
    if not verdict.starts or not (answer.host or away) or step.seconds is None:
        return verdict
    what = f"{show_memory(away)} of each GPU's weights in host memory"
    if answer.host:
        what = answer.host.words(deployment.model)
    each = step.tokens_per_request / step.seconds
    per = "each " if step.batch > 1 else ""
    speed = f"{each:.0f}" if each >= 10 else f"{each:.2g}"
    told = as_sentence(f"{what}, about {speed} tokens/s {per}".rstrip())
    return replace(verdict, sentence=f"{told} {verdict.sentence}")


def in_pool(verdict: Verdict, pool: str) -> Verdict:
    """The verdict on a replica of one of two pools, told as that."""
    return replace(verdict, sentence=f"A replica of the {pool} pool: {verdict.sentence}")


def _a_request(deployment: Deployment) -> str:
    return f"a request of {say_tokens(deployment.context_tokens)}"


def _ordinal(n: int) -> str:
    suffix = "th" if 10 < n % 100 < 14 else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n:,}{suffix}"
