"""What an agent may ask: one table of tools, each with the schema of its arguments and a short answer.

``kvroom mcp`` serves the table; nothing here knows that protocol. An answer holds the verdict, a few figures,
what to do and the page's address; more is given where it is asked for (``figures``, ``limit``, ``detail``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

from kvroom import api
from kvroom.answer.figures import registry
from kvroom.errors import KvroomError, did_you_mean
from kvroom.records import dataclass
from kvroom.scenario.command_line import FLAGS
from kvroom.scenario.link import PAGE_ADDRESS, link_of
from kvroom.scenario.scenario import Scenario
from kvroom.ui import codec
from kvroom.units import check_float, check_int

Arguments = dict[str, Any]
MOST_ROWS = 100
MOST_WARNINGS = 5
MOST_TEXT = 200_000
MOST_SECONDS = 600
PLAN_FIGURES = (
    "capacity.engine.max_concurrency", "capacity.engine.kv_tokens", "capacity.expected.requests",
    "weights.bytes", "kv.bytes_per_request", "step.seconds", "serving.ttft_s", "serving.tpot_s",
    "serving.output_tokens_per_s", "cost.usd_per_million_output_tokens",
)  # fmt: skip
"""Figures of a Plan that are given unless others are asked for."""
_TOKENS = ("context_tokens", "encoder_tokens", "host_memory_bytes")
_SAID = {
    "model": "A catalogue name, a hub id, a path, or {config: …}.",
    "gpu": "The card's name, a machine file, or {name, memory_bytes, memory_bytes_per_s, …}.",
    "engine_args": "The engine's own flags, with underscores.",
    "workload": "Who comes: input_tokens, output_tokens, concurrency, requests_per_s; or arrivals, input, "
    "output, prefix, turns, requests as in a SPEC.",
    "known_bytes": "What was measured on one GPU, in place of an estimate.",
    "prices": "Dollars an hour by card.",
    "allow_overcommit": "Answer the questions of time even where memory says no.",
}


@dataclass(frozen=True, kw_only=True)
class AgentTool:
    """A tool: its ``name``, what it ``answers`` and when to call it, the JSON schema of its ``arguments``
    and of its ``answer``, and the function from one to the other (KvroomError where there is no answer)."""

    name: str
    answers: str
    arguments: Mapping[str, Any]
    answer: Mapping[str, Any]
    function: Callable[[Arguments], dict[str, Any]]

    def call(self, arguments: Mapping[str, Any], page: str = PAGE_ADDRESS) -> dict[str, Any]:
        """The answer, its links those of the page at that address (none: no links); KvroomError names the
        argument, its value and the fix."""
        properties = self.arguments["properties"]
        for name, value in arguments.items():
            if name not in properties:
                fix = did_you_mean(name, properties, f"One of: {', '.join(properties)}.")
                raise KvroomError(name, value, f"is no argument of {self.name}", fix)
            _check_kind(name, value, properties[name])
        for name in self.arguments.get("required", ()):
            if arguments.get(name) is None:
                raise KvroomError(
                    name, None, "is missing", f"Say it: {properties[name]['description']}"
                )
        answer = self.function(
            {key: value for key, value in arguments.items() if value is not None}
        )
        return answer if page == PAGE_ADDRESS else _addressed(answer, page)


def _addressed(answer: dict[str, Any], page: str) -> dict[str, Any]:
    """``answer`` with its links, and those of its rows, at another page; "" where that is none."""
    addressed = dict(answer)
    for key, value in answer.items():
        if key == "page":
            addressed[key] = value and page and page + value.removeprefix(PAGE_ADDRESS)
        elif isinstance(value, list) and key != "answer":
            addressed[key] = [
                _addressed(row, page) if isinstance(row, dict) else row for row in value
            ]
    return addressed


_KINDS: Mapping[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "array": (list,),
    "object": (dict,),
}  # fmt: skip


def _check_kind(name: str, value: Any, schema: Mapping[str, Any]) -> None:
    """Refuse a value of another kind than the schema's; a Scenario's keys have none of one kind."""
    kind = schema.get("type")
    if value is None or not isinstance(kind, str):
        return
    right = isinstance(value, _KINDS[kind]) and (kind == "boolean" or not isinstance(value, bool))
    inner = schema.get("items", {}).get("type")
    if right and kind == "array" and inner:
        right = all(isinstance(item, _KINDS[inner]) for item in value)
    if not right:
        of = f" of {inner}s" if inner else ""
        article = "an" if kind[0] in "aio" else "a"
        raise KvroomError(
            name, value, f"is not {article} {kind}{of}", schema.get("description", "")
        )


def _schema(properties: Mapping[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": dict(properties), "required": list(required)}


def _said(kind: str, words: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "description": words, **more}


_LINK = _said("string", "A page's address, in place of the keys; other arguments win over it.")
_FILES = _said("array", "Paths of files.", items={"type": "string"})
_SETTINGS = _said("object", "Values of variables that the files leave open.")
_LIMIT = _said("integer", "How many rows at most.", minimum=1, maximum=MOST_ROWS)
_DETAIL = _said("boolean", "The whole answer too, as --json prints it.")
_NAMES = _said("array", "Figures to give in place of the usual.", items={"type": "string"})
_SLO = _said("string", "Objectives: ttft_p95=2s,tpot_p95=50ms.")
_FIGURES = _said("object", "Figures by name: seconds, bytes, tokens as the names say.")
_WARNINGS = _said("array", "What to be careful of.", items={"type": "string"})
_VERDICT = _said("string", "The answer in a sentence: say this first.")
_PAGE = _said(
    "string", "A page that shows this question: give it to the user (empty: no page is known)."
)
_SHORT = {"verdict": _VERDICT, "figures": _FIGURES, "warnings": _WARNINGS, "page": _PAGE}


@cache
def _scenario_schema() -> dict[str, Any]:
    """The keys of a Scenario with what each is, and the definitions that they refer to."""
    definitions = codec.schema()["$defs"]
    words = {key: text for _, key, _, text in FLAGS} | _SAID
    properties: dict[str, Any] = {}
    for key, value in definitions["Scenario"]["properties"].items():
        property_of = {k: v for k, v in value.items() if k != "default"}
        if key in _TOKENS:
            property_of["anyOf"] = [*property_of["anyOf"], {"type": "string"}]
        if key == "workload":
            property_of = {"type": "object"}  # a SPEC's keys do too
        if words.get(key):
            property_of["description"] = words[key]
        if "type" in property_of and property_of["type"] not in ("object", "array"):
            property_of = {"anyOf": [{"type": property_of.pop("type")}], **property_of}
        properties[key] = property_of
    needed: dict[str, Any] = {}
    _gather(properties, definitions, needed)
    return {"properties": properties, "$defs": needed}


def _gather(value: Any, definitions: Mapping[str, Any], needed: dict[str, Any]) -> None:
    """Put the definitions that ``value`` refers to into ``needed``."""
    if isinstance(value, dict):
        name = str(value.get("$ref", "")).rpartition("/")[2]
        if name and name not in needed:
            needed[name] = definitions[name]
            _gather(definitions[name], definitions, needed)
        for item in value.values():
            _gather(item, definitions, needed)
    elif isinstance(value, list):
        for item in value:
            _gather(item, definitions, needed)


def _asking(more: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a tool that takes a Scenario's keys and ``more``."""
    scenario = _scenario_schema()
    return {
        "type": "object",
        "properties": {**scenario["properties"], "link": _LINK, **more},
        "$defs": scenario["$defs"],
    }


