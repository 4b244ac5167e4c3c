"""The same twelve questions to kvroom and to four other planners: answers, CPU seconds, what each cannot say.

    python benchmarks/peers.py --tools FOLDER --configs FOLDER [--only TOOL] [--show]

The first FOLDER holds an environment a tool (``python -m venv FOLDER/hf-mem``, then pip installs hf-mem in
it, and so on); what is missing is left out. Two of them read the Hugging Face hub alone: they are pointed at
a stand-in on this machine that serves the published configs (the second FOLDER: ``OWNER__NAME.json``) and a
safetensors header with the tensors of that config. Each figure is what the tool prints, found by the pattern
beside its command; ``-`` is a question that it has no command for, ``refuses`` one that it declines.
"""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from kvroom import api

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 1200
INDEX = "model.safetensors.index.json"
TOOLS = ("hf-mem", "kvfit", "sparkfit", "aiconfigurator")
REPOS = {
    "meta-llama/Meta-Llama-3.1-70B": "llama-3.1-70b",
    "deepseek-ai/DeepSeek-V3": "deepseek-v3",
    "google/gemma-3-27b-it": "gemma-3-27b",
    "Qwen/Qwen3-Next-80B-A3B-Instruct": "qwen3-next-80b",
    "openai/gpt-oss-120b": "gpt-oss-120b",
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": "nemotron-3-nano-30b-a3b",
}
"""Hub ids that the questions name, and kvroom's names of them."""


@lru_cache
def header(name: str) -> bytes:
    """A safetensors header with every tensor of a model of the catalogue, 16-bit."""
    spec = api.model(name)
    tensors: dict[str, object] = {}
    end = 0

    def add(key: str, rows: int, columns: int) -> None:
        nonlocal end
        shape = [rows, columns] if columns > 1 else [rows]
        size = 2 * rows * columns
        tensors[key] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}
        end += size

    for index, layer in enumerate(spec.each_layer()):
        for tensor in layer.tensors:
            for copy in range(tensor.count):
                part = f"{tensor.name}.{copy}" if tensor.count > 1 else tensor.name
                add(f"model.layers.{index}.{part}.weight", tensor.rows, tensor.columns)
    for where, group in (
        ("embed_tokens", spec.embedding),
        ("lm_head", spec.head),
        ("beside", spec.beside),
    ):
        for number, tensor in enumerate(group):
            for copy in range(tensor.count):
                add(f"model.{where}.{number}.{copy}.weight", tensor.rows, tensor.columns)
    text = json.dumps(tensors).encode()
    return struct.pack("<Q", len(text)) + text


