"""The flags of ``plan`` and its likes: every key of a Scenario has one, and they make a Scenario."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from math import prod
from pathlib import Path
from typing import Any

import click

from kvroom import hub
from kvroom.errors import KvroomError
from kvroom.models.load import asking
from kvroom.models.names import is_page
from kvroom.scenario.command_line import FLAGS, NUMBER
from kvroom.scenario.layout import counted_cards
from kvroom.scenario.offload import line as tier_line
from kvroom.scenario.scenario import Scenario
from kvroom.scenario.values import number_of
from kvroom.ui import codec
from kvroom.ui.cli.completion import complete
from kvroom.units import number

_JSON_KEYS = ("tiers", "fleet", "disaggregation", "speculation", "workload.lengths")
_NUMERIC = tuple(key for _, key, takes, _ in FLAGS if takes == NUMBER)


set_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="The value of a variable that a command or file leaves open (repeatable).",
)


price_option = click.option(
    "--price",
    multiple=True,
    metavar="[CARD=]PRICE",
    shell_complete=complete,
    help="Dollars an hour of a card (H100-SXM=2.10), or terms: community, on-demand, reserved, "
    "owned:30000:years=4:kwh=0.12:utilisation=0.7 (repeatable).",
)


def scenario_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give ``command`` the MODEL argument and a flag for every Scenario key."""
    decorate: list[Any] = [
        click.argument("model_name", metavar="MODEL", required=False, shell_complete=complete)
    ]
    decorate.append(
        click.option(
            "--model",
            "model_flag",
            metavar="MODEL",
            help="The same as MODEL.",
            shell_complete=complete,
        )
    )
    decorate += key_options(*(flag for flag, _, _, _ in FLAGS))
    decorate += [
        click.option("--users", metavar=NUMBER, help="Users at once: sets both concurrencies."),
        click.option("--static", is_flag=True, help="One batch, no arrivals while it runs."),
        click.option(
            "--workload",
            metavar="SPEC",
            help="Who comes, in one line: arrivals=poisson:2/s,input=fixed:512,…",
        ),
        click.option(
            "--engine-arg", multiple=True, metavar="KEY=VALUE", help="An engine flag (repeatable)."
        ),
        click.option(
            "--tier",
            multiple=True,
            metavar="KIND[:SIZE][:KEY=…]",
            help="Cache below the GPU: host:512GiB, nvme:4TB:write=back, network (repeatable).",
        ),
        click.option(
            "--known-bytes",
            multiple=True,
            metavar="KEY=SIZE",
            help="Measured on one GPU: visible, free_before_load, weights, activations, runtime, graphs.",
        ),
        price_option,
        click.option(
            "--allow-overcommit", is_flag=True, help="Answer times even where it does not fit."
        ),
        click.option(
            "--scenario",
            "scenario_file",
            metavar="FILE",
            help="A Scenario as JSON (-: stdin).",
            shell_complete=complete,
        ),
        click.option(
            "--from-command",
            metavar="COMMAND",
            shell_complete=complete,
            help="Take the question from an engine's command line, or a file that holds it (-: stdin).",
        ),
        set_option,
    ]
    for decorator in reversed(decorate):
        command = decorator(command)
    return command


engine_python_option = click.option(
    "--engine-python",
    metavar="PATH",
    help="Ask the engine that this Python has (auto: look for one); no GPU needed.",
)


def cluster_options(command: Any) -> Any:
    """Give ``command`` the options of work that many share."""
    for flag, takes, words in (
        ("--journal", "FILE", "Keep what is done; go on from it."),
        ("--cluster", "WORKERS", "Who works: processes:N, ray, ray:ADDRESS, auto."),
    ):
        command = click.option(flag, metavar=takes, help=words)(command)
    return command


def settings_from(pairs: tuple[str, ...]) -> dict[str, str]:
    """Values of ``--set`` by the name of the variable."""
    settings: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not re.fullmatch(r"\w+", name):
            raise KvroomError("--set", pair, "is no NAME=VALUE", "Write --set TP=8.")
        settings[name] = value
    return settings


