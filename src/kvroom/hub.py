"""A model's config by its hub id, where the ``hub`` extra is installed.

The local cache is looked at first; the hub is asked only for an id that the person typed, and not at all
with ``HF_HUB_OFFLINE=1``.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kvroom.errors import KvroomError
from kvroom.models.files import read_json
from kvroom.models.load import HubReader

SECONDS = 10
"""How long the hub may take to answer."""
CONNECT_S = 3
"""And to be reached."""


def reader() -> HubReader | None:
    """What reads a config from the hub; None where the extra is not installed."""
    return config_of if find_spec("huggingface_hub") is not None else None


def _reachable() -> bool:
    """Whether the hub answers at all: its client tries for half a minute to find out. Behind a proxy it is
    the client that finds out."""
    import socket
    from urllib.parse import urlsplit
    from urllib.request import getproxies

    from huggingface_hub.constants import ENDPOINT

    if getproxies():
        return True
    at = urlsplit(ENDPOINT)
    try:
        port = at.port or (80 if at.scheme == "http" else 443)
        socket.create_connection((at.hostname or "", port), timeout=CONNECT_S).close()
    except (OSError, ValueError):
        return False
    return True


def config_of(hub_id: str) -> Mapping[str, Any]:
    """The decoded ``config.json`` of ``hub_id``; KvroomError on ``model`` where it cannot be had."""
    import logging

    from huggingface_hub import hf_hub_download

    logging.getLogger("huggingface_hub").setLevel(
        logging.ERROR
    )  # what it has to say is in the error
    there = _reachable()
    try:
        path = hf_hub_download(
            hub_id, "config.json", etag_timeout=SECONDS, local_files_only=not there
        )
    except Exception as error:  # the client raises its own, its HTTP library's and the system's
        why = type(error).__name__ if there else "it cannot be reached"
        raise KvroomError(
            "model",
            hub_id,
            f"is not in the catalogue, and the hub does not give its config ({why})",
            "Check the id and your access to it, or give its config.json.",
        ) from None
    return read_json(Path(path))
