"""Speculative decoding as a question: who drafts, how many tokens a step, and each engine's flags for it.

A Scenario says it in one way, an engine's flags in another; both are read here, and the one is turned
into the other, so that an engine's rules look at its own flags only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from kvroom.errors import KvroomError, did_you_mean
from kvroom.units import check_float, check_int

METHODS = ("mtp", "eagle", "eagle3", "draft", "ngram")
"""Prediction layers of the model's own, heads trained on its hidden states, a small model of its
kind, or the text itself."""
ALIASES = {
    "nextn": "mtp",
    "deepseek_mtp": "mtp",
    "eagle-3": "eagle3",
    "draft_model": "draft",
    "draft-model": "draft",
    "standalone": "draft",
    "[ngram]": "ngram",
    "ngram_gpu": "ngram",
    "prompt_lookup": "ngram",
    "suffix": "ngram",
}
KEYS = ("method", "model", "num_speculative_tokens", "acceptance_rate", "max_concurrency")
SPELLED = {"acceptance": "acceptance_rate", "tokens": "num_speculative_tokens"}
"""Shorter words for some of them."""
EXAMPLE = "Write it like mtp:1:acceptance=0.8 or eagle3:3:acceptance=0.8/0.6/0.5."
DEFAULT_TOKENS = {"mtp": 1}
"""Drafted a step where nobody says; else 3."""
USUAL_ACCEPTANCE = {"mtp": 0.8, "eagle3": 0.75, "eagle": 0.65, "draft": 0.65, "ngram": 0.4}
"""Chance that a drafted token is kept, given all before it were, where nobody says: an assumption, for
it depends on the text. DeepSeek-V3 reports 0.85 to 0.90 for one token of its prediction layer (arXiv
2412.19437, 5.4.3); it falls where one layer drafts several."""
WITH_MODEL = ("eagle", "eagle3", "draft")
MOST_TOKENS = 1000
MOST_REQUESTS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """``method`` drafts ``tokens`` a step; ``model`` names or holds the draft's own config, if it has one.

    ``acceptance_rate`` is the chance that a drafted token is kept, given all before it were; or, position
    by position, the share of all drafts that are kept there, as engines print it; None: the usual chance
    of the method. ``schedule``: from so many requests in a step on (the first figure) so many tokens are
    drafted. ``field`` is where drafting was asked for, for errors.
    """

    method: str
    tokens: int
    model: str | Mapping[str, Any] | None = None
    field: str = "speculation"
    acceptance_rate: float | tuple[float, ...] | None = None
    schedule: tuple[tuple[int, int], ...] = ()

    @property
    def acceptance_assumed(self) -> bool:
        """Whether nobody said the chance."""
        return self.acceptance_rate is None

    @property
    def kept(self) -> tuple[float, ...]:
        """By position: the chance that this draft and all before it are kept."""
        rate = self.acceptance_rate
        if isinstance(rate, tuple):
            return rate[: self.tokens]
        each = USUAL_ACCEPTANCE[self.method] if rate is None else rate
        return tuple(each**n for n in range(1, self.tokens + 1))


def drafted_at(tokens: int, schedule: tuple[tuple[int, int], ...], requests: float) -> int:
    """Tokens drafted for each of ``requests`` in a step: ``tokens``, or what the schedule has."""
    for first, fewer in schedule:
        if requests >= first:
            tokens = fewer
    return tokens


def check(field: str, value: Any) -> dict[str, Any]:
    """A Scenario's ``speculation``, checked: KvroomError names the key that is wrong."""
    if isinstance(value, str):
        value = line(value, field)
    how = 'Write {"method": "mtp", "num_speculative_tokens": 1}.'
    if not isinstance(value, Mapping):
        raise KvroomError(field, value, "is not an object", how)
    given: dict[str, Any] = {}
    for key, each in value.items():
        name = SPELLED.get(key, key)
        if name not in KEYS:
            fix = did_you_mean(str(key), KEYS, f"Known keys: {', '.join(KEYS)}.")
            raise KvroomError(field, key, "is no known key", fix)
        if name in given:
            raise KvroomError(field, key, f"is {name} once more", "Say it once.")
        given[name] = each
    made: dict[str, Any] = {"method": method_of(f"{field}.method", given.get("method"))}
    if (model := given.get("model")) is not None:
        if not (isinstance(model, Mapping) or (isinstance(model, str) and model.strip())):
            fix = 'Give a name, a path or {"config": {…}}.'
            raise KvroomError(f"{field}.model", model, "names no model", fix)
        made["model"] = json.loads(json.dumps(model)) if isinstance(model, Mapping) else model
    for key, high in (("num_speculative_tokens", MOST_TOKENS), ("max_concurrency", MOST_REQUESTS)):
        if (number := given.get(key)) is not None:
            made[key] = check_int(f"{field}.{key}", number, low=1, high=high)
    if (rate := given.get("acceptance_rate")) is not None:
        made["acceptance_rate"] = _acceptance(f"{field}.acceptance_rate", rate)
    return made


