"""Offload tiers as a question: which memory below the GPUs keeps cache, how much, how fast, by which rules.

A Scenario's ``tiers`` is a list of objects; the command line says the same in one line each. What is left
out is the machine's own figure, or what engines do.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from math import isfinite

from kvroom.errors import KvroomError, did_you_mean
from kvroom.models.dtypes import cache_dtype
from kvroom.records import dataclass
from kvroom.scenario.values import number_of
from kvroom.units import check_float, parse_bytes, parse_tokens

KINDS = ("host", "nvme", "network")
"""From near to far."""
POLICIES = ("lru", "lru-tail", "lfu-da")
WRITES = {
    "through": "through", "write-through": "through", "write_through": "through",
    "selective": "selective", "write-through-selective": "selective",
    "write_through_selective": "selective",
    "back": "back", "write-back": "back", "write_back": "back",
}  # fmt: skip
PREFETCHES = ("best_effort", "wait_complete", "timeout")
"""When a request that waits in the queue no longer waits for what is fetched from storage (SGLang)."""
KEYS = (
    "kind",
    "bytes",
    "bytes_per_s",
    "latency_s",
    "write",
    "inclusive",
    "policy",
    "pinned_bytes",
    "layerwise",
    "shared",
    "kv_dtype",
    "per_rank",
    "chunk_tokens",
    "lookup_s",
    "times_gpu",
    "prefetch",
    "prefetch_tokens",
    "prefetch_wait_s",
    "prefetch_wait_s_per_1k_tokens",
)
MOST_BYTES_PER_S = 10**18
LMCACHE_CHUNK_TOKENS = 256
PRESETS: dict[str, dict[str, object]] = {
    "native": {"kind": "host", "per_rank": True},
    "lmcache": {"kind": "host", "chunk_tokens": LMCACHE_CHUNK_TOKENS},
    "hicache": {"kind": "host", "layerwise": True, "policy": "lru-tail", "times_gpu": 2.0},
    "mooncake": {"kind": "network", "per_rank": True},
}
"""What names of stores stand for, as they are set up where nothing else is said.

- ``native``: vLLM's OffloadingConnector: blocks as large as the GPU's, LRU, each rank's own pages in its
  share of the bytes, written when computed (vllm/v1/kv_offload/cpu, 0.15: bytes of a block times the ranks).
