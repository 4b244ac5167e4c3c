"""A question as an address: what the page opens and ``plan`` takes."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from urllib.parse import parse_qsl, urlsplit

from kvroom.errors import KvroomError
from kvroom.scenario.values import parse_object

PAGE_ADDRESS = "http://127.0.0.1:8642/"
LINK_VERSION = "1"
MAX_CHARACTERS = 2_000_000
_SHORT = {
    "context": "context_tokens",
    "gpus": "gpu_count",
    "kv": "kv_dtype",
    "users": "concurrency",
}
_NUMBERS = ("gpu_count", "tp", "pp", "dp", "ep", "dcp", "concurrency", "replicas")
_TRACKER = re.compile(r"utm_|mc_|(fbclid|gclid|dclid|msclkid|twclid|li_fat_id|igshid|ref|source)$")
"""The page's script passes the same over (`store.js`)."""
_HOW = "Copy the whole address from the page or from --link."


def link_of(keys: Mapping[str, object], base: str = PAGE_ADDRESS) -> str:
    """The address that holds the ``keys`` of a Scenario."""
    text = json.dumps(keys, separators=(",", ":"), sort_keys=True)
    packed = base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
    return f"{base}#s={LINK_VERSION}.{packed}"


def keys_of_link(link: str) -> dict[str, object]:
    """The keys that an address holds: ``#s=1.…``, or plain ``?model=…&gpu=…&context=…``."""
    if len(link) > MAX_CHARACTERS:
        raise KvroomError("link", link, "is longer than any link of kvroom", _HOW)
    try:
        parts = urlsplit(link)
    except ValueError as error:
        raise KvroomError("link", link, "is not an address", _HOW) from error
    state = dict(parse_qsl(parts.fragment)).get("s", "")
    if not state:
        return _from_query(parts.query, link)
    version, _, packed = state.partition(".")
    if version != LINK_VERSION:
        raise KvroomError("link", link, f"is of version {version}", "This kvroom reads version 1.")
    try:
        raw = base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4))
        keys = json.loads(raw)
    except (binascii.Error, ValueError, RecursionError) as error:
        raise KvroomError("link", link, "is cut off or garbled", _HOW) from error
    return dict(parse_object("link", keys))


def words_of(query: str) -> list[tuple[str, str]]:
    """What an address's query asks: its words without those that places that share links put there."""
    return [(key, value) for key, value in parse_qsl(query) if not _TRACKER.match(key)]


def _from_query(query: str, link: str) -> dict[str, object]:
    keys: dict[str, object] = {}
    for key, value in words_of(query):
        name = _SHORT.get(key, key)
        keys[name] = _whole(value) if name in _NUMBERS else value
    if not keys:
        raise KvroomError("link", link, "carries no question", _HOW)
    gpu, colon, count = str(keys.get("gpu", "")).rpartition(":")
    if colon and count.isdecimal():
        keys |= {"gpu": gpu, "gpu_count": _whole(count)}
    return keys


def _whole(text: str) -> int | str:
    """``text`` as a whole number; left as it is, to be refused by its key, where it is none."""
    return int(text) if text.isdecimal() and len(text) < 20 else text
