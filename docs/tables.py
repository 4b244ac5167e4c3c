"""Tables of what the program itself knows, as Markdown: models, cards, Scenario keys, layer kinds."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kvroom.answer.figures import registry
from kvroom.engines.registry import all_engines
from kvroom.hardware import catalogue as cards
from kvroom.hardware.prices import lists
from kvroom.models import hf
from kvroom.scenario.scenario import Scenario
from kvroom.ui import codec, notebook
from kvroom.ui.cli.options import FLAGS
from kvroom.ui.terminal import tables
from kvroom.ui.web import page
from kvroom.ui.web.presets import REFERENCE
from kvroom.units import decimal_memory, show_count, show_gb, show_gib, show_rate, show_tokens


def table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    head = list(columns)
    lines = [head, ["---"] * len(head), *rows]
    return (
        "\n".join("| " + " | ".join(c.replace("|", r"\|") for c in r) + " |" for r in lines) + "\n"
    )


def models() -> str:
    """The catalogue's models."""
    return table(
        ("name", "parameters", "active", "a token, 16-bit", "longest", "kinds of layer"),
        (
            (
                f"`{r['name']}`",
                show_count(r["params"]),
                show_count(r["active_params"]),
                show_gib(r["bytes_per_token"]) if r["bytes_per_token"] else "-",
                show_tokens(r["max_context_tokens"]) if r["max_context_tokens"] else "-",
                ", ".join(r["kinds"]) or "-",
            )
            for r in tables.model_rows()
        ),
    )


def gpus() -> str:
    """The known cards."""
    return table(
        ("name", "sold as", "an engine sees", "source", "bandwidth"),
        (
            (
                f"`{d.name}`",
                show_gb(d.sold_bytes),
                show_gib(d.engine_bytes),
                d.engine_bytes_source.kind,
                show_rate(d.memory_bytes_per_s),
            )
            for d in cards.all_devices()
        ),
    )


def families() -> str:
    """Which ``model_type`` is read, by the module that reads it."""
    return table(
        ("module", "`model_type`"),
        (
            (
                f"`models/hf/{module}.py`",
                " ".join(f"`{word.partition('=')[0]}`" for word in kinds.split()),
            )
            for module, kinds in hf.FAMILIES.items()
        ),
    )


WITH_SECTION = ("Workload",)
"""Objects whose keys have a section of their own; the notes below the table say the others'."""


def kind_of(schema: dict[str, Any]) -> str:
    """A JSON type in words."""
    if "anyOf" in schema:
        return " or ".join(kind_of(s) for s in schema["anyOf"])
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})" if name in WITH_SECTION else "object"
    return str(schema.get("type", "any"))


def keys(name: str, within: str = "") -> str:
    """The keys of a Scenario or of its workload: type, default, flag and what the flag says."""
    flags = {key: (flag, words) for flag, key, _, words in FLAGS}
    flags |= {"model": ("MODEL", "What is served: a name, a path, or a config by value.")}
    flags |= OTHER_FLAGS
    known = codec.schema()["$defs"][name]
    rows = []
    for key, schema in known["properties"].items():
        flag, words = flags.get(within + key, ("", ""))
        default = "required" if key in known.get("required", ()) else _json(schema.get("default"))
        rows.append((f"`{key}`", kind_of(schema), default, f"`{flag}`" if flag else "", words))
    return table(("key", "type", "default", "flag", "meaning"), rows)


OTHER_FLAGS = {
    "engine_args": ("--engine-arg", "The engine's own flags, with underscores."),
    "known_bytes": ("--known-bytes", "Measured on one GPU, in place of an estimate."),
    "prices": ("--price", "A card's dollars an hour, or its terms, by its name (`*`: all)."),
    "allow_overcommit": ("--allow-overcommit", "Answer times even where it does not fit."),
    "workload": ("", "Who comes: see below. `--users` sets both concurrencies."),
    "workload.concurrency": ("--users", "Users of the closed loop, whole deployment."),
    "workload.static": ("--static", "One batch, no arrivals while it runs."),
} | {
    f"workload.{key}": ("--workload", words)
    for key, words in {
        "arrivals": "When sessions come: `poisson:2/s`, `closed:32` …",
        "input": "Tokens that a user adds in a turn: a distribution.",
        "output": "Tokens of an answer: a distribution.",
        "prefix": "System prompts: `shared:4x512` …",
        "turns": "Turns of a session.",
        "think": "From an answer to the next turn: `15s` …",
        "agent": "Model calls of a turn.",
        "tool": "How long a tool runs between two calls.",
        "result": "Tokens that a tool's result adds.",
        "first": "Tokens of a session's first turn, in place of `input`: a distribution.",
        "subagents": "Sub-agents that a turn forks on average: `0.2` …",
        "compact": "From which length a context is compacted, and to what share: `190K:0.2` …",
        "start": "How users of a closed loop begin: `together` (as benchmarks do) or `spread`.",
        "requests": "How many calls in all.",
        "seed": "Which of all such workloads.",
    }.items()
}
"""Flags that ``FLAGS`` does not hold, because they take several values or none."""