- ``lmcache``: chunks of 256 tokens, LRU, written when computed; 5 GB a worker (LMCache's configuration page).
- ``hicache``: twice the GPU's pool, written when computed, layers loaded while others compute, leaves of the
  radix tree evicted first (SGLang's HiCache pages).
- ``mooncake``: a store in the network that replicas share, each rank's own pages; each worker brings
  3,355,443,200 bytes of it unless told (vLLM's connector): give the size of all.
"""
EXAMPLE = "Write it like host:512GiB or nvme:4TB:write=back:policy=lru-tail."


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadTier:
    """One tier. ``bytes``, ``bytes_per_s`` and ``latency_s`` are None where the machine's own are taken.

    ``write``: ``through``, a page is written when it is computed (as vLLM's offloading and LMCache do), or
    ``back``, when the tier above evicts it; None: what the engine's release does, else ``through``.
    ``inclusive``: it keeps what is read from it. ``pinned_bytes``:
    so much of host memory can be locked for transfers, the rest keeps nothing. ``layerwise``: a layer is
    computed while the next comes in. ``shared``: all replicas use one. ``kv_dtype``: the width in which it
    keeps cache, where that is not the GPU's. ``per_rank``: what several ranks keep alike (a latent, copied
    heads) is there once for each. ``chunk_tokens``: only whole chunks of so many tokens are kept and found.
    ``lookup_s``: until a read knows where its pages are. ``times_gpu``: its size over the GPUs' own pool,
    where no ``bytes`` are given. ``prefetch``: what is there comes into host memory while its request waits
    in the queue, one of ``PREFETCHES``, from ``prefetch_tokens`` on; ``timeout`` waits ``prefetch_wait_s``
    and so much more for each 1,024 tokens. None: as the engine's release does.
    """

    kind: str
    bytes: int | None = None
    bytes_per_s: int | None = None
    latency_s: float | None = None
    write: str | None = None
    inclusive: bool = True
    policy: str = "lru"
    pinned_bytes: int | None = None
    layerwise: bool = False
    shared: bool = False
    kv_dtype: str | None = None
    per_rank: bool = False
    chunk_tokens: int | None = None
    lookup_s: float = 0.0
    times_gpu: float | None = None
    prefetch: str | None = None
    prefetch_tokens: int | None = None
    prefetch_wait_s: float | None = None
    prefetch_wait_s_per_1k_tokens: float | None = None

    def to_dict(self) -> dict[str, object]:
        """Its kind, and the keys that are not as usual."""
        usual = OffloadTier(kind=self.kind, shared=self.kind == "network")
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            key: value
            for key, value in values.items()
            if key == "kind" or value != getattr(usual, key)
        }


FEWEST_BYTES_PER_S = 1_000_000
"""Below which a rate in text wants its unit: nobody means 80 bytes a second."""


def parse_tiers(name: str, value: object) -> tuple[OffloadTier, ...]:
    """A Scenario's ``tiers``, from near to far; KvroomError names the key that is wrong."""
    if not isinstance(value, list | tuple):
        fix = 'Write a list: [{"kind": "host", "bytes": "512GiB"}].'
        raise KvroomError(name, value, "is not a list of tiers", fix)
    tiers: list[OffloadTier] = []
    for place, each in enumerate(value):
        where = f"{name}[{place}]"
        tier = _tier(where, line(each, where) if isinstance(each, str) else each)
        if any(other.kind == tier.kind for other in tiers):
            raise KvroomError(f"{where}.kind", tier.kind, "is named twice", "Name each tier once.")
        tiers.append(tier)
    return tuple(sorted(tiers, key=lambda tier: KINDS.index(tier.kind)))


LMCACHE_GB = 5.0
"""What LMCache keeps in host memory for each worker unless told."""
LMCACHE = ("LMCacheConnector", "LMCacheConnectorV1", "LMCacheMPConnector")
OFFLOADING = "OffloadingConnector"


def from_flags(args: Mapping[str, object], ranks: int, engines: int = 1) -> list[dict[str, object]]:
    """The tiers that an engine's own flags and variables ask for, on ``ranks`` GPUs of a deployment with
    ``engines`` data-parallel ranks.

    vLLM's ``kv_offloading_size`` (GiB of a data-parallel rank) and connectors, LMCache's sizes (GB a worker),
    SGLang's ``hicache_size`` (GB a rank).
    """
    flags = {
        key.strip().lstrip("-").replace("-", "_").lower(): value for key, value in args.items()
    }
    connector, extra = connector_of(flags.get("kv_transfer_config"))
    host = disk = 0.0
    keys: dict[str, object] = {}
    if (size := _amount(flags.get("kv_offloading_size"))) > 0:
        host = size * 2**30 * engines
        keys = {"per_rank": True}
    elif connector == OFFLOADING:
        host = _amount(extra.get("cpu_bytes_to_use")) * engines
        keys = {"per_rank": True} | ({"write": "selective"} if _again(extra) else {})
    elif connector in LMCACHE or flags.get("enable_lmcache"):
        local = flags.get("lmcache_local_cpu", extra.get("lmcache.local_cpu", True))
        most = flags.get("lmcache_max_local_cpu_size", extra.get("lmcache.max_local_cpu_size"))
        if str(local).lower() not in ("false", "0"):
            host = (LMCACHE_GB if most is None else _amount(most)) * 1e9 * ranks
        below = flags.get("lmcache_max_local_disk_size", extra.get("lmcache.max_local_disk_size"))
        disk = _amount(below) * 1e9 * ranks
        chunk = flags.get("lmcache_chunk_size", extra.get("lmcache.chunk_size"))
        keys = {"chunk_tokens": int(_amount(chunk)) or LMCACHE_CHUNK_TOKENS}
    elif flags.get("enable_hierarchical_cache") or flags.get("enable_hicache"):
        return _hicache(flags, ranks)
    sizes = (("host", host), ("nvme", disk))
    return [{**keys, "kind": kind, "bytes": int(size)} for kind, size in sizes if size >= 1]


STORED_ON_DISK = ("file",)
"""SGLang's storage backends that write files of this machine; the others are stores in the network."""


def _hicache(flags: Mapping[str, object], ranks: int) -> list[dict[str, object]]:
    """SGLang's hierarchical cache: host memory, and its storage backend below that.

    Backends are told what to do by JSON (``hicache_storage_backend_extra_config``): from how many tokens on
    and how long they are waited for, and how large a folder may become (``max_size``).
    """
    host = dict(PRESETS["hicache"])
    if written := flags.get("hicache_write_policy"):
        host["write"] = WRITES.get(str(written).replace("-", "_"), "through")
    if size := _amount(flags.get("hicache_size")) * 1e9 * ranks:
        del host["times_gpu"]
        host["bytes"] = int(size)
    elif ratio := _amount(flags.get("hicache_ratio")):
        host["times_gpu"] = ratio
    backend = flags.get("hicache_storage_backend")
    if not backend:
        return [host]
    extra = json_object(flags.get("hicache_storage_backend_extra_config"))
    disk = str(backend) in STORED_ON_DISK
    below: dict[str, object] = {
        "kind": "nvme" if disk else "network",
        "prefetch": flags.get("hicache_storage_prefetch_policy"),
        "prefetch_tokens": extra.get("prefetch_threshold"),
        "prefetch_wait_s": extra.get("prefetch_timeout_base"),
        "prefetch_wait_s_per_1k_tokens": extra.get("prefetch_timeout_per_ki_token"),
        "bytes": _folder_bytes(extra.get("max_size")) if disk else None,
    }
    return [host, {key: value for key, value in below.items() if value is not None}]


SIZE_UNITS = {"": 1} | {
    unit + more: base**power
    for power, unit in enumerate("KMGT", 1)
    for more, base in (("", 1000), ("I", 1024))
}
"""What SGLang reads sizes in: 200G, 1Gi, or bytes."""


def _folder_bytes(size: object) -> int | None:
    """The size of a folder as SGLang reads it; None where it has no limit."""
    text = str(size or 0).strip().upper()
    number = text.rstrip("KMGTI")
    amount = _amount(number) * SIZE_UNITS.get(text[len(number) :], 0)
    return int(amount) or None


def _again(extra: Mapping[str, object]) -> bool:
    """Whether blocks are stored when they are looked up again (``store_threshold`` of 2 and more)."""
    return _amount(extra.get("store_threshold")) >= 2


def unfollowed(args: Mapping[str, object]) -> str:
    """The connector of a ``kv_transfer_config`` that is no tier here, "" where there is none."""
    flags = {key.strip().lstrip("-").replace("-", "_"): value for key, value in args.items()}
    connector, extra = connector_of(flags.get("kv_transfer_config"))
    if (
        connector == OFFLOADING
        and extra.get("num_cpu_blocks")
        and not extra.get("cpu_bytes_to_use")
    ):
        return f"{connector}'s num_cpu_blocks"
    return "" if connector in (*LMCACHE, OFFLOADING) else connector


def connector_of(value: object) -> tuple[str, Mapping[str, object]]:
    """(a transfer configuration's connector, its own settings)."""
    config = json_object(value)
    return str(config.get("kv_connector") or ""), json_object(
        config.get("kv_connector_extra_config")
    )


def json_object(value: object) -> Mapping[str, object]:
    """JSON's object, or one that is there already; {} where it is none."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, Mapping) else {}


def _amount(value: object) -> float:
    """A size as a number; 0 where it is none."""
    if not isinstance(value, str | int | float):
        return 0.0
    try:
        amount = float(value)
    except (OverflowError, ValueError):
        return 0.0
    return amount if isfinite(amount) and 0 < amount < MOST_BYTES_PER_S else 0.0


def line(text: str, field: str = "--tier") -> dict[str, object]:
    """``host:512GiB:write=back`` as an object: its kind, its size where one is given, its keys."""
    kind, *parts = (part.strip() for part in text.split(":"))
    usual = PRESETS.get(kind.lower(), {"kind": kind})
    keys: dict[str, object] = {}
    for part in parts:
        key, equals, value = (x.strip() for x in part.partition("="))
        if not equals and "bytes" not in keys:
            keys["bytes"] = key
            continue
        key = key.replace("-", "_")
        if not equals or not value or key in (*keys, "kind"):
            raise KvroomError(field, part, "is no KEY=VALUE of a tier, once", EXAMPLE)
        keys[key] = value
    return usual | keys


def _tier(field: str, entry: object) -> OffloadTier:
    if isinstance(entry, OffloadTier):
        return entry
    if not isinstance(entry, Mapping):
        raise KvroomError(field, entry, "is not an object", 'Write {"kind": "host"}.')
    for key in entry:
        if key not in KEYS:
            fix = did_you_mean(str(key), KEYS, f"Known keys: {', '.join(KEYS)}.")
            raise KvroomError(field, key, "is no known key", fix)
    keys = {key: value for key, value in entry.items() if value is not None}
    kind = _word(f"{field}.kind", keys.pop("kind", None), {kind: kind for kind in KINDS})
    defaults: dict[str, object] = {"kind": kind, "shared": kind == "network"}
    for key, value in keys.items():
        defaults[key] = _read(f"{field}.{key}", key, value)
    tier = OffloadTier(**defaults)  # type: ignore[arg-type]  # each key has been read
    through = tier.write in (None, "through")
    if not tier.inclusive and (through or tier.shared):
        what = "written through" if through else "shared"
        why = f"cannot be exclusive: a page {what} is in two places"
        raise KvroomError(f"{field}.inclusive", False, why, "Add write=back and shared=false.")
    if tier.write == "back" and tier.chunk_tokens is not None:
        why = "are written when they are whole, not when the tier above evicts"
        raise KvroomError(f"{field}.chunk_tokens", tier.chunk_tokens, why, "Leave write=back out.")
    if kind == "host" and any(key.startswith("prefetch") for key in keys):
        why = "is of what lies below host memory"
        raise KvroomError(
            f"{field}.prefetch", keys.get("prefetch"), why, "Give it to nvme or network."
        )
    if tier.pinned_bytes is not None and kind != "host":
        why = "is a limit of host memory only"
        raise KvroomError(f"{field}.pinned_bytes", tier.pinned_bytes, why, "Give it to host.")
    if tier.pinned_bytes == 0:
        why = (
            "leaves nothing that a GPU can read: only pinned memory is reached by its copy engines"
        )
        fix = "Raise the limit (ulimit -l, or the container's memlock), or leave the tier out."
        raise KvroomError(f"{field}.pinned_bytes", 0, why, fix)
    return tier


def _read(name: str, key: str, value: object) -> object:
    match key:
        case "bytes" | "pinned_bytes":
            return parse_bytes(name, value)
        case "bytes_per_s":
            return _rate(name, value)
        case "kv_dtype":
            return None if value == "auto" else cache_dtype(str(value), name).name
        case "chunk_tokens" | "prefetch_tokens":
            return parse_tokens(name, value)
        case "times_gpu":
            times = number_of(value) if isinstance(value, str) else value
            return check_float(name, times, low=0.01, high=1e6)
        case "prefetch":
            return _word(name, value, {word: word for word in PREFETCHES})
        case "latency_s" | "lookup_s" | "prefetch_wait_s" | "prefetch_wait_s_per_1k_tokens":
            seconds = number_of(value) if isinstance(value, str) else None
            value = value if seconds is None else seconds
            return check_float(name, value, low=0.0, high=1e4, unit="seconds")
        case "write":
            return _word(name, value, WRITES)
        case "policy":
            return _word(name, value, {policy: policy for policy in POLICIES})
        case _:
            return _flag(name, value)


def _rate(name: str, value: object) -> int:
    number = number_of(value)
    if isinstance(value, str) and (number is None or 1 <= number < FEWEST_BYTES_PER_S):
        number = parse_bytes(name, value.removesuffix("/s"))  # which asks for a unit where none is
    if number is None:
        raise KvroomError(name, value, "is not a number", "Write bytes per second, such as 50e9.")
    if number < 1:
        why = "carries nothing: whatever is kept there can never be read"
        raise KvroomError(name, value, why, "Write bytes per second, such as 50e9 or 50GB.")
    return int(check_float(name, number, low=1, high=MOST_BYTES_PER_S, unit="bytes per second"))


def _word(name: str, value: object, words: Mapping[str, str]) -> str:
    word = value.strip().lower() if isinstance(value, str) else ""
    if word not in words:
        fix = did_you_mean(word, words, f"One of: {', '.join(dict.fromkeys(words.values()))}.")
        raise KvroomError(name, value, "is no such thing", fix)
    return words[word]


def _flag(name: str, value: object) -> bool:
    word = str(value).strip().lower() if isinstance(value, bool | str) else ""
    if word in ("true", "yes", "on"):
        return True
    if word in ("false", "no", "off"):
        return False
    raise KvroomError(name, value, "is not true or false", "Write true or false.")
