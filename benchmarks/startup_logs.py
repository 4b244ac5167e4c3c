"""Hold kvroom to start-up logs that people published: what the engine printed against what it predicts.

    python benchmarks/startup_logs.py LOGS.jsonl --configs FOLDER [--verbose] [--starts STARTS.jsonl]

LOGS.jsonl holds one log a line: id, engine, engine_version, model, config (the name of a config.json in
FOLDER), gpu, max_model_len, kv_dtype, other_flags, notes, and what was printed: kv_mib, kv_tokens,
kv_available_gib … (any may be null). For each engine the table says how many logs record enough to be
predicted from, how many of those come out as printed, and the errors. A log whose model, length, slots
or cache width is not in its record is listed as such, never fitted; one whose model only follows from
what it prints (model_inferred) is marked "~".

``--starts`` adds the memory accounts of whole starts, by account, engine, release and card (``accounts``).
Another engine joins with a function from a row to its trials, in READERS.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import accounts
from served_logs import served_trials
from trials import MODELS, NotRecordedError, Row, Trial

from kvroom import engines
from kvroom.engines.llama_cpp import cache_sizes
from kvroom.errors import KvroomError
from kvroom.planner.layout import laid_out
from kvroom.planner.place import deploy
from kvroom.scenario.scenario import Scenario
from kvroom.sharding.deployment import Deployment

MIB, GIB = 2**20, 2**30
FEW = 2
"""So many figures have no worst but one: it would be the best."""
HUGE = {"name": "any", "memory_bytes": 10**14, "memory_bytes_per_s": 10**12}


def model_of(row: Row, configs: Path | None) -> Row:
    """The config of a row's model; NotRecordedError where the log names none that is known."""
    name = row.get("config")
    if not name:
        said = row.get("model") or row.get("model_inferred") or ""
        found = next((m for key, m in MODELS if key.lower() in said.lower()), None)
        if found is None and said:
            raise NotRecordedError(f"no config of {said[:40]}")
        if found is None:
            raise NotRecordedError("the model is not named")
        if not isinstance(found, str):
            return found
        name = found
    if configs is None or not (configs / f"{name}.json").is_file():
        raise NotRecordedError(f"needs --configs with {name}.json")
    config: Row = json.loads((configs / f"{name}.json").read_text("utf-8"))
    config.pop("quantization_config", None)
    return config


def words(row: Row) -> str:
    """What a row says in words: its flags, then its notes."""
    return f"{row.get('other_flags') or ''} | {row.get('notes') or ''}"


def found(text: str, *patterns: str) -> int | None:
    """The first number that one of ``patterns`` finds; one with a question mark is a guess."""
    for pattern in patterns:
        match = re.search(pattern + r"(?!\d|\?)", text)
        if match:
            return int(match[1])
    return None


# llama.cpp, ik_llama.cpp, Ollama

HALF_DIGIT = 0.005
"""MiB are printed with two digits."""
NARROW = {"q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl", "f16", "f32", "bf16"}


def llama_args(row: Row) -> Row:
    """The flags that a row tells, by llama-server's names."""
    text = words(row)
    args: Row = {"ctx_size": row.get("max_model_len") or 4096}
    kinds = re.findall(r"[a-z0-9_]+", (row.get("kv_dtype") or "").lower())
    kinds = [k for k in kinds if k in NARROW]
    if kinds:
        args["cache_type_k"], args["cache_type_v"] = kinds[0], kinds[-1]
    slots = found(
        row.get("other_flags") or "",
        r"--parallel (\d+)",
        r"-np (\d+)",
        r"(\d+) slots",
        r"^(\d+) seqs",
    ) or found(row.get("notes") or "", r"for (\d+) (?:seqs|cells)", r"\((\d) cell;")
    if slots is not None:
        args["parallel"] = slots
        if "unified" in text and "non-unified" not in text:
            args["kv_unified"] = True
    batch = found(row.get("other_flags") or "", r"\bub (\d+)", r"ubatch (\d+)")
    if batch is not None:
        args["ubatch_size"] = batch
    for name, pattern in (("mla_use", r"mla (\d)"), ("flash_attn", r"\bfa (\d)")):
        value = found(text, pattern)
        if value is not None:
            args[name] = value
    if "-sm row" in text:
        args["split_mode"] = "row"
    return args


