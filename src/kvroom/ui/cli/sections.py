"""Help in sections: which flags go together, on every command that takes a question."""

from __future__ import annotations

import click

SECTIONS: dict[str, tuple[str, ...]] = {
    "Model": (
        "--model", "--weight-dtype", "--kv-dtype", "--context", "--encoder-tokens", "--speculation",
    ),
    "Machine": (
        "--gpu", "--gpu-count", "--host-memory", "--tier", "--tiers", "--hbm", "--host", "--nvme",
        "--known-bytes", "--calibration", "--price", "--memory",
    ),
    "Layout": (
        "--tp", "--pp", "--dp", "--ep", "--dcp", "--replicas", "--routing", "--fleet", "--disaggregation",
    ),
    "Engine": (
        "--engine", "--engine-version", "--engine-arg", "--engine-python", "--scheduler",
        "--recipe", "--from-command", "--set",
    ),
    "Who comes": (
        "--users", "--rate", "--concurrency", "--input-tokens", "--output-tokens",
        "--shared-prefix-tokens", "--lengths", "--static", "--start", "--workload", "--trace",
        "--sessions", "--recorded-times", "--hash-tokens", "--skip-bad-lines", "--columns", "--tokenizer",
    ),
    "What is wanted": ("--slo", "--expect", "--by", "--per", "--allow-overcommit", "--strict"),
    "What to choose from": (
        "--gpus", "--counts", "--engines", "--weight-dtypes", "--kv-dtypes", "--budgets", "--shares",
        "--sequences", "--drafts", "--offload", "--no-pools", "--max-gpus", "--together", "--changes",
        "--most",
    ),
    "The run": (
        "--simulate", "--seed", "--seeds", "--warmup", "--splits", "--cliff", "--scale-to", "--day",
        "--script", "--journal", "--cluster", "--sweep", "--policy", "--block-tokens", "--capacity",
        "--interval", "--count", "--window", "--timeout",
    ),
    "Questions from files": ("--scenario", "--jsonl"),
}  # fmt: skip
"""Flags by what they are about, in this order; what is named nowhere is about the output."""
OUTPUT = "Output"
MANY = 8
"""A command with fewer flags than this has one list of them."""


class Sectioned(click.Command):
    """A command whose ``--help`` lists its flags in sections."""

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections that the command has flags of."""
        records = {
            parameter.opts[-1]: record
            for parameter in self.get_params(context)
            if isinstance(parameter, click.Option)
            and (record := parameter.get_help_record(context)) is not None
        }
        if len(records) < MANY:
            super().format_options(context, formatter)
            return
        known = [flag for flags in SECTIONS.values() for flag in flags]
        rest = tuple(flag for flag in records if flag not in known)
        for name, flags in {**SECTIONS, OUTPUT: rest}.items():
            rows = [records[flag] for flag in flags if flag in records]
            if rows:
                with formatter.section(name):
                    formatter.write_dl(rows)