def _command(
    text: str, notes: list[str], settings: dict[str, str], *, model_given: bool
) -> dict[str, Any]:
    """The Scenario keys of an engine's command line; of a file's text where ``text`` names one."""
    from kvroom.launchers.commands import read_command
    from kvroom.launchers.nearby import MAX_CHARACTERS, NOWHERE, Nearby

    nearby = NOWHERE
    if text == "-":
        text = sys.stdin.read(MAX_CHARACTERS + 1)
    elif "\n" not in text:
        try:
            if Path(text).is_file():
                nearby = Nearby(text)
                with Path(text).open(encoding="utf-8", errors="replace") as file:
                    text = file.read(MAX_CHARACTERS + 1)
        except (OSError, ValueError):  # no path, or one that cannot be read: a command then
            pass
    read = read_command(text, settings, model_stated=model_given, nearby=nearby)
    if not model_given:
        read.check_model()
    notes += read.warnings
    return read.keys


def key_options(*flags: str) -> list[Any]:
    """The click options of those of FLAGS that are named."""
    return [
        click.option(
            flag,
            _parameter(key),
            metavar=takes,
            help=words,
            shell_complete=complete,
        )
        for flag, key, takes, words in FLAGS
        if flag in flags
    ]


_RECONCILED = (
    "--gpu", "--tp", "--pp", "--dp", "--ep", "--dcp", "--weight-dtype", "--kv-dtype", "--context",
    "--engine-version",
)  # fmt: skip


def reconcile_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The flags that say what a start-up log leaves out."""
    decorate: list[Any] = key_options(*_RECONCILED)
    decorate.append(
        click.option(
            "--engine-arg", multiple=True, metavar="KEY=VALUE", help="An engine flag (repeatable)."
        )
    )
    for decorator in reversed(decorate):
        command = decorator(command)
    return command


def play_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The flags that say how the sessions of a trace are played."""
    command = click.option(
        "--recorded-times", is_flag=True, help="Send a trace's sessions when they were recorded."
    )(command)
    return click.option(
        "--sessions",
        metavar="COUNT",
        help="Sessions of the trace at a time (default: as they came).",
    )(command)


def pauses_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """The flag that says how long recorded sessions pause."""
    return click.option(
        "--pauses",
        metavar="TIMES",
        help="Think and tool times of the trace, over those recorded (0: none).",
    )(command)


def pauses_of(text: str | None) -> dict[str, Any]:
    """The same as a keyword; nothing where it is not given."""
    if text is None:
        return {}
    times = number_of(text)
    if times is None:
        raise KvroomError("--pauses", text, "is no number", "Write 0 for none, 1 as recorded.")
    return {"pauses": float(times)}