class Hub(BaseHTTPRequestHandler):
    """The stand-in: a repository's list of files, its config, the head of its weights."""

    configs = Path()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0].strip("/")
        repo = next((r for r in REPOS if r in path), None)
        if repo is None:
            self._send(404, b"{}")
            return
        name = REPOS[repo]
        config = (self.configs / f"{repo.replace('/', '__')}.json").read_bytes()
        spec = api.model(name)
        size = 2 * (spec.params + spec.mtp_params)
        if path.startswith("api/models/") and "/tree/" in path:
            files = [("config.json", len(config)), (INDEX, 1000), ("model.safetensors", size)]
            rows = [{"type": "file", "path": p, "size": s, "oid": "0"} for p, s in files]
            self._send(200, json.dumps(rows).encode())
        elif path.startswith("api/models/"):
            siblings = [{"rfilename": "config.json", "size": len(config)}]
            siblings.append({"rfilename": INDEX, "size": 1000})
            siblings.append({"rfilename": "model.safetensors", "size": size})
            about = {
                "id": repo,
                "sha": "0" * 40,
                "siblings": siblings,
                "tags": [],
                "private": False,
            }
            about["safetensors"] = {"parameters": {"BF16": size // 2}, "total": size // 2}
            self._send(200, json.dumps(about).encode())
        elif path.endswith("/config.json"):
            self._send(200, config)
        elif path.endswith(f"/{INDEX}"):
            whole = json.loads(header(name)[8:])
            self._send(
                200, json.dumps({"weight_map": dict.fromkeys(whole, "model.safetensors")}).encode()
            )
        elif path.endswith("/model.safetensors"):
            whole = header(name)
            asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            first, last = (int(asked[1]), int(asked[2])) if asked else (0, len(whole) - 1)
            self._send(206, whole[first : last + 1])
        else:
            self._send(404, b"{}")

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


HF_MEM = """
import sys, httpx2
get = httpx2.AsyncClient.get
async def here(self, url, **more):
    return await get(self, str(url).replace("https://huggingface.co", "{hub}"), **more)
httpx2.AsyncClient.get = here
from hf_mem.cli import main
sys.argv[0] = "hf-mem"
main()
"""
KVFIT = """
import sys, kvfit.hf
kvfit.hf.HF_BASE = "{hub}"
from kvfit.cli import main
sys.argv[0] = "kvfit"
sys.exit(main())
"""


AIC = """
import logging, sys
logging.disable(logging.CRITICAL)
from aiconfigurator_core.sdk.memory import KVCacheEstimator, estimate_kv_cache
repo, tp = sys.argv[1], int(sys.argv[2])
asked = dict(max_num_tokens=8192, max_batch_size=16, tp_size=tp, moe_tp_size=1, moe_ep_size=tp,
             kvcache_quant_mode="bfloat16")
made = KVCacheEstimator.from_request(repo, "h200_sxm" if tp == 1 else "h100_sxm", "vllm", "0.24.0", **asked)
model = made._breakdown["tokens_from_kv_bytes"].__self__
print("sequence", model.get_kvcache_bytes_per_sequence(32768))
if tp > 1:
    got = estimate_kv_cache(repo, "h100_sxm", "vllm", "0.24.0", memory_fraction_kind="of_total",
                            memory_fraction_value=0.92, **asked)
    print("tokens", got["total_kv_size_tokens"], "weights", got["memory_breakdown"]["weights_bytes"])
"""
SPARK = {
    "llama-3.1-70b": "llama3.1-70b", "deepseek-v3": "deepseek-v3", "gpt-oss-120b": "gpt-oss-120b",
}  # fmt: skip
LENGTH = 32768


@dataclass(frozen=True)
class Asked:
    """A tool's words for a question, and where its answer stands: ``pattern``, told through ``tell``."""

    words: tuple[str, ...]
    pattern: str
    tell: Callable[..., str] = "{}".format
    shim: str = ""
    """Python that runs the tool, where its own command does not do."""


@dataclass(frozen=True)
class Question:
    """One of the twelve: what is asked, what is right and who says so, each tool's way to say it."""

    text: str
    right: str
    ways: dict[str, Asked]


def gb(scale: float) -> Callable[..., str]:
    """What tells a printed figure in GB."""
    return lambda *found: f"{scale * float(next(f for f in found if f).replace(',', '')):.4g} GB"


def cache(repo: str, right: str) -> Question:
    """The cache of one request of 32K tokens in 16 bits."""
    name = REPOS[repo]
    plan = ("plan", name, "--gpu", "80GB:8", "--context", "32K", "--kv-dtype", "bf16")
    ways = {
        "kvroom": Asked(
            (*plan, "--engine", "arithmetic", "--json"), r'"bytes_per_request": (\d+)', gb(1e-9)
        ),
        "hf-mem": Asked(
            ("--model-id", repo, "--experimental", "--max-model-len", str(LENGTH),
             "--kv-cache-dtype", "bfloat16", "--json-output"),
            r'"kv_cache": (\d+)', gb(1e-9), HF_MEM,
        ),
        "kvfit": Asked(
            (repo, "--hardware", "h100-80", "--gpus", "8", "--context", str(LENGTH), "--kv-dtype", "bf16"),
            r"KV/sequence:\s+([\d.]+) GiB", gb(2**30 / 1e9), KVFIT,
        ),
        "aiconfigurator": Asked((repo, "1"), r"sequence ([\d.]+)", gb(1e-9), AIC),
    }  # fmt: skip
    if name in SPARK:
        ways["sparkfit"] = Asked(
            ("plan", "-m", SPARK[name], "-q", "bf16", "-c", str(LENGTH), "--kv-dtype", "bf16", "--json"),
            r'"kv": ([\d.]+)', gb(1.0),
        )  # fmt: skip
    return Question(f"the cache of one request of 32K tokens, {name}, in GB", right, ways)


LLAMA = "meta-llama/Meta-Llama-3.1-70B"
USERS = ("--users", "32", "--input-tokens", "1000", "--output-tokens", "300")
CLASS = "transformers' own cache"


def questions() -> list[Question]:
    """The twelve."""
    plan70 = ("plan", "llama-3.1-70b", "--gpu", "H100-SXM:4", "--context", "32K", "--json")
    weights = Question(
        "the weights of llama-3.1-70b in 16 bits, in GB", "141.1 (its tensors)",
        {
            "kvroom": Asked(plan70, r'"weights": \{[^}]*?"bytes": (\d+)', gb(1e-9)),
            "hf-mem": Asked(
                ("--model-id", LLAMA, "--json-output"), r'"memory": (\d+)', gb(1e-9), HF_MEM
            ),
            "kvfit": Asked(
                (LLAMA, "--hardware", "h100-80", "--gpus", "4"), r"Weights:\s+([\d.]+) GiB",
                gb(2**30 / 1e9), KVFIT,
            ),
            "sparkfit": Asked(
                ("plan", "-m", "llama3.1-70b", "-q", "bf16", "--json"), r'"weights": ([\d.]+)', gb(1.0)
            ),
            "aiconfigurator": Asked((LLAMA, "4"), r"weights ([\d.]+)", gb(4e-9), AIC),
        },
    )  # fmt: skip
    fits = Question(
        "requests of 32K that vLLM has room for at once, llama-3.1-70b on 4 H100",
        "15 without any overhead; less in an engine",
        {
            "kvroom": Asked(plan70, r'"max_concurrency": ([\d.]+)', lambda n: f"{float(n):.1f}"),
            "kvfit": Asked(
                (LLAMA, "--hardware", "h100-80", "--gpus", "4", "--context", str(LENGTH)),
                r"upper bound: (\d+) users", shim=KVFIT,
            ),
            "aiconfigurator": Asked(
                (LLAMA, "4"), r"tokens (\d+)", lambda n: f"{int(n) / LENGTH:.1f}", AIC
            ),
        },
    )  # fmt: skip
    times = Question(
        "TTFT and TPOT, llama-3.1-8b on an H100, 32 users, 1,000 tokens in, 300 out",
        "not measured here",
        {
            "kvroom": Asked(
                ("plan", "llama-3.1-8b", "--gpu", "H100-SXM", *USERS),
                r"TTFT\s+([\d.]+ ms).*\n\s+TPOT\s+([\d.]+ ms)", "{}, {}".format,
            ),
            "aiconfigurator": Asked(
                ("cli", "estimate", "--model-path", "meta-llama/Meta-Llama-3.1-8B", "--system", "h100_sxm",
                 "--backend", "vllm", "--tp-size", "1", "--isl", "1000", "--osl", "300", "--batch-size", "32",
                 "--no-color"),
                r"TTFT:\s+([\d.]+ ms)\s+TPOT:\s+([\d.]+ ms)", "{}, {}".format,
            ),
        },
    )  # fmt: skip
    fewest = Question(
        "the fewest H100 for 300 users of llama-3.1-8b, 1,000 in, 300 out, TTFT within 1 s",
        "not measured here",
        {
            "kvroom": Asked(
                ("search", "llama-3.1-8b", "--users", "300", "--workload", "input=1000,output=300",
                 "--slo", "ttft_p95=1s", "--gpus", "H100-SXM", "--simulate", "2", "--jobs", "1"),
                r"(\d+) GPUs? at (\$[\d.]+) an hour", "{} at {} an hour".format,
            ),
            "aiconfigurator": Asked(
                ("cli", "recommend", "--model-path", "meta-llama/Meta-Llama-3.1-8B", "--system", "h100_sxm",
                 "--backend", "vllm", "--isl", "1000", "--osl", "300", "--target-concurrency", "300",
                 "--ttft", "1000", "--tpot", "100", "--no-color"),
                r"\|\s+1\s+\|\s+vllm\s+\|(?:[^|]*\|){6}\s*(\d+) \(", "{}".format,
            ),
        },
    )  # fmt: skip
    spark = Question(
        "the widest weights of llama-3.1-70b that a DGX Spark holds with 8K tokens",
        "8 bits: 70.6 of 128 GB",
        {
            "kvroom": Asked(
                ("plan", "llama-3.1-70b", "--gpu", "DGX-Spark-GB10", "--context", "8K", "--sweep",
                 "weight_dtype=bf16,fp8,q6_k,q4_k_m"),
                r"(?m)^\s*(\w+)\s+[1-9][\d.]*\s",
            ),
            "sparkfit": Asked(("advise", "-m", "llama3.1-70b", "-c", "8192"), r"Use (\w+):"),
        },
    )  # fmt: skip
    expect = Question(
        "my engine says 2.1x where arithmetic said 16: what took the room",
        "the log's own accounts",
        {
            "kvroom": Asked(
                (
                    "reconcile",
                    str(ROOT / "docs/examples/short.log"),
                    "--gpu",
                    "H100-SXM:4",
                    "--expect",
                    "16",
                ),
                r"Most of it: ([^\n;]+)",
            )
        },
    )
    return [
        weights,
        cache(LLAMA, "10.74 (full attention)"),
        cache("deepseek-ai/DeepSeek-V3", "2.303 (latents)"),
        cache("google/gemma-3-27b-it", "3.12 (5 of 6 layers keep 1,024 tokens)"),
        cache(
            "Qwen/Qwen3-Next-80B-A3B-Instruct",
            "0.84 to 0.88 (3 of 4 layers keep a state of 16 or 32 bits)",
        ),
        cache("openai/gpt-oss-120b", "1.21 (half the layers keep 128 tokens)"),
        cache("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "0.25 (6 of 52 layers attend)"),
        fits,
        times,
        fewest,
        spark,
        expect,
    ]


@dataclass(frozen=True)
class Told:
    """What a tool said, and the CPU seconds that it took."""

    answer: str
    cpu_s: float


def ask(tool: str, asked: Asked, tools: Path, hub: str) -> Told:
    """One question to one tool."""
    if tool == "kvroom":
        argv = [sys.executable, "-m", "kvroom"]
    elif asked.shim:
        argv = [str(tools / tool / "bin/python"), "-c", asked.shim.replace("{hub}", hub)]
    else:
        argv = [str(tools / tool / "bin" / tool)]
    env = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1", "PYTHONWARNINGS": "ignore"}
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [*argv, *asked.words], stdout=said, stderr=subprocess.STDOUT, env=env
        )
        timer = threading.Timer(SECONDS, process.kill)
        timer.start()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        timer.cancel()
        said.seek(0)
        text = said.read().decode("utf-8", "replace")
    found = re.search(asked.pattern, text, re.DOTALL)
    answer = asked.tell(*found.groups()) if found else "refuses"
    if "--show" in sys.argv:
        print(f"--- {tool} {' '.join(asked.words)}\n{text[-1500:]}", file=sys.stderr)
    return Told(answer, used.ru_utime + used.ru_stime)


def version(tool: str, tools: Path) -> str:
    """The installed version of a tool."""
    code = f"from importlib.metadata import version; print(version({tool!r}))"
    python = sys.executable if tool == "kvroom" else str(tools / tool / "bin/python")
    if tool == "kvroom":
        code = "import kvroom; print(kvroom.__version__)"
    return subprocess.run(
        [python, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


def main() -> None:
    words = sys.argv[1:]
    tools = Path(words[words.index("--tools") + 1])
    names = ["kvroom", *(tool for tool in TOOLS if (tools / tool).is_dir())]
    if "--only" in words:
        names = [words[words.index("--only") + 1]]
    Hub.configs = Path(words[words.index("--configs") + 1])
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    hub = f"http://127.0.0.1:{server.server_address[1]}"
    rows, spent = [], dict.fromkeys(names, 0.0)
    for number, question in enumerate(questions(), 1):
        cells = []
        for name in names:
            asked = question.ways.get(name)
            told = None if asked is None else ask(name, asked, tools, hub)
            cells.append("-" if told is None else f"{told.answer} ({told.cpu_s:.1f} s)")
            spent[name] += told.cpu_s if told else 0.0
        print(number, question.text, "|", question.right, "|", " | ".join(cells), file=sys.stderr)
        rows.append([str(number), question.text, question.right, *cells])
    heads = [f"{name} {version(name, tools)}" for name in names]
    table = [["", "question", "right", *heads], ["---"] * (3 + len(names)), *rows]
    table.append(["", "CPU seconds in all", "", *(f"{spent[name]:.1f}" for name in names)])
    day = datetime.now(UTC).date().isoformat()
    print(f"Asked on {day}.\n\n" + "\n".join(f"| {' | '.join(row)} |" for row in table))


if __name__ == "__main__":
    main()
