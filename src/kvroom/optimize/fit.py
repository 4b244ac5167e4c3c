"""What fits one's own card: every known model in the widest file that fits, or one model's ladder of files.

Each row is a Plan of llama.cpp for one user: what lies on the card, the longest request that stays there, and
tokens a second. A file counts as fitting where all layers lie on the cards; where none does, the narrowest
common one (Q4_K_M) with layers or experts in host memory is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kvroom.engines.registry import all_engines
from kvroom.errors import KvroomError
from kvroom.hardware.reader import resolve
from kvroom.models import catalogue
from kvroom.models.load import load
from kvroom.models.spec import ModelSpec
from kvroom.optimize.levers.published import perplexity_ratio
from kvroom.planner.plan import Workings, work
from kvroom.records import dataclass
from kvroom.scenario.scenario import Scenario

LADDER = ("bf16", "q8_0", "q6_k", "q5_k_m", "q4_k_m", "iq4_xs", "q3_k_m", "q2_k")
"""Files that publishers of GGUF offer, the widest first."""
USUAL = LADDER[1:5]
"""Those that are taken unasked: none loses more than a few percent."""
NATIVE = "mxfp4"
"""gpt-oss has one file: its experts were trained in four bits."""
SLOWEST = 3.0
"""Tokens a second below which nobody waits for an answer: such rows are told only when all are asked for."""


@dataclass(frozen=True, kw_only=True)
class FittedFile:
    """A model's file on the card: ``weight_dtype`` as its quantiser calls it, its bytes, where its layers
    lie in words, the longest request that the placement holds (None: length costs nothing), tokens a second
    of one user (with the 80 % band) at ``context_tokens``, and the published loss (perplexity over that of 16
    bits less one, Llama 3 8B; None: not published)."""

    model: str
    hub_id: str
    model_type: str
    params: int
    active_params: int
    weight_dtype: str
    file_bytes: int
    context_tokens: int
    longest_tokens: int | None
    tokens_per_s: float | None
    tokens_per_s_low: float | None
    tokens_per_s_high: float | None
    placed: str
    on_gpu: bool
    starts: bool
    reason: str
    perplexity_ratio: float | None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {name: getattr(self, name) for name in self.__annotations__}


@dataclass(frozen=True, kw_only=True)
class Fit:
    """What fits: the first sentence, the rows, and how many were left out for being slow or too large."""

    gpu: str
    gpu_count: int
    engine: str
    model: str | None
    context_tokens: int
    rows: tuple[FittedFile, ...]
    slow: tuple[FittedFile, ...] = ()
    too_large: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        cards = self.gpu if self.gpu_count == 1 else f"{self.gpu_count} × {self.gpu}"
        whole = [row for row in self.rows if row.on_gpu]
        length = f"{self.context_tokens // 1024}K" if self.context_tokens >= 1024 else "short"
        if self.model is not None:
            best = chosen(self.rows)
            if best is None:
                return f"{self.model} does not fit {cards}, whatever the file."
            if not whole:
                return (
                    f"No file of {self.model} fits {cards} whole with {length} tokens: "
                    f"{best.weight_dtype.upper()} runs with {best.placed}, {_speed(best)}."
                )
            return (
                f"{best.weight_dtype.upper()} is the widest file of {self.model} that fits {cards} whole "
                f"with {length} tokens: {_speed(best)}."
            )
        if not whole:
            return f"No known model fits {cards} whole with {length} tokens."
        largest = max(whole, key=lambda row: row.params)
        return (
            f"{len(whole)} known models fit {cards} whole with {length} tokens; the largest is "
            f"{largest.model} in {largest.weight_dtype.upper()}, {_speed(largest)}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "gpu": self.gpu,
            "gpu_count": self.gpu_count,
            "engine": self.engine,
            "model": self.model,
            "context_tokens": self.context_tokens,
            "sentence": self.sentence,
            "rows": [row.to_dict() for row in self.rows],
            "slow": [row.to_dict() for row in self.slow],
            "too_large": list(self.too_large),
            "commands": list(self.commands),
        }


def _speed(row: FittedFile) -> str:
    speed = row.tokens_per_s
    if speed is None:
        return "at a speed not known"
    return f"{speed:.0f} tokens/s" if speed >= 10 else f"{speed:.1f} tokens/s"


def fit(
    keys: Mapping[str, Any],
    model: str | None = None,
    *,
    progress: Callable[[int, int], None] = lambda _done, _of: None,
) -> Fit:
    """What fits the machine of ``keys`` (those of a Scenario except the model): all known models, or
    the files of ``model``. ``progress`` is told how many models of how many are done."""
    engines = [engine.name for engine in all_engines() if engine.own_card]
    base = {"engine": engines[0], "context_tokens": 8192, **keys, "concurrency": 1}
    if base["engine"] not in engines:
        fix = f"Use {' or '.join(engines)}: they run GGUF files on one's own card."
        raise KvroomError("engine", base["engine"], "is for servers", fix)
    question = Scenario.from_dict({"model": "llama-3-8b", **base})
    base["context_tokens"] = question.context_tokens
    if model is not None:
        rows = tuple(_ladder(model, base))
        about = rows[0] if rows else None
        return Fit(
            **_head(question),
            model=about.model if about else model,
            rows=rows,
            commands=_commands(rows, question),
        )
    found: list[FittedFile] = []
    large: list[str] = []
    names = _worth_a_row(question.context_tokens or 0)
    memory = resolve(question.gpu).sold_bytes * question.gpu_count
    for done, name in enumerate(names):
        progress(done, len(names))
        row = _best(name, base, memory)
        if row is None or not row.starts:
            large.append(name)
        else:
            found.append(row)
    found.sort(key=lambda row: (-row.params, row.model))
    quick = [row for row in found if row.tokens_per_s is None or row.tokens_per_s >= SLOWEST]
    slow = [row for row in found if row not in quick]
    return Fit(
        **_head(question), model=None, rows=tuple(quick), slow=tuple(slow), too_large=tuple(large)
    )


def _head(question: Scenario) -> dict[str, Any]:
    gpu = (
        question.gpu if isinstance(question.gpu, str) else str(question.gpu.get("name", "the card"))
    )
    return {
        "gpu": gpu,
        "gpu_count": question.gpu_count,
        "engine": question.engine,
        "context_tokens": question.context_tokens,
    }


def _worth_a_row(tokens: int) -> list[str]:
    """Models that can write answers of ``tokens`` tokens, one of each shape: checkpoints of another
    width are the same files here."""
    seen: set[tuple[Any, ...]] = set()
    names = []
    for name in catalogue.names():
        spec = catalogue.find(name)
        shape = (spec.model_type, spec.params, spec.max_context_tokens)
        long = spec.max_context_tokens is None or spec.max_context_tokens >= tokens
        if spec.generates and long and not spec.encoder_tokens and shape not in seen:
            seen.add(shape)
            names.append(name)
    return names


def _files(spec: ModelSpec, ladder: Sequence[str]) -> Sequence[str]:
    return (NATIVE,) if spec.model_type == "gpt_oss" else ladder


LITTLE_LOSS = 0.03
"""A file whose published perplexity is up to so much over that of 16 bits loses little."""
_BITS = {"q8_0": 8.5, "q6_k": 6.5625, "q5_k_m": 5.5, "q4_k_m": 4.5}
"""Bits of a number in the type that most of a file's matrices have."""


