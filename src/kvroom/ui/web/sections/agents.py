"""How many agents the deployment holds: ``kvroom agents --json`` of the page's question, for one draw.

The deployment as asked, and the changes that are named. Each number is found by simulation, which takes its
time: lines tell how far it is.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kvroom import api
from kvroom.errors import KvroomError
from kvroom.scenario.command_line import command
from kvroom.scenario.scenario import Scenario
from kvroom.scenario.values import check_keys
from kvroom.scenario.workload import Workload
from kvroom.simulator.timeline import Moment
from kvroom.ui.web.questions import Gone, Listener, cpu_time
from kvroom.ui.web.replays import spec_of
from kvroom.units import check_int
from kvroom.workloads.synthetic import of_workload

MOST_AGENTS, MOST_CHANGES = 1000, 4
MOST_CPU_S = 900.0 if cpu_time is time.perf_counter else 90.0
"""A job that has taken so much of a processor is ended; in a browser it is the reader's own."""
TOLD_EVERY_S = 0.2
KEYS = ("scenario", "slo", "changes")


def answer(given: Any, listener: Listener) -> None:
    """Answer one body of ``POST /api/agents`` in lines; KvroomError where its workload has no sessions, or
    takes too long."""
    scenario, changes, slo = _question(given)
    line = _command(scenario, slo, changes)
    listener.heading = {"kind": "asked", "command": line}
    end, due = cpu_time() + MOST_CPU_S, cpu_time()
    done = before = 0
    cut = False

    def watch(now: Moment) -> bool:
        nonlocal due, done, before, cut
        before, done = (before + done, now.done) if now.done < done else (before, now.done)
        if cpu_time() >= due:
            due = cpu_time() + TOLD_EVERY_S
            listener.say({"kind": "progress", "done": before + done})
        cut = cut or cpu_time() > end
        return cut or listener.gone()

    found = api.agents(
        spec_of(scenario.workload or Workload()),
        replace(scenario, workload=None),
        slo=slo,
        seeds=1,
        only=changes,
        most=MOST_AGENTS,
        watch=watch,
        paths=False,
        hub=False,
    )
    if listener.gone():
        raise Gone
    if cut:
        fix = f"Ask for shorter sessions or fewer changes; no such limit has: {line}"
        raise KvroomError("workload", None, "takes longer than a page may", fix)
    listener.say({"kind": "answer", "answer": found.to_dict(), "command": line})


def _question(given: Any) -> tuple[Scenario, tuple[str, ...], str]:
    if not isinstance(given, Mapping) or not isinstance(given.get("scenario"), Mapping):
        raise KvroomError("scenario", None, "is missing", 'Send {"scenario": {…}}.')
    check_keys("body", given, KEYS)
    scenario = Scenario.from_dict(dict(given["scenario"]))
    users = of_workload(scenario.workload).users if scenario.workload else None
    if not users:
        fix = 'Give "workload": {"agents": 40}.'
        raise KvroomError("workload.agents", None, "is missing: no sessions to hold", fix)
    check_int("workload.agents", users, low=1, high=MOST_AGENTS)
    changes = given.get("changes") or []
    if not isinstance(changes, list) or len(changes) > MOST_CHANGES:
        fix = f'Name at most {MOST_CHANGES}, such as ["host"].'
        raise KvroomError("changes", None, "is no short list of changes", fix)
    return scenario, tuple(map(str, changes)), str(given.get("slo") or "")


def _command(scenario: Scenario, slo: str, changes: tuple[str, ...]) -> str:
    """The command line of the same, with as many draws as it takes by itself."""
    words = shlex.split(command(replace(scenario, workload=None)))
    more = ["--slo", slo] if slo else []
    more += ["--changes", ",".join(changes) or "none"]
    words[1:2] = ["agents", spec_of(scenario.workload or Workload())]
    return shlex.join([*words, *more])