def llama_trials(row: Row, configs: Path | None) -> Iterable[Trial]:
    """The cache as it was printed, to the MiB; recurrent state where a note tells it."""
    text = words(row)
    state = re.search(r"(?:recurrent|RS) ([\d.]+) MiB", text)
    if row.get("kv_mib") is None and not state:
        raise NotRecordedError("no cache size was printed")
    config = model_of(row, configs)
    if row.get("max_model_len") is None and row.get("kv_mib") is not None:
        raise NotRecordedError("the context is not recorded")
    if re.search(r"ubatch \d+\?", text):
        raise NotRecordedError("the batch, which windows depend on, is only guessed at")
    args = llama_args(row)
    engine = row["engine"]
    if engine == "ollama":
        args = {"num_ctx": args["ctx_size"]}
    version = {"ollama": "0.12.5"}.get(engine)  # the log's date; newer ones keep the same cells
    d = deployment(row, config, engine, args, version)
    if "expanded" in (row.get("arch") or ""):
        d = replace(d, model=replace(d.model, expanded_latents=True))
    slots = args.get("parallel")
    if (
        slots is None
        and engine == "llama.cpp"
        and any(k.kind == "window" for k, _ in d.model.stores)
    ):
        raise NotRecordedError("the number of slots, which windows depend on, is not recorded")
    sizes = cache_sizes(d)
    if row.get("kv_mib") is not None:
        yield Trial("cache MiB", sizes.attention / MIB, row["kv_mib"], HALF_DIGIT)
    if state and slots:
        yield Trial("state MiB", sizes.state / MIB, float(state[1]), HALF_DIGIT)


def deployment(
    row: Row, config: Row, engine: str, args: Row, version: str | None = None, **more: Any
) -> Deployment:
    """What the row describes, on a device that is large enough for anything unless told."""
    scenario = {
        "model": {"config": config}, "gpu": HUGE, "gpu_count": row.get("gpu_count") or 1,
        "engine": engine, "engine_version": version, "engine_args": args, **more,
    }  # fmt: skip
    return deploy(laid_out(Scenario.from_dict(scenario))[0])[0]


# TensorRT-LLM


GPUS = {"H100 80GB": "H100-SXM", "A10 24GB": "A10"}
"""What rows call a card → kvroom's name."""


def trt_trials(row: Row, configs: Path | None) -> Iterable[Trial]:
    """Tokens in the printed cache bytes; and from the flags alone where the card is named."""
    config = model_of(row, configs)
    size = row.get("kv_available_gib")
    given = row["kv_mib"] * MIB if row.get("kv_mib") else size * GIB if size else None
    gpu = GPUS.get(row.get("gpu") or "")
    if given is None and gpu is None:
        raise NotRecordedError("neither the cache's bytes nor the card are recorded")
    kv = "fp8" if "fp8" in f"{row.get('notes')} {row.get('expected_basis')}" else "auto"
    args: Row = {}
    if row.get("block_size"):
        args["tokens_per_block"] = row["block_size"]
    share = re.search(r"free_gpu_mem(?:ory)?_fraction ([\d.]+)", words(row))
    if share:
        args["free_gpu_memory_fraction"] = float(share[1])
    batch = found(words(row), r"max_batch_size (\d+)")
    if batch:
        args["max_batch_size"] = batch
    version = row.get("engine_version")

    def tokens(gpu: Any, **more: Any) -> tuple[int, int]:
        d = deployment(row, config, "tensorrt-llm", {**args, **more}, version, kv_dtype=kv, gpu=gpu)
        capacity = engines.answer(d).capacity
        assert capacity is not None
        return capacity.kv_tokens or 0, capacity.block_tokens or 0

    if given is not None:
        # GiB are printed with two digits: the tokens follow from them to as much, and a block
        held, block = tokens(HUGE, max_gpu_total_bytes=int(given))
        rounded = 0.0 if row.get("kv_mib") else 0.005 * GIB / given * row["kv_tokens"] + block
        yield Trial("tokens in the printed bytes", held, row["kv_tokens"], rounded)
    if gpu is not None:
        yield Trial("tokens from the flags alone", tokens(gpu)[0], row["kv_tokens"])


