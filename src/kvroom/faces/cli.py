"""The command line: thin shells round the same calls that the page and the Python API make."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import IO, Any

import click

from kvroom import __version__
from kvroom.answer import Plan
from kvroom.errors import KvroomError
from kvroom.faces import codec
from kvroom.faces.options import scenario_from, scenario_options
from kvroom.faces.plain import ascii_only, colour, spell_out
from kvroom.planning import plan as make_plan
from kvroom.planning import work
from kvroom.scenario import Scenario

BAD_QUESTION, WOULD_NOT_START = 2, 3


def answers_errors(command: Callable[..., Any]) -> Callable[..., Any]:
    """One sentence and exit status 2 for a bad question; in JSON mode the ``error`` object."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except KvroomError as e:
            refuse(e, as_json=bool(kwargs.get("as_json")))
        except RecursionError:
            refuse(
                KvroomError("input", "…", "is nested too deeply", "Give a plain one."),
                as_json=bool(kwargs.get("as_json")),
            )

    return run


def say(value: Any, *, pretty: bool = True) -> None:
    """Print ``value`` as JSON."""
    click.echo(codec.encode(value, pretty=pretty, ascii_only=ascii_only()))


def refuse(error: KvroomError, *, as_json: bool) -> None:
    """Say what is wrong and end with exit status 2."""
    if as_json:
        say({"error": error.as_dict()}, pretty=False)
    else:
        click.echo(f"kvroom: {error}", err=True)
    sys.exit(BAD_QUESTION)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


class Commands(click.Group):
    """The commands, on any terminal."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Spell signs out where a terminal shows ASCII only, then run as any group does."""
        spell_out()
        return super().main(*args, **kwargs)


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
    epilog="Example: kvroom plan llama-3-70b --gpu 80GB:4 --context 32K --engine arithmetic",
)
@click.version_option(__version__, prog_name="kvroom")
@click.pass_context
def main(context: click.Context) -> None:
    """Where every byte of a served language model goes, and how many requests have room.

    You are not renting the weights, you are renting the cache.
    """
    context.color = colour()


@main.command(
    epilog="Example: kvroom plan llama-3-70b --gpu H100-SXM:4 --context 32K --kv-dtype fp8"
)
@scenario_options
@click.option("--jsonl", metavar="FILE", help="A Scenario a line in, a Plan a line out (-: stdin).")
@click.option(
    "--explain", "explained", is_flag=True, help="Show every figure's formula and numbers."
)
@click.option("--link", "as_link", is_flag=True, help="Print the page's address for this question.")
@click.option("--strict", is_flag=True, help="Exit with 3 where the engine's own start would fail.")
@json_option
@answers_errors
def plan(
    *, jsonl: str | None, explained: bool, as_link: bool, strict: bool, as_json: bool, **given: Any
) -> None:
    """Where every byte goes, how many requests fit, what a step moves.

    MODEL is a catalogue name or hub id, a config.json or a folder with one, a .gguf file, a
    safetensors index, or a link from the page. Sizes: 80GB is decimal, 80GiB binary; tokens: 8K is
    8,192.
    """
    if jsonl is not None:
        sys.exit(0 if plan_lines(jsonl) else 1)
    scenario = scenario_from(given)
    if as_link:
        click.echo(scenario.link())
        return
    made = work(scenario)
    if as_json:
        answer: Any = made.plan
        if explained:
            from kvroom.explaining import explain

            answer = {**made.plan.to_dict(), "explanations": explain(made)}
        say(answer)
    else:
        from kvroom.faces import text

        click.echo(text.show(made))
        if explained:
            from kvroom.explaining import explain

            click.echo("\n" + text.show_explanations(explain(made)))
    if strict and not made.answer.starts:
        sys.exit(WOULD_NOT_START)


def plan_lines(path: str) -> bool:
    """Answer a Scenario a line; True where none of them failed."""
    good = True
    with _opened(path) as file:
        for line in whole_lines(file):
            if not line.strip():
                continue
            answer = plan_line(line)
            good = good and isinstance(answer, Plan)
            say(answer, pretty=False)
    return good


def whole_lines(file: IO[bytes]) -> Iterator[bytes]:
    """Every line; of one longer than any Scenario only so much that it is refused for its length."""
    limit = codec.MAX_SCENARIO_BYTES + 1
    while line := file.readline(limit):
        yield line
        while len(line) == limit and not line.endswith(b"\n"):
            line = file.readline(limit)


def plan_line(line: bytes) -> Plan | dict[str, Any]:
    """The Plan of one line, or its ``error`` object."""
    try:
        return make_plan(Scenario.from_dict(codec.decode(line)))
    except KvroomError as e:
        return {"error": e.as_dict()}
    except RecursionError:
        deep = KvroomError("scenario", "…", "is nested too deeply", "Give a plain one.")
        return {"error": deep.as_dict()}


def _opened(path: str) -> IO[bytes]:
    if path == "-":
        return click.open_file("-", "rb")
    try:
        return open(path, "rb")  # noqa: PTH123
    except (OSError, ValueError):
        fix = "Give a file with one Scenario a line, or - for standard input."
        raise KvroomError("--jsonl", path, "cannot be opened", fix) from None


@main.command(epilog="Example: kvroom compare bf16.json fp8.json")
@click.argument("questions", metavar="A B [C …]", nargs=-1)
@json_option
@answers_errors
def compare(questions: tuple[str, ...], as_json: bool) -> None:
    """Scenario files or links, side by side."""
    if len(questions) < 2:
        fix = "Give two or more Scenario files (JSON) or links."
        raise KvroomError("compare", len(questions), "is too few to compare", fix)
    plans = [make_plan(question(q)) for q in questions]
    if as_json:
        say({"plans": plans})
        return
    from kvroom.faces import tables

    tables.compare(plans)


