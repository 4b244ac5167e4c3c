"""Taking all requests away from an engine that dies: each as its last step left it, to start elsewhere.

What they have generated is kept (whoever streams it to the user has it); it is computed anew with the
prompt where they go on, as after a preemption.
"""

from __future__ import annotations

from kvroom.kvcache.extents import Holding
from kvroom.simulator.event_engine import Server
from kvroom.simulator.live import Live
from kvroom.simulator.loop import Stepper


def evacuated(engine: Server | Stepper) -> list[Live]:
    """All that ``engine`` serves, queues or was to get, in order; it is of no use afterwards."""
    taken = _running(engine) if isinstance(engine, Server) else _stepped(engine)
    taken += engine.take_coming()
    for live in taken:
        live.number = -1
        live.computed = live.blocks = live.resumed_at = live.alone = 0
        live.noted = 0
        live.last = -1
        live.decoding = False
        if live.held is not None:
            live.held = Holding(live.held.names, live.held.named)
    return taken


def _running(server: Server) -> list[Live]:
    taken = []
    for live in server.running:
        if live.decoding:
            live.known = server.step - live.base + 1
            live.token_ps = server.end
        elif live.last >= 0:
            continue  # its last token is there
        taken.append(live)
    taken += (live for *_, live in sorted(server.loading, key=lambda each: each[:2]))
    return [*taken, *server.waiting, *sorted(server.queue)]


def _stepped(stepper: Stepper) -> list[Live]:
    stepper.land()
    for index, sequence in stepper.sequences.items():
        stepper.running[index].known = sequence.known
    return list(stepper.running.values())