def _figure_schema() -> dict[str, Any]:
    """The figures of a Plan by name, each with what the registry says of it."""
    properties = {
        key: {"description": f"{entry.meaning} ({entry.unit})" if entry.unit else entry.meaning}
        for key, entry in registry().items()
        if key in PLAN_FIGURES
    }
    return {**_FIGURES, "properties": properties}


def _scenario(arguments: Arguments, own: Iterable[str] = ()) -> Scenario:
    """The question that the arguments ask, but for the tool's ``own``."""
    keys = {key: value for key, value in arguments.items() if key not in (*own, "link")}
    if "link" in arguments:
        keys = {**Scenario.from_link(arguments["link"]).differences(), **keys}
    if "model" not in keys:
        raise KvroomError(
            "model", None, "is missing", "Name it: llama-3-70b, a hub id, or a config.json."
        )
    return api.scenario(**keys)


def _limit(arguments: Arguments, otherwise: int) -> int:
    return check_int("limit", arguments.get("limit", otherwise), low=1, high=MOST_ROWS)


def _at(value: Any, key: str) -> Any:
    for name in key.split("."):
        value = value.get(name) if isinstance(value, dict) else getattr(value, name, None)
    return value


def _some(warnings: Iterable[str]) -> list[str]:
    """The first warnings, and how many there are beside them."""
    rows = list(warnings)
    rest = len(rows) - MOST_WARNINGS
    return [*rows[:MOST_WARNINGS], *([f"and {rest} more (detail)"] if rest > 0 else [])]


