"""An installed engine as it is asked: found, started, told which card it is on, and its answer to a plan.

The flags are those that ``launch`` would write, read by the engine's own parser; the cache bytes are kvroom's
ledger's (or the ones given); what the engine's own code makes of them takes the place of kvroom's rules.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from kvroom.answer.plan import EngineCapacity
from kvroom.engines.asked import AskedScript
from kvroom.engines.base import Engine, EngineAnswer
from kvroom.engines.command_line import BYTES_FLAGS
from kvroom.engines.flags import plain_args, plain_name, switch
from kvroom.engines.registry import all_engines, engine_of
from kvroom.errors import KvroomError
from kvroom.launchers.launch import launch
from kvroom.models.load import config_of
from kvroom.observe.installed.process import FIELD, InstalledProcess, ProcessLimits
from kvroom.planner.plan import Workings, work
from kvroom.records import dataclass
from kvroom.scenario.scenario import Scenario
from kvroom.sharding.deployment import Deployment

AUTO = "auto"
FIND_S = 20.0
LOOKS = "import importlib.util,sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)"
MODEL, DRAFT = "model", "draft"
"""Folders of the configs that the engine reads."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A plan by an engine's own word: the ``workings`` with its capacity, what it told (``told``), and in
    one sentence how that differs from kvroom's own rules (``note``)."""

    workings: Workings
    told: Mapping[str, Any]
    note: str


def python_of(python: str, script: AskedScript) -> str:
    """The interpreter to ask: the one given, or for ``auto`` the first here that has the package."""
    if python != AUTO:
        return _program(python)
    tried = [path for path in (sys.executable, *_on_path()) if path]
    for path in dict.fromkeys(tried):
        if _has(path, script.package):
            return path
    fix = f"Give the Python that has it: --engine-python /opt/engine/bin/python ({script.install})."
    raise KvroomError(FIELD, python, f"finds no Python that has {script.package}", fix)


def _program(python: str) -> str:
    path = Path(python).expanduser()
    if path.is_dir():
        path = next((p for p in (path / "bin" / "python", path / "python") if p.is_file()), path)
    found = shutil.which(path.absolute() if os.sep in python else path)
    if found is None:
        fix = "Give the path of the Python that runs the engine: /opt/engine/bin/python."
        raise KvroomError(FIELD, python, "is no program that can be run here", fix)
    return str(Path(found).absolute())


def _on_path() -> Iterator[str | None]:
    for name in ("python", "python3"):
        yield shutil.which(name)


def _has(python: str, package: str) -> bool:
    try:
        status = subprocess.run(
            [python, "-c", LOOKS, package],
            capture_output=True,
            timeout=FIND_S,
            check=False,
        ).returncode
    except (OSError, subprocess.TimeoutExpired):
        return False
    return status == 0


def script_of(engine: Engine) -> AskedScript:
    """How ``engine`` is asked; KvroomError where it cannot be."""
    if engine.asked is None:
        others = " or ".join(each.name for each in all_engines() if each.asked is not None)
        fix = f"Ask one of {others}, or leave --engine-python out."
        raise KvroomError("engine", engine.name, "cannot be asked itself", fix)
    return engine.asked