def trace_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The flags that say how a trace is read."""
    decorate = (
        click.option(
            "--hash-tokens", metavar="TOKENS", help="Tokens of a trace's hash id (default: told)."
        ),
        click.option(
            "--skip-bad-lines", is_flag=True, help="Pass over wrong lines and count them."
        ),
        click.option(
            "--columns",
            metavar="NAME=COLUMN,…",
            help="Any CSV or JSONL: arrival=t:ms,input=p,output=g.",
        ),
        click.option(
            "--tokenizer", metavar="FILE", help="A tokenizer.json that counts a trace's text."
        ),
    )
    for decorator in reversed(decorate):
        command = decorator(command)
    return command


def _parameter(key: str) -> str:
    return key.replace(".", "__")


def scenario_from(options: dict[str, Any], notes: list[str] | None = None) -> Scenario:
    """The Scenario that the flags ask for; flags win over ``--scenario``, which wins over a link or a
    command. What a command holds that is left out is added to ``notes``."""
    with asking(hub.reader()):  # a command that is read back may name a model of the hub
        return _scenario_from(options, [] if notes is None else notes)


def _scenario_from(options: dict[str, Any], notes: list[str]) -> Scenario:
    name, flag = options.pop("model_name", None), options.pop("model_flag", None)
    if name and flag and name != flag:
        raise KvroomError(
            "model", flag, f"is not the MODEL {name} given before", "Give one of them."
        )
    model = name or flag
    base: dict[str, Any] = {}
    if model and (
        "#s=" in model or (model.startswith(("http://", "https://")) and not is_page(model))
    ):
        base, model = Scenario.from_link(model).differences(), None
    if options.get("from_command"):
        base |= _command(
            options["from_command"],
            notes,
            settings_from(options.get("settings") or ()),
            model_given=bool(model or options.get("scenario_file")),
        )
    if options.get("scenario_file"):
        read = codec.read_json(options["scenario_file"], "--scenario")
        if not isinstance(read, dict):
            raise KvroomError("--scenario", read, "is not an object", "Write a Scenario in braces.")
        base |= read
    flags = keys_from(options)
    if model:
        flags |= _named(model, flags, base, notes)
    workload = flags.pop("workload", {})
    if workload:
        flags["workload"] = {**(base.get("workload") or {}), **workload}
    if "engine_args" in flags and options.get("from_command"):
        flags["engine_args"] = {**base.get("engine_args", {}), **flags["engine_args"]}
    anew = {"gpu_count", "tp", "pp", "dp"} & set(flags)
    if options.get("from_command"):
        base = _laid_out(base, flags)
        flags = _cards_used(base, flags, notes)
    elif anew or "gpu" in flags:
        # A layout given anew is a whole one: what the base said of it no longer holds.
        base = {
            key: value
            for key, value in base.items()
            if key not in ("gpu_count", "tp", "pp", "dp", "ep", "dcp")
        }
    return Scenario.from_dict(base | flags)


def _cards_used(base: dict[str, Any], flags: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    """``flags`` with the cards that a command's own ranks take, where the machine has more."""
    if {"tp", "pp", "dp"} & set(flags) or type(flags.get("gpu_count")) is not int:
        return flags
    ranks = [base.get(key, 1) for key in ("tp", "pp", "dp")]
    if "tp" not in base or not all(type(rank) is int for rank in ranks):
        return flags
    taken = prod(ranks)
    if taken >= flags["gpu_count"]:
        return flags
    notes.append(f"the command takes {taken} of the {flags['gpu_count']} cards: its ranks say so")
    return {**flags, "gpu_count": taken}


def _laid_out(base: dict[str, Any], flags: dict[str, Any]) -> dict[str, Any]:
    """A command's keys, whose layout stands but for the ranks that ``flags`` give anew.

    An engine that is told no tensor-parallel ranks has one, however many cards there are.
    """
    if not {"tp", "pp", "dp", "gpu_count"} & set(flags):
        return base
    from kvroom.engines.registry import engine_of

    base = {key: value for key, value in base.items() if key != "gpu_count"}
    line = engine_of(base["engine"]).command if "engine" in base else None
    if line is not None and line.default_tp:
        base.setdefault("tp", 1)
    all_ranks = base.get("tp", 1) * base.get("dp", 1)
    if base.get("ep", 1) == all_ranks > 1:
        merged = base | flags
        base["ep"] = merged.get("tp", 1) * merged.get("dp", 1)
    return base


def _named(
    model: str, flags: dict[str, Any], base: dict[str, Any], notes: list[str]
) -> dict[str, Any]:
    """The keys of the model that was typed, which may be a name of the engine's own library."""
    engine = flags.get("engine", base.get("engine"))
    if engine is None or ":" not in model:
        return {"model": model}
    from kvroom.engines.registry import engine_of

    line = engine_of(engine).command
    if line is None:
        return {"model": model}
    keys, warnings = line.model_keys(model, flags)
    notes += warnings
    return {**keys, **{key: flags[key] for key in keys if key in flags}}