def _best(name: str, base: Mapping[str, Any], memory: int) -> FittedFile | None:
    """The widest usual file that lies on the cards whole; else the narrowest, with the rest on the host."""
    spec = catalogue.find(name)
    last = None
    files = _files(spec, USUAL)
    for dtype in files:
        if dtype != files[-1] and spec.params * _BITS[dtype] / 8 > memory:
            continue  # its matrices alone are too large
        row = _row(name, dtype, base)
        if row.on_gpu:
            return row
        last = row
    return last


def _ladder(model: str, base: Mapping[str, Any]) -> Iterator[FittedFile]:
    for dtype in _files(load(model), LADDER):
        yield _row(model, dtype, base)


def _row(model: str, dtype: str, base: Mapping[str, Any]) -> FittedFile:
    """The Plan of one file, at the length asked for or the model's own limit."""
    spec = load(model)
    length = min(base["context_tokens"], spec.max_context_tokens or base["context_tokens"])
    question = {**base, "model": model, "weight_dtype": dtype, "context_tokens": length}
    workings = work(Scenario.from_dict(question))
    return _told(model, dtype, workings, length)


def _told(model: str, dtype: str, workings: Workings, length: int) -> FittedFile:
    plan, spec, answer = workings.plan, workings.deployment.model, workings.answer
    step = plan.step
    host = answer.host
    on_gpu = plan.verdict.fits and not host
    timed = step if plan.verdict.fits else None
    seconds, slow, quick = (
        (timed.seconds, timed.seconds_high, timed.seconds_low) if timed else (None, None, None)
    )
    return FittedFile(
        model=catalogue.known(model) or model,
        hub_id=catalogue.hub_id(model) if catalogue.known(model) else model,
        model_type=spec.model_type,
        params=spec.params,
        active_params=spec.active_params,
        weight_dtype=dtype,
        file_bytes=workings.deployment.weights.whole_bytes,
        context_tokens=length,
        longest_tokens=_longest(workings) if on_gpu else None,
        tokens_per_s=seconds and 1 / seconds,
        tokens_per_s_low=slow and 1 / slow,
        tokens_per_s_high=quick and 1 / quick,
        placed=host.words(spec) if host else "all on the GPU" if plan.verdict.fits else "nowhere",
        on_gpu=on_gpu,
        starts=plan.verdict.fits,
        reason="" if plan.verdict.fits else plan.verdict.sentence,
        perplexity_ratio=None if dtype == NATIVE else perplexity_ratio(dtype),
    )