def question(text: str) -> Scenario:
    """The Scenario of a file or of a link."""
    if "#s=" in text or text.startswith(("http://", "https://")):
        return Scenario.from_link(text)
    return Scenario.from_dict(codec.read_json(text, "compare"))


@main.command(
    epilog="Example: kvroom simulate llama-3-70b --gpu H100-SXM:4 "
    "--workload arrivals=poisson:2/s,input=1000,output=200,requests=2000"
)
@scenario_options
@click.option("--trace", metavar="FILE", help="The requests: a trace of any known format.")
@click.option("--hash-tokens", metavar="TOKENS", help="Tokens of a trace's hash id.")
@click.option("--skip-bad-lines", is_flag=True, help="Pass over wrong lines and count them.")
@click.option("--seed", metavar="NUMBER", help="Draw the workload anew.")
@click.option("--seeds", metavar="COUNT", help="Draw it so many times: bands over seeds.")
@click.option("--slo", metavar="SLO", help="What is wanted: ttft_p95=2s,tpot_p95=50ms.")
@click.option("--per-request", metavar="OUT", help="Write one line a request (.jsonl, .parquet).")
@click.option("--cliff", metavar="KEY=FROM..TO", help="Sweep rate or kv_blocks; where p99 breaks.")
@click.option(
    "--describe",
    "describe_only",
    is_flag=True,
    help="Tell what the requests are like, and no more.",
)
@click.option(
    "--script", "script_file", metavar="FILE", help="Play an engine and requests (-: stdin)."
)
@json_option
@answers_errors
def simulate(as_json: bool, script_file: str | None, **given: Any) -> None:
    """What happens when requests come: waits, speeds, cache hits, preemptions.

    The requests of a trace or of a made-up workload are served by the engine's own scheduling rules, on
    the blocks and step times of the plan. A script is played against the rules alone, clocked
    in engine steps.
    """
    from kvroom.faces import simulate as face

    if script_file is not None:
        face.script(script_file, as_json=as_json)
    else:
        face.run(as_json=as_json, **given)


@main.command(epilog="Example: kvroom models gemma-3-27b")
@click.argument("name", metavar="[NAME]", required=False)
@json_option
@answers_errors
def models(name: str | None, as_json: bool) -> None:
    """The models known by name; with NAME its layers and where its numbers come from.

    NAME may be all that plan takes: a catalogue name, a config.json, a GGUF file …
    """
    from kvroom.faces import tables

    if name is None:
        rows = tables.model_rows()
        if as_json:
            say({"models": rows})
        else:
            tables.models(rows)
        return
    card = tables.model_card(name)
    if as_json:
        say(card)
    else:
        tables.model(card)


@main.command(epilog="Example: kvroom gpus H100-SXM")
@click.argument("name", metavar="[NAME]", required=False)
@json_option
@answers_errors
def gpus(name: str | None, as_json: bool) -> None:
    """The accelerators known by name; with NAME every figure and its source."""
    from kvroom.faces import tables
    from kvroom.machines import catalogue
    from kvroom.machines.reader import resolve

    if name is not None:
        device = resolve(name)
        if as_json:
            say(device.to_dict())
        else:
            tables.gpu(device)
        return
    devices = catalogue.all_devices()
    if as_json:
        say({"gpus": [d.to_dict() for d in devices]})
    else:
        tables.gpus(devices)


@main.command(epilog="Example: kvroom reuse trace.jsonl.gz --policy lru --capacity 10000,100000")
@click.argument("trace", metavar="TRACE", required=False)
@click.option("--workload", metavar="SPEC", help="A made-up workload in place of TRACE.")
@click.option(
    "--block-tokens", metavar="TOKENS", help="A block's size (default: a hash id's, or 16)."
)
@click.option(
    "--hash-tokens", metavar="TOKENS", help="Tokens of a hash id (default: told from lengths)."
)
@click.option(
    "--policy", "policies", multiple=True, help="lru, lru-tail, fifo, lfu, belady (repeatable)."
)
@click.option("--capacity", metavar="A,B,…", help="Cache sizes in blocks.")
@click.option("--model", metavar="MODEL", help="Tell sizes in bytes of this model's cache.")
@click.option(
    "--kv-dtype", metavar="DTYPE", default="auto", help="Its cache's width (default: auto)."
)
@click.option("--hbm", metavar="SIZE", help="Room for prefixes in GPU memory.")
@click.option("--host", metavar="SIZE", help="Room for prefixes in host memory.")
@click.option("--nvme", metavar="SIZE", help="Room for prefixes on NVMe.")
@click.option("--skip-bad-lines", is_flag=True, help="Pass over wrong lines and count them.")
@json_option
@answers_errors
def reuse(as_json: bool, **given: Any) -> None:
    """How much of a trace's prefix could be reused at any cache size.

    TRACE is Mooncake, Qwen-Bailian or token-id JSONL, or Azure or BurstGPT CSV; it may be gzipped.
    """
    from kvroom.faces import reuse as face

    asked = face.ask(**given)
    click.echo(codec.encode(asked.to_dict(), pretty=True) if as_json else face.show(asked))


@main.command(epilog="Example: kvroom schema > kvroom.schema.json")
@click.option("--json", "as_json", is_flag=True, help="JSON, as it is anyway.")
@answers_errors
def schema(as_json: bool) -> None:
    """The JSON schema of Scenario and Plan."""
    say(codec.schema())


def shown(names: Iterable[str]) -> str:
    """Names in one line."""
    return ", ".join(names)


if __name__ == "__main__":
    main()