class InstalledEngine:
    """An engine's process, and the question that it was last asked."""

    def __init__(self, process: InstalledProcess, engine: Engine, version: str) -> None:
        self.process, self.engine, self.version = process, engine, version

    @property
    def name(self) -> str:
        """The engine with the release that answers."""
        return f"{self.engine.label} {self.version}"

    def ask(self, name: str, **question: Any) -> dict[str, Any]:
        """Its answer; KvroomError where it could not give one. A refusal is an answer."""
        found = self.process.ask(name, **question)
        if "error" not in found or found["error"] == "refused":
            return found
        if found["error"] == "missing":
            fix = "Install that beside it, or leave --engine-python out: kvroom's own rules answer."
            raise KvroomError(FIELD, self.process.python, f"lacks {found['message']}", fix)
        why = f"{self.name} could not be asked ({found['type']}: {found['message'][:300]})"
        fix = "Leave --engine-python out: kvroom's own rules answer."
        raise KvroomError(FIELD, self.process.python, why, fix)

    def plan(self, workings: Workings, *, paths: bool = True) -> Asked:
        """``workings`` planned anew with what the engine itself says of its cache bytes."""
        scenario = workings.plan.scenario
        if scenario.disaggregation is not None:
            fix = "Ask about one pool at a time."
            raise KvroomError(FIELD, None, "asks one deployment, and these are two pools", fix)
        own, script = workings.answer, script_of(self.engine)
        if (
            own.capacity is None
            and own.kv_bytes <= 0
            and not (own.cache_given or script.by_free_memory)
        ):
            note = f"{self.name} was not asked: nothing is left for cache"
            return Asked(workings=_with(workings, note), told={}, note=note)
        words, unsaid = self.words(workings, paths=paths)
        told = self.ask("capacity", words=words, **_memory(own, script))
        answer = _answered(own, told, self.name)
        note = difference(own, answer, self.name)

        def by_engine(deployment: Deployment, before: EngineAnswer) -> EngineAnswer:
            return replace(answer, warnings=(note, *unsaid, *before.warnings))

        made = work(scenario, paths=paths, asked=by_engine)
        return Asked(workings=made, told=told, note=note)

    def words(self, workings: Workings, *, paths: bool) -> tuple[list[str], tuple[str, ...]]:
        """The engine's command line for a plan, its model a folder here; and what it cannot say."""
        scenario = workings.plan.scenario
        self._write(MODEL, scenario.model, paths=paths)
        plain = replace(workings.plan, scenario=self._sayable(replace(scenario, model=MODEL)))
        launched = launch(replace(workings, plan=plain))
        words: list[str] = []
        given = {plain_name(name) for name in scenario.engine_args}
        for name, *values in launched.flags:
            if plain_name(name) == self.engine.limits.share and plain_name(name) not in given:
                continue  # it has a rule of its own for that
            if name.endswith("speculative-config") and values:
                values = [self._draft(json.loads(values[0]), scenario, paths=paths)]  # noqa: PLW2901
            if plain_name(name) == self.engine.draft_flags.model_flag:
                self._write_head(values[0], workings, paths=paths)
                values = [DRAFT]  # noqa: PLW2901
            words += [name, *values]
        return words, ()

    def _sayable(self, scenario: Scenario) -> Scenario:
        """Without the cache's bytes where the release has no flag for them: they are told beside."""
        line = self.engine.command
        if line is None:
            return scenario
        told = {
            name: value
            for name, value in scenario.engine_args.items()
            if plain_name(name) not in BYTES_FLAGS
            or not line.names.lacks(plain_name(name), scenario.engine_version)
        }
        return replace(scenario, engine_args=told)

    def _draft(self, config: dict[str, Any], scenario: Scenario, *, paths: bool) -> str:
        drafting = scenario.speculation
        if drafting is not None and drafting.model is not None:
            self._write(DRAFT, drafting.model, paths=paths)
            config["model"] = DRAFT
        elif drafting is not None:
            config.pop("model", None)
        return json.dumps(config)

    def _write_head(self, named: str, workings: Workings, *, paths: bool) -> None:
        """The draft model's config: its own, else that of a head like one layer of the model."""
        scenario, speculation = workings.plan.scenario, workings.deployment.speculation
        model = None if speculation is None else speculation.model
        with suppress(KvroomError):
            self._write(DRAFT, named if model is None else model, paths=paths)
            return
        assert speculation is not None
        config, _ = config_of(scenario.model, paths=paths)
        assert config is not None
        head = self.engine.draft_flags.head(speculation.method, dict(config))
        self._write(DRAFT, {"config": head}, paths=paths)

    def _write(self, folder: str, model: object, *, paths: bool) -> None:
        config, _ = config_of(model, paths=paths)
        if config is None:
            fix = "Give the model's config.json (--model PATH)."
            raise KvroomError("model", model, "has no config.json that the engine could read", fix)
        place = self.process.folder / folder
        place.mkdir(exist_ok=True)
        (place / "config.json").write_text(json.dumps(config))


def _memory(own: EngineAnswer, script: AskedScript) -> dict[str, Any]:
    """What an engine is told of its memory: the cache's bytes a stage, or what is free on its fullest rank
    before its weights are loaded and after."""
    if not script.by_free_memory:
        return {"cache_bytes": [max(0, size) for size in own.stage_bytes or (own.kv_bytes,)]}
    sizes = {each.name: each.bytes for each in own.accounts}
    beside = {"activations", "graphs", "kv", "unused"}
    before = own.gpu_bytes - sizes.get("runtime", 0)
    loaded = sum(size for name, size in sizes.items() if name not in beside | {"runtime"})
    return {"memory": {"before_load": before, "after_load": max(0, before - loaded)}}


def _with(workings: Workings, note: str) -> Workings:
    plan = workings.plan
    return replace(workings, plan=replace(plan, warnings=(note, *plan.warnings)))


