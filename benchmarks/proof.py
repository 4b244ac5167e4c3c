"""A real vLLM on this machine's CPU against what kvroom says of it: ``make proof``.

Probes the cores that the engine will have, starts it twice on a model of random weights (0.5 GB), once
with room and once with a cache too small for what comes, asks both (``kvroom prove``), and writes the
report as HTML and text, the record beside it. Times, of a machine that others use too, are printed; the
exit status says whether what must come out exactly did:

    0   blocks of both caches, and hits of requests one by one, were measured and are as predicted
    1   one of them is not
    2   there is nothing to judge: the engine or the probe failed, or the record is none
    124, 143   it was ended before it was done, by its time limit (PROOF_S) or otherwise; so was the engine

(make itself answers 2 for all but 0, and prints the number.)

    python benchmarks/proof.py OUT [--judge]

``--judge`` reads OUT/record.json and judges it anew, without an engine.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import click

from engine import models, server
from kvroom.errors import KvroomError
from kvroom.observe.prove import session
from kvroom.observe.prove.proof import Proof
from kvroom.scenario.scenario import Scenario
from kvroom.ui import codec, proof_page
from kvroom.ui.terminal import prove

MODEL = {
    **models.LLAMA,
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 16,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "vocab_size": 8192,
}
BLOCK = 32
RATES = ("memory_bytes", "memory_bytes_per_s", "flops_per_s")
NOT_MEASURED = 2
ENGINES: tuple[tuple[str, tuple[str, ...], dict[str, Any]], ...] = (
    (
        "Room enough",
        ("steps", "firsts", "conversations"),
        {"max_model_len": 4096, "block_size": BLOCK, "kv_cache_memory_bytes": 2**30},
    ),
    (
        "A cache too small",
        ("conversations", "pressure"),
        {
            "max_model_len": 1024,
            "block_size": BLOCK,
            "kv_cache_memory_bytes": 2**28,
            "num_gpu_blocks_override": 64,
        },
    ),
)


def cores() -> str:
    """The cores that the engine gets: all but one, which serves HTTP and asks."""
    mine = sorted(os.sched_getaffinity(0))
    return ",".join(map(str, mine[:-1] or mine))


def probe(room: Path, on: str) -> dict[str, Any]:
    """The machine file of the cores ``on``, as engine and probe share torch."""
    out = room / "machine.json"
    command = ["taskset", "-c", on, sys.executable, "-m", "kvroom.ui.cli.main", "probe"]
    command += ["--no-disk", "--gpu-python", server.PYTHON, "--out", str(out)]
    run = subprocess.run(command, check=False, capture_output=True, text=True)
    print(run.stdout, flush=True)
    if run.returncode:
        raise KvroomError("probe", None, f"failed: {run.stderr.strip()}", "Free memory, or cores.")
    machine = json.loads(out.read_text())
    missing = [key for key in RATES if key not in machine]
    if missing:
        fix = "Look above for why; KVROOM_ENGINE must name a Python that has torch."
        raise KvroomError("probe", ", ".join(missing), "was not measured", fix)
    sets = set(Path("/proc/cpuinfo").read_text().split())
    features = [f for f in ("amx_tile", "avx512_bf16") if f in sets]
    return {
        **{k: machine[k] for k in ("name", "vendor", *RATES)},
        "compute_capability": " ".join(features) or "none",
    }


def ask(room: Path, machine: dict[str, Any], on: str, record: Path) -> None:
    """Ask both engines; the record is written after each."""
    runs: list[dict[str, Any]] = []
    for title, parts, args in ENGINES:
        scenario = Scenario.from_dict(
            {
                "model": {"config": MODEL},
                "gpu": machine,
                "engine": "vllm",
                "engine_version": server.RELEASE,
                "engine_args": args,
            }
        )
        flags = [x for k, v in args.items() for x in (f"--{k.replace('_', '-')}", str(v))]
        place = room / title.replace(" ", "-")
        place.mkdir()
        with server.running(place, MODEL, *flags, bound_to=on) as run:
            if not run.address:
                print(run.log[-3000:])
                raise KvroomError("engine", title, "did not start", "Its log stands above.")
            runs.append(
                session.measured(run.address, scenario, parts, title=title, seed=1, pid=run.pid)
            )
            about = {**session.about(scenario, run.pid), "cores of the engine": on}
        record.write_text(json.dumps(session.record_of(runs, about)) + "\n", "utf-8")


def holds(proofs: Sequence[Proof]) -> bool:
    """Whether both engines' caches and counters one by one were measured and are exact."""
    seen = all(p.cache and any(r.one_by_one for r in p.counts) for p in proofs)
    return len(proofs) == len(ENGINES) and seen and all(p.exact for p in proofs)


def end(number: int, frame: object) -> None:
    """What a time limit sends ends the engine too; it may send it twice."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(128 + number)


def main() -> int:
    """Ask or judge; the exit status is told above."""
    signal.signal(signal.SIGTERM, end)
    try:
        return carry_out()
    except (KvroomError, OSError) as error:
        print(f"No proof: {error}", file=sys.stderr)
        return NOT_MEASURED


def carry_out() -> int:
    """Ask or judge, and write the report."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--judge", action="store_true")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    record = given.out / "record.json"
    if not given.judge:
        on = cores()
        with tempfile.TemporaryDirectory() as name:
            ask(Path(name), probe(Path(name), on), on, record)
    proofs, about = session.read_record(codec.read_json(str(record), "record"), str(record))
    text = prove.show(proofs, about)
    (given.out / "proof.html").write_text(proof_page.render(proofs, about), "utf-8")
    (given.out / "proof.txt").write_text(click.unstyle(text) + "\n", "utf-8")
    click.echo(text)
    print(f"\nThe report: {given.out / 'proof.html'}")
    if holds(proofs):
        print("Exact: blocks of both caches, and hits of requests one by one.")
        return 0
    print(
        "NOT EXACT: blocks of a cache, or hits of requests one by one, or they were not measured."
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
