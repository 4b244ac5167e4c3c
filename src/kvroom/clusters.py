"""Where units of work run, as people write it: ``processes:8``, ``ray``, ``ray:10.0.0.5:6379``,
``ray://10.0.0.5:10001``, ``auto``."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Any, NamedTuple

from kvroom.distributed.processes import MakePool, carrying, processes
from kvroom.errors import KvroomError, did_you_mean
from kvroom.models.load import HubReader
from kvroom.ray_workers import ray_cpus, ray_pool
from kvroom.units import parse_count

KINDS = ("processes", "ray", "auto")
FIX = "Write processes, processes:8, ray, ray:HOST:6379, ray://HOST:10001 or auto."
MOST_PROCESSES = 4096


class Workers(NamedTuple):
    """What makes a pool (None: this process does it all), and how many work at a time."""

    pool: MakePool | None
    at_once: int


def workers_of(
    text: str, hub: HubReader | None = None, field: str = "--cluster", value: Any = None
) -> Workers:
    """The workers that ``text`` names: so many ``processes`` of this machine (one a core), a ``ray``
    cluster (the one this machine is part of, or at an address), or ``auto``: a Ray cluster where there is
    one, else processes; ``value`` is lent to them. KvroomError where it names none, or none answers."""
    kind, colon, rest = text.strip().partition(":")
    if kind not in KINDS or (colon and not rest):
        raise KvroomError(field, text, "names no workers", did_you_mean(kind, KINDS, FIX))
    if kind == "processes":
        return _processes(field, rest, hub, value)
    if kind == "ray":
        if rest.startswith("//"):
            rest = text.strip()  # a cluster's client port, as Ray itself writes it
        address = rest or os.environ.get("RAY_ADDRESS") or "auto"
        pool = carrying(ray_pool(address, field), value)
        return Workers(pool, ray_cpus(address, field))
    if rest:
        raise KvroomError(field, text, "takes no address", FIX)
    if find_spec("ray") is not None:
        try:
            return workers_of("ray", hub, field, value)
        except KvroomError:
            pass  # no cluster is there
    return _processes(field, "", hub, value)


def _processes(field: str, text: str, hub: HubReader | None, value: Any) -> Workers:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    count = parse_count(field, text, low=1, high=MOST_PROCESSES) if text else cores or 1
    return Workers(processes(count, hub, value), count)
