"""The question: a Scenario, frozen and plain, to and from dicts, and as a link.

Keys are those of the JSON that scripts and the page rely on; every quantity carries its unit as a
suffix. Bytes, tokens and counts are ``int``; seconds, ratios and dollars ``float``; ``None`` is what
is not known or not asked.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from math import isfinite
from typing import Any, ClassVar
from urllib.parse import parse_qsl, urlsplit

from kvroom.errors import KvroomError, did_you_mean, shortened
from kvroom.scenario.engine_names import DEFAULT_ENGINE, engine_name
from kvroom.scenario.offload import check as check_tiers
from kvroom.scenario.speculation import check as check_speculation
from kvroom.units import MAX_BYTES, check_float, check_int, parse_bytes, parse_tokens

MAX_GPUS = 100_000
MAX_REQUESTS = 10**9
PAGE_ADDRESS = "http://127.0.0.1:8642/"
LINK_VERSION = "1"


def _object(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise KvroomError(name, value, "is not an object", "Write it in braces: {…}.")
    return value


def _json_object(name: str, value: Any) -> dict[str, Any]:
    return {str(k): _json(f"{name}.{k}", v) for k, v in _object(name, value).items()}


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise KvroomError(name, value, "is not a name", "Write a word in quotes.")
    return str(_json(name, value.strip()))


def _json(name: str, value: Any, *, finite: bool = True) -> Any:
    """``value`` as JSON gives it back: its keys are strings, its text UTF-8, its numbers ``finite``."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=not finite)
        text.encode()
        return json.loads(text)
    except RecursionError:
        raise KvroomError(name, "…", "is nested too deeply", "Give a plain one.") from None
    except (TypeError, ValueError):
        fix = "Give plain text (UTF-8), finite numbers, lists and objects."
        raise KvroomError(name, value, "is nothing that JSON can hold", fix) from None


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise KvroomError(name, value, "is not true or false", "Write true or false.")
    return value


def _count(high: int, low: int = 1) -> Callable[[str, Any], int]:
    return lambda name, value: check_int(name, value, low=low, high=high)


def _tokens_or_zero(name: str, value: Any) -> int:
    none = value == 0 and not isinstance(value, bool)
    return (
        0
        if none or (isinstance(value, str) and value.strip() == "0")
        else parse_tokens(name, value)
    )


def _model_or_gpu(name: str, value: Any) -> str | dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(_json(name, dict(value), finite=False))  # published configs have Infinity
    return _text(name, value)


def _text_or_object(name: str, value: Any) -> str | dict[str, Any]:
    return _json_object(name, value) if isinstance(value, Mapping) else _text(name, value)


def _rate(name: str, value: Any) -> float:
    return check_float(name, value, low=1e-9, high=1e9, unit="requests per second")


def spec_text(name: str, value: Any) -> str:
    """One value of a workload's SPEC as its text: ``1000``, ``fixed:1000``, ``{"fixed": 1000}``.

    An object holds one kind, with its value or an object of its keys.
    """
    if isinstance(value, Mapping):
        if len(value) != 1:
            fix = 'Write one kind, such as {"lognormal": {"mean": 1000, "sigma": 0.8}}.'
            raise KvroomError(name, len(value), "kinds are given", fix)
        kind, inner = next(iter(value.items()))
        if isinstance(inner, Mapping):
            return ":".join([str(kind), *(f"{k}={_scalar(name, v)}" for k, v in inner.items())])
        return f"{kind}:{_scalar(name, inner)}"
    return _scalar(name, value)


def _scalar(name: str, value: Any) -> str:
    if isinstance(value, str) and value.strip():
        return value.strip()
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise KvroomError(name, value, "is no text or number", "Write it as in a SPEC line.")
    return repr(value)


Spec = str | int | float | None


def _spec(name: str, value: Any) -> Spec:
    text = spec_text(name, value)
    return value if isinstance(value, int | float) else text


