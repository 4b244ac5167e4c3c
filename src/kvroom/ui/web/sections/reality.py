"""What arithmetic leaves out: the staircase ceiling → engine → expected → shared, each step named.

A question of plain arithmetic has no engine, and one without lengths nothing beyond it: the staircase is
then drawn for the default engine, and for the first of LENGTHS, which the figure says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

from kvroom import api
from kvroom.answer.figures import ACCOUNTS, Explanation
from kvroom.answer.plan import Account
from kvroom.engines.registry import engine_of
from kvroom.planner.place import lengthened
from kvroom.planner.plan import Workings
from kvroom.scenario.engine_names import CEILING_ENGINE, DEFAULT_ENGINE
from kvroom.scenario.scenario import Scenario
from kvroom.scenario.workload import Workload
from kvroom.ui.web.sections.answers import sectioned
from kvroom.units import ceil_div

LENGTHS: tuple[dict[str, Any], ...] = (
    {
        "id": "assistant",
        "label": "An assistant",
        "says": "2,000 tokens that all begin with and 1,000 of their own in; 400 out",
        "workload": {"input_tokens": 1000, "output_tokens": 400, "shared_prefix_tokens": 2000},
    },
    {
        "id": "chat",
        "label": "Short chats",
        "says": "like ShareGPT's: some 160 tokens in and 340 out, widely spread",
        "workload": {"input": "sharegpt", "output": "sharegpt"},
    },
    {
        "id": "documents",
        "label": "Documents",
        "says": "8,000 tokens in, spread about the mean; 500 out",
        "workload": {
            "input": "lognormal:mean=8000:sigma=0.6",
            "output": "lognormal:mean=500:sigma=0.6",
        },
    },
)
"""Length distributions that the page offers, as a Scenario's ``workload``."""
SLIGHT = 5e-4
"""A step that moves less of what it stands on is not shown."""
OUTSIDE = ("weights", "adapters", "draft", "kv")
"""Accounts that the ceiling has counted already, or that are the rest."""


def asked_of(scenario: Scenario) -> tuple[Scenario, list[str]]:
    """The question that is drawn, and what of it stands in for what was not asked."""
    stands: list[str] = []
    if scenario.engine == CEILING_ENGINE:
        scenario = lengthened(replace(scenario, engine=DEFAULT_ENGINE), paths=False)
        stands.append("engine")
    if not _has_lengths(scenario.workload):
        scenario = with_lengths(scenario)
        stands.append("lengths")
    return scenario, stands


def with_lengths(scenario: Scenario) -> Scenario:
    """The question with the first of LENGTHS, its other wishes kept."""
    own = asdict(scenario.workload) if scenario.workload else {}
    lengths = {key: value for key, value in own.items() if value is not None} | LENGTHS[0][
        "workload"
    ]
    return Scenario.from_dict({**scenario.to_dict(), "workload": lengths})


def _has_lengths(workload: Workload | None) -> bool:
    return workload is not None and (
        workload.input_tokens is not None or workload.input is not None
    )


def answer(scenario: Scenario, engine_says: float | None = None) -> dict[str, Any]:
    """The Plan with ``figures.reality``; ``engine_says`` is the number that the reader's engine printed."""
    drawn, stands = asked_of(scenario)
    workings = api.workings(drawn, paths=False, hub=False)
    figure = data(workings) | {"stands_in": stands, "against": ""}
    if engine_says is not None and figure["stairs"]:
        stairs = figure["stairs"]
        figure["against"] = against(stairs, engine_says)
        at = next(
            (index + 1 for index, stair in enumerate(stairs) if stair["key"] == "engine"),
            len(stairs),
        )
        stair = _level("said", "Your engine", engine_says, "as it was typed in", "said by you")
        stairs.insert(at, stair)
    return answered(workings, figure)


