"""What the page replays: small workloads on a pool small enough to draw, made of the page's question.

The pool is vLLM's, given as many blocks as the slider says. Requests come as fast as fills the middle of
the slider's blocks, so that the cliff is in sight on any model and card. The page lists them as it starts, so
what plays them is imported where one is asked for.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import field, replace
from math import ceil
from typing import TYPE_CHECKING, Any

from kvroom import api
from kvroom.engines import served_by
from kvroom.engines.registry import engine_of
from kvroom.errors import KvroomError, did_you_mean
from kvroom.latency.clock import PS_PER_S, step_clock
from kvroom.planner.place import lengthened
from kvroom.planner.plan import Workings
from kvroom.records import dataclass
from kvroom.scenario.command_line import command
from kvroom.scenario.engine_names import DEFAULT_ENGINE
from kvroom.scenario.scenario import Scenario
from kvroom.scenario.workload import Workload
from kvroom.units import ceil_div, check_int

if TYPE_CHECKING:
    from kvroom.kvcache.prefix_cache import PrefixCache

CONTEXT_TOKENS = 2048
MOST_DRAWN = 4096
"""Blocks that are drawn one by one."""
EASY = 8
"""The slider's largest pool is so many times its smallest."""
KNOWN_CARD = "H100-SXM"
"""Plays where the page's card does not say how fast it computes."""
FROM_QUESTION = (
    "model", "gpu", "gpu_count", "tp", "pp", "dp", "ep", "dcp", "weight_dtype", "kv_dtype",
    "calibration",
)  # fmt: skip
"""Keys of the page's question that a replay keeps."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Story:
    """Requests worth watching: ``input_tokens`` and ``output_tokens`` are typical of one (of what it shares
    with others nothing is counted), ``calls`` come of each arrival, ``workload`` holds the keys of a
    made-up workload but for its rate."""

    id: str
    label: str
    says: str
    input_tokens: int
    output_tokens: int
    calls: int = 1
    arrivals: str = "poisson:{rate}/s"
    workload: Mapping[str, Any] = field(hash=False)


STORIES = (
    Story(
        id="prompt",
        label="A long prompt in common",
        says="Every question begins with one of two system prompts. Their blocks are kept once for all.",
        input_tokens=140,
        output_tokens=100,
        workload={
            "prefix": "shared:2x512",
            "input": "lognormal:mean=100:sigma=0.5",
            "output": "lognormal:mean=100:sigma=0.4",
            "requests": 96,
        },
    ),
    Story(
        id="chat",
        label="Questions, each alone",
        says="Nobody shares anything. While all fit, nobody waits.",
        input_tokens=250,
        output_tokens=120,
        workload={
            "input": "lognormal:mean=250:sigma=0.6",
            "output": "lognormal:mean=120:sigma=0.5",
            "requests": 96,
        },
    ),
    Story(
        id="turns",
        label="Conversations",
        says="Each turn brings along all that was said. Blocks of people who think stay until others need"
        " the room.",
        input_tokens=420,
        output_tokens=90,
        calls=4,
        workload={
            "turns": "4",
            "think": "3s",
            "input": "lognormal:mean=120:sigma=0.5",
            "output": "lognormal:mean=90:sigma=0.4",
            "requests": 96,
        },
    ),
    Story(
        id="bursts",
        label="Everybody at once",
        says="The same questions in bursts of sixteen: the average has room, the burst has not.",
        input_tokens=250,
        output_tokens=120,
        arrivals="burst:{rate}/s:size=16",
        workload={
            "input": "lognormal:mean=250:sigma=0.6",
            "output": "lognormal:mean=120:sigma=0.5",
            "requests": 96,
        },
    ),
)
TRACE = "trace"
"""The story of a file that was dropped in."""

BESIDE = (
    ("", "nothing", "seed {seed}"),
    ("seed", "the same with another seed", "seed {seed}"),
    ("fewer", "the same on fewer blocks", "fewer blocks"),
    ("more", "the same on more blocks", "more blocks"),
    ("uncached", "the same without prefix caching", "no prefix caching"),
)
"""What a second run may differ in: its id, how it is offered, how it is headed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Replay:
    """A replay as it is asked: ``scenario`` with everything in it, ``name`` what tells it from another beside
    it, ``steps`` the sizes of the pool that
    the slider has, ``notes`` what had to be taken otherwise than the page's question says."""

    scenario: Scenario
    name: str
    says: str
    blocks: int
    steps: tuple[int, ...]
    notes: tuple[str, ...]

    @property
    def cliff(self) -> str:
        """The cliff over the slider's sizes."""
        return f"kv_blocks={self.steps[0]}..{self.steps[-1]}"


