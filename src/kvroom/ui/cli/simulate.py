"""``kvroom simulate``."""

from __future__ import annotations

from typing import Any

import click

from kvroom.ui.cli.options import scenario_options
from kvroom.ui.cli.shell import answers_errors, json_option


@click.command(
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
@click.option(
    "--splits", is_flag=True, help="Try every prefill:decode split of --disaggregation's GPUs."
)
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
    from kvroom.ui.terminal import simulate as face

    if script_file is not None:
        face.script(script_file, as_json=as_json)
    else:
        face.run(as_json=as_json, **given)