def _plan(arguments: Arguments) -> dict[str, Any]:
    plan = api.plan(_scenario(arguments, ("figures", "detail")))
    names = arguments.get("figures") or PLAN_FIGURES
    known = [key for key in registry() if "[]" not in key and "*" not in key]
    for name in names:
        if name not in known:
            fix = did_you_mean(name, known, "kvroom schema lists them.")
            raise KvroomError("figures", name, "is no figure of a plan", fix)
    verdict = plan.verdict
    return {
        "verdict": verdict.sentence,
        "status": verdict.status,
        "fits": verdict.fits,
        "binding": verdict.binding,
        "figures": {name: _at(plan, name) for name in names},
        "reasons": [{"message": reason.message, "fix": reason.fix} for reason in verdict.reasons],
        "warnings": _some(plan.warnings),
        "page": plan.scenario.link(),
        **({"plan": plan} if arguments.get("detail") else {}),
    }


def _levers(arguments: Arguments) -> dict[str, Any]:
    scenario = _scenario(arguments, ("by", "limit", "detail"))
    levers = api.levers(scenario, by=arguments.get("by", "requests"))
    rows = [
        {
            "id": row.lever.id,
            "changes": dict(row.changes),
            "after": row.after.to_dict(),
            "needs": list(row.lever.needs),
            "quality": row.lever.quality.effect if row.lever.quality else None,
            "page": link_of({**levers.scenario.differences(), **row.changes}),
        }
        for row in levers.levers[: _limit(arguments, 5)]
    ]
    return {
        "verdict": levers.sentence,
        "figures": levers.before.to_dict(),
        "levers": rows,
        "warnings": _some(levers.warnings),
        "page": levers.scenario.link(),
        **({"answer": levers.to_dict()} if arguments.get("detail") else {}),
    }


_SEARCH_KEYS = {
    "slo": _SLO,
    "users": _said("integer", "Users at once, whom the deployment is to hold.", minimum=1),
    "rate": _said("number", "Requests a second, in place of users."),
    "space": _said(
        "object", "What to choose from: gpus, counts, engines, weight_dtypes, kv_dtypes, max_gpus …"
    ),
    "simulate": _said(
        "integer", "Kinds of answer to bear out by simulation (default: 2).", minimum=0
    ),
    "limit": _LIMIT,
    "detail": _DETAIL,
}


