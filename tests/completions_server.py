"""A small imitation of vLLM's HTTP server: streams made-up token ids, counts what its cache would hold.

Its cache holds whole blocks of everything it ever saw, so what it counts as found can be reckoned by hand.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import metrics_server

BLOCK = 32


class Engine:
    """What the imitation knows: blocks seen, counters, and what to do instead of answering."""

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self.seen: set[tuple[int, ...]] = set()
        self.queries = self.hits = self.preemptions = 0
        self.status = 200
        self.token_s = 0.0
        self.cut_after: int | None = None
        self.asked: list[dict[str, Any]] = []
        self.lock = threading.Lock()
        self.address = ""

    def found(self, prompt: list[int]) -> None:
        """Count the blocks of ``prompt`` that were seen before, all but its last token's."""
        with self.lock:
            self.queries += len(prompt)
            for end in range(BLOCK, len(prompt), BLOCK):
                if tuple(prompt[:end]) not in self.seen:
                    break
                self.hits += BLOCK

    def keep(self, tokens: list[int]) -> None:
        """Remember the whole blocks of ``tokens``."""
        with self.lock:
            for end in range(BLOCK, len(tokens) + 1, BLOCK):
                self.seen.add(tuple(tokens[:end]))

    def metrics(self) -> str:
        """The text of /metrics."""
        told = metrics_server.vllm(
            prefix_cache_queries_total=self.queries,
            prefix_cache_hits_total=self.hits,
            num_preemptions_total=self.preemptions,
        )
        size = f'num_gpu_blocks="{self.blocks}",block_size="{BLOCK}"'
        return f'{told}vllm:cache_config_info{{engine="0",{size}}} 1.0\n'


@contextmanager
def serving(blocks: int = 1000) -> Iterator[Engine]:
    """An Engine on 127.0.0.1 while the block runs."""
    engine = Engine(blocks)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            models = json.dumps({"data": [{"id": "imitation"}]})
            text = models if self.path == "/v1/models" else engine.metrics()
            metrics_server.text(text)(self)
            self.close_connection = True

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            engine.asked.append(asked)
            self.close_connection = True
            if engine.status != 200:
                metrics_server.text("refused", engine.status)(self)
                return
            prompt = asked["prompt"]
            engine.found(prompt)
            self.send_response(200)
            self.end_headers()
            answer = [(sum(prompt) + i) % 400 for i in range(asked["max_tokens"])]
            for i, token in enumerate(answer):
                if i == engine.cut_after:
                    return
                time.sleep(engine.token_s)
                event = {"choices": [{"token_ids": [token], "text": ""}]}
                self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
                self.wfile.flush()
            engine.keep(prompt + answer[:-1])  # before the last word: then the next one comes
            self.wfile.write(b": a comment\n\ndata: no json\n\ndata: [DONE]\n\n")

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    engine.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield engine
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