def _longest(workings: Workings) -> int | None:
    """The longest request of one user that stays on the cards, within the model's own limit."""
    engine, limit = workings.plan.capacity.engine, workings.deployment.model.max_context_tokens
    if engine is None or engine.max_context_tokens is None:
        return limit
    return min(engine.max_context_tokens, limit or engine.max_context_tokens)


_TAGS = {"bf16": "BF16", "fp16": "F16"}


def chosen(rows: Sequence[FittedFile]) -> FittedFile | None:
    """The file to take: the widest that lies wholly on the cards, else the quickest of those that lose
    little quality; None where none runs."""
    whole = next((row for row in rows if row.on_gpu), None)
    partly = [row for row in rows if row.starts]
    little = [row for row in partly if (row.perplexity_ratio or 0) <= LITTLE_LOSS] or partly
    return whole or max(little, key=lambda row: row.tokens_per_s or 0, default=None)


def _commands(rows: Sequence[FittedFile], question: Scenario) -> tuple[str, ...]:
    """How to start the widest file that fits, with the programs that people run on their own machines."""
    row = chosen(rows)
    if row is None:
        return ()
    tag = _TAGS.get(row.weight_dtype, row.weight_dtype.upper())
    name = row.hub_id.rpartition("/")[2]
    repository = f"ggml-org/{name}-GGUF" if row.weight_dtype == NATIVE else f"bartowski/{name}-GGUF"
    commands = [
        f"llama-server -hf {repository}:{tag} -c {row.context_tokens} -np 1",
        f"ollama run hf.co/{repository}:{tag}   # then /set parameter num_ctx {row.context_tokens}",
        f"lms get {repository}@{tag.lower()} && lms load {name} --context-length {row.context_tokens}",
    ]
    if str(question.gpu).lower().startswith("apple"):
        bits = 8 if row.weight_dtype == "q8_0" else 4
        commands.append(f"mlx_lm.server --model mlx-community/{name}-{bits}bit")
    return tuple(commands)