def against(stairs: list[dict[str, Any]], engine_says: float) -> str:
    """Why an engine may say ``engine_says`` where arithmetic says otherwise, in a sentence or two."""
    top = stairs[0]["to"]
    engine = next((stair for stair in stairs if stair["key"] == "engine"), None)
    shown = requests(engine_says)
    if engine is None:
        return f"Arithmetic has room for {requests(top)}; what the engine keeps is not known here."
    low, high = engine.get("low", engine["to"]), engine.get("high", engine["to"])
    taken = sorted(
        (stair for stair in stairs if not stair["level"] and stair["change"] < 0), key=_change
    )
    steps = ", ".join(f"{s['label']} {requests(-s['change'])}" for s in taken)
    came = f"From arithmetic's {requests(top)} the estimate takes off: {steps}."
    if engine_says > top:
        return (
            f"{shown} is more than arithmetic has room for ({requests(top)}): your engine has another "
            "card, cache width, shorter limit or other weights than the question above, or counts "
            "running requests, which are mostly shorter."
        )
    if low <= engine_says <= high:
        band = f", {requests(low)} to {requests(high)} likely" if low < high else ""
        return (
            f"{shown} is what is to be expected (predicted {requests(engine['to'])}{band}). {came}"
        )
    way = "more" if engine_says > high else "fewer"
    hint = (
        "it keeps less for itself, or more of the card is given to it"
        if engine_says > high
        else "it keeps more for itself, or something else is on the card"
    )
    return (
        f"{shown} is {way} than likely (predicted {requests(engine['to'])}, {requests(low)} to "
        f"{requests(high)}): {hint}. {came} Its start-up log tells which."
    )


def _change(stair: dict[str, Any]) -> float:
    return float(stair["change"])


def says(scenario: Scenario) -> str:
    """The figure in a sentence."""
    drawn, _ = asked_of(scenario)
    return str(data(api.workings(drawn, paths=False, hub=False))["sentence"])


def answered(workings: Workings, figure: dict[str, Any]) -> dict[str, Any]:
    """``w``'s answer around its figure."""
    return sectioned(workings, "reality", figure, explanations(figure))


def data(workings: Workings) -> dict[str, Any]:
    """``stairs``: levels and the named steps between them, each ``from`` some requests ``to`` others
    (of the whole deployment, replicas apart), with a band where the step is estimated."""
    stairs = [
        stair
        for stair in _stairs(workings)
        if stair["level"] or abs(stair["change"]) > SLIGHT * stair["from"]
    ]
    workload = workings.plan.scenario.workload
    lengths = asdict(workload) if workload else {}
    chosen = next(
        (
            length["id"]
            for length in LENGTHS
            if all(lengths.get(key) == value for key, value in length["workload"].items())
        ),
        "",
    )
    return {
        "engine": engine_of(workings.plan.scenario.engine).label,
        "stairs": stairs,
        "lengths": list(LENGTHS),
        "length": chosen,
        "sentence": sentence(stairs),
    }


def _stairs(workings: Workings) -> Iterator[dict[str, Any]]:
    plan, deployment = workings.plan, workings.deployment
    copies = deployment.layout.dp * workings.answer.pools
    each = plan.kv.bytes_per_request_per_gpu
    top, engine = plan.capacity.ceiling, plan.capacity.engine
    if top is None or not each:
        return
    at: float = top.exact
    yield _level("ceiling", "Ceiling", at, "memory less weights / one request", "arithmetic")
    if engine is None or engine.max_concurrency is None:
        return
    given = engine.max_concurrency * copies
    if not workings.answer.starts:
        given = 0.0
    else:
        for account in plan.memory.accounts:
            if account.name not in OUTSIDE and account.bytes:
                to = at - account.bytes / each * copies
                yield _account(account, at, to, each, copies)
                at = to
        for key, label, to, rule in _rounding(workings, at, given, copies):
            yield _step(key, label, at, to, formula=rule, source="engine rule")
            at = to
    made = "as the engine counts: its blocks / a longest request's"
    level = _level(
        "engine", f"Engine ({engine_of(plan.scenario.engine).label})", given, made, "engine rule"
    )
    low, high = engine.low, engine.high
    if low is not None and high is not None and low < high:
        level |= {"low": low * copies, "high": high * copies}
    yield level
    at = given
    expected, shared = plan.capacity.expected.requests, plan.capacity.shared.requests
    if expected is None:
        return
    rule = "requests hold what they have come to, not the longest they may be"
    told = "the workload's lengths"
    yield _step("lengths", "lengths", at, expected, formula=rule, source=told)
    rule = "blocks / what a running request holds on average"
    yield _level("expected", "Expected", expected, rule, "the workload's lengths")
    if shared is None:
        return
    rule = "a prefix that requests share is held once"
    told = "the workload's prefix"
    yield _step("prefixes", "shared prefixes", expected, shared, formula=rule, source=told)
    rule = "the same, the shared prefix counted once"
    yield _level("shared", "Shared", shared, rule, "the workload's prefix")