def _acceptance(field: str, value: Any) -> float | list[float]:
    """One chance, or the shares kept by position, which never rise."""
    if not isinstance(value, list | tuple):
        return check_float(field, value, low=0.0, high=1.0)
    shares = [check_float(field, each, low=0.0, high=1.0) for each in value]
    if not shares:
        raise KvroomError(field, value, "holds no share", "Write one for each position.")
    for before, after in pairwise(shares):
        if after > before:
            why = f"rises to {after:g}: a draft counts only where all before it are kept"
            fix = "Give shares of all drafts, as engines print them by position."
            raise KvroomError(field, before, why, fix)
    return shares


def line(text: str, field: str = "--speculation") -> dict[str, Any]:
    """``mtp:1:acceptance=0.8`` as an object: the method, how many tokens it drafts, keys.

    Shares by position are joined by slashes.
    """
    method, *parts = (part.strip() for part in text.split(":"))
    given: dict[str, Any] = {"method": method}
    for part in parts:
        key, equals, value = (x.strip() for x in part.partition("="))
        key = key.replace("-", "_")
        key = SPELLED.get(key, key)
        if not equals and "num_speculative_tokens" not in given:
            key, value = "num_speculative_tokens", key
        elif not equals or not value or key in given:
            raise KvroomError(field, part, "is no KEY=VALUE of it, once", EXAMPLE)
        if key == "model":
            given[key] = value
            continue
        try:
            numbers = [int(x) if x.isdecimal() else float(x) for x in value.split("/")]
        except ValueError:
            raise KvroomError(field, part, "is no number", EXAMPLE) from None
        given[key] = numbers if "/" in value else numbers[0]
    return given


def method_of(field: str, value: Any) -> str:
    """The method that a word names, any engine's name for it."""
    word = value.strip().lower() if isinstance(value, str) else ""
    word = ALIASES.get(word, "mtp" if word.endswith("_mtp") else word)
    if word not in METHODS:
        fix = did_you_mean(word, (*METHODS, *ALIASES), f"One of: {', '.join(METHODS)}.")
        raise KvroomError(field, value, "is no way of drafting that kvroom knows", fix)
    return word


def asked(
    speculation: Mapping[str, Any] | None, engine: str, args: Mapping[str, Any]
) -> Speculation | None:
    """What the engine's flags ask for, else the Scenario; None where nothing is drafted.

    No flag says how many drafts are kept: that is the Scenario's to say.
    """
    found = _FROM_FLAGS[engine](args) if engine in _FROM_FLAGS else None
    if speculation is None:
        return found
    rate = speculation.get("acceptance_rate")
    rate = tuple(rate) if isinstance(rate, list | tuple) else rate
    if found is None:
        method = speculation["method"]
        usual = len(rate) if isinstance(rate, tuple) else DEFAULT_TOKENS.get(method, 3)
        found = Speculation(
            method=method,
            tokens=speculation.get("num_speculative_tokens") or usual,
            model=speculation.get("model"),
        )
    if isinstance(rate, tuple) and len(rate) < found.tokens:
        why = f"has {len(rate)} positions of the {found.tokens} tokens drafted"
        raise KvroomError("speculation.acceptance_rate", list(rate), why, "Give all of them.")
    most = speculation.get("max_concurrency")
    schedule = found.schedule if most is None else (*found.schedule, (most + 1, 0))
    return replace(found, acceptance_rate=rate, schedule=schedule)


def flags(s: Speculation, engine: str) -> dict[str, Any]:
    """The flags by which ``engine`` is asked for ``s``."""
    named = s.model if isinstance(s.model, str) else "draft"
    match engine:
        case "vllm":
            config = {"method": s.method, "num_speculative_tokens": s.tokens}
            return {"speculative_config": config | ({"model": named} if s.model else {})}
        case "sglang":
            algorithm = {"mtp": "EAGLE", "draft": "STANDALONE"}.get(s.method, s.method.upper())
            made: dict[str, Any] = {"speculative_algorithm": algorithm}
            if s.method != "ngram":
                made |= {"speculative_num_steps": s.tokens, "speculative_eagle_topk": 1}
            made["speculative_num_draft_tokens"] = s.tokens + 1
            if s.method in WITH_MODEL:
                made["speculative_draft_model_path"] = named
            return made
        case "llama.cpp" if s.method != "ngram":
            kind = {"draft": "draft-simple", "eagle": "draft-eagle3"}.get(
                s.method, f"draft-{s.method}"
            )
            asked = {"spec_type": kind, "spec_draft_n_max": s.tokens}
            return asked | ({"model_draft": named} if s.model else {})
    return {}