READERS: dict[str, Callable[[Row, Path | None], Iterable[Trial]]] = {
    "llama.cpp": llama_trials,
    "ik_llama.cpp": llama_trials,
    "ollama": llama_trials,
    "sglang": served_trials,
    "tensorrt-llm": trt_trials,
    "vllm": served_trials,
}


@dataclass
class Account:
    """What came of one engine's rows."""

    trials: list[tuple[str, Trial]]
    left_out: list[tuple[str, str]]


def account(rows: Iterable[Row], configs: Path | None) -> dict[str, Account]:
    """Every row of an engine in READERS, tried or left out with its reason."""
    made: dict[str, Account] = {}
    for row in rows:
        reader = READERS.get(row.get("engine") or "")
        if reader is None:
            continue
        kept = made.setdefault(row["engine"], Account([], []))
        try:
            named = row["id"] if row.get("model") else f"{row['id']} ~"
            kept.trials += [(named, t) for t in reader(row, configs)]
        except NotRecordedError as e:
            kept.left_out.append((row["id"], str(e)))
        except KvroomError as e:
            kept.left_out.append((row["id"], f"refused: {e}"))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("logs", type=Path)
    parser.add_argument("--configs", type=Path, help="folder of config.json files by name")
    parser.add_argument("--starts", type=Path, help="starts with their accounts, one a line")
    parser.add_argument("--verbose", action="store_true", help="every figure, not only the misses")
    asked = parser.parse_args()
    with asked.logs.open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines if line.strip()]
    made = account(rows, asked.configs)
    head = f"{'engine':14} {'logs':>4} {'figure':28} {'n':>3} {'as printed':>10}"
    print(f"{head} {'median error':>12} {'worst but one':>14} {'worst':>8}")
    for engine, kept in sorted(made.items()):
        logs = len({i for i, _ in kept.trials}) + len(kept.left_out)
        for what in dict.fromkeys(t.what for _, t in kept.trials):
            trials = [t for _, t in kept.trials if t.what == what]
            errors = [abs(t.error) for t in trials]
            exact = sum(t.exact for t in trials)
            head = f"{engine:14} {logs:4} {what:28} {len(trials):3} {exact:10}"
            second = f"{sorted(errors)[-2]:.3%}" if len(errors) > FEW else "-"
            print(f"{head} {statistics.median(errors):12.3%} {second:>14} {max(errors):8.3%}")
    if asked.starts is not None and asked.configs is not None:
        with asked.starts.open(encoding="utf-8") as lines:
            starts = [json.loads(line) for line in lines if line.strip()]
        print("\nmemory accounts: median / 90th percentile off in %, inside the band, starts")
        print("\n".join(accounts.table(list(accounts.trials(starts, asked.configs)))))
    for engine, kept in sorted(made.items()):
        for name, t in kept.trials:
            if asked.verbose or not t.exact:
                mark = "  " if t.exact else "! "
                print(
                    f"{mark}{engine} {name}: {t.what} {t.predicted:,.2f}, printed {t.printed:,.2f}"
                )
        for name, why in kept.left_out:
            print(f"- {engine} {name}: {why}")


if __name__ == "__main__":
    main()
