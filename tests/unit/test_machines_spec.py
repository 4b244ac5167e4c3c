"""Devices, tiers, links, machines: ranges refused, defaults, plain forms."""

import pytest

from kvroom.errors import KvroomError
from kvroom.hardware import Device, Link, Machine, Source, Tier, find

GOOD = {"name": "x", "sold_bytes": 80 * 10**9, "memory_bytes_per_s": 3e12}


@pytest.mark.parametrize(
    ("change", "field", "message"),
    [
        ({"sold_bytes": 10**15 + 1}, "gpu.sold_bytes", "above"),
        ({"sold_bytes": 10**400}, "gpu.sold_bytes", "above"),
        ({"sold_bytes": 0}, "gpu.sold_bytes", "above zero"),
        ({"sold_bytes": -1}, "gpu.sold_bytes", "below"),
        ({"sold_bytes": None}, "gpu.sold_bytes", "not a number"),
        ({"sold_bytes": True}, "gpu.sold_bytes", "not a number"),
        ({"sold_bytes": "80G"}, "gpu.sold_bytes", "ambiguous"),
        ({"visible_bytes": 1.5}, "gpu.visible_bytes", "whole"),
        ({"memory_bytes_per_s": 0}, "gpu.memory_bytes_per_s", "above zero"),
        ({"memory_bytes_per_s": -1.0}, "gpu.memory_bytes_per_s", "outside"),
        ({"memory_bytes_per_s": float("nan")}, "gpu.memory_bytes_per_s", "finite"),
        ({"memory_bytes_per_s": float("inf")}, "gpu.memory_bytes_per_s", "finite"),
        ({"memory_bytes_per_s": 10**400}, "gpu.memory_bytes_per_s", "outside"),
        ({"memory_bytes_per_s": "fast"}, "gpu.memory_bytes_per_s", "is no rate"),
        ({"flops_per_s": {"bf17": 1e12}}, "gpu.flops_per_s.bf17", "unknown key"),
        ({"flops_per_s": {"bf16": 0}}, "gpu.flops_per_s.bf16", "above zero"),
        ({"flops_per_s": 1e12}, "gpu.flops_per_s", "not a table"),
        ({"name": " "}, "gpu.name", "empty"),
        ({"name": 7}, "gpu.name", "not a text"),
        ({"notes": "x" * 5000}, "gpu.notes", "too long"),
        ({"tdp_w": float("nan")}, "gpu.tdp_w", "finite"),
        ({"usd_per_hour": -1}, "gpu.usd_per_hour", "outside"),
        ({"unified_memory": 1}, "gpu.unified_memory", "yes or no"),
        ({"compute_capability": 9.0}, "gpu.compute_capability", "not a text"),
        ({"aliases": "h100"}, "gpu.aliases", "not a list"),
        ({"sources": {"memory": "x"}}, "gpu.sources.memory", "unknown key"),
        ({"scale_up": {"name": "a"}}, "gpu.scale_up.bytes_per_s", "missing"),
        ({"scale_up": {"name": "a", "bytes_per_s": -1}}, "link.bytes_per_s", "outside"),
    ],
)
def test_out_of_range_is_refused(change, field, message):
    with pytest.raises(KvroomError) as caught:
        Device(**{**GOOD, **change})
    assert caught.value.field == field
    assert message in caught.value.message
    assert caught.value.fix


def test_fields_cannot_change():
    with pytest.raises(AttributeError):
        find("H100-SXM").sold_bytes = 1


def test_limits_are_inclusive():
    assert Device(**{**GOOD, "sold_bytes": 10**15}).sold_bytes == 10**15


def test_from_dict_names_unknown_and_missing_keys():
    with pytest.raises(KvroomError, match="Did you mean sold_bytes"):
        Device.from_dict({**GOOD, "sold_byte": 1})
    with pytest.raises(KvroomError) as caught:
        Device.from_dict({"name": "x"})
    assert caught.value.field == "gpu.sold_bytes"
    with pytest.raises(KvroomError, match="not a table"):
        Tier.from_dict([], "tiers[0]")


def test_source_kinds():
    assert Source.parse("driver: nvidia-smi") == Source("driver", "nvidia-smi")
    assert Source.parse("copied at 12:30") == Source("assumed", "copied at 12:30")
    assert Source.parse("measured") == Source("measured", "not stated")
    assert Source.parse(None).kind == "assumed"
    with pytest.raises(KvroomError):
        Source("guessed", "x")


def test_standard_machine_has_tiers_from_fast_to_far():
    machine = Machine.standard(find("H100-SXM"), 8)
    assert [t.name for t in machine.tiers] == ["sram", "l2", "hbm", "host", "nvme", "network"]
    assert machine.tier("hbm").bytes == find("H100-SXM").engine_bytes
    for name in ("host", "nvme", "network"):
        assert machine.tier(name).source.kind == "assumed"
        assert machine.tier(name).source.text
    assert machine.tier("tape") is None
    assert machine.link("NVLink4 + NVSwitch").bytes_per_s == 450e9
    assert machine.link("string") is None
    assert Machine.from_dict(machine.to_dict()) == machine


def test_unified_memory_has_no_host_tier():
    tiers = [t.name for t in Machine.standard(find("M3 Max")).tiers]
    assert tiers == ["dram", "nvme", "network"]


def test_machines_are_range_checked():
    device = find("H100")
    with pytest.raises(KvroomError, match="below 1"):
        Machine.standard(device, 0)
    twice = Tier(name="host")
    with pytest.raises(KvroomError, match="named twice"):
        Machine(name="m", device=device, tiers=(twice, twice))
    with pytest.raises(KvroomError, match="not a list"):
        Machine.from_dict({"name": "m", "device": device.to_dict(), "tiers": {}})
    with pytest.raises(KvroomError) as caught:
        Tier(name="host", latency_s=-1.0)
    assert caught.value.field == "tier.latency_s"
    with pytest.raises(KvroomError):
        Link(name="wire", bytes_per_s=0)
