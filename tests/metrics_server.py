"""A small server of metrics on the loopback, which answers what a test tells it to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Answer = Callable[[BaseHTTPRequestHandler], None]


def text(body: str, status: int = 200) -> Answer:
    """Answer ``body`` whole."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        data = body.encode()
        handler.send_response(status)
        handler.send_header("Content-Type", "text/plain; version=0.0.4")
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    return answer


def raw(data: bytes) -> Answer:
    """Write ``data`` as it is and end."""
    return lambda handler: handler.wfile.write(data) and None


class Server:
    """Answers one after another in turn, the last again and again; remembers what was asked."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.address = ""

    def next(self) -> Answer:
        """The next answer."""
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@contextmanager
def serving(*answers: Answer, port: int = 0) -> Iterator[Server]:
    """A Server on 127.0.0.1 while the block runs."""
    state = Server(*answers)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.asked.append((self.path, dict(self.headers)))
            state.next()(self)
            self.close_connection = True

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    state.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def vllm(**figures: float) -> str:
    """A short text in vLLM's words: counters and gauges as given, defaults for the rest."""
    said = {
        "num_requests_running": 2.0,
        "num_requests_waiting": 0.0,
        "kv_cache_usage_perc": 0.25,
        "num_preemptions_total": 0.0,
        "prefix_cache_queries_total": 0.0,
        "prefix_cache_hits_total": 0.0,
        "prompt_tokens_total": 0.0,
        "generation_tokens_total": 0.0,
        "request_success_total": 0.0,
        **figures,
    }
    return "".join(f'vllm:{n}{{engine="0",model_name="m"}} {v}\n' for n, v in said.items())


def buckets(name: str, counts: dict[str, float], total: float) -> str:
    """A histogram's lines in vLLM's words."""
    lines = [
        f'vllm:{name}_bucket{{engine="0",le="{b}",model_name="m"}} {c}' for b, c in counts.items()
    ]
    lines.append(f'vllm:{name}_sum{{engine="0",model_name="m"}} {total}')
    lines.append(f'vllm:{name}_count{{engine="0",model_name="m"}} {max(counts.values())}')
    return "\n".join(lines) + "\n"