def figures() -> str:
    """The keys of a Plan and what each means, as the registry of figures says."""
    known = [f for f in registry().values() if f.meaning and not f.key.startswith("scenario.")]
    parts = []
    for group in dict.fromkeys(f.key.partition(".")[0] for f in known):
        rows = ((f"`{f.key}`", f.meaning) for f in known if f.key.partition(".")[0] == group)
        parts.append(f"### {group}\n\n{table(('key', 'meaning'), rows)}")
    return "\n".join(parts)


def _json(value: Any) -> str:
    return f"`{codec.encode(value)}`"


def engines() -> str:
    """What is known of each engine: its releases, and which of its own rules are modelled."""
    return table(
        (
            "engine",
            "`--engine`",
            "releases with rules of their own",
            "memory",
            "scheduler",
            "start rules",
            "commands",
            "logs",
            "metrics",
        ),
        (
            (
                engine.label,
                f"`{engine.name}`",
                f"{len(engine.releases)}: {engine.releases[-1]} to {engine.releases[0]}"
                if engine.releases
                else "-",
                "arithmetic alone"
                if engine.ceiling
                else "its own rules"
                if engine.releases
                else "as its relatives"
                if engine.command
                else "a share, estimated",
                "its own" if engine.scheduler_rules is not None and engine.releases else "vLLM's",
                str(len(engine.start_rules)) if engine.start_rules else "-",
                "written, read" if engine.command else "-",
                "read" if engine.log else "-",
                "read" if engine.metrics else "-",
            )
            for engine in all_engines()
        ),
    )


def prices() -> str:
    """The price lists: a row a card, a column a kind of terms."""
    kinds = lists()["kinds"]
    cards = list(dict.fromkeys(card for sheet in kinds.values() for card in sheet["usd_per_hour"]))
    told = "".join(
        f"- `{kind}`: {sheet['terms']}; {sheet['source']} ({sheet['read']}), {sheet['date']}, "
        f"{sheet['currency']}\n"
        for kind, sheet in kinds.items()
    )
    rows = (
        (
            f"`{card}`",
            *(
                f"{usd:.2f}" if (usd := sheet["usd_per_hour"].get(card)) else "-"
                for sheet in kinds.values()
            ),
        )
        for card in sorted(cards)
    )
    return told + "\n" + table(("card", *(f"`{kind}`" for kind in kinds)), rows)


def write(folder: Path) -> None:
    """One file a table."""
    folder.mkdir(exist_ok=True)
    for name, text in (
        ("models", models()),
        ("gpus", gpus()),
        ("families", families()),
        ("scenario", keys("Scenario")),
        ("workload", keys("Workload", "workload.")),
        ("figures", figures()),
        ("engines", engines()),
        ("prices", prices()),
    ):
        (folder / f"{name}.md").write_text(text, "utf-8")


def write_figures(folder: Path) -> None:
    """The page's own figures, with the answer that they draw in the documentation."""
    with decimal_memory():
        answer = codec.encode(page.answer(Scenario.from_dict(REFERENCE.scenario)))
    show = """
for (const el of document.querySelectorAll(".kvroom-figures")) {
  const theme = document.body.dataset.theme;
  if (theme === "light" || theme === "dark") el.dataset.theme = theme;
  const told = { answer: ANSWER, elements: el.dataset.figures.split(" ") };
  render({ model: { get: (key) => told[key], on() {}, off() {}, send() {} }, el });
}
"""
    script = f"{notebook.script()}\nconst ANSWER = {answer};\n{show}"
    (folder / "figures.js").write_text(script, "utf-8")
    (folder / "figures.css").write_text(notebook.sheet(), "utf-8")