def _search(arguments: Arguments) -> dict[str, Any]:
    keys = {key: value for key, value in arguments.items() if key not in (*_SEARCH_KEYS, "link")}
    if "link" in arguments:
        keys = {**Scenario.from_link(arguments["link"]).differences(), **keys}
    if "model" not in keys:
        raise KvroomError(
            "model", None, "is missing", "Name it: llama-3-70b, a hub id, or a config.json."
        )
    result = api.search(
        keys.pop("model"),
        keys.pop("gpu", None),
        slo=arguments.get("slo", ""),
        users=arguments.get("users"),
        rate=arguments.get("rate"),
        space=arguments.get("space"),
        simulate=arguments.get("simulate", 2),
        **keys,
    )
    rows = [
        {
            "name": answer.name,
            "served": answer.to_dict()["served"],
            "margin": dict(answer.margin),
            "simulated": answer.simulated,
            "page": answer.scenario.link(),
        }
        for answer in result.answers[: _limit(arguments, 3)]
    ]
    first = rows[0] if rows else None
    return {
        "verdict": result.sentence,
        "figures": dict(first["served"]) if first else {},
        "answers": rows,
        "nearest": [] if rows else [dict(row) for row in result.nearest[:3]],
        "warnings": [],
        "page": first["page"] if first else "",
        **({"answer": result.to_dict()} if arguments.get("detail") else {}),
    }


_SIMULATE_KEYS = {
    "trace": _said("string", "Path of a trace, in place of the workload."),
    "slo": _SLO,
    "seed": _said("integer", "Of what is drawn."),
    "seconds": _said("number", f"Stop after so long (default: 60, at most {MOST_SECONDS})."),
    "detail": _DETAIL,
}


def _simulate(arguments: Arguments) -> dict[str, Any]:
    from kvroom.ui.terminal.simulation import sentence

    ends = time.monotonic() + check_float(
        "seconds", arguments.get("seconds", 60), low=0.1, high=MOST_SECONDS
    )
    simulation = api.simulate(
        _scenario(arguments, _SIMULATE_KEYS),
        trace=arguments.get("trace"),
        slo=arguments.get("slo", ""),
        seed=arguments.get("seed"),
        keep_requests=False,
        watch=lambda _: time.monotonic() > ends,
    )
    whole = simulation.to_dict()
    times = {
        f"{name}.{at}": whole[name][at]
        for name in ("ttft_s", "tpot_s", "e2e_s")
        if whole.get(name)
        for at in ("p50", "p95")
    }
    plain = (
        "output_tokens_per_s", "goodput_requests_per_s", "prefix_hit_ratio", "preemptions", "duration_s",
    )  # fmt: skip
    figures = {**whole["requests"], **times, **{key: whole[key] for key in plain}}
    return {
        "verdict": sentence(simulation.run, whole),
        "figures": figures,
        "slo": whole.get("slo"),
        "stopped": whole["stopped"],
        "warnings": _some(whole["warnings"]),
        "page": simulation.run.workings.plan.scenario.link(),
        **({"answer": whole} if arguments.get("detail") else {}),
    }


_CHECK_KEYS = {
    "files": _FILES,
    "text": _said("string", "A command, script or manifest itself, in place of files."),
    "gpu": _said("string", "The card where a file names none: H100-SXM:8."),
    "model": _said("string", "The model of files that name none that is known."),
    "engine_version": _said("string", "The engine's version where a file names none."),
    "set": _SETTINGS,
    "expect": _said("string", "What was promised: concurrency=16,ttft_p95=1s."),
    "workload": _said("object", "Who comes, for promises of times: input_tokens, output_tokens …"),
    "fix": _said("boolean", "A patch with the flags that make it start too (files only)."),
}


