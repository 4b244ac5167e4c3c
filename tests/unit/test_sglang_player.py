"""What an installed SGLang's player does by itself, over a server of plain objects."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

from kvroom.engines.sglang.played import SglangPlayer


class Server:
    """As SGLang's scheduler is idle: once its running batch has let go of who has ended."""

    max_total_num_tokens, page_size, enable_overlap = 100, 1, False
    waiting_queue: tuple[Any, ...] = ()
    token_to_kv_pool_allocator = SimpleNamespace(available_size=lambda: 100)
    tree_cache = SimpleNamespace(evictable_size=lambda: 0)

    def __init__(self) -> None:
        self.running_batch = self.last_batch = SimpleNamespace(reqs=["one that has ended"])
        self.ratio = 0.5

    def get_next_batch_to_run(self, running_batch: Any, last_batch: Any) -> Any:
        """Its running batch is filtered here, and nowhere else."""
        assert running_batch is self.running_batch
        assert last_batch is self.last_batch
        return SimpleNamespace(running_batch=SimpleNamespace(reqs=[]), batch_to_run=None)

    def on_idle(self) -> None:
        """It sets its ratio anew where it is idle, by ``is_fully_idle``."""
        if not self.running_batch.reqs and self.last_batch is None:
            self.ratio = 0.7


def test_a_server_without_requests_is_idle() -> None:
    player: Any = object.__new__(SglangPlayer)
    player.server, player.place, player.busy = Server(), nullcontext(), True
    player.requests, player.in_flight, player.running, player.last = {}, {}, set(), []
    player.width, player.planned, player.idle = 0, True, player.server.on_idle

    player.step()

    assert player.server.ratio == 0.7
    assert not player.busy