def check_keys(where: str, given: Mapping[str, Any], known: tuple[str, ...]) -> None:
    """Refuse a key that ``known`` does not hold, naming the nearest one that it does."""
    for key in given:
        if key not in known:
            fix = did_you_mean(str(key), known, f"Known keys: {', '.join(known)}.")
            raise KvroomError(where, key, "is no known key", fix)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Who comes: prompt and answer lengths, how many at once, how fast.

    ``static`` is one batch with no arrivals while it runs; otherwise a steady closed loop of
    ``concurrency`` users (of the whole deployment), or open arrivals at ``requests_per_s``. The keys of
    SPEC_KEYS say the same in the language of ``--workload`` and win; they are kept as written here and
    read where requests are made.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    concurrency: int | None = None
    static: bool = False
    shared_prefix_tokens: int = 0
    requests_per_s: float | None = None
    lengths: dict[str, Any] | None = None
    arrivals: Spec = None
    input: Spec = None
    output: Spec = None
    prefix: Spec = None
    turns: Spec = None
    think: Spec = None
    agent: Spec = None
    tool: Spec = None
    result: Spec = None
    requests: int | None = None
    seed: int | None = None

    SPEC_KEYS: ClassVar[tuple[str, ...]] = (
        "arrivals",
        "input",
        "output",
        "prefix",
        "turns",
        "think",
        "agent",
        "tool",
        "result",
        "requests",
        "seed",
    )
    PARSERS: ClassVar[dict[str, Callable[[str, Any], Any]]] = {
        "input_tokens": parse_tokens,
        "output_tokens": parse_tokens,
        "concurrency": _count(MAX_REQUESTS),
        "static": _flag,
        "shared_prefix_tokens": _tokens_or_zero,
        "requests_per_s": _rate,
        "lengths": _json_object,
        **dict.fromkeys(SPEC_KEYS, _spec),
        "requests": _count(MAX_REQUESTS),
        "seed": _count(2**63, low=0),
    }


def _parsed(cls: Any, where: str, given: Any) -> dict[str, Any]:
    given = _object(where, given)
    parsers = cls.PARSERS
    check_keys(where, given, tuple(parsers))
    prefix = "" if where == "scenario" else f"{where}."
    return {k: parsers[k](prefix + k, v) for k, v in given.items() if v is not None}


RECIPES = ("tuned", "default", "unknown")
"""How a server was set up: flags chosen for its speed on this card, left as they come, or nobody says."""


def _recipe(name: str, value: Any) -> str:
    word = _text(name, value).lower()
    if word not in RECIPES:
        fix = did_you_mean(word, RECIPES, f"One of: {', '.join(RECIPES)}.")
        raise KvroomError(name, value, "is no recipe", fix)
    return word


def _engine(name: str, value: Any) -> str:
    return engine_name(name, _text(name, value))


def _version(name: str, value: Any) -> str:
    """Any text: what cannot be read as a version takes the nearest modelled one."""
    text = value if isinstance(value, str) else shortened(value, 40)
    return text[:40].encode("utf-8", "replace").decode()


def _workload(name: str, value: Any) -> Workload:
    return value if isinstance(value, Workload) else Workload(**_parsed(Workload, name, value))


KNOWN_BYTES = ("visible", "free_before_load", "weights", "activations", "runtime", "graphs")