def _check(arguments: Arguments) -> dict[str, Any]:
    from kvroom.observe.check import CheckReport

    given = ("model", "engine_version", "workload")
    keys: dict[str, Any] = {key: arguments[key] for key in given if key in arguments}
    name, _, count = arguments.get("gpu", "").rpartition(":")
    if count.isdecimal() and name:
        keys |= {"gpu": name, "gpu_count": int(count)}
    elif "gpu" in arguments:
        keys["gpu"] = arguments["gpu"]
    settings = {str(key): str(value) for key, value in arguments.get("set", {}).items()}
    expect = arguments.get("expect", "")
    if "text" in arguments:
        rows = api.check_text(arguments["text"], expect=expect, settings=settings, **keys)
        report = CheckReport(deployments=rows.deployments)
    elif arguments.get("files"):
        report = api.check(*arguments["files"], expect=expect, settings=settings, **keys)
    else:
        fix = "Name the files to check, or give the command itself as text."
        raise KvroomError("files", None, "is missing", fix)
    found = [
        {
            "at": f"{row.file}:{row.line}",
            "status": row.status,
            "finding": row.is_finding,
            "reason": row.reason,
            "fix": row.fix,
            "warnings": _some(row.warnings),
            "page": link_of(row.scenario) if row.scenario else "",
        }
        for row in report.deployments[:MOST_ROWS]
    ]
    patches = [
        api.check_patch(file, settings=settings, **keys) for file in arguments.get("files", ())
    ] if arguments.get("fix") else []  # fmt: skip
    return {
        "verdict": report.sentence,
        "exit_status": report.exit_status,
        "deployments": found,
        "warnings": [],
        "page": found[0]["page"] if found else "",
        **({"patch": "".join(patches)} if arguments.get("fix") else {}),
    }


_RECONCILE_KEYS = {
    "file": _said("string", "Path of the start-up log, recording or metrics text."),
    "text": _said("string", "The log itself, in place of a file."),
    "model": _said("string", "The model, where the log does not name a known one."),
    "gpu": _said("string", "The card, where the log does not say."),
    "expect": _said("number", "Requests that were reckoned with: the way to the printed ones."),
    "detail": _DETAIL,
}


def _reconcile(arguments: Arguments) -> dict[str, Any]:
    from kvroom.observe.logs.startup import read_bytes

    if "text" in arguments:
        text = arguments["text"]
        if len(text) > MOST_TEXT:
            fix = f"Give at most {MOST_TEXT:,} characters, or the path as file."
            raise KvroomError("text", len(text), "characters are too many", fix)
        log: Any = read_bytes(text.encode())
    elif "file" in arguments:
        log = arguments["file"]
    else:
        raise KvroomError("file", None, "is missing", "Give the log's path, or its text.")
    keys = {key: arguments[key] for key in ("model", "gpu") if key in arguments}
    reconciliation = api.reconcile(log, expect=arguments.get("expect"), **keys)
    shared = [
        name for name in reconciliation.predicted if reconciliation.printed.get(name) is not None
    ]
    rows = [
        {
            "name": line.name,
            "predicted_bytes": line.predicted_bytes,
            "printed_bytes": line.printed_bytes,
            "reason": line.reason,
            "flag": line.flag,
        }
        for line in reconciliation.accounts
        if line.difference_bytes
    ]
    return {
        "verdict": reconciliation.sentence,
        "engine": reconciliation.engine,
        "engine_version": reconciliation.engine_version,
        "figures": {
            name: {
                "predicted": reconciliation.predicted[name],
                "printed": reconciliation.printed[name],
            }
            for name in shared
        },
        "accounts": rows,
        "way": None if reconciliation.way is None else reconciliation.way.line,
        "command": reconciliation.command,
        "missing": list(reconciliation.missing),
        "warnings": _some(reconciliation.notes),
        "page": link_of(reconciliation.scenario)
        if reconciliation.scenario and not reconciliation.missing
        else "",
        **({"answer": reconciliation.to_dict()} if arguments.get("detail") else {}),
    }