def catalogue() -> dict[str, Any]:
    """The stories and what may stand beside them, for the page."""
    return {
        "stories": [
            {"id": story.id, "label": story.label, "says": story.says} for story in STORIES
        ],
        "beside": [{"id": i, "label": label} for i, label, _ in BESIDE],
        "keys": [*FROM_QUESTION, "engine", "engine_version", "engine_args"],
    }


def replay(given: Mapping[str, Any], asked: Mapping[str, Any], lengths: Lengths | None) -> Replay:
    """The replay that ``asked`` (story, blocks, seed, beside) makes of the question ``given``.

    ``lengths`` are those of a trace, which then brings the requests. KvroomError where the deployment
    would not start or no step can be timed.
    """
    story = _one(
        "replay.story", asked.get("story", STORIES[0].id), [story.id for story in STORIES] + [TRACE]
    )
    beside = _one("replay.beside", asked.get("beside") or "", [i for i, _, _ in BESIDE])
    seed = check_int("replay.seed", asked.get("seed", 0), low=0, high=2**53)
    if (story == TRACE) != (lengths is not None):
        fix = "Send a trace with the story 'trace', and with no other."
        raise KvroomError("replay.story", story, "and the trace do not go together", fix)
    base, notes = _base(given, lengths)
    workings = api.workings(base, paths=False, hub=False)
    typical = _typical(story) if lengths is None else lengths
    steps, rate = _sizes(workings, typical)
    blocks = steps[len(steps) // 2] if asked.get("blocks") is None else asked["blocks"]
    check_int("replay.blocks", blocks, low=1, high=MOST_DRAWN, unit="blocks")
    at = min(range(len(steps)), key=lambda i: abs(steps[i] - blocks))
    match beside:
        case "seed":
            seed += 1
        case "fewer":
            blocks = steps[max(0, at - 2)]
        case "more":
            blocks = steps[min(len(steps) - 1, at + 2)]
    args = {**base.engine_args, "num_gpu_blocks_override": blocks + 1}
    if any(kind.recurrent for kind, _ in workings.deployment.model.stores):
        # An engine refuses to start with more sequences than blocks that hold their states.
        args["max_num_seqs"] = steps[0]
    if beside == "uncached":
        args["enable_prefix_caching"] = False
    keys = {**base.differences(), "engine_args": args}
    says = "The requests of the trace that was sent."
    if lengths is None:
        chosen = next(one_story for one_story in STORIES if one_story.id == story)
        says = chosen.says
        arrivals = chosen.arrivals.format(rate=f"{rate / chosen.calls:.2g}")
        keys["workload"] = {"arrivals": arrivals, **chosen.workload, "seed": seed}
    return Replay(
        scenario=Scenario.from_dict(keys),
        name=next(name for i, _, name in BESIDE if i == beside).format(seed=seed),
        says=says,
        blocks=blocks,
        steps=steps,
        notes=notes,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Lengths:
    """Of the requests of a trace: the longest in all, a typical prompt and answer."""

    longest_tokens: int
    input_tokens: int
    output_tokens: int


def _typical(story: str) -> Lengths:
    chosen = next(one_story for one_story in STORIES if one_story.id == story)
    return Lengths(
        longest_tokens=CONTEXT_TOKENS,
        input_tokens=chosen.input_tokens,
        output_tokens=chosen.output_tokens,
    )


def _one(name: str, value: Any, known: list[str]) -> str:
    if value not in known:
        fix = did_you_mean(str(value), known, f"One of: {', '.join(k for k in known if k)}.")
        raise KvroomError(name, value, "is none that there is", fix)
    return str(value)


def _base(given: Mapping[str, Any], lengths: Lengths | None) -> tuple[Scenario, tuple[str, ...]]:
    """The page's question as vLLM would serve it, short requests only."""
    scenario = Scenario.from_dict(given)
    kept = {key: value for key, value in scenario.differences().items() if key in FROM_QUESTION}
    notes: list[str] = []
    if scenario.engine == DEFAULT_ENGINE:
        kept |= {"engine_version": scenario.engine_version, "engine_args": scenario.engine_args}
    else:
        notes.append(
            f"played by {engine_of(DEFAULT_ENGINE).label}'s rules in place of {scenario.engine}'s"
        )
    longest = lengths.longest_tokens if lengths else CONTEXT_TOKENS
    tokens = ceil_div(longest, 1024) * 1024
    base = Scenario.from_dict({**kept, "engine": DEFAULT_ENGINE, "context_tokens": tokens})
    base = lengthened(base, paths=False)
    if api.workings(base, paths=False, hub=False).timing is None:
        name = (
            scenario.gpu if isinstance(scenario.gpu, str) else scenario.gpu.get("name", "this card")
        )
        notes.append(f"step times of {KNOWN_CARD}, as {name} does not say how fast it computes")
        base = replace(base, gpu=KNOWN_CARD)
    return base, tuple(notes)


def _sizes(workings: Workings, typical: Lengths) -> tuple[tuple[int, ...], float]:
    """The slider's sizes in blocks, and the rate in requests a second that fills the middle one."""
    from kvroom.optimize.cliff import CliffRange

    rules = served_by(workings.deployment, workings.answer)
    if workings.timing is None:
        fix = "Choose a card of the catalogue."
        raise KvroomError("gpu", workings.deployment.device.name, "has no known times", fix)
    cache = rules.setup.scheduler().cache
    most = _blocks(cache, workings.deployment.context_tokens)
    held = workings.answer.capacity.max_concurrency if workings.answer.capacity else None
    if held:
        most = max(most, ceil(rules.setup.num_gpu_blocks / held))  # what the engine starts with
    low = most + ceil_div(most, 16)
    if low > MOST_DRAWN:
        tokens = workings.deployment.context_tokens
        why = f"blocks, which a request of {tokens:,} tokens needs, are too many to draw"
        fix = f"Up to {MOST_DRAWN:,} are drawn: take shorter requests, or kvroom simulate --trace."
        raise KvroomError("trace", low, why, fix)
    values = CliffRange("kv_blocks", float(low), float(min(low * EASY, MOST_DRAWN))).values
    steps = tuple(sorted({int(value) for value in values}))
    middle = steps[len(steps) // 2]
    tokens = typical.input_tokens + typical.output_tokens // 2
    at_once = max(1, middle // max(1, _blocks(cache, tokens)))
    clock = step_clock(workings.timing.clock)
    spent = clock.ps([(tokens, 1)] * at_once) * typical.output_tokens
    spent += clock.ps([(0, typical.input_tokens)])
    return steps, at_once * PS_PER_S / spent


def _blocks(cache: PrefixCache, tokens: int) -> int:
    """Blocks that a request of ``tokens`` tokens is let in with."""
    from kvroom.kvcache.request import ServedRequest

    one = ServedRequest(0, 0, tokens, 1)
    cache.enter(one)
    return sum(group.need(one, tokens, (), 0, capped=True) for group in cache.groups)


def command_of(scenario: Scenario, *more: str) -> str:
    """The command line that simulates ``scenario``."""
    keys = scenario.differences()
    keys.pop("workload", None)
    words = shlex.split(command(Scenario.from_dict(keys)))
    if words[2].startswith("http"):
        return shlex.join(["kvroom", "simulate", scenario.link(), *more])
    words[1] = "simulate"
    if scenario.workload is not None:
        words += ["--workload", spec_of(scenario.workload)]
    return shlex.join([*words, *more])


def spec_of(workload: Workload) -> str:
    """A made-up workload as the line of ``--workload``."""
    words = ((key, getattr(workload, key)) for key in Workload.SPEC_KEYS)
    return ",".join(f"{key}={value}" for key, value in words if value is not None)