def _rounding(
    workings: Workings, at: float, given: float, copies: int
) -> Iterator[tuple[str, str, float, str]]:
    """What lies between the cache's bytes and the engine's count: the longest request's last block,
    and the rest, which is block tables' and groups' padding."""
    block = workings.plan.capacity.engine.block_tokens if workings.plan.capacity.engine else None
    tokens = workings.deployment.context_tokens
    if block and tokens % block:
        to = at * tokens / (ceil_div(tokens, block) * block)
        yield "last-blocks", "last blocks", to, f"a request takes whole blocks of {block} tokens"
        at = to
    rule = "padding and what the engine sets apart: its own count against the bytes'"
    name = "fragmentation" if given <= at else "the engine's own count"
    yield "fragmentation", name, given, rule


def _step(
    key: str, label: str, start: float, to: float, *, formula: str, source: str
) -> dict[str, Any]:
    return {
        "key": key, "label": label, "level": False, "from": start, "to": to, "change": to - start,
        "formula": formula, "source": source,
    }  # fmt: skip


def _level(key: str, label: str, requests: float, formula: str, source: str) -> dict[str, Any]:
    return _step(key, label, 0.0, requests, formula=formula, source=source) | {"level": True}


def _account(account: Account, at: float, to: float, each: int, copies: int) -> dict[str, Any]:
    kept = account.name == "unused"
    label = "kept free" if kept else ACCOUNTS.get(account.name, account.name)
    rule = "its bytes / one request's, on the GPU that binds"
    step = _step(account.name, label, at, to, formula=rule, source=account.source)
    step |= {"bytes": account.bytes, "numbers": f"-{account.bytes} / {each} × {copies}"}
    if account.low_bytes < account.high_bytes:
        step |= {
            "low": -account.high_bytes / each * copies,
            "high": -account.low_bytes / each * copies,
        }
        step |= {"low_bytes": account.low_bytes, "high_bytes": account.high_bytes}
    return step


def requests(value: float) -> str:
    """Requests as the page writes them: a decimal or two below a hundred, where they are not whole."""
    if value >= 99.95 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:,.1f}" if value >= 0.095 else f"{value:,.2f}"


def sentence(stairs: list[dict[str, Any]]) -> str:
    """What the picture shows, for whoever does not see it."""
    if not stairs:
        return "Requests store nothing, so that memory sets no limit."
    levels = [
        f"{stair['label'].lower()} {requests(stair['to'])}" for stair in stairs if stair["level"]
    ]
    return f"Requests at once: {', '.join(levels)}."


_EACH = "kv.bytes_per_request_per_gpu"
FOLLOWS = {
    "": (_EACH,),
    "unused": ("memory.gpu_bytes", _EACH),
    "ceiling": ("capacity.ceiling.exact", "memory.gpu_bytes", "weights.bytes"),
    "engine": ("capacity.engine.max_concurrency",),
    "lengths": ("capacity.engine.max_concurrency", "capacity.expected.requests"),
    "expected": ("capacity.expected.requests",),
    "prefixes": ("capacity.expected.requests", "capacity.shared.requests"),
    "shared": ("capacity.shared.requests",),
    "measured": (),
    "said": (),
}
"""A stair's key and the Plan's figures that it follows from; ``""`` for what an account takes."""


def explanations(figure: dict[str, Any]) -> Iterator[Explanation]:
    """Each stair with its formula and source."""
    for index, s in enumerate(figure["stairs"]):
        key, value = ("to", s["to"]) if s["level"] else ("change", s["change"])
        yield Explanation(
            figure=f"figures.reality.stairs.{index}.{key}",
            label=s["label"][:1].upper() + s["label"][1:],
            value=value,
            unit="requests",
            formula=s["formula"],
            numbers=s.get("numbers")
            or (repr(value) if s["level"] else f"{s['to']!r} − {s['from']!r}"),
            source=s["source"],
            of=FOLLOWS.get(s["key"], FOLLOWS[""]),
        )