@cache
def table() -> tuple[AgentTool, ...]:
    """Every tool; there is no other."""
    rows = _said("array", "Best first.", items={"type": "object"})
    return (
        AgentTool(
            name="plan",
            answers="Where every byte of a served model goes, how many requests fit, how fast a step is. "
            "Ask this before a model is put on a card, and again for each change.",
            arguments=_asking(
                {
                    "figures": _NAMES,
                    "detail": _DETAIL,
                }
            ),
            answer=_schema(
                {
                    **_SHORT,
                    "figures": _figure_schema(),
                    "status": _said("string", "fits, full, would_not_start, unsupported or unlikely."),
                    "fits": _said("boolean", "Whether it starts and holds what is asked."),
                    "binding": {"description": "What runs out first."},
                    "reasons": _said("array", "Why not, each with its fix.", items={"type": "object"}),
                },
                "verdict", "figures", "page",
            ),
            function=_plan,
        ),
        AgentTool(
            name="check",
            answers="Whether what launch files start does start and holds what was promised: shell scripts, "
            "compose, Kubernetes, Helm values, KServe, llm-d, Dynamo, Ray Serve, Dockerfiles, units, "
            "Modelfiles. Ask this before such a file is run or merged. Nothing of it is run.",
            arguments=_schema(_CHECK_KEYS),
            answer=_schema(
                {
                    "verdict": _VERDICT,
                    "exit_status": _said("integer", "0 fine, 1 a finding, 2 unreadable."),
                    "deployments": rows,
                    "patch": _said("string", "A unified diff with the flags that make it start."),
                },
                "verdict", "exit_status", "deployments",
            ),
            function=_check,
        ),
        AgentTool(
            name="reconcile",
            answers="An engine's own start-up log beside the prediction, account by account, with the reason "
            "for each difference. Ask this where the engine's number makes no sense.",
            arguments=_schema(_RECONCILE_KEYS),
            answer=_schema({**_SHORT, "accounts": rows}, "verdict", "figures"),
            function=_reconcile,
        ),
        AgentTool(
            name="levers",
            answers="Every lever of a question, ranked: requests, step time and cost after it, and its "
            "published price in quality. Ask this where something does not fit or is too slow.",
            arguments=_asking(
                {
                    "by": {"enum": ["requests", "step", "ttft", "cost"], "description": "What to rank by."},
                    "limit": _LIMIT,
                    "detail": _DETAIL,
                }
            ),
            answer=_schema({**_SHORT, "levers": rows}, "verdict", "figures", "levers", "page"),
            function=_levers,
        ),
        AgentTool(
            name="search",
            answers="Which hardware, layout and settings meet an objective, the cheapest first. Ask this "
            "where the cards are open; it takes seconds to a minute.",
            arguments=_asking(_SEARCH_KEYS),
            answer=_schema({**_SHORT, "answers": rows}, "verdict", "answers"),
            function=_search,
        ),
        AgentTool(
            name="simulate",
            answers="What happens when requests come: TTFT, TPOT, goodput, preemptions, hit ratio. Ask this "
            "for percentiles, for bursts, for a trace; plan says the steady state sooner.",
            arguments=_asking(_SIMULATE_KEYS),
            answer=_schema(
                {**_SHORT, "stopped": _said("boolean", "Whether time ran out before it was done.")},
                "verdict", "figures", "stopped", "page",
            ),
            function=_simulate,
        ),
    )  # fmt: skip


def text_of(answer: Mapping[str, Any]) -> str:
    """An answer in a few lines: the verdict, the figures, what to be careful of, the page."""
    lines = [str(answer["verdict"])]
    for name, value in answer.get("figures", {}).items():
        if value is not None:
            entry = registry().get(name)
            unit = f" {entry.unit}" if entry and entry.unit else ""
            lines.append(f"{name}: {_shown(value)}{unit}")
    for name in ("deployments", "levers", "answers", "accounts"):
        lines += [f"- {_row(row)}" for row in answer.get(name, ())]
    lines += [f"! {warning}" for warning in answer.get("warnings", ())]
    if answer.get("patch"):
        lines.append(str(answer["patch"]))
    return "\n".join([*lines, *([f"Page: {answer['page']}"] if answer.get("page") else [])])


def _shown(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def _row(row: Mapping[str, Any]) -> str:
    row_values = {
        key: value for key, value in row.items() if key not in ("page", "warnings") and value
    }
    return "; ".join(f"{key}: {codec.encode(value)}" for key, value in row_values.items())