def from_flags(
    engine: str, args: Mapping[str, Any], model: Any, load: Callable[[Any], Any]
) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """(a Scenario's ``speculation``, the flags without those that it says) of an engine's flags.

    None, and all flags, where they say more than a Scenario can, or name a draft that ``load`` does not
    know: as flags they are followed as far as they go. ``load`` reads ``model`` and drafts.
    """
    every = dict(args)
    found = _FROM_FLAGS[engine](args) if engine in _FROM_FLAGS else None
    if found is None:
        return None, every
    again = flags(found, engine)
    given = {k: _parsed(v) for k, v in every.items() if k in again or k.startswith("spec")}
    if engine == "vllm" and isinstance(given.get("speculative_config"), Mapping):
        config = dict(given["speculative_config"])
        given["speculative_config"] = config | {"method": found.method}
    if engine == "sglang":
        given["speculative_algorithm"] = again.get("speculative_algorithm")
    if given != again or not _readable(found, model, load):
        return None, every
    said = {"method": found.method, "num_speculative_tokens": found.tokens}
    kept = {k: v for k, v in every.items() if k not in again}
    return said | ({"model": found.model} if found.model is not None else {}), kept


def _parsed(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def _readable(s: Speculation, model: Any, load: Callable[[Any], Any]) -> bool:
    """Whether what ``s`` drafts with is known: the model's own layers, or a model named."""
    try:
        if s.method == "mtp":
            return s.model is None and bool(load(model).mtp)
        return s.method == "ngram" or (s.model is not None and load(s.model) is not None)
    except KvroomError:
        return False


def _vllm(args: Mapping[str, Any]) -> Speculation | None:
    config = args.get("speculative_config")
    if isinstance(config, str):
        try:
            config = json.loads(config)
        except ValueError:
            return None  # the engine's own reader refuses it
    if not isinstance(config, Mapping):
        config = {
            "model": args.get("speculative_model"),
            "num_speculative_tokens": args.get("num_speculative_tokens"),
        }
    method, model = config.get("method"), config.get("model")
    if not isinstance(method, str) and not isinstance(model, str):
        return None
    field = "engine_args.speculative_config"
    word = method if isinstance(method, str) else _guess(str(model))
    if word not in ALIASES and word not in METHODS and not word.endswith("_mtp"):
        return None  # a way of drafting that keeps no model: Medusa and others
    return Speculation(
        method=method_of(f"{field}.method", word),
        tokens=_tokens(config.get("num_speculative_tokens")),
        model=model if isinstance(model, str) and method_of(field, word) != "ngram" else None,
        field=field,
        schedule=_by_batch(field, config.get("num_speculative_tokens_per_batch_size")),
    )


def _by_batch(field: str, rows: Any) -> tuple[tuple[int, int], ...]:
    """vLLM's table of [first batch, last batch, tokens]: from which batch on so many are drafted."""
    field += ".num_speculative_tokens_per_batch_size"
    if rows is None:
        return ()
    made: list[tuple[int, int]] = []
    for row in rows if isinstance(rows, list | tuple) else [rows]:
        if not isinstance(row, list | tuple) or len(row) != 3:
            fix = "Write rows of [first batch, last batch, tokens]."
            raise KvroomError(field, row, "is no row of three numbers", fix)
        first, last, tokens = row
        first = check_int(field, first, low=1, high=MOST_REQUESTS)
        check_int(field, last, low=first, high=MOST_REQUESTS)
        made.append((first, check_int(field, tokens, low=0, high=MOST_TOKENS)))
    return tuple(sorted(made))


def _guess(model: str) -> str:
    """The method that a draft's name tells, where none is said."""
    name = model.lower()
    if "ngram" in name:
        return "ngram"
    return "eagle3" if "eagle3" in name else "eagle" if "eagle" in name else "draft"


def _sglang(args: Mapping[str, Any]) -> Speculation | None:
    algorithm, path = (args.get(f"speculative_{k}") for k in ("algorithm", "draft_model_path"))
    if not isinstance(algorithm, str):
        return None
    word = algorithm.strip().lower()
    if word == "eagle" and not path:
        word = "mtp"  # the prediction layers of the checkpoint itself
    if word not in METHODS and word not in ALIASES:
        return None
    return Speculation(
        method=method_of("engine_args.speculative_algorithm", word),
        tokens=_tokens(args.get("speculative_num_steps")),
        model=path if isinstance(path, str) and path.strip() else None,
        field="engine_args.speculative_draft_model_path",
    )


def _llama_cpp(args: Mapping[str, Any]) -> Speculation | None:
    kind, path = str(args.get("spec_type") or "").lower(), args.get("model_draft") or args.get("md")
    method = next((m for m in ("mtp", "eagle3") if m in kind), "draft" if path else "")
    if not method:
        return None
    return Speculation(
        method=method,
        tokens=_tokens(args.get("spec_draft_n_max", args.get("draft_max"))),
        model=path if isinstance(path, str) else None,
        field="engine_args.model_draft",
    )


def _tokens(value: Any) -> int:
    try:
        return min(max(int(value), 1), MOST_TOKENS)
    except (TypeError, ValueError):
        return 3


_FROM_FLAGS: dict[str, Callable[[Mapping[str, Any]], Speculation | None]] = {
    "llama.cpp": _llama_cpp,
    "vllm": _vllm,
    "sglang": _sglang,
}