def _answered(own: EngineAnswer, told: Mapping[str, Any], name: str) -> EngineAnswer:
    """kvroom's answer with the engine's own capacity, or its refusal."""
    if "error" in told:
        return replace(
            own,
            capacity=own.capacity and replace(own.capacity, max_context_tokens=None),
            starts=False,
            reason=f"{name} itself refuses: {told['message']}",
            refusals=(),
            warnings=(),
        )
    before = own.capacity or EngineCapacity()
    blocks, tokens = told["num_blocks"], told["kv_tokens"]
    concurrency = told["max_concurrency"]
    window, slots = told.get("window_tokens"), told.get("state_slots")
    same = (blocks, window, slots) == (
        before.num_blocks,
        before.window_tokens,
        before.state_slots,
    )
    if concurrency is None and same:
        concurrency = before.max_concurrency
    if concurrency is None and tokens:
        concurrency = tokens / told["max_model_len"]
    share = blocks / before.num_blocks if before.num_blocks else 1.0
    made = replace(
        before,
        num_blocks=blocks,
        block_tokens=told["block_tokens"],
        kv_tokens=tokens,
        max_concurrency=concurrency,
        max_context_tokens=before.max_context_tokens if same else None,
        low=None if before.low is None else before.low * share,
        high=None if before.high is None else before.high * share,
        max_running_requests=told["max_num_seqs"],
        window_tokens=window,
        state_slots=slots,
    )
    return replace(own, capacity=made, starts=True, reason="", refusals=(), warnings=())


def difference(own: EngineAnswer, answer: EngineAnswer, name: str) -> str:
    """In one sentence: who answered, and where kvroom's own rules say something else."""
    if not answer.starts and not own.starts:
        return f"capacity is what {name} itself says; kvroom's own rules refuse it too"
    if not answer.starts:
        return f"{answer.reason[:400]}; kvroom's own rules would start it"
    if not own.starts:
        return f"{name} itself would start; kvroom's own rules refuse: {own.reason[:300]}"
    rows = []
    for field, words in (
        ("num_blocks", "blocks"),
        ("block_tokens", "tokens a block"),
        ("kv_tokens", "tokens"),
        ("window_tokens", "tokens of windows"),
        ("state_slots", "slots of state"),
        ("max_running_requests", "requests in a step"),
    ):
        ours, theirs = getattr(own.capacity, field, None), getattr(answer.capacity, field)
        if ours != theirs and theirs is not None:
            rows.append(f"{theirs:,} {words} and not {'none' if ours is None else f'{ours:,}'}")
    said = f"capacity is what {name} itself says"
    if not rows:
        return f"{said}; kvroom's own rules say the same"
    return f"{said}: {', '.join(rows)} as by kvroom's own rules"


def card_of(deployment: Deployment) -> dict[str, Any]:
    """The card that the engine is to think it runs on."""
    device, layout = deployment.device, deployment.layout
    return {
        "vendor": device.vendor,
        "name": device.name,
        "capability": device.compute_capability or "9.0",
        "memory_bytes": deployment.known_bytes.get("visible", device.engine_bytes),
        "listed_bytes": device.driver_bytes or device.engine_bytes,
        "count": max(8, layout.tp * layout.pp * layout.dp),
        "unified": device.host_link is None,
    }


def variables_of(deployment: Deployment) -> dict[str, str]:
    """What the engine's process has in its environment beside the user's own: the variable that lets requests
    be longer than the model states, where the question has it."""
    script = script_of(engine_of(deployment.engine))
    name = script.longer_variable
    given = plain_args(deployment.args).get(name.lower()) if name else None
    return {} if given is None else {name: str(int(switch(f"engine_args.{name}", given)))}


@contextmanager
def installed(
    python: str, workings: Workings, limits: ProcessLimits | None = None
) -> Iterator[InstalledEngine]:
    """The engine of a plan, installed in the environment of ``python``, on the plan's card.

    KvroomError where that is no Python, lacks the engine, or cannot take the card.
    """
    deployment = workings.deployment
    engine = engine_of(deployment.engine)
    script = script_of(engine)
    program = python_of(python, script)
    variables = variables_of(deployment)
    with InstalledProcess(program, script, limits=limits, variables=variables) as process:
        about = process.ask("about", card=card_of(deployment))
        if about.get("error") == "missing" and not _has(program, script.package):
            fix = f"Give the Python that has it, or {script.install} there."
            raise KvroomError(FIELD, program, f"has no {script.package} installed", fix)
        if "error" in about:
            fix = "Leave --engine-python out: kvroom's own rules answer."
            why = f"cannot be asked about {deployment.device.name}: {about['message'][:300]}"
            raise KvroomError(FIELD, program, why, fix)
        yield InstalledEngine(process, engine, str(about["version"]))


@contextmanager
def asking_plans(
    python: str, limits: ProcessLimits | None = None
) -> Iterator[Callable[[Workings, bool], Workings]]:
    """What asks an installed engine about one plan after the other: one process a card and environment."""
    with ExitStack() as stack:
        engines: dict[str, InstalledEngine] = {}

        def planned(workings: Workings, paths: bool) -> Workings:
            asked = (card_of(workings.deployment), variables_of(workings.deployment))
            key = json.dumps(asked, sort_keys=True)
            if key not in engines:
                engines[key] = stack.enter_context(installed(python, workings, limits))
            return engines[key].plan(workings, paths=paths).workings

        yield planned
