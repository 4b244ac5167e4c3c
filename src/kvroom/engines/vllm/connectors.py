"""Whether the hybrid cache manager stays on beside a KV connector: which connectors serve groups, since when.

A connector that serves windows and state in groups of their own is a ``SupportsHMA``. Beside another one the
manager is off: windows are kept at full length, and recurrent state beside attention cannot be made one
type. Until 0.12 any connector turned it off; from 0.13 on any did unless it was asked for by name
(``--no-disable-hybrid-kv-cache-manager``); since 0.22 only those do that are none. From 0.12 to 0.20
``--kv-offloading-size`` became a connector after that had been looked at, so that the manager stayed on and
the connector was refused as it was made.

Sources: ``VllmConfig.__post_init__``, ``KVConnectorFactory.create_connector`` and the connectors' classes in
the releases 0.11.0 to 0.20.0 and 0.22.0 to 0.33.0; of 0.21, github ovg-project/kvcached pull request 351.
"""

from __future__ import annotations

from kvroom.engines.flags import plain_args
from kvroom.engines.releases import Release
from kvroom.engines.start_rules import Against
from kvroom.engines.vllm.setup import VllmSetup
from kvroom.scenario.offload import LMCACHE, OFFLOADING, connector_of

SERVES_GROUPS: dict[str, Release] = {
    "NixlConnector": (0, 18, 0),
    "SimpleCPUOffloadConnector": (0, 19, 0),
    "MooncakeConnector": (0, 20, 0),
    OFFLOADING: (0, 21, 0),
    "DecodeBenchConnector": (0, 22, 0),
    "ExampleHiddenStatesConnector": (0, 22, 0),
    "MooncakeStoreConnector": (0, 22, 0),
    "NixlPullConnector": (0, 24, 0),
    "NixlPushConnector": (0, 24, 0),
    "HiSparseConnector": (0, 30, 0),
    "MoRIIOConnector": (0, 30, 0),
    "UMBPStoreConnector": (0, 33, 0),
}
"""The first release seen in which each is a ``SupportsHMA``."""
SEVERAL = "MultiConnector"
SEVERAL_SINCE: Release = (0, 22, 0)
"""It serves groups where all that it holds do."""
SIZE_BECOMES_ONE, SIZE_SEEN = (0, 12, 0), (0, 21, 0)
"""Between them ``kv_offloading_size`` becomes a connector after the manager was decided on."""
OFFLOADS_SINCE: Release = (0, 11, 0)
"""The first release that has ``OffloadingConnector``."""
SIZE_WORKS: Release = (0, 14, 0)
"""Before it ``kv_offloading_size`` became a connector of no blocks, which is refused as it is made
(``CPUOffloadingSpec`` wants ``num_cpu_blocks``)."""
STORES_AGAIN_SINCE: Release = (0, 18, 0)
"""The first release seen whose connector takes ``store_threshold``."""
ASKED_SINCE, KEPT_SINCE = (0, 13, 0), (0, 22, 0)
STAYS_ON = {"disable_hybrid_kv_cache_manager": True}


def connector(setup: VllmSetup) -> str:
    """The connector that its flags name, else the one that its tiers take; "" for none."""
    args = plain_args(setup.d.args)
    named, _ = connector_of(args.get("kv_transfer_config"))
    if named:
        return named
    if args.get("kv_offloading_size"):
        lmcache = str(args.get("kv_offloading_backend") or "").lower() == "lmcache"
        return LMCACHE[1] if lmcache else OFFLOADING
    tiers = [tier for tier in setup.d.tiers if tier.bytes != 0]
    if not tiers:
        return ""
    if any(tier.kind == "network" for tier in tiers):
        return "MooncakeStoreConnector"
    disk = any(tier.kind != "host" or tier.chunk_tokens is not None for tier in tiers)
    return LMCACHE[1] if disk else OFFLOADING


def serves_groups(setup: VllmSetup, name: str) -> bool:
    """Whether the connector of that name is a ``SupportsHMA`` in the release."""
    if name == SEVERAL and setup.release >= SEVERAL_SINCE:
        _, extra = connector_of(plain_args(setup.d.args).get("kv_transfer_config"))
        held = extra.get("connectors")
        inner = [connector_of(each)[0] for each in held] if isinstance(held, list) else []
        return bool(inner) and all(each != SEVERAL and serves_groups(setup, each) for each in inner)
    since = SERVES_GROUPS.get(name)
    return since is not None and setup.release >= since


def turns_manager_off(setup: VllmSetup) -> str:
    """The connector beside which the hybrid manager is off, though its flags do not turn it off; "" for
    none."""
    name = connector(setup)
    if not name or setup.flags.hybrid_off:
        return ""
    serves = serves_groups(setup, name)
    if _comes_late(setup):
        return ""  # it is refused where it does not serve groups
    if setup.release >= KEPT_SINCE or (setup.release >= ASKED_SINCE and _asked(setup)):
        return "" if serves or setup.flags.hybrid_off is not None else name
    # A question's own tiers are started with what they need.
    by_tier = serves and not _flagged(setup)
    return "" if by_tier else name


def refused(setup: VllmSetup) -> Against | None:
    """A connector that serves no groups is not made while the manager is on."""
    name = connector(setup)
    if not name or setup.flags.hybrid_off or setup.release < SIZE_BECOMES_ONE:
        return None
    if serves_groups(setup, name) or not (_comes_late(setup) or _asked(setup)):
        return None
    why = f"{name} does not serve layers in groups, and the hybrid cache manager is on"
    if any(kind.recurrent for kind, _ in setup.d.model.stores):  # it does not start with that off
        since = SERVES_GROUPS.get(name)
        later = f"vLLM {'.'.join(map(str, since))} or later, or " if since else ""
        return Against(why, f"{later}no tier below the GPU")
    return Against(why, "disable_hybrid_kv_cache_manager", STAYS_ON)


def no_blocks(setup: VllmSetup) -> Against | None:
    """Native offloading by size is a connector of no blocks until it counts bytes."""
    args = plain_args(setup.d.args)
    native = str(args.get("kv_offloading_backend") or "").lower() == "native"
    if setup.release >= SIZE_WORKS or not native or args.get("kv_transfer_config"):
        return None
    since = ".".join(map(str, SIZE_WORKS))
    return Against(
        f"kv_offloading_size makes a connector without num_cpu_blocks before {since}",
        f"vLLM {since} or later, or kv_transfer_config with {OFFLOADING} and its num_cpu_blocks",
    )


def _asked(setup: VllmSetup) -> bool:
    """Whether the manager is asked for by name."""
    return setup.flags.hybrid_off is False


def _flagged(setup: VllmSetup) -> bool:
    """Whether flags name the connector."""
    args = plain_args(setup.d.args)
    return bool(args.get("kv_offloading_size") or args.get("kv_transfer_config"))


def _comes_late(setup: VllmSetup) -> bool:
    """Whether the connector comes to be after the manager was decided on."""
    args = plain_args(setup.d.args)
    if args.get("kv_transfer_config") or not args.get("kv_offloading_size"):
        return False
    return SIZE_BECOMES_ONE <= setup.release < SIZE_SEEN