def _known_bytes(name: str, value: Any) -> dict[str, int]:
    given = _object(name, value)
    check_keys(name, given, KNOWN_BYTES)
    sizes = {k: parse_bytes(f"{name}.{k}", v) for k, v in given.items() if v is not None}
    if "visible" in sizes:
        check_int(f"{name}.visible", sizes["visible"], low=1, high=MAX_BYTES, unit="bytes")
        free = sizes.get("free_before_load", 0)
        if free > sizes["visible"]:
            wrong = f"is more than the {sizes['visible']:,} bytes visible"
            raise KvroomError(f"{name}.free_before_load", free, wrong, "Both are of one GPU.")
    return sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One question: a model on hardware, laid out and served so, at a length, for so many.

    Build it with ``Scenario.from_dict`` (``kvroom.plan`` does), which checks and fills in:
    ``gpu_count`` and the layout must agree; where ``tp`` is left out it takes the cards that pipeline
    and data parallelism leave.
    """

    model: str | dict[str, Any]
    gpu: str | dict[str, Any]
    gpu_count: int = 1
    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1
    dcp: int = 1
    weight_dtype: str | None = None
    kv_dtype: str = "auto"
    context_tokens: int | None = None
    encoder_tokens: int | None = None
    concurrency: int | None = None
    engine: str = DEFAULT_ENGINE
    engine_version: str | None = None
    engine_args: dict[str, Any] = field(default_factory=dict)
    recipe: str | None = None
    workload: Workload | None = None
    tiers: Any = None
    replicas: int = 1
    routing: str | dict[str, Any] | None = None
    fleet: Any = None
    disaggregation: Any = None
    speculation: Any = None
    calibration: Any = None
    known_bytes: dict[str, int] | None = None
    allow_overcommit: bool = False

    PARSERS: ClassVar[dict[str, Callable[[str, Any], Any]]] = {
        "model": _model_or_gpu,
        "gpu": _model_or_gpu,
        "gpu_count": _count(MAX_GPUS),
        "tp": _count(MAX_GPUS),
        "pp": _count(MAX_GPUS),
        "dp": _count(MAX_GPUS),
        "ep": _count(MAX_GPUS),
        "dcp": _count(MAX_GPUS),
        "weight_dtype": _text,
        "kv_dtype": _text,
        "context_tokens": parse_tokens,
        "encoder_tokens": _tokens_or_zero,
        "concurrency": _count(MAX_REQUESTS),
        "engine": _engine,
        "engine_version": _version,
        "engine_args": _json_object,
        "recipe": _recipe,
        "workload": _workload,
        "tiers": check_tiers,
        "replicas": _count(MAX_GPUS),
        "routing": _text_or_object,
        "fleet": _json,
        "disaggregation": _json,
        "speculation": check_speculation,
        "calibration": _json,
        "known_bytes": _known_bytes,
        "allow_overcommit": _flag,
    }

    @classmethod
    def from_dict(cls, given: Any) -> Scenario:
        """The Scenario that a plain dict asks for; KvroomError names the key that is wrong."""
        parsed = _parsed(cls, "scenario", given)
        for key, example in (("model", "llama-3-70b"), ("gpu", "H100-SXM:4")):
            if key not in parsed:
                raise KvroomError(key, None, "is missing", f"Say which {key}, such as {example}.")
        parsed.update(_layout(parsed))
        if "workload" in parsed or "concurrency" in parsed:
            parsed.update(_users(parsed))
        return cls(**parsed)

    def to_dict(self) -> dict[str, Any]:
        """Every key, as plain JSON values; ``from_dict`` takes it back to an equal Scenario."""
        return asdict(self)

    def differences(self) -> dict[str, Any]:
        """Only the keys that differ from the defaults (``model`` and ``gpu`` always)."""
        return _without_defaults(self)

    def link(self, base: str = PAGE_ADDRESS) -> str:
        """The page's address for this very question."""
        text = json.dumps(self.differences(), separators=(",", ":"), sort_keys=True)
        packed = base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
        return f"{base}#s={LINK_VERSION}.{packed}"

    @classmethod
    def from_link(cls, link: str) -> Scenario:
        """The Scenario of an address: ``#s=1.…``, or plain ``?model=…&gpu=…&context=…``."""
        return cls.from_dict(_unpacked(link))