def keys_from(options: dict[str, Any]) -> dict[str, Any]:
    """The Scenario keys that the flags give (the model apart)."""
    keys: dict[str, Any] = {}
    workload: dict[str, Any] = {}
    for _, key, _, _ in FLAGS:
        value = options.get(_parameter(key))
        if value is None:
            continue
        where, name = (workload, key.removeprefix("workload.")) if "." in key else (keys, key)
        where[name] = _value(key, value)
    if "gpu" in keys:
        keys.update(_gpu(keys["gpu"], keys.get("gpu_count")))
    if options.get("users"):
        users = _value("concurrency", options["users"])
        if keys.get("concurrency", users) != users:
            why = f"is not the --users {users} given, which says it too"
            raise KvroomError("concurrency", keys["concurrency"], why, "Give one of them.")
        keys["concurrency"] = workload["concurrency"] = users
    if options.get("static"):
        workload["static"] = True
    if options.get("workload"):
        workload.update(_spec(options["workload"]))
    if options.get("engine_arg"):
        keys["engine_args"] = dict(_pair("--engine-arg", p) for p in options["engine_arg"])
    if options.get("tier"):
        more = [tier_line(text) for text in options["tier"]]
        keys["tiers"] = [*(keys.get("tiers") or []), *more]
    if options.get("known_bytes"):
        keys["known_bytes"] = dict(_words("--known-bytes", p) for p in options["known_bytes"])
    if options.get("price"):
        keys["prices"] = prices_from(options["price"])
    if options.get("allow_overcommit"):
        keys["allow_overcommit"] = True
    if workload:
        keys["workload"] = workload
    return keys


def _value(key: str, text: str) -> Any:
    if key == "calibration":
        return codec.read_json(text, "--calibration")
    if key in _JSON_KEYS and not (key == "speculation" and text.lstrip()[:1] not in "{["):
        return codec.decode(text, key)
    if key in _NUMERIC:
        try:
            return int(text) if text.lstrip("-").isdecimal() else float(text)
        except ValueError:
            return text  # the Scenario refuses it by its key
    return text


def _spec(text: str) -> dict[str, Any]:
    """The keys of a SPEC line, each checked, kept as written (counts as numbers).

    Without ``arrivals`` the load is what ``--rate`` or ``--users`` says, or none.
    """
    from kvroom.workloads.synthetic import parse, split_spec

    words: dict[str, Any] = dict(split_spec(text))
    parse({"arrivals": "once", **words})
    return words | {k: int(words[k]) for k in ("requests", "seed") if k in words}


def _gpu(text: str, count: int | None) -> dict[str, Any]:
    if text.lstrip().startswith("{"):
        return {"gpu": codec.decode(text, "gpu")}
    name, cards = counted_cards(text)
    if cards is None:
        return {"gpu": text}
    if count is not None and count != cards:
        raise KvroomError("gpu", text, f"and --gpu-count {count} disagree", "Give the count once.")
    return {"gpu": name, "gpu_count": cards}


def prices_from(texts: Iterable[str]) -> dict[str, float | str]:
    """What ``--price`` says, by card."""
    return dict(_price(one) for text in texts for one in text.split(","))


def _price(text: str) -> tuple[str, float | str]:
    """``CARD=2.10``, ``CARD=TERMS``, or terms alone, which are every card's."""
    from kvroom.hardware.prices import EVERY, FIX, OWNED, check_terms, kinds

    card, equals, price = (part.strip() for part in text.partition("="))
    if OWNED in card.partition(":")[0] or not equals:
        card, price = EVERY, text.strip()
    fix = FIX.format(", ".join(kinds())) + " Before it the card: H100-SXM=2.10."
    if not card or not price:
        raise KvroomError("--price", text, "is no CARD=USD", fix)
    if price[:1].isalpha():
        return card, check_terms("--price", price)
    if card == EVERY:
        raise KvroomError("--price", text, "is no CARD=USD", fix)
    return card, number("--price", price.removeprefix("$"), fix)


def _words(flag: str, text: str) -> tuple[str, str]:
    """``KEY=VALUE`` as it is written."""
    key, equals, value = text.partition("=")
    key = key.strip().lstrip("-").replace("-", "_")
    if not equals or not key:
        raise KvroomError(flag, text, "is no KEY=VALUE", f"Write {flag} name=value.")
    return key, value


def _pair(flag: str, text: str) -> tuple[str, Any]:
    key, value = _words(flag, text)
    try:
        return key, codec.decode(value, flag)
    except KvroomError:
        return key, value