def _layout(parsed: dict[str, Any]) -> dict[str, int]:
    pp, dp = parsed.get("pp", 1), parsed.get("dp", 1)
    count, tp = parsed.get("gpu_count"), parsed.get("tp")
    if tp is None:
        if count is not None and count % (pp * dp):
            raise KvroomError(
                "gpu_count", count, f"cannot be split by pp {pp} × dp {dp}", "Change one of them."
            )
        tp = count // (pp * dp) if count is not None else 1
    needed = tp * pp * dp
    if count is not None and count != needed:
        raise KvroomError(
            "gpu_count",
            count,
            f"does not equal tp {tp} × pp {pp} × dp {dp} = {needed}",
            f"Set gpu_count to {needed}, or leave it out.",
        )
    check_int("gpu_count", needed, low=1, high=MAX_GPUS)
    ep, dcp = parsed.get("ep", 1), parsed.get("dcp", 1)
    if (tp * dp) % ep:
        raise KvroomError(
            "ep",
            ep,
            f"does not divide tp {tp} × dp {dp}",
            f"Expert ranks reuse those {tp * dp} GPUs.",
        )
    if tp % dcp:
        raise KvroomError(
            "dcp", dcp, f"does not divide tp {tp}", "Decode-context ranks reuse the tensor ranks."
        )
    return {"tp": tp, "gpu_count": needed}


def _users(parsed: dict[str, Any]) -> dict[str, Any]:
    """``concurrency`` and ``workload.concurrency`` stand in for each other."""
    workload, users = parsed.get("workload"), parsed.get("concurrency")
    if users is None and workload is not None and workload.concurrency is not None:
        return {"concurrency": workload.concurrency}
    if users is not None and workload is not None and workload.concurrency is None:
        values = {f.name: getattr(workload, f.name) for f in fields(workload)}
        return {"workload": Workload(**{**values, "concurrency": users})}
    return {}


def _without_defaults(data: Any) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    defaults = type(data)(model="", gpu="") if isinstance(data, Scenario) else type(data)()
    for f in fields(data):
        value = getattr(data, f.name)
        if f.name in ("model", "gpu") or value != getattr(defaults, f.name):
            kept[f.name] = _without_defaults(value) if isinstance(value, Workload) else value
    return kept


_SHORT = {
    "context": "context_tokens",
    "gpus": "gpu_count",
    "kv": "kv_dtype",
    "users": "concurrency",
}
_NUMBERS = ("gpu_count", "tp", "pp", "dp", "ep", "dcp", "concurrency", "replicas")


def _unpacked(link: str) -> dict[str, Any]:
    how = "Copy the whole address from the page or from --link."
    if len(link) > 2_000_000:
        raise KvroomError("link", link, "is longer than any link of kvroom", how)
    try:
        parts = urlsplit(link)
    except ValueError as e:
        raise KvroomError("link", link, "is not an address", how) from e
    state = dict(parse_qsl(parts.fragment)).get("s", "")
    if not state:
        return _from_query(parts.query, link, how)
    version, _, packed = state.partition(".")
    if version != LINK_VERSION:
        raise KvroomError("link", link, f"is of version {version}", "This kvroom reads version 1.")
    try:
        raw = base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4))
        given = json.loads(raw)
    except (binascii.Error, ValueError, RecursionError) as e:
        raise KvroomError("link", link, "is cut off or garbled", how) from e
    return dict(_object("link", given))


def _from_query(query: str, link: str, how: str) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for key, value in parse_qsl(query):
        name = _SHORT.get(key, key)
        given[name] = _whole(value) if name in _NUMBERS else value
    if not given:
        raise KvroomError("link", link, "carries no question", how)
    gpu, colon, count = str(given.get("gpu", "")).rpartition(":")
    if colon and count.isdecimal():
        given.update(gpu=gpu, gpu_count=_whole(count))
    return given


def _whole(text: str) -> int | str:
    """``text`` as a whole number; left as it is, to be refused by its key, where it is none."""
    return int(text) if text.isdecimal() and len(text) < 20 else text
